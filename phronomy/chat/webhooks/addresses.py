"""Addresses that a webhook may be sent to: those of the public internet, unless a host is named as one of your own network.

Whoever can set an endpoint could otherwise have the server talk to what only the server can reach. An address is looked up once,
checked, and connected to as it was checked: a name that leads elsewhere a moment later changes nothing.
https://cheatsheetseries.owasp.org/cheatsheets/Server_Side_Request_Forgery_Prevention_Cheat_Sheet.html
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final, TypeAlias

from phronomy.chat.channel import ChannelError, ChannelRefused

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_MOST: Final = 4
"""The most addresses of a host that are tried."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_OWN_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
"""Addresses that stand for one of version 4: everywhere, and in a network of one's own (RFC 8215)."""
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""What is public of version 6, at most: addresses that stand for one of version 4, and the global unicast addresses."""
_METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        (
            "168.63.129.16",  # Azure
            "100.100.100.200",  # Alibaba
            "192.0.0.192",  # Oracle
            "fd00:ec2::254",  # AWS
            "fd00:ec2::23",  # AWS, of pods
            "fd20:ce::254",  # Google
            "fd00:42::42",  # Scaleway
        ),
    )
)
"""Servers of clouds that tell a machine its secrets, beside those at link-local addresses. The first is public by its number."""


def addresses_of(host: str, port: int, *, internal: bool) -> list[str]:
    """The addresses of a host that may be connected to, in the order in which they are to be tried.

    If one of them may not, none may. `internal` says that the host may be of your own network. Raises `ChannelError`.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ChannelError("the host of the endpoint has no address") from None
    texts = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not texts or not all(may_reach(text, internal=internal) for text in texts):
        raise ChannelRefused("the host of the endpoint has an address that is not public")
    return texts[:_MOST]


def may_reach(text: str, *, internal: bool) -> bool:
    """Whether an address may be connected to."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return all(_may(each, internal=internal) for each in (address, *_inside(address)))


def _may(address: Address, *, internal: bool) -> bool:
    if address.is_link_local or address.is_multicast or address.is_unspecified or address in _METADATA:
        return False
    if internal:
        return True
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST and address not in _NAT64:
        return False
    return address.is_global


def _inside(address: Address) -> list[Address]:
    """The addresses of version 4 that an address of version 6 leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found: list[Address] = [each for each in (address.ipv4_mapped, address.sixtofour) if each is not None]
    if address.teredo is not None:
        found += address.teredo
    if address in _NAT64 or address in _OWN_NAT64:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return found

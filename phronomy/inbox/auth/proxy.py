"""A proxy that signs people in, and says in headers who they are: believed only if it is that proxy, and proves it.

Anybody can send a header. So two things must hold: the connection comes from an address that you have named, or through a Unix
socket, and it brings a secret that only the proxy has. Who somebody is, is said once. A request that names people and is not of the
proxy is refused, and noted: it is an attempt, or the proxy is configured wrongly, and neither is to pass in silence.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from phronomy.errors import ConfigurationError, InvalidDecision, StoreError
from phronomy.foundation.checks import texts_in
from phronomy.foundation.quoting import quoted
from phronomy.inbox.auth.identity import SCOPES, Identity, Scope, checked_scopes
from phronomy.inbox.problems import Problem
from phronomy.records.principals import Principal
from phronomy.stores.base import checked_tenant

if TYPE_CHECKING:
    from starlette.requests import Request

UNIX: Final = "unix"
"""The peer of a Unix socket, among `peers`."""

_SECRET: Final = 32
"""The fewest bytes of the secret."""

_PREFIX: Final = re.compile(r"[a-z][a-z0-9-]*:")
_OTHERS: Final = frozenset({"discord:", "email:", "oidc:", "slack:", "teams:", "telegram:", "webhook:"})
"""The prefixes of the other ways by which people are known."""

_Network: TypeAlias = IPv4Network | IPv6Network

_TOKEN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")

_log = logging.getLogger("phronomy")


class TrustedProxy:
    """Knows people by what a proxy in front of the inbox says of them, such as oauth2-proxy, Authelia or a gateway of your own.

    `peers` are the addresses of the proxy, such as `"10.0.0.5"` or `"10.0.0.0/28"`, or `"unix"` for a Unix socket. They are compared
    with the other end of the connection: run the server so that it leaves that as it is (`uvicorn --no-proxy-headers`). `secret`
    is what the proxy sends in `secret_header`, at least 32 characters; of two, the second counts as well, so that the secret can be
    changed. The proxy must remove these headers from what it gets from outside.

    `user_header` has the name of the person at the proxy. Their id is this name behind `prefix`, so that no name that somebody chooses
    there is the id or the alias of somebody else. With an empty prefix it is the name itself, and names with a colon, as aliases of
    channels have, are refused. `name_header` has the name for people; `roles_header` roles, separated by `separator`.
    `tenant` is whose store they see, or `tenant_header` has it. Raises
    `ConfigurationError`, and `StoreError` for the name of a tenant that cannot be.
    """

    def __init__(
        self,
        *,
        peers: Collection[str],
        secret: str | Collection[str],
        user_header: str = "X-Forwarded-User",
        name_header: str | None = None,
        roles_header: str | None = None,
        tenant_header: str | None = None,
        tenant: str | None = None,
        secret_header: str = "X-Proxy-Secret",  # noqa: S107  # a name, and no secret
        separator: str = ",",
        prefix: str = "proxy:",
        scopes: Collection[Scope] = SCOPES,
    ) -> None:
        self._unix, self._networks = _peers(peers)
        self._secrets = _secrets(secret)
        if tenant is not None and tenant_header is not None:
            raise ConfigurationError("TrustedProxy: give tenant or tenant_header, not both")
        if tenant is not None:
            checked_tenant(tenant)
        if not isinstance(separator, str) or not separator:
            raise ConfigurationError(f"TrustedProxy: separator is text that is not empty, not {quoted(separator)}")
        given = {
            "user_header": user_header,
            "secret_header": secret_header,
            "name_header": name_header,
            "roles_header": roles_header,
            "tenant_header": tenant_header,
        }
        names = {option: _header(option, name) for option, name in given.items() if name is not None}
        if len({*names.values()}) != len(names):
            raise ConfigurationError("TrustedProxy: two of the headers have the same name")
        self._user, self._secret = names["user_header"], names["secret_header"]
        self._name, self._roles, self._tenant_header = (
            names.get(each) for each in ("name_header", "roles_header", "tenant_header")
        )
        self._prefix = _checked_prefix(prefix)
        self._ours = frozenset(names.values())
        self._tenant = tenant
        self._separator = separator
        self._scopes = checked_scopes(scopes, "TrustedProxy: scopes")

    def __repr__(self) -> str:
        return f"TrustedProxy({[str(each) for each in self._networks]!r}, unix={self._unix})"

    async def identify(self, request: Request) -> Identity | None:
        """Whom the proxy names; None if nothing is said of a person. Raises `Problem` for what is not the proxy's word."""
        found = self.check(request)
        if not found:
            return None
        user = found.get(self._user, "")
        if not user:
            if any(found.values()):
                _refuse(request, "the proxy names nobody, and says more of them")
            return None  # somebody whom the proxy lets through without a login
        if not self._prefix and ":" in user:
            _refuse(request, "the proxy names somebody as a channel would, and its own people have no prefix")
        tenant = self._tenant
        if self._tenant_header is not None:
            tenant = found.get(self._tenant_header, "")
            if not tenant:  # never the inbox's own store instead, which may be that of all
                _refuse(request, "the proxy names no tenant")
            try:
                checked_tenant(tenant)
            except StoreError:
                _refuse(request, "the proxy names a tenant that cannot be")
        roles = found.get(self._roles, "") if self._roles is not None else ""
        try:
            principal = Principal(
                id=self._prefix + user,
                name=(found.get(self._name) or None) if self._name is not None else None,
                roles=tuple(dict.fromkeys(each.strip() for each in roles.split(self._separator) if each.strip())),
            )
        except InvalidDecision:
            _refuse(request, "what the proxy says of the person cannot be read")
        return Identity(principal=principal, tenant=tenant, scopes=self._scopes, via="proxy")

    def check(self, request: Request) -> dict[str, str]:
        """What the proxy says of a person, by the names of its headers. Raises `Problem` for what is not the proxy's word."""
        found = self._said(request)
        if not found:
            return found
        if not self._is_peer(request):
            _refuse(request, "headers of the proxy come from another address")
        secret = found.pop(self._secret, None)
        if secret is None or not self._knows(secret):
            _refuse(request, "the secret of the proxy is missing or wrong")
        return found

    def _said(self, request: Request) -> dict[str, str]:
        """The headers of ours that a request has, each once. Raises `Problem`."""
        found: dict[str, str] = {}
        for raw, value in request.headers.raw:
            name = raw.decode("latin-1").lower()
            # A server of another kind may have read it as the header with dashes, and a proxy as some other header.
            if name.replace("_", "-") not in self._ours:
                continue
            if "_" in name:
                _refuse(request, "a header of the proxy is spelled with underscores")
            if name in found:
                _refuse(request, "a header of the proxy is there more than once")
            try:
                found[name] = value.decode("utf-8").strip()
            except UnicodeDecodeError:
                _refuse(request, "a header of the proxy is not UTF-8")
        return found

    def _is_peer(self, request: Request) -> bool:
        """Whether the other end of the connection is the proxy."""
        client, server = request.scope.get("client"), request.scope.get("server")
        if client is None:
            # Of a Unix socket the server knows the path, and no port. Without either, nobody knows what it is.
            return self._unix and server is not None and server[1] is None
        host, port = client[0], client[1]
        if not port:
            return False  # no connection has the port 0: something has put another address in the place of the peer's
        try:
            address = ip_address(host)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def _knows(self, given: str) -> bool:
        # All of them, whichever is right: the time says nothing of which one it is.
        return bool(sum([hmac.compare_digest(each, given.encode()) for each in self._secrets]))


def _refuse(request: Request, why: str) -> NoReturn:
    """Refuse what is not the proxy's word, and note it, with nothing of what was said."""
    peer = request.client.host if request.client is not None else "a Unix socket"
    _log.warning("the inbox refused a request from %s: %s", peer, why)
    raise Problem("bad-request", "The request says who somebody is in a way that does not count here.")


def _checked_prefix(prefix: str) -> str:
    if not isinstance(prefix, str) or (prefix and _PREFIX.fullmatch(prefix) is None) or prefix in _OTHERS:
        raise ConfigurationError(
            f"TrustedProxy: prefix is small letters, digits and dashes with a colon behind them, such as proxy:, and none of"
            f" {', '.join(sorted(_OTHERS))}, or it is empty; not {quoted(prefix)}"
        )
    return prefix


def _peers(given: Collection[str]) -> tuple[bool, tuple[_Network, ...]]:
    texts = texts_in(given)
    if not texts:
        raise ConfigurationError(
            f"TrustedProxy: peers are the addresses of the proxy, or 'unix', at least one, not {quoted(given)}"
        )
    networks: list[_Network] = []
    for each in texts:
        if each == UNIX:
            continue
        try:
            network = ip_network(each)
        except ValueError:
            raise ConfigurationError(
                f"TrustedProxy: a peer is an IP address, a network such as 10.0.0.0/28, or 'unix', not {quoted(each)}"
            ) from None
        if network.prefixlen == 0:
            raise ConfigurationError("TrustedProxy: a network of all addresses is no proxy: name those of yours")
        networks.append(network)
    return UNIX in texts, tuple(networks)


def _secrets(given: str | Collection[str]) -> tuple[bytes, ...]:
    texts = (given,) if isinstance(given, str) else texts_in(given)
    if not texts or any(len(each.encode()) < _SECRET or each != each.strip() for each in texts):
        # Not quoted: it is a secret, even if it is too short.
        raise ConfigurationError(
            f"TrustedProxy: secret is text of at least {_SECRET} characters without spaces around it, or several of them:"
            " `openssl rand -hex 32` makes one"
        )
    return tuple(each.encode() for each in texts)


def _header(option: str, name: str) -> str:
    found = name.lower() if isinstance(name, str) else ""
    if not found or not {*found} <= _TOKEN:
        raise ConfigurationError(
            f"TrustedProxy: {option} is the name of a header, of letters, digits and dashes, not {quoted(name)}"
        )
    if found in ("authorization", "cookie", "host", "origin"):
        raise ConfigurationError(f"TrustedProxy: {option}: the header {name} has another meaning: take one of your own")
    return found

"""Sending an event: one POST to an address that was checked, with an end after so many seconds in all, whatever the other side does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import httpx2

from phronomy.chat.channel import ChannelError
from phronomy.chat.deadline import Deadline
from phronomy.chat.webhooks.addresses import addresses_of
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.version import VERSION

if TYPE_CHECKING:
    from ssl import SSLContext

_CONNECTING: Final = 5.0
"""Seconds for one address, so that there is time for the next one."""
_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where events are sent: the parts of an address, which may hold a secret of the other side."""

    scheme: str
    host: str
    port: int
    path: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the other side has answered: the status, and `Retry-After` as it stands there."""

    status: int
    retry_after: str | None


def target_of(url: str) -> Target:
    """The parts of an address. Raises `ValueError`, which does not quote it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("no address") from None
    host = parts.hostname or ""
    plain = url.isascii() and url.isprintable() and " " not in url and "\\" not in url
    if parts.scheme not in _PORTS or not host or "%" in host or not plain or port == 0:
        raise ValueError("an address is https://, a host in ASCII, and a path")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("an address has no user, no password and no fragment")
    path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return Target(scheme=parts.scheme, host=host, port=_PORTS[parts.scheme] if port is None else port, path=path)


def deliver(
    target: Target, headers: Mapping[str, str], body: bytes, *, internal: bool, timeout: float, trust: SSLContext
) -> Answer:
    """Post a body, and return the answer, without its body. Raises `ChannelError`, which quotes nothing that was sent."""
    ends = time.monotonic() + timeout
    last = ChannelError("the endpoint could not be reached")
    for address in addresses_of(target.host, target.port, internal=internal):
        left = ends - time.monotonic()
        if left <= 0:
            break
        try:
            return _post(target, address, headers, body, left, trust)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            last = ChannelError(f"the endpoint could not be reached: {type(error).__name__}")
        except (httpx2.HTTPError, OSError) as error:
            raise ChannelError(f"the endpoint gave no answer: {type(error).__name__}") from None
    raise last


def _post(
    target: Target, address: str, headers: Mapping[str, str], body: bytes, seconds: float, trust: SSLContext
) -> Answer:
    at = f"[{address}]" if ":" in address else address
    name = f"[{target.host}]" if ":" in target.host else target.host
    host = name if target.port == _PORTS[target.scheme] else f"{name}:{target.port}"
    given = {**headers, "host": host, "content-type": "application/json", "user-agent": f"phronomy/{VERSION}"}
    # A client for one request: a connection to an address is not used for another host there, whose certificate nobody has checked.
    timeout = httpx2.Timeout(seconds, connect=min(seconds, _CONNECTING))
    with (
        Deadline(seconds) as deadline,
        httpx2.Client(verify=trust, trust_env=False, follow_redirects=False, timeout=timeout) as client,
        client.stream(
            "POST",
            f"{target.scheme}://{at}:{target.port}{target.path}",
            headers=given,
            content=body,
            extensions={"sni_hostname": target.host, "trace": partial(_watch, deadline)},
        ) as response,
    ):
        return Answer(status=response.status_code, retry_after=response.headers.get("retry-after"))


def _watch(deadline: Deadline, event: str, info: Mapping[str, Any]) -> None:
    """What the client calls at each step: https://www.encode.io/httpcore/extensions/#trace."""
    if event == "connection.connect_tcp.complete":
        deadline.watch(info["return_value"].get_extra_info("socket"))

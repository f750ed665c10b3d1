"""How often somebody may try: failures are counted in the store, by all processes together; all else by each process for itself.

Secrets of the inbox are 256 random bits, which nobody guesses. So these limits keep a stranger from making work, and from filling the
log; what brings a right secret is never refused for the failures of others behind the same address.

Documents of failures, one sentence a version: 1. The first.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_count, is_number
from phronomy.foundation.json_text import parse
from phronomy.foundation.quoting import quoted
from phronomy.inbox.auth.identity import Identity
from phronomy.inbox.problems import Problem
from phronomy.stores.base import Store
from phronomy.stores.rows import Behind, Document

if TYPE_CHECKING:
    from starlette.requests import Request

KIND: Final = "inbox-failures"
_VERSION: Final = 1

Way: TypeAlias = Literal["login", "link", "mail", "token"]
"""What somebody has tried: to sign in elsewhere, a one-time link, the link of a mail, an API token."""

_TRIES: Final = 8
"""So many times a count is written anew that somebody else has changed at the same moment."""

_KEPT: Final = 10_000
"""So many addresses or people are remembered by a process; those that were seen longest ago are forgotten first."""

_PREFIX: Final = 64
"""The bits of an IPv6 address that somebody gets as a whole, so that they have all addresses under them."""


class Failures:
    """Failed attempts of each address: at most `most` in `seconds`, in all processes together."""

    def __init__(self, store: Store, *, most: int = 20, seconds: float = 600.0) -> None:
        _check(most, seconds)
        self._store = store
        self._most = most
        self._seconds = seconds

    async def count(self, way: Way, address: str) -> None:
        """Note a failed attempt. Raises `Problem` (`slow-down`) if there were too many, and then notes nothing more; `StoreError`."""
        key = f"{way}/{hashlib.sha256(network_of(address).encode()).hexdigest()}"
        for _ in range(_TRIES):
            found = await self._store.aget_document(KIND, key)
            now = self._store.clock()
            count, until = self._read(found, now)
            if count >= self._most:
                raise slow_down(until - now)
            row = {"version": _VERSION, "count": count + 1, "until": until}
            before = found or Document(kind=KIND, key=key, text="")
            try:
                await self._store.aput_document(replace(before, text=json.dumps(row), expires_at=until))
                return
            except Behind:
                continue
        raise slow_down(1)  # so many at this moment that nobody gets to count them

    async def check(self, way: Way, address: str) -> None:
        """Refuse an address that has failed too often, before an attempt that costs much. Raises `Problem`, `StoreError`."""
        key = f"{way}/{hashlib.sha256(network_of(address).encode()).hexdigest()}"
        now = self._store.clock()
        count, until = self._read(await self._store.aget_document(KIND, key), now)
        if count >= self._most:
            raise slow_down(until - now)

    def _read(self, document: Document | None, now: float) -> tuple[int, float]:
        """How many failures there were, and until when they count. A row that cannot be read is begun anew."""
        if document is not None:
            try:
                row = parse(document.text)
            except ValueError:
                row = None
            if isinstance(row, dict) and row.get("version") == _VERSION:
                count, until = row.get("count"), row.get("until")
                # Not for ever, whatever the row says: a clock may have been wrong when it was written.
                if is_count(count) and is_number(until) and now < until <= now + self._seconds:
                    return count, until
        return 0, now + self._seconds


class Rate:
    """At most `most` times in `seconds` for each name, in this process."""

    def __init__(self, most: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        _check(most, seconds)
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, who: str, count: int = 1) -> None:
        """Count so many. Raises `Problem` (`slow-down`) if that is too many, which are then not counted.

        More than the limit in one go would never have room: then the problem is `invalid`, and says how many may come together.
        """
        if count > self._most:
            raise Problem("invalid", f"This server takes at most {self._most:,} of these together.")
        now = self._clock()
        times = self._times.pop(who, None) or deque()
        while times and times[0] <= now - self._seconds:
            times.popleft()
        full = len(times) + count > self._most
        if not full:
            times.extend([now] * count)
        self._times[who] = times  # now the last to be forgotten
        while len(self._times) > _KEPT:
            self._times.popitem(last=False)
        if full:
            # Until so many are over that there is room for these.
            raise slow_down(times[len(times) + count - self._most - 1] + self._seconds - now)


class AtOnce:
    """At most `most` at the same time for each name, in this process."""

    def __init__(self, most: int) -> None:
        _check(most, 1)
        self._most = most
        self._open: dict[str, int] = {}

    @contextmanager
    def one(self, who: str) -> Iterator[bool]:
        """Count one while the block runs, and give whether there is room for it. One for which there is no room is not counted."""
        count = self._open.get(who, 0)
        if count >= self._most:
            yield False
            return
        self._open[who] = count + 1
        try:
            yield True
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]


class Limits:
    """The limits of an inbox. `failures` are those of logins, links and tokens, by address, in all processes together.

    By each process: `logins` starts of a login a minute and address; `decisions`, `checks` (looks at an answer before it counts),
    `grants` (given or revoked), `operations` on runs, and `reads`, all that somebody looks at, a minute and person; `streams` of events
    at the same time a person; `links`, how often one link of a mail is opened or pressed a minute. The pages and the API count as one,
    and a batch counts each of its requests. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        store: Store,
        *,
        failures: Failures | None = None,
        logins: int = 10,
        decisions: int = 60,
        checks: int = 120,
        grants: int = 60,
        streams: int = 5,
        links: int = 60,
        operations: int = 60,
        reads: int = 1_200,
    ) -> None:
        self.failures: Failures = failures if failures is not None else Failures(store)
        self._logins = Rate(logins, 60.0)
        self._own = store.tenant
        self._decisions = Rate(decisions, 60.0)
        self._checks = Rate(checks, 60.0)
        self._grants = Rate(grants, 60.0)
        self._streams = AtOnce(streams)
        self._links = Rate(links, 60.0)
        self._operations = Rate(operations, 60.0)
        self._reads = Rate(reads, 60.0)

    def login(self, request: Request) -> None:
        """Count the start of a login. Raises `Problem` (`slow-down`)."""
        self._logins.take(network_of(address_of(request)))

    def link(self, token_id: str) -> None:
        """Count a look at the page of a mail's link, or a press of its button. Raises `Problem` (`slow-down`)."""
        self._links.take(token_id)

    def decision(self, identity: Identity, count: int = 1) -> None:
        """Count decisions, whether they will be recorded or not. Raises `Problem` (`slow-down`, `invalid`)."""
        self._decisions.take(person_key(identity, self._own), count)

    def check(self, identity: Identity) -> None:
        """Count a look at an answer before it counts. Raises `Problem` (`slow-down`)."""
        self._checks.take(person_key(identity, self._own))

    def grant(self, identity: Identity) -> None:
        """Count a grant that is given or revoked. Raises `Problem` (`slow-down`)."""
        self._grants.take(person_key(identity, self._own))

    def read(self, identity: Identity) -> None:
        """Count a look at a page, or at something of the API. Raises `Problem` (`slow-down`)."""
        self._reads.take(person_key(identity, self._own))

    def operation(self, identity: Identity) -> None:
        """Count an operation on a run. Raises `Problem` (`slow-down`)."""
        self._operations.take(person_key(identity, self._own))

    @contextmanager
    def stream(self, identity: Identity) -> Iterator[bool]:
        """Count a stream of events while the block runs, and give whether there is room for it."""
        with self._streams.one(person_key(identity, self._own)) as room:
            yield room


def slow_down(seconds: float) -> Problem:
    """The problem of somebody who is to wait so long."""
    wait = max(1, math.ceil(seconds))
    told = f"Wait {wait} second{'' if wait == 1 else 's'}, and try again."
    return Problem("slow-down", told, headers={"Retry-After": str(wait)})


def address_of(request: Request) -> str:
    """The address that a request comes from, as the server has it. Behind a proxy it is the proxy's, unless the server is told."""
    return request.client.host if request.client is not None else ""


def network_of(address: str) -> str:
    """What counts as one address: an IPv4 address, also one that is written as IPv6, or the network of an IPv6 address."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((int(found), _PREFIX), strict=False))


def person_key(identity: Identity, own: str) -> str:
    """A text that no other person has, in any tenant. `own` is the tenant of the inbox's store, which an identity may name or not."""
    return json.dumps([own if identity.tenant is None else identity.tenant, identity.principal.id])


def _check(most: int, seconds: float) -> None:
    if not is_count(most) or most == 0:
        raise ConfigurationError(f"a limit is a whole number, 1 or more, not {quoted(most)}")
    if not is_number(seconds) or seconds <= 0:
        raise ConfigurationError(f"the time of a limit is a number of seconds above 0, not {quoted(seconds)}")

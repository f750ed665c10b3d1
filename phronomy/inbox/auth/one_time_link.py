"""One-time links: how somebody signs in to an inbox that runs on their own machine. The terminal prints one.

The secret stands in the path, `/start/SECRET`, and not behind a `#`, so that the page works without any script. No log of the inbox
has the path: it notes the pattern of a route. `phronomy serve` switches the log of the server off, and the page tells browsers to send
its path to nobody. To open the page changes nothing, so previews and scanners spend no link. Its button does, once.

Documents of links, one sentence a version: 1. The first.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import quote

from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, parse
from phronomy.foundation.quoting import quoted
from phronomy.inbox.auth.identity import Identity
from phronomy.inbox.auth.people import look_up, was_listed
from phronomy.inbox.auth.returning import HOME
from phronomy.records.principals import Principal
from phronomy.stores.base import Store
from phronomy.stores.rows import Behind, Document

if TYPE_CHECKING:
    from starlette.requests import Request

KIND: Final = "inbox-link"
_VERSION: Final = 1

LinkState: TypeAlias = Literal["fresh", "used", "expired", "wrong"]
"""What becomes of somebody who has a link: they may sign in, or why not."""

KEPT: Final = 86_400.0
"""Seconds for which documents outlive their links, so that somebody who comes late hears why."""

_AT_ONCE: Final = 5.0
"""Seconds in which somebody who asks for a link again has pressed the button twice."""

_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Announced:
    """The link that was printed last: where it leads, when, and its secret; None while the store writes it."""

    to: str
    at: float
    secret: str | None = field(repr=False)


class OneTimeLink:
    """Signs `principal` in who has a link that counts once, for `seconds`. It is an `Auth` for an inbox on one's own machine.

    `announce` is called with the path of each new link that somebody asks for on the sign-in page, `/start/SECRET` or
    `/start/SECRET?to=...`, and prints it where only the owner of the machine can read it; without it, nobody can ask. `tenant`
    is whose store they see; None: the inbox's own. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        store: Store,
        principal: Principal,
        *,
        tenant: str | None = None,
        seconds: float = 300.0,
        announce: Callable[[str], object] | None = None,
    ) -> None:
        if not isinstance(principal, Principal):
            raise ConfigurationError(f"OneTimeLink: principal is a Principal, not {quoted(principal)}")
        if not is_number(seconds) or seconds <= 0:
            raise ConfigurationError(f"OneTimeLink: seconds is a number above 0, not {quoted(seconds)}")
        self._store = store
        self._seconds = seconds
        self._listed = False  # whether the directory has had the principal, at any time that was looked
        self.principal: Principal = principal
        self.tenant: str | None = tenant
        self.announce: Callable[[str], object] | None = announce
        self._announced: _Announced | None = None

    def __repr__(self) -> str:
        return f"OneTimeLink({self._store!r}, {self.principal.id!r})"

    async def identify(self, request: Request) -> Identity | None:
        """Nobody is known by a link: it begins a session, and they are known by that."""
        return None

    async def issue(self) -> str:
        """Make a link, and return its path under the inbox: `/start/SECRET`. Raises `StoreError`."""
        secret = secrets.token_urlsafe(32)
        self._listed = self._listed or was_listed(await look_up(self._store, self.tenant, self.principal))
        until = self._store.clock() + self._seconds
        row: JsonDict = {
            "version": _VERSION,
            "for": self._for(),
            "until": until,
            "used": False,
            "listed": self._listed,
        }
        await self._store.aput_document(
            Document(kind=KIND, key=_key(secret), text=json.dumps(row), expires_at=until + KEPT)
        )
        return f"/start/{secret}"

    async def announce_new(self, to: str = HOME) -> None:
        """Print a new link, which leads on to the path `to`. Nothing happens if nobody can ask for one.

        A link that was printed a moment ago and still counts is enough: who presses the button twice has one link. Raises `StoreError`.
        """
        if self.announce is None:
            return
        now = self._store.clock()
        before = self._announced
        if (
            before is not None
            and before.to == to
            and 0 <= now - before.at < _AT_ONCE
            and (before.secret is None or await self.state(before.secret) == "fresh")
        ):
            return
        # Before the store is asked: a second press may come in between.
        self._announced = _Announced(to=to, at=now, secret=None)
        try:
            path = await self.issue()
        except BaseException:
            self._announced = None
            raise
        self._announced = _Announced(to=to, at=now, secret=path.rpartition("/")[2])
        self.announce(path if to == HOME else f"{path}?to={quote(to, safe='/')}")

    async def state(self, secret: str) -> LinkState:
        """What would become of somebody who uses this link. Changes nothing. Raises `StoreError`."""
        return (await self._look(secret))[0]

    async def spend(self, secret: str) -> LinkState:
        """Use a link up. `fresh` says that it counted, and this call alone is told so; any other answer, that it did not count.

        Raises `StoreError`.
        """
        state, document, row = await self._look(secret)
        if state != "fresh" or document is None or row is None:
            return state
        try:
            await self._store.aput_document(replace(document, text=json.dumps({**row, "used": True})))
        except Behind:
            return "used"  # by somebody else, at this moment
        return "fresh"

    async def _look(self, secret: str) -> tuple[LinkState, Document | None, JsonDict | None]:
        if _SECRET.fullmatch(secret) is None:
            return "wrong", None, None
        document = await self._store.aget_document(KIND, _key(secret))
        row = _read(document.text) if document is not None else None
        if document is None or row is None or row["for"] != self._for():
            return "wrong", None, None
        if row["used"] is not False:
            return "used", None, None
        if not is_number(until := row["until"]) or self._store.clock() >= until:
            return "expired", None, None
        listed = self._listed or row.get("listed", False) is not False
        if listed and await look_up(self._store, self.tenant, self.principal.evolve(listed=True)) is None:
            # Removed from the directory: the roles of the command line do not bring them back.
            return "wrong", None, None
        return "fresh", document, row

    def _for(self) -> str:
        """Who signs in by these links: those of another server over the same store, for somebody else, do not count here."""
        who = json.dumps([self.tenant, self.principal.model_dump_json()])
        return hashlib.sha256(who.encode()).hexdigest()


def _key(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _read(text: str) -> JsonDict | None:
    try:
        row = parse(text)
    except ValueError:
        return None
    if not isinstance(row, dict) or row.get("version") != _VERSION or not {"for", "until", "used"} <= row.keys():
        return None
    return row

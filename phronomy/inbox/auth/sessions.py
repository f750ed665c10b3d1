"""Sessions: who has signed in with a browser, until they sign out or their time is over.

The browser has a random secret in a cookie. The store has its SHA-256 as the key of a small document, with the person. So whoever reads
the store cannot take over a session, and signing out counts in all processes at once.

A session is never made of what a browser sends: a cookie that names no session is nobody's, and each login makes a new secret.

Beside each session is a note under the hash of the person, so that somebody's sessions are found without reading those of all. A note
whose session is over says nothing, and is deleted when it is met.

Documents of sessions, one sentence a version: 1. The first.
Notes, one sentence a version: 1. The first.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from phronomy.errors import ConfigurationError, StoreError
from phronomy.foundation.checks import is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import parse
from phronomy.foundation.quoting import quoted
from phronomy.inbox.auth.identity import SCOPES, Identity, Scope, checked_scopes
from phronomy.inbox.auth.people import TRIES, as_before, look_up, store_of, was_listed, with_person
from phronomy.records.principals import Principal
from phronomy.stores.base import Store, checked_tenant
from phronomy.stores.derived.people import person_known_as
from phronomy.stores.native import apart
from phronomy.stores.rows import Behind, Document

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

KIND: Final = "inbox-session"
NOTE: Final = "inbox-session-of"
MOST: Final = 50
"""Sessions of one person at the same time: the oldest ends when there is one too many."""

_FRESH: Final = 60.0
"""Seconds for which a note is kept whose session is not there: perhaps it begins at this moment."""

_VERSION: Final = 1

_SEEN: Final = 60.0
"""Seconds between two notes that somebody was seen, at most: not each request is a write."""

_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]+")
_BATCH: Final = 100
_LATEST: Final = 253_370_764_800  # the year 9999

_log = logging.getLogger("phronomy")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session of somebody: its key, when it began, and when they were last seen, to the minute."""

    key: str
    principal: Principal
    tenant: str | None
    began_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What the document of a session says. `listed`: the directory has known the principal, then or since."""

    principal: Principal
    tenant: str | None
    scopes: frozenset[Scope]
    began: float
    seen: float
    listed: bool

    @property
    def text(self) -> str:
        """As the store keeps it."""
        return json.dumps(
            {
                "version": _VERSION,
                "principal": json.loads(self.principal.without_claims().model_dump_json()),
                "tenant": self.tenant,
                "scopes": sorted(self.scopes),
                "began": self.began,
                "seen": self.seen,
                "listed": self.listed,
            },
            ensure_ascii=False,
        )


class Sessions:
    """The sessions of an inbox. They end after `idle` seconds without a request, and after `absolute` seconds in any case.

    `cookie` is the name of the cookie. Its prefix `__Host-` has browsers refuse one that another host or a page without TLS has set;
    on one's own machine there is no TLS, so `secure` is False and the name has no prefix. `same_site` is `"lax"`, so that links in
    mails lead to somebody who is signed in, or `"strict"`. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        store: Store,
        *,
        idle: float = 3_600.0,
        absolute: float = 43_200.0,
        cookie: str = "__Host-phronomy",
        secure: bool = True,
        same_site: Literal["lax", "strict"] = "lax",
    ) -> None:
        for name, value in (("idle", idle), ("absolute", absolute)):
            if not is_number(value) or value <= 0:
                raise ConfigurationError(f"Sessions: {name} is a number of seconds above 0, not {quoted(value)}")
        if not isinstance(cookie, str) or not _COOKIE.fullmatch(cookie):
            raise ConfigurationError(
                f"Sessions: cookie is a name of letters, digits, dashes and underscores, not {quoted(cookie)}"
            )
        if not secure and cookie.lower().startswith(("__host-", "__secure-")):
            raise ConfigurationError(
                "Sessions: browsers drop a cookie of this name that is not secure: give it another"
            )
        if same_site not in ("lax", "strict"):
            raise ConfigurationError(f"Sessions: same_site is 'lax' or 'strict', not {quoted(same_site)}")
        self.store: Store = store
        self._idle = idle
        self._absolute = absolute
        # Somebody who is seen all the time is noted as seen well before they would be taken for idle.
        self._slide = min(_SEEN, idle / 4)
        self.secure: bool = secure
        self.same_site: Literal["lax", "strict"] = same_site
        self.cookie: str = cookie

    def __repr__(self) -> str:
        return f"Sessions({self.store!r})"

    async def begin(
        self,
        principal: Principal,
        *,
        tenant: str | None = None,
        scopes: Collection[Scope] = SCOPES,
        replaces: str | None = None,
    ) -> str:
        """Begin a session, and return the secret for the cookie. The session `replaces` ends: an id is never kept over a login.

        The oldest of theirs ends if they have `MOST`. Raises `ConfigurationError` for scopes that are none, `StoreError`.
        """
        allowed = checked_scopes(scopes, "the scopes of a session")
        found = await look_up(self.store, tenant, principal.evolve(person=None))
        if replaces is not None:
            await self.end(replaces)
        ids = {principal.id} if found is None else await self._ids_of(principal.id, tenant)
        before = await self._under(ids, tenant)
        for each in before[: max(0, len(before) - MOST + 1)]:
            await self.end(each.key)
        secret = secrets.token_urlsafe(32)
        now = self.store.clock()
        row = _Row(
            principal=with_person(principal.without_claims(), found),
            tenant=tenant,
            scopes=allowed,
            began=now,
            seen=now,
            listed=was_listed(found),
        )
        key = _key(secret)
        # First the note: a session without one would not end when its owner signs out everywhere.
        await self.store.aput_document(
            Document(
                kind=NOTE,
                key=f"{self._of(principal.id, tenant)}/{key}",
                text=json.dumps({"version": _VERSION, "began": now}),
                expires_at=now + self._absolute,
            )
        )
        await self.store.aput_document(self._document(key, row))
        return secret

    def set_cookie(self, response: Response, secret: str) -> None:
        """Have a browser keep the secret of a session."""
        response.set_cookie(self.cookie, secret, path="/", secure=self.secure, httponly=True, samesite=self.same_site)

    def clear_cookie(self, response: Response) -> None:
        """Have a browser forget the secret of a session."""
        response.delete_cookie(self.cookie, path="/", secure=self.secure, httponly=True, samesite=self.same_site)

    async def identify(self, request: Request) -> Identity | None:
        """Who has the session that a request names; None if there is none, or it is over.

        The principal has the roles that the directory has for them now. Once they were found there, the session ends when they
        are not any more. Raises `StoreError`.
        """
        secret = self._secret(request)
        if secret is None:
            return None
        key = _key(secret)
        for _ in range(TRIES):
            try:
                return await self._found(key)
            except Behind:  # another request has noted something at this moment, or somebody has signed out: look anew
                continue
        raise StoreError(f"session {key[:12]} was changed by others {TRIES} times in a row: try again")

    async def _found(self, key: str) -> Identity | None:
        """Who has the session with this key. Raises `Behind` if it was changed while they were looked up."""
        found = await self.store.aget_document(KIND, key)
        if found is None or (row := _read(found)) is None:
            return None
        now = self.store.clock()
        if self._is_over(row, now):
            await self.end(key)
            return None
        once = row.listed or row.principal.listed
        looked_up = await look_up(self.store, row.tenant, row.principal.evolve(listed=once, person=None))
        principal = as_before(row.principal, looked_up)
        if principal is None:  # removed from the directory, or another person has the alias
            await self.end(key)
            return None
        listed = principal.listed
        # Before anything is done with the roles of the directory: if this breaks off, nobody was let in.
        if listed != row.listed or now - row.seen >= self._slide:
            who = with_person(row.principal, principal)
            noted = self._document(key, replace(row, principal=who, seen=max(now, row.seen), listed=listed))
            await self.store.aput_document(replace(noted, version=found.version))
        return Identity(
            principal=principal,
            tenant=row.tenant,
            scopes=row.scopes,
            via="session",
            session=key,
            signed_in_at=datetime.fromtimestamp(row.began, UTC),
        )

    async def end(self, key: str) -> None:
        """End a session at once, in all processes. Nothing happens if it is over. Raises `StoreError`."""
        await self.store.adelete_document(KIND, key)

    async def of(self, principal_id: str, *, tenant: str | None = None) -> tuple[SessionInfo, ...]:
        """The sessions of somebody in a tenant, oldest first, under whichever id they have signed in. Raises `StoreError`.

        `principal_id` is their id, or one by which the directory knows them.
        """
        return await self._under(await self._ids_of(principal_id, tenant), tenant)

    async def _ids_of(self, principal_id: str, tenant: str | None) -> set[str]:
        """The ids under which somebody may have signed in."""
        of = store_of(self.store, tenant)
        person = await apart(of, person_known_as, of, principal_id)
        return {principal_id} if person is None else {principal_id, person.id, *person.aliases}

    async def _under(self, ids: set[str], tenant: str | None) -> tuple[SessionInfo, ...]:
        """The sessions under these ids, oldest first."""
        found: list[SessionInfo] = []
        now = self.store.clock()
        for id in ids:
            for note in await self._notes(self._of(id, tenant)):
                key = note.key.rpartition("/")[2]
                document = await self.store.aget_document(KIND, key)
                row = _read(document) if document is not None else None
                if row is None or self._is_over(row, now):
                    if document is None and now - _began(note) >= _FRESH:
                        await self.store.adelete_document(NOTE, note.key)
                    continue
                found.append(_info(key, row))
        return tuple(sorted(found, key=lambda each: each.began_at))

    async def _notes(self, of: str) -> list[Document]:
        """The notes of somebody's sessions."""
        found: list[Document] = []
        after = f"{of}/"
        while True:
            page = await self.store.aselect_documents(NOTE, after=after, limit=_BATCH)
            theirs = [each for each in page if each.key.startswith(f"{of}/")]
            found += theirs
            if len(theirs) < _BATCH:  # what follows is of others
                return found
            after = theirs[-1].key

    def _of(self, principal_id: str, tenant: str | None) -> str:
        """The hash of a person: an id is somebody else's in another tenant."""
        who = json.dumps([store_of(self.store, tenant).tenant, principal_id])
        return hashlib.sha256(who.encode()).hexdigest()

    async def end_all(self, principal_id: str, *, tenant: str | None = None) -> int:
        """End all sessions of somebody in a tenant: sign them out everywhere. Returns how many there were. Raises `StoreError`."""
        found = await self.of(principal_id, tenant=tenant)
        for each in found:
            await self.end(each.key)
        return len(found)

    def _is_over(self, row: _Row, now: float) -> bool:
        return now - row.seen >= self._idle or now - row.began >= self._absolute

    def _secret(self, request: Request) -> str | None:
        """The secret that a request brings. Two that differ are none: one of them may have been set by another server of the host."""
        found = {
            value.strip()
            for header in request.headers.getlist("cookie")
            for name, _, value in (pair.partition("=") for pair in header.split(";"))
            if name.strip() == self.cookie
        }
        secret = found.pop() if len(found) == 1 else ""
        return secret if _SECRET.fullmatch(secret) is not None else None

    def _document(self, key: str, row: _Row) -> Document:
        until = min(row.seen + self._idle, row.began + self._absolute)
        return Document(kind=KIND, key=key, text=row.text, expires_at=until)


def _key(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _began(note: Document) -> float:
    """When the session of a note began; 0 for a note that cannot be read."""
    try:
        row = parse(note.text)
    except ValueError:
        return 0.0
    began = row.get("began") if isinstance(row, dict) else None
    return began if is_number(began) else 0.0


def _read(document: Document) -> _Row | None:
    """The session in a document; None for one that is damaged, or of a later release: it is nobody's, and keeps nobody out."""
    try:
        data = parse(document.text)
        if not isinstance(data, dict) or data.get("version") != _VERSION:
            raise ValueError("no session of this version")
        tenant, scopes, began, seen = data["tenant"], data["scopes"], data["began"], data["seen"]
        if not (tenant is None or isinstance(tenant, str)) or not isinstance(scopes, list):
            raise ValueError("of the wrong type")
        if not (is_number(began) and 0 <= began <= _LATEST and is_number(seen) and isinstance(data["listed"], bool)):
            raise ValueError("of the wrong type")
        return _Row(
            principal=Principal.model_validate_json(json.dumps(data["principal"])),
            tenant=None if tenant is None else checked_tenant(tenant),
            scopes=frozenset(each for each in SCOPES if each in scopes),
            began=began,
            seen=seen,
            listed=data["listed"],
        )
    except (ValueError, LookupError, StoreError):
        pass
    # Outside of the except block, and without its text, which may quote what is in the row.
    _log.warning(
        "session %s cannot be read, and counts for nobody: it is damaged, or of a later release", document.key[:12]
    )
    return None


def _info(key: str, row: _Row) -> SessionInfo:
    return SessionInfo(
        key=key,
        principal=row.principal,
        tenant=row.tenant,
        began_at=datetime.fromtimestamp(row.began, UTC),
        seen_at=datetime.fromtimestamp(row.seen, UTC),
    )

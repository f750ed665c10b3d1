"""API tokens: what programs send as `Authorization: Bearer`. The store has the SHA-256 of each, so whoever reads it has no token.

A token is `phr_`, its id, and 43 random characters of base64url: 256 bits, which nobody guesses, so that no slow hash is needed. It is
shown once, when it is issued. Whatever is wrong with one, the answer is the same.

Documents of tokens, one sentence a version: 1. The first.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import secrets
from collections.abc import Collection
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeGuard

from phronomy.errors import ConfigurationError, StoreError, UnreadableRow
from phronomy.foundation.checks import is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import parse
from phronomy.foundation.quoting import quoted
from phronomy.foundation.unreadable import unreadable_row
from phronomy.inbox.auth.identity import SCOPES, Identity, Scope, checked_scopes
from phronomy.inbox.auth.limits import Failures, address_of
from phronomy.inbox.auth.people import TRIES, as_before, look_up, store_of, was_listed, with_person
from phronomy.inbox.problems import Problem
from phronomy.records.principals import Principal
from phronomy.stores.base import Store, checked_tenant
from phronomy.stores.derived.listing import Listing, read_each
from phronomy.stores.derived.people import as_found
from phronomy.stores.native import in_store
from phronomy.stores.rows import Behind, Document

if TYPE_CHECKING:
    from starlette.requests import Request

KIND: Final = "inbox-token"
_VERSION: Final = 1

PREFIX: Final = "phr_"
_FORM: Final = re.compile(r"phr_([0-9a-z]{12})_[A-Za-z0-9_-]{43}", re.ASCII)
_ID: Final = re.compile(r"[0-9a-z]{12}", re.ASCII)
_LETTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_HASH: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAME: Final = 200
_LATEST: Final = 253_370_764_800  # the year 9999

_HOUR: Final = 3_600.0
"""Seconds between two notes that a token was used: not each request is a write."""

_CHALLENGE: Final = 'Bearer realm="phronomy", error="invalid_token"'

_log = logging.getLogger("phronomy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """An API token, without its secret: whom it stands for, what it may do, and until when.

    `used_at` is when it was last used, to the hour; None: never.
    """

    id: str
    name: str
    principal: Principal
    tenant: str | None
    scopes: Collection[Scope]
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedToken:
    """A token that was just made: `secret` is what the program sends, and is not to be had a second time."""

    secret: str = field(repr=False)
    token: ApiToken


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What the document of a token says. `listed`: the directory has known the principal, then or since."""

    hash: str = field(repr=False)
    name: str
    principal: Principal
    tenant: str | None
    scopes: frozenset[Scope]
    created: float
    expires: float | None
    used: float | None
    listed: bool

    @property
    def text(self) -> str:
        """As the store keeps it."""
        row = {name: getattr(self, name) for name in ("hash", "name", "tenant", "created", "expires", "used", "listed")}
        who = json.loads(self.principal.without_claims().model_dump_json())
        return json.dumps(
            {"version": _VERSION, **row, "principal": who, "scopes": sorted(self.scopes)}, ensure_ascii=False
        )


class ApiTokens:
    """The API tokens of an inbox. `failures` counts the wrong ones that are tried; None: nobody does."""

    def __init__(self, store: Store, failures: Failures | None = None) -> None:
        self.store = store
        self.failures = failures

    def __repr__(self) -> str:
        return f"ApiTokens({self.store!r})"

    async def issue(
        self,
        name: str,
        principal: Principal,
        *,
        scopes: Collection[Scope],
        tenant: str | None = None,
        seconds: float | None,
    ) -> IssuedToken:
        """Make a token with which a program acts as `principal`, with no more than these scopes, for so many `seconds`.

        `name` says what it is for, `tenant` whose store it sees (None: the inbox's own), and `seconds` None means until it is
        revoked. A principal who is in the directory has their present roles there. Once they were found there, the token
        counts no more when they are removed.
        Raises `ConfigurationError`, `StoreError`.
        """
        if not (given := checked_scopes(scopes, "the scopes of a token")):
            raise ConfigurationError(f"the scopes of a token are some of {', '.join(SCOPES)}, and at least one of them")
        if not isinstance(name, str) or not name.strip() or len(name) > _NAME or not name.isprintable():
            raise ConfigurationError(f"the name of a token is 1 to {_NAME} printable characters, not {quoted(name)}")
        if seconds is not None and (not is_number(seconds) or seconds <= 0):
            raise ConfigurationError(f"a token counts for a number of seconds above 0, or None, not {quoted(seconds)}")
        if tenant is not None:
            checked_tenant(tenant)
        found = await look_up(self.store, tenant, principal.evolve(person=None))
        now = self.store.clock()
        if seconds is not None and now + seconds > _LATEST:
            raise ConfigurationError("a token that counts so long is one that ends never: give None")
        while True:
            id = "".join(secrets.choice(_LETTERS) for _ in range(12))
            secret = f"{PREFIX}{id}_{secrets.token_urlsafe(32)}"
            row = _Row(
                hash=_hash(secret),
                name=name,
                principal=with_person(principal.without_claims(), found),
                tenant=tenant,
                scopes=given,
                created=now,
                expires=None if seconds is None else now + seconds,
                used=None,
                listed=was_listed(found),
            )
            try:
                await self.store.aput_document(_document(id, row))
            except Behind:
                continue  # there is one with this id
            return IssuedToken(secret=secret, token=_told(id, row))

    async def list(self) -> Listing[ApiToken]:
        """The tokens that are not over, oldest first, of all tenants. Raises `StoreError`.

        One whose row cannot be read lets nobody in; `unreadable` of the list names it.
        """
        rows, unreadable = read_each(await self.store.aselect_documents(KIND), lambda each: (each.key, _row_of(each)))
        now = self.store.clock()
        found = [_told(id, row) for id, row in rows if not _is_over(row, now)]
        return Listing(sorted(found, key=lambda each: (each.created_at, each.id)), unreadable)

    async def revoke(self, id: str) -> bool:
        """Revoke a token at once, in all processes. Returns whether there was one. Raises `StoreError`."""
        if not isinstance(id, str) or _ID.fullmatch(id) is None or await self.store.aget_document(KIND, id) is None:
            return False
        await self.store.adelete_document(KIND, id)
        return True

    async def identify(self, request: Request) -> Identity | None:
        """Who has the token that a request brings; None if it brings none.

        Raises `Problem`: `not-signed-in`, alike for any token that does not count, `slow-down` for too many of those, and
        `StoreError`.
        """
        given = bearer_of(request)
        if given is None:
            return None
        found = await self._found(given)
        if found is not None:
            return found
        if self.failures is not None:
            await self.failures.count("token", address_of(request))
        raise refused()

    async def _found(self, text: str) -> Identity | None:
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        for _ in range(TRIES):
            try:
                # In one step, since a hop into a thread costs as much as a read.
                return await in_store(self.store, self._known, form[1], text)
            except Behind:  # another request has noted something at this moment, or it was revoked: look anew
                continue
        raise StoreError(f"API token {form[1]} was changed by others {TRIES} times in a row: try again")

    def _known(self, id: str, text: str) -> Identity | None:
        """Who has the token with this id and text. Raises `Behind` if it was changed while they were looked up."""
        document = self.store.get_document(KIND, id)
        row = _read(document) if document is not None else None
        if document is None or row is None or not hmac.compare_digest(row.hash, _hash(text)):
            return None
        now = self.store.clock()
        if _is_over(row, now):
            return None
        once = row.listed or row.principal.listed
        found = as_found(store_of(self.store, row.tenant), row.principal.evolve(listed=once, person=None))
        principal = as_before(row.principal, found)
        if principal is None:  # removed from the directory, or not readable there; or another person has the alias
            return None
        listed = principal.listed
        hour = now // _HOUR * _HOUR
        if listed != row.listed or row.used is None or row.used < hour:
            who = with_person(row.principal, principal)
            noted = replace(row, principal=who, used=max(hour, row.used or 0.0), listed=listed)
            self.store.put_document(replace(_document(id, noted), version=document.version))
        return Identity(principal=principal, tenant=row.tenant, scopes=row.scopes, via="token")


def bearer_of(request: Request) -> str | None:
    """What a request brings as `Authorization: Bearer`; None if it brings none. Raises `Problem` if it brings several."""
    found = [
        value.strip()
        for scheme, _, value in (each.partition(" ") for each in request.headers.getlist("authorization"))
        if scheme.lower() == "bearer"
    ]
    if len(found) > 1:
        raise refused()
    return found[0] if found else None


def refused() -> Problem:
    """The problem of any token that does not count: which of them, and why, is nobody's to know."""
    return Problem("not-signed-in", headers={"WWW-Authenticate": _CHALLENGE})


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _is_over(row: _Row, now: float) -> bool:
    return row.expires is not None and now >= row.expires


def _document(id: str, row: _Row) -> Document:
    return Document(kind=KIND, key=id, text=row.text, expires_at=row.expires)


def _told(id: str, row: _Row) -> ApiToken:
    return ApiToken(
        id=id,
        name=row.name,
        principal=row.principal,
        tenant=row.tenant,
        scopes=row.scopes,
        created_at=datetime.fromtimestamp(row.created, UTC),
        expires_at=None if row.expires is None else datetime.fromtimestamp(row.expires, UTC),
        used_at=None if row.used is None else datetime.fromtimestamp(row.used, UTC),
    )


def _read(document: Document) -> _Row | None:
    """The token in a document; None for one that is damaged, or of a later release: it counts for nobody."""
    try:
        return _row_of(document)
    except UnreadableRow as error:
        _log.warning("%s", error)
        return None


def _row_of(document: Document) -> _Row:
    """The token in a document. Raises `UnreadableRow`."""
    try:
        data = parse(document.text)
        if not isinstance(data, dict) or data.get("version") != _VERSION:
            raise ValueError("no token of this version")
        hash, name, tenant, scopes = data["hash"], data["name"], data["tenant"], data["scopes"]
        created, expires, used, listed = data["created"], data["expires"], data["used"], data["listed"]
        if not (isinstance(hash, str) and _HASH.fullmatch(hash) and isinstance(name, str) and isinstance(scopes, list)):
            raise ValueError("of the wrong type")
        if not isinstance(listed, bool) or not (tenant is None or isinstance(tenant, str)) or not _is_time(created):
            raise ValueError("of the wrong type")
        if not (expires is None or _is_time(expires)) or not (used is None or _is_time(used)):
            raise ValueError("of the wrong type")
        return _Row(
            hash=hash,
            name=name,
            principal=Principal.model_validate_json(json.dumps(data["principal"])),
            tenant=None if tenant is None else checked_tenant(tenant),
            scopes=frozenset(each for each in SCOPES if each in scopes),
            created=created,
            expires=expires,
            used=used,
            listed=listed,
        )
    except (ValueError, LookupError, TypeError, StoreError):
        failure = unreadable_row("token", document.key, called="API token", so=", and counts for nobody")
    raise failure  # outside of the except block: the error above may quote what is in the row


def _is_time(value: object) -> TypeGuard[float]:
    return is_number(value) and 0 <= value <= _LATEST

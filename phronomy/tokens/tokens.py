"""Tokens for links and buttons. A token identifies who was shown which request, and for what; it carries no arguments.

The **long** form is a JWT (RFC 7519) that stands alone. The **short** form fits where a chat allows a few bytes: 44 characters of
base64url, of a version byte, 16 random bytes and 16 bytes of an HMAC-SHA256. What the HMAC covers is kept in the store as a document
under the random bytes, so that nobody who can write to the store can have a token say something else.

A token that counts once is bound to the first use: that is one write of one document, by compare-and-set, so of any number of clicks
one wins. The documents outlive their tokens by some days. Otherwise a token that was used would be as good as new in the moment
between the look at its time and the write, if it expires in between; and somebody who comes late would hear that it was never made.

Documents of tokens, one sentence a version: 1. The first.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from phronomy.errors import ConfigurationError, StoreError, TokenExpired, TokenUsed
from phronomy.foundation.checks import is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, clean, parse
from phronomy.foundation.quoting import quoted
from phronomy.records.principals import Principal
from phronomy.stores.base import Store, checked_tenant
from phronomy.stores.native import apart, in_store
from phronomy.stores.rows import Behind, Document
from phronomy.tokens.keys import Keys, base64url, from_base64url, invalid

KIND: Final = "token"
USED: Final = "token-use"
"""The kinds of document: of a short token, and of a long one that was redeemed."""

KEPT: Final = 7 * 86_400.0
"""Seconds for which documents outlive their tokens."""

_VERSION: Final = 1
_ID: Final = 16
_SHORT: Final = 44
_LATEST: Final = 253_370_764_800  # the year 9999
_NAMES: Final = ("purpose", "pending_id", "digest", "by")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a token says: that `by` was shown the request `pending_id` with this `digest`, and may use it for `purpose`.

    `by` is the id of a principal. From `expires_at` on the token does not count. With `once`, it counts for one use.
    """

    id: str
    purpose: str
    pending_id: str
    digest: str
    by: str
    expires_at: datetime
    once: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A token that was verified, and how it is redeemed: the document that is to be written, as it was read."""

    token: Token
    document: Document | None


class Tokens:
    """Makes tokens for links and buttons, and tells whether one counts.

    `keys` maps ids of keys to secrets of at least 32 random bytes. `current` is the id of the key that signs; the
    others verify what they have signed, until you take them out. `store` keeps short tokens and what was redeemed.
    Without one, long tokens can be made and verified. The tenant and the clock are those of the store; without a store,
    `tenant` and `clock` (seconds since the epoch) can be given. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        keys: Mapping[str, bytes | str],
        current: str,
        tenant: str | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if not isinstance(store, Store | None):
            raise ConfigurationError(f"store is a store of phronomy's, or None, not {quoted(store)}")
        if store is not None and (tenant is not None or clock is not None):
            raise ConfigurationError("tenant and clock are those of the store: give none beside it")
        self._keys = Keys(keys, current)
        self._store = store
        self._tenant = store.tenant if store is not None else checked_tenant(tenant or "")
        self._clock = store.clock if store is not None else clock or time.time

    def __repr__(self) -> str:
        return f"Tokens({self._store!r}, {self._keys!r})"

    def issue(
        self,
        purpose: str,
        *,
        pending_id: str,
        digest: str,
        by: str | Principal,
        seconds: float,
        once: bool = True,
        form: Literal["short", "long"] = "short",
    ) -> str:
        """Make a token: `by` is shown the request `pending_id` with this `digest`, and may use it for `purpose`.

        The token counts for this many `seconds`, to the end of the second. With `once`, it counts for one use;
        otherwise for any number. The short form has 44 characters, and is kept in the store. The long form is a JWT of
        some 400. Raises `ConfigurationError` and `StoreError`.
        """
        token = self._made(purpose, pending_id, digest, by, seconds, once)
        if form == "long":
            return self._keys.sign(self._claims(token))
        if form != "short":
            raise ConfigurationError(f"form is 'short' or 'long', not {quoted(form)}")
        store = self._needed("a short token is kept in the store")
        mac = self._keys.mac(self._keys.current, *self._signed(token))
        assert mac is not None
        row = self._claims(token) | {"key": self._keys.current, "use": None}
        expires = token.expires_at.timestamp() + KEPT
        text = json.dumps(row, ensure_ascii=False)
        store.put_document(Document(kind=KIND, key=token.id, text=text, expires_at=expires))
        data = from_base64url(token.id)
        assert data is not None
        return base64url(bytes([_VERSION]) + data + mac)

    def verify(self, text: str, *, purpose: str) -> Token:
        """Return what a token says. Nothing is changed, and a token that was used is not refused.

        Raises `TokenInvalid` for any text that is no token for this purpose, and `TokenExpired`.
        """
        return self._see(text, purpose).token

    def redeem(self, text: str, *, purpose: str, use: str = "") -> Token:
        """Return what a token says, and use it up if it counts once.

        The first call binds such a token to `use`, for example to a digest of the answer that it brings. The same `use`
        again returns the same, so whoever was interrupted can try again. Another one raises `TokenUsed`. Raises
        `TokenInvalid` and `TokenExpired` as `verify` does, and `StoreError`.
        """
        if not isinstance(use, str):
            raise ConfigurationError(f"use is text, not {quoted(use)}")
        seen = self._see(text, purpose)
        if not seen.token.once:
            return seen.token
        store = self._needed("what counts once is noted in the store")
        # As a digest: whatever is given as the use, such as an answer, is not kept in one more place.
        mark = hashlib.sha256(use.encode("utf-8", "surrogatepass")).hexdigest()
        document = seen.document or self._use_of(store, seen.token)
        while True:
            row = _row(document.text) if document.text else {}
            used = row.get("use")
            if used is not None:
                if used == mark:
                    return seen.token
                raise TokenUsed(
                    f"this token was used before, for something else: request {seen.token.pending_id} has what was decided",
                    pending_id=seen.token.pending_id,
                )
            try:
                store.put_document(replace(document, text=json.dumps(row | {"use": mark}, ensure_ascii=False)))
                return seen.token
            except Behind:  # somebody was first: look for what
                document = self._again(store, document)

    # For an event loop

    async def aissue(
        self,
        purpose: str,
        *,
        pending_id: str,
        digest: str,
        by: str | Principal,
        seconds: float,
        once: bool = True,
        form: Literal["short", "long"] = "short",
    ) -> str:
        """The async twin of `issue`."""
        given: dict[str, Any] = {"pending_id": pending_id, "digest": digest, "by": by, "seconds": seconds}
        if self._store is None:
            return self.issue(purpose, **given, once=once, form=form)
        return await in_store(self._store, self.issue, purpose, **given, once=once, form=form)

    async def averify(self, text: str, *, purpose: str) -> Token:
        """The async twin of `verify`."""
        if self._store is None:
            return self.verify(text, purpose=purpose)
        return await apart(self._store, self.verify, text, purpose=purpose)

    async def aredeem(self, text: str, *, purpose: str, use: str = "") -> Token:
        """The async twin of `redeem`."""
        if self._store is None:
            return self.redeem(text, purpose=purpose, use=use)
        return await in_store(self._store, self.redeem, text, purpose=purpose, use=use)

    # What they are made of

    def _made(
        self, purpose: str, pending_id: str, digest: str, by: str | Principal, seconds: float, once: bool
    ) -> Token:
        who = by.id if isinstance(by, Principal) else by
        for name, text in zip(_NAMES, (purpose, pending_id, digest, who), strict=True):
            if not isinstance(text, str) or not 0 < len(text) <= 1_500 or clean(text) != text:
                raise ConfigurationError(f"{name} is text of 1 to 1,500 characters, without lone surrogates")
        if not is_number(seconds) or not 0 < seconds <= _LATEST - self._clock():
            raise ConfigurationError(f"seconds is a number above 0, not {quoted(seconds)}")
        if not isinstance(once, bool):
            raise ConfigurationError(f"once is True or False, not {quoted(once)}")
        return Token(
            id=base64url(secrets.token_bytes(_ID)),
            purpose=purpose,
            pending_id=pending_id,
            digest=digest,
            by=who,
            expires_at=datetime.fromtimestamp(math.ceil(self._clock() + seconds), UTC),
            once=once,
        )

    def _claims(self, token: Token) -> dict[str, object]:
        """What a token says as JSON: the claims of a JWT, or a row of the store."""
        return {
            "version": _VERSION,
            "jti": token.id,
            "sub": token.by,
            "exp": int(token.expires_at.timestamp()),
            "tenant": self._tenant,
            "purpose": token.purpose,
            "pending_id": token.pending_id,
            "digest": token.digest,
            "once": token.once,
        }

    def _signed(self, token: Token) -> list[str]:
        """All that a short token says, as the HMAC covers it."""
        who = (token.id, self._tenant, token.purpose, token.pending_id, token.digest, token.by)
        return [*who, str(int(token.expires_at.timestamp())), "once" if token.once else "any"]

    def _see(self, text: str, purpose: str) -> _Seen:
        """A token that counts now. Raises `TokenInvalid`, `TokenExpired`."""
        if not isinstance(purpose, str):
            raise ConfigurationError(f"purpose is text, not {quoted(purpose)}")
        if not isinstance(text, str):
            raise invalid()
        seen = self._see_short(text) if len(text) == _SHORT else self._see_long(text)
        token = seen.token
        if token.purpose != purpose:
            raise invalid()
        if not self._clock() < token.expires_at.timestamp():
            raise TokenExpired(
                f"this token is over since {token.expires_at:%Y-%m-%d %H:%M:%S} UTC: show request {token.pending_id} again",
                pending_id=token.pending_id,
            )
        return seen

    def _see_short(self, text: str) -> _Seen:
        store = self._needed("a short token is looked up in the store")
        data = from_base64url(text)
        if data is None or data[0] != _VERSION:
            raise invalid()
        id, mac = base64url(data[1 : 1 + _ID]), data[1 + _ID :]
        document = store.get_document(KIND, id)
        row = _row(document.text) if document is not None else {}
        token = self._read(row)
        # By the id in the token, not that in the row: a row that was put under another id is another's.
        if token is None or not self._keys.is_mac(mac, str(row.get("key")), *self._signed(replace(token, id=id))):
            raise invalid()
        return _Seen(token=replace(token, id=id), document=document)

    def _see_long(self, text: str) -> _Seen:
        token = self._read(self._keys.claims(text))
        if token is None:
            raise invalid()
        return _Seen(token=token, document=None)

    def _read(self, row: dict[str, Any]) -> Token | None:
        """The token that claims or a row say, None if they are not of one, or of another tenant."""
        said = [row.get(name) for name in ("jti", "purpose", "pending_id", "digest", "sub", "tenant")]
        expires, once = row.get("exp"), row.get("once")
        if row.get("version") != _VERSION or not all(isinstance(each, str) for each in said):
            return None
        if said[-1] != self._tenant or not isinstance(once, bool):
            return None
        if type(expires) is not int or not 0 < expires <= _LATEST:
            return None
        id, purpose, pending_id, digest, by, _ = map(str, said)
        data = from_base64url(id)
        if data is None or len(data) != _ID:
            return None
        return Token(
            id=id,
            purpose=purpose,
            pending_id=pending_id,
            digest=digest,
            by=by,
            expires_at=datetime.fromtimestamp(expires, UTC),
            once=once,
        )

    def _use_of(self, store: Store, token: Token) -> Document:
        """The document that says what a long token was used for; one that is still to be written, if it was not used."""
        found = store.get_document(USED, token.id)
        expires = token.expires_at.timestamp() + KEPT
        return found or Document(kind=USED, key=token.id, text="", expires_at=expires)

    def _again(self, store: Store, document: Document) -> Document:
        found = store.get_document(document.kind, document.key)
        if found is None:  # somebody has deleted it
            raise invalid()
        # A store that says that somebody was first, though nobody was, would have this go on for ever.
        if found.version == document.version:
            raise StoreError("the document of a token is the same as before, and the store says that it has changed")
        return found

    def _needed(self, why: str) -> Store:
        if self._store is None:
            raise ConfigurationError(f"{why}: give Tokens a store")
        return self._store


def _row(text: str) -> dict[str, Any]:
    """What a row says, nothing if it cannot be read."""
    try:
        found = parse(text)
    except JsonError:
        return {}
    return found if isinstance(found, dict) else {}

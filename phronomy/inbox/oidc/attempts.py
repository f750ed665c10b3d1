"""An attempt to sign in: what has to come back from the provider, kept by the browser that began it.

The browser has each attempt in a cookie of its own, sealed: it can neither read nor change it. Another browser has no such cookie. So
an answer to the attempt of somebody else is refused, and nobody is signed in as somebody else unawares.

The server keeps nothing until the answer comes. Then it notes in the store that the attempt is used: in all processes it counts once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Final

from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from phronomy.foundation.checks import is_count, is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, parse
from phronomy.inbox.auth.keys import derived
from phronomy.inbox.auth.returning import HOME
from phronomy.stores.base import Store
from phronomy.stores.rows import Behind, Document

if TYPE_CHECKING:
    from starlette.requests import Request

KIND: Final = "inbox-sign-in"
"""The kind of the documents that note which attempts are used."""

SECONDS: Final = 600
"""How long an attempt may take: to type a password, and to find the phone with the second factor."""

MOST: Final = 3
"""So many attempts of one browser are kept. Another site could begin more by the hundred, until proxies refuse so long a header."""

_KEPT: Final = 60.0
"""Seconds that the note stays after the attempt is over, so that no rounding of clocks lets it count again."""

_LONGEST_PATH: Final = 1_000
"""Bytes of the path to come back to, as JSON: browsers drop a cookie above 4,096 bytes, and proxies refuse headers above 8,192."""

_LETTERS: Final = 32
"""Letters of the hash in the name of a cookie."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)
"""How the name of a cookie may end that the browser is told to forget: one with other letters is none of ours."""

_HEADER: Final = {"alg": "dir", "enc": "A256GCM"}
_ALGORITHMS: Final = tuple(_HEADER.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt to sign in, at one provider, until the time `until` (seconds since the epoch, by the store's clock).

    `way` is the path of the inbox where it was begun: an answer that comes back elsewhere is for another attempt. `to` is the path of
    the inbox to come back to. With `max_age`, the person must have typed their password so many seconds ago at most.
    """

    way: str
    issuer: str
    client_id: str
    until: float
    to: str
    max_age: int | None
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)

    @property
    def challenge(self) -> str:
        """What the provider is told of the verifier: its SHA-256 (RFC 7636, S256)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    @property
    def key(self) -> str:
        """What the attempt is called where its state must not stand."""
        return key_of(self.state)


def begin(way: str, issuer: str, client_id: str, *, to: str, max_age: int | None, now: float) -> Attempt:
    """A new attempt, with secrets of 256 bits. `to` is a path of the inbox; one that is too long for a cookie becomes `/`."""
    return Attempt(
        way=way,
        issuer=issuer,
        client_id=client_id,
        until=now + SECONDS,
        to=to if len(json.dumps(to)) <= _LONGEST_PATH else HOME,
        max_age=max_age,
        state=secrets.token_urlsafe(32),
        nonce=secrets.token_urlsafe(32),
        verifier=secrets.token_urlsafe(32),
    )


def key_of(state: str) -> str:
    """The name of the attempt with this state: a hash, as it is in the names of cookies, which are no secret."""
    return hashlib.sha256(state.encode()).hexdigest()


def cookie_of(prefix: str, state: str) -> str:
    """The name of the cookie of the attempt with this state."""
    return prefix + key_of(state)[:_LETTERS]


def seal(attempt: Attempt, secret: bytes) -> str:
    """The attempt as a text that only the inbox can read or make. `secret` is that of the inbox."""
    return jwe.encrypt_compact(
        dict(_HEADER), json.dumps(asdict(attempt), ensure_ascii=False), _key(secret), algorithms=_ALGORITHMS
    )


def unseal(text: str, secret: bytes) -> Attempt | None:
    """The attempt in a sealed text; None if it is not as the inbox made it."""
    try:
        found = jwe.decrypt_compact(text, _key(secret), algorithms=_ALGORITHMS)
        given = parse(found.plaintext)
    except (JoseError, JsonError, ValueError, TypeError, RecursionError):
        return None
    # It is ours, yet perhaps of another release: whatever does not fit is begun anew.
    if not isinstance(given, dict) or given.keys() != Attempt.__dataclass_fields__.keys():
        return None
    until, max_age = given.pop("until"), given.pop("max_age")
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    if not is_number(until) or not (max_age is None or is_count(max_age)) or len(texts) != len(given):
        return None
    return Attempt(until=until, max_age=max_age, **texts)


async def use(store: Store, attempt: Attempt) -> bool:
    """Note that the attempt is used; False if it was before: an answer that comes twice counts once. Raises `StoreError`."""
    note = Document(kind=KIND, key=attempt.key, text="used", expires_at=attempt.until + _KEPT)
    try:
        await store.aput_document(note)
    except Behind:
        return False
    return True


def superfluous(request: Request, prefix: str, secret: bytes, now: float) -> list[str]:
    """The cookies of attempts that the browser is to forget when it begins another: those that are over, and the oldest."""
    live: list[tuple[float, str]] = []
    over: list[str] = []
    for name, text in request.cookies.items():
        # A name with other letters may be one that no answer can have in a header.
        if name.startswith(prefix) and _NAME.fullmatch(name.removeprefix(prefix)) is not None:
            found = unseal(text, secret)
            if found is None or found.until <= now:
                over.append(name)
            else:
                live.append((found.until, name))
    return [*over, *(name for _, name in sorted(live)[: max(0, len(live) - MOST + 1)])]


def _key(secret: bytes) -> OctKey:
    return OctKey.import_key(derived(secret, "oidc"))

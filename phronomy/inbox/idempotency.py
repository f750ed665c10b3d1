"""Idempotency keys: what is sent twice under one key is done once, and the second time is answered as the first.

A key is a text that the client makes up for one thing to be done. It is scoped to the person and the route before it goes anywhere, so
nobody can meet a key of somebody else. The store keeps it with the decision, and that is what makes a decision count once. Of what is
more than one decision, or none, a small document remembers for a week what was sent under the key: so that another body under the same
key is refused, and that what was begun is not begun again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonValue, canonical
from phronomy.inbox.problems import Problem, problem_of
from phronomy.stores.rows import Behind, Document

if TYPE_CHECKING:
    from phronomy.inbox.auth.identity import Identity
    from phronomy.inbox.visit import Visit
    from phronomy.stores.base import Store

KIND: Final = "inbox-sent"
HEADER: Final = "idempotency-key"
LONGEST: Final = 255
"""Characters of a key, at most."""

KEPT: Final = 7 * 86_400.0
"""Seconds for which it is remembered what was sent under a key."""

UNFINISHED: Final = 60.0
"""Seconds for which something that is begun once (a run, a grant) is taken to be under way, if its process has died."""


def key_of(visit: Visit) -> str:
    """The idempotency key of a request: a quoted string, or bare. Raises `Problem` if there is none, or none that can be meant."""
    given = visit.request.headers.getlist(HEADER)
    if not given or (len(given) == 1 and not given[0].strip()):
        raise Problem("key-missing")
    if len(given) > 1:
        raise Problem("bad-request", "The header Idempotency-Key is there more than once.")
    return read_key(given[0])


def read_key(text: str) -> str:
    """The key in the text of a header, or of a path. Raises `Problem`."""
    key = text.strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not 0 < len(key) <= LONGEST or not (key.isascii() and key.isprintable()) or '"' in key or "\\" in key:
        raise Problem(
            "bad-request", f"An Idempotency-Key is 1 to {LONGEST} printable ASCII characters, without quotes in it."
        )
    return key


def scoped(identity: Identity, route: str, key: str, of: str = "") -> str:
    """The key as the store has it: of this person and this route alone. `of` tells several things apart that were sent under one."""
    who = identity.principal
    text = canonical([who.kind, who.id, route, key, of])
    return f"inbox-{hashlib.sha256(text.encode()).hexdigest()}"


def body_digest(*parts: JsonValue) -> str:
    """What tells one body from another."""
    return hashlib.sha256(canonical(list(parts)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What was sent under a key: a digest of the body, and the id of what it has made, once there is one."""

    body: str
    made: str | None = None


async def sent_under(store: Store, key: str) -> Sent | None:
    """What was sent under a scoped key; None if nothing was, or that is over a week ago."""
    found = await store.aget_document(KIND, key)
    return None if found is None else _read(found)


@asynccontextmanager
async def remembered(store: Store, key: str, *, body: str) -> AsyncIterator[Sent]:
    """Remember what is sent under a scoped key, for what may safely be done again under it: the store counts it once.

    What is refused, with nothing changed, is forgotten, so that the key is free for a corrected body. Raises `Problem`
    if the key was used for something else.
    """
    sent = Sent(body=body)
    document = Document(kind=KIND, key=key, text=_text(sent), expires_at=store.clock() + KEPT)
    mine: Document | None = None
    try:
        mine = await store.aput_document(document)
    except Behind:
        before = await sent_under(store, key)
        if before is not None and before.body != body:
            raise Problem("key-reused") from None
    try:
        yield sent
    except Exception as error:
        # Of what has failed half way nobody knows whether it is recorded: there the key stays what it is.
        if mine is not None and problem_of(error).status < 500:
            await _forget(store, mine)
        raise


@asynccontextmanager
async def begun_once(store: Store, key: str, *, body: str) -> AsyncIterator[Once]:
    """Have something be begun once under a scoped key, where the store cannot tell the first time from the second.

    The first gets `made` None, and says what it has made; whoever comes later gets that. Raises `Problem`: `key-reused`, and
    `in-progress` while the first is at work. If its process dies at that moment, the key is free again after a minute, and
    then it is not known whether the thing was begun.
    """
    sent = Sent(body=body)
    try:
        mine = await store.aput_document(
            Document(kind=KIND, key=key, text=_text(sent), expires_at=store.clock() + UNFINISHED)
        )
    except Behind:
        before = await sent_under(store, key)
        if before is not None and before.body != body:
            raise Problem("key-reused") from None
        if before is None or before.made is None:
            raise Problem("in-progress", headers={"Retry-After": "1"}) from None
        yield Once(made=before.made)
        return
    once = Once()
    try:
        yield once
    except Exception as error:
        if problem_of(error).status < 500:
            await _forget(store, mine)
        raise
    done = replace(mine, text=_text(replace(sent, made=once.made)), expires_at=store.clock() + KEPT)
    await store.aput_document(done)


class Once:
    """What was made under a key: None, and to be set, for whoever is the first."""

    def __init__(self, made: str | None = None) -> None:
        self.made = made


async def _forget(store: Store, document: Document) -> None:
    try:
        await store.adelete_document(KIND, document.key, version=document.version)
    except Behind:  # somebody else has it now
        return


def _text(sent: Sent) -> str:
    return json.dumps({"body": sent.body, "made": sent.made})


def _read(document: Document) -> Sent:
    row = json.loads(document.text)
    return Sent(body=row["body"], made=row["made"])

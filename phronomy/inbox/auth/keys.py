"""The secret that all processes of an inbox share: made once, by whoever needs it first, and kept in the store.

Whoever can read the store can make the texts that it signs: forms, cursors, attempts to sign in. They could change what waits as well.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from phronomy.errors import StoreError
from phronomy.stores.base import Store
from phronomy.stores.rows import Behind, Document

KIND: Final = "inbox-key"
_KEY: Final = "1"
_BYTES: Final = 32


async def server_key(store: Store) -> bytes:
    """The secret of the inbox of this store: 32 random bytes. Raises `StoreError`."""
    while True:
        found = await store.aget_document(KIND, _KEY)
        if found is not None:
            return _read(found)
        made = Document(kind=KIND, key=_KEY, text=secrets.token_hex(_BYTES))
        try:
            return _read(await store.aput_document(made))
        except Behind:
            continue  # another process was first, and its secret counts


def derived(key: bytes, purpose: str) -> bytes:
    """The secret for one purpose: what is signed for one is never taken for another."""
    return hmac.new(key, purpose.encode(), hashlib.sha256).digest()


def _read(document: Document) -> bytes:
    try:
        key = bytes.fromhex(document.text)
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise StoreError(
            f"the secret of the inbox (document {KIND} {_KEY}) is damaged: delete it, and everybody signs in anew"
        )
    return key

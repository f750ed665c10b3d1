"""The rules by which every store judges a small document: what it may be, and where it may stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from phronomy.errors import StoreError
from phronomy.foundation.checks import is_number
from phronomy.foundation.ids import LONGEST, new_id
from phronomy.foundation.quoting import quoted
from phronomy.stores.rows import Behind, Document

if TYPE_CHECKING:
    from phronomy.stores.documents import Documents

_KIND: Final = re.compile(r"[a-z][a-z0-9._-]{0,63}")

MOST: Final = 100_000
"""Bytes, in UTF-8, of the text of a document: a list of them is read as a whole."""


def check_document(document: Document) -> None:
    """Refuse a document that not every store can keep. Raises `StoreError`."""
    # The same for each store, so that what works in memory works in the others. No message quotes a key or a text: they
    # may be somebody's address, or a secret.
    if not isinstance(document, Document):
        raise StoreError(f"a Document is written, not {quoted(document)}")
    if not isinstance(document.kind, str) or not _KIND.fullmatch(document.kind):
        raise StoreError(
            "the kind of a document is a small letter, then small letters, digits, dots, dashes and underscores,"
            " 64 characters at most"
        )
    if not is_place(document.kind, document.key):
        raise StoreError(
            f"the key of a document is text of 1 to {LONGEST:,} bytes in UTF-8, without NUL characters and lone"
            " surrogates: for a longer one, use its SHA-256"
        )
    if not isinstance(document.text, str) or not _fits(document.text, MOST):
        raise StoreError(
            f"the text of a document has at most {MOST:,} bytes in UTF-8, without NUL characters and lone surrogates"
        )
    if not isinstance(document.version, str):
        raise StoreError("the version of a document is that of the document as it was read, or empty for a new one")
    if document.expires_at is not None and not is_number(document.expires_at):
        raise StoreError("a document expires at a number of seconds since the epoch, or never (None)")


def is_place(kind: str, key: str) -> bool:
    """Whether a document may stand under this kind and key. If not, there is none to be found."""
    return isinstance(key, str) and key != "" and bool(_KIND.fullmatch(kind)) and _fits(key, LONGEST)


def _fits(text: str, most: int) -> bool:
    if "\0" in text or len(text) > most:
        return False
    try:
        return len(text.encode()) <= most
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def documents_under(store: Documents, kind: str, prefix: str, *, batch: int) -> Iterator[Document]:
    """The documents of a kind whose key begins so, in the order of their keys; so many are read at a time."""
    after = prefix or None
    while True:
        rows = store.select_documents(kind, after=after, limit=batch)
        for row in rows:
            if not row.key.startswith(prefix):
                return
            yield row
        if len(rows) < batch:
            return
        after = rows[-1].key


def new_version() -> str:
    """A version that no other write has."""
    return new_id("doc")


def behind(kind: str, key: str) -> Behind:
    """The error for a document that is not, or no longer, of the version that a writer has seen."""
    return Behind(f"{kind} {key}")

"""Ids of what is stored, and the texts of others that stores find it by."""

from __future__ import annotations

import os
from typing import Final

from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import clean

LONGEST: Final = 1_500
"""Bytes, in UTF-8, of a text that stores find by. With the longest tenant they go into an entry of an index of PostgreSQL (2,704)."""


def new_id(kind: str) -> str:
    """A new id: the kind, and 96 random bits."""
    return f"{kind}_{os.urandom(12).hex()}"


def is_findable(text: str) -> bool:
    """Whether every store can find by the text."""
    return "\0" not in text and len(text) <= LONGEST and len(clean(text).encode()) <= LONGEST


def findable(what: str, text: object) -> str:
    """The text as it is stored, if every store can find by it. Raises `ConfigurationError`."""
    if not isinstance(text, str):
        raise ConfigurationError(f"{what} is text, not {type(text).__name__}")
    if not is_findable(text):
        raise ConfigurationError(
            f"{what} is text of at most {LONGEST:,} bytes in UTF-8, without NUL characters, so that every store finds by it,"
            f" and this has {len(text):,} characters: give another, such as its SHA-256"
        )
    return clean(text)

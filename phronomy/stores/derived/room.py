"""The room of a run for events and messages that it has not used yet: each write of the run costs more with each of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from phronomy.records.record import Record

MOST: Final = 100
"""Events, and messages, that a run keeps at most until it uses them. One sender has half of the places at most."""


def has_place(kept: int, own: int) -> bool:
    """True if there is a place for another one of a sender who has `own` of those that are kept.

    No sender has more places than are left for others.
    """
    return kept + 1 + own + 1 <= MOST


def size_of(kept: Iterable[Record]) -> int:
    """The characters that these have as JSON, all together."""
    return sum(len(each.model_dump_json()) for each in kept)

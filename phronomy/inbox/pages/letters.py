"""Text from outside, cut into parts that a template can show: what a person would not see, or would take for something else, apart.

A browser obeys marks that turn the direction of a text, shows some characters as nothing, and a Cyrillic a as it shows a Latin one.
Each such character becomes a part of its own, with its code point and its name, and so does a run of one of them. Nothing is left out.
Boxes are many times as long as what they stand for, so a text has at most so many, and so has a page: then it is shown as JSON text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import canonical
from phronomy.foundation.suspicious_letters import (
    TURNED,
    as_json,
    mixes_directions,
    plain_scripts,
    suspicious_places,
    with_visible_letters,
)

MOST_BOXES: Final = 200
"""Boxes of a text. One that needs more is shown as JSON text, with codes in place of boxes."""
MOST_OF_PAGE: Final = 2_000
"""Boxes of a page."""

_WORD: Final = rf"(?:(?!\d){TURNED.pattern})+"
_RUN: Final = re.compile(f"({_WORD}(?: +{_WORD})*)")
"""Words from right to left, side by side: digits and signs between them stay where they are."""

_PLAIN: Final = frozenset("\n\t")
"""Controls that a page shows for what they are, as the text keeps its lines."""

_NAMES: Final = {
    **{code: f"control {code:02X}" for code in (*range(0x20), *range(0x7F, 0xA0))},
    0x0D: "carriage return",
}


_SHORT: Final = 200


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a text. With a `code`, it is one character, `times` in a row, whose code point and name are shown in its place."""

    text: str
    code: str | None = None
    name: str | None = None
    times: int = 1
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Lettered:
    """A text in parts. `found` is how many of its characters are written out; `as_json` says that it is one part, as JSON text.

    It is `mixed` if letters from right to left stand beside others: then they are parts of their own, which are `turned`, and all parts
    are to be shown from left to right.
    """

    parts: tuple[Part, ...]
    found: int
    as_json: bool = False
    mixed: bool = False

    @property
    def odd(self) -> bool:
        """Whether something in it is not what it looks like."""
        return self.found > 0


_Runs = tuple[int, list[tuple[bool, str]], bool]


class _Boxes:
    """How many boxes are left, and the texts that were looked at."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.known: dict[str, _Runs] = {}

    def runs_of(self, text: str) -> _Runs:
        """As `_runs_of`. A long text, which a page shows in several places, is looked at once."""
        if len(text) <= _SHORT:
            return _runs_of(text)
        if text not in self.known:
            self.known[text] = _runs_of(text)
        return self.known[text]


_page: ContextVar[_Boxes | None] = ContextVar("phronomy_inbox_boxes", default=None)


@contextmanager
def boxes_of_a_page() -> Iterator[None]:
    """All texts in it share the boxes that a page has."""
    before = _page.set(_Boxes(MOST_OF_PAGE))
    try:
        yield
    finally:
        _page.reset(before)


def lettered(text: str) -> Lettered:
    """The parts of a text."""
    if text.isascii() and text.isprintable():
        return Lettered((Part(text),), 0)
    page = _page.get()
    found, runs, mixed = _runs_of(text) if page is None else page.runs_of(text)
    boxes = sum(is_odd for is_odd, _ in runs)
    if boxes > (MOST_BOXES if page is None else min(MOST_BOXES, page.left)):
        return Lettered((*_in_order(_json_of(runs), mixed),), found, as_json=True, mixed=mixed)
    if page is not None:
        page.left -= boxes
    parts = []
    for is_odd, piece in runs:
        if is_odd:
            code = ord(piece[0])
            parts.append(Part(piece, f"U+{code:04X}", _name(code), len(piece)))
        else:
            parts += _in_order(piece, mixed)
    return Lettered(tuple(parts), found, mixed=mixed)


def _runs_of(text: str) -> _Runs:
    """How many characters are written out, the text in runs, and whether directions are mixed in it."""
    places = suspicious_places(text, known=plain_scripts(text), codes=False)
    odd = [at for at in places if text[at] not in _PLAIN]
    runs, begin, end = list[tuple[bool, str]](), 0, 0
    for at in odd:
        if at == end > begin and text[at] == text[begin]:
            end += 1
            continue
        runs += ((True, text[begin:end]), (False, text[end:at]))
        begin, end = at, at + 1
    runs += ((True, text[begin:end]), (False, text[end:]))
    return len(odd), [run for run in runs if run[1]], mixes_directions(text)


def _in_order(text: str, mixed: bool) -> list[Part]:
    """A text as parts; where directions are mixed, each run of letters from right to left is one of its own."""
    if not mixed:
        return [Part(text)]
    return [Part(piece, turned=place % 2 == 1) for place, piece in enumerate(_RUN.split(text)) if piece]


def _json_of(runs: list[tuple[bool, str]]) -> str:
    told = [as_json(piece[0]) * len(piece) if is_odd else _quoted(piece) for is_odd, piece in runs]
    return f'"{"".join(told)}"'


def _quoted(piece: str) -> str:
    return piece if piece.isalnum() else canonical(piece)[1:-1]


def coded(text: str) -> str:
    """The text with a code in place of each letter that is not what it looks like. JSON text stays JSON of the same value."""
    return with_visible_letters(text, as_json, known=plain_scripts(text), turned=mixes_directions(text))


def _name(code: int) -> str:
    return _NAMES.get(code) or unicodedata.name(chr(code), "unnamed").lower()

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
from itertools import groupby
from typing import Final

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import canonical
from phronomy.foundation.suspicious_letters import as_json, plain_scripts, with_visible_letters

MOST_BOXES: Final = 200
"""Boxes of a text. One that needs more is shown as JSON text, with codes in place of boxes."""
MOST_OF_PAGE: Final = 2_000
"""Boxes of a page."""

_PLAIN: Final = frozenset("\n\t")
"""Controls that a page shows for what they are, as the text keeps its lines."""

_BETWEEN: Final = "\0"
"""Stands around what is written out. No text has one of its own by then: it would be written out itself."""

_NAMES: Final = {
    **{code: f"control {code:02X}" for code in (*range(0x20), *range(0x7F, 0xA0))},
    0x0D: "carriage return",
}


_WORDS: Final = frozenset({"yes", "no", "no value", "empty text", "not set"})
"""What the page says for values that are no text."""

_AMBIGUOUS: Final = re.compile(r"(?:-?[0-9][0-9.eE+-]*|true|false|null|[\[{].*)", re.ASCII | re.DOTALL)

_SHORT: Final = 200


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a text. With a `code`, it is one character, `times` in a row, whose code point and name are shown in its place."""

    text: str
    code: str | None = None
    name: str | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class Lettered:
    """A text in parts. `found` is how many of its characters are written out; `as_json` says that it is one part, as JSON text."""

    parts: tuple[Part, ...]
    found: int
    as_json: bool = False

    @property
    def odd(self) -> bool:
        """Whether something in it is not what it looks like."""
        return self.found > 0


class _Boxes:
    """How many boxes are left."""

    def __init__(self, left: int) -> None:
        self.left = left


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
    known = plain_scripts(text)
    # Between backslashes: what follows one is taken for a code of JSON, in which no letter is looked at.
    written = "\\".join(with_visible_letters(each, _written, known=known) for each in text.split("\\"))
    pieces = written.split(_BETWEEN)
    runs = [(code, len([*same])) for code, same in groupby(_in_turn(pieces))]
    boxes, page = sum(code is not None for (code, _), _ in runs), _page.get()
    if boxes > (MOST_BOXES if page is None else min(MOST_BOXES, page.left)):
        return Lettered((Part(_as_json(runs)),), len(pieces) // 2, as_json=True)
    if page is not None:
        page.left -= boxes
    parts = []
    for (code, piece), times in runs:
        if code is None:
            parts.append(Part(piece))
        else:
            parts.append(Part(chr(code) * times, f"U+{code:04X}", _name(code), times))
    return Lettered(tuple(parts), len(pieces) // 2)


def _as_json(runs: list[tuple[tuple[int | None, str], int]]) -> str:
    told = [canonical(piece)[1:-1] if code is None else as_json(chr(code)) * times for (code, piece), times in runs]
    return f'"{"".join(told)}"'


def coded(text: str) -> str:
    """The text with a code in place of each letter that is not what it looks like. JSON text stays JSON of the same value."""
    return with_visible_letters(text, as_json, known=plain_scripts(text))


def _in_turn(pieces: list[str]) -> Iterator[tuple[int | None, str]]:
    for place, piece in enumerate(pieces):
        if place % 2:
            yield int(piece, 16), ""
        elif piece:
            yield None, piece


def _written(char: str) -> str:
    return char if char in _PLAIN else f"{_BETWEEN}{ord(char):x}{_BETWEEN}"


def _name(code: int) -> str:
    return _NAMES.get(code) or unicodedata.name(chr(code), "unnamed").lower()


def is_ambiguous(text: str) -> bool:
    """Whether the text could be read as a value of another type, or with a note of the page's own behind it."""
    word = text.strip().casefold()
    return (
        _AMBIGUOUS.fullmatch(word) is not None or re.sub(r"\s*\(.*\)$", "", word[:_SHORT]) in _WORDS or word[:1] == '"'
    )

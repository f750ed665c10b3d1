"""Letters: what of a text a person would not see, or would take for something else, is written out.

A terminal acts on controls, shows some characters as nothing, and shows a Cyrillic a as it shows a Latin one. What is written out is a
code, such as \\u0430, in the place of the character: nothing is left out, and nothing is added that could be taken for text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Set
from functools import cache, lru_cache
from typing import Final

_BLANK: Final = frozenset(
    [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)]
) | frozenset(range(0xE0100, 0xE01F0))
"""Characters that count as printable and show as nothing: fillers, and selectors of variants."""

_WORD: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)|[^\W_]+")
"""A word, or a code as JSON has it: the n of a new line is no part of the word that follows."""
_LATIN: Final = "LATIN"
_LOOKALIKES: Final = frozenset("АВЕЅІЈКМНОРСТУХҮԌԚԜаеорсухѕіјһԁԛԝүӏΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορυχικϲϳՍՏօոսցհ")
"""Letters of other scripts that look like a Latin one: Cyrillic, Greek and Armenian."""
_OF_NO_SCRIPT: Final = frozenset(
    {
        *("BOPOMOFO", "CJK", "HANGUL", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA", "KATAKANA-HIRAGANA"),
        *("FEMININE", "FULLWIDTH", "HALFWIDTH", "MASCULINE", "MICRO", "MODIFIER"),
    }
)
"""How the names of letters begin that stand beside others in one word, or cannot be taken for them."""


def escaped(text: str) -> str:
    """The text with everything written out that a terminal would act on or not show, and that looks like something else."""
    return with_visible_letters(text, written_out, known=plain_scripts(text))


def shows_all(text: str) -> bool:
    """Whether no character of the text shows as nothing, or is acted on. One may still look like another."""
    return text.isprintable() and not any(ord(char) in _BLANK for char in text)


def written_out(char: str) -> str:
    """The code of a character."""
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def as_json(char: str) -> str:
    """The code of a character, as text in JSON has it."""
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def with_visible_letters(text: str, write: Callable[[str], str], *, known: Set[str]) -> str:
    """The text, with what cannot be shown as it is written by `write`. Words of `known` scripts are not taken for Latin ones."""
    if text.isascii() and text.isprintable():
        return text
    out = {at for at, char in enumerate(text) if not _is_seen(char, text[at - 1 : at])}
    for word in _WORD.finditer(text):
        out.update(word.start() + at for at in _foreign(word[0], known))
    return "".join(write(char) if at in out else char for at, char in enumerate(text))


def plain_scripts(text: str) -> frozenset[str]:
    """The scripts of which the text has a letter that nobody takes for a Latin one."""
    return frozenset(_script(char) for char in {*text} - _LOOKALIKES if char.isalpha())


@lru_cache(10_000)
def _is_seen(char: str, before: str) -> bool:
    """Whether the character is seen for what it is, after the one before it."""
    if char.isascii() or not char.isprintable() or ord(char) in _BLANK:
        return char.isprintable() and ord(char) not in _BLANK
    kind = unicodedata.category(char)
    if kind.startswith(
        "M"
    ):  # a mark: the vowel of an Indian script is one, and so is an accent that makes another letter of an a
        return _script(char) == _script(before) != "COMBINING"
    stands_for = unicodedata.normalize("NFKC", char)
    return not (kind in ("Lu", "Ll", "Nd", "Nl") and stands_for.isascii() and _script(char) != "FULLWIDTH")


def _foreign(word: str, known: Set[str]) -> list[int]:
    """Finds the letters of a word that are of another script than most of it; all letters, if they only look like Latin ones."""
    if word.isascii() or word.startswith("\\"):
        return []
    places = [(at, _script(char)) for at, char in enumerate(word) if char.isalpha()]
    scripts = Counter(script for _, script in places if script not in _OF_NO_SCRIPT)
    if not scripts:
        return []
    main = max(scripts, key=lambda script: (scripts[script], script == _LATIN))
    if len(scripts) > 1:
        return [at for at, script in places if script in scripts and script != main]
    alike = main != _LATIN and main not in known and all(word[at] in _LOOKALIKES for at, _ in places)
    return [at for at, _ in places] if alike else []


@cache
def _script(char: str) -> str:
    """The script of a letter or a mark, as its name begins."""
    return unicodedata.name(char, "").partition(" ")[0] if char else ""

"""Letters: what of a text a person would not see, or would take for something else, is written out.

A terminal acts on controls, shows some characters as nothing, and shows a Cyrillic a as it shows a Latin one. What is written out is a
code, such as \\u0430, in the place of the character: nothing is left out, and nothing is added that could be taken for text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from functools import cache, lru_cache
from typing import Final

from phronomy.foundation.lookalikes import LOOKALIKES

_BLANK: Final = frozenset(
    {
        *(0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0xFFFC, 0x16FE4, 0x1D159),
        *(*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
    }
)
"""Characters that count as printable and show as nothing: fillers, selectors of variants, and what Unicode lets be ignored."""

_MARKS: Final = 4
"""Marks above and below one letter, at most: no script needs more, and many cover other lines."""

TURNED: Final = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
"""The blocks of the scripts that are written from right to left."""
_QUIET: Final = frozenset(" \t\n.,:!?;-'\"()\u060c\u061b\u061f\u05be\u2019")
"""The characters that stand between words of any script, and move nothing that could be taken for something else."""

_WORD: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)|[^\W_]+")
"""A word, or a code as JSON has it: the n of a new line is no part of the word that follows."""
_BETWEEN_SLASHES: Final = re.compile(r"[^\\]+")
_LETTERS: Final = re.compile(r"[^\W_]+")
_JOINS: Final = frozenset("./@:_-")
_NUMBER: Final = re.compile(r"\d(?:[^\w\s]?\d)*")
_ASCII_DIGIT: Final = re.compile("[0-9]")
_OUTWEIGHS: Final = 3
"""So many letters of words that are clear stand for one letter of those that might be Latin."""
_SHORT: Final = 40
_LATIN: Final = "LATIN"
_ASCII_OF: Final = {char: looks for looks, chars in LOOKALIKES.items() for char in chars if looks.isalnum()}
"""Letters and digits that look like one of ASCII."""
_LIKE_LATIN: Final = frozenset(_ASCII_OF) | frozenset("\u03c7\u03ba\u051a")
_DOTLESS: Final = "\u0131"
_UPRIGHT: Final = "\u2223\u2f01\u31d1\u4e28\uffe8"
"""Upright strokes: the table says of some that they look like an l, as the sign itself does."""
_SIGN_OF: Final = {
    char: looks for looks, chars in LOOKALIKES.items() for char in chars if not looks.isalnum()
} | dict.fromkeys(_UPRIGHT, "|")
"""Characters that look like a sign of ASCII."""
_OF_ADDRESSES: Final = frozenset("./:@")
_OF_PROSE: Final = frozenset("\u00b4\u00b8\u00d7\u2013\u2018\u2019\u201b\u2032\u2035\u2039\u203a")
"""Signs that people write between letters and digits: quotation marks, apostrophes, primes, an accent, an en dash and a times sign."""
_EAST_ASIAN: Final = frozenset({"BOPOMOFO", "CJK", "HANGUL", "HIRAGANA", "KATAKANA"})

_WRITTEN: Final = frozenset(
    {
        *(
            "ARABIC",
            "ARMENIAN",
            "BENGALI",
            "BOPOMOFO",
            "CJK",
            "CYRILLIC",
            "DEVANAGARI",
            "ETHIOPIC",
            "GEORGIAN",
            "GREEK",
        ),
        *("GUJARATI", "GURMUKHI", "HANGUL", "HEBREW", "HIRAGANA", "KANNADA", "KATAKANA", "KHMER", "LAO", "LATIN"),
        *("MALAYALAM", "MYANMAR", "ORIYA", "SINHALA", "TAMIL", "TELUGU", "THAANA", "THAI", "TIBETAN"),
    }
)
"""The scripts in which texts are written today, by UAX #31. A word of another one that looks Latin is there to look so."""
_OF_NO_SCRIPT: Final = frozenset(
    {
        *("BOPOMOFO", "CJK", "HANGUL", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA", "KATAKANA-HIRAGANA"),
        *("FEMININE", "FULLWIDTH", "HALFWIDTH", "MASCULINE", "MICRO", "MODIFIER"),
    }
)
"""How the names of letters begin that stand beside others in one word, or cannot be taken for them."""


def escaped(text: str) -> str:
    """The text with everything written out that a terminal would act on or not show, and that looks like something else.

    Letters from right to left are, too, where they would move what stands beside them.
    """
    return with_visible_letters(text, written_out, known=plain_scripts(text), turned=mixes_directions(text))


def mixes_directions(text: str) -> bool:
    """True if letters from right to left stand beside letters from left to right, digits or signs, which would change places."""
    if TURNED.search(text) is None:
        return False
    return any(char not in _QUIET and not is_turned(char) and unicodedata.category(char)[0] != "M" for char in {*text})


def is_turned(char: str) -> bool:
    """True if this is a letter that is written from right to left."""
    return unicodedata.bidirectional(char) in ("R", "AL")


def shows_all(text: str) -> bool:
    """Whether no character of the text shows as nothing, or is acted on. One may still look like another."""
    return text.isprintable() and not any(ord(char) in _BLANK for char in text)


def written_out(char: str) -> str:
    """The code of a character."""
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@lru_cache(10_000)
def as_json(char: str) -> str:
    """The code of a character, as text in JSON has it."""
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def with_visible_letters(text: str, write: Callable[[str], str], *, known: Set[str], turned: bool = False) -> str:
    """The text, with what cannot be shown as it is written by `write`. Words of `known` scripts are not taken for Latin ones.

    With `turned`, so are letters from right to left.
    """
    pieces, end = list[str](), 0
    codes: dict[str, str] = {}
    for at in suspicious_places(text, known=known, turned=turned):
        char = text[at]
        if (code := codes.get(char)) is None:
            code = codes[char] = write(char)
        pieces += (text[end:at], code)
        end = at + 1
    return "".join((*pieces, text[end:]))


def suspicious_places(text: str, *, known: Set[str], turned: bool = False, codes: bool = True) -> list[int]:
    """The places of the characters that cannot be shown as they are, in order. `known` and `turned` as in `with_visible_letters`.

    With `codes`, the letter behind a backslash is taken for a code of JSON; without, a backslash stands between words.
    """
    if text.isascii() and text.isprintable():
        return []
    # Of a long text each character is looked at once, by what it is, and then found by one search: a value of 300,000 odd letters is
    # shown in tens of milliseconds.
    letters = {*text}
    marks = {char for char in letters if not char.isascii() and unicodedata.category(char)[0] == "M"}
    hidden = {char for char in letters if char not in marks and not _is_seen(char, "")}
    if turned:
        hidden.update(char for char in letters if is_turned(char))
    out = {*_places(text, hidden)}
    if turned:
        out.update(_moving_numbers(text, {char for char in letters if unicodedata.bidirectional(char) == "AN"}))
    if marks:
        out.update(at for at in _places(text, marks) if not _is_seen(text[at], text[at - 1 : at]))
        out.update(_excess(text, marks))
    out.update(_signs(text, {char for char in letters if _is_sign(char)}, known))
    out.update(_digits(text, letters))
    if not known & _EAST_ASIAN and any(char.isascii() and char.isalnum() for char in letters):
        out.update(_places(text, {char for char in letters if char.isalnum() and _script(char) == "FULLWIDTH"}))
    for begin, stop in [(0, len(text))] if codes else [found.span() for found in _BETWEEN_SLASHES.finditer(text)]:
        is_alone = " " not in text[begin:stop].strip()
        for word in (_WORD if codes else _LETTERS).finditer(text, begin, stop):
            if not word[0].isascii():
                out.update(_foreign_places(text, *word.span(), known, is_alone=is_alone))
    return sorted(out)


def _foreign_places(text: str, start: int, end: int, known: Set[str], *, is_alone: bool) -> Iterable[int]:
    """The places of the letters of a word that are not what they look like."""
    # A dotless i is a letter of Turkish prose; in a name, an address or a path it is there to look like another.
    is_joined = text[end : end + 1] in _JOINS and text[end + 1 : end + 2].isalnum()
    word = text[start:end]
    foreign = _foreign(word, known, is_alone or is_joined or text[start - 1 : start] in _JOINS)
    if not foreign:
        return ()
    if len(word) <= _SHORT:
        return [start + at for at, char in enumerate(word) if char in foreign]
    return (start + at for at in _places(word, foreign))


def _places(text: str, chars: Set[str]) -> Iterator[int]:
    """Where one of these characters stands."""
    if not chars:
        return iter(())
    return (found.start() for found in re.compile(f"[{re.escape(''.join(chars))}]").finditer(text))


def plain_scripts(text: str) -> frozenset[str]:
    """The scripts that most of a text is written in: words that nobody takes for Latin ones outweigh those that might be."""
    if text.isascii():
        return frozenset()
    clear, doubtful = Counter[str](), Counter[str]()
    for word, times in Counter(_WORD.findall(text)).items():
        letters = Counter(word) if not word.isascii() else {}
        alike: dict[str, list[int]] = {}
        for char, count in letters.items():
            if char.isalpha() and not _is_sign(char):
                counted = alike.setdefault(_script(char), [0, 0])
                counted[char in _LIKE_LATIN] += count
        for script, (plain, like) in alike.items():
            (clear if plain else doubtful)[script] += (plain + like) * times
    return frozenset(script for script, count in clear.items() if count >= _OUTWEIGHS * doubtful[script])


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
    return not (kind in ("Lu", "Ll", "Lm", "Nd", "Nl") and stands_for.isascii() and _script(char) != "FULLWIDTH")


def _excess(text: str, marks: Set[str]) -> Iterator[int]:
    """The marks of which too many stand above and below one letter."""
    for row in re.compile(f"[{re.escape(''.join(marks))}]{{{_MARKS + 1},}}").finditer(text):
        yield from range(row.start() + _MARKS, row.end())


@cache
def _looks_like(char: str) -> str:
    """The one sign, letter or digit of ASCII that a character looks like, which is no letter of a word and no digit; or nothing."""
    kind = unicodedata.category(char)
    if char.isascii() or kind[0] in "MZ" or kind in ("Nd", "Nl"):
        return ""
    if (looks := _SIGN_OF.get(char)) is not None:
        return looks
    if char.isalpha():  # what looks like a letter is looked at with its word
        return ""
    # Raised, lowered and framed characters do not look like what they stand for.
    plain = unicodedata.decomposition(char).partition(">")[0] not in ("<super", "<sub", "<circle", "<square")
    stands_for = unicodedata.normalize("NFKC", char) if plain else ""
    return _ASCII_OF.get(char) or (stands_for if len(stands_for) == 1 and stands_for.isascii() else "")


def _is_sign(char: str) -> bool:
    """True if a reader could take this for a sign of ASCII, or for a letter of ASCII though it is no letter."""
    return char not in _OF_PROSE and _looks_like(char) != ""


def _signs(text: str, signs: Set[str], known: Set[str]) -> Iterator[int]:
    """The places of the signs that stand in ASCII, as in an address, a path, a number or a command, and look like one of it."""
    if not signs:
        return
    for run in re.compile(f"[{re.escape(''.join(signs))}]+").finditer(text):
        before, after = text[max(run.start() - 1, 0) : run.start()], text[run.end() : run.end() + 1]
        if not (before + after).isascii() or not (_touches(before) or _touches(after)):
            continue
        for at in range(*run.span()):
            if not _is_of_prose(text[at], before, after, known):
                yield at


def _touches(char: str) -> bool:
    return char.isalnum() or (char != "" and char in "./:@\\-")


def _is_of_prose(sign: str, before: str, after: str, known: Set[str]) -> bool:
    """True if a sign between these characters may belong to the script of the text, or begin a quotation."""
    if unicodedata.category(sign) == "Ps" and _looks_like(sign) == ",":
        return not before.isalnum()
    if known & _EAST_ASIAN and unicodedata.east_asian_width(sign) in "WF":
        return not (sign.isalpha() and before.strip() and after.strip())
    if _looks_like(sign) in _OF_ADDRESSES and before.isalnum() and after.isalnum():
        return False
    return (script := _script(sign)) != _LATIN and script in known


def _moving_numbers(text: str, digits: Set[str]) -> Iterator[int]:
    """The places of Arabic digits of which one number would change places with another: nothing from left to right is between them."""
    if not digits:
        return
    last: re.Match[str] | None = None
    for number in re.compile(f"[{re.escape(''.join(digits))}]+").finditer(text):
        between = {unicodedata.bidirectional(char) for char in text[last.end() : number.start()]} if last else {"L"}
        is_one = last is not None and between == {"CS"} and number.start() - last.end() == 1
        if last is not None and "L" not in between and not is_one:
            yield from (*range(*last.span()), *range(*number.span()))
        last = number


def _digits(text: str, letters: Set[str]) -> Iterator[int]:
    """The places of the digits of another script that stand in one number with digits of ASCII."""
    others = {char for char in letters if char.isdecimal() and not char.isascii()}
    if others and any(char.isascii() and char.isdecimal() for char in letters):
        for number in _NUMBER.finditer(text):
            if _ASCII_DIGIT.search(number[0]) is not None:
                yield from (number.start() + at for at, char in enumerate(number[0]) if char in others)


def _foreign(word: str, known: Set[str], is_address: bool) -> Set[str]:
    """Finds the letters of a word that are of another script than most of it; all letters, if they only look like Latin ones."""
    if word.startswith("\\"):
        return frozenset()
    return (_found if len(word) <= _SHORT else _found.__wrapped__)(word, frozenset(known), is_address)


@lru_cache(10_000)
def _found(word: str, known: frozenset[str], is_address: bool) -> Set[str]:
    times = Counter(word)
    digits = {char for char in times if _is_another_digit(char)}
    script_of = {char: _script(char) for char in times if char.isalpha()}
    scripts = Counter[str]()
    for char, script in script_of.items():
        if script not in _OF_NO_SCRIPT:
            scripts[script] += times[char]
    if any(char.isascii() for char in times):
        digits |= {char for char, script in script_of.items() if script == "FULLWIDTH"}
    if not scripts:
        return digits
    main = max(scripts, key=lambda script: (scripts[script], script == _LATIN))
    if len(scripts) > 1:
        return digits | {char for char, script in script_of.items() if script in scripts and script != main}
    alike = script_of.keys() & _LIKE_LATIN
    if main == _LATIN:
        return digits | (alike if is_address else alike - {_DOTLESS})
    looks_latin = len(alike) == len(script_of) and main not in known
    return digits | script_of.keys() if looks_latin or (alike and main not in _WRITTEN) else digits


def _is_another_digit(char: str) -> bool:
    """True if this is a digit that looks like another one of ASCII."""
    looks = _ASCII_OF.get(char, "")
    return looks.isdecimal() and char.isdecimal() and unicodedata.decimal(char) != int(looks)


@cache
def _script(char: str) -> str:
    """The script of a letter or a mark, as its name begins."""
    return unicodedata.name(char, "").partition(" ")[0] if char else ""

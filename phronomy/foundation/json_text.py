"""JSON text: one way in, one way out.

`canonical` makes the text that records keep and digests cover; `parse` reads text from outside and refuses what a record
could not hold. Canonical text is compact, keeps key order, and writes non-ASCII characters as they are.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from decimal import Decimal
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, TypeAlias

from pydantic_core import from_json

if TYPE_CHECKING:
    JsonValue: TypeAlias = dict[str, "JsonValue"] | list["JsonValue"] | str | int | float | bool | None
    """None, bool, int, float (finite), str, list of these, or dict from str to these."""
else:
    JsonValue = object  # a record that has one looks at it itself, and builds no schema of six types for it

JsonDict: TypeAlias = dict[str, JsonValue]
"""A JSON object: text to JSON values."""

MAX_DEPTH = int(os.environ.get("PHRONOMY_MAX_JSON_DEPTH", "64"))
"""Deepest nesting of lists and objects that a record accepts. Set by `PHRONOMY_MAX_JSON_DEPTH` before the import."""

MAX_BYTES = int(os.environ.get("PHRONOMY_MAX_JSON_BYTES", str(32 * 1024 * 1024)))
"""Largest text, in characters, that a record accepts. Set by `PHRONOMY_MAX_JSON_BYTES` before the import."""

_STRING = r'"[^"\\\x00-\x1f\ud800-\udfff]*+"'  # needs no escape
_PAIR = rf"({_STRING}):(?:{_STRING}|0|-?[1-9][0-9]{{0,17}}|true|false|null)"
_PAIRS = re.compile(_PAIR)
_SEEN = re.compile(rf"{_STRING}|\{{{_PAIR}(?:,{_PAIR}){{0,20}}\}}")
"""A string, or a small object of strings, whole numbers and constants, as most arguments are: canonical, if each key stands once."""

_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


class JsonError(ValueError):
    """The value or text is not JSON that a record can hold; the message says where it fails."""


class JsonText(str):
    """A string that is known to be canonical JSON text."""

    __slots__ = ()


def clean(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD, so that it can be encoded everywhere."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def canonical(value: object) -> JsonText:
    """The canonical text of a plain JSON value.

    Raises `JsonError` for a value that is not JSON, a non-finite number, a key that is no string, or excess depth or size.
    """
    if isinstance(value, JsonText):
        return value
    if type(value) is str:
        return _kept(encode_basestring(value))
    _check(value)
    return _kept(encoded(value))


def _kept(text: str) -> JsonText:
    if not text.isascii():
        text = clean(text)
    if len(text) > MAX_BYTES:
        raise JsonError(f"JSON text of {len(text)} characters is over the limit of {MAX_BYTES}")
    return JsonText(text)


def is_canonical(text: str) -> bool:
    """Whether this is seen at a glance to be canonical text, as most of what is stored is. False says nothing."""
    if text in ("{}", "null"):  # what fields hold that nobody has set
        return True
    if len(text) > MAX_BYTES:
        return False
    # A third of the time that it takes to read a short text, and to write it again.
    if (seen := _SEEN.fullmatch(text)) is not None:
        # The second group is a key behind the first.
        keys = _PAIRS.findall(text) if seen.lastindex == 2 else ()
        return len(keys) == len(set(keys))
    if text[:1] != '"' and text.count("[") + text.count("{") > MAX_DEPTH:
        return False
    try:  # a key that stands twice is read once, and a number that is none raises: neither is written as it was read
        return encoded(from_json(text)) == text
    except (ValueError, TypeError, RecursionError):  # a lone surrogate is a TypeError
        return False


def parse(text: object) -> JsonValue:
    """The plain value of a JSON text from outside.

    Raises `JsonError` for what is neither text nor bytes, bytes that are not UTF-8, text that is not JSON, a repeated key, NaN or
    infinity, or excess depth or size.
    """
    return _parsed(text, _DECODER)


def parse_exactly(text: object) -> JsonValue:
    """As `parse`, for what a person has written: a number with more digits than are kept raises `JsonError`, and is not rounded."""
    return _parsed(text, _EXACT)


def _parsed(text: object, decoder: json.JSONDecoder) -> JsonValue:
    if not isinstance(text, str):
        if not isinstance(text, bytes | bytearray):
            raise JsonError(f"text or bytes are needed, not {type(text).__name__}")
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise JsonError(f"not UTF-8 at byte {error.start}") from None
    if len(text) > MAX_BYTES:
        raise JsonError(f"JSON text of {len(text)} characters is over the limit of {MAX_BYTES}")
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text)
    try:
        value: JsonValue = decoder.decode(text)
        return value
    except JsonError:
        raise
    except json.JSONDecodeError as error:
        raise JsonError(f"not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError) as error:
        raise JsonError(f"not JSON: {error}") from None


def canonical_form(text: str) -> JsonText:
    """The canonical text of a JSON text from outside; itself, if it is known to be that. Raises `JsonError`, as `parse` does."""
    return text if isinstance(text, JsonText) else _kept(encoded(parse(text)))


def plain(text: str) -> JsonValue:
    """A fresh plain value from canonical text, which is trusted to be what `canonical` made."""
    try:
        # Without the looks for blanks of `json.loads`, which are most of the time that a short text takes.
        value, end = _PLAIN.raw_decode(text)
    except ValueError:
        value, end = None, -1
    if end != len(text):
        value = json.loads(text)  # with blanks around it, or no JSON: it says what is wrong
    plain_value: JsonValue = value
    return plain_value


def plain_object(text: str) -> JsonDict:
    """As `plain`, for the canonical text of an object. Raises `JsonError` for any other."""
    value = plain(text)
    if not isinstance(value, dict):
        raise JsonError(f"the JSON text is {type(value).__name__}, and not an object")
    return value


def object_of(value: object) -> JsonDict:
    """The value if it is a JSON object; else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[JsonValue]:
    """The value if it is a JSON list; else an empty one."""
    return value if isinstance(value, list) else []


def objects_of(value: object) -> list[JsonDict] | None:
    """The objects of a JSON list that holds nothing else; None for any other value."""
    found = [each for each in list_of(value) if isinstance(each, dict)]
    return found if isinstance(value, list) and len(found) == len(value) else None


def text_of(value: object) -> str:
    """The value if it is text; else an empty one."""
    return value if isinstance(value, str) else ""


def pointer_part(part: object) -> str:
    """A key or a place in a list as a part of a JSON Pointer (RFC 6901), without the slash before it."""
    return str(part).replace("~", "~0").replace("/", "~1")


def _check(value: object) -> None:
    """Walk the value without recursion and refuse what is not JSON."""
    todo: list[tuple[object, int]] = [(value, 1)]
    while todo:
        item, depth = todo.pop()
        kind = type(item)
        if kind is str or kind is int or kind is bool or item is None:
            continue
        if isinstance(item, float):
            if not math.isfinite(item):
                raise JsonError(f"{item!r} is not a finite number")
        elif isinstance(item, dict):
            if depth > MAX_DEPTH:
                raise JsonError(f"nested deeper than {MAX_DEPTH}")
            for key, inner in item.items():
                if not isinstance(key, str):
                    raise JsonError(f"an object key of type {type(key).__name__} is not a string")
                todo.append((inner, depth + 1))
        elif isinstance(item, (list, tuple)):
            if depth > MAX_DEPTH:
                raise JsonError(f"nested deeper than {MAX_DEPTH}")
            for inner in item:
                todo.append((inner, depth + 1))
        elif not isinstance(item, (str, int, float)):
            remedy = "; its model_dump(mode='json') is" if hasattr(kind, "model_dump") else ""
            raise JsonError(f"a value of type {kind.__name__} is not JSON{remedy}")


def _check_depth(text: str) -> None:
    depth = 0
    for match in _TOKENS.finditer(text):
        token = match.group()
        if token in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise JsonError(f"nested deeper than {MAX_DEPTH} at character {match.start()}")
        elif token in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise JsonError(f"the key {repeated[:80]!r} stands twice in one object")
    return found


def _no_constant(name: str) -> JsonValue:
    raise JsonError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonError("a number is out of range")
    return number


def exact_float(text: str) -> float:
    """The float for a number in JSON text. Raises `JsonError` if the number would be rounded."""
    number = _finite(text)
    try:
        # `repr` is the shortest text of the number, which is how it is kept and shown.
        is_same = Decimal(text) == Decimal(repr(number))
    except ArithmeticError:  # an exponent that is out of all bounds
        is_same = False
    if not is_same:
        raise JsonError("a number has more digits than a JSON number keeps here: it would be rounded")
    return number


# Made once: `json.dumps` and `json.loads` build a new one for each call that has options.
def _encoder(plain: json.JSONEncoder) -> Callable[[object], str]:
    """Its `encode`, with the object of C that does the work made once: a small object takes a fifth of the time.

    `encode` makes one for each value, and a table in it of what it is inside of: nothing that gets here goes round in a circle.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    try:
        parts = make(None, plain.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)  # type: ignore[misc]
    except TypeError:  # another Python has no such function, or one that is called otherwise
        return plain.encode

    def encode(value: object) -> str:
        """The compact text of a plain value. It may be too deep or too long for a record, and hold lone surrogates."""
        return "".join(parts(value, 0))

    return encode


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
encoded: Callable[[object], str] = _encoder(_ENCODER)

_PLAIN = json.JSONDecoder()
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
_EXACT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=exact_float)

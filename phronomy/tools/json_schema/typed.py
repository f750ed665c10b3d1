"""Typed values: how a value is asked of a person, and what they have typed as JSON. Chats, pages and the terminal all read it here.

A schema says which kinds of values it takes, and which choices there are. What is typed becomes a value of one of these kinds by its
own letters and by the value before, and never by a guess: where text is taken and the value before was text, it is text; a number
keeps all of its digits, as text where the schema has a form of it in text. What could be read in two ways, or would be rounded, is
refused in words that say what to write.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import (
    JsonDict,
    JsonError,
    JsonText,
    JsonValue,
    canonical,
    exact_float,
    list_of,
    object_of,
    parse_exactly,
    plain,
)
from phronomy.records.decisions import PendingApproval
from phronomy.tools.json_schema.patterns import matches_or_unjudged

EVERY: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
"""The types of JSON Schema."""

_NUMBERS: Final = frozenset({"integer", "number"})
_WHOLE: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_NUMERIC: Final = re.compile(r"""[+\-\u2212]?[.,]?\d[\d\s.,'\u2019_eE+\-\u2212]*""")
"""A text that somebody means as a number, however it is written."""

_OF_DECIMAL: Final = "^(?!^[-+.]*$)[+-]?"
"""How pydantic begins the pattern of a `Decimal`, which the engine that never backtracks does not know."""

_HOPS: Final = 40
_MOST: Final = 400
"""Schemas inside a schema that are followed: a short one may stand for millions."""
_CHOICES: Final = 2_000
"""Choices of a schema. With more, and with very many schemas, it counts as one that does not say which they are."""
_FARTHEST: Final = 1_000
"""Characters of a reference that is followed."""

_NOT_JSON: Final = "This is not valid JSON, or not a number."
_WRITE_WHOLE: Final = "Write a whole number in digits, such as 1200."
_WRITE_NUMBER: Final = "Write a number in digits with a point, such as 49.90, without separators of thousands."
_ROUNDED: Final = (
    "This number has more digits than are kept here: it would be rounded. Write fewer, or a text where that is taken."
)


class Mistyped(ValueError):
    """The typed text is no value, or could be several; the message says what to write, and quotes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The values that a schema takes: their `kinds`, as JSON Schema calls types (none: it does not say), and the `choices`, as JSON
    texts, where there are no others. With `numeric`, the texts beside numbers may be numbers, as those of `Decimal` are."""

    kinds: frozenset[str] = frozenset()
    choices: tuple[str, ...] | None = None
    numeric: bool = False

    @property
    def nullable(self) -> bool:
        """True if no value is one."""
        return "null" in (self.kinds or EVERY) if self.choices is None else "null" in self.choices

    @property
    def without_null(self) -> Shape:
        """The same values but for no value, which is told apart elsewhere."""
        return replace(self, kinds=self.kinds - {"null"})


ANY: Final = Shape()
"""Any value."""

TEXT: Final = Shape(kinds=frozenset({"string"}))
"""Any text."""


def shape_of(schema: JsonValue, root: JsonDict) -> Shape:
    """The values that a schema takes; `root` is the whole, into which references lead."""
    return _Reader(root).shape(schema, 0)


def member_shape(schema: JsonDict | None, name: str) -> Shape:
    """The values that a parameter takes, by the schema of all; any, where it does not say."""
    reader = _Reader(schema or {})
    return reader.shape(reader.member(schema or {}, name), 0)


def as_typed(text: str) -> str:
    """A value, as JSON text, as it stands in a field: a text as it is, anything else as JSON."""
    return str(parse_exactly(text)) if text[:1] == '"' else text


def labels_of(choices: Iterable[str]) -> dict[str, str]:
    """The choices, as JSON texts, by what a person reads: a text as it is, unless it reads as another choice does."""
    tokens = [*dict.fromkeys(choices)]
    plain = [as_typed(each) for each in tokens]
    often = Counter(plain)
    labels = [word if word and often[word] == 1 else token for word, token in zip(plain, tokens, strict=True)]
    return dict(zip(labels if len({*labels}) == len(tokens) else tokens, tokens, strict=True))


def read_typed(typed: str, shape: Shape, before: str | None = None) -> JsonText:
    """The value that was typed, as canonical text; `before` is the text of the value before, None if there was none.

    Raises `Mistyped`.
    """
    if before is not None and typed == as_typed(before):
        return JsonText(before)
    if shape.choices is not None:
        return _chosen(typed, shape.choices)
    was_text = before is None or before[:1] == '"'
    if not shape.kinds:
        return canonical(typed) if was_text else _json(typed)
    others = shape.kinds - {"string", "null"}
    if "string" in shape.kinds and not others:
        return _null_or_text(typed, shape, was_text)
    word = typed.strip()
    if shape.numeric and _is_amount(shape.kinds, before) and (_NUMERIC.fullmatch(word) or not word):
        if not word and "null" in shape.kinds and not was_text:
            return JsonText("null")
        return _in_text(word, shape.kinds, before)
    if "string" in shape.kinds and was_text:
        return canonical(typed)
    return _other(word, typed, shape.kinds)


def _null_or_text(typed: str, shape: Shape, was_text: bool) -> JsonText:
    is_null = not typed and "null" in shape.kinds and not was_text
    return JsonText("null") if is_null else canonical(typed)


def _chosen(typed: str, choices: tuple[str, ...]) -> JsonText:
    labels = labels_of(choices)
    for each in (typed, typed.strip()):
        if each in labels:
            return JsonText(labels[each])
    if not typed.strip() and "null" in choices:
        return JsonText("null")
    # As JSON, a text in quotes can be no other choice than itself.
    if typed.strip() in choices:
        return JsonText(typed.strip())
    told = ", ".join(each[:40] for each in [*labels][:12])
    raise Mistyped(f"Choose one of these: {told}{', ...' if len(labels) > 12 else ''}.")


def _is_amount(kinds: frozenset[str], before: str | None) -> bool:
    """True if a value is a number that may be written as text: by its type, and by the value before."""
    if "number" not in kinds or not {"string", "number"} <= kinds <= {"string", "null", *_NUMBERS}:
        return False
    return before in (None, "null") or _NUMERIC.fullmatch(as_typed(before)) is not None


def _in_text(word: str, kinds: frozenset[str], before: str | None) -> JsonText:
    """A number where a text is a form of it: as a number only if one was there before, and all digits are kept."""
    if not _NUMBER.fullmatch(word):
        raise Mistyped(_WRITE_NUMBER)
    was_number = before is not None and before[:1] in "-0123456789"
    if was_number:
        try:
            if (found := _number(word, kinds)) == word:
                return found
        except Mistyped:
            pass
    return canonical(word)


def _number(word: str, kinds: frozenset[str]) -> JsonText:
    """Raises `Mistyped`."""
    remedy = _WRITE_NUMBER if "number" in kinds else _WRITE_WHOLE
    whole = _WHOLE.fullmatch(word) is not None
    if not whole and ("number" not in kinds or _NUMBER.fullmatch(word) is None):
        raise Mistyped(remedy)
    try:
        if not whole:
            return canonical(exact_float(word))
        value = int(word)
        # Where no whole number is a type of its own, the code that takes it makes a float of it.
        if "integer" not in kinds and int(float(value)) != value:
            raise Mistyped(_ROUNDED)
        return canonical(value)
    except Mistyped:
        raise
    except (JsonError, ValueError, OverflowError):
        raise Mistyped(_ROUNDED) from None


def _other(word: str, typed: str, kinds: frozenset[str]) -> JsonText:
    """A value by its first letters, which say what kind of JSON it is. Raises `Mistyped`."""
    if (word == "null" or not word) and "null" in kinds:
        return JsonText("null")
    if word in ("true", "false") and "boolean" in kinds:
        return JsonText(word)
    if kinds & _NUMBERS and (_NUMERIC.fullmatch(word) or not kinds - _NUMBERS - {"null"}):
        return _number(word, kinds)
    wanted = {"[": "array", "{": "object", '"': "string"}.get(word[:1])
    if wanted in kinds:
        return _json(word)
    looks_other = wanted is not None or _NUMERIC.fullmatch(word) or word.casefold() in ("true", "false", "null", "none")
    if "string" in kinds and word and not looks_other:
        return canonical(typed)
    raise Mistyped(_wanted(kinds))


_WORDS: Final = {
    "array": "a list (as JSON)",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a text (in quotes, where it could be another value)",
}


def _wanted(kinds: frozenset[str]) -> str:
    as_json = ", as JSON" if "object" in kinds else ""
    return f"This does not fit: {' or '.join(_WORDS[each] for each in sorted(kinds))} is wanted{as_json}."


def _json(text: str) -> JsonText:
    """Raises `Mistyped`."""
    try:
        return canonical(parse_exactly(text.strip()))
    except JsonError as error:
        raise Mistyped(_ROUNDED if "rounded" in str(error) else _NOT_JSON) from None


class _Reader:
    """Reads a schema that may refer to itself, and counts what it reads, so that a short one does not take for ever."""

    def __init__(self, root: JsonDict) -> None:
        self._root = root
        self._left = _MOST
        self._choices = _CHOICES

    def member(self, schema: JsonValue, name: str, depth: int = 0) -> JsonValue:
        """The schema of a member of an object; an empty one, if none says anything of it."""
        self._left -= 1
        found = self._at(schema) if self._left >= 0 else {}
        if name in (properties := object_of(found.get("properties"))):
            return properties[name]
        for each in list_of(found.get("allOf")) if depth < _HOPS else ():
            if (inner := self.member(each, name, depth + 1)) != {}:
                return inner
        return {}

    def shape(self, schema: JsonValue, depth: int) -> Shape:
        self._left -= 1
        if not isinstance(schema, dict) or depth > _HOPS or self._left < 0:
            return ANY
        shapes = [self._own(schema)]
        if isinstance(ref := schema.get("$ref"), str):
            shapes.append(self.shape(schema_at(self._root, ref), depth + 1))
        for name in ("anyOf", "oneOf"):
            if several := list_of(schema.get(name)):
                shapes.append(_either([self.shape(each, depth + 1) for each in several]))
        shapes += [self.shape(each, depth + 1) for each in list_of(schema.get("allOf"))]
        found = shapes[0]
        for each in shapes[1:]:
            found = _both(found, each)
        return found

    def _own(self, schema: JsonDict) -> Shape:
        """The values that the keywords of a schema take, without those that lead to other schemas."""
        kind = schema.get("type")
        kinds = frozenset(str(each) for each in (kind if isinstance(kind, list) else [kind]) if each in EVERY)
        if "enum" in schema or "const" in schema:
            values = list_of(schema["enum"]) if "enum" in schema else [schema["const"]]
            self._choices -= len(values)
            tokens = tuple([canonical(each) for each in values[:_CHOICES]])
            return Shape(kinds=_kinds_of(tokens), choices=tokens if self._choices >= 0 else None)
        if kinds and kinds <= {"boolean", "null"}:
            words = (*(("true", "false") if "boolean" in kinds else ()), *(("null",) if "null" in kinds else ()))
            return Shape(kinds=kinds, choices=words)
        pattern = schema.get("pattern")
        of_numbers = isinstance(pattern, str) and _is_numeric(pattern)
        return Shape(
            kinds=kinds, numeric="string" in kinds and (of_numbers or (pattern is None and "format" not in schema))
        )

    def _at(self, schema: JsonValue) -> JsonDict:
        found = object_of(schema)
        for _ in range(_HOPS):
            if not isinstance(ref := found.get("$ref"), str) or "properties" in found:
                break
            found = schema_at(self._root, ref)
        return found


def _either(shapes: list[Shape]) -> Shape:
    if any(not each.kinds and each.choices is None for each in shapes):
        return ANY
    kinds = frozenset(kind for each in shapes for kind in each.kinds)
    choices = None
    if all(each.choices is not None for each in shapes):
        choices = tuple([token for each in shapes for token in each.choices or ()])
    in_text = [each for each in shapes if "string" in each.kinds]
    numeric = bool(in_text) and all(each.numeric for each in in_text)
    return Shape(kinds=kinds, choices=choices, numeric=numeric)


def _both(one: Shape, other: Shape) -> Shape:
    if not one.kinds or not other.kinds:
        kinds = one.kinds or other.kinds
    else:
        kinds = one.kinds & other.kinds
        if "number" in one.kinds | other.kinds and "integer" in one.kinds | other.kinds:
            kinds |= {"integer"}
    choices = one.choices if other.choices is None else other.choices
    if one.choices is not None and other.choices is not None:
        choices = tuple(each for each in one.choices if each in other.choices)
    return Shape(kinds=kinds, choices=choices, numeric=one.numeric or other.numeric)


def _is_numeric(pattern: str) -> bool:
    """True if the texts of a pattern are numbers, as those of `Decimal` are."""
    if pattern.startswith(_OF_DECIMAL):
        return True
    try:
        return matches_or_unjudged(pattern, "1") is True and matches_or_unjudged(pattern, "1-1") is False
    except re.error:
        return False


def _kinds_of(tokens: Iterable[str]) -> frozenset[str]:
    by_letter = {'"': "string", "t": "boolean", "f": "boolean", "n": "null", "[": "array", "{": "object"}
    return frozenset(by_letter.get(each[:1], "number") for each in tokens)


def schema_at(root: JsonDict, ref: str) -> JsonDict:
    """The schema to which a reference inside the whole points; an empty one for any other."""
    if ref == "#":
        return root
    if not ref.startswith("#/") or len(ref) > _FARTHEST:
        return {}
    place: JsonValue = root
    for part in ref[2:].split("/"):
        place = object_of(place).get(part.replace("~1", "/").replace("~0", "~"))
    return object_of(place)


def answer_shape(item: PendingApproval, returns: JsonDict | None) -> Shape:
    """The answers to a request; `returns` is the schema of the result, where an external tool is asked for one and says it."""
    schema = item.args.get("answer") if item.why == "question" else returns if item.external else None
    return TEXT if schema is None else shape_of(schema, object_of(schema))


def typed_answer(item: PendingApproval, typed: str, returns: JsonDict | None) -> JsonValue:
    """The answer that was typed to a request, of the type that it wants. Raises `Mistyped`."""
    return plain(read_typed(typed, answer_shape(item, returns)))

"""A form from a JSON Schema, for a closed set of types: text, numbers, choices, yes or no, lists and objects down to a depth of three.

What is none of these, or could not pass through a control of a browser unchanged, is a field of JSON text. Numbers are text fields: a
number field of a browser would round one of nineteen digits, and make 5 of 5.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field as told
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.in_brief import is_ambiguous
from phronomy.foundation.json_text import JsonDict, JsonValue, list_of, object_of, parse, pointer_part
from phronomy.foundation.json_tree import Node
from phronomy.inbox.pages.letters import coded
from phronomy.tools.json_schema.typed import ANY, Shape, as_typed, schema_at, shape_of

FieldKind: TypeAlias = Literal["line", "lines", "number", "integer", "choice", "raw", "object", "list"]
"""The controls that a field is made of."""

MOST_CONTROLS: Final = 90
"""A form of more controls than this is one field of JSON: a form that is sent has at most 200 fields."""

MOST_LETTERS: Final = 100_000
"""Characters of labels, hints and choices that a form has at most; with more it is one field of JSON. A short schema may repeat one."""

DEEPEST: Final = 3
"""Objects and lists below this depth are fields of JSON."""

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_LONG: Final = 60
_HOPS: Final = 20

_FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "date": ("text", "A date, such as 2026-11-26."),
    "date-time": ("text", "A date and time, such as 2026-11-26T14:00:00Z."),
    "duration": ("text", "A duration, such as P1DT2H."),
    "email": ("email", "An address, such as name@example.org."),
    "time": ("text", "A time, such as 14:00:00Z."),
    "uri": ("url", "An address, such as https://example.org/."),
    "uuid": ("text", "An id, such as 0b6f3c1e-5d2a-4b7e-9c48-1f2d3a4b5c6d."),
}
"""The keyboard for a format of text, and what it is in words."""


@dataclass(frozen=True, slots=True)
class Option:
    """A choice: what the form sends, what a person reads, and the JSON text that it means; None to leave the value out."""

    key: str
    label: str
    token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a form. `pointer` is its place in the value (a JSON Pointer), `node` what stands there now, if anything.

    `value` is what its control shows of that, and `typed` what it shows now: the same, until somebody has sent something else. The
    names of its controls are `f`, `n` (no value) and `x` (remove), each with the pointer behind it. `shape` are the values that it
    takes.
    """

    pointer: str
    label: str
    kind: FieldKind
    node: Node | None
    value: str = told(default="", repr=False)
    typed: str = ""
    hint: str = ""
    error: str = ""
    mode: str = "text"
    required: bool = False
    nullable: bool = False
    is_null: bool = False
    ticked: bool = False
    removed: bool = False
    is_item: bool = False
    options: tuple[Option, ...] = ()
    members: tuple[Field, ...] = ()
    more: Field | None = None
    shape: Shape = ANY

    @property
    def name(self) -> str:
        """The name of its control."""
        return f"f{self.pointer}"

    @property
    def id(self) -> str:
        """The id of its control in the page, for its label and for links to it."""
        return _ODD.sub(lambda found: f".{ord(found[0]):x}.", self.name)

    def all(self) -> Iterator[Field]:
        """The field and all fields in it."""
        yield self
        for each in (*self.members, *((self.more,) if self.more is not None else ())):
            yield from each.all()


class _TooMuch(Exception):
    """The form would be too large."""


class _Schema:
    """The whole schema, to which references lead, and how much of a form it has drawn: a short one that refers to itself can draw
    millions of fields, so it is stopped on the way."""

    def __init__(self, root: JsonDict) -> None:
        self.root = root
        self._fields = self._letters = 0

    def draw(self, fields: int = 0, letters: int = 0) -> None:
        """Count what is drawn next. Raises `_TooMuch`."""
        self._fields += fields
        self._letters += letters
        if self._fields > MOST_CONTROLS or self._letters > MOST_LETTERS:
            raise _TooMuch


def form_of(schema: JsonDict | None, node: Node | None, label: str = "") -> Field:
    """The form for a value, as its schema draws it; without a schema, or a value that it does not fit, one field of JSON."""
    wanted: JsonValue = schema if schema is not None else {}
    try:
        return _field(wanted, _Schema(object_of(wanted)), node, "", label, True, 0)
    except _TooMuch:
        return _raw(node, "", label, True, "")


def _field(
    schema: JsonValue, root: _Schema, node: Node | None, pointer: str, label: str, required: bool, depth: int
) -> Field:
    root.draw(fields=1)
    found, nullable = _plain(schema, root.root)
    shape = shape_of(schema, root.root)
    hint = found.get("description")
    about = hint if isinstance(hint, str) else ""
    root.draw(letters=len(label) + len(about))
    if shape.choices is not None and not (_is_yes_or_no(shape) and node is not None and node.text not in shape.choices):
        root.draw(letters=len(shape.choices) + sum(map(len, shape.choices)))
        return _choice(shape.choices, node, pointer, label, required, about)
    is_null = node is not None and node.kind == "null"
    kind, nullable = _kind_of(found, shape), nullable or "null" in shape.kinds
    here = None if is_null else node
    match kind:
        case "string" if here is None or (here.kind == "text" and _survives(here.string)):
            field = _line(found, here, pointer, label, required, about)
        case "number" | "integer" if here is None or here.kind == "number":
            field = _number(kind, found, here, pointer, label, required, about)
        case "object" if not is_null and depth < DEEPEST and (here is None or here.kind == "object"):
            return _object(found, root, here, pointer, label, required, about, depth)
        case "array" if not is_null and depth < DEEPEST and (here is None or here.kind == "list"):
            return _list(found, root, here, pointer, label, required, about, depth)
        case _ if _is_one_of_several(shape, here):
            field = _line(found, here, pointer, label, required, _joined(about, _several(here)))
        case _:
            return _raw(node, pointer, label, required, about)
    if nullable or is_null:
        return replace(field, shape=shape.without_null, node=node, nullable=True, is_null=is_null, ticked=is_null)
    return replace(field, shape=shape)


def _kind_of(found: JsonDict, shape: Shape) -> JsonValue:
    """The type of a value; None if there are several."""
    kinds = sorted(shape.kinds - {"null"})
    return found.get("type", kinds[0] if len(kinds) == 1 else None)


def _is_yes_or_no(shape: Shape) -> bool:
    return shape.kinds <= {"boolean", "null"}


def _is_one_of_several(shape: Shape, node: Node | None) -> bool:
    """True for a line in which the value is typed as it is: a text beside numbers, say, or a text of unknown type."""
    if node is not None and (node.kind in ("object", "list") or not _survives(node.string)):
        return False
    if not shape.kinds:
        return node is not None and node.kind == "text"
    return "string" in shape.kinds and not shape.kinds & {"array", "object"}


def _several(node: Node | None) -> str:
    """A hint at the type of the value, where another type might look the same."""
    now = {"text": "It is a text now.", "number": "It is a number now.", "boolean": "It is true or false now."}
    return now.get(node.kind, "") if node is not None else ""


def _plain(schema: JsonValue, root: JsonDict) -> tuple[JsonDict, bool]:
    """The schema without references and without the null beside it, and whether there was one; an empty one for what is not plain."""
    found, nullable = object_of(schema), False
    for _ in range(_HOPS):
        beside = {key: found[key] for key in ("description",) if key in found}
        alternatives = [each for key in ("anyOf", "oneOf") for each in list_of(found.get(key))]
        if isinstance(ref := found.get("$ref"), str):
            found = {**schema_at(root, ref), **beside}
        elif alternatives and not ("anyOf" in found and "oneOf" in found):
            rest = [each for each in alternatives if object_of(each).get("type") != "null"]
            nullable = nullable or len(rest) < len(alternatives)
            if len(rest) != 1:
                return ({}, nullable)
            found = {**object_of(rest[0]), **beside}
        elif len(parts := list_of(found.get("allOf"))) == 1 and "type" not in found:
            found = {**object_of(parts[0]), **beside}
        elif isinstance(kinds := found.get("type"), list):
            rest = [each for each in kinds if each != "null"]
            nullable = nullable or len(rest) < len(kinds)
            found = {**found, "type": rest[0] if len(rest) == 1 else "any of several"}
        elif "allOf" in found:
            return ({}, nullable)
        else:
            return found, nullable
    return ({}, nullable)


def _survives(text: str) -> bool:
    """Whether a control of a browser gives the text back as it was: it ends lines as it likes, and loses some controls."""
    return all(char in "\n\t" or not (ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0) for char in text)


def _choice(tokens: Sequence[str], node: Node | None, pointer: str, label: str, required: bool, hint: str) -> Field:
    options = [Option(str(place), _word(token), token) for place, token in enumerate(tokens)]
    now = node.text if node is not None else None
    chosen = next((each.key for each in options if each.token == now), None)
    if node is not None and chosen is None:
        options.insert(0, Option("=", f"{_word(node.text)} (as it is)", node.text))
        chosen = "="
    if node is None or not required:
        options.insert(0, Option("", "not set", None))
    value = chosen if chosen is not None and node is not None else ""
    return Field(
        pointer=pointer, label=label, kind="choice", node=node, value=value, typed=value, hint=hint,
        required=required, options=tuple(options),
    )  # fmt: skip


def _word(token: str) -> str:
    """What a JSON text is called in a list of choices."""
    words = {"true": "yes", "false": "no", "null": "no value"}
    if token[:1] != '"':
        return words.get(token, token)
    text = str(parse(token))
    # A choice has no boxes: what is not what it looks like, and what could be a value of another type, is written as JSON.
    plain = text.isprintable() and "\\" not in text and not is_ambiguous(text) and coded(text) == text
    return (text if plain else coded(token)) or "empty text"


def _line(found: JsonDict, node: Node | None, pointer: str, label: str, required: bool, hint: str) -> Field:
    value = as_typed(node.text) if node is not None else ""
    form = found.get("format")
    mode, told = _FORMATS.get(form, ("text", "")) if isinstance(form, str) else ("text", "")
    limits = _limits(found, "minLength", "maxLength", "characters", hint)
    return Field(
        pointer=pointer, label=label, kind="lines" if "\n" in value or len(value) > _LONG else "line", node=node,
        value=value, typed=value, hint=_joined(hint, told, limits), mode=mode, required=required,
    )  # fmt: skip


def _number(
    kind: Literal["number", "integer"],
    found: JsonDict,
    node: Node | None,
    pointer: str,
    label: str,
    required: bool,
    hint: str,
) -> Field:
    least = found.get("minimum", found.get("exclusiveMinimum"))
    above = isinstance(least, int | float) and least >= 0
    # The keyboards for numbers of some phones have no minus.
    mode = ("numeric" if kind == "integer" else "decimal") if above else "text"
    value = node.text if node is not None else ""
    told = "A whole number." if kind == "integer" else "" if hint else "A number."
    return Field(
        pointer=pointer, label=label, kind=kind, node=node, value=value, typed=value,
        hint=_joined(hint, told, _limits(found, "minimum", "maximum", "", hint)), mode=mode, required=required,
    )  # fmt: skip


def _object(
    found: JsonDict, root: _Schema, node: Node | None, pointer: str, label: str, required: bool, hint: str, depth: int
) -> Field:
    properties = object_of(found.get("properties"))
    there = {key: each for key, _, each in node.members} if node is not None else {}
    names = list({**there, **properties})
    if len(names) > MOST_CONTROLS:
        raise _TooMuch
    if not all(name.isprintable() for name in names):  # the name of a control loses a new line on its way
        return _raw(node, pointer, label, required, hint)
    needed = list_of(found.get("required"))
    others = found.get("additionalProperties", {})
    members = tuple(
        _field(
            properties.get(name, others),
            root,
            there.get(name),
            f"{pointer}/{pointer_part(name)}",
            name,
            name in needed,
            depth + 1,
        )
        for name in names
    )
    if not members and not (node is not None and depth == 0):
        return _raw(node, pointer, label, required, hint)
    return Field(pointer=pointer, label=label, kind="object", node=node, hint=hint, required=required, members=members)


def _list(
    found: JsonDict, root: _Schema, node: Node | None, pointer: str, label: str, required: bool, hint: str, depth: int
) -> Field:
    items = found.get("items", {})
    if "prefixItems" in found:
        return _raw(node, pointer, label, required, hint)
    members = tuple(
        replace(_field(items, root, each, f"{pointer}/{key}", f"{int(key) + 1}", True, depth + 1), is_item=True)
        for key, _, each in (node.members if node is not None else ())
    )
    blank = _field(items, root, None, f"{pointer}/-", "One more", False, DEEPEST)  # nothing of many fields is drawn
    if blank.kind in ("object", "list", "raw"):
        blank = _raw(None, f"{pointer}/-", "One more, as JSON", False, "")
    return Field(
        pointer=pointer, label=label, kind="list", node=node, hint=hint, required=required, members=members, more=blank
    )


def _raw(node: Node | None, pointer: str, label: str, required: bool, hint: str) -> Field:
    value = node.text if node is not None else ""
    return Field(
        pointer=pointer, label=label, kind="raw", node=node, value=value, typed=value,
        hint=_joined(hint, "Written as JSON."), required=required,
    )  # fmt: skip


def _limits(found: JsonDict, least: str, most: str, of: str, hint: str) -> str:
    """The limits in words, without those that the hint says already."""
    said = set(_NUMBER.findall(hint))
    told = [
        f"{word} {found[name]}"
        for name, word in ((least, "at least"), (most, "at most"))
        if isinstance(limit := found.get(name), int | float) and f"{limit:g}" not in said
    ]
    text = " and ".join(told) + (f" {of}" if told and of else "")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)

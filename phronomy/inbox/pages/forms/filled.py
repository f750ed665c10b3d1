"""A form that came back: the text of the value with what was changed, and nothing else changed; or what is wrong, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, canonical, parse_exactly
from phronomy.foundation.json_tree import key_text
from phronomy.inbox.pages.forms.fields import Field
from phronomy.tools.json_schema.typed import Mistyped, read_typed

if TYPE_CHECKING:
    from phronomy.inbox.visit import Form

_ABSENT: Final = None
"""The text of a value that is left out."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What a form came to: the `text` of the value (None: there is none), or the `errors`, each by its JSON Pointer."""

    text: str | None
    errors: Mapping[str, str]


class _Wrong(Exception):
    """What somebody typed is no value of the field."""


def read_form(field: Field, given: Form) -> Filled:
    """The text of the value with what the form changes. A field that did not come back is as it was."""
    errors: dict[str, str] = {}
    text = _text_of(field, given, errors)
    if text is None and field.required and not errors:
        errors[field.pointer] = "A value is needed here."
    return Filled(text, errors)


def refilled(field: Field, given: Form, errors: Mapping[str, str]) -> Field:
    """The form as it came back, with what was typed, and what is wrong at each field."""
    typed = _typed(field, given)
    return replace(
        field,
        typed=field.typed if typed is None else typed,
        ticked=given.get(f"n{field.pointer}") is not None if field.nullable and typed is not None else field.ticked,
        removed=given.get(f"x{field.pointer}") is not None,
        error=errors.get(field.pointer, ""),
        members=tuple(refilled(each, given, errors) for each in field.members),
        more=refilled(field.more, given, errors) if field.more is not None else None,
    )


def moved(field: Field, to: Field) -> Field | None:
    """The form of one value with those of another typed into it; None if it has not the same fields."""
    lines = ("line", "lines")
    alike = field.kind == to.kind or (field.kind in lines and to.kind in lines)
    if not alike or field.pointer != to.pointer or len(field.members) != len(to.members):
        return None
    if field.kind == "choice" and to.value not in [each.key for each in field.options if each.key != "="]:
        return field if field.node is not None and to.node is not None and field.node.text == to.node.text else None
    members = [moved(each, other) for each, other in zip(field.members, to.members, strict=True)]
    if None in members or (to.is_null and not field.nullable):
        return None
    kept = tuple(each for each in members if each is not None)
    return replace(field, kind=to.kind, typed=to.value, ticked=to.is_null, members=kept)


def _typed(field: Field, given: Form) -> str | None:
    text = given.get(field.name)
    return None if text is None else text.replace("\r\n", "\n").replace("\r", "\n")


def _text_of(field: Field, given: Form, errors: dict[str, str]) -> str | None:
    """The text of a field; None where the value is left out."""
    if field.kind == "object":
        return _object(field, given, errors)
    if field.kind == "list":
        return _list(field, given, errors)
    was = field.node.text if field.node is not None else _ABSENT
    typed = _typed(field, given)
    if typed is None:
        return was
    try:
        return _leaf(field, typed, given.get(f"n{field.pointer}") is not None, was)
    except _Wrong as wrong:
        errors[field.pointer] = str(wrong)
        return was


def _leaf(field: Field, typed: str, ticked: bool, was: str | None) -> str | None:
    if typed == field.value and ticked == field.is_null:
        return was
    if field.nullable and ticked:
        if typed and typed != field.value:
            raise _Wrong("“No value” is ticked, and there is one: do one of the two.")
        return "null"
    match field.kind:
        case "choice":
            chosen = next((each for each in field.options if each.key == typed), None)
            if chosen is None:
                raise _Wrong("Choose one of the values.")
            return chosen.token
        case "raw":
            return _json(field, typed)
        case _:
            return _scalar(field, typed, was)


def _scalar(field: Field, typed: str, was: str | None) -> str | None:
    if not typed.strip() and field.kind in ("number", "integer"):
        if field.required and field.node is not None:
            raise _Wrong("A number is needed here.")
        return _ABSENT
    if not typed and field.node is None:
        return _ABSENT
    try:
        return read_typed(typed, field.shape, None if was == "null" else was)
    except Mistyped as wrong:
        raise _Wrong(str(wrong)) from None


def _json(field: Field, typed: str) -> str | None:
    if not typed.strip():
        if field.required:
            raise _Wrong("A value is needed here, as JSON.")
        return _ABSENT
    try:
        return canonical(parse_exactly(typed))
    except JsonError as error:
        raise _Wrong(f"This is no JSON: {why_no_json(error)}.") from None


def why_no_json(error: JsonError) -> str:
    """What is wrong with a text that is to be JSON, for a sentence that says already that it is none."""
    return str(error).removeprefix("not JSON: ")


def _object(field: Field, given: Form, errors: dict[str, str]) -> str | None:
    changed = False
    parts: list[str] = []
    written = {key: text for key, text, _ in field.node.members} if field.node is not None else {}
    for each, key in zip(field.members, map(_key_of, field.members), strict=True):
        was = each.node.text if each.node is not None else _ABSENT
        now = _text_of(each, given, errors)
        changed = changed or now != was
        if now is not None:
            parts.append(f"{written.get(key) or key_text(key)}:{now}")
    if not changed:
        return field.node.text if field.node is not None else _ABSENT
    return "{" + ",".join(parts) + "}"


def _key_of(field: Field) -> str:
    return field.pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


def _list(field: Field, given: Form, errors: dict[str, str]) -> str | None:
    changed = False
    parts: list[str] = []
    for each in field.members:
        if given.get(f"x{each.pointer}") is not None:
            changed = True
            continue
        now = _text_of(each, given, errors)
        changed = changed or each.node is None or now != each.node.text
        if now is not None:
            parts.append(now)
    if field.more is not None and (added := _text_of(field.more, given, errors)) is not None:
        parts.append(added)
        changed = True
    if not changed:
        return field.node.text if field.node is not None else _ABSENT
    return "[" + ",".join(parts) + "]"

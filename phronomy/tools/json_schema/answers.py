"""Whether an answer is of the type that was asked for, as far as its JSON Schema tells. It loads jsonschema, so it is loaded on use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Final
from uuid import UUID

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from pydantic import TypeAdapter
from pydantic import ValidationError as Unreadable
from referencing import Registry

from phronomy.foundation.json_text import JsonDict, JsonValue, canonical, list_of, object_of

FORMATS: Final = FormatChecker(formats=())
"""What of a type stands in its schema as a `format`: read as the type reads it."""


def _read_as(type: type[object]) -> Callable[[object], bool]:
    adapter: TypeAdapter[object] = TypeAdapter(type)

    def reads(value: object) -> bool:
        if isinstance(value, str):
            adapter.validate_python(value)
        return True

    return reads


for _name, _type in {"date": date, "date-time": datetime, "duration": timedelta, "time": time, "uuid": UUID}.items():
    FORMATS.checks(_name, raises=Unreadable)(_read_as(_type))


def misfit(value: JsonValue, schema: JsonValue, *, bounded: bool = False, whole: bool = True) -> str | None:
    """Where the value does not fit the schema, and what it breaks there, without quoting it; None if it fits.

    A schema that is none, or that points elsewhere (nothing is fetched), fits no value: a checkpoint from elsewhere may hold any. With
    `bounded` it is a stranger's, and has so much time and no more. Without `whole`, only the first step of the way to it is said.
    """
    find = _first_bounded if bounded else _first
    try:
        if not isinstance(schema, dict | bool):
            raise TypeError
        wrong = find(value, schema)
    except Exception:
        return "the schema of the question cannot be read"
    if wrong is None:
        return None
    way = [str(part)[:80] for part in wrong.absolute_path]
    where = ".".join(way if whole else way[:1]) or "the answer"
    return f"{where} does not fit {wrong.validator!r}{_wanted(str(wrong.validator), wrong.validator_value, wrong.instance)}"


def validator_of(schema: JsonDict | bool) -> Draft202012Validator:
    """The validator of a schema, which fetches nothing, and reads formats as types do."""
    return Draft202012Validator(schema, registry=Registry(), format_checker=FORMATS)


def _first(value: JsonValue, schema: JsonDict | bool) -> ValidationError | None:
    return next(validator_of(schema).iter_errors(value), None)


def _first_bounded(value: JsonValue, schema: JsonDict | bool) -> ValidationError | None:
    from phronomy.tools.json_schema.bounded import BoundedSchema, budget  # noqa: PLC0415  # only what has MCP servers has its packages

    validator = BoundedSchema(schema).validator.evolve(format_checker=FORMATS)
    with budget(canonical(value)):
        return next(validator.iter_errors(value), None)


def _wanted(validator: str, value: object, given: object) -> str:
    """The part of the schema that the value breaks, in a few words. The person who answers sees the schema anyway."""
    if validator == "required":
        return f": {next(name for name in list_of(value) if name not in object_of(given))!r:.60} is missing"
    if validator == "type":
        return f": {' or '.join(map(str, value)) if isinstance(value, list) else value} is wanted"[:80]
    if validator in ("enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"):
        return f": {value!r:.60} is wanted"
    return ""

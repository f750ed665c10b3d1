"""Whether an answer is of the type that was asked for, as far as its JSON Schema tells. It loads jsonschema, so it is loaded on use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Any, Final
from uuid import UUID

from jsonschema import Draft202012Validator, FormatChecker
from pydantic import TypeAdapter, ValidationError
from referencing import Registry

FORMATS: Final = FormatChecker(formats=())
"""What of a type stands in its schema as a `format`: read as the type reads it."""


def _read_as(type: Any) -> Callable[[object], bool]:
    adapter: TypeAdapter[Any] = TypeAdapter(type)

    def reads(value: object) -> bool:
        if isinstance(value, str):
            adapter.validate_python(value)
        return True

    return reads


for _name, _type in {"date": date, "date-time": datetime, "duration": timedelta, "time": time, "uuid": UUID}.items():
    FORMATS.checks(_name, raises=ValidationError)(_read_as(_type))


def misfit(value: Any, schema: Any) -> str | None:
    """Where the value does not fit the schema, and what it breaks there, without quoting it; None if it fits.

    A schema that is none, or that points elsewhere (nothing is fetched), fits no value: a checkpoint from elsewhere may hold any.
    """
    nowhere: Registry[Any] = Registry()
    try:
        wrong = next(Draft202012Validator(schema, registry=nowhere, format_checker=FORMATS).iter_errors(value), None)
    except Exception:
        return "the schema of the question cannot be read"
    if wrong is None:
        return None
    where = ".".join(str(part)[:80] for part in wrong.absolute_path) or "the answer"
    return f"{where} does not fit {wrong.validator!r}{_wanted(wrong.validator, wrong.validator_value)}"


def _wanted(validator: str, value: Any) -> str:
    """What of the schema says in a few words what is wanted: it is shown to whoever answers anyway."""
    if validator == "type":
        return f": {' or '.join(map(str, value)) if isinstance(value, list) else value} is wanted"[:80]
    if validator in ("enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"):
        return f": {value!r:.60} is wanted"
    return ""

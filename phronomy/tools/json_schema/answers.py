"""Whether an answer is of the type that was asked for, as far as its JSON Schema tells. It loads jsonschema, so it is loaded on use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from functools import cache, partial
from itertools import islice
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from pydantic import TypeAdapter
from pydantic import ValidationError as Unreadable
from referencing import Registry

from phronomy.foundation.json_text import JsonDict, JsonValue, canonical, list_of, object_of, pointer_part
from phronomy.tools.json_schema.keywords import Errors, extended, keywords
from phronomy.tools.json_schema.patterns import matches, matches_or_unjudged
from phronomy.tools.json_schema.undeclared import is_of_names, undeclared

Judge: TypeAlias = Literal["pydantic", "python"]
"""Whose engine of patterns judges those that pydantic's own does not know: nobody's, or Python's."""

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


def misfit(
    value: JsonValue,
    schema: JsonValue,
    *,
    bounded: bool = False,
    whole: bool = True,
    declared: bool = False,
    judge: Judge = "pydantic",
) -> str | None:
    """Where the value does not fit the schema, and what it breaks there, without quoting it; None if it fits.

    A schema that is none, or that points elsewhere (nothing is fetched), fits no value: a checkpoint from elsewhere may hold any. With
    `bounded` it is a stranger's, and has so much time and no more. Without `whole`, only the first step of the way to it is said. A
    pattern that the engine of pydantic does not know is not judged, as the code that takes the value judges it; where no code does,
    and the schema is one's own, `judge` is "python". With `declared`, names that the schema does not declare are faults too.
    """
    try:
        if not isinstance(schema, dict | bool):
            raise TypeError
        wrong = (_first_bounded if bounded else partial(_first, judge=judge))(value, schema, declared=declared)
    except Exception:
        return "the schema of the question cannot be read"
    if wrong is None:
        return None
    way = [str(part)[:80] for part in wrong.absolute_path]
    where = ".".join(way if whole else way[:1]) or "the answer"
    broken = _wanted(wrong, names=whole or not way)
    return f"{where} does not fit {wrong.validator!r}{broken}"


def misfits(value: JsonValue, schema: JsonDict, *, most: int = 50) -> list[tuple[str, str]]:
    """Where the value does not fit the schema, each by its JSON Pointer (RFC 6901), and what it breaks there; `most` at most.

    Names that the schema does not declare are faults, too.
    """
    try:
        found = list(islice(_all(_linear(schema), value, declared=True), most))
    except Exception:
        return [("", "the schema cannot be read")]
    return [
        (
            "".join(f"/{pointer_part(part)}" for part in wrong.absolute_path),
            f"{wrong.validator}{_wanted(wrong, names=False)}",
        )
        for wrong in found
    ]


def draft_of(schema: JsonDict | bool) -> type[Validator]:
    """The validator class of the draft that the schema names; that of 2020-12, if it names none that is known."""
    try:
        return validator_for(schema, default=Draft202012Validator)
    except Exception:  # what stands in `$schema` is no address
        return Draft202012Validator


def validator_of(schema: JsonDict | bool) -> Validator:
    """The validator of a schema of one's own code, which fetches nothing, and reads formats as types do. It judges each pattern."""
    return _made(_kind(draft_of(schema), "python"), schema)


def _made(kind: Any, schema: JsonDict | bool) -> Validator:
    made: Validator = kind(schema, registry=Registry(), format_checker=FORMATS)
    return made


def _first(value: JsonValue, schema: JsonDict | bool, *, declared: bool, judge: Judge) -> ValidationError | None:
    validator = validator_of(schema) if judge == "python" else _linear(schema)
    return next(_all(validator, value, declared=declared), None)


def _all(validator: Validator, value: JsonValue, *, declared: bool) -> Errors:
    """Where the value does not fit, and then, with `declared`, where a value that fits has other names than are declared."""
    fits = True
    for error in validator.iter_errors(value):
        fits = False
        yield error
    if declared and fits:
        yield from undeclared(validator, value, lambda pattern, name: matches_or_unjudged(pattern, name) is not False)


def _linear(schema: JsonDict | bool) -> Validator:
    # jsonschema looks for what is evaluated with Python's engine, through all references. No schema of pydantic has both.
    has_patterns = _has(schema, "patternProperties")
    return _made(_kind(draft_of(schema), "pydantic", is_evaluated=not has_patterns), schema)


def _first_bounded(value: JsonValue, schema: JsonDict | bool, *, declared: bool) -> ValidationError | None:
    from phronomy.tools.json_schema.bounded import BoundedSchema, budget  # noqa: PLC0415  # only what has MCP servers has its packages

    bounded = BoundedSchema(schema)
    validator = bounded.validator.evolve(format_checker=FORMATS)
    with budget(canonical(value)):
        wrong = next(validator.iter_errors(value), None)
        return next(bounded.undeclared(value), None) if wrong is None and declared else wrong


def _wanted(wrong: ValidationError, *, names: bool = True) -> str:
    """The part of the schema that the value breaks, in a few words. The person who answers sees the schema anyway.

    Without `names`, those of the value are not said.
    """
    validator, value, given = str(wrong.validator), wrong.validator_value, wrong.instance
    if is_of_names(wrong):
        return f": {wrong.message}" if names else ""
    if validator == "required":
        missing = next((name for name in list_of(value) if name not in object_of(given)), None)
        return "" if missing is None else f": {missing!r:.60} is missing"
    if validator == "type":
        return f": {' or '.join(map(str, value)) if isinstance(value, list) else value} is wanted"[:80]
    if validator in ("enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"):
        return f": {value!r:.60} is wanted"
    return ""


def _has(schema: JsonValue, name: str) -> bool:
    todo = [schema]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if name in item:
                return True
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)
    return False


@cache
def _kind(draft: type[Validator], judge: Judge, *, is_evaluated: bool = True) -> Any:
    """The validator class of a draft. Unless `is_evaluated`, it lets `unevaluatedProperties` pass."""
    known = keywords(matches if judge == "python" else matches_or_unjudged)
    return extended(draft, known if is_evaluated else {**known, "unevaluatedProperties": lambda *_: iter(())})

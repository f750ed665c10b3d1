"""Whether an answer is of the type that was asked for, as far as its JSON Schema tells. It loads jsonschema, so it is loaded on use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend
from pydantic import TypeAdapter
from pydantic import ValidationError as Unreadable
from referencing import Registry

from phronomy.foundation.json_text import JsonDict, JsonValue, canonical, list_of, object_of, pointer_part
from phronomy.tools.json_schema.patterns import matches, matches_or_unjudged
from phronomy.tools.json_schema.unique import all_different

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
    value: JsonValue, schema: JsonValue, *, bounded: bool = False, whole: bool = True, judge: Judge = "pydantic"
) -> str | None:
    """Where the value does not fit the schema, and what it breaks there, without quoting it; None if it fits.

    A schema that is none, or that points elsewhere (nothing is fetched), fits no value: a checkpoint from elsewhere may hold any. With
    `bounded` it is a stranger's, and has so much time and no more. Without `whole`, only the first step of the way to it is said. A
    pattern that the engine of pydantic does not know is not judged, as the code that takes the value judges it; where no code does,
    and the schema is one's own, `judge` is "python".
    """
    try:
        if not isinstance(schema, dict | bool):
            raise TypeError
        wrong = _first_bounded(value, schema) if bounded else _first(value, schema, judge)
    except Exception:
        return "the schema of the question cannot be read"
    if wrong is None:
        return None
    way = [str(part)[:80] for part in wrong.absolute_path]
    where = ".".join(way if whole else way[:1]) or "the answer"
    return f"{where} does not fit {wrong.validator!r}{_wanted(str(wrong.validator), wrong.validator_value, wrong.instance)}"


def misfits(value: JsonValue, schema: JsonDict, *, most: int = 50) -> list[tuple[str, str]]:
    """Where the value does not fit the schema, each by its JSON Pointer (RFC 6901), and what it breaks there; `most` at most."""
    try:
        found = list(islice(_linear(schema).iter_errors(value), most))
    except Exception:
        return [("", "the schema cannot be read")]
    return [
        (
            "".join(f"/{pointer_part(part)}" for part in wrong.absolute_path),
            f"{wrong.validator}{_wanted(str(wrong.validator), wrong.validator_value, wrong.instance)}",
        )
        for wrong in found
    ]


def validator_of(schema: JsonDict | bool) -> Draft202012Validator:
    """The validator of a schema of one's own code, which fetches nothing, and reads formats as types do. It judges each pattern."""
    return _made(_Own, schema)


def _made(kind: Any, schema: JsonDict | bool) -> Draft202012Validator:
    made: Draft202012Validator = kind(schema, registry=Registry(), format_checker=FORMATS)
    return made


def _first(value: JsonValue, schema: JsonDict | bool, judge: Judge) -> ValidationError | None:
    validator = validator_of(schema) if judge == "python" else _linear(schema)
    return next(validator.iter_errors(value), None)


def _linear(schema: JsonDict | bool) -> Draft202012Validator:
    return _made(_LinearWithPatterns if _has(schema, "patternProperties") else _Linear, schema)


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


# Keywords that the validator would do in its own time. Values and patterns of people meet here, on the event loop of a server: Python's
# engine of patterns backtracks, and holds all other threads while it does.

_Errors = Iterator[ValidationError]


def _pattern(__: object, pattern: str, instance: object, _: object) -> _Errors:
    if isinstance(instance, str) and matches_or_unjudged(pattern, instance) is False:
        yield ValidationError("does not match")


def _pattern_properties(validator: Any, patterns: JsonDict, instance: object, _: object) -> _Errors:
    if isinstance(instance, dict):
        for pattern, inner in patterns.items():
            for name, value in instance.items():
                if matches_or_unjudged(pattern, name):
                    yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional(validator: Any, wanted: object, instance: object, schema: JsonDict) -> _Errors:
    if not isinstance(instance, dict):
        return
    known, patterns = object_of(schema.get("properties")), object_of(schema.get("patternProperties"))
    # A name that nothing here can judge may be one of those that a pattern allows.
    more = [
        name
        for name in instance
        if name not in known and all(matches_or_unjudged(each, name) is False for each in patterns)
    ]
    if isinstance(wanted, dict):
        for name in more:
            yield from validator.descend(instance[name], wanted, path=name)
    elif wanted is False and more:
        yield ValidationError("there is more")


def _nothing(*_: object) -> _Errors:
    return iter(())


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


def _unique(__: object, wanted: object, instance: object, _: object) -> _Errors:
    if wanted and isinstance(instance, list) and not all_different(instance):
        yield ValidationError("some are the same")


def _own_pattern(__: object, pattern: str, instance: object, _: object) -> _Errors:
    if isinstance(instance, str) and not matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _kind(keywords: Mapping[str, object]) -> Any:
    """The validator of the draft with these keywords, also below a `$schema` deeper in it."""
    made: Any = extend
    kind = made(Draft202012Validator, keywords)
    given = [(each.name, each.alias) for each in kind.__attrs_attrs__ if each.init]

    def evolve(self: Any, **changes: Any) -> Any:
        return kind(**{alias: getattr(self, name) for name, alias in given} | changes)

    kind.evolve = evolve
    return kind


_KEYWORDS: Final[Mapping[str, object]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "uniqueItems": _unique,
}
_Linear: Final = _kind(_KEYWORDS)
# jsonschema looks for what is evaluated with Python's engine, through all references. No schema of pydantic has both.
_LinearWithPatterns: Final = _kind({**_KEYWORDS, "unevaluatedProperties": _nothing})
_Own: Final = _kind({"pattern": _own_pattern})

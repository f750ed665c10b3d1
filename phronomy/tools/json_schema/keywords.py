"""The keywords of JSON Schema that jsonschema would apply in its own time.

It matches patterns by Python's engine, which backtracks, and holds all other threads while it does; it compares each value of a list
with each other; and it divides floats. Values and patterns of people meet here, on the event loop of a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from jsonschema import ValidationError
from jsonschema.validators import extend

from phronomy.foundation.json_text import JsonDict, object_of
from phronomy.tools.json_schema.numbers import multiple_of
from phronomy.tools.json_schema.undeclared import told
from phronomy.tools.json_schema.unique import all_different

Errors: TypeAlias = Iterator[ValidationError]

Finds: TypeAlias = Callable[[str, str], bool | None]
"""Says whether a pattern is found in a text; None if it cannot judge that, and nothing is refused for it."""


def keywords(finds: Finds) -> dict[str, object]:
    """The functions that apply the keywords, by their names, with this engine of patterns."""

    def pattern(__: object, pattern: str, instance: object, _: object) -> Errors:
        if isinstance(instance, str) and finds(pattern, instance) is False:
            yield ValidationError("does not match")

    def pattern_properties(validator: Any, patterns: JsonDict, instance: object, _: object) -> Errors:
        if isinstance(instance, dict):
            for pattern, inner in patterns.items():
                for name, value in instance.items():
                    if finds(pattern, name):
                        yield from validator.descend(value, inner, path=name, schema_path=pattern)

    def additional_properties(validator: Any, wanted: object, instance: object, schema: JsonDict) -> Errors:
        if not isinstance(instance, dict):
            return
        known, patterns = object_of(schema.get("properties")), object_of(schema.get("patternProperties"))
        # A name that nothing here can judge may be one of those that a pattern allows.
        more = [name for name in instance if name not in known and all(finds(each, name) is False for each in patterns)]
        if isinstance(wanted, dict):
            for name in more:
                yield from validator.descend(instance[name], wanted, path=name)
        elif wanted is False and more:
            yield ValidationError(told(more, known))

    return {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
        "uniqueItems": _unique_items,
        "multipleOf": multiple_of,
    }


def _unique_items(__: object, wanted: object, instance: object, _: object) -> Errors:
    if wanted and isinstance(instance, list) and not all_different(instance):
        yield ValidationError("some are the same")


def extended(draft: Any, keywords: Mapping[str, object], step: Callable[[], object] = lambda: None) -> Any:
    """The validator class of a draft with these keywords. It calls `step` wherever it goes deeper, and never changes its draft."""
    made: Any = extend
    kind = made(draft, {name: applies for name, applies in keywords.items() if name in draft.VALIDATORS})
    given = [(each.name, each.alias) for each in kind.__attrs_attrs__ if each.init]
    errors = kind.iter_errors

    def evolve(self: Any, **changes: Any) -> Any:
        step()
        return kind(**{alias: getattr(self, name) for name, alias in given} | changes)

    def iter_errors(self: Any, *args: Any) -> Any:
        step()
        return errors(self, *args)

    kind.evolve, kind.iter_errors = evolve, iter_errors
    return kind

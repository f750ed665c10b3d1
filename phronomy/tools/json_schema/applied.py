"""The schemas within a JSON Schema that apply to a value, as validators: those for the value itself, for its members and its items.

All that asks more of a schema than whether a value fits goes by these: the names that are declared, and the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from referencing.jsonschema import DRAFT202012, lookup_recursive_ref, specification_with

from phronomy.foundation.json_text import JsonDict, JsonValue, list_of, object_of

Matches: TypeAlias = Callable[[str, str], bool]
"""Says whether a pattern is found in a name."""

_BRANCHES: Final = ("then", "else")  # which `if` reads


def as_read(validator: Any) -> Any:
    """The validator with the keywords that its draft reads. A value under a name of another keyword would never be validated."""
    schema: JsonDict = validator.schema
    if "$ref" in schema and "unevaluatedProperties" not in validator.VALIDATORS:  # up to draft 7 it stands for all
        return validator.evolve(schema={"$ref": schema["$ref"]})
    known = {name: each for name, each in schema.items() if name in validator.VALIDATORS or name in _BRANCHES}
    return validator.evolve(schema=known)


def always(validator: Any, _: JsonValue = None) -> Iterator[Any]:
    """The schemas that apply to any value: behind references, and of `allOf`."""
    schema: JsonDict = validator.schema
    for name in ("$ref", "$dynamicRef", "$recursiveRef"):
        if isinstance(reference := schema.get(name), str):
            resolver = validator._resolver
            found = lookup_recursive_ref(resolver) if name == "$recursiveRef" else resolver.lookup(reference)
            yield validator.evolve(schema=found.contents, _resolver=found.resolver)
    yield from (below(validator, each) for each in list_of(schema.get("allOf")))


def by_condition(validator: Any, item: JsonValue) -> Iterator[Any]:
    """The schemas that apply by `if`, which is among them if it holds, and by a name that an object has."""
    schema: JsonDict = validator.schema
    if "if" in schema:
        condition = below(validator, schema["if"])
        holds = condition.is_valid(item)
        yield from [condition] if holds else []
        yield from [below(validator, schema[name]) for name in ("then" if holds else "else",) if name in schema]
    for keyword in ("dependentSchemas", "dependencies"):
        for name, inner in object_of(schema.get(keyword)).items():
            # A list in the place of a schema has names that must be there too, and declares none.
            if isinstance(item, dict) and name in item and isinstance(inner, dict):
                yield below(validator, inner)


def any_of(validator: Any, item: JsonValue) -> Iterator[Any]:
    """The branches of `anyOf` that the value fits."""
    return _fitting(validator, "anyOf", item)


def one_of(validator: Any, item: JsonValue) -> Iterator[Any]:
    """The branches of `oneOf` that the value fits."""
    return _fitting(validator, "oneOf", item)


def _fitting(validator: Any, keyword: str, item: JsonValue) -> Iterator[Any]:
    branches = (below(validator, each) for each in list_of(validator.schema.get(keyword)))
    return (each for each in branches if each.is_valid(item))


def for_member(validator: Any, name: str, matches: Matches) -> list[Any]:
    """The schemas for the value of this name in an object."""
    schema: JsonDict = validator.schema
    own = [object_of(schema["properties"])[name]] if name in object_of(schema.get("properties")) else []
    patterns = object_of(schema.get("patternProperties"))
    own += [inner for pattern, inner in patterns.items() if matches(pattern, name)]
    rest = (schema[each] for each in ("additionalProperties", "unevaluatedProperties") if each in schema)
    return [below(validator, each) for each in own or rest]


def for_item(validator: Any, at: int) -> list[Any]:
    """The schemas for the value at this place of a list."""
    schema: JsonDict = validator.schema
    items = schema.get("items")
    first = list_of(schema.get("prefixItems")) or list_of(items)
    rest = [schema.get("additionalItems") if isinstance(items, list) else items, schema.get("unevaluatedItems")]
    own = [first[at]] if at < len(first) else [each for each in rest if isinstance(each, dict)][:1]
    return [below(validator, each) for each in own]


def below(validator: Any, schema: JsonValue) -> Any:
    """The validator of a schema within that of another."""
    draft = specification_with(str(validator.META_SCHEMA.get("$schema")), default=DRAFT202012)
    return validator.evolve(schema=schema, _resolver=validator._resolver.in_subresource(draft.create_resource(schema)))

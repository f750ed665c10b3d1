"""Names in an object that its JSON Schema does not declare, and names of one object that only case tells apart.

JSON Schema lets a name pass that no `properties` has. A gate looks at the names that it knows, and the code that takes the arguments
may give others a meaning: `encoding/json` of Go reads `Amount` as `amount`, and the last one wins. So such a name is a fault here,
unless a pattern of `patternProperties` declares it, or the schema says itself that there may be more (`additionalProperties`,
`unevaluatedProperties`). A name that differs from a declared one in case alone is a fault there, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, KeysView
from typing import Any, Final

from jsonschema import ValidationError

from phronomy.foundation.json_text import JsonDict, JsonValue, clean, list_of, object_of
from phronomy.tools.json_schema.applied import (
    Matches,
    always,
    any_of,
    as_read,
    below,
    by_condition,
    for_item,
    for_member,
    one_of,
)
from phronomy.tools.member_names import folded, told_of_twins, twins_in

SAME_NAME: Final = "names"
"""The keyword of an error about two names that only case tells apart. JSON Schema has none for it."""

DECLARING: Final = ("properties", "patternProperties")
"""The keywords that declare names of an object."""

_OPEN: Final = ("additionalProperties", "unevaluatedProperties")
_SHOWN: Final = 200
"""Characters of a list of names that an error has."""


def undeclared(validator: Any, value: JsonValue, matches: Matches) -> Iterator[ValidationError]:
    """An error for each object with undeclared names, unless its schema allows them. The value is valid."""
    todo: list[tuple[JsonValue, list[Any], tuple[str | int, ...]]] = [(value, [validator], ())]
    while todo:
        item, given, path = todo.pop()
        if not isinstance(item, dict | list):
            continue
        applied = [each for one in given for each in _applied(one, item)]
        if isinstance(item, list):
            for at, inner in enumerate(item):
                todo.append((inner, [found for each in applied for found in _for_item(each, at)], (*path, at)))
            continue
        schemas = [each.schema for each in applied]
        known = _declared(schemas)
        if more := _others(item, known, schemas, matches):
            yield ValidationError(
                told(more, known),
                "additionalProperties",
                path,
                validator_value=False,
                instance=item,
                schema=validator.schema,
            )
        for name, inner in item.items():
            todo.append(
                (inner, [found for each in applied for found in for_member(each, name, matches)], (*path, name))
            )


def same_but_for_case(value: JsonValue) -> Iterator[ValidationError]:
    """An error for each two names of one object, at any depth, that only case tells apart."""
    for path, *names in twins_in(value):
        yield ValidationError(told_of_twins(*names), SAME_NAME, path)


def is_of_names(error: ValidationError) -> bool:
    """Say whether an error is about names: its own message is whole then."""
    more = error.validator == "additionalProperties" and error.validator_value is False
    return more or error.validator == SAME_NAME


def told(more: Iterable[str], known: Iterable[str]) -> str:
    """The words of an error about names that are not declared."""
    return f"undeclared names {_listed(more)} (declared: {_listed(known)})"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(clean(name)[:80] for name in names)[:_SHOWN] or "nothing"


def _others(item: JsonDict, known: Collection[str], schemas: list[JsonDict], matches: Matches) -> list[str]:
    """The names of an object that these schemas of it do not allow beside the known ones."""
    alike = {folded(name) for name in known}
    patterns = [pattern for each in schemas for pattern in object_of(each.get("patternProperties"))]
    is_open = not any(name in each for each in schemas for name in DECLARING) or any(
        each.get(name, False) is not False for each in schemas for name in _OPEN
    )
    others = [name for name in item if name not in known]
    return [
        name
        for name in others
        if folded(name) in alike or not (is_open or any(matches(each, name) for each in patterns))
    ]


def _declared(schemas: list[JsonDict]) -> KeysView[str]:
    """The names that these schemas of one object declare together, beside patterns."""
    known = [name for each in schemas for name in object_of(each.get("properties"))]
    # A name that is required is declared too, if carelessly.
    required = [str(name) for each in schemas for name in list_of(each.get("required"))]
    return dict.fromkeys([*known, *required]).keys()


def _applied(validator: Any, item: JsonValue) -> Iterator[Any]:
    """The validator and those of all schemas within its own that apply to the item itself, and that the item fits."""
    if not isinstance(validator.schema, dict):
        return
    read = as_read(validator)
    yield read
    for find in (always, any_of, one_of, by_condition):
        for each in find(read, item):
            yield from _applied(each, item)


def _for_item(validator: Any, at: int) -> list[Any]:
    # The names of an item that does not fit `contains` are bounded by it as well.
    more = [below(validator, validator.schema["contains"])] if "contains" in validator.schema else []
    return [*for_item(validator, at), *more]

"""Whether the values of a list differ, in one pass: jsonschema compares each with each where they are of several types."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from phronomy.foundation.json_text import JsonValue


def all_different(values: Sequence[JsonValue]) -> bool:
    """Whether no value is there twice, as JSON Schema compares them: 1 and 1.0 are equal, 1 and true are not."""
    return len(set(map(_frozen, values))) == len(values)


def _frozen(value: JsonValue) -> Hashable:
    """A hashable value that is equal for equal JSON."""
    match value:
        case bool():
            return str(value), bool
        case list():
            return tuple(map(_frozen, value))
        case dict():
            return frozenset((name, _frozen(each)) for name, each in value.items()), dict
        case _:
            return value

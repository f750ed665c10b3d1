"""What an option or an argument may be."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping

from phronomy._json import JsonValue


def is_number(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int that is beyond every float
        return False


def is_timeout(value: object) -> bool:
    """Whether it is a number of seconds above 0, or None for none."""
    return value is None or (is_number(value) and value > 0)  # type: ignore[operator]


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_exception_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def is_series(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def leaves(value: JsonValue) -> Iterable[str]:
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [str(value)]


def is_function(value: object) -> bool:
    """Whether this is a function or a method that was written in Python."""
    return inspect.isfunction(value) or inspect.ismethod(value)


def close_unawaited(answer: object) -> None:
    """Close a coroutine that nobody will await, which would otherwise be warned about."""
    if inspect.iscoroutine(answer):
        answer.close()

"""What an option or an argument may be."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeGuard, TypeVar, overload

T = TypeVar("T")


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite number, and no bool."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int that is beyond every float
        return False


def is_timeout(value: object) -> bool:
    """Whether it is a number of seconds above 0, or None for none."""
    return value is None or (is_number(value) and value > 0)


def is_count(value: object) -> TypeGuard[int]:
    """Whether it is a whole number from 0 up, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_exception_class(value: object) -> bool:
    """Whether it is a class of exceptions that may be caught."""
    return isinstance(value, type) and issubclass(value, Exception)


@overload
def is_series(value: Iterable[T]) -> TypeGuard[Iterable[T]]: ...


@overload
def is_series(value: object) -> TypeGuard[Iterable[object]]: ...


def is_series(value: object) -> bool:
    """Whether it holds several things in order: no text, and no mapping."""
    if type(value) is tuple:  # most are; the look at an abstract class takes ten times as long
        return True
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def texts_in(value: object) -> tuple[str, ...] | None:
    """The texts of a series of texts, in order; None for any other value."""
    given = tuple(value) if is_series(value) else (None,)
    texts = tuple(each for each in given if isinstance(each, str))
    return texts if len(texts) == len(given) else None


def leaves(value: object) -> Iterable[str]:
    """Every text, number and key inside a JSON value, as text."""
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


def is_true(answer: object) -> bool:
    """Whether a predicate has answered yes. Raises `TypeError` for an answer to be awaited, which would always count as true."""
    if hasattr(type(answer), "__await__"):
        close_unawaited(answer)
        raise TypeError("a plain function is needed")
    return bool(answer)


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling the function gives something to await; decided from how it was written."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return inspect.iscoroutinefunction(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)

"""What an option or an argument may be."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import CellType
from typing import ClassVar, TypeGuard, TypeVar, overload

from phronomy.errors import ConfigurationError

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


class NoFunction:
    """A base of callable objects that are no plain functions: a direct call of one would ask for no approval."""

    _calls: ClassVar[frozenset[str]] = frozenset({"__call__", "execute", "call", "acall"})
    """The methods that do its work."""

    @property
    def asks(self) -> bool:
        """True if it needs an approval."""
        return True


def layers_of(function: object) -> Iterator[object]:
    """A function, and the functions that it is known to call: by `partial`, as a bound method, or as a wrapper."""
    seen: set[int] = set()
    layer: object = function
    while layer is not None and id(layer) not in seen:
        seen.add(id(layer))
        yield layer
        if isinstance(layer, NoFunction):
            return
        if isinstance(layer, partial):
            layer = layer.func
        elif inspect.ismethod(layer):
            layer = layer.__func__
        else:
            layer = vars(layer).get("__wrapped__") if hasattr(layer, "__dict__") else None


def wrapped_tool(function: object) -> NoFunction | None:
    """The tool that a function is, wraps, or is the body of; None if there is none."""
    for layer in layers_of(function):
        owner = layer.__self__ if inspect.ismethod(layer) else layer
        if isinstance(owner, NoFunction) and (owner is layer or getattr(layer, "__name__", "") in owner._calls):
            return owner
    return None


def held_tool(function: object, declared: Iterable[object]) -> NoFunction | None:
    """A tool with an approval that a function has in its closure or its object, and does not declare; None if there is none."""
    for layer in layers_of(function):
        cells = getattr(layer, "__closure__", None) or ()
        held = [cell.cell_contents for cell in cells if not _is_empty(cell)]
        held += vars(layer.__self__).values() if inspect.ismethod(layer) and hasattr(layer.__self__, "__dict__") else []
        for each in held:
            if isinstance(each, NoFunction) and each.asks and not any(each is known for known in declared):
                return each
    return None


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def check_no_tool(function: object) -> None:
    """Refuse a tool where a function is wanted, also one that is wrapped. Raises `ConfigurationError`."""
    if (found := wrapped_tool(function)) is not None:
        raise ConfigurationError(
            f"{found!r} is no function: called here, it would run without the approval that it asks for. Give a plain function"
        )


def is_async(function: Callable[..., object]) -> bool:
    """Say whether a call of the function gives something to await. The way in which it was written decides that.

    Raises `ConfigurationError` for a tool, and for a plain function that wraps an async one: nobody can tell which of both it is.
    """
    check_no_tool(function)
    return awaits(function)


def awaits(function: Callable[..., object]) -> bool:
    """As `is_async`, for the body of a tool too."""
    if _is_written_async(function):
        return True
    for layer in layers_of(function):
        if layer is function or not callable(layer) or isinstance(layer, NoFunction):
            continue
        if _is_written_async(layer) or inspect.isasyncgenfunction(layer):
            name = getattr(function, "__name__", type(function).__name__)
            raise ConfigurationError(
                f"{name} is a plain function that wraps an async one, so nobody can tell whether it is to be awaited: make the wrapper"
                " async, or write a function of your own that calls it"
            )
    return False


def _is_written_async(function: Callable[..., object]) -> bool:
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return inspect.iscoroutinefunction(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)

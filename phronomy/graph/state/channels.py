"""Channels: the fields of a graph's state, and how what nodes return is folded into each.

A state is a pydantic model or a `TypedDict`. Each of its fields is a channel, and the reducer of a channel is told by `Annotated`:

    class Research(BaseModel):
        topic: str                                            # replace: the last value counts
        notes: Annotated[list[str], append]                   # what a node returns is added at the end
        sources: Annotated[dict[str, str], merge]             # the keys that a node returns are set
        tokens: Annotated[int, add]                           # what a node returns is added
        best: Annotated[float, max]                           # any function of (old, new)

Reducers run once a wave, in the order in which its nodes were planned, whatever finished first. So the same updates give the same
state. A channel that has no value yet takes the first update as it is.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import field
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, get_args, get_origin

from pydantic.fields import FieldInfo
from typing_extensions import Doc

from phronomy.errors import ConfigurationError, GraphError
from phronomy.foundation.checks import check_no_tool
from phronomy.foundation.dataclasses import dataclass

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

ReducerName: TypeAlias = Literal["append", "replace", "merge", "add", "custom"]
"""How a channel is reduced, in a word; `custom` is a function of the user's."""


def append(old: list[T], new: list[T]) -> list[T]:
    """A reducer that adds the list that a node returns to the end of the list in the channel.

    The channel starts as an empty list, unless the field has a default. `operator.add` on a list means the same. Only
    the new items are stored, so a wave writes no more for a long list than for a short one.
    """
    return [*old, *new]


def replace(old: T, new: T) -> T:  # noqa: ARG001 - it is what any reducer is given
    """A reducer that replaces the value of the channel. It is the default.

    If two nodes of a wave write to such a channel, they conflict, even if both write the same value.
    `ConflictingWrites` names the channel and both nodes, and the wave changes nothing.
    """
    return new


def merge(old: Mapping[K, V], new: Mapping[K, V]) -> dict[K, V]:
    """A reducer that sets the keys that a node returns, and keeps the other keys of the dict in the channel.

    Values are replaced as a whole; nested dicts are not merged. The channel starts as an empty dict, unless the field
    has a default. If two nodes of a wave set the same key, the later one in the order of the wave counts.
    `operator.or_` on a dict means the same.
    """
    return {**old, **new}


def add(old: T, new: T) -> T:
    """A reducer that adds the value that a node returns by `+`: numbers, strings, or any type that has `+`.

    A channel of `int`, `float` or `Decimal` starts at 0, and a channel of `str` as an empty string, unless the field
    has a default. A channel of another type starts without a value. For a list it means `append`. The sum must be a
    valid value of the channel.
    """
    both: Any = old
    return both + new  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Reducer:
    """The rule by which a channel merges updates: its `name`, the `label` of its function, and the `function` itself."""

    name: ReducerName
    label: str
    function: Callable[[Any, Any], object] = field(repr=False)


_BUILT_IN: Final[Mapping[object, ReducerName]] = {
    append: "append",
    replace: "replace",
    merge: "merge",
    add: "add",
    operator.add: "add",
    operator.iadd: "add",
    operator.concat: "append",
    operator.or_: "merge",
    operator.ior: "merge",
}

_LISTS: Final = (list, Sequence, MutableSequence)
_MAPPINGS: Final = (dict, Mapping, MutableMapping)

STARTS: Final[Mapping[object, str]] = {int: "0", float: "0", Decimal: '"0"', str: '""'}
"""What a channel begins with that is added to, by its type."""


def reducer_of(where: str, hint: Any, marks: Iterable[Any]) -> tuple[Reducer, tuple[Any, ...]]:
    """The reducer among the marks of an `Annotated` hint, and the marks that are none. `where` names the channel in errors.

    Raises `GraphError` for several reducers, for one that is no function of two, and for one that does not go with the type.
    """
    found = [mark for mark in marks if _is_reducer(mark)]
    rest = tuple(mark for mark in marks if not _is_reducer(mark))
    if len(found) > 1:
        both = " and ".join(_label(mark) for mark in found)
        raise GraphError(f"{where} has several reducers, {both}: a channel has one")
    if any(_hides_reducer(part) for part in get_args(hint)):
        raise GraphError(
            f"{where} has its reducer inside its type: put Annotated around the whole, as in Annotated[list[str], append]"
        )
    mark = found[0] if found else replace
    name: ReducerName = _BUILT_IN.get(mark, "custom") if _hashable(mark) else "custom"
    kind = kind_of(hint)
    if name == "add" and kind in _LISTS:
        name, mark = "append", append
    if name == "append" and kind not in _LISTS and mark is not append:
        name = "add"
    if name == "merge" and kind not in _MAPPINGS and mark is not merge:
        name = "custom"
    if name == "append" and kind not in _LISTS:
        raise GraphError(f"{where} is appended to, so its type must be a list, such as list[str]")
    if name == "merge" and kind not in _MAPPINGS:
        raise GraphError(f"{where} is merged into, so its type must be a dict, such as dict[str, int]")
    if name in ("append", "merge") and not all(map(_only_tells, rest)):
        raise GraphError(
            f"{where} grows by what nodes return, so nothing looks at it as a whole: put what limits it on its items, as in"
            " Annotated[list[Annotated[str, MaxLen(80)]], append], or write a reducer that keeps to the limit"
        )
    if name == "custom":
        _refuse_function(where, mark)
    return Reducer(name, _label(mark) if name == "custom" else name, mark), rest


def kind_of(hint: object) -> object:
    """The class behind a hint: `list` for `list[str]`."""
    if get_origin(hint) is Annotated:
        return kind_of(get_args(hint)[0])
    return get_origin(hint) or hint


def _hides_reducer(hint: object) -> bool:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(_hashable(mark) and mark in _BUILT_IN for mark in marks) or any(map(_hides_reducer, get_args(hint)))


def _only_tells(mark: object) -> bool:
    """Whether a mark says something to people alone."""
    return isinstance(mark, str | Doc) or (isinstance(mark, FieldInfo) and not mark.metadata)


def _is_reducer(mark: object) -> bool:
    """Whether it is meant as a reducer: a function, or what is called like one. What pydantic and others look for is not."""
    return (
        callable(mark)
        and not inspect.isclass(mark)
        and not hasattr(mark, "__get_pydantic_core_schema__")
        and not hasattr(mark, "__get_pydantic_json_schema__")
    )


def _hashable(mark: object) -> bool:
    try:
        hash(mark)
    except TypeError:
        return False
    return True


def _label(mark: object) -> str:
    return str(getattr(mark, "__qualname__", type(mark).__qualname__))


def _refuse_function(where: str, function: Any) -> None:
    try:
        check_no_tool(function)
    except ConfigurationError as error:
        raise GraphError(f"{where}: its reducer: {error}") from None
    target = function if inspect.isroutine(function) else type(function).__call__
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(target):
        raise GraphError(
            f"{where}: its reducer {_label(function)} is async; a reducer is a plain function of (old, new)"
        )
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise GraphError(f"{where}: its reducer {_label(function)} must take (old, new)") from None
    except ValueError:  # written in C, such as `max`: it does not tell
        return

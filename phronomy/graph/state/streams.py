"""The functions that merge the pieces of a value, for nodes that yield their update piece by piece.

Text and bytes are joined, lists put one behind the other, messages joined by their text, mappings merged key by key: of the values of
one key, text is joined, lists are put behind each other, mappings are merged, and of numbers, truth values and times the last
counts. What is None says nothing beside a value that is joined. Values of different types are refused. `register_concat` adds a
class.
"""

from __future__ import annotations

import inspect
import threading
import types
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import (
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from typing_extensions import ReadOnly, TypeAliasType, is_typeddict

from phronomy.errors import Portable, RegistrationError
from phronomy.foundation.checks import wrapped_tool
from phronomy.foundation.json_text import canonical
from phronomy.graph.state.values import step_to
from phronomy.records.messages import Message, ToolCall

T = TypeVar("T")

Concat = Callable[[list[Any]], Any]


def register_concat(cls: type[T], fn: Callable[[list[T]], T]) -> None:
    """Register a function that joins pieces of a class to one value.

    A node can then yield a channel of that type in pieces. `fn` takes the pieces in order, at least two, and returns
    one value of the class. The function is also used for subclasses that have no function of their own; it should then
    return the class of the pieces. Call `register_concat` before an `add_node` with such a channel in `streams`, from
    any thread. Raises `RegistrationError` if the argument is not a class, if the class has a function already (`str`,
    `bytes`, `list`, `dict` and `Message` have one), and if the function is async or does not take one argument.
    """
    CONCATS.register(cls, fn)


class Unmergeable(Portable, ValueError):
    """Pieces that do not become one value: why, and the path to them."""

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.path = path


class Concats:
    """Classes, and how pieces of each become one value."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Replaced as a whole, never changed: who reads needs no lock.
        self._by_class: Mapping[type[object], Concat] = _BUILT_IN

    def register(self, cls: type[object], fn: Concat) -> None:
        """See `register_concat`."""
        if not isinstance(cls, type) or cls in (object, type(None)):
            shown = cls.__qualname__ if isinstance(cls, type) else f"a {type(cls).__name__}"
            raise RegistrationError(f"a concat is registered for a class of its own, not for {shown}")
        _refuse_function(cls, fn)
        with self._lock:
            if cls in self._by_class:
                raise RegistrationError(f"{cls.__qualname__} has a concat already")
            self._by_class = {**self._by_class, cls: fn}

    def find(self, cls: type[object]) -> tuple[type[object], Concat] | None:
        """The class itself or the nearest above it that has a concat, and that. An enum is no text, nor a truth value a number."""
        known = self._by_class
        above = [cls] if issubclass(cls, Enum) or cls is bool else cls.__mro__
        return next(((each, known[each]) for each in above if each in known), None)


def is_generator(function: object) -> Literal["sync", "async"] | None:
    """Which kind of generator calling it gives, if it gives one; decided from how it was written."""
    while isinstance(function, partial):
        function = function.func
    call = function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004
    if inspect.isgeneratorfunction(call):
        return "sync"
    return "async" if inspect.isasyncgenfunction(call) else None


# Which types


def kind_of_pieces(hint: object) -> type[object]:
    """The class by which pieces of a declared type are merged. Raises `Unmergeable`."""
    hint = _bare(hint)
    if hint is Any:
        raise Unmergeable("its type is Any, which says of no two values that they go together")
    if members := _members(hint):
        kinds = {kind_of_pieces(each) for each in members}
        if len(kinds) > 1:
            raise Unmergeable("its type is a union of several types")
        return kinds.pop()
    kind: object = get_origin(hint) or hint
    if kind in _ALIKE or is_typeddict(kind):
        kind = _ALIKE.get(kind, dict)
        if kind is dict:
            _check_values(hint, (hint,))
        return kind
    found = CONCATS.find(kind) if isinstance(kind, type) else None
    if found is None or found[0] in _ALIKE:  # a subclass of these has rules of its own, which joining would break
        raise Unmergeable(f"no concat is registered for {getattr(kind, '__qualname__', kind)}")
    return found[0]


def kind_or_none(hint: object) -> type[object] | None:
    """As `kind_of_pieces`; None for a type whose pieces cannot be merged."""
    try:
        return kind_of_pieces(hint)
    except Unmergeable:
        return None


def _check_values(hint: object, seen: tuple[object, ...]) -> None:
    """Refuse a mapping in which two values of one key would not go together, as far as its type says what they are."""
    if is_typeddict(get_origin(hint) or hint):
        for value in get_type_hints(get_origin(hint) or hint, include_extras=True).values():
            _check_value(value, seen)
    elif len(get_args(hint)) == 2:
        _check_value(get_args(hint)[1], seen)


def _check_value(hint: object, seen: tuple[object, ...]) -> None:
    hint = _bare(hint)
    unknown = hint in (Any, object, None, type(None)) or isinstance(hint, ForwardRef | str | TypeVar)
    if unknown or hint in seen:  # the values themselves are looked at; or a type that holds itself
        return
    kind: object = get_origin(hint) or hint
    if members := _members(hint):
        for each in members:
            _check_value(each, (*seen, hint))
    elif _ALIKE.get(kind) is dict or is_typeddict(kind):
        _check_values(hint, (*seen, hint))
    elif not isinstance(kind, type) or issubclass(kind, Enum) or not issubclass(kind, _LAST):
        kind_of_pieces(hint)


def _bare(hint: object) -> object:
    """The type without what is said about it."""
    while True:
        if get_origin(hint) in (Annotated, Required, NotRequired, ReadOnly):
            hint = get_args(hint)[0]
        elif isinstance(hint, TypeAliasType):
            hint = hint.__value__
        elif (base := getattr(hint, "__supertype__", None)) is not None:
            hint = base
        else:
            return hint


def _members(hint: object) -> list[object]:
    if get_origin(hint) not in (Union, types.UnionType):
        return []
    return [each for each in get_args(hint) if each is not type(None)]


# Merging


def merged(pieces: Sequence[Any]) -> Any:
    """One value of all pieces, of which there is one at least. Raises `Unmergeable`, and what a registered function raises."""
    said = [piece for piece in pieces if piece is not None]
    if not said:
        return None
    ways = [_way(piece) for piece in said] if len(pieces) > 1 else []
    other = next((place for place, way in enumerate(ways) if way != ways[0]), None)
    if other is not None:
        raise Unmergeable(f"a {type(said[0]).__name__} and a {type(said[other]).__name__} do not go together")
    way = ways[0] if ways else None
    if isinstance(way, type):
        return pieces[-1]
    if len(said) == 1:
        return said[0]
    if way is None:
        raise Unmergeable(f"no concat is registered for {type(said[0]).__qualname__}")
    cls, concat = way
    value = concat(said)
    if not isinstance(value, cls):
        if inspect.iscoroutine(value):
            value.close()
        raise Unmergeable(f"the concat of {cls.__qualname__} gave a {type(value).__name__}")
    return value


def _way(value: object) -> tuple[type[object], Concat] | type[object] | None:
    """Finds the merge of a value: its class and function, the class of which the last piece counts, or None for no merge."""
    found = CONCATS.find(type(value))
    if found is None and isinstance(value, Mapping):
        found = (dict, _merge)
    if found is not None or isinstance(value, Enum):
        return found
    if isinstance(value, _NUMBERS) and not isinstance(value, bool):
        return float
    return next((cls for cls in _LAST if isinstance(value, cls)), None)


def _join_text(pieces: list[str]) -> str:
    return "".join(pieces)


def _join_bytes(pieces: list[bytes]) -> bytes:
    return b"".join(pieces)


def _extend(pieces: Sequence[Sequence[object]]) -> list[object]:
    return [item for piece in pieces for item in piece]


def _merge(pieces: Sequence[Mapping[T, object]]) -> dict[T, object]:
    by_key: dict[T, list[object]] = {}
    for piece in pieces:
        for key, value in piece.items():
            by_key.setdefault(key, []).append(value)
    found = {}
    for key, values in by_key.items():
        try:
            found[key] = merged(values)
        except Unmergeable as error:
            raise Unmergeable(error.why, step_to(key) + error.path) from None
    return found


def _join_messages(pieces: list[Message]) -> Message:
    """One message: the text joined (content parts one behind the other), the calls by their ids, what the provider sent by its keys."""
    for name in ("role", "tool_call_id", "settlement"):
        if len({getattr(piece, name) for piece in pieces} - ({None} if name == "settlement" else set())) > 1:
            raise Unmergeable(f"the messages differ in {name}")
    contents = [piece.content for piece in pieces]
    if any(isinstance(content, list) for content in contents):
        contents = [[{"type": "text", "text": each}] if isinstance(each, str) else each for each in contents]
    calls: dict[str, list[ToolCall]] = {}
    for piece in pieces:
        for call in piece.tool_calls:
            calls.setdefault(call.id, []).append(call)
    return pieces[0].evolve(
        content=canonical(merged(contents)),
        tool_calls=tuple(_join_calls(same) for same in calls.values()),
        settlement=next((piece.settlement for piece in reversed(pieces) if piece.settlement is not None), None),
        provider=canonical(_merge([piece.provider for piece in pieces])),
    )


def _join_calls(pieces: list[ToolCall]) -> ToolCall:
    if len({piece.name for piece in pieces} - {""}) > 1:
        raise Unmergeable("the pieces of a call differ in its name", ".tool_calls")
    return pieces[0].evolve(
        name=next((piece.name for piece in pieces if piece.name), ""),
        arguments="".join(piece.arguments for piece in pieces),
    )


_NUMBERS: Final = (int, float, Decimal)

_LAST: Final = (bool, *_NUMBERS, datetime, date, time, timedelta)
"""Of values of these, the last counts."""

_ALIKE: Final[Mapping[object, type[object]]] = {
    str: str,
    bytes: bytes,
    list: list,
    Sequence: list,
    MutableSequence: list,
    dict: dict,
    Mapping: dict,
    MutableMapping: dict,
}
"""The types that are merged as they are, and the class of their pieces."""

_BUILT_IN: Final[Mapping[type[object], Concat]] = {
    str: _join_text,
    bytes: _join_bytes,
    list: _extend,
    dict: _merge,
    Message: _join_messages,
}

CONCATS: Final = Concats()
"""The one registry: how pieces of a class go together is the same in all graphs of a process. It only grows."""


def _refuse_function(cls: type[object], fn: object) -> None:
    what = f"the concat of {cls.__qualname__}"
    if wrapped_tool(fn) is not None:
        raise RegistrationError(
            f"{what} is a plain function, and no tool: it would run without the approval that it asks for"
        )
    if not callable(fn):
        raise RegistrationError(f"{what} is a function of a list of pieces, not a {type(fn).__name__}")
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__) or is_generator(fn):
        raise RegistrationError(f"{what} is a plain function: it returns one value at once")
    try:
        inspect.signature(fn).bind([])
    except TypeError:
        raise RegistrationError(f"{what} must take one argument, the list of pieces") from None
    except ValueError:  # written in C: it does not tell
        return

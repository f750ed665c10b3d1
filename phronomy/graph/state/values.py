"""Values in untyped places, and what is lost of a value on its way through JSON."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections import deque
from collections.abc import Callable, Mapping, MutableSequence, Sequence, Set
from datetime import datetime, time, timezone
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, TzInfo, core_schema

from phronomy.foundation.json_text import MAX_DEPTH, JsonValue, clean
from phronomy.tools.arguments import is_exact

T = TypeVar("T")


class NotStorable(ValueError):
    """A value that cannot be stored: `path` leads to it from `root`, the value in the untyped place."""

    def __init__(self, why: str, path: str, root: object = None) -> None:
        super().__init__(why)
        self.why = why
        self.path = path
        self.root = root


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """Marks an untyped place of a type: any plain JSON value, and what is registered."""

    encode: Callable[[Any], JsonValue]
    decode: Callable[[JsonValue], object]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.json_or_python_schema(
            json_schema=core_schema.no_info_plain_validator_function(self.decode),
            python_schema=core_schema.any_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(self.encode),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, object]:
        return {}


def slotted(hint: Any, slot: Slot) -> Any:
    """The hint with each untyped place in it marked. What is inside a class, such as a model, is left as it is."""
    if hint is Any or hint is object:
        return Annotated[Any, slot]
    origin, args = get_origin(hint), get_args(hint)
    kind: Any = origin or hint
    if kind in (Sequence, MutableSequence):  # pydantic would keep a tuple as one, and JSON would not
        kind = list
        hint = list[Any] if not args else kind[args]
        args = get_args(hint)
    if not args:
        bare = {list: (Any,), dict: (str, Any), tuple: (Any, ...), set: (Any,), frozenset: (Any,)}.get(kind)
        return hint if bare is None or hint == tuple[()] else slotted(kind[bare], slot)
    if origin is Annotated:
        inner = slotted(args[0], slot)
        return hint if inner is args[0] else Annotated[(inner, *args[1:])]
    union = kind in (Union, types.UnionType)
    containers = ("builtins", "collections", "collections.abc")
    if not union and getattr(kind, "__module__", None) not in containers:
        return hint
    marked = tuple(arg if arg is Ellipsis else slotted(arg, slot) for arg in args)
    if all(one is other for one, other in zip(marked, args, strict=True)):
        return hint
    kind = Union if union else kind
    return kind[marked]


def cleaned(value: Any, depth: int = 0) -> Any:
    """The value with lone surrogates replaced in its strings, which JSON text cannot hold; the value itself if there are none."""
    if depth > MAX_DEPTH:  # it is refused for that
        return value
    if isinstance(value, str):
        return clean(value)
    if type(value) is dict:
        pairs = [(key, inner, cleaned(key, depth + 1), cleaned(inner, depth + 1)) for key, inner in value.items()]
        if all(key is new and inner is other for key, inner, new, other in pairs):
            return value
        return one_each({new: other for _, _, new, other in pairs}, value, "")
    if type(value) in (list, tuple, set, frozenset):
        items = [(item, cleaned(item, depth + 1)) for item in value]
        return value if all(item is new for item, new in items) else type(value)(new for _, new in items)
    return value


def one_each(cleaned: dict[Any, T], value: Mapping[object, object], path: str) -> dict[Any, T]:
    """The cleaned mapping, if it has kept all keys of the value."""
    if len(cleaned) != len(value):
        raise NotStorable("two of its keys become one, as their lone surrogates are replaced", path)
    return cleaned


def exact(hint: object) -> bool:
    """Whether JSON holds every value of the type as it is, lists of such included."""
    if is_exact(hint):
        return True
    return get_origin(hint) is list and exact(get_args(hint)[0])


def lost(one: object, other: object, path: str) -> str | None:
    """The path to the first value that is not the same in both; None if all are."""
    if one is other:
        return None
    if isinstance(one, str) and isinstance(other, str):
        return None if clean(one) == clean(other) else path
    parts, others = _parts(one), _parts(other)
    if parts is None or others is None:
        return None if _same(one, other) else path
    if type(one) is not type(other) and not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return path
    if any(getattr(one, name, None) != getattr(other, name, None) for name in _BESIDE):
        return path
    for key, (step, inner) in parts.items():
        found = lost(inner, others[key][1], path + step) if key in others else path + step
        if found is not None:
            return found
    return None if parts.keys() == others.keys() else path


def found_at(root: object, wanted: object, path: str) -> str:
    """The path from a value to another inside it; the path itself if it is not there."""
    todo, seen = [(root, path)], set()
    while todo:
        item, place = todo.pop()
        if item is wanted:
            return place
        if id(item) not in seen:
            seen.add(id(item))
            todo += [(inner, place + step) for step, inner in (_parts(item) or {}).values()]
    return path


def step_to(key: object) -> str:
    """Gives the step of a path to the value of a key."""
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r:.40}]"


def _parts(value: object) -> dict[object, tuple[str, object]] | None:
    """Gives the values inside a value, each with its step of the path; None for a value that is no container."""
    if isinstance(value, BaseModel):
        named = {name: inner for name, inner in value.__dict__.items() if name in type(value).model_fields}
        named |= {**(value.__pydantic_extra__ or {}), **(value.__pydantic_private__ or {})}
        return {name: (step_to(name), inner) for name, inner in named.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = dict.fromkeys([*(field.name for field in dataclasses.fields(value)), *getattr(value, "__dict__", ())])
        return {name: (step_to(name), getattr(value, name, None)) for name in names if not _is_derived(value, name)}
    if isinstance(value, Mapping):
        return {clean(key) if isinstance(key, str) else key: (step_to(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | deque):
        return {place: (f"[{place}]", inner) for place, inner in enumerate(value)}
    return None


def _zone(value: datetime | time) -> object:
    """The time zone: of one that has rules itself, of any other how far it is from UTC."""
    return value.utcoffset() if type(value.tzinfo) in (timezone, TzInfo, type(None)) else value.tzinfo


def _is_derived(value: object, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), functools.cached_property)


_BESIDE: Final = ("maxlen", "default_factory")
"""The members that a deque and a defaultdict have beside their items, and that their equality leaves out."""


def _same(one: object, other: object) -> bool:
    try:
        if isinstance(one, datetime | time) and isinstance(other, datetime | time):
            return one == other and (one.fold, _zone(one)) == (other.fold, _zone(other))
        if isinstance(one, Set) and isinstance(other, Set):
            found = {item: item for item in other}
            return one == other and all(lost(item, found[item], "") is None for item in one)
        if isinstance(one, float) and isinstance(other, float):
            return repr(one) == repr(other)
        return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
    except Exception:
        return False

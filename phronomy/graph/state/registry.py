"""The registry of types whose values may stand in untyped places of a state.

What stands where a type says `Any` is stored as it is if it is plain JSON. Anything else must be of a registered type, and is stored
under the name that the type was registered by:

    register_type(Order, "shop.Order")

Known from the start: `datetime`, `date`, `time`, `timedelta`, `UUID`, `Decimal`, `bytes`, `tuple`, `set` and `frozenset`. Nothing is
imported by name and nothing is pickled: what a stored name means, the process that reads it has said itself.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from inspect import Parameter as Signed
from typing import Any, Final, TypeVar
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import TzInfo

from phronomy.errors import RegistrationError, UnknownType
from phronomy.foundation.checks import is_series
from phronomy.foundation.json_text import MAX_DEPTH, JsonValue, canonical, clean
from phronomy.graph.state.values import NotStorable, Slot, lost, one_each, step_to
from phronomy.tools.arguments import Form, Owner
from phronomy.tools.parameters import Parameter

_TAG: Final = "$type"
"""The key of the object that stands for a value of a registered type. A user's object that has it is wrapped in one."""

_VALUE: Final = "value"

T = TypeVar("T")


def register_type(cls: type[object], name: str, aliases: Iterable[str] = ()) -> None:
    """Allow values of a class in untyped places of a state: a pydantic model, a dataclass or an enum.

    `name` is stored with each value, so it must stay the same while stored states are read. `aliases` are earlier
    names, which are also read as this class. Only values of exactly this class count, not of its subclasses. Call it
    before a state is read, best where the class is defined. You can call it from any thread.

    Raises `RegistrationError` if the class or a name is already registered, if the class is defined inside a function
    (another process could not find it), if it is of another kind, or if its values do not survive JSON.
    """
    REGISTRY.register(cls, name, aliases)


@dataclasses.dataclass(frozen=True, slots=True)
class _Codec:
    """The codec of one class. `write` and `read` are given a function for the values inside."""

    name: str
    write: Callable[[Any, Callable[[Any, str], JsonValue]], JsonValue]
    read: Callable[[JsonValue, Callable[[JsonValue], Any]], Any]


class Registry:
    """Classes and the names that their values are stored by."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Replaced as a whole, never changed: who reads needs no lock.
        self._by_class: Mapping[type[object], _Codec] = _BUILT_IN
        self._by_name: Mapping[str, _Codec] = {codec.name: codec for codec in _BUILT_IN.values()}

    def register(self, cls: type[object], name: str, aliases: Iterable[str] = ()) -> None:
        """See `register_type`."""
        names = _checked_names(cls, name, aliases)
        codec = _codec(cls, name)
        with self._lock:
            if cls in self._by_class:
                known = self._by_class[cls].name
                raise RegistrationError(f"{cls.__qualname__} is registered already, as {known!r}")
            taken = next((each for each in names if each in self._by_name or each in _RESERVED), None)
            if taken is not None:
                raise RegistrationError(f"the name {taken!r} is taken: choose another for {cls.__qualname__}")
            self._by_class = {**self._by_class, cls: codec}
            self._by_name = {**self._by_name, **dict.fromkeys(names, codec)}

    def encode(self, value: object) -> JsonValue:
        """The plain JSON of a value in an untyped place. Raises `NotStorable`."""
        try:
            return self._encode(value, "", 1)
        except NotStorable as error:
            error.root = value
            raise

    def decode(self, value: JsonValue) -> object:
        """Reads a value from plain JSON. Raises `UnknownType`, and `ValueError` for JSON that `encode` never makes."""
        try:
            return self._decode(value)
        except (UnknownType, ValueError):
            raise
        except Exception as error:  # what a class makes of a text that is none of its own
            raise ValueError(f"a stored value cannot be read ({type(error).__name__})") from None

    def _decode(self, value: JsonValue) -> object:
        if isinstance(value, list):
            return [self._decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        if _TAG not in value:
            return {key: self._decode(inner) for key, inner in value.items()}
        name = value[_TAG]
        if list(value) != [_TAG, _VALUE] or not isinstance(name, str):
            raise ValueError(
                f"an object with the key {_TAG!r} must have the keys {_TAG!r} and {_VALUE!r}, and no others"
            )
        inner = value[_VALUE]
        if name == "dict":
            return {key: self._decode(part) for key, part in _of(dict, inner).items()}
        if name == "map":
            return {self._decode(key): self._decode(part) for key, part in _of(list, inner)}
        codec = self._by_name.get(name)
        if codec is None:
            raise UnknownType(
                f"the state holds a value of the type {name[:80]!r}, which is not registered here: call"
                f" register_type(cls, {name[:80]!r}) before it is read",
                name=name,
            )
        return codec.read(inner, self._decode)

    def _encode(self, value: Any, path: str, depth: int) -> JsonValue:
        kind = type(value)
        if kind is float and not math.isfinite(value):
            raise NotStorable("JSON holds no infinite number, and none that is not a number", path)
        if value is None or kind in (int, float, bool):
            plain: JsonValue = value
            return plain
        if kind is str:
            return clean(value)
        if depth > MAX_DEPTH:
            raise NotStorable(f"nested deeper than {MAX_DEPTH}", path)

        def inside(part: Any, step: str) -> JsonValue:
            return self._encode(part, path + step, depth + 1)

        if kind is list:
            return [inside(item, f"[{place}]") for place, item in enumerate(value)]
        if kind is dict:
            if not all(type(key) is str for key in value):
                return {_TAG: "map", _VALUE: [[inside(k, ""), inside(part, step_to(k))] for k, part in value.items()]}
            plain_object = {clean(key): inside(part, step_to(key)) for key, part in value.items()}
            one_each(plain_object, value, path)
            return {_TAG: "dict", _VALUE: plain_object} if _TAG in value else plain_object
        codec = self._by_class.get(kind)
        if codec is None:
            raise NotStorable(
                f"a value of type {kind.__qualname__} is neither plain JSON nor of a registered type: return plain values, declare"
                " the type of the channel, or call register_type",
                path,
            )
        return {_TAG: codec.name, _VALUE: self._written(codec, value, path, inside)}

    def _written(self, codec: _Codec, value: object, path: str, inside: Callable[[Any, str], JsonValue]) -> JsonValue:
        kind = type(value).__qualname__
        try:
            written = codec.write(value, inside)
            if type(value) in _HOLDERS:  # of what they hold, each has been looked at
                return written
            differs = lost(value, codec.read(written, self._decode), "")
        except NotStorable as error:
            error.path = error.path or path
            raise
        except Exception as error:  # a validator of the user's, or pydantic on what is not of the type
            raise NotStorable(f"the {kind} cannot be written and read back ({type(error).__name__})", path) from error
        if differs is not None:
            raise NotStorable(f"what is there of the {kind} is lost when it is written and read back", path + differs)
        return written


def _of(kind: type[T], value: JsonValue) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"a stored value has a {type(value).__name__} where it should have a {kind.__name__}")
    return value


def _checked_names(cls: object, name: str, aliases: Iterable[str]) -> list[str]:
    if not isinstance(cls, type):
        raise RegistrationError(f"a class is registered, not a {type(cls).__name__}")
    if "<locals>" in cls.__qualname__:
        raise RegistrationError(f"{cls.__qualname__} is defined in a function: move it to the top of a module")
    if not is_series(aliases):
        raise RegistrationError(f"aliases of {cls.__qualname__} are a list of names, not {type(aliases).__name__}")
    names = [name, *aliases]
    if not all(isinstance(each, str) and each.strip() for each in names):
        raise RegistrationError(f"the names of {cls.__qualname__} must be text that is not empty")
    if len({*names}) != len(names):
        raise RegistrationError(f"a name of {cls.__qualname__} is given twice")
    return names


def _codec(cls: type[object], name: str) -> _Codec:
    if issubclass(cls, enum.Flag):
        return _Codec(name, lambda value, _: value.value, lambda value, _: cls(_of(int, value)))
    if issubclass(cls, enum.Enum):
        members = cls.__members__
        return _Codec(name, lambda value, _: value.name, lambda value, _: _member(members, value))
    if not issubclass(cls, BaseModel) and not dataclasses.is_dataclass(cls):
        raise RegistrationError(
            f"{cls.__qualname__} is neither a pydantic model nor a dataclass nor an enum: make it one"
        )
    owner = Owner(f"type {cls.__qualname__}", "the class", RegistrationError, "be stored")
    form = Form(owner, (Parameter(_VALUE, cls, Signed.empty),))
    form.check()
    return _Codec(
        name,
        lambda value, _: form.dump(form.filled({_VALUE: value}))[_VALUE],
        lambda value, _: form.values(form.load(canonical({_VALUE: value})))[_VALUE],
    )


def _member(members: Mapping[str, object], name: JsonValue) -> object:
    if not isinstance(name, str) or name not in members:
        raise ValueError("an enum has no such member")
    return members[name]


def _items(value: Iterable[object], inside: Callable[[Any, str], JsonValue]) -> list[JsonValue]:
    return [inside(item, f"[{place}]") for place, item in enumerate(value)]


def _sorted(value: Iterable[object], inside: Callable[[Any, str], JsonValue]) -> list[JsonValue]:
    """The items of a set, whose own order differs from process to process."""
    return sorted((inside(item, "") for item in value), key=canonical)


def _zoned(value: Any) -> str:
    if value.tzinfo is not None and type(value.tzinfo) not in (timezone, TzInfo):
        raise NotStorable("a time zone with rules does not survive JSON: use .astimezone(UTC), or a fixed offset", "")
    if value.fold:
        raise NotStorable("a time with fold=1 does not survive JSON: use UTC", "")
    return str(value.isoformat())


def _built_in(
    cls: type[object], write: Callable[[Any], JsonValue], read: Callable[[Any], object], stored: type[object] = str
) -> tuple[type[object], _Codec]:
    return cls, _Codec(cls.__name__, lambda value, _: write(value), lambda value, _: read(_of(stored, value)))


_BUILT_IN: Final[Mapping[type[object], _Codec]] = dict(
    (
        _built_in(datetime, _zoned, datetime.fromisoformat),
        _built_in(date, date.isoformat, date.fromisoformat),
        _built_in(time, _zoned, time.fromisoformat),
        _built_in(
            timedelta,
            lambda value: [value.days, value.seconds, value.microseconds],
            lambda parts: timedelta(*parts),
            list,
        ),
        _built_in(UUID, str, UUID),
        _built_in(Decimal, str, Decimal),
        _built_in(
            bytes, lambda value: base64.b64encode(value).decode(), lambda text: base64.b64decode(text, validate=True)
        ),
        (tuple, _Codec("tuple", _items, lambda items, decode: tuple(map(decode, _of(list, items))))),
        (set, _Codec("set", _sorted, lambda items, decode: {*map(decode, _of(list, items))})),
        (frozenset, _Codec("frozenset", _sorted, lambda items, decode: frozenset(map(decode, _of(list, items))))),
    )
)

_HOLDERS: Final = (tuple, set, frozenset)

_RESERVED: Final = frozenset({"dict", "map"})
"""Names of what is no class of its own: an object that has the key of the envelope, and one whose keys are no strings."""

REGISTRY: Final = Registry()
"""The one registry: what a name means is the same in all graphs of a process. It only grows, and only by `register_type`."""

SLOT: Final = Slot(REGISTRY.encode, REGISTRY.decode)

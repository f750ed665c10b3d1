"""The standard library's `dataclass`, made faster: `import phronomy` makes more than a hundred of them.

The standard library compiles up to seven functions for each frozen class, one by one, which was a third of the time of the import.
Of these one is compiled here, `__init__`, and only once the class is used. The others are closures over the names of the fields.
What reads dataclasses (`fields`, `replace`, `copy`, `pickle`, pydantic) finds what it knows:
https://docs.python.org/3/library/dataclasses.html
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  # exported
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True):
        """The standard library's `dataclass`, with those of its options that are used here."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq)
        if not frozen or any(dataclasses.is_dataclass(base) for base in cls.__bases__):  # few: not worth a second way
            return dataclasses.dataclass(cls, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq)
        cls = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
        cls.__dataclass_params__.frozen = True  # so that a frozen class may inherit from it
        each = dataclasses.fields(cls)
        names = tuple(field.name for field in each)
        made = {}
        if eq:
            hashed = [field.name for field in each if (field.compare if field.hash is None else field.hash)]
            made["__eq__"] = _eq(_values([field.name for field in each if field.compare]))
            made["__hash__"] = _hash(_values(hashed))
        made |= {"__setattr__": _refuse("assign to", cls, names), "__delattr__": _refuse("delete", cls, names)}
        for name, function in made.items():
            function.__name__, function.__qualname__ = name, f"{cls.__qualname__}.{name}"
            function.__module__ = cls.__module__
        made["__repr__"] = _repr
        if slots:  # the default restores slots by assignment
            made |= {"__getstate__": _getstate, "__setstate__": _setstate}
        for name, function in made.items():
            # What the class says itself stays. One that has `__eq__` has None for a hash.
            if cls.__dict__.get(name) is None:
                setattr(cls, name, function)
        if "__init__" not in cls.__dict__:
            cls.__init__ = _Init(cls)
        return cls


class _Made:
    """Stands in a signature for a value that is made anew for each object."""

    def __repr__(self) -> str:
        return "<factory>"


class _Init:
    """Stands for the `__init__` of a class until somebody asks for it: a program uses about a third of the classes that it imports."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type) -> Callable[..., None]:
        made = _init(self._cls)
        self._cls.__init__ = made  # type: ignore[misc]  # threads that are first at once each make one: they are alike
        bound: Callable[..., None] = made.__get__(instance, owner)
        return bound


def _init(cls: type) -> Callable[..., None]:
    """The only function that is compiled: its parameters are the fields."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_made": _Made()}
    plain: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        parameter = name
        if field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = field.default_factory
            parameter, value = f"{name}=_made", f"_make_{name}() if {name} is _made else {name}"
        (named if field.kw_only else plain).append(parameter)
        body.append(f"  _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("  self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*", *named] if named else [])])
    lines = [
        f"def made({', '.join(known)}):",
        f" def __init__({parameters}):",
        *(body or ["  pass"]),
        " return __init__",
    ]
    made: dict[str, Any] = {}
    # The globals are those of the class: whoever reads its annotations resolves them there.
    exec("\n".join(lines), vars(sys.modules[cls.__module__]), made)  # noqa: S102  # the names are of fields
    init: Callable[..., None] = made["made"](**known)
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {**{field.name: field.type for field in dataclasses.fields(cls)}, "return": None}
    return init


def _values(names: list[str]) -> Callable[[Any], tuple[object, ...]]:
    """Reads these fields of an object."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


# These three all classes share, since they ask for the fields anew: of each that is made for a class the collector of garbage has
# a dozen objects to look at, again and again, and nobody waits for them.


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _getstate(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _setstate(self: Any, state: list[object]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _eq(compared: Callable[[Any], tuple[object, ...]]) -> Callable[[Any, object], bool]:
    def made(self: Any, other: object) -> bool:
        return compared(self) == compared(other) if type(other) is type(self) else NotImplemented

    return made


def _hash(hashed: Callable[[Any], tuple[object, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(hashed(self))


def _refuse(verb: str, cls: type, names: tuple[str, ...]) -> Callable[..., None]:
    """No field is assigned to, or deleted; what a class that inherits has of its own may be."""
    act = "__setattr__" if verb == "assign to" else "__delattr__"

    def made(self: object, name: str, *value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")
        getattr(super(cls, self), act)(name, *value)

    return made

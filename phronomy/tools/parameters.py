"""The parameters of a function, read from its signature: those that a model fills, and the one for the context."""

from __future__ import annotations

import builtins
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import Field

from phronomy.errors import ConfigurationError, ToolDefinitionError
from phronomy.foundation.checks import check_no_tool
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import clean


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that the model fills. `default` is `inspect.Parameter.empty` where there is none."""

    name: str
    hint: object
    default: object
    told: str | None = None
    """Its description, if it stands in the type hint."""

    @property
    def has_default(self) -> bool:
        """True if the signature gives a value for it."""
        return self.default is not inspect.Parameter.empty


def parameters_of(owner: str, body: Callable[..., object], injected: type) -> tuple[tuple[Parameter, ...], str | None]:
    """The parameters that the model fills, and the name of the one annotated with `injected`, if there is one."""
    try:
        signature = inspect.signature(body)
    except (ValueError, TypeError, NameError) as error:
        raise ToolDefinitionError(f"tool {owner}: its signature cannot be read ({error}); write another") from error
    found: list[Parameter] = []
    context: str | None = None
    for parameter in signature.parameters.values():
        _refuse_shape(owner, parameter)
        hint = _resolve(owner, body, parameter)
        if not _is_injected(hint, injected):
            hint, told = _told_apart(hint)
            found.append(Parameter(parameter.name, hint, parameter.default, told))
        elif context is not None:
            both = f"{context!r} and {parameter.name!r}"
            raise ToolDefinitionError(f"tool {owner}: {both} both ask for the context; keep one")
        else:
            context = parameter.name
    return tuple(found), context


def takes_context(function: Callable[..., object], what: str, first: str, error: type[ConfigurationError]) -> bool:
    """Say whether the function takes a context after its `first` arguments: one that it needs, or one called `context` or `ctx`."""
    try:
        check_no_tool(function)
    except ConfigurationError as fault:
        raise error(f"{what}: {fault}") from None
    names = first.split(", ")
    if len(names) == 1 and _takes_one(function):  # most do, and to read a signature takes long
        return False
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError) as fault:
        raise error(f"{what}: its signature cannot be read; wrap it in a function of ({first})") from fault
    places = [
        each
        for each in signature.parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    more = places[len(names)] if len(places) > len(names) else None
    takes = more is not None and (more.default is more.empty or more.name in ("context", "ctx"))
    try:
        signature.bind(*names, *([more] if takes else []))
    except TypeError as fault:
        raise error(f"{what} must take ({first}) or ({first}, context), but it takes {signature}") from fault
    return takes


def _takes_one(function: object) -> bool:
    """Say whether this is plainly a function of one positional parameter."""
    if type(function) is not types.FunctionType or function.__dict__:  # a wrapper has the wrapped function in it
        return False
    code = function.__code__
    others = code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return code.co_argcount == 1 and not others


def _refuse_shape(owner: str, parameter: inspect.Parameter) -> None:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ToolDefinitionError(f"tool {owner}: {parameter} cannot be described to a model; name each parameter")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolDefinitionError(f"tool {owner}: parameter {name!r} is positional-only; take out the '/'")
    if name.startswith("_"):
        raise ToolDefinitionError(f"tool {owner}: parameter {name!r} begins with an underscore; rename it")
    if parameter.annotation is parameter.empty:
        raise ToolDefinitionError(
            f"tool {owner}: parameter {name!r} has no type hint; add one, such as '{name}: str'"
            + ("; for a method pass the bound one, as in tools=[desk.refund]" if name in ("self", "cls") else "")
        )


def _resolve(owner: str, body: Callable[..., object], parameter: inspect.Parameter) -> object:
    """The type that the hint of the parameter means."""
    function: Callable[..., object] = inspect.unwrap(getattr(body, "__func__", body))
    names = getattr(function, "__globals__", {})
    # Types defined in a function are no globals. Its frame still runs while a decorator or a constructor in it does.
    local = {**_defining_locals(function), **_closure(function)}
    hint = parameter.annotation
    if isinstance(hint, str):
        hint = next((each[hint] for each in (local, names, vars(builtins)) if hint in each), hint)
    if type(hint) is type:  # a plain class stands for itself, and most are: to evaluate one takes ten times as long
        return hint

    def holder() -> None: ...

    holder.__annotations__ = {parameter.name: parameter.annotation}
    try:
        hints: dict[str, object] = typing.get_type_hints(holder, names, local, include_extras=True)
        return hints[parameter.name]
    except Exception as error:
        raise ToolDefinitionError(
            f"tool {owner}: the type hint {parameter.annotation!r} of parameter {parameter.name!r} cannot be resolved "
            f"({error}); import or define the type where the tool is defined, and not only for type checking"
        ) from error


def _told_apart(hint: object) -> tuple[object, str | None]:
    """The hint without a text or a `Doc` that `Annotated` has for people, and that text."""
    if get_origin(hint) is not Annotated:
        return _describing(hint), None
    kind, *marks = get_args(hint)
    texts = [text for mark in marks if (text := _text_of(mark)) is not None]
    rest = [mark for mark in marks if _text_of(mark) is None]
    kind = _describing(kind)
    return (Annotated[kind, *rest] if rest else kind), (texts[0] if texts else None)


def _describing(hint: object) -> object:
    """The hint with the texts in its parts where pydantic reads them."""
    parts = get_args(hint)
    origin = get_origin(hint)
    if origin is Annotated:
        kind, *marks = parts
        told = [Field(description=text) if (text := _text_of(mark)) is not None else mark for mark in marks]
        return Annotated[_describing(kind), *told]
    generic: Any = next((each for each in (list, dict, set, frozenset, tuple) if each is origin), None)
    if generic is None and origin not in (Union, types.UnionType):
        return hint
    inner = tuple(map(_describing, parts))
    if all(one is other for one, other in zip(inner, parts, strict=True)):
        return hint
    return Union[inner] if generic is None else generic[inner]  # noqa: UP007  # it is made of values


def _text_of(mark: object) -> str | None:
    """The description that a mark of `Annotated` is: a text, or what PEP 727 has for it."""
    if isinstance(mark, str):
        return clean(mark).strip() or None
    text = getattr(mark, "documentation", None) if type(mark).__name__ == "Doc" else None
    return clean(text).strip() or None if isinstance(text, str) else None


def _closure(function: Callable[..., object]) -> dict[str, object]:
    found: dict[str, object] = {}
    names = function.__code__.co_freevars if hasattr(function, "__code__") else ()
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _defining_locals(function: Callable[..., object]) -> dict[str, object]:
    found: dict[str, object] = {}
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    outer, nested, _ = getattr(function, "__qualname__", "").rpartition(".<locals>.")
    while nested:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and (frame.f_code.co_qualname, frame.f_code.co_filename) != (outer, file):
            frame = frame.f_back
        found = {**(frame.f_locals if frame else {}), **found}
        outer, nested, _ = outer.rpartition(".<locals>.")
    return found


def _is_injected(hint: object, injected: type) -> bool:
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_injected(get_args(hint)[0], injected)
    if origin in (Union, types.UnionType):
        return any(_is_injected(part, injected) for part in get_args(hint))
    kind = origin or hint
    return isinstance(kind, type) and issubclass(kind, injected)

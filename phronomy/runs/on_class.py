"""Methods of a class and of its objects: `Desk.invoke("...")` runs the one agent that the class makes of itself."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import update_wrapper, wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from phronomy.errors import ConfigurationError

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class OnClass(Generic[P, R_co]):
    """A method that an object and its class both have.

    On an object it is an ordinary method. On a class it is called on the one object that the class makes of itself,
    without arguments, at the first call. So runs that are begun and resumed on the class find each other, also where the
    class has no store of its own. Raises `ConfigurationError` if the class needs arguments to make an object.
    """

    def __init__(self, method: Callable[Concatenate[Any, P], R_co]) -> None:
        self._method = method
        update_wrapper(self, method)  # type: ignore[arg-type]  # a descriptor that is documented as its method is

    def __get__(self, instance: object | None, owner: type[Any]) -> Callable[P, R_co]:
        if instance is not None:
            return cast("Callable[P, R_co]", MethodType(self._method, instance))
        method: Callable[..., Any] = self._method

        # Made anew each time that it is asked for, and nothing else: documentation and tests look at a class without
        # having it make an object.
        def called(*args: Any, **options: Any) -> Any:
            # `Desk.invoke(desk, "...")` is the way in which a class calls any of its methods on an object of its own.
            mine = (args[0], *args[1:]) if args and isinstance(args[0], owner) else (own_of(owner), *args)
            return method(*mine, **options)

        async def acalled(*args: Any, **options: Any) -> Any:
            return await cast("Awaitable[Any]", called(*args, **options))

        return cast("Callable[P, R_co]", wraps(method)(acalled if inspect.iscoroutinefunction(method) else called))


def own_of(owner: type[Any]) -> object:
    """The one object that a class makes of itself, if its options are as they were then. Raises `ConfigurationError`."""
    # Of each class its own: a subclass has other tools. In a dict, whose `setdefault` is one step: of two threads that
    # are first at once, both get the same object.
    if "_own" not in owner.__dict__:
        raise ConfigurationError(
            f"{owner.__name__} itself runs nothing: make an object of it, and call the method on that. Only a class of an"
            " agent, such as `class Desk(Agent): ...`, can be called by itself"
        )
    own: dict[str, tuple[object, dict[str, object]]] = owner._own
    written: dict[str, object] = owner._written()
    if (found := own.get("agent")) is not None:
        # An object says so where its attribute is set. A class cannot, and a gate that was set too late must not be taken for one.
        if changed := [name for name, value in written.items() if found[1].get(name) is not value]:
            raise ConfigurationError(
                f"{owner.__name__} has run, so its configuration is fixed, and {changed[0]} was changed since:"
                f" set it before the first call, or make an agent, {owner.__name__}(), and call the method on that. Nothing was done"
            )
        return found[0]
    try:
        inspect.signature(owner).bind()
    except TypeError as error:
        raise ConfigurationError(
            f"{owner.__name__} needs arguments to make an agent ({error}): make one, and call the method on it"
        ) from None
    return own.setdefault("agent", (owner(), written))[0]

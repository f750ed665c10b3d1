"""Closing async generators, by those who own them and by nobody else."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Generic, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class aclosing(Generic[T]):  # as that of contextlib, which it stands in for
    """As `contextlib.aclosing`, for a generator that the event loop does not get to know.

    A loop that ends closes all generators it knows at once. One that is just being closed by its owner fails then, and what it
    had to do at its end is not done: a stream that was left open would keep its run.
    """

    def __init__(self, generator: AsyncGenerator[T]) -> None:
        self._generator = generator
        self._begun = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[object, None, T]:
        if self._begun:
            return self._generator.__anext__()
        self._begun = True
        with _unheard():
            return self._generator.__anext__()

    def athrow(self, *error: Any) -> Coroutine[object, None, T]:
        """Raise an error where the generator stands."""
        with _unheard():
            return self._generator.athrow(*error)

    def aclose(self) -> Coroutine[object, None, None]:
        """End the generator."""
        with _unheard():
            return self._generator.aclose()


def acontextmanager(
    function: Callable[P, AsyncIterator[T]],
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """As `contextlib.asynccontextmanager`, of a generator that the event loop does not get to know."""
    make = asynccontextmanager(function)

    @functools.wraps(function)
    def manage(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        manager: Any = make(*args, **kwargs)
        manager.gen = aclosing(manager.gen)
        found: AbstractAsyncContextManager[T] = manager
        return found

    return manage


@contextmanager
def _unheard() -> Iterator[None]:
    """No event loop is told of generators that are begun meanwhile."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        yield
    finally:
        sys.set_asyncgen_hooks(*hooks)

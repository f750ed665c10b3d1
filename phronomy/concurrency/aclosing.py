"""Closing async generators, by those who own them and by nobody else."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


class aclosing(Generic[T]):  # as that of contextlib, which it stands in for
    """As `contextlib.aclosing`, for a generator that the event loop does not get to know.

    A loop that ends closes all generators it knows at once. One that is just being closed by its owner fails then, and what it
    had to do at its end is not done: a stream that was left open would keep its run.
    """

    def __init__(self, generator: AsyncGenerator[T]) -> None:
        self._generator = generator

    async def __aenter__(self) -> AsyncGenerator[T]:
        # The generator asks for the hooks of the loop when it is first told what to do. That is its end, which is awaited last.
        self._end = _unheard(self._generator.aclose)
        return self._generator

    async def __aexit__(self, *raised: object) -> None:
        await self._end


def _unheard(step: Callable[P, S], *args: P.args, **kwargs: P.kwargs) -> S:
    """Tell a generator what to do. If that is the first thing, it asks for the loop's hooks, and finds none."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return step(*args, **kwargs)
    finally:
        sys.set_asyncgen_hooks(*hooks)


class _Managed(Generic[T]):
    """A generator in a context manager."""

    def __init__(self, generator: AsyncGenerator[T]) -> None:
        self._generator = generator
        self.aclose = generator.aclose

    def __anext__(self) -> Coroutine[object, None, T]:
        return _unheard(self._generator.__anext__)

    def athrow(self, *error: Any) -> Coroutine[object, None, T]:
        """Raise an error where the generator stands; if it has ended, raise it at once, as a sync generator does."""
        if getattr(self._generator, "ag_frame", self) is None:  # the collector of garbage ends generators in any order
            raise next(each for each in error if isinstance(each, BaseException))
        return self._generator.athrow(*error)


def acontextmanager(
    function: Callable[P, AsyncIterator[T]],
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """As `contextlib.asynccontextmanager`, of a generator that the event loop does not get to know."""
    make = asynccontextmanager(function)

    @functools.wraps(function)
    def manage(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        manager: Any = make(*args, **kwargs)
        manager.gen = _Managed(manager.gen)
        found: AbstractAsyncContextManager[T] = manager
        return found

    return manage

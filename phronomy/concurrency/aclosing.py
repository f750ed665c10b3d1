"""Closing async generators, by those who own them and by nobody else."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import Context, copy_context
from typing import Any, Final, Generic, ParamSpec, TypeVar

from phronomy.foundation.lazy_modules import asyncio

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
    return _hooked(None, _leave, step, *args, **kwargs)


def _leave(generator: AsyncGenerator[object]) -> None:
    """Do nothing. Without this, the collector of garbage would close what the outermost generator is about to close, in any order."""


def _hooked(
    first: Callable[[AsyncGenerator[Any]], None] | None,
    last: Callable[[AsyncGenerator[Any]], None],
    step: Callable[P, S],
    *args: P.args,
    **kwargs: P.kwargs,
) -> S:
    """Tell a generator what to do. If that is the first thing, it is given to `first`, and to `last` when it is dropped."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(first, last)
    try:
        return step(*args, **kwargs)
    finally:
        sys.set_asyncgen_hooks(*hooks)


def closed_if_dropped(step: Callable[P, S], *args: P.args, **kwargs: P.kwargs) -> S:
    """Tell an outermost generator what to do. If that is the first thing, the loop closes it once it is dropped, or as the loop ends.

    Where the loop is closed by then, nothing is done.
    """
    # Garbage is found anywhere, perhaps in the body of a tool of another run. It is closed in the context that it was begun in.
    last = functools.partial(_hand_over, asyncio.get_running_loop(), copy_context())
    return _hooked(sys.get_asyncgen_hooks().firstiter, last, step, *args, **kwargs)


_AFTER_GARBAGE: Final = 0.1
"""Seconds after which a generator is closed that was dropped in another thread. The collector of garbage may be at work there, and has
ended by then. A generator inside that is just being closed would be closed by it once more: such a one does not ask for `last`."""


def _hand_over(loop: asyncio.AbstractEventLoop, context: Context, generator: AsyncGenerator[object]) -> None:
    with suppress(RuntimeError):  # the loop is closed
        if asyncio._get_running_loop() is loop:
            loop.call_soon(_close, loop, generator, context=context)
        else:
            loop.call_soon_threadsafe(lambda: loop.call_later(_AFTER_GARBAGE, _close, loop, generator, context=context))


def _close(loop: asyncio.AbstractEventLoop, generator: AsyncGenerator[object]) -> None:
    task = loop.create_task(_Closing(generator))
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # nobody knows of it who could have waited for it


class _Closing(Coroutine[object, object, None]):
    """Closes a generator that was dropped. It begins even if its task is cancelled before that, as `asyncio.run` does at its end.

    The bare `aclose()` that asyncio makes a task of is then told to close the generator twice, in Python 3.11.
    """

    def __init__(self, generator: AsyncGenerator[object]) -> None:
        self._generator = generator
        self._work: Coroutine[object, object, None] | None = None

    async def _run(self) -> None:
        with suppress(Exception):  # nobody is there to hear of it
            await self._generator.aclose()

    def send(self, value: object) -> object:
        """Go on."""
        if self._work is None:
            self._work = self._run()
        return self._work.send(value)

    def throw(self, *error: Any) -> object:
        """Be cancelled."""
        return self.send(None) if self._work is None else self._work.throw(*error)

    def close(self) -> None:
        """Stop."""
        if self._work is not None:
            self._work.close()

    def __await__(self) -> Generator[object, object, None]:
        raise NotImplementedError("it is for a task")


class _Managed(Generic[T]):
    """A generator in a context manager."""

    def __init__(self, generator: AsyncGenerator[T]) -> None:
        self._generator = generator
        self.aclose, self.athrow = generator.aclose, generator.athrow

    def __anext__(self) -> Coroutine[object, None, T]:
        return _unheard(self._generator.__anext__)


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

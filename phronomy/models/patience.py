"""Asking a model for as long as somebody waits for the answer: sync in a thread of its own, async in the caller's task.

A provider that sends a blank now and then keeps every read from timing out. So what is bounded is the whole: one attempt here, by
whoever knows what one is, and all of them by the patience of the request. A thread cannot be stopped; that of an attempt that was
left is told by `patience`, and ends with the next piece of the answer, or when none comes for too long.
"""

from __future__ import annotations

import queue
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from phronomy.concurrency.aclosing import aclosing
from phronomy.concurrency.leaving import Left, Overran, Patience
from phronomy.concurrency.workers import in_thread, result_in, spawn, take_from
from phronomy.foundation.lazy_modules import asyncio
from phronomy.models.base import ModelRequest

T = TypeVar("T")

_CLOSING: Final = 1.0
"""Seconds that a stream has to close, where nobody waits for more of it."""


def in_time(ask: Callable[[ModelRequest], T], request: ModelRequest, timeout: float | None) -> T:
    """Run `ask` in a thread of its own and return its result, within `timeout` seconds. Raises `Overran`, `Left`."""
    with _attempt(request, timeout) as mine:
        return in_thread(partial(ask, mine), mine.patience.left(), mine.patience.leave)


async def ain_time(ask: Callable[[ModelRequest], Awaitable[T]], request: ModelRequest, timeout: float | None) -> T:
    """As `in_time`, in this task: what it awaits is cancelled, and gone when this returns."""
    with _attempt(request, timeout) as mine:
        return await _waited(ask(mine), mine.patience)


def pieces_in_time(
    stream: Callable[[ModelRequest], Generator[T]], request: ModelRequest, timeout: float | None
) -> Generator[T]:
    """Yield the pieces of a stream, all read in one thread. The time in which nobody asks for the next piece does not count."""
    asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
    box: queue.SimpleQueue[tuple[tuple[T] | None, BaseException | None]] = queue.SimpleQueue()

    def draw() -> None:
        with closing(stream(mine)) as pieces:
            while asked.get():
                for piece in pieces:
                    box.put(((piece,), None))
                    break
                else:
                    return

    with _attempt(request, timeout) as mine, mine.patience.leave.told(lambda: box.put((None, Left()))):
        spawn(draw, box.put)
        try:
            while True:
                asked.put(True)
                if (found := result_in(_taken(box, mine.patience))) is None:
                    return
                paused = time.monotonic()
                try:
                    yield found[0]
                except BaseException:
                    asked.put(False)  # it waits to be asked: when this returns, the stream is closed
                    with suppress(queue.Empty):  # unless the process ends, and its threads are gone
                        box.get(timeout=_CLOSING)
                    raise
                mine.patience.extend(time.monotonic() - paused)
        finally:
            asked.put(False)


async def apieces_in_time(
    stream: Callable[[ModelRequest], AsyncGenerator[T]], request: ModelRequest, timeout: float | None
) -> AsyncGenerator[T]:
    """As `pieces_in_time`, in the task of whoever asks."""
    with _attempt(request, timeout) as mine:
        async with aclosing(stream(mine)) as pieces:
            while True:
                try:
                    piece = await _waited(anext(pieces), mine.patience)
                except StopAsyncIteration:
                    return
                paused = time.monotonic()
                yield piece
                mine.patience.extend(time.monotonic() - paused)


def still(parts: Iterable[T], patience: Patience) -> Iterator[T]:
    """The parts of an answer, for as long as somebody waits for it. Raises `Left`, `Overran`."""
    for part in parts:
        patience.check()
        yield part


def pause(patience: Patience, seconds: float) -> None:
    """Wait before the next attempt. Raises `Left`, `Overran` once nobody waits for that."""
    woken: queue.SimpleQueue[None] = queue.SimpleQueue()
    left = patience.left()
    with patience.leave.told(lambda: woken.put(None)), suppress(queue.Empty):
        take_from(woken, seconds if left is None else min(seconds, left))
    patience.check()


async def apause(patience: Patience, seconds: float) -> None:
    """As `pause`."""
    await _waited(asyncio.sleep(seconds), patience)


@contextmanager
def _attempt(request: ModelRequest, timeout: float | None) -> Iterator[ModelRequest]:
    """The request of one attempt. When the block is left, whatever still runs of it hears that nobody waits for it."""
    patience = request.patience.at_most(timeout)
    with request.patience.leave.told(patience.leave.now):
        try:
            patience.check()
            yield replace(request, patience=patience)
        finally:
            patience.leave.now()


async def _waited(work: Awaitable[T], patience: Patience) -> T:
    """Await the work. Raises `Left`, `Overran`; a timeout that it raises itself stays what it is."""
    loop = asyncio.get_running_loop()

    def leave() -> None:
        with suppress(RuntimeError):  # it is no longer waited for
            bound.reschedule(loop.time())

    def tell() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(leave)

    bound = asyncio.timeout(patience.left())
    try:
        async with bound:
            with patience.leave.told(tell):
                return await work
    except TimeoutError:
        if bound.expired():
            patience.check()
        raise


def _taken(
    box: queue.SimpleQueue[tuple[T | None, BaseException | None]], patience: Patience
) -> tuple[T | None, BaseException | None]:
    try:
        return take_from(box, patience.left())
    except queue.Empty:
        raise Overran("its time was over") from None

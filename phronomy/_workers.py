"""Threads and tasks for what runs beside the driver: tools with a time limit, and several calls at once."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Sequence,
)
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from phronomy.tools import ToolCancelled

T = TypeVar("T")


class Overran(Exception):
    """A tool was still running when its timeout was over."""


def in_thread(work: Callable[[], T], timeout: float | None) -> T:
    """What `work` gives, from a thread of its own; `Overran` if it takes longer. A thread cannot be stopped: it goes on."""
    box: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
    _spawn(work, box.put)
    try:
        return _opened(box.get(timeout=timeout))
    except queue.Empty:
        raise Overran(f"still running after {timeout} s") from None


async def ain_thread(work: Callable[[], T], timeout: float | None) -> T:
    """As `in_thread`, without holding up the event loop."""
    loop = asyncio.get_running_loop()
    box: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

    def deliver(item: tuple[T | None, BaseException | None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if box.done() else box.set_result(item))

    _spawn(work, deliver)
    return _opened(await within(box, timeout))


async def within(work: Awaitable[T], timeout: float | None) -> T:
    """What `work` gives; `Overran` if it takes longer. A timeout that the work raises by itself stays what it is."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    if task.cancelled():
        raise ToolCancelled("it was cancelled from within")
    if done:
        return task.result()
    task.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody waits for it any more
    task.cancel()
    raise Overran(f"still running after {timeout} s")


def side_by_side(work: Sequence[Callable[[], T]]) -> Generator[T]:
    """What each piece of work gives, as it comes in. One that raises does so once the others are through."""
    box: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
    for piece in work:
        _spawn(piece, box.put)
    raised: BaseException | None = None
    for _ in work:
        item = box.get()
        if item[1] is not None:
            raised = item[1]
            continue
        yield _opened(item)
    if raised is not None:
        raise raised


async def aside_by_side(work: Iterable[Coroutine[Any, Any, T]]) -> AsyncGenerator[T]:
    """As `side_by_side`, in tasks. Leaving early cancels those that still run, and waits until they are gone."""
    tasks = {asyncio.ensure_future(piece) for piece in work}
    raised: BaseException | None = None
    try:
        waiting = set(tasks)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.exception() is not None:
                    raised = task.exception()
                    continue
                yield task.result()
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    if raised is not None:
        raise raised


async def in_either(function: Callable[..., Any], is_async: bool, *args: Any) -> Any:
    """What a sync or async function of the user's gives, without holding up the event loop."""
    if is_async:
        return await function(*args)
    return await ain_thread(lambda: function(*args), None)


def _spawn(work: Callable[[], T], deliver: Callable[[tuple[T | None, BaseException | None]], None]) -> None:
    """Do the work in a daemon thread with the caller's context variables: a tool that hangs must not hold up the exit."""

    def body() -> None:
        try:
            item: tuple[T | None, BaseException | None] = (work(), None)
        except BaseException as error:
            item = (None, error)
        deliver(item)

    threading.Thread(target=copy_context().run, args=(body,), daemon=True, name="phronomy-call").start()


def _opened(item: tuple[T | None, BaseException | None]) -> T:
    value, error = item
    if error is not None:
        raise error
    return value  # type: ignore[return-value]

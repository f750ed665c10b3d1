"""Threads and tasks for what runs beside the driver: tools with a time limit, and several calls at once."""

from __future__ import annotations

import math
import os
import queue
import sys
import threading
import time
from collections.abc import (
    Awaitable,
    Callable,
    Generator,
)
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import CoroutineType
from typing import Any, Final, NoReturn, TypeVar

from phronomy.concurrency.leaving import Leave, Left, Overran
from phronomy.concurrency.starting import start
from phronomy.foundation.lazy_modules import asyncio

T = TypeVar("T")


class ToolCancelled(Exception):
    """The call was cancelled while the tool ran. Raised by `ToolContext.raise_if_cancelled`."""


NEVER: Final = Leave()

_LOOKS_UP: Final = 0.25
"""Seconds after which a thread that waits looks up. CPython notes a Ctrl-C that comes in the moment before the main thread goes to
sleep, or to another thread, and the main thread hears it when it wakes."""


def in_thread(work: Callable[[], T], timeout: float | None, leave: Leave = NEVER) -> T:
    """Run `work` in a thread of its own and return its result. Raises `Overran` if it takes longer, `Left` if it is left.

    A thread cannot be stopped: it goes on.
    """
    box: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
    with leave.told(lambda: box.put((None, Left()))):
        spawn(work, box.put, until_begun=timeout is not None)  # the time counts from there
        try:
            return result_in(take_from(box, timeout))
        except queue.Empty:
            raise Overran(f"still running after {timeout} s") from None


async def ain_thread(work: Callable[[], T], timeout: float | None, leave: Leave = NEVER) -> T:
    """As `in_thread`, without holding up the event loop."""
    loop = asyncio.get_running_loop()
    # What a future or a task holds is in its repr, which asyncio writes to logs. So it holds what gives the result.
    box: asyncio.Future[Callable[[], T]] = loop.create_future()

    def deliver(item: tuple[T | None, BaseException | None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if box.done() else box.set_result(lambda: result_in(item)))

    spawn(work, deliver)
    # Where nothing but the result ends the wait, it is awaited as it is: to wait for two things takes ten times as long.
    endless = timeout is None and leave is NEVER
    return (await box)() if endless else (await _within(box, timeout, leave))()


async def within(
    work: Awaitable[T], timeout: float | None, leave: Leave = NEVER, leaving: Callable[[], object] | None = None
) -> T:
    """Await `work` in a task of its own, and return its result. Raises `Overran` if it takes longer, `Left` if it is left.

    A timeout that the work itself raises stays as it is. Where the caller is cancelled, `leaving` is called before the work is
    cancelled for that: whoever is cancelled without it is so by the work itself.
    """
    return (await _within(asyncio.create_task(held_back(work)), timeout, leave, leaving))()


async def held_back(work: Awaitable[T]) -> Callable[[], T]:
    """Await `work` in a task of its own, and return a function that gives its result, or raises the exit that it raised.

    A task that raises `SystemExit` or `KeyboardInterrupt` stops the event loop at once, with all that runs in it. So the
    task that waits for it raises that.
    """
    try:
        value = await work
    except (SystemExit, KeyboardInterrupt) as error:
        return partial(_raise, error)
    return lambda: value


def _raise(error: BaseException) -> NoReturn:
    raise error


async def _within(
    task: asyncio.Future[T], timeout: float | None, leave: Leave, leaving: Callable[[], object] | None = None
) -> T:
    loop = asyncio.get_running_loop()
    left: asyncio.Future[None] = loop.create_future()
    try:
        with leave.told(lambda: _tell(loop, left)):
            both: set[asyncio.Future[Any]] = {task, left}
            await asyncio.wait(both, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        if leaving is not None:
            leaving()
        _give_up(task)
        await asyncio.wait({task})
        raise
    if task.cancelled():
        raise ToolCancelled("it was cancelled from within")
    if task.done():
        return task.result()
    _give_up(task)
    if left.done():
        raise Left
    raise Overran(f"still running after {timeout} s")


def _give_up(task: asyncio.Future[Any]) -> None:
    """Cancel what nobody waits for any more. asyncio would tell of an error that nobody asks for."""
    task.add_done_callback(lambda late: late.cancelled() or late.exception())
    task.cancel()


_KEEPS_COUNT: Final = sys.version_info < (3, 13)
"""Whether a `TaskGroup` that waits for its tasks cancels the task that it is in when one of them fails, and never takes that back."""


class in_place(Awaitable[T]):  # awaited like the functions beside it
    """Awaits some work in the caller's own task: an error of the work has the caller on its stack, as in sync code.

    Whoever cancels the caller is heard even if the work swallows it. A cancellation that came from nowhere else is a failure of the
    work. A task counts how often it is to be cancelled; what the groups of tasks in the work have added to that is left out.
    """

    def __init__(self, work: Awaitable[T]) -> None:
        self._work = work
        self._groups: list[asyncio.TaskGroup] = []

    def __await__(self) -> Generator[object, object, T]:
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        inner: Generator[object, object, T] = self._work.__await__()
        step: Callable[[], object] = partial(next, inner)
        while True:
            try:
                waits_for = step()
            except StopIteration as end:
                if self._is_cancelled(task, before):
                    raise asyncio.CancelledError from None
                value: T = end.value
                return value
            except asyncio.CancelledError as error:
                if self._is_cancelled(task, before):
                    raise
                raise ToolCancelled("it was cancelled from within") from error
            try:
                step = partial(inner.send, (yield waits_for))
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:
                if _KEEPS_COUNT and isinstance(error, asyncio.CancelledError):
                    self._look()
                step = partial(inner.throw, error)

    def _is_cancelled(self, task: asyncio.Task[object], before: int) -> bool:
        """Whether somebody who is no part of the work has cancelled the task since."""
        return task.cancelling() - len(self._groups) > before

    def _look(self) -> None:
        """Note the groups that wait for their tasks in the work, and have the task cancelled: they do that once at most."""
        within: Any = self._work
        while (frame := getattr(within, "cr_frame", None)) is not None:
            group = frame.f_locals.get("self") if frame.f_code is asyncio.TaskGroup.__aexit__.__code__ else None
            known = any(group is each for each in self._groups)
            if isinstance(group, asyncio.TaskGroup) and getattr(group, "_parent_cancel_requested", False) and not known:
                self._groups.append(group)
            within = within.cr_await


def _tell(loop: asyncio.AbstractEventLoop, left: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(lambda: None if left.done() else left.set_result(None))


async def in_either(function: Callable[..., Any], is_async: bool, *args: object) -> Any:
    """Call a sync or async function of the user's and return its result, without holding up the event loop."""
    if is_async:
        return await function(*args)
    return await ain_thread(lambda: function(*args), None)


def pause(heard: threading.Event, also: threading.Event | None, seconds: float) -> None:
    """Wait until one of the events is set, at most so many seconds. `heard` is cleared."""
    until = time.monotonic() + seconds
    while not heard.is_set() and (also is None or not also.is_set()) and (left := until - time.monotonic()) > 0:
        if also is None:
            heard.wait(left)
        else:
            also.wait(min(left, 0.05))
    heard.clear()


async def apause(heard: asyncio.Event, also: asyncio.Event | None, seconds: float) -> None:
    """As `pause`."""
    tasks = {asyncio.ensure_future(event.wait()) for event in (heard, also) if event is not None}
    try:
        await asyncio.wait(tasks, timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    heard.clear()


def spawn(
    work: Callable[[], T], deliver: Callable[[tuple[T | None, BaseException | None]], None], *, until_begun: bool = True
) -> None:
    """Do the work in a daemon thread with the caller's context variables: a tool that hangs must not hold up the exit.

    `deliver` is called there with the result, or the error, and must not block. With `until_begun` this returns once the work has
    begun, so of several pieces the first begins first. Who waits for the result alone has no need of that.
    """
    context = copy_context()
    _THREADS.do(lambda: context.run(_done, work), deliver, until_begun=until_begun)


def _done(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    process, outcome = os.getpid(), _outcome(work)
    if os.getpid() != process:
        _end_child(outcome[1])
    return outcome


def _outcome(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:
        return None, error


def _end_child(error: BaseException | None) -> NoReturn:
    """End a process that the work has forked. It has this thread alone: those that wait for what comes of the work are its parent's."""
    status = 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        status = error.code or 0
    elif error is not None:
        status = 1
        sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # it is closed, or there is none
            stream.flush()
    os._exit(status)


_LINGERS: Final = 10.0
"""Seconds for which a thread whose work is done waits for more. It costs nothing meanwhile, and a run goes on within them, mostly."""


class _Threads:
    """Daemon threads that do one piece of work after another: to start one costs three times what it costs to hand work to one.

    Work never waits for other work: where no thread is idle, another one is started. So one that hangs holds up nobody.
    """

    def __init__(self) -> None:
        self._idle: list[_Hand] = []
        self._pid = os.getpid()

    def do(self, work: Callable[[], T], deliver: Callable[[T], None], *, until_begun: bool = True) -> None:
        """Have the work done, and its result delivered, in a thread that is idle, or in a new one."""
        if sys.is_finalizing():  # no other thread runs any more, so whoever waits for one waits for ever
            raise RuntimeError("Python is ending, so no thread can do anything more")
        if self._pid != os.getpid():  # a forked child has none of its parent's threads
            self._idle, self._pid = [], os.getpid()
        try:
            hand = self._idle.pop()  # the last that came: those that are too many are idle long enough to end
        except IndexError:
            hand = _Hand(self._idle)
        hand.take(work, deliver, until_begun=until_begun)


class _Hand:
    """One such thread. It stands in the list while it is idle, and ends once nobody has taken it from there for long enough."""

    def __init__(self, idle: list[_Hand]) -> None:
        self._idle = idle
        self._box: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None], bool]] = queue.SimpleQueue()
        self._begun: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._started = False

    def take(self, work: Callable[[], T], deliver: Callable[[T], None], *, until_begun: bool = True) -> None:
        """Do this next. Nothing else must be left to do."""
        self._thread.name = "phronomy-call"
        self._box.put((work, deliver, until_begun))
        if not self._started:
            self._started = True
            start(self._thread)
        if until_begun:
            self._begun.get()

    def _live(self) -> None:
        while True:
            try:
                work, deliver, until_begun = self._box.get(timeout=_LINGERS)
            except queue.Empty:
                with suppress(ValueError):  # it has been taken from the list this moment: the work is coming
                    self._idle.remove(self)
                    return
                continue
            if until_begun:
                self._begun.put(None)
            result = work()
            self._thread.name = "phronomy-idle"
            # Before the result is delivered, so that whoever waits for it, and goes on with more work, finds this thread.
            self._idle.append(self)
            try:
                deliver(result)
            except BaseException as error:  # as if the thread ended by it; but somebody may have handed it work by now
                told = (type(error), error, error.__traceback__, self._thread)
                threading.excepthook(threading.ExceptHookArgs(told))
            del work, deliver, result  # or what they hold would last as long as nothing follows


_THREADS: Final = _Threads()


def take_from(box: queue.SimpleQueue[T], timeout: float | None) -> T:
    """Wait for the next item of the box. A Ctrl-C is heard meanwhile. Raises `queue.Empty` after so many seconds; None: never."""
    until = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = max(until - time.monotonic(), 0)
        try:
            return box.get(timeout=min(left, _LOOKS_UP))
        except queue.Empty:
            if left <= _LOOKS_UP:
                raise


def result_in(item: tuple[T | None, BaseException | None]) -> T:
    """The result of the work. Raises the error that the work raised."""
    value, error = item
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def in_same_loop() -> Callable[[], bool]:
    """Says later whether the same loop still runs the code that asks, if one does: what a loop has left may be collected elsewhere."""
    loop = running_loop()
    return lambda: running_loop() is loop


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs the code that asks, if one does."""
    if "asyncio" not in sys.modules:  # a sync program is not to load it for this
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def whole(work: Awaitable[T], refuses: Callable[[], bool] = lambda: True) -> T:
    """Await `work` and return its result; a cancellation meanwhile is raised only once the work is finished.

    One that comes while `refuses` says no cancels the work.
    """
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    if isinstance(task, asyncio.Task):
        # `asyncio.run` cancels all tasks at its end. This one is finished by then, since the caller, which is cancelled, waits for it.
        # https://docs.python.org/3/library/asyncio-extending.html
        asyncio.tasks._unregister_task(task)
    try:
        return await _Uncut(task, refuses)
    except GeneratorExit:
        # The loop was closed. Python would warn of work that had not begun.
        if running_loop() is None and isinstance(work, CoroutineType) and not work.cr_suspended:
            work.close()
        raise


class _Uncut(Awaitable[T]):  # awaited like the functions beside it
    """Awaits a future that cannot be cancelled by way of this: whoever waits, and is cancelled, raises that once the future is done.

    A task asks what it waits for to be cancelled, and where that refuses, it is cancelled when it goes on. `asyncio.shield` gives way
    at once instead, so that it has to be waited for again. It also makes a second future, and each write of a run waits here.
    https://docs.python.org/3/library/asyncio-future.html#asyncio.isfuture
    """

    _asyncio_future_blocking = False

    def __init__(self, future: asyncio.Future[T], refuses: Callable[[], bool]) -> None:
        self._future = future
        self._refuses = refuses
        self.get_loop = future.get_loop
        self.add_done_callback = future.add_done_callback

    def __await__(self) -> Generator[object, None, T]:
        if not self._future.done():
            self._asyncio_future_blocking = True
            yield self
        return self._future.result()

    def cancel(self, msg: object = None) -> bool:
        """Refuse, or cancel the future."""
        return not self._refuses() and self._future.cancel(msg)

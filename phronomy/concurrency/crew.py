"""Several calls at once, in threads or in tasks: their results come one by one, and more calls may begin meanwhile."""

from __future__ import annotations

import queue
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar

from phronomy.concurrency.pieces import Heard, Piece, listening
from phronomy.concurrency.workers import held_back, result_in, spawn, take_from
from phronomy.foundation.lazy_modules import asyncio

T = TypeVar("T")

_WORKING_FOR: Final[ContextVar[tuple[Crew[Any], ...]]] = ContextVar("phronomy_working_for", default=())
"""The crews that the work in this thread is of, from the outside in."""


def side_by_side(work: Iterable[Callable[[], T]], owner: object | None = None) -> Generator[T | Piece | Heard]:
    """Run pieces of work in threads and yield each result as it comes in. An error is raised once the others are finished.

    With the `owner` of the runs that it is of, also what it gives before it is through.
    """
    crew: Crew[T] = Crew()
    crew.begin(work, owner)
    while crew.is_busy:
        yield crew.next()


class Crew(Generic[T]):
    """Pieces of work in threads. More of them may begin while some run."""

    def __init__(self) -> None:
        self._box: queue.SimpleQueue[Piece | Heard | tuple[T | None, BaseException | None]] = queue.SimpleQueue()
        self._raised: BaseException | None = None
        self._running = 0

    @property
    def is_busy(self) -> bool:
        """Whether any of them runs, or has raised an error that is still to be raised here."""
        return self._running > 0 or self._raised is not None

    def begin(self, work: Iterable[Callable[[], T]], owner: object | None = None) -> None:
        """Begin these, each in a thread. The next is asked for once the one before it has its thread."""
        before = _WORKING_FOR.set((*_WORKING_FOR.get(), self))
        try:
            with listening(owner, self._box.put):
                for each in work:
                    spawn(each, self._box.put)
                    self._running += 1
        finally:
            _WORKING_FOR.reset(before)

    def next(self) -> T | Piece | Heard:
        """What comes in next. Some must run, or have raised an error, which is raised once the others are finished.

        Raises `GeneratorExit` in one of their threads.
        """
        # A stream that was dropped is closed by the collector of garbage, which runs in any thread. In one of these it would wait
        # for itself, and nothing would be collected any more. So the run is left, as by Ctrl-C.
        if self._running and self in _WORKING_FOR.get():
            raise GeneratorExit
        while self._running:
            item = take_from(self._box, None)
            if isinstance(item, Piece | Heard):
                return item
            self._running -= 1
            if item[1] is None:
                return result_in(item)
            self._raised = item[1]
        raised, self._raised = self._raised, None
        assert raised is not None, "one of them is busy"
        raise raised

    def leave(self) -> None:
        """Wait for none of them any more. A thread cannot be stopped: what it gives is not heard."""
        self._running, self._raised, self._box = 0, None, queue.SimpleQueue()


async def aside_by_side(
    work: Iterable[Coroutine[object, None, T]], owner: object | None = None
) -> AsyncGenerator[T | Piece | Heard]:
    """As `side_by_side`, in tasks. Leaving early cancels those that still run, and waits until they are gone."""
    crew: ACrew[T] = ACrew()
    crew.begin(work, owner)
    try:
        while crew.is_busy:
            yield await crew.next()
    except BaseException:
        await crew.leave()
        raise


class ACrew(Generic[T]):
    """As `Crew`, in tasks."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._box: asyncio.Queue[Piece | Heard | asyncio.Future[Callable[[], T]]] = asyncio.Queue()
        self._tasks: set[asyncio.Future[Callable[[], T]]] = set()
        self._raised: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        """As `Crew.is_busy`."""
        return bool(self._tasks) or self._raised is not None

    def begin(self, work: Iterable[Coroutine[object, None, T]], owner: object | None = None) -> None:
        """Begin these, each in a task."""
        with listening(owner, self._hear):
            tasks = [asyncio.ensure_future(held_back(each)) for each in work]
        self._tasks.update(tasks)
        for task in tasks:
            task.add_done_callback(self._box.put_nowait)

    def _hear(self, piece: Piece | Heard) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody hears any more
            self._loop.call_soon_threadsafe(self._box.put_nowait, piece)

    async def next(self) -> T | Piece | Heard:
        """As `Crew.next`."""
        while self._tasks:
            item = await self._box.get()
            if isinstance(item, Piece | Heard):
                return item
            self._tasks.discard(item)
            try:
                return item.result()()
            except BaseException as error:
                self._raised = error
        raised, self._raised = self._raised, None
        assert raised is not None, "one of them is busy"
        raise raised

    async def leave(self) -> None:
        """Cancel those that still run, and wait until they are gone."""
        tasks, self._tasks, self._raised = [*self._tasks], set(), None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

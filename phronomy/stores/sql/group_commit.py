"""Group commit: what the tasks of event loops write to a SQLite file at the same time is written in one transaction, by one thread.

A commit waits for the disk, and a thread that is woken for each write costs as much as the write. So a thread takes all that has come
meanwhile: it commits the writes together, and tells each loop once. Every write is in a savepoint of its own: one that is refused
undoes nothing of its neighbours, and nobody is answered before the commit.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from phronomy.concurrency.workers import spawn, whole
from phronomy.foundation.lazy_modules import asyncio
from phronomy.stores.native import TakesTime
from phronomy.stores.sql import statements
from phronomy.stores.sql.store import Steps, Traces

T = TypeVar("T")

Outcome: TypeAlias = tuple[Any, BaseException | None]
"""What came of something that was asked for: its result, or its error."""

_MOST: Final = 64
"""How many are answered at once: threads and other processes, which wait meanwhile, are to have their turn after some milliseconds."""

_LOOKS: Final = 0.25
"""Seconds after which a loop whose tasks wait looks whether a callback of it was lost."""


class File(Protocol):
    """A SQLite file, whose transactions are made in the calling thread."""

    def write(self, work: Callable[[], Steps[T]], waited: float = 0.0) -> T:
        """Run the steps in one transaction. They have waited for so many seconds already."""
        ...

    def write_each(self, works: Sequence[Callable[[], Steps[Any]]], waited: float = 0.0) -> list[Outcome]:
        """Run the steps of each in one transaction, and return what came of each. Raises the fault for which the whole is undone."""
        ...

    def read(self, statement: str, values: statements.Values) -> list[statements.Row]:
        """The rows of one statement."""
        ...

    def at_once(self, statement: str, values: statements.Values) -> list[statements.Row]:
        """The rows of one statement, if they are few. Raises `TakesTime`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A write that a task waits for, or a thread: that has no loop."""

    loop: asyncio.AbstractEventLoop | None
    answer: asyncio.Future[Any] | Future[Any]
    work: Callable[[], Steps[Any]]
    at: float = field(default_factory=time.monotonic)


class GroupCommit:
    """Writes of tasks to one file. A thread serves them for as long as there are any."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._begin()

    def _begin(self) -> None:
        """Begin anew. A forked child has none of the threads and tasks of its parent, and one of them may have held a lock."""
        # Taken by itself, and not by the condition: an interrupt in the `__enter__` of that, which is Python, would leave it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._asked: deque[_Asked] = deque()
        # What came of writes, until the tasks of the loop that asked for them are told. A loop is in it as long as it looks.
        self._untold: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[tuple[_Asked, Outcome]]] = WeakKeyDictionary()
        self._serving = False
        self._server = 0
        self._stuck: float | None = None
        self._pid = os.getpid()

    async def write(self, work: Callable[[], Steps[T]], again: bool, traces: Traces | None = None) -> T:
        """As `SQLStore._write`. A cancellation is raised once the outcome is known."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._ask(_Asked(loop, answer, work))
        return await whole(answer)

    def write_in_thread(self, work: Callable[[], Steps[T]]) -> T:
        """As `write`, for a thread that works for a task."""
        answer: Future[T] = Future()
        self._ask(_Asked(None, answer, work))
        return answer.result()

    async def read(self, statement: str, values: statements.Values) -> list[statements.Row]:
        """As `SQLStore._read`: without a thread, unless that would take time."""
        try:
            return self._file.at_once(statement, values)
        except TakesTime:
            return await asyncio.to_thread(self._file.read, statement, values)

    def settle(self) -> None:
        """Wait until all that has been asked for is answered."""
        # In the thread itself, where garbage may close a store, nobody can wait for it.
        if self._pid == os.getpid() and self._server != threading.get_ident():
            self._start()  # this may be the thread of a loop, which is about to start it
            with self._lock:
                self._changed.wait_for(lambda: not self._serving)

    def _ask(self, asked: _Asked) -> None:
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            self._asked.append(asked)
            if asked.loop is not None and asked.loop not in self._untold:
                # In this order: an interrupt between the two leaves a look too many, and not a loop that never looks.
                asked.loop.call_later(_LOOKS, self._look, asked.loop)
                self._untold[asked.loop] = deque()
            if self._serving:
                return
            if asked.loop is not None:
                # The other tasks that can run now ask first. A thread that is woken by the first of them would commit its write alone.
                asked.loop.call_soon(self._start)
                return
        self._start()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do what a lost callback of the loop was to do, as long as its tasks wait.

        A Ctrl-C that is raised in a loop takes the place of the callback that is due, and nobody can cancel who waits for a write.
        """
        again = loop.call_later(_LOOKS, self._look, loop)
        self._start()
        self._tell(loop)
        with self._lock:
            if not (self._serving or self._asked or self._untold.get(loop)):
                self._untold.pop(loop, None)
                again.cancel()

    def _start(self) -> None:
        """Start the thread, if it is needed and does not serve."""
        with self._lock:
            if self._serving:
                return
            # A loop may have been closed before it came to start the thread. What it asked for is not written then, at any later time.
            self._asked = deque(each for each in self._asked if each.loop is None or not each.loop.is_closed())
            for loop in [each for each in self._untold if each.is_closed()]:
                del self._untold[loop]
            if not self._asked:
                return
            try:
                self._serving = True
                spawn(self._serve, lambda _: None, until_begun=False)
            except BaseException as error:
                # No thread can be started, or an interrupt came: nobody would serve these.
                self._serving = False
                refused = [self._asked.popleft() for _ in range(len(self._asked))]
                self._tell_all([(each, (None, error)) for each in refused])
                if not isinstance(error, Exception):
                    raise

    def _serve(self) -> None:
        self._server = threading.get_ident()
        while True:
            with self._lock:
                batch = [self._asked.popleft() for _ in range(min(_MOST, len(self._asked)))]
                if not batch:
                    self._serving, self._server = False, 0
                    self._changed.notify_all()
                    return
            self._answer(batch)
            time.sleep(0)  # threads that wait for the file: it would be taken again before any of them could run

    def _answer(self, batch: list[_Asked]) -> None:
        began, waited = time.monotonic(), 0.0
        # Of those that were asked for while others waited in vain, that was the wait too: a file that somebody keeps would else be
        # waited for as often as there are batches.
        if self._stuck is not None:
            waited = max(began - max(self._stuck, *(each.at for each in batch)), 0.0)
        outcomes = self._written([each.work for each in batch], waited)
        if any(error is None for _, error in outcomes):
            self._stuck = None
        elif self._stuck is None:
            self._stuck = began
        self._tell_all(list(zip(batch, outcomes, strict=True)))

    def _tell_all(self, told: Sequence[tuple[_Asked, Outcome]]) -> None:
        """Tell each of its outcome, where it waits for it; each loop is woken once."""
        loops: set[asyncio.AbstractEventLoop] = set()
        for asked, outcome in told:
            if asked.loop is None:
                _tell(asked, outcome)
            else:
                self._untold[asked.loop].append((asked, outcome))
                loops.add(asked.loop)
        for loop in loops:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._tell, loop)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell the tasks of this loop, which runs here, what is known by now."""
        untold = self._untold.get(loop, ())
        while untold:
            _tell(*untold[0])  # left where it is until it is told
            untold.popleft()

    def _written(self, works: Sequence[Callable[[], Steps[Any]]], waited: float) -> list[Outcome]:
        """What came of each write."""
        if len(works) > 1:
            # It may be the fault of one of them: each is tried by itself, and told of its own.
            with suppress(BaseException):
                return self._file.write_each(works, waited)
        return [_outcome(self._file.write, work, waited) for work in works]


def _outcome(method: Callable[..., Any], *args: object) -> Outcome:
    try:
        return method(*args), None
    except BaseException as error:
        return None, error


def _tell(asked: _Asked, outcome: Outcome) -> None:
    value, error = outcome
    if asked.answer.done():  # it was told before, and then came an interrupt
        return
    if error is None:
        asked.answer.set_result(value)
    else:
        asked.answer.set_exception(error)

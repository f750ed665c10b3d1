"""Leaving what runs: a signal that whoever waits for a body can wait for as well, and how long a model is waited for."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from phronomy.concurrency.starting import start


class Left(Exception):
    """Nobody waits for the body any more: the run was stopped while it ran."""


class Overran(Exception):
    """It was still running when its time was over."""


class Leave:
    """Says, once, that those who wait are to leave what they wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._waiting: list[Callable[[], None]] = []
        self._timer: threading.Timer | None = None

    @property
    def said(self) -> bool:
        """Whether it has been said."""
        return self._is_set

    def after(self, seconds: float | None) -> None:
        """Say it after so many seconds; None: never, if it has not been said."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is None:
            return
        if seconds <= 0:
            self.now()
            return
        self._timer = threading.Timer(seconds, self.now)
        self._timer.daemon = True
        start(self._timer)

    def now(self) -> None:
        """Say it."""
        with self._lock:
            self._is_set, waiting, self._waiting = True, self._waiting, []
        for call in waiting:
            call()

    def told(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Have `call` called when it is said, or at once if it has been, for as long as the block lasts."""
        return _Told(self, call)

    def add(self, call: Callable[[], None]) -> None:
        """Have `call` called when it is said, or at once if it has been."""
        with self._lock:
            said = self._is_set
            if not said:
                self._waiting.append(call)
        if said:
            call()

    def discard(self, call: Callable[[], None]) -> None:
        """No longer have `call` called."""
        with self._lock:
            if call in self._waiting:
                self._waiting.remove(call)


# Made of a generator, it would cost four times as much, and each call of a model has two.
class _Told(AbstractContextManager[None]):
    """The block of `Leave.told`."""

    __slots__ = ("_call", "_leave")

    def __init__(self, leave: Leave, call: Callable[[], None]) -> None:
        self._leave, self._call = leave, call

    def __enter__(self) -> None:
        self._leave.add(self._call)

    def __exit__(self, *raised: object) -> None:
        self._leave.discard(self._call)


class Patience:
    """The time for which an answer is waited for, by the monotonic clock, and the signal that nobody waits for it any more."""

    def __init__(self, leave: Leave | None = None, until: float = math.inf) -> None:
        self.leave: Leave = leave if leave is not None else Leave()
        self._until = until

    def __repr__(self) -> str:
        return f"<Patience for {self.left()} s>"

    def at_most(self, seconds: float | None) -> Patience:
        """The patience for one attempt, which ends by itself after so many seconds and can be left by itself."""
        return Patience(None, self._until if seconds is None else min(self._until, time.monotonic() + seconds))

    def left(self) -> float | None:
        """The seconds that are left; None: any number."""
        return None if self._until == math.inf else max(self._until - time.monotonic(), 0.0)

    def extend(self, seconds: float) -> None:
        """Wait so much longer: something else took that time."""
        self._until += seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is over. A timer may be early by as much as it is inexact."""
        return self._until - time.monotonic() <= 0.001

    def check(self) -> None:
        """Return if somebody still waits. Raises `Left`, `Overran`."""
        if self.leave.said:
            raise Left
        if self.is_over:
            raise Overran("its time was over")

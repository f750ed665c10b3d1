"""Leaving what runs: a signal that whoever waits for a body can wait for as well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Left(Exception):
    """Nobody waits for the body any more: the run was stopped while it ran."""


class Leave:
    """Says, once, that those who wait are to leave what they wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._waiting: list[Callable[[], None]] = []
        self._timer: threading.Timer | None = None

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
        self._timer.start()

    def now(self) -> None:
        """Say it."""
        with self._lock:
            self._is_set, waiting, self._waiting = True, self._waiting, []
        for call in waiting:
            call()

    @contextmanager
    def told(self, call: Callable[[], None]) -> Iterator[None]:
        """Have `call` called when it is said, or at once if it has been, for as long as the block lasts."""
        with self._lock:
            said = self._is_set
            if not said:
                self._waiting.append(call)
        if said:
            call()
        try:
            yield
        finally:
            with self._lock:
                if call in self._waiting:
                    self._waiting.remove(call)

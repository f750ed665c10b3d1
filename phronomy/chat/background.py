"""Work that looks again and again at what is to be done: in the thread of whoever calls it, or in one of its own."""

from __future__ import annotations

import logging
import threading
from dataclasses import field
from typing import TYPE_CHECKING, Final, Self

from phronomy.chat.contexts import Started
from phronomy.foundation.dataclasses import dataclass

if TYPE_CHECKING:
    from phronomy.stores.base import Store

_log = logging.getLogger("phronomy")


@dataclass(slots=True, kw_only=True)
class Pass:
    """What came of one look: messages `sent`, things that are `left`, and when the next of them is due.

    `blocked` are the lanes that take nothing more now. What is left there is not counted one by one.
    """

    sent: int = 0
    left: int = 0
    due: float | None = None
    blocked: set[str] = field(default_factory=set)

    def leave(self, due: float) -> None:
        """Something stays to be done, at this time at the earliest."""
        self.left += 1
        self.due = due if self.due is None else min(self.due, due)


class Background(Started):
    """What `run_once` does, again and again, with what is in `store`.

    `name` is that of the thread. If the store fails, the log says that `what` could not be read.
    """

    def __init__(self, name: str, what: str, store: Store) -> None:
        self._name: Final = name
        self._what: Final = what
        self._store: Store = store
        self._bell = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def run_once(self) -> Pass:
        """Do what is to be done now. Raises `StoreError`; what was not done stays."""
        raise NotImplementedError

    def run(self, stop: threading.Event, *, poll: float = 1.0) -> None:
        """Go on until `stop` is set, and look every `poll` seconds. A store that fails is logged, and looked into again."""
        while not stop.is_set():
            self._bell.clear()
            due: float | None = None
            try:
                due = self.run_once().due
            except Exception as error:
                _log.error("%s could not be read: %s", self._what, type(error).__name__)
            self._bell.wait(poll if due is None else min(max(due - self._store.clock(), 0.01), poll))

    def wake(self) -> None:
        """Have `run` look at once. Safe to call from any thread."""
        self._bell.set()

    def start(self, *, poll: float = 1.0) -> Self:
        """Run in a thread of its own, until `stop`. Also as a context."""
        if self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self.run, args=(self._stop,), kwargs={"poll": poll}, name=self._name, daemon=True
            )
            self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the thread that `start` has started. What is not done stays in the store."""
        self._stop.set()
        self.wake()
        if self._thread is not None:
            self._thread.join()

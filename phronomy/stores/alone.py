"""`Alone`, which lets one call at a time into a store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from phronomy.errors import StoreError

P = ParamSpec("P")
T = TypeVar("T")


class Alone:
    """Lets one call at a time do its work, and refuses a call made from within another on the same thread.

    Such a call comes from a signal handler, or from a generator that is collected in the middle of a write. Waiting
    would never end; going on would read or write half a change.
    """

    def __init__(self) -> None:
        # Not an RLock: that would let the same thread in a second time, which is what has to be refused. Not a context
        # manager either: an interrupt between taking the lock in `__enter__` and the first line of the block would
        # leave the lock taken for good. A `with` over a plain lock has no such gap.
        self.lock: threading.Lock = threading.Lock()
        self._owner = 0

    @property
    def inside(self) -> bool:
        """Whether this thread is in the middle of a call."""
        # An interrupt may leave the owner behind. The lock is free then, or another thread has it and is about to write its own name.
        return self._owner == threading.get_ident() and self.lock.locked()

    def __call__(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        caller = threading.get_ident()
        if self._owner == caller and self.lock.locked():  # as `inside`
            raise StoreError("this thread is in the middle of another call of the store: make this one after it")
        # Two threads take turns. The owner is set while the lock is held, and cleared before the lock is given up.
        with self.lock:
            self._owner = caller
            try:
                return work(*args, **kwargs)
            finally:
                self._owner = 0

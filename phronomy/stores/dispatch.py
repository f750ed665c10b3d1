"""Dispatch: how a worker hears that there is something to do, so that it need not find it by looking.

What is to be done is in the store, and a worker that looks finds all of it. A dispatch only makes that quicker, or leaves the choice of
a machine to an engine that has workers on many. So it may lose what it is told, tell it twice, or fail: whatever it raises is logged,
and goes to nobody.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol

_log = logging.getLogger("phronomy")


class Dispatch(Protocol):
    """Tells workers, on any machine, that something is to be done in a run: set it as `store.dispatch`.

    It is told after the store has it. Both methods must return at once: a slow one keeps those waiting who decide, or whose run has
    just stopped. What they raise is logged, and changes nothing: workers find by polling what a dispatch has lost. An engine that was
    told calls `worker.carry_out(run_id)` on the machine that it chooses.
    """

    def wake(self, run_id: str) -> None:
        """Something is to be done in this run now: somebody has decided, or a worker has left the run in the middle."""
        ...

    def at(self, time: datetime, run_id: str) -> None:
        """Something is to be done in this run at that time (UTC): a request expires, or a run that failed is tried again.

        It may have been done by then, for example if somebody decides before the request expires.
        """
        ...


class LocalDispatch:
    """The dispatch that each store has by default: it tells the workers that work on this store object.

    A subclass that calls these methods too tells other processes as well as its own.
    """

    def __init__(self) -> None:
        # Each change of it is one step, so that no lock is needed, which a fork could leave locked.
        self._listeners: dict[int, tuple[int, Dispatch]] = {}

    def listen(self, listener: Dispatch) -> None:
        """Tell this one too, from whatever thread tells. A `Worker` does this while it works."""
        self._listeners[id(listener)] = (os.getpid(), listener)

    def unlisten(self, listener: Dispatch) -> None:
        """Tell this one no longer."""
        self._listeners.pop(id(listener), None)

    def wake(self, run_id: str) -> None:
        """Tell the workers that something is to be done in this run now."""
        for listener in self._mine():
            listener.wake(run_id)

    def at(self, time: datetime, run_id: str) -> None:
        """Tell the workers that something is to be done in this run at that time."""
        for listener in self._mine():
            listener.at(time, run_id)

    def _mine(self) -> list[Dispatch]:
        # A forked child has a copy of this list, and none of its parent's loops.
        process = os.getpid()
        return [listener for pid, listener in [*self._listeners.values()] if pid == process]


def wake(dispatch: Dispatch, run_id: str) -> None:
    """Tell a dispatch that something is to be done in a run now. Never raises."""
    _tell(dispatch, "wake", run_id)


def at(dispatch: Dispatch, run_id: str, times: Iterable[float | None]) -> None:
    """Tell a dispatch that something is to be done in a run at these times, in seconds. Never raises."""
    for time in sorted({each for each in times if each is not None}):
        _tell(dispatch, "at", datetime.fromtimestamp(time, UTC), run_id)


def _tell(dispatch: Dispatch, method: str, *args: object) -> None:
    """Tell it. What it raises is for the log: that of which it is told is stored, and a worker that looks finds it."""
    try:
        given = getattr(dispatch, method)(*args)
    except Exception as error:
        _log.warning("dispatch %s raised %s in %s", type(dispatch).__name__, type(error).__name__, method)
        return
    if inspect.iscoroutine(given):
        given.close()
        _log.error("%s.%s is async, so nobody was told: a dispatch has sync methods", type(dispatch).__name__, method)

"""Announcements: who is told, at least once, of what is stored: that a run waits, was decided on, or has ended.

The log of a run is the outbox. What was announced is noted beside it, so whatever a lost process did not tell, `recover` tells.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from phronomy.stores.base import Store
from phronomy.stores.native import in_store

if TYPE_CHECKING:
    from phronomy.observability.events import Decided, Ended, Event, Suspended

_log = logging.getLogger("phronomy")


class Announcements:
    """A base class for objects that tell other systems about runs. Pass instances to `Agent(announcements=[...])`.

    Override the methods that you need. Each can be sync or async. A method is called after its fact is stored, at once,
    in the process that stored it. If that process dies first, or the method raises, the next `recover_all` calls it, in
    the same order. So a method can be called again for the same event: `event.key` is then the same, so use it to
    recognise a repetition. An exception is logged, and does not affect the run.
    """

    def on_suspended(self, event: Suspended) -> Any:
        """The run waits for a human. `event.pending` has all pending requests, also those of an earlier announcement.

        Use the id of each request to recognise a repetition.
        """

    def on_decided(self, event: Decided) -> Any:
        """A pending request was decided, or has expired."""

    def on_completed(self, event: Ended) -> Any:
        """The run has completed."""

    def on_rejected(self, event: Ended) -> Any:
        """The run has ended as rejected."""

    def on_cancelled(self, event: Ended) -> Any:
        """The run has ended as cancelled."""

    def on_superseded(self, event: Ended) -> Any:
        """The run has ended because a newer message takes its place."""

    def on_skipped(self, event: Ended) -> Any:
        """The run has ended as skipped, because somebody skipped the rest of it at a breakpoint."""

    @property
    def is_async(self) -> bool:
        """Whether any of the methods is async."""
        return any(inspect.iscoroutinefunction(getattr(self, method)) for method in METHODS.values())


METHODS: Final = {
    "suspended": "on_suspended",
    "decided": "on_decided",
    "completed": "on_completed",
    "rejected": "on_rejected",
    "cancelled": "on_cancelled",
    "superseded": "on_superseded",
    "skipped": "on_skipped",
}
"""The method for each type of event that is announced."""


class _Outbox:
    """The events of a branch that were not announced yet, and the place up to which they were."""

    def __init__(self, store: Store, branch_id: str) -> None:
        self._store = store
        self._branch_id = branch_id
        lineage = store.lineage(branch_id=branch_id)
        branch = lineage.branch
        self.seq = branch.seq if branch.announced is None else branch.announced
        self.first, self._end = self.seq, branch.seq
        self.events: list[Event] = []
        if self.seq < self._end:
            from phronomy.observability.events import events_of  # noqa: PLC0415  # most of the time nothing is to be told

            self.events = [
                event
                for event in events_of(lineage)
                if event.type in METHODS and event.path == "" and event.seq > self.seq
            ]

    def calls(self, listeners: Sequence[Announcements]) -> Iterator[tuple[Any, Event]]:
        """The methods to call, each with its event. What comes after a call that raised is left for the next time."""
        for event in self.events:
            self.seq = event.seq - 1  # all that the entries before it hold has been told
            for listener in listeners:
                yield getattr(listener, METHODS[event.type]), event
        self.seq = self._end

    def close(self) -> None:
        """Note how far the calls have come."""
        self._store.announced(self._branch_id, self.seq)


def announce(store: Store, branch_id: str, listeners: Sequence[Announcements]) -> None:
    """Tell what of a branch has not been told. Never raises but what interrupts."""
    try:
        box = _Outbox(store, branch_id)
        try:
            for method, event in box.calls(listeners):
                method(event)
        finally:
            if box.seq > box.first:
                box.close()
    except Exception as error:
        _log_failure(branch_id, error)


async def aannounce(store: Store, branch_id: str, listeners: Sequence[Announcements]) -> None:
    """As `announce`."""
    try:
        box = await in_store(store, _Outbox, store, branch_id)
        try:
            for method, event in box.calls(listeners):
                if inspect.isawaitable(answer := method(event)):
                    await answer
        finally:
            if box.seq > box.first:
                await in_store(store, box.close)
    except Exception as error:
        _log_failure(branch_id, error)


def _log_failure(branch_id: str, error: Exception) -> None:
    _log.error("announcing branch %s raised %s; recover_all tells the rest", branch_id, type(error).__name__)

"""Announcements: who is told, at least once, of what is stored: that a run waits, was decided on, or has ended.

The log of a run is the outbox. What was announced is noted beside it, so whatever a lost process did not tell, `recover` tells.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

from phronomy.errors import PhronomyError
from phronomy.stores.base import Store
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.derived.request_history import RequestChange, RequestHistory
from phronomy.stores.log.log import items_of
from phronomy.stores.native import in_store
from phronomy.stores.rows import Branch, Lineage

if TYPE_CHECKING:
    from phronomy.observability.events import Decided, Ended, Event, RequestChanged, Suspended

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

    def on_request(self, event: RequestChanged) -> Any:
        """Something happened to one request, also to one of a nested run. `event.what` says what.

        - `"asked"`: it waits for a human. This is the first that is told of a request, and told once, however many
          requests wait.
        - `"voted"`: somebody voted, and it takes more votes; `event.vote` says who and for what, `event.levels` how many
          are missing. The last vote is in the decision.
        - `"reminded"`: it still waits after a time that `Approval(remind=...)` names. A worker has to run for this.
        - `"escalated"`: it still waits, and from now on others may decide as well, by `Approval(escalate=...)`. They may
          also if nobody announces it.
        - `"decided"`: somebody decided; `event.decision` says what, and by whom. After a rejection or a skip, nothing
          follows.
        - `"expired"`: nobody decided in time. Nothing follows.
        - `"withdrawn"`: its run was ended, or does without it, and nothing has run because of it. Nothing follows.
        - `"carried_out"`: the call has ended with a result, or with the response of the human. Of a question, it is the
          call whose body asked; of a stop between two steps, the run went on. Nothing follows.
        - `"failed"`: the call ended without a result of the tool, nobody knows whether it took effect, or the decision
          could not be carried out. Nothing follows.

        The order is that of the log, so these come in this order for each request. If a human is asked again about the
        same call, `event.asked_again` of the last event has the id of the new request, which is asked after that. What
        an approval handler answers at once is never asked, so nothing is told of it.
        """

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
    "request": "on_request",
}
"""The method for each type of event that is announced."""


class _Outbox:
    """The events of a branch that were not announced yet, and the place up to which they were."""

    def __init__(self, store: Store, branch_id: str, listeners: Sequence[Announcements]) -> None:
        self._store = store
        self._branch_id = branch_id
        self._listeners = listeners
        lineage = whole_lineage(store, branch_id=branch_id)
        branch = lineage.branch
        self.seq = branch.seq if branch.announced is None else branch.announced
        self.first, self._end = self.seq, branch.seq
        self.events: list[Event | RequestChanged] = []
        if self.seq < self._end:
            heard = {method for method in METHODS.values() if any(_overrides(each, method) for each in listeners)}
            self.events = [*_events_after(lineage, self.seq, heard)]

    def calls(self) -> Iterator[tuple[Any, Event | RequestChanged]]:
        """The methods to call, each with its event. What comes after a call that raised is left for the next time."""
        for event in self.events:
            self.seq = event.seq - 1  # all that the entries before it hold has been told
            for listener in self._listeners:
                yield getattr(listener, METHODS[event.type]), event
        self.seq = self._end

    def close(self) -> None:
        """Note how far the calls have come."""
        self._store.announced(self._branch_id, self.seq)


def hears_requests(listeners: Sequence[Announcements]) -> bool:
    """Whether somebody is to be told of each request."""
    return any(_overrides(each, "on_request") for each in listeners)


def _overrides(listener: Announcements, method: str) -> bool:
    return getattr(type(listener), method) is not getattr(Announcements, method) or method in vars(listener)


def _events_after(lineage: Lineage, seq: int, heard: AbstractSet[str]) -> Iterator[Event | RequestChanged]:
    """The events after an entry of a branch, in its order, for whoever overrides these methods."""
    from phronomy.observability.events import Reader  # noqa: PLC0415  # most of the time nothing is to be told

    own = lineage.branch.id
    # Only what somebody listens to is read off the log, and in one pass: each checkpoint holds the whole conversation up to it.
    history = RequestHistory() if "on_request" in heard else None
    reader = Reader(own) if heard - {"on_request"} else None
    for entry, item in items_of(lineage.entries) if heard else ():
        changes = history.read(entry.path, item) if history is not None else []
        found = reader.read(entry.seq, entry.path, item) if reader is not None else []
        if entry.branch_id == own and entry.seq > seq:
            yield from _changed(lineage.branch, entry.seq, changes)
            yield from (event for event in found if event.type in METHODS and event.path == "")


def _changed(branch: Branch, seq: int, changes: Sequence[RequestChange]) -> Iterator[RequestChanged]:
    """The events of what one entry of a log says of requests."""
    from phronomy.observability.events import RequestChanged  # noqa: PLC0415  # as above
    from phronomy.observability.votes import levels_of  # noqa: PLC0415

    for part, each in enumerate(changes):
        yield RequestChanged(
            run_id=branch.run_id,
            branch_id=branch.id,
            thread_id=branch.thread_id,
            path=each.approval.path,
            seq=seq,
            part=part,
            what=each.what,
            request=each.approval,
            checkpoint_id=each.checkpoint_id,
            agent=branch.agent,
            label=branch.label,
            vote=each.vote,
            levels=levels_of(each.approval) if each.vote is not None else (),
            decision=each.decision,
            result_kind=each.kind,
            asked_again=each.asked_again,
        )


def announce(store: Store, branch_id: str, listeners: Sequence[Announcements]) -> PhronomyError | None:
    """Announce the news of a branch. Returns the error if the branch cannot be read. Raises only what interrupts."""
    try:
        try:
            box = _Outbox(store, branch_id, listeners)
        except PhronomyError as error:  # not logged: it would be at each look, and recovery tells it
            return error
        try:
            for method, event in box.calls():
                method(event)
        finally:
            if box.seq > box.first:
                box.close()
    except Exception as error:
        _log_failure(branch_id, error)
    return None


async def aannounce(store: Store, branch_id: str, listeners: Sequence[Announcements]) -> PhronomyError | None:
    """As `announce`."""
    try:
        try:
            box = await in_store(store, _Outbox, store, branch_id, listeners)
        except PhronomyError as error:
            return error
        try:
            for method, event in box.calls():
                if inspect.isawaitable(answer := method(event)):
                    await answer
        finally:
            if box.seq > box.first:
                await in_store(store, box.close)
    except Exception as error:
        _log_failure(branch_id, error)
    return None


def _log_failure(branch_id: str, error: Exception) -> None:
    _log.error("announcing branch %s raised %s; recover_all tells the rest", branch_id, type(error).__name__)

"""Reminders and escalations that are due: noted in the log, from where announcements are made.

No claim is needed, and no agent's code. What is noted is one small entry, and the request is listed anew, with the time at which
something is to be done about it next. Of two workers that look at the same moment, the store takes the entry of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from phronomy.errors import (
    CheckpointError,
    CheckpointNotFound,
    InvalidDecision,
    PhronomyError,
    StoreError,
    UnreadableRow,
)
from phronomy.records.calls import Reminded
from phronomy.records.decisions import PendingApproval
from phronomy.rules.reminders import Step, step_due
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.derived.listing import Waiting, leads_on
from phronomy.stores.derived.requests import waiting_with_branch
from phronomy.stores.derived.triggering import has_ended
from phronomy.stores.log.log import journal_entry, pending_row
from phronomy.stores.rows import Append, Behind, Branch, PendingFilter, PendingRow, holder_of

if TYPE_CHECKING:
    from phronomy.stores.base import Store

T = TypeVar("T")


def remind(store: Store, limit: int | None = None, **facets: str) -> list[str]:
    """Note the steps that are due of the requests with these facets; the ids of the branches in which one was noted."""
    now = store.clock()
    at = datetime.fromtimestamp(now, UTC)
    found: dict[str, None] = {}
    # What waits for a run is due at each look, and must not take the place of the others.
    for row in islice(_rows(store, facets, now, _read, lambda item: step_due(item, at) is not None), limit):
        if _remind(store, row, at):
            found[row.branch_id] = None
    return list(found)


def expired(store: Store, now: float, limit: int | None = None, **facets: str) -> list[PendingRow]:
    """The requests with these facets that have expired, and the triggers that have fired by themselves, so that their runs go on.

    If a row is damaged, the log says when it expires. If that cannot be read either, it counts as one: whoever drives the run finds out
    what is wrong.
    """
    at = datetime.fromtimestamp(now, UTC)
    ends: dict[str, bool] = {}

    def is_due(item: PendingApproval | None) -> bool:
        if item is None or item.has_lapsed(at):
            return True
        if item.trigger is None or item.trigger.run_id is None:
            return item.trigger is not None and item.trigger.due_at is not None
        if (run_id := item.trigger.run_id) not in ends:
            ends[run_id] = has_ended(store, run_id)
        return ends[run_id]

    return list(islice(_rows(store, facets, now, _read_anywhere, is_due), limit))


def _rows(
    store: Store,
    facets: Mapping[str, str],
    now: float,
    read: Callable[[Store, PendingRow], Iterable[T]],
    wanted: Callable[[T], bool],
) -> Iterator[PendingRow]:
    """The rows at which something may be due now, as far as what is read of them is wanted, a batch at a time."""
    place = PendingFilter(facets=facets, expired_at=now, limit=_BATCH)
    while True:
        rows = store.select_pending(place)
        yield from (row for row in rows if any(map(wanted, read(store, row))))
        if len(rows) < _BATCH or not leads_on(rows[-1], place):
            return
        place = replace(place, after=(rows[-1].requested_at, rows[-1].n))


_BATCH: Final = 500
"""Rows that are read at once."""


def _read(store: Store, row: PendingRow) -> list[PendingApproval]:
    """The request in a row; nothing if it is damaged."""
    with suppress(StoreError):
        return [Waiting.of(row, kept_by(store)).approval]
    return []


def _read_anywhere(store: Store, row: PendingRow) -> Sequence[PendingApproval | None]:
    """The request in a row, or if that is damaged, in the log: nothing if it does not wait there, None if that is damaged too."""
    if found := _read(store, row):
        return found
    try:
        return [item for item in store.head(row.branch_id)[1].pending if item.id == row.pending_id]
    except CheckpointNotFound:
        return []
    except PhronomyError:
        return [None]


def _remind(store: Store, row: PendingRow, at: datetime) -> bool:
    """Note the steps of one request that are due. True if there was one: somebody may have decided, or noted them, meanwhile."""
    noted = False
    # A worker that was away for a day has several to note, each by itself and in order. The next look finds what is left. A run
    # that cannot be read costs itself alone: the lists of runs and requests say that it cannot.
    with suppress(Behind, CheckpointError, InvalidDecision, UnreadableRow):
        while (waits := waiting_with_branch(store, row.pending_id, row.branch_id)) is not None:
            waiting, branch = waits
            if (step := step_due(waiting.approval, at)) is None:
                break
            store.append(_change(store, waiting, branch, step, at))
            noted = True
    return noted


def _change(store: Store, waiting: Waiting, branch: Branch, step: Step, at: datetime) -> Append:
    item = waiting.approval
    after: PendingApproval = item.evolve(reminded=item.reminded + 1)
    outcome = Reminded(pending_id=item.id, path=item.path, what=step.what, step=item.reminded, at=at)
    return Append(
        branch_id=branch.id,
        seq=branch.seq,
        holder=holder_of(branch, store.clock()),
        hands_over=False,
        entries=(journal_entry(outcome, ""),),
        closed=(item.id,),
        opened=(pending_row(after, branch, waiting.checkpoint_id, waiting.label),),
    )

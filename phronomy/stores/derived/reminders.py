"""Reminders and escalations that are due: noted in the log, from where announcements are made.

No claim is needed, and no agent's code. What is noted is one small entry, and the request is listed anew, with the time at which
something is to be done about it next. Of two workers that look at the same moment, the store takes the entry of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

from phronomy.errors import CheckpointNotFound, InvalidDecision, StoreError
from phronomy.records.calls import Reminded
from phronomy.records.decisions import PendingApproval
from phronomy.rules.reminders import Step, step_due
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.derived.listing import Waiting
from phronomy.stores.derived.requests import waiting_with_branch
from phronomy.stores.derived.triggering import run_ended
from phronomy.stores.log.log import journal_entry, pending_row
from phronomy.stores.rows import Append, Behind, Branch, PendingFilter, PendingRow, holder_of

if TYPE_CHECKING:
    from phronomy.stores.base import Store


def remind(store: Store, limit: int | None = None, **facets: str) -> list[str]:
    """Note the steps that are due of the requests with these facets; the ids of the branches in which one was noted."""
    now = store.clock()
    at = datetime.fromtimestamp(now, UTC)
    found: dict[str, None] = {}
    # What waits for a run is due at each look, and must not take the place of the others.
    for row in islice(
        _rows(store, facets, now, lambda item: item is not None and step_due(item, at) is not None), limit
    ):
        if _remind(store, row.pending_id, at):
            found[row.branch_id] = None
    return list(found)


def expired(store: Store, now: float, limit: int | None = None, **facets: str) -> list[PendingRow]:
    """The requests with these facets that have expired, and the triggers that have fired by themselves, so that their runs go on.

    A damaged row counts as one: whoever drives the run finds out what is wrong.
    """
    at = datetime.fromtimestamp(now, UTC)
    ends: dict[str, bool] = {}

    def is_due(item: PendingApproval | None) -> bool:
        if item is None or item.has_lapsed(at):
            return True
        if item.trigger is None or item.trigger.run_id is None:
            return item.trigger is not None and item.trigger.due_at is not None
        if (run_id := item.trigger.run_id) not in ends:
            ends[run_id] = run_ended(store, run_id) is not None
        return ends[run_id]

    return list(islice(_rows(store, facets, now, is_due), limit))


def _rows(
    store: Store, facets: Mapping[str, str], now: float, wanted: Callable[[PendingApproval | None], bool]
) -> Iterator[PendingRow]:
    """The rows at which something may be due now, as far as they are wanted, a batch at a time."""
    after = None
    while True:
        rows = store.select_pending(PendingFilter(facets=facets, expired_at=now, after=after, limit=_BATCH))
        yield from (row for row in rows if wanted(_read(store, row)))
        if len(rows) < _BATCH:
            return
        after = rows[-1].requested_at, rows[-1].n


_BATCH: Final = 500
"""Rows that are read at once."""


def _read(store: Store, row: PendingRow) -> PendingApproval | None:
    """The request in a row; None if it is damaged, which whoever drives the run finds out as well."""
    try:
        return Waiting.of(row, kept_by(store)).approval
    except StoreError:
        return None


def _remind(store: Store, pending_id: str, at: datetime) -> bool:
    """Note the steps of one request that are due. Whether there was one: somebody may have decided, or noted them, meanwhile."""
    noted = False
    # A worker that was away for a day has several to note, each by itself and in order.
    with suppress(Behind, CheckpointNotFound, InvalidDecision):  # the next look finds what is left
        while (waits := waiting_with_branch(store, pending_id)) is not None:
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

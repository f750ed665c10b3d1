"""The waits of a branch, read from what is listed: which triggers there are, and the write that fires one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from phronomy.records.audit import AuditRecord, audit_record_of
from phronomy.records.calls import Decided
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.trigger_errors import TriggerFired, TriggerSuperseded
from phronomy.rules.triggers import others_of, with_superseded
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.derived.listing import Waiting
from phronomy.stores.log.log import journal_entry, trail_row
from phronomy.stores.rows import Append, Branch, PendingFilter, holder_of

if TYPE_CHECKING:
    from phronomy.stores.base import Store


def waiting_on(store: Store, branch: Branch) -> list[Waiting]:
    """What waits on a branch, oldest first. Raises `StoreError` for a damaged row."""
    rows = store.select_pending(PendingFilter(facets={"run": branch.run_id}))
    return [Waiting.of(row, kept_by(store)) for row in rows if row.branch_id == branch.id]


def lost_to(item: PendingApproval, waiting: Iterable[PendingApproval], at: datetime) -> str | None:
    """What has ended the wait of this trigger by this time: a timer that was due, or a question that expired; None if nothing has."""
    # Late is late, whether a worker has come by since or not.
    for each in others_of(item, waiting):
        other = each.trigger
        if other is None:
            continue
        if other.wait_for == "first" and other.due_at is not None and other.due_at <= at:
            return f"{other.name} was due, and is first"
        if each.has_lapsed(at):
            return f"{other.name} was not answered in time"
    return None


def check_in_time(item: Waiting, waiting: Sequence[Waiting], at: datetime) -> None:
    """Refuse a decision after a timer was due: the trigger's own, or that of its wait. Raises `TriggerFired`, `TriggerSuperseded`."""
    own = item.approval.trigger.due_at if item.approval.trigger is not None else None
    if own is not None and own <= at:
        raise TriggerFired(
            f"pending {item.approval.id} was due before, so it has fired. Nothing was recorded",
            checkpoint_id=item.checkpoint_id,
            pending_id=item.approval.id,
            progress="suspended",
        )
    lost = lost_to(item.approval, [each.approval for each in waiting], at)
    if lost is not None:
        raise TriggerSuperseded(
            f"pending {item.approval.id} was superseded before: {lost}. Nothing was recorded",
            checkpoint_id=item.checkpoint_id,
            pending_id=item.approval.id,
            progress="suspended",
        )


def firing(store: Store, branch: Branch, item: Waiting, waiting: Sequence[Waiting], outcome: Decided) -> Append:
    """The write of a decision on a trigger, with those that it supersedes: each of them is in the log and in the trail."""
    known = {**{each.approval.id: each for each in waiting}, item.approval.id: item}
    outcomes = with_superseded(outcome, [each.approval for each in known.values()])
    told = [(known[each.decision.pending_id], each.decision) for each in outcomes]
    return Append(
        branch_id=branch.id,
        seq=branch.seq,
        holder=holder_of(branch, store.clock()),
        entries=tuple(journal_entry(each, "") for each in outcomes),
        closed=tuple(each.decision.pending_id for each in outcomes),
        audit=tuple(trail_row(record_of(branch, each, decision)) for each, decision in told),
    )


def record_of(branch: Branch, waiting: Waiting, decision: Decision) -> AuditRecord:
    """What the trail says of a decision on what waits on a branch."""
    return audit_record_of(
        decision,
        waiting.approval,
        agent=waiting.approval.agent or waiting.agent,
        run_id=branch.run_id,
        thread_id=branch.thread_id,
        branch_id=branch.id,
        checkpoint_id=waiting.checkpoint_id,
    )

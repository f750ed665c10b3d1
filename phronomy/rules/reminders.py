"""When people are reminded of a request, and when more of them are asked: the steps on the way to its end, in order.

No clock runs here. A vote is judged by its own time, so an escalation counts whether anybody was told of it or not; these steps are
what workers announce.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from phronomy.errors import IllegalOutcome
from phronomy.records.calls import Call, Reminded, ReminderKind
from phronomy.records.decisions import PendingApproval
from phronomy.records.record import later
from phronomy.rules.votes import governed


class Step(NamedTuple):
    """Something to be announced about a request that still waits: what, and so many seconds after it was asked."""

    after: float
    what: ReminderKind


def steps(item: PendingApproval) -> list[Step]:
    """The steps of a request, in the order in which they are announced."""
    later_on = {each.after for level in governed(item) for each in level.escalations}
    return sorted([*(Step(each, "reminded") for each in item.remind), *(Step(each, "escalated") for each in later_on)])


def step_due(item: PendingApproval, now: datetime) -> Step | None:
    """The next step of a request, if it is due and was not announced yet. After a request has expired nothing is due."""
    due = _next(item)
    if due is None or item.has_lapsed(now):
        return None
    return due if later(item.requested_at, seconds=due.after) <= now else None


def next_due(item: PendingApproval) -> datetime | None:
    """When something is to be done about a request that waits: the next step, or its expiry. None: never."""
    if item.trigger is not None and not item.asks_human:
        # The end of a run is told to nobody, so it is looked for whenever somebody looks.
        return item.requested_at if item.trigger.run_id is not None else item.trigger.due_at
    expires = item.expires_at if item.on_expiry != "stay" else None
    if not item.remind and not item.approvers:
        return expires
    if (due := _next(item)) is None:
        return expires
    at = later(item.requested_at, seconds=due.after)
    return at if expires is None or at < expires else expires


def _next(item: PendingApproval) -> Step | None:
    if not item.remind and not item.approvers:
        return None
    left = steps(item)[item.reminded :]
    return left[0] if left else None


def with_reminder(call: Call, outcome: Reminded) -> Call:
    """The call after a step was announced of its request, or of one that waits inside it. Raises `IllegalOutcome`."""
    item = next((each for each in call.waiting if each.id == outcome.pending_id), None)
    told = item.reminded if item is not None else call.reminded
    # Two workers may look at the same moment. The step that is written second was announced already.
    if outcome.step != told:
        raise IllegalOutcome(f"call {call.status}", "Reminded", "that step was announced before, or is not the next")
    if item is None:
        return call.evolve(reminded=told + 1)
    waits = tuple(each.evolve(reminded=told + 1) if each is item else each for each in call.waiting)
    return call.evolve(waiting=waits)

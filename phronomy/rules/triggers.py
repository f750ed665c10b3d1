"""Waits: which triggers are of one wait, when it is over, and what becomes of those that did not fire. Nothing here acts.

Each trigger is a request like any other, with a pending id that is decided once. So of two that fire in the same moment the store takes
one, and a wait for the first of them ends once. The decision that ends a wait is written together with those on its other triggers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from phronomy.errors import InvalidDecision
from phronomy.records.calls import Call, CallStatus, Decided, Outcome
from phronomy.records.decisions import Decision, PendingApproval

FIRED: Final = ("approve", "respond")
"""The kinds of decisions by which a trigger has fired. By any other the body does not run again, and its wait is over."""


def others_of(item: PendingApproval, waiting: Iterable[PendingApproval]) -> list[PendingApproval]:
    """The other triggers of the same wait among what waits; none if it is no trigger."""
    if item.trigger is None:
        return []
    wait = item.trigger.wait
    return [each for each in waiting if each.trigger is not None and each.trigger.wait == wait and each.id != item.id]


def is_over(item: PendingApproval, others: Sequence[PendingApproval], decision: Decision) -> bool:
    """Whether the wait of a trigger is over with this decision on it; `others` are the triggers of it that wait still."""
    first = item.trigger is not None and item.trigger.wait_for == "first"
    return first or not others or decision.kind not in FIRED


def with_superseded(outcome: Decided, waiting: Iterable[PendingApproval]) -> list[Decided]:
    """The outcome, after those that supersede the other triggers of its wait among what waits, if that is over with it."""
    decision = outcome.decision
    waiting = list(waiting)
    item = next((each for each in waiting if each.id == decision.pending_id), None)
    if item is None or item.trigger is None or decision.kind == "supersede":
        return [outcome]
    others = others_of(item, waiting)
    if not is_over(item, others, decision):
        return [outcome]
    name = item.trigger.name
    why = (
        f"{name} fired first" if decision.kind in FIRED else f"the wait ended, since {name} was {_ENDS[decision.kind]}"
    )
    return [*(Decided(decision=superseded(each, decision, why)) for each in others), outcome]


def in_order(outcomes: Sequence[Outcome], waiting: Iterable[PendingApproval]) -> list[Outcome]:
    """These outcomes, and before each of them what it supersedes of what waits.

    Raises `InvalidDecision` if one of them decides what another supersedes.
    """
    left, found = list(waiting), list[Outcome]()
    if all(item.trigger is None for item in left):
        return [*outcomes]
    gone: set[str] = set()
    for outcome in outcomes:
        if not isinstance(outcome, Decided):
            found.append(outcome)
            continue
        if (id := outcome.decision.pending_id) in gone:
            raise InvalidDecision(
                f"pending {id} is of a wait that another of these decisions ends: nothing was decided. Decide one of them",
                pending_id=id,
            )
        made = with_superseded(outcome, [item for item in left if item.id not in gone])
        gone |= {each.decision.pending_id for each in made}
        found += made
    return found


_ENDS: Final = {"reject": "rejected", "expire": "not answered in time", "cancel": "cancelled"}


def superseded(item: PendingApproval, by: Decision, why: str) -> Decision:
    """The decision on a trigger whose wait is over without it."""
    return Decision(
        pending_id=item.id,
        digest=item.digest,
        kind="supersede",
        path=item.path,
        reason=why,
        at=by.at,
        event=item.trigger.event if item.trigger is not None else None,
    )


def leaves_open(question: PendingApproval, decision: Decision) -> bool:
    """Whether the call whose body asks this is open after the decision: it has its answer, or another trigger has fired."""
    return decision.kind in FIRED or (question.trigger is not None and decision.kind == "supersede")


def after_decision(call: Call, decision: Decision) -> Call:
    """The call after a decision on what waits in it: it runs again, or waits for the rest of a wait."""
    item = next((each for each in call.waiting if each.id == decision.pending_id), None)
    waits = tuple(each for each in call.waiting if each is not item)
    # It runs still, or is asked about itself: a human is to say, or has said, what became of it.
    keeps = ("started", "asking", "pending", "answered")
    status: CallStatus = call.status if call.status in keeps else "ready"
    if item is not None and item.trigger is not None:
        others = others_of(item, waits)
        if waits and (decision.kind == "supersede" or not is_over(item, others, decision)):
            status = call.status
        else:  # what was not superseded in the same write is over with it
            waits = tuple(each for each in waits if each not in others)
    return call.evolve(status=status, waiting=waits)

"""What is decided without a human: requests that have expired, times that have come, runs that have ended, events that came early.

No clock runs here. Whoever opens the run, or is about to let it go, looks; and what is found is written as the decision of a human is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from phronomy.approvals.answers import misfit_of
from phronomy.engine.ledger import now
from phronomy.engine.run import Runner
from phronomy.foundation.json_text import canonical
from phronomy.records.calls import Decided, Ending, Outcome
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.triggers import KeptEvent
from phronomy.rules.triggers import with_superseded
from phronomy.stores.derived.triggering import decision_by, may_send, run_ended


class _Due(NamedTuple):
    """Something that has happened, and when: a decision on a request, or an event that looks for its trigger."""

    at: datetime
    decision: Decision | None = None
    event: KeptEvent | None = None


def lapsed(runner: Runner) -> Mapping[str, Decided]:
    """The outcomes, by pending id, for the requests of a run that nobody has decided in time, and for the triggers that have fired.

    They are in the order in which they are to be recorded. With each trigger that has fired, those that it supersedes are there.
    """
    # By the clock of the store, as the deadline was made: two workers whose clocks differ agree on who was late.
    at = now(runner.ledger.store)
    waiting = {item.id: item for item in runner.state.pending}
    found: dict[str, Decided] = {}
    # What happened first counts, of a wait that the first of its triggers ends.
    for due in sorted(_happened(runner, at), key=lambda each: each.at):
        left = [item for item in waiting.values() if item.id not in found]
        decision = due.decision if due.event is None else _by_event(runner, due.event, left, at)
        if decision is None or decision.pending_id in found:
            continue
        for outcome in with_superseded(Decided(decision=decision), left):
            found[outcome.decision.pending_id] = outcome
    return found


def awaits_world(runner: Runner) -> bool:
    """Whether a run that is about to rest waits for something other than a human, which may be there already."""
    return runner.root and any(not item.asks_human for item in runner.state.pending)


def _happened(runner: Runner, at: datetime) -> Iterator[_Due]:
    for item in runner.state.pending:
        trigger = item.trigger
        if trigger is not None and trigger.due_at is not None:
            if trigger.due_at <= at:
                yield _Due(trigger.due_at, _fired(item, {"due_at": trigger.due_at.isoformat()}, "time", at))
        elif trigger is not None and trigger.run_id is not None:
            if (ended := run_ended(runner.ledger.store, trigger.run_id)) is not None:
                content, authors = ended
                yield _Due(at, _fired(item, content, "run", at).evolve(authors=authors))
        elif item.has_lapsed(at):
            # The digest is that of what was shown. What the edit came to has its own, in the judgement beside it: the audit trail
            # has both (law 2).
            decision = Decision(pending_id=item.id, digest=item.digest, kind="expire", path=item.path, at=at)
            yield _Due(item.expires_at or at, decision)
    for event in runner.state.events:
        yield _Due(event.at, event=event)


def _fired(item: PendingApproval, content: object, channel: str, at: datetime) -> Decision:
    decision = Decision(pending_id=item.id, digest=item.digest, kind="respond", path=item.path, channel=channel, at=at)
    return decision.evolve(content=canonical(content))


def _by_event(runner: Runner, event: KeptEvent, left: list[PendingApproval], at: datetime) -> Decision | None:
    """The decision that an event makes which arrived before: on what waits longest for it, if its sender may send it."""
    store = runner.ledger.store
    for item in left:
        named = item.trigger is not None and item.trigger.event == event.name
        if named and misfit_of(item, event.content) is None and may_send(store, item, event.by):
            return decision_by(item, event, at)
    return None


def expiry(runner: Runner, outcomes: Mapping[str, Decided]) -> list[Outcome]:
    """These outcomes, and the end of the run where a request says that it is not to outlive it."""
    # The end is an outcome of its own behind the expired ones, so that each of them is settled as expired, and not as cancelled
    # (law 12).
    over = {id for id, each in outcomes.items() if each.decision.kind == "expire"}
    ends = [item for item in runner.state.pending if item.id in over and item.on_expiry == "cancel"]
    reason = f"nobody decided on {ends[0].tool_name} in time" if ends else None
    ending = [Ending(status="cancelled", reason=reason, at=now(runner.ledger.store))] if ends else []
    return [*outcomes.values(), *ending]

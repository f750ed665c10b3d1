"""An open call after an attempt: it failed, waits for a run inside it, is asked about again, or has settled. Nothing here acts."""

from __future__ import annotations

from typing import assert_never

from phronomy.records.calls import Call, CallFailed, CallResult, CallUnknown, CallWaits, is_nothing
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import PendingApproval
from phronomy.records.messages import NO_USAGE, Usage


def failed_call(call: Call, outcome: CallFailed, ending: bool) -> Call:
    """The call after an attempt that failed: it is tried again, or is another's, or a human's, or has settled."""
    # A run that is ending starts nothing any more: neither another attempt, nor the fallback, nor a question to a human who has
    # just ended it.
    match "model" if ending else outcome.next:
        case "retry":  # a run inside goes on where it failed: what it has done is not done again
            return call.evolve(status="ready", stopped=call.stopped or outcome.inside, worked=outcome.worked)
        case "fallback":
            # A new request in every respect: the approval of one tool says nothing about another.
            return Call(
                id=call.id,
                call_id=call.call_id,
                name=call.name,
                arguments=call.json_text("args"),
                fallback=call.fallback + 1,
                edited=call.edited,
            )
        case "model":
            return settled_call(call, CallResult(kind="failed", content=outcome.error))
        case "human":
            return asked_again(call, "failed", outcome.error, outcome)
        case "stop":
            stopped = call.stopped or outcome.inside
            failed: dict[str, object] = {"reason": outcome.error, "stopped": stopped, "worked": outcome.worked}
            return call.evolve(status="failed", why="failed", **failed)
        case unknown:
            assert_never(unknown)


def asked_again(call: Call, why: str, reason: str, request: CallFailed | CallUnknown) -> Call:
    """The call as a new request: what was approved before has been used."""
    fields = {"pending_id": request.pending_id, "requested_at": request.requested_at, "expires_at": None}
    return call.evolve(status="pending", why=why, reason=reason, approved=None, votes=(), reminded=0, **fields)


def waiting_call(call: Call, outcome: CallWaits, state: Checkpoint) -> Call:
    """The call whose nested run has stopped, or whose body asks. What was decided while it ran is handed down at once.

    It goes on where it was, so that was no attempt which failed: it costs no retry.
    """
    # A human may decide while the inner run writes its request, and before the outer one writes that it waits. It must not wait for
    # that again.
    decided = {decision.pending_id for decision in state.decisions}
    waits = tuple(_as_listed(item, call) for item in outcome.pending if item.id not in decided)
    status = "nested" if len(waits) == len(outcome.pending) else "ready"
    noted = {"waiting": waits, "stopped": True, "note": outcome.__dict__["note"]}
    return with_usage(call, outcome.usage).evolve(status=status, attempt=max(call.attempt - 1, 0), **noted)


def _as_listed(item: PendingApproval, call: Call) -> PendingApproval:
    """A request inside a call, with the votes and reminders that were noted out here: the run inside does not know of them.

    A question, or a wait, that the body comes to again is the same request, and has its time.
    """
    before = next((each for each in call.waiting if each.id == item.id), None)
    if before is None:
        return item
    if before.digest == item.digest:
        item = item.evolve(requested_at=before.requested_at, expires_at=before.expires_at)
        if item.trigger is not None and before.trigger is not None:
            item = item.evolve(trigger=item.trigger.evolve(due_at=before.trigger.due_at))
    return item.evolve(votes=max(before.votes, item.votes, key=len), reminded=max(before.reminded, item.reminded))


def settled_call(call: Call, result: CallResult) -> Call:
    """The call with its result; what only an open call needs is left out."""
    fields = {"arguments": None, "waiting": (), "usage": NO_USAGE, "brief": None, "votes": (), "reminded": 0}
    return call.evolve(status="settled", result=result, rejected=(), **fields)


def with_usage(call: Call, usage: Usage) -> Call:
    """The call with what the run inside it has cost; nothing is said where that is not known anew."""
    return call if is_nothing(usage) else call.evolve(usage=usage)

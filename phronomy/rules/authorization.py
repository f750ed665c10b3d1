"""The gate: whether a call, as it stands in the record, may run; and the key of what a call changes."""

from __future__ import annotations

from functools import lru_cache

from phronomy.errors import NotAuthorized
from phronomy.foundation.json_text import plain_object
from phronomy.records.calls import Call, place_of
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import ToolIdentity, call_digest
from phronomy.records.record import digest_of, known_digest
from phronomy.rules.voted_calls import covered_by_votes


def idempotency_key(state: Checkpoint, call: Call, digest: str | None = None) -> str:
    """The key that a tool can give to whatever it changes: the same for every attempt, resume and replay of this call.

    `digest` is that of the call, where it has none yet.
    """
    # What stands here is what makes two attempts one: the same run, place, and arguments. The branch is not among it, so a fork
    # that makes the same call has the same key, and a provider that saw it once does nothing the second time. The salt is in it
    # where a fork is to run calls anew: then the effect is wanted twice.
    parts = (state.run_id, state.path, state.salt, call.id, digest or call.digest or "")
    # The arguments of a node are what it reads of the state. Two waves with one and the same node are two calls, unless they see
    # the same state. A step of a pattern reads nothing but its arguments, and the state may go on while it runs.
    if state.kind == "graph" and not _is_of_pattern(state.agent.json_text("fingerprint")):
        return known_digest(*parts, _state_digest(state.json_text("state")))[:32]
    return known_digest(*parts)[:32]


@lru_cache(maxsize=64)
def _is_of_pattern(fingerprint: str) -> bool:
    return "pattern" in plain_object(fingerprint)


@lru_cache(maxsize=64)
def _state_digest(text: str) -> str:
    return digest_of(text)


def authorize(state: Checkpoint, call: Call, tool: ToolIdentity) -> None:
    """The gate. Returns if `call`, as it stands in `state`, may run as `tool`; raises `NotAuthorized` otherwise."""
    if (why := refusal(state, call, tool)) is not None:
        raise refused(state, call, why)


def refusal(state: Checkpoint, call: Call, tool: ToolIdentity) -> str | None:
    """Why the gate does not let the call run; None if it does."""
    # The very object, not an equal one: whoever builds a call of their own, with whatever approval in it, has not got it from the
    # record.
    place = place_of(state.calls, call.id)
    if place is None or state.calls[place] is not call or call.status not in ("ready", "started"):
        return f"it is {call.status}, or not a call of this run"
    # Both sides are asked: a tool may have become external since the call was judged, or have been so then and be none now.
    recorded = call.tool
    if tool.external or (recorded is not None and recorded.external):
        return "its tool is external, and nothing here runs it; respond with what came of it"
    if (
        recorded is None
        or call.__dict__["args"] is None
        or (recorded.path, recorded.source, recorded.endpoint, recorded.name)
        != (tool.path, tool.source, tool.endpoint, tool.name)
    ):
        return "it was judged for another tool"
    # The digest is made anew from the text that will run. A call whose arguments were changed in the store, with its digest left as
    # it was, stops here (law 2).
    if call.digest != call_digest(recorded, call.json_text("args")):
        return "its arguments are not the ones that were judged"
    # Somebody let it go on at a breakpoint: that is in `approved`, since it was a decision, and counts for nothing where an
    # approval is needed.
    passed = call.why == "breakpoint" and call.approved is not None  # to let a run go on approves of nothing
    if call.approved is None or passed:
        # The stricter of two gates counts: that which the call was judged by, and the one that the tool has now. So neither an
        # agent with a looser gate nor an edited record lets it through.
        asked = call.asked_by or "always" in (tool.gate, recorded.gate)
        if asked or (call.pending_id is not None and not passed):
            return "it needs an approval, and none is recorded"
        # Its predicate has never been asked about this call, and cannot be asked here: what runs user code must not decide, in the
        # last moment, what a human was never shown.
        if (tool.gate, recorded.gate) == ("predicate", "never"):
            return "its tool was given a gate after it was judged"
    if call.approved is None:
        return None
    # The approval is looked up in the record. What the call says of itself is not enough: it is a field, and a decision is an event
    # with a name, a time and a digest.
    for decision in state.decisions:
        if decision.pending_id == call.approved == call.pending_id and decision.kind == "approve":
            shown = decision.digest
            # The human edited the arguments. What they approved is the edit, so the digest of that is compared, not the one of what
            # they were first shown.
            if decision.args is not None:
                shown = call_digest(recorded, decision.json_text("args"))
            if shown == call.digest:
                # Counted once more from the record: who voted, and whether they were enough, whatever a worker made of it.
                return None if covered_by_votes(call, decision, state.requester) else "too few people approved of it"
    return "no recorded approval covers exactly this call"


def refused(state: Checkpoint, call: Call, why: str) -> NotAuthorized:
    """The error for a call that the gate does not let run."""
    return NotAuthorized(
        f"call {call.call_id} of {call.name} was not run: {why}", run_id=state.run_id, call_id=call.call_id
    )

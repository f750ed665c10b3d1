"""The rules of an agent's run. Everything that changes run state is in this file; nothing in it acts.

`plan` says what to do next, `apply` folds in what happened; both are pure. `TABLE` says which outcome is legal in which state: the
state of the run (`phase`) and, for an outcome that concerns a call, the status of that call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, TypeAlias, assert_never, cast

from phronomy._record import digest_of
from phronomy._texts import BLOCKED, INTERRUPTED, left
from phronomy.approvals import PAST, PendingApproval, Then, ToolIdentity, call_digest
from phronomy.checkpoint import AgentRef, Checkpoint, result_message
from phronomy.errors import IllegalOutcome, NotAuthorized
from phronomy.limits import Limits, before_acting, before_asking
from phronomy.messages import Conversation, Message, Settlement, with_unique_ids
from phronomy.types import (
    AskModel,
    Call,
    CallFailed,
    CallResult,
    CallSettled,
    CallStarted,
    CallUnknown,
    CallWaits,
    Consult,
    Decided,
    Deferred,
    Done,
    Ending,
    Finish,
    Finished,
    Interrupted,
    Judge,
    Judged,
    Judgement,
    Move,
    Outcome,
    OutputRefused,
    ReadOutput,
    Replied,
    Run,
    Stop,
    Wait,
    Withdrawn,
    place_of,
)

Phase: TypeAlias = Literal["asking", "acting", "finishing", "ended"]
"""Where a run stands: the model is to be asked · calls are open · the end is to be recorded · over."""

_OF_CALLS: Final = (Judged, Deferred, Decided, CallStarted, CallSettled, CallFailed, CallUnknown, CallWaits, Withdrawn)

TABLE: Final[Mapping[str, frozenset[type]]] = {
    "asking": frozenset({Replied, Interrupted, Ending}),
    "acting": frozenset({*_OF_CALLS, Interrupted, Ending, Finished}),
    "finishing": frozenset({Finished, OutputRefused, Interrupted, Ending}),
    "ended": frozenset(),
    "call new": frozenset({Judged}),
    "call asking": frozenset({Decided, Deferred}),
    "call pending": frozenset({Decided}),
    "call ready": frozenset({CallStarted, Decided}),
    "call started": frozenset({CallSettled, CallFailed, CallUnknown, CallWaits, Withdrawn, Decided}),
    "call nested": frozenset({Decided}),
    "call failed": frozenset({Decided}),
    "call settled": frozenset(),
}
"""Which outcome is legal in which state."""


class Rules(Protocol):
    """What `plan` reads of a spec: the bounds of the logical run.

    `output_retries` says how often an answer that is not of the output type is asked for anew; None: any text will do.
    """

    @property
    def limits(self) -> Limits: ...

    @property
    def max_parallel(self) -> int: ...

    @property
    def output_retries(self) -> int | None: ...


def phase(state: Checkpoint) -> Phase:
    """Where the run stands."""
    if state.ended:
        return "ended"
    if state.calls:
        return "acting"
    if state.ending or state.rejecting or (state.messages and state.messages[-1].role == "assistant"):
        return "finishing"
    return "asking"


def plan(state: Checkpoint, spec: Rules) -> Move:
    """What comes next. A checkpoint that carries a journal is brought up to date first."""
    state = current(state)
    match phase(state):
        case "ended":
            return Done(status=state.ended or "completed")
        case "finishing":
            return _finish(state, spec)
        case "asking":
            return before_asking(state, spec.limits, spec.output_retries) or AskModel()
        case "acting":
            return before_acting(state, spec.limits) or plan_calls(state, spec)
        case unknown:
            assert_never(unknown)


def plan_calls(state: Checkpoint, spec: Rules) -> Move:
    """What comes next for the open calls: judge, consult, run, and only then wait. A rejection may have ended it all."""
    if state.rejecting and not _with_status(state, "started"):
        return Finish(status="rejected")
    if new := _with_status(state, "new"):
        return Judge(calls=new)
    if asking := _with_status(state, "asking"):
        return Consult(calls=asking)
    if ready := _with_status(state, "ready"):
        return Run(calls=ready[: spec.max_parallel])
    started, failed = _with_status(state, "started"), _with_status(state, "failed")
    if failed and not started and not state.pending:
        return Stop(calls=failed)
    return Wait(pending=state.pending, running=started)


def apply(state: Checkpoint, outcome: Outcome) -> Checkpoint:
    """The next state. Raises `IllegalOutcome` where the table does not allow the outcome; nothing changes then."""
    return close_turn(fold(state, outcome))


def fold(state: Checkpoint, outcome: Outcome) -> Checkpoint:
    """As `apply`, with calls that have settled left as they are."""
    now = phase(state)
    if type(outcome) not in TABLE[now]:
        raise IllegalOutcome(now, type(outcome).__name__)
    match outcome:
        case Replied():
            return _replied(state, outcome)
        case Finished():
            return _finished(state, outcome)
        case Ending():
            return _ending(state, outcome)
        case Interrupted():
            return _interrupted(state, outcome)
        case OutputRefused():
            said = Message(role="user", content=outcome.error)
            messages = Conversation.of(state.messages).plus(said)
            return state.evolve(messages=messages, refused=state.refused + 1)
        case _:
            return _fold_calls(state, outcome)


def _fold_calls(state: Checkpoint, outcome: Outcome) -> Checkpoint:
    """The next state after an outcome that concerns open calls."""
    match outcome:
        case Judged():
            state = _judged(state, outcome)
        case Deferred():
            for pending_id in outcome.pending_ids:
                state = _with_call(state, _set(_asked(state, pending_id, outcome), status="pending"))
        case Decided():
            state = _decided(state, outcome)
        case CallStarted():
            call = _call(state, outcome.id, outcome)
            state = _with_call(state, _set(call, status="started", attempt=outcome.attempt))
        case Withdrawn():
            state = _withdrawn(state, outcome)
        case CallSettled():
            call = _settled(_call(state, outcome.id, outcome), outcome.result)
            state = _spent(_with_call(state, call), outcome.elapsed)
            state = state.evolve(usage=state.usage + outcome.usage) if outcome.usage.requests else state
        case CallFailed():
            call = _failed(_call(state, outcome.id, outcome), outcome, is_ending(state))
            state = _spent(_with_call(state, call), outcome.elapsed)
        case CallUnknown():
            call = _ask_again(_call(state, outcome.id, outcome), "outcome_unknown", outcome.reason, outcome)
            state = _spent(_with_call(state, call), outcome.elapsed)
            state = _settled_by_ending(state)
        case _:
            assert isinstance(outcome, CallWaits), "the table has no other outcome for calls"
            state = _with_call(state, _waits(_call(state, outcome.id, outcome), outcome, state))
            state = _settled_by_ending(_spent(state, outcome.elapsed))
    return state


def _withdrawn(state: Checkpoint, outcome: Withdrawn) -> Checkpoint:
    for id in outcome.ids:
        call = _call(state, id, outcome)
        state = _with_call(state, _set(call, status="ready", attempt=_untried(call), reason=outcome.reason))
    return _settled_by_ending(state)


def close_turn(state: Checkpoint) -> Checkpoint:
    """The state with the results of a turn in the conversation, once every call of it has settled."""
    if not state.calls or any(call.result is None for call in state.calls):
        return state
    results = [
        result_message(call.call_id, _noted(call, call.result)) for call in state.calls if call.result is not None
    ]
    return state.evolve(messages=Conversation.of(state.messages).plus(*results), calls=())


def current(checkpoint: Checkpoint, fold: Callable[[Checkpoint, Outcome], Checkpoint] = apply) -> Checkpoint:
    """The state of a checkpoint with its journal folded in."""
    state = checkpoint
    if checkpoint.journal:
        state = checkpoint.evolve(journal=())
        for outcome in checkpoint.journal:
            state = fold(state, outcome)
    return state


def begin(
    parent: Checkpoint | None,
    *,
    id: str,
    run_id: str,
    branch_id: str,
    thread_id: str | None,
    at: datetime,
    agent: AgentRef,
    original_input: Any,
    messages: tuple[Message, ...] = (),
    state: Any = None,
    calls: tuple[Call, ...] = (),
    kind: str = "agent",
    path: str = "",
    label: str | None = None,
    metadata: Any = None,
) -> Checkpoint:
    """The first state of a run: its input is accepted. `messages` are all of them, the input included."""
    return Checkpoint(
        id=id,
        parent_id=parent.id if parent is not None else None,
        run_id=run_id,
        branch_id=branch_id,
        thread_id=thread_id,
        kind=kind,
        path=path,
        created_at=at,
        label=label,
        metadata=metadata or {},
        agent=agent,
        original_input=original_input,
        messages=messages,
        state=state,
        calls=calls,
    )


def seal(state: Checkpoint, *, id: str, at: datetime) -> Checkpoint:
    """The state as a new checkpoint that goes on from the last one."""
    update = {"id": id, "parent_id": state.id, "step": state.step + 1, "created_at": at, "label": None}
    return state.evolve(**update)


def branch_off(
    checkpoint: Checkpoint,
    *,
    id: str,
    branch_id: str,
    at: datetime,
    salt: str,
    ids: Mapping[str, str],
    nested: Mapping[str, Checkpoint],
) -> Checkpoint:
    """The first state of a fork: as the checkpoint was sealed, without an approval that has not been used.

    `ids` gives each call that waits, or that was approved, a new pending id by its call id, so that one approval never runs two
    branches; `nested` are the forks of the runs inside, by call id.
    """
    unused = {call.approved for call in checkpoint.calls if call.id in ids}
    kept = [item for item in checkpoint.decisions if item.pending_id not in unused and item.path == checkpoint.path]
    calls = []
    for call in checkpoint.calls:
        if call.id in ids:
            lapses = call.expires_at and call.requested_at and at + (call.expires_at - call.requested_at)
            again = {"pending_id": ids[call.id], "requested_at": at, "expires_at": lapses}
            call = _set(call, status="pending", approved=None, **again)
        elif call.id in nested:
            call = _set(call, status="nested" if (waits := nested[call.id].pending) else "ready", waiting=waits)
        elif call.waiting:  # its body asks anew
            call = _set(call, status="ready", waiting=())
        calls.append(call)
    update = {"branch_id": branch_id, "calls": tuple(calls), "decisions": tuple(kept), "salt": salt}
    return seal(checkpoint, id=id, at=at).evolve(**update, journal=(), nested=())


def idempotency_key(state: Checkpoint, call: Call, digest: str | None = None) -> str:
    """The key that a tool can give to whatever it changes: the same for every attempt, resume and replay of this call.

    `digest` is that of the call, where it has none yet.
    """
    parts = (state.run_id, state.path, state.salt, call.id, digest or call.digest or "")
    if state.kind == "graph":  # what a node does depends on all that it sees
        return digest_of(*parts, _state_digest(state.json_text("state")))[:32]
    return digest_of(*parts)[:32]


@lru_cache(maxsize=64)
def _state_digest(text: str) -> str:
    return digest_of(text)


def authorize(state: Checkpoint, call: Call, tool: ToolIdentity) -> None:
    """The gate. Returns if `call`, as it stands in `state`, may run as `tool`; raises `NotAuthorized` otherwise."""
    if (why := refusal(state, call, tool)) is not None:
        raise refused(state, call, why)


def refusal(state: Checkpoint, call: Call, tool: ToolIdentity) -> str | None:
    """Why the gate does not let the call run; None if it does."""
    if not any(call is mine for mine in state.calls) or call.status not in ("ready", "started"):
        return f"it is {call.status}, or not a call of this run"
    recorded = call.tool
    if (
        recorded is None
        or call.__dict__["args"] is None
        or (recorded.path, recorded.source, recorded.name) != (tool.path, tool.source, tool.name)
    ):
        return "it was judged for another tool"
    if call.digest != call_digest(recorded, call.json_text("args")):
        return "its arguments are not the ones that were judged"
    if call.approved is None:
        if "always" in (tool.gate, recorded.gate) or call.pending_id is not None:
            return "it needs an approval, and none is recorded"
        if (tool.gate, recorded.gate) == ("predicate", "never"):
            return "its tool was given a gate after it was judged"
        return None
    for decision in state.decisions:
        if decision.pending_id == call.approved == call.pending_id and decision.kind == "approve":
            shown = decision.digest
            if decision.args is not None:
                shown = call_digest(recorded, decision.json_text("args"))
            if shown == call.digest:
                return None
    return "no recorded approval covers exactly this call"


def refused(state: Checkpoint, call: Call, why: str) -> NotAuthorized:
    """The error for a call that the gate does not let run."""
    return NotAuthorized(
        f"call {call.call_id} of {call.name} was not run: {why}", run_id=state.run_id, call_id=call.call_id
    )


def _finish(state: Checkpoint, spec: Rules) -> Finish | ReadOutput:
    if state.ending:
        return Finish(status=state.ending.status)
    if state.rejecting:
        return Finish(status="rejected")
    if spec.output_retries is not None:
        return ReadOutput(text=state.messages[-1].text)
    return Finish(status="completed", output=state.messages[-1].text)


def _replied(state: Checkpoint, outcome: Replied) -> Checkpoint:
    turn = state.turn + 1
    said = Conversation.of(state.messages)
    message = with_unique_ids(outcome.message, said.call_ids, turn)
    calls = tuple(
        Call(id=f"{turn}.{index}", call_id=call.id, name=call.name, arguments=call.arguments)
        for index, call in enumerate(message.tool_calls)
    )
    update = {
        "messages": said.plus(message),
        "turn": turn,
        "called": state.called + len(calls),
        "calls": calls,
        "usage": state.usage + outcome.usage,
        "elapsed": state.elapsed + outcome.elapsed,
    }
    return state.evolve(**update)


def _judged(state: Checkpoint, outcome: Judged) -> Checkpoint:
    for judgement in outcome.judgements:
        call = judged_call(_call(state, judgement.id, outcome), judgement, state.blocked)
        state = _with_call(state, call)
        if call.result is not None and call.result.kind == "rejected":
            state = _after_rejection(state, call, judgement.then)
    return state


def judged_call(call: Call, judgement: Judgement, blocked: tuple[str, ...]) -> Call:
    """The call as it stands after it was judged. One that was rejected for good is rejected again, unasked."""
    facts = {"tool": judgement.tool, "args": judgement.__dict__["args"], "digest": judgement.digest, "arguments": None}
    call = _set(call, **facts, repeatable=judgement.repeatable)
    if judgement.digest is not None and judgement.digest in blocked:
        return _settled(call, CallResult(kind="rejected", content=BLOCKED))
    if judgement.result is not None:
        return _settled(call, judgement.result)
    if judgement.verdict == "run":
        return _set(call, status="ready")
    request = ("pending_id", "why", "reason", "requested_at", "expires_at", "on_expiry")
    asked = {name: getattr(judgement, name) for name in request}
    return _set(call, status="asking" if judgement.verdict == "ask" else "pending", **asked)


def _decided(state: Checkpoint, outcome: Decided) -> Checkpoint:
    decision = outcome.decision
    call = _asked(state, decision.pending_id, outcome)
    state = state.evolve(decisions=(*state.decisions, decision))
    question = _question(state, call, decision.pending_id)
    if (call.digest if question is None else question.digest) != decision.digest and (question or not call.waiting):
        raise IllegalOutcome(f"call {call.status}", "Decided", "its digest is not that of the call")
    if call.waiting and (question is None or decision.kind in ("approve", "respond")):
        waits = tuple(item for item in call.waiting if item.id != decision.pending_id)
        return _with_call(state, _set(call, status="started" if call.status == "started" else "ready", waiting=waits))
    if decision.kind == "approve":
        edits: dict[str, Any] = {}
        if outcome.edited is not None:
            edits = {"args": outcome.edited.__dict__["args"], "digest": outcome.edited.digest, "edited": True}
        return _with_call(state, _set(call, status="ready", approved=decision.pending_id, **edits))
    result = CallResult(kind=cast(Settlement, PAST[decision.kind]), content=_told(call, outcome))
    state = _with_call(state, _settled(call, result))
    return _after_rejection(state, call, decision.then) if decision.kind == "reject" else state


def _question(state: Checkpoint, call: Call, pending_id: str) -> PendingApproval | None:
    """What the body of the call itself asked under this id; None if it is something else, or of a run nested in the call."""
    asked = (item for item in call.waiting if item.why == "question" and item.path == state.path)
    return next((item for item in asked if item.id == pending_id), None)


def _after_rejection(state: Checkpoint, call: Call, then: Then) -> Checkpoint:
    if then == "block" and call.digest is not None and call.digest not in state.blocked:
        return state.evolve(blocked=(*state.blocked, call.digest))
    return state.evolve(rejecting=True) if then == "end" else state


def _told(call: Call, outcome: Decided) -> str:
    """What the model reads of a decision that is no approval."""
    decision = outcome.decision
    if decision.kind == "respond":
        content = decision.content
        return content if isinstance(content, str) else decision.json_text("content")
    return left(call, "call cancelled" if decision.kind == "cancel" else PAST[decision.kind], decision.reason)


def is_ending(state: Checkpoint) -> bool:
    """Whether the run only waits for what is under way, and then ends."""
    return state.ending is not None or state.rejecting


def _waits(call: Call, outcome: CallWaits, state: Checkpoint) -> Call:
    """The call whose nested run has stopped, or whose body asks. What was decided while it ran is handed down at once.

    It goes on where it was, so that was no attempt which failed: it costs no retry.
    """
    decided = {decision.pending_id for decision in state.decisions}
    waits = tuple(item for item in outcome.pending if item.id not in decided)
    status = "nested" if waits == outcome.pending else "ready"
    return _set(call, status=status, waiting=waits, stopped=True, attempt=_untried(call))


def _untried(call: Call) -> int:
    """How many attempts there were without the one that was just begun."""
    return max(call.attempt - 1, 0)


def _failed(call: Call, outcome: CallFailed, ending: bool) -> Call:
    match "model" if ending else outcome.next:
        case "retry":
            return _set(call, status="ready")
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
            return _settled(call, CallResult(kind="failed", content=outcome.error))
        case "human":
            return _ask_again(call, "failed", outcome.error, outcome)
        case "stop":
            return _set(call, status="failed", why="failed", reason=outcome.error)
        case unknown:
            assert_never(unknown)


def _ask_again(call: Call, why: str, reason: str, request: CallFailed | CallUnknown) -> Call:
    """The call as a new request: what was approved before has been used."""
    fields = {"pending_id": request.pending_id, "requested_at": request.requested_at, "expires_at": None}
    return _set(call, status="pending", why=why, reason=reason, approved=None, **fields)


def _finished(state: Checkpoint, outcome: Finished) -> Checkpoint:
    if any(call.result is None for call in state.calls):
        if not state.rejecting or _with_status(state, "started"):
            raise IllegalOutcome("acting", "Finished", "calls are open")
        state = _settle_unstarted(state, "cancelled", "ended")
    return state.evolve(ended=outcome.status, output=outcome.__dict__["output"])


def _ending(state: Checkpoint, outcome: Ending) -> Checkpoint:
    if state.ending is not None:  # the first one counts
        return state
    return _settled_by_ending(state.evolve(ending=outcome))


def _settled_by_ending(state: Checkpoint) -> Checkpoint:
    """The state with what has not started settled, if the run was ended meanwhile."""
    return _settle_unstarted(state, state.ending.status, state.ending.status) if state.ending else state


def _settle_unstarted(state: Checkpoint, kind: Settlement, event: str) -> Checkpoint:
    reason = state.ending.reason if state.ending is not None else None
    calls = []
    for call in state.calls:
        if call.status not in ("started", "settled"):
            call = _settled(call, CallResult(kind=kind, content=left(call, event, reason)))
        calls.append(call)
    return state.evolve(calls=tuple(calls))


def _interrupted(state: Checkpoint, outcome: Interrupted) -> Checkpoint:
    for call in _with_status(state, "started"):
        if call.repeatable:
            again = _set(call, status="ready")
        elif call.id in outcome.pending_ids:
            request = CallUnknown(
                id=call.id, reason=INTERRUPTED, pending_id=outcome.pending_ids[call.id], requested_at=outcome.at
            )
            again = _ask_again(call, "outcome_unknown", INTERRUPTED, request)
        else:
            raise IllegalOutcome(
                "call started", "Interrupted", f"call {call.id} has no pending id to be asked about under"
            )
        state = _with_call(state, again)
    for call in _with_status(state, "failed"):
        state = _with_call(state, _set(call, status="ready", attempt=0))  # why it is open is told if it ends here
    return _settled_by_ending(state)


def _with_status(state: Checkpoint, status: str) -> tuple[Call, ...]:
    return tuple([call for call in state.calls if call.status == status])


def _call(state: Checkpoint, id: str, outcome: Outcome) -> Call:
    """The open call of this id, if the outcome is legal for it."""
    if (place := place_of(state.calls, id)) is None:
        raise IllegalOutcome(phase(state), type(outcome).__name__, f"there is no open call {id}")
    call = state.calls[place]
    if type(outcome) not in TABLE[f"call {call.status}"]:
        raise IllegalOutcome(f"call {call.status}", type(outcome).__name__, f"call {id}")
    return call


def _asked(state: Checkpoint, pending_id: str, outcome: Outcome) -> Call:
    """The call that waits under this pending id, itself or a run nested in it."""
    for call in state.calls:
        waits = call.status in ("asking", "pending") and call.pending_id == pending_id
        if waits or (call.status != "settled" and any(item.id == pending_id for item in call.waiting)):
            return _call(state, call.id, outcome)
    raise IllegalOutcome(phase(state), type(outcome).__name__, f"nothing waits under {pending_id}")


def _with_call(state: Checkpoint, call: Call) -> Checkpoint:
    place = place_of(state.calls, call.id)
    assert place is not None, "it is one of these"
    return state.evolve(calls=(*state.calls[:place], call, *state.calls[place + 1 :]))


def _settled(call: Call, result: CallResult) -> Call:
    return _set(call, status="settled", result=result, arguments=None, waiting=())


def _noted(call: Call, result: CallResult) -> CallResult:
    """The result as the model reads it: told when a human changed what it asked for, or it would ask again."""
    if not call.edited:
        return result
    note = f"A human changed the arguments of this call to {call.json_text('args')} before it ran. Its result:\n"
    return result.evolve(content=note + result.content)


def _set(call: Call, **fields: Any) -> Call:
    return call.evolve(**fields)


def _spent(state: Checkpoint, elapsed: int) -> Checkpoint:
    return state.evolve(elapsed=state.elapsed + elapsed) if elapsed else state

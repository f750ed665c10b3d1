"""The rules of an agent's run. Everything that changes run state is in this file; nothing in it acts.

`plan` says what to do next, `apply` folds in what happened; both are pure. `TABLE` says which outcome is legal in which state: the
state of the run (`phase`) and, for an outcome that concerns a call, the status of that call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, assert_never, cast

from phronomy._chain import handed_over
from phronomy._json import JsonText, canonical
from phronomy._record import EMPTY
from phronomy._texts import BLOCKED, INTERRUPTED, left
from phronomy.approvals import PAST, Decision, PendingApproval, Then, ToolIdentity, call_digest
from phronomy.checkpoint import Checkpoint, result_message
from phronomy.errors import IllegalOutcome
from phronomy.limits import Limits, before_acting, before_asking
from phronomy.messages import Conversation, Message, Settlement, with_unique_ids
from phronomy.types import (
    AskModel,
    Call,
    CallFailed,
    CallResult,
    CallSettled,
    CallStarted,
    CallStatus,
    CallUnknown,
    CallWaits,
    Consult,
    Decided,
    Deferred,
    Done,
    Ending,
    Finish,
    Finished,
    Guard,
    Guarded,
    Halted,
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
    "asking": frozenset({Replied, Guarded, Halted, Interrupted, Ending}),
    "acting": frozenset({*_OF_CALLS, Guarded, Halted, Interrupted, Ending, Finished}),
    "finishing": frozenset({Finished, OutputRefused, Guarded, Halted, Interrupted, Ending}),
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
    if state.ending or state.rejecting or state.skipping or (state.messages and state.messages[-1].role == "assistant"):
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
            if state.unguarded == "input":
                return Guard(stage="input")
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
        case Guarded():
            return _guarded(state, outcome)
        case Halted():
            return state if is_ending(state) else with_gate(state, outcome)
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
        result_message(call.call_id, _noted(call, call.result))
        for call in state.calls
        if call.result is not None and not call.gate
    ]
    messages = Conversation.of(state.messages).plus(*results)
    return handed_over(state.evolve(messages=messages, calls=()), state.calls)


def current(checkpoint: Checkpoint, fold: Callable[[Checkpoint, Outcome], Checkpoint] = apply) -> Checkpoint:
    """The state of a checkpoint with its journal folded in."""
    state = checkpoint
    if checkpoint.journal:
        state = checkpoint.evolve(journal=())
        for outcome in checkpoint.journal:
            state = fold(state, outcome)
    return state


def finish_of(state: Checkpoint) -> Finish:
    """The end of a run that is ending."""
    if state.ending:
        return Finish(status=state.ending.status)
    return Finish(status="rejected" if state.rejecting else "skipped")


def _finish(state: Checkpoint, spec: Rules) -> Finish | Guard | ReadOutput:
    if is_ending(state):
        return finish_of(state)
    if state.unguarded == "output":
        return Guard(stage="output")
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
    if outcome.guarded and not calls:
        update["unguarded"] = "output"
    return state.evolve(**update)


def _guarded(state: Checkpoint, outcome: Guarded) -> Checkpoint:
    """What guardrails refuse is no part of the conversation that goes on. Of a call, the judgement says what becomes of it."""
    if outcome.stage == "tool":
        ends = outcome.refusal is not None and outcome.refusal.then == "end"
        return state.evolve(refusal=outcome.refusal) if ends else state
    if state.unguarded != outcome.stage:
        raise IllegalOutcome(phase(state), "Guarded", f"no {outcome.stage} waits for guardrails")
    if outcome.refusal is not None:
        messages = Conversation(state.messages[:-1])
        return state.evolve(messages=messages, unguarded=None, refusal=outcome.refusal, rejecting=True)
    state = state.evolve(unguarded=None)
    content = outcome.__dict__["content"]
    if content is None:
        return state
    return _with_input(state, content) if outcome.stage == "input" else _with_last(state, "assistant", content)


def _with_input(state: Checkpoint, value: JsonText) -> Checkpoint:
    """The state of a run that goes on from another input. What it was asked first is kept."""
    content = canonical(str(value)) if value[:1] == "{" else value
    return _with_last(state.evolve(new_input=value), "user", content)


def _with_last(state: Checkpoint, role: Any, content: Any) -> Checkpoint:
    said = state.messages[-1].evolve(role=role, content=content, provider=EMPTY)
    return state.evolve(messages=Conversation((*state.messages[:-1], said)))


def with_gate(state: Checkpoint, outcome: Halted) -> Checkpoint:
    """The state with a gate before what has not begun; it is a call that never runs, and settles when it is decided."""
    tool = gate_identity(state.path, outcome.point or "operator")
    args = outcome.__dict__["args"]
    gate = Call(
        id=outcome.key,
        call_id=outcome.key,
        name=tool.name,
        status="pending",
        gate=True,
        tool=tool,
        args=args,
        digest=call_digest(tool, args),
        pending_id=outcome.pending_id,
        why="breakpoint",
        reason=outcome.reason,
        point=outcome.point,
        label=outcome.label,
        requested_at=outcome.at,
        repeatable=True,
    )
    return state.evolve(calls=(gate, *state.calls))


def gate_identity(path: str, name: str) -> ToolIdentity:
    """What a decision on a gate is bound to."""
    return ToolIdentity(path=path, source="breakpoint", name=name, schema_hash="", gate="never")


def position_of(state: Checkpoint, point: str) -> str:
    """The key of a point where the run stands now: it stops there once."""
    return f"{point}@{state.turn}"


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
    return _asked_for(call, judgement)


def _asked_for(call: Call, judgement: Judgement) -> Call:
    request = ("pending_id", "why", "reason", "point", "label", "requested_at", "expires_at", "on_expiry")
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
        status: CallStatus = "started" if call.status == "started" else "ready"
        return _ended_by(decision, _with_call(state, _set(call, status=status, waiting=waits)))
    if call.gate:
        return _passed(state, call, outcome)
    if decision.kind == "approve":
        edits: dict[str, Any] = {}
        if (edited := outcome.edited) is not None:
            other = call.edited or edited.digest != call.digest
            edits = {"args": edited.__dict__["args"], "digest": edited.digest, "edited": other}
            if call.why == "breakpoint" and edited.why == "approval" and edited.pending_id is not None:
                # Whoever lets a run go on has not approved what has come to need it.
                return _with_call(state, _asked_for(_set(call, **edits), edited))
        return _with_call(state, _set(call, status="ready", approved=decision.pending_id, **edits))
    result = CallResult(kind=cast(Settlement, PAST[decision.kind]), content=_told(call, outcome))
    state = _with_call(state, _settled(call, result))
    if decision.kind == "reject":
        return _after_rejection(state, call, decision.then)
    return _ended_by(decision, state)


def _ended_by(decision: Decision, state: Checkpoint) -> Checkpoint:
    """The state after a decision which says that the run is not to outlive it: nobody answered whoever held it."""
    if decision.kind != "expire" or decision.then != "end":
        return state
    return _ending(state, Ending(status="cancelled", reason=decision.reason, at=decision.at))


def _passed(state: Checkpoint, gate: Call, outcome: Decided) -> Checkpoint:
    """The state after a decision on a gate: the run goes on, or ends there. Guardrails are to look at another input as well."""
    decision = outcome.decision
    state = state.evolve(calls=tuple(call for call in state.calls if call is not gate))
    match decision.kind:
        case "approve":
            here = [key for key in state.passed if key.endswith(f"@{state.turn}")]
            state = state.evolve(passed=(*here, gate.id))
            given = decision.args or {}
            if "input" not in given:
                return state
            if outcome.edited is not None and outcome.edited.verdict == "ask":
                state = state.evolve(unguarded="input")
            return _with_input(state, canonical(given["input"]))
        case "skip":
            return state.evolve(skipping=True)
        case "reject":
            return state.evolve(rejecting=True)
        case _:
            reason = decision.reason or f"nobody let it go on at {gate.name} in time"
            return _ending(state, Ending(status="cancelled", reason=reason, at=decision.at))


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
    return state.ending is not None or state.rejecting or state.skipping


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
            stopped = call.stopped or outcome.inside
            return _set(call, status="failed", why="failed", reason=outcome.error, stopped=stopped)
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
    if is_ending(state) and outcome.status != (
        to := finish_of(state).status
    ):  # written, unseen, after the run was ended
        raise IllegalOutcome(phase(state), "Finished", f"the run is to end as {to}, not as {outcome.status}")
    if state.unguarded is not None:  # it ends before guardrails have let that through
        state = state.evolve(messages=Conversation(state.messages[:-1]), unguarded=None)
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

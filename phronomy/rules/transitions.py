"""The rules of an agent's run. Everything that changes run state is in this file, and in `added_messages.py`; nothing in it acts.

What becomes of one call is in `open_calls.py`, `voted_calls.py` and `triggers.py`.

`plan` says what to do next, `apply` folds in what happened; both are pure. Which outcome is legal in which state, and what may follow,
is in `table.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, assert_never, cast

from phronomy.errors import IllegalOutcome
from phronomy.foundation.json_text import canonical
from phronomy.records.calls import (
    NEW_CALL,
    REQUEST,
    Added,
    Arrived,
    Call,
    CallFailed,
    CallResult,
    CallSettled,
    CallStarted,
    CallStatus,
    CallUnknown,
    CallWaits,
    Decided,
    Deferred,
    Ending,
    Finished,
    Guarded,
    Halted,
    Interrupted,
    Judged,
    Judgement,
    Narrowed,
    Outcome,
    OutputRefused,
    Reminded,
    Replied,
    Returned,
    Voted,
    Withdrawn,
    gate_identity,
    is_nothing,
    place_of,
)
from phronomy.records.chain import decision_on, handed_over, is_handed_over, with_decision, written_by
from phronomy.records.checkpoint import Checkpoint, asked_next, result_message
from phronomy.records.decisions import PAST, Decision, Then, block_key, call_digest
from phronomy.records.messages import Conversation, Message, Settlement, Usage, with_unique_ids
from phronomy.records.moves import (
    AskModel,
    Consult,
    Done,
    Finish,
    Guard,
    Judge,
    Move,
    ReadOutput,
    Return,
    Run,
    Stop,
    Wait,
)
from phronomy.rules.added_messages import (
    added,
    before_reply,
    guarded,
    is_ending,
    said_on,
    with_authors,
    with_input,
    without_unguarded,
)
from phronomy.rules.journal import folded
from phronomy.rules.limits import Limits, before_acting, before_asking
from phronomy.rules.open_calls import asked_again, failed_call, settled_call, waiting_call, with_usage
from phronomy.rules.reminders import with_reminder
from phronomy.rules.table import TABLE, phase
from phronomy.rules.texts_for_model import INTERRUPTED, left, noted, refused_inside, told, why_blocked
from phronomy.rules.triggers import after_decision, leaves_open
from phronomy.rules.voted_calls import (
    asked_at,
    check_votes,
    check_votes_inside,
    is_governed,
    needs_check,
    with_senders,
    with_vote,
    with_vote_inside,
)


class Rules(Protocol):
    """What `plan` reads of a spec: the bounds of the logical run.

    `output_retries` says how often an answer that is not of the output type is asked for anew; None: any text will do.
    """

    @property
    def limits(self) -> Limits:
        """The bounds of a logical run."""
        ...

    @property
    def max_parallel(self) -> int:
        """How many calls may run at once."""
        ...

    @property
    def output_retries(self) -> int | None:
        """How often the model is asked again for an answer of the output type; None: any text is an answer."""
        ...


def plan(state: Checkpoint, spec: Rules) -> Move:
    """What comes next. A checkpoint that carries a journal is brought up to date first."""
    # Whoever plans at a REPL gives a checkpoint as it was loaded. The engine gives a state whose journal is folded in.
    state = current(state)
    match phase(state):
        case "ended":
            return Done(status=state.ended or "completed")
        case "finishing":
            return _finish(state, spec)
        case "asking":
            if state.unguarded is not None:
                return Guard(stage="input")
            return before_asking(state, spec.limits, spec.output_retries) or AskModel()
        case "paused":
            return Wait(pending=state.pending)
        case "acting":
            if (call := answering(state)) is not None and _has_settled(state):
                return Return(call=call)
            # The limits come first. A run that has used up its calls must not ask a human about one that it would then refuse to
            # run.
            return before_acting(state, spec.limits) or plan_calls(state, spec)
        case unknown:
            assert_never(unknown)


def plan_calls(state: Checkpoint, spec: Rules) -> Move:
    """What comes next for the open calls: judge, consult, run, and only then wait. A rejection may have ended it all."""
    # This is asked after every outcome, and a reply or a wave of a graph may hold hundreds of calls: first which there are, then these.
    statuses = [call.status for call in state.calls]

    def calls(status: CallStatus) -> tuple[Call, ...]:
        return tuple([call for call in state.calls if call.status == status]) if status in statuses else ()

    started = calls("started")
    # Somebody refused, and ended the run by it. What runs already is waited for, so that its result is on record; only then is the
    # end.
    if state.rejecting and not started:
        return Finish(status="rejected")
    if any(call.is_pause for call in calls("pending")):  # nothing begins, not even a judgement
        return Wait(pending=state.pending, running=started)
    # All are judged before any handler is asked, and all handlers before any call runs. So a human sees every request of a reply at
    # once, and nothing has run that a policy or a handler ended the run to prevent.
    if new := calls("new"):
        return Judge(calls=new)
    if asking := (*calls("answered"), *calls("asking")):
        return Consult(calls=asking)
    if "ready" in statuses and (free := spec.max_parallel - len(started)) > 0:
        return Run(calls=calls("ready")[:free])
    waiting = state.pending
    # A call that failed stops the run with an error only when nothing else can go on. As long as a human has something to decide,
    # the run waits instead: an error would tell the caller that nobody needs to do anything.
    if (failed := calls("failed")) and not started and not waiting:
        return Stop(calls=failed)
    return Wait(pending=waiting, running=started)


def apply(state: Checkpoint, outcome: Outcome) -> Checkpoint:
    """The next state. Raises `IllegalOutcome` where the table does not allow the outcome; nothing changes then."""
    # Any outcome may have a human asked about a call: at first, or again, when it has failed or nobody knows what it did.
    return close_turn(with_senders(fold(state, outcome)))


def fold(state: Checkpoint, outcome: Outcome) -> Checkpoint:
    """As `apply`, with calls that have settled left as they are."""
    # The type is looked up, not the instance: a subclass of an outcome would pass an isinstance check that was made for its base.
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
            return guarded(state, outcome, now)
        case Added():
            return added(state, outcome, now)
        case Arrived():
            return state.evolve(events=(*state.events, outcome.event))
        case Narrowed():
            return state.evolve(scopes=tuple([each for each in state.scopes if each in outcome.scopes]))
        case Halted():
            # Two operators may press stop at once, and the second of them may have read the log before the first wrote. One stop is
            # enough. After an end there is nothing to stop.
            again = outcome.point is None and any(call.is_pause for call in state.calls)
            return state if again or is_ending(state) else with_gate(state, outcome)
        case OutputRefused():
            said = Message(role="user", content=outcome.error)
            messages = Conversation.of(state.messages).plus(said)
            return state.evolve(messages=messages, refused=state.refused + 1)
        case _:
            return _fold_calls(state, outcome)


def _fold_calls(state: Checkpoint, outcome: Outcome) -> Checkpoint:  # noqa: PLR0912  # a case for each outcome
    """The next state after an outcome that concerns open calls."""
    match outcome:
        case Judged():
            state = _judged(state, outcome)
        case Deferred():
            for pending_id in outcome.pending_ids:
                state = _with_call(state, _asked(state, pending_id, outcome).evolve(status="pending"))
        case Decided():
            state = _decided(state, outcome)
        case Voted():
            state = _voted(state, outcome)
        case Reminded():
            state = _with_call(state, with_reminder(_asked(state, outcome.pending_id, outcome), outcome))
        case CallStarted():
            call = _call(state, outcome.id, outcome)
            state = _with_call(state, call.evolve(status="started", attempt=outcome.attempt))
        case Withdrawn():
            state = _withdrawn(state, outcome)
        case Returned():
            state = _returned(state, outcome)
        case CallSettled():
            call = settled_call(_call(state, outcome.id, outcome), outcome.result)
            state = _costs(_spent(_with_call(state, call), outcome.elapsed), outcome.usage)
            state = state.evolve(rejecting=True) if outcome.then == "end" else state
            state = state.evolve(decisions=(*state.decisions, *outcome.refusals)) if outcome.refusals else state
        case CallFailed():
            call = with_usage(_call(state, outcome.id, outcome), outcome.usage)
            failed = failed_call(call, outcome, is_ending(state))
            state = _spent(_with_call(state, failed), outcome.elapsed)
            state = _costs(state, call.usage) if failed.result is not None else state
        case CallUnknown():
            # What becomes of it is for a human to say, and its worker is not waited for. If the run ends before anybody does, it is
            # settled in words that say so: "cancelled" alone would deny an effect that may be there (law 12).
            call = asked_again(_call(state, outcome.id, outcome), "outcome_unknown", outcome.reason, outcome)
            state = _spent(_with_call(state, call), outcome.elapsed)
            state = _settled_by_ending(state)
        case _:
            assert isinstance(outcome, CallWaits), "the table has no other outcome for calls"
            state = _with_call(state, waiting_call(_call(state, outcome.id, outcome), outcome, state))
            state = _settled_by_ending(_spent(state, outcome.elapsed))
    return state


def _withdrawn(state: Checkpoint, outcome: Withdrawn) -> Checkpoint:
    # The attempt that is taken back was none. Without this, a tool with one retry would have none left after a worker that stopped
    # in time.
    for id in outcome.ids:
        call = _call(state, id, outcome)
        state = _with_call(state, call.evolve(status="ready", attempt=max(call.attempt - 1, 0), reason=outcome.reason))
    return _settled_by_ending(state)


def close_turn(state: Checkpoint) -> Checkpoint:
    """The state with the results of a turn in the conversation, once every call of it has settled, and with what was said meanwhile."""
    # Results enter the conversation together, in the order of the calls, and only once each of them has settled. A provider refuses
    # a history in which a call has no result (law 6), and a crash between two results must not leave one. So this looks first, and
    # makes messages of the results once, and not anew each time that one of hundreds of calls settles.
    if not state.calls:
        return said_on(state)
    if not _has_settled(state) or answering(state) is not None:
        return state
    return _closed(state)


def _has_settled(state: Checkpoint) -> bool:
    """True if every open call has its result."""
    # The last one is mostly the last to settle.
    return state.calls[-1].result is not None and all(call.result is not None for call in state.calls)


def answering(state: Checkpoint) -> Call | None:
    """The call whose result is the answer of the run, once all have settled: the first of them. None: the model is asked again.

    It is, if somebody said more meanwhile, or if the conversation was handed over: then another agent answers.
    """
    found = next((call for call in state.calls if call.result is not None and call.result.is_answer), None)
    if found is None or state.added or is_ending(state) or is_handed_over(state.calls):
        return None
    return found


def _closed(state: Checkpoint) -> Checkpoint:
    # A stop is kept among the calls, but the model asked for no such call: a result of it in the conversation would answer nothing.
    results = [
        result_message(call.call_id, noted(call, call.result))
        for call in state.calls
        if call.result is not None and not call.gate
    ]
    messages = Conversation.of(state.messages).plus(*results)
    return said_on(handed_over(state.evolve(messages=messages, calls=()), state.calls))


def _returned(state: Checkpoint, outcome: Returned) -> Checkpoint:
    """The state with the result of a call as the last word: it is finished as an answer of the model would be."""
    call = answering(state)
    if call != _call(state, outcome.id, outcome) or not _has_settled(state):
        raise IllegalOutcome("acting", "Returned", f"the result of call {outcome.id} is not the answer of the run")
    state = _closed(state)
    # A provider wants an answer behind the results, or the next message of the thread would stand beside them (law 6).
    said = Conversation.of(state.messages).plus(Message(role="assistant", content=outcome.text, returned=True))
    return state.evolve(messages=said, unguarded="output" if outcome.guarded else None)


def current(checkpoint: Checkpoint, fold: Callable[[Checkpoint, Outcome], Checkpoint] = apply) -> Checkpoint:
    """The state of a checkpoint with its journal folded in."""
    if not checkpoint.journal:
        return checkpoint
    return folded(checkpoint.evolve(journal=()), checkpoint.journal, fold)[0]


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
    state = before_reply(state, outcome.read)
    said = Conversation.of(state.messages)
    # Some providers leave the ids of calls empty, or use one twice. Two calls of one id could not be told apart by whoever decides,
    # nor by the results that follow. The id of the provider is kept beside ours.
    message = with_unique_ids(outcome.message, said.call_ids, turn)
    calls = [
        NEW_CALL.evolve(id=f"{turn}.{index}", call_id=call.id, name=call.name, arguments=call.arguments)
        for index, call in enumerate(message.tool_calls)
    ]
    update = {
        "messages": said.plus(message),
        "turn": turn,
        "called": state.called + len(calls),
        "calls": (*state.calls, *calls),
        "usage": state.usage + outcome.usage,
        "elapsed": state.elapsed + outcome.elapsed,
    }
    if outcome.guarded and not calls:
        update["unguarded"] = "output"
    return state.evolve(**update)


def with_gate(state: Checkpoint, outcome: Halted) -> Checkpoint:
    """The state with a gate before what has not begun; it is a call that never runs, and settles when it is decided."""
    # A stop is decided like a call, with an id, a digest and a record of who did it. So there is one way to decide, one list of
    # what is pending, and one audit trail. It is pending or settled and never ready, so nothing can run it.
    tool = gate_identity(state.path, outcome.point or "operator")
    args = outcome.__dict__["args"]
    key = outcome.key or position_of(state, "operator")
    gate = Call(
        id=key,
        call_id=key,
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


def position_of(state: Checkpoint, point: str) -> str:
    """The key of a point where the run stands now: it stops there once."""
    return f"{point}@{state.turn}"


def _judged(state: Checkpoint, outcome: Judged) -> Checkpoint:
    # Folded one by one: the first of two equal calls may be rejected for good here, and then the second is rejected too, without
    # anybody being asked twice.
    for judgement in outcome.judgements:
        call = _call(state, judgement.id, outcome)
        # An answer that was checked is a decision, or no answer; so it is where one inside a call did not follow.
        if call.status in ("answered", "pending") and judgement.verdict != "pend":
            raise IllegalOutcome(f"call {call.status}", "Judged", "it is decided, or asked about anew")
        begun = call.attempt > 0 or call.stopped or call.waiting != ()
        if call.status == "ready" and (begun or (call.approved and judgement.verdict == "run")):
            raise IllegalOutcome("call ready", "Judged", "it has begun, or its approval was for other arguments")
        given = decision_on(state, call.pending_id) if call.status == "answered" else None
        kept = {"votes": given.votes[:-1], "reminded": call.reminded} if given is not None and given.votes else {}
        kept = kept if judgement.digest == call.digest else {}
        call = judged_call(call, judgement, state.blocked)
        # Somebody's answer could not be carried out. That takes nobody's vote away.
        call = call.evolve(**kept) if kept else call
        state = _with_call(state, call)
        if call.result is not None and call.result.kind == "rejected":
            state = _after_rejection(state, call, judgement.then)
    return state


def judged_call(call: Call, judgement: Judgement, blocked: tuple[str, ...]) -> Call:
    """The call as it stands after it was judged. One that was rejected for good is rejected again, unasked."""
    facts = {"tool": judgement.tool, "args": judgement.__dict__["args"], "digest": judgement.digest, "arguments": None}
    direct = judgement.return_direct or call.return_direct
    call = call.evolve(**facts, repeatable=judgement.repeatable, return_direct=direct)
    # This comes before what the judgement says. A policy that has changed since must not bring back what a human has refused for
    # good.
    if (why := why_blocked(judgement, blocked)) is not None:
        return settled_call(call, CallResult(kind="rejected", content=why))
    if judgement.result is not None:
        return settled_call(call, judgement.result)
    if judgement.verdict == "run":
        return call.evolve(status="ready", brief=judgement.brief)
    return _asked_for(call, judgement)


def _asked_for(call: Call, judgement: Judgement) -> Call:
    asked = {name: getattr(judgement, name) for name in REQUEST}
    status = "asking" if judgement.verdict == "ask" else "pending"
    return call.evolve(status=status, approved=None, votes=(), reminded=0, **asked)


def _voted(state: Checkpoint, outcome: Voted) -> Checkpoint:
    decision = outcome.decision
    call = _asked(state, decision.pending_id, outcome)
    item = next((each for each in call.waiting if each.id == decision.pending_id), None)
    if item is not None:
        return _with_call(state, with_vote_inside(call, item, outcome, state.path))
    voted = with_vote(call, outcome, state.path)
    if outcome.request is not None:
        # The old request is over, and the record says by whom. The new one begins with the votes that are for what it asks.
        state = with_decision(state, decision, decision_on(state, decision.pending_id))
        same = outcome.request.digest == call.digest
        votes = decision.votes if same else decision.votes[-1:]
        voted = _asked_for(voted, outcome.request).evolve(votes=votes, reminded=call.reminded if same else 0)
    return _with_call(state, voted)


def _decided(state: Checkpoint, outcome: Decided) -> Checkpoint:
    decision = outcome.decision
    call = _asked(state, decision.pending_id, outcome)
    given = decision_on(state, decision.pending_id)
    if given is not None and (not decision.judged or decision.kind != given.kind):  # a decision counts once (law 3)
        raise IllegalOutcome(f"call {call.status}", "Decided", "it is decided already, and that is to be checked")
    state = with_decision(state, decision, given)
    if decision.event_id is not None and state.events:  # it may be one that was kept until now
        state = state.evolve(events=tuple([each for each in state.events if each.id != decision.event_id]))
    question = call.question(decision.pending_id, state.path)
    # A call that has waited for something inside may be asked about itself: it failed, or nobody knows what it did.
    inside = bool(call.waiting) and decision.pending_id != call.pending_id
    # A decision names the digest of what was shown. If another one stands there now, somebody decided on something else, and it
    # does not count (law 2).
    if (call.digest if question is None else question.digest) != decision.digest and (question or not inside):
        raise IllegalOutcome(f"call {call.status}", "Decided", "its digest is not that of the call")
    # The decision is for a run inside the call, or for what its body asked. The call itself is not decided: it is run again, and
    # hands the decision down to where it was asked for.
    # So it is where a trigger of a wait is superseded, since another one fired; the call waits on until that is written.
    if inside and (question is None or leaves_open(question, decision)):
        check_votes_inside(call, decision, state.path)
        state = with_authors(state, decision, call)
        state = _with_call(state, after_decision(call, decision))
        return state.evolve(rejecting=True) if decision.ends_all else _ended_by(decision, state)
    if call.gate:
        return _passed(with_authors(state, decision, call), call, outcome)
    if needs_check(call, decision):
        if call.status != "pending":
            raise IllegalOutcome(f"call {call.status}", "Decided", "no human is asked about it")
        return _with_call(state, call.evolve(status="answered", approved=decision.pending_id))
    if is_governed(call, outcome.edited):
        check_votes(call, outcome, state.requester, state.path)
    state = with_authors(state, decision, call)
    if decision.kind == "approve":
        return _approved(state, call, outcome)
    result = CallResult(kind=cast(Settlement, PAST[decision.kind]), content=told(call, outcome))
    if decision.kind == "respond" and call.return_direct:
        result = result.evolve(answer=decision.json_text("content"))
    # A call has the id of its own request, and of what its body asked none once it has settled.
    asked = (decision.pending_id,) if question is not None else ()
    state = _with_call(state, settled_call(call, result).evolve(rejected=asked))
    if decision.kind == "reject":
        return _after_rejection(state, call, decision.then)
    return _ended_by(decision, state)


def _approved(state: Checkpoint, call: Call, outcome: Decided) -> Checkpoint:
    decision = outcome.decision
    request = outcome.edited or asked_next(call, decision)
    if (edited := outcome.edited) is not None:
        other = call.edited or edited.digest != call.digest
        begun = asked_at(call, outcome)
        call = call.evolve(args=edited.__dict__["args"], digest=edited.digest, edited=other, brief=edited.brief)
        call = call.evolve(requested_at=begun)
    # To let a run go on is no approval (law 1). If the call needs one, it is asked for now, under a new id that was made when
    # the decision was taken: `apply` is pure, and makes none.
    if call.why == "breakpoint":  # whoever lets a run go on has not approved what needs it
        if request is not None and request.why == "approval" and request.pending_id is not None:
            return _with_call(state, _asked_for(call, request))
        if request is None and call.asked_by:
            raise IllegalOutcome(f"call {call.status}", "Decided", "an approval comes next, and has no id")
        call = call.evolve(asked_by=())
    return _with_call(state, call.evolve(status="ready", approved=decision.pending_id))


def _ended_by(decision: Decision, state: Checkpoint) -> Checkpoint:
    """The state after a decision that ends the run because nobody answered while a call held it at a breakpoint."""
    if decision.kind != "expire" or decision.then != "end":
        return state
    return _ending(state, Ending(status="cancelled", reason=decision.reason, at=decision.at))


def _passed(state: Checkpoint, gate: Call, outcome: Decided) -> Checkpoint:
    """The state after a decision on a gate: the run goes on, or ends there. Guardrails are to look at another input as well."""
    decision = outcome.decision
    state = state.evolve(calls=tuple(call for call in state.calls if call is not gate))
    match decision.kind:
        case "approve":
            # Only those of this turn: in the next one the run comes to the same points anew.
            here = [key for key in state.passed if key.endswith(f"@{state.turn}")]
            state = state.evolve(passed=(*here, gate.id))
            given = decision.args or {}
            # Another input may be given here alone, since the model has not read the old one yet. It has to pass the input
            # guardrails as if a user had said it.
            if "input" not in given:
                return state
            if outcome.edited is not None and outcome.edited.verdict == "ask":
                state = state.evolve(unguarded="input")
            return with_input(state, canonical(given["input"]))
        case "skip":
            return state.evolve(skipping=True)
        case "reject":
            return state.evolve(rejecting=True)
        case _:
            reason = decision.reason or f"nobody let it go on at {gate.name} in time"
            return _ending(state, Ending(status="cancelled", reason=reason, at=decision.at))


def _after_rejection(state: Checkpoint, call: Call, then: Then) -> Checkpoint:
    if then == "end":
        return state.evolve(rejecting=True)
    if then == "continue" or call.tool is None or call.digest is None:
        return state
    key = call.digest if then == "block" else block_key(call.tool)
    return state if key in state.blocked else state.evolve(blocked=(*state.blocked, key))


def _finished(state: Checkpoint, outcome: Finished) -> Checkpoint:
    # The end is written by a worker that saw no open call. Where one is open all the same, somebody else has written since, and the
    # end does not follow: the worker reads on, and plans again.
    if any(call.result is None for call in state.calls):
        if not state.rejecting or _with_status(state, "started"):
            raise IllegalOutcome("acting", "Finished", "calls are open")
        state = settle_unstarted(state, "cancelled", "ended")
    elif state.calls and answering(state) is not None:
        raise IllegalOutcome("acting", "Finished", "the result of a call is yet to be made its answer")
    if is_ending(state) and outcome.status != (
        to := finish_of(state).status
    ):  # written, unseen, after the run was ended
        raise IllegalOutcome(phase(state), "Finished", f"the run is to end as {to}, not as {outcome.status}")
    return without_unguarded(close_turn(state)).evolve(ended=outcome.status, output=outcome.__dict__["output"])


def _ending(state: Checkpoint, outcome: Ending) -> Checkpoint:
    if state.ending is not None:  # the first one counts
        return state
    if outcome.reason and (outcome.by is not None or outcome.unnamed):  # the next run of the thread reads it
        state = written_by(state, outcome.by)
    # What has not begun is settled at once, what runs is waited for. So a cancelled run leaves no call of which nobody knows what
    # it did.
    return _settled_by_ending(state.evolve(ending=outcome))


def _settled_by_ending(state: Checkpoint) -> Checkpoint:
    """The state with what has not started settled, if the run was ended meanwhile."""
    return settle_unstarted(state, state.ending.status, state.ending.status) if state.ending else state


def settle_unstarted(state: Checkpoint, kind: Settlement, event: str, ids: Collection[str] | None = None) -> Checkpoint:
    """The state with the calls of these ids settled, as far as they have not started; None: all calls."""
    reason = state.ending.reason if state.ending is not None else None
    calls = []
    for call in state.calls:
        # A call that has begun is not settled here: its worker still writes what came of it, and a result that says "cancelled"
        # would be a lie if it took effect.
        if call.status not in ("started", "settled") and (ids is None or call.id in ids):
            state = _costs(state, call.usage)
            call = settled_call(
                call, refused_inside(state, call) or CallResult(kind=kind, content=left(call, event, reason))
            )
        calls.append(call)
    return state.evolve(calls=tuple(calls))


def _interrupted(state: Checkpoint, outcome: Interrupted) -> Checkpoint:
    for call in _with_status(state, "started"):
        # An idempotent tool, or a run inside, may safely begin again (law 5). Whether the effect of any other is there, no log can
        # say.
        if call.repeatable:
            again = call.evolve(status="ready")
        elif call.id in outcome.pending_ids:
            request = CallUnknown(
                id=call.id, reason=INTERRUPTED, pending_id=outcome.pending_ids[call.id], requested_at=outcome.at
            )
            again = asked_again(call, "outcome_unknown", INTERRUPTED, request)
        else:
            raise IllegalOutcome(
                "call started", "Interrupted", f"call {call.id} has no pending id to be asked about under"
            )
        state = _with_call(state, with_usage(again, outcome.usages.get(call.id, Usage())))
    # All its attempts again: what was broken has been mended since, or nobody would resume.
    for call in _with_status(state, "failed"):
        state = _with_call(state, call.evolve(status="ready", attempt=0))  # why it is open is told if it ends here
    return _settled_by_ending(state)


def _with_status(state: Checkpoint, status: str) -> tuple[Call, ...]:
    return tuple([call for call in state.calls if call.status == status])


def _call(state: Checkpoint, id: str, outcome: Outcome) -> Call:
    # A row for a call that is not there is forged, or of a worker that has read an older log.
    if (place := place_of(state.calls, id)) is None:
        raise IllegalOutcome(phase(state), type(outcome).__name__, f"there is no open call {id}")
    call = state.calls[place]
    if type(outcome) not in TABLE[f"call {call.status}"]:
        raise IllegalOutcome(f"call {call.status}", type(outcome).__name__, f"call {id}")
    return call


def _asked(state: Checkpoint, pending_id: str, outcome: Outcome) -> Call:
    """The call that waits under this pending id, itself or a run nested in it."""
    for call in state.calls:
        waits = call.status in ("asking", "pending", "answered") and call.pending_id == pending_id
        if waits or (call.waiting and call.status != "settled" and pending_id in [item.id for item in call.waiting]):
            return _call(state, call.id, outcome)
    raise IllegalOutcome(phase(state), type(outcome).__name__, f"nothing waits under {pending_id}")


def _with_call(state: Checkpoint, call: Call) -> Checkpoint:
    place = place_of(state.calls, call.id)
    assert place is not None, "it is one of these"
    return state.evolve(calls=(*state.calls[:place], call, *state.calls[place + 1 :]))


def _spent(state: Checkpoint, elapsed: int) -> Checkpoint:
    return state.evolve(elapsed=state.elapsed + elapsed) if elapsed else state


def _costs(state: Checkpoint, usage: Usage) -> Checkpoint:
    return state if is_nothing(usage) else state.evolve(usage=state.usage + usage)

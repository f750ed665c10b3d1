"""Taking decisions: of handlers, which are asked at once, and of humans. What time decides is in `due.py`.

The async functions are the sync ones with `async` and `await`; a test compares them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from datetime import datetime
from typing import Any

from phronomy.approvals.answers import check_answer, check_editable
from phronomy.concurrency.workers import in_either
from phronomy.engine.judging.brief import lapse
from phronomy.engine.judging.edits import as_shown, check_edit, edited_input, judged_again
from phronomy.engine.judging.grants import agranted, granted
from phronomy.engine.judging.judge import ajudge_call, handlers_of, judge_call
from phronomy.engine.judging.votes import avoted, voted
from phronomy.engine.ledger import now
from phronomy.engine.run import Runner
from phronomy.errors import (
    AlreadyVoted,
    ApprovalHandlerError,
    GuardrailFailed,
    InvalidDecision,
    NotAnApprover,
)
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import JsonText
from phronomy.records.calls import Call, Decided, Deferred, Judged, Judgement, Outcome, Voted
from phronomy.records.chain import decision_on
from phronomy.records.checkpoint import Checkpoint, pending_of, waits_under
from phronomy.records.decisions import (
    Answer,
    Approve,
    Decision,
    Defer,
    Reject,
    Respond,
    blocked_by,
    metadata_of,
)
from phronomy.records.principals import Principal
from phronomy.rules.added_messages import HANDLER
from phronomy.rules.voted_calls import is_governed
from phronomy.stores.derived.voters import check_still_listed
from phronomy.stores.native import in_store
from phronomy.tools.context import InvalidArguments


def consult(runner: Runner, calls: Sequence[Call]) -> Generator[Outcome]:
    """Check what humans have answered, ask the handlers about every other call, and only then let their answers count."""
    # All handlers are asked before any of their answers counts. If one raises, nothing is recorded, and all are asked again on
    # resume: half of a reply decided would be worse than none of it.
    outcomes: list[Outcome] = []
    for call in calls:
        if call.status == "answered":
            outcomes.append(check_given(runner, call))
            continue
        if call.status == "ready":
            outcomes.append(read_anew(runner, call))
            continue
        if call.brief is not None and call.brief.standing and (let_through := granted(runner, call)) is not None:
            outcomes.append(let_through)
            continue
        answer: Approve | Reject | Respond | Defer = Defer()
        # Handlers stand for people. Several of them have to agree, and each asks by itself: the first that does not approve
        # decides.
        handlers = handlers_of(runner, call)  # it may have been judged by an agent that had one
        for handled in handlers:
            assert call.args is not None and call.tool is not None
            try:
                given = handled.handler(call.tool.name, call.args)
            except Exception as error:
                raise handler_failed(call, f"raised {type(error).__name__}") from error
            answer = handler_answer(call, given, alone=len(handlers) == 1)
            if not isinstance(answer, Approve):
                break
        if isinstance(answer, Defer):
            outcomes.append(Deferred(pending_ids=(call.pending_id or "",)))
            continue
        try:
            # An edit by a handler is judged like that of a human. What others would ask about, once it is edited, no handler has
            # answered for.
            outcomes.append(covered(call, decide(runner, call, answer, channel=HANDLER)))
        except NotAnApprover:
            outcomes.append(Deferred(pending_ids=(call.pending_id or "",)))
        except InvalidDecision as error:
            raise handler_failed(call, uncounted(call, answer, error)) from error
    yield from outcomes


async def aconsult(runner: Runner, calls: Sequence[Call]) -> AsyncGenerator[Outcome]:
    """As `consult`."""
    outcomes: list[Outcome] = []
    for call in calls:
        if call.status == "answered":
            outcomes.append(await acheck_given(runner, call))
            continue
        if call.status == "ready":
            outcomes.append(await aread_anew(runner, call))
            continue
        if call.brief is not None and call.brief.standing and (let_through := await agranted(runner, call)) is not None:
            outcomes.append(let_through)
            continue
        answer: Approve | Reject | Respond | Defer = Defer()
        handlers = handlers_of(runner, call)
        for handled in handlers:
            assert call.args is not None and call.tool is not None
            try:
                given = await in_either(handled.handler, handled.is_async, call.tool.name, call.args)
            except Exception as error:
                raise handler_failed(call, f"raised {type(error).__name__}") from error
            answer = handler_answer(call, given, alone=len(handlers) == 1)
            if not isinstance(answer, Approve):
                break
        if isinstance(answer, Defer):
            outcomes.append(Deferred(pending_ids=(call.pending_id or "",)))
            continue
        try:
            outcomes.append(covered(call, await adecide(runner, call, answer, channel=HANDLER)))
        except NotAnApprover:
            outcomes.append(Deferred(pending_ids=(call.pending_id or "",)))
        except InvalidDecision as error:
            raise handler_failed(call, uncounted(call, answer, error)) from error
    for outcome in outcomes:
        yield outcome


def check_given(runner: Runner, call: Call) -> Decided | Voted | Judged:
    """The outcome of an answer that was given where the agent's code was not: as if it were given here, or the request anew."""
    given, call = answer_given(runner.state, call)
    store = runner.ledger.store
    try:
        if given.votes:
            check_still_listed(store, call.pending_id or "", given.votes[-1])
        return as_given(
            given,
            decide(runner, call, answer_read(runner, call, given), by=given.by, channel=given.channel, at=given.at),
        )
    except (InvalidDecision, NotAnApprover, AlreadyVoted, GuardrailFailed) as error:
        return asked_anew(runner, call, error)


async def acheck_given(runner: Runner, call: Call) -> Decided | Voted | Judged:
    """As `check_given`."""
    given, call = answer_given(runner.state, call)
    store = runner.ledger.store
    try:
        if given.votes:
            await in_store(store, check_still_listed, store, call.pending_id or "", given.votes[-1])
        return as_given(
            given,
            await adecide(
                runner, call, answer_read(runner, call, given), by=given.by, channel=given.channel, at=given.at
            ),
        )
    except (InvalidDecision, NotAnApprover, AlreadyVoted, GuardrailFailed) as error:
        return asked_anew(runner, call, error)


def read_anew(runner: Runner, call: Call) -> Judged:
    """The call as its tool reads it now, judged as if the model had asked so; a human who approved of it before is asked again."""
    judgement, _ = judge_call(runner, call.evolve(arguments=call.json_text("args")))
    return as_read_now(runner, call, judgement)


async def aread_anew(runner: Runner, call: Call) -> Judged:
    """As `read_anew`."""
    judgement, _ = await ajudge_call(runner, call.evolve(arguments=call.json_text("args")))
    return as_read_now(runner, call, judgement)


def as_read_now(runner: Runner, call: Call, judgement: Judgement) -> Judged:
    """The outcome of a call that was judged anew. If a human approved it before, a human is asked again in any case."""
    runner.shared.stale.discard(runner.path_in(call.id))
    if call.approved is None or judgement.verdict in ("reject", "invalid"):
        return Judged(judgements=(judgement,))
    if judgement.verdict == "run":
        at = now(runner.ledger.store)
        expires_at, on_expiry = lapse(runner, runner.spec.tool(call), judgement.brief, at)
        asked = {"pending_id": new_id("pend"), "requested_at": at, "expires_at": expires_at, "on_expiry": on_expiry}
        kept = {name: getattr(call, name) for name in ("why", "point", "label")}
        judgement = judgement.evolve(verdict="pend", **asked, **kept)
    reason = (
        "The tool has changed since this was asked. It was approved before that, and is asked again with the arguments as the tool"
        " reads them now."
    )
    return Judged(judgements=(judgement.evolve(reason=reason),))


def answer_given(state: Checkpoint, call: Call) -> tuple[Decision, Call]:
    """The decision on a call that is answered, and the call with the votes before it: those of a nested run are noted around it."""
    given = decision_on(state, call.pending_id)
    assert given is not None, "a call is answered by a decision"
    return given, call.evolve(votes=given.votes[:-1]) if given.votes else call


def answer_in(decision: Decision) -> Answer:
    """The answer that a decision on one call was made of. Only what is to be checked is ever asked for."""
    metadata = decision.__dict__["metadata"]
    if decision.kind == "reject":
        return Reject(reason=decision.reason, then=decision.then, metadata=metadata)
    if decision.kind == "respond":
        return Respond(content=decision.content, metadata=metadata)
    return Approve(args=decision.args, metadata=metadata)


def answer_read(runner: Runner, call: Call, given: Decision) -> Answer:
    """The answer of a decision. A result that was typed where nobody knew its type is read as the external tool returns it."""
    answer, tool = answer_in(given), runner.spec.tool(call)
    # Who voted for a result before voted for the text.
    if not isinstance(answer, Respond) or given.votes or call.why == "question" or tool is None:
        return answer
    return Respond(content=tool.read_response(answer.content), metadata=metadata_of(answer))


def as_given(given: Decision, outcome: Decided | Voted) -> Decided | Voted:
    """The outcome under the idempotency key that it was given under."""
    return outcome.evolve(decision=outcome.decision.evolve(key=given.key, answer_digest=given.answer_digest))


def asked_anew(
    runner: Runner,
    call: Call,
    error: InvalidDecision | NotAnApprover | AlreadyVoted | GuardrailFailed,
) -> Judged:
    """The same request under a new id, with what is wrong with the answer that was given.

    Its time to be decided begins anew, unless it asks for people.
    """
    at = now(runner.ledger.store)
    tool = runner.spec.tool(call)
    expires_at, on_expiry = lapse(runner, tool, call.brief, at)
    # Where people are asked for, a stranger whose answer came to nothing must not move the time at which others take over.
    if is_governed(call, None):
        at, expires_at = call.requested_at or at, call.expires_at
    facts: dict[str, Any] = {
        name: getattr(call, name) for name in ("tool", "digest", "point", "label", "asked_by", "brief")
    }
    request = Judgement(
        id=call.id,
        verdict="pend",
        **facts,
        repeatable=call.repeatable,
        pending_id=new_id("pend"),
        why=call.why or "approval",
        reason=f"The answer that was given cannot be carried out: {error}",
        requested_at=at,
        expires_at=expires_at,
        on_expiry=on_expiry if tool is not None else call.on_expiry,
    )
    return Judged(judgements=(request.evolve(args=call.__dict__["args"]),))


def covered(call: Call, outcome: Decided | Voted) -> Decided | Deferred:
    """The outcome of what handlers answered; put to a human where they edited the call so that others ask about it as well."""
    # A handler is none of the people that a request asks for, so it has no vote.
    edited = outcome.edited if isinstance(outcome, Decided) else None
    asks = set() if edited is None or edited.verdict == "run" else set(edited.asked_by or ("",))
    if isinstance(outcome, Decided) and asks <= set(call.asked_by or ("",)):
        return outcome
    return Deferred(pending_ids=(call.pending_id or "",))


def uncounted(call: Call, answer: Answer, error: InvalidDecision) -> str:
    """What a handler did whose answer cannot count."""
    what = "answered in a way that this request does not allow"
    if call.tool is not None and call.tool.external:
        what = "gave no result"
    elif isinstance(answer, Approve) and answer.args is not None:
        what = "edited the arguments so that they cannot run"
    return f"{what} ({error})"


def handler_answer(call: Call, answer: object, *, alone: bool) -> Approve | Reject | Respond | Defer:
    """The answer that the handler's value stands for: exactly True approves; False and None reject.

    Of an external tool it may be the result. Of several that are to agree, none may edit the call, or give its result: a human
    decides then.
    """
    # Exactly True. A handler that returns a text, a number or an object of its own has not approved (law 1).
    if answer is True:
        return Approve()
    if answer is False or answer is None:
        return Reject()
    if isinstance(answer, Respond) and call.tool is not None and call.tool.external:
        return answer if alone else Defer()
    if isinstance(answer, Approve) and answer.args is not None and not alone:
        return Defer()
    if isinstance(answer, (Approve, Reject, Defer)):
        return answer
    # A sync handler that returns a coroutine was meant to be async. It is closed, so that Python does not warn of it later,
    # somewhere else.
    if isinstance(answer, Coroutine):
        answer.close()
    raise handler_failed(call, f"answered with {type(answer).__name__}, which is no decision")


def handler_failed(call: Call, what: str) -> ApprovalHandlerError:
    """The error for a handler that gave no decision."""
    name = call.tool.name if call.tool is not None else call.name
    return ApprovalHandlerError(f"the approval handler {what} when asked about {name}; nothing was run")


def decide(
    runner: Runner,
    call: Call,
    answer: Answer,
    *,
    by: Principal | None = None,
    channel: str | None = None,
    at: datetime | None = None,
) -> Decided | Voted:
    """The outcome of an answer that was given at this time, or now. Edited arguments are validated and gated anew.

    Raises `InvalidDecision`, `NotAnApprover`, `AlreadyVoted`.
    """
    # Judged before the decision is recorded. An edit that cannot run is an error of whoever gave it, and nothing has happened (law
    # 15): they can decide again.
    edited: Judgement | None = None
    if isinstance(answer, Approve) and answer.args is not None and call.gate:
        edited = edited_input(runner, call, answer)
    elif (again := judged_again(runner, call, answer)) is not None:
        edited, guarded = judge_call(runner, again)
        check_edit(call, guarded)
        edited = as_shown(call, edited)
    at = at or now(runner.ledger.store)
    outcome = decided(runner, call, answer, edited, by, channel, at)
    # Most requests ask for nobody in particular: whoever answers decides.
    if is_governed(call, None) or is_governed(call, edited):
        return voted(runner, call, outcome, by, at)
    return outcome


async def adecide(
    runner: Runner,
    call: Call,
    answer: Answer,
    *,
    by: Principal | None = None,
    channel: str | None = None,
    at: datetime | None = None,
) -> Decided | Voted:
    """As `decide`."""
    edited: Judgement | None = None
    if isinstance(answer, Approve) and answer.args is not None and call.gate:
        edited = edited_input(runner, call, answer)
    elif (again := judged_again(runner, call, answer)) is not None:
        edited, guarded = await ajudge_call(runner, again)
        check_edit(call, guarded)
        edited = as_shown(call, edited)
    at = at or now(runner.ledger.store)
    outcome = decided(runner, call, answer, edited, by, channel, at)
    # Most requests ask for nobody in particular: whoever answers decides.
    if is_governed(call, None) or is_governed(call, edited):
        return await avoted(runner, call, outcome, by, at)
    return outcome


def decided(
    runner: Runner,
    call: Call,
    answer: Answer,
    edited: Judgement | None,
    by: Principal | None,
    channel: str | None,
    at: datetime,
) -> Decided:
    """The outcome of an answer whose edits, if any, have been judged."""
    # All checks that can refuse the answer come before the decision is made, so no record of it exists where it does not count.
    assert call.pending_id is not None and call.digest is not None and call.tool is not None
    check_answer(pending_of(call, runner.state.path), answer)
    if call.why != "question" and isinstance(answer, Respond) and (tool := runner.spec.tool(call)) is not None:
        try:
            tool.check_response(answer.content)
        except InvalidArguments as error:
            raise InvalidDecision(f"pending {call.pending_id}: {error}", pending_id=call.pending_id) from None
    if edited is not None and edited.result is not None:
        raise InvalidDecision(
            f"the edited arguments of pending {call.pending_id} cannot run: {edited.result.content}",
            pending_id=call.pending_id,
        )
    let_on = call.why == "breakpoint" and isinstance(answer, Approve)
    # Others may ask about the edited arguments, who allow less. At a breakpoint they are asked next, and answer for themselves.
    if edited is not None and edited.digest != call.digest and edited.brief is not None and not let_on:
        check_editable(call.pending_id, call.name, edited.brief.answers)
    asks = edited.pending_id if let_on and edited is not None else None
    changed = edited is not None and edited.digest != call.digest
    if not changed and asks is None:
        edited = None  # nothing was changed, so the model is told of no change
    # To let a call go on that needs an approval is half of what it needs. The id of the other half is made here, since `apply`
    # makes none.
    if let_on and edited is None and call.asked_by:
        asks = new_id("pend")
    decision = Decision(
        pending_id=call.pending_id,
        digest=call.digest,
        kind=answer.kind,
        path=runner.state.path,
        args=edited.__dict__["args"] if edited is not None and changed else None,
        content=answer.__dict__["content"] if isinstance(answer, Respond) else JsonText("null"),
        reason=answer.reason if isinstance(answer, Reject) else None,
        then=answer.then if isinstance(answer, Reject) else "continue",
        blocks=blocked_by(answer.then, call.tool, call.__dict__["args"]) if isinstance(answer, Reject) else None,
        asks=asks,
        asked_by=(edited.asked_by or ("",)) if asks is not None and edited is not None else (),
        brief=edited.brief if edited is not None else None,
        by=by,
        channel=channel,
        at=at,
        event=event_of(runner, call),
        metadata=metadata_of(answer),
    )
    return Decided(decision=decision, edited=edited)


def event_of(runner: Runner, call: Call) -> str | None:
    """The event that is waited for under the pending id of a call; None if none is."""
    item = waits_under(runner.state, call.pending_id)
    return item.trigger.event if item is not None and item.trigger is not None else None

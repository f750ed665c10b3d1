"""Judging calls and taking decisions: validated arguments, gates, handlers, and the humans who answer.

The async functions are the sync ones with `async` and `await`; a test compares them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from phronomy import _rules
from phronomy._ids import new_id
from phronomy._json import JsonText
from phronomy._ledger import now
from phronomy._runner import Runner
from phronomy._workers import in_either
from phronomy.approvals import Approve, Decision, Defer, Principal, Reject, Respond, call_digest
from phronomy.errors import ApprovalHandlerError, InvalidDecision
from phronomy.tools import InvalidArguments, Tool, ToolContext
from phronomy.types import Call, CallResult, Decided, Deferred, Ending, Judged, Judgement, Outcome

# Judging


def judge(runner: Runner, calls: Sequence[Call]) -> Generator[Outcome]:
    """Validate the arguments of each call, and ask its gate."""
    judgements = []
    for call in calls:
        judgements.append(judge_call(runner, call))
    yield Judged(judgements=tuple(judgements))


async def ajudge(runner: Runner, calls: Sequence[Call]) -> AsyncGenerator[Outcome]:
    """As `judge`."""
    judgements = []
    for call in calls:
        judgements.append(await ajudge_call(runner, call))
    yield Judged(judgements=tuple(judgements))


def judge_call(runner: Runner, call: Call) -> Judgement:
    """The verdict on one call."""
    tool = runner.spec.tool(call)
    judgement = understand(runner, call, tool)
    if tool is None or judgement.verdict == "invalid":
        return judgement
    if tool.gate != "predicate":
        return gated(runner, call, judgement, tool, tool.gate == "always")
    context = tool_context(runner, call, tool, judgement.digest)
    try:
        values = tool.bind(judgement.json_text("args"))
    except InvalidArguments as error:
        return invalid(call, f"The arguments are not valid, so nothing was run. {error}")
    answer = tool.ask_gate(values, context)
    return gated(runner, call, judgement, tool, answer)


async def ajudge_call(runner: Runner, call: Call) -> Judgement:
    """As `judge_call`."""
    tool = runner.spec.tool(call)
    judgement = understand(runner, call, tool)
    if tool is None or judgement.verdict == "invalid":
        return judgement
    if tool.gate != "predicate":
        return gated(runner, call, judgement, tool, tool.gate == "always")
    context = tool_context(runner, call, tool, judgement.digest)
    try:
        values = tool.bind(judgement.json_text("args"))
    except InvalidArguments as error:
        return invalid(call, f"The arguments are not valid, so nothing was run. {error}")
    answer = await tool.aask_gate(values, context)
    return gated(runner, call, judgement, tool, answer)


def understand(runner: Runner, call: Call, tool: Tool | None) -> Judgement:
    """The call with its arguments validated and default-filled; the verdict stands at `ask` until the gate has answered."""
    if tool is None:
        known = ", ".join(sorted(runner.spec.tools)) or "none"
        return invalid(call, f"There is no tool named {call.name[:80]!r}. The tools are: {known}.")
    try:
        args: Any = tool.read(call.arguments or "")
    except InvalidArguments as error:
        return invalid(call, f"The arguments are not valid, so nothing was run. {error}")
    identity = tool.identity(runner.state.path)
    digest = call_digest(identity, args)
    repeatable = tool.idempotent or runner.spec.nested(runner.state, call) is not None
    return Judgement(id=call.id, verdict="ask", tool=identity, args=args, digest=digest, repeatable=repeatable)


def invalid(call: Call, told: str) -> Judgement:
    """The verdict on a call that cannot run, whoever approves it."""
    return Judgement(id=call.id, verdict="invalid", result=CallResult(kind="invalid", content=told))


def gated(runner: Runner, call: Call, judgement: Judgement, tool: Tool, answer: bool | Reject) -> Judgement:
    """The judgement with what the gate answered. Only a plain False lets the call run unasked."""
    looks = answer is False and runner.spec.stops(runner.state, call)
    if answer is False and not looks:
        return judgement.evolve(verdict="run")
    if isinstance(answer, Reject):
        reason = f" Reason: {answer.reason}" if answer.reason else ""
        result = CallResult(kind="rejected", content=f"A policy rejected this call, so it was not run.{reason}")
        return judgement.evolve(verdict="reject", then=answer.then, result=result)
    at = now(runner.ledger.store)
    request: dict[str, Any] = {"pending_id": new_id("pend"), "requested_at": at}
    timeout, on_expiry = runner.spec.expiry(tool)
    if timeout is not None:
        request |= {"expires_at": at + timedelta(seconds=timeout), "on_expiry": on_expiry}
    if looks:
        return judgement.evolve(verdict="pend", why="breakpoint", **request)
    return judgement.evolve(verdict="ask" if runner.spec.handler is not None else "pend", **request)


def tool_context(runner: Runner, call: Call, tool: Tool, digest: str | None = None) -> ToolContext[Any]:
    """What a tool, or its gate, may know of the call."""
    state = runner.state
    return ToolContext(
        run_id=state.run_id,
        thread_id=state.thread_id,
        call_id=call.call_id,
        pending_id=call.approved,
        tool_name=tool.name,
        idempotency_key=_rules.idempotency_key(state, call, digest),
        attempt=call.attempt,
        deps=runner.deps,
        _cancel=runner.ledger.signal(),
        _state=state.__dict__["state"],
    )


# Deciding


def consult(runner: Runner, calls: Sequence[Call]) -> Generator[Outcome]:
    """Ask the handler about every call, and only then let its answers count."""
    outcomes: list[Outcome] = []
    for call in calls:
        if (handler := runner.spec.handler) is None:  # it was judged by an agent that had one
            outcomes.append(Deferred(pending_ids=(call.pending_id or "",)))
            continue
        assert call.args is not None and call.tool is not None
        try:
            answer = handler(call.tool.name, call.args)
        except Exception as error:
            raise handler_failed(call, f"raised {type(error).__name__}") from error
        if isinstance(answer, Defer):
            outcomes.append(Deferred(pending_ids=(call.pending_id or "",)))
            continue
        try:
            outcomes.append(decide(runner, call, handler_answer(call, answer), channel="handler"))
        except InvalidDecision as error:
            raise handler_failed(call, f"edited the arguments so that they cannot run ({error})") from error
    yield from outcomes


async def aconsult(runner: Runner, calls: Sequence[Call]) -> AsyncGenerator[Outcome]:
    """As `consult`."""
    outcomes: list[Outcome] = []
    for call in calls:
        if (handler := runner.spec.handler) is None:  # it was judged by an agent that had one
            outcomes.append(Deferred(pending_ids=(call.pending_id or "",)))
            continue
        assert call.args is not None and call.tool is not None
        try:
            answer = await in_either(handler, runner.spec.handler_is_async, call.tool.name, call.args)
        except Exception as error:
            raise handler_failed(call, f"raised {type(error).__name__}") from error
        if isinstance(answer, Defer):
            outcomes.append(Deferred(pending_ids=(call.pending_id or "",)))
            continue
        try:
            outcomes.append(await adecide(runner, call, handler_answer(call, answer), channel="handler"))
        except InvalidDecision as error:
            raise handler_failed(call, f"edited the arguments so that they cannot run ({error})") from error
    for outcome in outcomes:
        yield outcome


def handler_answer(call: Call, answer: Any) -> Approve | Reject:
    """The answer that the handler's value stands for: exactly True approves; False and None reject."""
    if answer is True:
        return Approve()
    if answer is False or answer is None:
        return Reject()
    if isinstance(answer, (Approve, Reject)):
        return answer
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
    answer: Approve | Reject | Respond,
    *,
    by: Principal | None = None,
    channel: str | None = None,
) -> Decided:
    """The outcome of an answer. Edited arguments are validated and gated anew. Raises `InvalidDecision`."""
    edited: Judgement | None = None
    if isinstance(answer, Approve) and answer.args is not None and call.why != "question":
        edited = judge_call(runner, edited_call(answer, call))
    return decided(runner, call, answer, edited, by, channel)


async def adecide(
    runner: Runner,
    call: Call,
    answer: Approve | Reject | Respond,
    *,
    by: Principal | None = None,
    channel: str | None = None,
) -> Decided:
    """As `decide`."""
    edited: Judgement | None = None
    if isinstance(answer, Approve) and answer.args is not None and call.why != "question":
        edited = await ajudge_call(runner, edited_call(answer, call))
    return decided(runner, call, answer, edited, by, channel)


def lapsed(runner: Runner) -> Mapping[str, Decided]:
    """The outcomes, by pending id, for the approvals of a run that nobody decided in time."""
    at = now(runner.ledger.store)
    return {
        item.id: Decided(
            decision=Decision(pending_id=item.id, digest=item.digest, kind="expire", path=item.path, at=at)
        )
        for item in runner.state.pending
        if item.has_lapsed(at)
    }


def expiry(runner: Runner, outcomes: Mapping[str, Decided]) -> list[Outcome]:
    """These outcomes, and the end of the run where a request says that it is not to outlive it."""
    ends = [item for item in runner.state.pending if item.id in outcomes and item.on_expiry == "cancel"]
    reason = f"nobody decided on {ends[0].tool_name} in time" if ends else None
    ending = [Ending(status="cancelled", reason=reason, at=now(runner.ledger.store))] if ends else []
    return [*outcomes.values(), *ending]


def edited_call(answer: Approve, call: Call) -> Call:
    """The call as if the model had asked for it with the edited arguments."""
    return call.evolve(arguments=str(answer.json_text("args")))


def check_reply(call: Call, answer: Approve | Reject | Respond) -> None:
    """Refuse an answer that is not of the type which the body asked for. Raises `InvalidDecision`."""
    question = call.args or {}
    schema = question.get("answer")
    if isinstance(answer, Approve) and answer.args is not None:
        raise InvalidDecision(
            f"pending {call.pending_id} is a question, and has no arguments to edit: answer it with Respond",
            pending_id=call.pending_id,
        )
    if isinstance(answer, Reject) or schema is None:
        return
    from phronomy._answers import misfit  # noqa: PLC0415  # it loads jsonschema, and most runs ask nothing

    value = True if isinstance(answer, Approve) else answer.content
    if (wrong := misfit(value, schema)) is not None:
        raise InvalidDecision(
            f"the answer to question {question.get('key')!r} (pending {call.pending_id}) is not of the type that was asked for:"
            f" {wrong}",
            pending_id=call.pending_id,
        )


def decided(
    runner: Runner,
    call: Call,
    answer: Approve | Reject | Respond,
    edited: Judgement | None,
    by: Principal | None,
    channel: str | None,
) -> Decided:
    """The outcome of an answer whose edits, if any, have been judged."""
    assert call.pending_id is not None and call.digest is not None
    if call.why == "question":
        check_reply(call, answer)
    elif isinstance(answer, Respond) and (tool := runner.spec.tool(call)) is not None:
        try:
            tool.check_response(answer.content)
        except InvalidArguments as error:
            raise InvalidDecision(f"pending {call.pending_id}: {error}", pending_id=call.pending_id) from None
    if edited is not None and edited.result is not None:
        raise InvalidDecision(
            f"the edited arguments of pending {call.pending_id} cannot run: {edited.result.content}",
            pending_id=call.pending_id,
        )
    if edited is not None and edited.digest == call.digest:
        edited = None  # nothing was changed, so the model is told of no change
    decision = Decision(
        pending_id=call.pending_id,
        digest=call.digest,
        kind="approve" if isinstance(answer, Approve) else "reject" if isinstance(answer, Reject) else "respond",
        path=runner.state.path,
        args=edited.__dict__["args"] if edited is not None else None,
        content=answer.__dict__["content"] if isinstance(answer, Respond) else JsonText("null"),
        reason=answer.reason if isinstance(answer, Reject) else None,
        then=answer.then if isinstance(answer, Reject) else "continue",
        by=by,
        channel=channel,
        at=now(runner.ledger.store),
    )
    return Decided(decision=decision, edited=edited)

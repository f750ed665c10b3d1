"""Performing one move: the model, the tools, the handler, the clock. The gate is in `execute` and `aexecute`, and nowhere else.

The async functions are the sync ones with `async` and `await`; a test compares them. Only the few helpers at the end, which start
threads and tasks, have no twin.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, assert_never

from phronomy import _rules
from phronomy._json import JsonText
from phronomy._ledger import new_id, now
from phronomy._runner import Nested, Runner
from phronomy._workers import Overran, ain_thread, aside_by_side, in_either, in_thread, side_by_side, within
from phronomy.approvals import Approve, Decision, Defer, Principal, Reject, Respond, call_digest
from phronomy.checkpoint import Checkpoint
from phronomy.errors import ApprovalHandlerError, CheckpointError, InvalidDecision, LimitExceeded, ModelError, RunFailed
from phronomy.instructions import InstructionsContext
from phronomy.models.base import Model, ModelReply, ModelRequest
from phronomy.tools import InvalidArguments, Tool, ToolContext
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
    Fail,
    Finish,
    Finished,
    Interrupted,
    Judge,
    Judged,
    Judgement,
    Move,
    Next,
    Outcome,
    Replied,
    Run,
    Wait,
)

T = TypeVar("T")
Drive = Callable[[Runner], Iterator[Checkpoint]]
ADrive = Callable[[Runner], AsyncIterator[Checkpoint]]


def reaches_out(runner: Runner, move: Move) -> bool:
    """Whether the move touches anything outside, so that all before it must be stored first."""
    match move:
        case AskModel() | Consult() | Run() | Fail():
            return True
        case Judge(calls=calls):
            tools = [runner.spec.tool(call) for call in calls]
            return any(tool is not None and tool.gate == "predicate" for tool in tools)
        case Finish() | Wait() | Done():
            return False
        case unknown:
            assert_never(unknown)


def intents_of(runner: Runner, move: Move) -> list[Outcome]:
    """What is about to be done, to be stored before it is: each call that the move runs."""
    if not isinstance(move, Run):
        return []
    at = now(runner.ledger.store)
    return [CallStarted(id=call.id, attempt=call.attempt + 1, at=at) for call in move.calls]


def perform(runner: Runner, move: Move, drive: Drive) -> Iterator[Outcome]:
    """What comes of the move."""
    match move:
        case AskModel():
            return ask_model(runner)
        case Judge():
            return judge(runner, move.calls)
        case Consult():
            return consult(runner, move.calls)
        case Run():
            return run_calls(runner, move.calls, drive)
        case Finish():
            return finish(move)
        case Fail():
            raise limit_reached(runner, move)
        case Wait() | Done():
            raise AssertionError("a run at rest has no move to perform")
        case unknown:
            assert_never(unknown)


def aperform(runner: Runner, move: Move, drive: ADrive) -> AsyncIterator[Outcome]:
    """As `perform`."""
    match move:
        case AskModel():
            return aask_model(runner)
        case Judge():
            return ajudge(runner, move.calls)
        case Consult():
            return aconsult(runner, move.calls)
        case Run():
            return arun_calls(runner, move.calls, drive)
        case Finish():
            return afinish(move)
        case Fail():
            raise limit_reached(runner, move)
        case Wait() | Done():
            raise AssertionError("a run at rest has no move to perform")
        case unknown:
            assert_never(unknown)


# The model


def ask_model(runner: Runner) -> Iterator[Outcome]:
    """Render the instructions from the original input, and ask the model."""
    system = runner.spec.instructions.render(runner.state.original_input, instructions_context(runner))
    model, request = request_of(runner, system)
    started = time.monotonic()
    try:
        reply = model.complete(request)
    except RunFailed:
        raise
    except Exception as error:
        raise model_failed(model, error) from error
    yield replied(model, reply, started)


async def aask_model(runner: Runner) -> AsyncIterator[Outcome]:
    """As `ask_model`."""
    system = await runner.spec.instructions.arender(runner.state.original_input, instructions_context(runner))
    model, request = request_of(runner, system)
    started = time.monotonic()
    try:
        reply = await model.acomplete(request)
    except RunFailed:
        raise
    except Exception as error:
        raise model_failed(model, error) from error
    yield replied(model, reply, started)


def instructions_context(runner: Runner) -> InstructionsContext[Any]:
    """What a callable that makes instructions may know of the run."""
    state = runner.state
    return InstructionsContext(
        run_id=state.run_id, thread_id=state.thread_id, deps=runner.deps, messages=state.messages
    )


def request_of(runner: Runner, system: str | None) -> tuple[Model, ModelRequest]:
    """The model, and what it is asked."""
    spec = runner.spec
    assert spec.model is not None, "a spec whose rules ask the model has one"
    tools = tuple(tool.definition() for tool in spec.tools.values())
    messages = runner.state.messages
    return spec.model, ModelRequest(system=system, messages=messages, tools=tools, settings=spec.settings)


def replied(model: Model, reply: Any, started: float) -> Replied:
    """The outcome of a model call."""
    if not isinstance(reply, ModelReply):
        raise ModelError(f"model {model.name} answered with {type(reply).__name__}, not with a ModelReply")
    return Replied(message=reply.message, usage=reply.usage, elapsed=since(started))


def model_failed(model: Model, error: Exception) -> ModelError:
    """The error for a model that raised something of its own."""
    return ModelError(f"model {model.name} raised {type(error).__name__}; resume the checkpoint to ask it again")


# Judging


def judge(runner: Runner, calls: Sequence[Call]) -> Iterator[Outcome]:
    """Validate the arguments of each call, and ask its gate."""
    judgements = []
    for call in calls:
        judgements.append(judge_call(runner, call))
    yield Judged(judgements=tuple(judgements))


async def ajudge(runner: Runner, calls: Sequence[Call]) -> AsyncIterator[Outcome]:
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
        return gated(runner, judgement, tool.gate == "always")
    context = tool_context(runner, call, tool, judgement.digest)
    answer = tool.ask_gate(tool.bind(judgement.json_text("args")), context)
    return gated(runner, judgement, answer)


async def ajudge_call(runner: Runner, call: Call) -> Judgement:
    """As `judge_call`."""
    tool = runner.spec.tool(call)
    judgement = understand(runner, call, tool)
    if tool is None or judgement.verdict == "invalid":
        return judgement
    if tool.gate != "predicate":
        return gated(runner, judgement, tool.gate == "always")
    context = tool_context(runner, call, tool, judgement.digest)
    answer = await tool.aask_gate(tool.bind(judgement.json_text("args")), context)
    return gated(runner, judgement, answer)


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


def gated(runner: Runner, judgement: Judgement, answer: bool | Reject) -> Judgement:
    """The judgement with what the gate answered. Only a plain False lets the call run unasked."""
    if answer is False:
        return judgement.evolve(verdict="run")
    if isinstance(answer, Reject):
        reason = f" Reason: {answer.reason}" if answer.reason else ""
        result = CallResult(kind="rejected", content=f"A policy rejected this call, so it was not run.{reason}")
        return judgement.evolve(verdict="reject", result=result)
    request = {"pending_id": new_id("pend"), "requested_at": now(runner.ledger.store)}
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
    )


# Deciding


def consult(runner: Runner, calls: Sequence[Call]) -> Iterator[Outcome]:
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


async def aconsult(runner: Runner, calls: Sequence[Call]) -> AsyncIterator[Outcome]:
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
    if isinstance(answer, Approve) and answer.args is not None:
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
    if isinstance(answer, Approve) and answer.args is not None:
        edited = await ajudge_call(runner, edited_call(answer, call))
    return decided(runner, call, answer, edited, by, channel)


def edited_call(answer: Approve, call: Call) -> Call:
    """The call as if the model had asked for it with the edited arguments."""
    return call.evolve(arguments=str(answer.json_text("args")))


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


# Running


def run_calls(runner: Runner, calls: Sequence[Call], drive: Drive) -> Iterator[Outcome]:
    """Run the calls: one in this thread, several side by side, each in a thread of its own."""
    if len(calls) == 1:
        yield execute(runner, calls[0].id, drive)
        return
    yield from side_by_side([partial(execute, runner, call.id, drive) for call in calls])


async def arun_calls(runner: Runner, calls: Sequence[Call], drive: ADrive) -> AsyncIterator[Outcome]:
    """As `run_calls`, in tasks."""
    if len(calls) == 1:
        yield await aexecute(runner, calls[0].id, drive)
        return
    async for outcome in aside_by_side([aexecute(runner, call.id, drive) for call in calls]):
        yield outcome


def execute(runner: Runner, id: str, drive: Drive) -> Outcome:
    """Run one call. Whatever runs goes through here, and nothing gets past `admit` without a recorded approval."""
    call, tool = found(runner, id)
    if tool is None:
        return gone(call)
    context = admit(runner, call, tool)
    if (reused := reuse(runner, call, context)) is not None:
        return reused
    if (nested := runner.spec.nested(runner.state, call)) is not None:
        return run_nested(runner, call, nested, drive)
    if call.attempt > 1:
        time.sleep(retry_wait(call, tool))
    started = time.monotonic()
    try:
        values = tool.bind(call.json_text("args"))
        work = partial(tool.call, values, context)
        value = work() if tool.timeout is None else in_thread(work, tool.timeout)
    except Exception as error:
        return failed(runner, call, tool, context, error, since(started))
    return settled(call, context, told(call, tool.render(value)), since(started))


async def aexecute(runner: Runner, id: str, drive: ADrive) -> Outcome:
    """As `execute`."""
    call, tool = found(runner, id)
    if tool is None:
        return gone(call)
    context = admit(runner, call, tool)
    if (reused := reuse(runner, call, context)) is not None:
        return reused
    if (nested := runner.spec.nested(runner.state, call)) is not None:
        return await arun_nested(runner, call, nested, drive)
    if call.attempt > 1:
        await asyncio.sleep(retry_wait(call, tool))
    started = time.monotonic()
    try:
        values = tool.bind(call.json_text("args"))
        work = partial(tool.call, values, context)
        value = await (
            within(tool.acall(values, context), tool.timeout) if tool.is_async else ain_thread(work, tool.timeout)
        )
    except Exception as error:
        return failed(runner, call, tool, context, error, since(started))
    return settled(call, context, told(call, tool.render(value)), since(started))


def found(runner: Runner, id: str) -> tuple[Call, Tool | None]:
    """The call as it stands in the state, and its tool."""
    call = next(call for call in runner.state.calls if call.id == id)
    return call, runner.spec.tool(call)


def admit(runner: Runner, call: Call, tool: Tool) -> ToolContext[Any]:
    """The context for the call, if the gate lets it run. Raises `NotAuthorized`."""
    _rules.authorize(runner.state, call, tool.identity(runner.state.path))
    return tool_context(runner, call, tool)


def gone(call: Call) -> CallFailed:
    """The outcome of a call whose tool the agent no longer has, where the caller accepted that."""
    return CallFailed(
        id=call.id, error=f"There is no tool named {call.name[:80]!r} any more. Nothing was run.", next="model"
    )


def reuse(runner: Runner, call: Call, context: ToolContext[Any]) -> CallSettled | None:
    """The result that the same call has in another branch of the run, if this is a fork."""
    result = runner.ledger.reusable.get(context.idempotency_key)
    if result is None:
        return None
    return CallSettled(id=call.id, call_id=call.call_id, key=context.idempotency_key, result=result, reused=True)


def settled(call: Call, context: ToolContext[Any], result: CallResult, elapsed: int) -> CallSettled:
    """The outcome of a call that ran."""
    return CallSettled(id=call.id, call_id=call.call_id, key=context.idempotency_key, result=result, elapsed=elapsed)


def told(call: Call, result: CallResult) -> CallResult:
    """The result as the model reads it. It is told when a human changed what it asked for, or it would ask again."""
    if not call.edited:
        return result
    note = f"A human changed the arguments of this call to {call.json_text('args')} before it ran. Its result:\n"
    return result.evolve(content=note + result.content)


def failed(
    runner: Runner, call: Call, tool: Tool, context: ToolContext[Any], error: Exception, elapsed: int
) -> CallFailed | CallUnknown:
    """The outcome of an attempt that raised: tried again where that is safe, then the fallback, then as the tool chose."""
    if isinstance(error, Overran):
        context._cancel.set()
    if isinstance(error, Overran) and not tool.idempotent:
        reason = f"{tool.name} did not end within {tool.timeout} s. It may have taken effect, or may yet."
        at = now(runner.ledger.store)
        return CallUnknown(id=call.id, reason=reason, elapsed=elapsed, pending_id=new_id("pend"), requested_at=at)
    following: Next = "model"
    fallback = runner.spec.tool(call.evolve(fallback=call.fallback + 1))
    if call.attempt <= tool.retries and (tool.idempotent or isinstance(error, tool.retry_on)):
        following = "retry"
    elif fallback is not None:
        following = "fallback"
    elif tool.on_failure == "human":
        following = "human"
    ask = following == "human"
    return CallFailed(
        id=call.id,
        error=tool.describe_error(error, call.args or {}),
        next=following,
        elapsed=elapsed,
        fallback=fallback.name if following == "fallback" and fallback is not None else None,
        pending_id=new_id("pend") if ask else None,
        requested_at=now(runner.ledger.store) if ask else None,
    )


def retry_wait(call: Call, tool: Tool) -> float:
    """How many seconds to wait before this attempt: doubling, at most 5."""
    return min(tool.retry_wait * 2.0 ** (call.attempt - 2), 5.0)


def run_nested(runner: Runner, call: Call, nested: Nested, drive: Drive) -> Outcome:
    """Drive the run inside a call: its result, or what it waits for."""
    child = child_of(runner, call, nested)
    hand_down(runner, child)
    for _ in drive(child):
        pass
    return nested_outcome(runner, call, child)


async def arun_nested(runner: Runner, call: Call, nested: Nested, drive: ADrive) -> Outcome:
    """As `run_nested`."""
    child = child_of(runner, call, nested)
    hand_down(runner, child)
    async for _ in drive(child):
        pass
    return nested_outcome(runner, call, child)


def child_of(runner: Runner, call: Call, nested: Nested) -> Runner:
    """The runner of the run inside a call, where it stopped or at its beginning."""
    path = f"{runner.state.path}/{call.id}".lstrip("/")
    base = runner.ledger.nested.get(path)
    if base is not None:
        child = Runner(nested.spec, runner.ledger, base, deps=runner.deps)
        if child.in_flight:
            child.record(interruption(child.state, now(runner.ledger.store)))
        return child
    if call.waiting:
        raise CheckpointError(
            f"the run nested at {path} in run {runner.state.run_id} is missing; it is not started afresh"
        )
    begun = nested.begin(runner.state, path, now(runner.ledger.store))
    return Runner(nested.spec, runner.ledger, begun, deps=runner.deps, fresh=True)


def hand_down(runner: Runner, child: Runner) -> None:
    """Give the child the decisions that were taken, higher up, on what it waits for."""
    waiting = {item.id for item in child.state.pending}
    for decision in runner.state.decisions:
        if decision.pending_id in waiting:
            call = next((call for call in child.state.calls if call.pending_id == decision.pending_id), None)
            child.record(Decided(decision=decision, edited=edited_by(decision, call)))


def edited_by(decision: Decision, call: Call | None) -> Judgement | None:
    """The judgement of arguments that a recorded decision edited in: they were validated and gated when it was taken."""
    if decision.args is None or call is None or call.tool is None:
        return None
    args: Any = JsonText(decision.json_text("args"))
    digest = call_digest(call.tool, args)
    return Judgement(id=call.id, verdict="run", tool=call.tool, args=args, digest=digest, repeatable=call.repeatable)


def nested_outcome(runner: Runner, call: Call, child: Runner) -> Outcome:
    """What the run inside a call has come to."""
    state = child.state
    runner.ledger.nested[state.path] = state
    if state.ended is None:
        return CallWaits(id=call.id, pending=state.pending)
    output = state.output
    content = output if isinstance(output, str) else state.json_text("output")
    if state.ended != "completed":
        content = f"The run behind this call was {state.ended}."
    key = _rules.idempotency_key(runner.state, call)
    result = told(call, CallResult(kind=state.ended, content=content))
    return CallSettled(id=call.id, call_id=call.call_id, key=key, result=result)


def interruption(state: Checkpoint, at: datetime) -> Interrupted:
    """The outcome for calls whose worker is gone: those that may not be repeated get an id to be asked about under."""
    started = [call for call in state.calls if call.status == "started" and not call.repeatable]
    return Interrupted(pending_ids={call.id: new_id("pend") for call in started}, at=at)


# The end


def finish(move: Finish) -> Iterator[Outcome]:
    """End the run."""
    yield Finished(status=move.status, output=move.output)


async def afinish(move: Finish) -> AsyncIterator[Outcome]:
    """As `finish`."""
    yield Finished(status=move.status, output=move.output)


def limit_reached(runner: Runner, move: Fail) -> LimitExceeded:
    """The error for a run that has used up one of its limits."""
    return LimitExceeded(
        f"run {runner.state.run_id} reached {move.limit}={move.maximum:g}; raise the limit and resume its checkpoint to go on",
        limit=move.limit,
        maximum=move.maximum,
    )


def since(started: float) -> int:
    """The milliseconds since `started`, by the monotonic clock."""
    return round((time.monotonic() - started) * 1000)

"""Performing one move: the model, the tools, the handler, the clock. The gate is in `execute` and `aexecute`, and nowhere else.

The async functions are the sync ones with `async` and `await`; a test compares them. Only the few helpers at the end, which start
threads and tasks, have no twin.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from phronomy import _gate
from phronomy._aclosing import aclosing
from phronomy._apart import arun_apart, at_work, begin_all, is_asked, leave_of, run_apart
from phronomy._asking import gives_pieces, instructions_context, keeps_time, patience_of, prepare_model, request_of
from phronomy._guard import aguard, guard
from phronomy._ids import new_id
from phronomy._judge import aconsult, ajudge, consult, judge, tool_context
from phronomy._leave import Left, Overran
from phronomy._ledger import now
from phronomy._nested import ADrive, Drive
from phronomy._pieces import Heard, Piece, Piecewise, feeding
from phronomy._record import later
from phronomy._runner import Asking, Runner
from phronomy._spent import out_of_time, seconds_left
from phronomy._stops import after_nodes
from phronomy._workers import NEVER, ain_thread, aside_by_side, in_place, in_thread, side_by_side, within
from phronomy.approvals import PendingApproval, call_digest
from phronomy.errors import (
    ConfigurationError,
    LimitExceeded,
    ModelConnectionError,
    ModelError,
    NodeFailed,
    OutputError,
    RunFailed,
)
from phronomy.interrupts import Interrupt, asking, question_id
from phronomy.models._patience import ain_time, apieces_in_time, in_time, pieces_in_time
from phronomy.models.base import DELTAS, Delta, Model, ModelReply, ModelRequest, StreamingModel
from phronomy.output import InvalidOutput, told
from phronomy.tools import OutcomeUnknown, Tool, ToolContext
from phronomy.types import (
    Advance,
    AskModel,
    Call,
    CallFailed,
    CallResult,
    CallSettled,
    CallStarted,
    CallUnknown,
    CallWaits,
    Consult,
    Done,
    Fail,
    Finish,
    Finished,
    Guard,
    Judge,
    Move,
    Next,
    Outcome,
    OutputRefused,
    ReadOutput,
    Replied,
    Run,
    Stop,
    Wait,
    Withdrawn,
)


def reaches_out(runner: Runner, move: Move) -> bool:
    """Whether the move touches anything outside, so that all before it must be stored first."""
    match move:
        case AskModel() | Consult() | Run() | Fail() | Stop():
            return True
        case Guard(stage=stage):
            return stage == "input"  # a reply is stored with what guardrails say of it
        case Advance():
            return runner.spec.advance(runner.state, runner.deps).acts
        case Judge(calls=calls):
            tools = [runner.spec.tool(call) for call in calls]
            return bool(runner.spec.tool_guardrails) or any(
                tool is not None and tool.gate == "predicate" for tool in tools
            )
        case ReadOutput() | Finish() | Wait() | Done():
            return False
        case unknown:
            assert_never(unknown)


def intents_of(runner: Runner, move: Move) -> list[Outcome]:
    """What is about to be done, to be stored before it is: each call that the move runs.

    What the gate will refuse is refused here already: a call that never ran must not be recorded as one that may have.
    """
    if not isinstance(move, Run):
        return []
    at = now(runner.ledger.store)
    state = runner.state
    begin_all(runner, move.calls)
    for call in move.calls:
        tool = runner.spec.tool(call)
        if tool is not None and (why := _gate.refusal(state, call, tool.identity(state.path))) is not None:
            raise _gate.refused(state, call, why)
    return [
        CallStarted(id=call.id, attempt=call.attempt + 1, at=at, key=_gate.idempotency_key(state, call))
        for call in move.calls
    ]


def perform(runner: Runner, move: Move, drive: Drive) -> Generator[Outcome | Asking | Delta | Piece | Heard]:
    """What comes of the move."""
    match move:
        case AskModel():
            return ask_model(runner)
        case Guard():
            return guard(runner, move.stage)
        case Judge():
            return judge(runner, move.calls)
        case Consult():
            return consult(runner, move.calls)
        case Run():
            prepare_model(runner)
            return run_calls(runner, move.calls, drive)
        case ReadOutput():
            return read_output(runner, move)
        case Advance():
            return advance(runner)
        case Finish():
            return finish(move)
        case Fail():
            raise limit_reached(runner, move)
        case Stop():
            raise stopped(runner, move)
        case Wait() | Done():
            raise AssertionError("a run at rest has no move to perform")
        case unknown:
            assert_never(unknown)


def aperform(runner: Runner, move: Move, drive: ADrive) -> AsyncGenerator[Outcome | Asking | Delta | Piece | Heard]:
    """As `perform`."""
    match move:
        case AskModel():
            return aask_model(runner)
        case Guard():
            return aguard(runner, move.stage)
        case Judge():
            return ajudge(runner, move.calls)
        case Consult():
            return aconsult(runner, move.calls)
        case Run():
            prepare_model(runner)
            return arun_calls(runner, move.calls, drive)
        case ReadOutput():
            return aread_output(runner, move)
        case Advance():
            return aadvance(runner)
        case Finish():
            return afinish(move)
        case Fail():
            raise limit_reached(runner, move)
        case Stop():
            raise stopped(runner, move)
        case Wait() | Done():
            raise AssertionError("a run at rest has no move to perform")
        case unknown:
            assert_never(unknown)


# The model


def ask_model(runner: Runner) -> Generator[Outcome | Asking | Delta]:
    """Render the instructions from the input, and ask the model. The pieces of a reply pass on if they are wanted."""
    system = runner.spec.instructions.render(runner.state.input, instructions_context(runner))
    model, request = request_of(runner, system)
    reply: Any = None
    yield Asking(path=runner.state.path, model=model.name)
    started = time.monotonic()
    timeout, inline = request.settings.timeout, keeps_time(model)
    request = replace(request, patience=patience_of(runner, started))
    runner.ledger.exchanged(runner.state.path, model, request)
    try:
        if gives_pieces(runner) and isinstance(model, StreamingModel):
            stream = model.stream(request) if inline else pieces_in_time(model.stream, request, timeout)
            with closing(stream) as pieces:
                for piece in pieces:
                    if isinstance(piece, DELTAS):
                        paused = time.monotonic()
                        yield piece
                        paused = time.monotonic() - paused  # whoever watches may be slow, which is not work
                        started += paused
                        request.patience.extend(paused)
                    else:
                        reply = piece
        else:
            reply = model.complete(request) if inline else in_time(model.complete, request, timeout)
    except Exception as error:
        if request.patience.leave.said:  # whatever it raised: the run is over, and the log says how
            if runner.root:  # those inside have heard it by now
                runner.ledger.catch_up()
            return
        failure = model_failed(runner, model, request, error, started)
        if failure is error:
            raise
        raise failure from error
    yield replied(runner, model, reply, started)


async def aask_model(runner: Runner) -> AsyncGenerator[Outcome | Asking | Delta]:
    """As `ask_model`."""
    system = await runner.spec.instructions.arender(runner.state.input, instructions_context(runner))
    model, request = request_of(runner, system)
    reply: Any = None
    yield Asking(path=runner.state.path, model=model.name)
    started = time.monotonic()
    timeout, inline = request.settings.timeout, keeps_time(model)
    request = replace(request, patience=patience_of(runner, started))
    runner.ledger.exchanged(runner.state.path, model, request)
    try:
        if gives_pieces(runner) and isinstance(model, StreamingModel):
            stream = model.astream(request) if inline else apieces_in_time(model.astream, request, timeout)
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    if isinstance(piece, DELTAS):
                        paused = time.monotonic()
                        yield piece
                        paused = time.monotonic() - paused  # whoever watches may be slow, which is not work
                        started += paused
                        request.patience.extend(paused)
                    else:
                        reply = piece
        else:
            reply = await (model.acomplete(request) if inline else ain_time(model.acomplete, request, timeout))
    except Exception as error:
        if request.patience.leave.said:  # whatever it raised: the run is over, and the log says how
            if runner.root:
                await runner.ledger.acatch_up()
            return
        failure = model_failed(runner, model, request, error, started)
        if failure is error:
            raise
        raise failure from error
    yield replied(runner, model, reply, started)


def replied(runner: Runner, model: Model, reply: Any, started: float) -> Replied:
    """The outcome of a model call."""
    if not isinstance(reply, ModelReply):
        raise ModelError(f"model {model.name} answered with {type(reply).__name__}, not with a ModelReply")
    runner.ledger.exchanged(runner.state.path, model, reply)
    guarded = bool(runner.spec.output_guardrails)
    return Replied(message=reply.message, usage=reply.usage, elapsed=since(started), guarded=guarded)


def model_failed(runner: Runner, model: Model, request: ModelRequest, error: Exception, started: float) -> RunFailed:
    """The error for a model that has raised, or has not answered in time."""
    bounded = seconds_left(runner) is not None  # a patience that is over may be that of the attempt alone
    if bounded and request.patience.is_over and isinstance(error, Overran | ModelConnectionError):
        return limit_reached(runner, out_of_time(runner, since(started)))
    if isinstance(error, RunFailed):
        return error
    again = "resume the checkpoint to ask it again"
    if isinstance(error, Overran):
        return ModelConnectionError(f"model {model.name} gave no whole answer before the timeout; {again}")
    # One of ours says what to change, and quotes no value.
    why = f": {error}" if isinstance(error, ConfigurationError) else ""
    return ModelError(f"model {model.name} raised {type(error).__name__}{why}; {again}")


# Running


def run_calls(runner: Runner, calls: Sequence[Call], drive: Drive) -> Generator[Outcome | Piece | Heard]:
    """Run the calls: one in this thread, several side by side, each in a thread of its own. Pieces pass on if they are wanted."""
    owner, run = listened_to(runner, calls), attempt if is_asked(runner) else execute
    if len(calls) == 1 and owner is None:
        yield run(runner, calls[0].id, drive)
        return
    with closing(side_by_side([partial(run, runner, call.id, drive) for call in calls], owner)) as outcomes:
        for outcome in outcomes:
            if runner.streams or not isinstance(outcome, Piece | Heard):  # whoever watched may have left meanwhile
                yield outcome


async def arun_calls(runner: Runner, calls: Sequence[Call], drive: ADrive) -> AsyncGenerator[Outcome | Piece | Heard]:
    """As `run_calls`, in tasks."""
    owner, run = listened_to(runner, calls), aattempt if is_asked(runner) else aexecute
    if len(calls) == 1 and owner is None:
        yield await run(runner, calls[0].id, drive)
        return
    async with aclosing(aside_by_side([run(runner, call.id, drive) for call in calls], owner)) as outcomes:
        async for outcome in outcomes:
            if runner.streams or not isinstance(outcome, Piece | Heard):
                yield outcome


def attempt(runner: Runner, id: str, drive: Drive) -> Outcome:
    """As `execute`, unless the call has become superfluous before it was begun."""
    with at_work(runner, id) as wanted:
        return execute(runner, id, drive) if wanted else Withdrawn(ids=(id,))


async def aattempt(runner: Runner, id: str, drive: ADrive) -> Outcome:
    """As `attempt`."""
    with at_work(runner, id) as wanted:
        return await aexecute(runner, id, drive) if wanted else Withdrawn(ids=(id,))


def listened_to(runner: Runner, calls: Sequence[Call]) -> object | None:
    """Whose runs are listened to while these calls run; None if nobody watches, or none of them gives anything before its end."""
    tools = [runner.spec.tool(call) for call in calls] if runner.streams and runner.root else []
    gives = any(isinstance(tool, Piecewise) and tool.gives_pieces for tool in tools)
    return runner.ledger if gives else None


def execute(runner: Runner, id: str, drive: Drive) -> Outcome:
    """Run one call. Whatever runs goes through here, and nothing gets past `admit` without a recorded approval."""
    call, tool = found(runner, id)
    if tool is None:
        return gone(call)
    context = admit(runner, call, tool)
    if (elsewhere := done_elsewhere(runner, call, tool, context)) is not None:
        return elsewhere
    if (nested := runner.spec.nested(runner.state, call)) is not None:
        return run_apart(runner, call, tool, nested, drive)
    if call.attempt > 1:
        time.sleep(retry_wait(call, tool))
    runner.ledger.ensure_held()
    started = time.monotonic()
    try:
        values = tool.bind(call.json_text("args"))
        work = partial(tool.call, values, context)
        leave = leave_of(runner, call) if tool.may_be_left else NEVER
        around = runner.ledger.around(runner.state.path, call.call_id)
        with feeding(runner.ledger, runner.state.path, call), around, asking(runner.state, call):
            inline = tool.timeout is None and not tool.may_be_left
            value = work() if inline else in_thread(work, tool.timeout, leave)
    except Interrupt as asked:
        return asks(runner, call, tool, asked, since(started))
    except Exception as error:
        return failed(runner, call, tool, context, error, since(started))
    return settled(call, context, tool.render(value), since(started))


async def aexecute(runner: Runner, id: str, drive: ADrive) -> Outcome:
    """As `execute`."""
    call, tool = found(runner, id)
    if tool is None:
        return gone(call)
    context = admit(runner, call, tool)
    if (elsewhere := done_elsewhere(runner, call, tool, context)) is not None:
        return elsewhere
    if (nested := runner.spec.nested(runner.state, call)) is not None:
        return await arun_apart(runner, call, tool, nested, drive)
    if call.attempt > 1:
        await asyncio.sleep(retry_wait(call, tool))
    await runner.ledger.aensure_held()
    started = time.monotonic()
    try:
        values = tool.bind(call.json_text("args"))
        work = partial(tool.call, values, context)
        leave = leave_of(runner, call) if tool.may_be_left else NEVER
        around = runner.ledger.around(runner.state.path, call.call_id)
        with feeding(runner.ledger, runner.state.path, call), around, asking(runner.state, call):
            inline = tool.timeout is None and not tool.may_be_left
            if not tool.is_async:
                value = await ain_thread(work, tool.timeout, leave)
            elif inline:
                value = await in_place(tool.acall(values, context))
            else:
                value = await within(tool.acall(values, context), tool.timeout, leave)
    except Interrupt as asked:
        return asks(runner, call, tool, asked, since(started))
    except Exception as error:
        return failed(runner, call, tool, context, error, since(started))
    return settled(call, context, tool.render(value), since(started))


def found(runner: Runner, id: str) -> tuple[Call, Tool | None]:
    """The call as it stands in the state, and its tool."""
    call = next(call for call in runner.state.calls if call.id == id)
    return call, runner.spec.tool(call)


def admit(runner: Runner, call: Call, tool: Tool) -> ToolContext[Any]:
    """The context for the call, if the gate lets it run. Raises `NotAuthorized`."""
    _gate.authorize(runner.state, call, tool.identity(runner.state.path))
    return tool_context(runner, call, tool)


def gone(call: Call) -> CallFailed:
    """The outcome of a call whose tool the agent no longer has, where the caller accepted that."""
    return CallFailed(
        id=call.id, error=f"There is no tool named {call.name[:80]!r} any more. Nothing was run.", next="model"
    )


def done_elsewhere(
    runner: Runner, call: Call, tool: Tool, context: ToolContext[Any]
) -> CallSettled | CallUnknown | None:
    """What became of the same call in another branch of the run, if this is a fork: its result, or that nobody knows it.

    A run inside the call that has stopped in this branch has decisions of its own, and goes on.
    """
    if call.stopped:
        return None
    key = context.idempotency_key
    result = runner.ledger.reusable.get(key)
    if result is not None:
        return CallSettled(id=call.id, call_id=call.call_id, key=key, result=result, reused=True)
    if key in runner.ledger.begun and not call.repeatable and call.why != "outcome_unknown":
        reason = f"{tool.name} was begun in another branch of the run, and nobody knows whether it took effect."
        at = now(runner.ledger.store)
        return CallUnknown(id=call.id, reason=reason, pending_id=new_id("pend"), requested_at=at)
    return None


def settled(call: Call, context: ToolContext[Any], result: CallResult, elapsed: int) -> CallSettled:
    """The outcome of a call that ran."""
    return CallSettled(id=call.id, call_id=call.call_id, key=context.idempotency_key, result=result, elapsed=elapsed)


def failed(
    runner: Runner, call: Call, tool: Tool, context: ToolContext[Any], error: Exception, elapsed: int
) -> CallFailed | CallUnknown | Withdrawn:
    """The outcome of an attempt that raised: tried again where that is safe, then the fallback, then as the tool chose."""
    if isinstance(error, (Overran, Left)):
        context._cancel.set()
    if isinstance(error, Left):
        return left(runner, call, tool, elapsed)
    if isinstance(error, Overran | OutcomeUnknown) and not tool.idempotent:
        reason = f"{tool.name} did not end within {tool.timeout} s. It may have taken effect, or may yet."
        if isinstance(error, OutcomeUnknown):
            reason = tool.describe_error(error, call.args or {})
        at = now(runner.ledger.store)
        return CallUnknown(id=call.id, reason=reason, elapsed=elapsed, pending_id=new_id("pend"), requested_at=at)
    following: Next = "model"
    fallback = runner.spec.tool(call.evolve(fallback=call.fallback + 1))
    if call.attempt <= tool.retries and (tool.idempotent or isinstance(error, tool.retry_on)):
        following = "retry"
    elif fallback is not None:
        following = "fallback"
    elif tool.on_failure != "model":
        following = tool.on_failure
        runner.raised[call.id] = error
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


def left(runner: Runner, call: Call, tool: Tool, elapsed: int) -> Withdrawn | CallUnknown:
    """The outcome of a call that was left while it ran: it begins again where that is safe, else a human is asked."""
    if call.repeatable:
        return Withdrawn(ids=(call.id,), reason="The run was stopped while this ran.")
    reason = f"The run was stopped while {tool.name} ran. It may have taken effect, or may yet."
    at = now(runner.ledger.store)
    return CallUnknown(id=call.id, reason=reason, elapsed=elapsed, pending_id=new_id("pend"), requested_at=at)


def retry_wait(call: Call, tool: Tool) -> float:
    """How many seconds to wait before this attempt: doubling, at most 5."""
    return min(tool.retry_wait * 2.0 ** min(call.attempt - 2, 60), 5.0)


def asks(runner: Runner, call: Call, tool: Tool, asked: Interrupt, elapsed: int) -> CallWaits:
    """The outcome of a body that asks something: the same question has the same id, however often it is asked."""
    state = runner.state
    identity = tool.identity(state.path)
    args: Any = asked.shown
    note: Any = asked.note
    at = now(runner.ledger.store)
    timeout, on_expiry = runner.spec.expiry(tool)
    item = PendingApproval(
        id=question_id(state, call, asked.key),
        call_id=call.call_id,
        tool=identity,
        args=args,
        digest=call_digest(identity, args),
        path=state.path,
        agent=state.speaker,
        why="question",
        requested_at=at,
        expires_at=None if timeout is None else later(at, seconds=timeout),
        on_expiry=on_expiry,
    )
    return CallWaits(id=call.id, pending=(item,), elapsed=elapsed, note=note)


# The end


def advance(runner: Runner) -> Generator[Outcome]:
    """Go on from calls that have all settled."""
    through = runner.state
    yield runner.spec.advance(through, runner.deps).outcome(now(runner.ledger.store))
    if runner.breakpoints is not None:
        yield from after_nodes(runner, through)


async def aadvance(runner: Runner) -> AsyncGenerator[Outcome]:
    """As `advance`."""
    through = runner.state
    yield await runner.spec.advance(through, runner.deps).aoutcome(now(runner.ledger.store))
    if runner.breakpoints is not None:
        for halted in after_nodes(runner, through):
            yield halted


def read_output(runner: Runner, move: ReadOutput) -> Generator[Outcome]:
    """End the run with the output in the reply, or have the model told why there is none."""
    yield output_of(runner, move)


async def aread_output(runner: Runner, move: ReadOutput) -> AsyncGenerator[Outcome]:
    """As `read_output`."""
    yield output_of(runner, move)


def output_of(runner: Runner, move: ReadOutput) -> Finished | OutputRefused:
    """What the reply that ends the run has come to."""
    assert runner.spec.output is not None
    try:
        value: Any = runner.spec.output.read(move.text)
        if runner.spec.output_guardrails:  # they look at all of it, so there is no answer without
            runner.spec.output.shown(value)
    except InvalidOutput as error:
        return OutputRefused(error=told(error))
    return Finished(status="completed", output=value)


def finish(move: Finish) -> Generator[Outcome]:
    """End the run."""
    yield Finished(status=move.status, output=move.output)


async def afinish(move: Finish) -> AsyncGenerator[Outcome]:
    """As `finish`."""
    yield Finished(status=move.status, output=move.output)


def limit_reached(runner: Runner, move: Fail) -> RunFailed:
    """The error for a run that has used up one of its limits."""
    run_id = runner.state.run_id
    if move.limit == "output_retries":
        return OutputError(
            f"run {run_id}: {move.used:g} answers were not of the output type, and output_retries is {move.maximum:g};"
            " raise it and resume the checkpoint to go on"
        )
    used = "how much it used is not known" if move.used is None else f"it used {move.used:g}"
    return LimitExceeded(
        f"run {run_id} reached the limit {move.limit}={move.maximum:g}: {used}; raise it and resume the checkpoint to go on",
        limit=move.limit,
        maximum=move.maximum,
        used=move.used,
        path=runner.state.path if move.path is None else move.path,
    )


def stopped(runner: Runner, move: Stop) -> NodeFailed:
    """The error for a run in which calls failed for good."""
    run_id = runner.state.run_id
    failures: dict[str, str] = {}
    for call in move.calls:  # several may be of one name
        failures[call.name] = "; ".join(filter(None, (failures.get(call.name), call.reason)))
    told = "; ".join(f"{name} failed: {why}" for name, why in failures.items())
    error = NodeFailed(f"run {run_id}: {told}; resume the checkpoint to run it again", failures=failures)
    error.__cause__ = next((runner.raised[call.id] for call in move.calls if call.id in runner.raised), None)
    return error


def since(started: float) -> int:
    """The milliseconds since `started`, by the monotonic clock."""
    return round((time.monotonic() - started) * 1000)

"""Performing one move: the model, the tools, the handler, the clock. The gate is in `execute` and `aexecute`, and nowhere else.

The async functions are the sync ones with `async` and `await`; a test compares them. Only the few helpers at the end, which start
threads and tasks, have no twin.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, closing
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, assert_never

from phronomy import _rules
from phronomy._ids import new_id
from phronomy._json import JsonText
from phronomy._judge import aconsult, ajudge, consult, judge, tool_context
from phronomy._ledger import now
from phronomy._runner import Asking, Moment, Nested, Runner
from phronomy._workers import Overran, ain_thread, aside_by_side, in_thread, side_by_side, within
from phronomy.approvals import Decision, call_digest
from phronomy.checkpoint import Checkpoint
from phronomy.errors import CheckpointError, LimitExceeded, ModelError, OutputError, RunFailed
from phronomy.instructions import InstructionsContext
from phronomy.models.base import DELTAS, Delta, Model, ModelReply, ModelRequest, ModelSettings, StreamingModel
from phronomy.output import InvalidOutput, told
from phronomy.tools import Tool, ToolContext
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
    Done,
    Fail,
    Finish,
    Finished,
    Interrupted,
    Judge,
    Judgement,
    Move,
    Next,
    Outcome,
    OutputRefused,
    ReadOutput,
    Replied,
    Run,
    Wait,
)

T = TypeVar("T")
Drive = Callable[[Runner], Generator[Moment]]
ADrive = Callable[[Runner], AsyncGenerator[Moment]]


def reaches_out(runner: Runner, move: Move) -> bool:
    """Whether the move touches anything outside, so that all before it must be stored first."""
    match move:
        case AskModel() | Consult() | Run() | Fail():
            return True
        case Judge(calls=calls):
            tools = [runner.spec.tool(call) for call in calls]
            return any(tool is not None and tool.gate == "predicate" for tool in tools)
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
    for call in move.calls:
        tool = runner.spec.tool(call)
        if tool is not None and (why := _rules.refusal(state, call, tool.identity(state.path))) is not None:
            raise _rules.refused(state, call, why)
    return [
        CallStarted(id=call.id, attempt=call.attempt + 1, at=at, key=_rules.idempotency_key(state, call))
        for call in move.calls
    ]


def perform(runner: Runner, move: Move, drive: Drive) -> Generator[Outcome | Asking | Delta]:
    """What comes of the move."""
    match move:
        case AskModel():
            return ask_model(runner)
        case Judge():
            return judge(runner, move.calls)
        case Consult():
            return consult(runner, move.calls)
        case Run():
            prepare_model(runner)
            return run_calls(runner, move.calls, drive)
        case ReadOutput():
            return read_output(runner, move)
        case Finish():
            return finish(move)
        case Fail():
            raise limit_reached(runner, move)
        case Wait() | Done():
            raise AssertionError("a run at rest has no move to perform")
        case unknown:
            assert_never(unknown)


def aperform(runner: Runner, move: Move, drive: ADrive) -> AsyncGenerator[Outcome | Asking | Delta]:
    """As `perform`."""
    match move:
        case AskModel():
            return aask_model(runner)
        case Judge():
            return ajudge(runner, move.calls)
        case Consult():
            return aconsult(runner, move.calls)
        case Run():
            prepare_model(runner)
            return arun_calls(runner, move.calls, drive)
        case ReadOutput():
            return aread_output(runner, move)
        case Finish():
            return afinish(move)
        case Fail():
            raise limit_reached(runner, move)
        case Wait() | Done():
            raise AssertionError("a run at rest has no move to perform")
        case unknown:
            assert_never(unknown)


# The model


def ask_model(runner: Runner) -> Generator[Outcome | Asking | Delta]:
    """Render the instructions from the original input, and ask the model. The pieces of a reply pass on if they are wanted."""
    system = runner.spec.instructions.render(runner.state.original_input, instructions_context(runner))
    model, request = request_of(runner, system)
    reply: Any = None
    yield Asking()
    started = time.monotonic()
    try:
        if runner.streams and isinstance(model, StreamingModel):
            with closing(model.stream(request)) as pieces:
                for piece in pieces:
                    if isinstance(piece, DELTAS):
                        paused = time.monotonic()
                        yield piece
                        started += time.monotonic() - paused  # whoever watches may be slow, which is not work
                    else:
                        reply = piece
        else:
            reply = model.complete(request)
    except RunFailed:
        raise
    except Exception as error:
        raise model_failed(model, error) from error
    yield replied(model, reply, started)


async def aask_model(runner: Runner) -> AsyncGenerator[Outcome | Asking | Delta]:
    """As `ask_model`."""
    system = await runner.spec.instructions.arender(runner.state.original_input, instructions_context(runner))
    model, request = request_of(runner, system)
    reply: Any = None
    yield Asking()
    started = time.monotonic()
    try:
        if runner.streams and isinstance(model, StreamingModel):
            async with aclosing(model.astream(request)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, DELTAS):
                        paused = time.monotonic()
                        yield piece
                        started += time.monotonic() - paused  # whoever watches may be slow, which is not work
                    else:
                        reply = piece
        else:
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
    settings = spec.settings
    if spec.output is not None and spec.output_mode == "schema":
        settings = ModelSettings(extra={"response_format": spec.output.request_format()}).merged(settings)
    elif spec.output is not None:
        system = "\n\n".join(part for part in (system, spec.output.paragraph()) if part)
    if spec.limits.seconds is not None:
        left = max(spec.limits.seconds - runner.state.elapsed / 1000, 0.001)
        settings = settings.evolve(timeout=min(settings.timeout or left, left))
    messages = runner.state.messages
    return spec.model, ModelRequest(system=system, messages=messages, tools=runner.definitions, settings=settings)


def prepare_model(runner: Runner) -> None:
    """Have the model load what it needs while the calls run, if it is certain that it will be asked after them."""
    prepare = getattr(runner.spec.model, "prepare", None)
    last = all(call.status in ("started", "settled") for call in runner.state.calls)
    if prepare is not None and last and not _rules.is_ending(runner.state):
        prepare()


def replied(model: Model, reply: Any, started: float) -> Replied:
    """The outcome of a model call."""
    if not isinstance(reply, ModelReply):
        raise ModelError(f"model {model.name} answered with {type(reply).__name__}, not with a ModelReply")
    return Replied(message=reply.message, usage=reply.usage, elapsed=since(started))


def model_failed(model: Model, error: Exception) -> ModelError:
    """The error for a model that raised something of its own."""
    return ModelError(f"model {model.name} raised {type(error).__name__}; resume the checkpoint to ask it again")


# Running


def run_calls(runner: Runner, calls: Sequence[Call], drive: Drive) -> Generator[Outcome]:
    """Run the calls: one in this thread, several side by side, each in a thread of its own."""
    if len(calls) == 1:
        yield execute(runner, calls[0].id, drive)
        return
    with closing(side_by_side([partial(execute, runner, call.id, drive) for call in calls])) as outcomes:
        for outcome in outcomes:  # noqa: UP028  # as in the async twin
            yield outcome


async def arun_calls(runner: Runner, calls: Sequence[Call], drive: ADrive) -> AsyncGenerator[Outcome]:
    """As `run_calls`, in tasks."""
    if len(calls) == 1:
        yield await aexecute(runner, calls[0].id, drive)
        return
    async with aclosing(aside_by_side([aexecute(runner, call.id, drive) for call in calls])) as outcomes:
        async for outcome in outcomes:
            yield outcome


def execute(runner: Runner, id: str, drive: Drive) -> Outcome:
    """Run one call. Whatever runs goes through here, and nothing gets past `admit` without a recorded approval."""
    call, tool = found(runner, id)
    if tool is None:
        return gone(call)
    context = admit(runner, call, tool)
    if (elsewhere := done_elsewhere(runner, call, tool, context)) is not None:
        return elsewhere
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
    return settled(call, context, tool.render(value), since(started))


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
    return min(tool.retry_wait * 2.0 ** min(call.attempt - 2, 60), 5.0)


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
    if call.stopped:
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
    result = CallResult(kind=state.ended, content=content)
    return CallSettled(
        id=call.id, call_id=call.call_id, key=key, result=result, elapsed=state.elapsed, usage=state.usage
    )


def interruption(state: Checkpoint, at: datetime) -> Interrupted:
    """The outcome for calls whose worker is gone: those that may not be repeated get an id to be asked about under."""
    started = [call for call in state.calls if call.status == "started" and not call.repeatable]
    return Interrupted(pending_ids={call.id: new_id("pend") for call in started}, at=at)


# The end


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
    )


def since(started: float) -> int:
    """The milliseconds since `started`, by the monotonic clock."""
    return round((time.monotonic() - started) * 1000)

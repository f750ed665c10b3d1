"""Performing one move: each kind of move has its function, and gives the outcomes of what it did.

The async functions are the sync ones with `async` and `await`; a test compares them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import assert_never

from phronomy.concurrency.pieces import Heard, Piece
from phronomy.conversation.output import InvalidOutput, told
from phronomy.engine.ask_model import (
    aask_model,
    ask_model,
    prepare_model,
)
from phronomy.engine.judging.decide import aconsult, consult
from phronomy.engine.judging.guard import aguard, guard
from phronomy.engine.judging.judge import ajudge, judge
from phronomy.engine.ledger import now
from phronomy.engine.nested import ADrive, Drive
from phronomy.engine.run import Asking, Runner
from phronomy.engine.run_tools import arun_calls, run_calls
from phronomy.engine.spec import Flow
from phronomy.engine.stop_points import after_nodes
from phronomy.engine.superfluous.calls import begin_all
from phronomy.engine.usage import limit_reached
from phronomy.errors import (
    NodeFailed,
)
from phronomy.foundation.json_text import JsonText
from phronomy.models.base import Delta
from phronomy.records.calls import Call, CallStarted, Finished, Outcome, OutputRefused, Returned
from phronomy.records.moves import (
    Advance,
    AskModel,
    Consult,
    Done,
    Fail,
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
from phronomy.rules import authorization


def reaches_out(runner: Runner, move: Move) -> bool:
    """Whether the move touches anything outside, so that all before it must be stored first."""
    match move:
        # The last two raise. Their error goes out with a checkpoint, and that must be in the store.
        case AskModel() | Consult() | Run() | Fail() | Stop():
            return True
        case Guard(stage=stage):
            return stage == "input"  # a reply is stored with what guardrails say of it
        case Advance():
            return flow_of(runner).advance(runner.state, runner.deps).acts
        case Judge(calls=calls):
            # A predicate and a guardrail of calls are code of users, and may take long, or look at a database. If the process dies
            # in them, the reply that they were asked about is in the store, and the model is not asked again.
            gates = {tool.gate for call in calls if (tool := runner.spec.tool(call)) is not None}
            return bool(runner.spec.tool_guardrails) or "predicate" in gates
        case Return():  # the result of the call is stored before guardrails, which may take long, look at it
            return bool(runner.spec.output_guardrails)
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
    # One time for all of them: they begin together, as the log has them in one write.
    at = now(runner.ledger.store)
    state = runner.state
    begin_all(runner, move.calls)
    intents: list[Outcome] = []
    for call in move.calls:
        tool = runner.tool(call)
        if tool is not None and (why := authorization.refusal(state, call, tool.identity(state.path))) is not None:
            raise authorization.refused(state, call, why)
        # The key is in the intent, so that a fork knows which calls were begun here, without the code that makes keys of another
        # release.
        key = authorization.idempotency_key(state, call)
        intents.append(CallStarted(id=call.id, attempt=call.attempt + 1, at=at, key=key))
    return intents


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
            # The calls may take a while, and the model is asked right after them: what it loads on its first call can be loaded
            # meanwhile.
            prepare_model(runner)
            return run_calls(runner, move.calls, drive)
        case Return() | ReadOutput():
            return make_output(runner, move)
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
        case Return() | ReadOutput():
            return amake_output(runner, move)
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


# The end


def flow_of(runner: Runner) -> Flow:
    """The flow of a graph's run, for rules that plan a move of nodes."""
    assert runner.spec.flow is not None, "the rules of an agent go on by asking its model"
    return runner.spec.flow


def advance(runner: Runner) -> Generator[Outcome]:
    """Go on from calls that have all settled."""
    flow, through = flow_of(runner), runner.state
    # Stops after nodes come behind the outcome: what the nodes gave is in the state, so somebody who looks there sees it.
    yield flow.advance(through, runner.deps).outcome(now(runner.ledger.store))
    if runner.breakpoints is not None:
        yield from after_nodes(runner, flow, through)


async def aadvance(runner: Runner) -> AsyncGenerator[Outcome]:
    """As `advance`."""
    flow, through = flow_of(runner), runner.state
    yield await flow.advance(through, runner.deps).aoutcome(now(runner.ledger.store))
    if runner.breakpoints is not None:
        for halted in after_nodes(runner, flow, through):
            yield halted


def returned(runner: Runner, call: Call) -> Returned:
    """The answer of the run, in the form in which the model would give it."""
    assert call.result is not None, "it has settled"
    value, text = call.result.answer, call.result.json_text("answer")
    if runner.spec.output is not None:
        text = runner.spec.output.written(JsonText(text))
    elif isinstance(value, str):
        text = value
    return Returned(id=call.id, text=str(text), guarded=bool(runner.spec.output_guardrails))


def make_output(runner: Runner, move: Return | ReadOutput) -> Generator[Outcome]:
    """Take the result of a call for the answer; or end the run with the output in the answer, or have the model told of its fault."""
    yield returned(runner, move.call) if isinstance(move, Return) else output_of(runner, move)


async def amake_output(runner: Runner, move: Return | ReadOutput) -> AsyncGenerator[Outcome]:
    """As `make_output`."""
    yield returned(runner, move.call) if isinstance(move, Return) else output_of(runner, move)


def output_of(runner: Runner, move: ReadOutput) -> Finished | OutputRefused:
    """The end of the run with the output in the reply, or the refusal of a reply that is not of the output type."""
    assert runner.spec.output is not None
    try:
        value = runner.spec.output.read(move.text)
        # An answer that could not be shown to guardrails would pass them unseen, so it counts as one of the wrong form, and the
        # model is asked again.
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


def stopped(runner: Runner, move: Stop) -> NodeFailed:
    """The error for a run in which calls failed for good."""
    run_id = runner.state.run_id
    failures: dict[str, str] = {}
    for call in move.calls:  # several may be of one name
        failures[call.name] = "; ".join(filter(None, (failures.get(call.name), call.reason)))
    told = "; ".join(f"{name} failed: {why}" for name, why in failures.items())
    error = NodeFailed(f"run {run_id}: {told}; resume the checkpoint to run it again", failures=failures)
    # The first that was raised in this process. After a crash there is none: what a call failed with is in the record as text, and
    # its traceback is gone.
    error.__cause__ = next((runner.raised[call.id] for call in move.calls if call.id in runner.raised), None)
    return error

"""Runs inside calls: driven where they stand, with what was decided higher up, until they end or wait."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import closing
from datetime import datetime
from typing import Any, Final

from phronomy.concurrency.aclosing import aclosing
from phronomy.concurrency.pieces import Inner, told_on
from phronomy.engine.judging.decide import asked_anew
from phronomy.engine.judging.edits import edited_by
from phronomy.engine.judging.votes import handed_on
from phronomy.engine.ledger import now
from phronomy.engine.run import Moment, Runner, Written
from phronomy.engine.shared import Shared
from phronomy.engine.spec import Nested, Spec
from phronomy.engine.usage import TIMEOUT, spent
from phronomy.errors import (
    CheckpointError,
    IllegalOutcome,
    InvalidDecision,
    LimitExceeded,
    NodeFailed,
    OutputError,
    RunFailed,
)
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import canonical, object_of
from phronomy.records.calls import (
    Call,
    CallFailed,
    CallResult,
    CallSettled,
    CallWaits,
    Decided,
    Interrupted,
    Outcome,
    path_inside,
)
from phronomy.records.chain import begin
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision
from phronomy.records.messages import Usage
from phronomy.tools.tool import Tool

Drive = Callable[[Runner], Generator[Moment]]
ADrive = Callable[[Runner], AsyncGenerator[Moment]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyRun:
    """The run that the calls of a body are. It is driven by the body, and not in its place."""

    spec: Spec
    is_body: bool = True

    def begin(self, parent: Checkpoint, path: str, at: datetime) -> Checkpoint:
        """Its first checkpoint. Nothing is called in it yet."""
        return begun(self.spec, parent, path, at, self.spec.first(None, None, None))


def run_nested(runner: Runner, call: Call, tool: Tool, nested: Nested, drive: Drive) -> Outcome:
    """Drive the run inside a call: its result, or what it waits for."""
    child: Runner | None = None
    try:
        child = child_of(runner, call, nested, tool)
        child.streams = runner.streams
        # What was decided higher up is given to it before it goes on. It is in its journal with its next write: from then on a
        # checkpoint of the inner run is complete by itself.
        hand_down(runner, child)
        with closing(drive(child)) as moments:
            for moment in moments:
                pass_on(runner.shared, child.state.path, moment)
    except RunFailed as error:
        # A limit of a run around it is no failure of the run inside. It goes up as it is, and a resume with a higher limit goes on
        # inside, where it stands.
        if is_of_above(error, child) or (tool.on_failure == "human" and not is_tried_again(call, tool, child, error)):
            raise
        return nested_failed(runner, call, tool, child, error)
    return nested_outcome(runner, call, tool, child)


async def arun_nested(runner: Runner, call: Call, tool: Tool, nested: Nested, drive: ADrive) -> Outcome:
    """As `run_nested`."""
    child: Runner | None = None
    try:
        child = child_of(runner, call, nested, tool)
        child.streams = runner.streams
        hand_down(runner, child)
        async with aclosing(drive(child)) as moments:
            async for moment in moments:
                pass_on(runner.shared, child.state.path, moment)
    except RunFailed as error:
        if is_of_above(error, child) or (tool.on_failure == "human" and not is_tried_again(call, tool, child, error)):
            raise
        return nested_failed(runner, call, tool, child, error)
    return nested_outcome(runner, call, tool, child)


def is_of_above(error: RunFailed, child: Runner | None) -> bool:
    """Whether the limit that was reached belongs to a run around the nested run.

    The nested run has then not failed, and continues from its last state.
    """
    return child is not None and isinstance(error, LimitExceeded) and _is_around(error.path, child.state.path)


def _is_around(path: str, of: str) -> bool:
    return path != of and (not path or of.startswith(f"{path}/"))


def is_tried_again(call: Call, tool: Tool, child: Runner | None, error: RunFailed) -> bool:
    """Whether a run inside that has failed goes on in another attempt. A limit of its own would be reached again at once."""
    over = isinstance(error, OutputError) or (isinstance(error, LimitExceeded) and error.limit != TIMEOUT)
    if call.attempt > tool.retries or over:
        return False
    return child is None or not _may_have_taken_effect(child.shared, child.state)


def _may_have_taken_effect(shared: Shared, state: Checkpoint) -> bool:
    """True if a failed call, in this run or inside it, must not run again by itself: the person who resumes the run decides."""
    for call in state.calls:
        if call.status == "failed" and not call.repeatable:
            return True
        inside = shared.nested.get(path_inside(state.path, call.id)) if call.result is None else None
        if inside is not None and _may_have_taken_effect(shared, inside):
            return True
    return False


def pass_on(shared: Shared, path: str, moment: Moment) -> None:
    """Tell the watchers what the run at a path yields. Its writes are in the list of heard moments already."""
    if shared.hear is not None:
        shared.hear(moment)
    if shared.heard is not None:
        if not isinstance(moment, Written):
            shared.heard.append(Inner(path, moment))
        told_on(shared)


def child_of(runner: Runner, call: Call, nested: Nested, tool: Tool | None = None) -> Runner:
    """The runner of the run inside a call, where it stopped or at its beginning."""
    path = runner.path_in(call.id)
    # A run that has stopped here is gone on with, and never begun again: what it has done, and what it has cost, is in its chain
    # (law 9).
    base = runner.shared.nested.get(path)
    again = runner.again.pop(call.id, None)
    if base is not None or again is not None:
        # One that failed in this process goes on with all that is known of it here, some of which may not be stored yet.
        if again is None:
            assert base is not None
            check_base(runner, nested.spec, base)
            again = Runner(nested.spec, runner.ledger, base, deps=runner.deps, within=runner)
        child = runner.shared.driven[path] = again
        child.work_within(tool, call)
        # Its worker was lost in the middle. The calls that it left are dealt with in this chain, as those of the root are when it
        # is opened.
        if child.is_broken:
            child.record(interruption(child))
        return child
    # The outer record says that a run has stopped in this call. If it is not there, somebody cut it out of the text. To begin it
    # afresh would run again what it has done.
    if call.stopped and (not nested.is_body or _has_called(runner, call, path)):
        raise CheckpointError(
            f"the run nested at {path} in run {runner.state.run_id} is missing; it is not started afresh"
        )
    begun = nested.begin(runner.state, path, now(runner.ledger.store))
    child = Runner(nested.spec, runner.ledger, begun, deps=runner.deps, fresh=True, within=runner)
    runner.shared.driven[path] = child
    child.work_within(tool, call)
    return child


def _has_called(runner: Runner, call: Call, path: str) -> bool:
    """True if the body of a call has called other tools, by the record of the call and its decisions."""
    decided = any(f"{each.path}/".startswith(f"{path}/") for each in runner.state.decisions)
    return decided or object_of(call.note).get("called") is True


def fits(runner: Runner, call: Call, nested: Nested) -> bool:
    """Whether the run that stopped inside a call is of the kind that is there now."""
    # A tool that was an agent may be a graph now. The chain of the one means nothing to the rules of the other.
    base = runner.shared.nested.get(path_inside(runner.state.path, call.id))
    if base is None and nested.is_body:
        return False
    return base is None or base.kind == nested.spec.kind


def check_base(runner: Runner, spec: Spec, base: Checkpoint) -> None:
    """Refuse to go on with what is no run of this spec, or of another run: a bearer may bring anything. Raises `CheckpointError`."""
    of = f"the run nested at {base.path} in run {runner.state.run_id}"
    # With a text that a bearer brings, a run may come along that was approved elsewhere, for something else.
    if base.run_id != runner.state.run_id:
        raise CheckpointError(f"{of} belongs to run {base.run_id}")
    if base.kind != spec.kind:
        raise CheckpointError(f"{of} is of the {base.kind} {base.agent.name!r}, which no {spec.kind} can go on with")


def begun(spec: Spec, parent: Checkpoint, path: str, at: datetime, first: Mapping[str, Any]) -> Checkpoint:
    """The first checkpoint of a run inside a call of `parent`, which its spec begins so. What is run anew is so inside as well."""
    run = begin(
        None,
        id=new_id("ckpt"),
        run_id=parent.run_id,
        branch_id=parent.branch_id,
        thread_id=parent.thread_id,
        at=at,
        agent=spec.ref,
        kind=spec.kind,
        path=path,
        **first,
    )
    # A fork that runs its calls anew has a salt. Without it the runs inside would have the keys of the old branch, and the provider
    # would do nothing.
    asked = {"requester": parent.requester, "requesters": parent.requesters, "known": parent.known}
    return run.evolve(salt=parent.salt, scopes=parent.scopes, **asked)


def hand_down(runner: Runner, child: Runner) -> None:
    """Give the child the decisions that were taken, higher up, on what it waits for."""
    # By pending id, which is new for each request: no decision on an earlier request of the same call comes here.
    waiting = {item.id for item in child.state.pending}
    known = {decision.pending_id for decision in child.state.decisions}
    for decision in runner.state.decisions:
        # An edit of the state concerns each graph on the way to the one that was edited, since each shows its part of it.
        inside = f"{decision.path}/".startswith(f"{child.state.path}/")
        if decision.kind == "edit" and inside and decision.pending_id not in known:
            child.record(Decided(decision=decision))
        elif decision.pending_id in waiting:
            call = next((call for call in child.state.calls if call.pending_id == decision.pending_id), None)
            taken = handed_on(child, Decided(decision=decision, edited=edited_by(child, decision, call)), call)
            try:
                child.record(taken)
            except IllegalOutcome:
                assert call is not None, "what waits deeper was looked at around it"
                child.record(asked_anew(child, call, InvalidDecision("it was not for what waits here")))


def nested_outcome(runner: Runner, call: Call, tool: Tool, child: Runner) -> Outcome:
    """The outcome of a call whose nested run has stopped or ended."""
    state = child.state
    # For whoever reads the result: the checkpoint of the root carries the runs inside it that have stopped.
    runner.shared.nested[state.path] = state
    # It waits, and its requests are listed at the call, in the order in which the inner run has them. Its cost so far is told too:
    # the limits of the outer run count it now, not when it ends.
    if state.ended is None:
        return CallWaits(id=call.id, pending=state.pending, usage=spent(runner.shared, state).usage)
    output = state.output
    # A model reads text, a channel of a graph holds a value. Text that looks like JSON stays text for the one, and keeps its quotes
    # for the other.
    exact = runner.spec.kind == "graph" and takes_value(child.spec)  # a model reads text, a graph JSON
    content = output if isinstance(output, str) and not exact else state.json_text("output")
    if state.ended == "completed" and getattr(tool, "keeps_input", False):
        content = canonical({"input": state.input, "output": content})
    # The outer model must not take the words of a cancelled run for an answer.
    if state.ended != "completed":
        content = f"The run behind this call was {state.ended}.{_why(state)}"
    result = CallResult(kind=state.ended, content=content)
    if state.ended == "completed" and runner.spec.kind != "graph":
        result = tool.render(content)  # as that of any tool, it is cut where it is too long for a model to read
        if call.return_direct:
            result = result.evolve(answer=state.__dict__["output"])
    # A human who rejected something inside, and ended all by it, has ended this run as well. A guardrail that refused has ended the
    # inner run alone.
    refused = state.ended == "rejected" and runner.shared.ended_by is not None
    return CallSettled(
        id=call.id,
        call_id=call.call_id,
        result=result,
        elapsed=state.elapsed,
        usage=state.usage,
        then="end" if refused else "continue",
        refusals=refused_in(runner, child),
    )


def refused_in(runner: Runner, child: Runner) -> tuple[Decision, ...]:
    """The decisions of a nested run, by its handlers, that block calls or tools in all of the run: they outlast its record."""
    known = {decision.pending_id for decision in runner.state.decisions}
    blocking = (each for each in child.state.decisions if each.blocks is not None and not each.to_check)
    return tuple([each for each in blocking if each.pending_id not in known])


def takes_value(spec: Spec) -> bool:
    """Whether the runs of a graph are given a plain value, and give one: those of a pattern, and of a team."""
    given: bool = getattr(spec, "takes_value", False)
    return given


def _why(state: Checkpoint) -> str:
    """The reason why a run was ended from outside, if somebody gave one.

    The calling run must not try the same in vain.
    """
    if state.refusal is not None:
        return f" A guardrail refused its {_REFUSED[state.refusal.stage]}. {state.refusal.message}"
    if state.ending is not None:
        return f" Reason: {state.ending.reason}" if state.ending.reason else ""
    ends = [each for each in state.decisions if each.kind == "reject" and each.path == state.path and each.reason]
    return f" Reason: {ends[-1].reason}" if state.ended == "rejected" and ends else ""


_REFUSED: Final = {"input": "input", "output": "answer", "tool": "call of a tool"}


def interruption(runner: Runner) -> Interrupted:
    """The outcome for calls whose worker is gone: those that may not be repeated get an id to be asked about under."""
    started = [call for call in runner.state.calls if call.status == "started"]
    nested = runner.shared.nested
    # A run inside such a call knows what it has used, also where its worker died. The limits count it.
    inside = {call.id: nested[path] for call in started if (path := runner.path_in(call.id)) in nested}
    return Interrupted(
        pending_ids={call.id: new_id("pend") for call in started if not call.repeatable},
        at=now(runner.ledger.store),
        usages={id: spent(runner.shared, state).usage for id, state in inside.items()},
    )


def nested_failed(
    runner: Runner, call: Call, tool: Tool, child: Runner | None, error: RunFailed
) -> CallFailed | CallSettled:
    """The outcome of a call whose nested run has failed.

    Unless the model is told, a resume continues inside the nested run.
    """
    if child is not None:
        # As it is stored, not as it is known here: the error is told with a checkpoint, and that must be one that the store has.
        runner.shared.nested[child.state.path] = child.stored
    told = f"{type(error).__name__}: {error}"
    if isinstance(error, NodeFailed):
        within = "{} in it failed: {}" if child is not None else "{1}"
        told = "; ".join(within.format(*failure) for failure in error.failures.items())
    usage, elapsed = spent(runner.shared, child.state) if child is not None else (Usage(), 0)
    known: dict[str, Any] = {"inside": child is not None and not child.fresh, "usage": usage, "worked": elapsed}
    if is_tried_again(call, tool, child, error):
        if child is not None:
            runner.again[call.id] = child
        return CallFailed(id=call.id, error=told, next="retry", **known)
    runner.raised[call.id] = error
    # The failure stops the outer run too, and is resumed inside. So the call says that it has stopped, or a resume would begin it
    # afresh.
    if tool.on_failure != "model":
        return CallFailed(id=call.id, error=told, next="stop", **known)
    if child is None:
        return CallFailed(id=call.id, error=told, next="model")
    result = CallResult(kind="failed", content=told)
    # It is over, and what it cost counts.
    refusals = refused_in(runner, child)
    return CallSettled(id=call.id, call_id=call.call_id, result=result, elapsed=elapsed, usage=usage, refusals=refusals)

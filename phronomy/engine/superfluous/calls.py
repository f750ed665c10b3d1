"""Calls that others may make superfluous: those of a pattern's wave, and what is inside them. Each is left, or waited for."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from phronomy.concurrency.leaving import Leave, Left
from phronomy.concurrency.superfluous import UNNEEDED
from phronomy.concurrency.workers import in_thread, within
from phronomy.engine.nested import ADrive, Drive, arun_nested, run_nested
from phronomy.engine.run import Runner
from phronomy.engine.spec import Nested, inside_of
from phronomy.engine.stop_points import pattern_of
from phronomy.engine.usage import spent
from phronomy.foundation.lazy_modules import asyncio
from phronomy.records.calls import Call, CallResult, CallSettled, Outcome, place_of
from phronomy.records.messages import Usage
from phronomy.rules import authorization
from phronomy.tools.tool import Tool


def found(runner: Runner, id: str) -> tuple[Call, Tool | None]:
    """The call as it stands in the state, and its tool; None where there is none, or none for a run of these scopes."""
    # One look at the state: as calls end in other threads, new states come, in which another call may have this place.
    calls = runner.state.calls
    place = place_of(calls, id)
    assert place is not None, "what runs is a call of the run"
    return calls[place], runner.tool(calls[place])


def may_be_over(runner: Runner) -> bool:
    """Whether one call that is under way may make others superfluous."""
    return pattern_of(runner.spec) is not None and sum(call.status == "started" for call in runner.state.calls) > 1


def is_asked(runner: Runner) -> bool:
    """Whether calls of this run are to be asked for before they begin: they may have become superfluous."""
    return runner.shared.wanted.asked or pattern_of(runner.spec) is not None


def at_work(runner: Runner, id: str) -> AbstractContextManager[bool]:
    """While a call is under way; False if it is not to begin.

    What is inside a call whose worker was lost in the middle begins, wanted or not, and nobody leaves it: it is to ask what became of
    whatever was under way, and ends there if it is not wanted.
    """
    call, _ = found(runner, id)
    inside = inside_of(runner.spec, runner.state, call) is not None
    # Something here needs a human in any case. It is not superfluous, whatever the others have come to.
    if not runner.may_end:
        return nullcontext(True)
    # The worker before was lost inside it. It goes on, so that it can ask what became of what was under way; `note` has it end
    # there.
    if inside and call.attempt > 1:
        if (flow := runner.spec.flow) is not None and (why := flow.over(runner.state).get(id)) is not None:
            runner.shared.wanted.note(runner.path_in(id), why)
        return nullcontext(True)
    may_be_left = is_left(runner, call) and may_be_over(runner)
    also = None if inside else runner.shared.leave
    return runner.shared.wanted.at_work(runner.path_in(id), may_be_left=may_be_left, also=also)


def is_left(runner: Runner, call: Call) -> bool:
    """Whether a call may be left in the middle: what is inside it goes on when it is resumed, and a tool that may run again does."""
    if inside_of(runner.spec, runner.state, call) is not None:
        return True
    tool = runner.spec.tool(call)
    return tool is not None and tool.may_be_left and call.repeatable


def begin_all(runner: Runner, calls: Sequence[Call]) -> None:
    """Take note that these calls are about to begin. Raises `Left` if nobody waits for the run any more."""
    if not (is_asked(runner) or runner.shared.wanted.why_not(runner.state.path)) or not runner.may_end:
        return
    # Those in the middle of a tool are waited for. They are named before their intents are stored, so that nobody dismisses them in
    # between, and takes them for not begun.
    waited = [runner.path_in(call.id) for call in calls if not is_left(runner, call)]
    if not runner.shared.wanted.begin(runner.state.path, waited):
        raise Left


def leave_of(runner: Runner, call: Call) -> Leave:
    """What says that a body which may be left is left."""
    return runner.shared.wanted.leave(runner.path_in(call.id)) or runner.shared.leave


def run_apart(runner: Runner, call: Call, tool: Tool, nested: Nested, drive: Drive) -> Outcome:
    """As `run_nested`; apart, where it may be left."""
    leave = runner.shared.wanted.leave(runner.path_in(call.id))
    try:
        if leave is None:
            return run_nested(runner, call, tool, nested, drive)
        return in_thread(partial(run_nested, runner, call, tool, nested, drive), None, leave)
    # It is over, but not without a trace: it is settled as cancelled, with what it has cost.
    except Left:
        return left_inside(runner, call)


async def arun_apart(runner: Runner, call: Call, tool: Tool, nested: Nested, drive: ADrive) -> Outcome:
    """As `run_apart`; what is left is cancelled, and gone when this returns."""
    leave = runner.shared.wanted.leave(runner.path_in(call.id))
    try:
        if leave is None:
            return await arun_nested(runner, call, tool, nested, drive)
        return await until_gone(arun_nested(runner, call, tool, nested, drive), leave)
    except Left:
        return left_inside(runner, call)


async def until_gone(work: Coroutine[Any, Any, Outcome], leave: Leave) -> Outcome:
    """What the work gives; if it is left, it is cancelled, and `Left` is raised once it is gone."""
    task = asyncio.ensure_future(work)
    try:
        return await within(task, None, leave)
    except Left:
        await asyncio.wait({task})
        raise


def left_inside(runner: Runner, call: Call) -> CallSettled:
    """The outcome of a run that was left: it is over, and what it cost so far counts."""
    path = runner.path_in(call.id)
    inside = runner.shared.driven.get(path)
    usage = spent(runner.shared, inside.stored).usage if inside is not None else Usage()
    result = CallResult(kind="cancelled", content=f"{UNNEEDED}{runner.shared.wanted.why_not(path)}.")
    return CallSettled(
        id=call.id,
        call_id=call.call_id,
        key=authorization.idempotency_key(runner.state, call),
        result=result,
        usage=usage,
    )

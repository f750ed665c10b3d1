"""Calls that others may make superfluous: those of a pattern's wave, and what is inside them. Each is left, or waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from phronomy._gate import idempotency_key
from phronomy._leave import Leave, Left
from phronomy._nested import ADrive, Drive, arun_nested, run_nested
from phronomy._runner import Nested, Runner
from phronomy._stops import pattern_of
from phronomy._workers import in_thread, within
from phronomy.messages import Usage
from phronomy.tools import Tool
from phronomy.types import Call, CallResult, CallSettled, Outcome


def path_in(runner: Runner, id: str) -> str:
    """The path of what is inside a call."""
    return f"{runner.state.path}/{id}".lstrip("/")


def may_be_over(runner: Runner) -> bool:
    """Whether one call that is under way may make others superfluous."""
    return pattern_of(runner.spec) is not None and sum(call.status == "started" for call in runner.state.calls) > 1


def is_asked(runner: Runner) -> bool:
    """Whether calls of this run are to be asked for before they begin: they may have become superfluous."""
    return runner.ledger.wanted.asked or pattern_of(runner.spec) is not None


def at_work(runner: Runner, id: str) -> AbstractContextManager[bool]:
    """While a call is under way: a tool that may have an effect is waited for."""
    call = next(call for call in runner.state.calls if call.id == id)
    tool = runner.spec.tool(call)
    inside = tool is not None and runner.spec.nested(runner.state, call) is not None
    left = inside or (tool is not None and tool.may_be_left and call.repeatable)
    return runner.ledger.wanted.at_work(
        path_in(runner, call.id),
        waits=not left,
        may_be_left=left and may_be_over(runner),
        also=None if inside else runner.ledger.leave,
    )


def dismissed(runner: Runner, id: str) -> None:
    """Tell the run inside a call that it is superfluous: it goes on to what its lost worker has left in the middle, and ends there."""
    if (why := runner.spec.over(runner.state).get(id)) is not None:
        runner.ledger.wanted.note(path_in(runner, id), why)


def leave_of(runner: Runner, call: Call) -> Leave:
    """What says that a body which may be left is left."""
    return runner.ledger.wanted.leave(path_in(runner, call.id)) or runner.ledger.leave


def run_apart(runner: Runner, call: Call, tool: Tool, nested: Nested, drive: Drive) -> Outcome:
    """As `run_nested`; apart, where it may be left."""
    leave = runner.ledger.wanted.leave(path_in(runner, call.id))
    if leave is None:
        return run_nested(runner, call, tool, nested, drive)
    try:
        return in_thread(partial(run_nested, runner, call, tool, nested, drive), None, leave)
    except Left:
        return left_inside(runner, call)


async def arun_apart(runner: Runner, call: Call, tool: Tool, nested: Nested, drive: ADrive) -> Outcome:
    """As `run_apart`; what is left is cancelled, and gone when this returns."""
    leave = runner.ledger.wanted.leave(path_in(runner, call.id))
    if leave is None:
        return await arun_nested(runner, call, tool, nested, drive)
    try:
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
    path = path_in(runner, call.id)
    inside = runner.ledger.driven.get(path)
    usage = inside.stored.usage if inside is not None else Usage()
    result = CallResult(kind="cancelled", content=runner.ledger.wanted.why_not(path) or "")
    return CallSettled(
        id=call.id, call_id=call.call_id, key=idempotency_key(runner.state, call), result=result, usage=usage
    )

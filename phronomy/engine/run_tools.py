"""Running the calls of a move, one by one or side by side. The gate is in `execute` and `aexecute`, and nowhere else.

The async functions are the sync ones with `async` and `await`; a test compares them. What waits for nothing has no twin.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from phronomy.concurrency.aclosing import aclosing
from phronomy.concurrency.crew import ACrew, Crew, aside_by_side, side_by_side
from phronomy.concurrency.leaving import Left, Overran
from phronomy.concurrency.pieces import Heard, Piece, Piecewise, feeding
from phronomy.concurrency.retries import backoff
from phronomy.concurrency.workers import NEVER, ain_thread, in_place, in_thread, within
from phronomy.engine import clock
from phronomy.engine.body_calls import BodyCalls
from phronomy.engine.judging.brief import tool_context
from phronomy.engine.ledger import now
from phronomy.engine.nested import ADrive, BodyRun, Drive
from phronomy.engine.run import Runner
from phronomy.engine.spec import inside_of
from phronomy.engine.superfluous.calls import arun_apart, at_work, found, is_asked, leave_of, run_apart
from phronomy.foundation.ids import new_id
from phronomy.foundation.lazy_modules import asyncio
from phronomy.records.calls import (
    Call,
    CallFailed,
    CallSettled,
    CallUnknown,
    CallWaits,
    Next,
    Outcome,
    Withdrawn,
)
from phronomy.records.decisions import PendingApproval, call_digest
from phronomy.records.record import deadline, later
from phronomy.rules import authorization
from phronomy.stops.interrupts import Asked, Interrupt, asking
from phronomy.tools.context import OutcomeUnknown, ToolContext
from phronomy.tools.tool import Tool


def run_calls(runner: Runner, calls: Sequence[Call], drive: Drive) -> Generator[Outcome | Piece | Heard]:
    """Run the calls: one in this thread, several side by side, each in a thread of its own. Pieces pass on if they are wanted."""
    # Most runs have one call at a time. It runs in the thread of the caller: a debugger, a lock that is held, a context variable
    # are as the caller has them.
    owner, run = listened_to(runner, calls), attempt if is_asked(runner) else execute
    crew = runner.crew
    if len(calls) == 1 and owner is None and (crew is None or not crew.is_busy):
        alone = run(runner, calls[0].id, drive)
        runner.untouched = ()
        yield alone
        return
    # Each is entered in a thread, whenever that likes. One that was not handed to a thread yet is entered by nobody.
    work = (partial(run, runner, id, drive) for id in handed_over(runner, calls))
    if is_eager(runner):
        crew = runner.crew = runner.crew or Crew()
        crew.begin(work, owner)
        while isinstance(outcome := crew.next(), Piece | Heard):
            if runner.streams:
                yield outcome
        yield outcome
        return  # others run on, and more may begin
    with closing(side_by_side(work, owner)) as outcomes:
        for outcome in outcomes:
            # The outcomes count whether anybody watches or not. Once a stream is closed, `events_of` goes on to the next outcome of
            # a call, and a piece would stop it short of that.
            if runner.streams or not isinstance(outcome, Piece | Heard):
                yield outcome


async def arun_calls(runner: Runner, calls: Sequence[Call], drive: ADrive) -> AsyncGenerator[Outcome | Piece | Heard]:
    """As `run_calls`, in tasks."""
    owner, run = listened_to(runner, calls), aattempt if is_asked(runner) else aexecute
    crew = runner.acrew
    if len(calls) == 1 and owner is None and (crew is None or not crew.is_busy):
        alone = await run(runner, calls[0].id, drive)
        runner.untouched = ()
        yield alone
        return
    work = (run(runner, id, drive) for id in handed_over(runner, calls))
    if is_eager(runner):
        crew = runner.acrew = runner.acrew or ACrew()
        crew.begin(work, owner)
        while isinstance(outcome := await crew.next(), Piece | Heard):
            if runner.streams:
                yield outcome
        yield outcome
        return  # others run on, and more may begin
    async with aclosing(aside_by_side(work, owner)) as outcomes:
        async for outcome in outcomes:
            if runner.streams or not isinstance(outcome, Piece | Heard):
                yield outcome


def handed_over(runner: Runner, calls: Sequence[Call]) -> Iterator[str]:
    """The ids of the calls, each at the moment when it is handed to whoever runs it."""
    for call in calls:
        runner.enters(call.id)
        yield call.id
    runner.untouched = ()


def is_eager(runner: Runner) -> bool:
    """Whether more calls may begin while some of a move run."""
    return runner.spec.flow is not None and runner.spec.flow.is_eager


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
    if not (runner.streams and runner.root):
        return None
    tools = [runner.spec.tool(call) for call in calls]
    gives = any(isinstance(tool, Piecewise) and tool.gives_pieces for tool in tools)
    return runner.shared if gives else None


def execute(runner: Runner, id: str, drive: Drive) -> Outcome:
    """Run one call. Whatever runs goes through here, and nothing gets past `admit` without a recorded approval."""
    # The call is read from the state, and not handed in: what was planned may be a moment old, and the state is what the record
    # says now.
    call, tool = found(runner, id)
    if tool is None:
        return gone(call)
    context = admit(runner, call, tool)
    # Behind the gate: a result that is taken over from another branch counts as a run of the call, and needs the same approval.
    if (elsewhere := done_elsewhere(runner, call, tool, context)) is not None:
        return elsewhere
    nested = inside_of(runner.spec, runner.state, call)
    # A first attempt never waits. The wait is before the lease is looked at, since it may be longer than what is left of it.
    if call.attempt > 1 and (nested is None or tool.retries):
        time.sleep(backoff(tool.retry_wait, call.attempt - 1))
    if nested is not None:
        runner.enters(id)
        return run_apart(runner, call, tool, nested, drive)
    # The last check before the body. All checks above were true when they were made; a process may have been frozen since, and
    # another worker may have taken the run for lost and asked a human about this very call (law 5).
    runner.ledger.ensure_held()
    calls = calls_of(runner, call, tool, drive)
    context = context if calls is None else replace(context, _calls=calls)
    started = clock.monotonic()
    try:
        # Inside the try: what validation makes of the text is code of users too, and may raise what it did not raise when the call
        # was judged.
        values = tool.bind(call.json_text("args"))
        work = partial(tool.call, values, context)
        leave = leave_of(runner, call) if tool.may_be_left else NEVER
        around = runner.shared.around(runner.state.path, call.call_id)
        with feeding(runner.shared, runner.state.path, call), around, asking(runner.state, call, runner.gates):
            # Only what must be left in the middle gets a thread of its own. A thread cannot be stopped, so each of them may stay
            # behind.
            inline = tool.timeout is None and not tool.may_be_left
            # Up to here whoever leaves takes the intent back: nobody has to be asked what became of a call that was not entered.
            runner.enters(id)
            value = work() if inline else in_thread(work, tool.timeout, leave)
    # No `Exception`, so that `except Exception` in a body does not swallow it. A body that caught it all the same is found out by
    # `asking`.
    except Interrupt as asked:
        outcome: Outcome = asks(runner, call, tool, asked, clock.since(started))
    except Exception as error:
        outcome = failed(runner, call, tool, context, error, clock.since(started))
    else:
        outcome = settled(runner, call, tool, value, clock.since(started))
    return outcome if calls is None else calls.conclude(outcome)


async def aexecute(runner: Runner, id: str, drive: ADrive) -> Outcome:
    """As `execute`."""
    call, tool = found(runner, id)
    if tool is None:
        return gone(call)
    context = admit(runner, call, tool)
    if (elsewhere := done_elsewhere(runner, call, tool, context)) is not None:
        return elsewhere
    nested = inside_of(runner.spec, runner.state, call)
    if call.attempt > 1 and (nested is None or tool.retries):
        await asyncio.sleep(backoff(tool.retry_wait, call.attempt - 1))
    if nested is not None:
        runner.enters(id)
        return await arun_apart(runner, call, tool, nested, drive)
    await runner.ledger.aensure_held()
    calls = calls_of(runner, call, tool, drive)
    context = context if calls is None else replace(context, _calls=calls)
    started = clock.monotonic()
    try:
        values = tool.bind(call.json_text("args"))
        work = partial(tool.call, values, context)
        leave = leave_of(runner, call) if tool.may_be_left else NEVER
        around = runner.shared.around(runner.state.path, call.call_id)
        with feeding(runner.shared, runner.state.path, call), around, asking(runner.state, call, runner.gates):
            inline = tool.timeout is None and not tool.may_be_left
            runner.enters(id)
            if not tool.is_async:
                value = await ain_thread(work, tool.timeout, leave)
            elif calls is not None:
                value = await within(tool.acall(values, context), None, leaving=calls.leave)
            elif inline:
                value = await in_place(tool.acall(values, context))
            else:
                value = await within(tool.acall(values, context), tool.timeout, leave)
    except Interrupt as asked:
        outcome: Outcome = asks(runner, call, tool, asked, clock.since(started))
    except Exception as error:
        outcome = failed(runner, call, tool, context, error, clock.since(started))
    else:
        outcome = settled(runner, call, tool, value, clock.since(started))
    return outcome if calls is None else await calls.aconclude(outcome)


def calls_of(runner: Runner, call: Call, tool: Tool, drive: Any) -> BodyCalls | None:
    """The maker of the calls of this body; None if its tool declares none."""
    inside = runner.spec.nested(runner.state, call) if tool.calls else None
    return BodyCalls(runner, call, tool, inside, drive) if isinstance(inside, BodyRun) else None


def admit(runner: Runner, call: Call, tool: Tool) -> ToolContext[object]:
    """The context for the call, if the gate lets it run. Raises `NotAuthorized`."""
    # A body runs only with a context that this returned. Whoever adds a new way in comes by here, or has to make a context without
    # asking.
    authorization.authorize(runner.state, call, tool.identity(runner.state.path))
    return tool_context(runner, call, tool)


def gone(call: Call) -> CallFailed:
    """The outcome of a call whose tool the agent no longer has, where the caller accepted that."""
    return CallFailed(
        id=call.id, error=f"There is no tool named {call.name[:80]!r} any more. Nothing was run.", next="model"
    )


def done_elsewhere(
    runner: Runner, call: Call, tool: Tool, context: ToolContext[object]
) -> CallSettled | CallUnknown | None:
    """What became of the same call in another branch of the run, if this is a fork: its result, or that nobody knows it.

    A run inside the call that has stopped in this branch has decisions of its own, and goes on.
    """
    # Its inner run has stopped in this branch. What another branch came to is of other decisions.
    if call.stopped:
        return None
    key = context.idempotency_key
    # The key covers the place, the arguments and, in a graph, the state: it is the same only for the same call (law 4).
    result = runner.shared.reusable.get(key)
    if result is not None:
        return CallSettled(id=call.id, call_id=call.call_id, key=key, result=result, reused=True)
    # It has not come to an end there, as far as the log says. Whoever was told that nobody knows, and lets it run all the same, is
    # not asked twice.
    if key in runner.shared.begun and not call.repeatable and call.why != "outcome_unknown":
        reason = f"{tool.name} was begun in another branch of the run, and nobody knows whether it took effect."
        at = now(runner.ledger.store)
        return CallUnknown(id=call.id, reason=reason, pending_id=new_id("pend"), requested_at=at)
    return None


def settled(runner: Runner, call: Call, tool: Tool, value: object, elapsed: int) -> CallSettled:
    """The outcome of a call that ran."""
    result = tool.render(value)
    if call.return_direct:
        result = tool.with_answer(result, value, exact=runner.spec.output is not None)
    return CallSettled(id=call.id, call_id=call.call_id, result=result, elapsed=elapsed)


def failed(
    runner: Runner, call: Call, tool: Tool, context: ToolContext[object], error: Exception, elapsed: int
) -> CallFailed | CallUnknown | Withdrawn:
    """The outcome of an attempt that raised: tried again where that is safe, then the fallback, then as the tool chose."""
    # The thread goes on, whatever is written here. A body that looks at `context.cancelled` learns that nobody waits for it.
    if isinstance(error, (Overran, Left)):
        context._cancel.set()
    if isinstance(error, Left):
        return left(runner, call, tool, elapsed)
    # It did not say that it failed. It has said nothing, or that it does not know itself, so neither a retry nor the fallback may
    # follow.
    if isinstance(error, Overran | OutcomeUnknown) and not tool.idempotent:
        reason = f"{tool.name} did not end within {tool.timeout} s. It may have taken effect, or may yet."
        if isinstance(error, OutcomeUnknown):
            reason = tool.describe_error(error, call.args or {})
        at = now(runner.ledger.store)
        return CallUnknown(id=call.id, reason=reason, elapsed=elapsed, pending_id=new_id("pend"), requested_at=at)
    following: Next = "model"
    fallback = runner.tool(call.evolve(fallback=call.fallback + 1))
    # A tool that is not idempotent is tried again only for the errors that it names: it says by that they come before any effect.
    if call.attempt <= tool.retries and (tool.idempotent or isinstance(error, tool.retry_on)):
        following = "retry"
    elif fallback is not None:
        following = "fallback"
    elif tool.on_failure != "model":
        following = tool.on_failure
        # The error itself cannot be stored. It is the cause of the one that this drive ends with, so that a traceback shows where
        # it came from.
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
    # Somebody stopped the run, and its grace is over. If the call may be made twice, the attempt is taken back; else a human is
    # asked what became of it.
    if call.repeatable:
        return Withdrawn(ids=(call.id,), reason="The run was stopped while this ran.")
    reason = f"The run was stopped while {tool.name} ran. It may have taken effect, or may yet."
    at = now(runner.ledger.store)
    return CallUnknown(id=call.id, reason=reason, elapsed=elapsed, pending_id=new_id("pend"), requested_at=at)


def asks(runner: Runner, call: Call, tool: Tool, asked: Interrupt, elapsed: int) -> CallWaits:
    """The outcome of a body that asks something: the same question has the same id, however often it is asked."""
    note: Any = asked.note
    at = now(runner.ledger.store)
    items = tuple(request_of(runner, call, tool, each, at) for each in asked.asked)
    return CallWaits(id=call.id, pending=items, elapsed=elapsed, note=note)


def request_of(runner: Runner, call: Call, tool: Tool, asked: Asked, at: datetime) -> PendingApproval:
    """The request for what a body asks at this time."""
    state, trigger = runner.state, asked.trigger
    identity = tool.identity(state.path)
    args: Any = asked.args
    timeout, on_expiry = runner.spec.expiry(tool)
    if trigger is not None and asked.after is not None:
        trigger = trigger.evolve(due_at=later(at, seconds=asked.after))
    # It is listed as any other request, so a question is decided where approvals are, and by the same rules: an id, a digest of
    # what was shown, a deadline.
    item = PendingApproval(
        # The id follows from the place and the key of the question. The body is run again from its first line when the answer is
        # there, and must find the answer to the same question.
        id=asked.id,
        call_id=call.call_id,
        tool=identity,
        args=args,
        digest=call_digest(identity, args),
        path=state.path,
        agent=state.speaker,
        requester=state.requester,
        why="question",
        requested_at=at,
        expires_at=deadline(at, timeout),
        on_expiry=on_expiry,
        title=asked.title,
        trigger=trigger,
    )
    if item.asks_human:
        return item
    # A human may give it up. That nobody decides in time says nothing of what happens outside.
    return item.evolve(answers=("reject",), expires_at=None)

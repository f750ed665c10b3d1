"""Waiting at a breakpoint with the run in hand. The async function is the sync one with `async` and `await`; a test compares them."""

from __future__ import annotations

import inspect
import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from phronomy.concurrency.workers import apause, in_either, pause
from phronomy.engine.judging.decide import adecide, decide
from phronomy.engine.ledger import now
from phronomy.engine.run import Runner
from phronomy.engine.stop_points import hits_in, passing
from phronomy.errors import AsyncRequired, ConfigurationError, InvalidDecision
from phronomy.foundation.checks import close_unawaited, is_async
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.lazy_modules import asyncio
from phronomy.observability.announcements import aannounce, announce
from phronomy.records.calls import Decided, Outcome
from phronomy.records.decisions import PAST, Answer, Approve, PendingApproval, Reject, Respond, Skip
from phronomy.runs.finding import lookup
from phronomy.stops.breakpoints import BreakpointHit, Hold

_log = logging.getLogger("phronomy")

# An answer from another thread of this process is judged by the same guardrails as the call: the one who waits here has armed them.
_SAME = ("deps", "input_guardrails", "output_guardrails", "tool_guardrails")
"""The options of a call that decisions on its run are judged by."""

# A database tells nobody that it has changed. One look a second is cheap, and no human notices the difference.
POLL = 1.0
"""Seconds. How often whoever waits looks for what another process said; what is said in this one is heard at once."""


@dataclass(frozen=True)
class Caller:
    """Takes answers for a call that waits, as the agent or graph does, with the deps and guardrails of the call."""

    owner: Any
    given: Mapping[str, Any] = field(repr=False)

    def resume(self, at: str, **options: Any) -> Any:
        """Decide, with what the call was given."""
        return self.owner.resume(at, **self.given, **options)

    async def aresume(self, at: str, **options: Any) -> Any:
        """As `resume`."""
        return await self.owner.aresume(at, **self.given, **options)

    def cancel(self, run: str, **options: Any) -> Any:
        """End the run."""
        return self.owner.cancel(run, **options)

    async def acancel(self, run: str, **options: Any) -> Any:
        """As `cancel`."""
        return await self.owner.acancel(run, **options)


@dataclass(frozen=True)
class Waiting:
    """One call's hold, and the agent or graph whose run it is.

    `given` are the deps and guardrails of the call: what is said of it elsewhere is judged by the same. `asked` are the stops that the
    handler was asked about, `since` says from when on each is waited for, by the monotonic clock.
    """

    hold: Hold
    owner: Any
    given: Mapping[str, Any] = field(default_factory=dict, repr=False)
    asked: set[str] = field(default_factory=set)
    since: dict[str, float] = field(default_factory=dict)

    def holds(self, runner: Runner) -> bool:
        """Whether the call waits here: the run stands at a breakpoint."""
        return bool(at_breakpoints(runner))

    def note(self, runner: Runner) -> None:
        """Take note of what is stored: stops that can be answered from here on, and those that were."""
        self._settle(runner)
        # By the last checkpoint: a stop that is not in the store yet must not be shown to anybody who could answer it (law 8).
        known = {item.id for item in runner.base.pending if is_held(item)}
        if known:
            hits = hits_in(lookup.all_runners(runner))
            self.hold._arrived([hit for hit in hits if hit.id in known], Caller(self.owner, self.given))

    def stay(self, runner: Runner) -> Sequence[Outcome]:
        """Wait until there is something to go on with: what was said here. What others said is in the ledger's inbox."""
        said: list[Outcome] = []
        if runner.spec.announcements:
            announce(runner.ledger.store, runner.ledger.branch.id, runner.spec.announcements)
        # The handler is asked before anybody waits: most of them know their answer. Each stop is put to it once, however often the
        # loop comes by.
        for hit in self._arrived(runner):
            if (answer := self._ask(hit)) is not None:
                said += self._answered(runner, hit.id, answer, "breakpoint")
        # From when each stop was first waited for, and not from now: an answer to one of several must not give the others more
        # time.
        until = self._until(runner)
        with runner.ledger.listening(threading.Event()) as heard:
            while not said:
                # First the log, then the event: an answer from another process must not be overtaken by a resume_event that was set
                # before it.
                runner.ledger.catch_up()
                if runner.ledger.inbox:
                    break
                if self._is_set():
                    for item in at_breakpoints(runner):
                        said += self._answered(runner, item.id, Approve(), "resume_event")
                said += [] if said else self._too_late(runner, until)
                if not said:
                    pause(heard, self.hold.resume_event, min(POLL, until - time.monotonic()))
        return said

    async def astay(self, runner: Runner) -> Sequence[Outcome]:
        """As `stay`."""
        said: list[Outcome] = []
        if runner.spec.announcements:
            await aannounce(runner.ledger.store, runner.ledger.branch.id, runner.spec.announcements)
        for hit in self._arrived(runner):
            if (answer := await self._aask(hit)) is not None:
                said += await self._aanswered(runner, hit.id, answer, "breakpoint")
        until = self._until(runner)
        with runner.ledger.listening(asyncio.Event()) as heard:
            while not said:
                await runner.ledger.acatch_up()
                if runner.ledger.inbox:
                    break
                if self._is_set():
                    for item in at_breakpoints(runner):
                        said += await self._aanswered(runner, item.id, Approve(), "resume_event")
                said += [] if said else self._too_late(runner, until)
                if not said:
                    await apause(heard, self.hold.resume_event, min(POLL, until - time.monotonic()))
        return said

    def _answered(self, runner: Runner, id: str, answer: Answer, channel: str) -> list[Outcome]:
        """What an answer comes to; nothing if it does not count."""
        try:
            return [decide(*lookup.asker(runner, id), answer, channel=channel)]
        # A wrong answer of a handler is no answer. The run waits on, and the log says so: nobody is there to whom it could be
        # raised.
        except InvalidDecision as error:
            unheard(id, error)
            return []

    async def _aanswered(self, runner: Runner, id: str, answer: Answer, channel: str) -> list[Outcome]:
        """As `_answered`."""
        try:
            return [await adecide(*lookup.asker(runner, id), answer, channel=channel)]
        except InvalidDecision as error:
            unheard(id, error)
            return []

    def _ask(self, hit: BreakpointHit) -> Answer | None:
        """What the handler answers, if there is one. What it raises changes nothing."""
        handler, answer = self.hold.on_breakpoint, None
        if handler is None:
            return None
        try:
            answer = handler(hit)
        except Exception as error:
            unheard(hit.id, error)
        return understood(hit, answer)

    async def _aask(self, hit: BreakpointHit) -> Answer | None:
        """As `_ask`."""
        handler, answer = self.hold.on_breakpoint, None
        if handler is None:
            return None
        try:
            answer = await in_either(handler, is_async(handler), hit)
        except Exception as error:
            unheard(hit.id, error)
        return understood(hit, answer)

    def _arrived(self, runner: Runner) -> list[BreakpointHit]:
        """The stops that the handler was not asked about."""
        # A handler that raises is not asked again about the same stop, or it would be asked once a second.
        waiting = {item.id for item in at_breakpoints(runner)} - self.asked
        self.asked.update(waiting)
        return [hit for hit in self.hold.pending if hit.id in waiting]

    def _until(self, runner: Runner) -> float:
        """When the stop that has waited longest lapses."""
        begun = [self.since.setdefault(item.id, time.monotonic()) for item in at_breakpoints(runner)]
        return math.inf if self.hold.timeout is None else min(begun) + self.hold.timeout

    def _is_set(self) -> bool:
        """Whether the event lets the run go on. It is waited for first and cleared then: none is lost."""
        event = self.hold.resume_event
        if event is None or not event.is_set():
            return False
        # Cleared once it has been seen, and before what it lets go on: set a second time meanwhile, it is for the next stop.
        event.clear()
        return True

    def _too_late(self, runner: Runner, until: float) -> list[Outcome]:
        """The end of a run that nobody has let go on in time."""
        if time.monotonic() < until:
            return []
        items = sorted(at_breakpoints(runner), key=lambda item: self.since[item.id])
        # The whole run ends by one stop that nobody answered, and all that waited are named: an operator wants to know what was
        # missed.
        runner.timed_out = tuple(item.id for item in items)
        reason = f"nobody answered a breakpoint within {self.hold.timeout:g} s"
        lapses = passing(items[0], now(runner.ledger.store)).evolve(kind="expire", then="end", reason=reason)
        return [Decided(decision=lapses)]  # one outcome: if somebody has just answered, the run does not end

    def _settle(self, runner: Runner) -> None:
        """Take off the list what does not wait any more."""
        state = runner.state
        waiting = {item.id for item in state.pending}
        # One `Hold` may serve many runs at once, each in its thread. Only those of this branch are ours to take off.
        held = [hit.id for hit in self.hold.pending if hit.branch_id == state.branch_id and hit.id not in waiting]
        if held:
            known = {item.pending_id: PAST[item.kind] for item in state.decisions}
            self.hold._answered({id: known.get(id, state.ending.status if state.ending else "left") for id in held})

    def left(self, runner: Runner) -> None:
        """Nobody waits any more: the run stays suspended, or has ended."""
        branch_id = runner.state.branch_id
        self.hold._answered({hit.id: "left" for hit in self.hold.pending if hit.branch_id == branch_id})


def holding(given: object, owner: Any, method: str | None, options: Mapping[str, Any]) -> Waiting:
    """How calls of this agent or graph wait. Raises `ConfigurationError`, `AsyncRequired`."""
    if not isinstance(given, Hold):
        raise ConfigurationError(f"hold is a Hold, not {type(given).__name__}: write hold=Hold()")
    # The one goes a boundary further and returns, the other does not return. Together they would mean nothing.
    if method in ("step", "astep"):
        raise ConfigurationError(f"{method} goes one boundary further and returns: there is nothing to hold")
    event, handler = given.resume_event, given.on_breakpoint
    of_asyncio = event is not None and inspect.iscoroutinefunction(event.wait)
    if method is not None and not method.startswith("a"):
        if (handler is not None and is_async(handler)) or of_asyncio:
            raise AsyncRequired(f"the handler or the event of the hold is async: call a{method} instead of {method}")
    # An event of threading can only be waited for by a thread. In a task it would stop every other task of the loop.
    elif method is not None and event is not None and not of_asyncio:
        raise ConfigurationError(f"{method} waits for an asyncio.Event: one of threading would hold up the event loop")
    return Waiting(given, owner, {name: options[name] for name in _SAME if name in options})


def at_breakpoints(runner: Runner) -> list[PendingApproval]:
    """What of a run waits at a breakpoint, not where somebody has paused it."""
    return [item for item in runner.state.pending if is_held(item)]


def is_held(item: PendingApproval) -> bool:
    """Whether it is a stop that a hold waits for."""
    return item.why == "breakpoint" and item.point is not None


def understood(hit: BreakpointHit, answer: object) -> Answer | None:
    """The answer that a handler gave; None for none."""
    if answer is None or isinstance(answer, Approve | Reject | Respond | Skip):
        return answer
    # A coroutine that nobody awaits. It is closed here, or Python would warn of it at some other time.
    close_unawaited(answer)
    _log.error("the handler of breakpoint %s answered with %s, which is no decision", hit.id, type(answer).__name__)
    return None


def unheard(id: str, error: Exception) -> None:
    """Report an answer that does not count."""
    _log.error("the handler of breakpoint %s came to %s; the run waits on", id, type(error).__name__)

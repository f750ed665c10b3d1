"""The first to succeed wins, and the others are cancelled: left while their models are asked, waited for in the middle of a tool."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pattern_worker
import pytest
from drivers import DRIVERS, PATIENCE, Driver, calls_ended, rows
from pattern_scenes import SCENES, kinds, payer, plain, says, waits
from selection import scaled
from stop_scenes import EVERY

from phronomy import (
    Agent,
    Approve,
    CheckpointError,
    GraphError,
    Limits,
    ModelConnectionError,
    NodeFailed,
    Reject,
    Step,
    Store,
    ToolContext,
    Usage,
    parallel,
    race,
    sequential,
    tool,
)
from phronomy.observability.events import replay
from phronomy.observability.timeline import timeline
from phronomy.testing import ScriptedModel, call, say
from phronomy.testing.crash import sweep


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


def waiting(event: threading.Event) -> None:
    """Wait for what must come."""
    assert event.wait(PATIENCE), "it never came"


def dismissed(context: ToolContext[Any]) -> None:
    """Wait until nobody waits for the call any more."""
    until = time.monotonic() + PATIENCE
    while not context.cancelled:
        assert time.monotonic() < until, "it never came"
        time.sleep(0.001)


class Slow:
    """A model that says when it is asked, and answers once it is let: a task that is cancelled meanwhile is noted."""

    def __init__(self, driver: Driver, answer: Any = "slow") -> None:
        self.asked, self.let, self.over = threading.Event(), threading.Event(), threading.Event()
        self.cancelled = False
        self.answer = answer
        self.model = ScriptedModel(self._alate if driver.is_async else self._late, name="slow")

    def _late(self, request: Any) -> Any:
        self.asked.set()
        try:
            waiting(self.let)
            return self.answer
        finally:
            self.over.set()

    async def _alate(self, request: Any) -> Any:
        self.asked.set()
        try:
            while not self.let.is_set():  # noqa: ASYNC110  # it is set by another thread
                await asyncio.sleep(0.001)
            return self.answer
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.over.set()


def after(driver: Driver, name: str, *events: threading.Event, answer: Any = None, **options: Any) -> Agent[Any, Any]:
    """An agent that answers once these have happened elsewhere."""

    def reply(request: Any) -> Any:
        for event in events:
            waiting(event)
        return answer or f"{name} won"

    async def areply(request: Any) -> Any:
        for event in events:
            await asyncio.to_thread(waiting, event)
        return answer or f"{name} won"

    return Agent(name=name, model=ScriptedModel(areply if driver.is_async else reply), **options)


def settled(store: Store, run_id: str) -> dict[str, str]:
    """How the calls of the race, and of what is inside it, ended: by path and name."""
    told = [event for event in replay(store, run_id) if event.type == "tool_call_settled"]
    return {f"{event.path}/{event.tool_name}".lstrip("/"): event.kind for event in told}


def test_the_fastest_wins_and_nobody_waits_for_a_model(driver: Driver, store: Store) -> None:
    slow = Slow(driver)
    pattern = race(Agent(name="tortoise", model=slow.model), after(driver, "hare", slow.asked), store=store)
    result = driver.invoke(pattern, "go")
    assert (result.status, result.output) == ("completed", "hare won")
    state = pattern.state_of(result.checkpoint)
    assert state.winners == ("hare",)
    assert [(turn["step"], turn["kind"], turn["why"]) for turn in state.turns] == [
        ("tortoise", "cancelled", "hare was faster"),
        ("hare", "completed", None),
    ]
    assert slow.over.is_set() is driver.is_async, "a task is gone by then, a thread cannot be stopped"
    assert slow.cancelled is driver.is_async
    assert settled(store, result.run_id) == {"tortoise": "cancelled", "hare": "completed"}
    before = rows(store)
    slow.let.set()
    waiting(slow.over)
    assert driver.invoke(pattern, "again").output in ("hare won", "slow")
    if not driver.is_async:
        calls_ended()
    assert rows(store).startswith(before[:40])
    assert store.load(result.checkpoint.id) == result.checkpoint
    assert settled(store, result.run_id) == {"tortoise": "cancelled", "hare": "completed"}, (
        "what it still brings is dropped"
    )


def test_events_and_the_timeline_tell_who_won_and_why_others_did_not(driver: Driver, store: Store) -> None:
    slow = Slow(driver)
    steps = [Agent(name="tortoise", model=slow.model), after(driver, "hare", slow.asked), payer("ann", [])]
    result = driver.invoke(race(steps, store=store), "go")
    told = {event.tool_name: event for event in replay(store, result.run_id) if event.type == "tool_call_settled"}
    assert {name: event.kind for name, event in told.items() if not event.path} == {
        "tortoise": "cancelled", "hare": "completed", "ann": "cancelled"
    }  # fmt: skip
    assert told["tortoise"].content == told["ann"].content == "It was not needed any more: hare was faster."
    line = timeline(store, result.run_id).query("tool_settled")
    assert {entry.facts["tool"]: entry.facts["kind"] for entry in line if not entry.path} == {
        "tortoise": "cancelled", "hare": "completed", "ann": "cancelled"
    }  # fmt: skip
    slow.let.set()
    waiting(slow.over)


def test_a_loser_in_the_middle_of_a_tool_is_told_and_waited_for(driver: Driver, store: Store) -> None:
    entered, told = threading.Event(), threading.Event()

    def work(ctx: ToolContext[Any]) -> str:
        """Work."""
        entered.set()
        dismissed(ctx)
        told.set()
        return "half done"

    async def awork(ctx: ToolContext[Any]) -> str:
        """Work."""
        entered.set()
        await asyncio.to_thread(dismissed, ctx)
        told.set()
        return "half done"

    worker = tool(name="work")(awork if driver.is_async else work)
    loser = says("tortoise", call("work"), "too late", tools=[worker])
    pattern = race(loser, after(driver, "hare", entered), store=store)
    result = driver.invoke(pattern, "go")
    assert (result.output, told.is_set()) == ("hare won", True)
    model: Any = loser.model
    assert len(model.requests) == 1, "it is not asked again"
    assert settled(store, result.run_id) == {"tortoise": "cancelled", "2.0/work": "completed", "hare": "completed"}
    [end] = [event for event in replay(store, result.run_id) if event.type == "cancelled"]
    assert end.path == "2.0"


def test_nobody_waits_for_a_model_deep_inside(driver: Driver, store: Store) -> None:
    slow, log = Slow(driver), []
    deep = sequential(
        parallel(Agent(name="tortoise", model=slow.model), name="in"), plain("z", log, driver), name="deep"
    )
    pattern = sequential(race(deep, after(driver, "hare", slow.asked)), plain("then", log, driver), store=store)
    result = driver.invoke(pattern, "go")
    assert (result.output, log) == ("hare won+then", ["then"])
    slow.let.set()
    waiting(slow.over)
    assert log == ["then"]


def test_what_a_loser_waited_for_is_gone(driver: Driver, store: Store) -> None:
    paid: list[str] = []
    first = race(payer("ann", paid), says("bob", "bob won"), store=store)
    result = driver.invoke(first, "go")
    assert (result.output, result.checkpoint.pending, store.pending_rows(), paid) == ("bob won", (), [], [])
    both = SCENES["race"].make(driver, store, paid)
    asked = driver.invoke(both, "go")
    assert waits(asked) == ["ann", "bob"]
    ann, bob = asked.checkpoint.pending
    result = driver.resume(both, asked.checkpoint, decisions={bob.id: Approve()})
    assert (result.output, paid, store.pending_rows()) == ("bob paid", ["bob"], [])
    assert kinds(both, result) == [("ann", "cancelled"), ("bob", "completed")]
    with pytest.raises(CheckpointError):
        driver.resume(both, asked.checkpoint, decisions={ann.id: Approve()})
    assert paid == ["bob"]
    assert settled(store, result.run_id)["ann"] == "cancelled"


def test_a_racer_that_is_refused_ends_the_race(driver: Driver, store: Store) -> None:
    """W4: nobody else does what a human has refused, not even one who would not have asked."""
    paid: list[str] = []
    pattern = race(payer("ann", paid), payer("bob", paid), payer("eve", paid), min_success=2, store=store)
    asked = driver.invoke(pattern, "go")
    ann, bob, eve = asked.checkpoint.pending
    half = driver.resume(pattern, asked.checkpoint, decisions={eve.id: Approve()})
    assert (half.suspended, paid) == (True, ["eve"])
    result = driver.resume(pattern, half.checkpoint, decisions={ann.id: Reject(then="end")})
    assert (result.status, paid, store.pending_rows()) == ("rejected", ["eve"], [])
    assert settled(store, result.run_id)["bob"] == "cancelled"
    assert bob.id not in {item.pending_id for item in result.checkpoint.decisions}


def broken(name: str, times: int = 99) -> Agent[Any, Any]:
    """An agent whose model is down, so many times."""
    return Agent(name=name, model=ScriptedModel([ModelConnectionError("down")] * times + [f"{name} is up"] * 9))


def test_failures_are_tolerated_until_nobody_can_win(driver: Driver, store: Store) -> None:
    pattern = race(broken("a"), says("b", "b won"), broken("c"), store=store)
    assert driver.invoke(pattern, "go").output == "b won"

    def boom(value: Any) -> Any:
        raise LookupError("no")

    lost = race(broken("a", 1), driver.function(boom), store=store)
    with pytest.raises(NodeFailed) as raised:
        driver.invoke(lost, "go")
    assert {name: "down" in why or "LookupError" in why for name, why in raised.value.failures.items()} == {
        "a": True, "boom": True
    }  # fmt: skip
    assert driver.resume(lost, raised.value.checkpoint).output == "a is up"


def test_one_that_waits_is_no_reason_to_go_on_when_too_many_failed(driver: Driver, store: Store) -> None:
    paid: list[str] = []
    pattern = race(broken("a", 1), payer("ann", paid), min_success=2, store=store)
    with pytest.raises(NodeFailed) as raised:
        driver.invoke(pattern, "go")
    stopped = raised.value.checkpoint
    assert stopped is not None
    assert (list(raised.value.failures), [item.args for item in stopped.pending]) == (["a"], [{"to": "ann"}])
    result = driver.resume(pattern, stopped, approved=True)
    assert result.output == {"a": "a is up", "ann": "ann paid"}


def test_several_may_have_to_win(driver: Driver, store: Store) -> None:
    slow = Slow(driver)
    steps = [says("a", "1"), Agent(name="tortoise", model=slow.model), after(driver, "b", slow.asked, answer="2")]
    pattern = race(*steps, min_success=2, store=store)
    result = driver.invoke(pattern, "go")
    assert result.output == {"a": "1", "b": "2"}
    assert pattern.state_of(result.checkpoint).winners == ("a", "b")
    slow.let.set()
    waiting(slow.over)


@pytest.mark.parametrize("least", [0, -1, 3, True, 1.0, math.nan, "1", None])
def test_how_many_must_win_is_a_whole_number_that_can_be_reached(least: Any) -> None:
    with pytest.raises(GraphError, match="min_success is a whole number from 1 to 2"):
        race(says("a", "1"), says("b", "2"), min_success=least)


def test_who_has_not_begun_when_it_is_over_never_does(driver: Driver, store: Store) -> None:
    late = says("late", "never")
    pattern = race(says("first", "1"), late, max_parallel=1, store=store)
    result = driver.invoke(pattern, "go")
    model: Any = late.model
    assert (result.output, model.requests) == ("1", [])
    assert settled(store, result.run_id) == {"first": "completed", "late": "cancelled"}


def test_what_losers_cost_is_counted(driver: Driver, store: Store) -> None:
    slow = Slow(driver)

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    first = say(None, call("look"), usage=Usage(requests=1, input_tokens=7))
    answers: list[Any] = [first]

    def turns(request: Any) -> Any:
        return answers.pop(0) if answers else slow._late(request)

    async def aturns(request: Any) -> Any:
        return answers.pop(0) if answers else await slow._alate(request)

    costly = Agent(name="costly", model=ScriptedModel(aturns if driver.is_async else turns), tools=[look])
    pattern = race(costly, after(driver, "hare", slow.asked), store=store)
    result = driver.invoke(pattern, "go")
    assert (result.output, result.usage.requests, result.usage.input_tokens) == ("hare won", 2, 7)
    slow.let.set()
    waiting(slow.over)


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_function_is_waited_for_unless_it_may_run_again(driver: Driver, store: Store, idempotent: bool) -> None:
    entered, let, ended = threading.Event(), threading.Event(), threading.Event()

    def work(value: Any, ctx: ToolContext[Any]) -> str:
        entered.set()
        waiting(let) if idempotent else dismissed(ctx)
        ended.set()
        return "too late"

    async def awork(value: Any, ctx: ToolContext[Any]) -> str:
        entered.set()
        try:
            while not (let.is_set() if idempotent else ctx.cancelled):  # noqa: ASYNC110  # by another thread
                await asyncio.sleep(0.001)
            return "too late"
        finally:
            ended.set()

    step = Step(awork if driver.is_async else work, idempotent=idempotent)
    pattern = race({"slow": step, "hare": after(driver, "hare", entered)}, store=store)
    result = driver.invoke(pattern, "go")
    assert (result.output, kinds(pattern, result)[0]) == ("hare won", ("slow", "cancelled"))
    if not idempotent:
        assert ended.is_set()
    let.set()
    waiting(ended)


def test_a_racer_that_comes_to_a_limit_of_its_own_has_failed(driver: Driver, store: Store) -> None:
    looping = says(
        "loop", call("look"), call("look"), tools=[tool(name="look")(lambda: "seen")], limits=Limits(turns=1)
    )
    with pytest.raises(NodeFailed) as raised:
        driver.invoke(race(looping, store=store), "go")
    assert "LimitExceeded" in raised.value.failures["loop"]


@pytest.mark.usefixtures("fresh_fork_server")
@pytest.mark.few(1)
@pytest.mark.parametrize("name", DRIVERS, ids=str)
def test_a_race_that_is_killed_anywhere_has_a_winner(name: Driver, tmp_path: Path) -> None:
    play: Callable[..., Any] = partial(pattern_worker.play, kind="race", driver=str(name))
    url = f"sqlite:///{tmp_path}/runs.db?synchronous=normal"
    report = sweep(play, store=url, check=pattern_worker.check_race, every=scaled(16, sweep=4))
    assert report.kills > scaled(1, sweep=5)

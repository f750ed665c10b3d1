"""A step of a DAG begins once what it needs has finished, whatever else is under way or waits for a human."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from drivers import PATIENCE, Driver, decide_first
from pattern_scenes import kinds, payer, plain, waits
from places import Place
from test_stream import Pieces, take_until

from phronomy import Agent, Breakpoint, DagNode, NodeFailed, Reject, Step, dag
from phronomy.concurrency.pieces import Heard
from phronomy.engine import run_tools
from phronomy.graph import Abort
from phronomy.models.base import Delta, ModelReply, ModelRequest


def after(log: list[str], name: str, gate: threading.Event) -> Callable[[Any], str]:
    """A step that runs until the gate is open."""

    def body(value: Any) -> str:
        assert gate.wait(PATIENCE)
        log.append(name)
        return name

    return body


def opening(log: list[str], name: str, gate: threading.Event) -> Callable[[Any], str]:
    """A step that opens the gate."""

    def body(value: Any) -> str:
        log.append(name)
        gate.set()
        return name

    return body


def test_a_step_begins_while_others_run(driver: Driver, place: Place) -> None:
    """1.5 DAG: `slow` ends only once `third`, two steps behind `first`, has run: in waves it would never have begun."""
    log: list[str] = []
    gate = threading.Event()
    pattern = dag(
        {
            "slow": after(log, "slow", gate),
            "first": plain("first", log, driver),
            "second": DagNode(plain("second", log, driver), ["first"]),
            "third": DagNode(opening(log, "third", gate), ["second"]),
            "last": DagNode(driver.function(sorted), ["slow", "third"]),
        },
        store=place.open(),
    )
    result = driver.invoke(pattern, "x")
    assert (result.output, log) == (["slow", "third"], ["first", "second", "third", "slow"])
    assert {name for name, kind in kinds(pattern, result) if kind == "completed"} == {*pattern.steps}


def test_a_step_that_waits_for_a_human_holds_up_only_what_needs_it(driver: Driver, place: Place) -> None:
    paid: list[str] = []
    pattern = dag(
        {
            "ann": payer("ann", paid),
            "read": plain("read", paid, driver),
            "sort": DagNode(plain("sort", paid, driver), ["read"]),
            "bob": DagNode(payer("bob", paid), ["sort"]),
            "join": DagNode(driver.function(sorted), ["ann", "bob"]),
        },
        store=place.open(),
    )
    first = driver.invoke(pattern, "x")
    assert (waits(first), paid) == (["ann", "bob"], ["read", "sort"])
    second = driver.resume(pattern, first.checkpoint, decisions=decide_first(first.checkpoint))
    while second.suspended:
        second = driver.resume(pattern, second.checkpoint, decisions=decide_first(second.checkpoint))
    assert (second.output, sorted(paid[2:])) == (["ann", "bob"], ["ann", "bob"])


def test_what_is_bounded_begins_by_priority(driver: Driver) -> None:
    """1.5 DAG: maxConcurrent, and priority also among steps that became ready at different times."""
    log: list[str] = []
    step = lambda name, *needs, priority=0: DagNode(plain(name, log, driver), needs, priority=priority)  # noqa: E731
    nodes = {"a": step("a"), "b": step("b"), "c": step("c"), "late": step("late", "a", priority=9)}
    driver.invoke(dag(nodes, max_parallel=1), "x")
    assert log == ["a", "late", "b", "c"]


def test_what_was_running_is_run_again_and_what_went_on_meanwhile_is_not(driver: Driver, place: Place) -> None:
    """DIR-A24, W12: the worker of `x` was lost while steps behind `a` had gone on; `x` is run again, and all completes."""
    log: list[str] = []
    gate = threading.Event()

    class Died(BaseException):
        pass

    def x(value: Any) -> str:
        assert gate.wait(PATIENCE)
        log.append("x")
        if log.count("x") == 1:
            raise Died
        return "x"

    pattern = dag(
        {
            "x": Step(x, idempotent=True),
            "a": plain("a", log, driver),
            "b": DagNode(opening(log, "b", gate), ["a"]),
            "y": DagNode(driver.function(sorted), ["x", "b"]),
        },
        store=place.open(),
    )
    with pytest.raises(Died):
        driver.invoke(pattern, "go")
    [branch] = pattern.store.branches()
    assert driver.recover(pattern, branch.id).output == ["b", "x"]
    assert log == ["a", "b", "x", "x"]


def test_after_a_failure_nothing_more_begins_and_a_resume_goes_on(driver: Driver, place: Place) -> None:
    """1.5 DAG: `fail` aborts what has not begun; what was under way is kept, and not done again (law 4)."""
    log: list[str] = []
    down = [True]

    def bad(value: Any) -> str:
        if down:
            down.pop()
            raise OSError("down")
        return "up"

    pattern = dag(
        {"bad": driver.function(bad), "a": plain("a", log, driver), "b": DagNode(plain("b", log, driver), ["a"])},
        store=place.open(),
        max_parallel=2,
    )
    with pytest.raises(NodeFailed, match="bad") as failed:
        driver.invoke(pattern, "x")
    assert "a" in log  # and perhaps `b`, where `a` ended before `bad` failed
    ended = driver.resume(pattern, failed.value.checkpoint)
    assert ended.output == {"bad": "up", "b": {"from": "b", "got": {"a": "x+a"}}}
    assert (log, down) == (["a", "b"], [])


def test_a_step_that_gives_the_run_up_leaves_nothing_open(driver: Driver, place: Place) -> None:
    paid: list[str] = []
    pattern = dag(
        {"ann": payer("ann", paid), "stop": driver.function(lambda value: Abort("no")), "b": DagNode(boom, ["stop"])},
        store=place.open(),
    )
    result = driver.invoke(pattern, "x")
    assert (result.status, paid, result.checkpoint.pending) == ("cancelled", [], ())


def boom(value: Any) -> None:
    """Never runs."""
    raise AssertionError


def test_a_rejection_ends_all(driver: Driver, place: Place) -> None:
    paid: list[str] = []
    nodes = {"ann": payer("ann", paid), "read": plain("read", paid, driver), "b": DagNode(payer("bob", paid), ["read"])}
    pattern = dag(nodes, store=place.open())
    first = driver.invoke(pattern, "x").checkpoint
    ended = driver.resume(pattern, first, decisions={first.pending[0].id: Reject(then="end")})
    assert (ended.status, ended.checkpoint.pending, paid) == ("rejected", (), ["read"])


def test_a_breakpoint_after_a_step_holds_up_what_has_not_begun(driver: Driver, place: Place) -> None:
    log: list[str] = []
    nodes = {"a": plain("a", log, driver), "b": DagNode(plain("b", log, driver), ["a"])}
    pattern = dag({**nodes, "c": payer("cy", log)}, store=place.open())
    stop = [Breakpoint("post_node", nodes=["a"])]
    first = driver.invoke(pattern, "x", breakpoints=stop)
    assert (log, [item.why for item in first.checkpoint.pending]) == (["a"], ["breakpoint", "approval"])
    second = driver.resume(pattern, first.checkpoint, breakpoints=stop)
    assert (log, waits(second)) == (["a", "b"], ["cy"])


class Talk(Pieces):
    """A model that says its words once it may."""

    def __init__(self, gate: threading.Event, *script: Any) -> None:
        super().__init__(*script)
        self.gate = gate

    def stream(self, request: ModelRequest) -> Iterator[Delta | ModelReply]:
        assert self.gate.wait(PATIENCE)
        yield from super().stream(request)

    async def astream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        assert await asyncio.to_thread(self.gate.wait, PATIENCE)
        async for piece in super().astream(request):
            yield piece


def test_what_runs_while_a_stream_is_left_is_kept(driver: Driver, place: Place) -> None:
    """Nothing is done again (laws 4 and 9)."""
    log: list[str] = []
    gate = threading.Event()
    talk = Agent(name="talk", model=Talk(gate, "all is said"))
    nodes = {"quick": plain("quick", log, driver), "slow": after(log, "slow", gate), "talk": talk}
    pattern = dag({**nodes, "join": DagNode(driver.function(sorted), [*nodes])}, store=place.open())

    def enough(event: Any) -> bool:
        if event.type == "tool_call_settled":
            gate.set()
        return gate.is_set()

    left = take_until(driver, pattern, "x", enough)[-1]
    assert (left.tool_name, log) == ("quick", ["quick", "slow"])
    assert driver.recover(pattern, left.run_id).output == ["quick", "slow", "talk"]
    assert log == ["quick", "slow"]


def test_what_runs_while_a_stream_is_left_is_kept_beside_what_others_write(driver: Driver, place: Place) -> None:
    """A pause comes after the last event, and before the result that is still to be stored."""
    log: list[str] = []
    gate = threading.Event()
    nodes = {"quick": plain("quick", log, driver), "slow": after(log, "slow", gate)}
    pattern = dag({**nodes, "join": DagNode(driver.function(sorted), [*nodes])}, store=place.open())

    def enough(event: Any) -> bool:
        if event.type == "tool_call_settled":
            pattern.pause(event.run_id)
            gate.set()
        return gate.is_set()

    left = take_until(driver, pattern, "x", enough)[-1]
    assert log == ["quick", "slow"]
    result = driver.recover(pattern, left.run_id)
    assert [item.why for item in result.checkpoint.pending] == ["breakpoint"]
    assert driver.resume(pattern, result.checkpoint).output == ["quick", "slow"]
    assert log == ["quick", "slow"]


def test_a_stream_that_is_left_at_a_piece_keeps_the_answer(driver: Driver, place: Place) -> None:
    log: list[str] = []
    gate = threading.Event()
    gate.set()
    talk = Agent(name="talk", model=Talk(gate, "all is said"))
    other = threading.Event()
    pattern = dag({"talk": talk, "slow": after(log, "slow", other)}, store=place.open())

    def enough(event: Any) -> bool:
        if event.type == "text_delta":
            other.set()
        return other.is_set()

    left = take_until(driver, pattern, "x", enough)[-1]
    assert driver.recover(pattern, left.run_id).output == {"talk": "all is said", "slow": "slow"}
    assert log == ["slow"]


class Crowd:
    """A crew in which something is heard from inside a call, and then a call ends."""

    is_busy = False

    def __init__(self) -> None:
        self.items: list[Any] = [Heard(), "ended"]

    def begin(self, *_: object) -> None:
        pass

    def next(self) -> Any:
        return self.items.pop(0)


class AsyncCrowd(Crowd):
    async def next(self) -> Any:
        return self.items.pop(0)


@pytest.mark.parametrize("streams", [True, False], ids=["watched", "left"])
def test_what_is_heard_from_inside_is_given_only_while_somebody_watches(
    streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream may be left at any moment: the outcome of a call counts all the same."""
    monkeypatch.setattr(run_tools, "listened_to", lambda *_: None)
    monkeypatch.setattr(run_tools, "is_asked", lambda _: False)
    monkeypatch.setattr(run_tools, "is_eager", lambda _: True)
    monkeypatch.setattr(run_tools, "handed_over", lambda *_: ())
    runner: Any = SimpleNamespace(crew=Crowd(), acrew=AsyncCrowd(), streams=streams)
    nothing: Any = None

    async def awhole() -> list[Any]:
        return [each async for each in run_tools.arun_calls(runner, (), nothing)]

    for found in (list(run_tools.run_calls(runner, (), nothing)), asyncio.run(awhole())):
        assert found[-1] == "ended"
        assert [type(each) for each in found[:-1]] == ([Heard] if streams else [])

"""Stopping a run from outside: from another thread, task or process, with and without waiting for what runs. And going on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import pytest
from drivers import PATIENCE, STORES, Driver, open_kind, rows
from pydantic import BaseModel

from phronomy import Agent, Approve, Checkpoint, Reject, Respond, Result, SQLiteStore, tool
from phronomy.errors import (
    CheckpointAlreadyResumed,
    CheckpointError,
    CheckpointNotFound,
    ConfigurationError,
    InvalidDecision,
    NodeFailed,
    NothingDecided,
)
from phronomy.graph import END, START, Graph, StateGraph, append
from phronomy.rules import transitions
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call


class Job(BaseModel):
    plan: str = ""
    log: Annotated[list[str], append] = []


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_kind(request.param, tmp_path) as store:
        yield store


class Hall:
    """Nodes that are in flight until the test lets them go. What began, and what ended, is noted."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.began: list[str] = []
        self.ended: list[str] = []
        self.in_flight = threading.Semaphore(0)
        self.gone = threading.Event()
        self.holds = True
        self.left: list[bool] = []

    def slow(self, name: str) -> Callable[..., Any]:
        """A node that is in flight until `gone` is set, while the hall holds."""

        def note(began: bool) -> Any:
            (self.began if began else self.ended).append(name)
            if began:
                self.in_flight.release()
            return {"log": [name]}

        if not self.driver.is_async:

            def body(state: Job, ctx: Any) -> Any:
                told = note(True)
                if self.holds:
                    assert self.gone.wait(PATIENCE)
                    self.left.append(ctx.cancelled)
                note(False)
                return told

            return body

        async def abody(state: Job, ctx: Any) -> Any:
            told = note(True)
            while self.holds and not self.gone.is_set():  # noqa: ASYNC110  # an event of threads, so it is polled
                await asyncio.sleep(0.005)
            note(False)
            return told

        return abody

    def quick(self, name: str) -> Callable[..., Any]:
        def body(state: Job) -> Any:
            self.began.append(name)
            self.ended.append(name)
            return {"log": [name]}

        return self.driver.function(body)

    def arrive(self, count: int = 1) -> None:
        """Wait until so many are in flight."""
        for _ in range(count):
            assert self.in_flight.acquire(timeout=PATIENCE)

    @contextmanager
    def driving(self, graph: Graph[Any, Any], input: Any = None, **options: Any) -> Iterator[Driven]:
        """The graph is invoked in another thread, or in an event loop of one."""
        driven = Driven(graph, threading.Event())
        before = {branch.id for branch in graph.store.branches()}

        def work() -> None:
            try:
                driven.result = self.driver.invoke(graph, input or {}, **options)
            except BaseException as error:
                driven.error = error
            driven.over.set()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            driven.find = lambda: next(b.id for b in graph.store.branches() if b.id not in before)
            yield driven
        finally:
            self.gone.set()
            thread.join(PATIENCE)
            assert not thread.is_alive()


class Driven:
    """A run that somebody else drives."""

    result: Result[Any]
    error: BaseException | None = None
    find: Callable[[], str]

    def __init__(self, graph: Graph[Any, Any], over: threading.Event) -> None:
        self.graph = graph
        self.over = over

    @property
    def run_id(self) -> str:
        return self.find()

    def end(self) -> Result[Any]:
        """What it came to."""
        assert self.over.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return self.result


def chain(*nodes: tuple[str, Any], **options: Any) -> StateGraph[Job]:
    graph = StateGraph(Job, name="works")
    names = [name for name, _ in nodes]
    for name, function in nodes:
        graph.add_node(name, function, **options.get(name, {}))
    for source, end in zip((START, *names), (*names, END), strict=True):
        graph.add_edge(source, end)
    return graph


def fan(*nodes: tuple[str, Any], **options: Any) -> StateGraph[Job]:
    graph = StateGraph(Job, name="works")
    for name, function in nodes:
        graph.add_node(name, function, **options.get(name, {})).add_edge(START, name)
    graph.add_node("last", lambda state: {"log": ["last"]})
    return graph.add_edge([name for name, _ in nodes], "last").add_edge("last", END)


def asked(graph: Graph[Any, Any], checkpoint: Checkpoint) -> list[tuple[str, str]]:
    return [("/".join(item.path), item.pending.why) for item in graph.stop_of(checkpoint).pending]


AGAIN = {"idempotent": True}


# What runs is waited for


def test_without_a_grace_time_what_runs_ends_and_nothing_new_begins(driver: Driver, store: Store) -> None:
    hall = Hall(driver)
    graph = chain(("a", hall.slow("a")), ("b", hall.quick("b"))).compile(store=store)
    with hall.driving(graph) as driven:
        hall.arrive()
        told = driver.call(graph, "pause", driven.run_id, reason="lunch", by="ada")
        assert told.status == "running", "another worker drives it, and was told"
        assert not driven.over.is_set()
        hall.gone.set()
        result = driven.end()
    assert (result.status, hall.ended) == ("suspended", ["a"])
    stop = graph.stop_of(result.checkpoint)
    assert asked(graph, result.checkpoint) == [("operator", "breakpoint")]
    assert (stop.pending[0].pending.reason, stop.after, stop.before) == ("lunch", ("a",), ())
    assert store.wait(result.run_id, timeout=PATIENCE, stops=True) == result.checkpoint
    over = driver.resume(graph, result.checkpoint)
    assert (over.output.log, hall.ended) == (["a", "b"], ["a", "b"])


def test_several_in_flight_are_all_waited_for(driver: Driver, store: Store) -> None:
    """E15."""
    hall = Hall(driver)
    graph = fan(*((name, hall.slow(name)) for name in "abc")).compile(store=store, max_parallel=2)
    with hall.driving(graph) as driven:
        hall.arrive(2)
        driver.call(graph, "pause", driven.run_id)
        hall.gone.set()
        result = driven.end()
    assert result.status == "suspended"
    assert sorted(hall.ended) == ["a", "b"], "the third waited for a place, and did not begin"
    assert graph.stop_of(result.checkpoint).before == ("c",)
    over = driver.resume(graph, result.checkpoint)
    assert (over.output.log, sorted(hall.began)) == (["a", "b", "c", "last"], ["a", "b", "c"])


def test_a_stop_that_comes_while_it_is_found_where_to_go_on_is_not_lost(driver: Driver, store: Store) -> None:
    """All nodes of the wave are through, and stored; a route is being asked."""
    hall = Hall(driver)
    asked_for: list[str] = []

    def route(state: Job) -> str:
        asked_for.append("b")
        hall.in_flight.release()
        assert not hall.holds or hall.gone.wait(PATIENCE)
        return "b"

    graph = StateGraph(Job, name="works").add_node("a", hall.quick("a")).add_node("b", hall.quick("b"))
    graph.add_edge(START, "a").add_conditional_edges("a", route, ["b"]).add_edge("b", END)
    made = graph.compile(store=store)
    with hall.driving(made) as driven:
        hall.arrive()
        assert driver.call(made, "pause", driven.run_id).status == "running"
        hall.gone.set()
        result = driven.end()
    assert (result.status, hall.began) == ("suspended", ["a"])
    assert (asked(made, result.checkpoint), made.stop_of(result.checkpoint).after) == (
        [("operator", "breakpoint")],
        ("a",),
    )
    over = driver.resume(made, result.checkpoint)
    assert (over.output.log, hall.began) == (["a", "b"], ["a", "b"])


# What runs is left


@pytest.mark.parametrize("grace", [0, 0.05])
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "not-idempotent"])
def test_what_still_runs_after_the_grace_time_is_left(
    driver: Driver, store: Store, idempotent: bool, grace: float
) -> None:
    hall = Hall(driver)
    graph = chain(("a", hall.slow("a")), ("b", hall.quick("b")), a={"idempotent": idempotent}).compile(store=store)
    with hall.driving(graph, {"plan": "p"}) as driven:
        hall.arrive()
        driver.call(graph, "pause", driven.run_id, grace=grace)
        result = driven.end()
        assert hall.ended == [], "it still runs, and nobody waits for it"
    stop = graph.stop_of(result.checkpoint)
    assert result.status == "suspended"
    assert stop.rerun == {"a": Job(plan="p")}, "with its original input"
    operator, unknown = ("operator", "breakpoint"), ("a", "outcome_unknown")
    assert asked(graph, result.checkpoint) == ([operator] if idempotent else [operator, unknown])
    hall.holds = False
    if not idempotent:
        waits = driver.resume(graph, result.checkpoint)
        assert (waits.status, hall.began) == ("suspended", ["a"]), "the stop is open, and the question is not answered"
        with pytest.raises(NothingDecided):
            driver.resume(graph, waits.checkpoint)
        over = driver.resume(graph, waits.checkpoint, approved=True)
    else:
        over = driver.resume(graph, result.checkpoint)
    assert (over.output.log, hall.began) == (["a", "b"], ["a", "a", "b"])


def test_a_node_left_behind_that_ends_late_changes_nothing(driver: Driver, store: Store) -> None:
    hall = Hall(driver)
    graph = chain(("a", hall.slow("a")), ("b", hall.quick("b"))).compile(store=store)
    with hall.driving(graph) as driven:
        hall.arrive()
        driver.call(graph, "pause", driven.run_id, grace=0)
        stop = driven.end().checkpoint
        before = rows(store)
        hall.gone.set()
        if not driver.is_async:  # in an event loop the body is cancelled where it waits
            deadline = time.monotonic() + PATIENCE
            while hall.ended != ["a"] and time.monotonic() < deadline:
                threading.Event().wait(0.001)
            assert (hall.ended, hall.left) == (["a"], [True]), "it is told that nobody waits, and ends all the same"
        assert rows(store) == before
    told = [item for item in stop.pending if item.why == "outcome_unknown"]
    over = driver.resume(
        graph,
        stop,
        decisions={told[0].id: Respond(content={"log": ["a, says ada"]}), stop.pending[0].id: Approve()},
        by="ada",
    )
    assert (over.output.log, hall.began) == (["a, says ada", "b"], ["a", "b"])


def test_siblings_that_are_through_keep_what_they_gave(driver: Driver, store: Store) -> None:
    hall = Hall(driver)
    graph = fan(("a", hall.quick("a")), ("s", hall.slow("s")), ("t", hall.slow("t")), t=AGAIN).compile(store=store)
    with hall.driving(graph) as driven:
        hall.arrive(2)
        deadline = time.monotonic() + PATIENCE
        while not any(call.name == "a" and call.result for call in now(store, driven.run_id).calls):
            assert time.monotonic() < deadline
        driver.call(graph, "pause", driven.run_id, grace=0)
        stop = driven.end().checkpoint
    assert sorted(graph.stop_of(stop).rerun) == ["s", "t"]
    assert asked(graph, stop) == [("operator", "breakpoint"), ("s", "outcome_unknown")]
    hall.holds = False
    over = driver.resume(graph, stop, decisions={item.id: Approve() for item in stop.pending})
    assert over.output.log == ["a", "s", "t", "last"]
    assert sorted(hall.began) == ["a", "s", "s", "t", "t"]


def now(store: Store, branch_id: str) -> Checkpoint:
    """The state of a run as it is stored at this moment, what is journaled included."""
    checkpoint = store.head(branch_id)[1]
    graph = chain(("a", lambda state: None)).compile()
    return transitions.current(checkpoint, graph.spec.apply)


@pytest.mark.parametrize("grace", [0, None])
def test_EIN_A16_rerun_with_the_original_inputs_or_completed_and_the_same_answer(
    driver: Driver, store: Store, grace: float | None
) -> None:
    """E14, E15."""
    hall = Hall(driver)
    graph = fan(("a", hall.slow("a")), ("b", hall.slow("b")), a=AGAIN, b=AGAIN).compile(store=store)
    with hall.driving(graph, {"plan": "the same"}) as driven:
        hall.arrive(2)
        driver.call(graph, "pause", driven.run_id, grace=grace)
        if grace is None:
            hall.gone.set()
        result = driven.end()
    stop = graph.stop_of(result.checkpoint)
    if grace is None:
        assert (dict(stop.rerun), stop.after) == ({}, ("a", "b")), "they have completed"
    else:
        assert stop.rerun == {"a": Job(plan="the same"), "b": Job(plan="the same")}
        assert stop.state.log == []
    hall.holds = False
    over = driver.resume(graph, result.checkpoint)
    assert over.output == Job(plan="the same", log=["a", "b", "last"])
    assert sorted(hall.began) == (["a", "b"] if grace is None else ["a", "a", "b", "b"])


# Inside


def test_graphs_in_nodes_stop_at_boundaries_of_their_own(driver: Driver, store: Store) -> None:
    hall = Hall(driver)
    inner = chain(("x", hall.slow("x")), ("y", hall.quick("y"))).compile()
    deep = (
        StateGraph(Job, name="mid").add_node("inner", inner).add_edge(START, "inner").add_edge("inner", END).compile()
    )
    graph = fan(("mid", deep), ("s", hall.slow("s"))).compile(store=store)
    with hall.driving(graph) as driven:
        hall.arrive(2)
        driver.call(graph, "pause", driven.run_id)
        hall.gone.set()
        result = driven.end()
    assert (sorted(hall.ended), result.status) == (["s", "x"], "suspended")
    stop = graph.stop_of(result.checkpoint)
    assert (stop.after, stop.nested["mid"].nested["inner"].after) == (("s",), ("x",))
    over = driver.resume(graph, result.checkpoint)
    assert over.status == "completed"
    assert (over.output.log, sorted(hall.began)) == (["x", "y", "s", "last"], ["s", "x", "y"])


def test_what_runs_inside_is_left_as_well(driver: Driver, store: Store) -> None:
    hall = Hall(driver)
    inner = chain(("x", hall.slow("x")), ("y", hall.quick("y")), x=AGAIN).compile()
    graph = chain(("inner", inner), ("b", hall.quick("b"))).compile(store=store)
    with hall.driving(graph, {"plan": "p"}) as driven:
        hall.arrive()
        driver.call(graph, "pause", driven.run_id, grace=0)
        result = driven.end()
    stop = graph.stop_of(result.checkpoint)
    assert stop.nested["inner"].rerun == {"x": Job(plan="p")}
    hall.holds = False
    over = driver.resume(graph, result.checkpoint)
    assert (over.status, over.output.log, hall.began) == ("completed", ["x", "y", "b"], ["x", "x", "y", "b"])


def test_an_agent_in_a_node_stops_at_its_next_boundary(driver: Driver, store: Store) -> None:
    """EIN-A16: its tool is waited for, whatever the grace, and its model is not asked before the run goes on."""
    begun, gone = threading.Event(), threading.Event()
    ran: list[int] = []

    def look(order: int) -> str:
        """Look an order up."""
        begun.set()
        assert gone.wait(PATIENCE)
        ran.append(order)
        return "shipped"

    model = ScriptedModel.by_turn([call("look", {"order": 7}), "shipped"])
    desk: Agent[Any] = Agent(name="desk", model=model, tools=[tool(look)])
    graph = (
        StateGraph(Job, name="works")
        .add_node("desk", desk, input="plan", output=lambda answer: {"log": [answer]})
        .add_node("b", lambda state: {"log": ["b"]})
        .add_edge(START, "desk")
        .add_edge("desk", "b")
        .add_edge("b", END)
        .compile(store=store)
    )
    with Hall(driver).driving(graph, {"plan": "where is order 7"}) as driven:
        assert begun.wait(PATIENCE)
        driver.call(graph, "pause", driven.run_id, grace=0)
        gone.set()
        result = driven.end()
    assert [(item.why, item.path != "") for item in result.checkpoint.pending] == [
        ("breakpoint", False),
        ("breakpoint", True),
    ]
    assert (ran, len(model.requests)) == ([7], 1)
    assert (driver.resume(graph, result.checkpoint).output.log, ran) == (["shipped", "b"], [7])


# Paused twice, and when there is nothing to pause


def test_paused_twice_it_is_stopped_once(driver: Driver, store: Store) -> None:
    hall = Hall(driver)
    graph = chain(("a", hall.slow("a")), ("b", hall.quick("b"))).compile(store=store)
    with hall.driving(graph) as driven:
        hall.arrive()
        for reason in ("first", "second"):
            assert driver.call(graph, "pause", driven.run_id, reason=reason).status == "running"
        hall.gone.set()
        stop = driven.end().checkpoint
    assert [item.reason for item in stop.pending] == ["first"]
    before = rows(store)
    again = driver.call(graph, "pause", stop.run_id)
    assert (again.status, again.checkpoint, rows(store)) == ("suspended", stop, before), "it waits already"
    assert driver.resume(graph, stop).output.log == ["a", "b"]


def test_whoever_is_in_more_of_a_hurry_counts(driver: Driver, store: Store) -> None:
    hall = Hall(driver)
    graph = chain(("a", hall.slow("a")), ("b", hall.quick("b")), a=AGAIN).compile(store=store)
    with hall.driving(graph) as driven:
        hall.arrive()
        for grace in (None, 1_000, 0):
            assert driver.call(graph, "pause", driven.run_id, grace=grace).status == "running"
        result = driven.end()
        assert (hall.began, hall.ended) == (["a"], []), "nobody waits for it any more"
    assert asked(graph, result.checkpoint) == [("operator", "breakpoint")]
    hall.holds = False
    assert driver.resume(graph, result.checkpoint).output.log == ["a", "b"]


def test_a_run_that_was_cancelled_is_not_paused_any_more(driver: Driver, store: Store) -> None:
    hall = Hall(driver)
    graph = chain(("a", hall.slow("a")), ("b", hall.quick("b"))).compile(store=store)
    with hall.driving(graph) as driven:
        hall.arrive()
        assert driver.call(graph, "cancel", driven.run_id, reason="enough").status == "running"
        assert driver.call(graph, "pause", driven.run_id).status == "running"
        assert store.head(driven.run_id)[1].journal[-1].type == "halted"
        hall.gone.set()
        assert driven.end().status == "cancelled"


def test_a_run_of_an_agent_is_paused_by_an_agent_alone(driver: Driver, store: Store) -> None:
    agent: Agent[Any] = Agent(name="desk", model=ScriptedModel(["hello"]), store=store)
    graph = chain(("a", lambda state: None)).compile(store=store)
    begun = driver.step(agent, "hi").checkpoint
    before = rows(store)
    with pytest.raises(CheckpointError, match=f"run {begun.run_id} is of agent 'desk', and this is a graph"):
        driver.call(graph, "pause", begun)
    assert rows(store) == before
    assert driver.resume(agent, begun).output == "hello"


def test_paused_again_after_it_went_on(driver: Driver, store: Store) -> None:
    hall = Hall(driver)
    graph = chain(*((name, hall.quick(name)) for name in "abc")).compile(store=store)
    at = driver.step(graph, {}).checkpoint
    seen = []
    for _ in range(8):
        stop = driver.call(graph, "pause", at).checkpoint
        seen.append((asked(graph, stop), hall.began.copy()))
        assert driver.call(graph, "pause", stop).checkpoint == stop
        stepped = driver.step(graph, stop, approved=True)
        stepped = driver.step(graph, stepped.checkpoint) if stepped.status == "running" else stepped
        at = stepped.checkpoint
        if at.ended:
            break
    assert at.ended == "completed"
    assert {tuple(each) for each, _ in seen} == {(("operator", "breakpoint"),)}
    assert (hall.began, graph.state_of(at).log) == (["a", "b", "c"], ["a", "b", "c"])


def test_a_run_that_nobody_drives_is_stopped_where_it_is_and_nothing_is_judged(driver: Driver, store: Store) -> None:
    judged: list[str] = []

    def risky(state: Job) -> bool:
        judged.append(state.plan)
        return True

    graph = chain(("a", lambda state: {"log": ["a"]}), a={"requires_approval": driver.function(risky)})
    made = graph.compile(store=store)
    begun = driver.step(made, {"plan": "p"}).checkpoint
    stop = driver.call(made, "pause", begun.run_id, by="ada").checkpoint
    assert (asked(made, stop), judged) == ([("operator", "breakpoint")], [])
    waits = driver.resume(made, stop).checkpoint
    assert (asked(made, waits), judged) == ([("a", "approval")], ["p"])
    assert driver.resume(made, waits, approved=True).output.log == ["a"]


def test_a_run_that_failed_is_stopped_and_then_goes_on(driver: Driver, store: Store) -> None:
    down = [True]

    def a(state: Job) -> dict[str, Any]:
        if down:
            raise ConnectionError("down")
        return {"log": ["a"]}

    graph = chain(("a", driver.function(a))).compile(store=store)
    with pytest.raises(NodeFailed) as caught:
        driver.invoke(graph, {})
    assert caught.value.run_id is not None
    stop = driver.call(graph, "pause", caught.value.run_id).checkpoint
    assert asked(graph, stop) == [("operator", "breakpoint")]
    assert list(graph.stop_of(stop).rerun) == ["a"]
    down.clear()
    assert driver.resume(graph, stop).output.log == ["a"]


def test_a_run_that_waits_is_returned_and_one_that_has_ended_is_refused(driver: Driver, store: Store) -> None:
    graph = chain(("a", lambda state: {"log": ["a"]}), a={"requires_approval": True}).compile(store=store)
    stop = driver.invoke(graph, {}).checkpoint
    before = rows(store)
    for run in (stop, stop.id, stop.run_id, stop.branch_id):
        result = driver.call(graph, "pause", run, grace=0)
        assert (result.status, result.checkpoint) == ("suspended", stop)
    assert rows(store) == before
    ended = driver.resume(graph, stop, approved=True).checkpoint
    before = rows(store)
    with pytest.raises(CheckpointAlreadyResumed, match="has ended"):
        driver.call(graph, "pause", ended.run_id)
    with pytest.raises(CheckpointNotFound):
        driver.call(graph, "pause", "run_nowhere")
    assert rows(store) == before


@pytest.mark.parametrize("grace", [-1, float("inf"), float("nan"), "1", True])
def test_a_grace_time_that_is_none_and_a_reason_that_is_none(driver: Driver, store: Store, grace: Any) -> None:
    graph = chain(("a", lambda state: None)).compile(store=store)
    begun = driver.step(graph, {}).checkpoint
    before = rows(store)
    with pytest.raises(ConfigurationError, match="grace is a number of seconds, 0 or more, or None"):
        driver.call(graph, "pause", begun, grace=grace)
    with pytest.raises(InvalidDecision, match="reason is text"):
        driver.call(graph, "pause", begun, reason=3)
    assert rows(store) == before


def test_who_lets_a_stopped_run_go_on_or_does_not_is_in_the_record(driver: Driver, store: Store) -> None:
    graph = chain(("a", lambda state: {"log": ["a"]})).compile(store=store)
    ends = {}
    for answer in (Approve(), Reject(reason="not today")):
        stop = driver.call(graph, "pause", driver.step(graph, {}).checkpoint, by="ada", reason="look").checkpoint
        result = driver.resume(graph, stop, decisions={stop.pending[0].id: answer}, by="bert")
        ends[answer.__class__.__name__] = (result.status, graph.state_of(result.checkpoint).log)
        assert [(each.kind, each.by and each.by.id) for each in result.checkpoint.decisions] == [
            ("approve" if isinstance(answer, Approve) else "reject", "bert")
        ]
    assert ends == {"Approve": ("completed", ["a"]), "Reject": ("rejected", [])}
    stop = driver.call(graph, "pause", driver.step(graph, {}).checkpoint).checkpoint
    with pytest.raises(InvalidDecision, match="approve it to go on, or reject it"):
        driver.resume(graph, stop, decisions={stop.pending[0].id: Respond(content={})})


def test_a_stopped_run_may_be_given_another_state(driver: Driver, store: Store) -> None:
    graph = chain(("a", lambda state: {"log": [state.plan]})).compile(store=store)
    stop = driver.call(graph, "pause", driver.step(graph, {"plan": "p"}).checkpoint).checkpoint
    assert driver.resume(graph, stop, update={"plan": "q"}).output.log == ["q"]


# From another task


def test_another_task_of_the_same_event_loop_stops_it(store: Store) -> None:
    async def main() -> None:
        arrived, gone = asyncio.Event(), asyncio.Event()
        began: list[str] = []

        async def a(state: Job) -> dict[str, Any]:
            began.append("a")
            arrived.set()
            await gone.wait()
            return {"log": ["a"]}

        async def b(state: Job) -> dict[str, Any]:
            began.append("b")
            return {"log": ["b"]}

        graph = chain(("a", a), ("b", b), a=AGAIN).compile(store=store)
        for grace in (0, None):
            arrived.clear()
            gone.clear()
            began.clear()
            before = {branch.id for branch in store.branches()}
            task = asyncio.create_task(graph.ainvoke({}))
            await asyncio.wait_for(arrived.wait(), PATIENCE)
            (run_id,) = {branch.id for branch in store.branches()} - before
            assert (await graph.apause(run_id, grace=grace)).status == "running"
            if grace is None:
                gone.set()
            result = await asyncio.wait_for(task, PATIENCE)
            stop = graph.stop_of(result.checkpoint)
            assert (result.status, list(stop.rerun)) == ("suspended", ["a"] if grace == 0 else [])
            gone.set()
            over = await graph.aresume(result.checkpoint)
            assert (over.output.log, began) == (["a", "b"], ["a", "a", "b"] if grace == 0 else ["a", "b"])

    asyncio.run(main())


# From another process


WORKER = """
import asyncio, pathlib, sys, time
from typing import Annotated
from pydantic import BaseModel
from phronomy import SQLiteStore
from phronomy.graph import END, START, StateGraph, append


class Job(BaseModel):
    plan: str = ""
    log: Annotated[list[str], append] = []


def noted(name):
    with pathlib.Path("ran.txt").open("a") as file:
        file.write(name + "\\n")


def held():
    return pathlib.Path("hold").exists()


def make(store, is_async, idempotent):
    if is_async:
        async def a(state):
            noted("a")
            while held():
                await asyncio.sleep(0.01)
            return {"log": ["a"]}
    else:
        def a(state):
            noted("a")
            while held():
                time.sleep(0.01)
            return {"log": ["a"]}

    def b(state):
        noted("b")
        return {"log": ["b"]}

    graph = StateGraph(Job, name="works").add_node("a", a, idempotent=idempotent).add_node("b", b)
    return graph.add_edge(START, "a").add_edge("a", "b").add_edge("b", END).compile(store=store)


if __name__ == "__main__":
    is_async, idempotent = sys.argv[1] == "async", sys.argv[2] == "True"
    with SQLiteStore("runs.db", lease=0.6) as store:
        graph = make(store, is_async, idempotent)
        result = asyncio.run(graph.ainvoke({"plan": "p"})) if is_async else graph.invoke({"plan": "p"})
        print(result.status, flush=True)
"""


class Elsewhere:
    """Another process, which drives a run of the same file."""

    def __init__(self, driver: Driver, folder: Path, *, idempotent: bool) -> None:
        self.folder = folder
        (folder / "worker.py").write_text(WORKER)
        (folder / "hold").touch()
        command = [sys.executable, "worker.py", driver.name, str(idempotent)]
        self.store = SQLiteStore(folder / "runs.db", lease=0.6)
        names: dict[str, Any] = {"__name__": "worker"}
        exec(compile(WORKER, "worker.py", "exec", dont_inherit=True), names)
        self.graph = names["make"](self.store, driver.is_async, idempotent)
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment()
        )

    def ran(self) -> list[str]:
        path = self.folder / "ran.txt"
        return path.read_text().split() if path.exists() else []

    def arrive(self) -> str:
        """Wait until its first node is in flight; the run."""
        deadline = time.monotonic() + PATIENCE
        while not self.ran():
            assert time.monotonic() < deadline
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)
        (branch,) = self.store.branches()
        return branch.id

    def close(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.communicate()
        self.store.close()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}


@pytest.fixture
def elsewhere(
    driver: Driver, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Elsewhere]:
    monkeypatch.chdir(tmp_path)
    there = Elsewhere(driver, tmp_path, idempotent=getattr(request, "param", True))
    try:
        yield there
    finally:
        there.close()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("elsewhere", "grace"),
    [(True, None), (True, 0), (True, 0.1), (False, None), (False, 0)],
    indirect=["elsewhere"],
    ids=["waits", "leaves-idempotent", "leaves-after-a-while", "waits-not-idempotent", "leaves-not-idempotent"],
)
def test_another_process_is_told_and_stops(driver: Driver, elsewhere: Elsewhere, grace: float | None) -> None:
    run_id = elsewhere.arrive()
    told = driver.call(elsewhere.graph, "pause", run_id, grace=grace, by="ada")
    assert told.status == "running"
    if grace is None:
        (elsewhere.folder / "hold").unlink()
    stop = elsewhere.store.wait(run_id, timeout=PATIENCE, stops=True)
    if grace is not None:
        assert elsewhere.ran() == ["a"]
        (elsewhere.folder / "hold").unlink()
    printed, errors = elsewhere.process.communicate(timeout=PATIENCE)
    assert (printed, errors) == ("suspended\n", "")
    told_of = asked(elsewhere.graph, stop)
    idempotent = elsewhere.graph.spec.nodes["a"].idempotent
    unknown = [("a", "outcome_unknown")] if grace is not None and not idempotent else []
    assert told_of == [("operator", "breakpoint"), *unknown]
    over = driver.resume(elsewhere.graph, stop, decisions={item.id: Approve() for item in stop.pending}, by="bert")
    assert over.output.log == ["a", "b"]
    assert elsewhere.ran() == (["a", "b"] if grace is None else ["a", "a", "b"])


@pytest.mark.parametrize("elsewhere", [True, False], indirect=True, ids=["idempotent", "not-idempotent"])
def test_a_worker_that_dies_before_it_has_stopped_is_recovered_at_the_stop(
    driver: Driver, elsewhere: Elsewhere
) -> None:
    run_id = elsewhere.arrive()
    driver.call(elsewhere.graph, "pause", run_id, reason="look")
    driver.call(elsewhere.graph, "pause", run_id, reason="look again")
    elsewhere.process.kill()
    elsewhere.process.wait(PATIENCE)
    (elsewhere.folder / "hold").unlink()
    elsewhere.store.clock = lambda: time.time() + 60  # its lease is over
    result = driver.recover(elsewhere.graph, run_id)
    idempotent = elsewhere.graph.spec.nodes["a"].idempotent
    assert result.status == "suspended"
    unknown = [] if idempotent else [("a", "outcome_unknown")]
    assert asked(elsewhere.graph, result.checkpoint) == [("operator", "breakpoint"), *unknown]
    assert result.checkpoint.pending[0].reason == "look"
    assert elsewhere.ran() == ["a"], "it is stopped, so nothing is run again yet"
    stop = result.checkpoint
    over = driver.resume(elsewhere.graph, stop, decisions={item.id: Approve() for item in stop.pending})
    assert (over.output.log, elsewhere.ran()) == (["a", "b"], ["a", "a", "b"])


def test_a_run_that_is_stopped_before_its_route_has_said_where_to_begin_begins_there_afterwards(
    driver: Driver, store: Store
) -> None:
    graph = (
        StateGraph(Job)
        .add_node("a", lambda _: {"log": ["a"]})
        .add_conditional_edges(START, lambda _: "a", ["a"])
        .add_edge("a", END)
        .compile(store=store)
    )
    begun = driver.step(graph, {}).checkpoint
    assert (begun.turn, begun.calls) == (0, ())
    stopped = driver.call(graph, "pause", begun).checkpoint
    assert [item.why for item in stopped.pending] == ["breakpoint"]
    forked = driver.fork(graph, stopped)
    for each in (stopped, forked):
        result = driver.resume(graph, each)
        assert (result.status, result.output.log) == ("completed", ["a"])

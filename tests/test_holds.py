"""Holds: a call waits at a breakpoint, and is told elsewhere how it goes on, before, during or after the wait begins: exactly once."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from drivers import ASYNC, DRIVERS, PATIENCE, SYNC, Driver, outline, run
from stop_scenes import EVERY, Arrivals, Case, desk, elsewhere, holding, nested, stops_of, works

import phronomy
from phronomy import (
    Agent,
    Approve,
    AsyncRequired,
    Breakpoint,
    BreakpointHit,
    Breakpoints,
    BreakpointTimeout,
    CheckpointAlreadyResumed,
    ConfigurationError,
    Hold,
    Hooks,
    InvalidDecision,
    Limits,
    Reject,
    Respond,
    Skip,
    Store,
    UnknownPending,
    tool,
)
from phronomy.engine import stop_points
from phronomy.engine.run import Runner
from phronomy.graph import END, START, StateGraph
from phronomy.runs import waiting
from phronomy.testing import ScriptedModel, call

TOOL = [Breakpoint("tool")]


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


@pytest.fixture(autouse=True)
def nobody_looks_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said in this process is heard at once, or the test hangs."""
    monkeypatch.setattr(waiting, "POLL", 3600.0)


def settled(hold: Hold) -> list[tuple[str, str]]:
    return [(each.hit.type, each.how) for each in hold.settled]


# An answer is seen, once


def test_a_call_waits_until_somebody_lets_it_go_on(driver: Driver, store: Store) -> None:
    paid: list[int] = []
    model = ScriptedModel.by_turn([call("pay", {"n": 7}), "done"])
    agent = desk(store, model=model, paid=paid)
    hold, arrivals = holding()
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=TOOL, hold=hold)) as waits:
        hit = arrivals.next()
        assert (hit.type, hit.tool, hit.args, hit.next, hold.pending) == (
            "pre_tool_call",
            "pay",
            {"n": 7},
            ("run pay",),
            [hit],
        )
        assert [row.pending_id for row in store.pending_rows()] == [hit.id], "others see that it waits"
        assert (waits.done(), paid, len(model.requests)) == (False, [], 1), "nothing behind it has begun"
        hold.resume_breakpoint(hit.id, by="ann")
        assert (hold.pending, settled(hold)) == ([], [("pre_tool_call", "approved")])
        result = waits.result(PATIENCE)
    assert (result.status, result.output, paid) == ("completed", "done", [7])
    [decision] = result.checkpoint.decisions
    assert (decision.kind, decision.by and decision.by.id, decision.channel) == ("approve", "ann", "breakpoint")
    assert (hold.pending, settled(hold)) == ([], [("pre_tool_call", "approved")])
    assert outline(result) == outline(desk(None).invoke("go"))


@pytest.mark.parametrize("way", ["hold", "agent", "another agent", "id"])
def test_an_answer_comes_through_the_hold_or_the_store(driver: Driver, store: Store, way: str) -> None:
    hold, arrivals = holding()
    agent = desk(store, paid=(paid := []))
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=TOOL, hold=hold)) as waits:
        hit = arrivals.next()
        if way == "hold":
            run(hold.aresume_breakpoint(hit.id))
        else:
            other = desk(store) if way == "another agent" else agent
            at = hit.checkpoint_id if way == "id" else store.load(hit.checkpoint_id)
            assert other.resume(at, decisions={hit.id: Approve()}).status == "running", "the worker carries it out"
        assert waits.result(PATIENCE).output == "done"
    assert (paid, settled(hold)) == ([7], [("pre_tool_call", "approved")])


def test_an_answer_without_decisions_is_for_whoever_waits_there(store: Store) -> None:
    hold, arrivals = holding()
    agent = desk(store)
    with elsewhere(lambda: agent.invoke("go", breakpoints=TOOL, hold=hold)) as waits:
        assert agent.resume(arrivals.next().checkpoint_id).status == "running"
        assert waits.result(PATIENCE).output == "done"


@pytest.mark.parametrize(("point", "stops"), [("pre_tool_call", 1), ("pre_model_call", 2), ("post_run", 2)])
def test_a_message_is_no_answer(driver: Driver, store: Store, point: Any, stops: int) -> None:
    """The run holds on, and the model reads the message when somebody has let it go on."""
    hold, arrivals = holding()
    agent = desk(store, model=ScriptedModel([call("pay", {"n": 7}), "done", "done"]))
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=[Breakpoint(point)], hold=hold)) as waits:
        hit = arrivals.next()
        sent = agent.send(store.branches()[0].id, "More.", by="ann")
        assert [item.id for item in sent.pending] == [each.id for each in hold.pending] == [hit.id]
        hold.resume_breakpoint(hit.id, by="bob")
        for _ in range(stops - 1):
            hold.resume_breakpoint(arrivals.next().id, by="bob")
        result = waits.result(PATIENCE)
    assert [each.text for each in result.messages if each.role == "user"] == ["go", "More."]
    assert [each.by and each.by.id for each in result.checkpoint.decisions] == ["bob"] * stops
    assert settled(hold) == [(point, "approved")] * stops


ANSWER = """
import sys
from phronomy import Agent, Approve, SQLiteStore, tool
from phronomy.graph import END, START, StateGraph
from phronomy.testing import ScriptedModel

@tool
def pay(n: int = 1) -> str:
    '''Pay.'''
    raise AssertionError("the worker runs it")

with SQLiteStore(sys.argv[1]) as store:
    agent = Agent(name="desk", model=ScriptedModel([]), tools=[pay], store=store)
    print(agent.resume(sys.argv[2], decisions={sys.argv[3]: Approve(args={"n": 3})}, by="ann").status)
"""


@pytest.mark.few(1)
def test_an_answer_comes_from_another_process(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL", 0.05)
    hold, arrivals = holding()
    path = {"PYTHONPATH": str(Path(phronomy.__file__).parents[1])}
    with phronomy.SQLiteStore(tmp_path / "runs.db") as store:
        agent = desk(store, paid=(paid := []))
        with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=TOOL, hold=hold)) as waits:
            hit = arrivals.next()
            command = [sys.executable, "-c", ANSWER, str(tmp_path / "runs.db"), hit.checkpoint_id, hit.id]
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **path}, check=False)
            assert (done.stderr, done.stdout) == ("", "running\n")
            assert (waits.result(PATIENCE).output, paid) == ("done", [3])
    assert settled(hold) == [("pre_tool_call", "approved")]


@pytest.mark.parametrize("way", ["value", "hold", "agent"])
def test_a_handler_answers_at_once(driver: Driver, store: Store, way: str) -> None:
    """The wait has not begun when the answer comes: it is seen all the same."""
    hits: list[BreakpointHit] = []

    def handler(hit: BreakpointHit) -> Any:
        hits.append(hit)
        if way == "value":
            return Approve()
        if way == "hold":
            hold.resume_breakpoint(hit.id)
        else:
            agent.resume(hit.checkpoint_id, decisions={hit.id: Approve()})
        return None

    hold = Hold(on_breakpoint=handler if way != "value" else driver.function(handler), timeout=PATIENCE)
    agent = desk(store, paid=(paid := []))
    result = driver.invoke(agent, "go", breakpoints=[Breakpoint("tool"), Breakpoint("post_run")], hold=hold)
    assert (result.output, paid, [hit.type for hit in hits]) == ("done", [7], ["pre_tool_call", "post_run"])
    assert settled(hold) == [("pre_tool_call", "approved"), ("post_run", "approved")]


@pytest.mark.parametrize(
    ("answer", "status", "how"),
    [
        (Approve(args={"n": 3}), "completed", "approved"),
        (Reject(reason="no"), "completed", "rejected"),
        (Reject(then="end"), "rejected", "rejected"),
        (Respond(content="by hand"), "completed", "responded"),
        (Skip(), "completed", "skipped"),
    ],
    ids=["edit", "reject", "end", "respond", "skip"],
)
def test_a_handler_answers_as_anybody_does(driver: Driver, answer: Any, status: str, how: str) -> None:
    hold = Hold(on_breakpoint=lambda hit: answer)
    agent = desk(None, paid=(paid := []))
    result = driver.invoke(agent, "go", breakpoints=TOOL, hold=hold)
    assert (result.status, settled(hold)) == (status, [("pre_tool_call", how)])
    assert paid == ([3] if isinstance(answer, Approve) else [])


def test_a_handler_that_raises_or_answers_nonsense_is_told_of_and_the_call_waits_on(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    arrivals = Arrivals()
    answers: list[Any] = [LookupError("secret"), True, "yes", Approve(args={"n": "many"}), Approve(args={"m": 1})]

    def handler(hit: BreakpointHit) -> Any:
        arrivals(hit)
        answer = answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    while answers:
        caplog.clear()
        hold = Hold(on_breakpoint=handler, timeout=PATIENCE)
        agent = desk(None, paid=(paid := []))
        with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=TOOL, hold=hold)) as waits:  # noqa: B023
            hit = arrivals.next()
            hold.resume_breakpoint(hit.id, args={"n": 5})
            assert (waits.result(PATIENCE).output, paid) == ("done", [5])
        told = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(told) == 1
        assert hit.id in told[0]
        assert "secret" not in told[0]
        answers.pop(0)


def test_whoever_reads_a_stream_answers_while_it_stands_at_the_event(store: Store) -> None:
    """The event is given before the wait begins, and what it tells of can be answered from then on."""
    hold = Hold(timeout=PATIENCE)
    agent = desk(store, paid=(paid := []))
    for event in agent.stream("go", breakpoints=TOOL, hold=hold):
        if event.type == "approval_requested":
            assert [hit.id for hit in hold.pending] == [event.pending.id]
            hold.resume_breakpoint(event.pending.id)
    assert paid == [7]

    async def main() -> None:
        async for event in agent.astream("go", breakpoints=TOOL, hold=hold):
            if event.type == "approval_requested":
                await hold.aresume_breakpoint(event.pending.id)

    run(main())
    assert (paid, settled(hold)) == ([7, 7], [("pre_tool_call", "approved")] * 2)


@pytest.mark.parametrize("when", ["before", "at the event", "while it waits"])
def test_an_event_lets_the_run_go_on(store: Store, when: str) -> None:
    paid: list[int] = []
    agent = desk(store, [call("pay", {"n": 1}), call("pay", {"n": 2})], "done", paid=paid)
    go_on = threading.Event()

    def shown(hit: BreakpointHit) -> None:
        if when == "while it waits":
            threading.Thread(target=go_on.set).start()

    hold = Hold(resume_event=go_on, timeout=PATIENCE, on_breakpoint=shown)
    if when == "before":
        go_on.set()
    stream = agent.stream("go", breakpoints=TOOL, hold=hold)
    for event in stream:
        if event.type == "approval_requested" and when == "at the event":
            go_on.set()
    assert (stream.result.output, sorted(paid)) == ("done", [1, 2]), "one event lets all go on that wait"
    assert settled(hold) == [("pre_tool_call", "approved")] * 2
    assert {decision.channel for decision in stream.result.checkpoint.decisions} == {"resume_event"}


@pytest.mark.parametrize("when", ["before", "at the event", "while it waits"])
def test_an_event_of_asyncio_lets_the_run_go_on(store: Store, when: str) -> None:
    async def main() -> None:
        paid: list[int] = []
        agent = desk(store, call("pay", {"n": 1}), call("pay", {"n": 2}), "done", paid=paid)
        go_on = asyncio.Event()
        loop = asyncio.get_running_loop()

        def shown(hit: BreakpointHit) -> None:
            if when == "while it waits":
                loop.call_soon_threadsafe(go_on.set)

        hold = Hold(resume_event=go_on, timeout=PATIENCE, on_breakpoint=shown)
        stream = agent.astream("go", breakpoints=TOOL, hold=hold)
        async for event in stream:
            if (event.type, when) in (("approval_requested", "at the event"), ("model_asked", "before")):
                go_on.set()
            if event.type == "run_started" and when == "before":
                go_on.set()
            if event.type == "approval_requested" and when == "before":
                go_on.set()
        assert (stream.result.output, paid) == ("done", [1, 2])
        assert settled(hold) == [("pre_tool_call", "approved")] * 2

    run(main())


def test_of_many_that_answer_one_counts(driver: Driver, store: Store) -> None:
    hold, arrivals = holding()
    agent = desk(store, paid=(paid := []))
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=TOOL, hold=hold)) as waits:
        hit = arrivals.next()
        start, said = threading.Barrier(32), []

        def decide(n: int) -> None:
            start.wait()
            try:
                hold.resume_breakpoint(hit.id, args={"n": n})
                said.append(n)
            except (CheckpointAlreadyResumed, UnknownPending):
                pass

        threads = [threading.Thread(target=decide, args=(n,)) for n in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert waits.result(PATIENCE).output == "done"
    assert (paid, len(said), settled(hold)) == (said, 1, [("pre_tool_call", "approved")])


# Edits


def test_what_a_hold_can_change(driver: Driver, store: Store) -> None:
    hold, arrivals = holding()
    model = ScriptedModel.by_turn([call("pay", {"n": 7}), "done"])
    agent = desk(store, model=model, paid=(paid := []))
    stops = [Breakpoint("pre_agent_run"), Breakpoint("tool"), Breakpoint("post_run")]
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=stops, hold=hold)) as waits:
        hold.resume_breakpoint(arrivals.next().id, input="stay")
        hold.resume_breakpoint(arrivals.next().id, args={"n": 3})
        hold.resume_breakpoint(arrivals.next().id, skip=True)
        result = waits.result(PATIENCE)
    assert (model.requests[0].messages[0].text, paid) == ("stay", [3])
    assert (result.status, result.output) == ("skipped", None)
    assert [how for _, how in settled(hold)] == ["approved", "approved", "skipped"]


def test_an_empty_input_is_one(driver: Driver) -> None:
    hold, arrivals = holding()
    model = ScriptedModel.by_turn(["done"])
    with elsewhere(
        lambda: driver.invoke(desk(None, model=model), "go", breakpoints=[Breakpoint("pre_agent_run")], hold=hold)
    ) as waits:
        hold.resume_breakpoint(arrivals.next().id, input="")
        assert waits.result(PATIENCE).checkpoint.input == ""
    assert model.requests[0].messages[0].text == ""


def test_a_hold_changes_the_state_of_a_graph(driver: Driver, store: Store) -> None:
    hold, arrivals = holding()
    graph = works(store=store)
    stop = [Breakpoint("pre_node", nodes=["b"])]
    with elsewhere(lambda: driver.invoke(graph, {"n": 1}, breakpoints=stop, hold=hold)) as waits:
        hit = arrivals.next()
        assert (hit.node, hit.state) == ("b", {"n": 1, "log": ["a 1"]})
        hold.resume_breakpoint(hit.id, state={"n": 9})
        assert waits.result(PATIENCE).output.log == ["a 1", "b 9", "c 9"]


def test_what_a_hold_cannot_change_is_refused_and_it_waits_on(driver: Driver) -> None:
    hold, arrivals = holding()
    agent = desk(None, paid=(paid := []))
    stops = [Breakpoint("pre_agent_run"), Breakpoint("tool")]
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=stops, hold=hold)) as waits:
        wrong: list[dict[str, Any]] = [
            {"skip": True, "input": "x"},
            {"skip": 1},
            {"args": {"n": 1}},
            {"input": object()},
            {"input": 5},
            {"input": float("nan")},
        ]
        hit = arrivals.next()
        for edit in wrong:
            with pytest.raises(InvalidDecision):
                hold.resume_breakpoint(hit.id, **edit)
        with pytest.raises(ConfigurationError, match="update is for graphs"):
            hold.resume_breakpoint(hit.id, state={"n": 1})
        hold.resume_breakpoint(hit.id)
        hit = arrivals.next()
        more: list[dict[str, Any]] = [
            {"input": "x"},
            {"args": {"m": 1}},
            {"args": {"n": "many"}},
            {"args": {"n": object()}},
        ]
        for edit in more:
            with pytest.raises(InvalidDecision):
                hold.resume_breakpoint(hit.id, **edit)
        assert (hold.pending, paid) == ([hit], [])
        hold.resume_breakpoint(hit.id)
        assert (waits.result(PATIENCE).output, paid) == ("done", [7])


# Ends


def test_nobody_answers_in_time(driver: Driver, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []

    def backup() -> str:
        """The other way."""
        ran.append("backup")
        return "x"

    def work() -> str:
        """Work."""
        ran.append("work")
        return "x"

    model = ScriptedModel.by_turn([call("work"), "done"])
    fallback = (tool(driver.function(backup)),)
    agent = Agent(
        name="desk",
        model=model,
        store=store,
        tools=[tool(driver.function(work), fallback=fallback, retries=3, idempotent=True)],
    )
    hold = Hold(timeout=0.05)
    with pytest.raises(BreakpointTimeout, match="in time, so it is cancelled") as late:
        driver.invoke(agent, "go", breakpoints=TOOL, hold=hold)
    assert late.value.result is not None
    result = late.value.result
    assert (result.status, result.checkpoint.pending, store.pending_rows()) == ("cancelled", (), [])
    assert late.value.pending_ids == tuple(decision.pending_id for decision in result.checkpoint.decisions)
    assert [decision.kind for decision in result.checkpoint.decisions] == ["expire"]
    assert (ran, len(model.requests)) == ([], 1)
    assert (hold.pending, settled(hold)) == ([], [("pre_tool_call", "expired")])
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(agent, result.checkpoint)


@pytest.mark.parametrize("point", ["pre_input_guardrails", "pre_agent_run", "post_tool_call", "post_run"])
def test_nobody_answers_in_time_at_a_stop_of_the_run(driver: Driver, store: Store, point: Any) -> None:
    hold = Hold(timeout=0.05)
    with pytest.raises(BreakpointTimeout) as late:
        driver.invoke(desk(store), "go", breakpoints=[Breakpoint(point)], hold=hold)
    assert late.value.result is not None
    assert (late.value.result.status, store.pending_rows()) == ("cancelled", [])
    assert (hold.pending, settled(hold)) == ([], [(point, "expired")])
    assert late.value.result.checkpoint.ending is not None
    assert late.value.result.checkpoint.ending.reason == "nobody answered a breakpoint within 0.05 s"


def test_nobody_answers_one_of_several_in_time(driver: Driver, store: Store) -> None:
    agent = desk(store, [call("pay", {"n": n}) for n in (1, 2, 3)], "done", paid=(paid := []))
    stops = [Breakpoint("post_tool_call", when="args['n'] == 1"), Breakpoint("tool", when="args['n'] > 1")]
    hold = Hold(timeout=0.05)
    with pytest.raises(BreakpointTimeout) as late:
        driver.invoke(agent, "go", breakpoints=stops, hold=hold)
    assert late.value.result is not None
    assert (late.value.result.status, late.value.result.checkpoint.pending, paid) == ("cancelled", (), [1])
    assert sorted(how for _, how in settled(hold)) == ["cancelled", "cancelled", "expired"]


def test_an_answer_at_the_last_moment_counts(driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is over, and somebody answers before that is written: the answer was first."""
    hold = Hold(timeout=0.01)
    agent = desk(store, paid=(paid := []))
    late = waiting.Waiting._too_late
    said: list[str] = []

    def too_late(self: Any, runner: Any, until: float) -> Any:
        outcomes = late(self, runner, until)
        if outcomes and not said:
            said.append(hold.pending[0].id)
            desk(store).resume(hold.pending[0].checkpoint_id, decisions={said[0]: Approve()})
        return outcomes

    monkeypatch.setattr(waiting.Waiting, "_too_late", too_late)
    result = driver.invoke(agent, "go", breakpoints=TOOL, hold=hold)
    assert (result.output, paid, len(said)) == ("done", [7], 1)
    assert settled(hold) == [("pre_tool_call", "approved")]


def test_a_stop_is_cancelled_with_a_reason(driver: Driver, store: Store) -> None:
    for point in ("pre_agent_run", "pre_tool_call", "post_tool_call"):
        hold, arrivals = holding()
        agent = desk(store, paid=(paid := []))
        with elsewhere(
            lambda: driver.invoke(agent, "go", breakpoints=[Breakpoint(point)], hold=hold)  # noqa: B023
        ) as waits:
            hit = arrivals.next()
            if point == "pre_agent_run":
                hold.cancel_breakpoint(hit.id, "enough", by="ann")
            else:
                run(hold.acancel_breakpoint(hit.id, "enough", by="ann"))
            result = waits.result(PATIENCE)
        assert (result.status, result.checkpoint.pending) == ("cancelled", ())
        ending = result.checkpoint.ending
        assert ending is not None
        assert (ending.reason, ending.by and ending.by.id) == ("enough", "ann")
        assert (paid, settled(hold)) == ([7] if point == "post_tool_call" else [], [(point, "cancelled")])


def test_what_is_unknown_or_settled_is_refused_and_histories_stay(driver: Driver) -> None:
    hold, arrivals = holding()
    agent = desk(None, paid=(paid := []))
    stops = [Breakpoint("tool"), Breakpoint("post_run")]
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=stops, hold=hold)) as waits:
        first = arrivals.next()
        hold.resume_breakpoint(first.id)
        last = arrivals.next()
        for id, why in ((first.id, "it was approved"), ("nothing", "it is not known here"), ("x" * 500, "not known")):
            for wrong in (hold.resume_breakpoint, hold.cancel_breakpoint):
                with pytest.raises(UnknownPending, match=why):
                    wrong(id)
        assert ([hit.id for hit in hold.pending], settled(hold)) == ([last.id], [("pre_tool_call", "approved")])
        hold.resume_breakpoint(last.id)
        assert (waits.result(PATIENCE).status, paid) == ("completed", [7])


def test_history_is_bounded_and_what_waits_is_not() -> None:
    calls = [call("pay", {"n": n}) for n in range(250)]
    hold, arrivals = holding(history=200)
    agent = desk(None, calls, "done", max_parallel=4)
    with elsewhere(lambda: agent.invoke("go", breakpoints=TOOL, hold=hold)) as waits:
        hits = [arrivals.next() for _ in calls]
        assert [hit.id for hit in hold.pending] == [hit.id for hit in hits]
        agent.resume(hits[0].checkpoint_id)
        assert waits.result(PATIENCE).output == "done"
    assert ([each.hit.id for each in hold.settled], hold.pending) == ([hit.id for hit in hits[-200:]], [])
    assert Hold(history=0).settled == []


def test_what_comes_next_is_looked_up_once_for_all_the_calls_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a step for each of them: once for each call would make the wait of many calls grow with the cube of their number."""
    looked: list[Runner] = []

    def counted(runner: Runner) -> tuple[str, ...]:
        looked.append(runner)
        return following(runner)

    following = stop_points._next
    monkeypatch.setattr(stop_points, "_next", counted)
    hold, arrivals = holding()
    agent = desk(None, [call("pay", {"n": n}) for n in range(20)], "done", max_parallel=4)
    with elsewhere(lambda: agent.invoke("go", breakpoints=TOOL, hold=hold)) as waits:
        hits = [arrivals.next() for _ in range(20)]
        assert {hit.next for hit in hits} == {("run pay",) * 4}
        assert len(looked) == 1
        agent.resume(hits[0].checkpoint_id)
        assert waits.result(PATIENCE).output == "done"


def test_two_agents_stand_at_stops_at_once_and_one_goes_on(driver: Driver, store: Store) -> None:
    hold, arrivals = holding()
    one, other = desk(store, name="one"), desk(store, name="other")
    with (
        elsewhere(lambda: driver.invoke(one, "go", breakpoints=TOOL, hold=hold)) as first,
        elsewhere(lambda: driver.invoke(other, "go", breakpoints=TOOL, hold=hold)) as second,
    ):
        hits = {hit.agent: hit for hit in (arrivals.next(), arrivals.next())}
        assert {hit.agent for hit in hold.pending} == {"one", "other"}
        hold.resume_breakpoint(hits["one"].id)
        assert first.result(PATIENCE).output == "done"
        assert (hold.pending, second.done()) == ([hits["other"]], False)
        hold.resume_breakpoint(hits["other"].id)
        assert second.result(PATIENCE).output == "done"


# Waiting is no work


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("point", ["pre_agent_run", "pre_tool_call", "post_tool_call", "post_run"])
def test_no_limit_and_no_timeout_counts_the_wait(driver: Driver, point: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    hold = Hold(timeout=PATIENCE)

    def wait(*_: Any) -> None:
        clock.now += 3600
        hold.resume_breakpoint(hold.pending[0].id)

    async def await_(*_: Any) -> None:
        clock.now += 3600
        await hold.aresume_breakpoint(hold.pending[0].id)

    monkeypatch.setattr("phronomy.engine.clock.time", clock)
    monkeypatch.setattr(waiting, "time", clock)
    monkeypatch.setattr(waiting, "pause", wait)
    monkeypatch.setattr(waiting, "apause", await_)

    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    agent = desk(None, tools=[tool(driver.function(pay), timeout=1.0)], limits=Limits(seconds=1.0))
    result = driver.invoke(agent, "go", breakpoints=[Breakpoint(point)], hold=hold)
    assert (result.output, result.checkpoint.elapsed, clock.now) == ("done", 0, 3600)


def test_a_run_that_waits_holds_up_no_other() -> None:
    hold, arrivals = holding()
    agent = desk(None, max_parallel=1)
    with elsewhere(lambda: agent.invoke("go", breakpoints=TOOL, hold=hold)) as waits:
        hit = arrivals.next()
        assert agent.invoke("go").output == "done"
        assert agent.invoke("go", breakpoints=TOOL).suspended
        hold.resume_breakpoint(hit.id)
        assert waits.result(PATIENCE).output == "done"


# Left


def test_a_call_that_is_interrupted_while_it_waits_leaves_a_run_that_can_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting, "pause", interrupt)
    for point in ("pre_agent_run", "pre_tool_call", "post_tool_call", "post_run"):
        hold = Hold()
        agent = desk(store, paid=(paid := []))
        with pytest.raises(KeyboardInterrupt):
            agent.invoke("go", breakpoints=[Breakpoint(point)], hold=hold)
        [branch] = [each for each in store.branches() if each.status == "suspended"]
        assert (branch.owner, hold.pending, settled(hold)) == (None, [], [(point, "left")])
        checkpoint = store.head(branch.id)[1]
        assert stops_of(checkpoint) == [point]
        assert (desk(store, paid=paid).resume(checkpoint).output, paid) == ("done", [7])


def test_a_worker_that_is_killed_while_it_waits_leaves_a_run_that_can_go_on(driver: Driver, tmp_path: Path) -> None:
    """The store as it is while a call waits, and an hour later, with nobody there."""
    hold, arrivals = holding()
    here, there = tmp_path / "runs.db", tmp_path / "later.db"
    with phronomy.SQLiteStore(here) as store:
        agent = desk(store)
        with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=TOOL, hold=hold)) as waits:
            hit = arrivals.next()
            with closing(sqlite3.connect(here)) as source, closing(sqlite3.connect(there)) as copy:
                source.backup(copy)
            hold.resume_breakpoint(hit.id)
            assert waits.result(PATIENCE).output == "done"
    with phronomy.SQLiteStore(there, clock=lambda: time.time() + 3600) as store:
        agent = desk(store, paid=(paid := []))
        assert [row.pending_id for row in store.pending_rows()] == [hit.id]
        [recovery] = driver.call(agent, "recover_all")
        assert recovery.result is not None
        assert (recovery.result.status, stops_of(recovery.result.checkpoint)) == ("suspended", ["pre_tool_call"])
        assert [branch.status for branch in store.branches()] == ["suspended"]
        assert (driver.resume(agent, hit.checkpoint_id).output, paid) == ("done", [7])


def test_a_task_that_is_cancelled_while_it_waits_leaves_a_run_that_can_go_on(store: Store) -> None:
    hold, arrivals = holding()
    agent = desk(store, paid=(paid := []))

    async def main() -> None:
        task = asyncio.ensure_future(agent.ainvoke("go", breakpoints=TOOL, hold=hold))
        hit = await asyncio.to_thread(arrivals.next)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (hold.pending, settled(hold), paid) == ([], [("pre_tool_call", "left")], [])
        result = await agent.aresume(hit.checkpoint_id, decisions={hit.id: Approve()})
        assert (result.output, paid) == ("done", [7])

    run(main())


def test_a_stream_that_is_left_at_a_stop_leaves_a_run_that_can_go_on(store: Store) -> None:
    hold = Hold()
    agent = desk(store)
    with agent.stream("go", breakpoints=TOOL, hold=hold) as events:
        assert any(event.type == "approval_requested" for event in events)
    [branch] = store.branches()
    assert (branch.status, hold.pending, settled(hold)) == ("suspended", [], [("pre_tool_call", "left")])
    assert branch.head is not None
    assert agent.resume(branch.head).output == "done"


def test_a_run_that_was_left_is_held_again(driver: Driver, store: Store) -> None:
    hold, arrivals = holding()
    agent = desk(store, paid=(paid := []), breakpoints=TOOL)
    stopped = driver.invoke(agent, "go").checkpoint
    with elsewhere(lambda: driver.call(agent, "recover", stopped, hold=hold)) as waits:
        assert stops_of(waits.result(PATIENCE).checkpoint) == ["pre_tool_call"], "recover answers nothing"
    both = desk(store, [call("pay", {"n": 1}), call("pay", {"n": 2})], "done", paid=paid)
    stopped = driver.invoke(both, "go", breakpoints=TOOL).checkpoint
    first, second = (item.id for item in stopped.pending)
    with elsewhere(lambda: driver.resume(both, stopped, decisions={first: Approve()}, hold=hold)) as waits:
        hit = arrivals.next()
        assert (hit.id, paid) == (second, [1]), "what was let go on has run"
        hold.resume_breakpoint(hit.id)
        assert (waits.result(PATIENCE).output, paid) == ("done", [1, 2])


# With all the rest


def test_breakpoints_change_while_a_call_waits(driver: Driver) -> None:
    """The new ones hold from the next point on."""
    hold, arrivals = holding()
    live = Breakpoints([first := Breakpoint("pre_agent_run")])
    agent = desk(None, breakpoints=live)
    with elsewhere(lambda: driver.invoke(agent, "go", hold=hold)) as waits:
        hit = arrivals.next()
        live.remove(first)
        live.add(Breakpoint("post_run", label="new"))
        hold.resume_breakpoint(hit.id)
        hit = arrivals.next()
        assert (hit.type, hit.label) == ("post_run", "new")
        live.clear()
        hold.resume_breakpoint(hit.id)
        assert waits.result(PATIENCE).status == "completed"


def test_a_call_waits_at_breakpoints_and_returns_at_approvals(driver: Driver, store: Store) -> None:
    hold, arrivals = holding()
    agent = desk(store, requires_approval=True, paid=(paid := []))
    stops = [Breakpoint("pre_agent_run"), Breakpoint("approval")]
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=stops, hold=hold)) as waits:
        hold.resume_breakpoint(arrivals.next().id)
        result = waits.result(PATIENCE)
    assert ([item.why for item in result.checkpoint.pending], hold.pending, paid) == (["approval"], [], [])
    assert driver.resume(agent, result.checkpoint, approved=True, hold=hold).output == "done"


def test_a_call_returns_where_an_operator_has_paused_the_run(driver: Driver, store: Store) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def work(state: Case) -> dict[str, Any]:
        at_work.set()
        assert go_on.wait(PATIENCE)
        return {"log": ["worked"]}

    graph = (
        StateGraph(Case)
        .add_node("work", work)
        .add_node("operator", lambda state: {"log": ["operated"]})
        .add_edge(START, "work")
        .add_edge("work", "operator")
        .add_edge("operator", END)
        .compile(store=store)
    )
    hold, arrivals = holding()
    with elsewhere(lambda: driver.invoke(graph, {}, hold=hold)) as waits:
        assert at_work.wait(PATIENCE)
        [branch] = store.branches()
        graph.pause(branch.run_id, reason="lunch")
        go_on.set()
        result = waits.result(PATIENCE)
    assert ([item.reason for item in result.checkpoint.pending], hold.pending, hold.settled) == (["lunch"], [], [])
    with elsewhere(lambda: driver.resume(graph, result.checkpoint, interrupt_before=["operator"], hold=hold)) as waits:
        hit = arrivals.next()
        assert (hit.type, hit.node) == ("pre_node", "operator")
        hold.resume_breakpoint(hit.id)
        assert waits.result(PATIENCE).output.log == ["worked", "operated"]


def test_what_is_decided_beside_a_stop_is_carried_out_while_the_call_waits_on(driver: Driver, store: Store) -> None:
    ran: queue.SimpleQueue[str] = queue.SimpleQueue()

    def ship() -> str:
        """Ship."""
        ran.put("shipped")
        return "shipped"

    def pay() -> str:
        """Pay."""
        ran.put("paid")
        return "paid"

    agent = Agent(
        model=ScriptedModel.by_turn([[call("ship"), call("pay")], "done"]),
        tools=[tool(ship, requires_approval=True), tool(pay)],
        store=store,
    )
    hold, arrivals = holding()
    stop = [Breakpoint("tool", tools=["pay"])]
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=stop, hold=hold)) as waits:
        hit = arrivals.next()
        [asked] = [item for item in store.load(hit.checkpoint_id).pending if item.why == "approval"]
        assert agent.resume(hit.checkpoint_id, decisions={asked.id: Approve()}).status == "running"
        assert ran.get(timeout=PATIENCE) == "shipped"
        assert (hold.pending, waits.done()) == ([hit], False)
        hold.resume_breakpoint(hit.id)
        assert (waits.result(PATIENCE).output, ran.get(timeout=PATIENCE)) == ("done", "paid")


def test_an_edit_that_needs_an_approval_ends_the_wait(driver: Driver, store: Store) -> None:
    hold, arrivals = holding()
    agent = desk(store, requires_approval=lambda args: args["n"] > 9, paid=(paid := []))
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=TOOL, hold=hold)) as waits:
        hold.resume_breakpoint(arrivals.next().id, args={"n": 500})
        result = waits.result(PATIENCE)
    assert ([item.why for item in result.checkpoint.pending], paid) == (["approval"], [])


def test_a_run_inside_another_is_waited_for_at_the_root(driver: Driver, store: Store) -> None:
    hold, arrivals = holding()
    graph = nested(desk(None, paid=(paid := [])), store=store)
    stops = [Breakpoint(point, agents=["desk"]) for point in ("pre_agent_run", "pre_tool_call", "post_tool_call")]
    with elsewhere(lambda: driver.invoke(graph, {}, breakpoints=stops, hold=hold)) as waits:
        hit = arrivals.next()
        assert (hit.stack, hit.path, hold.pending) == (("office", "desk"), "1.0", [hit])
        with pytest.raises(InvalidDecision, match="of a run inside another"):
            hold.resume_breakpoint(hit.id, state={"n": 1})
        hold.resume_breakpoint(hit.id, input="stay")
        hold.resume_breakpoint(arrivals.next().id, args={"n": 3})
        hold.resume_breakpoint(arrivals.next().id)
        assert (waits.result(PATIENCE).output.log, paid) == (["done"], [3])
    hold = Hold(timeout=0.05)
    with pytest.raises(BreakpointTimeout) as late:
        driver.invoke(graph, {}, breakpoints=stops, hold=hold)
    assert late.value.result is not None
    assert (late.value.result.status, hold.pending, store.pending_rows()) == ("cancelled", [], [])


def test_what_stops_while_siblings_run_can_be_answered_at_once(driver: Driver, store: Store) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def work() -> str:
        """Work."""
        at_work.set()
        assert go_on.wait(PATIENCE)
        return "worked"

    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(
        model=ScriptedModel.by_turn([[call("work"), call("pay")], "done"]),
        tools=[tool(work), tool(pay)],
        store=store,
    )
    hold = Hold(timeout=PATIENCE)
    stop = [Breakpoint("tool", tools=["pay"])]
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=stop, hold=hold)) as waits:
        assert at_work.wait(PATIENCE)
        [hit] = hold.pending
        hold.resume_breakpoint(hit.id)
        assert (hold.pending, waits.done()) == ([], False)
        go_on.set()
        assert waits.result(PATIENCE).output == "done"
    assert settled(hold) == [("pre_tool_call", "approved")]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_what_a_call_cannot_wait_with_is_refused(is_async: bool) -> None:
    async def later(hit: BreakpointHit) -> None:
        pass

    class Later:
        async def __call__(self, hit: BreakpointHit) -> None:
            pass

    driver = ASYNC if is_async else SYNC
    agent = desk(None)
    holds: list[tuple[Any, Any]] = (
        [(Hold(resume_event=threading.Event()), ConfigurationError)]
        if is_async
        else [(Hold(on_breakpoint=each), AsyncRequired) for each in (later, Later())]
        + [(Hold(resume_event=asyncio.Event()), AsyncRequired)]
    )
    for hold, error in [*holds, (True, ConfigurationError), (300.0, ConfigurationError)]:
        with pytest.raises(error):
            driver.invoke(agent, "go", breakpoints=TOOL, hold=hold)
    assert agent.store.branches() == []
    assert driver.invoke(agent, "go", breakpoints=TOOL, hold=None).suspended


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1.0},
        {"timeout": float("nan")},
        {"timeout": "300"},
        {"on_breakpoint": 5},
        {"resume_event": 5},
        {"resume_event": object()},
        {"history": -1},
        {"history": True},
        {"history": 1.5},
    ],
    ids="-".join,
)
def test_options_are_checked(options: Any) -> None:
    with pytest.raises(ConfigurationError):
        Hold(**options)


def test_a_hold_waits_five_minutes_unless_it_is_told_otherwise() -> None:
    assert (Hold().timeout, Hold(timeout=None).timeout) == (300.0, None)


def test_a_step_waits_for_nobody() -> None:
    agent = desk(None, breakpoints=[Breakpoint("pre_agent_run")])
    for driver in DRIVERS:
        with pytest.raises(ConfigurationError, match="goes one boundary further"):
            driver.step(agent, "go", hold=Hold())
        begun = driver.step(agent, "go")
        stopped = driver.step(agent, begun.checkpoint)
        assert (begun.status, stops_of(stopped)) == ("running", ["pre_agent_run"])


def test_a_stream_that_waits_goes_on_after_the_event_of_the_stop(store: Store) -> None:
    told: list[str] = []

    class Told(Hooks):
        def on_event(self, event: Any) -> None:
            told.append(event.type)

    hold = Hold(on_breakpoint=lambda hit: Approve())
    agent = desk(store, hooks=[Told()], breakpoints=TOOL)
    types = [event.type for event in agent.stream("go", hold=hold)]
    places = [types.index(kind) for kind in ("approval_requested", "suspended", "decided", "tool_call_started")]
    assert (places, types[-1]) == (sorted(places), "completed")
    assert told == [kind for kind in types if not kind.endswith("delta")]
    assert [event.type for event in agent.stream("go")][-1] == "suspended"

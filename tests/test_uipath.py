"""What UiPath's breakpoints and resumable runtime do, and get wrong, by the number of the weakness (Q1 to Q11) or of the acceptance
scenario (UIP-A01): the same is had here, or better, with each driver, streamed and not, on every store.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from drivers import PATIENCE, Driver, run
from pydantic import BaseModel
from stop_scenes import EVERY, desk, elsewhere, holding, nested, stops_of, walk, works

from phronomy import (
    Agent,
    ApprovalExpired,
    Approve,
    Breakpoint,
    Breakpoints,
    BreakpointTimeout,
    CheckpointAlreadyResumed,
    ConfigurationError,
    Hold,
    Hooks,
    MemoryStore,
    ModelError,
    NothingDecided,
    Reject,
    Respond,
    Store,
    UnknownPending,
    tool,
)
from phronomy.graph import END, START, StateGraph, append, interrupt
from phronomy.models.base import Delta, ModelReply, ModelRequest, TextDelta
from phronomy.stops.breakpoints import trace
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.unmeasured

ROWS = (
    *(f"Q{number}" for number in range(1, 12)),
    *(f"UIP-A{number:02}" for number in (1, 3, 4, 5, 7, 9, 10, 11, 12, 15, 16, 17, 18, 19)),
)
LEFT_OUT = {"UIP-A12": "nothing is polled: what waits is a row; times, events and ends of runs are in test_triggers.py"}
"""The rows without a test here, and why."""


def test_every_row_has_a_test_or_a_reason() -> None:
    """A row is met by a test whose docstring begins with its number."""
    told: set[str] = set()
    for node in ast.parse(Path(__file__).read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            told |= set(re.findall(r"\b(?:UIP-A|Q)\d+\b", (ast.get_docstring(node) or "").partition(":")[0]))
    assert told == set(ROWS) - set(LEFT_OUT)


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


class Work(BaseModel):
    """What a graph gathers."""

    log: Annotated[list[str], append] = []


def test_a_pause_stops_whoever_produces(driver: Driver, store: Store) -> None:
    """UIP-A01, Q1: while the call stands at a tool, for however long, neither its body nor a later model call has begun."""
    hold, arrivals = holding()
    model = ScriptedModel.by_turn([call("pay", {"n": 7}), "done"])
    agent = desk(store, model=model, paid=(paid := []))
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")], hold=hold)) as waits:
        hit = arrivals.next()
        log = store.lineage(branch_id=hit.branch_id).entries
        assert (paid, len(model.requests), waits.done()) == ([], 1, False)
        assert store.lineage(branch_id=hit.branch_id).entries == log, "not even the intent is stored"
        hold.resume_breakpoint(hit.id)
        assert (waits.result(PATIENCE).output, paid, len(model.requests)) == ("done", [7], 2)


def test_the_consumer_of_a_stream_holds_the_run_too(store: Store) -> None:
    """Q1: between two events that are taken, nothing happens that the next one does not tell of."""
    model = ScriptedModel.by_turn([call("pay", {"n": 7}), "done"])
    agent = desk(store, model=model, paid=(paid := []))
    with agent.stream("go") as events:
        for event in events:
            if event.type == "tool_call_started":
                assert (paid, len(model.requests)) == ([], 1)
            if event.type == "tool_call_settled":
                assert (paid, len(model.requests)) == ([7], 1)
    assert len(model.requests) == 2


def test_the_event_is_set_while_the_stop_is_looked_at(store: Store) -> None:
    """Q2: the consumer sets the event while it has the stop in hand, and the run goes on. U5."""
    go_on = threading.Event()
    stream = desk(store).stream("go", breakpoints=[Breakpoint("*")], hold=Hold(resume_event=go_on, timeout=PATIENCE))
    for event in stream:
        if event.type == "approval_requested":
            go_on.set()
    assert (stream.result.output, go_on.is_set()) == ("done", False)

    async def main() -> None:
        later = asyncio.Event()
        hold = Hold(resume_event=later, timeout=PATIENCE)
        astream = desk(store).astream("go", breakpoints=[Breakpoint("*")], hold=hold)
        async for event in astream:
            if event.type == "approval_requested":
                later.set()
        assert (astream.result.output, later.is_set()) == ("done", False)

    run(main())


def test_each_name_matches_as_it_says(driver: Driver, store: Store) -> None:
    """UIP-A03, Q3: by category, by the name of a tool or of an agent; what nothing is called is refused when it is armed. U2, U3."""
    for narrowed in (
        Breakpoint("tool"),
        Breakpoint("tool", tools=["pay"]),
        Breakpoint("tool", agents=["desk"]),
        Breakpoint("*", tools=["pay"], agents=["desk"]),
    ):
        paused = driver.invoke(desk(store), "go", breakpoints=[narrowed]).checkpoint
        assert [(item.tool_name, item.point) for item in paused.pending] == [("pay", "pre_tool_call")]
    for wrong in ("tools", "Tool", "**", "calculate_sum", ""):
        with pytest.raises(ConfigurationError, match="there is no breakpoint of type"):
            Breakpoint(wrong)
    for unknown in (Breakpoint("tool", tools=["Pay"]), Breakpoint("tool", agents=["DESK"]), Breakpoint("handoff")):
        with pytest.raises(ConfigurationError):
            driver.invoke(desk(store), "go", breakpoints=[unknown])


def test_the_star(driver: Driver, store: Store) -> None:
    """UIP-A04: it stops at tools and approvals, and at no piece of text, model call or end. U2."""
    long = "a text of many pieces " * 9

    @tool(requires_approval=True)
    def ship() -> str:
        """Ship."""
        return "shipped"

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel.by_turn([call("pay"), call("ship"), long])
    agent = Agent(name="desk", model=model, tools=[pay, ship], store=store, breakpoints=[Breakpoint("*")])
    first = driver.invoke(agent, "go").checkpoint
    second = driver.resume(agent, first).checkpoint
    assert [item.why for each in (first, second) for item in each.pending] == ["breakpoint", "approval"]
    assert driver.resume(agent, second, approved=True).output == long


def test_a_trace_is_asked_for(driver: Driver, store: Store) -> None:
    """UIP-A05, UIP-A19: without anybody who could answer the call returns; to trace only is to say so; nothing hangs. U5."""
    agent = desk(store)
    assert driver.invoke(agent, "go").output == "done", "no debugger: nothing waits"
    assert driver.invoke(agent, "go", breakpoints=[Breakpoint("*")]).suspended
    stops = [Breakpoint("*"), Breakpoint("post_run")]
    hold = Hold(on_breakpoint=trace)
    assert driver.invoke(agent, "go", breakpoints=stops, hold=hold).output == "done"
    assert [each.hit.type for each in hold.settled] == ["pre_tool_call", "post_run"]
    with pytest.raises(BreakpointTimeout):
        driver.invoke(agent, "go", breakpoints=stops, hold=Hold(timeout=0.05))


def test_no_way_to_run_ignores_breakpoints(store: Store) -> None:
    """UIP-A07, Q4: with every method, sync or async, streamed or not, of agents and of graphs, they stop the run. U6, U12."""
    for driver in EVERY:
        assert stops_of(driver.invoke(desk(store), "go", breakpoints=[Breakpoint("tool")])) == ["pre_tool_call"]
        graph = works(store=store, breakpoints=[Breakpoint("pre_node")])
        assert stops_of(driver.invoke(graph, {})) == ["pre_node"]
        agent = desk(store, breakpoints=[Breakpoint("pre_model_call")])
        begun = driver.step(agent, "go")
        assert stops_of(driver.step(agent, begun.checkpoint)) == ["pre_model_call"]
        begun = driver.step(agent, "go")
        assert stops_of(driver.resume(agent, begun.checkpoint)) == ["pre_model_call"]


def test_breakpoints_change_while_a_run_is_paused(driver: Driver, store: Store) -> None:
    """UIP-A09: the new set holds from the next point on, suspended or held."""
    live = Breakpoints([Breakpoint("pre_agent_run")])
    agent = desk(store, breakpoints=live)
    paused = driver.invoke(agent, "go").checkpoint
    live.replace([Breakpoint("post_run")])
    assert stops_of(driver.resume(agent, paused)) == ["post_run"]
    live.replace([Breakpoint("pre_agent_run")])
    hold, arrivals = holding()
    with elsewhere(lambda: driver.invoke(agent, "go", hold=hold)) as waits:
        hit = arrivals.next()
        live.replace([Breakpoint("tool", tools=["pay"])])
        hold.resume_breakpoint(hit.id)
        hit = arrivals.next()
        assert hit.tool == "pay"
        live.clear()
        hold.resume_breakpoint(hit.id)
        assert waits.result(PATIENCE).output == "done"


def test_to_quit_is_to_cancel(driver: Driver, store: Store) -> None:
    """Q5: who quits at a stop ends the run: nothing behind it runs, and nobody is told that it was a success."""
    hold, arrivals = holding()
    graph = works(store=store)
    stop = [Breakpoint("pre_node", nodes=["b"])]
    with elsewhere(lambda: driver.invoke(graph, {"n": 1}, breakpoints=stop, hold=hold)) as waits:
        hold.cancel_breakpoint(arrivals.next().id)
        result = waits.result(PATIENCE)
    assert (result.status, result.output, graph.state_of(result.checkpoint).log) == ("cancelled", None, ["a 1"])


class Mute:
    """A model whose stream ends without a reply, and whose reply is none."""

    name = "mute"

    def __init__(self) -> None:
        self.asked = 0

    def complete(self, request: ModelRequest) -> Any:
        self.asked += 1
        return None

    async def acomplete(self, request: ModelRequest) -> Any:
        return self.complete(request)

    def stream(self, request: ModelRequest) -> Iterator[Delta | ModelReply]:
        self.asked += 1
        yield TextDelta(text="half")

    async def astream(self, request: ModelRequest) -> Any:
        for piece in self.stream(request):
            yield piece


def test_an_end_without_a_result(driver: Driver, store: Store) -> None:
    """UIP-A16, Q6: a model that ends with no reply is a typed error, and it is not asked again by itself."""
    model = Mute()
    agent = Agent(name="desk", model=model, store=store)
    with pytest.raises(ModelError, match="not with a ModelReply") as mute:
        driver.invoke(agent, "go")
    assert model.asked == 1
    assert mute.value.checkpoint is not None
    assert driver.resume(desk(store, "done", tools=[]), mute.value.checkpoint).output == "done"


class Crash(BaseException):
    """The worker is gone."""


def test_a_decision_outlives_whoever_carried_it_out(driver: Driver, store: Store) -> None:
    """Q7: the worker is lost after it took the decision: the run can be recovered, and does not ask for it again."""
    crashes: list[bool] = []

    def pay(n: int) -> str:
        """Pay."""
        if crashes and crashes.pop():
            raise Crash
        return f"paid {n}"

    agent = desk(store, tools=[tool(driver.function(pay), requires_approval=True, idempotent=True)])
    for breakpoints in ([], [Breakpoint("*")]):
        crashes.append(True)
        asked = driver.invoke(agent, "go", breakpoints=breakpoints).checkpoint
        with pytest.raises(Crash):
            driver.resume(agent, asked, approved=True)
        result = driver.recover(agent, asked.run_id)
        assert (result.output, len(result.checkpoint.decisions)) == ("done", 1)


def test_foreign_answers(driver: Driver, store: Store) -> None:
    """Q8: an answer for what does not wait there is refused, with nothing changed; so is none where one is needed. U19."""
    agent = desk(store, requires_approval=True, paid=(paid := []))
    first, other = driver.invoke(agent, "go").checkpoint, driver.invoke(agent, "go").checkpoint
    for wrong in ({other.pending[0].id: Approve()}, {"x": Approve()}, {first.pending[0].id: Approve(), "x": Approve()}):
        with pytest.raises(UnknownPending):
            driver.resume(agent, first, decisions=wrong)
    with pytest.raises(NothingDecided):
        driver.resume(agent, first, decisions={})
    assert (len(store.pending_rows()), paid) == (2, [])


def test_decisions_have_names_and_stops_have_ids(driver: Driver, store: Store) -> None:
    """Q9: each stop is addressed by itself; who answered, when and how is in the record; a hold has a timeout."""
    agent = desk(store, [call("pay", {"n": n}) for n in (1, 2)], "done", paid=(paid := []))
    hold, arrivals = holding()
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")], hold=hold)) as waits:
        one, other = arrivals.next(), arrivals.next()
        hold.resume_breakpoint(other.id, by="ann")
        hold.resume_breakpoint(one.id, by="bob")
        result = waits.result(PATIENCE)
    found = {item.pending_id: item for item in result.checkpoint.decisions}
    assert {id: item.by and item.by.id for id, item in found.items()} == {one.id: "bob", other.id: "ann"}
    assert all(item.channel == "breakpoint" and item.at >= one.requested_at for item in found.values())
    assert (sorted(paid), Hold().timeout) == ([1, 2], 300.0)


def test_one_graph_does_not_stop_another(driver: Driver, store: Store) -> None:
    """Q10: breakpoints are of a call or of an instance, a loop is stopped each time, and an answer is for one stop alone. U15."""
    stopped, free = works(store=store, breakpoints=[Breakpoint("pre_node", nodes=["b"])]), works(store=store)
    assert driver.invoke(free, {}).status == "completed"
    first, other = driver.invoke(stopped, {}).checkpoint, driver.invoke(stopped, {}).checkpoint
    assert driver.resume(stopped, first).status == "completed"
    assert store.load(other.id).status == "suspended"

    def count(state: Work) -> dict[str, Any]:
        return {"log": ["x"]}

    loop = (
        StateGraph(Work)
        .add_node("count", count)
        .add_edge(START, "count")
        .add_conditional_edges("count", lambda state: "count" if len(state.log) < 3 else END, ["count", END])
        .compile(store=store)
    )
    result, stood = walk(driver, loop, {}, breakpoints=[Breakpoint("pre_node")])
    assert (stood, result.output.log) == (["pre_node"] * 3, ["x"] * 3)
    decisions = [item.pending_id for item in result.checkpoint.decisions]
    assert len(set(decisions)) == 3


def test_what_was_left_open(driver: Driver, store: Store) -> None:
    """Q11: conditions, expressions, per-tool, the state edited, the call stack; to step is in the tests of the debugger. U6."""
    paid: list[int] = []
    graph = nested(desk(None, [call("pay", {"n": 1}), call("pay", {"n": 500})], "done", paid=paid), store=store)
    stop = [Breakpoint("tool", when="args['n'] > 100", tools=["pay"])]
    paused = driver.invoke(graph, {}, breakpoints=stop).checkpoint
    [hit] = graph.stopped_at(paused)
    assert (hit.args, hit.stack, paid) == ({"n": 500}, ("office", "desk"), [1])
    result = driver.resume(graph, paused, update={"log": ["seen"]})
    assert result.output.log == ["seen", "done"]


def test_several_wait_and_one_is_answered(driver: Driver, store: Store) -> None:
    """UIP-A10, UIP-A15: two wait, in order; one is answered, the other still waits, and what is new is added; none is nothing.

    U16, U18.
    """
    asked: list[str] = []

    def first(state: Work) -> dict[str, Any]:
        asked.append("i1")
        return {"log": [f"{interrupt('one?')} {interrupt('three?')}"]}

    def second(state: Work) -> dict[str, Any]:
        asked.append("i2")
        return {"log": [str(interrupt("two?"))]}

    graph = (
        StateGraph(Work)
        .add_node("first", driver.function(first))
        .add_node("second", driver.function(second))
        .add_edge(START, "first")
        .add_edge(START, "second")
        .add_edge("first", END)
        .add_edge("second", END)
        .compile(store=store)
    )
    two = driver.invoke(graph, {}).checkpoint
    assert [item.args["payload"] for item in two.pending] == ["one?", "two?"]
    with pytest.raises(NothingDecided):
        driver.resume(graph, two)
    assert sorted(asked) == ["i1", "i2"]
    i1, i2 = (item.id for item in two.pending)
    more = driver.resume(graph, two, decisions={i1: Respond(content="1")}).checkpoint
    assert sorted(item.args["payload"] for item in more.pending) == ["three?", "two?"]
    assert i2 in [item.id for item in more.pending]
    answers = {item.id: Respond(content=item.args["payload"][0]) for item in more.pending}
    assert sorted(driver.resume(graph, more, decisions=answers).output.log) == ["1 t", "t"]


def test_what_is_answered_at_once_is_no_suspension(driver: Driver, store: Store) -> None:
    """UIP-A11: where a handler answers, callers see the last suspension or the result, and none in between. U20."""
    seen: list[str] = []

    class Told(Hooks):
        def on_event(self, event: Any) -> None:
            seen.append(event.type)

    agent = desk(store, requires_approval=True, on_approval_required=lambda name, args: True, hooks=[Told()])
    assert driver.invoke(agent, "go").output == "done"
    assert ("suspended" in seen, seen[-1]) == (False, "completed")
    hold = Hold(on_breakpoint=lambda hit: Approve())
    assert driver.invoke(agent, "go", breakpoints=[Breakpoint("post_run")], hold=hold).status == "completed"


def test_a_human_or_the_clock(driver: Driver) -> None:
    """UIP-A17: the first of the two counts, the other is discarded, and the record says which it was. U23."""
    now = [1_900_000_000.0]
    store = MemoryStore(clock=lambda: now[0])
    agent = desk(store, requires_approval=True, approval_timeout=60.0, paid=(paid := []))
    asked, left = driver.invoke(agent, "go").checkpoint, driver.invoke(agent, "go").checkpoint
    in_time = driver.resume(agent, asked, approved=True)
    now[0] += 61
    with pytest.raises(ApprovalExpired) as late:
        driver.resume(agent, left, approved=True)
    assert late.value.result is not None
    kinds = [each.checkpoint.decisions[0].kind for each in (in_time, late.value.result)]
    assert (kinds, paid) == (["approve", "expire"], [7])
    for settled in (asked, left):
        with pytest.raises(CheckpointAlreadyResumed):
            driver.resume(agent, settled, approved=True)


def test_what_is_edited_is_what_is_told_and_run(store: Store) -> None:
    """UIP-A18: the event that a tool begins, and the tool, have the edited input; of one that is rejected there is neither. U22."""
    for breakpoints in ([], [Breakpoint("tool")]):
        agent = desk(store, requires_approval=not breakpoints, breakpoints=breakpoints, paid=(paid := []))
        asked = agent.invoke("go").checkpoint
        edit = {asked.pending[0].id: Approve(args={"n": 3})}
        events = list(agent.stream(asked, decisions=edit))
        started = [event.args for event in events if event.type == "tool_call_started"]
        assert (started, paid) == ([{"n": 3}], [3])
        asked = agent.invoke("go").checkpoint
        events = list(agent.stream(asked, decisions={asked.pending[0].id: Reject()}))
        assert [event for event in events if event.type == "tool_call_started"] == []
        assert paid == [3]


def test_who_reports_a_match_that_cannot_be_worked_out(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """Q3: a name that the arguments do not have is told of, and is not a match that silently never comes."""
    driver.invoke(desk(None), "go", breakpoints=[Breakpoint("tool", when="args['amount'] > 1")])
    assert any("KeyError" in record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR)

"""Wherever a run stands, at every point and place, the graph and the run can be drawn, and the drawing says where that is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypedDict, get_args

import pytest
from drivers import DRIVERS, Driver
from selection import scaled

from phronomy import (
    END,
    START,
    Agent,
    Approve,
    Breakpoint,
    Checkpoint,
    ConfigurationError,
    Handoff,
    MaxLength,
    MemoryStore,
    Orchestrator,
    Respond,
    Send,
    StateGraph,
    dag,
    interrupt,
    parallel,
    sequential,
    tool,
)
from phronomy.foundation.json_text import JsonText
from phronomy.graph import Replan
from phronomy.observability.drawings.drawing import tree_mermaid, tree_svg
from phronomy.records.breakpoint_points import Point
from phronomy.records.calls import Call
from phronomy.records.decisions import call_digest
from phronomy.testing import ScriptedModel, call

POINTS: tuple[Any, ...] = get_args(Point)


class Notes(TypedDict, total=False):
    answer: str


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


def clerk(name: str, **options: Any) -> Agent[Any, str]:
    """An agent that comes to every point of an agent."""

    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pay an order."""
        return "paid"

    model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
    guards = [MaxLength(1000)]
    return Agent(name=name, model=model, tools=[pay], input_guardrails=guards, output_guardrails=guards, **options)


def lines(**options: Any) -> Any:
    """One node after the other."""
    made = StateGraph(Notes, name="lines").add_node("a", lambda state: {}).add_node("b", lambda state: {})
    return made.add_edge(START, "a").add_edge("a", "b").add_edge("b", END).compile(**options)


def fan(**options: Any) -> Any:
    """Several runs of one node, beside another."""
    made = StateGraph(Notes, name="fan").add_node("a", lambda state: {}).add_node("b", lambda state: {})
    made.add_node("work", lambda number: {})
    made.add_conditional_edges(START, lambda state: [Send("work", 1), Send("work", 2), "a"], ["work", "a"])
    return made.add_edge("work", "b").add_edge("a", "b").add_edge("b", END).compile(**options)


def nested(**options: Any) -> Any:
    """A graph and an agent in nodes, and a node that asks."""
    made = StateGraph(Notes, name="nested").add_node("inner", lines())
    made.add_node("desk", clerk("clerk"), input=lambda state: "Pay", output="answer")
    made.add_node("ask", lambda state: {"answer": interrupt("Well?")})
    return (
        made.add_edge(START, "inner")
        .add_edge("inner", "desk")
        .add_edge("desk", "ask")
        .add_edge("ask", END)
        .compile(**options)
    )


def deep(**options: Any) -> Any:
    made = StateGraph(Notes, name="deep").add_node("mid", nested())
    return made.add_edge(START, "mid").add_edge("mid", END).compile(**options)


def signalled(**options: Any) -> Any:
    """No edge leads to its end."""
    made = StateGraph(Notes, name="signalled").add_node("a", lambda state: Replan(to=END), destinations=[END])
    return made.add_edge(START, "a").compile(**options)


def named_as_points(**options: Any) -> Any:
    made = (
        StateGraph(Notes, name="points").add_node("post_node", lambda state: {}).add_node("post_run", lambda state: {})
    )
    return (
        made.add_edge(START, "post_node").add_edge("post_node", "post_run").add_edge("post_run", END).compile(**options)
    )


def in_order(**options: Any) -> Any:
    return sequential(clerk("one"), lambda given: "then", **options)


def side_by_side(**options: Any) -> Any:
    return parallel({"one": clerk("one"), "two": lambda given: "x"}, **options)


def after_each_other(**options: Any) -> Any:
    return dag({"one": clerk("one"), "two": lambda given: "x"}, **options)


def team(**options: Any) -> Any:
    back = clerk("back")
    model = ScriptedModel.by_turn([call("to_back", {"message": "Take over"}), "Done."])
    front = Agent(name="front", model=model, handoffs=[Handoff(back, name="to_back")])
    return Orchestrator([front], patterns={"flow": in_order()}, **options)


def nothing() -> dict[str, Any]:
    """What a graph begins with that needs nothing."""
    return {}


def boss(**options: Any) -> Any:
    """An agent with a graph as a tool."""
    flow = lines().as_tool("flow", "Does it", input=nothing)
    return Agent(name="boss", model=ScriptedModel.by_turn([call("flow", {}), "Done."]), tools=[flow], **options)


MAKERS = (
    lines, fan, nested, deep, signalled, named_as_points, in_order, side_by_side, after_each_other, team, boss
)  # fmt: skip
NEVER = {
    **{make: {"pre_node"} for make in (in_order, side_by_side, after_each_other)},  # it is the step of a pattern there
    team: {"pre_tool_call", "post_tool_call", "pre_pattern_step"},
}
"""Points that a run of these might come to, and those here do not."""

GIVEN = {in_order: "go", side_by_side: "go", after_each_other: "go", boss: "go"}


def at_every_point(make: Callable[..., Any]) -> list[Breakpoint]:
    """Breakpoints at each point that its runs can come to."""
    found = []
    for point in POINTS:
        try:
            make(breakpoints=[Breakpoint(point)])._for_call({}, None)
        except ConfigurationError:
            continue
        found.append(Breakpoint(point))
    return found


def draw(made: Any, at: Checkpoint) -> str:
    """Both drawings of the run, and where there is a graph, of that."""
    drawn = [tree_mermaid(made.store, at.run_id), tree_svg(made.store, at.run_id)]
    if hasattr(made, "to_svg"):
        assert all(name in {**made.spec.nodes, "operator": 0} for name in made.stop_of(at).after)
        drawn += [made.to_mermaid(at), made.to_svg(at)]
    return drawn[-2]


def begun(driver: Driver, make: Callable[..., Any], made: Any) -> Any:
    if make is team:
        return driver.call(made, "run", "go")
    return driver.invoke(made, GIVEN.get(make, {}))


def went_through(driver: Driver, make: Callable[..., Any], breakpoints: list[Breakpoint]) -> list[Checkpoint]:
    """The checkpoints at which a run stopped, each drawn, and the end."""
    made = make(store=MemoryStore(), breakpoints=breakpoints)
    result = begun(driver, make, made)
    stops: list[Checkpoint] = []
    while result.suspended:
        assert len(stops) < 50
        stops.append(result.checkpoint)
        draw(made, result.checkpoint)
        answers = {
            item.id: Respond(content="yes") if item.why == "question" else Approve()
            for item in result.checkpoint.pending
        }
        result = driver.resume(made, result.checkpoint, decisions=answers)
    assert result.status == "completed"
    for each in made.store.history(result.checkpoint.id):
        draw(made, each)
    return stops


@pytest.mark.few(4)
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_run_can_be_drawn_wherever_it_stands(driver: Driver, make: Callable[..., Any]) -> None:
    armed = at_every_point(make)
    stops = went_through(driver, make, armed)
    met = {item.point for stop in stops for item in stop.pending if item.point}
    assert met == {each.type for each in armed} - NEVER.get(make, set())
    for each in scaled(armed[:1], sweep=armed[driver.is_async :: 2]):
        went_through(driver, make, [each])


def marks(text: str) -> dict[str, str]:
    """What is said of each node that is marked."""
    return dict(re.findall(r'"([\w ]+)<br/>([\w ]+)"', text))


def test_a_drawing_says_what_a_graph_stands_before_and_after(driver: Driver) -> None:
    breakpoints = [Breakpoint(point) for point in ("pre_node", "post_node", "post_run")]
    flow = lines(store=MemoryStore(), breakpoints=breakpoints)
    told, after = [], []
    result = driver.invoke(flow, {})
    while result.suspended:
        told.append(marks(draw(flow, result.checkpoint)))
        stop = flow.stop_of(result.checkpoint)
        after.append((stop.before, stop.after, [item.path for item in stop.pending]))
        result = driver.resume(flow, result.checkpoint)
    assert told == [
        {"a": "stopped before"},
        {"a": "stopped after", "b": "stopped before"},
        {"b": "stopped after"},
        {"end": "stopped before"},
    ]
    assert after == [
        (("a",), (), [("a",)]),
        (("b",), ("a",), [("a",), ("b",)]),
        ((), ("b",), [("b",)]),
        ((), (), [("post_run",)]),
    ]
    tree = tree_mermaid(flow.store, result.checkpoint.run_id)
    assert re.findall(r'"(\d): ([^"]*)<br/>ckpt_', tree) == [
        ("0", "input"),
        ("1", "went on<br/>stopped before a"),
        ("2", "a approved"),
        ("3", "next: b<br/>stopped after a<br/>stopped before b"),
        ("4", "a approved, b approved"),
        ("5", "no node left<br/>stopped after b"),
        ("6", "b approved"),
        ("7", "went on<br/>stopped at post_run"),
        ("8", "post_run approved"),
        ("9", "completed"),
    ]


def test_so_does_one_of_a_graph_inside(driver: Driver) -> None:
    made = deep(store=MemoryStore(), breakpoints=[Breakpoint("post_run", agents=["lines"])])
    at = driver.invoke(made, {}).checkpoint
    assert marks(draw(made, at)) == {"mid": "stopped inside"}
    inside = made.stop_of(at).nested["mid"]
    assert (list(inside.nested), [item.path for item in made.stop_of(at).pending]) == (
        ["inner"],
        [("mid", "inner", "post_run")],
    )


def test_a_run_of_an_agent_says_where_it_stands_too(driver: Driver) -> None:
    desk = clerk("desk", store=MemoryStore(), breakpoints=[Breakpoint("post_tool_call"), Breakpoint("post_run")])
    asked = driver.invoke(desk, "Pay").checkpoint
    behind = driver.resume(desk, asked, approved=True).checkpoint
    ending = driver.resume(desk, behind).checkpoint
    told = re.findall(r'"(\d): ([^"]*)<br/>ckpt_', tree_mermaid(desk.store, ending.run_id))
    assert [text for _, text in told][-3:] == [
        "settled: pay<br/>stopped after pay",
        "pay approved",
        "model replied<br/>stopped at post_run<br/>now suspended",
    ]


def test_a_text_that_names_no_node_where_it_stands_marks_none(driver: Driver) -> None:
    """A bearer may write what they like."""
    flow = lines(store=MemoryStore(), breakpoints=[Breakpoint("post_node")])
    at = driver.invoke(flow, {}).checkpoint
    for odd in ('{"node":[]}', '{"node":"none"}', "{}"):
        forged = at.evolve(calls=tuple(with_args(each, odd) if each.gate else each for each in at.calls))
        assert flow.stop_of(forged).after == ()
        assert flow.stopped_at(forged)[0].node is None


def with_args(gate: Call, text: str) -> Call:
    """The gate with other arguments."""
    assert gate.tool is not None
    return gate.evolve(args=JsonText(text), digest=call_digest(gate.tool, text))

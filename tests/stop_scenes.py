"""What the tests of stops share: an agent at a desk that pays, a run that is walked from stop to stop, a call that waits elsewhere."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Annotated, Any

from drivers import DRIVERS, PATIENCE, STREAMED, Driver
from pydantic import BaseModel

from phronomy import Agent, BreakpointHit, Checkpoint, Hold, Result, Store, tool
from phronomy.graph import END, START, Graph, StateGraph, append
from phronomy.testing import ScriptedModel, call

EVERY = (*DRIVERS, *STREAMED)
"""The drivers, without and with a stream."""

OF_AGENTS: list[Any] = [
    "pre_input_guardrails",
    "pre_agent_run",
    "pre_model_call",
    "pre_tool_call",
    "post_tool_call",
    "pre_output_guardrails",
    "post_run",
]
"""The points of an agent, in the order in which a run comes to them."""

OF_RUNS = [point for point in OF_AGENTS if "tool" not in point]


def desk(store: Store | None, *replies: Any, paid: list[int] | None = None, **options: Any) -> Agent[Any, Any]:
    """An agent that pays what its model says, and then answers: of 7 where nothing else is said."""

    @tool(requires_approval=options.pop("requires_approval", False))
    def pay(n: int = 1) -> str:
        """Pay."""
        (paid if paid is not None else []).append(n)
        return f"paid {n}"

    model = options.pop("model", None) or ScriptedModel.by_turn(list(replies or [call("pay", {"n": 7}), "done"]))
    options.setdefault("tools", [pay])
    return Agent(name=options.pop("name", "desk"), model=model, store=store, **options)


def stops_of(result: Result[Any] | Checkpoint) -> list[str | None]:
    """Where a run stands, by point."""
    checkpoint = result if isinstance(result, Checkpoint) else result.checkpoint
    return [item.point for item in checkpoint.pending]


def walk(driver: Driver, agent: Any, input: Any = "go", **options: Any) -> tuple[Result[Any], list[str | None]]:
    """Run, and go on from each stop, to the end: the result, and where it stopped."""
    result = driver.invoke(agent, input, **options)
    stood: list[str | None] = []
    while result.suspended:
        assert all(item.why == "breakpoint" for item in result.checkpoint.pending)
        stood += stops_of(result)
        assert len(stood) < 100, "it stops for ever"
        result = driver.resume(agent, result.checkpoint, **{key: options[key] for key in options if key != "thread_id"})
    return result, stood


class Arrivals:
    """A handler of a hold that answers nothing, and tells the test that the run has come to a stop."""

    def __init__(self) -> None:
        self._hits: queue.SimpleQueue[BreakpointHit] = queue.SimpleQueue()

    def __call__(self, hit: BreakpointHit) -> None:
        self._hits.put(hit)

    def next(self) -> BreakpointHit:
        """The next stop that a call waits at."""
        return self._hits.get(timeout=PATIENCE)


@contextmanager
def elsewhere(work: Callable[[], Any]) -> Iterator[Future[Any]]:
    """What the work gives, from a thread of its own."""
    with ThreadPoolExecutor(1, "elsewhere") as pool:
        yield pool.submit(work)


def holding(**options: Any) -> tuple[Hold, Arrivals]:
    """A hold, and what arrives there."""
    arrivals = Arrivals()
    return Hold(on_breakpoint=arrivals, **{"timeout": PATIENCE, **options}), arrivals


class Case(BaseModel):
    """What a graph works on."""

    n: int = 0
    log: Annotated[list[str], append] = []


def nested(inner: Agent[Any, Any], **options: Any) -> Graph[Any, Any]:
    """A graph with an agent in its one node."""
    return (
        StateGraph(Case, name="office")
        .add_node("desk", inner, input=lambda state: "go", output=lambda said: {"log": [said]})
        .add_edge(START, "desk")
        .add_edge("desk", END)
        .compile(**options)
    )


def works(**options: Any) -> Graph[Any, Case]:
    """Three nodes, one after the other."""

    def node(name: str) -> Callable[[Case], dict[str, Any]]:
        return lambda state: {"log": [f"{name} {state.n}"]}

    graph = StateGraph(Case, name="works")
    for name in "abc":
        graph.add_node(name, node(name))
    return graph.add_edge(START, "a").add_edge("a", "b").add_edge("b", "c").add_edge("c", END).compile(**options)

"""A call that goes on where it stopped is told from an attempt that starts: in hooks, replays, timelines and spans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from drivers import SYNC, Driver
from pydantic import BaseModel
from spans import Desk as Spans
from spans import facts

from phronomy import Agent, Hooks, MemoryStore, Respond, interrupt, tool
from phronomy.events import ToolCallStarted, replay
from phronomy.graph import END, START, StateGraph
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.timeline import timeline
from phronomy.triggers import Question, wait_for_first


class Said(BaseModel):
    """The state of the graph here."""

    text: str = ""


class Started(Hooks):
    """Notes each start of a call: its tool, its attempt, and whether it goes on."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, int, bool]] = []

    def on_tool_started(self, event: ToolCallStarted) -> None:
        self.starts.append((event.tool_name, event.attempt, event.resumed))


class Desk:
    """Agents whose tool `act` does this, and everything that was told of its calls."""

    def __init__(self, driver: Driver, act: Callable[[], object]) -> None:
        self.driver = driver
        self.act = act
        self.store: Store = MemoryStore()
        self.started = Started()

    def agent(self, *, gate: bool = False, **options: Any) -> Agent[Any, str]:
        def act() -> str:
            """Act."""
            return str(self.act())

        made = tool(requires_approval=gate, retry_wait=0, retries=1, retry_on=(OSError,))(self.driver.function(act))
        options = {"model": ScriptedModel.by_turn([call("act"), "Done."]), **options}
        return Agent(name="desk", tools=[made], store=self.store, hooks=[self.started], **options)

    def outer(self) -> Agent[Any, str]:
        model = ScriptedModel.by_turn([call("desk", {"input": "go"}), "Done."])
        tools = [self.agent(gate=True).as_tool(description="Acts.")]
        return Agent(name="outer", model=model, tools=tools, store=self.store, hooks=[self.started])

    def graph(self) -> Any:
        nodes = StateGraph(Said).add_node("act", self.driver.function(lambda state: {"text": str(self.act())}))
        drawn = nodes.add_edge(START, "act").add_edge("act", END)
        return drawn.compile(store=self.store, hooks=[self.started])

    def to_the_end(self, make: Callable[[], Any], given: Any = "go") -> None:
        """A run whose every request somebody answers, each time by a process of its own."""
        result = self.driver.invoke(make(), given)
        while result.suspended:
            result = self.driver.resume(make(), result.checkpoint.id, approved=True, by="ada")
        assert result.status == "completed"
        events = [event for event in replay(self.store, result.run_id) if event.type == "tool_call_started"]
        assert [(each.tool_name, each.attempt, each.resumed) for each in events] == self.started.starts
        told = [entry.facts for entry in timeline(self.store, result.run_id).entries if entry.type == "tool_started"]
        assert [(each["tool"], each["attempt"], each.get("resumed", False)) for each in told] == self.started.starts


def twice() -> str:
    return f"{interrupt('First?', key='a')} {interrupt('Second?', key='b')}"


ROWS: list[Any] = [
    pytest.param(lambda: interrupt("May I?"), Desk.agent, [("act", 1, False), ("act", 1, True)], id="a question"),
    pytest.param(twice, Desk.agent, [("act", 1, False), ("act", 1, True), ("act", 1, True)], id="two questions"),
    pytest.param(
        lambda: wait_for_first({"ok": Question("May I?")}).name,
        Desk.agent,
        [("act", 1, False), ("act", 1, True)],
        id="a wait",
    ),
    pytest.param(
        lambda: "ok",
        Desk.outer,
        [("desk", 1, False), ("desk", 1, True), ("act", 1, False)],
        id="an approval in a nested run",
    ),
    pytest.param(
        lambda: interrupt("May I?"),
        Desk.outer,
        [("desk", 1, False), ("desk", 1, True), ("act", 1, False), ("desk", 1, True), ("act", 1, True)],
        id="a question in a nested run",
    ),
    pytest.param(lambda: interrupt("May I?"), Desk.graph, [("act", 1, False), ("act", 1, True)], id="a node"),
    pytest.param(lambda: "ok", lambda desk: desk.agent(gate=True), [("act", 1, False)], id="an approval of the call"),
]


@pytest.mark.parametrize(("act", "make", "starts"), ROWS)
def test_a_call_that_stopped_goes_on_and_does_not_start_anew(
    driver: Driver, act: Callable[[], object], make: Any, starts: Any
) -> None:
    desk = Desk(driver, act)
    desk.to_the_end(lambda: make(desk), Said() if make is Desk.graph else "go")
    assert desk.started.starts == starts


def test_the_attempt_after_one_that_failed_is_a_start(driver: Driver) -> None:
    """It fails once after its question, so the second attempt starts; the answer is there already."""
    failures = [OSError("away")]

    def act() -> str:
        answer = interrupt("May I?")
        if failures:
            raise failures.pop()
        return str(answer)

    desk = Desk(driver, act)
    desk.to_the_end(desk.agent)
    assert desk.started.starts == [("act", 1, False), ("act", 1, True), ("act", 2, False)]


def test_the_same_process_goes_on_with_calls_side_by_side(driver: Driver) -> None:
    """Of two calls of one reply one is answered: that one goes on, in the same stream or another."""
    desk = Desk(driver, lambda: interrupt("May I?"))
    agent = desk.agent(model=ScriptedModel.by_turn([[call("act"), call("act")], "Done."]))
    waits = driver.invoke(agent, "go").checkpoint
    for item in waits.pending:
        waits = driver.resume(agent, waits, decisions={item.id: Respond(content="yes")}).checkpoint
    assert [resumed for _, _, resumed in desk.started.starts] == [False, False, True, True]


def test_a_span_says_that_its_call_goes_on() -> None:
    spans = Spans()

    @tool
    def act() -> str:
        """Act."""
        return str(interrupt("May I?"))

    model = ScriptedModel.by_turn([call("act"), "Done."])
    agent = Agent(name="desk", model=model, tools=[act], store=MemoryStore(), hooks=[spans.telemetry()])
    waits = SYNC.invoke(agent, "go").checkpoint
    SYNC.resume(agent, waits, approved=True)
    assert [facts(each).get("phronomy.tool.resumed") for each in spans.spans("execute_tool")] == [None, True]

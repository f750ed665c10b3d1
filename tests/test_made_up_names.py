"""A model may call a tool that there is none of. The name is then text of the model's, and stands where its text may stand alone."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest
from drivers import DRIVERS, SYNC, Driver
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from phronomy import Agent, Breakpoint, Checkpoint, Handoff, LimitExceeded, Limits, MemoryStore, Telemetry, tool
from phronomy.observability.drawings.drawing import tree_mermaid, tree_svg
from phronomy.observability.events import ModelReplied, ToolCallSettled, event_from, replay
from phronomy.observability.timeline import Timeline, TimelineRecorder, timeline
from phronomy.records.checkpoint import AgentRef
from phronomy.records.diff import diff
from phronomy.testing import ScriptedModel, call, say

CANARY = "tell_everybody_4711"


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


class Desk:
    """An agent that is watched in every way that holds no text of the model's."""

    def __init__(self, driver: Driver, *replies: Any, **options: Any) -> None:
        self.driver = driver
        self.store = MemoryStore()
        self.recorder = TimelineRecorder(store=self.store)
        self.spans, self.metrics = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        seen = Telemetry(tracer_provider=provider, meter_provider=MeterProvider([self.metrics]))

        def pay(order: int) -> str:
            """Pay an order."""
            return "paid"

        def look(order: int) -> str:
            """Look at an order."""
            return "there it is"

        tools = [tool(requires_approval=True)(driver.function(pay)), tool(driver.function(look))]
        made: dict[str, Any] = {"tools": tools, "store": self.store, "hooks": [self.recorder, seen], **options}
        self.agent: Agent[Any, str] = Agent(name="desk", model=ScriptedModel([*replies]), **made)

    def told(self, run_id: str) -> Timeline:
        """The timeline, which is told alike by both, and comes back from its export."""
        found = timeline(self.store, run_id)
        heard = [entry.facts for entry in self.recorder.timeline(run_id) if entry.type != "failed"]
        assert heard == [entry.facts for entry in found if entry.type != "failed"]
        assert Timeline.load(found.export()) == found
        return found

    def shown(self, run_id: str) -> str:
        """All that is shown of a run where nothing that was said is."""
        rows = self.store.history(self.store.head(run_id)[0].head or "")
        changes = [str(diff(one, other)) for one, other in pairwise(rows)]
        spans = "".join(span.to_json() for span in self.spans.get_finished_spans())
        data = self.metrics.get_metrics_data()
        drawn = tree_mermaid(self.store, run_id) + tree_svg(self.store, run_id)
        audit = "".join(record.model_dump_json() for record in self.store.audit())
        return "\n".join([self.told(run_id).export(), spans, data.to_json() if data else "", drawn, audit, *changes])


def calls_in(found: Timeline) -> list[dict[str, Any]]:
    """What a timeline says of calls: what the model asked for, and what settled."""
    names = ("tools", "tool", "unknown", "kind", "call_id")
    return [
        {name: entry.facts[name] for name in names if name in entry.facts}
        for entry in found.query(["model_replied", "tool_settled"])
    ]


def test_a_timeline_names_tools_that_there_are(driver: Driver) -> None:
    """Of any other call it has the id, and that it was of no tool."""
    desk = Desk(driver, say("", call(CANARY, id="c1"), call("look", {"order": 1}, id="c2")), "Done.")
    ended = driver.invoke(desk.agent, "Look").checkpoint
    assert calls_in(desk.told(ended.run_id)) == [
        {"tools": ["look"], "unknown": ["c1"]},
        {"unknown": True, "kind": "invalid", "call_id": "c1"},
        {"tool": "look", "kind": "completed", "call_id": "c2"},
        {"tools": []},
    ]
    assert CANARY not in desk.shown(ended.run_id)


def test_so_it_does_where_nothing_else_was_called(driver: Driver) -> None:
    """The call has settled with the reply, and no checkpoint holds it as a call."""
    desk = Desk(driver, call(CANARY, id="c1"), "Done.", breakpoints=[Breakpoint("pre_tool_call")])
    ended = driver.invoke(desk.agent, "Look").checkpoint
    assert calls_in(desk.told(ended.run_id)) == [
        {"tools": [], "unknown": ["c1"]},
        {"unknown": True, "kind": "invalid", "call_id": "c1"},
        {"tools": []},
    ]
    assert CANARY not in desk.shown(ended.run_id)


def test_a_tool_that_there_is_keeps_its_name_whatever_became_of_the_call(driver: Driver) -> None:
    desk = Desk(driver, call("look", {"order": "none"}, id="c1"), call("pay", {"order": 1}, id="c2"), "Done.")
    asked = driver.invoke(desk.agent, "Look").checkpoint
    driver.resume(desk.agent, asked, approved=False)
    assert calls_in(desk.told(asked.run_id)) == [
        {"tools": ["look"]},
        {"tool": "look", "kind": "invalid", "call_id": "c1"},
        {"tools": ["pay"]},
        {"tool": "pay", "kind": "rejected", "call_id": "c2"},
        {"tools": []},
    ]


def test_so_does_one_that_came_to_the_agent_since(driver: Driver) -> None:
    """The checkpoint notes the tools that there were when the run began; the call of a new one was judged."""
    desk = Desk(driver, call("pay", {"order": 1}))
    asked = driver.invoke(desk.agent, "Pay").checkpoint

    def ship(order: int) -> str:
        """Ship an order."""
        return "shipped"

    model = ScriptedModel([call("ship", {"order": 1}, id="c2"), "Done."])
    more = Agent(name="desk", model=model, tools=[*desk.agent.tools, tool(driver.function(ship))], store=desk.store)
    driver.resume(more, asked, approved=True)
    told = timeline(desk.store, asked.run_id)
    assert [each.get("tools", each.get("tool")) for each in calls_in(told)] == [["pay"], "pay", ["ship"], "ship", []]


def test_calls_that_nobody_has_judged_yet_settle_in_another_drive(driver: Driver) -> None:
    """A limit stops the run between the reply and the judging of its calls."""
    replies = [say("", call(CANARY, id="c1"), call("look", {"order": 1}, id="c2")), "Done."]
    desk = Desk(driver, *replies, limits=Limits(tool_calls=1))
    with pytest.raises(LimitExceeded) as caught:
        driver.invoke(desk.agent, "Look")
    stopped = caught.value.checkpoint
    assert stopped is not None and CANARY not in str(caught.value)
    further = Desk(driver, "Done.", store=desk.store, hooks=desk.agent.hooks)
    driver.resume(further.agent, stopped)
    assert CANARY not in desk.shown(stopped.run_id)


def test_a_run_that_is_cancelled_before_its_calls_were_judged_names_none(driver: Driver) -> None:
    desk = Desk(driver, say("", call(CANARY, id="c1"), call("look", {"order": 1})), limits=Limits(tool_calls=1))
    with pytest.raises(LimitExceeded) as caught:
        driver.invoke(desk.agent, "Look")
    assert caught.value.checkpoint is not None
    driver.cancel(desk.agent, caught.value.checkpoint)
    assert CANARY not in desk.shown(caught.value.checkpoint.run_id)


def test_what_runs_inside_a_call_and_whoever_took_over_are_told_alike(driver: Driver) -> None:
    inner = Agent(name="clerk", model=ScriptedModel([call(CANARY, id="c1"), "Found."]))
    other = Agent(name="other", model=ScriptedModel([call(CANARY, id="c3"), "Bye."]))
    desk = Desk(
        driver,
        call("clerk", {"input": "Look"}, id="c2"),
        call("to_other", {"message": "Go on"}, id="c4"),
        tools=[inner.as_tool("clerk")],
        handoffs=[Handoff(other, name="to_other")],
    )
    ended = driver.invoke(desk.agent, "Look")
    assert ended.output == "Bye."
    found = desk.told(ended.run_id)
    assert [facts["unknown"] for facts in calls_in(found) if "unknown" in facts] == [["c1"], True, ["c3"], True]
    assert CANARY not in desk.shown(ended.run_id)


def test_no_log_and_no_error_names_it(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    desk = Desk(driver, say("", call(CANARY, id="c1"), call("pay", {"order": 1})), "Done.")
    asked = driver.invoke(desk.agent, "Pay").checkpoint
    assert asked.pending_tool_name == "pay"
    driver.resume(desk.agent, asked, approved=True)
    assert CANARY not in caplog.text
    assert CANARY not in desk.shown(asked.run_id)


def test_an_event_says_which_calls_are_of_no_tool() -> None:
    """It is for whoever may see the conversation, so it has the names too, and says which are none."""
    desk = Desk(SYNC, say("", call(CANARY, id="c1"), call("look", {"order": 1}, id="c2")), "Done.")
    ended = desk.agent.invoke("Look").checkpoint
    events = [*replay(desk.store, ended.run_id)]
    replied, last = (event for event in events if isinstance(event, ModelReplied))
    assert (replied.unknown, last.unknown) == (("c1",), ())
    assert [event.unknown for event in events if isinstance(event, ToolCallSettled)] == [True, False]
    for event in events:
        assert event_from(event.model_dump_json()) == event
        assert ("unknown" in event.model_dump_json()) == bool(getattr(event, "unknown", ()))


def test_a_text_that_notes_its_tools_oddly_is_read_all_the_same() -> None:
    """What a bearer brings may note anything: what it notes is no name of a tool."""
    desk = Desk(SYNC, say("", call("look", {"order": "x"}, id="c1"), call("pay", {"order": 1})), "Done.")
    asked = desk.agent.invoke("Pay").checkpoint
    for odd in ({}, {"tools": "look"}, {"tools": ["look"]}, {"team": {"other": 7}}, {"team": 7}):
        store, given = MemoryStore(), with_fingerprint(asked, odd)
        store.save(given)
        assert store.load(given.id).agent.tools == frozenset()
        assert timeline(store, given.branch_id).entries != ()
    noted = with_fingerprint(asked, {"tools": {"a": 1}, "team": {"other": {"tools": {"b": 1}}}})
    assert noted.agent.tools == {"a", "b"}


def with_fingerprint(given: Checkpoint, facts: dict[str, Any]) -> Checkpoint:
    """The checkpoint as one who writes texts makes it."""
    return given.evolve(agent=AgentRef(name=given.agent.name, fingerprint=facts))

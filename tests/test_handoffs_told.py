"""What is told of handoffs, and where they happen inside others: events, timelines, spans, rows, nested runs, processes, kills."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pytest
from drivers import STREAMED, Driver, outline, run
from handoff_scenes import KINDS, Office, kept, order, settle, to, went
from pydantic import BaseModel
from selection import scaled
from stop_scenes import EVERY
from test_telemetry import Desk, facts

from phronomy import (
    END,
    START,
    Agent,
    Approve,
    Breakpoint,
    Checkpoint,
    Limits,
    MemoryStore,
    Reject,
    SQLiteStore,
    StateGraph,
    Store,
    tool,
)
from phronomy.debugger.debugger import Debugger
from phronomy.graph import append
from phronomy.guardrails.guardrail import MaxLength
from phronomy.observability.events import replay
from phronomy.observability.timeline import TimelineRecorder, timeline
from phronomy.testing import ScriptedModel, call
from phronomy.testing.crash import Scene, sweep

pytestmark = pytest.mark.worlds(2)

FEATURE = [to("billing", "Paid twice."), call("look"), to("refunds"), call("refund"), to("triage"), "done"]
"""Three handoffs, of which one is gated, with calls between them."""


@pytest.fixture(params=EVERY, ids=str)
def each(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


@pytest.fixture(params=KINDS)
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind."""
    with kept(request.param, tmp_path) as store:
        yield store


# Events


def heard(driver: Driver, agent: Any, at: Any, **options: Any) -> list[Any]:
    """Every event of a stream."""
    if not driver.is_async:
        return list(agent.stream(at, **options))

    async def main() -> list[Any]:
        return [event async for event in agent.astream(at, **options)]

    return list(run(main()))


LIVE = ("model_started", "text_delta", "reasoning_delta", "tool_call_delta", "failed")


def test_a_stream_and_a_replay_tell_of_a_handoff_at_the_same_place(driver: Driver, everywhere: Store) -> None:
    office = Office(everywhere, *FEATURE, driver=driver, way={"requires_approval": True})
    events = heard(driver, office.triage, "hi", thread_id="t")
    while events[-1].type == "suspended":
        decisions = {item.id: Approve() for item in events[-1].pending}
        at = everywhere.load(events[-1].checkpoint_id)
        events += heard(driver, office.triage, at, decisions=decisions)
    found = [event for event in events if event.type not in LIVE]
    assert list(replay(everywhere, events[0].run_id)) == found
    told = [event for event in found if event.type == "handoff"]
    assert [(event.source, event.target, event.call_id) for event in told] == [
        ("triage", "billing", "call_1"),
        ("billing", "refunds", "call_3"),
        ("refunds", "triage", "call_5"),
    ]
    for event in told:  # after the end of the call, before the checkpoint that says so, before the target is asked
        place = events.index(event)
        assert (events[place - 1].type, events[place - 1].call_id) == ("tool_call_settled", event.call_id)
        assert [each.type for each in events[place + 1 : place + 3]] == ["checkpoint", "model_started"]
        assert events[place + 1].seq == event.seq
    assert events[-1].type == "completed"


@pytest.mark.parametrize("driver", STREAMED, ids=str)
def test_a_timeline_that_is_heard_is_the_one_that_is_read(driver: Driver, everywhere: Store) -> None:
    recorder = TimelineRecorder(store=everywhere)
    office = Office(everywhere, *FEATURE, driver=driver, way={"requires_approval": True}, triage={"hooks": [recorder]})
    stop = [Breakpoint("handoff", agents=["billing"])]
    result = office.run("hi", breakpoints=stop)
    while result.suspended:
        result = office.resume(result, *[Approve() for _ in result.checkpoint.pending], breakpoints=stop)
    assert result.output == "done"
    listened, read = recorder.timeline(result.run_id), timeline(everywhere, result.run_id)
    assert [entry.evolve(at=None) for entry in listened] == [entry.evolve(at=None) for entry in read]
    assert [(entry.agent, entry.facts["from"], entry.facts["to"]) for entry in read if entry.type == "handoff"] == [
        ("triage", "triage", "billing"),
        ("billing", "billing", "refunds"),
        ("refunds", "refunds", "triage"),
    ]
    asked = [(entry.agent, entry.facts["tools"]) for entry in read if entry.type == "model_replied"]
    assert asked == [
        ("triage", ["transfer_to_billing"]),
        ("billing", ["look"]),
        ("billing", ["transfer_to_refunds"]),
        ("refunds", ["refund"]),
        ("refunds", ["transfer_to_triage"]),
        ("triage", []),
    ]
    [stood] = [entry for entry in read if entry.type == "breakpoint_hit"]
    assert (stood.agent, stood.facts["point"], stood.facts["tool"]) == ("billing", "pre_handoff", "transfer_to_refunds")


def test_a_timeline_of_a_branch_knows_who_had_the_conversation(driver: Driver) -> None:
    store = MemoryStore()
    office = Office(store, to("billing"), call("refund"), to("triage"), "done", driver=driver)
    waits = office.run()
    for whole in (True, False):
        back = driver.call(office.triage, "restore", waits.checkpoint, restore_timeline=whole)
        result = office.resume(back, Reject())
        read = timeline(store, result.checkpoint.branch_id)
        began = [entry.type for entry in read].index("branched")
        assert [entry.agent for entry in read][began + 1] == "billing"
        assert [entry.agent for entry in read][-1] == "triage"
        handed = [(entry.facts["from"], entry.facts["to"]) for entry in read if entry.type == "handoff"]
        assert handed == [*([("triage", "billing")] if whole else []), ("billing", "triage")]


def test_spans_say_who_spoke(each: Driver) -> None:
    desk = Desk()
    office = Office(None, *FEATURE, driver=each, triage={"hooks": [desk.telemetry()]})
    result = office.run()
    result = office.resume(result, Approve())
    spans = [(span.name, facts(span).get("gen_ai.agent.name")) for span in desk.spans()]
    assert spans == [
        ("invoke_agent triage", "triage"),
        ("chat scripted", None),
        ("execute_tool transfer_to_billing", None),
        ("chat scripted", "billing"),
        ("chat scripted", "billing"),
        ("execute_tool transfer_to_refunds", "billing"),
        ("chat scripted", "refunds"),
        ("invoke_agent refunds", "refunds"),
        ("execute_tool refund", None),
        ("chat scripted", None),
        ("execute_tool transfer_to_triage", None),
        ("chat scripted", "triage"),
    ]
    events = [(event.name, dict(event.attributes or {})) for span in desk.spans("invoke") for event in span.events]
    assert [facts for name, facts in events if name == "phronomy.handoff"] == [
        {"phronomy.handoff.from": "triage", "phronomy.handoff.to": "billing"},
        {"phronomy.handoff.from": "billing", "phronomy.handoff.to": "refunds"},
        {"phronomy.handoff.from": "refunds", "phronomy.handoff.to": "triage"},
    ]


def test_a_debugger_shows_who_has_the_conversation(driver: Driver) -> None:
    office = Office(None, to("billing"), call("refund"), "done", driver=driver)
    debugger: Any = Debugger(office.triage)
    stood = []
    at = driver.call(debugger, "start", "go")
    while at.suspended and all(item.why == "breakpoint" for item in at.checkpoint.pending):
        stood.append((debugger.where()[-1].agent, debugger.where()[-1].at, debugger.context.handoff))
        at = driver.call(debugger, "into")
    assert stood == [
        ("triage", "pre_agent_run", None),
        ("triage", "pre_handoff transfer_to_billing", ("triage", "billing")),
        ("billing", "pre_agent_run", ("triage", "billing")),
    ]
    assert (debugger.where()[-1].agent, at.checkpoint.pending[0].why) == ("billing", "approval")


def test_what_waits_is_listed_with_the_agent_that_asks(driver: Driver) -> None:
    """And the record of a decision has that agent, too."""
    store = MemoryStore()
    office = Office(store, to("billing"), call("refund"), "done", driver=driver)
    waits = office.run()
    [hit] = waits.checkpoint.pending
    assert (hit.agent, [branch.agent for branch in store.branches()]) == ("billing", ["triage"])
    office.resume(waits, Approve(), by="ada")
    [record] = store.audit()
    assert (record.tool_name, record.agent, record.kind) == ("refund", "billing", "approve")


# Rows


def test_storage_grows_with_the_handoffs(everywhere: Store) -> None:
    """Law 14: no row is longer for standing later."""

    def sizes(turns: int) -> tuple[int, int]:
        ways = [to("billing", "x" * 50) if turn % 2 == 0 else to("triage", "x" * 50) for turn in range(turns)]
        limits = {"limits": Limits(turns=None), "max_handoffs": 1000}
        result = Office(everywhere, *ways, "done", triage=limits).run()
        assert len(result.checkpoint.handoffs) == turns
        entries = everywhere.lineage(branch_id=result.checkpoint.branch_id).entries
        assert everywhere.load(result.checkpoint.id) == result.checkpoint
        bodies = [len(entry.body) for entry in entries]
        return sum(bodies), max(bodies[1:])

    (short, longest), (long, longest_of_long) = sizes(20), sizes(40)
    assert 1.6 < long / short < 2.1
    assert longest_of_long < longest * 1.1


def test_every_checkpoint_of_a_chain_with_handoffs_loads_as_it_was(driver: Driver, everywhere: Store) -> None:
    office = Office(everywhere, *FEATURE, driver=driver, way={"requires_approval": True})
    result = driver.step(office.triage, "hi")
    seen = [result.checkpoint]
    while result.checkpoint.ended is None:
        decisions = {item.id: Approve() for item in result.checkpoint.pending}
        result = driver.step(office.triage, result.checkpoint, **({"decisions": decisions} if decisions else {}))
        seen.append(result.checkpoint)
    assert [everywhere.load(each.id).evolve(journal=()) for each in seen] == seen
    assert went(seen[-1]) == ["triage > billing", "billing > refunds", "refunds > triage"]
    for each in seen:
        assert Checkpoint.model_validate_json(each.model_dump_json()) == each


# Inside others


def test_an_agent_that_hands_over_is_a_tool_of_another(each: Driver, everywhere: Store) -> None:
    office = Office(everywhere, to("billing"), call("refund", {"order": 7}), "It is paid back.", driver=each)
    desk = Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("triage", {"input": "Order 7."}), "Done: paid back."]),
        tools=[office.triage.as_tool()],
        store=everywhere,
    )
    waits = each.invoke(desk, "go")
    [item] = waits.checkpoint.pending
    assert (item.tool_name, item.agent, item.path) == ("refund", "billing", "1.0")
    [inner] = waits.checkpoint.nested
    assert (inner.speaker, inner.agent.name, went(inner)) == ("billing", "triage", ["triage > billing"])
    result = each.resume(desk, waits.checkpoint.id, decisions={item.id: Approve()})
    assert (result.output, office.done, office.asked) == (
        "Done: paid back.",
        ["refund 7"],
        ["triage", "billing", "billing"],
    )
    assert outline(result)[2] == "tool (completed): It is paid back."
    told = [(event.path, event.target) for event in replay(everywhere, result.run_id) if event.type == "handoff"]
    assert told == [("1.0", "billing")]


class Case(BaseModel):
    log: Annotated[list[str], append] = []


def around(inner: Agent[Any, Any], **options: Any) -> Any:
    """A graph with an agent in its one node."""
    graph = StateGraph(Case, name="hall")
    graph.add_node("desk", inner, input=lambda state: "go", output=lambda said: {"log": [said]})
    return graph.add_edge(START, "desk").add_edge("desk", END).compile(**options)


def test_an_agent_that_hands_over_is_in_a_node_of_a_graph(each: Driver, everywhere: Store) -> None:
    office = Office(everywhere, to("billing"), "It is paid back.", driver=each, way={"requires_approval": True})
    hall = around(office.triage, store=everywhere)
    waits = each.invoke(hall, {})
    [item] = waits.checkpoint.pending
    assert (item.tool_name, item.agent, item.tool.source) == ("transfer_to_billing", "triage", "handoff:billing")
    result = each.resume(hall, waits.checkpoint.id, decisions={item.id: Approve(args={"message": "Now."})})
    assert result.output is not None
    assert (result.output.log, office.asked) == (["It is paid back."], ["triage", "billing"])
    assert office.model.requests[-1].messages[-1].text.endswith("Now.")
    stops = [Breakpoint("handoff", agents=["triage"])]
    waits = each.invoke(around(Office(everywhere, to("billing"), "x", driver=each).triage), {}, breakpoints=stops)
    assert [(item.why, item.point, item.agent) for item in waits.checkpoint.pending] == [
        ("breakpoint", "pre_handoff", "triage")
    ]


def clerk() -> Agent[Any, Any]:
    """An agent that asks before it ships."""

    @tool(requires_approval=True)
    def ship() -> str:
        """Ship it."""
        return "shipped"

    return Agent(name="clerk", model=ScriptedModel.by_turn([call("ship"), "It is shipped."]), tools=[ship])


def test_a_member_calls_an_agent_that_waits(each: Driver, everywhere: Store) -> None:
    replies = [to("billing"), call("clerk", {"input": "Ship 7."}), "done"]
    waits = Office(everywhere, *replies, driver=each, billing={"tools": [clerk().as_tool()]}).run()
    [item] = waits.checkpoint.pending
    assert (item.tool_name, item.agent, item.path, waits.checkpoint.speaker) == ("ship", "clerk", "2.0", "billing")
    again = Office(everywhere, *replies, driver=each, billing={"tools": [clerk().as_tool()]})
    assert again.triage.drift(waits.checkpoint).changed == ()
    result = again.resume(waits.checkpoint.id, decisions={item.id: Approve()})
    assert (result.output, again.asked) == ("done", ["billing"])
    assert outline(result)[4] == "tool (completed): It is shipped."


def test_what_waits_inside_beside_a_handoff_is_decided_before_the_target_is_asked(each: Driver) -> None:
    replies = [[call("clerk", {"input": "Ship 7."}), to("billing")], "done"]
    office = Office(None, *replies, driver=each, triage={"tools": [clerk().as_tool()]})
    waits = office.run()
    assert (waits.checkpoint.speaker, [item.agent for item in waits.checkpoint.pending]) == ("triage", ["clerk"])
    result = office.resume(waits, Reject())
    assert (result.output, went(result), office.asked) == ("done", ["triage > billing"], ["triage", "billing"])


def test_no_piece_of_an_answer_passes_that_guardrails_of_a_member_are_to_see(driver: Driver) -> None:
    for guards, pieces in (([], True), ([MaxLength(100)], False)):
        office = Office(None, to("billing"), "done", driver=driver, billing={"output_guardrails": guards})
        assert ("text_delta" in {event.type for event in heard(driver, office.triage, "hi")}) is pieces


def test_one_agent_serves_many_runs_at_once() -> None:
    """Law 16: who has the conversation is in the record of each run."""
    ways = ["billing", "refunds"]

    def reply(request: Any) -> Any:
        asked = int(request.messages[0].text)
        return "done" if len(request.messages) > 1 else to(ways[asked % 2])

    office = Office(MemoryStore(), model=ScriptedModel(reply))
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: office.triage.invoke(str(n)), range(40)))
    assert [result.checkpoint.speaker for result in results] == ways * 20


# Elsewhere


@pytest.mark.sweep
def test_a_run_is_gone_on_with_in_another_process(tmp_path: Path) -> None:
    here = Path(__file__).parent
    office = """
import sys
from handoff_scenes import Office, to, went
from phronomy import Approve, SQLiteStore
from phronomy.testing import call
store = SQLiteStore(sys.argv[1])
office = Office(store, to("billing"), call("refund", {"order": 7}), to("refunds"), call("refund", {"order": 8}), "done")
result = office.resume(store.load(sys.argv[2]), Approve()) if sys.argv[2:] else office.run()
print(result.status, result.checkpoint.id, *office.asked, *office.done)
"""
    path = os.pathsep.join([str(here), str(here.parent)])

    def process(*args: str) -> list[str]:
        given = [sys.executable, "-c", office, str(tmp_path / "runs.db"), *args]
        done = subprocess.run(given, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
        return done.stdout.split()

    status, id, *asked = process()
    assert (status, asked) == ("suspended", ["triage", "billing"])
    status, id, *asked = process(id)
    assert (status, asked) == ("suspended", ["billing", "refunds", "refund", "7"])
    status, id, *asked = process(id)
    assert (status, asked) == ("completed", ["refunds", "refund", "8"])
    with SQLiteStore(tmp_path / "runs.db") as store:
        assert went(store.load(id)) == ["triage > billing", "billing > refunds"]


def made_once(scene: Scene) -> None:
    """Each handoff once, in order, whatever was killed."""
    for branch in scene.store.branches():
        assert went(scene.store.load(str(branch.head))) == ["triage > billing", "billing > triage"]


@pytest.mark.usefixtures("fresh_fork_server")
def test_a_worker_that_is_killed_anywhere_hands_over_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db?synchronous=normal"
    report = sweep(order, recover=settle, store=url, check=made_once, every=scaled(4, sweep=1))
    assert report.kills > scaled(2, sweep=10)

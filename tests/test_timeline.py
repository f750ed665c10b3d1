"""The timeline: what happened in a run, read off the chain or heard as it happens, bounded, queried, exported, forked.

D18 and D43 are the rows of Directive's timeline that these tests are about, with what it gets wrong: breakpoints that end
without a word, and entries that an import leaves out in silence.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from drivers import STREAMED, SYNC, Driver, open_kind
from redis_server import redis_url
from servers import postgres_schema, postgres_url

from phronomy import (
    Agent,
    CheckpointNotFound,
    ConfigurationError,
    MemoryStore,
    ModelError,
    PostgresStore,
    RedisStore,
    Reject,
    StateGraph,
    Store,
    tool,
)
from phronomy.errors import BreakpointTimeout, GuardrailRefused
from phronomy.guardrails.guardrail import MaxLength, RefusePatterns
from phronomy.observability.events import Reader, replay
from phronomy.observability.timeline import Timeline, TimelineEntry, TimelineRecorder, recent, timeline
from phronomy.observability.timeline_entries import FACTS, TYPES
from phronomy.records.calls import CallStarted
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Approve, Respond, Skip
from phronomy.stops.breakpoints import Breakpoint, Hold
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.log.log import items_of
from phronomy.testing import ScriptedModel, call, say
from phronomy.workers import Worker

SECRET = "4111-secret"


class Clock:
    """A clock that goes on by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 1_900_000_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind. One whose server does not start fails the test."""
    if request.param == "postgres":
        with postgres_schema() as schema, PostgresStore(postgres_url(), schema=schema) as store:
            yield store
    elif request.param == "redis":
        with RedisStore(redis_url()) as store:
            yield store
    else:
        with open_kind(request.param, tmp_path) as store:
            yield store


def desk(store: Store, *script: Any, driver: Driver = SYNC, **options: Any) -> Agent[Any, Any]:
    """An agent with a tool that needs an approval, and one that fails the first time."""
    tries: list[int] = []

    def refund(card: str = SECRET) -> str:
        """Refund."""
        return f"refunded to {card}"

    def shaky() -> str:
        """Works the second time."""
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError(SECRET)
        return SECRET

    tools = [
        tool(requires_approval=True)(driver.function(refund)),
        tool(retries=1, idempotent=True, retry_wait=0)(driver.function(shaky)),
    ]
    given = script or ([call("refund", {"card": SECRET}), call("shaky")], ModelError("away"), "done")
    return Agent(name="desk", model=ScriptedModel([*given]), tools=tools, store=store, **options)


def lines(entries: Any) -> list[str]:
    """The entries as lines: id, type and what tells it from others."""
    told = ("tool", "kind", "next", "attempt", "status", "skipped", "edited", "label")
    return [
        f"{entry.id} {entry.type}" + "".join(f" {entry.facts[name]}" for name in told if name in entry.facts)
        for entry in entries
    ]


def driven(driver: Driver, agent: Agent[Any, Any]) -> str:
    """A run that asks, fails, and ends, and its id."""
    waiting = driver.invoke(agent, f"my card is {SECRET}").checkpoint
    decisions = {waiting.pending[0].id: Reject(reason=SECRET)}
    with pytest.raises(ModelError) as failed:
        driver.resume(agent, waiting, decisions=decisions, by="ada", channel="desk")
    assert failed.value.checkpoint is not None
    assert driver.resume(agent, failed.value.checkpoint).output == "done"
    return waiting.run_id


RUN = [
    "0 run_started",
    "1 checkpoint running",
    "2 model_replied",
    "3 approval_requested refund",
    "4 checkpoint suspended",
    "5 tool_started shaky 1",
    "6 tool_failed shaky retry",
    "7 tool_started shaky 2",
    "8 tool_settled shaky completed",
    "9 checkpoint suspended",
    "10 suspended",
    "11 decided refund reject False",
    "12 tool_settled refund rejected",
    "13 checkpoint running",
    "14 model_replied",
    "15 checkpoint completed",
    "16 ended completed",
]


# Reading


def test_a_timeline_is_read_off_the_chain_of_any_store(everywhere: Store, driver: Driver) -> None:
    """D43: ids count from 0; nothing has to be switched on for it."""
    agent = desk(everywhere, driver=driver)
    run_id = driven(driver, agent)
    found = timeline(everywhere, run_id)
    assert lines(found) == RUN
    assert (found.run_id, found.branch_id, found.dropped, len(found)) == (run_id, run_id, 0, 17)
    assert {(entry.run_id, entry.branch_id, entry.agent, entry.path) for entry in found} == {
        (run_id, run_id, "desk", "")
    }
    history = everywhere.history(everywhere.head(run_id)[1].id)
    told = [entry for entry in found if entry.type == "checkpoint"]
    assert [entry.checkpoint_id for entry in told] == [checkpoint.id for checkpoint in history]
    assert [entry.at for entry in told] == [checkpoint.created_at for checkpoint in history]
    decided = found.entries[11]
    assert decided.facts == {
        "pending_id": found.entries[3].facts["pending_id"],
        "kind": "reject",
        "by": "ada",
        "channel": "desk",
        "edited": False,
        "tool": "refund",
    }
    assert decided.at == history[-1].decisions[0].at


def test_each_entry_is_of_the_checkpoint_that_records_it_or_of_the_one_before(store: Store) -> None:
    agent = desk(store)
    run_id = driven(SYNC, agent)
    ids = [checkpoint.id for checkpoint in store.history(store.head(run_id)[1].id)]
    assert [ids.index(str(entry.checkpoint_id)) for entry in timeline(store, run_id)] == [
        *(0, 0, 1, 1, 1),  # the reply, and what it asks for, with their checkpoint
        *(1, 1, 1, 1),  # calls run after it
        *(2, 2, 3, 3, 3, 4, 4, 4),
    ]


def test_times_are_those_of_checkpoints_decisions_and_calls() -> None:
    store = MemoryStore(clock=Clock())
    found = timeline(store, driven(SYNC, desk(store)))
    times = [entry.at for entry in found]
    assert all(at.tzinfo is not None and at.utcoffset() == timedelta(0) for at in times)
    started, failed, again, settled = times[5:9]
    assert started <= failed < again <= settled < times[9]
    assert times[3] <= times[4] < times[9] < times[11] < times[13] < times[16]
    row = [entry.at for entry in found if entry.type in ("run_started", "model_replied", "checkpoint", "ended")]
    assert row == sorted(row)


REPLIED_AFTER = ["9 checkpoint running", "10 model_replied", "11 checkpoint completed", "12 ended completed"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            Approve(),
            [
                "6 decided refund approve False",
                "7 tool_started refund 1",
                "8 tool_settled refund completed",
                *REPLIED_AFTER,
            ],
        ),
        (
            Reject(reason=SECRET),
            [
                "6 decided refund reject False",
                "7 tool_settled refund rejected",
                "8 model_replied",
                "9 checkpoint completed",
                "10 ended completed",
            ],
        ),
    ],
    ids=["approve", "reject"],
)
def test_what_is_decided_with_the_store_alone_is_told_before_its_effect(
    everywhere: Store, answer: Approve | Reject, told: list[str]
) -> None:
    """A worker carries it out: the decision is before the call that runs by it, and the result before the reply to it."""
    recorder = TimelineRecorder(store=everywhere)
    agent = desk(everywhere, call("refund"), "done", hooks=[recorder])
    waiting = agent.invoke("go").checkpoint
    [asked] = waiting.pending
    everywhere.decide(asked.id, answer, by="ada", digest=asked.digest)
    asyncio.run(Worker([agent]).once())
    found = timeline(everywhere, waiting.run_id)
    assert lines(found)[6:] == told
    assert lines(recorder.timeline(waiting.run_id)) == lines(found)
    assert [entry.event for entry in recorder.timeline(waiting.run_id)] == [entry.event for entry in found]


def test_each_of_several_decisions_is_told_once_and_before_its_own_call(everywhere: Store) -> None:
    """Also if the worker that began the calls was lost, and another one goes on."""
    recorder = TimelineRecorder(store=everywhere)
    agent = desk(everywhere, [call("refund", {"card": "1"}), call("refund", {"card": "2"})], "done", hooks=[recorder])
    waiting = agent.invoke("go").checkpoint
    for asked in waiting.pending:
        everywhere.decide(asked.id, Approve(), by="ada", digest=asked.digest)
    asyncio.run(Worker([agent]).once())
    found = timeline(everywhere, waiting.run_id)
    assert [line.split(" ", 1)[1] for line in lines(found)][-10:] == [
        "decided refund approve False",
        "tool_started refund 1",
        "decided refund approve False",
        "tool_started refund 1",
        "tool_settled refund completed",
        "tool_settled refund completed",
        *(each.split(" ", 1)[1] for each in REPLIED_AFTER),
    ]
    assert [(entry.event, entry.type) for entry in recorder.timeline(waiting.run_id)] == [
        (entry.event, entry.type) for entry in found
    ]
    # A reader that begins where a worker was lost, after the first call had begun, tells what the one before it had not told.
    log = [*items_of(whole_lineage(everywhere, branch_id=waiting.run_id).entries)]
    begun = next(place for place, (_, item) in enumerate(log) if isinstance(item, CallStarted)) + 1
    base = waiting.evolve(journal=tuple(item for _, item in log[:begun] if not isinstance(item, Checkpoint)))
    reader = Reader(waiting.run_id, base, seq=log[begun - 1][0].seq)
    rest = [event.id for entry, item in log[begun:] for event in reader.read(entry.seq, entry.path, item)]
    assert rest == [event.id for event in replay(everywhere, waiting.run_id) if event.seq > log[begun - 1][0].seq]


def test_what_is_decided_of_a_nested_run_is_told_before_the_call_around_it_goes_on(store: Store) -> None:
    clerk = desk(store, call("refund"), "done")
    lead = Agent(
        name="lead", model=ScriptedModel([call("desk", {"input": "go"}), "done"]), tools=[clerk.as_tool()], store=store
    )
    waiting = lead.invoke("go").checkpoint
    [asked] = waiting.pending
    store.decide(asked.id, Approve(), by="ada", digest=asked.digest)
    asyncio.run(Worker([lead]).once())
    found = timeline(store, waiting.run_id).query(["decided", "tool_started", "tool_settled"])
    assert [(entry.type, entry.path, entry.facts["tool"]) for entry in found] == [
        ("tool_started", "", "desk"),
        ("decided", "1.0", "refund"),
        ("tool_started", "", "desk"),
        ("tool_started", "1.0", "refund"),
        ("tool_settled", "1.0", "refund"),
        ("tool_settled", "", "desk"),
    ]


def test_a_call_that_waited_for_a_human_has_settled_after_that() -> None:
    """How long a call took is how long it worked."""
    now = [1_900_000_000.0]
    store = MemoryStore(clock=lambda: now[0])
    clerk = desk(store, call("refund"), "done")
    graph = StateGraph(Said)
    graph.add_node("ask", clerk, input="said", output="said")
    graph.set_entry_point("ask")
    graph.set_finish_point("ask")
    agent = graph.compile(store=store)
    waiting = agent.invoke({"said": "go"}).checkpoint
    now[0] += 3600
    agent.resume(waiting, approved=False)
    settled = timeline(store, waiting.run_id).query("tool_settled", path="")
    [entry] = settled
    assert 0 <= entry.at.timestamp() - now[0] < 60  # what it worked since, by a real clock: nothing of the hour


def test_a_checkpoint_means_what_led_to_it(store: Store) -> None:
    agent = desk(store)
    run_id = driven(SYNC, agent)
    whole = timeline(store, run_id)
    second = store.history(store.head(run_id)[1].id)[1]
    assert timeline(store, second.id).entries == timeline(store, second).entries == whole.entries[:9]
    assert timeline(store, store.head(run_id)[1]) == whole
    for nothing in ("run_0", "ckpt_0"):
        with pytest.raises(CheckpointNotFound, match="knows no run, branch or checkpoint") as unknown:
            timeline(store, nothing)
        assert unknown.value.id == nothing
    with pytest.raises(ConfigurationError, match="of an id as text"):
        timeline(store, 7)  # type: ignore[arg-type]


def test_a_run_that_has_failed_says_so_at_its_end_until_it_goes_on(store: Store, driver: Driver) -> None:
    agent = desk(store, ModelError("away"), "done", driver=driver)
    with pytest.raises(ModelError) as failed:
        driver.invoke(agent, "go")
    run_id = str(failed.value.run_id)
    found = timeline(store, run_id)
    assert lines(found) == ["0 run_started", "1 checkpoint running", "2 failed"]
    assert found.entries[2].checkpoint_id == store.head(run_id)[1].id
    assert lines(timeline(store, found.entries[1].checkpoint_id or ""))[-1] == "2 failed"  # where it failed
    driver.recover(agent, run_id)
    assert lines(timeline(store, run_id))[2:] == ["2 model_replied", "3 checkpoint completed", "4 ended completed"]


def test_what_led_to_a_checkpoint_before_a_failure_did_not_fail(store: Store) -> None:
    agent = desk(store)
    waiting = agent.invoke("go").checkpoint
    with pytest.raises(ModelError):
        agent.resume(waiting, approved=True)
    assert lines(timeline(store, waiting))[-1] == RUN[10]
    assert lines(timeline(store, waiting.run_id))[-1] == "16 failed"


def test_the_timeline_of_a_run_is_of_no_other_run_of_its_thread(store: Store) -> None:
    agent = desk(store, "one", "two")
    first, second = (agent.invoke("go", thread_id="t").run_id for _ in range(2))
    expected = [
        "0 run_started",
        "1 checkpoint running",
        "2 model_replied",
        "3 checkpoint completed",
        "4 ended completed",
    ]
    for run_id in (first, second):
        found = timeline(store, run_id)
        assert lines(found) == expected
        assert {entry.run_id for entry in found} == {run_id}


def test_a_fork_holds_what_its_parent_did_up_to_there(everywhere: Store) -> None:
    """D43: a fork keeps what was before it."""
    agent = desk(everywhere)
    waiting = agent.invoke("go").checkpoint
    fork = agent.fork(waiting, label="what if")
    with pytest.raises(ModelError):
        agent.resume(waiting, approved=True)
    whole, forked = timeline(everywhere, waiting.run_id), timeline(everywhere, fork.branch_id)
    assert lines(forked)[:11] == RUN[:11]
    assert lines(forked)[11:] == [
        "11 branched what if",
        "12 approval_requested refund",
        "13 checkpoint suspended what if",
        "14 suspended",
    ]
    assert whole.fork_at(waiting).entries == whole.fork_at(waiting.id).entries == forked.entries[:11]
    assert forked.fork_at(fork) == forked
    assert [entry.branch_id for entry in forked] == [waiting.run_id] * 11 + [fork.branch_id] * 4
    assert forked.entries[11].facts == {"from": waiting.id, "label": "what if"}
    asked = [entry.facts["pending_id"] for entry in forked.query("approval_requested")]
    assert asked == [waiting.pending[0].id, fork.pending[0].id]


def test_a_fork_at_a_checkpoint_that_is_not_there_is_refused(store: Store) -> None:
    """D43: where nothing matches, the original clears everything and says nothing."""
    found = timeline(store, driven(SYNC, desk(store)))
    with pytest.raises(CheckpointNotFound, match="not in this timeline of branch") as unknown:
        found.fork_at("ckpt_0")
    assert unknown.value.id == "ckpt_0"
    assert len(found) == 17
    first = str(found.entries[0].checkpoint_id)
    with pytest.raises(CheckpointNotFound, match="The 12 oldest entries are not kept"):
        timeline(store, found.run_id, max_events=5).fork_at(first)


class Said(TypedDict):
    said: str


def test_nested_runs_carry_their_path_and_their_agent(store: Store, driver: Driver) -> None:
    def pay() -> str:
        """Pay."""
        return "paid"

    gated = tool(requires_approval=True)(driver.function(pay))
    clerk = Agent(name="clerk", model=ScriptedModel([call("pay"), "paid it"]), tools=[gated])
    recorder = TimelineRecorder(store=store)
    graph = StateGraph(Said, name="boss")
    graph.add_node("ask", clerk, input="said", output="said")
    graph.set_entry_point("ask")
    graph.set_finish_point("ask")
    agent = graph.compile(store=store, hooks=[recorder])
    waiting = driver.invoke(agent, {"said": "pay"})
    assert driver.resume(agent, waiting.checkpoint, approved=True).output["said"] == "paid it"
    found = timeline(store, waiting.run_id)
    path = waiting.checkpoint.pending[0].path
    assert {(entry.path, entry.agent) for entry in found} == {("", "boss"), (path, "clerk")}
    assert [line.partition(" ")[2] for line in lines(found.query(path=path))] == [
        "run_started",
        "checkpoint running",
        "model_replied",
        "approval_requested pay",
        "checkpoint suspended",
        "decided pay approve False",
        "checkpoint running",
        "tool_started pay 1",
        "tool_settled pay completed",
        "checkpoint running",
        "model_replied",
        "checkpoint completed",
        "ended completed",
    ]
    assert len(found.query("decided")) == 1  # it is recorded at the root as well
    assert found.query(agent="clerk") == found.query(path=path)
    assert len(found.query(path="")) + len(found.query(path=path)) == len(found)
    assert same(recorder.timeline(waiting.run_id), found)


# Breakpoints


class Numbers(TypedDict, total=False):
    n: int


def counting(store: Store, **options: Any) -> Any:
    """A graph of two nodes that stops before the second."""
    graph = StateGraph(Numbers)
    graph.add_node("one", lambda state: {"n": 1})
    graph.add_node("two", lambda state: {"n": state["n"] + 1})
    graph.set_entry_point("one")
    graph.add_edge("one", "two")
    graph.set_finish_point("two")
    return graph.compile(**{"store": store, "interrupt_before": ["two"], **options})


def test_a_breakpoint_is_hit_and_resumed(store: Store, driver: Driver) -> None:
    """D18: a breakpoint that is hit, and that the run goes on from, is on the timeline."""
    recorder = TimelineRecorder()
    graph = counting(store, hooks=[recorder])
    waiting = driver.invoke(graph, {})
    assert driver.resume(graph, waiting.checkpoint).output["n"] == 2
    found = timeline(store, waiting.run_id)
    hit, resumed = found.query(["breakpoint_hit", "breakpoint_resumed"])
    pending = waiting.checkpoint.pending[0]
    assert (hit.type, hit.facts["pending_id"], hit.facts["tool"]) == ("breakpoint_hit", pending.id, "two")
    assert (resumed.type, resumed.facts["pending_id"]) == ("breakpoint_resumed", pending.id)
    assert (resumed.facts["skipped"], resumed.facts["edited"], resumed.facts["kind"]) == (False, False, "approve")
    assert found.query(("approval_requested", "decided")) == ()
    assert same(recorder.timeline(waiting.run_id), found)


ANSWERS: list[tuple[Any, str, dict[str, Any]]] = [
    (Approve(), "breakpoint_resumed", {"kind": "approve", "skipped": False, "edited": False}),
    (Approve(args={"q": "b"}), "breakpoint_resumed", {"kind": "approve", "skipped": False, "edited": True}),
    (Skip(), "breakpoint_resumed", {"kind": "skip", "skipped": True, "edited": False}),
    (Respond(content=SECRET), "breakpoint_resumed", {"kind": "respond", "skipped": False, "edited": False}),
    (Reject(reason=SECRET), "breakpoint_cancelled", {"kind": "reject", "edited": False}),
]


@pytest.mark.parametrize(("answer", "type", "facts"), ANSWERS, ids=lambda value: getattr(value, "type", None))
def test_a_breakpoint_of_an_agent_says_how_it_ended(
    everywhere: Store, driver: Driver, answer: Any, type: str, facts: dict[str, Any]
) -> None:
    """D18: hit (id, type, label), and resumed (modified, skipped) or cancelled."""

    def look(q: str) -> str:
        """Look."""
        return q

    recorder = TimelineRecorder()
    agent = Agent(
        name="desk",
        model=ScriptedModel([call("look", {"q": "a"}), "done"]),
        tools=[tool(driver.function(look))],
        breakpoints=[Breakpoint("pre_tool_call", label="look first")],
        store=everywhere,
        hooks=[recorder],
    )
    waiting = driver.invoke(agent, "go").checkpoint
    pending = waiting.pending[0]
    driver.resume(agent, waiting, decisions={pending.id: answer}, by="ada")
    found = timeline(everywhere, waiting.run_id)
    hit, end = [entry for entry in found if entry.type.startswith("breakpoint")]
    place = {"pending_id": pending.id, "point": "pre_tool_call", "label": "look first", "tool": "look"}
    assert (hit.type, hit.facts) == ("breakpoint_hit", {**place, "call_id": pending.call_id})
    assert (end.type, end.facts) == (type, {**place, **facts, "by": "ada"})
    assert same(recorder.timeline(waiting.run_id), found)


def test_a_breakpoint_that_nobody_answers_expires_on_the_timeline(store: Store, driver: Driver) -> None:
    """D18: in the original, a timeout leaves no entry."""
    recorder = TimelineRecorder()
    agent = desk(store, "done", driver=driver, breakpoints=[Breakpoint("pre_model_call")], hooks=[recorder])
    with pytest.raises(BreakpointTimeout) as late:
        driver.invoke(agent, "go", hold=Hold(timeout=0.001))
    run_id = late.value.result.run_id
    found = timeline(store, run_id)
    assert [entry.type for entry in found if entry.type not in ("checkpoint", "tool_settled")] == [
        "run_started",
        "breakpoint_hit",
        "suspended",
        "breakpoint_expired",
        "ended",
    ]
    assert found.query("breakpoint_expired")[0].facts["point"] == "pre_model_call"
    assert found.query("ended")[0].facts["status"] == "cancelled"
    assert same(recorder.timeline(run_id), found)


def test_what_guardrails_said_is_there_and_not_what_they_looked_at(store: Store, driver: Driver) -> None:
    recorder = TimelineRecorder()
    agent = desk(
        store,
        "done",
        driver=driver,
        input_guardrails=[MaxLength(100), RefusePatterns([SECRET], "no cards, please")],
        hooks=[recorder],
    )
    with pytest.raises(GuardrailRefused) as refused:
        driver.invoke(agent, f"my card is {SECRET}")
    found = timeline(store, refused.value.result.run_id)
    (asked,) = found.query("guardrail")
    said = {"max_length": "passed", "refuse_patterns": "refused"}
    assert asked.facts == {"stage": "input", "said": said, "code": refused.value.code}
    assert SECRET not in found.export() and "no cards" not in found.export()
    assert same(recorder.timeline(found.run_id), found)
    assert Timeline.load(found.export()) == found


def test_a_breakpoint_inside_a_run_that_is_cancelled_is_on_the_timeline_too(store: Store, driver: Driver) -> None:
    """D18: at any depth."""
    recorder = TimelineRecorder(store=store)
    outer = StateGraph(Numbers, name="outer")
    outer.add_node("inside", counting(store))
    outer.set_entry_point("inside")
    outer.set_finish_point("inside")
    graph = outer.compile(store=store, hooks=[recorder])
    waiting = driver.invoke(graph, {})
    driver.cancel(graph, waiting.checkpoint)
    found = timeline(store, waiting.run_id)
    hit, cancelled = [entry for entry in found if entry.type.startswith("breakpoint")]
    assert (hit.type, cancelled.type) == ("breakpoint_hit", "breakpoint_cancelled")
    assert hit.facts["pending_id"] == cancelled.facts["pending_id"] == waiting.checkpoint.pending[0].id
    assert hit.path == waiting.checkpoint.pending[0].path != ""
    assert same(recorder.timeline(waiting.run_id), found)


@pytest.mark.parametrize("how", ["cancel", "reject"])
def test_a_breakpoint_that_is_cancelled_is_on_the_timeline_too(store: Store, driver: Driver, how: str) -> None:
    """D18: in the original, a cancelled breakpoint leaves no entry."""
    recorder = TimelineRecorder()
    graph = counting(store, hooks=[recorder])
    waiting = driver.invoke(graph, {})
    pending = waiting.checkpoint.pending[0]
    if how == "cancel":
        driver.cancel(graph, waiting.checkpoint, reason=SECRET)
    else:
        driver.resume(graph, waiting.checkpoint, decisions={pending.id: Reject(reason=SECRET)})
    found = timeline(store, waiting.run_id)
    _, cancelled = [entry for entry in found if entry.type.startswith("breakpoint")]
    assert (cancelled.type, cancelled.facts["pending_id"]) == ("breakpoint_cancelled", pending.id)
    assert found.entries[-1].type == "ended"
    assert same(recorder.timeline(waiting.run_id), found)


def test_a_fork_answers_for_its_own_breakpoints_alone(store: Store) -> None:
    graph = counting(store)
    waiting = graph.invoke({}).checkpoint
    fork = graph.fork(waiting)
    graph.cancel(fork)
    found = timeline(store, fork.branch_id)
    assert [entry.facts["pending_id"] for entry in found.query("breakpoint_hit")] == [
        waiting.pending[0].id,
        fork.pending[0].id,
    ]
    assert [entry.facts["pending_id"] for entry in found.query("breakpoint_cancelled")] == [fork.pending[0].id]


def test_what_stands_in_a_run_to_be_stopped_at_is_no_call(store: Store) -> None:
    graph = counting(store, interrupt_before=[], interrupt_after=["one"])
    waiting = graph.invoke({}).checkpoint
    assert graph.resume(waiting).output["n"] == 2
    found = timeline(store, waiting.run_id)
    assert [entry.facts["gate"] for entry in found.query("breakpoint_hit")] == [True]
    assert [entry.facts["tool"] for entry in found.query("tool_settled")] == ["one", "two"]


def test_a_label_on_demand_is_a_checkpoint_and_no_new_stop(store: Store) -> None:
    graph = counting(store)
    waiting = graph.invoke({}).checkpoint
    named = graph.checkpoint(waiting, label="here")
    found = timeline(store, waiting.run_id)
    assert lines(found.entries[-2:]) == ["7 suspended", "8 checkpoint suspended here"]
    assert found.entries[-1].checkpoint_id == named.id


# Hearing


def same(heard: Timeline, read: Timeline) -> bool:
    """Whether two timelines are the same but for times: what is heard has that of hearing, where an event has none."""
    return [entry.evolve(at=None) for entry in heard] == [entry.evolve(at=None) for entry in read]


@pytest.mark.parametrize("driver", [*STREAMED], ids=str)
def test_what_is_heard_of_a_stream_is_what_is_read(everywhere: Store, driver: Driver) -> None:
    heard: list[tuple[int, bool]] = []
    recorder = TimelineRecorder(
        listeners=[lambda entry: heard.append((entry.id, entry in timeline(everywhere, entry.run_id).entries))]
    )
    agent = desk(everywhere, call("refund"), "done", driver=driver, hooks=[recorder])
    waiting = driver.invoke(agent, "go").checkpoint
    driver.resume(agent, waiting, approved=True)
    found = timeline(everywhere, waiting.run_id)
    assert same(recorder.timeline(waiting.run_id), found)
    assert [id for id, _ in heard] == [entry.id for entry in found] == list(range(len(found)))


def test_listeners_hear_of_nothing_before_it_is_stored(store: Store, driver: Driver) -> None:
    early: list[TimelineEntry] = []

    def listen(entry: TimelineEntry) -> None:
        stored = timeline(store, entry.branch_id).entries
        if (entry.event, entry.type) not in {(each.event, each.type) for each in stored}:
            early.append(entry)

    recorder = TimelineRecorder(listeners=[listen])
    driven(driver, desk(store, driver=driver, hooks=[recorder]))
    assert [entry.type for entry in early] == ["failed"]  # of which the chain has no entry, and the branch its status


def test_a_failure_is_heard_and_counts(store: Store, driver: Driver) -> None:
    recorder = TimelineRecorder()
    run_id = driven(driver, desk(store, driver=driver, hooks=[recorder]))
    heard = recorder.timeline(run_id)
    assert lines(heard) == [*RUN[:14], "14 failed", "15 model_replied", "16 checkpoint completed", "17 ended completed"]
    assert heard.entries[14].facts == {"error": "ModelError"}
    read = {(entry.branch_id, entry.event, entry.type) for entry in timeline(store, run_id)}
    assert {(entry.branch_id, entry.event, entry.type) for entry in heard if entry.type != "failed"} == read


def test_what_a_listener_raises_is_logged_without_what_it_said_and_changes_nothing(
    store: Store, driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """D43: listener errors are isolated."""

    def broken(entry: TimelineEntry) -> None:
        raise ValueError(SECRET)

    after: list[int] = []
    recorder = TimelineRecorder(listeners=[broken, lambda entry: after.append(entry.id)])
    agent = desk(store, "done", driver=driver, hooks=[recorder])
    assert driver.invoke(agent, "go").output == "done"
    assert after == [0, 1, 2, 3, 4]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors[0] == "listener broken raised ValueError on run_started"
    assert len(errors) == 5 and SECRET not in caplog.text


@pytest.mark.parametrize("listener", [7, "print"])
def test_a_listener_is_a_sync_function(listener: Any) -> None:
    async def later(entry: TimelineEntry) -> None:
        """Never called."""

    for wrong in (listener, later):
        with pytest.raises(ConfigurationError, match="a listener of a timeline is a sync function"):
            TimelineRecorder(listeners=[wrong])


def test_a_run_that_was_begun_elsewhere_is_told_from_its_beginning_with_its_store(everywhere: Store) -> None:
    waiting = desk(everywhere, call("refund")).invoke("go").checkpoint
    heard: list[int] = []
    recorder = TimelineRecorder(store=everywhere, listeners=[lambda entry: heard.append(entry.id)])
    desk(everywhere, "done", hooks=[recorder]).resume(waiting, approved=True)
    found = timeline(everywhere, waiting.run_id)
    assert same(recorder.timeline(waiting.run_id), found)
    assert heard == list(range(6, len(found)))  # listeners hear what is new
    fork = desk(everywhere).fork(waiting)
    desk(everywhere, "done", hooks=[recorder]).resume(fork, approved=False)
    assert same(recorder.timeline(fork.branch_id), timeline(everywhere, fork.branch_id))


def test_a_recorder_of_a_run_and_of_what_is_inside_it_tells_each_thing_once(store: Store, driver: Driver) -> None:
    recorder = TimelineRecorder(store=store)
    clerk = Agent(name="clerk", model=ScriptedModel(["one", "two"]), hooks=[recorder])
    graph = StateGraph(Said, name="boss")
    graph.add_node("ask", clerk, input="said", output="said")
    graph.set_entry_point("ask")
    graph.set_finish_point("ask")
    run_id = driver.invoke(graph.compile(store=store, hooks=[recorder]), {"said": "go"}).run_id
    assert same(recorder.timeline(run_id), timeline(store, run_id))


def test_without_the_store_it_is_told_from_where_it_went_on(store: Store) -> None:
    waiting = desk(store, call("refund")).invoke("go").checkpoint
    recorder = TimelineRecorder()
    desk(store, "done", hooks=[recorder]).resume(waiting, approved=True)
    heard, found = recorder.timeline(waiting.run_id), timeline(store, waiting.run_id)
    assert [entry.id for entry in heard] == list(range(len(heard)))
    assert [entry.event for entry in heard] == [entry.event for entry in found.entries[6:]]
    with pytest.raises(CheckpointNotFound, match="nothing is kept of branch run_0"):
        recorder.timeline("run_0")


def test_an_import_is_told_on_from_where_it_ends(store: Store) -> None:
    """D43: after an import, ids go on."""
    waiting = desk(store, call("refund")).invoke("go").checkpoint
    text = timeline(store, waiting.run_id).export()
    recorder = TimelineRecorder(onto=Timeline.load(text))
    desk(store, "done", hooks=[recorder]).resume(waiting, approved=True)
    assert same(recorder.timeline(waiting.run_id), timeline(store, waiting.run_id))


def test_a_call_whose_result_another_branch_has_is_settled_in_both_alike(store: Store) -> None:
    agent = desk(store, call("refund"), "done", "done again")
    waiting = agent.invoke("go").checkpoint
    fork = agent.fork(waiting)
    agent.resume(waiting, approved=True)
    recorder = TimelineRecorder(store=store)
    again = desk(store, "done again", hooks=[recorder])
    again.resume(fork, approved=True)
    found = timeline(store, fork.branch_id)
    assert [entry.facts["kind"] for entry in found.query("tool_settled")] == ["completed"]
    assert same(recorder.timeline(fork.branch_id), found)


def test_events_that_are_replayed_are_told_alike_and_once(store: Store) -> None:
    run_id = driven(SYNC, desk(store))
    found, events = timeline(store, run_id), list(replay(store, run_id))
    for recorder in (TimelineRecorder(), TimelineRecorder(onto=found.fork_at(str(found.entries[4].checkpoint_id)))):
        for event in events:
            recorder.on_event(event)
        assert same(recorder.timeline(run_id), found)
    again = TimelineRecorder(store=store, onto=found)
    for event in events:
        again.on_event(event)
    assert again.timeline(run_id) == found


def test_who_comes_in_the_middle_of_a_call_hears_of_its_end(store: Store) -> None:
    """Whether a call that was not seen to begin settled by being run is known with the next event."""
    run_id = driven(SYNC, desk(store))
    found = timeline(store, run_id)
    recorder = TimelineRecorder()
    for event in replay(store, run_id):
        if event.type != "tool_call_started":
            recorder.on_event(event)
    heard = [(entry.type, entry.event, entry.checkpoint_id) for entry in recorder.timeline(run_id)]
    assert heard == [(entry.type, entry.event, entry.checkpoint_id) for entry in found if entry.type != "tool_started"]


# Bounds


def test_the_newest_are_kept_and_ids_go_on_counting(store: Store) -> None:
    """D43: 2,000 entries by default, the oldest dropped first."""
    recorder = TimelineRecorder(max_events=5)
    run_id = driven(SYNC, desk(store, hooks=[recorder]))
    found = timeline(store, run_id, max_events=5)
    assert lines(found) == RUN[12:]
    assert (found.dropped, found.max_events, len(found)) == (12, 5, 5)
    assert [entry.id for entry in recorder.timeline(run_id)] == [13, 14, 15, 16, 17]
    assert timeline(store, run_id).max_events == Timeline(run_id="r", branch_id="b").max_events == 2_000


def test_the_end_of_a_long_run_is_told_as_in_the_whole_timeline() -> None:
    """Without what was before: of nested runs, stops, decisions, a fork and a second run of the thread, from every place on."""
    store = MemoryStore()

    @tool(requires_approval=True)
    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    turns: list[Any] = [call("pay", {"n": 1}), say("", call("pay", {"n": 2}), call("pay", {"n": 3})), "In order."]
    clerk: Agent[Any, str] = Agent(name="clerk", model=ScriptedModel.by_turn(turns), tools=[pay], store=store)
    outer = [say("", call("ask", {"input": "go"}), call("pay", {"n": 4})), call("pay", {"n": 5}), "Done."]
    desk: Agent[Any, str] = Agent(
        name="desk",
        model=ScriptedModel.by_turn(outer),
        tools=[pay, clerk.as_tool(name="ask", description="Ask the clerk.")],
        store=store,
        breakpoints=[Breakpoint("pre_model_call")],
    )
    result = desk.invoke("Go", thread_id="t")
    while result.status == "suspended":
        item = result.checkpoint.pending[0]
        answer = Reject(reason="no") if item.why == "approval" and item.args["n"] == 2 else Approve()
        result = desk.resume(result.checkpoint, decisions={item.id: answer}, by="ann")
    path = store.history(result.checkpoint.id)
    fork, again = desk.fork(path[len(path) // 2]), desk.invoke("Again", thread_id="t", on_pending="ignore")

    def plain(entries: Any) -> list[Any]:
        return [each.model_dump(mode="json", exclude={"id"}) for each in entries]

    for branch_id, many in ((result.run_id, True), (fork.branch_id, True), (again.run_id, False)):
        every = plain(timeline(store, branch_id))
        assert len(every) > 50 or not many
        for most in {1, 2, 3, 5, 8, 13, 21, 34, len(every), len(every) + 1}:
            newest, more = recent(store, branch_id, most=most)
            assert (plain(newest), more) == (every[-most:], len(every) > most), (branch_id, most)


def test_the_bound_of_a_recorder_is_over_all_runs(store: Store) -> None:
    recorder = TimelineRecorder(max_events=8)
    agent = desk(store, *["done"] * 20, hooks=[recorder])
    runs = [agent.invoke("go").run_id for _ in range(20)]
    assert len(recorder.entries) == 8
    assert [entry.run_id for entry in recorder.entries] == [runs[-2]] * 3 + [runs[-1]] * 5
    assert (len(recorder._lines), len(recorder._counts)) == (2, 2)  # what is known of the others is gone


@pytest.mark.parametrize("bound", [0, -1, 1.5, True, "3", None, float("nan")])
def test_a_bound_below_one_is_refused(bound: Any, store: Store) -> None:
    """D43: max < 1 is an error."""
    for make in (
        lambda: timeline(store, "run_0", max_events=bound),
        lambda: TimelineRecorder(max_events=bound),
        lambda: Timeline(run_id="run_0", branch_id="run_0", max_events=bound),
    ):
        with pytest.raises(ConfigurationError, match="max_events is a number of entries, 1 or more"):
            make()


# Asking


def test_entries_are_found_by_type_agent_checkpoint_and_time(store: Store) -> None:
    """D43: by agent, type, checkpoint and time range, which is inclusive."""
    found = timeline(store, driven(SYNC, desk(store)))
    assert lines(found.query("tool_failed")) == RUN[6:7]
    assert lines(found.query({"tool_failed", "ended"})) == [RUN[6], RUN[16]]
    assert lines(found.query(["suspended"], agent="desk")) == RUN[10:11]
    assert found.query(agent="nobody") == found.query(path="elsewhere") == ()
    assert found.query() == found.entries
    checkpoint = store.load(str(found.entries[4].checkpoint_id))
    assert lines(found.query(checkpoint=checkpoint)) == lines(found.query(checkpoint=checkpoint.id)) == RUN[2:9]
    at = found.entries[4].at
    assert found.entries[4] in found.query(since=at, until=at)
    assert found.query(since=at) == tuple(entry for entry in found if entry.at >= at)
    assert found.query(until=at.timestamp()) == tuple(entry for entry in found if entry.at <= at)
    assert found.query(until=0) == ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"type": "model_called"}, "no entry is of type 'model_called': there are run_started, "),
        ({"type": ["ended", "Ended"]}, "no entry is of type 'Ended'"),
        ({"type": 7}, "the type of an entry is text"),
        ({"since": datetime(2030, 1, 1)}, "since is a datetime with a time zone"),  # noqa: DTZ001
        ({"until": "now"}, "until is a datetime with a time zone"),
        ({"until": float("nan")}, "until is a datetime with a time zone"),
    ],
)
def test_what_nothing_can_be_is_refused_when_it_is_asked_for(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Timeline(run_id="run_0", branch_id="run_0").query(**options)


def test_what_is_given_out_changes_nothing(store: Store) -> None:
    """D43: getters copy."""
    found = timeline(store, driven(SYNC, desk(store)))
    before = found.export()
    found.entries[2].facts["tools"].append("mine")
    found.entries[11].facts["kind"] = "approve"
    for change in (
        lambda: setattr(found, "entries", ()),
        lambda: setattr(found.entries[0], "id", 7),
        lambda: setattr(found.entries[0], "facts", {}),
    ):
        with pytest.raises((AttributeError, ValueError)):
            change()
    assert isinstance(found.entries, tuple)
    assert found.export() == before


def test_nothing_that_was_said_is_in_it(store: Store, driver: Driver) -> None:
    """No input, arguments, results, errors or reasons: they are in the checkpoints."""
    recorder = TimelineRecorder()
    run_id = driven(driver, desk(store, driver=driver, hooks=[recorder]))
    checkpoint = store.head(run_id)[1]
    assert SECRET in checkpoint.model_dump_json()
    for found in (timeline(store, run_id), recorder.timeline(run_id)):
        assert SECRET not in found.export()
        assert SECRET not in repr(found)


# Exports


def exported(store: Store) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(timeline(store, driven(SYNC, desk(store))).export())
    return data


def test_an_export_comes_back_as_it_was(everywhere: Store) -> None:
    """D43: ids are kept."""
    found = timeline(everywhere, driven(SYNC, desk(everywhere)), max_events=9)
    text = found.export()
    again = Timeline.load(text)
    assert again == found == Timeline.load(text.encode())
    assert again.export() == text
    assert [entry.id for entry in again] == list(range(8, 17))
    assert json.loads(text)["version"] == 1
    nothing = Timeline(run_id="run_0", branch_id="run_0")
    assert Timeline.load(nothing.export()) == nothing


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        (b"\xff", "not UTF-8"),
        ("[]", "an object with a version is needed"),
        ("{}", "an object with a version is needed"),
        ('{"version":true}', "an object with a version is needed"),
        ('{"version":2}', "of version 2, and this release reads 1: upgrade phronomy"),
        ('{"version":1}', "'branch_id' is missing, or unknown"),
        ('{"version":1,"version":1}', "version"),
    ],
)
def test_what_is_no_export_is_refused(text: str | bytes, said: str) -> None:
    """D43: bad JSON, no object, no entries."""
    with pytest.raises(ConfigurationError, match=said):
        Timeline.load(text)


HOSTILE = ("__proto__", "constructor", "prototype", "toString", "valueOf", "hasOwnProperty")


def test_hostile_and_unknown_keys_are_refused_at_every_depth(store: Store) -> None:
    """D43: at the top and in each entry, and in its facts as well."""
    data = exported(store)
    for key in HOSTILE:
        for part in (data, data["entries"][3], data["entries"][3]["facts"]):
            part[key] = 1
            with pytest.raises(ConfigurationError):
                Timeline.load(json.dumps(data))
            del part[key]
    text = json.dumps(data)
    assert Timeline.load(text)
    with pytest.raises(ConfigurationError, match="this is no timeline"):
        Timeline.load(text.replace('"type": "ended"', '"type": "ended", "type": "failed"'))


@pytest.mark.parametrize(
    "change",
    [
        {"type": "model_called"},
        {"type": None},
        {"id": -1},
        {"id": "3"},
        {"id": 7},
        {"at": "2030-01-01T00:00:00"},
        {"at": 1_900_000_000},
        {"at": "soon"},
        {"run_id": "run_0"},
        {"event": "1"},
        {"event": "1.0 or 2"},
        {"facts": []},
        {"facts": {"secret": 1}},
        {"path": None},
    ],
    ids=json.dumps,
)
def test_a_malformed_entry_is_refused_and_never_left_out(store: Store, change: dict[str, Any]) -> None:
    """D43: the original leaves out what is malformed, or of an unknown type, and says nothing."""
    data = exported(store)
    data["entries"][3] |= change
    with pytest.raises(ConfigurationError) as refused:
        Timeline.load(json.dumps(data))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "change", [{"run_id": 7}, {"entries": {}}, {"entries": [7]}, {"max_events": 3}, {"max_events": 0}]
)
def test_a_malformed_export_is_refused(store: Store, change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Timeline.load(json.dumps(exported(store) | change))


def test_entries_follow_one_another(store: Store) -> None:
    found = timeline(store, driven(SYNC, desk(store)))
    for entries in (found.entries[::-1], found.entries[:3] + found.entries[4:], found.entries[:2] * 2):
        with pytest.raises(ConfigurationError, match="do not follow one another"):
            Timeline(run_id=found.run_id, branch_id=found.branch_id, entries=entries)
    with pytest.raises(ConfigurationError, match="is of another run"):
        Timeline(run_id="run_0", branch_id="run_0", entries=found.entries)


def test_every_type_has_its_facts() -> None:
    assert FACTS.keys() == set(TYPES)
    with pytest.raises(ValueError, match="no such fact"):
        TimelineEntry(id=0, type="ended", at=datetime.now(UTC), run_id="r", branch_id="b", event="1.0", facts={"x": 1})

"""What was written under a text is found under it, also where half of a surrogate pair was replaced on the way in."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from drivers import DRIVERS, Driver
from places import Place

from phronomy import (
    END,
    START,
    Agent,
    Breakpoint,
    CheckpointNotFound,
    ConfigurationError,
    Handoff,
    StateGraph,
    StoreError,
    tool,
)
from phronomy.observability.events import replay
from phronomy.observability.timeline import Timeline, timeline
from phronomy.testing import ScriptedModel, call

ODD = "half a pair: \ud800"
"""As `sys.argv` has a byte that is no UTF-8, or a program cuts an emoji in two."""

STORED = "half a pair: \ufffd"


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


def desk(driver: Driver, place: Place, **options: Any) -> Agent[Any, str]:
    """An agent whose name, whose tool's risk, and whose run are called so."""

    def pay(order: int) -> str:
        """Pay an order."""
        return f"paid {order}"

    paying = tool(requires_approval=True, risk=ODD)(driver.function(pay))
    model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
    return Agent(name=ODD, model=model, tools=[paying], store=place.open(), **options)


def test_what_waits_is_found_under_what_it_was_written_under(driver: Driver, place: Place) -> None:
    agent = desk(driver, place)
    asked = driver.invoke(agent, "Pay it", thread_id=ODD, label=ODD).checkpoint
    store = place.open()
    first = store.history(asked.id)[0]
    assert (first.thread_id, first.label, first.agent.name) == (STORED,) * 3

    for wanted in ({"thread_id": ODD}, {"label": ODD}, {"agent": ODD}, {"risk": ODD}):
        both = {**wanted, "tool": "pay"}
        assert [item.checkpoint_id for item in store.pending(**both)] == [asked.id], wanted  # type: ignore[arg-type]
        assert store.count(**both) == 1, wanted  # type: ignore[arg-type]
    assert [row.checkpoint_id for row in store.pending_rows(thread_id=ODD)] == [asked.id]
    assert store.pending(thread_id="half a pair: ?") == []


def test_so_are_checkpoints_branches_and_the_audit_trail(driver: Driver, place: Place) -> None:
    agent = desk(driver, place)
    asked = driver.invoke(agent, "Pay it", thread_id=ODD, label=ODD).checkpoint
    ended = driver.resume(agent, asked, approved=True, by=ODD, channel=ODD).checkpoint

    store = place.open()
    latest = store.latest(ODD)
    assert latest is not None and latest.id == ended.id
    assert [branch.id for branch in store.branches(thread_id=ODD)] == [asked.branch_id]
    assert ended.id in [info.id for info in store.list(thread_id=ODD)]
    assert ended.id in [info.id for info in store.list(agent=ODD)]
    assert [info.id for info in store.list(label=ODD)] == [info.id for info in store.list(label=STORED)] != []
    (record,) = store.audit(thread_id=ODD)
    assert record.by is not None
    assert (record.by.id, record.channel, record.agent) == (STORED,) * 3
    assert timeline(store, asked.run_id).query("decided", agent=ODD) != ()
    again = driver.invoke(agent, "Pay it again", thread_id=ODD).checkpoint
    assert ended.id in [checkpoint.id for checkpoint in store.history(again.id)]


def test_an_agent_goes_on_with_and_recovers_what_it_made_under_an_odd_name(driver: Driver, place: Place) -> None:
    agent = desk(driver, place)
    asked = driver.invoke(agent, "Pay it").checkpoint
    again = desk(driver, place, approval_timeout=1000)
    assert again.drift(asked).changed == ()
    assert driver.resume(again, asked, approved=True).output == "Done."

    asked = driver.invoke(desk(driver, place, approval_timeout=1.0), "Pay it").checkpoint
    late = desk(driver, place)
    late.store = place.open(clock=lambda: asked.created_at.timestamp() + 10)
    (found,) = driver.call(late, "recover_all")
    assert (found.run_id, found.error) == (asked.run_id, None)
    assert late.store.head(asked.branch_id)[0].status == "completed"


def test_so_does_a_graph_and_a_breakpoint_knows_it(driver: Driver, place: Place) -> None:
    class Note(TypedDict, total=False):
        text: str

    def write(state: Note) -> Note:
        return {"text": "done"}

    flow = (
        StateGraph(Note, name=ODD)
        .add_node("write", driver.function(write))
        .add_edge(START, "write")
        .add_edge("write", END)
        .compile(store=place.open(), breakpoints=[Breakpoint("pre_node", agents=[ODD])])
    )
    asked = driver.invoke(flow, {}).checkpoint  # type: ignore[arg-type]
    assert [item.point for item in asked.pending] == ["pre_node"]
    assert driver.resume(flow, asked).output == {"text": "done"}  # type: ignore[arg-type]


def test_a_handoff_finds_an_agent_by_such_a_name(driver: Driver, place: Place) -> None:
    clerk = Agent(name=f"{ODD} clerk", model=ScriptedModel(["Hello."]))
    other = Agent(
        name="other",
        model=ScriptedModel([]),
        handoffs=[Handoff(f"{ODD} clerk", name="to_clerk")],
    )
    first = ScriptedModel([call("to_the_clerk", {"message": "hi"})])
    front = Agent(name="front", model=first, handoffs=[Handoff(clerk, name="to_the_clerk"), other], store=place.open())
    ended = driver.invoke(front, "Hi")
    assert (ended.output, ended.checkpoint.speaker) == ("Hello.", f"{STORED} clerk")


@pytest.mark.parametrize("given", [None, 7, b"run_1", ["run_1"]])
def test_what_is_no_text_is_refused_and_nothing_is_taken_away(place: Place, given: Any) -> None:
    agent = desk(DRIVERS[0], place)
    driver, store = DRIVERS[0], place.open()
    ended = driver.resume(agent, driver.invoke(agent, "Pay it", thread_id="t").checkpoint, approved=True).checkpoint
    for find in (store.load, store.head, store.history, store.children, store.latest, store.delete, store.wait):
        with pytest.raises(StoreError, match="is text, not"):
            find(given)
    with pytest.raises(ConfigurationError, match="id of a branch"):
        replay(store, given)
    with pytest.raises(ConfigurationError, match="a timeline is of a checkpoint"):
        timeline(store, given)
    assert store.load(ended.id).ended == "completed"


def test_an_id_that_nothing_was_ever_written_under_is_not_found(place: Place) -> None:
    store = place.open()
    for find in (store.load, store.head, store.history, store.wait, lambda id: replay(store, id)):
        with pytest.raises(CheckpointNotFound) as caught:
            find(ODD)
        assert caught.value.id.encode()
    assert (store.children(ODD), store.delete(ODD)) == ([], False)


def test_names_that_are_no_text_are_refused() -> None:
    for name in (7, ["desk"], b"desk"):
        agent = Agent(name=name, model=ScriptedModel([]))  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="the name of an agent is text"):
            agent.invoke("Hi")
    nothing = Timeline(run_id="run_1", branch_id="run_1")
    for wanted in ({"agent": 7}, {"path": b""}):
        with pytest.raises(ConfigurationError, match=f"{next(iter(wanted))} is text"):
            nothing.query(**wanted)

"""Agents without a store: a decision counts once in a process, whichever agent object is handed the checkpoint."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from drivers import Driver
from pydantic import BaseModel

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointUntrusted,
    MemoryStore,
    Respond,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.records.checkpoint import decode, encode
from phronomy.stores.storeless_runs import HOMES, Homes
from phronomy.testing import ScriptedModel, call, say
from phronomy.testing.store_contract.base import race

PAY = say("", call("pay", {"order": 1}, id="call_1"), call("pay", {"order": 2}, id="call_2"))


@pytest.fixture(autouse=True)
def another_process() -> Iterator[None]:
    HOMES.forget()
    yield
    HOMES.forget()


class Desk:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.paid: list[int] = []

    def agent(self, **options: Any) -> Agent[Any, str]:
        """The agent as each request makes it anew."""

        def pay(order: int) -> str:
            """Pay an order."""
            self.paid.append(order)
            return f"paid {order}"

        gated = tool(requires_approval=True)(self.driver.function(pay))
        return Agent(name="desk", model=ScriptedModel.by_turn([PAY, "Both are paid."]), tools=[gated], **options)

    def asked(self) -> Checkpoint:
        """What a request leaves: the agent that made it is gone, and the checkpoint went through text."""
        text = encode(self.driver.invoke(self.agent(), "Pay both").checkpoint)
        gc.collect()
        return decode(text)

    def approve(self, asked: Checkpoint, *places: int, **options: Any) -> Any:
        decisions = {asked.pending[place].id: Approve() for place in places}
        return self.driver.resume(self.agent(**options), asked, decisions=decisions, by="ann")


@pytest.fixture
def desk(driver: Driver) -> Desk:
    return Desk(driver)


def test_an_approval_counts_once_whichever_agent_is_asked(desk: Desk) -> None:
    asked = desk.asked()
    assert desk.approve(asked, 0, 1).output == "Both are paid."
    with pytest.raises(CheckpointAlreadyResumed) as late:
        desk.approve(asked, 0, 1)
    assert (late.value.progress, late.value.result.output) == ("ended", "Both are paid.")
    assert late.value.decision is not None and late.value.decision.by is not None and late.value.decision.by.id == "ann"
    assert sorted(desk.paid) == [1, 2]


def test_what_different_agents_decide_comes_together_in_one_run(desk: Desk) -> None:
    asked = desk.asked()
    assert desk.approve(asked, 0).status == "suspended"
    assert desk.approve(asked, 1).output == "Both are paid."
    assert desk.paid == [1, 2]


def test_of_those_that_decide_at_once_one_does(desk: Desk) -> None:
    asked = desk.asked()
    found = race([lambda: desk.approve(asked, 0, 1) for _ in range(8)])
    assert sorted(type(each).__name__ for each in found) == ["CheckpointAlreadyResumed"] * 7 + ["Result"]
    assert sorted(desk.paid) == [1, 2]


def test_nor_does_it_count_twice_where_it_comes_from_another_process(desk: Desk) -> None:
    asked = desk.asked()
    HOMES.forget()
    found = race([lambda: desk.approve(asked, 0, 1) for _ in range(8)])
    assert sorted(type(each).__name__ for each in found) == ["CheckpointAlreadyResumed"] * 7 + ["Result"]
    assert sorted(desk.paid) == [1, 2]


def test_a_run_that_was_cancelled_by_one_agent_is_decided_by_no_other(desk: Desk) -> None:
    asked = desk.asked()
    assert desk.driver.cancel(desk.agent(), asked).status == "cancelled"
    with pytest.raises(CheckpointAlreadyResumed):
        desk.approve(asked, 0)
    assert desk.paid == []


def test_a_graph_is_no_exception(driver: Driver) -> None:
    class Order(BaseModel):
        sent: int = 0

    sent: list[int] = []

    def send(state: Order) -> dict[str, Any]:
        sent.append(1)
        return {"sent": 1}

    def graph() -> Any:
        nodes = StateGraph(Order).add_node("send", driver.function(send), requires_approval=True)
        return nodes.add_edge(START, "send").add_edge("send", END).compile()

    asked = driver.invoke(graph(), {}).checkpoint
    assert driver.resume(graph(), asked, approved=True).status == "completed"
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(graph(), asked, approved=True)
    assert sent == [1]


def test_an_agent_with_a_store_or_that_trusts_its_store_alone_looks_nowhere_else(desk: Desk) -> None:
    asked = desk.asked()
    with pytest.raises(CheckpointUntrusted):
        desk.approve(asked, 0, store=MemoryStore())
    with pytest.raises(CheckpointUntrusted):
        desk.approve(asked, 0, trust="store")
    assert desk.approve(asked, 0, 1, store=MemoryStore(), trust="bearer").status == "completed"
    assert desk.approve(asked, 0, 1).status == "completed"
    assert sorted(desk.paid) == [1, 1, 2, 2]


def test_runs_that_end_without_a_stop_are_not_kept_and_of_the_others_so_many(desk: Desk) -> None:
    homes = Homes(most=2)
    stores = [MemoryStore() for _ in range(3)]
    for number, store in enumerate(stores):
        homes.note(f"run {number}", store)
    assert homes.of("run 0", stores[2]) is stores[2], "it is forgotten, and is there from now on"
    assert homes.of("run 2", stores[0]) is stores[2]
    assert homes.of("run 1", stores[0]) is stores[0]

    quick: Agent[Any, str] = Agent(name="quick", model=ScriptedModel(["hello"]))
    run_id = desk.driver.invoke(quick, "hi").run_id
    other = MemoryStore()
    assert HOMES.of(run_id, other) is other


def test_an_answer_in_the_place_of_the_tool_counts_once_as_well(desk: Desk) -> None:
    asked = desk.asked()
    answers = {item.id: Respond(content="done by hand") for item in asked.pending}
    assert desk.driver.resume(desk.agent(), asked, decisions=answers).status == "completed"
    with pytest.raises(CheckpointAlreadyResumed):
        desk.approve(asked, 0)
    assert desk.paid == []

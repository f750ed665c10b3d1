"""`approved=` decides the only request that people answer; where several wait, it decides none of them, whichever way it comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from drivers import DRIVERS, STREAMED, Driver, rows
from pydantic import BaseModel

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    MemoryStore,
    NothingDecided,
    Principal,
    Reject,
    interrupt,
    parallel,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.testing import ScriptedModel, call
from phronomy.triggers import ExternalEvent, Question, Timer, wait_for_all, wait_for_first

BANK = {"paid": ExternalEvent("payment", senders="bank")}
LATE = {"late": Timer(after=60)}
ASKED = {"sure": Question("Sure?", answer=bool)}


class Said(BaseModel):
    """The state of the graph here."""

    a: str = ""
    b: str = ""


@pytest.fixture(params=[*DRIVERS, *STREAMED], ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


class Desk:
    """Runs at which several requests wait, and what was done of them."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.store = MemoryStore()
        self.done: list[int] = []

    def payer(self, *orders: int, **options: Any) -> Agent[Any, Any]:
        @tool(requires_approval=True)
        @self.driver.function
        def pay(order: int) -> str:
            """Pay."""
            self.done.append(order)
            return "paid"

        model = ScriptedModel.by_turn([[call("pay", {"order": order}) for order in orders], "Done."])
        return Agent(name=f"desk-{orders[0]}", model=model, tools=[pay], store=self.store, **options)

    def two(self) -> Any:
        return self.payer(1, 2)

    def nested(self) -> Any:
        tools = [self.payer(order).as_tool(name=f"desk{order}", description="Pays.") for order in (1, 2)]
        model = ScriptedModel.by_turn([[call(each.name, {"input": "go"}) for each in tools], "Done."])
        return Agent(name="boss", model=model, tools=tools, store=self.store)

    def graph(self) -> Any:
        nodes = StateGraph(Said)
        for name, order in (("a", 1), ("b", 2)):
            body = self.driver.function(lambda state, at=name, n=order: self.done.append(n) or {at: "x"})
            nodes = nodes.add_node(name, body, requires_approval=True).add_edge(START, name).add_edge(name, END)
        return nodes.compile(store=self.store)

    def team(self) -> Any:
        return parallel(self.payer(1), self.payer(2), name="both", store=self.store)

    def questions(self) -> Any:
        @tool
        @self.driver.function
        def ask(order: int) -> str:
            """Ask."""
            interrupt(f"{order}?")
            self.done.append(order)
            return "asked"

        model = ScriptedModel.by_turn([[call("ask", {"order": 1}), call("ask", {"order": 2})], "Done."])
        return Agent(name="asker", model=model, tools=[ask], store=self.store)

    def waits(self, wait: Callable[[], object], *, pays: bool = False) -> tuple[Agent[Any, Any], Checkpoint]:
        """A body that waits, beside a payment or alone."""

        @self.driver.function
        def ship() -> str:
            """Ship."""
            wait()
            return "shipped"

        desk = self.payer(1)
        desk = Agent(
            name="desk",
            model=ScriptedModel.by_turn([[call("ship"), *([call("pay", {"order": 1})] if pays else [])], "Done."]),
            tools=[tool(ship), *desk.tools],
            store=self.store,
        )
        return desk, self.driver.invoke(desk, "go").checkpoint


@pytest.fixture
def desk(driver: Driver) -> Desk:
    return Desk(driver)


@pytest.mark.parametrize("kind", ["two", "nested", "graph", "team", "questions"])
def test_nothing_is_decided_where_several_wait(desk: Desk, kind: str) -> None:
    app = getattr(desk, kind)()
    asked = desk.driver.invoke(app, Said() if kind == "graph" else "go").checkpoint
    ids, before = [item.id for item in asked.pending], rows(desk.store)
    assert len(ids) == 2
    ways: list[tuple[str, Any]] = [("resume", asked), ("resume", asked.id), ("step", asked)]
    for method, at in ways:
        for given in ({"approved": True}, {"approved": False}, {"approved": False, "reason": "no"}):
            with pytest.raises(
                NothingDecided, match=r"approved= decides one request, and 2 wait .* approve_all"
            ) as told:
                desk.driver.call(app, method, at, **given)
            assert [*told.value.pending_ids] == ids and all(id in str(told.value) for id in ids)
    assert (rows(desk.store), desk.done) == (before, [])
    half = desk.driver.resume(app, asked, decisions={ids[1]: Reject()}).checkpoint
    assert [item.id for item in half.pending] == ids[:1]
    ended = desk.driver.resume(app, half, approved=True)  # one is left, so this says which
    assert (ended.suspended, desk.done) == (False, [1])


WAITS: list[Any] = [
    pytest.param(lambda: wait_for_first(BANK | LATE | ASKED), id="a question behind an event and a time"),
    pytest.param(lambda: wait_for_first(BANK | ASKED), id="a question behind an event"),
]


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("wait", WAITS)
def test_the_question_beside_events_and_times_is_the_one_that_is_answered(
    desk: Desk, wait: Callable[[], object], approved: bool
) -> None:
    agent, at = desk.waits(wait)
    asked = next(item for item in at.pending if item.asks_human)
    result = desk.driver.resume(agent, at, approved=approved, by="ada")
    assert (result.status, result.messages[2].settlement) == ("completed", "completed" if approved else "rejected")
    decision = desk.store.request(asked.id).decision
    assert decision is not None and decision.kind == ("approve" if approved else "reject")


def test_the_approval_beside_an_event_is_the_one_that_is_given(desk: Desk) -> None:
    agent, at = desk.waits(lambda: wait_for_first(BANK), pays=True)
    half = desk.driver.resume(agent, at, approved=True)
    assert (desk.done, [item.trigger is not None for item in half.checkpoint.pending]) == ([1], [True])
    desk.store.send_event(at.run_id, "payment", by=Principal(id="b", roles=("bank",)))
    assert [found.result.status for found in desk.driver.call(agent, "recover_all")] == ["completed"]


def test_an_event_alone_takes_no_yes_and_several_no_bare_no(desk: Desk) -> None:
    agent, at = desk.waits(lambda: wait_for_first(BANK))
    assert desk.driver.resume(agent, at, approved=False).messages[2].settlement == "rejected"
    agent, at = desk.waits(lambda: wait_for_all(BANK | LATE))
    for given in ({}, {"approved": True}, {"approved": False}):
        with pytest.raises(NothingDecided, match=r"Reject\(\)} to give up .* send the event"):
            desk.driver.resume(agent, at, **given)
    result = desk.driver.resume(agent, at, decisions={at.pending[1].id: Reject()})
    assert result.messages[2].settlement == "rejected"


def test_what_is_said_to_a_resume_without_a_decision_is_what_can_be_given(desk: Desk) -> None:
    one = desk.payer(1)
    asked = desk.driver.invoke(one, "go").checkpoint
    with pytest.raises(NothingDecided, match=r"give approved=True or False, or decisions={pending_id: Approve\(\)}$"):
        desk.driver.resume(one, asked)
    two = desk.two()
    several = desk.driver.invoke(two, "go").checkpoint
    with pytest.raises(
        NothingDecided, match=r"give decisions={pending_id: Approve\(\)} or Reject\(\) for each"
    ) as told:
        desk.driver.resume(two, several)
    assert "approved=" not in str(told.value)
    assert desk.driver.call(two, "approve_all", several).status == "completed"
    assert desk.driver.resume(one, asked, decisions={asked.pending[0].id: Approve()}).status == "completed"

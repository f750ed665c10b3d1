"""Runs inside nodes and steps that fail are tried again, and their timeout is of the time in which they work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from drivers import Driver
from graph_scenes import linked
from places import Place
from pydantic import BaseModel

from phronomy import (
    Agent,
    Approve,
    Limits,
    ModelConnectionError,
    NodeFailed,
    Reject,
    Step,
    ToolContext,
    sequential,
    tool,
)
from phronomy.engine import clock
from phronomy.graph import END, START, StateGraph
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call


class Job(BaseModel):
    """The state of the graphs here."""

    text: str = "go"


class Desk:
    """An agent that pays, and asks its model afterwards: its replies are said, and what it paid is noted."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.paid: list[int] = []

    def agent(self, *replies: Any, gated: bool = False) -> Agent[Any, Any]:
        @tool(requires_approval=gated)
        def pay(order: int) -> str:
            """Pay an order."""
            self.paid.append(order)
            return "paid"

        return Agent(name="desk", model=ScriptedModel(list(replies)), tools=[pay])

    def graph(self, agent: Agent[Any, Any], **options: Any) -> Any:
        """The agent as the only node of a graph."""
        nodes = StateGraph(Job).add_node("desk", agent, input="text", output="text", **options)
        return linked(nodes, START, "desk", END).compile(store=self.store)

    def pattern(self, agent: Agent[Any, Any], **options: Any) -> Any:
        """The agent as the only step of a pattern."""
        return sequential(Step(agent, **options), store=self.store)


@pytest.fixture
def desk(place: Place) -> Desk:
    return Desk(place.open())


MAKES: list[Callable[..., Any]] = [Desk.graph, Desk.pattern]
INPUTS = {Desk.graph: Job(), Desk.pattern: "go"}
DOWN = ModelConnectionError("down")
PAY = call("pay", {"order": 1})


def said(result: Any) -> str:
    """The text that the run came to."""
    return result.output if isinstance(result.output, str) else result.output.text


@pytest.mark.parametrize("make", MAKES)
def test_a_run_inside_that_fails_goes_on_in_its_next_attempt(desk: Desk, driver: Driver, make: Any) -> None:
    """1.5: the retries of an agent in a node or a step; what it has done is not done again (law 4)."""
    app = make(desk, desk.agent(PAY, DOWN, DOWN, "done"), retries=2, retry_wait=0)
    result = driver.invoke(app, INPUTS[make])
    assert (result.status, said(result), desk.paid) == ("completed", "done", [1])
    assert result.usage.requests == 2


@pytest.mark.parametrize("make", MAKES)
def test_after_its_attempts_the_run_fails_and_a_resume_has_them_all_again(
    desk: Desk, driver: Driver, make: Any
) -> None:
    app = make(desk, desk.agent(DOWN, PAY, DOWN, DOWN, "done"), retries=1, retry_wait=0)
    with pytest.raises(NodeFailed, match="down") as failed:
        driver.invoke(app, INPUTS[make])
    assert (desk.paid, isinstance(failed.value.__cause__, ModelConnectionError)) == ([1], True)
    result = driver.resume(app, failed.value.checkpoint)
    assert (said(result), desk.paid) == ("done", [1])


@pytest.mark.parametrize("make", MAKES)
def test_a_rejection_and_a_cancellation_are_not_tried_again(desk: Desk, driver: Driver, make: Any) -> None:
    """W4, DIR-A18, DIR-A04: one request, and whoever refuses it, or ends the run, is not asked once more."""
    app = make(desk, desk.agent(PAY, gated=True), retries=3, retry_wait=0)
    waits = driver.invoke(app, INPUTS[make]).checkpoint
    (item,) = waits.pending
    ended = driver.resume(app, waits, decisions={item.id: Reject(reason="no", then="end")})
    assert (ended.status, ended.checkpoint.pending, desk.paid) == ("rejected", (), [])
    app = make(desk, desk.agent(PAY, gated=True), retries=3, retry_wait=0)
    waits = driver.invoke(app, INPUTS[make]).checkpoint
    ended = driver.cancel(app, waits, reason="enough")
    assert (ended.status, ended.checkpoint.pending, desk.paid) == ("cancelled", (), [])


class Bank:
    """Runs in which a transfer fails when the money may have gone: `paid` has each time that its body ran."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.store = store
        self.paid: list[int] = []
        self.options = {"on_failure": "stop", **options}

    def agent(self) -> Agent[Any, Any]:
        """An agent that pays once."""

        @tool(**self.options)
        def pay(order: int) -> str:
            """Pay an order."""
            return self.pay(order)

        return Agent(name="desk", description="Pays.", model=ScriptedModel.by_turn([PAY, "done"]), tools=[pay])

    def pay(self, order: int) -> str:
        """The body of the transfer."""
        self.paid.append(order)
        raise ConnectionError("no answer")

    def caller(self) -> Agent[Any, Any]:
        """An agent whose tool pays in its body."""

        @tool(**self.options)
        def pay(order: int) -> str:
            """Pay an order."""
            return self.pay(order)

        @tool(calls=[pay])
        def settle(context: ToolContext[Any]) -> str:
            """Settle an order."""
            return str(context.call_tool("pay", {"order": 1}))

        return Agent(name="desk", model=ScriptedModel.by_turn([call("settle"), "done"]), tools=[settle])

    def boss(self) -> Agent[Any, Any]:
        """An agent with the agent as its tool."""
        model = ScriptedModel.by_turn([call("desk", {"input": "go"}), "done"])
        return Agent(name="boss", model=model, tools=[self.agent().as_tool(on_failure="stop")])

    def node(self) -> Any:
        """A graph whose node pays."""
        gate: Any = {"requires_approval": True} if "requires_approval" in self.options else {}
        nodes = StateGraph(Job, name="desk").add_node("pay", lambda job: {"text": self.pay(1)}, **gate)
        return linked(nodes, START, "pay", END).compile()


def stepped(bank: Bank, inner: Any, **options: Any) -> Any:
    """The run as the only step of a pattern."""
    return sequential(Step(inner, **options), store=bank.store)


def in_a_node(bank: Bank, inner: Any, **options: Any) -> Any:
    """The run in the only node of a graph."""
    given = {} if not isinstance(inner, Agent) else {"input": "text", "output": "text"}
    nodes = StateGraph(Job).add_node("desk", inner, **given, **options)
    return linked(nodes, START, "desk", END).compile(store=bank.store)


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "open"])
@pytest.mark.parametrize("make", [Bank.agent, Bank.caller, Bank.boss, Bank.node])
@pytest.mark.parametrize("around", [stepped, in_a_node])
def test_a_call_that_may_have_taken_effect_is_not_tried_again(
    driver: Driver, place: Place, around: Any, make: Any, gated: bool
) -> None:
    bank = Bank(place.open(), **({"requires_approval": True} if gated else {}))
    inner = make(bank)
    app = around(bank, inner, retries=2, retry_wait=0)
    start: Any = {"text": "go"} if around is in_a_node or make is Bank.node else "go"
    asked: Any = driver.invoke(app, start).checkpoint if gated else None
    with pytest.raises(NodeFailed, match="no answer") as failed:
        driver.invoke(app, start) if asked is None else driver.resume(app, asked, approved=True, by="ada")
    assert bank.paid == [1]
    # Somebody who resumes it has decided that it may run again, and it does so once.
    stopped: Any = failed.value.checkpoint
    with pytest.raises(NodeFailed, match="no answer"):
        driver.resume(app, stopped)
    assert bank.paid == [1, 1]


@pytest.mark.parametrize("around", [stepped, in_a_node])
def test_an_idempotent_call_inside_is_tried_again(driver: Driver, place: Place, around: Any) -> None:
    bank = Bank(place.open(), requires_approval=True, idempotent=True)
    app = around(bank, bank.agent(), retries=2, retry_wait=0)
    asked: Any = driver.invoke(app, {"text": "go"} if around is in_a_node else "go").checkpoint
    with pytest.raises(NodeFailed, match="no answer"):
        driver.resume(app, asked, approved=True, by="ada")
    assert bank.paid == [1, 1, 1]


@pytest.mark.parametrize("make", MAKES)
def test_a_human_costs_no_attempt_and_no_time(
    desk: Desk, driver: Driver, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W10: the timeout is of the work; the model takes 0.4 s each time, and a human takes a month."""
    monkeypatch.setattr(clock, "since", lambda started: 400)
    now = 1000.0
    desk.store.clock = lambda: now
    app = make(desk, desk.agent(PAY, DOWN, "done", gated=True), retries=1, retry_wait=0, timeout=1.0)
    waits = driver.invoke(app, INPUTS[make]).checkpoint
    now += 30 * 86_400
    result = driver.resume(app, waits, decisions={waits.pending[0].id: Approve()})
    assert (said(result), desk.paid) == ("done", [1])


@pytest.mark.parametrize("make", MAKES)
def test_at_its_timeout_the_attempt_is_over_and_the_next_has_the_whole_time_again(
    desk: Desk, driver: Driver, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "since", lambda started: 400)
    app = make(desk, desk.agent(PAY, "done"), retries=1, retry_wait=0, timeout=0.7)
    assert (said(driver.invoke(app, INPUTS[make])), desk.paid) == ("done", [1])
    app = make(desk, desk.agent(PAY, "done"), timeout=0.7)
    with pytest.raises(NodeFailed, match=r"reached the limit timeout=0.7: it used 0.8") as failed:
        driver.invoke(app, INPUTS[make])
    assert desk.paid == [1, 1]
    assert said(driver.resume(app, failed.value.checkpoint)) == "done"


def test_the_timeout_bounds_what_is_inside_at_any_depth(
    desk: Desk, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model call may take what is left of the time; a limit of the run inside is not tried against again."""
    monkeypatch.setattr(clock, "since", lambda started: 400)
    inner = desk.agent(PAY, "done")
    nodes = StateGraph(Job).add_node("inner", desk.graph(inner), timeout=5, retries=9)
    result = driver.invoke(linked(nodes, START, "inner", END).compile(store=desk.store), Job())
    model: Any = inner.model
    assert [request.settings.timeout for request in model.requests] == [5, 4.2]
    assert said(result) == "done"
    tight = Agent(name="tight", model=ScriptedModel([PAY]), tools=inner.tools, limits=Limits(turns=1))
    with pytest.raises(NodeFailed, match="turns=1"):
        driver.invoke(desk.graph(tight, retries=9, retry_wait=0), Job())


def test_a_run_that_could_not_be_begun_is_begun_in_the_next_attempt(desk: Desk, driver: Driver) -> None:
    """What it is asked is made in the attempt, too, and may fail."""
    faults: list[Exception] = [DOWN]

    def ask(state: Job) -> str:
        if faults:
            raise faults.pop()
        return state.text

    nodes = StateGraph(Job).add_node("desk", desk.agent(PAY, "done"), input=ask, output="text", retries=1, retry_wait=0)
    result = driver.invoke(linked(nodes, START, "desk", END).compile(store=desk.store), Job())
    assert (result.status, said(result), desk.paid) == ("completed", "done", [1])

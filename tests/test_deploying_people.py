"""Deploying named approvers while runs wait: who could not have approved of a call by the new code approves of nothing."""

from __future__ import annotations

from typing import Any, Final

import pytest
from deploy_scenes import Ran
from drivers import SYNC, Driver, run
from places import Place
from pydantic import BaseModel
from tables import each

from phronomy import Agent, AgentChanged, Approval, Approve, Principal, ToolContext, sequential, tool
from phronomy.errors import RunFailed
from phronomy.graph import END, START, StateGraph
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker

FINANCE: Final = Approval(by="finance", needed=2)
BY_MODEL: Final = (call("pay", {"to": "ACME"}, id="call_1"), "Done.")


class State(BaseModel):
    """The state of the graphs."""

    to: str = "ACME"
    done: str = ""


def pay_by(ran: Ran, gate: Any, **options: Any) -> Any:
    """The tool that waits. Its first attempt in a run fails, if a failure is a human's to decide."""

    @tool(requires_approval=gate, **options)
    def pay(to: str) -> str:
        """Pay."""
        ran.append({"to": to})
        if options and len(ran) == 1:
            raise ConnectionError("no answer")
        return "paid"

    return pay


def clerk(ran: Ran, gate: Any, store: Store | None, **options: Any) -> Any:
    """An agent that pays."""
    of_run: Any = {} if store is None else {"store": store}
    pay = pay_by(ran, gate, **options)
    return Agent(name="clerk", description="Pays.", model=ScriptedModel.by_turn(BY_MODEL), tools=[pay], **of_run)


def alone(ran: Ran, gate: Any, store: Store) -> Any:
    """The agent by itself."""
    return clerk(ran, gate, store)


def nested(ran: Ran, gate: Any, store: Store) -> Any:
    """The agent as a tool of another."""
    model = ScriptedModel.by_turn([call("clerk", {"input": "Pay"}, id="outer_1"), "Done."])
    return Agent(name="boss", model=model, tools=[clerk(ran, gate, None).as_tool()], store=store)


def stepped(ran: Ran, gate: Any, store: Store) -> Any:
    """The agent as a step of a pattern."""
    return sequential({"paying": clerk(ran, gate, None)}, name="line", store=store)


def handed_over(ran: Ran, gate: Any, store: Store) -> Any:
    """The agent that a conversation is handed over to."""
    pays = Agent(
        name="clerk",
        description="Pays.",
        model=ScriptedModel([lambda request: BY_MODEL[request.messages[-1].text == "paid"]] * 9),
        tools=[pay_by(ran, gate)],
    )
    model = ScriptedModel.by_turn([call("transfer_to_clerk", {"message": "Pay"}, id="call_0")])
    return Agent(name="boss", model=model, handoffs=[pays], store=store)


def as_fallback(ran: Ran, gate: Any, store: Store) -> Any:
    """The tool as the fallback of another."""

    @tool(fallback=[pay_by(ran, gate)])
    def wire(to: str) -> str:
        """Wire."""
        raise ConnectionError("the bank is away")

    model = ScriptedModel.by_turn([call("wire", {"to": "ACME"}, id="call_1"), "Done."])
    return Agent(name="clerk", model=model, tools=[wire], store=store)


def by_a_body(ran: Ran, gate: Any, store: Store) -> Any:
    """The tool that another tool calls."""

    @tool(calls=[pay_by(ran, gate)])
    def settle(context: ToolContext) -> str:
        """Settle."""
        return str(context.call_tool("pay", {"to": "ACME"}))

    model = ScriptedModel.by_turn([call("settle", id="call_1"), "Done."])
    return Agent(name="clerk", model=model, tools=[settle], store=store)


def as_node(ran: Ran, gate: Any, store: Store) -> Any:
    """A node of a graph."""

    def pay(state: State) -> dict[str, object]:
        ran.append({"to": state.to})
        return {"done": "paid"}

    graph = StateGraph(State, name="bank").add_node("pay", pay, requires_approval=gate)
    return graph.add_edge(START, "pay").add_edge("pay", END).compile(store=store)


def by_a_node(ran: Ran, gate: Any, store: Store) -> Any:
    """The tool that a node calls."""

    def settle(state: State, context: ToolContext) -> dict[str, object]:
        return {"done": str(context.call_tool("pay", {"to": state.to}))}

    graph = StateGraph(State, name="bank").add_node("settle", settle, calls=[pay_by(ran, gate)])
    return graph.add_edge(START, "settle").add_edge("settle", END).compile(store=store)


def failed(ran: Ran, gate: Any, store: Store) -> Any:
    """The agent by itself, with a call that has failed."""
    return clerk(ran, gate, store, on_failure="human")


WHERE: Final = (alone, nested, stepped, handed_over, as_fallback, by_a_body, as_node, by_a_node, failed)


@pytest.fixture
def store(place: Place) -> Store:
    """A store of each kind."""
    return place.open()


def waiting(driver: Driver, where: Any, ran: Ran, store: Store) -> Any:
    """The checkpoint of a run whose request anybody may decide, and what has run until then."""
    bank = where(ran, True, store)
    result = driver.invoke(bank, {} if where in (as_node, by_a_node) else "Pay")
    if where is failed:
        result = driver.resume(bank, result.checkpoint, approved=True, by="ada")
    [item] = result.checkpoint.pending
    assert (item.tool_name, item.approvers) == ("pay", ())
    return result.checkpoint, item, list(ran)


@pytest.mark.parametrize("where", WHERE)
@each("way", ("carry_out", "recover_all", "recover", "resume", "resume with a decision", "decide"))
def test_an_approval_by_anybody_is_none_once_the_code_names_people(
    driver: Driver, store: Store, where: Any, way: str
) -> None:
    ran: Ran = []
    asked, item, before = waiting(driver, where, ran, store)
    new = where(ran, FINANCE, store)
    [change] = new.drift(asked).changed
    assert change.endswith("asks for certain people now, and the request for nobody in particular")
    acts: dict[str, Any] = {
        "recover": lambda: driver.recover(new, asked.run_id),
        "resume": lambda: driver.resume(new, asked),
        "resume with a decision": lambda: driver.resume(new, asked, approved=True, by="eve"),
        "decide": lambda: driver.call(new, "decide", item.id, Approve(), by="eve", digest=item.digest),
    }
    by_store = way in ("carry_out", "recover_all", "recover", "resume")
    if by_store:
        store.decide(item.id, Approve(), by="eve", digest=item.digest)
    if way in acts:
        with pytest.raises(AgentChanged, match="Nothing was consumed"):
            acts[way]()
    else:
        done = run(Worker(new).carry_out(asked.run_id)) if way == "carry_out" else driver.call(new, "recover_all")
        assert [type(each.error) for each in done if each.run_id == asked.run_id] == [AgentChanged]
    assert ran == before
    # The code as it was carries it out, and so does whoever accepts the change.
    if not by_store:
        store.decide(item.id, Approve(), by="eve", digest=item.digest)
    if way == "carry_out":
        [done] = run(Worker(new, accept_changes=True).carry_out(asked.run_id))
    else:
        [done] = run(Worker(where(ran, True, store)).carry_out(asked.run_id))
    assert (done.result.status, ran) == ("completed", [*before, {"to": "ACME"}])


@pytest.mark.parametrize("where", [alone, as_node, handed_over])
def test_a_request_that_names_people_keeps_them(driver: Driver, store: Store, where: Any) -> None:
    ran: Ran = []
    old = where(ran, Approval(by="finance"), store)
    asked = driver.invoke(old, {} if where is as_node else "Pay").checkpoint
    [item] = asked.pending
    new = where(ran, Approval(by="board", needed=3), store)
    assert new.drift(asked).changed == ()
    store.decide(item.id, Approve(), by=Principal(id="ada", roles=("finance",)), digest=item.digest)
    [done] = run(Worker(new).carry_out(asked.run_id))
    assert (done.result.status, ran) == ("completed", [{"to": "ACME"}])


@each("gate", (True, False, lambda args: True, FINANCE))
def test_a_run_inside_an_approved_call_goes_on_whatever_its_gate_is_now(store: Store, gate: Any) -> None:
    """Its approval was carried out when it began, and the drift that is told is what a worker sees."""
    ran: Ran = []

    def boss(gate: Any) -> Any:
        model = ScriptedModel.by_turn([call("clerk", {"input": "Pay"}, id="outer_1"), "Done."])
        tools = [clerk(ran, True, None).as_tool(requires_approval=gate)]
        return Agent(name="boss", model=model, tools=tools, store=store)

    for way in ("resume", "worker"):
        ran.clear()
        asked = SYNC.invoke(boss(True), "Pay").checkpoint
        asked = SYNC.resume(boss(True), asked, approved=True, by="ada").checkpoint
        [item] = asked.pending
        new = boss(gate)
        assert (item.tool_name, new.drift(asked).changed) == ("pay", ())
        if way == "resume":
            result = SYNC.resume(new, asked, approved=True, by="ada")
        else:
            store.decide(item.id, Approve(), by="ada", digest=item.digest)
            [done] = run(Worker(new).carry_out(asked.run_id))
            result = done.result
        assert (result.status, ran) == ("completed", [{"to": "ACME"}])


def test_a_failed_call_that_anybody_approved_is_not_tried_again_once_the_code_names_people(
    driver: Driver, store: Store
) -> None:
    ran: Ran = []
    old = clerk(ran, True, store, on_failure="stop")
    asked = driver.invoke(old, "Pay").checkpoint
    with pytest.raises(RunFailed) as caught:
        driver.resume(old, asked, approved=True, by="eve")
    stopped: Any = caught.value.checkpoint
    with pytest.raises(AgentChanged, match="asks for certain people now"):
        driver.resume(clerk(ran, FINANCE, store, on_failure="stop"), stopped)
    assert len(ran) == 1
    assert driver.resume(old, stopped).status == "completed"

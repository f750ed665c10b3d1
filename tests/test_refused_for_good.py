"""What a human refuses for good is done by no agent of the run: not again, not by another one, not after a restart."""

from __future__ import annotations

from typing import Any

import pytest
from drivers import Driver

from phronomy import Agent, Approve, InvalidDecision, Reject, Store, tool
from phronomy.testing import ScriptedModel, call

done: list[int] = []
BLOCK = Reject(reason="never", then="block")


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Pays back."""
    done.append(order)
    return "paid"


def team(store: Store, *replies: Any, second: Any = None, **options: Any) -> Agent[Any, Any]:
    """A manager with two clerks, both of whom may refund."""
    clerks = [
        Agent(name="ann", model=ScriptedModel.by_turn([call("refund", {"order": 7}), "Ann is done."]), tools=[refund]),
        Agent(
            name="bob",
            model=ScriptedModel.by_turn([*(second or [call("refund", {"order": 7})]), "Bob is done."]),
            tools=[refund],
            **options,
        ),
    ]
    model = ScriptedModel.by_turn([*(replies or (call("ann", {"input": "x"}), call("bob", {"input": "x"}))), "Fine."])
    return Agent(name="desk", model=model, tools=[each.as_tool() for each in clerks], store=store)


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


def settled(agent: Agent[Any, Any], name: str) -> list[tuple[str | None, str]]:
    clerk = agent.spec.tools[name].inner  # type: ignore[attr-defined]
    return [(m.settlement, m.text) for m in clerk.model.requests[-1].messages if m.role == "tool"]


def test_another_agent_does_not_do_it_either(driver: Driver, store: Store) -> None:
    result = driver.invoke(team(store), "Hello")
    agent = team(store)  # as in another process
    [item] = result.checkpoint.pending
    result = driver.resume(agent, result.checkpoint.id, decisions={item.id: BLOCK})
    assert (result.status, done) == ("completed", [])
    [(kind, told)] = settled(agent, "bob")
    assert kind == "rejected"
    assert "rejected" in told


def test_with_other_arguments_it_is_another_call(driver: Driver, store: Store) -> None:
    agent = team(store, second=[call("refund", {"order": 8})])
    result = driver.invoke(agent, "Hello")
    [item] = result.checkpoint.pending
    result = driver.resume(agent, result.checkpoint, decisions={item.id: BLOCK})
    [item] = result.checkpoint.pending
    assert (item.agent, item.args, done) == ("bob", {"order": 8}, [])
    with pytest.raises(InvalidDecision, match="cannot run"):
        driver.resume(agent, result.checkpoint, decisions={item.id: Approve(args={"order": 7})})
    result = driver.resume(agent, result.checkpoint, approved=True)
    assert (result.status, done) == ("completed", [8])


def test_a_plain_rejection_leaves_others_to_ask_for_themselves(driver: Driver, store: Store) -> None:
    agent = team(store)
    result = driver.invoke(agent, "Hello")
    result = driver.resume(agent, result.checkpoint, approved=False)
    [item] = result.checkpoint.pending
    assert (item.agent, done) == ("bob", [])


def test_what_a_handler_inside_refused_is_refused_around_it_too(driver: Driver, store: Store) -> None:
    both = [call("bob", {"input": "x"}), call("ann", {"input": "x"})]
    agent = team(store, *both, on_approval_required=lambda name, args: BLOCK)
    result = driver.invoke(agent, "Hello")
    assert (result.status, done) == ("completed", [])
    assert [kind for kind, _ in settled(agent, "ann")] == ["rejected"]

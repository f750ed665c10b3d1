"""What a human is shown of a node, may make of it, and what follows when they will not have it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from drivers import Driver
from pydantic import BaseModel

from phronomy import Agent, Approve, ConfigurationError, InvalidDecision, InvalidUpdate, Reject, Respond, tool
from phronomy.graph import END, START, Abort, Graph, Pause, Replan, Send, StateGraph, append
from phronomy.testing import ScriptedModel, call


class Case(BaseModel):
    amount: int = 0
    answer: str = ""
    log: Annotated[list[str], append]


def pay(state: Case) -> dict[str, Any]:
    return {"log": [f"paid {state.amount}"]}


def one(node: Any, **options: Any) -> Graph[Any, Case]:
    """A graph of one node."""
    return StateGraph(Case).add_node("pay", node, **options).add_edge(START, "pay").add_edge("pay", END).compile()


def is_large(state: Case) -> bool:
    return state.amount > 50


async def is_large_later(state: Case) -> bool:
    return state.amount > 50


@pytest.mark.parametrize(("amount", "status"), [(50, "completed"), (51, "suspended")])
def test_a_predicate_of_a_node_sees_the_state(
    driver: Driver, amount: int, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(name="desk", model=ScriptedModel.by_turn(["Paid."]))
    predicate = is_large_later if driver.is_async else is_large
    for graph in (
        one(pay, requires_approval=predicate),
        one(agent, requires_approval=predicate, input="answer", output="answer"),
    ):
        assert driver.invoke(graph, {"amount": amount, "answer": "?"}).status == status
    assert not caplog.records  # nothing was asked because the predicate failed


def test_a_predicate_sees_what_a_send_brings_and_that_is_shown(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    def note(text: str | None) -> dict[str, Any]:
        return {"log": [f"noted {text}"]}

    graph = (
        StateGraph(Case)
        .add_node(note, requires_approval=lambda text: text != "a")
        .add_conditional_edges(START, lambda _: [Send("note", text) for text in ("a", "b", None)], ["note"])
        .add_edge("note", END)
        .compile()
    )
    asked = driver.invoke(graph, {}).checkpoint
    assert [pending.args for pending in asked.pending] == [{"arg": "b"}, {"arg": None}]
    edited, plain = asked.pending
    answers = {edited.id: Approve(args={"arg": "c"}), plain.id: Approve()}
    assert driver.resume(graph, asked, decisions=answers).output.log == ["noted a", "noted c", "noted None"]
    assert not caplog.records


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"state": {"amount": "a lot", "answer": "", "log": []}}, "'amount'"),
        ({"state": {"amount": 5, "answer": ""}}, "log is not in it"),
        ({"state": {"amount": 5, "answer": "", "log": [], "more": 1}}, "'more'"),
        ({"state": None}, "amount, answer, log"),
        ({}, "give it as 'state'"),
        ({"amount": 5}, "amount"),
    ],
)
def test_an_edit_that_is_no_whole_state_is_refused_and_the_node_still_waits(
    driver: Driver, args: dict[str, Any], said: str
) -> None:
    graph = one(pay, requires_approval=True)
    asked = driver.invoke(graph, {"amount": 100}).checkpoint
    (pending,) = asked.pending

    with pytest.raises(InvalidDecision) as refused:
        driver.resume(graph, asked, decisions={pending.id: Approve(args=args)})

    assert said in str(refused.value) and "a lot" not in str(refused.value)
    assert [each.approval for each in graph.store.pending()] == [pending]
    whole = Approve(args={"state": {**pending.args["state"], "amount": 5}})
    result = driver.resume(graph, asked, decisions={pending.id: whole})
    assert result.output == Case(amount=100, log=["paid 5"])


def test_what_was_wrong_with_an_input_or_an_update_is_laid_to_whoever_gave_it(driver: Driver) -> None:
    graph = one(pay, requires_approval=True)
    with pytest.raises(ConfigurationError, match="the input wrote to 'amuont', which is no channel"):
        driver.invoke(graph, {"amuont": 5})
    asked = driver.invoke(graph, {"amount": 5}).checkpoint
    with pytest.raises(InvalidUpdate, match="the update wrote to 'amuont', which is no channel") as refused:
        driver.resume(graph, asked, approved=True, update={"amuont": 5})
    assert refused.value.node is None
    assert graph.store.count() == 1


def test_why_a_node_paused_is_shown(driver: Driver) -> None:
    def paused(state: Case) -> Pause:
        return Pause({"log": ["half"]}, reason="look at the draft")

    graph = one(paused)
    asked = driver.invoke(graph, {}).checkpoint
    assert [(item.why, item.args) for item in asked.pending] == [("breakpoint", {"reason": "look at the draft"})]
    assert driver.resume(graph, asked).output.log == ["half"]


def test_a_replan_may_lead_to_the_end(driver: Driver) -> None:
    def enough(state: Case) -> Replan:
        return Replan({"log": ["enough"]}, to=END)

    graph = (
        StateGraph(Case)
        .add_node(enough)
        .add_node(pay)
        .add_edge(START, "enough")
        .add_edge("enough", "pay")
        .add_edge("pay", END)
        .compile()
    )
    assert driver.invoke(graph, {}).output.log == ["enough"]


def wrapped(inner: Any, **options: Any) -> Graph[Any, Case]:
    """A graph that runs this in a node, and says so where it is refused."""
    return (
        StateGraph(Case, name="wrapped")
        .add_node("inner", inner, on_rejection="tell", **options)
        .add_node("tell", lambda _: {"log": ["it was refused"]})
        .add_edge(START, "inner")
        .add_edge("inner", END)
        .add_edge("tell", END)
        .compile()
    )


def test_a_run_inside_that_is_cancelled_cancels_the_run_and_is_not_taken_for_a_refusal(driver: Driver) -> None:
    inner = one(lambda _: Abort(reason="no money"))
    result = driver.invoke(wrapped(inner), {})
    assert (result.status, result.output, result.checkpoint.ending.status) == ("cancelled", None, "cancelled")


def test_a_run_inside_that_ends_as_rejected_is_a_refusal_of_its_node(driver: Driver) -> None:
    @tool(requires_approval=True)
    def refund(amount: int) -> str:
        """Refund."""
        raise AssertionError("nobody allowed it")

    agent = Agent(
        name="desk", model=ScriptedModel.by_turn([call("refund", {"amount": 5}), "Refunded."]), tools=[refund]
    )
    graph = wrapped(agent, input="answer", output="answer")
    asked = driver.invoke(graph, {"answer": "Refund it"}).checkpoint
    result = driver.resume(graph, asked, decisions={asked.pending[0].id: Reject(then="end")})
    assert (result.status, result.output.log) == ("completed", ["it was refused"])


def test_what_a_human_gives_in_place_of_a_node_is_an_update(driver: Driver) -> None:
    graph = one(pay, requires_approval=True)
    asked = driver.invoke(graph, {"amount": 5}).checkpoint
    id = asked.pending[0].id
    for wrong in ({"log": "paid"}, {"lgo": []}, "paid", 5):
        with pytest.raises(InvalidDecision):
            driver.resume(graph, asked, decisions={id: Respond(content=wrong)})
    assert driver.resume(graph, asked, decisions={id: Respond(content={"log": ["by hand"]})}).output.log == ["by hand"]

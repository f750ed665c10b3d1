"""The laws, where a graph could break them: what stands in for a node, what a state that was changed makes of an approval."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Annotated, Any

import pytest
from drivers import PATIENCE, Driver
from pydantic import BaseModel

from phronomy import Agent, Approve, LimitExceeded, ModelError, NodeFailed, Respond
from phronomy.graph import END, START, Send, StateGraph, append, interrupt
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel


class State(BaseModel):
    log: Annotated[list[str], append] = []
    amount: int = 0


def pays(state: State) -> dict[str, Any]:
    return {"log": [f"paid {state.amount}"]}


def test_approval_of_a_node_never_covers_what_stands_in_for_it(driver: Driver, store: Store) -> None:
    ran: list[str] = []

    def broken(state: State) -> None:
        ran.append("broken")
        raise ConnectionError("the bank is away")

    def by_hand(state: State) -> dict[str, Any]:
        ran.append("by hand")
        return {"log": ["paid by hand"]}

    builder = StateGraph(State).add_node("pay", broken, requires_approval=True, fallback=by_hand)
    graph = builder.add_edge(START, "pay").add_edge("pay", END).compile(store=store)

    asked = driver.invoke(graph, {"amount": 5})
    again = driver.resume(graph, asked.checkpoint, approved=True)

    assert (again.status, ran) == ("suspended", ["broken"])
    assert again.checkpoint.pending[0].tool_name == "by_hand"
    assert again.checkpoint.pending[0].id != asked.checkpoint.pending[0].id
    assert driver.resume(graph, again.checkpoint, approved=True).output.log == ["paid by hand"]
    assert ran == ["broken", "by hand"]


def test_a_gated_node_runs_with_the_state_that_was_shown_whatever_is_edited_beside_the_approval(
    driver: Driver, store: Store
) -> None:
    builder = StateGraph(State).add_node("pay", pays, requires_approval=True)
    graph = builder.add_edge(START, "pay").add_edge("pay", END).compile(store=store)

    asked = driver.invoke(graph, {"amount": 5})
    assert asked.checkpoint.pending[0].args["state"]["amount"] == 5
    done = driver.resume(graph, asked.checkpoint, approved=True, update={"amount": 5_000})

    assert (done.output.log, done.output.amount) == (["paid 5"], 5_000)


def test_an_approval_with_another_state_runs_the_node_with_that_one(driver: Driver, store: Store) -> None:
    builder = StateGraph(State).add_node("pay", pays, requires_approval=True)
    graph = builder.add_edge(START, "pay").add_edge("pay", END).compile(store=store)

    asked = driver.invoke(graph, {"amount": 5})
    item = asked.checkpoint.pending[0]
    less = Approve(args={"state": {**item.args["state"], "amount": 3}})
    done = driver.resume(graph, asked.checkpoint, decisions={item.id: less})

    assert (done.output.log, done.output.amount) == (["paid 3"], 5)


def test_a_fork_uses_no_result_that_was_made_of_another_state(driver: Driver, store: Store) -> None:
    def asks(state: State) -> dict[str, Any]:
        return {"amount": interrupt("how much?", answer=int)}

    builder = StateGraph(State).add_node("ask", asks).add_node("pay", pays)
    graph = builder.add_edge(START, "ask").add_edge("ask", "pay").add_edge("pay", END).compile(store=store)

    asked = driver.invoke(graph, {})
    fork = graph.fork(asked.checkpoint)
    answers = {asked.checkpoint.id: 5, fork.id: 9}
    told = []
    for checkpoint in (asked.checkpoint, fork):
        at = checkpoint if checkpoint.pending else driver.resume(graph, checkpoint).checkpoint
        answer = {at.pending[0].id: Respond(content=answers[checkpoint.id])}
        told.append(driver.resume(graph, at, decisions=answer).output.log)

    assert told == [["paid 5"], ["paid 9"]]


def test_a_node_that_is_alike_in_two_branches_runs_once(driver: Driver, store: Store) -> None:
    ran: list[int] = []

    def counts(state: State) -> dict[str, Any]:
        ran.append(state.amount)
        return {"log": ["counted"]}

    builder = StateGraph(State).add_node("count", counts).add_node("pay", pays, requires_approval=True)
    builder.add_edge(START, "count").add_edge("count", "pay").add_edge("pay", END)
    graph = builder.compile(store=store, interrupt_before=["count"])

    begun = driver.invoke(graph, {"amount": 1})
    fork = graph.fork(begun.checkpoint)
    changed = graph.fork(begun.checkpoint, update={"amount": 2})
    for checkpoint in (begun.checkpoint, fork, changed):
        assert driver.resume(graph, checkpoint).suspended

    assert ran == [1, 2]


def test_an_update_leaves_what_single_runs_were_given(driver: Driver, store: Store) -> None:
    def spread(state: State) -> list[Send]:
        return [Send("work", {"number": number}) for number in (1, 2)]

    def work(given: dict[str, int]) -> dict[str, Any]:
        return {"log": [f"worked on {given['number']}"]}

    builder = StateGraph(State).add_node("first", lambda state: None).add_node("work", work)
    builder.add_edge(START, "first").add_conditional_edges("first", spread).add_edge("work", END)
    graph = builder.compile(store=store, max_steps=1)

    with pytest.raises(LimitExceeded) as caught:
        driver.invoke(graph, {})
    more = builder.compile(store=store)
    assert caught.value.checkpoint is not None
    done = driver.resume(more, caught.value.checkpoint, update={"amount": 7})

    assert (done.output.log, done.output.amount) == (["worked on 1", "worked on 2"], 7)


def test_a_question_is_found_though_whoever_watched_left_before_it_was_stored(store: Store) -> None:
    """What was under way was waited for, and then the run stood still."""
    go_on = threading.Event()

    def waits(state: State) -> dict[str, Any]:
        assert go_on.wait(PATIENCE)
        return {"log": ["waited"]}

    builder = StateGraph(State).add_node("ask", lambda state: {"log": [interrupt("who?", answer=str)]})
    builder.add_node("quick", lambda state: {"log": ["quick"]}).add_node("wait", waits)
    for node in ("ask", "quick", "wait"):
        builder.add_edge(START, node).add_edge(node, END)
    graph = builder.compile(store=store)

    with closing(graph.stream({}, thread_id="t")) as events:
        for event in events:
            if event.type == "tool_call_settled":
                go_on.set()
                break
    (branch,) = store.branches(thread_id="t")
    assert branch.head is not None
    (waiting,) = store.pending(thread_id="t")
    (item,) = store.load(branch.head).pending
    assert (branch.status, item.why, waiting.approval) == ("suspended", "question", item)

    done = graph.resume(branch.head, decisions={item.id: Respond(content="me")})
    assert done.output is not None and done.output.log == ["me", "quick", "waited"]


def test_a_run_inside_that_fails_goes_on_from_where_it_was(driver: Driver, store: Store) -> None:
    """What is through in it, or beside it, does not run again; the error says which node it was, and why."""
    ran: list[str] = []
    broken = [True]

    def step(name: str) -> Any:
        def run(state: State) -> dict[str, Any]:
            ran.append(name)
            if name == "bad" and broken[0]:
                raise ConnectionError("the bank is away")
            return {"log": [name]}

        return run

    inner = StateGraph(State, name="inner").add_node("good", step("good")).add_node("bad", step("bad"))
    inner.add_edge(START, "good").add_edge("good", "bad").add_edge("bad", END)
    outer = StateGraph(State, name="outer").add_node("sub", inner.compile()).add_node("beside", step("beside"))
    for node in ("sub", "beside"):
        outer.add_edge(START, node).add_edge(node, END)
    graph = outer.compile(store=store)

    with pytest.raises(NodeFailed) as caught:
        driver.invoke(graph, {}, thread_id="t")
    assert caught.value.failures == {"sub": "bad in it failed: ConnectionError: the bank is away"}
    assert isinstance(caught.value.__cause__, NodeFailed)
    (branch,) = store.branches(thread_id="t")
    assert branch.status == "failed"

    broken[0] = False
    done = driver.resume(graph, branch.head)
    assert (done.output.log, sorted(ran)) == (["good", "bad", "beside"], ["bad", "bad", "beside", "good"])


def test_an_agent_inside_whose_model_is_away_fails_its_node_and_asks_again_on_resume(
    driver: Driver, store: Store
) -> None:
    agent = Agent(name="clerk", model=ScriptedModel([ModelError("the model is away"), "done"]))
    builder = StateGraph(State).add_node("clerk", agent, input=lambda state: "go", output=lambda text: {"log": [text]})
    graph = builder.add_edge(START, "clerk").add_edge("clerk", END).compile(store=store)

    with pytest.raises(NodeFailed, match="clerk failed: ModelError: the model is away") as caught:
        driver.invoke(graph, {})
    assert caught.value.checkpoint is not None
    assert driver.resume(graph, caught.value.checkpoint).output.log == ["done"]


def test_an_agent_inside_that_cannot_begin_fails_its_node(driver: Driver, store: Store) -> None:
    agent = Agent(name="clerk", model=ScriptedModel(["done"]))

    def broken(state: State) -> str:
        raise LookupError("no question")

    builder = StateGraph(State).add_node("clerk", agent, input=broken, output=lambda text: {"log": [text]})
    graph = builder.add_edge(START, "clerk").add_edge("clerk", END).compile(store=store)

    with pytest.raises(NodeFailed, match="clerk failed: its input raised LookupError"):
        driver.invoke(graph, {})


@pytest.mark.parametrize("gate", [True, lambda state: False], ids=["always", "never, as a predicate says"])
def test_a_circle_through_a_gated_node_is_stored_in_what_each_round_adds(
    driver: Driver, store: Store, gate: Any
) -> None:
    """Whoever decides is shown the whole state; the rows have it once."""

    def stored(rounds: int) -> int:
        builder = StateGraph(State, name="circle")
        builder.add_node("work", lambda _: {"log": ["x" * 100]}, requires_approval=gate).add_edge(START, "work")
        builder.add_conditional_edges("work", lambda state: "work" if len(state.log) < rounds else END, ["work", END])
        graph = builder.compile(store=store, max_steps=None)
        result, shown = driver.invoke(graph, {}), 0
        while result.suspended:
            assert result.checkpoint.pending[0].args["state"]["log"] == ["x" * 100] * shown
            result, shown = driver.resume(graph, result.checkpoint, approved=True), shown + 1
        assert result.output.log == ["x" * 100] * rounds
        return sum(len(entry.body) for entry in store.lineage(checkpoint_id=result.checkpoint.id).entries)

    assert stored(40) < 2.1 * stored(20)

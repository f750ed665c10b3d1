"""What a human is shown of a node, may make of it, and what follows when they will not have it."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from drivers import Driver, decide_first
from pydantic import BaseModel, Field

from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    ConfigurationError,
    InvalidDecision,
    InvalidUpdate,
    MemoryStore,
    NodeFailed,
    Refuse,
    Reject,
    Respond,
    guardrail,
    tool,
)
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
    """A guardrail ended it. A human who ends it, inside, ends the graph."""

    @guardrail
    def never(args: Any) -> Refuse:
        return Refuse("not that", then="end")

    @tool(requires_approval=True)
    def refund(amount: int) -> str:
        """Refund."""
        raise AssertionError("nobody allowed it")

    def desk(**options: Any) -> Graph[Any, Case]:
        model = ScriptedModel.by_turn([call("refund", {"amount": 5}), "Refunded."])
        agent = Agent(name="desk", model=model, tools=[refund], **options)
        return wrapped(agent, input="answer", output="answer")

    result = driver.invoke(desk(tool_guardrails=[never]), {"answer": "Refund it"})
    assert (result.status, result.output.log) == ("completed", ["it was refused"])

    graph = desk()
    asked = driver.invoke(graph, {"answer": "Refund it"}).checkpoint
    ended = driver.resume(graph, asked, decisions={asked.pending[0].id: Reject(then="end")})
    assert (ended.status, ended.output) == ("rejected", None)


def test_what_a_human_gives_in_place_of_a_node_is_an_update(driver: Driver) -> None:
    graph = one(pay, requires_approval=True)
    asked = driver.invoke(graph, {"amount": 5}).checkpoint
    id = asked.pending[0].id
    for wrong in ({"log": "paid"}, {"lgo": []}, "paid", 5):
        with pytest.raises(InvalidDecision):
            driver.resume(graph, asked, decisions={id: Respond(content=wrong)})
    assert driver.resume(graph, asked, decisions={id: Respond(content={"log": ["by hand"]})}).output.log == ["by hand"]


def guarded(**options: Any) -> Graph[Any, Case]:
    """A first node, and one that needs an approval of large amounts."""
    return (
        StateGraph(Case)
        .add_node("note", lambda _: {"log": ["noted"]})
        .add_node(pay, requires_approval=is_large)
        .add_edge(START, "note")
        .add_edge("note", "pay")
        .add_edge("pay", END)
        .compile(**options)
    )


def test_a_gate_that_let_a_node_run_is_asked_again_about_a_state_that_was_changed_since(driver: Driver) -> None:
    graph = guarded(interrupt_after=["note"])
    stopped = driver.invoke(graph, {"amount": 5}).checkpoint
    assert [(item.tool_name, item.why) for item in stopped.pending] == [("note", "breakpoint")]
    asked = driver.resume(graph, stopped, update={"amount": 500}).checkpoint
    assert [(item.tool_name, item.why) for item in asked.pending] == [("pay", "approval")]
    assert asked.pending[0].args["state"]["amount"] == 500
    assert driver.resume(graph, asked, approved=True).output.log == ["noted", "paid 500"]

    stopped = driver.invoke(graph, {"amount": 5}).checkpoint
    assert driver.resume(graph, stopped, update={"amount": 6}).output.log == ["noted", "paid 6"]


def test_a_gate_in_a_graph_inside_is_asked_again_about_a_state_that_was_changed_there(driver: Driver) -> None:
    inner = guarded(interrupt_after=["note"], name="inner")
    graph = StateGraph(Case).add_node("inner", inner).add_edge(START, "inner").add_edge("inner", END).compile()
    stopped = driver.invoke(graph, {"amount": 5}).checkpoint

    def enlarge(path: tuple[str, ...], state: Case) -> None:
        state.amount = 500 if path else state.amount

    asked = driver.resume(graph, stopped, modify_state=enlarge).checkpoint
    assert [(item.tool_name, item.why) for item in asked.pending] == [("pay", "approval")]
    assert driver.resume(graph, asked, approved=True).output.log == ["noted", "paid 500"]


def test_a_gate_is_asked_about_the_state_of_a_fork_though_it_had_nothing_against_the_old_one(driver: Driver) -> None:
    graph = guarded()
    stopped = driver.invoke(graph, {"amount": 5}, interrupt_before=["pay"]).checkpoint
    assert [(item.tool_name, item.why) for item in stopped.pending] == [("pay", "breakpoint")]
    for amount, log in ((6, ["noted", "paid 6"]), (500, None)):
        forked = driver.fork(graph, stopped, update={"amount": amount})
        result = driver.resume(graph, forked)  # it answers breakpoints, and nothing else
        assert (result.output.log if result.output else None) == log
    assert [(item.why, item.args["state"]["amount"]) for item in result.checkpoint.pending] == [("approval", 500)]
    assert driver.resume(graph, stopped).output.log == ["noted", "paid 5"]


def test_a_node_that_failed_is_judged_by_the_state_that_it_runs_again_with(driver: Driver) -> None:
    down = [True]

    def flaky(state: Case) -> dict[str, Any]:
        if down:
            down.clear()
            raise ConnectionError("no bank")
        return pay(state)

    graph = one(flaky, requires_approval=is_large)
    with pytest.raises(NodeFailed) as failed:
        driver.invoke(graph, {"amount": 5})
    asked = driver.resume(graph, failed.value.checkpoint, update={"amount": 500}).checkpoint
    assert [(item.why, item.args["state"]["amount"]) for item in asked.pending] == [("approval", 500)]
    assert driver.resume(graph, asked, approved=True).output.log == ["paid 500"]


def test_why_a_run_waits_stands_in_the_same_place_whoever_stopped_it(driver: Driver) -> None:
    def paused(state: Case) -> Pause:
        return Pause({"log": ["half"]}, reason="look at the draft")

    by_node = driver.invoke(one(paused), {}).checkpoint
    graph = one(pay)
    begun = driver.step(graph, {}).checkpoint
    by_operator = driver.call(graph, "pause", begun, reason="look at the draft").checkpoint
    for (pending,) in (by_node.pending, by_operator.pending):
        assert (pending.reason, pending.args) == ("look at the draft", {"reason": "look at the draft"})
    for (pending,) in (driver.invoke(one(lambda _: Pause()), {}).checkpoint.pending,):
        assert (pending.reason, pending.args) == (None, {})


@pytest.mark.parametrize("signal", [Pause, Abort])
def test_a_reason_that_is_no_text_fails_its_node_and_lets_nothing_through(driver: Driver, signal: Any) -> None:
    reasons: list[Any] = [5, "enough"]
    graph = (
        StateGraph(Case)
        .add_node("stop", lambda _: signal({"log": ["half"]}, reason=reasons.pop(0)))
        .add_node(pay)
        .add_edge(START, "stop")
        .add_edge("stop", "pay")
        .add_edge("pay", END)
        .compile()
    )
    with pytest.raises(NodeFailed, match=f"gave {signal.__name__} a reason that is no text but int") as failed:
        driver.invoke(graph, {})
    result = driver.resume(graph, failed.value.checkpoint)
    assert (result.status, graph.state_of(result.checkpoint).log) == (
        "suspended" if signal is Pause else "cancelled",
        ["half"],
    )


def joined(**options: Any) -> Graph[Any, Case]:
    """Two nodes side by side, one of which is asked about, and what waits for both."""
    return (
        StateGraph(Case)
        .add_node("note", lambda _: {"log": ["noted"]})
        .add_node(pay, requires_approval=True, **options)
        .add_node("ship", lambda _: {"log": ["shipped"]})
        .add_node("tell", lambda _: {"log": ["told"]})
        .add_edge(START, "note")
        .add_edge(START, "pay")
        .add_edge(["note", "pay"], "ship")
        .add_edge("ship", "tell")
        .add_edge("tell", END)
        .compile()
    )


def test_a_node_that_is_rejected_never_arrives_at_its_joins(driver: Driver) -> None:
    for back, log in (("tell", ["noted", "told"]), (END, ["noted"]), ("ship", ["noted", "shipped", "told"])):
        graph = joined(on_rejection=back)
        result = driver.resume(graph, driver.invoke(graph, {}).checkpoint, approved=False)
        assert (result.status, result.output.log) == ("completed", log)
    graph = joined()
    result = driver.resume(graph, driver.invoke(graph, {}).checkpoint, approved=False)
    assert (result.status, graph.state_of(result.checkpoint).log) == ("rejected", ["noted"])
    graph = joined(on_rejection="tell")
    result = driver.resume(graph, driver.invoke(graph, {}).checkpoint, approved=True)
    assert result.output.log == ["noted", "paid 0", "shipped", "told"]


def test_a_node_that_replans_does_not_arrive_at_its_joins_as_it_leaves_its_edges(driver: Driver) -> None:
    again = [True]

    def check(state: Case) -> Any:
        return Replan({"log": ["again"]}, to="check") if again and again.pop() else {"log": ["checked"]}

    graph = (
        StateGraph(Case)
        .add_node(check)
        .add_node("note", lambda _: {"log": ["noted"]})
        .add_node("ship", lambda state: {"log": [f"shipped after {state.log[-1]}"]})
        .add_edge(START, "check")
        .add_edge(START, "note")
        .add_edge(["check", "note"], "ship")
        .add_edge("ship", END)
        .compile()
    )
    assert driver.invoke(graph, {}).output.log == ["again", "noted", "checked", "shipped after checked"]


def test_an_edit_of_what_was_sent_is_asked_for_by_its_name(driver: Driver) -> None:
    graph = (
        StateGraph(Case)
        .add_node("note", lambda text: {"log": [text]}, requires_approval=True)
        .add_conditional_edges(START, lambda _: [Send("note", "a")], ["note"])
        .add_edge("note", END)
        .compile()
    )
    asked = driver.invoke(graph, {}).checkpoint
    with pytest.raises(InvalidDecision, match="Node note is given what was sent to it: give it as 'arg'"):
        driver.resume(graph, asked, decisions={asked.pending[0].id: Approve(args={})})


class Before(BaseModel):
    log: Annotated[list[str], append]


class After(BaseModel):
    currency: str = "EUR"
    log: Annotated[list[str], append]
    tags: list[str] = Field(default_factory=lambda: ["new"])


def released(state: type[BaseModel], store: MemoryStore, **options: Any) -> Graph[Any, Any]:
    """The graph as one release has it: the next one's state has more channels, or fewer."""
    return (
        StateGraph(state, name="released")
        .add_node("first", lambda _: {"log": ["first"]})
        .add_node("second", lambda seen: {"log": [getattr(seen, "currency", "none")]}, **options)
        .add_edge(START, "first")
        .add_edge("first", "second")
        .add_edge("second", END)
        .compile(store=store)
    )


@pytest.mark.parametrize("gate", [True, lambda state: bool(state.log)], ids=["always", "predicate"])
def test_a_run_goes_on_with_a_state_that_has_more_channels_since(driver: Driver, gate: Any) -> None:
    store = MemoryStore()
    old = released(Before, store, requires_approval=gate)
    new = released(After, store, requires_approval=gate)

    asked = driver.invoke(old, {}).checkpoint
    assert (new.drift(asked).changed, len(new.drift(asked).asked_again)) == ((), 1)
    again = driver.resume(new, asked, approved=True).checkpoint  # nobody has seen the values of the new channels
    assert again.pending[0].args == {"state": {"currency": "EUR", "log": ["first"], "tags": ["new"]}}
    result = driver.resume(new, again, approved=True)
    assert (result.output.log, result.output.currency) == (["first", "EUR"], "EUR")

    begun = driver.step(old, {}).checkpoint
    asked = driver.resume(new, begun).checkpoint
    assert asked.pending[0].args == {"state": {"currency": "EUR", "log": ["first"], "tags": ["new"]}}
    assert driver.resume(new, asked, approved=True).output.log == ["first", "EUR"]

    ended = driver.resume(old, driver.invoke(old, {}, thread_id="t").checkpoint, approved=True)
    asked = driver.invoke(new, {}, thread_id="t").checkpoint
    assert asked.pending[0].args["state"]["log"] == [*ended.output.log, "first"]
    assert driver.resume(new, asked, approved=True).output.log == [*ended.output.log, "first", "EUR"]


def test_a_run_goes_on_with_a_state_that_has_fewer_channels_but_not_with_what_a_human_saw_of_them(
    driver: Driver,
) -> None:
    store = MemoryStore()
    old = released(After, store, requires_approval=True)
    new = released(Before, store, requires_approval=True)
    begun = driver.step(old, {}).checkpoint
    asked = driver.resume(new, begun).checkpoint
    assert asked.pending[0].args == {"state": {"log": ["first"]}}
    assert driver.resume(new, asked, approved=True).output.log == ["first", "none"]

    asked = driver.invoke(old, {}).checkpoint
    with pytest.raises(AgentChanged, match="the arguments of a pending call are no longer valid"):
        driver.resume(new, asked, approved=True)
    assert driver.resume(old, asked, approved=True).output.log == ["first", "EUR"]


def test_a_run_inside_is_asked_with_a_channel_that_came_since_and_refuses_one_without_a_value(driver: Driver) -> None:
    class Loose(TypedDict):
        question: str
        answer: str

    agent = Agent(name="desk", model=ScriptedModel.by_turn(["Four."]))
    graph = (
        StateGraph(Loose)
        .add_node("ask", agent, input="question", output="answer")
        .add_edge(START, "ask")
        .add_edge("ask", END)
        .compile()
    )
    with pytest.raises(NodeFailed, match="the channel 'question', which is its input, has no value yet") as failed:
        driver.invoke(graph, {})
    result = driver.resume(graph, failed.value.checkpoint, update={"question": "2 + 2?"})
    assert result.output["answer"] == "Four."


def test_runs_of_one_node_that_pause_each_say_why(driver: Driver) -> None:
    graph = (
        StateGraph(Case)
        .add_node("note", lambda text: Pause({"log": [text]}, reason=text and f"look at {text}"))
        .add_node(pay)
        .add_conditional_edges(START, lambda _: [Send("note", text) for text in ("a", "", "b")], ["note"])
        .add_edge("note", "pay")
        .add_edge("pay", END)
        .compile()
    )
    asked = driver.invoke(graph, {}).checkpoint
    assert [item.reason for item in asked.pending] == ["look at a; look at b"]
    assert driver.resume(graph, asked).output.log == ["a", "", "b", "paid 0"]


def test_states_are_edited_under_the_names_by_which_a_stop_tells_runs_of_one_node_apart(driver: Driver) -> None:
    inner = one(pay, requires_approval=True)
    graph = (
        StateGraph(Case, name="outer")
        .add_node("inner", inner, input=lambda amount: {"amount": amount}, output=lambda case: {"log": case.log})
        .add_conditional_edges(START, lambda _: [Send("inner", amount) for amount in (1, 2)], ["inner"])
        .add_edge("inner", END)
        .compile()
    )
    asked = driver.invoke(graph, {}).checkpoint
    assert sorted(graph.stop_of(asked).nested) == ["inner[0]", "inner[1]"]
    paths: list[tuple[str, ...]] = []
    driver.resume(graph, asked, decisions=decide_first(asked), modify_state=lambda path, _: paths.append(path))
    assert paths == [(), ("inner[0]",), ("inner[1]",)]

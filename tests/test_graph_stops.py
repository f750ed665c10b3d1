"""Where a graph stands: what a stop tells, how it is drawn, and the branches that are opened at it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from drivers import Driver, rows
from pydantic import BaseModel

from phronomy import Agent, Approve, Checkpoint, MemoryStore, Respond, tool
from phronomy.drawing import tree_mermaid
from phronomy.errors import CheckpointError, InvalidUpdate, NodeFailed, PhronomyError, RunFailed, StateError
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import JsonText
from phronomy.graph import END, START, Abort, Graph, GraphStop, Pause, Send, StateGraph, add, append, interrupt
from phronomy.records.calls import Halted
from phronomy.records.diff import diff
from phronomy.records.messages import Message
from phronomy.records.validation import validate_checkpoint
from phronomy.rules import transitions
from phronomy.stores.base import Store
from phronomy.stores.storeless_runs import HOMES
from phronomy.testing import ScriptedModel, call


class Job(BaseModel):
    plan: str = ""
    count: Annotated[int, add] = 0
    log: Annotated[list[str], append] = []


def logs(name: str) -> Callable[[Any], dict[str, Any]]:
    return lambda state: {"log": [name]}


def asks(state: Any) -> dict[str, Any]:
    return {"log": [str(interrupt("how?", key="how"))]}


def fails(state: Any) -> None:
    raise ValueError("no paper")


def graph(name: str = "g", **nodes: Any) -> StateGraph[Job]:
    """A graph of these nodes: a function, a run, or a pair of one with options."""
    made = StateGraph(Job, name=name)
    for node, given in nodes.items():
        function, options = given if isinstance(given, tuple) else (given, {})
        made.add_node(node, function, **options)
    return made


def chain(name: str = "g", **nodes: Any) -> StateGraph[Job]:
    made = graph(name, **nodes)
    for source, end in zip((START, *nodes), (*nodes, END), strict=True):
        made.add_edge(source, end)
    return made


def fan(name: str = "g", **nodes: Any) -> StateGraph[Job]:
    made = graph(name, **nodes)
    for node in nodes:
        made.add_edge(START, node).add_edge(node, END)
    return made


def asked(stop: GraphStop) -> list[tuple[str, str]]:
    """All that is pending: where, and why."""
    return [("/".join(item.path), item.pending.why) for item in stop.pending]


# What a stop tells


def test_before_and_after_nodes(driver: Driver) -> None:
    """E1, E4."""
    made = chain(a=logs("a"), b=logs("b"), c=logs("c")).compile(interrupt_before=["b"], interrupt_after=["b", "c"])
    first = driver.invoke(made, {}).checkpoint
    stop = made.stop_of(first)
    assert (stop.status, stop.before, stop.after, stop.state.log) == ("suspended", ("b",), (), ["a"])
    assert (asked(stop), dict(stop.rerun), dict(stop.nested), dict(stop.failures)) == (
        [("b", "breakpoint")],
        {},
        {},
        {},
    )
    second = driver.resume(made, first).checkpoint
    stop = made.stop_of(second)
    assert (stop.before, stop.after, stop.state.log) == (("c",), ("b",), ["a", "b"])
    assert asked(stop) == [("b", "breakpoint")]
    third = driver.resume(made, second).checkpoint
    stop = made.stop_of(third)
    assert (stop.status, stop.before, stop.after, stop.state.log) == ("suspended", (), ("c",), ["a", "b", "c"])
    stop = made.stop_of(driver.resume(made, third).checkpoint)
    assert (stop.status, stop.before, stop.after, stop.pending) == ("completed", (), (), ())


def wide() -> Graph[Any, Any]:
    made = fan(
        done=logs("done"),
        asks=asks,
        gate=(logs("gate"), {"requires_approval": True}),
        look=logs("look"),
        fails=fails,
        helped=(fails, {"on_failure": "human"}),
    )
    made.add_node("sent", lambda part: {"log": [f"{part} {interrupt(part)}"]})
    made.add_conditional_edges(START, lambda state: [Send("sent", "x"), Send("sent", "y")], ["sent"])
    return made.add_edge("sent", END).compile(interrupt_before=["look"])


def test_one_stop_tells_everything_of_a_wave(driver: Driver) -> None:
    """E3, E4."""
    made = wide()
    stop = made.stop_of(driver.invoke(made, {"plan": "p"}).checkpoint)
    assert stop.status == "suspended"
    assert stop.before == ("gate", "look")
    assert stop.after == ()
    assert list(stop.rerun) == ["asks", "fails", "helped", "sent[0]", "sent[1]"], "those that run again, whole"
    assert stop.rerun["asks"] == Job(plan="p"), "with what each is given"
    assert (stop.rerun["sent[0]"], stop.rerun["sent[1]"]) == ("x", "y")
    assert dict(stop.failures) == {"fails": "ValueError: no paper", "helped": "ValueError: no paper"}
    assert asked(stop) == [
        ("asks", "question"),
        ("gate", "approval"),
        ("look", "breakpoint"),
        ("helped", "failed"),
        ("sent[0]", "question"),
        ("sent[1]", "question"),
    ]


def test_what_the_stop_gives_is_a_copy(driver: Driver) -> None:
    """E10."""
    made = wide()
    checkpoint = driver.invoke(made, {"plan": "p"}).checkpoint
    stop = made.stop_of(checkpoint)
    stop.state.log.append("mine")
    stop.rerun["asks"].plan = "mine"
    again = made.stop_of(checkpoint)
    assert (again.state.log, again.rerun["asks"].plan) == ([], "p")


def test_a_run_that_failed_tells_what_went_wrong(driver: Driver) -> None:
    made = fan(done=logs("done"), fails=fails).compile()
    with pytest.raises(NodeFailed) as caught:
        driver.invoke(made, {})
    assert caught.value.checkpoint is not None
    stop = made.stop_of(caught.value.checkpoint)
    assert (dict(stop.failures), list(stop.rerun), stop.pending) == ({"fails": "ValueError: no paper"}, ["fails"], ())


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return "paid"


def deep() -> Graph[Any, Any]:
    """A graph in a graph in a graph, and in the innermost an agent; it stops in four places."""
    desk: Agent[Any] = Agent(
        name="desk", model=ScriptedModel.by_turn([call("refund", {"order": 7}), "done"]), tools=[refund]
    )
    inner = fan("deep", ask=asks, desk=(desk, {"input": "plan", "output": lambda answer: {"log": [answer]}})).compile()
    mid = fan("mid", deep=inner, m=logs("m")).compile()
    return fan("top", mid=mid, t=asks, gated=(mid, {"requires_approval": True})).compile()


def test_nested_stops_and_the_flat_list_of_all_that_is_pending(driver: Driver) -> None:
    """E3, E22, E32."""
    made = deep()
    checkpoint = driver.invoke(made, {"plan": "refund order 7"}).checkpoint
    stop = made.stop_of(checkpoint)
    assert asked(stop) == [
        ("mid/deep/ask", "question"),
        ("mid/deep/desk/refund", "approval"),
        ("t", "question"),
        ("gated", "approval"),
    ]
    assert [item.pending.id for item in stop.pending] == [item.id for item in checkpoint.pending]
    assert [item.pending.path for item in stop.pending] == ["1.0/1.0", "1.0/1.0/1.1", "", ""]
    assert list(stop.rerun) == ["t"], "a graph in a node goes on from its own stop"
    assert stop.before == ("gated",)
    assert list(stop.nested) == ["mid"]
    inner = stop.nested["mid"]
    assert (inner.state.log, inner.before, dict(inner.rerun), list(inner.nested)) == ([], (), {}, ["deep"])
    assert asked(inner) == [("deep/ask", "question"), ("deep/desk/refund", "approval")]
    innermost = inner.nested["deep"]
    assert (list(innermost.rerun), asked(innermost)) == (["ask"], [("ask", "question"), ("desk/refund", "approval")])
    answers = {item.pending.id: Approve() for item in stop.pending}
    result = driver.resume(made, checkpoint, decisions=answers)
    assert result.status == "suspended", "the graph behind the gate has begun, and asks the same"
    assert asked(made.stop_of(result.checkpoint)) == [
        ("gated/deep/ask", "question"),
        ("gated/deep/desk/refund", "approval"),
    ]


def test_a_graph_that_several_sends_run_stops_in_each(driver: Driver) -> None:
    inner = chain("inner", ask=asks).compile()
    made = graph(inner=inner).add_conditional_edges(
        START, lambda state: [Send("inner", {"plan": "x"}), Send("inner", {"plan": "y"})], ["inner"]
    )
    top = made.add_edge("inner", END).compile()
    stop = top.stop_of(driver.invoke(top, {}).checkpoint)
    assert {name: each.state.plan for name, each in stop.nested.items()} == {"inner[0]": "x", "inner[1]": "y"}
    assert [item.path for item in stop.pending] == [("inner[0]", "ask"), ("inner[1]", "ask")]
    assert "inner<br/>stopped inside" in top.to_mermaid(driver.invoke(top, {}).checkpoint)


def test_a_pause_and_a_node_of_any_name(driver: Driver) -> None:
    made = chain(operator=lambda state: Pause({"log": ["a"]}, reason="look"), b=logs("b")).compile()
    stop = made.stop_of(driver.invoke(made, {}).checkpoint)
    assert (stop.before, stop.after, asked(stop)) == (("b",), ("operator",), [("operator", "breakpoint")])
    assert stop.pending[0].pending.args == {"reason": "look"}


def test_the_ends_and_what_is_no_checkpoint_of_a_graph(driver: Driver) -> None:
    made = chain(a=lambda state: Abort(reason="enough")).compile()
    stop = made.stop_of(driver.invoke(made, {}).checkpoint)
    assert (stop.status, stop.before, stop.pending) == ("cancelled", (), ())
    other = Agent(model=ScriptedModel(["hello"])).invoke("hi").checkpoint
    for wrong in (other, None, "ckpt_1", other.model_dump_json()):
        for method in (made.stop_of, made.state_of, made.to_mermaid, made.to_svg):
            if wrong is None and method in (made.to_mermaid, made.to_svg):
                continue
            with pytest.raises(CheckpointError, match="this is no checkpoint of a graph"):
                method(wrong)  # type: ignore[arg-type]


# The stop, drawn


def test_the_stop_is_marked_in_the_drawing(driver: Driver) -> None:
    made = wide()
    checkpoint = driver.invoke(made, {}).checkpoint
    text = made.to_mermaid(checkpoint)
    for node, mark in {
        "asks": "asks",
        "gate": "waits for approval",
        "look": "stopped before",
        "sent": "asks",
    }.items():
        assert f'{{{{"{node}<br/>{mark}"}}}}' in text
    for node in ("fails", "helped"):
        assert f'["{node}<br/>failed"]' in text
    assert '["done"]' in text, "it is through"
    svg = made.to_svg(checkpoint)
    assert svg.startswith("<svg")
    assert all(mark in svg for mark in ("waits for approval", "stopped before", "failed"))
    assert made.to_mermaid().count("<br/>") == 1 and '["gate<br/>needs approval"]' in made.to_mermaid()
    assert "waits for approval" not in made.to_svg()


def test_the_way_of_a_rejection_and_who_asks_for_approval_are_drawn(driver: Driver) -> None:
    """A predicate may ask. What a decision changed in the state is said beside what it decided."""
    home = MemoryStore()
    made = (
        StateGraph(Job, name="letters")
        .add_node("write", driver.function(logs("write")))
        .add_node(
            "review", driver.function(logs("review")), requires_approval=lambda state: True, on_rejection="revise"
        )
        .add_node("revise", driver.function(logs("revise")))
        .add_node("send", driver.function(logs("send")), requires_approval=True, on_rejection=END)
        .add_edge(START, "write")
        .add_edge("write", "review")
        .add_edge("review", "send")
        .add_edge("revise", "review")
        .add_edge("send", END)
        .compile(store=home)
    )
    text = made.to_mermaid()
    assert '["review<br/>may need approval"]' in text and '["send<br/>needs approval"]' in text
    assert [line.strip() for line in text.splitlines() if "rejected" in line] == [
        'n2 -.->|"rejected"| n3',
        'n4 -.->|"rejected"| n5',
    ]
    asked_for = driver.invoke(made, {}).checkpoint
    driver.resume(
        made, asked_for, decisions={asked_for.pending[0].id: Approve()}, update={"log": ["by hand"]}, by="ada"
    )
    assert "state edited and review approved by ada" in tree_mermaid(home, asked_for.run_id)


def test_a_stop_inside_or_after_is_marked_at_the_node(driver: Driver) -> None:
    made = deep()
    text = made.to_mermaid(driver.invoke(made, {}).checkpoint)
    assert all(each in text for each in ("mid<br/>stopped inside", "t<br/>asks", "gated<br/>waits for approval"))
    after = chain(a=logs("a"), b=logs("b")).compile(interrupt_after=["a"])
    assert "a<br/>stopped after" in after.to_mermaid(driver.invoke(after, {}).checkpoint)


def test_a_node_named_operator_is_marked_and_a_run_that_was_stopped_from_outside_marks_none(driver: Driver) -> None:
    made = chain(operator=logs("a"), b=logs("b")).compile(interrupt_after=["operator"])
    stop = driver.invoke(made, {}).checkpoint
    assert "operator<br/>stopped after" in made.to_mermaid(stop)
    plain = chain(operator=logs("a")).compile(store=made.store)
    begun = driver.step(plain, {}).checkpoint
    halted = driver.call(plain, "pause", begun.run_id, by="ada").checkpoint
    assert asked(plain.stop_of(halted)) == [("operator", "breakpoint")]
    assert "operator<br/>" not in plain.to_mermaid(halted)


# Forks


class Desk:
    """A draft, and a mail that is sent once somebody has approved of it. What ran is noted."""

    def __init__(self, driver: Driver, store: Store, **options: Any) -> None:
        self.driver = driver
        self.ran: list[str] = []

        def draft(state: Job) -> dict[str, Any]:
            self.ran.append("draft")
            return {"plan": "dear all", "count": 1}

        def send(state: Job) -> dict[str, Any]:
            self.ran.append(f"send {state.plan} {state.count}")
            return {"log": [f"sent {state.plan}"]}

        made = chain(draft=draft, send=(send, {"requires_approval": True}))
        self.graph = made.compile(store=store, **options)
        self.stop: Checkpoint = driver.invoke(self.graph, {}).checkpoint

    def fork(self, at: Checkpoint | str, **options: Any) -> Checkpoint:
        return self.driver.fork(self.graph, at, **options)

    def approve(self, at: Checkpoint) -> Any:
        return self.driver.resume(self.graph, at, approved=True, by="ada")


def test_a_fork_with_an_update_shows_a_gated_node_the_new_state(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store)
    fork = desk.fork(desk.stop, update={"plan": "dear you", "count": 5}, label="what if")
    (old,), (new,) = desk.stop.pending, fork.pending
    assert old.args == {"state": {"plan": "dear all", "count": 1, "log": []}}
    assert new.args == {"state": {"plan": "dear you", "count": 6, "log": []}}, "it is reduced as a node's would be"
    assert (old.id != new.id, old.digest != new.digest, fork.label) == (True, True, "what if")
    assert desk.graph.state_of(fork) == Job(plan="dear you", count=6)
    first, second = desk.approve(desk.stop), desk.approve(fork)
    assert (first.output.log, second.output.log) == (["sent dear all"], ["sent dear you"])
    assert desk.ran == ["draft", "send dear all 1", "send dear you 6"], "each once, with what was approved"


def test_a_fork_takes_over_what_was_given_the_same_and_reruns_when_told(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store)
    desk.approve(desk.stop)
    assert desk.approve(desk.fork(desk.stop)).output.log == ["sent dear all"]
    assert desk.ran == ["draft", "send dear all 1"], "the same was sent in the other branch"
    assert desk.approve(desk.fork(desk.stop, rerun=True)).output.log == ["sent dear all"]
    assert desk.ran == ["draft", "send dear all 1", "send dear all 1"]
    root = store.history(desk.stop.id)[0]
    forked = driver.resume(desk.graph, desk.fork(root, update={"count": 7}))
    assert desk.ran[3:] == ["draft"], "another state, so another draft"
    assert forked.checkpoint.pending[0].args["state"]["count"] == 8


def test_the_tree_of_versions(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store)
    fork = desk.fork(desk.stop, update={"plan": "dear you"})
    ended, other = desk.approve(desk.stop).checkpoint, desk.approve(fork).checkpoint
    main, branch = store.history(ended.id), store.history(other.id)
    assert main[0].parent_id is None
    assert desk.graph.state_of(main[0]) == Job(), "the root is before the first node"
    assert [each.parent_id for each in main[1:]] == [each.id for each in main[:-1]]
    common = main.index(next(each for each in main if each.id == desk.stop.id)) + 1
    assert main[:common] == branch[:common]
    assert {each.id for each in store.children(desk.stop.id)} == {main[common].id, fork.id}
    assert [each.head for each in store.branches(run_id=ended.run_id)] == [ended.id, other.id]
    assert desk.graph.state_of(ended).log == ["sent dear all"], "the old branch is as it was"
    back = desk.fork(main[0].id)
    assert (back.parent_id, desk.graph.state_of(back), back.pending) == (main[0].id, Job(), ())


def test_what_differs_is_told_by_channel_counts(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store)
    fork = desk.fork(desk.stop, update={"plan": "dear you", "count": 5})
    found = diff(desk.stop, fork)
    assert [(each.change, each.path) for each in found.state] == [("changed", "/plan"), ("changed", "/count")]
    assert "2 values of the state changed" in str(store.diff(desk.stop.id, fork.id))
    assert "dear" not in str(found)


def test_a_fork_that_cannot_be_changes_nothing(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store)
    before = rows(store)
    for wrong in ({"nowhere": 1}, {"count": "many"}, "text"):
        with pytest.raises(InvalidUpdate):
            desk.fork(desk.stop, update=wrong)
    assert rows(store) == before
    ended = desk.approve(desk.stop).checkpoint
    with pytest.raises(CheckpointError, match="is an end, and nothing goes on from it"):
        desk.fork(ended, update={"plan": "x"})


def test_a_fork_of_a_stop_with_a_question_keeps_what_was_answered_before(driver: Driver, store: Store) -> None:
    """An answer that was given is in the branch; what waits there is asked anew, under another id."""

    def both(state: Job) -> dict[str, Any]:
        return {"log": [interrupt("one?", key="one"), interrupt(f"two? {state.plan}", key="two")]}

    made = chain(both=both).compile(store=store)
    first = driver.invoke(made, {}).checkpoint
    second = driver.resume(made, first, decisions={first.pending[0].id: Respond(content="1")}).checkpoint
    fork = driver.fork(made, second, update={"plan": "b"})
    asked_anew = driver.resume(made, fork).checkpoint
    questions = []
    while asked_anew.pending:
        (item,) = asked_anew.pending
        assert item.id not in {second.pending[0].id, first.pending[0].id}
        questions.append(item.args["payload"])
        result = driver.resume(made, asked_anew, decisions={item.id: Respond(content=item.args["key"])})
        asked_anew = result.checkpoint
    assert questions[-1] == "two? b"
    assert result.output.log[-1] == "two"
    ended = driver.resume(made, second, decisions={second.pending[0].id: Respond(content="2")})
    assert ended.output.log == ["1", "2"]


def test_a_fork_of_a_nested_stop_has_a_stop_of_its_own(driver: Driver, store: Store) -> None:
    inner = chain("inner", n=logs("n"), ask=asks).compile()
    made = chain(inner=inner, b=logs("b")).compile(store=store)
    stop = driver.invoke(made, {}).checkpoint
    fork = driver.resume(made, driver.fork(made, stop, update={"plan": "other"})).checkpoint
    assert asked(made.stop_of(fork)) == asked(made.stop_of(stop)) == [("inner/ask", "question")]
    assert fork.pending[0].id != stop.pending[0].id
    for at, answer in ((stop, "x"), (fork, "y")):
        result = driver.resume(made, at, decisions={at.pending[0].id: Respond(content=answer)})
        assert result.output.log == ["n", answer, "b"]


# As text


@pytest.mark.parametrize("build", [deep, wide])
def test_the_text_of_a_stop_is_the_stop(driver: Driver, build: Callable[[], Graph[Any, Any]]) -> None:
    """E9."""
    made = build()
    stop = driver.invoke(made, {"plan": "p"}).checkpoint
    text = stop.model_dump_json()
    assert validate_checkpoint(text) == []
    again = Checkpoint.model_validate_json(text)
    assert again == stop
    assert again.model_dump_json() == text
    assert made.stop_of(again) == made.stop_of(stop)
    HOMES.forget()  # another process
    elsewhere = build()
    (item, *_) = again.pending
    result = driver.resume(elsewhere, again, decisions={item.id: Respond(content="over there")})
    assert item.id not in {each.id for each in result.checkpoint.pending}
    assert not isinstance(elsewhere.store.load(again.id), type(None))
    assert isinstance(elsewhere.store, MemoryStore)


@pytest.mark.parametrize(
    "state",
    ['"text"', "[1]", "null", '{"plan":3}', '{"__joins__":3,"plan":"x"}', '{"__given__":{"1.0":[]},"plan":"x"}'],
)
def test_a_state_that_is_none_is_a_typed_error_wherever_it_comes_from(driver: Driver, state: str) -> None:
    """With a text of its own, as somebody would write it who knows how digests are made."""
    made = chain(a=logs("a")).compile(interrupt_before=["a"])
    stop = driver.invoke(made, {"plan": "p"}).checkpoint
    forged = Checkpoint.model_validate_json(stop.evolve(state=JsonText(state)).model_dump_json())
    elsewhere = chain(a=logs("a")).compile(interrupt_before=["a"])
    with pytest.raises((CheckpointError, RunFailed)):
        driver.resume(elsewhere, forged, update={"plan": ""} if state.startswith('{"__') else None)
    if not state.startswith('{"__'):
        for method in (elsewhere.stop_of, elsewhere.state_of, elsewhere.to_mermaid):
            with pytest.raises(StateError, match="what is stored is no"):
                method(forged)


def test_a_text_that_was_edited_is_refused(driver: Driver) -> None:
    """E8."""
    made = chain(a=logs("a")).compile(interrupt_before=["a"])
    text = driver.invoke(made, {"plan": "p3rhaps"}).checkpoint.model_dump_json()
    (problem,) = validate_checkpoint(text.replace("p3rhaps", "s3cret"))
    assert "the checkpoint was edited or damaged" in str(problem)
    with pytest.raises(CheckpointError, match="edited or damaged"):
        Checkpoint.model_validate_json(text.replace("p3rhaps", "s3cret"))


@pytest.mark.parametrize("what", ["approve", "reject", "cancel"])
def test_a_forged_graph_that_is_paused_as_only_an_agent_is_gets_an_answer(driver: Driver, what: str) -> None:
    made = chain(a=logs("a")).compile(interrupt_after=["a"])
    true = driver.invoke(made, {"plan": "x"}).checkpoint
    bare = true.evolve(
        id=new_id("ckpt"),
        run_id=(run_id := new_id("run")),
        branch_id=run_id,
        calls=(),
        journal=(),
        messages=(Message(role="user", content="hi"),),
    )
    stopped = transitions.fold(bare, Halted(pending_id="pend_forged", at=datetime.now(UTC)))
    forged = Checkpoint.model_validate_json(stopped.model_dump_json())
    assert transitions.phase(forged) == "paused"

    try:
        ended = (
            driver.cancel(made, forged) if what == "cancel" else driver.resume(made, forged, approved=what != "reject")
        )
    except PhronomyError:
        return
    assert ended.status in ("completed", "rejected", "cancelled")

"""What Eino's graphs promise of interrupts, checkpoints and resumes, as stories, and where its implementation is weak. Each story
names its scenario (`EIN-A01`) or its weakness (`EIN-V1`), and is told on every store by both drivers.
"""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from drivers import PATIENCE, STREAMED, Driver
from graph_scenes import NO, YES, Job, Works, asked, linked, once, posted, refused, says
from places import Place
from pydantic import BaseModel, PrivateAttr
from test_failures_once import HOUR, PowerCut, at_once
from test_failures_stores import lose

from phronomy import (
    Agent,
    AgentChanged,
    ApprovalExpired,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointError,
    CheckpointUntrusted,
    ConfigurationError,
    GraphError,
    InvalidDecision,
    MemoryStore,
    NodeFailed,
    NothingDecided,
    Reject,
    RunBusy,
    RunFailed,
    StateError,
    ThreadBusy,
    UnknownPending,
    tool,
)
from phronomy.foundation.json_text import JsonText
from phronomy.graph import END, START, Pause, Send, StateGraph, append, interrupt, register_type
from phronomy.testing import ScriptedModel, call, say

pytestmark = [pytest.mark.unmeasured, pytest.mark.worlds(1)]

SCENARIOS = (1, 3, 4, 5, 7, 8, 10, 12, 13, 15, 16, 17, 18, 20, 21, 22, 23, 25)
WEAKNESSES = tuple(range(1, 17))


def test_every_scenario_and_every_weakness_has_a_story() -> None:
    """None is forgotten."""
    told: set[str] = set()
    for node in ast.parse(Path(__file__).read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found = set(re.findall(r"EIN-([AV]\d+)", ast.get_docstring(node) or ""))
            assert not found or {argument.arg for argument in node.args.args} & {"desk", "driver"}, node.name
            told |= found
    wanted = {*(f"A{number:02}" for number in SCENARIOS), *(f"V{number}" for number in WEAKNESSES)}
    assert told == wanted


@pytest.fixture
def desk(driver: Driver, place: Place) -> Works:
    return Works(driver, place)


# Stops before and after nodes


def test_a_pause_between_two_nodes(desk: Works) -> None:
    """EIN-A01: b sees what a gave; there is no input on resume that could be mistaken for one. E8."""
    desk.draw = lambda: desk.chain("a", "b")
    desk.options = {"interrupt_before": ["b"]}

    stop = desk.invoke({"plan": "first"})

    assert (stop.status, stop.output, desk.done) == ("suspended", None, ["a"])
    assert (desk.stop(stop).before, desk.stop(stop).after) == (("b",), ())
    for input in ({"input": {"plan": "second"}}, {"messages": []}):
        with pytest.raises((ConfigurationError, TypeError)):
            desk.resume(stop.checkpoint, **input)
    result = desk.resume(stop.checkpoint.id)
    assert (result.status, desk.done) == ("completed", ["a", "b"])
    assert (desk.seen["b"].log, desk.seen["b"].plan) == (["a"], "first")
    assert result.output == Job(log=["a", "b"], plan="first")


def test_after_one_node_and_before_the_next_is_one_stop(desk: Works) -> None:
    """EIN-A03: it tells of both, and one resume passes both. E4."""
    desk.draw = lambda: desk.chain("1", "2", "3")
    desk.options = {"interrupt_after": ["1"], "interrupt_before": ["2"]}
    stop = desk.invoke()
    assert (desk.stop(stop).after, desk.stop(stop).before) == (("1",), ("2",))
    assert asked(stop) == [("", "1", "breakpoint"), ("", "2", "breakpoint")]
    result = desk.resume(stop.checkpoint)
    assert (result.status, desk.done) == ("completed", ["1", "2", "3"])


def test_two_nodes_of_one_wave_stop_once(desk: Works) -> None:
    """EIN-A04: one stop lists both; the merged output is there, and neither runs again. E4, E16."""
    desk.draw = lambda: desk.fan("1", "2")
    desk.options = {"interrupt_after": ["1", "2"]}
    stop = desk.invoke()
    assert (stop.status, sorted(desk.done), desk.stop(stop).after) == ("suspended", ["1", "2"], ("1", "2"))
    assert desk.state(stop).log == ["1", "2"]
    result = desk.resume(stop.checkpoint)
    assert (result.output.log, desk.done[2:]) == (["1", "2", "last"], ["last"])


def test_a_stop_after_the_last_node_is_one(desk: Works) -> None:
    """EIN-A03: what leads to the end is stopped after as well, and its work is there to be looked at. E12."""
    desk.draw = lambda: desk.chain("a", "b")
    desk.options = {"max_steps": 2}  # to stop is no step
    stop = desk.invoke(interrupt_after=["b"])
    assert (stop.status, desk.stop(stop).after, desk.state(stop).log) == ("suspended", ("b",), ["a", "b"])
    result = desk.resume(stop.checkpoint)
    assert (result.status, desk.done) == ("completed", ["a", "b"])


@pytest.mark.parametrize("where", ["before", "after", "pause"])
def test_what_nobody_let_go_on_never_runs(desk: Works, where: str) -> None:
    """EIN-A13: a breakpoint that is rejected, or lapses, opens nothing; an answer that it does not ask for is refused."""
    pauses = {"a": lambda state: Pause({"log": ["a"]})} if where == "pause" else {}
    desk.draw = lambda: linked(
        StateGraph(Job).add_node("a", desk.node("a", pauses.get("a"))).add_node("b", desk.node("b")),
        START,
        "a",
        "b",
        END,
    )
    stops: Any = {"before": {"interrupt_before": ["b"]}, "after": {"interrupt_after": ["a"]}, "pause": {}}[where]
    desk.options = {**stops, "approval_timeout": 60.0}
    for answer in (NO, Reject(reason="no"), Reject(then="block"), Reject(then="end")):
        stop = desk.invoke()
        assert asked(stop)[0][2] == "breakpoint"
        if where != "before":
            refused(desk, partial(desk.answer, stop.checkpoint, says({"log": ["?"]})), InvalidDecision)
        refused(desk, partial(desk.answer, stop.checkpoint, says("?")), InvalidDecision)
        refused(desk, partial(desk.answer, stop.checkpoint, Approve(args={"state": {"plan": 1}})), InvalidDecision)
        result = desk.answer(stop.checkpoint, answer)
        assert (result.status, desk.state(result).log) == ("rejected", ["a"])
    stop = desk.invoke()
    desk.later = HOUR
    with pytest.raises(ApprovalExpired) as late:
        desk.resume(stop.checkpoint)
    assert late.value.result.status == "cancelled"
    assert set(desk.done) == {"a"}
    assert desk.store().pending() == []


def test_a_loop_stops_at_each_visit(desk: Works) -> None:
    """EIN-A03: passed once, a breakpoint is not passed for good; and the steps of a run are counted over all its resumes. E11."""

    def draw() -> Any:
        graph = desk.nodes("a", "b").add_edge(START, "a").add_edge("a", "b")
        return graph.add_conditional_edges("b", lambda state: "a" if len(state.log) < 40 else END, ["a", END])

    desk.draw = draw
    desk.options = {"interrupt_before": ["b"], "max_steps": 7}
    result = desk.invoke()
    for visit in range(1, 4):
        assert (result.status, desk.done.count("b")) == ("suspended", visit - 1)
        if visit == 3:
            break
        result = desk.resume(result.checkpoint)
    with pytest.raises(RunFailed, match="max_steps") as caught:
        desk.resume(desk.resume(result.checkpoint).checkpoint)
    assert len(desk.done) == 7
    assert caught.value.checkpoint is not None
    assert [each.turn for each in desk.store().history(caught.value.checkpoint.id)][-1] == 7


# Resuming


def test_a_checkpoint_is_resumed_once(desk: Works) -> None:
    """EIN-A05, EIN-V1: afterwards it is a typed error that tells what came of it; a new input begins a new run. E26."""
    desk.draw = lambda: desk.chain("a", "b", b={"requires_approval": True})
    stop = desk.invoke({"plan": "x"}, thread_id="t")
    ended = desk.resume(stop.checkpoint, approved=True, by="ann")
    for given in (stop.checkpoint, posted(stop.checkpoint), stop.checkpoint.id):
        for options in ({"approved": True}, {"approved": False}, {"approved": True, "update": {"plan": "y"}}):
            error = refused(desk, partial(desk.resume, given, **options), CheckpointAlreadyResumed)
            assert (error.progress, error.result.checkpoint) == ("ended", ended.checkpoint)
    refused(desk, partial(desk.resume, ended.checkpoint), CheckpointAlreadyResumed)
    refused(desk, partial(desk.resume, ended.checkpoint, update={"plan": "y"}), CheckpointAlreadyResumed)
    assert desk.recover(stop.checkpoint).checkpoint == ended.checkpoint

    fresh = desk.invoke({"plan": "brand-new"}, thread_id="t")
    assert fresh.checkpoint.run_id != stop.checkpoint.run_id
    assert (fresh.status, desk.seen["a"].plan, desk.done) == ("suspended", "brand-new", ["a", "b", "a"])


def towers(desk: Works, **inner: Any) -> StateGraph[Any]:
    """A graph in a graph in a graph, each with a channel of its own beside the log."""

    class Floor(TypedDict, total=False):
        log: Annotated[list[str], append]
        floor: str

    low = linked(desk.nodes("x", "y", state=Floor), START, "x", "y", END)
    mid = linked(
        StateGraph(Floor, name="mid").add_node("m", desk.node("m")).add_node("inner", low.compile(**inner)),
        START,
        "m",
        "inner",
        END,
    )
    top = StateGraph(Job, name="works").add_node("t", desk.node("t")).add_node("mid", mid.compile())
    return linked(top.add_node("end", desk.node("end")), START, "t", "mid", "end", END)


def test_a_state_editor_is_called_outermost_first(desk: Works) -> None:
    """EIN-A07: once for each graph, with its path, on copies; what it changes is seen downstream. E19."""
    desk.draw = lambda: towers(desk, interrupt_before=["y"])
    stop = desk.invoke()
    place = stop.checkpoint.pending[0].path
    assert [part.path for part in stop.checkpoint.nested] == [place.split("/")[0], place]
    assert [item.path for item in desk.stop(stop).pending] == [("mid", "inner", "y")]
    called: list[Any] = []

    def edit(path: tuple[str, ...], state: Any) -> Any:
        called.append(path)
        if path == ():
            state.plan, state.log = "top", [*state.log, "edited"]
            return None
        state["floor"] = "/".join(path)
        return state

    before = desk.store().load(stop.checkpoint.id).model_dump_json()
    result = desk.resume(stop.checkpoint, modify_state=edit, by="ann")

    assert called == [(), ("mid",), ("mid", "inner")]
    assert desk.seen["y"]["floor"] == "mid/inner"
    assert (desk.seen["end"].plan, result.output.plan) == ("top", "top")
    assert desk.seen["y"]["log"] == ["t", "m", "x"]
    assert result.output.log == ["t", "edited", "m", "x", "y", "end"]
    assert [(each.kind, each.path, each.by.id) for each in result.checkpoint.decisions if each.kind == "edit"] == [
        ("edit", path, "ann") for path in ("", place.split("/")[0], place)
    ]
    assert posted(stop.checkpoint).model_dump_json() == before
    assert once(desk.done)


def test_an_editor_that_raises_changes_nothing(desk: Works) -> None:
    """EIN-A08: at whatever depth, whatever it did before; the checkpoint is resumed afterwards as if nothing had been. E19."""
    desk.draw = lambda: towers(desk, interrupt_before=["y"])
    stop = desk.invoke()

    class Mine(Exception):
        pass

    def raising(at: tuple[str, ...]) -> Any:
        def edit(path: tuple[str, ...], state: Any) -> Any:
            if path == at:
                raise Mine
            return {"log": ["vandal"]}

        return edit

    for at, where in (((), "for graph 'works'"), (("mid",), "at mid."), (("mid", "inner"), "at mid/inner.")):
        error = refused(desk, partial(desk.resume, stop.checkpoint, modify_state=raising(at)), StateError)
        assert f"run {stop.run_id}: modify_state raised Mine" in str(error) and where in str(error)
        assert isinstance(error.__cause__, Mine)
        assert (error.run_id, error.checkpoint.id) == (stop.run_id, stop.checkpoint.id)
    for wrong in ({"zz": 1}, {"log": 5}, "text", 5, [1]):
        refused(
            desk, partial(desk.resume, stop.checkpoint, modify_state=lambda path, state, wrong=wrong: wrong), StateError
        )
    for update in ({"zz": 1}, {"log": 5}, {"log": [1]}, {"count": "x"}, "text", 5):
        refused(desk, partial(desk.resume, stop.checkpoint, update=update), StateError)
    refused(desk, partial(desk.resume, stop.checkpoint, modify_state="no function"), ConfigurationError)
    result = desk.resume(stop.checkpoint)
    assert (result.status, result.output.log) == ("completed", ["t", "m", "x", "y", "end"])


def test_an_editor_that_raises_leaves_nothing_of_a_checkpoint_that_a_bearer_brings(driver: Driver) -> None:
    def draw(**options: Any) -> Any:
        return (
            StateGraph(Job, name="works")
            .add_node("x", lambda _: {})
            .add_edge(START, "x")
            .add_edge("x", END)
            .compile(**options)
        )

    stop = driver.invoke(draw(store=MemoryStore()), {}, interrupt_before=["x"]).checkpoint
    store = MemoryStore()
    graph = draw(store=store, trust="bearer")

    def edit(path: tuple[str, ...], state: Any) -> None:
        raise OSError("the disk holds what nobody is to read")

    for change in ({"modify_state": edit}, {"update": {"zz": 1}}):
        with pytest.raises(StateError) as caught:
            driver.resume(graph, posted(stop), **change)
        assert (caught.value.run_id, caught.value.checkpoint) == (stop.run_id, stop)
        assert "nobody is to read" not in str(caught.value)
        assert store.list() == []
    assert driver.resume(graph, posted(stop)).status == "completed"


def test_an_edit_around_a_graph_that_waits_is_not_lost_when_that_ends(desk: Works) -> None:
    """EIN-A07: what the graph inside changed is told by what it was given, and not by what somebody has edited since."""

    def draw() -> Any:
        inner = linked(desk.nodes("x", "y"), START, "x", "y", END)
        graph = StateGraph(Job, name="works").add_node("sub", inner.compile(interrupt_before=["y"]))
        graph.add_node("end", desk.node("end", lambda state: {"count": 1}))
        return linked(graph, START, "sub", "end", END)

    desk.draw = draw
    edit: Any = {"count": 10, "plan": "edited", "log": ["E"], "results": {"k": "v"}}
    stop = desk.invoke({"count": 5, "plan": "given"})
    fork = desk.fork(stop.checkpoint, update=edit)
    for place, options in ((fork, {}), (stop.checkpoint, {"update": edit})):
        result = desk.resume(place, **options)
        assert (result.status, result.output.plan, result.output.count) == ("completed", "edited", 16)
        assert result.output.results == {"k": "v"}
        assert result.output.log == ["E", "x", "y"]


def test_an_edit_of_a_graph_that_goes_on_later_is_not_lost(desk: Works) -> None:
    """EIN-A07: of two graphs that wait one goes on; what was edited in the other meanwhile is there, and the next edit builds on it."""

    def draw() -> Any:
        graph = StateGraph(Job, name="works")
        for side in ("left", "right"):
            inner = linked(desk.nodes(f"{side}1", f"{side}2"), START, f"{side}1", f"{side}2", END)
            graph.add_node(side, inner.compile(interrupt_before=[f"{side}2"])).add_edge(START, side).add_edge(side, END)
        return graph

    def edit(**fields: Any) -> Any:
        def change(path: tuple[str, ...], state: Any) -> Any:
            return {**dict(state), **fields} if path == ("right",) else None

        return change

    desk.draw = draw
    stop = desk.invoke().checkpoint
    half = desk.answer(stop, YES, modify_state=edit(plan="ann's")).checkpoint
    assert desk.stop(half).nested["right"].state.plan == "ann's"
    refused(desk, partial(desk.resume, half, modify_state=edit(zz=1)), StateError)
    result = desk.resume(posted(half), modify_state=edit(count=7))
    assert (desk.seen["right2"].plan, desk.seen["right2"].count) == ("ann's", 7)
    assert (result.output.plan, result.output.count, once(desk.done)) == ("ann's", 7, True)


@pytest.mark.parametrize("kind", ["nodes", "sends", "graphs"])
def test_of_three_that_wait_two_are_answered(desk: Works, kind: str) -> None:
    """EIN-A10: one with data, one without; only the third waits then, under the id that it had, and what is finished is kept.

    E16, E23, E24.
    """

    def ask(state: Any) -> Any:
        name = state if isinstance(state, str) else state.plan
        return {"results": {name: str(interrupt(name, key="it"))}}

    def draw() -> Any:
        graph = StateGraph(Job, name="works").add_node("free", desk.node("free")).add_edge(START, "free")
        graph.add_edge("free", END)
        if kind == "sends":
            graph.add_node("task", desk.node("task", ask)).add_edge("task", END)
            return graph.add_conditional_edges(START, lambda state: [Send("task", each) for each in "123"], ["task"])
        for each in "123":
            body = desk.node(f"ask{each}", lambda state, each=each: ask(each))
            if kind == "graphs":
                inner = linked(desk.nodes(f"first{each}").add_node("ask", body), START, f"first{each}", "ask", END)
                graph.add_node(each, inner.compile())
            else:
                graph.add_node(each, body)
            graph.add_edge(START, each).add_edge(each, END)
        return graph

    desk.draw = draw
    stop = desk.invoke()
    assert (stop.status, len(stop.checkpoint.pending), desk.done.count("free")) == ("suspended", 3, 1)
    one, two, three = stop.checkpoint.pending
    assert len({one.id, two.id, three.id}) == 3

    half = desk.resume(stop.checkpoint, decisions={one.id: says({"a": [1]}), two.id: YES})

    assert (half.status, [item.id for item in half.checkpoint.pending]) == ("suspended", [three.id])
    ran = list(desk.done)
    result = desk.resume(half.checkpoint, decisions={three.id: says("c")})
    assert (result.status, result.output.log.count("free")) == ("completed", 1)
    assert result.output.results == {"1": "{'a': [1]}", "2": "True", "3": "c"}
    assert len(desk.done) == len(ran) + 1
    assert desk.done.count("free") == 1
    assert [desk.done.count(f"first{each}") for each in "123"] == [int(kind == "graphs")] * 3


def test_an_id_that_does_not_wait_here_is_refused(desk: Works) -> None:
    """EIN-A12, EIN-V4: unknown, stale, foreign, of another branch, or no id at all: typed, and nothing runs."""
    desk.draw = lambda: desk.fan("a", "b", a={"requires_approval": True}, b={"requires_approval": True})
    stop, foreign = desk.invoke().checkpoint, desk.invoke().checkpoint
    fork = desk.fork(stop)
    half = desk.answer(stop, YES).checkpoint
    stale = stop.pending[0].id
    for id in ("pend_0", "", "a", stale.upper(), foreign.pending[1].id, fork.pending[1].id):
        error = refused(desk, partial(desk.resume, half, decisions={id: YES}), UnknownPending)
        assert error.pending_id == id
        refused(desk, partial(desk.resume, half, decisions={id: YES, half.pending[0].id: YES}), UnknownPending)
    refused(desk, partial(desk.resume, half, decisions={stale: YES}), UnknownPending)
    refused(desk, partial(desk.resume, stop, decisions={stale: YES}), CheckpointAlreadyResumed)
    refused(desk, partial(desk.resume, stop, decisions={stale: YES, stop.pending[1].id: YES}), CheckpointAlreadyResumed)
    for nothing in ({}, {"decisions": {}}, {"decisions": None}, {"update": {"plan": "x"}}):
        refused(desk, partial(desk.resume, half, **nothing), NothingDecided)
    assert desk.done == ["a"]
    assert desk.approve(half).status == "completed"


WRONG: tuple[Any, ...] = (None, True, 1, "yes", {"approved": True}, {"approved": False}, Approve, [], b"x", object())


@pytest.mark.parametrize("why", ["approval", "question", "breakpoint"])
def test_a_decision_of_the_wrong_shape_runs_nothing(desk: Works, why: str) -> None:
    """EIN-A13, EIN-V3: None, a plain dict, another type: nothing of it is read as a yes, and it still waits as it did."""

    def body(state: Any) -> Any:
        desk.done.append("asked")
        answer = interrupt({"pay": 10}, key="sure", answer=bool) if why == "question" else True
        desk.done.append("paid" if answer is True else "not paid")
        return {}

    desk.draw = lambda: linked(
        StateGraph(Job).add_node("pay", desk.driver.function(body), requires_approval=why == "approval"),
        START,
        "pay",
        END,
    )
    desk.options = {"interrupt_before": ["pay"]} if why == "breakpoint" else {}
    stop = desk.invoke().checkpoint
    [item] = stop.pending
    assert item.why == why
    for wrong in WRONG:
        refused(desk, partial(desk.resume, stop, decisions={item.id: wrong}), InvalidDecision)
    for approved in (1, "true", "yes", [], {"approved": True}):
        refused(desk, partial(desk.resume, stop, approved=approved), InvalidDecision)
    for content in ("true", "yes", 1, 0, None, {"approved": True}, [True]):
        if why == "question" or content is not None:
            refused(desk, partial(desk.answer, stop, says(content)), InvalidDecision)
    for args in ({"state": {"zz": 1}}, {"state": {"count": "x"}}, {"state": 5}, {"zz": 1}):
        refused(desk, partial(desk.answer, stop, Approve(args=args)), InvalidDecision)
    assert "paid" not in desk.done
    result = desk.answer(stop, NO)
    assert (result.status, "paid" in desk.done, "not paid" in desk.done) == ("rejected", False, False)


@pytest.mark.parametrize("first", ["asks", "fails"])
def test_a_stop_survives_a_sibling_that_fails(desk: Works, first: str) -> None:
    """EIN-A15: the failure is told beside the stop, and a resume runs what failed again, and nothing that is through. E17."""
    broken = [True]

    def fail(state: Any) -> Any:
        if broken[0]:
            raise OSError("down")
        return {"log": ["fails"]}

    def draw() -> Any:
        bodies = {"asks": lambda state: {"log": [interrupt("?")]}, "fails": fail, "fine": None}
        graph = StateGraph(Job, name="works")
        for name in (first, *(name for name in bodies if name != first)):
            graph.add_node(name, desk.node(name, bodies[name])).add_edge(START, name).add_edge(name, END)
        return graph

    desk.draw = draw
    stop = desk.invoke()
    assert (stop.status, [why for _, _, why in asked(stop)]) == ("suspended", ["question"])
    assert list(desk.stop(stop).failures) == ["fails"]
    assert "down" in desk.stop(stop).failures["fails"]
    assert set(desk.stop(stop).rerun) == {"asks", "fails"}
    with pytest.raises(NodeFailed) as caught:
        desk.answer(posted(stop.checkpoint), says("told"))
    assert list(caught.value.failures) == ["fails"]
    broken.clear()
    broken.append(False)
    assert caught.value.checkpoint is not None
    result = desk.resume(caught.value.checkpoint)
    assert (result.status, sorted(result.output.log)) == ("completed", ["fails", "fine", "told"])
    assert (desk.done.count("fine"), desk.done.count("asks"), desk.done.count("fails")) == (1, 2, 3)


def test_another_branch_holds_the_new_stop_and_the_old_is_as_it_was(desk: Works) -> None:
    """EIN-A20: to write elsewhere is to fork, and resume the fork; the original's rows are the same bytes. E7."""
    desk.draw = lambda: desk.chain("a", "b", "c")
    desk.options = {"interrupt_before": ["b", "c"]}
    a = desk.invoke().checkpoint
    before = desk.branch(a.branch_id)

    fork = desk.fork(a, label="B")
    b = desk.resume(fork).checkpoint

    assert (b.branch_id, b.status, asked(b)) == (fork.branch_id, "suspended", [("", "c", "breakpoint")])
    assert (desk.branch(a.branch_id), desk.done) == (before, ["a", "b"])
    assert desk.store().load(a.id).model_dump_json() == a.model_dump_json()
    assert asked(desk.store().head(a.branch_id)[1]) == [("", "b", "breakpoint")]
    assert desk.resume(desk.resume(a).checkpoint).status == "completed"
    assert desk.resume(b).status == "completed"


def test_a_graph_goes_on_elsewhere_in_one_call(desk: Works) -> None:
    """E7, EIN-A20: with `write_to`, B holds the new stop, and A is as it was."""
    desk.draw = lambda: desk.chain("a", "b", "c")
    desk.options = {"interrupt_before": ["b", "c"]}
    a = desk.invoke().checkpoint
    before = desk.branch(a.branch_id)
    b = desk.resume(a, write_to="B").checkpoint
    assert (b.branch_id, b.status, asked(b)) == ("B", "suspended", [("", "c", "breakpoint")])
    assert (desk.branch(a.branch_id), desk.done) == (before, ["a", "b"])
    assert desk.resume(b).status == "completed"


def test_a_new_run_reads_no_stop_whatever_the_order_of_arguments(desk: Works) -> None:
    """EIN-A21, EIN-V5, E6, E7: `invoke` begins, `resume` goes on, and arguments by keyword have no order."""
    desk.draw = lambda: desk.chain("a", "b")
    desk.options = {"interrupt_before": ["b"]}
    old = desk.invoke({"plan": "old"}, thread_id="t").checkpoint
    for options in (
        {"thread_id": "t", "on_pending": "supersede", "label": "new"},
        {"label": "new", "on_pending": "supersede", "thread_id": "t"},
        {"on_pending": "supersede", "thread_id": "t", "label": "new"},
        {"on_pending": "ignore", "thread_id": "t", "label": "new"},
        {"label": "new"},
    ):
        new = desk.invoke({"plan": "new"}, **options).checkpoint
        assert (new.run_id != old.run_id, new.turn, desk.seen["a"].plan) == (True, old.turn, "new")
        assert desk.seen["a"].log == ([] if "thread_id" not in options else desk.seen["a"].log)
    unforced = partial(desk.invoke, {}, thread_id="t")
    refused(desk, unforced, ThreadBusy)
    for unknown in ({"force_new_run": True}, {"checkpoint_id": old.id}):
        refused(desk, partial(desk.invoke, {}, **unknown), ConfigurationError)


def test_what_changes_a_state_is_refused_where_none_could_be_changed(desk: Works) -> None:
    """EIN-A21, EIN-V5: `update` and `modify_state` go with `resume`, and are never taken and then left out."""
    desk.draw = lambda: desk.chain("a", "b")
    stop = desk.invoke(interrupt_before=["b"]).checkpoint
    streamed = next(each for each in STREAMED if each.is_async == desk.driver.is_async)

    def begin(method: Any, at: Any, change: dict[str, Any]) -> Any:
        return method(desk.graph(), at, **change)

    changes: tuple[dict[str, Any], ...] = ({"update": {"plan": "x"}}, {"modify_state": lambda path, state: None})
    for change in changes:
        for driver in (desk.driver, streamed):
            refused(desk, partial(begin, driver.invoke, {}, change), ConfigurationError)
        refused(desk, partial(begin, desk.driver.step, {}, change), ConfigurationError)
    for change in changes:
        refused(desk, partial(begin, desk.driver.recover, stop, change), ConfigurationError)


def test_a_stop_at_an_unknown_node_is_refused_when_it_is_asked_for(desk: Works) -> None:
    """EIN-A22, EIN-V6: at compile, and for one call; what is misspelt is named, and nothing runs."""
    desk.draw = lambda: desk.chain("a", "b")
    stop = desk.invoke(interrupt_before=["a"]).checkpoint
    for option in ("interrupt_before", "interrupt_after"):
        for names in (["zz"], ["a", "zz"], ["A"], [START], [END], "zz", [None], ["after:a"]):
            with pytest.raises(GraphError, match=option):
                desk.chain("a", "b").compile(**{option: names})  # type: ignore[misc]
            refused(desk, partial(desk.invoke, {}, **{option: names}), GraphError)
            refused(desk, partial(desk.resume, stop, **{option: names}), GraphError)
    assert desk.done == []
    assert desk.resume(stop).status == "completed"


def test_a_node_that_was_renamed_is_a_mismatch_before_anything_runs(desk: Works) -> None:
    """EIN-A23: waiting, to run again, or behind a gate; the node is named, and the old graph goes on all the same. E8."""
    old = {
        "waits": (lambda: desk.chain("a", "b", b={"requires_approval": True}), {}),
        "before": (lambda: desk.chain("a", "b"), {"interrupt_before": ["b"]}),
        "after": (lambda: desk.chain("a", "b"), {"interrupt_after": ["a"]}),
    }
    for draw, options in old.values():
        desk.draw, desk.options = draw, options
        stop = desk.invoke().checkpoint
        desk.draw, desk.options = (lambda: desk.chain("a2", "b2")), {}
        error = refused(desk, partial(desk.resume, stop, decisions={stop.pending[0].id: YES}), AgentChanged)
        assert re.search(r"'[ab]'", str(error))
        refused(desk, partial(desk.cancel, "run_0"), CheckpointError)
        desk.draw, desk.options = draw, options
        assert desk.resume(stop, decisions={stop.pending[0].id: YES}).status == "completed"
    assert not {"a2", "b2"} & set(desk.done)


def branching(desk: Works, first: str, *, join: bool) -> StateGraph[Any]:
    graph = desk.nodes(first, "b", "c", b={"requires_approval": True}).add_edge(START, first).add_edge(START, "b")
    if join:
        return graph.add_edge([first, "b"], "c").add_edge("c", END)
    return graph.add_edge(first, "c").add_edge("c", END).add_edge("b", END)


@pytest.mark.parametrize("join", [False, True], ids=["edge", "join"])
def test_a_node_that_is_through_and_was_renamed_is_a_mismatch_as_well(desk: Works, join: bool) -> None:
    """EIN-A23: what was to follow it would be lost without a word."""
    desk.draw = lambda: branching(desk, "a", join=join)
    stop = desk.invoke().checkpoint
    desk.draw = lambda: branching(desk, "a2", join=join)
    error = refused(desk, partial(desk.approve, stop), AgentChanged)
    assert "'a'" in str(error)
    desk.draw = lambda: branching(desk, "a", join=join)
    assert sorted(desk.approve(stop).output.log) == ["a", "b", "c"]


def test_a_join_that_waits_for_a_renamed_node_is_a_mismatch(desk: Works) -> None:
    """EIN-A23: one has arrived at the join already, in a wave before."""

    def draw(first: str) -> Any:
        graph = desk.nodes(first, "b", "b2", "c", b2={"requires_approval": True})
        graph.add_edge(START, first).add_edge(START, "b").add_edge("b", "b2")
        return graph.add_edge([first, "b2"], "c").add_edge("c", END)

    desk.draw = lambda: draw("a")
    stop = desk.invoke().checkpoint
    desk.draw = lambda: draw("z")
    refused(desk, partial(desk.approve, stop), AgentChanged)
    desk.draw = lambda: draw("a")
    assert sorted(desk.approve(stop).output.log) == ["a", "b", "b2", "c"]


class Renamed(BaseModel):
    """The state by now: a channel has another type, and one is new and must be there."""

    log: Annotated[list[str], append] = []
    results: str = ""
    fresh: int


@pytest.mark.parametrize("where", ["here", "inside"])
def test_a_state_that_is_another_one_now_is_a_mismatch(desk: Works, where: str) -> None:
    """EIN-A23: it could not be read, so nothing is consumed: not when the graph itself changed, nor one inside it."""

    def draw(state: Any) -> Any:
        graph = linked(desk.nodes("a", "b", state=state), START, "a", "b", END)
        if where == "here":
            return graph
        inner = graph.compile(interrupt_before=["b"])
        outer = StateGraph(Job, name="outer").add_node("sub", inner, input=lambda state: {}, output=lambda state: {})
        return linked(outer, START, "sub", END)

    desk.draw = lambda: draw(Job)
    desk.options = {"interrupt_before": ["b"]} if where == "here" else {}
    stop = desk.invoke({"plan": "p"} if where == "here" else {}).checkpoint
    desk.draw = lambda: draw(Renamed)
    refused(desk, partial(desk.approve, stop), AgentChanged)
    desk.draw = lambda: draw(Job)
    assert (desk.approve(stop).status, desk.done) == ("completed", ["a", "b"])


def test_a_thread_whose_state_is_another_one_now_begins_nothing(desk: Works) -> None:
    """EIN-A23: the next run of the thread would go on from it; it is refused, and the thread is as it was."""
    desk.draw = lambda: desk.chain("a")
    desk.invoke({"results": {"k": "v"}}, thread_id="t")
    desk.draw = lambda: desk.nodes("a", state=Renamed).add_edge(START, "a").add_edge("a", END)
    refused(desk, partial(desk.invoke, {"fresh": 1}, thread_id="t"), ConfigurationError)
    assert desk.invoke({"fresh": 1}, thread_id="other").status == "completed"
    desk.draw = lambda: desk.chain("a")
    assert desk.invoke({}, thread_id="t").output == Job(log=["a", "a"], results={"k": "v"})


@pytest.mark.parametrize("sent", [False, True], ids=["state", "send"])
def test_an_edit_is_of_what_was_shown(desk: Works, sent: bool) -> None:
    """EIN-A13: a node that was shown a state is given one, whole; a single run is given what it is sent; by its fallback as well."""
    seen: list[Any] = []

    def first(state: Any) -> Any:
        raise OSError("down")

    def second(state: Any) -> Any:
        seen.append(state if sent else state.plan)
        return {}

    def draw() -> Any:
        graph = StateGraph(Job, name="works")
        graph.add_node(
            "pay", desk.driver.function(first), requires_approval=True, fallback=desk.driver.function(second)
        )
        if sent:
            return graph.add_conditional_edges(START, lambda state: Send("pay", {"n": 1}), ["pay"]).add_edge("pay", END)
        return linked(graph, START, "pay", END)

    desk.draw = draw
    stop = desk.invoke({"plan": "p"}).checkpoint
    whole = {"log": [], "results": {}, "count": 0, "plan": "edited"}
    wrong: list[Any] = [
        {},
        {"state": {"plan": "x"}},
        {"state": {**whole, "zz": 1}},
        {"state": whole, "arg": 1},
        {"x": 1},
    ]
    wrong += [{"state": whole}] if sent else [{"arg": {"n": 1}}, {"arg": None}]
    for args in wrong:
        refused(desk, partial(desk.answer, stop, Approve(args=args)), InvalidDecision)
    again = desk.answer(stop, Approve(args={"arg": {"n": 2}} if sent else {"state": whole})).checkpoint
    assert (again.status, seen) == ("suspended", [])  # the approval of a node never covers its fallback
    assert again.pending[0].args == ({"arg": {"n": 2}} if sent else {"state": whole})
    for args in wrong:
        refused(desk, partial(desk.answer, again, Approve(args=args)), InvalidDecision)
    result = desk.answer(again, Approve(args={"arg": {"n": 3}} if sent else {"state": {**whole, "plan": "again"}}))
    assert (result.status, seen) == ("completed", [{"n": 3} if sent else "again"])


def test_a_nested_pause_survives_without_a_store(desk: Works) -> None:
    """EIN-A25: there is always a store; with none configured the checkpoint is the authority, and its text is all there is. E32."""
    desk.draw = lambda: towers(desk, interrupt_before=["y"])

    def alone() -> Any:
        return desk.draw().compile()  # with a store in its own memory

    text = desk.driver.invoke(alone(), {}).checkpoint.model_dump_json()
    checkpoint = Checkpoint.model_validate_json(text)
    assert [part.status for part in checkpoint.nested] == ["suspended", "suspended"]
    result = desk.driver.resume(alone(), checkpoint)
    assert (result.status, result.output.log, once(desk.done)) == ("completed", ["t", "m", "x", "y", "end"], True)
    refused(desk, partial(desk.resume, checkpoint), CheckpointUntrusted)  # a configured store takes nobody's word
    with pytest.raises(GraphError, match="store"):
        desk.draw().compile(store="none")  # type: ignore[arg-type]


# The weaknesses


def test_graphs_that_stop_in_one_wave_are_resumed_each_from_its_stop(desk: Works) -> None:
    """EIN-V2: two, side by side, answered together and one by one; the first nodes of each ran once, with their input. E16."""

    def draw() -> Any:
        graph = StateGraph(Job, name="works")
        for side in ("left", "right"):
            inner = linked(desk.nodes(f"{side}1", f"{side}2"), START, f"{side}1", f"{side}2", END)
            graph.add_node(side, inner.compile(interrupt_before=[f"{side}2"])).add_edge(START, side)
        graph.add_node("end", desk.node("end"))
        return graph.add_edge(["left", "right"], "end").add_edge("end", END)

    desk.draw = draw
    for together in (True, False):
        desk.done.clear()
        stop = desk.invoke({"log": ["in"]})
        assert [item.path for item in desk.stop(stop).pending] == [("left", "left2"), ("right", "right2")]
        assert set(desk.stop(stop).nested) == {"left", "right"}
        checkpoint = posted(stop.checkpoint)
        if together:
            result = desk.resume(checkpoint)
        else:
            right = desk.resume(checkpoint, decisions={checkpoint.pending[1].id: YES})
            assert (right.status, asked(right)[0][1]) == ("suspended", "left2")
            result = desk.resume(right.checkpoint)
        assert (result.status, sorted(desk.done)) == ("completed", ["end", "left1", "left2", "right1", "right2"])
        assert result.output.log == ["in", "left1", "left2", "right1", "right2", "end"]
        assert desk.seen["left2"].log == ["in", "left1"]


@pytest.mark.parametrize("extra", [{}, {"timeout": 60.0}, {"idempotent": True}, {"requires_approval": True}], ids=str)
def test_an_interrupt_is_no_error_that_a_body_could_swallow(desk: Works, extra: dict[str, Any]) -> None:
    """EIN-V7: bare, behind handlers, with retries, a timeout or a fallback: it asks, and is no failed attempt. E1, E2."""

    def body(state: Any) -> Any:
        try:
            answer = interrupt()
        except Exception as error:
            return {"log": [f"swallowed {type(error).__name__}"]}
        return {"log": [answer]}

    options: dict[str, Any] = {"fallback": desk.node("standby"), **extra}
    desk.draw = lambda: linked(StateGraph(Job).add_node("ask", desk.node("ask", body), **options), START, "ask", END)
    stop = desk.invoke()
    if "requires_approval" in extra:
        assert (asked(stop), desk.done) == ([("", "ask", "approval")], [])
        stop = desk.approve(stop.checkpoint)
    assert (asked(stop), desk.done) == ([("", "ask", "question")], ["ask"])
    result = desk.answer(stop.checkpoint, says("hello"))
    assert (result.output.log, desk.done) == (["hello"], ["ask", "ask"])


def test_an_interrupt_outside_of_a_run_is_an_error(desk: Works) -> None:
    """EIN-V7: called where nobody could be asked, or with what nobody could be shown, it says so."""
    with pytest.raises(ConfigurationError, match="inside a node"):
        interrupt("?")
    desk.draw = lambda: linked(
        StateGraph(Job).add_node("ask", desk.node("ask", lambda state: interrupt(object()))), START, "ask", END
    )
    with pytest.raises(NodeFailed, match="payload"):
        desk.invoke()
    assert desk.store().pending() == []


def test_equal_calls_are_told_apart(desk: Works) -> None:
    """EIN-V8: single runs of one node with equal arguments, and calls of an agent in a node with equal and empty ids. E22."""
    paid: list[int] = []

    @tool(requires_approval=True)
    def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return f"paid {n}"

    def draw() -> Any:
        calls = say(None, *[call("pay", {"n": n}, id=id) for n, id in ((1, "x"), (1, "x"), (2, ""), (3, ""))])
        clerk = Agent(name="clerk", model=ScriptedModel.by_turn([calls, "end"]), tools=[pay])
        graph = StateGraph(Job, name="works").add_node("task", desk.node("task"), requires_approval=True)
        graph.add_node("clerk", clerk, input=lambda state: "go", output="plan")
        graph.add_conditional_edges(START, lambda state: ["clerk", *[Send("task", 1)] * 3], ["clerk", "task"])
        return graph.add_edge("task", END).add_edge("clerk", END)

    desk.draw = draw
    stop = desk.invoke().checkpoint
    items = {item.id: item for item in stop.pending}
    assert len(items) == 7
    assert len({(item.path, item.call_id) for item in items.values()}) == 7
    tasks = [id for id, item in items.items() if item.tool_name == "task"]
    pays = [id for id, item in items.items() if item.tool_name == "pay"]
    result = desk.resume(stop, decisions={pays[1]: YES, pays[3]: YES, tasks[2]: YES})
    assert (desk.done, sorted(paid)) == (["task"], [1, 3])  # side by side
    answers = {
        id: says({"log": ["by hand"]}) if id in tasks else NO for id in items if id not in (pays[1], pays[3], tasks[2])
    }
    result = desk.resume(result.checkpoint, decisions=answers)
    assert (result.status, result.output.plan, desk.done, sorted(paid)) == ("completed", "end", ["task"], [1, 3])
    assert result.output.log == ["by hand", "by hand", "task"]


def test_nothing_of_a_state_is_dropped_without_a_word(desk: Works) -> None:
    """EIN-V9: private fields are refused when the graph is built; what would be lost on its way is refused with its place. E30."""

    class Private(BaseModel):
        log: list[str] = []
        _history: list[str] = PrivateAttr(default_factory=list)

    with pytest.raises(GraphError, match="private"):
        StateGraph(Private)

    class Note:
        pass

    class Inner(BaseModel):
        text: str = ""
        _secret: str = PrivateAttr(default="s")

    class Slots(TypedDict, total=False):
        any: Any

    for value, place in (
        (Note(), "any"),
        ({"a": [1, Note()]}, r"any\.a\[1\]"),
        (Inner(), "any"),
        (float("nan"), "any"),
    ):
        desk.draw = lambda value=value: linked(  # type: ignore[misc]
            StateGraph(Slots).add_node("a", desk.node("a", lambda state: {"any": value})), START, "a", END
        )
        with pytest.raises(NodeFailed, match=place):
            desk.invoke()
    kept = {"any": [{1: {2}}, (3, b"x")]}
    desk.draw = lambda: linked(StateGraph(Slots).add_node("a", desk.node("a", lambda state: kept)), START, "a", END)
    assert desk.invoke().output == kept


def test_what_cannot_be_kept_is_found_where_it_is_made(desk: Works) -> None:
    """EIN-V10: an unregistered type destroys no run: the node that gave it has failed, its siblings are kept, it runs again. E30."""

    class Point(BaseModel):
        x: int

    class Slots(TypedDict, total=False):
        left: Any
        right: str

    good = [False]

    def draw() -> Any:
        graph = StateGraph(Slots, name="works")
        graph.add_node("left", desk.node("left", lambda state: {"left": {"x": 1} if good[0] else Point(x=1)}))
        graph.add_node("right", desk.node("right", lambda state: {"right": interrupt("?")}))
        for name in ("left", "right"):
            graph.add_edge(START, name).add_edge(name, END)
        return graph

    desk.draw = draw
    stop = desk.invoke()
    assert (stop.status, list(desk.stop(stop).failures)) == ("suspended", ["left"])
    assert "register" in desk.stop(stop).failures["left"]
    good[0] = True
    result = desk.answer(stop.checkpoint, says("r"))
    assert (result.status, result.output) == ("completed", {"left": {"x": 1}, "right": "r"})


def test_what_runs_again_is_given_what_it_was_given_before(desk: Works) -> None:
    """EIN-V11: the state of its wave, what a single run brought, and what a graph inside began with; no zero value. E13, E14."""
    given: dict[str, list[Any]] = {"plain": [], "send": [], "inner": []}

    def asks(name: str) -> Any:
        def body(state: Any) -> Any:
            given[name].append(state if name == "send" else (state.plan, list(state.log)))
            return {"results": {name: interrupt(name)}}

        return desk.driver.function(body)

    def draw() -> Any:
        inner = linked(StateGraph(Job).add_node("inner", asks("inner")), START, "inner", END).compile()
        graph = desk.nodes("a").add_node("plain", asks("plain")).add_node("send", asks("send")).add_node("graph", inner)
        graph.add_conditional_edges("a", lambda state: ["plain", "graph", Send("send", {"n": [1, None]})])
        for name in ("plain", "graph", "send"):
            graph.add_edge(name, END)
        return graph.add_edge(START, "a")

    desk.draw = draw
    stop = desk.invoke({"plan": "p"})
    assert {name: len(calls) for name, calls in given.items()} == {"plain": 1, "send": 1, "inner": 1}
    rerun = desk.stop(stop).rerun
    assert (rerun["plain"].plan, rerun["send"]) == ("p", {"n": [1, None]})
    result = desk.resume(posted(stop.checkpoint), decisions={item.id: says("x") for item in stop.checkpoint.pending})
    assert result.status == "completed"
    assert given == {"plain": [("p", ["a"])] * 2, "send": [{"n": [1, None]}] * 2, "inner": [("p", ["a"])] * 2}


def test_a_crash_between_two_stops_loses_nothing_that_is_through(desk: Works) -> None:
    """EIN-V12: every wave is a checkpoint; what waits for ever lapses, and somebody is told."""
    desk.draw = lambda: desk.chain("a", "b", "c", "d", c={"idempotent": True}, d={"requires_approval": True})
    desk.options = {"approval_timeout": 10 * HOUR}
    cut = desk.graph(store=lose(desk.beside(), lambda change: "c" in desk.done))
    with pytest.raises(PowerCut):
        desk.driver.invoke(cut, {"plan": "p"}, thread_id="t")  # type: ignore[arg-type]
    assert desk.done == ["a", "b", "c"]
    [branch] = desk.store().branches(thread_id="t")
    assert [each.turn for each in desk.store().history(branch.head)][-1] == 2
    assert desk.state(desk.store().load(branch.head)).log == ["a", "b"]
    with pytest.raises(RunBusy):
        desk.recover(branch.id)
    desk.later = HOUR
    result = desk.recover(branch.id)
    assert (result.status, desk.done) == ("suspended", ["a", "b", "c", "c"])

    desk.later = 20 * HOUR
    assert len(desk.driver.call(desk.graph(), "recover_all")) <= 1  # type: ignore[arg-type]
    branch, last = desk.store().head(branch.id)
    assert (branch.status, last.calls[0].result.kind if last.calls else "", desk.done[4:]) in (
        ("cancelled", "", []),
        ("cancelled", "expired", []),
    )
    assert [line.kind for line in desk.store().audit(run_id=branch.run_id)] == ["expire"]


class Money(BaseModel):
    """A value whose class has another name by now."""

    amount: int


register_type(Money, "money-of-eino", aliases=["cash-of-eino"])


def test_what_is_stored_has_a_version_and_names_of_its_own(desk: Works) -> None:
    """EIN-V13: text, by names that were registered and not by those of classes; an old name is read as an alias."""

    class Slots(TypedDict, total=False):
        any: Any

    desk.draw = lambda: linked(
        StateGraph(Slots, name="works")
        .add_node("a", desk.node("a", lambda state: {"any": [Money(amount=3)]}))
        .add_node("b", desk.node("b", lambda state: {})),
        START,
        "a",
        "b",
        END,
    )
    desk.options = {"interrupt_before": ["b"]}
    stop = desk.invoke().checkpoint
    text = stop.model_dump_json()
    assert stop.version >= 1
    assert "money-of-eino" in text
    assert "Money" not in text
    assert "Money" not in desk.rows()
    assert posted(stop) == stop
    old = Checkpoint.model_validate_json(text)
    assert desk.state(old)["any"] == [Money(amount=3)]
    renamed = stop.evolve(state=JsonText(stop.json_text("state").replace("money-of", "cash-of")))
    assert desk.state(renamed)["any"] == [Money(amount=3)]
    desk.resume(stop)
    assert desk.seen["b"]["any"] == [Money(amount=3)]


def test_a_question_belongs_to_the_node_that_asks_and_is_asked_once(desk: Works) -> None:
    """EIN-V14: late, and from inside a graph in a node; the stop of the graph holds that of the graph inside; no replay. E9."""

    def body(state: Any) -> Any:
        first = interrupt("first", key="1")
        second = interrupt({"after": first}, key="2")
        return {"results": {"said": f"{first}{second}"}}

    def draw() -> Any:
        inner = linked(desk.nodes("x").add_node("ask", desk.node("ask", body)), START, "x", "ask", END)
        graph = StateGraph(Job, name="works").add_node("sub", inner.compile()).add_node("end", desk.node("end"))
        return linked(graph, START, "sub", "end", END)

    desk.draw = draw
    one = desk.invoke()
    assert [item.path for item in desk.stop(one).pending] == [("sub", "ask")]
    stored = desk.store().load(one.checkpoint.id)
    assert stored.nested[0].pending == stored.pending == one.checkpoint.pending
    two = desk.answer(posted(one.checkpoint), says("a"))
    [item] = two.checkpoint.pending
    assert (item.args["key"], item.args["payload"]) == ("2", {"after": "a"})
    assert item.id != one.checkpoint.pending[0].id
    result = desk.answer(posted(two.checkpoint), says("b"))
    assert (result.output.results, desk.done) == ({"said": "ab"}, ["x", "ask", "ask", "ask", "end"])


@pytest.mark.parametrize("first", [0, 1], ids=["plain-first", "streamed-first"])
def test_a_stop_is_stored_alike_streamed_or_not(desk: Works, first: int) -> None:
    """EIN-V15: and either way is resumed in either; no mode is part of the record. E28."""
    streamed = next(each for each in STREAMED if each.is_async == desk.driver.is_async)
    drivers = [desk.driver, streamed][:: -1 if first else 1]
    desk.draw = lambda: desk.chain("a", "b", "c", b={"requires_approval": True})
    desk.options = {"interrupt_before": ["c"]}
    stop = drivers[0].invoke(desk.graph(), {})  # type: ignore[arg-type]
    assert [item.approval.id for item in desk.store().pending()] == [stop.checkpoint.pending[0].id]
    stop = drivers[1].resume(desk.graph(), stop.checkpoint.id, approved=True)  # type: ignore[arg-type]
    assert [item.approval.id for item in desk.store().pending()] == [stop.checkpoint.pending[0].id]
    result = drivers[0].resume(desk.graph(), stop.checkpoint.id)  # type: ignore[arg-type]
    assert (result.status, result.output.log, desk.done) == ("completed", ["a", "b", "c"], ["a", "b", "c"])


def test_no_state_is_shared_and_of_two_resumes_one_counts(desk: Works) -> None:
    """EIN-V16: what is handed out are copies; and of those who resume one stop at once, one does. E10."""
    desk.draw = lambda: desk.chain("a", "b")
    desk.options = {"interrupt_before": ["b"]}
    stop = desk.invoke().checkpoint
    desk.seen["a"].log.append("vandal")
    state = desk.state(stop)
    state.log.append("vandal")
    desk.stop(stop).state.log.append("vandal")
    stop.state["log"].append("vandal")
    kept: list[Any] = []

    def edit(path: Any, state: Any) -> None:
        state.plan = "edited"
        kept.append(state)

    graphs = [desk.graph(store=desk.beside()) for _ in range(4)]
    found = at_once([partial(desk.driver.resume, graph, stop.id, modify_state=edit) for graph in graphs])  # type: ignore[arg-type]
    for state in kept:
        state.log.append("vandal")
    [winner] = [each for each in found if not isinstance(each, Exception)]
    assert {type(each) for each in found if isinstance(each, Exception)} <= {CheckpointAlreadyResumed, RunBusy}
    assert (winner.output.log, winner.output.plan, desk.done) == (["a", "b"], "edited", ["a", "b"])
    assert desk.store().load(stop.id).model_dump_json() == stop.model_dump_json()


# A stop from outside, and pieces (more in test_graph_pause.py and test_graph_streams.py)


class Held:
    """Two nodes of a wave that run until they are let go, the first time they are entered."""

    def __init__(self, desk: Works) -> None:
        self.entered, self.go_on = threading.Barrier(3), threading.Event()
        both = {"idempotent": True}
        desk.draw = lambda: (
            desk.nodes("last")
            .add_node("1", partial(self.body, desk, "1"), **both)
            .add_node("2", partial(self.body, desk, "2"), **both)
            .add_edge(START, "1")
            .add_edge(START, "2")
            .add_edge(["1", "2"], "last")
            .add_edge("last", END)
        )

    def body(self, desk: Works, name: str, state: Any) -> Any:
        desk.done.append(name)
        if not self.go_on.is_set():
            self.entered.wait(PATIENCE)
            assert self.go_on.wait(PATIENCE)
        return {"count": 1}


@pytest.mark.parametrize("grace", [0, None], ids=["left", "waited"])
def test_a_stop_from_outside_leaves_or_waits_for_what_runs(desk: Works, grace: float | None) -> None:
    """EIN-A16: what was left is listed to run again with its input, what ended as completed; both come to the same. E1, E14, E15."""
    held = Held(desk)
    store = desk.store()
    graph = desk.graph(store=store)
    results: list[Any] = []
    worker = threading.Thread(
        target=lambda: results.append(desk.driver.invoke(graph, {"plan": "p"}, thread_id="t"))  # type: ignore[arg-type]
    )
    worker.start()
    held.entered.wait(PATIENCE)
    (branch,) = store.branches(thread_id="t")
    assert graph.pause(branch.id, grace=grace, reason="look").status == "running"
    if grace is None:
        held.go_on.set()
    worker.join(PATIENCE)
    held.go_on.set()
    (stopped,) = results

    stop = graph.stop_of(stopped.checkpoint)
    assert stopped.status == "suspended"
    assert [item.path for item in stop.pending] == [("operator",)]
    if grace is None:
        assert (stop.after, dict(stop.rerun)) == (("1", "2"), {})
    else:
        assert (stop.after, {name: seen.plan for name, seen in stop.rerun.items()}) == ((), {"1": "p", "2": "p"})
    result = desk.resume(stopped.checkpoint)
    assert (result.status, result.output.count, result.output.log) == ("completed", 2, ["last"])
    assert sorted(desk.done) == (["1", "2", "last"] if grace is None else ["1", "1", "2", "2", "last"])


def test_pieces_that_pend_at_a_stop_are_one_value_after_it(desk: Works) -> None:
    """EIN-A17: whoever reads them sees the whole, once, and nothing is written again. E28."""
    written: list[str] = []

    def write(state: Job) -> Iterator[Any]:
        for piece in "abc":
            written.append(piece)
            yield {"plan": piece}

    def draw() -> Any:
        graph = desk.nodes("read").add_node("write", write, streams=["plan"])
        return linked(graph, START, "write", "read", END)

    desk.draw = draw
    desk.options = {"interrupt_before": ["read"]}
    stop = desk.invoke()
    assert (desk.state(stop).plan, desk.done) == ("abc", [])
    result = desk.resume(stop.checkpoint)
    assert (result.status, desk.seen["read"].plan, written, desk.done) == (
        "completed",
        "abc",
        ["a", "b", "c"],
        ["read"],
    )


def test_pieces_that_cannot_be_joined_are_refused_before_anything_runs(desk: Works) -> None:
    """EIN-A18 and EIN-V10: when the graph is built, not when it stops. E29."""

    def write(state: Job) -> Iterator[Any]:
        yield {"count": 1}

    with pytest.raises(GraphError, match="pieces of the channel 'count'"):
        desk.nodes("read").add_node("write", write, streams=["count"])
    assert desk.done == []

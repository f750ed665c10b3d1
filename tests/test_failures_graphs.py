"""What went wrong in other systems, 21 to 65, where graphs are concerned: what ran twice, what was lost, and what was run unasked."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from drivers import PATIENCE, Driver, calls_ended
from graph_scenes import NO, YES, Job, Works, asked, linked, once, posted, refused, says
from places import KINDS, Place
from test_failures_once import HOUR, PowerCut, at_once, counted
from test_failures_stores import lose

from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointError,
    NodeFailed,
    NothingDecided,
    Reject,
    RunBusy,
    ThreadBusy,
    UnknownPending,
    tool,
)
from phronomy.graph import END, START, Pause, Send, StateGraph, interrupt
from phronomy.stores.storeless_runs import HOMES
from phronomy.testing import ScriptedModel, call

pytestmark = [pytest.mark.unmeasured, pytest.mark.worlds(1)]


@pytest.fixture
def desk(driver: Driver, place: Place) -> Works:
    return Works(driver, place)


def asks(desk: Works, name: str, *keys: str) -> Callable[..., Any]:
    """A node that asks these questions, one after the other, and keeps the answers."""

    def body(state: Any) -> Any:
        return {"results": {f"{name}.{key}": str(interrupt(key, key=key)) for key in keys}}

    return desk.node(name, body)


def side_by_side(desk: Works, **bodies: Any) -> StateGraph[Any]:
    """Nodes of one wave, joined by `last`."""
    graph = StateGraph(Job, name="works").add_node("first", lambda state: {}).add_edge(START, "first")
    for name, body in bodies.items():
        graph.add_node(name, desk.node(name) if body is None else body).add_edge(START, name)
    return graph.add_node("last", desk.node("last")).add_edge([*bodies, "first"], "last").add_edge("last", END)


# One wave, several answers


def test_siblings_of_a_node_that_asks_run_once(desk: Works) -> None:
    """The wave is not run again: what is through is read from the journal, however often it stops. field failure 26

    Also field failure 44: of results that come in over several resumes none is lost.
    """
    desk.draw = lambda: side_by_side(desk, a=None, b=asks(desk, "b", "1", "2"), c=None, d=asks(desk, "d", "1"), e=None)
    stop = desk.invoke().checkpoint
    assert sorted(desk.done) == ["a", "b", "c", "d", "e"]
    stop = desk.answer(posted(stop), says("x")).checkpoint
    stop = desk.answer(posted(stop), *[says("y")] * len(stop.pending)).checkpoint
    result = desk.answer(stop, *[says("z")] * len(stop.pending)) if stop.pending else None
    final = desk.store().head(stop.branch_id)[1] if result is None else result.checkpoint
    assert final.status == "completed"
    assert desk.state(final).log == ["a", "c", "e", "last"]
    assert set(desk.state(final).results) == {"b.1", "b.2", "d.1"}
    assert [desk.done.count(name) for name in ("a", "c", "e", "last")] == [1, 1, 1, 1]
    assert (desk.done.count("b"), desk.done.count("d")) == (3, 2)


def test_every_question_of_a_wave_has_an_id_of_its_own(desk: Works) -> None:
    """Equal nodes, equal payloads, equal keys: each is answered apart; the same question keeps its id. field failure 27"""

    def draw() -> Any:
        graph = StateGraph(Job, name="works").add_node("task", asks(desk, "task", "q")).add_edge("task", END)
        return graph.add_conditional_edges(START, lambda state: [Send("task", "x")] * 6, ["task"])

    desk.draw = draw
    stop = desk.invoke().checkpoint
    ids = [item.id for item in stop.pending]
    assert len(set(ids)) == 6
    assert len({item.digest for item in stop.pending}) == 1
    fork = desk.fork(stop)
    again = desk.resume(fork).checkpoint if not fork.pending else fork
    assert not set(ids) & {item.id for item in again.pending}
    half = desk.answer(stop, says("0")).checkpoint
    assert [item.id for item in half.pending] == ids[1:]


@pytest.mark.parametrize("place", KINDS[:2], indirect=True)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("together", [True, False], ids=["at-once", "one-by-one"])
def test_answers_go_by_id_in_whatever_order(desk: Works, order: tuple[int, ...], together: bool) -> None:
    """A question, an approval and a breakpoint, from the first checkpoint or from the last. field failure 28"""

    def draw() -> Any:
        graph = side_by_side(desk, ask=asks(desk, "ask", "q"))
        graph.add_node("gated", desk.node("gated"), requires_approval=True).add_node("looked", desk.node("looked"))
        for name in ("gated", "looked"):
            graph.add_edge(START, name).add_edge(name, END)
        return graph

    desk.draw = draw
    desk.options = {"interrupt_before": ["looked"]}
    stop = desk.invoke().checkpoint
    answers = {"question": says("told"), "approval": Approve(), "breakpoint": YES}
    decisions = {item.id: answers[item.why] for item in (stop.pending[place] for place in order)}
    if together:
        result = desk.resume(stop, decisions=decisions)
    else:
        for id, answer in decisions.items():
            result = desk.resume(stop, decisions={id: answer})
    assert (result.status, result.output.results) == ("completed", {"ask.q": "told"})
    assert sorted(desk.done) == ["ask", "ask", "gated", "last", "looked"]
    assert result.output.log[-1] == "last"


def test_a_question_in_a_loop_is_asked_once_a_visit(desk: Works) -> None:
    """The body runs again for its own answers, and nothing of the visits before does. field failure 29"""

    def body(state: Any) -> Any:
        return {"log": [str(interrupt({"round": len(state.log)}, key="more"))]}

    def draw() -> Any:
        graph = StateGraph(Job, name="works").add_node("ask", desk.node("ask", body)).add_edge(START, "ask")
        return graph.add_conditional_edges("ask", lambda state: "ask" if len(state.log) < 4 else END, ["ask", END])

    desk.draw = draw
    result = desk.invoke()
    ids = []
    for n in range(4):
        [item] = result.checkpoint.pending
        assert item.args["payload"] == {"round": n}
        ids.append(item.id)
        result = desk.answer(posted(result.checkpoint), says(n))
        assert len(desk.done) == 2 * n + 2 + (n < 3)
    assert (result.status, result.output.log, len(set(ids))) == ("completed", ["0", "1", "2", "3"], 4)


def test_a_node_runs_again_only_for_an_answer_of_its_own(desk: Works) -> None:
    """Answering one of two that ask does not run the other; a resume that decides nothing runs none. field failure 30"""
    desk.draw = lambda: side_by_side(desk, one=asks(desk, "one", "q"), two=asks(desk, "two", "q"))
    stop = desk.invoke().checkpoint
    assert sorted(desk.done) == ["one", "two"]
    refused(desk, partial(desk.resume, stop), NothingDecided)
    assert desk.recover(stop).checkpoint.pending == stop.pending
    half = desk.answer(stop, says("1")).checkpoint
    assert desk.done[2:] == ["one"]
    refused(desk, partial(desk.resume, half), NothingDecided)
    assert desk.answer(half, says("2")).status == "completed"
    assert desk.done[3:] == ["two", "last"]


# Graphs inside


def nest(desk: Works, depth: int, core: StateGraph[Any]) -> StateGraph[Any]:
    """The graph inside others, with a node before it and one behind it at each depth."""
    for level in range(depth):
        outer = StateGraph(Job, name=f"level{level}").add_node(f"in{level}", desk.node(f"in{level}"))
        outer.add_node(f"sub{level}", core.compile()).add_node(f"out{level}", desk.node(f"out{level}"))
        core = linked(outer, START, f"in{level}", f"sub{level}", f"out{level}", END)
    return core


def test_a_question_inside_graphs_restarts_none_of_them(desk: Works) -> None:
    """What was before is used; two questions are two, and no old answer is taken for the second. field failure 31"""

    def draw() -> Any:
        core = linked(
            StateGraph(Job, name="core")
            .add_node("x", desk.node("x"))
            .add_node("ask", asks(desk, "ask", "1", "2"))
            .add_node("more", asks(desk, "more", "1")),
            START,
            "x",
            "ask",
            "more",
            END,
        )
        return nest(desk, 2, core)

    desk.draw = draw
    result = desk.invoke({"plan": "p"})
    ids = []
    for n, key in enumerate(("1", "2", "1")):
        [item] = result.checkpoint.pending
        assert item.args["key"] == key
        assert len([part for part in result.checkpoint.nested if part.status == "suspended"]) == 2
        ids.append(item.id)
        result = desk.answer(posted(result.checkpoint), says(f"answer {n}"))
    assert (result.status, len(set(ids))) == ("completed", 3)
    assert result.output.results == {"ask.1": "answer 0", "ask.2": "answer 1", "more.1": "answer 2"}
    assert result.output.log == ["in1", "in0", "x", "out0", "out1"]
    assert once(name for name in desk.done if name not in ("ask", "more"))


@pytest.mark.parametrize("before", [False, True], ids=["where-it-asks", "before-it-asked"])
def test_what_happened_after_a_fork_is_not_in_it(desk: Works, before: bool) -> None:
    """Back before the answer, inside a graph: asked anew, under another id, and the old answer is gone. field failure 32"""
    desk.draw = lambda: nest(
        desk, 1, linked(desk.nodes("x").add_node("ask", asks(desk, "ask", "q")), START, "x", "ask", END)
    )
    stop = desk.invoke().checkpoint
    ended = desk.answer(stop, says("old"))
    assert ended.output.results == {"ask.q": "old"}
    done = len(desk.done)
    for point in desk.store().history(stop.id)[:-1] if before else (stop,):
        fork = desk.fork(point)
        assert fork.decisions == ()
        again = fork if fork.pending else desk.resume(fork).checkpoint
        assert not {item.id for item in again.pending} & {item.id for item in stop.pending}
        refused(desk, partial(desk.resume, again, decisions={stop.pending[0].id: says("x")}), UnknownPending)
        result = desk.answer(again, says("new"))
        assert result.output.results == {"ask.q": "new"}
    assert desk.done.count("x") == desk.done.count("in0") == 1
    assert len(desk.done) > done
    assert desk.state(ended).results == {"ask.q": "old"}


def test_another_answer_to_the_same_question_is_refused_or_a_fork(desk: Works) -> None:
    """By the checkpoint, its text, or its id; while it waits for more, and when it is over. field failure 33"""
    desk.draw = lambda: side_by_side(desk, one=asks(desk, "one", "q"), two=asks(desk, "two", "q"))
    stop = desk.invoke().checkpoint
    [first, second] = stop.pending
    half = desk.resume(stop, decisions={first.id: says("a")}, by="ann").checkpoint
    for given in (stop, posted(stop), stop.id):
        for answer in (says("a"), says("b"), YES, NO):
            error = refused(desk, partial(desk.resume, given, decisions={first.id: answer}), CheckpointAlreadyResumed)
            assert (error.decision.by.id, error.progress) == ("ann", "suspended")
    ended = desk.resume(half, decisions={second.id: says("c")})
    error = refused(desk, partial(desk.resume, stop, decisions={first.id: says("b")}), CheckpointAlreadyResumed)
    assert (error.progress, error.result.output.results) == ("ended", {"one.q": "a", "two.q": "c"})
    fork = desk.fork(stop)
    again = fork if fork.pending else desk.resume(fork).checkpoint
    other = desk.answer(again, says("b"), says("c"))
    assert other.output.results == {"one.q": "b", "two.q": "c"}
    assert desk.state(ended).results == {"one.q": "a", "two.q": "c"}


def test_a_join_runs_once_whatever_stops_on_the_way_to_it(desk: Works) -> None:
    """Branches of unequal length, each stopped elsewhere: the frontier is saved as a whole. field failure 45"""

    def draw() -> Any:
        graph = desk.nodes("a", "b1", "b2", "c1", "c3", "join", b2={"requires_approval": True})
        graph.add_node("c2", asks(desk, "c2", "q"))
        for names in ((START, "a"), (START, "b1", "b2"), (START, "c1", "c2", "c3")):
            linked(graph, *names)
        return graph.add_edge(["a", "b2", "c3"], "join").add_edge("join", END)

    desk.draw = draw
    desk.options = {"interrupt_after": ["a"], "interrupt_before": ["c3", "join"]}
    result = desk.invoke()
    stops = 0
    while result.suspended:
        checkpoint = posted(result.checkpoint)
        [item, *_] = checkpoint.pending
        result = desk.answer(checkpoint, says("q") if item.why == "question" else YES)
        stops += 1
    assert (result.status, stops) == ("completed", 5)
    assert sorted(desk.done) == ["a", "b1", "b2", "c1", "c2", "c2", "c3", "join"]
    assert desk.seen["join"].log == ["a", "b1", "c1", "b2", "c3"]


def test_parallel_approvals_inside_agents_are_answered_at_the_top(desk: Works) -> None:
    """Two agents side by side, each in a graph, each with two approvals; nobody is driven to open them. field failure 21

    They bubble up by themselves, field failure 56; both agents have one name, field failure 52; each request names whose it is, field
    failure 55; an answer goes to the path that asks, field failure 57; approve, edit, reject and respond all work there, field failure
    62; and what is asked side by side is answered over several resumes, field failure 59.
    """
    paid: list[str] = []

    @tool(requires_approval=True)
    def pay(who: str, amount: int = 1) -> str:
        """Pay."""
        paid.append(f"{who} {amount}")
        return "paid"

    def draw() -> Any:
        graph = StateGraph(Job, name="works")
        for side in ("left", "right"):
            calls = [call("pay", {"who": f"{side}{n}"}) for n in (1, 2)]
            clerk = Agent(name="clerk", model=ScriptedModel.by_turn([calls, "end"]), tools=[pay])
            office = StateGraph(Job, name=side)
            office.add_node(
                "clerk", clerk, input=lambda state: "go", output=lambda text, side=side: {"results": {side: text}}
            )
            graph.add_node(side, linked(office, START, "clerk", END).compile()).add_edge(START, side).add_edge(
                side, END
            )
        return graph

    desk.draw = draw
    stop = desk.invoke().checkpoint
    assert [item.args["who"] for item in stop.pending] == ["left1", "left2", "right1", "right2"]
    assert [item.path for item in desk.stop(stop).pending] == [
        (side, "clerk", f"pay[{n}]") for side in ("left", "right") for n in (0, 1)
    ]
    l1, l2, r1, r2 = stop.pending
    half = desk.resume(stop, decisions={r2.id: Approve(args={"who": "right2", "amount": 9}), l1.id: YES})
    assert [item.id for item in half.checkpoint.pending] == [l2.id, r1.id]
    assert sorted(paid) == ["left1 1", "right2 9"]
    result = desk.resume(posted(half.checkpoint), decisions={l2.id: Reject(reason="no"), r1.id: says("by hand")})
    assert (result.status, result.output.results) == ("completed", {"left": "end", "right": "end"})
    assert sorted(paid) == ["left1 1", "right2 9"]


def test_an_agent_deep_inside_asks_any_number_of_times(desk: Works) -> None:
    """Three graphs deep, four times, by text alone; each time under one path, and none ends silently. field failure 53

    Each resume is in another place, field failure 65, which knows nothing but the text, field failure 51, as often as it takes: field
    failure 58. It is a verb of its own, and takes no message: field failure 61.
    """
    paid: list[int] = []

    @tool(requires_approval=True)
    def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return "paid"

    def draw() -> Any:
        clerk = Agent(
            name="clerk", model=ScriptedModel.by_turn([*[call("pay", {"n": n}) for n in range(4)], "end"]), tools=[pay]
        )
        core = StateGraph(Job, name="core").add_node("clerk", clerk, input=lambda state: "go", output="plan")
        return nest(desk, 2, linked(core, START, "clerk", END))

    desk.draw = draw
    text = desk.driver.invoke(draw().compile(), {}).checkpoint.model_dump_json()
    for n in range(4):
        checkpoint = Checkpoint.model_validate_json(text)
        [item] = checkpoint.pending
        assert (item.path.count("/"), item.args) == (2, {"n": n})
        result = desk.driver.resume(draw().compile(), checkpoint, approved=True)
        assert paid == list(range(n + 1))
        text = result.checkpoint.model_dump_json()
    assert (result.status, result.output.plan, once(desk.done)) == ("completed", "end", True)


def test_what_is_handed_to_nodes_has_no_part_in_what_was_decided(desk: Works) -> None:
    """Other deps on resume: what was approved before is approved, and is not asked again. field failure 54"""
    had: list[Any] = []

    def body(state: Any, ctx: Any) -> Any:
        had.append(ctx.deps)
        return {"log": [str(interrupt("?", key="q"))]}

    def draw() -> Any:
        graph = side_by_side(desk, two=asks(desk, "two", "q"))
        graph.add_node("one", desk.driver.function(body), requires_approval=True)
        return graph.add_edge(START, "one").add_edge("one", END)

    desk.draw = draw
    stop = desk.invoke({}, deps="first").checkpoint
    for n, answers in enumerate([{"approval": YES}, {"one": says("1"), "two": says("2")}]):
        wanted = {item.id: answers.get(item.why) or answers.get(item.tool_name) for item in stop.pending}
        result = desk.resume(stop, decisions={id: each for id, each in wanted.items() if each}, deps={"n": n})
        stop = result.checkpoint
        assert [why for _, _, why in asked(stop)] == ["question"] * 2 * (n == 0)
    assert (result.status, had, result.output.log) == ("completed", [{"n": 0}, {"n": 1}], ["1", "last"])


def test_a_graph_inside_that_is_missing_is_an_error(desk: Works) -> None:
    """It is not begun again in silence, though its node would know how. field failure 64"""
    core = linked(desk.nodes("x").add_node("ask", asks(desk, "ask", "q")), START, "x", "ask", END)
    desk.draw = lambda: nest(desk, 1, core)
    stop = desk.driver.invoke(desk.draw().compile(), {}).checkpoint
    bare = stop.model_copy(update={"nested": ()})
    HOMES.forget()  # another process
    with pytest.raises(CheckpointError):
        desk.driver.resume(desk.draw().compile(), bare, decisions={stop.pending[0].id: says("x")})
    assert desk.done == ["in0", "x", "ask"]


# Cut off, and at the same moment


@pytest.mark.parametrize("place", KINDS[:2], indirect=True)
@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
def test_cut_off_at_each_write_a_graph_does_everything_once(desk: Works, idempotent: bool) -> None:
    """Per-call journal and key, at every depth: what nobody knows is put to a human. field failure 36

    Intended, settled and unknown are three states. field failure 50
    """
    effects: list[str] = []

    def effect(name: str, ask: bool = False) -> Any:
        def body(state: Any, ctx: Any) -> Any:
            answer = str(interrupt(name, key="q")) if ask else name
            effects.append(f"{name} {ctx.idempotency_key}" if idempotent else name)
            return {"log": [answer]}

        return desk.driver.function(body)

    options: Any = {"idempotent": idempotent}

    def draw() -> Any:
        inner = (
            StateGraph(Job, name="inner")
            .add_node("x", effect("x"), **options)
            .add_node("y", effect("y", True), **options)
        )
        graph = (
            StateGraph(Job, name="works").add_node("a", effect("a"), **options).add_node("b", effect("b"), **options)
        )
        graph.add_node("gated", effect("gated"), requires_approval=True, **options)
        graph.add_node("sub", linked(inner, START, "x", "y", END).compile()).add_node("z", effect("z"), **options)
        graph.add_edge(START, "a").add_edge("a", "b").add_edge("a", "gated").add_edge("a", "sub")
        return graph.add_edge(["b", "gated", "sub"], "z").add_edge("z", END)

    def careful(result: Any) -> Any:
        """Go on as a careful human does: look whether it was done, where nobody knows."""
        while result.suspended:
            decisions = {}
            for item in result.checkpoint.pending:
                name = item.tool_name
                known = item.why == "outcome_unknown" and name in effects
                decisions[item.id] = says({"log": [name]}) if known else says(name) if item.why == "question" else YES
            result = desk.resume(result.checkpoint, decisions=decisions)
        return result

    desk.draw = draw
    cuts, ends = 0, set()
    for at in itertools.count():
        effects.clear()
        desk.later += 2 * HOUR
        store = lose(desk.store(), counted(at))
        cut = desk.graph(store=store)
        thread = f"t{at}"
        try:
            result = desk.driver.invoke(cut, {}, thread_id=thread)  # type: ignore[arg-type]
            decisions = {item.id: says("y") if item.why == "question" else YES for item in result.checkpoint.pending}
            result = desk.driver.resume(cut, result.checkpoint, decisions=decisions)  # type: ignore[arg-type]
            assert result.status == "completed"
        except PowerCut:
            cuts += 1
            calls_ended()  # as the threads of a process are when its power is cut
            desk.later += HOUR
            branches = desk.store().branches(thread_id=thread)
            result = careful(desk.recover(branches[-1].id) if branches else desk.invoke({}, thread_id=thread))
            assert result.status == "completed"
        else:
            break
        finally:
            ends.add(tuple(result.output.log))
        assert sorted({each.split()[0] for each in effects}) == ["a", "b", "gated", "x", "y", "z"]
        assert len(set(effects)) == 6, f"cut at {at}"
        assert idempotent or len(effects) == 6, f"cut at {at}"
    assert cuts > 8
    assert ends == {("a", "b", "gated", "x", "y", "z")}


def test_two_people_answer_two_nodes_of_one_wave_at_the_same_moment(desk: Works) -> None:
    """Both count, each once, whoever is first; and of eight who answer one node, one counts. field failure 46"""
    desk.draw = lambda: side_by_side(
        desk, **{name: asks(desk, name, "q") for name in ("one", "two", "three", "four")}, free=None
    )
    stop = desk.invoke().checkpoint
    graphs = [desk.graph(store=desk.beside()) for _ in range(8)]
    acts = [
        partial(desk.driver.resume, graph, posted(stop), decisions={stop.pending[n % 4].id: says(f"{n}")})  # type: ignore[arg-type]
        for n, graph in enumerate(graphs)
    ]
    found = at_once(acts)
    lost = [each for each in found if isinstance(each, Exception)]
    assert {type(each) for each in lost} == {CheckpointAlreadyResumed}
    assert len(lost) == 4
    last = desk.recover(stop.branch_id)
    assert last.status == "completed"
    assert len(last.checkpoint.decisions) == 4
    results = last.output.results
    assert sorted(results) == ["four.q", "one.q", "three.q", "two.q"]
    winners = {n for n, each in enumerate(found) if not isinstance(each, Exception)}
    assert {int(value) for value in results.values()} == winners
    assert (desk.done.count("free"), desk.done.count("last")) == (1, 1)


def test_an_edit_while_another_works_is_refused_and_not_lost(desk: Works) -> None:
    """A decision is handed to the worker that holds the run; a change of the state is not, and says so. field failure 41"""
    entered, leave = threading.Event(), threading.Event()

    def slow(state: Any) -> Any:
        entered.set()
        assert leave.wait(PATIENCE)
        return {"log": ["slow"]}

    def draw() -> Any:
        graph = side_by_side(desk, ask=asks(desk, "ask", "q"))
        graph.add_node("slow", slow, requires_approval=True)  # sync, which an async driver calls in a thread
        return graph.add_edge(START, "slow").add_edge("slow", END)

    desk.draw = draw
    stop = desk.invoke().checkpoint
    ids = {item.why: item.id for item in stop.pending}
    one, other = desk.graph(store=desk.beside()), desk.graph(store=desk.beside())
    came: list[Any] = []
    worker = threading.Thread(
        target=lambda: came.append(desk.driver.resume(one, stop, decisions={ids["approval"]: YES}))  # type: ignore[arg-type]
    )
    worker.start()
    try:
        assert entered.wait(PATIENCE)
        answer = {ids["question"]: says("told")}
        for change in ({"update": {"plan": "x"}}, {"modify_state": lambda path, state: {"plan": "x"}}):
            with pytest.raises(RunBusy):
                desk.driver.resume(other, stop, decisions=answer, **change)  # type: ignore[arg-type]
        assert desk.driver.resume(other, stop, decisions=answer).status == "running"  # type: ignore[arg-type]
    finally:
        leave.set()
        worker.join(PATIENCE)
    result = came[0] if came[0].status == "completed" else desk.recover(stop.branch_id)
    assert (result.status, result.output.plan, result.output.results) == ("completed", "", {"ask.q": "told"})


# Ended from outside


@pytest.mark.parametrize("how", ["cancel", "supersede"])
def test_an_open_wave_is_closed_as_a_whole(desk: Works, how: str) -> None:
    """A question, an approval, a breakpoint and a graph inside: nothing waits any more, nothing runs later. field failure 74

    Also field failure 75: whoever answers late is told.
    """

    def draw() -> Any:
        inner = linked(desk.nodes("x").add_node("y", asks(desk, "y", "q")), START, "x", "y", END)
        graph = side_by_side(desk, ask=asks(desk, "ask", "q"), free=None, sub=inner.compile())
        graph.add_node("gated", desk.node("gated"), requires_approval=True).add_node("looked", desk.node("looked"))
        for name in ("gated", "looked"):
            graph.add_edge(START, name).add_edge(name, END)
        return graph

    desk.draw = draw
    desk.options = {"interrupt_before": ["looked"]}
    stop = desk.invoke({"plan": "p"}, thread_id="t").checkpoint
    assert len(stop.pending) == 4
    done = sorted(desk.done)
    refused(desk, partial(desk.invoke, {}, thread_id="t"), ThreadBusy)
    if how == "cancel":
        assert desk.cancel(stop, reason="enough").status == "cancelled"
    else:
        fresh = desk.invoke({"plan": "q"}, thread_id="t", on_pending="supersede")
        assert fresh.status == "suspended"
        assert desk.cancel(fresh.checkpoint).status == "cancelled"
        assert desk.seen["free"].plan == "q"
    branch, last = desk.store().head(stop.branch_id)
    assert branch.status == {"cancel": "cancelled", "supersede": "superseded"}[how]
    assert (desk.store().pending(), last.pending) == ([], ())
    for item in stop.pending:
        refused(desk, partial(desk.resume, stop, decisions={item.id: YES}), CheckpointAlreadyResumed)
    assert sorted(desk.done) == (done if how == "cancel" else sorted([*done, *done]))
    assert "gated" not in desk.done
    assert "last" not in desk.done


def test_a_node_whose_gate_was_loosened_or_changed_is_not_run_on_an_old_approval(desk: Works) -> None:
    """What was asked under a gate is judged by it; a state that the node does not take any more is refused. field failure 108"""
    desk.draw = lambda: desk.chain("a", "b", b={"requires_approval": True})
    stop = desk.invoke().checkpoint
    looser: tuple[Any, ...] = ({}, {"requires_approval": lambda state: False})
    for options in looser:
        desk.draw = lambda options=options: desk.chain("a", "b", b=options)  # type: ignore[misc]
        refused(desk, partial(desk.approve, stop), AgentChanged)
    desk.draw = lambda: desk.chain("a", "b", b={"requires_approval": True})
    assert (desk.approve(stop).status, desk.done) == ("completed", ["a", "b"])


@pytest.mark.parametrize("stops", ["gates", "pause"])
def test_nothing_of_a_wave_runs_before_all_that_it_waits_behind_is_open(desk: Works, stops: str) -> None:
    """Two gates, opened one by one, out of order; an approval in the wave behind them opens nothing. field failure 60"""

    def draw() -> Any:
        graph = StateGraph(Job, name="works")
        for name in ("a", "b"):
            body = desk.node(name, (lambda state, name=name: Pause({"log": [name]})) if stops == "pause" else None)
            graph.add_node(name, body).add_edge(START, name)
        graph.add_node("gated", desk.node("gated"), requires_approval=True).add_node("free", desk.node("free"))
        for name in ("gated", "free"):
            graph.add_edge(["a", "b"], name).add_edge(name, END)
        return graph

    desk.draw = draw
    desk.options = {} if stops == "pause" else {"interrupt_after": ["a", "b"]}
    stop = desk.invoke().checkpoint
    assert asked(stop) == [("", "a", "breakpoint"), ("", "b", "breakpoint"), ("", "gated", "approval")]
    _, two, gated = stop.pending
    half = desk.resume(stop, decisions={gated.id: YES}).checkpoint
    assert (half.status, sorted(desk.done)) == ("suspended", ["a", "b"])
    half = desk.resume(half, decisions={two.id: YES}).checkpoint
    assert (half.status, sorted(desk.done)) == ("suspended", ["a", "b"])
    result = desk.resume(half)
    assert (result.status, sorted(desk.done)) == ("completed", ["a", "b", "free", "gated"])

    # of several, one that stays shut keeps it all from running: with the others, before them, after them
    for answers in ([YES, NO], [NO, YES], [NO], [YES, NO, YES], [NO, YES, YES]):
        desk.done.clear()
        stop = desk.invoke().checkpoint
        assert desk.answer(stop, *answers).status == "rejected"
        stop = desk.invoke().checkpoint
        half = desk.answer(stop, YES).checkpoint
        assert desk.resume(half, decisions={half.pending[0].id: NO}).status == "rejected"
        assert set(desk.done) == {"a", "b"}
    assert desk.store().pending() == []


def test_a_failed_node_is_run_again_alone(desk: Works) -> None:
    """The wave's results are kept, whoever else failed; the state is that before the wave until all are through. field failure 35"""
    broken = {"one", "two"}

    def fails(name: str) -> Any:
        def body(state: Any) -> Any:
            if name in broken:
                raise OSError("down")
            return {"log": [name]}

        return desk.node(name, body)

    desk.draw = lambda: side_by_side(desk, a=None, one=fails("one"), two=fails("two"), b=None)
    with pytest.raises(NodeFailed) as caught:
        desk.invoke(thread_id="t")
    for left in ({"one"}, set()):
        failed = caught.value
        assert failed.checkpoint is not None
        assert (set(failed.failures), desk.state(failed.checkpoint).log) == (set(broken), [])
        assert desk.store().branches(thread_id="t")[-1].status == "failed"
        broken &= left
        if not broken:
            break
        with pytest.raises(NodeFailed) as caught:
            desk.resume(failed.checkpoint)
    result = desk.resume(failed.checkpoint)
    assert (result.status, result.output.log) == ("completed", ["a", "one", "two", "b", "last"])
    assert [desk.done.count(name) for name in ("a", "one", "two", "b", "last")] == [1, 3, 2, 1, 1]

"""What an article on reliable agent runtimes promises of graphs, as stories, and what its listings get wrong. Each story names its
scenario (`CMP-A01`) or its defect (`P2`), and is told on every store by both drivers. Those of agents are in
`test_runtime_article.py`, which also looks that none is forgotten.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import pytest
from drivers import PATIENCE, Driver
from graph_scenes import NO, YES, Job, Works, asked, linked, posted, refused, says
from places import KINDS, Place, place_of
from pydantic import BaseModel
from test_failures_once import HOUR, PowerCut
from test_failures_stores import lose

import phronomy
from phronomy import (
    Approve,
    CheckpointNotFound,
    ConfigurationError,
    NodeFailed,
    RunBusy,
    ToolContext,
)
from phronomy.errors import ConflictingWrites
from phronomy.graph import (
    END,
    START,
    Abort,
    Continue,
    Pause,
    Replan,
    Send,
    StateGraph,
    append,
    merge,
    replace,
)

pytestmark = [pytest.mark.unmeasured, pytest.mark.worlds(1)]


@pytest.fixture
def desk(driver: Driver, place: Place) -> Works:
    return Works(driver, place)


# The scenarios


class Article(BaseModel):
    """The channels of the article."""

    m: Annotated[list[int], append] = []
    plan: Annotated[str, replace] = ""
    results: Annotated[dict[str, int], merge] = {}


def test_updates_are_reduced_by_channel(desk: Works) -> None:
    """CMP-A01, and P8: messages are appended, the plan is replaced, results are merged; by the runner, in a branch as well. C1."""
    gives: dict[str, Any] = {
        "one": {"m": [1], "plan": "a", "results": {"x": 1}},
        "two": {"m": [2], "plan": "b", "results": {"y": 2}},
        "three": {"m": [3], "results": {"x": 3}},
    }

    def draw() -> Any:
        graph = StateGraph(Article, name="works")
        for name, update in gives.items():
            graph.add_node(name, desk.node(name, lambda state, update=update: update))
        return linked(graph, START, *gives, END)

    desk.draw = draw
    stop = desk.invoke(interrupt_before=["three"]).checkpoint
    assert desk.state(stop) == Article(m=[1, 2], plan="b", results={"x": 1, "y": 2})
    fork = desk.fork(stop, update={"m": [9], "plan": "c", "results": {"z": 9}})
    assert desk.state(fork) == Article(m=[1, 2, 9], plan="c", results={"x": 1, "y": 2, "z": 9})
    assert desk.resume(fork).output == Article(m=[1, 2, 9, 3], plan="c", results={"x": 3, "y": 2, "z": 9})
    assert desk.resume(stop).output == Article(m=[1, 2, 3], plan="b", results={"x": 3, "y": 2})


def test_the_order_of_updates_is_that_of_the_graph_whoever_is_first(desk: Works) -> None:
    """CMP-A01: rebuilt from the updates, the state is the same; two that write to one value in one wave are a typed error. C2."""
    desk.draw = lambda: desk.fan("c", "a", "b")
    assert [desk.invoke().output.log for _ in range(5)] == [["c", "a", "b", "last"]] * 5

    def draw() -> Any:
        graph = StateGraph(Job, name="works")
        for name in ("a", "b"):
            graph.add_node(name, desk.node(name, lambda state: {"plan": "same", "log": ["x"]}))
            graph.add_edge(START, name).add_edge(name, END)
        return graph

    desk.draw = draw
    with pytest.raises(ConflictingWrites) as caught:
        desk.invoke(thread_id="t")
    assert (caught.value.channel, caught.value.nodes) == ("plan", ("a", "b"))
    assert caught.value.checkpoint is not None
    assert desk.state(caught.value.checkpoint) == Job()
    assert [branch.status for branch in desk.store().branches(thread_id="t")] == ["failed"]


@pytest.mark.parametrize("gate", ["always", "predicate", "breakpoint"])
def test_a_node_that_needs_approval_has_not_run_at_the_pause(desk: Works, gate: str) -> None:
    """CMP-A03, and P1: the gate is judged before the body; after the approval it runs once, with the state that was shown. C6."""
    options: dict[str, Any] = {
        "always": {"requires_approval": True},
        "predicate": {"requires_approval": lambda state: state.log == ["a"]},
        "breakpoint": {},
    }[gate]
    desk.draw = lambda: desk.chain("a", "b", "c", b=options)
    desk.options = {"interrupt_before": ["b"]} if gate == "breakpoint" else {}
    stop = desk.invoke({"plan": "p"}).checkpoint
    assert (stop.status, desk.done, stop.pending[0].why) == (
        "suspended",
        ["a"],
        "breakpoint" if gate == "breakpoint" else "approval",
    )
    if gate != "breakpoint":
        assert stop.pending[0].args["state"]["plan"] == "p"
    result = desk.approve(stop)
    assert (result.status, desk.done) == ("completed", ["a", "b", "c"])
    assert desk.seen["b"] == Job(log=["a"], plan="p")


def test_what_was_shown_is_what_runs_or_what_a_human_made_of_it(desk: Works) -> None:
    """CMP-A03: an update of the state behind an approval does not change what was approved; an edit is validated, and is it."""
    desk.draw = lambda: desk.chain("a", "b", "c", b={"requires_approval": True})
    stop = desk.invoke({"plan": "shown"}).checkpoint
    shown = stop.pending[0].args["state"]
    fork, other = desk.fork(stop), desk.fork(stop, update={"plan": "updated"})
    assert other.pending[0].args["state"]["plan"] == "updated"

    result = desk.resume(stop, approved=True, update={"plan": "later"})
    assert (desk.seen["b"].plan, desk.seen["c"].plan, result.output.plan) == ("shown", "later", "later")
    desk.resume(fork, decisions={fork.pending[0].id: Approve(args={"state": {**shown, "plan": "edited"}})})
    assert (desk.seen["b"].plan, desk.seen["c"].plan) == ("edited", "shown")
    desk.approve(other)
    assert (desk.seen["b"].plan, desk.seen["c"].plan) == ("updated", "updated")


@pytest.mark.parametrize("way", ["end", "on"])
def test_a_rejected_node_never_runs(desk: Works, way: str) -> None:
    """CMP-A03: the run ends as rejected, or goes on where the graph says; no retry and no fallback stands in."""
    options: dict[str, Any] = {"requires_approval": True, "idempotent": True, "fallback": desk.node("standby")}
    if way == "on":
        options["on_rejection"] = "other"

    def draw() -> Any:
        graph = desk.nodes("a", "b", "c", b=options)
        linked(graph, START, "a", "b", "c", END)
        return graph.add_node("other", desk.node("other")).add_edge("other", END) if way == "on" else graph

    desk.draw = draw
    stop = desk.invoke().checkpoint
    result = desk.answer(stop, NO)
    assert (result.status, desk.done) == (("completed", ["a", "other"]) if way == "on" else ("rejected", ["a"]))
    desk.options = {"approval_timeout": 60.0}
    stop = desk.invoke().checkpoint
    desk.later = HOUR
    result = desk.recover(stop)
    assert (result.status, desk.done[-1]) == (("completed", "other") if way == "on" else ("cancelled", "a"))
    assert not {"b", "standby", "c"} & set(desk.done)


def test_a_node_that_the_human_stands_in_for(desk: Works) -> None:
    """CMP-A03: what the human gives is the update of the node, validated as one; the body does not run."""
    desk.draw = lambda: desk.chain("a", "b", "c", b={"requires_approval": True})
    stop = desk.invoke().checkpoint
    for wrong in ("text", {"zz": 1}, {"log": 1}, 5, [1]):
        refused(desk, partial(desk.answer, stop, says(wrong)), phronomy.InvalidDecision)
    result = desk.answer(stop, says({"log": ["by hand"], "plan": "mine"}))
    assert (result.output.log, result.output.plan, desk.done) == (["a", "by hand", "c"], "mine", ["a", "c"])


WORKER = """
import sys
from drivers import ASYNC, SYNC
from graph_scenes import Job, linked
from phronomy import open_store
from phronomy.graph import END, START, StateGraph, interrupt

driver, url, id = {"sync": SYNC, "async": ASYNC}[sys.argv[1]], sys.argv[2], sys.argv[3]

def node(name, asks=False):
    def body(state):
        print("did", name, flush=True)
        return {"log": [interrupt(name) if asks else name]}
    return driver.function(body)

inner = linked(StateGraph(Job, name="inner").add_node("x", node("x")).add_node("y", node("y", asks=True)), START, "x", "y", END)
graph = StateGraph(Job, name="works").add_node("a", node("a")).add_node("sub", inner.compile()).add_node("z", node("z"))
store = open_store(url)
graph = linked(graph, START, "a", "sub", "z", END).compile(store=store)
if id == "new":
    checkpoint = driver.invoke(graph, {"plan": "p"}, thread_id="t").checkpoint
    print("waits", checkpoint.id, checkpoint.digest, checkpoint.pending[0].id, flush=True)
    sys.stdin.readline()  # killed here
else:
    checkpoint = store.load(id)
    print("waits", checkpoint.id, checkpoint.digest, checkpoint.pending[0].id, flush=True)
    from phronomy import Respond
    result = driver.resume(graph, id, decisions={checkpoint.pending[0].id: Respond(content="told")})
    print("ended", result.status, *result.output.log, flush=True)
    store.close()
"""


@pytest.mark.sweep
@pytest.mark.parametrize("place", KINDS[1:], indirect=True)  # memory is gone with its process
def test_a_killed_process_is_gone_on_from_by_id_in_a_fresh_one(desk: Works) -> None:
    """CMP-A04, and P6: killed while a graph inside a graph asks, it continues at the same node with equal state, by its id alone.

    C7, C14.
    """
    paths = os.pathsep.join([str(Path(phronomy.__file__).parents[1]), str(Path(__file__).parent)])

    def start(id: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WORKER, str(desk.driver), desk.place.url, id]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, "PYTHONPATH": paths}
        )

    first = start("new")
    assert first.stdout is not None
    lines = [first.stdout.readline().strip() for _ in range(4)]
    first.kill()
    first.communicate()
    assert lines[:3] == ["did a", "did x", "did y"], lines

    second = start(lines[3].split()[1])
    said, complained = second.communicate(timeout=PATIENCE)
    assert (second.returncode, complained) == (0, "")
    assert said.splitlines() == [lines[3], "did y", "did z", "ended completed a x told z"]


@pytest.mark.parametrize("again", [2, 3])
def test_a_node_that_raises_leaves_no_checkpoint_of_its_own(desk: Works, again: int) -> None:
    """CMP-A05, and P5, P11: the failure is recorded, the whole node is run again, up to twice where that is safe. C3."""

    def fail(state: Any) -> Any:
        if desk.done.count("b") <= again:
            raise OSError("down")
        return {"log": ["b"]}

    def draw() -> Any:
        graph = desk.nodes("a", "c").add_node("b", desk.node("b", fail), idempotent=True, retry_wait=0.0)
        return linked(graph, START, "a", "b", "c", END)

    desk.draw = draw
    if again < 3:
        result = desk.invoke()
        assert (result.status, desk.done) == ("completed", ["a", *["b"] * (again + 1), "c"])
        return
    with pytest.raises(NodeFailed) as caught:
        desk.invoke(thread_id="t")
    assert desk.done == ["a", "b", "b", "b"]
    assert (list(caught.value.failures), caught.value.checkpoint is None) == (["b"], False)
    [branch] = desk.store().branches(thread_id="t")
    assert branch.status == "failed"
    history = desk.store().history(branch.head)
    assert [desk.state(each).log for each in history][-1] == ["a"]
    assert all("b" not in desk.state(each).log for each in history)
    result = desk.resume(caught.value.checkpoint)
    assert (result.status, result.output.log, desk.done[4:]) == ("completed", ["a", "b", "c"], ["b", "c"])


def test_a_node_that_is_not_safe_to_repeat_is_tried_once(desk: Works) -> None:
    """CMP-A05: unless it is said which exceptions come before any effect."""

    def fail(state: Any) -> Any:
        raise OSError("down")

    desk.draw = lambda: linked(StateGraph(Job).add_node("b", desk.node("b", fail)), START, "b", END)
    with pytest.raises(NodeFailed):
        desk.invoke()
    assert desk.done == ["b"]
    desk.draw = lambda: linked(
        StateGraph(Job).add_node("b", desk.node("b", fail), retries=1, retry_on=(OSError,), retry_wait=0.0),
        START,
        "b",
        END,
    )
    with pytest.raises(NodeFailed):
        desk.invoke()
    assert desk.done == ["b"] * 3
    with pytest.raises(ConfigurationError):
        StateGraph(Job).add_node("b", fail, retries=1)


def test_a_branch_with_edits_leaves_the_original_as_it_was(desk: Works) -> None:
    """CMP-A07: another branch id, its parent is c2, the original is byte-identical; both run to their ends. C5."""
    desk.draw = lambda: desk.chain("a", "b", "c", c={"requires_approval": True})
    c2 = desk.invoke({"plan": "old"}, thread_id="t").checkpoint
    before = desk.branch(c2.branch_id)
    fork = desk.fork(c2, label="what if", update={"plan": "new"})
    assert (fork.parent_id, fork.run_id, desk.state(fork)) == (c2.id, c2.run_id, Job(log=["a", "b"], plan="new"))
    assert fork.branch_id not in (c2.branch_id, c2.run_id)
    for wrong in ({"zz": 1}, {"count": "x"}, "text"):
        refused(desk, partial(desk.fork, c2, update=wrong), phronomy.StateError)
    edited = desk.approve(fork)
    assert (edited.status, edited.output.plan, desk.seen["c"].plan) == ("completed", "new", "new")
    assert desk.branch(c2.branch_id) == before
    assert desk.store().load(c2.id).model_dump_json() == c2.model_dump_json()
    assert desk.approve(c2).output.plan == "old"
    assert fork.id in [child.id for child in desk.store().children(c2.id)]
    assert desk.done == ["a", "b", "c", "c"]


def test_an_unknown_parent_is_not_found_and_nothing_is_saved(desk: Works) -> None:
    """CMP-A08: by every way that names a checkpoint. C5."""
    desk.draw = lambda: desk.chain("a", "b")
    desk.invoke(interrupt_before=["b"])
    for act in (desk.fork, desk.resume, desk.recover, desk.cancel, desk.approve):
        assert refused(desk, partial(act, "ckpt_0"), CheckpointNotFound).id == "ckpt_0"


def test_a_replayed_node_has_the_same_key_and_one_effect(desk: Works) -> None:
    """CMP-A10: after a crash it is repeated under its key; from an earlier checkpoint, and where branches merge, its update is used.

    C10.
    """
    keys: list[str] = []

    def pay(state: Any, ctx: ToolContext[Any]) -> Any:
        keys.append(ctx.idempotency_key)
        return {"log": [f"receipt {len(set(keys))}"]}

    def draw() -> Any:
        graph = desk.nodes("a", "c").add_node("pay", desk.driver.function(pay), idempotent=True)
        return linked(graph, START, "a", "pay", "c", END)

    desk.draw = draw
    cut = desk.graph(store=lose(desk.beside(), lambda change: bool(keys)))
    with pytest.raises(PowerCut):
        desk.driver.invoke(cut, {}, thread_id="t")  # type: ignore[arg-type]
    [branch] = desk.store().branches(thread_id="t")
    desk.later = HOUR
    result = desk.recover(branch.id)
    assert (result.output.log, len(keys), len(set(keys))) == (["a", "receipt 1", "c"], 2, 1)
    done = list(desk.done)
    for point in desk.store().history(result.checkpoint.id)[:-1]:
        again = desk.resume(desk.fork(point))
        assert again.output.log == ["a", "receipt 1", "c"]
    assert (len(keys), desk.done) == (2, done)
    anew = desk.fork(desk.store().history(result.checkpoint.id)[0], rerun=True)
    assert desk.resume(anew).output.log == ["a", "receipt 2", "c"]
    assert len(set(keys)) == 2


def test_what_a_node_made_of_another_state_is_not_used_in_a_branch(desk: Works) -> None:
    """CMP-A10: the same node, at the same place of a branch whose state was edited, or answered otherwise, runs for itself."""

    def echo(state: Any) -> Any:
        return {"log": [f"saw {state.plan}"]}

    def draw() -> Any:
        inner = linked(StateGraph(Job).add_node("in", desk.node("in", echo)), START, "in", END)
        graph = desk.nodes("a", "gated", gated={"requires_approval": True}).add_node("sub", inner.compile())
        return linked(graph.add_node("c", desk.node("c", echo)), START, "a", "gated", "sub", "c", END)

    desk.draw = draw
    stop = desk.invoke({"plan": "old"}).checkpoint
    other, edited, plain = desk.fork(stop), desk.fork(stop, update={"plan": "new"}), desk.fork(stop)
    assert desk.approve(stop).output.log == ["a", "gated", "saw old", "saw old"]
    assert desk.answer(other, says({"plan": "mine"})).output.log == ["a", "saw mine", "saw mine"]
    assert desk.approve(edited).output.log == ["a", "gated", "saw new", "saw new"]
    done = len(desk.done)
    assert desk.approve(plain).output.log == ["a", "gated", "saw old", "saw old"]
    assert len(desk.done) == done  # all of it was done before, and is used


@pytest.mark.parametrize("then", ["fallback", "human"])
def test_after_two_failures_another_node_or_a_human_takes_over(desk: Works, then: str) -> None:
    """CMP-A11: which of them is configured; a human may give the update, or have it run again. C11."""

    def fail(state: Any) -> Any:
        raise OSError("down")

    options: dict[str, Any] = {"fallback": desk.node("standby")} if then == "fallback" else {"on_failure": "human"}

    def draw() -> Any:
        graph = desk.nodes("end").add_node(
            "pay", desk.node("pay", fail), idempotent=True, retries=1, retry_wait=0.0, **options
        )
        return linked(graph, START, "pay", "end", END)

    desk.draw = draw
    result = desk.invoke()
    if then == "human":
        assert (asked(result), desk.done) == ([("", "pay", "failed")], ["pay", "pay"])
        refused(desk, partial(desk.answer, result.checkpoint, says("receipt")), phronomy.InvalidDecision)
        result = desk.answer(result.checkpoint, says({"log": ["by hand"]}))
    log = ["standby", "end"] if then == "fallback" else ["by hand", "end"]
    assert (result.status, result.output.log) == ("completed", log)
    assert desk.done == (["pay", "pay", "standby", "end"] if then == "fallback" else ["pay", "pay", "end"])


def transcript(desk: Works) -> list[Any]:
    """One life of runs as whoever reads the store sees it, without ids and times."""

    def ask(state: Any) -> Any:
        return {"results": {"said": str(phronomy.graph.interrupt("?", key="q"))}}

    def draw() -> Any:
        inner = linked(desk.nodes("x").add_node("ask", desk.node("ask", ask)), START, "x", "ask", END)
        graph = desk.nodes("a", "b", "c", b={"requires_approval": True, "risk": "high"})
        graph.add_node("sub", inner.compile()).add_edge(START, "a").add_edge("a", "b").add_edge("a", "sub")
        return graph.add_edge(["b", "sub"], "c").add_edge("c", END)

    desk.draw = draw
    first = desk.invoke({"plan": "p"}, thread_id="t", label="begun").checkpoint
    said: list[Any] = [[(item.tool_name, item.args, item.path, item.why, item.call_id) for item in first.pending]]
    half = desk.answer(first, YES)
    fork = desk.fork(first, label="what if", update={"plan": "q"})
    ended = desk.answer(half.checkpoint, says("yes"))
    said += [asked(half), ended.output, asked(fork)]
    with pytest.raises(phronomy.CheckpointAlreadyResumed):
        desk.answer(first, YES)
    said.append(desk.cancel(fork, reason="no").status)
    desk.invoke({"plan": "r"}, thread_id="t")
    said.append(asked(desk.invoke({"plan": "s"}, thread_id="t", on_pending="supersede")))
    store = desk.store()
    for branch in store.branches():
        history = store.history(branch.head or "")
        said.append((branch.status, branch.label, branch.thread_id))
        said.append([(each.step, each.turn, each.status, each.state) for each in history])
    said.append([(item.agent, item.thread_id, item.label, item.approval.args) for item in store.pending(risk="high")])
    said.append([(line.kind, line.tool_name, line.reason) for line in store.audit()])
    return [*said, sorted(desk.done)]


def test_the_transcript_is_the_same_on_every_store(driver: Driver, tmp_path: Path) -> None:
    """CMP-A13, and P10: the same calls, and nobody can tell which store it was. C8."""
    told = []
    for kind in KINDS:
        folder = tmp_path / kind
        folder.mkdir()
        with place_of(kind, folder) as place:
            told.append(transcript(Works(driver, place)))
    assert len(told[0]) > 12
    for each in told[1:]:
        assert each == told[0]


def test_no_checkpoint_is_made_in_the_middle_of_a_node(desk: Works) -> None:
    """CMP-A15: asked for while a node works, it is that of the last wave, and whoever would go on is refused. C3."""
    seen: list[Any] = []

    def work(state: Any) -> Any:
        [branch] = desk.beside().branches(thread_id="t")
        head = desk.beside().load(branch.head)
        seen.append((head.status, head.state, branch.owner is not None))
        others = desk.draw().compile(store=desk.beside())
        for act in (others.recover, others.resume):
            with pytest.raises(RunBusy):
                act(branch.head)
        with pytest.raises(RunBusy):
            others.resume(branch.head, update={"plan": "x"})
        return {"log": ["b"]}

    # Sync functions, which an async driver calls in a thread: what they do here blocks.
    desk.draw = lambda: linked(
        StateGraph(Job).add_node("a", lambda state: {"log": ["a"]}).add_node("b", work), START, "a", "b", END
    )
    result = desk.invoke(thread_id="t")
    assert (result.status, result.output.log, result.output.plan) == ("completed", ["a", "b"], "")
    [(status, state, held)] = seen
    assert (status, state["log"], held) == ("running", ["a"], True)


# The defects


def test_every_checkpoint_has_its_parent_and_a_place(desk: Works) -> None:
    """P2, P4 and P12: a tree whose root is saved before the first node; steps are numbers that grow, digests and versions are there.

    C4.
    """
    desk.draw = lambda: desk.chain("a", "b", "c")
    result = desk.invoke(thread_id="t")
    history = desk.store().history(result.checkpoint.id)
    assert history[0].parent_id is None
    assert desk.state(history[0]) == Job()
    assert [each.parent_id for each in history[1:]] == [each.id for each in history[:-1]]
    assert len({each.id for each in history}) == len(history)
    assert all(one.step < other.step for one, other in pairwise(history))
    assert all(isinstance(each.step, int) and each.version >= 1 for each in history)
    assert len({each.digest for each in history}) == len(history)
    logs = [desk.state(each).log for each in history]
    assert [log for n, log in enumerate(logs) if n == 0 or log != logs[n - 1]] == [
        [],
        ["a"],
        ["a", "b"],
        ["a", "b", "c"],
    ]


def test_history_is_not_rewritten(desk: Works) -> None:
    """P3: what nodes do to the state that they see, and to what they gave, changes nothing that is stored."""
    given: list[Any] = []

    def vandal(state: Any) -> Any:
        state.log.append("vandal")
        state.results["vandal"] = "x"
        update = {"log": ["b"], "results": {"b": "1"}}
        given.append(update)
        return update

    def later(state: Any) -> Any:
        for update in given:
            update["log"].append("vandal")
            update["results"].clear()
        return {}

    def draw() -> Any:
        graph = desk.nodes("a").add_node("b", desk.node("b", vandal)).add_node("c", desk.node("c", later))
        return linked(graph, START, "a", "b", "c", END)

    desk.draw = draw
    result = desk.invoke()
    assert result.output == Job(log=["a", "b"], results={"b": "1"})
    for each in desk.store().history(result.checkpoint.id):
        assert "vandal" not in each.model_dump_json()
    result.output.log.append("vandal")
    assert desk.state(result).log == ["a", "b"]


def test_every_signal_has_its_effect(desk: Works) -> None:
    """P5: continue, pause, abort and replan are each done, and stand in the record. C6."""

    def signals(state: Any) -> Any:
        match state.plan:
            case "continue":
                return Continue({"log": ["s"]})
            case "pause":
                return Pause({"log": ["s"]}, reason="look")
            case "abort":
                return Abort({"log": ["s"]}, reason="enough")
            case _ if state.log.count("s") < 2:
                return Replan({"log": ["s"]}, to=None if state.plan == "entry" else "b")
        return {"log": ["s"]}

    def draw() -> Any:
        graph = desk.nodes("a", "b", "end").add_node("s", desk.node("s", signals), destinations=["b"])
        graph.add_conditional_edges(START, lambda state: "a", ["a"])
        return linked(graph.add_edge("b", "s"), "a", "s", "end", END)

    desk.draw = draw
    assert desk.invoke({"plan": "continue"}).output.log == ["a", "s", "end"]
    stop = desk.invoke({"plan": "pause"})
    assert (stop.status, desk.stop(stop).after, desk.state(stop).log) == ("suspended", ("s",), ["a", "s"])
    assert desk.resume(posted(stop.checkpoint)).output.log == ["a", "s", "end"]
    ended = desk.invoke({"plan": "abort"})
    assert (ended.status, desk.state(ended).log, ended.output) == ("cancelled", ["a", "s"], None)
    assert "enough" in desk.store().load(ended.checkpoint.id).model_dump_json()
    assert desk.invoke({"plan": "entry"}).output.log == ["a", "s", "a", "s", "a", "s", "end"]
    assert desk.invoke({"plan": "node"}).output.log == ["a", "s", "b", "s", "b", "s", "end"]


def test_a_replan_to_nowhere_fails_the_node(desk: Works) -> None:
    """P5: typed, with the checkpoint; it is neither the end nor the way along the edges."""
    for n, to in enumerate(["zz", 5, (), ["b", 5], START, {"b": 1}]):
        body = desk.node("s", lambda state, to=to: Replan({"log": ["s"]}, to=to))
        desk.draw = lambda body=body: linked(  # type: ignore[misc]
            desk.nodes("b").add_node("s", body, destinations=["b"]), START, "s", "b", END
        )
        with pytest.raises(NodeFailed) as caught:
            desk.invoke(thread_id=f"t{n}")
        assert caught.value.checkpoint is not None
        assert [branch.status for branch in desk.store().branches(thread_id=f"t{n}")] == ["failed"]
    assert desk.done == ["s"] * 6


def test_the_end_is_a_checkpoint(desk: Works) -> None:
    """P7: with its status, and the state that it came to; the thread goes on from there."""
    desk.draw = lambda: desk.chain("a", "b")
    result = desk.invoke({"plan": "p"}, thread_id="t")
    stored = desk.store().load(result.checkpoint.id)
    assert (stored.status, stored.ended, desk.state(stored)) == (
        "completed",
        "completed",
        Job(log=["a", "b"], plan="p"),
    )
    assert desk.store().latest("t") == stored
    again = desk.invoke({}, thread_id="t")
    assert again.output == Job(log=["a", "b", "a", "b"], plan="p")
    assert again.checkpoint.run_id != stored.run_id


def test_the_settings_are_read(desk: Works) -> None:
    """P9 and P11: what waits for a human outlives any time to live, and lapses when its own time is over."""
    desk.draw = lambda: desk.chain("a", "b", b={"requires_approval": True, "approval_timeout": 5 * HOUR})
    stop = desk.driver.invoke(desk.graph(store=desk.store(ttl=60.0)), {}, thread_id="t").checkpoint  # type: ignore[arg-type]
    desk.later = HOUR
    desk.driver.call(desk.graph(store=desk.store(ttl=60.0)), "recover_all")  # type: ignore[arg-type]
    assert [item.approval.id for item in desk.store().pending()] == [stop.pending[0].id]
    desk.later = 6 * HOUR
    desk.driver.call(desk.graph(store=desk.store(ttl=600 * HOUR)), "recover_all")  # type: ignore[arg-type]
    assert desk.store().pending() == []
    assert [branch.status for branch in desk.store().branches(thread_id="t")] == ["cancelled"]
    assert desk.done == ["a"]


def test_a_map_goes_on_while_one_of_it_waits(desk: Works) -> None:
    """CMP-A01: single runs side by side; one asks, the others are kept, and the reduction is made once, of all."""

    def task(item: Any) -> Any:
        desk.done.append(f"item {item}")
        said = phronomy.graph.interrupt({"item": item}) if item == 2 else "auto"
        return {"results": {str(item): said}, "count": 1}

    def draw() -> Any:
        graph = desk.nodes("a").add_node("task", desk.driver.function(task)).add_node("sum", desk.node("sum"))
        graph.add_edge(START, "a").add_edge("task", "sum").add_edge("sum", END)
        return graph.add_conditional_edges("a", lambda state: [Send("task", n) for n in range(5)], ["task"])

    desk.draw = draw
    stop = desk.invoke().checkpoint
    assert sorted(desk.done) == ["a", *(f"item {n}" for n in range(5))]
    result = desk.answer(posted(stop), says("by hand"))
    assert result.output.results == {str(n): "by hand" if n == 2 else "auto" for n in range(5)}
    assert (result.output.count, desk.done.count("sum"), desk.done.count("item 2")) == (5, 1, 2)
    assert len(desk.done) == 8

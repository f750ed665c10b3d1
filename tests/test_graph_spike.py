"""A spike, kept: a graph is another rule set over the same loops and the same stores.

Here is all that a minimal graph needs: waves of nodes that run side by side, each a tool or a run of its own (an agent, or another
graph), and one channel for what each node gave. The core knows nothing of it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from crash_worker import NEVER, Bomb, BombedStore, effects, outline
from drivers import ASYNC, DRIVERS, STORES, SYNC, Driver, open_kind, rows

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    IllegalOutcome,
    MemoryStore,
    ModelError,
    Reject,
    Respond,
    Result,
    StoreError,
    Tool,
    ToolContext,
    _rules,
    _session,
    tool,
)
from phronomy._json import canonical
from phronomy._ledger import new_id
from phronomy.checkpoint import AgentRef
from phronomy.instructions import CompiledInstructions, compile_instructions
from phronomy.models.base import ModelSettings
from phronomy.stores.base import Append, Branch, Store
from phronomy.testing import ScriptedModel, call
from phronomy.types import Call, Done, Finish, Finished, Judge, Judged, Move, Outcome, Replied

HOUR = 3600.0


# The rule set


class Inside(Tool):
    """A node that is a run of its own."""

    def __init__(self, name: str, inner: Agent[Any, Any]) -> None:
        self.name = name
        self.inner = inner
        super().__init__()

    def execute(self, seen: dict[str, Any]) -> str:
        raise AssertionError("the run inside is driven; its tool is never called")


@dataclass(frozen=True, kw_only=True)
class Within:
    """The run inside a node, begun with what the node may see."""

    spec: Any
    call: Call

    def begin(self, parent: Checkpoint, path: str, at: Any) -> Checkpoint:
        assert self.call.args is not None
        original, said = _session.read_input(self.call.args["seen"])
        return _rules.begin(
            None,
            id=new_id("ckpt"),
            run_id=parent.run_id,
            branch_id=parent.branch_id,
            thread_id=parent.thread_id,
            at=at,
            agent=self.spec.ref,
            original_input=original,
            messages=(said,),
            kind=self.spec.kind,
            path=path,
        )


@dataclass(frozen=True, kw_only=True)
class GraphSpec:
    """The rules and the nodes of a graph. Its state: what each node gave, by name. A turn is a wave."""

    kind: str = "graph"
    name: str
    waves: tuple[tuple[str, ...], ...]
    tools: Mapping[str, Tool]
    max_parallel: int = 8
    max_turns: int | None = None
    model: None = None
    settings: ModelSettings = ModelSettings()
    instructions: CompiledInstructions = field(default_factory=lambda: compile_instructions(None))
    handler: None = None
    handler_is_async: bool = False

    def plan(self, state: Checkpoint) -> Move:
        state = _rules.current(state, self.apply)
        if state.ended:
            return Done(status=state.ended)
        if state.calls:
            return _rules.plan_calls(state, self)
        if state.ending or state.rejecting:
            return Finish(status=state.ending.status if state.ending else "rejected")
        if state.turn < len(self.waves):
            return Judge(calls=self.wave(state))
        return Finish(status="completed", output=state.state[self.waves[-1][0]])

    def apply(self, state: Checkpoint, outcome: Outcome) -> Checkpoint:
        between = not (state.calls or state.ended or state.ending or state.rejecting)
        match outcome:
            case Finished() if not state.calls and not state.ended:
                return state.model_copy(update={"ended": outcome.status, "output": outcome.json_text("output")})
            case Judged() if between and state.turn < len(self.waves):
                opened = state.model_copy(update={"turn": state.turn + 1, "calls": self.wave(state)})
                return self.collect(opened, _rules.apply_calls(opened, outcome))
            case Replied() | Finished():
                raise IllegalOutcome(_rules.phase(state), type(outcome).__name__)
            case _:
                return self.collect(state, _rules.apply(state, outcome))

    def wave(self, state: Checkpoint) -> tuple[Call, ...]:
        """The calls of the next wave: each node sees the input and what the waves before gave."""
        seen = canonical({"seen": {"input": state.original_input, **(state.state or {})}})
        number = state.turn + 1
        return tuple(
            Call(id=f"{number}.{place}", call_id=f"{name}-{number}", name=name, arguments=seen)
            for place, name in enumerate(self.waves[state.turn])
        )

    def collect(self, before: Checkpoint, after: Checkpoint) -> Checkpoint:
        """The state with what the nodes of a wave gave, once all of it has settled."""
        if after.calls or not before.calls:
            return after
        told = after.messages[len(before.messages) :]
        gave = {call.name: message.text for call, message in zip(before.calls, told, strict=True)}
        return after.model_copy(update={"state": canonical({**(before.state or {}), **gave})})

    def tool(self, call: Call) -> Tool | None:
        return self.tools.get(call.name)

    def nested(self, state: Checkpoint, call: Call) -> Within | None:
        node = self.tool(call)
        return Within(spec=node.inner.spec, call=call) if isinstance(node, Inside) else None

    @property
    def ref(self) -> AgentRef:
        shape = {name: [node.schema_hash, node.gate] for name, node in self.tools.items()}
        return AgentRef(name=self.name, fingerprint=canonical({"tools": shape, "instructions": "", "model": ""}))

    def refuse_async(self, method: str) -> None:
        for node in self.tools.values():
            if isinstance(node, Inside):
                node.inner.spec.refuse_async(method)


class Graph(Agent[Any, str]):
    """The face of an agent over the rules of a graph."""

    def __init__(self, name: str, *waves: tuple[Any, ...], store: Store | None = None, **options: Any) -> None:
        nodes = {node.name: node for wave in waves for node in wave}
        shape = tuple(tuple(node.name for node in wave) for wave in waves)
        object.__setattr__(self, "_graph", GraphSpec(name=name, waves=shape, tools=nodes))
        super().__init__(name=name, **options, **({"store": store} if store is not None else {}))

    def _checked(self) -> Any:
        return self._graph


# The scenarios


class Desk:
    """Makes graphs whose every effect is a line in a file: the name of the tool, and its idempotency key."""

    def __init__(self, folder: Path, driver: Driver, bomb: Bomb | None = None) -> None:
        self.folder = folder
        self.driver = driver
        self.bomb = bomb or Bomb(NEVER)

    def act(self, name: str, context: ToolContext[Any]) -> str:
        self.bomb.tick()
        with (self.folder / "effects").open("a") as file:
            file.write(f"{name} {context.idempotency_key}\n")
        self.bomb.tick()
        return f"{name} is done"

    def node(self, name: str, **options: Any) -> Tool:
        """A plain node."""

        def body(seen: dict[str, Any], ctx: ToolContext[Any]) -> str:
            """Do it."""
            return self.act(name, ctx)

        return tool(name=name, **options)(self.driver.function(body))

    def tool(self, name: str, **options: Any) -> Tool:
        """A tool of a nested agent."""

        def body(ctx: ToolContext[Any]) -> str:
            """Do it."""
            return self.act(name, ctx)

        return tool(name=name, **options)(self.driver.function(body))

    def agent(self, name: str, *gated: str, model: ScriptedModel | None = None) -> Inside:
        """A node with an agent inside, which reads something and then does what a human must approve."""
        tools = [self.tool(f"{name}_reads"), *(self.tool(each, requires_approval=True) for each in gated)]
        replies = [[call(each.name, {}) for each in tools], f"{name} has finished"]
        return Inside(name, Agent(name=name, model=model or ScriptedModel.by_turn(replies), tools=tools))

    def office(self, store: Store) -> Graph:
        """An entry, a wave of a plain node, a nested agent and a gated node, and a join."""
        wave = (self.node("count"), self.agent("clerk", "pay"), self.node("wipe", requires_approval=True))
        return Graph("office", (self.node("open"),), wave, (self.node("close"),), store=store)

    def pair(self, store: Store) -> Graph:
        """Two nested agents in one wave, both of which come to wait."""
        return Graph("pair", (self.agent("left", "pay"), self.agent("right", "wire")), (self.node("close"),), store=store)

    def tower(self, store: Store, **options: Any) -> Graph:
        """An agent that asks nobody, then an agent inside a graph inside the graph."""
        inner = Inside("floor", Graph("floor", (self.agent("clerk", "pay"), self.node("count"))))
        return Graph("tower", (self.agent("scout"),), (inner,), (self.node("close"),), store=store, **options)

    @property
    def done(self) -> list[str]:
        """What was done, sorted: nodes of a wave run side by side."""
        return sorted(line.split()[0] for line in effects(self.folder))


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: Any) -> Driver:
    found: Driver = request.param
    return found


@pytest.fixture(params=STORES)
def store(request: Any, tmp_path: Path) -> Iterator[Store]:
    with open_kind(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
def desk(tmp_path: Path, driver: Driver) -> Desk:
    return Desk(tmp_path, driver)


def asked(result: Result[Any] | Checkpoint) -> list[tuple[str, str]]:
    """What waits, and in which nested run."""
    checkpoint = result if isinstance(result, Checkpoint) else result.checkpoint
    return [(item.path, item.tool_name) for item in checkpoint.pending]


def pending(result: Result[Any], name: str) -> str:
    return next(item.id for item in result.checkpoint.pending if item.tool_name == name)


OFFICE = {"open": "open is done", "count": "count is done", "clerk": "clerk has finished", "wipe": "wipe is done"}


def test_a_wave_waits_for_its_nested_agent_and_its_gated_node_and_ends_after_both(
    desk: Desk, driver: Driver, store: Store
) -> None:
    graph = desk.office(store)

    result = driver.invoke(graph, "Monday", thread_id="t")
    assert (result.status, result.output) == ("suspended", None)
    assert asked(result) == [("2.1", "pay"), ("", "wipe")]
    assert desk.done == ["clerk_reads", "count", "open"]
    assert result.checkpoint.kind == "graph"
    assert result.checkpoint.state == {"open": "open is done"}
    assert [(part.path, part.kind, part.agent.name) for part in result.checkpoint.nested] == [("2.1", "agent", "clerk")]
    listed = [(item.approval.path, item.approval.tool_name, item.checkpoint_id) for item in store.pending()]
    assert sorted(listed) == [("", "wipe", result.checkpoint.id), ("2.1", "pay", result.checkpoint.id)]
    assert store.load(result.checkpoint.id) == result.checkpoint

    result = driver.resume(graph, result.checkpoint, decisions={pending(result, "pay"): Approve()}, by="ann")
    assert (result.status, asked(result)) == ("suspended", [("", "wipe")])
    assert desk.done == ["clerk_reads", "count", "open", "pay"]
    assert [(item.kind, item.path, item.by.id) for item in result.checkpoint.decisions] == [("approve", "2.1", "ann")]

    result = driver.resume(graph, result.checkpoint, approved=True)
    assert (result.status, result.output) == ("completed", "close is done")
    assert result.checkpoint.state == {**OFFICE, "close": "close is done"}
    assert desk.done == ["clerk_reads", "close", "count", "open", "pay", "wipe"]
    assert result.checkpoint.nested == ()
    assert store.pending() == []
    assert store.load(result.checkpoint.id) == result.checkpoint
    assert [point.step for point in store.history(result.checkpoint.id)] == list(range(result.checkpoint.step + 1))


def test_a_nested_agent_reads_a_rejection_and_an_answer_given_at_the_root(
    desk: Desk, driver: Driver, store: Store
) -> None:
    graph = desk.office(store)
    result = driver.invoke(graph, "Monday")
    answers = {pending(result, "pay"): Reject(reason="too much"), pending(result, "wipe"): Respond(content="wiped by hand")}
    result = driver.resume(graph, result.checkpoint, decisions=answers)
    assert result.status == "completed"
    assert result.checkpoint.state == {**OFFICE, "wipe": "wiped by hand", "close": "close is done"}
    assert desk.done == ["clerk_reads", "close", "count", "open"]
    clerk = graph.spec.tools["clerk"].inner
    said = clerk.model.requests[-1].messages
    assert [(message.role, message.settlement) for message in said] == [
        ("user", None),
        ("assistant", None),
        ("tool", "completed"),
        ("tool", "rejected"),
    ]
    assert "too much" in said[-1].text


def test_edited_arguments_go_down_to_the_nested_agent(desk: Desk, driver: Driver, store: Store) -> None:
    paid = []

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    model = ScriptedModel.by_turn([call("pay", {"amount": 900}), "clerk has finished"])
    clerk = Agent(name="clerk", model=model, tools=[tool(requires_approval=True)(driver.function(pay))])
    graph = Graph("desk", (Inside("clerk", clerk),), store=store)
    result = driver.invoke(graph, "Monday")
    result = driver.resume(graph, result.checkpoint, decisions={pending(result, "pay"): Approve(args={"amount": 9})})
    assert (result.status, result.output, paid) == ("completed", "clerk has finished", [9])
    assert 'to {"amount":9} before it ran' in model.requests[-1].messages[-1].text


@pytest.mark.parametrize("first", ["pay", "wire"])
def test_two_nested_agents_wait_at_once_and_are_answered_in_either_order(
    desk: Desk, driver: Driver, store: Store, first: str
) -> None:
    graph = desk.pair(store)
    stop = driver.invoke(graph, "Monday")
    assert asked(stop) == [("1.0", "pay"), ("1.1", "wire")]
    assert [part.path for part in stop.checkpoint.nested] == ["1.0", "1.1"]

    second = "wire" if first == "pay" else "pay"
    result = driver.resume(graph, stop.checkpoint, decisions={pending(stop, first): Approve()})
    assert (result.status, [name for _, name in asked(result)]) == ("suspended", [second])
    assert desk.done == sorted(["left_reads", "right_reads", first])

    # from the checkpoint at which both waited: it is applied at the head of the branch
    result = driver.resume(graph, stop.checkpoint, decisions={pending(stop, second): Approve()})
    assert (result.status, result.output) == ("completed", "close is done")
    assert desk.done == ["close", "left_reads", "pay", "right_reads", "wire"]

    with pytest.raises(CheckpointAlreadyResumed) as caught:
        driver.resume(graph, stop.checkpoint, decisions={pending(stop, first): Approve()})
    assert (caught.value.progress, caught.value.result.output) == ("ended", "close is done")


def test_both_are_answered_in_one_resume(desk: Desk, driver: Driver, store: Store) -> None:
    graph = desk.pair(store)
    stop = driver.invoke(graph, "Monday")
    result = driver.resume(graph, stop.checkpoint, decisions={item.id: Approve() for item in stop.checkpoint.pending})
    assert (result.status, result.output) == ("completed", "close is done")
    assert desk.done == ["close", "left_reads", "pay", "right_reads", "wire"]


@pytest.mark.parametrize("order", [("pay", "wire"), ("wire", "pay"), ("both",)], ids="-".join)
def test_one_nested_agent_waits_for_two_approvals(
    desk: Desk, driver: Driver, store: Store, order: tuple[str, ...]
) -> None:
    graph = Graph("desk", (desk.agent("clerk", "pay", "wire"), desk.node("count")), store=store)
    stop = result = driver.invoke(graph, "Monday")
    assert asked(stop) == [("1.0", "pay"), ("1.0", "wire")]
    for name in order:
        chosen = {item.id: Approve() for item in stop.checkpoint.pending if name in (item.tool_name, "both")}
        result = driver.resume(graph, stop.checkpoint, decisions=chosen)
        if name == order[0] != "both":
            assert (result.status, asked(result)) == ("suspended", [("1.0", order[1])])
            assert desk.done == sorted(["clerk_reads", "count", name])
    assert (result.status, result.output) == ("completed", "clerk has finished")
    assert desk.done == ["clerk_reads", "count", "pay", "wire"]


def test_an_agent_inside_a_graph_inside_a_graph(desk: Desk, driver: Driver, store: Store) -> None:
    graph = desk.tower(store)
    stop = driver.invoke(graph, "Monday")
    assert asked(stop) == [("2.0/1.0", "pay")]
    assert [(part.path, part.kind, part.agent.name) for part in stop.checkpoint.nested] == [
        ("2.0", "graph", "floor"),
        ("2.0/1.0", "agent", "clerk"),
    ]
    assert desk.done == ["clerk_reads", "count", "scout_reads"]
    result = driver.resume(graph, stop.checkpoint.id, approved=True)
    assert (result.status, result.output) == ("completed", "close is done")
    assert result.checkpoint.state == {
        "scout": "scout has finished",
        "floor": "clerk has finished",
        "close": "close is done",
    }
    assert desk.done == ["clerk_reads", "close", "count", "pay", "scout_reads"]


def test_the_exported_text_holds_the_runs_inside(desk: Desk, driver: Driver, tmp_path: Path) -> None:
    """Law 9: another process, with another store, goes on from the text alone."""
    with open_kind("memory", tmp_path) as here, open_kind("sqlite", tmp_path) as there:
        text = driver.invoke(desk.tower(here), "Monday").checkpoint.model_dump_json()
        graph = desk.tower(there, trust="bearer")
        result = driver.resume(graph, Checkpoint.model_validate_json(text), approved=True)
        assert (result.status, result.output) == ("completed", "close is done")
    assert desk.done == ["clerk_reads", "close", "count", "pay", "scout_reads"]


def test_a_missing_nested_run_is_an_error_and_no_silent_restart(desk: Desk, driver: Driver, tmp_path: Path) -> None:
    with open_kind("memory", tmp_path) as here, open_kind("sqlite", tmp_path) as there:
        stop = driver.invoke(desk.office(here), "Monday").checkpoint
        graph = desk.office(there)
        graph._bearer = True
        with pytest.raises(Exception, match="2.1 in run .* is missing"):
            driver.resume(graph, stop.model_copy(update={"nested": ()}), approved=True)
    assert desk.done == ["clerk_reads", "count", "open"]


def test_a_cancelled_graph_takes_its_waiting_agent_along(desk: Desk, driver: Driver, store: Store) -> None:
    graph = desk.office(store)
    stop = driver.invoke(graph, "Monday")
    result = driver.cancel(graph, stop.checkpoint, reason="changed my mind")
    assert (result.status, result.output) == ("cancelled", None)
    assert store.pending() == []
    assert desk.done == ["clerk_reads", "count", "open"]
    settled = {message.tool_call_id: message.settlement for message in result.messages if message.role == "tool"}
    assert settled == {"open-1": "completed", "count-2": "completed", "clerk-2": "cancelled", "wipe-2": "cancelled"}
    assert store.load(result.checkpoint.id) == result.checkpoint


def test_a_model_fault_in_a_nested_agent_loses_nothing_that_settled(
    desk: Desk, driver: Driver, store: Store, tmp_path: Path
) -> None:
    """The other nodes of the wave are finished and kept; resume goes on inside the agent, at the model call."""
    model = ScriptedModel([call("clerk_reads", {}), ConnectionError("gone"), "clerk has finished"])
    wave = (desk.node("count"), desk.agent("clerk", model=model))
    graph = Graph("desk", wave, (desk.node("close"),), store=store)
    with pytest.raises(ModelError) as caught:
        driver.invoke(graph, "Monday")
    assert desk.done == ["clerk_reads", "count"]
    assert caught.value.checkpoint is not None
    text = caught.value.checkpoint.model_dump_json()

    result = driver.resume(graph, caught.value.checkpoint)
    assert (result.status, result.output) == ("completed", "close is done")
    assert desk.done == ["clerk_reads", "close", "count"]

    # the text is whole: elsewhere, too, nothing that has settled runs again
    with open_kind("memory", tmp_path) as there:
        again = Graph("desk", (wave[0], desk.agent("clerk")), (desk.node("close"),), store=there, trust="bearer")
        assert driver.resume(again, Checkpoint.model_validate_json(text)).output == "close is done"
    assert desk.done == ["clerk_reads", "close", "close", "count"]


def test_a_fork_of_a_waiting_graph_needs_approvals_of_its_own(desk: Desk, driver: Driver, store: Store) -> None:
    """One approval never runs two branches, at whatever depth it was asked for."""
    graph = desk.pair(store)
    stop = driver.invoke(graph, "Monday")
    decided = driver.step(graph, stop.checkpoint, decisions={pending(stop, "pay"): Approve()})
    assert desk.done == ["left_reads", "right_reads"]

    fork = driver.fork(graph, decided.checkpoint)
    assert [name for _, name in asked(fork)] == ["pay", "wire"]
    assert {item.id for item in fork.pending}.isdisjoint(item.id for item in stop.checkpoint.pending)
    result = driver.resume(graph, fork, decisions={item.id: Approve() for item in fork.pending})
    assert (result.status, result.output) == ("completed", "close is done")
    assert desk.done == ["close", "left_reads", "pay", "right_reads", "wire"]
    # the branch that was forked goes on with the approval that it has
    result = driver.recover(graph, decided.checkpoint)
    assert asked(result) == [("1.1", "wire")]
    assert desk.done == ["close", "left_reads", "pay", "pay", "right_reads", "wire"]


def test_a_fork_reaches_the_agent_inside_the_graph_inside(desk: Desk, driver: Driver, store: Store) -> None:
    graph = desk.tower(store)
    stop = driver.invoke(graph, "Monday")
    fork = driver.fork(graph, stop.checkpoint)
    assert asked(fork) == [("2.0/1.0", "pay")]
    assert fork.pending[0].id != stop.checkpoint.pending[0].id
    assert [(part.path, part.branch_id) for part in fork.nested] == [
        ("2.0", fork.branch_id),
        ("2.0/1.0", fork.branch_id),
    ]
    assert driver.resume(graph, fork, approved=False).output == "close is done"
    assert driver.resume(graph, stop.checkpoint, approved=True).output == "close is done"
    assert desk.done == ["clerk_reads", "close", "close", "count", "pay", "scout_reads"]


def test_a_fork_from_the_beginning_uses_what_nested_runs_gave_before(desk: Desk, driver: Driver, store: Store) -> None:
    graph = desk.tower(store)
    stop = driver.invoke(graph, "Monday")
    result = driver.resume(graph, stop.checkpoint, approved=True)
    before = desk.done
    fork = driver.fork(graph, store.history(result.checkpoint.id)[0])
    again = driver.resume(graph, fork)
    assert (again.status, again.output) == ("completed", "close is done")
    assert again.checkpoint.state == result.checkpoint.state
    assert desk.done == before


class Slow(Desk):
    """Holds one tool up, so that others can act while it runs."""

    def __init__(self, folder: Path, driver: Driver, slow: str) -> None:
        super().__init__(folder, driver)
        self.slow = slow
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.seen: list[bool] = []

    def act(self, name: str, context: ToolContext[Any]) -> str:
        if name == self.slow:
            self.entered.set()
            assert self.go_on.wait(30)
            self.seen.append(context.cancelled)
        return super().act(name, context)

    def start(self, work: Any) -> tuple[threading.Thread, list[Result[Any]]]:
        """Do the work in a thread, and wait until the slow tool is entered."""
        results: list[Result[Any]] = []
        thread = threading.Thread(target=lambda: results.append(work()))
        thread.start()
        assert self.entered.wait(30)
        return thread, results


def test_a_second_decision_on_a_nested_agent_arrives_while_it_carries_out_the_first(
    tmp_path: Path, driver: Driver, store: Store
) -> None:
    """Law 3: decisions on different pendings of one checkpoint both count, though a worker is at it."""
    desk = Slow(tmp_path, driver, "pay")
    graph = Graph("desk", (desk.agent("clerk", "pay", "wire"),), store=store)
    stop = driver.invoke(graph, "Monday")
    pay, wire = ({item.id: Approve()} for item in stop.checkpoint.pending)
    worker, results = desk.start(lambda: driver.resume(graph, stop.checkpoint, decisions=pay))
    try:
        assert driver.resume(graph, stop.checkpoint, decisions=wire).status == "running"
        with pytest.raises(CheckpointAlreadyResumed):
            driver.resume(graph, stop.checkpoint, decisions=wire)
    finally:
        desk.go_on.set()
        worker.join(30)
    assert [(result.status, result.output) for result in results] == [("completed", "clerk has finished")]
    assert desk.done == ["clerk_reads", "pay", "wire"]


def test_a_graph_that_is_cancelled_while_an_agent_inside_works_stops_that_agent(
    tmp_path: Path, driver: Driver, store: Store
) -> None:
    desk = Slow(tmp_path, driver, "clerk_reads")
    graph = desk.tower(store)
    worker, results = desk.start(lambda: driver.invoke(graph, "Monday", thread_id="t"))
    try:
        assert driver.cancel(graph, store.branches(thread_id="t")[-1].id).status == "running"
    finally:
        desk.go_on.set()
        worker.join(30)
    assert [(result.status, asked(result)) for result in results] == [("cancelled", [])]
    assert desk.seen == [True]
    assert desk.done == ["clerk_reads", "count", "scout_reads"]
    assert store.pending() == []
    clerk = graph.spec.tools["floor"].inner.spec.tools["clerk"].inner
    assert len(clerk.model.requests) == 1


def test_an_interrupted_worker_leaves_no_nested_run_going(tmp_path: Path, store: Store) -> None:
    """A thread cannot be stopped, but what it does after Ctrl-C is neither recorded nor gone on from."""
    desk = Slow(tmp_path, SYNC, "clerk_reads")
    graph = Graph("desk", (desk.node("count"), desk.agent("clerk")), store=store)
    interrupter = threading.Thread(
        target=lambda: desk.entered.wait(30) and signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    )
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        graph.invoke("Monday", thread_id="t")
    interrupter.join(30)
    before = rows(store)
    desk.go_on.set()
    for thread in threading.enumerate():
        if thread.name == "phronomy-call":
            thread.join(30)
    assert desk.seen == [True]
    assert rows(store) == before
    assert store.branches(thread_id="t")[-1].owner is None
    assert len(graph.spec.tools["clerk"].inner.model.requests) == 1


def test_a_store_that_fails_leaves_no_task_behind(tmp_path: Path) -> None:
    """Law 16 of a kind: when `ainvoke` has raised, nothing of the run goes on in the background."""

    class Away(MemoryStore):
        def append(self, change: Append) -> Branch:
            if any('"settled"' in entry.body for entry in change.entries):
                raise StoreError("away")
            return super().append(change)

    @tool
    async def clerk_reads() -> str:
        """Read for ever."""
        await asyncio.Event().wait()
        return "never"

    async def main() -> None:
        model = ScriptedModel([call("clerk_reads", {})])
        clerk = Inside("clerk", Agent(name="clerk", model=model, tools=[clerk_reads]))
        graph = Graph("desk", (clerk, Desk(tmp_path, ASYNC).node("count")), store=Away())
        with pytest.raises(StoreError, match="away"):
            await graph.ainvoke("Monday")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_outcomes_of_an_agent_are_illegal_in_a_graph_and_change_nothing() -> None:
    desk = Desk(Path(), SYNC)
    graph = Graph("desk", (desk.node("count"),))
    result = graph.step("Monday")
    before = result.checkpoint.model_dump_json()
    for outcome in (Replied.model_construct(), Finished.model_construct()):
        state = graph.spec.apply(result.checkpoint, Judged(judgements=())) if isinstance(outcome, Finished) else result.checkpoint
        with pytest.raises(IllegalOutcome, match=type(outcome).__name__):
            graph.spec.apply(state, outcome)
    assert result.checkpoint.model_dump_json() == before


# Killed and resumed


def carry_on(folder: str, scenario: str, driver: Driver, kill_at: int, later: float) -> None:
    """Take a scenario as far as the bomb lets it, from wherever it stands, with a human who looks before he answers."""
    desk = Desk(Path(folder), driver, Bomb(kill_at))
    store = BombedStore(str(desk.folder / "runs.db"), clock=lambda: time.time() + later)
    store.bomb = desk.bomb
    with store:
        graph = getattr(desk, scenario)(store)
        branches = store.branches(thread_id="t")
        if branches:
            result = driver.recover(graph, branches[-1].id)
        else:
            result = driver.invoke(graph, "Monday", thread_id="t")
        while result.suspended:
            item = result.checkpoint.pending[-1]
            looked = item.why == "outcome_unknown" and item.tool_name in desk.done
            answer = Respond(content=f"{item.tool_name} is done") if looked else Approve()
            result = driver.resume(graph, result.checkpoint, decisions={item.id: answer})
        (desk.folder / "end").write_text(f"{outline(result.checkpoint)} {result.checkpoint.state}")


@pytest.fixture(scope="module")
def processes() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "phronomy.testing", "phronomy.stores.sqlite"])
    return context


@pytest.mark.parametrize("scenario", ["office", "tower"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_killed_at_every_boundary_and_inside_every_node_a_graph_ends_as_the_unkilled_one(
    processes: Any, tmp_path: Path, scenario: str, is_async: bool
) -> None:
    """Every write is passed before and after, and every body before and after its effect; each is a place to die."""
    driver = ASYNC if is_async else SYNC
    unkilled = tmp_path / "unkilled"
    unkilled.mkdir()
    carry_on(str(unkilled), scenario, driver, NEVER, 0.0)
    wanted, names = (unkilled / "end").read_text(), Desk(unkilled, driver).done
    kills = 0
    for kill_at in range(1, NEVER):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        process = processes.Process(target=carry_on, args=(str(folder), scenario, driver, kill_at, 0.0))
        process.start()
        process.join(60)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        kills += 1
        carry_on(str(folder), scenario, driver, NEVER, HOUR)
        assert (folder / "end").read_text() == wanted, f"killed at {kill_at}"
        assert Desk(folder, driver).done == names, f"killed at {kill_at}"
    assert kills > 40

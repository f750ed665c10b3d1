"""A spike, kept: the graph of `graph_spike.py` on the loops and the stores of the agent, with nothing changed for it."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from crash_worker import NEVER
from drivers import ASYNC, PATIENCE, SYNC, Driver, calls_ended, decide_first, open_kind, rows
from graph_spike import Desk, Graph, Inside, Slow, carry_on
from selection import scaled

from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointError,
    IllegalOutcome,
    MemoryStore,
    Message,
    ModelError,
    Reject,
    Respond,
    Result,
    StoreError,
    tool,
)
from phronomy.engine import clock
from phronomy.records.calls import Finished, Judged, Replied
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call

HOUR = 3600.0


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

    again = driver.invoke(graph, "Tuesday", thread_id="t")
    assert asked(again) == [("2.1", "pay"), ("", "wipe")]
    assert again.run_id != result.run_id
    answers = {item.id: Approve() for item in again.checkpoint.pending}
    assert driver.resume(graph, again.checkpoint, decisions=answers).output == "close is done"
    assert desk.done == sorted(["clerk_reads", "close", "count", "open", "pay", "wipe"] * 2)


def test_a_nested_agent_reads_a_rejection_and_an_answer_given_at_the_root(
    desk: Desk, driver: Driver, store: Store
) -> None:
    graph = desk.office(store)
    result = driver.invoke(graph, "Monday")
    answers = {
        pending(result, "pay"): Reject(reason="too much"),
        pending(result, "wipe"): Respond(content="wiped by hand"),
    }
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
    assert result.usage.requests == 4, "what the agents inside have cost is part of what the graph has"
    assert desk.done == ["clerk_reads", "close", "count", "pay", "scout_reads"]


def test_the_time_that_the_runs_inside_took_is_part_of_what_the_graph_took(
    desk: Desk, driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 13: limits are sums over the record, and the record has the work of every depth in it, once."""
    work: list[int] = []
    monkeypatch.setattr(clock, "since", lambda started: work.append(5) or 5)
    graph = desk.tower(store)
    stop = driver.invoke(graph, "Monday")
    result = driver.resume(graph, stop.checkpoint.id, approved=True)
    assert result.checkpoint.elapsed == sum(work) == 5 * 9


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
        with pytest.raises(CheckpointError, match=r"the run nested at 2.1 .* is missing"):
            driver.resume(graph, stop.model_copy(update={"nested": ()}), decisions=decide_first(stop))
    assert desk.done == ["clerk_reads", "count", "open"]


def test_an_agent_inside_that_is_another_one_now_is_refused(desk: Desk, driver: Driver, store: Store) -> None:
    """Law 10: drift is judged at every depth, before anything is consumed."""
    stop = driver.invoke(Graph("desk", (desk.agent("clerk", "pay"),), store=store), "Monday")
    other = desk.agent("clerk", "pay")
    other.inner.name = "impostor"
    graph = Graph("desk", (other,), store=store)
    before = rows(store)
    with pytest.raises(AgentChanged, match="the agent was 'clerk' and is 'impostor'"):
        driver.resume(graph, stop.checkpoint, approved=True)
    assert rows(store) == before
    assert driver.resume(graph, stop.checkpoint, approved=True, accept_changes=True).output == "clerk has finished"


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
    # the branch that was forked goes on with the approval that it has, and finds that this call has been done
    result = driver.recover(graph, decided.checkpoint)
    assert asked(result) == [("1.1", "wire")]
    assert desk.done == ["close", "left_reads", "pay", "right_reads", "wire"]


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
    assert desk.done == ["clerk_reads", "close", "count", "scout_reads"]
    # each branch has its own decisions inside: what was rejected there is approved here, and runs
    assert driver.resume(graph, stop.checkpoint, approved=True).output == "close is done"
    assert desk.done == ["clerk_reads", "close", "count", "pay", "scout_reads"]


def test_a_fork_knows_nothing_of_what_the_agents_inside_did_later(desk: Desk, driver: Driver, store: Store) -> None:
    graph = desk.pair(store)
    stop = driver.invoke(graph, "Monday")
    decided = driver.step(graph, stop.checkpoint, decisions={pending(stop, "pay"): Approve()})
    driver.recover(graph, decided.checkpoint)
    result = driver.resume(graph, stop.checkpoint, decisions={pending(stop, "wire"): Approve()})
    assert result.output == "close is done"
    done = desk.done

    for place in (stop.checkpoint, decided.checkpoint):
        fork = driver.fork(graph, place)
        assert [name for _, name in asked(fork)] == ["pay", "wire"]
        answers = {item.id: Reject() if item.tool_name == "wire" else Approve() for item in fork.pending}
        again = driver.resume(graph, fork, decisions=answers)
        assert (again.status, again.checkpoint.state) == ("completed", result.checkpoint.state)
        said = graph.spec.tools["right"].inner.model.requests[-1].messages
        assert [message.settlement for message in said if message.role == "tool"] == ["completed", "rejected"]
    assert desk.done == done, "what has completed in another branch is not run again"


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
        worker.join(PATIENCE)
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
        worker.join(PATIENCE)
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
    raised = threading.Event()

    def once(*_: object) -> None:
        if not raised.is_set():
            raised.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        desk.entered.wait(PATIENCE)
        while not raised.wait(0.001):  # a signal just before a thread waits for a lock is heard only afterwards
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    usual = signal.signal(signal.SIGINT, once)
    try:
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            graph.invoke("Monday", thread_id="t")
        interrupter.join(PATIENCE)
    finally:
        raised.set()
        signal.signal(signal.SIGINT, usual)
    before = rows(store)
    desk.go_on.set()
    calls_ended()
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


def test_an_illegal_outcome_changes_nothing_in_a_graph_either() -> None:
    graph = Graph("desk", (Desk(Path(), SYNC).node("count"),))
    begun = graph.step("Monday").checkpoint
    reply = Replied(message=Message(role="assistant", content="hello"))
    finished = Finished(status="completed")
    opened = graph.spec.apply(begun, Judged(judgements=()))
    assert [item.status for item in opened.calls] == ["new"]
    ended = graph.spec.apply(begun, finished)
    assert ended.status == "completed"
    for now, outcome in [(begun, reply), (opened, reply), (opened, finished), (ended, reply), (ended, finished)]:
        before = now.model_dump_json()
        with pytest.raises(IllegalOutcome, match=type(outcome).__name__):
            graph.spec.apply(now, outcome)
        assert now.model_dump_json() == before


# Killed and resumed


@pytest.fixture(scope="module")
def processes() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["phronomy.testing", "phronomy.stores.sql.sqlite"])
    return context


@pytest.mark.usefixtures("fresh_fork_server")
@pytest.mark.few(2)
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
    for kill_at in range(1, NEVER, scaled(12, sweep=2)):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        process = processes.Process(target=carry_on, args=(str(folder), scenario, driver, kill_at, 0.0))
        process.start()
        process.join(PATIENCE)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        kills += 1
        carry_on(str(folder), scenario, driver, NEVER, HOUR)
        assert (folder / "end").read_text() == wanted, f"killed at {kill_at}"
        assert Desk(folder, driver).done == names, f"killed at {kill_at}"
    assert kills > scaled(3, sweep=20)

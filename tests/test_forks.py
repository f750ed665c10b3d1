"""A process that forks while other threads are at work: the child has their locks, and not the threads."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from drivers import PATIENCE, Around, until
from places import Place

from phronomy import Agent, LeaseLost, MemoryStore, SQLiteStore, tool
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call


def forked(agent: Agent[None, str]) -> int:
    """The exit code of a child that invokes the agent; it ends by itself where it hangs."""
    if (child := os.fork()) == 0:
        signal.alarm(60)
        os._exit(0 if agent.invoke("go").output == "done" else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("lock", ["the lease's", "the store's"])
def test_a_child_runs_though_a_thread_of_its_parent_held_a_lock(lock: str) -> None:
    store = MemoryStore()
    agent = Agent(model=ScriptedModel.by_turn(["done"]), store=store)
    held, forks = threading.Event(), threading.Event()

    def hold() -> None:
        with store.keeper._lock if lock == "the lease's" else store._alone.lock:
            held.set()
            forks.wait(0.2 if lock == "the store's" else PATIENCE)  # a fork waits until no store is half changed

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE)
    try:
        assert forked(agent) == 0
    finally:
        forks.set()
        thread.join()
    assert agent.invoke("go").output == "done"


def test_what_renews_leases_goes_soon_after_the_last_run() -> None:
    """It is a thread for each store, and an agent without one has its own: it does not stay for as long as a lease lasts."""
    store = MemoryStore(lease=86_400.0)
    assert Agent(model=ScriptedModel.by_turn(["done"]), store=store).invoke("go").output == "done"
    until(lambda: store.keeper._thread is None)


def test_a_child_runs_though_a_thread_of_its_parent_noted_what_an_agent_is() -> None:
    """It is noted once for each agent, and a lock for all of them would be in the way."""
    noting, forks = threading.Event(), threading.Event()

    class Slow(ScriptedModel):
        @property
        def name(self) -> str:
            if threading.current_thread() is thread and sys._getframe(1).f_code.co_name == "_ref":
                noting.set()
                forks.wait(PATIENCE)
            return "slow"

        @name.setter
        def name(self, name: str) -> None: ...

    slow = Agent(model=Slow(["done"]))
    thread = threading.Thread(target=slow.invoke, args=("go",))
    thread.start()
    assert noting.wait(PATIENCE)
    try:
        assert forked(Agent(model=ScriptedModel.by_turn(["done"]))) == 0
    finally:
        forks.set()
        thread.join()


COMES_OUT = {"exits": SystemExit(3), "fails": OSError("no such program"), "returns": None}


@pytest.mark.parametrize("thread", [False, True], ids=["in the thread of the run", "in a thread of its own"])
@pytest.mark.parametrize("comes", COMES_OUT)
def test_a_child_that_comes_out_of_the_body_of_a_tool_leaves_the_run_to_its_parent(
    comes: str, thread: bool, place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """The child has a copy of the stack, and what ends it comes up to what drives the run."""
    parent, error = os.getpid(), COMES_OUT[comes]
    seen: list[object] = []
    others = place.open()

    @tool(requires_approval=True, timeout=PATIENCE if thread else None)
    def pay() -> str:
        """Pay."""
        if (child := os.fork()) == 0:
            signal.alarm(60)
            if error is not None:
                raise error
            return "paid by the child"
        seen.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        seen.append(others.branches()[0].owner is not None)  # nobody else may take it
        return "paid"

    model = ScriptedModel.by_turn([[call("pay")], "Done."])
    agent = Agent(model=model, tools=[pay], store=place.open())
    asked = agent.invoke("Pay.").checkpoint
    try:
        result = agent.resume(asked.id, approved=True)
    except BaseException as raised:
        if os.getpid() == parent:
            raise
        print(raised)
        sys.stdout.flush()
        os._exit(3 if isinstance(raised, SystemExit) else 1)
    if os.getpid() != parent:
        os._exit(2)
    assert seen == [{"exits": 3, "fails": 1, "returns": 0 if thread else 1}[comes], True]
    assert [message.text for message in result.messages if message.role == "tool"] == ["paid"]
    assert result.output == "Done."
    printed = capfd.readouterr()
    if thread:
        assert ("OSError: no such program" in printed.err) == (comes == "fails")
    elif comes != "exits":
        assert f"this process was forked from the one that drives run {asked.run_id}" in printed.out


def test_a_child_enters_no_call_of_the_run_and_its_parent_enters_each_once(tmp_path: Path) -> None:
    """The child goes on where it was forked, as a greenlet does: between the intent and the body."""
    parent, entered = os.getpid(), tmp_path / "entered"

    @tool
    def count() -> str:
        """Count."""
        with entered.open("a") as file:
            file.write("child " if os.getpid() != parent else "parent ")
        return "counted"

    children: list[int] = []

    class Forks(Around):
        def append(self, change: Append) -> Branch:
            after = super().append(change)
            if not children and any('"started"' in entry.body for entry in change.entries):
                children.append(os.fork())
            return after

    store = Forks(SQLiteStore(tmp_path / "runs.db"))
    agent = Agent(model=ScriptedModel.by_turn([[call("count")], "Done."]), tools=[count], store=store)
    try:
        result = agent.invoke("Count.")
    except BaseException as raised:
        if os.getpid() == parent:
            raise
        os._exit(0 if isinstance(raised, LeaseLost) else 1)
    if os.getpid() != parent:
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    assert result.output == "Done."
    assert entered.read_text() == "parent "

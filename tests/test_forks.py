"""A process that forks while other threads are at work: the child has their locks, and not the threads."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest
from drivers import PATIENCE, until

from phronomy import Agent, MemoryStore
from phronomy.testing import ScriptedModel


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

"""Leases are kept alive while their workers are busy, and by nothing longer than that."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from drivers import DRIVERS, PATIENCE, Driver

from phronomy import Agent, MemoryStore, tool
from phronomy.stores.lease_keeper import Keeper
from phronomy.stores.rows import Branch, Claim
from phronomy.testing import ScriptedModel, call


class Kept:
    """Something to keep: counts how often it was kept, and may fail each time."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.times = threading.Semaphore(0)

    def keep(self) -> None:
        self.times.release()
        if self.fault is not None:
            raise self.fault

    def wait(self, times: int) -> bool:
        return all(self.times.acquire(timeout=PATIENCE) for _ in range(times))


def ended(thread: threading.Thread | None) -> bool:
    assert thread is not None
    thread.join(PATIENCE)
    return not thread.is_alive()


def test_what_is_held_is_kept_again_and_again_until_it_is_dropped() -> None:
    keeper, one, two = Keeper(0.03), Kept(), Kept()
    keeper.hold(one)
    keeper.hold(two)
    assert one.wait(3) and two.wait(3)
    keeper.drop(one)
    assert two.wait(3)
    thread = keeper._thread
    keeper.drop(two)
    assert ended(thread) and keeper._thread is None
    keeper.hold(one)
    assert one.wait(2)
    keeper.drop(one)


def test_a_store_that_is_away_for_a_while_is_tried_again_and_keeps_no_other_from_its_turn() -> None:
    keeper, away, there = Keeper(0.03), Kept(ConnectionError("no route")), Kept()
    keeper.hold(away)
    keeper.hold(there)
    assert away.wait(3) and there.wait(3)
    keeper.drop(away)
    keeper.drop(there)


def test_a_poke_keeps_at_once() -> None:
    keeper, kept = Keeper(3600.0), Kept()
    keeper.hold(kept)
    keeper.poke()
    assert kept.times.acquire(blocking=False)
    keeper.drop(kept)


class Watched(MemoryStore):
    """A memory store that says when a lease was renewed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.renewed = threading.Event()

    def renew(self, claim: Claim) -> Branch:
        branch = super().renew(claim)
        self.renewed.set()
        return branch


@pytest.mark.parametrize("driver", DRIVERS, ids=str)
def test_a_tool_that_takes_longer_than_the_lease_keeps_its_run(driver: Driver) -> None:
    store = Watched(lease=0.06)

    @tool
    def slow() -> str:
        """Takes several leases."""
        for _ in range(3):
            store.renewed.clear()
            assert store.renewed.wait(PATIENCE)
        return "done at last"

    agent = Agent(name="clerk", model=ScriptedModel([call("slow"), "good"]), tools=[slow], store=store)
    result = driver.invoke(agent, "go")
    assert (result.output, [message.text for message in result.messages if message.role == "tool"]) == (
        "good",
        ["done at last"],
    )
    branch = store.branches()[0]
    assert (branch.fence, branch.owner, branch.status) == (1, None, "completed")

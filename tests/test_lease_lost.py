"""A worker whose lease is over enters no tool any more: another may have the run, though this one has not heard of it.

What it meant to do is stored before it does it. Between the two anything may happen to it: a commit that stalls, a machine that is
paused, a wait before the next attempt.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from drivers import Around, Driver
from places import Place
from pydantic import BaseModel

from phronomy import END, START, Agent, LeaseLost, SQLiteStore, StateGraph, tool
from phronomy.engine import ledger, run_tools
from phronomy.errors import StoreError
from phronomy.stores.base import Store
from phronomy.stores.lease_keeper import Keepable
from phronomy.stores.rows import Append, Branch, Claim
from phronomy.testing import ScriptedModel, call, say

LEASE = 30.0
PAY = say("", call("pay", {"order": 1}, id="call_1"))


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Stalls(Around):
    """Something happens once an intent is stored, before whoever stored it hears that it is."""

    happens: Callable[[], object]
    within = False
    before: Callable[[], object] | None = (
        None  # something happens once a write is made up, before the store is asked for it
    )
    renewed = 0

    def append(self, change: Append) -> Branch:
        if self.before is not None:
            self.before()
        after = super().append(change)
        self.stored(change)
        return after

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        super().create(branch, change, exclusive=exclusive)
        self.stored(change)  # the first write of a graph has intents

    def stored(self, change: Append) -> None:
        if any(
            entry.body.startswith('{"type":"started"') and bool(entry.path) == self.within for entry in change.entries
        ):
            self.happens()

    def renew(self, claim: Claim) -> Branch:
        self.renewed += 1
        return super().renew(claim)


class Order(BaseModel):
    order: int = 1


class Desk:
    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.clock = Clock()
        self.plain = place.open(clock=self.clock, lease=LEASE)
        self.store = Stalls(place.open(clock=self.clock, lease=LEASE))
        self.entered: list[str] = []

    def tool(self, **options: Any) -> Any:
        def pay(order: int) -> str:
            """Pay an order."""
            self.entered.append(f"pay {order}")
            if options.get("retries") and len(self.entered) == 1:
                raise ConnectionError("try again")
            return f"paid {order}"

        return tool(**options)(self.driver.function(pay))

    def agent(self, store: Store, *replies: Any, **options: Any) -> Agent[Any, str]:
        return Agent(name="desk", model=ScriptedModel([*replies]), tools=[self.tool(**options)], store=store)

    def inside(self, store: Store, *replies: Any) -> Agent[Any, str]:
        """The tool is one of an agent inside."""
        inner = self.agent(store, *replies).as_tool("payments", "Pays.")
        outer = ScriptedModel([say("", call("payments", {"input": "pay"}, id="call_0")), "Paid."])
        return Agent(name="front", model=outer, tools=[inner], store=store)

    def graph(self, store: Store, *replies: Any) -> Any:
        """It is a node of a graph."""

        def pay(state: Order) -> dict[str, Any]:
            self.entered.append("pay 1")
            return {}

        body = self.driver.function(pay)
        return StateGraph(Order).add_node(body).add_edge(START, "pay").add_edge("pay", END).compile(store=store)

    def stalls(self) -> None:
        """It takes longer than the lease lasts."""
        self.clock.now += LEASE + 1

    def taken_over(self) -> None:
        """The lease is over, and another worker takes the run."""
        self.stalls()
        (branch,) = self.plain.branches()
        self.plain.append(Append(branch_id=branch.id, seq=branch.seq, take="other", lease=LEASE))


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


@pytest.mark.parametrize("kind", ["agent", "inside", "graph"])
def test_a_commit_that_stalls_for_too_long_is_followed_by_nothing(desk: Desk, kind: str) -> None:
    desk.store.within = kind == "inside"
    desk.store.happens = desk.taken_over
    agent = getattr(desk, kind)(desk.store, PAY)
    with pytest.raises(LeaseLost, match="enters no tool of it any more") as lost:
        desk.driver.invoke(agent, {} if kind == "graph" else "Pay")
    assert desk.entered == []
    (branch,) = desk.plain.branches()
    assert (lost.value.run_id, branch.owner, branch.status) == (branch.run_id, "other", "running")


@pytest.mark.parametrize("kind", ["agent", "inside", "graph"])
def test_where_nobody_has_taken_the_run_the_claim_is_renewed_and_the_tool_runs(desk: Desk, kind: str) -> None:
    desk.store.within = kind == "inside"
    desk.store.happens = desk.stalls
    agent = getattr(desk, kind)(desk.store, PAY, "Paid.")
    assert desk.driver.invoke(agent, {} if kind == "graph" else "Pay").status == "completed"
    assert desk.entered == ["pay 1"]
    assert desk.store.renewed == 1


def test_a_machine_that_is_paused_while_its_clock_stands_still_is_no_exception(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clock that the others see the lease is over; here it is the time since boot that tells."""
    booted = ledger.uptime()
    ahead = 0.0
    monkeypatch.setattr(ledger, "uptime", lambda: booted + ahead)
    others = desk.place.open(clock=lambda: desk.clock.now + LEASE + 1, lease=LEASE)

    def paused() -> None:
        nonlocal ahead
        ahead = LEASE - 1
        (branch,) = others.branches()
        others.append(Append(branch_id=branch.id, seq=branch.seq, take="other", lease=LEASE))

    desk.store.happens = paused
    with pytest.raises(LeaseLost, match="enters no tool"):
        desk.driver.invoke(desk.agent(desk.store, PAY), "Pay")
    assert desk.entered == []


def test_nor_is_the_wait_before_another_attempt(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        desk.taken_over()

    desk.store.happens = lambda: None
    monkeypatch.setattr(run_tools, "time", SimpleNamespace(sleep=lambda _: desk.taken_over(), monotonic=time.monotonic))
    monkeypatch.setattr(run_tools, "asyncio", SimpleNamespace(sleep=sleep))
    with pytest.raises(LeaseLost, match="enters no tool"):
        desk.driver.invoke(desk.agent(desk.store, PAY, retries=2, idempotent=True), "Pay")
    assert desk.entered == ["pay 1"]


def test_of_calls_side_by_side_none_is_entered_either(desk: Desk) -> None:
    two = say("", call("pay", {"order": 1}, id="call_1"), call("pay", {"order": 2}, id="call_2"))
    desk.store.happens = desk.taken_over
    with pytest.raises(LeaseLost):
        desk.driver.invoke(desk.agent(desk.store, two), "Pay both")
    assert desk.entered == []


def test_whoever_took_the_run_asks_a_human_what_became_of_the_call(desk: Desk) -> None:
    """It was meant, and nobody but the worker that lost it knows that it was not made."""
    desk.store.happens = desk.taken_over
    with pytest.raises(LeaseLost):
        desk.driver.invoke(desk.agent(desk.store, PAY), "Pay")
    desk.clock.now += LEASE + 1
    worker = desk.agent(desk.plain, "Paid.")
    (found,) = desk.driver.call(worker, "recover_all")
    assert [item.why for item in found.result.checkpoint.pending] == ["outcome_unknown"]
    assert desk.driver.resume(worker, found.result.checkpoint, approved=True).output == "Paid."
    assert desk.entered == ["pay 1"]


def test_a_lease_that_is_far_from_over_costs_no_question(desk: Desk) -> None:
    desk.store.happens = lambda: None
    desk.driver.invoke(desk.agent(desk.store, PAY, "Paid."), "Pay")
    assert (desk.entered, desk.store.renewed) == (["pay 1"], 0)


@pytest.mark.parametrize("is_heard", [False, True])
@pytest.mark.parametrize("kind", ["agent", "inside", "graph"])
def test_a_run_that_was_taken_over_and_deleted_meanwhile_is_lost_not_unknown(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, kind: str, is_heard: bool
) -> None:
    """The worker has decided, or begun; that the store knows no such run would say that nothing has happened.

    So it is where the thread that renews the lease has heard of it a moment before the store is asked to write.
    """
    held: list[Keepable] = []
    monkeypatch.setattr(type(desk.store.keeper), "hold", lambda _, ledger: held.append(ledger))

    def deleted() -> None:
        desk.taken_over()
        (branch,) = desk.plain.branches()
        desk.plain.release(
            Claim(branch_id=branch.id, run_id=branch.run_id, owner="other", fence=branch.fence), "failed"
        )
        assert desk.plain.delete(branch.id, force=True)
        if is_heard:
            desk.store.before = lambda: [each.keep() for each in held]

    def entered() -> None:
        desk.clock.now = 1_700_000_000.0  # by its own clock it still holds the run

    desk.store.within = kind == "inside"
    desk.store.happens = lambda: (deleted(), entered())
    with pytest.raises(LeaseLost) as lost:
        desk.driver.invoke(getattr(desk, kind)(desk.store, PAY), {} if kind == "graph" else "Pay")
    assert desk.entered == ["pay 1"] and desk.plain.branches() == []
    assert lost.value.branch_id == lost.value.run_id


def test_whoever_wrote_more_than_the_store_has_kept_writes_nothing_behind_the_hole(
    driver: Driver, tmp_path: Path
) -> None:
    """A database that went back to an earlier state, such as a standby that took over without the last writes."""
    file = tmp_path / "runs.db"

    def pay(order: int) -> str:
        """Pay."""
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("DELETE FROM phronomy_log WHERE n = (SELECT max(n) FROM phronomy_log)")
            database.execute("UPDATE phronomy_branches SET seq = seq - 1")
        return "paid"

    with SQLiteStore(file, lease=LEASE) as store:
        agent = Agent(model=ScriptedModel([PAY]), tools=[tool(driver.function(pay))], store=store)
        with pytest.raises(StoreError, match="the database has lost writes") as lost:
            driver.invoke(agent, "Pay")
        (branch,) = store.branches()
        assert f"run {branch.run_id} is at entry {branch.seq} of branch {branch.id}" in str(lost.value)
        entries = store.lineage(branch_id=branch.id).entries
        assert [entry.seq for entry in entries] == [*range(1, branch.seq + 1)]
        assert '"started"' not in entries[-1].body

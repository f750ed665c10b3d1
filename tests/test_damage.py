"""A damaged row costs its own run: the others are carried on, reminded of, announced and deleted, and whoever looks is told of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from damaged import DAMAGE, Damaged
from drivers import Driver, run, until

from phronomy import Agent, Announcements, Approval, Checkpoint, tool
from phronomy.records.decisions import Approve
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker


class Told(Announcements):
    """Hears of the ends of runs, and of reminders."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def on_completed(self, event: Any) -> None:
        self.heard.append(("completed", event.run_id))

    def on_request(self, event: Any) -> None:
        if event.what in ("reminded", "expired"):
            self.heard.append((event.what, event.run_id))


class Desk:
    """An agent that pays once somebody has approved it, on a store in which rows are damaged later."""

    def __init__(self, driver: Driver, store: Store, how: str = "cut off", **options: Any) -> None:
        self.driver, self.store, self.told = driver, Damaged(store, how), Told()
        self.paid: list[int] = []

        def pay(order: int) -> str:
            """Pay for an order."""
            self.paid.append(order)
            return "paid"

        self.pay = tool(requires_approval=Approval(expires=3600, remind=[600]))(driver.function(pay))
        self.agent = self.named("desk", **options)

    def named(self, name: str, **options: Any) -> Agent[Any, str]:
        model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
        return Agent(name=name, tools=[self.pay], model=model, store=self.store, announcements=[self.told], **options)

    def waits(self, agent: Agent[Any, str] | None = None) -> Checkpoint:
        return self.driver.invoke(agent or self.agent, "Pay").checkpoint

    def decide(self, at: Checkpoint) -> None:
        (item,) = at.pending
        self.store.decide(item.id, Approve(), by="ada", digest=item.digest)

    def damage(self, *ids: Any) -> None:
        self.store.ids |= set(ids)


def outcomes(found: list[Any]) -> list[tuple[str, str | None, str | None]]:
    return [
        (each.branch_id, each.result and each.result.status, each.error and type(each.error).__name__) for each in found
    ]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_run_that_cannot_be_read_is_told_and_the_others_are_carried_on(
    driver: Driver, store: Store, how: str
) -> None:
    desk = Desk(driver, store, how)
    other = desk.named("other")
    left = driver.step(desk.agent, "Pay").checkpoint
    others = driver.step(other, "Pay").checkpoint
    fork = driver.fork(desk.agent, desk.waits())
    waits = desk.waits()
    desk.decide(waits)
    desk.damage(left.branch_id, others.branch_id, fork.branch_id)

    found = driver.call(desk.agent, "recover_all")
    assert sorted(outcomes(found)) == sorted(
        [
            (waits.branch_id, "completed", None),
            (left.branch_id, None, "CheckpointError"),
            (fork.branch_id, None, "CheckpointError"),  # it waits, and that was not announced
        ]
    )
    assert desk.paid == [1] and desk.told.heard == [("completed", waits.run_id)]
    assert all(each.branch_id in str(each.error) for each in found if each.error)
    assert outcomes(driver.call(other, "recover_all")) == [(others.branch_id, None, "CheckpointError")]
    # Mended, it is as it was: a run that somebody steps through, which nobody else carries on.
    desk.store.ids.clear()
    assert driver.call(desk.agent, "recover_all") == []
    assert driver.resume(desk.agent, left).status == "suspended"


def test_damaged_runs_do_not_take_the_turn_of_the_others(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store)
    desk.damage(*(driver.step(desk.agent, "Pay").checkpoint.branch_id for _ in range(3)))
    waits = desk.waits()
    desk.decide(waits)
    assert outcomes(driver.call(desk.agent, "recover_all", limit=1)) == [(waits.branch_id, "completed", None)]


def test_of_the_ends_that_were_not_announced_those_that_can_be_read_are(
    driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(driver, store)
    monkeypatch.setattr(desk.store, "announced", lambda *place: None)  # each process is gone before it has noted that
    ends = []
    for _ in range(3):
        waits = desk.waits()
        ends.append(driver.resume(desk.agent, waits, approved=True).run_id)
    monkeypatch.undo()
    desk.told.heard.clear()
    desk.damage(ends[0])
    for limit in (1, 100):
        found = driver.call(desk.agent, "recover_all", limit=limit)
        assert outcomes(found) == [(ends[0], None, "CheckpointError")]
    assert desk.told.heard == [("completed", ends[1]), ("completed", ends[2])]
    desk.store.ids.clear()
    assert driver.call(desk.agent, "recover_all") == []
    assert desk.told.heard[-1] == ("completed", ends[0])


def test_reminders_and_expiry_are_of_each_request_by_itself(driver: Driver, store: Store) -> None:
    now = [1_700_000_000.0]
    store.clock = lambda: now[0]
    desk = Desk(driver, store)
    lost, damaged, well = desk.waits(), desk.waits(), desk.waits()
    desk.damage(lost.branch_id, damaged.pending[0].id)
    now[0] += 601
    # Of one the log is damaged, and of the other what is listed of it.
    assert outcomes(driver.call(desk.agent, "recover_all")) == [(lost.branch_id, None, "CheckpointError")]
    assert ("reminded", well.run_id) in desk.told.heard and ("reminded", damaged.run_id) not in desk.told.heard
    now[0] += 3600
    assert sorted(outcomes(driver.call(desk.agent, "recover_all")), key=str) == sorted(
        [
            (lost.branch_id, None, "CheckpointError"),
            (damaged.branch_id, "completed", None),  # its log says that its time is over
            (well.branch_id, "completed", None),
        ],
        key=str,
    )
    assert ("expired", well.run_id) in desk.told.heard and desk.paid == []


def test_a_run_that_a_damaged_one_starts_from_stays_and_the_others_are_deleted(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store)
    ended = [driver.resume(desk.agent, desk.waits(), approved=True).run_id for _ in range(2)]
    first = driver.invoke(desk.agent, "Pay", thread_id="t").checkpoint
    driver.resume(desk.agent, first, approved=True)
    second = driver.invoke(desk.agent, "Pay", thread_id="t").checkpoint
    desk.damage(second.branch_id)
    assert desk.store.prune() > 0
    assert {each.run_id for each in desk.store.branches()} == {first.run_id, second.run_id}.difference(ended)
    desk.store.ids.clear()
    assert desk.store.load(second.id) == second


def test_a_worker_sets_a_damaged_run_aside_and_does_its_work(
    driver: Driver, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(driver, store)
    left = driver.step(desk.agent, "Pay").checkpoint
    handed, waits = desk.waits(), desk.waits()
    desk.decide(handed)
    desk.damage(left.branch_id, handed.branch_id)

    async def work() -> None:
        worker = Worker(desk.agent, poll=0.01, tries=2, retry_wait=0.01)
        task = asyncio.ensure_future(worker.arun(grace=1))
        loop = asyncio.get_running_loop()
        aside = await loop.run_in_executor(None, until, lambda: len(worker.health().set_aside) == 2)
        assert aside
        desk.decide(waits)
        await loop.run_in_executor(None, until, lambda: desk.store.request(waits.pending[0].id).status == "settled")
        health = worker.health()
        assert (health.status, health.is_ok, health.failures) == ("ok", True, 4)
        assert {(each.branch_id, each.tries) for each in health.set_aside} == {
            (left.branch_id, 2),
            (handed.branch_id, 2),
        }
        assert all(each.branch_id in each.error for each in health.set_aside)
        worker.stop()
        await task

    with caplog.at_level(logging.WARNING, logger="phronomy"):
        run(work())
    told = [record.getMessage() for record in caplog.records]
    for each in (left, handed):  # that it is tried again, that it is set aside, and that nothing of it is announced
        assert 2 <= sum(each.run_id in text for text in told) <= 3


def test_a_worker_that_looks_once_gives_what_cannot_be_announced(
    driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(driver, store)
    monkeypatch.setattr(desk.store, "announced", lambda *place: None)
    ended = driver.resume(desk.agent, desk.waits(), approved=True).run_id
    monkeypatch.undo()
    desk.damage(ended)
    worker = Worker(desk.agent)
    assert outcomes(run(worker.once())) == [(ended, None, "CheckpointError")]
    (aside,) = worker.health().set_aside
    assert (aside.branch_id, aside.agent, aside.tries) == (ended, "desk", 1)
    desk.store.ids.clear()
    assert run(worker.once()) == [] and worker.health().set_aside == ()

"""Every worker may ask, at start and now and then, what lost workers have left; what is found is carried on once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE, STORES, Driver, open_kind, run

from phronomy import Agent, ConfigurationError, ModelError, tool
from phronomy.approvals import Reject, Respond
from phronomy.errors import CheckpointNotFound, RunFailed, WaitTimeout
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call, say

pytestmark = pytest.mark.product


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Gone(BaseException):
    """The worker is gone: nothing that it would still have done is done."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Store:
    return open_kind(request.param, tmp_path, clock=clock)


class Desk:
    def __init__(self, driver: Driver, store: Store, *replies: Any, name: str = "desk", **options: Any) -> None:
        self.done: list[int] = []
        self.dies = False

        def refund(order: int) -> str:
            """Refund an order."""
            if self.dies:
                raise Gone
            self.done.append(order)
            return f"refunded {order}"

        gated = tool(requires_approval=True, **options)(driver.function(refund))
        self.model = ScriptedModel([*replies])
        self.agent: Agent[Any, str] = Agent(name=name, model=self.model, tools=[gated], store=store)


REFUND = say("", call("refund", {"order": 1042}, id="call_9"))


def lose(driver: Driver, desk: Desk, store: Store, clock: Clock, **decision: Any) -> str:
    """A run that was approved, and whose worker died in the tool; its id."""
    suspended = driver.invoke(desk.agent, "Refund 1042")
    desk.dies = True
    with pytest.raises(Gone):
        driver.resume(desk.agent, suspended.checkpoint, approved=True)
    clock.now += store.lease + 1
    return suspended.run_id


def test_a_call_that_can_be_repeated_is_repeated(driver: Driver, store: Store, clock: Clock) -> None:
    lost = Desk(driver, store, REFUND, idempotent=True)
    run_id = lose(driver, lost, store, clock)
    worker = Desk(driver, store, "Done.", idempotent=True)
    (found,) = driver.call(worker.agent, "recover_all")
    assert (found.run_id, found.result.output, found.error) == (run_id, "Done.", None)
    assert worker.done == [1042]
    assert driver.call(worker.agent, "recover_all") == []


def test_any_other_is_put_to_a_human_who_says_what_became_of_it(driver: Driver, store: Store, clock: Clock) -> None:
    lost = Desk(driver, store, REFUND)
    lose(driver, lost, store, clock)
    worker = Desk(driver, store, "Done.")
    (found,) = driver.call(worker.agent, "recover_all")
    (asked,) = found.result.checkpoint.pending
    assert found.result.suspended and asked.why == "outcome_unknown" and worker.done == []
    assert driver.call(worker.agent, "recover_all") == []  # a human has it now
    result = driver.resume(
        worker.agent, found.result.checkpoint, decisions={asked.id: Respond(content="the bank says it was refunded")}
    )
    assert result.output == "Done." and worker.done == []
    assert "the bank says it was refunded" in [message.text for message in result.messages]


def test_or_that_it_did_not_run(driver: Driver, store: Store, clock: Clock) -> None:
    lose(driver, Desk(driver, store, REFUND), store, clock)
    worker = Desk(driver, store, "Done.")
    (found,) = driver.call(worker.agent, "recover_all")
    driver.resume(worker.agent, found.result.checkpoint, approved=True)
    assert worker.done == [1042]


def test_or_gives_it_up(driver: Driver, store: Store, clock: Clock) -> None:
    lose(driver, Desk(driver, store, REFUND), store, clock)
    worker = Desk(driver, store)
    (found,) = driver.call(worker.agent, "recover_all")
    (asked,) = found.result.checkpoint.pending
    ended = driver.resume(worker.agent, found.result.checkpoint, decisions={asked.id: Reject(then="end")})
    assert ended.status == "rejected" and worker.done == []


def test_a_run_that_is_held_is_left_alone(driver: Driver, store: Store, clock: Clock) -> None:
    entered, leave = threading.Event(), threading.Event()

    def refund(order: int) -> str:
        """Refund an order."""
        entered.set()
        assert leave.wait(PATIENCE)
        return "refunded"

    gated = tool(requires_approval=True)(refund)
    agent: Agent[Any, str] = Agent(name="desk", model=ScriptedModel([REFUND, "Done."]), tools=[gated], store=store)
    suspended = agent.invoke("Refund 1042")
    worker = threading.Thread(target=lambda: agent.resume(suspended.checkpoint, approved=True))
    worker.start()
    assert entered.wait(PATIENCE)
    assert driver.call(Desk(driver, store).agent, "recover_all") == []
    leave.set()
    worker.join(PATIENCE)
    assert store.wait(suspended.run_id, timeout=PATIENCE).output == "Done."


def test_the_runs_of_another_agent_are_left_alone(driver: Driver, store: Store, clock: Clock) -> None:
    lose(driver, Desk(driver, store, REFUND, idempotent=True), store, clock)
    other = Desk(driver, store, name="ops", idempotent=True)
    assert driver.call(other.agent, "recover_all") == []


def test_what_fails_is_reported_and_keeps_nothing_else_back(driver: Driver, store: Store, clock: Clock) -> None:
    lost = Desk(driver, store, REFUND, REFUND, idempotent=True)
    first = lose(driver, lost, store, clock)
    lost.dies = False
    second = lose(driver, lost, store, clock)
    worker = Desk(driver, store, ModelError("the provider is down"), "Done.", idempotent=True)
    one, two = driver.call(worker.agent, "recover_all")
    assert one.run_id == first and isinstance(one.error, RunFailed) and one.result is None
    assert two.run_id == second and two.result.output == "Done."


def test_a_run_that_failed_waits_for_somebody_to_resume_it(driver: Driver, store: Store, clock: Clock) -> None:
    """Trying again for ever would cost for ever."""
    desk = Desk(driver, store, ModelError("down"), "Done.")
    with pytest.raises(ModelError) as failed:
        driver.invoke(desk.agent, "Hi")
    clock.now += 1000
    assert driver.call(desk.agent, "recover_all") == []
    assert failed.value.checkpoint is not None
    assert driver.resume(desk.agent, failed.value.checkpoint).output == "Done."


def test_a_fork_and_a_run_that_is_stepped_through_are_nobodys_loss(driver: Driver, store: Store, clock: Clock) -> None:
    desk = Desk(driver, store, "One.", "Two.")
    stepped = driver.step(desk.agent, "Hi")
    forked = driver.fork(desk.agent, stepped.checkpoint)
    clock.now += 1000
    assert driver.call(desk.agent, "recover_all") == []
    assert driver.resume(desk.agent, forked).output == "One."


def test_ten_workers_carry_it_on_once(driver: Driver, store: Store, clock: Clock) -> None:
    lose(driver, Desk(driver, store, REFUND, idempotent=True), store, clock)
    worker = Desk(driver, store, *["Done."] * 10, idempotent=True)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.extend(driver.call(worker.agent, "recover_all"))) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert worker.done == [1042]
    assert {each.result.output for each in found if each.result.status == "completed"} == {"Done."}


def test_what_is_older_than_the_store_keeps_goes(driver: Driver, tmp_path: Path, clock: Clock) -> None:
    for kind in STORES:
        store = open_kind(kind, tmp_path, clock=clock, ttl=3600)
        desk = Desk(driver, store, "Hello.", REFUND, "Hello again.")
        driver.invoke(desk.agent, "Hi")
        waiting = driver.invoke(desk.agent, "Refund 1042")
        clock.now += 3601
        young = driver.invoke(desk.agent, "Hi again")
        driver.call(desk.agent, "recover_all")
        assert [branch.run_id for branch in store.branches()] == [waiting.run_id, young.run_id]


def test_an_unknown_option_is_refused(driver: Driver, store: Store) -> None:
    with pytest.raises(ConfigurationError, match="nothing"):
        driver.call(Desk(driver, store).agent, "recover_all", approved=True)


# Waiting for an outcome


def wait(driver: Driver, store: Store, *args: Any, **options: Any) -> Any:
    return run(store.await_(*args, **options)) if driver.is_async else store.wait(*args, **options)


def test_whoever_waits_hears_of_the_end_wherever_it_happens(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store, REFUND, "Done.")
    suspended = driver.invoke(desk.agent, "Refund 1042")
    worker = threading.Thread(target=lambda: driver.resume(desk.agent, suspended.checkpoint, approved=True))
    worker.start()
    ended = wait(driver, store, suspended.run_id, timeout=PATIENCE)
    worker.join(PATIENCE)
    assert (ended.status, ended.output) == ("completed", "Done.")


def test_whoever_waits_may_be_content_with_a_stop(driver: Driver, store: Store) -> None:
    suspended = driver.invoke(Desk(driver, store, REFUND).agent, "Refund 1042")
    assert wait(driver, store, suspended.run_id, stops=True).id == suspended.checkpoint.id
    with pytest.raises(WaitTimeout, match="suspended") as waited:
        wait(driver, store, suspended.run_id, timeout=0)
    assert (waited.value.run_id, waited.value.status) == (suspended.run_id, "suspended")


def test_waiting_for_nothing_is_an_error(driver: Driver, store: Store) -> None:
    with pytest.raises(CheckpointNotFound):
        wait(driver, store, "run_nobody", timeout=1)

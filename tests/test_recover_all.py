"""Every worker may ask, at start and now and then, what lost workers have left; what is found is carried on once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE, STORES, Around, Driver, decide_first, open_kind, run
from places import Place
from pydantic import BaseModel

from phronomy import Agent, Checkpoint, ConfigurationError, ModelError, interrupt, tool
from phronomy.errors import CheckpointNotFound, RunFailed, StoreError, WaitTimeout
from phronomy.graph import END, START, StateGraph
from phronomy.records.decisions import Approve, Reject, Respond
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call, say


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


class Leaves(Around):
    """Whoever waits for the write of this number leaves just as it is stored: by Ctrl-C, or because the task is cancelled."""

    at = 0
    writes = 0
    leave: Callable[[], None]

    def append(self, change: Append) -> Branch:
        after = super().append(change)
        self.writes += 1
        if self.writes == self.at:
            self.leave()
        return after


def leaving(driver: Driver, store: Leaves, work: Callable[[], Any]) -> bool:
    """Whether whoever did this left."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work())
        store.leave = lambda: (loop.call_soon_threadsafe(task.cancel), None)[1]
        await task

    try:
        if driver.is_async:
            run(main())
        else:
            store.leave = interrupt
            work()
    except (KeyboardInterrupt, asyncio.CancelledError):
        return True
    return False


def test_a_run_whose_caller_leaves_in_a_write_is_found_or_stands_as_failed(driver: Driver, place: Place) -> None:
    """It never stands as one that is gone through step by step: nobody would look for that."""
    at, stood = 1, set()
    while True:
        store = Leaves(place.open(tenant=f"leaves {at}"))
        desk = Desk(driver, store)
        desk.agent.model = ScriptedModel.by_turn([[call("refund", {"order": n}) for n in (1, 2)], "Done."])
        invoke, resume = (getattr(desk.agent, ("a" if driver.is_async else "") + name) for name in ("invoke", "resume"))
        store.at = at
        left = leaving(driver, store, partial(invoke, "Refund both"))
        for _ in () if left else range(2):
            asked = store.head(store.branches()[0].id)[1]
            left = left or leaving(driver, store, partial(resume, asked, decisions={asked.pending[0].id: Approve()}))
        if not left:
            break
        at += 1
        (branch,) = store.branches()
        stood.add(branch.status)
        if branch.status == "running":
            assert [each.run_id for each in driver.call(desk.agent, "recover_all")] == [branch.id]
        if store.branches()[0].status == "failed":
            driver.resume(desk.agent, store.head(branch.id)[1])
        while waiting := store.pending():
            answer = Respond(content="It was made.") if waiting[0].approval.why == "outcome_unknown" else Approve()
            driver.resume(desk.agent, waiting[0].checkpoint_id, decisions={waiting[0].approval.id: answer})
        assert store.branches()[0].status == "completed" and len(desk.done) <= 2
    assert at > 4 and stood >= {"failed", "running", "suspended"}


class Told(BaseModel):
    """The state of a graph that pays."""

    told: str = ""


class Counter:
    """A desk whose one tool, or node, needs an approval, or asks, or is an agent that needs an approval; it notes what was paid."""

    def __init__(self, driver: Driver, store: Store, kind: str) -> None:
        self.driver = driver
        self.store = store
        self.kind = kind
        self.paid: list[int] = []

        def pay(order: int) -> str:
            """Pay an order."""
            if kind == "question" and interrupt("Pay it?") is not True:
                return "not paid"
            self.paid.append(order)
            return f"paid {order}"

        gated = tool(requires_approval=kind != "question", idempotent=True)(driver.function(pay))
        self.agent: Any = self.of("desk", gated, [call("pay", {"order": 1042}), "Done."])
        if kind == "graph":
            node = driver.function(lambda state: {"told": pay(1042)})
            graph = StateGraph(Told).add_node("pay", node, requires_approval=True, idempotent=True)
            self.agent = graph.add_edge(START, "pay").add_edge("pay", END).compile(name="desk", store=store)
        if kind == "nested":
            self.agent = self.of("front", self.agent.as_tool(), [call("desk", {"input": "Pay 1042"}), "Over."])

    def of(self, name: str, tool: Any, replies: list[Any]) -> Agent[Any, Any]:
        return Agent(name=name, model=ScriptedModel.by_turn(replies), tools=[tool], store=self.store)

    def asked(self) -> Checkpoint:
        return self.driver.invoke(self.agent, {} if self.kind == "graph" else "Pay 1042").checkpoint

    def watched(self, at: Checkpoint, events: int) -> bool:
        """Approve, and leave after so many events of what follows: whether there were as many."""
        return self.driver.watched(self.agent, at, events, decisions=decide_first(at), by="ann")

    def check(self) -> None:
        """What was approved is carried out by whoever recovers, once, whatever was told to nobody; and nothing else is."""
        (branch,) = self.store.branches()
        self.driver.call(self.agent, "recover_all")
        approved = [line.by.id for line in self.store.audit() if line.by is not None]
        assert (approved, set(self.paid)) in ((["ann"], {1042}), ([], set())), branch
        assert self.driver.call(self.agent, "recover_all") == []


KINDS = ["approval", "question", "nested", "graph"]


@pytest.mark.product
@pytest.mark.few(8)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_approved_is_carried_out_though_its_caller_left_in_any_write(
    driver: Driver, place: Place, kind: str
) -> None:
    at, left = 0, True
    while left:
        at += 1
        store = Leaves(place.open(tenant=f"approved {at}"))
        desk = Counter(driver, store, kind)
        asked = desk.asked()
        store.at = store.writes + at
        resume = desk.agent.aresume if driver.is_async else desk.agent.resume
        left = leaving(driver, store, partial(resume, asked, approved=True, by="ann"))
        store.at = 0
        desk.check()
    assert at > 2


@pytest.mark.product
@pytest.mark.few(8)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_approved_is_carried_out_though_its_caller_left_at_any_event(
    driver: Driver, place: Place, kind: str
) -> None:
    at, left, stood = 0, True, set()
    while left:
        at += 1
        desk = Counter(driver, place.open(tenant=f"watched {at}"), kind)
        left = desk.watched(desk.asked(), at)
        (branch,) = desk.store.branches()
        stood.add(branch.status)
        assert branch.owner is None, "whoever leaves lets the run go: it can be resumed at once"
        desk.check()
    assert at > 3 and stood >= {"running", "completed"}


def test_whoever_left_may_resume_at_once_and_what_was_left_twice_is_found(driver: Driver, place: Place) -> None:
    desk = Counter(driver, place.open(), "approval")
    asked = desk.asked()
    assert desk.watched(asked, 1) and desk.paid == []
    head = desk.store.head(asked.branch_id)[1]
    assert driver.resume(desk.agent, head).output == "Done."
    assert (desk.paid, driver.call(desk.agent, "recover_all")) == ([1042], [])


def test_an_approved_run_that_failed_or_was_cancelled_does_not_come_back(driver: Driver, place: Place) -> None:
    """Whoever carried it on was told; what its caller left and somebody then cancelled is cancelled."""

    def down() -> None:
        raise StoreError("down")

    store = Leaves(place.open(tenant="failed"))
    desk = Counter(driver, store, "approval")
    asked = desk.asked()
    store.at, store.leave = store.writes + 1, down
    with pytest.raises(StoreError):
        driver.resume(desk.agent, asked, approved=True, by="ann")
    assert [(branch.status, branch.owner) for branch in store.branches()] == [("failed", None)]
    assert [line.kind for line in store.audit()] == ["approve"]
    assert (driver.call(desk.agent, "recover_all"), desk.paid) == ([], [])

    desk = Counter(driver, place.open(tenant="cancelled"), "approval")
    asked = desk.asked()
    assert desk.watched(asked, 1)
    assert desk.store.branches()[0].status == "running"
    assert driver.cancel(desk.agent, asked.run_id).status == "cancelled"
    assert (driver.call(desk.agent, "recover_all"), desk.paid) == ([], [])


def test_of_two_that_wait_the_approved_one_is_carried_out_and_the_other_goes_on_waiting(
    driver: Driver, place: Place
) -> None:
    desk = Counter(driver, place.open(), "approval")
    desk.agent.model = ScriptedModel.by_turn([[call("pay", {"order": n}) for n in (1042, 1043)], "Done."])
    asked = desk.asked()
    assert desk.watched(asked, 1)
    (found,) = driver.call(desk.agent, "recover_all")
    assert (found.result.status, desk.paid) == ("suspended", [1042])
    assert [item.id for item in found.result.checkpoint.pending] == [asked.pending[1].id]
    assert driver.call(desk.agent, "recover_all") == []


def test_a_recovery_that_is_interrupted_before_it_began_leaves_what_was_approved_to_the_next(
    driver: Driver, place: Place
) -> None:
    now = [1_800_000_000.0]
    plain = place.open(clock=lambda: now[0])
    first = Counter(driver, plain, "approval")
    assert first.watched(first.asked(), 1)
    store = Leaves(plain)
    desk = Counter(driver, store, "approval")
    store.at = 1
    assert leaving(driver, store, desk.agent.arecover_all if driver.is_async else desk.agent.recover_all)
    now[0] += plain.lease + 1
    (found,) = driver.call(first.agent, "recover_all")
    assert (found.result.output, first.paid, desk.paid) == ("Done.", [1042], [])


def test_a_recovery_that_fails_tells_whoever_recovers_and_is_not_repeated(driver: Driver, place: Place) -> None:
    store = place.open()
    desk = Counter(driver, store, "approval")
    assert desk.watched(desk.asked(), 1)
    worker = Counter(driver, store, "approval")
    worker.agent.model = ScriptedModel([ConnectionError("away")])
    (found,) = driver.call(worker.agent, "recover_all")
    assert (type(found.error), worker.paid) == (ModelError, [1042])
    assert driver.call(worker.agent, "recover_all") == []

"""Dispatch: whoever decides, or whose run stops, tells workers of it; and a worker carries out the one run that it was told of."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE, Driver
from places import Place
from servers import postgres_url
from test_workers import NEVER, Desk, decide, working

from phronomy import Agent, Approve, MemoryStore, tool
from phronomy.errors import CheckpointNotFound, ConfigurationError, ModelError
from phronomy.stores import LocalDispatch
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker

ENGINE = Path(__file__).parent / "dispatch_engine.py"


class Told:
    """A dispatch that notes what it is told, and what is in the store by then."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.woken: list[str] = []
        self.decided: list[str] = []
        self.times: list[tuple[datetime, str]] = []
        store.dispatch = self

    def wake(self, run_id: str) -> None:
        self.woken.append(run_id)
        self.decided += [branch.run_id for branch in self.store.decided()]

    def at(self, time: datetime, run_id: str) -> None:
        self.times.append((time, run_id))


class Faulty:
    """A dispatch that loses whatever it is told, and raises."""

    def wake(self, run_id: str) -> None:
        raise ConnectionError("password=hunter2")

    def at(self, time: datetime, run_id: str) -> None:
        raise ConnectionError("password=hunter2")


@pytest.fixture
def desk(place: Place) -> Desk:
    return Desk(place)


def due(store: Store, *lasts: float | None) -> Agent[Any, str]:
    """An agent that asks for a decision on a call for each of these seconds, by which it is to be made."""
    names = [f"pay_{number}" for number in range(len(lasts))]

    def pay() -> str:
        """Pay."""
        return "paid"

    tools = [
        tool(requires_approval=True, approval_timeout=each, name=name)(pay)
        for each, name in zip(lasts, names, strict=True)
    ]
    model = ScriptedModel.by_turn([[call(name) for name in names], "Done."])
    return Agent(name="desk", model=model, tools=tools, store=store)


# Who tells


def test_whoever_decides_tells_it_once_it_is_stored(driver: Driver, desk: Desk) -> None:
    (pending_id,) = desk.asked(desk.agent(), 1)
    store = desk.place.open()
    told = Told(store)
    shown = store.request(pending_id)
    options: dict[str, Any] = {"by": "rita", "digest": shown.approval.digest, "key": "k-1"}
    found = driver.call(store, "decide", pending_id, Approve(), **options)  # type: ignore[arg-type]
    assert (told.woken, told.decided, told.times) == ([found.run_id], [found.run_id], [])
    driver.call(store, "decide", pending_id, Approve(), **options)  # type: ignore[arg-type]
    assert told.woken == [found.run_id], "the second time nothing was recorded"


def test_whoever_stops_at_requests_tells_when_they_expire(driver: Driver, place: Place) -> None:
    now = 1_800_000_000.0
    store = place.open(clock=lambda: now)
    told = Told(store)
    asked = driver.invoke(due(store, 60.0, None, 30.0, 60.0), "Pay").checkpoint
    times = [(datetime.fromtimestamp(now + each, UTC), asked.run_id) for each in (30.0, 60.0)]
    assert (told.woken, told.times) == ([], times)
    store.fork(asked.id)
    assert told.times == times * 2
    place.open(tenant="other", clock=lambda: now).save(asked)
    assert told.times == times * 2, "that store has a dispatch of its own"
    other = place.open(tenant="third", clock=lambda: now)
    saved = Told(other)
    other.save(asked)
    assert saved.times == times
    assert driver.invoke(due(store), "Pay").status == "completed"
    assert driver.invoke(due(store, None), "Pay").status == "suspended"
    assert (told.woken, told.times) == ([], times * 2)


def test_a_worker_that_leaves_a_run_for_another_try_tells_when(desk: Desk) -> None:
    now = 1_800_000_000.0
    away = True

    def reply(request: Any) -> Any:
        return (
            ModelError("the provider is away") if away and request.messages[-1].role == "tool" else desk.reply(request)
        )

    (pending_id,) = desk.asked(desk.agent(), 1)
    store = desk.place.open(lease=2.0, clock=lambda: now)
    told = Told(store)
    run_id = decide(store, pending_id)
    worker = Worker(desk.agent(model=ScriptedModel(reply), store=store), retry_wait=7.0, tries=2)
    for wait, aside in ((7, 0), (300, 1)):
        (done,) = asyncio.run(worker.carry_out(run_id))
        assert type(done.error) is ModelError
        assert told.times == [(datetime.fromtimestamp(now + wait, UTC), run_id)]
        assert len(worker.health().set_aside) == aside
        told.times.clear()
    away = False
    (done,) = asyncio.run(worker.carry_out(run_id))
    assert (done.result.output, told.times, desk.paid) == ("Done.", [], {1: 1})
    assert worker.health().set_aside == ()


def test_a_worker_that_leaves_a_run_in_the_middle_has_another_woken(desk: Desk) -> None:
    store = desk.place.open(lease=2.0)
    (pending_id,) = desk.asked(desk.agent(store=store), 1)
    told = Told(store)
    desk.go_on.clear()

    async def main() -> None:
        worker = Worker(desk.agent(store=store), poll=NEVER)
        working = asyncio.ensure_future(worker.arun(grace=0.0))
        assert await asyncio.to_thread(desk.entered.wait, PATIENCE)
        worker.stop()
        await working

    run_id = decide(store, pending_id)
    asyncio.run(main())
    desk.go_on.set()
    assert told.woken == [run_id, run_id]


# What goes wrong


def test_a_dispatch_that_loses_everything_and_raises_changes_nothing(
    driver: Driver, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Each decision stands, each stop too, and a worker finds all of it by looking."""
    store = desk.place.open(lease=2.0)
    store.dispatch = Faulty()
    agent = desk.agent(store=store)
    with caplog.at_level(logging.WARNING, logger="phronomy"):
        pending_ids = desk.asked(agent, 1, 2, 3)
        assert driver.invoke(due(store, NEVER), "Pay").status == "suspended"
        runs = [decide(store, pending_id) for pending_id in pending_ids]
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"dispatch Faulty raised ConnectionError in {each}" for each in ("at", "wake", "wake", "wake")]
    assert "hunter2" not in caplog.text
    with working(Worker(agent, poll=0.01)):
        assert {store.wait(run_id, timeout=PATIENCE).ended for run_id in runs} == {"completed"}
    assert desk.paid == {1: 1, 2: 1, 3: 1}


def test_what_is_no_dispatch_is_told_in_the_log_and_the_decision_stands(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    class Late:
        async def wake(self, run_id: str) -> None:
            raise AssertionError

    agent = desk.agent()
    first, second = desk.asked(agent, 1, 2)
    with caplog.at_level(logging.WARNING, logger="phronomy"):
        for each, wrong in ((first, Late()), (second, None)):
            agent.store.dispatch = wrong  # type: ignore[assignment]
            decide(agent.store, each)
    assert [record.getMessage() for record in caplog.records] == [
        "Late.wake is async, so nobody was told: a dispatch has sync methods",
        "dispatch NoneType raised AttributeError in wake",
    ]
    assert len(agent.store.decided()) == 2


def test_a_lease_that_cannot_be_renewed_keeps_nobody_from_deciding(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever decides has the store renew what its process drives, so that this is heard there at once."""
    agent = desk.agent()
    (pending_id,) = desk.asked(agent, 1)

    class Away:
        def keep(self) -> None:
            raise ConnectionError

    away = Away()
    agent.store.keeper.hold(away)
    try:
        decide(agent.store, pending_id)
    finally:
        agent.store.keeper.drop(away)
    assert len(agent.store.decided()) == 1


# Within one process


def test_by_default_a_worker_settles_a_request_when_it_expires_and_not_at_its_next_look(place: Place) -> None:
    store = place.open()
    agent = due(store, 0.3)
    with working(Worker(agent, poll=NEVER)):
        run_id = agent.invoke("Pay").run_id
        assert store.wait(run_id, timeout=PATIENCE).ended == "completed"
    (line,) = store.audit(run_id=run_id)
    assert line.kind == "expire"


def test_a_run_that_failed_is_tried_again_in_time_and_not_at_the_next_look(desk: Desk) -> None:
    tries = iter([ConnectionError("the provider is away")] * 2)

    def reply(request: Any) -> Any:
        return next(tries, "Done.") if request.messages[-1].role == "tool" else desk.reply(request)

    agent = desk.agent(model=ScriptedModel(reply))
    (pending_id,) = desk.asked(agent, 1)
    with working(Worker(agent, poll=NEVER, retry_wait=0.05)):
        run_id = decide(agent.store, pending_id)
        assert agent.store.wait(run_id, timeout=PATIENCE).ended == "completed"


def test_a_subclass_tells_its_own_process_and_others(desk: Desk) -> None:
    class Both(LocalDispatch):
        def __init__(self) -> None:
            super().__init__()
            self.sent: list[str] = []

        def wake(self, run_id: str) -> None:
            self.sent.append(run_id)
            super().wake(run_id)

    agent = desk.agent()
    (pending_id,) = desk.asked(agent, 1)
    agent.store.dispatch = both = Both()
    with working(Worker(agent, poll=NEVER)):
        run_id = decide(agent.store, pending_id)
        assert agent.store.wait(run_id, timeout=PATIENCE).ended == "completed"
    assert both.sent == [run_id]
    assert both._listeners == {}, "a worker that has stopped hears nothing more"


def test_a_forked_child_wakes_none_of_its_parents_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    local = store.dispatch
    assert isinstance(local, LocalDispatch)
    told = Told(MemoryStore())
    local.listen(told)
    monkeypatch.setattr("phronomy.stores.dispatch.os.getpid", lambda: -1)
    local.wake("run_1")
    assert told.woken == []


# One run by its id


def test_a_worker_carries_out_the_one_run_that_it_is_told_of(desk: Desk) -> None:
    first, second = desk.asked(desk.agent(), 1, 2)
    store = desk.place.open()
    one, other = decide(store, first), decide(store, second)
    worker = Worker(desk.agent())
    (done,) = asyncio.run(worker.carry_out(other))
    assert (done.run_id, done.result.output, desk.paid) == (other, "Done.", {2: 1})
    assert [branch.run_id for branch in store.decided()] == [one]
    assert asyncio.run(worker.carry_out(other)) == []
    health = worker.health()
    assert (health.carried_out, health.failures, health.at_work) == (1, 0, 0)
    assert desk.paid == {2: 1}


def test_the_forks_of_a_run_are_carried_out_with_it(desk: Desk) -> None:
    agent = desk.agent()
    (pending_id,) = desk.asked(agent, 1)
    store = desk.place.open()
    fork = store.fork(store.request(pending_id).checkpoint_id)
    run_id = decide(store, pending_id)
    assert decide(store, fork.pending[0].id) == run_id
    done = asyncio.run(Worker(desk.agent()).carry_out(run_id))
    assert sorted(each.branch_id for each in done) == sorted([run_id, fork.branch_id])
    assert [each.result.status for each in done] == ["completed"] * 2


def test_a_run_that_waits_or_that_somebody_steps_through_is_left_alone(desk: Desk) -> None:
    agent = desk.agent()
    (pending_id,) = desk.asked(agent, 1)
    run_id = agent.store.request(pending_id).run_id
    stepped = agent.step("2").run_id
    worker = Worker(desk.agent())
    assert asyncio.run(worker.carry_out(run_id)) == asyncio.run(worker.carry_out(stepped)) == []
    assert desk.paid == {}


def test_told_twice_on_two_machines_a_run_is_carried_out_once(desk: Desk) -> None:
    (pending_id,) = desk.asked(desk.agent(), 1)
    run_id = decide(desk.place.open(), pending_id)
    desk.go_on.clear()
    workers = [Worker(desk.agent()), Worker(desk.agent())]
    done: list[Any] = []

    def carry_out(worker: Worker) -> None:
        done.extend(asyncio.run(worker.carry_out(run_id)))

    threads = [threading.Thread(target=carry_out, args=(each,)) for each in (*workers, *workers)]
    for thread in threads:
        thread.start()
    assert desk.entered.wait(PATIENCE)
    desk.go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    # Somebody who looked a moment before it ended is told of the same end.
    assert ({each.result.output for each in done}, desk.paid) == ({"Done."}, {1: 1})


def test_of_a_run_that_another_worker_holds_the_engine_is_told_when_its_lease_is_over(desk: Desk) -> None:
    """That one may be gone: an engine that has done its job does not come back by itself."""
    (pending_id,) = desk.asked(desk.agent(), 1)
    run_id = decide(desk.place.open(), pending_id)
    desk.go_on.clear()
    holder = threading.Thread(target=lambda: asyncio.run(Worker(desk.agent()).carry_out(run_id)))
    holder.start()
    assert desk.entered.wait(PATIENCE)
    store = desk.place.open()
    told = Told(store)
    try:
        assert asyncio.run(Worker(desk.agent(store=store)).carry_out(run_id)) == []
        ((time, told_of),) = told.times
        (branch,) = store.branches(run_id=run_id)
        assert told_of == run_id
        assert datetime.fromtimestamp(store.clock(), UTC) < time <= datetime.fromtimestamp(branch.lease_until or 0, UTC)
    finally:
        desk.go_on.set()
        holder.join(PATIENCE)
    assert asyncio.run(Worker(desk.agent(store=store)).carry_out(run_id)) == []
    assert (len(told.times), desk.paid) == (1, {1: 1})


def test_a_run_that_a_worker_cannot_carry_out_is_refused_and_left_for_another(desk: Desk) -> None:
    (pending_id,) = desk.asked(desk.agent("north"), 1)
    run_id = decide(desk.place.open(), pending_id)
    worker = Worker([desk.agent("south"), desk.agent("west")])
    with pytest.raises(ConfigurationError, match=f"run {run_id} is of north, which this worker does not have"):
        asyncio.run(worker.carry_out(run_id))
    with pytest.raises(CheckpointNotFound, match="the stores of this worker know no run run_0"):
        asyncio.run(worker.carry_out("run_0"))
    assert (worker.health().failures, desk.place.open().branches()[0].status) == (0, "suspended")
    worker.stop()
    with pytest.raises(ConfigurationError, match="this worker was stopped, so it takes up nothing"):
        asyncio.run(worker.carry_out(run_id))
    (done,) = asyncio.run(Worker(desk.agent("north")).carry_out(run_id))
    assert done.result.output == "Done."


# An engine between processes


@contextmanager
def worker_process(*arguments: str) -> Iterator[Any]:
    """A worker that waits for what the engine tells it; gives its lines."""
    command = [sys.executable, str(ENGINE), "work", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "listening\n"
            yield process.stdout
        finally:
            process.kill()


@pytest.mark.unmeasured
@pytest.mark.parametrize("place", ["sqlite", "postgres", "redis"], indirect=True)
@pytest.mark.few(2)
def test_only_an_engine_between_processes_can_have_woken_a_worker_that_does_not_look(
    place: Place, tmp_path: Path
) -> None:
    """A decider, an app and a worker, each in a process of its own; the worker looks every ten hours."""
    shared = (place.url, postgres_url(), f"engine_{tmp_path.name}")

    def one_line(role: str, *rest: str) -> str:
        command = [sys.executable, str(ENGINE), role, *shared, *rest]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return done.stdout.strip()

    pending_id = one_line("ask", "pay 7")
    with worker_process(*shared) as told:
        run_id = one_line("decide", pending_id)
        assert told.readline() == f"{run_id} 1\n"
        store = place.open()
        head = store.wait(run_id, timeout=PATIENCE)
        assert (head.ended, head.output) == ("completed", "The desk says: paid 7")

        # Nobody decides: the run goes on when its time is over.
        late = store.request(one_line("ask", "hurry 8")).run_id
        assert told.readline() == f"{late} 1\n"
        head = store.wait(late, timeout=PATIENCE)
        assert head.ended == "completed"
        assert [line.kind for line in store.audit(run_id=late)] == ["expire"]

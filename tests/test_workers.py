"""Workers: loops that carry out, in a process of their own, what was decided elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from drivers import PATIENCE, until
from places import Place
from stop_scenes import elsewhere

from phronomy import Agent, Approve, MemoryStore, Reject, tool
from phronomy.errors import AgentChanged, AsyncRequired, ConfigurationError, ModelError, StoreError
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker
from phronomy.workers import worker as module

NEVER = 3600.0
"""Seconds between two looks of a worker that is to find nothing by looking."""


class Desk:
    """Pays orders. Each `agent` is that of a process of its own."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.paid: Counter[int] = Counter()
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def agent(self, name: str = "desk", *, model: Any = None, store: Store | None = None) -> Agent[Any, str]:
        @tool(requires_approval=True)
        def pay(order: int) -> str:
            """Pay an order."""
            self.entered.set()
            assert self.go_on.wait(PATIENCE)
            self.paid[order] += 1
            return f"paid {order}"

        said = model or ScriptedModel(self.reply)
        return Agent(name=name, model=said, tools=[pay], store=store or self.place.open(lease=2.0))

    def reply(self, request: Any) -> Any:
        """The model: asks to pay the order that the user names, and then is done."""
        said = request.messages[-1]
        return call("pay", {"order": int(said.text)}) if said.role == "user" else "Done."

    def asked(self, agent: Agent[Any, str], *orders: int) -> list[str]:
        """The pending ids of runs that wait, one for each order."""
        return [agent.invoke(str(order)).checkpoint.pending[0].id for order in orders]


@pytest.fixture
def desk(place: Place) -> Desk:
    return Desk(place)


def decide(store: Store, pending_id: str, answer: Any = None) -> str:
    """Decide with the store alone, and give the id of the run."""
    digest = store.request(pending_id).approval.digest
    return store.decide(pending_id, answer or Approve(), by="rita", digest=digest).run_id


@contextmanager
def working(*workers: Worker, **options: Any) -> Iterator[None]:
    """The workers at work, each in a thread of its own, until the block ends."""
    threads = [threading.Thread(target=each.run, kwargs=options, daemon=True) for each in workers]
    for thread in threads:
        thread.start()
    try:
        # Of a time at which something is to be done, a worker hears only while it listens.
        until(lambda: all(each.health().status != "starting" for each in workers))
        yield
    finally:
        for each in workers:
            each.stop()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_a_worker_carries_out_at_once_what_was_decided_with_its_store(desk: Desk) -> None:
    agent = desk.agent()
    (pending_id,) = desk.asked(agent, 7)
    worker = Worker(agent, poll=NEVER)
    assert worker.health().status == "starting"
    with working(worker):
        run_id = decide(agent.store, pending_id)
        assert agent.store.wait(run_id, timeout=PATIENCE).ended == "completed"
    health = worker.health()
    assert (health.status, health.carried_out, health.failures, health.at_work) == ("stopped", 1, 0, 0)
    assert desk.paid == {7: 1}


def test_a_worker_finds_by_looking_what_was_decided_in_another_process(desk: Desk) -> None:
    pending_ids = desk.asked(desk.agent(), 1, 2)
    with working(Worker(desk.agent(), poll=0.01)):
        other = desk.place.open()
        runs = [decide(other, pending_ids[0]), decide(other, pending_ids[1], Reject(reason="no"))]
        assert [other.wait(run_id, timeout=PATIENCE).ended for run_id in runs] == ["completed", "completed"]
    assert desk.paid == {1: 1}
    assert desk.place.open().decided() == []


def test_several_workers_share_what_was_decided_and_nothing_runs_twice(desk: Desk) -> None:
    orders = range(24)
    pending_ids = desk.asked(desk.agent(), *orders)
    store = desk.place.open()
    runs = [decide(store, pending_id) for pending_id in pending_ids]
    with working(*(Worker(desk.agent(), poll=0.01, concurrency=3) for _ in range(4))):
        assert {store.wait(run_id, timeout=PATIENCE).ended for run_id in runs} == {"completed"}
    assert desk.paid == dict.fromkeys(orders, 1)


def test_a_worker_does_not_look_again_after_each_of_many_runs(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look reads all that is to be done: one after each run would take longer the more there is."""
    agent = desk.agent()
    orders = range(30)
    runs = [decide(agent.store, pending_id) for pending_id in desk.asked(agent, *orders)]
    looks: list[int] = []
    found = module.recovery.found

    def counted(*given: Any) -> Any:
        places = found(*given)
        looks.append(len(places))
        return places

    monkeypatch.setattr(module.recovery, "found", counted)
    with working(Worker(agent, poll=NEVER, concurrency=2)):
        assert {agent.store.wait(run_id, timeout=PATIENCE).ended for run_id in runs} == {"completed"}
    assert desk.paid == dict.fromkeys(orders, 1)
    assert looks[0] == 30
    assert len(looks) <= 4, "the first, one for each place that became free in the end, and one that was woken"


def test_a_worker_serves_several_agents_each_with_its_own_tools(desk: Desk) -> None:
    store = desk.place.open()
    agents = [desk.agent(name, store=store) for name in ("north", "south")]
    pending_ids = [desk.asked(agent, order)[0] for agent, order in zip(agents, (1, 2), strict=True)]
    with working(Worker(agents, poll=NEVER)):
        for run_id in [decide(store, pending_id) for pending_id in pending_ids]:
            assert store.wait(run_id, timeout=PATIENCE).ended == "completed"
    assert desk.paid == {1: 1, 2: 1}


def test_a_worker_that_is_stopped_lets_what_runs_come_to_rest_and_begins_nothing(desk: Desk) -> None:
    agent = desk.agent()
    first, second = desk.asked(agent, 1, 2)
    desk.go_on.clear()
    worker = Worker(agent, poll=NEVER, concurrency=1)
    with elsewhere(worker.run) as done:
        run_id = decide(agent.store, first)
        assert desk.entered.wait(PATIENCE)
        worker.stop()
        decide(agent.store, second)
        desk.go_on.set()
        done.result(PATIENCE)
    assert (desk.paid, agent.store.head(run_id)[1].ended) == ({1: 1}, "completed")
    assert len(agent.store.decided()) == 1, "that is for the next worker"


def test_what_still_runs_after_the_grace_is_left_and_the_next_worker_recovers_it(desk: Desk) -> None:
    agent = desk.agent()
    (pending_id,) = desk.asked(agent, 1)
    desk.go_on.clear()
    worker = Worker(agent, poll=NEVER)
    with elsewhere(lambda: worker.run(grace=0.0)) as done:
        run_id = decide(agent.store, pending_id)
        assert desk.entered.wait(PATIENCE)
        worker.stop()
        done.result(PATIENCE)
        desk.go_on.set()
    store = desk.place.open(lease=2.0)
    with working(Worker(desk.agent(), poll=0.05)):
        head = store.wait(run_id, timeout=PATIENCE, stops=True)
    assert desk.paid == {1: 1}
    assert head.ended == "completed" or head.pending[0].why == "outcome_unknown"


def test_a_run_that_fails_again_and_again_is_set_aside_and_carried_out_once_it_is_mended(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONGEST", 0.05)
    broken = threading.Event()

    def reply(request: Any) -> Any:
        if broken.is_set() and request.messages[-1].role == "tool":
            return ConnectionError("the provider is away, and says token=hunter2")
        return desk.reply(request)

    agent = desk.agent(model=ScriptedModel(reply))
    (pending_id,) = desk.asked(agent, 1)
    broken.set()
    worker = Worker(agent, poll=0.01, retry_wait=0.01, tries=3)
    with working(worker):
        run_id = decide(agent.store, pending_id)
        while not worker.health().set_aside:
            pass
        (aside,) = worker.health().set_aside
        assert (aside.run_id, aside.agent, aside.tries) == (run_id, "desk", 3)
        assert "ConnectionError" in aside.error
        assert "hunter2" not in aside.error
        (branch,) = agent.store.branches(run_id=run_id)
        assert branch.status in ("failed", "running"), "it is tried now and then"
        broken.clear()
        assert agent.store.wait(run_id, timeout=PATIENCE).ended == "completed"
    assert worker.health().set_aside == ()
    assert desk.paid == {1: 1}, "the call had settled, and is not run again"


def test_a_run_that_failed_is_taken_up_by_the_next_worker_too(desk: Desk) -> None:
    """The first one was stopped, or died: what it has noted of tries is gone with it."""
    away = threading.Event()
    away.set()

    def reply(request: Any) -> Any:
        if away.is_set() and request.messages[-1].role == "tool":
            return ConnectionError("the provider is away")
        return desk.reply(request)

    (pending_id,) = desk.asked(desk.agent(), 1)
    run_id = decide(desk.place.open(), pending_id)
    first = Worker(desk.agent(model=ScriptedModel(reply)), retry_wait=NEVER)
    (done,) = asyncio.run(first.once())
    assert (type(done.error), first.health().failures) == (ModelError, 1)
    assert [branch.id for branch in desk.place.open().decided()] == [run_id]
    away.clear()
    (done,) = asyncio.run(Worker(desk.agent(model=ScriptedModel(reply))).once())
    assert done.result.output == "Done."
    assert (desk.paid, desk.place.open().decided()) == ({1: 1}, [])


def test_a_call_that_failed_and_may_have_taken_effect_is_not_run_again_by_itself(desk: Desk) -> None:
    entered: list[int] = []

    @tool(requires_approval=True, on_failure="stop")
    def wire(order: int) -> str:
        """Pay by wire."""
        entered.append(order)
        raise TimeoutError("no answer from the bank")

    def agent() -> Agent[Any, str]:
        model = ScriptedModel.by_turn([call("wire", {"order": 1}), "Done."])
        return Agent(name="desk", model=model, tools=[wire], store=desk.place.open(lease=2.0))

    (item,) = agent().invoke("Pay").checkpoint.pending
    run_id = decide(desk.place.open(), item.id)
    worker = Worker(agent(), poll=0.01, retry_wait=0.01)
    with working(worker):
        while not worker.health().set_aside:
            pass
        (aside,) = worker.health().set_aside
        assert (aside.run_id, aside.tries) == (run_id, 1)
    asyncio.run(Worker(agent()).once())
    assert entered == [1]
    assert [branch.status for branch in desk.place.open().branches(run_id=run_id)] == ["failed"]


def test_an_agent_that_has_changed_is_told_and_carries_it_out_once_that_is_accepted(desk: Desk) -> None:
    (pending_id,) = desk.asked(desk.agent(), 1)
    run_id = decide(desk.place.open(), pending_id)
    bare = Agent(name="desk", model=ScriptedModel(["Done."]), store=desk.place.open(lease=2.0))
    worker = Worker(bare, tries=1)
    (done,) = asyncio.run(worker.once())
    assert isinstance(done.error, AgentChanged)
    (aside,) = worker.health().set_aside
    assert aside.error == str(done.error)
    assert [branch.status for branch in desk.place.open().branches(run_id=run_id)] == ["failed"]
    (done,) = asyncio.run(Worker(bare, accept_changes=True).once())
    assert (done.result.status, desk.paid) == ("completed", {})
    assert "There is no tool named 'pay' any more. Nothing was run." in [each.text for each in done.result.messages]


def test_what_is_told_of_a_run_changes_nothing_of_it(desk: Desk) -> None:
    told: list[Any] = []

    def heard(done: Any) -> None:
        told.append(done)
        raise ZeroDivisionError

    (pending_id,) = desk.asked(desk.agent(), 1)
    decide(desk.place.open(), pending_id)
    worker = Worker(desk.agent(), heard=heard)
    asyncio.run(worker.once())
    assert [done.result.output for done in told] == ["Done."]
    assert (worker.health().carried_out, worker.health().failures) == (1, 0)


def test_a_worker_runs_once_and_in_no_loop_but_its_own(desk: Desk) -> None:
    worker = Worker(desk.agent(), poll=NEVER)
    with working(worker):
        pass
    with pytest.raises(ConfigurationError, match="a worker runs once: make another one"):
        worker.run()

    async def inside() -> None:
        Worker(desk.agent()).run()

    with pytest.raises(AsyncRequired, match=r"await worker\.arun"):
        asyncio.run(inside())


def test_a_run_that_has_ended_or_waits_meanwhile_is_not_written_over(desk: Desk) -> None:
    """A worker may be slow to note that its try failed, and another has carried the run on since."""
    store = desk.place.open()
    agent = desk.agent(store=store)
    (waits,) = desk.asked(agent, 1)
    (done,) = desk.asked(agent, 2)
    run_id = decide(store, done)
    agent.recover_all()
    places = [(row.run_id, row.branch_id) for row in store.pending_rows()] + [(run_id, run_id)]
    for place in places:
        for final in (True, False):
            module.leave(store, place, final)
    module.leave(store, ("run_0", "run_0"), True)
    assert [branch.status for branch in store.branches()] == ["suspended", "completed"]
    assert store.decided() == []
    assert store.request(waits).status == "pending"


def test_a_run_that_somebody_else_drives_is_looked_at_no_more_often_than_any(desk: Desk) -> None:
    store = desk.place.open(lease=30.0)
    agent = desk.agent(store=store)
    (pending_id,) = desk.asked(agent, 1)
    desk.go_on.clear()
    looks: list[Any] = []
    other = desk.agent(store=desk.place.open(lease=30.0))
    with elsewhere(lambda: agent.resume(store.request(pending_id).checkpoint_id, approved=True)) as driven:
        assert desk.entered.wait(PATIENCE)
        worker = Worker(other, poll=0.05)
        found = module.recovery.found

        def counted(*given: Any) -> Any:
            looks.append(given)
            return [*found(*given), (store.branches()[0].run_id, store.branches()[0].id)]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module.recovery, "found", counted)
            with working(worker):
                while len(looks) < 5:
                    pass
                seconds = worker.health().last_look
        assert seconds is not None
        desk.go_on.set()
        assert driven.result(PATIENCE).status == "completed"
    assert (desk.paid, worker.health().failures) == ({1: 1}, 0)


def test_a_worker_whose_store_is_away_says_so_and_looks_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = desk.agent()
    (pending_id,) = desk.asked(agent, 1)
    select = agent.store.select_branches
    away = threading.Event()
    away.set()

    def faulty(wanted: Any) -> Any:
        if away.is_set():
            raise StoreError("the database cannot be reached")
        return select(wanted)

    worker = Worker(agent, poll=0.01)
    run_id = decide(agent.store, pending_id)
    monkeypatch.setattr(agent.store, "select_branches", faulty)
    with working(worker):
        while worker.health().status != "failing":
            pass
        assert worker.health().last_look is None
        away.clear()
        assert agent.store.wait(run_id, timeout=PATIENCE).ended == "completed"
        while worker.health().status != "ok":
            pass


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"poll": 0}, "poll is a number of seconds above 0"),
        ({"poll": None}, "poll is a number of seconds above 0"),
        ({"retry_wait": -1}, "retry_wait is a number of seconds above 0"),
        ({"concurrency": 0}, "concurrency is a whole number, 1 or more"),
        ({"tries": True}, "tries is a whole number, 1 or more"),
        ({"heard": 3}, "heard is a function of a Recovery"),
    ],
)
def test_a_wrong_option_is_refused(desk: Desk, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Worker(desk.agent(), **options)


def test_a_worker_needs_agents_with_names_of_their_own(desk: Desk) -> None:
    for agents in ([], ["desk"], None, 5):
        with pytest.raises(ConfigurationError, match="a worker needs an agent or a graph"):
            Worker(agents)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="two agents of a worker have one name: desk, desk"):
        Worker([desk.agent(), desk.agent()])
    with pytest.raises(ConfigurationError, match="grace is a number of seconds"):
        Worker(desk.agent()).run(grace=-1)


def test_an_agent_without_a_store_has_no_worker() -> None:
    alone = Agent(name="alone", model=ScriptedModel([]))
    with pytest.raises(ConfigurationError, match="alone has no store"):
        Worker([alone])
    assert Worker(Agent(name="kept", model=ScriptedModel([]), store=MemoryStore())) is not None

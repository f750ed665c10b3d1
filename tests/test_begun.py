"""Runs that are begun once, under an id that is made of what asks for them, and left to a worker."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from places import Place

from phronomy import Agent, Hooks, MemoryStore, ModelError, Principal, ThreadBusy, tool
from phronomy.events import Event
from phronomy.runs.begun import begin_once
from phronomy.runs.finding import beginning
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

ID = "run_of-a-message"


def clerk(store: Store, *replies: Any) -> Agent[Any, str]:
    return Agent(name="clerk", model=ScriptedModel(replies or ["Done."]), store=store)


def begin(agent: Agent[Any, str], text: str = "Hello", *, run_id: str = ID, thread_id: str | None = "t") -> bool:
    return begin_once(agent, text, run_id=run_id, thread_id=thread_id, requester=Principal(id="rita"))


def test_a_worker_drives_it_and_the_next_time_begins_nothing(place: Place) -> None:
    with place.open() as store, place.open() as other:
        assert begin(clerk(store))
        assert not begin(clerk(other))
        [branch] = store.branches()
        assert (branch.id, branch.status, branch.is_held(store.clock() + 0.001)) == (ID, "running", False)
        [done] = clerk(other).recover_all()
        assert done.result is not None and done.result.output == "Done."
        assert done.result.checkpoint.requester == Principal(id="rita")
        assert not begin(clerk(store))
        assert clerk(other).recover_all() == []


def test_of_many_that_begin_it_at_once_one_does(place: Place) -> None:
    stores = [place.open() for _ in range(6)]
    barrier = threading.Barrier(len(stores))
    done: list[bool] = []

    def one(store: Store) -> None:
        agent = clerk(store)
        barrier.wait()
        done.append(begin(agent))

    threads = [threading.Thread(target=one, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False] * 5 + [True]
    assert len(stores[0].branches()) == 1
    assert stores[0].head(ID)[1].messages[0].text == "Hello"


@pytest.mark.parametrize("stands", ["running", "failed", "completed"])
def test_somebody_who_looked_before_it_was_begun_begins_nothing(monkeypatch: pytest.MonkeyPatch, stands: str) -> None:
    """Between the look and the write another process begins it, and it comes as far as that."""
    store = MemoryStore()
    create = beginning._create

    def late(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(beginning, "_create", create)
        agent = clerk(store, ModelError("away") if stands == "failed" else "Done.")
        assert begin(agent)
        if stands != "running":
            store.clock = lambda: 2e9
            agent.recover_all()
        return create(*args, **options)

    monkeypatch.setattr(beginning, "_create", late)
    assert not begin(clerk(store))
    assert [each.status for each in store.branches()] == [stands]


def test_a_thread_that_has_another_run_is_busy_unless_that_has_failed() -> None:
    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    store = MemoryStore()
    model = ScriptedModel([call("pay", {})])
    Agent(name="clerk", model=model, tools=[pay], store=store).invoke("Pay", thread_id="t")
    with pytest.raises(ThreadBusy):
        begin(clerk(store))
    with pytest.raises(ModelError):
        clerk(store, ModelError("away")).invoke("Hello", thread_id="other")
    assert begin(clerk(store), thread_id="other")
    assert sorted(each.status for each in store.branches()) == ["running", "superseded", "suspended"]


def test_the_next_message_continues_the_thread() -> None:
    store = MemoryStore(clock=lambda: now)
    now, agent = 1_000.0, clerk(store, "One.", "Two.")
    for number in (1, 2):
        assert begin(agent, f"Message {number}", run_id=f"run_{number}")
        now += 1
        agent.recover_all()
    texts = [message.text for message in store.head("run_2")[1].messages]
    assert texts == ["Message 1", "One.", "Message 2", "Two."]


def test_an_agent_may_be_async_and_a_worker_is_told() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    store = MemoryStore()
    told: list[str] = []

    class Dispatch:
        def wake(self, run_id: str) -> None:
            told.append(run_id)

        def at(self, time: object, run_id: str) -> None:
            """Not now."""

    store.dispatch = Dispatch()
    agent = Agent(name="clerk", model=ScriptedModel([call("look", {}), "Done."]), tools=[look], store=store)
    assert begin(agent, thread_id=None) and told == [ID]
    assert not begin(agent, thread_id=None) and told == [ID]
    [done] = asyncio.run(agent.arecover_all())
    assert done.result is not None and done.result.output == "Done."


def test_whoever_drives_it_first_hears_that_it_began(place: Place) -> None:
    class Heard(Hooks):
        def __init__(self) -> None:
            self.types: list[str] = []

        def on_event(self, event: Event) -> None:
            self.types.append(event.type)

    heard = Heard()
    with place.open() as store:
        agent: Agent[Any, str] = Agent(name="clerk", model=ScriptedModel(["Done."] * 2), store=store, hooks=[heard])
        assert begin(agent) and heard.types == []
        agent.recover_all()
        begun, heard.types = heard.types, []
        agent.invoke("Hello")
    assert begun == heard.types and begun[0] == "run_started"

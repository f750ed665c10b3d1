"""What a store is asked for in an event loop: the same as without one, and nothing else has to wait for it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from functools import partial
from typing import Any

import pytest
from drivers import PATIENCE, SYNC, Around, run
from places import Place

from phronomy import Agent, Approve, Checkpoint, CheckpointNotFound, MemoryStore, StoreError, tool
from phronomy.stores.base import Store
from phronomy.stores.rows import Lineage
from phronomy.testing import ScriptedModel, call

WRITES = {"clear", "delete", "fork", "prune", "save"}
OTHERWISE = {"close", "for_tenant", "native"}
"""What neither reads nor writes runs."""
NAMED = {"wait": "await_"}


def reads() -> list[str]:
    """The public methods that read, without the primitives, which a store implements."""
    methods = {name for name, value in vars(Store).items() if not name.startswith("_") and inspect.isfunction(value)}
    twins = {name for name in methods if inspect.iscoroutinefunction(vars(Store)[name]) or name == "aaudit"}
    return sorted(methods - Store.__abstractmethods__ - WRITES - OTHERWISE - twins)


def test_each_public_read_has_an_async_twin_of_the_same_signature() -> None:
    assert {"load", "locate", "head", "history", "current", "pending", "count", "list", "audit", "wait"} <= set(reads())
    for name in reads():
        twin = getattr(Store, NAMED.get(name, f"a{name}"))
        read = getattr(Store, name)
        assert list(inspect.signature(twin).parameters.values()) == list(inspect.signature(read).parameters.values())
        assert inspect.iscoroutinefunction(twin) or name == "audit"
        assert f"`{name}`" in (twin.__doc__ or "")
        assert twin.__name__ == NAMED.get(name, f"a{name}")


def filled(store: Store) -> Checkpoint:
    """A store in which one run has ended and another of its thread waits; where it waits."""

    @tool(requires_approval=True, risk="high")
    def pay(order: int) -> str:
        """Pay an order."""
        return "paid"

    agent = Agent(
        name="desk",
        model=ScriptedModel([call("pay", {"order": 1}), "Paid.", call("pay", {"order": 2})]),
        tools=[pay],
        store=store,
    )
    agent.resume(agent.invoke("Pay", thread_id="chat", label="vip").checkpoint, approved=True, by="ann")
    return agent.invoke("Pay again", thread_id="chat").checkpoint


@pytest.mark.product
def test_the_twins_give_what_the_methods_give(place: Place) -> None:
    store = place.open()
    waits = filled(store)
    ended = store.latest("chat")
    assert ended is not None
    asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("load", (waits.id,), {}),
        ("locate", (ended.id,), {}),
        ("whole", (ended.id,), {}),
        ("head", (waits.branch_id,), {}),
        ("history", (waits.id,), {}),
        ("children", (ended.id,), {}),
        ("latest", ("chat",), {}),
        ("current", ("chat",), {}),
        ("branches", (), {"thread_id": "chat"}),
        ("pending_rows", (), {"run_id": waits.run_id}),
        ("pending", (), {"tool": "pay", "risk": "high", "limit": 1}),
        ("count", (), {"agent": "desk"}),
        ("list", (), {"labeled": True}),
        ("diff", (ended.id, waits.id), {}),
        ("wait", (ended.run_id,), {"timeout": PATIENCE}),
        ("request", (waits.pending[0].id,), {}),
        ("decided", (), {}),
        ("send", (waits.run_id, "Quickly, please."), {"by": "ann", "id": "message"}),
        ("decide", (waits.pending[0].id, Approve()), {"by": "ann", "digest": waits.pending[0].digest, "key": "click"}),
    ]
    assert sorted([name for name, _, _ in asked] + ["audit"]) == reads()

    async def twins() -> list[Any]:
        found = [await getattr(store, NAMED.get(name, f"a{name}"))(*given, **named) for name, given, named in asked]
        return [*found, [record async for record in store.aaudit(run_id=ended.run_id)]]

    for name, given, named in asked[-2:]:
        getattr(store, name)(*given, **named)
    plain = [getattr(store, name)(*given, **named) for name, given, named in asked]
    assert run(twins()) == [*plain, list(store.audit(run_id=ended.run_id))]
    assert len(plain[4]) == 7


def test_the_trail_is_read_on_in_batches(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.open()
    monkeypatch.setattr("phronomy.stores.derived.listing.BATCH", 2)
    for _ in range(3):
        filled(store)
        SYNC.cancel(Agent(name="desk", model=ScriptedModel(()), store=store), store.current("chat"))

    async def read() -> list[Any]:
        return [record async for record in store.aaudit()]

    assert run(read()) == list(store.audit())
    assert len(list(store.audit())) == 6


def test_what_is_not_there_or_cannot_be_meant_is_refused_alike(place: Place) -> None:
    store = place.open()
    for name in ("load", "locate", "head", "history", "current"):
        with pytest.raises(CheckpointNotFound):
            run(getattr(store, f"a{name}")("none"))
        with pytest.raises(StoreError, match="is text, not int"):
            run(getattr(store, f"a{name}")(7))
    with pytest.raises(StoreError, match="limit"):
        run(store.apending(limit=0))
    with pytest.raises(StoreError, match="since"):
        store.aaudit(since="yesterday")  # type: ignore[arg-type]  # at once, as `audit` does


class Slow(Around):
    """A store that answers once something else has happened in the event loop."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.blocking = True
        self.asked, self.answers = threading.Event(), threading.Event()

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        self.asked.set()
        assert self.answers.wait(PATIENCE)
        return super().lineage(checkpoint_id=checkpoint_id, branch_id=branch_id)


def test_the_event_loop_goes_on_meanwhile() -> None:
    inner = MemoryStore()
    waits = filled(inner)

    async def others(store: Slow) -> None:
        while not store.asked.is_set():  # noqa: ASYNC110  # an event of threads, so it is polled
            await asyncio.sleep(0.005)
        store.answers.set()

    async def both(name: str, id: str) -> Any:
        store = Slow(inner)
        found, _ = await asyncio.gather(getattr(store, name)(id), others(store))
        return found

    assert run(both("aload", waits.id)) == waits
    assert run(both("acurrent", "chat")) == waits


@pytest.mark.product
def test_only_what_blocks_is_called_in_a_thread(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL reads a checkpoint in the loop itself; a store in memory does not block."""
    store = place.open()
    waits = filled(store)
    called: list[str] = []
    in_executor = asyncio.BaseEventLoop.run_in_executor

    def noted(loop: Any, executor: Any, work: Any) -> Any:
        # Behind the context that it runs in: as `asyncio.to_thread` calls it, or as a call that may not be cut off.
        of_store = work.args[0] if isinstance(work, partial) else inspect.getclosurevars(work).nonlocals["method"]
        called.append(of_store.__name__)
        return in_executor(loop, executor, work)

    monkeypatch.setattr(asyncio.BaseEventLoop, "run_in_executor", noted)

    async def ask() -> None:
        await store.aload(waits.id)
        await store.alocate(waits.id)
        await store.ahead(waits.branch_id)
        await store.ahistory(waits.id)
        await store.acount()

    run(ask())
    every = ["load", "locate", "head", "history", "count"]
    assert called == {"memory": [], "sqlite": ["count"], "postgres": ["kept_text", "count"], "redis": every}[place.kind]


def test_a_method_that_a_subclass_has_written_is_the_one_that_is_called(place: Place) -> None:
    store = place.open()
    waits = filled(store)
    read = store.load
    seen: list[str] = []

    def load(checkpoint_id: str) -> Checkpoint:
        seen.append(checkpoint_id)
        return read(checkpoint_id)

    store.load = load  # type: ignore[method-assign]
    assert run(store.aload(waits.id)) == waits
    assert seen == [waits.id]

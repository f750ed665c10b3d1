"""One script, two drivers: `SYNC` calls the methods of an agent, `ASYNC` their twins, each in an `asyncio.run`.

A test that holds for both takes a `driver` and says what happens once:

    @pytest.fixture(params=DRIVERS, ids=str)
    def driver(request): return request.param

    def test_it(driver):
        result = driver.invoke(agent, "go")
"""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from key_values import Values

from phronomy import Agent, Approve, Checkpoint, KeyValueStore, MemoryStore, Result, SQLiteStore
from phronomy.models.litellm import _SOON as LITELLM_LOADS
from phronomy.records.decisions import Answer
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Branch, Claim, Document, Lineage

PATIENCE = 600.0
"""Seconds that a test waits for what must come, at any speed of the machine: only what hangs takes so long."""

STORES = ("memory", "sqlite")
"""The kinds of store that `open_kind` opens. "key-value" is one more, for the sweep: all its primitives are in the contract."""

KEY_VALUES: dict[Path, Values] = {}
"""The key-value stores of tests, by folder."""


def decide_first(at: Checkpoint, answer: Answer | None = None) -> dict[str, Answer]:
    """The decision on the first of the requests that wait at a checkpoint: a yes, unless it is said."""
    return {at.pending[0].id: Approve() if answer is None else answer}


def calls_ended() -> None:
    """Wait for the threads of calls that nobody waits for any more: a thread cannot be stopped."""
    until = time.monotonic() + PATIENCE
    while any(thread.name == "phronomy-call" for thread in threading.enumerate()):
        assert time.monotonic() < until, "a call hangs"
        time.sleep(0.001)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """What the work gives, in an event loop of its own."""

    async def main() -> Any:
        try:
            return await work
        finally:
            if "litellm" in sys.modules:  # it leaves open what it opens in a loop
                LITELLM_LOADS.wait()
                await sys.modules["litellm"].close_litellm_async_clients()

    return asyncio.run(main())


class Driver:
    """Drives an agent by one of its two sets of methods."""

    def __init__(self, name: str, *, is_async: bool) -> None:
        self.name = name
        self.is_async = is_async

    def __repr__(self) -> str:
        return self.name

    def call(self, agent: Agent[Any, Any], method: str, /, *args: Any, **options: Any) -> Any:
        """The answer of the method, or of its async twin in an event loop of its own."""
        if not self.is_async:
            return getattr(agent, method)(*args, **options)

        return run(getattr(agent, f"a{method}")(*args, **options))

    def watched(self, agent: Agent[Any, Any], at: Checkpoint, most: int, **options: Any) -> bool:
        """Resume in a stream, and leave after so many of its events: whether there were as many."""

        async def watch() -> bool:
            async with agent.astream(at, **options) as events:
                count = 0
                async for _ in events:
                    count += 1
                    if count == most:
                        return True
            return False

        if self.is_async:
            return bool(run(watch()))
        with agent.stream(at, **options) as events:
            return any(count == most for count, _ in enumerate(events, 1))

    def invoke(self, agent: Agent[Any, Any], input: Any, **options: Any) -> Result[Any]:
        """`agent.invoke`."""
        result: Result[Any] = self.call(agent, "invoke", input, **options)
        return result

    def resume(self, agent: Agent[Any, Any], checkpoint: Checkpoint | str, **options: Any) -> Result[Any]:
        """`agent.resume`."""
        result: Result[Any] = self.call(agent, "resume", checkpoint, **options)
        return result

    def step(self, agent: Agent[Any, Any], at: Any, **options: Any) -> Result[Any]:
        """`agent.step`."""
        result: Result[Any] = self.call(agent, "step", at, **options)
        return result

    def recover(self, agent: Agent[Any, Any], run: Checkpoint | str, **options: Any) -> Result[Any]:
        """`agent.recover`."""
        result: Result[Any] = self.call(agent, "recover", run, **options)
        return result

    def cancel(self, agent: Agent[Any, Any], run: Checkpoint | str, **options: Any) -> Result[Any]:
        """`agent.cancel`."""
        result: Result[Any] = self.call(agent, "cancel", run, **options)
        return result

    def fork(self, agent: Agent[Any, Any], checkpoint: Checkpoint | str, **options: Any) -> Checkpoint:
        """`agent.fork`."""
        forked: Checkpoint = self.call(agent, "fork", checkpoint, **options)
        return forked

    def function(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """A sync function as this driver's kind: as it is for `SYNC`, as an async function for `ASYNC`.

        For tools, handlers, predicates and instructions: its signature, name and docstring stay.
        """
        if not self.is_async:
            return body

        @functools.wraps(body)
        async def twin(*args: Any, **options: Any) -> Any:
            await asyncio.sleep(0)
            return body(*args, **options)

        return twin


class Streamed(Driver):
    """As a driver, with `stream` where it has `invoke` and `resume`; every event is taken, and the result is the stream's."""

    def call(self, agent: Agent[Any, Any], method: str, /, *args: Any, **options: Any) -> Any:
        """The result of the stream, where there is one of the method."""
        at = args[0] if args else None
        if method == "resume" and isinstance(at, str):
            at = agent.store.load(at)
        if method not in ("invoke", "resume") or (method == "resume" and not isinstance(at, Checkpoint)):
            return super().call(agent, method, *args, **options)
        if not self.is_async:
            stream = agent.stream(at, **options)
            self.check(list(stream), held=options.get("hold") is not None)
            return stream.result

        async def main() -> Any:
            stream = agent.astream(at, **options)
            self.check([event async for event in stream], held=options.get("hold") is not None)
            return stream.result

        return run(main())

    def check(self, events: list[Any], *, held: bool) -> None:
        """Each event has a place of its own, in order; only one ends the stream, and it is the last.

        A call that is held goes on after it was suspended.
        """
        places = [(event.seq, event.part) for event in events]
        assert places == sorted(set(places))
        ends = ("suspended", "completed", "rejected", "cancelled", "superseded", "failed")
        ended = [event.type in ends[held:] for event in events if not event.path]
        assert ended[:-1].count(True) == 0


SYNC = Driver("sync", is_async=False)
ASYNC = Driver("async", is_async=True)
DRIVERS = (SYNC, ASYNC)
STREAMED = (Streamed("sync-streamed", is_async=False), Streamed("async-streamed", is_async=True))


def open_kind(kind: str, folder: Path, **options: Any) -> Store:
    """A store of this kind; the same folder gives the same SQLite file, or the same key-value store, again."""
    if kind == "key-value":
        return KeyValueStore(KEY_VALUES.setdefault(folder, Values()), **options)
    return MemoryStore(**options) if kind == "memory" else SQLiteStore(folder / "runs.db", **options)


class Around(Store):
    """A store around another one: a test overrides what is to go differently."""

    def __init__(self, inner: Store) -> None:
        super().__init__(tenant=inner.tenant, clock=inner.clock, lease=inner.lease)
        self.inner = inner
        self.blocking = inner.blocking

    def for_tenant(self, tenant: str) -> Any:
        return type(self)(self.inner.for_tenant(tenant))

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        self.inner.create(branch, change, exclusive=exclusive)

    def append(self, change: Append) -> Branch:
        return self.inner.append(change)

    def append_all(self, changes: Sequence[Append]) -> list[Branch]:
        return self.inner.append_all(changes)

    def renew(self, claim: Claim) -> Branch:
        return self.inner.renew(claim)

    def release(self, claim: Claim, status: Any = None) -> None:
        self.inner.release(claim, status)

    def announced(self, branch_id: str, seq: int) -> None:
        self.inner.announced(branch_id, seq)

    def remove(self, branches: Any, detached: Any) -> None:
        self.inner.remove(branches, detached)

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        return self.inner.lineage(checkpoint_id=checkpoint_id, branch_id=branch_id)

    def select_branches(self, wanted: Any) -> list[Branch]:
        return self.inner.select_branches(wanted)

    def select_pending(self, wanted: Any) -> list[Any]:
        return self.inner.select_pending(wanted)

    def count_pending(self, wanted: Any) -> int:
        return self.inner.count_pending(wanted)

    def select_checkpoints(self, wanted: Any) -> list[Any]:
        return self.inner.select_checkpoints(wanted)

    def select_audit(self, wanted: Any) -> list[Any]:
        return self.inner.select_audit(wanted)

    def child_ids(self, checkpoint_id: str) -> list[str]:
        return self.inner.child_ids(checkpoint_id)

    def kept_text(self, digest: str) -> str | None:
        return self.inner.kept_text(digest)

    def get_document(self, kind: str, key: str) -> Document | None:
        return self.inner.get_document(kind, key)

    def select_documents(self, kind: str, *, after: str | None = None, limit: int | None = None) -> list[Document]:
        return self.inner.select_documents(kind, after=after, limit=limit)

    def put_document(self, document: Document) -> Document:
        return self.inner.put_document(document)

    def delete_document(self, kind: str, key: str, *, version: str | None = None) -> None:
        self.inner.delete_document(kind, key, version=version)

    def expire_documents(self) -> None:
        self.inner.expire_documents()


def rows(store: Store) -> str:
    """Everything that the store holds, as text: equal before and after means that nothing has happened."""
    if isinstance(store, SQLiteStore):
        with closing(sqlite3.connect(store._file.path)) as database:
            return "\n".join(database.iterdump())
    branches = store.branches()
    found = [repr(store.lineage(branch_id=branch.id)) for branch in branches]
    return "\n".join([*map(repr, branches), *found, *map(repr, store.pending_rows())])


def outline(result: Result[Any] | Checkpoint) -> list[str]:
    """The conversation as lines to compare: the role, how a call ended, the text, and the calls that were made."""
    lines = []
    for message in result.messages:
        how = f" ({message.settlement})" if message.settlement else ""
        calls = "".join(f" [{call.name}]" for call in message.tool_calls)
        lines.append(f"{message.role}{how}: {message.text}{calls}")
    return lines


def until(told: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What `told` gives, once it gives something."""
    end = time.monotonic() + seconds
    while not (found := told()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)
    return found

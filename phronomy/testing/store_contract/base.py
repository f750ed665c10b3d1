"""The base of the tests of a store: a clock that is moved by hand, records to store, and the store under test."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, Never, TypeAlias, TypeVar

from phronomy.agents.agent import Agent
from phronomy.stores.base import Store
from phronomy.stores.rows import (
    Append,
    AuditFilter,
    AuditRow,
    Branch,
    BranchFilter,
    CheckpointFilter,
    CheckpointRow,
    Claim,
    Entry,
    Lineage,
    PendingFilter,
    PendingRow,
)
from phronomy.testing.scripted import ScriptedModel
from phronomy.tools.tool import tool

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

DRIVERS = ("sync", "async")

Everything: TypeAlias = tuple[list[Branch], list[PendingRow], list[CheckpointRow], list[AuditRow], list[Lineage]]
"""The content of a store."""


class Clock:
    """A clock that only the test moves: `now` is in seconds since the epoch.

    With `yields`, whoever looks at it lets other threads go first: a store that looks between reading and writing, and lets another
    in meanwhile, is found out.
    """

    def __init__(self) -> None:
        self.now: float = 1000.0
        self.yields = False

    def __call__(self) -> float:
        if self.yields:
            time.sleep(0)
        return self.now


class StoreTests:
    """The base of the tests, which opens the store under test. pytest makes a new object of the class for each test."""

    durable = True
    """Whether a second `make_store` in the same test finds the stored data. False for a store in memory."""

    def make_store(self, **options: Any) -> Store:
        """Open the store under test, over data of this test alone.

        `options` are options of `Store`: `clock`, `tenant`, `lease` or `ttl`.
        """
        raise NotImplementedError("override make_store")

    @cached_property
    def clock(self) -> Clock:
        """The clock of all stores in this test. It starts at 1000, and moves only when the test moves it."""
        return Clock()

    @cached_property
    def store(self) -> Store:
        """The store of this test."""
        return self.opened()

    @cached_property
    def _stores(self) -> list[Store]:
        return []

    def opened(self, **options: object) -> Store:
        """Open another store object over the data of this test. It is closed at the end of the test."""
        store = self.make_store(clock=self.clock, **options)
        self._stores.append(store)
        return store

    def reopened(self) -> Store:
        """The data of this test as another process finds it: in a new store object, if the store is durable."""
        return self.opened() if self.durable else self.store

    def close_stores(self) -> None:
        """Close all stores that this test has opened. It is called after each test; you can call it earlier."""
        while self._stores:
            self._stores.pop().close()

    def teardown_method(self) -> None:
        """pytest calls this after each test."""
        self.close_stores()

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Tell pytest with which drivers the tests of whole runs are run."""
        if "driver" in metafunc.fixturenames:
            metafunc.parametrize("driver", DRIVERS)

    # Whole runs

    def run(self, work: Coroutine[object, Never, T]) -> T:
        """Run a coroutine to its end, in a new event loop."""
        return asyncio.run(work)

    def drive(self, driver: str, agent: Agent[Any, object], verb: str, *args: object, **options: object) -> Any:
        """Call a method of the agent, or its async twin in a new event loop."""
        if driver == "sync":
            return getattr(agent, verb)(*args, **options)
        return self.run(getattr(agent, f"a{verb}")(*args, **options))

    def clerk(self, *script: Any, store: Store | None = None, ran: list[Any] | None = None, **options: Any) -> Any:
        """Make an agent that follows the script.

        Its tool `pay` (of high risk) needs approval, and its tool `look` needs none. `ran` gets the arguments of the
        calls that run.
        """
        log: list[Any] = [] if ran is None else ran

        @tool(requires_approval=True, risk="high")
        def pay(amount: float, to: str = "Ann") -> str:
            """Pay somebody."""
            log.append((amount, to))
            return f"paid {amount}"

        @tool
        def look(at: str) -> str:
            """Look at something."""
            log.append(at)
            return f"seen {at}"

        store = self.store if store is None else store
        given = {"name": "clerk", "tools": [pay, look], **options}
        return Agent(model=ScriptedModel(script), store=store, **given)


# What is written


def row(id: str, parent: str | None = None, path: str = "", body: str = "{}", label: str | None = None) -> Entry:
    """A row: a checkpoint of this id."""
    return Entry(path=path, body=body, checkpoint_id=id, parent_id=parent, label=label)


def note(body: str, path: str = "") -> Entry:
    """A journal entry."""
    return Entry(path=path, body=body)


def asked(id: str, at: float = 1.0, **fields: Any) -> PendingRow:
    """A pending approval. Where it waits is the branch's business, so it says nothing true about that."""
    place: dict[str, Any] = dict.fromkeys(("branch_id", "run_id", "thread_id", "checkpoint_id"), "ignored")
    what: dict[str, Any] = {"agent": "clerk", "tool_name": "pay", "body": f'{{"of":"{id}"}}', **fields}
    return PendingRow(pending_id=id, requested_at=at, **place, **what)


def line(
    at: float, run: str = "b1", thread: str | None = None, pending: str | None = None, body: str = "{}"
) -> AuditRow:
    """A line of the audit trail."""
    return AuditRow(at=at, run_id=run, thread_id=thread, pending_id=pending, body=body)


def begin(
    store: Store,
    id: str,
    *entries: Entry,
    run: str | None = None,
    thread: str | None = None,
    agent: str = "clerk",
    label: str | None = None,
    parent: tuple[str, int] | None = None,
    exclusive: bool = False,
    **change: Any,
) -> None:
    """Create a branch with these first entries; `parent` is the branch that it was forked from, and after which entry."""
    parent_branch, seq = parent or (None, 0)
    branch = Branch(id=id, run_id=run or id, thread_id=thread, agent=agent, label=label)
    branch = replace(branch, parent_branch=parent_branch, parent_seq=seq, seq=seq)
    store.create(branch, Append(branch_id=id, seq=seq, entries=entries, **change), exclusive=exclusive)


def claim(branch_id: str = "b1", *, owner: str = "me", fence: int = 1, run: str | None = None) -> Claim:
    """A claim: by default the one that `begin(..., take="me")` gives."""
    return Claim(branch_id=branch_id, run_id=run or branch_id, owner=owner, fence=fence)


def end(store: Store, id: str, status: Any = "completed") -> None:
    """End a branch that nobody holds."""
    store.append(Append(branch_id=id, seq=branch_of(store, id).seq, take="me", status=status, release=True))


def forked(store: Store) -> None:
    """b1: c1 j1 n1 c2 j2 c3, b2 goes on after j1, b3 from before b2 began, b4 is the thread's next run."""
    entries = (row("c1"), note("j1"), row("n1", path="call/0"), row("c2", "c1"), note("j2"), row("c3", "c2"))
    begin(store, "b1", *entries, thread="t", head="c3", take="me")
    begin(store, "b2", row("f1", "c1"), note("k1"), run="b1", thread="t", parent=("b1", 2), head="f1")
    begin(store, "b3", row("g1", "c1"), run="b1", thread="t", parent=("b2", 1), head="g1")
    begin(store, "b4", row("d1", "f1"), thread="t", parent=("b2", 4), head="d1")


# What is read


def branch_of(store: Store, id: str) -> Branch:
    """The branch of this id."""
    return store.lineage(branch_id=id).branch


def written(lineage: Lineage) -> list[tuple[int, str, str]]:
    """Gives each entry as its number, the branch of its log, and its checkpoint or body."""
    return [(entry.seq, entry.branch_id, entry.checkpoint_id or entry.body) for entry in lineage.entries]


def digest_of(text: str) -> str:
    """The SHA-256 that a store keeps the text under."""
    return hashlib.sha256(text.encode()).hexdigest()


def everything(store: Store) -> Everything:
    """All that the store holds: equal before and after means that nothing has happened."""
    branches = store.select_branches(BranchFilter())
    return (
        branches,
        store.select_pending(PendingFilter()),
        store.select_checkpoints(CheckpointFilter()),
        store.select_audit(AuditFilter()),
        [store.lineage(branch_id=branch.id) for branch in branches],
    )


def walked(ask: Callable[[T | None], list[T]], size: int) -> list[T]:
    """The items of all pages, each asked for after the last item of the one before."""
    found: list[T] = []
    while page := ask(found[-1] if found else None):
        assert len(page) <= size, "a page is longer than its limit"
        assert not any(each in found for each in page), "a page begins with what the one before it held"
        found += page
    return found


# What is refused, and who is first


class Refusal(Generic[E]):
    """The error that something was refused with."""

    value: E


@contextmanager
def refused(*kinds: type[E]) -> Iterator[Refusal[E]]:
    """Fails the test unless the block raises one of these errors."""
    caught: Refusal[E] = Refusal()
    try:
        yield caught
    except kinds as error:
        caught.value = error
    else:
        raise AssertionError(f"nothing was raised, where {' or '.join(kind.__name__ for kind in kinds)} should be")


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Runs work in another thread beside the block, and waits for its end at the end of the block."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert len(found) == 1, "what was done in another thread has failed"


async def together(*work: Coroutine[object, Never, object]) -> list[Any]:
    """Runs coroutines side by side, each in a task of its own, and gives their results."""
    return list(await asyncio.gather(*work))


def race(work: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Runs all work at once, each in a thread of its own, and gives what each returned or raised."""
    start, found = threading.Barrier(len(work)), dict[int, T | Exception]()

    def body(number: int) -> None:
        start.wait()
        try:
            found[number] = work[number]()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=body, args=(number,)) for number in range(len(work))]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # they take turns within calls, too
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    return [found[number] for number in range(len(work))]

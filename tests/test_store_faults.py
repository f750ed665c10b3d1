"""An interrupt at any place leaves the whole of a write or nothing of it, and a store that goes on."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import random
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from phronomy.errors import StoreError
from phronomy.stores import (
    Append,
    AuditRow,
    Branch,
    Claim,
    Document,
    Entry,
    MemoryStore,
    PendingRow,
    SQLiteStore,
    Store,
)
from phronomy.stores.alone import Alone

HERE = "phronomy/stores/"
MINE = Claim(branch_id="b1", run_id="b1", owner="me", fence=1)


def make(kind: str, path: Path) -> Store:
    store = MemoryStore(clock=_clock) if kind == "memory" else SQLiteStore(path, clock=_clock, synchronous="OFF")
    branch = Branch(id="b1", run_id="b1", thread_id="t", agent="clerk")
    pending = (asked("p0"), asked("p1"))
    first = Append(branch_id="b1", seq=0, entries=(row("c0"),), take="me", lease=5.0, head="c0", opened=pending)
    store.create(branch, first, exclusive=True)
    second = Append(branch_id="b7", seq=0, entries=(row("e0"),), head="e0", opened=(asked("p7"),))
    store.create(Branch(id="b7", run_id="b7", thread_id=None, agent="clerk"), second, exclusive=False)
    for key, time in (("bob", None), ("old", 1000.0)):
        store.put_document(Document(kind="person", key=key, text="{}", expires_at=time))
    return store


def _clock() -> float:
    return 1000.0


def row(id: str, parent: str | None = None) -> Entry:
    return Entry(path="", body="{}", checkpoint_id=id, parent_id=parent)


def asked(id: str) -> PendingRow:
    return PendingRow(
        **{"pending_id": id, "branch_id": "", "run_id": "", "thread_id": None, "agent": "a", "tool_name": "t"},
        **{"checkpoint_id": "", "requested_at": 1.0, "body": "{}"},
    )


def append(store: Store) -> None:
    entries = (Entry(path="", body="a"), Entry(path="1.0", body="b"), row("c1", "c0"))
    change = Append(branch_id="b1", seq=1, entries=entries, claim=MINE, lease=9.0, head="c1", status="suspended")
    store.append(_with(change, opened=(asked("p2"),), closed=("p0",), texts=("{}",)))


def append_all(store: Store) -> None:
    note = (Entry(path="", body="a"),)
    free = Claim(branch_id="b7", run_id="b7", owner="", fence=0)
    audit = (AuditRow(at=1.0, run_id="b7", thread_id=None, pending_id="p7", body="{}"),)
    change = Append(branch_id="b7", seq=1, entries=note, holder=free, closed=("p7",), audit=audit)
    store.append_all([change, Append(branch_id="b1", seq=1, entries=note * 2, holder=MINE, closed=("p0", "p1"))])


def create(store: Store) -> None:
    branch = Branch(id="b2", run_id="b1", thread_id="t", agent="clerk", parent_branch="b1", parent_seq=1, seq=1)
    entries = (row("d1", "c0"), Entry(path="", body="x"))
    store.create(branch, Append(branch_id="b2", seq=1, entries=entries, opened=(asked("p0"),)), exclusive=False)


def renew(store: Store) -> None:
    store.renew(MINE)


def release(store: Store) -> None:
    store.release(MINE, "completed")


def put(store: Store) -> None:
    store.put_document(Document(kind="person", key="ann", text="{}"))


def change(store: Store) -> None:
    found = store.get_document("person", "bob")
    assert found is not None
    store.put_document(dataclasses.replace(found, text="changed", expires_at=5000.0))


def drop(store: Store) -> None:
    store.delete_document("person", "bob")


def expire(store: Store) -> None:
    store.expire_documents()


def _with(change: Append, **fields: Any) -> Append:
    return Append(**{name: getattr(change, name) for name in change.__slots__} | fields)


def everything(store: Store) -> Any:
    branches = store.branches()
    lineages = [store.lineage(branch_id=branch.id) for branch in branches]
    places = [store.child_ids("c0"), store.branches(thread_id="t"), store.branches(run_id="b1")]
    waiting = [dataclasses.replace(row, n=0) for row in store.pending_rows()]  # what was undone may have used a number
    documents = [dataclasses.replace(found, version="") for found in store.select_documents("person")]
    return branches, lineages, waiting, places, [*documents, *hidden(store)]


def hidden(store: Store) -> list[str]:
    """The keys of documents whose time is over, and that are still there."""
    if isinstance(store, MemoryStore):
        return [key for _, key in store._mine.documents if key == "old"]
    assert isinstance(store, SQLiteStore)
    return [key for (key,) in store._file.ready().execute("SELECT key FROM phronomy_documents WHERE key = 'old'")]


@contextmanager
def interrupted_at(line: int) -> Iterator[list[int]]:
    """A KeyboardInterrupt as the stores' code is about to run its n-th line. Yields the count of lines that were run.

    Not in the few lines that take and release the lock: a trace can interrupt those where no signal can.
    """
    count = [0]

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if HERE not in frame.f_code.co_filename or frame.f_code is Alone.__call__.__code__:
            return None
        if event == "line":
            count[0] += 1
            if count[0] == line:
                raise KeyboardInterrupt
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield count
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("act", [append, append_all, create, renew, release, put, change, drop, expire])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "sqlite reopened"])
def test_an_interrupt_at_any_line_leaves_all_or_nothing(
    kind: str, act: Callable[[Store], None], tmp_path: Path
) -> None:
    """In a thread of its own: CPython 3.11 leaves an exception as handled for good in a thread whose trace raises at the
    last line of an `except`, and every later error of that thread would have it as its context."""
    with ThreadPoolExecutor(1) as alone:
        alone.submit(_interrupt_at_every_line, kind, act, tmp_path).result()


def _interrupt_at_every_line(kind: str, act: Callable[[Store], None], tmp_path: Path) -> None:
    with make(kind, tmp_path / "whole.db") as store:
        nothing = everything(store)
        act(store)
        whole = everything(store)
    assert whole != nothing
    seen = []
    for line in range(1, 1000):
        path = tmp_path / f"{line}.db"
        with make(kind, path) as store:
            if kind == "sqlite reopened":
                store._file.disconnect()
            with interrupted_at(line) as count, suppress(KeyboardInterrupt):
                act(store)
            if count[0] < line:
                break
            if kind != "memory":
                assert not (store._file.connection and store._file.connection.in_transaction)
            found = everything(store)
            assert found in (nothing, whole)
            seen.append(found == whole)
            # What a memory store keeps of a write that came to nothing is a text that no row names.
            text = store.kept_text(hashlib.sha256(b"{}").hexdigest())
            assert text is None or act is append
            assert found == nothing or act is not append or text == "{}"
            assert found == whole or kind == "memory" or text is None
            if found == nothing:
                act(store)
            assert everything(store) == whole
    assert len(seen) > 5
    assert seen == sorted(seen)


@contextmanager
def alarms() -> Iterator[list[bool]]:
    """Signals that interrupt, while the flag that it yields is set. Nothing is traced: a trace makes calls of its own,
    so signals would arrive where they cannot."""
    live = [False]

    def interrupt(_: int, __: FrameType | None) -> None:
        if live[0]:
            raise KeyboardInterrupt

    before, trace = signal.signal(signal.SIGALRM, interrupt), sys.gettrace()
    sys.settrace(None)
    gc.disable()  # what is raised in a callback of the collector is nobody's to catch
    try:
        yield live
    finally:
        gc.enable()
        sys.settrace(trace)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_signal_at_any_moment_leaves_all_or_nothing(kind: str, tmp_path: Path) -> None:
    """As above, with real signals, which arrive between any two instructions."""
    chance, interrupts, seq = random.Random(5), 0, 1
    longest = {"memory": 25e-6, "sqlite": 100e-6}[kind]
    with make(kind, tmp_path / "runs.db") as store, alarms() as live:
        for _ in range(400):
            change = Append(branch_id="b1", seq=seq, entries=(Entry(path="", body=str(seq)),) * 3, claim=MINE)
            try:
                live[0] = True
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, longest))
                store.append(change)
                live[0] = False
            except KeyboardInterrupt:
                interrupts += 1
            live[0] = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            now = store.branches()[0].seq
            assert now in (seq, seq + 3)
            seq = now
        entries = store.lineage(branch_id="b1").entries
        assert [entry.seq for entry in entries] == list(range(1, seq + 1))
        assert interrupts > 0


def test_an_entry_that_an_interrupted_write_left_behind_is_never_seen() -> None:
    """A memory store notes where a checkpoint is to be before it is true."""
    with make("memory", Path()) as store:
        assert isinstance(store, MemoryStore)
        mine = store._mine
        mine.places |= {"ghost": ("b1", 2), "shade": ("b9", 1), "c9": ("b1", 1)}
        mine.children["c0"] = dict.fromkeys(["ghost", "shade", "c9"])
        mine.lines["b1"].log.append(row("ghost"))
        mine.threads["t"]["b9"] = None
        assert store.child_ids("c0") == []
        assert [branch.id for branch in store.branches(thread_id="t")] == ["b1"]
        assert len(store.lineage(branch_id="b1").entries) == 1
        append(store)
        assert store.child_ids("c0") == ["c1"]


# Rollbacks that fail


class Stubborn(sqlite3.Connection):
    """A connection whose next rollback fails."""

    error: BaseException | None = None

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "ROLLBACK" and self.error is not None:
            error, self.error = self.error, None
            raise error
        return super().execute(sql, *values)


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), KeyboardInterrupt()])
def test_a_rollback_that_fails_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, factory=Stubborn, **options))
    with make("sqlite", tmp_path / "runs.db") as store:
        assert isinstance(store, SQLiteStore)
        before = everything(store)
        db = store._file.ready()
        assert isinstance(db, Stubborn)
        db.error = error
        late = (Entry(path="", body="first"), row("c0"))
        expected = StoreError if isinstance(error, sqlite3.Error) else KeyboardInterrupt
        with pytest.raises(expected):
            store.append(Append(branch_id="b1", seq=1, entries=late, claim=MINE))
        assert everything(store) == before
        append(store)

"""What a run in an event loop reads of a SQLite file: in the loop's own thread, and where that would take time, in another one."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store_scenes import begin, clock, note

from phronomy.errors import StoreError
from phronomy.stores import Append, Branch, SQLiteStore
from phronomy.stores.native import reading
from phronomy.stores.rows import BranchFilter
from phronomy.stores.sql import sqlite


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


@pytest.fixture
def store(path: str) -> Iterator[SQLiteStore]:
    with SQLiteStore(path, clock=clock) as store:
        for id in ("b1", "b2", "b3"):
            begin(store, id)
        yield store


def read(store: SQLiteStore) -> tuple[list[str], bool]:
    """The ids of all branches as a task reads them, and whether the thread of its loop did."""
    threads: list[int] = []

    def look() -> list[Branch]:
        threads.append(threading.get_ident())
        return store.select_branches(BranchFilter())

    found = asyncio.run(reading(store, look))
    return [each.id for each in found], threads == [threading.get_ident()]


def test_a_few_rows_are_read_by_the_loop_while_another_thread_writes(store: SQLiteStore) -> None:
    with store._file.alone.lock:  # as while a commit waits for the disk
        assert read(store) == (["b1", "b2", "b3"], True)
    begin(store, "b4")
    assert read(store) == (["b1", "b2", "b3", "b4"], True), "what is committed is seen"


def test_a_writer_elsewhere_is_not_waited_for(store: SQLiteStore, path: str) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert read(store) == (["b1", "b2", "b3"], True)
    other.close()


def test_many_rows_are_read_in_a_thread(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_FEW", 2)
    assert read(store) == (["b1", "b2", "b3"], False)


def test_what_cannot_be_read_at_once_is_explained_by_the_read_in_a_thread(store: SQLiteStore, path: str) -> None:
    assert read(store)[1]
    os.rename(path, f"{path}.away")
    with pytest.raises(StoreError, match="is not the file that this store opened"):
        read(store)


def test_a_file_that_was_replaced_before_the_first_read_is_not_read(
    store: SQLiteStore, path: str, tmp_path: Path
) -> None:
    with SQLiteStore(tmp_path / "other.db", clock=clock) as other:
        begin(other, "strange")
    os.replace(tmp_path / "other.db", path)
    with pytest.raises(StoreError, match="is not the file that this store opened"):
        read(store)


def test_a_method_that_turns_out_to_write_begins_anew_in_a_thread(store: SQLiteStore) -> None:
    threads: list[int] = []

    def work() -> int:
        threads.append(threading.get_ident())
        return store.append(Append(branch_id="b1", seq=1, entries=(note("more"),), take="w", release=True)).seq

    assert asyncio.run(reading(store, work)) == 2
    assert (len(threads), threads[0] == threading.get_ident(), threads[1] != threads[0]) == (2, True, True)


def test_a_subclass_that_reads_in_its_own_way_is_called_in_a_thread(path: str) -> None:
    class Slow(SQLiteStore):
        def select_branches(self, wanted: Any) -> list[Branch]:
            return super().select_branches(wanted)

    with SQLiteStore(path, clock=clock) as store:
        begin(store, "b1")
    with Slow(path, clock=clock) as slow:
        assert read(slow) == (["b1"], False)


def test_a_store_that_is_closed_reads_no_more(store: SQLiteStore) -> None:
    assert read(store)[1]
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        read(store)


def test_the_connection_that_reads_is_closed_before_a_fork(store: SQLiteStore) -> None:
    assert read(store)[1]
    reader = store._file._reader
    assert reader is not None and reader.connection is not None
    child = os.fork()
    if not child:
        os._exit(0 if reader.connection is None and read(store) == (["b1", "b2", "b3"], True) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert read(store) == (["b1", "b2", "b3"], True)


def test_a_store_that_was_closed_before_its_first_read_opens_nothing(store: SQLiteStore, path: str) -> None:
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        read(store)
    assert not os.path.exists(f"{path}-wal"), "nobody has the file open"


def test_a_close_that_waits_for_a_read_does_not_hold_up_a_fork(store: SQLiteStore) -> None:
    # A fork takes both connections. If `close` kept the first one while it waits for the second, and the fork the other way round,
    # neither would ever have both.
    reader = store._file._reader
    assert reader is not None
    first_is_closed = threading.Event()
    disconnect = store._file.disconnect

    def noted() -> None:
        disconnect()
        first_is_closed.set()

    store._file.disconnect = noted  # type: ignore[method-assign]
    closing = threading.Thread(target=store.close)
    with reader.alone.lock:
        closing.start()
        assert first_is_closed.wait(60)
        assert store._file.alone.lock.acquire(timeout=60), "the first one is free while `close` waits for the second"
        store._file.alone.lock.release()
    closing.join()

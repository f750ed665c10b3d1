"""What tasks write to a SQLite file at the same time: one transaction, each told of its own outcome, none before the commit."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from drivers import PATIENCE
from store_scenes import begin, bodies, clock, note, row
from test_keeper import cut_off_everywhere, in_time

from phronomy.concurrency.workers import spawn
from phronomy.errors import StoreError
from phronomy.stores import Append, Branch, Claim, SQLiteStore
from phronomy.stores.native import in_store, on_loop
from phronomy.stores.sql import group_commit
from phronomy.stores.sql.store import Native

T = TypeVar("T")

BRANCHES = ("b1", "b2", "b3", "b4", "b5")
KEPT = "somebody else keeps the file: try again, or give the store a longer timeout"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


@pytest.fixture
def store(path: str) -> Iterator[SQLiteStore]:
    with SQLiteStore(path, clock=clock) as store:
        for id in BRANCHES:
            begin(store, id)
        yield store


def native(store: SQLiteStore) -> Native:
    found = on_loop(store)
    assert isinstance(found, Native)
    return found


def change(id: str, body: str = "more", **fields: Any) -> Append:
    return Append(**{"branch_id": id, "seq": 1, "entries": (note(body),), "take": "w", "release": True, **fields})


async def together(store: SQLiteStore, *works: Coroutine[Any, Any, T]) -> list[T | BaseException]:
    """What came of the works, all of which wait for the file before any of them is done."""
    store._group._serving = True  # as while its thread waits for the file
    tasks = [asyncio.ensure_future(work) for work in works]
    while len(store._group._asked) < len(works):  # noqa: ASYNC110  # some ask from a thread
        await asyncio.sleep(0)
    spawn(store._group._serve, lambda _: None)
    return await asyncio.gather(*tasks, return_exceptions=True)


def appended(store: SQLiteStore, *changes: Append) -> list[Any]:
    """What came of changes that tasks make at the same time: the branch, or the error."""

    async def main() -> list[Any]:
        return await together(store, *(native(store).append(each) for each in changes))

    return asyncio.run(main())


def transactions(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that begin or end transactions, as they are run."""
    seen: list[str] = []
    run = store._file._run

    def noted(db: Any, statement: str, values: Any = ()) -> Any:
        if statement.startswith(("BEGIN", "COMMIT")):
            seen.append(statement.split(maxsplit=1)[0])
        return run(db, statement, values)

    monkeypatch.setattr(store._file, "_run", noted)
    return seen


def fails(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, statement: str, *, times: int) -> None:
    """Have the disk fail at a statement, so often."""
    run, left = store._file._run, [times]

    def faulty(db: Any, text: str, values: Any = ()) -> Any:
        if text.startswith(statement) and left[0]:
            left[0] -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return run(db, text, values)

    monkeypatch.setattr(store._file, "_run", faulty)


def committed(path: str) -> dict[str, list[str]]:
    """What another connection sees of each branch."""
    with SQLiteStore(path, clock=clock) as other:
        return {id: bodies(other, id) for id in BRANCHES}


def test_what_tasks_write_at_the_same_time_is_one_transaction(
    store: SQLiteStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = transactions(store, monkeypatch)
    found = appended(store, *(change(id) for id in BRANCHES))
    assert [(branch.id, branch.seq) for branch in found] == [(id, 2) for id in BRANCHES]
    assert seen == ["BEGIN", "COMMIT"]
    assert committed(path) == {id: ["more"] for id in BRANCHES}


def test_what_a_thread_writes_for_a_task_is_in_the_same_transaction(
    store: SQLiteStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = transactions(store, monkeypatch)

    async def main() -> list[Any]:
        works = [in_store(store, begin, store, name) for name in ("n1", "n2", "b1")]
        return await together(store, native(store).append(change("b1")), *works)

    appended, *begun = asyncio.run(main())
    assert (appended.seq, begun[:2], seen) == (2, [None, None], ["BEGIN", "COMMIT"])
    assert isinstance(begun[2], StoreError) and "b1" in str(begun[2])  # there is one of that name
    assert [branch.id for branch in store.branches()] == [*BRANCHES, "n1", "n2"]


def test_a_thread_in_the_middle_of_another_call_is_refused_and_waits_for_nobody(store: SQLiteStore) -> None:
    async def main() -> None:
        await in_store(store, store._file.alone, store.append, change("b1"))

    with pytest.raises(StoreError, match="in the middle of another call"):
        asyncio.run(main())


def test_a_write_that_is_refused_undoes_nothing_of_its_neighbours(store: SQLiteStore, path: str) -> None:
    lost = Claim(branch_id="b4", run_id="b4", owner="nobody", fence=7)
    found = appended(
        store,
        change("b1"),
        change("b2", seq=7),
        change("b3"),
        change("b4", take=None, release=False, claim=lost),
        change("none"),
        # Its branch is changed before its second entry is refused: of that nothing may stay.
        change("b5", entries=(note("half"), row("b1-0"))),
        change("b4", "after"),
    )
    assert [type(each).__name__ for each in found] == [
        "Branch",
        "Behind",
        "Branch",
        "LeaseLost",
        "CheckpointNotFound",
        "StoreError",
        "Branch",
    ]
    assert "an id is in the store already" in str(found[5])
    assert committed(path) == {"b1": ["more"], "b2": [], "b3": ["more"], "b4": ["after"], "b5": []}
    assert store.lineage(branch_id="b5").branch.seq == 1


def test_a_text_that_cannot_be_stored_is_the_fault_of_its_own_task(store: SQLiteStore, path: str) -> None:
    good, bad = appended(store, change("b1"), change("b2", "\ud800"))
    assert good.seq == 2 and isinstance(bad, StoreError) and "lone surrogate" in str(bad)
    assert committed(path)["b1"] == ["more"] and committed(path)["b2"] == []


@pytest.mark.parametrize("times", [1, 3])
def test_where_the_commit_fails_each_is_tried_by_itself(
    store: SQLiteStore, path: str, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    fails(store, monkeypatch, "COMMIT", times=times)  # that of all, then those of the first ones
    found = appended(store, *(change(id) for id in BRANCHES))
    failed = [id for id, each in zip(BRANCHES, found, strict=True) if isinstance(each, StoreError)]
    assert failed == [*BRANCHES][: times - 1]
    assert committed(path) == {id: [] if id in failed else ["more"] for id in BRANCHES}


def test_a_fault_of_the_disk_in_one_write_is_that_writes_alone(
    store: SQLiteStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = store._append

    def faulty(change: Append) -> Any:
        found = yield from write(change)
        if change.branch_id == "b3":
            raise sqlite3.OperationalError("database or disk is full")
        return found

    monkeypatch.setattr(store, "_append", faulty)
    found = appended(store, *(change(id) for id in BRANCHES))
    assert [type(each).__name__ for each in found] == ["Branch", "Branch", "StoreError", "Branch", "Branch"]
    assert committed(path) == {id: [] if id == "b3" else ["more"] for id in BRANCHES}


def test_a_file_that_somebody_else_keeps_is_waited_for_once_and_each_is_told_by_an_error_of_its_own(path: str) -> None:
    with SQLiteStore(path, clock=clock, timeout=0) as store:
        for name in BRANCHES:
            begin(store, name)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        found = appended(store, *(change(name) for name in BRANCHES))
        assert [str(each) for each in found] == [f"{path}: database is locked: {KEPT}"] * 5
        assert len({id(each) for each in found}) == 5
        other.close()
        assert [branch.seq for branch in appended(store, *(change(name) for name in BRANCHES))] == [2] * 5


def test_those_behind_others_that_waited_in_vain_have_waited_as_long(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that somebody keeps is waited for once, and not once for each batch."""
    monkeypatch.setattr(group_commit, "_MOST", 2)
    waits: list[float] = []
    with SQLiteStore(path, clock=clock, timeout=0.05) as store:
        for name in BRANCHES:
            begin(store, name)
        write_each, write = store._file.write_each, store._file.write
        monkeypatch.setattr(
            store._file, "write_each", lambda w, waited: (waits.append(waited), write_each(w, waited))[1]
        )
        monkeypatch.setattr(store._file, "write", lambda w, waited: (waits.append(waited), write(w, waited))[1])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        found = appended(store, *(change(name) for name in BRANCHES))
        assert [str(each) for each in found] == [f"{path}: database is locked: {KEPT}"] * 5
        assert waits[0] == 0 and min(waits[1:]) >= 0.05
        other.close()
        assert [branch.seq for branch in appended(store, *(change(name) for name in BRANCHES))] == [2] * 5
        assert store._group._stuck is None


def test_nobody_is_answered_before_the_commit(store: SQLiteStore, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, told = store._file._run, list[str]()

    def noted(db: Any, statement: str, values: Any = ()) -> Any:
        if statement == "COMMIT":
            assert committed(path) == {id: [] for id in BRANCHES}
            told.append("about to be committed")
        return run(db, statement, values)

    async def append(id: str) -> None:
        await native(store).append(change(id))
        told.append(id)

    async def main() -> None:
        await together(store, *map(append, BRANCHES))

    monkeypatch.setattr(store._file, "_run", noted)
    asyncio.run(main())
    assert (told[0], sorted(told[1:])) == ("about to be committed", [*BRANCHES])


def test_a_cancellation_is_raised_once_the_outcome_is_known(store: SQLiteStore, path: str) -> None:
    async def main() -> None:
        with store._file.alone.lock:
            task = asyncio.ensure_future(native(store).append(change("b1")))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert store.lineage(branch_id="b1").branch.seq == 2

    asyncio.run(main())


def test_closing_waits_for_what_was_asked_for(store: SQLiteStore, path: str) -> None:
    async def main() -> list[Any]:
        with store._file.alone.lock:
            tasks = [asyncio.ensure_future(native(store).append(change(id))) for id in BRANCHES]
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(asyncio.to_thread(store.close))
            await asyncio.sleep(0)
            assert not closing.done()
        await closing
        with pytest.raises(StoreError, match="is closed"):
            await native(store).append(change("b1", seq=2))
        return await asyncio.gather(*tasks)

    assert [branch.seq for branch in asyncio.run(main())] == [2] * 5
    assert committed(path) == {id: ["more"] for id in BRANCHES}


def test_a_loop_that_is_closed_meanwhile_leaves_what_it_asked_for_to_be_written(store: SQLiteStore, path: str) -> None:
    async def ask() -> None:
        for id in BRANCHES:
            work = native(store).append(change(id))
            work.send(None)
            work.close()  # it has asked, and is left as it waits

    with store._file.alone.lock:
        asyncio.run(ask())
    store._group.settle()
    assert committed(path) == {id: ["more"] for id in BRANCHES}
    assert appended(store, change("b1", "again", seq=2))[0].seq == 3


def test_what_a_loop_asked_for_that_was_closed_before_anything_began_is_not_written(
    store: SQLiteStore, path: str
) -> None:
    loop = asyncio.new_event_loop()
    store._group._ask(group_commit._Asked(loop, loop.create_future(), lambda: store._append(change("b1"))))
    loop.close()
    assert len(store._group._asked) == 1
    assert asyncio.run(native(store).append(change("b2"))).seq == 2
    assert committed(path) == {id: ["more"] if id == "b2" else [] for id in BRANCHES}


def test_closing_in_the_thread_of_the_loop_waits_for_what_was_asked_for(store: SQLiteStore, path: str) -> None:
    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(native(store).append(change(id))) for id in BRANCHES]
        await asyncio.sleep(0)
        store.close()
        return await asyncio.gather(*tasks)

    assert [branch.seq for branch in asyncio.run(main())] == [2] * 5
    assert committed(path) == {id: ["more"] for id in BRANCHES}


def test_a_forked_child_begins_with_a_thread_of_its_own(store: SQLiteStore) -> None:
    group = store._group
    group._pid, group._serving = -1, True  # as in a child, while a thread of the parent writes
    group.settle()
    assert appended(store, change("b1"))[0].seq == 2


def test_where_no_thread_can_be_started_the_write_says_so_and_the_next_is_made(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(group_commit, "spawn", refused)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await native(store).append(change("b1"))
        assert (await native(store).append(change("b1", "then"))).seq == 2

    asyncio.run(main())
    assert bodies(store) == ["then"]


KILLED = """
import asyncio, os, signal, sys
from store_scenes import clock
from test_group_commit import BRANCHES, change, native, together
from phronomy.stores import SQLiteStore

store = SQLiteStore(sys.argv[1], clock=clock)
run = store._file._run

def killed(db, statement, values=()):
    if statement == "COMMIT": os.kill(os.getpid(), signal.SIGKILL)
    return run(db, statement, values)

async def append(id):
    await native(store).append(change(id))
    print(id, flush=True)

store._file._run = killed
asyncio.run(together(store, *map(append, BRANCHES)))
"""


def test_a_kill_before_the_commit_leaves_none_of_them_and_nobody_was_answered(store: SQLiteStore, path: str) -> None:
    command = [sys.executable, "-c", KILLED, path]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "", "")
    assert committed(path) == {id: [] for id in BRANCHES}


def test_writes_go_on_after_an_interrupt_anywhere(store: SQLiteStore) -> None:
    """Of the thread of the loop, for example: with a lock that nobody gives back, no task would be served any more."""
    for _ in cut_off_everywhere(store._group._start):
        assert in_time(store._group.settle)
    (branch,) = appended(store, change("b1"))
    assert branch.seq == 2


def test_a_write_is_answered_though_an_interrupt_takes_the_place_of_any_callback(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is raised in the loop itself, between two tasks. What waits for a write cannot be cancelled, so it must end."""
    monkeypatch.setattr(group_commit, "_LOOKS", 0.01)
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Branch]]] = []

    def append(loop: asyncio.AbstractEventLoop, id: str) -> asyncio.Task[Branch]:
        return loop.create_task(native(store).append(change(id, seq=store.lineage(branch_id=id).branch.seq)))

    def write() -> None:
        loop = asyncio.new_event_loop()
        begun.append((loop, append(loop, "b1")))
        loop.run_until_complete(begun[-1][1])

    for _ in cut_off_everywhere(write, file=group_commit.__file__):
        loop, task = begun[-1]
        assert loop.run_until_complete(asyncio.wait({task}, timeout=PATIENCE))[0] == {task}
        loop.run_until_complete(asyncio.wait_for(append(loop, "b2"), PATIENCE))
        loop.close()
    assert len(begun) > 6

"""One SQLite file, many processes: races have one winner, and no death of a process does damage."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE
from store_scenes import MINE, asked, begin, bodies, note

import phronomy.stores
from phronomy.errors import CheckpointError, LeaseLost, PhronomyError, StoreError
from phronomy.stores import (
    Append,
    AuditFilter,
    Behind,
    BranchFilter,
    CheckpointFilter,
    Claim,
    Document,
    Entry,
    PendingFilter,
    PendingRow,
    SQLiteStore,
)
from phronomy.stores.rows import FACETS, Branch, DamagedBranch
from phronomy.stores.sql import records, select
from phronomy.stores.sql import statements as _sql
from phronomy.stores.sql.sqlite import _SQL


def opened(path: Path | str, **options: Any) -> SQLiteStore:
    return SQLiteStore(path, **{"synchronous": "OFF", "clock": lambda: 1000.0, **options})


# Processes. What acts as several of them runs apart, in an interpreter of its own with no threads, and forks there.


def apart(name: str, path: Path) -> None:
    """Run the function of this name, of this module, in a fresh interpreter."""
    here = Path(__file__).parent
    program = f"import {Path(__file__).stem} as tests; tests.{name}({str(path)!r})"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(phronomy.stores.__file__).parents[2]), str(here)])}
    subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env=env, cwd=path.parent, check=True, timeout=PATIENCE
    )


def forked(work: Callable[[], str]) -> tuple[int, int]:
    """A child that does the work and writes what it gives: its process id, and the end to read from."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, work().encode())
        except BaseException as error:
            os.write(write, f"child: {error!r}".encode())
        finally:
            os._exit(0)
    os.close(write)
    return pid, read


def answer(child: tuple[int, int]) -> str:
    pid, read = child
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def race(path: str, act: Callable[[SQLiteStore, str], None], *, count: int = 6, **options: Any) -> list[str]:
    """What each of several processes came to that did the same at the same moment: "won", or the name of an error."""
    gate, release = os.pipe()

    def work(name: str) -> str:
        with opened(path, **options) as store:
            os.read(gate, 1)
            try:
                act(store, name)
            except Exception as error:
                return type(error).__name__
            return "won"

    children = [forked(lambda name=name: work(name)) for name in (f"w{number}" for number in range(count))]
    os.write(release, b"x" * count)
    found = sorted(answer(child) for child in children)
    os.close(gate)
    os.close(release)
    return found


def run_races(path: str) -> None:
    with opened(path) as store:
        begin(store)
    for turn in range(8):
        with opened(path) as store:
            seq = store.lineage(branch_id="b1").branch.seq

        def decide(store: SQLiteStore, name: str, seq: int = seq) -> None:
            store.append(Append(branch_id="b1", seq=seq, take="w", release=True, entries=(note(name), note("also"))))

        assert race(path, decide) == ["Behind"] * 5 + ["won"], turn
    with opened(path) as store:
        assert len(bodies(store)) == 16


def test_of_several_processes_that_append_after_the_same_entry_one_wins(tmp_path: Path) -> None:
    apart("run_races", tmp_path / "runs.db")


def run_take_overs(path: str) -> None:
    """The lease is over by the workers' clock: each may take the claim, one does, and the last holder has lost it."""
    with opened(path) as store:
        begin(store, take="w0", lease=10.0)
    for turn in range(1, 9):
        now = 1000.0 + 20.0 * turn
        with opened(path) as store:
            before = store.lineage(branch_id="b1").branch

        def take(store: SQLiteStore, name: str, seq: int = before.seq) -> None:
            store.append(Append(branch_id="b1", seq=seq, take=name, lease=10.0))

        found = race(path, take, clock=lambda now=now: now)
        assert found == ["Held"] * 5 + ["won"], turn
        with opened(path) as store:
            after = store.lineage(branch_id="b1").branch
            assert (after.fence, after.lease_until, after.seq) == (before.fence + 1, now + 10.0, before.seq)
            claim = Claim(branch_id="b1", run_id="b1", owner=before.owner or "", fence=before.fence)
            with pytest.raises(LeaseLost):
                store.append(Append(branch_id="b1", seq=before.seq, entries=(note("late"),), claim=claim))


def test_of_several_processes_that_take_an_expired_claim_over_one_wins(tmp_path: Path) -> None:
    apart("run_take_overs", tmp_path / "runs.db")


def run_exclusives(path: str) -> None:
    for turn in range(8):
        assert race(path, lambda s, name, t=turn: begin(s, f"{t}{name}", thread=f"t{t}", exclusive=True)) == [
            *["Occupied"] * 5,
            "won",
        ]
    with opened(path) as store:
        assert len(store.branches()) == 8


def test_of_several_processes_that_begin_a_run_in_a_thread_one_does(tmp_path: Path) -> None:
    apart("run_exclusives", tmp_path / "runs.db")


def run_openings(path: str) -> None:
    def work(file: str, name: str, gate: int) -> str:
        os.read(gate, 1)
        with opened(file) as store:
            begin(store, name)
        return "made"

    for turn in range(10):
        gate, release = os.pipe()
        file = f"{path}{turn}"
        children = [forked(lambda n=n, f=file, g=gate: work(f, f"w{n}", g)) for n in range(6)]
        os.write(release, b"x" * 6)
        assert [answer(child) for child in children] == ["made"] * 6
        with opened(file) as store:
            assert len(store.branches()) == 6
        os.close(gate)
        os.close(release)


def test_several_processes_that_open_a_new_file_at_once_all_can(tmp_path: Path) -> None:
    apart("run_openings", tmp_path / "runs.db")


def run_kills(path: str) -> None:
    """A worker reports each write once it is stored. Killed in the middle of anything, it leaves what it reported, and
    at most one write more, each of them whole."""
    chance = random.Random(7)
    with opened(path) as store:
        begin(store, take="me")
        total = 0
        for turn in range(40):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                write_for_ever(path, write)
            os.close(write)
            reported = 0
            for _ in range(chance.randrange(1, 12)):
                reported += len(os.read(read, 1))
            for _ in range(chance.randrange(0, 4000)):
                pass
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            with os.fdopen(read, "rb") as pipe:
                reported += len(pipe.read())

            lineage = store.lineage(branch_id="b1")
            written = lineage.branch.seq - 1
            assert written % 3 == 0
            assert total + reported <= written // 3 <= total + reported + 1, (turn, total, reported, written)
            total = written // 3
            numbers = [entry.seq for entry in lineage.entries]
            assert numbers == list(range(1, written + 2))
            assert [entry.body for entry in lineage.entries[1:]] == [
                f"{n}{part}" for n in range(total) for part in "abc"
            ]
            assert [row.pending_id for row in store.pending_rows()] == ([f"p{total - 1}"] if total else [])
            assert lineage.branch.head == (f"c{total - 1}" if total else "b1-0")
            assert store._file.ready().execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def write_for_ever(path: str, report: int) -> None:
    with opened(path, synchronous="FULL") as store:
        seq = store.lineage(branch_id="b1").branch.seq
        while True:
            turn = (seq - 1) // 3
            row = Entry(path="", body=f"{turn}c", checkpoint_id=f"c{turn}")
            store.append(
                Append(
                    branch_id="b1",
                    seq=seq,
                    claim=MINE,
                    entries=(note(f"{turn}a"), note(f"{turn}b"), row),
                    head=row.checkpoint_id,
                    opened=(asked(f"p{turn}"),),
                    closed=(f"p{turn - 1}",),
                )
            )
            seq += 3
            os.write(report, b".")


def test_a_worker_killed_at_any_moment_leaves_whole_writes(tmp_path: Path) -> None:
    apart("run_kills", tmp_path / "runs.db")


def run_forks(path: str) -> None:
    """The child's writes stand even if the parent lets go of the file while the child writes."""
    to_child, go = os.pipe()
    store = opened(path)
    begin(store)

    def work() -> str:
        store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("child 1"),)))
        os.read(to_child, 1)
        store.append(Append(branch_id="b1", seq=2, take="w", release=True, entries=(note("child 2"),)))
        os.read(to_child, 1)
        store.append(Append(branch_id="b1", seq=3, take="w", release=True, entries=(note("child 3"),)))
        store.close()
        return "done"

    child = forked(work)
    while store.lineage(branch_id="b1").branch.seq < 2:
        pass
    store.close()
    os.write(go, b"x")
    with opened(path) as again:
        while again.lineage(branch_id="b1").branch.seq < 3:
            pass
    os.write(go, b"x")
    assert answer(child) == "done"
    with opened(path) as again:
        assert bodies(again) == ["child 1", "child 2", "child 3"]


def test_a_store_can_be_used_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    apart("run_forks", tmp_path / "runs.db")


def run_forks_while_writing(path: str) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)
    stop = threading.Event()
    with opened(path) as store:
        begin(store)

        def write() -> None:
            for seq in itertools.count(1):
                if stop.is_set():
                    return
                store.append(Append(branch_id="b1", seq=seq, take="w", release=True, entries=(note(str(seq)),)))

        writer = threading.Thread(target=write)
        writer.start()
        for turn in range(20):
            assert answer(forked(lambda turn=turn: begin(store, f"child{turn}") or "done")) == "done"
        stop.set()
        writer.join()
        assert len(store.branches()) == 21
        found = bodies(store)
        assert found == [str(seq) for seq in range(1, len(found) + 1)]


def test_a_fork_while_another_thread_writes_cuts_nothing_in_two(tmp_path: Path) -> None:
    apart("run_forks_while_writing", tmp_path / "runs.db")


def test_a_connection_that_a_fork_took_along_unseen_is_not_used(tmp_path: Path) -> None:
    """As in a process that was forked by a C program, which Python is not told of."""
    store = opened(tmp_path / "runs.db")
    begin(store)
    store._file.pid += 1
    with pytest.raises(StoreError, match=r"forked by other means than os\.fork"):
        bodies(store)
    store.close()
    assert store._file.connection is not None
    store._file.connection.close()


def test_a_fork_in_the_middle_of_a_call_does_not_wait_for_the_call(tmp_path: Path) -> None:
    with opened(tmp_path / "runs.db") as store:
        begin(store)

        def clock() -> float:
            store._file.before_fork()
            store._file.after_fork()
            return 1000.0

        store.clock = clock
        store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("j"),)))
        assert bodies(store) == ["j"]


# Files


@pytest.mark.parametrize("path", [":memory:", ""])
def test_a_store_without_a_file_is_refused_with_a_remedy(path: str) -> None:
    with pytest.raises(StoreError, match=r"use MemoryStore\(\)"):
        SQLiteStore(path)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no/where of the store does not exist"):
        SQLiteStore(tmp_path / "no" / "where" / "runs.db")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="unable to open"):
        SQLiteStore(tmp_path)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, this is no database.\n" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"notes\.txt: file is not a database"):
        SQLiteStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "UPDATE phronomy_schema SET version = 99",
            f"schema version 99, and this release reads up to {len(_SQL.migrations)}",
        ),
        ("UPDATE phronomy_schema SET version = 'x'", "the version of its schema cannot be read"),
        ("DELETE FROM phronomy_schema", "the version of its schema cannot be read"),
    ],
)
def test_a_schema_of_another_version_is_refused(tmp_path: Path, statement: str, says: str) -> None:
    path = tmp_path / "runs.db"
    opened(path).close()
    db = sqlite3.connect(path)
    db.execute(statement)
    db.commit()
    db.close()
    with pytest.raises(StoreError, match=says):
        opened(path)


def test_a_file_of_the_first_schema_is_brought_up_to_date_and_keeps_what_else_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE mine (a)")
    db.execute(_SQL.schema)
    db.execute(_SQL.first_version)
    db.commit()
    db.close()
    with opened(path) as store:
        begin(store)
    with opened(path) as store:
        assert store._file.ready().execute(_SQL.version).fetchall() == [(len(_SQL.migrations),)]
        assert store._file.ready().execute("SELECT count(*) FROM mine").fetchall() == [(0,)]
        assert bodies(store) == []


@pytest.mark.parametrize("version", range(1, len(_SQL.migrations)))
def test_a_file_of_an_earlier_schema_is_brought_up_to_date_with_what_is_in_it(tmp_path: Path, version: int) -> None:
    """It is then as a new file is, and what that version could not keep is kept from here on."""
    path, new = tmp_path / "runs.db", tmp_path / "new.db"
    _make_earlier(path, version)
    with opened(path) as store, opened(new) as other:
        branch = store.lineage(branch_id="b1").branch
        assert (branch.status, branch.seq, branch.handed) == ("suspended", 2, 2 if version < 2 else None)
        assert bodies(store) == ["decided"]
        assert (store.count(), store.for_tenant("b").count(), store.for_tenant("c").count()) == (1, 2, 0)
        store.append(Append(branch_id="b1", seq=2, take="w", release=True, texts=("{}",)))
        assert store.kept_text(hashlib.sha256(b"{}").hexdigest()) == "{}"
        put = store.put_document(Document(kind="person", key="ann", text="{}", expires_at=1e12))
        kept = [Document(kind="person", key=key, version="v", text="{}") for key in KEPT if version >= 4]
        assert (store.get_document("person", "ann"), store.select_documents("person")) == (put, [put, *kept])
        ready = [each._file.ready() for each in (store, other)]
        assert ready[0].execute(_SQL.version).fetchall() == [(len(_SQL.migrations),)]
        tables = [each.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall() for each in ready]
        assert tables[0] == tables[1]


def run_upgrades(path: str) -> None:
    """The last upgrade, begun by a process that is killed in it, then by several at once."""
    last = len(_SQL.migrations) - 1
    for done in range(len(_SQL.migrations[last]) + 1):
        Path(path).unlink(missing_ok=True)
        _make_earlier(path, last)
        pid = os.fork()
        if pid == 0:
            db = sqlite3.connect(path, isolation_level=None)
            db.execute("PRAGMA cache_size = 1")  # what is not committed goes to the log as well
            for statement in (_SQL.begin, *_SQL.migrations[last][:done]):
                db.execute(statement)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute(_SQL.version).fetchall() == [(last,)]
        assert race(path, begin) == ["won"] * 6, done
        with opened(path) as store:
            assert (len(store.branches()), bodies(store)) == (7, ["decided"])
            assert [document.key for document in store.select_documents("person")] == list(KEPT)
            assert store._file.ready().execute(_SQL.version).fetchall() == [(last + 1,)]
            assert store._file.ready().execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_an_upgrade_that_is_killed_is_made_by_the_next_and_once_by_several(tmp_path: Path) -> None:
    apart("run_upgrades", tmp_path / "runs.db")


KEPT = ("bob", "cid")


def _make_earlier(path: Path | str, version: int) -> None:
    """A file as a release with this version of the schema left it."""
    statements = [_SQL.schema, _SQL.first_version, *itertools.chain(*_SQL.migrations[:version])]
    statements += [f"UPDATE phronomy_schema SET version = {version}", *_sql_rows()]
    if version >= 4:
        columns = "tenant, kind, key, version, body"
        statements += [
            f"INSERT INTO phronomy_documents ({columns}) VALUES ('', 'person', '{key}', 'v', '{{}}')" for key in KEPT
        ]
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode = WAL")
        for statement in statements:
            db.execute(statement)


def _sql_rows() -> list[str]:
    """A run that waits, with an entry after its checkpoint, as every version of the schema can have it."""
    return [
        """INSERT INTO phronomy_branches (tenant, id, run_id, agent, parent_seq, seq, head, status, fence, lease_until,
            created_at, changed_at) VALUES ('', 'b1', 'b1', 'clerk', 0, 2, 'c1', 'suspended', 1, 0, 1, 1)""",
        f"INSERT INTO phronomy_log (n, tenant, path, checkpoint_id, body) VALUES ({_sql.SIZE} + 1, '', '', 'c1', '{{}}')",
        f"INSERT INTO phronomy_log (n, tenant, path, body) VALUES ({_sql.SIZE} + 2, '', '', 'decided')",
        """INSERT INTO phronomy_facets (tenant, facet, value, requested_at, n)
            VALUES ('', '', '', 1, 1), ('', 'tool', 'pay', 1, 1), ('b', '', '', 1, 2), ('b', '', '', 2, 3)""",
    ]


def test_the_number_of_requests_is_kept_whoever_writes(tmp_path: Path) -> None:
    """A process of an earlier release, which has the file open, knows nothing of it. What it undoes is undone there too."""
    path = tmp_path / "runs.db"
    with opened(path) as store, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as older:
        begin(store, opened=(asked("p"), asked("q")))
        assert (store.count(), store.for_tenant("b").count()) == (2, 0)
        older.execute("BEGIN IMMEDIATE")
        older.execute("INSERT INTO phronomy_facets (tenant, facet, value, requested_at, n) VALUES ('b', '', '', 1, 9)")
        older.execute("DELETE FROM phronomy_facets WHERE tenant = '' AND n = 1")
        older.execute("ROLLBACK")
        assert (store.count(), store.for_tenant("b").count()) == (2, 0)
        older.execute("INSERT INTO phronomy_facets (tenant, facet, value, requested_at, n) VALUES ('b', '', '', 1, 9)")
        older.execute("DELETE FROM phronomy_facets WHERE tenant = '' AND n = 1")
        assert (store.count(), store.for_tenant("b").count()) == (1, 1)
        assert store.count_pending(PendingFilter(until=1.0)) == 1


def test_a_damaged_file_gives_answers_or_store_errors_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with opened(path) as store:
        begin(store, take="me", opened=(asked("p"),))
        for seq in range(1, 40):
            store.append(Append(branch_id="b1", seq=seq, entries=(note("x" * 300),), claim=MINE))
    whole, chance, outcomes = path.read_bytes(), random.Random(3), set()
    for turn in range(150):
        data = bytearray(whole)
        if turn % 3 == 0:
            del data[chance.randrange(len(data)) :]
        else:
            for _ in range(chance.choice([1, 8, 200])):
                data[chance.randrange(len(data))] = chance.randrange(256)
        damaged = tmp_path / f"damaged{turn}.db"
        damaged.write_bytes(data)
        try:
            with opened(damaged, timeout=0.0) as store:
                bodies(store)
                store.load("b1-0")
                store.pending_rows()
                store.append(Append(branch_id="b1", seq=40, entries=(note("more"),), claim=MINE))
        except (PhronomyError, Behind) as error:
            outcomes.add(type(error))
        else:
            outcomes.add(None)
    assert {StoreError, CheckpointError} <= outcomes


def test_a_row_that_is_damaged_is_a_store_error(tmp_path: Path) -> None:
    with opened(tmp_path / "runs.db") as store:
        begin(store)
        begin(store, "b2", entries=(), head=None)
        with pytest.raises(CheckpointError, match=r"^the log holds no checkpoint \(branch b2\)$"):
            store.head("b2")
        with pytest.raises(StoreError, match="a row in it is not of this schema"):
            store._made(records.lineage_of, store._read("SELECT 1 UNION ALL SELECT 'x'", ()))
        store._file.ready().execute("UPDATE phronomy_branches SET agent = CAST(x'ff' AS TEXT) WHERE id = 'b2'")
        assert [(each.id, type(each)) for each in store.branches()] == [("b1", Branch), ("b2", DamagedBranch)]
        with pytest.raises(CheckpointError, match=r"^the row of branch b2 cannot be read: it is damaged"):
            store.head("b2")


def test_a_closed_store_says_so_and_can_be_closed_again(tmp_path: Path) -> None:
    store = opened(tmp_path / "runs.db")
    assert repr(store) == f"SQLiteStore({str(tmp_path / 'runs.db')!r})"
    store.close()
    store.close()
    for ask in (store.branches, lambda: begin(store)):
        with pytest.raises(StoreError, match="is closed"):
            ask()
    assert [path.name for path in tmp_path.iterdir()] == ["runs.db"]


def test_a_file_that_others_keep_locked_is_a_store_error_and_nothing_was_written(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with opened(path, timeout=0.0) as store:
        begin(store)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"runs\.db: database is locked: somebody else keeps the file: try again"):
            store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("j"),)))
        assert bodies(store) == []
        other.execute("ROLLBACK")
        other.close()
        store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("j"),)))
        assert bodies(store) == ["j"]


@pytest.mark.parametrize(("busy", "opens"), [(3, True), (10**9, False)])
def test_a_switch_to_write_ahead_logging_that_collides_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: int, opens: bool
) -> None:
    tries = iter(range(busy))
    now = itertools.count(0.0)

    class Busy(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "PRAGMA journal_mode = WAL" and next(tries, None) is not None:
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise error
            return super().execute(sql, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, factory=Busy, **options))
    monkeypatch.setattr("phronomy.stores.sql.sqlite.time.monotonic", lambda: next(now))
    if opens:
        with opened(tmp_path / "runs.db", timeout=30.0) as store:
            assert store._file.ready().execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    else:
        with pytest.raises(StoreError, match="database is locked"):
            opened(tmp_path / "runs.db", timeout=30.0)


# Statements


def test_errors_hold_no_value_that_was_to_be_written(tmp_path: Path) -> None:
    with opened(tmp_path / "runs.db") as store:
        begin(store)
        secret = Entry(path="", body="hunter2", checkpoint_id="b1-0")
        changes: list[dict[str, Any]] = [
            {"entries": (note("hunter2"), secret)},
            {"entries": (note("hunter2\ud800"),)},
            {"entries": (note("hunter2"),), "head": ["hunter2"]},
        ]
        for change in changes:
            with pytest.raises(StoreError) as refused:
                store.append(Append(branch_id="b1", seq=1, take="me", **change))
            assert "hunter2" not in str(refused.value)
        with pytest.raises(StoreError):
            begin(store, "b2", opened=(PendingRow(**{**_fields(asked("p")), "requested_at": 2**70}),))
        with pytest.raises(StoreError):
            store.branches(run_id=["x"])  # type: ignore[arg-type]
        assert (bodies(store), len(store.branches())) == ([], 1)


def _fields(row: PendingRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def test_a_log_that_is_full_takes_no_more(tmp_path: Path) -> None:
    """Its entries would get the numbers of another branch's."""
    with opened(tmp_path / "runs.db") as store:
        begin(store, take="me")
        begin(store, "b2")
        store._file.ready().execute("UPDATE phronomy_branches SET seq = ? WHERE id = 'b1'", (_sql.SIZE - 2,))
        store.append(Append(branch_id="b1", seq=_sql.SIZE - 2, entries=(note("the last"),), claim=MINE))
        with pytest.raises(StoreError, match="full"):
            store.append(Append(branch_id="b1", seq=_sql.SIZE - 1, entries=(note("one more"),), claim=MINE))
        assert [entry.body for entry in store.lineage(branch_id="b1").entries][1:] == ["the last"]
        assert len(store.lineage(branch_id="b2").entries) == 1


def test_a_pending_row_that_is_damaged_is_named_without_its_content(tmp_path: Path) -> None:
    with opened(tmp_path / "runs.db") as store:
        begin(store, opened=(asked("p1"),))
        (damaged,) = store.pending().unreadable
        assert str(damaged).startswith("pending p1 of branch b1 cannot be read")
        assert (damaged.id, damaged.run_id, damaged.branch_id) == ("p1", "b1", "b1")
        assert damaged.__cause__ is None and damaged.__suppress_context__


def test_a_load_is_one_statement_and_an_append_few(tmp_path: Path) -> None:
    with opened(tmp_path / "runs.db") as store:
        begin(store, take="me")
        seen: list[str] = []
        store._file.ready().set_trace_callback(seen.append)
        store.lineage(checkpoint_id="b1-0")
        store.lineage(branch_id="b1")
        assert [statement.split()[0] for statement in seen] == ["WITH", "WITH"]
        seen.clear()
        store.append(Append(branch_id="b1", seq=1, entries=(note("a"),), claim=MINE))
        assert [statement.split()[0] for statement in seen] == ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
        seen.clear()
        store.append(Append(branch_id="b1", seq=2, entries=(note("b"),), claim=MINE, texts=("{}",)))
        assert [statement.split()[0] for statement in seen] == ["BEGIN", "UPDATE", "INSERT", "INSERT", "COMMIT"]
        seen.clear()
        store.append(Append(branch_id="b1", seq=3, claim=MINE, release=True, status="suspended"))
        store.append(Append(branch_id="b1", seq=3, take="me", status="running"))
        assert [statement.split()[0] for statement in seen] == ["BEGIN", "UPDATE", "COMMIT"] * 2
        branch = store.lineage(branch_id="b1").branch
        assert (branch.owner, branch.fence, branch.lease_until, branch.status) == ("me", 2, 1030.0, "running")
        before = store._file.ready().total_changes
        store.append(Append(branch_id="b1", seq=3, claim=replace(MINE, fence=2), texts=("{}",)))
        assert store._file.ready().total_changes == before + 1, "of a text that is there nothing is written"


OF_RUN = ("phronomy_branches_id", "phronomy_branches_run")
LOOKED_FOR: list[tuple[Any, str]] = [
    (PendingFilter(), "f USING PRIMARY KEY"),
    (PendingFilter(newest=True, since=1.0, until=2.0, after=(1.5, 3), limit=10), "f USING PRIMARY KEY"),
    (PendingFilter(pending_id="p"), "phronomy_pending_id"),
    (PendingFilter(expired_at=5.0), "phronomy_pending_expiry"),
    (PendingFilter(facets={"agent": "a"}, expired_at=5.0), "phronomy_pending_expiry"),
    *[(PendingFilter(facets={name: "x"}, limit=10), "f USING PRIMARY KEY") for name in FACETS if name],
    (PendingFilter(facets={"tool": "x", "agent": "y"}, after=(1.0, 2), newest=True), "f USING PRIMARY KEY"),
    (BranchFilter(), "phronomy_branches_"),
    (BranchFilter(run_id="r"), "phronomy_branches_run"),
    (BranchFilter(run_id="r"), "phronomy_branches_id"),
    (BranchFilter(newest=True, limit=10), "phronomy_branches_made"),
    (BranchFilter(newest=True, after="b", limit=10), "phronomy_branches_made"),
    (BranchFilter(newest=True, after="b", thread_id="t"), "phronomy_branches_thread"),
    (BranchFilter(thread_id="t"), "phronomy_branches_thread"),
    (BranchFilter(parents=("a", "b")), "phronomy_branches_parent"),
    (BranchFilter(abandoned_at=5.0), "phronomy_branches_running"),
    (BranchFilter(ended_before=5.0), "phronomy_branches_ended"),
    (BranchFilter(unannounced=True), "phronomy_branches_unannounced"),
    (CheckpointFilter(run_id="r"), "phronomy_branches_run"),
    (CheckpointFilter(thread_id="t", limit=3, after=7), "phronomy_branches_thread"),
    (CheckpointFilter(label="l"), "phronomy_log_label"),
    (CheckpointFilter(labeled=True), "phronomy_log_label"),
    (CheckpointFilter(after=5, limit=3), "entry USING INTEGER PRIMARY KEY (rowid>?)"),
    (AuditFilter(run_id="r"), "phronomy_audit_run"),
    (AuditFilter(pending_id="p"), "phronomy_audit_pending"),
    (AuditFilter(after=5, limit=500), "a USING INTEGER PRIMARY KEY (rowid>?)"),
    (AuditFilter(after=5, thread_id="t", limit=500), "a USING INTEGER PRIMARY KEY (rowid>?)"),
]
"""What is asked for, and the index that finds it."""

SELECTS: dict[type, Any] = {
    PendingFilter: select.pending,
    BranchFilter: select.branches,
    CheckpointFilter: select.checkpoints,
    AuditFilter: select.audit,
}


def plan(store: SQLiteStore, statement: str, values: Any = None) -> list[str]:
    values = ["x"] * statement.count("?") if values is None else values
    return [row[3] for row in store._file.ready().execute(f"EXPLAIN QUERY PLAN {statement}", values)]


def test_no_statement_reads_a_whole_table(tmp_path: Path) -> None:
    with opened(tmp_path / "runs.db") as store:
        statements = [value for value in vars(_SQL).values() if isinstance(value, str) and "phronomy_" in value]
        statements += [*_SQL.go_on.values(), _SQL.drop_facets.one]
        looked_at = 0
        for statement in statements:
            if not statement.startswith(("CREATE", "INSERT")) and "phronomy_schema" not in statement:
                steps = plan(store, statement)
                looked_at += 1
                assert not [step for step in steps if step.startswith("SCAN") and step != "SCAN line"], statement
                assert not [step for step in steps if "tenant=?)" in step], statement
        assert looked_at > 12


@pytest.mark.parametrize(("wanted", "index"), LOOKED_FOR)
def test_what_is_looked_for_is_found_by_an_index_in_its_order(tmp_path: Path, wanted: Any, index: str) -> None:
    with opened(tmp_path / "runs.db") as store:
        steps = plan(store, *SELECTS[type(wanted)](_SQL, "", wanted))
        assert index in (" ".join(steps) if index in OF_RUN else steps[0]), steps
        assert not [step for step in steps if step.startswith("SCAN") and "json_each" not in step], steps
        if isinstance(wanted, PendingFilter):
            sorts = [step for step in steps if "TEMP B-TREE" in step]
            assert bool(sorts) == (wanted.expired_at is not None or wanted.pending_id is not None), steps
            assert "SCAN" not in str(plan(store, *select.pending_count(_SQL, "", wanted)))


@pytest.mark.durable
def test_what_is_written_survives_a_loss_of_power_by_default(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "runs.db") as store:
        assert store._file.ready().execute("PRAGMA synchronous").fetchall() == [(2,)]
        assert store._file.ready().execute("PRAGMA journal_mode").fetchall() == [("wal",)]

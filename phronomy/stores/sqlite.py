"""`SQLiteStore`: checkpoints in one file, shared by the threads and processes of a machine."""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Callable
from typing import Final, Literal, NoReturn, TypeVar

from phronomy.errors import StoreError
from phronomy.stores import _sql
from phronomy.stores._alone import Alone
from phronomy.stores._changes import (
    check_change,
    check_new,
    check_parent,
    check_thread,
    grown,
    lost,
    not_found,
    one_place,
    taken_id,
)
from phronomy.stores.base import Append, Branch, BranchStatus, Claim, Lineage, PendingRow, Store

T = TypeVar("T")

_SQL: Final = _sql.Statements(_sql.SQLITE)
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_SYNCHRONOUS: Final = ("OFF", "NORMAL", "FULL", "EXTRA")
_SLICE: Final = 0.02
"""Seconds that SQLite itself waits for a lock before it is asked anew.

It asks ever less often, and not at all while it sleeps: in one long wait, a busy writer elsewhere can keep it out for many
seconds, and an interrupt is not heard.
"""


class SQLiteStore(Store):
    """Keeps checkpoints in the SQLite file at `path`, which is made if it is not there; its directory must be.

    Any number of threads and processes of one machine may use the file at once (not over a network file system). A
    write waits up to `timeout` seconds for the others'. With `synchronous="FULL"` what was written survives a loss of
    power; `"NORMAL"` is faster and may lose the last writes then, but nothing when a process dies.

    Raises `StoreError` if the file cannot be opened, is no database, or was written by a later release.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        lease: float = 30.0,
        timeout: float = 30.0,
        synchronous: Literal["OFF", "NORMAL", "FULL", "EXTRA"] = "FULL",
    ) -> None:
        super().__init__(clock=clock, lease=lease)
        self._path = _checked_path(os.fspath(path))
        if not timeout >= 0:
            raise StoreError(f"the timeout must be 0 seconds or more, not {timeout!r}")
        if synchronous not in _SYNCHRONOUS:
            raise StoreError(f"synchronous must be one of {', '.join(_SYNCHRONOUS)}, not {synchronous!r}")
        self._timeout = timeout
        self._synchronous = synchronous
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._closed = False
        self._forking = False
        self._alone = Alone()
        _close_before_fork(self)
        self._alone(self._ready)

    def __repr__(self) -> str:
        return f"SQLiteStore({self._path!r})"

    # Primitives

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        check_new(branch, change)
        self._write(lambda db: self._create(db, branch, change, exclusive))

    def append(self, change: Append) -> Branch:
        check_change(change)
        return self._write(lambda db: self._append(db, change))

    def renew(self, claim: Claim) -> Branch:
        return self._write(lambda db: self._renew(db, claim))

    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        self._write(lambda db: db.execute(_SQL.release, (status, claim.branch_id, claim.owner, claim.fence)))

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        one_place(checkpoint_id, branch_id)
        statement = _SQL.branch_lineage if checkpoint_id is None else _SQL.checkpoint_lineage
        id = checkpoint_id or branch_id or ""
        found = self._read(statement, (id,), _sql.lineage_of)
        if found is None:
            raise not_found("branch" if checkpoint_id is None else "checkpoint", id)
        return found

    def branches(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[Branch]:
        statement, values = _SQL.branches(run_id=run_id, thread_id=thread_id)
        return self._read(statement, values, lambda rows: [_sql.branch_of(row) for row in rows])

    def pending_rows(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[PendingRow]:
        statement, values = _SQL.pending(run_id=run_id, thread_id=thread_id)
        return self._read(statement, values, lambda rows: [_sql.pending_of(row) for row in rows])

    def child_ids(self, checkpoint_id: str) -> list[str]:
        return self._read(_SQL.children, (checkpoint_id, checkpoint_id), lambda rows: [row[1] for row in rows])

    def close(self) -> None:
        self._alone(self._close)

    # What the primitives do, inside a transaction

    def _create(self, db: sqlite3.Connection, branch: Branch, change: Append, exclusive: bool) -> None:
        if exclusive and branch.thread_id is not None:
            statement, values = _SQL.branches(run_id=None, thread_id=branch.thread_id)
            check_thread(branch, [_sql.branch_of(row) for row in db.execute(statement, values)])
        if branch.parent_branch is not None:
            row = db.execute(_SQL.branch, (branch.parent_branch,)).fetchone()
            check_parent(branch, _sql.branch_of(row) if row is not None else None)
        if db.execute(_SQL.branch, (branch.id,)).fetchone() is not None:
            raise taken_id("branch", branch.id)
        after = grown(branch, change, now=self.clock(), lease=self.lease)
        added = db.execute(_SQL.add_branch, _sql.branch_values(after))
        self._add(db, change, added.lastrowid or 0)

    def _append(self, db: sqlite3.Connection, change: Append) -> Branch:
        if (values := _sql.going_on(change, self.clock())) is not None:
            # One statement where all is as the writer thinks; where it is not, the rules say what is wrong.
            row = db.execute(_SQL.go_on, values).fetchone()
            if row is not None:
                self._add(db, change, row[-1])
                return _sql.branch_of(row)
        row = db.execute(_SQL.branch, (change.branch_id,)).fetchone()
        if row is None:
            raise not_found("branch", change.branch_id)
        after = grown(_sql.branch_of(row), change, now=self.clock(), lease=self.lease)
        n = row[-1]
        db.execute(_SQL.change_branch, _sql.changed_values(after, n))
        self._add(db, change, n)
        return after

    def _add(self, db: sqlite3.Connection, change: Append, n: int) -> None:
        if change.closed:
            db.executemany(_SQL.drop_pending, [(n, id) for id in change.closed])
        if change.opened:
            db.executemany(_SQL.add_pending, _sql.pending_values(change, n))
        if change.entries:
            db.executemany(_SQL.add_entry, _sql.entry_values(change, n))

    def _renew(self, db: sqlite3.Connection, claim: Claim) -> Branch:
        values = (self.clock() + self.lease, claim.branch_id, claim.owner, claim.fence)
        if db.execute(_SQL.renew, values).rowcount != 1:
            raise lost(claim)
        return _sql.branch_of(db.execute(_SQL.branch, (claim.branch_id,)).fetchone())

    # The connection

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` gives, in a transaction: it is there as a whole, or nothing of it."""

        def transaction() -> T:
            db = self._ready()
            try:
                self._run(db, _SQL.begin)
                answer = work(db)
                self._run(db, "COMMIT")
            except BaseException as error:
                self._undo(db)
                self._explain(error)
            return answer

        return self._alone(transaction)

    def _read(self, statement: str, values: _sql.Values, make: Callable[[list[_sql.Values]], T]) -> T:
        """What `make` makes of the rows of one statement."""

        def select() -> list[_sql.Values]:
            db = self._ready()
            try:
                return self._run(db, statement, values).fetchall()
            except UnicodeEncodeError:
                return []  # A lone surrogate: no stored text has one, so nothing can match.
            except (sqlite3.Error, UnicodeDecodeError) as error:
                self._explain(error)

        rows = self._alone(select)
        try:
            return make(rows)
        except TypeError:
            raise StoreError(f"{self._path}: the file is damaged: a row in it is not of this schema") from None

    def _ready(self) -> sqlite3.Connection:
        """The connection, opened if need be, in no transaction."""
        if self._closed:
            raise StoreError(f"the store of {self._path} is closed")
        if self._connection is not None and self._pid != os.getpid():
            # Not safe to use, to close, or to open a second time: the locks that SQLite remembers are the parent's.
            raise StoreError(
                f"{self._path} was open when this process was forked by other means than os.fork: open it afterwards"
            )
        if self._connection is not None and self._connection.in_transaction:
            self._undo(self._connection)  # A second interrupt, in the middle of a rollback, left it so.
        return self._connection or self._open()

    def _undo(self, db: sqlite3.Connection) -> None:
        """End the transaction, if there is one, with nothing written."""
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()  # Closing undoes what a rollback could not.

    def _open(self) -> sqlite3.Connection:
        self._pid = os.getpid()
        try:
            self._connection = db = sqlite3.connect(
                self._path, timeout=min(self._timeout, _SLICE), isolation_level=None, check_same_thread=False
            )
            self._run(db, f"PRAGMA synchronous = {self._synchronous}")
            if self._run(db, "PRAGMA journal_mode").fetchone()[0] != "wal":
                self._run(db, "PRAGMA journal_mode = WAL")
            self._migrate(db)
        except BaseException as error:
            self._disconnect()
            self._explain(error)
        return db

    def _run(self, db: sqlite3.Connection, statement: str, values: _sql.Values = ()) -> sqlite3.Cursor:
        """Execute the statement, waiting for the locks of others as long as the store's timeout says."""
        until = 0.0
        while True:
            try:
                return db.execute(statement, values)
            except sqlite3.OperationalError as error:
                now = time.monotonic()
                until = until or now + self._timeout
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _BUSY or now >= until:
                    raise

    def _migrate(self, db: sqlite3.Connection) -> None:
        """Bring the schema up to date. Of several that open a new file one does, and the others wait for it."""
        if not _sql.missing(self._version(db), _SQL, self._path):
            return
        self._run(db, _SQL.begin)
        if db.execute(_SQL.has_schema).fetchone() is None:
            db.execute(_SQL.schema)
            db.execute(_SQL.first_version)
        for statement in _sql.missing(self._version(db), _SQL, self._path):
            db.execute(statement)
        db.execute(_SQL.new_version, (len(_SQL.migrations),))
        self._run(db, "COMMIT")

    def _version(self, db: sqlite3.Connection) -> int:
        """The version of the file's schema, 0 if there is none."""
        if self._run(db, _SQL.has_schema).fetchone() is None:
            return 0
        row = self._run(db, _SQL.version).fetchone()
        if row is None or type(row[0]) is not int:
            raise StoreError(f"{self._path}: the version of its schema cannot be read: the file is damaged")
        return row[0]

    def _close(self) -> None:
        self._closed = True
        self._disconnect()

    def _before_fork(self) -> None:
        if not self._alone.inside:
            self._alone.lock.acquire()
            self._forking = True
            self._disconnect()

    def _after_fork(self) -> None:
        if self._forking:
            self._forking = False
            self._alone.lock.release()

    def _disconnect(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            self._connection.close()
            self._connection = None

    def _explain(self, error: BaseException) -> NoReturn:
        """Raise the error anew, as a `StoreError` if it is the database's. Values are not in the message."""
        if isinstance(error, sqlite3.IntegrityError):
            raise StoreError(f"{self._path}: an id is in the store already, nothing was written: {error}") from error
        if isinstance(error, sqlite3.Error):
            raise StoreError(f"{self._path}: {error}") from error
        if isinstance(error, UnicodeDecodeError):
            raise StoreError(f"{self._path}: the file is damaged: a text in it is not UTF-8") from None
        if isinstance(error, UnicodeEncodeError):
            raise StoreError(f"{self._path}: text with a lone surrogate cannot be stored") from None
        if isinstance(error, OverflowError):
            raise StoreError(f"{self._path}: {error}") from error
        raise error


def _checked_path(path: str) -> str:
    if "\0" in path:
        raise StoreError("the path of a store cannot hold a NUL character")
    if path in ("", ":memory:"):
        raise StoreError("a SQLite store needs a file: for a store that ends with the process, use MemoryStore()")
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        raise StoreError(f"the directory {parent} of the store does not exist: make it first")
    return os.path.abspath(path)


def _close_before_fork(store: SQLiteStore) -> None:
    """Have the store's connection closed before each `os.fork`; parent and child open their own when they need one.

    That the child opens a second one is not enough. SQLite notes the locks on a file once for the whole process, so the
    child would count on those of the inherited connection, which the operating system gave to the parent alone. When
    the parent closes the file then, what the child commits is lost (seen with SQLite 3.40).
    """
    known = weakref.ref(store)

    def before() -> None:
        if (store := known()) is not None:
            store._before_fork()

    def after() -> None:
        if (store := known()) is not None:
            store._after_fork()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)

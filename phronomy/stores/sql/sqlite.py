"""`SQLiteStore`: checkpoints in one file, shared by the threads and processes of a machine."""

from __future__ import annotations

import copy
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypeVar

from phronomy.errors import StoreError
from phronomy.foundation.checks import is_number
from phronomy.foundation.quoting import quoted, quoted_word
from phronomy.stores.alone import Alone
from phronomy.stores.base import AsyncPrimitives
from phronomy.stores.native import TakesTime, is_at_once, is_for_task
from phronomy.stores.sql import statements
from phronomy.stores.sql.group_commit import GroupCommit, Outcome
from phronomy.stores.sql.schema import missing
from phronomy.stores.sql.store import Native, SQLStore, Steps, Traces, done

T = TypeVar("T")

_Identity: TypeAlias = tuple[int, int]
"""The device and the number of a file."""

_SQL: Final = statements.Statements(statements.SQLITE)
_HAS_SCHEMA: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'phronomy_schema'"
# Busy is a lock of another connection, locked one of our own process. Everything else is no question of waiting.
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_SYNCHRONOUS: Final = ("OFF", "NORMAL", "FULL", "EXTRA")
_FEW: Final = 100
"""Rows that an event loop's own thread reads at most: with what is made of them, some milliseconds."""

_SLICE: Final = 0.02
"""Seconds that SQLite itself waits for a lock before it is asked anew.

It asks ever less often, and not at all while it sleeps: in one long wait, a busy writer elsewhere can keep it out for many
seconds, and an interrupt is not heard.
"""


_REMEDIES: Final = {
    sqlite3.SQLITE_BUSY: "somebody else keeps the file: try again, or give the store a longer timeout",
    sqlite3.SQLITE_CORRUPT: "restore the file from a backup",
    sqlite3.SQLITE_FULL: "nothing was written: make room, then try again",
    sqlite3.SQLITE_IOERR: "look after the disk, then try again",
    sqlite3.SQLITE_READONLY: "nothing was written: the file and its folder must be writable",
}
"""What to do, by the primary code of SQLite's error (https://www.sqlite.org/rescode.html)."""


class SQLiteStore(SQLStore):
    """A store in the SQLite file at `path`. If the file is missing, it is created, and only its owner can open it.

    Its directory must exist. Any number of threads and processes of one machine can use the file at once, but not over
    a network file system. `timeout` is the number of seconds that a write waits for other writers. With
    `synchronous="FULL"` every write survives a loss of power. `"NORMAL"` is faster, and can lose the last writes at a
    loss of power, but not when a process dies.

    Raises `StoreError` if the file cannot be opened, is not a database, or was written by a later release. Later calls
    raise `StoreError` if the file is deleted or replaced: nothing is read or written after that.
    """

    _statements = _SQL
    reads_at_once = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tenant: str = "",
        clock: Callable[[], float] = time.time,
        lease: float = 30.0,
        ttl: float | None = None,
        timeout: float = 30.0,
        synchronous: Literal["OFF", "NORMAL", "FULL", "EXTRA"] = "FULL",
    ) -> None:
        super().__init__(tenant=tenant, clock=clock, lease=lease, ttl=ttl)
        if not is_number(timeout) or timeout < 0:
            raise StoreError(f"the timeout must be 0 seconds or more, not {quoted(timeout)}")
        if synchronous not in _SYNCHRONOUS:
            raise StoreError(f"synchronous must be one of {', '.join(_SYNCHRONOUS)}, not {quoted_word(synchronous)}")
        if not isinstance(path, str | os.PathLike):
            raise StoreError(f"the path of a SQLite store is text or a path, not {type(path).__name__}")
        # Opened here and not at the first call: a path that cannot be opened is found out where it was written.
        self._file = _File(_checked_path(os.fspath(path)), timeout, synchronous)
        self._group = GroupCommit(self._file)

    def __repr__(self) -> str:
        tenant = f", tenant={self.tenant!r}" if self.tenant else ""
        return f"SQLiteStore({self._file.path!r}{tenant})"

    @property
    def native(self) -> AsyncPrimitives | None:
        return Native(self, self._group)

    def close(self) -> None:
        self._group.settle()
        self._file.close()

    @property
    def _where(self) -> str:
        return f"{self._file.path}: the file"

    def _write(self, work: Callable[[], Steps[T]], *, again: bool = False, traces: Traces | None = None) -> T:
        if is_at_once():
            raise TakesTime
        # In the middle of another call nobody waits for a thread that waits for this one: the file refuses it.
        if is_for_task() and not self._file.alone.inside:
            return self._group.write_in_thread(work)
        return self._file.write(work)

    def _read(self, statement: str, values: statements.Values) -> list[statements.Row]:
        return (self._file.at_once if is_at_once() else self._file.read)(statement, values)


def _text(value: bytes) -> str | bytes:
    """A text in the file. One that is not UTF-8 is no text: its row is damaged, and whoever reads the row says so."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


class _Open:
    """A transaction of a connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def one(self, statement: str, values: statements.Values) -> statements.Row | None:
        row: statements.Row | None = self._db.execute(statement, values).fetchone()
        return row

    def all(self, statement: str, values: statements.Values) -> list[statements.Row]:
        return self._db.execute(statement, values).fetchall()

    def run(self, statement: str, values: statements.Values) -> int:
        return self._db.execute(statement, values).rowcount

    def many(self, statement: statements.Many, rows: Sequence[statements.Values]) -> None:
        # A prepared statement run for each row costs nothing here: there is no journey, and the text is parsed once.
        self._db.executemany(statement.one, rows)

    def alone(self, tenant: str, name: str) -> None:
        """One transaction writes at a time anyway."""


class _File:
    """The connection to a file, which the stores of all its tenants share: one call at a time uses it.

    It has a second one, which opens when it is first needed, for the reads of event loops. Whoever takes both takes this one first.
    """

    def __init__(self, path: str, timeout: float, synchronous: str, *, only_reads: bool = False) -> None:
        self.path = path
        self._timeout = timeout
        self._synchronous = synchronous
        self.connection: sqlite3.Connection | None = None
        # Device and number of each file as it was opened, to tell later whether the path still leads to it.
        self._opened: dict[str, _Identity] = {}
        self._waited = 0.0
        self.pid = 0
        self._closed = False
        self._forking = False
        self.alone = Alone()
        self._reader: _File | None = None
        if not only_reads:
            # Made now, though not opened: so threads that are first to read make one, and what is closed stays closed.
            self._reader = _File(path, 0, synchronous, only_reads=True)
            _close_before_fork(self)
            self.alone(self.ready)

    def write(self, work: Callable[[], Steps[T]], waited: float = 0.0) -> T:
        """Run the steps in one transaction, and return their result. All of it is written, or nothing.

        They have waited for so many seconds of the timeout.
        """
        return self._transaction(lambda db: done(work(), _Open(db)), waited)

    def write_each(self, works: Sequence[Callable[[], Steps[Any]]], waited: float = 0.0) -> list[Outcome]:
        """Run the steps of each in one transaction, and return what came of each: one that is refused leaves nothing behind.

        They have waited for so many seconds of the timeout. Raises the fault for which the whole is undone, and which may be that of
        one write in it.
        """
        begun = False

        def each(db: sqlite3.Connection) -> list[Outcome]:
            nonlocal begun
            begun = True
            return [self._within(db, work) for work in works]

        try:
            return self._transaction(each, waited)
        except Exception as error:
            if begun:
                raise
            # The file is away, or somebody else keeps it: so it is for each, and nobody waits for that once more.
            return [(None, _told_anew(error)) for _ in works]

    def _within(self, db: sqlite3.Connection, work: Callable[[], Steps[Any]]) -> Outcome:
        """Run the steps as a part of a transaction, which goes on if they are refused."""
        db.execute("SAVEPOINT one")
        try:
            outcome: Outcome = done(work(), _Open(db)), None
        except Exception as error:
            faulty = isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError)
            if faulty or not db.in_transaction:
                raise
            db.execute("ROLLBACK TO one")
            outcome = None, self._explained(error)
        db.execute("RELEASE one")
        return outcome

    def _transaction(self, body: Callable[[sqlite3.Connection], T], waited: float) -> T:
        """Run the body in one transaction, and return its result. All of it is written, or nothing."""

        def transaction() -> T:
            db = self.ready()
            try:
                # From here to COMMIT this connection alone may write, in all processes.
                self._waited = waited
                try:
                    self._run(db, _SQL.begin)
                finally:
                    self._waited = 0.0
                # Inside the transaction. Before it, the file could be replaced between the look and the lock, and the
                # decision would be written into a file that has no name any more.
                self._check()
                answer = body(db)
                self._run(db, "COMMIT")
            # Ctrl-C as well: a transaction that is left open would keep every other process out until this one ends.
            except BaseException as error:
                self._undo(db)
                self._explain(error)
            return answer

        return self.alone(transaction)

    def read(self, statement: str, values: statements.Values) -> list[statements.Row]:
        """The rows of one statement."""

        def select() -> list[statements.Row]:
            db = self.ready()
            try:
                rows = self._run(db, statement, values).fetchall()
                self._check()
                return rows
            except UnicodeEncodeError:
                return []  # A lone surrogate: no stored text has one, so nothing can match.
            except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
                self._explain(error)

        return self.alone(select)

    def at_once(self, statement: str, values: statements.Values) -> list[statements.Row]:
        """The rows of one statement, if they are few. Waits for nobody. Raises `TakesTime`.

        The connection that writes is not free while a commit waits for the disk. Another one reads beside it all the time: what is
        committed it sees.
        """
        reader = self._reader or self
        try:
            return reader.alone(reader.few, self._opened, statement, values)
        except (StoreError, sqlite3.Error, UnicodeError, OverflowError):
            raise TakesTime from None  # what is wrong, `read` says

    def few(self, opened: Mapping[str, _Identity], statement: str, values: statements.Values) -> list[statements.Row]:
        """The rows of one statement, by this connection. Raises `TakesTime` if they are many.

        `opened` are the files as the other connection has opened them, to which this one is to lead as well.
        """
        if self.connection is None:
            self._opened = {**opened}
        with closing(self.ready().execute(statement, values)) as found:
            rows = found.fetchmany(_FEW + 1)
        self._check()
        if len(rows) > _FEW:
            raise TakesTime
        return rows

    def ready(self) -> sqlite3.Connection:
        """The connection, opened if need be, in no transaction."""
        if self._closed:
            raise StoreError(f"the store of {self.path} is closed")
        if self.connection is not None and self.pid != os.getpid():
            # Not safe to use, to close, or to open a second time: the locks that SQLite remembers are the parent's.
            raise StoreError(
                f"{self.path} was open when this process was forked by other means than os.fork: open it afterwards"
            )
        if self.connection is not None and self.connection.in_transaction:
            self._undo(self.connection)  # A second interrupt, in the middle of a rollback, left it so.
        return self.connection or self._open()

    def _undo(self, db: sqlite3.Connection) -> None:
        """End the transaction, if there is one, with nothing written."""
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error:
            self.disconnect()  # Closing undoes what a rollback could not.

    def _open(self) -> sqlite3.Connection:
        # Before anything is opened: if the process is forked in the middle, the child sees at once that this is not its
        # connection.
        self.pid = os.getpid()
        self._check()  # where the file was once open: SQLite would make a new one
        try:
            _make(self.path)
            self.connection = db = sqlite3.connect(
                f"{Path(self.path).as_uri()}?mode=rw",  # SQLite would make it with the modes that the umask leaves
                uri=True,
                timeout=min(self._timeout, _SLICE),
                # Python would begin transactions by itself, deferred ones, just before the first write: after the read
                # that the write depends on.
                isolation_level=None,
                # Threads take turns by `alone`, so the check has nothing to protect.
                check_same_thread=False,
            )
            db.text_factory = _text
            # Each commit is on the disk before its caller hears of it, with FULL. In WAL mode NORMAL syncs only now and
            # then: nothing is torn, but the last decisions may be gone after a loss of power, with their tools having
            # run.
            self._run(db, f"PRAGMA synchronous = {self._synchronous}")
            # Readers and one writer side by side, and one sync for a commit instead of two. Asked first: to set the
            # mode needs the file for oneself, and would wait for every other process, although it is set in the file
            # once and for all.
            if self._run(db, "PRAGMA journal_mode").fetchone()[0] != "wal":
                self._run(db, "PRAGMA journal_mode = WAL")
            self._migrate(db)
        except BaseException as error:
            self.disconnect()
            self._explain(error)
        # Only now: SQLite has made the log and its index with the first statement.
        files = (self.path, *self._beside())
        self._opened = {path: found for path in files if (found := _identity(path)) is not None}
        return db

    def _check(self) -> None:
        """Refuse files that are not those which were opened. Raises `StoreError`.

        The connection has the old ones, which nobody else sees: what is decided there would be decided once more in the new ones.
        Nobody takes the log or its index away while the file is open, and whoever opens the file last finds what is committed in the
        log alone. Two processes with two indexes do not hear of each other.
        """
        for path, opened in self._opened.items():
            try:  # as `_identity`, which this spares twenty calls in a short run
                found = os.stat(path)
                same = (found.st_dev, found.st_ino) == opened
            except OSError:
                same = False
            if not same:
                raise StoreError(
                    f"{path} is not the file that this store opened: it was deleted, or another was put in its place."
                    " Nothing was read or written. Put it back, or close the store and open another"
                )

    def _run(self, db: sqlite3.Connection, statement: str, values: statements.Values = ()) -> sqlite3.Cursor:
        """Execute the statement, waiting for the locks of others as long as the store's timeout says."""
        until = 0.0
        while True:
            try:
                return db.execute(statement, values)
            except sqlite3.OperationalError as error:
                now = time.monotonic()
                # The time begins with the first refusal. Interrupts are heard between two slices.
                until = until or now + self._timeout - self._waited
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _BUSY or now >= until:
                    raise

    def _migrate(self, db: sqlite3.Connection) -> None:
        """Bring the schema up to date. Of several that open a new file one does, and the others wait for it."""
        # Looked at without a lock, since that is all that most openings need; and once more under it, as another
        # process may have been first.
        if not missing(self._version(db), _SQL.migrations, self.path):
            return
        self._run(db, _SQL.begin)
        # In one transaction with the tables: a crash leaves a file with all of them or with none.
        if db.execute(_HAS_SCHEMA).fetchone() is None:
            db.execute(_SQL.schema)
            db.execute(_SQL.first_version)
        for migration in missing(self._version(db), _SQL.migrations, self.path):
            for statement in migration:
                db.execute(statement)
        db.execute(_SQL.new_version)
        self._run(db, "COMMIT")

    def _version(self, db: sqlite3.Connection) -> int:
        """The version of the file's schema, 0 if there is none."""
        try:
            row = self._run(db, _SQL.version).fetchone()
        except sqlite3.OperationalError:
            # Whether the table is there is asked only now: it is missing at the first opening alone.
            if self._run(db, _HAS_SCHEMA).fetchone() is None:
                return 0
            # Another process has made it in between, or something else is wrong, which is said now.
            row = self._run(db, _SQL.version).fetchone()
        # Guessing 0 would run the first migration over tables that are there.
        if row is None or type(row[0]) is not int:
            raise StoreError(f"{self.path}: the version of its schema cannot be read: the file is damaged")
        return row[0]

    def close(self) -> None:
        """Let go of the file for good."""

        def let_go() -> None:
            self._closed = True
            self.disconnect()

        self.alone(let_go)
        if self._reader is not None:
            self._reader.close()

    def before_fork(self) -> None:
        """Let go of the file, and keep all others off it until the fork is made."""
        if not self.alone.inside:
            # Kept until the fork is over, so that no other thread opens the file again in between.
            self.alone.lock.acquire()
            self._forking = True
            self.disconnect()
        if self._reader is not None:
            self._reader.before_fork()

    def after_fork(self) -> None:
        """Let the others at the file again."""
        if self._reader is not None:
            self._reader.after_fork()
        if self._forking:
            self._forking = False
            self.alone.lock.release()

    def disconnect(self) -> None:
        """Close the connection, if there is one and it is this process's."""
        # A connection of the parent is left as it is: closing it here would give up the parent's locks on the file,
        # since the system counts them by process and file.
        if self.connection is not None and self.pid == os.getpid():
            self.connection.close()
            self.connection = None
            # Of the log and its index SQLite makes others.
            self._opened = {path: found for path, found in self._opened.items() if path == self.path}

    def _beside(self) -> tuple[str, ...]:
        """The log and its index. SQLite makes them with the first connection, and takes them away with the last."""
        real = os.path.realpath(self.path)
        return f"{real}-wal", f"{real}-shm"

    def _explained(self, error: Exception) -> Exception:
        """The error that `_explain` raises."""
        try:
            self._explain(error)
        except Exception as told:
            return told

    def _explain(self, error: BaseException) -> NoReturn:
        """Raise the error anew, as a `StoreError` if it is the database's. Values are not in the message."""
        if isinstance(error, sqlite3.Error):
            self._check()  # a file whose log is gone is "malformed", or worse
        # A race that the checks before it did not see, between two writes of one change: two rows of one id. The
        # transaction is undone as a whole.
        if isinstance(error, sqlite3.IntegrityError):
            raise StoreError(f"{self.path}: an id is in the store already, nothing was written: {error}") from error
        if isinstance(error, sqlite3.Error):
            remedy = _REMEDIES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
            raise StoreError(f"{self.path}: {error}{f': {remedy}' if remedy else ''}") from error
        if isinstance(error, UnicodeDecodeError):  # the name of a table, say, in SQLite's own message
            raise StoreError(f"{self.path}: the file is damaged: a text in it is not UTF-8") from None
        if isinstance(error, UnicodeEncodeError):
            raise StoreError(f"{self.path}: text with a lone surrogate cannot be stored") from None
        if isinstance(error, OverflowError):
            raise StoreError(f"{self.path}: {error}") from error
        raise error


def _told_anew(error: Exception) -> Exception:
    """Another error that says the same: each task raises one of its own, or they would add to one traceback."""
    again = copy.copy(error)
    again.__cause__, again.__suppress_context__ = error.__cause__, True
    return again


def is_store(path: Path) -> bool:
    """Whether the file may be a store of ours: it has the tables, or nobody can tell now. Nothing is written."""
    try:
        # Read only, so that looking at somebody's file does not make it a database.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return db.execute(_HAS_SCHEMA).fetchone() is not None
    except sqlite3.Error:  # opening it says what is wrong
        return True


def _identity(path: str) -> _Identity | None:
    """What tells a file from every other, None if it is not there. It is not opened: to close it would give up SQLite's locks."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    # Both: an inode number is unique within one file system only, and a path may lead through a mount.
    return found.st_dev, found.st_ino


def _checked_path(path: str) -> str:
    if "\0" in path:
        raise StoreError("the path of a store cannot hold a NUL character")
    # SQLite would take either for a database that ends with its connection, and each fork and each reopening would
    # begin with nothing.
    if path in ("", ":memory:"):
        raise StoreError("a SQLite store needs a file: for a store that ends with the process, use MemoryStore()")
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        raise StoreError(f"the directory {parent} of the store does not exist: make it first")
    # Absolute, so that a change of the working directory does not lead the store, when it opens the file anew, to
    # another one.
    return os.path.abspath(path)


_MAKING: Final = threading.Lock()
"""Held while a file is made. A process that closes a file loses all its locks on it, those of a connection beside it too."""


def _make(path: str) -> None:
    """Make the file, for its owner alone, if it is not there. SQLite gives those beside it its mode, and says why one cannot be."""
    # With O_EXCL, so that a file that is there by now is not opened here at all: to close it again would give up the locks
    # that a connection of this process has on it. Looked at with the lock held: whoever makes it may not have closed it yet.
    with _MAKING, suppress(OSError):
        if not os.path.exists(path):
            os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _close_before_fork(file: _File) -> None:
    """Have the file's connection closed before each `os.fork`; parent and child open their own when they need one.

    That the child opens a second one is not enough. SQLite notes the locks on a file once for the whole process, so the
    child would count on those of the inherited connection, which the operating system gave to the parent alone. When
    the parent closes the file then, what the child commits is lost (seen with SQLite 3.40).
    """
    # Hooks of `os.fork` cannot be taken back. A strong reference would keep every store that was ever opened.
    known = weakref.ref(file)

    def before() -> None:
        if (file := known()) is not None:
            file.before_fork()

    def after() -> None:
        if (file := known()) is not None:
            file.after_fork()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)

"""The connections of a PostgreSQL store: transactions that are whole, made again only where that is safe, and errors in words.

Nothing here lasts longer than a transaction, so a pool (in this process, or between it and the server) may give each transaction
another connection. No setting of a session is changed, and no statement is prepared on the server unless the store was told to.
"""

from __future__ import annotations

import atexit
import math
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from phronomy.errors import StoreError
from phronomy.foundation.quoting import quoted_place
from phronomy.stores.alone import Alone
from phronomy.stores.sql import statements
from phronomy.stores.sql.postgres_errors import (
    AGAIN,
    ENCODING,
    LOST,
    STALE,
    UNPREPARED,
    WORDS,
    AnyConnection,
    Connection,
    is_lost,
    is_unstorable,
    unconnected,
)
from phronomy.stores.sql.statements import lock_number
from phronomy.stores.sql.store import Steps, Traces, Transaction, done

T = TypeVar("T")
Pool: TypeAlias = ConnectionPool[Connection]

THRESHOLD: Final = 5
"""How often a connection sends a statement before it is prepared: what is asked once is not worth it."""
LOOKS: Final = (0.01, 0.5)
"""Seconds between two looks at what became of a transaction: at first, and at most."""
POOL_ERRORS: Final = (PoolTimeout, TooManyRequests, PoolClosed)
# Of the transaction, not of the session: with a pooler in between, the session is somebody else's a moment later, with
# the lock in it.
LOCK: Final = "SELECT pg_advisory_xact_lock(%s)"
BECAME: Final = "SELECT pg_xact_status(%s::xid8)"


def batches(statement: statements.Many, rows: Sequence[statements.Values]) -> Iterator[tuple[str, statements.Values]]:
    """The statements for that many rows, each with its values: one for a thousand."""
    # The protocol has room for 65,535 values in a statement, and a row has up to seven.
    for first in range(0, len(rows), 1000):
        some = rows[first : first + 1000]
        yield statement.of(len(some)), tuple(value for row in some for value in row)


class Gone(Exception):
    """The transaction was cut off before it was to be committed, or undone: nothing of it was written."""


# The one moment in which a client cannot know: COMMIT was sent, and the connection broke before its answer. To write
# again might record a decision twice, to give up might lose one. So the server is asked by the number of the
# transaction.
class InDoubt(Exception):
    """The connection was lost with the answer to COMMIT: transaction `id` was committed, or not. If so, its answer is `answer`."""

    def __init__(self, id: str, answer: Any) -> None:
        super().__init__(id)
        self.id = id
        self.answer = answer


class Open(Transaction):
    """A transaction on a connection, from its beginning to its end."""

    def __init__(self, connection: Connection, begin: str, prepare: bool | None) -> None:
        self._cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        self._prepare = prepare
        # Several statements at once, of which the last gives the number of the transaction: these cannot be prepared.
        self._cursor.execute(begin.encode(), prepare=False)
        while self._cursor.nextset():
            pass
        found = self._cursor.fetchone()
        assert found is not None
        self.id: Final[str] = found[0]

    def _execute(self, statement: str, values: statements.Values) -> psycopg.Cursor[statements.Row]:
        return self._cursor.execute(statement.encode(), values, prepare=self._prepare)

    def one(self, statement: str, values: statements.Values) -> statements.Row | None:
        return self._execute(statement, values).fetchone()

    def all(self, statement: str, values: statements.Values) -> list[statements.Row]:
        return self._execute(statement, values).fetchall()

    def run(self, statement: str, values: statements.Values) -> int:
        return self._execute(statement, values).rowcount

    def many(self, statement: statements.Many, rows: Sequence[statements.Values]) -> None:
        for text, values in batches(statement, rows):
            self._execute(text, values)

    def alone(self, tenant: str, name: str) -> None:
        self._execute(LOCK, (lock_number("thread", tenant, name),))

    def commit(self) -> None:
        """Commit it. Raises `Gone` if the server undid it instead."""
        self._cursor.execute("COMMIT", prepare=False)
        # A COMMIT of a transaction that has failed is answered by ROLLBACK, without an error.
        if self._cursor.statusmessage != "COMMIT":
            raise Gone


class Server:
    """The connections to a server, which the stores of all its tenants share. `name` stands for it in messages, and `where` says
    where it is in those about connections.

    `pool` is somebody else's; without one, a pool of its own is made when it is needed, and anew in a forked child. `begin_with` is
    called once with a connection, before anything else is asked. `prepare` is what the driver is told for each statement: False, never
    to prepare it, or None, to prepare what comes often.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Pool] | None,
        pool: Pool | None,
        connect: Callable[[], Connection] | None,
        timeout: float,
        where: str,
        prepare_statements: bool,
    ) -> None:
        self.name = name
        self.where = where
        self.begin_with: Callable[[Connection], None] | None = None
        # Never, unless the store was told to: a pooler may give the next transaction another session, which does not
        # have what was prepared in this one.
        self.prepare: Final = None if prepare_statements else False
        self._make = make
        self._pool = pool
        self._connect = connect
        self.timeout: Final = timeout
        milliseconds = max(1, min(int(timeout * 1000), 2**31 - 1))
        # A worker that is gone must not keep its rows locked, even if the server does not notice that it is gone; and
        # what became of its last transaction is known before others stop waiting. The number of the transaction is what
        # is asked for then. `SET LOCAL` ends with the transaction, so that nothing of ours stays in a session that
        # others use.
        idle = max(1000, milliseconds // 2)
        self.begin: Final = (
            f"{statements.POSTGRES.begin}; SET LOCAL lock_timeout = {milliseconds};"
            f" SET LOCAL idle_in_transaction_session_timeout = {idle}; SELECT pg_current_xact_id()::text"
        )
        self._closed = False
        self._ready = False
        self._lock = threading.Lock()
        # A guard for each thread: threads have connections of their own and need not take turns.
        self._mine = threading.local()
        self._pid = os.getpid()
        renew_after_fork(self.after_fork)

    # Transactions

    def write(self, work: Callable[[], Steps[T]], again: bool, traces: Traces | None = None) -> T:
        """Run the steps in one transaction, and return their result. They run a second time if that can do no harm."""
        return self._alone(lambda: self._write(work, again, traces))

    def _write(self, work: Callable[[], Steps[T]], again: bool, traces: Traces | None) -> T:
        # Twice and no more: a server that was restarted has made every connection of the pool stale, so one failure is
        # to be expected; a second one is news for the caller.
        for last in (False, True):
            try:
                return self._attempt(work)
            except Gone:
                pass
            except InDoubt as doubt:
                # Committed: the answer is that of the transaction which is lost, not of another look, since the branch
                # may have moved on since.
                if not (again and not last) and self._was_committed(doubt.id) and self._shows(traces):
                    answer: T = doubt.answer
                    return answer
            if not last:
                self._refresh()
        raise self.lost_twice(", nothing was written")

    def _attempt(self, work: Callable[[], Steps[T]]) -> T:
        failure: BaseException
        # Until COMMIT is sent nothing of it can have been written, and it is safe to begin anew.
        sent, id, answer = False, "", None
        with self._connection() as connection:
            try:
                transaction = Open(connection, self.begin, self.prepare)
                id = transaction.id
                answer = done(work(), transaction)
                sent = True
                transaction.commit()
                return answer
            except psycopg.Error as error:
                # An error that the server answered with is no doubt: it says that nothing was committed. Only silence
                # is.
                doubt = InDoubt(id, answer) if sent and is_lost(connection, error) else None
                failure = doubt or self.judged(connection, error)
            except UnicodeEncodeError:
                failure = self.surrogate()
            finally:
                _undo(connection)
        raise failure  # here, so that the driver's error, which quotes values, is not its context

    def _was_committed(self, id: str) -> bool:
        """Whether transaction `id` was committed. Raises `StoreError` if the server does not say so in time."""
        # The server may be down at first, or still be working on the COMMIT of a session whose client is gone. That
        # ends within half of the timeout, by the limit set in `begin`.
        until, pause = time.monotonic() + self.timeout, LOOKS[0]
        while time.monotonic() < until:
            status = None
            with suppress(StoreError):
                self._refresh()
                status = self._rows(BECAME, (id,))[0][0]
                if status is None:
                    break  # so long ago that the server has forgotten
            # Anything else is "in progress".
            if status in ("committed", "aborted"):
                return bool(status == "committed")
            time.sleep(pause)
            pause = min(pause * 2, LOOKS[1])
        raise self.unsaid()

    def _shows(self, traces: Traces | None) -> bool:
        """Whether what was committed is there; without traces that is taken for granted."""
        # A server that crashed gives the number of a transaction that it has lost to another one, and says that it was committed.
        return traces is None or all(shows(self._rows(statement, values)) for statement, values, shows in traces())

    def read(self, statement: str, values: statements.Values) -> list[statements.Row]:
        """The rows of one statement."""
        return self._alone(lambda: self._rows(statement, values))

    def _rows(self, statement: str, values: statements.Values) -> list[statements.Row]:
        for last in (False, True):
            try:
                return self._select(statement, values)
            except Gone:
                if not last:
                    self._refresh()
        raise self.lost_twice()

    def _select(self, statement: str, values: statements.Values) -> list[statements.Row]:
        failure: BaseException
        with self._connection() as connection:
            try:
                cursor = psycopg.Cursor(connection, row_factory=tuple_row)
                return cursor.execute(statement.encode(), values, prepare=self.prepare).fetchall()
            except psycopg.Error as error:
                if is_unstorable(error):
                    return []  # A NUL character: no stored text has one, so nothing can match.
                failure = self.judged(connection, error)
            except UnicodeEncodeError:
                return []  # A lone surrogate: as above.
        raise failure

    # Connections

    def _alone(self, work: Callable[[], T]) -> T:
        """Refuse a call from within another on the same thread: it might wait for it. Threads do not wait for each other."""
        # A signal handler that calls the store in the middle of a transaction would wait for a row that its own thread
        # has locked, until the timeout.
        alone: Alone | None = getattr(self._mine, "alone", None)
        if alone is None:
            alone = self._mine.alone = Alone()
        return alone(work)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """A connection of the pool that commits each statement by itself, in no transaction."""
        pool = self.opened()
        connection = self._taken(pool)
        kept = connection.autocommit
        try:
            # The connections of somebody else's pool may begin transactions by themselves. Ours are begun in so many
            # words, and such a connection is given back as it came.
            if not kept:
                _set_autocommit(connection, True)
            yield connection
        finally:
            _undo(connection)
            if not kept:
                with suppress(Gone):
                    _set_autocommit(connection, False)
            pool.putconn(connection)

    def _taken(self, pool: Pool) -> Connection:
        try:
            connection: Connection = pool.getconn(timeout=self.timeout)
        except POOL_ERRORS as error:
            failure = self.without(error)
        else:
            return connection
        raise failure

    def opened(self) -> Pool:
        """The pool, once what must be done first is done."""
        if self.is_ready and self._pool is not None:
            return self._pool
        self.check()
        with self._lock:
            return self._open()

    @property
    def is_ready(self) -> bool:
        """Whether what must be done first was done, in this process."""
        return self._ready and self._pid == os.getpid()

    def check(self) -> None:
        """Refuse what cannot be used any more. Raises `StoreError`."""
        # A socket that two processes share mixes their answers. After an `os.fork` this is set right by `after_fork`; a
        # fork made by C code calls no hook.
        if self._pid != os.getpid():
            raise StoreError(
                f"{self.name}: the process was forked by other means than os.fork: make the store in the child"
            )
        if self._closed:
            raise StoreError(f"{self.name}: the store is closed")
        if self._pool is None and self._make is None:
            raise StoreError(
                f"{self.name}: its pool was made by the parent process, before the fork: give a new store a new pool"
            )

    def _open(self) -> Pool:
        # Under the lock: of many threads that come first at once, one looks at the tables, and the others find it done.
        if not self._ready and self.begin_with is not None:
            with self.any_connection() as connection:
                self.begin_with(connection)
        pool = self._pool
        if pool is None:
            assert self._make is not None
            pool = self._make()
            pool.open()
            self._pool = pool
        self._ready = True
        return pool

    @contextmanager
    def any_connection(self) -> Iterator[Connection]:
        """A connection to set up the store with. A wrong address or password is a `StoreError` at once."""
        self.check()
        failure: BaseException
        try:
            # One connection of its own, outside the pool: its error says what is wrong, where a pool would say only
            # that none could be had in time.
            if self._connect is not None:
                with self._connect() as connection:
                    check_encoding(connection)
                    yield connection
            else:
                assert self._pool is not None
                connection = self._taken(self._pool)
                try:
                    check_encoding(connection)
                    with connection.transaction():
                        yield connection
                finally:
                    self._pool.putconn(connection)
            return
        except psycopg.Error as error:
            failure = self.explained(error)
        raise failure

    def _refresh(self) -> None:
        """Have the pool look at its connections, and make those anew that were lost, as all are when a server is restarted."""
        pool = self._pool
        if pool is not None:
            with suppress(psycopg.Error):
                # Otherwise each call would meet one more of the dead connections, and fail as often as there are.
                pool.check()

    def close(self) -> None:
        """Close the pool, unless it is somebody else's."""
        with self._lock:
            # Under the lock, so that no thread opens the pool again while it is being closed. Closing itself waits for
            # the pool's threads, and is done outside.
            self._closed, self._ready = True, False
            pool, self._pool = self._pool, None
        if pool is not None and self._make is not None and self._pid == os.getpid():
            pool.close()

    def after_fork(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        # Kept to the end: a pool that is collected waits for its threads, which are not there.
        atexit.register(lambda _: None, self._pool)
        # Neither closed nor used: a close would say goodbye to the server over the parent's sockets, and end its
        # sessions.
        self._pool, self._ready = None, False
        self._lock, self._mine, self._pid = threading.Lock(), threading.local(), os.getpid()

    def explain(self, work: Callable[[], None]) -> None:
        """Do the work. Raises `StoreError` for an error of the driver's, which is not its context: it quotes values."""
        # Raised after the except block, as in `_attempt`.
        failure: StoreError | None = None
        try:
            work()
        except psycopg.Error as error:
            failure = self.explained(error)
        if failure is not None:
            raise failure

    @staticmethod
    def run(connection: Connection, text: str) -> None:
        """Execute a text of any number of statements."""
        psycopg.Cursor(connection).execute(text.encode(), prepare=False)

    @staticmethod
    def row(connection: Connection, statement: str, values: statements.Values = ()) -> statements.Row | None:
        """The first row that a statement gives, None if it gives none."""
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        return cursor.execute(statement.encode(), values or None, prepare=False).fetchone()

    def judged(self, connection: AnyConnection, error: psycopg.Error) -> Exception:
        """The error to raise where nothing was written: `Gone` if the same may be tried again."""
        # Nothing was written in either case, so the whole may be done again from its beginning.
        if is_lost(connection, error) or error.sqlstate in AGAIN:
            return Gone()
        if self.prepare is None and error.sqlstate in (STALE, *UNPREPARED):
            connection.pgconn.finish()  # the next one has prepared nothing yet
            if error.sqlstate == STALE:
                return Gone()
        return self.explained(error)

    def without(self, error: Exception) -> StoreError:
        """The error for a pool that gives no connection."""
        if isinstance(error, TooManyRequests):
            what = "too many wait for a connection of the pool already"
        elif isinstance(error, PoolClosed):
            what = "the pool of connections is closed"
        else:
            what = f"no connection could be had in {self.timeout:g} seconds: the server is down, or the pool too small"
        return StoreError(f"{self.name}{self.where}: {what}")

    def lost_twice(self, so: str = "") -> StoreError:
        """The error for a second connection that was lost as well."""
        return StoreError(f"{self.name}{self.where}: the connection was lost twice{so}: try again")

    def unsaid(self) -> StoreError:
        """The error for a write of which nobody knows whether it was done."""
        return StoreError(
            f"{self.name}{self.where}: the connection was lost during a commit, and the server does not say whether it was done:"
            " load the run to see how far it is before anything is decided again"
        )

    def surrogate(self) -> StoreError:
        """The error for text that is not Unicode."""
        return StoreError(f"{self.name}: text with a lone surrogate cannot be stored")

    def explained(self, error: psycopg.Error) -> StoreError:
        """An error as a `StoreError`, without a word of the server's: they quote values, and say who connects to what."""
        if is_unstorable(error):
            return StoreError(
                f"{self.name}: text with a NUL character cannot be stored in PostgreSQL, nothing was written"
            )
        # Its own words would be the best help, and cannot be given: they quote the values of the statement and the name
        # of the user.
        code = error.sqlstate or ""
        what = WORDS.get(code) or type(error).__name__
        if code == "42501" and (found := re.search(r"\bphronomy_\w+", str(error))):
            what += f" on {found[0]}"  # the names of our tables are no secret
        if isinstance(error, psycopg.OperationalError) and not code:
            what = f"no connection: {unconnected(error)}"
        where = (
            self.where if isinstance(error, psycopg.OperationalError) and (not code or code.startswith(LOST)) else ""
        )
        return StoreError(f"{self.name}{where}: {what}{f' ({code})' if code else ''}")


def _set_autocommit(connection: Connection, value: bool) -> None:
    """Say whether a statement is a transaction by itself; nothing is sent for it. Raises `Gone` for a connection that is lost."""
    try:
        connection.autocommit = value
    except psycopg.Error:
        raise Gone from None


def is_open(connection: AnyConnection) -> bool:
    """Whether the connection is in a transaction."""
    return not connection.closed and connection.info.transaction_status in (
        TransactionStatus.INTRANS,
        TransactionStatus.INERROR,
    )


# A connection that is given back in a transaction would keep its locks until the pool looks at it.
def _undo(connection: Connection) -> None:
    """End the transaction, if there is one, with nothing written. A connection on which this fails is one that the pool drops."""
    if is_open(connection):
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK", prepare=False)


def renew_after_fork(renew: Callable[[], None]) -> None:
    """Have this method called in every forked child, for as long as its object lives."""
    known = weakref.WeakMethod(renew)

    def after() -> None:
        if (renew := known()) is not None:
            renew()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=after)


def shared_server(pool: object, *, timeout: float, prepare_statements: bool) -> Server:
    """The connections of a pool that is somebody else's. Raises `StoreError` for what is none."""
    if not isinstance(pool, ConnectionPool):
        raise StoreError(
            "the pool of a PostgreSQL store is a psycopg_pool.ConnectionPool, whose connections are not async"
        )
    conninfo: Any = pool.conninfo  # later releases of the pool take a function that gives it
    where = _place_of(conninfo) if isinstance(conninfo, str) else ""
    return Server("PostgreSQL", None, pool, None, timeout, where, prepare_statements)


def check_encoding(connection: AnyConnection) -> None:
    """Refuse a connection, or a database, that cannot carry every text. Raises `StoreError`."""
    # As the server has told when it was connected: nothing is asked for it.
    spoken = connection.info.parameter_status("client_encoding")
    if spoken not in (None, "UTF8"):
        raise StoreError(
            f"the connections of the pool carry text in {spoken}: make them with client_encoding='utf8', or a text would come back"
            " as something else"
        )
    kept = connection.info.parameter_status("server_encoding")
    # A database in SQL_ASCII keeps the bytes as they come, which are UTF-8.
    if kept not in (None, "UTF8", "SQL_ASCII"):
        raise StoreError(
            f"the database is in the encoding {kept}, which has no place for most characters: make one with ENCODING 'UTF8'"
        )


def own_server(conninfo: str, *, min_size: int, max_size: int, timeout: float, prepare_statements: bool) -> Server:
    """The connections to the server of this conninfo, in a pool of our own. Raises `StoreError` for what cannot be one."""
    _check_conninfo(conninfo)
    # Without one connection every call would wait for its whole timeout, and then say that the pool is too small.
    if not 0 <= min_size <= max_size or max_size < 1:
        raise StoreError(
            "the pool of a PostgreSQL store has max_size connections, 1 or more, and keeps min_size of them"
        )

    def connect() -> Connection:
        return psycopg.connect(conninfo, autocommit=True, connect_timeout=patience(timeout), client_encoding=ENCODING)

    def make() -> Pool:
        threshold = THRESHOLD if prepare_statements else None
        options = {"autocommit": True, "prepare_threshold": threshold, "client_encoding": ENCODING}
        return ConnectionPool(
            conninfo, min_size=min_size, max_size=max_size, timeout=timeout, kwargs=options, num_workers=1, open=False
        )

    return Server("PostgreSQL", make, None, connect, timeout, _place_of(conninfo), prepare_statements)


def _place_of(conninfo: str) -> str:
    """Where the server of this conninfo is, as messages say it; empty if that is not plain.

    In a URL whose password has a `/` or a `?` that is not percent-encoded, what libpq takes for the host is the user, and for the
    port the beginning of the password: then there is an `@` in what follows.
    """
    # What cannot be read is left out of the message: half a password is one too many.
    with suppress(psycopg.Error, UnicodeEncodeError):
        known = {key: str(value) for key, value in conninfo_to_dict(conninfo).items()}
        if any("@" in value for key, value in known.items() if key not in ("user", "password")):
            return ""
        hosts = known.get("host") or known.get("hostaddr") or os.environ.get("PGHOST", "")
        return quoted_place(hosts, known.get("port") or os.environ.get("PGPORT", "5432"))
    return ""


def patience(timeout: float) -> int:
    """The seconds that libpq is given to connect: whole ones, and two at least."""
    return max(2, math.ceil(timeout))


def _check_conninfo(conninfo: str) -> None:
    """Refuse what libpq cannot read, without quoting it. Raises `StoreError`."""
    try:
        conninfo_to_dict(conninfo)
        readable = "\0" not in conninfo
    except (psycopg.Error, UnicodeEncodeError):
        readable = False
    if readable:
        return
    raise StoreError(
        "the conninfo of a PostgreSQL store cannot be read: it is a postgresql:// URL, or host=... dbname=..."
    )

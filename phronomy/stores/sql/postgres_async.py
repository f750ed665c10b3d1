"""The connections of a PostgreSQL store in event loops: the same transactions as `postgres_connections` makes, without a thread.

A connection belongs to the loop in which it was opened, so each loop has connections of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, ref

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from phronomy.concurrency.workers import running_loop
from phronomy.errors import StoreError
from phronomy.stores.sql import statements
from phronomy.stores.sql.postgres_connections import (
    BECAME,
    LOCK,
    LOOKS,
    POOL_ERRORS,
    THRESHOLD,
    Gone,
    InDoubt,
    Server,
    batches,
    check_encoding,
    is_open,
    patience,
    renew_after_fork,
)
from phronomy.stores.sql.postgres_errors import ENCODING, is_lost, is_unstorable
from phronomy.stores.sql.store import Steps, Traces

T = TypeVar("T")
Connection: TypeAlias = psycopg.AsyncConnection[object]

# So many minutes, as a new connection costs a round of passwords and TLS; and not for ever, as each loop has its own
# and the server counts them all.
_IDLE: Final = 600.0
"""Seconds after which a connection that nobody wants is closed."""


# Twins of the classes beside the sync server: what they wait for differs, what they do is the same generator of steps.
class AsyncOpen:
    """As `Open`, once it has begun: each method does as that of `Transaction`."""

    def __init__(self, connection: Connection, prepare: bool | None) -> None:
        self._cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        self._prepare = prepare

    async def begin(self, begin: str) -> str:
        """Begin it, and return its number."""
        await self._cursor.execute(begin.encode(), prepare=False)
        while self._cursor.nextset():
            pass
        found = await self._cursor.fetchone()
        assert found is not None
        id: str = found[0]
        return id

    async def one(self, statement: str, values: statements.Values) -> statements.Row | None:
        """As `Transaction.one`."""
        return await (await self._execute(statement, values)).fetchone()

    async def all(self, statement: str, values: statements.Values) -> list[statements.Row]:
        """As `Transaction.all`."""
        return await (await self._execute(statement, values)).fetchall()

    async def run(self, statement: str, values: statements.Values) -> int:
        """As `Transaction.run`."""
        return (await self._execute(statement, values)).rowcount

    async def many(self, statement: statements.Many, rows: Sequence[statements.Values]) -> None:
        """As `Transaction.many`."""
        for text, values in batches(statement, rows):
            await self._execute(text, values)

    async def alone(self, tenant: str, name: str) -> None:
        """As `Transaction.alone`."""
        await self._execute(LOCK, (statements.lock_number("thread", tenant, name),))

    async def commit(self) -> None:
        """Commit it. Raises `Gone` if the server undid it instead."""
        await self._cursor.execute("COMMIT", prepare=False)
        if self._cursor.statusmessage != "COMMIT":
            raise Gone

    async def _execute(self, statement: str, values: statements.Values) -> psycopg.AsyncCursor[statements.Row]:
        return await self._cursor.execute(statement.encode(), values, prepare=self._prepare)


async def adone(steps: Steps[T], db: AsyncOpen) -> T:
    """As `done`."""
    try:
        method, what, values = next(steps)
        while True:
            method, what, values = steps.send(await getattr(db, method)(what, values))
    except StopIteration as end:
        answer: T = end.value
        return answer


class LoopPool:
    """The connections of one event loop: opened when they are wanted, and gone with the loop.

    It has no task, as psycopg's pools do: nobody could end one in a loop that is closed by hand.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], max_size: int) -> None:
        self._connect = connect
        # How many may be open, whether idle or in use. Waiting for it is first come, first served.
        self._free = asyncio.Semaphore(max_size)
        self._idle: deque[tuple[float, Connection]] = deque()  # since when, the longest first
        # Held here too, or where the loop is closed under its tasks the collector may come to a connection before the task that would
        # give it back, and psycopg warns of it.
        self._used: set[Connection] = set()
        self._pid = os.getpid()
        self._watched = False
        # A loop that is ending already warns of a new generator, and closes none: no connection is kept then.
        self._closed = bool(getattr(asyncio.get_running_loop(), "_asyncgens_shutdown_called", False))
        self._end = None if self._closed else self._until_the_end()
        if self._end is not None:
            try:
                # Begun by hand, as the loop only closes a generator that has begun. It runs to its `yield` without
                # waiting for anything, so one `send` does, and no task is needed.
                self._end.__anext__().send(None)
            except StopIteration:
                pass  # it waits from here on
            except ResourceWarning:
                self._closed = True  # another kind of loop, where warnings are errors

    async def _until_the_end(self) -> AsyncGenerator[None]:
        """Waits until the loop ends. `asyncio.run`, like all that end a loop in order, closes the generators that are left in it."""
        try:
            yield
        finally:
            # Loops close what generators are left before they end: this is how connections are closed in time, with
            # nobody calling `close`.
            self._drop()

    async def take(self, timeout: float) -> Connection:
        """A connection. Raises `PoolTimeout` where there is none in so many seconds, and the like."""
        # The last one given back first: it is the one that the server has heard from, and those at the other end grow
        # old and are closed.
        if self._idle and not self._free.locked():
            await self._free.acquire()  # at once
            with suppress(IndexError):  # the store was closed just now, in another thread
                return self._use(self._idle.pop()[1])
            self._free.release()
        try:
            # One timeout around both, the wait for a place and the making of a connection: a caller has one patience,
            # not two.
            async with asyncio.timeout(timeout):
                await self._free.acquire()
                try:
                    return self._use(await self._one())
                # A cancellation as well, or the place would be gone until the loop ends.
                except BaseException:
                    self._free.release()
                    raise
        except TimeoutError:
            raise PoolTimeout from None

    def _use(self, connection: Connection) -> Connection:
        self._used.add(connection)
        return connection

    async def _one(self) -> Connection:
        """A connection that is there, or another: until the server lets one in."""
        pause = LOOKS[0]
        while True:
            with suppress(IndexError):
                return self._idle.pop()[1]
            # A server that restarts refuses for a moment. Within the timeout it is asked again.
            with suppress(psycopg.OperationalError):
                return await self._connect()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LOOKS[1])

    async def give(self, connection: Connection) -> None:
        """Take a connection back."""
        self._used.discard(connection)
        # Once the loop ends, what still goes on in it gets connections, and none is kept.
        if self._closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
            _end(connection)
        else:
            loop = asyncio.get_running_loop()
            self._idle.append((loop.time(), connection))
            self._watch(loop)
            if self._closed:  # just now, in another thread
                self._finish()
        self._free.release()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._watched:
            self._watched = True
            # One timer for all, and only while something is idle: a loop with nothing to do is not kept awake.
            loop.call_later(_IDLE, self._shrink, loop)

    def _shrink(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what nobody has wanted for long."""
        self._watched = False
        with suppress(IndexError):
            while self._idle[0][0] + _IDLE <= loop.time():
                _end(self._idle.popleft()[1])
            self._watch(loop)

    async def refresh(self) -> None:
        """A connection was lost, and with it perhaps all: let go of those that are idle."""
        self._finish()

    def close(self) -> None:
        """Close the connections, from any thread; those that are in use when they are given back."""
        self._drop()
        if self._end is not None:
            with suppress(StopIteration, RuntimeError):  # it may be ending just now
                self._end.aclose().send(None)

    def abandon(self) -> None:
        """Close the connections of a loop that is closed, those in use as well: no task of it gives one back."""
        self.close()
        self._finish_used()

    def _drop(self) -> None:
        self._closed = True
        self._finish()

    def _finish(self) -> None:
        with suppress(IndexError):
            # By index error and not by length: another thread may be emptying the same list. In a forked child nothing
            # is closed, the sockets are the parent's.
            while self._pid == os.getpid():
                _end(self._idle.pop()[1])

    def _finish_used(self) -> None:
        with suppress(KeyError):
            while self._pid == os.getpid():
                _end(self._used.pop())

    # The loop is gone and nobody closed the store: then the sockets go with the last reference, in whatever thread that
    # is.
    def __del__(self) -> None:
        self._finish()
        self._finish_used()


class SharedPool:
    """Somebody else's pool. It belongs to one loop: the first in which the store is used."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool
        self._loop: ref[asyncio.AbstractEventLoop] | None = None

    def is_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the pool is for this loop."""
        # A weak reference, or the store would keep a loop that is over. An id would not do: a new loop may have that of
        # an old one.
        if self._loop is None:
            self._loop = ref(loop)
        return self._loop() is loop

    async def take(self, timeout: float) -> Connection:
        """As `LoopPool.take`."""
        connection: Connection = await self._pool.getconn(timeout)
        return connection

    async def give(self, connection: Connection) -> None:
        """As `LoopPool.give`."""
        await self._pool.putconn(connection)

    async def refresh(self) -> None:
        """As `LoopPool.refresh`."""
        await self._pool.check()


Pool: TypeAlias = LoopPool | SharedPool


class _Taken:
    """A connection of a pool that commits each statement by itself, in no transaction.

    It is no generator: a loop that ends closes those that it finds, and begins no more.
    """

    def __init__(self, pool: Pool, server: Server) -> None:
        self._pool = pool
        self._server = server

    async def __aenter__(self) -> Connection:
        try:
            self._connection = connection = await self._pool.take(self._server.timeout)
        except POOL_ERRORS as error:
            failure = self._server.without(error)
        except psycopg.Error as error:
            failure = self._server.explained(error)
        else:
            # As it came, it goes back: the pool is somebody else's.
            self._kept = connection.autocommit
            try:
                check_encoding(connection)
                if not self._kept:
                    await self._set_autocommit(True)
            # A task that is cancelled here has a connection, and `__aexit__` will not be called for it.
            except BaseException:
                await self._pool.give(connection)
                raise
            return connection
        raise failure

    async def __aexit__(self, *_: object) -> None:
        try:
            await _undo(self._connection, self._server.timeout)
            if not self._kept:
                with suppress(Gone):
                    await self._set_autocommit(False)
        finally:
            await self._pool.give(self._connection)

    async def _set_autocommit(self, value: bool) -> None:
        """Say whether a statement is a transaction by itself. Raises `Gone` for a connection that is lost."""
        try:
            await self._connection.set_autocommit(value)
        except psycopg.Error:
            raise Gone from None


class AsyncServer:
    """The connections to a server in event loops: `make` makes those of the loop that runs, unless all come from a `shared` pool."""

    def __init__(self, server: Server, make: Callable[[], LoopPool] | None, shared: SharedPool | None) -> None:
        self._server = server
        self._make = make
        self._shared = shared
        # By loop, weakly: a program that calls `asyncio.run` for each request leaves nothing behind.
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopPool] = WeakKeyDictionary()
        self._lock = threading.Lock()
        renew_after_fork(self.after_fork)

    def serves_here(self) -> bool:
        """Whether there are connections for the loop that runs in this thread, if one does."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        if sys.platform == "win32" and isinstance(loop, asyncio.ProactorEventLoop):
            return False  # psycopg cannot wait in it
        return self._make is not None or (self._shared is not None and self._shared.is_of(loop))

    # Transactions

    async def write(self, work: Callable[[], Steps[T]], again: bool, traces: Traces | None = None) -> T:
        """As `Server.write`. A cancellation undoes it; one that comes during the commit is not heard."""
        for last in (False, True):
            try:
                return await self._attempt(work)
            except Gone:
                pass
            except InDoubt as doubt:
                if not (again and not last) and await self._was_committed(doubt.id) and await self._shows(traces):
                    answer: T = doubt.answer
                    return answer
            if not last:
                await self._refresh()
        raise self._server.lost_twice(", nothing was written")

    async def _attempt(self, work: Callable[[], Steps[T]]) -> T:
        failure: BaseException
        sent, id, answer = False, "", None
        async with _Taken(await self._opened(), self._server) as connection:
            try:
                transaction = AsyncOpen(connection, self._server.prepare)
                id = await transaction.begin(self._server.begin)
                answer = await adone(work(), transaction)
                sent = True
                await transaction.commit()
                return answer
            except psycopg.Error as error:
                doubt = InDoubt(id, answer) if sent and is_lost(connection, error) else None
                failure = doubt or self._server.judged(connection, error)
            # Before COMMIT a cancellation undoes everything. From then on it is the same doubt as a lost connection,
            # and a decision may have been recorded: the server is asked, and the answer given, as though nothing had
            # been cancelled.
            except asyncio.CancelledError:
                if not sent:
                    raise
                failure = InDoubt(id, answer)
            except UnicodeEncodeError:
                failure = self._server.surrogate()
            finally:
                await _undo(connection, self._server.timeout)
        raise failure  # here, so that the driver's error, which quotes values, is not its context

    async def _was_committed(self, id: str) -> bool:
        """As `Server._was_committed`."""
        until, pause = time.monotonic() + self._server.timeout, LOOKS[0]
        while time.monotonic() < until:
            status = None
            with suppress(StoreError):
                await self._refresh()
                status = (await self.read(BECAME, (id,)))[0][0]
                if status is None:
                    break
            if status in ("committed", "aborted"):
                return bool(status == "committed")
            await asyncio.sleep(pause)
            pause = min(pause * 2, LOOKS[1])
        raise self._server.unsaid()

    async def _shows(self, traces: Traces | None) -> bool:
        """As `Server._shows`."""
        for statement, values, shows in () if traces is None else traces():
            if not shows(await self.read(statement, values)):
                return False
        return True

    async def read(self, statement: str, values: statements.Values) -> list[statements.Row]:
        """As `Server.read`."""
        for last in (False, True):
            try:
                return await self._select(statement, values)
            except Gone:
                if not last:
                    await self._refresh()
        raise self._server.lost_twice()

    async def _select(self, statement: str, values: statements.Values) -> list[statements.Row]:
        failure: BaseException
        async with _Taken(await self._opened(), self._server) as connection:
            try:
                cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
                found = await cursor.execute(statement.encode(), values, prepare=self._server.prepare)
                return await found.fetchall()
            except psycopg.Error as error:
                if is_unstorable(error):
                    return []
                failure = self._server.judged(connection, error)
            except UnicodeEncodeError:
                return []
        raise failure

    # Connections

    async def _opened(self) -> Pool:
        """The pool of this loop, once what must be done first is done."""
        if not self._server.is_ready:
            # The tables are looked at once, through the sync server: it has the lock that keeps threads and loops from
            # doing it side by side.
            await asyncio.to_thread(self._server.opened)
        if self._shared is not None:
            return self._shared
        loop = asyncio.get_running_loop()
        return self._pools.get(loop) or self._opening(loop)

    def _opening(self, loop: asyncio.AbstractEventLoop) -> LoopPool:
        assert self._make is not None
        pool = self._make()
        with self._lock:
            # Of loops that were closed by hand, without ending what was in them.
            for other in [other for other in self._pools if other.is_closed()]:
                self._pools.pop(other).abandon()
            self._pools[loop] = pool
        return pool

    async def _refresh(self) -> None:
        """As `Server._refresh`."""
        with suppress(psycopg.Error):
            await (await self._opened()).refresh()

    def close(self) -> None:
        """Close the connections of all loops; a pool that is somebody else's stays open."""
        with self._lock:
            pools, self._pools = list(self._pools.items()), WeakKeyDictionary()
        for loop, pool in pools:
            if loop.is_closed():
                pool.abandon()
            else:
                pool.close()

    def after_fork(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        atexit.register(lambda _: None, self._pools)
        # The shared pool is forgotten: its sockets are the parent's, and it belongs to a loop that the child does not
        # run.
        self._pools, self._lock, self._shared = WeakKeyDictionary(), threading.Lock(), None


def _end(connection: Connection) -> None:
    """Close the connection at once, in whatever thread or loop."""
    # Past psycopg's own close, which wants the loop of the connection to run. This is a plain close of the socket.
    connection.pgconn.finish()


async def _undo(connection: Connection, seconds: float) -> None:
    """End the transaction, if there is one, with nothing written: in so many seconds, or by the end of its session."""
    if not is_open(connection):
        return
    # In a loop that was closed nothing can be awaited any more. And a connection whose lock is never given back, as after an interrupt
    # in the middle of the loop, would be waited for without an end.
    if running_loop() is None:
        _end(connection)
        return
    try:
        async with asyncio.timeout(seconds):
            await connection.execute("ROLLBACK", prepare=False)
    except TimeoutError:
        _end(connection)
    except psycopg.Error:  # the pool drops it
        return


def own_connections(server: Server, conninfo: str, *, max_size: int) -> AsyncServer:
    """Connections of our own, to the server of this conninfo: each loop has up to `max_size`."""

    async def connect() -> Connection:
        threshold = None if server.prepare is False else THRESHOLD
        return await psycopg.AsyncConnection.connect(
            conninfo,
            autocommit=True,
            prepare_threshold=threshold,
            connect_timeout=patience(server.timeout),
            client_encoding=ENCODING,
        )

    return AsyncServer(server, lambda: LoopPool(connect, max_size), None)


def shared_connections(server: Server, pool: object) -> AsyncServer:
    """The connections of a pool that is somebody else's. Raises `StoreError` for what is none."""
    if not isinstance(pool, AsyncConnectionPool):
        raise StoreError("the async_pool of a PostgreSQL store is a psycopg_pool.AsyncConnectionPool")
    return AsyncServer(server, None, SharedPool(pool))

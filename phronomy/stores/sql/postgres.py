"""`PostgresStore`: checkpoints in a PostgreSQL database, shared by any number of machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final, TypeVar

from phronomy.errors import StoreError
from phronomy.foundation.checks import is_number
from phronomy.foundation.quoting import quoted
from phronomy.stores.base import AsyncPrimitives
from phronomy.stores.sql import statements
from phronomy.stores.sql.schema import missing
from phronomy.stores.sql.store import Native, SQLStore, Steps, Traces

if TYPE_CHECKING:
    import psycopg
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

    from phronomy.stores.sql.postgres_async import AsyncServer

T = TypeVar("T")

_WHERE: Final = "the PostgreSQL database"
_SETUP: Final = """-- The tables of phronomy, schema version {version}, for PostgreSQL 13 and later.
-- It may be run any number of times, by several at once, inside a transaction or by itself.
DO {quote}
DECLARE
    found integer;
BEGIN
{body}
END
{quote};
"""


class PostgresStore(SQLStore):
    """A store in a PostgreSQL database: `conninfo` is a `postgresql://` URL, or text such as `host=... dbname=...`.

    Instead of `conninfo` you can pass a `pool` of your program, a `psycopg_pool.ConnectionPool`. The store uses a
    connection of the pool for one transaction at a time, and `close` leaves it open. The store works behind a pooler in
    transaction mode. The store makes its tables when it is first used, unless `setup` is False. They are in `schema`,
    which is also made, or in the first schema of the search path. `min_size` and `max_size` limit the store's own pool.
    `timeout` is the number of seconds that a call waits for a connection, or for rows that others have locked.

    With `prepare_statements` the server keeps the plan of each statement that a connection sends often, and spends about
    half the time on a decision. The default is False, as a pooler in between has to know of it: PgBouncer since 1.22, with
    `max_prepared_statements`. In a `pool`, the `prepare_threshold` of its connections says what is often.

    Runs in an event loop use async connections: up to `max_size` for each loop. A store with a `pool` uses an
    `async_pool` for this (a `psycopg_pool.AsyncConnectionPool`, for the loop in which the store is first used), or else
    threads.

    If a connection is lost, the store connects again, and repeats a write that was not made. If the server cannot tell
    whether a write was made, that is a `StoreError`. Raises `StoreError` for an invalid `conninfo`, for a database that
    cannot be reached, and if the packages are missing (`pip install 'phronomy[postgres]'`). No message contains a user,
    a password or a value.
    """

    def __init__(
        self,
        conninfo: str | None = None,
        *,
        pool: ConnectionPool[Any] | None = None,
        async_pool: AsyncConnectionPool[Any] | None = None,
        schema: str | None = None,
        setup: bool = True,
        tenant: str = "",
        clock: Callable[[], float] = time.time,
        lease: float = 30.0,
        ttl: float | None = None,
        min_size: int = 1,
        max_size: int = 10,
        timeout: float = 30.0,
        prepare_statements: bool = False,
    ) -> None:
        super().__init__(tenant=tenant, clock=clock, lease=lease, ttl=ttl)
        if not is_number(timeout) or timeout <= 0:
            raise StoreError(f"the timeout is a number of seconds above 0, not {quoted(timeout)}")
        if not isinstance(prepare_statements, bool):
            raise StoreError(f"prepare_statements is True or False, not {type(prepare_statements).__name__}")
        if not isinstance(conninfo, str | None):
            raise StoreError(f"the conninfo of a PostgreSQL store is text, not {type(conninfo).__name__}")
        # Neither would connect to whatever the environment names, both would leave open which of them counts.
        if (conninfo is None) == (pool is None):
            also = " beside its async_pool: runs are begun, listed and kept alive in threads" if async_pool else ""
            raise StoreError(
                f"a PostgreSQL store needs a conninfo (a postgresql:// URL) or a pool, one of the two{also}"
            )
        self._schema = schema
        self._setup = setup
        self._statements = statements.Statements(statements.POSTGRES, _prefix(schema))
        try:
            from phronomy.stores.sql import postgres_async, postgres_connections  # noqa: PLC0415  # loads the driver
        except ImportError:
            raise StoreError(
                "the PostgreSQL store needs psycopg and its pool: pip install 'phronomy[postgres]'"
            ) from None
        if conninfo is None:
            self._server = postgres_connections.shared_server(
                pool, timeout=timeout, prepare_statements=prepare_statements
            )
        else:
            self._server = postgres_connections.own_server(
                conninfo,
                min_size=min_size,
                max_size=max_size,
                timeout=timeout,
                prepare_statements=prepare_statements,
            )
        # Called before the first statement, and not here: a web application builds its stores while the database may
        # still be starting.
        self._server.begin_with = self._look_at_tables
        self._aserver: AsyncServer | None = None
        if async_pool is not None:
            self._aserver = postgres_async.shared_connections(self._server, async_pool)
        elif conninfo is not None:
            self._aserver = postgres_async.own_connections(self._server, conninfo, max_size=max_size)

    def __repr__(self) -> str:
        schema = f"schema={self._schema!r}" if self._schema is not None else ""
        tenant = f"tenant={self.tenant!r}" if self.tenant else ""
        return f"PostgresStore({', '.join(filter(None, (schema, tenant)))})"

    def setup(self, connection: psycopg.Connection[object] | None = None) -> None:
        """Create the tables, or update them to this release. Several processes can call it at the same time.

        With a `connection` that is in a transaction, this happens in that transaction, and takes effect when you
        commit. If the tables are up to date, nothing changes. Raises `StoreError`.
        """
        if connection is None:
            # Not from the pool: a pool tries again and again for its whole timeout, where a wrong password should be
            # said at once.
            with self._server.any_connection() as own:
                self._bring_up(own)
        else:
            self._server.explain(lambda: self._bring_up(connection))

    @staticmethod
    def setup_sql(schema: str | None = None) -> str:
        """The SQL that `setup` runs, for a database administrator to read and to run with psql or another client."""
        return _setup_text(schema)

    @property
    def native(self) -> AsyncPrimitives | None:
        # None outside of a loop, and in a loop that the given pool does not belong to: threads and the sync pool serve
        # there.
        if self._aserver is None or not self._aserver.serves_here():
            return None
        return Native(self, self._aserver)

    def close(self) -> None:
        self._server.close()
        if self._aserver is not None:
            self._aserver.close()

    @property
    def _where(self) -> str:
        return _WHERE

    def _write(self, work: Callable[[], Steps[T]], *, again: bool = False, traces: Traces | None = None) -> T:
        return self._server.write(work, again, traces)

    def _read(self, statement: str, values: statements.Values) -> list[statements.Row]:
        return self._server.read(statement, values)

    # The tables

    def _look_at_tables(self, connection: psycopg.Connection[object]) -> None:
        """Look at the version of the tables before they are used, and make them if that is wanted."""
        # Looked at first: where everything is up to date, which is nearly always, a role without any right to change
        # tables can start.
        if missing(self._version(connection), self._statements.migrations, _WHERE):
            if not self._setup:
                raise StoreError(
                    f"the tables in {_WHERE} are missing, or of an earlier release: run `setup()`, or the SQL that"
                    " `PostgresStore.setup_sql()` gives"
                )
            self._bring_up(connection)

    def _bring_up(self, connection: psycopg.Connection[object]) -> None:
        self._server.run(connection, _setup_text(self._schema))
        missing(self._version(connection), self._statements.migrations, _WHERE)

    def _version(self, connection: psycopg.Connection[object]) -> int:
        """The version of the tables, 0 if there are none."""
        table = _prefix(self._schema) + "phronomy_schema"
        # By name, without an error: in PostgreSQL a statement that fails spoils the transaction around it, which may be
        # the caller's.
        if self._server.row(connection, "SELECT to_regclass(%s) IS NOT NULL", (table,)) != (True,):
            return 0
        row = self._server.row(connection, self._statements.version)
        if row is None or type(row[0]) is not int:
            raise StoreError(f"{_WHERE}: the version of its tables cannot be read: they are damaged")
        return row[0]


def _setup_text(schema: str | None) -> str:
    sql = statements.Statements(statements.POSTGRES, _prefix(schema))
    # Any number of processes may start at once on an empty database. CREATE TABLE IF NOT EXISTS does not suffice: two
    # that run it together may both try, and one fails. The lock is the transaction's, so it goes with a process that
    # dies.
    lines = [f"PERFORM pg_advisory_xact_lock({statements.lock_number('setup', schema or '')});"]
    if schema is not None:
        lines += [
            # Only where it is missing: CREATE SCHEMA IF NOT EXISTS needs the right to create schemas even if there is
            # nothing to do.
            f"IF to_regnamespace({_literal(_quoted(schema))}) IS NULL THEN",
            f"    CREATE SCHEMA {_quoted(schema)};",
            "END IF;",
        ]
    lines += [
        # To read pg_class has the session hear of what was made while it waited for the lock; a name it has not found it remembers.
        "IF NOT EXISTS (SELECT FROM pg_catalog.pg_class"
        f" WHERE oid = to_regclass({_literal(_prefix(schema) + 'phronomy_schema')})) THEN",
        f"    {sql.schema};",
        f"    {sql.first_version};",
        "END IF;",
        sql.version.replace("SELECT version", "SELECT version INTO found") + ";",
    ]
    # Each migration under a condition of its own, so the one text brings every earlier version up to date, and does
    # nothing to the latest.
    for version, migration in enumerate(sql.migrations, 1):
        lines += [
            f"IF found < {version} THEN",
            *(indent(f"{statement};", "    ") for statement in migration),
            "END IF;",
        ]
    lines += [f"IF found < {len(sql.migrations)} THEN", f"    {sql.new_version};", "END IF;"]
    body = indent("\n".join(lines), "    ")
    quote = "$phronomy$"
    while quote in body:  # in the name of the schema
        quote = f"{quote[:-1]}_$"
    return _SETUP.format(version=len(sql.migrations), quote=quote, body=body)


def _prefix(schema: str | None) -> str:
    """The prefix of a table's name: the schema and a dot, or nothing."""
    return "" if schema is None else f"{_quoted(schema)}."


def _quoted(name: str) -> str:
    """The name of a schema, in quotation marks. Raises `StoreError` for what cannot be one."""
    # PostgreSQL cuts a longer name off in silence, and two schemas that differ at the end would be one.
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode()) <= 63:
        raise StoreError("the name of a schema is printable text of 1 to 63 bytes")
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

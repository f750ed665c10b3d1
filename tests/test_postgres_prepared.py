"""PostgreSQL with statements that are prepared: only where somebody asked for it, and the tables and sessions may change under them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import psycopg_pool
import pytest
from postgres_scenes import handed, opened
from psycopg.sql import SQL, Identifier
from servers import postgres_schema, postgres_url
from store_scenes import asked, begin, bodies, note

from phronomy.errors import StoreError
from phronomy.stores import Append, Branch, Lineage, PostgresStore, Store, open_store
from phronomy.stores.native import on_loop
from phronomy.stores.sql.store import Native

OFTEN = 8
"""More often than a statement is sent before it is prepared."""

PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE position('lineage' in statement) + position('branches' in statement) > 0"


@pytest.fixture
def schema() -> Iterator[str]:
    with postgres_schema() as name:
        yield name


def append(store: Store, seq: int) -> Branch:
    return store.append(Append(branch_id="b1", seq=seq, take="w", release=True, entries=(note(str(seq)),)))


class InLoop:
    """What both drivers do here, in an event loop of its own."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.runner = asyncio.Runner()

    def append(self, seq: int) -> Branch:
        async def main() -> Branch:
            native = on_loop(self.store)
            assert isinstance(native, Native)
            change = Append(branch_id="b1", seq=seq, take="w", release=True, entries=(note(str(seq)),))
            return await native.append(change)

        return self.runner.run(main())

    def lineage(self) -> Lineage:
        async def main() -> Lineage:
            return await on_loop(self.store).lineage(branch_id="b1")

        return self.runner.run(main())


class Direct:
    """The same without a loop."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def append(self, seq: int) -> Branch:
        return append(self.store, seq)

    def lineage(self) -> Lineage:
        return self.store.lineage(branch_id="b1")


class Drawn(psycopg_pool.ConnectionPool[Any]):
    """As a pooler that does not keep statements: each transaction finds a session that knows none."""

    def putconn(self, conn: Any) -> None:
        if not conn.closed:
            conn.pgconn.exec_(b"DISCARD ALL")  # past the driver, which does not hear of it
        super().putconn(conn)


def test_statements_that_come_often_are_prepared_in_a_pool_that_may(schema: str) -> None:
    for asks in (True, False):
        with handed(max_size=1) as pool, opened(schema, pool=pool, prepare_statements=asks) as store:
            if asks:
                begin(store, opened=(asked("p"),))
            for _ in range(OFTEN):
                store.branches()
            with pool.connection() as connection:
                ((count,),) = connection.execute(PREPARED, prepare=False).fetchall()
        assert (count > 0) == asks


@pytest.mark.parametrize("driver", [Direct, InLoop])
@pytest.mark.parametrize("query", ["", "&prepare_statements=false", "&prepare_statements=true"])
def test_a_store_with_a_pool_of_its_own_says_so_in_its_url(
    schema: str, query: str, driver: Callable[[Store], Direct | InLoop]
) -> None:
    """What a connection has prepared is counted through the statement that reads a run, which is asked often."""
    with open_store(f"{postgres_url()}&schema={schema.replace(' ', '%20')}&min_size=1&max_size=1{query}") as store:
        assert isinstance(store, PostgresStore)
        begin(store)
        through = driver(store)
        for _ in range(OFTEN):
            through.lineage()
        rows = store._server.read(PREPARED, ()) if driver is Direct else through_loop(store, through)
    assert (rows[0][0] > 0) == query.endswith("true")


def through_loop(store: PostgresStore, through: Any) -> list[Any]:
    """What the connection of the loop answers."""
    server = store._aserver
    assert server is not None
    found: list[Any] = through.runner.run(server.read(PREPARED, ()))
    return found


@pytest.mark.parametrize("driver", [Direct, InLoop])
def test_a_plan_of_tables_as_they_were_is_made_anew(schema: str, driver: Callable[[Store], Direct | InLoop]) -> None:
    """Another release may change the type of a column while this one is at work: a read and a write are done once more."""
    with opened(schema, max_size=1, prepare_statements=True) as store:
        begin(store)
        through = driver(store)
        for seq in range(1, OFTEN):
            through.append(seq)
            through.lineage()
        for table, column in (("phronomy_log", "body"), ("phronomy_branches", "head")):
            by_others(SQL("ALTER TABLE {}.{} ALTER {} TYPE varchar").format(*map(Identifier, (schema, table, column))))
            assert len(through.lineage().entries) == OFTEN
        through.append(OFTEN)
        assert bodies(store) == [str(seq) for seq in range(1, OFTEN + 1)]


def by_others(statement: Any) -> None:
    """Have somebody else change the tables."""
    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        connection.execute(statement)


def test_behind_a_pooler_that_keeps_no_statements_nothing_is_written_and_the_option_is_named(schema: str) -> None:
    with (
        Drawn(postgres_url(), min_size=1, max_size=1, kwargs={"prepare_threshold": 2}, open=True) as pool,
        opened(schema, pool=pool, prepare_statements=True) as store,
    ):
        begin(store)

        def write_often() -> None:
            for seq in range(1, OFTEN):
                append(store, seq)

        with pytest.raises(StoreError, match="open the store without `prepare_statements`") as refused:
            write_often()
        written = bodies(store)
        assert "26000" in str(refused.value)
        assert written == [str(seq) for seq in range(1, len(written) + 1)]
        assert len(append(store, len(written) + 1).id) > 0  # on a new connection


@pytest.mark.parametrize("given", [None, 1, "true"])
def test_anything_else_than_yes_or_no_is_refused(given: Any) -> None:
    with pytest.raises(StoreError, match="prepare_statements is True or False"):
        PostgresStore(postgres_url(), prepare_statements=given)

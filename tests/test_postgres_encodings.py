"""Databases in other encodings than UTF-8, connections that are not made, and rights that are missing: each is said."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from drivers import Driver
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool
from servers import postgres_url
from tables import each

from phronomy import Agent, PostgresStore, StoreError
from phronomy.stores.sql.postgres_async import _undo
from phronomy.stores.sql.postgres_connections import Server
from phronomy.testing import ScriptedModel

TEXT = "naïve 🙂 日本"


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """The URL of a database in each of these encodings."""
    found: dict[str, str] = {}
    with psycopg.connect(postgres_url(), autocommit=True) as db:
        for encoding in ("SQL_ASCII", "LATIN1", "UTF8"):
            name = f"in_{encoding.lower()}_{os.getpid()}"
            db.execute(f"DROP DATABASE IF EXISTS {name}".encode())
            db.execute(
                f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'".encode()
            )
            found[encoding] = make_conninfo(postgres_url(), dbname=name)
        yield found
        for encoding in found:
            db.execute(f"DROP DATABASE in_{encoding.lower()}_{os.getpid()} WITH (FORCE)".encode())


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "UTF8"])
def test_what_is_written_is_read_in_a_database_that_keeps_every_text(
    driver: Driver, urls: dict[str, str], encoding: str
) -> None:
    with PostgresStore(urls[encoding], min_size=0) as store:
        agent: Agent[Any, str] = Agent(name="desk", model=ScriptedModel.by_turn([TEXT]), store=store)
        ended = driver.invoke(agent, TEXT).checkpoint
        assert store.load(ended.id) == ended
        assert [message.text for message in ended.messages] == [TEXT, TEXT]
        assert store.branches()[-1].agent == "desk"


def test_a_database_that_has_no_place_for_most_characters_is_refused(driver: Driver, urls: dict[str, str]) -> None:
    with PostgresStore(urls["LATIN1"], min_size=0) as store:
        agent: Agent[Any, str] = Agent(model=ScriptedModel.by_turn(["Done."]), store=store)
        with pytest.raises(StoreError, match="the database is in the encoding LATIN1"):
            driver.invoke(agent, "hello")


def test_a_pool_whose_connections_carry_something_else_is_refused(driver: Driver, urls: dict[str, str]) -> None:
    with (
        ConnectionPool(urls["SQL_ASCII"], min_size=0, max_size=1, open=True) as pool,
        PostgresStore(pool=pool) as store,
    ):
        agent: Agent[Any, str] = Agent(model=ScriptedModel.by_turn(["Done."]), store=store)
        with pytest.raises(StoreError, match="carry text in SQL_ASCII: make them with client_encoding='utf8'"):
            driver.invoke(agent, "hello")


@each(
    ("said", "told"),
    [
        ('FATAL:  too many connections for role "s3cret"', "no connection left for this user"),
        ("FATAL:  sorry, too many clients already", "raise max_connections"),
        ("FATAL:  unsupported startup parameter: s3cret", "a pooler in between refuses a parameter"),
        ('FATAL:  password authentication failed for user "s3cret"', "refuses the user or the password"),
        ('connection to server at "s3cret", port 5432 failed: Connection refused', "nothing listens at the address"),
        ("connection timeout expired: s3cret", "did not answer in time"),
        ('FATAL:  die Datenbank "s3cret" gibt es nicht', "the server is down, or refuses the address, the user"),
    ],
)
def test_why_a_connection_was_not_made_is_said_in_words_of_ours(said: str, told: str) -> None:
    server = Server("PostgreSQL", None, None, None, 1.0, "", False)
    text = str(server.explained(psycopg.OperationalError(said)))
    assert told in text and "s3cret" not in text


def test_a_right_that_is_missing_names_the_table(urls: dict[str, str]) -> None:
    with PostgresStore(urls["UTF8"], min_size=0) as store:
        store.branches()
    clerk = f"clerk_{os.getpid()}"
    with psycopg.connect(urls["UTF8"], autocommit=True) as db:
        db.execute(f"CREATE ROLE {clerk} LOGIN PASSWORD 'x'".encode())
        db.execute(f"GRANT SELECT ON phronomy_schema TO {clerk}".encode())
    try:
        url = make_conninfo(urls["UTF8"], user=clerk, password="x")
        with (
            PostgresStore(url, min_size=0) as store,
            pytest.raises(StoreError, match=r"lacks a right that the store needs on phronomy_branches \(42501\)"),
        ):
            store.branches()
    finally:
        with psycopg.connect(urls["UTF8"], autocommit=True) as db:
            db.execute(f"DROP OWNED BY {clerk}".encode())
            db.execute(f"DROP ROLE {clerk}".encode())


def test_a_rollback_that_cannot_be_sent_ends_the_session_and_waits_no_longer(urls: dict[str, str]) -> None:
    """The lock of the connection is never given back, as after an interrupt in the middle of an event loop."""

    async def main() -> bool:
        db = await psycopg.AsyncConnection.connect(urls["UTF8"], autocommit=True)
        await db.execute("BEGIN")
        await db.lock.acquire()
        await _undo(db, 0.01)
        return db.closed

    assert asyncio.run(main())


def test_a_rollback_out_of_any_loop_ends_the_session(urls: dict[str, str]) -> None:
    async def begun() -> Any:
        db = await psycopg.AsyncConnection.connect(urls["UTF8"], autocommit=True)
        await db.execute("BEGIN")
        return db

    db = asyncio.run(begun())
    undoing = _undo(db, 1.0)
    with pytest.raises(StopIteration):
        undoing.send(None)
    assert db.closed

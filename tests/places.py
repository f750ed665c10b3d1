"""Places for stores: one of each kind, as several processes open it, and what is in it without a store between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import redis as redis_py
from drivers import rows as sqlite_text
from psycopg.sql import SQL, Identifier
from redis_server import redis_url
from servers import postgres_schema, postgres_url

from phronomy import MemoryStore, PostgresStore, RedisStore, SQLiteStore
from phronomy.stores.base import Store

KINDS = ("memory", "sqlite", "postgres", "redis")
"""The kinds of store."""


def plainly(value: Any) -> Any:
    """The value as plain data, with everything in it."""
    if is_dataclass(value):
        return {each.name: plainly(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {key: plainly(each) for key, each in value.items()}
    return [plainly(each) for each in value] if isinstance(value, (list, tuple)) else value


class Place:
    """A database of one kind, empty at first. Each `open` is as by another process; only memory is one and the same."""

    def __init__(self, kind: str, folder: Path, where: str) -> None:
        self.kind = kind
        self.folder = folder
        self.where = where
        # PostgreSQL with and without statements that are prepared, in turn.
        self.prepared = where[-1:] in "02468"
        self._memory = MemoryStore()
        self._opened: list[Store] = []

    @property
    def url(self) -> str:
        """What `open_store` takes."""
        if self.kind == "postgres":
            return f"{postgres_url()}&schema={quote(self.where)}&prepare_statements={str(self.prepared).lower()}"
        return {"memory": "memory://", "sqlite": f"sqlite:///{self.where}?synchronous=OFF", "redis": self.where}[
            self.kind
        ]

    def open(self, *, tenant: str = "", **options: Any) -> Store:
        """A store on it."""
        store: Store
        if self.kind == "memory":
            store = self._memory.for_tenant(tenant)
            for name, value in options.items():
                setattr(store, name, value)
        elif self.kind == "sqlite":
            store = SQLiteStore(self.where, synchronous="OFF", tenant=tenant, **options)
        elif self.kind == "postgres":
            given: Any = {"min_size": 0, "prepare_statements": self.prepared, **options}
            store = PostgresStore(postgres_url(), schema=self.where, tenant=tenant, **given)
        else:
            store = RedisStore(self.where, tenant=tenant, **options)
        self._opened.append(store)
        return store

    def lines(self) -> list[str]:
        """Everything that is in it, a line for each row or key, without a store between."""
        if self.kind == "memory":
            found = [plainly(vars(each)) for each in self._memory._tenants.values()]
            return repr(found).replace("{'path'", "\n{'path'").splitlines()
        if self.kind == "sqlite":
            with SQLiteStore(self.where) as store:
                return sqlite_text(store).splitlines()
        if self.kind == "postgres":
            with psycopg.connect(postgres_url(), autocommit=True) as db:
                db.execute(SQL("SET search_path TO {}").format(Identifier(self.where)))
                names = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (self.where,)).fetchall()
                return [
                    f"{name}: {row[0]}"
                    for (name,) in sorted(names)
                    for row in db.execute(SQL("SELECT t::text FROM {} t ORDER BY 1").format(Identifier(name)))
                ]
        with closing(redis_py.Redis.from_url(self.where)) as client:
            return sorted(f"{key!r}: {self._value(client, key)}" for key in client.scan_iter(count=1000))

    def text(self) -> str:
        """Everything that is in it."""
        return "\n".join(self.lines())

    def close(self) -> None:
        for store in self._opened:
            store.close()
        self._opened.clear()

    def _value(self, client: Any, key: bytes) -> str:
        kind = client.type(key).decode()
        ask: dict[str, Callable[[], Any]] = {
            "string": lambda: client.get(key),
            "hash": lambda: sorted(client.hgetall(key).items()),
            "list": lambda: client.lrange(key, 0, -1),
            "set": lambda: sorted(client.smembers(key)),
            "zset": lambda: client.zrange(key, 0, -1, withscores=True),
        }
        return repr(ask[kind]())


@contextmanager
def place_of(kind: str, folder: Path) -> Iterator[Place]:
    """A place of this kind, gone afterwards."""
    with ExitStack() as stack:
        where = str(folder / "runs.db")
        if kind == "postgres":
            postgres_url()  # started here, and not by several threads at once
            where = stack.enter_context(postgres_schema())
        elif kind == "redis":
            where = redis_url()
        found = Place(kind, folder, where)
        stack.callback(found.close)
        yield found

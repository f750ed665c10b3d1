"""Every store keeps the contract that is published for stores: whoever reads a store cannot tell which one it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from drivers import Around
from key_values import Values
from redis_server import redis_url
from servers import postgres_schema, postgres_url

from phronomy import Agent, StoreError
from phronomy.stores import Document, KeyValueStore, MemoryStore, PostgresStore, RedisStore, SQLiteStore, Store
from phronomy.stores.documents import Documents
from phronomy.stores.key_value import books, tree
from phronomy.testing import ScriptedModel, StoreContract


class TestMemoryStore(StoreContract):
    durable = False

    def make_store(self, **options: Any) -> MemoryStore:
        return MemoryStore(**options)


class TestSQLiteStore(StoreContract):
    @pytest.fixture(autouse=True)
    def database(self, tmp_path: Path) -> None:
        self.path = tmp_path / "runs.db"

    def make_store(self, **options: Any) -> Store:
        return SQLiteStore(self.path, synchronous="OFF", **options)


class Opening(Store):
    """A SQLite store whose file is closed and opened again between any two calls."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(**options)
        self._path = path

    def for_tenant(self, tenant: str) -> Self:
        return type(self)(self._path, tenant=tenant, clock=self.clock, lease=self.lease, ttl=self.ttl)

    def _do(self, name: str, *args: Any, **options: Any) -> Any:
        given: dict[str, Any] = {"tenant": self.tenant, "clock": self.clock, "lease": self.lease, "ttl": self.ttl}
        with SQLiteStore(self._path, synchronous="OFF", **given) as store:
            return getattr(store, name)(*args, **options)


def through(name: str) -> Any:
    """The method of this name, of a store that is opened for the call."""
    return lambda self, *args, **options: self._do(name, *args, **options)


DOCUMENTS = {
    name for name in vars(Documents) if name.endswith(("_document", "_documents")) and not name.startswith("a")
}
PRIMITIVES = sorted((Store.__abstractmethods__ | DOCUMENTS | {"append_all"}) - {"for_tenant"})
Reopened = type("Reopened", (Opening,), {name: through(name) for name in PRIMITIVES})


@pytest.mark.sweep
class TestSQLiteStoreReopened(TestSQLiteStore):
    def make_store(self, **options: Any) -> Store:
        store: Store = Reopened(self.path, **options)
        return store


class TestPostgresStore(StoreContract):
    @pytest.fixture(autouse=True)
    def database(self) -> Iterator[None]:
        with postgres_schema() as self.schema:
            yield
            self.close_stores()

    def make_store(self, **options: Any) -> PostgresStore:
        return PostgresStore(postgres_url(), schema=self.schema, **options)


class TestRedisStore(StoreContract):
    @pytest.fixture(autouse=True)
    def database(self) -> None:
        self.url = redis_url()

    def make_store(self, **options: Any) -> RedisStore:
        return RedisStore(self.url, **options)


class TestKeyValueStore(StoreContract):
    """With sizes at which each write moves into the tree, and most texts are values of their own: all of it is reached."""

    sizes = (1_500, 20, 400)

    @pytest.fixture(autouse=True)
    def values(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kv = Values()
        for module, name, size in zip((books, books, tree), ("_MOST", "_INLINE", "_MOST"), self.sizes, strict=True):
            monkeypatch.setattr(module, name, size)

    def make_store(self, **options: Any) -> KeyValueStore:
        return KeyValueStore(self.kv, **options)


@pytest.mark.sweep
class TestKeyValueStoreWithItsSizes(TestKeyValueStore):
    sizes = (books._MOST, books._INLINE, tree._MOST)


def test_the_contract_asks_for_a_store() -> None:
    with pytest.raises(NotImplementedError):
        StoreContract().make_store()


def test_no_test_of_the_contract_hides_another() -> None:
    """Its parts are apart for reading alone: a name that stands in two of them would be a test that never runs."""
    names = Counter(name for part in StoreContract.__mro__ for name in vars(part) if name.startswith("test_"))
    assert len(names) > 100
    assert [name for name, times in names.items() if times > 1] == []


class Earlier(Around):
    """A store that was written before there were documents."""


for _name in DOCUMENTS:
    setattr(Earlier, _name, vars(Documents)[_name])


def test_a_store_of_an_earlier_release_works_for_runs_and_says_what_documents_need() -> None:
    store = Earlier(MemoryStore(ttl=1.0))
    agent = Agent(name="clerk", model=ScriptedModel(["Done."]), store=store)
    assert agent.invoke("Go").output == "Done."
    assert (agent.recover_all(), store.clear()) == ([], 2)
    written = Document(kind="person", key="ann", text="{}")
    for ask in (
        lambda: store.get_document("person", "ann"),
        lambda: store.select_documents("person"),
        lambda: store.put_document(written),
        lambda: store.delete_document("person", "ann"),
        lambda: asyncio.run(store.aput_document(written)),
    ):
        with pytest.raises(StoreError, match="Earlier keeps no small documents"):
            ask()

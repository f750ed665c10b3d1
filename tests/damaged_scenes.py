"""A database with runs that wait, in which a test damages one value after another, and what must still go on then."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast

import psycopg
import redis
from inbox_scenes import ByHeader, Visitor, inbox_of
from key_values import Values
from places import Place
from psycopg.sql import SQL, Identifier
from servers import postgres_url

from phronomy import Agent, Approval, Approve, Checkpoint, Principal, SQLiteStore, tool
from phronomy.people import Person, StoreDirectory
from phronomy.stores import KeyValueStore
from phronomy.stores.base import Store
from phronomy.stores.derived import reminders
from phronomy.stores.derived.listing import damage_of
from phronomy.stores.key_value.books import Root, View
from phronomy.testing import ScriptedModel, call


class Scene:
    """Three runs of one agent that wait, of which one is decided; runs of two others; one that has ended; and two people.

    What is damaged belongs to the run `hurt`, the person `ann` or the agent `shop`.
    """

    SAID: tuple[str, ...] = ("A stored row cannot be read",)
    """The words that a page of the run `hurt` may have in its place."""

    def __init__(self) -> None:
        self.paid = list[int]()

        @tool(requires_approval=Approval(expires=3600, remind=1800))
        def pay(order: int) -> str:
            """Pay for an order."""
            self.paid.append(order)
            return "paid"

        self.pay = pay
        with self.opened() as store:
            desk, shop = self.agent("desk", store), self.agent("shop", store)
            self.hurt, self.well, self.decided = (
                desk.invoke("Pay", thread_id=thread, label=thread).checkpoint for thread in ("hurt", "well", "decided")
            )
            self.other = self.agent("other", store).step("Pay").checkpoint
            desk.resume(desk.invoke("Pay", thread_id="ended").checkpoint, approved=True)
            # A text about an agent is kept once it is told for the second time.
            shop.step("Pay")
            self.shop = shop.invoke("Pay").checkpoint
            for id in ("ann", "bea"):
                StoreDirectory(store).add(Person(id=id))

    def opened(self) -> Store:
        """A store on the database."""
        raise NotImplementedError

    def agent(self, name: str, store: Store) -> Agent[Any, str]:
        """An agent on the store that pays once somebody has approved it."""
        model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
        return Agent(name=name, tools=[self.pay], model=model, store=store)

    def check(self) -> None:
        """Look at every list, and carry out what is decided: that of the other runs is there, and no more."""
        self.paid.clear()
        well = {self.well.run_id, self.decided.run_id}
        with self.opened() as store:
            page = store.pending()
            assert well <= {each.run_id for each in page} and len(page) + len(page.unreadable) <= 4
            assert well <= {each.run_id for each in store.pending(limit=3, newest=True)} | {
                each.run_id for each in store.pending(limit=4)
            }
            assert store.count() in (3, 4, 5)
            assert len(list(store.audit())) == 1
            assert {*well, self.other.run_id} <= {each.run_id for each in store.branches()}
            assert well <= {each.run_id for each in store.list()}
            people = StoreDirectory(store)
            assert [each.id for each in people.list()][-1:] in (["bea"], ["ann"])
            self.look(store)
            (item,) = self.decided.pending
            store.decide(item.id, Approve(), by="ada", digest=item.digest)
            found = {each.branch_id: each.error for each in self.agent("desk", store).recover_all()}
            assert found[self.decided.branch_id] is None and self.paid == [1]
            for name in ("other", "shop"):
                self.agent(name, store).recover_all()
            store.prune(older_than=0)
            damage_of(store, store.branches())
            store.clock = lambda: time.time() + 2000
            assert self.well.branch_id in reminders.remind(store, agent="desk")
            # Two hours later, nobody has decided.
            store.clock = lambda: time.time() + 7200
            found = {each.branch_id: each.error for each in self.agent("desk", store).recover_all()}
            assert found[self.well.branch_id] is None
            store.prune(older_than=0, keep_labeled=False)
            left = {each.id: each.status for each in store.branches()}
            assert left.get(self.well.branch_id, "completed") == "completed" and self.decided.branch_id not in left
            assert {self.other.branch_id, self.shop.branch_id} <= left.keys()
            assert self.paid == [1]

    def look(self, store: Store) -> None:
        """Open the pages and ask the API: of the others all is there, and of what is damaged it is said that it cannot be read."""
        visitor = Visitor(inbox_of(store, auth=ByHeader(*map(_person, ("ada", "ann", "bea")))), "ada")
        request, run = (f"/{kind}/{id}" for kind, id in _places(self.well))
        for path in ("/", "/runs", "/history", request, f"/api/v1{run}"):
            answer = visitor.get(path)
            assert answer.status_code == 200, (path, answer.text)
        for kind, id in _places(self.hurt):
            answer = visitor.get(f"/api/v1/{kind}/{id}")
            told = "" if answer.status_code in (200, 404) else answer.json()["type"]
            assert told in ("", "/problems/unreadable"), (kind, answer.text)
            # The page reads more: the log of a request that waits, too.
            page = visitor.get(f"/{kind}/{id}")
            found = re.search("<h1>(.*?)</h1>", page.text)
            assert page.status_code in (200, 404) or (found is not None and found[1] in self.SAID), (kind, page.text)
        for id in ("ann", "bea"):
            answer = Visitor(visitor.inbox, id).get("/api/v1/me")
            assert answer.status_code in (200, 401), answer.text


def _places(at: Checkpoint) -> list[tuple[str, str]]:
    return [("requests", at.pending[0].id), ("runs", at.run_id)]


def _person(id: str) -> Principal:
    return Principal(id=id)


HURT: Final = "(SELECT n FROM phronomy_branches WHERE thread_id = 'hurt')"
WELL: Final = "(SELECT n FROM phronomy_branches WHERE thread_id = 'well')"
TABLES: Final = {
    "branches": ("n = " + HURT, "n = " + WELL),
    "log": (f"n / 4294967296 = {HURT}", f"n / 4294967296 = {WELL}"),
    "pending": ("branch = " + HURT, "branch = " + WELL),
    "facets": (f"n = (SELECT n FROM phronomy_pending WHERE branch = {HURT})", "value = 'well'"),
    "audit": ("1 = 1", "1 = 1"),
    "documents": ("key = 'ann'", "key = 'bea'"),
    "texts": ("body LIKE '%shop%'", "body NOT LIKE '%shop%'"),
}
"""By table of a SQL store, which rows are damaged, and which others there are."""

PLACES: Final = ("n", "tenant", "branch")
"""Columns that say where a row stands. No test damages them: a row that stands elsewhere is another row."""


class SQLiteScene(Scene):
    """A file of SQLite. Any column takes a value of any type."""

    TABLES: Final[Mapping[str, tuple[str, str]]] = {**TABLES, "counts": ("1 = 1", "1 = 1")}
    HOW: Final = {
        "cut off": "substr({0}, 1, length({0}) / 2)",
        "of another type": "CASE typeof({0}) WHEN 'text' THEN 7 ELSE 'seven' END",
        "a blob": "x'00ff'",
        "null": "NULL",
        "empty": "''",
        "not UTF-8": "CAST(x'7bff' AS TEXT)",
        "of another run": "(SELECT {0} FROM {1} WHERE {2} LIMIT 1)",
        "huge": "CAST(zeroblob(100000) AS TEXT) || 'x'",
        "its own": "(SELECT b.id FROM phronomy_branches b WHERE b.thread_id = 'hurt')",
        "far": "CASE typeof({0}) WHEN 'text' THEN {0} || 'x' ELSE 1e300 END",
    }
    """The replacement of a value: by its column, its table, and where another row is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__()
        self.bytes = path.read_bytes()

    def opened(self) -> SQLiteStore:
        return SQLiteStore(self.path, synchronous="OFF")

    def columns(self, table: str) -> list[str]:
        """The columns of a table that are damaged."""
        with closing(sqlite3.connect(self.path)) as db:
            return [row[1] for row in db.execute(f"PRAGMA table_info(phronomy_{table})") if row[1] not in PLACES]

    def damage(self, table: str, column: str, how: str) -> bool:
        """Damage a column in the file as it was at first. Returns whether the file takes that."""
        self.path.write_bytes(self.bytes)
        hurt, well = self.TABLES[table]
        value = self.HOW[how].format(column, f"phronomy_{table}", well)
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            try:
                return db.execute(f"UPDATE phronomy_{table} SET {column} = {value} WHERE {hurt}").rowcount > 0
            except sqlite3.IntegrityError:
                return False


class PostgresScene(Scene):
    """A schema of PostgreSQL, whose columns have types: a text is always UTF-8 and never has NULs, and a number is a number."""

    TABLES: Final = TABLES
    HOW: Final = {
        "cut off": "left({0}, length({0}) / 2)",
        "null": "NULL",
        "empty": "''",
        "of another run": "(SELECT {0} FROM {1} WHERE {2} LIMIT 1)",
        "huge": "repeat('x', 100000)",
        "its own": "(SELECT b.id FROM phronomy_branches b WHERE b.thread_id = 'hurt')",
        "negative": "-7",
        "far": "'1e300'",
        "no number": "'NaN'",
        "endless": "'Infinity'",
    }
    """The replacement of a value: by its column, its table, and where another row is."""

    def __init__(self, place: Place) -> None:
        self.place = place
        super().__init__()
        with self._connected() as db:
            for table in TABLES:
                db.execute(f"CREATE TABLE before_{table} AS SELECT * FROM phronomy_{table}".encode())

    def opened(self) -> Store:
        return self.place.open()

    def _connected(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(postgres_url(), autocommit=True)
        connection.execute(SQL("SET search_path TO {}").format(Identifier(self.place.where)))
        return connection

    def columns(self, table: str) -> list[str]:
        """The columns of a table that are damaged."""
        with self._connected() as db:
            found = db.execute(f"SELECT * FROM phronomy_{table} LIMIT 0".encode()).description or ()
            return [each.name for each in found if each.name not in PLACES]

    def damage(self, table: str, column: str, how: str) -> bool:
        """Damage a column in the schema as it was at first. Returns whether the database takes that."""
        hurt, well = TABLES[table]
        value = self.HOW[how].format(column, f"phronomy_{table}", well)
        with self._connected() as db:
            for each in TABLES:
                db.execute(f"TRUNCATE phronomy_{each}".encode())
                db.execute(f"INSERT INTO phronomy_{each} OVERRIDING SYSTEM VALUE SELECT * FROM before_{each}".encode())
            try:
                return db.execute(f"UPDATE phronomy_{table} SET {column} = {value} WHERE {hurt}".encode()).rowcount > 0
            except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError):
                return False


BYTES: Final[Mapping[str, Callable[[bytes, bytes], bytes]]] = {
    "cut off": lambda value, other: value[: len(value) // 2],
    "empty": lambda value, other: b"",
    "a number": lambda value, other: b"7",
    "negative": lambda value, other: b"-7",
    "far": lambda value, other: b"1e300",
    "endless": lambda value, other: b"inf",
    "no number": lambda value, other: b"nan",
    "not UTF-8": lambda value, other: b"\x7b\xff",
    "of another run": lambda value, other: other,
    "huge": lambda value, other: b"x" * 100_000,
    "of no form": lambda value, other: b"[]\n[]\n[]",
}
"""The ways to damage bytes, given the bytes of another run."""


def client_of(url: str) -> Any:
    """A client of Redis, which gives bytes."""
    return cast("Any", redis.Redis.from_url(url))


class RedisScene(Scene):
    """A database of Redis. Its sorted sets, and the numbers of requests, say where rows stand, and are left as they are."""

    HOW: Final = BYTES
    # A key of another type may be of another program.
    SAID = (*Scene.SAID, "The store cannot be reached")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.client = client_of(place.where)
        super().__init__()
        self.before: dict[bytes, bytes] = {key: self.client.dump(key) for key in self.client.scan_iter(count=1000)}
        hurt, well = self.hurt.branch_id, self.well.branch_id
        (number,), (other,) = (self.client.hvals(self.key(f"o:{at.branch_id}")) for at in (self.hurt, self.well))
        of_shop = (each for each in self.before if b"}:t:" in each and b"shop" in self.client.get(each))
        # By name, each value: its key, its field or its place, and the key and the field of another one.
        self.values: dict[str, tuple[bytes, Any, bytes, Any]] = {
            "checkpoint": (self.key(f"c:{self.hurt.id}"), None, self.key(f"c:{self.well.id}"), None),
            "text": (next(of_shop), None, self.key(f"c:{self.well.id}"), None),
            "request": (self.key("P"), number, self.key("P"), other),
            "line of audit": (self.key("A"), b"1", self.key("P"), other),
            "document": (self.key("D:person"), b"ann", self.key("D:person"), b"bea"),
            "document of the other": (self.key("D:person"), b"bea", self.key("P"), other),
        }
        for field in self.client.hkeys(self.key(f"b:{hurt}")):
            if field not in (b"n", b"ops"):
                self.values[f"branch: {field.decode()}"] = self.key(f"b:{hurt}"), field, self.key(f"b:{well}"), field
        for entry in range(self.client.llen(self.key(f"l:{hurt}"))):
            self.values[f"entry {entry}"] = self.key(f"l:{hurt}"), entry, self.key(f"l:{well}"), 0

    def opened(self) -> Store:
        return self.place.open()

    def key(self, name: str) -> bytes:
        """A key of the store, by its end."""
        return next(key for key in self.before if key.endswith(f"}}:{name}".encode()))

    def names(self) -> list[str]:
        """The places to damage: values, lines of values that have lines, and keys as a whole."""
        packed = [name for name in self.values if not name.startswith(("branch", "checkpoint", "text"))]
        return [
            *self.values,
            *(f"{name}, line {line}" for name in packed for line in (0, 1)),
            *(f"key {kind}" for kind in "blro"),
        ]

    def damage(self, name: str, how: str) -> bool:
        """Damage a value in the database as it was at first. Returns whether there is such a value."""
        self.client.flushdb()
        for key, dump in self.before.items():
            self.client.restore(key, 0, dump)
        if name.startswith("key"):
            key = self.key(f"{name[-1]}:{self.hurt.branch_id}")
            self.client.delete(key)
            return bool(self.client.set(key, b"7")) if how != "empty" else True
        name, _, line = name.partition(", line ")
        key, field, other, of_other = self.values[name]
        value, instead = self._read(key, field), self._read(other, of_other)
        if line:
            lines = value.split(b"\n", int(line) + 1)
            if len(lines) <= int(line):
                return False
            lines[int(line)] = BYTES[how](lines[int(line)], lines[int(line)])
            value = b"\n".join(lines)
        else:
            value = BYTES[how](value, instead or b"")
        if field is None:
            self.client.set(key, value)
        elif isinstance(field, int):
            self.client.lset(key, field, value)
        else:
            self.client.hset(key, field, value)
        return True

    def _read(self, key: bytes, field: Any) -> bytes:
        if field is None:
            found = self.client.get(key)
        elif isinstance(field, int):
            found = self.client.lindex(key, field)
        else:
            found = self.client.hget(key, field)
        return bytes(found or b"")


VALUES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "cut off": lambda value: value[:-1] if isinstance(value, list | str) else None,
    "null": lambda value: None,
    "empty": lambda value: [] if isinstance(value, list) else "",
    "of another type": lambda value: "seven" if isinstance(value, list | int | float | None) else 7,
    "an object": lambda value: {"a": 1},
    "another list": lambda value: [["x"], 7],
    "far": lambda value: 1e300,
    "negative": lambda value: -7,
    "huge": lambda value: "x" * 100_000,
}
"""The ways to damage a value, or a part of it."""


class KeyValueScene(Scene):
    """A key-value store. Its root and its nodes hold the rows of all runs, and are whole; each row in them may be damaged."""

    HOW: Final = VALUES

    def __init__(self) -> None:
        self.kv = Values()
        super().__init__()
        self.before = dict(self.kv.data)
        with self.opened() as store:
            view = View(Root.of(self.before["phronomy//root"]), store._books)
            found = [*view.span(low=("",), high=("~",))]
        ids = {self.hurt.id, self.hurt.branch_id, self.hurt.thread_id, self.hurt.pending[0].id, "ann"}
        (n,) = (value[0] for key, value in found if key == ("b", self.hurt.branch_id))
        # Keys that hold a number alone say where a row stands.
        self.values = {
            repr(key): (key, value)
            for key, value in found
            if (ids & {str(each) for each in (*key, *value)} or key[:2] in (("l", n), ("k", n)) or key[0] == "u")
            and key[0] not in ("o", "c", "f", "ur", "ut", "up")
        }
        self.texts = [key for key, text in self.before.items() if key != "phronomy//root" and b"shop" not in text]

    def opened(self) -> KeyValueStore:
        return KeyValueStore(self.kv)

    def names(self) -> list[str]:
        """The values that are damaged, and the parts of each."""
        parts = [(name, part) for name, (_, value) in self.values.items() for part in range(len(value))]
        return [*self.values, *(f"{name} part {part}" for name, part in parts if part or name[2] != "b")]

    def damage(self, name: str, how: str) -> bool:
        """Damage a value in the store as it was at first. Returns whether there is a value then: a null is none."""
        self.kv.data.clear()
        self.kv.data |= self.before
        name, _, part = name.partition(" part ")
        key, value = self.values[name]
        value = (
            VALUES[how](value)
            if not part
            else [*value[: int(part)], VALUES[how](value[int(part)]), *value[int(part) + 1 :]]
        )
        *others, latest = json.loads(self.before["phronomy//root"])
        self.kv.data["phronomy//root"] = json.dumps([*others, [*latest, [key, value]]]).encode()
        return value is not None

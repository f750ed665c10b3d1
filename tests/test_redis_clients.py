"""Clients that are handed in, servers that may lose what they are given, and what a refusal says."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis_scenes import (  # noqa: F401  # the fixtures are used by their names
    CHANGES,
    admin_fixture,
    everything,
    fill,
    prepared,
    read,
    servers_fixture,
    store_fixture,
    url_fixture,
)
from redis_server import DATABASES, RedisServer, redis_server
from store_scenes import asked, begin, bodies, clock, note, row

import phronomy
from phronomy.errors import CheckpointError, StoreError
from phronomy.stores import (
    Append,
    RedisStore,
    open_store,
)
from phronomy.stores.rows import DamagedBranch

# Clients and settings


@pytest.mark.parametrize("options", [{}, {"decode_responses": True}, {"protocol": 2}, {"encoding": "latin-1"}])
def test_a_client_that_was_handed_in_is_left_open(url: str, options: dict[str, Any]) -> None:
    client = redis.Redis.from_url(url, **options)
    with RedisStore(client=client, clock=clock) as store:
        begin(store, "é\x80", opened=(asked("ü"),))
        fill(store)
        read(store)
        assert store.lineage(branch_id="é\x80").branch.id == "é\x80"
    assert client.ping()
    with pytest.raises(StoreError, match="closed"):
        store.branches()
    with pytest.raises(StoreError, match="closed"):
        store.for_tenant("a").branches()
    client.close()


def test_an_own_client_is_closed_with_the_store_of_any_tenant(url: str) -> None:
    store = RedisStore(url)
    store.for_tenant("a").close()
    with pytest.raises(StoreError, match="closed"):
        store.branches()
    store.close()


def test_a_cluster(servers: Callable[..., RedisServer]) -> None:
    server = servers(cluster_enabled="yes", databases="1")
    with redis.Redis.from_url(server.url()) as admin:
        admin.execute_command("CLUSTER ADDSLOTS", *range(16384))
        while admin.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            pass
    client = redis.RedisCluster.from_url(server.url())
    for tenant in ("", "a}:b"):
        store = RedisStore(client=client, tenant=tenant, clock=clock)
        fill(store)
        read(store)
        store.remove({f"{kind}{n}": 5 if kind == "b" else 2 for n in range(7) for kind in "bf"}, {})
        assert store.branches() == []
    store.close()
    client.close()


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (redis.asyncio.Redis, "a sync client of redis-py, not one of redis.asyncio"),
        (lambda: redis.Redis().pipeline(), "is a redis.Redis or a redis.RedisCluster"),
        (lambda: "redis://localhost", "is a redis.Redis or a redis.RedisCluster"),
        (lambda: None, "one of the two"),
    ],
)
def test_what_is_no_client_is_refused(client: Callable[[], Any], says: str) -> None:
    with pytest.raises(StoreError, match=says):
        RedisStore(client=client())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prefix": ""}, "prefix"),
        ({"prefix": "a\n"}, "prefix"),
        ({"tenant": "a\n"}, "tenant"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"lease": 0}, "lease"),
        ({"ttl": -1}, "ttl"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(StoreError, match=says):
        RedisStore("redis://localhost", **options)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "phronomy"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, []),
        ({"maxmemory": "100mb", "maxmemory_policy": "volatile-lru"}, []),
        ({"maxmemory_policy": "allkeys-lru"}, ["maxmemory-policy is allkeys-lru", "set noeviction"]),
        ({"appendonly": "no"}, ["keeps no append-only file", "set appendonly yes"]),
        ({"appendfsync": "everysec"}, ["appendfsync is everysec", "set appendfsync always"]),
    ],
)
def test_a_server_that_may_lose_what_it_is_given_is_named_once(
    servers: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture, settings: dict[str, str], says: list[str]
) -> None:
    url = servers(**settings).url()
    with caplog.at_level(logging.WARNING), RedisStore(url) as store:
        assert store.branches() == store.for_tenant("a").branches() == []
    assert len(warnings_of(caplog)) == bool(says)
    assert all(part in warnings_of(caplog)[0] for part in says)
    with RedisStore(url, require_persistence=True) as strict:
        if not says:
            assert strict.branches() == []
            return
        for _ in range(2):
            with pytest.raises(StoreError, match="may lose decisions") as refused:
                strict.branches()
            assert all(part in str(refused.value) for part in says)


@pytest.mark.parametrize(
    ("refused", "warns", "strict_says"),
    [("-config", True, "keeps no append-only file"), ("-config -info", False, "does not say how it keeps its data")],
)
def test_a_server_that_refuses_to_be_asked(
    servers: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture, refused: str, warns: bool, strict_says: str
) -> None:
    server = servers(appendonly="no")
    with redis.Redis.from_url(server.url()) as admin:
        admin.execute_command("ACL", "SETUSER", "app", "on", ">hunter2", "~*", "+@all", *refused.split())
    url = server.url().replace("//", "//app:hunter2@")
    with caplog.at_level(logging.WARNING), RedisStore(url) as store:
        assert store.branches() == []
    assert ["append-only" in text for text in warnings_of(caplog)] == [True] * warns
    with RedisStore(url, require_persistence=True) as strict, pytest.raises(StoreError, match=strict_says):
        strict.branches()


# Errors


def faulty(kind: str, servers: Callable[..., RedisServer]) -> str:
    """The URL of a server at which something is wrong, with a password that no message may hold."""
    server = servers(
        requirepass="other" if kind == "wrong password" else "hunter2",
        **({"cluster_enabled": "yes", "databases": "1"} if kind == "moved" else {}),
    )
    url = server.url(9999 if kind == "database" else 0).replace("//", "//:hunter2@")
    if kind == "down":
        server.kill()
    if kind in ("moved", "down", "wrong password", "database"):
        return url
    with redis.Redis.from_url(url) as admin:
        if kind == "not allowed":
            admin.execute_command("ACL", "SETUSER", "app", "on", ">hunter2", "~*", "+@all", "-@scripting")
            return url.replace("//:", "//app:")
        with RedisStore(url, clock=clock) as store:
            begin(store)
        if kind == "replica":
            admin.execute_command("REPLICAOF", "127.0.0.1", "1")
        elif kind == "memory":
            admin.config_set("maxmemory", 1)
        elif kind == "type":
            admin.hset("{phronomy:}:l:b1x", "a", "b")
        elif kind == "version":
            admin.set("{phronomy}:version", "3")
    return url


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("down", "cannot be reached (connection refused)"),
        ("wrong password", "does not accept the user and the password"),
        ("not allowed", "this user may not do that"),
        ("replica", "it is a replica, which takes no writes: connect to its primary"),
        ("memory", "it is out of memory (maxmemory)"),
        ("type", "a key of this prefix was written by something else"),
        ("moved", "cluster"),
        ("database", "no database of that number"),
        ("version", "written by a later release: upgrade phronomy"),
    ],
)
def test_what_redis_refuses_is_said_without_a_secret(servers: Callable[..., RedisServer], kind: str, says: str) -> None:
    with RedisStore(faulty(kind, servers), clock=clock) as store:
        with pytest.raises(StoreError) as refused:
            begin(store, "b1x", entries=(row("hunter2"),), opened=(asked("hunter2", tool_name="hunter2"),))
        assert says in str(refused.value)
        shown = "".join([str(refused.value), repr(refused.value), repr(store)])
        assert "hunter2" not in shown and ("127.0.0.1" in shown) == (kind == "down")
        assert refused.value.__cause__ is None
        assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_what_an_earlier_release_has_written_is_of_the_present_version_once_it_is_opened(
    servers: Callable[..., RedisServer],
) -> None:
    """Its rows are read as they are. It cannot read those that are written now, and so must not open them."""
    url = servers().url()
    with redis.Redis.from_url(url) as admin:
        with RedisStore(url, clock=clock) as store:
            begin(store)
        for before, after in ((b"1", b"2"), (b"2", b"2"), (b"3", b"3"), (b"0", b"0")):
            admin.set("{phronomy}:version", before)
            with RedisStore(url, clock=clock) as store:
                if after == b"2":
                    assert store.branches(run_id="b1")
                else:
                    with pytest.raises(StoreError, match="written by a later release"):
                        store.branches(run_id="b1")
            assert admin.get("{phronomy}:version") == after


def test_a_client_whose_connections_are_all_in_use(url: str) -> None:
    with RedisStore(f"{url}?max_connections=1", clock=clock) as store:
        begin(store)
        pool = store._link._client.connection_pool  # type: ignore[attr-defined]
        taken = pool.get_connection()
        with pytest.raises(
            StoreError, match=r"every connection of the Redis client is in use: raise its max_connections"
        ):
            store.append(Append(branch_id="b1", seq=1, take="me", entries=(note("x"),)))
        pool.release(taken)
        assert bodies(store) == []


@pytest.mark.parametrize("kind", ["replica", "memory"])
def test_a_refused_change_has_changed_nothing(servers: Callable[..., RedisServer], kind: str) -> None:
    server = servers()
    store = prepared(RedisStore(server.url(), clock=clock))
    before = everything(store)
    with redis.Redis.from_url(server.url()) as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", "1") if kind == "replica" else admin.config_set("maxmemory", 1)
        for change in ("create", "append", "decide"):
            with pytest.raises(StoreError, match="Redis refused"):
                CHANGES[change](store)
        admin.execute_command("REPLICAOF", "NO", "ONE") if kind == "replica" else admin.config_set("maxmemory", 0)
    assert everything(store) == before
    store.close()


def test_what_was_damaged_is_named_as_such(store: RedisStore, admin: redis.Redis) -> None:
    begin(store)
    admin.lset(store._root + b"l:b1", 0, b"[]\n{}")
    with pytest.raises(CheckpointError, match="entry 1 of branch b1 cannot be read: its row is damaged"):
        store.lineage(branch_id="b1")
    admin.hset(store._root + b"b:b1", "seq", "x")
    assert [(type(each), each.id, each.seq) for each in store.branches()] == [(DamagedBranch, "b1", 0)]
    with pytest.raises(CheckpointError, match="the row of branch b1 cannot be read: it is damaged"):
        store.lineage(branch_id="b1")


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hunter2@[::1",
        "redis://me:hunter2@host/x",
        "redis://me:hunter2@host/0?ssl_nope=1",
        "redis://me:hunter2@host/0?max_connections=many",
        "http://me:hunter2@host/0",
        "hunter2",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(StoreError, match="cannot be read") as refused:
        RedisStore(url)
    assert "hunter2" not in str(refused.value) and refused.value.__suppress_context__


def test_a_url_of_a_unix_socket() -> None:
    server = redis_server()
    with RedisStore(f"unix://{server.directory}/s?db={DATABASES}", clock=clock) as store:
        begin(store)
        assert [branch.id for branch in store.branches()] == ["b1"]


def test_a_url_with_options_opens_a_store(url: str) -> None:
    options = "lease=5&ttl=60&timeout=2&tenant=a&prefix=mine&require_persistence=true&max_connections=7"
    with open_store(f"{url}?{options}") as store:
        assert isinstance(store, RedisStore) and store.branches() == []
        assert (store.lease, store.ttl, store.tenant, repr(store)) == (5.0, 60.0, "a", "RedisStore(prefix='mine')")
        begin(store)
    with open_store(f"{url}?prefix=mine") as other:
        assert other.branches() == []
        assert [branch.id for branch in other.for_tenant("a").branches()] == ["b1"]
    assert isinstance(open_store("rediss://me:hunter2@host:6380/0?ssl_cert_reqs=none"), RedisStore)
    with pytest.raises(StoreError, match="true or false"):
        open_store("redis://host?require_persistence=hunter2")
    with pytest.raises(StoreError, match="the known ones are lease, ttl, tenant, timeout"):
        open_store("redis://host?password=hunter2")


def test_the_driver_is_loaded_by_the_first_store_and_its_absence_is_said() -> None:
    text = """
import sys, phronomy, phronomy.stores, phronomy.stores.redis.store
assert phronomy.stores.RedisStore and "redis" not in sys.modules
sys.modules["redis"] = None
try:
    phronomy.stores.open_store("redis://localhost")
except phronomy.stores.base.StoreError as error:
    print(error)
"""
    root = Path(phronomy.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", text], cwd=root, check=True, capture_output=True, text=True)
    assert done.stdout == "a Redis store needs redis-py: pip install 'phronomy[redis]'\n"

"""A Redis store in tests: the fixtures that open it, what is written to it, and read back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis
from redis_server import RedisServer, redis_url
from store_scenes import MINE, asked, begin, clock, note, row, told

from phronomy.stores import (
    Append,
    AuditFilter,
    Branch,
    BranchFilter,
    CheckpointFilter,
    Claim,
    Document,
    PendingFilter,
    RedisStore,
)
from phronomy.stores.redis import lua


@pytest.fixture(name="url")
def url_fixture() -> str:
    return redis_url()


@pytest.fixture(name="store")
def store_fixture(url: str) -> Iterator[RedisStore]:
    with RedisStore(url, clock=clock) as opened:
        yield opened


@pytest.fixture(name="admin")
def admin_fixture(url: str) -> Iterator[redis.Redis]:
    """What looks at the keys, beside the store."""
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture(name="servers")
def servers_fixture() -> Iterator[Callable[..., RedisServer]]:
    """Starts servers of this test alone."""
    started: list[RedisServer] = []

    def start(**settings: str) -> RedisServer:
        started.append(RedisServer(**settings).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()


CHANGES: dict[str, Callable[[RedisStore], Any]] = {
    "create": lambda store: begin(store, "b2", opened=(asked("p9"),), audit=(told(1.0),)),
    "append": lambda store: store.append(
        Append(branch_id="b1", seq=1, entries=(note("x"),), claim=MINE, audit=(told(1.0),))
    ),
    "append all": lambda store: store.append_all(
        [
            Append(
                branch_id="b3", seq=1, entries=(note("x"),), holder=replace(MINE, branch_id="b3", owner="", fence=0)
            ),
            Append(branch_id="b1", seq=1, entries=(note("x"),), holder=MINE, closed=("p1",), audit=(told(1.0),)),
        ]
    ),
    "take over": lambda store: store.append(Append(branch_id="b3", seq=1, take="you", announce=True)),
    "decide": lambda store: store.append(
        Append(branch_id="b1", seq=1, claim=MINE, entries=(note("x"),), closed=("p1",))
    ),
    "renew": lambda store: store.renew(MINE),
    "release": lambda store: store.release(MINE, "completed"),
    "announced": lambda store: store.announced("b3", 1),
    "remove": lambda store: store.remove({"b3": 1}, {}),
}


def everything(store: RedisStore) -> Any:
    branches = store.branches()
    lists = [store.pending_rows(), store.select_audit(AuditFilter()), store.select_checkpoints(CheckpointFilter())]
    return branches, lists, [store.lineage(branch_id=branch.id) for branch in branches]


def prepared(store: RedisStore) -> RedisStore:
    """With two branches, and with every script known to the server: the first answer to a call is then that of the change."""
    for script in vars(lua).values():
        if isinstance(script, lua.Script):
            store._link._client.execute_command("SCRIPT LOAD", script.text)
    begin(store, take="me", opened=(asked("p1"),))
    begin(store, "b3", thread="t", status="completed", announce=True)
    return store


def fill(store: RedisStore) -> None:
    """Branches of every status, forks, labels, pending approvals of all facets, and lines of the audit trail."""
    statuses = ("running", "suspended", "failed", "completed", "rejected", "cancelled", "superseded")
    for number, status in enumerate(statuses):
        id, facets = f"b{number}", {"label": "l", "risk": "high", "expires_at": 5.0}
        branch = Branch(id=id, run_id=f"r{number % 2}", thread_id=f"t{number}", agent="clerk", label="l")
        entries = (row(f"{id}-0", label="l"), note("x"), row(f"{id}-1"), row(f"{id}-2", parent=f"{id}-0"))
        first = Append(branch_id=id, seq=0, entries=entries, status=status, take="me", head=f"{id}-2", announce=True)
        store.create(branch, first, exclusive=True)
        claim = Claim(branch_id=id, run_id=branch.run_id, owner="me", fence=1)
        opened, audit = (asked("p1", **facets), asked("p2", 2.0)), (told(float(-number)), told(9.0))
        noted = Append(branch_id=id, seq=4, claim=claim, opened=opened, audit=audit, entries=(note("y"),))
        store.append(replace(noted, texts=("{}", f"{number % 2}")))
        store.append_all([Append(branch_id=id, seq=5, holder=claim, closed=("p2",))])
        fork = Branch(id=f"f{number}", run_id=id, thread_id=None, agent="x", parent_branch=id, parent_seq=1, seq=1)
        change = Append(branch_id=fork.id, seq=1, entries=(row(f"f{number}-0", parent=f"{id}-0"),))
        store.create(fork, change, exclusive=False)
        store.renew(claim)
        store.release(claim)
        for key in ("x", "y", "z"):
            put = store.put_document(
                Document(kind=f"k{number % 2}", key=f"{key}{number}", text="{}", expires_at=2000.0)
            )
            store.put_document(replace(put, expires_at=None) if key == "x" else put)
        store.delete_document(f"k{number % 2}", f"z{number}")


def read(store: RedisStore) -> None:
    """Every read that there is, with every filter."""
    filters = [{"run_id": "r1"}, {"thread_id": "t1"}, {"parents": ("b1", "b2")}, {"abandoned_at": 5000.0}]
    for each in [*filters, {"ended_before": 5000.0}, {"unannounced": True}, {}]:
        assert store.select_branches(BranchFilter(**each)), each
    facets = {"run": "r1", "thread": "t1", "label": "l", "tool": "t", "risk": "high", "agent": "a"}
    for wanted in ({}, {"agent": "a"}, facets):
        for each in ({}, {"pending_id": "p1"}, {"expired_at": 6.0}, {"newest": True}, {"since": 0.0, "until": 1.0}):
            assert store.select_pending(PendingFilter(facets=wanted, **each))
            assert store.count_pending(PendingFilter(facets=wanted, **each))
    for each in ({}, {"run_id": "r1"}, {"thread_id": "t1"}, {"label": "l"}, {"labeled": True}, {"agent": "x"}):
        assert store.select_checkpoints(CheckpointFilter(**each))
    for each in ({}, {"run_id": "b1"}, {"since": -3.0}, {"until": -2.0}):
        assert store.select_audit(AuditFilter(**each))
    assert store.child_ids("b1-0") == ["b1-1", "b1-2", "f1-0"]
    assert store.kept_text(hashlib.sha256(b"{}").hexdigest()) == "{}"
    assert store.get_document("k1", "x1") in store.select_documents("k1", after="w", limit=3)
    assert store.lineage(checkpoint_id="f1-0").entries and store.lineage(branch_id="f1").entries

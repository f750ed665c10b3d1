"""Any value of a Redis or a key-value store is damaged: the other runs go on, and whoever looks is told of the damaged one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pytest
from damaged_scenes import KeyValueScene, RedisScene
from selection import scaled
from tables import each

from phronomy import CheckpointError, UnreadableRow
from phronomy.stores.derived.listing import damage_of
from phronomy.stores.rows import DamagedBranch


def check(scene: RedisScene | KeyValueScene, names: Sequence[str]) -> None:
    """Damage each of these values, in every way in the sweep; by default each in one, another than that of the next."""
    every = [(name, how) for name in names for how in scene.HOW]
    failed = []
    for name, how in scaled([*zip(names, cycle(scene.HOW), strict=False)], sweep=every):
        if scene.damage(name, how):
            try:
                scene.check()
            except Exception as error:
                error.add_note(f"{name} is {how}")
                failed.append(error)
    if failed:
        raise ExceptionGroup("what is damaged costs others", failed)


@pytest.fixture
def keys(place: Any) -> RedisScene:
    """A database of Redis with runs in it."""
    return RedisScene(place)


of_redis = pytest.mark.parametrize("place", ["redis"], indirect=True)


@of_redis
@pytest.mark.parametrize("share", range(3))
def test_the_other_runs_go_on_whatever_value_of_redis_is_damaged(keys: RedisScene, share: int) -> None:
    check(keys, keys.names()[share::3])


@pytest.mark.parametrize("share", range(3))
def test_the_other_runs_go_on_whatever_row_of_a_key_value_store_is_damaged(share: int) -> None:
    scene = KeyValueScene()
    check(scene, scene.names()[share :: scaled(9, sweep=3)])


def look(scene: RedisScene | KeyValueScene, name: str, how: str) -> list[tuple[str, str]]:
    """The error that each reader gives for the run `hurt` once a value is damaged."""
    assert scene.damage(name, how)
    told: list[tuple[str, str]] = []
    with scene.opened() as store:
        rows = [each for each in store.branches() if isinstance(each, DamagedBranch)]
        assert [each.id for each in rows] in ([], [scene.hurt.branch_id])
        told += [("branches", each.id) for each in rows]
        told += [("runs", id) for id in damage_of(store, store.branches())]
        told += [("pending", each.id) for each in store.pending().unreadable]
        told += [("list", each.id) for each in store.list().unreadable]
        told += [("audit", each.kind) for each in store.audit() if each.kind != "approve"]
        try:
            store.head(scene.hurt.branch_id)
        except CheckpointError as error:
            assert scene.hurt.branch_id in str(error) or "text" in str(error)
            told.append(("head", type(error).__name__))
        try:
            store.request(scene.hurt.pending[0].id)
        except (CheckpointError, UnreadableRow) as error:
            told.append(("request", type(error).__name__))
    return told


IN_REDIS = [
    ("branch: st", "not UTF-8", ["branches", "runs", "head"]),
    ("branch: seq", "of no form", ["branches", "runs", "head"]),
    ("branch: made", "far", ["branches", "runs", "head"]),
    ("branch: ps", "no number", ["branches", "runs", "list", "head"]),
    ("key b", "a number", ["branches", "runs", "list", "head", "request"]),
    ("key l", "a number", ["runs", "list", "head"]),
    ("entry 0", "cut off", ["runs", "list", "head"]),
    ("entry 0, line 0", "not UTF-8", ["runs", "list", "head"]),
    ("entry 0, line 1", "not UTF-8", ["runs", "list", "head"]),
    ("request", "empty", ["pending", "request"]),
    ("request, line 0", "of no form", ["pending", "request"]),
    ("request, line 1", "not UTF-8", ["pending", "request"]),
    ("line of audit", "cut off", ["audit"]),
    ("line of audit, line 0", "a number", ["audit"]),
]


@of_redis
@pytest.mark.parametrize(("name", "how", "where"), IN_REDIS)
def test_whoever_looks_at_redis_is_told(keys: RedisScene, name: str, how: str, where: list[str]) -> None:
    told = look(keys, name, how)
    assert list(dict.fromkeys(each[0] for each in told)) == where


IN_KEY_VALUES = [
    ("b", "", "cut off", ["branches", "runs", "pending", "head", "request"]),
    ("b", " part 10", "huge", ["branches", "runs", "pending", "head", "request"]),
    ("b", " part 14", "far", ["branches", "runs", "pending", "head", "request"]),
    ("l", "", "another list", ["runs", "list", "head"]),
    ("l", " part 0", "an object", ["runs", "list", "head"]),
    ("l", " part 1", "null", ["runs", "head"]),
    ("w", "", "empty", ["pending", "request"]),
    ("w", " part 0", "negative", ["pending", "request"]),
    ("u", "", "cut off", ["audit"]),
    ("u", " part 0", "null", ["audit"]),
]


@pytest.mark.parametrize(("table", "part", "how", "where"), IN_KEY_VALUES)
def test_whoever_looks_at_a_key_value_store_is_told(table: str, part: str, how: str, where: list[str]) -> None:
    scene = KeyValueScene()
    name = next(name for name in scene.names() if name.startswith(f"('{table}',"))
    told = look(scene, name + part, how)
    assert list(dict.fromkeys(each[0] for each in told)) == where


@of_redis
@each("kind", ["l", "o", "r"])
def test_a_damaged_run_that_has_ended_is_pruned_with_the_others(keys: RedisScene, kind: str) -> None:
    with keys.opened() as store:
        desk = keys.agent("desk", store)
        ended = [desk.resume(desk.invoke("Pay").checkpoint, approved=True).run_id for _ in range(2)]
        (row,) = (each for each in keys.client.scan_iter(count=1000) if each.endswith(f"}}:b:{ended[0]}".encode()))
        keys.client.set(row.replace(b"}:b:", f"}}:{kind}:".encode()), b"7")  # whatever stood there
        store.prune(older_than=0)
        assert not {*ended} & {each.id for each in store.branches()}

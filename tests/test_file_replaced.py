"""A SQLite file that is deleted, or replaced by another, under a store that has it open: the store reads and writes nothing more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drivers import DRIVERS, Driver
from store_scenes import MINE, begin, bodies, note

from phronomy import Agent, SQLiteStore, StoreError, tool
from phronomy.stores import Append, Branch
from phronomy.testing import ScriptedModel, call

BESIDE = ("", "-wal", "-shm")
"""What a database in use is made of."""


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


def deleted(path: Path) -> None:
    for end in BESIDE:
        path.with_name(path.name + end).unlink()


def made_anew(path: Path) -> None:
    deleted(path)
    SQLiteStore(path).close()


def moved_over(path: Path) -> None:
    """As a backup is put back: by one rename."""
    other = path.with_name("backup.db")
    SQLiteStore(other).close()
    os.replace(other, path)


def renamed(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def directory_replaced(path: Path) -> None:
    path.parent.rename(path.parent.with_name("old"))
    path.parent.mkdir()
    SQLiteStore(path).close()


def log_deleted(path: Path) -> None:
    """What was committed and is not in the file yet is in its log: others would begin another."""
    path.with_name(path.name + "-wal").unlink()


def index_deleted(path: Path) -> None:
    """By the index of the log processes hear of each other: others would make a new one, and not be heard."""
    path.with_name(path.name + "-shm").unlink()


WAYS: tuple[Callable[[Path], None], ...] = (
    *(deleted, made_anew, moved_over, renamed, directory_replaced, log_deleted),
    index_deleted,
)


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def replaced(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    found: Callable[[Path], None] = request.param
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "runs.db"


def opened(path: Path) -> SQLiteStore:
    """A store with a branch that is held."""
    store = SQLiteStore(path)
    begin(store, take="me", lease=60.0)
    return store


def write(store: SQLiteStore) -> Branch:
    """The next entry."""
    seq = store.branches()[0].seq
    return store.append(Append(branch_id="b1", seq=seq, entries=(note("{}"),), claim=MINE))


def in_it(path: Path) -> list[str]:
    """The branches of a file, read by another store: none if there is no file, and none is made."""
    if not path.exists():
        return []
    with SQLiteStore(path) as other:
        return [branch.id for branch in other.branches()]


def test_nothing_is_read_from_the_wrong_file_and_nothing_written(path: Path, replaced: Callable[[Path], None]) -> None:
    store = opened(path)
    replaced(path)
    for use in (
        store.branches,
        lambda: store.lineage(branch_id="b1"),
        lambda: store.for_tenant("other").pending(),
        lambda: store.append(Append(branch_id="b1", seq=1, entries=(note("{}"),), claim=MINE)),
        lambda: store.append(Append(branch_id="b1", seq=-1, claim=MINE)),
        lambda: store.renew(MINE),
        lambda: store.release(MINE),
        lambda: begin(store, "b2"),
    ):
        with pytest.raises(StoreError, match=r"is not the file that .* opened"):
            use()
    store.close()
    assert "b2" not in in_it(path)


def test_a_decision_is_refused_before_it_counts(driver: Driver, path: Path, replaced: Callable[[Path], None]) -> None:
    """And no tool is entered."""
    paid: list[int] = []

    def pay(order: int) -> str:
        """Pay an order."""
        paid.append(order)
        return "paid"

    def agent() -> Agent[Any, str]:
        model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
        gated = tool(requires_approval=True)(driver.function(pay))
        return Agent(name="desk", model=model, tools=[gated], store=SQLiteStore(path))

    desk = agent()
    waiting = driver.invoke(desk, "Pay it", thread_id="t").checkpoint
    replaced(path)
    with pytest.raises(StoreError):
        driver.resume(desk, waiting, approved=True)
    with pytest.raises(StoreError):
        driver.invoke(desk, "Pay it", thread_id="t")
    assert paid == []
    desk.store.close()


def test_a_worker_in_the_middle_of_a_run_stops_before_the_next_tool(driver: Driver, path: Path) -> None:
    paid: list[int] = []

    def pay(order: int) -> str:
        """Pay an order."""
        paid.append(order)
        made_anew(path)
        return "paid"

    model = ScriptedModel([call("pay", {"order": 1}), call("pay", {"order": 2}), "Done."])
    with SQLiteStore(path) as store:
        desk = Agent(name="desk", model=model, tools=[tool(driver.function(pay))], store=store)
        with pytest.raises(StoreError):
            driver.invoke(desk, "Pay both")
    assert (paid, in_it(path)) == ([1], [])


def test_a_link_that_leads_elsewhere_is_another_file(path: Path) -> None:
    link, other = path.with_name("link.db"), path.with_name("other.db")
    SQLiteStore(other).close()
    link.symlink_to(path)
    with opened(link) as store:
        assert in_it(path) == ["b1"]
        link.unlink()
        with pytest.raises(StoreError, match="is not the file"):
            store.branches()
        link.symlink_to(other)
        with pytest.raises(StoreError, match="is not the file"):
            write(store)
        link.unlink()
        link.symlink_to(path)
        assert write(store).seq == 2
    assert in_it(other) == []


def test_a_file_that_is_put_back_is_the_same_file(path: Path) -> None:
    with opened(path) as store:
        aside = path.with_name("aside.db")
        path.rename(aside)
        with pytest.raises(StoreError):
            write(store)
        aside.rename(path)
        assert write(store).seq == 2
        assert bodies(store) == ["{}"]


def test_others_that_come_and_go_replace_nothing(path: Path) -> None:
    """They leave the log of the file alone while somebody has it open."""
    with opened(path) as store:
        for number in range(2, 5):
            with SQLiteStore(path) as other:
                begin(other, f"b{number}")
            assert len(store.branches()) == number
        write(store)
    assert in_it(path) == ["b1", "b2", "b3", "b4"]


def test_a_store_that_opens_its_file_again_makes_no_new_one(path: Path) -> None:
    """Its connection is closed for each fork."""
    store = opened(path)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    path.unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match="is not the file"):
            store.renew(MINE)
    assert not path.exists()
    store.close()


def test_a_file_that_is_opened_again_may_have_begun_another_log(path: Path) -> None:
    store = opened(path)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    assert in_it(path) == ["b1"]
    assert write(store).seq == 2
    store.close()

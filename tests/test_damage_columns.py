"""Any column of any row of a SQL database is damaged: the other runs go on, and whoever looks is told of the damaged one."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from damaged_scenes import PostgresScene, SQLiteScene
from inbox_api_scenes import api_of
from page_scenes import Pages
from selection import scaled
from tables import each

from phronomy import Agent, CheckpointError, UnreadableRow, cli, tool
from phronomy.stops.triggers import RunEnd, wait_for_first
from phronomy.stores.base import Store
from phronomy.stores.derived import reminders
from phronomy.stores.rows import DamagedBranch
from phronomy.testing import ScriptedModel, call


def check(scene: SQLiteScene | PostgresScene, table: str, first: int) -> None:
    """Damage each column of a table, in every way in the sweep; by default each in one, another than that of the next column."""
    columns = scene.columns(table)
    ways = cycle([*scene.HOW][first:] + [*scene.HOW][:first])
    every = [(column, how) for column in columns for how in scene.HOW]
    failed = []
    for column, how in scaled([*zip(columns, ways, strict=False)], sweep=every):
        if scene.damage(table, column, how):
            try:
                scene.check()
            except Exception as error:
                error.add_note(f"{table}.{column} is {how}")
                failed.append(error)
    if failed:
        raise ExceptionGroup("what is damaged costs others", failed)


@pytest.mark.parametrize("table", SQLiteScene.TABLES)
def test_the_other_runs_go_on_whatever_column_of_a_file_is_damaged(tmp_path: Path, table: str) -> None:
    check(SQLiteScene(tmp_path / "runs.db"), table, 0)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
@pytest.mark.parametrize("table", PostgresScene.TABLES)
def test_the_other_runs_go_on_whatever_column_of_a_server_is_damaged(place: Any, table: str) -> None:
    check(PostgresScene(place), table, 1)


@pytest.mark.parametrize("how", [each for each in SQLiteScene.HOW if each not in ("null", "of another run", "its own")])
def test_pages_of_runs_lead_past_a_damaged_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    scene = SQLiteScene(tmp_path / "runs.db")
    monkeypatch.setitem(SQLiteScene.TABLES, "branches", SQLiteScene.TABLES["branches"][::-1])  # one in the middle
    assert scene.damage("branches", "id", how)
    with scene.opened() as store:
        api, page, threads = api_of(store), {"next": None}, list[Any]()
        for _ in range(8):
            page = api.read("/runs", limit=1, **({"cursor": page["next"]} if page["next"] is not None else {}))
            threads += [each["thread_id"] for each in page["items"]]
            if page["next"] is None:
                break
    assert [each for each in threads if each != "well"] == [None, None, "ended", None, "decided", "hurt"]


SHOWN = [
    ("branches", "status", "not UTF-8"),
    ("branches", "head", "a blob"),
    ("branches", "seq", "of another type"),
    ("branches", "created_at", "a blob"),
    ("branches", "created_at", "far"),
    ("branches", "changed_at", "far"),
    ("branches", "run_id", "not UTF-8"),
    ("pending", "body", "not UTF-8"),
    ("pending", "tool_name", "a blob"),
    ("audit", "body", "not UTF-8"),
    ("audit", "at", "a blob"),
    ("log", "body", "not UTF-8"),
    ("log", "path", "a blob"),
]


@pytest.mark.parametrize(("table", "column", "how"), SHOWN)
def test_whoever_looks_is_told(
    tmp_path: Path, table: str, column: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = SQLiteScene(tmp_path / "runs.db")
    assert scene.damage(table, column, how)
    with scene.opened() as store:
        pages, api = Pages(store), api_of(store)
        shown = {path: pages.page(path).text for path in ("/", "/runs", "/history")}
        read = {path: api.read(path) for path in ("/requests", "/runs", "/audit")}
        damaged = [each.thread_id for each in store.branches() if isinstance(each, DamagedBranch)]
        assert damaged == (["hurt"] if table == "branches" else [])
        if table in ("branches", "log"):
            with pytest.raises(CheckpointError, match=r"cannot be read|not valid|damaged") as told:
                store.head(scene.hurt.branch_id)
            assert scene.hurt.branch_id in str(told.value) and "\udcff" not in str(told.value)
        if table == "pending":
            (missing,) = store.pending().unreadable
            assert (missing.kind, missing.id, missing.run_id) == (
                "request",
                scene.hurt.pending[0].id,
                scene.hurt.run_id,
            )
            with pytest.raises(UnreadableRow):
                store.request(scene.hurt.pending[0].id)
            assert f"pending {missing.id} of branch" in pages.page(f"/runs/{scene.hurt.run_id}").text
            assert missing.id in shown["/"] and [each["id"] for each in read["/requests"]["unreadable"]] == [missing.id]
        if table == "audit":
            assert [each.kind for each in store.audit()] == ["unreadable"]
            assert [each["kind"] for each in read["/audit"]["items"]] == ["unreadable"]
        lost = ["hurt"] if table in ("branches", "log") else []
        assert [each["thread_id"] for each in read["/runs"]["items"] if each["unreadable"] is not None] == lost
        assert shown["/runs"].count("Nobody can carry it on or decide in it until that is mended") == len(lost)
    assert cli.run(["runs", "--json", "--store", f"sqlite:///{scene.path}"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    marked = [each["thread_id"] for each in items if "unreadable" in each]
    assert marked == lost


def test_a_walk_of_what_has_expired_ends_at_a_request_whose_time_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = SQLiteScene(tmp_path / "runs.db")
    assert scene.damage("pending", "requested_at", "of another type")
    monkeypatch.setattr(reminders, "_BATCH", 1)
    with scene.opened() as store:
        late = reminders.expired(store, store.clock() + 7200, 10)
    found = [row.thread_id or row.agent for row in late]
    assert sorted(found) == ["decided", "hurt", "shop", "well"] and found[-1] == "hurt"


@each("column, how", [("status", "of another type"), ("seq", "a blob"), ("owner", "a blob")])
def test_a_run_that_waits_for_the_end_of_a_damaged_one_keeps_no_other_from_its_turn(
    tmp_path: Path, column: str, how: str
) -> None:
    scene = SQLiteScene(tmp_path / f"{column}.db")

    @tool
    def wait(other: str) -> str:
        """Wait for the end of another run."""
        return wait_for_first({"end": RunEnd(other)}).name

    def waiting(store: Store, other: str = "") -> Agent[Any, str]:
        model = ScriptedModel.by_turn([call("wait", {"other": other}), "Done."])
        return Agent(name="waiting", tools=[wait], model=model, store=store)

    with scene.opened() as store:
        desk = scene.agent("desk", store)
        fork = desk.fork(scene.hurt)
        lost, well = (waiting(store, id).invoke("Wait").run_id for id in (fork.branch_id, scene.well.run_id))
        desk.resume(scene.well, approved=True)
    with closing(sqlite3.connect(scene.path, isolation_level=None)) as db:
        value = scene.HOW[how].format(column, "phronomy_branches", "1")
        db.execute(f"UPDATE phronomy_branches SET {column} = {value} WHERE id = ?", [fork.branch_id])
    with scene.opened() as store:
        [done] = waiting(store).recover_all()
        assert (done.run_id, done.result and done.result.status) == (well, "completed")
        assert store.head(lost)[1].status == "suspended"

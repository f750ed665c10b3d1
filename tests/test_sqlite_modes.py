"""Who may read the file of a SQLite store: its owner alone, from its first moment, and the files beside it too."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store_scenes import begin

from phronomy import SQLiteStore
from phronomy.cli.apps import own_file

pytestmark = pytest.mark.skipif(os.name == "nt", reason="files have no such modes there")


@pytest.fixture(autouse=True, params=[0o000, 0o022], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the process takes from the modes of new files: nothing, or the usual."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}


def test_a_new_file_and_those_beside_it_are_its_owners_alone(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "runs.db") as store:
        begin(store)
        assert modes(tmp_path) == {"runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600}
        with SQLiteStore(tmp_path / "runs.db") as again:
            assert len(again.branches()) == 1


def test_it_is_so_before_sqlite_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, int]] = []
    connect = sqlite3.connect

    def connected(*given: Any, **options: Any) -> sqlite3.Connection:
        seen.append(modes(tmp_path))
        made: sqlite3.Connection = connect(*given, **options)
        return made

    monkeypatch.setattr(sqlite3, "connect", connected)
    SQLiteStore(tmp_path / "runs.db").close()
    assert seen == [{"runs.db": 0o600}]


@pytest.mark.parametrize("mode", [0o640, 0o666], ids=oct)
def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    SQLiteStore(tmp_path / "runs.db").close()
    (tmp_path / "runs.db").chmod(mode)
    with SQLiteStore(tmp_path / "runs.db") as store:
        begin(store)
        assert modes(tmp_path) == {"runs.db": mode, "runs.db-wal": mode, "runs.db-shm": mode}


def test_one_that_a_link_leads_to_is_made_so_too(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "runs.db").symlink_to(tmp_path / "data" / "real.db")
    with SQLiteStore(tmp_path / "runs.db") as store:
        begin(store)
        assert modes(tmp_path / "data")["real.db"] == 0o600


@pytest.mark.parametrize("name", ["runs?mode=memory.db", "runs#1.db", "runs%41.db", "r\u00e4ume 1.db"])
def test_a_name_is_a_name_whatever_is_in_it(tmp_path: Path, name: str) -> None:
    SQLiteStore(tmp_path / name).close()
    assert modes(tmp_path) == {name: 0o600}


def test_nobody_has_locks_in_it_when_the_one_that_made_it_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system takes all locks of a process on a file away when the process closes it once, however it was opened."""
    happened: list[str] = []
    opened = threading.Event()
    close, connect = os.close, sqlite3.connect

    def closes(number: int) -> None:
        if not happened and modes(tmp_path):
            other.start()
            opened.wait(0.2)  # if it could, it would open the file now
            happened.append("closed")
        close(number)

    def connects(*given: Any, **options: Any) -> sqlite3.Connection:
        happened.append("connected")
        opened.set()
        made: sqlite3.Connection = connect(*given, **options)
        return made

    def open_and_close() -> None:
        SQLiteStore(tmp_path / "runs.db").close()

    other = threading.Thread(target=open_and_close)
    monkeypatch.setattr(os, "close", closes)
    monkeypatch.setattr(sqlite3, "connect", connects)
    open_and_close()
    other.join()
    assert happened == ["closed", "connected", "connected"]


@pytest.mark.parametrize("name", ["chat.db", "demo.db"])
def test_directories_that_we_make_are_their_owners_alone_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "home").mkdir()
    before = modes(tmp_path)["home"]
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "a" / "b"))
    path = own_file(name, "URL")
    assert path == tmp_path / "home" / "a" / "b" / "phronomy" / name
    assert [modes(each.parent)[each.name] for each in (*reversed(path.parents[:3]), path.parents[3])] == [0o700] * 3 + [
        before
    ]
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(OSError, match="Not a directory"):
        own_file(name, "URL")

"""A URL names a store, and a wrong one is answered with what to write instead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import phronomy.stores
from phronomy.errors import StoreError
from phronomy.stores import MemoryStore, SQLiteStore, open_store


def test_a_memory_store() -> None:
    store = open_store("memory://")
    assert isinstance(store, MemoryStore)
    assert store.lease == 30.0
    assert open_store("MEMORY://?lease=7.5").lease == 7.5


def test_a_sqlite_store_at_an_absolute_path(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/runs.db?lease=5&timeout=0.5&synchronous=normal") as store:
        assert isinstance(store, SQLiteStore)
        assert store.lease == 5.0
    assert (tmp_path / "runs.db").exists()


def test_a_sqlite_store_at_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    open_store("sqlite:///data/runs.db").close()
    assert (tmp_path / "data" / "runs.db").exists()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a%20b.db", "a b.db"),
        ("50%25.db", "50%.db"),
        ("a%3Fb%23c.db", "a?b#c.db"),
        ("a+b#c.db", "a+b#c.db"),
        ("%C3%A9.db", "é.db"),
    ],
)
def test_a_path_is_percent_decoded_once(tmp_path: Path, written: str, meant: str) -> None:
    open_store(f"sqlite:///{tmp_path}/{written}?lease=1%30").close()
    assert [path.name for path in tmp_path.iterdir()] == [meant]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("runs.db", "write sqlite:/// and then its path"),
        ("/var/hunter2.db", "write sqlite:/// and then its path"),
        ("", "write sqlite:/// and then its path"),
        (
            "mysql://me:hunter2@host/db",
            "no store is known for mysql://: the known ones are memory://, sqlite://, postgres://",
        ),
        (
            "me:hunter2@host://x",
            "the known ones are memory://, sqlite://, postgres://, postgresql://, redis://, rediss://",
        ),
        ("postgresql://me:hunter2@host/db?setup=hunter2", "true or false"),
        ("postgresql://me:hunter2@host/db?max_size=hunter2", "a whole number"),
        ("redis://me:hunter2@host/0?password=hunter2", "an option that is not known"),
        ("memory://hunter2", "has no name"),
        ("sqlite://hunter2.db", "no host: sqlite:///relative.db"),
        ("sqlite://me:hunter2@host/db", "no host: sqlite:///relative.db"),
        ("sqlite:///", "names a file"),
        ("memory://?hunter2", "option=value"),
        ("memory://?lease=%ff", "option=value"),
        ("memory://?lease=1&lease=2", "twice"),
        ("memory://?timeout=1", "the known ones are lease"),
        ("sqlite:///x.db?password=hunter2", "the known ones are lease, ttl, tenant, synchronous, timeout"),
        ("memory://?lease=hunter2", "'lease' of a memory:// URL must be a number of seconds"),
        ("memory://?lease=inf", "must be a number of seconds"),
        ("memory://?lease=nan", "must be a number of seconds"),
        ("memory://?lease=0", "seconds above 0"),
        ("sqlite:///x.db?timeout=-1", "timeout must be 0 seconds or more"),
        ("sqlite:///x.db?synchronous=maybe", "synchronous must be one of OFF, NORMAL, FULL, EXTRA"),
        ("sqlite:///%00.db", "NUL"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as refused:
        open_store(url)
    assert says in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_every_public_name_is_there() -> None:
    names = phronomy.stores.__all__
    assert names == sorted(names)
    found: dict[str, Any] = {name: getattr(phronomy.stores, name) for name in names}
    assert found["SQLiteStore"] is SQLiteStore
    with pytest.raises(AttributeError, match="no attribute 'MySQLStore'"):
        _ = phronomy.stores.MySQLStore  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "url", ["memory://?tenant=acme&ttl=60&lease=5", "sqlite:///runs.db?tenant=acme&ttl=60&lease=5"]
)
def test_what_every_store_has_is_an_option_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(url) as store:
        assert (store.tenant, store.ttl, store.lease) == ("acme", 60, 5)


def test_the_database_driver_is_loaded_when_its_store_is_first_used() -> None:
    program = """
import sys, phronomy.stores
phronomy.stores.open_store("memory://")
assert "phronomy.stores.sql.sqlite" not in sys.modules
phronomy.stores.SQLiteStore
assert "phronomy.stores.sql.sqlite" in sys.modules
"""
    root = Path(phronomy.stores.__file__).parents[2]
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True)

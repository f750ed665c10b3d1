"""Arguments that are longer than a terminal: the question stays in sight, and all of it can be read before it is answered."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE
from test_cli_runs import STORE, place, refunds, run, said, waiting
from test_cli_terminal import Terminal, comes

from phronomy import Agent, Checkpoint, SQLiteStore, cli
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.unmeasured

__all__ = ["place", "said"]  # fixtures

LONG = "".join(f"line {number} of a letter\n" for number in range(80_000)) + "and pay it all out"
VIEW = r"\[a\]pprove, \[r\]eject, \[e\]dit, re\[s\]pond, \[v\]iew all or \[l\]ater\? "


def begin(note: str = LONG, **args: Any) -> Checkpoint:
    sys.path.insert(0, os.getcwd())
    import desk  # type: ignore[import-not-found]

    with SQLiteStore("runs.db") as store:
        model = ScriptedModel([call("refund", {"order_id": 1042, "note": note, **args})])
        agent: Agent[Any, str] = Agent(name="desk", model=model, tools=[desk.refund], store=store)
        return agent.invoke("go", thread_id="t1").checkpoint


@pytest.fixture
def pager(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pager that keeps what it is given, and says that it is there."""
    program = place / "a pager"
    program.write_text(f"#!/bin/sh\ncat > {place}/paged\necho read $1\n")
    program.chmod(0o700)
    monkeypatch.setenv("PAGER", f"'{program}' it")
    return place / "paged"


@contextmanager
def sized(rows: int, columns: int, *line: str) -> Iterator[Terminal]:
    desk = Terminal(*line, dimensions=(rows, columns))
    try:
        yield desk
    finally:
        desk.child.close(force=True)


def flat(text: str) -> str:
    """The text without what folding has put in."""
    return re.sub(r"\s+", "", text)


SIZES = pytest.mark.parametrize(("rows", "columns"), [(24, 80), (15, 40)], ids=["80x24", "40x15"])


@SIZES
@pytest.mark.few(1)
def test_its_beginning_size_and_digest_are_shown_and_the_question_is_in_sight(
    place: Path, pager: Path, rows: int, columns: int
) -> None:
    (item,) = begin().pending
    with sized(rows, columns, "approve", item.id, "--reveal") as desk:
        desk.sees(r"Approve it\? \[y/N, or v to view it all\] ")
        shown = desk.text.partition("Approval needed: refund")[2]
        assert "line 0 of a letter" in flat(shown).replace("line0ofaletter", "line 0 of a letter")
        assert "line90" not in flat(shown)
        digest = hashlib.sha256(LONG.encode()).hexdigest()
        assert f"...{len(LONG):,}charactersinall,sha256{digest}" in flat(shown)
        assert shown.count("\n") < 3 * rows
        desk.types("v")
        desk.sees("read it")
        desk.sees(r"Approve it\? \[y/N, or v to view it all\] ")
        desk.types("y")
        assert desk.status() == cli.DONE
    assert flat(json.dumps(LONG)) in flat(pager.read_text())
    assert "Approval needed: refund" in pager.read_text()
    assert refunds() == ["1042 49.9 s3cret"]


@SIZES
@pytest.mark.few(1)
def test_what_fits_is_shown_whole_and_asked_as_ever(place: Path, rows: int, columns: int) -> None:
    (item,) = begin("no receipt").pending
    with sized(rows, columns, "approve", item.id) as desk:
        desk.sees(r"Approve it\? \[y/N(\]|, or v to view it all\]) ")
        assert '"no receipt"' in desk.text and "in all" not in desk.text
        assert ("view it all" in desk.text) == (rows == 15), "its first lines are out of sight there"
        desk.types("n")
        assert desk.status() == cli.PENDING


def test_a_conversation_has_a_key_for_it_and_so_has_what_was_edited(place: Path, pager: Path) -> None:
    begin()
    with sized(24, 80, "chat", "--thread", "t1") as desk:
        desk.sees(VIEW)
        desk.types("v")
        desk.sees("read it")
        desk.sees(VIEW)
        assert flat(json.dumps(LONG)) in flat(pager.read_text())
        assert "s3cret" not in pager.read_text()
        desk.types("e")
        for answer in ("7", "", "", ""):
            desk.sees(r"\]: ")
            desk.types(answer)
        desk.sees("changed; the model asked for 1042")
        desk.sees(VIEW)
        desk.types("v")
        desk.sees("read it")
        desk.sees(VIEW)
        assert "To be run: refund\n  order_id  integer   7\n" in pager.read_text()
        desk.types("e")
        for answer in ("", "", "short", ""):  # what it was is as long as ever
            desk.sees(r"\]: ")
            desk.types(answer)
        desk.sees(r"changed; the model asked for .*line 0 of a letter")
        desk.sees(VIEW)
        desk.types("a")
        desk.sees("you> ")
        desk.presses("d")
        assert desk.status() == cli.DONE
    assert refunds() == ["7 49.9 s3cret"]


def test_ctrl_c_in_the_pager_is_the_pagers_and_one_that_breaks_is_told(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = begin().pending
    slow = place / "slow"
    slow.write_text(
        "#!/bin/sh\ntrap 'echo stopped; exit 3' INT\ncat > /dev/null\necho reading\nwhile :; do sleep 0.05; done\n"
    )
    slow.chmod(0o700)
    monkeypatch.setenv("PAGER", str(slow))
    with sized(24, 80, "approve", item.id) as desk:
        desk.sees("or v to view it all")
        desk.types("v")
        desk.sees("reading")
        desk.presses("c")
        desk.sees("stopped")
        desk.sees("or v to view it all")
        desk.presses("c")
        assert desk.status() == cli.INTERRUPTED
    assert desk.text.endswith(f"Interrupted. Nothing was decided: {item.id} still waits.\n")
    assert refunds() == []


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["/nowhere/less", "'", "head -c 1"])
def test_a_pager_that_is_not_there_or_stops_reading_is_no_harm(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (item,) = begin("".join(f"line {number}\n" for number in range(1000)) + "and pay it all out").pending
    monkeypatch.setenv("PAGER", name)
    programs = place / "programs"
    programs.mkdir()
    (programs / "head").symlink_to("/usr/bin/head")
    monkeypatch.setenv("PATH", str(programs))
    with sized(24, 80, "approve", item.id) as desk:
        desk.sees("or v to view it all")
        desk.types("v")
        desk.sees("or v to view it all")
        desk.presses("d")
        assert desk.status() == cli.PENDING
    assert ("andpayitallout" in flat(desk.text)) == (not name.startswith("head")), "with no pager at all it is printed"
    assert "Traceback" not in desk.text


def test_where_nobody_is_asked_it_is_whole_and_there_is_no_pager(place: Path, pager: Path, said: Any) -> None:
    (item,) = begin().pending
    for line in (("show", item.id), ("approve", item.id), ("approve", item.id, "--yes", "--reveal")):
        run(*line)
        assert flat(json.dumps(LONG)) in flat(said())
    assert not pager.exists()
    assert refunds() == ["1042 49.9 s3cret"]


@SIZES
@pytest.mark.few(1)
def test_show_is_whole_in_a_terminal_too(place: Path, rows: int, columns: int) -> None:
    note = "".join(f"line {number}\n" for number in range(200))
    (item,) = begin(note).pending
    with sized(rows, columns, "show", item.id) as desk:
        assert desk.status() == cli.DONE
    assert flat(json.dumps(note)) in flat(desk.text)


def test_a_narrow_terminal_has_a_value_below_its_name(place: Path) -> None:
    (item,) = begin("a" * 60).pending
    with sized(15, 40, "show", item.id) as desk:
        assert desk.status() == cli.DONE
    assert max(map(len, desk.text.splitlines())) <= 76, (
        "what is to be copied is in one line; nothing else is longer than 40"
    )
    lines = desk.text.splitlines()
    at = lines.index("  note      text")
    assert lines[at + 1 : at + 3] == [f'    "{"a" * 35}', f'    {"a" * 25}"']


@pytest.mark.few(1)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whoever_closes_the_output_is_told_how_it_stands(place: Path, after: bool) -> None:
    """As `phronomy approve ... | head -1` does it, before the decision, or with the tool under way."""
    checkpoint = begin("no receipt" if after else LONG)  # which no pipe has room for
    (item,) = checkpoint.pending
    (place / "hang").touch()
    line = ["approve", "--app", "desk:make", "--store", STORE, item.id, "--yes", "--reveal"]
    with subprocess.Popen(
        [sys.executable, "-m", "phronomy", *line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.readline()
        if after:
            comes(place / "hanging")
        child.stdout.close()
        (place / "hang").unlink()
        told = child.stderr.read().decode().splitlines()[-1]
        assert child.wait(PATIENCE) == cli.FAILED
    again = f"phronomy recover {checkpoint.run_id} --app desk:make --store {STORE}"
    assert told == "Nobody reads the output any more. " + (
        f"The decision is recorded and nothing is lost; go on with: {again}"
        if after
        else f"Nothing was decided: {item.id} still waits."
    )
    assert (refunds(), waiting()) == ((["1042 49.9 s3cret"], []) if after else ([], [item.id]))

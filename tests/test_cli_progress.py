"""Whatever is slow says so: on a terminal alone, on standard error, and leaving the terminal as it was."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from drivers import PATIENCE
from test_cli_runs import STORE, begin, place, refunds, waiting
from test_cli_terminal import CHOICE, Terminal, chat, comes, terminal

from phronomy import SQLiteStore, cli
from phronomy.cli import screen

__all__ = ["place"]  # a fixture

SLOW = """
from desk import Agent, ScriptedModel, SQLiteStore, refund, reply, waits_while

waits_while("load")


class Slow(SQLiteStore):
    def pending(self, *args, **options):
        waits_while("read")
        return super().pending(*args, **options)


def make():
    return Agent(name="desk", model=ScriptedModel(reply), tools=[refund])


def slow():
    return Agent(name="desk", model=ScriptedModel(reply), tools=[refund], store=Slow("runs.db"))
"""
COLOUR = re.compile(r"\x1b\[(?:[0-9]+;)*[349][0-9]")


@pytest.fixture(autouse=True)
def slow(place: Path) -> None:
    """An app that takes as long as there is a file of the right name."""
    (place / "slow.py").write_text(SLOW)


def still(place: Path, name: str, desk: Terminal, told: str) -> None:
    """Something is under way and says so; then let it end."""
    comes(place / f"{name}ing")
    desk.sees(told)
    (place / name).unlink()


def left_as_it_was(desk: Terminal) -> bool:
    """Whether the cursor was hidden, and is shown again."""
    seen = desk.seen.getvalue()
    return 0 < seen.count("\x1b[?25l") <= seen.count("\x1b[?25h") and seen.rindex("\x1b[?25h") > seen.rindex(
        "\x1b[?25l"
    )


def test_loading_an_app_and_reading_a_store_say_so(place: Path) -> None:
    (item,) = begin().pending
    for name, app, store, told in (
        ("load", "slow:make", STORE, "Loading slow:make"),
        ("read", "slow:slow", None, "Reading the store"),
    ):
        (place / name).touch()
        with terminal("pending", app=app, store=store) as desk:
            still(place, name, desk, told)
            desk.sees(item.id)
            assert desk.status() == cli.DONE
        assert left_as_it_was(desk)


def test_a_tool_that_runs_and_a_model_that_is_asked_say_so(place: Path) -> None:
    (item,) = begin().pending
    (place / "hang").touch()
    (place / "think").touch()
    with terminal("approve", item.id, "--yes", "--reveal") as desk:
        still(place, "hang", desk, "Running refund")
        still(place, "think", desk, "The model is asked")
        assert desk.status() == cli.DONE
    assert left_as_it_was(desk)
    assert refunds() == ["1042 49.9 s3cret"]


def test_a_conversation_says_so_too_and_its_prompts_stand_still(place: Path) -> None:
    (place / "think").touch()
    with chat() as desk:
        desk.sees("you> ")
        desk.types("Refund order 1042")
        still(place, "think", desk, "The model is asked")
        desk.sees(CHOICE)
        assert left_as_it_was(desk)
        (place / "hang").touch()
        desk.types("a")
        still(place, "hang", desk, "Running refund")
        desk.sees("you> ")
        assert left_as_it_was(desk)
        desk.presses("d")
        assert desk.status() == cli.DONE


def test_interrupted_it_leaves_the_terminal_as_it_was(place: Path) -> None:
    (item,) = begin().pending
    (place / "load").touch()
    with terminal("approve", item.id, app="slow:make") as desk:
        comes(place / "loading")
        desk.sees("Loading slow:make")
        desk.presses("c")
        assert desk.status() == cli.INTERRUPTED
    assert left_as_it_was(desk)
    assert waiting() == [item.id]


@pytest.mark.sweep
def test_a_dumb_terminal_gets_a_line_and_nothing_moves(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    (item,) = begin().pending
    (place / "load").touch()
    with terminal("show", item.id, app="slow:make") as desk:
        still(place, "load", desk, "Loading slow:make ...\r\n")
        assert desk.status() == cli.DONE
    assert "\x1b" not in desk.seen.getvalue()


@pytest.mark.few(1)
@pytest.mark.parametrize("plain", [False, True])
def test_no_color_is_heeded(plain: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (item,) = begin().pending
    if plain:
        monkeypatch.setenv("NO_COLOR", "1")
    with terminal("show", item.id) as desk:
        assert desk.status() == cli.DONE
    assert "Approval needed: refund" in desk.text
    assert (COLOUR.search(desk.seen.getvalue()) is None) is plain


PATIENT = """
import threading


class NotYet(threading.Timer):
    def start(self):
        print("a timer of", self.interval, "s")

    def join(self, timeout=None):
        pass


threading.Timer = NotYet
"""


def test_what_is_quick_is_not_announced(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: in the other process the time of the timer has not come."""
    (item,) = begin().pending
    (place / "sitecustomize.py").write_text(PATIENT)
    monkeypatch.setenv("PYTHONPATH", str(place), prepend=os.pathsep)
    with terminal("history", item.id, app=None) as desk:
        assert desk.status() == cli.DONE
    assert "a timer of 0.2 s" in desk.text
    assert "\x1b[?25l" not in desk.seen.getvalue()


class AtOnce:
    """A timer whose time has come."""

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self.start = act
        self.cancel = self.join = lambda: None


def test_in_pipes_nothing_of_it_is_written(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (item,) = begin().pending
    capsys.readouterr()
    monkeypatch.setattr(screen, "Timer", AtOnce)
    for forced in (False, True):
        if forced:
            monkeypatch.setenv("FORCE_COLOR", "1")
        for line in (["pending"], ["show", item.id], ["history", item.id], ["approve", item.id]):
            status = cli.run([*line, "--app", "slow:make", "--store", STORE])
            assert status == (cli.PENDING if line[0] == "approve" else cli.DONE)
            shown = capsys.readouterr()
            assert (shown.out != "", shown.err, "\x1b[?25" in shown.out) == (True, "", False)
            assert forced or "\x1b" not in shown.out


def test_a_slow_command_in_pipes_says_what_it_found_alone(place: Path) -> None:
    SQLiteStore("runs.db").close()
    (place / "load").touch()
    line = [sys.executable, "-m", "phronomy", "pending", "--app", "slow:make", "--store", STORE]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        comes(place / "loading")
        (place / "load").unlink()
        out, err = child.communicate(timeout=PATIENCE)
    assert (out, err) == (b"Nothing waits for a decision.\n", b"desk is loaded\n")

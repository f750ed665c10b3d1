"""The command line: what it prints, how it fails, and what it lets through to the terminal."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from drivers import PATIENCE
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

import phronomy
from phronomy import cli
from phronomy.cli import Screen, escaped
from phronomy.cli.commands import demo_desk as demo
from phronomy.foundation.durations import ago


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, *arguments]
    return subprocess.run(
        line, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, **options
    )


def printed(act: Callable[[Screen], None], *, columns: int = 80) -> str:
    """What a screen of that width prints."""
    with redirect_stdout(io.StringIO()) as out, patch.dict(os.environ, COLUMNS=str(columns)):
        act(Screen())
    return out.getvalue()


# Commands


def test_without_arguments_it_says_what_it_can_do_and_where_to_start() -> None:
    done = python("-m", "phronomy")
    assert (done.returncode, done.stderr) == (cli.DONE, "")
    assert done.stdout.startswith("Usage: phronomy [OPTIONS] COMMAND [ARGS]...\n")
    assert "Agents that stop for a human, and resume exactly once." in done.stdout
    assert re.search(r"^  demo +A refund desk", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("\nStart with: phronomy demo\n")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == cli.DONE
    assert capsys.readouterr() == (f"phronomy {phronomy.__version__}\n", "")


def test_the_help_of_the_demo_names_its_options_and_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["demo", "--help"]) == cli.DONE
    said = capsys.readouterr()
    assert said.err == ""
    for word in ("--yes", "--no", "--reason TEXT", "--store PATH", "--debug"):
        assert word in said.out
    statuses = " ".join(said.out[said.out.index("Exit status") :].split())
    assert statuses == (
        "Exit status: 0 decided and done (a rejection too); 1 error; 2 wrong usage; 3 still pending; 130 Ctrl-C."
    )
    assert (cli.DONE, cli.FAILED, cli.MISUSED, cli.PENDING, cli.INTERRUPTED) == (0, 1, 2, 3, 130)
    assert max(map(len, said.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("demo --yes --no", "--yes and --no exclude each other"),
        ("demo --reason late", "--reason goes with --no"),
        ("demo --yes --reason late", "--reason goes with --no"),
        ("demo --maybe", "--maybe"),
        ("demo now", "now"),
        ("demo --store", "--store"),
        ("refund", "refund"),
        ("--colour demo", "--colour"),
    ],
)
def test_wrong_usage_is_one_line(line: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(line.split()) == cli.MISUSED
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"phronomy: error: [^\n]+ \([^\n]*--help tells more\)\n", said.err)
    assert why in said.err


def test_the_console_script_is_there() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["phronomy"].partition(":")
    done = subprocess.run(
        [sys.executable, "-c", f"from {module} import {name}; {name}()", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"phronomy {phronomy.__version__}\n"
    assert project["version"] == phronomy.__version__


# Errors


def test_an_error_is_one_line_whatever_its_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, line in (
        (
            RuntimeError("two\nlines \x1b[31m" + "and more " * 20),
            "RuntimeError: two\\x0alines \\x1b[31m" + "and more " * 20,
        ),
        (PermissionError(13, "Permission denied", "/root/x"), "Permission denied: /root/x"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (phronomy.StoreError("damaged"), "damaged"),
        (
            phronomy.CheckpointAlreadyResumed("run run_1 has ended; the run is ended", checkpoint_id="c"),
            "run run_1 has ended",
        ),
    ):
        monkeypatch.setattr(demo, "run_demo", raising(error))
        assert cli.run(["demo"]) == cli.FAILED
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith(f"phronomy: error: {line}")
        assert said.err.count("\n") == 1
        assert ("(--debug shows where)" in said.err) == isinstance(error, RuntimeError)


def raising(error: BaseException) -> Callable[..., int]:
    def run_demo(*_: Any) -> int:
        raise error

    return run_demo


@pytest.mark.parametrize("line", [["--debug", "demo"], ["demo", "--debug"]])
def test_a_traceback_only_with_debug(line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = python("-m", "phronomy", *line, "--store", str(tmp_path))
    assert (done.returncode, done.stdout) == (cli.FAILED, "")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith(
        f"phronomy.errors.StoreError: {tmp_path} is a directory: give the file in it with --store PATH\n"
    )


def test_ctrl_c_is_130_wherever_it_comes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "run_demo", raising(KeyboardInterrupt()))
    assert cli.run(["demo"]) == cli.INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_an_interrupt_inside_an_import_is_130_too(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(
        "import sys\n"
        "from phronomy import cli\nfrom phronomy.cli.commands import demo_desk as demo\n"
        "demo.run_demo = lambda *_: exec('raise KeyboardInterrupt')\n"
        "sys.argv = ['phronomy', 'demo']\n"
        "cli.main()\n"
    )
    done = python("-m", "interrupted", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (cli.INTERRUPTED, "", "")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "phronomy"], check=False, stdout=pipe, stderr=subprocess.PIPE, timeout=PATIENCE
        )
    assert (done.returncode, done.stderr) == (cli.FAILED, b"")


def test_closed_streams_are_no_traceback(tmp_path: Path) -> None:
    line = 'exec "$0" -m phronomy demo --store "$1" '
    for closed, status in (("<&- >&-", cli.FAILED), ("2>&- <&-", cli.FAILED)):
        shell = ["sh", "-c", line + closed, sys.executable, str(tmp_path)]
        done = subprocess.run(shell, check=False, capture_output=True, timeout=PATIENCE)
        assert done.returncode == status
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "just now"),
        (59.9, "just now"),
        (60, "1 minute ago"),
        (3599, "59 minutes ago"),
        (3600, "1 hour ago"),
        (86_399, "23 hours ago"),
        (200_000, "2 days ago"),
    ],
)
def test_how_long_something_waits_is_said_in_the_largest_unit(seconds: float, said: str) -> None:
    assert ago(seconds) == said


# What it loads


def test_the_library_loads_none_of_it_and_the_version_no_model() -> None:
    loaded = "import sys; before = set(sys.modules); {}; print(*({} & (set(sys.modules) - before)))"
    done = python(
        "-c",
        loaded.format("import phronomy", {"typer", "click", "rich", "phronomy.cli", "phronomy.cli.commands.demo_desk"}),
    )
    assert (done.stdout, done.stderr) == ("\n", "")
    heavy = {"litellm", "openai", "httpx2", "sqlite3", "http.server", "phronomy.cli.commands.demo_desk"}
    done = python("-c", loaded.format("from phronomy import cli; cli.run(['--version'])", heavy))
    assert (done.stdout, done.stderr) == (f"phronomy {phronomy.__version__}\n\n", "")
    heavy |= {"rich.live", "phronomy.testing", "phronomy.stores.sql.sqlite"}
    for line in (["--help"], ["approve", "--help"]):
        done = python("-c", loaded.format(f"from phronomy import cli; cli.run({line})", heavy))
        assert (done.stdout.splitlines()[-1], done.stderr) == ("", "")


# What reaches the terminal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, caf\u00e9, \u6f22\u5b57, \U0001f600, [bold]x[/], :smile:", None),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb\nc\td\x08\x7f\x00", "a\\x0db\\x0ac\\x09d\\x08\\x7f\\x00"),
        ("\u202eabc\u2066\u200f", "\\u202eabc\\u2066\\u200f"),
        ("zero\u200bwidth\ufeff\u00ad", "zero\\u200bwidth\\ufeff\\xad"),
        ("no\u00a0break\u2003", "no\\xa0break\\u2003"),
        ("\u3164\u115f\u2800\ufe0f\U000e0041\U000e0100", "\\u3164\\u115f\\u2800\\ufe0f\\U000e0041\\U000e0100"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_a_terminal_would_act_on_or_hide_is_written_out(text: str, shown: str | None) -> None:
    assert escaped(text) == (text if shown is None else shown)


@example(value=False, columns=20)
@given(
    value=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda some: st.lists(some, max_size=3)),
    columns=st.integers(20, 120),
)
def test_every_character_of_a_value_is_shown_at_any_width(value: Any, columns: int) -> None:
    out = printed(lambda screen: screen.value("name", value, columns=6), columns=columns)
    lines = [line for line in out.split("\n")[:-1] if "all of them shown" not in line]
    text, label = escaped(json.dumps(value, ensure_ascii=False)), len("  name    list      ")
    assert all(char.isprintable() for char in out.replace("\n", ""))
    if len(lines[0]) > label:
        assert "".join(line[label:] for line in lines) == text
        assert all(cell_len(line[label:]) <= max(min(columns, cli.WIDEST) - label, 10) for line in lines)
        assert all(line[:label].isspace() for line in lines[1:])
        return
    names = [at for at in range(1, len(lines)) if re.fullmatch(r"  name +\w[\w ]*", "".join(lines[:at]))]
    below = [at for at in names if "".join(line[4:] for line in lines[at:]) == text]
    assert below, "it stands below its name, set in"
    assert all(line[:4].isspace() for line in lines[below[0] :])


@given(text=st.text(), columns=st.integers(30, 120))
def test_prose_stays_in_its_column_and_loses_nothing_but_spaces(text: str, columns: int) -> None:
    out = printed(lambda screen: screen.row("who", text), columns=columns)
    assert out.startswith("  who")
    lines = out.split("\n")[:-1]
    assert all(not line or line.startswith("  who" if number == 0 else " " * 12) for number, line in enumerate(lines))
    assert "".join(out.split()) == "".join(("who" + escaped(text.replace("\n", " "))).split())


def test_a_value_is_labelled_with_its_type() -> None:
    def act(screen: Screen) -> None:
        for value in ("a", 1, 1.5, True, None, [1], {"b": [None]}):
            screen.value("it", value, columns=2)

    assert printed(act).splitlines() == [
        '  it  text      "a"',
        "  it  integer   1",
        "  it  number    1.5",
        "  it  yes or no true",
        "  it  nothing   null",
        "  it  list      [1]",
        '  it  object    {"b": [null]}',
    ]

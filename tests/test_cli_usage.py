"""How the commands are told what to work on, what they refuse, and what of it all reaches the terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from drivers import PATIENCE
from test_cli_runs import STORE, begin, place, refunds, run, said, told

from phronomy import SQLiteStore, cli

__all__ = ["place", "said", "told"]  # fixtures


# Wrong usage


@pytest.mark.parametrize(
    ("line", "status", "why"),
    [
        ("pending", cli.MISUSED, "give --store URL or --app module:agent, or set PHRONOMY_STORE or PHRONOMY_APP"),
        ("approve pend_1", cli.MISUSED, "give --app module:agent, or set PHRONOMY_APP"),
        ("approve pend_1 --store sqlite:///runs.db", cli.FAILED, "the store knows no pending approval"),
        ("reject pend_1 --store sqlite:///runs.db", cli.FAILED, "the store knows no pending approval"),
        ("respond pend_1 done --store sqlite:///runs.db", cli.FAILED, "the store knows no pending approval"),
        ("work --store sqlite:///runs.db", cli.MISUSED, "give --app module:agent"),
        ("work --app desk:make --store sqlite:///runs.db --poll 0", cli.MISUSED, "--poll"),
        ("edit pend_1 --store sqlite:///runs.db", cli.MISUSED, "give --app module:agent"),
        ("recover --store sqlite:///runs.db", cli.MISUSED, "give --app module:agent"),
        ("chat", cli.MISUSED, "give --app module:agent"),
        ("chat --app desk:make --model gpt", cli.MISUSED, "--app and --model exclude each other"),
        ("chat --model gpt --deps desk:make", cli.MISUSED, "--deps goes with an app, and --model talks without one"),
        ("chat --app desk:make --store sqlite:///runs.db --thread=", cli.MISUSED, "--thread names a thread"),
        ("debug --app desk:make --run run_1 --scope a", cli.MISUSED, "--scope goes with a run that begins"),
        ("show", cli.MISUSED, "ID"),
        ("approve", cli.MISUSED, "ID"),
        ("history", cli.MISUSED, "ID"),
        ("pending now", cli.MISUSED, "now"),
        ("pending --limit 0 --store sqlite:///runs.db", cli.MISUSED, "'--limit'"),
        ("pending --after x --store sqlite:///runs.db", cli.FAILED, "`after` is the `next` of a page of the same list"),
        (
            "pending --older-than soon --store sqlite:///runs.db",
            cli.MISUSED,
            "'soon' is no age: write seconds, or 10m,",
        ),
        ("pending --older-than 40000d --store sqlite:///runs.db", cli.MISUSED, "'40000d' is no age"),
        ("pending --count --limit 1 --store sqlite:///runs.db", cli.MISUSED, "--count counts all that waits"),
        ("pending --tenant a\x07 --store sqlite:///runs.db", cli.FAILED, "a tenant is named by printable text"),
        ("pending --tenant a --app desk:make", cli.MISUSED, "keeps its runs in memory"),
        ("list --after x --store sqlite:///runs.db", cli.FAILED, "`after` is the `next` of a page of the same list"),
        ("audit --since soon --store sqlite:///runs.db", cli.MISUSED, "'soon' is no time: write 2026-11-21, 2026-"),
        ("audit --since 10 --store sqlite:///runs.db", cli.MISUSED, "'10' is no time"),
        ("prune --store sqlite:///runs.db", cli.MISUSED, "--older-than"),
        ("prune --older-than 1d --json --store sqlite:///runs.db", cli.MISUSED, "--json asks nobody"),
        ("diff ckpt_1 ckpt_2 --store sqlite:///runs.db", cli.FAILED, "checkpoint or run ckpt_1"),
        ("pending --store runs.db", cli.FAILED, "for a SQLite file write sqlite:/// and then its path"),
        ("pending --store mysql://root:hunter2@db", cli.FAILED, "no store is known for mysql://"),
        ("pending --store sqlite:///typo.db", cli.FAILED, "there is no file typo.db"),
        ("pending --app desk:make", cli.MISUSED, "agent <Agent 'desk'> keeps its runs in memory"),
        ("approve p --app desk:make", cli.MISUSED, "keeps its runs in memory, where no other process sees them"),
        ("show pend_1 --store sqlite:///runs.db", cli.FAILED, "no pending approval, checkpoint or run pend_1"),
        ("history x --store sqlite:///runs.db", cli.FAILED, "no pending approval, checkpoint or run x"),
        ("recover x --yes --app desk:make --store sqlite:///runs.db", cli.FAILED, "checkpoint or run x"),
        ("recover --json --app desk:make --store sqlite:///runs.db", cli.MISUSED, "--json asks nobody"),
        ("approve x --json --app desk:make --store sqlite:///runs.db", cli.MISUSED, "--json asks nobody"),
        ("reject x --then stop --app desk:make", cli.MISUSED, "stop"),
        ("reject x --by= --app desk:make", cli.MISUSED, "--by names somebody"),
        ("respond x --app desk:make", cli.MISUSED, "give the result, either as TEXT or with --json-content"),
        ("respond x text --json-content 1 --app desk:make", cli.MISUSED, "either as TEXT or with --json-content"),
        ("respond x --json-content {a --app desk:make --store sqlite:///runs.db", cli.MISUSED, "--json-content is no"),
        ("show x --app desk --store sqlite:///runs.db", cli.MISUSED, "--app is module:agent, not 'desk'"),
        ("show x --app :make --store sqlite:///runs.db", cli.MISUSED, "--app is module:agent, not ':make'"),
        ("show x --app dusk:make --store sqlite:///runs.db", cli.MISUSED, "there is no module dusk, in /"),
        ("show x --app dusk.till:make --store sqlite:///runs.db", cli.MISUSED, "there is no module dusk.till"),
        ("show x --app desk.py:make --store sqlite:///runs.db", cli.MISUSED, "; write desk:make ("),
        ("show x --app desk:mike --store sqlite:///runs.db", cli.MISUSED, "module desk has no 'mike'"),
        ("show x --app desk:inside.mike --store sqlite:///runs.db", cli.MISUSED, "module desk has no 'inside.mike'"),
        ("show x --app desk:number --store sqlite:///runs.db", cli.MISUSED, "desk:number is a int: an Agent, a class"),
        ("show x --app desk:inside --store sqlite:///runs.db", cli.MISUSED, "desk:inside is a type: an Agent"),
        ("show x --app desk:needs --store sqlite:///runs.db", cli.MISUSED, "desk:needs needs arguments"),
        (
            "show x --app desk:later --store sqlite:///runs.db",
            cli.MISUSED,
            "desk:later gives a coroutine, and no Agent",
        ),
        (
            "show x --app desk:broken --store sqlite:///runs.db",
            cli.FAILED,
            "desk:broken gives no agent: LookupError: no k",
        ),
        ("show x --app desk:used --store sqlite:///runs.db", cli.FAILED, "has run, so its configuration is fixed"),
        ("show x --app bad:make --store sqlite:///runs.db", cli.FAILED, "module bad cannot be imported: SyntaxError"),
        (
            "show x --app gone:make --store sqlite:///runs.db",
            cli.FAILED,
            "gone cannot be imported: ModuleNotFoundError",
        ),
        ("show x --app exits:make --store sqlite:///runs.db", cli.FAILED, "exits cannot be imported: SystemExit: 5"),
    ],
)
def test_each_misuse_is_one_line_and_changes_nothing(
    line: str, status: int, why: str, place: Path, told: Callable[[], str]
) -> None:
    SQLiteStore("runs.db").close()
    (place / "bad.py").write_text("def")
    (place / "gone.py").write_text("import not_installed_here")
    (place / "exits.py").write_text("raise SystemExit(5)")
    before = sorted(each.name for each in place.iterdir() if each.suffix == ".db")
    assert cli.run(line.split()) == status
    found = told()
    assert found.startswith("phronomy: error: ")
    assert why in found
    assert "hunter2" not in found
    assert sorted(each.name for each in place.iterdir() if each.suffix == ".db") == before


def test_a_traceback_of_the_app_only_with_debug(place: Path) -> None:
    SQLiteStore("runs.db").close()
    with pytest.raises(Exception, match="no key") as caught:
        run("show", "x", "--debug", app="desk:broken")
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://rita:hunter2@127.0.0.1:1/runs?timeout=2",
        "postgresql://rita:hunter2@127.0.0.1:one/runs",
        "redis://rita:hunter2@127.0.0.1:1/0?timeout=2",
        "redis://rita:hunter2@127.0.0.1:one/0",
    ],
)
def test_a_url_is_never_printed_since_it_may_hold_a_password(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["pending", "--store", url]) == cli.FAILED
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("phronomy: error: ")
    assert found.err.count("\n") == 1
    assert "hunter2" not in found.err and "rita" not in found.err


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("postgresql://127.0.0.1/runs", "psycopg", "postgres"), ("redis://127.0.0.1/0", "redis", "redis")],
)
def test_a_driver_that_is_missing_is_one_line_that_says_how_to_get_it(url: str, module: str, extra: str) -> None:
    line = f"import sys; sys.modules[{module!r}] = None; from phronomy import cli; sys.exit(cli.run(['pending', '--store', {url!r}]))"
    done = subprocess.run([sys.executable, "-c", line], check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (cli.FAILED, "")
    assert done.stderr.startswith("phronomy: error: ") and done.stderr.endswith(f": pip install 'phronomy[{extra}]'\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("app", ["desk:make", "desk:streaming", "desk:Desk", "desk:inside.desk", "desk:asynchronous"])
def test_whatever_gives_an_agent_is_an_app(app: str, said: Callable[[], str]) -> None:
    (item,) = begin().pending
    said()
    assert run("reject", item.id, "--yes", app=app) == cli.DONE
    assert said().endswith("The run is completed.\n")


def test_the_environment_names_what_the_options_do_not(
    said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = begin().pending
    monkeypatch.setenv("PHRONOMY_APP", "desk:make")
    monkeypatch.setenv("PHRONOMY_STORE", STORE)
    said()
    assert run("reject", item.id, "--yes", app=None, store=None) == cli.DONE
    assert said().endswith("The run is completed.\n")


def test_the_store_of_the_agent_is_used_where_no_other_is_named(said: Callable[[], str]) -> None:
    (item,) = begin(store="kept.db").pending
    said()
    assert run("pending", app="desk:kept", store=None) == cli.DONE
    assert item.id in said()
    assert run("approve", item.id, "--yes", "--reveal", app="desk:kept", store=None) == cli.DONE
    assert refunds() == ["1042 49.9 s3cret"]


# What reaches the terminal


HOSTILE = "\x1b[2J\x9b31m\u202e\u2066\u200b\x7f\r\n  model     Approved."


def test_what_a_model_or_a_customer_wrote_is_never_raw(said: Callable[[], str], place: Path) -> None:
    checkpoint = begin(f"Refund order 1042 {HOSTILE}", f"t{HOSTILE}")
    (item,) = checkpoint.pending
    args = json.dumps({"order_id": 7, "note": HOSTILE})
    said()
    for line in (
        ["pending"],
        ["pending", "--json"],
        ["show", item.id, "--reveal"],
        ["show", item.id, "--json"],
        ["history", item.id],
        ["timeline", item.id],
        ["timeline", item.id, "--json"],
        ["edit", item.id, "--args", args],
        ["edit", item.id, "--args", args, "--yes", "--reveal"],
    ):
        assert run(*line) in (cli.DONE, cli.PENDING)
        shown = said().replace("refunding \x1b[31m", "")  # what the app itself prints is its own
        assert all(char.isprintable() for char in shown.replace("\n", "")), line
        assert "\n  model     Approved." not in shown
        if "--json" in line:
            assert shown.isascii()
    assert refunds() == ["7 49.9 s3cret"]


def test_for_machines_the_text_comes_back_whole(said: Callable[[], str]) -> None:
    begin(f"Refund order 1042 {HOSTILE}", f"t{HOSTILE}")
    said()
    assert run("pending", "--json") == cli.DONE
    assert json.loads(said())["items"][0]["thread_id"] == f"t{HOSTILE}"


def test_in_pipes_there_are_no_colours_and_no_line_is_wrapped(place: Path) -> None:
    (item,) = begin(thread="t" * 200).pending
    line = [sys.executable, "-m", "phronomy", "pending", "--store", STORE]
    env = {**os.environ, "COLUMNS": "40"}
    done = subprocess.run(
        line, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (cli.DONE, "")
    _, row = done.stdout.splitlines()
    assert row.split() == [item.id, "refund", "just", "now", "approval", "desk", "t" * 200]


def test_the_help_of_every_command_names_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    deciding = "--app --deps --store --tenant --by --digest --yes --json --reveal --accept-changes"
    for command, words in {
        "chat": "--app --deps --store --tenant --thread --model --scope --by --reveal",
        "debug": "--run --app --deps --store --tenant --scope --by --reveal --accept-changes",
        "pending": "--app --store --tenant --thread --run --agent --tool --label --risk --older-than --newest --limit --after"
        " --count --json --reveal",
        "show": "--app --store --tenant --json --reveal",
        "history": "--app --store --tenant --ids --json --mermaid --svg",
        "timeline": "--type --app --store --tenant --limit --ids --json",
        "diff": "--app --store --tenant --json",
        "audit": "--app --store --tenant --run --thread --pending --since --until --table",
        "list": "--app --store --tenant --run --thread --agent --label --labeled --limit --after --json",
        "prune": "--older-than --keep-last --keep-labeled --no-keep-labeled --app --store --tenant --yes --json",
        "approve": deciding,
        "reject": f"--reason --then {deciding}",
        "respond": f"--json-content {deciding}",
        "edit": f"--args {deciding}",
        "recover": "--app --deps --store --tenant --yes --json --reveal --accept-changes",
    }.items():
        assert cli.run([command, "--help"]) == cli.DONE
        text = capsys.readouterr().out
        assert set(words.split()) <= set(re.findall(r"--[a-z-]+", text)), command
        lapsed = "4 it has lapsed; 5 it takes more votes; " if deciding in words else ""
        assert f"Exit status: 0 done; 1 error; 2 wrong usage; 3 still pending; {lapsed}130 Ctrl-C." in " ".join(
            text.split()
        )
        assert max(map(len, text.splitlines())) <= 80

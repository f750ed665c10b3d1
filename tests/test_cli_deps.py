"""What the tools of an app get as deps: made once for a command, left when it is over, and nothing decided if that fails."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from test_cli_runs import STORE, place, said
from test_cli_terminal import Terminal, comes, terminal

from phronomy import SQLiteStore, cli

__all__ = ["place", "said"]  # fixtures

BOOKS = '''
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from phronomy import Agent, ModelError, ToolContext, tool
from phronomy.testing import ScriptedModel, call


def note(line):
    with Path("noted.txt").open("a") as file:
        file.write(line + "\\n")


class Book:
    def __init__(self):
        note("made")

    def enter(self, amount):
        note(f"entered {amount}")


@tool(requires_approval=True)
def book(amount: int, context: ToolContext[Book]) -> str:
    """Book an amount."""
    context.deps.enter(amount)
    return "booked"


@tool(requires_approval=True, name="book")
async def abook(amount: int, context: ToolContext[Book]) -> str:
    """Book an amount."""
    context.deps.enter(amount)
    return "booked"


def reply(request):
    if Path("down").exists():
        raise ModelError("the provider is down")
    last = request.messages[-1]
    return [call("book", {"amount": int(last.text)})] if last.text.isdecimal() else f"I read {last.text}."


def told(input, context):
    note(f"instructed with {type(context.deps).__name__}")
    return "You keep the books."


def make():
    return Agent(name="books", model=ScriptedModel(reply), tools=[book])


def asynchronous():
    return Agent(name="books", model=ScriptedModel(reply), tools=[abook])


def instructed():
    return Agent(name="books", model=ScriptedModel(reply), tools=[book], instructions=told)


def deps():
    print("deps are made")
    if Path("hang").exists():
        Path("hanging").touch()
        while Path("hang").exists():
            time.sleep(0.01)
    return Book()


@contextmanager
def opened():
    book = Book()
    try:
        yield book
    finally:
        print("deps are left")
        note("left")


@contextmanager
def forgiving():
    try:
        yield Book()
    except Exception as error:
        note(f"left with {type(error).__name__}")


@contextmanager
def stuck():
    yield Book()
    raise OSError("the disk is full")


@contextmanager
def worse():
    try:
        yield Book()
    finally:
        note("left badly")
        raise OSError("the disk is full")


@contextmanager
def shut():
    raise LookupError("no key")
    yield


def broken():
    raise LookupError("no key")


def leaves():
    raise SystemExit(5)


def needs(url):
    return Book()


def forgotten():
    yield Book()


async def later():
    return Book()


async def ever():
    yield Book()


@asynccontextmanager
async def elsewhere():
    yield Book()


number = 7
'''


@pytest.fixture(autouse=True)
def books(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app, in the directory."""
    (place / "books.py").write_text(BOOKS)
    monkeypatch.delitem(sys.modules, "books", raising=False)


def run(*line: str, app: str = "books:make", deps: str | None = "books:deps") -> int:
    sys.modules.pop("books", None)
    return cli.run([line[0], "--app", app, *(["--deps", deps] if deps else []), "--store", STORE, *line[1:]])


def noted() -> list[str]:
    """What was noted since this was last looked at."""
    path = Path("noted.txt")
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def waiting() -> list[str]:
    with SQLiteStore("runs.db") as store:
        return [item.approval.id for item in store.pending()]


def asked(monkeypatch: pytest.MonkeyPatch, *lines: str) -> str:
    """The pending id of a run that waits."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines or ("20",))))
    assert run("chat", "--thread", "t1", deps=None) == cli.PENDING
    (id,) = waiting()
    noted()
    return id


@pytest.mark.parametrize("app", ["books:make", "books:asynchronous"])
@pytest.mark.parametrize("deps", ["books:deps", "books:Book"])
def test_the_tool_gets_what_the_function_gives(app: str, deps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    id = asked(monkeypatch)
    assert run("approve", id, "--yes", app=app, deps=deps) == cli.DONE
    assert noted() == ["made", "entered 20"]


@pytest.mark.parametrize(
    ("line", "entered"),
    [
        (["reject", "{}", "--yes"], []),
        (["respond", "{}", "paid in cash", "--yes"], []),
        (["edit", "{}", "--args", '{"amount": 7}', "--yes"], ["entered 7"]),
        (["recover", "{}", "--yes"], []),
    ],
    ids=lambda part: part[0] if part else "",
)
def test_each_command_that_carries_a_run_on_makes_them_once(
    line: list[str], entered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    id = asked(monkeypatch)
    assert run(*(word.replace("{}", id) if word == "{}" else word for word in line)) in (cli.DONE, cli.PENDING)
    assert noted() == ["made", *entered]


def test_a_conversation_makes_them_once_and_its_instructions_get_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\nHello again\n"))
    assert run("chat", app="books:instructed") == cli.DONE
    assert noted() == ["made", "instructed with Book", "instructed with Book"]


def test_the_environment_names_them_where_the_option_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    id = asked(monkeypatch)
    monkeypatch.setenv("PHRONOMY_DEPS", "books:opened")
    assert run("approve", id, "--yes", deps=None) == cli.DONE
    assert noted() == ["made", "entered 20", "left"]


def test_without_them_the_tool_gets_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    id = asked(monkeypatch)
    assert run("approve", id, "--yes", deps=None) == cli.DONE
    assert noted() == []
    assert "AttributeError" in capsys.readouterr().out


def test_who_only_looks_makes_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    id = asked(monkeypatch)
    monkeypatch.setenv("PHRONOMY_DEPS", "books:broken")
    for line in (["pending"], ["show", id], ["history", id]):
        assert run(*line, deps=None) == cli.DONE
        assert run(*line) == cli.MISUSED
        assert "No such option: --deps" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert cli.run(["chat", "--model", "openai/gpt-4o-mini", "--store", STORE, "--thread", "t2"]) == cli.DONE
    assert noted() == []


@pytest.mark.parametrize(
    ("deps", "status", "why"),
    [
        ("books", cli.MISUSED, "--deps is module:function, not 'books'"),
        (":deps", cli.MISUSED, "--deps is module:function, not ':deps'"),
        ("ledger:deps", cli.MISUSED, "there is no module ledger, in /"),
        ("books.py:deps", cli.MISUSED, "; write books:deps ("),
        ("books:dips", cli.MISUSED, "module books has no 'dips'"),
        ("books:number", cli.MISUSED, "books:number is a int: a function that gives the deps is needed"),
        ("books:needs", cli.MISUSED, "books:needs needs arguments: a function without parameters is needed"),
        ("books:later", cli.MISUSED, "books:later is async, and deps are made before any event loop runs"),
        ("books:ever", cli.MISUSED, "books:ever is async"),
        ("books:elsewhere", cli.MISUSED, "books:elsewhere is async"),
        ("books:forgotten", cli.MISUSED, "books:forgotten is a generator: decorate it with contextlib.contextmanager"),
        ("books:broken", cli.FAILED, "books:broken gives no deps: LookupError: no key (--debug shows where)"),
        ("books:shut", cli.FAILED, "books:shut gives no deps: LookupError: no key (--debug shows where)"),
        ("books:leaves", cli.FAILED, "books:leaves gives no deps: SystemExit: 5"),
    ],
)
def test_where_there_are_none_it_is_one_line_and_nothing_is_decided(
    deps: str, status: int, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    id = asked(monkeypatch)
    capsys.readouterr()
    assert run("approve", id, "--yes", deps=deps) == status
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert shown.err.startswith("phronomy: error: ") and why in shown.err
    assert (waiting(), [line for line in noted() if line != "made"]) == ([id], [])


def test_a_builtin_that_tells_no_signature_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    id = asked(monkeypatch)
    assert run("reject", id, "--yes", deps="builtins:dict") == cli.DONE
    assert waiting() == []


def test_a_traceback_of_the_function_only_with_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    id = asked(monkeypatch)
    with pytest.raises(Exception, match="no key") as caught:
        run("approve", id, "--yes", "--debug", deps="books:broken")
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize(
    ("deps", "left"),
    [("books:opened", "left"), ("books:forgiving", "left with ModelError"), ("books:worse", "left badly")],
)
def test_they_are_left_whatever_happened_and_that_hides_no_failure(
    deps: str, left: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    id = asked(monkeypatch)
    Path("down").touch()
    capsys.readouterr()
    assert run("approve", id, "--yes", deps=deps) == cli.FAILED
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("phronomy: error: the provider is down")
    again = re.search(r"go on with: phronomy (recover .+?)\)", error)
    assert again is not None and f"--app books:make --deps {deps} --store {STORE}" in again[1]
    assert noted() == ["made", "entered 20", left]
    Path("down").unlink()
    sys.modules.pop("books")
    assert cli.run([*again[1].split(), "--yes"]) == (cli.FAILED if deps == "books:worse" else cli.DONE)
    assert waiting() == []
    assert "entered 20" not in noted(), "what has run is not run again"


def test_where_they_cannot_be_left_it_is_an_error_after_the_decision(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    id = asked(monkeypatch)
    capsys.readouterr()
    assert run("approve", id, "--yes", deps="books:stuck") == cli.FAILED
    shown = capsys.readouterr()
    assert shown.out.endswith("The run is completed.\n")
    assert shown.err == "phronomy: error: books:stuck cannot be left: OSError: the disk is full (--debug shows where)\n"
    assert (waiting(), noted()) == ([], ["made", "entered 20"])


def test_for_machines_what_they_print_goes_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for deps, line in (("books:deps", "deps are made"), ("books:opened", "deps are left")):
        id = asked(monkeypatch)
        capsys.readouterr()
        assert run("approve", id, "--yes", "--json", deps=deps) == cli.DONE
        shown = capsys.readouterr()
        assert json.loads(shown.out)["status"] == "completed"
        assert shown.err == f"{line}\n"


def test_they_are_made_before_anybody_is_asked_and_a_terminal_shows_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = asked(monkeypatch)
    (place / "hang").touch()
    with terminal("approve", id, "--deps", "books:deps", app="books:make") as desk:
        comes(place / "hanging")
        desk.sees("Loading books:deps")
        (place / "hang").unlink()
        desk.sees(r"Approve it\? \[y/N\] ")
        desk.presses("c")
        assert desk.status() == cli.INTERRUPTED
    assert (waiting(), noted()) == ([id], ["made"])


def test_ctrl_c_while_they_are_made_decides_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    id = asked(monkeypatch)
    (place / "hang").touch()
    desk: Terminal
    with terminal("approve", id, "--yes", "--deps", "books:deps", app="books:make") as desk:
        comes(place / "hanging")
        desk.sees("Loading books:deps")
        desk.presses("c")
        assert desk.status() == cli.INTERRUPTED
    assert (waiting(), noted()) == ([id], [])

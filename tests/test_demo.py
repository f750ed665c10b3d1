"""`phronomy demo` as its users run it: in terminals, in pipes, killed, interrupted, and several at once."""

from __future__ import annotations

import io
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pexpect
import pytest
from drivers import PATIENCE

from phronomy import Agent, Approve, Checkpoint, Message, ModelRequest, SQLiteStore, ToolCall, cli, tool
from phronomy.cli.apps import data_directory
from phronomy.cli.commands import demo_desk as demo
from phronomy.cli.commands.demo_desk import INSTRUCTIONS, MODEL, THREAD, Refunds, answer, lookup_order, refund
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.unmeasured

PROMPT = r"\[a\]pprove, \[r\]eject, \[e\]dit or \[l\]ater\? "
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with an empty home, whose name is rita."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LOGNAME", "rita")
    monkeypatch.setenv("TERM", "xterm-256color")
    return tmp_path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store in which a refund of order 1042 waits for a decision."""
    path = tmp_path / "desk.db"
    assert pend(path).pending_tool_args == {
        "order_id": 1042,
        "amount": 49.9,
        "reason": "The kettle of order 1042 is cracked",
    }
    return path


def desk_agent(store: SQLiteStore, **options: Any) -> Agent[Any]:
    """The demo's agent, and what of it a test wants otherwise."""

    made = {"model": ScriptedModel(answer, name=MODEL), "tools": [lookup_order, refund], **options}
    return Agent(name="refund-desk", instructions=INSTRUCTIONS, store=store, **made)


def pend(
    path: Path, said: str = "The kettle of order 1042 is cracked. Please refund it.", **options: Any
) -> Checkpoint:
    with SQLiteStore(path) as store:
        return desk_agent(store, **options).invoke(said, thread_id=THREAD, deps=Refunds(path)).checkpoint


def books(path: Path) -> list[tuple[int, float]]:
    """The refunds that were made, read as anybody could."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT order_id, amount FROM demo_refunds ORDER BY at, order_id").fetchall()


def waiting(path: Path) -> list[str]:
    with SQLiteStore(path) as store:
        return [item.approval.id for item in store.pending()]


def widest(text: str) -> int:
    """The length of the longest line, but for paths and commands, which are left whole so that they can be copied."""
    return max(len(line) for line in text.splitlines() if not re.match(r"  (file|ask me|approve|reject) ", line))


def command(*options: str | Path) -> list[str]:
    return [sys.executable, "-m", "phronomy", "demo", *map(str, options)]


SLOW = """
import sys, time
from pathlib import Path
from phronomy import cli
from phronomy.cli.commands import demo_desk as demo

def slow(request):
    go_on = Path(sys.argv[1])
    while len(request.messages) >= int(sys.argv[2]) and not go_on.exists():
        time.sleep(0.01)
    return answer(request)

answer, demo.answer = demo.answer, slow
sys.exit(cli.run(["demo", *sys.argv[3:]]))
"""
"""A demo whose model takes its time once a conversation has so many messages: until the file is there."""


def slow_command(go_on: Path, messages: int, *options: str | Path) -> list[str]:
    return [sys.executable, "-c", SLOW, str(go_on), str(messages), *map(str, options)]


def demo_in_pipes(*options: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*options),
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=PATIENCE,
    )


class Terminal:
    """A demo in a terminal of 80 columns, and somebody at its keys."""

    def __init__(self, *options: str | Path, log: Path | None = None, line: list[str] | None = None) -> None:
        python, *arguments = line or command(*options)
        if log is not None:
            python, arguments = "sh", ["-c", 'log=$1; shift; exec "$@" > "$log"', "sh", str(log), python, *arguments]
        self.seen = io.StringIO()
        self.child = pexpect.spawn(
            python, arguments, env=dict(os.environ), dimensions=(24, 80), encoding="utf-8", timeout=PATIENCE
        )
        self.child.logfile_read = self.seen

    def sees(self, pattern: str) -> None:
        self.child.expect(pattern)

    def types(self, text: str) -> None:
        self.child.sendline(text)

    def presses(self, key: str) -> None:
        self.child.sendcontrol(key)

    def killed(self) -> None:
        self.child.kill(signal.SIGKILL)
        assert self.status() == -signal.SIGKILL

    def status(self) -> int:
        """The exit status, once it has ended; negative for the signal that ended it."""
        self.child.expect(pexpect.EOF)
        self.child.close()
        return self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus

    @property
    def text(self) -> str:
        """All that was shown, as plain lines."""
        return CONTROL.sub("", self.seen.getvalue()).replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def terminal(*options: str | Path, log: Path | None = None, line: list[str] | None = None) -> Iterator[Terminal]:
    opened = Terminal(*options, log=log, line=line)
    try:
        yield opened
    finally:
        opened.child.close(force=True)


def in_process(*options: str | Path) -> int:
    return cli.run(["demo", *map(str, options)])


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())


# On a fresh machine


def test_without_a_terminal_it_saves_and_says_how_to_decide(tmp_path: Path) -> None:
    done = demo_in_pipes()
    assert (done.returncode, done.stderr) == (cli.PENDING, "")
    path = tmp_path / "data" / "phronomy" / "demo.db"
    assert (
        done.stdout
        == f"""\
A refund desk: the agent looks orders up by itself, and asks before it refunds.
A script stands in for the model. Nothing leaves this machine.

  customer  The kettle of order 1042 arrived broken. Please refund it.
  model     calls lookup_order {{"order_id": 1042}}
  tool      {{"order_id":1042,"item":"kettle","price":49.9}}
  model     The kettle cost 49.90 euros. I ask for the refund.
  model     asks for refund

Approval needed: refund
  order_id  integer   1042
  amount    number    49.9
  reason    text      "The kettle of order 1042 arrived broken"

Nothing was decided. The run is saved, and waits for a decision.
  ask me    phronomy demo
  approve   phronomy demo --yes
  reject    phronomy demo --no --reason TEXT
  file      {path}
"""
    )
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["demo.db"]
    assert books(path) == []


def test_in_a_terminal_it_shows_that_it_works_and_takes_no_answer_given_before_the_question(tmp_path: Path) -> None:
    with terminal(line=slow_command(tmp_path / "go", 0)) as desk:
        desk.sees("The agent is at work")
        desk.types("a")
        (tmp_path / "go").touch()
        desk.sees(PROMPT)
        desk.types("l")
        desk.sees("Nothing was decided")
        assert desk.status() == cli.PENDING
    assert books(tmp_path / "data" / "phronomy" / "demo.db") == []
    assert "\x1b[?25h" in desk.seen.getvalue(), "the cursor is left hidden"


@pytest.mark.sweep
def test_with_its_output_in_a_file_nobody_is_asked_what_they_cannot_see(file: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with terminal("--store", file, log=log) as desk:
        assert desk.status() == cli.PENDING
    assert "Approval needed: refund\n" in log.read_text()
    assert "\x1b" not in log.read_text()
    assert "[a]pprove" not in desk.text + log.read_text()


def test_yes_refunds_exactly_once_and_a_second_yes_is_a_new_request(file: Path) -> None:
    done = demo_in_pipes("--yes", "--store", file)
    assert (done.returncode, done.stderr) == (cli.DONE, "")
    assert "The refund was approved by rita (--yes) at " in done.stdout
    assert "49.90 euros for order 1042 are on their way back to you." in done.stdout
    assert "  model     3 calls by this run, 1 of them by this process\n" in done.stdout
    assert "  refunds   1 by this run, 1 in all (the table demo_refunds)\n" in done.stdout
    assert books(file) == [(1042, 49.9)]

    done = demo_in_pipes("--yes", "--store", file)
    assert (done.returncode, done.stderr) == (cli.DONE, "")
    assert "  model     3 calls by this run, 3 of them by this process\n" in done.stdout
    assert "  refunds   1 by this run, 2 in all (the table demo_refunds)\n" in done.stdout
    assert books(file) == [(1042, 49.9), (1043, 85.0)]
    assert "order 1042" not in done.stdout, "another customer's conversation"
    assert widest(done.stdout) <= 80
    assert not re.search(r"\x1b|[ ]$", done.stdout, re.MULTILINE)


def test_no_is_an_answer_that_the_model_reads_and_no_error(file: Path) -> None:
    done = demo_in_pipes("--no", "--reason", "too [bold]late[/bold]", "--store", file)
    assert (done.returncode, done.stderr) == (cli.DONE, "")
    assert "The refund was rejected by rita (--no) at " in done.stdout
    told = "A human rejected this call, so it was not run. Reason: too [bold]late[/bold]"
    assert f"There is no refund that I could confirm for order 1042. I was told: {told}" in re.sub(
        r"\n {12}", " ", done.stdout
    )
    assert (books(file), waiting(file)) == ([], [])


# At the prompt


def test_killed_at_the_prompt_or_told_later_the_next_demo_asks_again_without_asking_the_model(file: Path) -> None:
    before = waiting(file)
    with terminal("--store", file) as desk:
        desk.sees(PROMPT)
        desk.killed()
    with terminal("--store", file) as desk:
        desk.sees(PROMPT)
        desk.types("later")
        assert desk.status() == cli.PENDING
    assert f"  ask me    phronomy demo --store {file}\n" in desk.text
    with terminal("--store", file) as desk:
        desk.sees("Picked up where it was left")
        desk.sees("Approval needed: refund")
        desk.sees(PROMPT)
        desk.presses("d")
        assert desk.status() == cli.PENDING
    assert desk.text.endswith(
        f"The input has ended. Nothing is lost, it is all in {file}; go on with: phronomy demo --store {file}\n"
    )
    assert (waiting(file), books(file)) == (before, [])
    with SQLiteStore(file) as store:
        (branch,) = store.branches(thread_id=THREAD)
        assert store.head(branch.id)[1].usage.requests == 2


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("typed", "question"),
    [
        ((), ""),
        (("r",), "Enter for no reason"),
        (("e",), r"order_id \(integer\) \[.*\]: "),
        (("e", ""), r"amount \(number\) \[.*\]: "),
    ],
    ids=["choice", "reason", "edit", "second field"],
)
def test_ctrl_c_at_any_question_loses_nothing(file: Path, typed: Sequence[str], question: str) -> None:
    before = waiting(file)
    with terminal("--store", file) as desk:
        desk.sees(PROMPT)
        for text in typed:
            desk.types(text)
        desk.sees(question)
        desk.child.send("a half-written answer")
        desk.presses("c")
        assert desk.status() == cli.INTERRUPTED
    assert desk.text.endswith(
        f"Interrupted. Nothing is lost, it is all in {file}; go on with: phronomy demo --store {file}\n"
    )
    assert "Traceback" not in desk.text
    assert (waiting(file), books(file)) == (before, [])


def test_edited_arguments_are_validated_shown_run_and_told(file: Path) -> None:
    with terminal("--store", file) as desk:
        desk.sees(PROMPT)
        desk.types("")
        desk.sees("Please answer a, r, e or l.")
        desk.sees(PROMPT)
        desk.types("e")
        desk.sees(r"order_id \(integer\) \[.*\]: ")
        desk.types("")
        for nonsense, why in (
            ("fifty", "Write a number in digits"),
            ("NaN", "Write a number in digits"),
            ("-3", "greater than 0"),
        ):
            desk.sees(r"amount \(number\) \[.*\]: ")
            desk.types(nonsense)
            desk.sees(why)
        desk.sees(r"amount \(number\) \[.*\]: ")
        desk.types("20")
        desk.sees(r"reason \(text\) \[.*\]: ")
        desk.types('only the "lid"')
        desk.sees("changed by you; the model asked for 49.9")
        desk.sees(PROMPT)
        desk.types("approve")
        assert desk.status() == cli.DONE
    assert 'reason    text      "only the \\"lid\\""' in desk.text
    assert "The refund was approved, with edited arguments, by rita (/dev/" in desk.text
    assert "The desk changed what I had asked for. 20.00 euros for order 1042" in desk.text
    assert books(file) == [(1042, 20.0)]


@pytest.mark.sweep
def test_rejected_at_the_prompt_the_model_reads_why(file: Path) -> None:
    with terminal("--store", file) as desk:
        desk.sees(PROMPT)
        desk.types("R")
        desk.sees("Enter for no reason")
        desk.types("send us a photo first")
        assert desk.status() == cli.DONE
    assert "Reason: send us a photo first" in re.sub(r"\n {12}", " ", desk.text)
    assert (books(file), waiting(file)) == ([], [])


def test_interrupted_at_work_the_next_demo_finishes_without_refunding_again(file: Path, tmp_path: Path) -> None:
    with terminal(line=slow_command(tmp_path / "go", 5, "--store", file)) as desk:
        desk.sees(PROMPT)
        desk.types("a")
        while not result_is_kept(file):
            time.sleep(0.01)
        desk.presses("c")
        desk.sees("Interrupted")
        (tmp_path / "go").touch()
        assert desk.status() == cli.INTERRUPTED
    assert desk.text.endswith(
        f"Interrupted. Nothing is lost, it is all in {file}; go on with: phronomy demo --store {file}\n"
    )
    done = demo_in_pipes("--store", file)
    assert (done.returncode, done.stderr) == (cli.DONE, "")
    assert "Approval needed" not in done.stdout
    assert "  refunds   1 by this run, 1 in all" in done.stdout
    assert books(file) == [(1042, 49.9)]


def result_is_kept(path: Path) -> bool:
    """Whether the refund has settled: before that, nobody could know whether it was made."""
    with SQLiteStore(path) as store:
        (branch,) = store.branches(thread_id=THREAD)
        return "refunded" in store.head(branch.id)[1].model_dump_json()


# Several at once


def test_of_two_demos_at_the_same_prompt_one_decides_and_the_other_is_told_who_did(file: Path) -> None:
    with terminal("--store", file) as first, terminal("--store", file) as second:
        first.sees(PROMPT)
        second.sees(PROMPT)
        first.types("a")
        assert first.status() == cli.DONE
        second.types("r")
        second.sees("Enter for no reason")
        second.types("no")
        assert second.status() == cli.FAILED
    last = second.text.splitlines()[-1]
    assert re.fullmatch(
        r"phronomy: error: this was decided before: approved by rita \(/dev/\S+\) at \d\d:\d\d:\d\d UTC; the run has ended",
        last,
    )
    assert books(file) == [(1042, 49.9)]


@pytest.mark.sweep
def test_decided_elsewhere_while_the_prompt_was_open(file: Path) -> None:
    with terminal("--store", file) as desk:
        desk.sees(PROMPT)
        with SQLiteStore(file) as store:
            (item,) = store.pending()
            done = desk_agent(store).resume(
                item.checkpoint_id, approved=False, by="olga", channel="web", deps=Refunds(file)
            )
            assert done.status == "completed"
        desk.types("a")
        assert desk.status() == cli.FAILED
    assert "phronomy: error: this was decided before: rejected by olga (web) at " in desk.text
    assert books(file) == []


@pytest.mark.sweep
def test_two_fresh_demos_at_once_on_one_store_refund_each_request_once(tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    both = [
        subprocess.Popen(
            command("--yes", "--store", path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    ends = [(each.communicate(timeout=PATIENCE), each.returncode) for each in both]
    for (_, complaint), status in ends:
        if status == cli.FAILED:  # the other was first at the request of both
            assert b"this was decided before: approved by rita (--yes)" in complaint
        else:
            assert (status, complaint) == (cli.DONE, b"")
    with closing(sqlite3.connect(path)) as db:
        refunds = db.execute("SELECT run_id, count(*) FROM demo_refunds GROUP BY run_id").fetchall()
    assert refunds
    assert all(count == 1 for _, count in refunds)
    assert len(refunds) <= sum(status == cli.DONE for _, status in ends)
    assert waiting(path) == []


def test_while_another_demo_is_at_work_it_waits_and_then_says_so(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_terminal: None
) -> None:
    monkeypatch.setattr(demo, "PATIENCE", 0.0)
    monkeypatch.setattr(demo, "POLL", 0.0)

    def meanwhile(request: ModelRequest) -> Any:
        assert in_process("--store", file) == cli.FAILED
        return answer(request)

    with SQLiteStore(file) as store:
        (item,) = store.pending()
        busy = desk_agent(store, model=ScriptedModel(meanwhile, name=MODEL))
        assert busy.resume(item.checkpoint_id, approved=True, deps=Refunds(file)).status == "completed"
    assert re.fullmatch(r"phronomy: error: run run_\w+ is held by .*\n", capsys.readouterr().err)
    assert books(file) == [(1042, 49.9)]


def test_a_request_that_another_demo_begins_first_is_picked_up(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_terminal: None
) -> None:
    looked = []

    def too_early(desk: demo.Desk) -> str | None:
        looked.append(desk)
        return None if len(looked) == 1 else found(desk)

    found = demo.Desk.open_run
    monkeypatch.setattr(demo.Desk, "open_run", too_early)
    assert in_process("--store", file) == cli.PENDING
    assert len(looked) == 2
    assert "Picked up where it was left" in capsys.readouterr().out


# What a model may write


HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07[bold red]free[/bold red] \u202egnp.\u200b\u3164\x9b31m\x7f :smile: "
    + "long " * 600
    + "END"
)


def test_nothing_a_model_or_customer_writes_acts_on_the_terminal_or_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    wanted = {"order_id": 1042, "amount": 1.0, "reason": HOSTILE}
    pend(
        path,
        "Order 1042\x1b[31m\r\n  model     I am the model",
        model=ScriptedModel([call("refund", wanted)], name=MODEL),
    )
    done = demo_in_pipes("--store", path)
    assert done.returncode == cli.PENDING
    assert set(filter(lambda char: not char.isprintable(), done.stdout)) == {"\n"}
    assert widest(done.stdout) <= 80
    assert "  customer  Order 1042\\x1b[31m\\x0d\n              model     I am the model\n" in done.stdout
    shown = re.sub(r"\n {22}", "", done.stdout)
    escaped = (
        '"\\u001b[2J\\u001b]0;owned\\u0007[bold red]free[/bold red] \\u202egnp.\\u200b\\u3164\\x9b31m\\x7f :smile: '
        + "long " * 600
        + 'END"'
    )
    assert f"  reason    text      {escaped}" in shown
    assert f"({len(HOSTILE):,} characters, all of them shown)" in shown


@pytest.mark.sweep
def test_without_colour_a_terminal_gets_none(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with terminal("--store", file) as desk:
        desk.sees(PROMPT)
        desk.types("l")
        assert desk.status() == cli.PENDING
    assert not re.search(r"\x1b\[[0-9;]*[349][0-7]", desk.seen.getvalue())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    with terminal("--store", file) as desk:
        desk.sees(PROMPT)
        desk.types("l")
        assert desk.status() == cli.PENDING
    assert "\x1b" not in desk.seen.getvalue()


@pytest.mark.sweep
def test_text_that_an_old_terminal_cannot_show_is_written_out(tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    wanted = {"order_id": 1042, "amount": 1.0, "reason": "zerbrochen: Kanne fuer 5 \u20ac"}
    pend(path, "Order 1042", model=ScriptedModel([call("refund", wanted)], name=MODEL))
    done = demo_in_pipes("--store", path, PYTHONIOENCODING="ascii")
    assert done.returncode == cli.PENDING
    assert '"zerbrochen: Kanne fuer 5 \\u20ac"' in done.stdout


# What goes wrong


@pytest.mark.parametrize("kind", ["a directory", "a text file", "nowhere", "a file as directory"])
def test_a_wrong_store_is_one_line_and_changes_nothing(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], no_terminal: None
) -> None:
    text = tmp_path / "letter.txt"
    text.write_text("Dear shop,\n")
    path, why = {
        "a directory": (tmp_path, "is a directory"),
        "a text file": (text, "not a database"),
        "nowhere": (tmp_path / "nowhere" / "desk.db", "does not exist"),
        "a file as directory": (text / "desk.db", "does not exist"),
    }[kind]
    assert in_process("--yes", "--store", path) == cli.FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"phronomy: error: [^\n]*\n", said.err)
    assert why in said.err
    assert text.read_text() == "Dear shop,\n"
    assert [each.name for each in tmp_path.iterdir()] == ["letter.txt"]


def test_a_home_that_cannot_be_written_or_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_terminal: None
) -> None:
    (tmp_path / "data").write_text("a file where the directory should be")
    assert in_process() == cli.FAILED
    assert re.fullmatch(r"phronomy: error: [^\n]*phronomy[^\n]*\n", capsys.readouterr().err)

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    assert in_process() == cli.FAILED
    assert (
        capsys.readouterr().err == "phronomy: error: this user has no home directory: give a file with --store PATH\n"
    )


def test_a_refund_whose_outcome_is_unknown_is_put_to_the_human_with_what_the_books_say(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_terminal: None
) -> None:
    def cut_off(books: Refunds, *values: Any) -> None:
        add(books, *values)
        raise KeyboardInterrupt

    add = Refunds.add
    monkeypatch.setattr(Refunds, "add", cut_off)
    assert in_process("--yes", "--store", file) == cli.INTERRUPTED
    assert f"Interrupted. Nothing is lost, it is all in {file}; " in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    for option in ("--yes", "--no"):  # said before anybody could know that it may have happened
        assert in_process(option, "--store", file) == cli.PENDING
        said = capsys.readouterr().out
        assert "You are asked again. The worker was lost while this call ran." in said
        assert "  refunds   1 on the books by this run\n" in said
        assert f"  ask me    phronomy demo --store {file}\n  file " in said
    assert books(file) == [(1042, 49.9)]
    with SQLiteStore(file) as store:
        (item,) = store.pending()
        done = desk_agent(store).resume(item.checkpoint_id, approved=False, reason="it is paid", deps=Refunds(file))
    (told,) = (message.text for message in done.messages if message.settlement == "rejected")
    assert "was not run." not in told, "the model is told what nobody knows"
    assert "it is paid" in told
    assert books(file) == [(1042, 49.9)]


def test_a_model_that_cannot_be_reached_fails_in_one_line_and_the_next_demo_goes_on(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_terminal: None
) -> None:
    said = iter([ConnectionError("down"), "Done."])
    monkeypatch.setattr(demo, "answer", lambda request: next(said))
    assert in_process("--yes", "--store", file) == cli.FAILED
    assert re.fullmatch(
        rf"phronomy: error: model {MODEL} raised ConnectionError; [^\n]* \(go on with: phronomy demo --store {file}\)\n",
        capsys.readouterr().err,
    )
    assert (books(file), waiting(file)) == ([(1042, 49.9)], [])
    assert in_process("--store", file) == cli.DONE
    shown = capsys.readouterr().out
    assert "  model     Done.\n" in shown
    assert "Approval needed" not in shown
    assert books(file) == [(1042, 49.9)]


def test_a_run_of_another_agent_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_terminal: None
) -> None:
    @tool(requires_approval=True, name="refund")
    def other(order: str) -> str:
        """Refund in another way."""
        return order

    path = tmp_path / "desk.db"
    pend(path, "go", tools=[other], model=ScriptedModel([call("refund", {"order": "x"})], name=MODEL))
    before = waiting(path)
    assert in_process("--yes", "--store", path) == cli.FAILED
    assert "cannot be resumed by this agent" in capsys.readouterr().err
    assert waiting(path) == before


# The parts


def test_the_model_answers_from_the_messages_it_is_sent() -> None:
    def say(text: str) -> Message:
        return Message(role="user", content=text)

    def asked(name: str, result: str) -> list[Message]:
        made = ToolCall(id=name, name=name, arguments="{}")
        return [
            Message(role="assistant", content=None, tool_calls=(made,)),
            Message(role="tool", tool_call_id=name, content=result),
        ]

    found = asked("lookup_order", '{"order_id": 2000, "item": "lamp", "price": 85.0}')
    old = [say("Order 1042 please."), Message(role="assistant", content="Done.")]

    def reply(*messages: Message) -> Any:
        return answer(ModelRequest(system="Order 1", messages=(*old, *messages)))

    assert reply(say("My lamp is broken.")) == "Which order is it? Please tell me its number."
    assert reply(say("order 2000 is broken. Help.")) == call("lookup_order", {"order_id": 2000})
    assert reply(say("Order 77?"), *asked("lookup_order", "LookupError: there is no order 77")) == (
        "I can do nothing for order 77. The shop says: LookupError: there is no order 77"
    )
    wanted = reply(say("Order 2000 is broken. Help."), *found)
    assert wanted.text == "The lamp cost 85.00 euros. I ask for the refund."
    assert wanted.calls == (call("refund", {"order_id": 2000, "amount": 85.0, "reason": "Order 2000 is broken"}),)
    for result, summary in (
        ('{"order_id": 2000, "refunded": 85.0}', "85.00 euros for order 2000 are on their way back to you."),
        (
            'A human changed it. Its result:\n{"order_id": 2001, "refunded": 1.5}',
            "The desk changed what I had asked for. 1.50 euros for order 2001 are on their way back to you.",
        ),
        (
            "A human rejected this call.",
            "There is no refund that I could confirm for order 2000. I was told: A human rejected this call.",
        ),
        ("ValueError: 85.00", "There is no refund that I could confirm for order 2000. I was told: ValueError: 85.00"),
    ):
        assert reply(say("Order 2000"), *found, *asked("refund", result)) == summary


def test_the_shop_refunds_no_more_than_was_paid(tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    pend(path)
    with SQLiteStore(path) as store:
        agent = desk_agent(store)
        (item,) = store.pending()
        edited = {"order_id": 1042, "amount": 50, "reason": "all of it"}
        done = agent.resume(item.checkpoint_id, decisions={item.approval.id: Approve(args=edited)}, deps=Refunds(path))
    assert done.status == "completed"
    assert "order 1042 cost 49.90 euros, and no more can be refunded" in (done.output or "")
    assert books(path) == []


@pytest.mark.parametrize(
    ("platform", "environ", "wanted"),
    [
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data/phronomy"),
        ("linux", {"XDG_DATA_HOME": "data"}, "/home/rita/.local/share/phronomy"),
        ("linux", {"LOCALAPPDATA": "/x"}, "/home/rita/.local/share/phronomy"),
        ("freebsd14", {}, "/home/rita/.local/share/phronomy"),
        ("darwin", {"XDG_DATA_HOME": "/data"}, "/home/rita/Library/Application Support/phronomy"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/phronomy"),
        ("win32", {}, "/home/rita/AppData/Local/phronomy"),
    ],
)
def test_each_platform_keeps_the_data_of_a_program_in_its_place(
    platform: str, environ: dict[str, str], wanted: str
) -> None:
    assert data_directory(platform, environ, Path("/home/rita")) == Path(wanted)

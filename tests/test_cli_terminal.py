"""Deciding and talking in a real terminal: what is asked in place, and that leaving at any moment loses nothing."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect
import pytest
from drivers import PATIENCE
from test_cli_decide import LISTED, LOGGED, editor, tamper
from test_cli_runs import STORE, begin, place, refunds, waiting

from phronomy import Approve, Principal, SQLiteStore, cli
from phronomy.testing import ChatServer

pytestmark = pytest.mark.unmeasured

__all__ = ["place"]  # a fixture

CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
CHOICE = r"\[a\]pprove, \[r\]eject, \[e\]dit, re\[s\]pond or \[l\]ater\? "


class Terminal:
    """A command in a terminal of 80 columns, and somebody at its keys."""

    def __init__(
        self,
        *line: str,
        app: str | None = "desk:make",
        store: str | None = STORE,
        dimensions: tuple[int, int] = (24, 80),
    ) -> None:
        options = [*(["--app", app] if app else []), *(["--store", store] if store else [])]
        self.seen = io.StringIO()
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "phronomy", line[0], *options, *line[1:]],
            env=dict(os.environ),
            dimensions=dimensions,
            encoding="utf-8",
            timeout=PATIENCE,
        )
        self.child.logfile_read = self.seen

    def sees(self, pattern: str) -> None:
        """Wait for it. Two spaces or more stand for whatever is between a label and its text."""
        self.child.expect(re.sub(" {2,}", r"[ \\x1b\\[0-9;m]+", pattern))

    def types(self, text: str) -> None:
        self.child.sendline(text)

    def presses(self, key: str) -> None:
        self.child.sendcontrol(key)

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
def terminal(*line: str, **places: Any) -> Iterator[Terminal]:
    opened = Terminal(*line, **places)
    try:
        yield opened
    finally:
        opened.child.close(force=True)


def chat(thread: str = "t1", **places: str | None) -> Any:
    return terminal("chat", "--thread", thread, **places)


def comes(path: Path) -> None:
    """Wait for what another process makes."""
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.01)


# The commands that decide


def test_what_waits_is_shown_edited_in_the_editor_and_approved(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (item,) = begin().pending
    with terminal("pending", app=None) as desk:
        assert desk.status() == cli.DONE
    assert desk.text.splitlines()[1].startswith(f"{item.id}  refund")
    with terminal("show", item.id) as desk:
        assert desk.status() == cli.DONE
    assert "Approval needed: refund\n  order_id  integer   1042\n" in desk.text
    twice = editor(
        place, 'if [ -e again ]; then sed -i s/nonsense/20/ "$2"; else touch again; sed -i s/49.9/nonsense/ "$2"; fi'
    )
    monkeypatch.setenv("EDITOR", twice)
    with terminal("edit", item.id) as desk:
        desk.sees(r"Edit again\? \[y/N\] ")
        desk.types("y")
        desk.sees("To be run: refund")
        desk.sees("changed; the model asked for 49.9")
        desk.sees(r"Approve it with these arguments\? \[y/N\] ")
        desk.types("y")
        desk.sees("It was approved, with edited arguments, by rita")
        assert desk.status() == cli.DONE
    assert (refunds(), waiting()) == (["1042 20.0 s3cret"], [])


@pytest.mark.sweep
def test_no_leaves_it_and_yes_approves_it(place: Path) -> None:
    (item,) = begin().pending
    for answer in ("", "n", "no", "maybe"):
        with terminal("approve", item.id) as desk:
            desk.sees(r"Approve it\? \[y/N\] ")
            desk.types(answer)
            assert desk.status() == cli.PENDING
        assert desk.text.endswith(f"Nothing was decided: {item.id} still waits.\n")
    assert (refunds(), waiting()) == ([], [item.id])
    with terminal("approve", item.id) as desk:
        desk.types("y")
        desk.sees(r"Approve it\? \[y/N\] ")
        desk.presses("d")
        assert desk.status() == cli.PENDING, "what was typed before the question is no answer to it"
    with terminal("approve", item.id) as desk:
        desk.sees(r"Approve it\? \[y/N\] ")
        desk.types("yes")
        assert desk.status() == cli.DONE
    assert refunds() == ["1042 49.9 s3cret"]


def test_what_is_listed_otherwise_than_it_would_run_is_not_asked_about(place: Path) -> None:
    checkpoint = begin()
    (item,) = checkpoint.pending
    tamper(item, LISTED)
    with terminal("approve", item.id) as desk:
        assert desk.status() == cli.FAILED
    assert "does not show what would run" in desk.text and "[y/N]" not in desk.text
    with terminal("watch") as desk:
        desk.sees("does not show what would run")
        desk.presses("c")
        assert desk.status() == cli.DONE
    assert desk.text.count("does not show what would run") == 1, "it is told once, and nobody is asked"
    assert (refunds(), waiting()) == ([], [item.id])
    with terminal("approve", checkpoint.id) as desk:
        desk.sees("  amount    number    49.9")
        desk.sees(r"Approve it\? \[y/N\] ")
        desk.types("y")
        assert desk.status() == cli.DONE
    assert refunds() == ["1042 49.9 s3cret"]


def test_what_changes_while_the_question_stands_is_an_error(place: Path) -> None:
    checkpoint = begin()
    (item,) = checkpoint.pending
    with terminal("approve", item.id) as desk:
        desk.sees(r"Approve it\? \[y/N\] ")
        tamper(item, LOGGED)
        desk.types("y")
        assert desk.status() == cli.FAILED
    assert f"checkpoint {checkpoint.id} differs from the stored one" in " ".join(desk.text.split())
    assert (refunds(), waiting()) == ([], [item.id])


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("line", "answers", "question"),
    [
        (("approve",), (), r"Approve it\? \[y/N\] "),
        (("reject", "--reason", "no"), (), r"Reject it\? \[y/N\] "),
        (("respond", "done"), (), r"Give this result\? \[y/N\] "),
        (("edit", "--args", '{"order_id": 7}'), (), r"with these arguments\? \[y/N\] "),
        (("edit",), (), r"Edit again\? \[y/N\] "),
        (("recover",), (), r"Carry it on\? \[y/N\] "),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) and value else None,
)
def test_ctrl_c_at_any_question_decides_nothing(
    line: Sequence[str], answers: Sequence[str], question: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = begin().pending
    monkeypatch.setenv("EDITOR", editor(place, 'echo "{" > "$2"'))
    id = item.id
    with terminal(line[0], id, *line[1:]) as desk:
        desk.sees(question)
        desk.child.send("ye")
        desk.presses("c")
        assert desk.status() == cli.INTERRUPTED
    last = desk.text.splitlines()[-1]
    assert last.startswith("Interrupted. Nothing ")
    assert "Traceback" not in desk.text
    assert (refunds(), waiting()) == ([], [id])


def test_ctrl_c_while_the_tool_runs_leaves_a_question_for_a_human_and_runs_nothing_twice(place: Path) -> None:
    checkpoint = begin()
    (place / "hang").touch()
    with terminal("approve", checkpoint.pending[0].id) as desk:
        desk.sees(r"\[y/N\] ")
        desk.types("y")
        comes(place / "hanging")
        desk.presses("c")
        assert desk.status() == cli.INTERRUPTED
    (place / "hang").unlink()
    again = f"phronomy recover {checkpoint.run_id} --app desk:make --store {STORE}"
    assert (
        desk.text.splitlines()[-1] == f"Interrupted. The decision is recorded and nothing is lost; go on with: {again}"
    )
    with terminal("recover") as desk:
        desk.sees(f"{checkpoint.run_id}  desk   t1      running")
        desk.sees(r"Carry it on\? \[y/N\] ")
        desk.types("n")
        assert desk.status() == cli.PENDING
    with terminal(*again.split()[1:3]) as desk:
        desk.sees(r"Carry it on\? \[y/N\] ")
        desk.types("y")
        assert desk.status() == cli.PENDING
    assert "The run waits for 1 more:\n" in desk.text
    (asked,) = waiting()
    assert f"  refund    phronomy approve {asked} --app desk:make --store {STORE}\n" in desk.text
    with terminal("respond", asked, "it is paid") as desk:
        desk.sees("The worker was lost while this call ran")
        desk.sees(r"Give this result\? \[y/N\] ")
        desk.types("y")
        assert desk.status() == cli.DONE
    assert refunds() == ["1042 49.9 s3cret"]


@pytest.mark.sweep
def test_of_two_who_decide_the_same_one_wins_and_the_other_is_told_who_did(place: Path) -> None:
    (item,) = begin().pending
    with terminal("approve", item.id, "--by", "olga") as first, terminal("reject", item.id) as second:
        first.sees(r"\[y/N\] ")
        second.sees(r"\[y/N\] ")
        first.types("y")
        assert first.status() == cli.DONE
        second.types("y")
        assert second.status() == cli.FAILED
    assert re.fullmatch(
        r"phronomy: error: this was decided before: approved by olga \(cli\) at [0-9:]{8} UTC; the run has ended",
        second.text.splitlines()[-1],
    )
    assert refunds() == ["1042 49.9 s3cret"]


@pytest.mark.sweep
def test_a_narrow_terminal_gets_a_row_in_lines_of_their_own(place: Path) -> None:
    (item,) = begin(thread="t" * 60).pending
    with terminal("pending", app=None, dimensions=(24, 40)) as desk:
        assert desk.status() == cli.DONE
    assert desk.text.startswith(f"  pending   {item.id}\n  tool      refund\n  agent     desk\n")


@pytest.mark.sweep
def test_for_machines_nothing_moves_in_a_terminal_either(place: Path) -> None:
    (item,) = begin().pending
    with terminal("reject", item.id, "--yes", "--json") as desk:
        assert desk.status() == cli.DONE
    assert "\x1b" not in desk.seen.getvalue()


# Talking


@pytest.mark.few(1)
@pytest.mark.parametrize("app", ["desk:make", "desk:streaming", "desk:asynchronous"])
def test_a_conversation_with_an_approval_in_it(app: str, place: Path) -> None:
    with chat(app=app) as desk:
        desk.sees("Thread t1. Ctrl-D or /quit leaves; to go on:")
        desk.sees(f"phronomy chat --app {app} --store {STORE} --thread t1\r\n")  # to be copied, so in one line
        desk.sees("you> ")
        desk.types("")
        desk.sees("you> ")
        desk.types("Hello, my name is Ada")
        desk.sees("  model     You said: Hello, my name is Ada\r\n")
        desk.sees("you> ")
        desk.types("Refund order 1042")
        desk.sees('calls refund {"order_id": 1042}')
        desk.sees("Approval needed: refund")
        desk.sees("token     secret     not shown")
        desk.sees(CHOICE)
        desk.types("perhaps")
        desk.sees("Please answer a, r, e, s or l.")
        desk.sees(CHOICE)
        desk.types("a")
        desk.sees("runs refund")
        desk.sees("49.9 euros for order 1042 are on their way")
        desk.sees("model     Done.")
        desk.sees(r"\(approved by rita \(cli\) at ")
        desk.sees("you> ")
        desk.presses("d")
        assert desk.status() == cli.DONE
    assert refunds() == ["1042 49.9 s3cret"]
    with SQLiteStore("runs.db") as store:
        assert [message.text for message in store.latest("t1").messages if message.role == "user"] == [  # type: ignore[union-attr]
            "Hello, my name is Ada",
            "Refund order 1042",
        ]
        assert store.latest("t1").requester == Principal(id="rita")  # type: ignore[union-attr]


WORDS = """
from phronomy import Agent, Approval, SQLiteStore, tool
from phronomy.testing import ScriptedModel, call


@tool(
    requires_approval=Approval(
        title=lambda args: f"Refund order {args['order_id']}",
        context="From the shop's account.\\x1b[2J",
        answers=["approve", "reject"],
    )
)
def refund(order_id: int) -> str:
    return f"order {order_id} is refunded"


def make():
    model = ScriptedModel.by_turn([call("refund", {"order_id": 7}), "Done."])
    return Agent(name="words", model=model, tools=[refund], store=SQLiteStore("runs.db"))
"""


def test_a_request_is_shown_with_its_words_and_offers_what_it_allows(place: Path) -> None:
    (place / "words.py").write_text(WORDS)
    with chat(app="words:make") as desk:
        desk.sees("you> ")
        desk.types("Refund order 7")
        desk.sees("Approval needed: refund")
        desk.sees("title     Refund order 7")
        desk.sees(r"context   From the shop's account.\\x1b\[2J")
        desk.sees("requester   rita")
        desk.sees("answers     approve, reject")
        desk.sees(r"\[a\]pprove, \[r\]eject or \[l\]ater\? ")
        desk.types("e")
        desk.sees(r"Please answer a, r or l\.")
        desk.types("l")
        assert desk.status() == cli.PENDING
    with terminal("pending", "--json", app=None) as desk:
        assert desk.status() == cli.DONE
    (item,) = json.loads(desk.text)["items"]
    assert (item["title"], item["answers"], item["requester"]) == ("Refund order 7", ["approve", "reject"], "rita")
    with terminal("edit", item["pending_id"], "--args", '{"order_id": 8}', "--yes", app="words:make") as desk:
        assert desk.status() == cli.FAILED
    assert "the arguments cannot be edited" in " ".join(desk.text.split())


def test_each_answer_in_place(place: Path) -> None:
    with chat() as desk:
        desk.sees("you> ")
        desk.types("Refund orders 1042, 2000 and 3000")
        desk.sees(CHOICE)
        desk.types("reject")
        desk.sees("Enter for no reason")
        desk.types("no receipt")
        desk.sees(r"\(rejected by rita")
        desk.sees(CHOICE)
        desk.types("s")
        desk.sees("The result, which the model will read: ")
        desk.types("")
        desk.sees(CHOICE)
        desk.types("s")
        desk.sees("The result, which the model will read: ")
        desk.types("paid in cash")
        desk.sees(r"\(answered by rita")
        desk.sees(CHOICE)
        desk.types("e")
        desk.sees(r"order_id \(integer\) \[.*\]: ")
        desk.types("")
        desk.sees(r"amount \(number\) \[.*\]: ")
        desk.types("-3")
        desk.sees("greater than 0")
        desk.sees(r"amount \(number\) \[.*\]: ")
        desk.types("20")
        desk.sees(r"note \(text\) \[.*\]: ")
        desk.types("")
        desk.sees(r"token \(text\) \[.*\]: ")
        desk.types("")
        desk.sees("changed; the model asked for 49.9")
        desk.sees(CHOICE)
        desk.types("a")
        desk.sees(r"\(approved, with edited arguments, by rita")
        desk.sees("you> ")
        desk.types("/quit")
        assert desk.status() == cli.DONE
    assert refunds() == ["3000 20.0 s3cret"]
    assert "s3cret" not in desk.text
    with SQLiteStore("runs.db") as store:
        latest = store.latest("t1")
    assert latest is not None
    assert [each.settlement for each in latest.messages if each.role == "tool"] == [
        "rejected",
        "responded",
        "completed",
    ]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("typed", "question"),
    [
        ((), "you> "),
        (("Refund order 1042",), CHOICE),
        (("Refund order 1042", "r"), "Enter for no reason"),
        (("Refund order 1042", "s"), "The result, which the model will read: "),
        (("Refund order 1042", "e"), r"order_id \(integer\) \[.*\]: "),
        (("Refund order 1042", "e", ""), r"amount \(number\) \[.*\]: "),
    ],
    ids=["you", "choice", "reason", "result", "field", "second field"],
)
def test_ctrl_c_at_any_prompt_loses_nothing_and_says_how_to_go_on(
    typed: Sequence[str], question: str, place: Path
) -> None:
    with chat() as desk:
        for number, text in enumerate(typed):
            desk.sees(["you> ", CHOICE, r"order_id \(integer\) \[.*\]: "][number])
            desk.types(text)
        desk.sees(question)
        desk.child.send("half")
        desk.presses("c")
        assert desk.status() == cli.INTERRUPTED
    again = f"phronomy chat --app desk:make --store {STORE} --thread t1"
    assert desk.text.splitlines()[-1] == f"Interrupted. Nothing is lost; go on with: {again}"
    assert "Traceback" not in desk.text
    assert refunds() == []
    with chat() as desk:
        if typed:
            desk.sees("Picked up where it was left.")
            desk.sees("  user      Refund order 1042")
            desk.sees(CHOICE)
            desk.types("a")
            desk.sees("model     Done.")
        desk.sees("you> ")
        desk.presses("d")
        assert desk.status() == cli.DONE
    assert refunds() == (["1042 49.9 s3cret"] if typed else [])


@pytest.mark.few(1)
def test_in_a_chat_what_is_carried_out_elsewhere_is_answered_or_rejected(place: Path) -> None:
    with chat(app="desk:phoning") as desk:
        desk.sees("you> ")
        desk.types("Where am I?")
        desk.sees("locate is carried out elsewhere")
        desk.sees("ater")
        desk.types("a")
        desk.sees("Please answer r, s or l.")
        desk.types("s")
        desk.sees("The result, which the model will read: ")
        desk.types("in Graz")
        desk.sees("There.")
        desk.sees("you> ")
        desk.presses("d")
        assert desk.status() == cli.DONE
    assert "[a]pprove" not in desk.text


@pytest.mark.few(1)
def test_in_a_chat_a_result_that_is_no_text_is_typed_as_json(place: Path) -> None:
    with chat(app="desk:weighing") as desk:
        desk.sees("you> ")
        desk.types("How heavy is it?")
        for typed, told in (("heavy", "object is wanted"), ("{heavy", "object is wanted"), ("7", "object is wanted")):
            desk.sees("ater")
            desk.types("s")
            desk.sees("The result, which the model will read: ")
            desk.types(typed)
            desk.sees(told)
        desk.sees("ater")
        desk.types("s")
        desk.sees("The result, which the model will read: ")
        desk.types('{"kilograms": 7.5}')
        desk.sees("Weighed.")
        desk.sees("you> ")
        desk.presses("d")
        assert desk.status() == cli.DONE
    with SQLiteStore("runs.db") as store:
        [told] = [message.text for message in store.latest("t1").messages if message.role == "tool"]  # type: ignore[union-attr]
    assert told == '{"kilograms":7.5}'


@pytest.mark.few(1)
@pytest.mark.parametrize("app", ["desk:make", "desk:streaming", "desk:asynchronous"])
def test_ctrl_c_while_the_model_is_asked_loses_nothing(app: str, place: Path) -> None:
    (place / "think").touch()
    with chat(app=app) as desk:
        desk.sees("you> ")
        desk.types("Hello")
        comes(place / "thinking")
        if app == "desk:asynchronous":  # a scripted model that blocks the event loop hears of it when it lets go
            (place / "think").unlink()
        desk.presses("c")
        assert desk.status() == cli.INTERRUPTED
    (place / "think").unlink(missing_ok=True)
    assert desk.text.splitlines()[-1].startswith("Interrupted. Nothing is lost; go on with: phronomy chat ")
    with chat(app=app) as desk:
        desk.sees("Picked up where it was left.")
        desk.sees("  model     You said: Hello")
        desk.sees("you> ")
        desk.presses("d")
        assert desk.status() == cli.DONE


def test_killed_in_the_middle_it_is_picked_up_once_the_lease_is_over(place: Path) -> None:
    store = f"{STORE}?lease=1"
    (place / "think").touch()
    with chat(store=store) as desk:
        desk.sees("you> ")
        desk.types("Hello")
        comes(place / "thinking")
        desk.child.kill(signal.SIGKILL)
        assert desk.status() == -signal.SIGKILL
    (place / "think").unlink()
    with chat(store=store) as desk:
        desk.sees("Picked up where it was left.")
        desk.sees("  model     You said: Hello")
        desk.sees("you> ")
        desk.types("/exit")
        assert desk.status() == cli.DONE


def test_later_leaves_it_pending(place: Path) -> None:
    with chat() as desk:
        desk.sees("you> ")
        desk.types("Refund order 1042")
        desk.sees(CHOICE)
        desk.types("l")
        assert desk.status() == cli.PENDING
    assert desk.text.splitlines()[-1].startswith(
        "A decision is still pending. Nothing is lost; go on with: phronomy chat"
    )
    assert (len(waiting()), refunds()) == (1, [])


def test_a_model_that_is_down_can_be_tried_again(place: Path) -> None:
    (place / "down").touch()
    with chat() as desk:
        desk.sees("you> ")
        desk.types("Hello")
        desk.sees("phronomy: error: the provider is down")
        desk.sees(r"Try again\? \[y/N\] ")
        desk.types("y")
        desk.sees(r"Try again\? \[y/N\] ")
        (place / "down").unlink()
        desk.types("y")
        desk.sees("  model     You said: Hello")
        desk.sees("you> ")
        (place / "down").touch()
        desk.types("Hello again")
        desk.sees(r"Try again\? \[y/N\] ")
        desk.types("n")
        assert desk.status() == cli.FAILED
    assert desk.text.splitlines()[-1].startswith(
        "The run has stopped on a failure. Nothing is lost; go on with: phronomy"
    )


def test_decided_elsewhere_while_the_prompt_was_open_it_goes_on_from_there(place: Path) -> None:
    with chat() as desk:
        desk.sees("you> ")
        desk.types("Refund order 1042")
        desk.sees(CHOICE)
        sys.path.insert(0, str(place))
        import desk as app

        with SQLiteStore("runs.db") as store:
            (item,) = store.pending()
            agent = app.make()
            agent.store = store
            agent.resume(item.checkpoint_id, decisions={item.approval.id: Approve()}, by="olga", channel="web")
        desk.types("r")
        desk.sees("Enter for no reason")
        desk.types("")
        desk.sees(r"this was decided before: approved by olga \(web\) at ")
        desk.sees("you> ")
        desk.presses("d")
        assert desk.status() == cli.DONE
    assert refunds() == ["1042 49.9 s3cret"]


@pytest.mark.sweep
def test_text_that_looks_like_ours_or_moves_the_cursor_is_set_in_and_written_out(place: Path) -> None:
    path = place / "desk.py"
    hostile = r"\x1b[2J\u202e\n  tool      refunded\n" + "long " * 40 + "word" * 30
    path.write_text(path.read_text().replace('f"You said: {last.text}"', f'"{hostile}"'))
    for app in ("desk:make", "desk:streaming"):
        with chat(f"thread of {app}", app=app) as desk:
            desk.sees("you> ")
            desk.types("Hello")
            desk.sees("you> ")
            desk.presses("d")
            assert desk.status() == cli.DONE
        assert "\u202e" not in desk.seen.getvalue()
        shown = desk.text[desk.text.index("  model     ") : desk.text.rindex("you> ")].splitlines()
        assert shown[0] == "  model     \\x1b[2J\\u202e"
        assert shown[1] == "              tool      refunded"
        assert all(line.startswith(" " * 12) and len(line) <= 80 for line in shown[1:])
        assert "".join("".join(shown[2:]).split()) == "long" * 40 + "word" * 30


def test_in_a_pipe_each_line_is_a_message_and_what_needs_a_human_waits(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["chat", "--app", "desk:make", "--store", STORE, "--thread", "t1"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\nHello again\n"))
    assert cli.run(line) == cli.DONE
    assert capsys.readouterr().out == "  model     You said: Hello\n  model     You said: Hello again\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("Refund order 1042\na\n"))
    assert cli.run(line) == cli.PENDING
    said = capsys.readouterr()
    assert "Approval needed: refund\n" in said.out
    assert "A decision is still pending. Nothing is lost; go on with: phronomy chat " in said.err
    assert refunds() == []


@pytest.mark.parametrize("command", [["chat", "--thread", "t1"], ["debug", "Hello"]])
def test_the_runs_that_begin_have_the_scopes_that_are_given(
    command: list[str], place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R15: none without the option."""
    line = [*command, "--app", "desk:make", "--store", STORE]
    for scopes in ([], ["invoices:read", "invoices:write"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\n" if "chat" in command else ""))
        assert cli.run([*line, *(part for each in scopes for part in ("--scope", each))]) in (cli.DONE, cli.PENDING)
        with SQLiteStore("runs.db") as store:
            assert store.head(store.branches()[-1].id)[1].scopes == tuple(scopes)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\n"))
    assert cli.run([*line, "--scope", "two words"]) == cli.FAILED
    assert "scopes is a list of names" in capsys.readouterr().err


def test_in_a_pipe_a_failure_is_an_error_that_says_how_to_go_on(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["chat", "--app", "desk:make", "--store", STORE, "--thread", "the t1"]
    again = f"phronomy chat --app desk:make --store {STORE} --thread 'the t1'"
    (place / "down").touch()
    piped = [sys.executable, "-m", "phronomy", *line]
    done = subprocess.run(piped, check=False, input="Hello\n", capture_output=True, text=True, timeout=15)
    assert (done.returncode, done.stdout) == (cli.FAILED, "")
    assert done.stderr == f"desk is loaded\nphronomy: error: the provider is down (go on with: {again})\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    (place / "down").unlink()
    assert cli.run(line) == cli.DONE
    shown = capsys.readouterr().out
    assert shown == "Picked up where it was left.\n  user      Hello\n  model     You said: Hello\n"


def test_without_a_store_it_is_said_that_nothing_is_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Refund order 1042\n"))
    assert cli.run(["chat", "--app", "desk:make"]) == cli.PENDING
    said = capsys.readouterr().err
    assert "This conversation is kept in memory and ends with this process: --store URL keeps it.\n" in said
    assert "It was kept in memory, and is gone" in said


@pytest.mark.sweep
def test_a_model_alone_is_talked_to_over_http_and_kept_in_the_data_directory(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hears(body: dict[str, Any]) -> str:
        return f"I have heard {len(body['messages'])} messages."

    with ChatServer(hears) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none-is-needed")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, "127.0.0.1")
        with terminal("chat", "--model", "openai/gpt-4o-mini", "--thread", "t9", app=None, store=None) as desk:
            desk.sees("you> ")
            desk.types("Hello")
            desk.sees("I have heard 1 messages.")
            desk.sees("you> ")
            desk.presses("c")
            assert desk.status() == cli.INTERRUPTED
        last = desk.text.splitlines()[-1]
        assert last.endswith("go on with: phronomy chat --model openai/gpt-4o-mini --thread t9")
        with terminal(*last.partition("phronomy ")[2].split(), app=None, store=None) as desk:
            desk.sees("you> ")
            desk.types("Hello again")
            desk.sees("I have heard 3 messages.")
            desk.sees("you> ")
            desk.presses("d")
            assert desk.status() == cli.DONE
    path = place / "data" / "phronomy" / "chat.db"
    assert path.stat().st_mode & 0o777 == 0o600

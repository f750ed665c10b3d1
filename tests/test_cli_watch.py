"""`phronomy watch`: what waits is said and decided in place, in a real terminal, and for machines."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE
from test_cli_runs import STORE, begin, place, refunds, run, said, told, waiting
from test_cli_terminal import CHOICE, Terminal, comes, terminal

from phronomy import Agent, Approval, Approve, Reject, SQLiteStore, cli, tool
from phronomy.cli.notices import Notice, plain, program, sequence_of, show
from phronomy.cli.screen import Screen
from phronomy.errors import StoreError
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.unmeasured

__all__ = ["place", "said", "told"]  # fixtures

SOON = ("--poll", "0.05")


def watch(*line: str, **places: str | None) -> Any:
    return terminal("watch", *SOON, *line, **places)


def leaves(desk: Terminal) -> None:
    """Ctrl-C ends it, and nothing is wrong with that."""
    desk.presses("c")
    assert desk.status() == cli.DONE
    assert desk.text.splitlines()[-1] == "Stopped." and "Traceback" not in desk.text


def decided(pending_id: str) -> Any:
    with SQLiteStore("runs.db") as store:
        return store.request(pending_id).decision


# Deciding in place


def test_what_waits_and_what_comes_is_shown_asked_and_carried_out(place: Path) -> None:
    begin()
    with watch() as desk:
        desk.sees(r"Watching what waits\. Ctrl-C stops it\.")
        desk.sees("\x07")
        desk.sees("user  Refund order 1042")
        desk.sees("Approval needed: refund")
        desk.sees("token     secret     not shown")
        desk.sees(CHOICE)
        desk.types("a")
        desk.sees("runs refund")
        desk.sees(r"It was approved by rita \(cli\) at ")
        desk.sees(r"The run is completed\.")
        begin("Refund order 2077", thread="t2")
        desk.sees("\x07")
        desk.sees("order_id  integer   2077")
        desk.sees(CHOICE)
        desk.types("r")
        desk.sees("Why")
        desk.types("no receipt")
        desk.sees(r"It was rejected by rita \(cli\) at ")
        begin("Refund order 3011", thread="t3")
        desk.sees("order_id  integer   3011")
        desk.sees(CHOICE)
        desk.types("e")
        desk.sees(r"order_id \(integer\) \[3011\]: ")
        desk.types("")
        desk.sees(r"amount \(number\) \[49.9\]: ")
        desk.types("20")
        desk.sees(r"note \(text\)")
        desk.types("")
        desk.sees(r"token \(text\) \[not shown\]: ")
        desk.types("")
        desk.sees("changed; the model asked for 49.9")
        desk.sees(CHOICE)
        desk.types("a")
        desk.sees("It was approved, with edited arguments, by rita")
        leaves(desk)
    assert (refunds(), waiting()) == (["1042 49.9 s3cret", "3011 20.0 s3cret"], [])


def test_ctrl_c_at_the_question_decides_nothing(place: Path) -> None:
    (item,) = begin().pending
    with watch() as desk:
        desk.sees(CHOICE)
        desk.child.send("a")
        leaves(desk)
    assert (refunds(), waiting()) == ([], [item.id])
    with watch() as desk:
        desk.sees(CHOICE)
        desk.presses("d")
        assert desk.status() == cli.PENDING
    assert desk.text.splitlines()[-1].startswith("The input has ended. This shows what waits: phronomy pending ")


def test_ctrl_c_while_the_tool_runs_says_how_it_stands(place: Path) -> None:
    checkpoint = begin()
    (place / "hang").touch()
    with watch() as desk:
        desk.sees(CHOICE)
        desk.types("a")
        comes(place / "hanging")
        desk.presses("c")
        assert desk.status() == cli.INTERRUPTED
    (place / "hang").unlink()
    assert f"go on with: phronomy recover {checkpoint.run_id} " in desk.text.splitlines()[-1]


def test_without_the_app_the_decision_is_recorded_by_what_was_shown(place: Path) -> None:
    (item,) = begin().pending
    with watch(app=None) as desk:
        desk.sees(CHOICE)
        desk.types("a")
        desk.sees("without --app it is not known which arguments are secret: --reveal shows them")
        leaves(desk)
    assert waiting() == [item.id]
    with watch("--reveal", "--by", "olga", app=None) as desk:
        desk.sees('token     text       "s3cret"')
        desk.sees(CHOICE)
        desk.types("a")
        desk.sees(r"It was approved by olga \(cli\) at ")
        desk.sees("phronomy work --app MODULE:AGENT")
        leaves(desk)
    assert (refunds(), waiting()) == ([], [])
    assert decided(item.id).digest == item.digest


def test_what_is_decided_elsewhere_while_the_question_stands_is_told_and_not_decided_twice(place: Path) -> None:
    (item,) = begin().pending
    with watch() as desk:
        desk.sees(CHOICE)
        desk.child.send("a")  # and no Enter: it is no answer to what comes next
        begin("Refund order 2077", thread="t2")
        with SQLiteStore("runs.db") as store:
            store.decide(item.id, Reject(), by="olga", digest=item.digest, channel="inbox")
        desk.sees(rf"{item.id}  was rejected by olga \(inbox\) at ")
        desk.sees("order_id  integer   2077")
        desk.sees(CHOICE)
        desk.types("l")
        desk.sees("Left for later")
        leaves(desk)
    assert refunds() == [] and len(waiting()) == 1 and decided(item.id).by.id == "olga"


def test_what_is_decided_in_the_last_moment_is_refused(place: Path) -> None:
    (item,) = begin().pending
    with terminal("watch", "--poll", "600") as desk:
        desk.sees(CHOICE)
        with SQLiteStore("runs.db") as store:
            store.decide(item.id, Reject(), by="olga", digest=item.digest, channel="inbox")
        desk.types("a")
        desk.sees(r"phronomy: error: this was decided before: rejected by olga \(inbox\)")
        leaves(desk)
    assert refunds() == [] and decided(item.id).by.id == "olga"


def test_what_could_not_be_recorded_is_asked_about_again(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = begin().pending
    asked: list[str] = []

    def ask(request: Any, *given: object, **more: object) -> Reject:
        asked.append(request.pending.id)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return Reject()

    def fails(*given: object, **more: object) -> None:
        raise StoreError("the store is away")

    monkeypatch.setattr(Screen, "interactive", property(lambda screen: True))
    monkeypatch.setattr("phronomy.cli.commands.watch.ask_answer", ask)
    monkeypatch.setattr("phronomy.cli.commands.watch.record", fails)
    assert run("watch", *SOON, "--reveal", app=None) == cli.DONE
    assert asked == [item.id] * 3 and capsys.readouterr().err.count("the store is away") == 2
    assert (waiting(), decided(item.id)) == ([item.id], None)


HOSTILE = "\x1b[2J\x1b]0;gone\x07\x1b[5A\u202e\x9b1;1H"


def governed(store: SQLiteStore, **gate: Any) -> Agent[Any, str]:
    @tool(requires_approval=Approval(title=HOSTILE, **gate))
    def pay(note: str) -> str:
        return "paid"

    model = ScriptedModel.by_turn([call("pay", {"note": HOSTILE}), "Done."])
    return Agent(name="till", model=model, tools=[pay], store=store)


def test_hostile_text_moves_no_cursor(place: Path) -> None:
    with SQLiteStore("runs.db") as store:
        governed(store).invoke(HOSTILE)
    with watch("--reveal", "--notice", "none", app=None) as desk:
        desk.sees(CHOICE)
        desk.types("l")
        leaves(desk)
    shown = desk.seen.getvalue()
    for each in ("\x1b[2J", "\x1b]", "\x07", "\x1b[5A", "\u202e", "\x9b"):
        assert each not in shown
    assert r"\x1b[2J" in desk.text and r"\u202e" in desk.text


def test_a_vote_is_not_asked_for_twice_and_a_wrong_person_is_told(place: Path) -> None:
    with SQLiteStore("runs.db") as store:
        (item,) = governed(store, needed=2).invoke("pay").checkpoint.pending
        (other,) = governed(store, by=["olga"]).invoke("pay").checkpoint.pending
    with watch("--reveal", app=None) as desk:
        desk.sees(CHOICE)
        desk.types("a")
        desk.sees("The vote is recorded")
        desk.sees(CHOICE)
        desk.types("a")
        desk.sees("phronomy: error: .*olga")
        with SQLiteStore("runs.db") as store:
            store.decide(item.id, Approve(), by="olga", digest=item.digest, channel="inbox")
        desk.sees(rf"{item.id}  was approved by olga \(inbox\)")
        leaves(desk)
    assert waiting() == [other.id]


def test_once_asks_about_what_waits_and_ends(place: Path) -> None:
    with SQLiteStore("runs.db"):
        pass
    with watch("--once", app=None) as desk:
        assert desk.status() == cli.DONE
    assert desk.text == "Nothing waits for a decision.\n"
    begin()
    begin("Refund order 2077", thread="t2")
    with watch("--once") as desk:
        desk.sees(CHOICE)
        desk.types("l")
        desk.sees(CHOICE)
        desk.types("a")
        assert desk.status() == cli.PENDING
    assert refunds() == ["2077 49.9 s3cret"]
    with watch("--once") as desk:
        desk.sees(CHOICE)
        desk.types("a")
        assert desk.status() == cli.DONE


# Without a question


def test_notify_only_says_what_waits_and_what_has_become_of_it(place: Path) -> None:
    (item,) = begin().pending
    with watch("--notify-only", "--notice", "osc9", app=None) as desk:
        desk.sees(r"Watching what waits, and asking nobody\.")
        desk.sees(f"{item.id}  refund of desk waits for approval")
        desk.sees("\x1b]9;phronomy: refund of desk waits for approval\x07")
        (second,) = begin("Refund order 2077", thread="t2").pending
        desk.sees(f"{second.id}  refund of desk waits for approval")
        with SQLiteStore("runs.db") as store:
            store.decide(item.id, Reject(), by="olga", digest=item.digest, channel="inbox")
        desk.sees(rf"{item.id}  was rejected by olga \(inbox\) at ")
        leaves(desk)


def test_for_machines_it_is_a_line_of_json_for_each(place: Path) -> None:
    (item,) = begin().pending
    line = [sys.executable, "-m", "phronomy", "watch", "--json", "--store", STORE, *SOON]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        first = json.loads(child.stdout.readline())
        assert (first["event"], first["pending_id"], first["tool_name"]) == ("waits", item.id, "refund")
        assert first["masked"] and "label" in first
        with SQLiteStore("runs.db") as store:
            store.decide(item.id, Reject(), by="olga", digest=item.digest, channel="inbox")
        second = json.loads(child.stdout.readline())
        assert (second["event"], second["pending_id"]) == ("over", item.id)
        assert (second["decision"]["kind"], second["decision"]["by"]) == ("reject", "olga")
        child.send_signal(signal.SIGINT)
        assert child.stdout.read() == ""
        assert child.wait(PATIENCE) == cli.DONE


def test_in_a_pipe_nobody_is_asked(said: Callable[[], str], told: Callable[[], str]) -> None:
    (item,) = begin().pending
    said()
    assert run("watch", "--once", app=None) == cli.PENDING
    assert said() == f"  {item.id} refund of desk waits for approval\n"
    assert run("watch", "--once", "--tool", "other", app=None) == cli.DONE
    assert said() == "Nothing waits for a decision.\n"
    assert run("watch", "--once", "--json", "--thread", "t1", app=None) == cli.PENDING
    assert json.loads(said())["pending_id"] == item.id
    assert run("watch", "--once", "--json", "--agent", "other", app=None) == cli.DONE
    assert said() == ""
    with SQLiteStore("runs.db") as store:
        store.delete(item_run(store, item.id), force=True)
    assert run("watch", "--once", app=None, store="sqlite:///none.db") == cli.FAILED
    assert "there is no file" in told()


@pytest.mark.parametrize("command", ["watch", "work"])
@pytest.mark.parametrize("seconds", ["inf", "1e20", "nan", "0", "-1"])
def test_the_time_between_two_looks_is_one_that_can_be_waited(
    place: Path, told: Callable[[], str], command: str, seconds: str
) -> None:
    assert run(command, "--poll", seconds, app=None) == cli.MISUSED
    assert "--poll" in told()


def item_run(store: SQLiteStore, pending_id: str) -> str:
    return store.request(pending_id).run_id


def test_a_run_that_is_deleted_is_told_of(place: Path) -> None:
    (item,) = begin().pending
    with watch("--notify-only", app=None) as desk:
        desk.sees(f"{item.id}  refund of desk waits")
        with SQLiteStore("runs.db") as store:
            store.delete(item_run(store, item.id), force=True)
        desk.sees(f"{item.id}  is withdrawn: its run has ended")
        leaves(desk)


# Notices


@pytest.mark.parametrize(
    ("notice", "environ", "sequence"),
    [
        (Notice.BELL, {}, "\x07"),
        (Notice.NONE, {}, ""),
        (Notice.DESKTOP, {}, ""),
        (Notice.OSC9, {}, "\x1b]9;phronomy: a; b waits\x07"),
        (Notice.OSC777, {}, "\x1b]777;notify;phronomy;a, b waits\x07"),
        (Notice.AUTO, {"TERM": "xterm-256color"}, "\x07"),
        (Notice.AUTO, {"TERM_PROGRAM": "WezTerm"}, "\x1b]9;phronomy: a; b waits\x07"),
        (Notice.AUTO, {"KITTY_WINDOW_ID": "1"}, "\x1b]9;phronomy: a; b waits\x07"),
        (Notice.AUTO, {"TERM": "foot"}, "\x1b]777;notify;phronomy;a, b waits\x07"),
        (Notice.AUTO, {"TERM": "tmux-256color", "TERM_PROGRAM": "iTerm.app"}, "\x07"),
        (Notice.AUTO, {"TMUX": "/tmp/x", "KITTY_WINDOW_ID": "1"}, "\x07"),
    ],
)
def test_a_notice_is_what_the_terminal_knows(notice: Notice, environ: dict[str, str], sequence: str) -> None:
    assert sequence_of(notice, "a; b waits", environ) == sequence


def test_a_notice_says_nothing_that_is_acted_on() -> None:
    for notice in (Notice.OSC9, Notice.OSC777):
        found = sequence_of(notice, HOSTILE * 20 + "\u0430dmin \U0001f600", {})
        assert re.fullmatch(r"\x1b\][ -~]{1,150}\x07", found)
    assert plain("x" * 101) == "x" * 97 + "..."


def test_the_desktop_is_told_by_its_own_program(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = place / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    assert program() is None
    with SQLiteStore("runs.db"):
        pass
    assert run("watch", "--once", "--notice", "desktop", app=None) == cli.MISUSED
    for name in ("notify-send", "osascript"):
        script = tools / name
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {place}/{name}.txt\n')
        script.chmod(0o755)
        monkeypatch.setattr(sys, "platform", "linux" if name == "notify-send" else "darwin")
        command = program()
        assert command is not None and os.path.basename(command[0]) == name
        show(command, "<b>pay & go</b> of till waits")
    assert (place / "notify-send.txt").read_text().splitlines() == [
        *("--app-name=phronomy", "--", "phronomy", "&lt;b&gt;pay &amp; go&lt;/b&gt; of till waits"),
    ]
    assert (place / "osascript.txt").read_text().splitlines()[-1] == "<b>pay & go</b> of till waits"
    show([str(tools / "none")], "nobody shows it")

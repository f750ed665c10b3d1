"""The commands that decide and carry on: what they show and refuse, and what they then run, once."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE
from test_cli_runs import APP, STORE, begin, place, refunds, run, said, told, waiting

from phronomy import Approve, SQLiteStore, cli
from phronomy.cli.commands import decide
from phronomy.foundation.json_text import JsonText, canonical
from phronomy.records.decisions import PendingApproval, call_digest

__all__ = ["place", "said", "told"]  # fixtures


def test_approved_it_runs_once_and_the_run_goes_on_here(said: Callable[[], str]) -> None:
    (item,) = begin().pending
    said()
    assert run("approve", item.id, "--yes", "--reveal") == cli.DONE
    shown = said()
    assert re.search(r"\nIt was approved by rita \(cli\) at \d\d:\d\d:\d\d UTC\.\nThe run is completed\.\n$", shown)
    assert "  tool      runs refund\n" in shown
    assert "  tool      49.9 euros for order 1042 are on their way\n  model     Done.\n" in shown
    assert (refunds(), waiting()) == (["1042 49.9 s3cret"], [])


def test_what_is_carried_out_elsewhere_is_shown_so_and_answered(
    said: Callable[[], str], capsys: pytest.CaptureFixture[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command approves it; `respond` gives what came of it."""
    monkeypatch.syspath_prepend(str(place))
    import desk

    with SQLiteStore("runs.db") as kept:
        agent = desk.phoning()
        agent.store = kept
        [item] = agent.invoke("Where?", thread_id="t1").checkpoint.pending
    said()
    app = "desk:phoning"
    assert run("show", item.id, app=app) == cli.DONE
    assert "Result needed: locate is carried out elsewhere\n" in said()
    assert run("pending", app=app) == cli.DONE
    assert re.search(rf"{item.id} .* external", said())
    for command in (["approve", item.id], ["edit", item.id, "--args", '{"accuracy": 5}']):
        for yes in ([], ["--yes"]):
            assert run(*command, *yes, app=app) == cli.FAILED
            printed = capsys.readouterr()
            assert printed.out == "" and "is carried out elsewhere, so nothing here can run it" in printed.err
            assert f"phronomy respond {item.id}" in printed.err
    assert waiting() == [item.id]
    assert run("respond", item.id, "in Graz", "--yes", app=app) == cli.DONE
    assert "The run is completed." in said()


def test_for_machines_the_result_is_one_document_and_tools_print_elsewhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint = begin("Refund orders 1042 and 2000")
    first, second = checkpoint.pending
    capsys.readouterr()
    assert run("approve", first.id, "--yes", "--reveal", "--json", "--by", "olga") == cli.PENDING
    printed = capsys.readouterr()
    assert "refunding" in printed.err
    document = json.loads(printed.out)
    assert list(document) == [
        "run_id", "branch_id", "thread_id", "agent", "checkpoint_id", "status", "output", "pending", "decision",
    ]  # fmt: skip
    assert (document["status"], document["output"]) == ("suspended", None)
    assert [each["pending_id"] for each in document["pending"]] == [second.id]
    assert (document["decision"]["kind"], document["decision"]["by"]) == ("approve", "olga")
    assert run("approve", second.id, "--yes", "--reveal", "--json") == cli.DONE
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["output"], document["pending"]) == ("completed", "Done.", [])
    assert refunds() == ["1042 49.9 s3cret", "2000 49.9 s3cret"]


def test_an_agent_with_anything_async_in_it_runs_in_an_event_loop(said: Callable[[], str]) -> None:
    (item,) = begin().pending
    said()
    assert run("approve", item.id, "--yes", "--reveal", app="desk:asynchronous") == cli.DONE
    assert "The run is completed." in said()
    assert refunds() == ["1042 49.9 s3cret"]


def test_without_yes_and_without_a_terminal_nothing_is_decided(said: Callable[[], str], place: Path) -> None:
    (item,) = begin().pending
    said()
    for command in (("approve",), ("reject",), ("respond",), ("edit",)):
        rest = {"respond": ["done"], "edit": ["--args", '{"order_id": 7}']}.get(command[0], [])
        assert run(*command, item.id, *rest) == cli.PENDING
        shown = said()
        assert "Approval needed: refund\n" in shown
        how = "Only a terminal is asked: give --yes to decide without."
        assert " ".join(shown.split()).endswith(f"Nothing was decided: {item.id} still waits. {how}")
    assert (refunds(), waiting()) == ([], [item.id])


def test_more_than_one_decision_must_be_named(told: Callable[[], str], said: Callable[[], str]) -> None:
    checkpoint = begin("Refund orders 1042 and 2000")
    first, second = checkpoint.pending
    said()
    for id in (checkpoint.run_id, checkpoint.id):
        assert run("approve", id, "--yes", "--reveal") == cli.MISUSED
        assert f"{id} waits for 2 decisions: name one of {first.id}, {second.id} (phronomy approve --help" in told()
    assert run("approve", second.id, "--yes", "--reveal") == cli.PENDING
    assert (
        f"\nThe run waits for 1 more:\n  refund    phronomy approve {first.id} --app desk:make --store {STORE}\n"
        in said()
    )
    assert run("reject", checkpoint.id, "--yes") == cli.DONE, "one of its two is decided, so the other is meant"
    said()
    assert refunds() == ["2000 49.9 s3cret"]


def test_yes_decides_only_on_what_its_name_or_digest_pins(told: Callable[[], str], said: Callable[[], str]) -> None:
    """A run may ask for something else by now."""
    checkpoint = begin()
    (item,) = checkpoint.pending
    said()
    assert run("approve", checkpoint.run_id, "--yes", "--reveal") == cli.MISUSED
    assert f"a run may ask for something else by now: name {item.id} (" in told()
    assert run("approve", checkpoint.run_id, "--yes", "--reveal", "--digest", "abc") == cli.MISUSED
    assert "--digest takes 12 characters of the digest, or more" in told()
    assert run("approve", checkpoint.run_id, "--yes", "--reveal", "--digest", "0" * 64) == cli.FAILED
    assert f"pending {item.id} has the digest {item.digest}, and not the one that was shown" in told()
    assert (refunds(), waiting()) == ([], [item.id])
    assert run("approve", checkpoint.run_id, "--yes", "--reveal", "--digest", item.digest[:16]) == cli.DONE
    assert refunds() == ["1042 49.9 s3cret"]


def test_yes_approves_nothing_that_is_masked_unless_it_is_revealed(
    told: Callable[[], str], said: Callable[[], str]
) -> None:
    """Nobody is asked, so nobody would have seen it. Rejecting runs nothing, and asks for nothing."""
    checkpoint = begin("Refund orders 1042 and 2000")
    first, second = checkpoint.pending
    said()
    edited = ("--args", '{"order_id": 7, "token": "[redacted]"}', "--json")
    for line in (("approve", first.id), ("approve", first.id, "--json"), ("edit", first.id, *edited)):
        assert run(*line, "--yes") == cli.MISUSED
        assert told() == (
            f"phronomy: error: token of {first.id} is masked, and --yes runs it with nobody asked:"
            f" --reveal shows what is masked, and goes with --yes (phronomy {line[0]} --help tells more)"
        )
    assert run("approve", first.id, "--yes", app="desk:other") == cli.MISUSED
    assert f"amount, note, order_id, token of {first.id} are masked" in told()
    assert (refunds(), waiting(), said()) == ([], [first.id, second.id], "")
    assert run("approve", first.id, "--yes", "--reveal") == cli.PENDING
    assert '  token     text      "s3cret"\n' in said()
    assert run("reject", second.id, "--yes") == cli.DONE
    assert refunds() == ["1042 49.9 s3cret"]


def test_rejected_the_model_reads_why_and_then_says_what_follows(said: Callable[[], str]) -> None:
    ends = {}
    for then in ("continue", "block", "block_tool", "end"):
        (item,) = begin(thread=then).pending
        said()
        assert run("reject", item.id, "--yes", "--reason", "no receipt", "--then", then) == cli.DONE
        shown = said()
        assert "Reason: no receipt" in shown.replace("\n            ", " ")
        ends[then] = shown.splitlines()[-1]
    assert ends == {
        "continue": "The run is completed.",
        "block": "The run is completed.",
        "block_tool": "The run is completed.",
        "end": "The run is rejected.",
    }
    assert refunds() == []
    with SQLiteStore("runs.db") as store:
        assert [each.then for name in ends for each in store.latest(name).decisions] == list(ends)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rest", "stdin", "read"),
    [
        (["done by hand"], "", "done by hand"),
        (["-"], "done\nby hand\n", "done\nby hand\n"),
        (["--json-content", '{"paid": [1.0, null]}'], "", '{"paid":[1.0,null]}'),
        (["--json-content", "-"], "[true]", "[true]"),
        (["--", "-5"], "", "-5"),
    ],
)
def test_a_human_gives_the_result(
    rest: list[str], stdin: str, read: str, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = begin().pending
    said()
    monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
    assert run("respond", "--yes", item.id, *rest) == cli.DONE
    with SQLiteStore("runs.db") as store:
        result = store.latest("t1").messages[2]  # type: ignore[union-attr]
    assert (result.settlement, result.text) == ("responded", read)
    assert refunds() == []


def test_edited_arguments_are_validated_and_shown_and_what_is_hidden_stays(
    told: Callable[[], str], said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = begin().pending
    said()
    for args, why in (
        ("{", "JSON"),
        ("[7]", "must be a JSON object"),
        ('{"order_id": "x"}', "order_id"),
        ('{"order_id": 7, "amount": -1}', "greater than 0"),
        ('{"order_id": 7, "colour": "red"}', "colour"),
        ('{"order_id": 7, "order_id": 8}', "order_id"),
        ("{}", "order_id"),
    ):
        assert run("edit", item.id, "--yes", "--json", "--args", args) == cli.FAILED
        line = told()
        assert why in line
        assert line.endswith("; nothing was decided")
    assert (refunds(), waiting()) == ([], [item.id])
    same = '{"order_id": 1042, "amount": 49.9, "note": "", "token": "[redacted]"}'
    assert run("edit", item.id, "--yes", "--args", same) == cli.PENDING
    assert "The arguments are as they were.\n" in said()
    monkeypatch.setattr(decide, "confirm", lambda *given, **how: True)  # somebody who sees it says yes
    assert run("edit", item.id, "--args", '{"order_id": 7, "note": "\\u202e", "token": "[redacted]"}') == cli.DONE
    shown = said()
    assert (
        """
To be run: refund
  order_id  integer   7
                      changed; the model asked for 1042
  amount    number    49.9
  note      text      "\\u202e"
                      changed; the model asked for ""
  token     secret    not shown
"""
        in shown
    )
    assert "It was approved, with edited arguments, by rita (cli)" in shown
    assert refunds() == ["7 49.9 s3cret"], "the mask is not an argument"
    said()
    assert run("show", item.id, "--json") == cli.DONE
    assert json.loads(said())["decided"]["edited"] is True
    with SQLiteStore("runs.db") as store:
        ended = store.latest("t1")
    assert ended is not None
    said()
    for reveal, seen in (([], "[redacted]"), (["--reveal"], "s3cret")):
        assert run("show", ended.id, *reveal) == cli.DONE
        assert seen in said().replace("\n            ", " "), "what was edited in is quoted in the result"


def test_without_the_app_the_first_line_says_how_to_see_the_arguments(said: Callable[[], str]) -> None:
    (item,) = begin().pending
    said()
    hidden = "Arguments are hidden: give --app module:agent, or --reveal to see secrets."
    for options, is_first in (([], True), (["--reveal"], False)):
        assert cli.run(["show", item.id, "--store", "sqlite:///runs.db", *options]) == cli.DONE
        assert (said().partition("\n")[0] == hidden) == is_first
    assert run("show", item.id) == cli.DONE  # with the app
    shown = said()
    assert hidden not in shown and "1042" in shown


def test_the_mask_keeps_a_secret_also_where_it_is_revealed(said: Callable[[], str]) -> None:
    """`--yes` asks for `--reveal`, and the text that stands for a secret does not become one by that. Elsewhere it is a text."""
    (item,) = begin().pending
    edited = '{"order_id": 7, "amount": 49.9, "note": "[redacted]", "token": "[redacted]"}'
    assert run("edit", item.id, "--args", edited, "--yes", "--reveal") == cli.DONE
    with SQLiteStore("runs.db") as store:
        [taken] = store.latest("t1").decisions  # type: ignore[union-attr]
    assert taken.args == {"order_id": 7, "amount": 49.9, "note": "[redacted]", "token": "s3cret"}
    assert refunds() == ["7 49.9 s3cret"]


def test_a_changed_secret_is_told_and_not_shown(said: Callable[[], str]) -> None:
    (item,) = begin().pending
    said()
    assert run("edit", item.id, "--yes", "--args", '{"order_id": 1042, "token": "n3w"}') == cli.DONE
    shown = said()
    assert "  token     secret    not shown; changed\n" in shown
    assert "n3w" not in shown
    assert refunds() == ["1042 49.9 n3w"]


def editor(place: Path, script: str) -> str:
    path = place / "my editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"'{path}' --wait"


def test_edit_opens_the_editor_with_the_arguments(
    place: Path, said: Callable[[], str], told: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = begin().pending
    said()
    assert run("edit", item.id, "--yes", "--json") == cli.MISUSED
    assert "set EDITOR, or give the arguments with --args JSON" in told()
    monkeypatch.setenv("EDITOR", "vi '")
    assert run("edit", item.id, "--yes", "--json") == cli.MISUSED
    assert "the command in VISUAL or EDITOR cannot be read: No closing quotation" in told()
    monkeypatch.setenv("EDITOR", "/nowhere/vi")
    assert run("edit", item.id, "--yes", "--json") == cli.FAILED
    assert told().endswith("the editor /nowhere/vi cannot be started: No such file or directory; nothing was decided")
    monkeypatch.setenv("EDITOR", editor(place, "exit 3"))
    assert run("edit", item.id, "--yes", "--json") == cli.FAILED
    assert told().endswith("ended with status 3; nothing was decided")
    monkeypatch.setenv("EDITOR", editor(place, 'echo "not JSON" > "$2"'))
    assert run("edit", item.id, "--yes", "--json") == cli.FAILED
    assert told().endswith("; nothing was decided")
    assert (refunds(), waiting()) == ([], [item.id])
    monkeypatch.setenv(
        "VISUAL", editor(place, 'cp "$2" seen.json; ls -ld "$(dirname "$2")" > mode; sed -i s/49.9/20/ "$2"')
    )
    monkeypatch.setattr(decide, "confirm", lambda *given, **how: True)  # somebody who sees it says yes
    assert run("edit", item.id) == cli.DONE
    assert json.loads((place / "seen.json").read_text()) == {
        "order_id": 1042,
        "amount": 49.9,
        "note": "",
        "token": "[redacted]",
    }
    assert (place / "mode").read_text().startswith("drwx------")
    assert refunds() == ["1042 20.0 s3cret"]


# Somebody else


def test_what_was_decided_is_not_decided_again_and_it_is_told_who_did(
    told: Callable[[], str], said: Callable[[], str]
) -> None:
    checkpoint = begin()
    (item,) = checkpoint.pending
    assert run("reject", item.id, "--yes", "--by", "olga") == cli.DONE
    said()
    who = r"phronomy: error: this was decided before: rejected by olga \(cli\) at [0-9:]{8} UTC; the run has ended"
    assert run("approve", item.id, "--yes", "--reveal") == cli.FAILED
    assert re.fullmatch(who, told())
    assert run("approve", checkpoint.id, "--yes", "--reveal", "--json") == cli.FAILED
    assert re.fullmatch(who, told())
    assert run("approve", checkpoint.run_id) == cli.FAILED
    assert f"nothing waits for a decision at {checkpoint.run_id}: the run is completed" in told()
    assert run("approve", "pend_0", "--yes", "--reveal") == cli.FAILED
    assert "the store knows no pending approval, checkpoint or run pend_0" in told()
    assert refunds() == []


LISTED, LOGGED = "phronomy_pending", "phronomy_log"


def tamper(item: PendingApproval, *tables: str) -> None:
    """Somebody who can write to the file, and who knows how digests are made, asks for 9999 euros."""

    def quoted(text: str) -> str:
        return json.dumps(text)[1:-1]

    def digests(*texts: str) -> tuple[str, ...]:
        return tuple(call_digest(item.tool, text) for text in texts)

    text = canonical(item.args)
    forged = text.replace("49.9", "9999.0")
    with closing(sqlite3.connect("runs.db")) as db, db:
        for table in tables:
            for old, new in ((text, forged), (quoted(text), quoted(forged)), digests(text, forged)):
                db.execute(f"UPDATE {table} SET body = replace(body, ?, ?)", (old, new))
    with SQLiteStore("runs.db") as store:
        (listed,) = store.pending()
        (logged,) = store.load(listed.checkpoint_id).pending
    found = (listed.approval.args["amount"], logged.args["amount"])
    assert found == (9999.0 if LISTED in tables else 49.9, 9999.0 if LOGGED in tables else 49.9), (
        "each is valid in itself"
    )


@pytest.mark.parametrize("table", [LISTED, LOGGED])
def test_what_is_listed_otherwise_than_it_would_run_is_neither_shown_nor_decided(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = begin()
    (item,) = checkpoint.pending
    tamper(item, table)
    capsys.readouterr()
    error = f"phronomy: error: pending {item.id} does not show what would run at checkpoint {checkpoint.id}"
    for app in ("desk:make", "desk:asynchronous", None):
        for line in (
            ("approve", item.id, "--yes", "--reveal"),
            ("approve", checkpoint.run_id),
            ("reject", item.id, "--yes"),
            ("respond", item.id, "done", "--yes"),
            *([("edit", item.id, "--yes", "--reveal", "--args", '{"order_id": 7}')] if app else []),
            ("show", item.id),
        ):
            assert run(*line, app=app) == cli.FAILED, (app, line)
            found = capsys.readouterr()
            assert (found.out, error in found.err) == ("", True), (app, line)
            assert "Nothing was decided, and it still waits" in found.err.replace("\n", " ")
    assert (refunds(), waiting()) == ([], [item.id])
    # By the checkpoint, what would run is shown, and runs.
    amount = "49.9" if table == LISTED else "9999.0"
    assert run("approve", checkpoint.id, "--yes", "--reveal") == cli.DONE
    assert f"amount    number    {amount}\n" in capsys.readouterr().out
    assert refunds() == [f"1042 {amount} s3cret"]


def test_what_is_listed_otherwise_is_not_decided_with_others(told: Callable[[], str], said: Callable[[], str]) -> None:
    first, second = begin().pending[0], begin("Refund order 2000", "t2").pending[0]
    with closing(sqlite3.connect("runs.db")) as db, db:
        forged = canonical(second.args).replace("2000", "2001")
        body = second.evolve(args=JsonText(forged), digest=call_digest(second.tool, forged)).model_dump_json()
        db.execute(f"UPDATE {LISTED} SET body = ? WHERE pending_id = ?", (body, second.id))
    said()
    assert run("reject", first.id, second.id, "--yes", app=None) == cli.FAILED
    printed = said()
    assert f"{first.id} was rejected" in printed
    assert f"{second.id} was not decided: pending {second.id} does not show what would run" in printed.replace(
        "\n", " "
    )
    assert waiting() == [second.id]


@pytest.mark.parametrize("command", ["approve", "edit"])
def test_what_changes_between_showing_and_deciding_is_an_error(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = begin()
    (item,) = checkpoint.pending

    def tampered(*_: Any, **how: Any) -> bool:
        tamper(item, LISTED, LOGGED)
        return True

    monkeypatch.setattr(decide, "confirm", tampered)
    rest = ["--args", '{"order_id": 1042, "amount": 20}'] if command == "edit" else []
    capsys.readouterr()
    assert run(command, item.id, *rest) == cli.FAILED
    found = capsys.readouterr()
    assert "49.9" in found.out
    assert not re.search(r"\b9999\b", found.out)
    assert f"phronomy: error: checkpoint {checkpoint.id} differs from the stored one\n" in found.err
    assert refunds() == []


def test_decided_elsewhere_between_showing_and_deciding(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = begin().pending

    def meanwhile(*_: Any, **how: Any) -> bool:
        import desk

        with SQLiteStore("runs.db") as store:
            agent = desk.make()
            agent.store = store
            (here,) = store.pending()
            agent.resume(here.checkpoint_id, decisions={item.id: Approve()}, by="olga", channel="web")
        return True

    monkeypatch.setattr(decide, "confirm", meanwhile)
    assert run("approve", item.id) == cli.FAILED
    assert "phronomy: error: this was decided before: approved by olga (web) at " in capsys.readouterr().err
    assert refunds() == ["1042 49.9 s3cret"]


def test_an_agent_that_has_changed_is_refused_unless_told_otherwise(
    told: Callable[[], str], said: Callable[[], str], place: Path
) -> None:
    (item,) = begin().pending
    said()
    (place / "desk.py").write_text(APP.replace("requires_approval=True, redact", "requires_approval=False, redact"))
    assert run("approve", item.id, "--yes", "--reveal", "--json") == cli.FAILED
    assert "loosened" in (line := told())
    assert line.endswith(". Nothing has happened (--accept-changes goes on all the same)")
    assert waiting() == [item.id]
    assert run("approve", item.id, "--yes", "--reveal", "--json", "--accept-changes") == cli.DONE
    assert refunds() == ["1042 49.9 s3cret"]


def test_a_decision_on_a_run_that_works_elsewhere_is_left_for_its_worker(place: Path, said: Callable[[], str]) -> None:
    begun = begin("Refund orders 1042 and 2000")
    first, second = begun.pending
    (place / "hang").touch()
    script = (
        "import desk\nfrom phronomy import Approve, SQLiteStore\nagent = desk.make()\n"
        "agent.store = SQLiteStore('runs.db')\n"
        f"agent.resume({begun.id!r}, decisions={{{first.id!r}: Approve()}})\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", script], cwd=place, stdout=subprocess.DEVNULL)
    while not (place / "hanging").exists():
        assert worker.poll() is None
    said()
    assert run("approve", second.id, "--yes", "--reveal", "--json") == cli.DONE
    assert json.loads(said())["status"] == "running"
    assert run("recover", begun.run_id, "--yes", "--json") == cli.FAILED, "its worker lives"
    assert said() == ""
    (place / "hang").unlink()
    assert worker.wait(PATIENCE) == 0
    assert run("show", second.id, "--json") == cli.DONE
    assert json.loads(said())["decided"]["kind"] == "approve"
    assert (waiting(), refunds()) == ([], ["1042 49.9 s3cret", "2000 49.9 s3cret"])


# Failures, and carrying on


def test_a_failure_after_the_decision_says_that_it_is_recorded_and_recover_goes_on(
    told: Callable[[], str], said: Callable[[], str], place: Path
) -> None:
    checkpoint = begin()
    (place / "down").touch()
    said()
    assert run("approve", checkpoint.pending[0].id, "--yes", "--reveal", "--json") == cli.FAILED
    again = f"phronomy recover {checkpoint.run_id} --app desk:make --store {STORE}"
    assert told() == (
        f"phronomy: error: the provider is down (The decision is recorded and nothing is lost; go on with: {again})"
    )
    assert refunds() == ["1042 49.9 s3cret"]
    assert run("recover", checkpoint.run_id, "--yes", "--json") == cli.FAILED
    assert "the provider is down" in told()
    (place / "down").unlink()
    assert run("recover", checkpoint.run_id) == cli.PENDING
    assert said().endswith("Nothing was carried on.\n")
    assert run("recover", checkpoint.run_id, "--yes", "--json") == cli.DONE
    (document,) = json.loads(said())
    assert (document["run_id"], document["status"], document["output"], document["error"]) == (
        checkpoint.run_id,
        "completed",
        "Done.",
        None,
    )
    assert run("recover", checkpoint.run_id, "--yes") == cli.DONE, "it has ended, and is as it was"
    assert said().endswith("The run is completed.\n")
    assert refunds() == ["1042 49.9 s3cret"]


def killed(place: Path, said: str, thread: str, *, at: str, app: str = "make") -> None:
    """A run whose worker was killed in the middle of something."""
    (place / at).touch()
    script = (
        "import sys, desk\nfrom phronomy import SQLiteStore\n"
        f"agent = desk.{app}()\nagent.store = SQLiteStore('runs.db', lease=0.2)\n"
        f"result = agent.invoke({said!r}, thread_id={thread!r})\n"
        "if result.suspended: agent.resume(result.checkpoint, approved=True)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", script], cwd=place, stdout=subprocess.DEVNULL)
    noted = place / f"{at}ing"
    while not noted.exists():
        assert worker.poll() is None
    worker.kill()
    worker.wait()
    (place / at).unlink()
    noted.unlink()


def test_recover_finds_the_runs_whose_worker_was_lost_and_carries_each_on(
    place: Path, said: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    begin("Refund order 3000", "waits")
    killed(place, "Hello", "asks", at="think")
    killed(place, "Refund order 1042", "runs", at="hang")
    killed(place, "Hello", "others", at="think", app="other")
    said()
    with SQLiteStore("runs.db") as store:
        held = {each.thread_id: each for each in store.branches()}
        while any(each.lease_until > store.clock() for each in held.values()):
            pass
    assert run("recover") == cli.PENDING
    listed = said()
    assert [line.split()[2] for line in listed.splitlines()[1:-1]] == ["asks", "runs"]
    assert refunds() == ["1042 49.9 s3cret"]
    assert run("recover", "--yes", "--json") == cli.PENDING
    asks, runs = json.loads(said())
    assert (asks["thread_id"], asks["status"], asks["output"]) == ("asks", "completed", "You said: Hello")
    assert (runs["thread_id"], runs["status"]) == ("runs", "suspended")
    assert runs["pending"][0]["why"] == "outcome_unknown"
    assert refunds() == ["1042 49.9 s3cret"], "nobody knows whether it took effect, so it is not run again"
    assert run("recover", "--yes", "--json") == cli.DONE
    assert json.loads(said()) == []
    assert run("recover", "--yes", app="desk:other") == cli.DONE
    assert said().endswith("You said: Hello\nThe run is completed.\n")
    assert run("show", runs["pending"][0]["pending_id"]) == cli.DONE
    assert "  why       The worker was lost while this call ran." in said()


def test_one_run_that_cannot_be_carried_on_does_not_keep_the_others_from_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(place, "Hello", "first", at="think")
    killed(place, "Hello", "second", at="think")
    (place / "down").touch()
    capsys.readouterr()
    with SQLiteStore("runs.db") as store:
        while any(each.lease_until > store.clock() for each in store.branches()):
            pass
    assert run("recover", "--yes", "--json") == cli.FAILED
    found = capsys.readouterr()
    assert [(each["thread_id"], each["error"]) for each in json.loads(found.out)] == [
        ("first", "the provider is down"),
        ("second", "the provider is down"),
    ]
    assert found.err.count("phronomy: error: run_") == 2

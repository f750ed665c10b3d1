"""Deciding at a terminal without the app, and the command that carries it out: `phronomy work`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from drivers import PATIENCE
from test_cli_runs import STORE, begin, place, refunds, run, said, told, waiting

from phronomy import SQLiteStore, cli

__all__ = ["place", "said", "told"]  # fixtures


def status_of(run_id: str) -> str:
    with SQLiteStore("runs.db") as store:
        return store.head(run_id)[0].status


def test_without_the_app_a_decision_is_recorded_and_a_worker_carries_it_out(said: Callable[[], str]) -> None:
    checkpoint = begin()
    (item,) = checkpoint.pending
    said()
    assert run("approve", item.id, "--yes", "--reveal", app=None) == cli.DONE
    shown = said()
    assert re.search(r"\nIt was approved by rita \(cli\) at \d\d:\d\d:\d\d UTC\.\n", shown)
    assert shown.endswith(
        "A worker of the app carries it out. To be one:\n"
        f"  work      phronomy work --app MODULE:AGENT --store {STORE}\n"
    )
    assert (refunds(), waiting(), status_of(checkpoint.run_id)) == ([], [], "suspended")

    assert run("approve", item.id, "--yes", "--reveal", app=None) == cli.FAILED
    said()
    assert run("work", "--once") == cli.DONE
    assert f"{checkpoint.run_id}: completed\n" in said()
    assert refunds() == ["1042 49.9 s3cret"]
    assert run("work", "--once") == cli.DONE
    assert "completed" not in said()
    assert refunds() == ["1042 49.9 s3cret"]


def test_what_nobody_saw_is_not_approved_without_the_app(told: Callable[[], str], said: Callable[[], str]) -> None:
    """Without the app nobody knows which arguments are secret, so all are masked, and `--yes` alone runs nothing unseen."""
    (item,) = begin().pending
    said()
    assert run("approve", item.id, "--yes", app=None) == cli.MISUSED
    assert "masked, and --yes runs it with nobody asked" in told()
    assert run("approve", item.id, app=None) == cli.MISUSED
    assert "since without --app it is not known which arguments are secret: --reveal shows them" in told()
    assert waiting() == [item.id]


def test_a_rejection_and_an_answer_are_recorded_too(said: Callable[[], str]) -> None:
    first, second = (begin(thread=thread).pending[0] for thread in ("t1", "t2"))
    said()
    assert run("reject", first.id, "--yes", "--reason", "too late", app=None) == cli.DONE
    assert run("respond", second.id, "paid in cash", "--yes", app=None) == cli.DONE
    said()
    assert run("work", "--once") == cli.DONE
    assert said().count(": completed\n") == 2
    assert (refunds(), waiting()) == ([], [])
    with SQLiteStore("runs.db") as store:
        results = [store.request(item.id).result for item in (first, second)]
    assert [(each.kind, each.content) for each in results if each is not None] == [
        ("rejected", "A human rejected this call, so it was not run. Reason: too late"),
        ("responded", "paid in cash"),
    ]


def test_for_machines_a_recorded_decision_is_a_document(said: Callable[[], str]) -> None:
    checkpoint = begin()
    (item,) = checkpoint.pending
    said()
    assert run("reject", item.id, "--yes", "--json", "--by", "olga", app=None) == cli.DONE
    document = json.loads(said())
    assert list(document) == [
        *("run_id", "branch_id", "thread_id", "agent", "checkpoint_id", "status", "decision"),
    ]
    assert (document["run_id"], document["status"]) == (checkpoint.run_id, "decided")
    assert (document["decision"]["kind"], document["decision"]["by"]) == ("reject", "olga")


def test_a_run_that_fails_is_told_in_one_line(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    checkpoint = begin()
    (item,) = checkpoint.pending
    assert run("approve", item.id, "--yes", "--reveal", app=None) == cli.DONE
    (place / "down").touch()
    capsys.readouterr()
    assert run("work", "--once") == cli.FAILED
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if line.startswith(checkpoint.run_id)]
    assert len(lines) == 1
    assert "the provider is down" in lines[0]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_worker_that_is_told_to_stop_lets_what_runs_come_to_rest(place: Path, sent: signal.Signals) -> None:
    checkpoint = begin()
    (item,) = checkpoint.pending
    (place / "hang").touch()
    command = [sys.executable, "-m", "phronomy", "work", "--app", "desk:make", "--store", STORE, "--poll", "0.05"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as worker:
        assert worker.stdout is not None
        assert "A worker for desk. Ctrl-C stops it.\n" in iter(worker.stdout.readline, "")
        assert run("approve", item.id, "--yes", "--reveal", app=None) == cli.DONE
        until = time.monotonic() + PATIENCE
        while not (place / "hanging").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        worker.send_signal(sent)
        (place / "hang").unlink()
        out, _ = worker.communicate(timeout=PATIENCE)
    assert out.endswith(f"{checkpoint.run_id}: completed\nStopped. Runs carried out: 1; tries that failed: 0.\n")
    assert worker.returncode == cli.DONE
    assert refunds() == ["1042 49.9 s3cret"]

"""Deciding at a terminal without the app, and the command that carries it out: `phronomy work`."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from drivers import PATIENCE, until
from test_cli_runs import STORE, begin, place, refunds, run, said, told, waiting

from phronomy import Checkpoint, SQLiteStore, cli

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


class Process:
    """A worker in a process of its own, as somebody starts it at a terminal."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "phronomy", "work", "--app", "desk:make", "--store", STORE, "--poll", "0.05"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([*command, *options], **pipes)
        assert self.process.stdout is not None
        self.began: list[str] = []
        for line in self.process.stdout:
            self.began.append(line)
            if line == "A worker for desk. Ctrl-C stops it.\n":
                break

    def stop(self, sent: signal.Signals | None = None) -> tuple[int, str, str]:
        """The exit status and what was printed, once it has ended; by a signal, if one is named."""
        if sent is not None:
            self.process.send_signal(sent)
        out, complaints = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, complaints


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts workers, which are gone after the test."""
    with ExitStack() as stack:

        def started(*options: str) -> Process:
            found = Process(*options)
            stack.callback(found.process.communicate)
            stack.callback(found.process.kill)
            return found

        yield started


def hangs(place: Path, checkpoint: Checkpoint) -> None:
    """Approve the call that a run waits for. It hangs in the worker."""
    assert run("approve", checkpoint.pending[0].id, "--yes", "--reveal", app=None) == cli.DONE
    until((place / "hanging").exists)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_worker_that_is_told_to_stop_lets_what_runs_come_to_rest(
    place: Path, start: Callable[..., Process], sent: signal.Signals
) -> None:
    checkpoint = begin()
    (place / "hang").touch()
    worker = start()
    hangs(place, checkpoint)
    worker.process.send_signal(sent)
    (place / "hang").unlink()
    status, out, complaints = worker.stop()
    assert out.endswith(f"{checkpoint.run_id}: completed\nStopped. Runs carried out: 1; tries that failed: 0.\n")
    assert (status, complaints) == (cli.DONE, "desk is loaded\n")
    assert refunds() == ["1042 49.9 s3cret"]


@pytest.mark.parametrize("way", ["told twice", "grace is over"])
def test_a_worker_leaves_what_does_not_come_to_rest_and_the_next_one_has_a_human_asked(
    place: Path, start: Callable[..., Process], said: Callable[[], str], way: str
) -> None:
    checkpoint = begin()
    (place / "hang").touch()
    worker = start(*([] if way == "told twice" else ["--grace", "0"]))
    hangs(place, checkpoint)
    worker.process.send_signal(signal.SIGTERM)
    if way == "told twice":
        with pytest.raises(subprocess.TimeoutExpired):  # it has been told once, and waits for what runs
            worker.process.wait(0.3)
        worker.process.send_signal(signal.SIGTERM)
    status, out, complaints = worker.stop()
    assert out.endswith("Stopped. Runs carried out: 0; tries that failed: 0.\n")
    left = "runs left in the middle of what they do: 1; the next worker recovers them\n"
    assert (status, complaints) == (cli.DONE, f"desk is loaded\n{left}")
    (place / "hang").unlink()
    said()
    assert run("work", "--once") == cli.DONE
    assert said().endswith(f"{checkpoint.run_id}: suspended\n")
    with SQLiteStore("runs.db") as store:
        assert [waiting.approval.why for waiting in store.pending()] == ["outcome_unknown"]
    assert refunds() == ["1042 49.9 s3cret"], "what may have taken effect is not run again by itself"


def test_a_worker_answers_health_checks(place: Path, start: Callable[..., Process]) -> None:
    """A stranger asks it how it is, while it works and when it stops."""
    checkpoint = begin()
    (place / "hang").touch()
    worker = start("--health", "0")
    (url,) = [line.removeprefix("Health: ").strip() for line in worker.began if line.startswith("Health: ")]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/health", url)

    def asked() -> tuple[int, Any]:
        answer = httpx.get(url, trust_env=False, timeout=PATIENCE)
        return answer.status_code, answer.json()

    (ok,) = until(lambda: [each for each in [asked()] if each[1]["status"] == "ok"])
    assert (ok[0], ok[1]["at_work"], ok[1]["carried_out"]) == (200, 0, 0)
    hangs(place, checkpoint)
    assert asked()[1]["at_work"] == 1
    worker.process.send_signal(signal.SIGTERM)
    (stops,) = until(lambda: [each for each in [asked()] if each[1]["status"] == "stopping"])
    assert (stops[0], stops[1]["is_ok"], stops[1]["at_work"]) == (503, False, 1)
    (place / "hang").unlink()
    assert worker.stop()[0] == cli.DONE


def test_an_address_that_cannot_be_listened_on_is_told_in_one_line(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for given, told in (
            (str(port), f"nobody can listen on 127.0.0.1:{port}: Address already in use"),
            (f"localhost:{port}", f"nobody can listen on localhost:{port}: Address already in use"),
            ("nohost.invalid:80", "nobody can listen on nohost.invalid:80: "),
            (":8080", "':8080' is no address: write a port, such as 8080, or HOST:PORT"),
            ("65536", "'65536' is no address"),
            ("::1:80", "'::1:80' is no address"),
            ("http://localhost:80", "'http://localhost:80' is no address"),
        ):
            capsys.readouterr()
            assert run("work", "--health", given) == cli.MISUSED, given
            (line,) = [each for each in capsys.readouterr().err.splitlines() if each != "desk is loaded"]
            assert line.startswith(f"phronomy: error: {told}"), line
    assert run("work", "--once", "--health", "0") == cli.MISUSED
    assert "leave --health out" in capsys.readouterr().err


def test_decided_runs_of_another_agent_are_told_of(place: Path, start: Callable[..., Process]) -> None:
    """A worker that was started with another app would do nothing, and say nothing."""
    (item,) = begin().pending
    assert run("approve", item.id, "--yes", "--reveal", app=None) == cli.DONE
    command = [sys.executable, "-m", "phronomy", "work", "--app", "desk:other", "--store", STORE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "A worker for other. Ctrl-C stops it.\n"
        assert worker.stdout.readline() == "Not for it, as they are of other agents: decided runs of desk.\n"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == cli.DONE


def test_a_worker_whose_store_is_away_says_so_and_waits_for_it(place: Path) -> None:
    """A database may start later than its workers. What is wrong is told, for whoever has mistyped its address."""
    store = "postgresql://127.0.0.1:1/runs?timeout=1"
    command = [sys.executable, "-m", "phronomy", "work", "--app", "desk:make", "--store", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        told = "The store cannot be read: PostgreSQL at 127.0.0.1:1: no connection"
        assert any(line.startswith(told) for line in worker.stderr)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == cli.DONE


def test_a_store_in_memory_has_nothing_to_carry_out(told: Callable[[], str], said: Callable[[], str]) -> None:
    begin()
    said()
    assert run("work", "--once", store="memory://") == cli.MISUSED
    assert "what is in memory no other process sees" in told()

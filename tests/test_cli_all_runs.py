"""The commands about whole runs: which there are, how each stands, and ending one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from test_cli_runs import begin, place, run, said, told

from phronomy import Agent, SQLiteStore, cli
from phronomy.graph import END, START, StateGraph
from phronomy.stores.rows import Append
from phronomy.testing import ScriptedModel

__all__ = ["place", "said", "told"]  # fixtures


def listed(said: Callable[[], str], *options: str) -> list[dict[str, Any]]:
    """The runs that the command lists for machines."""
    assert run("runs", *options, "--json", app=None) == cli.DONE
    items: list[dict[str, Any]] = json.loads(said())["items"]
    return items


def claimed(run_id: str, *, lease: float) -> None:
    """Another worker holds the run."""
    with SQLiteStore("runs.db") as store:
        branch = store.head(run_id)[0]
        store.append(Append(branch_id=branch.id, seq=branch.seq, take="other", lease=lease, status="running"))


def test_runs_are_listed_with_how_they_stand_and_what_waits(said: Callable[[], str]) -> None:
    waits = begin("Refund orders 1042 and 2000")
    ended = begin("Hello", "t2")
    held, lost = begin("Refund order 1043", "t3"), begin("Refund order 1044", "t4")
    said()
    claimed(held.run_id, lease=600.0)
    claimed(lost.run_id, lease=0.001)
    until = time.monotonic() + 60
    while listed(said)[-1]["held"] and time.monotonic() < until:
        continue
    every = listed(said)
    assert [(each["run_id"], each["status"], each["held"]) for each in every] == [
        (waits.run_id, "suspended", False),
        (ended.run_id, "completed", False),
        (held.run_id, "running", True),
        (lost.run_id, "running", False),
    ]
    assert list(every[0]) == [
        *("run_id", "branch_id", "thread_id", "agent", "checkpoint_id", "status"),
        *("title", "words", "requester", "held", "created_at", "changed_at", "pending_ids"),
    ]
    assert every[0]["pending_ids"] == [item.id for item in waits.pending]
    assert every[0]["created_at"].endswith("+00:00")

    for options, found in {
        ("--status", "suspended"): [waits],
        ("--status", "running", "--status", "completed"): [ended, held, lost],
        ("--status", "running", "--limit", "1"): [lost],
        ("--agent", "nobody"): [],
        ("--status", "failed"): [],
        ("--thread", "t2"): [ended],
    }.items():
        assert [each["run_id"] for each in listed(said, *options)] == [each.run_id for each in found], options

    assert run("runs", app=None) == cli.DONE
    head, first, second, third, fourth = said().splitlines()
    assert head.split() == ["RUN", "ABOUT", "STATUS", "SINCE", "FOR", "AGENT", "THREAD"]
    assert re.fullmatch(rf"{waits.run_id}  refund \(and 1 more\)  suspended .*", first)
    assert re.fullmatch(rf'{ended.run_id}  "Hello" +  completed .*', second)
    assert "running, held by nobody" not in third
    assert "running, held by nobody" in fourth
    assert run("runs", "--status", "failed", app=None) == cli.DONE
    assert said() == "There is no such run.\n"
    assert run("runs", "--status", "lost", app=None) == cli.MISUSED


def test_where_nothing_is_kept_there_is_no_run(said: Callable[[], str]) -> None:
    SQLiteStore("runs.db").close()
    with SQLiteStore("runs.db") as store:
        assert store.branches() == []
    assert run("runs", app=None) == cli.DONE
    assert said() == "No run is kept.\n"


def test_a_run_is_cancelled_without_the_app_where_no_provider_can_be_reached(
    said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phronomy.models.by_name.has_litellm", lambda: False)
    waits = begin("Refund order 1042")
    said()
    assert run("cancel", waits.run_id, "--yes", app=None) == cli.DONE
    assert said().endswith("The run is cancelled.\n")


@pytest.mark.parametrize("app", [None, "desk:make"])
def test_a_run_is_cancelled_by_any_id_of_it(said: Callable[[], str], app: str | None) -> None:
    for which in ("run_id", "checkpoint", "pending"):
        waits = begin("Refund order 1042")
        id = {"run_id": waits.run_id, "checkpoint": waits.id, "pending": waits.pending[0].id}[which]
        assert run("cancel", id, "--yes", "--reason", "closed", "--by", "olga", app=app) == cli.DONE
        shown = said()
        assert any(line.startswith(waits.run_id) for line in shown.splitlines())
        assert shown.endswith("The run is cancelled.\n")
        with SQLiteStore("runs.db") as store:
            ended = store.head(waits.run_id)[1]
            assert (ended.ended, ended.messages[-1].settlement) == ("cancelled", "cancelled")
            assert ended.ending is not None
            assert (ended.ending.reason, ended.ending.by and ended.ending.by.id) == ("closed", "olga")
            assert [record.kind for record in store.audit(run_id=waits.run_id)] == ["cancel"]
    assert not Path("refunds.txt").exists()


def test_nothing_is_cancelled_unless_somebody_says_so(
    said: Callable[[], str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = begin("Refund order 1042")
    assert run("cancel", waits.run_id, app=None) == cli.PENDING
    assert said().endswith("Nothing was cancelled.\n")
    for error, status, line in (
        (EOFError, cli.PENDING, "The input has ended. Nothing was cancelled."),
        (KeyboardInterrupt, cli.INTERRUPTED, "Interrupted. Nothing was cancelled."),
    ):

        def leaves(screen: Any, question: str, error: type[BaseException] = error) -> bool:
            raise error

        monkeypatch.setattr("phronomy.cli.commands.runs.confirm", leaves)
        assert run("cancel", waits.run_id, app=None) == status
        assert capsys.readouterr().err.splitlines()[-1] == line
    for wrong in (("--json",), ("--yes", "--by", "")):
        assert run("cancel", waits.run_id, *wrong, app=None) == cli.MISUSED
    assert run("cancel", "run_0", "--yes", app=None) == cli.FAILED
    with SQLiteStore("runs.db") as store:
        assert store.head(waits.run_id)[1] == waits


def test_a_run_that_works_elsewhere_is_told_and_one_that_has_ended_stays(
    said: Callable[[], str], told: Callable[[], str]
) -> None:
    held, ended = begin("Refund order 1042"), begin("Hello", "t2")
    claimed(held.run_id, lease=600.0)
    said()
    assert run("cancel", held.run_id, "--yes", app=None) == cli.DONE
    assert said().endswith("A worker elsewhere holds the run, and ends it at its next boundary.\n")
    assert run("cancel", ended.run_id, "--yes", "--json", app=None) == cli.FAILED
    assert "has ended" in told()
    other = begin("Refund order 1043", "t3")
    said()
    assert run("cancel", other.run_id, "--yes", "--json", app=None) == cli.DONE
    document = json.loads(said())
    assert (document["run_id"], document["status"], document["pending"]) == (other.run_id, "cancelled", [])


class Job(BaseModel):
    log: str = ""


def test_a_run_of_a_graph_needs_its_app(told: Callable[[], str], said: Callable[[], str], place: Path) -> None:
    program = """
from phronomy.graph import END, START, StateGraph
from pydantic import BaseModel


class Job(BaseModel):
    log: str = ""


def make():
    graph = StateGraph(Job, name="works")
    graph.add_node("first", lambda state: None, requires_approval=True)
    graph.add_edge(START, "first")
    graph.add_edge("first", END)
    return graph.compile()
"""
    (place / "works.py").write_text(program)
    graph = StateGraph(Job, name="works")
    graph.add_node("first", lambda state: None, requires_approval=True)
    graph.add_edge(START, "first")
    graph.add_edge("first", END)
    with SQLiteStore("runs.db") as store:
        waits = graph.compile(store=store).invoke({}).checkpoint
    for app in (None, "desk:make"):
        assert run("cancel", waits.run_id, "--yes", app=app) == cli.MISUSED
        assert f"{waits.run_id} is a run of graph 'works': give that as --app module:graph" in told()
    assert run("cancel", waits.run_id, "--yes", app="works:make") == cli.DONE
    assert said().endswith("The run is cancelled.\n")


def test_an_agent_that_is_paused_says_so(said: Callable[[], str]) -> None:
    with SQLiteStore("runs.db") as store:
        desk: Agent[Any, str] = Agent(name="desk", model=ScriptedModel(["Hello"]), store=store)
        paused = desk.pause(desk.step("Hi").checkpoint, reason="wrong customer").checkpoint
    assert run("show", paused.run_id) == cli.DONE
    assert "\nStopped from outside\n" in said()
    assert [each["pending_ids"] for each in listed(said)] == [[paused.pending[0].id]]

"""The stress, for some seconds: `nox -s stress` is the whole of it. What it would say is said of notes that are made up."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import place_of
from stress_judge import Judge
from stress_worker import Notes, World, now

pytestmark = pytest.mark.unmeasured


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_workers_are_killed_stopped_and_interrupted_and_nothing_is_amiss(kind: str) -> None:
    kills, stops = 30, 6
    command = [sys.executable, str(Path(__file__).parent / "stress.py"), "--stores", kind, "--kills", str(kills)]
    command += ["--deciders", "2", "--harmed", "0.5", "--stops", str(stops)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{kills} kills" in done.stdout and "0 violations" in done.stdout


@pytest.fixture
def world(tmp_path: Path) -> Any:
    with place_of("memory", tmp_path) as place:
        yield World(place, "", Notes(tmp_path / "notes"), mmap.mmap(-1, 1), lease=1.0)


def entered(world: World, slot: str, tool: str, *, note: str = "", strict: bool = False, **facts: Any) -> None:
    line = {"slot": slot, "tool": tool, "key": f"key {slot}", "run": "run_1", "note": note, "strict": strict}
    world.notes.add("enter", **{**line, "begun": 1.0, "wrote": 0.0, **facts})


def laws(world: World) -> list[str]:
    """What does not hold."""
    store = world.open()
    return sorted({violation.law for violation in Judge(world, store).judge()})


def test_the_judge_sees_what_nobody_approved(world: World) -> None:
    entered(world, "1.1/0.0", "gated")
    entered(world, "1.1/0.1", "plain", strict=True)
    assert laws(world) == ["nothing runs unapproved"]


def test_it_sees_what_is_done_twice(world: World) -> None:
    for tool in ("plain", "sure"):
        for _ in range(2):
            entered(world, f"1.1/{tool}", tool)
    assert laws(world) == ["nothing is done twice by itself"]


def test_it_sees_whoever_enters_a_run_that_is_anothers(world: World) -> None:
    entered(world, "1.1/0.0", "plain", wrote=now())
    world.notes.add("holder", slot="1.1/0.0", run="run_1", owner=f"here:{os.getpid()}:x", begun=1.0)
    assert laws(world) == []
    world.notes.add("holder", slot="1.1/0.0", run="run_1", owner="here:1:x", begun=1.0)
    assert laws(world) == ["a worker that lost its lease enters no tool"]
    world.notes.add("stop", begins=now() - 9.0, ends=now() + 9.0)
    assert laws(world) == [], "it was stopped after its last look"


def test_it_sees_what_is_raised_and_what_is_lost(world: World) -> None:
    world.notes.add("invoke", token="1.1", thread=None, shapes=["g"], supersede=False)
    world.notes.add("invoked", token="1.1", run="run_1", status="suspended", output=None)
    world.notes.add("raised", act="invoked", error="KeyError", trace="")
    assert laws(world) == ["nothing is lost", "only documented errors"]


def test_it_sees_whoever_is_told_of_a_decision_that_is_in_no_audit(world: World) -> None:
    item = {"pending": "pend_1", "slot": "1.1/0.0", "why": "approval", "kind": "approve", "note": None, "content": None}
    world.notes.add("decide", token="2.1", run="run_1", items=[item])
    world.notes.add("decided", token="2.1", run="run_1", status="completed", output=None)
    assert laws(world) == ["who won is in the audit"]

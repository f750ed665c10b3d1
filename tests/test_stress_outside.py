"""Deciding with the store alone, while workers die and many decide at once: everything is carried out once, as it was decided."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from selection import scaled

SERVERS = ["sqlite", "postgres", "redis"]

pytestmark = pytest.mark.unmeasured


def stressed(what: str, kind: str, *options: str) -> str:
    """What the stress says of one kind of store. It names its seed, so that it can be done again."""
    script = str(Path(__file__).parent / "stress_outside.py")
    command = [sys.executable, script, what, "--kind", kind, *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", SERVERS)
def test_workers_that_are_killed_at_random_carry_out_all_that_was_decided_once(kind: str) -> None:
    runs, kills = scaled(60, sweep=200), scaled(6, sweep=16)
    said = stressed("kills", kind, "--runs", str(runs), "--kills", str(kills))
    print(said)
    assert f"{runs} runs" in said and " 0 kills" not in said and "\n0 violations" in said


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", SERVERS)
def test_many_who_decide_at_once_while_workers_drive_are_each_told_the_truth(kind: str) -> None:
    """Of sixteen, each call is decided by one, and carried out exactly as that one gave it."""
    runs = scaled(4, sweep=20)
    said = stressed("race", kind, "--runs", str(runs))
    print(said)
    assert f"{5 * runs} calls" in said and "\n0 violations" in said

"""Many processes vote at once while workers are killed: each call runs once, after exactly three right votes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from selection import scaled

pytestmark = pytest.mark.unmeasured


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_each_call_runs_once_after_exactly_three_right_votes(kind: str) -> None:
    """The script names its seed, so that it can be done again; by itself it takes 32 processes and 200 requests."""
    voters, requests, kills = scaled(4, sweep=8), scaled(10, sweep=24), scaled(4, sweep=8)
    script = str(Path(__file__).parent / "stress_votes.py")
    options = ["--voters", str(voters), "--requests", str(requests), "--kills", str(kills), "--pace", "0.1"]
    command = [sys.executable, script, "--kind", kind, *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    assert f"{voters} voters, {requests} requests" in done.stdout and " 0 kills" not in done.stdout
    assert f"{3 * requests} counted" in done.stdout and "\n0 violations" in done.stdout

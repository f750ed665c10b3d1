"""A run that stands at a breakpoint of any kind is killed, and gone on from, by its id alone, in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from drivers import PATIENCE, Driver
from servers import postgres_schema, postgres_url
from stop_worker import PLACES

import phronomy

pytestmark = pytest.mark.unmeasured

PATHS = os.pathsep.join([str(Path(phronomy.__file__).parents[1]), str(Path(__file__).parent)])


def start(driver: Driver, url: str, folder: Path, form: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).with_name("stop_worker.py")), str(driver), url, str(folder), form]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, "PYTHONPATH": PATHS}
    )


def ends(driver: Driver, url: str, folder: Path, form: str) -> dict[str, object]:
    process = start(driver, url, folder, form)
    said, complained = process.communicate(timeout=PATIENCE)
    assert (process.returncode, complained) == (0, "")
    found: dict[str, object] = json.loads(said)
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["stop", "hold"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_killed_at_any_breakpoint_ends_as_one_that_never_stopped(
    driver: Driver, kind: str, form: str, tmp_path: Path
) -> None:
    """Suspended there, or held there by a worker that is alive when it is killed."""
    with postgres_schema() as schema:
        url = f"{postgres_url()} {schema}" if kind == "postgres" else str(tmp_path / "runs.db")
        through = ends(driver, url, tmp_path, "through")
        first = start(driver, url, tmp_path, form)
        assert first.stdout is not None
        line = first.stdout.readline()
        first.kill()
        _, complained = first.communicate()
        assert (line, complained) == ("stopped\n", "")

        after = ends(driver, url, tmp_path, "resume")

    assert after.keys() == {f"{which}-{point}" for which, point in PLACES}
    for which, point in PLACES:
        assert after[f"{which}-{point}"] == through[which], (which, point)
        done, wanted = (Counter((tmp_path / f"{which}-{at}").read_text().splitlines()) for at in (point, "through"))
        assert (done, set(done.values())) == (wanted, {1}), (which, point)

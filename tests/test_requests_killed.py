"""Workers killed at any instant: what happens to each request is told at least once, in order, by one worker or the next."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
import request_worker
from drivers import PATIENCE
from places import Place, place_of
from request_laws import check_told
from request_worker import READY, RUNS
from selection import scaled

from phronomy.events import RequestChanged, event_from
from phronomy.stores.rows import BranchFilter

pytestmark = pytest.mark.unmeasured
KILLS = scaled(5, sweep=8)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place that several processes open, whose leases are soon over."""
    with place_of(request.param, tmp_path) as found:
        yield found


def begin(driver: str, place: Place, told: Path) -> subprocess.Popen[str]:
    """A worker that is about to do the first thing."""
    joined = "&" if "?" in place.url else "?"
    line = [sys.executable, request_worker.__file__, driver, f"{place.url}{joined}lease=0.3", str(told)]
    worker = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None and worker.stdout.readline() == f"{READY}\n"
    return worker


@pytest.mark.few(2)
@pytest.mark.parametrize("driver", ["sync", "async"])
def test_each_request_is_told_at_least_once_and_in_order(driver: str, shared: Place, tmp_path: Path) -> None:
    told, chance = tmp_path / "told", random.Random()
    killed = 0
    for _ in range(KILLS):
        worker = begin(driver, shared, told)
        Event().wait(chance.uniform(0.0, 0.3))
        worker.kill()
        killed += worker.wait(PATIENCE) == -signal.SIGKILL
        assert worker.stdout is not None
        worker.stdout.close()
    last = begin(driver, shared, told)
    said, _ = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, said

    events = [event_from(line) for line in told.read_text().splitlines()]
    store = shared.open()
    found = check_told(store, [event for event in events if isinstance(event, RequestChanged)])
    decided = {record.pending_id for record in store.audit()}
    assert decided == found.keys() and len(found) >= RUNS * 3
    assert Counter(branch.status for branch in store.branches()) == {"completed": RUNS}
    assert store.select_branches(BranchFilter(unannounced=True)) == []
    assert killed > 0

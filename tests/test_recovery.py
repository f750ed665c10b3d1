"""A run that one process leaves and another takes up: laws 3, 5 and 9, with real processes on a real file.

That a worker may die anywhere is in test_crash.py, and that many may come at once in test_store_races.py.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import crash_worker
import pytest
from crash_worker import BOTH, PAY, clerk, effects
from drivers import PATIENCE

from phronomy import Checkpoint, Respond, RunBusy, SQLiteStore

HOUR = 3600.0


@pytest.fixture(scope="module")
def processes() -> Any:
    """Fresh processes that have phronomy imported: as good as new ones, and quick to start."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["phronomy.testing.crash", "phronomy.stores.sql.sqlite"])
    return context


@pytest.fixture
def store(tmp_path: Path) -> Callable[[], SQLiteStore]:
    """What opens the store, in any process."""
    return partial(SQLiteStore, str(tmp_path / "runs.db"))


def run(processes: Any, target: Any, *args: Any) -> int:
    process = processes.Process(target=target, args=args)
    process.start()
    process.join(PATIENCE)
    code: int = process.exitcode
    return code


def suspended(store: Any, replies: Any, folder: Path, **options: Any) -> Checkpoint:
    with store() as opened:
        checkpoint: Checkpoint = clerk(opened, replies, str(folder), **options).invoke("go", thread_id="t").checkpoint
    assert checkpoint.pending
    return checkpoint


def done(folder: Path) -> list[str]:
    return sorted(line.split()[0] for line in effects(folder))


def test_a_run_suspends_in_one_process_and_is_resumed_by_id_in_another(
    processes: Any, store: Any, tmp_path: Path
) -> None:
    """Process A suspends and exits; process B loads by id and goes on. field failure 51"""
    verdicts = processes.Queue()
    checkpoint = suspended(store, BOTH, tmp_path)
    place = (checkpoint.id, checkpoint.pending[0].id)
    assert run(processes, crash_worker.decide, store, str(tmp_path), *place, None, verdicts) == 0
    assert verdicts.get(timeout=PATIENCE) == ("suspended", None)
    assert done(tmp_path) == ["pay"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first-first", "second-first"])
def test_two_people_decide_two_pendings_of_one_checkpoint_from_two_processes(
    processes: Any, store: Any, tmp_path: Path, order: tuple[int, int]
) -> None:
    """Law 3: the later decision is applied at the head of the branch."""
    checkpoint = suspended(store, BOTH, tmp_path)
    verdicts = processes.Queue()
    for place in order:
        args = (store, str(tmp_path), checkpoint.id, checkpoint.pending[place].id, None, verdicts)
        assert run(processes, crash_worker.decide, *args) == 0
    assert [verdicts.get(timeout=PATIENCE) for _ in order] == [("suspended", None), ("completed", "both done")]
    assert done(tmp_path) == ["pay", "wire"]


def test_two_people_decide_two_pendings_at_the_same_moment(processes: Any, tmp_path: Path) -> None:
    """Whoever comes second never waits: a decision that meets a running worker is carried out by that worker."""
    for round in range(8):
        folder = tmp_path / str(round)
        folder.mkdir()
        store = partial(SQLiteStore, str(folder / "runs.db"))
        checkpoint = suspended(store, BOTH, folder)
        start, verdicts = processes.Event(), processes.Queue()
        people = [
            processes.Process(
                target=crash_worker.decide, args=(store, str(folder), checkpoint.id, item.id, start, verdicts)
            )
            for item in checkpoint.pending
        ]
        for person in people:
            person.start()
        start.set()
        said = [verdicts.get(timeout=PATIENCE) for _ in people]
        for person in people:
            person.join(PATIENCE)
            assert person.exitcode == 0
        assert ("completed", "both done") in said
        assert {status for status, _ in said} <= {"completed", "suspended", "running"}
        assert done(folder) == ["pay", "wire"]


@pytest.mark.parametrize("driver", ["sync", "async"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
def test_killed_after_the_claim_recover_asks_or_runs_again(
    processes: Any, store: Any, tmp_path: Path, driver: str, idempotent: bool
) -> None:
    """Law 5: an unknown outcome is put to a human; an idempotent call runs again with the same key. field failure 50"""
    checkpoint = suspended(store, PAY, tmp_path, idempotent=idempotent)
    args = (store, str(tmp_path), checkpoint.id, driver, idempotent)
    assert run(processes, crash_worker.die_paying, *args) == -signal.SIGKILL
    assert done(tmp_path) == ["pay"]

    with store() as busy, pytest.raises(RunBusy):
        clerk(busy, PAY, str(tmp_path), idempotent=idempotent).recover(checkpoint.run_id)

    with store() as opened:
        clock = opened.clock
        opened.clock = lambda: clock() + HOUR
        agent = clerk(opened, PAY, str(tmp_path), idempotent=idempotent)
        result = agent.recover(checkpoint.run_id)
        if idempotent:
            assert (result.status, done(tmp_path)) == ("completed", ["pay", "pay"])
            assert len(set(effects(tmp_path))) == 1
        else:
            assert [(item.tool_name, item.why) for item in result.checkpoint.pending] == [("pay", "outcome_unknown")]
            told = Respond(content="it was paid")
            result = agent.resume(result.checkpoint, decisions={result.checkpoint.pending[0].id: told})
            assert (result.status, done(tmp_path)) == ("completed", ["pay"])

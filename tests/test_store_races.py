"""Many workers at once on each store that outlives its process: laws 3 and 4, with processes, threads and tasks."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import crash_worker
import pytest
import servers
from crash_worker import PAY, clerk, effects
from drivers import PATIENCE
from redis_server import redis_url
from selection import scaled

from phronomy import SQLiteStore
from phronomy.stores.redis.store import RedisStore
from phronomy.stores.sql.postgres import PostgresStore

pytestmark = [pytest.mark.unmeasured, pytest.mark.usefixtures("fresh_fork_server")]

HOUR = 3600.0
PROCESSES, RACERS = scaled((4, 4), sweep=(8, 8))
RUNS = scaled(20, sweep=120)
WORKERS, ABANDONED, LAPSED = scaled((4, 10, 5), sweep=(10, 50, 20))


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """What opens a store, in any process."""
    if request.param == "sqlite":
        yield partial(SQLiteStore, str(tmp_path / "runs.db"), synchronous="NORMAL")
    elif request.param == "redis":
        yield partial(RedisStore, redis_url())
    else:
        with servers.postgres_schema() as schema:
            yield partial(PostgresStore, servers.postgres_url(), schema=schema)


@pytest.fixture(scope="module")
def processes() -> Any:
    """Fresh processes that have phronomy imported: as good as new ones, and quick to start."""
    context = multiprocessing.get_context("forkserver")
    modules = ["sql.sqlite", "sql.postgres", "redis.store", "redis.connection"]
    context.set_forkserver_preload(["phronomy.testing.crash", *(f"phronomy.stores.{name}" for name in modules)])
    return context


def all_at_once(processes: Any, target: Any, jobs: list[tuple[Any, ...]]) -> list[Any]:
    """What each job has to say, where all are begun at the same moment."""
    start, verdicts = processes.Event(), processes.Queue()
    workers = [processes.Process(target=target, args=(*job, start, verdicts)) for job in jobs]
    try:
        for worker in workers:
            worker.start()
        start.set()
        said = [verdicts.get(timeout=PATIENCE) for _ in workers]
        for worker in workers:
            worker.join(PATIENCE)
            assert worker.exitcode == 0
    finally:
        for worker in workers:
            worker.kill()
    return said


def test_of_many_racers_on_many_pending_approvals_one_wins_each(
    processes: Any, store: Any, tmp_path: Path, record_property: Any
) -> None:
    """Law 3: each tool runs once, and whoever came too late is told who decided, and how far it is. field failure 46"""
    with store() as opened:
        agent = clerk(opened, PAY, str(tmp_path))
        ids = [agent.invoke("go", thread_id=str(number)).checkpoint.id for number in range(RUNS)]
    assert effects(tmp_path) == []

    began = time.monotonic()
    jobs: list[tuple[Any, ...]] = []
    for process in range(PROCESSES):
        racers = {f"{process}-{racer}": list(enumerate(ids)) for racer in range(RACERS)}
        jobs.append((store, str(tmp_path), ("sync", "async")[process % 2], racers))
    said = [each for some in all_at_once(processes, crash_worker.race, jobs) for each in some]
    took = time.monotonic() - began

    assert len(said) == PROCESSES * RACERS
    winners = {number: who for who, won, _ in said for number in won}
    assert sorted(number for _, won, _ in said for number in won) == list(range(RUNS))
    lost = [each for _, _, losses in said for each in losses]
    assert len(lost) == RUNS * (PROCESSES * RACERS - 1)
    assert [each for each in lost if each[1] != winners[each[0]]] == []
    progress = Counter(how for _, _, how in lost)
    assert set(progress) <= {"running", "ended"}
    done = effects(tmp_path)
    assert len(done) == len(set(done)) == RUNS
    with store() as opened:
        assert {branch.status for branch in opened.branches()} == {"completed"}
        assert opened.count() == 0
        trail = Counter(record.pending_id for record in opened.audit())
        assert len(trail) == RUNS and set(trail.values()) == {1}
    name, won = type(opened).__name__, len(set(winners.values()))
    record_property(
        "told",
        f"{name}: {len(said)} racers on {RUNS} approvals: {won} won some; {len(lost)} losses ({dict(progress)}); {took:.1f} s",
    )


def test_many_workers_recover_everything_at_once_and_each_run_is_carried_on_once(
    processes: Any, store: Any, tmp_path: Path, record_property: Any
) -> None:
    """Law 5: of all that call `recover_all`, one carries a lost run on, and one settles an approval that came to nothing."""
    lost = processes.Process(target=crash_worker.abandon, args=(store, str(tmp_path), ABANDONED))
    lost.start()
    lost.join(PATIENCE)
    assert lost.exitcode == -signal.SIGKILL
    begun = effects(tmp_path)
    assert len(begun) == len(set(begun)) == ABANDONED
    with store() as opened:
        clerk_in_haste = clerk(opened, PAY, str(tmp_path), approval_timeout=60.0)
        for number in range(LAPSED):
            assert clerk_in_haste.invoke("go", thread_id=f"late-{number}").suspended

    began = time.monotonic()
    said = all_at_once(processes, crash_worker.recover_everything, [(store, str(tmp_path), HOUR)] * WORKERS)
    took = time.monotonic() - began

    found = [each for some in said for each in some]
    assert {status for _, status in found} == {"completed"}
    assert len({run_id for run_id, _ in found}) == ABANDONED + LAPSED
    again = effects(tmp_path)[ABANDONED:]
    assert sorted(again) == sorted(begun), "each call that was lost is made once more, with its own key"
    with store() as opened:
        assert Counter(branch.status for branch in opened.branches()) == {"completed": ABANDONED + LAPSED}
        expired = Counter(record.pending_id for record in opened.audit())
        assert len(expired) == LAPSED and set(expired.values()) == {1}
        assert {record.kind for record in opened.audit()} == {"expire"}
    shares = sorted((len(each) for each in said), reverse=True)
    what = f"{WORKERS} workers recovered {ABANDONED} runs and {LAPSED} approvals in {took:.1f} s"
    record_property("told", f"{type(opened).__name__}: {what}; results per worker: {shares}")

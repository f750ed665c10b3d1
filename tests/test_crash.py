"""Workers and servers killed at every place where they can die: laws 1 to 8 on every store that outlives its process.

`sweep` is what users have for it; each test prints what it counted (`pytest -s`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import crash_worker
import pytest
import servers
from crash_worker import SCENARIOS, outline
from redis_server import RedisServer, redis_url
from request_laws import check_told
from selection import scaled

from phronomy import ConfigurationError, SQLiteStore
from phronomy.observability.announcements import METHODS
from phronomy.observability.events import RequestChanged, event_from, events_of
from phronomy.stores.redis.store import RedisStore
from phronomy.stores.rows import BranchFilter
from phronomy.stores.sql.postgres import PostgresStore
from phronomy.testing.crash import LawBroken, Report, Scene, sweep

pytestmark = [pytest.mark.unmeasured, pytest.mark.usefixtures("fresh_fork_server")]


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """What opens a store of the kind that the test names, in any process."""
    if request.param == "sqlite":
        # A process that dies loses nothing of what it gave to the system; a loss of power is another matter.
        yield partial(SQLiteStore, str(tmp_path / "runs.db"), synchronous="NORMAL")
    elif request.param == "redis":
        yield partial(RedisStore, redis_url())
    else:
        with servers.postgres_schema() as schema:
            yield partial(PostgresStore, servers.postgres_url(), schema=schema, max_size=2)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The URL of a SQLite file."""
    return f"sqlite:///{tmp_path}/runs.db?synchronous=normal"


# What holds of each scenario besides the laws


class Same:
    """The conversations are those of the first time that it is asked, which is when nobody was killed."""

    wanted: list[str] | None = None

    def __call__(self, scene: Scene) -> None:
        found = [outline(scene.store.head(branch.id)[1]) for branch in scene.store.branches()]
        self.wanted = self.wanted or found
        assert found == self.wanted


def names(scene: Scene) -> list[str]:
    """The tools whose bodies were entered, each as often as that."""
    return sorted(each.tool for each in scene.entered)


def each_once(scene: Scene) -> None:
    assert names(scene) == ["look", "mail", "note", "pay", "ship"]


def each_with_one_key(scene: Scene) -> None:
    keys = {(each.tool, each.key) for each in scene.entered}
    assert sorted(tool for tool, _ in keys) == ["look", "mail", "note", "pay", "ship"]


def no_payment(scene: Scene) -> None:
    assert set(names(scene)) <= {"look"}  # a run that ends at once leaves what was not begun


def nobody_decided(scene: Scene) -> None:
    no_payment(scene)
    assert [record.kind for record in scene.store.audit() if record.tool_name == "pay"] == ["expire"]


def five_paid(scene: Scene) -> None:
    assert [(each.tool, each.text) for each in scene.entered] == [("pay", '{"amount":5}')]


def all_cancelled(scene: Scene) -> None:
    assert [branch.status for branch in scene.store.branches()] == ["cancelled"]
    no_payment(scene)


def one_superseded(scene: Scene) -> None:
    assert scene.store.branches()[-1].status == "completed"
    assert {branch.status for branch in scene.store.branches()[:-1]} == {"superseded"}


def once_in_both(scene: Scene) -> None:
    assert names(scene) == ["look", "pay"]
    assert [branch.status for branch in scene.store.branches()] == ["completed", "completed"]


def anew_in_the_fork(scene: Scene) -> None:
    assert names(scene) == ["look", "look", "pay", "pay"]
    assert len({each.key for each in scene.entered}) == 4


def all_told(scene: Scene) -> None:
    """Everything that the store has to tell was told, in order; what was told again has the same key."""
    told = list(dict.fromkeys((act["key"], act["type"]) for act in scene.acts))
    [branch] = scene.store.branches()
    events = events_of(scene.store.lineage(branch_id=branch.id))
    assert told == [(event.key, event.type) for event in events if event.type in METHODS]
    assert branch.announced == branch.seq
    assert scene.store.select_branches(BranchFilter(unannounced=True)) == []


def each_request_told(scene: Scene) -> None:
    """Each request was told at least once, in order, and nobody has decided what nobody was told of."""
    events = [event_from(act["event"]) for act in scene.acts]
    told = check_told(scene.store, [event for event in events if isinstance(event, RequestChanged)])
    assert {record.pending_id for record in scene.store.audit()} == told.keys()
    assert [course[-1].what for course in told.values() if course[-1].request.tool_name == "ship"] == ["decided"]
    assert scene.store.select_branches(BranchFilter(unannounced=True)) == []


def one_run_left(scene: Scene) -> None:
    [branch] = scene.store.branches()
    assert branch.parent_branch is None
    assert [names(scene).count(name) for name in ("look", "pay")] == [2, 2]


CHECKS: dict[str, Callable[[Scene], None]] = {
    "two-turns": each_once,
    "one-by-one": each_once,
    "idempotent": each_with_one_key,
    "rejected": no_payment,
    "rejected-for-good": no_payment,
    "edited": five_paid,
    "lapsed": nobody_decided,
    "lapsed-for-good": nobody_decided,
    "cancelled": all_cancelled,
    "superseded": one_superseded,
    "forked": once_in_both,
    "forked-anew": anew_in_the_fork,
    "announced": all_told,
    "requests": each_request_told,
    "pruned": one_run_left,
}
DIFFER = ("cancelled", "superseded", "lapsed-for-good", "rejected-for-good")
"""Scenarios whose conversation depends on how far the worker came."""


def check(name: str) -> Callable[[Scene], None]:
    """What is looked at after each recovery of this scenario."""
    same, own = Same(), CHECKS.get(name)

    def look(scene: Scene) -> None:
        if own is not None:
            own(scene)
        if name not in DIFFER:
            same(scene)

    return look


ON_SERVERS = (
    "two-turns",
    "side-by-side",
    "retried",
    "rejected",
    "edited",
    "lapsed",
    "cancelled",
    "forked",
    "announced",
    "requests",
    "pruned",
)
"""Scenarios that are played on the servers as well: the others ask nothing else of a store."""


LONGEST = ("announced", "requests", "pruned")
"""Scenarios with several runs: a server sees half of their places, as SQLite has seen all of them with both drivers."""


BY_DEFAULT = {
    "sqlite-two-turns-sync": 1,
    "sqlite-announced-async": 5,
    "sqlite-requests-sync": 9,
    "sqlite-pruned-async": 5,
    "sqlite-messaged-sync": 4,
    "postgres-edited-sync": 4,
    "redis-forked-sync": 4,
}
"""What is played by default: every place where a run is written, and some of every other kind and on every store."""


def sweeps() -> Iterator[Any]:
    """Each scenario with both drivers on SQLite, killed twice with one of them; and with one, in turn, on each server."""
    for name in SCENARIOS:
        for driver, deaths in (("sync", 2), ("async", 1)):
            yield played("sqlite", name, driver, deaths=scaled(1, sweep=deaths))
    for number, name in enumerate(ON_SERVERS):
        for kind in ("postgres", "redis"):
            every = 2 if name in LONGEST else 1
            yield played(kind, name, ("sync", "async")[(number + (kind == "redis")) % 2], deaths=1, every=every)


def played(kind: str, name: str, driver: str, deaths: int, every: int = 1) -> Any:
    """A row of the test: in the sweep at every place, or at every so many of them."""
    id = f"{kind}-{name}-{driver}"
    marks = () if id in BY_DEFAULT else pytest.mark.sweep
    return pytest.param(kind, name, driver, deaths, scaled(BY_DEFAULT.get(id, 1), sweep=every), id=id, marks=marks)


def test_what_is_played_by_default_exists() -> None:
    assert {row.id for row in sweeps()} >= set(BY_DEFAULT)


@pytest.mark.product
@pytest.mark.parametrize(("store", "name", "driver", "deaths", "every"), list(sweeps()), indirect=["store"])
def test_a_worker_killed_anywhere_loses_nothing_and_does_nothing_twice(
    store: Any, name: str, driver: str, deaths: int, every: int, record_property: Any
) -> None:
    """On SQLite the worker that recovers is killed as well, and a third one ends it. field failures 46, 50, 51"""
    report = sweep(partial(SCENARIOS[name], driver=driver), store=store, check=check(name), deaths=deaths, every=every)
    record_property("told", f"{store if isinstance(store, str) else store.func.__name__}, {report}")
    tried = len(range(1, report.places + 1, every))
    assert report.places >= 12
    assert report.kills >= tried
    assert report.recoveries == tried + (2 if every == 1 else 1)  # with nobody killed: before, and after the last place


# The server dies


class Server:
    """A server that is killed in the middle of a run: `how` says when it comes back."""

    def __init__(self, kill: Callable[[], Any], start: Callable[[], Any], store: Callable[[], Any]) -> None:
        self.store = store
        self.deaths = 0
        self._kill = kill
        self._start = start
        self._thread: threading.Thread | None = None

    def strike(self, how: str) -> None:
        """Die: and come back at once, when the worker has ended, or at once while the worker goes on meanwhile."""
        self.deaths += 1
        if how == "in-flight":
            self._thread = threading.Thread(target=self._bounce)
            self._thread.start()
        elif how == "bounced":
            self._bounce()
        else:
            self._kill()

    def mend(self, how: str) -> None:
        """Be there again."""
        if self._thread is not None:
            self._thread.join()
        if how == "down" and self.deaths:
            self._start()

    def _bounce(self) -> None:
        self._kill()
        self._start()


@pytest.fixture(params=["postgres", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the test's own, that keeps what it said is stored."""
    if request.param == "redis":
        redis = RedisServer().start()
        yield Server(redis.kill, redis.start, partial(RedisStore, redis.url(), require_persistence=True))
        redis.stop()
        return
    postgres = servers.Postgres()
    for setting in ("fsync", "full_page_writes"):
        postgres.psql(f"ALTER SYSTEM SET {setting} = on")
    postgres.kill()
    postgres.start()
    assert postgres.psql("SHOW fsync").strip() == "on"
    yield Server(postgres.kill, postgres.start, partial(PostgresStore, postgres.url, max_size=2, timeout=2.0))
    postgres.stop()


@pytest.mark.parametrize("driver", ["sync", pytest.param("async", marks=pytest.mark.sweep)])
@pytest.mark.parametrize(
    "how", ["in-flight", *(pytest.param(how, marks=pytest.mark.sweep) for how in ("bounced", "down"))]
)
def test_a_server_killed_in_the_middle_of_a_run_loses_nothing(
    server: Server, how: str, driver: str, record_property: Any
) -> None:
    """The worker goes on, or gets a typed error; whoever recovers finds all that was said to be stored."""
    report = sweep(
        partial(SCENARIOS["two-turns"], driver=driver),
        store=server.store,
        strike=partial(server.strike, how),
        mend=partial(server.mend, how),
        every=9,
    )
    record_property(
        "told", f"{server.store.func.__name__}, {how}: the server was killed {server.deaths} times; {report}"
    )
    assert server.deaths == len(range(1, report.places + 1, 9)) >= 4
    assert report.kills == 0 and report.recoveries == server.deaths + 1
    assert report.faults == server.deaths if how == "down" else report.faults <= server.deaths


# The kit sees what is broken


def broken(scenario: Any, store: Any, **options: Any) -> str:
    """What the sweep says that does not hold."""
    with pytest.raises(LawBroken) as caught:
        sweep(scenario, store=store, **options)
    assert caught.value.report.broken
    return str(caught.value)


def test_a_report_says_what_was_counted(file: str) -> None:
    report = sweep(partial(crash_worker.edited, driver="sync"), store=file)
    assert isinstance(report, Report)
    assert (report.scenario, report.broken) == ("edited(driver=sync)", ())
    assert report.kills == report.places > 10 and report.recoveries == report.places + 2
    assert report.unknown > 0 and report.entered >= report.places and report.again == 0 and report.decisions > 0
    assert str(report).startswith(f"edited(driver=sync): {report.kills} kills at {report.places} places, ")


def test_every_fifth_place_is_enough_for_a_slow_scenario(file: str) -> None:
    report = sweep("crash_worker:retried_sync", store=file, every=5, parallel=1)
    assert report.kills == len(range(1, report.places + 1, 5)) > 2
    assert report.again > 0


def test_the_careful_human_of_the_kit_looks_whether_it_happened(file: str) -> None:
    """A recovery in the words of the documentation."""
    report = sweep("crash_worker:order", recover="crash_worker:recover", store=file)
    assert report.kills > 8 and report.unknown > 0 and report.again == 0


def test_an_async_scenario_is_awaited(file: str) -> None:
    report = sweep("crash_worker:aorder", recover="crash_worker:arecover", store=file)
    assert report.kills > 8 and report.unknown > 0


def test_a_lost_decision_is_seen(tmp_path: Path) -> None:
    told = broken(crash_worker.order, partial(crash_worker.Forgetful, str(tmp_path / "runs.db")))
    assert "the audit trail lost a decision (approve on pend_" in told


def test_a_lost_checkpoint_is_seen(tmp_path: Path) -> None:
    told = broken(crash_worker.left_lying, partial(crash_worker.Careless, str(tmp_path / "runs.db")))
    assert "was stored, and is gone" in told and "has not ended: it is running" in told


def test_a_body_entered_past_the_gate_is_seen(file: str) -> None:
    told = broken(crash_worker.behind_the_back, file)
    assert "pay was entered (key key) without an approval" in told
    assert "pay was entered, and that it would be was not stored before (key key)" in told


def test_a_body_entered_with_other_arguments_is_seen(file: str) -> None:
    told = broken(partial(crash_worker.behind_the_back, text='{"amount":7}', pending=True), file)
    assert "with another tool or other arguments than pend_" in told


@pytest.mark.sweep
def test_a_call_run_again_unasked_is_seen(file: str) -> None:
    told = broken(crash_worker.again, file)
    assert " was entered 2 times (key " in told
    assert "was under way, and no human was asked what became of it" in told
    assert ": place " in told or "\nplace " in told


def test_a_run_that_is_not_recovered_is_seen(file: str) -> None:
    told = broken(crash_worker.left_lying, file)
    assert "has not ended: it is suspended" in told and "still waits for a decision" in told


def test_a_worker_that_fails_or_hangs_is_seen(file: str) -> None:
    assert "LookupError: no such scenario" in broken(crash_worker.raising, file)
    assert "a worker did not end within 0.5 s" in broken(crash_worker.hanging, file, timeout=0.5)


def test_a_check_that_fails_is_seen(file: str) -> None:
    def refuse(scene: Scene) -> None:
        raise AssertionError(f"{len(scene.entered)} entered")

    assert "unharmed: the check failed: 2 entered" in broken(crash_worker.order, file, check=refuse)


@pytest.mark.parametrize(
    ("scenario", "store", "why"),
    [
        (crash_worker.order, "memory://", "a memory store dies with its process"),
        ("crash_worker:missing", "sqlite:///x.db", "'crash_worker:missing' names no function"),
        ("nowhere", "sqlite:///x.db", "'nowhere' names no function"),
        (lambda scene: None, "sqlite:///x.db", "functions of a module"),
    ],
)
def test_a_scenario_that_cannot_run_elsewhere_is_refused(scenario: Any, store: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        sweep(scenario, store=store)

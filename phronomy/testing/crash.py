"""`sweep`: kills a worker at every place where it could die, has another carry on, and checks that nothing is lost or done twice.

A *scenario* is a function of a module, which is given a `Scene` and runs an agent on `scene.store`. It is run in a process of its own,
which is killed (SIGKILL) at the n-th place: before a write is sent to the store, after it is stored and before the caller has learnt
of it, before a tool's body is entered, and after it has ended. Then `recover`, another function, is run in a second process, whose
clock is ahead, so that the leases of the first have run out. So for each n, until the scenario ends unharmed.

    # shop.py
    def make_agent(store):
        return Agent(name="clerk", model=ScriptedModel.by_turn([call("pay", {"amount": 5}), "done"]), tools=[pay], store=store)

    def order(scene):
        agent = make_agent(scene.store)
        result = agent.invoke("Pay 5.", thread_id="t")
        while result.suspended:
            result = agent.resume(result.checkpoint.id, decisions=scene.answers(result.checkpoint))

    def recover(scene):
        scene.settle(make_agent(scene.store))

    # test_shop.py
    def test_an_order_survives_every_crash(tmp_path):
        print(sweep(shop.order, recover=shop.recover, store=f"sqlite:///{tmp_path}/runs.db"))

Everything that the workers do is also told by a file outside of the store, and both must agree. What must hold, after each kill:

- nothing that was stored is lost: no entry, no checkpoint, no decision; nobody is asked twice to approve the same;
- a body was entered only after its intent was stored, and, if it needed approval, after an approval of exactly it was;
- no body was entered twice, but that of an idempotent tool, with the same idempotency key, or where a human said so;
- a call that was under way, of a tool that may not be called twice, was put to a human;
- in the end every run has ended, nothing waits, and each call has exactly one result.

Each place has a tenant of its own in the store, so one database serves a whole sweep. The model should keep no place in its script
(`ScriptedModel.by_turn`), since another process goes on with it. The module of the scenario is imported before the processes are
forked: it must open nothing. Needs an operating system with `fork` and SIGKILL.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import field
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, Self

from phronomy.errors import ConfigurationError, Portable
from phronomy.foundation.dataclasses import dataclass
from phronomy.stores.base import Store
from phronomy.testing.laws import Found, at_the_crash, at_the_end
from phronomy.testing.scene import RAISED, Entered, Fuse, Job, Opener, Play, Scene, Witness, opened, resolved, work

__all__ = ["Entered", "LawBroken", "Report", "Scene", "sweep"]

_HOUR: Final = 3600.0
_HUNG: Final = 71


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a sweep: what was tried, and what has gone wrong.

    `places` is the number of places in the scenario. `kills` counts the killed workers, `faults` the workers that got a
    typed error because of `strike`, and `recoveries` the workers that recovered. `unknown` counts the calls of unknown
    outcome that a human had to decide. `entered` counts the tool bodies that started, and `again` those of them that
    had started before. `decisions` counts the stored decisions, none of which was lost. `broken` lists the broken laws.
    `seconds` is the time of the whole sweep.
    """

    scenario: str
    places: int
    kills: int = 0
    faults: int = 0
    recoveries: int = 0
    unknown: int = 0
    entered: int = 0
    again: int = 0
    decisions: int = 0
    seconds: float = 0.0
    broken: tuple[str, ...] = ()

    def __str__(self) -> str:
        faults = f" and {self.faults} faults" if self.faults else ""
        return (
            f"{self.scenario}: {self.kills} kills{faults} at {self.places} places, {self.recoveries} recoveries,"
            f" {self.unknown} outcomes unknown, {self.entered} tool bodies entered ({self.again} again),"
            f" {self.decisions} decisions, {len(self.broken)} laws broken, {self.seconds:.1f} s"
        )


class LawBroken(Portable, AssertionError):
    """A law did not hold after a crash.

    The message names the laws and the places; `report` is the report of the sweep.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        more = f"\n(and {len(report.broken) - 10} more)" if len(report.broken) > 10 else ""
        super().__init__(f"{report}\n" + "\n".join(report.broken[:10]) + more)


def sweep(
    scenario: Play,
    *,
    store: Opener,
    recover: Play | None = None,
    check: Callable[[Scene], object] | None = None,
    deaths: int = 1,
    every: int = 1,
    strike: Callable[[], object] | None = None,
    mend: Callable[[], object] | None = None,
    parallel: int = 2,
    timeout: float = 60.0,
) -> Report:
    """Kill a worker at every place of a scenario, recover after each kill, and check the laws of phronomy.

    The places are before and after each write to the store, and before and after the body of each tool. Returns the
    counts.

    `scenario` and `recover` are functions in a module (or `functools.partial` of them), sync or async, or their names
    as `"module:function"`. Without `recover` the scenario runs again, and must continue the run. `store` is the URL of
    a store that processes can share, or a function in a module that opens one. `check(scene)` is called in this process
    after each recovery; it raises `AssertionError` if a condition of yours does not hold.

    With `deaths=2` the worker that recovers is killed too, and so on. `every=5` takes only each fifth place. With
    `strike` no worker is killed: when a worker reaches the place, `strike()` is called in this process, for example to
    stop the database. The worker goes on or ends with a typed error, and `mend()` is called before the recovery.
    `parallel` is the number of places that are tried at the same time (1 with `strike`). `timeout` is the number of
    seconds that a worker may take.

    Raises `LawBroken` if a law does not hold, and `ConfigurationError` for a scenario that cannot run in another
    process.
    """
    plays = (scenario, scenario if recover is None else recover)
    _check(plays, store)
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="phronomy-crash-") as folder,
        _Sweep(Path(folder), plays, store, check, deaths, strike, mend, timeout) as swept,
    ):
        report = swept.report(every, 1 if strike is not None else parallel, started)
    if report.broken:
        raise LawBroken(report)
    return report


def _check(plays: tuple[Play, Play], store: Opener) -> None:
    if not hasattr(signal, "SIGKILL") or "forkserver" not in multiprocessing.get_all_start_methods():
        raise ConfigurationError("a sweep needs fork and SIGKILL, which this operating system does not have")
    if isinstance(store, str) and store.startswith("memory:"):
        raise ConfigurationError("a memory store dies with its process: sweep over a store that others can open")
    for play in plays:
        resolved(play)
    try:
        pickle.dumps((plays, store))
    except Exception as error:
        raise ConfigurationError(
            f"a scenario runs in another process: it and what opens the store are functions of a module ({error})"
        ) from None


@dataclass(kw_only=True)
class _Attempt:
    """The result of one crash at one place."""

    reached: bool = False
    killed: int = 0
    faults: int = 0
    recoveries: int = 0
    unknown: int = 0
    entered: list[Entered] = field(default_factory=list)
    decisions: int = 0
    places: int = 0
    broken: list[str] = field(default_factory=list)


_Steps = Generator[Job, int, _Attempt]


@dataclass
class _Sweep:
    """A sweep under way: each place is a generator that gives the processes to run, and is sent their exit codes."""

    folder: Path
    plays: tuple[Play, Play]
    opener: Opener
    check: Callable[[Scene], object] | None
    deaths: int
    fault: Callable[[], object] | None
    mend: Callable[[], object] | None
    timeout: float

    def __post_init__(self) -> None:
        self._token = secrets.token_hex(4)
        self._store: Store | None = opened(self.opener)
        self._processes = _processes(self.plays)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def report(self, every: int, parallel: int, started: float) -> Report:
        """Try every place."""
        [unharmed] = self._run([self._attempt(None)], 1)
        tried = [unharmed]
        if not unharmed.broken:
            known = range(1, unharmed.places + 1, every)
            tried += self._run((self._attempt(n) for n in known), parallel)
            for n in itertools.count(unharmed.places + 1):
                if every > 1 or not tried[-1].reached:
                    break
                tried += self._run([self._attempt(n)], 1)
        bodies = [each.entered for each in tried]
        return Report(
            scenario=_name(self.plays[0]),
            places=unharmed.places,
            kills=sum(each.killed for each in tried),
            faults=sum(each.faults for each in tried),
            recoveries=sum(each.recoveries for each in tried),
            unknown=sum(each.unknown for each in tried),
            entered=sum(map(len, bodies)),
            again=sum(len(entered) - len({(each.tool, each.key) for each in entered}) for entered in bodies),
            decisions=sum(each.decisions for each in tried),
            seconds=time.monotonic() - started,
            broken=tuple(law for each in tried for law in each.broken),
        )

    # One place

    def _attempt(self, n: int | None) -> _Steps:
        """Play the scenario up to place `n`, have others carry on, and judge."""
        file = str(self.folder / str(n or 0))
        job = partial(Job, store=self.opener, tenant=self._tenant(n), file=file)
        witness, came = Witness(file), _Attempt()
        code = yield job(play=self.plays[0], at=n, later=0.0, recovering=False)
        self._note(came, witness, code)
        if self.mend is not None:
            self.mend()
        came.reached = bool(witness.lines("struck"))
        came.places = sum(line["places"] for line in witness.lines("ended"))
        where = (
            "unharmed" if n is None else f"place {n} ({', '.join(line['place'] for line in witness.lines('struck'))})"
        )
        before = self._found(n)
        laws = [*at_the_crash(before, witness)]
        for death in range(1, self.deaths + 1 if came.reached else 2):
            at = (n or 0) % 7 + death if death < self.deaths and self.fault is None else None
            code = yield job(play=self.plays[1], at=at, later=_HOUR * death, recovering=True)
            self._note(came, witness, code)
            came.recoveries += code == 0
            if code in (0, RAISED, _HUNG):
                break
        found = self._found(n)
        if not came.broken:
            laws += at_the_end(before, found, witness)
            laws += self._checked(n, witness)
        came.unknown, came.entered = found.unknown, witness.entered()
        came.decisions = sum(len(line["decided"]) for line in witness.lines("wrote"))
        came.broken = [f"{where}: {law}" for law in dict.fromkeys([*came.broken, *laws])]
        return came

    def _tenant(self, n: int | None) -> str:
        return f"crash-{self._token}-{n or 0}"

    def _note(self, came: _Attempt, witness: Witness, code: int) -> None:
        """Take note of how a worker ended."""
        if code == -signal.SIGKILL:
            came.killed += 1
        elif code == RAISED:
            raised = witness.lines("raised")[-1]
            struck = self.fault is not None and witness.lines("struck") and not witness.lines("ended")
            if struck and raised["typed"] and not came.faults:
                came.faults += 1
            else:
                came.broken.append(f"a worker raised\n{raised['told']}")
        elif code == _HUNG:
            came.broken.append(f"a worker did not end within {self.timeout:g} s")
        elif code != 0:
            came.broken.append(f"a worker ended with exit code {code}")

    def _found(self, n: int | None) -> Found:
        if self.fault is not None:
            self._close()  # the connections may be broken
        if self._store is None:
            self._store = opened(self.opener)
        return Found(self._store.for_tenant(self._tenant(n)))

    def _checked(self, n: int | None, witness: Witness) -> list[str]:
        """Runs the user's own check, and gives its complaint."""
        if self.check is None or self._store is None:
            return []
        store = self._store.for_tenant(self._tenant(n))
        try:
            self.check(Scene(store, witness, Fuse(None, witness), recovering=True))
        except AssertionError as error:
            return [f"the check failed: {error}"]
        return []

    # The processes

    def _run(self, attempts: Iterable[_Steps], parallel: int) -> list[_Attempt]:
        """Runs the attempts, so many of them side by side. One thread waits for all, since only its maker can join a process."""
        came: list[_Attempt] = []
        more = iter(attempts)
        live = [_Worker(self, steps) for steps in itertools.islice(more, parallel)]
        while live:
            ready = wait([each for worker in live for each in worker.signs], timeout=1.0)
            for worker in list(live):
                worker.look(ready)
                if worker.came is not None:
                    came.append(worker.came)
                    live.remove(worker)
                    live += [_Worker(self, steps) for steps in itertools.islice(more, 1)]
        return came

    def start(self, job: Job) -> tuple[Any, Connection | None]:
        """A process that does the job, and the line to it."""
        ours, theirs = multiprocessing.Pipe() if self.fault is not None else (None, None)
        process = self._processes.Process(target=work, args=(job, theirs), daemon=True)
        process.start()
        if theirs is not None:
            theirs.close()
        return process, ours

    def strike(self) -> None:
        """Do what the caller of `sweep` wants done at the place."""
        if self.fault is not None:
            self.fault()


class _Worker:
    """The process that an attempt is at."""

    came: _Attempt | None = None

    def __init__(self, swept: _Sweep, steps: _Steps) -> None:
        self._swept = swept
        self._steps = steps
        self._begin(next(steps))

    def _begin(self, job: Job) -> None:
        self._process, self._line = self._swept.start(job)
        self._until = time.monotonic() + self._swept.timeout

    @property
    def signs(self) -> Iterator[Any]:
        """Gives the objects to wait for: the end of the process, and a word from it."""
        yield self._process.sentinel
        if self._line is not None:
            yield self._line

    def look(self, ready: list[Any]) -> None:
        """Do what is to be done next, now that these are ready."""
        if self._line is not None and self._line in ready:
            try:
                self._line.recv()
            except EOFError:
                self._line.close()
                self._line = None
            else:
                self._swept.strike()
                self._line.send(None)
                self._until = time.monotonic() + self._swept.timeout
        if self._process.sentinel in ready:
            self._end(None)
        elif time.monotonic() > self._until:
            self._process.kill()
            self._end(_HUNG)

    def _end(self, code: int | None) -> None:
        self._process.join()
        code = self._process.exitcode if code is None else code
        self._process.close()
        if self._line is not None:
            self._line.close()
        try:
            self._begin(self._steps.send(code or 0))
        except StopIteration as end:
            self.came = end.value


def _processes(plays: tuple[Play, Play]) -> Any:
    """Fresh processes that have phronomy, and the module of the scenario, imported: as good as new ones, and quick to start."""
    context = multiprocessing.get_context("forkserver")
    stores = [name for name in sys.modules if name.startswith("phronomy.stores.")]
    modules = [_module(resolved(play)) for play in plays]
    context.set_forkserver_preload(["__main__", "phronomy.agents.agent", __name__, *stores, *modules])
    # The server that forks is not given our path (seen with Python 3.11), and leaves out, without a word, what it cannot import.
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    try:
        from multiprocessing.forkserver import ensure_running  # noqa: PLC0415  # there is none on Windows

        ensure_running()
    finally:
        if known is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = known
    return context


def _module(play: object) -> str:
    while isinstance(play, partial):
        play = play.func
    return str(getattr(play, "__module__", type(play).__module__))


def _name(play: Play) -> str:
    """Names a scenario in a report."""
    if isinstance(play, partial):
        given = ", ".join([*map(str, play.args), *(f"{key}={value}" for key, value in play.keywords.items())])
        return f"{play.func.__name__}({given})"
    return play if isinstance(play, str) else getattr(play, "__name__", type(play).__name__)

"""A worker: a loop that looks into the store for what is to be done, and has the agents do it.

It has no queue and no leader. What is to be done is in the store: decisions that nobody carries out, runs whose worker died, requests
whose time is over, announcements that were not made. Any number of workers may look at the same time, since each run is claimed before
it is driven; whoever comes second finds it held, and leaves it.

A worker that dies leaves leases that run out, and the next look of another worker takes its runs over. So nothing is kept here that
matters: the list of tries below is there to leave a run alone for a while after it has failed, and a new worker begins it anew.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import random
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import field
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

from phronomy.errors import AsyncRequired, CheckpointNotFound, ConfigurationError, PhronomyError, RunFailed
from phronomy.foundation.checks import check_no_tool, is_count, is_number, is_series, is_timeout
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import kept_id, quoted, quoted_id
from phronomy.runs import recovery
from phronomy.runs.recovery import Recovery
from phronomy.runs.runs import Runs
from phronomy.stores import dispatch
from phronomy.stores.base import Store
from phronomy.stores.derived import set_aside
from phronomy.stores.dispatch import LocalDispatch
from phronomy.stores.memory import MemoryStore
from phronomy.stores.native import in_store
from phronomy.stores.rows import Append, Behind, Claim, Held
from phronomy.workers.health import Health, Measures, SetAside

_log = logging.getLogger("phronomy")

_TIDY: Final = 30.0
"""Seconds between two looks for announcements that were not made, and for runs that are older than their store keeps."""

_ALL: Final = 1_000_000
"""More runs than a look is to leave out: those that cannot be carried out come first, and would keep the others from their turn."""

_LISTED: Final = 10.0
"""Seconds for which a look goes by the list of the one before, as long as something of it is left: a long one takes time to read."""

_LONG: Final = 100
"""So many things to do are a long list, which several workers begin at different places so that they do not meet at each."""

_LONGEST: Final = 300.0
"""Seconds between two tries of a run that failed again and again."""

_SLOW: Final = 30.0
"""Seconds that a look may take beyond three times `poll`, before the worker is taken for stuck."""

_TIMES: Final = 10_000
"""So many times at which something is to be done are remembered, the next ones; what comes later is found by looking."""


def _unheard(done: Recovery[Any]) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """How often a run has failed here, and when it may be tried again, by the monotonic clock."""

    tries: int
    due: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A run that is driven here."""

    agent: Runs[Any, Any]
    run_id: str
    task: asyncio.Task[Recovery[Any] | None]


@dataclass(frozen=True, eq=False)
class _Ear:
    """Hears what the dispatch of a store tells: that something is to be done now, or at a time."""

    store: Store
    ring: Callable[[], object]
    times: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def wake(self, run_id: str) -> None:
        """Something is to be done now."""
        self.ring()

    def at(self, time: datetime, run_id: str) -> None:
        """Something is to be done then, by the clock of the store."""
        due = time.timestamp()
        with self.lock:
            if len(self.times) >= _TIMES:
                return
            heapq.heappush(self.times, due)
            is_next = self.times[0] == due
        if is_next:  # the worker is to wait no longer than that
            self.ring()

    def forget_passed(self) -> None:
        """Forget the times that are over: a look follows."""
        now = self.store.clock()
        with self.lock:
            while self.times and self.times[0] <= now:
                heapq.heappop(self.times)

    def seconds(self) -> float:
        """Seconds until the next time at which something is to be done."""
        with self.lock:
            return max(self.times[0] - self.store.clock(), 0.0) if self.times else math.inf


class Worker:
    """A loop that carries out what was decided, recovers runs whose worker died, and settles what has expired.

    `agents` are agents or graphs, each with the store that it works on; `deps` is what their tools get. The worker looks into the
    stores every `poll` seconds, give or take a fifth, and at once when `store.dispatch` tells it to: by default after a decision
    that was made with the same store object, and when a request expires of a run that stopped there. It drives up to `concurrency`
    runs at the same time. A run that fails is tried again after `retry_wait` seconds, which double with each try up to five
    minutes. After `tries` tries it is set aside: its status is `failed`, `health()` lists it with the reason, and it is tried
    every five minutes. A run in which a call has failed that must not run twice is set aside at once, and never tried by itself.
    With `accept_changes`, an agent that has changed still carries its runs out. `heard` is called with the outcome of each try.

    Any number of workers may run at the same time, in any number of processes. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        agents: Runs[Any, Any] | Iterable[Runs[Any, Any]],
        *,
        deps: Any = None,
        poll: float = 1.0,
        concurrency: int = 8,
        tries: int = 5,
        retry_wait: float = 1.0,
        accept_changes: bool = False,
        heard: Callable[[Recovery[Any]], object] | None = None,
    ) -> None:
        given = (agents,) if isinstance(agents, Runs) else agents
        self._agents: tuple[Runs[Any, Any], ...] = tuple(given) if is_series(given) else ()
        if not self._agents or not all(isinstance(each, Runs) for each in self._agents):
            raise ConfigurationError("a worker needs an agent or a graph, or a list of them")
        alone = [
            each.spec.name for each in self._agents if isinstance(each.store, MemoryStore) and each.store.is_of_agent
        ]
        if alone:
            raise ConfigurationError(
                f"{', '.join(alone)} has no store, so a worker finds none of its runs: give it the store in which the runs are"
            )
        names = [each.spec.name for each in self._agents]
        if len(set(names)) != len(names):
            raise ConfigurationError(f"two agents of a worker have one name: {', '.join(sorted(names))}")
        for name, value in (("poll", poll), ("retry_wait", retry_wait)):
            if value is None or not is_timeout(value):
                raise ConfigurationError(f"{name} is a number of seconds above 0, not {quoted(value)}")
        for name, count in (("concurrency", concurrency), ("tries", tries)):
            if not is_count(count) or count == 0:
                raise ConfigurationError(f"{name} is a whole number, 1 or more, not {quoted(count)}")
        if not callable(heard) and heard is not None:
            raise ConfigurationError(f"heard is a function of a Recovery, or None, not {quoted(heard)}")
        check_no_tool(heard)
        self._options: dict[str, Any] = {"accept_changes": accept_changes} | ({} if deps is None else {"deps": deps})
        self._poll, self._wait, self._tries = poll, retry_wait, tries
        self._concurrency = concurrency
        self._heard = heard if heard is not None else _unheard
        self._measures = Measures(self._agents)
        # Changed by the loop that drives a run, which may be one of several, and read by `health` from any thread.
        self._lock = threading.Lock()
        self._tried: dict[str, _Tried] = {}
        self._aside: dict[str, SetAside] = {}
        self._unread: dict[str, SetAside] = {}  # of which nothing could be announced, at the last look for that
        self._at_work: dict[str, _Job] = {}
        self._carried_out = self._failures = 0
        self._looked: float | None = None
        self._status: Literal["starting", "ok", "failing", "stopping", "stopped"] = "starting"
        # A thread that stops or wakes the worker is told the loop by these two.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell: asyncio.Event | None = None
        self._stopping = threading.Event()
        self._begun: float | None = None
        self._ears: list[_Ear] = []
        # What the last look found and there was no room for. A look reads all that is to be done, so with many decisions to carry out
        # it is not repeated after each of them.
        self._found: deque[tuple[Runs[Any, Any], tuple[str, str]]] = deque()
        self._listed = 0.0

    def health(self) -> Health:
        """How the worker is, for a health check or a page. Safe to call from any thread."""
        looked, status, now = self._looked, self._status, time.monotonic()
        with self._lock:
            aside = tuple({**self._unread, **self._aside}.values())
        lately = self._begun is None or now - max(looked or 0.0, self._begun) <= 3 * self._poll + _SLOW
        return Health(
            status=status,
            is_ok=status in ("starting", "ok") and lately,
            last_look=None if looked is None else now - looked,
            at_work=len(self._at_work),
            carried_out=self._carried_out,
            failures=self._failures,
            set_aside=aside,
        )

    def stop(self) -> None:
        """Have the worker take up nothing more, and return when what it drives has come to rest. Safe to call from any thread."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        """Have the worker look into the store now. Safe to call from any thread."""
        loop, bell = self._loop, self._bell
        if loop is not None and bell is not None and not loop.is_closed():
            loop.call_soon_threadsafe(bell.set)

    def run(self, *, grace: float | None = 30.0) -> None:
        """Work until `stop` is called, in an event loop of this thread. See `arun`."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.arun(grace=grace))
        raise AsyncRequired("an event loop runs in this thread: use `await worker.arun()`")

    async def arun(self, *, grace: float | None = 30.0) -> None:
        """Work until `stop` is called.

        Then the runs that are driven have `grace` seconds to come to rest (None: as long as they take). What still runs after that is
        left where it stands, and the next worker recovers it.
        """
        if grace is not None and (not is_number(grace) or grace < 0):
            raise ConfigurationError(f"grace is a number of seconds, 0 or more, or None, not {quoted(grace)}")
        if self._begun is not None:
            raise ConfigurationError("a worker runs once: make another one")
        self._begun = time.monotonic()
        self._loop, self._bell = asyncio.get_running_loop(), asyncio.Event()
        told = {id(each.store.dispatch): each.store for each in self._agents}
        heard = [(each, each.dispatch) for each in told.values()]
        ears = [(_Ear(store, self.wake), by) for store, by in heard if isinstance(by, LocalDispatch)]
        self._ears = [ear for ear, _ in ears]
        for ear, by in ears:
            by.listen(ear)
        try:
            await self._work()
        finally:
            for ear, by in ears:
                by.unlisten(ear)
            self._status = "stopping"
            try:
                await self._rest(grace)
            finally:
                self._status = "stopped"
                self._loop = self._bell = None

    async def once(self) -> list[Recovery[Any]]:
        """Look once, and carry out everything that is to be done now, one run after the other."""
        done: list[Recovery[Any]] = []
        try:
            for agent in self._agents:
                await recovery.aremind(agent.store, agent.spec, _ALL)
                for place in await in_store(agent.store, recovery.found, agent.store, agent.spec, _ALL):
                    done += await self._carried_out_at(agent, place)
            done = recovery.with_failures(done, await self._tidy())
        except PhronomyError:
            self._status = "failing"
            raise
        self._looked, self._status = time.monotonic(), "ok"
        return done

    async def carry_out(self, run_id: str) -> list[Recovery[Any]]:
        """Carry out what is to be done in one run now: for an engine that a `Dispatch` has told of it.

        Returns what came of it: of the run and of each fork in which something was to be done. The list is empty if nothing is to be
        done any more, or if another worker does it; if that one ends in the same moment, both may be given the end. In case the other
        one is gone, the dispatch is told with `at` of the time when its lease is over. The worker need
        not be running, and `concurrency` is not looked at: that is for the engine. Call it in any event loop. A run that fails is
        left for another try, of which the dispatch is told with `at`.

        Raises `CheckpointNotFound` for a run that is unknown or was deleted,
        `ConfigurationError` for a run of another agent and after `stop`, and
        `StoreError`.
        """
        if self._stopping.is_set():
            raise ConfigurationError(
                f"this worker was stopped, so it takes up nothing: have another one do {quoted_id(run_id)}"
            )
        done: list[Recovery[Any]] = []
        others: set[str] = set()
        for agent in self._agents:
            store = agent.store
            others |= {each.agent for each in await in_store(store, store.branches, run_id=run_id)}
            await recovery.aremind(store, agent.spec, _ALL)
            for branch in await in_store(store, recovery.found_in, store, run_id):
                if branch.agent == agent.spec.name:
                    done += await self._carried_out_at(agent, (branch.run_id, branch.id))
            if not done:
                await in_store(store, tell_when_free, store, agent.spec.name, run_id)
        if not others:
            raise CheckpointNotFound(f"the stores of this worker know no run {quoted_id(run_id)}", id=kept_id(run_id))
        if not others & {agent.spec.name for agent in self._agents}:
            raise ConfigurationError(f"run {run_id} is of {', '.join(sorted(others))}, which this worker does not have")
        return done

    # The loop

    async def _work(self) -> None:
        assert self._bell is not None
        tidied = -_TIDY
        while not self._stopping.is_set():
            self._bell.clear()
            for ear in self._ears:
                ear.forget_passed()
            try:
                await self._look()
                if time.monotonic() - tidied >= _TIDY:
                    tidied = time.monotonic()
                    await self._tidy()
                self._looked = time.monotonic()
                self._note("ok")
            except PhronomyError as error:
                # Nothing is lost by waiting: what is to be done stays where it is.
                self._note("failing", type(error).__name__)
            try:
                await asyncio.wait_for(self._bell.wait(), self._pause())
            except TimeoutError:
                continue

    def _note(self, status: Literal["ok", "failing"], error: str = "") -> None:
        """Take note of how the look went. The log is told of each change, and not once for each look while the store is away."""
        before, self._status = self._status, status
        if status == "failing" and before != status:
            _log.warning("a worker cannot look into its store (%s); it tries again until it can", error)
        elif before == "failing" and status == "ok":
            _log.warning("a worker can look into its store again")

    def _pause(self) -> float:
        """Seconds until the next look, if nobody wakes the worker before."""
        # Workers that were started together do not look together: each waits a little more, or less.
        pause = self._poll * random.uniform(0.8, 1.2)  # noqa: S311  # no secret
        now = time.monotonic()
        with self._lock:
            tries = [tried.due - now for tried in self._tried.values() if tried.due > now]
        return min([pause, *tries, *(ear.seconds() for ear in self._ears)])

    async def _look(self) -> None:
        """Find what is to be done, and begin it, as far as there is room."""
        for agent in self._agents:
            await recovery.aremind(agent.store, agent.spec, _ALL)
        if self._found and time.monotonic() - self._listed < _LISTED:
            self._begin_found()
            return
        self._listed = time.monotonic()
        found: list[tuple[Runs[Any, Any], tuple[str, str]]] = []
        for agent in self._agents:
            places = await in_store(agent.store, recovery.found, agent.store, agent.spec, _ALL)
            self._measures.found(agent.spec.name, sum(place[1] not in self._at_work for place in places))
            found += [(agent, place) for place in places]
        self._found = deque(found)
        # Every other time from the front, so that what is oldest gets its turn.
        if len(found) > _LONG and random.random() < 0.5:  # noqa: S311  # no secret
            self._found.rotate(-random.randrange(len(found)))  # noqa: S311
        self._begin_found()

    def _begin_found(self) -> None:
        """Begin what the last look found, as far as there is room."""
        while self._found and len(self._at_work) < self._concurrency and not self._stopping.is_set():
            agent, place = self._found.popleft()
            if self._is_due(place[1]):
                self._begin(agent, place, logged=True)

    def _is_due(self, branch_id: str) -> bool:
        """Whether nobody here drives the branch, and it has not failed a moment ago."""
        tried = self._tried.get(branch_id)
        waits = tried is not None and tried.due > time.monotonic()
        return branch_id not in self._at_work and not waits

    # One run

    def _begin(
        self, agent: Runs[Any, Any], place: tuple[str, str], *, logged: bool = False
    ) -> asyncio.Task[Recovery[Any] | None] | None:
        """Begin to drive a run in a task of this loop; None if it is driven here already."""
        run_id, branch_id = place
        with self._lock:
            if branch_id in self._at_work:
                return None
            task = asyncio.ensure_future(self._carry_on(agent, place))
            self._at_work[branch_id] = _Job(agent=agent, run_id=run_id, task=task)

        task.add_done_callback(partial(self._over, place, logged))
        return task

    def _over(self, place: tuple[str, str], logged: bool, task: asyncio.Task[Recovery[Any] | None]) -> None:
        """Take note that a run is not driven any more; with `logged`, an error that nobody gets is for the log."""
        with self._lock:
            self._at_work.pop(place[1], None)
        if task.cancelled():
            return
        if logged and (error := task.exception()) is not None:
            _log.error("a worker could not look after run %s (%s)", place[0], type(error).__name__, exc_info=error)
        if logged and self._found:
            self._begin_found()  # there is room for another
        elif task.exception() is None and task.result() is not None:
            self.wake()  # there may be more, and a run that was decided again meanwhile is found at once

    async def _carried_out_at(self, agent: Runs[Any, Any], place: tuple[str, str]) -> list[Recovery[Any]]:
        """What came of a run, if anything was to be done in it that nobody else does."""
        task = self._begin(agent, place)
        done = None if task is None else await task
        return [] if done is None else [done]

    async def _carry_on(self, agent: Runs[Any, Any], place: tuple[str, str]) -> Recovery[Any] | None:
        """Drive one run to where it rests, and note what came of it; None if another worker has it."""
        delays = await in_store(agent.store, self._delays, agent, place[1])
        try:
            done = await recovery.acarried_on(agent, place, self._options)
        except SystemExit as error:
            if _is_of_signal(error):
                raise
            done = Recovery(run_id=place[0], branch_id=place[1], error=_exited(place[0]))
        if done is None:
            self._forget(agent, place[1])
            return None
        for delay in delays:
            self._measures.begun(agent.spec.name, delay)
        await self._ended(agent, place, done)
        return done

    def _delays(self, agent: Runs[Any, Any], branch_id: str) -> list[float]:
        """How many seconds the decisions have waited that are carried out now; nothing where that is not measured."""
        if not self._measures.measures(agent.spec.name) or branch_id in self._tried:
            return []
        try:
            return [agent.store.clock() - at.timestamp() for at in recovery.decided_at(agent.store, branch_id)]
        except PhronomyError:  # whoever drives the run meets it, too
            return []

    def _forget(self, agent: Runs[Any, Any], branch_id: str) -> None:
        with self._lock:
            self._tried.pop(branch_id, None)
            was_aside = self._aside.pop(branch_id, None) is not None
        if was_aside:
            self._measures.set_aside(agent.spec.name, -1)

    async def _ended(self, agent: Runs[Any, Any], place: tuple[str, str], done: Recovery[Any]) -> None:
        """Note what came of a try, and tell whoever listens."""
        if done.error is None:
            self._forget(agent, place[1])
            with self._lock:
                self._carried_out += 1
            self._measures.carried_out(agent.spec.name, done.result.status if done.result is not None else "running")
        else:
            await self._failed(agent, place, done.error)
        try:
            self._heard(done)
        except Exception as error:  # it looks on: the run has ended as it has
            _log.warning("what a worker tells of run %s raised %s", place[0], type(error).__name__)

    async def _failed(self, agent: Runs[Any, Any], place: tuple[str, str], error: PhronomyError) -> None:
        """Note that a try has failed, and leave the run for another try; after the last one, it is set aside."""
        run_id, branch_id = place
        tries = self._tried[branch_id].tries + 1 if branch_id in self._tried else 1
        name = type(error).__name__  # what others say may quote anything, so the log has the type alone
        again = may_repeat(error)
        final = not again or tries >= self._tries
        wait = _LONGEST if final else min(self._wait * 2.0 ** (tries - 1), _LONGEST)
        with self._lock:
            self._failures += 1
            if again:
                self._tried[branch_id] = _Tried(tries=tries, due=time.monotonic() + wait)
            else:  # the call that failed may have taken effect: to run it once more is for a human to say
                self._tried.pop(branch_id, None)
        self._measures.failed(agent.spec.name, error)
        if final:
            self._set_aside(agent, place, tries, error)
        else:
            _log.warning("run %s failed (%s); it is tried again in %.0f s", run_id, name, wait)
        if again:
            await self._leave(agent.store, place, error if final else None, wait)

    def _set_aside(self, agent: Runs[Any, Any], place: tuple[str, str], tries: int, error: PhronomyError) -> None:
        """List a run among those that are left alone."""
        run_id, branch_id = place
        aside = _set_aside_by(agent, place, tries, error)
        with self._lock:
            is_new = branch_id not in self._aside
            self._aside[branch_id] = aside
        if is_new:
            self._measures.set_aside(agent.spec.name, 1)
            _log.error("run %s failed (%s, %d tries), and is set aside", run_id, type(error).__name__, tries)

    async def _leave(self, store: Store, place: tuple[str, str], final: PhronomyError | None, wait: float) -> None:
        """Leave a run for another try, of this worker or another, in so many seconds. `final` is the error that it is set aside for."""
        try:
            await in_store(store, leave, store, place, final)
        except PhronomyError:
            _log.warning("that run %s is to be tried again could not be written down", place[0])
            return
        await in_store(store, dispatch.at, store.dispatch, place[0], [store.clock() + wait])

    async def _tidy(self) -> list[Recovery[Any]]:
        """Make announcements that were not made, and delete what is older than the store keeps. Returns the failures."""
        failed: list[Recovery[Any]] = []
        unread: dict[str, SetAside] = {}
        for agent in self._agents:
            for each in await recovery.atidy(agent.store, agent.spec, _ALL):
                failed.append(each)
                unread[each.branch_id] = _set_aside_by(agent, (each.run_id, each.branch_id), 1, each.error)
        with self._lock:
            new = [each for id, each in unread.items() if id not in self._unread and id not in self._aside]
            self._unread = unread
        for aside in new:
            _log.error("run %s cannot be read, so nothing of it is announced; it is set aside", aside.run_id)
        return failed

    async def _rest(self, grace: float | None) -> None:
        """Wait until what is driven in this loop has come to rest, or the grace is over. A cancellation ends the grace."""
        loop = asyncio.get_running_loop()
        with self._lock:
            jobs = {job.task: job for job in self._at_work.values() if job.task.get_loop() is loop}
        left = set(jobs)
        try:
            if jobs:
                left = (await asyncio.wait(jobs, timeout=grace))[1]
        finally:
            left = {task for task in left if not task.done()}
            if left:
                _log.warning("runs left in the middle of what they do: %d; the next worker recovers them", len(left))
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            for job in [jobs[task] for task in left]:
                await in_store(job.agent.store, dispatch.wake, job.agent.store.dispatch, job.run_id)


def _set_aside_by(agent: Runs[Any, Any], place: tuple[str, str], tries: int, error: PhronomyError | None) -> SetAside:
    return SetAside(run_id=place[0], branch_id=place[1], agent=agent.spec.name, tries=tries, error=str(error))


def _is_of_signal(error: SystemExit) -> bool:
    """True if a handler of a signal raised the exit: then it is meant for the process, and not for the run that it met."""
    handlers = {getattr(signal.getsignal(each), "__code__", None) for each in signal.valid_signals()} - {None}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _exited(run_id: str) -> RunFailed:
    """The failure of a run in which a body, a predicate or other code of the agent calls `sys.exit`: other runs go on."""
    error = RunFailed(
        f"run {run_id}: code of its agent called sys.exit() or raised SystemExit, which in a worker is a failure of this run alone:"
        " raise an error that says what is wrong instead"
    )
    error.run_id = run_id
    return error


def may_repeat(error: PhronomyError) -> bool:
    """Whether to drive the run once more runs nothing twice: no call of it has failed that must not run again by itself."""
    checkpoint = error.checkpoint if isinstance(error, RunFailed) else None
    if checkpoint is None:  # it did not get so far as to run anything
        return True
    runs = (checkpoint, *checkpoint.nested)
    return not any(call.status == "failed" and not call.repeatable for run in runs for call in run.calls)


def tell_when_free(store: Store, agent: str, run_id: str) -> None:
    """Have a run looked at again when the leases of those who hold it are over: an engine that was told of it will not come back."""
    now = store.clock()
    held = [each for each in store.branches(run_id=run_id) if each.agent == agent and each.is_held(now)]
    dispatch.at(store.dispatch, run_id, [each.lease_until for each in held])


def leave(store: Store, place: tuple[str, str], final: PhronomyError | None) -> None:
    """Leave a run that has failed for the next try, of this worker or another. One that somebody holds by now is left to them.

    A run that failed is not taken up by recovery, since its caller was told of the error. Here nobody was told: so it is marked as one
    in which something is left to be done. After the last try, its status says that it has failed, whatever kept it from being driven,
    and who decided is told why.
    """
    run_id, branch_id = place
    branch = next((each for each in store.branches(run_id=run_id) if each.id == branch_id), None)
    if branch is None or branch.is_held(store.clock()):
        return
    # It may have come to its end since, or to another human: then there is nothing left of this try.
    if branch.status == "failed" and branch.handed is None:
        nobody = Claim(branch_id=branch_id, run_id=run_id, owner="", fence=branch.fence)
        change = Append(branch_id=branch_id, seq=branch.seq, holder=nobody)
    elif final and branch.status == "suspended" and branch.handed is not None:
        change = Append(branch_id=branch_id, seq=branch.seq, take="worker", release=True, status="failed")
    else:
        change = None
    try:
        if change is not None:
            store.append(change)
        if final is not None:
            set_aside.note(store, branch, final)
    except (Behind, Held):  # somebody has taken it up meanwhile: then it is theirs
        return

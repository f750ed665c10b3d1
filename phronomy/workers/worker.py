"""A worker: a loop that looks into the store for what is to be done, and has the agents do it.

It has no queue and no leader. What is to be done is in the store: decisions that nobody carries out, runs whose worker died, requests
whose time is over, announcements that were not made. Any number of workers may look at the same time, since each run is claimed before
it is driven; whoever comes second finds it held, and leaves it.

A worker that dies leaves leases that run out, and the next look of another worker takes its runs over. So nothing is kept here that
matters: the list of tries below is there to leave a run alone for a while after it has failed, and a new worker begins it anew.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from phronomy.errors import AsyncRequired, ConfigurationError, PhronomyError, RunFailed
from phronomy.foundation.checks import is_count, is_number, is_series, is_timeout
from phronomy.foundation.quoting import quoted
from phronomy.runs import recovery
from phronomy.runs.recovery import Recovery
from phronomy.runs.runs import Runs
from phronomy.stores.base import Store
from phronomy.stores.native import in_store
from phronomy.stores.rows import Append, Behind, Claim, Held

_log = logging.getLogger("phronomy")

_TIDY: Final = 30.0
"""Seconds between two looks for announcements that were not made, and for runs that are older than their store keeps."""

_ALL: Final = 1_000_000
"""More runs than a look is to leave out: those that cannot be carried out come first, and would keep the others from their turn."""

_LONGEST: Final = 300.0
"""Seconds between two tries of a run that failed again and again."""


def _unheard(done: Recovery[Any]) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A run that failed again and again, and is tried only every few minutes until that is mended."""

    run_id: str
    branch_id: str
    agent: str
    tries: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a worker is: `worker.health()`.

    `status` is `"starting"` before the first look, `"ok"`, `"failing"` if the last look failed (the store cannot be reached, say),
    `"stopping"` or `"stopped"`. `last_look` is how many seconds ago the last look succeeded, None if none has. `carried_out` counts
    the runs that were driven to where they rest, `failures` the tries that failed. `set_aside` are the runs that are left alone.
    """

    status: Literal["starting", "ok", "failing", "stopping", "stopped"]
    last_look: float | None
    at_work: int
    carried_out: int
    failures: int
    set_aside: tuple[SetAside, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """How often a run has failed here, and when it may be tried again, by the monotonic clock."""

    tries: int
    due: float


class Worker:
    """A loop that carries out what was decided, recovers runs whose worker died, and settles what has expired.

    `agents` are agents or graphs, each with the store that it works on; `deps` is what their tools get. The worker looks into the
    stores every `poll` seconds, give or take a fifth, and at once after a decision that was made with the same store object. It
    drives up to `concurrency` runs at the same time. A run that fails is tried again after `retry_wait` seconds, which double with
    each try up to five minutes. After `tries` tries it is set aside: its status is `failed`, `health()` lists it with the
    reason, and it is tried every five minutes. A run in which a call has failed that must not run twice is set aside at
    once, and never tried by itself. With `accept_changes`, an agent that has changed still carries its runs out. `heard`
    is called with the outcome of each try.

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
        self._options: dict[str, Any] = {"accept_changes": accept_changes} | ({} if deps is None else {"deps": deps})
        self._poll, self._wait, self._tries = poll, retry_wait, tries
        self._concurrency = concurrency
        self._heard = heard if heard is not None else _unheard
        # Changed by the loop alone, and read by `health` from any thread.
        self._tried: dict[str, _Tried] = {}
        self._aside: dict[str, SetAside] = {}
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._carried_out = self._failures = 0
        self._looked: float | None = None
        self._status: Literal["starting", "ok", "failing", "stopping", "stopped"] = "starting"
        # A thread that stops or wakes the worker is told the loop by these two.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell: asyncio.Event | None = None
        self._stopping = threading.Event()
        self._begun = False

    def health(self) -> Health:
        """How the worker is, for a health check or a page. Safe to call from any thread."""
        looked = self._looked
        return Health(
            status=self._status,
            last_look=None if looked is None else time.monotonic() - looked,
            at_work=len(self._at_work),
            carried_out=self._carried_out,
            failures=self._failures,
            set_aside=tuple(self._aside.values()),
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
        if self._begun:
            raise ConfigurationError("a worker runs once: make another one")
        self._begun = True
        self._loop, self._bell = asyncio.get_running_loop(), asyncio.Event()
        stores = {id(each.store.keeper): each.store.keeper for each in self._agents}
        for keeper in stores.values():
            keeper.listen(self.wake)
        try:
            await self._work()
        finally:
            for keeper in stores.values():
                keeper.unlisten(self.wake)
            self._status = "stopping"
            await self._rest(grace)
            self._status = "stopped"
            self._loop = self._bell = None

    async def once(self) -> list[Recovery[Any]]:
        """Look once, and carry out everything that is to be done now, one run after the other."""
        done: list[Recovery[Any]] = []
        for agent in self._agents:
            for place in await in_store(agent.store, recovery.found, agent.store, agent.spec, _ALL):
                each = await recovery.acarried_on(agent, place, self._options)
                if each is not None:
                    await self._ended(agent, place, each)
                    done.append(each)
        await self._tidy()
        self._looked = time.monotonic()
        return done

    # The loop

    async def _work(self) -> None:
        assert self._bell is not None
        tidied = -_TIDY
        while not self._stopping.is_set():
            self._bell.clear()
            try:
                await self._look()
                if time.monotonic() - tidied >= _TIDY:
                    tidied = time.monotonic()
                    await self._tidy()
                self._looked, self._status = time.monotonic(), "ok"
            except PhronomyError as error:
                # The store is away. Nothing is lost by waiting: what is to be done stays where it is.
                self._status = "failing"
                _log.warning("a worker cannot look into its store (%s); it tries again", type(error).__name__)
            # Workers that were started together do not look together: each waits a little more, or less.
            pause = self._poll * random.uniform(0.8, 1.2)  # noqa: S311  # no secret
            try:
                await asyncio.wait_for(self._bell.wait(), pause)
            except TimeoutError:
                continue

    async def _look(self) -> None:
        """Begin what is to be done, as far as there is room."""
        for agent in self._agents:
            for place in await in_store(agent.store, recovery.found, agent.store, agent.spec, _ALL):
                if len(self._at_work) >= self._concurrency:
                    return
                if self._is_due(place[1]) and not self._stopping.is_set():
                    task = asyncio.ensure_future(self._carry_on(agent, place))
                    self._at_work[place[1]] = task

    def _is_due(self, branch_id: str) -> bool:
        """Whether nobody here drives the branch, and it has not failed a moment ago."""
        tried = self._tried.get(branch_id)
        waits = tried is not None and tried.due > time.monotonic()
        return branch_id not in self._at_work and not waits

    async def _carry_on(self, agent: Runs[Any, Any], place: tuple[str, str]) -> None:
        """Drive one run to where it rests, and note what came of it."""
        branch_id = place[1]
        try:
            done = await recovery.acarried_on(agent, place, self._options)
            if done is None:  # another worker has it
                self._forget(branch_id)
                return
            await self._ended(agent, place, done)
            self.wake()  # there is room for another, and a run that was decided again meanwhile is found at once
        except Exception as error:
            _log.exception("a worker could not look after run %s (%s)", place[0], type(error).__name__)
        finally:
            self._at_work.pop(branch_id, None)

    def _forget(self, branch_id: str) -> None:
        self._tried.pop(branch_id, None)
        self._aside.pop(branch_id, None)

    async def _ended(self, agent: Runs[Any, Any], place: tuple[str, str], done: Recovery[Any]) -> None:
        """Note what came of a try, and tell whoever listens."""
        if done.error is None:
            self._forget(place[1])
            self._carried_out += 1
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
        self._failures += 1
        name = type(error).__name__  # what others say may quote anything, so the log has the type alone
        again = may_repeat(error)
        final = not again or tries >= self._tries
        if final and branch_id not in self._aside:
            _log.error("run %s failed (%s, %d tries), and is set aside", run_id, name, tries)
        if final:
            aside = SetAside(run_id=run_id, branch_id=branch_id, agent=agent.spec.name, tries=tries, error=str(error))
            self._aside[branch_id] = aside
        if not again:  # the call that failed may have taken effect: to run it once more is for a human to say
            self._tried.pop(branch_id, None)
            return
        wait = _LONGEST if final else min(self._wait * 2.0 ** (tries - 1), _LONGEST)
        self._tried[branch_id] = _Tried(tries=tries, due=time.monotonic() + wait)
        if not final:
            _log.warning("run %s failed (%s); it is tried again in %.0f s", run_id, name, wait)
        try:
            await in_store(agent.store, leave, agent.store, place, final)
        except PhronomyError:
            _log.warning("that run %s is to be tried again could not be written down", run_id)

    async def _tidy(self) -> None:
        """Make announcements that were not made, and delete what is older than the store keeps."""
        for agent in self._agents:
            await recovery.atidy(agent.store, agent.spec, _ALL)

    async def _rest(self, grace: float | None) -> None:
        """Wait until what is driven has come to rest, or the grace is over."""
        tasks: Sequence[asyncio.Task[None]] = [*self._at_work.values()]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=grace)
            if left:
                _log.warning("%d runs are left in the middle of what they do; the next worker recovers them", len(left))
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


def may_repeat(error: PhronomyError) -> bool:
    """Whether to drive the run once more runs nothing twice: no call of it has failed that must not run again by itself."""
    checkpoint = error.checkpoint if isinstance(error, RunFailed) else None
    if checkpoint is None:  # it did not get so far as to run anything
        return True
    runs = (checkpoint, *checkpoint.nested)
    return not any(call.status == "failed" and not call.repeatable for run in runs for call in run.calls)


def leave(store: Store, place: tuple[str, str], final: bool) -> None:
    """Leave a run that has failed for the next try, of this worker or another. One that somebody holds by now is left to them.

    A run that failed is not taken up by recovery, since its caller was told of the error. Here nobody was told: so it is marked as one
    in which something is left to be done. After the last try, its status says that it has failed, whatever kept it from being driven.
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
        return
    try:
        store.append(change)
    except (Behind, Held):  # somebody has taken it up meanwhile: then it is theirs
        return

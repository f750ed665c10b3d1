"""Opening a run for an agent: the runner that drives a new one, a resumed one, one that is ended."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_args

from phronomy import _results, _session
from phronomy._hold import aclaim, alet_go, claim, driven
from phronomy._judge import adecide, decide, expiry
from phronomy._ledger import call as in_store
from phronomy._ledger import now
from phronomy._options import OnPending
from phronomy._runner import Runner, Spec
from phronomy._session import Beginning, Choice
from phronomy.checkpoint import Checkpoint
from phronomy.errors import ConfigurationError
from phronomy.result import Result
from phronomy.stores.base import Store
from phronomy.stores.rows import Branch, Occupied
from phronomy.types import Ending, Halted, Outcome, Wait


class Opening:
    """What an agent needs to open runs in its store. The async methods are the sync ones, with the store called in a thread."""

    store: Store
    _bearer: bool

    def _start(
        self, spec: Spec, deps: Any, at: Any, beginning: Beginning, on_pending: OnPending, choice: Choice
    ) -> Runner | Result[Any]:
        """A runner at a checkpoint, as `resume` opens it, or of a new run."""
        if isinstance(at, Checkpoint):
            return self._open(spec, deps, at, choice)
        _session.check_undecided(choice)
        return self._begin(spec, deps, beginning, on_pending)

    async def _astart(
        self, spec: Spec, deps: Any, at: Any, beginning: Beginning, on_pending: OnPending, choice: Choice
    ) -> Runner | Result[Any]:
        """As `_start`."""
        if isinstance(at, Checkpoint):
            return await self._aopen(spec, deps, at, choice)
        _session.check_undecided(choice)
        return await self._abegin(spec, deps, beginning, on_pending)

    def _begin(self, spec: Spec, deps: Any, beginning: Beginning, on_pending: OnPending) -> Runner:
        if on_pending not in get_args(OnPending):
            raise ConfigurationError(f"on_pending is 'refuse' or 'supersede', not {on_pending!r}")
        while True:
            try:
                return _session.begin(self.store, spec, deps, beginning)
            except Occupied as occupied:
                ending = _session.superseding(self.store, occupied.branch, on_pending)
                runner = self._act_on(spec, deps, occupied.branch.id, ending)
                if isinstance(runner, Runner):
                    driven(runner)

    async def _abegin(self, spec: Spec, deps: Any, beginning: Beginning, on_pending: OnPending) -> Runner:
        begun: list[Runner] = []
        try:
            await in_store(self.store, lambda: begun.append(self._begin(spec, deps, beginning, on_pending)))
        except BaseException:  # cancelled while it began: nobody is left who would let it go
            for runner in begun:
                with suppress(Exception):
                    await alet_go(runner)
            raise
        return begun[0]

    def _act_on(self, spec: Spec, deps: Any, run: Checkpoint | str, outcome: Ending | Halted) -> Runner | Result[Any]:
        """A runner that holds the run with its end, or its stop, recorded; or how it stands, if another worker was told of it.

        A run that waits already is not stopped once more.
        """
        branch_id = _session.branch_of(self.store, run, bearer=self._bearer)
        while True:
            opened = _session.open_head(self.store, spec, deps, branch_id)
            _session.check_not_ended(opened, opened.head.id)
            if opened.live and isinstance(outcome, Ending) and outcome.status == "superseded":
                raise _session.busy(opened.branch)
            if opened.live:
                if _session.hand_over(self.store, opened, [outcome], ()):
                    return _session.handed_over(opened)
                continue
            if isinstance(outcome, Halted) and isinstance(spec.plan(opened.runner.state), Wait):
                return _results.result_of(opened.runner, opened.head)
            opened.runner.record(outcome)
            if claim(opened.runner):
                return opened.runner

    def _open(self, spec: Spec, deps: Any, checkpoint: Checkpoint | str, choice: Choice) -> Runner | Result[Any]:
        """A runner that holds the run with the decisions recorded; or how it stands, where another worker holds it."""
        branch, given, store = _session.meant(self.store, checkpoint, bearer=self._bearer)
        found = _session.answers(given, choice)
        seen: tuple[Branch, Checkpoint] | None = (branch, given)
        while True:
            opened = _session.open_head(store, spec, deps, branch.id, seen)
            seen = None
            late = [pending_id for pending_id in found if pending_id in opened.lapsed]
            answers = {pending_id: answer for pending_id, answer in found.items() if pending_id not in late}
            _session.check_open(opened, given, found, choice)
            taken: list[Outcome] = []
            for pending_id, answer in answers.items():
                runner, waiting = _session.asker(opened.runner, pending_id)
                taken.append(decide(runner, waiting, answer, by=choice.by, channel=choice.channel))
            if store is not self.store:
                branch, given = _session.taken_in(self.store, given, bearer=True)
                store = self.store
                continue
            edits = spec.edits(opened.runner, now(store), choice.by)
            if opened.live and edits and not _is_at_rest(spec, opened.runner):
                raise _session.busy(opened.branch)
            if opened.live:
                taken = [*edits, *taken]
                taken += expiry(opened.runner, {id: opened.lapsed[id] for id in late})
                if _session.hand_over(self.store, opened, taken, tuple(found)):
                    return _results.in_time(_session.handed_over(opened), late)
                continue
            opened.runner.record_all(edits)
            opened.runner.record_all(taken)
            opened.runner.late = tuple(late)
            if claim(opened.runner):
                return opened.runner

    async def _aopen(self, spec: Spec, deps: Any, checkpoint: Checkpoint | str, choice: Choice) -> Runner | Result[Any]:
        """As `_open`."""
        branch, given, store = await in_store(self.store, _session.meant, self.store, checkpoint, bearer=self._bearer)
        found = _session.answers(given, choice)
        seen: tuple[Branch, Checkpoint] | None = (branch, given)
        while True:
            opened = await in_store(self.store, _session.open_head, store, spec, deps, branch.id, seen)
            seen = None
            late = [pending_id for pending_id in found if pending_id in opened.lapsed]
            answers = {pending_id: answer for pending_id, answer in found.items() if pending_id not in late}
            _session.check_open(opened, given, found, choice)
            taken: list[Outcome] = []
            for pending_id, answer in answers.items():
                runner, waiting = _session.asker(opened.runner, pending_id)
                taken.append(await adecide(runner, waiting, answer, by=choice.by, channel=choice.channel))
            if store is not self.store:
                branch, given = await in_store(self.store, _session.taken_in, self.store, given, bearer=True)
                store = self.store
                continue
            edits = spec.edits(opened.runner, now(store), choice.by)
            if opened.live and edits and not _is_at_rest(spec, opened.runner):
                raise _session.busy(opened.branch)
            if opened.live:
                taken = [*edits, *taken]
                taken += expiry(opened.runner, {id: opened.lapsed[id] for id in late})
                if await in_store(self.store, _session.hand_over, self.store, opened, taken, tuple(found)):
                    return _results.in_time(_session.handed_over(opened), late)
                continue
            opened.runner.record_all(edits)
            opened.runner.record_all(taken)
            opened.runner.late = tuple(late)
            if await aclaim(opened.runner):
                return opened.runner


def _is_at_rest(spec: Spec, runner: Runner) -> bool:
    """Whether whoever holds the run waits with it, and nothing of it is under way."""
    move = spec.plan(runner.state)
    return isinstance(move, Wait) and not move.running

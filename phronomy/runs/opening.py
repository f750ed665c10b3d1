"""Opening a run for an agent: the runner that drives a new one, a resumed one, one that is ended."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, get_args

from phronomy.approvals.answers import has_words
from phronomy.engine.judging.decide import adecide, decide
from phronomy.engine.judging.due import expiry
from phronomy.engine.ledger import now
from phronomy.engine.run import Runner
from phronomy.engine.spec import Spec
from phronomy.errors import (
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    ConfigurationError,
    InvalidDecision,
    NotAnApprover,
    RunFailed,
)
from phronomy.foundation.quoting import quoted_word
from phronomy.records.calls import Added, Decided, Ending, Halted, Outcome, Voted
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer
from phronomy.records.moves import Wait
from phronomy.records.result import Result
from phronomy.rules.added_messages import closed
from phronomy.rules.triggers import in_order
from phronomy.runs.driving import aclaim, alet_go, claim, driven, let_go
from phronomy.runs.finding import decisions, lookup, results
from phronomy.runs.finding.beginning import IDLE, Beginning, abegin, begin, contradiction
from phronomy.runs.finding.decisions import Choice
from phronomy.runs.finding.elsewhere import elsewhere
from phronomy.runs.finding.handover import hand_over
from phronomy.runs.finding.lookup import Opened
from phronomy.runs.options import OnPending
from phronomy.stores.base import Store
from phronomy.stores.derived.people import as_met
from phronomy.stores.derived.voters import check_may_decide
from phronomy.stores.derived.voting import note_refusal
from phronomy.stores.memory import MemoryStore
from phronomy.stores.native import in_store, reading
from phronomy.stores.rows import Branch, Occupied

_log = logging.getLogger("phronomy")


class Opening:
    """The base of agents and graphs that opens runs in a store. Its async methods call a store in a thread if it may take time."""

    store: Store
    _bearer: bool

    def _store_of(self, run: Checkpoint | str | None) -> Store:
        """The store that has the run: the agent's, or where that is one of its own, the one in this process that has it."""
        store = self.store
        # An agent that is made anew for each request, without a store, has a new memory each time. The run is looked for in the
        # memories of this process, so that a decision counts once all the same (law 3).
        if self._bearer and isinstance(store, MemoryStore) and type(run) is Checkpoint:
            return store.home_of(run.run_id, run.id)
        return store

    def _start(
        self, spec: Spec, deps: object, at: object, beginning: Beginning, on_pending: OnPending, choice: Choice
    ) -> Runner | Result[Any]:
        """A runner at a checkpoint, as `resume` opens it, or of a new run."""
        if isinstance(at, Checkpoint):
            return self._open(spec, deps, at, choice, watched=True)
        decisions.check_undecided(choice)
        return self._begin(spec, deps, beginning, on_pending)

    async def _astart(
        self, spec: Spec, deps: object, at: object, beginning: Beginning, on_pending: OnPending, choice: Choice
    ) -> Runner | Result[Any]:
        """As `_start`."""
        if isinstance(at, Checkpoint):
            return await self._aopen(spec, deps, at, choice, watched=True)
        decisions.check_undecided(choice)
        return await self._abegin(spec, deps, beginning, on_pending)

    def _begin(self, spec: Spec, deps: object, beginning: Beginning, on_pending: OnPending) -> Runner:
        _check_on_pending(on_pending)
        # Each run in the way is superseded in turn. A store that names the same run again and again, though it has ended,
        # contradicts itself; without a bound this would never return.
        tries: Counter[str] = Counter()
        while max(tries.values(), default=0) <= IDLE:
            try:
                return begin(
                    self.store, spec, deps, beginning, partial(let_go, leaves=True), afresh=on_pending == "ignore"
                )
            except Occupied as occupied:
                busy = occupied.branch
            tries[busy.id] += 1
            self._make_room(spec, deps, busy, on_pending)  # what it raises is no failure of the look at the store
        raise contradiction(beginning.thread_id)

    async def _abegin(self, spec: Spec, deps: object, beginning: Beginning, on_pending: OnPending) -> Runner:
        """As `_begin`."""
        _check_on_pending(on_pending)
        tries: Counter[str] = Counter()
        while max(tries.values(), default=0) <= IDLE:
            try:
                return await abegin(
                    self.store, spec, deps, beginning, partial(alet_go, leaves=True), afresh=on_pending == "ignore"
                )
            except Occupied as occupied:
                busy = occupied.branch
            tries[busy.id] += 1
            await in_store(self.store, self._make_room, spec, deps, busy, on_pending)
        raise contradiction(beginning.thread_id)

    def _make_room(self, spec: Spec, deps: object, branch: Branch, on_pending: OnPending) -> None:
        """Supersede the run that keeps a thread busy."""
        # It raises where the caller did not ask for this: to end what waits for a human is a decision of its own.
        ending = lookup.superseding(self.store, branch, on_pending)
        with suppress(CheckpointNotFound, CheckpointAlreadyResumed):  # it has ended meanwhile, or was taken away
            runner = self._act_on(spec, deps, branch.id, ending, on_pending)
            if isinstance(runner, Runner):
                driven(runner)

    def _act_on(
        self,
        spec: Spec,
        deps: object,
        run: Checkpoint | str,
        outcome: Ending | Halted,
        on_pending: OnPending = "supersede",
        seen: Checkpoint | None = None,
    ) -> Runner | Result[Any]:
        """A runner that holds the run with its end or its stop recorded.

        If another worker holds the run, that worker is told, and the result is returned instead. A run that already
        waits is not stopped again. A run that is superseded must be in a state that `on_pending` allows, and one of
        which a checkpoint was `seen` must wait for the same requests.
        """
        home = self._store_of(run)
        branch_id = lookup.branch_of(home, run, bearer=self._bearer)
        while True:
            opened = lookup.open_head(home, spec, deps, branch_id)
            lookup.check_not_ended(opened, opened.head.id)
            # With each look: the write below is refused if the log has grown since, so what waits then is what is compared here.
            if seen is not None:
                _check_seen(opened.head, seen)
            if isinstance(outcome, Ending) and outcome.status == "superseded":
                # Asked again: between the refusal and this look it may have been decided, and may be at work. Then it is not what
                # the caller wanted superseded.
                lookup.superseding(home, opened.branch, on_pending)
                if opened.live:
                    raise lookup.busy(opened.branch)
            if opened.live:
                if hand_over(home, opened, [outcome], ()):
                    return lookup.handed_over(opened)
                continue
            # It waits already. A second stop would have to be let go on from as well.
            if isinstance(outcome, Halted) and isinstance(spec.plan(opened.runner.state), Wait):
                return results.result_of(opened.runner, opened.head)
            # In the same write as the claim: a crash after it leaves a run that is to end, and whoever recovers it ends it.
            opened.runner.record(outcome)
            if claim(opened.runner):
                return opened.runner

    def _open(
        self, spec: Spec, deps: object, checkpoint: Checkpoint | str, choice: Choice, *, watched: bool = False
    ) -> Runner | Result[Any]:
        """A runner that holds the run with the decisions recorded; or the result, if another worker holds the run."""
        home = self._store_of(checkpoint)
        # Which checkpoint is meant, and what the store says stands there. All that follows reads the stored one: an edited copy
        # gets nowhere (law 9).
        other = None
        if choice.write_to is None:
            branch, given, store = lookup.meant(home, checkpoint, bearer=self._bearer)
        else:
            other = elsewhere(home, checkpoint, choice.write_to, bearer=self._bearer)
            branch, given, store = other.found()
            choice = other.choice(choice, given)
        # The answers are read against the checkpoint that the caller has seen, and counted against the head of the branch: two
        # people may decide two calls of one checkpoint, one after the other.
        found = decisions.answers(given, choice)
        if _speaks(spec, choice, found):
            choice = replace(choice, by=as_met(home, choice.by))
        seen: tuple[Branch, Checkpoint] | None = (branch, given)
        while True:
            # Opened anew for each try. Whoever was first may have decided this, or have changed what an edit is judged by.
            opened = lookup.open_head(store, spec, deps, branch.id, seen)
            seen = None
            # A decision that came too late is no error before the run goes on: the call is settled as expired, and the caller is
            # told at the end.
            late = [pending_id for pending_id in found if pending_id in opened.lapsed]
            answers = {pending_id: answer for pending_id, answer in found.items() if pending_id not in late}
            # Everything that can be refused is refused before the first write (laws 10 and 15).
            lookup.check_open(opened, given, found, choice)
            taken: list[Outcome] = []
            for pending_id, answer in answers.items():
                # It may wait at any depth: the runner of that inner run is made to judge the answer with its own tools and
                # guardrails. Nothing of it is driven.
                taken.append(_taken(store, opened, pending_id, answer, choice))
            at = now(store)
            edits = _edits(spec, opened, at, choice)
            _warn_of_shown(opened, taken, edits)
            # The edits first: what was decided is to run on the state that they leave.
            taken = [*edits, *in_order(taken, opened.runner.state.pending)]
            if opened.live:
                taken += expiry(opened.runner, {id: opened.lapsed[id] for id in late})
            taken += _said(opened, taken, at, choice, late)
            # A bearer brought it, and all of it would be accepted. Only now is it taken into the store, and opened there: a wrong
            # decision leaves no trace of it.
            if store is not home:
                taking = other.written if other is not None else partial(lookup.taken_in, given=given, bearer=True)
                branch, given = taking(home)
                store = home
                continue
            # An edit of the state is not handed over to a worker that is at work: it has read the state already. Nor is a decision
            # of a caller who takes scopes away: that worker would carry it out with all that it has.
            if opened.live and ((edits and not _is_at_rest(spec, opened.runner)) or _takes_scopes(spec, opened)):
                raise lookup.busy(opened.branch)
            if opened.live:
                # Another worker holds the run. The decision is put into the log for it, in one write that fails if it has let go
                # meanwhile: then it is ours to carry out.
                if hand_over(home, opened, taken, tuple(found)):
                    return results.in_time(lookup.handed_over(opened), late)
                continue
            opened.runner.record_all(taken)
            # Told at the end, with the result: the run goes on without what was too late.
            opened.runner.late, opened.runner.watched = tuple(late), watched
            if claim(opened.runner):
                return opened.runner

    async def _aopen(
        self, spec: Spec, deps: object, checkpoint: Checkpoint | str, choice: Choice, *, watched: bool = False
    ) -> Runner | Result[Any]:
        """As `_open`."""
        home = self._store_of(checkpoint)
        other = None
        if choice.write_to is None:
            branch, given, store = await reading(home, lookup.meant, home, checkpoint, bearer=self._bearer)
        else:
            other = await in_store(home, elsewhere, home, checkpoint, choice.write_to, bearer=self._bearer)
            branch, given, store = other.found()
            choice = other.choice(choice, given)
        found = decisions.answers(given, choice)
        if _speaks(spec, choice, found):
            choice = replace(choice, by=await reading(home, as_met, home, choice.by))
        seen: tuple[Branch, Checkpoint] | None = (branch, given)
        while True:
            opened = await reading(store, lookup.open_head, store, spec, deps, branch.id, seen)
            seen = None
            late = [pending_id for pending_id in found if pending_id in opened.lapsed]
            answers = {pending_id: answer for pending_id, answer in found.items() if pending_id not in late}
            lookup.check_open(opened, given, found, choice)
            taken: list[Outcome] = []
            for pending_id, answer in answers.items():
                taken.append(await _ataken(store, opened, pending_id, answer, choice))
            at = now(store)
            edits = _edits(spec, opened, at, choice)
            _warn_of_shown(opened, taken, edits)
            taken = [*edits, *in_order(taken, opened.runner.state.pending)]
            if opened.live:
                taken += expiry(opened.runner, {id: opened.lapsed[id] for id in late})
            taken += _said(opened, taken, at, choice, late)
            if store is not home:
                taking = other.written if other is not None else partial(lookup.taken_in, given=given, bearer=True)
                branch, given = await in_store(home, taking, home)
                store = home
                continue
            if opened.live and ((edits and not _is_at_rest(spec, opened.runner)) or _takes_scopes(spec, opened)):
                raise lookup.busy(opened.branch)
            if opened.live:
                if await in_store(home, hand_over, home, opened, taken, tuple(found)):
                    return results.in_time(lookup.handed_over(opened), late)
                continue
            opened.runner.record_all(taken)
            opened.runner.late, opened.runner.watched = tuple(late), watched
            if await aclaim(opened.runner):
                return opened.runner


def _speaks(spec: Spec, choice: Choice, found: Mapping[str, Answer]) -> bool:
    """True if models may read words of the person who decides: then the record says which person that was."""
    return spec.flow is not None or choice.input is not None or any(has_words(each) for each in found.values())


def _takes_scopes(spec: Spec, opened: Opened) -> bool:
    """Whether the run has scopes that the caller does not give it."""
    return spec.scopes is not None and not spec.scopes.issuperset(opened.runner.state.scopes)


def _check_on_pending(on_pending: object) -> None:
    """Raise `ConfigurationError` if this does not say what becomes of a run that keeps the thread busy."""
    if on_pending not in get_args(OnPending):
        raise ConfigurationError(
            f"on_pending is 'refuse', 'supersede_failed', 'supersede' or 'ignore', not {quoted_word(on_pending)}"
        )


def _check_seen(head: Checkpoint, seen: Checkpoint) -> None:
    """Refuse a run that waits for something else than at the checkpoint that somebody was shown. Raises `InvalidDecision`."""
    if not isinstance(seen, Checkpoint) or seen.run_id != head.run_id:
        raise InvalidDecision(f"seen is a checkpoint of run {head.run_id}, or None")
    if [(item.id, item.digest) for item in head.pending] != [(item.id, item.digest) for item in seen.pending]:
        raise InvalidDecision(
            f"run {head.run_id} waits for other requests than at checkpoint {seen.id}, which was shown: look at checkpoint {head.id}"
        )


def _taken(store: Store, opened: Opened, pending_id: str, answer: Answer, choice: Choice) -> Outcome:
    """The outcome of one answer. That somebody tried who may not is in the trail."""
    runner, waiting = lookup.asker(opened.runner, pending_id)
    try:
        check_may_decide(store, pending_id, choice.by)
        outcome = decide(runner, waiting, answer, by=choice.by, channel=choice.channel)
    except NotAnApprover as error:
        note_refusal(store, error, answer.kind, choice.by, choice.channel)
        raise
    return decisions.with_key(outcome, answer, choice)


async def _ataken(store: Store, opened: Opened, pending_id: str, answer: Answer, choice: Choice) -> Outcome:
    """As `_taken`."""
    runner, waiting = lookup.asker(opened.runner, pending_id)
    try:
        await reading(store, check_may_decide, store, pending_id, choice.by)
        outcome = await adecide(runner, waiting, answer, by=choice.by, channel=choice.channel)
    except NotAnApprover as error:
        await in_store(store, note_refusal, store, error, answer.kind, choice.by, choice.channel)
        raise
    return decisions.with_key(outcome, answer, choice)


def _edits(spec: Spec, opened: Opened, at: datetime, choice: Choice) -> Sequence[Outcome]:
    """What the caller changes in the state of the run. Raises what `Flow.edits` does, with the run and where it stands."""
    try:
        return spec.flow.edits(opened.runner, at, choice.by) if spec.flow is not None else ()
    except RunFailed as error:
        # An error of a callback of the caller. With these they can go on from where the run still stands.
        error.run_id, error.checkpoint = opened.branch.run_id, opened.head
        raise


def _warn_of_shown(opened: Opened, taken: Sequence[Outcome], edits: Sequence[Outcome]) -> None:
    """Log which nodes are approved with the state that was shown, where the same resume changes the state."""
    waiting = {item.id: item for item in opened.runner.state.pending} if edits else {}
    for outcome in taken:
        if not isinstance(outcome, Decided) or outcome.decision.kind != "approve" or outcome.edited is not None:
            continue
        item = waiting.get(outcome.decision.pending_id)
        if item is not None and item.why == "approval" and item.tool.source == "node" and "state" in item.args:
            _log.warning(
                "run %s: node %s was approved with the state that was shown, and runs with that, not with the state that this resume"
                " changes (pending %s): to have it run with another one, edit it with Approve(args=...)",
                opened.branch.run_id,
                item.tool_name,
                item.id,
            )


def _said(
    opened: Opened, taken: Sequence[Outcome], at: datetime, choice: Choice, late: Sequence[str]
) -> Sequence[Outcome]:
    """What the caller says to the agent beside what is `taken`; nothing where their decision came too late, and the run is over.

    A worker that holds the run takes it up before it asks the model: a call is open there, or the run waits. Raises `InvalidDecision`
    where nobody would read it.
    """
    if (message := choice.message) is None:
        return ()
    if any(isinstance(each, Voted) for each in taken):
        raise InvalidDecision(
            f"run {opened.branch.run_id} takes more votes, so nothing can be said with this one. Nothing was decided:"
            " vote without input"
        )
    runner = opened.runner
    if runner.home.kind != "agent":
        raise ConfigurationError(
            f"{runner.home.kind} {runner.home.name!r}: input= of a resume is for agents; update= changes a state. Nothing was done"
        )
    # Whether anybody will read it is asked of the rules, on the state with what was just decided. To guess it here would be a
    # second truth.
    state = runner.state
    for outcome in taken:
        state = runner.spec.apply(state, outcome)
    if (why := closed(state)) is None:
        # Guarded as an input is, if the run has guardrails for inputs: it comes from the same people.
        return [Added(message=message, guarded=bool(runner.home.input_guardrails), by=choice.by, at=at)]
    # Their decision came too late, and may have ended the run by that. They are told so; that nothing more can be said follows from
    # it.
    if late:
        return ()
    raise InvalidDecision(
        f"nothing more can be said in run {state.run_id}, checkpoint {opened.head.id}: {why}. Nothing was decided: decide without"
        " input, and begin a run with it, on the same thread"
    )


def _is_at_rest(spec: Spec, runner: Runner) -> bool:
    """Whether the worker that holds the run waits, and nothing of the run is under way."""
    # What the worker does cannot be seen from here, but the record says what it could be doing.
    move = spec.plan(runner.state)
    return isinstance(move, Wait) and not move.running

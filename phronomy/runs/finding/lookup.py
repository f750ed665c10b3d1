"""Opening a run: which checkpoint is meant, whether it may be trusted, who holds it, and what has been decided.

Nothing here asks a model or runs a tool. These functions block on the store; the async methods call them in a thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from phronomy.approvals.answers import check_listed, check_shown
from phronomy.engine.judging.due import expiry, lapsed
from phronomy.engine.ledger import Ledger, now
from phronomy.engine.nested import child_of, fits, interruption
from phronomy.engine.run import Runner
from phronomy.engine.spec import Spec
from phronomy.errors import (
    AgentChanged,
    CheckpointAlreadyResumed,
    CheckpointEdited,
    CheckpointError,
    CheckpointNotFound,
    CheckpointUntrusted,
    ConfigurationError,
    InvalidDecision,
    NothingDecided,
    Progress,
    RunBusy,
    ThreadBusy,
    UnknownPending,
)
from phronomy.foundation.checks import is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import clean
from phronomy.foundation.quoting import quoted_id
from phronomy.records.calls import (
    Call,
    CallFailed,
    CallSettled,
    CallStarted,
    CallWaits,
    Decided,
    Ending,
    Halted,
    Withdrawn,
)
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import NO_BRIEF, SAID, Answer, PendingApproval, Reject, Skip
from phronomy.records.moves import Wait
from phronomy.records.principals import Principal, as_principal
from phronomy.records.result import Result
from phronomy.records.trigger_errors import TriggerSuperseded
from phronomy.records.validation import checked
from phronomy.runs.finding.beginning import is_left
from phronomy.runs.finding.decisions import Choice, ways_to_decide
from phronomy.runs.finding.drift import Fate, changes_in
from phronomy.runs.finding.results import result_of
from phronomy.stores.base import Store
from phronomy.stores.derived.adoption import adopt
from phronomy.stores.derived.changes import not_found
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.derived.people import admit, check_known
from phronomy.stores.log.log import as_sealed, rows_of
from phronomy.stores.log.reading import read_entry
from phronomy.stores.log.row_delta import outcome_from
from phronomy.stores.memory import MemoryStore
from phronomy.stores.rows import ENDED, OPEN, Branch

# Finding


def known(store: Store, given: Checkpoint | str, *, bearer: bool) -> tuple[Branch, Checkpoint]:
    """The checkpoint that is meant, as the store has it, and its branch. One that it has never seen is taken in with `bearer`.

    Raises `CheckpointNotFound`, `CheckpointEdited`, `CheckpointUntrusted`, `CheckpointError`.
    """
    if isinstance(given, str):
        return store.whole(given)
    return unchanged(store, given) or taken_in(store, checked(given), bearer=bearer)


def meant(store: Store, given: Checkpoint | str, *, bearer: bool) -> tuple[Branch, Checkpoint, Store]:
    """As `known`, with the store to look in. What a bearer brings is tried out apart: nothing is taken in for a bad decision."""
    if isinstance(given, str):
        return *store.whole(given), store
    if (stored := unchanged(store, given)) is not None:
        return *stored, store
    given = checked(given)
    stored = stored_as(store, given, bearer=bearer)
    if stored is not None:
        return *stored, store
    # What a bearer brings is tried out in a memory of its own, since a decision on it may be refused. Taken in at once, it would be
    # pending in the store for good.
    apart = MemoryStore(clock=store.clock, lease=store.lease)
    adopt(apart, given)
    return *apart.whole(given.id), apart


def unchanged(store: Store, given: Checkpoint) -> tuple[Branch, Checkpoint] | None:
    """The stored checkpoint, with its branch, if `given` equals it field by field; else None.

    The stored one is valid, and the run continues from it. So `given` need not be written out and read again.
    """
    if type(given) is not Checkpoint or type(given.__dict__.get("id")) is not str:
        return None
    try:
        branch, stored = store.whole(given.id)
    except CheckpointNotFound:
        return None
    try:
        # Field by field, in memory. To write both out and to compare the texts would come to the same, and every resume would pay
        # for it. Whatever differs goes the long way, and is told by name.
        same = bool(stored.__dict__ == given.__dict__)
    except Exception:  # a record that was put together by force: whoever validates it says what is wrong
        return None
    return (branch, stored) if same else None


def taken_in(store: Store, given: Checkpoint, *, bearer: bool) -> tuple[Branch, Checkpoint]:
    """As `known`, for a checkpoint that has been validated."""
    stored = stored_as(store, given, bearer=bearer)
    if stored is not None:
        return stored
    adopt(store, given)
    return store.whole(given.id)


def stored_as(store: Store, given: Checkpoint, *, bearer: bool) -> tuple[Branch, Checkpoint] | None:
    """What the store has under the id of a checkpoint; None if it has nothing and the bearer is trusted.

    Raises `CheckpointEdited`, `CheckpointUntrusted`.
    """
    try:
        branch, stored = store.whole(given.id)
    except CheckpointNotFound:
        if isinstance(store, MemoryStore):
            store.refuse_forgotten(given.run_id, given.id)
        if bearer:
            return None
        raise CheckpointUntrusted(
            f"the store does not know checkpoint {quoted_id(given.id)}: it was made elsewhere, or its run was deleted;"
            " resume it where it was made, or set trust='bearer'",
            checkpoint_id=given.id,
        ) from None
    # A copy may be older than the store: its journal is the beginning of the stored one. It must not be another one.
    same = as_sealed(stored) == as_sealed(given) and stored.journal[: len(given.journal)] == given.journal
    # The runs inside are compared as well. A bearer could else bring an approved root with an inner run of another tool.
    if same and given.nested:
        rows = {row.id: row for row in rows_of(store.lineage(branch_id=branch.id).entries, kept_by(store))}
        same = all(part.id in rows and as_sealed(rows[part.id]) == as_sealed(part) for part in given.nested)
    if not same:
        raise CheckpointEdited(f"checkpoint {given.id} differs from the stored one", checkpoint_id=given.id)
    return branch, stored


def branch_of(store: Store, given: Checkpoint | str, *, bearer: bool) -> str:
    """The branch that a checkpoint, a checkpoint id, a run id or a branch id means. Raises as `known` does."""
    if not isinstance(given, str):
        return known(store, given, bearer=bearer)[0].id
    given = clean(given)
    try:
        return store.lineage(branch_id=given).branch.id
    except CheckpointNotFound:
        with suppress(CheckpointNotFound):
            return store.lineage(checkpoint_id=given).branch.id
        raise not_found("run, branch or checkpoint", given) from None


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A branch at its head, before anything is claimed."""

    branch: Branch
    head: Checkpoint
    runner: Runner
    live: bool
    lapsed: Mapping[str, Decided]


def open_head(
    store: Store, spec: Spec, deps: object, branch_id: str, seen: tuple[Branch, Checkpoint] | None = None
) -> Opened:
    """The head of a branch, with a runner at it. If its worker is gone, the calls that it left are handled first.

    Expired approvals are settled with the next write, unless a worker holds the run. `seen` is the branch that was just
    read, with a checkpoint of it. If that is the head, nothing is read again: if it is out of date, the next write is
    refused.
    """
    # What was just read is good enough. If somebody wrote since, the first write of ours is refused, and all is read again.
    branch, head = seen if seen is not None and seen[0].head == seen[1].id else store.head(branch_id)
    runner = Runner(spec, Ledger(store, branch, head), head, deps=deps)
    # Whoever has begun it drove nothing, and told nobody that it began.
    runner.begins = is_left(branch)
    # By the clock of the store, for all workers alike.
    live = branch.is_held(store.clock())
    # Whoever opens a run whose worker is gone deals with what that worker left, before anything else is decided (law 5). It is
    # recorded with the next write, and not for a mere look.
    if runner.is_broken and not live:
        runner.record(interruption(runner))
    # No clock settles what has lapsed: whoever comes next does (law 12).
    late = lapsed(runner) if runner.state.ending is None else {}
    if late and not live:
        runner.record_all(expiry(runner, late))
    # Before anything runs, since a sibling branch may have the result of the very call that is next (law 4).
    look_around(store, branch, runner.ledger)
    return Opened(branch=branch, head=head, runner=runner, live=live, lapsed=late)


def look_around(store: Store, branch: Branch, ledger: Ledger) -> None:
    """Note what became of this run's calls in its other branches."""
    branches = store.branches(run_id=branch.run_id)
    ours = {each.id for each in branches}
    for other in branches:
        if other.id == branch.id:
            continue
        keys: dict[tuple[str, str], str] = {}  # of the last start of each call
        begun: dict[tuple[str, str], str] = {}
        asked: set[tuple[str, str]] = set()
        for entry in store.lineage(branch_id=other.id).entries:
            if entry.branch_id not in ours:  # of the run before in the thread, whose calls may have the same ids
                continue
            outcome = read_entry(entry, outcome_from, entry.body) if entry.checkpoint_id is None else None
            # What began, and has no end in that branch, may have taken effect. Each kind of end takes it off again.
            if isinstance(outcome, CallStarted):
                keys[entry.path, outcome.id] = begun[entry.path, outcome.id] = outcome.key
            elif isinstance(outcome, (CallSettled, CallFailed, CallWaits)):
                begun.pop((entry.path, outcome.id), None)
            elif isinstance(outcome, Withdrawn):
                for id in outcome.ids:
                    begun.pop((entry.path, id), None)
            if isinstance(outcome, CallWaits) and any(item.why == "question" for item in outcome.pending):
                asked.add((entry.path, outcome.id))  # what was answered there is no answer here
            # Only what completed is reused. A rejection there was of that branch, and a failure may be mended by now.
            completed = isinstance(outcome, CallSettled) and outcome.result.kind == "completed"
            if isinstance(outcome, CallSettled) and completed and (entry.path, outcome.id) not in asked:
                key = outcome.key or keys.get((entry.path, outcome.id))
                if key is None:
                    raise CheckpointError(
                        f"the log of branch {other.id} has an end of call {outcome.id}, and no start of it"
                    )
                ledger.shared.reusable[key] = outcome.result
        ledger.shared.begun.update(begun.values())


# Deciding


def check_open(opened: Opened, given: Checkpoint, found: Mapping[str, Answer], choice: Choice) -> None:
    """Refuse decisions that were made before or on something else, a resume without a needed decision, and a changed agent.

    Nothing is written yet. Raises `CheckpointAlreadyResumed`, `InvalidDecision`, `NothingDecided`, `RunBusy`, `AgentChanged`.
    """
    state = opened.runner.state
    waiting = [item.id for item in state.pending]
    # Decided before, and by whom, is the answer to the second of two people (law 3). It says how far the run is, and never waits
    # for it.
    for pending_id in found:
        lapsed_by = opened.lapsed.get(pending_id)
        if (pending_id not in waiting) if lapsed_by is None else (lapsed_by.decision.kind != "expire"):
            raise already(opened, given.id, pending_id)
    # The caller has seen it in the list, or at the checkpoint; what runs stands at the head of the log (law 2).
    if choice.listed is not None:
        check_listed([choice.listed], state.pending, opened.head.id)
    else:
        digests = {item.id: item.digest for item in given.pending}
        check_shown({id: digests.get(id, "") for id in found}, state.pending, opened.head.id)
    if not found:
        check_not_ended(opened, given.id)
        if opened.live:
            raise busy(opened.branch)
        # Something may wait at the head that the caller has not seen, or something may be due that needs no decision. Then to go on
        # is right, and not an error.
        told = {item.id for item in opened.head.pending} - choice.unseen
        rests = not opened.runner.unsaved and isinstance(opened.runner.spec.plan(state), Wait)
        if told.issuperset(waiting) and waiting and rests:  # else there is more to say than was, or something to do
            raise NothingDecided(
                f"run {state.run_id} waits for a decision on {', '.join(waiting)}: give {ways_to_decide(state.pending)}",
                pending_ids=waiting,
            )
    # A no runs nothing, so it needs nothing of the agent, whatever else waits beside it. Nor does an answer that came too late.
    counts = {id: answer for id, answer in found.items() if id not in opened.lapsed}
    refuses = bool(found) and all(isinstance(answer, Reject | Skip) for answer in counts.values())
    check_drift(opened, accept=choice.accept_changes, answers=counts, waits="rests" if refuses else "runs")


def check_not_ended(opened: Opened, checkpoint_id: str) -> None:
    """Refuse a run that is over. Raises `CheckpointAlreadyResumed`."""
    if opened.runner.state.ended is not None:
        raise already(opened, checkpoint_id, None)


def at_rest(opened: Opened, accept_changes: bool) -> bool:
    """Whether there is nothing to recover: the run has ended, or waits. Raises `RunBusy`, `AgentChanged`.

    One whose worker was lost while it held at a breakpoint waits too, and is still to be noted as suspended; one whose end is in the
    journal alone, as a worker left it that was cut off there, is still to be noted as ended.
    """
    if opened.head.ended is not None:
        return True
    if opened.live:
        raise busy(opened.branch)
    if (
        not opened.runner.unsaved
        and isinstance(opened.runner.spec.plan(opened.runner.state), Wait)
        and not opened.head.journal
        and opened.branch.status != "running"
    ):
        return True
    check_drift(opened, accept=accept_changes, waits="rests")  # nobody decides what waits
    return False


def cancelling(store: Store, reason: str | None, by: str | Principal | None) -> Ending:
    """The end of a run that somebody cancels. Raises `InvalidDecision`."""
    if reason is not None and not isinstance(reason, str):
        raise InvalidDecision(f"reason is text, not {type(reason).__name__}")
    who = admit(store, as_principal(by))
    unnamed = who is None and bool(reason)
    return Ending(status="cancelled", reason=reason, by=who, unnamed=unnamed, at=now(store))


def halting(store: Store, grace: float | None, reason: str | None, by: str | Principal | None) -> Halted:
    """The stop of a run from outside. Raises `InvalidDecision`, `ConfigurationError`."""
    if reason is not None and not isinstance(reason, str):
        raise InvalidDecision(f"reason is text, not {type(reason).__name__}")
    if grace is not None and (not is_number(grace) or not 0 <= grace < math.inf):
        raise ConfigurationError("grace is a number of seconds, 0 or more, or None for as long as it takes")
    who = as_principal(by)
    check_known(store, who)
    return Halted(pending_id=new_id("pend"), grace=grace, reason=reason, by=who, at=now(store))


def superseding(store: Store, branch: Branch, on_pending: str) -> Ending:
    """The end for a run whose thread is wanted for a new one. Raises `ThreadBusy` unless the caller asked for that."""
    # A thread may have several branches. Beside one that failed another may wait: to supersede the failed one alone would not make
    # room.
    if on_pending == "supersede_failed":  # beside a fork that waits, or runs, it stays: no run would begin after it
        others = store.branches(thread_id=branch.thread_id)
        branch = next((each for each in others if each.status in OPEN and each.status != "failed"), branch)
    if on_pending == "supersede" or (on_pending == "supersede_failed" and branch.status == "failed"):
        return Ending(status="superseded", at=now(store))
    pending = [row.pending_id for row in store.pending_rows(run_id=branch.run_id) if row.branch_id == branch.id]
    carry_on, beyond = ("resume", "supersede_failed") if branch.status == "failed" else ("recover", "supersede")
    what = f"waits for a decision on {', '.join(pending)}" if pending else f"has not ended ({carry_on} carries it on)"
    raise ThreadBusy(
        f"thread {branch.thread_id}: run {branch.run_id}, checkpoint {branch.head}, {what}; "
        f"settle it first, or start with on_pending='{beyond}'",
        thread_id=branch.thread_id or "",
        run_id=branch.run_id,
        checkpoint_id=branch.head or "",
        pending_ids=pending,
    ) from None  # that the store found the thread taken says nothing more


def handed_over(opened: Opened) -> Result[Any]:
    """The result for a run whose worker was told of a decision. The worker carries it out, and this call does not."""
    return Result(status="running", checkpoint=opened.head)


def busy(branch: Branch) -> RunBusy:
    """The error for a run that another worker holds."""
    return RunBusy(
        f"run {branch.run_id} is held by {branch.owner}; try again when it has stopped",
        run_id=branch.run_id,
        owner=branch.owner or "",
    )


def already(opened: Opened, checkpoint_id: str, pending_id: str | None) -> CheckpointAlreadyResumed:
    """The error for a pending approval that was decided before: by whom, and how far the run is since."""
    state = opened.runner.state
    # Read from the record at its head, and not from what the caller holds: they are told what counts, by whom it was, and what came
    # of it.
    due = [each.decision for id, each in opened.lapsed.items() if id == pending_id]
    decision = next((item for item in (*state.decisions, *due) if item.pending_id == pending_id), None)
    done = progress_of(opened.branch, live=opened.live)
    who = f" ({SAID[decision.kind]} by {decision.by.id})" if decision is not None and decision.by is not None else ""
    # A run that is still under way has no result. It is not waited for: the caller may have a page to answer (law 3).
    result = result_of(opened.runner, opened.head) if done in ("ended", "suspended") else None
    what = (
        f"pending {pending_id} of checkpoint {checkpoint_id} was decided before{who}"
        if pending_id
        else f"run {state.run_id} has ended"
    )
    is_superseded = decision is not None and decision.kind == "supersede"
    return (TriggerSuperseded if is_superseded else CheckpointAlreadyResumed)(
        f"{what}; the run is {done}",
        checkpoint_id=checkpoint_id,
        pending_id=pending_id,
        decision=decision,
        progress=done,
        result=result,
    )


def progress_of(branch: Branch, *, live: bool) -> Progress:
    """How far a branch is; `live` says that a worker holds it."""
    # The status that was written last. `running` without a worker is told as unknown: its worker is gone, and nobody knows yet what
    # it did.
    if branch.status in ENDED:
        return "ended"
    if branch.status == "suspended":
        return "suspended"
    if live:
        return "running"
    return "failed" if branch.status == "failed" else "unknown"


def asker(runner: Runner, pending_id: str) -> tuple[Runner, Call]:
    """The runner, at whatever depth, whose call waits under this pending id."""
    for call in runner.state.calls:
        if call.status == "pending" and call.pending_id == pending_id:
            return runner, call
        # What an inner run waits for is listed at the call. The list says that it is there, the inner run says what it is.
        if call.waiting and (item := next((item for item in call.waiting if item.id == pending_id), None)) is not None:
            if item.why == "question" and item.path == runner.state.path:
                return runner, as_asked(call, item)
            nested = runner.spec.nested(runner.state, call)
            # The agent has changed, and no longer has a run there. Nothing could go on with the decision.
            if nested is None:
                raise CheckpointError(f"call {call.call_id} of {call.name} was a nested run, and is none any more")
            asks, waiting = asker(child_of(runner, call, nested), pending_id)
            # The list of what waits, and the place where it waits, must agree. Somebody could else show a refund of five euros, and
            # have one of five thousand decided.
            if waiting.digest != item.digest:  # what was shown is what is decided on: a bearer may show anything
                raise CheckpointError(
                    f"pending {pending_id} is shown otherwise than it stands at {asks.state.path}: the checkpoint was edited"
                )
            # The votes on it are noted out here, and so is who has written in the conversation.
            brief = waiting.brief and waiting.brief.evolve(approvers=item.approvers)
            return asks, waiting.evolve(votes=item.votes, brief=brief)
    raise UnknownPending(f"nothing waits under {quoted_id(pending_id)}", pending_id=pending_id)


def as_asked(call: Call, item: PendingApproval) -> Call:
    """The call as if it were what its body asks: a decision on that is judged as any other."""
    shown: dict[str, Any] = {"tool": item.tool, "args": item.__dict__["args"], "digest": item.digest}
    if item.trigger is not None:  # what it takes is its own, whatever the call takes
        shown["brief"] = (call.brief or NO_BRIEF).evolve(answers=item.answers)
    return call.evolve(status="pending", pending_id=item.id, why="question", requested_at=item.requested_at, **shown)


def all_runners(runner: Runner) -> Iterator[Runner]:
    """The runner, and those of the runs nested in it that wait."""
    yield runner
    for call in runner.state.calls:
        if call.waiting:
            nested = runner.spec.nested(runner.state, call)
            # A run that nobody here can go on with is drift, and told as such; it is no reason to fail while looking.
            if nested is not None and fits(runner, call, nested):
                yield from all_runners(child_of(runner, call, nested))


def open_runners(runner: Runner) -> Iterator[Runner]:
    """As `all_runners`, with the nested runs that were decided on, and go on next."""
    yield runner
    for call in runner.state.calls:
        if call.waiting or (call.stopped and call.status in ("ready", "failed")):
            nested = runner.spec.nested(runner.state, call)
            if nested is not None and fits(runner, call, nested):
                yield from open_runners(child_of(runner, call, nested))


def check_drift(
    opened: Opened, *, accept: bool, answers: Mapping[str, Answer] | None = None, waits: Fate = "runs"
) -> None:
    """Refuse an agent that has changed where it matters to what is open. Raises `AgentChanged`, unless the caller accepts it.

    Calls that the agent would run with other arguments than those that were shown are to be asked about again.
    """
    runner, spec = opened.runner, opened.runner.home
    # Not a matter of accepting: the rules of a graph cannot read the state of an agent.
    if opened.head.kind != spec.kind:
        raise CheckpointError(
            f"checkpoint {opened.head.id} is of the {opened.head.kind} {opened.head.agent.name!r}, which no {spec.kind} can go on with"
        )
    # Judged by every run that waits, before anything of the decision is written (law 10).
    found = changes_in(opened.head, spec, open_runners(runner), answers or {}, waits)
    runner.shared.stale = found.stale
    if found.changed and accept is not True:
        ways = "pass accept_changes=True to go on all the same"
        if found.unfit:
            ways = (
                "reject the call, give arguments that the tool takes (Approve(args=...)), or resume with the agent as it was. With"
                " accept_changes=True the call does not run, and the model is told so"
            )
        changed = tuple(dict.fromkeys(found.changed))
        raise AgentChanged(
            f"checkpoint {opened.head.id} cannot be resumed by this {spec.kind}: {'; '.join(changed)}. Nothing was consumed; {ways}",
            checkpoint_id=opened.head.id,
            changes=changed,
        )

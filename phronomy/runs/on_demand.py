"""Checkpoints on demand: the present state of a run as a checkpoint with a label, and going back to one.

Each is one write, or none: what does not fit is refused before. A crash in between leaves what was there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from phronomy.engine.ledger import Ledger, now
from phronomy.engine.run import Runner
from phronomy.engine.spec import Spec
from phronomy.errors import CheckpointError, ConfigurationError, ThreadBusy
from phronomy.foundation.ids import findable, new_id
from phronomy.foundation.quoting import quoted
from phronomy.records.chain import seal
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.principals import Principal, as_principal
from phronomy.runs.finding import lookup
from phronomy.stores.base import Store
from phronomy.stores.derived.changes import latest_ended
from phronomy.stores.derived.forking import as_then, forked, told
from phronomy.stores.derived.people import check_known
from phronomy.stores.log.log import row_entry, settled_in
from phronomy.stores.rows import OPEN, Append, Behind, Branch, Held

Carry = Callable[[Store, Checkpoint, Checkpoint], Checkpoint]
"""Called with the store of a checkpoint, itself and its copy, which begins a branch without a past; gives that copy, with what it is
to know of the past."""


def checkpoint(store: Store, spec: Spec, run: Checkpoint | str, *, label: str | None, bearer: bool) -> Checkpoint:
    """The last checkpoint of a run at rest; with a label, a copy of it that has the label. Raises as `Runs.checkpoint` does."""
    label = findable("a label", label) if label is not None else None
    branch_id = lookup.branch_of(store, run, bearer=bearer)
    while True:
        branch, head = store.head(branch_id)
        _check_kind(spec, head)
        # A worker is in the middle of something. What stands in the store now is not where the run is.
        if branch.is_held(store.clock()):
            raise lookup.busy(branch)
        if label is None:
            return head
        if head.ended is not None:
            # An end is never written to again: a thread goes on from it, and a reader may hold it. A copy of it is a branch of its
            # own.
            return _labeled_end(store, branch, head, label)
        try:
            return _labeled(store, spec, branch, head, label)
        except Behind:  # somebody wrote since we looked
            continue
        except Held as held:
            raise lookup.busy(held.branch) from None


def restore(
    store: Store,
    spec: Spec,
    given: Checkpoint | str,
    *,
    restore_timeline: bool,
    accept_changes: bool,
    by: str | Principal | None,
    bearer: bool,
    carry: Carry,
) -> Checkpoint:
    """Start a branch from `given`, the latest of its thread, and return its first checkpoint.

    The audit trail says who did: `by`. Raises what `Runs.restore` raises. If the branch gets no past, `carry` puts into
    the checkpoint what would be read from that past.
    """
    if type(restore_timeline) is not bool:
        raise ConfigurationError(f"restore_timeline is True or False, not {quoted(restore_timeline)}")
    who = as_principal(by)
    check_known(store, who)
    # A bearer's text is tried out apart, as for a resume.
    branch, given, where = lookup.meant(store, given, bearer=bearer)
    _check_kind(spec, given)
    # By what the new branch will have: what happened after the checkpoint does not come along, and is no reason against it.
    then = as_then(where, given)
    runner = Runner(spec, Ledger(store, branch, then), then, deps=None)
    opened = lookup.Opened(branch=branch, head=then, runner=runner, live=False, lapsed={})
    lookup.check_drift(opened, accept=accept_changes)
    if where is not store and any(
        part.journal for part in (given, *given.nested)
    ):  # what has run is known nowhere else
        raise CheckpointError(
            f"checkpoint {given.id} was brought in with calls that ran after it, which a restored run would run again: resume it"
        )
    # All is judged before the one write. A run that begins in the thread in between is seen behind it, by `_opened`, and then this
    # branch is taken back.
    others = _others(store, branch, given)
    for other in others:
        if other.is_held(store.clock()):
            raise lookup.busy(other)
    if given.thread_id is not None:
        for other in others:
            if other.status in OPEN:
                raise _thread_busy(store, other)
    alone = where is not store or not restore_timeline
    made, begun = forked(where, given, alone=alone, change=partial(carry, where, given) if alone else None)
    # One that is taken back at once, by `_opened`, keeps its line in the trail: written only behind that, it could be lost.
    begun = told(store, begun, "restore", given, who)
    return _opened(store, made, begun, others)


def _labeled(store: Store, spec: Spec, branch: Branch, head: Checkpoint, label: str) -> Checkpoint:
    """The present state as the next checkpoint of its branch. Raises `Behind`, `Held`."""
    ledger = Ledger(store, branch, head)
    runner = Runner(spec, ledger, head, deps=None)
    # With a call under way there is no state to keep: nobody knows what it has done. `recover` finds that out first.
    if runner.in_flight:
        raise CheckpointError(f"the worker of run {head.run_id} was lost while a call ran: recover the run first")
    # The new row takes in what was journaled. Recovery finds by the journal what nobody has carried out yet, and would find it no
    # more: somebody who has decided would wait for good.
    lost = branch.status == "running" and (branch.owner is not None or bool(head.journal))
    if lost or branch.handed is not None:
        raise CheckpointError(
            f"something is recorded in run {head.run_id} that nobody has carried out yet: recover the run first, then label it"
        )
    # The next of the chain, with nothing new in it: the label must be on a row, and the row of the head is written already. What
    # was journaled is in it, and the next worker goes on from there.
    sealed = seal(runner.state, id=new_id("ckpt"), at=now(store)).evolve(label=label, journal=(), nested=())
    row = row_entry(head, sealed, settled_in(head.journal))
    # Taken and released in one write. Nobody ever sees the run held by this call, and a crash leaves nothing behind.
    store.append(ledger.change([row], sealed, release=True))
    return store.load(sealed.id)


def _labeled_end(store: Store, branch: Branch, head: Checkpoint, label: str) -> Checkpoint:
    """The end of a run as a branch of its own, since the log of an ended one never grows."""
    others = _others(store, branch, head)
    if head.thread_id is not None:
        last = latest_ended(others)
        if last is None or last.id != branch.id or any(other.status in OPEN for other in others):
            raise CheckpointError(
                f"run {head.run_id} has ended, and thread {head.thread_id} has gone on since, so no copy of its end can be"
                f" labeled: checkpoint {head.id} is kept as it is, and restore makes it the latest again"
            )
    made, begun = forked(store, head, label=label)
    return _opened(store, made, begun, others)


def _opened(store: Store, made: Branch, begun: Append, others: list[Branch]) -> Checkpoint:
    """Write a branch that becomes the latest of its thread.

    If another run has begun there meanwhile, the branch is removed again. `others` are the branches that existed when
    this was decided. Raises `ThreadBusy`.
    """
    # The thread goes on from its newest branch. By our clock this one might be older than what it is to replace.
    made = replace(made, changed_at=max((other.changed_at for other in others), default=0.0))
    # Not exclusive: the thread is not free, since it has an end. What has begun meanwhile is looked for behind the write.
    store.create(made, begun, exclusive=False)
    known = {made.id, *(other.id for other in others)}
    for other in store.branches(thread_id=made.thread_id) if made.thread_id is not None else ():
        if other.id not in known and other.parent_branch != made.id:
            with suppress(Behind):  # then somebody goes on from it already
                store.remove({made.id: made.seq + len(begun.entries)}, {})
                raise _thread_busy(store, other)
    return store.load(begun.head or "")


def _others(store: Store, branch: Branch, given: Checkpoint) -> list[Branch]:
    """The branches before the new one: those of the thread, or else the branch from which the new one starts."""
    if given.thread_id is not None:
        return store.branches(thread_id=given.thread_id)
    return [other for other in store.branches(run_id=given.run_id) if other.id == branch.id]


def _check_kind(spec: Spec, given: Checkpoint) -> None:
    if given.kind != spec.kind:
        raise CheckpointError(
            f"checkpoint {given.id} is of {given.kind} {given.agent.name!r}, and this is a {spec.kind}"
        )


def _thread_busy(store: Store, other: Branch) -> ThreadBusy:
    pending = [row.pending_id for row in store.pending_rows(run_id=other.run_id) if row.branch_id == other.id]
    what = f"waits for a decision on {', '.join(pending)}" if pending else f"is {other.status}"
    return ThreadBusy(
        f"thread {other.thread_id}: run {other.run_id}, checkpoint {other.head}, {what}; decide, resume or cancel it first",
        thread_id=other.thread_id or "",
        run_id=other.run_id,
        checkpoint_id=other.head or "",
        pending_ids=pending,
    )

"""Forking: another branch of a run, opened at one of its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from phronomy.approvals.policy import patterns_noted
from phronomy.errors import CheckpointError, ConfigurationError
from phronomy.foundation.ids import findable, new_id
from phronomy.records.audit import branch_record
from phronomy.records.calls import path_inside
from phronomy.records.chain import branch_off, is_asked_anew
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.principals import Principal, as_principal
from phronomy.stores import dispatch
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.derived.people import as_met, check_known
from phronomy.stores.log.kept_members import Texts
from phronomy.stores.log.log import as_sealed, inside_first, last_of, pending_rows, row_entry, trail_row, up_to
from phronomy.stores.rows import Append, Branch, Entry

if TYPE_CHECKING:
    from phronomy.stores.base import Store


def fork(
    store: Store,
    checkpoint: Checkpoint,
    *,
    label: str | None,
    rerun: bool,
    by: str | Principal | None = None,
    change: Callable[[Checkpoint, Principal | None], Checkpoint] | None = None,
) -> Checkpoint:
    """Start a new branch at `checkpoint`, without the decisions after it, and return its first checkpoint.

    `change` turns the checkpoint, with the runs nested in it, into the start of the branch, in the name of `by`. It is called before
    anything is written. The audit trail says who has started the branch: `by`. Raises `InvalidDecision` for a `by` that is nobody.
    """
    check_goes_on(checkpoint)
    who = as_principal(by)
    check_known(store, who)
    # Nothing is written before everything is made: a bad label or a change that raises leaves no half branch.
    met = as_met(store, who)
    made = (lambda state: change(state, met)) if change is not None else None
    branch, begun = forked(store, checkpoint, label=label, rerun=rerun, change=made)
    begun = told(store, begun, "fork", checkpoint, who, edited=change is not None)
    # Not exclusive: a fork is made beside the run that it forks, while that one may still be open. Nor is it held:
    # whoever resumes it takes it.
    store.create(branch, begun, exclusive=False)
    dispatch.at(store.dispatch, branch.run_id, [row.expires_at for row in begun.opened])
    # Read back, so that what the caller goes on with is what any other process would find.
    return store.load(begun.head or "")


def check_goes_on(checkpoint: Checkpoint) -> None:
    """Refuse an end, from which nothing goes on. Raises `CheckpointError`."""
    if checkpoint.ended is not None:
        raise CheckpointError(
            f"checkpoint {checkpoint.id} is an end, and nothing goes on from it: fork one before it (store.history)"
        )


def as_then(store: Store, checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with the nested runs as they were when it was written. A branch that starts there has these, and no others."""
    entries = up_to(checkpoint.id, store.lineage(checkpoint_id=checkpoint.id).entries)
    return last_of(entries, kept_by(store))


def told(
    store: Store,
    begun: Append,
    kind: Literal["fork", "restore"],
    source: Checkpoint,
    by: Principal | None,
    *,
    edited: bool = False,
) -> Append:
    """The first entries of a branch with its line of the audit trail: who has started it, at which checkpoint."""
    # In the same write, as for a decision: there is never a branch of which the trail does not say who has started it.
    at = datetime.fromtimestamp(store.clock(), UTC)
    return replace(begun, audit=(trail_row(branch_record(source, begun.branch_id, kind, by, at, edited=edited)),))


def forked(
    store: Store,
    checkpoint: Checkpoint,
    *,
    label: str | None = None,
    rerun: bool = False,
    change: Callable[[Checkpoint], Checkpoint] | None = None,
    alone: bool = False,
    branch_id: str | None = None,
) -> tuple[Branch, Append]:
    """Make a new branch that starts at `checkpoint`, which may be an end, and its first entries. Nothing is written.

    It has the id `branch_id`, or a new one. With `alone`, the branch contains all that it needs, and has no parent branch.
    """
    label = findable("a label", label) if label is not None else None
    if not isinstance(rerun, bool):
        raise ConfigurationError(f"rerun is True or False, not {type(rerun).__name__}")
    # From the store, not from the checkpoint in hand: it says in which log and after which entry the row stands, which
    # the branch needs.
    lineage = store.lineage(checkpoint_id=checkpoint.id)
    entries = up_to(checkpoint.id, lineage.entries)
    row, origin = entries[-1], last_of(entries, kept_by(store))
    sealed = as_sealed(checkpoint)
    branch_id, at = branch_id or new_id("branch"), datetime.fromtimestamp(store.clock(), UTC)
    # Part of every idempotency key. The same salt makes the same key, and a settled result is found again; a new one
    # has the tool act once more.
    salt = branch_id if rerun else sealed.salt
    forks: dict[str, Checkpoint] = {}
    rows = []
    policies = [pattern for part in (sealed, *origin.nested) for pattern in patterns_noted(part.agent.fingerprint)]
    # Innermost first, as the outer ones name the ids of those inside them.
    for part in (*inside_first(origin.nested), sealed):
        part = as_sealed(part)
        first = branch_off(
            part,
            id=new_id("ckpt"),
            branch_id=branch_id,
            at=at,
            salt=salt,
            # What waits gets new ids: the old ones belong to the branch that was forked, and a decision on one must not
            # count in both. The approval of a call that has not settled is asked for again, for the same reason.
            ids={call.id: new_id("pend") for call in part.calls if is_asked_anew(call)},
            nested={call.id: forks[path] for call in part.calls if (path := path_inside(part.path, call.id)) in forks},
            policies=policies,
        )
        if part.path == "":
            first = first.evolve(label=label)
            # User code, before anything is written: if it raises, there is no branch.
            if change is not None:
                first = as_sealed(change(first.evolve(nested=tuple(forks.values()))))
        forks[part.path] = first
        # What is new since the row that it forks, which the reader reaches through the parent's log; alone, the whole.
        rows.append(row_entry(None if alone else part, first, {}))
    state = forks.pop("")
    check_readable((*(() if alone else entries), *rows), kept_by(store), state, forks)
    # After the very row, and not after the journal behind it: that was decided later, and is not in the fork.
    after = {} if alone else {"parent_branch": row.branch_id, "parent_seq": row.seq, "seq": row.seq}
    branch = Branch.of(state, **after)
    begun = Append(
        branch_id=branch.id,
        seq=branch.seq,
        entries=tuple(rows),
        head=state.id,
        status=state.ended or ("suspended" if state.pending else "running"),
        opened=tuple(pending_rows(state, label)),
        # Its requests are new ones, and whoever was told of the others is told of them. Its end, if it is a copy of one, was told.
        announce=lineage.branch.announced is not None and state.ended is None,
    )
    return branch, begun


def check_readable(entries: Sequence[Entry], kept: Texts, state: Checkpoint, nested: Mapping[str, Checkpoint]) -> None:
    """Refuse a branch that would not be read back as it is written. Raises `CheckpointError`, with nothing written."""
    # A branch that cannot be read can be neither resumed nor cancelled, and keeps its thread busy for good. Branches are
    # few, and the entries are in memory, so what the next reader does is done here first.
    whole = state.evolve(nested=tuple(nested[path] for path in sorted(nested)))
    if last_of(entries, kept, branch_id=state.branch_id) != whole:
        raise CheckpointError(
            f"a branch from checkpoint {state.parent_id} of run {state.run_id} could not be read again, so nothing was written:"
            " start it from another checkpoint of the run (store.history)"
        )

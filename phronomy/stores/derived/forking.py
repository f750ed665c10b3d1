"""Forking: another branch of a run, opened at one of its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from phronomy.errors import CheckpointError, ConfigurationError
from phronomy.foundation.ids import findable, new_id
from phronomy.records.audit import branch_record
from phronomy.records.calls import path_inside
from phronomy.records.chain import branch_off
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.principals import Principal, as_principal
from phronomy.stores import dispatch
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.log.log import as_sealed, pending_rows, row_entry, rows_of, trail_row
from phronomy.stores.rows import Append, Branch

if TYPE_CHECKING:
    from phronomy.stores.base import Store


def fork(
    store: Store,
    checkpoint: Checkpoint,
    *,
    label: str | None,
    rerun: bool,
    by: str | Principal | None = None,
    change: Callable[[Checkpoint], Checkpoint] | None = None,
) -> Checkpoint:
    """Start a new branch at `checkpoint`, without the decisions after it, and return its first checkpoint.

    `change` turns the checkpoint into the start of the branch. It is called before anything is written. The audit trail says who has
    started the branch: `by`. Raises `InvalidDecision` for a `by` that is nobody.
    """
    check_goes_on(checkpoint)
    who = as_principal(by)
    # Nothing is written before everything is made: a bad label or a change that raises leaves no half branch.
    branch, begun = forked(store, checkpoint, label=label, rerun=rerun, change=change)
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
    sealed = as_sealed(checkpoint)
    # From the store, not from the checkpoint in hand: it says in which log and after which entry the row stands, which
    # the branch needs.
    lineage = store.lineage(checkpoint_id=checkpoint.id)
    entries = lineage.entries
    place = next(number for number, entry in enumerate(entries) if entry.checkpoint_id == checkpoint.id)
    row, inside = entries[place], {part.path for part in checkpoint.nested}
    # The nested runs as their rows were at that place. In the checkpoint they may have gone on: what was decided after
    # it does not come along.
    nested = {
        part.path: part for part in rows_of(entries[: place + 1], kept_by(store)) if part.path in inside
    }  # as they were then
    branch_id, at = branch_id or new_id("branch"), datetime.fromtimestamp(store.clock(), UTC)
    # Part of every idempotency key. The same salt makes the same key, and a settled result is found again; a new one
    # has the tool act once more.
    salt = branch_id if rerun else sealed.salt
    forks: dict[str, Checkpoint] = {}
    rows = []
    # Innermost first, as the outer ones name the ids of those inside them.
    for part in sorted((*nested.values(), sealed), key=lambda part: -len(part.path)):  # those inside come first
        part = as_sealed(part)
        unused = [
            call
            for call in part.calls
            if call.status in ("asking", "pending", "answered") or (call.status == "ready" and call.approved)
        ]
        first = branch_off(
            part,
            id=new_id("ckpt"),
            branch_id=branch_id,
            at=at,
            salt=salt,
            # What waits gets new ids: the old ones belong to the branch that was forked, and a decision on one must not
            # count in both. An approval that was not used yet is asked for again, for the same reason.
            ids={call.id: new_id("pend") for call in unused},
            nested={call.id: forks[path] for call in part.calls if (path := path_inside(part.path, call.id)) in forks},
        )
        if part.path == "":
            first = first.evolve(label=label)
            # User code, before anything is written: if it raises, there is no branch.
            first = first if change is None else change(first)
        forks[part.path] = first
        # What is new since the row that it forks, which the reader reaches through the parent's log; alone, the whole.
        rows.append(row_entry(None if alone else part, first, {}))
    state = forks[""]
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

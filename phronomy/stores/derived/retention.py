"""Taking runs away: which may go, and how those that go on from them stay whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from phronomy.errors import CheckpointError, CheckpointNotFound, StillNeeded, StoreError
from phronomy.foundation.quoting import quoted
from phronomy.stores.derived.grants import forget_run, keys_by_run
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.derived.listing import ago, text
from phronomy.stores.log.log import rows_of
from phronomy.stores.log.row_delta import row_text
from phronomy.stores.rows import ENDED, Behind, Branch, BranchFilter, CheckpointFilter, Entry

if TYPE_CHECKING:
    from phronomy.stores.base import Store

_LOOKED_AT: Final = 100
_NAMED: Final = 3
"""Branches that are looked at, and runs that are named, of those that `clear` leaves."""

_log = logging.getLogger("phronomy")

# A float and no infinity: it goes into SQL and Lua as a number.
EVER: Final = 1e15
"""A time after all others, in seconds since the epoch."""


def prune(store: Store, *, older_than: float | None, keep_labeled: bool, keep_last: int) -> int:
    """Delete the runs that have ended, as `Store.prune` says. Returns the number of deleted checkpoints."""
    if type(keep_last) is not int or keep_last < 0:
        raise StoreError(f"keep_last is a whole number, 0 or more, not {quoted(keep_last)}")
    if not isinstance(keep_labeled, bool):
        raise StoreError(f"keep_labeled is True or False, not {type(keep_labeled).__name__}")
    # One moment for the whole pass. Run by run, those that end while it works could go in the order of luck.
    before = ago(store, "older_than", older_than)
    store.expire_documents()
    granted = keys_by_run(store)
    count = 0
    for run in candidates(store, EVER if before is None else before, keep_labeled, keep_last):
        # First: after a crash between the two, the run is still there to be deleted, and no grant is left without its run.
        forget_run(store, run[0].run_id, granted)
        # A branch that starts from this run, and cannot be read, cannot be rewritten so that it stands for itself. The run
        # stays for it, and all others go.
        with suppress(CheckpointError):
            count += take_away(store, run)
    return count


def clear(store: Store) -> int:
    """Delete the runs that have ended, and warn of those that have not: the name of the method promises more than that."""
    count = prune(store, older_than=None, keep_labeled=False, keep_last=0)
    left = [each for each in store.select_branches(BranchFilter(limit=_LOOKED_AT)) if each.status not in ENDED]
    runs = {each.run_id: each.status for each in left}
    if runs:
        first = ", ".join(f"{run_id} ({status})" for run_id, status in [*runs.items()][:_NAMED])
        _log.warning(
            "clear() deletes the runs that have ended, and left others: %s%s. Cancel them first, or delete them with"
            " delete(id, force=True)",
            first,
            " and more" if len(runs) > _NAMED else "",
        )
    return count


def candidates(store: Store, before: float, keep_labeled: bool, keep_last: int) -> Iterator[list[Branch]]:
    """The branches of each run that ended before this time in all of them, and is not spared."""
    # The index finds branches that ended; whether the whole run has is asked for each. A fork that still waits needs
    # the log that it goes on from, and its human has not had a say.
    for run_id in dict.fromkeys(branch.run_id for branch in store.select_branches(BranchFilter(ended_before=before))):
        run = store.branches(run_id=run_id)
        ended = all(branch.status in ENDED and branch.changed_at < before for branch in run)
        if ended and not spared(store, run, keep_labeled, keep_last):
            yield run


def spared(store: Store, run: Sequence[Branch], keep_labeled: bool, keep_last: int) -> bool:
    """Whether a run is kept although it is old enough to be deleted."""
    if not run:
        return True
    run_id, thread_id = run[0].run_id, run[0].thread_id
    # One row is enough to know; a limit of 1 stops at the first.
    if keep_labeled and store.select_checkpoints(CheckpointFilter(run_id=run_id, labeled=True, limit=1)):
        return True
    if keep_last and thread_id is not None:
        # The last runs of the thread, ended or not: the conversation is continued from them.
        runs = list(dict.fromkeys(branch.run_id for branch in store.branches(thread_id=thread_id)))
        return run_id in runs[-keep_last:]
    return False


def delete(store: Store, id: str, *, force: bool) -> bool:
    """Delete a run or a branch, as `Store.delete` says."""
    if not isinstance(force, bool):
        raise StoreError(f"force is True or False, not {type(force).__name__}")
    id = text("id", id)
    found = store.branches(run_id=id)
    if not found:
        branch = _branch_of(store, id)
        if branch is None:
            return False
        found = [branch]
    # All branches of the run, also where only one of them is to go: what its calls came to may be all that a sibling
    # has to know that they ran.
    if not force:
        for branch in store.branches(run_id=found[0].run_id):
            if branch.status not in ENDED:
                raise StillNeeded(
                    f"{id} cannot be taken away: branch {branch.id} of run {branch.run_id} is {branch.status}, and what the"
                    " run's calls came to is needed to go on; settle or cancel it first, or pass force=True",
                    run_id=branch.run_id,
                    branch_id=branch.id,
                )
    if len(found) == len(store.branches(run_id=found[0].run_id)):
        forget_run(store, found[0].run_id, keys_by_run(store))
    return take_away(store, found) > 0


def _branch_of(store: Store, id: str) -> Branch | None:
    """The branch of this id, or whose last checkpoint this is; None if the store knows no such id. Raises `StillNeeded`."""
    try:
        return store.lineage(branch_id=id).branch
    except CheckpointNotFound:
        pass
    try:
        branch = store.lineage(checkpoint_id=id).branch
    except CheckpointNotFound:
        return None
    # Rows before the last are what later ones are deltas of: one cannot be cut out of the middle.
    if branch.head != id:
        raise StillNeeded(
            f"checkpoint {id} is not the last of branch {branch.id}, and what follows needs it: give the branch or the run",
            run_id=branch.run_id,
            branch_id=branch.id,
        )
    return branch


def take_away(store: Store, branches: Sequence[Branch]) -> int:
    """Delete these branches. Returns the number of deleted checkpoints: 0 if a branch has changed since, or is held."""
    # With the length that was looked at: a run that somebody resumes between this and `remove` has grown, and stays.
    going = {branch.id: branch.seq for branch in branches}
    run_ids = dict.fromkeys(branch.run_id for branch in branches)
    rows = [row for id in run_ids for row in store.select_checkpoints(CheckpointFilter(run_id=id))]
    # Counted before they go; afterwards there is nothing to count.
    count = sum(row.branch_id in going for row in rows)
    while True:
        # Written anew in the same step as the removal. Made whole first, in a write of their own, they would be correct
        # too, but a crash between the two would leave work done for nothing, and a branch begun in between would be
        # torn off.
        others = [each for each in store.select_branches(BranchFilter(parents=tuple(going))) if each.id not in going]
        try:
            store.remove(going, {branch.id: detached(store, branch) for branch in others})
        # Somebody was first. If it was in one of ours, we leave it alone: it is being used. If it was a neighbour, its
        # part is made anew and it is tried again; each round means that somebody else got on, so it cannot go round for
        # ever with nobody moving.
        except (Behind, CheckpointNotFound):
            if not all(_unchanged(store, branch) for branch in branches):
                return 0
            continue  # another branch has begun to go on from one of these, or one that did is gone
        return count


def _unchanged(store: Store, branch: Branch) -> bool:
    # Length and holder: a worker that has taken the run may not have written yet.
    now = next((each for each in store.branches(run_id=branch.run_id) if each.id == branch.id), None)
    return now is not None and now.seq == branch.seq and not now.is_held(store.clock())


def detached(store: Store, branch: Branch) -> list[Entry]:
    """The entries of a branch that say what is new since something before it, written so that they stand for themselves."""
    entries = store.lineage(branch_id=branch.id).entries
    rows = [entry for entry in entries if entry.checkpoint_id is not None]
    # The first row of each path in this branch is the one whose parent lies in another log. The later ones follow it,
    # and stay as they are.
    tips: dict[str, str] = {}
    found: list[Entry] = []
    for entry, checkpoint in zip(rows, rows_of(entries, kept_by(store)), strict=True):
        if entry.branch_id == branch.id and tips.get(entry.path) != branch.id:
            # Whole, with every result written out: the journal that they referred to goes with the parent.
            found.append(replace(entry, body=row_text(None, checkpoint, {}), parent_id=checkpoint.parent_id))
        tips[entry.path] = entry.branch_id
    return found

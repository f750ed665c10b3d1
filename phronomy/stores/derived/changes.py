"""The rules by which every store judges a change: pure functions of a branch, a change and the time.

A change is refused for one of four reasons, and they are looked at in this order. The writer's claim is gone (`LeaseLost`): it must
stop. It has not seen the last entry (`Behind`): it must read on and decide again. It wants a claim that another holds (`Held`): it
must leave the run alone. It adds an id that is there already (`StoreError`): it must not be repeated. A writer whose claim is gone is
never told that it is behind, since reading on and trying again would not help.

A store that cannot call these functions between its read and its write (a single SQL statement, a Lua script) says the same in its
own language; the contract in `phronomy.testing` runs the same cases against all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from phronomy.errors import CheckpointNotFound, LeaseLost, StoreError
from phronomy.foundation.quoting import kept_id, quoted, quoted_id
from phronomy.stores.log.kept_members import digest_of_text
from phronomy.stores.rows import ENDED, OPEN, SIZE, Append, Behind, Branch, BranchFilter, Claim, Held, Occupied


def check_new(branch: Branch, change: Append) -> None:
    """Refuse the first change of a branch that does not fit it. Raises `StoreError`."""
    if change.branch_id != branch.id:
        raise StoreError(f"the first change of branch {branch.id} names another branch")
    # Numbers go on from the parent's, so a branch without a parent begins at 0. With any other beginning its entries
    # would be looked for in a parent that is not there.
    first = branch.parent_seq
    if branch.seq != first or change.seq != first or first < 0 or (branch.parent_branch is None and first != 0):
        raise StoreError(f"the log of new branch {branch.id} must begin at parent_seq, which is 0 without a parent")
    # A claim has a fence, and nobody can have been given one for a branch that does not exist. Taking it in the first
    # change is how a run begins held: there is no moment in which somebody else could take it.
    if branch.owner is not None or change.claim is not None:
        raise StoreError(f"nobody can hold new branch {branch.id} yet: name the owner in `take`")
    _check_values(change)


def check_moved(change: Append, seen: set[tuple[str, int, Claim | None]]) -> None:
    """Note a change that the store has refused as behind. Raises `StoreError` if it has refused the same one before.

    A store that says so though nothing has changed contradicts itself, and would do so for ever.
    """
    place = (change.branch_id, change.seq, change.holder)
    if place in seen:
        raise StoreError(
            f"branch {change.branch_id} is the same as before, and the store says that it has changed"
        ) from None
    seen.add(place)


def check_change(change: Append) -> None:
    """Refuse a change that says two things at once, or more than it has the right to. Raises `StoreError`."""
    _check_values(change)
    # One right, and exactly one. A writer without any would be a writer that no fence stops.
    rights = [change.claim, change.take, change.holder]
    if rights.count(None) != 2:
        raise StoreError(
            f"a change of branch {change.branch_id} gives a claim, takes one, or is left for the holder: it does one of them"
        )
    if change.holder is not None:
        # Another's run may be left a note, and what was decided may leave the list of what waits. A checkpoint, a
        # status or a lease would pull the run from under the worker that is driving it. Texts belong to requests of a
        # model, which are written by that worker alone. A request may be written anew, with a vote on it: then it is closed
        # and opened at once.
        rows = any(entry.checkpoint_id is not None for entry in change.entries)
        moves = change.head is not None or change.status is not None or change.release or change.lease
        new = {row.pending_id for row in change.opened} - set(change.closed)
        if rows or moves or new or change.texts:
            raise StoreError(
                f"a change of branch {change.branch_id} needs a claim: for another holder, only journal entries can be"
                " written, and what is pending be closed or written anew"
            )


def check_batch(changes: Sequence[Append]) -> list[Append]:
    """The changes of one `append_all` in the order of their branch ids. Raises `StoreError` for what cannot be written together."""
    for change in changes:
        check_change(change)
        # A worker with a claim writes to one branch at a time. Without checkpoints, requests that are opened and texts in it,
        # a batch can meet others at the rows of branches alone.
        if change.holder is None:
            raise StoreError(
                f"changes of several branches are written together for a holder alone: write that of branch {change.branch_id}"
                " by `append`"
            )
    # In one order, whoever writes: of two batches over the same branches, one waits for the other at the first of them. In
    # two orders, each would wait for the other.
    ordered = sorted(changes, key=lambda change: change.branch_id)
    for one, other in pairwise(ordered):
        if one.branch_id == other.branch_id:
            raise StoreError(
                f"branch {one.branch_id} has two changes in one batch: make one of them, with the entries of both"
            )
    return ordered


def check_room(change: Append) -> None:
    """Refuse a change for which the log of its branch has no numbers left. Raises `StoreError`."""
    # The next number would belong to the next branch, and the row would be found in that one's log.
    if change.seq + len(change.entries) >= SIZE:
        raise full(change.branch_id)


def full(branch_id: str) -> StoreError:
    """The error for a branch whose log has no numbers left."""
    return StoreError(f"the log of branch {branch_id} is full: it holds {SIZE - 1} entries at most")


def by_digest(texts: Sequence[str]) -> dict[str, str]:
    """The texts of a change that was checked, each by the SHA-256 that it is kept under, in the order of these."""
    found = {digest_of_text(text): text for text in texts}
    # In one order, whoever writes. Where two transactions add the same texts, one waits for the other at the first of
    # them; in two orders, each would wait for the other.
    return dict(sorted(found.items()))


def _check_values(change: Append) -> None:
    # A note for nobody names the empty text. A worker of that name would be left notes which say that it is not there.
    if change.take == "":
        raise StoreError(f"a claim on branch {change.branch_id} needs an owner: the empty text means nobody")
    # Here and not where they are written: a text that has no digest is wrong, however the branch stands.
    for text in change.texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise StoreError("text with a lone surrogate cannot be stored") from None
    # Written so that nan fails as well: every comparison with it is false, and the claim would be neither held nor
    # expired.
    if not 0 <= change.lease < math.inf:
        raise StoreError(f"a lease is a number of seconds, 0 or more, not {quoted(change.lease)}")


def grown(branch: Branch, change: Append, *, now: float, lease: float) -> Branch:
    """The branch as `change` leaves it. A claim that is taken without a lease lasts `lease` seconds.

    Raises `LeaseLost`, `Behind` or `Held`, in this order.
    """
    # The one place where a claim is judged, for stores that read, judge and write under a lock. The SQL of `_GO_ON` and
    # the Lua of `append` say the same again, where the judging has to happen inside the database; the contract holds
    # the three together.
    owner, fence, until = branch.owner, branch.fence, branch.lease_until
    claim = change.claim
    # Lost comes first. A worker that was taken over must stop; told that it is behind, it would read on and try again.
    if claim is not None and (claim.fence != fence or claim.owner != owner or claim.branch_id != branch.id):
        raise lost(claim)
    # The compare-and-set. What the writer decided was decided on a state that is no longer the last, so nothing of it
    # may count; it reads what is new and decides anew.
    if change.seq != branch.seq:
        raise Behind(branch.id)
    if (holder := change.holder) is not None:
        # The length alone does not see that the holder let go without a word, or was taken over: the note would lie in
        # the log of a run that nobody drives, though its writer counts on a worker. Nor does it see that somebody took a
        # branch that was free: that worker may go on for long without reading a note which it was not told of.
        there = owner if branch.is_held(now) else ""
        if holder.owner != there or holder.fence != fence or holder.branch_id != branch.id:
            raise Behind(branch.id)
    if change.take is not None:
        # Nobody waits: the caller is told who has it and until when, and decides what that means for a human.
        if owner is not None and until > now:
            raise Held(branch)
        # The fence moves with every take-over, also by the same owner. From here on every write of the holder before is
        # refused, wherever it is stuck.
        owner, fence, until = change.take, fence + 1, now + (change.lease or lease)
    elif change.lease:
        until = now + change.lease
    if change.release:
        # The fence stays where it is, and so does the status: letting go is not an end.
        owner, until = None, 0.0
    # A root checkpoint was made from everything before it, so nothing is left over. Otherwise the first note counts:
    # whoever recovers the run reads from there.
    handed = branch.handed if change.head is None else None
    if handed is None and change.holder is not None and change.hands_over:
        handed = branch.seq + 1
    return replace(
        branch,
        seq=branch.seq + len(change.entries),
        head=branch.head if change.head is None else change.head,
        status=branch.status if change.status is None else change.status,
        owner=owner,
        fence=fence,
        lease_until=until,
        # A clock that was set back must not make a branch that ended later look older: the order of ends decides which
        # run of a thread is the latest.
        created_at=branch.created_at or now,
        changed_at=max(now, branch.changed_at),
        announced=branch.seq if change.announce and branch.announced is None else branch.announced,
        handed=handed,
    )


def check_thread(branch: Branch, others: Sequence[Branch]) -> None:
    """Refuse a branch whose thread is not free, or whose parent is not the latest end of the thread.

    `others` are the branches of the thread. Raises `Occupied` or `Behind`.
    """
    # Open before ended: a thread has one run at a time, whatever ended in it before.
    if (other := latest_open(others)) is not None:
        raise Occupied(other)
    last = latest_ended(others)
    # Between the writer's look at the thread and this write, another run may have begun and ended. Going on from the
    # end before it would drop that run's turn from the conversation.
    if last is not None and last.id != branch.parent_branch:
        raise Behind(last.id)


def latest_open(branches: Sequence[Branch]) -> Branch | None:
    """Of branches in the order they were made, the last one that has not ended; None if all have."""
    return next((branch for branch in reversed(branches) if branch.status in OPEN), None)


def latest_ended(branches: Sequence[Branch]) -> Branch | None:
    """Of branches in the order they were made, the one that ended last; None if none has ended."""
    ended = [branch for branch in branches if branch.status in ENDED]
    # Of two that ended at the same moment the one made last, since `max` keeps the first of equals. Every store must
    # give the same one, or a run could begin from one end and be refused for another.
    return max(reversed(ended), key=lambda branch: branch.changed_at, default=None)


def is_wanted(branch: Branch, wanted: BranchFilter) -> bool:
    """Whether what a filter says holds for a branch, but for the limit."""
    return (
        # What the SQL of `select.branches` says, for stores that filter by hand.
        (wanted.run_id is None or branch.run_id == wanted.run_id)
        and (wanted.thread_id is None or branch.thread_id == wanted.thread_id)
        and (wanted.parents is None or branch.parent_branch in wanted.parents)
        and (wanted.abandoned_at is None or (branch.status == "running" and not branch.is_held(wanted.abandoned_at)))
        and (wanted.ended_before is None or (branch.status in ENDED and branch.changed_at < wanted.ended_before))
        and (not wanted.unannounced or (branch.announced is not None and branch.announced < branch.seq))
        and (not wanted.handed or branch.handed is not None)
    )


def check_removal(branch: Branch | None, branch_id: str, seq: int, now: float) -> None:
    """Refuse to take a branch away that has changed since it was looked at, or is held. Raises `Behind`."""
    # Looked at when the list was made, taken away now. In between somebody may have resumed it, and then it stays,
    # whole.
    if branch is None or branch.seq != seq or branch.is_held(now):
        raise Behind(branch_id)


def check_parent(branch: Branch, parent: Branch | None) -> None:
    """Refuse a branch whose parent is not there, or not that long. Raises `CheckpointNotFound` or `StoreError`."""
    if branch.parent_branch is None:
        return
    if parent is None:
        raise not_found("branch", branch.parent_branch)
    # A fork from an entry that is not written yet would read whatever is written there later.
    if branch.parent_seq > parent.seq:
        raise StoreError(f"new branch {branch.id} goes on from an entry that branch {parent.id} does not have yet")


def taken_id(what: str, id: str) -> StoreError:
    """The error for an id that is to be added and is there already."""
    return StoreError(f"{what} {quoted_id(id)} is in the store already: nothing was written. Give it another id")


def lost(claim: Claim) -> LeaseLost:
    """The error for a claim that is no longer the branch's."""
    return LeaseLost(
        f"run {claim.run_id} was taken over by another worker, so this write was not recorded:"
        " load the run to see how far it is",
        run_id=claim.run_id,
        branch_id=claim.branch_id,
    )


def not_found(what: str, id: str) -> CheckpointNotFound:
    """The error for an id that the store does not know."""
    told = f"the store knows no {what} {quoted_id(id)}"
    # The two ids are next to each other in every list of what waits, and easily mixed up.
    if isinstance(id, str) and id.startswith("pend_"):
        told += ": that is a pending id, which decide takes; store.pending() says at which checkpoint it waits"
    elif what == "checkpoint" and isinstance(id, str) and id.startswith("run_"):
        told += ": that is the id of a run; store.head(run_id) has the checkpoint where the run stands"
    return CheckpointNotFound(told, id=kept_id(id))


def one_place(checkpoint_id: str | None, branch_id: str | None) -> None:
    """Refuse a lineage of nothing, or of two things. Raises `StoreError`."""
    if (checkpoint_id is None) == (branch_id is None):
        raise StoreError("a lineage is that of a checkpoint or of a branch: give one of the two ids")

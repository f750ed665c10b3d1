"""Resuming with `write_to`: a run goes on from a checkpoint in a branch of its own, and the checkpoint's own branch stays as it is.

That is a fork and a resume of the fork. But a decision may be refused, and must leave no trace then. So the fork is first made in a
memory of its own, and decided there; what was accepted is then written to the store, with the same ids. The decisions are a second
write: whoever is lost between the two leaves a fork of which nothing was decided, and who resumes under the same id goes on there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from phronomy.errors import CheckpointNotFound, ConfigurationError, InvalidDecision
from phronomy.foundation.ids import findable
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Approve, PendingApproval, Reject
from phronomy.runs.finding import lookup
from phronomy.runs.finding.decisions import Choice, check_choice, the_only
from phronomy.stores import dispatch
from phronomy.stores.base import Store
from phronomy.stores.derived import forking
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.log.log import as_sealed
from phronomy.stores.memory import MemoryStore
from phronomy.stores.rows import Append, Branch


@dataclass(frozen=True)
class Elsewhere:
    """A branch that is to be: as it is tried out, as it is written, and the checkpoint that it starts from."""

    apart: Store
    branch: Branch
    begun: Append
    origin: Checkpoint

    def found(self) -> tuple[Branch, Checkpoint, Store]:
        """The branch, its first checkpoint, and the store in which it is tried out."""
        return *self.apart.whole(self.begun.head or ""), self.apart

    def written(self, store: Store) -> tuple[Branch, Checkpoint]:
        """Write the branch. Raises `StoreError` if its id is taken."""
        store.create(self.branch, self.begun, exclusive=False)
        dispatch.at(store.dispatch, self.branch.run_id, [row.expires_at for row in self.begun.opened])
        return store.whole(self.begun.head or "")

    def choice(self, choice: Choice, first: Checkpoint) -> Choice:
        """The choice with the pending ids of the new branch: the caller knows those of the checkpoint that it starts from.

        Raises `UnknownPending` if nothing waits there, `NothingDecided` if one `approved=` is given for several requests, and
        `InvalidDecision` for a request that the new branch asks anew: a question, or one inside a call that is to be approved again.
        """
        check_choice(choice)
        waiting = as_sealed(self.origin).pending
        asked = {_asked(item) for item in waiting}
        choice = replace(choice, unseen=frozenset(item.id for item in first.pending if _asked(item) not in asked))
        if choice.approved is not None:
            # The requests that wait at the checkpoint, as the caller sees it. In the branch something else may wait (law 1).
            item = the_only(waiting, self.origin.id)
            answer = Approve() if choice.approved else Reject(reason=choice.reason)
            choice = replace(choice, approved=None, reason=None, decisions={item.id: answer})
        if choice.decisions is None:
            return choice
        # By what is asked, and not by the place in the list: of what waits at the checkpoint, some may be decided by now.
        here = {_asked(item): item.id for item in first.pending}
        for item in waiting:
            question = item.why == "question"
            if (question or _asked(item) not in here) and not choice.decisions.keys().isdisjoint(
                (item.id, item.call_id)
            ):
                what = "is a question" if question else "waits inside a call that is to be approved again"
                raise InvalidDecision(
                    f"pending {item.id} {what}, and branch {self.branch.id!r} asks it anew: nothing was decided. Resume with"
                    " write_to= and without this decision, and answer what is asked at the checkpoint that you get",
                    pending_id=item.id,
                )
        ids = {item.id: here[_asked(item)] for item in waiting if _asked(item) in here}
        return replace(choice, decisions={ids.get(id, id): answer for id, answer in choice.decisions.items()})


def _left_there(store: Store, branch: Branch, begun: Append, given: Checkpoint) -> Branch | None:
    """The very branch, if it is there and nothing has happened in it: whoever wrote it was lost before they had decided anything."""
    try:
        found, first = store.head(branch.id)
    except CheckpointNotFound:
        return None
    untouched = found.owner is None and found.seq == begun.seq + len(begun.entries)
    same = _start_of(found, first) == _start_of(
        branch, given
    )  # a fork may have changed the state, or run its calls anew
    return found if untouched and same else None


def _start_of(branch: Branch, state: Checkpoint) -> tuple[object, ...]:
    return branch.run_id, branch.parent_branch, branch.parent_seq, branch.label, state.salt, state.__dict__["state"]


def _asked(item: PendingApproval) -> tuple[str, str, str, str]:
    return item.path, item.call_id, item.why, item.digest


def elsewhere(store: Store, checkpoint: Checkpoint | str, write_to: str, *, bearer: bool) -> Elsewhere:
    """Make a branch of this id that starts at a checkpoint, without writing it.

    If it is there, and was left before anything was decided in it, it is that one. Raises `ConfigurationError` for an id that
    none can have, and what `fork` raises.
    """
    if not isinstance(write_to, str) or not write_to:
        raise ConfigurationError("write_to is the id of a new branch: text that is not empty")
    write_to = findable("the id of a branch (write_to)", write_to)
    # As `fork` does: the stored checkpoint, and one from elsewhere only if its bearer is trusted.
    _, given = lookup.known(store, checkpoint, bearer=bearer)
    forking.check_goes_on(given)
    branch, begun = forking.forked(store, given, branch_id=write_to)
    if (left := _left_there(store, branch, begun, given)) is not None:
        return Elsewhere(store, left, replace(begun, head=left.head), given)
    lineage = whole_lineage(store, checkpoint_id=given.id)
    # The log that it starts from, as one branch without parents: an entry has the same number in every branch that leads
    # through it.
    log = lineage.entries[: branch.parent_seq]
    parent = replace(Branch.of(given), id=branch.parent_branch or "")
    apart = MemoryStore(clock=store.clock, lease=store.lease)
    apart.create(parent, Append(branch_id=parent.id, seq=0, entries=log, head=given.id), exclusive=False)
    apart.create(branch, begun, exclusive=False)
    return Elsewhere(apart, branch, begun, given)

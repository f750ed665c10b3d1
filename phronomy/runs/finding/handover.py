"""Handing over what was decided to the worker that holds the run."""

from __future__ import annotations

from collections.abc import Sequence

from phronomy.records.audit import vote_on_new_request
from phronomy.records.calls import Decided, Ending, Outcome, Voted
from phronomy.runs.finding.lookup import Opened
from phronomy.stores import dispatch
from phronomy.stores.base import Store
from phronomy.stores.log.log import audit_row, journal_entry, pending_row, trail_row
from phronomy.stores.rows import Append, Behind, Claim


def hand_over(store: Store, opened: Opened, outcomes: Sequence[Outcome], closed: Sequence[str]) -> bool:
    """Leave outcomes for the worker that holds the branch. False if the log has moved on, or nobody holds it now: look again."""
    branch, state = opened.branch, opened.runner.state
    # As entries of the root, whoever they are for: the worker that holds the run hands them down.
    entries = tuple(journal_entry(outcome, "") for outcome in outcomes)
    inside = opened.runner.shared.nested
    told = [outcome for outcome in outcomes if isinstance(outcome, (Decided, Voted, Ending))]
    trail = [audit_row(state, outcome, inside) for outcome in told]
    trail += [trail_row(row) for each in told if isinstance(each, Voted) for row in vote_on_new_request(state, each)]
    # What has one more vote waits on, and is listed with it.
    votes = {
        each.decision.pending_id: each.decision.votes for each in told if isinstance(each, Voted) and not each.request
    }
    listed = [item.evolve(votes=votes[item.id]) for item in state.pending if item.id in votes]
    opened_rows = tuple(pending_row(item, branch, opened.head.id, branch.label) for item in listed)
    # The write is bound to the worker that holds the branch, by its fence. If that one let go meanwhile, the decision would lie in
    # the log for nobody; so it is refused, and looked at again.
    holder = Claim(branch_id=branch.id, run_id=branch.run_id, owner=branch.owner or "", fence=branch.fence)
    change = Append(
        branch_id=branch.id,
        seq=branch.seq,
        holder=holder,
        entries=entries,
        closed=tuple(
            dict.fromkeys([*closed, *(each.decision.pending_id for each in told if isinstance(each, Decided))])
        ),
        opened=opened_rows,
        audit=tuple(trail),
    )
    try:
        store.append(change)
    except Behind:
        return False
    # In this process the worker hears of it at once. Elsewhere it does with its next renewal of the lease.
    store.keeper.poke()
    # That worker may let go before it reads this, and then it is for the next one.
    dispatch.wake(store.dispatch, branch.run_id)
    return True

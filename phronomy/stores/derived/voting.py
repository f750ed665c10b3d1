"""Voting with the store alone: what a decision on a request that asks for people comes to, and what the trail says of who may not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from phronomy.approvals.answers import is_same_answer
from phronomy.errors import CheckpointNotFound, NotAnApprover
from phronomy.records.approvers import Approvers
from phronomy.records.audit import AuditRecord
from phronomy.records.calls import Decided, Voted
from phronomy.records.decisions import Answer, Decision, DecisionKind, PendingApproval
from phronomy.records.principals import Principal
from phronomy.rules.votes import VOTES, VoteKind, governed, has_asked, in_force, names, voting_time
from phronomy.stores.derived.requests import waiting_with_branch
from phronomy.stores.derived.voters import Voter, as_requested, is_decisive, vote_by, voters, with_votes
from phronomy.stores.log.log import trail_row
from phronomy.stores.rows import Append, Behind, holder_of

if TYPE_CHECKING:
    from phronomy.stores.base import Store
    from phronomy.stores.derived.listing import Waiting
    from phronomy.stores.rows import Branch

_ANYBODY: Final[Approvers] = Approvers.model_construct()

_TRIES: Final = 20
"""How often a refusal is written to the trail of a run that somebody else writes to all the time."""


def voted(store: Store, item: PendingApproval, decision: Decision, at: datetime) -> Decided | Voted:
    """The outcome of a decision with the store alone: itself, or a vote if it takes more of them.

    Where only the agent's code can say whether it counts, it is a decision that is to be checked. Raises `NotAnApprover`,
    `AlreadyVoted`.
    """
    kind = VOTES.get(decision.kind)
    if not governed(item) or kind is None:
        return Decided(decision=decision)
    item = as_requested(store, item)
    found = voters(store, item, decision.by)
    is_uncertain = asks_code(item, found, kind, at)
    try:
        vote = vote_by(item, found, decision, at=at, digest=item.digest)
    except NotAnApprover:
        if not is_uncertain:
            raise
        vote = vote_by(item.evolve(approvers=(_ANYBODY,)), found[:1], decision, at=at, digest=item.digest)
    counted = with_votes(decision, item, vote)
    if decision.__dict__["args"] is not None:
        # What the edit comes to asks for its own people, and only the agent's code can say which.
        return Decided(decision=counted)
    if is_decisive(store, item, vote):
        return Decided(decision=counted)
    return Decided(decision=counted.evolve(to_check=True)) if is_uncertain else Voted(decision=counted)


def asks_code(item: PendingApproval, found: Sequence[Voter], kind: VoteKind, at: datetime) -> bool:
    """Whether a predicate of a level may hold for these people, who are not named there."""
    at = voting_time(at, item.requested_at, item.votes)
    levels = [in_force(level, item.requested_at, at) for level in governed(item)]
    return any(
        level.predicates
        and not any(names(level, voter.person) for voter in found)
        # Whatever the predicate says, who asked for the run may not approve, and neither may their deputy.
        and not (kind != "reject" and level.not_requester and has_asked(level, found[0].sides, item.requester))
        for level in levels
    )


def is_repeated(
    store: Store, pending_id: str, answer: Answer, digest: str, by: Principal | None, key: str | None, said: str = ""
) -> bool:
    """Whether this very vote is in the trail already, under its idempotency key."""
    if key is None:
        return False
    trail = store.audit(pending_id=pending_id)
    return any(each.vote and is_same_answer(each, answer, digest, by, key, said) for each in trail)


def note_refusal(
    store: Store, error: NotAnApprover, kind: DecisionKind, by: Principal | None, channel: str | None
) -> None:
    """Have the trail say that somebody tried to decide who may not. It changes nothing of the run."""
    for _ in range(_TRIES):
        waits = waiting_with_branch(store, error.pending_id or "")
        if waits is None:  # decided meanwhile: the trail says by whom
            return
        waiting, branch = waits
        with suppress(Behind, CheckpointNotFound):
            store.append(_refusal(store, waiting, branch, kind, by, channel))
            return


def _refusal(
    store: Store, waiting: Waiting, branch: Branch, kind: DecisionKind, by: Principal | None, channel: str | None
) -> Append:
    item = waiting.approval
    record = AuditRecord(
        at=datetime.fromtimestamp(store.clock(), UTC),
        kind=kind,
        by=by,
        channel=channel,
        run_id=branch.run_id,
        thread_id=branch.thread_id,
        branch_id=branch.id,
        checkpoint_id=waiting.checkpoint_id,
        agent=item.agent or waiting.agent,
        path=item.path,
        pending_id=item.id,
        tool_name=item.tool_name,
        why=item.why,
        digest=item.digest,
        refused=True,
        policy=item.policy,
    )
    return Append(
        branch_id=branch.id,
        seq=branch.seq,
        holder=holder_of(branch, store.clock()),
        hands_over=False,
        audit=(trail_row(record),),
    )

"""Who votes: what the directory of the store says of them now, whom they stand in for, and whether they may.

A person who is in the directory has the roles that the directory says at this moment, whatever a caller says: a role that was taken
away an hour ago counts nowhere. Of somebody who is not there, the caller's word counts, as it does where nobody in particular is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from phronomy.errors import AlreadyVoted, NotAnApprover
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted_id
from phronomy.records.approvers import Vote
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.principals import Principal
from phronomy.records.record import digest_of
from phronomy.rules.votes import (
    VOTES,
    VoteKind,
    counts_at,
    decides,
    governed,
    in_force,
    is_requester,
    tallies,
    told,
    voting_time,
)
from phronomy.stores.derived.people import as_listed, person_of, represented_by

if TYPE_CHECKING:
    from phronomy.stores.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """Somebody who may be meant to vote: themself, or as the deputy of `behalf_of`.

    `listed` says that the directory knows them, and `repeated` that a vote of one of the two stands already.
    """

    by: Principal
    behalf_of: Principal | None = None
    listed: bool = False
    repeated: bool = False

    @property
    def person(self) -> Principal:
        """Whose vote it is."""
        return self.behalf_of if self.behalf_of is not None else self.by


def voters(store: Store, item: PendingApproval, by: Principal | None) -> list[Voter]:
    """As whom this principal may vote: as themself, then for each person who has named them as deputy.

    Raises `NotAnApprover` if nobody is named, and `StoreError` if what is known of them cannot be read.
    """
    if by is None:
        raise NotAnApprover(
            f"pending {item.id} asks for people, and the decision names nobody: say by whom it is",
            pending_id=item.id,
            by=None,
        )
    return voters_among(store, item, people_of(store, by))


def people_of(store: Store, by: Principal) -> list[Voter]:
    """Whom a principal may stand for on any request: themself, then each person who has named them as deputy. Raises `StoreError`."""
    person, listed = as_listed(store, by)
    found = [Voter(by=person, listed=listed)]
    for each in represented_by(store, person.id):
        represented = person_of(store, each.principal)
        if represented is not None:
            found.append(Voter(by=person, behalf_of=represented.principal, listed=True))
    return found


def voters_among(store: Store, item: PendingApproval, people: Sequence[Voter]) -> list[Voter]:
    """These people, each with whether a vote of theirs stands already on a request. Raises `StoreError`."""
    # A vote that does not stand any more, of a deputy whose time is over say, takes nobody's vote away.
    used = {id for each in item.votes if (vote := _as_now(store, each)) is not None for id in vote.ids}
    return [replace(each, repeated=not used.isdisjoint({each.by.id, each.person.id})) for each in people]


def check_still_listed(store: Store, pending_id: str, vote: Vote) -> None:
    """Refuse a vote that is to be checked of somebody whom the directory knew, and knows no longer. Raises `NotAnApprover`."""
    if vote.listed and not as_listed(store, vote.by)[1]:
        raise NotAnApprover(
            f"{quoted_id(vote.by.id)} was removed from the directory before the vote on pending {pending_id} was checked:"
            " it does not count",
            pending_id=pending_id,
            by=vote.by.id,
        )


def as_requested(store: Store, item: PendingApproval) -> PendingApproval:
    """The request with its requester as the directory knows them, where it matters who that is."""
    requester = item.requester
    if requester is None or not any(level.not_requester for level in governed(item)):
        return item
    return item.evolve(requester=as_listed(store, requester)[0])


def vote_of(
    item: PendingApproval,
    voters: Sequence[Voter],
    kind: VoteKind,
    *,
    at: datetime,
    channel: str | None,
    reason: str | None,
    digest: str,
    content_digest: str | None = None,
    levels: Mapping[str, tuple[int, ...]] | None = None,
    grant: str | None = None,
) -> Vote:
    """The vote of the first of these that may vote; `levels` are the levels whose predicate holds for a person, by their id.

    Raises `AlreadyVoted`, `NotAnApprover`.
    """
    asked = governed(item)
    at = voting_time(at, item.requested_at, item.votes)
    now = [in_force(level, item.requested_at, at) for level in asked]
    repeated = False
    for voter in voters:
        vote = Vote(
            kind=kind,
            digest=digest,
            content_digest=content_digest,
            by=voter.by,
            behalf_of=voter.behalf_of,
            at=at,
            channel=channel,
            reason=reason,
            levels=(levels or {}).get(voter.person.id, ()),
            listed=voter.listed,
            grant=grant,
        )
        if not any(counts_at(place, level, vote, item.requester) for place, level in enumerate(now)):
            continue
        if not voter.repeated:
            return vote
        repeated = True
    who = voters[0].by
    if repeated:
        raise AlreadyVoted(
            f"{quoted_id(who.id)} has voted on pending {item.id} before, and counts once", pending_id=item.id, by=who.id
        )
    raise not_an_approver(item, who, kind, at)


def vote_by(
    item: PendingApproval,
    voters: Sequence[Voter],
    decision: Decision,
    *,
    at: datetime,
    digest: str,
    levels: Mapping[str, tuple[int, ...]] | None = None,
) -> Vote:
    """The vote that a decision is, on what has this digest. `levels` as in `vote_of`, and raises as that does."""
    return vote_of(
        item,
        voters,
        VOTES[decision.kind],
        at=at,
        channel=decision.channel,
        reason=decision.reason,
        digest=digest,
        content_digest=digest_of(decision.json_text("content")) if decision.kind == "respond" else None,
        levels=levels,
    )


def with_votes(decision: Decision, item: PendingApproval, vote: Vote) -> Decision:
    """The decision with all votes on a request, its own last, and in the name of who has voted."""
    return decision.evolve(
        by=vote.by.without_claims(),
        behalf_of=vote.behalf_of,
        votes=(*item.votes, vote),
        policy=item.policy,
    )


_VERBS: Final[Mapping[VoteKind, str]] = {"approve": "approve", "reject": "reject", "respond": "respond to"}


def not_an_approver(item: PendingApproval, who: Principal, kind: VoteKind, at: datetime) -> NotAnApprover:
    """The refusal of somebody who may not decide on a request, with who may."""
    asked = governed(item)
    requests = (
        kind != "reject" and all(level.not_requester for level in asked) and is_requester({who.id}, item.requester)
    )
    if requests and item.requester is None:
        why = "it must not be who asked for the run, and nobody has said who that is: invoke(requester=...) does"
    elif requests:
        why = "who asked for the run may not approve it"
    else:
        why = f"it takes {told(asked, item.requested_at, at)}"
    return NotAnApprover(
        f"{quoted_id(who.id)} may not {_VERBS[kind]} pending {item.id}: {why}. Nothing was decided",
        pending_id=item.id,
        by=who.id,
    )


def is_decisive(store: Store, item: PendingApproval, vote: Vote) -> bool:
    """Whether a vote decides the request, with those before it: as they are recorded, and as far as these people may still vote."""
    # By the record too: whoever reads it counts once more by that alone, and a role that was given since is not in it.
    if not _decides(item, (*item.votes, vote)):
        return False
    if not item.votes:
        return True
    found = [(as_now, each) for each in item.votes if (as_now := _as_now(store, each)) is not None]
    now, recorded = [each for each, _ in found], [each for _, each in found]
    # Each vote by both: a role that one has lost must not be made up for by one that another was given.
    return _decides(as_requested(store, item), (*now, vote), (*recorded, vote))


def _decides(item: PendingApproval, votes: Sequence[Vote], recorded: Sequence[Vote] | None = None) -> bool:
    tally = tallies(governed(item), votes, requested_at=item.requested_at, requester=item.requester, recorded=recorded)
    return decides(tally, votes[-1].kind)


def _as_now(store: Store, vote: Vote) -> Vote | None:
    """A vote with the roles that its people have now; None if it does not count any more."""
    by, listed = as_listed(store, vote.by)
    # Somebody was found in the directory when they voted, and was removed since: nobody knows what they may do now.
    if vote.listed and not listed:
        return None
    if vote.behalf_of is None:
        return vote.evolve(by=by)
    behalf_of, known = as_listed(store, vote.behalf_of)
    # A deputy stands in as long as they are one. What they have decided is decided; a vote that waits for others is not.
    if not known or all(each.principal != behalf_of.id for each in represented_by(store, by.id)):
        return None
    return vote.evolve(by=by, behalf_of=behalf_of)

"""Who votes: what the directory of the store says of them now, whom they stand in for, and whether they may.

A person who is in the directory has the roles that the directory says at this moment, whatever a caller says: a role that was taken
away an hour ago counts nowhere. Of somebody who was never there, the caller's word counts, as it does where nobody in particular is
asked. Whoever was there once (`Principal.listed`) and was removed may not vote at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from phronomy.errors import AlreadyVoted, NotAnApprover, UnreadableRow
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted_id
from phronomy.records.approvers import Approvers, Vote, authors_of
from phronomy.records.chain import with_known
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.principals import Principal
from phronomy.records.record import digest_of
from phronomy.rules.votes import (
    VOTES,
    VoteKind,
    counts_at,
    decides,
    governed,
    has_asked,
    in_force,
    is_requester,
    tallies,
    told,
    voting_time,
)
from phronomy.stores.derived.people import as_known, as_recorded, person_known_as, person_of, represented_by

if TYPE_CHECKING:
    from phronomy.stores.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """Somebody who may be meant to vote: themself, or as the deputy of `behalf_of`.

    `voted` is the vote of one of the two that stands already. `alias` is the other id under which they come. `deputy_of` are the
    ids of all whose deputy they are.
    """

    by: Principal
    alias: str | None = None
    deputy_of: tuple[str, ...] = ()
    behalf_of: Principal | None = None
    voted: Vote | None = None

    @property
    def person(self) -> Principal:
        """Whose vote it is."""
        return self.behalf_of if self.behalf_of is not None else self.by

    @property
    def sides(self) -> frozenset[str]:
        """The ids of the voter and of all whose deputy they are: if one of them has asked, the voter does not approve."""
        return frozenset({self.by.id, *self.deputy_of})


def voters(store: Store, item: PendingApproval, by: Principal | None) -> list[Voter]:
    """As whom this principal may vote: as themself, then for each person who has named them as deputy.

    Raises `NotAnApprover` if nobody is named, or somebody who was removed from the directory, and `StoreError` if what is known of
    them cannot be read.
    """
    if by is None:
        raise NotAnApprover(
            f"pending {item.id} asks for people, and the decision names nobody: say by whom it is",
            pending_id=item.id,
            by=None,
        )
    if not (found := voters_left(store, item, by)):
        raise removed(item.id, by)
    return found


def voters_left(store: Store, item: PendingApproval, by: Principal) -> list[Voter]:
    """As `voters`, and nobody for somebody who was removed from the directory. Raises `StoreError`."""
    return voters_among(store, item, people_of(store, by))


def people_of(store: Store, by: Principal) -> list[Voter]:
    """Whom a principal may stand for on any request: themself, then each person who has named them as deputy.

    Nobody, for somebody who was removed from the directory. Raises `StoreError`.
    """
    person = as_known(store, by)
    if person is None:
        return []
    named = represented_by(store, person.id)
    themself = Voter(
        by=person,
        alias=by.id if by.id != person.id else None,
        deputy_of=tuple([each.principal for each in named]),
    )
    found = [themself]
    for each in named:
        represented = person_of(store, each.principal)
        if represented is not None:
            found.append(replace(themself, behalf_of=represented.principal))
    return found


def voters_among(store: Store, item: PendingApproval, people: Sequence[Voter]) -> list[Voter]:
    """These people, each with whether a vote of theirs stands already on a request. Raises `StoreError`."""
    # A vote that does not stand any more, of a deputy whose time is over say, takes nobody's vote away.
    stand = [vote for each in item.votes if (vote := _as_now(store, each)) is not None]
    used = {id: vote for vote in reversed(stand) for id in vote.names}
    return [replace(each, voted=used.get(each.by.id) or used.get(each.person.id)) for each in people]


def check_may_decide(store: Store, pending_id: str, by: Principal | None) -> None:
    """Refuse a decision of somebody who was removed from the directory since it was asked for them. Raises `NotAnApprover`."""
    if by is not None and by.listed and as_known(store, by) is None:
        raise removed(pending_id, by)


def check_still_listed(store: Store, pending_id: str, vote: Vote) -> None:
    """Refuse a vote that is to be checked of somebody whom the directory knew, and knows no longer. Raises `NotAnApprover`."""
    check_may_decide(store, pending_id, _voter_of(vote))


def removed(pending_id: str, by: Principal) -> NotAnApprover:
    """The refusal of somebody who was removed from the directory."""
    return NotAnApprover(
        f"{quoted_id(by.id)} was removed from the directory, and may not decide on pending {pending_id}: it does not count",
        pending_id=pending_id,
        by=by.id,
    )


def _voter_of(vote: Vote) -> Principal:
    """Who has voted. In the rows of earlier releases, the vote alone says that they were listed."""
    return as_recorded(vote.by, vote.listed)


def as_requested(store: Store, item: PendingApproval) -> PendingApproval:
    """The request with its requester as the directory knows them, where it matters who that is."""
    requester = item.requester
    if requester is None or not any(level.not_requester for level in governed(item)):
        return item
    # Who was removed since has asked all the same, under the id of then. Of somebody whose row cannot be read, nobody knows
    # by which other ids they come: then it counts as if nobody had said who asked, and nobody may approve.
    try:
        if requester.person is None:
            requester = as_known(store, requester) or requester
        levels = tuple(_as_known(store, level, requester) for level in item.approvers)
        return item.evolve(requester=requester, approvers=levels)
    except UnreadableRow:
        return item.evolve(requester=None)


def _as_known(store: Store, level: Approvers, requester: Principal) -> Approvers:
    """The level with those who have written as the directory knows them, under whichever id they wrote.

    Somebody who wrote under an alias is the person who had it then. The alias counts too, as long as it is nobody else's.
    """
    known = with_known(level.known, None, requester)
    if not level.authors and not known:
        return level
    aliases = [alias for alias, _ in known]
    left = [alias for alias in aliases if person_known_as(store, alias) is None]
    others = [id for id in level.authors if id not in aliases]
    found = [person_known_as(store, id) if id else None for id in others]
    ids = [person.id if person is not None else id for person, id in zip(found, others, strict=True)]
    return level.evolve(authors=authors_of([*ids, *left, *(person for _, person in level.known)], ()), known=())


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
    repeated: Vote | None = None
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
            listed=voter.by.listed,
            grant=grant,
            alias=voter.alias,
            deputy_of=voter.deputy_of,
        )
        if not any(counts_at(place, level, vote, item.requester) for place, level in enumerate(now)):
            continue
        if voter.voted is None:
            return vote
        repeated = repeated or voter.voted
    who = voters[0].by
    if repeated is not None:
        raise AlreadyVoted(_voted(item, who, repeated), pending_id=item.id, by=who.id)
    raise not_an_approver(item, voters[0], kind, at)


def _voted(item: PendingApproval, who: Principal, vote: Vote) -> str:
    """The sentence that a vote of somebody stands: theirs, that of their deputy, or that of whom they stand for."""
    whose = f" for {quoted_id(vote.person.id)}, as their deputy" if vote.behalf_of is not None else ""
    again = (
        "and" if vote.by.id == who.id else f"so {quoted_id(who.id)} cannot vote for the same person again: each person"
    )
    return f"{quoted_id(vote.by.id)} has voted on pending {item.id}{whose or ' before'}, {again} counts once"


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
    vote = vote_of(
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
    return vote.evolve(metadata=decision.__dict__["metadata"])


def with_votes(decision: Decision, item: PendingApproval, vote: Vote) -> Decision:
    """The decision with all votes on a request, its own last, and in the name of who has voted."""
    return decision.evolve(
        by=vote.by.without_claims(),
        behalf_of=vote.behalf_of,
        votes=(*item.votes, vote),
        policy=item.policy,
    )


_VERBS: Final[Mapping[VoteKind, str]] = {"approve": "approve", "reject": "reject", "respond": "respond to"}


def not_an_approver(item: PendingApproval, voter: Voter, kind: VoteKind, at: datetime) -> NotAnApprover:
    """The refusal of somebody who may not decide on a request, with who may."""
    asked, who = governed(item), voter.by
    never = kind != "reject" and all(level.not_requester for level in asked)
    requests = never and is_requester({who.id}, item.requester)
    speaks = never and not requests and any(has_asked(level, {who.id}, item.requester) for level in asked)
    stands = never and not requests and any(has_asked(level, voter.sides, item.requester) for level in asked)
    if speaks:
        why = f"who has written in the conversation may not approve what follows from it: {told(asked, item.requested_at, at)}"
    elif requests and item.requester is None:
        why = "it must not be who asked for the run, and nobody has said who that is: invoke(requester=...) does"
    elif requests:
        why = "who asked for the run may not approve it"
    elif stands:
        why = f"a deputy of somebody who may not approve may not, either: {told(asked, item.requested_at, at)}"
    else:
        why = f"it takes {told(asked, item.requested_at, at)}{_lacking(item, who, at)}"
    return NotAnApprover(
        f"{quoted_id(who.id)} may not {_VERBS[kind]} pending {item.id}: {why}. Nothing was decided",
        pending_id=item.id,
        by=who.id,
    )


def _lacking(item: PendingApproval, who: Principal, at: datetime) -> str:
    """Why the roles of somebody do not count, where roles are asked for: by the directory, or as nobody has passed any."""
    roles = {role for level in governed(item) for role in in_force(level, item.requested_at, at).roles}
    if not roles or not roles.isdisjoint(who.roles):
        return ""
    if who.listed:
        return "; the directory gives them no such role, and what it says counts, whatever roles are passed"
    return "" if who.roles else "; they are not in the directory, and no role was passed with them"


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
    """A vote with the roles that its people have now; None if it does not count any more, as of people whose row cannot be read."""
    with suppress(UnreadableRow):
        return _as_known_now(store, vote)
    return None


def _as_known_now(store: Store, vote: Vote) -> Vote | None:
    """As `_as_now`. Raises `UnreadableRow`."""
    by = as_known(store, _voter_of(vote))
    # Somebody was found in the directory when they voted, and was removed since: nobody knows what they may do now.
    if by is None:
        return None
    deputy_of = tuple([each.principal for each in represented_by(store, by.id)])
    if vote.behalf_of is None:
        return vote.evolve(by=by, deputy_of=deputy_of)
    behalf_of = as_known(store, as_recorded(vote.behalf_of, listed=True))
    # A deputy stands in as long as they are one. What they have decided is decided; a vote that waits for others is not.
    if behalf_of is None or behalf_of.id not in deputy_of:
        return None
    return vote.evolve(by=by, behalf_of=behalf_of, deputy_of=deputy_of)

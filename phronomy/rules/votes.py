"""Counting votes: who may vote on a request, whether a vote decides it, and what is still missing.

A request has one requirement for each level that asks, and each is met by itself. All times are those of the vote that is counted last:
whoever was added by an escalation before that may vote, and whoever was replaced by one no longer counts. The time never goes back from
one vote to the next, so a clock that is set back takes nobody's right away and gives none.

The gate counts once more, with what stands in the record alone, before anything runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

from phronomy.foundation.dataclasses import dataclass
from phronomy.records.approvers import Approvers, Escalation, Vote, authors_of
from phronomy.records.decisions import PendingApproval
from phronomy.records.principals import Principal, id_of_person

GOVERNED: Final = ("approval", "failed", "outcome_unknown")
"""Why a human is asked, where the approvers of a call count: to let a run go on at a breakpoint approves of nothing."""

_NAMED: Final = 5
"""The number of writers that a text names."""

VoteKind: TypeAlias = Literal["approve", "reject", "respond"]

VOTES: Final[Mapping[str, VoteKind]] = {"approve": "approve", "reject": "reject", "respond": "respond"}
"""The kinds of decisions that are votes."""


@dataclass(frozen=True, slots=True)
class LevelTally:
    """How the votes stand at one level: how many people count for what is voted on, and how many it takes."""

    of: str
    counted: int
    needed: int
    rejected: int
    rejections: int


def governed(item: PendingApproval) -> tuple[Approvers, ...]:
    """The requirements that count for a request; none if anybody may decide it alone."""
    return item.approvers if item.why in GOVERNED else ()


def voting_time(at: datetime, requested_at: datetime, votes: Iterable[Vote]) -> datetime:
    """The time of a vote that is cast now: never before the request, or the vote before it."""
    return max([at, requested_at, *(vote.at for vote in votes)])


def in_force(level: Approvers, requested_at: datetime, at: datetime) -> Approvers:
    """The requirement of a level as it is at this time, with the escalations that are due."""
    waited = (at - requested_at).total_seconds()
    for each in sorted(level.escalations, key=lambda each: each.after):
        if each.after <= waited:
            level = _escalated(level, each)
    return level


def _escalated(level: Approvers, to: Escalation) -> Approvers:
    needed = level.needed if to.needed is None else to.needed
    if to.instead:
        return level.evolve(roles=to.roles, ids=to.ids, predicates=to.predicates, needed=needed)
    # Where anybody may approve, those who are added may already.
    if is_open(level):
        return level.evolve(needed=needed)
    return level.evolve(
        roles=(*level.roles, *to.roles),
        ids=(*level.ids, *to.ids),
        predicates=(*level.predicates, *to.predicates),
        needed=needed,
    )


def is_open(level: Approvers) -> bool:
    """Whether anybody may decide at this level who says who they are."""
    return not (level.roles or level.ids or level.predicates)


def names(level: Approvers, person: Principal) -> bool:
    """Whether the level names this person, by a role or by their id. Its predicates are not asked."""
    return is_open(level) or person.id in level.ids or any(role in level.roles for role in person.roles)


def is_requester(vote: Iterable[str], requester: Principal | None) -> bool:
    """Whether one of these ids is that of who asked for the run. If that is not known, it may be anybody."""
    return requester is None or id_of_person(requester) in vote


def has_asked(level: Approvers, vote: Collection[str], requester: Principal | None) -> bool:
    """True if one of these ids belongs to somebody who asked for the run, or wrote earlier in its conversation.

    `vote` are the ids of a voter, and of all whose deputy they are: who asked could as well have told their deputy to approve.
    """
    return is_requester(vote, requester) or any(not id or id in vote for id in authors_of(level.authors, level.known))


def counts_at(place: int, level: Approvers, vote: Vote, requester: Principal | None) -> bool:
    """Whether a vote counts at a level that is in force; `place` is that of the level in the request."""
    if vote.kind != "reject" and level.not_requester and has_asked(level, vote.ids.union(vote.deputy_of), requester):
        return False
    return names(level, vote.person) or (bool(level.predicates) and place in vote.levels)


def tallies(
    levels: Sequence[Approvers],
    votes: Sequence[Vote],
    *,
    requested_at: datetime,
    requester: Principal | None,
    recorded: Sequence[Vote] | None = None,
    at: datetime | None = None,
) -> list[LevelTally]:
    """How the votes stand at each level. The last one is counted with those like it: for the same, and of the same digest.

    `recorded` are the same votes as they were cast, where `votes` have the roles that these people have now. A vote counts at a level
    if it does in both. `at` is a time after the last vote, for what counts then.
    """
    if not votes and at is None:
        return [LevelTally(level.of, 0, level.needed, 0, level.rejections) for level in levels]
    time = voting_time(at if at is not None else requested_at, requested_at, votes)
    counted = [(votes[place], (recorded or votes)[place]) for place in _once_each(votes)]
    found: list[LevelTally] = []
    for place, level in enumerate(levels):
        now = in_force(level, requested_at, time)
        here = [
            vote
            for vote, cast in counted
            if counts_at(place, now, _with_predicates(place, level, now, vote, requested_at), requester)
            and (
                cast is vote
                or counts_at(place, now, _with_predicates(place, level, now, cast, requested_at), requester)
            )
        ]
        same = [vote for vote in here if is_like(vote, votes[-1])]
        against = [vote for vote in here if vote.kind == "reject"]
        found.append(LevelTally(level.of, len(same), now.needed, len(against), now.rejections))
    return found


def _with_predicates(place: int, level: Approvers, now: Approvers, vote: Vote, requested_at: datetime) -> Vote:
    """The vote without this level's predicate, if an escalation has put others in the place of those that were asked then."""
    if place not in vote.levels or not level.escalations:
        return vote
    then = in_force(level, requested_at, vote.at)
    if set(then.predicates) <= set(now.predicates):
        return vote
    return vote.evolve(levels=tuple(each for each in vote.levels if each != place))


def decides(tally: Sequence[LevelTally], kind: VoteKind) -> bool:
    """Whether a vote of this kind decides the request: every level has enough for it, or one level has enough against it."""
    if kind == "reject":
        return any(each.rejected >= each.rejections for each in tally)
    return all(each.counted >= each.needed for each in tally)


def _once_each(votes: Sequence[Vote]) -> list[int]:
    """The places of the votes with one of each person, themselves or by a deputy: the last one.

    Nobody can vote again as long as their vote stands. It does not where a deputy has voted who is none any more.
    """
    people: set[str] = set()
    seen: set[str] = set()
    found: list[int] = []
    for place in reversed(range(len(votes))):
        vote = votes[place]
        # An alias under which one has come is no second person. Of two who came under one alias, it has moved in between.
        if seen.isdisjoint(vote.ids) and people.isdisjoint(vote.names):
            found.append(place)
        people |= vote.ids
        seen |= vote.names
    return found[::-1]


def counting(
    levels: Sequence[Approvers],
    votes: Sequence[Vote],
    *,
    requested_at: datetime,
    requester: Principal | None,
    at: datetime | None = None,
) -> list[Vote]:
    """The votes that count at one level at least, at the time of the last one or `at` a later one."""
    time = voting_time(at if at is not None else requested_at, requested_at, votes)
    now = [in_force(level, requested_at, time) for level in levels]

    def counts(vote: Vote) -> bool:
        return any(
            counts_at(place, now[place], _with_predicates(place, level, now[place], vote, requested_at), requester)
            for place, level in enumerate(levels)
        )

    return [votes[place] for place in _once_each(votes) if counts(votes[place])]


def is_like(vote: Vote, other: Vote) -> bool:
    """True if a vote is for the same as another; of two rejections, neither is."""
    # Two people who give two different results have not agreed on either.
    wanted = other.kind if other.kind != "reject" else "approve"
    return (vote.kind, vote.digest) == (wanted, other.digest) and (
        vote.kind != "respond" or vote.content_digest == other.content_digest
    )


def approves(
    levels: Sequence[Approvers],
    votes: Sequence[Vote],
    *,
    digest: str,
    requested_at: datetime,
    requester: Principal | None,
) -> bool:
    """Whether these votes approve the call of this digest: the last of them for it, and enough like it at every level."""
    if not votes or votes[-1].kind == "reject" or votes[-1].digest != digest:
        return False
    tally = tallies(levels, votes, requested_at=requested_at, requester=requester)
    return decides(tally, votes[-1].kind)


def told(levels: Sequence[Approvers], requested_at: datetime, at: datetime) -> str:
    """Who may decide, in words, for an error or a page."""
    return "; ".join(_told(in_force(level, requested_at, at)) for level in levels)


def _told(level: Approvers) -> str:
    who = [*level.roles, *level.ids, *(f"whoever {name} accepts" for name in level.predicates)]
    people = " or ".join(who) or "anybody who says who they are"
    but = ", but not the requester" if level.not_requester else ""
    if authors := authors_of(level.authors, level.known):
        named = [id or "somebody unknown" for id in authors[:_NAMED]]
        more = f" and {len(authors) - _NAMED:,} more" if len(authors) > _NAMED else ""
        but += f", nor {', '.join(named)}{more}, who have written in this conversation"
    return f"{level.needed} of {people}{but}"

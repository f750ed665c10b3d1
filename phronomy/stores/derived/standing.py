"""What one person may do about a request at this moment, before they try: for a page that shows only the buttons that count.

It promises nothing. Whether a decision counts is judged when it is made, by the same pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from phronomy.approvals.answers import answers_to, check_answer
from phronomy.errors import AlreadyVoted, InvalidDecision, NotAnApprover
from phronomy.foundation.dataclasses import dataclass
from phronomy.records.approvers import Vote
from phronomy.records.decisions import Answer, Approve, PendingApproval, Skip
from phronomy.records.principals import Principal
from phronomy.rules.votes import VoteKind, counting, decides, governed, has_asked, is_requester, tallies, told
from phronomy.stores.derived.voters import Voter, as_requested, people_of, vote_of, voters_among
from phronomy.stores.derived.voting import asks_code

if TYPE_CHECKING:
    from phronomy.rules.votes import LevelTally
    from phronomy.stores.base import Store

Way: TypeAlias = Literal["approve", "edit", "reject", "respond", "skip"]
"""A way to answer a request."""

WAYS: Final[Mapping[Way, VoteKind | None]] = {
    "approve": "approve",
    "edit": "approve",
    "reject": "reject",
    "respond": "respond",
    "skip": None,
}
"""Each way to answer, and the kind of vote that it is. To skip a call at a breakpoint is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a person may do about a request: the `answers` that they may give now, and if there are none, `why_not`.

    `said` says, for people, why they may give none, or why they may not approve. `uncertain` says that only the agent's code can
    tell, once they have tried. `partial` are those of the answers that are a vote and decide nothing alone: others have to follow.
    """

    answers: tuple[Way, ...] = ()
    partial: tuple[Way, ...] = ()
    why_not: Literal["expired", "voted", "not_an_approver", "not_offered"] | None = None
    said: str | None = None
    uncertain: bool = False


def standing_of(
    store: Store, item: PendingApproval, by: Principal, *, people: Callable[[], Sequence[Voter]] | None = None
) -> Standing:
    """What a person may do about a request that waits. Raises `StoreError`.

    `people` gives whom the person may stand for (`people_of`): whoever looks at many requests of one person reads that once.
    """
    at = datetime.fromtimestamp(store.clock(), UTC)
    if item.has_lapsed(at):
        return Standing(why_not="expired")
    offered = offered_by(item)
    of_anybody = Standing(answers=offered, why_not=None if offered else "not_offered")
    is_governed = bool(governed(item))
    # Of somebody whom the directory has never known, nothing is read where nobody in particular is asked.
    if not is_governed and not by.listed:
        return of_anybody
    known = people() if people is not None else people_of(store, by)
    if not known:
        return Standing(why_not="not_an_approver", said="You are not in the directory of people any more.")
    if not is_governed:
        return of_anybody
    item = as_requested(store, item)
    return _standing_among(voters_among(store, item, known), item, by, at)


def _standing_among(found: Sequence[Voter], item: PendingApproval, by: Principal, at: datetime) -> Standing:
    """As `standing_of`, of a request that asks for certain people. `found` are those for whom the person may stand."""
    answers: list[Way] = []
    partial: list[Way] = []
    voted = uncertain = False
    said = None
    for name in offered_by(item):
        if (kind := WAYS[name]) is not None:
            vote = None
            try:
                # An edit is of another digest: no vote that stands is like it.
                digest = "" if name == "edit" else item.digest
                vote = vote_of(item, found, kind, at=at, channel=None, reason=None, digest=digest)
            except AlreadyVoted:
                voted = True
                continue
            except NotAnApprover:
                if not asks_code(item, found, kind, at):
                    said = said or _why_not(item, kind, by, found[0], at)
                    continue
                uncertain = True
            if _is_partial(item, vote, kind):
                partial.append(name)
        answers.append(name)
    if answers:
        return Standing(answers=tuple(answers), partial=tuple(partial), said=said, uncertain=uncertain)
    return Standing(why_not="voted" if voted else "not_an_approver", said=said)


def _is_partial(item: PendingApproval, vote: Vote | None, kind: VoteKind) -> bool:
    """Whether an answer would leave the request waiting for others. A vote that only code can judge is taken to count at each level."""
    levels = governed(item)
    votes = item.votes if vote is None else (*item.votes, vote)
    tally = tallies(levels, votes, requested_at=item.requested_at, requester=item.requester)
    if vote is not None:
        return not decides(tally, kind)
    if kind == "reject":
        return all(each.rejections - each.rejected > 1 for each in tally)
    return any(each.needed - each.counted > 1 for each in tally)


def _why_not(item: PendingApproval, kind: VoteKind, by: Principal, voter: Voter, at: datetime) -> str:
    """Why somebody may not give an answer, and who may, for people: without ids, and without what only code can do about it."""
    levels = governed(item)
    asked = f"Asked for: {told(levels, item.requested_at, at)}."
    if kind != "reject" and any(level.not_requester for level in levels):
        if item.requester is None:
            return f"Nobody can approve this: who asked for it may not, and it is not recorded who that was. {asked}"
        if is_requester({by.id, voter.by.id}, item.requester):
            return f"You asked for this, so somebody else has to approve it. {asked}"
        if any(has_asked(level, {by.id}, item.requester) for level in levels):
            return f"You have written in this conversation, and may not approve what follows from it. {asked}"
        if any(has_asked(level, voter.sides, item.requester) for level in levels):
            return f"You are the deputy of somebody who asked for this, and may not approve it for anybody. {asked}"
    return asked


def offered_by(item: PendingApproval) -> tuple[Way, ...]:
    """The ways to answer that a request takes, whoever answers."""
    named = answers_to(item)
    found: list[Way] = []
    if _takes(item, Approve()) and not item.external:
        found.append("approve")
    if "edit" in named and item.why != "question" and not item.between_steps:
        found.append("edit")
    if "reject" in named:
        found.append("reject")
    if "respond" in named and not item.between_steps:
        found.append("respond")
    if item.why == "breakpoint" and _takes(item, Skip()):
        found.append("skip")
    return tuple(found)


def _takes(item: PendingApproval, answer: Answer) -> bool:
    try:
        check_answer(item, answer)
    except InvalidDecision:
        return False
    return True


def tallies_of(store: Store, item: PendingApproval, votes: Sequence[Vote] | None = None) -> list[LevelTally]:
    """How the votes stand at each level that asks for people, as they are recorded.

    `votes` are those of the decision, where there is one: a request that is decided keeps only those that came before. Without them
    it waits, and the levels are those of now.
    """
    cast, at = (item.votes, datetime.fromtimestamp(store.clock(), UTC)) if votes is None else (votes, None)
    requester = as_requested(store, item).requester
    return tallies(governed(item), cast, requested_at=item.requested_at, requester=requester, at=at)


def counting_of(store: Store, item: PendingApproval) -> list[Vote]:
    """The votes on a waiting request that count now: after an escalation, others may have taken the place of some."""
    at = datetime.fromtimestamp(store.clock(), UTC)
    requester = as_requested(store, item).requester
    return counting(governed(item), item.votes, requested_at=item.requested_at, requester=requester, at=at)


def who_may(store: Store, item: PendingApproval) -> tuple[str, ...]:
    """Who may decide at each level now, in words."""
    at = datetime.fromtimestamp(store.clock(), UTC)
    return tuple(told((level,), item.requested_at, at) for level in governed(item))

"""The votes that a branch tells of, each once: from the journal, or from the first checkpoint that shows them.

A vote that was cast with the store alone is an entry of its own. One that was cast with the agent's code comes with a checkpoint. The
last vote decides the request, and is in the decision: it is no vote here. Votes that a request has from its beginning were cast on the
request before it, in whose place it stands.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from phronomy.foundation.dataclasses import dataclass
from phronomy.records.approvers import Approvers, Vote
from phronomy.records.calls import Outcome, Voted
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import PendingApproval
from phronomy.records.record import Record, Text
from phronomy.rules.votes import governed, in_force, tallies, voting_time


class LevelVotes(Record):
    """The votes at one level: a tool (`of` is empty), or a policy of the agent or graph `of`.

    `counted` people agree with the last vote, or have approved if that was a rejection; it takes `needed`. `rejected`
    people have rejected; it takes `rejections` of them to reject the call.
    """

    wire_adds: ClassVar[tuple[str, ...]] = ("missing",)

    of: Text = ""
    counted: int
    needed: int
    rejected: int
    rejections: int

    @property
    def missing(self) -> int:
        """How many people have yet to approve."""
        return max(self.needed - self.counted, 0)


def levels_of(
    item: PendingApproval, votes: Sequence[Vote] | None = None, at: datetime | None = None
) -> tuple[LevelVotes, ...]:
    """How the votes on a request stand at each level; nothing if anybody may decide it alone.

    `votes` are those that count in place of its own, and `at` is the time in place of that of the last vote.
    """
    given = item.votes if votes is None else votes
    levels = governed(item) if at is None else levels_at(item, at)
    tally = tallies(levels, given, requested_at=item.requested_at, requester=item.requester)
    return tuple(
        LevelVotes(
            of=each.of,
            counted=each.counted,
            needed=each.needed,
            rejected=each.rejected,
            rejections=each.rejections,
        )
        for each in tally
    )


def levels_at(item: PendingApproval, at: datetime) -> tuple[Approvers, ...]:
    """The requirements of a request as they are at this time, without those that follow."""
    at = voting_time(at, item.requested_at, item.votes)
    return tuple(in_force(level, item.requested_at, at).evolve(escalations=()) for level in governed(item))


class Cast(NamedTuple):
    """A vote that was cast on a request. `place` is how many others voted or decided before, since the checkpoint before."""

    item: PendingApproval
    vote: Vote
    levels: tuple[LevelVotes, ...]
    place: int = 0

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of the event about it."""
        item = self.item
        named = {"pending_id": item.id, "tool_name": item.tool_name, "inside": item.path}
        return {**named, "vote": self.vote, "levels": self.levels}


@dataclass(slots=True)
class _Open:
    item: PendingApproval
    told: int


class Votes:
    """The open requests of a branch, and how many votes on each were told."""

    def __init__(self, base: Checkpoint | None = None) -> None:
        self._open: dict[str, _Open] = {}
        if base is not None:
            self._open = {item.id: _Open(item, len(item.votes)) for item in base.pending}
            for outcome in base.journal:
                self.journaled(outcome)

    def journaled(self, outcome: Outcome) -> list[Cast]:
        """The votes in an entry of the journal."""
        # One that puts a new request in place of the old one is the decision on the old one.
        if not isinstance(outcome, Voted) or outcome.request is not None:
            return []
        found = self._open.get(outcome.decision.pending_id)
        return [*_new(found, outcome.decision.votes)] if found is not None else []

    def sealed(self, now: Checkpoint) -> list[Cast]:
        """The votes that a checkpoint of the outermost run shows, and nothing before it."""
        before, self._open = self._open, {}
        found: list[Cast] = []
        for item in now.pending:
            known = before.get(item.id, _Open(item, len(item.votes)))
            found += _new(known, item.votes)
            self._open[item.id] = known
        # The last vote is told as the decision. Those before it may have been cast since the checkpoint before.
        for decision in now.decisions if before else ():
            if decision.pending_id in before and decision.pending_id not in self._open:
                found += _new(before[decision.pending_id], decision.votes[:-1])
        times = [decision.at for decision in now.decisions if decision.pending_id in before]
        found.sort(key=lambda each: each.vote.at)
        return [each._replace(place=place + sum(at < each.vote.at for at in times)) for place, each in enumerate(found)]


def _new(request: _Open, votes: Sequence[Vote]) -> Iterator[Cast]:
    """The votes that were not told yet, each with how they stood with it."""
    for count in range(request.told + 1, len(votes) + 1):
        yield Cast(request.item, votes[count - 1], levels_of(request.item, votes[:count]))
    request.told = max(request.told, len(votes))

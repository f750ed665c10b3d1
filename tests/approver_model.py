"""A plain model of who may approve: written from the documentation alone, to be compared with what counts the votes.

It knows nothing of stores, checkpoints or agents: a request is its levels, and a vote is a person, a kind and a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["approve", "reject", "respond"]
Verdict = Literal[
    "not allowed", "refused", "repeated", "counted", "approved", "rejected", "responded", "expired", "late"
]
"""What a vote comes to. `late` is one after the request was decided."""


@dataclass(frozen=True)
class Voter:
    """Somebody, with the roles that they have when they vote."""

    id: str | None
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Step:
    """An escalation: who may approve from `after` seconds on."""

    after: float
    roles: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    instead: bool = False
    needed: int | None = None


@dataclass(frozen=True)
class Level:
    """What one of those who ask for an approval requires."""

    roles: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    needed: int = 1
    rejections: int = 1
    not_requester: bool = False
    steps: tuple[Step, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether nothing is asked of who decides."""
        return self == Level()

    def people_at(self, at: float) -> tuple[frozenset[str], frozenset[str], bool]:
        """The roles and the ids of those who may decide at this time, and whether anybody may."""
        roles, ids, anybody = self.roles, self.ids, not (self.roles or self.ids)
        for step in self.begun(at):
            if step.instead:
                roles, ids, anybody = step.roles, step.ids, False
            else:
                roles, ids = roles | step.roles, ids | step.ids
        return roles, ids, anybody

    def needed_at(self, at: float) -> int:
        needed = self.needed
        for step in self.begun(at):
            needed = step.needed if step.needed is not None else needed
        return needed

    def begun(self, at: float) -> list[Step]:
        return [step for step in sorted(self.steps, key=lambda each: each.after) if step.after <= at]

    def takes(self, people: list[Voter], kind: Kind, at: float, requester: str | None) -> bool:
        """Whether the vote counts here. `people` are the person whose vote it is, and the deputy who casts it, if there is one."""
        roles, ids, anybody = self.people_at(at)
        if (
            kind != "reject"
            and self.not_requester
            and (requester is None or any(each.id == requester for each in people))
        ):
            return False
        whose = people[0]
        return anybody or whose.id in ids or bool(whose.roles & roles)

    def reachable(self) -> bool:
        """Whether enough people can be found, as far as they are named by their ids."""
        last = max([0.0, *(step.after for step in self.steps)])
        roles, ids, anybody = self.people_at(last)
        return anybody or bool(roles) or len(ids) >= self.needed_at(last)


@dataclass(frozen=True)
class Cast:
    """A vote that was kept. The first of the people is the one whose vote it is, and the second a deputy who cast it."""

    people: tuple[Voter, ...]
    kind: Kind
    content: object = None
    listed: bool = False

    @property
    def by(self) -> str | None:
        """The id of who cast it."""
        return self.people[-1].id


@dataclass
class Staff:
    """A directory: the roles of people, and pairs of whom somebody may stand for and their deputy."""

    roles: dict[str, frozenset[str]] = field(default_factory=dict)
    deputies: set[tuple[str, str]] = field(default_factory=set)

    def known(self, voter: Voter) -> Voter:
        """The voter, with the roles that the directory says, if it knows them."""
        return Voter(voter.id, self.roles[voter.id]) if voter.id in self.roles else voter

    def represented(self, id: str | None) -> list[Voter]:
        """Those for whom somebody may stand: both are in the directory."""
        if id not in self.roles:
            return []
        return [
            Voter(who, self.roles[who]) for who, other in sorted(self.deputies) if other == id and who in self.roles
        ]

    def voters(self, voter: Voter) -> list[tuple[Voter, ...]]:
        """As whom somebody may vote: as themselves, then for each whose deputy they are."""
        by = self.known(voter)
        return [(by,), *((each, by) for each in self.represented(by.id))]

    def now(self, vote: Cast) -> tuple[Voter, ...] | None:
        """The people of a vote as they are now; None if it does not count any more."""
        by = vote.people[-1]
        if vote.listed and by.id not in self.roles:
            return None
        if len(vote.people) == 1:
            return (self.known(by),)
        whose = [each for each in self.represented(by.id) if each.id == vote.people[0].id]
        return (whose[0], self.known(by)) if whose else None


@dataclass
class Count:
    """The votes on one request, about one digest."""

    levels: tuple[Level, ...]
    requester: str | None
    answers: frozenset[str] | None = None
    expires: float | None = None
    stays: bool = False
    staff: Staff = field(default_factory=Staff)
    votes: list[Cast] = field(default_factory=list)
    decided: Verdict | None = None
    latest: float = 0.0

    def cast(self, voter: Voter, kind: Kind, at: float, *, content: object = None) -> Verdict:
        """What the next vote comes to."""
        if self.decided is not None:
            return "late"
        if self.answers is not None and kind not in self.answers:
            return "not allowed"
        if self.expires is not None and not self.stays and at >= self.expires:
            return "expired"
        at = max(at, self.latest)
        found = self._of(voter, kind, at, content)
        if isinstance(found, str):
            return found
        self.votes.append(found)
        self.latest = at
        self.decided = self.comes_to(found, at)
        return self.decided or "counted"

    def _of(self, voter: Voter, kind: Kind, at: float, content: object) -> Cast | Verdict:
        """The vote, or why there is none."""
        if voter.id is None:
            return "refused"
        repeated = False
        for people in self.staff.voters(voter):
            if any(level.takes([*people], kind, at, self.requester) for level in self.levels):
                if {each.id for each in people}.isdisjoint(self.used()):
                    return Cast(people, kind, content, voter.id in self.staff.roles)
                repeated = True
        # Refused before whether they have voted: the documentation does not say which of the two it is.
        return "repeated" if repeated else "refused"

    def used(self) -> set[str | None]:
        """The ids of those who have voted, for themselves or for others, and of those who were voted for."""
        return {each.id for vote in self.votes for each in vote.people}

    def comes_to(self, last: Cast, at: float) -> Verdict | None:
        """What the request comes to with the last of the votes."""
        counts = [(level, self._count(level, last, at)) for level in self.levels]
        if last.kind == "reject":
            return "rejected" if any(count >= level.rejections for level, count in counts) else None
        if not all(count >= level.needed_at(at) for level, count in counts):
            return None
        return "approved" if last.kind == "approve" else "responded"

    def _count(self, level: Level, last: Cast, at: float) -> int:
        """How many have said the same, of those who may decide now: whoever was replaced by others counts no longer."""
        same = [vote for vote in self.votes if (vote.kind, vote.content) == (last.kind, last.content)]
        now = [(self.staff.now(vote), vote.kind) for vote in same]
        return sum(people is not None and level.takes([*people], kind, at, self.requester) for people, kind in now)


def asking(*levels: Level) -> tuple[Level, ...]:
    """The levels that are kept: those that say something of people."""
    return tuple(level for level in levels if not level.plain)

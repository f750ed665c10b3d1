"""A plain model of who may approve: written from the documentation alone, to be compared with what counts the votes.

It knows nothing of stores, checkpoints or agents: a request is its levels, and a vote is a person, a kind and a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Kind = Literal["approve", "reject", "respond"]
Verdict = Literal[
    "not allowed", "refused", "repeated", "counted", "approved", "rejected", "responded", "expired", "late", "to check"
]
"""What a vote comes to. `late` is one after the request was decided, `to check` one that a worker asks a function about."""

PREDICATES: Mapping[str, Callable[[str | None, Mapping[str, Any]], bool]] = {
    "is_fay": lambda id, args: id == "fay",
    "is_trusted": lambda id, args: id in ("ann", "dan") and args["amount"] < 100,
    "is_boss": lambda id, args: id in ("eve", "bob"),
    "says_yes": lambda id, args: False,  # it says "yes", which is not True
}
"""The functions of person and request, by name."""


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
    predicates: frozenset[str] = frozenset()
    instead: bool = False
    needed: int | None = None


@dataclass(frozen=True)
class Level:
    """What one of those who ask for an approval requires."""

    roles: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    predicates: frozenset[str] = frozenset()
    needed: int = 1
    rejections: int = 1
    not_requester: bool = False
    steps: tuple[Step, ...] = ()
    standing: Literal["no", "any", "conditions"] = "no"

    @property
    def plain(self) -> bool:
        """Whether nothing is asked of who decides."""
        return replace(self, standing="no") == Level()

    def people_at(self, at: float) -> People:
        """Those who may decide at this time."""
        now = People(self.roles, self.ids, self.predicates, not (self.roles or self.ids or self.predicates))
        for step in self.begun(at):
            if step.instead:
                now = People(step.roles, step.ids, step.predicates)
            else:
                both = (now.roles | step.roles, now.ids | step.ids, now.predicates | step.predicates)
                now = People(*both, now.anybody)
        return now

    def needed_at(self, at: float) -> int:
        needed = self.needed
        for step in self.begun(at):
            needed = step.needed if step.needed is not None else needed
        return needed

    def begun(self, at: float) -> list[Step]:
        return [step for step in sorted(self.steps, key=lambda each: each.after) if step.after <= at]

    def takes(
        self,
        people: Iterable[Voter],
        kind: Kind,
        at: float,
        requester: str | None,
        held: Iterable[str] = (),
        wrote: Collection[str | None] = (),
    ) -> bool:
        """Whether the vote counts here.

        `people` are the person whose vote it is, the deputy who casts it, if there is one, and all for whom who casts it
        may stand. `held` are the functions that have accepted the person.
        """
        whose, *others = people
        if kind != "reject" and self.is_theirs([whose, *others], requester, wrote):
            return False
        now = self.people_at(at)
        return now.name(whose) or not now.predicates.isdisjoint(held)

    def is_theirs(self, people: Iterable[Voter], requester: str | None, wrote: Collection[str | None] = ()) -> bool:
        """True if one of these may not approve: they have asked for the run, or wrote in it, or may have. None is somebody unknown."""
        asked = {requester, *wrote}
        return self.not_requester and (None in asked or any(each.id in asked for each in people))

    def reachable(self) -> bool:
        """Whether enough people can be found, as far as they are named by their ids."""
        last = max([0.0, *(step.after for step in self.steps)])
        now = self.people_at(last)
        return now.anybody or bool(now.roles or now.predicates) or len(now.ids) >= self.needed_at(last)


@dataclass(frozen=True)
class People:
    """Those who may decide at a level, at one time."""

    roles: frozenset[str]
    ids: frozenset[str]
    predicates: frozenset[str]
    anybody: bool = False

    def name(self, voter: Voter) -> bool:
        """Whether they are named, without any function."""
        return self.anybody or voter.id in self.ids or bool(voter.roles & self.roles)


@dataclass(frozen=True)
class Cast:
    """A vote that was kept. The first of the people is the one whose vote it is, and the second a deputy who cast it."""

    people: tuple[Voter, ...]
    kind: Kind
    content: object = None
    listed: bool = False
    held: frozenset[tuple[int, str]] = frozenset()
    """The functions that accepted the person when the vote was cast, with the number of the level. They are asked once."""
    sides: tuple[Voter, ...] = ()
    """All for whom who cast it might stand then."""

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
    args: Mapping[str, Any] = field(default_factory=dict)
    wrote: Collection[str | None] = ()

    def cast(self, voter: Voter, kind: Kind, at: float, *, content: object = None, alone: bool = False) -> Verdict:
        """What the next vote comes to. `alone` is with the store alone, where no function can be asked."""
        if self.decided is not None:
            return "late"
        if self.answers is not None and kind not in self.answers:
            return "not allowed"
        if self.expires is not None and not self.stays and at >= self.expires:
            return "expired"
        at = max(at, self.latest)
        found = self.voice(voter, kind, at, content, asks=not alone)
        if alone and found != "repeated":
            comes_to = None if isinstance(found, str) else replace(self, votes=[*self.votes, found]).comes_to(found, at)
            if comes_to is None and self.is_uncertain(voter, kind, at):
                has_voted = isinstance(found, str) and voter.id in self.used()
                return "repeated" if has_voted else "to check"
        if isinstance(found, str):
            return found
        self.votes.append(found)
        self.latest = at
        self.decided = self.comes_to(found, at)
        return self.decided or "counted"

    def voice(
        self, voter: Voter, kind: Kind, at: float, content: object = None, *, asks: bool = True
    ) -> Cast | Verdict:
        """The vote, or why there is none. With `asks`, the functions are asked about the person."""
        if voter.id is None:
            return "refused"
        repeated = False
        for people in self.staff.voters(voter):
            held = self.holding(people[0], at) if asks else frozenset()
            sides = tuple(self.staff.represented(voter.id))
            found = Cast(people, kind, content, voter.id in self.staff.roles, held, sides)
            if any(self.takes(place, (*people, *sides), found, at) for place in range(len(self.levels))):
                if {each.id for each in people}.isdisjoint(self.used()):
                    return found
                repeated = True
        # Refused before whether they have voted: the documentation does not say which of the two it is.
        return "repeated" if repeated else "refused"

    def holding(self, voter: Voter, at: float) -> frozenset[tuple[int, str]]:
        """The functions that accept the person at this time."""
        levels = enumerate(self.levels)
        asked = [(place, name) for place, level in levels for name in level.people_at(at).predicates]
        return frozenset((place, name) for place, name in asked if PREDICATES[name](voter.id, self.args))

    def is_uncertain(self, voter: Voter, kind: Kind, at: float) -> bool:
        """Whether a function of a level, where they are named in no other way, may accept them."""
        return any(
            (now := level.people_at(at)).predicates
            and not any(now.name(people[0]) for people in self.staff.voters(voter))
            and not (
                kind != "reject"
                and level.is_theirs([voter, *self.staff.represented(voter.id)], self.requester, self.wrote)
            )
            for level in self.levels
        )

    def takes(self, place: int, people: Iterable[Voter], vote: Cast, at: float) -> bool:
        """Whether a vote counts at a level."""
        held = [name for level, name in vote.held if level == place]
        return self.levels[place].takes(people, vote.kind, at, self.requester, held, self.wrote)

    def standing(self) -> list[tuple[Cast, tuple[Voter, ...]]]:
        """The votes that stand, with their people as they are now: of each person the last one."""
        found: list[tuple[Cast, tuple[Voter, ...]]] = []
        seen: set[str | None] = set()
        for vote in reversed(self.votes):
            now = self.staff.now(vote)
            ids = {each.id for each in vote.people}
            if now is not None and seen.isdisjoint(ids):
                found.append((vote, now))
                seen |= ids
        return found

    def used(self) -> set[str | None]:
        """The ids of those who have voted, for themselves or for others, and of those who were voted for."""
        return {each.id for vote, _ in self.standing() for each in vote.people}

    def comes_to(self, last: Cast, at: float) -> Verdict | None:
        """What the request comes to with the last of the votes."""
        counts = [(level, self._count(place, last, at)) for place, level in enumerate(self.levels)]
        if last.kind == "reject":
            return "rejected" if any(count >= level.rejections for level, count in counts) else None
        if not all(count >= level.needed_at(at) for level, count in counts):
            return None
        return "approved" if last.kind == "approve" else "responded"

    def _count(self, place: int, last: Cast, at: float) -> int:
        """How many have said the same, of those who might decide when they voted, and may now."""
        return sum(
            self.takes(place, (*vote.people, *vote.sides), vote, at)
            and self.takes(place, (*now, *self.staff.represented(vote.by)), vote, at)
            for vote, now in self.standing()
            if (vote.kind, vote.content) == (last.kind, last.content)
        )


def asking(*levels: Level) -> tuple[Level, ...]:
    """The levels that are kept: those that say something of people."""
    return tuple(level for level in levels if not level.plain)

"""A plain model of standing grants: written from the documentation alone, beside the model of who may approve.

A grant is what its record says, and a call what is known of it when it is made. The givers are voters, as that model has them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from approver_model import Cast, Count, Level, Staff, Voter, asking

Scope = Literal["run", "thread", "principal", "tenant"]


@dataclass(frozen=True)
class Wanted:
    """A call that an agent wants to make. `request` is whatever tells this request from others."""

    request: object
    agent: str
    tool: str
    args: Mapping[str, Any]
    run: str
    thread: str | None
    requester: str | None
    wrote: Collection[str | None] = ()


@dataclass(eq=False)
class Standing:
    """A grant, as it was given."""

    id: str
    at: float
    scope: Scope
    whose: str | None = None
    agent: str = "desk"
    tool: str = "pay"
    args: Mapping[str, Any] | None = None
    condition: str | None = None
    until: float | None = None
    uses: int | None = None
    givers: list[Voter] = field(default_factory=list)
    listed: set[str | None] = field(default_factory=set)
    used: set[object] = field(default_factory=set)
    count: int = 0
    revoked: bool = False

    def is_over(self, now: float) -> bool:
        return self.until is not None and now >= self.until

    def is_spent(self) -> bool:
        return self.uses is not None and self.count >= self.uses

    def counts(self, now: float) -> bool:
        """Whether calls can use it, as far as it depends on no call."""
        return not (self.revoked or self.is_over(now) or self.is_spent())

    def is_for(self, wanted: Wanted, levels: Sequence[Level]) -> bool:
        """Whether it covers this call."""
        ids = {"run": wanted.run, "thread": wanted.thread, "principal": wanted.requester, "tenant": None}
        return (
            (self.agent, self.tool) == (wanted.agent, wanted.tool)
            and (self.scope == "tenant" or ids[self.scope] == self.whose)
            and self.args in (None, wanted.args)
            and self.condition_holds(wanted, levels)
        )

    def condition_holds(self, wanted: Wanted, levels: Sequence[Level]) -> bool:
        if self.condition is None:
            return True
        is_known = any(level.standing == "conditions" for level in levels)
        # The one named "odd" gives 1, which is not True, and nobody has registered any other.
        return is_known and self.condition == "small" and bool(wanted.args["amount"] < 100)

    def use(self, request: object) -> None:
        """A call has used it: once for each request if its uses are limited, else each time."""
        if self.uses is None or request not in self.used:
            self.count += 1
        if self.uses is not None:
            self.used.add(request)

    def sign(self, giver: Voter, now: float) -> bool:
        """One more gives it, if it still counts and they have not given it before."""
        if not self.counts(now) or any(each.id == giver.id for each in self.givers):
            return False
        self.givers.append(giver)
        return True


@dataclass
class Grants:
    """The grants of a store, and who is known there."""

    staff: Staff
    given: list[Standing] = field(default_factory=list)

    def note(self, grant: Standing, giver: Voter) -> None:
        """Whether a giver is in the directory when they give it: then their part counts as long as they are."""
        if resolved(self.staff, giver).id in self.staff.roles:
            grant.listed.add(giver.id)

    def counting(self, now: float) -> list[Standing]:
        """Those that calls can use, oldest first."""
        return sorted((each for each in self.given if each.counts(now)), key=lambda each: each.at)

    def passing(
        self, wanted: Wanted, levels: Sequence[Level], now: float, waited: float = 0.0
    ) -> list[tuple[Standing, list[Cast]]]:
        """The grant by which a call passes, with the votes of its givers; several if they are equally old, none if people are asked.

        `levels` are all that ask for an approval of the call.
        """
        if any(level.standing == "no" for level in levels):
            return []
        # A request has the use that it had, before it uses another grant.
        mine = [each for each in self.given if wanted.request in each.used]
        kept = [each for each in mine if not (each.revoked or each.is_over(now))]
        others = [each for each in self.counting(now) if each not in mine]
        found: list[tuple[Standing, list[Cast]]] = []
        for each in (*kept, *others):
            votes = self.votes(each, wanted, levels, waited)
            if found and (each.at > found[0][0].at or found[0][0] in kept):
                break
            if each.is_for(wanted, levels) and votes is not None:
                found.append((each, votes))
        return found

    def votes(self, grant: Standing, wanted: Wanted, levels: Sequence[Level], waited: float) -> list[Cast] | None:
        """What the givers count for, as if each of them voted now; None if it is not enough."""
        asks = asking(*levels)
        givers = [each for each in grant.givers if not self.is_removed(grant, each)]
        if not asks:
            return [] if givers else None
        count = Count(asks, wanted.requester, staff=self.staff, args=wanted.args, wrote=wanted.wrote)
        for giver in givers:
            vote = count.voice(resolved(self.staff, giver), "approve", waited)
            if isinstance(vote, Cast):
                count.votes.append(vote)
        enough = bool(count.votes) and count.comes_to(count.votes[-1], waited) == "approved"
        return count.votes if enough else None

    def is_removed(self, grant: Standing, giver: Voter) -> bool:
        """True if the directory knew a giver then, and does not know them any more."""
        return giver.id in grant.listed and resolved(self.staff, giver).id not in self.staff.roles


def resolved(staff: Staff, giver: Voter) -> Voter:
    """Whoever is known to the directory by an alias is that person."""
    id = str(giver.id).removeprefix("slack:")
    return Voter(id, staff.roles[id]) if id in staff.roles else giver

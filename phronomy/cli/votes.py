"""Votes: who may decide a request, who has voted on it, how many votes are missing, and who may decide later.

Roles and people are named by others. What is made here is printed by the screen, which escapes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from phronomy.cli.words import ahead, by_whom, time_of
from phronomy.observability.votes import levels_at, levels_of
from phronomy.records.approvers import Approvers, Escalation, Vote
from phronomy.records.decisions import PendingApproval
from phronomy.records.record import later
from phronomy.rules.votes import governed


def approvers_view(item: PendingApproval, now: float) -> list[dict[str, object]]:
    """The levels of a request as they are now, each with how its votes stand and with who may decide later."""
    at = datetime.fromtimestamp(now, UTC)
    return [
        {
            "of": level.of,
            **_people(level),
            "not_requester": level.not_requester,
            "needed": votes.needed,
            "counted": votes.counted,
            "missing": votes.missing,
            "rejections": votes.rejections,
            "rejected": votes.rejected,
            "escalations": [
                {"at": _from(item, each).isoformat(), **_people(each), "instead": each.instead, "needed": each.needed}
                for each in _ahead(item, asked, at)
            ],
        }
        for level, votes, asked in zip(levels_at(item, at), levels_of(item, at=at), governed(item), strict=True)
    ]


def vote_view(vote: Vote) -> dict[str, object]:
    """A vote: who cast it, when and how."""
    return {
        "kind": vote.kind,
        "by": vote.by.id,
        "behalf_of": vote.behalf_of.id if vote.behalf_of is not None else None,
        "at": vote.at.astimezone(UTC).isoformat(),
        "channel": vote.channel,
        "reason": vote.reason,
    }


def _people(named: Approvers | Escalation) -> dict[str, object]:
    return {"roles": [*named.roles], "ids": [*named.ids], "predicates": [*named.predicates]}


def rows_of(item: PendingApproval, now: float) -> Iterator[tuple[str, str]]:
    """What people are told of the approvers and the votes of a request: texts, each with its label."""
    at = datetime.fromtimestamp(now, UTC)
    for level, asked in zip(levels_at(item, at), governed(item), strict=True):
        of = f" ({level.of})" if level.of else ""
        but = ", but not the requester" if level.not_requester else ""
        against = f"; {level.rejections} to reject" if level.rejections > 1 else ""
        yield "needs", f"{level.needed} of {who(level)}{but}{against}{of}"
        for each in _ahead(item, asked, at):
            added = "" if each.instead else "also "
            needed = f"; it takes {each.needed} then" if each.needed is not None else ""
            yield "later", f"from {time_of(_from(item, each))}: {added}{who(each)}{needed}{of}"
    for vote in item.votes:
        yield "vote", told(vote)
    if item.votes:
        yield "missing", missing(item, now)


def told(vote: Vote) -> str:
    """A vote in words."""
    channel = f" ({vote.channel})" if vote.channel else ""
    reason = f": {vote.reason}" if vote.reason else ""
    return f"{vote.kind} by {by_whom(vote)}{channel}, {time_of(vote.at)}{reason}"


def missing(item: PendingApproval, now: float) -> str:
    """How many have yet to approve, of those that it takes."""
    levels = levels_of(item, at=datetime.fromtimestamp(now, UTC))
    return "; ".join(f"{each.missing} of {each.needed}" + (f" ({each.of})" if each.of else "") for each in levels)


def who(named: Approvers | Escalation) -> str:
    """Those who may approve: roles, people by their ids, and those whom a function accepts."""
    people = [*named.roles, *named.ids, *(f"whoever {name} accepts" for name in named.predicates)]
    return " or ".join(people) or "anybody who says who they are"


def cells(item: PendingApproval, now: float) -> tuple[str, str, str]:
    """The cells of a table: who may decide, how many have voted of those it takes, and when others may as well."""
    at = datetime.fromtimestamp(now, UTC)
    levels = levels_at(item, at)
    votes = [f"{each.counted} of {each.needed}" for each in levels_of(item, at=at)]
    times = [_from(item, each) for level in governed(item) for each in _ahead(item, level, at)]
    soon = ahead(min(times).timestamp() - now) if times else "-"
    return "; ".join(map(who, levels)) or "-", "; ".join(votes) or "-", soon


def last_of(item: PendingApproval, before: Sequence[Vote]) -> Vote | None:
    """The vote that was cast on a request since it had these; None if none was."""
    return item.votes[-1] if len(item.votes) > len(before) else None


def _ahead(item: PendingApproval, level: Approvers, at: datetime) -> list[Escalation]:
    """The escalations of a level that are yet to come."""
    return sorted((each for each in level.escalations if _from(item, each) > at), key=lambda each: each.after)


def _from(item: PendingApproval, each: Escalation) -> datetime:
    return later(item.requested_at.astimezone(UTC), seconds=each.after)

"""Whose turn it is: the people who are named at a level that counts now and is not met, may approve, and have not voted.

They are found in the directory of the store, as they are when a message is sent. Whom a function of the code would accept is known to
nobody before they try, so such people are told of nothing. Neither is somebody who may not approve, as the requester may be.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from phronomy.chat.channel import Channel, Mention, ReachesPeople
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted_id
from phronomy.foundation.suspicious_letters import escaped
from phronomy.people import StoreDirectory
from phronomy.rules.votes import governed, in_force, is_open, names, voting_time
from phronomy.stores.derived.people import person_of, represented_by
from phronomy.stores.derived.standing import standing_of, tallies_of

if TYPE_CHECKING:
    from phronomy.records.approvers import Approvers
    from phronomy.records.decisions import PendingApproval
    from phronomy.records.people import Person
    from phronomy.stores.base import Store

_log = logging.getLogger("phronomy")

MOST: Final = 20
"""The people who are told of one request at most, in the order of their ids."""
_NAME: Final = 40
"""Characters of a name in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The people whose turn it is; `more` are named too, and beyond the number that is told. `asks` says whether anybody is named."""

    people: tuple[Person, ...] = ()
    more: int = 0
    asks: bool = False


def turn_of(store: Store, item: PendingApproval) -> Turn:
    """Whose turn it is on a request. Raises `StoreError`."""
    levels = _unmet(store, item)
    if not levels:
        return Turn()
    directory = StoreDirectory(store)
    listed = directory.list()
    for error in listed.unreadable:
        _log.warning("%s", error)
    named = {each.id for each in listed if _is_named(levels, each)}
    named |= {each.deputy for each in directory.deputies() if each.principal in named}
    wanted = [each for each in listed if each.id in named and each.kind == "human"]
    found: list[Person] = []
    told = 0
    for place, person in enumerate(wanted):
        if told == MOST:
            return Turn(people=tuple(found), more=len(wanted) - place, asks=True)
        may, voted = _may(store, item, person)
        told += may or voted
        found += [person] if may else []
    return Turn(people=tuple(found), asks=True)


def is_turn_of(store: Store, item: PendingApproval, id: str) -> bool:
    """True if it is the turn of the person with this id, however many others there are. Raises `StoreError`."""
    person = person_of(store, id)
    if person is None:
        return False
    sides = [person, *(found for each in represented_by(store, id) if (found := person_of(store, each.principal)))]
    levels = _unmet(store, item)
    return any(_is_named(levels, each) for each in sides) and _may(store, item, person)[0]


def mentions_in(channel: Channel, people: Iterable[Person]) -> tuple[Mention, ...]:
    """The mentions of these people that a channel can make, by their aliases there."""
    if not isinstance(channel, ReachesPeople):
        return ()
    found: list[Mention] = []
    for person in people:
        ids = [id for each in _aliases(person, channel.name) if (id := channel.mention_of(each)) is not None]
        if ids:
            found.append(Mention(id=ids[0], name=escaped((person.name or person.id)[:_NAME])[:_NAME]))
    return tuple(found)


def place_of(channels: Mapping[str, Channel], person: Person) -> str | None:
    """The place where a person is told alone: by the first of their aliases that one of the channels can write to."""
    for alias in person.aliases:
        channel = channels.get(alias.partition(":")[0])
        if isinstance(channel, ReachesPeople) and (to := channel.place_of(alias)) is not None:
            return f"{channel.name}:{to}"
    return None


def no_place_of(channels: Mapping[str, Channel], person: Person) -> str:
    """Why a person cannot be told of anything."""
    reach = [name for name, each in sorted(channels.items()) if isinstance(each, ReachesPeople)]
    if not reach:
        return "no channel here can write to a person"
    return f"{quoted_id(person.id)} has no alias of {' or '.join(reach)} that can be written to"


def _aliases(person: Person, channel: str) -> list[str]:
    return [each for each in person.aliases if each.partition(":")[0] == channel]


def _unmet(store: Store, item: PendingApproval) -> list[Approvers]:
    """The levels that count now, name people, and wait for more of them."""
    at = voting_time(datetime.fromtimestamp(store.clock(), UTC), item.requested_at, item.votes)
    tally = tallies_of(store, item)
    now = (in_force(level, item.requested_at, at) for level in governed(item))
    return [level for level, each in zip(now, tally, strict=True) if each.counted < each.needed and not is_open(level)]


def _is_named(levels: Sequence[Approvers], person: Person) -> bool:
    return any(names(level, person.principal) for level in levels)


def _may(store: Store, item: PendingApproval, person: Person) -> tuple[bool, bool]:
    """Two answers: the person may approve now; the person has voted already."""
    standing = standing_of(store, item, person.principal)
    return not {"approve", "respond"}.isdisjoint(standing.answers), standing.why_not == "voted"

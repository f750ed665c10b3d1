"""What a store knows of people: the person with an id, and those whom somebody may stand for at this moment.

The directory that writes this is in another room, above the stores. A store that keeps no documents knows nobody.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, overload

from phronomy.errors import UnknownPerson, UnreadableRow
from phronomy.foundation.quoting import kept_id, quoted_id
from phronomy.records.approvers import authors_of
from phronomy.records.chain import with_known
from phronomy.records.principals import Principal
from phronomy.stores.derived.documents import documents_under
from phronomy.stores.derived.listing import read_each
from phronomy.stores.documents import NoDocuments

if TYPE_CHECKING:
    from phronomy.records.checkpoint import Checkpoint
    from phronomy.records.people import Deputy, Person
    from phronomy.stores.base import Store

# The records of people load where a name is looked up: most runs ask for none.

_log = logging.getLogger("phronomy")

_PAGE: Final = 20
"""Rows that are read at once. Most deputies stand for one or two people, and the rest of a page is of others."""


def person_of(store: Store, id: str) -> Person | None:
    """The person with this id; None if there is none. Raises `StoreError` if the row cannot be read."""
    from phronomy.records.people import PERSON, read_person  # noqa: PLC0415

    try:
        found = store.get_document(PERSON, id)
    except NoDocuments:
        return None
    return None if found is None else read_person(found.key, found.text)


def person_known_as(store: Store, id: str) -> Person | None:
    """The person with this id, or whom a channel knows by it; None if there is none. Raises `StoreError` for a damaged row."""
    from phronomy.records.people import ALIAS  # noqa: PLC0415

    if (person := person_of(store, id)) is not None:
        return person
    try:
        found = store.get_document(ALIAS, id)
    except NoDocuments:
        return None
    person = person_of(store, found.text) if found is not None else None
    # Both must agree, as for the directory: an alias that somebody has left behind leads to nobody.
    return person if person is not None and id in person.aliases else None


def as_known(store: Store, principal: Principal) -> Principal | None:
    """The principal as the directory knows them now, with their roles there; as they say themselves if it never knew them.

    None for somebody whom it knew and knows no longer: they have been removed, and nobody's word brings them back. Where a record
    says which person had the alias then, it is that person still. Raises `StoreError`.
    """
    pinned = principal.person
    person = person_known_as(store, principal.id) if pinned is None else person_of(store, pinned)
    if person is None:
        return None if principal.listed or pinned is not None else principal
    # Also by an alias: somebody who comes through a second channel, under another id, is the same person.
    known = {"id": person.id, "name": person.name or principal.name, "kind": person.kind, "roles": person.roles}
    return principal.evolve(**known, listed=True, person=None)


def as_recorded(principal: Principal, listed: bool) -> Principal:
    """Somebody whom a record names, for `as_known`: if the directory knew them, the person of then, and nobody of that alias now."""
    listed = listed or principal.listed
    person = principal.person or (principal.id if listed else None)
    return principal.evolve(listed=listed, person=person)


def as_found(store: Store, principal: Principal) -> Principal | None:
    """As `as_known`, and None too for somebody whose row cannot be read: they are nobody, and the log of the process names the row.

    Raises `StoreError` if the store cannot be read at all.
    """
    try:
        return as_known(store, principal)
    except UnreadableRow as error:
        _log.warning("%s", error)
        return None


def writers_of(store: Store, checkpoint: Checkpoint) -> set[str | None]:
    """The ids of those who have asked for the runs of a conversation up to here; None among them for somebody of whom nobody knows.

    Nobody knows of somebody whose row cannot be read, either. Raises `StoreError`.
    """
    asked = checkpoint.requester
    known = with_known(checkpoint.known, None, asked)
    ids = authors_of([asked.id if asked is not None else "", *checkpoint.requesters], known)
    return {_writer(store, id) if id else None for id in ids}


def _writer(store: Store, id: str) -> str | None:
    """The id of the person who is known by this one; the id itself if nobody is, and None if that cannot be read."""
    try:
        person = person_known_as(store, id)
    except UnreadableRow:
        return None
    return person.id if person is not None else id


@overload
def as_met(store: Store, principal: Principal) -> Principal: ...
@overload
def as_met(store: Store, principal: Principal | None) -> Principal | None: ...
def as_met(store: Store, principal: Principal | None) -> Principal | None:
    """The principal with the person whom the directory knows by this alias now, for a record: later, it may be somebody else's.

    Raises `StoreError`.
    """
    if principal is None:
        return None
    person = None
    # Of somebody whose row cannot be read, the record says as much as if nobody was known: the alias is looked up where it counts.
    with suppress(UnreadableRow):
        person = person_known_as(store, principal.id)
    found = person.id if person is not None and person.id != principal.id else None
    return principal if principal.person == found else principal.evolve(person=found)


def admit(store: Store, principal: Principal | None) -> Principal | None:
    """Refuse somebody who was removed, as `check_known`, and return the principal for a record, as `as_met`."""
    check_known(store, principal)
    return as_met(store, principal)


def check_known(store: Store, principal: Principal | None) -> None:
    """Refuse somebody who was removed from the directory since it was asked for them. Raises `UnknownPerson`, `StoreError`."""
    # Of others nothing is read: who they are is their caller's word, or is looked up where it counts.
    if principal is not None and principal.listed and as_known(store, principal) is None:
        raise UnknownPerson(
            f"{quoted_id(principal.id)} was removed from the directory: nothing was done in their name",
            id=kept_id(principal.id),
        )


def represented_by(store: Store, deputy_id: str) -> tuple[Deputy, ...]:
    """Those whom the person with this id may stand for now, by the store's clock, in the order of their ids.

    A deputy is not passed on: of two people, one must have named the other. Both must be in the directory, so nobody
    stands for somebody who was removed, and whoever was removed stands for nobody. Nor does anybody by a row that cannot
    be read, or for a person whose row cannot be. Raises `UnreadableRow` if that of the deputy cannot.
    """
    from phronomy.records.people import DEPUTY, deputy_prefix, read_deputy  # noqa: PLC0415

    if (person := person_of(store, deputy_id)) is None:
        return ()
    now = store.clock()
    rows = documents_under(store, DEPUTY, deputy_prefix(person.id), batch=_PAGE)
    found, _ = read_each(rows, lambda row: read_deputy(row.key, row.text))
    # The store does not find a row whose time is over. One that has lost its time, in a copy say, still has it in its text.
    live = [each for each in found if each.until is None or each.until.timestamp() > now]
    known = [each for each in live if _is_known(store, each.principal)]
    return tuple(sorted(known, key=lambda each: each.principal))


def _is_known(store: Store, id: str) -> bool:
    """True if there is a person with this id. A person whose row cannot be read counts as none."""
    try:
        return person_of(store, id) is not None
    except UnreadableRow:
        return False

"""What a store knows of people: the person with an id, and those whom somebody may stand for at this moment.

The directory that writes this is in another room, above the stores. A store that keeps no documents knows nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from phronomy.records.principals import Principal
from phronomy.stores.derived.documents import documents_under
from phronomy.stores.documents import NoDocuments

if TYPE_CHECKING:
    from phronomy.records.people import Deputy, Person
    from phronomy.stores.base import Store

# The records of people load where a name is looked up: most runs ask for none.

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


def as_listed(store: Store, principal: Principal) -> tuple[Principal, bool]:
    """The principal as the directory knows them, with their roles there, and whether it does. Raises `StoreError`."""
    person = person_known_as(store, principal.id)
    if person is None:
        return principal, False
    # Also by an alias: somebody who comes through a second channel, under another id, is the same person.
    known = {"id": person.id, "name": person.name or principal.name, "kind": person.kind, "roles": person.roles}
    return principal.evolve(**known), True


def represented_by(store: Store, deputy_id: str) -> tuple[Deputy, ...]:
    """Those whom the person with this id may stand for now, by the store's clock, in the order of their ids.

    A deputy is not passed on: of two people, one must have named the other. Both must be in the directory, so nobody
    stands for somebody who was removed, and whoever was removed stands for nobody. Raises `StoreError` if a row cannot
    be read.
    """
    from phronomy.records.people import DEPUTY, deputy_prefix, read_deputy  # noqa: PLC0415

    if (person := person_of(store, deputy_id)) is None:
        return ()
    now = store.clock()
    rows = documents_under(store, DEPUTY, deputy_prefix(person.id), batch=_PAGE)
    found = [read_deputy(row.key, row.text) for row in rows]
    # The store does not find a row whose time is over. One that has lost its time, in a copy say, still has it in its text.
    live = [each for each in found if each.until is None or each.until.timestamp() > now]
    known = [each for each in live if person_of(store, each.principal) is not None]
    return tuple(sorted(known, key=lambda each: each.principal))

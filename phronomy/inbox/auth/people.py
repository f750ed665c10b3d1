"""Who somebody is at this moment: what the directory of the store says of the principal that a session or a token was made for.

A store decides by the same rule who may vote. The inbox looks, so that its pages and scopes do not go by roles that were taken away.

Whoever was removed must not come back with the roles of an old login. So a session or a token keeps in mind that its person was found
listed, when it was made or at any use since, and from then on it counts only while they are, and while no other person has their alias.
"""

from __future__ import annotations

from typing import Final

from phronomy.records.principals import Principal
from phronomy.stores.base import Store
from phronomy.stores.derived.people import as_found
from phronomy.stores.native import apart

TRIES: Final = 5
"""So often a session or a token is read anew because another request has changed it in between. Each makes a note but once a while."""


async def look_up(store: Store, tenant: str | None, principal: Principal) -> Principal | None:
    """The principal as the tenant's directory has them; None for somebody whom it knew, and knows no longer.

    None too for somebody whose row cannot be read; the log names it. Raises `StoreError`.
    """
    of = store_of(store, tenant)
    return await apart(of, as_found, of, principal)


def was_listed(found: Principal | None) -> bool:
    """True if a principal who was looked up is, or was, in the directory: from then on they count only while they are."""
    return found is None or found.listed


def with_person(principal: Principal, found: Principal | None) -> Principal:
    """The principal of a login for its row, with the person as whom the directory was found to know them."""
    return principal.evolve(person=found.id) if found is not None and found.listed else principal.evolve(person=None)


def as_before(principal: Principal, found: Principal | None) -> Principal | None:
    """Who was looked up for the principal of a row; None if the row is from when somebody else was known by that id."""
    return None if found is not None and principal.person not in (None, found.id) else found


def store_of(store: Store, tenant: str | None) -> Store:
    """The store of a tenant; None: the store itself."""
    return store if tenant is None or tenant == store.tenant else store.for_tenant(tenant)

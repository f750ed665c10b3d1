"""Who somebody is at this moment: what the directory of the store says of the principal that a session or a token was made for.

A store decides by the same rule who may vote. The inbox looks, so that its pages and scopes do not go by roles that were taken away.

Whoever was removed must not come back with the roles of an old login. So a session or a token keeps in mind that its person was found
listed, when it was made or at any use since, and from then on it counts only while they are.
"""

from __future__ import annotations

from typing import Final

from phronomy.records.principals import Principal
from phronomy.stores.base import Store
from phronomy.stores.derived.people import as_listed
from phronomy.stores.native import apart

TRIES: Final = 5
"""So often a session or a token is read anew because another request has changed it in between. Each makes a note but once a while."""


async def look_up(store: Store, tenant: str | None, principal: Principal) -> tuple[Principal, bool]:
    """The principal as the tenant's directory has them, and whether it does. Raises `StoreError`."""
    of = store_of(store, tenant)
    return await apart(of, as_listed, of, principal)


def store_of(store: Store, tenant: str | None) -> Store:
    """The store of a tenant; None: the store itself."""
    return store if tenant is None or tenant == store.tenant else store.for_tenant(tenant)

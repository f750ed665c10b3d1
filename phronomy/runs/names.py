"""The names by which a store knows whose runs are whose."""

from __future__ import annotations

import logging

from phronomy.stores.base import Store
from phronomy.stores.memory import MemoryStore

_log = logging.getLogger("phronomy")


def note_unnamed(what: str, name: str, store: object) -> None:
    """Warn, once for each store and name, of an agent or a team without a name whose store outlives this process."""
    # Others over the same store have the same name if they were given none either: each then takes up the runs of all.
    if not isinstance(store, Store) or isinstance(store, MemoryStore) or name in store.unnamed:
        return
    store.unnamed.add(name)
    _log.warning(
        "%s without a name: in the %s it is %r, as any other without a name is. Workers and recover_all find runs by the name, so"
        " they take up those of all of them: give it a name=",
        what,
        type(store).__name__,
        name,
    )

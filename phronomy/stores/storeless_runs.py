"""Where the runs of agents without a store are, in this process: so that a decision counts once, whichever agent is handed it.

Such an agent keeps its runs in a memory store of its own, and is often made for one request. What it gave away, a checkpoint to be
resumed, may come back to another one, twice even. Then the run goes on where it is, if it is in this process.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from phronomy.stores.memory import MemoryStore

# A bound, since each entry keeps a whole store alive: a service that makes an agent for each request would otherwise
# keep every run it ever saw.
MOST: Final = 1000
"""How many runs are known, those that were written to last. One more, and the first is forgotten."""


class Homes:
    """The stores of runs that have stopped, by run id."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._stores: OrderedDict[str, MemoryStore] = OrderedDict()
        self._lock = threading.Lock()
        # A lock that another thread holds at the fork stays locked in the child for ever. The entries are kept: the
        # child has a copy of each of those stores.
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # it may have been held by a thread that the child does not have

    def note(self, run_id: str, store: MemoryStore) -> None:
        """The run is in this store."""
        with self._lock:
            self._stores[run_id] = store
            self._used(run_id)

    def of(self, run_id: str, otherwise: MemoryStore) -> MemoryStore:
        """The store that the run is in. If none is known, it is this one from now on."""
        with self._lock:
            # One step under the lock: two agents that are brought the same foreign checkpoint at once must agree on one
            # store, or the decision would count in each.
            store = self._stores.setdefault(run_id, otherwise)
            self._used(run_id)
            return store

    def _used(self, run_id: str) -> None:
        self._stores.move_to_end(run_id)
        # The run longest untouched goes. It is not lost: its checkpoint is then accepted as one from outside, with the
        # text as the authority.
        while len(self._stores) > self._most:
            self._stores.popitem(last=False)

    def forget(self) -> None:
        """Know of nothing, as another process does."""
        with self._lock:
            self._stores.clear()


HOMES: Final = Homes()

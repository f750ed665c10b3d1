"""`on_loop`: the primitives of a store for an event loop, the store's own where it has some."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from phronomy.stores.base import AsyncPrimitives, Store
from phronomy.stores.rows import Append, Branch, BranchStatus, Claim, Lineage

P = ParamSpec("P")
T = TypeVar("T")

_PRIMITIVES: Final = ("append", "release", "lineage")


class InThreads:
    """The primitives of a store that has none of its own for an event loop: each is called in a thread, if it may block."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def append(self, change: Append) -> Branch:
        return await self._do(self._store.append, change)

    async def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        await self._do(self._store.release, claim, status)

    async def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        return await self._do(self._store.lineage, checkpoint_id=checkpoint_id, branch_id=branch_id)

    async def _do(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._store.blocking:
            return method(*args, **kwargs)
        return await asyncio.to_thread(method, *args, **kwargs)


def on_loop(store: Store) -> AsyncPrimitives:
    """The primitives of a store for the event loop that runs."""
    native = store.native if _is_whole(store) else None
    return native or InThreads(store)


def _is_whole(store: Store) -> bool:
    """Whether nobody has put a primitive of theirs before that of the class whose native ones these are: it is not to be passed by."""
    if not vars(store).keys().isdisjoint(_PRIMITIVES):
        return False
    kinds = type(store).__mro__
    first = {name: next(kind for kind in kinds if name in vars(kind)) for name in ("native", *_PRIMITIVES)}
    return all(issubclass(first["native"], first[name]) for name in _PRIMITIVES)

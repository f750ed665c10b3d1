"""A store in an event loop: `on_loop`, its primitives, its own where it has some, and `asked`, what a sync read gives there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context
from functools import lru_cache
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, Protocol, TypeVar

from phronomy.concurrency.workers import whole
from phronomy.foundation.lazy_modules import asyncio

if TYPE_CHECKING:
    from phronomy.stores.base import AsyncPrimitives, Store
    from phronomy.stores.rows import Append, Branch, BranchStatus, Claim, Lineage

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Store")

_FOR_TASK: Final[ContextVar[bool]] = ContextVar("phronomy_for_task", default=False)

_AT_ONCE: Final[ContextVar[bool]] = ContextVar("phronomy_at_once", default=False)

_PRIMITIVES: Final = ("create", "append", "release", "lineage")

_READS: Final = (
    "lineage",
    "select_branches",
    "select_pending",
    "count_pending",
    "select_checkpoints",
    "select_audit",
    "child_ids",
    "kept_text",
    "get_document",
    "select_documents",
)


class TakesTime(BaseException):
    """What was asked for at once would wait for somebody, or gives much, or writes: it is done in a thread, from its beginning.

    A `BaseException`, since it crosses code that handles the faults of stores.
    """


class Blocks(Protocol):
    """A store, or a part of one, that says whether its calls block."""

    blocking: bool


class InThreads:
    """The primitives of a store that has none of its own for an event loop: each is called in a thread, if it may block."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        """As `Store.create`."""
        await apart(self._store, self._store.create, branch, change, exclusive=exclusive)

    async def append(self, change: Append) -> Branch:
        """As `Store.append`."""
        return await apart(self._store, self._store.append, change)

    async def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        """As `Store.release`."""
        await apart(self._store, self._store.release, claim, status)

    async def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        """As `Store.lineage`."""
        return await apart(self._store, self._store.lineage, checkpoint_id=checkpoint_id, branch_id=branch_id)


async def apart(store: Blocks, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a method of the store: in a thread, if it may block."""
    # A memory store is called in the loop itself: a hop to a thread and back costs more than the call, and would let
    # other tasks in between.
    if not store.blocking:
        return method(*args, **kwargs)
    return await asyncio.to_thread(method, *args, **kwargs)


async def in_store(store: Blocks, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """A store's method from async code: in a thread if it may block, and never cut off half way by a cancellation."""
    if not store.blocking:
        return method(*args, **kwargs)
    before = _FOR_TASK.set(True)
    try:
        context = copy_context()
    finally:
        _FOR_TASK.reset(before)
    # As `asyncio.to_thread` does it, and at once: of a coroutine that had not begun when its loop was closed, Python would warn.
    work = asyncio.get_running_loop().run_in_executor(None, lambda: context.run(method, *args, **kwargs))
    # A thread cannot be cancelled. If the task ended while it works, the claim or the branch that it makes would be
    # nobody's: so the cancellation waits until the outcome is known.
    return await whole(work)


async def reading(store: Store, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `in_store`, for a method that reads, and changes nothing before: without a thread where its reads take no time."""
    # A hop to a thread and back costs more than all that is read, and with many runs in a loop the threads wait for each other.
    if store.reads_at_once and stands_for(store, "reads_at_once", _READS):
        before = _AT_ONCE.set(True)
        try:
            return method(*args, **kwargs)
        except TakesTime:
            pass
        finally:
            _AT_ONCE.reset(before)
    return await in_store(store, method, *args, **kwargs)


def is_at_once() -> bool:
    """Whether this thread runs an event loop, and calls a store for something that is not to take time: if so, raise `TakesTime`."""
    return _AT_ONCE.get()


def is_for_task() -> bool:
    """Whether this thread calls a store for a task, beside which others may write at the same time."""
    return _FOR_TASK.get()


def on_loop(store: Store) -> AsyncPrimitives:
    """The primitives of a store for the event loop that runs."""
    return _native(store) or InThreads(store)


async def asked(
    store: S,
    read: Callable[Concatenate[S, P], T],
    native: Callable[Concatenate[S, P], Awaitable[T]] | None,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a method that reads, without blocking the event loop.

    With `native`, which does the same by `on_loop`, no thread is needed where the store has primitives of its own for the loop. A
    subclass that has written the method anew is heard: that is called.
    """
    # A wrapper that counts, delays or faults reads overrides the sync method, or puts one on the object. To go round it
    # by the native way would make the async twin read something else than the sync one.
    mine = getattr(store, read.__name__)
    if native is not None and getattr(mine, "__func__", None) is read and _native(store) is not None:
        return await native(store, *args, **kwargs)
    found: T = await apart(store, mine, *args, **kwargs)
    return found


def _native(store: Store) -> AsyncPrimitives | None:
    """The store's own primitives for the event loop that runs, unless somebody has put one before them: that is not to be passed by."""
    return store.native if stands_for(store, "native", _PRIMITIVES) else None


def stands_for(store: Store, shortcut: str, primitives: tuple[str, ...]) -> bool:
    """Whether the store has a shortcut, and nobody has put a primitive before it that is not to be passed by."""
    # A test, or a tracing tool, has set a primitive on this one object: it must see every call.
    return vars(store).keys().isdisjoint(primitives) and _is_of_class(type(store), shortcut, primitives)


@lru_cache(maxsize=256)  # each write and each read of a run asks
def _is_of_class(kind: type, shortcut: str, primitives: tuple[str, ...]) -> bool:
    """Whether the class that says the shortcut has each primitive as the class of the store has it."""
    # A subclass that overrides `append` alone has changed how writes are made, and the inherited shortcut knows nothing of it.
    own = next((each for each in kind.__mro__ if shortcut in vars(each)), None)
    return own is not None and all(getattr(kind, name) is getattr(own, name, None) for name in primitives)

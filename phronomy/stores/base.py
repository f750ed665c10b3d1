"""The store protocol: what a store keeps, and the few primitives that it implements.

A store keeps **branches** and, for each, an append-only **log**. An entry of the log is either a row (a checkpoint, written as its
difference from its parent) or a journal entry (one thing that happened after that checkpoint).

Every change goes through `append`, which is a **compare-and-set** on the length of the log. A writer says which entry it saw last. If
the log has grown since, nothing is written, and the writer reads the new entries and decides again. So of two people who decide the
same request, one wins, and the other is told.

A worker that drives a run holds a **claim** on its branch: an owner, a fence and a lease.

- The **lease** is a time. Until then nobody else may take the branch. The worker's store renews it, so it runs out only if the worker
  is dead or cut off. Then another worker may take the branch over; until one does, the first may still write.
- The **fence** is a number that grows with each take-over. Every write names it, and a write with an old one is refused. A worker that
  was frozen for an hour and wakes up in the middle of a write can therefore change nothing.

A crash leaves one of two things: a change that is there as a whole, or none of it. Nothing is cleaned up when a store is opened.

Everything else (loading checkpoints, history, the latest of a thread) is built here once, from rows.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from typing_extensions import Unpack

from phronomy.errors import StoreError
from phronomy.foundation.checks import is_timeout
from phronomy.foundation.quoting import quoted
from phronomy.foundation.spelling import check_options
from phronomy.records.audit import AuditRecord
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.diff import CheckpointDiff, diff
from phronomy.records.validation import checked
from phronomy.stores.derived import adoption, changes, forking, listing, retention
from phronomy.stores.derived.listing import CheckpointInfo, Kept, Page, Told, Waiting, Wanted, text, texts
from phronomy.stores.lease_keeper import Keeper
from phronomy.stores.log.log import last_of
from phronomy.stores.native import asked
from phronomy.stores.rows import (
    Append,
    AuditFilter,
    AuditRow,
    Branch,
    BranchFilter,
    BranchStatus,
    CheckpointFilter,
    CheckpointRow,
    Claim,
    Entry,
    Lineage,
    PendingFilter,
    PendingRow,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class AsyncPrimitives(Protocol):
    """The primitives that a run in an event loop calls at each step. Each does the same as the store's primitive of that name.

    A cancellation may stop `append` and `release` before anything is written, and not afterwards. The engine holds it back anyway.
    """

    # These three and no more: they are what a run does at every step, with many runs in one loop. All else happens once
    # in a run, and a thread does for it.
    async def append(self, change: Append) -> Branch:
        """As `Store.append`."""
        ...

    async def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        """As `Store.release`."""
        ...

    async def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        """As `Store.lineage`."""
        ...


class Store(ABC):
    """Where checkpoints are kept. Implement the abstract methods; each is atomic and safe to call from any thread.

    A store object belongs to one `tenant`: it sees and touches nothing of another's, even under equal ids; `for_tenant` gives
    that of another on the same connections. `clock` gives seconds since the epoch and is what leases, expiry and age are judged
    by. `lease` is how long, in seconds, a claim lasts without being renewed. `ttl` is after how many seconds `recover` takes away
    a run that has ended (None: never). `blocking` says whether a call may take long enough that the async driver should make it
    in a thread.
    """

    blocking: bool = True

    def __init__(
        self,
        *,
        tenant: str = "",
        clock: Callable[[], float] = time.time,
        lease: float = 30.0,
        ttl: float | None = None,
    ) -> None:
        if lease is None or not is_timeout(lease):
            raise StoreError(f"the lease is a number of seconds above 0, not {quoted(lease)}")
        if not is_timeout(ttl):
            raise StoreError(f"ttl is a number of seconds above 0, or None, not {quoted(ttl)}")
        if not callable(clock):
            raise StoreError(
                f"the clock is called for seconds since the epoch, as time.time is; {quoted(clock)} cannot be"
            )
        # Printable and short, since the name goes into keys, into a column of each row and, with row-level security,
        # is the name of a database role.
        self.tenant: str = checked_tenant(tenant)
        # The store's own clock, not the database's: a test moves it by hand, and a lease is then judged by the same
        # clock that set it. Workers on several machines must agree well within a lease; `docs/guarantees.md` says what
        # a frozen or wrong clock costs.
        self.clock = clock
        self.lease = lease
        self.ttl = ttl
        # One for each store. It starts no thread before a run begins.
        self.keeper: Keeper = Keeper(lease)

    # Primitives
    #
    # A new store implements these and has everything else. Each is one atomic step, because a step that another writer
    # can come into the middle of cannot be repaired from above: nothing up here has a transaction.

    @abstractmethod
    def for_tenant(self, tenant: str) -> Self:
        """The store of another tenant, on the same connections: closing either closes both. Raises `StoreError` for a bad name."""

    @abstractmethod
    # The look at the thread and the write are one step. Apart, two requests of one conversation would both find it
    # free, and both would answer.
    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        """Add a branch with the first entries of its log, held by `change.take` if that is given.

        With `exclusive`, raises `Occupied` if its thread has a branch whose status is in `OPEN`, and `Behind` if the thread's
        latest end is another branch than its parent. Raises `StoreError` if a branch or a checkpoint of that id is there already,
        `CheckpointNotFound` if its parent is not there.
        """

    @abstractmethod
    def append(self, change: Append) -> Branch:
        """Write `change` in one transaction and return the branch as it then stands.

        Raises `LeaseLost` if `change.claim` is no longer the branch's owner and fence; `Behind` if `change.seq` is not the
        branch's; `Held` if a claim is to be taken and another's has not expired; `CheckpointNotFound` if there is no such branch;
        `StoreError` if a checkpoint or a pending id is there already, or for a change without the right to it. Entries get the
        numbers that follow `seq`.
        """

    @abstractmethod
    # Not an append: it adds no entry, so the log's length, which every other writer compares, does not move under them
    # three times in each lease.
    def renew(self, claim: Claim) -> Branch:
        """Make the lease last `self.lease` seconds from now, even if it had expired. Raises `LeaseLost` if the claim is gone."""

    @abstractmethod
    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        """Give up the claim, if it is still held, and set the status. Never raises `LeaseLost`."""

    @abstractmethod
    # Beside the log, for the same reason: telling the world about an entry is no entry. A crash between telling and
    # this tells it once more, never once too little.
    def announced(self, branch_id: str, seq: int) -> None:
        """Note that everything up to entry `seq` of a branch has been announced; a number below the one noted changes nothing.

        Raises `CheckpointNotFound` if there is no such branch.
        """

    @abstractmethod
    # Branches that go on from what is removed are rewritten in the same step. Between two steps a crash would leave
    # rows that say what is new since a row that is gone.
    def remove(self, branches: Mapping[str, int], detached: Mapping[str, Sequence[Entry]]) -> None:
        """Take branches away as a whole, with their logs and what is pending in them: their ids, each with its last entry's number.

        `detached` are the branches that go on from them, each with entries of its own log to be written anew (numbered by `seq`),
        after which it needs nothing before its log: it has no parent branch from then on. The audit trail stays. Raises `Behind`
        if a branch is gone, has another last entry or is held, or if some other branch goes on from one of them. Nothing was
        changed then.
        """

    @abstractmethod
    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        """The entries that lead to a checkpoint and the journal after it up to the next root row, or those of a whole branch.

        One statement on a database. Raises `CheckpointNotFound`.
        """

    @abstractmethod
    def select_branches(self, wanted: BranchFilter) -> list[Branch]:
        """The branches that are wanted."""

    @abstractmethod
    def select_pending(self, wanted: PendingFilter) -> list[PendingRow]:
        """The pending approvals that are wanted, found by an index. `checkpoint_id` is the branch's head."""

    @abstractmethod
    def count_pending(self, wanted: PendingFilter) -> int:
        """How many pending approvals there are of those that are wanted; `after` and `limit` do not count."""

    @abstractmethod
    def select_checkpoints(self, wanted: CheckpointFilter) -> list[CheckpointRow]:
        """The root checkpoints that are wanted."""

    @abstractmethod
    def select_audit(self, wanted: AuditFilter) -> list[AuditRow]:
        """The lines of the audit trail that are wanted."""

    @abstractmethod
    def child_ids(self, checkpoint_id: str) -> list[str]:
        """The ids of the root checkpoints that go on from this one, in the order of their branches."""

    @property
    # A property that is asked anew each time, since the answer hangs on the loop that runs: a connection belongs to one
    # loop.
    def native(self) -> AsyncPrimitives | None:
        """The primitives that the event loop that runs is to use; None: it calls the store's, in a thread if they block.

        Where a subclass overrides one of those and not this, its own are called, and these are not.
        """
        return None

    def close(self) -> None:
        """Let go of files and connections. Closing twice is allowed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Built on the primitives

    def load(self, checkpoint_id: str) -> Checkpoint:
        """The checkpoint of this id: as it was sealed, once its branch has gone on. Raises `CheckpointNotFound`.

        The last of a branch comes with what has been journaled after it: it is where the run stands, and goes on from. What
        `sealed` makes of it is what the id names, whenever it is read.
        """
        return self.locate(checkpoint_id)[1]

    def locate(self, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
        """As `load`, with the branch that the store keeps it on."""
        checkpoint_id = text("checkpoint_id", checkpoint_id)
        # The lineage holds journal that came after the checkpoint. For a place that the branch has passed it is
        # dropped: an id names what was sealed, whenever it is read.
        return listing.located(self.lineage(checkpoint_id=checkpoint_id), checkpoint_id)

    def whole(self, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
        """As `locate`, with what was journaled after it, up to the next: what a copy of it from an earlier time is compared with."""
        checkpoint_id = text("checkpoint_id", checkpoint_id)
        # Here it is kept. Somebody may hold a copy of this checkpoint from a moment when half of that journal was
        # written, and the two are compared.
        return listing.last_in(self.lineage(checkpoint_id=checkpoint_id), checkpoint_id)

    def head(self, branch_id: str) -> tuple[Branch, Checkpoint]:
        """A branch and its last checkpoint, with what has been journaled after it. Raises `CheckpointNotFound`."""
        lineage = self.lineage(branch_id=text("branch_id", branch_id))
        return lineage.branch, last_of(lineage.entries)

    def history(self, checkpoint_id: str) -> list[Checkpoint]:
        """The checkpoints from the root to this one, oldest first, which is as `load` gives it. Raises `CheckpointNotFound`."""
        checkpoint_id = text("checkpoint_id", checkpoint_id)
        return listing.led_through(self.lineage(checkpoint_id=checkpoint_id), checkpoint_id)

    def children(self, checkpoint_id: str) -> list[Checkpoint]:
        """The checkpoints that go on from this one: the next of its branch, forks, and the thread's next run, in this order."""
        # One load for each: children are few, and each may lie in a log of its own.
        return [self.load(child) for child in self.child_ids(text("checkpoint_id", checkpoint_id))]

    def latest(self, thread_id: str) -> Checkpoint | None:
        """The last checkpoint of the branch of the thread that ended last, None if none has ended."""
        # All branches of the thread, not a query for the last: which one ended last is decided by the same function
        # that `create` judges by, or a run could begin from one end and be refused for another.
        last = changes.latest_ended(self.branches(thread_id=text("thread_id", thread_id)))
        return self.head(last.id)[1] if last is not None else None

    def current(self, thread_id: str) -> Checkpoint:
        """The checkpoint at which a thread stands: that of its run which has not ended, or else of the one that ended last.

        Of several that have not ended, such as forks, it is the one that was made last. Raises `CheckpointNotFound` for a thread that
        the store does not know.
        """
        return listing.current(self, thread_id)[1]

    def branches(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[Branch]:
        """The branches of a run or of a thread, or all, oldest first."""
        return self.select_branches(BranchFilter(**texts(run_id=run_id, thread_id=thread_id)))

    def pending_rows(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[PendingRow]:
        """The pending approvals of a run, of a thread or of all, oldest request first, as stored."""
        return self.select_pending(listing.pending_filter(self, run_id=run_id, thread_id=thread_id))

    def pending(
        self,
        *,
        newest: bool = False,
        limit: int | None = None,
        after: str | None = None,
        **wanted: Unpack[Wanted],
    ) -> Page[Waiting]:
        """What waits for a human, oldest request first, or with `newest` newest first: found by an index, however much there is.

        Give any of run, thread, agent, tool, label (of the run or fork) and risk (of the tool); `older_than` and `newer_than` are
        ages in seconds. With `limit`, the page holds that many at most, and its `next` is the `after` of the next page, None at the
        end; a page is not disturbed by what is decided meanwhile. Raises `StoreError` for a cursor that is none.
        """
        check_options("Store.pending", wanted, Wanted.__annotations__, TypeError)
        # The ages become times once, here: the pages that follow are asked for anew, and each takes its own moment as
        # now.
        found = listing.pending_filter(self, newest=newest, **wanted)
        return listing.pending_page(self, found, limit, after)

    def count(self, **wanted: Unpack[Wanted]) -> int:
        """How many approvals wait for a human, of those that `pending` would list."""
        check_options("Store.count", wanted, Wanted.__annotations__, TypeError)
        return self.count_pending(listing.pending_filter(self, **wanted))

    # What reads, for an event loop
    #
    # Written out one by one and not made by a decorator: a type checker, an editor and a reader all see the same
    # signature as the sync twin's. `asked` holds what they have in common.

    async def aload(self, checkpoint_id: str) -> Checkpoint:
        """As `load`, without blocking the event loop."""
        # `Store.load` is named, not `self.load`: `asked` compares the two, and calls an override of the sync method
        # where there is one.
        return await asked(self, Store.load, listing.aload, checkpoint_id)

    async def alocate(self, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
        """As `locate`, without blocking the event loop."""
        return await asked(self, Store.locate, listing.alocate, checkpoint_id)

    async def awhole(self, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
        """As `whole`, without blocking the event loop."""
        return await asked(self, Store.whole, listing.awhole, checkpoint_id)

    async def ahead(self, branch_id: str) -> tuple[Branch, Checkpoint]:
        """As `head`, without blocking the event loop."""
        return await asked(self, Store.head, listing.ahead, branch_id)

    async def ahistory(self, checkpoint_id: str) -> list[Checkpoint]:
        """As `history`, without blocking the event loop."""
        return await asked(self, Store.history, listing.ahistory, checkpoint_id)

    async def achildren(self, checkpoint_id: str) -> list[Checkpoint]:
        """As `children`, without blocking the event loop."""
        # None: there is no native way, so a store that blocks is called in a thread.
        return await asked(self, Store.children, None, checkpoint_id)

    async def alatest(self, thread_id: str) -> Checkpoint | None:
        """As `latest`, without blocking the event loop."""
        return await asked(self, Store.latest, None, thread_id)

    async def acurrent(self, thread_id: str) -> Checkpoint:
        """As `current`, without blocking the event loop."""
        return await asked(self, Store.current, None, thread_id)

    async def abranches(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[Branch]:
        """As `branches`, without blocking the event loop."""
        return await asked(self, Store.branches, None, run_id=run_id, thread_id=thread_id)

    async def apending_rows(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[PendingRow]:
        """As `pending_rows`, without blocking the event loop."""
        return await asked(self, Store.pending_rows, None, run_id=run_id, thread_id=thread_id)

    async def apending(
        self,
        *,
        newest: bool = False,
        limit: int | None = None,
        after: str | None = None,
        **wanted: Unpack[Wanted],
    ) -> Page[Waiting]:
        """As `pending`, without blocking the event loop."""
        return await asked(self, Store.pending, None, newest=newest, limit=limit, after=after, **wanted)

    async def acount(self, **wanted: Unpack[Wanted]) -> int:
        """As `count`, without blocking the event loop."""
        return await asked(self, Store.count, None, **wanted)

    def list(self, **wanted: Unpack[Kept]) -> Page[CheckpointInfo]:
        """The checkpoints that are kept, in the order their branches were made: id, label, when it was made, and where it belongs.

        Give any of run, thread, agent and label; `labeled` means those that have one. Pages are as those of `pending`.
        """
        check_options("Store.list", wanted, Kept.__annotations__, TypeError)
        return listing.checkpoint_page(self, **wanted)

    def audit(self, **wanted: Unpack[Told]) -> Iterator[AuditRecord]:
        """Who decided what, when, through which channel, why, and the digest of what was shown, oldest first.

        Give any of run, thread, pending id and times (datetimes with a time zone, or seconds since the epoch; inclusive). What is
        here stays when runs are taken away. `record.model_dump_json()` is a line of an export as JSON lines. Raises `StoreError`
        for a time that is none.
        """
        # An iterator that reads a batch at a time: the trail is never deleted, so one day it is longer than memory.
        # What is asked for is judged at once, not when the first line is.
        check_options("Store.audit", wanted, Told.__annotations__, TypeError)
        return listing.audit_records(self, listing.audit_filter(**wanted))

    def aaudit(self, **wanted: Unpack[Told]) -> AsyncIterator[AuditRecord]:
        """As `audit`, for `async for`, without blocking the event loop."""
        check_options("Store.aaudit", wanted, Told.__annotations__, TypeError)
        return listing.aaudit_records(self, listing.audit_filter(**wanted))

    def wait(self, run_id: str, *, timeout: float | None = None, stops: bool = False) -> Checkpoint:
        """Wait until a run has ended, however and wherever that happens, and return its last checkpoint.

        With `stops`, being suspended or failed counts as well. `timeout` is in seconds; None waits for ever. Raises `WaitTimeout`
        when it is over, and `CheckpointNotFound` if there is no such run. A run id means the run's own branch, not its forks; the
        id of a fork's branch means that.
        """
        # By looking now and then. A notification would need a connection for each waiter, and a primitive that not
        # every store can have.
        return listing.wait(self, run_id, timeout, stops)

    async def await_(self, run_id: str, *, timeout: float | None = None, stops: bool = False) -> Checkpoint:
        """As `wait`, without blocking the event loop."""
        return await listing.await_(self, run_id, timeout, stops)

    def delete(self, id: str, *, force: bool = False) -> bool:
        """Take a run, a branch, or the branch that ends with this checkpoint away. False if there is no such id, or a worker has it.

        What goes on from it elsewhere stays whole; so does the audit trail. Raises `StillNeeded` if its run has not ended in every
        branch, unless `force` is given: then what waits is gone, and nobody can decide it any more. Raises it as well for the id of
        a checkpoint before the last of its branch.
        """
        return retention.delete(self, id, force=force)

    def clear(self) -> int:
        """Take away every run that has ended in all its branches, and return the number of checkpoints that went."""
        # Ended runs alone, as everywhere: an order to clear must not take away what a human is looking at.
        return retention.prune(self, older_than=None, keep_labeled=False, keep_last=0)

    def prune(self, *, older_than: float | None = None, keep_labeled: bool = True, keep_last: int = 0) -> int:
        """Take away runs that ended more than `older_than` seconds ago, and return the number of checkpoints that went.

        A run goes as a whole, forks included, once all of it has ended. `keep_labeled` spares runs with a labeled checkpoint,
        `keep_last` the last runs of each thread. What waits for a human, or is worked on, always stays; so does the audit trail.
        A run that goes on from one that was taken away stays whole.
        """
        return retention.prune(self, older_than=older_than, keep_labeled=keep_labeled, keep_last=keep_last)

    def diff(self, before: str, after: str) -> CheckpointDiff:
        """The difference between two checkpoints, given by their ids. They may be of different runs. Raises `CheckpointNotFound`."""
        return diff(self.load(before), self.load(after))

    async def alist(self, **wanted: Unpack[Kept]) -> Page[CheckpointInfo]:
        """As `list`, without blocking the event loop."""
        return await asked(self, Store.list, None, **wanted)

    async def adiff(self, before: str, after: str) -> CheckpointDiff:
        """As `diff`, without blocking the event loop."""
        return await asked(self, Store.diff, None, before, after)

    # What takes in and takes away

    def fork(self, checkpoint_id: str, *, label: str | None = None, rerun: bool = False) -> Checkpoint:
        """Open another branch of a run at a checkpoint, as `agent.fork` does, and return its first checkpoint."""
        # Loaded from the store and not taken from the caller: a fork goes on from what is stored, and a text that was
        # changed on the way cannot get in by it.
        return forking.fork(self, self.load(checkpoint_id), label=label, rerun=rerun)

    def save(self, checkpoint: Checkpoint) -> None:
        """Take in a checkpoint that this store has not made, with what is nested in it, as a branch of its own.

        Saving one that is there already changes nothing. Where the store has another checkpoint's branch under the same id, the
        branch is kept under the id of the checkpoint. Raises `CheckpointError` for what could not be loaded again, and
        `CheckpointEdited` if the store has another checkpoint of that id.
        """
        # Validated first, however it was built: once in the store, it is what every later text of that id has to agree
        # with.
        adoption.adopt(self, checked(checkpoint))


def checked_tenant(tenant: str) -> str:
    """The name of a tenant. Raises `StoreError` for what cannot be one."""
    # The name itself is not quoted: it comes from a request more often than not.
    if not isinstance(tenant, str) or len(tenant) > 200 or not tenant.isprintable():
        raise StoreError("a tenant is named by printable text of at most 200 characters; the empty text is the default")
    return tenant

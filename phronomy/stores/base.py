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
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from typing_extensions import Unpack

from phronomy.errors import InvalidDecision, StoreError
from phronomy.foundation.checks import is_timeout
from phronomy.foundation.quoting import quoted
from phronomy.foundation.spelling import check_options
from phronomy.records.audit import AuditRecord
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer
from phronomy.records.messages import Message
from phronomy.records.principals import Principal
from phronomy.records.validation import checked
from phronomy.stores.batches import Batches
from phronomy.stores.derived import adoption, changes, deciding, forking, listing, requests, retention, sending
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.derived.listing import CheckpointInfo, Kept, Page, Told, Waiting, Wanted, text, texts
from phronomy.stores.derived.requests import Request
from phronomy.stores.dispatch import Dispatch, LocalDispatch
from phronomy.stores.granting import Granting
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
from phronomy.stores.triggering import Triggering

if TYPE_CHECKING:
    from phronomy.records.diff import CheckpointDiff


class AsyncPrimitives(Protocol):
    """The async versions of the primitives that a run calls at each step. They do the same as the store's own.

    These are what each run does; for all else a thread does. A cancellation may stop a write before anything is written,
    not after that: the engine delays it until they return.
    """

    async def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        """The async version of `Store.create`."""

    async def append(self, change: Append) -> Branch:
        """The async version of `Store.append`."""
        ...

    async def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        """The async version of `Store.release`."""

    async def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        """The async version of `Store.lineage`."""
        ...


class Store(Batches, Granting, Triggering, ABC):
    """The base class of all stores. A store keeps the checkpoints of runs, so that any process can resume them.

    A store object belongs to one `tenant`. It cannot see or change the data of another tenant, even if ids are equal;
    `for_tenant` makes a store for another tenant. `clock` returns seconds since the epoch; leases, expiry and ages
    follow this clock. `lease` is the number of seconds until a claim ends, unless it is renewed. `ttl` is the number of
    seconds after which `recover_all` deletes a run that has ended (None: never). `dispatch` tells workers what is to be
    done: set another one before you use the store; `for_tenant` passes it on. Raises `StoreError`.

    To write a store, implement the abstract methods, each atomic and safe to call from any thread. `blocking` says whether a
    call can take so long that async code should make it in a thread, and `reads_at_once` that a read of a few rows does not.
    """

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
        # The store's own clock, not the database's: a test moves it by hand, and a lease is then judged by the same clock that set
        # it. Workers on several machines must agree well within a lease; `docs/guarantees.md` says what a wrong clock costs.
        self.clock = clock
        self.lease = lease
        self.ttl = ttl
        # One for each store. It starts no thread before a run begins.
        self.keeper: Keeper = Keeper(lease)
        self.dispatch: Dispatch = LocalDispatch()
        self.seen_texts: set[tuple[str, str]] = set()  # by tenant and digest: a row may name them
        self.read_texts: dict[tuple[str, str], str] = {}  # by the same: not asked for again
        self.unnamed: set[str] = set()  # names that agents without a name have here, and of which was warned

    # Primitives
    #
    # A new store implements these and has everything else. Each is one atomic step, because a step that another writer
    # can come into the middle of cannot be repaired from above: nothing up here has a transaction.

    @abstractmethod
    def for_tenant(self, tenant: str) -> Self:
        """The store of another tenant, on the same connections. If you close one of the two, both are closed.

        Raises `StoreError` for an invalid name.
        """

    @abstractmethod
    # The look at the thread and the write are one step. Apart, two requests of one conversation would both find it
    # free, and both would answer.
    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        """Add a branch with the first entries of its log. If `change.take` is given, that owner claims the branch.

        With `exclusive`, raises `Occupied` if the thread of the branch has another branch with a status in `OPEN`, and
        `Behind` if the thread's latest end is not the branch's parent. Raises `StoreError` if a branch or a checkpoint
        with that id exists, and `CheckpointNotFound` if the parent does not exist.
        """

    @abstractmethod
    def append(self, change: Append) -> Branch:
        """Write `change` in one transaction, and return the branch after it. The entries get the numbers after `seq`.

        Raises `LeaseLost` if `change.claim` is not the present owner and fence of the branch; `Behind` if `change.seq`
        is not the branch's `seq`, or if `change.holder` does not hold the branch now; `Held` if the change takes a
        claim and another claim has not expired; `CheckpointNotFound` if the branch does not exist; and `StoreError` if
        a checkpoint or a pending id exists already, or if the change has no right to write.

        A `holder` must have the fence of the branch, and be the owner of a lease that has not expired. If nobody holds
        the branch, the owner of `holder` is the empty text. Status, owner, fence and lease do not change, and `handed`
        becomes `seq + 1` if it was None.

        The `texts` of a change are kept together with it. A text that is kept already is no error. A text with a lone
        surrogate raises `StoreError`, because it has no digest.
        """

    @abstractmethod
    # Not an append: it adds no entry, so the log's length, which every other writer compares, does not move under them
    # three times in each lease.
    def renew(self, claim: Claim) -> Branch:
        """Extend the lease of a claim to `self.lease` seconds from now, even if it has expired.

        Raises `LeaseLost` if the claim no longer exists.
        """

    @abstractmethod
    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        """Give up a claim, if it still exists, and set the status of the branch. Never raises `LeaseLost`."""

    @abstractmethod
    # Beside the log, for the same reason: telling the world about an entry is no entry. A crash between telling and
    # this tells it once more, never once too little.
    def announced(self, branch_id: str, seq: int) -> None:
        """Record that all entries of a branch up to number `seq` are announced.

        A number below the recorded one changes nothing. Raises `CheckpointNotFound` if the branch does not exist.
        """

    @abstractmethod
    # Branches that go on from what is removed are rewritten in the same step. Between two steps a crash would leave
    # rows that say what is new since a row that is gone.
    def remove(self, branches: Mapping[str, int], detached: Mapping[str, Sequence[Entry]]) -> None:
        """Delete whole branches, with their logs and pending requests. The audit trail and the kept texts stay.

        `branches` maps the id of each branch to the number of its last entry. `detached` maps the id of every other
        branch that starts from one of them to entries of its own log, which are rewritten (by their `seq`). After that,
        such a branch has no parent branch, and needs nothing before its own log.

        Raises `Behind`, with nothing changed, if a branch is gone, has another last entry or is held, or if a branch
        that is not in `detached` starts from one of them.
        """

    @abstractmethod
    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        """The entries that lead to a checkpoint, or all entries of a branch.

        With a checkpoint, they include the journal after it, up to the next root row. With a database, use one
        statement. Raises `CheckpointNotFound`.
        """

    @abstractmethod
    def select_branches(self, wanted: BranchFilter) -> list[Branch]:
        """The branches that match the filter."""

    @abstractmethod
    def select_pending(self, wanted: PendingFilter) -> list[PendingRow]:
        """The pending approvals that match the filter, found by an index.

        `checkpoint_id` of a row is the head of its branch.
        """

    @abstractmethod
    def count_pending(self, wanted: PendingFilter) -> int:
        """The number of pending approvals that match the filter. `after` and `limit` are ignored."""

    @abstractmethod
    def select_checkpoints(self, wanted: CheckpointFilter) -> list[CheckpointRow]:
        """The root checkpoints that match the filter."""

    @abstractmethod
    def select_audit(self, wanted: AuditFilter) -> list[AuditRow]:
        """The records of the audit trail that match the filter."""

    @abstractmethod
    def child_ids(self, checkpoint_id: str) -> list[str]:
        """The ids of the root checkpoints that follow this one, in the order of their branches."""

    @abstractmethod
    # By its digest alone: what names a text is a row of a run, and there is nothing else to look for it by.
    def kept_text(self, digest: str) -> str | None:
        """Return the text that is kept under this SHA-256 (in hexadecimal), or None if there is none."""

    @property
    # A property that is asked anew each time, since the answer hangs on the loop that runs: a connection belongs to one
    # loop.
    def native(self) -> AsyncPrimitives | None:
        """The async primitives for the running event loop, or None.

        If it is None, the store's own primitives are called, in a thread if they block. If a subclass overrides a
        primitive but not this property, its own primitives are called instead of these.
        """
        return None

    def close(self) -> None:
        """Close the files and connections. You can call it more than once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Built on the primitives

    def load(self, checkpoint_id: str) -> Checkpoint:
        """Return the checkpoint with this id. Raises `CheckpointNotFound`.

        The newest checkpoint of a branch comes with its journal, because the run continues from there. Any other
        checkpoint is returned as it was sealed. `sealed()` of the result is always the same for an id.
        """
        return self.locate(checkpoint_id)[1]

    def locate(self, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
        """The checkpoint that `load` returns, together with its branch."""
        checkpoint_id = text("checkpoint_id", checkpoint_id)
        # The lineage holds journal that came after the checkpoint. For a place that the branch has passed it is
        # dropped: an id names what was sealed, whenever it is read.
        return listing.located(self.lineage(checkpoint_id=checkpoint_id), kept_by(self), checkpoint_id)

    def whole(self, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
        """The checkpoint with its journal up to the next checkpoint, and its branch. Raises `CheckpointNotFound`.

        Use it to compare an older copy of the checkpoint with the stored one.
        """
        checkpoint_id = text("checkpoint_id", checkpoint_id)
        # Here it is kept. Somebody may hold a copy of this checkpoint from a moment when half of that journal was
        # written, and the two are compared.
        return listing.last_in(self.lineage(checkpoint_id=checkpoint_id), kept_by(self), checkpoint_id)

    def head(self, branch_id: str) -> tuple[Branch, Checkpoint]:
        """A branch, and its last checkpoint with its journal. Raises `CheckpointNotFound`."""
        lineage = self.lineage(branch_id=text("branch_id", branch_id))
        return lineage.branch, last_of(lineage.entries, kept_by(self), branch_id=lineage.branch.id)

    def history(self, checkpoint_id: str) -> list[Checkpoint]:
        """The checkpoints from the first to this one, oldest first. Raises `CheckpointNotFound`.

        The last one is the same as `load` returns. The others come without their journals and the runs nested in them.
        """
        checkpoint_id = text("checkpoint_id", checkpoint_id)
        return listing.led_through(self.lineage(checkpoint_id=checkpoint_id), kept_by(self), checkpoint_id)

    def children(self, checkpoint_id: str) -> list[Checkpoint]:
        """The checkpoints that follow this one.

        The order is: the next checkpoint of its branch, forks, the next run of the thread.
        """
        # One load for each: children are few, each perhaps in a log of its own.
        return [self.load(child) for child in self.child_ids(text("checkpoint_id", checkpoint_id))]

    def latest(self, thread_id: str) -> Checkpoint | None:
        """The last checkpoint of the thread's branch that ended last. None if no branch of the thread has ended."""
        # All branches of the thread, not a query for the last: which one ended last is decided by the same function
        # that `create` judges by, or a run could begin from one end and be refused for another.
        last = changes.latest_ended(self.branches(thread_id=text("thread_id", thread_id)))
        return self.head(last.id)[1] if last is not None else None

    def current(self, thread_id: str) -> Checkpoint:
        """The last checkpoint of the thread's run that has not ended; if all have ended, of the run that ended last.

        If several branches have not ended, such as forks, it is the one that was made last. Raises `CheckpointNotFound`
        if the store does not know the thread.
        """
        return listing.current(self, thread_id)[1]

    def branches(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[Branch]:
        """The branches of a run, of a thread, or all, oldest first."""
        return self.select_branches(BranchFilter(**texts(run_id=run_id, thread_id=thread_id)))

    def pending_rows(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[PendingRow]:
        """The pending approvals of a run, of a thread, or all, as stored, oldest first."""
        return listing.pending_rows(self, run_id=run_id, thread_id=thread_id)

    def pending(
        self,
        *,
        newest: bool = False,
        limit: int | None = None,
        after: str | None = None,
        **wanted: Unpack[Wanted],
    ) -> Page[Waiting]:
        """List the requests that wait, oldest first; with `newest`, newest first.

        Most wait for a human. Those that wait for an event, a time or another run are listed too: `asks_human=True`
        leaves them out, and `asks_human=False` lists them alone. Filter also by `run_id`, `thread_id`, `agent`, `tool`,
        `label` (of the run or fork) and `risk` (of the tool). `older_than` and `newer_than` are ages in seconds. The
        query uses an index, so it is fast even if many requests are pending. `limit` is the largest number of items in
        the page. To get the next page, pass `next` of the page as `after`; it is None at the end. If requests are
        decided between two pages, no other request is skipped. Raises `StoreError` for an invalid cursor.
        """
        check_options("Store.pending", wanted, Wanted.__annotations__, TypeError)
        return listing.pending_page(self, wanted, newest=newest, limit=limit, after=after)

    def count(self, **wanted: Unpack[Wanted]) -> int:
        """The number of requests that wait, with the filters of `pending`."""
        check_options("Store.count", wanted, Wanted.__annotations__, TypeError)
        return listing.count_pending(self, wanted)

    def request(self, pending_id: str) -> Request:
        """The request for a decision under this id: what a human is shown, where it waits, and what has become of it since.

        Raises `UnknownPending` for an id that the store does not know, or whose run is deleted, or ended with nothing decided.
        """
        return requests.request(self, pending_id)

    def decide(
        self,
        pending_id: str,
        answer: Answer,
        *,
        by: str | Principal,
        digest: str,
        channel: str | None = None,
        key: str | None = None,
    ) -> Request:
        """Record a decision or a vote, and return the request as it stands then. Nothing is run, and no agent's code is needed.

        `digest` is that of the request which was shown: `store.request(id).approval.digest`. Whoever drives the run carries it out: the
        worker that has it now, or else the next `recover_all` of its agent. It checks edited arguments, and asks predicates who may
        approve; if it cannot carry the decision out, a human is asked again, and is told why. If the request takes more people, this
        is a vote, and the request stays `pending`. The same answer with the same idempotency `key` is recorded once.

        Raises with nothing decided: `InvalidDecision` for an answer or digest that does not fit, `RequestExpired` after its time,
        `NotAnApprover`, `AlreadyVoted`, `CheckpointAlreadyResumed` if it was decided before, `UnknownPending`.
        """
        return deciding.decide(self, pending_id, answer, by=by, digest=digest, channel=channel, key=key)

    def send(
        self,
        run_id: str,
        text: str,
        *,
        by: str | Principal | None = None,
        channel: str | None = None,
        id: str | None = None,
    ) -> Checkpoint:
        """Send a message to a run that waits or works, as `agent.send` does, and return the checkpoint where it stands.

        No agent's code is needed. Input guardrails look at the message, if the agent has any.
        """
        if not isinstance(text, str):
            raise InvalidDecision(f"the message is text, not {type(text).__name__}: nothing was sent")
        said = Message(role="user", content=text)
        return sending.send(self, run_id, said, by=by, channel=channel, id=id)

    def decided(self, *, limit: int | None = None) -> Sequence[Branch]:
        """The runs, and forks, with a decision that is recorded and that nobody is carrying out, oldest first, `limit` at most."""
        found = self.select_branches(BranchFilter(handed=True))
        now = self.clock()
        return [branch for branch in found if not branch.is_held(now)][:limit]

    # What reads, for an event loop
    #
    # Written out one by one and not made by a decorator: a type checker, an editor and a reader all see the same
    # signature as the sync twin's. `asked` holds what they have in common.

    async def aload(self, checkpoint_id: str) -> Checkpoint:
        """The async twin of `load`."""
        # `Store.load` is named, not `self.load`: `asked` compares the two, and calls an override of the sync method
        # where there is one.
        return await asked(self, Store.load, listing.aload, checkpoint_id)

    async def alocate(self, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
        """The async twin of `locate`."""
        return await asked(self, Store.locate, listing.alocate, checkpoint_id)

    async def awhole(self, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
        """The async twin of `whole`."""
        return await asked(self, Store.whole, listing.awhole, checkpoint_id)

    async def ahead(self, branch_id: str) -> tuple[Branch, Checkpoint]:
        """The async twin of `head`."""
        return await asked(self, Store.head, listing.ahead, branch_id)

    async def ahistory(self, checkpoint_id: str) -> list[Checkpoint]:
        """The async twin of `history`."""
        return await asked(self, Store.history, listing.ahistory, checkpoint_id)

    async def achildren(self, checkpoint_id: str) -> list[Checkpoint]:
        """The async twin of `children`."""
        # None: there is no native way, so a store that blocks is called in a thread.
        return await asked(self, Store.children, None, checkpoint_id)

    async def alatest(self, thread_id: str) -> Checkpoint | None:
        """The async twin of `latest`."""
        return await asked(self, Store.latest, None, thread_id)

    async def acurrent(self, thread_id: str) -> Checkpoint:
        """The async twin of `current`."""
        return await asked(self, Store.current, None, thread_id)

    async def abranches(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[Branch]:
        """The async twin of `branches`."""
        return await asked(self, Store.branches, None, run_id=run_id, thread_id=thread_id)

    async def apending_rows(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[PendingRow]:
        """The async twin of `pending_rows`."""
        return await asked(self, Store.pending_rows, None, run_id=run_id, thread_id=thread_id)

    async def apending(
        self,
        *,
        newest: bool = False,
        limit: int | None = None,
        after: str | None = None,
        **wanted: Unpack[Wanted],
    ) -> Page[Waiting]:
        """The async twin of `pending`."""
        return await asked(self, Store.pending, None, newest=newest, limit=limit, after=after, **wanted)

    async def acount(self, **wanted: Unpack[Wanted]) -> int:
        """The async twin of `count`."""
        return await asked(self, Store.count, None, **wanted)

    async def arequest(self, pending_id: str) -> Request:
        """The async twin of `request`."""
        return await asked(self, Store.request, None, pending_id)

    async def adecide(
        self,
        pending_id: str,
        answer: Answer,
        *,
        by: str | Principal,
        digest: str,
        channel: str | None = None,
        key: str | None = None,
    ) -> Request:
        """The async twin of `decide`."""
        return await asked(self, Store.decide, None, pending_id, answer, by=by, digest=digest, channel=channel, key=key)

    async def asend(
        self,
        run_id: str,
        text: str,
        *,
        by: str | Principal | None = None,
        channel: str | None = None,
        id: str | None = None,
    ) -> Checkpoint:
        """The async twin of `send`."""
        return await asked(self, Store.send, None, run_id, text, by=by, channel=channel, id=id)

    async def adecided(self, *, limit: int | None = None) -> Sequence[Branch]:
        """The async twin of `decided`."""
        return await asked(self, Store.decided, None, limit=limit)

    def list(self, **wanted: Unpack[Kept]) -> Page[CheckpointInfo]:
        """List the stored checkpoints, in the order in which their branches were made.

        Filter by `run_id`, `thread_id`, `agent` and `label`; `labeled` means all that have a label. Pages work as in
        `pending`.
        """
        check_options("Store.list", wanted, Kept.__annotations__, TypeError)
        return listing.checkpoint_page(self, **wanted)

    def audit(self, **wanted: Unpack[Told]) -> Iterator[AuditRecord]:
        """Iterate over the audit trail, oldest first: who decided what, when, why, and through which channel.

        Filter by `run_id`, `thread_id`, `pending_id`, `since` and `until`. Times are datetimes with a time zone, or
        seconds since the epoch; both ends are included. Records stay when runs are deleted. `record.model_dump_json()`
        makes a line of a JSON lines file. Raises `StoreError` for an invalid time.
        """
        # An iterator that reads a batch at a time: the trail is never deleted, so one day it is longer than memory.
        # What is asked for is judged at once, not when the first line is.
        check_options("Store.audit", wanted, Told.__annotations__, TypeError)
        return listing.audit_records(self, listing.audit_filter(**wanted))

    def aaudit(self, **wanted: Unpack[Told]) -> AsyncIterator[AuditRecord]:
        """The async twin of `audit`, for `async for`."""
        check_options("Store.aaudit", wanted, Told.__annotations__, TypeError)
        return listing.aaudit_records(self, listing.audit_filter(**wanted))

    def wait(self, run_id: str, *, timeout: float | None = None, stops: bool = False) -> Checkpoint:
        """Wait until a run has ended, in any process, and return its last checkpoint.

        With `stops`, it also returns when the run waits for a human or has failed. `timeout` is in seconds (None: no limit).
        `run_id` is the id of a run, which means its main branch without its forks, or the id of a fork's branch. Raises
        `WaitTimeout` after the timeout, and `CheckpointNotFound` if the run does not exist.
        """
        # By looking now and then. A notification would need a connection for each waiter, and a primitive that not
        # every store can have.
        return listing.wait(self, run_id, timeout, stops)

    async def await_(self, run_id: str, *, timeout: float | None = None, stops: bool = False) -> Checkpoint:
        """The async twin of `wait`."""
        return await listing.await_(self, run_id, timeout, stops)

    def delete(self, id: str, *, force: bool = False) -> bool:
        """Delete a run, a branch, or the branch that ends with this checkpoint.

        Returns False if the id does not exist or a worker holds the branch. Runs and branches that start from the
        deleted one stay whole, and so does the audit trail. Raises `StillNeeded` if the run has not ended in every
        branch. With `force`, it is deleted all the same, and nobody can decide its pending requests any more. Raises
        `StillNeeded` also for the id of a checkpoint that is not the last of its branch.
        """
        return retention.delete(self, id, force=force)

    def clear(self) -> int:
        """Delete every run that has ended in all its branches. Returns the number of deleted checkpoints.

        It does not empty the store: a run that waits, is driven or has failed stays, and a warning in the log names the
        first of them. `delete(id, force=True)` deletes such a run, and so does `clear` once it is cancelled.
        """
        # Ended runs alone, as everywhere: an order to clear must not take away what a human is looking at.
        return retention.clear(self)

    def prune(self, *, older_than: float | None = None, keep_labeled: bool = True, keep_last: int = 0) -> int:
        """Delete runs that ended more than `older_than` seconds ago (None: all that have ended).

        Returns the number of deleted checkpoints. A run is deleted as a whole, with its forks, and only after all of it
        has ended. `keep_labeled` keeps runs that have a label, and `keep_last` keeps the last runs of each thread. Runs
        that wait or are driven stay, and so does the audit trail. Later runs of the same thread stay whole. Documents
        whose time is over are deleted as well.
        """
        return retention.prune(self, older_than=older_than, keep_labeled=keep_labeled, keep_last=keep_last)

    def diff(self, before: str, after: str) -> CheckpointDiff:
        """Compare two checkpoints by their ids. They may belong to different runs. Raises `CheckpointNotFound`."""
        from phronomy.records.diff import diff  # noqa: PLC0415  # nine records, which no run needs

        return diff(self.load(before), self.load(after))

    async def akept_text(self, digest: str) -> str | None:
        """The async twin of `kept_text`."""
        # In a thread where the store blocks, also with native primitives: a text is read to be shown, not at each step.
        return await asked(self, Store.kept_text, None, digest)

    async def alist(self, **wanted: Unpack[Kept]) -> Page[CheckpointInfo]:
        """The async twin of `list`."""
        return await asked(self, Store.list, None, **wanted)

    async def adiff(self, before: str, after: str) -> CheckpointDiff:
        """The async twin of `diff`."""
        return await asked(self, Store.diff, None, before, after)

    # What takes in and takes away

    def fork(
        self, checkpoint_id: str, *, label: str | None = None, rerun: bool = False, by: str | Principal | None = None
    ) -> Checkpoint:
        """Start a new branch of a run at a checkpoint, as `agent.fork` does, and return its first checkpoint."""
        # Loaded from the store, not taken from the caller: a text that was changed on the way cannot get in by a fork.
        return forking.fork(self, self.load(checkpoint_id), label=label, rerun=rerun, by=by)

    def save(self, checkpoint: Checkpoint) -> None:
        """Copy a checkpoint from another store into this one, with its nested runs, as a branch of its own.

        If the checkpoint exists already, nothing changes. If the store has another branch with the same id, the new
        branch gets the id of the checkpoint as its id. Raises `CheckpointError` if the checkpoint could not be loaded
        again, and `CheckpointEdited` if the store has a different checkpoint with that id.
        """
        # Validated first, however it was built: once in the store, every later text of that id has to agree with it.
        adoption.adopt(self, checked(checkpoint))


def checked_tenant(tenant: str) -> str:
    """The name of a tenant. Raises `StoreError` for what cannot be one."""
    # The name itself is not quoted: it comes from a request more often than not.
    if not isinstance(tenant, str) or len(tenant) > 200 or not tenant.isprintable():
        raise StoreError("a tenant is named by printable text of at most 200 characters; the empty text is the default")
    return tenant

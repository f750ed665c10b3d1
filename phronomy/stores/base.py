"""The store protocol: what a store keeps, and the few primitives that it implements.

A store keeps **branches** and, for each, an append-only **log**. An entry of the log is either a row (a checkpoint, as what is
new since its parent) or a journal entry (what happened after it). Everything that changes goes through `append`, a compare-and-set
on the length of the log: whoever has not seen the last entry is told so, reads on, and decides again. A worker that drives a run
holds a claim on its branch: an owner, a fence number that grows with each take-over, and a lease in seconds.

Everything else (loading checkpoints, history, latest of a thread) is built here once, from rows.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from phronomy.approvals import PendingApproval
from phronomy.checkpoint import Checkpoint, outcome_from, outcome_text, row_checkpoint, row_text
from phronomy.errors import CheckpointError, CheckpointNotFound, StoreError
from phronomy.stores._keeper import Keeper
from phronomy.types import CallSettled

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from phronomy.types import Outcome

BranchStatus: TypeAlias = Literal["running", "suspended", "failed", "completed", "rejected", "cancelled", "superseded"]
"""How a branch stands. `failed`: a fault stopped it between boundaries, and it can be resumed. The last four are ends."""

OPEN: Final = ("running", "suspended", "failed")
ENDED: Final = ("completed", "rejected", "cancelled", "superseded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One line of a run: the run itself (its id is the run's id), or a fork of it.

    `parent_branch` and `parent_seq` say which log it goes on from, and after which entry. `seq` is the number of the last entry
    of its own log, which begins after `parent_seq`. `head` is the id of its last root checkpoint. `lease_until` and `changed_at`,
    the time of the last write, are in seconds since the epoch, by the store's clock.
    """

    id: str
    run_id: str
    thread_id: str | None
    agent: str
    parent_branch: str | None = None
    parent_seq: int = 0
    seq: int = 0
    head: str | None = None
    status: BranchStatus = "running"
    owner: str | None = None
    fence: int = 0
    lease_until: float = 0.0
    changed_at: float = 0.0

    def is_held(self, now: float) -> bool:
        """Whether a worker holds the branch whose lease has not expired at this time, by the store's clock."""
        return self.owner is not None and self.lease_until > now

    @classmethod
    def of(cls, checkpoint: Checkpoint, **fields: Any) -> Branch:
        """The branch that a checkpoint names."""
        return cls(
            id=checkpoint.branch_id,
            run_id=checkpoint.run_id,
            thread_id=checkpoint.thread_id,
            agent=checkpoint.agent.name,
            **fields,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a log. A row has a `checkpoint_id`; a journal entry has none. `path` names the nested run it belongs to.

    `parent_id` is there where the parent is not the row of the same path before it in the same log.
    """

    path: str
    body: str
    checkpoint_id: str | None = None
    parent_id: str | None = None
    branch_id: str = ""
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRow:
    """A pending approval as a store lists it: where it waits, and the request as text (a `PendingApproval`)."""

    pending_id: str
    branch_id: str
    run_id: str
    thread_id: str | None
    agent: str
    tool_name: str
    checkpoint_id: str
    requested_at: float
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to write on a branch: who holds it, and the fence number that it was given."""

    branch_id: str
    run_id: str
    owner: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One atomic write to a branch.

    `seq` is the last entry that the writer has seen. `claim` is the writer's; without one, only journal entries may be written,
    or a claim be taken by `take` (an owner), which needs the lease to be free or expired. `lease` is how many seconds from now
    the claim is to last. `release` gives it up. `head`, `status` change the branch; `opened` and `closed` change what is pending.
    """

    branch_id: str
    seq: int
    entries: tuple[Entry, ...] = ()
    claim: Claim | None = None
    take: str | None = None
    lease: float = 0.0
    release: bool = False
    head: str | None = None
    status: BranchStatus | None = None
    opened: tuple[PendingRow, ...] = ()
    closed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """A branch, and the entries that lead to a place in it, oldest first, those of the logs it goes on from included."""

    branch: Branch
    entries: tuple[Entry, ...]


class Behind(Exception):
    """The writer has not seen the last entry of the log. Nothing was written."""


class Held(Exception):
    """The claim cannot be taken: `branch` is held by its owner, whose lease has not expired. Nothing was written."""

    def __init__(self, branch: Branch) -> None:
        super().__init__(branch.id)
        self.branch = branch


class Occupied(Exception):
    """The thread has a branch that is running or suspended. Nothing was written."""

    def __init__(self, branch: Branch) -> None:
        super().__init__(branch.id)
        self.branch = branch


class Store(ABC):
    """Where checkpoints are kept. Implement the abstract methods; each is atomic and safe to call from any thread.

    `clock` gives seconds since the epoch and is what leases are judged by. `blocking` says whether a call may take long enough
    that the async driver should make it in a thread. `lease` is how long, in seconds, a claim lasts without being renewed.
    """

    blocking: bool = True

    def __init__(self, *, clock: Callable[[], float] = time.time, lease: float = 30.0) -> None:
        if not 0 < lease < math.inf:
            raise StoreError(f"the lease is a number of seconds above 0, not {lease!r}")
        self.clock = clock
        self.lease = lease
        self.keeper = Keeper(lease)

    # Primitives

    @abstractmethod
    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        """Add a branch with the first entries of its log, held by `change.take` if that is given.

        With `exclusive`, raises `Occupied` if its thread has a branch whose status is in `OPEN`, and `Behind` if the thread's
        latest end is another branch than its parent. Raises `StoreError` if a branch or a checkpoint of that id is there already.
        """

    @abstractmethod
    def append(self, change: Append) -> Branch:
        """Write `change` in one transaction and return the branch as it then stands.

        Raises `LeaseLost` if `change.claim` is no longer the branch's owner and fence; `Behind` if `change.seq` is not the
        branch's; `Held` if a claim is to be taken and another's has not expired; `CheckpointNotFound` if there is no such branch.
        Entries get the numbers that follow `seq`.
        """

    @abstractmethod
    def renew(self, claim: Claim) -> Branch:
        """Make the lease last `self.lease` seconds from now, even if it had expired. Raises `LeaseLost` if the claim is gone."""

    @abstractmethod
    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        """Give up the claim, if it is still held, and set the status. Never raises `LeaseLost`."""

    @abstractmethod
    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        """The entries that lead to a checkpoint and the journal after it up to the next root row, or those of a whole branch.

        One statement on a database. Raises `CheckpointNotFound`.
        """

    @abstractmethod
    def branches(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[Branch]:
        """The branches of a run or of a thread, oldest first."""

    @abstractmethod
    def pending_rows(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[PendingRow]:
        """What is pending, everywhere or in a run or a thread, oldest request first. `checkpoint_id` is the branch's head."""

    @abstractmethod
    def child_ids(self, checkpoint_id: str) -> list[str]:
        """The ids of the root checkpoints that go on from this one, in the order of their branches."""

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
        """The checkpoint of this id, with what has been journaled after it. Raises `CheckpointNotFound`."""
        return self.locate(checkpoint_id)[1]

    def locate(self, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
        """As `load`, with the branch that the store keeps it on."""
        lineage = self.lineage(checkpoint_id=checkpoint_id)
        for checkpoint in reversed(replay(lineage.entries)):
            if checkpoint.id == checkpoint_id:
                return lineage.branch, checkpoint
        raise CheckpointError(f"the log of branch {lineage.branch.id} does not lead to checkpoint {checkpoint_id}")

    def head(self, branch_id: str) -> tuple[Branch, Checkpoint]:
        """A branch and its last checkpoint, with what has been journaled after it. Raises `CheckpointNotFound`."""
        lineage = self.lineage(branch_id=branch_id)
        return lineage.branch, replay(lineage.entries)[-1]

    def history(self, checkpoint_id: str) -> list[Checkpoint]:
        """The checkpoints from the root to this one, oldest first. Raises `CheckpointNotFound`."""
        found = replay(self.lineage(checkpoint_id=checkpoint_id).entries)
        ids = [checkpoint.id for checkpoint in found]
        return found[: ids.index(checkpoint_id) + 1]

    def children(self, checkpoint_id: str) -> list[Checkpoint]:
        """The checkpoints that go on from this one: the next of its branch, forks, and the thread's next run, in this order."""
        return [self.load(child) for child in self.child_ids(checkpoint_id)]

    def latest(self, thread_id: str) -> Checkpoint | None:
        """The last checkpoint of the branch of the thread that ended last, None if none has ended."""
        last = latest_ended(self.branches(thread_id=thread_id))
        return self.head(last.id)[1] if last is not None else None

    def pending(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[Waiting]:
        """What waits for a human, everywhere or in a run or a thread, oldest request first."""
        return [Waiting.of(row) for row in self.pending_rows(run_id=run_id, thread_id=thread_id)]

    def save(self, checkpoint: Checkpoint) -> None:
        """Take in a checkpoint that this store has not made, with what is nested in it, as a branch of its own.

        Saving one that is there already changes nothing. Where the store has another checkpoint's branch under the same id, the
        branch is kept under the id of the checkpoint.
        """
        sealed = checkpoint.evolve(journal=(), nested=())
        entries = [row_entry(None, sealed, {})]
        for part in checkpoint.nested:
            entries.append(row_entry(None, part.evolve(journal=(), nested=()), {}))
            entries += [journal_entry(outcome, part.path) for outcome in part.journal]
        entries += [journal_entry(outcome, checkpoint.path) for outcome in checkpoint.journal]
        branch = Branch.of(checkpoint)
        if any(known.id == branch.id for known in self.branches(run_id=branch.run_id)):
            branch = replace(branch, id=checkpoint.id)
        change = Append(
            branch_id=branch.id,
            seq=0,
            entries=tuple(entries),
            head=checkpoint.id,
            status=checkpoint.status if checkpoint.status != "running" else "failed",
            opened=tuple(pending_rows(checkpoint)),
        )
        try:
            self.create(branch, change, exclusive=False)
        except StoreError as error:
            try:
                self.lineage(checkpoint_id=checkpoint.id)
            except CheckpointNotFound:
                raise error from error.__cause__


def latest_ended(branches: Sequence[Branch]) -> Branch | None:
    """Of branches in the order they were made, the one that ended last; None if none has ended."""
    ended = [branch for branch in branches if branch.status in ENDED]
    return max(reversed(ended), key=lambda branch: branch.changed_at, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A pending approval, and where it waits: pass `checkpoint_id` to `agent.resume`."""

    approval: PendingApproval
    checkpoint_id: str
    run_id: str
    branch_id: str
    thread_id: str | None
    agent: str

    @classmethod
    def of(cls, row: PendingRow) -> Waiting:
        """The pending approval that a store listed. Raises `StoreError` for a row that cannot be read."""
        try:
            approval = PendingApproval.model_validate_json(row.body)
        except ValueError:  # its text would quote the row
            raise StoreError(
                f"pending {row.pending_id} of branch {row.branch_id} cannot be read: it is damaged"
            ) from None
        return cls(
            approval=approval,
            checkpoint_id=row.checkpoint_id,
            run_id=row.run_id,
            branch_id=row.branch_id,
            thread_id=row.thread_id,
            agent=row.agent,
        )


def row_entry(parent: Checkpoint | None, child: Checkpoint, settled: Mapping[str, CallSettled]) -> Entry:
    """The row of `child`, as what is new since `parent`; `settled` are the results journaled between them, by call id."""
    body = row_text(parent, child, settled)
    follows = parent is not None and parent.id == child.parent_id and parent.branch_id == child.branch_id
    return Entry(path=child.path, body=body, checkpoint_id=child.id, parent_id=None if follows else child.parent_id)


def journal_entry(outcome: Outcome, path: str) -> Entry:
    """The journal entry of an outcome."""
    return Entry(path=path, body=outcome_text(outcome))


def pending_rows(checkpoint: Checkpoint) -> list[PendingRow]:
    """What the store lists for the approvals that a checkpoint waits for."""
    return [
        PendingRow(
            pending_id=item.id,
            branch_id=checkpoint.branch_id,
            run_id=checkpoint.run_id,
            thread_id=checkpoint.thread_id,
            agent=checkpoint.agent.name,
            tool_name=item.tool_name,
            checkpoint_id=checkpoint.id,
            requested_at=item.requested_at.timestamp(),
            body=item.model_dump_json(),
        )
        for item in checkpoint.pending
    ]


def settled_in(journal: Iterable[Outcome]) -> dict[str, CallSettled]:
    """The results in a journal, by call id."""
    return {outcome.id: outcome for outcome in journal if isinstance(outcome, CallSettled)}


def rows_of(entries: Iterable[Entry], journals: dict[str, list[Outcome]] | None = None) -> Iterator[Checkpoint]:
    """Each checkpoint of a log, roots and nested ones, oldest first. `journals` gets what follows the last of each path.

    Raises `CheckpointError` for a log that cannot be read.
    """
    journals = {} if journals is None else journals
    tips: dict[str, Checkpoint] = {}
    for entry in entries:
        if entry.checkpoint_id is None:
            journals.setdefault(entry.path, []).append(outcome_from(entry.body))
            continue
        settled = settled_in(journals.pop(entry.path, ()))
        before = tips.get(entry.path)
        columns = {"id": entry.checkpoint_id, "parent_id": entry.parent_id, "path": entry.path}
        now = row_checkpoint(before, entry.body, settled, **columns)
        if "run_id" not in now.__dict__:
            raise CheckpointError(
                f"the row of checkpoint {now.id} says what changed, and what it goes on from is missing"
            )
        if before is not None and entry.path == "" and before.run_id != now.run_id:  # the next run of the thread
            tips.clear()
            journals.clear()
        tips[entry.path] = now
        yield now


def replay(entries: Sequence[Entry]) -> list[Checkpoint]:
    """The root checkpoints that a log leads through, oldest first; the last with its journal and the live runs nested in it.

    Raises `CheckpointError` for a log that cannot be read.
    """
    journals: dict[str, list[Outcome]] = {}
    found: list[Checkpoint] = []
    live: dict[str, Checkpoint] = {}
    for row in rows_of(entries, journals):
        if row.path == "":
            if found and found[-1].run_id != row.run_id:
                live.clear()
            found.append(row)
        else:
            live[row.path] = row
    if not found:
        raise CheckpointError("the log holds no checkpoint")
    last = found[-1]
    open_ids = {call.id for call in last.calls if call.result is None}
    nested = tuple(
        row.evolve(journal=tuple(journals.get(path, ())))
        for path, row in sorted(live.items())
        if last.ended is None and (row.ended is None or path.split("/")[0] in open_ids)
    )
    found[-1] = last.evolve(journal=tuple(journals.get("", ())), nested=nested)
    return found

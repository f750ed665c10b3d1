"""The records that a store keeps, and the filters it is asked with. They are the same for every store, and have no behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from phronomy.errors import Portable

if TYPE_CHECKING:
    from phronomy.records.checkpoint import Checkpoint

BranchStatus: TypeAlias = Literal[
    "running", "suspended", "failed", "completed", "rejected", "cancelled", "superseded", "skipped"
]
"""How a branch stands. `failed`: a fault stopped it between boundaries, and it can be resumed. The last four are ends."""

# Two tuples and not one predicate: SQL and Lua are given the same words, so a store's index and the rules of the base
# cannot part.
OPEN: Final = ("running", "suspended", "failed")
ENDED: Final = ("completed", "rejected", "cancelled", "superseded", "skipped")


# Fixed for ever, as rows are found by this arithmetic. A 63-bit integer then has room for 2**31 branches, each with a
# log of 2**32 entries.
SIZE: Final = 2**32
"""Numbers that each branch has for its log: entry `seq` of branch `n` has the number `n * SIZE + seq`."""

# The order decides which list is walked. A run has a handful of requests, an agent may have all that there are.
FACETS: Final = ("run", "thread", "label", "tool", "risk", "agent")
"""The names that pending approvals are found by. The one that leaves the fewest rows comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One line of a run: the run itself (its id is the run's id), or a fork of it.

    `parent_branch` and `parent_seq` say which log it goes on from, and after which entry. `seq` is the number of the last entry
    of its own log, which begins after `parent_seq`. `head` is the id of its last root checkpoint. `label` is that of the first.
    `created_at`, `changed_at` (the time of the last write) and `lease_until` are in seconds since the epoch, by the store's clock.
    `announced` is the last entry that has been announced; None means that this branch is not announced at all. `handed` is the first
    entry that was left for the worker who held the branch; None if there is none, and again after the next root checkpoint.
    """

    id: str
    run_id: str
    thread_id: str | None
    agent: str
    label: str | None = None
    # A fork copies nothing: it says which log it goes on from, and after which entry. Numbers go on from there, so an
    # entry's number means the same in every branch that leads through it.
    parent_branch: str | None = None
    parent_seq: int = 0
    seq: int = 0
    head: str | None = None
    status: BranchStatus = "running"
    # The claim. The fence only grows, also when the branch is let go of: two workers that take the branch one after the
    # other never have the same number, however alike their names are.
    owner: str | None = None
    fence: int = 0
    lease_until: float = 0.0
    # 0 means not yet: the store stamps it with its own clock at the first write, so that times of one store come from
    # one clock.
    created_at: float = 0.0
    changed_at: float = 0.0
    # Two outboxes in two numbers. `announced` trails behind `seq` if a worker died between writing and telling.
    # `handed` is there if a worker let go, or died, with a decision in its log that it had not read: its status may say
    # suspended, and still there is something to do.
    announced: int | None = None
    handed: int | None = None

    def is_held(self, now: float) -> bool:
        """Whether a worker holds the branch whose lease has not expired at this time, by the store's clock."""
        # An owner whose lease is over is still written down, because it may come back and go on if nobody took over. It
        # just keeps nobody out.
        return self.owner is not None and self.lease_until > now

    @classmethod
    def of(cls, checkpoint: "Checkpoint", **fields: Any) -> "Branch":
        """The branch that a checkpoint names."""
        return cls(
            id=checkpoint.branch_id,
            run_id=checkpoint.run_id,
            thread_id=checkpoint.thread_id,
            agent=checkpoint.agent.name,
            label=checkpoint.label,
            **fields,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a log. A row has a `checkpoint_id`; a journal entry has none. `path` names the nested run it belongs to.

    `parent_id` is there where the parent is not the row of the same path before it in the same log. `label` is the checkpoint's;
    only that of a root row (one with the empty path) is looked for.
    """

    # The body is text and stays text. A store that parsed it (a JSON column) would give back 5 for 5.0, or keys in
    # another order, and the digests over it would not fit.
    path: str
    body: str = field(repr=False)
    checkpoint_id: str | None = None
    # Left out where the place says it: most rows follow the one before them, and an id in each would be in each index
    # as well.
    parent_id: str | None = None
    label: str | None = None
    branch_id: str = ""
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRow:
    """A pending approval as a store lists it: where it waits, and the request as text (a `PendingApproval`).

    `label` is that of the branch when the request was made. `requested_at` and `expires_at` (None: never) are in seconds since the
    epoch. `n` is the store's number for it, which grows: rows of one time are in the order of their numbers.
    """

    pending_id: str
    branch_id: str
    run_id: str
    thread_id: str | None
    agent: str
    tool_name: str
    label: str | None = None
    # The columns a list is filtered by are copied out of the request, so that a list reads no body. The body is what a
    # human is shown, and is never searched.
    risk: str | None = None
    checkpoint_id: str
    requested_at: float
    expires_at: float | None = None
    body: str = field(repr=False)
    n: int = 0

    def facets(self) -> dict[str, str]:
        """What it can be looked for by, besides its id: one value for each name, those that it has none for left out."""
        # Zipped with `strict`, so a facet that is added in one place only fails in the first test.
        values = (self.run_id, self.thread_id, self.label, self.tool_name, self.risk, self.agent)
        return {name: value for name, value in zip(FACETS, values, strict=True) if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """A line of the audit trail: what was decided, as text. `at` is in seconds since the epoch, `n` the store's growing number.

    It is written with what it tells of, never changed, and not taken away with the branch.
    """

    # Apart from the log on purpose: who decided what has to outlive the run that it was about.
    at: float
    run_id: str
    thread_id: str | None
    pending_id: str | None
    body: str = field(repr=False)
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """A root checkpoint as a store lists it. `body` is its row, in which `created_at` is; `n` grows in the order of the list."""

    checkpoint_id: str
    branch_id: str
    run_id: str
    thread_id: str | None
    agent: str
    label: str | None
    body: str = field(repr=False)
    n: int


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

    `seq` is the last entry that the writer has seen. `claim` is the writer's; without one, a claim is taken by `take` (an owner), which
    needs the lease to be free or expired, or journal entries are left for `holder`: the worker that holds the branch, as the
    writer saw it. `lease` is how many seconds from now
    the claim is to last. `release` gives it up. `head`, `status` change the branch; `opened` and `closed` change what is pending;
    `audit` is added to the trail. With `announce`, what is written from here on is to be announced: the branch's `announced`, if
    it is None, becomes `seq`.
    """

    branch_id: str
    seq: int
    # One record for all that changes, because it has to be one transaction: a decision in the log without its line in
    # the trail, or a request closed without the decision, is what a crash would leave between two writes.
    entries: tuple[Entry, ...] = ()
    claim: Claim | None = None
    take: str | None = None
    # A worker that holds the run cannot be interrupted by a write, only be left a note. That the note names the holder
    # closes a gap: if the worker let go meanwhile without writing anything, the log's length is as it was, and by
    # length alone the note would be left for nobody.
    holder: Claim | None = None
    lease: float = 0.0
    release: bool = False
    head: str | None = None
    status: BranchStatus | None = None
    opened: tuple[PendingRow, ...] = ()
    closed: tuple[str, ...] = ()
    audit: tuple[AuditRow, ...] = ()
    announce: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """A branch, and the entries that lead to a place in it, oldest first, those of the logs it goes on from included."""

    branch: Branch
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFilter:
    """Which branches are wanted: those that all that is given holds for, in the order they were made, `limit` at most.

    `parents` are ids of branches that they go on from. `abandoned_at`: they are `running`, and nobody holds them at that time.
    `ended_before`: their status is in `ENDED`, and their last write was before that time. `unannounced`: entries were written
    that have not been announced (`announced` is below `seq`). `handed`: entries were left for a worker, and no root checkpoint
    was written after them. Times are in seconds since the epoch, by the store's clock.
    """

    run_id: str | None = None
    thread_id: str | None = None
    parents: tuple[str, ...] | None = None
    abandoned_at: float | None = None
    ended_before: float | None = None
    unannounced: bool = False
    handed: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFilter:
    """Which pending approvals are wanted: those that all that is given holds for, oldest first, or with `newest` newest first.

    `facets` are values by name, as in `PendingRow.facets`. `since` and `until` bound `requested_at`, both inclusive; `expired_at`
    means those whose `expires_at` is that time or before it. `after` is the place (`requested_at` and `n`) of the last one that
    is not wanted again.
    """

    facets: Mapping[str, str] = field(default_factory=dict)
    pending_id: str | None = None
    since: float | None = None
    until: float | None = None
    expired_at: float | None = None
    newest: bool = False
    # Time and number, since many requests may have the same time. An offset would shift with each decision.
    after: tuple[float, int] | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFilter:
    """Which root checkpoints are wanted: those that all that is given holds for, in the order of `n`, from after number `after` on.

    The order is that in which their branches were made, and within a branch that of its log. `label` is the checkpoint's own;
    `labeled` means any label.
    """

    run_id: str | None = None
    thread_id: str | None = None
    agent: str | None = None
    label: str | None = None
    labeled: bool = False
    after: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which lines of the audit trail are wanted, in the order of `n`, from after number `after` on.

    `since` and `until` bound `at`, both inclusive.
    """

    run_id: str | None = None
    thread_id: str | None = None
    pending_id: str | None = None
    since: float | None = None
    until: float | None = None
    after: int | None = None
    limit: int | None = None

    def allows(self, row: AuditRow) -> bool:
        """Whether what the filter says holds for a line of the trail, but for its place and the limit."""
        return (
            # For stores whose index covers a part of the filter: they read a little more, and drop the rest by this.
            (self.run_id is None or row.run_id == self.run_id)
            and (self.thread_id is None or row.thread_id == self.thread_id)
            and (self.pending_id is None or row.pending_id == self.pending_id)
            and (self.since is None or row.at >= self.since)
            and (self.until is None or row.at <= self.until)
        )


# These three are no errors of the user, and leave the package only as something better: the reader reads on and decides
# again, or says who is first. Each is raised before anything is written.
class Behind(Exception):
    """The writer has not seen the last entry of the log, or who holds the branch now. Nothing was written."""


class Held(Portable, Exception):
    """The claim cannot be taken: `branch` is held by its owner, whose lease has not expired. Nothing was written."""

    def __init__(self, branch: Branch) -> None:
        super().__init__(branch.id)
        self.branch = branch


class Occupied(Portable, Exception):
    """The thread has a branch that is running or suspended. Nothing was written."""

    def __init__(self, branch: Branch) -> None:
        super().__init__(branch.id)
        self.branch = branch

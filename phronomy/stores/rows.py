"""The records that a store keeps, and the filters it is asked with. They are the same for every store, and have no behaviour."""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from phronomy.errors import Portable
from phronomy.foundation.dataclasses import dataclass

if TYPE_CHECKING:
    from phronomy.records.checkpoint import Checkpoint

BranchStatus: TypeAlias = Literal[
    "running", "suspended", "failed", "completed", "rejected", "cancelled", "superseded", "skipped"
]
"""The status of a branch. `failed`: a failure stopped it between two boundaries, and it can be resumed.

The last five mean that the branch has ended.
"""

# Two tuples and not one predicate: SQL and Lua are given the same words, so a store's index and the rules of the base
# cannot part.
OPEN: Final = ("running", "suspended", "failed")
ENDED: Final = ("completed", "rejected", "cancelled", "superseded", "skipped")


# Fixed for ever, as rows are found by this arithmetic. A 63-bit integer then has room for 2**31 branches, each with a
# log of 2**32 entries.
SIZE: Final = 2**32
"""Numbers that each branch has for its log: entry `seq` of branch `n` has the number `n * SIZE + seq`."""

NO_TIME: Final = float(2**62)
"""The time of a request whose own cannot be read. In the order of a list it stands behind all others."""

EARLIEST: Final = -62_135_596_800.0
LATEST: Final = 253_402_300_800.0
"""The years 1 to 9999, those of a calendar in Python: in a row, a time before or after them is damage."""

# The order decides which list is walked. A run has a handful of requests, an agent may have all that there are.
FACETS: Final = ("run", "thread", "label", "tool", "risk", "agent")
"""The names that pending approvals are found by. The one that leaves the fewest rows comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One branch of a run: the run itself, which has the id of the run, or a fork of it.

    `parent_branch` and `parent_seq` name the log from which the branch starts, and the entry after which it starts.
    `seq` is the number of the last entry of its own log, whose first entry comes after `parent_seq`. `head` is the id
    of its last root checkpoint, and `label` is the label of its first. `created_at`, `changed_at` (the time of the last
    write) and `lease_until` are seconds since the epoch, by the store's clock.

    `announced` is the number of the last announced entry; None means that this branch is not announced. `handed` is the
    number of the first entry that was left for a worker: for the one that held the branch, or for the next one if
    nobody held it. It is None if there is none, and becomes None again with the next root checkpoint.
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
    # `handed` is there if a worker let go, or died, with a decision in its log that it had not read, or if the decision
    # was left while nobody held the branch: its status may say suspended, and still there is something to do.
    announced: int | None = None
    handed: int | None = None

    def is_held(self, now: float) -> bool:
        """Whether a worker holds the branch at this time: it has an owner, and the lease has not expired."""
        # An owner whose lease is over is still written down, because it may come back and go on if nobody took over. It
        # just keeps nobody out.
        return self.owner is not None and self.lease_until > now

    @classmethod
    def of(cls, checkpoint: "Checkpoint", **fields: Any) -> "Branch":
        """Make the branch of a checkpoint, with its ids, agent and label."""
        return cls(
            id=checkpoint.branch_id,
            run_id=checkpoint.run_id,
            thread_id=checkpoint.thread_id,
            agent=checkpoint.agent.name,
            label=checkpoint.label,
            **fields,
        )


class DamagedBranch(Branch):
    """A branch in a list whose row is damaged. It has what can be read of that; reading the branch itself raises `CheckpointError`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a log: a row, which has a `checkpoint_id`, or a journal entry, which has none.

    `path` is the path of its nested run; it is empty for a root row. `parent_id` is set only if the parent is not the
    previous row of the same path in the same log. `label` is the label of the checkpoint; only labels of root rows are
    searched.
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
    """A pending approval as a store keeps it: its place, and the request (a `PendingApproval`) as text in `body`.

    `label` is the label of the branch at the time of the request. `requested_at` and `expires_at` are seconds since the
    epoch. At the time `expires_at` something is to be done about the request (None: never): it expires, or a reminder or
    an escalation is to be announced. `n` is a growing number from the store: rows of the same time are in the order of
    `n`.
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
        """The values by which the row can be found, besides its id, by name. Names without a value are left out."""
        # Zipped with `strict`, so a facet that is added in one place only fails in the first test.
        values = (self.run_id, self.thread_id, self.label, self.tool_name, self.risk, self.agent)
        return {name: value for name, value in zip(FACETS, values, strict=True) if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """A record of the audit trail, as text in `body`.

    `at` is in seconds since the epoch, and `n` is a growing number from the store. The record is written together with
    the decision, never changes, and is not deleted with its branch.
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
    """A root checkpoint as a store lists it. `body` is its row, with `created_at`.

    `n` grows in the order of the list.
    """

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
    """The right to write to a branch: its owner, and the fence number that the owner got."""

    branch_id: str
    run_id: str
    owner: str
    fence: int


def holder_of(branch: Branch, now: float) -> Claim:
    """Who is to read what is left on a branch: the worker that holds it at this time, or nobody (the empty text)."""
    owner = branch.owner if branch.is_held(now) else None
    return Claim(branch_id=branch.id, run_id=branch.run_id, owner=owner or "", fence=branch.fence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One atomic write to a branch.

    `seq` is the number of the last entry that the writer has seen. One of these gives the right to write:

    - `claim` is the claim of the writer.
    - `take` names an owner that takes the claim, and is not empty. The branch must be free, or its lease
      expired. `lease` is how many seconds the claim lasts.
    - `holder` is the claim of the worker that holds the branch, as the writer saw it. The journal entries are left for
      that worker. If its `owner` is the empty text, nobody holds the branch: it has no owner, or its lease has expired.
      The entries are left for the worker that drives the branch next.

    `hands_over` says that the entries for a `holder` are to be carried out, so that a worker takes the run up if nobody
    holds it. `release` gives the claim up. `head` and `status` change the branch. `opened` and `closed` change its pending
    approvals. `audit` is added to the trail. `announce` says that the entries from here on are to be announced: if the
    branch's `announced` is None, it becomes `seq`.

    `texts` are kept once for the tenant, each under its SHA-256, which the store computes. `Store.kept_text` returns
    them; they stay when runs are deleted. A change for a `holder` has none.
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
    #
    # Nobody is named for the same reason. A decision may be taken where there is no agent and its tools, such as in a
    # page of approvals: it cannot be carried out there, so nothing is claimed. It must be in the log all the same, and
    # found by whoever drives the run next. If somebody has begun to drive it meanwhile, that worker is the one to tell.
    holder: Claim | None = None
    lease: float = 0.0
    release: bool = False
    # A vote that decides nothing yet is for whoever reads the log next. No worker is to take the run up for it.
    hands_over: bool = True
    head: str | None = None
    status: BranchStatus | None = None
    opened: tuple[PendingRow, ...] = ()
    closed: tuple[str, ...] = ()
    audit: tuple[AuditRow, ...] = ()
    announce: bool = False
    # In the same transaction as the entry that names their digest: in one of its own, a crash would leave a digest that
    # nothing is kept under. The texts and no digests, so that nobody can have a text kept under another's.
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A small text that a store keeps beside the runs, such as a person: under a kind, and a key of its own in that kind.

    `kind` is a short name: a small letter, then small letters, digits, dots, dashes and underscores, 64 characters at
    most. `key` is text of 1 to 1,500 bytes in UTF-8, and `text` has at most 100,000 bytes; neither has NUL characters.
    From the time `expires_at` on (seconds since the epoch, by the store's clock; None: never) the document is not found
    any more.

    `version` names the write that made the document what it is: no other write of any document has the same. In a
    document that is to be written, it is the version that the writer has seen, or the empty text if there must be none.
    """

    kind: str
    key: str
    text: str = field(repr=False)
    # A name and no number: deleted and made anew, a document would have the numbers of the old one again, and a writer
    # that has slept since would write over what it has never seen.
    version: str = ""
    expires_at: float | None = None

    def is_live(self, now: float) -> bool:
        """Whether the document is there at this time."""
        return self.expires_at is None or self.expires_at > now


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """A branch, and the entries that lead to a place in it, oldest first, with those in the logs of its parents."""

    branch: Branch
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFilter:
    """A filter for branches. A branch must match all given values.

    The result has the order in which the branches were made, with `newest` the reverse, and at most `limit` branches. `after` is the
    id of a branch: those that come behind it in this order are wanted, and none if it is gone. `parents` are ids of parent
    branches. `abandoned_at`: the branch is `running`, and nobody holds it at that time. `ended_before`: its status is
    in `ENDED`, and its last write was before that time. `unannounced`: it has entries that are not announced yet
    (`announced` is below `seq`). `handed`: it has entries that were left for a worker, and no root checkpoint after
    them. Times are in seconds since the epoch, by the store's clock.
    """

    run_id: str | None = None
    thread_id: str | None = None
    parents: tuple[str, ...] | None = None
    abandoned_at: float | None = None
    ended_before: float | None = None
    unannounced: bool = False
    handed: bool = False
    newest: bool = False
    after: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFilter:
    """A filter for pending approvals. A row must match all given values.

    The result is oldest first; with `newest`, newest first. `facets` are values by name, as in `PendingRow.facets`.
    `since` and `until` limit `requested_at`; both ends are included. `expired_at`: `expires_at` is that time or before.
    `after` is the place (`requested_at` and `n`) of the last row of the page before.
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
    """A filter for root checkpoints. A row must match all given values.

    The result is in the order of `n`, after number `after`. That is the order in which the branches were made, and
    within a branch the order of its log. `label` is the label of the checkpoint; `labeled` means any label.
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
    """A filter for records of the audit trail. A record must match all given values.

    The result is in the order of `n`, after number `after`. `since` and `until` limit `at`; both ends are included.
    """

    run_id: str | None = None
    thread_id: str | None = None
    pending_id: str | None = None
    since: float | None = None
    until: float | None = None
    after: int | None = None
    limit: int | None = None

    def allows(self, row: AuditRow) -> bool:
        """Whether a record matches the filter, without regard to `after` and `limit`."""
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
    """The writer has not seen the last entry of the log, the present owner of the branch, or the last version of the document.

    Nothing was written.
    """


class Held(Portable, Exception):
    """The claim cannot be taken: the owner of `branch` holds it, and the lease has not expired. Nothing was written."""

    def __init__(self, branch: Branch) -> None:
        super().__init__(branch.id)
        self.branch = branch


class Occupied(Portable, Exception):
    """The thread has another branch that is running, suspended or failed. Nothing was written."""

    def __init__(self, branch: Branch) -> None:
        super().__init__(branch.id)
        self.branch = branch

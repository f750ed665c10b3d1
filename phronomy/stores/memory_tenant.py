"""What a memory store has of one tenant: branches with their logs, indexes into them, and the reads of both.

Writers take turns, but an interrupt can end any of them between two statements. So there is one truth, `Books.lines`, and one
assignment to it makes a change true. Everything else is an index, which may hold more than is true, or less: each reader checks an
index entry against the line that it names. Nothing is ever repaired, as there is nothing that a reader would believe wrongly.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from phronomy.foundation.dataclasses import dataclass
from phronomy.stores.derived.changes import is_wanted, not_found
from phronomy.stores.rows import (
    FACETS,
    SIZE,
    AuditFilter,
    AuditRow,
    Branch,
    BranchFilter,
    CheckpointFilter,
    CheckpointRow,
    Claim,
    Document,
    Entry,
    Lineage,
    PendingFilter,
    PendingRow,
)

Waits: TypeAlias = Mapping[str, PendingRow]
Place: TypeAlias = tuple[float, int]
# Shared by every branch that waits for nothing, which is most of them: it is replaced, never filled.
NOTHING: Final[Waits] = {}


@dataclass(frozen=True, slots=True)
class Line:
    """A branch with its log and what is pending in it. Only the first entries of the log, up to the branch's `seq`,
    count. `n` is the number of the branch."""

    # Frozen, so that a reader who has got hold of a line keeps a whole one: a write makes another and puts it in its
    # place. The log alone is shared between the two. It only grows, and an interrupt may have left entries behind its
    # counted end: that is why the count is in the branch, and not the length of the list.
    n: int
    branch: Branch
    log: list[Entry]
    pending: Waits

    def until(self, seq: int) -> list[Entry]:
        """The entries up to number `seq`."""
        # A lineage may ask for less than the branch has (a fork went on from the middle), or for more (its own numbers
        # begin where the parent's stop).
        return self.log[: max(0, min(seq, self.branch.seq) - self.branch.parent_seq)]

    def row(self, seq: int, checkpoint_id: str) -> Entry | None:
        """The row of this checkpoint, if it is the entry of that number."""
        if not self.branch.parent_seq < seq <= self.branch.seq:
            return None
        # The place was noted before the write became true. If an interrupt came between the two, the entry there is
        # another's: the id decides.
        entry = self.log[seq - self.branch.parent_seq - 1]
        return entry if entry.checkpoint_id == checkpoint_id else None

    def next_root(self, seq: int) -> Entry | None:
        """The root row that follows entry `seq`."""
        first = self.branch.parent_seq
        rest = itertools.islice(self.log, seq - first, self.branch.seq - first)
        return next((entry for entry in rest if is_root(entry)), None)


class Books:
    """The branches of one tenant, and the indexes into them."""

    def __init__(self) -> None:
        # The truth. All below are indexes into it, which may be ahead of it or behind: a reader drops what the lines do
        # not bear out.
        self.lines: dict[str, Line] = {}
        # Root checkpoint id to branch and number: every load begins here.
        self.places: dict[str, tuple[str, int]] = {}
        # Parent checkpoint to the rows that name it; parent branch, thread and run to branches. They are dicts for
        # their order, in which the lists are given out, and because one id is taken away in constant time.
        self.children: dict[str, dict[str, None]] = {}
        self.branches: dict[str, dict[str, None]] = {}
        self.threads: dict[str, dict[str, None]] = {}
        self.runs: dict[str, dict[str, None]] = {}
        # Runs that have ended, in the order in which they did. A run that goes on again may still stand here.
        self.ended: dict[str, None] = {}
        # Runs that were deleted because others have ended since, the last of them last: their texts are accepted from nobody.
        self.forgotten: dict[str, None] = {}
        # Branches in which something was left for a worker: a worker asks for them every second, however many runs there are.
        self.handed: dict[str, None] = {}
        # Pending approvals by number, and for each facet their places, sorted by time: a page of ten thousand requests
        # is found by bisection, not by sorting them anew for each page.
        self.waiting: dict[int, PendingRow] = {}
        self.order: dict[tuple[str, str], list[Place]] = {}
        self.audit: list[AuditRow] = []
        # Texts that are kept once, by digest. Beside the lines, as the trail is: no branch takes one with it.
        self.texts: dict[str, str] = {}
        # Small documents by kind and key, with those whose time is over until somebody deletes them.
        self.documents: dict[tuple[str, str], Document] = {}

    def lineage(self, checkpoint_id: str | None, branch_id: str | None) -> Lineage:
        """The entries that lead to this checkpoint, or to the end of this branch."""
        if checkpoint_id is not None:
            line, row = self.find(checkpoint_id)
            if line is None or row is None:
                raise not_found("checkpoint", checkpoint_id)
            # A checkpoint comes with the journal behind it, up to the next root row: what had happened by then is part
            # of where it stands.
            after = line.next_root(row.seq)
            upto = after.seq - 1 if after is not None else line.branch.seq
        else:
            line = self.lines.get(branch_id or "")
            if line is None:
                raise not_found("branch", branch_id or "")
            upto = line.branch.seq
        branch = line.branch
        logs = [line.until(upto)]
        while line.branch.parent_branch is not None:
            # From each log only what lies before the place where the next one left it. A parent that has grown since
            # shows nothing of that to a branch that went on from it earlier.
            upto = min(upto, line.branch.parent_seq)
            line = self.lines[line.branch.parent_branch]
            logs.append(line.until(upto))
        return Lineage(branch=branch, entries=tuple(itertools.chain.from_iterable(reversed(logs))))

    def find(self, checkpoint_id: str) -> tuple[Line | None, Entry | None]:
        """The line and the row of this root checkpoint."""
        branch_id, seq = self.places.get(checkpoint_id, ("", 0))
        line = self.lines.get(branch_id)
        return line, line.row(seq, checkpoint_id) if line is not None else None

    def held(self, claim: Claim) -> Line | None:
        """The line of a claim, None if it is not the claim's any more."""
        # Owner and fence both: the same worker may have lost its claim and taken it again, and its older writes must
        # not pass.
        line = self.lines.get(claim.branch_id)
        return line if line and (line.branch.owner, line.branch.fence) == (claim.owner, claim.fence) else None

    def lines_of(self, run_id: str | None, thread_id: str | None) -> list[Line]:
        """The lines of a run, or else of a thread, or else all, in the order they were made."""
        ids: Iterable[str] = self.lines
        if run_id is not None:
            ids = self.runs.get(run_id, ())
        elif thread_id is not None:
            ids = self.threads.get(thread_id, ())
        return [self.lines[id] for id in ids if id in self.lines]

    def select_branches(self, wanted: BranchFilter) -> list[Branch]:
        """The branches that are wanted."""
        if wanted.parents is not None:
            # In the order the branches were made, not that of the parents asked for; a parent that is named twice
            # counts once.
            parents = dict.fromkeys(wanted.parents)
            ids = [id for parent in parents for id in self.branches.get(parent, ()) if id in self.lines]
            lines = sorted((self.lines[id] for id in ids), key=lambda line: line.n)
        elif wanted.handed and wanted.run_id is None and wanted.thread_id is None:
            lines = sorted((self.lines[id] for id in self.handed if id in self.lines), key=lambda line: line.n)
        else:
            lines = self.lines_of(wanted.run_id, wanted.thread_id)
        found = (line.branch for line in self._behind(lines, wanted) if is_wanted(line.branch, wanted))
        return list(itertools.islice(found, wanted.limit))

    def _behind(self, lines: Sequence[Line], wanted: BranchFilter) -> Iterable[Line]:
        """These lines in the order that is wanted, from the place on that is wanted."""
        if wanted.after is not None:
            if (last := self.lines.get(wanted.after)) is None:
                return ()
            place = bisect_left(lines, last.n, key=lambda line: line.n)
            lines = lines[:place] if wanted.newest else lines[place + 1 :]
        return reversed(lines) if wanted.newest else lines

    def select_pending(self, wanted: PendingFilter) -> Iterator[PendingRow]:
        """The pending approvals that are wanted, by the list of one facet."""
        return (row for row, _ in self.select_waiting(wanted))

    def select_waiting(self, wanted: PendingFilter) -> Iterator[tuple[PendingRow, Branch]]:
        """As `select_pending`, each with its branch."""
        facets = dict(wanted.facets)
        if wanted.pending_id is not None:
            facets["id"] = wanted.pending_id
        # The list that leaves fewest is walked, the other facets are compared row by row.
        by = next((name for name in ("id", *FACETS) if name in facets), "")
        if not by and wanted.expired_at is not None:
            by = "expires"
        places = self.order.get((by, facets.get(by, "")), [])
        first, last = 0, len(places)
        if wanted.since is not None:
            first = bisect_left(places, (wanted.since, 0))
        if wanted.until is not None:
            last = bisect_left(places, (wanted.until, SIZE**2))
        # The cursor is a place in the order (time and number), not a count of rows: what is decided while somebody
        # turns pages shifts nothing.
        if wanted.after is not None and wanted.newest:
            last = min(last, bisect_left(places, wanted.after))
        elif wanted.after is not None:
            first = max(first, bisect_right(places, wanted.after))
        numbers = range(last - 1, first - 1, -1) if wanted.newest else range(first, last)
        for place in numbers:
            row = self.waiting.get(places[place][1])
            line = self.lines.get(row.branch_id) if row is not None else None
            # The lists may hold a request that a write has just closed, or that an interrupted one announced too early.
            # The line knows.
            if row is None or line is None or line.pending.get(row.pending_id) is not row:
                continue
            own = {**row.facets(), "id": row.pending_id}
            if all(own.get(name) == value for name, value in facets.items()) and (
                wanted.expired_at is None or (row.expires_at is not None and row.expires_at <= wanted.expired_at)
            ):
                # The head at this moment: a run may have gone on since the request was made, and a decision is to be
                # handed to where it stands.
                yield replace(row, checkpoint_id=line.branch.head or ""), line.branch

    def select_checkpoints(self, wanted: CheckpointFilter) -> Iterator[CheckpointRow]:
        """The root checkpoints that are wanted, but for the limit."""
        for line in self.lines_of(wanted.run_id, wanted.thread_id):
            branch = line.branch
            if wanted.thread_id not in (None, branch.thread_id) or wanted.agent not in (None, branch.agent):
                continue
            # Number of the branch and number in its log make one number: it grows along the list, so it serves as the
            # cursor.
            for entry in line.until(branch.seq):
                n = line.n * SIZE + entry.seq
                if not is_root(entry) or (wanted.after is not None and n <= wanted.after):
                    continue
                if wanted.label in (None, entry.label) and not (wanted.labeled and entry.label is None):
                    yield CheckpointRow(
                        checkpoint_id=entry.checkpoint_id or "",
                        branch_id=branch.id,
                        run_id=branch.run_id,
                        thread_id=branch.thread_id,
                        agent=branch.agent,
                        label=entry.label,
                        body=entry.body,
                        n=n,
                    )

    def select_audit(self, wanted: AuditFilter) -> Iterator[AuditRow]:
        """The lines of the trail that are wanted, but for the limit."""
        return (row for row in self.audit if row.n > (wanted.after or 0) and wanted.allows(row))

    def child_ids(self, checkpoint_id: str) -> list[str]:
        """The ids of the root checkpoints that go on from this one, in the order of their branches."""
        # An index entry may be left over, or name a row that another write has replaced: the row itself must name the
        # parent.
        rows = [self.find(child)[1] for child in self.children.get(checkpoint_id, ())]
        found = [row for row in rows if row is not None and row.parent_id == checkpoint_id]
        line, place = self.find(checkpoint_id)
        if line is not None and place is not None:
            after = line.next_root(place.seq)
            # Within a branch a row names no parent where that is the row before it. It is in no index, and found by its
            # place.
            found += [after] if after is not None and after.parent_id is None else []
        found.sort(key=lambda row: (self.lines[row.branch_id].n, row.seq))
        return [row.checkpoint_id or "" for row in found]

    def unlist(self, row: PendingRow | None) -> None:
        """Take a pending approval out of its lists."""
        if row is None or self.waiting.pop(row.n, None) is None:
            return
        for facet in lists_of(row):
            places = self.order.get(facet, [])
            at = bisect_left(places, (row.requested_at, row.n))
            if at < len(places) and places[at] == (row.requested_at, row.n):
                del places[at]
            if not places:
                self.order.pop(facet, None)

    def note_end(self, run_id: str) -> None:
        """Note that a run has ended last."""
        self.ended.pop(run_id, None)
        self.ended[run_id] = None

    def note_forgotten(self, run_id: str, most: int) -> None:
        """Note that a run goes since others have ended, and drop the oldest such notes above `most`."""
        self.forgotten[run_id] = None
        while len(self.forgotten) > most:
            del self.forgotten[next(iter(self.forgotten))]

    def forget(self, line: Line) -> None:
        """Take a branch that is gone out of the indexes."""
        for row in line.pending.values():
            self.unlist(row)
        for entry in line.until(line.branch.seq):
            if entry.checkpoint_id is not None and self.places.get(entry.checkpoint_id, ("", 0))[0] == line.branch.id:
                del self.places[entry.checkpoint_id]
                drop_under(self.children, entry.parent_id, entry.checkpoint_id)
        drop_under(self.runs, line.branch.run_id, line.branch.id)
        if line.branch.run_id not in self.runs:
            self.ended.pop(line.branch.run_id, None)
        drop_under(self.threads, line.branch.thread_id, line.branch.id)
        drop_under(self.branches, line.branch.parent_branch, line.branch.id)
        self.branches.pop(line.branch.id, None)
        self.handed.pop(line.branch.id, None)


def lists_of(row: PendingRow) -> list[tuple[str, str]]:
    """The lists that a pending approval stands in."""
    lists = [("", ""), ("id", row.pending_id), *row.facets().items()]
    return [*lists, ("expires", "")] if row.expires_at is not None else lists


def is_root(entry: Entry) -> bool:
    """Whether the entry is a row of the run itself: a checkpoint that an id can name."""
    return entry.checkpoint_id is not None and entry.path == ""


def note_under(index: dict[str, dict[str, None]], key: str | None, id: str) -> None:
    """Note `id` as the last one under `key`."""
    if key is not None:
        ids = index.setdefault(key, {})
        ids.pop(id, None)
        ids[id] = None


def drop_under(index: dict[str, dict[str, None]], key: str | None, id: str) -> None:
    """Take `id` away from under `key`."""
    ids = index.get(key or "")
    if ids is not None:
        ids.pop(id, None)
        if not ids:
            del index[key or ""]

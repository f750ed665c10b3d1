"""`MemoryStore`, which keeps everything in this process."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from phronomy.stores._alone import Alone
from phronomy.stores._changes import (
    check_change,
    check_new,
    check_parent,
    check_thread,
    grown,
    lost,
    not_found,
    one_place,
    taken_id,
)
from phronomy.stores.base import (
    Append,
    Branch,
    BranchStatus,
    Claim,
    Entry,
    Lineage,
    PendingRow,
    Store,
)

_Pending: TypeAlias = Mapping[str, tuple[int, PendingRow]]
_NOTHING: Final[_Pending] = {}


@dataclass(frozen=True, slots=True)
class _Line:
    """A branch with its log and what is pending in it. Only the first entries of the log, up to the branch's `seq`,
    count."""

    branch: Branch
    log: list[Entry]
    pending: _Pending

    def until(self, seq: int) -> list[Entry]:
        """The entries up to number `seq`."""
        return self.log[: max(0, min(seq, self.branch.seq) - self.branch.parent_seq)]

    def row(self, seq: int, checkpoint_id: str) -> Entry | None:
        """The row of this checkpoint, if it is the entry of that number."""
        if not self.branch.parent_seq < seq <= self.branch.seq:
            return None
        entry = self.log[seq - self.branch.parent_seq - 1]
        return entry if entry.checkpoint_id == checkpoint_id else None

    def next_root(self, seq: int) -> Entry | None:
        """The root row that follows entry `seq`."""
        first = self.branch.parent_seq
        rest = itertools.islice(self.log, seq - first, self.branch.seq - first)
        return next((entry for entry in rest if _is_root(entry)), None)


class MemoryStore(Store):
    """Keeps checkpoints in this process, for as long as it lives. Safe to use from any thread.

    Copying a memory store by `os.fork` gives two that know nothing of each other.
    """

    blocking = False

    def __init__(self, *, clock: Callable[[], float] = time.time, lease: float = 30.0) -> None:
        super().__init__(clock=clock, lease=lease)
        self._alone = Alone()
        self._count = itertools.count()
        # A change becomes true by one assignment to `_lines`. What the other dicts say is checked against it, so an
        # interrupt between two statements leaves at worst an entry that is ignored.
        self._lines: dict[str, _Line] = {}
        self._places: dict[str, tuple[str, int]] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._threads: dict[str, dict[str, None]] = {}
        self._runs: dict[str, dict[str, None]] = {}

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        check_new(branch, change)
        self._alone(lambda: self._create(branch, change, exclusive))

    def append(self, change: Append) -> Branch:
        check_change(change)
        return self._alone(lambda: self._append(change))

    def renew(self, claim: Claim) -> Branch:
        return self._alone(lambda: self._renew(claim))

    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        self._alone(lambda: self._release(claim, status))

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        one_place(checkpoint_id, branch_id)
        return self._alone(lambda: self._lineage(checkpoint_id, branch_id))

    def branches(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[Branch]:
        return self._alone(lambda: [line.branch for line in self._select(run_id, thread_id)])

    def pending_rows(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[PendingRow]:
        return self._alone(lambda: self._pending_rows(run_id, thread_id))

    def child_ids(self, checkpoint_id: str) -> list[str]:
        return self._alone(lambda: self._child_ids(checkpoint_id))

    def _create(self, branch: Branch, change: Append, exclusive: bool) -> None:
        if exclusive and branch.thread_id is not None:
            check_thread(branch, [line.branch for line in self._select(None, branch.thread_id)])
        parent = self._lines.get(branch.parent_branch or "")
        check_parent(branch, parent.branch if parent else None)
        after = grown(branch, change, now=self.clock(), lease=self.lease)
        if branch.id in self._lines:
            raise taken_id("branch", branch.id)
        self._write(branch.seq, after, [], self._pending_after(_NOTHING, after, change), change.entries)

    def _append(self, change: Append) -> Branch:
        line = self._lines.get(change.branch_id)
        if line is None:
            raise not_found("branch", change.branch_id)
        before = line.branch
        after = grown(before, change, now=self.clock(), lease=self.lease)
        self._write(before.seq, after, line.log, self._pending_after(line.pending, after, change), change.entries)
        return after

    def _write(self, seq: int, after: Branch, log: list[Entry], pending: _Pending, entries: Sequence[Entry]) -> None:
        rows: dict[str, Entry] = {}
        fresh: list[Entry] = []
        for number, entry in enumerate(entries, seq + 1):
            fresh.append(replace(entry, branch_id=after.id, seq=number))
            if entry.checkpoint_id is not None and entry.path == "":
                if entry.checkpoint_id in rows or self._find(entry.checkpoint_id)[1] is not None:
                    raise taken_id("checkpoint", entry.checkpoint_id)
                rows[entry.checkpoint_id] = fresh[-1]
        if after.id not in self._lines:
            _index(self._runs, after.run_id, after.id)
            _index(self._threads, after.thread_id, after.id)
        for id, row in rows.items():
            self._places[id] = (after.id, row.seq)
            _index(self._children, row.parent_id, id)
        log[seq - after.parent_seq :] = fresh
        self._lines[after.id] = _Line(after, log, pending)

    def _pending_after(self, pending: _Pending, after: Branch, change: Append) -> _Pending:
        if not change.opened and not change.closed:
            return pending
        now = {id: item for id, item in pending.items() if id not in change.closed}
        for row in change.opened:
            if row.pending_id in now:
                raise taken_id("pending approval", row.pending_id)
            row = replace(row, branch_id=after.id, run_id=after.run_id, thread_id=after.thread_id)
            now[row.pending_id] = (next(self._count), row)
        return now

    def _renew(self, claim: Claim) -> Branch:
        line = self._held(claim)
        if line is None:
            raise lost(claim)
        branch = replace(line.branch, lease_until=self.clock() + self.lease)
        self._lines[branch.id] = _Line(branch, line.log, line.pending)
        return branch

    def _release(self, claim: Claim, status: BranchStatus | None) -> None:
        line = self._held(claim)
        if line is not None:
            branch = replace(line.branch, owner=None, lease_until=0.0, status=status or line.branch.status)
            self._lines[branch.id] = _Line(branch, line.log, line.pending)

    def _held(self, claim: Claim) -> _Line | None:
        line = self._lines.get(claim.branch_id)
        return line if line and (line.branch.owner, line.branch.fence) == (claim.owner, claim.fence) else None

    def _lineage(self, checkpoint_id: str | None, branch_id: str | None) -> Lineage:
        if checkpoint_id is not None:
            line, row = self._find(checkpoint_id)
            if line is None or row is None:
                raise not_found("checkpoint", checkpoint_id)
            after = line.next_root(row.seq)
            upto = after.seq - 1 if after is not None else line.branch.seq
        else:
            line = self._lines.get(branch_id or "")
            if line is None:
                raise not_found("branch", branch_id or "")
            upto = line.branch.seq
        branch = line.branch
        logs = [line.until(upto)]
        while line.branch.parent_branch is not None:
            upto = min(upto, line.branch.parent_seq)
            line = self._lines[line.branch.parent_branch]
            logs.append(line.until(upto))
        return Lineage(branch=branch, entries=tuple(itertools.chain.from_iterable(reversed(logs))))

    def _find(self, checkpoint_id: str) -> tuple[_Line | None, Entry | None]:
        """The line and the row of this root checkpoint."""
        branch_id, seq = self._places.get(checkpoint_id, ("", 0))
        line = self._lines.get(branch_id)
        return line, line.row(seq, checkpoint_id) if line is not None else None

    def _select(self, run_id: str | None, thread_id: str | None) -> list[_Line]:
        ids: Iterable[str] = self._lines
        if run_id is not None:
            ids = self._runs.get(run_id, ())
        elif thread_id is not None:
            ids = self._threads.get(thread_id, ())
        lines = [self._lines[id] for id in ids if id in self._lines]
        return [line for line in lines if thread_id is None or line.branch.thread_id == thread_id]

    def _pending_rows(self, run_id: str | None, thread_id: str | None) -> list[PendingRow]:
        found: list[tuple[float, int, PendingRow]] = []
        for line in self._select(run_id, thread_id):
            for number, row in line.pending.values():
                found.append((row.requested_at, number, replace(row, checkpoint_id=line.branch.head or "")))
        return [row for *_, row in sorted(found, key=lambda item: item[:2])]

    def _child_ids(self, checkpoint_id: str) -> list[str]:
        rows = [self._find(child)[1] for child in self._children.get(checkpoint_id, ())]
        found = [row for row in rows if row is not None and row.parent_id == checkpoint_id]
        line, place = self._find(checkpoint_id)
        if line is not None and place is not None:
            after = line.next_root(place.seq)
            found += [after] if after is not None and after.parent_id is None else []
        order = {id: number for number, id in enumerate(self._lines)}
        found.sort(key=lambda row: (order[row.branch_id], row.seq))
        return [row.checkpoint_id or "" for row in found]


def _is_root(entry: Entry) -> bool:
    return entry.checkpoint_id is not None and entry.path == ""


def _index(index: dict[str, dict[str, None]], key: str | None, id: str) -> None:
    """Note `id` as the last one under `key`."""
    if key is not None:
        ids = index.setdefault(key, {})
        ids.pop(id, None)
        ids[id] = None

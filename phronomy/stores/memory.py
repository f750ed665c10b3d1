"""`MemoryStore`, which keeps everything in this process."""

from __future__ import annotations

import copy
import itertools
import os
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, TypeAlias, TypeVar
from weakref import WeakSet

from phronomy.errors import StoreError
from phronomy.foundation.quoting import quoted
from phronomy.stores.alone import Alone
from phronomy.stores.base import Store, checked_tenant
from phronomy.stores.derived import retention
from phronomy.stores.derived.changes import (
    check_change,
    check_new,
    check_parent,
    check_removal,
    check_thread,
    grown,
    is_wanted,
    lost,
    not_found,
    one_place,
    taken_id,
)
from phronomy.stores.homes import HOMES, Homes
from phronomy.stores.rows import (
    ENDED,
    FACETS,
    SIZE,
    Append,
    AuditFilter,
    AuditRow,
    Behind,
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

T = TypeVar("T")

_Pending: TypeAlias = Mapping[str, PendingRow]
_Place: TypeAlias = tuple[float, int]
_NOTHING: Final[_Pending] = {}


@dataclass(frozen=True, slots=True)
class _Line:
    """A branch with its log and what is pending in it. Only the first entries of the log, up to the branch's `seq`,
    count. `n` is the number of the branch."""

    n: int
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


class _Tenant:
    """What one tenant has.

    A change becomes true by one assignment to `lines`. What the indexes say is checked against it, so an interrupt between two
    statements leaves at worst an entry that is ignored.
    """

    def __init__(self) -> None:
        self.lines: dict[str, _Line] = {}
        self.places: dict[str, tuple[str, int]] = {}
        self.children: dict[str, dict[str, None]] = {}
        self.branches: dict[str, dict[str, None]] = {}
        self.threads: dict[str, dict[str, None]] = {}
        self.runs: dict[str, dict[str, None]] = {}
        self.waiting: dict[int, PendingRow] = {}
        self.order: dict[tuple[str, str], list[_Place]] = {}
        self.audit: list[AuditRow] = []


class MemoryStore(Store):
    """Keeps checkpoints in this process, for as long as it lives. Safe to use from any thread.

    With `max_checkpoints` there is a bound: beyond it the oldest runs that have ended are taken away, first in, first out, or
    spared if a checkpoint of theirs has a label and `keep_labeled` is on. What waits for a human or can be resumed is never taken
    away, nor is the run that was just written to, so there may be more than that. Copying a memory store by `os.fork` gives two
    that know nothing of each other.
    """

    blocking = False

    def __init__(
        self,
        *,
        tenant: str = "",
        clock: Callable[[], float] = time.time,
        lease: float = 30.0,
        ttl: float | None = None,
        max_checkpoints: int | None = None,
        keep_labeled: bool = False,
    ) -> None:
        super().__init__(tenant=tenant, clock=clock, lease=lease, ttl=ttl)
        if max_checkpoints is not None and (type(max_checkpoints) is not int or max_checkpoints < 1):
            raise StoreError(f"max_checkpoints is a whole number, 1 or more, or None, not {quoted(max_checkpoints)}")
        if not isinstance(keep_labeled, bool):
            raise StoreError(f"keep_labeled is True or False, not {type(keep_labeled).__name__}")
        self._most = max_checkpoints
        self._keep_labeled = keep_labeled
        self._alone = Alone()
        _STORES.add(self)
        self._count = itertools.count(1)
        self._tenants: dict[str, _Tenant] = {}
        self._homes: Homes | None = None

    @classmethod
    def of_agent(cls) -> Self:
        """The store of an agent that was given none: where its runs are is known in the whole process."""
        store = cls()
        store._homes = HOMES
        return store

    def home_of(self, run_id: str, checkpoint_id: str) -> MemoryStore:
        """The store of this process that has the run of a checkpoint: this one, unless it is the store of another agent without one."""
        if self._homes is None or checkpoint_id in self._mine.places:
            return self
        return self._homes.of(run_id, self)

    def for_tenant(self, tenant: str) -> Self:
        other = copy.copy(self)
        other.tenant = checked_tenant(tenant)
        return other

    @property
    def _mine(self) -> _Tenant:
        found = self._tenants.get(self.tenant)
        return self._tenants.setdefault(self.tenant, _Tenant()) if found is None else found

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        check_new(branch, change)
        self._alone(self._create, self._mine, branch, change, exclusive)
        self._rests(replace(branch, status=change.status or branch.status))
        self._evict(branch.run_id)

    def append(self, change: Append) -> Branch:
        check_change(change)
        after = self._alone(self._append, self._mine, change)
        self._rests(after)
        self._evict(after.run_id)
        return after

    def renew(self, claim: Claim) -> Branch:
        return self._alone(self._renew, self._mine, claim)

    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        branch = self._alone(self._release, self._mine, claim, status)
        if branch is not None:
            self._rests(branch)

    def announced(self, branch_id: str, seq: int) -> None:
        self._alone(self._announced, self._mine, branch_id, seq)

    def remove(self, branches: Mapping[str, int], detached: Mapping[str, Sequence[Entry]]) -> None:
        self._alone(self._remove, self._mine, branches, detached)

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        one_place(checkpoint_id, branch_id)
        return self._alone(_lineage, self._mine, checkpoint_id, branch_id)

    def select_branches(self, wanted: BranchFilter) -> list[Branch]:
        return self._alone(_select_branches, self._mine, wanted)

    def select_pending(self, wanted: PendingFilter) -> list[PendingRow]:
        return self._alone(lambda: list(itertools.islice(_pending(self._mine, wanted), wanted.limit)))

    def count_pending(self, wanted: PendingFilter) -> int:
        return self._alone(lambda: sum(1 for _ in _pending(self._mine, replace(wanted, after=None))))

    def select_checkpoints(self, wanted: CheckpointFilter) -> list[CheckpointRow]:
        return self._alone(lambda: list(itertools.islice(_checkpoints(self._mine, wanted), wanted.limit)))

    def select_audit(self, wanted: AuditFilter) -> list[AuditRow]:
        return self._alone(lambda: list(itertools.islice(_audit(self._mine, wanted), wanted.limit)))

    def child_ids(self, checkpoint_id: str) -> list[str]:
        return self._alone(_child_ids, self._mine, checkpoint_id)

    # What the primitives do, alone

    def _create(self, mine: _Tenant, branch: Branch, change: Append, exclusive: bool) -> None:
        if exclusive and branch.thread_id is not None:
            check_thread(branch, [line.branch for line in _lines(mine, None, branch.thread_id)])
        parent = mine.lines.get(branch.parent_branch or "")
        check_parent(branch, parent.branch if parent else None)
        after = grown(branch, change, now=self.clock(), lease=self.lease)
        if branch.id in mine.lines:
            raise taken_id("branch", branch.id)
        self._write(mine, _Line(next(self._count), branch, [], _NOTHING), after, change)

    def _append(self, mine: _Tenant, change: Append) -> Branch:
        line = mine.lines.get(change.branch_id)
        if line is None:
            raise not_found("branch", change.branch_id)
        after = grown(line.branch, change, now=self.clock(), lease=self.lease)
        self._write(mine, line, after, change)
        return after

    def _write(self, mine: _Tenant, line: _Line, after: Branch, change: Append) -> None:
        rows: dict[str, Entry] = {}
        fresh: list[Entry] = []
        seq = line.branch.seq
        for number, entry in enumerate(change.entries, seq + 1):
            fresh.append(replace(entry, branch_id=after.id, seq=number))
            if entry.checkpoint_id is not None and entry.path == "":
                if entry.checkpoint_id in rows or _find(mine, entry.checkpoint_id)[1] is not None:
                    raise taken_id("checkpoint", entry.checkpoint_id)
                rows[entry.checkpoint_id] = fresh[-1]
        pending = self._pending_after(mine, line.pending, after, change)
        if after.id not in mine.lines:
            _index(mine.runs, after.run_id, after.id)
            _index(mine.threads, after.thread_id, after.id)
            _index(mine.branches, after.parent_branch, after.id)
        for id, row in rows.items():
            mine.places[id] = (after.id, row.seq)
            _index(mine.children, row.parent_id, id)
        audit = [replace(row, n=next(self._count)) for row in change.audit]
        line.log[seq - after.parent_seq :] = fresh
        mine.lines[after.id] = _Line(line.n, after, line.log, pending)
        mine.audit += audit
        for pending_id in change.closed:
            _unlist(mine, line.pending.get(pending_id))

    def _pending_after(self, mine: _Tenant, pending: _Pending, after: Branch, change: Append) -> _Pending:
        if not change.opened and not change.closed:
            return pending
        now = {id: row for id, row in pending.items() if id not in change.closed}
        for row in change.opened:
            if row.pending_id in now:
                raise taken_id("pending approval", row.pending_id)
            number = next(self._count)
            row = replace(row, branch_id=after.id, run_id=after.run_id, thread_id=after.thread_id, n=number)
            now[row.pending_id] = row
        for row in now.values():
            if row.n not in mine.waiting:
                mine.waiting[row.n] = row
                for facet in _lists(row):
                    insort(mine.order.setdefault(facet, []), (row.requested_at, row.n))
        return now

    def _renew(self, mine: _Tenant, claim: Claim) -> Branch:
        line = _held(mine, claim)
        if line is None:
            raise lost(claim)
        branch = replace(line.branch, lease_until=self.clock() + self.lease)
        mine.lines[branch.id] = replace(line, branch=branch)
        return branch

    def _release(self, mine: _Tenant, claim: Claim, status: BranchStatus | None) -> Branch | None:
        line = _held(mine, claim)
        if line is None:
            return None
        branch = replace(line.branch, owner=None, lease_until=0.0, status=status or line.branch.status)
        mine.lines[branch.id] = replace(line, branch=branch)
        return branch

    def _rests(self, branch: Branch) -> None:
        """Have it known where a run is that somebody may be handed a checkpoint of."""
        if self._homes is not None and branch.status in ("suspended", "failed"):
            self._homes.note(branch.run_id, self)

    def _announced(self, mine: _Tenant, branch_id: str, seq: int) -> None:
        line = mine.lines.get(branch_id)
        if line is None:
            raise not_found("branch", branch_id)
        if line.branch.announced is not None and line.branch.announced < seq:
            mine.lines[branch_id] = replace(line, branch=replace(line.branch, announced=seq))

    def _remove(self, mine: _Tenant, branches: Mapping[str, int], detached: Mapping[str, Sequence[Entry]]) -> None:
        now = self.clock()
        for branch_id, seq in branches.items():
            line = mine.lines.get(branch_id)
            check_removal(line.branch if line else None, branch_id, seq, now)
            for child in mine.branches.get(branch_id, ()):
                if child in mine.lines and child not in branches and child not in detached:
                    raise Behind(child)
        after = dict(mine.lines)
        for branch_id, entries in detached.items():
            line = after.get(branch_id)
            if line is None:
                raise Behind(branch_id)
            log = list(line.log)
            for entry in entries:
                log[entry.seq - line.branch.parent_seq - 1] = entry
            after[branch_id] = replace(line, branch=replace(line.branch, parent_branch=None), log=log)
        gone = [after.pop(branch_id) for branch_id in branches]
        mine.lines = after
        for line in gone:
            _forget(mine, line)

    # The bound

    def _evict(self, newest: str) -> None:
        if self._most is None:
            return
        for run_id in self._alone(self._surplus, self._mine, self._most or 0):
            if run_id == newest:
                continue
            run = self.branches(run_id=run_id)
            if run and not retention.spared(self, run, self._keep_labeled, 0):
                retention.take_away(self, run)
            if len(self._mine.places) <= self._most:
                return

    def _surplus(self, mine: _Tenant, most: int) -> list[str]:
        """The runs that have ended, oldest first, if there are more checkpoints than that."""
        if len(mine.places) <= most:
            return []
        return [
            run_id
            for run_id, ids in mine.runs.items()
            if all(mine.lines[id].branch.status in ENDED for id in ids if id in mine.lines)
        ]


# Reading, and the indexes


def _lineage(mine: _Tenant, checkpoint_id: str | None, branch_id: str | None) -> Lineage:
    if checkpoint_id is not None:
        line, row = _find(mine, checkpoint_id)
        if line is None or row is None:
            raise not_found("checkpoint", checkpoint_id)
        after = line.next_root(row.seq)
        upto = after.seq - 1 if after is not None else line.branch.seq
    else:
        line = mine.lines.get(branch_id or "")
        if line is None:
            raise not_found("branch", branch_id or "")
        upto = line.branch.seq
    branch = line.branch
    logs = [line.until(upto)]
    while line.branch.parent_branch is not None:
        upto = min(upto, line.branch.parent_seq)
        line = mine.lines[line.branch.parent_branch]
        logs.append(line.until(upto))
    return Lineage(branch=branch, entries=tuple(itertools.chain.from_iterable(reversed(logs))))


def _find(mine: _Tenant, checkpoint_id: str) -> tuple[_Line | None, Entry | None]:
    """The line and the row of this root checkpoint."""
    branch_id, seq = mine.places.get(checkpoint_id, ("", 0))
    line = mine.lines.get(branch_id)
    return line, line.row(seq, checkpoint_id) if line is not None else None


def _held(mine: _Tenant, claim: Claim) -> _Line | None:
    line = mine.lines.get(claim.branch_id)
    return line if line and (line.branch.owner, line.branch.fence) == (claim.owner, claim.fence) else None


def _lines(mine: _Tenant, run_id: str | None, thread_id: str | None) -> list[_Line]:
    ids: Iterable[str] = mine.lines
    if run_id is not None:
        ids = mine.runs.get(run_id, ())
    elif thread_id is not None:
        ids = mine.threads.get(thread_id, ())
    return [mine.lines[id] for id in ids if id in mine.lines]


def _select_branches(mine: _Tenant, wanted: BranchFilter) -> list[Branch]:
    if wanted.parents is not None:
        parents = dict.fromkeys(wanted.parents)
        ids = [id for parent in parents for id in mine.branches.get(parent, ()) if id in mine.lines]
        lines = sorted((mine.lines[id] for id in ids), key=lambda line: line.n)
    else:
        lines = _lines(mine, wanted.run_id, wanted.thread_id)
    found = (line.branch for line in lines if is_wanted(line.branch, wanted))
    return list(itertools.islice(found, wanted.limit))


def _pending(mine: _Tenant, wanted: PendingFilter) -> Iterator[PendingRow]:
    """The pending approvals that are wanted, by the list of one facet."""
    facets = dict(wanted.facets)
    if wanted.pending_id is not None:
        facets["id"] = wanted.pending_id
    by = next((name for name in ("id", *FACETS) if name in facets), "")
    if not by and wanted.expired_at is not None:
        by = "expires"
    places = mine.order.get((by, facets.get(by, "")), [])
    first, last = 0, len(places)
    if wanted.since is not None:
        first = bisect_left(places, (wanted.since, 0))
    if wanted.until is not None:
        last = bisect_left(places, (wanted.until, SIZE**2))
    if wanted.after is not None and wanted.newest:
        last = min(last, bisect_left(places, wanted.after))
    elif wanted.after is not None:
        first = max(first, bisect_right(places, wanted.after))
    numbers = range(last - 1, first - 1, -1) if wanted.newest else range(first, last)
    for place in numbers:
        row = mine.waiting.get(places[place][1])
        line = mine.lines.get(row.branch_id) if row is not None else None
        if row is None or line is None or line.pending.get(row.pending_id) is not row:
            continue
        own = {**row.facets(), "id": row.pending_id}
        if all(own.get(name) == value for name, value in facets.items()) and (
            wanted.expired_at is None or (row.expires_at is not None and row.expires_at <= wanted.expired_at)
        ):
            yield replace(row, checkpoint_id=line.branch.head or "")


def _checkpoints(mine: _Tenant, wanted: CheckpointFilter) -> Iterator[CheckpointRow]:
    for line in _lines(mine, wanted.run_id, wanted.thread_id):
        branch = line.branch
        if (wanted.thread_id is not None and branch.thread_id != wanted.thread_id) or (
            wanted.agent is not None and branch.agent != wanted.agent
        ):
            continue
        for entry in line.until(branch.seq):
            n = line.n * SIZE + entry.seq
            if not _is_root(entry) or (wanted.after is not None and n <= wanted.after):
                continue
            if (wanted.label is None or entry.label == wanted.label) and not (wanted.labeled and entry.label is None):
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


def _audit(mine: _Tenant, wanted: AuditFilter) -> Iterator[AuditRow]:
    for row in mine.audit:
        if (wanted.after is None or row.n > wanted.after) and wanted.allows(row):
            yield row


def _child_ids(mine: _Tenant, checkpoint_id: str) -> list[str]:
    rows = [_find(mine, child)[1] for child in mine.children.get(checkpoint_id, ())]
    found = [row for row in rows if row is not None and row.parent_id == checkpoint_id]
    line, place = _find(mine, checkpoint_id)
    if line is not None and place is not None:
        after = line.next_root(place.seq)
        found += [after] if after is not None and after.parent_id is None else []
    found.sort(key=lambda row: (mine.lines[row.branch_id].n, row.seq))
    return [row.checkpoint_id or "" for row in found]


def _lists(row: PendingRow) -> list[tuple[str, str]]:
    """The lists that a pending approval stands in."""
    lists = [("", ""), ("id", row.pending_id), *row.facets().items()]
    return [*lists, ("expires", "")] if row.expires_at is not None else lists


def _unlist(mine: _Tenant, row: PendingRow | None) -> None:
    """Take a pending approval out of its lists."""
    if row is None or mine.waiting.pop(row.n, None) is None:
        return
    for facet in _lists(row):
        places = mine.order.get(facet, [])
        at = bisect_left(places, (row.requested_at, row.n))
        if at < len(places) and places[at] == (row.requested_at, row.n):
            del places[at]
        if not places:
            mine.order.pop(facet, None)


def _forget(mine: _Tenant, line: _Line) -> None:
    """Take a branch that is gone out of the indexes."""
    for row in line.pending.values():
        _unlist(mine, row)
    for entry in line.until(line.branch.seq):
        if entry.checkpoint_id is not None and mine.places.get(entry.checkpoint_id, ("", 0))[0] == line.branch.id:
            del mine.places[entry.checkpoint_id]
            _drop(mine.children, entry.parent_id, entry.checkpoint_id)
    _drop(mine.runs, line.branch.run_id, line.branch.id)
    _drop(mine.threads, line.branch.thread_id, line.branch.id)
    _drop(mine.branches, line.branch.parent_branch, line.branch.id)
    mine.branches.pop(line.branch.id, None)


def _is_root(entry: Entry) -> bool:
    return entry.checkpoint_id is not None and entry.path == ""


def _index(index: dict[str, dict[str, None]], key: str | None, id: str) -> None:
    """Note `id` as the last one under `key`."""
    if key is not None:
        ids = index.setdefault(key, {})
        ids.pop(id, None)
        ids[id] = None


def _drop(index: dict[str, dict[str, None]], key: str | None, id: str) -> None:
    """Take `id` away from under `key`."""
    ids = index.get(key or "")
    if ids is not None:
        ids.pop(id, None)
        if not ids:
            del index[key or ""]


_STORES: Final[WeakSet[MemoryStore]] = WeakSet()
_FORKING: Final[list[MemoryStore]] = []


def _before_fork() -> None:
    """Keep all others out, so that the child gets no store that is half changed, or held by a thread that it does not have."""
    for store in list(_STORES):
        if not store._alone.inside:
            store._alone.lock.acquire()
            _FORKING.append(store)


def _after_fork() -> None:
    while _FORKING:
        _FORKING.pop()._alone.lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)

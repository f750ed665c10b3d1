"""What the stores on SQL databases have in common: the primitives, as statements of one transaction or of one read."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

from phronomy.errors import StoreError
from phronomy.stores import _select, _sql
from phronomy.stores._changes import (
    check_change,
    check_new,
    check_parent,
    check_removal,
    check_thread,
    grown,
    lost,
    not_found,
    one_place,
    taken_id,
)
from phronomy.stores.base import Store, checked_tenant
from phronomy.stores.rows import (
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


class Transaction(Protocol):
    """A transaction that is open."""

    def one(self, statement: str, values: _sql.Values) -> _sql.Values | None:
        """The first row that a statement gives, None if it gives none."""
        ...

    def all(self, statement: str, values: _sql.Values) -> list[_sql.Values]:
        """The rows that a statement gives."""
        ...

    def run(self, statement: str, values: _sql.Values) -> int:
        """How many rows a statement changed."""
        ...

    def many(self, statement: _sql.Many, rows: Sequence[_sql.Values]) -> None:
        """Execute a statement for each row of values; there is one at least."""
        ...

    def alone(self, tenant: str, name: str) -> None:
        """Wait until no other transaction that has named this is open."""
        ...


class SQLStore(Store):
    """A store on a SQL database: it needs to know how to write, and how to read."""

    _statements: _sql.Statements

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, again: bool = False) -> T:
        """What `work` gives, in a transaction: it is there as a whole, or nothing of it. With `again` it does no harm twice."""

    @abstractmethod
    def _read(self, statement: str, values: _sql.Values, make: Callable[[list[_sql.Values]], T]) -> T:
        """What `make` makes of the rows of one statement. Text that cannot be stored finds none."""

    def for_tenant(self, tenant: str) -> Self:
        other = copy.copy(self)
        other.tenant = checked_tenant(tenant)
        return other

    # Primitives

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        check_new(branch, change)
        self._write(lambda db: self._create(db, branch, change, exclusive))

    def append(self, change: Append) -> Branch:
        check_change(change)
        return self._write(lambda db: self._append(db, change))

    def renew(self, claim: Claim) -> Branch:
        return self._write(lambda db: self._renew(db, claim), again=True)

    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        values = (status, self.tenant, claim.branch_id, claim.owner, claim.fence)
        self._write(lambda db: db.run(self._statements.release, values), again=True)

    def announced(self, branch_id: str, seq: int) -> None:
        self._write(lambda db: self._announced(db, branch_id, seq), again=True)

    def remove(self, branches: Mapping[str, int], detached: Mapping[str, Sequence[Entry]]) -> None:
        self._write(lambda db: self._remove(db, branches, detached))

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        one_place(checkpoint_id, branch_id)
        statement = self._statements.branch_lineage if checkpoint_id is None else self._statements.checkpoint_lineage
        id = checkpoint_id or branch_id or ""
        found = self._read(statement, (self.tenant, id, self.tenant), _sql.lineage_of)
        if found is None:
            raise not_found("branch" if checkpoint_id is None else "checkpoint", id)
        return found

    def select_branches(self, wanted: BranchFilter) -> list[Branch]:
        return self._each(_select.branches(self._statements, self.tenant, wanted), _sql.branch_of)

    def select_pending(self, wanted: PendingFilter) -> list[PendingRow]:
        return self._each(_select.pending(self._statements, self.tenant, wanted), _sql.pending_of)

    def count_pending(self, wanted: PendingFilter) -> int:
        return sum(self._each(_select.pending_count(self._statements, self.tenant, wanted), lambda row: int(row[0])))

    def select_checkpoints(self, wanted: CheckpointFilter) -> list[CheckpointRow]:
        return self._each(_select.checkpoints(self._statements, self.tenant, wanted), _sql.checkpoint_of)

    def select_audit(self, wanted: AuditFilter) -> list[AuditRow]:
        return self._each(_select.audit(self._statements, self.tenant, wanted), _sql.audit_of)

    def child_ids(self, checkpoint_id: str) -> list[str]:
        place = (self.tenant, checkpoint_id)
        return self._each((self._statements.children, (*place, *place)), lambda row: row[1])

    def _each(self, select: tuple[str, _sql.Values], make: Callable[[Sequence[Any]], T]) -> list[T]:
        return self._read(*select, lambda rows: [make(row) for row in rows])

    # What the primitives do, inside a transaction

    def _create(self, db: Transaction, branch: Branch, change: Append, exclusive: bool) -> None:
        if exclusive and branch.thread_id is not None:
            db.alone(self.tenant, branch.thread_id)
            others = _select.branches(self._statements, self.tenant, BranchFilter(thread_id=branch.thread_id))
            check_thread(branch, [_sql.branch_of(row) for row in db.all(*others)])
        if branch.parent_branch is not None:
            row = db.one(self._statements.parent, (self.tenant, branch.parent_branch))
            check_parent(branch, _sql.branch_of(row) if row is not None else None)
        if db.one(self._statements.branch, (self.tenant, branch.id)) is not None:
            raise taken_id("branch", branch.id)
        after = grown(branch, change, now=self.clock(), lease=self.lease)
        added = db.one(self._statements.add_branch, _sql.branch_values(self.tenant, after))
        assert added is not None
        self._add(db, change, after, added[0])

    def _append(self, db: Transaction, change: Append) -> Branch:
        if (going_on := _sql.going_on(self._statements, self.tenant, change, self.clock())) is not None:
            # One statement where all is as the writer thinks; where it is not, the rules say what is wrong.
            row = db.one(*going_on)
            if row is not None:
                after = _sql.branch_of(row)
                self._add(db, change, after, row[-1])
                return after
        before, n = self._locked(db, change.branch_id)
        if before is None:
            raise not_found("branch", change.branch_id)
        after = grown(before, change, now=self.clock(), lease=self.lease)
        db.run(self._statements.change_branch, _sql.changed_values(after, n))
        self._add(db, change, after, n)
        return after

    def _locked(self, db: Transaction, branch_id: str) -> tuple[Branch | None, int]:
        """The branch, which nobody else changes until the transaction ends, and its number."""
        row = db.one(self._statements.branch, (self.tenant, branch_id))
        return (_sql.branch_of(row), row[-1]) if row is not None else (None, 0)

    def _add(self, db: Transaction, change: Append, branch: Branch, n: int) -> None:
        """Add what a change writes beside the branch as it then stands, which has number `n`."""
        if change.closed:
            self._close(db, branch, n, change.closed)
        if change.opened:
            facets: list[_sql.Values] = []
            for row in change.opened:
                added = db.one(self._statements.add_pending, _sql.pending_values(self.tenant, row, n))
                assert added is not None
                place = (row.requested_at, added[0])
                found = (*place, row.label, row.tool_name, row.risk, row.agent)
                facets += _sql.facet_values(self.tenant, branch, found)
            db.many(self._statements.add_facets, facets)
        if change.entries:
            db.many(self._statements.add_entries, _sql.entry_values(self.tenant, change, n))
        if change.audit:
            db.many(self._statements.add_audit, [_sql.audit_values(self.tenant, row) for row in change.audit])

    def _close(self, db: Transaction, branch: Branch, n: int, pending_ids: Iterable[str]) -> None:
        facets: list[_sql.Values] = []
        for id in pending_ids:
            found = db.one(self._statements.drop_pending, (self.tenant, id, n))
            if found is not None:
                facets += _sql.facet_values(self.tenant, branch, found)
        if facets:
            db.many(self._statements.drop_facets, facets)

    def _renew(self, db: Transaction, claim: Claim) -> Branch:
        values = (self.clock() + self.lease, self.tenant, claim.branch_id, claim.owner, claim.fence)
        row = db.one(self._statements.renew, values)
        if row is None:
            raise lost(claim)
        return _sql.branch_of(row)

    def _announced(self, db: Transaction, branch_id: str, seq: int) -> None:
        values = (seq, self.tenant, branch_id, seq)
        if not db.run(self._statements.announced, values) and self._locked(db, branch_id)[0] is None:
            raise not_found("branch", branch_id)

    def _remove(self, db: Transaction, branches: Mapping[str, int], detached: Mapping[str, Sequence[Entry]]) -> None:
        # In one order, so that two that remove do not wait for each other.
        known = {id: self._locked(db, id) for id in sorted({*branches, *detached})}
        now = self.clock()
        for id, seq in branches.items():
            check_removal(known[id][0], id, seq, now)
        children = _select.branches(self._statements, self.tenant, BranchFilter(parents=tuple(branches)))
        for row in db.all(*children):
            if row[0] not in branches and row[0] not in detached:
                raise Behind(row[0])
        for id, entries in detached.items():
            branch, n = known[id]
            if branch is None:
                raise Behind(id)
            for entry in entries:
                db.run(self._statements.change_entry, _sql.changed_entry(entry, n))
            db.run(self._statements.detach, (n,))
        for branch, n in (known[id] for id in branches):
            assert branch is not None
            pending = db.all(self._statements.pending_of_branch, (self.tenant, branch.run_id, n))
            self._close(db, branch, n, [row[0] for row in pending])
            db.run(self._statements.drop_entries, (n * SIZE, (n + 1) * SIZE))
            db.run(self._statements.drop_branch, (n,))


def damaged(what: str) -> StoreError:
    """The error for a row that is not as the schema says."""
    return StoreError(f"{what} is damaged: a row in it is not of this schema")

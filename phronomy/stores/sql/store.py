"""The primitives of every store on a SQL database, as the statements of one transaction or of one read.

A primitive that writes is a generator of requests. It yields a statement and is sent the rows. So each primitive is written once, and
a driver runs it: `done` in a thread, `adone` in an event loop.

Two writers of one branch meet at the branch's row. An ordinary step changes that row with the claim and the length of the log in its
WHERE, so the slower writer finds no row. Everything else locks the row first, then reads, judges and writes. A crash at any point
undoes the transaction; the database frees the locks. A writer therefore never sees half of a change, and never has one to repair.
"""

from __future__ import annotations

import copy
import operator
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar

from phronomy.errors import StoreError
from phronomy.stores.base import AsyncPrimitives, Store, checked_tenant
from phronomy.stores.derived.beginnings import LONGEST
from phronomy.stores.derived.changes import (
    check_batch,
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
from phronomy.stores.derived.documents import behind, check_document, is_place, new_version
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
    Document,
    Entry,
    Lineage,
    PendingFilter,
    PendingRow,
)
from phronomy.stores.sound_rows import R, branch_of, records_of
from phronomy.stores.sql import records, statements
from phronomy.stores.sql import select as _select

T = TypeVar("T")

# By name and not as a bound method: the generator does not know whether it runs over a transaction that waits or one
# that is awaited.
Request: TypeAlias = tuple[
    Literal["one", "all", "run", "many", "alone"],
    str | statements.Many,
    str | statements.Values | list[statements.Values],
]
"""A method of `Transaction`, and what it is to be called with."""
Steps: TypeAlias = Generator[Request, Any, T]
"""The steps of a transaction: each request is sent its answer, and the last step returns the result."""


Trace: TypeAlias = tuple[str, statements.Values, Callable[[list[statements.Row]], bool]]
"""What shows later that something was written: a statement that reads, with its values, and whether its rows have it."""

Traces: TypeAlias = Callable[[], Sequence[Trace]]


class Transaction(Protocol):
    """A transaction that is open."""

    def one(self, statement: str, values: statements.Values) -> statements.Row | None:
        """The first row that a statement gives, None if it gives none."""
        ...

    def all(self, statement: str, values: statements.Values) -> list[statements.Row]:
        """The rows that a statement gives."""
        ...

    def run(self, statement: str, values: statements.Values) -> int:
        """How many rows a statement changed."""
        ...

    def many(self, statement: statements.Many, rows: Sequence[statements.Values]) -> None:
        """Execute a statement for each row of values; there is one at least."""
        ...

    def alone(self, tenant: str, name: str) -> None:
        """Wait until no other transaction that has named this is open."""
        ...


def done(steps: Steps[T], db: Transaction) -> T:
    """Run the steps in an open transaction, and return their result."""
    try:
        # An error of the database is raised here, and not thrown into the steps: no primitive could do anything about
        # it, and the transaction is over.
        method, what, values = next(steps)
        while True:
            method, what, values = steps.send(getattr(db, method)(what, values))
    except StopIteration as end:
        answer: T = end.value
        return answer


class SQLStore(Store):
    """The base of stores on a SQL database. A subclass says how to write and how to read."""

    _statements: statements.Statements

    @property
    @abstractmethod
    def _where(self) -> str:
        """The name of the database or file, for messages."""

    @abstractmethod
    def _write(self, work: Callable[[], Steps[T]], *, again: bool = False, traces: Traces | None = None) -> T:
        """Run the steps in one transaction, and return their result. `again` says that the steps may be run twice without harm.

        By the `traces` it is seen whether they were written, where that is in doubt.
        """

    @abstractmethod
    def _read(self, statement: str, values: statements.Values) -> list[statements.Row]:
        """The rows of one statement. Text that cannot be stored finds none."""

    def for_tenant(self, tenant: str) -> Self:
        # The same connections under another tenant. Every statement has the tenant as a value, from `self.tenant`, so
        # none can be written without one.
        other = copy.copy(self)
        other.tenant = checked_tenant(tenant)
        return other

    # Primitives

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        check_new(branch, change)
        self._write(lambda: self._create(branch, change, exclusive), traces=lambda: self._traces(change))

    def append(self, change: Append) -> Branch:
        check_change(change)
        return self._write(lambda: self._append(change), traces=lambda: self._traces(change))

    def append_all(self, changes: Sequence[Append]) -> list[Branch]:
        ordered = check_batch(changes)
        # A transaction of nothing would still be a journey, and on SQLite wait for whoever writes.
        traces = partial(self._traces, *ordered)
        after = self._write(lambda: self._append_all(ordered), traces=traces) if ordered else {}
        return [after[change.branch_id] for change in changes]

    def renew(self, claim: Claim) -> Branch:
        # These three may be done twice: a lease that is set to the same time, a claim that is given up already, a
        # number that does not go back. So a lost answer is simply asked for again, where for the others the store has
        # to find out first whether they were committed.
        return self._write(lambda: self._renew(claim), again=True)

    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        self._write(lambda: self._release(claim, status), again=True)

    def announced(self, branch_id: str, seq: int) -> None:
        self._write(lambda: self._announced(branch_id, seq), again=True)

    def remove(self, branches: Mapping[str, int], detached: Mapping[str, Sequence[Entry]]) -> None:
        self._write(
            lambda: self._remove(branches, detached),
            traces=lambda: [(*self._place(None, id), operator.not_) for id in branches],
        )

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        # One statement for branch and entries, so that both are of one moment. Two reads could see a branch longer than
        # the log they got.
        return self._found(self._read(*self._place(checkpoint_id, branch_id)), checkpoint_id, branch_id)

    def select_branches(self, wanted: BranchFilter) -> list[Branch]:
        return self._records(Branch, _select.branches(self._statements, self.tenant, wanted))

    def select_pending(self, wanted: PendingFilter) -> list[PendingRow]:
        return self._records(PendingRow, _select.pending(self._statements, self.tenant, wanted))

    def select_waiting(self, pending_id: str) -> list[tuple[PendingRow, Branch]]:
        """The pending approvals under an id, each with its branch, both of one moment."""
        return self._each(_select.waiting(self._statements, self.tenant, pending_id), records.waiting_of)

    def count_pending(self, wanted: PendingFilter) -> int:
        found = self._read(*_select.pending_count(self._statements, self.tenant, wanted))
        if not all(type(row[0]) is int for row in found):  # the number that is kept is damaged
            found = self._read(*_select.pending_count(self._statements, self.tenant, wanted, anew=True))
        return sum(row[0] for row in found)

    def select_checkpoints(self, wanted: CheckpointFilter) -> list[CheckpointRow]:
        return self._records(CheckpointRow, _select.checkpoints(self._statements, self.tenant, wanted))

    def select_first(self, branch_ids: Sequence[str]) -> list[CheckpointRow]:
        """The root checkpoints among the first three entries of each of these branches."""
        return self._records(CheckpointRow, _select.first(self._statements, self.tenant, branch_ids, LONGEST))

    def select_audit(self, wanted: AuditFilter) -> list[AuditRow]:
        return self._records(AuditRow, _select.audit(self._statements, self.tenant, wanted))

    def child_ids(self, checkpoint_id: str) -> list[str]:
        place = (self.tenant, checkpoint_id)
        return self._each((self._statements.children, (*place, *place)), lambda row: row[1])

    def kept_text(self, digest: str) -> str | None:
        found = self._read(self._statements.kept_text, (self.tenant, digest))
        return found[0][0] if found else None

    def get_document(self, kind: str, key: str) -> Document | None:
        if not is_place(kind, key):
            return None
        found = self._each(self._document(kind, key), records.document_of)
        return found[0] if found else None

    def select_documents(self, kind: str, *, after: str | None = None, limit: int | None = None) -> list[Document]:
        wanted = (self.tenant, kind, after or "", self.clock(), SIZE if limit is None else max(0, limit))
        return self._each((self._statements.documents, wanted), records.document_of)

    def put_document(self, document: Document) -> Document:
        check_document(document)
        # Named out here: steps that are run again after a lost connection write the same.
        after = replace(document, version=new_version())
        self._write(
            lambda: self._put_document(after, document.version),
            # Where somebody else has written it since, nothing shows whether this was written before. So it is judged anew: what it
            # was to replace is not there any more, and the caller hears so.
            traces=lambda: [
                (*self._document(after.kind, after.key), lambda rows: [row[2] for row in rows] == [after.version])
            ],
        )
        return after

    def delete_document(self, kind: str, key: str, *, version: str | None = None) -> None:
        if is_place(kind, key):
            self._write(
                lambda: self._delete_document(kind, key, version),
                traces=lambda: [(*self._document(kind, key), operator.not_)],
            )

    def expire_documents(self) -> None:
        self._write(self._expire_documents, again=True)

    def _records(self, kind: type[R], select: tuple[str, statements.Values]) -> list[R]:
        return self._made(partial(records_of, kind), self._read(*select))

    def _each(self, select: tuple[str, statements.Values], make: Callable[[statements.Row], T]) -> list[T]:
        return self._made(lambda rows: [make(row) for row in rows], self._read(*select))

    def _made(self, make: Callable[[list[statements.Row]], T], rows: list[statements.Row]) -> T:
        """Make something of rows. Raises `StoreError` for rows that do not fit the schema."""
        try:
            # A column that holds something else than the schema says is damage, or somebody's hand. The driver's own
            # error would quote the value.
            return make(rows)
        except (TypeError, ValueError):
            failure = StoreError(f"{self._where} is damaged: a row in it is not of this schema")
        # Outside of the except block, or the error with the value in it would be the context of this one, and be
        # printed with it.
        raise failure

    def _place(self, checkpoint_id: str | None, branch_id: str | None) -> tuple[str, statements.Values]:
        """The statement that finds a lineage."""
        one_place(checkpoint_id, branch_id)
        statement = self._statements.branch_lineage if checkpoint_id is None else self._statements.checkpoint_lineage
        place = (self.tenant, checkpoint_id or branch_id or "")
        return statement, (*place, self.tenant, *place)

    def _document(self, kind: str, key: str) -> tuple[str, statements.Values]:
        """The statement that finds a document, unless its time is over."""
        return self._statements.document, (self.tenant, kind, key, self.clock())

    def _found(self, rows: list[statements.Row], checkpoint_id: str | None, branch_id: str | None) -> Lineage:
        """The lineage in the rows that were found."""
        found = self._made(records.lineage_of, rows)
        if found is None:
            raise not_found("branch" if checkpoint_id is None else "checkpoint", checkpoint_id or branch_id or "")
        return found

    def _traces(self, *changes: Append) -> Sequence[Trace]:
        """What shows that these changes are written: their entries, which stand in the log."""
        return [(*self._place(None, each.branch_id), partial(_has, each)) for each in changes if each.entries]

    # What the primitives do, inside a transaction

    def _create(self, branch: Branch, change: Append, exclusive: bool) -> Steps[None]:
        if exclusive and branch.thread_id is not None:
            # A thread that has no branch yet has no row that could be locked. Without this, two first messages of one
            # conversation would both find it empty. SQLite lets one transaction write at a time and needs nothing.
            yield "alone", self.tenant, branch.thread_id
            others = yield (
                "all",
                *_select.branches(self._statements, self.tenant, BranchFilter(thread_id=branch.thread_id)),
            )
            check_thread(branch, [branch_of(row) for row in others])
        if branch.parent_branch is not None:
            # Locked against deletion until the branch is there: `remove` looks for children, and would not see one that
            # is about to be committed.
            row = yield "one", self._statements.parent, (self.tenant, branch.parent_branch)
            check_parent(branch, branch_of(row) if row is not None else None)
        after = grown(branch, change, now=self.clock(), lease=self.lease)
        added = yield "one", self._statements.add_branch, records.branch_values(self.tenant, after)
        if added is None:
            raise taken_id("branch", branch.id)
        if change.entries:
            yield "many", self._statements.add_entries, records.entry_values(self.tenant, change, added[0])
        yield from self._add(change, after, added[0])

    def _append(self, change: Append) -> Steps[Branch]:
        # One statement where all is as the writer thinks; where it is not, the rules say what is wrong.
        sql, tenant, now = self._statements, self.tenant, self.clock()
        # All of a decision in one, where the database can.
        decision = records.leaving_decision(sql, tenant, change, now)
        if decision is not None and (row := (yield "one", *decision)) is not None:
            return branch_of(row)
        # Two statements for the usual step, this one and the insert of the entries. On a server each is a journey, and
        # a run is made of such steps.
        going_on = records.going_on(sql, tenant, change, now, self.lease) or records.leaving(sql, tenant, change, now)
        row = None if going_on is None or decision is not None else (yield "one", *going_on)
        if row is not None:
            after, n = branch_of(row), row[-1]
        else:
            # Read again under a lock: the statement may have found nothing because another writer was first, and that
            # is judged as it stands now.
            before, n = yield from self._locked(change.branch_id)
            if before is None:
                raise not_found("branch", change.branch_id)
            after = grown(before, change, now=self.clock(), lease=self.lease)
            yield "run", self._statements.change_branch, records.changed_values(after, n)
        if change.entries:
            yield "many", self._statements.add_entries, records.entry_values(self.tenant, change, n)
        if change.closed or change.opened or change.audit or change.texts:
            yield from self._add(change, after, n)
        return after

    def _append_all(self, changes: Sequence[Append]) -> Steps[dict[str, Branch]]:
        # Each as if it were alone. What the later ones are refused for undoes the earlier ones with the transaction.
        after: dict[str, Branch] = {}
        for change in changes:
            after[change.branch_id] = yield from self._append(change)
        return after

    def _locked(self, branch_id: str) -> Steps[tuple[Branch | None, int]]:
        """The branch, which nobody else changes until the transaction ends, and its number."""
        # The row stands for the whole branch: whoever writes to its log, its requests or its trail has locked it first.
        row = yield "one", self._statements.branch, (self.tenant, branch_id)
        return (branch_of(row), row[-1]) if row is not None else (None, 0)

    def _add(self, change: Append, branch: Branch, n: int) -> Steps[None]:
        """Add what a change writes beside the log and the branch, which has number `n`, as it then stands."""
        if change.closed:
            # Closed before opened: one change may do both to the same request, which then has a new number and a new
            # place in the lists.
            yield from self._close(branch, n, change.closed)
        if change.opened:
            facets: list[statements.Values] = []
            for row in change.opened:
                added = yield "one", self._statements.add_pending, records.pending_values(self.tenant, row, n)
                # The number comes from the database, which is why these are inserted one by one and their facets all at
                # once.
                place = (row.requested_at, added[0])
                found = (*place, row.label, row.tool_name, row.risk, row.agent)
                facets += records.facet_values(self.tenant, branch, found)
            yield "many", self._statements.add_facets, facets
        if change.audit:
            yield (
                "many",
                self._statements.add_audit,
                [records.audit_values(self.tenant, row) for row in change.audit],
            )
        if change.texts:
            # Last of all. Runs of a tenant meet here, and nowhere else: whoever has to wait for another's text holds up
            # its own branch alone, and the other needs nothing more to come to its end.
            yield "many", self._statements.add_texts, records.text_values(self.tenant, change.texts)

    def _close(self, branch: Branch, n: int, pending_ids: Iterable[str]) -> Steps[None]:
        facets: list[statements.Values] = []
        for id in pending_ids:
            # A request that is not there any more is no error: somebody may have decided it in another way, and the
            # change is about the log.
            found = yield "one", self._statements.drop_pending, (self.tenant, id, n)
            if found is not None:
                facets += records.facet_values(self.tenant, branch, found)
        if facets:
            yield "many", self._statements.drop_facets, facets

    def _renew(self, claim: Claim) -> Steps[Branch]:
        values = (self.clock() + self.lease, self.tenant, claim.branch_id, claim.owner, claim.fence)
        row = yield "one", self._statements.renew, values
        if row is None:
            raise lost(claim)
        return branch_of(row)

    def _release(self, claim: Claim, status: BranchStatus | None) -> Steps[None]:
        yield "run", self._statements.release, (status, self.tenant, claim.branch_id, claim.owner, claim.fence)

    def _announced(self, branch_id: str, seq: int) -> Steps[None]:
        # No row changed: either the number is not higher, which is fine, or there is no such branch, which is not.
        if not (yield "run", self._statements.announced, (seq, self.tenant, branch_id, seq)):
            known, _ = yield from self._locked(branch_id)
            if known is None:
                raise not_found("branch", branch_id)

    def _remove(self, branches: Mapping[str, int], detached: Mapping[str, Sequence[Entry]]) -> Steps[None]:
        known: dict[str, tuple[Branch | None, int]] = {}
        for id in sorted({*branches, *detached}):  # in one order, so that two that remove do not wait for each other
            known[id] = yield from self._locked(id)
        # After the locks, for which it may have waited long: what counts is who holds the branches now.
        now = self.clock()
        for id, seq in branches.items():
            check_removal(known[id][0], id, seq, now)
        # Locked rows keep their writers out, and a new child has to lock its parent, so the answer is true until the
        # end of this transaction.
        children = yield "all", *_select.branches(self._statements, self.tenant, BranchFilter(parents=tuple(branches)))
        for row in children:
            if row[0] not in branches and row[0] not in detached:
                raise Behind(row[0])
        for id, entries in detached.items():
            branch, n = known[id]
            if branch is None:
                raise Behind(id)
            for entry in entries:
                # The only statement that changes a row of a log. It says the same of the checkpoint, with nothing left
                # to the rows before it.
                yield "run", self._statements.change_entry, records.changed_entry(entry, n)
            yield "run", self._statements.detach, (n,)
        for branch, n in (known[id] for id in branches):
            assert branch is not None
            pending = yield "all", self._statements.pending_of_branch, (self.tenant, branch.run_id, n)
            # Requests first: they are found by way of the branch's facets.
            yield from self._close(branch, n, [row[0] for row in pending])
            yield "run", self._statements.drop_entries, (n * SIZE, (n + 1) * SIZE)
            yield "run", self._statements.drop_branch, (n,)

    def _put_document(self, document: Document, seen: str) -> Steps[None]:
        place, now = (self.tenant, document.kind, document.key), self.clock()
        what = document.version, document.expires_at, document.text
        if seen:
            count = yield "run", self._statements.change_document, (*what, *place, now, seen)
        else:
            count = yield "run", self._statements.add_document, (*place, *what, now)
        if not count:
            raise behind(document.kind, document.key)

    def _delete_document(self, kind: str, key: str, version: str | None) -> Steps[None]:
        place = self.tenant, kind, key, self.clock()
        if version is None:
            yield "run", self._statements.drop_document, place
            return
        count = yield "run", self._statements.drop_version, (*place, version)
        # Of a document that is gone nothing is left to do; one of another version is not what was to be deleted.
        if not count and (yield "one", self._statements.document, place) is not None:
            raise behind(kind, key)

    def _expire_documents(self) -> Steps[None]:
        yield "run", self._statements.expire_documents, (self.tenant, self.clock())


def _has(change: Append, rows: list[statements.Row]) -> bool:
    """Whether the log in these rows has the entries of the change where it was to write them."""
    lineage = records.lineage_of(rows)
    own = {each.seq: each.body for each in lineage.entries if each.branch_id == change.branch_id} if lineage else {}
    return all(own.get(seq) == each.body for seq, each in enumerate(change.entries, change.seq + 1))


class Asks(Protocol):
    """The connections to a database in an event loop."""

    async def write(self, work: Callable[[], Steps[T]], again: bool, traces: Traces | None = None) -> T:
        """As `SQLStore._write`."""
        ...

    async def read(self, statement: str, values: statements.Values) -> list[statements.Row]:
        """As `SQLStore._read`."""
        ...


class Native(AsyncPrimitives):
    """The primitives of a SQL store that an event loop needs: what they do is the store's own."""

    def __init__(self, store: SQLStore, database: Asks) -> None:
        self._store = store
        self._database = database

    async def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        check_new(branch, change)
        work = partial(self._store._create, branch, change, exclusive)
        await self._database.write(work, False, lambda: self._store._traces(change))

    async def append(self, change: Append) -> Branch:
        check_change(change)
        return await self._database.write(
            lambda: self._store._append(change), False, lambda: self._store._traces(change)
        )

    async def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        await self._database.write(lambda: self._store._release(claim, status), True)

    async def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        place = self._store._place(checkpoint_id, branch_id)
        return self._store._found(await self._database.read(*place), checkpoint_id, branch_id)

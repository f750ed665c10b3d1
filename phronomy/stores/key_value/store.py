"""`KeyValueStore`: checkpoints in anything that has get, set, delete and compare-and-set.

Each primitive is a function of a view of the tenant's data (`books.py`): it reads, judges by the same functions as every other store,
and writes down what changes. The books put all changes in place in one step, or call the function again if somebody else was first. So
nothing here knows of races, and nothing is ever half written.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self
from urllib.parse import quote

from phronomy.errors import CheckpointError, StoreError
from phronomy.foundation.quoting import quoted_id
from phronomy.stores.base import Store, checked_tenant
from phronomy.stores.derived.changes import (
    by_digest,
    check_batch,
    check_change,
    check_new,
    check_parent,
    check_removal,
    check_room,
    check_thread,
    grown,
    is_wanted,
    lost,
    not_found,
    one_place,
    taken_id,
)
from phronomy.stores.derived.documents import behind, check_document, is_place, new_version
from phronomy.stores.key_value import pending
from phronomy.stores.key_value.books import Books, KeyValue, View
from phronomy.stores.key_value.records import (
    audit_of,
    audit_value,
    branch_of,
    branch_value,
    checkpoint_of,
    document_of,
    document_value,
    entry_row_of,
    entry_value,
    first_of,
    id_of,
    listed_branch_of,
    parts_of,
)
from phronomy.stores.key_value.tree import LAST, Node
from phronomy.stores.rows import (
    ENDED,
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
from phronomy.stores.sound_rows import RowValues, damaged_branch, entries_of

_LONGEST: Final = 50
"""Characters of a prefix, and of a tenant, in a key. A longer tenant is there as its SHA-256."""


class KeyValueStore(Store):
    """A store over a key-value store of yours: any object with the four methods of `KeyValue`.

    Each write puts one value in place by `compare_and_set`, so writers of a tenant take turns: one that was not first
    judges and writes again. All keys begin with `prefix` and the tenant. `close` does not close `kv`. Raises
    `StoreError` for a prefix that cannot be part of a key, and for a `kv` without one of the methods.
    """

    def __init__(
        self,
        kv: KeyValue,
        *,
        prefix: str = "phronomy",
        tenant: str = "",
        clock: Callable[[], float] = time.time,
        lease: float = 30.0,
        ttl: float | None = None,
    ) -> None:
        super().__init__(tenant=tenant, clock=clock, lease=lease, ttl=ttl)
        if not isinstance(prefix, str) or not prefix or len(prefix) > _LONGEST or quote(prefix) != prefix:
            raise StoreError(f"the prefix of a key-value store is 1 to {_LONGEST} letters, digits and the signs /._~-")
        for method in ("get", "set", "delete", "compare_and_set"):
            if not callable(getattr(kv, method, None)):
                raise StoreError(
                    f"a key-value store has the methods get, set, delete and compare_and_set, and {type(kv).__name__} has no {method}"
                )
        self._kv = kv
        self._prefix = prefix
        self._nodes: dict[str, Node] = {}
        self._books = self._books_of(tenant)

    def __repr__(self) -> str:
        return f"KeyValueStore({type(self._kv).__name__}, prefix={self._prefix!r})"

    def for_tenant(self, tenant: str) -> Self:
        other = copy.copy(self)
        other.tenant = checked_tenant(tenant)
        other._books = self._books_of(tenant)
        return other

    def _books_of(self, tenant: str) -> Books:
        # A name that is quoted has no `=`, so no name is taken for the SHA-256 of another.
        name = quote(tenant, safe="")
        if len(name) > _LONGEST:
            name = f"={hashlib.sha256(tenant.encode()).hexdigest()}"
        return Books(self._kv, f"{self._prefix}/{name}/", self._nodes)

    # Primitives that write

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        check_new(branch, change)
        check_room(change)

        def work(view: View) -> None:
            if exclusive and branch.thread_id is not None:
                check_thread(branch, [_found(view, id)[1] for _, id in _listed(view, "t", branch.thread_id)])
            parent = _line(view, branch.parent_branch) if branch.parent_branch is not None else None
            check_parent(branch, parent[1] if parent is not None else None)
            after = grown(branch, change, now=self.clock(), lease=self.lease)
            if view.get("b", branch.id) is not None:
                raise taken_id("branch", branch.id)
            n = view.next_number()
            for key in _lists_of(n, branch):
                view.put(key, [branch.id])
            _write(view, n, None, after, change)

        self._books.write(work)

    def append(self, change: Append) -> Branch:
        check_change(change)
        return self._books.write(lambda view: self._appended(view, change))

    def append_all(self, changes: Sequence[Append]) -> list[Branch]:
        ordered = check_batch(changes)

        def work(view: View) -> dict[str, Branch]:
            return {change.branch_id: self._appended(view, change) for change in ordered}

        after = self._books.write(work)
        return [after[change.branch_id] for change in changes]

    def _appended(self, view: View, change: Append) -> Branch:
        n, branch = _found(view, change.branch_id)
        after = grown(branch, change, now=self.clock(), lease=self.lease)
        check_room(change)
        _write(view, n, branch, after, change)
        return after

    def renew(self, claim: Claim) -> Branch:
        def work(view: View) -> Branch:
            n, branch = _held(view, claim) or _raise_lost(claim)
            after = replace(branch, lease_until=self.clock() + self.lease)
            _set_branch(view, n, branch, after)
            return after

        return self._books.write(work)

    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        def work(view: View) -> None:
            if (held := _held(view, claim)) is not None:
                n, branch = held
                _set_branch(
                    view, n, branch, replace(branch, owner=None, lease_until=0.0, status=status or branch.status)
                )

        self._books.write(work)

    def announced(self, branch_id: str, seq: int) -> None:
        def work(view: View) -> None:
            n, branch = _found(view, branch_id)
            if branch.announced is not None and branch.announced < seq:
                _set_branch(view, n, branch, replace(branch, announced=seq))

        self._books.write(work)

    def remove(self, branches: Mapping[str, int], detached: Mapping[str, Sequence[Entry]]) -> None:
        def work(view: View) -> None:
            now = self.clock()
            going: list[tuple[int, Branch]] = []
            for branch_id, seq in branches.items():
                line = _line(view, branch_id)
                check_removal(line[1] if line is not None else None, branch_id, seq, now)
                for _, child in _listed(view, "p", branch_id):
                    if child not in branches and child not in detached:
                        raise Behind(child)
                going += [line] if line is not None else []
            for branch_id, entries in detached.items():
                _detach(view, _line(view, branch_id), branch_id, entries)
            for n, branch in going:
                _remove(view, n, branch)

        self._books.write(work)

    # Primitives that read

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        one_place(checkpoint_id, branch_id)
        return self._books.read(lambda view: _lineage(view, checkpoint_id, branch_id))

    def select_branches(self, wanted: BranchFilter) -> list[Branch]:
        def work(view: View) -> list[Branch]:
            found = (branch for branch in _branches(view, _behind(view, wanted)) if is_wanted(branch, wanted))
            return list(itertools.islice(found, wanted.limit))

        return self._books.read(work)

    def select_pending(self, wanted: PendingFilter) -> list[PendingRow]:
        def work(view: View) -> list[PendingRow]:
            rows = itertools.islice(pending.wanted_rows(view, wanted), wanted.limit)
            return [pending.at_head(view, row) for row in rows]

        return self._books.read(work)

    def select_waiting(self, pending_id: str) -> list[tuple[PendingRow, Branch]]:
        """The pending approvals under an id, each with its branch, both of one moment."""

        def work(view: View) -> list[tuple[PendingRow, Branch]]:
            rows = list(pending.wanted_rows(view, PendingFilter(pending_id=pending_id)))
            # A damaged row names no branch: reading it says so.
            found = [(row, _found(view, row.branch_id)[1]) for row in rows if row.branch_id]
            lost = [(row, listed_branch_of(None, "")) for row in rows if not row.branch_id]
            return [*((pending.with_head(row, branch), branch) for row, branch in found), *lost]

        return self._books.read(work)

    def count_pending(self, wanted: PendingFilter) -> int:
        return self._books.read(lambda view: sum(1 for _ in pending.wanted_rows(view, replace(wanted, after=None))))

    def select_checkpoints(self, wanted: CheckpointFilter) -> list[CheckpointRow]:
        return self._books.read(lambda view: list(itertools.islice(_checkpoints(view, wanted), wanted.limit)))

    def select_audit(self, wanted: AuditFilter) -> list[AuditRow]:
        def work(view: View) -> list[AuditRow]:
            by = (("up", wanted.pending_id), ("ur", wanted.run_id), ("ut", wanted.thread_id))
            table = next((each for each in by if each[1] is not None), ("u",))
            numbers = (key[-1] for key, _ in view.span(*table, low=((wanted.after or 0) + 1,)))
            rows = (audit_of(view, value, m) for m in numbers if (value := view.get("u", m)) is not None)
            return list(itertools.islice((row for row in rows if wanted.allows(row)), wanted.limit))

        return self._books.read(work)

    def child_ids(self, checkpoint_id: str) -> list[str]:
        return self._books.read(lambda view: _child_ids(view, checkpoint_id))

    def kept_text(self, digest: str) -> str | None:
        def work(view: View) -> str | None:
            value = view.get("x", digest)
            return view.read(first_of(value))

        return self._books.read(work)

    # Documents

    def get_document(self, kind: str, key: str) -> Document | None:
        return self._books.read(lambda view: self._document(view, kind, key))

    def select_documents(self, kind: str, *, after: str | None = None, limit: int | None = None) -> list[Document]:
        def work(view: View) -> list[Document]:
            now = self.clock()
            rows = (document_of(view, value, kind, key[-1]) for key, value in view.span("y", kind, low=(after or "",)))
            found = (row for row in rows if row.key > (after or "") and row.is_live(now))
            return list(itertools.islice(found, None if limit is None else max(0, limit)))

        return self._books.read(work)

    def put_document(self, document: Document) -> Document:
        check_document(document)
        kind, key = document.kind, document.key

        def work(view: View) -> Document:
            found = self._document(view, kind, key)
            if document.version != (found.version if found is not None else ""):
                raise behind(kind, key)
            _drop_document(view, kind, key)
            after = replace(document, version=new_version())
            view.put(("y", kind, key), document_value(view, after))
            if after.expires_at is not None:
                view.put(("ye", after.expires_at, kind, key), [])
            return after

        return self._books.write(work)

    def delete_document(self, kind: str, key: str, *, version: str | None = None) -> None:
        def work(view: View) -> None:
            found = self._document(view, kind, key)
            if found is None:
                return
            if version is not None and version != found.version:
                raise behind(kind, key)
            _drop_document(view, kind, key)

        self._books.write(work)

    def expire_documents(self) -> None:
        def work(view: View) -> None:
            for (_, _, kind, key), _ in list(view.span("ye", high=(self.clock(), LAST))):
                _drop_document(view, kind, key)

        self._books.write(work)

    def _document(self, view: View, kind: str, key: str) -> Document | None:
        value = view.get("y", kind, key) if is_place(kind, key) else None
        if value is None:
            return None
        found = document_of(view, value, kind, key)
        return found if found.is_live(self.clock()) else None


# Branches


def _line(view: View, branch_id: str) -> tuple[int, Branch] | None:
    """A branch with its number."""
    value = view.get("b", branch_id)
    return branch_of(value, branch_id) if value is not None else None


def _found(view: View, branch_id: str) -> tuple[int, Branch]:
    """As `_line`. Raises `CheckpointNotFound`."""
    if (line := _line(view, branch_id)) is None:
        raise not_found("branch", branch_id)
    return line


def _held(view: View, claim: Claim) -> tuple[int, Branch] | None:
    """The branch of a claim, None if it is not the claim's any more."""
    line = _line(view, claim.branch_id)
    return line if line is not None and (line[1].owner, line[1].fence) == (claim.owner, claim.fence) else None


def _raise_lost(claim: Claim) -> tuple[int, Branch]:
    raise lost(claim)


def _listed(view: View, *table: object) -> Iterator[tuple[int, str]]:
    """The numbers and the ids of the branches in a list, in the order in which they were made."""
    return ((key[-1], id_of(value)) for key, value in view.span(*table))


def _branches(view: View, listed: Iterable[tuple[int, str]]) -> Iterator[Branch]:
    return (listed_branch_of(view.get("b", id), id) for _, id in listed)


def _number(view: View, branch_id: str) -> int | None:
    """The number of a branch, None if there is none."""
    if view.get("b", branch_id) is None:
        return None
    try:
        return _found(view, branch_id)[0]
    except CheckpointError:  # it is damaged, and still has its place among the others
        return next((n for n, id in _listed(view, "n") if id == branch_id), None)


def _behind(view: View, wanted: BranchFilter) -> Iterable[tuple[int, str]]:
    """The list in the order that is wanted, from the place on that is wanted."""
    if wanted.after is None and not wanted.newest:
        return _walk(view, wanted)
    n = _number(view, wanted.after) if wanted.after is not None else None
    if wanted.after is not None and n is None:
        return ()
    if wanted == BranchFilter(newest=True, after=wanted.after, limit=wanted.limit):
        # All of them, from their end: no more is read than is wanted.
        high = (n,) if n is not None else (LAST,)
        return ((key[-1], id_of(value)) for key, value in view.span("n", high=high, backwards=True))
    listed = list(_walk(view, wanted))
    if not wanted.newest:
        return [each for each in listed if n is None or each[0] > n]
    return [each for each in reversed(listed) if n is None or each[0] < n]


def _walk(view: View, wanted: BranchFilter) -> Iterable[tuple[int, str]]:
    """The list that leaves fewest branches to look at, in the order in which they were made."""
    if wanted.run_id is not None:
        return _listed(view, "r", wanted.run_id)
    if wanted.thread_id is not None:
        return _listed(view, "t", wanted.thread_id)
    if wanted.parents is not None:
        return sorted(each for parent in dict.fromkeys(wanted.parents) for each in _listed(view, "p", parent))
    if wanted.handed:
        return _listed(view, "h")
    if wanted.unannounced:
        return _listed(view, "a")
    if wanted.abandoned_at is not None:
        return _listed(view, "s", "running")
    if wanted.ended_before is not None:
        return sorted(each for status in ENDED for each in _listed(view, "s", status))
    return _listed(view, "n")


def _lists_of(n: int, branch: Branch) -> list[tuple[object, ...]]:
    """The places in which a branch is listed as long as it is there."""
    lists: list[tuple[object, ...]] = [("n", n), ("r", branch.run_id, n)]
    lists += [("t", branch.thread_id, n)] if branch.thread_id is not None else []
    lists += [("p", branch.parent_branch, n)] if branch.parent_branch is not None else []
    return lists


def _states_of(n: int, branch: Branch) -> set[tuple[object, ...]]:
    """The places in which a branch is listed as it stands."""
    states: set[tuple[object, ...]] = {("s", branch.status, n)}
    states |= {("h", n)} if branch.handed is not None else set()
    states |= {("a", n)} if branch.announced is not None and branch.announced < branch.seq else set()
    return states


def _set_branch(view: View, n: int, before: Branch | None, after: Branch) -> None:
    """Write a branch, and move it from list to list."""
    was, now = (_states_of(n, before) if before is not None else set()), _states_of(n, after)
    for key in was - now:
        view.drop(*key)
    for key in now - was:
        view.put(key, [after.id])
    view.put(("b", after.id), branch_value(n, after))


# Logs


def _write(view: View, n: int, before: Branch | None, after: Branch, change: Append) -> None:
    """Write what a change adds, and the branch after it."""
    for seq, entry in enumerate(change.entries, change.seq + 1):
        # A nested row may stand twice, in a branch and in a saved copy of it. A root checkpoint is what ids name.
        if entry.checkpoint_id is not None and not entry.path and view.get("c", entry.checkpoint_id) is not None:
            raise taken_id("checkpoint", entry.checkpoint_id)
        _put_entry(view, n, after.id, seq, entry)
    pending.move(view, n, after, change)
    for row in change.audit:
        m = view.next_number()
        view.put(("u", m), audit_value(view, row))
        for table, value in (("ur", row.run_id), ("ut", row.thread_id), ("up", row.pending_id)):
            if value is not None:
                view.put((table, value, m), [])
    for digest, text in by_digest(change.texts).items():
        if view.get("x", digest) is None:
            view.put(("x", digest), [view.kept(text)])
    _set_branch(view, n, before, after)


def _put_entry(view: View, n: int, branch_id: str, seq: int, entry: Entry) -> None:
    """Write an entry of a log, and list it if it is a root checkpoint."""
    view.put(("l", n, seq), entry_value(view, entry))
    if (id := entry.checkpoint_id) is not None and not entry.path:
        view.put(("c", id), [branch_id, n, seq])
        view.put(("k", n, seq), [id, entry.label])
        if entry.parent_id is not None:
            view.put(("d", entry.parent_id, n, seq), [id])


def _detach(view: View, line: tuple[int, Branch] | None, branch_id: str, entries: Sequence[Entry]) -> None:
    """Have a branch start from nothing, with these entries of its log written anew."""
    if line is None:
        raise Behind(branch_id)
    n, branch = line
    for entry in entries:
        view.leave(first_of(view.get("l", n, entry.seq)))
        _put_entry(view, n, branch.id, entry.seq, entry)
    view.drop("p", branch.parent_branch, n)
    view.put(("b", branch.id), branch_value(n, replace(branch, parent_branch=None)))


def _remove(view: View, n: int, branch: Branch) -> None:
    """Delete a branch, with its log and what waits in it."""
    for key, value in list(view.span("l", n)):
        view.leave(first_of(value))
        view.drop(*key)
        if (root := view.get("k", *key[1:])) is not None:
            view.drop("c", id_of(root))
            view.drop("k", *key[1:])
            _, _, _, parent_id, _ = parts_of(value, 5)
            if isinstance(parent_id, str):
                view.drop("d", parent_id, *key[1:])
    pending.remove_all(view, n)
    for key in (*_lists_of(n, branch), *_states_of(n, branch), ("b", branch.id)):
        view.drop(*key)


def _place(view: View, checkpoint_id: str) -> tuple[str, int, int] | None:
    """The branch of a root checkpoint, its number, and the number of the row in its log. Raises `CheckpointError`."""
    if (value := view.get("c", checkpoint_id)) is None:
        return None
    branch_id, n, seq = parts_of(value, 3)
    if [type(each) for each in (branch_id, n, seq)] != [str, int, int]:
        raise CheckpointError(
            f"checkpoint {quoted_id(checkpoint_id)} cannot be read: its row is damaged, or was written by a later release"
        )
    return branch_id, n, seq


def _next_root(view: View, n: int, seq: int) -> tuple[int, str] | None:
    """The number and the id of the root row that follows entry `seq`."""
    return next(((key[2], id_of(value)) for key, value in view.span("k", n, low=(seq + 1,))), None)


def _lineage(view: View, checkpoint_id: str | None, branch_id: str | None) -> Lineage:
    if checkpoint_id is not None:
        if (place := _place(view, checkpoint_id)) is None:
            raise not_found("checkpoint", checkpoint_id)
        branch_id, n, seq = place
        following = _next_root(view, n, seq)
        _, branch = _found(view, branch_id)
        upto = following[0] - 1 if following is not None else branch.seq
    else:
        n, branch = _found(view, branch_id or "")
        upto = branch.seq
    of, logs = branch, dict[str, list[RowValues]]()
    while True:
        if of.id in logs:  # a damaged one names itself
            raise damaged_branch(branch.id)
        log = view.span("l", n, high=(upto + 1,))
        logs[of.id] = [entry_row_of(view, value, of.id, key[2]) for key, value in log]
        if of.parent_branch is None:
            rows = itertools.chain.from_iterable(reversed(logs.values()))
            return Lineage(branch=branch, entries=entries_of(branch.id, list(rows)))
        # Of each log only what lies before the place where the next one left it.
        upto = min(upto, of.parent_seq)
        n, of = _found(view, of.parent_branch)


def _checkpoints(view: View, wanted: CheckpointFilter) -> Iterator[CheckpointRow]:
    """The root checkpoints that match the filter, but for its limit."""
    after = divmod(wanted.after, SIZE) if wanted.after is not None else (0, -1)
    for n, branch_id in _walk(view, BranchFilter(run_id=wanted.run_id, thread_id=wanted.thread_id)):
        if n < after[0]:
            continue
        branch = listed_branch_of(view.get("b", branch_id), branch_id)
        if wanted.thread_id not in (None, branch.thread_id) or wanted.agent not in (None, branch.agent):
            continue
        for (_, _, seq), root in view.span("k", n, low=(after[1] + 1,) if n == after[0] else ()):
            _, label = parts_of(root, 2)
            if wanted.label not in (None, label) or (wanted.labeled and label is None):
                continue
            yield checkpoint_of(view, view.get("l", n, seq), branch, (seq, n * SIZE + seq), root)


def _child_ids(view: View, checkpoint_id: str) -> list[str]:
    found = [(key[2], key[3], id_of(value)) for key, value in view.span("d", checkpoint_id)]
    if (place := _place(view, checkpoint_id)) is not None:
        _, n, seq = place
        following = _next_root(view, n, seq)
        # Within a branch a row names no parent where that is the row before it.
        if following is not None and parts_of(view.get("l", n, following[0]), 5)[3] is None:
            found.append((n, *following))
    return [id for _, _, id in sorted(found) if view.get("c", id) is not None]


def _drop_document(view: View, kind: str, key: str) -> None:
    if (value := view.get("y", kind, key)) is not None:
        body, _, expires_at = parts_of(value, 3)
        view.leave(body)
        view.drop("y", kind, key)
        if isinstance(expires_at, float | int):
            view.drop("ye", expires_at, kind, key)

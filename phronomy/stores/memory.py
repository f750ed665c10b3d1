"""`MemoryStore`, which keeps everything in this process.

Every call has the store to itself while it works. A write judges first, by the same functions as every other store, and then changes
its tenant's books (`memory_tenant.py`) in an order that an interrupt can cut anywhere: see `_write`. A process that forks has two
stores from then on; a process that ends has none.
"""

from __future__ import annotations

import copy
import itertools
import logging
import os
import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self, TypeVar
from weakref import WeakSet

from phronomy.errors import CheckpointUntrusted, StoreError
from phronomy.foundation.quoting import quoted, quoted_id
from phronomy.stores.alone import Alone
from phronomy.stores.base import Store, checked_tenant
from phronomy.stores.derived import retention
from phronomy.stores.derived.changes import (
    by_digest,
    check_batch,
    check_change,
    check_new,
    check_parent,
    check_removal,
    check_thread,
    grown,
    latest_ended,
    lost,
    not_found,
    one_place,
    taken_id,
)
from phronomy.stores.derived.documents import behind, check_document, new_version
from phronomy.stores.memory_tenant import NOTHING, Books, Line, Waits, lists_of, note_under
from phronomy.stores.rows import (
    ENDED,
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
from phronomy.stores.storeless_runs import HOMES, Homes

T = TypeVar("T")

_log = logging.getLogger("phronomy")


_FORGOTTEN: Final = 10_000
"""How many runs that were deleted by themselves are still refused, if somebody brings a text of one."""


class MemoryStore(Store):
    """A store in the memory of this process. Its data end with the process. It can be used from any thread.

    `max_runs` is the number of runs of a tenant that are kept after they have ended (100; None: all). Above it, those
    that ended first are deleted, also if they are the last of a thread. `keep_labeled` keeps runs that have a label. Runs
    that wait or can be resumed do not count and are never deleted, nor is the run of the last write. After `os.fork`,
    the two processes have two independent stores.
    """

    # It never waits for more than another thread's dictionary work, so an event loop may call it directly: a thread
    # would cost more than the call.
    blocking = False

    def __init__(
        self,
        *,
        tenant: str = "",
        clock: Callable[[], float] = time.time,
        lease: float = 30.0,
        ttl: float | None = None,
        max_runs: int | None = 100,
        keep_labeled: bool = False,
    ) -> None:
        super().__init__(tenant=tenant, clock=clock, lease=lease, ttl=ttl)
        if max_runs is not None and (type(max_runs) is not int or max_runs < 1):
            raise StoreError(f"max_runs is a whole number, 1 or more, or None, not {quoted(max_runs)}")
        if not isinstance(keep_labeled, bool):
            raise StoreError(f"keep_labeled is True or False, not {type(keep_labeled).__name__}")
        self._most = max_runs
        self._keep_labeled = keep_labeled
        # One lock for all tenants: stores made by `for_tenant` share the numbers and this dictionary, and a lock for
        # each would have to be found under another.
        self._alone = Alone()
        _STORES.add(self)
        self._count = itertools.count(1)
        self._tenants: dict[str, Books] = {}
        self._homes: Homes | None = None
        self._told = False

    @classmethod
    def of_agent(cls) -> Self:
        """Make the store of an agent that was given none. All agents of the process can find its runs."""
        # Agents without a store are made anew for each request. A checkpoint that one of them gave away may come back
        # to two others at once, and the decision in it counts once only if both find the store it was made in.
        store = cls()
        store._homes = HOMES
        return store

    @property
    def is_of_agent(self) -> bool:
        """True if it is the store of an agent that was given none."""
        return self._homes is not None

    def home_of(self, run_id: str, checkpoint_id: str) -> MemoryStore:
        """The store of this process that has the run of this checkpoint.

        It is this store, or the store of another agent that was given none.
        """
        if self._homes is None or checkpoint_id in self._mine.places:
            return self
        return self._homes.of(run_id, self)

    def refuse_forgotten(self, run_id: str, checkpoint_id: str) -> None:
        """Refuse the text of a run that was deleted because others have ended since. Raises `CheckpointUntrusted`."""
        if run_id in self._mine.forgotten:
            raise CheckpointUntrusted(
                f"run {quoted_id(run_id)} of checkpoint {quoted_id(checkpoint_id)} has ended, and the memory store has deleted it:"
                " it is not begun again from its text. To keep it longer, pass max_runs, or use a store with a database",
                checkpoint_id=checkpoint_id,
            ) from None

    def for_tenant(self, tenant: str) -> Self:
        # The copy shares the lock, the counters and the dictionary of books. Its tenant's name alone says which are its own.
        other = copy.copy(self)
        other.tenant = checked_tenant(tenant)
        return other

    @property
    def _mine(self) -> Books:
        """The books of the tenant that this store belongs to."""
        found = self._tenants.get(self.tenant)
        # `setdefault` is one step under the interpreter's lock: two threads that name a new tenant at once get the same books.
        return self._tenants.setdefault(self.tenant, Books()) if found is None else found

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        check_new(branch, change)
        # What follows a write is done outside the lock: the homes have a lock of their own, and eviction calls the
        # store's own methods, which refuse a call from within another.
        self._wrote(self._alone(self._create, self._mine, branch, change, exclusive))

    def append(self, change: Append) -> Branch:
        check_change(change)
        return self._wrote(self._alone(self._append, self._mine, change))

    def append_all(self, changes: Sequence[Append]) -> list[Branch]:
        after = self._alone(self._append_all, self._mine, check_batch(changes))
        return [self._wrote(after[change.branch_id]) for change in changes]

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
        return self._alone(self._mine.lineage, checkpoint_id, branch_id)

    def select_branches(self, wanted: BranchFilter) -> list[Branch]:
        return self._alone(self._mine.select_branches, wanted)

    def select_pending(self, wanted: PendingFilter) -> list[PendingRow]:
        return self._alone(lambda: list(itertools.islice(self._mine.select_pending(wanted), wanted.limit)))

    def select_waiting(self, pending_id: str) -> list[tuple[PendingRow, Branch]]:
        """The pending approvals under an id, each with its branch, both of one moment."""
        return self._alone(lambda: list(self._mine.select_waiting(PendingFilter(pending_id=pending_id))))

    def count_pending(self, wanted: PendingFilter) -> int:
        return self._alone(lambda: sum(1 for _ in self._mine.select_pending(replace(wanted, after=None))))

    def select_checkpoints(self, wanted: CheckpointFilter) -> list[CheckpointRow]:
        return self._alone(lambda: list(itertools.islice(self._mine.select_checkpoints(wanted), wanted.limit)))

    def select_audit(self, wanted: AuditFilter) -> list[AuditRow]:
        return self._alone(lambda: list(itertools.islice(self._mine.select_audit(wanted), wanted.limit)))

    def child_ids(self, checkpoint_id: str) -> list[str]:
        return self._alone(self._mine.child_ids, checkpoint_id)

    def kept_text(self, digest: str) -> str | None:
        return self._alone(lambda: self._mine.texts.get(digest))

    def get_document(self, kind: str, key: str) -> Document | None:
        return self._alone(self._document, self._mine, kind, key)

    def select_documents(self, kind: str, *, after: str | None = None, limit: int | None = None) -> list[Document]:
        return self._alone(self._documents, self._mine, kind, after or "")[: None if limit is None else max(0, limit)]

    def put_document(self, document: Document) -> Document:
        check_document(document)
        return self._alone(self._put_document, self._mine, document)

    def delete_document(self, kind: str, key: str, *, version: str | None = None) -> None:
        self._alone(self._delete_document, self._mine, kind, key, version)

    def expire_documents(self) -> None:
        self._alone(self._expire_documents, self._mine)

    # What the primitives do, alone

    def _create(self, mine: Books, branch: Branch, change: Append, exclusive: bool) -> Branch:
        if exclusive and branch.thread_id is not None:
            check_thread(branch, [line.branch for line in mine.lines_of(None, branch.thread_id)])
        parent = mine.lines.get(branch.parent_branch or "")
        check_parent(branch, parent.branch if parent else None)
        after = grown(branch, change, now=self.clock(), lease=self.lease)
        # Checked last, as every store does: a thread that is busy is the better answer for somebody who began the same
        # run twice.
        if branch.id in mine.lines:
            raise taken_id("branch", branch.id)
        return self._write(mine, Line(next(self._count), branch, [], NOTHING), after, change)

    def _append(self, mine: Books, change: Append) -> Branch:
        return self._write(mine, *self._judged(mine, change), change)

    def _append_all(self, mine: Books, changes: Sequence[Append]) -> dict[str, Branch]:
        judged = [(*self._judged(mine, change), change) for change in changes]
        ready = {after.id: self._ready(mine, line, after, change) for line, after, change in judged}
        trail = [line for change in changes for line in self._trail(change)]
        # All of them become true at once, with no interrupt in between: the keys are text, so no line of Python runs in it.
        mine.lines.update(ready)
        mine.audit += trail
        for line, after, change in judged:
            self._settle(mine, line, after, change)
        return {after.id: after for _, after, _ in judged}

    def _judged(self, mine: Books, change: Append) -> tuple[Line, Branch]:
        """The line of the branch that a change is for, and the branch as the change leaves it. Raises as `append`."""
        line = mine.lines.get(change.branch_id)
        if line is None:
            raise not_found("branch", change.branch_id)
        return line, grown(line.branch, change, now=self.clock(), lease=self.lease)

    def _write(self, mine: Books, line: Line, after: Branch, change: Append) -> Branch:
        # Everything that can refuse comes first. Then the indexes are told, then one assignment makes the change true. An
        # interrupt before it leaves index entries that no line bears out. One right after it costs the line of the trail, the
        # note of where a run without a store lives, and the eviction, which the next write makes up for.
        ready, trail = self._ready(mine, line, after, change), self._trail(change)
        mine.lines[after.id] = ready
        mine.audit += trail
        self._settle(mine, line, after, change)
        return after

    def _trail(self, change: Append) -> list[AuditRow]:
        """The lines that a change adds to the trail, with their numbers."""
        return [replace(row, n=next(self._count)) for row in change.audit] if change.audit else []

    def _ready(self, mine: Books, line: Line, after: Branch, change: Append) -> Line:
        """What the line is to be once the change is true, with everything told that has to be before it."""
        texts = by_digest(change.texts) if change.texts else {}
        rows: dict[str, Entry] = {}
        fresh: list[Entry] = []
        seq = line.branch.seq
        for number, entry in enumerate(change.entries, seq + 1):
            fresh.append(replace(entry, branch_id=after.id, seq=number))
            if entry.checkpoint_id is not None and entry.path == "":
                # A nested row may stand twice, in a branch and in a saved copy of it. A root checkpoint is what ids
                # name, so it may not.
                if entry.checkpoint_id in rows or mine.find(entry.checkpoint_id)[1] is not None:
                    raise taken_id("checkpoint", entry.checkpoint_id)
                rows[entry.checkpoint_id] = fresh[-1]
        moves = change.opened or change.closed
        pending = self._pending_after(mine, line.pending, after, change) if moves else line.pending
        if after.id not in mine.lines:
            note_under(mine.runs, after.run_id, after.id)
            note_under(mine.threads, after.thread_id, after.id)
            note_under(mine.branches, after.parent_branch, after.id)
        for id, row in rows.items():
            mine.places[id] = (after.id, row.seq)
            note_under(mine.children, row.parent_id, id)
        # What an interrupt leaves of these is a text that no row names.
        for digest, text in texts.items():
            mine.texts.setdefault(digest, text)
        if after.handed is not None:
            mine.handed[after.id] = None
        if after.status in ENDED:
            mine.note_end(after.run_id)
        # Assigned to the end that counts, not appended: what an interrupted write left behind it is overwritten here.
        line.log[seq - after.parent_seq :] = fresh
        return Line(line.n, after, line.log, pending)

    def _settle(self, mine: Books, line: Line, after: Branch, change: Append) -> None:
        """Take from the lists what is in them no more."""
        # After the change is true: a request that is still listed, but in no line, is passed over. The other way round,
        # an interrupt would hide a request that nobody has decided.
        for pending_id in change.closed:
            mine.unlist(line.pending.get(pending_id))
        if after.handed is None:
            mine.handed.pop(after.id, None)

    def _pending_after(self, mine: Books, pending: Waits, after: Branch, change: Append) -> Waits:
        now = {id: row for id, row in pending.items() if id not in change.closed}
        for row in change.opened:
            if row.pending_id in now:
                raise taken_id("pending approval", row.pending_id)
            # Where it waits is the branch's to say. The writer's row is taken for the request alone, so a forged place
            # cannot put it into another run's list.
            number = next(self._count)
            row = replace(row, branch_id=after.id, run_id=after.run_id, thread_id=after.thread_id, n=number)
            now[row.pending_id] = row
        for row in now.values():
            # Requests that stay are in the lists already; the new ones go in before the change is true, for the reason
            # given in `_write`.
            if row.n not in mine.waiting:
                mine.waiting[row.n] = row
                for facet in lists_of(row):
                    insort(mine.order.setdefault(facet, []), (row.requested_at, row.n))
        return now

    def _renew(self, mine: Books, claim: Claim) -> Branch:
        line = mine.held(claim)
        if line is None:
            raise lost(claim)
        # Even after it has expired: expiry alone loses nothing, and only a take-over moves the fence.
        branch = replace(line.branch, lease_until=self.clock() + self.lease)
        mine.lines[branch.id] = replace(line, branch=branch)
        return branch

    def _release(self, mine: Books, claim: Claim, status: BranchStatus | None) -> Branch | None:
        line = mine.held(claim)
        if line is None:
            return None
        # The fence stays. The next owner gets a higher one, so a write of this one that is still under way is refused.
        branch = replace(line.branch, owner=None, lease_until=0.0, status=status or line.branch.status)
        if status in ENDED:
            mine.note_end(branch.run_id)
        mine.lines[branch.id] = replace(line, branch=branch)
        return branch

    def _wrote(self, branch: Branch) -> Branch:
        self._rests(branch)
        if self._most is not None and len(self._mine.ended) > self._most:
            self._evict(branch.run_id, self._most)
        return branch

    def _rests(self, branch: Branch) -> None:
        """Have it known where a run is that somebody may be handed a checkpoint of."""
        if self._homes is not None and branch.status in ("suspended", "failed"):
            self._homes.note(branch.run_id, self)

    def _announced(self, mine: Books, branch_id: str, seq: int) -> None:
        line = mine.lines.get(branch_id)
        if line is None:
            raise not_found("branch", branch_id)
        # Never backwards: two workers may tell the same entries, and the slower one must not have the rest told again.
        if line.branch.announced is not None and line.branch.announced < seq:
            mine.lines[branch_id] = replace(line, branch=replace(line.branch, announced=seq))

    def _remove(self, mine: Books, branches: Mapping[str, int], detached: Mapping[str, Sequence[Entry]]) -> None:
        now = self.clock()
        for branch_id, seq in branches.items():
            line = mine.lines.get(branch_id)
            # All is looked at before anything goes: a run that somebody has just resumed, or forked, is left as a
            # whole.
            check_removal(line.branch if line else None, branch_id, seq, now)
            for child in mine.branches.get(branch_id, ()):
                if child in mine.lines and child not in branches and child not in detached:
                    raise Behind(child)
        # A copy, changed and then put in place as a whole: in the middle of it a child would have neither its parent
        # nor rows that stand for themselves.
        after = dict(mine.lines)
        for branch_id, entries in detached.items():
            line = after.get(branch_id)
            if line is None:
                raise Behind(branch_id)
            log = list(line.log)
            for entry in entries:
                # A new list as well. A reader may hold the old line, whose log must go on fitting its parent.
                log[entry.seq - line.branch.parent_seq - 1] = entry
            after[branch_id] = replace(line, branch=replace(line.branch, parent_branch=None), log=log)
        gone = [after.pop(branch_id) for branch_id in branches]
        mine.lines = after
        for line in gone:
            mine.forget(line)

    # Documents: each change is one assignment, so an interrupt leaves all or nothing of it

    def _document(self, mine: Books, kind: str, key: str) -> Document | None:
        found = mine.documents.get((kind, key))
        return found if found is not None and found.is_live(self.clock()) else None

    def _documents(self, mine: Books, kind: str, after: str) -> list[Document]:
        now = self.clock()
        keys = sorted(key for of, key in mine.documents if of == kind and key > after)
        return [found for key in keys if (found := mine.documents[kind, key]).is_live(now)]

    def _put_document(self, mine: Books, document: Document) -> Document:
        found = self._document(mine, document.kind, document.key)
        if document.version != (found.version if found is not None else ""):
            raise behind(document.kind, document.key)
        after = replace(document, version=new_version())
        mine.documents[document.kind, document.key] = after
        return after

    def _delete_document(self, mine: Books, kind: str, key: str, version: str | None) -> None:
        found = self._document(mine, kind, key)
        if found is None:
            return
        if version is not None and version != found.version:
            raise behind(kind, key)
        del mine.documents[kind, key]

    def _expire_documents(self, mine: Books) -> None:
        now = self.clock()
        mine.documents = {place: found for place, found in mine.documents.items() if found.is_live(now)}

    # The bound

    def _evict(self, newest: str, most: int) -> None:
        for run_id in self._alone(self._surplus, self._mine, most):
            # The run just written is what the caller is working with: it would lose it between two of its own calls.
            if run_id == newest:
                continue
            run = self.branches(run_id=run_id)
            # Through the public primitives, as `prune` does: children of the run that goes are made whole first. It may
            # be taken up by somebody else meanwhile, and then it stays.
            if run and not retention.spared(self, run, self._keep_labeled, 0):
                self._tell_forgotten(run)
                # Before it goes: a text of it that somebody still has may come back at any moment, with a decision that was made.
                self._alone(self._mine.note_forgotten, run_id, _FORGOTTEN)
                retention.take_away(self, run)
            if len(self._mine.ended) <= most:
                return

    def _surplus(self, mine: Books, most: int) -> list[str]:
        """The runs that have ended, the first to end first, if there are more than that."""
        # Most writes end here. Only past the bound are the runs looked at.
        if len(mine.ended) <= most:
            return []
        for run_id in list(mine.ended):
            # Noted before its end became true, and something came between; or one of its branches goes on again.
            if any(mine.lines[id].branch.status not in ENDED for id in mine.runs.get(run_id, ()) if id in mine.lines):
                del mine.ended[run_id]
        return list(mine.ended)

    def _tell_forgotten(self, run: Sequence[Branch]) -> None:
        """Say once that a conversation is forgotten: its next message begins another one, and nothing else tells of it."""
        last = latest_ended(self.branches(thread_id=run[0].thread_id)) if run[0].thread_id is not None else None
        if last is not None and last.run_id == run[0].run_id and not self._told:
            self._told = True
            _log.warning(
                "a memory store keeps the last %s runs that have ended, and has deleted the last run of a thread: pass"
                " max_runs, or use a store with a database",
                self._most,
            )


# Weak, so that a store nobody uses any more can go. A process that forks is rare, stores for one request are not.
_STORES: Final[WeakSet[MemoryStore]] = WeakSet()
_FORKING: Final[list[MemoryStore]] = []


def _before_fork() -> None:
    """Keep all others out, so that the child gets no store that is half changed, or held by a thread that it does not have."""
    # A fork copies memory as it is at that instant. With the locks taken, no other thread is in the middle of a change,
    # and after it parent and child let go of the same ones. A store that this very thread is inside of (a tool forks
    # within a call) cannot be waited for: it would wait for itself.
    for store in list(_STORES):
        if not store._alone.inside:
            store._alone.lock.acquire()
            _FORKING.append(store)


def _after_fork() -> None:
    while _FORKING:
        _FORKING.pop()._alone.lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)

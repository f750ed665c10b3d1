"""Whatever is done to them, in whatever order, the stores give the same answers."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from phronomy.errors import CheckpointNotFound, LeaseLost, PhronomyError
from phronomy.stores import (
    Append,
    Behind,
    Branch,
    Claim,
    Document,
    Entry,
    Held,
    MemoryStore,
    Occupied,
    PendingRow,
    SQLiteStore,
    Store,
)

BRANCHES = [f"b{number}" for number in range(5)]
OWNERS = ["me", "you"]
STATUSES = ["running", "suspended", "failed", "completed", "cancelled"]

branch_ids = st.sampled_from(BRANCHES)
checkpoint_ids = st.sampled_from([f"c{number}" for number in range(40)])
pending_ids = st.sampled_from(["p0", "p1", "p2"])
keys = st.sampled_from(["ann", "bob", "Bob"])
threads = st.sampled_from([None, "t", "u"])
statuses = st.none() | st.sampled_from(STATUSES)
entries = st.builds(
    Entry,
    path=st.sampled_from(["", "", "", "1.0", "1.0/2.0"]),
    body=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
    checkpoint_id=st.none() | checkpoint_ids,
    parent_id=st.none() | checkpoint_ids,
)
asked = st.builds(
    PendingRow,
    pending_id=pending_ids,
    branch_id=branch_ids,
    run_id=branch_ids,
    thread_id=threads,
    agent=st.just("clerk"),
    tool_name=st.just("pay"),
    checkpoint_id=checkpoint_ids,
    requested_at=st.sampled_from([1.0, 2.5, 4.0]),
    body=st.just("{}"),
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "entries": st.lists(entries, max_size=3).map(tuple),
        "head": checkpoint_ids,
        "status": st.sampled_from(STATUSES),
        "opened": st.lists(asked, max_size=2).map(tuple),
        "closed": st.lists(pending_ids, max_size=2).map(tuple),
        "release": st.booleans(),
        "texts": st.sampled_from([(), ("{}",), ("{}", "[]"), ("\ud800",)]),
    },
)
which = st.integers(0, 9)
leases = st.sampled_from([0.0, 5.0, 20.0])
offsets = st.sampled_from([0, 0, 0, 0, 0, -1, 1])


class Stores(RuleBasedStateMachine):
    """Does the same to a memory store and to a SQLite store."""

    @initialize()
    def open(self) -> None:
        self.now = 1000.0
        self.directory = Path(tempfile.mkdtemp())
        self.memory = MemoryStore(clock=lambda: self.now)
        self.sqlite = self._opened()

    def _opened(self) -> SQLiteStore:
        return SQLiteStore(self.directory / "runs.db", clock=lambda: self.now, synchronous="OFF")

    def teardown(self) -> None:
        if hasattr(self, "sqlite"):
            self.sqlite.close()
            shutil.rmtree(self.directory)

    def both(self, act: Callable[[Store], Any]) -> None:
        """Do it to both, and compare: the answer, or the error and what it says of the branch."""
        answers = [_answer(act, store) for store in (self.memory, self.sqlite)]
        assert answers[0] == answers[1]

    def some(self, which: int, *, held: bool = False) -> Branch:
        """One of the branches that are there, of those that somebody holds if need be, else one that is not."""
        known = [branch for branch in self.memory.branches() if branch.owner is not None or not held]
        return known[which % len(known)] if known else Branch(id="none", run_id="none", thread_id=None, agent="clerk")

    def claim(self, which: int, fence: int, owner: str | None = None) -> Claim:
        """The claim on a held branch, or one that is not quite it."""
        branch = self.some(which, held=True)
        return Claim(branch_id=branch.id, run_id="r", owner=owner or branch.owner or "me", fence=branch.fence + fence)

    @rule(
        id=branch_ids,
        run=branch_ids,
        thread=threads,
        parent=st.none() | which,
        back=st.sampled_from([0, 0, 1, 2, 3, -1]),
        take=st.none() | st.sampled_from(OWNERS),
        lease=leases,
        change=changes,
        exclusive=st.booleans(),
    )
    def create(
        self,
        *,
        id: str,
        run: str,
        thread: str | None,
        parent: int | None,
        back: int,
        take: str | None,
        lease: float,
        change: Any,
        exclusive: bool,
    ) -> None:
        since = None if parent is None else self.some(parent)
        seq = 0 if since is None else since.seq - back
        branch = Branch(
            id=id,
            run_id=run,
            thread_id=thread,
            agent="clerk",
            parent_branch=since and since.id,
            parent_seq=seq,
            seq=seq,
        )
        first = Append(branch_id=id, seq=seq, take=take, lease=lease, **change)
        self.both(lambda store: store.create(branch, first, exclusive=exclusive))

    @rule(
        which=which,
        offset=offsets,
        fence=offsets,
        owner=st.none() | st.none() | st.sampled_from(OWNERS),
        lease=leases,
        change=changes,
    )
    def append_with_a_claim(
        self, *, which: int, offset: int, fence: int, owner: str | None, lease: float, change: Any
    ) -> None:
        seq = self.some(which, held=True).seq + offset
        claim = self.claim(which, fence, owner)
        whole = Append(branch_id=claim.branch_id, seq=seq, claim=claim, lease=lease, **change)
        self.both(lambda store: store.append(whole))

    @rule(which=which, offset=offsets, owner=st.sampled_from(OWNERS), lease=leases, change=changes)
    def take(self, which: int, offset: int, owner: str, lease: float, change: Any) -> None:
        branch = self.some(which)
        whole = Append(branch_id=branch.id, seq=branch.seq + offset, take=owner, lease=lease, **change)
        self.both(lambda store: store.append(whole))

    @rule(
        which=which,
        offset=offsets,
        fence=st.sampled_from([0, 0, 0, 0, -1]),
        owner=st.none() | st.none() | st.sampled_from(OWNERS),
        change=changes,
    )
    def append_for_a_holder(self, *, which: int, offset: int, fence: int, owner: str | None, change: Any) -> None:
        seq = self.some(which, held=True).seq + offset
        holder = self.claim(which, fence, owner)
        left = Append(branch_id=holder.branch_id, seq=seq, holder=holder, **change)
        self.both(lambda store: store.append(left))

    @rule(which=which, offset=offsets, fence=st.sampled_from([0, 0, 0, 0, -1, 1]), change=changes)
    def append_for_nobody(self, *, which: int, offset: int, fence: int, change: Any) -> None:
        branch = self.some(which)
        nobody = Claim(branch_id=branch.id, run_id="r", owner="", fence=branch.fence + fence)
        left = Append(branch_id=branch.id, seq=branch.seq + offset, holder=nobody, **change)
        self.both(lambda store: store.append(left))

    @rule(
        picks=st.lists(st.tuples(which, st.sampled_from([0, 0, 0, 0, 0, 1]), st.booleans()), max_size=3),
        notes=st.lists(st.sampled_from(["a", "b"]), max_size=2),
        closed=st.lists(pending_ids, max_size=2),
    )
    def append_to_several(self, picks: list[tuple[int, int, bool]], notes: list[str], closed: list[str]) -> None:
        """For whoever holds each branch, or for nobody; sometimes one is late, and sometimes a branch comes twice."""
        changes = []
        for which, offset, held in picks:
            branch = self.some(which, held=held)
            owner = branch.owner if branch.is_held(self.now) else None
            holder = Claim(branch_id=branch.id, run_id="r", owner=owner or "", fence=branch.fence)
            entries = tuple(Entry(path="", body=text) for text in notes)
            left = Append(branch_id=branch.id, seq=branch.seq + offset, holder=holder, entries=entries)
            changes.append(replace(left, closed=tuple(closed)))
        self.both(lambda store: store.append_all(changes))

    @rule(which=which, offset=offsets, change=changes)
    def append_without_any_right(self, which: int, offset: int, change: Any) -> None:
        branch = self.some(which)
        self.both(lambda store: store.append(Append(branch_id=branch.id, seq=branch.seq + offset, **change)))

    @rule(which=which, fence=offsets)
    def renew(self, which: int, fence: int) -> None:
        claim = self.claim(which, fence)
        self.both(lambda store: store.renew(claim))

    @rule(which=which, fence=offsets, status=statuses)
    def release(self, which: int, fence: int, status: Any) -> None:
        claim = self.claim(which, fence)
        self.both(lambda store: store.release(claim, status))

    @rule(key=keys, text=st.sampled_from(["", "a"]), stale=st.booleans(), time=st.none() | st.sampled_from([1.0, 10.0]))
    def put_a_document(self, key: str, text: str, stale: bool, time: float | None) -> None:
        expires = None if time is None else self.now + time

        def put(store: Store) -> Document:
            found = store.get_document("person", key)
            version = "stale" if stale else found.version if found is not None else ""
            written = Document(kind="person", key=key, text=text, version=version, expires_at=expires)
            return replace(store.put_document(written), version="")

        self.both(put)

    @rule(key=keys, version=st.sampled_from([None, "stale"]))
    def delete_a_document(self, key: str, version: str | None) -> None:
        self.both(lambda store: store.delete_document("person", key, version=version))

    @rule()
    def expire_documents(self) -> None:
        self.both(lambda store: store.expire_documents())

    @rule(seconds=st.sampled_from([1.0, 5.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def reopen(self) -> None:
        self.sqlite.close()
        self.sqlite = self._opened()

    @rule(id=checkpoint_ids)
    def read_a_checkpoint(self, id: str) -> None:
        self.both(lambda store: store.lineage(checkpoint_id=id))
        self.both(lambda store: store.child_ids(id))

    @rule(run=st.none() | branch_ids, thread=threads)
    def list(self, run: str | None, thread: str | None) -> None:
        self.both(lambda store: store.branches(run_id=run, thread_id=thread))
        self.both(lambda store: store.pending_rows(run_id=run, thread_id=thread))

    @invariant()
    def hold_the_same(self) -> None:
        if hasattr(self, "sqlite"):
            self.both(lambda store: store.branches())
            self.both(lambda store: store.pending_rows())
            for id in BRANCHES:
                self.both(lambda store, id=id: store.lineage(branch_id=id))
            self.both(lambda store: [replace(found, version="") for found in store.select_documents("person")])
            for text in ("{}", "[]"):
                digest = hashlib.sha256(text.encode()).hexdigest()
                self.both(lambda store, digest=digest: store.kept_text(digest))


def _answer(act: Callable[[Store], Any], store: Store) -> Any:
    try:
        answer = act(store)
        rows = isinstance(answer, list) and answer and isinstance(answer[0], PendingRow)
        return [replace(row, n=0) for row in answer] if rows else answer  # numbers are each store's own
    except (Held, Occupied) as error:
        return type(error), error.branch
    except CheckpointNotFound as error:
        return type(error), error.id
    except LeaseLost as error:
        return type(error), error.branch_id, error.run_id
    except (Behind, PhronomyError) as error:
        return type(error)


class TestStores(Stores.TestCase):
    settings = settings(stateful_step_count=30)

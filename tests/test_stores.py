"""Every store keeps the same promises: whoever reads a store cannot tell which one it is."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phronomy.errors import CheckpointNotFound, LeaseLost, StoreError
from phronomy.stores import (
    Append,
    Behind,
    Branch,
    Claim,
    Entry,
    Held,
    Lineage,
    MemoryStore,
    Occupied,
    PendingRow,
    SQLiteStore,
    Store,
)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Reopened(Store):
    """A SQLite store whose file is closed and opened again between any two calls."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._path = path

    def _do(self, name: str, *args: Any, **options: Any) -> Any:
        with SQLiteStore(self._path, clock=self.clock, synchronous="OFF") as store:
            return getattr(store, name)(*args, **options)

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        self._do("create", branch, change, exclusive=exclusive)

    def append(self, change: Append) -> Branch:
        return self._do("append", change)

    def renew(self, claim: Claim) -> Branch:
        return self._do("renew", claim)

    def release(self, claim: Claim, status: Any = None) -> None:
        self._do("release", claim, status)

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        return self._do("lineage", checkpoint_id=checkpoint_id, branch_id=branch_id)

    def branches(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[Branch]:
        return self._do("branches", run_id=run_id, thread_id=thread_id)

    def pending_rows(self, *, run_id: str | None = None, thread_id: str | None = None) -> list[PendingRow]:
        return self._do("pending_rows", run_id=run_id, thread_id=thread_id)

    def child_ids(self, checkpoint_id: str) -> list[str]:
        return self._do("child_ids", checkpoint_id)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "sqlite reopened"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    stores = {
        "memory": lambda: MemoryStore(clock=clock),
        "sqlite": lambda: SQLiteStore(tmp_path / "runs.db", clock=clock, synchronous="OFF"),
        "sqlite reopened": lambda: Reopened(tmp_path / "runs.db", clock),
    }
    with stores[request.param]() as opened:
        yield opened


# What is written


def row(id: str, parent: str | None = None, path: str = "", body: str = "{}") -> Entry:
    return Entry(path=path, body=body, checkpoint_id=id, parent_id=parent)


def note(body: str, path: str = "") -> Entry:
    return Entry(path=path, body=body)


def asked(id: str, at: float = 1.0) -> PendingRow:
    return PendingRow(
        pending_id=id,
        branch_id="ignored",
        run_id="ignored",
        thread_id=None,
        agent="clerk",
        tool_name="pay",
        checkpoint_id="ignored",
        requested_at=at,
        body=f'{{"of":"{id}"}}',
    )


def begin(
    store: Store,
    id: str,
    *entries: Entry,
    run: str | None = None,
    thread: str | None = None,
    parent: tuple[str, int] | None = None,
    exclusive: bool = False,
    **change: Any,
) -> None:
    """Create a branch with these first entries."""
    parent_branch, seq = parent or (None, 0)
    branch = Branch(
        id=id,
        run_id=run or id,
        thread_id=thread,
        agent="clerk",
        parent_branch=parent_branch,
        parent_seq=seq,
        seq=seq,
    )
    store.create(branch, Append(branch_id=id, seq=seq, entries=entries, **change), exclusive=exclusive)


def branch_of(store: Store, id: str) -> Branch:
    return store.lineage(branch_id=id).branch


def written(lineage: Lineage) -> list[tuple[int, str, str]]:
    """Each entry as its number, the branch in whose log it stands, and its checkpoint or body."""
    return [(entry.seq, entry.branch_id, entry.checkpoint_id or entry.body) for entry in lineage.entries]


def everything(store: Store) -> Any:
    branches = store.branches()
    return branches, store.pending_rows(), [store.lineage(branch_id=branch.id) for branch in branches]


MINE = Claim(branch_id="b1", run_id="b1", owner="me", fence=1)


# Branches and logs


def test_a_new_branch_is_there_as_it_was_created(store: Store) -> None:
    begin(store, "b1", row("c1"), note("j1"), thread="t", head="c1", status="suspended", opened=(asked("p1"),))
    branch = Branch(
        **{"id": "b1", "run_id": "b1", "thread_id": "t", "agent": "clerk", "seq": 2, "head": "c1"},
        **{"status": "suspended", "changed_at": 1000.0},
    )
    assert everything(store) == (
        [branch],
        [dataclasses.replace(asked("p1"), branch_id="b1", run_id="b1", thread_id="t", checkpoint_id="c1")],
        [
            Lineage(
                branch=branch,
                entries=(
                    Entry(path="", body="{}", checkpoint_id="c1", branch_id="b1", seq=1),
                    Entry(path="", body="j1", branch_id="b1", seq=2),
                ),
            )
        ],
    )


def test_a_branch_can_be_held_from_its_creation(store: Store) -> None:
    begin(store, "b1", row("c1"), take="me", lease=5.0)
    branch = branch_of(store, "b1")
    assert (branch.owner, branch.fence, branch.lease_until) == ("me", 1, 1005.0)


def test_a_claim_taken_without_a_lease_lasts_as_long_as_the_store_says(store: Store) -> None:
    begin(store, "b1", row("c1"), take="me")
    assert branch_of(store, "b1").lease_until == 1000.0 + store.lease


def test_text_comes_back_byte_for_byte(store: Store) -> None:
    text = '{"a":5.0,"b":"Grüße\\u0000\t☃🂡","c":1e400}\n'
    begin(store, "b1", row("c1", body=text), note(text, path="é/0"))
    assert [entry.body for entry in store.lineage(checkpoint_id="c1").entries] == [text, text]
    assert store.lineage(branch_id="b1").entries[1].path == "é/0"


def test_a_branch_or_checkpoint_cannot_be_added_twice(store: Store) -> None:
    begin(store, "b1", row("c1"), opened=(asked("p1"),), take="me")
    before = everything(store)
    with pytest.raises(StoreError):
        begin(store, "b1")
    with pytest.raises(StoreError):
        begin(store, "b2", row("c2"), row("c1"))
    with pytest.raises(StoreError):
        begin(store, "b2", row("c2"), row("c2"))
    with pytest.raises(StoreError):
        begin(store, "b2", opened=(asked("p2"), asked("p2")))
    with pytest.raises(StoreError):
        store.append(Append(branch_id="b1", seq=1, entries=(note("j"), row("c1")), claim=MINE))
    with pytest.raises(StoreError):
        store.append(Append(branch_id="b1", seq=1, entries=(note("j"),), opened=(asked("p1"),), claim=MINE))
    assert everything(store) == before
    begin(store, "b2", row("c2", path="nested"), row("c1", path="nested"), opened=(asked("p1"),))
    assert [row.branch_id for row in store.pending_rows()] == ["b1", "b2"]


def test_an_exclusive_branch_finds_its_thread_free_or_is_refused(store: Store) -> None:
    begin(store, "b1", row("c1"), thread="t", status="suspended", exclusive=True)
    before = everything(store)
    with pytest.raises(Occupied) as refused:
        begin(store, "b2", row("c2"), thread="t", exclusive=True)
    assert refused.value.branch == branch_of(store, "b1")
    assert everything(store) == before

    begin(store, "b2", row("c2"), thread="other", exclusive=True)
    begin(store, "b3", row("c3"), exclusive=True)
    begin(store, "b4", row("c4"), exclusive=True)
    begin(store, "b5", row("c5"), thread="t", parent=("b1", 1), exclusive=False)
    with pytest.raises(Occupied) as refused:
        begin(store, "b6", row("c6"), thread="t", exclusive=True)
    assert refused.value.branch.id == "b5"

    for id in ("b1", "b5"):
        store.append(Append(branch_id=id, seq=branch_of(store, id).seq, take="me", status="completed", release=True))
    begin(store, "b6", row("c6"), thread="t", parent=("b5", 2), status="failed", exclusive=True)
    with pytest.raises(Occupied) as refused:
        begin(store, "b7", row("c7"), thread="t", parent=("b5", 2), exclusive=True)
    assert refused.value.branch.id == "b6"
    assert [branch.id for branch in store.branches(thread_id="t")] == ["b1", "b5", "b6"]


def test_an_exclusive_branch_goes_on_from_where_its_thread_ended_last(store: Store, clock: Clock) -> None:
    """Somebody else's run may end between the look at the thread and the write."""

    def end(id: str) -> None:
        store.append(Append(branch_id=id, seq=branch_of(store, id).seq, take="me", status="completed", release=True))

    begin(store, "b1", row("c1"), thread="t", exclusive=True)
    end("b1")
    before = everything(store)
    for parent in (None, ("b0", 0)):
        with pytest.raises((Behind, CheckpointNotFound)):
            begin(store, "b2", row("c2"), thread="t", parent=parent, exclusive=True)
    assert everything(store) == before

    begin(store, "b2", row("c2"), thread="t", parent=("b1", 1), exclusive=True)
    begin(store, "b3", row("c3"), run="b1", thread="t", parent=("b1", 1))
    clock.now = 1001.0
    end("b3")
    clock.now = 1002.0
    end("b2")
    with pytest.raises(Behind):
        begin(store, "b4", row("c4"), thread="t", parent=("b3", 2), exclusive=True)
    begin(store, "b4", row("c4"), thread="t", parent=("b2", 2), exclusive=True)
    assert [branch.id for branch in store.branches(thread_id="t")] == ["b1", "b2", "b3", "b4"]


@pytest.mark.parametrize(
    ("branch", "change"),
    [
        ({}, {"branch_id": "b2"}),
        ({}, {"seq": 1}),
        ({"seq": 1}, {"seq": 1}),
        ({"parent_branch": "b0", "parent_seq": -1, "seq": -1}, {"seq": -1}),
        ({"parent_seq": 1, "seq": 1}, {"seq": 1}),
        ({"parent_branch": "b0", "parent_seq": 1}, {}),
        ({"parent_branch": "b0", "parent_seq": 2, "seq": 2}, {"seq": 2}),
        ({"owner": "me"}, {}),
        ({}, {"claim": MINE}),
        ({}, {"lease": -1.0}),
        ({}, {"lease": float("nan")}),
    ],
)
def test_a_branch_that_does_not_begin_where_it_says_is_refused(store: Store, branch: Any, change: Any) -> None:
    begin(store, "b0", row("c0"))
    before = everything(store)
    first = Append(**{"branch_id": "b1", "seq": 0, "entries": (row("c1"),), **change})
    with pytest.raises(StoreError):
        store.create(
            Branch(**{"id": "b1", "run_id": "b1", "thread_id": None, "agent": "a", **branch}), first, exclusive=False
        )
    assert everything(store) == before


def test_a_branch_whose_parent_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(CheckpointNotFound) as refused:
        begin(store, "b1", row("c1"), parent=("gone", 1))
    assert refused.value.id == "gone"
    assert everything(store) == ([], [], [])


# Appending


def test_entries_are_numbered_on_and_the_branch_moves(store: Store) -> None:
    begin(store, "b1", row("c1"), head="c1", take="me", lease=5.0)
    after = store.append(
        Append(branch_id="b1", seq=1, entries=(note("j"), row("c2", "c1")), claim=MINE, head="c2", status="suspended")
    )
    assert after == Branch(
        **{"id": "b1", "run_id": "b1", "thread_id": None, "agent": "clerk", "seq": 3, "head": "c2"},
        **{"status": "suspended", "owner": "me", "fence": 1, "lease_until": 1005.0, "changed_at": 1000.0},
    )
    assert branch_of(store, "b1") == after
    assert written(store.lineage(branch_id="b1")) == [(1, "b1", "c1"), (2, "b1", "j"), (3, "b1", "c2")]


def test_a_writer_who_missed_an_entry_is_told_and_writes_nothing(store: Store) -> None:
    begin(store, "b1", row("c1"), take="me")
    store.append(Append(branch_id="b1", seq=1, entries=(note("first"),), claim=MINE))
    before = everything(store)
    for seq in (0, 1, 3, 2**70):
        with pytest.raises(Behind):
            store.append(Append(branch_id="b1", seq=seq, entries=(note("late"),), claim=MINE, opened=(asked("p"),)))
    assert everything(store) == before


def test_a_branch_that_is_not_there_cannot_be_written_to(store: Store) -> None:
    with pytest.raises(CheckpointNotFound) as refused:
        store.append(Append(branch_id="b1", seq=0, entries=(note("j"),)))
    assert refused.value.id == "b1"


def test_a_claim_lasts_until_its_lease_is_over_and_is_then_anybodys(store: Store, clock: Clock) -> None:
    begin(store, "b1", row("c1"), take="me", lease=5.0)
    held = branch_of(store, "b1")
    clock.now = 1004.9
    for owner in ("you", "me"):
        with pytest.raises(Held) as refused:
            store.append(Append(branch_id="b1", seq=1, take=owner, lease=5.0))
        assert refused.value.branch == held
    assert branch_of(store, "b1") == held

    clock.now = 1005.0
    taken = store.append(Append(branch_id="b1", seq=1, take="you", lease=5.0))
    assert (taken.owner, taken.fence, taken.lease_until) == ("you", 2, 1010.0)


def test_the_last_holder_of_an_expired_lease_still_writes_until_somebody_takes_over(store: Store, clock: Clock) -> None:
    begin(store, "b1", row("c1"), take="me", lease=5.0)
    clock.now = 2000.0
    after = store.append(Append(branch_id="b1", seq=1, entries=(note("late"),), claim=MINE, lease=5.0))
    assert (after.owner, after.lease_until) == ("me", 2005.0)

    clock.now = 3000.0
    store.append(Append(branch_id="b1", seq=2, take="you"))
    before = everything(store)
    for seq in (2, 0):
        with pytest.raises(LeaseLost) as lost:
            store.append(Append(branch_id="b1", seq=seq, entries=(note("too late"),), claim=MINE))
        assert (lost.value.run_id, lost.value.branch_id) == ("b1", "b1")
    assert everything(store) == before


def test_each_take_over_has_a_new_fence_so_an_old_claim_of_the_same_owner_is_lost(store: Store) -> None:
    begin(store, "b1", row("c1"), take="me")
    store.release(MINE)
    store.append(Append(branch_id="b1", seq=1, take="me"))
    with pytest.raises(LeaseLost):
        store.append(Append(branch_id="b1", seq=1, claim=MINE))
    other = dataclasses.replace(MINE, branch_id="b2")
    begin(store, "b2", take="me")
    with pytest.raises(LeaseLost):
        store.append(Append(branch_id="b1", seq=1, claim=other))


def test_an_append_can_extend_the_lease_leave_it_or_give_it_up(store: Store, clock: Clock) -> None:
    begin(store, "b1", row("c1"), take="me", lease=5.0)
    clock.now = 1003.0
    assert store.append(Append(branch_id="b1", seq=1, claim=MINE)).lease_until == 1005.0
    assert store.append(Append(branch_id="b1", seq=1, claim=MINE, lease=5.0)).lease_until == 1008.0
    free = store.append(Append(branch_id="b1", seq=1, claim=MINE, lease=5.0, release=True, status="completed"))
    assert (free.owner, free.fence, free.lease_until, free.status) == (None, 1, 0.0, "completed")
    both = store.append(Append(branch_id="b1", seq=1, take="you", entries=(note("j"),), release=True))
    assert (both.owner, both.fence, both.seq) == (None, 2, 2)


def test_without_a_claim_only_journal_entries_are_taken_and_what_is_pending_closed(store: Store) -> None:
    begin(store, "b1", row("c1"), head="c1", take="me", opened=(asked("p1"), asked("p2")))
    after = store.append(Append(branch_id="b1", seq=1, entries=(note("decided"),), closed=("p1", "unknown")))
    assert (after.seq, after.owner) == (2, "me")
    assert [row.pending_id for row in store.pending_rows()] == ["p2"]

    before = everything(store)
    more: list[dict[str, Any]] = [
        {"entries": (note("j"), row("c2"))},
        {"entries": (row("n", path="nested"),)},
        {"opened": (asked("p3"),)},
        {"head": "c1"},
        {"status": "completed"},
        {"release": True},
        {"lease": 5.0},
        {"claim": MINE, "take": "me"},
    ]
    for change in more:
        with pytest.raises(StoreError):
            store.append(Append(branch_id="b1", seq=2, **change))
    assert everything(store) == before


def test_a_lease_is_renewed_even_late_and_not_once_it_is_lost(store: Store, clock: Clock) -> None:
    begin(store, "b1", row("c1"), take="me", lease=5.0)
    clock.now = 2000.0
    assert store.renew(MINE).lease_until == 2000.0 + store.lease
    assert branch_of(store, "b1").lease_until == 2000.0 + store.lease
    store.release(MINE)
    gone = [MINE, dataclasses.replace(MINE, branch_id="none"), dataclasses.replace(MINE, fence=2)]
    for claim in gone:
        with pytest.raises(LeaseLost):
            store.renew(claim)


def test_releasing_is_for_whoever_still_holds_and_nothing_for_others(store: Store) -> None:
    begin(store, "b1", row("c1"), take="me", status="running")
    before = everything(store)
    store.release(dataclasses.replace(MINE, fence=2), "failed")
    store.release(dataclasses.replace(MINE, owner="you"), "failed")
    store.release(dataclasses.replace(MINE, branch_id="none"), "failed")
    assert everything(store) == before
    store.release(MINE)
    assert branch_of(store, "b1").status == "running"
    store.append(Append(branch_id="b1", seq=1, take="me"))
    store.release(dataclasses.replace(MINE, fence=2), "failed")
    branch = branch_of(store, "b1")
    assert (branch.owner, branch.fence, branch.status) == (None, 2, "failed")
    store.release(dataclasses.replace(MINE, fence=2), "completed")
    assert branch_of(store, "b1").status == "failed"


# Reading


def forked(store: Store) -> None:
    """b1: c1 j1 n1 c2 j2 c3, b2 goes on after j1, b3 from before b2 began, b4 is the thread's next run."""
    entries = (row("c1"), note("j1"), row("n1", path="call/0"), row("c2", "c1"), note("j2"), row("c3", "c2"))
    begin(store, "b1", *entries, thread="t", head="c3", take="me")
    begin(store, "b2", row("f1", "c1"), note("k1"), run="b1", thread="t", parent=("b1", 2), head="f1")
    begin(store, "b3", row("g1", "c1"), run="b1", thread="t", parent=("b2", 1), head="g1")
    begin(store, "b4", row("d1", "f1"), thread="t", parent=("b2", 4), head="d1")


def test_a_lineage_leads_to_a_place_through_the_logs_that_it_goes_on_from(store: Store) -> None:
    forked(store)
    one = [(1, "b1", "c1"), (2, "b1", "j1"), (3, "b1", "n1"), (4, "b1", "c2"), (5, "b1", "j2"), (6, "b1", "c3")]
    two = [*one[:2], (3, "b2", "f1"), (4, "b2", "k1")]
    three = [one[0], (2, "b3", "g1")]
    four = [*two, (5, "b4", "d1")]
    for id, whole in (("b1", one), ("b2", two), ("b3", three), ("b4", four)):
        lineage = store.lineage(branch_id=id)
        assert written(lineage) == whole
        assert (lineage.branch.id, lineage.branch.seq) == (id, whole[-1][0])
    places = {"c1": one[:3], "c2": one[:5], "c3": one, "f1": two, "g1": three, "d1": four}
    for id, part in places.items():
        lineage = store.lineage(checkpoint_id=id)
        assert written(lineage) == part
        assert lineage.branch == branch_of(store, part[-1][1])


def test_a_branch_with_no_entries_of_its_own_yet_is_its_parents_place(store: Store) -> None:
    forked(store)
    begin(store, "b5", parent=("b1", 5))
    assert [entry.seq for entry in store.lineage(branch_id="b5").entries] == [1, 2, 3, 4, 5]
    begin(store, "b6")
    assert store.lineage(branch_id="b6") == Lineage(branch=branch_of(store, "b6"), entries=())


@pytest.mark.parametrize("id", ["", "none", "n1", "b1", "\ud800", "c1'; --"])
def test_a_checkpoint_that_is_not_there_or_is_nested_is_not_found(store: Store, id: str) -> None:
    forked(store)
    with pytest.raises(CheckpointNotFound) as missing:
        store.lineage(checkpoint_id=id)
    assert missing.value.id == id
    for ask in (store.load, store.history):
        with pytest.raises(CheckpointNotFound):
            ask(id)
    assert store.child_ids(id) == []


def test_a_branch_that_is_not_there_is_not_found(store: Store) -> None:
    for ask in (lambda: store.lineage(branch_id="none"), lambda: store.head("none")):
        with pytest.raises(CheckpointNotFound) as missing:
            ask()
        assert missing.value.id == "none"


def test_a_lineage_is_of_one_thing(store: Store) -> None:
    with pytest.raises(StoreError):
        store.lineage()
    with pytest.raises(StoreError):
        store.lineage(checkpoint_id="c", branch_id="b")


def test_children_are_those_of_the_branch_of_forks_and_of_the_next_run_in_the_order_of_branches(store: Store) -> None:
    forked(store)
    assert store.child_ids("c1") == ["c2", "f1", "g1"]
    assert store.child_ids("f1") == ["d1"]
    assert store.child_ids("c3") == []
    begin(store, "b5", row("h1", "c3"), row("m1", "c3", path="nested"), parent=("b1", 6))
    store.append(Append(branch_id="b1", seq=6, claim=MINE, entries=(row("c4", "c3"),)))
    assert store.child_ids("c3") == ["c4", "h1"]


def test_a_row_that_names_no_parent_goes_on_from_the_one_before_it_in_its_log(store: Store) -> None:
    begin(store, "b1", row("c1"), note("j"), row("n1", path="1.0"), row("c2"), take="me")
    store.append(Append(branch_id="b1", seq=4, claim=MINE, entries=(note("k"), row("c3"))))
    begin(store, "b2", row("d1"), parent=("b1", 6))
    assert [store.child_ids(id) for id in ("c1", "c2", "c3", "n1", "d1")] == [["c2"], ["c3"], [], [], []]


def test_branches_are_those_of_a_run_a_thread_both_or_all_oldest_first(store: Store) -> None:
    forked(store)
    begin(store, "a0", row("z1"), thread="u")

    def ids(**of: str) -> list[str]:
        return [branch.id for branch in store.branches(**of)]

    assert ids() == ["b1", "b2", "b3", "b4", "a0"]
    assert ids(run_id="b1") == ["b1", "b2", "b3"]
    assert ids(thread_id="t") == ["b1", "b2", "b3", "b4"]
    assert ids(run_id="b4", thread_id="t") == ["b4"]
    assert ids(run_id="b4", thread_id="u") == ids(run_id="x") == ids(thread_id="\ud800") == []


def test_what_is_pending_is_listed_oldest_request_first_at_the_head_of_its_branch(store: Store) -> None:
    begin(store, "b1", row("c1"), thread="t", head="c1", take="me", opened=(asked("p1", 5.0), asked("p2", 5.0)))
    begin(store, "b2", row("f1"), run="b1", thread="t", head="f1", opened=(asked("p1", 4.0),))
    begin(store, "b3", row("d1"), opened=(asked("p9", 4.5),))

    def listed(**of: str) -> list[tuple[str, str, str]]:
        return [(row.branch_id, row.pending_id, row.checkpoint_id) for row in store.pending_rows(**of)]

    assert listed() == [("b2", "p1", "f1"), ("b3", "p9", ""), ("b1", "p1", "c1"), ("b1", "p2", "c1")]
    store.append(
        Append(
            branch_id="b1",
            seq=1,
            claim=MINE,
            entries=(row("c2", "c1"),),
            head="c2",
            closed=("p1",),
            opened=(asked("p0", 5.0),),
        )
    )
    assert listed(run_id="b1") == listed(thread_id="t") == [("b2", "p1", "f1"), ("b1", "p2", "c2"), ("b1", "p0", "c2")]
    assert listed(run_id="b3", thread_id="t") == []
    store.append(Append(branch_id="b1", seq=2, claim=MINE, closed=("p0",), opened=(asked("p0", 1.0),)))
    assert listed(run_id="b1")[0] == ("b1", "p0", "c2")


def test_what_a_store_hands_out_cannot_be_used_to_change_it(store: Store) -> None:
    forked(store)
    before = everything(store)
    store.branches().clear()
    store.pending_rows().clear()
    store.child_ids("c1").clear()
    for record in (*store.branches(), *store.lineage(branch_id="b1").entries):
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.seq = 99
    assert everything(store) == before


def test_threads_that_append_at_once_each_find_a_place_and_none_is_lost(store: Store) -> None:
    begin(store, "b1", row("c1"))

    def work(name: str) -> None:
        for turn in range(10):
            while True:
                seq = branch_of(store, "b1").seq
                try:
                    store.append(Append(branch_id="b1", seq=seq, entries=(note(f"{name}{turn}"),)))
                    break
                except Behind:
                    continue

    workers = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    bodies = [entry.body for entry in store.lineage(branch_id="b1").entries][1:]
    assert sorted(bodies) == sorted(f"{name}{turn}" for name in "abcd" for turn in range(10))
    for name in "abcd":
        assert [body for body in bodies if body[0] == name] == [f"{name}{turn}" for turn in range(10)]


@pytest.mark.parametrize("store", ["memory", "sqlite"], indirect=True)
def test_a_call_from_within_a_call_is_refused_and_the_outer_one_goes_on(store: Store) -> None:
    """As a signal handler makes it, or a generator that is collected in the middle of a write."""
    begin(store, "b1", row("c1"), take="me")
    plain, refused = store.clock, []

    def clock() -> float:
        for ask in (lambda: store.append(Append(branch_id="b1", seq=1, entries=(note("in"),))), store.branches):
            with pytest.raises(StoreError) as error:
                ask()
            refused.append(str(error.value))
        return plain()

    store.clock = clock
    store.append(Append(branch_id="b1", seq=1, entries=(note("out"),), claim=MINE, lease=1.0))
    store.clock = plain
    assert len(refused) == 2
    assert "in the middle of another call" in refused[0]
    assert written(store.lineage(branch_id="b1")) == [(1, "b1", "c1"), (2, "b1", "out")]

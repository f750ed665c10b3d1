"""Tests of a store: changes of several branches in one transaction, of which all are written or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from phronomy.errors import CheckpointNotFound, StoreError
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, AuditFilter, Behind, Branch, BranchFilter, Claim
from phronomy.testing.store_contract.base import (
    StoreTests,
    asked,
    begin,
    branch_of,
    claim,
    everything,
    line,
    note,
    race,
    refused,
    row,
    written,
)

RACERS = 8


def nobody(branch_id: str) -> Claim:
    """The holder of a branch that nobody has ever held."""
    return claim(branch_id, owner="", fence=0)


def left(branch_id: str, *, seq: int = 1, text: str = "decided", **fields: Any) -> Append:
    """A decision on what waits in a branch, for whoever drives it next."""
    given: dict[str, Any] = {
        "holder": nobody(branch_id),
        "entries": (note(f"{text} {branch_id}"),),
        "closed": (f"p {branch_id}",),
        "audit": (line(7.0, run=branch_id, pending=f"p {branch_id}"),),
    }
    return Append(branch_id=branch_id, seq=seq, **{**given, **fields})


def waiting(store: Store, *branch_ids: str) -> None:
    """Branches that each wait for one decision."""
    for id in branch_ids:
        begin(store, id, row(f"c {id}"), head=f"c {id}", status="suspended", opened=(asked(f"p {id}"),))


def refuses(store: Store, kind: type[Exception], *changes: Append) -> Exception:
    """Nothing of these changes is written. The error that says why."""
    before = everything(store)
    with refused(kind) as caught:
        store.append_all(changes)
    assert everything(store) == before, changes
    return caught.value


class BatchTests(StoreTests):
    """Tests that changes of several branches are written together or not at all."""

    def test_changes_of_several_branches_are_written_together(self) -> None:
        """For a worker that holds the branch, and for nobody; each as `append` alone would have written it."""
        store = self.store
        waiting(store, "b3", "b1", "b4")
        begin(store, "b2", row("c b2"), head="c b2", take="me", opened=(asked("p b2"), asked("other")))
        before = {branch.id: branch for branch in store.branches()}
        self.clock.now = 1001.0
        several = left("b3", entries=(note("one"), note("two")), closed=("p b3", "unknown"))
        after = store.append_all([several, left("b2", holder=claim("b2")), left("b1")])
        wanted = [
            replace(before["b3"], seq=3, handed=2, changed_at=1001.0),
            replace(before["b2"], seq=2, handed=2, changed_at=1001.0),
            replace(before["b1"], seq=2, handed=2, changed_at=1001.0),
        ]
        assert after == wanted == [branch_of(store, id) for id in ("b3", "b2", "b1")]
        assert store.branches() == [wanted[0], wanted[2], before["b4"], wanted[1]]
        assert store.select_branches(BranchFilter(handed=True)) == [wanted[0], wanted[2], wanted[1]]
        assert [each.pending_id for each in store.pending_rows()] == ["p b4", "other"]
        assert written(store.lineage(branch_id="b3")) == [(1, "b3", "c b3"), (2, "b3", "one"), (3, "b3", "two")]
        assert written(store.lineage(branch_id="b2")) == [(1, "b2", "c b2"), (2, "b2", "decided b2")]
        trail = store.select_audit(AuditFilter())
        assert sorted(each.run_id for each in trail) == ["b1", "b2", "b3"]
        assert len({each.n for each in trail}) == 3
        assert everything(self.reopened()) == everything(store)

    def test_no_changes_write_nothing_and_one_change_is_an_append(self) -> None:
        """A batch may have any length."""
        store = self.store
        waiting(store, "b1")
        before = everything(store)
        assert store.append_all([]) == []
        assert everything(store) == before
        assert store.append_all((left("b1"),)) == [branch_of(store, "b1")]
        assert store.append(left("b1", seq=2)).seq == 3

    def test_if_one_change_is_refused_none_is_written(self) -> None:
        """Wherever it is in the batch. `Behind` says which branch has changed."""
        store = self.store
        waiting(store, "b1", "b2", "b3")
        begin(store, "b4", row("c b4"), take="me", lease=5.0)
        held = left("b4", holder=claim("b4"))
        for id in ("b1", "b2", "b3"):
            good = [left(each) for each in ("b3", "b2", "b1") if each != id]
            ahead, elsewhere = claim(id, owner="", fence=1), nobody("b9")
            for late in (*(left(id, seq=seq) for seq in (0, 2, 2**70)), *(left(id, holder=claim(id)),)):
                assert str(refuses(store, Behind, *good, late, held)) == id
                assert str(refuses(store, Behind, late, *good)) == id
            for holder in (ahead, elsewhere):
                assert str(refuses(store, Behind, good[0], left(id, holder=holder), good[1])) == id
        refuses(store, CheckpointNotFound, left("b1"), left("b2"), left("b5"))
        refuses(store, CheckpointNotFound, left("a5"), left("b2"), left("b1"))
        self.clock.now = 1005.0
        assert str(refuses(store, Behind, left("b1"), held, left("b2"))) == "b4", "its lease is over"
        self.clock.now = 1000.0
        assert [branch.seq for branch in store.append_all([left("b1"), held, left("b2")])] == [2, 2, 2]

    def test_of_two_that_are_refused_the_branch_with_the_lower_id_is_named(self) -> None:
        """In whatever order they are given: that is the order in which they are judged."""
        store = self.store
        waiting(store, "b1", "b2", "b3")
        for order in (("b1", "b2", "b3"), ("b3", "b2", "b1"), ("b2", "b3", "b1")):
            late = [left(id, seq=1 if id == "b1" else 5) for id in order]
            assert str(refuses(store, Behind, *late)) == "b2"
        late = [left("b3", seq=5), left("b2"), left("b25"), left("b1")]
        refuses(store, CheckpointNotFound, *late)

    def test_what_cannot_be_written_together_is_refused(self) -> None:
        """Two changes of one branch, a change that takes or gives a claim, and one that no holder is left."""
        store = self.store
        waiting(store, "b1", "b2")
        begin(store, "b3", row("c b3"), take="me")
        refuses(store, StoreError, left("b1"), left("b2"), left("b1", seq=2))
        refuses(store, StoreError, left("b1"), left("b1"))
        refuses(store, StoreError, left("b1"), Append(branch_id="b3", seq=1, claim=claim("b3"), entries=(note("j"),)))
        refuses(store, StoreError, Append(branch_id="b3", seq=1, claim=claim("b3"), entries=(note("j"),)))
        more: list[dict[str, Any]] = [
            {"entries": (note("j"), row("c2"))},
            {"opened": (asked("p3"),)},
            {"head": "c b2"},
            {"status": "completed"},
            {"release": True},
            {"lease": 5.0},
            {"texts": ("{}",)},
            {"take": "me"},
            {"take": "me", "holder": None},
            {"holder": None},
        ]
        for fields in more:
            refuses(store, StoreError, left("b1"), left("b2", **fields))
        assert store.kept_text("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a") is None

    def test_text_that_cannot_be_stored_leaves_nothing_of_the_others(self) -> None:
        """It is found out late, by the database, where the others are written already. A store in memory keeps any text."""
        store = self.store
        waiting(store, "b1", "b2", "b3", "b4")
        trail = (line(7.0, run="b4", body="\ud800"),)
        for batch in ([left("b1"), left("b2", entries=(note("\ud800"),))], [left("b3"), left("b4", audit=trail)]):
            before = everything(store)
            try:
                store.append_all(batch)
            except StoreError:
                assert everything(store) == before
            else:
                assert not self.durable
                assert [branch_of(store, change.branch_id).seq for change in batch] == [2, 2]

    def test_a_batch_reaches_no_other_tenant(self) -> None:
        """Its branches are unknown, though another tenant has one of that id, and nothing of either is written."""
        store, other = self.store, self.store.for_tenant("other")
        waiting(store, "b1")
        waiting(other, "b1", "b2")
        before = everything(other)
        refuses(store, CheckpointNotFound, left("b1"), left("b2"))
        store.append_all([left("b1")])
        assert everything(other) == before
        other.append_all([left("b2"), left("b1")])
        assert [branch.seq for branch in (*store.branches(), *other.branches())] == [2, 2, 2]

    def test_a_large_batch_is_one_change(self) -> None:
        """Of 300 branches, of which the last is refused at first."""
        store = self.store
        ids = [f"b{number:03}" for number in range(300)]
        waiting(store, *ids)
        changes = [left(id) for id in reversed(ids)]
        late = replace(changes[0], seq=0)
        assert str(refuses(store, Behind, late, *changes[1:])) == ids[-1]
        assert [branch.id for branch in store.append_all(changes)] == ids[::-1]
        assert (store.pending_rows(), len(store.select_branches(BranchFilter(handed=True)))) == ([], 300)


class BatchRaceTests(StoreTests):
    """Tests that batches which meet wait for each other, and that one of them is first in all that they share."""

    def test_of_batches_over_the_same_branches_one_is_written(self) -> None:
        """Half of them name the branches in the other order: nobody waits for ever."""
        store = self.store
        ids = ["b1", "b2", "b3"]
        waiting(store, *ids)

        def write(number: int) -> list[Branch]:
            changes = [left(id, text=f"{number}") for id in ids]
            return self.reopened().append_all(changes[:: 1 if number % 2 else -1])

        found = race([partial(write, number) for number in range(RACERS)])
        winners = [number for number, each in enumerate(found) if not isinstance(each, Exception)]
        assert len(winners) == 1, found
        assert {type(each) for each in found if isinstance(each, Exception)} == {Behind}
        for id in ids:
            log = [text for *_, text in written(store.lineage(branch_id=id))]
            assert log == [f"c {id}", f"{winners[0]} {id}"]
        assert (store.pending_rows(), len(store.select_audit(AuditFilter()))) == ([], 3)

    def test_a_batch_and_single_changes_leave_all_of_the_batch_or_none(self) -> None:
        """Each branch is decided once, by the batch or by the others."""
        store = self.store
        ids = [f"b{number}" for number in range(RACERS)]
        waiting(store, *ids)
        batches: list[Callable[[], object]] = [
            partial(self.reopened().append_all, [left(id, text=f"batch {number}") for id in order])
            for number, order in enumerate((ids[:5], ids[:2:-1]))
        ]
        singles: list[Callable[[], object]] = [partial(self.reopened().append, left(id, text="single")) for id in ids]
        found: list[object] = [*race([*batches, *singles])]
        assert {type(each) for each in found if isinstance(each, Exception)} <= {Behind}
        logs = {id: [text for *_, text in written(store.lineage(branch_id=id))][1:] for id in ids}
        for number, order in enumerate((ids[:5], ids[:2:-1])):
            mine = [id for id in ids if logs[id] == [f"batch {number} {id}"]]
            assert mine == ([] if isinstance(found[number], Exception) else sorted(order))
        for id, single in zip(ids, found[2:], strict=True):
            assert len(logs[id]) <= 1
            assert (logs[id] == [f"single {id}"]) == (not isinstance(single, Exception))

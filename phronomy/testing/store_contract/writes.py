"""Tests of a store: `create` and `append`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from phronomy.errors import CheckpointNotFound, LeaseLost, StoreError
from phronomy.stores.rows import (
    ENDED,
    OPEN,
    Append,
    AuditFilter,
    Behind,
    Branch,
    BranchFilter,
    CheckpointFilter,
    Entry,
    Held,
    Lineage,
    Occupied,
    PendingFilter,
)
from phronomy.testing.store_contract.base import (
    StoreTests,
    asked,
    begin,
    branch_of,
    claim,
    end,
    everything,
    line,
    note,
    refused,
    row,
    written,
)

MINE = claim()
NOBODY = claim(owner="", fence=0)


class CreateTests(StoreTests):
    """Tests that a branch is added as a whole or not at all."""

    def test_a_new_branch_is_there_as_it_was_created(self) -> None:
        """Its first entries, what is pending in it, and the line of the trail that came with it."""
        store = self.store
        opened, audit = (asked("p1", risk="high", label="l", expires_at=9.5),), (line(3.5, thread="t", pending="p1"),)
        first = (row("c1", label="l"), note("j1"))
        begin(store, "b1", *first, thread="t", label="l", head="c1", status="suspended", opened=opened, audit=audit)
        branch = Branch(id="b1", run_id="b1", thread_id="t", agent="clerk", label="l", head="c1", status="suspended")
        branch = replace(branch, seq=2, created_at=1000.0, changed_at=1000.0)
        entries = (
            Entry(path="", body="{}", checkpoint_id="c1", label="l", branch_id="b1", seq=1),
            Entry(path="", body="j1", branch_id="b1", seq=2),
        )
        branches, pending, checkpoints, trail, lineages = everything(store)
        assert (branches, lineages) == ([branch], [Lineage(branch=branch, entries=entries)])
        waits = replace(opened[0], branch_id="b1", run_id="b1", thread_id="t", checkpoint_id="c1", n=pending[0].n)
        assert pending == [waits]
        assert [found.checkpoint_id for found in checkpoints] == ["c1"]
        assert trail == [replace(audit[0], n=trail[0].n)]

    def test_a_branch_can_be_held_from_its_creation(self) -> None:
        """By whoever `take` names, for as long as `lease` says."""
        begin(self.store, "b1", row("c1"), take="me", lease=5.0)
        branch = branch_of(self.store, "b1")
        assert (branch.owner, branch.fence, branch.lease_until) == ("me", 1, 1005.0)
        assert self.store.append(Append(branch_id="b1", seq=1, entries=(row("c2"),), claim=MINE)).seq == 2

    def test_a_claim_taken_without_a_lease_lasts_as_long_as_the_store_says(self) -> None:
        """In `create`, and in `append`."""
        begin(self.store, "b1", row("c1"), take="me")
        begin(self.store, "b2", row("c2"))
        self.store.append(Append(branch_id="b2", seq=1, take="me"))
        for id in ("b1", "b2"):
            assert branch_of(self.store, id).lease_until == 1000.0 + self.store.lease

    def test_a_branch_that_nobody_takes_is_nobodys(self) -> None:
        """Its fence has not moved."""
        begin(self.store, "b1", row("c1"))
        branch = branch_of(self.store, "b1")
        assert (branch.owner, branch.fence, branch.lease_until, branch.announced) == (None, 0, 0.0, None)

    def test_a_branch_or_checkpoint_cannot_be_added_twice(self) -> None:
        """A branch, a root checkpoint, a pending approval of one branch: refused, and nothing is written."""
        store = self.store
        begin(store, "b1", row("c1"), opened=(asked("p1"),), take="me")
        before = everything(store)
        lines = (line(1.0), line(2.0))
        with refused(StoreError):
            begin(store, "b1", row("c2"), audit=lines)
        with refused(StoreError):
            begin(store, "b2", row("c2"), row("c1"), opened=(asked("p2"),), audit=lines)
        with refused(StoreError):
            begin(store, "b2", row("c2"), row("c2"), opened=(asked("p2"),), audit=lines)
        with refused(StoreError):
            begin(store, "b2", opened=(asked("p2"), asked("p2")), audit=lines)
        with refused(StoreError):
            store.append(Append(branch_id="b1", seq=1, entries=(note("j"), row("c1")), claim=MINE))
        with refused(StoreError):
            store.append(Append(branch_id="b1", seq=1, entries=(note("j"),), opened=(asked("p1"),), claim=MINE))
        assert everything(store) == before
        begin(store, "b2", row("c2", path="nested"), row("c1", path="nested"), opened=(asked("p1"),))
        assert [found.branch_id for found in store.pending_rows()] == ["b1", "b2"]

    def test_an_exclusive_branch_finds_its_thread_free_or_is_refused(self) -> None:
        """`Occupied` names the branch that is in the way; threads, and branches without one, do not meet."""
        store = self.store
        begin(store, "b1", row("c1"), thread="t", status="suspended", exclusive=True)
        before = everything(store)
        with refused(Occupied) as caught:
            begin(store, "b2", row("c2"), thread="t", exclusive=True, opened=(asked("p"),), audit=(line(1.0),))
        assert caught.value.branch == branch_of(store, "b1")
        assert everything(store) == before

        begin(store, "b2", row("c2"), thread="other", exclusive=True)
        begin(store, "b3", row("c3"), exclusive=True)
        begin(store, "b4", row("c4"), exclusive=True)
        begin(store, "b5", row("c5"), thread="t", parent=("b1", 1), exclusive=False)
        with refused(Occupied) as caught:
            begin(store, "b6", row("c6"), thread="t", exclusive=True)
        assert caught.value.branch.id == "b5"

        end(store, "b1")
        end(store, "b5")
        begin(store, "b6", row("c6"), thread="t", parent=("b5", 2), status="failed", exclusive=True)
        with refused(Occupied) as caught:
            begin(store, "b7", row("c7"), thread="t", parent=("b5", 2), exclusive=True)
        assert caught.value.branch.id == "b6"
        assert [branch.id for branch in store.branches(thread_id="t")] == ["b1", "b5", "b6"]

    def test_a_thread_is_occupied_by_what_is_open_and_by_no_end(self) -> None:
        """Each status, held or not."""
        store = self.store
        for status in OPEN:
            begin(store, status, thread=status, status=status, take="me")
            with refused(Occupied):
                begin(store, f"next {status}", thread=status, parent=(status, 0), exclusive=True)
        for status in ENDED:
            begin(store, status, thread=status, status=status, take="me")
            begin(store, f"next {status}", thread=status, parent=(status, 0), exclusive=True)
            assert branch_of(store, f"next {status}").parent_branch == status

    def test_an_exclusive_branch_goes_on_from_where_its_thread_ended_last(self) -> None:
        """Somebody else's run may end between the look at the thread and the write."""
        store, clock = self.store, self.clock
        begin(store, "b1", row("c1"), thread="t", exclusive=True)
        end(store, "b1")
        before = everything(store)
        for parent in (None, ("b0", 0)):
            with refused(Behind, CheckpointNotFound):
                begin(store, "b2", row("c2"), thread="t", parent=parent, exclusive=True)
        with refused(Behind):
            begin(store, "b2", row("c2"), thread="t", exclusive=True)
        assert everything(store) == before

        begin(store, "b2", row("c2"), thread="t", parent=("b1", 1), exclusive=True)
        begin(store, "b3", row("c3"), run="b1", thread="t", parent=("b1", 1))
        clock.now = 1001.0
        end(store, "b3")
        clock.now = 1002.0
        end(store, "b2")
        with refused(Behind):
            begin(store, "b4", row("c4"), thread="t", parent=("b3", 2), exclusive=True)
        begin(store, "b4", row("c4"), thread="t", parent=("b2", 2), exclusive=True)
        assert [branch.id for branch in store.branches(thread_id="t")] == ["b1", "b2", "b3", "b4"]

    def test_of_branches_that_ended_at_one_time_the_last_that_was_made_is_the_latest_end(self) -> None:
        """`Store.latest` takes it for that, and whoever began a run from it could never be told to look again."""
        store = self.store
        for id in ("b2", "b1", "b3"):
            begin(store, id, row(f"c-{id}"), thread="t", status="completed")
        for id in ("b2", "b1"):
            with refused(Behind):
                begin(store, "b4", thread="t", parent=(id, 1), exclusive=True)
        begin(store, "b4", thread="t", parent=("b3", 1), exclusive=True)

    def test_a_branch_that_does_not_begin_where_it_says_is_refused(self) -> None:
        """Its log begins at `parent_seq`, which its parent has; nobody holds it yet; its lease is a number of seconds."""
        store = self.store
        begin(store, "b0", row("c0"))
        before = everything(store)
        wrong: list[tuple[dict[str, Any], dict[str, Any]]] = [
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
        ]
        for fields, change in wrong:
            branch = Branch(**{"id": "b1", "run_id": "b1", "thread_id": None, "agent": "a", **fields})
            first = Append(**{"branch_id": "b1", "seq": 0, "entries": (row("c1"),), **change})
            with refused(StoreError):
                store.create(branch, first, exclusive=False)
            assert everything(store) == before, (fields, change)

    def test_a_branch_whose_parent_is_not_there_is_refused(self) -> None:
        """The error names the parent."""
        with refused(CheckpointNotFound) as caught:
            begin(self.store, "b1", row("c1"), parent=("gone", 1))
        assert caught.value.id == "gone"
        assert everything(self.store) == ([], [], [], [], [])


class AppendTests(StoreTests):
    """Tests that a change is written as a whole, and only by a writer that has seen the last entry."""

    def test_entries_are_numbered_on_and_the_branch_moves(self) -> None:
        """What it returns is the branch as it then stands; what makes it that branch does not change."""
        store = self.store
        begin(store, "b1", row("c1"), head="c1", take="me", lease=5.0, label="l", thread="t")
        self.clock.now = 1002.0
        entries = (note("j"), row("c2", "c1", label="other"))
        after = store.append(Append(branch_id="b1", seq=1, entries=entries, claim=MINE, head="c2", status="suspended"))
        moved = Branch(id="b1", run_id="b1", thread_id="t", agent="clerk", label="l", seq=3, head="c2")
        moved = replace(moved, status="suspended", created_at=1000.0, changed_at=1002.0)
        assert after == replace(moved, owner="me", fence=1, lease_until=1005.0)
        assert branch_of(store, "b1") == after
        assert written(store.lineage(branch_id="b1")) == [(1, "b1", "c1"), (2, "b1", "j"), (3, "b1", "c2")]

    def test_what_a_change_does_not_name_stays(self) -> None:
        """The head, the status, the lease, what is pending."""
        store = self.store
        begin(store, "b1", row("c1"), head="c1", status="suspended", take="me", lease=5.0, opened=(asked("p1"),))
        before = branch_of(store, "b1")
        assert store.append(Append(branch_id="b1", seq=1, entries=(note("j"),), claim=MINE)) == replace(before, seq=2)
        assert [found.pending_id for found in store.pending_rows()] == ["p1"]

    def test_a_writer_who_missed_an_entry_is_told_and_writes_nothing(self) -> None:
        """Nothing of it: no entry, no request, no line of the trail, and no id is taken."""
        store = self.store
        begin(store, "b1", row("c1"), take="me")
        store.append(Append(branch_id="b1", seq=1, entries=(note("first"),), claim=MINE))
        before = everything(store)
        for seq in (0, 1, 3, 2**70):
            late = Append(branch_id="b1", seq=seq, entries=(note("late"),), holder=MINE)
            whole = replace(late, holder=None, claim=MINE, entries=(note("late"), row("c2")), status="failed")
            for change in (late, replace(whole, opened=(asked("p"),), audit=(line(1.0),), announce=True)):
                with refused(Behind):
                    store.append(change)
        assert everything(store) == before
        store.append(Append(branch_id="b1", seq=2, entries=(row("c2"),), claim=MINE))

    def test_a_branch_that_is_not_there_cannot_be_written_to(self) -> None:
        """With a claim or for a holder, and whatever is in the change."""
        for change in (
            Append(branch_id="b1", seq=0, holder=MINE, entries=(note("j"),)),
            Append(branch_id="b1", seq=0, entries=(row("c1"),), claim=MINE),
            Append(branch_id="b1", seq=0, take="me"),
        ):
            with refused(CheckpointNotFound) as caught:
                self.store.append(change)
            assert caught.value.id == "b1"

    def test_a_claim_lasts_until_its_lease_is_over_and_is_then_anybodys(self) -> None:
        """By the store's clock; `Held` tells who has it."""
        store, clock = self.store, self.clock
        begin(store, "b1", row("c1"), take="me", lease=5.0)
        held = branch_of(store, "b1")
        clock.now = 1004.9
        for owner in ("you", "me"):
            with refused(Held) as caught:
                store.append(Append(branch_id="b1", seq=1, take=owner, lease=5.0, entries=(note("j"),)))
            assert caught.value.branch == held
        assert branch_of(store, "b1") == held

        clock.now = 1005.0
        taken = store.append(Append(branch_id="b1", seq=1, take="you", lease=5.0))
        assert (taken.owner, taken.fence, taken.lease_until) == ("you", 2, 1010.0)

    def test_whoever_has_not_read_on_is_told_so_before_that_somebody_holds_the_branch(self) -> None:
        """`LeaseLost`, then `Behind`, then `Held`; an id that is taken comes last."""
        store = self.store
        begin(store, "b1", row("c1"), take="me")
        with refused(Behind):
            store.append(Append(branch_id="b1", seq=0, take="you"))
        with refused(Behind):
            store.append(Append(branch_id="b1", seq=0, claim=MINE, entries=(row("c1"),)))
        with refused(Held):
            store.append(Append(branch_id="b1", seq=1, take="you", entries=(row("c1"),)))
        with refused(LeaseLost):
            store.append(Append(branch_id="b1", seq=0, claim=claim(fence=2), entries=(row("c1"),)))

    def test_the_last_holder_of_an_expired_lease_still_writes_until_somebody_takes_over(self) -> None:
        """Expiry alone loses nothing."""
        store, clock = self.store, self.clock
        begin(store, "b1", row("c1"), take="me", lease=5.0)
        clock.now = 2000.0
        after = store.append(Append(branch_id="b1", seq=1, entries=(note("late"),), claim=MINE, lease=5.0))
        assert (after.owner, after.lease_until) == ("me", 2005.0)

        clock.now = 3000.0
        store.append(Append(branch_id="b1", seq=2, take="you"))
        before = everything(store)
        for seq in (2, 0):
            with refused(LeaseLost) as lost:
                store.append(Append(branch_id="b1", seq=seq, entries=(note("too late"),), claim=MINE))
            assert (lost.value.run_id, lost.value.branch_id) == ("b1", "b1")
        assert everything(store) == before

    def test_each_take_over_has_a_new_fence_so_an_old_claim_of_the_same_owner_is_lost(self) -> None:
        """As is a claim on another branch."""
        store = self.store
        begin(store, "b1", row("c1"), take="me")
        store.release(MINE)
        self.clock.now += 100.0
        assert store.append(Append(branch_id="b1", seq=1, take="me", lease=1.0)).fence == 2
        self.clock.now += 1.0
        assert store.append(Append(branch_id="b1", seq=1, take="me")).fence == 3
        begin(store, "b2", take="me")
        before = everything(store)
        for wrong in (MINE, claim(fence=2), claim("b2", fence=3), claim(owner="you", fence=3), claim(fence=4)):
            with refused(LeaseLost):
                store.append(Append(branch_id="b1", seq=1, claim=wrong, entries=(note("j"),)))
        assert everything(store) == before

    def test_an_append_can_extend_the_lease_leave_it_or_give_it_up(self) -> None:
        """Take and give up in one, too."""
        store, clock = self.store, self.clock
        begin(store, "b1", row("c1"), take="me", lease=5.0)
        clock.now = 1003.0
        assert store.append(Append(branch_id="b1", seq=1, claim=MINE)).lease_until == 1005.0
        assert store.append(Append(branch_id="b1", seq=1, claim=MINE, lease=5.0)).lease_until == 1008.0
        free = store.append(Append(branch_id="b1", seq=1, claim=MINE, lease=5.0, release=True, status="completed"))
        assert (free.owner, free.fence, free.lease_until, free.status) == (None, 1, 0.0, "completed")
        both = store.append(Append(branch_id="b1", seq=1, take="you", entries=(note("j"),), release=True))
        assert (both.owner, both.fence, both.seq) == (None, 2, 2)
        assert branch_of(store, "b1") == both

    def test_for_another_holder_only_journal_entries_are_taken_and_what_is_pending_closed(self) -> None:
        """That, and the line of the trail which tells of it: a decision that is left for the worker that holds the run."""
        store = self.store
        begin(store, "b1", row("c1"), head="c1", take="me", opened=(asked("p1"), asked("p2")))
        decided, trail = (note("decided"),), (line(7.0),)
        left = Append(branch_id="b1", seq=1, holder=MINE, entries=decided, closed=("p1", "unknown"), audit=trail)
        after = store.append(left)
        assert (after.seq, after.owner, after.fence, after.handed) == (2, "me", 1, 2)
        assert [found.pending_id for found in store.pending_rows()] == ["p2"]
        assert [found.at for found in store.select_audit(AuditFilter())] == [7.0]

        before = everything(store)
        more: list[dict[str, Any]] = [
            {"entries": (note("j"), row("c2"))},
            {"entries": (row("n", path="nested"),)},
            {"opened": (asked("p3"),)},
            {"head": "c1"},
            {"status": "completed"},
            {"release": True},
            {"lease": 5.0},
            {"claim": MINE},
            {"take": "me"},
            {"claim": MINE, "take": "me", "holder": None},
            {"holder": None},
        ]
        for change in more:
            with refused(StoreError):
                store.append(Append(**{"branch_id": "b1", "seq": 2, "holder": MINE, "audit": (line(8.0),), **change}))
            assert everything(store) == before, change

    def test_a_decision_is_a_note_a_line_of_the_trail_and_a_request_that_waits_no_more(self) -> None:
        """The usual change for a holder, or for nobody: all of it is there, and no list holds the request any more."""
        store, clock = self.store, self.clock
        request: dict[str, Any] = {"risk": "high", "label": "l", "expires_at": 9.5}
        begin(store, "b1", row("c1"), thread="t", head="c1", take="me", opened=(asked("p1", **request), asked("p2")))
        begin(store, "b2", row("d1"), head="d1", status="suspended", opened=(asked("p1"), asked("p3", **request)))
        clock.now = 1001.0
        for branch_id, pending_id, holder in (("b1", "p1", MINE), ("b2", "p3", claim("b2", owner="", fence=0))):
            before, others = branch_of(store, branch_id), store.pending_rows()
            gone = next(each for each in others if (each.branch_id, each.pending_id) == (branch_id, pending_id))
            trail = line(7.0, run=branch_id, thread=gone.thread_id, pending=pending_id, body='{"é": 5.0}')
            left = Append(branch_id=branch_id, seq=1, holder=holder, entries=(note("decided ☃"),))
            after = store.append(replace(left, closed=(pending_id,), audit=(trail,)))
            assert after == branch_of(store, branch_id) == replace(before, seq=2, handed=2, changed_at=1001.0)
            assert store.pending_rows() == [each for each in others if each is not gone]
            for name, value in gone.facets().items():
                facet = PendingFilter(facets={name: value})
                held = [each for each in others if each is not gone and each.facets().get(name) == value]
                assert (store.select_pending(facet), store.count_pending(facet)) == (held, len(held))
            assert store.select_pending(PendingFilter(expired_at=10.0)) == [
                each for each in others if each is not gone and each.expires_at is not None
            ]
            (told,) = store.select_audit(AuditFilter(run_id=branch_id))
            assert told == replace(trail, n=told.n)
            assert written(store.lineage(branch_id=branch_id))[-1] == (2, branch_id, "decided ☃")
            again = replace(left, seq=2, entries=(note("once more"),), closed=(pending_id,), audit=(trail,))
            assert store.append(again) == replace(after, seq=3), "a request that waits no more is no error"
        assert [each.pending_id for each in store.pending_rows()] == ["p2", "p1"]

    def test_nothing_is_left_for_a_worker_that_does_not_hold_the_branch_any_more(self) -> None:
        """Because it let go, its lease is over, or another has taken it, though the log has not grown: then nothing is written."""
        store, clock = self.store, self.clock
        begin(store, "b1", row("c1"), head="c1", take="me", lease=5.0, opened=(asked("p1"),))
        decided, trail = (note("decided"),), (line(7.0),)
        left = Append(branch_id="b1", seq=1, holder=MINE, entries=decided, closed=("p1",), audit=trail)

        def refuses() -> None:
            before = everything(store)
            for holder in (MINE, claim(owner="you"), claim(fence=3), claim("b2")):
                with refused(Behind):
                    store.append(replace(left, holder=holder))
            assert everything(store) == before

        clock.now = 1005.0
        refuses()
        clock.now = 1004.0
        store.release(MINE, "suspended")
        refuses()
        store.append(Append(branch_id="b1", seq=1, take="you", lease=5.0))
        before = everything(store)
        with refused(Behind):
            store.append(left)
        assert everything(store) == before
        after = store.append(replace(left, holder=claim(owner="you", fence=2)))
        assert (after.seq, after.owner, after.handed) == (2, "you", 2)

    def test_what_was_left_for_a_worker_is_noted_until_a_checkpoint_is_written_after_it(self) -> None:
        """By whoever holds the branch; the first such entry is noted. Letting go, or journal, takes nothing back."""
        store = self.store
        begin(store, "b1", row("c1"), head="c1", take="me")
        for seq in (1, 2):
            left = Append(branch_id="b1", seq=seq, holder=MINE, entries=(note("decided"),))
            assert store.append(left).handed == branch_of(store, "b1").handed == 2
        own = Append(branch_id="b1", seq=3, claim=MINE, entries=(note("j"),), status="failed")
        assert store.append(own).handed == 2
        assert store.renew(MINE).handed == 2
        store.release(MINE, "suspended")
        assert branch_of(store, "b1").handed == 2
        assert store.append(Append(branch_id="b1", seq=4, take="you")).handed == 2
        yours = Append(branch_id="b1", seq=4, claim=claim(owner="you", fence=2), lease=5.0, status="running")
        after = store.append(replace(yours, head="c2", entries=(row("c2"),)))
        assert (after.handed, after.seq, after.status) == (None, 5, "running")
        assert branch_of(store, "b1") == store.lineage(branch_id="b1").branch == after

    def test_on_a_branch_that_nobody_holds_a_note_is_left_for_whoever_drives_it_next(self) -> None:
        """Somebody decides where there is no agent: it is in the log, off the list, in the trail, and found by `handed`."""
        store, wanted = self.store, BranchFilter(handed=True)
        begin(store, "b1", row("c1"), head="c1", status="suspended", opened=(asked("p1"), asked("p2")))
        before = branch_of(store, "b1")
        assert store.select_branches(wanted) == []
        self.clock.now = 1001.0
        decided, trail = (note("decided"), note("more")), (line(7.0),)
        left = Append(branch_id="b1", seq=1, holder=NOBODY, entries=decided, closed=("p1", "unknown"), audit=trail)
        after = store.append(left)
        assert after == branch_of(store, "b1") == replace(before, seq=3, handed=2, changed_at=1001.0)
        assert [found.pending_id for found in store.pending_rows()] == ["p2"]
        assert [found.at for found in store.select_audit(AuditFilter())] == [7.0]
        assert store.select_branches(wanted) == [after]

        assert store.append(replace(left, seq=3, entries=(note("later"),), closed=("p2",), audit=())).handed == 2
        taken = store.append(Append(branch_id="b1", seq=4, take="me"))
        assert (taken.owner, taken.fence, taken.handed) == ("me", 1, 2)
        log = [(1, "b1", "c1"), (2, "b1", "decided"), (3, "b1", "more"), (4, "b1", "later")]
        assert written(store.lineage(branch_id="b1")) == written(store.lineage(checkpoint_id="c1")) == log
        assert store.append(Append(branch_id="b1", seq=4, claim=MINE, entries=(row("c2"),), head="c2")).handed is None
        assert store.select_branches(wanted) == []

    def test_nobody_holds_a_branch_whose_lease_is_over(self) -> None:
        """A note is left there too, and takes nothing from the last holder, who may come back and read it."""
        store, clock = self.store, self.clock
        begin(store, "b1", row("c1"), head="c1", take="me", lease=5.0)
        before = branch_of(store, "b1")
        left = Append(branch_id="b1", seq=1, holder=claim(owner=""), entries=(note("decided"),))
        clock.now = 1004.9
        with refused(Behind):
            store.append(left)
        clock.now = 1005.0
        after = store.append(left)
        assert after == branch_of(store, "b1") == replace(before, seq=2, handed=2, changed_at=1005.0)
        with refused(Behind):
            store.append(Append(branch_id="b1", seq=1, claim=MINE, entries=(note("unread"),)))
        assert store.append(Append(branch_id="b1", seq=2, claim=MINE, entries=(note("read"),), lease=5.0)).handed == 2
        left = replace(left, seq=3)
        with refused(Behind):
            store.append(left)
        assert store.append(replace(left, holder=MINE)).seq == 4

    def test_a_note_for_nobody_is_refused_where_somebody_has_been_since(self) -> None:
        """Who holds the branch, or has held it, or has written to it: then nothing is written."""
        store = self.store
        begin(store, "b1", row("c1"), head="c1", opened=(asked("p1"),))
        decided, trail = (note("decided"),), (line(7.0),)
        left = Append(branch_id="b1", seq=1, holder=NOBODY, entries=decided, closed=("p1",), audit=trail)

        def refuses(*changes: Append) -> None:
            before = everything(store)
            for change in changes:
                with refused(Behind):
                    store.append(change)
                assert everything(store) == before, change

        ahead, mine = replace(NOBODY, fence=1), replace(MINE, fence=0)
        elsewhere = replace(left, holder=replace(NOBODY, branch_id="b2"))
        refuses(*(replace(left, seq=seq) for seq in (0, 2, 2**70)), elsewhere)
        refuses(*(replace(left, holder=holder) for holder in (ahead, mine, MINE)))
        store.append(Append(branch_id="b1", seq=1, take="me", lease=5.0))
        refuses(left, replace(left, holder=ahead))
        store.release(MINE, "suspended")
        refuses(left, replace(left, holder=MINE))
        assert store.append(replace(left, holder=ahead)).handed == 2

    def test_a_note_for_nobody_can_do_no_more_than_one_for_a_holder(self) -> None:
        """Nor can anybody take a claim as nobody."""
        store = self.store
        begin(store, "b1", row("c1"), head="c1", status="suspended")
        before = everything(store)
        more: list[dict[str, Any]] = [
            {"entries": (note("j"), row("c2"))},
            {"entries": (row("n", path="nested"),)},
            {"opened": (asked("p3"),)},
            {"head": "c1"},
            {"status": "running"},
            {"release": True},
            {"lease": 5.0},
            {"claim": MINE},
            {"take": "me"},
            {"holder": None, "take": ""},
        ]
        for change in more:
            with refused(StoreError):
                store.append(Append(**{"branch_id": "b1", "seq": 1, "holder": NOBODY, "audit": (line(8.0),), **change}))
            assert everything(store) == before, change
        with refused(StoreError):
            begin(store, "b2", row("c2"), take="")
        assert everything(store) == before

    def test_a_request_that_is_closed_and_opened_in_one_change_is_a_new_one(self) -> None:
        """With its own time, its own facets and its own number."""
        store = self.store
        begin(store, "b1", row("c1"), head="c1", take="me", opened=(asked("p1", 5.0), asked("p2", 6.0, risk="low")))
        first = store.pending_rows()[0].n
        again = (asked("p1", 7.0, tool_name="ship", risk="low"),)
        store.append(Append(branch_id="b1", seq=1, claim=MINE, closed=("p1",), opened=again))
        found = store.pending_rows()
        assert [(each.pending_id, each.requested_at) for each in found] == [("p2", 6.0), ("p1", 7.0)]
        assert found[1].n > max(first, found[0].n)
        assert store.count_pending(PendingFilter(facets={"tool": "pay"})) == 1
        assert store.count_pending(PendingFilter(facets={"risk": "low"})) == 2

    def test_a_change_that_cannot_be_written_whole_is_not_written_at_all(self) -> None:
        """Whatever in it is refused last: no entry, request, facet, line, announcement or lease of it stays."""
        store = self.store
        begin(store, "b1", row("c1"), head="c1", take="me", lease=5.0, opened=(asked("p1"), asked("p2")))
        begin(store, "b2", row("d1"), take="me")
        before = everything(store)
        plain = Append(branch_id="b1", seq=1, claim=MINE, head="c2", status="suspended", announce=True, lease=500.0)
        entries, opened = (row("c2", label="new"), note("j")), (asked("p3", tool_name="ship", expires_at=1.0),)
        trail = (line(9.0, thread="t", pending="p1"),)
        good = replace(plain, entries=entries, opened=opened, closed=("p1",), audit=trail)
        bad: list[dict[str, Any]] = [
            {"entries": (row("c2"), row("d1"))},
            {"entries": (row("c2"), row("c2"))},
            {"opened": (asked("p3", tool_name="ship"), asked("p2"))},
            {"opened": (asked("p3", tool_name="ship"), asked("p3"))},
        ]
        for change in bad:
            with refused(StoreError):
                store.append(replace(good, **change))
            assert everything(store) == before, change
            assert store.count_pending(PendingFilter(facets={"tool": "ship"})) == 0
            assert store.select_pending(PendingFilter(expired_at=2000.0)) == []
            assert store.select_checkpoints(CheckpointFilter(labeled=True)) == []
            assert store.select_audit(AuditFilter(pending_id="p1")) == []
        assert store.append(good).announced == 1
        assert [found.pending_id for found in store.pending_rows()] == ["p2", "p3"]

    def test_from_where_on_a_branch_is_to_be_announced_is_said_once(self) -> None:
        """From the writer's `seq` on; a branch may begin so, or become so later."""
        store = self.store
        begin(store, "b1", row("c1"), take="me", announce=True)
        begin(store, "b2", row("c2"), note("j"), take="me")
        begin(store, "b3", row("c3"), parent=("b2", 2), announce=True)
        assert [branch_of(store, id).announced for id in ("b1", "b2", "b3")] == [0, None, 2]
        later = Append(branch_id="b2", seq=2, entries=(note("k"),), claim=claim("b2"), announce=True)
        assert store.append(later).announced == 2
        again = Append(branch_id="b1", seq=1, entries=(note("k"),), claim=MINE, announce=True)
        assert store.append(again).announced == 0
        assert [branch_of(store, id).announced for id in ("b1", "b2")] == [0, 2]

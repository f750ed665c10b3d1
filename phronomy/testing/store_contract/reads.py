"""Tests of a store: lineages, branches, checkpoints, the audit trail."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from functools import partial
from typing import Any

from phronomy.errors import CheckpointNotFound, StoreError
from phronomy.stores.rows import (
    ENDED,
    OPEN,
    Append,
    AuditFilter,
    AuditRow,
    BranchFilter,
    CheckpointFilter,
    CheckpointRow,
    Lineage,
)
from phronomy.testing.store_contract.base import (
    StoreTests,
    asked,
    begin,
    branch_of,
    claim,
    everything,
    forked,
    line,
    note,
    refused,
    row,
    walked,
    written,
)

MINE = claim()
NONE = ("", "none", "n1", "b1", "\ud800", "c1\x00", "\x00", "c1'; --", "c%", "c_", "*", "C1")
"""Ids of no root checkpoint, some of which a careless store may find all the same."""


class LineageTests(StoreTests):
    """Tests of the entries that lead to a checkpoint, and of the branches that start there."""

    def test_a_lineage_leads_to_a_place_through_the_logs_that_it_goes_on_from(self) -> None:
        """To a checkpoint: with the journal after it, up to the next root row."""
        store = self.store
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

    def test_what_is_written_to_a_branch_later_is_not_in_those_that_went_on_from_it_before(self) -> None:
        """However long either grows."""
        store = self.store
        forked(store)
        before = store.lineage(branch_id="b4").entries
        store.append(Append(branch_id="b1", seq=6, claim=MINE, entries=(note("j3"), row("c4", "c3"))))
        store.append(Append(branch_id="b2", seq=4, take="me", entries=(note("k2"),)))
        assert store.lineage(branch_id="b4").entries == before
        assert store.lineage(checkpoint_id="d1").entries == before
        assert written(store.lineage(checkpoint_id="c3"))[5:] == [(6, "b1", "c3"), (7, "b1", "j3")]
        assert written(store.lineage(checkpoint_id="f1"))[2:] == [(3, "b2", "f1"), (4, "b2", "k1"), (5, "b2", "k2")]

    def test_nested_rows_stand_under_the_root_row_before_them(self) -> None:
        """At any depth of path; a path that looks like the root's is none."""
        store = self.store
        paths = ("1.0", "1.0/2.0", "é/0", "0", " ")
        nested = [row(f"n{number}", path=path) for number, path in enumerate(paths)]
        notes = [note("k", path=path) for path in paths]
        begin(store, "b1", row("c1"), *nested, note("j", path="1.0"), row("c2", "c1"), *notes)
        whole = store.lineage(branch_id="b1").entries
        assert [entry.path for entry in whole] == ["", *paths, "1.0", "", *paths]
        assert store.lineage(checkpoint_id="c1").entries == whole[:7]
        assert store.lineage(checkpoint_id="c2").entries == whole
        assert [found.checkpoint_id for found in store.select_checkpoints(CheckpointFilter())] == ["c1", "c2"]
        for number in range(len(paths)):
            with refused(CheckpointNotFound):
                store.lineage(checkpoint_id=f"n{number}")

    def test_a_branch_with_no_entries_of_its_own_yet_is_its_parents_place(self) -> None:
        """Or an empty one."""
        store = self.store
        forked(store)
        begin(store, "b5", parent=("b1", 5))
        assert [entry.seq for entry in store.lineage(branch_id="b5").entries] == [1, 2, 3, 4, 5]
        begin(store, "b6")
        assert store.lineage(branch_id="b6") == Lineage(branch=branch_of(store, "b6"), entries=())

    def test_a_long_lineage_is_whole_and_in_order(self) -> None:
        """Many branches deep, each with many entries."""
        store = self.store
        wanted: list[tuple[int, str, str]] = []
        for number in range(30):
            id, parent = f"b{number}", (f"b{number - 1}", len(wanted)) if number else None
            notes = tuple(note(f"{number}.{place}") for place in range(20))
            begin(store, id, row(f"c{number}"), *notes, thread="t", parent=parent, status="completed", exclusive=True)
            wanted += [(len(wanted) + 1, id, f"c{number}")]
            wanted += [(len(wanted) + 1 + place, id, f"{number}.{place}") for place in range(20)]
        assert written(store.lineage(branch_id="b29")) == wanted
        assert written(store.lineage(checkpoint_id="c20")) == wanted[: 21 * 21]
        assert [branch.id for branch in store.branches(thread_id="t")] == [f"b{number}" for number in range(30)]

    def test_a_checkpoint_that_is_not_there_or_is_nested_is_not_found(self) -> None:
        """Whatever the id looks like; the error names it."""
        store = self.store
        forked(store)
        for id in NONE:
            with refused(CheckpointNotFound) as missing:
                store.lineage(checkpoint_id=id)
            assert missing.value.id == id
            for ask in (store.load, store.history):
                with refused(CheckpointNotFound):
                    ask(id)
            assert store.child_ids(id) == []

    def test_a_branch_that_is_not_there_is_not_found(self) -> None:
        """Nor is anything of it."""
        store = self.store
        begin(store, "b1", row("c1"), thread="t")
        for id in ("", "none", "c1", "\ud800", "b1\x00", "b1 ", "B1", "b%"):
            with refused(CheckpointNotFound) as missing:
                store.lineage(branch_id=id)
            assert missing.value.id == id
            with refused(CheckpointNotFound):
                store.head(id)
            assert store.branches(run_id=id) == store.branches(thread_id=id) == []
            assert store.pending_rows(run_id=id) == []
            assert store.select_checkpoints(CheckpointFilter(run_id=id)) == []

    def test_a_lineage_is_of_one_thing(self) -> None:
        """A checkpoint, or a branch."""
        with refused(StoreError):
            self.store.lineage()
        with refused(StoreError):
            self.store.lineage(checkpoint_id="c", branch_id="b")

    def test_children_are_those_of_the_branch_of_forks_and_of_the_next_run_in_the_order_of_branches(self) -> None:
        """Root checkpoints alone."""
        store = self.store
        forked(store)
        assert store.child_ids("c1") == ["c2", "f1", "g1"]
        assert store.child_ids("f1") == ["d1"]
        assert store.child_ids("c3") == []
        begin(store, "b5", row("h1", "c3"), row("m1", "c3", path="nested"), parent=("b1", 6))
        store.append(Append(branch_id="b1", seq=6, claim=MINE, entries=(row("c4", "c3"),)))
        assert store.child_ids("c3") == ["c4", "h1"]

    def test_a_row_that_names_no_parent_goes_on_from_the_one_before_it_in_its_log(self) -> None:
        """In its own log: the first of a branch goes on from none."""
        store = self.store
        begin(store, "b1", row("c1"), note("j"), row("n1", path="1.0"), row("c2"), take="me")
        store.append(Append(branch_id="b1", seq=4, claim=MINE, entries=(note("k"), row("c3"))))
        begin(store, "b2", row("d1"), parent=("b1", 6))
        assert [store.child_ids(id) for id in ("c1", "c2", "c3", "n1", "d1")] == [["c2"], ["c3"], [], [], []]

    def test_what_a_store_hands_out_cannot_be_used_to_change_it(self) -> None:
        """Lists are the caller's, records are frozen."""
        store = self.store
        forked(store)
        before = everything(store)
        store.branches().clear()
        store.pending_rows().clear()
        store.child_ids("c1").clear()
        store.select_checkpoints(CheckpointFilter()).clear()
        store.select_audit(AuditFilter()).clear()
        records: tuple[Any, ...] = (*store.branches(), *store.lineage(branch_id="b1").entries)
        for record in records:
            with refused(FrozenInstanceError):
                record.seq = 99
        assert everything(store) == before

    def test_what_is_stored_is_there_in_another_object(self) -> None:
        """All of it, and as it was."""
        store = self.store
        forked(store)
        opened = (asked("p1", 2.5, risk="high", expires_at=3.5), asked("p0", 2.5))
        begin(store, "b5", row("e1", label="l"), take="you", announce=True, opened=opened, audit=(line(1.5),))
        before = everything(store)
        assert everything(self.reopened()) == before
        assert everything(store) == before


class BranchTests(StoreTests):
    """Tests that filters find branches, in the order in which they were made."""

    def branch_ids(self, **wanted: Any) -> list[str]:
        """The ids of the branches that match a filter."""
        return [branch.id for branch in self.store.select_branches(BranchFilter(**wanted))]

    def test_branches_are_those_of_a_run_a_thread_both_or_all_oldest_first(self) -> None:
        """Not in the order of their ids, nor of their times."""
        store = self.store
        forked(store)
        self.clock.now = 500.0
        begin(store, "a0", row("z1"), thread="u")
        assert self.branch_ids() == ["b1", "b2", "b3", "b4", "a0"]
        assert self.branch_ids(run_id="b1") == ["b1", "b2", "b3"]
        assert self.branch_ids(thread_id="t") == ["b1", "b2", "b3", "b4"]
        assert self.branch_ids(run_id="b4", thread_id="t") == ["b4"]
        for none in ({"run_id": "b4", "thread_id": "u"}, {"run_id": "x"}, {"thread_id": "\ud800"}):
            assert self.branch_ids(**none) == []
        assert [branch.id for branch in store.branches(run_id="b1", thread_id="t")] == ["b1", "b2", "b3"]
        store.append(Append(branch_id="b1", seq=6, claim=MINE, entries=(note("j"),)))
        assert self.branch_ids() == ["b1", "b2", "b3", "b4", "a0"]

    def test_the_newest_branches_come_first_in_pages(self) -> None:
        """Of all, of a run or of a thread, behind a branch; behind one that is gone, none."""
        store = self.store
        forked(store)
        begin(store, "a0", row("z1"), thread="u")
        every = ["a0", "b4", "b3", "b2", "b1"]
        assert self.branch_ids(newest=True) == every
        assert self.branch_ids(newest=True, limit=2) == every[:2]
        assert self.branch_ids(newest=True, limit=0) == self.branch_ids(after="b1", limit=0) == []
        for place, id in enumerate(every):
            assert self.branch_ids(newest=True, after=id) == every[place + 1 :]
            assert self.branch_ids(newest=True, after=id, limit=1) == every[place + 1 : place + 2]
            assert self.branch_ids(after=id) == every[:place][::-1]
        assert self.branch_ids(newest=True, thread_id="t") == every[1:]
        assert self.branch_ids(newest=True, thread_id="t", after="b3", limit=5) == ["b2", "b1"]
        assert self.branch_ids(newest=True, run_id="b1", after="b3") == ["b2", "b1"]
        assert self.branch_ids(newest=True, parents=("b2",)) == ["b4", "b3"]
        for gone in ("x", "", "'", "\ud800"):
            assert self.branch_ids(newest=True, after=gone) == self.branch_ids(after=gone) == []

    def test_branches_are_found_by_what_they_go_on_from(self) -> None:
        """By any of several branches; by none, none."""
        forked(self.store)
        assert self.branch_ids(parents=("b1",)) == ["b2"]
        assert self.branch_ids(parents=("b2", "b1")) == ["b2", "b3", "b4"]
        assert self.branch_ids(parents=("b2", "b2", "none", "'", '"')) == ["b3", "b4"]
        assert self.branch_ids(parents=()) == self.branch_ids(parents=("b4",)) == []
        assert self.branch_ids(parents=("b2",), run_id="b4") == ["b4"]
        many = tuple(f"x{number}" for number in range(2000))
        assert self.branch_ids(parents=(*many, "b1")) == ["b2"]

    def test_abandoned_branches_are_those_that_run_and_that_nobody_holds_at_that_time(self) -> None:
        """A lease that ends at that time has ended."""
        store = self.store
        begin(store, "free")
        begin(store, "held", take="me", lease=10.0)
        begin(store, "longer", take="me", lease=20.0, thread="t")
        for status in (*OPEN, *ENDED):
            if status != "running":
                begin(store, status, status=status)
        assert self.branch_ids(abandoned_at=1009.9) == ["free"]
        assert self.branch_ids(abandoned_at=1010.0) == ["free", "held"]
        assert self.branch_ids(abandoned_at=1e12) == ["free", "held", "longer"]
        assert self.branch_ids(abandoned_at=1e12, thread_id="t") == ["longer"]
        store.release(claim("longer"), "failed")
        assert self.branch_ids(abandoned_at=1e12) == ["free", "held"]

    def test_ended_branches_are_those_whose_last_write_was_before_that_time(self) -> None:
        """Not at it; each end is one."""
        store, clock = self.store, self.clock
        for number, status in enumerate((*ENDED, *OPEN)):
            clock.now = 1000.0 + number
            begin(store, status, status=status, thread="t" if number % 2 else None)
        assert self.branch_ids(ended_before=1e15) == list(ENDED)
        assert self.branch_ids(ended_before=1002.0) == list(ENDED[:2])
        assert self.branch_ids(ended_before=1000.0) == []
        assert self.branch_ids(ended_before=1e15, thread_id="t") == [ENDED[1], ENDED[3]]
        clock.now = 2000.0
        store.append(Append(branch_id=ENDED[0], seq=0, take="me", release=True, entries=(note("late"),)))
        assert self.branch_ids(ended_before=2000.0) == list(ENDED[1:])
        assert self.branch_ids(ended_before=1e15, abandoned_at=1e15) == []

    def test_unannounced_branches_are_those_with_entries_that_nobody_has_heard_of(self) -> None:
        """Of those that somebody is to hear of."""
        store = self.store
        begin(store, "b1", row("c1"), announce=True, take="me")
        begin(store, "b2", row("c2"))
        begin(store, "b3", row("c3"), row("c4"), announce=True, thread="t")
        begin(store, "b4", announce=True)
        assert self.branch_ids(unannounced=True) == ["b1", "b3"]
        store.announced("b1", 1)
        store.announced("b3", 1)
        assert self.branch_ids(unannounced=True) == ["b3"]
        store.append(Append(branch_id="b1", seq=1, claim=MINE, entries=(note("j"),)))
        assert self.branch_ids(unannounced=True) == ["b1", "b3"]
        assert self.branch_ids(unannounced=True, thread_id="t") == ["b3"]
        assert self.branch_ids(unannounced=True, limit=1) == ["b1"]

    def test_branches_in_which_something_was_left_for_a_worker_are_found_whatever_their_status(self) -> None:
        """Until a root checkpoint is written after it."""
        store = self.store
        for number, status in enumerate((*OPEN, *ENDED), 1):
            begin(store, f"b{number}", row(f"c{number}"), take="me", status=status, thread="t" if number % 2 else None)
            holder, entries = claim(f"b{number}"), (note("decided"),)
            store.append(Append(branch_id=f"b{number}", seq=1, holder=holder, entries=entries))
        begin(store, "c", row("c"), take="me")
        ids = [f"b{number}" for number in range(1, len((*OPEN, *ENDED)) + 1)]
        assert self.branch_ids(handed=True) == ids
        assert self.branch_ids(handed=True, thread_id="t") == ids[::2]
        assert self.branch_ids(handed=True, limit=2) == ids[:2]
        assert self.branch_ids(handed=True, abandoned_at=1e15) == ["b1"]
        assert self.branch_ids(run_id="b2", handed=True) == ["b2"]
        store.append(Append(branch_id="b2", seq=2, claim=claim("b2"), entries=(row("d"),), head="d"))
        store.release(claim("b3"))
        assert self.branch_ids(handed=True) == [ids[0], *ids[2:]]
        store.release(claim("b1"))
        store.remove({"b1": 2}, {})
        assert self.branch_ids(handed=True) == ids[2:]

    def test_a_limit_takes_the_first_of_those_that_are_wanted(self) -> None:
        """Of those that all the rest holds for."""
        store = self.store
        forked(store)
        begin(store, "a0", status="completed")
        assert self.branch_ids(limit=2) == ["b1", "b2"]
        assert self.branch_ids(limit=99) == ["b1", "b2", "b3", "b4", "a0"]
        assert self.branch_ids(parents=("b2",), limit=1) == ["b3"]
        assert self.branch_ids(thread_id="t", limit=3) == ["b1", "b2", "b3"]
        assert self.branch_ids(ended_before=1e15, limit=1) == ["a0"]
        assert self.branch_ids(abandoned_at=1000.0, limit=1) == ["b2"]


class CheckpointTests(StoreTests):
    """Tests of root checkpoints, in the order of their branches and logs."""

    def kept(self, **wanted: Any) -> list[str]:
        """The ids of the checkpoints that match a filter."""
        return [found.checkpoint_id for found in self.store.select_checkpoints(CheckpointFilter(**wanted))]

    def grown(self) -> None:
        """Make the branches of `forked`, some with labels, and one of another agent. b1 is written last."""
        store = self.store
        forked(store)
        entries = (row("e1", label="gold"), row("n2", path="1.0", label="gold"), row("e2", label="büg\n☃"), row("e3"))
        begin(store, "b5", *entries, thread="u", agent="other", label="branch")
        more = (row("c4", "c3", label="gold"), note("j3"), row("c5", "c4"))
        store.append(Append(branch_id="b1", seq=6, claim=MINE, entries=more))

    def test_checkpoints_are_listed_by_branch_and_log(self) -> None:
        """Not by when they were written, and without nested ones."""
        self.grown()
        assert self.kept() == ["c1", "c2", "c3", "c4", "c5", "f1", "g1", "d1", "e1", "e2", "e3"]
        found = self.store.select_checkpoints(CheckpointFilter())
        assert [each.n for each in found] == sorted({each.n for each in found})
        place = {"checkpoint_id": "e1", "branch_id": "b5", "run_id": "b5", "thread_id": "u"}
        assert found[8] == CheckpointRow(**place, agent="other", label="gold", body="{}", n=found[8].n)
        assert (found[0].branch_id, found[0].run_id, found[0].label, found[5].run_id) == ("b1", "b1", None, "b1")

    def test_each_thing_said_of_them_narrows_the_list(self) -> None:
        """Run, thread, agent, label, any label, and all of these together."""
        self.grown()
        assert self.kept(run_id="b1") == ["c1", "c2", "c3", "c4", "c5", "f1", "g1"]
        assert self.kept(thread_id="t") == [*self.kept(run_id="b1"), "d1"]
        assert self.kept(agent="other") == ["e1", "e2", "e3"]
        assert self.kept(label="gold") == ["c4", "e1"]
        assert self.kept(label="büg\n☃") == ["e2"]
        assert self.kept(labeled=True) == ["c4", "e1", "e2"]
        assert self.kept(label="branch") == self.kept(label="") == self.kept(agent="gold") == []
        assert self.kept(run_id="b1", label="gold") == ["c4"]
        assert self.kept(thread_id="u", labeled=True, agent="other") == ["e1", "e2"]
        assert self.kept(run_id="b1", thread_id="u") == self.kept(thread_id="t", agent="other") == []
        assert self.kept(thread_id="t", run_id="b4", agent="clerk") == ["d1"]

    def test_a_list_goes_on_after_a_number_and_stops_at_a_limit(self) -> None:
        """With every other filter, too; pages put together are the list."""
        self.grown()

        def ask(wanted: CheckpointFilter, last: CheckpointRow | None) -> list[CheckpointRow]:
            return self.store.select_checkpoints(replace(wanted, after=last.n if last else None))

        wants: list[dict[str, Any]] = [{}, {"run_id": "b1"}, {"thread_id": "t"}, {"labeled": True}, {"agent": "clerk"}]
        for wanted in wants:
            whole = self.store.select_checkpoints(CheckpointFilter(**wanted))
            for size in (1, 2, 99):
                assert walked(partial(ask, CheckpointFilter(**wanted, limit=size)), size) == whole, wanted
        assert self.kept(after=0) == self.kept()
        assert self.kept(after=2**62) == []

    def test_a_label_is_the_checkpoints_own_in_every_branch(self) -> None:
        """Not that of its branch, nor that of the one before it."""
        begin(self.store, "b1", row("c1", label="a"), row("c2"), label="z")
        begin(self.store, "b2", row("d1", label="b"), parent=("b1", 2), run="b1")
        labels = [(found.checkpoint_id, found.label) for found in self.store.select_checkpoints(CheckpointFilter())]
        assert labels == [("c1", "a"), ("c2", None), ("d1", "b")]
        assert [entry.label for entry in self.store.lineage(branch_id="b2").entries] == ["a", None, "b"]


class AuditTests(StoreTests):
    """Tests of the records of the audit trail, in the order in which they were written."""

    def trail(self, **wanted: Any) -> list[str]:
        """The bodies of the records that match a filter."""
        return [found.body for found in self.store.select_audit(AuditFilter(**wanted))]

    def told(self) -> None:
        """Make eight records in two branches, not in the order of their times."""
        store = self.store
        first = (line(5.0, "b1", "t", "p1", "0"), line(3.0, "b1", "t", None, "1"))
        begin(store, "b1", row("c1"), take="me", audit=first)
        begin(store, "b2", row("d1"), take="me", audit=(line(4.0, "b2", "t", "p2", "2"),))
        lines = (line(4.0, "b1", "t", "p2", "3"), line(4.5, "b1", None, "p3", "4"), line(6.0, "b3", "u", "p1", "5"))
        store.append(Append(branch_id="b1", seq=1, claim=MINE, audit=lines))
        more = (line(1e9 / 3, "b2", "ü☃", "p\n4", "6"), line(0.0, body="7"))
        store.append(Append(branch_id="b2", seq=1, holder=claim("b2"), audit=more))

    def test_each_thing_asked_of_the_trail_narrows_it(self) -> None:
        """Run, thread, pending id and times, both inclusive, and all of these together."""
        self.told()
        assert self.trail() == list("01234567")
        assert self.trail(run_id="b1") == list("01347")
        assert self.trail(thread_id="t") == list("0123")
        assert self.trail(thread_id="ü☃") == self.trail(pending_id="p\n4") == ["6"]
        assert self.trail(pending_id="p1") == list("05")
        assert self.trail(since=4.0, until=5.0) == list("0234")
        assert self.trail(since=1e9 / 3) == self.trail(since=5.5, run_id="b2") == ["6"]
        assert self.trail(until=3.0) == list("17")
        assert self.trail(since=5.0, until=4.0) == self.trail(run_id="none") == self.trail(thread_id="\ud800") == []
        assert self.trail(run_id="b1", thread_id="t", pending_id="p2", since=4.0, until=4.0) == ["3"]

    def test_the_trail_goes_on_after_a_number_and_stops_at_a_limit(self) -> None:
        """With every other filter, too."""
        self.told()

        def ask(wanted: AuditFilter, last: AuditRow | None) -> list[AuditRow]:
            return self.store.select_audit(replace(wanted, after=last.n if last else None))

        wants: list[dict[str, Any]] = [{}, {"run_id": "b1"}, {"thread_id": "t"}, {"since": 4.0}, {"pending_id": "p1"}]
        for wanted in wants:
            whole = self.store.select_audit(AuditFilter(**wanted))
            assert walked(partial(ask, AuditFilter(**wanted, limit=2)), 2) == whole, wanted

    def test_lines_come_back_as_they_were_written(self) -> None:
        """Under a number that the store gives, whatever is in the record."""
        lines = tuple(line(float(at), body=f'{{"at":{at}.0}}', pending="p") for at in (3, 1, 2))
        begin(self.store, "b1", audit=tuple(replace(each, n=99) for each in lines))
        found = self.store.select_audit(AuditFilter())
        assert found == [replace(each, n=row.n) for each, row in zip(lines, found, strict=True)]
        assert len({each.n for each in found}) == 3

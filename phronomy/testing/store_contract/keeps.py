"""Tests of a store: claims that are renewed and given up, what was announced, branches that are deleted, texts that are kept once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from phronomy.errors import CheckpointNotFound, LeaseLost, StoreError
from phronomy.stores.base import Store
from phronomy.stores.native import on_loop
from phronomy.stores.rows import (
    Append,
    AuditFilter,
    Behind,
    Branch,
    BranchFilter,
    CheckpointFilter,
    Entry,
    Held,
    Occupied,
    PendingFilter,
)
from phronomy.testing.store_contract.base import (
    StoreTests,
    asked,
    begin,
    branch_of,
    claim,
    digest_of,
    everything,
    forked,
    line,
    note,
    refused,
    row,
    written,
)

MINE = claim()


class HoldTests(StoreTests):
    """Tests of the claim on a branch, and of the place up to which entries are announced."""

    def test_a_lease_is_renewed_even_late_and_not_once_it_is_lost(self) -> None:
        """For the seconds that the store says, from now; what it returns is the branch."""
        store, clock = self.store, self.clock
        begin(store, "b1", row("c1"), take="me", lease=5.0)
        before = branch_of(store, "b1")
        clock.now = 2000.0
        renewed = store.renew(MINE)
        assert renewed == branch_of(store, "b1") == replace(before, lease_until=2000.0 + store.lease)
        for gone in (claim(fence=2), claim(owner="you"), claim("none")):
            with refused(LeaseLost) as lost:
                store.renew(gone)
            assert (lost.value.branch_id, lost.value.run_id) == (gone.branch_id, gone.run_id)
        store.release(MINE)
        with refused(LeaseLost):
            store.renew(MINE)
        store.append(Append(branch_id="b1", seq=1, take="you"))
        with refused(LeaseLost):
            store.renew(MINE)

    def test_a_store_renews_for_as_long_as_its_own_lease_says(self) -> None:
        """Which it was made with."""
        store = self.opened(lease=7.5)
        begin(store, "b1", row("c1"), take="me")
        assert branch_of(store, "b1").lease_until == 1007.5
        self.clock.now = 1001.0
        assert store.renew(MINE).lease_until == 1008.5

    def test_releasing_is_for_whoever_still_holds_and_nothing_for_others(self) -> None:
        """It never raises `LeaseLost`; the status is set with it, or stays."""
        store = self.store
        begin(store, "b1", row("c1"), take="me", status="running")
        before = everything(store)
        store.release(claim(fence=2), "failed")
        store.release(claim(owner="you"), "failed")
        store.release(claim("none"), "failed")
        assert everything(store) == before
        self.clock.now = 1003.0
        store.release(MINE)
        free = replace(before[0][0], owner=None, lease_until=0.0)
        assert branch_of(store, "b1") == free, "it wrote nothing but who holds the branch"
        store.append(Append(branch_id="b1", seq=1, take="me"))
        store.release(claim(fence=2), "failed")
        branch = branch_of(store, "b1")
        assert (branch.owner, branch.fence, branch.status) == (None, 2, "failed")
        store.release(claim(fence=2), "completed")
        assert branch_of(store, "b1").status == "failed"

    def test_what_was_announced_is_noted_and_never_taken_back(self) -> None:
        """A number below the one noted changes nothing; a branch that nobody is to hear of stays so."""
        store = self.store
        begin(store, "b1", row("c1"), note("j"), note("k"), announce=True, take="me")
        begin(store, "b2", row("c2"), note("j"))
        before = branch_of(store, "b1")
        self.clock.now = 1001.0
        for seq, noted in ((2, 2), (1, 2), (0, 2), (2, 2), (3, 3)):
            store.announced("b1", seq)
            assert branch_of(store, "b1") == replace(before, announced=noted)
        store.announced("b2", 1)
        assert branch_of(store, "b2").announced is None
        assert store.select_branches(BranchFilter(unannounced=True)) == []
        store.append(Append(branch_id="b1", seq=3, claim=MINE, entries=(note("l"),)))
        assert [found.id for found in store.select_branches(BranchFilter(unannounced=True))] == ["b1"]


class RemoveTests(StoreTests):
    """Tests that a branch is deleted as a whole or not at all, and that only the audit trail stays."""

    def test_nothing_is_left_of_a_branch_but_the_trail(self) -> None:
        """Not its log, nor what is pending in it, nor its place in any list; its ids are free again."""
        store = self.store
        begin(store, "b0", row("c0"), thread="u", opened=(asked("p0", 3.0),))
        entries = (row("c1", label="l"), row("n1", path="1.0"), note("j"), row("c2", "c1"))
        opened = (asked("p1", 2.0, risk="high", label="l", expires_at=9.0), asked("p2", 2.0))
        rest = everything(store)[:3]
        begin(store, "b1", *entries, thread="t", head="c2", opened=opened, audit=(line(5.0, thread="t"),))
        before = everything(store)[3]
        store.remove({"b1": 4}, {})
        assert everything(store)[:3] == rest
        assert everything(store)[3] == before
        for id in ("c1", "c2"):
            with refused(CheckpointNotFound):
                store.lineage(checkpoint_id=id)
            assert store.child_ids(id) == []
        with refused(CheckpointNotFound):
            store.lineage(branch_id="b1")
        with refused(CheckpointNotFound):
            store.append(Append(branch_id="b1", seq=4, take="me", entries=(note("late"),)))
        facets = {"run": "b1", "thread": "t", "label": "l", "risk": "high"}
        for name, value in facets.items():
            assert store.count_pending(PendingFilter(facets={name: value})) == 0
        assert store.count_pending(PendingFilter(facets={"tool": "pay"})) == 1
        assert store.select_pending(PendingFilter(pending_id="p1")) == []
        assert store.select_pending(PendingFilter(expired_at=99.0)) == []
        assert store.select_checkpoints(CheckpointFilter(label="l")) == []
        assert store.branches(run_id="b1") == store.branches(thread_id="t") == []

        begin(store, "b1", *entries, thread="t", head="c2", opened=opened, exclusive=True)
        places = [(seq, "b1", id) for seq, id in enumerate(("c1", "n1", "j", "c2"), 1)]
        assert written(store.lineage(branch_id="b1")) == places
        assert [found.pending_id for found in store.pending_rows()] == ["p1", "p2", "p0"]
        assert store.child_ids("c1") == ["c2"]

    def test_a_branch_that_has_changed_is_held_or_gone_is_not_taken_away(self) -> None:
        """`Behind`, and nothing was changed: none of the others went either."""
        store, clock = self.store, self.clock
        begin(store, "b1", row("c1"), note("j"), take="me", lease=5.0)
        begin(store, "b2", row("c2"))
        before = everything(store)
        clock.now = 1004.9
        for wrong in ({"b2": 1, "b1": 2}, {"b2": 2}, {"b2": 0}, {"b2": 1, "b3": 1}, {"b3": 0}):
            with refused(Behind):
                store.remove(wrong, {})
            assert everything(store) == before, wrong
        clock.now = 1005.0
        store.remove({"b2": 1, "b1": 2}, {})
        assert everything(store) == ([], [], [], [], [])

    def test_a_branch_that_another_goes_on_from_is_not_taken_away_beneath_it(self) -> None:
        """Unless that goes as well, or is written anew."""
        store = self.store
        begin(store, "b1", row("c1"), note("j"))
        begin(store, "b2", row("f1", "c1"), parent=("b1", 1))
        begin(store, "b3", parent=("b1", 2))
        before = everything(store)
        alone = {"b2": (Entry(path="", body="whole", checkpoint_id="f1", parent_id="c1", branch_id="b2", seq=2),)}
        for going, detached in (({"b1": 2}, {}), ({"b1": 2, "b3": 2}, {}), ({"b1": 2}, alone), ({"b1": 2}, {"b3": ()})):
            with refused(Behind):
                store.remove(going, detached)
            assert everything(store) == before
        store.remove({"b1": 2, "b3": 2}, alone)
        assert [branch.id for branch in store.branches()] == ["b2"]

    def test_a_branch_that_is_written_anew_needs_nothing_before_its_log(self) -> None:
        """Its numbers stay, and all else: who holds it, what is pending in it, the entries that are not written anew."""
        store = self.store
        begin(store, "b1", row("c1"), note("j1"), row("c2", "c1"), thread="t", status="completed")
        entries = (row("f1", "c2", label="old"), note("k1", path="1.0"), row("f2", "f1"))
        held = partial(begin, store, "b2", *entries, take="me", lease=50.0, announce=True)
        held(thread="t", label="l", parent=("b1", 3), head="f2", opened=(asked("p1", label="l"),))
        begin(store, "b3", row("g1"), run="b2", thread="t", parent=("b2", 5), head="g1")
        before = branch_of(store, "b2")
        anew = Entry(
            path="", body='{"whole":5.0}', checkpoint_id="f1", parent_id="c2", label="new", branch_id="b2", seq=4
        )
        self.clock.now = 1001.0
        store.remove({"b1": 3}, {"b2": (anew,)})
        assert branch_of(store, "b2") == replace(before, parent_branch=None)
        own = store.lineage(branch_id="b2").entries
        assert own == (
            anew,
            Entry(path="1.0", body="k1", branch_id="b2", seq=5),
            Entry(path="", body="{}", checkpoint_id="f2", parent_id="f1", branch_id="b2", seq=6),
        )
        assert store.lineage(checkpoint_id="f1").entries == own[:2]
        assert written(store.lineage(checkpoint_id="g1")) == [(4, "b2", "f1"), (5, "b2", "k1"), (6, "b3", "g1")]
        assert [(found.pending_id, found.checkpoint_id) for found in store.pending_rows()] == [("p1", "f2")]
        assert [found.label for found in store.select_checkpoints(CheckpointFilter(labeled=True))] == ["new"]
        assert store.child_ids("f1") == ["f2"]
        assert store.select_branches(BranchFilter(parents=("b1",))) == []
        after = store.append(Append(branch_id="b2", seq=6, entries=(row("f3"),), claim=claim("b2"), head="f3"))
        assert (after.seq, after.owner) == (7, "me")
        assert written(store.lineage(checkpoint_id="f3"))[-1] == (7, "b2", "f3")

    def test_a_branch_to_be_written_anew_that_is_gone_stops_it_all(self) -> None:
        """Somebody else may take both away at the same time."""
        store = self.store
        begin(store, "b1", row("c1"))
        before = everything(store)
        for anew in ((), (Entry(path="", body="{}", checkpoint_id="f1", branch_id="b2", seq=2),)):
            with refused(Behind):
                store.remove({"b1": 1}, {"b2": anew})
            assert everything(store) == before

    def test_branches_go_together_and_leave_their_neighbours_alone(self) -> None:
        """A run with its forks, from between two others of its thread."""
        store = self.store
        forked(store)
        store.release(MINE, "completed")
        begin(store, "b0", row("z1"), thread="t")
        anew = Entry(path="", body="whole", checkpoint_id="d1", parent_id="f1", branch_id="b4", seq=5)
        store.remove({"b1": 6, "b2": 4, "b3": 2}, {"b4": (anew,)})
        assert [branch.id for branch in store.branches(thread_id="t")] == ["b4", "b0"]
        assert written(store.lineage(branch_id="b4")) == [(5, "b4", "d1")]
        assert [found.checkpoint_id for found in store.select_checkpoints(CheckpointFilter())] == ["d1", "z1"]
        assert store.branches(run_id="b1") == []

    def test_the_trail_is_never_changed(self) -> None:
        """Lines stay in order, under their numbers, whatever becomes of the run."""
        store = self.store
        begin(store, "b1", row("c1"), audit=(line(1.0, body="first"), line(1.0, body="second")))
        change = Append(branch_id="b1", seq=1, entries=(note("j"),), audit=(line(0.5, body="third"),))
        store.append(replace(change, take="me", release=True))
        trail = store.select_audit(AuditFilter())
        assert [found.body for found in trail] == ["first", "second", "third"]
        assert sorted({found.n for found in trail}) == [found.n for found in trail]
        store.remove({"b1": 2}, {})
        begin(store, "b1", row("c1"), audit=(line(2.0, body="fourth"),))
        assert store.select_audit(AuditFilter())[:3] == trail
        assert [found.body for found in store.select_audit(AuditFilter(run_id="b1"))][3:] == ["fourth"]


SCHEMAS = ('{"type":"object","properties":{"amount":{"type":"number"}}}', '{"type":"object"}', "")
ODD = (" ", "{} ", '{"a":5.0,"b":"Grüße\\u0000\t☃🂡"}\r\n', "e\u0301", "é", "\u2028\x7f\x1f", "a'; --", "x" * 100_000)
"""Texts that a careless store may take for one another, or give back otherwise."""


def kept(store: Store, texts: Sequence[str]) -> list[str | None]:
    """Gives for each text the one that the store keeps under its digest."""
    return [store.kept_text(digest_of(text)) for text in texts]


class TextsKeptTests(StoreTests):
    """A text is kept once, under its SHA-256, together with the change that names it."""

    def test_texts_are_kept_with_a_change_and_found_by_their_digests(self) -> None:
        """From the first change of a branch on, and once: to add one again is no error, also twice in one change."""
        store, (one, two, empty) = self.store, SCHEMAS
        begin(store, "b1", row("c1"), take="me", texts=(one,))
        assert kept(store, SCHEMAS) == [one, None, None]
        change = Append(branch_id="b1", seq=1, claim=MINE, entries=(note("j"),), texts=(two, one, empty, two))
        after = store.append(change)
        assert (after.seq, after.handed) == (2, None)
        assert store.append(Append(branch_id="b1", seq=2, claim=MINE, texts=(one,))).seq == 2
        store.release(MINE)
        assert store.append(Append(branch_id="b1", seq=2, take="you", texts=(one, *ODD), release=True)).fence == 2
        for each in (store, self.reopened()):
            assert kept(each, (*SCHEMAS, *ODD)) == [*SCHEMAS, *ODD]
        assert written(store.lineage(branch_id="b1")) == [(1, "b1", "c1"), (2, "b1", "j")]

    def test_what_no_text_is_kept_under_finds_none(self) -> None:
        """A digest of another text, or in capitals, a part of one, or what is no digest at all."""
        text = SCHEMAS[0]
        begin(self.store, "b1", row("c1"), texts=(text,))
        digest = digest_of(text)
        for other in (digest_of("other"), digest.upper(), digest[:-1], f"{digest} ", text, "c1", "", "a\x00", "\ud800"):
            assert self.store.kept_text(other) is None, other

    def test_each_tenant_keeps_its_own_texts(self) -> None:
        """What one has kept, another does not find, and may keep as well."""
        mine, theirs = self.store.for_tenant("mine"), self.store.for_tenant("theirs")
        begin(mine, "b1", row("c1"), texts=SCHEMAS[:2])
        assert kept(theirs, SCHEMAS) == kept(self.store, SCHEMAS) == [None, None, None]
        begin(theirs, "b1", row("c1"), texts=SCHEMAS[1:])
        assert kept(mine, SCHEMAS) == [*SCHEMAS[:2], None]
        assert kept(theirs, SCHEMAS) == [None, *SCHEMAS[1:]]

    def test_a_change_that_is_refused_keeps_no_text(self) -> None:
        """Whatever it is refused for; once it is right, both are there."""
        store, texts = self.store, SCHEMAS
        begin(store, "b1", row("c1"), thread="t", take="me", opened=(asked("p1"),))
        before = everything(store)
        good = Append(branch_id="b1", seq=1, claim=MINE, entries=(note("j"), row("c2")), head="c2", texts=texts)
        bad: list[dict[str, Any]] = [
            {"seq": 0},
            {"claim": claim(fence=2)},
            {"claim": None, "take": "you"},
            {"entries": (row("c2"), row("c1"))},
            {"opened": (asked("p1"),)},
            {"branch_id": "b2", "claim": claim("b2")},
        ]
        for change in bad:
            with refused(Behind, LeaseLost, Held, StoreError, CheckpointNotFound):
                store.append(replace(good, **change))
            assert (everything(store), kept(store, texts)) == (before, [None] * 3), change
        first = partial(begin, store, texts=texts)
        for begun in (
            partial(first, "b1", row("c2")),
            partial(first, "b2", row("c1")),
            partial(first, "b2", row("c2"), thread="t", exclusive=True),
            partial(first, "b2", row("c2"), parent=("gone", 1)),
        ):
            with refused(Behind, Occupied, StoreError, CheckpointNotFound):
                begun()
            assert (everything(store), kept(store, texts)) == (before, [None] * 3)
        store.append(good)
        assert kept(store, texts) == [*texts]

    def test_a_change_for_a_holder_has_no_texts(self) -> None:
        """Nor has one for nobody: only the worker that drives a run writes requests of a model."""
        store = self.store
        begin(store, "b1", row("c1"), take="me")
        begin(store, "b2", row("c2"))
        before = everything(store)
        for holder in (MINE, claim("b2", owner="", fence=0)):
            left = Append(branch_id=holder.branch_id, seq=1, holder=holder, entries=(note("j"),), texts=SCHEMAS)
            with refused(StoreError):
                store.append(left)
            assert (everything(store), kept(store, SCHEMAS)) == (before, [None] * 3)

    def test_a_text_that_cannot_be_stored_is_refused_with_its_change(self) -> None:
        """Half of a surrogate pair has no digest. A database may have no null character: then that is refused as well."""
        store, good = self.store, SCHEMAS[0]
        begin(store, "b1", row("c1"), take="me")
        before = everything(store)
        change = Append(branch_id="b1", seq=1, claim=MINE, entries=(note("j"),), texts=(good, "a\ud800"))
        with refused(StoreError):
            store.append(change)
        with refused(StoreError):
            begin(store, "b2", row("c2"), texts=("\udfff", good))
        assert (everything(store), store.kept_text(digest_of(good))) == (before, None)
        try:
            store.append(replace(change, texts=(good, "a\x00b")))
        except StoreError:
            assert (everything(store), store.kept_text(digest_of(good))) == (before, None)
        else:
            assert kept(store, (good, "a\x00b")) == [good, "a\x00b"]

    def test_texts_stay_when_runs_are_deleted(self) -> None:
        """Other runs may name them: neither a branch nor what clears a store takes one away."""
        store = self.store
        begin(store, "b1", row("c1"), texts=SCHEMAS)
        begin(store, "b2", row("c2"), status="completed", texts=SCHEMAS)
        store.remove({"b1": 1}, {})
        assert store.clear() == 1
        assert (everything(store), kept(store, SCHEMAS)) == (([], [], [], [], []), [*SCHEMAS])
        begin(store, "b1", row("c1"), texts=SCHEMAS)
        assert kept(store, SCHEMAS) == [*SCHEMAS]

    def test_texts_are_kept_and_found_in_an_event_loop(self) -> None:
        """By the primitives that runs use there."""
        store, (one, two, _) = self.store, SCHEMAS
        begin(store, "b1", row("c1"), take="me", texts=(one,))
        before = branch_of(store, "b1")
        change = Append(branch_id="b1", seq=1, claim=MINE, entries=(note("j"),), texts=(one, two))

        async def work() -> tuple[Branch, list[str | None]]:
            with refused(Behind):
                await on_loop(store).append(replace(change, seq=0))
            found = [await store.akept_text(digest_of(two))]
            after = await on_loop(store).append(change)
            return after, [*found, *[await store.akept_text(digest_of(text)) for text in SCHEMAS]]

        assert self.run(work()) == (replace(before, seq=2), [None, one, two, None])

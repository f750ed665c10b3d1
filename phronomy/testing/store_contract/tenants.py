"""Tests of a store: tenants that know nothing of each other, hostile texts, and threads that race."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from phronomy.errors import CheckpointAlreadyResumed, CheckpointNotFound, LeaseLost, StoreError
from phronomy.stores.base import Store
from phronomy.stores.rows import (
    FACETS,
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
from phronomy.testing.scripted import call
from phronomy.testing.store_contract.base import (
    Everything,
    StoreTests,
    asked,
    begin,
    branch_of,
    claim,
    digest_of,
    end,
    everything,
    forked,
    line,
    note,
    race,
    refused,
    row,
    written,
)

T = TypeVar("T")

MINE = claim()
EMPTY: Everything = ([], [], [], [], [])
TENANTS = (
    *("", "a", "a:b", "a:", ":", "a}", "{a}", "a/b", "..", "*", "a*", "a?", "[a]"),
    *("%", "_", "A", " ", "a ", "'", '"', "\\"),
    *("a'; DROP TABLE phronomy_log; --", "x" * 200, "x" * 199 + "y", "ü☃🂡", "u\u0308", "ü", "None", "null", "0"),
)
"""Names of tenants that a careless store may take for one another."""

BAD_TENANTS: tuple[Any, ...] = ("x" * 201, "a\nb", "a\x00", "\u2028", "\ud800", None, 7, b"a", "\x7f")
TEXTS = (
    *("", " ", "a:b", "a}", "%", "Grüße", "☃🂡", "e\u0301", "é", "\t", "a\nb", "\u2028"),
    *("\x7f\x1f", "'", '"', "\\", "NULL"),
    *("x" * 300, "ß" * 150, "\\u0000", "{{x}}", "$1", "?", ":a", "a" + "\u200b"),
)
RACERS = 8

# What is asked of a tenant that has nothing of it.
MORE = (
    PendingFilter(),
    PendingFilter(pending_id="p1"),
    PendingFilter(expired_at=1e15),
    PendingFilter(since=0.0),
    PendingFilter(newest=True),
)
KEPT = (
    CheckpointFilter(run_id="b5"),
    CheckpointFilter(thread_id="u"),
    CheckpointFilter(agent="clerk"),
    CheckpointFilter(label="l"),
    CheckpointFilter(labeled=True),
)
STOOD = (
    BranchFilter(run_id="b1"),
    BranchFilter(thread_id="t"),
    BranchFilter(parents=("b1", "b2")),
    BranchFilter(abandoned_at=1e15),
    BranchFilter(ended_before=1e15),
    BranchFilter(unannounced=True),
    BranchFilter(handed=True),
    BranchFilter(newest=True),
    BranchFilter(newest=True, after="b1"),
)
SAID = (AuditFilter(run_id="b1"), AuditFilter(pending_id="p1"), AuditFilter(since=0.0), AuditFilter(until=9.0))


class TenantTests(StoreTests):
    """Tests that a store object cannot see or change the data of another tenant, even if ids are equal."""

    def filled(self, store: Store) -> Everything:
        """Store data of every kind, and return all that the store holds."""
        forked(store)
        opened = (asked("p1", 2.0, risk="high", label="l", expires_at=3.0), asked("p2", 2.0))
        trail = (line(1.0, pending="p1"),)
        begin(store, "b5", row("e1", label="l"), thread="u", announce=True, opened=opened, audit=trail)
        return everything(store)

    def test_each_tenant_has_its_own_under_equal_ids(self) -> None:
        """Whatever the names are; what one does is seen by that one alone."""
        store = self.store
        stores = {name: store.for_tenant(name) for name in TENANTS}
        for name in TENANTS:
            begin(stores[name], "b1", row("c1", body=f'"{TENANTS.index(name)}"'), thread="t", exclusive=True)
        for number, name in enumerate(TENANTS):
            mine = stores[name]
            assert [entry.body for entry in mine.lineage(checkpoint_id="c1").entries] == [f'"{number}"']
            assert len(mine.branches()) == len(mine.branches(thread_id="t")) == 1
            assert mine.tenant == name
        stores["a:b"].remove({"b1": 1}, {})
        assert [name for name in TENANTS if not stores[name].branches()] == ["a:b"]

    def test_a_tenant_may_be_named_by_printable_text(self) -> None:
        """Of at most 200 characters; anything else is refused, here and where the store is made."""
        for name in BAD_TENANTS:
            with refused(StoreError):
                self.store.for_tenant(name)
            with refused(StoreError):
                self.make_store(clock=self.clock, tenant=name).close()

    def test_a_store_of_a_tenant_is_as_the_one_that_it_was_made_from(self) -> None:
        """Its clock, its lease, its ttl; going back and forth changes nothing."""
        store = self.opened(tenant="a", lease=7.0, ttl=9.0)
        other = store.for_tenant("b")
        assert type(other) is type(store)
        assert (store.tenant, other.tenant, other.lease, other.ttl, other.clock) == ("a", "b", 7.0, 9.0, self.clock)
        assert other.blocking == store.blocking
        begin(other, "b1", row("c1"), take="me")
        assert branch_of(other, "b1").lease_until == 1007.0
        assert everything(store) == EMPTY
        again = store.for_tenant("a").for_tenant("b")
        assert everything(again) == everything(other) != EMPTY
        if self.durable:
            assert everything(self.opened(tenant="b")) == everything(other)
            assert everything(self.opened()) == EMPTY
            assert self.opened(tenant="b").tenant == "b"

    def test_nothing_that_is_asked_tells_of_another_tenant(self) -> None:
        """Every method that reads."""
        theirs = self.store.for_tenant("theirs")
        self.filled(theirs)
        for mine in (self.store, self.store.for_tenant("mine"), theirs.for_tenant("their")):
            assert everything(mine) == EMPTY
            for id in ("c1", "d1", "e1"):
                with refused(CheckpointNotFound):
                    mine.lineage(checkpoint_id=id)
                assert mine.child_ids(id) == []
            with refused(CheckpointNotFound):
                mine.lineage(branch_id="b1")
            for wanted in STOOD:
                assert mine.select_branches(wanted) == []
            for facets in ({}, {"run": "b5"}, {"thread": "u"}, {"label": "l"}, {"tool": "pay"}, {"risk": "high"}):
                for more in MORE:
                    asked_for = replace(more, facets=facets)
                    assert mine.select_pending(asked_for) == []
                    assert mine.count_pending(asked_for) == 0
            for kept in KEPT:
                assert mine.select_checkpoints(kept) == []
            for said in SAID:
                assert mine.select_audit(said) == []
            assert mine.latest("t") is None and mine.pending() == [] and mine.list() == [] and mine.count() == 0
            assert list(mine.audit()) == []

    def test_nothing_that_is_done_touches_another_tenant(self) -> None:
        """Every method that writes, under the ids that the other has."""
        theirs, mine = self.store.for_tenant("theirs"), self.store.for_tenant("mine")
        before = self.filled(theirs)
        for change in (Append(branch_id="b1", seq=6, claim=MINE), Append(branch_id="b5", seq=1, take="me")):
            with refused(CheckpointNotFound):
                mine.append(change)
        with refused(LeaseLost):
            mine.renew(MINE)
        mine.release(MINE, "failed")
        with suppress(CheckpointNotFound):
            mine.announced("b5", 1)
        with refused(Behind):
            mine.remove({"b5": 1}, {})
        with refused(CheckpointNotFound):
            begin(mine, "b9", row("z9"), parent=("b1", 2))
        assert mine.delete("b5", force=True) is mine.delete("e1", force=True) is False
        assert mine.clear() == mine.prune() == 0
        assert everything(theirs) == before

        own = self.filled(mine)  # under equal ids, in an occupied thread, with a claim of the same owner and fence
        assert len(own[0]) == len(before[0]) and everything(theirs) == before
        begin(mine, "x1", row("x1"), thread="x", exclusive=True)
        mine.append(Append(branch_id="b1", seq=6, claim=MINE, entries=(row("c4", "c3"),)))
        closing = Append(branch_id="b5", seq=1, take="me", closed=("p1",), entries=(note("j"),), audit=(line(2.0),))
        mine.append(closing)
        mine.announced("b5", 2)
        self.clock.now = 2000.0
        mine.renew(MINE)
        mine.release(MINE, "completed")
        end(mine, "b4")
        assert everything(theirs) == before
        assert [found.pending_id for found in mine.select_pending(PendingFilter())] == ["p2"]
        assert mine.child_ids("c3") == ["c4"] and theirs.child_ids("c3") == []
        mine.remove({"b5": 2}, {})
        mine.remove({"b4": 5, "b3": 2, "b2": 4, "b1": 7, "x1": 1}, {})
        assert everything(mine)[:3] == EMPTY[:3]
        assert everything(theirs) == before

    def test_runs_of_two_tenants_do_not_meet(self) -> None:
        """One agent for each, the same thread, decisions, retention, and the trail."""
        stores = [self.store.for_tenant(name) for name in ("a", "b")]
        pay = call("pay", {"amount": 1.0})
        waits = [self.clerk(pay, store=store).invoke("Pay", thread_id="t").checkpoint for store in stores]
        with refused(CheckpointNotFound):
            self.clerk("x", store=stores[1]).resume(waits[0].id, approved=True)
        ended = self.clerk("Paid.", store=stores[0]).resume(waits[0].id, approved=True, by="ann")
        assert [len(store.pending()) for store in stores] == [0, 1]
        assert [len(list(store.audit())) for store in stores] == [1, 0]
        latest = stores[0].latest("t")
        assert latest is not None and (latest.id, stores[1].latest("t")) == (ended.checkpoint.id, None)
        assert stores[1].clear() == 0 and stores[1].delete(ended.run_id) is False
        assert stores[0].clear() > 0
        assert stores[1].load(waits[1].id) == waits[1]

    def test_closing_twice_is_allowed(self) -> None:
        """Of a tenant's, too."""
        store = self.opened()
        other = store.for_tenant("a")
        other.close()
        store.close()
        store.close()
        other.close()


class TextTests(StoreTests):
    """Tests that every column stores text unchanged."""

    def test_bodies_come_back_byte_for_byte(self) -> None:
        """And paths."""
        store = self.store
        text = '{"a":5.0,"b":"Grüße\\u0000\t☃🂡","c":1e400}\n'
        bodies = (text, "", " ", "\r\n", "0", "null", "x" * 100_000, '"' + "\u2028é" * 50_000 + '"')
        begin(store, "b1", *(row(f"c{n}", body=body) for n, body in enumerate(bodies)), note(text, path="é/0"))
        for each in (store, self.reopened()):
            entries = each.lineage(branch_id="b1").entries
            assert [entry.body for entry in entries] == [*bodies, text]
            assert entries[-1].path == "é/0"

    def test_ids_and_names_may_be_any_text(self) -> None:
        """Long, empty, of any script, with control characters: each is itself and nothing else."""
        store = self.store
        for number, text in enumerate(TEXTS):
            id = f"{text}#{number}"
            what: dict[str, Any] = {"tool_name": text, "risk": text, "label": text, "agent": text}
            first = row(f"c{id}", f"parent {text}", label=text)
            made = partial(begin, store, id, first, thread=text, agent=text, label=text, head=f"c{id}")
            trail = (line(1.0, id, text, id, body=text),)
            made(take=f"owner {text}", opened=(asked(id, 1.0, **what),), audit=trail)
        again = self.reopened()
        for number, text in enumerate(TEXTS):
            id = f"{text}#{number}"
            branch = branch_of(again, id)
            assert (branch.thread_id, branch.agent, branch.label, branch.owner) == (text, text, text, f"owner {text}")
            assert written(again.lineage(checkpoint_id=f"c{id}")) == [(1, id, f"c{id}")]
            assert again.child_ids(f"parent {text}") == [f"c{id}"]
            assert [found.id for found in again.branches(thread_id=text)] == [id]
            assert [found.id for found in again.branches(run_id=id)] == [id]
            for name in FACETS:
                facets = {name: id if name == "run" else text}
                assert [found.pending_id for found in again.select_pending(PendingFilter(facets=facets))] == [id]
            kept: tuple[dict[str, Any], ...] = ({"thread_id": text}, {"label": text}, {"agent": text}, {"run_id": id})
            for wanted in kept:
                found = again.select_checkpoints(CheckpointFilter(**wanted))
                assert [(each.branch_id, each.label, each.agent) for each in found] == [(id, text, text)]
            told: tuple[dict[str, Any], ...] = ({"thread_id": text}, {"run_id": id}, {"pending_id": id})
            for wanted in told:
                assert [each.body for each in again.select_audit(AuditFilter(**wanted))] == [text]
            assert again.renew(claim(id, owner=f"owner {text}")).id == id
        assert len(again.branches()) == len(again.pending_rows()) == len(TEXTS)

    def test_a_name_that_a_database_cannot_have_is_kept_or_refused(self) -> None:
        """A null character, half of a surrogate pair: then it is a `StoreError`, and nothing is written."""
        store = self.store
        for number, odd in enumerate(("a\x00b", "a\ud800b")):
            for name in ("thread", "label", "agent"):
                id, before = f"{name}{number}", everything(store)
                fields: dict[str, Any] = {name: odd}
                try:
                    begin(store, id, row(f"c{id}"), **fields)
                except StoreError:
                    assert everything(store) == before
                else:
                    branch = branch_of(store, id)
                    assert odd == {"thread": branch.thread_id, "label": branch.label, "agent": branch.agent}[name]
        assert store.branches(thread_id="a") == store.branches(thread_id="ab") == []

    def test_times_come_back_to_the_last_bit(self) -> None:
        """Of branches, of leases, of the trail."""
        store = self.store
        for number, now in enumerate((1e9 / 3, 1700000000.1234567, 0.1 + 0.2, 253402300799.999)):
            self.clock.now = now
            begin(store, f"b{number}", take="me", lease=1 / 3, audit=(line(now),))
            branch = branch_of(self.reopened(), f"b{number}")
            assert (branch.created_at, branch.changed_at, branch.lease_until) == (now, now, now + 1 / 3)
            assert store.select_audit(AuditFilter(since=now, until=now))[0].at == now


class RaceTests(StoreTests):
    """Tests with several threads: with one store object, and with an object for each thread if the store is durable."""

    def raced(self, work: Callable[[int, Store], T]) -> list[T | Exception]:
        """Run the work in eight threads at once, each with its store. Return what each has returned or raised."""
        self.clock.yields = True
        stores = [self.store if number % 2 else self.reopened() for number in range(RACERS)]
        return race([partial(work, number, store) for number, store in enumerate(stores)])

    def test_of_those_that_take_a_branch_one_does(self) -> None:
        """The others are told, and what they brought is not written."""
        begin(self.store, "b1", row("c1"))
        takes: tuple[tuple[Entry, ...], ...] = ((), (note("mine"),))
        for turn, entries in enumerate(takes, 1):
            change = Append(branch_id="b1", seq=1, entries=entries, lease=5.0)
            found = self.raced(partial(take, change))
            (won,) = [each for each in found if isinstance(each, Branch)]
            assert branch_of(self.store, "b1") == won
            assert (won.fence, won.seq) == (turn, 1 + len(entries))
            assert {type(each) for each in found if each is not won} <= {Held, Behind}
            self.clock.now += 100.0

    def test_of_those_that_take_a_free_branch_or_leave_a_note_on_it_one_does(self) -> None:
        """A note beside a claim would be left for nobody, though somebody drives the run."""
        begin(self.store, "b1", row("c1"))
        note_left = Append(branch_id="b1", seq=1, holder=claim(owner="", fence=0), entries=(note("left"),))
        taken = Append(branch_id="b1", seq=1, take="me")
        found = self.raced(lambda n, store: store.append(note_left if n % 2 else taken))
        (won,) = [each for each in found if isinstance(each, Branch)]
        assert branch_of(self.store, "b1") == won
        assert (won.owner, won.seq, won.handed) in (("me", 1, None), (None, 2, 2))
        assert {type(each) for each in found if each is not won} <= {Held, Behind}

    def test_of_those_that_begin_a_run_on_a_thread_one_does(self) -> None:
        """The others are told which."""
        found = self.raced(lambda n, store: begin(store, f"b{n}", row(f"c{n}"), thread="t", exclusive=True))
        assert [type(each) for each in found if each is not None] == [Occupied] * (RACERS - 1)
        (branch,) = self.store.branches(thread_id="t")
        assert [each.branch.id for each in found if isinstance(each, Occupied)] == [branch.id] * (RACERS - 1)

    def test_of_those_that_make_a_branch_under_one_id_one_does(self) -> None:
        """Nothing of the others is there."""
        store = self.store
        found = self.raced(lambda n, store: begin(store, "one", row(f"d{n}"), opened=(asked("p"),)))
        assert found.count(None) == 1 and {type(each) for each in found if each is not None} == {StoreError}
        assert len(store.select_pending(PendingFilter(pending_id="p"))) == len(store.branches(run_id="one")) == 1
        assert len(store.lineage(branch_id="one").entries) == len(store.select_checkpoints(CheckpointFilter())) == 1

    def test_threads_that_append_at_once_each_find_a_place_and_none_is_lost(self) -> None:
        """In the order that each wrote in."""
        begin(self.store, "b1", row("c1"))

        def work(n: int, store: Store) -> None:
            for turn in range(4):
                while True:
                    seq = branch_of(store, "b1").seq
                    try:
                        mine = Append(branch_id="b1", seq=seq, take=f"{n}", release=True, entries=(note(f"{n}{turn}"),))
                        store.append(mine)
                        break
                    except Behind:
                        continue

        assert self.raced(work) == [None] * RACERS
        bodies = [entry.body for entry in self.store.lineage(branch_id="b1").entries][1:]
        assert sorted(bodies) == [f"{n}{turn}" for n in range(RACERS) for turn in range(4)]
        for n in range(RACERS):
            assert [body for body in bodies if body[0] == str(n)] == [f"{n}{turn}" for turn in range(4)]

    def test_branches_that_are_written_at_once_do_not_mix(self) -> None:
        """Each with its own requests and lines."""

        def work(n: int, store: Store) -> None:
            name = f"b{n}-"
            begin(store, name, row(f"{name}0"), take="me", thread=name, exclusive=True)
            for turn in range(1, 6):
                change = Append(branch_id=name, seq=turn, claim=claim(name), entries=(row(f"{name}{turn}"),))
                opened, closed = (asked(f"p{turn}"),), (f"p{turn - 1}",)
                store.append(replace(change, opened=opened, closed=closed, audit=(line(1.0, name),)))

        assert self.raced(work) == [None] * RACERS
        store = self.store
        for n in range(RACERS):
            entries = store.lineage(branch_id=f"b{n}-").entries
            assert [entry.checkpoint_id for entry in entries] == [f"b{n}-{turn}" for turn in range(6)]
            assert [found.pending_id for found in store.pending_rows(run_id=f"b{n}-")] == ["p5"]
            assert len(store.select_audit(AuditFilter(run_id=f"b{n}-"))) == 5
        assert store.count_pending(PendingFilter(facets={"tool": "pay"})) == RACERS
        trail = store.select_audit(AuditFilter())
        assert len({found.n for found in trail}) == len(trail) == 5 * RACERS

    def test_runs_that_keep_the_same_texts_at_once_do_not_hinder_each_other(self) -> None:
        """Each adds them in an order of its own: nobody waits for somebody who waits for them."""
        texts = [[f"{turn} {number}" for number in range(4)] for turn in range(4)]

        def work(n: int, store: Store) -> None:
            id = f"b{n}"
            begin(store, id, row(f"c{n}"), take="me")
            for turn, few in enumerate(texts, 1):
                mine = tuple(few if n % 4 < 2 else reversed(few))
                store.append(Append(branch_id=id, seq=turn, claim=claim(id), entries=(note(id),), texts=mine))

        assert self.raced(work) == [None] * RACERS
        for text in itertools.chain(*texts):
            assert self.store.kept_text(digest_of(text)) == text

    def test_of_those_that_decide_one_approval_one_does(self, driver: str) -> None:
        """The call runs once; the others are told who was first."""
        ran: list[Any] = []
        waits = self.clerk(call("pay", {"amount": 1.0})).invoke("Pay").checkpoint

        def decide(n: int, store: Store) -> Any:
            agent = self.clerk("Paid.", store=store, ran=ran)
            return self.drive(driver, agent, "resume", waits.id, approved=True, by=f"w{n}")

        found = self.raced(decide)
        won = [each for each in found if not isinstance(each, Exception)]
        assert len(won) == 1, found
        late = [each for each in found if isinstance(each, CheckpointAlreadyResumed)]
        assert len(late) == RACERS - 1, found
        who = won[0].checkpoint.decisions[0].by
        assert all(each.decision is None or each.decision.by == who for each in late)
        assert (ran, won[0].output) == ([(1.0, "Ann")], "Paid.")
        assert [record.by for record in self.store.audit()] == [who]

    def test_what_is_taken_away_at_once_goes_once(self) -> None:
        """Whoever comes second finds it gone; what goes on from it stays whole, and is counted by one."""
        store = self.store
        for number in range(6):
            self.clerk("Done.").invoke("Go", thread_id=f"t{number % 2}")
        count = len(store.list())
        waits = self.clerk(call("pay", {"amount": 1.0})).invoke("Go", thread_id="t0").checkpoint
        before = store.load(waits.id)
        found = self.raced(lambda _, store: store.clear())
        assert [each for each in found if isinstance(each, Exception)] == []
        assert sum(each for each in found if isinstance(each, int)) == count
        assert [branch.id for branch in store.branches()] == [waits.run_id]
        assert store.load(waits.id) == before

    def test_a_write_and_a_removal_that_meet_do_not_halve_each_other(self) -> None:
        """Either the entry is there, or the whole branch is gone."""
        store, other = self.store, self.reopened()
        self.clock.yields = True
        for turn in range(RACERS):
            id = f"b{turn}"
            begin(store, id, row(f"c{turn}"), opened=(asked("p"),))
            write = Append(
                branch_id=id, seq=1, take="me", entries=(note("late"),), audit=(line(1.0, id),), release=True
            )
            racers: list[Callable[[], object]] = [partial(other.append, write), partial(self.store.remove, {id: 1}, {})]
            found = race(racers)
            trail = store.select_audit(AuditFilter(run_id=id))
            if isinstance(found[0], Branch):
                assert isinstance(found[1], Behind)
                assert [entry.body for entry in store.lineage(branch_id=id).entries] == ["{}", "late"]
                assert len(trail) == len(store.pending_rows(run_id=id)) == 1
            else:
                assert isinstance(found[0], CheckpointNotFound) and found[1] is None, found
                assert trail == [] and store.branches(run_id=id) == [] and store.pending_rows(run_id=id) == []


def take(change: Append, n: int, store: Store) -> Branch:
    """Make the change as an owner of this number, who takes the claim with it."""
    return store.append(replace(change, take=f"w{n}"))

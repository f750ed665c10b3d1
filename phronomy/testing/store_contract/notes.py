"""Tests of a store: votes and reminders, which are noted for a holder without anything being handed over, and requests listed anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from phronomy.errors import StoreError
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, AuditFilter, Behind, Branch, BranchFilter, Claim, PendingFilter, PendingRow
from phronomy.testing.store_contract.base import (
    Clock,
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
)

RACERS = 8

HOLDERS = (claim("b1"), claim("b2", owner="", fence=0), claim("b3", owner="", fence=1))
"""Of a branch that is held, of one that nobody has held, and of one whose lease is over."""


def single(store: Store, change: Append) -> Branch:
    """Write it with `append`."""
    return store.append(change)


def batch(store: Store, change: Append) -> Branch:
    """Write it with `append_all`."""
    (branch,) = store.append_all([change])
    return branch


WRITERS: tuple[Callable[[Store, Append], Branch], ...] = (single, batch)


def ids(store: Store, **facets: str) -> list[str]:
    """The requests with these facets, in the order of the list."""
    return [each.pending_id for each in store.select_pending(PendingFilter(facets=facets))]


def due(store: Store, at: float) -> list[str]:
    """The requests about which something is to be done at this time."""
    return [each.pending_id for each in store.select_pending(PendingFilter(expired_at=at))]


def noted(holder: Claim, seq: int = 1, **fields: object) -> Append:
    """A vote or a reminder: a journal entry that hands nothing over."""
    given: dict[str, object] = {"entries": (note("voted"),), **fields}
    return Append(branch_id=holder.branch_id, seq=seq, holder=holder, hands_over=False, **given)  # type: ignore[arg-type]


def two_requests_each(store: Store, clock: Clock) -> None:
    """Three branches, each with two requests: one is held, one was never held, and of one the lease is over."""
    clock.now = 1000.0
    for number, id in enumerate(("b1", "b2", "b3")):
        requests = (
            asked(f"p {id}", 5.0 + number, expires_at=50.0, risk="high"),
            asked(f"q {id}", 9.0, expires_at=60.0),
        )
        begin(store, id, row(f"c {id}"), thread=f"t {id}", head=f"c {id}", status="suspended", opened=requests)
    store.append(Append(branch_id="b1", seq=1, take="me", lease=1000.0))
    store.append(Append(branch_id="b3", seq=1, take="me", lease=10.0))
    clock.now = 1010.0


class NoteTests(StoreTests):
    """Tests that a note for a holder leaves the work where it is, and can write a request anew."""

    def test_a_request_is_written_anew_for_a_holder(self) -> None:
        """It is found by what it says now and by nothing that it said, wherever it waits and whoever holds the branch."""
        for number, write in enumerate(WRITERS):
            store = self.store.for_tenant(f"writer {number}")
            two_requests_each(store, self.clock)
            for holder in HOLDERS:
                self.write_anew(store, holder, write)

    def write_anew(self, store: Store, holder: Claim, write: Callable[[Store, Append], Branch]) -> None:
        """Write one request anew, with other values in all that it can be found by."""
        branch_id = holder.branch_id
        id = f"p {branch_id}"
        (old,) = store.select_pending(PendingFilter(pending_id=id))
        new = asked(
            id, 20.0, expires_at=70.0, risk="low", tool_name="ship", agent="inner", label="l", body='{"anew":1}'
        )
        before = branch_of(store, branch_id)
        write(store, noted(holder, closed=(id,), opened=(new,), audit=(line(8.0, run=branch_id, pending=id),)))
        assert branch_of(store, branch_id) == replace(before, seq=2, changed_at=self.clock.now)
        (found,) = store.select_pending(PendingFilter(pending_id=id))
        placed = replace(new, branch_id=branch_id, run_id=branch_id, thread_id=f"t {branch_id}")
        assert found == replace(placed, checkpoint_id=found.checkpoint_id, n=found.n)
        assert found.n > old.n
        assert ids(store, run=branch_id) == [f"q {branch_id}", id]
        assert ids(store, run=branch_id, tool="ship") == ids(store, run=branch_id, risk="low") == [id]
        assert ids(store, run=branch_id, agent="inner") == ids(store, run=branch_id, label="l") == [id]
        assert ids(store, run=branch_id, tool="pay") == ids(store, run=branch_id, agent="clerk") == [f"q {branch_id}"]
        assert ids(store, run=branch_id, risk="high") == []
        assert store.count_pending(PendingFilter(facets={"run": branch_id})) == 2
        assert [id in due(store, at) for at in (50.0, 69.9, 70.0)] == [False, False, True]
        assert id in [each.pending_id for each in store.select_pending(PendingFilter(since=20.0, until=20.0))]
        assert id not in [each.pending_id for each in store.select_pending(PendingFilter(since=5.0, until=8.0))]

    def test_a_request_may_be_written_anew_as_it_was_and_without_a_time(self) -> None:
        """Only its number is another. One about which nothing is to be done any more is not among those that are due."""
        store = self.store
        two_requests_each(store, self.clock)
        holder = HOLDERS[1]
        (old,) = store.select_pending(PendingFilter(pending_id="p b2"))
        store.append(noted(holder, closed=("p b2",), opened=(old,)))
        (same,) = store.select_pending(PendingFilter(pending_id="p b2"))
        assert same == replace(old, n=same.n)
        assert ids(store, run="b2") == ["p b2", "q b2"]
        for seq, at in ((2, None), (3, 0.0), (4, 2**40 + 0.5), (5, None)):
            store.append(noted(holder, seq, closed=("p b2",), opened=(replace(old, expires_at=at),)))
            assert ("p b2" in due(store, 2.0**41)) == (at is not None)
            assert ("p b2" in due(store, 0.0)) == (at == 0.0)
        # It is closed like any other, and nothing of what it was is left.
        store.append(noted(holder, 6, closed=("p b2",), entries=(note("decided"),)))
        assert (ids(store, run="b2"), "p b2" in due(store, 2.0**41)) == (["q b2"], False)

    def test_several_requests_of_a_branch_are_written_anew_at_once(self) -> None:
        """And one is closed with them, which is not written anew."""
        for number, write in enumerate(WRITERS):
            store = self.store.for_tenant(f"writer {number}")
            begin(store, "b1", row("c"), head="c", opened=tuple(asked(f"p{each}", float(each)) for each in range(4)))
            again = tuple(asked(f"p{each}", 3.0 - each, tool_name="ship") for each in (0, 1))
            write(store, noted(claim(owner="", fence=0), closed=("p0", "p3", "p1"), opened=again))
            assert ids(store) == ["p2", "p1", "p0"]
            assert ids(store, tool="ship") == ["p1", "p0"]

    def test_no_other_request_is_opened_than_is_closed(self) -> None:
        """Neither a new one, nor one that waits already: nothing is written."""
        store = self.store
        two_requests_each(store, self.clock)
        good, new = asked("p b2"), asked("p new")
        refusals: list[tuple[tuple[str, ...], tuple[PendingRow, ...]]] = [
            ((), (new,)),
            (("p b2",), (new,)),
            (("p b2",), (good, new)),
            (("q b2",), (good,)),
            (("p b2",), (good, good)),
            ((), (good,)),
        ]
        before = everything(store)
        for closed, opened in refusals:
            for holder in HOLDERS[1:2]:
                for write in WRITERS:
                    for hands_over in (False, True):
                        change = replace(noted(holder, closed=closed, opened=opened), hands_over=hands_over)
                        with refused(StoreError):
                            write(store, change)
                        assert everything(store) == before, change

    def test_a_note_that_hands_nothing_over_leaves_the_branch_to_nobody(self) -> None:
        """What was handed over stays so; what was not is not found, until something is."""
        for number, write in enumerate(WRITERS):
            store = self.store.for_tenant(f"writer {number}")
            two_requests_each(store, self.clock)
            for holder in HOLDERS:
                id, before = holder.branch_id, branch_of(store, holder.branch_id)
                assert write(store, noted(holder)) == replace(before, seq=2, changed_at=self.clock.now)
                assert write(store, noted(holder, 2, entries=(note("j"), note("k")))).seq == 4
                assert store.select_branches(BranchFilter(handed=True, run_id=id)) == []
                decided = replace(noted(holder, 4, closed=(f"p {id}",)), hands_over=True)
                after = write(store, decided)
                assert (after.seq, after.handed, branch_of(store, id)) == (5, 5, after)
                assert write(store, noted(holder, 5)).handed == 5
                assert [each.id for each in store.select_branches(BranchFilter(handed=True, run_id=id))] == [id]
            assert len(store.select_branches(BranchFilter(handed=True))) == 3
            assert everything(self.reopened().for_tenant(store.tenant)) == everything(store)

    def test_a_line_of_the_trail_is_written_for_a_holder_without_an_entry(self) -> None:
        """Of somebody who may not decide: the log and what waits are as before, and so are the numbers of the branch."""
        for number, write in enumerate(WRITERS):
            store = self.store.for_tenant(f"writer {number}")
            two_requests_each(store, self.clock)
            for holder in HOLDERS:
                id, before = holder.branch_id, everything(store)
                branch = branch_of(store, id)
                after = write(store, noted(holder, entries=(), audit=(line(8.0, run=id, pending=f"p {id}"),)))
                assert after == branch_of(store, id) == replace(branch, changed_at=after.changed_at)
                _, pending, checkpoints, trail, lineages = everything(store)
                assert (pending, checkpoints) == (before[1], before[2])
                assert [each.entries for each in lineages] == [each.entries for each in before[4]]
                assert [each.pending_id for each in trail[len(before[3]) :]] == [f"p {id}"]
                # The next to write finds the log as it was.
                assert write(store, noted(holder)).seq == 2
            assert len(store.select_audit(AuditFilter())) == 3
            assert store.select_branches(BranchFilter(handed=True)) == []

    def test_a_note_is_refused_where_something_has_changed(self) -> None:
        """Also one without an entry, and nothing of it is written."""
        store = self.store
        two_requests_each(store, self.clock)
        audit, anew = (line(8.0),), {"closed": ("p b2",), "opened": (asked("p b2", 9.0),)}
        before = everything(store)
        for fields in ({}, {"entries": ()}, anew):
            for write in WRITERS:
                for seq, holder in ((0, HOLDERS[1]), (2, HOLDERS[1]), (1, claim("b2")), (1, claim("b2", owner=""))):
                    with refused(Behind):
                        write(store, noted(holder, seq, audit=audit, **fields))
                    assert everything(store) == before

    def test_a_batch_writes_requests_anew_and_decides_others(self) -> None:
        """Votes and decisions over several runs are one change; what is refused for one is not written for any."""
        store = self.store
        two_requests_each(store, self.clock)
        changes = [
            noted(HOLDERS[2], closed=("p b3",), opened=(asked("p b3", 30.0, tool_name="ship"),)),
            replace(noted(HOLDERS[1], closed=("p b2",), audit=(line(8.0, run="b2"),)), hands_over=True),
            noted(HOLDERS[0], entries=(), audit=(line(9.0, run="b1"),)),
        ]
        before = everything(store)
        with refused(Behind):
            store.append_all([*changes[:2], replace(changes[2], seq=5)])
        assert everything(store) == before
        assert [(each.id, each.seq, each.handed) for each in store.append_all(changes)] == [
            ("b3", 2, None),
            ("b2", 2, 2),
            ("b1", 1, None),
        ]
        assert ids(store) == ["p b1", "q b1", "q b2", "q b3", "p b3"]
        assert ids(store, tool="ship") == ["p b3"]
        assert [each.id for each in store.select_branches(BranchFilter(handed=True))] == ["b2"]

    def test_of_several_that_write_one_request_anew_one_is_first(self) -> None:
        """The others are told that they are behind, and the list has one request."""
        store = self.store
        two_requests_each(store, self.clock)

        def write(number: int) -> Branch:
            new = asked("p b2", 5.0, body=f'{{"by":{number}}}')
            return self.reopened().append(noted(HOLDERS[1], closed=("p b2",), opened=(new,)))

        found = race([partial(write, number) for number in range(RACERS)])
        (winner,) = [number for number, each in enumerate(found) if not isinstance(each, Exception)]
        assert {type(each) for each in found if isinstance(each, Exception)} == {Behind}
        (waits,) = store.select_pending(PendingFilter(pending_id="p b2"))
        assert waits.body == f'{{"by":{winner}}}'
        assert ids(store, run="b2") == ["p b2", "q b2"]
        assert branch_of(store, "b2").seq == 2

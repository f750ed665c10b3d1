"""Tests of a store: what is pending."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from phronomy.stores.rows import Append, PendingFilter, PendingRow
from phronomy.testing.store_contract.base import StoreTests, asked, begin, claim, note, row, walked

MINE = claim()


class PendingTests(StoreTests):
    """Tests that filters find pending approvals, in the order of their times and numbers."""

    def waiting(self, **wanted: Any) -> list[str]:
        """The ids of the pending approvals that match a filter. Their count must be the same."""
        given = PendingFilter(**wanted)
        found = self.store.select_pending(given)
        whole = self.store.select_pending(PendingFilter(**{**wanted, "after": None, "limit": None}))
        assert self.store.count_pending(given) == len(whole), f"a count that is not that of the list, of {wanted}"
        return [each.pending_id for each in found]

    def test_what_is_pending_is_listed_oldest_request_first_at_the_head_of_its_branch(self) -> None:
        """Also by run and thread; the head is the branch's, however far it has come."""
        store = self.store
        begin(store, "b1", row("c1"), thread="t", head="c1", take="me", opened=(asked("p1", 5.0), asked("p2", 5.0)))
        begin(store, "b2", row("f1"), run="b1", thread="t", head="f1", opened=(asked("p1", 4.0),))
        begin(store, "b3", row("d1"), opened=(asked("p9", 4.5),))

        def listed(**of: str) -> list[tuple[str, str, str]]:
            return [(found.branch_id, found.pending_id, found.checkpoint_id) for found in store.pending_rows(**of)]

        assert listed() == [("b2", "p1", "f1"), ("b3", "p9", ""), ("b1", "p1", "c1"), ("b1", "p2", "c1")]
        change = Append(branch_id="b1", seq=1, claim=MINE, entries=(row("c2", "c1"),), head="c2")
        store.append(replace(change, closed=("p1",), opened=(asked("p0", 5.0),)))
        one = [("b2", "p1", "f1"), ("b1", "p2", "c2"), ("b1", "p0", "c2")]
        assert listed(run_id="b1") == listed(thread_id="t") == one
        assert listed(run_id="b3", thread_id="t") == []
        store.append(Append(branch_id="b1", seq=2, claim=MINE, closed=("p0",), opened=(asked("p0", 1.0),)))
        assert listed(run_id="b1")[0] == ("b1", "p0", "c2")

    def test_a_row_comes_back_as_it_was_written_where_it_waits(self) -> None:
        """Its times to the last bit; run, thread and branch are the branch's, the number is the store's."""
        at = (1e9 / 3, 1700000000.1234567, 0.1 + 0.2, 5e-324, 2.0**53 + 1)
        opened = tuple(
            asked(f"p{n}", time, risk="hoch ☃", label="a\tb", agent="ü", expires_at=time + 0.3, body=f'"{n}\\u0000"')
            for n, time in enumerate(at)
        )
        begin(self.store, "b1", row("c1"), run="r1", thread="t", label="own", head="c1", opened=opened)
        found = {each.pending_id: each for each in self.store.select_pending(PendingFilter())}
        for wrote in opened:
            got = found[wrote.pending_id]
            fields = {name: getattr(wrote, name) for name in PendingRow.__slots__ if name != "n"}
            place = {"branch_id": "b1", "run_id": "r1", "thread_id": "t", "checkpoint_id": "c1"}
            assert got == PendingRow(**{**fields, **place}, n=got.n)
        assert self.waiting() == ["p3", "p2", "p0", "p1", "p4"]
        numbers = [found[f"p{n}"].n for n in range(len(at))]
        assert numbers == sorted(set(numbers)), "numbers grow in the order of writing"

    def many(self) -> list[PendingRow]:
        """Make forty different requests in five branches, many of the same time, and return them as they are listed."""
        store = self.store
        number = itertools.count()
        for branch in range(5):
            opened = []
            for place in range(8):
                n = next(number)
                facets: dict[str, object] = {
                    "tool_name": ("pay", "ship", "sh%p")[n % 3],
                    "risk": (None, "high", "low")[place % 3],
                    "agent": ("clerk", "Clerk")[n % 2],
                    "label": None if branch % 2 else f"l{branch}",
                }
                opened.append(asked(f"p{n}", float(n * 7 % 5), expires_at=None if n % 4 else float(n % 8), **facets))
            thread = None if branch == 4 else f"t{branch % 2}"
            begin(store, f"b{branch}", run=f"r{branch // 2}", thread=thread, opened=tuple(opened), take="me")
        return store.select_pending(PendingFilter())

    def test_the_order_is_that_of_times_and_then_of_numbers(self) -> None:
        """Either way round."""
        found = self.many()
        assert len(found) == 40
        assert found == sorted(found, key=lambda each: (each.requested_at, each.n))
        assert self.store.select_pending(PendingFilter(newest=True)) == found[::-1]

    def test_each_facet_and_any_of_them_together_narrow_the_list(self) -> None:
        """Those that have exactly this value."""
        found = self.many()
        values = {
            "run": ("r0", "r2", "none"),
            "thread": ("t0", "t1", "\ud800"),
            "label": ("l0", "l2", ""),
            "tool": ("pay", "sh%p", "sh_p"),
            "risk": ("high", "None"),
            "agent": ("clerk", "Clerk", "CLERK"),
        }
        singles: list[Mapping[str, str]] = [{name: value} for name in values for value in values[name]]
        pairs = [{**one, **two} for one, two in itertools.combinations(singles, 2) if one.keys() != two.keys()]
        whole = [
            dict(zip(values, picked, strict=True)) for picked in itertools.product(*(v[:2] for v in values.values()))
        ]
        hits = 0
        for facets in (*singles, *pairs[::3], *whole[::7]):
            wanted = [each.pending_id for each in found if facets.items() <= each.facets().items()]
            assert self.waiting(facets=facets) == wanted, facets
            hits += bool(wanted)
        assert hits > 20
        six = {"run": "r1", "thread": "t0", "label": "l2", "tool": "sh%p", "risk": "high", "agent": "Clerk"}
        assert sorted(self.waiting(facets=six)) == ["p17", "p23"]

    def test_ages_bound_the_list_on_both_sides(self) -> None:
        """Inclusive, alone, and with facets, either way round."""
        found = self.many()
        for facets in ({}, {"tool": "ship"}, {"agent": "clerk", "thread": "t1"}):
            for since, until in ((None, 2.0), (2.0, None), (1.0, 3.0), (2.0, 2.0), (3.5, 1.0), (1.5, 3.5)):
                wanted = [
                    each.pending_id
                    for each in found
                    if facets.items() <= each.facets().items()
                    and (since is None or each.requested_at >= since)
                    and (until is None or each.requested_at <= until)
                ]
                assert self.waiting(facets=facets, since=since, until=until) == wanted
                assert self.waiting(facets=facets, since=since, until=until, newest=True) == wanted[::-1]

    def test_expired_ones_are_those_whose_time_is_up(self) -> None:
        """At that time or before it; what never expires is none of them."""
        found = self.many()
        for at in (-1.0, 0.0, 3.9, 4.0, 1e15):
            for facets in ({}, {"agent": "clerk"}, {"thread": "t0", "tool": "pay"}):
                wanted = [
                    each.pending_id
                    for each in found
                    if each.expires_at is not None and each.expires_at <= at and facets.items() <= each.facets().items()
                ]
                assert self.waiting(expired_at=at, facets=facets) == wanted
                assert self.waiting(expired_at=at, facets=facets, newest=True, limit=2) == wanted[::-1][:2]
        assert len(self.waiting(expired_at=4.0)) == 10
        assert self.waiting(expired_at=1e15, until=1.0)

    def test_one_is_found_by_its_id_in_every_branch_that_it_waits_in(self) -> None:
        """Alone, and where all else holds as well."""
        self.many()
        store = self.store
        begin(store, "b9", run="r9", opened=(asked("p7", 0.5),))
        both = store.select_pending(PendingFilter(pending_id="p7"))
        assert sorted(each.branch_id for each in both) == ["b0", "b9"]
        assert [each.requested_at for each in both] == sorted(each.requested_at for each in both)
        for none in ("none", "\ud800", "p%"):
            assert self.waiting(pending_id=none) == []
        assert self.waiting(pending_id="p7", facets={"run": "r9"}) == ["p7"]
        assert self.waiting(pending_id="p7", facets={"run": "r2"}) == []
        assert self.waiting(pending_id="p7", since=0.5, until=0.5) == ["p7"]

    def test_a_list_goes_on_after_a_place_and_stops_at_a_limit(self) -> None:
        """Over requests of the same time, either way round, with every other filter; pages put together are the list."""
        self.many()
        ages: tuple[dict[str, Any], ...] = ({"since": 1.0, "until": 3.0}, {"expired_at": 4.0})
        facets: tuple[dict[str, Any], ...] = ({"facets": {"tool": "pay"}}, {"facets": {"thread": "t0"}})

        def ask(wanted: PendingFilter, last: PendingRow | None) -> list[PendingRow]:
            return self.store.select_pending(replace(wanted, after=(last.requested_at, last.n) if last else None))

        for given in ({}, *ages, *facets):
            for newest in (False, True):
                wanted = PendingFilter(**given, newest=newest)
                whole = self.store.select_pending(wanted)
                assert whole
                for size in (1, 3):
                    assert walked(partial(ask, replace(wanted, limit=size)), size) == whole, (given, newest, size)

    def test_after_and_limit_do_not_count(self) -> None:
        """A count is of all."""
        found = self.many()
        place = (found[20].requested_at, found[20].n)
        assert self.store.count_pending(PendingFilter(after=place, limit=3)) == 40
        assert len(self.waiting(after=place)) == 19
        assert len(self.waiting(after=place, newest=True)) == 20
        pays = PendingFilter(after=(2.5, 0), facets={"tool": "pay"}, limit=1)
        assert len(self.waiting(after=(2.5, 0), facets={"tool": "pay"})) < self.store.count_pending(pays)

    def test_a_page_is_not_disturbed_by_what_is_decided_or_asked_meanwhile(self) -> None:
        """Even if the place itself is gone."""
        found, store = self.many(), self.store
        for newest in (False, True):
            rows = store.select_pending(PendingFilter(newest=newest, limit=10))
            last = rows[-1]
            gone = (rows[0], rows[5], last)
            for each in gone:
                seq = store.lineage(branch_id=each.branch_id).branch.seq
                entry = (note("decided"),)
                change = Append(branch_id=each.branch_id, seq=seq, entries=entry, closed=(each.pending_id,))
                store.append(replace(change, holder=claim(each.branch_id)))
            begin(store, f"x{newest}", opened=(asked("new", 99.0 if newest else -99.0),))
            rest = store.select_pending(PendingFilter(newest=newest, after=(last.requested_at, last.n)))
            seen = {each.n for each in rows}
            assert rest == [each for each in (found[::-1] if newest else found) if each.n not in seen]
            found = store.select_pending(PendingFilter())

    def test_what_is_closed_is_in_no_list(self) -> None:
        """By no facet, with a claim or for another holder."""
        self.many()
        store = self.store
        store.append(Append(branch_id="b0", seq=0, holder=claim("b0"), closed=tuple(f"p{n}" for n in range(4))))
        closed = tuple(f"p{n}" for n in range(4, 8))
        store.append(Append(branch_id="b0", seq=0, claim=claim("b0"), closed=closed))
        for facets in ({}, {"tool": "pay"}, {"tool": "ship"}, {"agent": "clerk"}, {"risk": "high"}, {"label": "l0"}):
            assert not {f"p{n}" for n in range(8)} & set(self.waiting(facets=facets))
        assert len(self.waiting(facets={"run": "r0"})) == 8
        assert self.waiting(facets={"label": "l0"}) == []
        assert self.waiting(pending_id="p0") == []
        assert len(self.waiting()) == 32

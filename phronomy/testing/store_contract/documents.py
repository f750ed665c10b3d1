"""Tests of a store: small documents beside the runs, written by compare-and-set, listed in order, and gone when their time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from phronomy.errors import StoreError
from phronomy.stores.base import Store
from phronomy.stores.rows import Behind, Document
from phronomy.testing.store_contract.base import (
    StoreTests,
    asked,
    begin,
    claim,
    everything,
    race,
    refused,
    row,
    walked,
)

RACERS = 8
TEXTS = (
    "",
    " ",
    '{"a":5.0,"b":"Grüße\\u0000\t☃🂡"}\r\n',
    "e\u0301",
    "é",
    "\u2028\x7f\x1f",
    "a'; --",
    "\n\n",
    "x" * 100_000,
)
"""Texts that a careless store may give back otherwise."""
KEYS = (
    *("a", "A", "a:b", "a}", "%", "_", "*", " ", "a ", "10", "9", "é", "e\u0301", "☃🂡", "\uffff", "\n", "\t", "\x7f"),
    *("'", '"', "\\", "x" * 1500, "ß" * 750, "[", "[a", "(a", "-", "+", "slack:U123", "ann@example.org"),
)
"""Keys that a careless store may take for one another, or put in another order."""
BAD: tuple[dict[str, Any], ...] = (
    *({"kind": kind} for kind in ("", "A", "1", "a b", "a:b", "é", "a" * 65, "a\n", None, 7)),
    *({"key": key} for key in ("", "x" * 1501, "ß" * 751, "a\x00", "\ud800", None, 7)),
    *({"text": text} for text in ("x" * 100_001, "ß" * 50_001, "a\x00", "\ud800", None, b"{}")),
    *({"expires_at": time} for time in (float("nan"), float("inf"), "5", True)),
    {"version": None},
)


def document(key: str = "ann", text: str = "{}", *, kind: str = "person", **fields: Any) -> Document:
    """A document that has not been written yet."""
    return Document(kind=kind, key=key, text=text, **fields)


def documents(store: Store, *kinds: str) -> list[Document]:
    """All documents of these kinds."""
    return [found for kind in kinds or ("person",) for found in store.select_documents(kind)]


class DocumentTests(StoreTests):
    """Tests of small documents: each is written by compare-and-set on its version."""

    def test_a_document_is_written_found_changed_and_deleted(self) -> None:
        """With each write it has another version, and what was read is what was written."""
        store = self.store
        assert (store.get_document("person", "ann"), documents(store)) == (None, [])
        first = store.put_document(document(text="one", expires_at=1500.25))
        assert first == document(text="one", expires_at=1500.25, version=first.version) and first.version
        second = store.put_document(replace(first, text="two", expires_at=None))
        assert second == document(text="two", version=second.version) and second.version not in ("", first.version)
        for each in (store, self.reopened()):
            assert (each.get_document("person", "ann"), documents(each)) == (second, [second])
        store.delete_document("person", "ann")
        store.delete_document("person", "ann")
        for each in (store, self.reopened()):
            assert (each.get_document("person", "ann"), documents(each)) == (None, [])

    def test_whoever_has_not_seen_the_last_version_writes_nothing(self) -> None:
        """Neither a new document over an old one, nor over one that was changed, deleted or made anew meanwhile."""
        store = self.store
        with refused(Behind):
            store.put_document(document(version="unknown"))
        first = store.put_document(document(text="one"))
        second = store.put_document(replace(first, text="two"))
        for stale in (document(text="three"), replace(first, text="three"), replace(second, version="x")):
            with refused(Behind):
                store.put_document(stale)
            assert documents(store) == [second]
        with refused(Behind):
            store.delete_document("person", "ann", version=first.version)
        assert documents(store) == [second]
        store.delete_document("person", "ann", version=second.version)
        store.delete_document("person", "ann", version=second.version)
        with refused(Behind):
            store.put_document(replace(second, text="three"))
        assert documents(store) == []
        again = store.put_document(document(text="one"))
        assert again.version not in (first.version, second.version)
        for stale in (first, second):
            with refused(Behind):
                store.put_document(replace(stale, text="three"))
            with refused(Behind):
                store.delete_document("person", "ann", version=stale.version)
        assert documents(store) == [again]

    def test_a_document_is_gone_when_its_time_is_over(self) -> None:
        """From that very moment on, by the clock of the store. Then it is as if there had never been one."""
        store, at = self.store, self.clock.now + 10.5
        first = store.put_document(document(text="one", expires_at=at))
        stays = store.put_document(document("bob"))
        self.clock.now = at - 0.25
        assert (store.get_document("person", "ann"), documents(store)) == (first, [first, stays])
        self.clock.now = at
        for each in (store, self.reopened()):
            assert (each.get_document("person", "ann"), documents(each)) == (None, [stays])
        with refused(Behind):
            store.put_document(replace(first, text="late"))
        store.delete_document("person", "ann", version="any")
        second = store.put_document(document(text="two", expires_at=at + 1))
        assert documents(store) == [second, stays]
        later = store.put_document(replace(second, expires_at=at + 2))
        self.clock.now = at + 1
        assert documents(store) == [later, stays]
        self.clock.now = at + 2
        forever = store.put_document(document(text="three"))
        self.clock.now = 1e14
        assert documents(store) == [forever, stays]

    def test_what_was_over_before_it_was_written_is_never_found(self) -> None:
        """It may be written all the same: by the clock of another it may not have been over."""
        store = self.store
        for time in (self.clock.now, 0, -5.5):
            store.put_document(document(expires_at=time))
            assert (store.get_document("person", "ann"), documents(store)) == (None, [])

    def test_documents_whose_time_is_over_are_deleted_and_no_others(self) -> None:
        """By themselves, and with old runs. What was written anew under the same key stays."""
        store = self.store
        for number in range(1200):
            store.put_document(document(f"k{number:04}", kind="token", expires_at=1001.0 + number))
        store.put_document(document("later", kind="token", expires_at=1001.0))
        self.clock.now = 1600.0
        later = store.put_document(document("later", kind="token", expires_at=9000.0))
        stays = store.put_document(document())
        left = documents(store, "token")
        assert len(left) == 601
        self.pruned(store)
        assert documents(store, "token", "person") == [*left, stays]
        self.clock.now = 5000.0
        self.pruned(self.reopened())
        self.clock.now = 1000.0  # as if their time were not over yet: what is not found now is not there
        assert documents(store, "token", "person") == [later, stays]

    def pruned(self, store: Store) -> None:
        """Delete what is over: with old runs, and by itself."""
        assert store.prune() == 0
        store.expire_documents()

    def test_recovery_deletes_documents_whose_time_is_over(self, driver: str) -> None:
        """Whether or not the store deletes old runs."""
        for ttl in (None, 100.0):
            store = self.opened(ttl=ttl)
            store.put_document(document(expires_at=self.clock.now + 5))
            stays = store.put_document(document(f"{ttl}"))
            before, self.clock.now = self.clock.now, self.clock.now + 5
            assert self.drive(driver, self.clerk(store=store), "recover_all") == []
            self.clock.now = before
            assert stays in documents(store)
            assert store.get_document("person", "ann") is None

    def test_documents_are_listed_in_the_order_of_their_keys(self) -> None:
        """As UTF-8, byte by byte; in pages, each of which begins after a key, whether or not that is still there."""
        store = self.store
        put = [store.put_document(document(key, text=str(number))) for number, key in enumerate(KEYS)]
        store.put_document(document("other", kind="persons"))
        store.put_document(document("other", kind="perso"))
        ordered = sorted(put, key=lambda found: found.key.encode())
        assert documents(store) == ordered
        for size in (1, 7, 1000):

            def page(last: Document | None, size: int = size) -> list[Document]:
                return store.select_documents("person", after=last.key if last is not None else None, limit=size)

            assert walked(page, size) == ordered
        assert store.select_documents("person", limit=0) == store.select_documents("person", limit=-1) == []
        for before, after in pairwise(ordered):
            assert store.get_document("person", before.key) == before
            store.delete_document("person", before.key)
            assert store.select_documents("person", after=before.key, limit=1) == [after]

    def test_a_page_is_full_although_documents_before_it_are_over(self) -> None:
        """Those that are over count for nothing."""
        store = self.store
        for number in range(700):
            store.put_document(document(f"k{number:03}", expires_at=None if number % 350 == 349 else 1001.0))
        self.clock.now = 1001.0
        assert [found.key for found in store.select_documents("person", limit=2)] == ["k349", "k699"]
        assert [found.key for found in store.select_documents("person", after="k349", limit=2)] == ["k699"]

    def test_kinds_do_not_mix(self) -> None:
        """Nor does one whose name begins like another's."""
        store = self.store
        put = [
            store.put_document(document(key, kind=kind, text=f"{kind} {key}", expires_at=1001.0 + number))
            for number, kind in enumerate(("a", "ab", "a.b", "a-b", "a_b", "b"))
            for key in ("a", "ba", "b", ":a", "1:a")
        ]
        for found in put:
            assert store.get_document(found.kind, found.key) == found
        assert [len(documents(store, kind)) for kind in ("a", "ab", "a.b", "c")] == [5, 5, 5, 0]
        store.delete_document("a", "ba")
        self.clock.now = 1002.0
        store.expire_documents()
        self.clock.now = 1000.0
        left = {found.kind: documents(store, found.kind) for found in put}
        ordered = sorted(put, key=lambda found: found.key)
        assert left == {
            kind: [each for each in ordered if each.kind == kind and kind not in ("a", "ab")] for kind in left
        }

    def test_texts_and_times_come_back_unchanged(self) -> None:
        """Byte for byte, and to the last bit."""
        store = self.store
        put = [store.put_document(document(f"{number:02}", text)) for number, text in enumerate(TEXTS)]
        for number, time in enumerate((1e9 / 3, 1700000000.1234567, 253402300799.999, 1e15, 2000)):
            put.append(store.put_document(document(f"t{number}", expires_at=time)))
        assert documents(self.reopened()) == put

    def test_a_document_that_not_every_store_can_keep_is_refused(self) -> None:
        """By each store alike, and nothing is written. Under such a name there is nothing to be found or deleted."""
        store = self.store
        first = store.put_document(document())
        for fields in BAD:
            with refused(StoreError):
                store.put_document(replace(document(), **fields))
            with refused(StoreError):
                store.put_document(replace(first, **fields))
        not_one: Any = {"kind": "person"}
        with refused(StoreError):
            store.put_document(not_one)
        assert documents(store) == [first]
        for key in ("", "x" * 1501, "a\x00", "\ud800", "Ann", "an", "ann "):
            assert store.get_document("person", key) is None
            store.delete_document("person", key)
        for kind in ("", "Person", "person:", "person\x00", "\ud800"):
            assert store.get_document(kind, "ann") is None
            store.delete_document(kind, "ann")
        assert documents(store) == [first]

    def test_documents_and_runs_leave_each_other_alone(self) -> None:
        """Deleting runs leaves documents, and the other way round."""
        store = self.store
        ann = store.put_document(document())
        begin(store, "b1", row("c1"), take="me", opened=(asked("p1"),))
        before = everything(store)
        store.put_document(document("b1"))
        store.delete_document("person", "b1")
        assert everything(store) == before
        store.release(claim(), status="completed")
        assert store.clear() == 1
        assert (everything(store), documents(store)) == (([], [], [], [], []), [ann])

    def test_each_tenant_has_its_own_documents_under_equal_keys(self) -> None:
        """What one writes, deletes or lets expire, another does not see; a version of one is none of another."""
        stores = [self.store, *map(self.store.for_tenant, ("a", "b", "a:b", "person"))]
        put = [each.put_document(document(text=f"{number}")) for number, each in enumerate(stores)]
        for each, found in zip(stores, put, strict=True):
            assert (each.get_document("person", "ann"), documents(each)) == (found, [found])
        for number, each in enumerate(stores):
            with refused(Behind):
                each.put_document(replace(put[number - 1], text="theirs"))
            with refused(Behind):
                each.delete_document("person", "ann", version=put[number - 1].version)
        put[1] = stores[1].put_document(replace(put[1], expires_at=1005.0))
        put[2] = stores[2].put_document(replace(put[2], expires_at=1005.0))
        stores[3].delete_document("person", "ann")
        self.clock.now = 1005.0
        stores[1].expire_documents()
        assert [documents(each) for each in stores] == [[put[0]], [], [], [], [put[4]]]
        self.clock.now = 1000.0
        assert [documents(each) for each in stores] == [[put[0]], [], [put[2]], [], [put[4]]]

    def test_documents_in_an_event_loop(self) -> None:
        """The async twins do the same."""
        store = self.store

        async def work() -> list[object]:
            first = await store.aput_document(document(text="one"))
            with refused(Behind):
                await store.aput_document(document(text="two"))
            found = [await store.aget_document("person", "ann"), await store.aselect_documents("person")]
            after = await store.aselect_documents("person", after="ann", limit=5)
            with refused(Behind):
                await store.adelete_document("person", "ann", version="other")
            await store.adelete_document("person", "ann", version=first.version)
            return [first, *found, after, await store.aget_document("person", "ann")]

        first, *found = self.run(work())
        assert found == [first, [first], [], None]


class DocumentRaceTests(StoreTests):
    """Tests of documents with several threads: with one store object, and with an object for each if the store is durable."""

    def raced_writes(self, work: Callable[[int, Store], object]) -> list[object]:
        """Run the work in eight threads at once, each with its store. Return what each has returned or raised."""
        self.clock.yields = True
        stores = [self.store if number % 2 else self.reopened() for number in range(RACERS)]
        return race([partial(work, number, store) for number, store in enumerate(stores)])

    def test_of_those_that_write_a_document_at_once_one_does(self) -> None:
        """A new one, one that is there, one that is over, and one that others delete."""
        store = self.store
        seen = ""
        for turn in range(5):
            self.clock.now = 1000.0 + 10 * turn

            def write(number: int, store: Store, seen: str = seen, turn: int = turn) -> Document:
                expires = 1010.0 if turn == 0 else None
                return store.put_document(document(text=f"{number}", version=seen, expires_at=expires))

            won = winner(self.raced_writes(write))
            assert documents(store) == [won]
            seen = won.version if turn else ""  # after the first turn it is over

    def test_of_those_that_change_or_delete_a_document_at_once_one_does(self) -> None:
        """Whoever deletes a version that was changed is told."""
        store = self.store
        first = store.put_document(document(text="first"))

        def work(number: int, store: Store) -> Document | None:
            if number % 2:
                return store.put_document(replace(first, text=f"{number}"))
            store.delete_document("person", "ann", version=first.version)
            return None

        found = self.raced_writes(work)
        left = documents(store)
        if left:
            assert winner(found) == left[0]
            assert found.count(None) == 0
        else:
            assert found.count(None) >= 1
            assert {type(each) for each in found if each is not None} <= {Behind}

    def test_nothing_of_what_many_add_to_one_document_is_lost(self) -> None:
        """Each reads, adds and writes, until nobody came between."""

        def work(number: int, store: Store) -> None:
            for turn in range(3):
                while True:
                    found = store.get_document("person", "ann") or document(text="")
                    try:
                        store.put_document(replace(found, text=f"{found.text} {number}{turn}"))
                        break
                    except Behind:
                        continue

        assert self.raced_writes(work) == [None] * RACERS
        (found,) = documents(self.store)
        assert sorted(found.text.split()) == sorted(f"{number}{turn}" for number in range(RACERS) for turn in range(3))

    def test_documents_that_are_written_and_expired_at_once_do_not_hinder_each_other(self) -> None:
        """What was written anew in time stays."""
        store = self.store
        for number in range(RACERS):
            store.put_document(document(f"k{number}", expires_at=1001.0))
        self.clock.now = 1001.0

        def work(number: int, store: Store) -> Document | None:
            store.expire_documents()
            return store.put_document(document(f"k{number}", expires_at=2000.0))

        assert documents(store) == []
        found = self.raced_writes(work)
        assert documents(store) == found


def winner(found: Iterable[object]) -> Document:
    """The one document that was written; everybody else was behind."""
    (won,) = [each for each in found if isinstance(each, Document)]
    assert {type(each) for each in found if each is not won} == {Behind}, found
    return won

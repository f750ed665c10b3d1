"""Deputies: who may stand for whom, until when, and what ends it."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from drivers import Around, Driver
from places import Place
from test_store_contract import Earlier

from phronomy import InvalidDecision, InvalidField, MemoryStore, Principal, StoreError, UnknownPerson, UnreadableRow
from phronomy.people import Deputy, Person, StoreDirectory
from phronomy.records.people import DEPUTY, deputy_key, deputy_prefix
from phronomy.stores import Behind, Document, Store
from phronomy.stores.derived.people import person_of, represented_by
from phronomy.testing.store_contract.base import race

START = datetime(2030, 1, 1, tzinfo=UTC)
SOON = START + timedelta(days=7)
RITA, OTTO, ANN = (Person(id=id, roles=(id,)) for id in ("rita", "otto", "ann"))


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = START.timestamp()

    def __call__(self) -> float:
        return self.now

    def move(self, to: datetime) -> None:
        self.now = to.timestamp()


class Desk:
    """A directory on a store of each kind, with rita, otto and ann, and a clock that is moved by hand."""

    def __init__(self, place: Place, driver: Driver) -> None:
        self.place, self.driver, self.clock = place, driver, Clock()
        self.store = place.open(clock=self.clock)
        for person in (RITA, OTTO, ANN):
            self.call("add", person)

    def call(self, method: str, *args: Any, tenant: str = "", **options: Any) -> Any:
        directory = StoreDirectory(self.place.open(clock=self.clock, tenant=tenant))
        return self.driver.call(directory, method, *args, **options)  # type: ignore[arg-type]

    def rows(self) -> list[Document]:
        return self.store.select_documents(DEPUTY)

    def stands_for(self, id: str, *, tenant: str = "") -> list[str]:
        return principals_of(self.place.open(clock=self.clock, tenant=tenant), id)


def principals_of(store: Store, id: str) -> list[str]:
    return [each.principal for each in represented_by(store, id)]


def staffed(*people: Person) -> MemoryStore:
    """A store in memory with these people, and a clock that stands still."""
    store = MemoryStore(clock=Clock())
    for person in people:
        StoreDirectory(store).add(person)
    return store


@pytest.fixture
def desk(place: Place, driver: Driver) -> Desk:
    return Desk(place, driver)


# Naming and dismissing


def test_a_deputy_stands_for_the_principal_until_they_are_dismissed(desk: Desk) -> None:
    assert (desk.call("deputies"), desk.stands_for("otto")) == ((), [])
    by = Principal(id="boss", roles=("lead",), claims={"token": "s3cret"})
    named = desk.call("name_deputy", "rita", "otto", reason="on leave", by=by)
    assert named == Deputy(principal="rita", deputy="otto", reason="on leave", at=START, by=by)
    assert named.by.claims == {} and "s3cret" not in "\n".join(desk.place.lines())
    assert desk.call("deputies") == desk.call("deputies", "rita") == (named,)
    assert represented_by(desk.store, "otto") == (named,)
    assert [desk.stands_for(id) for id in ("rita", "ann", "", "nobody", "\x00", "\ud800")] == [[]] * 6
    assert desk.call("dismiss_deputy", "otto", "rita") is False
    assert [desk.call("dismiss_deputy", "rita", "otto") for _ in range(2)] == [True, False]
    assert (desk.call("deputies"), desk.stands_for("otto"), desk.rows()) == ((), [], [])


def test_a_deputy_counts_until_the_time_by_the_clock_of_the_store(desk: Desk) -> None:
    desk.call("name_deputy", "rita", "otto", until=SOON)
    desk.clock.move(SOON - timedelta(milliseconds=1))
    assert (desk.stands_for("otto"), len(desk.call("deputies"))) == (["rita"], 1)
    desk.clock.move(SOON)
    assert (desk.stands_for("otto"), desk.call("deputies")) == ([], ())
    assert desk.call("dismiss_deputy", "rita", "otto") is False
    again = desk.call("name_deputy", "rita", "otto", until=SOON + timedelta(days=1))
    assert (again.at, desk.stands_for("otto")) == (SOON, ["rita"])
    desk.clock.move(SOON + timedelta(days=1))
    desk.store.expire_documents()
    desk.clock.move(START)
    assert desk.rows() == []


def test_to_name_a_deputy_again_replaces_what_was_said(desk: Desk) -> None:
    desk.call("name_deputy", "rita", "otto", until=SOON, reason="on leave", by="boss")
    desk.clock.move(START + timedelta(hours=1))
    later = desk.call("name_deputy", "rita", "otto")
    assert desk.call("deputies") == (later,)
    assert (later.until, later.reason, later.by, later.at) == (None, None, None, START + timedelta(hours=1))
    desk.clock.move(SOON)
    assert desk.stands_for("otto") == ["rita"]
    desk.call("name_deputy", "rita", "otto", until=SOON + timedelta(days=1))
    desk.clock.move(SOON + timedelta(days=1))
    assert (desk.stands_for("otto"), len(desk.rows())) == ([], 0)


def test_a_time_may_be_said_in_any_zone(desk: Desk) -> None:
    zone = datetime.fromisoformat("2030-01-08T02:00:00+02:00")
    assert desk.call("name_deputy", "rita", "otto", until=zone).until == SOON
    (row,) = desk.rows()
    assert row.expires_at == SOON.timestamp()


@pytest.mark.parametrize(
    ("sides", "given", "kind", "why"),
    [
        (("rita", "rita"), {}, InvalidField, "nobody is their own deputy"),
        (("rita", ""), {}, InvalidField, "deputy: "),
        (("x" * 1501, "otto"), {}, InvalidField, "principal: "),
        (("a\x00", "otto"), {}, InvalidField, "principal: "),
        (("rita", "otto"), {"until": SOON.replace(tzinfo=None)}, InvalidField, "until: "),
        (("rita", "otto"), {"until": START}, InvalidField, "until: this time is over"),
        (("rita", "otto"), {"until": START - timedelta(days=1)}, InvalidField, "until: this time is over"),
        (("rita", "otto"), {"until": SOON.timestamp()}, InvalidField, "until: "),
        (("rita", "otto"), {"reason": 7}, InvalidField, "reason: "),
        (("rita", "otto"), {"by": ""}, InvalidDecision, "by is a Principal"),
        (("nobody", "otto"), {}, UnknownPerson, "^there is no person nobody: add them first$"),
        (("rita", "nobody"), {}, UnknownPerson, "^there is no person nobody: add them first$"),
    ],
)
def test_a_deputy_that_cannot_be_is_refused_and_nothing_changes(
    desk: Desk, sides: tuple[str, str], given: dict[str, Any], kind: type[Exception], why: str
) -> None:
    desk.call("name_deputy", "rita", "otto", until=SOON)
    before = desk.rows()
    with pytest.raises(kind, match=why) as caught:
        desk.call("name_deputy", *sides, **given)
    assert type(caught.value) is kind and desk.rows() == before
    if isinstance(caught.value, UnknownPerson):
        assert caught.value.id == pickle.loads(pickle.dumps(caught.value)).id == "nobody"


# Whom somebody stands for


def test_one_deputy_stands_for_many_and_many_deputies_for_one(place: Place, driver: Driver) -> None:
    """More than a page of them, and the rows of others are between."""
    store = place.open(clock=Clock())
    directory = StoreDirectory(store)
    people = [f"p{number:02}" for number in range(41)]
    for id in ("otto", "ann", *people):
        directory.add(Person(id=id))
    for id in people:
        driver.call(directory, "name_deputy", id, "otto")  # type: ignore[arg-type]
    directory.name_deputy("p01", "ann")
    directory.name_deputy("otto", "p01")
    assert (principals_of(store, "otto"), principals_of(store, "ann")) == (people, ["p01"])
    assert principals_of(store, "p01") == ["otto"]
    assert [each.deputy for each in driver.call(directory, "deputies", "p01")] == ["ann", "otto"]  # type: ignore[arg-type]
    found = driver.call(directory, "deputies")  # type: ignore[arg-type]
    assert [(each.principal, each.deputy) for each in found][:3] == [("otto", "p01"), ("p00", "otto"), ("p01", "ann")]


@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 40])
def test_the_rows_of_others_are_not_read(count: int) -> None:
    """One that is damaged, and of somebody else, hinders nobody, wherever a page ends."""
    store = staffed(*(Person(id=id) for id in ("otto", *(f"p{number:02}" for number in range(count)))))
    for number in range(count):
        StoreDirectory(store).name_deputy(f"p{number:02}", "otto")
    for prefix in ("0" * 64, "f" * 64, deputy_prefix("otto")[:-1] + "0", deputy_prefix("otto")[:63]):
        store.put_document(Document(kind=DEPUTY, key=prefix + "/x", text="{"))
    assert principals_of(store, "otto") == [f"p{number:02}" for number in range(count)]


def test_a_deputy_is_not_passed_on(desk: Desk) -> None:
    desk.call("name_deputy", "rita", "otto")
    desk.call("name_deputy", "otto", "ann")
    assert (desk.stands_for("ann"), desk.stands_for("otto"), desk.stands_for("rita")) == (["otto"], ["rita"], [])


def test_deputies_of_tenants_are_apart(desk: Desk) -> None:
    for person in (RITA, OTTO):
        desk.call("add", person, tenant="globex")
    desk.call("name_deputy", "rita", "otto")
    assert (desk.stands_for("otto"), desk.stands_for("otto", tenant="globex")) == (["rita"], [])
    assert (desk.call("deputies", tenant="globex"), desk.call("dismiss_deputy", "rita", "otto", tenant="globex")) == (
        (),
        False,
    )
    with pytest.raises(UnknownPerson, match="no person ann"):
        desk.call("name_deputy", "rita", "ann", tenant="globex")
    assert len(desk.call("deputies")) == 1


# People who come and go


@pytest.mark.parametrize("gone", ["rita", "otto"])
def test_a_person_who_is_removed_has_no_deputy_and_is_none(desk: Desk, gone: str) -> None:
    """Not even when somebody else gets the id."""
    desk.call("name_deputy", "rita", "otto")
    desk.call("name_deputy", "rita", "ann")
    desk.call("name_deputy", "ann", "otto")
    left = {"rita": ["ann"], "otto": []}[gone]
    assert desk.call("remove", gone)
    assert desk.stands_for("otto") == left
    assert desk.stands_for("ann") == {"rita": [], "otto": ["rita"]}[gone]
    desk.call("add", Person(id=gone))
    assert desk.stands_for("otto") == left
    assert len(desk.rows()) == 1


@pytest.mark.parametrize("gone", ["rita", "otto"])
def test_a_row_that_outlives_a_person_counts_for_nothing(desk: Desk, gone: str) -> None:
    """As after a name that was written at the moment when the person was removed."""
    desk.call("name_deputy", "rita", "otto")
    (row,) = desk.rows()
    desk.call("remove", gone)
    desk.store.put_document(replace(row, version=""))
    assert desk.stands_for("otto") == []
    assert [each.principal for each in desk.call("deputies")] == ["rita"]
    assert desk.call("dismiss_deputy", "rita", "otto")


def test_a_person_who_is_replaced_keeps_their_deputies(desk: Desk) -> None:
    desk.call("name_deputy", "rita", "otto")
    desk.call("add", RITA.evolve(roles=()), replace=True)
    assert desk.stands_for("otto") == ["rita"]


def test_a_removal_that_broke_off_is_done_again_with_all_that_belongs_to_it() -> None:
    """Wherever it breaks off, no row of the removed person is left once it came to its end."""
    for at in range(1, 4):
        store = staffed(RITA, OTTO, ANN)
        for sides in (("rita", "otto"), ("ann", "rita"), ("ann", "otto")):
            StoreDirectory(store).name_deputy(*sides)

        class Failing(Around):
            left = at

            def delete_document(self, kind: str, key: str, *, version: str | None = None) -> None:
                self.left -= 1
                if self.left == 0:
                    raise StoreError("the store is away")
                self.inner.delete_document(kind, key, version=version)

        with pytest.raises(StoreError, match="the store is away"):
            StoreDirectory(Failing(store)).remove("rita")
        assert StoreDirectory(store).remove("rita")
        assert [(each.principal, each.deputy) for each in StoreDirectory(store).deputies()] == [("ann", "otto")]


# Rows, and stores


def test_a_store_knows_a_person_by_their_id(desk: Desk) -> None:
    assert (person_of(desk.store, "rita"), person_of(desk.store, "nobody"), person_of(desk.store, "")) == (
        RITA,
        None,
        None,
    )


def test_a_store_without_documents_knows_nobody() -> None:
    store = Earlier(MemoryStore())
    assert (person_of(store, "rita"), represented_by(store, "rita")) == (None, ())
    with pytest.raises(StoreError, match="keeps no small documents"):
        StoreDirectory(store).name_deputy("rita", "otto")


def test_a_store_that_fails_is_not_taken_for_one_without_documents() -> None:
    class Away(Around):
        def get_document(self, kind: str, key: str) -> Document | None:
            raise StoreError("the store is away")

    for ask in (person_of, represented_by):
        with pytest.raises(StoreError, match="the store is away"):
            ask(Away(staffed(RITA)), "rita")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version":2,"principal":"rita","deputy":"otto","at":"2030-01-01T00:00:00Z"}',
        '{"version":1,"principal":"ann","deputy":"otto","at":"2030-01-01T00:00:00Z"}',
        '{"version":1,"principal":"rita","deputy":"ann","at":"2030-01-01T00:00:00Z"}',
        '{"version":1,"principal":"otto","deputy":"otto","at":"2030-01-01T00:00:00Z"}',
        '{"version":1,"principal":"rita","deputy":"otto"}',
        '{"version":1,"principal":"rita","deputy":"otto","at":"2030-01-01T00:00:00Z","x":"s3cret"}',
    ],
)
def test_a_row_that_cannot_be_read_gives_nobody_a_right(text: str) -> None:
    """It is damaged, of others, or of a later release: the list says so. It can be dismissed, and it hinders no removal."""
    store = staffed(RITA, OTTO, ANN)
    directory = StoreDirectory(store)
    row = Document(kind=DEPUTY, key=deputy_key("otto", "rita"), text=text)
    store.put_document(row)
    for listed in (directory.deputies(), directory.deputies("rita")):
        (error,) = listed.unreadable
        assert listed == () and str(error).startswith(f"deputy {row.key} cannot be read: the row is damaged")
        assert (error.kind, error.id) == (DEPUTY, row.key)
        assert "s3cret" not in str(error) and error.__context__ is None
    assert represented_by(store, "otto") == ()
    assert (represented_by(store, "ann"), directory.deputies("otto")) == ((), ())
    assert directory.dismiss_deputy("rita", "otto") and directory.deputies() == ()
    store.put_document(row)
    assert directory.remove("otto") and directory.deputies() == ()


def test_a_damaged_person_stands_for_nobody_and_an_error_says_so() -> None:
    for id in ("rita", "otto"):
        store = staffed(RITA, OTTO)
        StoreDirectory(store).name_deputy("rita", "otto")
        found = store.get_document("person", id)
        assert found is not None
        store.put_document(replace(found, text="{"))
        if id == "rita":
            assert represented_by(store, "otto") == ()
        else:
            with pytest.raises(UnreadableRow, match=f"person {id} cannot be read"):
                represented_by(store, "otto")


def test_a_row_that_has_lost_its_time_still_ends() -> None:
    """A copy of a store may not have taken it over; the text has it too."""
    store = staffed(RITA, OTTO)
    StoreDirectory(store).name_deputy("rita", "otto", until=SOON)
    (row,) = store.select_documents(DEPUTY)
    store.put_document(replace(row, expires_at=None))
    assert principals_of(store, "otto") == ["rita"]
    store.clock = SOON.timestamp
    assert (principals_of(store, "otto"), len(store.select_documents(DEPUTY))) == ([], 1)


def test_a_deputy_that_an_earlier_release_has_written_counts() -> None:
    store = staffed(RITA, OTTO)
    row = (
        '{"version":1,"principal":"rita","deputy":"otto","until":"2030-01-08T00:00:00Z","reason":"on leave",'
        '"at":"2030-01-01T00:00:00Z","by":{"id":"boss","name":null,"kind":"human"}}'
    )
    key = (
        "4991c47202960c5755d6886af261b0d8f6ccc929551d867a6f557a9353d4f1c5/"
        "c5420b43786b20f6cd116002a483b128e9d24020852c5e1c53731e25f40217f0"
    )
    store.put_document(Document(kind="deputy", key=key, text=row, expires_at=SOON.timestamp()))
    (found,) = represented_by(store, "otto")
    assert found.model_dump_json() == row
    assert found == Deputy(principal="rita", deputy="otto", until=SOON, reason="on leave", at=START, by=found.by)


# At once


@pytest.mark.product
def test_those_who_name_one_deputy_at_once_leave_one_row(place: Place) -> None:
    stores = [place.open(clock=Clock()) for _ in range(4)]
    for person in (RITA, OTTO):
        StoreDirectory(stores[0]).add(person)
    naming = [
        partial(StoreDirectory(store).name_deputy, "rita", "otto", reason=f"{n}") for n, store in enumerate(stores)
    ]
    assert {type(each) for each in race(naming)} <= {Deputy, type(None)}
    (found,) = represented_by(stores[0], "otto")
    assert found.reason in ("0", "1", "2", "3")


def test_tasks_that_name_one_deputy_at_once_leave_one_row() -> None:
    directory = StoreDirectory(staffed(RITA, OTTO))

    async def together() -> list[Deputy]:
        naming = [directory.aname_deputy("rita", "otto", reason=f"{number}") for number in range(4)]
        return await asyncio.gather(*naming)

    named = asyncio.run(together())
    (left,) = directory.deputies()
    assert left in named


def test_a_store_that_contradicts_itself_is_not_asked_for_ever() -> None:
    store = staffed(RITA, OTTO)
    StoreDirectory(store).name_deputy("rita", "otto")

    class Stuck(Around):
        def put_document(self, document: Document) -> Document:
            raise Behind(document.key)

    with pytest.raises(StoreError, match="is the same as before"):
        StoreDirectory(Stuck(store)).name_deputy("rita", "otto")


def test_a_deputy_whom_somebody_names_at_this_moment_is_named_all_the_same() -> None:
    store = staffed(RITA, OTTO)

    class Late(Around):
        busy = True

        def put_document(self, document: Document) -> Document:
            if self.busy:
                self.busy = False
                StoreDirectory(self.inner).name_deputy("rita", "otto", reason="first")
            return self.inner.put_document(document)

    StoreDirectory(Late(store)).name_deputy("rita", "otto", reason="second")
    assert [each.reason for each in StoreDirectory(store).deputies()] == ["second"]

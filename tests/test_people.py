"""Who decides: principals with roles and claims, directories that know people by the ids of channels, and the directory in a store."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from drivers import Around, Driver, run
from places import Place
from tables import each

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    InvalidDecision,
    InvalidField,
    MemoryStore,
    PersonExists,
    PhronomyError,
    Principal,
    StoreError,
    UnknownPerson,
    to_wire,
    tool,
)
from phronomy.people import Directory, Person, StoreDirectory
from phronomy.records.audit import AuditRecord
from phronomy.records.decisions import Decision
from phronomy.records.people import ALIAS, PERSON
from phronomy.stores import Behind, Document, Store
from phronomy.testing import ScriptedModel, call
from phronomy.testing.store_contract.base import race

SECRET = "eyJhbGciOi"
RITA = Person(id="rita", name="Rita", roles=("lead", "refunds"), aliases=("slack:U1", "email:rita@example.org"))
OTTO = Person(id="otto", aliases=("slack:U2",))
BOT = Person(id="bot", kind="service", aliases=("api:7",))


class Desk:
    """A directory on a store of each kind."""

    def __init__(self, place: Place, driver: Driver) -> None:
        self.place, self.driver = place, driver
        self.store = place.open()

    def call(self, method: str, *args: Any, tenant: str = "", **options: Any) -> Any:
        return self.driver.call(StoreDirectory(self.place.open(tenant=tenant)), method, *args, **options)  # type: ignore[arg-type]

    def rows(self) -> list[tuple[str, str, str]]:
        kinds = (PERSON, ALIAS)
        return [(each.kind, each.key, each.text) for kind in kinds for each in self.store.select_documents(kind)]


@pytest.fixture
def desk(place: Place, driver: Driver) -> Desk:
    return Desk(place, driver)


# Principals


def test_claims_are_for_this_process_alone() -> None:
    """They are in no dump, text or repr, and what is read without them is equal."""
    ada = Principal(id="ada", roles=("lead",), claims={"token": SECRET, "groups": ["a"]})
    assert ada.claims == {"token": SECRET, "groups": ["a"]}
    shown = (repr(ada), str(ada), ada.model_dump_json(), str(ada.model_dump()), str(to_wire(ada)), f"{[ada]}")
    assert not [text for text in shown if SECRET in text or "claims" in text]
    again = Principal.model_validate_json(ada.model_dump_json())
    assert (again, again.claims, again.roles) == (ada, {}, ("lead",))
    assert {ada, again, Principal(id="ada", roles=("lead",), claims={"other": 1})} == {ada}
    assert ada not in (Principal(id="ada"), Principal(id="ada", name="Ada", roles=("lead",)), "ada", None)
    assert ada.without_claims().claims == {} and ada.claims and again.without_claims() is again
    assert copy.deepcopy(ada).claims == ada.claims
    kept = pickle.dumps(ada)
    assert SECRET.encode() not in kept and pickle.loads(kept) == ada
    ada.claims["token"] = "x"
    assert ada.claims["token"] == SECRET


@pytest.mark.parametrize(
    "wrong",
    [{"claims": [1]}, {"claims": "{}"}, {"claims": {1: 2}}, {"claims": {"a": {1}}}, {"roles": ("",)}, {"roles": "x"}],
)
def test_what_a_principal_holds_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidDecision, match=r"^Principal: (claims|roles)"):
        Principal(id="ada", **wrong)


@each(
    "given", [("lead", "refunds"), ["lead", "refunds"], {"lead", "refunds"}, dict.fromkeys(["lead", "refunds"]).keys()]
)
def test_roles_aliases_and_scopes_are_given_as_any_series_of_texts(given: Any) -> None:
    """Groups come as lists from databases, tokens and forms."""
    rita = Principal(id="rita", roles=given, scopes=given)
    person = Person(id="rita", roles=given, aliases=given)
    assert rita.roles == rita.scopes == person.roles == person.aliases == ("lead", "refunds")
    assert rita == person.principal == Principal.model_validate_json(rita.model_dump_json())


@each("wrong", ["lead", b"lead", 5, None, [5], [None], {"lead": 1}, [["lead"]]])
def test_what_is_no_series_of_texts_is_told_with_what_to_give(wrong: Any) -> None:
    given = r"give a list or a tuple of texts, such as \['finance'\]"
    for make, name in ((Principal, "roles"), (Person, "roles"), (Person, "aliases")):
        with pytest.raises((InvalidDecision, InvalidField), match=f"^{make.__name__}: {name}: {given}$"):
            make(**{"id": "rita", name: wrong})


@pytest.mark.parametrize("claims", ["{}", '"{}"', "null", '{"a":1}', f'"{SECRET}"'])
def test_claims_in_a_text_are_refused(claims: str) -> None:
    """Nobody writes them, so whoever reads some reads what was put there by hand."""
    with pytest.raises(ValueError, match="claims") as caught:
        Principal.model_validate_json(f'{{"id":"ada","name":null,"kind":"human","claims":{claims}}}')
    assert SECRET not in str(caught.value)


def test_roles_are_recorded_with_a_decision_and_claims_are_not(desk: Desk) -> None:
    """In the checkpoint, in the request and in the trail; with the agent and with the store alone."""

    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pay an order."""
        return "paid"

    script = [[call("pay", {"order": 1}), call("pay", {"order": 2})], "Done."]
    agent = Agent(name="desk", model=ScriptedModel.by_turn(script), tools=[pay], store=desk.store)
    asked = desk.driver.invoke(
        agent, "Pay", requester=Principal(id="max", roles=("customer",), claims={"token": SECRET})
    ).checkpoint
    assert (asked.requester, asked.requester.claims) == (Principal(id="max", roles=("customer",)), {})
    one, two = asked.pending
    ada = Principal(id="ada", name="Ada", roles=("lead",), claims={"token": SECRET})
    decided = desk.driver.call(desk.store, "decide", one.id, Approve(), by=ada, digest=one.digest)  # type: ignore[arg-type]
    assert (decided.decision.by, decided.decision.by.claims) == (ada, {})
    done = desk.driver.call(agent, "resume", asked.id, decisions={two.id: Approve()}, by=ada)
    found = [*done.checkpoint.decisions, *desk.store.audit()]
    assert {each.by for each in found} == {ada} and len(found) == 4
    assert all(each.by.claims == {} for each in found)
    loaded = desk.place.open().load(done.checkpoint.id)
    assert (loaded, Checkpoint.model_validate_json(loaded.model_dump_json())) == (done.checkpoint, loaded)
    assert loaded.decisions[0].by == ada and loaded.decisions[0].by.roles == ("lead",)
    everything = "\n".join(desk.place.lines()) + loaded.model_dump_json() + repr(loaded) + repr(decided)
    assert "lead" in everything and SECRET not in everything


def test_records_of_before_there_were_roles_are_written_as_they_were() -> None:
    old = '{"id":"ada","name":null,"kind":"human"}'
    assert Principal.model_validate_json(old).model_dump_json() == old
    for kind in (Decision, AuditRecord):
        assert kind.model_fields["by"].is_required() is False
    with_roles = old[:-1] + ',"roles":["lead"]}'
    assert Principal.model_validate_json(with_roles).model_dump_json() == with_roles


# The directory in a store


def test_a_person_is_known_by_each_of_their_aliases(desk: Desk) -> None:
    for person in (RITA, BOT, OTTO):
        desk.call("add", person)
    rita = Principal(id="rita", name="Rita", roles=("lead", "refunds"))
    assert [desk.call("resolve", alias) for alias in RITA.aliases] == [rita, rita]
    assert desk.call("resolve", "api:7") == Principal(id="bot", kind="service")
    assert desk.call("list") == (BOT, OTTO, RITA)
    assert (desk.call("list", limit=1), desk.call("list", after="bot", limit=1)) == ((BOT,), (OTTO,))
    assert (desk.call("get", "rita"), desk.call("get", "slack:U1")) == (RITA, None)


def test_whoever_is_not_known_is_nobody(desk: Desk) -> None:
    """Not by their own id either, nor by a part of an alias, nor in another spelling."""
    desk.call("add", RITA)
    for alias in ("rita", "", "slack:u1", "slack:U1 ", "slack:U", "U1", "\x00", "\ud800", "x" * 2000, None, 7):
        assert desk.call("resolve", alias) is None, alias
    directory: Directory = StoreDirectory(desk.store)
    assert directory.resolve("slack:U1") is not None


def test_an_alias_belongs_to_one_person(desk: Desk) -> None:
    """Whoever is added second is not added at all."""
    desk.call("add", RITA)
    before = desk.rows()
    for wrong in (
        Person(id="otto", aliases=("slack:U2", "slack:U1", "zoom:1")),
        Person(id="otto", aliases=("slack:U1",)),
    ):
        with pytest.raises(PersonExists, match=r"^alias slack:U1 belongs to person rita already$") as caught:
            desk.call("add", wrong)
        assert (caught.value.id, caught.value.alias) == ("rita", "slack:U1")
        assert desk.rows() == before
    with pytest.raises(PersonExists, match=r"^there is a person rita already$") as caught:
        desk.call("add", Person(id="rita"))
    assert (caught.value.id, caught.value.alias, desk.rows()) == ("rita", None, before)
    desk.call("add", OTTO)
    with_otto = desk.rows()
    with pytest.raises(PersonExists, match=r"^alias slack:U2 belongs to person otto"):
        desk.call("add", RITA.evolve(roles=("admin",), aliases=("slack:U2", "email:r")), replace=True)
    assert desk.rows() == with_otto
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.id, again.alias) == ("rita", None)


def test_a_person_is_replaced_as_a_whole(desk: Desk) -> None:
    """An alias that they do not have any more is free."""
    desk.call("add", RITA)
    after = Person(id="rita", roles=("clerk",), aliases=("slack:U1", "zoom:1"))
    for _ in range(2):
        desk.call("add", after, replace=True)
        assert desk.call("list") == (after,)
        assert desk.call("resolve", "email:rita@example.org") is None
        assert desk.call("resolve", "slack:U1") == desk.call("resolve", "zoom:1") == after.principal
    desk.call("add", Person(id="otto", aliases=("email:rita@example.org",)))
    desk.call("add", BOT, replace=True)
    assert [each.id for each in desk.call("list")] == ["bot", "otto", "rita"]


def test_an_alias_is_added_and_nothing_else_changes(desk: Desk) -> None:
    desk.call("add", RITA)
    desk.call("add", OTTO)
    with_both = RITA.evolve(aliases=(*RITA.aliases, "telegram:7"))
    for _ in range(2):
        assert desk.call("add_alias", "rita", "telegram:7") == with_both
        assert desk.call("resolve", "telegram:7") == desk.call("resolve", "slack:U1") == RITA.principal
    before = desk.rows()
    with pytest.raises(PersonExists, match=r"^alias telegram:7 belongs to person rita already$"):
        desk.call("add_alias", "otto", "telegram:7")
    with pytest.raises(UnknownPerson, match="add them first"):
        desk.call("add_alias", "nobody", "telegram:8")
    with pytest.raises(InvalidField, match=r"^Person: "):
        desk.call("add_alias", "rita", "")
    assert desk.rows() == before


def test_who_is_removed_is_known_no_more(desk: Desk) -> None:
    """Whoever gets one of the aliases later is somebody else."""
    desk.call("add", RITA)
    assert (desk.call("remove", "rita"), desk.call("remove", "rita"), desk.call("remove", "")) == (True, False, False)
    assert (desk.rows(), desk.call("list"), desk.call("resolve", "slack:U1")) == ([], (), None)
    desk.call("add", Person(id="otto", aliases=("slack:U1",)))
    assert desk.call("resolve", "slack:U1").id == "otto"


def test_people_of_tenants_are_apart(desk: Desk) -> None:
    desk.call("add", RITA)
    desk.call("add", Person(id="rita", aliases=("slack:U1", "slack:U9")), tenant="globex")
    assert (desk.call("resolve", "slack:U9"), desk.call("resolve", "slack:U9", tenant="globex").roles) == (None, ())
    assert desk.call("remove", "rita", tenant="globex")
    assert desk.call("resolve", "slack:U1").roles == ("lead", "refunds")
    globex = StoreDirectory(desk.store).for_tenant("globex")
    assert (globex.list(), globex.resolve("slack:U1")) == ((), None)


@pytest.mark.product
def test_of_those_who_are_given_one_alias_at_once_one_has_it(place: Place) -> None:
    """The others are told who, and nothing of them is left."""
    stores = [place.open() for _ in range(5)]
    for turn in range(3):
        aliases = tuple(f"slack:{turn}{number}" for number in range(3))

        def add(number: int, aliases: tuple[str, ...] = aliases, turn: int = turn) -> None:
            mine = aliases[number % 3 :] + aliases[: number % 3]
            StoreDirectory(stores[number]).add(Person(id=f"p{turn}{number}", aliases=mine))

        found = race([partial(add, number) for number in range(5)])
        assert found.count(None) == 1, found
        (winner,) = [f"p{turn}{number}" for number, each in enumerate(found) if each is None]
        directory = StoreDirectory(stores[0])
        assert {type(each) for each in found if each is not None} == {PersonExists}
        assert {directory.resolve(alias) for alias in aliases} == {Principal(id=winner)}
        assert [each.id for each in directory.list() if each.id.startswith(f"p{turn}")] == [winner]


def test_tasks_that_add_a_person_at_once_add_one(desk: Desk) -> None:
    async def together() -> list[Any]:
        adding = [StoreDirectory(desk.store).aadd(RITA.evolve(name=f"{number}")) for number in range(4)]
        return await asyncio.gather(*adding, return_exceptions=True)

    found = run(together())
    assert sorted(type(each).__name__ for each in found) == ["NoneType", "PersonExists", "PersonExists", "PersonExists"]
    (person,) = StoreDirectory(desk.store).list()
    assert found[int(person.name or "9")] is None


class Failing(Around):
    """A store whose n-th write fails, before it is made or after."""

    def __init__(self, inner: Store, at: int, after: bool) -> None:
        super().__init__(inner)
        self.at, self.after = at, after

    def put_document(self, document: Document) -> Document:
        return self.counted(lambda: self.inner.put_document(document))

    def delete_document(self, kind: str, key: str, *, version: str | None = None) -> None:
        self.counted(lambda: self.inner.delete_document(kind, key, version=version))

    def counted(self, act: Callable[[], Any]) -> Any:
        self.at -= 1
        if self.at == 0 and not self.after:
            raise StoreError("the store is away")
        found = act()
        if self.at == 0:
            raise StoreError("the store is away")
        return found


@pytest.mark.parametrize("after", [False, True])
def test_who_is_half_added_or_half_removed_is_nobody_else(after: bool) -> None:
    """Wherever it breaks off: no alias leads to the wrong person, and to do it once more brings it to its end."""
    acts: list[Callable[[StoreDirectory], Any]] = [
        lambda directory: directory.add(Person(id="ann", aliases=("slack:U1", "slack:U5")), replace=True),
        lambda directory: directory.add(RITA.evolve(roles=(), aliases=("slack:U1", "slack:U7")), replace=True),
        lambda directory: directory.remove("rita"),
        lambda directory: directory.add(Person(id="ann", aliases=("a:1", "slack:U2")), replace=True),
    ]
    for act in acts:
        for at in range(1, 9):
            store = MemoryStore()
            directory = StoreDirectory(store)
            for person in (RITA, OTTO):
                directory.add(person)
            with suppress(PhronomyError):
                act(StoreDirectory(Failing(store, at, after)))
            for alias in ("slack:U1", "slack:U2", "slack:U5", "slack:U7", "a:1", *RITA.aliases):
                found = directory.resolve(alias)
                listed = {each.id for each in directory.list() if alias in each.aliases}
                assert found is None or found.id in listed
            assert directory.resolve("slack:U2") == OTTO.principal
            again = store.for_tenant("")
            try:
                act(StoreDirectory(again))
            except PersonExists as error:
                assert error.alias in ("slack:U1", "slack:U2")
            assert directory.resolve("slack:U2") == OTTO.principal


def test_an_alias_that_somebody_is_about_to_take_is_not_taken_twice() -> None:
    """One that seemed to be left behind was looked at before its owner came back to it."""
    store = MemoryStore()
    store.put_document(Document(kind=ALIAS, key="slack:U1", text="rita"))

    class Late(Around):
        def put_document(self, document: Document) -> Document:
            if document.kind == ALIAS:
                StoreDirectory(store).add(RITA)
            return self.inner.put_document(document)

    with pytest.raises(PersonExists, match="belongs to person rita"):
        StoreDirectory(Late(store)).add(Person(id="otto", aliases=("slack:U1",)))
    directory = StoreDirectory(store)
    assert (directory.resolve("slack:U1"), directory.list()) == (RITA.principal, (RITA,))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version":2,"id":"rita"}',
        '{"version":1,"id":"otto"}',
        '{"version":1,"id":"rita","x":"s3cret"}',
    ],
)
def test_a_row_that_cannot_be_read_is_nobody(text: str) -> None:
    """It is damaged, of somebody else, or of a later release: an error says so, and nobody is taken for somebody."""
    store = MemoryStore()
    directory = StoreDirectory(store)
    directory.add(RITA)
    found = store.get_document(PERSON, "rita")
    assert found is not None
    store.put_document(replace(found, text=text))
    listed = directory.list()
    assert listed == () and [(each.kind, each.id) for each in listed.unreadable] == [(PERSON, "rita")]
    for ask in (lambda: directory.resolve("slack:U1"), lambda: directory.get("rita")):
        with pytest.raises(StoreError, match="person rita cannot be read") as caught:
            ask()
        assert "s3cret" not in str(caught.value) and caught.value.__context__ is None


def test_a_person_that_an_earlier_release_has_written_is_known() -> None:
    store = MemoryStore()
    row = (
        '{"version":1,"id":"rita","name":"Rita","kind":"human","roles":["lead","refunds"],'
        '"aliases":["slack:U1","email:rita@example.org"]}'
    )
    store.put_document(Document(kind="person", key="rita", text=row))
    store.put_document(Document(kind="person-alias", key="slack:U1", text="rita"))
    assert StoreDirectory(store).list() == (RITA,)
    assert StoreDirectory(store).resolve("slack:U1") == RITA.principal
    assert RITA.model_dump_json() == row


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": ""},
        {"id": "x" * 1501},
        {"id": "a\x00"},
        {"aliases": ("",)},
        {"aliases": ("a\x00",)},
        {"aliases": "ab"},
        {"roles": ("",)},
        {"kind": "x"},
        {"version": 2},
    ],
)
def test_what_a_person_is_made_of_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidField, match=r"^Person: "):
        Person(**{"id": "rita", **wrong})


def test_behind_never_leaves_the_directory() -> None:
    """Whoever writes at the same moment is told so in words."""
    store = MemoryStore()

    class Busy(Around):
        def put_document(self, document: Document) -> Document:
            raise Behind("person rita")

    with pytest.raises(PersonExists, match="by somebody else at this moment"):
        StoreDirectory(Busy(store)).add(RITA)
    StoreDirectory(store).add(RITA)
    with pytest.raises(PersonExists, match="by somebody else at this moment"):
        StoreDirectory(Busy(store)).add_alias("rita", "telegram:7")


class Stuck(Around):
    """A store that says that somebody was first, though nobody was."""

    def put_document(self, document: Document) -> Document:
        raise Behind(document.key)


def test_a_store_that_contradicts_itself_is_not_asked_for_ever() -> None:
    store = MemoryStore()
    store.put_document(Document(kind=ALIAS, key="slack:U1", text="gone"))

    class Half(Stuck):
        def put_document(self, document: Document) -> Document:
            return self.inner.put_document(document) if document.kind == PERSON else super().put_document(document)

    with pytest.raises(StoreError, match="is the same as before"):
        StoreDirectory(Half(store)).add(Person(id="otto", aliases=("slack:U1",)))

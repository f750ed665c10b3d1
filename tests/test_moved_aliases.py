"""An alias that moves in the directory gives no grant a new giver, and no person a second vote."""

from __future__ import annotations

import pytest
from drivers import DRIVERS, Driver
from tables import each

from phronomy import (
    Agent,
    AlreadyVoted,
    Approval,
    Grant,
    GrantRefused,
    MemoryStore,
    Principal,
    tool,
)
from phronomy.people import Person, StoreDirectory
from phronomy.testing import ScriptedModel, call

SLACK = "slack:U1"
EMAIL = "email:desk@x"


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    driver: Driver = request.param
    return driver


class Bank:
    """An agent that pays with an approval of finance, and a directory where rita, otto and ann are of finance, and mallory is not."""

    def __init__(self, driver: Driver, needed: int = 1) -> None:
        self.driver = driver
        self.store = MemoryStore()
        self.people = StoreDirectory(self.store)
        self.people.add(Person(id="mallory", aliases=(EMAIL,)))
        self.people.add(Person(id="rita", roles=("finance",), aliases=(SLACK,)))
        for id in ("otto", "ann"):
            self.people.add(Person(id=id, roles=("finance",)))
        self.paid: list[str] = []

        @tool(requires_approval=Approval(by="finance", needed=needed, standing=True))
        def pay(to: str) -> str:
            """Pay."""
            self.paid.append(to)
            return "paid"

        model = ScriptedModel.by_turn([call("pay", {"to": "ACME"}), "Done."])
        self.agent = Agent(name="bank", model=model, tools=[pay], store=self.store)

    def grants(self, by: str | Principal) -> Grant:
        return self.store.grant(Grant(agent="bank", tool="pay", scope="tenant", uses=9), by=by)

    def runs(self, of: str = "rob") -> str:
        return self.driver.invoke(self.agent, "Pay ACME.", requester=of).status

    def moves(self, alias: str, to: str | None) -> None:
        """The alias is taken from the person who has it, and is somebody else's from now on, or nobody's."""
        person = self.people.resolve(alias)
        assert person is not None
        self.people.add(Person(id=person.id, roles=person.roles), replace=True)
        if to is not None:
            self.people.add_alias(to, alias)


# Grants


def test_a_grant_is_of_the_person_who_had_the_alias(driver: Driver) -> None:
    bank = Bank(driver)
    (giver,) = bank.grants(EMAIL).givers
    assert (giver.principal.id, giver.principal.person) == (EMAIL, "mallory")
    assert bank.runs() == "suspended"
    bank.moves(EMAIL, "rita")
    assert (bank.runs(), bank.paid) == ("suspended", [])


def test_a_grant_of_a_removed_person_is_not_that_of_the_next_owner(driver: Driver) -> None:
    bank = Bank(driver)
    bank.grants(EMAIL)
    bank.people.remove("mallory")
    bank.people.add_alias("rita", EMAIL)
    assert (bank.runs(), bank.paid) == ("suspended", [])


@each("to", ["mallory", None])
def test_a_grant_counts_on_when_the_alias_leaves_its_giver(driver: Driver, to: str | None) -> None:
    bank = Bank(driver)
    bank.grants(SLACK)
    bank.moves(SLACK, to)
    assert (bank.runs(), bank.paid) == ("completed", ["ACME"])


@each(("first", "second"), [("rita", SLACK), (SLACK, "rita")])
def test_a_person_is_one_giver_under_any_id(driver: Driver, first: str, second: str) -> None:
    bank = Bank(driver, needed=2)
    grant = bank.grants(first)
    bank.store.sign_grant(grant.id, by=second)
    assert bank.runs() == "suspended"
    bank.moves(SLACK, None)
    assert (bank.runs(), bank.paid) == ("suspended", [])


def test_the_next_owner_of_an_alias_signs_under_another_id(driver: Driver) -> None:
    bank = Bank(driver, needed=2)
    grant = bank.grants(SLACK)
    bank.moves(SLACK, "otto")
    with pytest.raises(GrantRefused, match="has given grant"):
        bank.store.sign_grant(grant.id, by=SLACK)
    bank.store.sign_grant(grant.id, by="otto")
    assert (bank.runs(), bank.paid) == ("completed", ["ACME"])


def test_an_id_that_becomes_an_alias_is_not_the_giver_who_was_removed(driver: Driver) -> None:
    bank = Bank(driver)
    bank.grants("mallory")
    bank.people.remove("mallory")
    bank.people.add_alias("rita", "mallory")
    assert (bank.runs(), bank.paid) == ("suspended", [])


def test_a_grant_for_a_requester_is_for_the_person_who_had_the_alias(driver: Driver) -> None:
    bank = Bank(driver)
    terms = Grant(agent="bank", tool="pay", scope="principal", requester=EMAIL, uses=9)
    assert bank.store.grant(terms, by="rita").requester == "mallory"
    assert [bank.runs(of=id) for id in (EMAIL, "mallory")] == ["completed"] * 2
    bank.moves(EMAIL, "otto")
    assert [bank.runs(of=id) for id in (EMAIL, "otto", "mallory")] == ["suspended", "suspended", "completed"]


def test_a_grant_like_a_request_is_for_the_person_who_had_the_alias(driver: Driver) -> None:
    bank = Bank(driver)
    (item,) = driver.invoke(bank.agent, "Pay ACME.", requester=EMAIL).checkpoint.pending
    bank.moves(EMAIL, "otto")
    grant = bank.store.grant_like(item.id, digest=item.digest, by="rita", scope="principal", uses=9)
    assert grant.requester == "mallory"
    assert [bank.runs(of=id) for id in (EMAIL, "mallory")] == ["suspended", "completed"]


# Votes


def test_an_id_that_becomes_an_alias_is_not_the_voter_who_was_removed(driver: Driver) -> None:
    bank = Bank(driver, needed=2)
    at = driver.invoke(bank.agent, "Pay ACME.", requester="rob").checkpoint
    asked = driver.resume(bank.agent, at, approved=True, by="ann").checkpoint
    bank.people.remove("ann")
    bank.people.add_alias("rita", "ann")
    assert driver.resume(bank.agent, asked, approved=True, by="otto").status == "suspended"
    assert driver.resume(bank.agent, asked, approved=True, by="rita").status == "completed"
    assert bank.paid == ["ACME"]


def test_an_alias_that_was_taken_off_is_no_second_voice(driver: Driver) -> None:
    bank = Bank(driver, needed=2)
    at = driver.invoke(bank.agent, "Pay ACME.", requester="rob").checkpoint
    asked = driver.resume(bank.agent, at, approved=True, by=SLACK).checkpoint
    (vote,) = asked.pending[0].votes
    assert (vote.by.id, vote.alias, vote.names) == ("rita", SLACK, {"rita", SLACK})
    bank.moves(SLACK, None)
    with pytest.raises(AlreadyVoted):
        driver.resume(bank.agent, asked, approved=True, by=Principal(id=SLACK, roles=("finance",)))
    assert bank.paid == []
    assert driver.resume(bank.agent, asked, approved=True, by="otto").status == "completed"
    assert bank.paid == ["ACME"]


def test_two_people_who_had_one_alias_have_two_votes(driver: Driver) -> None:
    bank = Bank(driver, needed=2)
    at = driver.invoke(bank.agent, "Pay ACME.", requester="rob").checkpoint
    asked = driver.resume(bank.agent, at, approved=True, by=SLACK).checkpoint
    bank.moves(SLACK, "otto")
    assert driver.resume(bank.agent, asked, approved=True, by=SLACK).status == "completed"
    assert bank.paid == ["ACME"]


def test_a_bare_alias_and_its_later_owner_are_one_voice(driver: Driver) -> None:
    bank = Bank(driver, needed=2)
    bank.moves(SLACK, None)
    at = driver.invoke(bank.agent, "Pay ACME.", requester="rob").checkpoint
    asked = driver.resume(bank.agent, at, approved=True, by=Principal(id=SLACK, roles=("finance",))).checkpoint
    bank.people.add_alias("rita", SLACK)
    for by in (SLACK, "rita"):
        with pytest.raises(AlreadyVoted):
            driver.resume(bank.agent, asked, approved=True, by=by)
    assert bank.paid == []

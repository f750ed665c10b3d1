"""The story of a bank, in one policy: payments above 10,000 need two of finance, never the requester, within a day; after four hours
they are reminded, after twelve the head of finance is asked; the desk lead may let refunds below 50 through until Friday.

People approve through different channels, each in a process of its own: at the desk, which has the agent; on a page and by mail, which
have the store alone. The story is told by both drivers, on each store, and the audit trail proves it when the runs are deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from drivers import Driver, run
from places import Place

from phronomy import (
    Agent,
    AlreadyVoted,
    Announcements,
    Approval,
    Approve,
    AuditRecord,
    CheckpointAlreadyResumed,
    Escalate,
    Grant,
    NotAnApprover,
    PendingApproval,
    Reject,
    RequestExpired,
    tool,
)
from phronomy.events import RequestChanged
from phronomy.people import Person, StoreDirectory
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.tokens import Tokens
from phronomy.workers import Worker

pytestmark = pytest.mark.unmeasured

HOUR = 3600.0
NOW = 1_800_000_000.0
KEYS = {"2027": b"k" * 32}
FINANCE, HEAD, LEAD = "finance", "head of finance", "desk lead"
FRIDAY = datetime(2027, 1, 22, tzinfo=UTC)


class Board(Announcements):
    """What people are told of the requests, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_request(self, event: RequestChanged) -> None:
        self.told.append(event.what)


class Bank:
    """A bank whose processes share a store: what was paid, and the channels through which people decide."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver, self.place, self.now = driver, place, NOW
        self.paid: list[tuple[str, float]] = []
        self.has_manager = False
        self.board = Board()
        people = StoreDirectory(self.process())
        for name in ("ada", "bert", "otto"):
            people.add(Person(id=name, roles=(FINANCE,), aliases=(f"chat:{name.upper()}",)))
        people.add(Person(id="hanna", roles=(HEAD,)))
        people.add(Person(id="dan"))
        people.add(Person(id="lea", roles=(LEAD,)))

    def process(self) -> Store:
        """The store, as a process opens it that has nothing else."""
        return self.place.open(clock=lambda: self.now)

    def agent(self, amount: float = 0, tool_name: str = "pay") -> Agent[Any, str]:
        """The agent, as a process makes it anew; its model wants to pay, or to refund, this amount."""

        def pay(to: str, amount: float) -> str:
            """Pay an amount, in euros."""
            self.paid.append((to, amount))
            return "paid"

        def refund(to: str, amount: float) -> str:
            """Refund an amount, in euros."""
            self.paid.append((to, -amount))
            return "refunded"

        policy: dict[str, Approval] = {
            "pay": Approval(
                when=lambda args: args["amount"] > 10_000,
                by=FINANCE,
                needed=2,
                not_requester=True,
                remind=4 * HOUR,
                escalate=Escalate(after=12 * HOUR, by=HEAD),
                expires=24 * HOUR,
            ),
            "refund": Approval(by=LEAD, standing={"below 50": lambda args: args["amount"] < 50}),
        }
        model = ScriptedModel.by_turn([call(tool_name, {"to": "ACME", "amount": amount}), "Done."])
        clerk: Agent[Any, str] = Agent(
            name="clerk" if self.has_manager else "bank",
            model=model,
            tools=[tool(self.driver.function(each)) for each in (pay, refund)],
            approval_policy=policy,
            store=self.process(),
            announcements=[self.board],
        )
        if not self.has_manager:
            return clerk
        model = ScriptedModel.by_turn([call("clerk", {"input": "Pay ACME"}), "All done."])
        return Agent(name="manager", model=model, tools=[clerk.as_tool()], store=self.process())

    def refunds(self, amount: float) -> str:
        """Somebody asks for a refund: the status of the run."""
        return str(self.driver.invoke(self.agent(amount, "refund"), "Refund ACME", requester="otto").status)

    def asks(self, amount: float, requester: str | None = "otto") -> PendingApproval:
        """Somebody asks for a payment, and it waits."""
        result = self.driver.invoke(self.agent(amount), "Pay ACME", requester=requester, thread_id="acme")
        assert result.status == "suspended"
        [request] = result.checkpoint.pending
        return request

    def at_the_desk(self, request: PendingApproval, by: str, answer: Approve | Reject | None = None) -> str:
        """Somebody decides where the agent is: the status of the run."""
        result = self.driver.call(
            self.agent(), "decide", request.id, answer or Approve(), by=by, digest=request.digest, channel="desk"
        )
        return str(result.status)

    def on_the_page(self, request: PendingApproval, by: str, answer: Approve | Reject | None = None) -> str:
        """Somebody decides with the store alone: the status of the request."""
        return self._decide(self.process(), request.id, request.digest, by, "page", None, answer or Approve())

    def in_the_chat(self, request: PendingApproval, user: str) -> str:
        """Somebody approves whom the chat knows by an id of its own."""
        store = self.process()
        who = StoreDirectory(store).resolve(f"chat:{user}")
        assert who is not None
        return self._decide(store, request.id, request.digest, who.id, "chat", None, Approve())

    def mailed(self, request: PendingApproval, to: str) -> str:
        """The button of a mail to somebody, who may use it once."""
        tokens = Tokens(self.process(), keys=KEYS, current="2027")
        return tokens.issue("approve", pending_id=request.id, digest=request.digest, by=to, seconds=24 * HOUR)

    def clicked(self, button: str) -> str:
        """Somebody presses the button of a mail: the status of the request."""
        store = self.process()
        token = Tokens(store, keys=KEYS, current="2027").redeem(button, purpose="approve", use="approve")
        assert token.pending_id is not None and token.digest is not None and token.by is not None
        return self._decide(store, token.pending_id, token.digest, token.by, "mail", token.id, Approve())

    def _decide(
        self, store: Store, id: str, digest: str, by: str, channel: str, key: str | None, answer: Approve | Reject
    ) -> str:
        terms: dict[str, Any] = {"by": by, "digest": digest, "channel": channel, "key": key}
        request = run(store.adecide(id, answer, **terms)) if self.driver.is_async else store.decide(id, answer, **terms)
        return str(request.status)

    def worker_comes(self) -> list[str]:
        """A worker does what there is to do: how the runs stand then."""
        done = run(Worker(self.agent()).once())
        return [each.result.status for each in done if each.result is not None]

    def voted(self, request: PendingApproval) -> list[str]:
        """Who has voted on a request so far."""
        return [vote.by.id for vote in self.process().request(request.id).approval.votes]

    def trail(self, request: PendingApproval) -> list[AuditRecord]:
        """The audit trail of a request, once its run is deleted: nothing else is left."""
        store = self.process()
        run_id = store.request(request.id).run_id
        store.delete(run_id)
        return list(store.audit(run_id=run_id))


def proven(trail: Sequence[AuditRecord], requester: str, late: Collection[str] = ()) -> list[str]:
    """Who has approved what ran, by the trail alone: two different people of those who may, for just that, and not the requester."""
    [last] = [each for each in trail if each.ran_digest is not None]
    votes = [each for each in trail if each.vote and not each.refused and each.digest == last.ran_digest]
    assert (last.kind, last.vote, last.refused) == ("approve", False, False)
    approved = [*(each for each in votes if each.pending_id == last.pending_id), last]
    voices = [each.behalf_of or each.by for each in approved]
    names = [voice.id for voice in voices if voice is not None]
    assert len(names) == len(set(names)) >= 2
    assert requester not in names
    for voice in voices:
        assert voice is not None and voice.roles == ((HEAD,) if voice.id in late else (FINANCE,))
    # All under one version of the policy.
    assert len({each.policy for each in approved}) == 1 and last.policy is not None
    return names


@pytest.fixture
def bank(driver: Driver, place: Place) -> Bank:
    return Bank(driver, place)


def test_a_small_payment_asks_nobody(bank: Bank) -> None:
    # Given a payment of exactly 10,000, when it is asked for
    result = bank.driver.invoke(bank.agent(10_000), "Pay ACME", requester="otto")
    # Then it is made, and nobody has decided anything
    assert (result.status, bank.paid) == ("completed", [("ACME", 10_000.0)])
    assert list(bank.process().audit()) == []


def test_two_of_finance_approve_at_the_desk_and_by_mail(bank: Bank) -> None:
    # Given a payment that otto asks for, and a mail to bert
    request = bank.asks(25_000)
    button = bank.mailed(request, "bert")
    assert request.expires_at is not None
    assert request.expires_at - request.requested_at == timedelta(days=1)
    # When otto, who is of finance, approves what he asked for, and hanna and a stranger approve before they may
    for decide, who in ((bank.at_the_desk, "otto"), (bank.on_the_page, "otto"), (bank.at_the_desk, "hanna")):
        with pytest.raises(NotAnApprover):
            decide(request, who)
    with pytest.raises(NotAnApprover):
        bank.on_the_page(request, "eve")
    # Then none of them counts
    assert (bank.voted(request), bank.worker_comes(), bank.paid) == ([], [], [])

    # When ada approves at the desk, and once more in the chat
    assert bank.at_the_desk(request, "ada") == "suspended"
    with pytest.raises(AlreadyVoted):
        bank.in_the_chat(request, "ADA")
    # Then she counts once, the payment waits, and a worker has nothing to do
    assert (bank.voted(request), bank.worker_comes(), bank.paid) == (["ada"], [], [])

    # When bert presses the button, twice
    assert (bank.clicked(button), bank.clicked(button)) == ("decided", "decided")
    # Then a worker makes the payment, once
    assert bank.paid == []
    assert bank.worker_comes() == ["completed"]
    assert bank.paid == [("ACME", 25_000.0)]
    # And a third vote comes too late
    with pytest.raises(CheckpointAlreadyResumed):
        bank.on_the_page(request, "ada")

    # And the trail proves it, when the run is deleted
    trail = bank.trail(request)
    assert [(each.by and each.by.id, each.channel, each.vote, each.refused) for each in trail] == [
        ("otto", "desk", False, True),
        ("otto", "page", False, True),
        ("hanna", "desk", False, True),
        ("eve", "page", False, True),
        ("ada", "desk", True, False),
        ("bert", "mail", False, False),
    ]
    assert proven(trail, "otto") == ["ada", "bert"]


def test_after_twelve_hours_the_head_of_finance_may_approve_too(bank: Bank) -> None:
    # Given a payment that ada has approved by mail, with a button that she pressed twice
    request = bank.asks(40_000)
    button = bank.mailed(request, "ada")
    assert (bank.clicked(button), bank.clicked(button), bank.voted(request)) == ("pending", "pending", ["ada"])
    # When hanna approves a second before twelve hours are over
    bank.now += 12 * HOUR - 1
    with pytest.raises(NotAnApprover):
        bank.at_the_desk(request, "hanna")
    # Then she does not count; and when she approves after that, she does
    bank.now += 1
    assert bank.at_the_desk(request, "hanna") == "completed"
    assert bank.paid == [("ACME", 40_000.0)]
    trail = bank.trail(request)
    assert proven(trail, "otto", late={"hanna"}) == ["ada", "hanna"]
    assert trail[-1].at - trail[0].at == timedelta(hours=12)


def test_a_payment_that_one_has_approved_expires_after_a_day(bank: Bank) -> None:
    # Given a payment that bert has approved in the chat
    request = bank.asks(60_000)
    assert bank.in_the_chat(request, "BERT") == "pending"
    # When ada approves after a day
    bank.now += 24 * HOUR
    with pytest.raises(RequestExpired):
        bank.on_the_page(request, "ada")
    # Then it is too late, and a worker settles the call
    assert (bank.worker_comes(), bank.paid) == (["completed"], [])
    trail = bank.trail(request)
    assert [(each.kind, each.by and each.by.id, each.vote) for each in trail] == [
        ("approve", "bert", True),
        ("expire", None, False),
    ]
    assert [each for each in trail if each.ran_digest is not None and not each.vote] == []


def test_what_was_approved_before_an_edit_counts_for_nothing(bank: Bank) -> None:
    # Given a payment that ada has approved
    request = bank.asks(50_000)
    bank.on_the_page(request, "ada")
    # When bert edits it on the page, and a worker has checked the edit
    assert bank.on_the_page(request, "bert", Approve(args={"to": "ACME", "amount": 30_000})) == "decided"
    assert (bank.worker_comes(), bank.paid) == (["suspended"], [])
    # Then it waits under a new id, with his vote alone
    [edited] = [waiting.approval for waiting in bank.process().pending()]
    assert edited.id != request.id and edited.args == {"to": "ACME", "amount": 30_000.0}
    assert bank.voted(edited) == ["bert"]
    # And when ada approves it as it is now, exactly that is paid
    assert bank.at_the_desk(edited, "ada") == "completed"
    assert bank.paid == [("ACME", 30_000.0)]
    trail = bank.trail(edited)
    assert {each.digest for each in trail} == {request.digest, edited.digest}
    [ran] = {each.ran_digest for each in trail if each.by is not None and each.by.id == "ada" and not each.vote}
    assert ran == edited.digest


def test_a_deputy_stands_for_one_person_and_gives_no_second_vote(bank: Bank) -> None:
    # Given that dan stands for ada
    StoreDirectory(bank.process()).name_deputy("ada", "dan", reason="on leave", by="boss")
    request = bank.asks(25_000)
    # When dan approves on the page, and ada does at the desk
    assert bank.on_the_page(request, "dan") == "pending"
    for again in ("ada", "dan"):
        with pytest.raises(AlreadyVoted):
            bank.at_the_desk(request, again)
    # Then the two of them have one vote, which is that of ada, and bert decides
    assert (bank.voted(request), bank.paid) == (["dan"], [])
    assert bank.at_the_desk(request, "bert") == "completed"
    trail = bank.trail(request)
    assert [(each.by and each.by.id, each.behalf_of and each.behalf_of.id) for each in trail] == [
        ("dan", "ada"),
        ("bert", None),
    ]
    assert proven(trail, "otto") == ["ada", "bert"]


def test_a_deputy_of_the_requester_approves_nothing_also_not_for_others(bank: Bank) -> None:
    # Given that dan stands for ada, and for otto, who asks for a payment
    people = StoreDirectory(bank.process())
    for name in ("ada", "otto"):
        people.name_deputy(name, "dan", reason="on leave", by="boss")
    request = bank.asks(25_000)
    # When dan approves at the desk, then that does not count, and ada and bert decide
    with pytest.raises(NotAnApprover):
        bank.at_the_desk(request, "dan")
    assert (bank.voted(request), bank.paid) == ([], [])
    assert bank.at_the_desk(request, "ada") == "suspended"
    assert bank.at_the_desk(request, "bert") == "completed"


def test_one_rejection_stops_the_payment_also_that_of_the_requester(bank: Bank) -> None:
    # Given a payment that ada has approved
    request = bank.asks(25_000)
    bank.in_the_chat(request, "ADA")
    # When otto, who asked for it, has changed his mind
    assert bank.on_the_page(request, "otto", Reject(reason="paid already")) == "decided"
    # Then it is not made
    assert (bank.worker_comes(), bank.paid) == (["completed"], [])
    assert [(each.kind, each.vote, each.reason) for each in bank.trail(request)] == [
        ("approve", True, None),
        ("reject", False, "paid already"),
    ]


def test_a_payment_that_nobody_knows_who_asked_for_is_approved_by_nobody(bank: Bank) -> None:
    # Given a payment without a requester
    request = bank.asks(25_000, requester=None)
    # When two of finance approve, then neither counts
    for decide, who in ((bank.at_the_desk, "ada"), (bank.on_the_page, "bert")):
        with pytest.raises(NotAnApprover):
            decide(request, who)
    assert (bank.voted(request), bank.worker_comes(), bank.paid) == ([], [], [])


def test_a_payment_that_an_agent_makes_for_another_takes_two_of_finance_as_well(bank: Bank) -> None:
    # Given a manager whose clerk wants to pay
    bank.has_manager = True
    request = bank.asks(25_000)
    assert (request.agent, request.path != "") == ("clerk", True)
    # When two of finance approve: one on the page, one at the desk
    with pytest.raises(NotAnApprover):
        bank.at_the_desk(request, "otto")
    assert bank.on_the_page(request, "ada") == "pending"
    with pytest.raises(AlreadyVoted):
        bank.at_the_desk(request, "ada")
    assert (bank.voted(request), bank.paid) == (["ada"], [])
    # Then it is made, once
    assert bank.at_the_desk(request, "bert") == "completed"
    assert bank.paid == [("ACME", 25_000.0)]
    assert proven(bank.trail(request), "otto") == ["ada", "bert"]


def test_two_at_the_desk_approve_what_an_agent_does_for_another(bank: Bank) -> None:
    # Given a manager whose clerk wants to pay
    bank.has_manager = True
    request = bank.asks(25_000)
    # When two of finance approve at the desk, then it is made, and the record has both
    assert [bank.at_the_desk(request, who) for who in ("ada", "bert")] == ["suspended", "completed"]
    assert bank.paid == [("ACME", 25_000.0)]
    assert [vote.by.id for vote in bank.process().request(request.id).decision.votes] == ["ada", "bert"]


def test_the_whole_sentence_in_one_policy_and_the_record_proves_it(bank: Bank) -> None:
    # Given a payment that otto asks for, and a grant of lea for refunds below 50 until Friday
    request = bank.asks(25_000)
    terms = Grant(agent="bank", tool="refund", condition="below 50", scope="tenant", until=FRIDAY, reason="fair week")
    grant = bank.process().grant(terms, by="lea", channel="web")
    # When two refunds below 50 are asked for, and one of 50
    assert [bank.refunds(amount) for amount in (49.99, 20.0, 50.0)] == ["completed", "completed", "suspended"]
    # Then the two are made, and a human is asked about the third
    assert bank.paid == [("ACME", -49.99), ("ACME", -20.0)]
    [third] = [each.approval for each in bank.process().pending() if each.approval.tool_name == "refund"]
    assert third.args == {"to": "ACME", "amount": 50.0}

    # When ada approves the payment after one hour, and workers come by after four and after twelve
    bank.board.told.clear()
    bank.now += HOUR
    assert bank.on_the_page(request, "ada") == "pending"
    told = []
    for hours in (3.9, 4, 5, 11.9, 12, 13):
        bank.now = NOW + hours * HOUR
        assert bank.worker_comes() == []
        told.append((hours, [*bank.board.told]))
        bank.board.told.clear()
    # Then finance was reminded once, and the head was asked once
    assert told == [(3.9, ["voted"]), (4, ["reminded"]), (5, []), (11.9, []), (12, ["escalated"]), (13, [])]
    # And when hanna approves, the payment is made
    assert bank.on_the_page(request, "hanna") == "decided"
    assert bank.worker_comes() == ["completed"]
    assert bank.paid[2:] == [("ACME", 25_000.0)]
    assert bank.board.told == ["decided", "carried_out"]

    # When lea is no lead any more, and when it is Friday, then her grant lets nothing through
    people = StoreDirectory(bank.process())
    people.add(Person(id="lea"), replace=True)
    assert bank.refunds(10.0) == "suspended"
    people.add(Person(id="lea", roles=(LEAD,)), replace=True)
    bank.now = FRIDAY.timestamp() - 1
    assert bank.refunds(10.0) == "completed"
    [kept] = bank.process().grants()
    assert (kept.count, [each.principal.id for each in kept.givers]) == (3, ["lea"])
    bank.now += 1
    assert bank.refunds(10.0) == "suspended"
    assert bank.paid[3:] == [("ACME", -10.0)]

    # And the trail proves it: who approved the payment, and by whose grant each refund was made
    lines = [each for each in bank.process().audit() if each.grant is not None]
    assert [(each.kind, each.by and each.by.id, each.channel, each.grant) for each in lines] == [
        ("approve", "lea", "grant", grant.id)
    ] * 3
    assert all(each.by is not None and each.by.roles == (LEAD,) and each.ran_digest for each in lines)
    assert proven(bank.trail(request), "otto", late={"hanna"}) == ["ada", "hanna"]

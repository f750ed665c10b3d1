"""What a person may do about a request, before they try: it is what comes of it when they do."""

from __future__ import annotations

from typing import Any

import pytest
from approver_scenes import ANN, BOB, CAT, EVE, Desk
from drivers import Driver
from hypothesis import given
from hypothesis import strategies as st
from places import Place
from tables import each

from phronomy import Approval, Approve, Escalate, MemoryStore, Principal
from phronomy.errors import NotAnApprover
from phronomy.people import Person
from phronomy.records.decisions import PendingApproval, ToolIdentity
from phronomy.stores.derived.standing import Standing, offered_by, standing_of, tallies_of, who_may

ALL = ("approve", "edit", "reject", "respond")


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


def test_anybody_may_answer_what_asks_for_nobody(desk: Desk) -> None:
    item = desk.asked(True)
    found = standing_of(desk.store, item, EVE)
    assert (found.answers, found.why_not, found.uncertain) == (ALL, None, False)
    assert who_may(desk.store, item) == () and tallies_of(desk.store, item) == []


def test_only_the_answers_that_a_request_allows_are_offered(desk: Desk) -> None:
    item = desk.asked(Approval(answers=["approve", "reject"]))
    assert standing_of(desk.store, item, EVE).answers == ("approve", "reject")


def test_who_is_none_of_the_people_may_nothing_and_is_told_who_may(desk: Desk) -> None:
    item = desk.asked(Approval(by="lead", needed=2))
    assert standing_of(desk.store, item, BOB).answers == ALL
    found = standing_of(desk.store, item, EVE)
    assert (found.answers, found.why_not) == ((), "not_an_approver")
    assert "2 of lead" in (found.said or "")
    assert who_may(desk.store, item) == ("2 of lead",)
    assert [(each.counted, each.needed) for each in tallies_of(desk.store, item)] == [(0, 2)]


def test_after_their_vote_nothing_is_left_to_do(desk: Desk) -> None:
    item = desk.asked(Approval(by="lead", needed=2))
    assert desk.vote(item, BOB) == "counted"
    now = desk.request(item)
    assert now is not None
    assert standing_of(desk.store, now, BOB).why_not == "voted"
    assert standing_of(desk.store, now, CAT).answers == ALL
    assert [(each.counted, each.needed) for each in tallies_of(desk.store, now)] == [(1, 2)]


def test_who_asked_for_the_run_may_only_reject(desk: Desk) -> None:
    item = desk.asked(Approval(by="lead", not_requester=True), requester="ann")
    assert standing_of(desk.store, item, ANN).answers == ("reject",)


def test_an_expired_request_takes_nothing(desk: Desk) -> None:
    item = desk.asked(Approval(expires=10.0))
    desk.till.now += 10
    assert standing_of(desk.store, item, BOB).why_not == "expired"


def test_an_escalation_lets_more_people_in_when_it_is_due(desk: Desk) -> None:
    item = desk.asked(Approval(by="lead", escalate=Escalate(after=60, by="clerk")))
    assert standing_of(desk.store, item, EVE).answers == ()
    desk.till.now += 60
    assert standing_of(desk.store, item, EVE).answers == ALL


@each("gate", [True, Approval(by="lead"), Approval(answers=["approve"])])
def test_who_was_removed_from_the_directory_may_nothing(desk: Desk, gate: Any) -> None:
    item = desk.asked(gate)
    desk.directory.add(Person(id="bob", roles=("lead",)))
    known = BOB.evolve(listed=True)
    assert standing_of(desk.store, item, known).answers != ()
    desk.directory.remove("bob")
    assert standing_of(desk.store, item, known) == Standing(
        why_not="not_an_approver", said="You are not in the directory of people any more."
    )
    with pytest.raises(NotAnApprover):
        desk.store.decide(item.id, Approve(), by=known, digest=item.digest)


def test_roles_are_those_of_the_directory_where_it_knows_somebody(desk: Desk) -> None:
    item = desk.asked(Approval(by="lead"))
    desk.directory.add(Person(id="bob", roles=()))
    assert standing_of(desk.store, item, BOB).why_not == "not_an_approver"
    desk.directory.add(Person(id="eve", roles=("lead",)))
    assert standing_of(desk.store, item, EVE).answers == ALL


def test_where_only_the_agents_code_can_tell_it_says_so(desk: Desk) -> None:
    def accepts(principal: Principal, request: Any) -> bool:
        return principal.id == "eve"

    item = desk.asked(Approval(by=accepts))
    found = standing_of(desk.store, item, EVE)
    assert (found.answers, found.uncertain) == (ALL, True)


def pending(**fields: Any) -> PendingApproval:
    from datetime import UTC, datetime

    tool = ToolIdentity(name="pay", schema_hash="0" * 64, gate="always", source=fields.pop("source", "local"))
    given = {"id": "pend_1", "call_id": "c", "tool": tool, "args": {}, "digest": "d"}
    return PendingApproval(**{**given, "requested_at": datetime(2027, 1, 1, tzinfo=UTC), **fields})


@pytest.mark.parametrize(
    ("fields", "offered"),
    [
        ({}, ALL),
        ({"source": "external"}, ("reject", "respond")),
        ({"source": "external", "answers": ("approve", "respond")}, ("respond",)),
        ({"why": "question", "args": {"key": "k", "answer": {"type": "boolean"}}}, ("approve", "reject", "respond")),
        ({"why": "question", "args": {"key": "k", "answer": {"type": "string"}}}, ("reject", "respond")),
        ({"why": "breakpoint"}, (*ALL, "skip")),
        ({"why": "breakpoint", "source": "breakpoint", "point": "pre_model_call"}, ("approve", "reject", "skip")),
        ({"why": "breakpoint", "source": "breakpoint", "point": "post_node"}, ("approve", "reject")),
        ({"why": "outcome_unknown"}, ALL),
    ],
)
def test_what_is_offered_is_what_the_request_takes(fields: dict[str, Any], offered: tuple[str, ...]) -> None:
    assert offered_by(pending(**fields)) == offered


@given(
    answers=st.lists(st.sampled_from(ALL), unique=True),
    source=st.sampled_from(["local", "external", "mcp:bank"]),
    why=st.sampled_from(["approval", "failed", "outcome_unknown", "breakpoint"]),
)
def test_what_is_offered_is_never_refused_for_its_kind(answers: list[str], source: str, why: str) -> None:
    from phronomy import Approve, InvalidDecision, Reject, Respond, Skip
    from phronomy.approvals.answers import check_answer

    item = pending(answers=tuple(answers), source=source, why=why)
    given = {
        "approve": Approve(),
        "edit": Approve(args={"other": 1}),
        "reject": Reject(),
        "respond": Respond(content=1),
        "skip": Skip(),
    }
    taken = set()
    for name, answer in given.items():
        try:
            check_answer(item, answer)
        except InvalidDecision:
            continue
        taken.add(name)
    assert set(offered_by(item)) == taken
    assert standing_of(MemoryStore(), item, BOB).answers == offered_by(item)

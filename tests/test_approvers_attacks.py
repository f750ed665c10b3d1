"""People, and programs, who would have a call approved by fewer than it takes, or by others: each is refused, and nothing runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from approver_scenes import ANN, BOB, CAT, DAN, EVE, PAID, START, Desk
from drivers import Driver
from places import Place

from phronomy import Approval, Approve, Checkpoint, Escalate, Principal, Respond
from phronomy.errors import (
    AlreadyVoted,
    CheckpointAlreadyResumed,
    CheckpointError,
    InvalidDecision,
    NotAnApprover,
    UnknownPending,
)
from phronomy.people import Person, StoreDirectory
from phronomy.records.approvers import Vote
from phronomy.records.checkpoint import _digest as checkpoint_digest
from phronomy.records.decisions import PendingApproval
from phronomy.records.people import ALIAS
from phronomy.stores import Document

pytestmark = pytest.mark.worlds(2)


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


@pytest.fixture(params=[False, True], ids=["agent", "store alone"])
def alone(request: pytest.FixtureRequest) -> bool:
    """Whether votes are cast with the store alone."""
    found: bool = request.param
    return found


# Who it is


def test_who_asked_for_the_run_is_the_same_person_under_another_channel(desk: Desk, alone: bool) -> None:
    desk.directory.add(Person(id="ann", roles=("lead",), aliases=("slack:U1", "email:ann@example.org")))
    gate = Approval(by="lead", not_requester=True)
    item = desk.asked(gate, requester=desk.directory.resolve("email:ann@example.org"))
    desk.refused(item, desk.directory.resolve("slack:U1"), channel="slack")
    desk.refused(item, "ann", channel="page")
    assert desk.vote(item, BOB, alone=alone) == "approved"
    desk.work()
    assert desk.paid == [PAID]


def test_an_alias_of_a_person_is_that_person(desk: Desk) -> None:
    """Also where a channel gives the alias, and has not asked the directory."""
    desk.directory.add(Person(id="ann", aliases=("slack:U1",)))
    desk.directory.add(Person(id="bob", aliases=("slack:U2",)))
    item = desk.asked(Approval(not_requester=True))
    assert desk.vote(item, "slack:U1") == "refused"
    second = desk.asked(Approval(needed=2))
    assert [desk.vote(second, who) for who in ("bob", "slack:U2")] == ["counted", "repeated"]


def test_an_alias_that_was_left_behind_leads_to_nobody(desk: Desk) -> None:
    """As a process leaves it that ends between two writes: the row names a person who does not list it."""
    desk.directory.add(Person(id="bob", roles=("lead",), aliases=("slack:U2",)))
    desk.store.put_document(Document(kind=ALIAS, key="slack:U9", text="bob"))
    desk.store.put_document(Document(kind=ALIAS, key="slack:U8", text="nobody"))
    item = desk.asked()
    desk.refused(item, "slack:U9")
    desk.refused(item, "slack:U8")
    assert [desk.vote(item, "slack:U2", alone=alone) for alone in (True, False)] == ["counted", "repeated"]


def test_one_person_with_two_channels_is_one_of_two(desk: Desk, alone: bool) -> None:
    desk.directory.add(Person(id="bob", roles=("lead",), aliases=("slack:U2", "email:bob@example.org")))
    item = desk.asked()
    assert desk.vote(item, desk.directory.resolve("slack:U2"), alone=alone, channel="slack") == "counted"
    for other in (desk.directory.resolve("email:bob@example.org"), "bob", BOB, Principal(id="bob", kind="service")):
        assert desk.vote(item, other, alone=not alone, channel="mail") == "repeated"
    assert desk.voted(item) == ["bob"] and desk.paid == []


def test_who_asked_may_reject_and_nobody_approves_what_nobody_asked_for(desk: Desk, alone: bool) -> None:
    gate = Approval(not_requester=True)
    nobody = desk.asked(gate, requester=None)
    desk.refused(nobody, BOB)
    desk.refused(nobody, "ann")
    assert desk.vote(nobody, BOB, "reject", alone=alone) == "rejected"
    item = desk.asked(gate)
    desk.refused(item, ANN)
    assert desk.vote(item, ANN, "reject", alone=alone) == "rejected"
    desk.work()
    assert desk.paid == []


def test_a_role_that_was_taken_away_between_two_votes_does_not_count(desk: Desk, alone: bool) -> None:
    for id in ("bob", "cat", "dan"):
        desk.directory.add(Person(id=id, roles=("lead",)))
    item = desk.asked()
    assert desk.vote(item, BOB, alone=alone) == "counted"
    desk.directory.add(Person(id="bob", roles=("clerk",)), replace=True)
    assert desk.vote(item, CAT, alone=alone) == "counted"
    desk.refused(item, BOB)  # whatever roles a caller gives
    desk.work()
    assert desk.paid == []
    assert desk.vote(item, DAN, alone=alone) == "approved"
    desk.work()
    assert desk.paid == [PAID]


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_caller_cannot_give_somebody_roles_that_the_directory_does_not(desk: Desk, change: str) -> None:
    desk.directory.add(Person(id="bob", roles=("clerk",) if change == "replaced" else ("lead",)))
    item = desk.asked()
    if change == "replaced":
        desk.refused(item, BOB)
        return
    assert desk.vote(item, BOB) == "counted"
    desk.directory.remove("bob")
    assert desk.vote(item, CAT) == "counted", "the first vote is of somebody of whom nothing is known any more"
    assert desk.vote(item, DAN) == "approved"
    assert desk.paid == [PAID]


@pytest.mark.parametrize(
    "roles",
    [("leader",), ("lea",), ("Lead",), ("lead ",), ("lead,finance",), ("l\u0435ad",), ("lead\u200b",), ("*",), ()],
)
def test_a_role_is_compared_exactly(desk: Desk, roles: tuple[str, ...]) -> None:
    desk.refused(desk.asked(), Principal(id="eve", roles=roles))


@pytest.mark.parametrize(
    "id", ["r\u0456ta", "rita\u200b", "Rita", "\uff52ita", "rita ", "r\u00edta", "ri\u0301ta", "rit"]
)
def test_an_id_that_looks_alike_is_another_one(desk: Desk, id: str) -> None:
    item = desk.asked(Approval(by=Principal(id="rita")))
    who = Principal(id=id)
    for alone in (False, True):
        assert desk.vote(item, who, alone=alone) == "refused"
    assert desk.paid == [] and desk.voted(item) == []
    assert desk.vote(item, "rita") == "approved"


def test_a_lone_surrogate_makes_nobody_another_person(desk: Desk) -> None:
    """A store keeps no lone surrogates, so what it has kept must be what is compared."""
    item = desk.asked(Approval(needed=2, not_requester=True), requester="ann\ud800")
    for alone in (False, True):
        assert desk.vote(item, "ann\ud800", alone=alone) == "refused"
    assert [desk.vote(item, "bob\ud800", alone=alone) for alone in (True, False)] == ["counted", "repeated"]
    (vote,) = desk.request(item).votes  # type: ignore[union-attr]
    assert desk.vote(item, vote.by, alone=True) == "repeated"
    assert desk.paid == []


def test_no_name_approves_nothing(desk: Desk) -> None:
    item = desk.asked()
    for work in (
        lambda: desk.driver.call(desk.made, "decide", item.id, Approve()),
        lambda: desk.driver.resume(desk.made, desk.store.pending()[0].checkpoint_id, approved=True),
        lambda: desk.driver.resume(desk.made, desk.store.pending()[0].checkpoint_id, approved=False),
        lambda: desk.driver.call(desk.made, "approve_all", desk.store.pending()[0].run_id),
        lambda: desk.driver.call(desk.made, "approve_all", desk.store.pending()[0].run_id, channel="handler"),
        lambda: desk.driver.resume(desk.made, desk.store.pending()[0].checkpoint_id, approved=True, channel="handler"),
    ):
        trail = len([*desk.store.audit()])
        with pytest.raises(NotAnApprover) as caught:
            work()
        assert (caught.value.by, caught.value.pending_id) == (None, item.id)
        (line,) = [*desk.store.audit()][trail:]
        assert line.refused and line.by is None
    for by in (None, ""):
        with pytest.raises(InvalidDecision):
            desk.driver.call(desk.store, "decide", item.id, Approve(), by=by, digest=item.digest)  # type: ignore[arg-type]
    assert desk.voted(item) == [] and desk.paid == []


def test_a_channel_that_calls_itself_the_handler_is_a_channel(desk: Desk, alone: bool) -> None:
    item = desk.asked()
    desk.refused(item, EVE, channel="handler")
    assert desk.vote(item, BOB, alone=alone, channel="handler") == "counted"
    assert desk.vote(item, BOB, alone=alone, channel="handler") == "repeated"
    assert desk.paid == []


def test_a_service_is_judged_as_a_person_is(desk: Desk, alone: bool) -> None:
    item = desk.asked()
    desk.refused(item, Principal(id="bot", kind="service"))
    desk.refused(item, Principal(id="bot", kind="service", roles=("leader",)))
    assert desk.vote(item, Principal(id="bob", kind="service", roles=("lead",)), alone=alone) == "counted"
    assert desk.vote(item, BOB, alone=alone) == "repeated"
    assert desk.paid == []


# Deputies


def people(desk: Desk, **roles: tuple[str, ...]) -> None:
    for id, given in roles.items():
        desk.directory.add(Person(id=id, roles=given))


def test_a_deputy_of_a_deputy_stands_for_nobody(desk: Desk, alone: bool) -> None:
    people(desk, rita=("lead",), otto=(), zoe=())
    desk.directory.name_deputy("rita", "otto")
    desk.directory.name_deputy("otto", "zoe")
    item = desk.asked()
    desk.refused(item, "zoe")
    assert desk.vote(item, "otto", alone=alone) == "counted"
    (vote,) = desk.request(item).votes  # type: ignore[union-attr]
    assert (vote.by.id, vote.behalf_of.id) == ("otto", "rita")
    assert desk.vote(item, "rita", alone=alone) == "repeated"
    desk.refused(item, "zoe")
    assert desk.paid == []


def test_a_deputy_counts_once_for_all_for_whom_they_stand(desk: Desk, alone: bool) -> None:
    people(desk, rita=("lead",), sam=("lead",), otto=("lead",))
    desk.directory.name_deputy("rita", "otto")
    desk.directory.name_deputy("sam", "otto")
    item = desk.asked(Approval(by="lead", needed=3))
    assert desk.vote(item, "otto", alone=alone) == "counted"
    assert [desk.vote(item, "otto", alone=each) for each in (False, True)] == ["repeated", "repeated"]
    assert desk.voted(item) == ["otto"] and desk.paid == []


def test_a_deputy_does_not_vote_again_for_somebody_who_has_voted(desk: Desk, alone: bool) -> None:
    people(desk, rita=("lead",), otto=(), cat=("lead",))
    desk.directory.name_deputy("rita", "otto")
    item = desk.asked(Approval(by="lead", needed=2))
    assert desk.vote(item, "rita", alone=alone) == "counted"
    assert [desk.vote(item, "otto", alone=each) for each in (False, True)] == ["repeated", "repeated"]
    assert desk.voted(item) == ["rita"] and desk.paid == []
    desk.directory.name_deputy("cat", "otto")
    assert desk.vote(item, "otto", alone=alone) == "approved", "for another they may"
    desk.work()
    assert desk.paid == [PAID]


def test_who_asked_approves_neither_as_a_deputy_nor_by_one(desk: Desk) -> None:
    people(desk, ann=("lead",), rita=("lead",), otto=())
    desk.directory.name_deputy("rita", "ann")
    desk.directory.name_deputy("ann", "otto")
    item = desk.asked(Approval(by="lead", not_requester=True))
    desk.refused(item, "ann")
    desk.refused(item, "otto")


def test_a_deputy_who_is_dismissed_before_the_last_vote_has_not_voted(desk: Desk, alone: bool) -> None:
    people(desk, rita=("lead",), otto=(), cat=("lead",), dan=("lead",))
    desk.directory.name_deputy("rita", "otto", until=datetime.fromtimestamp(START, UTC) + timedelta(hours=1))
    item = desk.asked(Approval(by="lead", needed=2))
    assert desk.vote(item, "otto", alone=alone) == "counted"
    desk.till.now += 3600
    desk.refused(item, "otto")
    assert desk.vote(item, "cat", alone=alone) == "counted"
    assert desk.vote(item, "dan", alone=alone) == "approved"
    desk.work()
    assert desk.paid == [PAID]


# What is voted on


def test_an_edit_after_the_first_of_two_votes_asks_anew(desk: Desk) -> None:
    item = desk.asked()
    assert desk.vote(item, BOB) == "counted"
    desk.refused(item, EVE, answer=Approve(args={"order": 1, "amount": 7}))
    desk.driver.call(desk.made, "decide", item.id, Approve(args={"order": 1, "amount": 7}), by=CAT, digest=item.digest)
    assert desk.paid == [], "the first vote was for other arguments"
    (row,) = desk.store.pending()
    again = row.approval
    assert again.id != item.id and again.digest != item.digest and again.args == {"order": 1, "amount": 7}
    assert [each.by.id for each in again.votes] == ["cat"] and again.votes[0].digest == again.digest
    with pytest.raises((CheckpointAlreadyResumed, UnknownPending)):
        desk.driver.call(desk.made, "decide", item.id, Approve(), by=DAN)
    assert desk.vote(again, CAT) == "repeated"
    with pytest.raises(InvalidDecision):
        desk.driver.call(desk.made, "decide", again.id, Approve(), by=BOB, digest=item.digest)
    assert desk.vote(again, BOB) == "approved"
    assert desk.paid == [{"order": 1, "amount": 7}]


def test_an_edit_with_the_store_alone_asks_anew_once_a_worker_has_looked(desk: Desk) -> None:
    item = desk.asked()
    assert desk.vote(item, BOB, alone=True) == "counted"
    edit = Approve(args={"order": 1, "amount": 7})
    desk.refused(item, EVE, answer=edit)
    desk.driver.call(desk.store, "decide", item.id, edit, by=CAT, digest=item.digest)  # type: ignore[arg-type]
    assert desk.request(item) is None
    for by in (DAN, BOB):
        assert desk.vote(item, by, alone=True) == "late"
    desk.work()
    (row,) = desk.store.pending()
    assert desk.paid == [] and [each.by.id for each in row.approval.votes] == ["cat"]
    assert desk.vote(row.approval, CAT, alone=True) == "repeated"
    assert desk.vote(row.approval, BOB, alone=True) == "approved"
    desk.work()
    assert desk.paid == [{"order": 1, "amount": 7}]


def test_two_who_edit_alike_are_two_and_two_who_edit_differently_are_one_each(desk: Desk) -> None:
    item = desk.asked()
    first, second = (Approve(args={"order": 1, "amount": amount}) for amount in (7, 8))
    desk.driver.call(desk.made, "decide", item.id, first, by=BOB)
    again = desk.store.pending()[0].approval
    desk.driver.call(desk.made, "decide", again.id, second, by=CAT)
    third = desk.store.pending()[0].approval
    assert (third.args["amount"], [each.by.id for each in third.votes], desk.paid) == (8, ["cat"], [])
    desk.driver.call(desk.made, "decide", third.id, second, by=BOB)
    assert desk.paid == [{"order": 1, "amount": 8}]


def test_two_different_results_are_not_agreed_on(desk: Desk, alone: bool) -> None:
    item = desk.asked()
    for by, text in ((BOB, "paid in cash"), (CAT, "paid by card")):
        assert desk.vote(item, by, "respond", alone=alone, answer=Respond(content=text)) == "counted"
        desk.work()
    (row,) = desk.store.pending()
    assert desk.paid == [] and [each.by.id for each in row.approval.votes] == ["bob", "cat"]


def test_an_escalation_is_judged_by_the_time_and_a_clock_that_goes_back_gives_nothing_back(
    desk: Desk, alone: bool
) -> None:
    gate = Approval(by="lead", needed=2, escalate=Escalate(after=100, by="boss", instead=True))
    item = desk.asked(gate)
    boss, other = Principal(id="fay", roles=("boss",)), Principal(id="gus", roles=("boss",))
    desk.refused(item, boss)
    desk.till.now = START + 100
    desk.refused(item, BOB)
    assert desk.vote(item, boss, alone=alone) == "counted"
    desk.till.now = START + 5
    desk.refused(item, BOB)
    desk.refused(item, CAT)
    desk.till.now = START - 5000
    desk.refused(item, DAN)
    assert desk.vote(item, other, alone=alone) == "approved"
    desk.work()
    assert desk.paid == [PAID]


def test_a_vote_that_comes_twice_is_one(desk: Desk, alone: bool) -> None:
    item = desk.asked()
    text = desk.store.load(desk.store.pending()[0].checkpoint_id).model_dump_json()
    for _ in range(2):  # the second is refused or says how it stands: it counts for nothing
        try:
            result = desk.driver.resume(
                desk.made, Checkpoint.model_validate_json(text), decisions={item.id: Approve()}, by=BOB
            )
            assert result.status == "suspended"
        except (AlreadyVoted, CheckpointAlreadyResumed):
            assert desk.voted(item) == ["bob"]
    assert desk.voted(item) == ["bob"] and desk.paid == []
    assert desk.vote(item, BOB, alone=alone) == "repeated"


def test_a_key_is_of_one_person(desk: Desk, alone: bool) -> None:
    item = desk.asked(Approval(by="lead", needed=3))
    assert [desk.vote(item, BOB, alone=alone, key="k") for _ in range(2)] == ["counted", "counted"]
    assert desk.voted(item) == ["bob"]
    assert desk.vote(item, BOB, alone=alone, key="other") == "repeated"
    assert desk.vote(item, BOB, "reject", alone=alone, key="k") == "repeated"
    desk.refused(item, EVE, key="k")
    assert desk.vote(item, CAT, alone=alone, key="k") == "counted"
    assert desk.vote(item, BOB, alone=not alone, key="k") == "counted", "it is the vote that was recorded"
    assert desk.voted(item) == ["bob", "cat"] and desk.paid == []


# Forged texts


def forged(text: str, item: PendingApproval, votes: list[dict[str, Any]], *, sealed: bool) -> str:
    """The checkpoint with these votes on the call that waits; sealed anew, as anybody can who has the text."""
    data = json.loads(text)

    def put(node: Any) -> None:
        if isinstance(node, dict):
            if item.id in (node.get("id"), node.get("pending_id")) and "digest" in node:
                node["votes"] = votes
            for each in node.values():
                put(each)
        elif isinstance(node, list):
            for each in node:
                put(each)

    put(data)
    assert json.dumps(data) != json.dumps(json.loads(text)), "nothing was forged"
    if sealed:
        data["digest"] = checkpoint_digest({key: value for key, value in data.items() if key != "digest"})
    return json.dumps(data)


def vote_of(item: PendingApproval, who: Principal) -> dict[str, Any]:
    """A vote that nobody has cast."""
    at = datetime.fromtimestamp(START, UTC)
    made: dict[str, Any] = Vote(kind="approve", digest=item.digest, by=who, at=at).model_dump(mode="json")
    return made


@pytest.mark.parametrize("trust", ["store", "bearer"])
@pytest.mark.parametrize("sealed", [False, True], ids=["as it was sealed", "sealed anew"])
def test_votes_that_were_written_into_a_text_count_for_nothing(desk: Desk, trust: Any, sealed: bool) -> None:
    item = desk.asked(trust=trust)
    text = desk.store.load(desk.store.pending()[0].checkpoint_id).model_dump_json()
    wrong = forged(text, item, [vote_of(item, BOB)], sealed=sealed)
    for answer in ({"approved": True}, {"decisions": {item.id: Approve()}}):
        with pytest.raises(CheckpointError):
            desk.driver.resume(desk.made, Checkpoint.model_validate_json(wrong), by=CAT, **answer)
    assert desk.voted(item) == [] and desk.paid == []


def test_votes_in_a_bearers_text_are_of_people_whom_the_directory_knows(desk: Desk) -> None:
    """Where the store does not know the run, the text is the authority; of who somebody is, the directory is."""
    item = desk.asked()
    text = desk.store.load(desk.store.pending()[0].checkpoint_id).model_dump_json()
    there = desk.open(tenant="there")
    StoreDirectory(there).add(Person(id="bob", roles=("clerk",)))
    StoreDirectory(there).add(Person(id="cat", roles=("lead",)))
    agent = desk.agent(store=there, trust="bearer")
    wrong = forged(text, item, [vote_of(item, BOB)], sealed=True)
    # Both are leads by the text. By the directory one of them is: the other vote is kept, and does not count.
    brought = Checkpoint.model_validate_json(wrong)
    assert [each.by.roles for each in brought.pending[0].votes] == [("lead",)]
    result = desk.driver.resume(agent, brought, decisions={item.id: Approve()}, by=CAT)
    assert (result.status, desk.paid) == ("suspended", [])
    with pytest.raises(CheckpointError):
        Checkpoint.model_validate_json(forged(text, item, [vote_of(item, BOB)], sealed=False))

"""Votes, and all else that happens to a run meanwhile: forks, failures, other calls, runs inside, code that has changed."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from approver_model import Verdict
from approver_scenes import BOB, CAT, DAN, EVE, PAID, TWO, Desk, nested, verdict_of, waiting
from drivers import Driver
from places import Place

from phronomy import (
    Approval,
    Approve,
    Breakpoint,
    OutcomeUnknown,
    Principal,
    Reject,
    Respond,
    Skip,
    tool,
)
from phronomy.errors import (
    AgentChanged,
    AlreadyVoted,
    CheckpointAlreadyResumed,
    InvalidDecision,
    NotAnApprover,
    UnknownPending,
)
from phronomy.records.decisions import PendingApproval
from phronomy.stores import Answered
from phronomy.testing import call

pytestmark = pytest.mark.worlds(2)


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


@pytest.fixture(params=[False, True], ids=["agent", "store alone"])
def alone(request: pytest.FixtureRequest) -> bool:
    """Whether votes are cast with the store alone."""
    found: bool = request.param
    return found


# Around the vote


def test_to_approve_all_is_one_vote(desk: Desk) -> None:
    item = desk.asked()
    run = desk.store.pending()[0].run_id
    assert desk.driver.call(desk.made, "approve_all", run, by=BOB).status == "suspended"
    with pytest.raises(AlreadyVoted):
        desk.driver.call(desk.made, "approve_all", run, by=BOB)
    with pytest.raises(NotAnApprover):
        desk.driver.call(desk.made, "approve_all", run, by=EVE)
    assert desk.voted(item) == ["bob"] and desk.paid == []
    assert desk.driver.call(desk.made, "approve_all", run, by=CAT).status == "completed"
    assert desk.paid == [PAID]


def test_approve_all_approves_nothing_where_one_of_the_calls_is_not_for_this_person(desk: Desk) -> None:
    replies = [[call("pay", {"order": 1}), call("open", {"order": 2})], "Done."]
    other = desk.till.tool(True, desk.driver, name="open")
    desk.made = desk.agent(replies=replies, more=[other])
    result = desk.driver.invoke(desk.made, "Pay", requester="ann")
    with pytest.raises(NotAnApprover):
        desk.driver.call(desk.made, "approve_all", result.checkpoint.run_id, by=EVE)
    assert len(desk.store.pending()) == 2 and desk.paid == []


def test_a_fork_takes_no_votes_with_it(desk: Desk, alone: bool) -> None:
    item = desk.asked()
    assert desk.vote(item, BOB, alone=alone) == "counted"
    _branch, head = desk.store.head(desk.store.pending()[0].run_id)
    forked = desk.driver.fork(desk.made, head)
    (other,) = forked.pending
    assert other.id != item.id and other.votes == ()
    listed = {row.approval.id: row.approval for row in desk.store.pending()}
    assert (listed[item.id].votes[0].by.id, listed[other.id].votes) == ("bob", ())
    assert desk.vote(other, CAT, alone=alone) == "counted"
    desk.work()
    assert desk.paid == [], "each of the two has one vote"
    assert desk.vote(other, DAN, alone=alone) == "approved"
    desk.work()
    assert desk.paid == [PAID] and desk.voted(item) == ["bob"]


def test_a_run_that_is_cancelled_between_two_votes_runs_nothing(desk: Desk, alone: bool) -> None:
    item = desk.asked()
    assert desk.vote(item, BOB, alone=alone) == "counted"
    desk.driver.cancel(desk.made, desk.store.pending()[0].run_id, reason="enough")
    with pytest.raises((CheckpointAlreadyResumed, UnknownPending)):
        desk.driver.call(desk.store if alone else desk.made, "decide", item.id, Approve(), by=CAT, digest=item.digest)  # type: ignore[arg-type]
    desk.work()
    assert desk.paid == [] and desk.store.pending() == []


def test_votes_while_a_worker_holds_the_run_are_carried_out_once(desk: Desk) -> None:
    item_of: dict[str, PendingApproval] = {}
    said: list[Verdict] = []

    def slow(order: int) -> str:
        """Take a while."""
        outside = desk.open()
        for who in (EVE, BOB, BOB, CAT, DAN):
            found = verdict_of(
                lambda who=who: outside.decide(item_of["pay"].id, Approve(), by=who, digest=item_of["pay"].digest),  # type: ignore[misc]
                lambda: waiting(outside, item_of["pay"].id),
                "approve",
            )
            said.append(found)
        return "slow"

    gated = tool(requires_approval=True)(desk.driver.function(slow))
    replies = [[call("pay", {"order": 1}), call("slow", {"order": 2})], "Done."]
    desk.made = desk.agent(replies=replies, more=[gated])
    result = desk.driver.invoke(desk.made, "Pay", requester="ann")
    item_of |= {item.tool_name: item for item in result.checkpoint.pending}
    done = desk.driver.call(desk.made, "decide", item_of["slow"].id, Approve(), by="zoe")
    assert said == ["refused", "counted", "repeated", "approved", "late"]
    desk.work()
    assert desk.paid == [PAID], done.status
    assert [branch.status for branch in desk.store.branches()] == ["completed"]
    trail = [(line.by.id, line.vote, line.refused) for line in desk.store.audit(pending_id=item_of["pay"].id)]
    assert trail[:3] == [("eve", False, True), ("bob", True, False), ("cat", False, False)]


# Runs inside


@pytest.mark.parametrize("handlers", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("where", ["tool", "clerk", "over1", "over2"])
def test_no_handler_answers_for_people_wherever_it_and_they_are(
    desk: Desk, where: str, handlers: tuple[int, ...]
) -> None:
    levels = ["clerk", "over1", "over2"]
    gate = TWO if where == "tool" else True
    item = nested(desk, gate, *(TWO if where == each else None for each in levels), handlers=handlers)
    assert len(item.approvers) == 1
    desk.refused(item, EVE)
    assert desk.vote(item, BOB, alone=True) == "counted"
    assert desk.vote(item, CAT, alone=True) == "approved"
    desk.work()
    assert desk.paid == [PAID]


def test_the_levels_of_a_run_two_deep_are_each_met_by_themselves(desk: Desk) -> None:
    finance = Approval(by="finance", not_requester=True)
    item = nested(desk, TWO, None, finance, Approval(by=Principal(id="boss"), rejections=2))
    assert [each.of != "" for each in item.approvers] == [False, True, True] and item.path
    ann = Principal(id="ann", roles=("lead", "finance"))
    assert desk.vote(item, ann, alone=True) == "counted", "as a lead they may, for finance they may not"
    assert desk.vote(item, BOB, alone=True) == "counted"
    assert desk.vote(item, BOB, alone=True) == "repeated"
    desk.refused(item, EVE)
    assert desk.vote(item, Principal(id="boss"), alone=True) == "counted"
    desk.work()
    assert desk.paid == [] and desk.voted(item) == ["ann", "bob", "boss"]
    assert desk.vote(item, Principal(id="fin", roles=("finance",)), alone=True) == "approved"
    desk.work()
    assert desk.paid == [PAID]
    trail = [(line.by.id, line.vote) for line in desk.store.audit(pending_id=item.id) if not line.refused]
    assert trail == [("ann", True), ("bob", True), ("boss", True), ("fin", False)]


def test_an_edit_two_deep_voids_the_votes_before_it(desk: Desk) -> None:
    item = nested(desk, TWO)
    assert desk.vote(item, BOB) == "counted"
    edit = Approve(args={"order": 1, "amount": 9})
    desk.driver.call(desk.made, "decide", item.id, edit, by=CAT, digest=item.digest)
    (row,) = desk.store.pending()
    again = row.approval
    assert (desk.paid, again.args, [each.by.id for each in again.votes]) == ([], {"order": 1, "amount": 9}, ["cat"])
    assert again.id != item.id
    assert desk.vote(again, CAT, alone=True) == "repeated"
    assert desk.vote(again, BOB, alone=True) == "approved"
    desk.work()
    assert desk.paid == [{"order": 1, "amount": 9}]


def test_a_rejection_two_deep_takes_as_many_as_its_level_says(desk: Desk) -> None:
    item = nested(desk, Approval(by="lead", needed=2, rejections=2))
    assert desk.vote(item, BOB, "reject", alone=True) == "counted"
    assert desk.vote(item, BOB, alone=True) == "repeated"
    assert desk.vote(item, CAT, alone=True) == "counted"
    assert desk.vote(item, DAN, "reject", alone=True, answer=Reject(reason="no")) == "rejected"
    desk.work()
    assert desk.paid == [] and desk.store.pending() == []


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("first", ["agent", "store alone"])
@pytest.mark.parametrize("kind", ["approve", "reject"])
def test_the_second_vote_in_a_nested_run_may_be_cast_with_the_agent(
    desk: Desk, kind: str, first: str, depth: int
) -> None:
    item = nested(desk, Approval(by="lead", needed=2, rejections=2), depth=depth)
    assert desk.vote(item, BOB, kind, alone=first == "store alone") == "counted"
    assert desk.vote(item, BOB, kind) == "repeated"
    assert desk.vote(item, CAT, kind) == {"approve": "approved", "reject": "rejected"}[kind]
    assert desk.paid == [PAID] * (kind == "approve")


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("voted", [False, True])
def test_an_edit_in_a_nested_run_with_the_store_alone_is_put_to_the_others(desk: Desk, voted: bool, depth: int) -> None:
    item = nested(desk, TWO, depth=depth)
    if voted:
        assert desk.vote(item, BOB, alone=True) == "counted"
    edit = Approve(args={"order": 1, "amount": 9})
    decide: Any = desk.store
    desk.driver.call(decide, "decide", item.id, edit, by=CAT, digest=item.digest)
    desk.work()
    (row,) = desk.store.pending()
    assert (desk.paid, [each.by.id for each in row.approval.votes]) == ([], ["cat"])
    assert desk.vote(row.approval, DAN, alone=True) == "approved"
    desk.work()
    assert desk.paid == [{"order": 1, "amount": 9}]


@pytest.mark.parametrize("depth", [0, 2])
def test_one_of_two_rejections_that_would_end_the_run_ends_nothing(desk: Desk, alone: bool, depth: int) -> None:
    gate = Approval(by="lead", rejections=2)
    item = nested(desk, gate, depth=depth) if depth else desk.asked(gate)
    end = Reject(then="end")
    desk.refused(item, EVE, "reject", answer=end)
    assert desk.vote(item, BOB, "reject", answer=end, alone=alone) == "counted"
    desk.work()
    assert desk.voted(item) == ["bob"] and [each.status for each in desk.store.branches()] == ["suspended"]
    assert desk.vote(item, CAT, "reject", answer=end, alone=alone) == "rejected"
    desk.work()
    assert desk.paid == [] and [each.status for each in desk.store.branches()] == ["rejected"]


# Functions that say who may


def accepted(who: Principal, request: PendingApproval) -> bool:
    """Those whose id begins with an x, for what costs less than ten."""
    if who.id == "broken":
        raise RuntimeError("the directory is away")
    return who.id.startswith("x") and request.args["amount"] < 10  # type: ignore[operator]


def truthy(who: Principal, request: PendingApproval) -> Any:
    """Gives what is true, and is not True."""
    return "yes"


def test_a_predicate_is_asked_where_the_code_is_and_a_wrong_vote_with_the_store_alone_voids_nothing(desk: Desk) -> None:
    item = desk.asked(Approval(by=accepted, needed=2))
    for who in (BOB, "broken", "yx"):
        assert desk.vote(item, who) == "refused"
    assert desk.vote(item, "xa") == "counted"
    for who in ("bob", "broken", "xa"):
        (row,) = desk.store.pending()
        desk.vote(row.approval, who, alone=True)
        desk.work()
        assert desk.paid == []
        assert desk.voted(desk.store.pending()[0].approval) == ["xa"], who
    (row,) = desk.store.pending()
    desk.vote(row.approval, "xb", alone=True)
    desk.work()
    assert desk.paid == [PAID]


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("answer", [Approve(), Reject(), Reject(then="block"), Respond(content="by hand")], ids=repr)
def test_what_a_predicate_refuses_later_has_moved_no_time_and_ended_nothing(
    desk: Desk, answer: Any, depth: int
) -> None:
    """With the store alone nobody knows whether it counts: until a worker has looked, it is not carried out."""
    gate = Approval(by=accepted, needed=2, rejections=1, expires=500.0)
    item = nested(desk, gate, depth=1) if depth else desk.asked(gate)
    assert desk.vote(item, "xa") == "counted"
    desk.till.now += 400
    desk.driver.call(desk.store, "decide", item.id, answer, by=EVE, digest=item.digest)  # type: ignore[arg-type]
    desk.work()
    (row,) = desk.store.pending()
    again = row.approval
    assert (again.requested_at, again.expires_at, desk.voted(again)) == (item.requested_at, item.expires_at, ["xa"])
    assert desk.paid == [] and "eve" in (again.reason or "")
    assert desk.vote(again, "xb") == "approved"
    assert desk.paid == [PAID]


def test_a_predicate_that_gives_no_true_lets_nobody_decide(desk: Desk) -> None:
    item = desk.asked(Approval(by=truthy))
    for kind in ("approve", "reject"):
        assert desk.vote(item, BOB, kind) == "refused"
    desk.vote(item, BOB, alone=True)
    desk.work()
    assert desk.paid == [] and len(desk.store.pending()) == 1


@pytest.mark.parametrize("accept", [False, True])
def test_code_that_asks_for_less_since_weakens_no_request(desk: Desk, accept: bool) -> None:
    item = desk.asked()
    assert desk.vote(item, BOB) == "counted"
    for gate in (Approval(by="clerk"), Approval(), True, Approval(by="lead"), False):
        desk.made = desk.agent(gate)
        for who in (EVE, None):
            with contextlib.suppress(NotAnApprover, AgentChanged):
                desk.driver.call(desk.made, "decide", item.id, Approve(), by=who, accept_changes=accept)
            assert desk.paid == [], gate
    desk.refused_once(item, EVE, alone=True)
    desk.made = desk.agent()
    assert desk.voted(item) == ["bob"]
    assert desk.vote(item, CAT) == "approved"


# Calls that fail, and other calls


@pytest.mark.parametrize("what", ["failed", "lost"])
def test_a_call_that_is_asked_about_again_takes_as_many_people_again(desk: Desk, what: str) -> None:
    ran: list[int] = []

    def wire(order: int) -> str:
        """Wire."""
        ran.append(order)
        if len(ran) == 1:
            raise ConnectionError("down") if what == "failed" else OutcomeUnknown("the line went dead")
        return "wired"

    gated = tool(requires_approval=TWO, on_failure="human")(desk.driver.function(wire))
    desk.made = desk.agent(replies=[call("wire", {"order": 1}), "Done."], more=[gated])
    (first,) = desk.driver.invoke(desk.made, "Go", requester="ann").checkpoint.pending
    assert [desk.vote(first, who) for who in (BOB, CAT)] == ["counted", "approved"]
    assert ran == [1]
    (row,) = desk.store.pending()
    item = row.approval
    assert item.id != first.id and item.why in ("failed", "outcome_unknown")
    assert (len(item.approvers), item.votes) == (1, ())
    for who in (EVE, None):
        with pytest.raises(NotAnApprover):
            desk.driver.call(desk.made, "decide", item.id, Approve(), by=who)
    assert desk.vote(item, BOB) == "counted"
    assert desk.vote(item, BOB, alone=True) == "repeated"
    assert ran == [1]
    assert desk.vote(item, DAN) == "approved"
    assert ran == [1, 1]


def test_two_requests_of_one_reply_are_decided_in_one_write_or_not_at_all(desk: Desk) -> None:
    other = desk.till.tool(Approval(by="clerk"), desk.driver, name="open")
    replies = [[call("pay", {"order": 1}), call("open", {"order": 2})], "Done."]
    desk.made = desk.agent(replies=replies, more=[other])
    asked = desk.driver.invoke(desk.made, "Go", requester="ann").checkpoint
    both = {item.id: Approve() for item in asked.pending}
    for who in (BOB, EVE):  # one may decide on the one, the other on the other
        with pytest.raises(NotAnApprover):
            desk.driver.resume(desk.made, asked.id, decisions=both, by=who)
        assert [row.approval.votes for row in desk.store.pending()] == [(), ()] and desk.paid == []
    either = Principal(id="either", roles=("lead", "clerk"))
    result = desk.driver.resume(desk.made, asked.id, decisions=both, by=either)
    assert result.status == "suspended" and desk.paid == [{"order": 2, "amount": 5}]
    (row,) = desk.store.pending()
    assert (row.approval.tool_name, desk.voted(row.approval)) == ("pay", ["either"])
    assert desk.vote(row.approval, BOB) == "approved"
    assert desk.paid[1:] == [PAID]


def test_a_breakpoint_at_a_call_that_asks_for_people_takes_their_votes(desk: Desk) -> None:
    item = desk.asked(breakpoints=[Breakpoint("pre_tool_call")])
    assert (item.why, item.point, len(item.approvers)) == ("approval", "pre_tool_call", 1)
    desk.refused(item, EVE)
    with pytest.raises(NotAnApprover):
        desk.driver.call(desk.made, "decide", item.id, Approve())
    for home in (desk.made, desk.store):
        with pytest.raises(InvalidDecision, match="is no breakpoint"):
            desk.driver.call(home, "decide", item.id, Skip(), by="anybody", digest=item.digest)
    assert [desk.vote(item, who) for who in (BOB, BOB, CAT)] == ["counted", "repeated", "approved"]
    assert desk.paid == [PAID]


def test_an_edit_at_a_breakpoint_is_no_vote_on_what_it_comes_to(desk: Desk) -> None:
    gate = Approval(when=lambda args: args["amount"] > 100, by="lead", needed=2)
    item = desk.asked(gate, breakpoints=[Breakpoint("pre_tool_call")])
    assert (item.why, item.approvers) == ("breakpoint", ())
    desk.driver.call(desk.made, "decide", item.id, Approve(args={"order": 1, "amount": 500}), by=BOB)
    (row,) = desk.store.pending()
    item = row.approval
    assert (item.why, len(item.approvers), item.votes, desk.paid) == ("approval", 1, (), [])
    desk.refused(item, EVE)
    assert [desk.vote(item, who) for who in (CAT, DAN)] == ["counted", "approved"]
    assert desk.paid == [{"order": 1, "amount": 500}]


def test_an_edit_that_nobody_is_asked_about_takes_the_people_of_what_was_shown(desk: Desk) -> None:
    gate = Approval(when=lambda args: args["amount"] < 100, by="lead", needed=2)
    item = desk.asked(gate)
    edit = Approve(args={"order": 1, "amount": 500})
    desk.refused(item, EVE, answer=edit)
    desk.driver.call(desk.made, "decide", item.id, edit, by=BOB, digest=item.digest)
    assert desk.paid == [{"order": 1, "amount": 500}]


# Several requests in one call


def batch(desk: Desk) -> list[PendingApproval]:
    """Two requests of one run, of which one takes two leads and the other a clerk; and one of another run, which takes two leads."""
    other = desk.till.tool(Approval(by="clerk"), desk.driver, name="open")
    last = desk.asked()
    replies = [[call("pay", {"order": 1}), call("open", {"order": 2})], "Done."]
    desk.made = desk.agent(replies=replies, more=[other])
    return [*desk.driver.invoke(desk.made, "Go", requester="ann").checkpoint.pending, last]


@pytest.mark.parametrize("who", [BOB, EVE], ids=["bob", "eve"])
def test_all_or_none_of_several_requests_are_voted_on(desk: Desk, who: Principal) -> None:
    items = batch(desk)
    answers = [Answered(pending_id=item.id, digest=item.digest, answer=Approve()) for item in items]
    before = [desk.request(item) for item in items]
    store: Any = desk.store
    with pytest.raises(NotAnApprover):
        desk.driver.call(store, "decide_all", answers, by=who, all_or_none=True)
    assert [desk.request(item) for item in items] == before and desk.paid == []
    both = Principal(id="either", roles=("lead", "clerk"))
    done = desk.driver.call(store, "decide_all", answers, by=both, all_or_none=True)
    assert [each.error for each in done] == [None] * 3
    assert [desk.request(item) is None for item in items] == [False, True, False]
    desk.work()
    assert desk.paid == [{"order": 2, "amount": 5}]
    with pytest.raises(AlreadyVoted):
        desk.driver.call(store, "decide_all", answers[::2], by=both, all_or_none=True)
    desk.driver.call(store, "decide_all", answers[::2], by=BOB, all_or_none=True)
    desk.work()
    assert desk.paid == [{"order": 2, "amount": 5}, PAID, PAID]


def test_each_of_several_requests_is_voted_on_by_itself(desk: Desk) -> None:
    items = batch(desk)
    answers = [Answered(pending_id=item.id, digest=item.digest, answer=Approve()) for item in items]
    store: Any = desk.store
    for who, errors in (
        (BOB, [None, NotAnApprover, None]),
        (BOB, [AlreadyVoted, NotAnApprover, AlreadyVoted]),
        (EVE, [NotAnApprover, None, NotAnApprover]),
    ):
        done = desk.driver.call(store, "decide_all", answers, by=who)
        assert [each.error and type(each.error) for each in done] == errors
    assert [desk.voted(items[place]) for place in (0, 2)] == [["bob"], ["bob"]]
    desk.work()
    assert desk.paid == [{"order": 2, "amount": 5}]

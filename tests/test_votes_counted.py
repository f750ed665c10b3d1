"""Votes as records alone: how they are counted, what a vote makes of a call, and what no worker may record."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tables import each

from phronomy import Agent, Approval, Approve, MemoryStore, tool
from phronomy.approvals import Approvers, Escalation, PendingApproval, Principal, ToolIdentity, Vote, call_digest
from phronomy.errors import IllegalOutcome
from phronomy.records.calls import Call, Decided, Judgement, Reminded, Voted
from phronomy.records.decisions import Brief, Decision
from phronomy.rules.reminders import next_due, step_due, with_reminder
from phronomy.rules.voted_calls import check_votes, check_votes_inside, with_vote, with_vote_inside
from phronomy.rules.votes import approves, counting, decides, in_force, tallies, told
from phronomy.testing import ScriptedModel, call

AT = datetime(2027, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TOOL = ToolIdentity(name="pay", schema_hash="0" * 64, gate="always")
DIGEST = call_digest(TOOL, '{"amount":5}')
OTHER = call_digest(TOOL, '{"amount":9}')
TWO = Approvers(roles=("finance",), needed=2)


def who(id: str, *roles: str) -> Principal:
    return Principal(id=id, roles=roles)


def vote(id: str, *roles: str, kind: Any = "approve", hours: float = 0, digest: str = DIGEST, **fields: Any) -> Vote:
    return Vote(kind=kind, digest=digest, by=who(id, *roles), at=AT + hours * HOUR, **fields)


ADA, BERT = vote("ada", "finance"), vote("bert", "finance", hours=1)


def counted(votes: list[Vote], *levels: Approvers, requester: str | None = "otto") -> list[tuple[int, int, int]]:
    tally = tallies(levels, votes, requested_at=AT, requester=who(requester) if requester else None)
    return [(each.counted, each.needed, each.rejected) for each in tally]


def test_each_person_counts_once_and_by_the_last_of_their_votes() -> None:
    assert counted([], TWO) == [(0, 2, 0)]
    assert counted([ADA], TWO) == [(1, 2, 0)]
    assert counted([ADA, BERT], TWO) == [(2, 2, 0)]
    assert counted([ADA, vote("ada", "finance", hours=2)], TWO) == [(1, 2, 0)]
    # A deputy uses the vote of both.
    deputy = vote("dan", behalf_of=who("ada", "finance"))
    assert counted([deputy, vote("dan", "finance", hours=1)], TWO) == [(1, 2, 0)]
    assert counted([deputy, ADA], TWO) == [(1, 2, 0)]
    assert counted([deputy, BERT], TWO) == [(2, 2, 0)]


def test_a_vote_of_a_deputy_of_somebody_who_asked_counts_only_against() -> None:
    level = TWO.evolve(not_requester=True, authors=("zoe",), rejections=1)
    for principal, counts in (("otto", 0), ("zoe", 0), ("ada", 1)):
        for more in ({}, {"behalf_of": who("bert", "finance")}):
            assert counted([vote("dan", "finance", deputy_of=(principal,), **more)], level) == [(counts, 2, 0)]
        assert counted([vote("dan", "finance", kind="reject", deputy_of=(principal,))], level)[0][2] == 1


def test_only_equal_votes_count_together() -> None:
    one, same, other = (
        vote(id, "finance", kind="respond", content_digest=content, hours=hours)
        for id, content, hours in (("ada", "x", 0), ("bert", "x", 1), ("cleo", "y", 2))
    )
    assert counted([one, same], TWO) == [(2, 2, 0)]
    assert counted([one, other], TWO) == [(1, 2, 0)]
    assert counted([ADA, one.evolve(by=who("cleo", "finance"))], TWO) == [(1, 2, 0)]
    assert counted([ADA, vote("bert", "finance", digest=OTHER)], TWO) == [(1, 2, 0)]
    # A rejection is of whatever is asked.
    against = vote("bert", "finance", kind="reject", hours=1)
    tally = tallies([TWO], [ADA, against], requested_at=AT, requester=None)
    assert [(each.counted, each.rejected) for each in tally] == [(1, 1)]
    assert decides(tally, "reject") and not decides(tally, "approve")


def test_escalations_count_by_the_time_of_the_last_vote() -> None:
    level = TWO.evolve(
        escalations=(
            Escalation(after=2 * 3600, roles=("head",)),
            Escalation(after=4 * 3600, ids=("cfo",), instead=True, needed=1),
        )
    )
    head = vote("hanna", "head", hours=1)
    assert counted([ADA, head], level) == [(1, 2, 0)]
    assert counted([ADA, head.evolve(at=AT + 2 * HOUR)], level) == [(2, 2, 0)]
    # Those who were replaced do not count any more.
    assert counted([ADA, BERT, vote("cfo", hours=4)], level) == [(1, 1, 0)]
    # At a later time, without another vote.
    for hours, now, those in ((1, (2, 2), [ADA, BERT]), (4, (0, 1), [])):
        later = {"requested_at": AT, "requester": None, "at": AT + hours * HOUR}
        [tally] = tallies([level], [ADA, BERT], **later)
        assert ((tally.counted, tally.needed), counting([level], [ADA, BERT], **later)) == (now, those)
    assert [(each.counted, each.needed) for each in tallies([level], [], **later)] == [(0, 1)]
    # Anybody may already: those who are added change nothing but the number.
    anybody = Approvers(needed=2, escalations=(Escalation(after=3600, roles=("head",), needed=1),))
    assert in_force(anybody, AT, AT + HOUR) == anybody.evolve(needed=1)
    assert told([anybody], AT, AT) == "2 of anybody who says who they are"
    assert told([level], AT, AT + 4 * HOUR) == "1 of cfo"


def test_the_requester_counts_for_no_approval_and_nobody_does_where_they_are_unknown() -> None:
    level = Approvers(roles=("finance",), not_requester=True)
    mine, against = vote("otto", "finance"), vote("otto", "finance", kind="reject")
    assert counted([mine], level) == [(0, 1, 0)]
    assert counted([against], level) == [(0, 1, 1)]
    assert counted([vote("dan", behalf_of=who("otto", "finance"))], level) == [(0, 1, 0)]
    assert counted([ADA], level) == [(1, 1, 0)]
    assert counted([ADA], level, requester=None) == [(0, 1, 0)]


def test_a_predicate_counts_at_its_own_level_alone() -> None:
    levels = (Approvers(predicates=("is_cfo",)), Approvers(of="desk", predicates=("is_cfo",)))
    assert counted([vote("ada", levels=(1,))], *levels) == [(0, 1, 0), (1, 1, 0)]
    # At a level without predicates the place means nothing.
    assert counted([vote("ada", levels=(0,))], TWO) == [(0, 2, 0)]


def test_votes_approve_what_the_last_of_them_is_for() -> None:
    def approve(*votes: Vote, digest: str = DIGEST) -> bool:
        return approves([TWO], votes, digest=digest, requested_at=AT, requester=None)

    assert approve(ADA, BERT) and not approve(ADA) and not approve()
    assert not approve(ADA, BERT, digest=OTHER)
    assert not approve(ADA, BERT, vote("cleo", "finance", kind="reject"))


# On a call


def waiting(**fields: Any) -> Call:
    facts: dict[str, Any] = {"tool": TOOL, "args": {"amount": 5}, "digest": DIGEST, "brief": Brief(approvers=(TWO,))}
    facts |= {"pending_id": "p", "requested_at": AT, "why": "approval", "status": "pending", **fields}
    return Call(id="1.0", call_id="c", name="pay", **facts)


def decision(*votes: Vote, kind: Any = "approve", **fields: Any) -> Decision:
    return Decision(pending_id="p", digest=DIGEST, kind=kind, at=AT, votes=votes, **fields)


@pytest.mark.parametrize(
    ("call", "votes", "kind", "why"),
    [
        (waiting(), (), "approve", "its votes are not those that were cast, and one more"),
        (waiting(), (ADA,), "approve", "it takes more votes"),
        (waiting(votes=(ADA,)), (BERT, vote("cleo", "finance")), "approve", "its votes are not those that were cast"),
        (waiting(votes=(ADA,)), (ADA,), "approve", "its votes are not those that were cast, and one more"),
        (waiting(), (ADA, BERT), "respond", "its last vote is for something else"),
        (waiting(), (ADA, BERT.evolve(digest=OTHER)), "approve", "its last vote is for something else"),
    ],
)
def test_no_decision_is_recorded_without_its_votes(call: Call, votes: tuple[Vote, ...], kind: Any, why: str) -> None:
    outcome = Decided(decision=decision(*votes, kind=kind))
    with pytest.raises(IllegalOutcome, match=why):
        check_votes(call, outcome, None)
    item = PendingApproval(
        id="p", call_id="i", tool=TOOL, args={"amount": 5}, digest=DIGEST, requested_at=AT, approvers=(TWO,)
    )
    around = waiting(status="nested", brief=None, pending_id=None, waiting=(item.evolve(votes=call.votes),))
    with pytest.raises(IllegalOutcome, match=why):
        check_votes_inside(around, outcome.decision)


def test_a_decision_with_its_votes_and_what_is_to_be_checked_elsewhere_is_recorded() -> None:
    check_votes(waiting(votes=(ADA,)), Decided(decision=decision(ADA, BERT)), None)
    check_votes(waiting(why="breakpoint"), Decided(decision=decision()), None)
    check_votes(waiting(), Decided(decision=decision(kind="expire")), None)
    item = PendingApproval(
        id="p", call_id="i", tool=TOOL, args={"amount": 5}, digest=DIGEST, requested_at=AT, approvers=(TWO,)
    )
    around = waiting(status="nested", brief=None, pending_id=None, waiting=(item,))
    check_votes_inside(around, decision(kind="expire"))
    check_votes_inside(around, decision(ADA, to_check=True))
    check_votes_inside(around, decision(ADA, args={"amount": 9}))
    check_votes_inside(around.evolve(waiting=(item.evolve(votes=(ADA,)),)), decision(ADA, BERT))
    # Asked anew with other arguments, it takes its people for these, from then on.
    one = Brief(approvers=(TWO.evolve(needed=1),))
    again = Judgement(id="1.0", verdict="run", tool=TOOL, args={"amount": 9}, digest=OTHER, brief=one)
    votes = (BERT.evolve(digest=OTHER),)
    check_votes(waiting(votes=(ADA,)), Decided(decision=decision(*votes, args={"amount": 9}), edited=again), None)


@each(
    ("before", "votes", "grant", "is_legal"),
    [
        ((), (ADA, BERT), None, False),
        ((ADA,), (ADA, BERT, vote("cleo", "finance")), None, False),
        ((), (ADA.evolve(grant="g"), BERT.evolve(grant="g")), "g", True),
        ((), (ADA.evolve(grant="g"), BERT.evolve(grant="g")), None, False),
        ((), (ADA.evolve(grant="g"), BERT.evolve(grant="h")), "g", False),
        ((), (ADA, BERT.evolve(grant="g")), "g", False),
        ((ADA,), (ADA, BERT), None, True),
    ],
)
def test_a_decision_brings_one_vote_or_those_of_its_grant(
    before: tuple[Vote, ...], votes: tuple[Vote, ...], grant: str | None, is_legal: bool
) -> None:
    outcome = Decided(decision=decision(*votes, grant=grant))
    item = PendingApproval(
        id="p", call_id="i", tool=TOOL, args={"amount": 5}, digest=DIGEST, requested_at=AT, approvers=(TWO,)
    )
    inside = waiting(status="nested", brief=None, pending_id=None, waiting=(item.evolve(votes=before),))
    checks = (
        lambda: check_votes(waiting(votes=before), outcome, None),
        lambda: check_votes_inside(inside, outcome.decision),
        lambda: with_vote(waiting(votes=before), Voted(decision=outcome.decision)),
        lambda: with_vote_inside(inside, inside.waiting[0], Voted(decision=outcome.decision)),
    )
    for check in checks:
        if is_legal:
            check()
        else:
            with pytest.raises(IllegalOutcome, match="its votes are not those that were cast, and one more"):
                check()
    # The run inside a call knows of no votes before: those are noted, and checked, around it.
    check_votes(waiting(), outcome, None, path="1.0")
    assert with_vote(waiting(), Voted(decision=outcome.decision), path="1.0").votes == votes
    alone = inside.evolve(waiting=(item,))
    assert with_vote_inside(alone, item, Voted(decision=outcome.decision), path="1.0").waiting[0].votes == votes


def test_a_vote_is_kept_until_it_decides() -> None:
    assert with_vote(waiting(), Voted(decision=decision(ADA))).votes == (ADA,)
    with pytest.raises(IllegalOutcome, match="its digest is not that of the call"):
        with_vote(waiting(), Voted(decision=decision(ADA).evolve(digest=OTHER)))
    with pytest.raises(IllegalOutcome, match="it is answered, and asked about anew"):
        with_vote(waiting(status="answered"), Voted(decision=decision(ADA)))
    again = Judgement(id="1.0", verdict="pend", tool=TOOL, args={"amount": 5}, digest=DIGEST, pending_id="p")
    with pytest.raises(IllegalOutcome, match="under an id of its own"):
        with_vote(waiting(), Voted(decision=decision(ADA), request=again))
    item = PendingApproval(
        id="p", call_id="i", tool=TOOL, args={"amount": 5}, digest=DIGEST, requested_at=AT, why="question"
    )
    with pytest.raises(IllegalOutcome, match="what waits inside it takes no such vote"):
        with_vote_inside(waiting(waiting=(item,)), item, Voted(decision=decision(ADA)))


def test_a_step_is_announced_once_and_in_order() -> None:
    item = PendingApproval(
        id="p",
        call_id="i",
        tool=TOOL,
        args={"amount": 5},
        digest=DIGEST,
        requested_at=AT,
        remind=(3600.0, 7200.0),
        expires_at=AT + 1.5 * HOUR,
    )
    assert next_due(item) == AT + HOUR
    assert step_due(item, AT) is None and step_due(item, AT + HOUR) == (3600.0, "reminded")
    assert next_due(item.evolve(reminded=1)) == AT + 1.5 * HOUR and next_due(item.evolve(reminded=2)) == item.expires_at
    assert next_due(item.evolve(remind=(), expires_at=None)) is None
    assert step_due(item, AT + 2 * HOUR) is None  # it has expired
    call = waiting()
    told_once = with_reminder(call, Reminded(pending_id="p", what="reminded", step=0, at=AT))
    assert told_once.reminded == 1
    with pytest.raises(IllegalOutcome, match="announced before, or is not the next"):
        with_reminder(told_once, Reminded(pending_id="p", what="reminded", step=0, at=AT))


def test_who_edits_into_what_asks_for_others_is_in_the_record_and_counts_for_nothing() -> None:
    paid: list[int] = []

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    large = Approval(when=lambda args: args["amount"] > 100, by="finance")
    model = ScriptedModel.by_turn([call("pay", {"amount": 5}), "done"])
    desk = Agent(name="desk", model=model, tools=[pay], approval_policy={"pay": large}, store=MemoryStore())
    asked = desk.invoke("go").checkpoint
    result = desk.resume(asked, decisions={asked.pending[0].id: Approve(args={"amount": 500})}, by="mal")
    (item,) = result.checkpoint.pending
    assert (paid, item.args, [each.by.id for each in item.votes]) == ([], {"amount": 500}, ["mal"])
    assert desk.resume(result.checkpoint, approved=True, by=who("ada", "finance")).status == "completed"
    assert paid == [500]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_whose_edit_asks_for_people_leaves_the_call_to_them(is_async: bool) -> None:
    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    large = Approval(when=lambda args: args["amount"] > 100, by="finance")
    desk = Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("pay", {"amount": 5}), "done"]),
        tools=[pay],
        approval_policy={"pay": large},
        on_approval_required=lambda name, args: Approve(args={"amount": 500}),
        store=MemoryStore(),
    )
    result = asyncio.run(desk.ainvoke("go")) if is_async else desk.invoke("go")
    # What the handler wanted is nowhere: people are asked about what the model wanted, and may edit it themselves.
    assert [(item.args, item.votes) for item in result.checkpoint.pending] == [({"amount": 5}, ())]

"""Tiers: how many people have to approve follows from the arguments of each call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from approver_scenes import BOB, CAT, DAN, PAID, Desk, is_fay, nested
from drivers import Driver
from places import Place
from tables import each
from typing_extensions import TypedDict

from phronomy import Approval, Approve, ConfigurationError, Principal, ToolContext
from phronomy.graph import END, START, StateGraph
from phronomy.testing import call

pytestmark = pytest.mark.worlds(2)

FAY = Principal(id="fay")


def by_amount(args: Mapping[str, Any]) -> int:
    return 1 if args["amount"] <= 1_000 else 2 if args["amount"] <= 10_000 else 3


TIERS = Approval(by="lead", needed=by_amount)


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


def pays(amount: int) -> Any:
    return [call("pay", {"order": 1, "amount": amount}), "Done."]


@each("amount, needed", [(5, 1), (1_000, 1), (1_001, 2), (10_001, 3)])
def test_the_amount_says_how_many_approve(desk: Desk, amount: int, needed: int) -> None:
    desk.paid.clear()
    item = desk.asked(TIERS, replies=pays(amount))
    assert [level.needed for level in item.approvers] == [needed]
    for place, who in enumerate([BOB, CAT, DAN][:needed], start=1):
        assert desk.paid == []
        assert desk.vote(item, who, alone=place % 2 == 0) == ("approved" if place == needed else "counted")
    desk.work()
    assert desk.paid == [{"order": 1, "amount": amount}]


def test_an_edit_asks_for_as_many_as_its_arguments_need(desk: Desk) -> None:
    item = desk.asked(TIERS, replies=pays(5))
    assert desk.vote(item, BOB, answer=Approve(args={"order": 1, "amount": 5_000})) == "approved"
    (row,) = desk.store.pending()
    assert (row.approval.votes[0].by.id, row.approval.approvers[0].needed, desk.paid) == ("bob", 2, [])
    assert desk.vote(row.approval, CAT) == "approved"
    assert desk.paid == [{"order": 1, "amount": 5_000}]


def test_who_is_named_by_a_function_counts_in_each_tier(desk: Desk) -> None:
    item = desk.asked(Approval(by=[is_fay, "lead"], needed=by_amount), replies=pays(5_000))
    assert desk.vote(item, FAY) == "counted"
    assert desk.vote(item, BOB) == "approved"
    assert desk.paid == [{"order": 1, "amount": 5_000}]


def test_a_policy_counts_too_and_with_the_context(desk: Desk) -> None:
    def by_depth(args: Mapping[str, Any], context: ToolContext[Any]) -> int:
        return 2 if context.messages and args["amount"] == PAID["amount"] else 1

    item = nested(desk, False, Approval(needed=by_depth))
    assert [(level.of, level.needed) for level in item.approvers] == [("the approval policy of clerk (pay)", 2)]
    assert desk.vote(item, "eve") == "counted"
    assert desk.vote(item, "gus") == "approved"


def test_no_handler_answers_where_people_are_counted(desk: Desk) -> None:
    item = desk.asked(Approval(needed=by_amount), on_approval_required=desk.driver.function(lambda name, args: True))
    assert (item.approvers[0].needed, desk.paid) == (1, [])
    assert desk.vote(item, None) == "refused"
    assert desk.vote(item, "eve") == "approved"


def three(args: Mapping[str, Any]) -> int:
    return 3


@each(
    "needed, by, why",
    [
        (lambda args: args["sum"], "lead", "raised KeyError"),
        (lambda args: 0, "lead", "is a number of people, 1 to 1,000, and not 0"),
        (lambda args: None, "lead", "and not None"),
        (lambda args: 10**30, "lead", "1 to 1,000"),
        (lambda args: True, "lead", "and not True"),
        (lambda args: 1.5, "lead", "and not 1.5"),
        (three, [BOB, CAT], "it takes 3 people, and names 2"),
    ],
)
def test_a_call_of_which_nobody_can_say_how_many_it_takes_is_rejected(
    desk: Desk, needed: Any, by: Any, why: str
) -> None:
    result = desk.driver.invoke(desk.agent(Approval(by=by, needed=needed)), "Pay")
    (said,) = [message for message in result.messages if message.role == "tool"]
    assert (result.status, said.settlement, desk.paid) == ("completed", "rejected", [])
    assert why in said.text and "the approval of tool pay" in said.text


def test_the_function_has_a_copy_of_the_arguments(desk: Desk) -> None:
    def greedy(args: Any) -> int:
        with pytest.raises(TypeError):
            args["amount"] = 1
        return 1

    item = desk.asked(Approval(by="lead", needed=greedy))
    assert desk.vote(item, BOB) == "approved"
    assert desk.paid == [PAID]


class Payment(TypedDict):
    amount: int


def paying(desk: Desk, gate: Any) -> Any:
    """A graph of one node that pays."""
    made = StateGraph(Payment)
    made.add_node("pay", lambda state: desk.paid.append({**state}) or {}, requires_approval=gate)
    made.add_edge(START, "pay")
    made.add_edge("pay", END)
    return made.compile(name="flow", store=desk.open())


def test_a_node_counts_by_the_state(desk: Desk) -> None:
    graph = paying(desk, TIERS)
    (item,) = desk.driver.invoke(graph, {"amount": 5_000}).checkpoint.pending
    assert item.approvers[0].needed == 2


def test_a_fork_with_another_state_asks_as_many_as_that_needs_and_says_so(desk: Desk) -> None:
    said = {"title": "Pay {amount}", "context": lambda state: f"{state['amount']} in all"}
    graph = paying(desk, Approval(by="lead", needed=by_amount, **said))
    before = desk.driver.invoke(graph, {"amount": 5}).checkpoint
    forked = desk.driver.fork(graph, before, update={"amount": 5_000}, by="eve")
    (item,) = forked.pending
    assert (item.title, item.context, item.approvers[0].needed) == ("Pay 5000", "5000 in all", 2)
    assert desk.driver.resume(graph, forked, approved=True, by=BOB).status == "suspended"
    assert desk.driver.resume(graph, forked, approved=True, by=CAT).status == "completed"
    assert desk.paid == [{"amount": 5_000}]


def test_a_fork_of_a_node_that_anybody_approves_shows_the_other_state(desk: Desk) -> None:
    graph = paying(desk, True)
    before = desk.driver.invoke(graph, {"amount": 5}).checkpoint
    (item,) = desk.driver.fork(graph, before, update={"amount": 5_000}, by="eve").pending
    assert item.args["state"] == {"amount": 5_000}


async def slow(state: Any) -> str:
    return f"{state['amount']} in all"


def lists(state: Any) -> int:
    return {5: 1}[state["amount"]]


@each("approval", [{"needed": lists}, {"needed": by_amount, "title": slow}])
def test_a_fork_that_needs_a_judgement_is_judged_by_its_next_driver(desk: Desk, approval: Any) -> None:
    if approval.get("title") is slow and desk.driver.name == "sync":
        return
    graph = paying(desk, Approval(by="lead", **approval))
    before = desk.driver.invoke(graph, {"amount": 5}).checkpoint
    forked = desk.driver.fork(graph, before, update={"amount": 5_000}, by="eve")
    assert forked.pending == ()
    driven = desk.driver.resume(graph, forked)
    asked = [(item.title, item.approvers[0].needed) for item in driven.checkpoint.pending]
    assert asked == ([("5000 in all", 2)] if "title" in approval else [])
    assert desk.paid == []


async def late(args: Mapping[str, Any]) -> int:
    return 1


@each(
    "needed, words",
    [
        (late, "needed is async, and it only counts people: write a plain function"),
        (lambda: 1, "args"),
        (0, "needed is a number of people, 1 to 1,000, not 0"),
        ("2", "needed is a number of people, 1 to 1,000, not '2'"),
    ],
)
def test_what_cannot_count_is_refused_as_the_tool_is_made(desk: Desk, needed: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        desk.agent(Approval(needed=needed))

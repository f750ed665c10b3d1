"""What the pages say of votes and of people: how many there are after a decision, what one vote does, and why somebody may not."""

from __future__ import annotations

from typing import Any

import pytest
from inbox_scenes import RITA, ByHeader, Visitor
from page_scenes import MIA, Pages
from tables import each

from phronomy import Approval, MemoryStore, PendingApproval, Principal, tool

ANN = Principal(id="ann", name="Ann", roles=("lead",))
TWO = Approval(by="lead", needed=2)
OTHERS = Approval(by="lead", not_requester=True)


@pytest.fixture
def pages() -> Pages:
    return Pages(auth=ByHeader(RITA, MIA, ANN))


def levels(pages: Pages, item: PendingApproval) -> list[tuple[int, int, int]]:
    found = Visitor(pages.inbox, "rita").get(f"/api/v1/requests/{item.id}").json()
    return [(each["counted"], each["needed"], each["rejected"]) for each in found["levels"]]


def asked_by_nobody(pages: Pages) -> PendingApproval:
    return pages.agent(OTHERS).invoke("Refund it").checkpoint.pending[0]


def test_a_vote_is_told_from_a_decision(pages: Pages) -> None:
    item = pages.asked(TWO)
    first = pages.shown(item).text
    assert "Your yes is a vote: it runs once, with exactly these values, once enough people" in first
    assert "0 of 2 so far" in first and "It runs once, with exactly these values." not in first
    pages.decided(item, "approve", "mia")
    second = pages.shown(item).text
    assert "It runs once, with exactly these values." in second and "Your yes is a vote" not in second


def test_an_edit_after_a_vote_is_a_vote_of_its_own(pages: Pages) -> None:
    item = pages.asked(TWO)
    pages.decided(item, "approve", "mia")
    review = pages.sent(pages.form(item, "edit"), **{"f/amount": "4"})
    assert "Your yes is a vote" in review.text and "0 of 2 so far" in review.text


def test_a_rejection_that_takes_two_is_a_vote(pages: Pages) -> None:
    item = pages.asked(Approval(by="lead", rejections=2))
    assert "Your no is a vote" in pages.shown(item).text
    pages.decided(item, "reject", "mia", reason="Too much.")
    assert "Your no is a vote" not in pages.shown(item).text


def test_after_a_decision_all_votes_are_counted(pages: Pages) -> None:
    item = pages.asked(TWO)
    for who in ("mia", "rita"):
        pages.decided(item, "approve", who)
    text = pages.state(item)[1]
    assert "2 of 2." in text and "so far" not in text
    assert levels(pages, item) == [(2, 2, 0)]
    votes = Visitor(pages.inbox, "rita").get(f"/api/v1/requests/{item.id}").json()["votes"]
    assert [each["by"]["id"] for each in votes] == ["mia", "rita"]


def test_after_a_rejection_it_is_counted_as_one(pages: Pages) -> None:
    item = pages.asked(TWO)
    pages.decided(item, "reject", reason="Too much.")
    assert "1 of 1 against" in pages.state(item)[1]
    assert levels(pages, item) == [(0, 2, 1)]


def test_who_asked_reads_why_they_may_only_reject(pages: Pages) -> None:
    item = pages.asked(OTHERS)
    page = pages.shown(item, "ann")
    assert [each.attributes["data-way"] for each in page.all(class_="choice")] == ["reject"]
    assert "You asked for this, so somebody else has to approve it. Asked for: 1 of lead" in page.text
    assert "You asked for this" not in pages.shown(item).text


def test_what_nobody_can_approve_says_so(pages: Pages) -> None:
    item = asked_by_nobody(pages)
    text = pages.shown(item).text
    assert "Nobody can approve this: who asked for it may not, and it is not recorded who that was." in text
    assert "invoke" not in text


def test_what_a_policy_asks_is_told_in_words(pages: Pages) -> None:
    @tool
    def pay(order: int) -> str:
        """Pay."""
        return "paid"

    item = pages.waits(pages.of(pay, {"order": 1}, approval_policy={"pay": Approval(by="lead")}))
    page = pages.shown(item).text
    assert "The approval policy of desk (pay) asks for an approval." in page
    assert "The tool needs an approval" not in page, "it has none of its own"
    assert "Who may decidelead" in page and "so far" not in page
    assert "The tool needs an approval." in pages.shown(pages.asked()).text


def test_no_id_stands_in_what_somebody_reads_who_may_not_decide(pages: Pages) -> None:
    pages.inbox = Pages(pages.store).inbox
    item = pages.asked(TWO)
    name, text = pages.state(item, "otto")
    assert name == "may_not" and text.count("Asked for: 2 of lead.") == 1 and "pend" not in text
    assert "Other people are asked to decide this." in text
    row = pages.page("/?view=all", "otto").one("ol", class_="rows").text
    assert "Asked for: 2 of lead." in row and item.id not in row


@pytest.mark.parametrize(
    ("then", "before", "after", "told"),
    [
        ("continue", "goes on without it", "The agent was told", "The agent reads this text."),
        ("block", "the same call is refused from now on", "The agent was told", "The agent reads this text."),
        (
            "block_tool",
            "every call of this tool is refused from now on",
            "The agent was told",
            "The agent reads this text.",
        ),
        ("end", "The whole run ends here, with your reason", "the run ended here", "What is recorded"),
    ],
)
def test_what_follows_a_rejection_is_said_as_it_was_chosen(
    pages: Pages, then: str, before: str, after: str, told: str
) -> None:
    item = pages.asked(risk="high")
    assert "you choose below" in pages.shown(item).text
    review = pages.sent(pages.form(item, "reject"), reason="No.", then=then)
    assert before in review.text
    assert pages.send(review.form(f"/requests/{item.id}/decision")).status_code == 303
    assert "What happens next: " in pages.state(item)[1]
    pages.carry_out()
    text = pages.state(item)[1]
    assert after in text and told in text
    assert ("The agent reads" in text) == (then != "end")


def test_a_request_leads_to_the_conversation_of_its_run(pages: Pages) -> None:
    item = pages.asked()
    page = pages.shown(item)
    assert "What was said before is not given with this request." in page.text
    [link] = [each for each in page.all("a") if each.text == "The conversation of this run"]
    assert "Refund it" in pages.page(link.attributes["href"]).text
    pages.decided(item, "approve")
    assert [each for each in pages.shown(item).one(id="state").all("a") if each.text == "The conversation of this run"]


def test_rows_that_look_alike_can_be_told_apart(pages: Pages) -> None:
    agent = pages.agent()
    for thread in ("order-1", "order-2"):
        agent.invoke("Refund it", thread_id=thread, requester=Principal(id="ann", name="Ann"))
    rows = [each.text for each in pages.page("/").one("ol", class_="rows").all("li")]
    assert [thread in row for thread, row in zip(("order-1", "order-2"), rows, strict=True)] == [True, True]
    assert all("for Ann" in row and "agent desk" in row and "09:00" in row for row in rows)


# The two decisions, and who is told of whom


@each(
    ("risk", "action"),
    [("low", "decision"), (None, "decision"), ("medium", "decision"), ("high", "review"), ("dire", "review")],
)
def test_the_bar_decides_at_once_what_is_not_risky(risk: Any, action: str) -> None:
    """A press approves; a risky call is shown once more. A rejection has a reason first, at the place to which its link leads."""
    pages = Pages(MemoryStore())
    item = pages.asked(risk=risk)
    page = pages.shown(item)
    bar = page.one("div", class_="bar")
    approve, reject = bar.one("form"), bar.one("a")
    assert approve.attributes["action"] == f"/requests/{item.id}/{action}" and approve.text == "Approve refund"
    assert reject.text == "Reject refund" and page.one("textarea", id=reject.attributes["href"][1:])
    assert ("You see it once more" in page.text) == (action == "review")
    answer = pages.send(approve)
    assert answer.status_code == (303 if action == "decision" else 200)
    assert (pages.store.request(item.id).decision is not None) == (action == "decision")


@each(
    ("gate", "votes", "panel"),
    [
        (True, 0, False),
        (Approval(by="lead"), 0, False),
        (OTHERS, 0, False),
        (TWO, 0, True),
        (TWO, 1, True),
        (TWO, 2, True),
        (Approval(by="lead"), 1, False),
        (Approval(by="lead", rejections=2), 0, True),
    ],
)
def test_who_decides_is_a_panel_where_it_takes_more_than_one_person(gate: Any, votes: int, panel: bool) -> None:
    pages = Pages(MemoryStore())
    item = pages.asked(gate)
    for who in ("mia", "rita")[:votes]:
        pages.decided(item, "approve", who)
    text = pages.shown(item).text
    assert ("Who decides" in text) == panel
    assert ("Who may decidelead" in text) == (isinstance(gate, Approval) and not panel)
    if votes == 1 and not panel:
        assert "Approved by Mia" in text

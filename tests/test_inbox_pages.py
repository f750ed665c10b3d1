"""A request on its page: each state of it, and each way to answer it."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from inbox_scenes import FOUR, OTTO, RITA, ByHeader, Visitor
from page_reader import read
from page_scenes import Pages
from places import Place

from phronomy import (
    Agent,
    Approval,
    Approve,
    Breakpoint,
    Escalate,
    OutcomeUnknown,
    Principal,
    Reject,
    Respond,
    interrupt,
    tool,
)
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker

Way = Literal["card", "bank"]

BOTH = Approval(by="lead", needed=2, title="Refund order 1042", context="The parcel is lost.")


@pytest.fixture
def pages() -> Pages:
    return Pages()


# The states


def test_a_request_that_waits_says_what_will_run_and_what_follows(pages: Pages) -> None:
    item = pages.asked(Approval(title="Refund order 1042", context="The parcel is lost.", expires=7200))
    page = pages.shown(item)
    assert page.one("h1").text == "Refund order 1042"
    assert page.one("section", id="state").attributes["data-state"] == "pending"
    values = {each.one("dt").text: each.one("dd").text for each in page.one("dl", class_="values").all("div")}
    assert values == {"order": "1042", "amount": "5.0", "note": "no value (null)"}
    for part in (
        "The parcel is lost.",
        "Refund an order, in euros.",
        "On whose behalf Ann",
        "25 November 2026, 11:00 UTC, in 2 hours",
        "It runs once, with exactly these values.",
        "The agent is told your reason",
        "nobody decided in time",
        item.digest,
    ):
        assert part in page.text.replace("behalfAnn", "behalf Ann"), part
    assert [each.attributes["data-way"] for each in page.all(class_="choice")] == [
        "approve", "reject", "edit", "respond",
    ]  # fmt: skip
    assert not [each for each in page.all() if "autofocus" in each.attributes]


def test_each_form_carries_what_binds_it_to_this_page(pages: Pages) -> None:
    item = pages.asked()
    forms = pages.shown(item).all("form")
    sent = [dict(each.sent()) for each in forms]
    assert {each["digest"] for each in sent} == {item.digest}
    assert all(len(each["csrf"]) == 64 and each["key"] for each in sent)
    assert sent[0]["key"] != dict(pages.shown(item).all("form")[0].sent())["key"]


def test_partly_voted_says_who_has_and_what_is_missing(pages: Pages) -> None:
    item = pages.asked(BOTH)
    pages.decided(item, "approve", "mia")
    name, text = pages.state(item)
    assert name == "partly_voted"
    assert "Others have voted" in text and "1 of 2 so far" in text and "2 of lead" in text
    assert "Mia (mia) approved, 09:00 UTC" in text
    assert pages.shown(item).all("form", data_way="approve")


def test_after_ones_own_vote_the_page_says_so_and_offers_nothing(pages: Pages) -> None:
    item = pages.asked(BOTH)
    pages.decided(item, "approve")
    name, text = pages.state(item)
    assert name == "voted" and "Your vote is in" in text and "You approved" in text
    assert not pages.shown(item).all(class_="choice")


def test_who_may_not_decide_reads_why(pages: Pages) -> None:
    item = pages.asked(BOTH)
    name, text = pages.state(item, "otto")
    assert name == "may_not" and "You can read this, not decide it" in text and "2 of lead" in text
    assert not pages.shown(item, "otto").all("form")
    own = Pages(pages.store, auth=ByHeader(RITA, scopes=FOUR - {"decide"}))
    other = pages.asked(name="other")
    assert "signed in to read" in own.state(other)[1]
    assert not own.shown(other).all("form")


def test_where_only_code_can_tell_who_may_the_page_says_so(pages: Pages) -> None:
    item = pages.asked(
        Approval(by=lambda principal, request: principal.id == "rita", escalate=Escalate(after=60, by="lead"))
    )
    assert "code knows whether you may decide. It is asked when you try." in pages.state(item)[1]


def test_decided_by_oneself_and_by_somebody_else(pages: Pages) -> None:
    item = pages.asked()
    pages.decided(item, "approve")
    name, text = pages.state(item)
    assert name == "recorded" and "Approved by you, 09:00 UTC" in text and "waits for a worker" in text
    assert "Approved by Rita (rita), 09:00 UTC" in pages.state(item, "otto")[1]
    assert not pages.shown(item, "otto").all("form")


def test_what_an_agent_that_has_changed_cannot_carry_out_waits_for_an_operator(pages: Pages) -> None:
    item = pages.asked()
    pages.decided(item, "approve")
    bare = Agent(name="desk", model=ScriptedModel(["Done."]), store=pages.store)
    asyncio.run(Worker(bare, tries=1).once())
    name, text = pages.state(item)
    assert name == "set_aside" and "This waits for an operator" in text
    assert "the agent has changed: tool 'refund' of a pending call is gone" in text
    pages.carry_out()  # the agent as it was
    assert pages.state(item)[0] == "done"


def test_decided_elsewhere_says_by_which_way(pages: Pages) -> None:
    item = pages.asked()
    pages.store.decide(item.id, Reject(reason="Too late."), by=OTTO, digest=item.digest, channel="slack")
    name, text = pages.state(item)
    assert (
        name == "recorded" and "Rejected by Otto (otto)" in text and "by way of slack" in text and "Too late." in text
    )


def test_carrying_out_then_done_with_the_result(pages: Pages) -> None:
    item = pages.asked()
    pages.decided(item, "approve")
    seen: list[tuple[str, str]] = []
    pages.body = lambda: seen.append(pages.state(item))
    pages.carry_out()
    assert seen[0][0] == "carrying_out" and "It is being carried out" in seen[0][1] and "Look again" in seen[0][1]
    name, text = pages.state(item)
    assert name == "done" and "Approved by you" in text and "order 1042: 5.0 euros are on their way" in text
    assert "Look again" not in text


def test_failed_is_told_with_the_error(pages: Pages) -> None:
    def fail() -> None:
        raise ValueError("the bank is closed")

    item = pages.asked()
    pages.decided(item, "approve")
    pages.body = fail
    pages.carry_out()
    name, text = pages.state(item)
    assert name == "failed" and "It failed" in text and "the bank is closed" in text


def test_unknown_leads_to_the_request_that_asks_about_it(pages: Pages) -> None:
    def lose() -> None:
        raise OutcomeUnknown("the line went dead")

    item = pages.asked()
    pages.decided(item, "approve")
    pages.body = lose
    pages.carry_out()
    name, text = pages.state(item)
    assert name == "unknown" and "It is not known whether this took effect" in text
    again = pages.store.request(item.id).asked_again
    page = pages.shown(item)
    assert page.all("a", href=f"/requests/{again}")[0].text == "Go to the request in its place"
    other = pages.page(f"/requests/{again}")
    assert "Did refund happen? Nobody knows" in other.text and "it may take effect twice" in other.text


def test_a_call_that_failed_is_asked_again(pages: Pages) -> None:
    def fail() -> None:
        raise ValueError("the bank is closed")

    item = pages.asked(on_failure="human")
    pages.decided(item, "approve")
    pages.body = fail
    pages.carry_out()
    name, text = pages.state(item)
    assert name == "asked_again" and "Go to the request in its place" in text


def test_rejected_is_settled_as_not_run(pages: Pages) -> None:
    item = pages.asked()
    pages.decided(item, "reject", reason="The parcel has arrived.")
    assert "Nothing will run" in pages.state(item)[1]
    pages.carry_out()
    name, text = pages.state(item)
    assert name == "not_run" and "Rejected by you" in text and "The parcel has arrived." in text


def test_expired_before_and_after_it_is_settled(pages: Pages) -> None:
    item = pages.asked(Approval(expires=60))
    pages.clock.now += 61
    name, text = pages.state(item)
    assert name == "expired" and "A clock never approves" in text
    assert not pages.shown(item).all("form")
    pages.carry_out()
    assert pages.state(item)[0] == "expired"


def test_withdrawn_with_its_run(pages: Pages) -> None:
    item = pages.asked()
    pages.decided(item, "approve")
    pages.agents["desk"].cancel(pages.store.request(item.id).run_id, by="ann")
    name, text = pages.state(item)
    assert name == "withdrawn" and "Its run was cancelled" in text


def test_what_was_cancelled_before_anybody_decided_leaves_a_page_that_says_so(pages: Pages) -> None:
    item = pages.asked()
    form = pages.form(item, "reject")
    pages.agents["desk"].cancel(pages.store.request(item.id).run_id, by="ann")
    assert "Its run was cancelled" in pages.page(f"/requests/{item.id}", status=404).text
    page = pages.sent(form, status=404, reason="A long <reason>.")
    assert "This does not wait" in page.text and page.one("textarea").whole.strip() == "A long <reason>."


def test_a_request_that_is_not_there_is_no_request(pages: Pages) -> None:
    nothing = pages.page("/requests/pend_none", status=404).text
    theirs = Pages(pages.store, auth=ByHeader(RITA, tenant="other"))
    item = pages.asked()
    assert theirs.page(f"/requests/{item.id}", status=404).text == nothing


def test_the_fragment_of_the_state_is_that_part_of_the_page(pages: Pages) -> None:
    item = pages.asked(BOTH)
    answer = pages.visitor().get(f"/requests/{item.id}/state")
    fragment = read(answer.text).one("section", id="state")
    page = pages.shown(item).one("section", id="state")
    assert fragment.text == page.text and fragment.attributes == page.attributes
    assert page.attributes["data-look"] == f"/requests/{item.id}/state"
    assert "data-follows" not in page.attributes
    pages.decided(item, "approve")
    assert "data-follows" in pages.shown(item).one("section", id="state").attributes


# The ways to answer


def test_an_approval_of_a_plain_tool_counts_at_once_and_once(pages: Pages) -> None:
    item = pages.asked()
    form = pages.form(item, "approve")
    assert form.attributes["action"] == f"/requests/{item.id}/decision"
    first, second = pages.send(form), pages.send(form)
    assert first.status_code == second.status_code == 303
    decision = pages.store.request(item.id).decision
    assert decision is not None and decision.channel == "inbox" and decision.key == form.filled()["key"]


def test_a_risky_tool_is_looked_at_once_more(pages: Pages) -> None:
    item = pages.asked(risk="high")
    form = pages.form(item, "approve")
    assert form.attributes["action"] == f"/requests/{item.id}/review"
    review = pages.sent(form)
    assert "Last look before it counts" in review.text and item.digest in review.text and "5.0" in review.text
    confirm = review.form(f"/requests/{item.id}/decision")
    # Sent past the review, it is reviewed all the same; with the seal of another answer, too.
    for changes in ({"confirmed": None}, {"confirmed": "0" * 64}):
        again = pages.sent(confirm, **changes)
        assert "Last look before it counts" in again.text
    other = pages.sent(confirm, answer="reject", reason="No.")
    assert "Last look before it counts" in other.text and "No." in other.text
    assert pages.store.request(item.id).status == "pending"
    assert pages.send(confirm).status_code == 303
    assert pages.store.request(item.id).decision is not None


def test_from_the_review_one_can_go_back_with_what_one_typed(pages: Pages) -> None:
    item = pages.asked(risk="high")
    review = pages.sent(pages.form(item, "reject"), reason="Not \r\nthis one", then="end")
    assert "The whole run ends here" in review.text
    back = pages.visitor().post(
        f"/requests/{item.id}/review", data=review.form(f"/requests/{item.id}/decision").filled(back="1")
    )
    choice = read(back.text).one("details", data_way="reject")
    assert "open" in choice.attributes
    assert choice.all("form")[0].filled()["reason"] == "Not \r\nthis one"
    assert choice.all("form")[0].filled()["then"] == "end"


def test_a_rejection_needs_a_reason(pages: Pages) -> None:
    item = pages.asked()
    page = pages.sent(pages.form(item, "reject"), reason="  ", status=422)
    assert page.one(role="alert").one("a", href="#reason").text.startswith("Say why")
    assert "open" in page.one("details", data_way="reject").attributes
    assert pages.store.request(item.id).status == "pending"
    pages.decided(item, "reject", reason="The parcel has arrived.", then="block")
    decision = pages.store.request(item.id).decision
    assert decision is not None and (decision.reason, decision.then) == ("The parcel has arrived.", "block")


def test_a_result_is_given_in_place_of_the_tool(pages: Pages) -> None:
    item = pages.asked()
    assert "Write what the agent is to get" in pages.sent(pages.form(item, "respond"), content="", status=422).text
    pages.decided(item, "respond", content="I paid in cash.\n")
    decision = pages.store.request(item.id).decision
    assert decision is not None and decision.content == "I paid in cash.\n"
    pages.carry_out()
    assert pages.state(item)[0] == "done"


def test_an_edit_is_checked_shown_as_a_change_and_then_counts(pages: Pages) -> None:
    item = pages.asked()
    form = pages.form(item, "edit")
    review = pages.sent(form, **{"f/order": "9007199254740993", "f/note": "Sorry", "n/note": None})
    changed = [
        (each.one("dt").text, each.one("del").text, each.one("ins").text)
        for each in review.one("dl", class_="diff").all("div")
    ]
    assert changed == [("order", "before: 1042", "now: 9007199254740993"), ("note", "before: null", 'now: "Sorry"')]
    confirm = review.form(f"/requests/{item.id}/decision")
    assert confirm.filled()["args"] == '{"order":9007199254740993,"amount":5.0,"note":"Sorry"}'
    assert "Digest of what will run" in review.text
    assert confirm.one("button", class_="yes").text == "Approve refund with these changes"
    back = read(pages.visitor().post(f"/requests/{item.id}/review", data=confirm.filled(back="1")).text)
    again = back.one("details", data_way="edit").all("form")[0].filled()
    assert (again["f/order"], again["f/note"], again.get("n/note")) == ("9007199254740993", "Sorry", None)
    assert pages.send(confirm).status_code == 303
    assert "Approved with changes by you" in pages.state(item)[1]
    pages.carry_out()
    assert "order 9007199254740993: 5.0 euros" in pages.state(item)[1]


def test_an_edit_that_does_not_fit_is_told_at_its_field_and_in_a_summary(pages: Pages) -> None:
    item = pages.asked()
    page = pages.sent(pages.form(item, "edit"), status=422, **{"f/order": "many", "f/amount": "7"})
    summary = page.one(role="alert")
    link = summary.one("a")
    assert "Write a whole number" in link.text
    field = page.one(id=link.attributes["href"][1:])
    assert (field.attributes["name"], field.attributes["value"], field.attributes["aria-invalid"]) == (
        "f/order",
        "many",
        "true",
    )
    assert page.one("details", data_way="edit").all("form")[0].filled()["f/amount"] == "7"
    nothing = pages.sent(pages.form(item, "edit"), status=422)
    assert "Nothing is changed" in nothing.one(role="alert").text
    assert pages.store.request(item.id).status == "pending"


def test_what_the_schema_refuses_is_told_at_the_nearest_field(pages: Pages) -> None:
    @tool(requires_approval=True)
    def pay(to: list[dict[str, int]]) -> str:
        """Pay."""
        return "paid"

    item = pages.waits(pages.of(pay, {"to": [{"a": 1}]}))
    page = pages.sent(pages.form(item, "edit"), status=422, **{"f/to/-": '{"b":"x"}'})
    assert "integer is wanted" in page.one(role="alert").text


def test_all_values_can_be_edited_as_json(pages: Pages) -> None:
    item = pages.asked()
    form = pages.shown(item).one("details", data_way="edit").all("form")[1]
    assert form.filled()["args"] == item.json_text("args")
    for text, why in (
        ("{", "no JSON"),
        ("[1]", "an object"),
        ('{"order":"x"}', "integer is wanted"),
        ('{"order":1,"order":2}', "twice"),
    ):
        page = pages.sent(form, status=422, args=text)
        assert why in page.one(role="alert").text
        assert page.one("textarea", id="args").whole.removeprefix("\n") == text
    review = pages.sent(form, args='{"order": 7, "amount": 5.0, "note": null}')
    assert review.form(f"/requests/{item.id}/decision").filled()["args"] == '{"order":7,"amount":5.0,"note":null}'


def test_a_question_is_answered_in_its_type(pages: Pages) -> None:
    @tool
    def ask(order: int) -> str:
        """Ask."""
        return str(interrupt("Which way shall the money go?", answer=Way))

    item = pages.waits(pages.of(ask, {"order": 1}))
    page = pages.shown(item)
    assert page.one("h1").text == "Which way shall the money go?"
    form = pages.form(item, "respond")
    assert [each.text for each in form.all("option")] == ["not set", "card", "bank"]
    assert "A value is needed" in pages.sent(form, status=422).one(role="alert").text
    pages.decided(item, "respond", f="1")
    decision = pages.store.request(item.id).decision
    assert decision is not None and decision.content == "bank"


def test_a_breakpoint_can_be_skipped(pages: Pages) -> None:
    @tool
    def pay(order: int) -> str:
        """Pay."""
        return "paid"

    item = pages.waits(pages.of(pay, {"order": 1}, breakpoints=[Breakpoint("tool", tools=["pay"])]))
    page = pages.shown(item)
    assert page.one("h1").text == "Stopped before pay" and "Let it go on" in page.text
    pages.decided(item, "skip")
    pages.carry_out()
    assert pages.state(item)[0] == "not_run"


# What does not count


@pytest.mark.parametrize(
    ("meanwhile", "status", "title"),
    [
        ("decided", 409, "Otto (otto) was first"),
        ("expired", 409, "The time to decide was over"),
        ("role", 403, "You may not decide this"),
        ("digest", 409, "This is not what you were shown"),
    ],
)
def test_what_happened_meanwhile_is_told_and_the_text_is_kept(
    pages: Pages, meanwhile: str, status: int, title: str
) -> None:
    item = pages.asked(Approval(expires=60, by=["lead", "clerk"]))
    form = pages.form(item, "reject")
    changes: dict[str, str | None] = {"reason": "A long <reason>.", "then": "continue"}
    match meanwhile:
        case "decided":
            pages.store.decide(item.id, Approve(), by=OTTO, digest=item.digest, channel="slack")
        case "expired":
            pages.clock.now += 61
        case "role":
            pages.inbox.site.auth = (ByHeader(Principal(id="rita", name="Rita", roles=("guest",))),)
        case "digest":
            changes["digest"] = "0" * 64
    answer = pages.send(form, **changes)
    page = read(answer.text).one("main")
    assert (answer.status_code, page.one("h1").text) == (status, title)
    assert page.one("textarea").whole.strip() == "A long <reason>."
    if meanwhile == "decided":
        assert "Approved by Otto (otto), 09:00 UTC" in page.text and "by way of slack" in page.text
    found = pages.store.request(item.id)
    assert found.decision is None or found.decision.kind != "reject"


def test_a_second_vote_is_told_apart_from_a_repeated_one(pages: Pages) -> None:
    item = pages.asked(BOTH)
    form = pages.form(item, "approve")
    assert pages.send(form).status_code == pages.send(form).status_code == 303
    other = pages.send(form, key="another")
    assert other.status_code == 409 and "Your vote is in already" in other.text


def test_an_answer_without_its_page_is_refused(pages: Pages) -> None:
    item = pages.asked()
    form = pages.form(item, "approve")
    for changes, status in (
        ({"csrf": None}, 403),
        ({"csrf": "0" * 64}, 403),
        ({"digest": None}, 400),
        ({"key": None}, 400),
        ({"answer": "cancel"}, 400),
    ):
        assert pages.send(form, **changes).status_code == status, changes
    foreign = Visitor(pages.inbox, "rita", **{"sec-fetch-site": "cross-site"})
    assert foreign.post(form.attributes["action"], data=form.filled()).status_code == 403
    assert pages.store.request(item.id).status == "pending"


def test_the_pages_live_under_a_prefix(pages: Pages) -> None:
    item = pages.asked(risk="high")
    visitor = pages.visitor(prefix="/admin/inbox")
    page = read(visitor.get(f"/requests/{item.id}").text)
    targets = {
        value
        for each in page.all()
        for name, value in each.attributes.items()
        if name in ("href", "action", "src", "formaction", "data-look", "data-back", "data-help")
        and not value.startswith("#")
    }
    assert targets and all(each.startswith("/admin/inbox/") for each in targets), targets


def test_where_a_request_stands_is_told_without_a_look_at_its_arguments(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = pages.asked()
    monkeypatch.setattr("phronomy.inbox.pages.deciding.requests.request_parts", None)
    assert pages.visitor().get(f"/requests/{item.id}/state").status_code == 200


def test_people_have_their_ids_beside_the_names_that_they_chose(pages: Pages) -> None:
    """Somebody who is called "you" is not the person who looks."""
    item = pages.asked(BOTH)
    pages.store.decide(item.id, Approve(), by=Principal(id="mal", name="you", roles=("lead",)), digest=item.digest)
    page = pages.shown(item)
    vote = page.one("ul", class_="votes")
    assert "you (mal) approved" in vote.text and not vote.all("strong", class_="me")
    assert "Ann (ann)" in page.text
    pages.decided(item, "approve")
    page = pages.shown(item)
    assert [each.text for each in page.all("strong", class_="me")] == ["you", "You"]


def test_a_decision_made_by_a_vote_shows_all_votes(pages: Pages) -> None:
    item = pages.asked(BOTH)
    pages.decided(item, "approve", "mia")
    pages.decided(item, "approve")
    name, text = pages.state(item)
    assert name == "recorded" and "Mia (mia) approved" in text and "You approved" in text


def test_an_answer_elsewhere_is_shown_with_what_the_agent_got(pages: Pages) -> None:
    item = pages.asked()
    pages.store.decide(item.id, Respond(content={"paid": True}), by=OTTO, digest=item.digest)
    pages.carry_out()
    name, text = pages.state(item)
    assert name == "done" and "Answered by Otto (otto)" in text and '{"paid":true}' in text.replace(" ", "")


@pytest.mark.parametrize(
    ("risk", "reviewed"), [(None, False), ("low", False), ("Medium", False), ("high", True), ("critical", True)]
)
def test_a_risk_that_is_not_known_to_be_low_is_high(pages: Pages, risk: str | None, reviewed: bool) -> None:
    item = pages.asked(risk=risk)
    assert pages.form(item, "approve").attributes["action"].endswith("/review") is reviewed
    assert len(pages.page("/").all("input", name="id")) == (not reviewed)


def test_under_a_prefix_a_decision_leads_back_under_it(pages: Pages) -> None:
    item = pages.asked()
    visitor = pages.visitor(prefix="/admin")
    form = read(visitor.get(f"/requests/{item.id}").text).one("form", data_way="approve")
    answer = visitor.post(form.attributes["action"].removeprefix("/admin"), data=form.filled())
    assert answer.headers["location"] == f"/admin/requests/{item.id}#result"


def test_a_request_goes_its_way_in_each_store(place: Place) -> None:
    pages = Pages(place.open())
    item = pages.asked(BOTH)
    assert pages.state(item)[0] == "pending"
    pages.decided(item, "approve", "mia")
    assert (pages.state(item)[0], pages.state(item, "mia")[0]) == ("partly_voted", "voted")
    pages.decided(item, "approve")
    pages.carry_out()
    assert pages.state(item)[0] == "done"
    assert "Nothing waits" in pages.page("/").text


def test_a_call_that_was_rejected_before_says_so(pages: Pages) -> None:
    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([call("pay", {"order": 1}), call("pay", {"order": 1}), call("pay", {"order": 2}), "Done."])
    pages.agents["desk"] = Agent(name="desk", model=model, tools=[pay], store=pages.store)
    seen = []
    item = pages.waits(pages.agents["desk"])
    for reason in ("Not this one.", "Still not."):
        seen.append("The very same was rejected before" in pages.shown(item).text)
        pages.decided(item, "reject", reason=reason)
        pages.carry_out()
        item = next(iter(pages.store.pending())).approval
        if reason == "Not this one.":
            assert (
                "By Rita (rita), 25 November 2026, 09:00 UTC" in pages.shown(item).text
                and reason in pages.shown(item).text
            )
    seen.append("The very same was rejected before" in pages.shown(item).text)
    assert seen == [False, True, False]


def test_the_keys_are_told_to_those_alone_who_are_signed_in(pages: Pages) -> None:
    note = "for the keys"
    assert note in pages.visitor().get("/help").text and note not in pages.visitor(None).get("/login").text

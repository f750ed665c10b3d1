"""The page of a mail's link: whose it is, what it shows, what counts there, and what is tried with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inbox_scenes import ByHeader, Visitor
from mail_scenes import OTTO, RITA, SIGNED_IN, MailDesk
from page_reader import read
from starlette.applications import Starlette
from starlette.routing import Mount

from phronomy import Agent, Approval, Approve, ConfigurationError, MemoryStore, interrupt, tool
from phronomy.chat import ChatApprovals
from phronomy.inbox import Inbox, Limits, MailLinks
from phronomy.inbox.auth.limits import Failures
from phronomy.people import Person, StoreDirectory
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import Clock, FakeMail, MinimalPlatform

DAY = 86_400.0
SECRET_HEADERS = {"referrer-policy": "no-referrer", "cache-control": "no-store", "x-frame-options": "DENY"}


@pytest.fixture
def desk() -> Iterator[MailDesk]:
    with MailDesk() as made:
        yield made


def kept(answer: Any) -> None:
    """The answer keeps its address to itself, and is not kept."""
    assert SECRET_HEADERS.items() <= dict(answer.headers).items()


# What it shows


def test_to_open_the_page_changes_nothing(desk: MailDesk) -> None:
    item = desk.asked()
    before = desk.store.request(item.id)
    for method in ("HEAD", "GET", "GET", "HEAD", "GET"):
        for action in ("approve", "reject"):
            answer = desk.browser(**{"sec-fetch-site": "none"}).request(method, desk.link(action))
            assert answer.status_code == 200
            kept(answer)
    assert desk.store.request(item.id) == before and desk.trail() == []


def test_the_page_has_no_script_and_sends_nothing_by_itself(desk: MailDesk) -> None:
    desk.asked()
    answer = desk.browser().get(desk.link())
    page = read(answer.text)
    assert page.all("script") == [] and "http-equiv" not in answer.text and "autofocus" not in answer.text
    assert not any(name.startswith("on") for each in page.all() for name in each.attributes)
    assert "script-src 'nonce-" in answer.headers["content-security-policy"]
    assert {each.attributes["method"] for each in page.all("form")} == {"post"}
    assert page.all("nav") == []


def test_it_shows_the_request_in_full_and_whose_link_it_is(desk: MailDesk) -> None:
    item = desk.asked(Approval(title="Give it back <b>now</b>", context="\u202eevil & co"))
    page = desk.page(desk.link())
    assert "This link is Rita\N{RIGHT SINGLE QUOTATION MARK}s" in page.text and "Rita (rita)" in page.text
    assert "Give it back <b>now</b>" in page.text and "49.9" in page.text and item.digest in page.text
    assert "\u202e" not in page.text


def test_the_button_of_the_mail_is_the_one_that_is_open(desk: MailDesk) -> None:
    desk.asked()
    for action in ("approve", "reject"):
        opened = [
            each for each in desk.page(desk.link(action)).all("details", name="choice") if "open" in each.attributes
        ]
        assert [each.attributes["data-way"] for each in opened] == [action]


# What counts


def test_a_press_decides_as_the_person_of_the_link(desk: MailDesk) -> None:
    item = desk.asked()
    path = desk.link()
    answer = desk.press(desk.form(path))
    assert (answer.status_code, answer.headers["location"]) == (303, f"{path}#result")
    kept(answer)
    decision = desk.store.request(item.id).decision
    assert decision is not None and decision.by is not None
    assert (decision.kind, decision.by.id, decision.channel) == ("approve", "rita", "email")
    page = desk.page(path)
    assert page.all("form") == [] and page.all(id="notice") == []
    assert "Approved by you, 08:00 UTC" in page.text and "It is recorded" in page.text
    desk.carried_out()
    assert "It is done" in desk.page(path).text


def test_a_rejection_takes_a_reason_or_none(desk: MailDesk) -> None:
    for reason in ("too\r\nmuch", ""):
        item = desk.asked()
        form = desk.form(desk.link("reject"), "reject")
        assert desk.press(form, reason="x" * 10_001).status_code == 422
        assert desk.store.request(item.id).status == "pending"
        assert desk.press(form, reason=reason).status_code == 303
        decision = desk.store.request(item.id).decision
        assert decision is not None
        assert (decision.kind, decision.reason) == ("reject", reason.replace("\r", "") or None)


def test_the_mails_of_the_others_follow_at_once(desk: MailDesk) -> None:
    desk.asked()
    desk.clock.move(1)
    desk.press(desk.form(desk.link()))
    [shown] = desk.mail.messages()
    assert shown.buttons == {} and "approved by Rita" in shown.text


def test_one_link_in_two_browsers_counts_once(desk: MailDesk) -> None:
    item = desk.asked()
    first, second, third = desk.form(desk.link()), desk.form(desk.link()), desk.form(desk.link("reject"), "reject")
    assert desk.press(first).status_code == 303
    assert desk.press(second).status_code == 303  # the same again
    again = desk.press(third, reason="no")
    assert again.status_code == 409 and "You were first: approved by Rita" in desk.notice(again)
    kept(again)
    assert desk.trail() == [("rita", "approve", False, "email")]
    assert desk.store.request(item.id).status == "decided"


def test_a_sent_form_that_is_sent_again_later_changes_nothing(desk: MailDesk) -> None:
    desk.asked()
    form = desk.form(desk.link())
    desk.press(form)
    desk.carried_out()
    assert [desk.press(form).status_code for _ in range(3)] == [303, 303, 303]
    assert desk.trail() == [("rita", "approve", False, "email")]


def test_somebody_else_was_first(desk: MailDesk) -> None:
    item = desk.asked()
    form = desk.form(desk.link())
    desk.store.decide(item.id, Approve(), by="ann", digest=item.digest, channel="inbox")
    answer = desk.press(form)
    assert answer.status_code == 409 and "Somebody was first: approved by ann, in inbox" in desk.notice(answer)
    page = desk.page(desk.link())
    assert "Approved by ann" in page.text and page.all("form") == []


def test_votes_count_one_by_one(desk: MailDesk) -> None:
    item = desk.asked(Approval(needed=2))
    form = desk.form(desk.link())
    answer = desk.press(form)
    assert answer.status_code == 200 and desk.notice(answer) == "Your vote counts: 1 of 2."
    assert desk.page(desk.link()).all("form") == []
    assert desk.store.request(item.id).status == "pending"


def test_a_request_that_has_ended_says_so(desk: MailDesk) -> None:
    gate = Approval(expires=60)
    desk.asked(gate)
    path, form = desk.link(), desk.form(desk.link())
    desk.clock.move(61)
    assert "The time to decide is over" in desk.page(path).text
    assert "time of this request is over" in desk.notice(desk.press(form))
    desk.carried_out(gate)
    assert desk.page(path).all("form") == [] and [each[0] for each in desk.trail()] == [""]


def test_something_else_waits_by_now(desk: MailDesk) -> None:
    item = desk.asked()
    form = desk.form(desk.link())
    path = desk.token(item, digest="sha256:other")
    page = desk.page(path, status=409)
    assert "Something else waits here by now" in page.text and page.all("form") == [] and "49.9" not in page.text
    answer = desk.browser().post(path, data=form.filled())
    assert answer.status_code == 409 and "Something else waits here by now" in desk.notice(answer)
    assert desk.trail() == []


def test_what_needs_more_than_a_button_leads_to_the_inbox(desk: MailDesk) -> None:
    item = desk.asked()
    [link] = [each for each in desk.page(desk.link()).all("a") if each.text == "open it in the inbox"]
    assert link.attributes["href"] == f"/requests/{item.id}"

    @tool
    def ship(order: int) -> str:
        """Ship an order."""
        return interrupt("To which address?", answer=str)

    model = ScriptedModel.by_turn([call("ship", {"order": 7}), "Done."])
    agent = Agent(name="post", model=model, tools=[ship], store=desk.store, announcements=[desk.approvals])
    asked = agent.invoke("Ship it").checkpoint.pending[0]
    desk.send()
    page = desk.page(desk.link("reject"))
    assert [each.attributes["data-way"] for each in page.all("details", name="choice")] == ["reject"]
    assert "To write an answer, sign in" in page.text
    assert desk.mail.messages()[-1].link == f"https://inbox.example/requests/{asked.id}"


def test_it_is_mounted_under_a_path(desk: MailDesk) -> None:
    desk.asked()
    path = desk.link()
    app = Starlette(routes=[Mount("/approvals", app=desk.inbox)])
    visitor = Visitor(app, None)
    form = read(visitor.get(f"/approvals{path}").text).one("details", data_way="approve").one("form")
    assert form.attributes["action"] == f"/approvals{path}"
    answer = visitor.post(form.attributes["action"], data=form.filled())
    assert answer.headers["location"] == f"/approvals{path}#result"


# Who it is for


def test_whoever_is_signed_in_as_another_decides_nothing_by_it(desk: MailDesk) -> None:
    item = desk.asked()
    path, form = desk.link(), desk.form(desk.link())
    page = desk.page(path, "otto", status=403)
    assert (
        "This link is Rita\N{RIGHT SINGLE QUOTATION MARK}s" in page.text and "signed in as somebody else" in page.text
    )
    assert page.all("form") == [] and "49.9" not in page.text
    for csrf in (None, "x"):
        assert desk.press(form, "otto", csrf=csrf).status_code == 403
    theirs = Visitor(desk.inbox, "otto").get("/requests/" + item.id)
    csrf = read(theirs.text).all("input", name="csrf")[0].attributes["value"]
    answer = desk.press(form, "otto", csrf=csrf)
    assert answer.status_code == 403 and "signed in as somebody else" in desk.notice(answer)
    assert desk.trail() == [] and desk.store.request(item.id).status == "pending"


def test_whoever_is_signed_in_as_the_same_person_may(desk: MailDesk) -> None:
    item = desk.asked()
    path = desk.link()
    before = desk.form(path)
    assert desk.press(before, "rita").status_code == 403  # of no page of this session
    form = desk.form(path, who="rita")
    assert desk.press(form).status_code == 403  # the page of a session counts in this session alone
    assert desk.press(form, "rita").status_code == 303
    decision = desk.store.request(item.id).decision
    assert decision is not None and decision.channel == "email"


def test_a_person_of_another_tenant_is_another() -> None:
    with MailDesk(inbox={"auth": ByHeader(*SIGNED_IN, tenant="acme")}) as desk:
        desk.asked()
        desk.page(desk.link(), "rita", status=403)


def test_a_person_who_was_removed_decides_nothing_and_sees_nothing(desk: MailDesk) -> None:
    item = desk.asked()
    path, form = desk.link(), desk.form(desk.link())
    StoreDirectory(desk.store).remove("rita")
    page = desk.page(path, status=403)
    assert f"Nobody is known here as {desk.mail.place}" in page.text and "49.9" not in page.text
    answer = desk.press(form)
    assert answer.status_code == 403 and desk.mail.place in desk.notice(answer)
    assert desk.trail() == [(desk.mail.place, "approve", True, "email")]
    assert desk.store.request(item.id).status == "pending"


def test_the_link_of_an_address_that_somebody_else_has_by_now_is_nobodys(desk: MailDesk) -> None:
    """Else whoever kept an old mail would decide as the person who was given the address."""
    item = desk.asked()
    path, form = desk.link(), desk.form(desk.link())
    people = StoreDirectory(desk.store)
    people.remove("rita")
    people.add(Person(id="nora", name="Nora", roles=("lead",), aliases=(desk.mail.place,)))
    page = desk.page(path, status=403)
    assert "somebody who had this address before" in page.text and "49.9" not in page.text
    assert desk.press(form).status_code == 403
    assert desk.trail() == [] and desk.store.request(item.id).status == "pending"


def test_a_person_who_has_lost_the_role_is_refused(desk: MailDesk) -> None:
    item = desk.asked(Approval(by="lead"))
    form = desk.form(desk.link())
    person = Person(id="rita", name="Rita", roles=("clerk",), aliases=(desk.mail.place,))
    StoreDirectory(desk.store).add(person, replace=True)
    assert "You can read this, not decide it" in desk.page(desk.link()).text
    answer = desk.press(form)
    assert answer.status_code == 409 and "lead" in desk.notice(answer)
    assert desk.trail() == [("rita", "approve", True, "email")]
    assert desk.store.request(item.id).status == "pending"


def test_the_scopes_of_the_inbox_hold_here_too() -> None:
    with MailDesk(inbox={"scopes": lambda _: {"read"}}) as desk:
        desk.asked()
        answer = desk.browser().get(desk.link())
        assert answer.status_code == 403 and "You are not allowed to decide requests." in answer.text
        kept(answer)


def test_an_address_is_of_one_person_in_any_case_of_its_domain(desk: MailDesk) -> None:
    item = desk.asked()
    shouted = desk.token(item, by=f"email:{RITA}@EXAMPLE.Org")
    assert "This link is Rita\N{RIGHT SINGLE QUOTATION MARK}s" in desk.page(shouted).text
    desk.page(desk.token(item, by=f"email:{RITA.lower()}@example.org"), status=403)


# Signing in


@pytest.mark.parametrize(
    ("options", "gate", "asks"),
    [
        ({}, Approval(), False),
        ({"links": {"sign_in_for": lambda item: item.tool_name == "refund"}}, Approval(), True),
        ({"links": {"sign_in_for": lambda item: False}}, Approval(), False),
        ({"links": {"sign_in_for": [""]}}, Approval(), True),
        ({"links": {"sign_in_for": ["high"]}}, Approval(), False),
        ({"links": {"sign_in_for": ()}}, Approval(), False),
        ({"links": {"sign_in_for": ()}, "hide": ["amount"]}, Approval(), True),
    ],
)
def test_what_asks_for_a_sign_in(options: dict[str, Any], gate: Approval, asks: bool) -> None:
    with MailDesk(**options) as desk:
        item = desk.asked(gate)
        page = desk.page(desk.link())
        if not asks:
            assert page.all("form") != []
            return
        assert page.all("form") == [] and "49.9" not in page.text
        [to] = [each.attributes["href"] for each in page.all("a") if each.text == "Sign in"]
        assert to == f"/login?to=/requests/{item.id}"
        form = desk.form(desk.link(), who="rita")
        refused = desk.press(form, csrf=None)
        assert refused.status_code == 403 and "A link alone is not enough" in desk.notice(refused)
        assert desk.store.request(item.id).status == "pending"
        desk.page(desk.link(), "otto", status=403)
        assert desk.press(form, "rita").status_code == 303
        assert desk.store.request(item.id).status == "decided"


@pytest.mark.parametrize(
    ("risk", "asks"),
    [(None, False), ("low", False), ("Medium", False), ("high", True), ("critical", True), ("odd", True)],
)
def test_what_is_risky_asks_for_a_sign_in_unless_it_is_said(desk: MailDesk, risk: str | None, asks: bool) -> None:
    @tool(requires_approval=True, risk=risk)
    def pay(amount: float) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel.by_turn([call("pay", {"amount": 5.0}), "Done."])
    Agent(name="pay", model=model, tools=[pay], store=desk.store, announcements=[desk.approvals]).invoke("Pay")
    desk.send()
    assert (desk.page(desk.link()).all("form") == []) is asks


# What is tried


def test_a_form_of_another_site_counts_nothing(desk: MailDesk) -> None:
    item = desk.asked()
    path, form = desk.link(), desk.form(desk.link())
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {},
    ):
        visitor = desk.browser()
        visitor.headers = dict(headers)
        answer = visitor.post(path, data=form.filled())
        assert answer.status_code == 403
        assert answer.headers["referrer-policy"] == "no-referrer"
    visitor = desk.browser()
    visitor.headers = {"origin": "https://inbox.example"}  # a browser that says no more
    assert desk.trail() == []
    assert visitor.post(path, data=form.filled()).status_code == 303
    assert desk.store.request(item.id).status == "decided"


def test_a_form_is_of_its_own_link_and_of_two_days(desk: MailDesk) -> None:
    first = desk.asked()
    form = desk.form(desk.link())
    second = desk.asked()
    other = desk.form(desk.link())
    for wrong in (None, "", "x", "ü", other.filled()["page"]):
        assert desk.press(form, page=wrong).status_code == 403
    otto = desk.token(first, by=desk.mail.alias(OTTO))
    assert desk.browser().post(otto, data=form.filled()).status_code == 403
    desk.clock.move(2 * DAY)
    assert desk.press(form).status_code == 403
    assert [desk.store.request(each.id).status for each in (first, second)] == ["pending", "pending"]
    assert desk.trail() == []
    form = desk.form(form.attributes["action"])
    desk.clock.move(DAY)
    assert desk.press(form).status_code == 303


def test_a_link_that_counts_nowhere(desk: MailDesk) -> None:
    item = desk.asked()
    path = desk.link()
    swapped = path[:-1] + ("A" if path[-1] != "A" else "B")
    for wrong in (
        *(swapped, path[:-1], path + "A", "/mail/" + "a" * 45, "/mail/a", "/mail/x" + path[7:], "/mail/ü" + path[7:]),
        *(desk.token(item, purpose="chat:slack"), desk.token(item, purpose="approve")),
    ):
        answer = desk.browser().get(wrong)
        assert answer.status_code == 404 and "not known here" in desk.notice(answer)
        kept(answer)
        assert desk.browser().post(wrong, data={"answer": "approve"}).status_code == 404
    for _ in range(2):
        last = desk.browser().get(swapped)
    assert last.status_code == 404
    limited = desk.browser().get(swapped)
    assert limited.status_code == 429 and limited.headers["retry-after"] == "600"
    kept(limited)
    assert desk.browser().get(path).status_code == 200  # whoever has a right one is not kept out
    assert desk.trail() == []


def test_an_old_link_and_one_whose_key_is_gone(desk: MailDesk) -> None:
    item = desk.asked()
    path, short = desk.link(), desk.token(item, seconds=60.0)
    desk.clock.move(61)
    page = desk.page(short, status=410)
    assert "too old" in page.text and page.one("a").attributes["href"] == f"/requests/{item.id}"
    answer = desk.browser().post(short, data={"answer": "approve"})
    assert answer.status_code == 410 and desk.trail() == []
    other = ChatApprovals(
        desk.store,
        channels=[desk.mail.channel],
        directory=StoreDirectory(desk.store),
        keys={"other": b"o" * 32},
    )
    desk.mail.connect(other)
    desk.page(path, status=404)


def test_the_link_of_one_tenant_is_none_in_another() -> None:
    clock = Clock()
    whole = MemoryStore(clock=clock)
    acme: Store = whole.for_tenant("acme")
    with MailDesk(acme, clock=clock) as mine, MailDesk(whole.for_tenant("blue"), clock=clock) as other:
        item = mine.asked()
        path, form = mine.link(), mine.form(mine.link())
        other.page(path, status=404)
        assert other.browser().post(path, data=form.filled()).status_code == 404
        assert mine.store.request(item.id).status == "pending"


def test_one_link_is_opened_so_often_a_minute() -> None:
    with MailDesk(inbox={"limits": Limits(MemoryStore(), links=3)}) as desk:
        desk.asked()
        path = desk.link()  # opened twice by the platform: once for each button
        assert desk.browser().get(path).status_code == 200
        answer = desk.browser().get(path)
        assert answer.status_code == 429
        kept(answer)


def test_a_token_of_the_api_is_nothing_here(desk: MailDesk) -> None:
    desk.asked()
    answer = desk.browser(authorization="Bearer phr_" + "x" * 56).get(desk.link())
    assert answer.status_code == 401 and "location" not in answer.headers
    kept(answer)


def test_the_store_fails(desk: MailDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    item = desk.asked()
    form = desk.form(desk.link())

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise OSError("secret words")

    with monkeypatch.context() as broken:
        broken.setattr(desk.store, "decide", fails)
        answer = desk.press(form)
    assert answer.status_code == 503 and "secret words" not in answer.text
    kept(answer)
    assert desk.press(form).status_code == 303 and desk.store.request(item.id).status == "decided"


def test_no_log_has_the_link(desk: MailDesk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    desk.asked()
    path = desk.link()
    desk.press(desk.form(path))
    desk.browser().get(path[:-1] + "_")
    desk.browser(**{"sec-fetch-site": "cross-site"}).post(path, data={"answer": "approve"})
    desk.browser().request("DELETE", path)
    said = [each.getMessage() for each in caplog.records if each.name.startswith("phronomy")]
    assert not any(path[10:30] in line for line in said)
    lines = [each.getMessage() for each in caplog.records if each.name == "phronomy.inbox"]
    assert any(line.startswith("POST /mail/{data} 303, rita by mail about ") for line in lines)
    assert all("/mail/{data}" in line for line in lines)


@pytest.fixture(scope="module")
def patient() -> Iterator[MailDesk]:
    """A desk that takes any number of tries."""
    limits = Limits(MemoryStore(), links=100_000, decisions=100_000, failures=Failures(MemoryStore(), most=100_000))
    with MailDesk(inbox={"limits": limits}) as made:
        made.asked()
        yield made


@settings(max_examples=60, deadline=None)
@given(data=st.text(max_size=60), method=st.sampled_from(["GET", "POST"]), body=st.binary(max_size=200))
def test_whatever_comes_is_answered(patient: MailDesk, data: str, method: str, body: bytes) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    options: dict[str, Any] = {"content": body, "headers": headers} if method == "POST" else {}
    answer = patient.browser().request(method, "/mail/" + quote(data, safe=""), **options)
    assert 400 <= answer.status_code < 500
    answer = patient.browser().request("POST", patient.link(), content=body, headers=headers)
    assert 400 <= answer.status_code < 500
    assert patient.trail() == []


# Settings


def test_links_need_the_channel_and_a_way_to_say_what_is_risky() -> None:
    platform = MinimalPlatform()
    store = MemoryStore()
    other = ChatApprovals(store, channels=[platform.channel], directory=StoreDirectory(store), keys={"k": b"k" * 32})
    with pytest.raises(ConfigurationError, match="has the channel Email"):
        MailLinks(other)
    with pytest.raises(ConfigurationError, match="has the channel Email"):
        MailLinks(None)  # type: ignore[arg-type]
    with FakeMail(web=lambda approvals: None) as mail:
        right = ChatApprovals(store, channels=[mail.channel], directory=StoreDirectory(store), keys={"k": b"k" * 32})
        with pytest.raises(ConfigurationError, match="sign_in_for is a list of risks"):
            MailLinks(right, sign_in_for="high")
        assert "kkkk" not in repr(MailLinks(right))
        assert "/mail/{data}" not in [each.path for each in Inbox(store, auth=ByHeader()).routes]

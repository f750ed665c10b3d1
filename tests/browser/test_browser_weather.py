"""Stories of what goes wrong around a page: no network, no server, no script, no session, and very much to do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route
from visitors import Desk, Invite, Visitor, sideways

CUT = "net::ERR_FAILED"
BROKEN_OFF = "net::ERR_INCOMPLETE_CHUNKED_ENCODING"
"""The stream of events, if it was open already."""

REFUSED = "net::ERR_CONNECTION_REFUSED"
RESET = "net::ERR_CONNECTION_RESET"
"""The stream, if the server ended before it had read the whole request for it."""


@pytest.fixture
def asked(desk: Desk) -> Any:
    """A request that is decided at once, without a last look."""
    return desk.ask("mail", to=["a@example.org"], subject="Hello", body="Hi.")


def test_offline_and_back(desk: Desk, rita: Visitor, asked: Any) -> None:
    rita.opens(f"/requests/{asked.id}")
    rita.chooses("reject")
    rita.types("Reason", "The address is wrong.")
    rita.context.set_offline(True)
    # The buttons are off, and say why. Nothing is sent, and nothing is kept to be sent later.
    rita.sees("You are offline.")
    button = rita.page.locator(".choice.reject form button").last
    assert button.get_attribute("aria-disabled") == "true"
    assert button.get_attribute("aria-describedby") == "offline"
    button.click(force=True)
    rita.page.get_by_label("Reason", exact=True).press("Control+Enter")
    desk.later(60)
    rita.context.set_offline(False)
    rita.page.locator("#offline").wait_for(state="hidden")
    assert desk.decision(asked) is None
    # What was typed is there, and counts when it is sent.
    rita.sends("reject")
    rita.reads("Rejected by you")
    assert desk.decision(asked).reason == "The address is wrong."


def test_the_answer_is_lost_and_the_decision_counts_once(desk: Desk, rita: Visitor, asked: Any) -> None:
    keys: list[str] = []

    def lost_once(route: Route) -> None:
        keys.append(route.request.post_data or "")
        if len(keys) == 1:
            route.fetch()
            route.abort()
        else:
            route.continue_()

    rita.context.route("**/decision", lost_once)
    rita.expects(CUT)
    rita.opens(f"/requests/{asked.id}")
    rita.sends("approve")
    rita.page.locator("#live", has_text="Trying again.").wait_for(state="attached")
    assert desk.decision(asked).by.id == "rita"  # the server has it, and the browser does not know
    desk.later(2)
    rita.reads("Approved by you")
    assert len(keys) == 2 and keys[0] == keys[1]


def test_after_half_a_minute_the_page_says_that_it_does_not_know(desk: Desk, rita: Visitor, asked: Any) -> None:
    rita.context.route("**/decision", lambda route: route.abort())
    rita.expects(CUT)
    rita.opens(f"/requests/{asked.id}")
    rita.chooses("reject")
    rita.types("Reason", "The address is wrong.")
    rita.sends("reject")
    unknown = rita.page.locator(".sent", has_text="We do not know yet whether this was recorded.")
    tries = rita.page.locator("#live", has_text="Trying again.")
    while unknown.count() == 0:
        tries.or_(unknown).first.wait_for(state="attached")
        desk.later(8)
    assert rita.page.get_by_label("Reason", exact=True).input_value() == "The address is wrong."
    rita.follows("Look again")
    rita.page.locator("#choices").wait_for()
    assert desk.decision(asked) is None


def test_the_server_is_restarted_under_an_open_page(desk: Desk, rita: Visitor, asked: Any) -> None:
    rita.opens(f"/requests/{asked.id}")
    desk.stop()
    rita.expects(REFUSED)
    rita.allows(BROKEN_OFF, RESET)
    rita.sends("approve")
    rita.page.locator("#live", has_text="Trying again.").wait_for(state="attached")
    desk.start()
    desk.later(2)
    # The session and the form are of the store, not of the process.
    rita.reads("Approved by you")
    assert desk.decision(asked).by.id == "rita"


def test_without_script_nothing_is_missing(desk: Desk, invite: Invite) -> None:
    first = desk.ask("refund", order=1042)
    second = desk.ask("mail", to=["a@example.org"], subject="Hello", body="Hi.")
    rita = invite("rita", java_script_enabled=False)
    rita.opens("/")
    rita.follows("Refund order 1042")
    rita.chooses("edit")
    rita.page.get_by_label("amount").fill("900")
    rita.expects("status of 422")
    rita.sends("edit")
    rita.sees("This was not sent. Nothing is decided.")
    rita.page.get_by_label("amount").fill("25.5")
    rita.sends("edit")
    rita.sees("What you change")
    rita.confirms()
    rita.reads("Approved with changes by you")
    desk.carry_out()
    rita.follows("Look again")
    rita.sees("Order 1042: 25.50 euros are on their way.")
    rita.follows("Next request")
    rita.reads("Send a mail")
    rita.chooses("reject")
    rita.types("Reason", "Not now.")
    rita.sends("reject")
    rita.reads("Rejected by you")
    rita.follows("Back to the list")
    rita.sees("Nothing waits")
    assert (desk.decision(first).args["amount"], desk.decision(second).reason) == (25.5, "Not now.")


def test_ten_thousand_wait(desk: Desk, invite: Invite) -> None:
    for part in range(100):
        desk.ask_all([("note", {"text": f"note {part}-{place}"}) for place in range(100)])
    desk.ask("refund", order=1042)
    rita = invite("rita")
    rita.opens("/")
    rita.sees(re.compile(r"\d+\+ requests for you"))
    rows = rita.page.locator(".row")
    assert rows.count() == 50
    first = rows.first.inner_text()
    rita.follows("Next page")
    rita.page.get_by_role("link", name="First page").wait_for()
    assert rows.count() == 50 and rows.first.inner_text() != first
    # The one of high risk is found among them.
    rita.follows("High risk")
    rita.sees("1 request for you")
    rita.follows("Refund order 1042")
    rita.reads("Refund order 1042")
    # Words are looked for as well. Where nothing has them, there is a way out.
    rita.opens("/?text=teapot")
    rita.sees("Nothing waits with these filters")
    rita.follows("Remove all filters")
    rita.sees(re.compile(r"\d+\+ requests for you"))
    assert sideways(rita.page) == []


def test_eight_tabs(desk: Desk, rita: Visitor, asked: Any) -> None:
    streams: list[str] = []
    rita.context.on("request", lambda request: streams.append(request.url) if request.url.endswith("/events") else None)
    tabs: list[Page] = [rita.new_tab(f"/requests/{asked.id}") for _ in range(8)]
    for tab in tabs:
        tab.locator("#choices").wait_for()
    rita.page = tabs[-1]
    rita.sends("approve")
    rita.reads("Approved by you")
    for tab in tabs:
        rita.hears("Approved by you", page=tab)
    # There is a connection left for one more page, and for what comes of it.
    desk.carry_out()
    for tab in tabs:
        rita.hears("It is done.", page=tab)
    assert len(streams) == 1  # one for all of them
    rita.new_tab("/").get_by_text("Nothing waits").first.wait_for()


HEARS = """async () => {
    const address = document.documentElement.dataset.events;
    const others = new BroadcastChannel(`phronomy ${address}`);
    window.heard = new Promise((done) => { others.onmessage = (event) => done(event.data); });
    // The server first says where it is. It has said so to the page by then, whose stream was there before this one.
    const own = (await fetch(address)).body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; !text.includes("id: "); text += (await own.read()).value);
    await own.cancel();
}"""  # the page passes on to other tabs what it is told


def test_a_page_hears_of_a_change_before_it_would_look(desk: Desk, rita: Visitor, asked: Any) -> None:
    with rita.page.expect_response("**/events"):
        rita.opens(f"/requests/{asked.id}")
    rita.page.evaluate(HEARS)
    desk.decide(asked, "mia")
    rita.page.evaluate("() => window.heard")
    # Eight steps are less than the five seconds after which the page looks by itself.
    rita.hears("Approved by Mia Lindqvist", steps=8, seconds=0.6)


def test_a_page_says_that_its_session_is_over(desk: Desk, rita: Visitor, asked: Any) -> None:
    rita.opens(f"/requests/{asked.id}")
    desk.sign_out_everywhere("rita")
    rita.allows("status of 401")  # of the stream of events, if it is opened only now
    rita.hears("Sign in and come back here")
    rita.follows("Sign in and come back here")
    rita.reads("Sign in to Shop approvals")
    assert f"to=%2Frequests%2F{asked.id}" in rita.page.url


def test_a_session_ends_under_an_open_form(desk: Desk, rita: Visitor, asked: Any) -> None:
    rita.opens(f"/requests/{asked.id}?list=view%3Dall")
    rita.chooses("reject")
    rita.types("Reason", "The address is wrong.")
    desk.sign_out_everywhere("rita")
    rita.expects("status of 401")
    rita.sends("reject")
    back = rita.page.get_by_role("link", name="Sign in and come back here")
    back.wait_for()
    assert rita.page.get_by_label("Reason", exact=True).input_value() == "The address is wrong."
    assert desk.decision(asked) is None
    # The way back leads to the same page.
    back.click()
    rita.reads("Sign in to Shop approvals")
    rita.sign_in("rita")
    rita.page.reload()
    rita.follows("Go on")
    rita.reads("Send a mail")
    assert rita.page.url.endswith(f"/requests/{asked.id}?list=view%3Dall")


def test_a_link_from_the_terminal_signs_in_once(desk: Desk, invite: Invite) -> None:
    visitor, other = invite(None), invite(None)
    visitor.opens("/runs")
    visitor.reads("Sign in to Shop approvals")
    visitor.presses("Print a new link")
    visitor.sees("A new link was printed")
    [link] = (desk.folder / "links").read_text().split()
    # To open it changes nothing: previews and scanners do that, too.
    other.opens(link)
    visitor.opens(link)
    visitor.presses("Sign in")
    visitor.reads("Runs")  # the page that was wanted
    visitor.sees("Rita Okafor")
    other.expects("status of 410")
    other.presses("Sign in")
    other.reads("This link was used before")
    visitor.presses("Sign out")
    visitor.sees("You are signed out.")
    visitor.opens("/")
    visitor.reads("Sign in to Shop approvals")


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_what_turns_stands_still_for_whoever_wants_that(desk: Desk, invite: Invite, motion: str) -> None:
    rita = invite("rita", reduced_motion=motion)
    rita.opens("/help")
    turns = rita.page.evaluate(
        """() => {
        const p = document.createElement("p");
        p.className = "working";
        document.body.append(p);
        return getComputedStyle(p, "::before").animationName;
    }"""
    )
    assert turns == ("none" if motion == "reduce" else "turn")


@pytest.mark.parametrize("prefix", ["", "/deep/approvals"])
def test_it_is_the_same_at_the_root_and_deeper(desk: Desk, rita: Visitor, asked: Any) -> None:
    rita.opens("/")
    rita.follows("Send a mail")
    rita.sends("approve")
    rita.reads("Approved by you")
    rita.follows("Back to the list")
    rita.sees("Nothing waits")

"""Stories of how people use the pages: with the keyboard alone, and on a small phone."""

from __future__ import annotations

from furnished import BILL
from playwright.sync_api import Page
from visitors import NARROW, Desk, Invite, Visitor, sideways

SMALLEST = 44
"""Pixels that a finger needs."""

TARGETS = """() => [...document.querySelectorAll("a, button, summary, :not(label) > input, select, textarea, label.check")]
    .filter((each) => each.checkVisibility() && each.getBoundingClientRect().height > 1 && !each.closest("p:not(.actions, .chips)"))
    .map((each) => [each.textContent.trim().slice(0, 40) || each.name, each.getBoundingClientRect().height])"""


def small(visitor: Visitor) -> list[str]:
    """What is too small for a finger, apart from links in a sentence and boxes within a larger label."""
    found = visitor.page.evaluate(TARGETS)
    return [name for name, height in found if height < SMALLEST - 0.5]


def test_with_the_keyboard_alone(desk: Desk, rita: Visitor) -> None:
    first, second, third = (desk.ask("refund", order=order) for order in (1, 2, 3))
    page, keys = rita.opens("/"), rita.page.keyboard
    keys.press("j")
    assert rita.focused().startswith("Refund order 1:")
    keys.press("j")
    keys.press("ArrowDown")
    keys.press("k")
    assert rita.focused().startswith("Refund order 2:")
    keys.press("Enter")
    rita.reads("Refund order 2")
    # A key leads to the button, and nothing counts yet.
    keys.press("a")
    assert rita.focused() == "Approve refund"
    keys.press("Control+Enter")
    rita.reads("Approve refund")
    assert rita.focused() == "Approve refund?"  # the heading
    assert desk.decision(second) is None
    keys.press("a")
    assert desk.decision(second) is None
    while rita.page.evaluate("() => document.activeElement.tagName") != "BUTTON":
        keys.press("Tab")
    keys.press("Enter")
    page.locator("#result:focus", has_text="Approved by you").wait_for()
    # The next one opens with a key. In a field, keys are letters.
    keys.press("n")
    rita.reads("Refund order 1")
    keys.press("r")
    keys.type("unread jka?")
    assert page.get_by_label("Reason", exact=True).input_value() == "unread jka?"
    keys.press("Control+Enter")
    rita.reads("Reject refund")
    keys.press("u")
    rita.reads("Refund order 1")
    keys.press("u")
    rita.reads("Waiting")
    assert desk.decision(first) is None and desk.decision(third) is None
    keys.press("/")
    keys.type("order 3")
    keys.press("Enter")
    rita.sees("1 request for you")
    keys.press("?")
    rita.reads("Help")
    # Somebody who speaks to their computer switches single keys off.
    page.get_by_label("Use single keys").uncheck()
    rita.opens("/")
    keys.press("j")
    assert page.locator(".row.here").count() == 0


def test_the_first_stop_of_the_keyboard_leads_to_the_content(desk: Desk, rita: Visitor) -> None:
    desk.ask("refund", order=1)
    rita.opens("/")
    rita.page.keyboard.press("Tab")
    assert rita.focused() == "Skip to the content"
    rita.page.keyboard.press("Enter")
    assert rita.page.evaluate("() => document.activeElement.id") == "main"


def test_a_run_is_stepped_and_forked_by_its_versions_without_script(desk: Desk, invite: Invite) -> None:
    stopped = desk.stop_before("ship", order=1047)
    run = desk.apart(desk.store.request, stopped.id).branch_id
    rita = invite("rita", java_script_enabled=False, viewport=NARROW)
    rita.opens(f"/runs/{run}")
    rita.follows("Step from here")
    rita.reads("Step from here")
    rita.presses("Let it go on to the next stop")
    rita.sees("It went on to the next stop.")
    rita.sees("Order 1047 has two addresses")
    rita.follows("Versions of this run")
    # A box of the picture leads to what it stands for.
    rita.page.locator(".tree a.stop").first.click()
    rita.reads("1: model asks for ship")
    rita.follows("Fork it here")
    rita.types("Label", "another try")
    rita.presses("Fork it")
    rita.sees("This is the fork.")
    rita.follows("End it")
    rita.types("Reason", "Not needed.")
    rita.presses("End it")
    rita.sees("The run is ended.")
    found = {each.id: each.status for each in desk.apart(desk.store.branches)}
    assert len(found) == 2 and found.pop(run) == "suspended" and [*found.values()] == ["cancelled"]


def test_on_a_small_phone(desk: Desk, invite: Invite) -> None:
    asked = desk.ask("pay", to="Porcelain Works Aktiengesellschaft", lines=BILL)
    otto = invite("otto", viewport=NARROW, is_mobile=True, has_touch=True, device_scale_factor=2)
    page = otto.opens("/")
    page.get_by_role("link", name="Pay a bill").tap()
    otto.reads("Pay a bill")
    for way in ("edit", "respond", "reject"):
        page.locator(f".bar [data-open={way}], details.choice.{way}:not(.first) > summary").tap()
        assert page.locator(f"details.choice.{way}").get_attribute("open") is not None
        assert sideways(page) == []
        assert small(otto) == []
    # Approve and Reject stand apart.
    approve, reject = (page.locator(f".bar .{way}").bounding_box() for way in ("approve", "no"))
    assert approve is not None and reject is not None
    assert reject["x"] - (approve["x"] + approve["width"]) >= 12
    page.locator(".bar .approve button").tap()
    otto.reads("Approve pay")
    assert sideways(page) == [] and small(otto) == []
    page.locator("form[data-confirm] button").first.tap()
    otto.reads("Your vote is in")
    assert sideways(page) == []
    assert [vote.by.id for vote in desk.apart(desk.store.request, asked.id).approval.votes] == ["otto"]


# The two decisions are in sight


PHONE = {"width": 390, "height": 844}

MANY = [f"customer-{number}@example.org" for number in range(60)]

LOW = [({"width": 844, "height": 390}, "a phone on its side"), ({"width": 640, "height": 400}, "a desktop at 200 %"),
       ({"width": 195, "height": 422}, "a phone at 200 %")]  # fmt: skip

FAR_DOWN = """() => document.querySelector("#decide").getBoundingClientRect().top > innerHeight"""

LINES = """(of) => [...document.querySelectorAll(of)].map((each) => {
    const range = document.createRange();
    range.selectNodeContents(each);
    return [each.textContent, new Set([...range.getClientRects()].map((box) => Math.round(box.bottom / 8))).size];
})"""

UNCOVERED = """() => {
    const bar = document.querySelector(".bar").getBoundingClientRect();
    const at = document.activeElement.getBoundingClientRect();
    return at.bottom <= bar.top + 1 || at.top >= bar.bottom - 1 || document.activeElement.closest(".bar") !== null;
}"""


def in_sight(page: Page, selector: str) -> bool:
    box = page.locator(selector).bounding_box()
    height = page.viewport_size["height"] if page.viewport_size else 0
    return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= height


def test_both_decisions_are_in_sight_on_a_phone_and_one_press_approves(desk: Desk, invite: Invite) -> None:
    asked = desk.ask("mail", to=MANY, subject="Your order 1042", body="Hello.")
    rita = invite("rita", viewport=PHONE, is_mobile=True, has_touch=True)
    page = rita.opens(f"/requests/{asked.id}")
    assert in_sight(page, ".bar .approve button") and in_sight(page, ".bar .no")
    assert page.evaluate("scrollY") == 0 and page.evaluate(FAR_DOWN)
    page.locator(".bar .no").tap()  # leads to the reason, and rejects nothing
    assert rita.focused() == "reason" and in_sight(page, "#reason") and page.evaluate(UNCOVERED)
    assert desk.decision(asked) is None
    page.evaluate("scrollTo(0, 0)")
    page.locator(".bar .approve button").tap()
    rita.reads("Approved by you")
    assert desk.decision(asked).by.id == "rita"


def test_nothing_that_has_the_focus_is_behind_the_bar(desk: Desk, invite: Invite) -> None:
    """The order of the keys is that of the page: what will run, then the decisions, then the other ways to answer."""
    asked = desk.ask("mail", to=MANY, subject="Your order 1042", body="Hello.")
    rita = invite("rita", viewport=PHONE)
    page = rita.opens(f"/requests/{asked.id}")
    order = []
    for _ in range(40):
        page.keyboard.press("Tab")
        assert page.evaluate(UNCOVERED), rita.focused()
        order.append(rita.focused())
        if order[-1] == "Give the result yourself":
            break
    decisions = [
        each
        for each in order
        if each in ("The same as JSON", "Approve mail", "Reject mail", "Change the values, then approve")
    ]
    assert decisions == ["The same as JSON", "Approve mail", "Reject mail", "Change the values, then approve"]


def test_where_the_window_is_low_the_bar_covers_nothing(desk: Desk, invite: Invite) -> None:
    asked = desk.ask("mail", to=MANY, subject="Your order 1042", body="Hello.")
    for size, what in LOW:
        page = invite("rita", viewport=size).opens(f"/requests/{asked.id}")
        assert not in_sight(page, ".bar"), what
        page.locator(".bar").scroll_into_view_if_needed()
        assert in_sight(page, ".bar .approve button"), what
        assert sideways(page) == [], what


# With a thumb


def touched(invite: Invite) -> Visitor:
    return invite("rita", viewport=PHONE, is_mobile=True, has_touch=True)


def test_the_outcome_is_in_sight_after_a_decision_at_the_end_of_a_long_page(desk: Desk, invite: Invite) -> None:
    """The page is loaded again, and a browser puts it where it stood."""
    asked = desk.ask("refund", order=1042)
    rita = touched(invite)
    page = rita.opens(f"/requests/{asked.id}")
    page.locator(".bar .no").tap()
    assert not page.locator("details.reject > summary").is_visible()  # the bar has the same words
    page.get_by_label("Reason", exact=True).fill("No photo.")
    page.get_by_role("button", name="Review before it counts").filter(visible=True).tap()
    rita.reads("Reject refund?")
    page.locator("form[data-confirm] button").first.tap()
    rita.reads("Rejected by you")
    page.locator("#result:focus").wait_for()
    assert in_sight(page, "#result") and in_sight(page, "h1") and in_sight(page, "#next, .state .button >> nth=0")
    assert page.locator("#keys-note").is_hidden()  # nobody presses keys here


def test_once_something_is_ticked_the_button_for_it_is_in_sight_and_one_press_approves_all(
    desk: Desk, invite: Invite
) -> None:
    asked = [desk.ask("mail", to=["a@example.org"], subject=f"Order {order}", body="Hello.") for order in range(8)]
    rita = touched(invite)
    page = rita.opens("/")
    rita.sees("8 requests for you")
    review = "form[action$=batch] > .actions button"
    assert not in_sight(page, review)
    boxes = page.get_by_role("checkbox")
    boxes.nth(0).tap()
    assert in_sight(page, review) and sideways(page) == []
    boxes.nth(1).tap()
    page.get_by_role("button", name="Review the ticked ones").tap()
    rita.reads("2 requests, each in full")
    assert not in_sight(page, ".choices .approve button")  # at the end, below what it decides
    page.get_by_role("button", name="Approve all 2").tap()
    rita.reads("What came of them")
    assert [desk.decision(each) is not None for each in asked] == [True] * 2 + [False] * 6


def test_no_table_breaks_a_word_on_a_phone(desk: Desk, invite: Invite) -> None:
    for order in range(2):
        desk.decide(desk.ask("refund", order=order), "otto", order == 0)
    desk.decide(desk.ask("close_account", customer="Red Gate GmbH"), "mia")
    rita = invite("rita", viewport=NARROW, is_mobile=True, has_touch=True)
    page = rita.opens("/history")
    rita.sees("How often each person decides")
    lines = page.evaluate(LINES, ".counts :is(th, td)")
    assert lines and all(count <= len(text.split()) for text, count in lines), lines
    assert sideways(page) == []

"""Stories of how people use the pages: with the keyboard alone, and on a small phone."""

from __future__ import annotations

from furnished import BILL
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
    # A key opens the choice, and its button has the focus; nothing counts yet.
    keys.press("a")
    assert rita.focused() == "Review before it counts"
    keys.press("Control+Enter")
    rita.reads("Approve refund")
    assert rita.focused() == "Approve refund"  # the heading
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
    rita.follows("Its versions")
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
    for way in ("approve", "edit", "reject", "respond"):
        page.locator(f".choice.{way} > summary").tap()
        assert page.locator(f".choice.{way}").get_attribute("open") is not None
        assert sideways(page) == []
        assert small(otto) == []
    # Approve and Reject stand apart.
    approve, reject = (page.locator(f".choice.{way}").bounding_box() for way in ("approve", "reject"))
    assert approve is not None and reject is not None
    assert reject["y"] - (approve["y"] + approve["height"]) >= SMALLEST
    page.locator(".choice.approve > summary").tap()
    page.locator(".choice.approve form button").tap()
    otto.reads("Approve pay")
    assert sideways(page) == [] and small(otto) == []
    page.locator("form[data-confirm] button").first.tap()
    otto.reads("Your vote is in")
    assert sideways(page) == []
    assert [vote.by.id for vote in desk.apart(desk.store.request, asked.id).approval.votes] == ["otto"]

"""Stories of the chat: somebody talks to an agent, decides what it asks for, and sees it go on."""

from __future__ import annotations

import shop
from visitors import SOON, Desk, Invite, Visitor

from phronomy.workers import Worker


def lines(visitor: Visitor) -> list[str]:
    return visitor.page.locator("#talk .bubble, #talk h2").all_inner_texts()


def says(visitor: Visitor, text: str) -> None:
    """Say it as people do: with Enter."""
    field = visitor.page.locator("#words")
    field.fill(text)
    field.press("Enter")


def carry_out(desk: Desk) -> None:
    desk.run(Worker([shop.clerk_of(desk.store)]).once())


def test_somebody_talks_and_decides_in_between(desk: Desk, rita: Visitor) -> None:
    page = rita.opens("/chat")
    says(rita, "Hello")
    rita.hears("You said: Hello")
    says(rita, "Refund order 7")
    rita.hears("Nothing runs until you have decided")
    assert lines(rita) == [
        "Hello",
        "I can refund orders. You said: Hello",
        "Refund order 7",
        "Refund order 7: 49.90 euros",
    ]
    assert rita.focused() == "text", "who has asked can write on"
    page.get_by_role("link", name="Look at it and decide").click()
    rita.reads("Refund order 7")
    rita.sends("approve")
    rita.reads("Approve refund")
    page.get_by_role("button", name="Approve refund").click()
    rita.reads("Approved by you")
    carry_out(desk)
    page.get_by_role("link", name="The conversation of this run").first.click()
    rita.hears("Order 7: 49.90 euros are on their way.")


def test_what_others_decide_comes_by_itself(desk: Desk, invite: Invite) -> None:
    rita = invite("rita")
    rita.opens("/chat")
    says(rita, "Refund order 8")
    rita.hears("Nothing runs until you have decided")
    (row,) = desk.apart(desk.store.pending)
    desk.decide(row.approval, "mia")
    carry_out(desk)
    rita.hears("Order 8: 49.90 euros are on their way.")


def test_a_new_line_is_no_end_and_what_is_typed_stays_when_something_comes(desk: Desk, rita: Visitor) -> None:
    page = rita.opens("/chat")
    says(rita, "Refund order 9")
    rita.hears("Nothing runs until you have decided")
    field = page.locator("#words")
    field.press_sequentially("First")
    field.press("Shift+Enter")
    field.press_sequentially("second")
    (row,) = desk.apart(desk.store.pending)
    desk.decide(row.approval, "mia")
    carry_out(desk)
    rita.hears("Order 9: 49.90 euros are on their way.")
    assert field.input_value() == "First\nsecond"
    field.press("Enter")
    page.locator(".mine .bubble", has_text="second").wait_for(timeout=SOON)


def test_without_a_script_it_works_page_by_page(invite: Invite) -> None:
    rita = invite("rita", java_script_enabled=False)
    page = rita.opens("/chat")
    page.locator("#words").fill("Hello")
    page.get_by_role("button", name="Begin").click()
    while not page.get_by_text("You said: Hello").is_visible():
        page.get_by_role("link", name="Look again").click()
    assert lines(rita) == ["Hello", "I can refund orders. You said: Hello"]

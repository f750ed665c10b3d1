"""Stories of deciding in the browser: several people at once, votes, edits, the clock, and what comes after."""

from __future__ import annotations

import shop
from furnished import BILL
from visitors import Desk, Invite, Visitor


def test_two_people_race_for_a_request(desk: Desk, invite: Invite) -> None:
    asked = desk.ask("mail", to=["a@example.org"], subject="Hello", body="Hi.")
    rita, mia = invite("rita"), invite("mia")
    for each in (rita, mia):
        each.opens(f"/requests/{asked.id}")
    mia.chooses("reject")
    mia.types("Reason", "The address is wrong.")
    # Both have the page. Rita is first.
    rita.sends("approve")
    rita.reads("Approved by you")
    # Mia is told who was first, and keeps what she has typed.
    mia.expects("status of 409")
    mia.sends("reject")
    mia.reads("Rita Okafor (rita) was first")
    assert mia.page.get_by_label("What you had typed").input_value() == "The address is wrong."
    decided = desk.decision(asked)
    assert (decided.kind, decided.by.id) == ("approve", "rita")


def test_whoever_reads_sees_that_somebody_else_has_decided(desk: Desk, invite: Invite) -> None:
    asked = desk.ask("mail", to=["a@example.org"], subject="Hello", body="Hi.")
    mia = invite("mia")
    mia.opens(f"/requests/{asked.id}")
    mia.chooses("reject")
    mia.types("Reason", "The address is wrong.")
    desk.decide(asked, "rita")
    # The page turns into the outcome; the buttons are covered, and what was typed stays.
    mia.hears("Approved by Rita Okafor (rita)")
    mia.sees("This has changed while you read.")
    button = mia.page.locator(".choice.reject form button").last
    assert button.get_attribute("aria-disabled") == "true"
    assert mia.page.get_by_label("Reason", exact=True).input_value() == "The address is wrong."
    button.click(force=True)
    assert desk.decision(asked).kind == "approve"


def test_two_of_finance_pay_a_bill(desk: Desk, invite: Invite) -> None:
    asked = desk.ask("pay", to="Porcelain Works", lines=BILL)
    rita, otto, carl = invite("rita"), invite("otto"), invite("carl")
    for each in (rita, otto, carl):
        each.opens(f"/requests/{asked.id}")
    carl.reads("You can read this, not decide it")
    assert carl.page.locator(".choice").count() == 0
    # Risky: it is shown once more before it counts.
    rita.sends("approve")
    rita.reads("Approve pay")
    assert desk.status(asked) == "pending" and asked.votes == ()
    rita.confirms()
    rita.reads("Your vote is in")
    rita.sees("1 of 2")
    # Otto has had the page open for all that time, and may still vote.
    otto.hears("Rita Okafor (rita) approved")
    otto.sends("approve")
    otto.confirms()
    otto.reads("Approved by you")
    otto.sees("It is recorded.")
    # A worker carries it out, and both see what came of it.
    desk.carry_out()
    for each in (rita, otto):
        each.hears("It is done.")
        each.sees("12749.00 euros paid to Porcelain Works.")
    assert [vote.by.id for vote in desk.decision(asked).votes] == ["rita", "otto"]


def test_an_edit_that_does_not_fit_is_refused_at_its_field(desk: Desk, rita: Visitor) -> None:
    asked = desk.ask("refund", order=1042)
    rita.opens(f"/requests/{asked.id}")
    rita.chooses("edit")
    amount = rita.page.get_by_label("amount")
    amount.fill("900")
    rita.expects("status of 422")
    rita.sends("edit")
    # A summary above, which has the focus, with a link to the field; and what was typed.
    rita.sees("This was not sent. Nothing is decided.")
    assert rita.page.evaluate("() => document.activeElement.id") == "summary"
    rita.page.locator("#summary a").click()
    assert rita.page.evaluate("() => document.activeElement.name") == "f/amount"
    assert amount.get_attribute("aria-invalid") == "true"
    assert amount.input_value() == "900"
    # A lower amount fits. The last look shows what changes, and goes back with it.
    amount.fill("25.50")
    rita.sends("edit")
    rita.sees("What you change")
    assert [each.split()[-1] for each in rita.page.locator(".diff :is(del, ins)").all_inner_texts()] == ["49.9", "25.5"]
    rita.presses("Go back and change it")
    assert amount.input_value() == "25.5"
    amount.fill("26")
    rita.sends("edit")
    rita.confirms()
    rita.reads("Approved with changes by you")
    # The other values are as they were, byte for byte.
    desk.carry_out()
    rita.hears("Order 1042: 26.00 euros are on their way.")
    assert desk.decision(asked).args == {**asked.args, "amount": 26}


def test_the_time_is_over_while_the_form_is_open(desk: Desk, invite: Invite) -> None:
    asked = desk.ask("close_account", customer="Blue Door Ltd")
    rita, plain = invite("rita"), invite("mia", java_script_enabled=False)
    for each in (rita, plain):
        each.opens(f"/requests/{asked.id}")
        each.chooses("reject")
        each.types("Reason", "They are a good customer.")
    desk.later(shop.HOUR * 3 / 4)
    # With script the page says so by itself; without, the server does. Both keep what was typed.
    rita.reads("The time to decide is over")
    rita.sees("This has changed while you read.")
    assert rita.page.get_by_label("Reason", exact=True).input_value() == "They are a good customer."
    plain.expects("status of 409")
    plain.sends("reject")
    plain.confirms()
    plain.reads("The time to decide was over")
    assert plain.page.get_by_label("What you had typed").input_value() == "They are a good customer."
    # A clock never approves, and nobody has.
    desk.carry_out()
    assert desk.decision(asked).kind == "expire"


def test_a_button_that_is_pressed_twice_counts_once(desk: Desk, rita: Visitor) -> None:
    asked = desk.ask("pay", to="Porcelain Works", lines=BILL)
    rita.opens(f"/requests/{asked.id}")
    rita.sends("approve")
    rita.page.locator("form[data-confirm] button").first.dblclick()
    rita.reads("Your vote is in")
    assert [vote.by.id for vote in desk.apart(desk.store.request, asked.id).approval.votes] == ["rita"]


def test_several_are_read_in_full_and_decided_together(desk: Desk, rita: Visitor) -> None:
    first, second = (desk.ask("mail", to=[f"{name}@example.org"], subject="Hi", body="x" * 40) for name in "ab")
    desk.ask("refund", order=7)
    rita.opens("/")
    boxes = rita.page.get_by_role("checkbox")
    assert boxes.count() == 2  # the risky one is decided by itself
    for box in boxes.all():
        box.check()
    rita.presses("Review the ticked ones")
    rita.reads("2 requests, each in full")
    for name in "ab":
        rita.sees(f"{name}@example.org")
    # Somebody decides one of them meanwhile: the other counts, and both are told.
    desk.decide(second, "mia", False)
    rita.presses("Approve all 2")
    rita.reads("What came of them")
    rita.sees("1 of 2 recorded.")
    assert (desk.decision(first).kind, desk.decision(second).kind) == ("approve", "reject")


def test_new_requests_come_in_on_a_click(desk: Desk, rita: Visitor) -> None:
    first = desk.ask("refund", order=1)
    rita.opens("/")
    desk.ask("refund", order=2)
    desk.decide(first, "mia")
    # Nothing moves by itself: the decided one fades where it is, the new one is announced.
    rita.hears("1 new: show it")
    rows = rita.page.locator(".row")
    assert rows.all_inner_texts()[0].startswith("Refund order 1:") and rows.count() == 1
    assert "gone" in (rows.first.get_attribute("class") or "")
    rita.presses("1 new")
    rita.sees("Refund order 2:")
    assert rows.count() == 1

"""The page of a mail's link in the browser: a scanner that runs scripts changes nothing, and a person needs none to decide."""

from __future__ import annotations

import pytest
import shop
from visitors import NARROW, Desk, Invite, faults_of, sideways

from phronomy import PendingApproval
from phronomy.people import Person, StoreDirectory

PLACE = "email:rita@example.org"


@pytest.fixture
def asked(desk: Desk) -> PendingApproval:
    """A request of little risk, and Rita, who is known by her address."""
    person = Person(id="rita", name="Rita Okafor", roles=("lead", "finance"), aliases=(PLACE,))
    desk.apart(StoreDirectory(desk.store).add, person)
    return desk.ask("mail", to=["a@example.org"], subject="Hello", body="Hi.")


def link_of(desk: Desk, asked: PendingApproval, action: str = "a") -> str:
    """The path of a link in the mail to Rita."""
    tokens = shop.approvals_of(desk.store).tokens
    given = {"pending_id": asked.id, "digest": asked.digest, "by": PLACE, "seconds": 3600.0, "once": False}
    return f"/mail/{action}{desk.apart(tokens.issue, 'chat:email', **given)}"


def test_a_scanner_that_runs_scripts_changes_nothing(desk: Desk, invite: Invite, asked: PendingApproval) -> None:
    scanner = invite(None, time_runs=True)
    for action in ("a", "r", "a"):
        page = scanner.opens(link_of(desk, asked, action))
        page.wait_for_load_state("networkidle")
        # It looks, scrolls, moves the mouse, opens what is folded, and waits. Nothing is there that would send.
        assert page.evaluate("() => document.scripts.length") == 0
        for fold in page.locator("summary").all():
            fold.click()
        page.mouse.wheel(0, 2_000)
        scanner.context.clock.fast_forward("30:00")
        page.go_back()
        page.go_forward()
        page.reload()
    assert desk.status(asked) == "pending"
    assert desk.apart(lambda: list(desk.store.audit())) == []


@pytest.mark.parametrize("script", [True, False])
def test_a_person_presses_the_button(desk: Desk, invite: Invite, asked: PendingApproval, script: bool) -> None:
    rita = invite(None, java_script_enabled=script, viewport=NARROW, time_runs=True)
    page = rita.opens(link_of(desk, asked))
    rita.sees("This link is Rita Okafor")
    if script:
        assert sideways(page) == [] and faults_of(page) == []
    page.get_by_role("button").click()
    page.wait_for_url("**#result")
    rita.sees("Approved by you")
    assert page.get_by_role("button").count() == 0
    decided = desk.decision(asked)
    assert (decided.kind, decided.by.id, decided.channel) == ("approve", "rita", "email")
    other = rita.context.new_page()
    assert "Approved by you" in rita.opens(link_of(desk, asked, "r"), page=other).locator("main").inner_text()


def test_a_form_on_another_site_counts_nothing(desk: Desk, invite: Invite, asked: PendingApproval) -> None:
    rita = invite(None)
    link = link_of(desk, asked)
    token = rita.opens(link).locator("input[name=page]").first.get_attribute("value")
    rita.expects("status of 403")
    rita.page.goto("about:blank")
    rita.page.set_content(
        f"<form method=post action='{desk.url(link)}'><input name=page value='{token}'><input name=answer value=approve></form>"
        "<script>document.forms[0].submit()</script>"
    )
    rita.page.wait_for_url("**/mail/*")
    rita.sees("The request came from another site")
    assert desk.status(asked) == "pending"


def test_the_link_is_in_no_referrer(desk: Desk, invite: Invite, asked: PendingApproval) -> None:
    rita = invite(None)
    rita.opens(link_of(desk, asked))
    told: list[str] = []
    rita.page.on("request", lambda request: told.append(request.headers.get("referer", "")))
    rita.page.get_by_role("link", name="open it in the inbox").click()
    rita.reads("Sign in to Shop approvals")
    assert told and not any("/mail/" in each for each in told)
    assert "/mail/" not in rita.page.url

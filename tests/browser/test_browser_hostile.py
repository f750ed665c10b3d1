"""Text from outside in the browser: whatever an agent, a customer or a colleague is called or writes stays text, in its frame."""

from __future__ import annotations

from typing import Any

import pytest
from furnished import BILL
from visitors import NARROW, Desk, Invite, Shoot, Visitor, faults_of, sideways

SCRIPT = "<script>window.taken = 1</script><img src=x onerror='window.taken = 2'><svg onload='window.taken = 3'>"
ATTRIBUTE = "\"><input autofocus onfocus='window.taken = 4'><a href='javascript:window.taken = 5'>click</a>"
TEMPLATE = "{{ visit.csrf }} {% for each in visit %}{{ each }}{% endfor %} ${window.taken = 6}"
FORM = (
    "</bdi></dd></dl></section><form action='/requests/x/decision' method='post'><h2>Decide</h2>"
    "<button class='yes'>Approve refund</button></form><style>.no { display: none }</style>"
    "<base href='https://evil.example/'><meta http-equiv='refresh' content='0;url=https://evil.example/'>"
)
PAGE = "What will run\n\norder\n7\n\nDecide\n✓ Approve refund"
BIDI = "pay \u202e001 ot\u202c now \u2067x\u2069"
UNSEEN = "pass\u200bword \u2060 tag\U000e0041 nul\x00 back\x08 \ufeff"
ARABIC = "مرحبا، أعد المال من فضلك"
HAN = "請退款，訂單一〇四二"  # noqa: RUF001  # it is Chinese
LONG = "w" * 5_000
VALUES = {
    **{"script": SCRIPT, "attribute": ATTRIBUTE, "template": TEMPLATE, "form": FORM, "page": PAGE},
    **{"bidi": BIDI, "unseen": UNSEEN, "arabic": ARABIC, "han": HAN, "long": LONG},
}

INNOCENT = """() => ({
    taken: window.taken === undefined,
    forms: document.forms.length,
    scripts: document.scripts.length,
    links: [...document.links].every((link) => link.origin === location.origin && link.protocol === "http:"),
    base: document.querySelector("base") === null,
    handlers: [...document.querySelectorAll("*")].every((each) =>
        [...each.attributes].every((one) => !one.name.startsWith("on"))),
    styles: document.querySelectorAll("style, [style]").length,
    direction: getComputedStyle(document.documentElement).direction,
})"""


def innocent(visitor: Visitor) -> dict[str, Any]:
    """What a page has, apart from text."""
    found: dict[str, Any] = visitor.page.evaluate(INNOCENT)
    return found


@pytest.mark.parametrize("name", VALUES)
def test_a_value_stays_in_its_frame(desk: Desk, rita: Visitor, name: str) -> None:
    text = VALUES[name]
    plain = desk.ask("refund", order=1, note="plain", by="ann")
    asked = desk.ask("refund", order=1, note=text, says=text, by=text[:200].replace("\x00", ""))
    rita.opens(f"/requests/{plain.id}")
    expected = innocent(rita)
    assert expected["taken"] and expected["links"] and expected["direction"] == "ltr"
    # The page is made of the same pieces as that of a plain value.
    rita.opens(f"/requests/{asked.id}")
    assert innocent(rita) == expected
    assert sideways(rita.page) == []
    # So are the list, the last look, and the outcome.
    rita.opens("/")
    rita.page.locator(".row").first.wait_for()
    assert innocent(rita)["taken"] and innocent(rita)["links"]
    rita.opens(f"/requests/{asked.id}")
    rita.chooses("reject")
    rita.types("Reason", text.replace("\x00", ""))
    rita.sends("reject")
    rita.reads("Reject refund")
    assert innocent(rita)["taken"] and innocent(rita)["base"]
    rita.confirms()
    rita.reads("Rejected by you")
    assert innocent(rita)["taken"] and innocent(rita)["links"]


def test_what_cannot_be_seen_stands_in_boxes(desk: Desk, rita: Visitor) -> None:
    asked = desk.ask("refund", order=1, note=BIDI + UNSEEN)
    rita.opens(f"/requests/{asked.id}")
    boxes = rita.page.locator("dd .letter")
    found = {each.split()[0] for each in boxes.all_inner_texts()}
    assert found == {
        *("U+202E", "U+202C", "U+2067", "U+2069", "U+200B", "U+2060"),
        *("U+E0041", "U+0000", "U+0008", "U+FEFF"),
    }
    rita.sees("10 characters in this value cannot be seen or look like another.")


@pytest.mark.parametrize("look", ["light", "320"])
def test_right_to_left_and_other_scripts(desk: Desk, invite: Invite, shoot: Shoot, look: str) -> None:
    asked = desk.ask("mail", to=["a@example.org"], subject=ARABIC, body=f"{HAN}\n{ARABIC}\n{BIDI} {UNSEEN}\n{SCRIPT}")
    rita = invite("rita", time_runs=True, **({"viewport": NARROW} if look == "320" else {}))
    page = rita.opens(f"/requests/{asked.id}")
    value = page.locator("dd bdi", has_text=ARABIC).first
    assert value.evaluate("(each) => getComputedStyle(each).direction") == "rtl"
    assert page.locator("dt bdi", has_text="subject").evaluate("(each) => getComputedStyle(each).direction") == "ltr"
    assert sideways(page) == []
    assert faults_of(page) == []
    shoot(page, f"hostile-{look}")


def test_what_is_long_is_folded_and_all_there(desk: Desk, rita: Visitor) -> None:
    asked = desk.ask("pay", to=LONG, lines=[*BILL, *({"text": f"line {n}", "cents": n} for n in range(200))])
    rita.opens(f"/requests/{asked.id}")
    name = rita.page.get_by_text(LONG, exact=True)
    last = rita.page.get_by_text("line 199", exact=True)
    assert not name.first.is_visible() and not last.first.is_visible()
    for fold in rita.page.locator(".values details > summary").all():
        fold.click()
    name.last.wait_for(state="visible")
    last.first.wait_for(state="visible")
    assert sideways(rita.page) == []

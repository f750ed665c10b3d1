"""The checks of the browser tests can fail: a page with faults is found to have them, and text is drawn.

A browser without fonts draws nothing, and then no check of contrast finds a fault.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route
from visitors import NARROW, Desk, Visitor, faults_of, sideways

POOR = """<!doctype html><html lang="en"><title>Poor</title><main><h1>Poor</h1><p style="color: #bbb; background: #fff">Hard to read</p>
<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="><p style="width: 2000px">wide</p></main>"""

SCRIPTS = {
    "Latin": ("Approve", "Approva"),
    "bold": ("<b>Approve</b>", "Approve"),
    "monospace": ("<code>iiii</code>", "iiii"),
    "Greek": ("αβγ", "αβδ"),
    "Cyrillic": ("Привет", "Привед"),
    "Arabic": ("مرحبا", "مرحبت"),
    "Hebrew": ("שלום", "שלוש"),
    "Japanese": ("承認する", "承認した"),
    "Han": ("退款", "退歓"),
    "marks": ("✓", "→"),
}


@pytest.fixture
def page(browser: Browser) -> Any:
    context = browser.new_context(viewport={"width": 400, "height": 300})
    yield context.new_page()
    context.close()


def test_a_page_that_is_hard_to_read_is_found_faulty(page: Page) -> None:
    page.set_content(POOR)
    found = {each.partition(" ")[0] for each in faults_of(page)}
    assert found == {"color-contrast", "image-alt"}


def test_a_page_that_is_too_wide_is_found(page: Page) -> None:
    page.set_viewport_size(NARROW)
    page.set_content(POOR)
    assert sideways(page) == ["P  wide"]
    page.set_content("<p>narrow")
    assert sideways(page) == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_text_is_drawn_in_every_script(page: Page, script: str) -> None:
    first, second = SCRIPTS[script]

    def drawn(text: str, color: str = "#000") -> bytes:
        page.set_content(f"<div style='width: 300px; height: 60px; font: 30px sans-serif; color: {color}'>{text}</div>")
        return page.locator("div").screenshot()

    blank = drawn("", "#000")
    assert drawn(first, "transparent") == blank
    # As one box for each letter that no font has, the two would look the same.
    assert len({blank, drawn(first), drawn(second)}) == 3


MISDEEDS = {
    "a message": ("<script>console.log('hello')</script>", "console: log: hello"),
    "a warning": ("<script>console.warn('careful')</script>", "console: warning: careful"),
    "an error": ("<script>throw new Error('broken')</script>", "error: broken"),
    "a promise": ("<script>Promise.reject(new Error('kept'))</script>", "error: kept"),
    "another origin": ("<img alt='' src='http://127.0.0.2:9/x.png'>", "request: http://127.0.0.2:9/x.png"),
}


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_what_must_not_happen_is_noticed(browser: Browser, desk: Desk, misdeed: str) -> None:
    html, told = MISDEEDS[misdeed]
    visitor = Visitor(browser, desk, None)

    def answer(route: Route) -> None:
        if route.request.url.startswith(desk.origin):
            route.fulfill(content_type="text/html", body=f"<!doctype html>{html}")
        else:
            route.abort()

    visitor.context.route("**/*", answer)
    visitor.opens("/")
    visitor.page.wait_for_load_state("networkidle")
    visitor.expects("no such message")
    faults = visitor.faults()
    visitor.close()
    assert any(told in each for each in faults)
    assert faults[-1] == "expected, and did not happen: no such message"

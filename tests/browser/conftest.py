"""What the browser tests share: one browser, and for each test a desk of its own, with people who are watched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from visitors import Desk, Invite, Shoot, Visitor


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(**chromium.launching())
        yield opened
        opened.close()


@pytest.fixture
def prefix() -> str:
    """Where the inbox is mounted."""
    return "/approvals"


@pytest.fixture
def desk(tmp_path: Path, prefix: str) -> Iterator[Desk]:
    """The store and the served inbox. The server has nothing to write."""
    made = Desk(tmp_path, prefix)
    made.start()
    yield made
    made.close()
    assert made.log() == ""


@pytest.fixture
def invite(browser: Browser, desk: Desk) -> Iterator[Invite]:
    """Gives somebody a browser: `invite("rita", color_scheme="dark")`. Nothing may go wrong in any of them."""
    people: list[Visitor] = []

    def invited(who: str | None = "rita", **options: Any) -> Visitor:
        people.append(Visitor(browser, desk, who, **options))
        return people[-1]

    yield invited
    faults = [f"{each.who}: {fault}" for each in people for fault in each.faults()]
    for each in people:
        each.close()
    assert faults == []


@pytest.fixture
def rita(invite: Invite) -> Visitor:
    """A lead, who may decide everything."""
    return invite("rita")


@pytest.fixture(scope="session")
def shoot(tmp_path_factory: pytest.TempPathFactory) -> Shoot:
    """Takes a picture of the whole page, under a name that stays: `PHRONOMY_SCREENSHOTS` says in which folder."""
    named = os.environ.get("PHRONOMY_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)

    def taken(page: Page, name: str) -> None:
        size = page.viewport_size
        assert size is not None
        # In a window as tall as the page: what sticks to the bottom of the window then covers nothing.
        tall = max(size["height"], page.evaluate("document.documentElement.scrollHeight"))
        page.set_viewport_size({"width": size["width"], "height": tall})
        page.screenshot(path=folder / f"{name}.png", full_page=True, animations="disabled", caret="hide")
        page.set_viewport_size(size)

    return taken

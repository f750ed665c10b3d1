"""People with browsers, and the inbox that they look at: what the stories of the browser tests are told with.

A `Desk` has the store, the served inbox and its time. A `Visitor` is somebody with a browser of their own, and is watched: any message
on the console, any error of a script, and any request to another origin fails the test, unless it said before what it expects.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import chromium
import shop
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request, TimeoutError, WebError
from ports import HeldPort

from phronomy import Approve, Breakpoint, PendingApproval, Principal, Reject
from phronomy.workers import Worker

T = TypeVar("T")

SOON = 30_000
"""Milliseconds in which a page shows what it must."""

STEP = 1_000
"""Milliseconds in which a page shows what it has heard of, or more time passes for it."""

STARTS = 60.0
"""Seconds in which the inbox answers after its process was started."""

WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 320, "height": 640}

FAULTS = """async (rules) => {
    const found = await axe.run(document, rules);
    return found.violations.map((one) =>
        `${one.id} (${one.impact}): ${one.help}: ` + one.nodes.map((node) => `${node.target} ${node.html}`).join(" | "));
}"""

SIDEWAYS = """() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > width + 1)
        .map((each) => `${each.tagName} ${each.className} ${each.textContent.slice(0, 40)}`);
}"""


class Desk:
    """The store, with an agent that asks and a worker that carries out; and the inbox, served in a process of its own."""

    def __init__(self, folder: Path, prefix: str = "/approvals") -> None:
        self.folder = folder
        self.prefix = prefix
        # A thread of its own: Playwright has an event loop in the thread of the test, where no other one may run.
        self._thread = ThreadPoolExecutor(1, "desk")
        self.visitors: list[Visitor] = []
        self._sessions: dict[str, str] = {}
        self.pass_time(to=shop.BEGINS)
        self.store = shop.store_of(folder)
        self.agent = shop.desk_of(self.store)
        self._port = HeldPort()  # also while the server is down, and pages that are open ask for it
        self.origin = f"http://127.0.0.1:{self._port.number}"
        self._process: subprocess.Popen[bytes] | None = None

    # The server

    def start(self) -> None:
        """Serve, and return when the inbox answers."""
        command = [sys.executable, shop.__file__, str(self.folder), str(self._port.number), self.prefix]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + STARTS
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop serving, in the middle of whatever is under way."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        self._port.close()
        self._thread.shutdown()
        self.store.close()

    def log(self) -> str:
        """What the server has written: nothing, if all went well."""
        return (self.folder / "log").read_text()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.origin}{self.prefix}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def url(self, path: str) -> str:
        """The address of a page."""
        return self.origin + self.prefix + path

    # What happens behind it

    def apart(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        """What the function returns, called in the thread of the desk."""
        return self._thread.submit(work, *args, **options).result()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns."""
        return self.apart(asyncio.run, work)

    def now(self) -> float:
        return float((self.folder / "clock").read_text())

    def pass_time(self, seconds: float = 0, *, to: float | None = None) -> None:
        """Have it be later for the store and the server."""
        file = self.folder / "clock.new"
        file.write_text(str(to if to is not None else self.now() + seconds))
        file.replace(self.folder / "clock")

    def later(self, seconds: float) -> None:
        """Have it be later for everybody: for the store, the server, and the timers of all pages that are open."""
        self.pass_time(seconds)
        for each in self.visitors:
            each.context.clock.fast_forward(round(seconds * 1000))

    def ask(self, tool: str, *, says: str | None = None, by: str = "ann", **args: Any) -> PendingApproval:
        """Have the agent make a call that waits for people, one minute after the one before."""
        return self.ask_all([(tool, args)], says=says, by=by)[0]

    def ask_all(
        self, calls: list[tuple[str, dict[str, Any]]], *, says: str | None = None, by: str = "ann"
    ) -> list[PendingApproval]:
        """Have the agent make several calls in one turn."""
        self.pass_time(60)
        told = json.dumps({"says": says, "calls": calls})
        result = self.apart(self.agent.invoke, told, requester=Principal(id=by, name=by.title()))
        return list(result.checkpoint.pending)

    def stop_before(self, tool: str, **args: Any) -> PendingApproval:
        """Have the agent stop before a call, as a developer wanted."""
        self.pass_time(60)
        told = json.dumps({"says": "I look it up.", "calls": [[tool, args]]})
        stops = [Breakpoint("pre_tool_call", label="look first")]
        result = self.apart(self.agent.invoke, told, breakpoints=stops, requester=Principal(id="dev", name="Dev"))
        return result.checkpoint.pending[0]

    def carry_out(self) -> None:
        """Have a worker do once all that is to be done."""
        self.run(Worker([self.agent]).once())

    def decide(self, asked: PendingApproval, who: str, answer: Any = True, **options: Any) -> None:
        """Have somebody decide elsewhere: in a chat, say."""
        given = {True: Approve(), False: Reject(reason="Not this one.")}[answer] if isinstance(answer, bool) else answer
        who_decides = {"by": shop.PEOPLE[who], "channel": "chat", "digest": asked.digest}
        self.apart(self.store.decide, asked.id, given, **who_decides, **options)

    def status(self, asked: PendingApproval) -> str:
        """Where a request stands, as the store says."""
        return self.apart(self.store.request, asked.id).status

    def decision(self, asked: PendingApproval) -> Any:
        """The decision on a request: None as long as there is none."""
        return self.apart(self.store.request, asked.id).decision

    def link(self) -> str:
        """The path of a new one-time link, as the terminal of the server prints it."""
        return self.run(shop.link_of(self.store, self.folder).issue())

    def session(self, who: str) -> str:
        """The secret of the session of somebody: what signing in gives them."""
        if who not in self._sessions:
            began = shop.sessions_of(self.store).begin(shop.PEOPLE[who])
            self._sessions[who] = self.run(began)
        return self._sessions[who]

    def sign_out_everywhere(self, who: str) -> None:
        """End the sessions of somebody, as they do from another machine."""
        del self._sessions[who]
        self.run(shop.sessions_of(self.store).end_all(who))


class Visitor:
    """Somebody with a browser: `page` is the tab that they look at.

    For its scripts no time passes by itself, so that nothing happens between two steps of a story; with `time_runs` it does.
    """

    def __init__(
        self, browser: Browser, desk: Desk, who: str | None = "rita", *, time_runs: bool = False, **options: Any
    ) -> None:
        self.desk = desk
        self.who = who
        self.expected: list[str] = []
        self.allowed: list[str] = []
        self.seen: list[str] = []
        self.context: BrowserContext = browser.new_context(
            **{"viewport": WIDE, "locale": "en-GB", "timezone_id": "UTC", "base_url": desk.origin, **options}
        )
        self.context.set_default_timeout(SOON)
        now = datetime.fromtimestamp(desk.now(), UTC)
        self.context.clock.install(time=now if time_runs else now - timedelta(minutes=1))
        if not time_runs:  # only `Desk.later` lets a timer of the page fire
            self.context.clock.pause_at(now)
        desk.visitors.append(self)
        self.context.on("console", self._heard)
        self.context.on("weberror", self._failed)
        self.context.on("request", self._asked)
        if who is not None:
            self.sign_in(who)
        self.page: Page = self.context.new_page()

    # What must not be

    def expects(self, *patterns: str) -> None:
        """Say which messages on the console this story has: a failed request is one, and nothing can keep the browser from it."""
        self.expected += patterns

    def allows(self, *patterns: str) -> None:
        """Say which messages there may be, or not."""
        self.allowed += patterns

    def _heard(self, message: ConsoleMessage) -> None:
        self.seen.append(f"console: {message.type}: {message.text} ({message.location.get('url')})")

    def _failed(self, error: WebError) -> None:
        self.seen.append(f"error: {error.error}")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self.desk.origin and parts.scheme not in ("blob", "data", "about"):
            self.seen.append(f"request: {request.url}")

    def faults(self) -> list[str]:
        """What has happened that the story did not expect, and what it expected that has not happened."""
        known = self.expected + self.allowed
        unexpected = [each for each in self.seen if not any(re.search(one, each) for one in known)]
        missed = [one for one in self.expected if not any(re.search(one, each) for each in self.seen)]
        return unexpected + [f"expected, and did not happen: {one}" for one in missed]

    # What they do

    def sign_in(self, who: str) -> None:
        """Have them signed in."""
        cookie = {"name": shop.COOKIE, "value": self.desk.session(who), "url": self.desk.origin, "httpOnly": True}
        self.context.add_cookies([{**cookie, "sameSite": "Lax"}])  # type: ignore[list-item]

    def opens(self, path: str, *, page: Page | None = None) -> Page:
        """Open a page of the inbox."""
        page = page if page is not None else self.page
        page.goto(self.desk.url(path))
        return page

    def new_tab(self, path: str) -> Page:
        """Open a page in another tab."""
        return self.opens(path, page=self.context.new_page())

    def sees(self, text: str | re.Pattern[str]) -> Locator:
        """Wait until the text is to be seen, and the page is whole."""
        found = self.page.get_by_text(text).filter(visible=True).first
        found.wait_for()
        self.page.wait_for_load_state()
        return found

    def hears(self, text: str, *, page: Page | None = None, steps: int = 20, seconds: float = 6) -> None:
        """Let time pass, step by step, until the text is to be seen without anything being done on the page."""
        found = (page or self.page).get_by_text(text).filter(visible=True).first
        for _ in range(steps):
            self.desk.later(seconds)
            with suppress(TimeoutError):
                found.wait_for(timeout=STEP)
                break
        found.wait_for()

    def chooses(self, way: str) -> None:
        """Open a way to answer: `edit`, `reject` or `respond`. To approve one request needs none of it."""
        self.page.locator(f".bar [data-open={way}], details.choice.{way}:not(.first) > summary").click()

    def sends(self, way: str) -> None:
        """Send the form of a way to answer."""
        self.page.locator(f"form.choice.{way}, .choice.{way} form").first.get_by_role("button").click()

    def confirms(self) -> None:
        """Confirm what the page of the last look shows."""
        self.page.locator("form[data-confirm] button").first.click()

    def presses(self, name: str | re.Pattern[str]) -> None:
        """Press a button."""
        self.page.get_by_role("button", name=name).click()

    def follows(self, name: str | re.Pattern[str]) -> None:
        """Follow a link."""
        self.page.get_by_role("link", name=name).first.click()

    def types(self, label: str, text: str) -> None:
        """Fill a field."""
        self.page.get_by_label(label, exact=True).fill(text)

    def reads(self, text: str) -> None:
        """Wait until the heading of the page, or of the outcome, says so, and the page is whole.

        A page hears keys only once its script has run, and its heading may be there before.
        """
        self.page.locator("h1, #result", has_text=text).first.wait_for(state="visible")
        self.page.wait_for_load_state()

    def focused(self) -> str:
        """What has the focus: its text, or its name."""
        found: str = self.page.evaluate(
            "() => document.activeElement.textContent.trim() || document.activeElement.name"
        )
        return found

    def close(self) -> None:
        self.desk.visitors.remove(self)
        self.context.close()


Invite: TypeAlias = Callable[..., Visitor]
"""Gives somebody a browser."""

Shoot: TypeAlias = Callable[[Page, str], None]
"""Takes a picture of a page."""


def faults_of(page: Page, **rules: Any) -> list[str]:
    """What axe-core finds wrong with a page."""
    # A script tag is what the inbox's policy refuses, so the source is run by the debugger.
    if not page.evaluate("() => typeof axe === 'object'"):
        page.evaluate(chromium.axe())
    found: list[str] = page.evaluate(FAULTS, rules)
    return found


def sideways(page: Page) -> list[str]:
    """What makes a page wider than the window; empty if nothing does."""
    found: list[str] = page.evaluate(SIDEWAYS)
    return found

"""A tour of every page: in light and dark, and on a phone, nothing is hard to use, too wide or out of its frame.

Pictures are taken on the way, each under the name of its page and look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from furnished import furnish
from playwright.sync_api import Browser
from visitors import NARROW, SOON, WIDE, Desk, Shoot, Visitor, faults_of, sideways

from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.pages.table import PAGES

Made = dict[str, Any]

NOT_FOUND = "status of 404"

FRAGMENTS = {"/requests/{id}/state", "/chat/{thread}/talk"}
"""Parts of pages, which the script puts in."""

ALIKE = {"/runs/{id}/pause", "/runs/{id}/cancel", "/runs/{id}/checkpoints/{checkpoint}/restore"}
"""Pages of a template that others of the tour are made of."""

FILES = {"/audit.csv", "/audit.ndjson"}
"""What is no page, but is saved."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A page as it is looked at: its path, given what waits; who looks, and what they do there before it is looked at.

    `expects` is what is on the console, where the answer is a problem.
    """

    path: str | Callable[[Made], str]
    route: str
    who: str | None = "rita"
    heading: str
    does: Callable[[Visitor], object] = lambda visitor: None
    expects: tuple[str, ...] = ()

    def address(self, made: Made) -> str:
        return self.path if isinstance(self.path, str) else self.path(made)


def page(path: str, heading: str, **options: Any) -> Scene:
    """A page that is always there."""
    route = options.pop("route", path.partition("?")[0])
    return Scene(path=path, route=route, heading=heading, **options)


def request(name: str, heading: str, **options: Any) -> Scene:
    """The page of a request."""
    route = options.pop("route", "/requests/{id}")
    return Scene(path=lambda made: f"/requests/{made[name].id}", route=route, heading=heading, **options)


def of_run(end: str, heading: str, **options: Any) -> Scene:
    """A page of the run that stands at a breakpoint, or of a checkpoint of it."""
    route = options.pop("route", f"/runs/{{id}}{end}")
    names = ("begun", "asked", "last", "stopped")
    return Scene(
        path=lambda made: f"/runs/{made['stopped_run']}{end.format(**{name: made[name].id for name in names})}",
        route=route,
        heading=heading,
        **options,
    )


def reviews(visitor: Visitor) -> None:
    visitor.sends("approve")


def changes(amount: str) -> Callable[[Visitor], None]:
    """Change the amount of a refund, and have it checked."""

    def changed(visitor: Visitor) -> None:
        visitor.chooses("edit")
        visitor.page.get_by_label("amount").fill(amount)
        visitor.sends("edit")

    return changed


def ticks(visitor: Visitor) -> None:
    for box in visitor.page.get_by_role("checkbox").all():
        box.check()
    visitor.presses("Review the ticked ones")


def gives_too_little(visitor: Visitor) -> None:
    visitor.page.get_by_label("What it is for").select_option("tenant")
    visitor.presses("Give this grant")
    visitor.sees("A grant for more than one run ends")


def opens_choice(way: str) -> Callable[[Visitor], None]:
    return lambda visitor: visitor.chooses(way)


def talks(visitor: Visitor) -> None:
    """Ask for a refund, and wait until somebody is asked for it."""
    visitor.page.get_by_label("What would you like to ask?").fill("Refund order 7")
    visitor.presses("Begin")
    visitor.hears("Nothing runs until you have decided")


SCENES = {
    "waiting": page("/", "Waiting"),
    "waiting-all": page("/?view=all", "Waiting", who="carl"),
    "waiting-filtered": page("/?tool=refund&risk=high", "Waiting"),
    "waiting-none-found": page("/?text=teapot", "Waiting"),
    "request": request("waits", "Refund order 1042"),
    "request-reject": request("waits", "Refund order 1042", does=opens_choice("reject")),
    "request-edit": request("waits", "Refund order 1042", does=opens_choice("edit")),
    "request-edit-wrong": request("waits", "Refund order 1042", does=changes("900"), expects=("status of 422",)),
    "request-mail": request("mail", "Send a mail"),
    "request-question": request("question", "Order 1043 has two addresses"),
    "request-partly-voted": request("paid", "Pay a bill"),
    "request-voted": request("voted", "Pay a bill"),
    "request-may-not": request("paid", "Pay a bill", who="carl"),
    "request-recorded": request("deciding", "Refund order 1046"),
    "request-done": request("done", "Refund order 1017"),
    "request-rejected": request("rejected", "Refund order 1018"),
    "request-failed": request("failed", "Have a parcel collected"),
    "request-expired": request("expired", "Close an account"),
    "review": request("waits", "Approve refund", does=reviews, route="/requests/{id}/review"),
    "review-edit": request("waits", "Approve", does=changes("25.50"), route="/requests/{id}/edit"),
    "batch": page("/", "2 requests, each in full", does=ticks, route="/batch"),
    "runs": page("/runs", "Runs"),
    "runs-none-found": page("/runs?state=ended&agent=teapot", "Runs"),
    "run": Scene(path=lambda made: f"/runs/{made['run']}", route="/runs/{id}", heading="It came a week late."),
    "run-stopped": of_run("", "Stopped before ship", route="/runs/{id}"),
    "versions": of_run("/versions", "Versions"),
    "checkpoint": of_run("/checkpoints/{asked}", "model asks for ship", route="/runs/{id}/checkpoints/{checkpoint}"),
    "compare": of_run("/compare?before={begun}&after={last}", "What changed", route="/runs/{id}/compare"),
    "step": of_run("/step?request={stopped}", "Step from here", route="/runs/{id}/step"),
    "fork": of_run("/checkpoints/{asked}/fork", "Fork", route="/runs/{id}/checkpoints/{checkpoint}/fork"),
    "chats": page("/chat", "Talk to an agent"),
    "chat": page("/chat", "clerk", does=talks, route="/chat/{thread}"),
    "history": page("/history", "History"),
    "history-edited": page("/history?kind=edited", "History"),
    "history-none-found": page("/history?tool=teapot", "History"),
    "audit": page("/audit", "Export the audit trail"),
    "grants": page("/grants?show=all", "Standing grants"),
    "grant": Scene(
        path=lambda made: f"/requests/{made['waits'].id}/grant",
        route="/requests/{id}/grant",
        heading="Let such calls pass",
    ),
    "grant-wrong": Scene(
        path=lambda made: f"/requests/{made['waits'].id}/grant",
        route="/requests/{id}/grant",
        heading="Let such calls pass",
        does=gives_too_little,
        expects=("status of 422",),
    ),
    "login": page("/login", "Sign in", who=None),
    "login-again": page("/login", "You are signed in"),
    "start": Scene(path=lambda made: made["link"], route="/start/{secret}", heading="Sign in", who=None),
    "start-wrong": page("/start/abc", "This is no link", who=None, expects=(NOT_FOUND,)),
    "me": page("/me", "You"),
    "api": page("/api", "API"),
    "help": page("/help", "Help"),
    "not-found": page("/nowhere", "", expects=(NOT_FOUND,)),
    "problem": Scene(
        path="/problems/already-decided", route="/problems/{name}", heading="This request is decided", who=None
    ),
}


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Desk, Made]]:
    """An inbox with something on each page, which nobody changes."""
    desk = Desk(tmp_path_factory.mktemp("furnished"), prefix="")
    made = furnish(desk) | {"link": desk.link()}
    desk.start()
    yield desk, made
    desk.close()
    assert desk.log() == ""


def test_the_tour_comes_to_every_page() -> None:
    pages = {each.path for each in PAGES if each.method == "GET" and each.page}
    assert pages - {each.route for each in SCENES.values()} == FRAGMENTS | FILES | ALIKE


@pytest.mark.parametrize("name", SCENES)
def test_a_page_can_be_used_in_light_and_dark_and_on_a_phone(
    browser: Browser, furnished: tuple[Desk, Made], shoot: Shoot, name: str
) -> None:
    (desk, made), scene = furnished, SCENES[name]
    visitor = Visitor(browser, desk, scene.who, time_runs=True)
    try:
        visitor.expects(*scene.expects)
        page = visitor.opens(scene.address(made))
        scene.does(visitor)
        page.locator("h1", has_text=scene.heading).wait_for(timeout=SOON)
        assert page.locator("h1").count() == 1
        assert page.title()
        for look in ("light", "dark", "320"):
            page.emulate_media(color_scheme="dark" if look == "dark" else "light")
            page.set_viewport_size(NARROW if look == "320" else WIDE)  # type: ignore[arg-type]
            assert sideways(page) == []
            assert faults_of(page) == []
            shoot(page, f"{name}-{look}")
        assert visitor.faults() == []
    finally:
        visitor.close()

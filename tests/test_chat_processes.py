"""Approvals in chat apps with real processes on one database, killed where it hurts. The fake platforms and the people are here."""

from __future__ import annotations

import base64
import json
import multiprocessing
import signal
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from chat_scenes import OTTO, PLATFORMS, RITA, approvals_of, with_people
from chat_worker import forked
from drivers import PATIENCE
from places import Place, place_of

from phronomy.testing.chat import Clock, Platform, Sent, Shown

pytestmark = [pytest.mark.unmeasured, pytest.mark.usefixtures("fresh_fork_server")]

FORKED = ["chat_worker"]


class Real(Clock):
    """The clock of the machine, and so much more."""

    def __init__(self) -> None:
        super().__init__(0.0)

    def __call__(self) -> float:
        return time.time()

    @property
    def now(self) -> float:  # type: ignore[override]
        return time.time()

    @now.setter
    def now(self, value: float) -> None:
        """It cannot be moved."""


AT_ONCE = ("slack", "discord", "telegram", "webhook")
"""Where a message changes with the click. Teams takes no edit so soon after the post, and the mails of a page have come before."""


class Desk:
    """The processes of a desk, on one database and one platform."""

    def __init__(self, place: Place, platform: Platform) -> None:
        self.url, self._folder, self._effects = place.url, place.folder, place.folder / "effects"
        self.platform, self.route = platform, platform.place
        self._context = multiprocessing.get_context("forkserver")
        self.store = with_people(place.open(), platform)
        approvals_of(self.store, platform)  # for what clients ask by themselves

    @property
    def name(self) -> str:
        """The name of the channel."""
        return self.platform.channel.name

    @property
    def at(self) -> str:
        """Where the platform listens."""
        fake: Any = self.platform
        return (
            f"smtp://127.0.0.1:{fake.port}"
            if self.name == "email"
            else fake.url
            if self.name == "webhook"
            else fake.base_url
        )

    def run(self, *what: str, sent: Sent | None = None, killed: bool = False) -> str:
        """What a process has said; `killed` if it was."""
        given = ""
        if sent is not None:
            body = base64.b64encode(sent.body).decode()
            given = json.dumps({"path": sent.path, "headers": dict(sent.headers), "body": body})
        said = self._folder / f"said-{uuid.uuid4().hex}"
        options = (self.url, str(self._effects), self.name, self.at, self.route)
        process = self._context.Process(target=forked, args=(given, said, *options, *what))
        process.start()
        process.join(PATIENCE)
        assert process.exitcode == (-signal.SIGKILL if killed else 0), said.read_text()
        return said.read_text().strip()

    @property
    def shown(self) -> Shown:
        """The only message."""
        [found] = self.platform.messages()
        return found

    @property
    def effects(self) -> list[str]:
        """What has happened in the world."""
        return self._effects.read_text().split() if self._effects.exists() else []


STORES = ("sqlite", "postgres", "redis")


def places(*names: str) -> list[Any]:
    """Each platform on each store. Only Slack is on all of them by default."""
    skipped = pytest.mark.sweep
    return [
        pytest.param((name, kind), id=f"{name}-{kind}", marks=[skipped] if name != "slack" and kind != "sqlite" else [])
        for name in names
        for kind in STORES
    ]


@pytest.fixture(params=places(*PLATFORMS))
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    name, kind = request.param
    with closing(PLATFORMS[name](Real(), False)) as platform, place_of(kind, tmp_path) as place:
        yield Desk(place, platform)


def test_a_click_is_acknowledged_its_process_is_killed_and_it_is_carried_out_once(desk: Desk) -> None:
    desk.run("ask", "noted", killed=True)
    assert desk.platform.messages() == []
    desk.run("work")  # posted by another process
    sent = desk.platform.sign(desk.shown, "approve", RITA)
    assert desk.run("click", "acknowledged", sent=sent, killed=True) == "200"
    assert desk.effects == [] and len(desk.store.decided()) == 1
    assert desk.shown.buttons or desk.name == "email"  # nobody has heard of it; a page sends the mail before it answers
    assert desk.run("click", sent=sent) == "200"  # the platform tries again
    if desk.name in AT_ONCE:
        assert desk.shown.buttons == {} and "running" in desk.shown.text
    desk.run("work")
    desk.run("work")
    assert desk.effects == ["7"]
    assert desk.shown.buttons == {} and "approved by Rita" in desk.shown.text and "done" in desk.shown.text


# In mails and webhooks, a click does not say in which message the button was. So nobody knows yet that this one is there.
@pytest.mark.few(2)
@pytest.mark.parametrize("desk", places("slack", "discord", "teams", "telegram"), indirect=True)
def test_a_process_is_killed_as_soon_as_the_platform_has_posted(desk: Desk) -> None:
    desk.run("ask", "posted", killed=True)
    assert desk.run("click", sent=desk.platform.sign(desk.shown, "approve", RITA)) == "200"
    desk.run("work")
    assert desk.effects == ["7"]
    assert desk.shown.buttons == {} and "done" in desk.shown.text


@pytest.mark.few(3)
def test_a_click_that_two_processes_get_at_once_is_one_decision(desk: Desk) -> None:
    desk.run("ask")
    sent = desk.platform.sign(desk.shown, "approve", RITA)
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(lambda _: desk.run("click", sent=sent), range(2))] == ["200", "200"]
    desk.run("work")
    assert desk.effects == ["7"] and "done" in desk.shown.text
    [record] = desk.store.audit()
    assert (record.by and record.by.id, record.kind, record.refused) == ("rita", "approve", False)


@pytest.mark.few(3)
def test_of_two_answers_that_two_processes_get_at_once_one_counts(desk: Desk) -> None:
    desk.run("ask")
    both = [desk.platform.sign(desk.shown, action, RITA) for action in ("approve", "reject")]
    with ThreadPoolExecutor(2) as pool:
        [*pool.map(lambda sent: desk.run("click", sent=sent), both)]
    desk.run("work")
    [record] = desk.store.audit()
    assert desk.effects == (["7"] if record.kind == "approve" else [])
    assert desk.shown.buttons == {} and f"{record.kind.removesuffix('e')}ed by Rita" in desk.shown.text


@pytest.mark.few(3)
@pytest.mark.parametrize("desk", places("slack", "discord", "teams", "email"), indirect=True)
@pytest.mark.parametrize("where", ["between", "noted"])
def test_each_person_whose_turn_it_is_is_told_once_though_processes_are_killed(desk: Desk, where: str) -> None:
    desk.route = "approvers"
    desk.run("ask", where, killed=True)
    fake: Any = desk.platform
    assert [len(fake.alone(by)) for by in (RITA, OTTO)] == [0, 0]
    with ThreadPoolExecutor(2) as pool:
        [*pool.map(lambda _: desk.run("work"), range(2))]
    assert [len(fake.alone(by)) for by in (RITA, OTTO)] == [1, 1]
    assert desk.run("click", sent=desk.platform.sign(fake.alone(OTTO)[0], "approve", OTTO)) == "200"
    desk.run("work")
    assert desk.effects == ["7"]
    assert all("approved by Otto" in fake.alone(by)[0].text for by in (RITA, OTTO))

"""Approvals in Slack with real processes on one SQLite file, killed where it hurts. The fake Slack and the people are here."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_scenes import RITA, with_people

from phronomy import SQLiteStore
from phronomy.testing.chat import Clock, FakeSlack, Sent

pytestmark = pytest.mark.unmeasured

WORKER = Path(__file__).parent / "chat_worker.py"


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


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with FakeSlack(Real()) as fake:
        yield fake


class Desk:
    """The processes of a desk, on one database."""

    def __init__(self, folder: Path, slack: FakeSlack) -> None:
        self.database = folder / "runs.db"
        self.slack = slack
        self.store = with_people(SQLiteStore(self.database), slack)

    def run(self, *what: str, sent: Sent | None = None, killed: bool = False) -> str:
        """What a process has said; `killed` if it was."""
        given = ""
        if sent is not None:
            body = base64.b64encode(sent.body).decode()
            given = json.dumps({"path": sent.path, "headers": dict(sent.headers), "body": body})
        command = [sys.executable, str(WORKER), str(self.database), self.slack.base_url, *what]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == (-9 if killed else 0), done.stderr
        return done.stdout.strip()

    @property
    def effects(self) -> list[str]:
        """What has happened in the world."""
        path = Path(f"{self.database}.effects")
        return path.read_text().split() if path.exists() else []


def test_a_click_is_acknowledged_its_process_is_killed_and_it_is_carried_out_once(
    tmp_path: Path, slack: FakeSlack
) -> None:
    desk = Desk(tmp_path, slack)
    desk.run("ask", "noted", killed=True)
    assert slack.messages() == []
    desk.run("work")  # posted by another process
    [shown] = slack.messages()
    sent = slack.sign(shown, "approve", RITA)
    assert desk.run("click", "acknowledged", sent=sent, killed=True) == "200"
    assert desk.effects == [] and slack.messages()[0].buttons  # decided, and nobody has heard of it
    assert len(desk.store.decided()) == 1
    assert desk.run("click", sent=sent) == "200"  # the platform tries again
    assert slack.messages()[0].buttons == {} and "running" in slack.messages()[0].text
    desk.run("work")
    desk.run("work")
    assert desk.effects == ["7"]
    assert "approved by Rita" in slack.messages()[0].text and "done" in slack.messages()[0].text
    assert len(slack.messages()) == 1


def test_a_process_is_killed_as_soon_as_slack_has_posted(tmp_path: Path, slack: FakeSlack) -> None:
    desk = Desk(tmp_path, slack)
    desk.run("ask", "posted", killed=True)
    [shown] = slack.messages()
    assert desk.run("click", sent=slack.sign(shown, "approve", RITA)) == "200"
    desk.run("work")
    assert desk.effects == ["7"]
    [shown] = slack.messages()
    assert shown.buttons == {} and "done" in shown.text

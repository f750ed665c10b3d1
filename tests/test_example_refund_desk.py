"""The refund desk of the examples: a customer in the chat, and an approver in the inbox, each with a browser of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest
from drivers import PATIENCE
from ports import HeldPort

DESK = Path(__file__).parents[1] / "examples" / "refund_desk"


class Desk:
    """The example as a process, and what it printed."""

    def __init__(self, folder: Path) -> None:
        self._port = HeldPort()
        self.port = self._port.number
        self.process = subprocess.Popen(
            [sys.executable, str(DESK / "main.py")],
            cwd=folder,
            env={**os.environ, "PORT": str(self.port), "PHRONOMY_STORE": "sqlite:///desk.db"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.customer = self.process.stdout.readline().split()[-1]
        self.approver = self.process.stdout.readline().split()[-1]

    def end(self) -> int:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """Kill it, if it still runs."""
        self.process.kill()
        self.process.communicate()
        self._port.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def until(look: Callable[[], Any]) -> Any:
    """What is seen at last."""
    begun = time.monotonic()
    while not (found := look()):
        assert time.monotonic() - begun < PATIENCE
        time.sleep(0.05)
    return found


def form_of(page: str, action: str) -> dict[str, str]:
    """The hidden fields of the form of a page that leads there."""
    found = re.search(rf'<form[^>]*action="{action}"[^>]*>(.*?)</form>', page, re.DOTALL)
    assert found is not None, page
    fields = re.findall(r"<input[^>]*>", found[1])
    named = {re.search(r'name="([^"]*)"', each): re.search(r'value="([^"]*)"', each) for each in fields}
    return {unescape(name[1]): unescape(value[1]) if value else "" for name, value in named.items() if name}


def sign_in(desk: Desk, approver: httpx2.Client) -> str:
    """The page that the approver sees once the link has signed them in."""
    start = approver.get(desk.approver)
    inbox = f"http://127.0.0.1:{desk.port}/approvals"
    page = approver.post(inbox + "/start", data=form_of(start.text, "/approvals/start"), follow_redirects=True)
    assert page.status_code == 200
    return page.text


def test_ctrl_c_ends_it_while_a_browser_shows_the_inbox(desk: Desk) -> None:
    with httpx2.Client(headers={"sec-fetch-site": "same-origin"}, timeout=PATIENCE) as approver:
        sign_in(desk, approver)
        with approver.stream("GET", f"http://127.0.0.1:{desk.port}/approvals/api/v1/events") as stream:
            assert stream.status_code == 200
            lines = stream.iter_lines()
            next(lines)  # it is open
            begun = time.monotonic()
            assert desk.end() == 0 and time.monotonic() - begun < 10
            list(lines)  # it was ended, and not cut off: that would raise


@pytest.mark.parametrize("body", [b"no JSON", b"[]", b"\xff"])
def test_a_message_that_is_no_json_is_refused(desk: Desk, body: bytes) -> None:
    with httpx2.Client(base_url=desk.customer) as customer:
        assert customer.post("/say", content=body).status_code == 400


def test_a_port_that_is_taken_is_told_in_one_line_before_any_link(desk: Desk, tmp_path: Path) -> None:
    second = subprocess.run(
        [sys.executable, str(DESK / "main.py")],
        cwd=tmp_path,
        check=False,
        env={**os.environ, "PORT": str(desk.port), "PHRONOMY_STORE": "sqlite:///desk.db"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    said = f"Nobody can listen on port {desk.port}: Address already in use. Set PORT to another one.\n"
    assert (second.returncode, second.stdout, second.stderr) == (1, "", said)


def test_a_refund_is_asked_for_in_the_chat_and_approved_in_the_inbox(desk: Desk) -> None:
    same = {"sec-fetch-site": "same-origin"}
    with httpx2.Client(base_url=desk.customer) as customer, httpx2.Client(headers=same) as approver:
        assert "Refund desk" in customer.get("/").text
        asked = customer.post("/say", json={"text": "Please refund order 1042, it arrived broken"})
        assert asked.json()["waits"] is True
        busy = customer.post("/say", json={"text": "Hello?"})
        assert (busy.status_code, busy.json()["error"]) == (409, "A colleague is looking at your last message.")

        inbox = f"http://127.0.0.1:{desk.port}/approvals"
        waiting = sign_in(desk, approver)
        assert "Refund" in waiting
        (id,) = set(re.findall(r"/approvals/requests/(pend_[0-9a-f]+)", waiting))
        url = f"{inbox}/requests/{id}"
        page = approver.get(url).text
        assert "Pay 85.00 euros back for order 1042 (lamp)." in unescape(page)
        action = f"/approvals/requests/{id}/decision"
        fields = form_of(page, action)
        done = approver.post(url + "/decision", data={**fields, "answer": "approve"}, follow_redirects=True)
        assert done.status_code == 200, done.text

        def answered() -> Any:
            found = customer.get("/messages").json()
            return found["messages"][-1]["text"] if not found["waits"] and len(found["messages"]) > 1 else None

        assert until(answered) == "Here is what came of it: 85.00 euros for order 1042 are on their way"
    assert desk.end() == 0

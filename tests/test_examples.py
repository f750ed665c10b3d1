"""Each example runs as its reader would run it: a process of its own, with the model behind an environment variable.

Here that model is a loopback server which says what a good model would say.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phronomy.testing import ChatServer, call

EXAMPLES = Path(__file__).parents[1] / "examples"


def clerk(body: dict[str, Any]) -> Any:
    """Looks an order up if it can, asks for the refund that is named, and says what came of it."""
    last, tools = body["messages"][-1], [each["function"]["name"] for each in body["tools"]]
    if last["role"] == "user" and "look_up_order" in tools:
        return call("look_up_order", {"order_id": 1042})
    wanted = re.search(r"([\d.]+) euros|\"price\":([\d.]+)", last["content"])
    if wanted is not None and "on their way" not in last["content"] and "rejected" not in last["content"]:
        return call("refund", {"order_id": 1042, "amount": float(wanted[1] or wanted[2])})
    return f"I was told: {last['content']}"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(clerk) as running:
        yield running


class Reader:
    """Somebody at a terminal, in a directory of their own."""

    def __init__(self, server: ChatServer, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            **os.environ,
            "PHRONOMY_MODEL": "openai/scripted",
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": "none-is-needed",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def run(self, example: str, *arguments: str, typed: str = "") -> tuple[int, list[str], str]:
        """The exit status, the lines of output, and what was complained about."""
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / example), *arguments],
            input=typed,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.folder,
            env=self.environ,
            check=False,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.fixture
def reader(server: ChatServer, tmp_path: Path) -> Reader:
    return Reader(server, tmp_path)


def test_every_example_has_a_test() -> None:
    run_here = set(re.findall(r'"(\w+\.py)"', Path(__file__).read_text()))
    assert {example.name for example in EXAMPLES.glob("*.py")} <= run_here


@pytest.mark.parametrize(
    ("typed", "end"),
    [
        ("y\n", "I was told: 49.90 euros for order 1042 are on their way"),
        ("n\n", "I was told: A human rejected this call, so it was not run. Reason: The desk said no."),
    ],
    ids=["yes", "no"],
)
def test_quick_start(reader: Reader, typed: str, end: str) -> None:
    status, said, complaints = reader.run("quick_start.py", typed=typed)
    assert (status, complaints) == (0, "")
    assert said == [
        "The agent asks for refund with {'order_id': 1042, 'amount': 49.9}.",
        f"Approve? [y/N] {end}",
    ]


def test_synchronous_handler(reader: Reader) -> None:
    status, said, complaints = reader.run("synchronous_handler.py")
    assert (status, complaints) == (0, "")
    assert said == [
        "20 euros: approve by handler. I was told: 20.00 euros for order 1042 are on their way",
        "120 euros: suspended, waits for a human on {'order_id': 1042, 'amount': 120.0}",
        "120 euros: approve by the manager. I was told: 120.00 euros for order 1042 are on their way",
        "900 euros: reject by handler. I was told: A human rejected this call, so it was not run. "
        "Reason: Refunds above 500 euros are made by accounting alone.",
    ]


def test_resume_next_day_on_a_shared_store(reader: Reader, server: ChatServer) -> None:
    """The second process goes on from the file; the third is told that it is too late, and the tool has run once."""
    asked = reader.run("resume_next_day.py", "ask")
    assert asked == (0, ["refund {'order_id': 1042, 'amount': 49.9} waits in checkpoint.json"], "")
    assert len(server.requests) == 1

    assert reader.run("resume_next_day.py", "decide", "yes") == (
        0,
        [
            "(the tool runs: 49.90 euros for order 1042)",
            "completed: I was told: 49.90 euros for order 1042 are on their way",
        ],
        "",
    )
    assert len(server.requests) == 2

    status, said, complaints = reader.run("resume_next_day.py", "decide", "yes")
    assert (status, said) == (1, [])
    assert re.fullmatch(
        r"Too late: pending pend_\w+ of checkpoint ckpt_\w+ was decided before \(approved by the morning shift\); "
        r"the run is ended\n",
        complaints,
    )
    assert len(server.requests) == 2


def test_resume_next_day_by_the_bearer_of_the_file(reader: Reader) -> None:
    """The file alone is enough, for whoever has it, and as often as they like: what the example warns of is so."""
    assert reader.run("resume_next_day.py", "ask", "--bearer")[0] == 0
    assert [path.name for path in reader.folder.iterdir()] == ["checkpoint.json"]
    ran = "(the tool runs: 49.90 euros for order 1042)"
    for _ in range(2):
        status, said, complaints = reader.run("resume_next_day.py", "decide", "yes", "--bearer")
        assert (status, said[0], complaints) == (0, ran, "")

    # A store that is configured accepts nothing that it has not made.
    status, said, complaints = reader.run("resume_next_day.py", "decide", "yes")
    assert (status, said) == (1, [])
    error = complaints.splitlines()[-1]
    assert error.startswith("phronomy.errors.CheckpointUntrusted: the store does not know checkpoint")


def test_class_style(reader: Reader, server: ChatServer) -> None:
    status, said, complaints = reader.run("class_style.py")
    assert (status, complaints) == (0, "")
    assert said == [
        "PoliteSupportAgent waits: refund {'order_id': 1042, 'amount': 49.9}",
        "I was told: 49.90 euros for order 1042 are on their way",
    ]
    told = {request["messages"][0]["content"] for request in server.requests}
    assert told == {"You work at a refund desk. Refund what Ada asks for. Thank Ada by name."}

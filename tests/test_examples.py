"""Each example runs as its reader would run it: a process of its own, with the model behind an environment variable.

Here that model is a loopback server which says what a good model would say.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from drivers import PATIENCE, until
from selection import scaled

from phronomy import open_store
from phronomy.people import Person, StoreDirectory
from phronomy.testing import ChatServer, call
from phronomy.testing.chat import Clock, FakeSlack, Sent
from phronomy.testing.chat.slack import SECRET, TOKEN

pytestmark = pytest.mark.unmeasured

EXAMPLES = Path(__file__).parents[1] / "examples"


def clerk(body: dict[str, Any]) -> Any:
    """Looks an order up if it can, asks for the refund that is named, and says what came of it."""
    last, tools = body["messages"][-1], [each["function"]["name"] for each in body["tools"]]
    if last["role"] == "user" and "look_up_order" in tools:
        return call("look_up_order", {"order_id": 1042})
    if last["role"] == "user" and "choose" in tools:
        return call("choose", {"options": ["window", "aisle"]})
    if "pay" in tools:
        asked = re.match(r"Please pay (\d+) euros", last["content"])
        return call("pay", {"to": "ACME", "amount": int(asked[1])}) if asked else f"I was told: {last['content']}"
    if "next_page" in tools:
        read = sum(message["role"] == "tool" for message in body["messages"])
        return call("next_page", {"after": read}) if read < 4 else "There are 12."
    if "response_format" in body and last["role"] == "tool":
        done = "on their way" in last["content"]
        outcome = {"order_id": 1042, "outcome": "refunded" if done else "rejected", "amount": 20.0 if done else 0}
        return json.dumps(outcome)
    if last["role"] == "user" and "invoice" in last["content"]:
        return call("ask_accounting", {"question": last["content"]})
    wanted = re.search(r"([\d.]+) euros|\"price\":([\d.]+)", last["content"])
    if wanted is not None and "on their way" not in last["content"] and "rejected" not in last["content"]:
        return call("refund", {"order_id": 1042, "amount": float(wanted[1] or wanted[2])})
    return f"I was told: {last['content']}"


WITH_LITELLM = ("quick_start.py",)
BY_ITSELF = {"PHRONOMY_MODEL_BACKEND": "chat_completions"}
"""litellm takes seconds to load in each process: one example has it, the others speak to the model without."""


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
            timeout=PATIENCE,
            cwd=self.folder,
            env=self.environ | ({} if example in WITH_LITELLM else BY_ITSELF),
            check=False,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.fixture
def reader(server: ChatServer, tmp_path: Path) -> Reader:
    return Reader(server, tmp_path)


def test_every_example_has_a_test() -> None:
    run_here = set(re.findall(r'"(\w+\.py)"', Path(__file__).read_text()))
    assert {example.name for example in EXAMPLES.glob("*.py")} <= run_here


@pytest.mark.few(1)
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


def test_triggers(alone: Reader) -> None:
    status, said, complaints = alone.run("triggers.py")
    assert (status, complaints) == (0, "")
    assert said[1:] == [
        "the payment of order 1 has fired its trigger",
        "the payment of order 4 is kept: it waits for an approval",
        "the payment of order 2 came too late",
        "completed: order 1 is shipped: 49.90 euros from acme-bank",
        "completed: order 2 is cancelled: they moved",
        "completed: order 3 is forgotten",
        "completed: order 4 is shipped: 20.00 euros from acme-bank",
    ]


def test_two_approvers(reader: Reader) -> None:
    status, said, complaints = reader.run("two_approvers.py")
    assert (status, complaints) == (0, "")
    assert said == [
        "otto asks for 900 euros: I was told: 900 euros are paid to ACME",
        "otto asks for 25,000 euros. It waits: Pay 25,000 euros to ACME",
        "  otto may not approve",
        "  ada approves by desk: it takes one more",
        "  ada has voted before, and counts once",
        "  bert approves by phone: I was told: 25,000 euros are paid to ACME",
        "otto asks for 40,000 euros. It waits: Pay 40,000 euros to ACME",
        "  ada approves by desk: it takes one more",
        "  hanna may not approve",
        "  twelve hours pass",
        "  hanna approves by phone: I was told: 40,000 euros are paid to ACME",
        "otto asks for 60,000 euros. It waits: Pay 60,000 euros to ACME",
        "  bert approves by desk: it takes one more",
        "  a day passes",
        "  nobody else has approved in time: I was told: Nobody decided on this call in time, so it was not run.",
        "The audit trail:",
        "   0 h  otto   desk   approve  refused",
        "   0 h  ada    desk   approve  vote",
        "   0 h  bert   phone  approve  decision",
        "   0 h  ada    desk   approve  vote",
        "   0 h  hanna  phone  approve  refused",
        "  12 h  hanna  phone  approve  decision",
        "  12 h  bert   desk   approve  vote",
        "  36 h  nobody -      expire   decision",
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


@pytest.mark.sweep
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
    assert told == {"You work at the refund desk of Kettles and Sons. Refund what is asked for. Thank the customer."}


def test_chat_loop_goes_on_after_it_was_left_at_the_prompt(reader: Reader) -> None:
    """The first process ends at the approval; the second asks it again, and then goes on with the conversation."""
    asks = '  refund {"order_id": 1042, "amount": 20.0}'
    status, said, complaints = reader.run("chat_loop.py", typed="Please refund 20 euros\n")
    assert (status, complaints) == (0, "")
    assert said == [f"you: {asks}", "  approve? [y/n] "]

    status, said, complaints = reader.run("chat_loop.py", typed="perhaps\ny\nPlease refund 30 euros\nn\nToo late.\n")
    assert (status, complaints) == (0, "")
    assert said == [
        asks,
        "  approve? [y/n]   y or n, please",
        "  approve? [y/n] desk: I was told: 20.00 euros for order 1042 are on their way",
        'you:   refund {"order_id": 1042, "amount": 30.0}',
        "  approve? [y/n]   why not? desk: I was told: A human rejected this call, so it was not run. Reason: Too late.",
        "you: ",
    ]


@pytest.mark.sweep
def test_chat_loop_goes_on_after_the_provider_was_away(reader: Reader, server: ChatServer) -> None:
    away = {**reader.environ, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    there, reader.environ = reader.environ, away
    status, said, complaints = reader.run("chat_loop.py", typed="Please refund 20 euros\n")
    assert (status, said) == (1, ["you: "])
    assert complaints.startswith("The desk is out of order: ")

    reader.environ = there
    status, said, complaints = reader.run("chat_loop.py", typed="y\n")
    assert (status, complaints) == (0, "")
    assert said[-2:] == ["  approve? [y/n] desk: I was told: 20.00 euros for order 1042 are on their way", "you: "]


def test_edit_and_respond(reader: Reader) -> None:
    status, said, complaints = reader.run("edit_and_respond.py")
    assert (status, complaints) == (0, "")
    assert said == [
        "asked for: refund {'order_id': 1042, 'amount': 120.0}",
        "refused: InvalidDecision",
        "decided: {'order_id': 1042, 'amount': 60.0}",
        'the model was told: A human changed the arguments of this call to {"order_id":1042,"amount":60.0} before it ran. '
        "Its result:",
        "60.00 euros for order 1042 are on their way",
        "responded: I was told: Yes, on 3 March.",
    ]


def test_external_tool(reader: Reader) -> None:
    status, said, complaints = reader.run("external_tool.py")
    assert (status, complaints) == (0, "")
    assert said == [
        "to the page: choose {'options': ['window', 'aisle']}",
        "refused: InvalidDecision",
        'responded: I was told: {"option":"window"}',
    ]


def test_breakpoints(reader: Reader) -> None:
    status, said, complaints = reader.run("breakpoints.py")
    assert (status, complaints) == (0, "")
    assert said == [
        "20 euros: completed",
        "120 euros: suspended, a large refund, before run refund",
        "let go on: I was told: 120.00 euros for order 1042 are on their way",
        "held pre_tool_call: refund {'order_id': 1042, 'amount': 150.0}",
        "150 euros: {'order_id': 1042, 'amount': 60.0}",
        "without it: completed",
    ]


def test_structured_output(reader: Reader, server: ChatServer) -> None:
    status, said, complaints = reader.run("structured_output.py")
    assert (status, complaints) == (0, "")
    assert said == [
        "waits: refund {'order_id': 1042, 'amount': 20.0}",
        "order 1042: refunded, 20.00 euros",
    ]
    assert {request["response_format"]["type"] for request in server.requests} == {"json_schema"}


@pytest.mark.few(1)
@pytest.mark.parametrize("more", [True, False], ids=["more", "no more"])
def test_limits(reader: Reader, more: bool) -> None:
    """What was read is not read again, and no page is read that nobody allowed."""
    status, said, complaints = reader.run("limits.py", typed="y\n" if more else "\n")
    assert (status, complaints) == (0, "")
    assert said[:2] == ["(page 1 is read)", "(page 2 is read)"]
    assert said[2].startswith("stopped: tool_calls may be 2, and is 3; so far ")
    end = ["Give it more? [y/N] (page 3 is read)", "(page 4 is read)", "There are 12."]
    assert said[3:] == (end if more else ["Give it more? [y/N] "])


def test_telemetry(reader: Reader) -> None:
    status, said, complaints = reader.run("telemetry.py", typed="y\n")
    assert (status, complaints) == (0, "")
    assert said == [
        "(chat )",
        "(invoke_agent suspended)",
        "Approve? [y/N] (execute_tool refund)",
        "(chat )",
        "(invoke_agent completed, linked to what was before)",
        "I was told: 49.90 euros for order 1042 are on their way",
    ]


def serverless(reader: Reader, **event: Any) -> tuple[int, Any]:
    status, said, complaints = reader.run("serverless.py", json.dumps(event))
    assert status == 0
    answer = json.loads(said[-1])
    assert bool(complaints) is (answer["statusCode"] == 502), complaints
    return answer["statusCode"], answer["body"]


def test_serverless(reader: Reader, server: ChatServer) -> None:
    """Each event is a process of its own, and the store is all that they share."""
    status, body = serverless(reader, action="ask", message="Please refund 20 euros")
    assert (status, body["status"], body["output"]) == (200, "suspended", None)
    (waits,) = body["pending"]
    assert (waits["tool"], waits["args"]) == ("refund", {"order_id": 1042, "amount": 20.0})

    decision = {
        "action": "decide",
        "pending_id": waits["pending_id"],
        "digest": waits["digest"],
        "by": "ada",
        "key": "k-1",
    }
    for wrong in scaled(("false",), sweep=("false", 1, None)):
        status, refused = serverless(reader, **decision, approved=wrong)
        assert (status, refused["error"]) == (422, "approved must be true or false")
    assert serverless(reader, **{**decision, "pending_id": "pend_0"}, approved=True)[0] == 404
    assert serverless(reader, **{**decision, "digest": "0" * 64}, approved=True)[0] == 422
    assert serverless(reader, action="recover", run_id=body["run_id"])[1] == body
    assert serverless(reader, action="work") == (200, {"runs": [], "failed": 0})

    decided = {"run_id": body["run_id"], "status": "decided"}
    for _ in range(2):  # the second time it is the same decision, with the same key
        assert serverless(reader, **decision, approved=True) == (200, decided)
    status, late = serverless(reader, **decision, approved=False)
    assert status == 409 and "was decided before (approved by ada)" in late["error"]
    assert len(server.requests) == 1
    status, done = serverless(reader, action="work", run_id=body["run_id"])
    (ended,) = done["runs"]
    assert (status, done["failed"], ended["status"], ended["pending"]) == (200, 0, "completed", [])
    assert ended["output"] == "I was told: 20.00 euros for order 1042 are on their way"
    assert serverless(reader, action="work", run_id="run_0")[0] == 404
    assert len(server.requests) == 2


@pytest.mark.sweep
def test_serverless_refuses_what_it_cannot_take_and_a_failed_run_goes_on_later(
    reader: Reader, server: ChatServer
) -> None:
    for event, why in (
        ({}, "action must be one of ask, decide, work, recover"),
        ({"action": ["ask"]}, "action must be one of ask, decide, work, recover"),
        ({"action": "fork"}, "action must be one of ask, decide, work, recover"),
        ({"action": "ask"}, "ask needs message"),
        ({"action": "decide", "by": "ada"}, "decide needs pending_id, digest, approved"),
        ({"action": "recover"}, "recover needs run_id"),
    ):
        assert serverless(reader, **event) == (422, {"error": why})
    assert server.requests == []
    status, said, complaints = reader.run("serverless.py")
    assert (status, said) == (1, []) and '\'{"action": "ask"' in complaints

    down = {**reader.environ, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    reader.environ, up = down, reader.environ
    status, failed = serverless(reader, action="ask", message="Please refund 20 euros")
    assert (status, failed["error"]) == (502, "the run stopped on a failure")
    reader.environ = up
    status, body = serverless(reader, action="recover", run_id=failed["run_id"])
    assert (status, body["status"], body["run_id"]) == (200, "suspended", failed["run_id"])


class Desk:
    """The web example in a server process of its own, and a client for it."""

    tokens = {
        "token-of-ada": ["ada", "approver"],
        "token-of-bert": ["bert", "approver"],
        "token-of-carl": ["carl", "customer"],
    }

    def __init__(self, example: str, reader: Reader) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / example)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=reader.folder,
            env={
                **reader.environ,
                **BY_ITSELF,
                "DESK_TOKENS": json.dumps(self.tokens),
                "CHAT_TOKENS": json.dumps({token: name for token, (name, _) in self.tokens.items()}),
                "PORT": "0",
            },
        )
        assert self.process.stderr is not None
        self.complaints = self.process.stderr
        for line in self.complaints:  # ends when the process does
            if (found := re.search(r"running on (http://[\d.:]+)", line)) is not None:
                self.client = httpx.Client(base_url=found[1], trust_env=False, timeout=PATIENCE)
                return
        raise AssertionError(f"{example} did not start")

    def __call__(self, method: str, path: str, who: str = "ada", **body: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer token-of-{who}"}
        answer = self.client.request(method, path, headers=headers, json=body or None)
        return answer.status_code, answer.json()

    def close(self, end: int = signal.SIGTERM) -> None:
        self.client.close()
        self.process.send_signal(end)
        self.process.wait(PATIENCE)
        self.complaints.close()


@pytest.fixture
def start(reader: Reader) -> Iterator[Callable[[str], Desk]]:
    with ExitStack() as open_desks:

        def started(example: str) -> Desk:
            desk = Desk(example, reader)
            open_desks.callback(desk.close)
            return desk

        yield started


def test_fastapi_app(start: Callable[[str], Desk], server: ChatServer) -> None:
    """Two server processes over one store: what one was asked, the other decides, and the first is told so."""
    one, other = start("fastapi_app.py"), start("fastapi_app.py")
    status, run = one("POST", "/runs", "carl", message="Please refund 20 euros")
    assert (status, run["status"], run["output"]) == (201, "suspended", None)
    status, (waits,) = other("GET", "/requests")
    assert status == 200
    assert (waits["tool_name"], waits["args"], waits["why"]) == (
        "refund",
        {"order_id": 1042, "amount": 20.0},
        "approval",
    )
    path = f"/requests/{waits['id']}"
    decision = {"digest": waits["digest"], "approve": True}

    # Whoever may not, and whatever is not exactly a decision on this call, decides nothing.
    assert one("GET", "/requests", "nobody") == (401, {"detail": "this token is not known"})
    assert one("GET", "/requests", "carl") == (403, {"detail": "carl may not decide"})
    assert one("POST", path, "carl", **decision)[0] == 403
    assert one("GET", path, "carl")[0] == 403
    assert one.client.post(path, json=decision).status_code in (401, 403)
    for wrong in ({"approve": "false"}, {"approve": 1}, {"approve": None}, {"digest": "0" * 64}, {"by": "bert"}):
        assert one("POST", path, **{**decision, **wrong})[0] == 422, wrong
    assert one("POST", "/requests/pend_0", **decision)[0] == 404
    assert one("GET", "/requests/pend_0")[0] == 404
    assert one("GET", "/requests") == (200, [waits])
    assert one("GET", f"/runs/{run['run_id']}", "carl") == (200, run)
    assert one("GET", f"/runs/{run['run_id']}", "bert") == (404, {"detail": "there is no such run"})
    assert one("GET", "/runs/run_0", "carl")[0] == 404
    assert len(server.requests) == 1

    headers = {"Authorization": "Bearer token-of-ada", "Idempotency-Key": "click-1"}
    for desk in (other, one):  # the second time it is the same click
        answer = desk.client.post(path, json=decision, headers=headers)
        assert (answer.status_code, answer.json()["run_id"]) == (202, run["run_id"])
    status, late = one("POST", path, "bert", digest=waits["digest"], approve=False)
    assert (status, late["decision"]) == (409, {"kind": "approve", "by": "ada"})
    (found,) = until(lambda: [each for _, each in [one("GET", path)] if each["run_status"] == "completed"])
    assert (found["status"], found["decision"]["channel"]) == ("settled", "http")
    assert one("GET", "/requests") == (200, [])
    ended = {**run, "status": "completed", "output": "I was told: 20.00 euros for order 1042 are on their way"}
    assert one("GET", f"/runs/{run['run_id']}", "carl") == (200, ended)
    assert len(server.requests) == 2


@pytest.mark.sweep
def test_fastapi_app_tells_clients_little_of_failures(start: Callable[[str], Desk], server: ChatServer) -> None:
    desk = start("fastapi_app.py")
    server.close()
    status, said = desk("POST", "/runs", "carl", message="Please refund 20 euros")
    assert (status, said["error"]) == (502, "the run stopped on a failure")
    assert set(said) == {"error", "run_id"}


def test_fastapi_chat(start: Callable[[str], Desk], reader: Reader, server: ChatServer) -> None:
    """Carl has two threads. One waits for his approval and one fails as the provider goes away; then the process is killed."""
    chat = start("fastapi_chat.py")
    assert chat("GET", "/threads/kettle", "carl") == (404, {"detail": "there is no such thread"})
    status, kettle = chat("POST", "/threads/kettle/messages", "carl", text="Please refund 20 euros")
    assert (status, kettle["status"], kettle["said"]) == (201, "suspended", [["user", "Please refund 20 euros"]])
    (waits,) = kettle["pending"]
    assert (waits["tool_name"], waits["args"]) == ("refund", {"order_id": 1042, "amount": 20.0})
    status, lamp = chat("POST", "/threads/lamp/messages", "carl", text="Hello")
    assert (status, lamp["status"], lamp["pending"]) == (201, "completed", [])

    # While something waits, no other message is taken, and nobody else has such a thread.
    status, refused = chat("POST", "/threads/kettle/messages", "carl", text="Hello?")
    assert (status, {name: refused[name] for name in kettle}) == (409, kettle)
    assert chat("GET", "/threads/kettle", "bert")[0] == 404
    assert chat("GET", "/threads/kettle", "nobody") == (401, {"detail": "this token is not known"})
    path = f"/threads/kettle/requests/{waits['id']}"
    yes = {"digest": waits["digest"], "approve": True}
    assert chat("POST", path, "bert", **yes) == (404, {"detail": "there is no such thread or request"})
    assert chat("POST", path.replace("kettle", "lamp"), "carl", **yes)[0] == 404
    assert chat("POST", path.replace("pend_", "pend_0"), "carl", **yes)[0] == 404
    for wrong in ({"approve": "true"}, {"digest": "0" * 64}, {"by": "ada"}):
        assert chat("POST", path, "carl", **{**yes, **wrong})[0] == 422, wrong

    # The provider goes away, and the process with it.
    server.close()
    status, failed = chat("POST", "/threads/lamp/messages", "carl", text="And the lamp?")
    assert (status, failed["error"]) == (502, "no answer came: try again, or say something else")
    assert chat("GET", "/threads/lamp", "carl")[1]["status"] == "failed"
    chat.close(signal.SIGKILL)
    reader.environ["OPENAI_BASE_URL"] = server.start().base_url
    chat = start("fastapi_chat.py")

    # What waited waits. Of two clicks at once one counts, and the other hears whose.
    assert chat("GET", "/threads/kettle", "carl") == (200, kettle)
    with ThreadPoolExecutor(2) as pool:
        clicks = [pool.submit(chat, "POST", path, "carl", **yes) for _ in range(2)]
    (first, paid), (status, late) = sorted((click.result() for click in clicks), key=lambda answer: answer[0])
    assert (first, paid["pending"], status) == (202, [], 409)
    assert (paid["status"] in ("running", "completed"), late["decision"]) == (True, {"kind": "approve", "by": "carl"})
    (paid,) = until(
        lambda: [found for _, found in [chat("GET", "/threads/kettle", "carl")] if found["status"] == "completed"]
    )
    assert paid["said"][-1] == ["assistant", "I was told: 20.00 euros for order 1042 are on their way"]
    status, late = chat("POST", path, "carl", digest=waits["digest"], approve=False)
    assert (status, late["decision"], late["progress"]) == (409, {"kind": "approve", "by": "carl"}, "ended")

    # The next message goes on after the outage, from all that was said.
    status, lamp = chat("POST", "/threads/lamp/messages", "carl", text="Anybody there?")
    assert (status, lamp["status"]) == (201, "completed")
    assert lamp["said"] == [
        ["user", "Hello"],
        ["assistant", "I was told: Hello"],
        ["user", "And the lamp?"],
        ["user", "Anybody there?"],
        ["assistant", "I was told: Anybody there?"],
    ]


@pytest.mark.sweep
def test_fastapi_chat_tries_again_and_goes_on_with_what_a_killed_process_had_under_way(
    start: Callable[[str], Desk], reader: Reader
) -> None:
    """The provider is silent, then away, then back."""
    asked, goes_on = threading.Event(), threading.Event()

    def slow(body: dict[str, Any]) -> Any:
        asked.set()
        assert goes_on.wait(PATIENCE)
        return clerk(body)

    reader.environ["PHRONOMY_STORE"] = "sqlite:///chat.db?lease=1"
    with ChatServer(slow) as server, ThreadPoolExecutor(1) as pool:
        reader.environ["OPENAI_BASE_URL"] = server.base_url
        chat = start("fastapi_chat.py")
        lost = pool.submit(chat, "POST", "/threads/kettle/messages", "carl", text="Hello")
        assert asked.wait(PATIENCE)
        status, refused = chat("POST", "/threads/kettle/messages", "carl", text="Hello?")
        assert (status, refused["status"], refused["pending"]) == (409, "running", [])
        assert chat("POST", "/threads/kettle/again", "carl")[0] == 409
        chat.process.kill()
        assert isinstance(lost.exception(PATIENCE), httpx.TransportError)
        goes_on.set()
        chat = start("fastapi_chat.py")
        (ended,) = until(
            lambda: [found for _, found in [chat("GET", "/threads/kettle", "carl")] if found["status"] != "running"]
        )
        assert (ended["status"], ended["said"]) == (
            "completed",
            [["user", "Hello"], ["assistant", "I was told: Hello"]],
        )

        server.close()
        for path, body in (("messages", {"text": "Please refund 30 euros"}), ("again", {})):
            assert chat("POST", f"/threads/kettle/{path}", "carl", **body)[0] == 502
        chat.close()
        reader.environ["OPENAI_BASE_URL"] = server.start().base_url
        chat = start("fastapi_chat.py")
        for _ in range(2):  # with nothing that failed, it says how the thread stands
            status, kettle = chat("POST", "/threads/kettle/again", "carl")
            assert (status, kettle["status"]) == (200, "suspended")
            assert kettle["said"] == [*ended["said"], ["user", "Please refund 30 euros"]]
        assert chat("POST", "/threads/lamp/again", "carl")[0] == 404


def events(
    desk: Desk, method: str, path: str, who: str, *, after: str | None = None, **body: Any
) -> list[SimpleNamespace]:
    """The server-sent events of one answer, as a page reads them."""
    headers = {"Authorization": f"Bearer token-of-{who}"} | ({"Last-Event-ID": after} if after else {})
    found = []
    with desk.client.stream(method, path, headers=headers, json=body or None) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        for text in answer.read().decode().split("\n\n")[:-1]:
            id, type, data = (line.partition(": ")[2] for line in text.split("\n"))
            event = as_read(data)
            assert (event.id, event.type, event.version) == (id, type, 1)
            found.append(event)
    return found


def as_read(data: str) -> SimpleNamespace:
    """What a page makes of JSON."""
    read: SimpleNamespace = json.loads(data, object_hook=lambda found: SimpleNamespace(**found))
    return read


def told(found: list[SimpleNamespace]) -> list[str]:
    """The types of events, without those that are only in the live stream."""
    live = ("model_started", "text_delta", "tool_call_delta")
    return [event.type for event in found if event.type not in live]


def test_sse(start: Callable[[str], Desk]) -> None:
    desk = start("sse.py")
    asked = events(desk, "POST", "/runs", "carl", message="Please refund 20 euros")
    assert told(asked) == [
        "run_started",
        "checkpoint",
        "model_replied",
        "approval_requested",
        "checkpoint",
        "suspended",
    ]
    assert "tool_call_delta" in {event.type for event in asked}

    # What was stored can be read again, from any place, by the one whose run it is.
    path = f"/runs/{asked[0].run_id}/events"
    assert told(events(desk, "GET", path, "carl")) == told(asked)
    assert told(events(desk, "GET", path, "carl", after=asked[0].id)) == told(asked)[1:]
    assert desk("GET", path, "bert") == (404, {"detail": "there is no such run"})
    assert desk("GET", "/runs/run_0/events", "carl")[0] == 404
    assert (
        desk.client.get(path, headers={"Authorization": "Bearer token-of-carl", "Last-Event-ID": "x"}).status_code
        == 422
    )

    waits = asked[-1]
    pending = waits.pending[0]
    assert vars(pending.args) == {"order_id": 1042, "amount": 20}
    decision = {"digest": pending.digest, "approve": True}
    place = f"/checkpoints/{waits.checkpoint_id}/pending/{pending.id}"
    assert desk("POST", place, "carl", **decision)[0] == 403
    assert desk("POST", place, "ada", **{**decision, "approve": "true"})[0] == 422
    assert desk("POST", place, "ada", **{**decision, "digest": "x"})[0] == 422
    assert desk("POST", place.replace(pending.id, "pend_0"), "ada", **decision)[0] == 404
    ended = events(desk, "POST", place, "ada", **decision)
    assert told(ended)[0] == "decided" and told(ended)[-1] == "completed"
    assert told(ended).count("tool_call_started") == told(ended).count("tool_call_settled") == 1
    assert "".join(event.text for event in ended if event.type == "text_delta") == (
        "I was told: 20.00 euros for order 1042 are on their way"
    )
    assert desk("POST", place, "bert", **decision)[0] == 409
    assert told(events(desk, "GET", path, "carl", after=waits.id)) == told(ended)


@pytest.mark.sweep
def test_sse_goes_on_after_a_page_went_away(tmp_path: Path) -> None:
    """The connection is cut while the model is asked; whoever comes back reads what was stored and carries the run on."""
    goes_on = threading.Event()

    def slow(body: dict[str, Any]) -> Any:
        assert goes_on.wait(PATIENCE)
        return clerk(body)

    carl = {"Authorization": "Bearer token-of-carl"}
    with ChatServer(slow) as server, closing(Desk("sse.py", Reader(server, tmp_path))) as desk:
        with desk.client.stream("POST", "/runs", headers=carl, json={"message": "Please refund 20 euros"}) as answer:
            first = next(line for line in answer.iter_lines() if line.startswith("data: "))
        path = f"/runs/{as_read(first.partition(': ')[2]).run_id}/events"
        goes_on.set()
        deadline, found = time.monotonic() + PATIENCE, events(desk, "GET", path, "carl")
        while found[-1].type != "suspended" and time.monotonic() < deadline:  # the server hears of the cut when it does
            found = events(desk, "GET", path, "carl")
    assert told(found)[0] == "run_started"
    assert told(found)[-4:] == ["model_replied", "approval_requested", "checkpoint", "suspended"]
    assert told(found).count("model_replied") == 1


# Slack


@contextmanager
def slack_desk(reader: Reader, *message: str, name: str = "slack_desk.py") -> Iterator[str]:
    """The desk in a process of its own; where it listens."""
    command = [sys.executable, str(EXAMPLES / name), *message]
    environ = reader.environ | BY_ITSELF
    desk = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=reader.folder, env=environ)
    assert desk.stderr is not None
    try:
        found = next((each for line in desk.stderr if (each := re.search(r"running on (http://[\d.:]+)", line))), None)
        assert found is not None, "the desk did not start"
        yield found[1]
    finally:
        desk.kill()
        desk.wait(PATIENCE)
        desk.stderr.close()


def test_slack_desk(reader: Reader) -> None:
    """The desk is killed between the question and the click. Rita clicks twice, and Otto, who is a stranger, once."""
    with FakeSlack(Clock(time.time())) as slack, ExitStack() as stack:
        reader.environ |= {
            **{"SLACK_SIGNING_SECRET": SECRET, "SLACK_BOT_TOKEN": TOKEN, "SLACK_CHANNEL": "C0000000001", "PORT": "0"},
            **{"SLACK_API": slack.base_url, "CHAT_KEY": "k" * 32},
            "PHRONOMY_STORE": f"sqlite:///{reader.folder / 'slack.db'}",
        }
        with open_store(reader.environ["PHRONOMY_STORE"]) as store:
            StoreDirectory(store).add(Person(id="rita", name="Rita", aliases=("slack:U0RITA",)))
            with slack_desk(reader, "Please refund 20 euros"):
                until(lambda: len(slack.messages()) == 1)
            address = stack.enter_context(slack_desk(reader))

            def click(by: str) -> int:
                sent = slack.sign(slack.messages()[0] if by == "U0OTTO" else asked, "approve", by)
                return httpx.post(
                    address + sent.path, headers=sent.headers, content=sent.body, trust_env=False
                ).status_code

            [asked] = slack.messages()
            assert "amount: 20" in asked.text
            assert click("U0OTTO") == 200
            until(lambda: len(slack.told("U0OTTO")) == 1)
            assert len(store.pending()) == 1
            assert [click("U0RITA"), click("U0RITA")] == [200, 200]
            until(lambda: "approved by Rita" in slack.messages()[0].text and "done" in slack.messages()[0].text)
            trail = [(each.by and each.by.id, each.refused) for each in store.audit()]
            assert trail == [("slack:U0OTTO", True), ("rita", False)]
    assert slack.messages()[0].buttons == {}


def test_slack_bot(reader: Reader) -> None:
    """Otto asks, and may not approve; the bot is killed before Rita does, and answers after it was started again."""
    with FakeSlack(Clock(time.time())) as slack, ExitStack() as stack:
        reader.environ |= {
            **{"SLACK_SIGNING_SECRET": SECRET, "SLACK_BOT_TOKEN": TOKEN, "PORT": "0"},
            **{"SLACK_API": slack.base_url, "CHAT_KEY": "k" * 32},
            "PHRONOMY_STORE": f"sqlite:///{reader.folder / 'slack.db'}",
        }
        with open_store(reader.environ["PHRONOMY_STORE"]) as store:
            for id in ("rita", "otto"):
                StoreDirectory(store).add(Person(id=id, roles=("lead",), aliases=(f"slack:U0{id.upper()}",)))
            written = slack.write("U0OTTO", "Please refund 20 euros")

            def send(address: str, sent: Sent) -> int:
                return httpx.post(
                    address + sent.path, headers=sent.headers, content=sent.body, trust_env=False
                ).status_code

            with slack_desk(reader, name="slack_bot.py") as address:
                assert [send(address, written.sent), send(address, written.sent)] == [200, 200]
                until(lambda: len(slack.conversation(written.thread)) == 1)
                [asked] = slack.conversation(written.thread)
                assert send(address, slack.sign(asked, "approve", "U0OTTO")) == 200
                until(lambda: len(slack.told("U0OTTO")) == 1)
            address = stack.enter_context(slack_desk(reader, name="slack_bot.py"))
            assert send(address, slack.sign(asked, "approve", "U0RITA")) == 200
            until(lambda: len(slack.conversation(written.thread)) == 2)
            shown, answer = slack.conversation(written.thread)
            assert answer.text == "I was told: 20.00 euros for order 1042 are on their way"
            assert "approved by rita" in shown.text and len(store.branches()) == 1


# Mail


def test_email_approval(reader: Reader) -> None:
    """Rita opens the link of the mail twice, presses the button, and two mails tell her what came of it."""
    environ = reader.environ | BY_ITSELF | {"PORT": "0"}
    command = [sys.executable, str(EXAMPLES / "email_approval.py")]
    desk = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=reader.folder, env=environ)
    assert desk.stdout is not None
    late = threading.Timer(PATIENCE, desk.kill)  # then there are no more lines
    late.start()
    try:
        lines = iter(desk.stdout)
        link = next(each[1] for line in lines if (each := re.match(r"Approve: (http://\S+)", line)))
        with httpx.Client(trust_env=False, headers={"sec-fetch-site": "same-origin"}) as browser:
            page = [browser.get(link).text for _ in range(2)][-1]
            assert "This link is" in page and "1042" in page
            [token] = set(re.findall(r'name="page" value="(\w+)"', page))
            answer = browser.post(link, data={"page": token, "answer": "approve"}, follow_redirects=True)
            assert answer.status_code == 200 and "Approved by" in answer.text
        assert any("approved by Rita" in line and "; done" in line for line in lines)
    finally:
        late.cancel()
        desk.kill()
        desk.wait(PATIENCE)
        desk.stdout.close()


# Three processes


class Browser:
    """The page in a process of its own, in a folder that has nothing but the page, and somebody who is signed in there."""

    def __init__(self, folder: Path, store: str) -> None:
        folder.mkdir()
        page = folder / "three_processes_page.py"
        page.write_text((EXAMPLES / page.name).read_text())
        roots = os.pathsep.join([str(EXAMPLES.parent)])
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PHRONOMY_", "OPENAI_"))}
        passwords = json.dumps({"rita": "r", "otto": "o"})
        self.environ = {**kept, "PYTHONPATH": roots, "PHRONOMY_STORE": store, "DESK_PASSWORDS": passwords, "PORT": "0"}
        self.folder = folder
        command = [sys.executable, page.name]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stderr=pipe, text=True, cwd=folder, env=self.environ)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if (found := re.search(r"running on (http://[\d.:]+)", line)) is not None:
                self.client = httpx.Client(base_url=found[1], trust_env=False, timeout=PATIENCE)
                return
        raise AssertionError("the page did not start")

    def __call__(self, path: str, who: str = "rita", **form: str) -> tuple[int, str]:
        sent: dict[str, Any] = {"data": form} if form else {}
        answer = self.client.request("POST" if form else "GET", path, auth=(who, who[0]), **sent)
        return answer.status_code, answer.text

    def close(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(PATIENCE)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def three(reader: Reader) -> Iterator[tuple[Callable[[str], tuple[int, list[str], str]], Browser]]:
    """The app, as somebody runs it, and the page; the worker works meanwhile."""
    store = f"sqlite:///{reader.folder / 'three.db'}"
    reader.environ |= {"PHRONOMY_STORE": store, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), str(EXAMPLES.parent)])}
    command = [sys.executable, "-m", "phronomy", "work", "--app", "three_processes_desk:agent", "--poll", "0.05"]
    with ExitStack() as stack:
        browser = Browser(reader.folder / "page", store)
        stack.callback(browser.close)
        worker = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=reader.folder, env=reader.environ | BY_ITSELF
        )
        stack.callback(worker.communicate)
        stack.callback(worker.terminate)
        yield lambda message: reader.run("three_processes_desk.py", message), browser


def test_three_processes(three: tuple[Callable[[str], tuple[int, list[str], str]], Browser]) -> None:
    """One starts a run, one has the store alone and decides, and one carries it out."""
    ask, page = three
    code = [sys.executable, "-c", "import three_processes_desk"]
    done = subprocess.run(code, capture_output=True, text=True, check=False, cwd=page.folder, env=page.environ)
    assert "ModuleNotFoundError" in done.stderr, "where the page is, there is no agent"
    status, listed = page("/")
    assert status == 200 and "Nothing waits." in listed

    status, (said,), complaints = ask("Please refund 20 euros")
    assert (status, complaints) == (0, "")
    assert re.fullmatch(r"run_\w+ is suspended: it waits for somebody to decide", said)
    (path,) = re.findall(r'href="(/requests/pend_\w+)"', page("/")[1])
    status, shown = page(path)
    assert "<h1>desk wants refund</h1>" in shown and "&quot;amount&quot;: 20.0" in shown
    fields = dict(re.findall(r'name="(\w+)" value="(\w+)"', shown))
    form = {"digest": fields["digest"], "key": fields["key"], "answer": "yes"}

    assert page.client.get(path).status_code == 401
    assert page(path, "eve")[0] == 401
    assert page(path, **{**form, "answer": "perhaps"})[0] == 422
    assert page(path, **{**form, "digest": "0" * 64})[0] == 422
    assert page("/requests/pend_0", **form)[0] == 404
    assert page(path, **form)[0] == 303
    assert page(path, **form)[0] == 303, "sent twice, it counts once"
    status, late = page(path, "otto", **{**form, "key": "another", "answer": "no"})
    assert status == 409 and "was decided before (approved by rita)" in late
    (end,) = until(lambda: [text for _, text in [page(path)] if "The request is settled." in text])
    assert "approve, says rita. The request is settled. 20.00 euros for order 1042 are on their way" in end

    ask("Please refund 30 euros")
    (path,) = re.findall(r'href="(/requests/pend_\w+)"', page("/")[1])
    fields = dict(re.findall(r'name="(\w+)" value="(\w+)"', page(path)[1]))
    assert page(path, "otto", digest=fields["digest"], key=fields["key"], answer="no", reason="<b>No.</b>")[0] == 303
    (end,) = until(lambda: [text for _, text in [page(path)] if "The request is settled." in text])
    assert "reject, says otto." in end and "&lt;b&gt;No.&lt;/b&gt;" in end


# Graphs run with a model of their own script, or with none


@pytest.fixture
def alone(reader: Reader) -> Reader:
    """Somebody who names no model."""
    reader.environ.pop("PHRONOMY_MODEL")
    return reader


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("typed", "end"),
    [("y\n", "85.00 euros are on their way"), ("\n", "the desk refused it")],
    ids=["yes", "no"],
)
def test_graph_react(alone: Reader, typed: str, end: str) -> None:
    status, said, complaints = alone.run("graph_react.py", typed=typed)
    assert (status, complaints) == (0, "")
    assert said == ["The graph asks for refund: 85.00 euros.", f"Approve? [y/N] This came of it: {end}."]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("typed", "end"),
    [
        ("y\n", "completed: The office is closed on Monday."),
        ("Closed on Monday!\n", "completed: Closed on Monday!"),
        ("n\n", "rejected: nothing was sent"),
    ],
    ids=["as it is", "edited", "no"],
)
def test_graph_review(alone: Reader, typed: str, end: str) -> None:
    status, said, complaints = alone.run("graph_review.py", typed=typed)
    assert (status, complaints) == (0, "")
    assert said == ["To be sent: The office is closed on Monday.", f"Send? [y, n, or a better text] {end}"]


def test_scopes(alone: Reader) -> None:
    status, said, complaints = alone.run("scopes.py")
    assert (status, complaints) == (0, "")
    assert said == [
        "otto: There is no tool named 'cancel_invoice'. The tools are: find_invoice.",
        "rita: cancel_invoice waits for an approval",
        "(invoice 7 is cancelled)",
        "rita, with fewer scopes: There is no tool named 'cancel_invoice' any more. Nothing was run.",
        "audit: reject cancel_invoice by scopes",
        "audit: approve cancel_invoice by lead",
        "audit: approve cancel_invoice by lead",
        "audit: reject cancel_invoice by scopes",
    ]


def test_long_term_store(alone: Reader) -> None:
    status, said, complaints = alone.run("long_term_store.py", typed="y\n")
    assert (status, complaints) == (0, "")
    entry = r'\[{"key":"diet","text":"no nuts","at":"[^"]+"}\]'
    assert re.fullmatch(
        rf"Keep 'no nuts' under 'diet'\? \[y/N\] ann: recall found {entry}\n"
        r'ann: the instructions end with {"key":"diet","text":"no nuts"}\n'
        r"bob: recall found \[\]\nbob: the instructions end with Plan a dinner for the guest.\n"
        r"exported: 1 entry, deleted: 1\nleft: nothing",
        "\n".join(said),
    )


def test_graph_feedback_goes_on_where_it_was_left(alone: Reader) -> None:
    """The first process ends at a prompt; the second asks for the same slogan, and what was wished for is kept."""
    prompt = "What is wrong with it? [nothing] "
    left = alone.run("graph_feedback.py", typed="brighter\n")
    assert left == (0, ["A lamp.", f"{prompt}A lamp. (- brighter)", prompt], "")
    status, said, complaints = alone.run("graph_feedback.py", typed="shorter\n\n")
    assert (status, complaints) == (0, "")
    assert said == [
        "A lamp. (- brighter)",
        f"{prompt}A lamp. (- shorter)",
        f"{prompt}After 2 rounds: A lamp. (- shorter)",
    ]


def test_graph_follow_up_asks_nothing_twice(alone: Reader) -> None:
    status, said, complaints = alone.run("graph_follow_up.py", typed="Rome\nmany\n3\nplane\ntrain\n")
    assert (status, complaints) == (0, "")
    assert said == [
        "Where to? How many days in Rome? That is no answer to this.",
        "How many days in Rome? By train, or by car? That is no answer to this.",
        "By train, or by car? Booked: 3 days in Rome, by train",
    ]


def test_graph_replan(alone: Reader) -> None:
    status, said, complaints = alone.run("graph_replan.py")
    assert (status, complaints) == (0, "")
    assert said == [
        "plan > take > plan > take > take > take",
        "completed: ['rent a van', 'pack', 'drive'], 2 plans, ['there is no lorry']",
    ]


def test_graph_map_reduce_reads_nothing_twice(alone: Reader) -> None:
    status, said, complaints = alone.run("graph_map_reduce.py", typed="7.5\n")
    assert (status, complaints) == (0, "")
    assert said == [
        "(March is read)",
        "(May is read)",
        "1 waits.",
        "How much is April? March, 12.50",
        "April, 7.50",
        "May, 20.00",
        "all 3, 40.00",
    ]


def test_debugging_goes_back_and_changes_what_happens(alone: Reader) -> None:
    status, said, complaints = alone.run("debugging.py")
    assert (status, complaints) == (0, "")
    assert said == [
        "case: pre_node sort",
        "case: pre_node ask",
        "case: ask > clerk: pre_tool_call look_up",
        "  (looks up 1043)",
        "case: post_node ask",
        "(True, 'It is paid.')",
        "case: ask > clerk: pre_tool_call look_up",
        "  (looks up 1042)",
        "completed {'question': 'Is order 1042 paid?', 'urgent': True, 'answer': 'It is paid.'}",
    ]


# So do teams


def test_support_desk_pays_small_sums_at_once(alone: Reader) -> None:
    done = alone.run("support_desk.py", "I was charged 20.00 euros too much.")
    assert done == (0, ["I was told: 20.00 euros for order 1042 are on their way."], "")


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["here", "the command line"])
def test_support_desk_goes_on_where_it_was_left(alone: Reader, where: str) -> None:
    """The first process ends at the prompt; another asks the same again, or is the command line, where somebody else decides."""
    asks, end = (
        'refunds asks for refund {"order_id": 1042, "amount": 85.0}',
        "85.00 euros for order 1042 are on their way.",
    )
    status, said, complaints = alone.run("support_desk.py")
    assert (status, complaints, said[:2]) == (0, "", [asks, "Approve? [y/N] "])
    found = re.fullmatch(r"(pend_\w+) waits\.", said[2])
    assert found is not None
    if where == "here":
        assert alone.run("support_desk.py", typed="y\n") == (0, [asks, f"Approve? [y/N] I was told: {end}"], "")
    else:
        command = [sys.executable, "-m", "phronomy", "approve", found[1], "--yes", "--app", "support_desk:triage"]
        environ = {**alone.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), str(EXAMPLES.parent)])}
        done = subprocess.run(command, capture_output=True, text=True, cwd=alone.folder, env=environ, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"I was told: {end}" in done.stdout
        assert "The run is completed." in done.stdout


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("typed", "end"),
    [
        ("y\n", "Published: Bees are in decline, because meadows are."),
        ("Bees are fine.\n", "Published: Bees are fine."),
        ("n\n", "rejected: nothing was published"),
    ],
    ids=["as it is", "edited", "no"],
)
def test_research_and_write_resumes_the_next_day(alone: Reader, typed: str, end: str) -> None:
    assert alone.run("research_and_write.py", "bees") == (0, ["suspended: 67 % done"], "")
    article = "Bees are in decline, because meadows are."
    done = alone.run("research_and_write.py", typed=typed)
    assert done == (0, [article, f"Publish? [y, n, or a better text] {end}"], "")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("typed", "end"),
    [
        ("y\n", "Published: Yes, because people rest."),
        ("Yes, on some Fridays.\n", "Published: Yes, on some Fridays."),
        ("n\n", "rejected: nothing was published"),
    ],
    ids=["as it is", "edited", "no"],
)
def test_the_winner_of_a_debate_is_decided_on_the_next_day(alone: Reader, typed: str, end: str) -> None:
    assert alone.run("debate.py") == (0, ["suspended after paper:step-1"], "")
    done = alone.run("debate.py", typed=typed)
    assert done == (0, ["Yes, because people rest.", f"Publish? [y, n, or a better text] {end}"], "")

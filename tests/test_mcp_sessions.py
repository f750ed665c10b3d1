"""Sessions of MCP servers over HTTP that the server has forgotten: begun anew, and what was never taken up is sent again, once.

The server here is written by hand. It forgets its sessions when a test says so, as one does that was started again.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from drivers import Driver
from loopback import loopback

from phronomy import Agent, MCPError, MCPServer
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.unmeasured

JSON = "application/json"

REFUSALS: dict[str, tuple[int, str, str]] = {
    "404 as the protocol has it": (404, "text/plain", "no such session"),
    "404 with an error": (
        404,
        JSON,
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}',
    ),
    "400 with an error": (
        400,
        JSON,
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session"}}',
    ),
    "400 with an error of no request": (400, JSON, '{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request"}}'),
    "400 without a word": (400, "text/plain", ""),
}
"""How servers tell that they do not know a session."""


class Forgetful:
    """What the server knows and what it was asked; `forget()` has it lose its sessions."""

    def __init__(self, refusal: tuple[int, str, str]) -> None:
        self.refusal = refusal
        self.sessions: set[str] = set()
        self.opened = 0
        self.asked: list[str] = []
        self.ran: list[Any] = []
        self.forgets_always = False
        self.both = threading.Barrier(2)
        self.meeting = False

    def forget(self) -> None:
        self.sessions.clear()

    def open(self) -> str:
        self.opened += 1
        made = f"session-{self.opened}"
        if not self.forgets_always or self.opened == 1:
            self.sessions.add(made)
        return made


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    desk: Forgetful

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, id = message["method"], message.get("id")
        known = self.headers.get("mcp-session-id") in self.desk.sessions
        self.desk.asked.append(method)
        if method == "initialize":
            about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
            self.result(id, about, self.desk.open())
        elif method == "server/discover":
            self.reply(404, "text/plain", "")
        elif method == "notifications/initialized":
            self.reply(202, "text/plain", "")
        elif not known:
            if method == "tools/call" and self.desk.meeting:
                self.desk.both.wait(30)
            self.reply(*self.desk.refusal)
        elif method == "tools/list":
            self.result(id, {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]})
        elif method == "tools/call" and message["params"]["arguments"].get("bad"):
            self.reply(400, JSON, json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "bad"}}))
        elif method == "tools/call":
            self.desk.ran.append(message["params"]["arguments"])
            self.result(id, {"content": [{"type": "text", "text": "paid"}]})
        else:
            self.result(id, {})

    def do_GET(self) -> None:
        self.reply(405, "text/plain", "")

    def do_DELETE(self) -> None:
        self.reply(200, "text/plain", "")

    def result(self, id: Any, result: Any, session: str | None = None) -> None:
        self.reply(200, JSON, json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), session)

    def reply(self, status: int, kind: str, body: str, session: str | None = None) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        if session is not None:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(desk: Forgetful, **options: Any) -> Iterator[MCPServer]:
    handler = type("Served", (Handler,), {"desk": desk})
    with loopback(handler) as (_, url), MCPServer("till", url=f"{url}/", **options) as server:
        yield server


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy stands between a test and its server."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture(params=REFUSALS.values(), ids=REFUSALS.keys())
def desk(request: pytest.FixtureRequest) -> Forgetful:
    return Forgetful(request.param)


def clerk(server: MCPServer, *replies: Any) -> Agent[Any, str]:
    return Agent(name="clerk", model=ScriptedModel.by_turn([*replies, "bye"]), tools=server.tools())


def told(result: Any) -> list[tuple[str | None, str]]:
    return [(message.settlement, message.text) for message in result.messages if message.role == "tool"]


@pytest.mark.few(2)
def test_what_was_approved_runs_once_in_a_new_session_where_the_server_forgot_the_one_it_was_asked_in(
    driver: Driver, desk: Forgetful
) -> None:
    with serving(desk) as server:
        agent = clerk(server, call("pay", {"euros": 5}))
        waiting = driver.invoke(agent, "go").checkpoint
        desk.forget()
        assert told(driver.resume(agent, waiting, approved=True)) == [("completed", "paid")]
        assert (desk.ran, desk.opened, desk.asked.count("tools/call")) == ([{"euros": 5}], 2, 2)

        again = driver.invoke(agent, "go").checkpoint
        assert told(driver.resume(agent, again, approved=True)) == [("completed", "paid")]
        assert (len(desk.ran), desk.opened) == (2, 2)


@pytest.mark.few(2)
def test_a_server_that_forgets_each_session_at_once_is_given_up_and_nothing_was_run(
    driver: Driver, desk: Forgetful
) -> None:
    desk.forgets_always = True
    with serving(desk) as server:
        agent = clerk(server, call("pay"))
        waiting = driver.invoke(agent, "go").checkpoint
        desk.forget()
        [(settlement, text)] = told(driver.resume(agent, waiting, approved=True))
        assert settlement == "failed" and text.endswith("Nothing was run.")
        assert (desk.ran, desk.opened, desk.asked.count("tools/call")) == ([], 2, 1)


@pytest.mark.few(2)
def test_the_tools_are_listed_in_a_new_session_where_the_server_forgot_the_old_one(desk: Forgetful) -> None:
    with serving(desk) as server:
        assert [tool.name for tool in server.tools()] == ["pay"]
        desk.forget()
        assert [tool.name for tool in server.tools()] == ["pay"]
        assert desk.opened == 2


@pytest.mark.few(2)
def test_calls_side_by_side_in_a_session_that_was_forgotten_run_once_each(driver: Driver, desk: Forgetful) -> None:
    """Each hears for itself that it was refused: the first that does takes no other's connection away."""
    with serving(desk, requires_approval=False) as server:
        agent = clerk(server, [call("pay", {"n": 1}), call("pay", {"n": 2})])
        desk.forget()
        desk.meeting = True
        assert told(driver.invoke(agent, "go")) == [("completed", "paid"), ("completed", "paid")]
        assert sorted(each["n"] for each in desk.ran) == [1, 2]


def test_a_request_that_the_server_refuses_in_a_session_that_it_knows_is_not_sent_again(driver: Driver) -> None:
    desk = Forgetful(REFUSALS["400 without a word"])
    with serving(desk, requires_approval=False) as server:
        agent = clerk(server, call("pay", {"bad": True}))
        assert told(driver.invoke(agent, "go")) == [("failed", "The server answered with error -32602: bad")]
        assert (desk.opened, desk.asked.count("tools/call")) == (1, 1)
        assert server.connected


@pytest.mark.few(2)
def test_a_server_that_knows_no_session_at_all_is_an_error_when_its_tools_are_listed(desk: Forgetful) -> None:
    with serving(desk) as server:
        desk.forgets_always = True
        server.connect()
        desk.forget()
        with pytest.raises(MCPError, match="the MCP server 'till' "):
            server.tools()

"""Tools of MCP servers: real servers in processes of their own, over stdio and HTTP, through both drivers.

What a server has done is read from its log, which it writes before it does anything.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import http.server
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mcp_types
import psutil
import pytest
from drivers import PATIENCE, SYNC, Driver, until
from loopback import loopback
from ports import HeldPort
from pydantic import BaseModel

from phronomy import (
    Agent,
    AgentChanged,
    Checkpoint,
    CheckpointAlreadyResumed,
    ConfigurationError,
    MCPError,
    MCPServer,
    MemoryStore,
    NotAuthorized,
    Respond,
    Result,
    SQLiteStore,
    ToolContext,
    ToolDefinitionError,
    tool,
)
from phronomy.foundation.json_text import canonical
from phronomy.mcp.content import text_of
from phronomy.mcp.server import MCPTool
from phronomy.runs.wire import to_wire
from phronomy.testing import ScriptedModel, call
from phronomy.tools.arguments import Unfit
from phronomy.tools.context import InvalidArguments
from phronomy.tools.json_schema.arguments import SchemaArguments

pytestmark = pytest.mark.unmeasured

PROGRAM = Path(__file__).with_name("mcp_server.py")
START = Path(__file__).with_name("mcp_start.py")
TOKEN = "sesame-open-wide"

TRANSPORTS = ("stdio", "http")


@functools.cache
def forking() -> str:
    """The socket of a process that forks servers: to import what they need takes most of the time that one takes to start."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "fork")
    process = subprocess.Popen([sys.executable, str(PROGRAM), "--fork", path], stdout=subprocess.PIPE, text=True)

    @atexit.register
    def end() -> None:
        process.kill()
        process.wait()
        shutil.rmtree(folder)

    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    return path


class Place:
    """Where a server of a test runs, and its log. Over stdio each connection starts a process; over HTTP there is one."""

    def __init__(self, folder: Path, transport: str = "stdio", listed: list[dict[str, Any]] | None = None) -> None:
        self.log = folder / "server.log"
        self.log.touch()
        self.transport = transport
        self.listing = folder / "listed.json"
        self.command = [sys.executable, "-S", "-E", str(START), forking(), str(self.log)]
        if listed is not None:
            self.lists(listed)
            self.command.append(str(self.listing))
        self._served: list[subprocess.Popen[str]] = []
        self._made: list[MCPServer] = []
        self.port = 0
        self._held: HeldPort | None = None
        if transport == "http":
            self._held = HeldPort()
            self.port = self._held.number
            self.serve()

    def lists(self, tools: list[dict[str, Any]]) -> None:
        """What the server lists from now on."""
        self.listing.write_text(json.dumps(tools))

    def serve(self) -> None:
        """Start the server that is reached over HTTP."""
        env = {**os.environ, "DESK_TOKEN": TOKEN}
        process = subprocess.Popen([*self.command, f"--http={self.port}"], stdout=subprocess.PIPE, text=True, env=env)
        self._served.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"

    def server(self, **options: Any) -> MCPServer:
        """The server, as an agent's tools need it."""
        if self.transport == "http":
            options = {"url": f"http://127.0.0.1:{self.port}/mcp", "headers": {"x-token": TOKEN}} | options
        else:
            options = {"command": self.command, "env": {"DESK_TOKEN": TOKEN}} | options
        made = MCPServer("desk", **options)
        self._made.append(made)
        return made

    def agent(
        self, *replies: Any, store: Any = None, server: MCPServer | None = None, **options: Any
    ) -> Agent[Any, str]:
        """An agent with all tools of a server, whose model says these replies and then goodbye."""
        tools = (server or self.server(**options)).tools()
        return Agent(name="clerk", model=ScriptedModel.by_turn([*replies, "bye"]), tools=tools, store=store)

    def did(self, *tools: str) -> list[dict[str, Any]]:
        """What the server was asked to do, in order; without names all but its starts."""
        noted = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [each for each in noted if (each["tool"] in tools if tools else each["tool"] != "started")]

    def pid(self) -> int:
        """The process of the server that was started last."""
        pid: int = self.did("started")[-1]["pid"]
        return pid

    def kill(self) -> None:
        """Kill the server, and wait until it is dead."""
        process = psutil.Process(self.pid())
        process.kill()
        until(lambda: not psutil.pid_exists(process.pid))

    def close(self) -> None:
        for made in self._made:
            made.close()
        for served in self._served:
            served.kill()
            served.wait()
            assert served.stdout is not None
            served.stdout.close()
        if self._held is not None:
            self._held.close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy stands between a test and its server."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A refund desk over stdio."""
    made = Place(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=TRANSPORTS)
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A refund desk over each transport."""
    made = Place(tmp_path, request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[MCPTool]]:
    """The tools of one desk, ungated, for tests that change nothing there."""
    made = Place(tmp_path_factory.mktemp("shared"))
    yield made.server(requires_approval=False).tools()
    made.close()


@contextmanager
def listing(folder: Path, *tools: dict[str, Any]) -> Iterator[Place]:
    """A server that lists these tools."""
    made = Place(folder, listed=list(tools))
    try:
        yield made
    finally:
        made.close()


def wipe(**schema: Any) -> dict[str, Any]:
    """A tool to list: it takes a path, and whatever else the schema says."""
    return {
        "name": "wipe",
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]} | schema,
    }


def told(result: Result[Any]) -> list[tuple[str | None, str]]:
    """How each call ended, and the text that the model reads."""
    return [(message.settlement, message.text) for message in result.messages if message.role == "tool"]


def ask(tools: list[MCPTool], *calls: Any, driver: Driver = SYNC) -> list[tuple[str | None, str]]:
    """What the model reads of its calls."""
    result = driver.invoke(Agent(model=ScriptedModel([list(calls), "bye"]), tools=tools), "go")
    assert result.status == "completed"
    return told(result)


def named(tools: list[MCPTool], name: str) -> MCPTool:
    return next(tool for tool in tools if tool.name == name)


REFUND = call("refund", {"order_id": 1042})
SHOWN = {"order_id": 1042, "amount": 10.0, "note_text": None}
"""What a human is shown of it: the server's defaults are filled in."""


# What is gated


def test_a_call_waits_and_what_was_approved_runs_once_in_another_process_for_all_it_knows(
    driver: Driver, either: Place, tmp_path: Path
) -> None:
    with SQLiteStore(tmp_path / "runs.db") as store, either.server() as server:
        waiting = driver.invoke(either.agent(REFUND, server=server, store=store), "Refund order 1042")
        [pending] = waiting.checkpoint.pending
        assert (waiting.status, pending.why, pending.tool_name, pending.args) == (
            "suspended",
            "approval",
            "refund",
            SHOWN,
        )
        assert (pending.tool.source, pending.tool.gate) == ("mcp:desk", "always")
    assert not server.connected
    assert either.did() == []

    with SQLiteStore(tmp_path / "runs.db") as store:
        agent = either.agent(REFUND, store=store)
        result = driver.resume(agent, waiting.checkpoint.id, approved=True, by="ada")
        assert (result.status, told(result)) == ("completed", [("completed", "10.0 euros for order 1042")])
        with pytest.raises(CheckpointAlreadyResumed):
            driver.resume(agent, waiting.checkpoint.id, approved=True)
    assert either.did() == [{"tool": "refund", **SHOWN}]


def test_what_is_rejected_never_reaches_the_server(driver: Driver, place: Place) -> None:
    agent = place.agent(REFUND)
    result = driver.resume(agent, driver.invoke(agent, "go").checkpoint, approved=False, reason="No.")
    [(settlement, text)] = told(result)
    assert settlement == "rejected" and "No." in text
    assert place.did() == []


def test_what_a_server_says_of_its_own_tools_loosens_nothing(place: Place) -> None:
    """It says that its refunds read only, destroy nothing and may be repeated."""
    for options in ({}, {"requires_approval": {"echo": False}}):
        refund = named(place.server(**options).tools(), "refund")
        assert (refund.gate, refund.idempotent, refund.risk, refund.retries) == ("always", False, None, 0)
        assert refund.annotations == {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}
        refund.annotations.clear()
        assert refund.annotations["readOnlyHint"] is True
    asked = place.agent(REFUND).invoke("go")
    assert (asked.status, place.did()) == ("suspended", [])


def test_a_predicate_of_the_server_is_asked_about_the_arguments_as_they_will_run(driver: Driver, place: Place) -> None:
    seen: list[dict[str, Any]] = []

    def above_50(args: Any, context: ToolContext[Any]) -> bool:
        seen.append(dict(args))
        return bool(args["amount"] > 50)

    agent = place.agent([REFUND, call("refund", {"order_id": 7, "amount": 99})], requires_approval=above_50)
    result = driver.invoke(agent, "go")
    assert seen == [SHOWN, {"order_id": 7, "amount": 99, "note_text": None}]
    assert [item.args for item in result.checkpoint.pending] == [seen[1]]
    assert place.did() == [{"tool": "refund", **SHOWN}]
    assert driver.resume(agent, result.checkpoint, approved=True).status == "completed"
    assert [each["amount"] for each in place.did()] == [10.0, 99.0]


def test_a_mapping_gates_each_tool_for_itself_and_all_others_unless_it_says_so(place: Place) -> None:
    gates: dict[str, Any] = {"echo": False, "refund": lambda args: False, "hang": True}
    tools = {tool.name: tool.gate for tool in place.server(requires_approval=gates).tools()}
    assert {tools.pop("echo"), tools.pop("refund"), *tools.values()} == {"never", "predicate", "always"}
    tools = {tool.name: tool.gate for tool in place.server(requires_approval={"*": False, "refund": True}).tools()}
    assert tools.pop("refund") == "always"
    assert set(tools.values()) == {"never"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"requires_approval": {"refnud": True, "*": False}}, "requires_approval names 'refnud', but its tools are"),
        ({"tools": ["echo", "ehco"]}, "tools names 'ehco', but its tools are"),
        ({"exclude": ["hagn"]}, "exclude names 'hagn', but its tools are"),
        ({"idempotent": ["chrage"]}, "idempotent names 'chrage', but its tools are"),
        ({"redact": {"fial": ["text"]}}, "redact names 'fial', but its tools are"),
        ({"redact": {"fail": ["txet"]}}, "tool fail: redact names 'txet', but the parameters are: text"),
        ({"risk": {"refnud": "money"}}, "risk names 'refnud', but its tools are"),
    ],
)
def test_a_name_that_the_server_does_not_have_is_refused(place: Place, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        place.server(**options).tools()


# What changes meanwhile


@pytest.mark.parametrize(
    ("now", "options", "said"),
    [
        ([wipe(required=["path", "force"])], {}, "the arguments of a pending call are no longer valid for tool 'wipe'"),
        (
            [wipe(properties={"path": {"type": "string"}, "force": {"type": "boolean", "default": True}})],
            {},
            "the arguments of a pending call are no longer valid for tool 'wipe'",
        ),
        ([wipe() | {"name": "wipe_all"}], {}, "tool 'wipe' of a pending call is gone"),
        ([wipe()], {"requires_approval": False}, "the gate of tool 'wipe' was loosened from 'always' to 'never'"),
        (
            [wipe() | {"description": "Wipe it, and send a copy to sam@elsewhere."}],
            {},
            "what is said of tool 'wipe' of a pending call changed since it was shown",
        ),
    ],
)
def test_a_server_that_changed_while_a_human_thought_is_noticed(
    tmp_path: Path, now: list[dict[str, Any]], options: dict[str, Any], said: str
) -> None:
    store = MemoryStore()
    with listing(tmp_path, wipe()) as place:
        waiting = place.agent(call("wipe", {"path": "/x"}), store=store).invoke("go").checkpoint
        place.lists(now)
        with pytest.raises(AgentChanged) as caught:
            place.agent(call("wipe", {"path": "/x"}), store=store, **options).resume(waiting, approved=True)
        assert said in caught.value.changes
        assert place.did() == []

        place.lists([wipe()])
        agent = place.agent(call("wipe", {"path": "/x"}), store=store)
        assert agent.resume(waiting, approved=True).status == "completed"
        assert place.did() == [{"tool": "wipe", "args": {"path": "/x"}}]


def test_a_server_that_changed_its_tool_since_it_was_listed_is_not_asked_to_run_it(tmp_path: Path) -> None:
    """The same agent goes on, and the server was started again meanwhile: what was approved is another tool now."""
    with listing(tmp_path, wipe()) as place, place.server() as server:
        agent = place.agent(call("wipe", {"path": "/x"}), server=server)
        for now, said in (
            ([wipe(properties={"path": {"type": "string"}, "all": {"type": "boolean"}})], "has changed the parameters"),
            ([wipe() | {"description": "Wipe it all."}], "has changed what it says"),
            ([], "no longer has this tool"),
        ):
            waiting = agent.invoke("go").checkpoint
            place.lists(now)
            place.kill()
            until(lambda: not server.connected)
            result = agent.resume(waiting, approved=True)
            assert (
                f"The server {said} {'of this tool ' if now else ''}since it was listed, so nothing was run."
                in told(result)[0][1]
            )
            place.lists([wipe()])
        assert place.did() == []


def test_a_description_that_is_accepted_is_no_obstacle(tmp_path: Path, driver: Driver) -> None:
    store = MemoryStore()
    with listing(tmp_path, wipe()) as place:
        waiting = place.agent(call("wipe", {"path": "/x"}), store=store).invoke("go").checkpoint
        place.lists([wipe() | {"description": "Wipe a path."}])
        agent = place.agent(call("wipe", {"path": "/x"}), store=store)
        assert driver.resume(agent, waiting, approved=True, accept_changes=True).status == "completed"
        assert place.did() == [{"tool": "wipe", "args": {"path": "/x"}}]


def test_an_approval_at_one_endpoint_is_none_at_another(tmp_path: Path, driver: Driver) -> None:
    """The same name, tools and descriptions; and whoever accepts the change has approved of nothing there."""
    store = MemoryStore()
    (tmp_path / "other").mkdir()
    with listing(tmp_path, wipe()) as place, listing(tmp_path / "other", wipe()) as other:
        waiting = place.agent(call("wipe", {"path": "/x"}), store=store).invoke("go").checkpoint
        agent = other.agent(call("wipe", {"path": "/x"}), store=store)
        with pytest.raises(AgentChanged, match=r"is to run elsewhere: it was .+#[0-9a-f]{16} and now .+#[0-9a-f]{16}"):
            driver.resume(agent, waiting, approved=True)
        with pytest.raises(NotAuthorized, match="judged for another tool"):
            driver.resume(agent, waiting, approved=True, accept_changes=True)
        assert place.did() == other.did() == []


def test_a_request_says_where_its_tool_runs_and_nothing_that_may_be_secret() -> None:
    def endpoint(**options: Any) -> str:
        return MCPServer("desk", **options).endpoint

    here = endpoint(url=f"https://sam:{TOKEN}@tools.example:8443/{TOKEN}?key={TOKEN}", headers={"x-token": TOKEN})
    assert re.fullmatch(r"https://tools\.example:8443#[0-9a-f]{16}", here)
    assert here == endpoint(url=f"https://tools.example:8443/{TOKEN}?key={TOKEN}")
    assert here != endpoint(url=f"https://tools.example:8443/{TOKEN}?key=other")
    assert here.split("#")[0] != endpoint(url=f"https://tools.example/{TOKEN}?key={TOKEN}").split("#")[0]

    started = endpoint(command=["/usr/bin/files", "--root", TOKEN], env={"TOKEN": TOKEN})
    assert re.fullmatch("files#[0-9a-f]{16}", started)
    assert started == endpoint(command=["/opt/bin/files", "--root", TOKEN])
    assert started != endpoint(command=["/usr/bin/files", "--root", "/"])
    assert started != endpoint(command=["/usr/bin/files", "--root", TOKEN], cwd="/")


def test_where_a_tool_runs_is_shown_to_whoever_decides(place: Place) -> None:
    waiting = place.agent(call("refund", {"order_id": 1})).invoke("go").checkpoint
    shown = waiting.pending[0].tool.endpoint
    assert shown is not None and shown == to_wire(waiting)["pending"][0]["tool"]["endpoint"]
    assert shown.startswith("python" if place.transport == "stdio" else f"http://127.0.0.1:{place.port}#")
    assert Checkpoint.model_validate_json(waiting.model_dump_json()) == waiting


# What is sent


def test_defaults_within_defaults_are_shown_approved_and_sent(driver: Driver, place: Place) -> None:
    agent = place.agent(
        call("send", {"to": {"town": "Graz"}, "parcels": [{"town": "Wien", "country": "XX"}, {"town": "Linz"}]})
    )
    waiting = driver.invoke(agent, "go").checkpoint
    whole = {
        "to": {"town": "Graz", "country": "AT"},
        "parcels": [{"town": "Wien", "country": "XX"}, {"town": "Linz", "country": "AT"}],
    }
    assert waiting.pending[0].args == whole
    driver.resume(agent, waiting, approved=True)
    assert place.did() == [{"tool": "send", **whole}]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"order_id": "1042"}, "order_id: integer is wanted"),
        ({"amount": 5}, "they: order_id is missing"),
        ({"order_id": 1, "note_text": 5}, "note_text: does not fit anyOf"),
        ("[1]", "they must be a JSON object"),
        ('{"order_id": 1, "order_id": 2}', "twice"),
        ({"order_id": 1, "__class__": "x"}, "two underscores"),
    ],
)
def test_arguments_that_do_not_fit_are_told_to_the_model_and_not_sent(
    shared: list[MCPTool], arguments: Any, why: str
) -> None:
    [(settlement, text)] = ask(shared, call("refund", arguments))
    assert settlement == "invalid"
    assert why in text and text.startswith("The arguments are not valid, so nothing was run.")


def test_what_is_read_is_read_again_as_the_same_and_numbers_stay_as_they_are(shared: list[MCPTool]) -> None:
    refund = named(shared, "refund")
    text = refund.read('{"amount": 5.0, "order_id": 7}')
    assert text == '{"amount":5.0,"order_id":7,"note_text":null}'
    assert refund.read(text) == text
    assert refund.bind(text) == {"amount": 5.0, "order_id": 7, "note_text": None}
    with pytest.raises(InvalidArguments, match="something else than before"):
        refund.bind('{"order_id":7}')


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (
            {"properties": {"path": {"$ref": "https://example.invalid/schema.json"}}},
            "points elsewhere.*nothing is fetched",
        ),
        ({"properties": {"path": {"$ref": "file:///etc/passwd"}}}, "points elsewhere"),
        ({"properties": {"path": {"$ref": "#/$defs/none"}}}, "'#/\\$defs/none' is not in it"),
        ({"properties": {"path": {"type": "txet"}}}, "properties.path.type does not fit"),
        ({"$schema": "https://example.invalid/draft"}, "names no draft that is known"),
        (
            {"$defs": {"N": {"properties": {"n": {"$ref": "#/$defs/N", "default": {}}}}}, "$ref": "#/$defs/N"},
            "nested deeper",
        ),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_and_the_others_can_do_without_it(
    tmp_path: Path, schema: dict[str, Any], why: str
) -> None:
    with listing(tmp_path, wipe(**schema), wipe() | {"name": "ok"}) as place:
        with pytest.raises(ToolDefinitionError, match=f"tool wipe of MCP server 'desk': .*cannot be used: .*{why}"):
            place.server().tools()
        assert [tool.name for tool in place.server(exclude=["wipe"]).tools()] == ["ok"]


def test_a_gate_and_a_human_see_a_default_behind_a_reference(driver: Driver, tmp_path: Path) -> None:
    described = {"properties": {"path": {"type": "string"}, "force": {"$ref": "#/$defs/F"}}, "required": ["path"]}
    with listing(tmp_path, wipe(**described, **{"$defs": {"F": {"type": "boolean", "default": True}}})) as place:
        tools = place.server(requires_approval={"wipe": lambda given: given["force"]}).tools()
        agent = Agent(name="desk", model=ScriptedModel([call("wipe", {"path": "/"})]), tools=tools, store=MemoryStore())
        (asked,) = driver.invoke(agent, "go").checkpoint.pending
        assert (asked.why, asked.args) == ("approval", {"path": "/", "force": True})


def test_schemas_of_other_drafts_and_defaults_that_do_not_fit_themselves(tmp_path: Path) -> None:
    draft7 = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {
            "path": {"type": "string", "default": None},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}, "default": {}},
            "mode": {"enum": ["a", "b"], "default": "a"},
            "size": {"type": "integer", "maximum": 9},
        },
        "required": [],
        "additionalProperties": False,
    }
    with listing(tmp_path, wipe(**draft7)) as place:
        [tool] = place.server(redact={"wipe": ["size"]}).tools()
        assert tool.read("") == '{"deep":{"n":3},"mode":"a"}'
        assert tool.read(tool.read("")) == tool.read("")
        assert tool.parameters["$schema"] == draft7["$schema"]
        for arguments, why in (
            ('{"mode": "c"}', "mode: does not fit enum ['a', 'b']"),
            ('{"size": 12}', "size: not valid (maximum)"),
            ('{"more": 1}', "they: undeclared names more (declared: path, deep, mode, size)"),
        ):
            with pytest.raises(InvalidArguments) as caught:
                tool.read(arguments)
            assert str(caught.value) == f"The arguments of wipe are not valid: {why}"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string"}, "it describes no object"),
        ([], "it describes no object"),
        ({"type": "object", "default": float("nan")}, "is not a finite number"),
        ({"type": "object", "$schema": 5}, "cannot be used: AttributeError"),
    ],
)
def test_what_is_no_schema_of_arguments_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(ToolDefinitionError, match=why):
        SchemaArguments("wipe", schema)


def test_a_schema_that_fails_when_it_is_applied_lets_nothing_through() -> None:
    arguments = SchemaArguments("wipe", {"type": "object", "properties": {"path": {"$ref": "#nowhere"}}})
    assert arguments.read(canonical({})) == "{}"
    with pytest.raises(Unfit, match="the schema of the tool cannot be applied to them"):
        arguments.read(canonical({"path": "/x"}))


def test_names_are_made_valid_and_two_of_one_name_are_refused(tmp_path: Path) -> None:
    with listing(tmp_path, wipe() | {"name": "files/wipe.all"}, wipe() | {"name": "files.wipe.all"}) as place:
        with pytest.raises(ConfigurationError, match="would both be named 'files_wipe_all'; exclude one"):
            place.server().tools()
        [tool] = place.server(tools=["files/wipe.all"], prefix="a_").tools()
        assert (tool.name, tool.remote_name) == ("a_files_wipe_all", "files/wipe.all")
        agent = Agent(model=ScriptedModel.by_turn([call(tool.name, {"path": "/x"}), "bye"]), tools=[tool])
        agent.resume(agent.invoke("go").checkpoint, approved=True)
        assert place.did() == [{"tool": "files/wipe.all", "args": {"path": "/x"}}]


# What comes back


def test_results_are_texts_json_or_notes_and_failures_are_the_servers_own_words(
    driver: Driver, shared: list[MCPTool]
) -> None:
    kinds = ("look_up", "echo", "picture", "refuse", "ask")
    calls = {"look_up": {"order_id": 3}, "echo": {"text": "Grüß Gott, 世界 🎈"}}
    found = ask(shared, *(call(kind, calls.get(kind, {})) for kind in kinds), driver=driver)
    order, echo, picture, refused, asked = found
    assert order[0] == "completed" and json.loads(order[1]) == {"id": 3, "goods": ["Kännchen", "茶"]}
    assert echo == ("completed", "Grüß Gott, 世界 🎈")
    assert picture == ("completed", '{"type":"image","mime_type":"image/png","bytes":8}')
    assert refused == ("failed", "The server answered with error -32602: not through this desk")
    assert asked[0] == "failed" and "elicitation" in asked[1]


def test_a_failure_is_told_without_what_the_server_was_given_to_keep_and_without_what_is_redacted(place: Place) -> None:
    tools = place.server(requires_approval=False, redact={"fail": ["text"]}).tools()
    assert ask(tools, call("fail", {"text": "4111-1111"})) == [
        ("failed", "Error executing tool fail: no [redacted] today, [redacted]")
    ]


def test_calls_of_one_reply_run_side_by_side_over_one_connection(driver: Driver, place: Place) -> None:
    agent = place.agent([call("meet", {"who": "ada"}), call("meet", {"who": "bob"})], requires_approval=False)
    assert told(driver.invoke(agent, "go")) == [("completed", "ada met"), ("completed", "bob met")]
    assert len(place.did("started")) == 1


def test_the_server_is_given_the_idempotency_key(driver: Driver, place: Place) -> None:
    agent = place.agent(call("key"))
    result = driver.resume(agent, driver.invoke(agent, "go").checkpoint, approved=True)
    [noted] = place.did()
    assert told(result) == [("completed", noted["key"])]
    assert len(noted["key"]) == 32


# What goes wrong


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[None]:
    """The work is done in a thread while the block runs, and has succeeded when it ends."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert raised == []


def test_a_server_that_is_killed_in_the_middle_of_a_call_leaves_a_question_and_is_not_asked_again(
    driver: Driver, either: Place
) -> None:
    agent = either.agent(call("hang"))
    waiting = driver.invoke(agent, "go").checkpoint

    def strike() -> None:
        until(lambda: either.did("hang"))
        either.kill()

    with meanwhile(strike):
        result = driver.resume(agent, waiting, approved=True)
    [pending] = result.checkpoint.pending
    assert (result.status, pending.why, pending.tool_name) == ("suspended", "outcome_unknown", "hang")
    assert pending.reason == (
        "OutcomeUnknown: MCP server 'desk': The connection was lost before the server answered. It may have taken effect."
    )
    answered = driver.resume(agent, result.checkpoint, decisions={pending.id: Respond(content="It was done.")})
    assert told(answered) == [("responded", "It was done.")]
    assert either.did() == [{"tool": "hang"}]


def test_a_rejection_afterwards_tells_the_model_that_it_may_have_happened(place: Place) -> None:
    agent = place.agent(call("charge"))
    result = agent.resume(agent.invoke("go").checkpoint, approved=True)
    [pending] = result.checkpoint.pending
    ended = agent.resume(result.checkpoint, approved=False)
    [(settlement, text)] = told(ended)
    assert (pending.why, settlement) == ("outcome_unknown", "rejected")
    assert "Nobody knows whether this call took effect." in text
    assert len(place.did("charge")) == 1


def test_an_idempotent_tool_is_sent_again_with_the_same_key(driver: Driver, place: Place) -> None:
    """The server dies of the first attempt, and is started again for the second."""
    agent = place.agent(call("charge"), requires_approval=False, idempotent=["charge"])
    assert told(driver.invoke(agent, "go")) == [("completed", "charged")]
    first, second = place.did("charge")
    assert first == second
    assert len(place.did("started")) == 2


def test_a_server_that_died_between_two_calls_is_reached_again(driver: Driver, either: Place) -> None:
    server = either.server()
    agent = either.agent(REFUND, server=server)
    first = driver.invoke(agent, "go")
    assert first.suspended, told(first)
    waiting = first.checkpoint
    either.kill()
    if either.transport == "http":
        [dead] = told(driver.resume(agent, waiting, approved=True))
        assert dead == (
            "failed",
            "the MCP server 'desk' cannot be reached (ConnectError). Nothing was run.",
        )
        assert either.did() == []
        return
    until(lambda: not server.connected)
    assert told(driver.resume(agent, waiting, approved=True)) == [("completed", "10.0 euros for order 1042")]
    assert either.did() == [{"tool": "refund", **SHOWN}]
    assert len(either.did("started")) == 2


def test_a_server_that_is_gone_when_it_is_called_is_told_to_the_model(driver: Driver, tmp_path: Path) -> None:
    place = Place(tmp_path)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nexec {shlex.join(place.command)}\n")
    program.chmod(0o700)
    server = place.server(command=[str(program)])
    agent = place.agent(REFUND, server=server, store=MemoryStore())
    waiting = driver.invoke(agent, "go").checkpoint
    program.unlink()
    place.kill()
    until(lambda: not server.connected)
    [(settlement, text)] = told(driver.resume(agent, waiting, approved=True))
    assert settlement == "failed"
    assert text.startswith("the MCP server 'desk' could not be started (FileNotFoundError: No such file or directory)")
    assert text.endswith("Nothing was run.")
    assert place.did() == []
    place.close()


def test_a_call_that_takes_too_long_is_given_up_and_the_server_is_told(driver: Driver, either: Place) -> None:
    agent = either.agent(call("hang"), requires_approval=False, timeout=1.0)
    result = driver.invoke(agent, "go")
    [pending] = result.checkpoint.pending
    assert (pending.why, pending.tool_name) == ("outcome_unknown", "hang")
    assert pending.reason == "hang did not end within 1.0 s. It may have taken effect, or may yet."
    until(lambda: either.did("cancelled"))
    assert [each["tool"] for each in either.did()] == ["hang", "cancelled"]


def test_a_run_that_is_cancelled_stops_the_call_at_the_server(driver: Driver, place: Place) -> None:
    store = MemoryStore(lease=0.3)  # how soon whoever drives the run hears of it
    agent = place.agent(call("hang"), requires_approval=False, store=store)

    def cancel() -> None:
        until(lambda: place.did("hang"))
        [branch] = store.branches()
        agent.cancel(branch.run_id, reason="Enough.")

    with meanwhile(cancel):
        result = driver.invoke(agent, "go")
    assert result.status == "cancelled"
    assert "Nobody knows whether this call took effect." in told(result)[0][1]
    until(lambda: place.did("cancelled"))
    assert [each["tool"] for each in place.did()] == ["hang", "cancelled"]


SECRETS = {"DESK_TOKEN": TOKEN, "PATH": os.environ["PATH"]}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"command": ["./no-such-program"], "env": SECRETS},
            "could not be started (FileNotFoundError: No such file or",
        ),
        ({"command": [sys.executable, "-c", "0"], "env": SECRETS}, "closed the connection"),
        (
            {"command": [sys.executable, "-c", "import sys; sys.stdin.read()"], "connect_timeout": 0.5},
            "did not answer within 0.5 s",
        ),
        (
            {"url": f"http://127.0.0.1:1/mcp?key={TOKEN}", "headers": {"x-token": TOKEN}},
            "cannot be reached (ConnectError)",
        ),
    ],
)
def test_a_server_that_cannot_be_reached_is_a_typed_error_without_secrets(
    options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "phronomy")
    server = MCPServer("desk", **options)
    with pytest.raises(MCPError) as caught:
        server.connect()
    error = caught.value
    assert error.server == "desk" and f"the MCP server 'desk' {said}" in str(error)
    assert error.__cause__ is None and error.__context__ is None
    shown = f"{error!r} {error} {server!r} {vars(error)} {caplog.text}"
    assert TOKEN not in shown and "127.0.0.1" not in shown and "no-such-program" not in shown
    assert not server.connected
    server.close()


def test_an_http_server_that_is_no_mcp_server_says_so_by_its_status(either: Place) -> None:
    if either.transport == "stdio":
        return
    with pytest.raises(MCPError, match="the MCP server 'desk' answered with HTTP 404"):
        either.server(url=f"http://127.0.0.1:{either.port}/elsewhere").connect()


Scripted = tuple[int, str, str]
"""A status, a content type and a body."""

JSON = "application/json"
DONE = {"content": [{"type": "text", "text": "done"}]}


class Faulty(http.server.BaseHTTPRequestHandler):
    """An old MCP server over HTTP, written by hand, that answers calls as its script says."""

    protocol_version = "HTTP/1.1"
    script: list[Scripted | None]
    asked: list[str]

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, id = message["method"], message.get("id")
        self.asked.append(method)
        tool = {
            "name": "wipe",
            "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object", "required": ["n"]},
        }
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
        results: dict[str, Any] = {"initialize": about, "tools/list": {"tools": [tool]}}
        if method == "tools/call":
            scripted = self.script.pop(0)
            if scripted is None:
                self.close_connection = True
                return
            self.reply(scripted[0], scripted[1], scripted[2].replace("ID", str(id)))
        elif method in results:
            self.reply(200, JSON, json.dumps({"jsonrpc": "2.0", "id": id, "result": results[method]}))
        else:
            self.reply(202 if id is None else 404, "text/plain", "")

    def do_GET(self) -> None:
        self.reply(405, "text/plain", "")

    def do_DELETE(self) -> None:
        self.reply(200, "text/plain", "")

    def reply(self, status: int, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(data)), "mcp-session-id": "one"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def faulty(*script: Scripted | None) -> Iterator[tuple[MCPServer, list[str]]]:
    """The server, and what it was asked."""
    asked: list[str] = []
    handler = type("Handler", (Faulty,), {"script": list(script), "asked": asked})
    with loopback(handler) as (_, url), MCPServer("old", url=f"{url}/", requires_approval=False) as server:
        yield server, asked


def answer(result: Any) -> Scripted:
    return 200, JSON, f'{{"jsonrpc": "2.0", "id": ID, "result": {json.dumps(result)}}}'


RAN = "The tool ran, but its result is not what its server says that it is"


@pytest.mark.parametrize(
    ("scripted", "kind", "said"),
    [
        (answer({**DONE, "structuredContent": {"n": 1}}), "completed", 'done\n{"n":1}'),
        (answer({**DONE, "isError": True}), "failed", "done"),
        (answer(DONE), "failed", f"{RAN} (Unfit). Its effect may have happened."),
        (answer({"content": 5}), "failed", f"{RAN} (ValidationError). Its effect may have happened."),
        ((401, JSON, "{}"), "failed", "The server refused the request with HTTP 401."),
        ((500, JSON, "{}"), None, "The server gave no answer that could be read (HTTP 500). It may have taken effect."),
        (
            (502, "text/html", "bad gateway"),
            None,
            "gave no answer that could be read (HTTP 502). It may have taken effect.",
        ),
        ((202, JSON, ""), None, "The server gave no answer that could be read (HTTP 202). It may have taken effect."),
        (
            (200, JSON, "{nonsense"),
            None,
            "The server gave no answer that could be read (HTTP 200). It may have taken effect.",
        ),
        (
            (200, "text/event-stream", ""),
            None,
            "The connection was lost before the server answered. It may have taken effect.",
        ),
        (None, None, "The connection was lost before the server answered. It may have taken effect."),
    ],
)
def test_whatever_comes_back_over_http_is_told_as_what_it_is_and_asked_for_once(
    driver: Driver, scripted: Scripted | None, kind: str | None, said: str
) -> None:
    with faulty(scripted) as (server, asked):
        result = driver.invoke(Agent(model=ScriptedModel([call("wipe"), "bye"]), tools=server.tools()), "go")
        if kind is None:
            [pending] = result.checkpoint.pending
            assert pending.why == "outcome_unknown" and pending.reason is not None
            assert said in pending.reason
        else:
            assert told(result) == [(kind, said)]
        assert asked.count("tools/call") == 1


def test_a_session_that_the_server_has_forgotten_is_begun_anew_since_nothing_was_run(driver: Driver) -> None:
    with faulty((404, "text/plain", ""), answer({**DONE, "structuredContent": {"n": 1}})) as (server, asked):
        tools = server.tools()
        assert ask(tools, call("wipe"), driver=driver) == [("completed", 'done\n{"n":1}')]
        assert (asked.count("initialize"), asked.count("tools/call")) == (2, 2)
    with faulty((404, "text/plain", ""), (404, "text/plain", "")) as (server, asked):
        [(settlement, text)] = ask(server.tools(), call("wipe"), driver=driver)
        assert (settlement, text) == (
            "failed",
            "MCP server 'old': The server has forgotten the session. Nothing was run.",
        )


def test_what_is_no_text_is_noted(shared: list[MCPTool]) -> None:
    blocks = [
        {"type": "text", "text": "Look:"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "Grüße"}},
        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAA="}},
        {"type": "resource_link", "uri": "file:///b", "name": "b"},
    ]
    result = mcp_types.CallToolResult.model_validate({"content": blocks, "structuredContent": {"n": [1]}})
    assert text_of(result).splitlines() == [
        "Look:",
        '{"type":"audio","mime_type":"audio/wav","bytes":3}',
        '{"type":"resource","uri":"file:///a.txt","mime_type":"text/plain","text":"Grüße"}',
        '{"type":"resource","uri":"file:///a.bin","bytes":2}',
        '{"type":"resource_link","uri":"file:///b","name":"b"}',
        '{"n":[1]}',
    ]


@pytest.mark.parametrize(
    ("text", "structured", "whole"),
    [
        ('{ "n": 1 }', {"n": 1}, '{ "n": 1 }'),
        ("5", {"result": 5}, "5"),
        ("five", {"result": "five"}, "five"),
        ("five", {"result": "six"}, 'five\n{"result":"six"}'),
        ("line 1\nline 2", {"content": "line 1\nline 2"}, "line 1\nline 2"),
        ("one", {"content": "one", "more": True}, 'one\n{"content":"one","more":true}'),
        ("5", {"count": 5}, '5\n{"count":5}'),
        ("see below", {"n": 1}, 'see below\n{"n":1}'),
        ("[" * 5000, {"n": 1}, "[" * 5000 + '\n{"n":1}'),
    ],
)
def test_what_a_server_says_twice_is_told_once(text: str, structured: Any, whole: str) -> None:
    content = [{"type": "text", "text": text}]
    result = mcp_types.CallToolResult.model_validate({"content": content, "structuredContent": structured})
    assert text_of(result) == whole


LEGACY = """
import json, sys
schema = {"type": "object"}
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, id = asked["method"], asked.get("id")
    if method == "initialize":
        about = {"name": "old", "version": "1"}
        send(id=id, result={"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": about})
    elif method == "tools/list":
        cursor = (asked.get("params") or {}).get("cursor")
        tool = {"name": "two" if cursor else "one", "inputSchema": schema}
        send(id=id, result={"tools": [tool]} if cursor else {"tools": [tool], "nextCursor": "more"})
    elif method == "tools/call":
        name = asked["params"]["name"]
        if name == "one":
            print("this is no message", flush=True)
            send(method="notifications/message", params={"level": "info", "data": "s3cret"})
            send(id=99, method="sampling/createMessage", params={"messages": [], "maxTokens": 5})
            said = json.loads(sys.stdin.readline())["error"]["message"]
            schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
            send(method="notifications/tools/list_changed")
            send(id=id, result={"content": [{"type": "text", "text": said}]})
        else:
            send(id=id, result={"content": [{"type": "text", "text": "ran all the same"}]})
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "what?"})
"""
"""A server of the first days, written by hand: two pages of tools, and it talks out of turn."""


def test_an_old_server_that_talks_out_of_turn(driver: Driver) -> None:
    """It wants a model, which it is not given, and changes its tools in the middle of a session, which is noticed."""
    with MCPServer("old", command=[sys.executable, "-c", LEGACY], requires_approval=False) as server:
        tools = server.tools()
        assert [tool.name for tool in tools] == ["one", "two"]
        model = ScriptedModel([call("one"), call("two"), "bye"])
        result = driver.invoke(Agent(model=model, tools=tools), "go")
        assert told(result) == [
            ("completed", "Sampling not supported"),
            (
                "failed",
                "The server has changed the parameters of this tool since it was listed, so nothing was run.",
            ),
        ]


LISTS = """
import json, sys
answers = json.loads(sys.argv[1])
for line in sys.stdin:
    asked = json.loads(line)
    method, id = asked["method"], asked.get("id")
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
    answer = {"error": {"code": -32601, "message": "what?"}}
    if method == "initialize":
        answer = {"result": about}
    elif method == "tools/list":
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
    if answer == "exit":
        sys.exit()
    if id is not None and answer != "hang":
        print(json.dumps({"jsonrpc": "2.0", "id": id, **answer}), flush=True)
"""
"""A server that answers as it is told to when it is asked for its tools."""

ONE = {"name": "one", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([{"result": {"tools": [ONE, ONE]}}], "lists two tools named 'one'"),
        ([{"result": {"tools": [], "nextCursor": "more"}}], "lists tools without an end"),
        ([{"result": {"tools": 5}}], "does not speak the protocol as it should (ValidationError)"),
        ([{"error": {"code": -32603, "message": "not for sesame-open-wide"}}], "error -32603: not for [redacted]"),
        (["exit"], "closed the connection; give errlog=sys.stderr to see what it writes to its standard error"),
        (["hang"], "did not answer within 1 s; give errlog"),
    ],
)
@pytest.mark.parametrize("at", ["first", "again"])
def test_a_list_of_tools_that_cannot_be_had_is_an_error_that_says_why(answers: list[Any], said: str, at: str) -> None:
    answers = answers if at == "first" else [{"result": {"tools": [ONE]}}, *answers]
    command = [sys.executable, "-c", LISTS, json.dumps(answers)]
    server = MCPServer("old", command=command, env={"T": TOKEN}, connect_timeout=1 if "hang" in answers else 30)
    with pytest.raises(MCPError) as caught:
        server.tools()
    assert str(caught.value).startswith("the MCP server 'old' ")
    assert said.partition("; give")[0] in str(caught.value)
    server.close()


PAGES = """
import json, sys
pages, size = int(sys.argv[1]), int(sys.argv[2])
for line in sys.stdin:
    asked = json.loads(line)
    method, id = asked["method"], asked.get("id")
    answer = {"error": {"code": -32601, "message": "what?"}}
    if method == "initialize":
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "pages", "version": "1"}}
        answer = {"result": about}
    elif method == "tools/list":
        page = int((asked.get("params") or {}).get("cursor") or 0)
        tools = [{"name": f"tool-{page}-{n}", "inputSchema": {"type": "object"}} for n in range(size)]
        more = {"nextCursor": str(page + 1)} if page + 1 < pages else {}
        answer = {"result": {"tools": tools, **more}}
    if id is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": id, **answer}), flush=True)
"""
"""A server that lists so many tools on each of so many pages."""


def test_tools_on_many_pages_are_all_offered_in_their_order() -> None:
    with MCPServer("pages", command=[sys.executable, "-S", "-E", "-c", PAGES, "7", "3"]) as server:
        expected = [f"tool-{page}-{number}" for page in range(7) for number in range(3)]
        assert [tool.remote_name for tool in server.tools()] == expected


@pytest.mark.parametrize(("pages", "size"), [(10**9, 0), (10**9, 1), (10**9, 900), (1, 10_001)])
def test_a_server_that_lists_more_than_anybody_has_is_given_up(pages: int, size: int) -> None:
    server = MCPServer("pages", command=[sys.executable, "-S", "-E", "-c", PAGES, str(pages), str(size)])
    with pytest.raises(MCPError, match="lists tools without an end"):
        server.connect()
    server.close()


# The connection


def test_a_server_is_a_context_manager_and_leaves_no_process_behind(place: Place) -> None:
    with place.server() as server:
        tools = server.tools()
        started = psutil.Process(place.pid())
        assert server.connected and started.is_running()
    assert not server.connected
    assert not psutil.pid_exists(started.pid)
    with pytest.raises(MCPError, match="the MCP server 'desk' is closed; connect\\(\\) it again"):
        server.tools()
    agent = Agent(model=ScriptedModel.by_turn([REFUND, "bye"]), tools=tools)
    waiting = agent.invoke("go").checkpoint
    [(settlement, text)] = told(agent.resume(waiting, approved=True))
    assert (settlement, text) == (
        "failed",
        "the MCP server 'desk' is closed; connect() it again. Nothing was run.",
    )
    server.connect()
    assert told(agent.resume(agent.invoke("go").checkpoint, approved=True))[0][0] == "completed"
    assert [each["tool"] for each in place.did()] == ["refund"]


def test_a_server_is_an_async_context_manager_that_does_not_hold_up_the_loop(either: Place) -> None:
    async def main() -> Result[Any]:
        async with either.server(requires_approval=False) as server:
            agent = Agent(model=ScriptedModel([REFUND, "bye"]), tools=await server.atools())
            result = await agent.ainvoke("go")
        assert not server.connected
        return result

    assert told(asyncio.run(main())) == [("completed", "10.0 euros for order 1042")]


def test_a_program_that_forgets_to_close_its_server_ends_and_takes_it_along(place: Place) -> None:
    program = (
        "import sys\nfrom phronomy import MCPServer\n"
        f"print([tool.name for tool in MCPServer('desk', command={place.command!r}, tools=['echo']).tools()])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['echo']\n", "")
    until(lambda: not psutil.pid_exists(place.pid()))


def test_what_a_started_server_writes_to_its_standard_error_goes_where_it_is_told_to(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "import sys; sys.exit('I cannot start')"]
    with pytest.raises(MCPError, match=r"closed the connection; give errlog=sys\.stderr"):
        MCPServer("desk", command=program).connect()
    with (tmp_path / "errors").open("w") as errlog, pytest.raises(MCPError):
        MCPServer("desk", command=program, errlog=errlog).connect()
    assert (tmp_path / "errors").read_text() == "I cannot start\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs a command to start or a url to reach"),
        ({"command": ["x"], "url": "http://h"}, "needs a command to start or a url to reach"),
        ({"command": "npx server"}, "command is a list of texts"),
        ({"command": []}, "command is a list of texts"),
        ({"url": "ftp://h/x"}, "url begins with http"),
        ({"url": "http://h", "env": {}}, "env is for servers that are started"),
        ({"command": ["x"], "headers": {}}, "headers is for servers that are reached"),
        ({"command": ["x"], "env": {"A": 1}}, "env maps texts to texts"),
        ({"command": ["x"], "requires_approval": None}, "requires_approval is exactly True"),
        ({"command": ["x"], "requires_approval": {"a": 1}}, "requires_approval is exactly True"),
        ({"command": ["x"], "timeout": 0}, "timeout is a number of seconds above 0"),
        ({"command": ["x"], "connect_timeout": None}, "connect_timeout is a number of seconds above 0"),
        ({"command": ["x"], "tools": "echo"}, "tools is a list of names"),
        ({"command": ["x"], "prefix": 5}, "prefix is a text"),
        ({"command": ["x"], "redact": ["a"]}, "redact maps names of tools"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        MCPServer("desk", **options)


def test_the_package_is_loaded_for_a_server_alone_and_its_absence_says_what_to_install() -> None:
    program = (
        "import sys, phronomy, phronomy.mcp.server\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] in ('mcp', 'anyio', 'httpx2')]\n"
        "sys.modules['mcp'] = None\n"
        "from phronomy import *\n"
        "try:\n    MCPServer('desk', command=['x'], env={'A': 'hunter2'})\n"
        "except ConfigurationError as error:\n    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert said == "MCP server 'desk' needs the mcp package: pip install 'phronomy[mcp]'\n"


def test_a_child_that_was_forked_reaches_the_server_for_itself(place: Place) -> None:
    """The thread that owns the session is not there in the child, and a call must not wait for it for ever."""
    server = place.server(requires_approval=False)
    tools = server.tools()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writer, json.dumps(ask(tools, call("echo", {"text": "from the child"}))).encode())
            server.close()
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as said:
        assert json.loads(said.read()) == [["completed", "from the child"]]
    assert os.waitpid(child, 0)[1] == 0
    assert ask(tools, call("echo", {"text": "from the parent"})) == [("completed", "from the parent")]
    assert len(place.did("started")) == 2


def test_ctrl_c_as_soon_as_a_call_is_on_its_way_stops_it_at_the_server(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may have the request before the caller has anything in hand to cancel it by."""
    agent = place.agent(call("hang"), requires_approval=False)
    submit = asyncio.run_coroutine_threadsafe

    def interrupted(*work: Any) -> Any:
        submit(*work)
        until(lambda: place.did("hang"))
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.invoke("go")
    until(lambda: place.did("cancelled"))


def test_ctrl_c_in_the_middle_of_a_call_stops_it_at_the_server(place: Place) -> None:
    agent = place.agent(call("hang"), requires_approval=False)

    def strike() -> None:
        until(lambda: place.did("hang"))
        os.kill(os.getpid(), signal.SIGINT)

    with meanwhile(strike), pytest.raises(KeyboardInterrupt):
        agent.invoke("go")
    until(lambda: place.did("cancelled"))


# Results that are the answer


class Goods(BaseModel):
    id: int
    goods: list[str]


def test_the_result_of_a_tool_that_the_server_option_names_is_the_answer(place: Place) -> None:
    options: dict[str, Any] = {"requires_approval": False, "return_direct": ["look_up"]}
    tools = place.server(**options).tools()
    assert [tool.name for tool in tools if tool.return_direct] == ["look_up"]
    for output_type in (Goods, None):
        model = ScriptedModel([call("look_up", {"order_id": 7})])
        result = Agent(name="clerk", model=model, tools=tools, output_type=output_type).invoke("go")
        read = result.output if output_type else Goods.model_validate_json(result.messages[2].text)
        assert read == Goods(id=7, goods=["Kännchen", "茶"])
    with pytest.raises(ConfigurationError, match="return_direct names 'lookup'"):
        place.server(return_direct=["lookup"]).tools()


def test_a_call_that_failed_on_the_server_is_told_to_the_model(place: Place) -> None:
    server = place.server(requires_approval=False, return_direct=["refund"])
    agent = place.agent(call("refund", {"order_id": "seven"}), server=server)
    assert agent.invoke("go").output == "bye"


def test_a_body_calls_a_tool_of_a_server_through_its_gate(driver: Driver, place: Place) -> None:
    tools = place.server().tools()

    @tool(calls=tools)
    def handle(context: ToolContext[Any]) -> str:
        """Handle an order."""
        return f"told: {context.call_tool('refund', {'order_id': 7})}"

    agent = Agent(name="clerk", model=ScriptedModel([call("handle"), "bye"]), tools=[handle])
    asked = driver.invoke(agent, "go").checkpoint
    assert ([item.tool.source for item in asked.pending], place.did()) == (["mcp:desk"], [])
    result = driver.resume(agent, asked, approved=True)
    assert (result.output, len(place.did("refund")), result.messages[2].text[:6]) == ("bye", 1, "told: ")

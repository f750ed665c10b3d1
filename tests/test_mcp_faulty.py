"""Servers that do not keep to the protocol: noise, lines without an end, tools and results that are none, and silence.

Each costs itself alone: the run goes on, or a human is asked. None is waited for for ever.
"""

from __future__ import annotations

import dataclasses
import http.server
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import raw_mcp
from drivers import DRIVERS, Driver
from loopback import loopback
from raw_mcp import plain, text
from tables import each

from phronomy import Agent, ConfigurationError, MCPError, MCPServer, ToolDefinitionError
from phronomy.mcp.mending import MOST_ENTRIES, readable, usable
from phronomy.testing import ScriptedModel, call

F = plain("f")
OK = text("ok")


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    driver: Driver = request.param
    return driver


def server(said: list[Any] | None = None, **options: Any) -> MCPServer:
    """A server with the tool `f`, that answers its calls so."""
    script = {name: options.pop(name) for name in ("first", "listing") if name in options}
    tools = options.pop("listed", [F])
    command = raw_mcp.command(tools=tools, said={} if said is None else {"f": said}, **script)
    return MCPServer("s", command=command, **{"requires_approval": False, **options})


def called(driver: Driver, asked: MCPServer) -> tuple[str | None, Any]:
    """How one call of `f` ends: how it is settled and what the model reads, or why a human is asked."""
    with asked:
        agent = Agent(model=ScriptedModel.by_turn([call("f"), "Done."]), tools=asked.tools())
        result = driver.invoke(agent, "go")
    for item in result.checkpoint.pending:
        return item.why, item.reason
    [message] = [message for message in result.messages if message.role == "tool"]
    return message.settlement, message.content


# Noise


@each(
    ("where", "noise", "read"),
    [
        ("said", "trait\xe9\n", "ok"),
        ("said", "\xef\xbb\xbf", "ok"),
        ("said", "\xff\xfe\x00\x80\n\n\r\n", "ok"),
        ("first", "C:\\Donn\xe9es\n", "ok"),
        ("first", "\xef\xbb\xbf", "ok"),
        ("listing", "\x81\x40\n", "ok"),
    ],
)
def test_bytes_that_are_no_text_are_skipped(where: str, noise: str, read: str) -> None:
    asked = server([noise, OK]) if where == "said" else server([OK], **{where: noise})
    assert called(DRIVERS[0], asked) == ("completed", read)


def test_a_result_in_another_encoding_is_read_as_far_as_it_can_be(tmp_path: Any) -> None:
    line = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"caf\xe9"}]}}\n'
    command = raw_mcp.command(tools=[F], said={"f": [{"line": line}]})
    asked = MCPServer("s", command=command, requires_approval=False)
    assert called(DRIVERS[0], asked) == ("completed", "caf\ufffd")


# Too much


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_that_is_too_long_ends_the_call_and_a_human_is_asked(driver: Driver, end: str) -> None:
    asked = server([{"repeat": ["x" * 1000, 40]}, end, OK], max_message_size=20_000)
    why, reason = called(driver, asked)
    assert why == "outcome_unknown"
    assert "The server sent a line of more than 20,000 bytes. It may have taken effect." in reason


def test_a_long_line_within_the_bound_is_read() -> None:
    begin, end = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"', '"}]}}\n'
    assert called(DRIVERS[0], server([{"line": begin}, {"repeat": ["x" * 1000, 9_000]}, end]))[0] == "completed"


def test_a_list_of_tools_that_is_too_long_says_so() -> None:
    asked = server(listed=[plain("f", x={"description": "x" * 5000})], max_message_size=4_000)
    with pytest.raises(MCPError, match=r"the MCP server 's' sent a line of more than 4,000 bytes"):
        asked.connect()


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "1", None])
def test_a_bound_is_a_number_of_bytes(size: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_message_size is a number of bytes above 0"):
        server(max_message_size=size)


class Long(http.server.BaseHTTPRequestHandler):
    """A server over HTTP with long answers: in one piece, as an event, or compressed."""

    protocol_version = "HTTP/1.1"
    how: str

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, id = message["method"], message.get("id")
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "long", "version": "1"}}
        results: dict[str, Any] = {"initialize": about, "tools/list": {"tools": [F]}, "tools/call": text("x" * 50_000)}
        if method not in results:
            self.reply(202 if id is None else 404, "text/plain", b"")
            return
        body = json.dumps({"jsonrpc": "2.0", "id": id, "result": results[method]}).encode()
        how = self.how if method == "tools/call" else "json"
        if how == "event":
            self.reply(200, "text/event-stream", b"event: message\r\ndata: " + body + b"\r\n\r\n")
        else:
            self.reply(200, "application/json", body, **({"content-encoding": "gzip"} if how == "compressed" else {}))

    def do_GET(self) -> None:
        self.reply(405, "text/plain", b"")

    do_DELETE = do_GET

    def reply(self, status: int, kind: str, body: bytes, **more: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(how: str) -> Iterator[str]:
    with loopback(type("Handler", (Long,), {"how": how})) as (_, url):
        yield f"{url}/"


@pytest.mark.parametrize(
    ("how", "size", "why"),
    [
        ("json", 60_000, "completed"),
        ("event", 60_000, "completed"),
        ("json", 40_000, "outcome_unknown"),
        ("event", 40_000, "outcome_unknown"),
        ("compressed", 60_000, "outcome_unknown"),
    ],
)
def test_over_http_each_message_has_the_same_bound(how: str, size: int, why: str) -> None:
    with serving(how) as url:
        asked = MCPServer("s", url=url, requires_approval=False, max_message_size=size)
        assert called(DRIVERS[0], asked)[0] == why


# Silence


def test_a_started_server_that_says_nothing_for_long_counts_as_lost(driver: Driver) -> None:
    asked = server(["50%... "])  # noise without the end of its line, and no answer
    asked._where = dataclasses.replace(asked._where, silence=0.3)
    why, reason = called(driver, asked)
    assert why == "outcome_unknown"
    assert "The server has sent nothing for 0.3 s. It may have taken effect." in reason


# Tools


@each(
    "malformed",
    [
        {"name": "bad", "inputSchema": {"properties": {}}},
        {"name": "bad"},
        {"name": "bad", "inputSchema": None},
        {"name": "bad", "inputSchema": {}},
        {"name": "bad", "inputSchema": {"$ref": "#/$defs/A"}},
        {"name": "bad", "inputSchema": {"type": ["object"]}},
        {"name": "bad", "inputSchema": {"type": "object", "required": "x"}},
        {"name": "bad", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}},
        {"name": "bad", "inputSchema": {"type": "object"}, "description": ["x"]},
    ],
)
def test_a_tool_that_is_none_costs_itself(malformed: Any) -> None:
    mended, [found] = usable("2025-06-18", {"tools": [malformed, F]})
    assert mended["tools"] == [F]
    assert found.name == "bad"
    assert " is not as the protocol has it (" in found.why


def test_a_tool_that_is_none_is_left_out_and_named_and_the_others_work(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [{"name": "bad", "inputSchema": {"properties": {}}}, F, {"inputSchema": {}}]
    with caplog.at_level(logging.ERROR, logger="phronomy"):
        assert called(driver, server([OK], listed=tools)) == ("completed", "ok")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "tool 'bad' of MCP server 's' cannot be used, and is left out",
        "tool 'number 3' of MCP server 's' cannot be used, and is left out",
    ]
    assert "inputSchema.type is not as the protocol has it (missing)" in caplog.records[0].getMessage()


@each(
    ("options", "names"),
    [
        ({"exclude": ["bad", "twice"]}, ["f"]),
        ({"tools": ["f"]}, ["f"]),
        ({"exclude": ["bad", "twice"], "requires_approval": {"bad": True}}, ["f"]),
    ],
)
def test_tools_that_nobody_asks_for_are_not_told_of(
    caplog: pytest.LogCaptureFixture, options: dict[str, Any], names: list[str]
) -> None:
    tools = [{"name": "bad", "inputSchema": {}}, plain("twice"), plain("twice"), F]
    with server(listed=tools, **options) as asked:
        assert [tool.name for tool in asked.tools()] == names
    assert caplog.records == []


def test_a_tool_that_is_asked_for_by_name_is_an_error() -> None:
    tools = [{"name": "bad", "inputSchema": {}}, plain("twice"), plain("twice")]
    with server(listed=tools) as asked:
        for name, error in (("bad", ToolDefinitionError), ("twice", MCPError)):
            asked._tools = frozenset([name])
            with pytest.raises(error, match=f"'{name}'"):
                asked.tools()


def test_a_list_whose_fault_is_elsewhere_is_left_as_it_is() -> None:
    for result in ({"tools": 5}, {"tools": [F], "nextCursor": 5}, {"tools": [5], "nextCursor": 5}, {}):
        assert usable("2025-06-18", result) == (result, [])
    assert usable("1999-01-01", {"tools": [5]}) == ({"tools": [5]}, [])


# Results


@each(
    ("result", "texts"),
    [
        ({"content": [{"type": "video", "url": "x"}, text("hi")["content"][0]]}, ['{"type":"video"}', "hi"]),
        ({"content": [{"type": "text", "text": "hi", "annotations": {"priority": 9}}]}, ["hi"]),
        ({"content": [{"type": "image", "data": "aGk="}, {"text": "hi"}]}, ['{"type":"image"}', '{"type":"unknown"}']),
        ({"content": ["hi", 5]}, ['{"type":"unknown"}', '{"type":"unknown"}']),
        ({"content": [], "structuredContent": [1, 2]}, ["[1,2]"]),
        ({"structuredContent": {"n": 1}}, []),
        ({"content": None}, []),
        ({}, []),
    ],
)
def test_of_a_result_stays_what_can_be_read(result: Any, texts: list[str]) -> None:
    assert [block["text"] for block in readable("2025-06-18", result)["content"]] == texts


def test_a_result_that_is_none_is_left_as_it_is() -> None:
    for result in ({"content": 5}, {"content": [], "isError": "no"}):
        assert readable("2025-06-18", result) == result


@each("version", ["2025-11-25", "2026-07-28"])
@each(
    "answer",
    [
        {"resultType": "input_required", "inputRequests": {"a": 5}},
        {"resultType": "input_required"},
        {"resultType": "later"},
        {"resultType": 5},
        {"task": {"taskId": "t", "status": "working"}},
    ],
)
def test_an_answer_of_another_kind_is_no_empty_result(version: str, answer: Any) -> None:
    assert readable(version, answer) == answer


def test_an_answer_of_another_kind_is_no_success(driver: Driver) -> None:
    end, told = called(driver, server([{"resultType": "input_required", "inputRequests": {"a": 5}}]))
    assert end == "failed"
    assert told.startswith("The tool ran, but its result is not what its server says that it is")


def test_a_list_without_an_end_is_refused_at_once() -> None:
    """To look for what is wrong with each of them takes 0.2 ms, and five kilobytes."""
    many = [5] * 1_000_000
    mended, malformed = usable("2025-06-18", {"tools": many})
    assert (mended, len(malformed)) == ({"tools": []}, MOST_ENTRIES + 1)
    assert readable("2025-06-18", {"content": many}) == {"content": None}


def test_a_server_with_more_broken_tools_than_anybody_has_is_given_up() -> None:
    with pytest.raises(MCPError, match="lists tools without an end"):
        server(listed=[5] * (MOST_ENTRIES + 1)).connect()


PICTURE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
SOUND = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "file:///log", "name": "log"}
SILENT = "The tool failed, and its server does not say why."


@each(
    ("result", "read"),
    [
        ({"content": []}, SILENT),
        ({}, SILENT),
        (text(""), SILENT),
        (text(" \n"), SILENT),
        ({"content": [PICTURE]}, SILENT + '\n{"type":"image","mime_type":"image/png","bytes":2}'),
        ({"content": [SOUND]}, SILENT + '\n{"type":"audio","mime_type":"audio/wav","bytes":2}'),
        ({"content": [LINK]}, SILENT + '\n{"type":"resource_link","uri":"file:///log","name":"log"}'),
        ({"content": [], "structuredContent": {"code": 7}}, SILENT + '\n{"code":7}'),
        (text("no"), "no"),
    ],
)
def test_a_failure_without_words_is_told_as_a_failure(result: Any, read: str) -> None:
    assert called(DRIVERS[0], server([{**result, "isError": True}])) == ("failed", read)


def test_a_success_without_words_is_empty(driver: Driver) -> None:
    assert called(driver, server([{"content": []}])) == ("completed", "")

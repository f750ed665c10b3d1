"""Streamed calls of odd endpoints: each fragment reaches its own call, or the reply is refused."""

from __future__ import annotations

from typing import Any

import pytest
from tables import each

from phronomy import Agent, LiteLLMModel, MemoryStore, ModelError, tool
from phronomy.models import ChatCompletionsModel
from phronomy.models.formats.chat_completion_chunks import Assembler
from phronomy.models.formats.response_events import ResponseAssembler
from phronomy.testing import ChatServer, Fault

TOOLS = ("note", "read", "delete", "get", "get_all", "all", "getall")
A, B = '{"text":"a"}', '{"text":"b"}'


def piece(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    """A fragment of a call, with what is not None."""
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    given = {"index": index, "id": id, "function": function or None}
    return {key: value for key, value in given.items() if value is not None}


def chunk(*calls: dict[str, Any], finish: str | None = None, **delta: Any) -> dict[str, Any]:
    told = {**delta, **({"tool_calls": [*calls]} if calls else {})}
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": told, "finish_reason": finish}]}


def read(*chunks: dict[str, Any]) -> list[tuple[str, str]]:
    """The names and arguments of the calls in a stream of these chunks."""
    assembler = Assembler(TOOLS)
    for one in (*chunks, chunk(finish="tool_calls")):
        list(assembler.add(one))
    return [(call.name, call.arguments) for call in assembler.reply().message.tool_calls]


READABLE: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
    "as the protocol has it": (
        [chunk(piece(0, "x", "note", "")), chunk(piece(0, arguments='{"text"')), chunk(piece(0, arguments=':"a"}'))],
        [("note", A)],
    ),
    "interleaved": (
        [
            chunk(piece(0, "x", "note", ""), piece(1, "y", "read", "")),
            chunk(piece(1, arguments=B)),
            chunk(piece(0, arguments=A)),
        ],
        [("note", A), ("read", B)],
    ),
    "one index and two ids": (
        [chunk(piece(0, "x", "note", A)), chunk(piece(0, "y", "note", B))],
        [("note", A), ("note", B)],
    ),
    "one id and two indexes": (
        [chunk(piece(0, "x", "note", A)), chunk(piece(1, "x", "read", B))],
        [("note", A), ("read", B)],
    ),
    "no index": (
        [chunk(piece(None, "x", "note", A)), chunk(piece(None, "y", "read", ""))],
        [("note", A), ("read", "")],
    ),
    "the arguments first": ([chunk(piece(0, "x", arguments=A)), chunk(piece(0, "x", "note"))], [("note", A)]),
    "the name repeated": (
        [
            chunk(piece(0, "x", "note", "")),
            chunk(piece(0, "x", "note", '{"text":')),
            chunk(piece(0, None, "note", '"a"}')),
        ],
        [("note", A)],
    ),
    "the name grows": ([chunk(piece(0, "x", "no", "")), chunk(piece(0, "x", "note", A))], [("note", A)]),
    "the name in pieces": ([chunk(piece(0, "x", "no")), chunk(piece(0, None, "te", A))], [("note", A)]),
    "the name in pieces, without an id": ([chunk(piece(0, None, "no")), chunk(piece(0, None, "te", A))], [("note", A)]),
    "the name in three pieces": (
        [chunk(piece(0, "x", "g")), chunk(piece(0, None, "e")), chunk(piece(0, None, "t_all", "{}"))],
        [("get_all", "{}")],
    ),
    "a tool whose name goes on": ([chunk(piece(0, "x", "get")), chunk(piece(0, None, "_all", A))], [("get_all", A)]),
    "an id per chunk": ([chunk(piece(0, "x1", "note")), chunk(piece(0, "x2", arguments=A))], [("note", A)]),
    "an id per chunk, two calls": (
        [
            chunk(piece(0, "x1", "note")),
            chunk(piece(0, "x2", arguments=A)),
            chunk(piece(0, "x3", "read")),
            chunk(piece(0, "x4", arguments=B)),
        ],
        [("note", A), ("read", B)],
    ),
    "an id per chunk and no index": (
        [chunk(piece(None, "x1", "note")), chunk(piece(None, "x2", arguments=A))],
        [("note", A)],
    ),
    "one index, no ids": (
        [chunk(piece(0, None, "note", A)), chunk(piece(0, None, "note", B))],
        [("note", A), ("note", B)],
    ),
    "one index, no ids, and names before arguments": (
        [
            chunk(piece(0, None, "note", "")),
            chunk(piece(0, arguments=A)),
            chunk(piece(0, None, "note", "")),
            chunk(piece(0, arguments=B)),
        ],
        [("note", A), ("note", B)],
    ),
    "no index, no ids": (
        [chunk(piece(None, None, "note", A), piece(None, None, "note", B))],
        [("note", A), ("note", B)],
    ),
    "no index, an id each, no arguments": (
        [chunk(piece(None, "x", "note", "")), chunk(piece(None, "y", "note", ""))],
        [("note", ""), ("note", "")],
    ),
    "two indexes, an id each, arguments for the second": (
        [chunk(piece(0, "x", "note", "")), chunk(piece(1, "y", "note", A))],
        [("note", ""), ("note", A)],
    ),
    "no index, no ids, no arguments": (
        [chunk(piece(None, None, "note", ""), piece(None, None, "note", ""))],
        [("note", ""), ("note", "")],
    ),
    "another name at the same index": (
        [chunk(piece(0, None, "read", A)), chunk(piece(0, None, "delete", ""))],
        [("read", A), ("delete", "")],
    ),
    "the first without arguments": (
        [chunk(piece(0, None, "delete", "")), chunk(piece(0, None, "read", A))],
        [("delete", ""), ("read", A)],
    ),
    "another name without an index": (
        [chunk(piece(None, None, "read", A)), chunk(piece(None, None, "delete", ""))],
        [("read", A), ("delete", "")],
    ),
    "an id for the first alone": (
        [chunk(piece(0, "x", "read", A)), chunk(piece(0, None, "delete", ""))],
        [("read", A), ("delete", "")],
    ),
    "an id for the second alone": (
        [chunk(piece(0, None, "read", A)), chunk(piece(0, "y", "delete", ""))],
        [("read", A), ("delete", "")],
    ),
    "an odd index": (
        [chunk({**piece(None, "x", "note"), "index": "0"}), chunk(piece(None, "x", arguments=A))],
        [("note", A)],
    ),
    "arguments as an object": (
        [chunk(piece(0, None, "note", {"text": "a"})), chunk(piece(0, None, "note", {"text": "b"}))],
        [("note", A), ("note", B)],
    ),
    "a name of no tool": (
        [chunk(piece(0, None, "fly", A)), chunk(piece(0, None, "delete", ""))],
        [("fly", A), ("delete", "")],
    ),
}


@each("name", READABLE)
def test_each_fragment_reaches_its_own_call(name: str) -> None:
    chunks, calls = READABLE[name]
    assert read(*chunks) == calls


REFUSED: dict[str, list[dict[str, Any]]] = {
    "one name twice, without arguments and ids": [chunk(piece(0, None, "note", "")), chunk(piece(0, None, "note", A))],
    "the name again after all arguments": [chunk(piece(0, None, "note", A)), chunk(piece(0, None, "note", ""))],
    "the name again after all arguments, without the id": [
        chunk(piece(0, "x", "note", "{}")),
        chunk(piece(0, None, "note")),
    ],
    "one name twice, an id each, and an index without arguments": [
        chunk(piece(0, "x", "note", "")),
        chunk(piece(0, "y", "note", "")),
    ],
    "one name twice, an id each, and arguments for the second": [
        chunk(piece(0, "x", "note")),
        chunk(piece(0, "y", "note", A)),
    ],
    "one name twice, an id each, no index, and arguments for the second": [
        chunk(piece(None, "x", "note", "")),
        chunk(piece(None, "y", "note", A)),
    ],
    "the name again within arguments that are not whole in the end": [
        chunk(piece(0, None, "note", '{"te')),
        chunk(piece(0, None, "note", "")),
        chunk(piece(0, None, arguments=A)),
    ],
    "the name again after the arguments of two calls": [
        chunk(piece(0, None, "read", A)),
        chunk(piece(0, None, arguments=B)),
        chunk(piece(0, None, "read", A)),
    ],
    "one id and two tools": [chunk(piece(0, "x", "read", A)), chunk(piece(0, "x", "delete", ""))],
    "a tool whose name begins another": [chunk(piece(0, None, "get", "")), chunk(piece(0, None, "get_all", ""))],
    "two tools that are one together": [chunk(piece(0, None, "get", "")), chunk(piece(0, None, "all", ""))],
    "the index of one and the id of another": [
        chunk(piece(0, "x", "read", ""), piece(1, "y", "delete", "")),
        chunk(piece(0, "y", arguments=A)),
    ],
    "arguments of another id before a name": [
        chunk(piece(0, "x", "read", "")),
        chunk(piece(0, "y", arguments=A)),
        chunk(piece(0, None, "delete")),
    ],
    "arguments twice as an object": [
        chunk(piece(0, "x", "note", {"text": "a"})),
        chunk(piece(0, "x", arguments={"b": 1})),
    ],
    "a call without a name": [chunk(piece(0, "x", "read", A)), chunk(piece(1, "y", arguments=B))],
    "a function that is none": [chunk({"index": 0, "id": "x", "function": "read"})],
    "calls that are no list": [chunk(tool_calls={"index": 0})],
    "a call that is none": [chunk(tool_calls=["read"])],
    "a delta that is none": [{"choices": [{"index": 0, "delta": "read"}]}],
    "a choice that is none": [{"choices": ["read"]}],
    "a choice without a number": [{"choices": [{"index": True, "delta": {}, "finish_reason": "length"}]}],
}


@each("name", REFUSED)
def test_a_reply_that_can_be_read_in_two_ways_is_refused(name: str) -> None:
    with pytest.raises(ModelError):
        read(*REFUSED[name])


@pytest.mark.parametrize("kind", [ChatCompletionsModel, LiteLLMModel])
@pytest.mark.parametrize("index", [None, 0])
def test_no_tool_runs_with_the_arguments_of_another(kind: Any, index: int | None) -> None:
    done = []

    @tool(name="read")
    def look(path: str) -> str:
        """Read a file."""
        done.append(("read", path))
        return "read"

    @tool
    def delete(path: str = "/data/cache") -> str:
        """Delete a file."""
        done.append(("delete", path))
        return "deleted"

    chunks = [chunk(piece(index, None, "read", '{"path": "/etc/passwd"}')), chunk(piece(index, None, "delete", ""))]
    with ChatServer([Fault.stream(*chunks, chunk(finish="tool_calls"), "[DONE]"), "Done."]) as server:
        model = kind("openai/gpt-4o-mini", base_url=server.base_url, api_key="k", max_attempts=1)
        with Agent(name="a", model=model, tools=[look, delete], store=MemoryStore()).stream("Go") as stream:
            list(stream)
        answered = [message["role"] for message in server.requests[1]["messages"]]
    assert sorted(done) == [("delete", "/data/cache"), ("read", "/etc/passwd")]
    assert answered == ["user", "assistant", "tool", "tool"]


@each("role", ["", None, "assistant"])
def test_a_role_that_is_not_said_is_the_assistant_s(role: str | None) -> None:
    message = {"role": role, "content": "Hello"}
    whole = Fault(status=200, body={"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    streamed = Fault.stream(chunk(**message), chunk(finish="stop"), "[DONE]")
    for kind in (ChatCompletionsModel, LiteLLMModel):
        with ChatServer([whole, streamed]) as server:
            model = kind("openai/gpt-4o-mini", base_url=server.base_url, api_key="k", max_attempts=1)
            agent = Agent(name="a", model=model, store=MemoryStore())
            assert agent.invoke("Go").output == "Hello"
            with agent.stream("Go") as stream:
                list(stream)
            assert stream.result.output == "Hello"


# The events of the Responses API


def item(place: int | None, event: str, **said: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{event}", **({} if place is None else {"output_index": place}), "item": said}


def function(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"f_{id}", "type": "function_call", "call_id": id, "name": name, "arguments": arguments}


END = {"type": "response.completed", "response": {"status": "completed", "output": []}}
READ, WIPE = function("c1", "read", A), function("c2", "delete", "")
"""The items of two calls."""


@each(
    "events",
    [
        [item(0, "done", **READ), item(1, "done", **WIPE), END],
        [item(1, "done", **WIPE), item(0, "done", **READ), END],
        [item(0, "done", **READ), item(0, "done", **WIPE), END],
        [item(None, "done", **READ), item(None, "done", **WIPE), END],
        [item(0, "done", **READ), item(0, "done", **READ), item(0, "done", **WIPE), END],
        [item(0, "added", **READ), item(0, "done", **READ), item(0, "added", **WIPE), item(0, "done", **WIPE), END],
    ],
)
def test_no_item_of_a_response_takes_the_place_of_another(events: list[dict[str, Any]]) -> None:

    assembler = ResponseAssembler()
    for event in events:
        list(assembler.add(event))
    found = [(call.name, call.arguments) for call in assembler.reply().message.tool_calls]
    assert found == [("read", A), ("delete", "")]


@each(
    "events",
    [
        [item(0, "added", **READ), END],
        [item(0, "done", **READ), {**END, "response": {"status": "completed", "output": [WIPE]}}],
        [item(0, "done", **READ), {**END, "response": {"status": "completed", "output": [{**READ, "arguments": B}]}}],
    ],
)
def test_a_response_that_has_lost_a_call_is_refused(events: list[dict[str, Any]]) -> None:

    assembler = ResponseAssembler()
    for event in events:
        list(assembler.add(event))
    with pytest.raises(ModelError, match="the same calls"):
        assembler.reply()

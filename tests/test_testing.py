"""What phronomy ships for tests: the scripted model, the check of a history, and the loopback provider."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from drivers import PATIENCE

import phronomy.testing
from phronomy.errors import ConfigurationError, ModelConnectionError, ModelError
from phronomy.models import (
    Delta,
    Model,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    StreamingModel,
    TextDelta,
    ToolCallDelta,
)
from phronomy.records.messages import Message, ToolCall, Usage
from phronomy.testing import ChatServer, Fault, ScriptedModel, ScriptExhausted, call, check_history, say

USER = Message(role="user", content="Refund order 1042")


def assistant(*ids: str, content: Any = None) -> Message:
    return Message(
        role="assistant",
        content=content or "",
        tool_calls=tuple(ToolCall(id=one, name="refund", arguments="{}") for one in ids),
    )


def tool(call_id: str) -> Message:
    return Message(role="tool", tool_call_id=call_id, content="done", settlement="completed")


def request(*messages: Message) -> ModelRequest:
    return ModelRequest(messages=messages)


Ask = Callable[[ScriptedModel, ModelRequest], ModelReply]


def ask_sync(model: ScriptedModel, request: ModelRequest) -> ModelReply:
    return model.complete(request)


def ask_async(model: ScriptedModel, request: ModelRequest) -> ModelReply:
    return asyncio.run(model.acomplete(request))


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    chosen: Ask = request.param
    return chosen


def test_every_public_name_of_the_room_is_there() -> None:
    assert sorted(phronomy.testing.__all__) == phronomy.testing.__all__
    for name in phronomy.testing.__all__:
        assert getattr(phronomy.testing, name).__doc__
    with pytest.raises(AttributeError):
        _ = phronomy.testing.Nothing


# ScriptedModel


def test_a_script_is_said_in_order(ask: Ask) -> None:
    ready = Message(role="assistant", content="ready")
    model = ScriptedModel(
        [
            "text",
            call("refund", {"order_id": 1042}),
            [call("a"), call("b", "{not json", id="mine"), call("c", {"ratio": float("nan")})],
            say("both", call("d"), provider={"reasoning_content": "hm"}, usage=Usage(requests=1, input_tokens=3)),
            ready,
            ModelReply(message=ready, finish_reason="length"),
            lambda asked: lambda again: f"{len(asked.messages)} message",
            say(None),
        ]
    )
    assert isinstance(model, Model)
    replies = [ask(model, request(USER)) for _ in range(8)]
    assert [(reply.message.text, reply.finish_reason) for reply in replies] == [
        ("text", "stop"),
        ("", "tool_calls"),
        ("", "tool_calls"),
        ("both", "tool_calls"),
        ("ready", "stop"),
        ("ready", "length"),
        ("1 message", "stop"),
        ("", "stop"),
    ]
    assert replies[1].message.tool_calls == (ToolCall(id="call_1", name="refund", arguments='{"order_id": 1042}'),)
    assert [(one.id, one.arguments) for one in replies[2].message.tool_calls] == [
        ("call_1", "{}"),
        ("mine", "{not json"),
        ("call_2", '{"ratio": NaN}'),
    ]
    assert replies[3].message.provider == {"reasoning_content": "hm"}
    assert replies[3].usage == Usage(requests=1, input_tokens=3)
    assert replies[7].message == Message(role="assistant", content="")
    assert [len(asked.messages) for asked in model.requests] == [1] * 8
    assert repr(model) == "ScriptedModel('scripted', 8 replies)"


def test_given_ids_are_kept_and_free_ones_avoid_those_of_the_history(ask: Ask) -> None:
    model = ScriptedModel([[call("a", id="call_3"), call("b"), call("c")], call("d", id="")])
    history = (USER, assistant("call_1"), tool("call_1"))
    assert [one.id for one in ask(model, request(*history)).message.tool_calls] == ["call_3", "call_2", "call_4"]
    assert ask(model, request(*history)).message.tool_calls[0].id == ""


@pytest.mark.parametrize("fault", [ModelError("down", status_code=503), ModelError("down"), KeyboardInterrupt])
def test_an_exception_in_a_script_is_raised(ask: Ask, fault: Any) -> None:
    with pytest.raises(fault if isinstance(fault, type) else type(fault)):
        ask(ScriptedModel([fault]), request(USER))


def test_an_exhausted_script_says_so(ask: Ask) -> None:
    model = ScriptedModel(["only this"])
    ask(model, request(USER))
    with pytest.raises(ScriptExhausted, match=r"has 1 replies .* after a user message: 'Refund order 1042'"):
        ask(model, request(USER))
    with pytest.raises(ScriptExhausted, match="after an empty history"):
        ask(ScriptedModel([]), request())
    assert len(model.requests) == 2


def test_one_function_may_answer_everything(ask: Ask) -> None:
    model = ScriptedModel(lambda asked: asked.messages[-1].text.upper(), name="shout")
    assert [ask(model, request(USER)).message.text for _ in range(3)] == ["REFUND ORDER 1042"] * 3
    assert (model.name, repr(model)) == ("shout", "ScriptedModel('shout', a function)")


def test_a_function_may_be_async_only_where_the_model_is_asked_so() -> None:
    async def slowly(asked: ModelRequest) -> str:
        await asyncio.sleep(0)
        return "slow"

    model = ScriptedModel(slowly)
    assert ask_async(model, request(USER)).message.text == "slow"
    with pytest.raises(ConfigurationError, match="acomplete"):
        ask_sync(model, request(USER))

    def promised(asked: ModelRequest) -> Any:
        return asyncio.Future(loop=loop)

    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(ConfigurationError, match="acomplete"):
            ask_sync(ScriptedModel(promised), request(USER))
    finally:
        loop.close()


def test_the_async_model_lets_other_tasks_go_on() -> None:
    said: list[str] = []

    async def ask_it(model: ScriptedModel) -> None:
        said.append((await model.acomplete(request(USER))).message.text)

    async def main() -> None:
        task = asyncio.create_task(ask_it(ScriptedModel(["model"])))
        await asyncio.sleep(0)
        said.append("other")
        await task

    asyncio.run(main())
    assert said == ["other", "model"]


def test_by_turn_picks_by_the_history_and_keeps_no_place(ask: Ask) -> None:
    model = ScriptedModel.by_turn([call("refund"), "Done."])
    history = (USER, assistant("call_1"), tool("call_1"))
    done = (*history, assistant(content="Done."))
    for _ in range(2):
        assert ask(model, request(*history)).message.text == "Done."
        assert ask(model, request(USER)).message.tool_calls[0].id == "call_1"
        assert ask(model, request(*done, USER)).message.tool_calls[0].id == "call_2"
    with pytest.raises(ScriptExhausted):
        ask(model, request(*done))
    assert ask(model, request(assistant(content="Hi"))).message.text == "Done."


def test_threads_share_a_script_without_saying_anything_twice() -> None:
    model = ScriptedModel([str(number) for number in range(200)])
    with ThreadPoolExecutor(8) as pool:
        said = [reply.message.text for reply in pool.map(lambda _: model.complete(request(USER)), range(200))]
    assert sorted(said, key=int) == [str(number) for number in range(200)]
    assert len(model.requests) == 200


def test_what_is_no_script_is_refused(ask: Ask) -> None:
    for wrong in ("text", None, 5):
        with pytest.raises(ConfigurationError):
            ScriptedModel(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for odd in (5, None, ["text"], {"role": "assistant"}, dict):
        with pytest.raises(ConfigurationError, match=r"(?s)cannot hold"):
            ask(ScriptedModel([odd]), request(USER))  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


# Streams of a script

Stream = Callable[[ScriptedModel, ModelRequest, list[Delta | ModelReply]], None]


def stream_sync(model: ScriptedModel, request: ModelRequest, into: list[Delta | ModelReply]) -> None:
    for piece in model.stream(request):
        into.append(piece)  # what came before an error counts


def stream_async(model: ScriptedModel, request: ModelRequest, into: list[Delta | ModelReply]) -> None:
    async def main() -> None:
        async for piece in model.astream(request):
            into.append(piece)

    asyncio.run(main())


@pytest.fixture(params=[stream_sync, stream_async], ids=["sync", "async"])
def stream(request: pytest.FixtureRequest) -> Stream:
    chosen: Stream = request.param
    return chosen


def test_a_scripted_stream_comes_in_pieces_and_ends_in_the_reply(stream: Stream) -> None:
    reply = say("Let me look.", call("refund", {"order_id": 1}), call("a"), provider={"reasoning_content": "hm"})
    model = ScriptedModel([reply, reply, "", lambda asked: "Hi"])
    assert isinstance(model, StreamingModel)
    given: list[Delta | ModelReply] = []
    stream(model, request(USER), given)
    assert given == [
        ReasoningDelta(text="hm"),
        TextDelta(text="Let me l"),
        TextDelta(text="ook."),
        ToolCallDelta(index=0, id="call_1", name="refund"),
        ToolCallDelta(index=0, arguments='{"order_'),
        ToolCallDelta(index=0, arguments='id": 1}'),
        ToolCallDelta(index=1, id="call_2", name="a"),
        ToolCallDelta(index=1, arguments="{}"),
        model.complete(request(USER)),
    ]
    given.clear()
    stream(model, request(USER), given)
    assert given == [ModelReply(message=Message(role="assistant", content=""), finish_reason="stop")]
    given.clear()
    stream(model, request(USER), given)
    assert given[0] == TextDelta(text="Hi")
    assert len(model.requests) == 4


def test_a_scripted_stream_may_be_cut(stream: Stream, ask: Ask) -> None:
    model = ScriptedModel([say("Half", cut=ModelConnectionError("cut off"))] * 2)
    given: list[Delta | ModelReply] = []
    with pytest.raises(ModelConnectionError):
        stream(model, request(USER), given)
    assert given == [TextDelta(text="Half")]
    with pytest.raises(ModelConnectionError):
        ask(model, request(USER))


# The check of a history


def test_a_valid_history_passes() -> None:
    check_history([])
    check_history(
        [USER, assistant("a", "b"), tool("b"), tool("a"), assistant("c"), tool("c"), assistant(content="x"), USER]
    )


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([USER, assistant("a")], "ends before the results of the calls 'a'"),
        ([USER, assistant("a", "b"), tool("a"), USER], "message 3 (user) comes before the results of the calls 'b'"),
        ([USER, assistant("a"), assistant("b"), tool("a"), tool("b")], "message 2 (assistant) comes before"),
        ([USER, tool("a")], "message 1 (tool) answers the call 'a'"),
        ([USER, assistant("a"), tool("a"), tool("a")], "message 3 (tool) answers the call 'a'"),
        ([USER, assistant("a"), tool("b")], "message 2 (tool) answers the call 'b'"),
        ([USER, assistant("a", "a"), tool("a"), tool("a")], "message 1 (assistant) makes a call with the id 'a'"),
        (
            [USER, assistant("a"), tool("a"), assistant("a"), tool("a")],
            "message 3 (assistant) makes a call with the id 'a'",
        ),
        ([USER, assistant(""), tool("")], "message 1 (assistant) makes a call with the id ''"),
    ],
)
def test_a_history_that_a_provider_would_refuse_is_named(ask: Ask, history: list[Message], problem: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_history(history)
    assert problem in str(caught.value)
    model = ScriptedModel(["never said"])
    with pytest.raises(AssertionError) as caught:
        ask(model, request(*history))
    assert problem in str(caught.value)
    assert len(model.requests) == 1


# ChatServer


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages) or [{"role": "user", "content": "hi"}], **more}


def post(server: ChatServer, data: Any) -> httpx.Response:
    with httpx.Client(trust_env=False) as client:
        return client.post(f"{server.base_url}/chat/completions", json=data)


def test_the_server_follows_its_script() -> None:
    raw: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [], "zeta": 1, "alpha": "é"}
    script = [
        say("Hello", usage=Usage(input_tokens=3, output_tokens=4)),
        call("refund", {"order_id": 1}),
        raw,
        lambda asked: f"{asked['model']} speaks",
    ]
    with ChatServer(script) as server:
        first, second, third, fourth = (post(server, body()).json() for _ in range(4))
    assert first == {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }
    assert second["choices"][0]["finish_reason"] == "tool_calls"
    assert second["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": '{"order_id": 1}'}}
        ],
    }
    assert third["choices"][0]["message"] == raw
    assert fourth["choices"][0]["message"]["content"] == "m speaks"
    assert server.requests == [body()] * 4


def test_the_server_keeps_no_place_by_turn() -> None:
    call_1 = {"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": "{}"}}
    history = (
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call_1]},
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
    )
    with ChatServer.by_turn([call("refund"), "Done."]) as server:
        for _ in range(2):
            assert post(server, body(*history)).json()["choices"][0]["message"]["content"] == "Done."
            assert post(server, body()).json()["choices"][0]["message"]["tool_calls"] == [call_1]


def test_faults_are_answered_as_they_are_written() -> None:
    faults = [
        Fault(),
        Fault(status=429, headers={"Retry-After": "0"}, body={"error": {"message": "slow down"}}),
        Fault(status=502, headers={"Content-Type": "text/html"}, body="<html>é</html>"),
        Fault(status=200, body=b"\xff"),
    ]
    with ChatServer([*faults, Fault.reset(), RuntimeError("boom")]) as server:
        plain, limited, page, data = (post(server, body()) for _ in range(4))
        with pytest.raises(httpx.TransportError):
            post(server, body())
        broken, exhausted = post(server, body()), post(server, body())
    assert (plain.status_code, plain.json()["error"]["message"]) == (500, "status 500")
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "0")
    assert limited.json() == {"error": {"message": "slow down"}}
    assert (page.status_code, page.headers["content-type"], page.text) == (502, "text/html", "<html>é</html>")
    assert (data.status_code, data.content) == (200, b"\xff")
    assert (broken.status_code, broken.json()["error"]["message"]) == (500, "the script raised RuntimeError('boom')")
    assert exhausted.status_code == 400
    assert "asked for one more" in exhausted.json()["error"]["message"]
    assert len(server.requests) == 7


CALL = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": "{}"}}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (body(HI, ASKED), "ends before the results of the calls 'c1'"),
        (body(HI, ASKED, HI), "comes before the results of the calls 'c1'"),
        (body(HI, {"role": "tool", "tool_call_id": "c1", "content": "x"}), "answers the call 'c1'"),
        (body(HI, {"role": "tool", "content": "x"}), "answers the call None"),
        ({"messages": [HI]}, "model"),
        ({"model": "m"}, "at least one message"),
        ({"model": "m", "messages": []}, "at least one message"),
        (body({"content": "hi"}), "messages[0] has no role"),
        ({"model": "m", "messages": ["hi"]}, "messages[0] has no role"),
        (body({"role": "user"}), "messages[0] has no content"),
        (body({"role": "assistant", "content": None}), "messages[0] has no content"),
        (body({**ASKED, "tool_calls": ["c1"]}), "a tool call has an id"),
        (body({**ASKED, "tool_calls": [{**CALL, "type": "custom"}]}), "a tool call has an id"),
        (body({**ASKED, "tool_calls": [{**CALL, "function": {"name": "a", "arguments": {}}}]}), "arguments as text"),
        (["no", "object"], "not a JSON object"),
    ],
)
def test_the_server_refuses_what_a_provider_refuses(asked: Any, problem: str) -> None:
    with ChatServer(["never said"]) as server:
        answer = post(server, asked)
    assert answer.status_code == 400
    assert problem in answer.json()["error"]["message"]
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_the_server_knows_its_paths() -> None:
    with ChatServer([]) as server, httpx.Client(trust_env=False) as client:
        assert client.get(f"{server.base_url}/models").json()["data"][0]["id"] == "scripted"
        assert client.get(f"{server.base_url}/files").status_code == 404
        assert client.post(f"{server.base_url}/embeddings", json={}).status_code == 404
        assert client.post(f"{server.base_url}/chat/completions", content=b"{").status_code == 400
    assert server.requests == []


def test_the_server_has_an_address_only_while_it_runs() -> None:
    server = ChatServer(["Hello"])
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.base_url
    with httpx.Client(trust_env=False) as client:
        with server:
            address = server.base_url
            assert client.post(f"{address}/chat/completions", json=body()).status_code == 200
        with pytest.raises(httpx.TransportError):  # a connection that is kept open does not outlive the server either
            client.post(f"{address}/chat/completions", json=body())
    server.close()


def test_a_client_that_goes_away_is_no_news(capfd: pytest.CaptureFixture[str]) -> None:
    arrived, go_on, left = threading.Event(), threading.Event(), threading.Event()

    def late(asked: dict[str, Any]) -> str:
        arrived.set()
        go_on.wait(PATIENCE)
        left.set()
        return "x" * 10_000_000  # more than the socket buffers hold

    impatient = httpx.Timeout(10, read=0.05)
    with ChatServer(late) as server, httpx.Client(trust_env=False, timeout=impatient) as client:
        with pytest.raises(httpx.TimeoutException):
            client.post(f"{server.base_url}/chat/completions", json=body())
        assert arrived.wait(PATIENCE)
        go_on.set()
        assert left.wait(PATIENCE)
    assert capfd.readouterr().err == ""


def events(response: httpx.Response) -> list[Any]:
    assert response.headers["content-type"] == "text/event-stream"
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_stream_comes_in_deltas() -> None:
    reply = say("Let me look at it.", call("refund", {"order_id": 1}), provider={"reasoning_content": "hm"})
    with ChatServer([reply, "", {"role": "assistant", "content": [{"type": "text", "text": "x"}]}]) as server:
        chunks = events(post(server, body(stream=True, stream_options={"include_usage": True})))
        empty = events(post(server, body(stream=True)))
        parts = events(post(server, body(stream=True)))
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks.pop()["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": "", "reasoning_content": "hm"}
    assert len([delta for delta in deltas if delta.get("content")]) == 3
    assert "".join(delta.get("content") or "" for delta in deltas) == "Let me look at it."
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0] == {"index": 0, "id": "call_1", "type": "function", "function": {"name": "refund", "arguments": ""}}
    assert "".join(one["function"]["arguments"] for one in calls) == '{"order_id": 1}'
    assert [chunk["choices"][0]["delta"] for chunk in empty] == [{"role": "assistant", "content": ""}, {}]
    assert parts[1]["choices"][0]["delta"] == {"content": [{"type": "text", "text": "x"}]}


def test_a_stream_may_be_cut_or_be_just_these_events() -> None:
    faults = [Fault.cut("Let me look at it.", after=2), Fault.cut("Hello"), Fault.stream("[DO", {"a": 1})]
    with ChatServer([*faults, Fault.stream("x", ends=False), Fault(status=503, delay=0.01)]) as server:
        for asked in (body(stream=True), body()):  # a whole answer is cut, too
            with pytest.raises(httpx.RemoteProtocolError):
                post(server, asked)
        assert post(server, body()).text == 'data: [DO\n\ndata: {"a": 1}\n\n'
        with pytest.raises(httpx.RemoteProtocolError):
            post(server, body())
        assert post(server, body()).status_code == 503
    assert len(server.requests) == 5

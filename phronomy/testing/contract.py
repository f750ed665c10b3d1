"""`ModelContract`: what a model over HTTP must do, as tests to run over yours.

Subclass it in a test file and give `make_model`; pytest finds the rest. Each test runs four ways: `complete`,
`acomplete`, `stream` and `astream`. pytest itself is not imported here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import traceback
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from typing import Any, Never, TypeVar

from phronomy.errors import (
    AuthenticationError,
    ContentFilterError,
    ContextLengthError,
    ModelConnectionError,
    ModelError,
    RateLimitError,
)
from phronomy.models.base import (
    Delta,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    StreamingModel,
    TextDelta,
    ToolCallDelta,
)
from phronomy.models.settings import ModelSettings
from phronomy.records.messages import Message, ToolCall, Usage
from phronomy.testing.scripted import call, say
from phronomy.testing.server import ChatServer, Fault

T = TypeVar("T")

WAYS = ("complete", "acomplete", "stream", "astream")
STREAMED = ("stream", "astream")

USER = Message(role="user", content="Refund order 1042, secret-canary-77")
REQUEST = ModelRequest(messages=(USER,))
TOOL: dict[str, object] = {
    "type": "function",
    "function": {"name": "refund", "parameters": {"type": "object", "properties": {"order_id": {"type": "integer"}}}},
}
TEXT = "It was sent [DONE], über\u2028night: “on its way”."


class ModelContract:
    """The suite of tests that every model over HTTP passes. Subclass it and override `make_model`.

    The suite expects chat completions. For another protocol, override the members under "The protocol", and the tests
    that do not fit the protocol.
    """

    key = "key-canary-5Yb2"
    """The API key for the model under test. No error may contain it."""

    def make_model(self, base_url: str) -> StreamingModel:
        """Make the model under test, for `base_url` and `key`, with three attempts in all and no pause between them."""
        raise NotImplementedError("override make_model")

    def run(self, work: Coroutine[object, Never, T]) -> T:
        """Run a coroutine to its end, in a new event loop."""
        return asyncio.run(work)

    async def let_go(self, model: StreamingModel) -> None:
        """Close the connections of the model in the running event loop: call its `aclose`, if it has one."""
        close: Any = getattr(model, "aclose", None)
        if close is not None:
            await close()

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Tell pytest in which ways each test is run."""
        if "way" in metafunc.fixturenames:
            metafunc.parametrize("way", WAYS)
        if "streamed" in metafunc.fixturenames:
            metafunc.parametrize("streamed", STREAMED)

    # The protocol

    opening = 1
    """The number of events in a stream before the first piece of its text."""

    def asked(self, body: dict[str, Any]) -> dict[str, Any]:
        """Turn the body of a request into the form of chat completions."""
        return body

    def piece(self, text: str) -> dict[str, Any]:
        """Make an event of a stream, with a piece of text."""
        return chunk(content=text)

    def said(self, message: Message) -> Message:
        """The message of a reply, without the fields that the protocol adds to every message."""
        return message

    # Asking

    @contextmanager
    def served(self, script: Any) -> Iterator[tuple[ChatServer, StreamingModel]]:
        """Start a provider that follows the script, and make a model that calls it."""
        with ChatServer(script) as server:
            model = self.make_model(server.base_url)
            try:
                yield server, model
            finally:
                if callable(close := getattr(model, "close", None)):
                    close()

    def ask(self, model: StreamingModel, request: ModelRequest, way: str) -> tuple[ModelReply, list[Delta]]:
        """Ask the model in one of the four ways. Return the reply, and the pieces that came before it."""
        given: list[Delta | ModelReply] = []
        self.collect(model, request, way, given)
        *deltas, reply = given
        assert isinstance(reply, ModelReply), f"the last item of a stream is the reply, not {reply!r}"
        assert not any(isinstance(delta, ModelReply) for delta in deltas), "a stream gives one reply"
        return reply, [delta for delta in deltas if not isinstance(delta, ModelReply)]

    def collect(self, model: StreamingModel, request: ModelRequest, way: str, into: list[Delta | ModelReply]) -> None:
        """Ask the model, and add each item that it gives to the list `into`, until it ends or raises."""
        if way == "complete":
            into.append(model.complete(request))
        elif way == "stream":
            with closing(model.stream(request)) as stream:
                for piece in stream:
                    into.append(piece)  # what came before an error is looked at
        else:
            self.run(self._acollect(model, request, way, into))

    async def _acollect(
        self, model: StreamingModel, request: ModelRequest, way: str, into: list[Delta | ModelReply]
    ) -> None:
        try:
            if way == "acomplete":
                into.append(await model.acomplete(request))
                return
            async with aclosing(model.astream(request)) as stream:
                async for piece in stream:
                    into.append(piece)
        finally:
            await self.let_go(model)

    def recovers(self, way: str, script: Sequence[object], *, requests: int) -> None:
        """Ask the model, and check that it gives the last reply of the script, `"Hello"`, after this many requests."""
        with self.served(script) as (server, model):
            assert self.ask(model, REQUEST, way)[0].message.text == "Hello"
            assert len(server.requests) == requests

    def fails(
        self, way: str, script: object, kind: type[ModelError], *, requests: int, status: int | None
    ) -> tuple[ModelError, list[Delta | ModelReply]]:
        """Ask the model, and check the error that it raises. Return the error, and the items that came before it."""
        given: list[Delta | ModelReply] = []
        with self.served(script) as (server, model):
            try:
                self.collect(model, REQUEST, way, given)
            except ModelError as error:
                seen = error
            else:
                raise AssertionError(f"no error, but {given!r}")
            asked = len(server.requests)
        assert type(seen) is kind, f"{seen!r} is no {kind.__name__}"
        assert asked == requests, f"{asked} requests were sent, not {requests}"
        assert seen.status_code == status, f"the status is {seen.status_code}, not {status}"
        assert model.name in str(seen), f"the error does not name the model: {seen}"
        assert "canary" not in str(seen), f"the error quotes the request or the key: {seen}"
        assert len(str(seen)) < 250, f"the error is long: {seen}"
        told = f"{seen!r} {model!r} " + "".join(traceback.format_exception(seen))
        assert self.key not in told, "the error tells the key"
        assert not any(isinstance(piece, ModelReply) for piece in given), "a failed stream gives no reply"
        return seen, given

    # Replies

    def test_a_text_comes_back_as_it_is(self, way: str) -> None:
        """One request, one reply, and in a stream the pieces of the same text."""
        with self.served([TEXT]) as (server, model):
            reply, deltas = self.ask(model, ModelRequest(system="Be kind.", messages=(USER,)), way)
        assert self.said(reply.message) == Message(role="assistant", content=TEXT), reply
        assert (reply.finish_reason, reply.usage.requests) == ("stop", 1), reply
        assert [body.get("stream", False) for body in server.requests] == [way in STREAMED]
        assert [message["role"] for message in self.asked(server.requests[0])["messages"]] == ["system", "user"]
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == (TEXT if deltas else "")
        assert (len(deltas) > 2) == (way in STREAMED), f"pieces of a stream, and of nothing else: {deltas}"

    def test_tools_go_out_and_calls_come_back(self, way: str) -> None:
        """A call, its result, and the answer after it; the arguments byte for byte."""
        arguments = '{ "order_id":1042 , "why":"\\u00e9é" }'
        with self.served([call("refund", arguments, id="c1"), "Done."]) as (server, model):
            first, deltas = self.ask(model, ModelRequest(messages=(USER,), tools=(TOOL,)), way)
            result = Message(role="tool", tool_call_id="c1", content="on its way", settlement="completed")
            last, _ = self.ask(model, ModelRequest(messages=(USER, first.message, result), tools=(TOOL,)), way)
        assert first.message.tool_calls == (ToolCall(id="c1", name="refund", arguments=arguments),), first
        assert (first.finish_reason, last.message.text) == ("tool_calls", "Done.")
        assert self.asked(server.requests[0])["tools"] == [TOOL]
        sent = self.asked(server.requests[1])["messages"][1:]
        assert [{"content": None, **sent[0]}, *sent[1:]] == [  # no content is left out, or null
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": arguments}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "on its way"},
        ], sent
        if way in STREAMED:
            assert calls_in(deltas) == [("c1", "refund", arguments)]

    def test_parallel_calls_keep_their_order(self, way: str) -> None:
        """Text beside two calls."""
        reply = say("Both.", call("refund", {"order_id": 1}, id="a"), call("refund", {"order_id": 2}, id="b"))
        with self.served([reply]) as (_, model):
            got, deltas = self.ask(model, ModelRequest(messages=(USER,), tools=(TOOL,)), way)
        expected = [("a", "refund", '{"order_id": 1}'), ("b", "refund", '{"order_id": 2}')]
        assert [(one.id, one.name, one.arguments) for one in got.message.tool_calls] == expected
        assert got.message.text == "Both."
        assert calls_in(deltas) == (expected if way in STREAMED else [])

    def test_fields_of_the_provider_go_back_where_they_were(self, way: str) -> None:
        """Thinking with its signature, reasoning, and fields of a call: kept through JSON, sent back in their places."""
        raw: dict[str, Any] = {
            "role": "assistant",
            "content": "Hm.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "refund", "arguments": '{ "order_id":1 }', "sig": "Zm9v"},
                    "extra_content": {"google": {"thought_signature": "CiQ+/=="}},
                }
            ],
            "zeta": {"b": 1, "a": 5.0},
            "thinking_blocks": [
                {"type": "thinking", "thinking": "Hm …", "signature": "EqoB+/=="},
                {"type": "redacted_thinking", "data": "b64=="},
            ],
            "reasoning_content": "I think …",
            "alpha": ["é"],
        }
        with self.served([raw, "Done."]) as (server, model):
            first, deltas = self.ask(model, REQUEST, way)
            kept = Message.model_validate_json(first.message.model_dump_json())
            result = Message(role="tool", tool_call_id="c1", content="ok", settlement="completed")
            self.ask(model, ModelRequest(messages=(USER, kept, result)), way)
        assert json.dumps(server.requests[1]["messages"][1]) == json.dumps(raw)
        reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
        assert reasoning == ("I think …" if way in STREAMED else "")

    def test_a_refusal_of_the_model_is_a_reply(self, way: str) -> None:
        """It is kept beside the content, and sent back."""
        raw = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
        with self.served([raw, "Hello"]) as (server, model):
            reply, _ = self.ask(model, REQUEST, way)
            self.ask(model, ModelRequest(messages=(USER, reply.message, USER)), way)
        kept = self.said(reply.message)
        assert kept == Message(role="assistant", content="", provider={"refusal": raw["refusal"]}), reply
        assert self.asked(server.requests[1])["messages"][1] == {**raw, "content": ""}

    def test_an_empty_reply_is_a_message_without_text(self, way: str) -> None:
        """Nothing was said, which is no fault."""
        with self.served([""]) as (server, model):
            reply, deltas = self.ask(model, REQUEST, way)
        assert (self.said(reply.message), deltas) == (Message(role="assistant", content=""), [])
        assert len(server.requests) == 1

    def test_tokens_are_counted_as_the_provider_counts_them(self, way: str) -> None:
        """Streamed, too."""
        with self.served([say("Hello", usage=Usage(input_tokens=9, output_tokens=4))]) as (_, model):
            reply, _ = self.ask(model, REQUEST, way)
        used = reply.usage
        assert (used.requests, used.input_tokens, used.output_tokens) == (1, 9, 4), used

    def test_a_stream_ends_in_what_complete_gives(self, streamed: str) -> None:
        """The same answer is the same record, with its usage and what it cost."""
        reply = say("Hm.", call("refund", {"order_id": 1}), usage=Usage(input_tokens=9, output_tokens=4))
        with self.served(lambda _: reply) as (_, model):
            assert self.ask(model, REQUEST, streamed)[0] == self.ask(model, REQUEST, "complete")[0]

    def test_settings_go_out_under_their_names(self, way: str) -> None:
        """What is not set is not sent."""
        settings = ModelSettings(
            temperature=0.5, seed=2, max_tokens=7, stop=("END",), tool_choice="refund", timeout=20, top_p=0.5
        )
        with self.served(["Hello"]) as (server, model):
            self.ask(model, ModelRequest(messages=(USER,), tools=(TOOL,), settings=settings), way)
        sent = {name: value for name, value in server.requests[0].items() if not name.startswith("stream")}
        assert sent == {
            "model": sent["model"],
            "messages": [{"role": "user", "content": USER.text}],
            "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "refund"}},
            "temperature": 0.5,
            "top_p": 0.5,
            "max_tokens": 7,
            "seed": 2,
            "stop": ["END"],
        }

    # Faults

    def test_a_rate_limit_is_waited_for(self, way: str) -> None:
        """`Retry-After` is honoured, and left to the caller where it is long."""
        limited = Fault(status=429, headers={"Retry-After": "0"})
        self.recovers(way, [limited, "Hello"], requests=2)
        error, _ = self.fails(way, [limited] * 3, RateLimitError, requests=3, status=429)
        assert isinstance(error, RateLimitError) and error.retry_after == 0.0
        long = Fault(status=429, headers={"Retry-After": "3600"})
        error, _ = self.fails(way, [long], RateLimitError, requests=1, status=429)
        assert isinstance(error, RateLimitError) and error.retry_after == 3600.0

    def test_a_fault_of_the_server_is_tried_again(self, way: str) -> None:
        """Three times in all."""
        self.recovers(way, [Fault(status=500), Fault(status=503), "Hello"], requests=3)
        self.fails(way, [Fault(status=500)] * 3, ModelError, requests=3, status=500)

    def test_a_key_that_is_not_accepted_is_not_tried_again(self, way: str) -> None:
        """Nor is it told."""
        quoting = {"error": {"message": f"Incorrect API key provided: {self.key}. You said: secret-canary-77"}}
        for status in (401, 403):
            fault = Fault(status=status, body=quoting)
            self.fails(way, [fault], AuthenticationError, requests=1, status=status)

    def test_a_bad_request_is_not_tried_again(self, way: str) -> None:
        """It fails the same way again."""
        quoting = {"error": {"message": "secret-canary-77 is no order", "code": None}}
        self.fails(way, [Fault(status=400, body=quoting)], ModelError, requests=1, status=400)

    def test_a_context_overflow_is_not_tried_again(self, way: str) -> None:
        """By its code, or by its words."""
        error = {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}
        for said in (error, {**error, "code": None}):
            fault = Fault(status=400, body={"error": said})
            self.fails(way, [fault], ContextLengthError, requests=1, status=400)

    def test_a_content_filter_is_not_tried_again(self, way: str) -> None:
        """Of the request, or of the reply."""
        body = {"error": {"message": "The response was filtered.", "code": "content_filter"}}
        self.fails(way, [Fault(status=400, body=body)], ContentFilterError, requests=1, status=400)
        withheld = say("It is", finish_reason="content_filter")
        self.fails(way, [withheld], ContentFilterError, requests=1, status=None)

    def test_a_reset_connection_is_tried_again(self, way: str) -> None:
        """And has no status."""
        self.recovers(way, [Fault.reset(), "Hello"], requests=2)
        self.fails(way, [Fault.reset()] * 3, ModelConnectionError, requests=3, status=None)

    def test_an_answer_that_is_cut_is_tried_again_only_while_nothing_was_given(self, way: str) -> None:
        """Half a reply is no reply, and a piece that was given out is not given again."""
        self.recovers(way, [Fault.cut(TEXT, after=self.opening), "Hello"], requests=2)
        tries = 1 if way in STREAMED else 3
        script = [Fault.cut(TEXT, after=self.opening + 2)] * 3
        _, given = self.fails(way, script, ModelConnectionError, requests=tries, status=None)
        assert given == ([TextDelta(text=TEXT[:8]), TextDelta(text=TEXT[8:16])] if way in STREAMED else [])

    def test_a_stream_without_an_end_is_cut(self, streamed: str) -> None:
        """The connection ended well; the reply did not."""
        script = [Fault.stream(self.piece("Half"))]
        _, given = self.fails(streamed, script, ModelConnectionError, requests=1, status=None)
        assert given == [TextDelta(text="Half")]

    def test_an_empty_stream_is_tried_again(self, streamed: str) -> None:
        """Nothing was given out."""
        self.recovers(streamed, [Fault.stream(), "Hello"], requests=2)
        self.fails(streamed, [Fault.stream()] * 3, ModelConnectionError, requests=3, status=None)

    def test_an_error_inside_a_stream_is_what_it_says(self, streamed: str) -> None:
        """Tried again while nothing was given."""
        busy = {"error": {"message": "overloaded: secret-canary-77", "code": 503}}
        self.recovers(streamed, [Fault.stream(busy), "Hello"], requests=2)
        late = [Fault.stream(self.piece("Half"), busy)]
        _, given = self.fails(streamed, late, ModelError, requests=1, status=503)
        assert given == [TextDelta(text="Half")]

    def test_interleaved_fragments_of_calls_find_their_call(self, streamed: str) -> None:
        """By index; by id where a provider gives every call the same index."""
        events = [
            chunk(role="assistant", content=None),
            fragment(0, '{"order', id="a", name="refund"),
            fragment(1, "{", id="b", name="look"),
            fragment(0, '_id": 1'),
            fragment(1, '"x": 2}'),
            fragment(0, "}"),
            chunk("tool_calls"),
            "[DONE]",
        ]
        expected = [("a", "refund", '{"order_id": 1}'), ("b", "look", '{"x": 2}')]
        same = [fragment(0, "{}", id="a", name="one"), fragment(0, "{}", id="b", name="two"), chunk("tool_calls")]
        for sent, calls in ((events, expected), (same, [("a", "one", "{}"), ("b", "two", "{}")])):
            with self.served([Fault.stream(*sent)]) as (_, model):
                reply, deltas = self.ask(model, REQUEST, streamed)
            assert [(one.id, one.name, one.arguments) for one in reply.message.tool_calls] == calls
            assert calls_in(deltas) == calls

    def test_a_page_of_a_proxy_is_named_and_not_quoted(self, way: str) -> None:
        """Its status and its type; nothing of its words."""
        html = {"Content-Type": "text/html; charset=utf-8"}
        bad, odd = (Fault(status=status, headers=html, body="<html>secret-canary-77</html>") for status in (502, 200))
        error, _ = self.fails(way, [bad] * 3, ModelError, requests=3, status=502)
        assert "502" in str(error) and "text/html" in str(error), error
        self.fails(way, [odd], ModelError, requests=1, status=200)

    def test_closing_a_stream_lets_go_of_the_connection(self, streamed: str) -> None:
        """The provider need not say it all."""
        left = threading.Event()

        def endless() -> Generator[dict[str, object]]:
            try:
                yield from itertools.repeat(self.piece("more " * 100))
            finally:
                left.set()

        with self.served([Fault(status=200, events=endless())]) as (server, model):
            self._take_three(model, streamed)
            assert left.wait(30), "the provider still talks"
            assert len(server.requests) == 1

    def _take_three(self, model: StreamingModel, streamed: str) -> None:
        async def take(stream: AsyncGenerator[Delta | ModelReply]) -> None:
            try:
                async with aclosing(stream):
                    for _ in range(3):
                        assert isinstance(await anext(stream), TextDelta)
            finally:
                await self.let_go(model)

        if streamed == "astream":
            self.run(take(model.astream(REQUEST)))
            return
        with closing(model.stream(REQUEST)) as stream:
            for _ in range(3):
                assert isinstance(next(stream), TextDelta)


def calls_in(deltas: list[Delta]) -> list[tuple[str, str, str]]:
    """The calls that the deltas make, put together: id, name and arguments."""
    found: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            mine = found.setdefault(delta.index, ["", "", ""])
            for place, piece in enumerate((delta.id, delta.name, delta.arguments)):
                mine[place] += piece
    return [(one[0], one[1], one[2]) for _, one in sorted(found.items())]


def chunk(finish_reason: str | None = None, **delta: object) -> dict[str, object]:
    """One event of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}


def fragment(index: int, arguments: str, *, id: str | None = None, name: str | None = None) -> dict[str, object]:
    """One event of a stream with a fragment of a call."""
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    head = {"index": index} if id is None else {"index": index, "id": id, "type": "function"}
    return chunk(tool_calls=[{**head, "function": function}])

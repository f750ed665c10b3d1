"""The models over HTTP keep the contract that is published for models."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from phronomy.errors import ConfigurationError, ContentFilterError
from phronomy.models import (
    ChatCompletionsModel,
    LiteLLMModel,
    MessagesModel,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    ResponsesModel,
    StreamingModel,
)
from phronomy.records.messages import Message, ToolCall
from phronomy.testing import Fault, ModelContract, call
from phronomy.testing.contract import REQUEST, STREAMED, TOOL, USER, calls_in

FUNCTION: Any = TOOL["function"]


class TestChatCompletionsModel(ModelContract):
    def make_model(self, base_url: str) -> ChatCompletionsModel:
        return ChatCompletionsModel("gpt-4o-mini", base_url=base_url, api_key=self.key, retry_wait=0)


class TestLiteLLMModel(ModelContract):
    @pytest.fixture(autouse=True)
    def no_loop_is_left_open(self) -> None:
        asyncio.set_event_loop(None)  # else litellm makes a loop, and leaves it open

    def make_model(self, base_url: str) -> LiteLLMModel:
        return LiteLLMModel("openai/gpt-4o-mini", base_url=base_url, api_key=self.key, retry_wait=0)

    async def let_go(self, model: StreamingModel) -> None:
        import litellm

        await litellm.close_litellm_async_clients()  # type: ignore[attr-defined,no-untyped-call]


class TestResponsesModel(ModelContract):
    opening = 4  # the response has begun, and goes on; an item, and a part of it

    def make_model(self, base_url: str) -> ResponsesModel:
        return ResponsesModel("gpt-5", base_url=base_url, api_key=self.key, retry_wait=0)

    def asked(self, body: dict[str, Any]) -> dict[str, Any]:
        system = [{"role": "system", "content": body["instructions"]}] if "instructions" in body else []
        tools = [
            {key: value for key, value in tool.items() if key not in ("type", "strict")}
            for tool in body.get("tools", [])
        ]
        return {
            "messages": [*system, *map(as_message, body["input"])],
            "tools": [{"type": "function", "function": tool} for tool in tools],
        }

    def piece(self, text: str) -> dict[str, Any]:
        return {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}

    def said(self, message: Message) -> Message:
        more = message.provider
        assert more.pop("phronomy")["items"]
        return Message(role="assistant", content=message.content, tool_calls=message.tool_calls, provider=more)

    def test_fields_of_the_provider_go_back_where_they_were(self, way: str) -> None:
        """Each item of a response, of whatever kind, kept through JSON."""
        output: list[dict[str, Any]] = [
            {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "I think …"}],
                "encrypted_content": "gAAAAB+/==",
            },
            {
                "zeta": {"b": 1, "a": 5.0},
                "content": [{"type": "output_text", "annotations": [], "text": "Hm.", "logprobs": []}],
                "role": "assistant",
                "phase": "commentary",
                "type": "message",
                "id": "msg_1",
                "status": "completed",
            },
            {"type": "not_known_yet", "alpha": ["é", None]},
            {"id": "rs_2", "type": "reasoning", "summary": [], "encrypted_content": "gAAAAC+/=="},
            {
                "arguments": '{ "order_id":1 }',
                "call_id": "c1",
                "name": "refund",
                "type": "function_call",
                "id": "fc_1",
                "status": "completed",
                "caller": None,
            },
        ]
        with self.served([{"output": output}, "Done."]) as (server, model):
            first, deltas = self.ask(model, REQUEST, way)
            kept = Message.model_validate_json(first.message.model_dump_json())
            result = Message(role="tool", tool_call_id="c1", content="ok", settlement="completed")
            self.ask(model, ModelRequest(messages=(USER, kept, result)), way)
        assert json.dumps(server.requests[1]["input"][1:-1]) == json.dumps(output)
        assert [body["store"] for body in server.requests] == [False, False]
        assert [body["include"] for body in server.requests] == [["reasoning.encrypted_content"]] * 2
        reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
        assert reasoning == ("I think …" if way in STREAMED else "")

    def test_settings_go_out_under_their_names(self, way: str) -> None:
        """Those that this API has, under its own."""
        settings = ModelSettings(temperature=0.5, max_tokens=7, tool_choice="refund", timeout=20, top_p=0.5)
        with self.served(["Hello"]) as (server, model):
            self.ask(model, ModelRequest(messages=(USER,), tools=(TOOL,), settings=settings), way)
            for name, value in (("stop", ("END",)), ("seed", 2)):
                other = ModelSettings(**{name: value})
                with pytest.raises(ConfigurationError, match=f"no `{name}`"):
                    self.ask(model, ModelRequest(messages=(USER,), settings=other), way)
        [sent] = server.requests
        assert {name: value for name, value in sent.items() if name != "stream"} == {
            "model": "gpt-5",
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "input": [{"role": "user", "content": USER.text}],
            "tools": [{"type": "function", "strict": False, **FUNCTION}],
            "tool_choice": {"type": "function", "name": "refund"},
            "temperature": 0.5,
            "top_p": 0.5,
            "max_output_tokens": 7,
        }

    def test_interleaved_fragments_of_calls_find_their_call(self, streamed: str) -> None:
        """By the place of their item."""
        items = [
            {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
            for call_id, name, arguments in (("a", "refund", '{"order_id": 1}'), ("b", "look", '{"x": 2}'))
        ]
        fragments = [(1, '{"order'), (3, "{"), (1, '_id": 1'), (3, '"x": 2}'), (1, "}")]
        kind = "response.function_call_arguments.delta"
        events = [
            *(added(place, {**item, "arguments": ""}) for place, item in zip((1, 3), items, strict=True)),
            *({"type": kind, "output_index": place, "delta": text} for place, text in fragments),
            {"type": "response.completed", "response": {"status": "completed", "output": items}},
        ]
        with self.served([Fault.stream(*events)]) as (_, model):
            reply, deltas = self.ask(model, REQUEST, streamed)
        calls = [(item["call_id"], item["name"], item["arguments"]) for item in items]
        assert [(one.id, one.name, one.arguments) for one in reply.message.tool_calls] == calls
        assert calls_in(deltas) == calls


class TestMessagesModel(ModelContract):
    opening = 3  # the message has begun, a ping, and a block

    def make_model(self, base_url: str) -> MessagesModel:
        return MessagesModel("claude-sonnet-4-5", base_url=base_url, api_key=self.key, retry_wait=0)

    def asked(self, body: dict[str, Any]) -> dict[str, Any]:
        system = [{"role": "system", "content": body["system"]}] if "system" in body else []
        tools = [
            {**{key: value for key, value in tool.items() if key != "input_schema"}, "parameters": tool["input_schema"]}
            for tool in body.get("tools", [])
        ]
        return {
            "messages": [*system, *(one for message in body["messages"] for one in from_blocks(message))],
            "tools": [{"type": "function", "function": tool} for tool in tools],
        }

    def piece(self, text: str) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}

    def test_tools_go_out_and_calls_come_back(self, way: str) -> None:
        """A call, its result, and the answer after it. Only a stream has the arguments as text."""
        arguments = '{ "order_id":1042 , "why":"\\u00e9é" }'
        with self.served([call("refund", arguments, id="c1"), "Done."]) as (server, model):
            first, deltas = self.ask(model, ModelRequest(messages=(USER,), tools=(TOOL,)), way)
            result = Message(role="tool", tool_call_id="c1", content="on its way", settlement="completed")
            last, _ = self.ask(model, ModelRequest(messages=(USER, first.message, result), tools=(TOOL,)), way)
        written = arguments if way in STREAMED else '{"order_id":1042,"why":"éé"}'
        assert first.message.tool_calls == (ToolCall(id="c1", name="refund", arguments=written),)
        assert (first.finish_reason, last.message.text) == ("tool_calls", "Done.")
        assert self.asked(server.requests[0])["tools"] == [TOOL]
        assert server.requests[1]["messages"][1:] == [
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "c1", "name": "refund", "input": {"order_id": 1042, "why": "éé"}}
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "on its way"}],
            },
        ]
        assert calls_in(deltas) == ([("c1", "refund", arguments)] if way in STREAMED else [])

    def test_parallel_calls_keep_their_order(self, way: str) -> None:
        """Text beside two calls."""
        reply = {"content": [{"type": "text", "text": "Both."}, uses("a", 1), uses("b", 2)]}
        with self.served([reply]) as (_, model):
            got, deltas = self.ask(model, ModelRequest(messages=(USER,), tools=(TOOL,)), way)
        expected = [(id, "refund", {"order_id": order}) for id, order in (("a", 1), ("b", 2))]
        assert [(one.id, one.name, json.loads(one.arguments)) for one in got.message.tool_calls] == expected
        assert got.message.text == "Both."
        found = [(id, name, json.loads(text)) for id, name, text in calls_in(deltas)]
        assert found == (expected if way in STREAMED else [])

    def test_a_stream_ends_in_what_complete_gives(self, streamed: str) -> None:
        """But for the text of the arguments: a whole answer holds an object in place of it."""
        reply = {"content": [{"type": "thinking", "thinking": "Hm.", "signature": "Eq+/=="}, uses("a", 1)]}
        with self.served(lambda _: reply) as (_, model):
            one, other = (self.ask(model, REQUEST, way)[0] for way in (streamed, "complete"))
        [called], [same] = one.message.tool_calls, other.message.tool_calls
        assert json.loads(called.arguments) == json.loads(same.arguments)
        assert one == replace(other, message=other.message.evolve(tool_calls=(called,)))

    def test_fields_of_the_provider_go_back_where_they_were(self, way: str) -> None:
        """Each content block, of whatever kind, kept through JSON."""
        citation = {"type": "char_location", "cited_text": "x", "start_char_index": 0, "document_index": 0}
        content: list[dict[str, Any]] = [
            {"signature": "EqoB+/==", "type": "thinking", "thinking": "I think …"},
            {"type": "text", "text": "So: "},
            {"type": "text", "text": "it is.", "citations": [citation]},
            {"type": "redacted_thinking", "data": "b64=="},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "é", "n": 5.0}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"zeta": 1, "alpha": None}]},
            {"type": "not_known_yet", "alpha": ["é", None]},
            {**uses("c1", 1), "caller": {"type": "direct"}},
        ]
        with self.served([{"content": content}, "Done."]) as (server, model):
            first, deltas = self.ask(model, REQUEST, way)
            kept = Message.model_validate_json(first.message.model_dump_json())
            result = Message(role="tool", tool_call_id="c1", content="ok", settlement="completed")
            self.ask(model, ModelRequest(messages=(USER, kept, result)), way)
        assert json.dumps(server.requests[1]["messages"][1]["content"]) == json.dumps(content)
        reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
        assert reasoning == ("I think …" if way in STREAMED else "")

    def test_a_refusal_of_the_model_is_a_reply(self, way: str) -> None:
        """Not here: what was said before it may be half a text, and the provider says to leave it out."""
        refused = {"content": [{"type": "text", "text": "To do"}], "stop_reason": "refusal"}
        fault = Fault(status=200, body={"type": "message", "role": "assistant", **refused})
        if way in STREAMED:
            end = {"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {"output_tokens": 1}}
            fault = Fault.stream(self.piece("To do"), end, {"type": "message_stop"})
        self.fails(way, [fault], ContentFilterError, requests=1, status=None)

    def test_settings_go_out_under_their_names(self, way: str) -> None:
        """The settings that this API has, under its own names."""
        settings = ModelSettings(
            temperature=0.5, max_tokens=7, tool_choice="refund", timeout=20, top_p=0.5, stop=("END",)
        )
        with self.served(["Hello"]) as (server, model):
            self.ask(model, ModelRequest(messages=(USER,), tools=(TOOL,), settings=settings), way)
            with pytest.raises(ConfigurationError, match="no `seed`"):
                self.ask(model, ModelRequest(messages=(USER,), settings=ModelSettings(seed=2)), way)
        [sent] = server.requests
        assert {name: value for name, value in sent.items() if name != "stream"} == {
            "model": "claude-sonnet-4-5",
            "messages": [{"role": "user", "content": [{"type": "text", "text": USER.text}]}],
            "tools": [{"name": "refund", "input_schema": FUNCTION["parameters"]}],
            "tool_choice": {"type": "tool", "name": "refund"},
            "temperature": 0.5,
            "top_p": 0.5,
            "max_tokens": 7,
            "stop_sequences": ["END"],
        }

    def test_interleaved_fragments_of_calls_find_their_call(self, streamed: str) -> None:
        """By the place of their block."""
        begun = [
            {"type": "tool_use", "id": id, "name": name, "input": {}} for id, name in (("a", "refund"), ("b", "look"))
        ]
        fragments = [(0, '{"order'), (2, "{"), (0, '_id": 1'), (2, '"x": 2}'), (0, "}")]
        pieces = [(place, {"type": "input_json_delta", "partial_json": text}) for place, text in fragments]
        events = [
            *(
                {"type": "content_block_start", "index": n, "content_block": one}
                for n, one in zip((0, 2), begun, strict=True)
            ),
            *({"type": "content_block_delta", "index": place, "delta": delta} for place, delta in pieces),
            *({"type": "content_block_stop", "index": place} for place in (0, 2)),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
        with self.served([Fault.stream(*events)]) as (_, model):
            reply, deltas = self.ask(model, REQUEST, streamed)
        expected = [("a", "refund", '{"order_id": 1}'), ("b", "look", '{"x": 2}')]
        assert [(one.id, one.name, one.arguments) for one in reply.message.tool_calls] == expected
        assert calls_in(deltas) == expected


def uses(id: str, order: int) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "refund", "input": {"order_id": order}}


def from_blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message of texts, in the form of chat completions."""
    return [{"role": message["role"], "content": block["text"]} for block in message["content"]]


def added(place: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": place, "item": item}


def as_message(item: dict[str, Any]) -> dict[str, Any]:
    """An item of a request, in the form of chat completions."""
    if item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
    if item.get("type") == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        return {"role": "assistant", "tool_calls": [{"id": item["call_id"], "type": "function", "function": function}]}
    if isinstance(item["content"], str):
        return item
    [part] = item["content"]
    return {"role": item["role"], "content": part.get("text", ""), "refusal": part["refusal"]}


def test_the_contract_asks_for_a_model() -> None:
    with pytest.raises(NotImplementedError):
        ModelContract().make_model("http://127.0.0.1/v1")

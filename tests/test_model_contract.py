"""The models over HTTP keep the contract that is published for models."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from phronomy.errors import ConfigurationError
from phronomy.models import (
    ChatCompletionsModel,
    LiteLLMModel,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    ResponsesModel,
    StreamingModel,
)
from phronomy.records.messages import Message
from phronomy.testing import Fault, ModelContract
from phronomy.testing.contract import REQUEST, STREAMED, TOOL, USER, calls_in


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
            "tools": [{"type": "function", "strict": False, **TOOL["function"]}],
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

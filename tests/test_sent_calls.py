"""The calls of a history are valid for every provider, whatever a model wrote. The record keeps what it wrote."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from drivers import DRIVERS, Driver
from tables import each

from phronomy import Agent, LiteLLMModel, MemoryStore, Message, ModelError, RunFailed, ToolCall, tool
from phronomy.models import ChatCompletionsModel, MessagesModel, ModelRequest, ResponsesModel
from phronomy.models.formats.chat_completions import request_conversation, request_messages
from phronomy.models.formats.responses import wire_items
from phronomy.models.formats.sent_calls import sent_arguments, sent_id, sent_name
from phronomy.testing import ChatServer, Fault, ScriptedModel, call, say

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LONG = "call_" + "x" * 90


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@tool
def note(text: str = "nothing") -> str:
    """Note."""
    return f"noted {text}"


@each(
    ("written", "sent"),
    [
        ('{ "a":1 }', '{ "a":1 }'),
        ('{"a": "\\ud83d\\ude42"}', '{"a": "\\ud83d\\ude42"}'),
        ('{"a": "\\ud83d"}', '{"a":"�"}'),
        *((text, "{}") for text in ("", " ", '{"a": "b', "null", "[1]", "7", '"x"', '{"a": NaN}', '{"a": 1, "a": 2}')),
        ("[" * 100_000, "{}"),
        ('{"a":' * 100 + "1" + "}" * 100, "{}"),
    ],
)
def test_arguments_are_sent_as_an_object(written: str, sent: str) -> None:
    assert sent_arguments(written) == sent
    assert isinstance(json.loads(sent), dict)


@each("name", ["note", "browser.open", "a b", "<|channel|>", "x" * 400, "né", "", "\x1b"])
def test_names_are_sent_in_letters_that_providers_allow(name: str) -> None:
    assert NAME.fullmatch(sent_name(name))
    assert sent_name(name) == name or not NAME.fullmatch(name)


def test_an_id_that_is_too_long_is_sent_short_and_always_the_same() -> None:
    assert sent_id("call_1") == "call_1"
    assert sent_id(LONG) == sent_id(LONG) != sent_id(LONG + "x")
    assert len(sent_id(LONG)) <= 40
    signed = "call_1__thought__" + "s" * 200
    assert sent_id(signed) == signed


WRITTEN = [("browser.open", ""), ("note", '{"a": "b'), ("note", "null"), ("note", "[1]"), ("x" * 400, "{}")]


def odd(content: Any) -> dict[str, Any]:
    calls = [
        {"id": LONG + str(n), "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(WRITTEN)
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


@pytest.mark.parametrize("kind", [ChatCompletionsModel, LiteLLMModel])
@pytest.mark.parametrize("content", ["", None, "Hm."])
def test_what_goes_back_over_chat_completions_is_valid(driver: Driver, kind: Any, content: Any) -> None:
    with ChatServer([odd(content), "Done."]) as server:
        model = kind("openai/gpt-4o-mini", base_url=server.base_url, api_key="k", max_attempts=1)
        result = driver.invoke(Agent(name="a", model=model, tools=[note], store=MemoryStore()), "Go")
        _, said, *told = server.requests[1]["messages"]
    assert said.get("content") == content
    assert [one["id"] for one in said["tool_calls"]] == [one["tool_call_id"] for one in told]
    for one in said["tool_calls"]:
        assert len(one["id"]) <= 40
        assert NAME.fullmatch(one["function"]["name"])
        assert isinstance(json.loads(one["function"]["arguments"]), dict)
    kept = result.messages[1].tool_calls
    assert [(one.name, one.arguments) for one in kept] == WRITTEN
    assert [message.settlement for message in result.messages[2:-1]] == [
        "invalid",
        "invalid",
        "completed",
        *["invalid"] * 2,
    ]


def test_what_goes_back_over_the_responses_api_is_valid(driver: Driver) -> None:
    items = [
        {"type": "function_call", "call_id": LONG + str(n), "name": name, "arguments": arguments}
        for n, (name, arguments) in enumerate(WRITTEN)
    ]
    with ChatServer([{"output": items}, "Done."]) as server:
        model = ResponsesModel("m", base_url=server.base_url, api_key="k", max_attempts=1)
        driver.invoke(Agent(name="a", model=model, tools=[note], store=MemoryStore()), "Go")
        sent = server.requests[1]["input"][1:]
    asked, told = sent[: len(items)], sent[len(items) :]
    assert [one["call_id"] for one in asked] == [one["call_id"] for one in told]
    for one in asked:
        assert len(one["call_id"]) <= 64
        assert NAME.fullmatch(one["name"])
        assert isinstance(json.loads(one["arguments"]), dict)


def test_what_goes_back_over_the_messages_api_is_valid(driver: Driver) -> None:
    blocks = [
        {"type": "tool_use", "id": f"{LONG}:{n}", "name": name, "input": arguments}
        for n, (name, arguments) in enumerate(WRITTEN)
    ]
    with ChatServer([Fault(status=200, body={"content": blocks, "stop_reason": "tool_use"}), "Done."]) as server:
        model = MessagesModel("m", base_url=server.base_url, api_key="k", max_attempts=1)
        driver.invoke(Agent(name="a", model=model, tools=[note], store=MemoryStore()), "Go")
        _, said, told = (message["content"] for message in server.requests[1]["messages"])
    assert [one["id"] for one in said] == [one["tool_use_id"] for one in told]
    for one in said:
        assert NAME.fullmatch(one["id"]) and NAME.fullmatch(one["name"])
        assert isinstance(one["input"], dict)


def test_a_history_from_elsewhere_is_valid_too() -> None:
    calls = tuple(ToolCall(id=LONG, name=name, arguments=text) for name, text in WRITTEN[:1])
    history = [
        Message(role="user", content="Go"),
        Message(role="assistant", content=[], tool_calls=calls),
        Message(role="tool", tool_call_id=LONG, content="", settlement="completed"),
        Message(role="assistant", content=[]),
        Message(role="user", content="And?"),
    ]
    request = ModelRequest(messages=tuple(history))
    sent: list[Any] = request_messages(request)
    assert json.loads(request_conversation(request)["messages"]) == sent
    assert sent[1]["content"] is None
    assert sent[3]["content"] == ""
    assert sent[1]["tool_calls"][0]["function"] == {"name": "browser_open", "arguments": "{}"}
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == sent_id(LONG)


def test_an_item_that_was_stored_and_waits_for_an_answer_is_not_sent() -> None:
    """An older release kept it as a part of a reply without text. The provider would refuse the history with it."""
    asks = {"id": "m", "type": "mcp_approval_request", "name": "f", "arguments": "{}", "server_label": "gh"}
    message = Message(role="assistant", content="", provider={"phronomy": {"items": [asks]}})
    assert wire_items(message) == [{"role": "assistant", "content": ""}]


@pytest.mark.parametrize("name", ["anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash"])
@pytest.mark.parametrize("written", ['{"text": "a', "null", "[1]"])
def test_a_thread_with_a_call_that_was_cut_off_goes_on(driver: Driver, name: str, written: str) -> None:
    store = MemoryStore()
    script = ScriptedModel([say(None, call("note", written)), "Sorry."])
    driver.invoke(Agent(name="a", model=script, tools=[note], store=store), "Go", thread_id="t")

    model = LiteLLMModel(name, base_url="http://127.0.0.1:9", api_key="k", max_attempts=1)  # nobody listens there
    with pytest.raises(ModelError, match="gave no answer"):
        driver.invoke(Agent(name="a", model=model, tools=[note], store=store), "Go on", thread_id="t")


def test_a_request_that_cannot_be_made_is_not_blamed_on_the_answer(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise json.JSONDecodeError("canary", "canary", 0)

    litellm = pytest.importorskip("litellm")
    monkeypatch.setattr(litellm.AnthropicConfig, "transform_request", broken)
    model = LiteLLMModel("anthropic/claude-sonnet-4-5", base_url="http://127.0.0.1:9", api_key="k", max_attempts=1)
    agent = Agent(name="a", model=model, store=MemoryStore())
    with pytest.raises(RunFailed, match="nothing was sent") as caught:
        driver.invoke(agent, "Go")
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)

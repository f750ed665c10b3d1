"""How models are sent the images in results, by protocol: real requests, to servers on this machine."""

from __future__ import annotations

import asyncio
import http.server
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from drivers import Driver
from loopback import loopback
from tables import each
from test_images import GIF, PNG, part, text

from phronomy import (
    Agent,
    ChatCompletionsModel,
    Image,
    LiteLLMModel,
    Message,
    MessagesModel,
    Model,
    ModelError,
    ResponsesModel,
    tool,
)
from phronomy.models import ModelRequest
from phronomy.models.formats.chat_completions import request_messages
from phronomy.records.messages import ToolCall
from phronomy.testing import ChatServer, call

KEY = "key-canary-7Gw1"
NOTE = f"[image/png, {len(PNG)} bytes]"
HEAD = "What follows is part of the results of tool calls. The user has not sent it."


@pytest.fixture(autouse=True)
def no_event_loop() -> None:
    asyncio.set_event_loop(None)


@tool
def chart(year: int) -> list[str | Image]:
    """Draw the sales of a year."""
    return [f"Sales of {year}:", Image(PNG), "Up."]


@tool
def dot() -> Image:
    """Draw a dot."""
    return Image(GIF)


@tool
def count() -> int:
    """Count."""
    return 5


def agent(model: Model) -> Agent[Any, str]:
    return Agent(name="desk", model=model, tools=[chart, dot, count])


CALLS = [call("chart", {"year": 2026}), call("count"), call("dot")]

IN_RESULTS = [
    {"role": "tool", "tool_call_id": "call_1", "content": f"Sales of 2026:\n{NOTE}\nUp."},
    {"role": "tool", "tool_call_id": "call_2", "content": "5"},
    {"role": "tool", "tool_call_id": "call_3", "content": f"[image/gif, {len(GIF)} bytes]"},
]
BESIDE = {
    "role": "user",
    "content": [
        text(HEAD),
        text("In the result of call call_1:"),
        part(PNG),
        text("In the result of call call_3:"),
        part(GIF, "image/gif"),
    ],
}


@pytest.mark.parametrize("model", [ChatCompletionsModel, LiteLLMModel], ids=["direct", "litellm"])
def test_chat_completions_have_them_in_one_user_message_after_all_results_of_a_turn(driver: Driver, model: Any) -> None:
    """A tool message of that protocol is text, and calls are answered before anything else is said."""
    name = "openai/gpt-4o" if model is LiteLLMModel else "gpt-4o"
    with ChatServer([CALLS, call("dot"), "It goes up."]) as server:
        done = driver.invoke(agent(model(name, base_url=server.base_url, api_key=KEY, retry_wait=0)), "How were sales?")
    assert done.output == "It goes up."
    first, second, third = (body["messages"] for body in server.requests)
    assert [each["role"] for each in first] == ["user"]
    assert second[2:] == [*IN_RESULTS, BESIDE]
    ids = [each["tool_calls"][0]["id"] for each in third if each["role"] == "assistant"]
    assert third[: len(second)] == second
    assert third[len(second) + 1 :] == [
        {"role": "tool", "tool_call_id": ids[1], "content": f"[image/gif, {len(GIF)} bytes]"},
        {"role": "user", "content": [text(HEAD), text(f"In the result of call {ids[1]}:"), part(GIF, "image/gif")]},
    ]


def test_a_server_that_goes_by_turns_takes_that_message_for_none(driver: Driver) -> None:
    with ChatServer.by_turn([CALLS, "Up."]) as server:
        desk = agent(ChatCompletionsModel("gpt-4o", base_url=server.base_url, api_key=KEY, retry_wait=0))
        assert (
            driver.invoke(desk, "Go", thread_id="t").output == driver.invoke(desk, "Go", thread_id="t").output == "Up."
        )


@each(
    ("wrong", "why"),
    [
        ([{**IN_RESULTS[0], "content": [part(PNG)]}], "a tool message is text"),
        ([IN_RESULTS[0], BESIDE, IN_RESULTS[1]], "stands with those of its turn"),
    ],
)
def test_the_server_of_tests_refuses_what_the_provider_refuses(wrong: list[Any], why: str) -> None:
    import httpx

    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "dot", "arguments": "{}"}}
        for n in range(1, sum(each["role"] == "tool" for each in wrong) + 1)
    ]
    said = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": None, "tool_calls": calls}, *wrong]
    with ChatServer(["Hi"]) as server:
        answer = httpx.post(f"{server.base_url}/chat/completions", json={"model": "m", "messages": said})
    assert answer.status_code == 400 and why in answer.text


def test_responses_have_them_in_the_output_of_the_call(driver: Driver) -> None:
    with ChatServer([CALLS, "It goes up."]) as server:
        model = ResponsesModel("gpt-5", base_url=server.base_url, api_key=KEY, retry_wait=0)
        driver.invoke(agent(model), "How were sales?")
    sent = [item for item in server.requests[1]["input"] if item.get("type") == "function_call_output"]
    image = {"type": "input_image", "detail": "auto"}
    assert [each["output"] for each in sent] == [
        [
            {"type": "input_text", "text": "Sales of 2026:"},
            {**image, "image_url": part(PNG)["image_url"]["url"]},
            {"type": "input_text", "text": "Up."},
        ],
        "5",
        [{**image, "image_url": part(GIF, "image/gif")["image_url"]["url"]}],
    ]
    assert [item["role"] for item in server.requests[1]["input"] if "role" in item] == ["user"]


# Providers behind litellm, each by its own protocol


@contextmanager
def provider(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers each request so: its address, and the bodies of what it was asked."""
    bodies: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            bodies.append(body)
            data = json.dumps(answer(body)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with loopback(Handler) as (_, url):
        yield url, bodies


def claude(body: dict[str, Any]) -> dict[str, Any]:
    asked = len(body["messages"]) == 1
    uses = [
        {"type": "tool_use", "id": "toolu_1", "name": "chart", "input": {"year": 2026}},
        {"type": "tool_use", "id": "toolu_2", "name": "dot", "input": {}},
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": uses if asked else [{"type": "text", "text": "It goes up."}],
        "stop_reason": "tool_use" if asked else "end_turn",
        "usage": {"input_tokens": 12, "output_tokens": 30},
    }


@pytest.mark.parametrize("kind", [MessagesModel, LiteLLMModel], ids=["direct", "litellm"])
def test_anthropic_has_them_in_the_result_of_the_call(driver: Driver, kind: Any) -> None:
    with provider(claude) as (url, bodies):
        model = kind("anthropic/claude-sonnet-4-5", base_url=url, api_key=KEY, retry_wait=0)
        assert driver.invoke(agent(model), "How were sales?").output == "It goes up."
    said = bodies[1]["messages"][-1]
    assert [each["role"] for each in bodies[1]["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in said["content"]] == ["tool_result", "tool_result"]

    def image(data: bytes, media_type: str) -> dict[str, Any]:
        base64 = part(data)["image_url"]["url"].partition(",")[2]
        return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": base64}}

    assert [block["content"] for block in said["content"]] == [
        [text("Sales of 2026:"), image(PNG, "image/png"), text("Up.")],
        [image(GIF, "image/gif")],
    ]


def gemini(body: dict[str, Any]) -> dict[str, Any]:
    asked = len(body["contents"]) == 1
    parts: list[dict[str, Any]] = [{"functionCall": {"name": "chart", "args": {"year": 2026}}}]
    said = {"role": "model", "parts": parts if asked else [{"text": "It goes up."}]}
    return {
        "candidates": [{"content": said, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "gemini",
    }


@pytest.mark.parametrize(
    ("name", "inside"), [("gemini/gemini-3-pro-preview", True), ("gemini/gemini-2.5-flash", False)]
)
def test_gemini_has_them_where_its_generation_takes_them(driver: Driver, name: str, inside: bool) -> None:
    with provider(gemini) as (url, bodies):
        model = LiteLLMModel(name, base_url=url, api_key=KEY, retry_wait=0)
        assert driver.invoke(agent(model), "How were sales?").output == "It goes up."
    [_, _, *rest] = bodies[1]["contents"]
    sent = [each for content in rest for each in content["parts"]]
    [result] = [each["function_response"] for each in sent if "function_response" in each]
    data = part(PNG)["image_url"]["url"].partition(",")[2]
    images = [each["inline_data"] for each in (result.get("parts", []) if inside else sent) if "inline_data" in each]
    assert images == [{"data": data, "mime_type": "image/png"}]
    assert json.dumps(bodies[1]).count(data) == 1
    assert (HEAD in json.dumps(bodies[1])) is not inside
    assert (NOTE in json.dumps(result)) is not inside


@each(
    ("name", "takes"),
    [
        ("anthropic/claude-sonnet-4-5", True),
        ("claude-sonnet-4-5-20250929", True),
        ("gemini/gemini-3-pro-preview", True),
        ("vertex_ai/gemini-3-flash", True),
        ("gemini/gemini-10-pro", True),
        ("gemini/gemini-2.5-pro", False),
        ("gemini/gemini-2.0-flash", False),
        ("openai/gpt-5", False),
        ("openai/gemini-3-pro", False),
        ("deepseek/deepseek-chat", False),
        ("nobody/knows", False),
    ],
)
def test_where_litellm_puts_them_in_results(name: str, takes: bool) -> None:
    model = LiteLLMModel(name)
    assert model._takes_results() is takes


# What was said before


def test_a_history_from_elsewhere_is_sent_in_the_same_way() -> None:
    calls = tuple(ToolCall(id=f"c{n}", name="look", arguments="{}") for n in range(2))
    odd = {"type": "file", "file": {"file_id": "f"}}
    said = (
        Message(role="user", content=[text("Look:"), part(PNG)]),
        Message(role="assistant", content=None, tool_calls=calls),
        Message(role="tool", tool_call_id="c0", content=[text("a"), text("b")]),
        Message(role="tool", tool_call_id="c1", content=[odd, text("c")]),
        Message(role="user", content="And?"),
    )
    sent = request_messages(ModelRequest(messages=said))
    assert sent[0] == {"role": "user", "content": [text("Look:"), part(PNG)]}
    assert sent[2:] == [
        {"role": "tool", "tool_call_id": "c0", "content": [text("a"), text("b")]},
        {"role": "tool", "tool_call_id": "c1", "content": "[file]\nc"},
        {"role": "user", "content": [text(HEAD), text("In the result of call c1:"), odd]},
        {"role": "user", "content": "And?"},
    ]
    assert request_messages(ModelRequest(messages=said), whole_results=True)[3]["content"] == [odd, text("c")]


def test_a_model_that_takes_no_images_says_so(driver: Driver) -> None:
    from phronomy.testing import Fault

    refused = Fault(status=400, body={"error": {"message": "This model does not support image input."}})
    with ChatServer([call("dot"), refused]) as server:
        model = ChatCompletionsModel("text-only", base_url=server.base_url, api_key=KEY, retry_wait=0)
        with pytest.raises(ModelError) as caught:
            driver.invoke(agent(model), "Go")
    assert caught.value.status_code == 400 and "base64" not in str(caught.value)

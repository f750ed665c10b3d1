"""The Messages API without litellm, judged by Anthropic's own SDK: its types take what is sent, and its client reads what we read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from anthropic import Anthropic
from anthropic.types import MessageCreateParams
from drivers import STREAMED, Driver
from pydantic import AnyUrl, BaseModel, Field, TypeAdapter
from tables import each
from test_images import GIF, PNG, part, text

from phronomy import (
    Agent,
    Approve,
    ConfigurationError,
    ContextLengthError,
    Image,
    Message,
    MessagesModel,
    ModelError,
    ModelReply,
    ModelRequest,
    ModelSettings,
    RateLimitError,
    Reject,
    ReplyIncomplete,
    ReplyUnsupported,
    Usage,
    tool,
)
from phronomy.models.formats.answer_schema import answer_schema
from phronomy.models.formats.messages import request_options, wire_messages
from phronomy.records.messages import ToolCall
from phronomy.testing import ChatServer, Fault, call, say

PARAMS: TypeAdapter[Any] = TypeAdapter(MessageCreateParams)
KEY = "key-canary-2Qd8"
USER = Message(role="user", content="Hi")
PDF = "JVBERi0xLjQKJSVFT0YK"


def valid(body: dict[str, Any]) -> None:
    """The SDK's types take the body, and know each field of it: pydantic leaves out what a type does not name."""
    assert plain(PARAMS.validate_python(body)) == body


def plain(value: Any) -> Any:
    """The value with the iterators that pydantic makes of lists consumed, which is when it looks at what is in them."""
    if isinstance(value, BaseModel):  # the types of a reply are taken in a request, too
        return value.model_dump(exclude_unset=True)
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (str, int, float)) or value is None:
        return value
    return [plain(one) for one in value]


def image(media_type: str, data: bytes) -> dict[str, Any]:
    base64 = part(data)["image_url"]["url"].partition(",")[2]
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": base64}}


def made(**options: Any) -> MessagesModel:
    return MessagesModel("claude-opus-5", **{"api_key": KEY, "retry_wait": 0, **options})


def sent(settings: ModelSettings, name: str = "claude-opus-5", tools: tuple[Any, ...] = ()) -> dict[str, Any]:
    with ChatServer(["Hello"]) as server, MessagesModel(name, base_url=server.base_url, api_key=KEY) as model:
        model.complete(ModelRequest(system="Be kind.", messages=(USER,), settings=settings, tools=tools))
    [body] = server.requests
    return body


# The request

LOOK = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}},
}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@each(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"tool_choice": "auto"}, {"tool_choice": {"type": "auto"}}),
        ({"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
        (
            {"tool_choice": "none", "parallel_tool_calls": False},
            {"tool_choice": {"type": "none"}},
        ),
        (
            {"tool_choice": "look", "parallel_tool_calls": False},
            {"tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True}},
        ),
        ({"parallel_tool_calls": False}, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
        (
            {"parallel_tool_calls": False, "extra": {"tool_choice": {"type": "any"}}},
            {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        ),
        ({"stop": ("END",)}, {"stop_sequences": ["END"]}),
        ({"max_tokens": 50}, {"max_tokens": 50}),
        ({"extra": {"tools": [SEARCH]}}, {"tools": [SEARCH, {**LOOK["function"]}]}),
        (
            {"extra": {"cache_control": {"type": "ephemeral"}, "service_tier": "auto"}},
            {"cache_control": {"type": "ephemeral"}, "service_tier": "auto"},
        ),
    ],
)
def test_settings_are_said_in_the_words_of_the_protocol(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    body = sent(ModelSettings(**settings), tools=(LOOK,))
    valid(body)
    function = LOOK["function"]
    named = {"name": "look", "description": "Look.", "input_schema": function["parameters"]}  # type: ignore[index]
    tools = [named if each == function else each for each in expected.get("tools", [function])]
    assert body == {
        "model": "claude-opus-5",
        "max_tokens": 32_000,
        "system": "Be kind.",
        "messages": [{"role": "user", "content": [text("Hi")]}],
        **expected,
        "tools": tools,
    }


@each(
    ("name", "extra", "expected"),
    [
        ("claude-3-haiku-20240307", {}, {"max_tokens": 4_096}),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", {}, {"max_tokens": 4_096}),
        ("claude-3-7-sonnet-20250219", {}, {"max_tokens": 32_000}),
        ("claude-opus-4-1", {}, {"max_tokens": 32_000}),
        ("claude-of-next-year", {}, {"max_tokens": 32_000}),
        (
            "claude-sonnet-4-5",
            {"thinking": {"type": "enabled", "budget_tokens": 30_000}},
            {"max_tokens": 38_192, "thinking": {"type": "enabled", "budget_tokens": 30_000}},
        ),
    ],
)
def test_how_much_may_be_written_is_always_said(name: str, extra: Any, expected: dict[str, Any]) -> None:
    body = sent(ModelSettings(extra=extra), name)
    valid(body)
    assert {key: body[key] for key in expected} == expected


BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
ADAPTIVE = {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}}


@each(
    ("name", "extra", "expected"),
    [
        *(
            (name, {"reasoning_effort": "low"}, BUDGET)
            for name in (
                *("claude-3-7-sonnet-20250219", "claude-opus-4-20250514", "claude-opus-4-1", "claude-sonnet-4-0"),
                *(
                    "claude-sonnet-4-5",
                    "claude-sonnet-4-5-20250929",
                    "claude-haiku-4-5",
                    "us.anthropic.claude-sonnet-4@20250514",
                ),
            )
        ),
        *(
            (name, {"reasoning_effort": "minimal"}, ADAPTIVE)
            for name in (
                *(
                    "claude-opus-4-6",
                    "claude-opus-4-6-20260205",
                    "claude-sonnet-4-6",
                    "claude-opus-4-7",
                    "claude-opus-5",
                ),
                *("claude-haiku-5-5", "claude-mythos-preview", "model-of-another"),
            )
        ),
        ("claude-opus-5", {"reasoning_effort": "xhigh", **BUDGET}, {**BUDGET, "output_config": {"effort": "xhigh"}}),
        ("claude-sonnet-4-5", {"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        ("claude-opus-5", {"reasoning_effort": "max", "output_config": {"effort": "low"}}, ADAPTIVE),
    ],
)
def test_how_much_a_model_thinks_is_said_as_it_takes_it(name: str, extra: Any, expected: dict[str, Any]) -> None:
    body = sent(ModelSettings(extra=extra), name)
    valid(body)
    found = {key: value for key, value in body.items() if key in ("thinking", "output_config", "reasoning_effort")}
    assert found == expected


@each(
    ("settings", "why"),
    [
        ({"seed": 1}, "has no `seed`"),
        ({"extra": {"response_format": {"type": "json_object"}}}, "give the agent an output_type"),
    ],
)
def test_what_the_api_has_not_is_told(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        request_options(ModelSettings(**settings), ())


def test_the_key_and_the_version_are_in_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    import respx

    answer = {"content": [text("Hello")], "stop_reason": "end_turn"}
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    seen = {}
    for address in (None, "http://gate.test/anthropic", "http://gate.test/anthropic/v1/"):
        monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
        if address is not None:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", address)
        version = {"Anthropic-Version": "2023-01-01"} if address else {}  # one's own, for a gateway
        own = {"anthropic-beta": "files-api-2025-04-14", **version}
        beta = ModelSettings(extra={"extra_headers": own})
        with respx.mock(using="httpcore2") as router, MessagesModel("anthropic/claude-opus-5", settings=beta) as model:
            route = router.post().respond(200, json=answer)
            model.complete(ModelRequest(messages=(USER,)))
            request = route.calls.last.request
        seen[address] = str(request.url)
        names = ("x-api-key", "anthropic-version", "anthropic-beta", "authorization")
        assert [request.headers.get(name) for name in names] == [
            KEY,
            *(version.values() or ["2023-06-01"]),
            "files-api-2025-04-14",
            None,
        ]
        assert (model.name, json.loads(request.content)["model"]) == ("anthropic/claude-opus-5", "claude-opus-5")
    gate = "http://gate.test/anthropic/v1/messages"
    expected = {None: "https://api.anthropic.com/v1/messages"}
    assert seen == {**expected, "http://gate.test/anthropic": gate, "http://gate.test/anthropic/v1/": gate}


# Histories

CALLED = Message(role="assistant", content=None, tool_calls=(ToolCall(id="c:1.é", name="a.b", arguments="[1]"),))


@each(
    ("history", "expected"),
    [
        pytest.param(
            [Message(role="user", content=[text("See"), part(PNG), text(" "), part(GIF, "image/gif")])],
            [("user", [text("See"), image("image/png", PNG), image("image/gif", GIF)])],
            id="images",
        ),
        pytest.param(
            [Message(role="user", content=[{"type": "image_url", "image_url": "https://x.test/a.png"}])],
            [("user", [{"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}])],
            id="an image at an address",
        ),
        pytest.param(
            [
                Message(
                    role="user",
                    content=[
                        {
                            "type": "file",
                            "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
                        },
                        {"type": "file", "file": {"file_data": "data:text/plain;base64,SGk="}},
                        {"type": "document", "source": {"type": "url", "url": "https://x.test/a.pdf"}},
                    ],
                )
            ],
            [
                (
                    "user",
                    [
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                            "title": "a.pdf",
                        },
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hi"}},
                        {"type": "document", "source": {"type": "url", "url": "https://x.test/a.pdf"}},
                    ],
                )
            ],
            id="documents",
        ),
        pytest.param(
            [USER, CALLED, Message(role="tool", tool_call_id="c:1.é", content="", settlement="completed"), USER],
            [
                ("user", [text("Hi")]),
                ("assistant", [{"type": "tool_use", "id": "call_ID", "name": "a_b", "input": {}}]),
                ("user", [{"type": "tool_result", "tool_use_id": "call_ID"}, text("Hi")]),
            ],
            id="a call of another provider",
        ),
        pytest.param(
            [USER, Message(role="assistant", content=" \n"), USER, Message(role="user", content="  ")],
            [("user", [text("Hi"), text("Hi")])],
            id="a reply in which nothing was said",
        ),
        pytest.param(
            [USER, Message(role="assistant", content=[text("a"), text("b")], provider={"reasoning": "x"})],
            [("user", [text("Hi")]), ("assistant", [text("a"), text("b")])],
            id="parts of another provider",
        ),
        pytest.param(
            [USER, Message(role="assistant", content="", provider={"refusal": "I cannot."})],
            [("user", [text("Hi")]), ("assistant", [text("I cannot.")])],
            id="a refusal of another provider",
        ),
    ],
)
def test_any_history_is_sent_as_the_provider_takes_it(history: list[Message], expected: list[Any]) -> None:
    found: Any = wire_messages(history)
    digest = next((block["id"] for said in found for block in said["content"] if block["type"] == "tool_use"), "")
    told = json.loads(json.dumps(found).replace(digest or "\0", "call_ID"))
    assert [(said["role"], said["content"]) for said in told] == expected
    valid({"model": "m", "max_tokens": 1, "messages": found})


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "Eq+/=="}
ORDER = [{"kind": "text", "size": 2}, {"kind": "thinking"}, {"kind": "text", "size": 1}]


@each(
    ("content", "provider", "expected"),
    [
        pytest.param("abc", {"thinking_blocks": [THOUGHT]}, [THOUGHT, text("abc")], id="as litellm keeps it"),
        pytest.param(
            "abc",
            {"thinking_blocks": [THOUGHT], "phronomy": {"blocks": ORDER}},
            [text("ab"), THOUGHT, text("c")],
            id="whole",
        ),
        pytest.param(
            "ab", {"thinking_blocks": [THOUGHT], "phronomy": {"blocks": ORDER}}, [text("ab")], id="text is gone"
        ),
        pytest.param(
            "abcd", {"thinking_blocks": [THOUGHT], "phronomy": {"blocks": ORDER}}, [text("abcd")], id="more text"
        ),
        pytest.param(
            "abc", {"thinking_blocks": [], "phronomy": {"blocks": ORDER}}, [text("abc")], id="a thought is gone"
        ),
        pytest.param("abc", {"thinking_blocks": [{"type": "text"}]}, [text("abc")], id="no thought"),
        pytest.param("abc", {"thinking_blocks": "x"}, [text("abc")], id="no list"),
        pytest.param("abc", {"thinking_blocks": [THOUGHT], "phronomy": {"blocks": 1}}, [text("abc")], id="no order"),
        pytest.param("", {"thinking_blocks": [THOUGHT]}, None, id="thinking that led to nothing"),
    ],
)
def test_thinking_goes_back_with_what_it_led_to_and_with_nothing_else(
    content: str, provider: dict[str, Any], expected: list[Any] | None
) -> None:
    message = Message(role="assistant", content=content, provider=provider)
    found = [said["content"] for said in wire_messages([USER, message]) if said["role"] == "assistant"]
    assert found == ([] if expected is None else [expected])


@tool
def chart(year: int) -> list[str | Image]:
    """Draw the sales of a year."""
    return [f"Sales of {year}:", Image(PNG)]


@tool
def broken() -> str:
    """Break."""
    raise ValueError("no such order")


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


def test_each_call_has_its_result_and_a_failed_one_says_so(driver: Driver) -> None:
    asked = [
        call("chart", {"year": 2026}),
        call("broken", {}),
        call("refund", {"order": 1}),
        call("refund", {"order": 2}),
    ]
    with ChatServer([asked, "Done."]) as server, made(base_url=server.base_url) as model:
        agent = Agent(name="desk", model=model, tools=[chart, broken, refund], instructions="Be kind.")
        stopped = driver.invoke(agent, "Go")
        one, other = stopped.checkpoint.pending
        done = driver.resume(agent, stopped.checkpoint, decisions={one.id: Approve(), other.id: Reject()}, by="ann")
    assert done.output == "Done."
    for body in server.requests:
        valid(body)
    said, results = (message["content"] for message in server.requests[1]["messages"][1:])
    assert [block["id"] for block in said] == [block["tool_use_id"] for block in results]
    assert results[0]["content"] == [text("Sales of 2026:"), image("image/png", PNG)]
    assert [block.get("is_error", False) for block in results] == [False, True, False, True]


# Structured output


class Part(BaseModel):
    label: str = Field(min_length=1, pattern="[a-z]+")
    minimum: int = Field(ge=1, le=9, description="How many.")


class Order(BaseModel):
    parts: list[Part] = Field(min_length=2)
    link: AnyUrl | None = None
    kind: Literal["old", "new"] = "old"


def test_an_output_type_is_a_schema_that_the_provider_takes(driver: Driver) -> None:
    answer = {"parts": [{"label": "a", "minimum": 1}] * 2, "link": None, "kind": "new"}
    with ChatServer([json.dumps(answer)]) as server, made(base_url=server.base_url) as model:
        done = driver.invoke(Agent(name="desk", model=model, output_type=Order), "Go")
    assert done.output == Order.model_validate(answer)
    [body] = server.requests
    valid(body)
    form = body["output_config"]["format"]
    assert (form["type"], body.get("response_format")) == ("json_schema", None)
    kind = form["schema"]["$defs"]["Part"]
    assert kind["additionalProperties"] is False
    assert kind["properties"]["minimum"]["description"] == 'How many. {"maximum":9,"minimum":1}'
    assert set(kind["properties"]["label"]) == {"description", "title", "type"}
    assert json.loads(kind["properties"]["label"]["description"]) == {"minLength": 1, "pattern": "[a-z]+"}
    assert form["schema"]["properties"]["link"]["anyOf"][0]["format"] == "uri"


@each(
    ("schema", "expected"),
    [
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, None),
        ({"type": "string", "format": "date"}, None),
        ({"type": "string", "format": "path"}, {"type": "string", "description": '{"format":"path"}'}),
        ({"oneOf": [{"type": "null"}], "discriminator": {}}, {"anyOf": [{"type": "null"}]}),
        ({"$ref": "#/$defs/A", "maximum": 1}, {"$ref": "#/$defs/A"}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, None),
        ({"enum": [{"minimum": 1}], "items": True}, None),
    ],
)
def test_a_schema_keeps_what_the_provider_takes(schema: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert answer_schema(schema) == (schema if expected is None else expected)


# The reply

REPLIES: dict[str, Any] = {
    "a text": "It is on its way, über\u2028night.",
    "nothing": "",
    "calls": say("Both.", call("refund", '{ "order":1 }', id="a"), call("chart", {}, id="b")),
    "thinking": {
        "content": [
            THOUGHT,
            {"type": "redacted_thinking", "data": "b64=="},
            text("I see."),
            {"type": "thinking", "thinking": "", "signature": "Er=="},
            {"type": "tool_use", "id": "toolu_1", "name": "refund", "input": {"order": 1, "deep": {"b": [5.0, None]}}},
        ]
    },
    "tools of the provider": {
        "content": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [
                    {"type": "web_search_result", "url": "https://x.test", "title": "X", "encrypted_content": "E=="}
                ],
            },
            {
                **text("It is so."),
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "url": "https://x.test",
                        "title": "X",
                        "encrypted_index": "I==",
                        "cited_text": "so",
                    }
                ],
            },
        ]
    },
}
USED = Usage(input_tokens=20, cached_tokens=5, output_tokens=9, reasoning_tokens=3)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("said", REPLIES.values(), ids=REPLIES)
def test_the_client_of_the_vendor_reads_the_same_reply(said: Any, streamed: bool) -> None:
    reply = say(said, usage=USED) if isinstance(said, str) else said
    request = ModelRequest(messages=(USER,))
    with ChatServer(lambda _: reply) as server, made(base_url=server.base_url) as model:
        if streamed:
            *_, mine = model.stream(request)
        else:
            mine = model.complete(request)
        asked = {key: value for key, value in server.requests[0].items() if key != "stream"}
        address = server.base_url.removesuffix("/v1")
        with Anthropic(base_url=address, api_key="none", max_retries=0, timeout=60) as client:
            if streamed:
                with client.messages.stream(**asked) as events:
                    theirs = events.get_final_message()
            else:
                theirs = client.messages.create(**asked)
    assert server.requests[0] == server.requests[1]
    assert isinstance(mine, ModelReply)
    content = [block.to_dict(exclude_unset=True) for block in theirs.content]
    blocks = [block for said in wire_messages([USER, mine.message])[1:] for block in said["content"]]  # type: ignore[union-attr]
    assert blocks == [block for block in content if block.get("text") != ""]
    valid({"model": "m", "max_tokens": 1, "messages": wire_messages([USER, mine.message, USER])})
    assert (mine.id, mine.model) == (theirs.id, theirs.model)
    assert mine.finish_reason == {"end_turn": "stop", "tool_use": "tool_calls"}[theirs.stop_reason or ""]
    counts = theirs.usage
    assert mine.usage.input_tokens == counts.input_tokens + (counts.cache_read_input_tokens or 0)
    assert mine.usage.cached_tokens == counts.cache_read_input_tokens
    assert mine.usage.output_tokens == counts.output_tokens
    assert mine.usage.reasoning_tokens == (
        counts.output_tokens_details.thinking_tokens if counts.output_tokens_details else 0
    )


def body(*content: Any, reason: Any = "end_turn", **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [*content], "stop_reason": reason, **more}


CUT = {"type": "tool_use", "id": "c", "name": "refund", "input": {"order": 1}}


@each(
    ("reason", "whole"),
    [
        *(("end_turn", True), ("stop_sequence", True)),
        *(
            (each, False)
            for each in ("max_tokens", "pause_turn", "model_context_window_exceeded", "tool_use", "new", None, 5)
        ),
    ],
)
def test_half_an_answer_is_none(driver: Driver, reason: Any, whole: bool) -> None:
    with ChatServer([Fault(status=200, body=body(text("It is"), reason=reason))]) as server:
        agent = Agent(model=made(base_url=server.base_url))
        if whole:
            assert driver.invoke(agent, "Go").output == "It is"
            return
        with pytest.raises(ReplyIncomplete) as caught:
            driver.invoke(agent, "Go")
    words = {"max_tokens": "length", "tool_use": "tool_calls", None: "unknown", 5: "unknown"}
    assert (caught.value.finish_reason, caught.value.text) == (words.get(reason, reason), "It is")


@each("reason", ["max_tokens", "pause_turn", "model_context_window_exceeded", "stop_sequence", "new", None])
def test_a_call_that_was_cut_off_never_runs(driver: Driver, reason: Any) -> None:
    half = Fault(status=200, body=body(CUT, reason=reason))
    with ChatServer([half, "Sorry."]) as server:
        done = driver.invoke(Agent(model=made(base_url=server.base_url), tools=[refund]), "Go")
    assert (done.status, done.output) == ("completed", "Sorry.")
    [result] = server.requests[1]["messages"][2]["content"]
    assert (result["tool_use_id"], result["is_error"]) == ("c", True)


@each(
    ("answer", "kind", "why"),
    [
        (body({"type": "computer_call"}), ReplyUnsupported, "computer_call"),
        ({"type": "message", "stop_reason": "end_turn"}, ModelError, "no list of content blocks"),
        ({**body(), "role": "user"}, ModelError, "no list of content blocks"),
        (body({"type": "tool_use", "id": "c", "input": {}}), ModelError, "names no tool"),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
            ModelError,
            "status 529",
        ),
    ],
)
def test_an_answer_that_is_none_is_an_error(driver: Driver, answer: dict[str, Any], kind: Any, why: str) -> None:
    with ChatServer([Fault(status=200, body=answer)] * 3) as server, pytest.raises(kind, match=why) as caught:
        driver.invoke(Agent(model=made(base_url=server.base_url), tools=[refund]), "Go")
    assert type(caught.value) is kind


@each(
    ("status", "error", "kind"),
    [
        (
            400,
            {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000"},
            ContextLengthError,
        ),
        (
            400,
            {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 199000 + 8000",
            },
            ContextLengthError,
        ),
        (429, {"type": "rate_limit_error", "message": "slower"}, RateLimitError),
        (529, {"type": "overloaded_error", "message": "busy"}, ModelError),
    ],
)
def test_the_errors_of_the_provider_are_told_apart(driver: Driver, status: int, error: Any, kind: Any) -> None:
    fault = Fault(status=status, body={"type": "error", "error": error})
    with ChatServer([fault] * 3) as server, pytest.raises(kind) as caught:
        driver.invoke(Agent(model=made(base_url=server.base_url)), "Go")
    assert (type(caught.value), caught.value.status_code) == (kind, status)
    assert len(server.requests) == (1 if status == 400 else 3)


# Streams

START = {"type": "message_start", "message": {**body(reason=None), "usage": {"input_tokens": 3, "output_tokens": 1}}}
STOP = {"type": "message_stop"}


def block(index: Any, begun: Any, *deltas: Any, stops: bool = True) -> Iterator[dict[str, Any]]:
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    if stops:
        yield {"type": "content_block_stop", "index": index}


def ended(reason: Any = "end_turn") -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 4}}


def json_piece(said: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": said}


def text_piece(said: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": said}


USE = {"type": "tool_use", "id": "c", "name": "refund", "input": {}}
TEXT = {"type": "text", "text": ""}


@each(
    ("events", "why"),
    [
        ([*block(0, TEXT, text_piece("It"))], "cut off before its end"),
        ([*block(0, TEXT, text_piece("It")), ended()], "cut off before its end"),
        ([*block(0, TEXT, text_piece("It")), ended(), "[DONE]"], "cut off before its end"),
        ([*block(0, TEXT, text_piece("It"), stops=False), ended(), STOP], "before a content block in it did"),
        ([*block(0, USE, json_piece('{"order": 1}'), stops=False), ended("tool_use"), STOP], "before a content block"),
        ([*block(0, USE), *block(0, USE), ended("tool_use"), STOP], "begins twice"),
        ([*block(0, "x"), STOP], "is no object"),
        ([*block(True, TEXT), STOP], "no number"),
        ([*block(-1, TEXT), STOP], "no number"),
        (
            [*block(0, USE), {"type": "content_block_delta", "index": 0, "delta": json_piece("{}")}, STOP],
            "no content block",
        ),
        (
            [{"type": "content_block_delta", "index": 4, "delta": json_piece("{}")}, STOP],
            "no content block that is open",
        ),
        ([*block(0, TEXT, json_piece("{}")), ended(), STOP], "does not fit"),
        ([*block(0, USE, text_piece("x")), ended(), STOP], "does not fit"),
        (
            [*block(0, {**USE, "input": {"order": 2}}, json_piece('{"order": 1}')), ended("tool_use"), STOP],
            "two inputs",
        ),
        ([*block(0, TEXT), {"type": "error", "error": {"type": "overloaded_error"}}], "status 529"),
        (["{"], "not JSON"),
        (["[]"], "not an object"),
    ],
)
def test_a_stream_that_is_not_whole_gives_no_reply(events: list[Any], why: str) -> None:
    with (
        ChatServer([Fault.stream(START, *events)] * 3) as server,
        made(base_url=server.base_url) as model,
        pytest.raises(ModelError, match=why),
    ):
        list(model.stream(ModelRequest(messages=(USER,))))


@each(
    ("events", "arguments", "reason"),
    [
        ([*block(0, USE, json_piece(""), json_piece('{ "order"'), json_piece(":1}"))], ['{ "order":1}'], "tool_use"),
        ([*block(0, USE, json_piece(""))], ["{}"], "tool_use"),
        ([*block(0, {**USE, "input": {"order": 1}})], ['{"order":1}'], "tool_use"),
        ([*block(0, {**USE, "input": {"order": 1}}, json_piece('{"order": 1}'))], ['{"order": 1}'], "tool_use"),
        (
            [{"type": "new"}, *block(1, USE), *block(0, {**USE, "id": "d"}, json_piece('{"a":1}'))],
            ['{"a":1}', "{}"],
            "tool_use",
        ),
        ([*block(0, USE, json_piece('{"order"'), stops=False)], ['{"order"'], "max_tokens"),
    ],
)
def test_a_call_gets_the_input_of_its_own_block(events: list[Any], arguments: list[str], reason: str) -> None:
    with ChatServer([Fault.stream(START, *events, ended(reason), STOP, "never read")]) as server:
        *_, reply = made(base_url=server.base_url).stream(ModelRequest(messages=(USER,)))
    assert isinstance(reply, ModelReply)
    assert [each.arguments for each in reply.message.tool_calls] == arguments
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 4)


SERVER = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}


def test_blocks_that_are_not_known_yet_are_put_together_by_their_shape() -> None:
    pieces = [{"type": "compaction_delta", "content": each} for each in ("So ", "far.")]
    events = [
        *block(0, {"type": "compaction", "content": ""}, *pieces),
        *block(1, SERVER, json_piece('{"q'), json_piece('": 1}')),
        *block(2, SERVER, json_piece('{"q')),
        *block(3, TEXT, text_piece("Hi.")),
    ]
    with ChatServer([Fault.stream(START, *events, ended(), STOP)]) as server:
        *_, reply = made(base_url=server.base_url).stream(ModelRequest(messages=(USER,)))
    assert isinstance(reply, ModelReply)
    [_, said] = wire_messages([USER, reply.message])
    assert said["content"] == [{"type": "compaction", "content": "So far."}, {**SERVER, "input": {"q": 1}}, text("Hi.")]


@pytest.mark.parametrize("driver", STREAMED, ids=str)
def test_an_overloaded_provider_is_asked_again_until_it_has_said_something(driver: Driver) -> None:
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    with ChatServer([Fault.stream(START, busy), Fault(status=529), "Hello"]) as server:
        assert driver.invoke(Agent(model=made(base_url=server.base_url)), "Go").output == "Hello"
        assert len(server.requests) == 3
    with (
        ChatServer([Fault.stream(START, *block(0, TEXT, text_piece("It")), busy)]) as server,
        pytest.raises(ModelError) as caught,
    ):
        driver.invoke(Agent(model=made(base_url=server.base_url)), "Go")
    assert (caught.value.status_code, len(server.requests)) == (529, 1)


# The server of the tests


@each(
    ("wrong", "why"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 9}}, "greater than"),
        ({"messages": [{"role": "system", "content": "x"}]}, "user or assistant"),
        ({"messages": [{"role": "user", "content": []}]}, "non-empty content"),
        ({"messages": [{"role": "user", "content": " "}]}, "non-whitespace"),
        ({"messages": [{"role": "user", "content": [THOUGHT]}]}, "no such block"),
        ({"messages": [{"role": "assistant", "content": [image("image/png", PNG)]}]}, "no such block"),
        ({"messages": [{"role": "assistant", "content": [{**USE, "input": "{}"}]}]}, "an object"),
        ({"messages": [{"role": "assistant", "content": [{**USE, "id": "a:b"}]}]}, "letters"),
        ({"messages": [{"role": "assistant", "content": [USE]}]}, "before the results"),
        ({"messages": [{"role": "assistant", "content": [text("a"), THOUGHT]}]}, "final block"),
        ({"messages": [{"role": "assistant", "content": [{**THOUGHT, "signature": None}, text("a")]}]}, "signature"),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [USE]},
                    {"role": "user", "content": [text("a"), {"type": "tool_result", "tool_use_id": "c"}]},
                ]
            },
            "come first",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [USE]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [USE]}]},
                ]
            },
            "the content of a result",
        ),
    ],
)
def test_the_server_refuses_what_the_provider_refuses(wrong: dict[str, Any], why: str) -> None:
    import httpx

    good = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Go"}]}
    with ChatServer(["Hi"]) as server, httpx.Client(trust_env=False) as client:
        answer = client.post(f"{server.base_url}/messages", json={**good, **wrong})
        assert answer.status_code == 400 and why in answer.text
        assert client.post(f"{server.base_url}/messages", json=good).status_code == 200

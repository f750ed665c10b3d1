"""`LiteLLMModel` and the client it hands to litellm: the same requests, the same replies, for less work."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import respx

from phronomy.errors import ModelError
from phronomy.models import LiteLLMModel, ModelReply, ModelRequest, ModelSettings
from phronomy.models import litellm as module
from phronomy.models.http.openai_client import LeanClient, lean_client
from phronomy.records.messages import Message, ToolCall
from phronomy.testing import ChatServer, say

KEY = "key-canary-5Yb2"
URL = "https://gateway.test/v1"
USER = Message(role="user", content="Refund order 1042")
REQUEST = ModelRequest(messages=(USER,))
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "refund",
        "description": "Refund an order, in €.",
        "parameters": {"type": "object", "properties": {"order_id": {"type": "integer"}}, "required": ["order_id"]},
    },
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object", "properties": {}}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
CALLED = Message(
    role="assistant",
    content="Hm.",
    tool_calls=(ToolCall(id="c1", name="refund", arguments='{ "order_id":1042 }'),),
    provider={"reasoning_details": [{"type": "reasoning.encrypted", "data": "…"}], "zeta": {"b": 1, "a": 5.0}},
)
HISTORY = (USER, CALLED, Message(role="tool", tool_call_id="c1", content="done", settlement="completed"))


@pytest.fixture(autouse=True)
def litellm_uses_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.set_event_loop(None)
    monkeypatch.setattr(module._load(), "disable_aiohttp_transport", True)  # respx mocks httpx


# Four ways to ask, and two ways there

Ask = Callable[[LiteLLMModel, ModelRequest], Any]


def complete(model: LiteLLMModel, request: ModelRequest) -> Any:
    return model.complete(request)


def stream(model: LiteLLMModel, request: ModelRequest) -> Any:
    return list(model.stream(request))


def awaited(asked: Callable[[LiteLLMModel, ModelRequest], Any]) -> Ask:
    def ask(model: LiteLLMModel, request: ModelRequest) -> Any:
        async def main() -> Any:
            try:
                return await asked(model, request)
            finally:
                await module._load().close_litellm_async_clients()
                module._load().in_memory_llm_clients_cache.flush_cache()  # the next loop may have the same address

        return asyncio.run(main())

    return ask


async def streamed(model: LiteLLMModel, request: ModelRequest) -> Any:
    return [piece async for piece in model.astream(request)]


acomplete = awaited(lambda model, request: model.acomplete(request))
astream = awaited(streamed)


def outcome(ask: Ask, model: LiteLLMModel, request: ModelRequest) -> Any:
    """What came of it: what was given, or the error as it was raised."""
    try:
        return ask(model, request)
    except ModelError as error:
        cause = type(error.__cause__).__name__
        return type(error), str(error), error.status_code, getattr(error, "retry_after", None), cause


def sent(route: respx.Route) -> list[Any]:
    """All that the provider was sent, to the byte."""
    return [
        (call.request.method, str(call.request.url), call.request.headers.raw, call.request.content)
        for call in route.calls
    ]


def both_ways(
    ask: Ask, request: ModelRequest, answer: Any, monkeypatch: pytest.MonkeyPatch, *, name: str = "openai/gpt-4o-mini"
) -> tuple[Any, list[Any]]:
    """What came of it and what was sent, which is the same with our client and without."""
    model = LiteLLMModel(name, base_url=URL, api_key=KEY, retry_wait=0, max_attempts=2)
    handed_in: list[Any] = []

    def spied(*arguments: Any, **options: Any) -> Any:
        handed_in.append(lean_client(*arguments, **options))
        return handed_in[-1]

    found = []
    for way in (spied, lambda *arguments, **options: None):
        monkeypatch.setattr(module, "lean_client", way)
        with respx.mock(assert_all_called=False) as router:
            route = router.post(url__startswith=URL).mock(side_effect=lambda _: answer())
            found.append((outcome(ask, model, request), sent(route)))
    assert handed_in and all(isinstance(client, LeanClient) for client in handed_in)
    assert found[0] == found[1]
    return found[0]


WAYS = [complete, acomplete, stream, astream]
NAMES = ["complete", "acomplete", "stream", "astream"]


def whole(message: Any = None, **other: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message or {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    } | other


def events() -> httpx.Response:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 5, "model": "m"}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {"content": "lo."}, "finish_reason": "stop"}]},
        {**head, "choices": [], "usage": whole()["usage"]},
    ]
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)


# What is sent


@pytest.mark.parametrize("ask", WAYS, ids=NAMES)
@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (REQUEST, "openai/gpt-4o-mini"),
        (ModelRequest(system="Be kind. ✓", messages=HISTORY, tools=(TOOL, TOOL)), "openai/gpt-4o-mini"),
        (
            ModelRequest(messages=(Message(role="user", content=[{"type": "text", "text": "?"}, IMAGE]),)),
            "openai/my/own",
        ),
        (
            ModelRequest(
                messages=HISTORY,
                tools=(TOOL,),
                settings=ModelSettings(
                    temperature=0.0,
                    top_p=0.5,
                    max_tokens=7,
                    tool_choice="refund",
                    parallel_tool_calls=False,
                    stop=("END", "\n"),
                    seed=1,
                    timeout=5.5,
                ),
            ),
            "openai/gpt-4o-mini",
        ),
        (
            ModelRequest(
                messages=(USER,),
                settings=ModelSettings(
                    extra={
                        "response_format": SCHEMA,
                        "user": "ada",
                        "presence_penalty": 0.5,
                        "extra_headers": {"X-Team": "desk"},
                        "extra_body": {"top_k": 3, "nested": {"deep": [1, {"a": None}]}},
                    }
                ),
            ),
            "openai/gpt-4o-mini",
        ),
        (
            ModelRequest(
                messages=(USER,),
                tools=(TOOL,),
                settings=ModelSettings(extra={"extra_body": {"messages": [], "tools": None, "seed": 3}}),
            ),
            "openai/gpt-4o-mini",
        ),
        (
            ModelRequest(messages=(USER,), settings=ModelSettings(extra={"stream_options": None})),
            "openai/gpt-4o-mini",
        ),
        (
            ModelRequest(
                messages=(USER,),
                settings=ModelSettings(max_tokens=9, extra={"reasoning_effort": "low", "verbosity": "low"}),
            ),
            "openai/gpt-5",
        ),
    ],
    ids=["bare", "history", "image", "settings", "extra", "overruled", "no-stream-options", "reasoning"],
)
def test_the_same_bytes_are_sent(ask: Ask, request_: ModelRequest, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = events if ask in (stream, astream) else lambda: httpx.Response(200, json=whole())
    reply, calls = both_ways(ask, request_, answer, monkeypatch, name=name)
    reply = reply[-1] if isinstance(reply, list) else reply
    assert isinstance(reply, ModelReply)
    assert reply.message.text == "Hello."
    ((method, url, headers, content),) = calls
    assert (method, url) == ("POST", f"{URL}/chat/completions")
    assert dict(headers)[b"Authorization"] == f"Bearer {KEY}".encode()
    assert json.loads(content)["model"] == name.removeprefix("openai/")


@pytest.mark.parametrize("ask", [complete, acomplete], ids=["sync", "async"])
def test_the_organization_of_the_environment_is_named(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_ORGANIZATION", "OPENAI_ORG_ID"):
        monkeypatch.setenv(variable, f"org-{variable}")
        _, calls = both_ways(ask, REQUEST, lambda: httpx.Response(200, json=whole()), monkeypatch)
        assert dict(calls[0][2])[b"OpenAI-Organization"] == f"org-{variable}".encode()
        monkeypatch.delenv(variable)
        module._load().in_memory_llm_clients_cache.flush_cache()


# What comes back


def call(**other: Any) -> dict[str, Any]:
    made = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order_id": 1042}'}}
    return {"role": "assistant", "content": None, "tool_calls": [{**made, **other}]}


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.few(40)
@pytest.mark.parametrize("ask", WAYS[:2], ids=NAMES[:2])
@pytest.mark.parametrize(
    "body",
    [
        whole(),
        whole(usage=None),
        whole({"role": "assistant", "content": ""}),
        whole({"role": "assistant", "content": "<think>Hm.</think>Hello."}),
        whole({"role": "assistant", "content": None, "refusal": "No.", "annotations": [], "audio": None}),
        whole({"role": "assistant", "reasoning": "Hm.", "content": "x", "zeta": {"b": 1, "a": [None]}, "alpha": None}),
        whole({"role": "assistant", "content": "x", "reasoning_content": "Hm.", "thinking_blocks": []}),
        whole({"role": "assistant", "content": [{"type": "text", "text": "x"}]}),
        whole({"role": "assistant", "content": "x", "annotations": [{"type": "url_citation", "url_citation": {}}]}),
        whole({"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": "{}"}}),
        whole({"role": None, "content": "x"}),
        whole({"content": "x"}),
        whole({"role": "assistant"}),
        whole({"role": "user", "content": "x"}),
        whole({"role": "assistant", "content": "x", "deep": deep(90)}),
        whole({"role": "assistant", "content": "x", "deep": deep(400)}),
        whole(call()),
        whole(call(extra_content={"google": {"thought_signature": "CiQ+/=="}}, index=0)),
        whole(call(id=None)),
        whole(call(id=7)),
        whole(call(type="custom", custom={"name": "f", "input": "x"})),
        whole(call(type=None)),
        whole(call(function={"name": "refund", "arguments": {"order_id": 1042}})),
        whole(call(function={"name": "refund", "arguments": None, "sig": "Zm9v"})),
        whole(call(function={"name": "", "arguments": "{}"})),
        whole(call(function={"name": None, "arguments": "{}"})),
        whole(call(function=None)),
        whole({"role": "assistant", "content": None, "tool_calls": {"0": 1}}),
        whole({"role": "assistant", "content": None, "tool_calls": [None]}),
        whole(
            call(
                function={
                    "name": "multi_tool_use.parallel",
                    "arguments": '{"tool_uses": [{"recipient_name": "functions.refund", "parameters": {"a": 1}}]}',
                }
            )
        ),
        whole(usage={"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "cost": 0.25}),
        whole(usage={"prompt_tokens": 900, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 800}}),
        whole(usage={"prompt_tokens": 9.0, "completion_tokens": "4"}),
        whole(usage=[1]),
        whole(choices=[]),
        whole(choices=None),
        whole(choices=[5]),
        whole(choices=[{"index": 0, "message": None}]),
        whole(choices=[{"message": {"role": "assistant", "content": "x"}}]),
        whole(choices=[{"message": {"role": "assistant", "content": "x"}, "finish_reason": "odd", "native": 1}] * 2),
        whole(choices=[{"message": {"role": "assistant", "content": "x"}, "finish_reason": "content_filter"}]),
        whole(id=None, created="yesterday", model=None, service_tier="flex", system_fingerprint="f", odd={"a": 1}),
        whole(error={"message": "no", "code": 429}),
        whole(error={"message": "", "code": None}),
        whole(error="no"),
        {"error": {"message": "no"}},
        {},
        [],
        "text",
        None,
        b"<html>Bad gateway</html>",
        b"",
        b'{"choices": [{"mess',
        b'{"choices": [{"message": {"role": "assistant", "content": "x", "n": NaN}}]}',
        b"[" * 3_000,
    ],
)
def test_the_same_is_made_of_an_answer(ask: Ask, body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    for kind in ("application/json", "text/html; charset=utf-8"):

        def answer(kind: str = kind) -> httpx.Response:
            return httpx.Response(200, headers={"content-type": kind}, content=content)

        _, calls = both_ways(ask, REQUEST, answer, monkeypatch)
        assert calls


@pytest.mark.few(8)
@pytest.mark.parametrize("ask", WAYS, ids=NAMES)
@pytest.mark.parametrize("status", [204, 302, 400, 401, 408, 422, 429, 500])
def test_the_same_is_made_of_an_error(ask: Ask, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"error": {"message": f"maximum context length; {KEY}", "type": "t", "code": "context_length_exceeded"}}
    bodies: list[dict[str, Any]] = [
        {"json": said, "headers": {"retry-after": "0"}},
        {"html": "<html>Bad gateway</html>"},
        {"json": {"error": "could not finish the message because max_tokens or model output limit was reached"}},
    ]
    for body in bodies:

        def answer(body: dict[str, Any] = body) -> httpx.Response:
            return httpx.Response(status, **body)

        found, calls = both_ways(ask, REQUEST, answer, monkeypatch)
        assert calls and KEY not in str(found)


def test_where_litellm_asks_once_more_the_client_still_asks_once() -> None:
    """litellm forgets on its second try that the client is not to try again, which then does so, twice."""
    error = {"error": {"message": "Conversation roles must alternate user/assistant"}}
    with respx.mock as router:
        route = router.post(url__startswith=URL).mock(side_effect=lambda _: httpx.Response(500, json=error))
        with pytest.raises(ModelError, match="holds no message"):
            LiteLLMModel("openai/my-own", base_url=URL, api_key=KEY, max_attempts=1).complete(REQUEST)
    assert route.call_count == 2


@pytest.mark.parametrize("ask", WAYS, ids=NAMES)
@pytest.mark.parametrize("fault", [httpx.ReadTimeout, httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError])
def test_the_same_is_made_of_a_fault_of_the_way(
    ask: Ask, fault: type[httpx.TransportError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> httpx.Response:
        raise fault("lost")

    (_, _, status, _, _), calls = both_ways(ask, REQUEST, fails, monkeypatch)
    assert (status, len(calls)) == (None, 2)


@pytest.mark.parametrize(
    "body",
    [
        whole(call(extra_content={"a": 1}), service_tier="flex", odd={"a": 1}),
        whole({"role": "assistant", "content": "Hm.", "reasoning": "…", "refusal": None}),
    ],
)
def test_litellm_makes_the_same_of_it_for_those_who_watch_it(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LiteLLMModel("openai/gpt-4o-mini", base_url=URL, api_key=KEY)
    found: list[Any] = []
    for way in (lean_client, lambda *arguments, **options: None):
        monkeypatch.setattr(module, "lean_client", way)
        with respx.mock as router:
            router.post(url__startswith=URL).mock(side_effect=lambda _: httpx.Response(200, json=body))
            arguments = model._arguments(ModelRequest(messages=(USER,), tools=(TOOL,)), awaited=False)
            response = module._load().completion(**arguments)
        hidden = {key: value for key, value in response._hidden_params.items() if not key.endswith(("_ms", "call_id"))}
        found.append((isinstance(arguments.get("client"), LeanClient), response.model_dump(), hidden))
    assert [is_lean for is_lean, *_ in found] == [True, False]
    assert found[0][1:] == found[1][1:]


# Why


@pytest.mark.parametrize("ask", [complete, acomplete], ids=["sync", "async"])
def test_neither_the_request_nor_the_answer_is_taken_apart(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    from openai import _legacy_response
    from openai.resources.chat.completions import completions

    walked: list[dict[str, Any]] = []

    def walks(body: dict[str, Any], *_: Any) -> Any:
        walked.append({key: value for key, value in body.items() if isinstance(value, (dict, list)) and value})
        return {key: value for key, value in body.items() if type(value).__name__ != "Omit"}

    async def awalks(body: dict[str, Any], *_: Any) -> Any:
        return walks(body)

    def parses(self: Any) -> Any:
        raise AssertionError("a record was made of the answer")

    monkeypatch.setattr(completions, "maybe_transform", walks)
    monkeypatch.setattr(completions, "async_maybe_transform", awalks)
    monkeypatch.setattr(_legacy_response.LegacyAPIResponse, "parse", parses)
    model = LiteLLMModel("openai/my-own", base_url=URL, api_key=KEY, max_attempts=1)
    with respx.mock as router:
        router.post(url__startswith=URL).mock(side_effect=lambda _: httpx.Response(200, json=whole(call())))
        reply = ask(model, ModelRequest(messages=HISTORY, tools=(TOOL,)))
    assert [one.name for one in reply.message.tool_calls] == ["refund"]
    assert walked == [{}]


# When


def client_for(**other: Any) -> LeanClient | None:
    options: dict[str, Any] = {"key": KEY, "url": URL, "extra": (), "awaited": False}
    name = other.pop("name", "openai/my-own")
    return lean_client(other.pop("litellm", module._load()), name, **{**options, **other})


def test_only_a_call_that_surely_goes_to_a_plain_endpoint_is_given_a_client() -> None:
    assert client_for() is not None
    assert client_for(extra=("user", "extra_body", "extra_headers")) is not None
    for name in ("gpt-4o", "azure/gpt-4o", "openai/responses/my-own"):
        assert client_for(name=name) is None
    for other in ({"key": None}, {"key": ""}, {"url": None}):
        assert client_for(**other) is None
    for option in (
        "fallbacks",
        "organization",
        "custom_llm_provider",
        "model_list",
        "client",
        "metadata",
        "api_version",
    ):
        assert client_for(extra=("user", option)) is None


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("callbacks", [object()]),
        ("model_alias_map", {"openai/my-own": "anthropic/claude-sonnet-4-5"}),
        ("model_fallbacks", ["gpt-4o"]),
        ("route_all_chat_openai_to_responses", True),
        ("use_litellm_proxy", True),
    ],
)
def test_a_setting_of_litellm_that_sends_calls_elsewhere_is_heeded(
    setting: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module._load(), setting, value)
    assert client_for() is None


def test_another_release_of_litellm_is_asked_the_ordinary_way() -> None:
    def refuses(**arguments: Any) -> Any:
        raise TypeError("unexpected keyword argument 'is_async'")

    handler = SimpleNamespace(get_openai_client=refuses)
    for other in (SimpleNamespace(), SimpleNamespace(main=SimpleNamespace(openai_chat_completions=handler))):
        assert client_for(litellm=other) is None


def test_the_client_is_the_one_that_litellm_keeps_and_tells_no_key() -> None:
    client, again = client_for(), client_for()
    assert client is not None and again is not None
    assert client._client is again._client
    assert client._client in module._load().in_memory_llm_clients_cache.cache_dict.values()
    assert client.base_url == f"{URL}/"
    assert KEY not in f"{client!r} {client}"
    with pytest.raises(AttributeError):
        copy.copy(LeanClient.__new__(LeanClient)).base_url  # noqa: B018


def test_the_http_client_that_a_user_gave_to_litellm_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[httpx.Request] = []

    def answers(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=whole())

    with httpx.Client(transport=httpx.MockTransport(answers)) as mine:
        monkeypatch.setattr(module._load(), "client_session", mine)
        model = LiteLLMModel("openai/my-own", base_url="https://mine.test/v1", api_key=KEY)
        assert model.complete(REQUEST).message.text == "Hello."
    assert [str(request.url) for request in asked] == ["https://mine.test/v1/chat/completions"]


def test_every_event_loop_has_a_client_of_its_own() -> None:
    async def main(model: LiteLLMModel, kept: list[Any]) -> list[str]:
        try:
            replies = await asyncio.gather(*(model.acomplete(REQUEST) for _ in range(3)))
            clients = [client_for(url=model._base_url, awaited=True) for _ in range(2)]
            assert clients[0] is not None and clients[1] is not None
            assert clients[0]._client is clients[1]._client
            kept.append(clients[0]._client)
            return [reply.message.text for reply in replies]
        finally:
            await module._load().close_litellm_async_clients()

    kept: list[Any] = []
    with ChatServer(lambda _: say("Hi.")) as server, asyncio.Runner() as one, asyncio.Runner() as other:
        model = LiteLLMModel("openai/my-own", base_url=server.base_url, api_key=KEY)
        assert [runner.run(main(model, kept)) for runner in (one, other)] == [["Hi."] * 3] * 2
    assert kept[0] is not kept[1]

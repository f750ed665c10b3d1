"""`ChatCompletionsModel`: its clients, its keys and addresses, and each fault once more with httpx mocked."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import httpx2
import pytest
import respx
from drivers import PATIENCE, Driver

from phronomy import Agent
from phronomy.errors import (
    AuthenticationError,
    ConfigurationError,
    ContentFilterError,
    ContextLengthError,
    ModelConnectionError,
    ModelError,
    RateLimitError,
)
from phronomy.models import (
    ChatCompletionsModel,
    LiteLLMModel,
    MessagesModel,
    ModelReply,
    ModelRequest,
    ModelSettings,
    ResponsesModel,
)
from phronomy.models.base import Model, StreamingModel, TextDelta
from phronomy.models.formats import answer as answer_module
from phronomy.records.messages import Message, Usage
from phronomy.testing import ChatServer, Fault, ScriptedModel

USER = Message(role="user", content="Refund order 1042, secret-canary-77")
REQUEST = ModelRequest(messages=(USER,))
KEY = "key-canary-5Yb2"
URL = "http://provider.test/v1/chat/completions"
DIRECT = [ChatCompletionsModel, MessagesModel, ResponsesModel]


def model_at(server: ChatServer, **options: Any) -> ChatCompletionsModel:
    return ChatCompletionsModel("gpt-4o", **{"base_url": server.base_url, "api_key": KEY, "retry_wait": 0, **options})


@pytest.fixture
def mocked() -> Iterator[ChatCompletionsModel]:
    with ChatCompletionsModel("gpt-4o", base_url="http://provider.test/v1", api_key=KEY, retry_wait=0) as model:
        yield model


@pytest.fixture
def through_litellm() -> LiteLLMModel:
    asyncio.set_event_loop(None)  # litellm makes a loop in a thread that has not said it has none, and leaves it open
    return LiteLLMModel("openai/gpt-4o", base_url="http://provider.test/v1", api_key=KEY, retry_wait=0)


# Addresses, keys and names


def test_it_is_a_model_that_tells_no_key(mocked: ChatCompletionsModel) -> None:
    assert isinstance(mocked, Model) and isinstance(mocked, StreamingModel)
    assert isinstance(LiteLLMModel("m"), StreamingModel) and isinstance(ScriptedModel([]), StreamingModel)
    assert (mocked.name, repr(mocked)) == ("gpt-4o", "ChatCompletionsModel('gpt-4o')")


def test_arguments_that_make_no_sense_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"model": ""},
        {"model": "m", "max_attempts": 0},
        {"model": "m", "retry_wait": -1},
        {"model": "m", "base_url": "provider.test/v1"},
        {"model": "m", "base_url": "http:///v1"},
        {"model": "m", "api_key": "two\nlines"},
        {"model": "m", "api_key": "schlüssel"},
    ]
    for arguments in wrong:
        with pytest.raises(ConfigurationError) as caught:
            ChatCompletionsModel(**arguments)
        assert "lines" not in str(caught.value)


def test_the_environment_gives_address_and_key_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str | None]] = []

    def look(request: httpx.Request) -> httpx.Response:
        seen.append((str(request.url), request.headers.get("authorization")))
        return httpx.Response(200, json={"choices": [{"message": {"content": "Hello"}}]})

    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with respx.mock(using="httpcore2") as router:
        router.post().mock(side_effect=look)
        with ChatCompletionsModel("m") as model:
            monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")  # read when it is needed
            model.complete(REQUEST)
        monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere.test/v1/")
        for key in (None, "", "mine"):
            with ChatCompletionsModel("m", api_key=key) as model:
                model.complete(REQUEST)
        monkeypatch.delenv("OPENAI_API_KEY")
        with ChatCompletionsModel("m") as model:
            model.complete(REQUEST)
    assert seen == [
        ("https://api.openai.com/v1/chat/completions", f"Bearer {KEY}"),
        ("http://elsewhere.test/v1/chat/completions", f"Bearer {KEY}"),
        ("http://elsewhere.test/v1/chat/completions", None),
        ("http://elsewhere.test/v1/chat/completions", "Bearer mine"),
        ("http://elsewhere.test/v1/chat/completions", None),
    ]


def test_options_of_the_provider_go_where_their_names_say() -> None:
    named = {"X-Team": "desk", "user-agent": "mine"}
    extra = {"extra_headers": named, "extra_body": {"user": "u1", "model": "forged"}, "logprobs": True}
    headers: list[str] = []
    settings = ModelSettings(extra=extra)
    with (
        respx.mock(using="httpcore2") as router,
        ChatCompletionsModel("m", base_url="http://provider.test/v1", settings=settings) as model,
    ):
        route = router.post(URL).mock(
            return_value=httpx.Response(200, json={"choices": [{"message": {"content": ""}}]})
        )
        model.complete(REQUEST)
        sent = route.calls[0].request
        headers += [sent.headers["x-team"], *sent.headers.get_list("user-agent")]
        with pytest.raises(ConfigurationError, match="are objects"):
            model.complete(ModelRequest(messages=(USER,), settings=ModelSettings(extra={"extra_headers": "no"})))
    body = json.loads(sent.content)
    assert (headers, body["user"], body["model"], body["logprobs"]) == (["desk", "mine"], "u1", "m", True)
    assert not {"extra_headers", "extra_body", "stream"} & set(body)


def test_a_stream_asks_for_its_usage_unless_told_not_to() -> None:
    with ChatServer(lambda _: "Hello") as server, model_at(server) as model:
        list(model.stream(REQUEST))
        no = ModelSettings(extra={"stream_options": None})
        *_, reply = model.stream(ModelRequest(messages=(USER,), settings=no))
    assert server.requests[0]["stream_options"] == {"include_usage": True}
    assert "stream_options" not in server.requests[1]
    assert isinstance(reply, ModelReply) and reply.usage == Usage(requests=1)


def test_what_the_provider_says_it_cost_is_kept(mocked: ChatCompletionsModel) -> None:
    for cost, kept in ((0.25, 0.25), (0, 0.0), (-1, None), ("1", None), (True, None), ({"total": 1}, None)):
        usage = {"prompt_tokens": 1, "completion_tokens": 2, "cost": cost}
        body = {"choices": [{"message": {"content": "Hello"}}], "usage": usage}
        with respx.mock(using="httpcore2") as router:
            router.post(URL).mock(return_value=httpx.Response(200, json=body))
            assert mocked.complete(REQUEST).usage.cost == kept


# Faults, with httpx mocked

Ask = Callable[[ChatCompletionsModel], Any]


def error(status: int, headers: dict[str, str] | None = None, **said: Any) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": f"{KEY}: secret-canary-77", **said}}, headers=headers)


def stream(*events: Any) -> httpx.Response:
    text = "".join(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in events)
    return httpx.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, text=text)


def chunk(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def page(status: int) -> httpx.Response:
    return httpx.Response(status, html="<html>secret-canary-77</html>")


FAULTS: dict[str, tuple[Any, type[ModelError], int, int | None]] = {
    "rate limit": (error(429, {"Retry-After": "0"}), RateLimitError, 3, 429),
    "rate limit that is long": (error(429, {"Retry-After": "600"}), RateLimitError, 1, 429),
    "no credit": (error(402), RateLimitError, 1, 402),
    "too large for the limit": (error(413, code="rate_limit_exceeded"), RateLimitError, 1, 413),
    "server error": (error(500), ModelError, 3, 500),
    "timeout of the server": (error(408), ModelError, 3, 408),
    "conflict": (error(409), ModelError, 3, 409),
    "key": (error(401), AuthenticationError, 1, 401),
    "permission": (error(403), AuthenticationError, 1, 403),
    "bad request": (error(400), ModelError, 1, 400),
    "context overflow": (error(400, code="context_length_exceeded"), ContextLengthError, 1, 400),
    "content filter": (error(400, code="content_filter"), ContentFilterError, 1, 400),
    "content filter of Azure": (
        error(400, innererror={"code": "ResponsibleAIPolicyViolation"}),
        ContentFilterError,
        1,
        400,
    ),
    "moderation": (httpx.Response(403, json={"error": {"message": "requires moderation"}}), ContentFilterError, 1, 403),
    "timeout": ("ReadTimeout", ModelConnectionError, 3, None),
    "no route": ("ConnectError", ModelConnectionError, 3, None),
    "reset": ("ReadError", ModelConnectionError, 3, None),
    "hung up": ("RemoteProtocolError", ModelConnectionError, 3, None),
    "page with an error": (page(502), ModelError, 3, 502),
    "page": (page(200), ModelError, 1, 200),
    "nothing": (httpx.Response(200), ModelError, 1, 200),
    "no reply": (httpx.Response(200, json={"choices": []}), ModelError, 1, None),
    "a list": (httpx.Response(200, json=[1]), ModelError, 1, 200),
    "an error with status 200": (httpx.Response(200, json={"error": {"code": 503}}), ModelError, 3, 503),
    "errors as a list": (httpx.Response(400, json=[{"error": {"code": 400}}]), ModelError, 1, 400),
    "an error as text": (httpx.Response(400, json={"error": "context length"}), ContextLengthError, 1, 400),
    "redirect": (httpx.Response(302, headers={"location": "http://evil.test/"}), ModelError, 1, 302),
    "deep": (httpx.Response(200, content=b"[" * 100_000), ModelError, 1, 200),
}

STREAM_FAULTS: dict[str, tuple[Any, type[ModelError], int, int | None]] = {
    "cut in the middle": (stream(chunk(content="Half")), ModelConnectionError, 1, None),
    "cut before the first piece": (stream(chunk(role="assistant", content="")), ModelConnectionError, 3, None),
    "empty": (stream(), ModelConnectionError, 3, None),
    "ended without a message": (stream("[DONE]"), ModelError, 1, None),
    "an error inside": (stream({"error": {"type": "overloaded_error"}}), ModelError, 3, 529),
    "a rate limit inside": (stream({"error": {"code": "rate_limit_exceeded"}}), RateLimitError, 3, 429),
    "an error inside, late": (stream(chunk(content="Half"), {"error": {"code": "429"}}), RateLimitError, 1, 429),
    "an error without a name": (stream({"error": {"code": 7}}), ModelError, 1, None),
    "withheld": (stream(chunk(content="Half"), chunk("content_filter"), "[DONE]"), ContentFilterError, 1, None),
    "not JSON": (stream("{"), ModelError, 1, None),
    "no object": (stream(5), ModelError, 1, None),
    "choices that are no list": (stream({"choices": 5}), ModelError, 1, None),
    "a call that is no object": (stream(chunk(tool_calls=["c"])), ModelError, 1, None),
    "a call without a name": (stream(chunk(tool_calls=[{"index": 0}]), chunk("tool_calls")), ModelError, 1, None),
}


def mock_of(model: Any) -> respx.MockRouter:
    """What stands in for the provider: litellm asks with httpx, we with httpx2."""
    return respx.mock(using="httpcore" if isinstance(model, LiteLLMModel) else "httpcore2")


def check(model: Any, fault: tuple[Any, type[ModelError], int, int | None], ask: Ask) -> None:
    mock, kind, requests, status = fault
    with mock_of(model) as router:
        if isinstance(mock, str):
            client = httpx if isinstance(model, LiteLLMModel) else httpx2
            route = router.post(URL).mock(side_effect=getattr(client, mock)("lost"))
        else:
            route = router.post(URL).mock(return_value=mock)
        with pytest.raises(ModelError) as caught:
            ask(model)
        assert route.call_count == requests
    assert (type(caught.value), caught.value.status_code) == (kind, status)
    assert "canary" not in str(caught.value)
    behind: BaseException | None = caught.value
    while behind is not None:
        assert KEY not in f"{behind} {behind!r}"
        behind = behind.__cause__


SYNC: dict[str, Ask] = {"complete": lambda model: model.complete(REQUEST), "stream": lambda m: list(m.stream(REQUEST))}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("ask", SYNC)
def test_a_fault_has_its_error_and_its_number_of_requests(mocked: ChatCompletionsModel, name: str, ask: str) -> None:
    check(mocked, FAULTS[name], SYNC[ask])


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [name for name in FAULTS if name != "redirect"])  # litellm follows those
@pytest.mark.parametrize("ask", SYNC)
def test_a_fault_is_the_same_through_litellm(through_litellm: LiteLLMModel, name: str, ask: str) -> None:
    check(through_litellm, FAULTS[name], SYNC[ask])


@pytest.mark.parametrize("name", STREAM_FAULTS)
def test_a_fault_of_a_stream_has_its_error_and_its_number_of_requests(
    mocked: ChatCompletionsModel, through_litellm: LiteLLMModel, name: str
) -> None:
    check(mocked, STREAM_FAULTS[name], SYNC["stream"])
    check(through_litellm, STREAM_FAULTS[name], SYNC["stream"])


def piece(index: int, **told: Any) -> dict[str, Any]:
    return chunk(tool_calls=[{"index": index, **told}])


INTERLEAVED = stream(
    piece(0, id="call_a", type="function", function={"name": "look", "arguments": ""}),
    piece(1, id="call_b", type="function", function={"name": "wipe", "arguments": ""}),
    piece(1, function={"arguments": '{"path":'}),
    piece(0, function={"arguments": '{"order"'}),
    piece(1, function={"arguments": ' "/"}'}),
    piece(0, function={"arguments": ": 5}"}),
    chunk("tool_calls"),
    "[DONE]",
)
REFUSED = [
    httpx.Response(
        200, json={"choices": [{"message": {"role": "assistant", "content": None, "refusal": "I will not."}}]}
    ),
    stream(chunk(role="assistant", refusal="I will "), chunk(refusal="not."), chunk("stop"), "[DONE]"),
]


def test_fragments_of_calls_that_are_interleaved_are_put_together_from_one_request(
    mocked: ChatCompletionsModel, through_litellm: LiteLLMModel
) -> None:
    for model in (mocked, through_litellm):
        with mock_of(model) as router:
            route = router.post(URL).mock(return_value=INTERLEAVED)
            *_, reply = model.stream(REQUEST)
            assert route.call_count == 1
        assert isinstance(reply, ModelReply)
        assert [(call.id, call.name, call.arguments) for call in reply.message.tool_calls] == [
            ("call_a", "look", '{"order": 5}'),
            ("call_b", "wipe", '{"path": "/"}'),
        ]


def test_a_refusal_is_a_reply_and_is_not_asked_for_again(
    mocked: ChatCompletionsModel, through_litellm: LiteLLMModel
) -> None:
    for model in (mocked, through_litellm):
        for name, answer in zip(SYNC, REFUSED, strict=True):
            with mock_of(model) as router:
                route = router.post(URL).mock(return_value=answer)
                found = SYNC[name](model)
                assert route.call_count == 1
            reply = found[-1] if isinstance(found, list) else found
            assert "I will not." in reply.message.model_dump_json() and reply.message.tool_calls == ()


def test_a_server_that_knows_no_streams_is_understood(mocked: ChatCompletionsModel) -> None:
    with respx.mock(using="httpcore2") as router:
        router.post(URL).mock(return_value=httpx.Response(200, json={"choices": [{"message": {"content": "Hello"}}]}))
        assert list(mocked.stream(REQUEST)) == [mocked.complete(REQUEST)]


WAYS: dict[str, Ask] = {
    "complete": lambda model: model.complete(REQUEST),
    "acomplete": lambda model: asyncio.run(model.acomplete(REQUEST)),
    "stream": lambda model: list(model.stream(REQUEST)),
    "astream": lambda model: asyncio.run(drain(model)),
}


async def drain(model: ChatCompletionsModel) -> list[Any]:
    return [piece async for piece in model.astream(REQUEST)]


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_has_an_end(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(answer_module, "MAX_BYTES", 1000)
    with ChatServer(["x" * 2000]) as server, model_at(server) as model:
        with pytest.raises(ModelError, match="larger than 1000 bytes"):
            WAYS[way](model)
        assert len(server.requests) == 1


@pytest.mark.parametrize("asked", ["complete", "acomplete"])
def test_a_redirect_is_not_followed(asked: str) -> None:
    with ChatServer(["never asked"]) as other:
        moved = Fault(status=307, headers={"Location": f"{other.base_url}/chat/completions"}, body="moved")
        with ChatServer([moved]) as server, model_at(server) as model, pytest.raises(ModelError) as caught:
            WAYS[asked](model)
        assert (caught.value.status_code, other.requests, len(server.requests)) == (307, [], 1)


@pytest.mark.parametrize("asked", ["complete", "acomplete"])
def test_a_provider_that_does_not_answer_in_time_is_a_fault_of_the_way(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    attempts: list[str] = []

    def late(body: dict[str, Any]) -> str:
        go_on.wait(PATIENCE)
        return "too late"

    settings = ModelSettings(timeout=0.05)
    with ChatServer(late) as server, model_at(server, settings=settings, max_attempts=2) as model:
        plain, aplain = model._ask, model._aask  # what gets as far as the server in that time depends on the machine

        def ask(request: ModelRequest) -> Any:
            attempts.append("complete")
            return plain(request)

        async def aask(request: ModelRequest) -> Any:
            attempts.append("acomplete")
            return await aplain(request)

        monkeypatch.setattr(model, "_ask", ask)
        monkeypatch.setattr(model, "_aask", aask)
        with pytest.raises(ModelConnectionError, match=r"before the timeout|Timeout"):
            WAYS[asked](model)
        assert attempts == [asked] * 2
        go_on.set()


# Clients


def test_threads_share_one_client_and_its_connections() -> None:
    with ChatServer(lambda body: body["messages"][0]["content"]) as server, model_at(server) as model:
        requests = [ModelRequest(messages=(Message(role="user", content=str(n)),)) for n in range(64)]
        with ThreadPoolExecutor(8) as pool:
            said = [reply.message.text for reply in pool.map(model.complete, requests)]
        assert said == [str(n) for n in range(64)]
        assert server._server is not None
        assert 1 <= len(server._server.open) <= 8


def test_each_event_loop_has_a_client_that_ends_with_it() -> None:
    async def twice(model: ChatCompletionsModel) -> Any:
        first, second = await asyncio.gather(model.acomplete(REQUEST), model.acomplete(REQUEST))
        assert first.message.text == second.message.text == "Hello"
        assert await model._clients.session() is await model._clients.session()
        return await model._clients.session()

    with ChatServer(lambda _: "Hello") as server:
        model = model_at(server)  # and nobody closes it
        sessions = [asyncio.run(twice(model)) for _ in range(3)]
        assert [session.closed for session in sessions] == [True] * 3
        assert len({id(session) for session in sessions}) == 3
        assert len(model._clients._kept) == 1  # loops that have ended are forgotten
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda _: asyncio.run(twice(model)), range(6)))


def test_a_closed_model_opens_anew() -> None:
    async def main(model: ChatCompletionsModel) -> None:
        async with model:
            assert (await model.acomplete(REQUEST)).message.text == "Hello"
            session = await model._clients.session()
        assert session.closed
        assert (await model.acomplete(REQUEST)).message.text == "Hello"
        await model.aclose()
        await model.aclose()

    with ChatServer(lambda _: "Hello") as server:
        with model_at(server) as model:
            assert model.complete(REQUEST).message.text == "Hello"
            client = model._clients.client()
        assert client.is_closed
        model.close()
        assert model.complete(REQUEST).message.text == "Hello"
        asyncio.run(main(model))


def test_models_share_a_client_until_the_last_one_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer(lambda _: "Hello") as server:
        first, second = model_at(server), model_at(server)
        assert first.complete(REQUEST).message.text == second.complete(REQUEST).message.text == "Hello"
        shared = first._clients.client()
        assert second._clients.client() is shared
        first.close()
        assert not shared.is_closed
        assert second.complete(REQUEST).message.text == "Hello"
        assert server._server is not None
        assert len(server._server.open) == 1  # one connection for all of them
        del second  # dropped: the next model finds the connections
        gc.collect()
        third = model_at(server)
        assert third._clients.client() is shared
        third.close()
        third.close()
        assert shared.is_closed
        dropped = model_at(server)._clients.client()
        monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")  # a client is made of this too
        with model_at(server) as fourth:
            assert fourth._clients.client() is not dropped
            assert dropped.is_closed  # nobody can use it any more


def test_a_forked_child_opens_its_own_connections_and_leaves_those_of_its_parent() -> None:
    code = """
import asyncio, os
from phronomy.messages import Message
from phronomy.models import ChatCompletionsModel, ModelRequest
from phronomy.testing import ChatServer

request = ModelRequest(messages=(Message(role="user", content="hi"),))
with ChatServer(lambda body: "Hello") as server:
    with ChatCompletionsModel("m", base_url=server.base_url, api_key="none-is-needed") as model:
        model.complete(request)
        async def main():
            await model.acomplete(request)
            mine = model._clients.client()
            if (child := os.fork()) == 0:
                said = model.complete(request).message.text
                other = model._clients.client() is not mine and not mine.is_closed
                model.close()
                os._exit(0 if said == "Hello" and other and not mine.is_closed else 1)
            print(os.waitpid(child, 0)[1])
            print((await model.acomplete(request)).message.text)
        asyncio.run(main())
        print(model.complete(request).message.text)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.split() == ["0", "Hello", "Hello"], done.stderr


def test_two_hundred_calls_are_in_flight_at_once() -> None:
    everyone = threading.Barrier(200)

    def together(body: dict[str, Any]) -> str:
        everyone.wait(PATIENCE)  # nobody is answered before all have asked
        return "Hello"

    async def main(model: ChatCompletionsModel) -> list[str]:
        replies = await asyncio.gather(*(model.acomplete(REQUEST) for _ in range(200)))
        return [reply.message.text for reply in replies]

    with ChatServer(together) as server:
        assert asyncio.run(main(model_at(server))) == ["Hello"] * 200
        assert len(server.requests) == 200


@pytest.mark.parametrize("asked", ["complete", "acomplete"])
def test_an_endpoint_that_cannot_prove_who_it_is_is_told_nothing(asked: str) -> None:
    with ChatServer(["never said"]) as server:
        url = server.base_url.replace("http:", "https:")
        with (
            ChatCompletionsModel("m", base_url=url, api_key=KEY, max_attempts=1) as model,
            pytest.raises(ModelConnectionError),
        ):
            WAYS[asked](model)
        assert server.requests == []


@pytest.mark.parametrize("asked", ["complete", "acomplete"])
def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    for name in ("ALL_PROXY", "all_proxy", "HTTP_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with ChatServer(["Hello"]) as server, ChatServer([]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
        with model_at(server) as model, pytest.raises(ModelError, match="404"):  # it knows no addresses of others
            WAYS[asked](model)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with model_at(server) as model:
            assert WAYS[asked](model).message.text == "Hello"


def test_cancelling_the_task_cancels_the_call() -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def hang(body: dict[str, Any]) -> str:
        arrived.set()
        go_on.wait(PATIENCE)
        return "too late"

    async def main(model: ChatCompletionsModel) -> None:
        task = asyncio.create_task(model.acomplete(REQUEST))
        assert await asyncio.to_thread(arrived.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with ChatServer(hang) as server:
        asyncio.run(main(model_at(server)))
        go_on.set()
        assert len(server.requests) == 1


def test_preparing_loads_the_clients_and_nothing_of_litellm() -> None:
    code = """
import sys, threading
from phronomy.models import ChatCompletionsModel
ChatCompletionsModel.prepare()
for thread in threading.enumerate():
    if thread.name == "phronomy-load": thread.join()
ChatCompletionsModel.prepare()
print(sorted({"httpx2", "httpx", "tenacity", "litellm", "openai"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['httpx2']"


def test_pieces_come_as_they_come() -> None:
    heard = threading.Event()

    def slowly() -> Iterator[Any]:
        yield chunk(content="One ")
        heard.wait(PATIENCE)  # the second piece is not sent before the first was given out
        yield chunk("stop", content="two")

    with ChatServer([Fault(status=200, events=slowly())]) as server, model_at(server) as model:
        pieces = model.stream(REQUEST)
        assert next(pieces) == TextDelta(text="One ")
        heard.set()
        *_, reply = pieces
    assert isinstance(reply, ModelReply) and reply.message.text == "One two"


@pytest.mark.parametrize("kind", DIRECT)
def test_a_user_and_a_password_in_the_address_are_sent_and_never_told(driver: Driver, kind: Any) -> None:
    with ChatServer(["Hello", Fault(status=400)]) as server:
        url = server.base_url.replace("//", "//ada:s%40cret@")
        with kind("m", base_url=url, api_key=KEY, retry_wait=0) as model:
            agent = Agent(model=model)
            assert driver.invoke(agent, "hi").output == "Hello"
            assert "s%40cret" not in repr(vars(model))
            with pytest.raises(ModelError) as caught:
                driver.invoke(agent, "hi")
    assert "s%40cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("kind", DIRECT)
def test_a_content_type_that_nobody_knows_is_not_quoted(driver: Driver, kind: Any) -> None:
    for given, told in ((f"text/{KEY}", "status 401"), ("text/html; charset=x", "status 401, text/html")):
        with ChatServer([Fault(status=401, body="no", headers={"Content-Type": given})]) as server:
            model = kind("m", base_url=server.base_url, api_key=KEY, retry_wait=0)
            with model, pytest.raises(ModelError) as caught:
                driver.invoke(Agent(model=model), "hi")
        assert str(caught.value).endswith(told)


@pytest.mark.parametrize(
    ("name", "extra", "sent"),
    [
        ("gpt-4o-mini", {}, {"max_tokens": 50}),
        ("gpt-5", {}, {"max_completion_tokens": 50}),
        ("openai/gpt-5.2-mini", {}, {"max_completion_tokens": 50}),
        ("o3-mini", {}, {"max_completion_tokens": 50}),
        ("gpt-oss-120b", {}, {"max_tokens": 50}),
        ("gpt-35-turbo", {}, {"max_tokens": 50}),
        ("gpt-10", {}, {"max_completion_tokens": 50}),
        ("my-deployment", {"max_completion_tokens": 70}, {"max_completion_tokens": 70}),
    ],
)
def test_the_limit_of_tokens_goes_by_the_name_that_the_model_takes(name: str, extra: Any, sent: Any) -> None:
    with ChatServer(["Done."]) as server:
        model = ChatCompletionsModel(name, base_url=server.base_url, api_key="k")
        settings = ModelSettings(max_tokens=50, extra=extra)
        Agent(name="a", model=model, settings=settings).invoke("Go")
        assert {key: value for key, value in server.requests[0].items() if "max" in key} == sent


def test_the_words_of_the_provider_are_told_to_a_developer_who_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"error": {"message": "Unsupported parameter: max_tokens. Your key is sk-canary-1.\x1b[1m", "code": "odd"}}
    told = {}
    for wanted in ("0", "1"):
        monkeypatch.setenv("PHRONOMY_PROVIDER_ERRORS", wanted)
        with ChatServer([Fault(status=400, body=said)]) as server:
            model = ChatCompletionsModel("m", base_url=server.base_url, api_key="sk-canary-1", max_attempts=1)
            with pytest.raises(ModelError) as caught:
                Agent(name="a", model=model).invoke("Go")
        told[wanted] = str(caught.value)
    assert told["0"].endswith("status 400")
    assert told["1"].endswith(
        "status 400; the provider says: odd Unsupported parameter: max_tokens. Your key is ***. [1m"
    )


def test_the_words_of_the_provider_hold_no_key_from_the_address_or_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHRONOMY_PROVIDER_ERRORS", "1")
    settings = ModelSettings(extra={"extra_headers": {"api-key": "Key canary-2-Zx91"}})
    with ChatServer([Fault(status=400, body={"error": "Basic dXNlcjpjYW5hcnk=, Key canary-2-Zx91"})]) as server:
        address = server.base_url.replace("://", "://user:canary@")
        model = ChatCompletionsModel("m", base_url=address, settings=settings, max_attempts=1)
        with pytest.raises(ModelError, match=r"the provider says: Basic \*\*\*, Key \*\*\*$"):
            Agent(name="a", model=model).invoke("Go")

"""`LiteLLMModel` where the provider speaks another protocol, and how litellm itself is loaded."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import traceback
from typing import Any

import httpx
import pytest
import respx
from drivers import DRIVERS, PATIENCE, Driver, run

from phronomy import Agent
from phronomy.errors import AuthenticationError, ModelConnectionError, ModelError, RateLimitError
from phronomy.models import (
    ChatCompletionsModel,
    LiteLLMModel,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    retry,
)
from phronomy.models import litellm as module
from phronomy.records.messages import Message, Usage
from phronomy.testing import ChatServer, Fault, say

USER = Message(role="user", content="Refund order 1042")
REQUEST = ModelRequest(messages=(USER,))
KEY = "key-canary-5Yb2"
ANTHROPIC = "https://api.anthropic.test/v1/messages"


@pytest.fixture(autouse=True)
def no_event_loop() -> None:
    asyncio.set_event_loop(None)


def claude() -> LiteLLMModel:
    return LiteLLMModel("anthropic/claude-sonnet-4-5", base_url="https://api.anthropic.test", api_key=KEY, retry_wait=0)


THINKING = {"type": "thinking", "thinking": "They want it back.", "signature": "EqoB+/=="}
USE = {"type": "tool_use", "id": "toolu_1", "name": "refund", "input": {"order_id": 1042}}
WHOLE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [THINKING, {"type": "text", "text": "One moment."}, USE],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 12, "output_tokens": 30},
}


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**WHOLE, "content": [], "stop_reason": None}},
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "They want "},
        {"type": "thinking_delta", "thinking": "it back."},
        {"type": "signature_delta", "signature": "EqoB+/=="},
    ),
    *block(
        1,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "One "},
        {"type": "text_delta", "text": "moment."},
    ),
    *block(
        2,
        {**USE, "input": {}},
        {"type": "input_json_delta", "partial_json": '{"order'},
        {"type": "input_json_delta", "partial_json": '_id": 1042}'},
    ),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 30}},
    {"type": "message_stop"},
]


def sse(events: list[dict[str, Any]]) -> httpx.Response:
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)


@respx.mock
def test_thinking_and_its_signature_come_through_another_protocol_and_go_back() -> None:
    route = respx.post(ANTHROPIC).mock(side_effect=[httpx.Response(200, json=WHOLE), sse(EVENTS), sse(EVENTS)])
    whole = claude().complete(REQUEST)
    *deltas, reply = list(claude().stream(REQUEST))
    assert isinstance(reply, ModelReply)
    assert whole.message.provider["thinking_blocks"] == [THINKING]
    assert reply.message.provider["thinking_blocks"] == [THINKING]
    assert [one.name for one in reply.message.tool_calls] == ["refund"]
    assert json.loads(reply.message.tool_calls[0].arguments) == {"order_id": 1042}
    assert (reply.message.text, reply.finish_reason) == ("One moment.", "tool_calls")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (12, 30)
    assert reply.usage.cost == whole.usage.cost == pytest.approx(12 * 3e-6 + 30 * 15e-6)
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == "They want it back."
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "One moment."
    assert "".join(delta.arguments for delta in deltas if isinstance(delta, ToolCallDelta)) == '{"order_id": 1042}'

    kept = Message.model_validate_json(reply.message.model_dump_json())
    result = Message(role="tool", tool_call_id="toolu_1", content="on its way", settlement="completed")
    list(claude().stream(ModelRequest(messages=(USER, kept, result))))
    assert json.loads(route.calls[2].request.content)["messages"][1]["content"][0] == THINKING


@respx.mock
def test_a_stream_of_another_protocol_that_is_cut_is_no_reply() -> None:
    route = respx.post(ANTHROPIC).mock(side_effect=[sse(EVENTS[:8])] * 3)
    given = []
    with pytest.raises(ModelConnectionError, match="cut off"):
        given.extend(claude().stream(REQUEST))
    assert route.call_count == 1
    assert not any(isinstance(piece, ModelReply) for piece in given)


def test_another_protocol_is_streamed_without_blocking_the_loop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import litellm

    async def main() -> list[Any]:
        try:
            with pytest.raises(ModelConnectionError, match="cut off"):
                [piece async for piece in claude().astream(REQUEST)]
            return [piece async for piece in claude().astream(REQUEST)]
        finally:
            await litellm.close_litellm_async_clients()  # type: ignore[attr-defined,no-untyped-call]

    monkeypatch.setattr(litellm, "disable_aiohttp_transport", True)  # respx mocks httpx
    with respx.mock as router:
        router.post(ANTHROPIC).mock(side_effect=[sse(EVENTS[:8]), sse(EVENTS), sse(EVENTS)])
        given = asyncio.run(main())
        assert given == list(claude().stream(REQUEST))


GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash"
REFUND = {"functionCall": {"name": "refund", "args": {"order_id": 1042}}, "thoughtSignature": "c2lnbmF0dXJl"}


def gemini() -> LiteLLMModel:
    return LiteLLMModel("gemini/gemini-2.5-flash", api_key=KEY, retry_wait=0)


def candidate(*parts: dict[str, Any], **end: str) -> dict[str, Any]:
    """An event of a stream of Gemini. https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse"""
    return {
        "candidates": [{"content": {"role": "model", "parts": list(parts)}, "index": 0, **end}],
        "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 30, "totalTokenCount": 42},
        "modelVersion": "gemini-2.5-flash",
        "responseId": "r_1",
    }


def said_by_gemini(*events: dict[str, Any]) -> httpx.Response:
    text = "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events)
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)


def streamed_by_both(model: LiteLLMModel, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any]]:
    """What a stream gives, and what it gives where it is awaited; an error is the last of it."""
    litellm = module._load()

    async def awaited() -> list[Any]:
        pieces: list[Any] = []
        try:
            async for piece in model.astream(REQUEST):
                pieces.append(piece)
        except ModelError as error:
            pieces.append(type(error))
        finally:
            await litellm.close_litellm_async_clients()
        return pieces

    monkeypatch.setattr(litellm, "disable_aiohttp_transport", True)  # respx mocks httpx
    pieces: list[Any] = []
    try:
        pieces.extend(model.stream(REQUEST))
    except ModelError as error:
        pieces.append(type(error))
    return pieces, asyncio.run(awaited())


@pytest.mark.parametrize(
    ("events", "finish_reason"),
    [
        ([candidate({"text": "One "}), candidate({"text": "moment."}, finishReason="STOP")], "stop"),
        ([candidate({"text": "One moment."}), candidate({"text": ""}, finishReason="STOP")], "stop"),
        ([candidate({"text": "One moment."}), {"candidates": [{"index": 0, "finishReason": "STOP"}]}], "stop"),
        ([candidate({"text": "One moment."}, finishReason="STOP")], "stop"),
        ([candidate({"text": "One mom"}, finishReason="MAX_TOKENS")], "length"),
        ([candidate({"text": "One moment."}), candidate(REFUND, finishReason="STOP")], "tool_calls"),
        (
            [candidate({"text": "One moment."}), candidate(REFUND), candidate({"text": ""}, finishReason="STOP")],
            "tool_calls",
        ),
    ],
)
@respx.mock
def test_a_stream_of_gemini_ends_where_gemini_says_so(
    events: list[dict[str, Any]], finish_reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    respx.post(f"{GEMINI}:streamGenerateContent").mock(side_effect=lambda _: said_by_gemini(*events))
    for *deltas, reply in streamed_by_both(gemini(), monkeypatch):
        assert isinstance(reply, ModelReply)
        assert reply.finish_reason == finish_reason
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.message.text
        assert reply.message.text in ("One moment.", "One mom")
        assert [one.name for one in reply.message.tool_calls] == ["refund"] * (finish_reason == "tool_calls")
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (12, 30)


@pytest.mark.parametrize(
    "events",
    [
        [candidate({"text": "One "})],
        [candidate({"text": "One "}), candidate({"text": "moment."})],
        [candidate({"text": "One moment."}), candidate(REFUND)],
    ],
)
@respx.mock
def test_a_stream_of_gemini_that_is_cut_is_no_reply(
    events: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """litellm gives each event of Gemini the reason `stop`, whether Gemini said so or not."""
    respx.post(f"{GEMINI}:streamGenerateContent").mock(side_effect=lambda _: said_by_gemini(*events))
    for *deltas, end in streamed_by_both(gemini(), monkeypatch):
        assert end is ModelConnectionError
        assert deltas and not any(isinstance(each, ModelReply) for each in deltas)


@respx.mock
def test_the_thought_signature_of_gemini_goes_back_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    route = respx.post(url__startswith=GEMINI).mock(
        side_effect=lambda _: said_by_gemini(candidate(REFUND, finishReason="STOP"))
    )
    for *_, reply in streamed_by_both(gemini(), monkeypatch):
        kept = Message.model_validate_json(reply.message.model_dump_json())
        result = Message(role="tool", tool_call_id=kept.tool_calls[0].id, content="on its way", settlement="completed")
        list(gemini().stream(ModelRequest(messages=(USER, kept, result))))
        sent = json.loads(route.calls.last.request.content)["contents"][1]["parts"]
        assert [part["thoughtSignature"] for part in sent if "function_call" in part] == ["c2lnbmF0dXJl"]


@respx.mock
def test_a_fault_of_another_protocol_is_typed() -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    answer = httpx.Response(429, json=body, headers={"retry-after": "0"})
    route = respx.post(ANTHROPIC).mock(side_effect=[answer] * 3)
    with pytest.raises(RateLimitError) as caught:
        claude().complete(REQUEST)
    assert (caught.value.status_code, caught.value.retry_after, route.call_count) == (429, 0.0, 3)


def test_done_inside_a_text_is_not_the_end_where_litellm_reads_the_stream_itself() -> None:
    reply = say("It is [DONE] now.", usage=Usage(input_tokens=1, output_tokens=2))
    with ChatServer(lambda _: reply) as server:
        model = LiteLLMModel("deepseek/deepseek-chat", base_url=server.base_url, api_key=KEY, retry_wait=0)
        *deltas, last = list(model.stream(REQUEST))
        assert last == model.complete(REQUEST)

        async def main() -> list[Any]:
            import litellm

            try:
                return [piece async for piece in model.astream(REQUEST)]
            finally:
                await litellm.close_litellm_async_clients()  # type: ignore[attr-defined,no-untyped-call]

        assert asyncio.run(main()) == [*deltas, last]
    assert isinstance(last, ModelReply)
    assert last.message.text == "It is [DONE] now."


def test_what_a_stream_cost_counts_what_the_provider_had_in_its_cache() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 900}}
    message = {"role": "assistant", "content": "Hi"}
    end = {"index": 0, "delta": message, "finish_reason": "stop"}
    streamed = {"id": "c", "model": "gpt-4o", "choices": [end], "usage": usage}
    whole = {**streamed, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    with ChatServer([Fault(status=200, body=whole), Fault.stream(streamed)]) as server:
        model = LiteLLMModel("openai/gpt-4o", base_url=server.base_url, api_key=KEY)
        reply = model.complete(REQUEST)
        *_, last = model.stream(REQUEST)
    assert reply == last
    assert reply.usage.cost == pytest.approx(100 * 2.5e-6 + 900 * 1.25e-6 + 10 * 10e-6)


def test_a_key_of_the_environment_is_not_told_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    quoting = Fault(status=401, body={"error": {"message": f"Incorrect API key: {KEY}"}})
    with ChatServer([quoting]) as server:
        model = LiteLLMModel("openai/gpt-4o", base_url=server.base_url)
        with pytest.raises(AuthenticationError) as caught:
            model.complete(REQUEST)
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_a_model_in_no_price_list_has_no_known_cost() -> None:
    with ChatServer(lambda _: say("Hi", usage=Usage(input_tokens=1, output_tokens=2))) as server:
        model = LiteLLMModel("openai/my-own", base_url=server.base_url, api_key=KEY, retry_wait=0)
        assert model.complete(REQUEST).usage.cost is None
        *_, last = model.stream(REQUEST)
    assert isinstance(last, ModelReply)
    assert last.usage == Usage(requests=1, input_tokens=1, output_tokens=2)


def ask_once(model: LiteLLMModel, driver: Driver, *, wait: threading.Event | None = None) -> str:
    async def ask() -> str:
        text = (await model.acomplete(REQUEST)).message.text
        if wait is not None:
            await asyncio.to_thread(wait.wait, 30)
        return text

    return run(ask()) if driver.is_async else model.complete(REQUEST).message.text


@pytest.mark.parametrize("driver", DRIVERS, ids=str)
def test_whoever_listens_to_litellm_hears_of_a_call(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    litellm, heard = module._load(), threading.Event()
    ears = "_async_success_callback" if driver.is_async else "success_callback"

    async def hear_async(*_: Any) -> None:
        heard.set()

    monkeypatch.setattr(litellm, ears, [hear_async if driver.is_async else lambda *_: heard.set()])
    with ChatServer(["Hi"]) as server:
        model = LiteLLMModel("openai/my-own", base_url=server.base_url, api_key=KEY)
        assert ask_once(model, driver, wait=heard) == "Hi"
    assert heard.wait(PATIENCE)


@pytest.mark.parametrize("driver", DRIVERS, ids=str)
def test_where_nobody_listens_litellm_prepares_nothing_to_tell(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    litellm, told = module._load(), []
    for listeners in module._HEARERS[:-1]:
        monkeypatch.setattr(litellm, listeners, [])
    monkeypatch.setattr(litellm.utils.executor, "submit", lambda *args: told.append(args))
    monkeypatch.setattr(litellm.utils, "_schedule_async_success_logging", lambda **kwargs: told.append(kwargs))
    with ChatServer(["Hi", "Hi"]) as server:
        model = LiteLLMModel("openai/my-own", base_url=server.base_url, api_key=KEY)
        assert ask_once(model, driver) == "Hi"
        assert told == []
        monkeypatch.setattr(litellm, "success_callback", [lambda *_: None])
        assert ask_once(model, driver) == "Hi"
    assert told


def test_a_stream_of_a_llama_looks_for_nothing_on_a_public_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """litellm counts the tokens where the provider does not, and would download a tokenizer for the name."""
    asked: list[object] = []
    known = socket.getaddrinfo

    def look_up(host: Any, *rest: Any, **options: Any) -> Any:
        if host in ("127.0.0.1", "localhost"):
            return known(host, *rest, **options)
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "nobody else is here")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with ChatServer(["Hello."]) as server:
        model = LiteLLMModel("deepseek/llama-2-7b-chat", base_url=server.base_url, api_key=KEY, retry_wait=0)
        *_, reply = model.stream(REQUEST)
    assert isinstance(reply, ModelReply)
    assert reply.message.text == "Hello."
    assert asked == []


# Loading


@pytest.mark.sweep
def test_preparing_returns_at_once_and_is_begun_once() -> None:
    code = """
import sys, threading, time
from phronomy.messages import Message
from phronomy.models import LiteLLMModel, ModelRequest
from phronomy.testing import ChatServer

begun = time.perf_counter()
callers = [threading.Thread(target=LiteLLMModel.prepare) for _ in range(8)]
for caller in callers: caller.start()
for caller in callers: caller.join()
LiteLLMModel("openai/gpt-4o-mini").prepare()
loading = [thread for thread in threading.enumerate() if thread.name == "phronomy-load"]
print(len(loading), all(thread.daemon for thread in loading))
with ChatServer(["Hello"]) as server:
    model = LiteLLMModel("openai/gpt-4o-mini", base_url=server.base_url, api_key="none-is-needed")
    print(model.complete(ModelRequest(messages=(Message(role="user", content="hi"),))).message.text)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.splitlines() == ["1 True", "Hello"]


@pytest.mark.sweep
@pytest.mark.parametrize("then", ["pass", "import os; os._exit(os.waitpid(os.fork() or os._exit(ask()), 0)[1])"])
def test_a_process_may_end_or_fork_while_it_prepares(then: str) -> None:
    """Else a thread would end inside an import, and the next import of that module would wait for ever."""
    code = f"""
from phronomy.messages import Message
from phronomy.models import LiteLLMModel, ModelRequest
from phronomy.testing import ChatServer

def ask():
    with ChatServer(["Hello"]) as server:
        model = LiteLLMModel("openai/gpt-4o-mini", base_url=server.base_url, api_key="none-is-needed")
        return model.complete(ModelRequest(messages=(Message(role="user", content="hi"),))).message.text != "Hello"

LiteLLMModel.prepare()
{then}
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def test_an_import_that_fails_is_heard_of_by_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Event()

    def broken(name: str) -> Any:
        tried.set()
        raise ImportError(f"no {name}")

    monkeypatch.setattr(module, "import_module", broken)
    module._load.cache_clear()
    monkeypatch.setattr(module, "_SOON", retry.Background(module._load_all))
    LiteLLMModel.prepare()
    assert tried.wait(PATIENCE)
    with pytest.raises(ImportError, match="no litellm"):
        LiteLLMModel("m").complete(REQUEST)
    with pytest.raises(ImportError, match="no litellm"):
        next(LiteLLMModel("m").stream(REQUEST))
    monkeypatch.undo()
    with ChatServer(["Hello"]) as server:
        model = LiteLLMModel("openai/gpt-4o-mini", base_url=server.base_url, api_key=KEY)
        assert model.complete(REQUEST).message.text == "Hello"


@pytest.mark.sweep
@pytest.mark.parametrize("at", ["litellm.utils", "litellm.main", "litellm.llms.cohere.embed.handler"])
def test_an_import_that_is_interrupted_may_be_made_again(at: str) -> None:
    """Ctrl-C in the seconds that it takes, at a prompt or in a notebook, does not cost the process its models."""
    code = f"""
import sys
from phronomy.messages import Message
from phronomy.models import LiteLLMModel, ModelRequest
from phronomy.testing import ChatServer

class Interrupt:
    at = {at!r}
    def find_spec(self, name, path=None, target=None):
        if name == self.at:
            self.at = None
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
with ChatServer(["Hello"]) as server:
    model = LiteLLMModel("openai/gpt-4o-mini", base_url=server.base_url, api_key="none-is-needed")
    request = ModelRequest(messages=(Message(role="user", content="hi"),))
    try:
        model.complete(request)
    except KeyboardInterrupt:
        print("interrupted")
    print(model.complete(request).message.text)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout.splitlines(), done.stderr) == (["interrupted", "Hello"], "")


def test_what_litellm_cannot_read_is_no_fault_that_passes() -> None:
    error = ValueError("Empty or invalid response from LLM endpoint. Received: '<html>'")
    failure = LiteLLMModel("m")._failure(error)
    assert (type(failure.error), failure.may_pass) == (ModelError, False)


@pytest.mark.parametrize("driver", DRIVERS, ids=str)
@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("openai/gpt-4o-mini", AuthenticationError, "there is no key for the provider: set its environment variable"),
        ("azure/any", AuthenticationError, "there is no key for the provider"),
        ("gemini/gemini-2.0-flash", AuthenticationError, "there is no key for the provider"),
        ("anthropic/claude-haiku-4-5", AuthenticationError, "there is no key for the provider"),
        ("nowhere/any", ModelError, "litellm knows no provider of this name"),
    ],
)
def test_without_a_key_or_a_provider_it_says_so_at_once(
    driver: Driver, name: str, kind: type[ModelError], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in [*os.environ]:
        if variable.endswith(("_API_KEY", "_API_BASE", "_BASE_URL")):
            monkeypatch.delenv(variable)
    agent = Agent(model=LiteLLMModel(name, retry_wait=3600))  # a second attempt would take an hour
    with pytest.raises(kind, match=why) as caught:
        driver.invoke(agent, "Hi")
    assert (type(caught.value), caught.value.status_code) == (kind, None)


# An answer that litellm cannot read

HELLO: dict[str, Any] = {"role": "assistant", "content": "Hello"}


def body(message: Any = HELLO, **more: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"message": message}],
        **more,
    }


MISREAD: list[tuple[str, Any]] = [
    ("", 200),
    ("{", 200),
    (b"\xff", 200),
    ("[]", 200),
    ({"id": "x"}, None),
    ({"choices": None}, None),
    ({"choices": [1]}, None),
    (body([]), None),
    (body({**HELLO, "content": 5}), None),
    (body({**HELLO, "tool_calls": "look"}), None),
]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the provider's client dumps what came
@pytest.mark.parametrize(("sent", "status"), MISREAD, ids=[str(each)[:40] for each, _ in MISREAD])
def test_an_answer_that_cannot_be_read_is_no_status_500_and_is_asked_for_once(
    driver: Driver, sent: Any, status: int | None
) -> None:
    for kind in (LiteLLMModel, ChatCompletionsModel):
        with ChatServer([Fault(status=200, body=sent, headers={"Content-Type": "application/json"})] * 3) as server:
            model = kind("openai/m", base_url=server.base_url, api_key=KEY, retry_wait=0)
            with pytest.raises(ModelError) as caught:
                driver.invoke(Agent(model=model), "hi")
            assert (caught.value.status_code, len(server.requests)) == (status, 1)
            assert "litellm" not in repr(caught.value.__cause__)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    "sent",
    [
        body({**HELLO, "content": [{"type": "text", "text": "Hello"}]}),
        body(usage=[1]),
        body(usage="x"),
    ],
    ids=["parts", "usage in a list", "usage in a text"],
)
def test_what_litellm_cannot_read_and_we_can_is_read(driver: Driver, sent: Any) -> None:
    for kind in (LiteLLMModel, ChatCompletionsModel):
        with ChatServer([Fault(status=200, body=sent)]) as server:
            model = kind("openai/m", base_url=server.base_url, api_key=KEY, retry_wait=0)
            result = driver.invoke(Agent(model=model), "hi")
            assert (result.output, result.messages[-1].provider, len(server.requests)) == ("Hello", {}, 1)


def test_where_nothing_was_sent_there_is_no_status(driver: Driver) -> None:
    model = LiteLLMModel("openai/m", base_url="bogus://x/v1", api_key=KEY, retry_wait=0)
    with pytest.raises(ModelError) as caught:
        driver.invoke(Agent(model=model), "hi")
    assert caught.value.status_code is None

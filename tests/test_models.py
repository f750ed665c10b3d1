"""Models: settings, the wire shape, and `LiteLLMModel` over real HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import respx
from drivers import PATIENCE

from phronomy.errors import ConfigurationError, InvalidField, ModelError
from phronomy.foundation import json_text
from phronomy.models import LiteLLMModel, Model, ModelReply, ModelRequest, ModelSettings, as_model, retry
from phronomy.models import litellm as module
from phronomy.models.formats import answer
from phronomy.records.messages import Message, ToolCall, Usage
from phronomy.testing import ChatServer, Fault, ScriptedModel, call, say

USER = Message(role="user", content="Refund order 1042")
REQUEST = ModelRequest(messages=(USER,))
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "refund", "parameters": {"type": "object", "properties": {"order_id": {"type": "integer"}}}},
}
KEY = "key-canary-5Yb2"


def through_json(message: Message) -> Message:
    return Message.model_validate_json(message.model_dump_json())


def tool(call_id: str, content: Any = "done") -> Message:
    return Message(role="tool", tool_call_id=call_id, content=content, settlement="completed")


# Settings and models


def test_settings_of_a_call_win_over_those_of_the_agent() -> None:
    agent = ModelSettings(temperature=0.2, seed=1, extra={"user": "a", "reasoning_effort": "low"})
    merged = agent.merged(ModelSettings(temperature=0, stop=("END",), extra={"reasoning_effort": "high"}))
    assert merged == ModelSettings(
        temperature=0, seed=1, stop=("END",), extra={"user": "a", "reasoning_effort": "high"}
    )
    assert agent.merged(None) is agent
    assert agent.merged(ModelSettings()) == agent


def test_settings_that_are_too_large_together_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = ModelSettings(extra={"a": "x" * 60}), ModelSettings(extra={"b": "y" * 60})
    monkeypatch.setattr(json_text, "MAX_BYTES", 100)
    with pytest.raises(InvalidField, match="ModelSettings: extra: JSON text of"):
        one.merged(two)


def test_settings_are_valid_once_built_and_keep_provider_options_out_of_their_repr() -> None:
    for wrong in ({"max_tokens": 0}, {"timeout": 0}, {"temperature": float("nan")}, {"tool_choice": ""}, {"top": 1}):
        with pytest.raises(InvalidField):
            ModelSettings(**wrong)  # pyright: ignore[reportArgumentType]
    settings = ModelSettings.model_validate({"stop": ["a", "b"], "extra": {"extra_headers": {"x-key": KEY}}})
    assert settings.stop == ("a", "b")
    assert KEY not in repr(settings)


def test_a_name_becomes_a_litellm_model_and_a_model_stays_itself() -> None:
    named = as_model("openai/gpt-4o-mini")
    assert isinstance(named, LiteLLMModel)
    assert named.name == "openai/gpt-4o-mini"
    scripted = ScriptedModel([])
    assert as_model(scripted) is scripted
    assert isinstance(named, Model)
    for wrong in (None, 5, object(), ScriptedModel):
        with pytest.raises(ConfigurationError):
            as_model(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_litellm_model_refuses_arguments_that_make_no_sense() -> None:
    for wrong in ({"model": ""}, {"model": "m", "max_attempts": 0}, {"model": "m", "retry_wait": -1}):
        with pytest.raises(ConfigurationError):
            LiteLLMModel(**wrong)  # pyright: ignore[reportArgumentType]


def test_a_reply_is_an_assistant_message() -> None:
    with pytest.raises(ConfigurationError):
        ModelReply(message=USER)
    assert ModelReply(message=Message(role="assistant", content="")).usage == Usage(requests=1)


def test_importing_models_loads_no_provider_library() -> None:
    code = (
        "import sys, phronomy.models, phronomy.testing; phronomy.models.as_model('openai/gpt-4o-mini');"
        "print(sorted({'aiohttp', 'litellm', 'tenacity', 'httpx', 'httpx2', 'openai'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# LiteLLMModel over HTTP. litellm leaves open what it opens, and Python warns of it: asynchronous clients, which are
# closed here in the loop that made them, and an event loop, which it makes in a thread that has not said it has none.

Ask = Callable[[LiteLLMModel, ModelRequest], ModelReply]


def ask_sync(model: LiteLLMModel, request: ModelRequest) -> ModelReply:
    return model.complete(request)


def ask_async(model: LiteLLMModel, request: ModelRequest) -> ModelReply:
    async def main() -> ModelReply:
        import litellm

        try:
            return await model.acomplete(request)
        finally:
            await litellm.close_litellm_async_clients()  # type: ignore[attr-defined,no-untyped-call]

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def no_event_loop() -> None:
    asyncio.set_event_loop(None)


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    chosen: Ask = request.param
    return chosen


def model_at(server: ChatServer, **options: Any) -> LiteLLMModel:
    return LiteLLMModel(
        "openai/gpt-4o-mini", **{"base_url": server.base_url, "api_key": KEY, "retry_wait": 0, **options}
    )


def test_litellm_talks_to_a_provider(ask: Ask) -> None:
    with ChatServer(
        [call("refund", {"order_id": 1042}, id="c1"), say("Done.", usage=Usage(input_tokens=9, output_tokens=4))]
    ) as server:
        model = model_at(server, settings=ModelSettings(temperature=0.5, seed=1))
        first = ask(
            model,
            ModelRequest(
                system="Be kind.",
                messages=(USER,),
                tools=(TOOL,),
                settings=ModelSettings(seed=2, tool_choice="refund", stop=("END",), timeout=60),
            ),
        )
        assert first.message.tool_calls == (ToolCall(id="c1", name="refund", arguments='{"order_id": 1042}'),)
        assert (first.finish_reason, first.usage.requests) == ("tool_calls", 1)
        last = ask(model, ModelRequest(messages=(USER, first.message, tool("c1")), tools=(TOOL,)))
        assert last == ModelReply(
            message=Message(role="assistant", content="Done."),
            usage=Usage(requests=1, input_tokens=9, output_tokens=4, cost=last.usage.cost),
            finish_reason="stop",
        )
        assert last.usage.cost == pytest.approx(9 * 0.15e-6 + 4 * 0.6e-6)  # by litellm's price list
    assert server.requests[0] == {
        "model": "gpt-4o-mini",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Refund order 1042"}],
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "refund"}},
        "temperature": 0.5,
        "seed": 2,
        "stop": ["END"],
    }
    assert [message["role"] for message in server.requests[1]["messages"]] == ["user", "assistant", "tool"]
    assert KEY not in repr(model)


def test_litellm_sends_provider_fields_back_where_they_were(ask: Ask) -> None:
    """Field failures 72 and 77 to 79, through litellm, which would gather them in one field of its own."""
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
        "reasoning": "I think …",
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "…"}],
        "alpha": ["é"],
    }
    with ChatServer([{**raw, "refusal": None}, "Done."]) as server:
        model = model_at(server)
        first = ask(model, REQUEST)
        ask(model, ModelRequest(messages=(USER, through_json(first.message), tool("c1"))))
    assert json.dumps(server.requests[1]["messages"][1]) == json.dumps(raw)


def test_litellm_keeps_its_own_fields_where_the_provider_speaks_another_protocol() -> None:
    made = {
        "role": "assistant",
        "content": "Hm.",
        "tool_calls": None,
        "thinking_blocks": [{"type": "thinking", "thinking": "Hm", "signature": "Eq=="}],
        "provider_specific_fields": {"citations": [1]},
    }
    for raw in ('{"content": [{"type": "text", "text": "Hm."}]}', "<html>", None, '{"choices": [{"message": 5}]}'):
        kept = module._as_sent(made, module._raw_message(raw))
        assert kept == {key: value for key, value in made.items() if value is not None}
    # A field of litellm's own beside the provider's raw message stays as well; what the provider had there wins.
    assert module._as_sent(made, {"content": "Hm.", "citations": [1]}) == {
        "role": "assistant",
        "content": "Hm.",
        "tool_calls": None,
        "citations": [1],
        "thinking_blocks": made["thinking_blocks"],
    }
    left = module._as_sent(made, {"content": "Hm."})
    assert left["provider_specific_fields"] == {"citations": [1]}
    theirs = module._as_sent(made, {"content": "Hm.", "provider_specific_fields": {"x": 1}})
    assert theirs["provider_specific_fields"] == {"x": 1}


def test_litellm_reads_calls_its_own_way_where_it_rewrote_them() -> None:
    rewritten = {"role": "assistant", "content": "{}", "tool_calls": None}
    raw = {"content": None, "tool_calls": [{"id": "c1", "function": {"name": "json", "arguments": "{}"}}]}
    assert module._as_sent(rewritten, raw)["tool_calls"] is None


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_a_fault_that_may_pass_is_tried_again(ask: Ask, status: int) -> None:
    with ChatServer([Fault(status=status), Fault(status=status, headers={"Retry-After": "0"}), "Hello"]) as server:
        assert ask(model_at(server), REQUEST).message.text == "Hello"
        assert len(server.requests) == 3


@pytest.mark.parametrize(("status", "attempts"), [(429, 1), (429, 2), (500, 3), (408, 3)])
def test_trying_again_ends_in_a_model_error(ask: Ask, status: int, attempts: int) -> None:
    with ChatServer(lambda body: Fault(status=status)) as server:
        with pytest.raises(ModelError) as caught:
            ask(model_at(server, max_attempts=attempts), REQUEST)
        assert len(server.requests) == attempts
    assert caught.value.status_code == status
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_not_tried_again(ask: Ask, status: int) -> None:
    with ChatServer(lambda body: Fault(status=status)) as server:
        with pytest.raises(ModelError) as caught:
            ask(model_at(server), REQUEST)
        assert len(server.requests) == 1
    assert caught.value.status_code == status


def test_a_context_overflow_is_not_tried_again(ask: Ask) -> None:
    error = {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}
    with ChatServer(lambda body: Fault(status=400, body={"error": error})) as server:
        with pytest.raises(ModelError, match="longer than the model can read") as caught:
            ask(model_at(server), REQUEST)
        assert len(server.requests) == 1
    assert caught.value.status_code == 400


def test_a_reset_connection_is_tried_again_and_has_no_status(ask: Ask) -> None:
    with ChatServer([Fault.reset(), "Hello"]) as server:
        assert ask(model_at(server), REQUEST).message.text == "Hello"
        assert len(server.requests) == 2
    with ChatServer(lambda body: Fault.reset()) as server:
        with pytest.raises(ModelError) as caught:
            ask(model_at(server), REQUEST)
        assert len(server.requests) == 3
    assert caught.value.status_code is None


def test_a_timeout_is_tried_again() -> None:
    with respx.mock:
        route = respx.post("http://127.0.0.1:9/v1/chat/completions").mock(side_effect=httpx.ReadTimeout)
        with pytest.raises(ModelError, match="Timeout") as caught:
            LiteLLMModel("openai/gpt-4o-mini", base_url="http://127.0.0.1:9/v1", api_key=KEY, retry_wait=0).complete(
                REQUEST
            )
    assert route.call_count == 3
    assert caught.value.status_code is None


@pytest.mark.parametrize(
    "body",
    [
        "<html>Bad gateway</html>",
        "",
        "[]",
        {"choices": []},
        {"choices": [{"index": 0, "message": None}]},
        {"error": "no"},
    ],
)
def test_an_answer_that_is_no_reply_is_a_model_error(ask: Ask, body: Any) -> None:
    with ChatServer(lambda _: Fault(status=200, body=body)) as server, pytest.raises(ModelError):
        ask(model_at(server, max_attempts=1), REQUEST)


def test_a_reply_that_cannot_be_read_is_not_asked_for_again(ask: Ask) -> None:
    nameless = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "", "arguments": "{}"}}],
    }
    with ChatServer(lambda body: nameless) as server:
        with pytest.raises(ModelError, match="names no function"):
            ask(model_at(server), REQUEST)
        assert len(server.requests) == 1


def test_the_wait_before_a_retry_is_what_the_provider_asks_for(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def apause(patience: object, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(retry, "pause", lambda patience, seconds: waits.append(seconds))
    monkeypatch.setattr(retry, "apause", apause)
    monkeypatch.setattr(answer, "time", SimpleNamespace(time=lambda: 0.0))
    date = format_datetime(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=30), usegmt=True)
    asked = [{"Retry-After": "7"}, {"Retry-After": date}, {"Retry-After": "soon"}, {}]
    with ChatServer([*(Fault(status=429, headers=headers) for headers in asked), "Hello"]) as server:
        assert ask(model_at(server, max_attempts=5), REQUEST).message.text == "Hello"
    assert waits == [7.0, 30.0, 0.0, 0.0]


def test_waits_grow_at_random_and_a_long_one_is_left_to_the_user(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def apause(patience: object, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(retry, "pause", lambda patience, seconds: waits.append(seconds))
    monkeypatch.setattr(retry, "apause", apause)
    faults = [Fault(status=503), Fault(status=503), Fault(status=429, headers={"Retry-After": "3600"})]
    with ChatServer([*faults, "never asked for"]) as server:
        with pytest.raises(ModelError) as caught:
            ask(model_at(server, retry_wait=1, max_attempts=9), REQUEST)
        assert len(server.requests) == 3
    assert caught.value.status_code == 429
    assert 0 <= waits[0] <= 1
    assert 0 <= waits[1] <= 2


def all_text(error: BaseException) -> str:
    return f"{error} {error!r} " + "".join(traceback.format_exception(error))


def test_no_error_tells_the_key_or_the_request(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    quoting = {"error": {"message": f"Incorrect API key provided: {KEY}. You said: secret-canary-77", "code": None}}
    secret = ModelRequest(messages=(Message(role="user", content="secret-canary-77"),))
    for status in (400, 401, 429, 500):
        with ChatServer([Fault(status=status, body=quoting)] * 2) as server:
            with pytest.raises(ModelError) as caught:
                ask(model_at(server, max_attempts=2), secret)
            assert KEY not in all_text(caught.value)
            assert "secret-canary" not in str(caught.value)
            assert len(str(caught.value)) < 200
    with ChatServer([Fault.reset()]) as server:
        with pytest.raises(ModelError) as caught:
            ask(model_at(server, max_attempts=1), secret)
        assert KEY not in all_text(caught.value)
    assert "Give Feedback" not in capsys.readouterr().out


@pytest.mark.sweep
def test_the_first_call_loads_litellm_off_the_event_loop_and_keeps_it_quiet() -> None:
    code = """
import asyncio, os, sys
from phronomy.messages import Message
from phronomy.models import LiteLLMModel, ModelRequest, litellm
from phronomy.testing import ChatServer, Fault

async def main(server):
    model = LiteLLMModel("openai/gpt-4o-mini", base_url=server.base_url, api_key="test", max_attempts=1)
    task = asyncio.create_task(model.acomplete(ModelRequest(messages=(Message(role="user", content="hi"),))))
    turns = 0
    while not task.done():
        await asyncio.sleep(0.001)
        turns += not litellm._load.cache_info().currsize
    try:
        await task
    except Exception as error:
        print(type(error).__name__, turns >= 3, os.environ["LITELLM_LOCAL_MODEL_COST_MAP"])

assert "litellm" not in sys.modules
with ChatServer([Fault(status=400)]) as server:
    asyncio.run(main(server))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ModelError", "True", "True"]


def test_a_first_asynchronous_call_waits_for_the_import() -> None:
    module._load.cache_clear()
    with ChatServer(["Hello"]) as server:
        assert ask_async(model_at(server), REQUEST).message.text == "Hello"


def test_litellm_may_edit_the_tools_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def edits(**arguments: Any) -> Any:
        arguments["tools"][0]["function"].clear()
        return None

    monkeypatch.setattr(module, "_load", lambda: SimpleNamespace(completion=edits))
    with pytest.raises(ModelError, match="holds no message"):
        LiteLLMModel("m").complete(ModelRequest(messages=(USER,), tools=(TOOL,)))
    assert TOOL["function"]["name"] == "refund"


def test_an_interrupt_passes_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = KeyboardInterrupt()

    def interrupted(**arguments: Any) -> Any:
        raise stop

    monkeypatch.setattr(module, "_load", lambda: SimpleNamespace(completion=interrupted))
    with pytest.raises(KeyboardInterrupt) as caught:
        LiteLLMModel("m").complete(REQUEST)
    assert caught.value is stop


def test_cancelling_the_task_cancels_the_call() -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def hang(body: dict[str, Any]) -> str:
        arrived.set()
        go_on.wait(PATIENCE)
        return "too late"

    async def main(server: ChatServer) -> None:
        import litellm

        task = asyncio.create_task(model_at(server).acomplete(REQUEST))
        assert await asyncio.to_thread(arrived.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await litellm.close_litellm_async_clients()  # type: ignore[attr-defined,no-untyped-call]

    with ChatServer(hang) as server:
        asyncio.run(main(server))
        go_on.set()
        assert len(server.requests) == 1


def test_errors_without_a_status_are_tried_again_only_if_they_are_faults_of_the_way() -> None:
    model = LiteLLMModel("m")
    assert all(model._failure(error).may_pass for error in (ConnectionResetError(), TimeoutError()))
    assert not any(model._failure(error).may_pass for error in (ValueError(), ModelError("no reply")))

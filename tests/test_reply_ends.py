"""How a reply ended: a call that was cut off never runs, and half a text is no answer unless that was asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import respx
from drivers import DRIVERS, Driver
from tables import each

from phronomy import (
    Agent,
    ContentFilterError,
    LiteLLMModel,
    MemoryStore,
    ModelError,
    ModelSettings,
    ReplyIncomplete,
    ReplyUnsupported,
    RunFailed,
    tool,
)
from phronomy.models import ChatCompletionsModel, ResponsesModel
from phronomy.testing import ChatServer, Fault, ScriptedModel, call, say
from phronomy.timeline import timeline

ANTHROPIC = "https://anthropic.test"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash"
HALF = "I would send"
CUT = ["length", "max_tokens", "MAX_TOKENS", "model_context_window_exceeded", "pause_turn", "MALFORMED_FUNCTION_CALL"]
CUT += ["error", "incomplete", "not_known_yet", "tool_calls", "\x1b[1m", "sk-canary 1"]
ACCEPTS = ModelSettings(accept_incomplete=True)


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


def desk(model: Any, deleted: list[str], **options: Any) -> Agent[Any]:
    @tool
    def delete(folder: str = "/") -> str:
        """Delete a folder."""
        deleted.append(folder)
        return "deleted"

    given: dict[str, Any] = {"store": MemoryStore(), **options}
    return Agent(name="desk", model=model, tools=[delete], **given)


@pytest.mark.parametrize("reason", CUT)
def test_half_a_text_is_no_answer(driver: Driver, reason: str) -> None:
    store = MemoryStore()
    agent = desk(ScriptedModel([say(HALF, finish_reason=reason), "All of it."]), [], store=store)

    with pytest.raises(ReplyIncomplete) as caught:
        driver.invoke(agent, "Go", thread_id="t")

    word = reason if reason.replace("_", "").isalpha() else "unknown"
    assert (caught.value.finish_reason, caught.value.text) == (word, HALF)
    assert "canary" not in str(caught.value)
    assert caught.value.checkpoint is not None
    assert [message.role for message in caught.value.checkpoint.messages] == ["user"]
    assert driver.resume(agent, caught.value.checkpoint).output == "All of it."


@each("reason", ["stop", "STOP", "end_turn", "stop_sequence", "COMPLETE", "eos", None, ""])
def test_a_whole_text_is_an_answer_whatever_its_end_is_called(reason: str | None) -> None:
    result = desk(ScriptedModel([say("Done.", finish_reason=reason)]), []).invoke("Go")
    assert (result.output, result.finish_reason) == ("Done.", None)


@pytest.mark.parametrize("place", ["agent", "call", "model"])
def test_half_a_text_is_the_answer_where_that_was_asked_for_and_all_surfaces_say_so(driver: Driver, place: str) -> None:
    with ChatServer([say(HALF, finish_reason="length")]) as server:
        own = ACCEPTS if place == "model" else None
        model = ChatCompletionsModel("m", base_url=server.base_url, api_key="k", settings=own)
        store = MemoryStore()
        agent = desk(model, [], store=store, **({"settings": ACCEPTS} if place == "agent" else {}))
        result = driver.invoke(agent, "Go", **({"settings": ACCEPTS} if place == "call" else {}))
        assert (result.status, result.output, result.finish_reason) == ("completed", HALF, "length")
        assert result.messages[-1].finish_reason == "length"
        assert '"finish_reason":"length"' in result.checkpoint.model_dump_json()
        (replied,) = [entry for entry in timeline(store, result.run_id).entries if entry.type == "model_replied"]
        assert replied.facts["finish_reason"] == "length"
        assert "accept_incomplete" not in json.dumps(server.requests)


def test_no_text_at_all_is_no_answer_even_then(driver: Driver) -> None:
    with pytest.raises(ReplyIncomplete):
        driver.invoke(desk(ScriptedModel([say(None, finish_reason="length")]), [], settings=ACCEPTS), "Go")


@pytest.mark.parametrize("reason", [reason for reason in CUT if reason != "tool_calls"])
def test_no_call_of_a_reply_that_was_cut_off_runs(driver: Driver, reason: str) -> None:
    deleted: list[str] = []
    cut = say(None, call("delete", ""), call("delete", {"folder": "/tmp"}), finish_reason=reason)
    result = driver.invoke(desk(ScriptedModel([cut, "I leave it."]), deleted, settings=ACCEPTS), "Empty /data/x")
    assert (result.output, deleted) == ("I leave it.", [])
    told = [message for message in result.messages if message.role == "tool"]
    assert [message.settlement for message in told] == ["invalid", "invalid"]
    assert all("cut off" in message.text for message in told)


def test_no_human_is_shown_a_call_that_was_cut_off(driver: Driver) -> None:
    @tool(requires_approval=True)
    def wipe(folder: str = "/") -> str:
        """Wipe a folder."""
        raise AssertionError("it ran")

    store = MemoryStore()
    model = ScriptedModel([say(None, call("wipe", ""), finish_reason="length"), "No."])
    assert driver.invoke(Agent(name="desk", model=model, tools=[wipe], store=store), "Go").output == "No."
    assert store.pending() == []


def test_half_the_answer_of_an_inner_agent_is_not_passed_on(driver: Driver) -> None:
    inner = Agent(name="inner", model=ScriptedModel([say(HALF, finish_reason="length")]))
    model = ScriptedModel([call("inner", {"input": "Go"}), "Done."])
    with pytest.raises(RunFailed):
        driver.invoke(Agent(name="outer", model=model, tools=[inner.as_tool()], store=MemoryStore()), "Go")


# On the wire


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def body(message: dict[str, Any], finish: str | None, **more: Any) -> Fault:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **more}
    return Fault(
        status=200, body={"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    )


ONE = {"index": 0, "id": "x", "type": "function", "function": {"name": "delete", "arguments": ""}}
ERROR = {"code": 502, "message": "canary: the upstream broke off"}
FAILING = {
    "length": (body({"content": HALF}, "length"), ReplyIncomplete),
    "streamed": (Fault.stream(chunk(content=HALF), chunk("length"), "[DONE]"), ReplyIncomplete),
    "two ends": (Fault.stream(chunk(content=HALF), chunk("length"), chunk("stop"), "[DONE]"), ReplyIncomplete),
    "no end": (Fault.stream(chunk(content=HALF), chunk("")), ModelError),
    "a call is missing": (body({"content": None}, "tool_calls"), ReplyIncomplete),
    "not known": (body({"content": HALF}, "tired"), ReplyIncomplete),
    "an error of the upstream": (body({"content": HALF}, "error"), ReplyIncomplete),
    "an error in the choice": (body({"content": HALF}, "stop", error=ERROR), ModelError),
    "a call of the old kind": (
        body({"content": None, "function_call": {"name": "delete"}}, "function_call"),
        ReplyUnsupported,
    ),
    "a custom call": (
        body({"tool_calls": [{"id": "x", "type": "custom", "custom": {"name": "f"}}]}, "stop"),
        ReplyUnsupported,
    ),
}


@pytest.mark.parametrize("kind", [ChatCompletionsModel, LiteLLMModel])
@pytest.mark.parametrize("name", FAILING)
def test_a_chat_completion_that_is_not_whole(name: str, kind: Any) -> None:
    answer, error = FAILING[name]
    deleted: list[str] = []
    with ChatServer([answer]) as server:
        model = kind("openai/gpt-4o-mini", base_url=server.base_url, api_key="k", max_attempts=1)
        agent = desk(model, deleted)
        with pytest.raises(error) as caught:
            drained(agent) if answer.events else agent.invoke("Go")
    assert (deleted, "canary" in str(caught.value)) == ([], False)


def test_the_call_of_a_stream_that_was_cut_off_does_not_run_with_its_defaults() -> None:
    deleted: list[str] = []
    half = Fault.stream(chunk(tool_calls=[ONE]), chunk("length"), "[DONE]")
    with ChatServer([half, Fault.stream(chunk(content=HALF), chunk("length"), "[DONE]")]) as server:
        agent = desk(ChatCompletionsModel("m", base_url=server.base_url, api_key="k"), deleted)
        with pytest.raises(ReplyIncomplete):
            drained(agent)
    assert deleted == []


FUNCTION = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "delete", "arguments": "{}"}
TEXT = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": HALF}]}
ASKS = {"id": "mcpr_1", "type": "mcp_approval_request", "name": "delete_repo", "arguments": "{}", "server_label": "gh"}


def asks(kind: str, **more: Any) -> dict[str, Any]:
    return {"id": "i", "type": kind, "call_id": "c1", "status": "completed", **more}


WAITING = [
    ASKS,
    *(
        asks(kind)
        for kind in ("computer_call", "custom_tool_call", "shell_call", "local_shell_call", "apply_patch_call")
    ),
    asks("tool_search_call", execution="client"),
    {"id": "i", "type": "not_known_call"},
    {"id": "i", "type": "consent_request"},
]


@each("item", WAITING)
@each("beside", [[], [TEXT], [FUNCTION]])
def test_what_waits_for_an_answer_is_never_swallowed(item: dict[str, Any], beside: list[dict[str, Any]]) -> None:
    deleted: list[str] = []
    for streamed in (False, True):
        with responses([*beside, item], streamed=streamed) as model:
            agent = desk(model, deleted)
            with pytest.raises(ReplyUnsupported, match=item["type"]) as caught:
                drained(agent) if streamed else agent.invoke("Go")
        assert (caught.value.item_type, deleted) == (item["type"], [])
        assert "@tool" in str(caught.value)


@each(
    "items",
    [
        [{"id": "w", "type": "web_search_call", "status": "completed"}, TEXT],
        [asks("shell_call"), asks("shell_call_output"), TEXT],
        [{"id": "i", "type": "tool_search_call", "execution": "server", "call_id": None}, TEXT],
        [{"id": "x", "type": "hologram", "shape": [1]}, TEXT],
    ],
)
def test_what_the_provider_did_itself_is_kept(items: list[dict[str, Any]]) -> None:
    with responses(items) as model:
        assert desk(model, []).invoke("Go").output == HALF


CUT_RESPONSES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], type[Exception]]] = {
    "status": (
        [TEXT],
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        ReplyIncomplete,
    ),
    "details without a status": (
        [TEXT],
        {"status": None, "incomplete_details": {"reason": "max_output_tokens"}},
        ReplyIncomplete,
    ),
    "details beside another status": (
        [TEXT],
        {"status": "completed", "incomplete_details": {"reason": "max_output_tokens"}},
        ReplyIncomplete,
    ),
    "withheld, beside another status": (
        [TEXT],
        {"status": "completed", "incomplete_details": {"reason": "content_filter"}},
        ContentFilterError,
    ),
    "status of the text": ([{**TEXT, "status": "incomplete"}], {}, ReplyIncomplete),
    "nothing that is known": ([{"id": "x", "type": "hologram"}], {}, ReplyUnsupported),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", CUT_RESPONSES)
def test_a_response_that_is_not_whole(name: str, streamed: bool) -> None:
    items, more, error = CUT_RESPONSES[name]
    with responses(items, streamed=streamed, **more) as model:
        agent = desk(model, [])
        with pytest.raises(error):
            drained(agent) if streamed else agent.invoke("Go")


@each("status", ["incomplete", "in_progress"])
def test_a_call_that_is_not_complete_does_not_run(status: str) -> None:
    deleted: list[str] = []
    with responses([{**FUNCTION, "status": status}], [TEXT]) as model:
        assert desk(model, deleted).invoke("Go").output == HALF
    assert deleted == []


def drained(agent: Agent[Any]) -> Any:
    with agent.stream("Go") as stream:
        list(stream)
    return stream.result


@contextmanager
def responses(*outputs: list[dict[str, Any]], streamed: bool = False, **more: Any) -> Iterator[ResponsesModel]:
    """A model at an endpoint that answers with these items, one list of them after the other."""
    whole = [
        {"id": "r", "object": "response", "model": "m", "status": "completed", "output": output, **more}
        for output in outputs
    ]
    answers = [
        Fault.stream({"type": f"response.{one['status'] or 'completed'}", "response": one})
        if streamed
        else Fault(status=200, body=one)
        for one in whole
    ]
    with ChatServer(answers) as server, ResponsesModel("m", base_url=server.base_url, api_key="k") as model:
        yield model


# Where litellm rewrites the reason


def anthropic(reason: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": HALF}],
        "stop_reason": reason,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def anthropic_events(reason: str) -> str:
    start = {**anthropic(reason), "content": [], "stop_reason": None}
    events = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": HALF}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)


def gemini(reason: str) -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": HALF}]}
    return {"candidates": [{"index": 0, "content": content, "finishReason": reason}], "usageMetadata": {}}


REASONS = [
    *(("anthropic", reason) for reason in ("max_tokens", "pause_turn", "model_context_window_exceeded", "new_reason")),
    *(("gemini", reason) for reason in ("MAX_TOKENS", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "NEW_REASON")),
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("provider", "reason"), REASONS)
@respx.mock
def test_the_provider_s_own_word_counts_where_litellm_rewrites_it(
    provider: str, reason: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if provider == "anthropic":
        model = LiteLLMModel("anthropic/claude-sonnet-4-5", base_url=ANTHROPIC, api_key="k", max_attempts=1)
        text = anthropic_events(reason) if streamed else json.dumps(anthropic(reason))
    else:
        model = LiteLLMModel("gemini/gemini-2.5-flash", api_key="k", max_attempts=1)
        text = f"data: {json.dumps(gemini(reason))}\n\n" if streamed else json.dumps(gemini(reason))
    kind = "text/event-stream" if streamed else "application/json"
    respx.post(url__regex=".*").respond(200, headers={"content-type": kind}, text=text)
    agent = desk(model, [])
    with pytest.raises(ReplyIncomplete) as caught:
        drained(agent) if streamed else agent.invoke("Go")
    assert caught.value.text == HALF
    assert caught.value.finish_reason.lower() in (reason.lower(), "length")

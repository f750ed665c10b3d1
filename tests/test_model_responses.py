"""`ResponsesModel`: what goes out, what comes back and goes back as it came, and its faults; httpx mocked, and over the loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import respx

from phronomy.errors import ConfigurationError, ContentFilterError, ModelConnectionError, ModelError, RateLimitError
from phronomy.models import ModelReply, ModelRequest, ModelSettings, ReasoningDelta, ResponsesModel, as_model
from phronomy.models.base import TextDelta, ToolCallDelta
from phronomy.records.messages import Message, ToolCall, Usage
from phronomy.testing import Fault, ModelContract
from phronomy.testing.contract import STREAMED, WAYS

URL = "http://provider.test/v1/responses"
USER = Message(role="user", content="Refund order 1042, secret-canary-77")
REQUEST = ModelRequest(messages=(USER,))
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "refund", "parameters": {"type": "object"}}}
OUTPUT: list[dict[str, Any]] = [
    {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA+/=é"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x", "type": "search"}},
    {
        "id": "msg_1",
        "phase": "commentary",
        "type": "message",
        "status": "completed",
        "content": [{"type": "output_text", "annotations": [], "text": "Hm.", "logprobs": []}],
        "role": "assistant",
    },
    {"zeta": 5.0, "id": "n_1", "type": "not_known_yet"},
    {"id": "fc_1", "type": "function_call", "arguments": '{ "a":1 }', "call_id": "c1", "name": "refund", "ns": None},
]


def response(output: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    used = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    return {
        "id": "r",
        "object": "response",
        "status": "completed",
        "error": None,
        "output": output,
        "usage": used,
    } | more


def stream(*events: Any) -> httpx.Response:
    text = "".join(f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n" for one in events)
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)


def item(place: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": place, **more}


EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": response([], status="in_progress")},
    item(0, "reasoning_summary_text.delta", delta="I think"),
    item(2, "output_text.delta", delta="Hm."),
    item(4, "output_item.added", item={**OUTPUT[4], "arguments": ""}),
    item(4, "function_call_arguments.delta", delta='{ "a":1 }'),
    *(item(place, "output_item.done", item=one) for place, one in enumerate(OUTPUT)),
]


class Contract(ModelContract):
    def make_model(self, base_url: str) -> ResponsesModel:
        return ResponsesModel("gpt-5", base_url=base_url, api_key=self.key, retry_wait=0)


CONTRACT = Contract()
"""Asks in each of the four ways."""


@pytest.fixture
def model() -> Iterator[ResponsesModel]:
    with ResponsesModel("gpt-5", base_url="http://provider.test/v1", api_key="key-canary-5Yb2", retry_wait=0) as made:
        yield made


def sent(router: respx.MockRouter) -> list[dict[str, Any]]:
    return [json.loads(one.request.content) for one in router.calls]


@pytest.mark.parametrize("last", [response(OUTPUT), response([])], ids=["whole", "without its items"])
@pytest.mark.parametrize("streamed", [False, True])
def test_items_go_back_where_they_were_byte_for_byte(model: ResponsesModel, streamed: bool, last: Any) -> None:
    end = {"type": "response.completed", "response": last}
    first = stream(*EVENTS, end) if streamed else httpx.Response(200, json=response(OUTPUT))
    with respx.mock(using="httpcore2") as router:
        router.post(URL).mock(side_effect=[first, httpx.Response(200, json=response([]))])
        *deltas, reply = model.stream(REQUEST) if streamed else [model.complete(REQUEST)]
        assert isinstance(reply, ModelReply)
        kept = Message.model_validate_json(reply.message.model_dump_json())
        result = Message(role="tool", tool_call_id="c1", content="ok", settlement="completed")
        model.complete(ModelRequest(system="Be kind.", messages=(USER, kept, result)))
        body = sent(router)[1]
    assert (reply.message.text, reply.finish_reason) == ("Hm.", "tool_calls")
    assert reply.usage == Usage(requests=1, input_tokens=9, output_tokens=4)
    assert reply.message.tool_calls == (ToolCall(id="c1", name="refund", arguments='{ "a":1 }'),)
    assert (body["instructions"], body["store"], body["include"]) == (
        "Be kind.",
        False,
        ["reasoning.encrypted_content"],
    )
    assert json.dumps(body["input"][1:-1]) == json.dumps(OUTPUT)
    assert body["input"][-1] == {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    call = [ToolCallDelta(index=0, id="c1", name="refund"), ToolCallDelta(index=0, arguments='{ "a":1 }')]
    assert deltas == ([ReasoningDelta(text="I think"), TextDelta(text="Hm."), *call] if streamed else [])


CALLED = ToolCall(id="c1", name="refund", arguments="{}")
HM: dict[str, Any] = {"role": "assistant", "content": "Hm."}
CALL: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": "{}"}
CHANGED: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "less calls": ({"content": "Hm."}, [HM]),
    "more calls": ({"content": "Hm.", "tool_calls": (CALLED, CALLED)}, [HM, CALL, CALL]),
    "less text": ({"content": None, "tool_calls": (CALLED,)}, [CALL]),
    "more text": (
        {"content": [{"type": "text", "text": one} for one in ("Hm", ".")], "tool_calls": (CALLED,)},
        [HM, CALL],
    ),
    "of another protocol": ({"content": "Hm.", "provider": {"phronomy": {"calls": {}}, "zeta": 1}}, [HM]),
    "of somebody else": ({"content": "Hm.", "provider": {"phronomy": {"items": [1]}}}, [HM]),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_reply_that_has_changed_goes_without_what_belonged_to_it(model: ResponsesModel, name: str) -> None:
    fields, goes = CHANGED[name]
    with respx.mock(using="httpcore2") as router:
        router.post(URL).mock(return_value=httpx.Response(200, json=response(OUTPUT)))
        came = model.complete(REQUEST).message
        other = Message.model_validate({"role": "assistant", "provider": came.provider, **fields})
        model.complete(ModelRequest(messages=(USER, other, USER)))
        assert sent(router)[1]["input"][1:-1] == goes


def test_texts_and_arguments_that_have_changed_stand_in_their_places(model: ResponsesModel) -> None:
    two = [OUTPUT[2], OUTPUT[0], {**OUTPUT[2], "id": "msg_2"}, OUTPUT[4]]
    with respx.mock(using="httpcore2") as router:
        router.post(URL).mock(return_value=httpx.Response(200, json=response(two)))
        came = model.complete(REQUEST).message
        assert came.content == [{"type": "text", "text": "Hm."}] * 2
        texts = [{"type": "text", "text": one} for one in ("One", "Two")]
        other = Message(role="assistant", content=texts, tool_calls=(CALLED,), provider=came.provider)
        model.complete(ModelRequest(messages=(USER, other, USER)))
        first, thought, second, called = sent(router)[1]["input"][1:-1]
    assert thought == OUTPUT[0]
    assert [one["content"][0]["text"] for one in (first, second)] == ["One", "Two"]
    assert called == {**OUTPUT[4], "arguments": "{}"}


def test_reasoning_that_led_to_nothing_is_kept_and_not_sent(model: ResponsesModel) -> None:
    cut = response(OUTPUT[:1], status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    with respx.mock(using="httpcore2") as router:
        router.post(URL).mock(return_value=httpx.Response(200, json=cut))
        reply = model.complete(REQUEST)
        model.complete(ModelRequest(messages=(USER, reply.message, USER)))
        assert (reply.finish_reason, reply.message.text) == ("length", "")
        assert reply.message.provider == {"phronomy": {"items": OUTPUT[:1]}}
        assert [one["role"] for one in sent(router)[1]["input"]] == ["user", "user"]


def test_a_refusal_is_a_reply(model: ResponsesModel) -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    with respx.mock(using="httpcore2") as router:
        router.post(URL).mock(return_value=httpx.Response(200, json=response([said])))
        reply = model.complete(REQUEST)
        model.complete(ModelRequest(messages=(USER, reply.message, USER)))
        assert (reply.message.text, reply.message.provider["refusal"]) == ("", "No.")
        assert sent(router)[1]["input"][1] == said


def test_settings_tools_and_parts_go_out_in_the_form_of_this_api(model: ResponsesModel) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    extra = {"reasoning_effort": "low", "response_format": form, "text": {"verbosity": "low"}, "include": None}
    settings = ModelSettings(temperature=0.5, max_tokens=7, tool_choice="refund", extra=extra)
    parts = [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "http://i.test/1.png"}},
        {"type": "file", "file": {"file_id": "file_1"}},
        {"type": "input_audio", "data": "AAAA"},
    ]
    asked = ModelRequest(messages=(Message(role="user", content=parts),), tools=(TOOL,), settings=settings)
    with respx.mock(using="httpcore2") as router:
        router.post(URL).mock(return_value=httpx.Response(200, json=response([])))
        model.complete(asked)
        for name in ("stop", "seed"):
            wrong = ModelSettings(**{name: ("END",) if name == "stop" else 1})
            with pytest.raises(ConfigurationError, match=name):
                model.complete(ModelRequest(messages=(USER,), settings=wrong))
        assert sent(router) == [
            {
                "store": False,
                "text": {
                    "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}},
                    "verbosity": "low",
                },
                "reasoning": {"effort": "low"},
                "temperature": 0.5,
                "max_output_tokens": 7,
                "tools": [{"type": "function", "strict": False, "name": "refund", "parameters": {"type": "object"}}],
                "tool_choice": {"type": "function", "name": "refund"},
                "model": "gpt-5",
                "input": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "input_text", "text": "See"},
                            {"type": "input_image", "image_url": "http://i.test/1.png", "detail": "auto"},
                            {"type": "input_file", "file_id": "file_1"},
                            {"type": "input_audio", "data": "AAAA"},
                        ],
                    }
                ],
            }
        ]


def failed(code: str) -> dict[str, Any]:
    said = {"code": code, "message": "secret-canary-77"}
    return {"type": "response.failed", "response": response([], status="failed", error=said)}


def whole(body: dict[str, Any]) -> Fault:
    return Fault(status=200, body=body)


LATE = [item(0, "output_text.delta", delta="Half")]
WITHHELD = response([], status="incomplete", incomplete_details={"reason": "content_filter"})
FAULTS: dict[str, tuple[Fault, type[ModelError], int, int | None]] = {
    "failed": (whole(failed("server_error")["response"]), ModelError, 3, 500),
    "failed without a word": (whole(response([], status="failed")), ModelError, 1, None),
    "withheld": (whole(WITHHELD), ContentFilterError, 1, None),
    "queued": (whole(response([], status="queued")), ModelError, 1, None),
    "no items": (whole({"status": "completed"}), ModelError, 1, None),
    "a call of nothing": (whole(response([{"type": "function_call"}])), ModelError, 1, None),
}
FAULTS_INSIDE: dict[str, tuple[Fault, type[ModelError], int, int | None]] = {
    "failed": (Fault.stream(failed("rate_limit_exceeded")), RateLimitError, 3, 429),
    "failed for good": (Fault.stream(failed("bio_policy")), ContentFilterError, 1, None),
    "failed late": (Fault.stream(*LATE, failed("server_error")), ModelError, 1, 500),
    "withheld late": (
        Fault.stream(*LATE, {"type": "response.incomplete", "response": WITHHELD}),
        ContentFilterError,
        1,
        None,
    ),
    "an error": (
        Fault.stream({"type": "error", "code": "too_many_requests", "message": "secret-canary-77"}),
        RateLimitError,
        3,
        429,
    ),
    "a nested error": (Fault.stream({"type": "error", "error": {"code": "server_error"}}), ModelError, 3, 500),
    "cut": (Fault.stream(), ModelConnectionError, 3, None),
    "cut before a piece": (Fault.stream(*EVENTS[:1]), ModelConnectionError, 3, None),
    "cut late": (Fault.stream(*EVENTS), ModelConnectionError, 1, None),
    "cut late, with an end of another protocol": (Fault.stream(*EVENTS, "[DONE]"), ModelConnectionError, 1, None),
    "ended with nothing": (Fault.stream({"type": "response.completed"}), ModelError, 1, None),
}


def mocked(fault: Fault) -> httpx.Response:
    """The same answer for httpx mocked."""
    return httpx.Response(200, json=fault.body) if fault.events is None else stream(*fault.events)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_fault_is_what_it_says(way: str, name: str) -> None:
    fault, kind, asked, status = FAULTS[name]
    CONTRACT.fails(way, [fault] * asked, kind, requests=asked, status=status)


@pytest.mark.parametrize("name", FAULTS_INSIDE)
@pytest.mark.parametrize("way", STREAMED)
def test_a_fault_of_a_stream_is_what_it_says(way: str, name: str) -> None:
    fault, kind, asked, status = FAULTS_INSIDE[name]
    _, given = CONTRACT.fails(way, [fault] * asked, kind, requests=asked, status=status)
    assert bool(given) == ("late" in name)


@pytest.mark.parametrize("fault", [*FAULTS.values(), *FAULTS_INSIDE.values()])
def test_a_fault_is_the_same_with_httpx_mocked(model: ResponsesModel, fault: Any) -> None:
    answer, kind, asked, status = fault
    with respx.mock(using="httpcore2") as router:
        router.post(URL).mock(side_effect=lambda _: mocked(answer))
        with pytest.raises(ModelError) as caught:
            list(model.stream(REQUEST))
        assert (type(caught.value), len(router.calls), caught.value.status_code) == (kind, asked, status)
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize(("reason", "said"), [("max_output_tokens", "length"), ("not_known_yet", "incomplete")])
@pytest.mark.parametrize("way", WAYS)
def test_a_reply_that_is_not_complete_says_why(way: str, reason: str, said: str) -> None:
    cut = {"output": OUTPUT[:3], "status": "incomplete", "incomplete_details": {"reason": reason}}
    with CONTRACT.served([cut]) as (_, model):
        reply, _ = CONTRACT.ask(model, REQUEST, way)
    assert (reply.finish_reason, reply.message.text) == (said, "Hm.")


def test_the_environment_chooses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHRONOMY_MODEL_BACKEND", "responses")
    model = as_model("openai/gpt-5")
    assert isinstance(model, ResponsesModel) and model.name == "gpt-5"

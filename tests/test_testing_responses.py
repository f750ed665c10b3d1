"""The loopback provider over the Responses API: OpenAI's own client understands it, and it refuses what OpenAI refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai import APIError, APIStatusError, OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from phronomy.records.messages import Usage
from phronomy.testing import ChatServer, Fault, call, say

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
HI: dict[str, Any] = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": "{}"}
THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
DONE = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
INCLUDE: Any = ["reasoning.encrypted_content"]


@contextmanager
def serving(script: Any) -> Iterator[tuple[ChatServer, OpenAI]]:
    """A provider that follows the script, and OpenAI's client of it."""
    plain = httpx.Client(trust_env=False)
    with (
        ChatServer(script) as server,
        OpenAI(base_url=server.base_url, api_key="none-is-needed", max_retries=0, http_client=plain) as client,
    ):
        yield server, client


REPLY = say(
    "Let me look at it.",
    call("refund", '{ "order_id":1 }'),
    call("look", {}),
    provider={"reasoning_content": "I think so."},
    usage=Usage(input_tokens=3, output_tokens=4),
)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_reply_is_what_openais_client_takes_for_one(streamed: bool) -> None:
    with serving([REPLY]) as (server, client):
        asked: dict[str, Any] = {"model": "gpt-5", "input": [HI], "include": INCLUDE, "store": False}
        if streamed:
            with client.responses.stream(**asked) as stream:
                seen = list(stream)
                reply: Any = stream.get_final_response()
            assert "".join(one.delta for one in seen if one.type == "response.output_text.delta") == reply.output_text
        else:
            reply = client.responses.create(**asked)
    Response.model_validate(reply.to_dict())
    thought, said, refund, look = reply.output
    assert (reply.status, reply.output_text, reply.usage.total_tokens) == ("completed", "Let me look at it.", 7)
    assert (thought.summary[0].text, thought.encrypted_content) == ("I think so.", "SSB0aGluayBzby4=")
    assert (said.id, refund.id, look.id) == ("msg_1", "fc_1_0", "fc_1_1")
    assert (refund.call_id, refund.name, refund.arguments) == ("call_1", "refund", '{ "order_id":1 }')
    assert server.requests == [{**asked, "stream": True} if streamed else asked]


def test_each_event_is_one_that_openai_knows() -> None:
    odd = [
        {**THOUGHT, "encrypted_content": "gAAA+/=="},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "refusal", "refusal": "No, I cannot."}],
        },
    ]
    with serving([REPLY, {"output": odd}, ""]) as (_, client):
        for kept in (None, odd, None):
            sent = [event.to_dict() for event in client.responses.create(model="m", input="hi", stream=True)]
            assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
            for event in sent:
                EVENT.validate_python(event)
            assert [event["type"] for event in sent[:2]] == ["response.created", "response.in_progress"]
            last: Any = sent[-1]
            done = [event["item"] for event in sent if event["type"] == "response.output_item.done"]
            assert (last["type"], last["response"]["output"]) == ("response.completed", done)
            assert kept in (None, done)


def test_what_has_not_completed_says_why() -> None:
    failed = {"output": [], "status": "failed", "error": {"code": "server_error", "message": "boom"}}
    with serving([say("It is", finish_reason="length"), say("It is", finish_reason="length"), failed]) as (_, client):
        whole = client.responses.create(model="m", input="hi")
        *_, cut = client.responses.create(model="m", input="hi", stream=True)
        *_, broken = client.responses.create(model="m", input="hi", stream=True)
    assert (cut.type, broken.type) == ("response.incomplete", "response.failed")
    assert (whole.status, whole.incomplete_details and whole.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    assert cut.response.status == "incomplete"  # type: ignore[union-attr]
    assert broken.response.error.code == "server_error"  # type: ignore[union-attr]


def test_faults_are_answered_over_it_too() -> None:
    late = Fault.stream(
        {"type": "error", "code": "server_error", "message": "boom", "param": None, "sequence_number": 0}
    )
    nested = Fault.stream({"type": "error", "error": {"code": "server_error", "message": "boom"}})
    with serving([Fault(status=429), late, nested, Fault.cut("Hello", after=3)]) as (_, client):
        with pytest.raises(APIStatusError, match="429"):
            client.responses.create(model="m", input="hi")
        assert [one.type for one in client.responses.create(model="m", input="hi", stream=True)] == ["error"]
        with pytest.raises(APIError, match="boom"):
            list(client.responses.create(model="m", input="hi", stream=True))
        cut = iter(client.responses.create(model="m", input="hi", stream=True))
        assert [next(cut).type for _ in range(3)][-1] == "response.output_item.added"
        with pytest.raises(httpx.RemoteProtocolError):
            next(cut)


def test_items_of_one_reply_are_one_turn() -> None:
    history = [HI, THOUGHT, {"role": "assistant", "content": "Hm."}, CALL, DONE]
    parts = {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}
    with ChatServer.by_turn([call("refund"), parts]) as server, httpx.Client(trust_env=False) as client:
        for said, kind in (([HI], "function_call"), (history, "message")):
            answer = client.post(f"{server.base_url}/responses", json={"model": "m", "input": said})
            assert [item["type"] for item in answer.json()["output"]] == [kind]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": [HI, CALL]}, "ends before the results of the calls 'c1'"),
    ({"input": [HI, CALL, HI]}, "comes before the results of the calls 'c1'"),
    ({"input": [HI, DONE]}, "answers the call 'c1'"),
    ({"input": [HI, CALL, {**CALL}, DONE]}, "is empty or was used before"),
    ({"input": [HI, THOUGHT]}, "reasoning without its following item"),
    ({"input": [HI, THOUGHT, HI]}, "reasoning without its following item"),
    ({"input": [HI, {"type": "reasoning", "id": "rs_1"}]}, "reasoning has a summary"),
    ({"input": [HI, {**CALL, "arguments": {}}]}, "arguments as text"),
    ({"input": [HI, CALL, {**DONE, "output": None}]}, "output as text or a list"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input[0] has no role"),
    ({"input": [{"content": "x"}]}, "input[0] has no type"),
    ({"input": ["hi"]}, "input[0] has no type"),
    ({"input": [{"role": "user", "content": None}]}, "the content is a text"),
    ({"input": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, "input_text"),
    ({"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "hi"}]}]}, "output_text"),
    ({"input": []}, "at least one item"),
    ({"messages": [HI]}, "at least one item"),
    ({"input": "hi", "model": None}, "model"),
    ({"input": "hi", "previous_response_id": "resp_1"}, "none is stored here"),
]


@pytest.mark.parametrize(("asked", "problem"), REFUSED)
def test_it_refuses_what_openai_refuses(asked: dict[str, Any], problem: str) -> None:
    with ChatServer(["never said"]) as server, httpx.Client(trust_env=False) as client:
        answer = client.post(f"{server.base_url}/responses", json={"model": "m", **asked})
    assert answer.status_code == 400
    assert problem in answer.json()["error"]["message"]
    assert answer.json()["error"]["type"] == "invalid_request_error"

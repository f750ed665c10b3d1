"""The order of a reply's parts: what is kept of it, when it goes out, and when the message goes as litellm has it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from providers import Gemini, exact
from tables import each
from test_reasoning_resumed import BLOCKS, ODD, PARTS, asks, gemini, joined

from phronomy.errors import ModelError
from phronomy.models import LiteLLMModel, ModelReply, ModelRequest
from phronomy.models.formats.answer import Answered
from phronomy.models.formats.part_order import ANTHROPIC, GEMINI, Parts, wire_messages
from phronomy.records.messages import Message, ToolCall

pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_:pydantic.warnings.PydanticDeprecatedSince211")


USER = Message(role="user", content="Refund all")


def kept(body: dict[str, Any], message: Message) -> dict[str, Any]:
    """What is kept of the order of a whole answer, beside the message that litellm made of it."""
    parts = Parts()
    parts.read(body)
    found: dict[str, Any] = parts.keep(ModelReply(message=message)).message.provider.get("phronomy", {})
    return found


def of_blocks(*blocks: Any) -> dict[str, Any]:
    return {"type": "message", "content": [*blocks]}


def of_parts(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [*parts]}, "finishReason": "STOP"}]}


def said(content: str | None, calls: int = 0, **provider: Any) -> Message:
    made = tuple(ToolCall(id=f"c{n}", name="look", arguments="{}") for n in range(calls))
    return Message(role="assistant", content=content, tool_calls=made, provider=provider)


THINKS, TEXT = {"type": "thinking", "thinking": "Hm.", "signature": "Eq=="}, {"type": "text", "text": "Hi"}
USES = {"type": "tool_use", "id": "c0", "name": "look", "input": {}}
CALLS = {"functionCall": {"name": "look", "args": {}}}


@each(
    ("body", "message"),
    [
        pytest.param(of_blocks(THINKS, THINKS, TEXT, USES, USES), said("Hi", 2), id="litellm's own order"),
        pytest.param(of_blocks(TEXT), said("Hi"), id="one text"),
        pytest.param(
            of_blocks(TEXT, THINKS, {"type": "server_tool_use", "id": "s"}), said("Hi"), id="a tool of the provider"
        ),
        pytest.param(of_blocks(TEXT, THINKS, "odd"), said("Hi"), id="no block"),
        pytest.param(of_blocks(TEXT, TEXT), said("Hi"), id="another text"),
        pytest.param(of_blocks(TEXT, THINKS, USES), said("Hi"), id="a call that became the answer"),
        pytest.param(of_parts({"text": "Hi"}, CALLS), said("Hi", 1), id="Gemini's in litellm's own order"),
        pytest.param(of_parts({"text": "Hi"}, {"text": ""}), said("Hi"), id="an empty end"),
        pytest.param(of_parts(CALLS, {"text": "Hi"}, CALLS), said("Hi", 2), id="calls that are apart"),
        pytest.param(of_parts({"inlineData": {}}, {"text": "Hi", "thoughtSignature": "T"}), said("Hi"), id="a picture"),
        pytest.param({"choices": []}, said("Hi"), id="another protocol"),
        pytest.param([], said("Hi"), id="no object"),
    ],
)
def test_an_order_that_is_litellms_own_or_not_known_is_not_kept(body: Any, message: Message) -> None:
    assert kept(body, message) == {}


ORDERED = of_blocks(TEXT, THINKS, TEXT, USES)
BLOCK_ORDER = [{"kind": "text", "size": 2}, {"kind": "thinking"}, {"kind": "text", "size": 2}, {"kind": "call"}]


def test_any_other_order_is_kept_and_goes_out_to_a_provider_of_its_protocol_alone() -> None:
    message = said("HiHi", 1, reasoning_content="Hm.", thinking_blocks=[THINKS])
    assert kept(ORDERED, message) == {ANTHROPIC: BLOCK_ORDER}
    parts = Parts()
    parts.read(ORDERED)
    request = ModelRequest(system="Be kind.", messages=(USER, parts.keep(ModelReply(message=message)).message))
    system, user, *sent = wire_messages(request, ANTHROPIC, whole_results=False)
    assert (system["role"], user["role"], [each.get("content") for each in sent]) == ("system", "user", ["Hi", "Hi"])
    assert [each.get("thinking_blocks") for each in sent] == [None, [THINKS]]
    for protocol in (GEMINI, ""):
        [_, _, whole] = wire_messages(request, protocol, whole_results=False)
        assert (whole["content"], whole["thinking_blocks"], len(whole["tool_calls"])) == ("HiHi", [THINKS], 1)


@each(
    "order",
    [
        pytest.param([*BLOCK_ORDER, {"kind": "call"}], id="one call more"),
        pytest.param(BLOCK_ORDER[:-1], id="one call less"),
        pytest.param([{"kind": "text", "size": 3}, *BLOCK_ORDER[1:]], id="a longer text"),
        pytest.param([{"kind": "text", "size": -1}, *BLOCK_ORDER[1:]], id="a text that is no text"),
        pytest.param([{"kind": "text", "size": "2"}, *BLOCK_ORDER[1:]], id="a size that is no number"),
        pytest.param([{"kind": "odd"}, *BLOCK_ORDER], id="an odd kind"),
        pytest.param([{"kind": []}, *BLOCK_ORDER], id="a kind that is no text"),
        pytest.param(["text", 5], id="no entries"),
        pytest.param([], id="nothing"),
        pytest.param({"kind": "text"}, id="no list"),
    ],
)
def test_an_order_that_is_not_that_of_the_message_is_left_aside(order: Any) -> None:
    """A message that has lost a call since, or a checkpoint from outside."""
    message = said("HiHi", 1, thinking_blocks=[THINKS], phronomy={ANTHROPIC: order})
    [_, whole] = wire_messages(ModelRequest(messages=(USER, message)), ANTHROPIC, whole_results=False)
    assert (whole["content"], whole["thinking_blocks"], len(whole["tool_calls"])) == ("HiHi", [THINKS], 1)


def test_a_text_that_was_changed_to_parts_goes_as_it_is() -> None:
    texts = [{"type": "text", "text": "HiHi"}]
    message = Message(role="assistant", content=texts, provider={"phronomy": {ANTHROPIC: BLOCK_ORDER}})
    [_, whole] = wire_messages(ModelRequest(messages=(USER, message)), ANTHROPIC, whole_results=False)
    assert whole["content"] == texts


def test_an_error_inside_a_stream_of_anthropic_is_what_it_says() -> None:
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "secret"}}
    with pytest.raises(Answered) as caught:
        Parts().add(event)
    failure = LiteLLMModel("anthropic/m")._failure(caught.value)
    assert (failure.error.status_code, failure.may_pass) == (529, True)


@each(
    "event",
    [{"type": 5}, {"type": "content_block_delta"}, {"candidates": 5}, {"candidates": [5]}, {"promptFeedback": 5}, 5],
)
def test_events_of_other_forms_end_nothing(event: Any) -> None:
    parts = Parts()
    parts.add(event)
    assert not parts.ended


# What litellm cannot carry


def answered(call: ToolCall) -> Message:
    return Message(role="tool", tool_call_id=call.id, content="ok", settlement="completed")


def test_the_signature_of_a_thought_of_gemini_is_lost_and_stands_on_no_other_part() -> None:
    thought = {"thought": True, "text": "Hm.", "thoughtSignature": "T+/=="}
    reply = [[thought, {"text": "I look."}, asks("C+/==", "fc_1", "look", order=1)]]
    with Gemini(reply, [[{"text": "Done."}]]) as provider:
        model = gemini(provider.base_url)
        first = model.complete(ModelRequest(messages=(USER,))).message
        assert [call.id for call in first.tool_calls] == ["fc_1"]
        model.complete(ModelRequest(messages=(USER, first, answered(first.tool_calls[0]))))
        [sent] = [each["parts"] for each in provider.requests[1]["contents"] if each["role"] == "model"]
    unsigned = {key: value for key, value in thought.items() if key != "thoughtSignature"}
    assert exact([Gemini.camel(part) for part in sent]) == exact([unsigned, *reply[0][1:]])


def test_one_of_two_equal_calls_of_an_older_gemini_is_lost_and_its_provider_says_so() -> None:
    reply = [[{"functionCall": {"name": "look", "args": {"order": 1}}}] * 2]
    with Gemini(reply, [[{"text": "Done."}]]) as provider:
        model = LiteLLMModel("gemini/gemini-2.5-flash", base_url=provider.base_url, api_key="none", retry_wait=0)
        first = model.complete(ModelRequest(messages=(USER,))).message
        results = [answered(call) for call in first.tool_calls]
        assert len(results) == 2
        with pytest.raises(ModelError, match="status 400"):
            model.complete(ModelRequest(messages=(USER, first, *results)))
        assert provider.refused == [
            "the number of function response parts is not equal to the number of function call parts"
        ]


def test_the_replies_of_the_scripts_are_in_an_order_of_their_own() -> None:
    """Else `test_reasoning_resumed.py` would prove nothing of it."""
    assert [block["type"] for block in BLOCKS[0]] != sorted(block["type"] for block in BLOCKS[0])
    assert len(joined(PARTS[0])) == 5
    assert json.dumps(ODD) != ODD

"""The chat-completions wire shape: records to request bodies, reply bodies to records. Pure.

What a reply holds beside the fields we know is kept in `Message.provider`, in its order, and sent back where it stood:

- an unknown field of the message, under its own name;
- the unknown fields of its calls, under `RESERVED`: `{"calls": {"0": {..., "function": {...}}}}`, by the call's place;
- a provider's own field of the name `RESERVED`, under `RESERVED` too, as `own`.

The shape is that of https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from json.encoder import encode_basestring
from typing import Final, TypeAlias

from phronomy.errors import ContentFilterError, ModelError, ReplyUnsupported
from phronomy.foundation.json_text import JsonDict, JsonError, JsonValue, canonical, clean, list_of, object_of
from phronomy.models.base import ModelReply, ModelRequest
from phronomy.models.formats.answer import Answered
from phronomy.models.formats.sent_calls import sent_arguments, sent_id, sent_name
from phronomy.models.settings import ModelSettings
from phronomy.records.messages import Message, ToolCall, Usage, told_text

RESERVED = "phronomy"
"""The one key in `Message.provider` that is ours."""

_KNOWN = ("role", "content", "tool_calls")
_NOISE = ("function_call", "refusal")  # every reply of some providers has them as null


_OF_TOOLS = "What follows is part of the results of tool calls. The user has not sent it."


Spread: TypeAlias = Callable[[Message, JsonDict], list[JsonDict]]
"""A message and its form on the wire: what goes in place of that."""


def request_messages(
    request: ModelRequest, *, whole_results: bool = False, spread: Spread | None = None
) -> list[JsonDict]:
    """The messages of the request as they go over the wire, instructions first.

    A tool message of this protocol is text. What else is in it goes into a user message after the tool messages of its turn; with
    `whole_results` it stays, for a translator to another protocol. `spread` gives the messages that one of them goes as.
    """
    system: list[JsonDict] = [{"role": "system", "content": request.system}] if request.system else []
    messages: Iterable[JsonDict] = (wire_message(message) for message in request.messages)
    if spread is not None:
        messages = (each for one, sent in zip(request.messages, messages, strict=True) for each in spread(one, sent))
    return [*system, *(messages if whole_results else _in_text(messages))]


def request_conversation(request: ModelRequest) -> dict[str, str]:
    """The conversation of the request as it goes over the wire: the JSON text of each field."""
    if any(said.role == "tool" and said.json_text("content").startswith("[") for said in request.messages):
        return {"messages": wire_json(request_messages(request))}  # parts move to messages of their own
    system = [f'{{"role":"system","content":{encode_basestring(request.system)}}}'] if request.system else []
    return {"messages": f"[{','.join([*system, *map(wire_text, request.messages)])}]"}


def wire_json(value: object) -> str:
    """The text of a JSON value as it goes over the wire."""
    return _WIRE.encode(value)


_WIRE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # `json.dumps` makes one for each value


def _in_text(messages: Iterable[JsonDict]) -> Iterator[JsonDict]:
    """The messages, with what is no text in tool messages in one of the user after those of the turn."""
    beside: list[JsonValue] = []
    for message in messages:
        if message["role"] != "tool":
            yield from _beside(beside)
            beside = []
        elif others := _others(message["content"]):
            beside += [{"type": "text", "text": f"In the result of call {message['tool_call_id']}:"}, *others]
            message["content"] = told_text(message["content"])
        yield message
    yield from _beside(beside)


def _others(content: object) -> list[JsonValue]:
    """The parts of a content that are no text."""
    return [part for part in list_of(content) if object_of(part).get("type") != "text"]


def _beside(parts: list[JsonValue]) -> Iterator[JsonDict]:
    if parts:
        yield {"role": "user", "content": [{"type": "text", "text": _OF_TOOLS}, *parts]}


def is_of_tools(message: JsonDict) -> bool:
    """Whether a user message on the wire is what was beside the text of tool messages."""
    content = message.get("content")
    return isinstance(content, list) and content[:1] == [{"type": "text", "text": _OF_TOOLS}]


_OURS = tuple(f'"{name}":' for name in (*_KNOWN, "tool_call_id", RESERVED))
_NOTHING = ("null", "[]")


def wire_text(message: Message) -> str:
    """The text of `wire_message`, put together of the texts that are in the record.

    A conversation goes out whole with each call. To decode and encode it took 5.8 ms at 1,002 messages, and this takes 0.7.
    """
    more = message.json_text("provider")
    if more == "{}":
        more = ""
    elif any(name in more for name in _OURS):  # fields that do not simply follow, or a text that looks like one
        return wire_json(wire_message(message))
    else:
        more = f",{more[1:-1]}"
    content, before = message.json_text("content"), ""
    if message.tool_call_id is not None:
        before = f'"tool_call_id":{encode_basestring(sent_id(message.tool_call_id))},'
    if message.tool_calls:
        content = "null" if content in _NOTHING else content
        more = f',"tool_calls":[{",".join(map(_call_text, message.tool_calls))}]{more}'
    elif content in _NOTHING:
        content = '""'
    return f'{{"role":"{message.role}",{before}"content":{content}{more}}}'


def _call_text(call: ToolCall) -> str:
    id, name = encode_basestring(sent_id(call.id)), encode_basestring(sent_name(call.name))
    arguments = encode_basestring(sent_arguments(call.arguments))
    return f'{{"id":{id},"type":"function","function":{{"name":{name},"arguments":{arguments}}}}}'


def wire_message(message: Message) -> JsonDict:
    """One message as it goes over the wire, with the provider's own fields back in their places."""
    provider = message.provider
    ours = object_of(provider.get(RESERVED))
    wire: JsonDict = {"role": message.role}
    if message.tool_call_id is not None:
        wire["tool_call_id"] = sent_id(message.tool_call_id)
    wire["content"] = message.content
    if message.tool_calls:
        wire["content"] = None if wire["content"] == [] else wire["content"]
        extras = object_of(ours.get("calls"))
        wire["tool_calls"] = [
            _wire_call(call, object_of(extras.get(str(n)))) for n, call in enumerate(message.tool_calls)
        ]
    elif wire["content"] in (None, []):
        wire["content"] = ""
    if not provider:
        return wire
    if "own" in ours:
        provider[RESERVED] = ours["own"]
    else:
        provider.pop(RESERVED, None)
    return _with(wire, provider)


def _wire_call(call: ToolCall, extra: JsonDict) -> JsonDict:
    said: JsonDict = {"name": sent_name(call.name), "arguments": sent_arguments(call.arguments)}
    function = _with(said, object_of(extra.get("function")))
    return _with({"id": sent_id(call.id), "type": extra.get("type", "function"), "function": function}, extra)


def _with(known: JsonDict, more: JsonDict) -> JsonDict:
    """The known fields first, then the others in their order; another field never replaces a known one."""
    return known if not more else {**known, **{key: value for key, value in more.items() if key not in known}}


def request_options(settings: ModelSettings, tools: tuple[JsonDict, ...]) -> JsonDict:
    """The options of the request as they go over the wire. Those about tools go only where there are tools."""
    choice = settings.tool_choice
    options: JsonDict = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": settings.max_tokens,
        "stop": None if settings.stop is None else list(settings.stop),
        "seed": settings.seed,
    }
    if tools:
        named = choice not in (None, "auto", "required", "none")
        options["tools"] = list(tools)
        options["tool_choice"] = {"type": "function", "function": {"name": choice}} if named else choice
        options["parallel_tool_calls"] = settings.parallel_tool_calls
    return {**settings.extra, **{name: value for name, value in options.items() if value is not None}}


def read_completion(body: object) -> ModelReply:
    """The reply in the body of a whole answer: its first choice, with its usage.

    Raises `ContentFilterError` where the provider withheld the reply, `Answered` for an error in place of it, and `ModelError` as
    `reply_from` does.
    """
    answer = object_of(body)
    choice = next(iter(list_of(answer.get("choices"))), None)
    if not isinstance(choice, dict):
        raise ModelError("the model's answer holds no message")
    if choice.get("error"):  # OpenRouter: the upstream broke off, and what is there is not whole
        raise Answered(None, {"error": choice["error"]})
    if object_of(choice.get("message")).get("function_call"):  # of the protocol before tools: it would be lost
        raise unsupported("function_call")
    reply = reply_from(choice.get("message"), answer.get("usage"), choice.get("finish_reason"))
    if reply.finish_reason == "content_filter":
        raise withheld()
    return replace(reply, id=name_of(answer.get("id")), model=name_of(answer.get("model")))


def withheld() -> ContentFilterError:
    """The error for a reply that the provider did not let through."""
    return ContentFilterError("the provider withheld the reply, or a part of it, by its content policy")


def unsupported(kind: str) -> ReplyUnsupported:
    """The error for a reply with an item that wants an answer, of a type that phronomy cannot answer."""
    name = kind if _TYPE.fullmatch(kind) else "unknown"
    return ReplyUnsupported(
        f"the model's answer has an item of the type {name!r}, which waits for an answer that phronomy cannot give: leave out"
        " the tool of the provider that makes such items, or its setting that asks for approvals, and offer a @tool instead",
        item_type=name,
    )


_TYPE: Final = re.compile(r"[a-z][a-z0-9_.]{0,63}")


def reply_from(message: object, usage: object = None, finish_reason: object = None) -> ModelReply:
    """The reply in an assistant message as it came over the wire.

    Raises `ModelError` for what is no assistant message, or cannot be kept in a record.
    """
    if not isinstance(message, dict) or not any(key in message for key in _KNOWN):
        raise ModelError("the model's answer holds no message")
    if message.get("role") not in (None, "", "assistant"):
        raise ModelError("the model's answer is not a message of the role assistant")
    raw_calls = message.get("tool_calls") or []
    if not isinstance(raw_calls, list):
        raise ModelError("the tool calls in the model's answer are not a list")
    calls = tuple(_read_call(call) for call in raw_calls)
    return ModelReply(
        message=record_of(message.get("content"), calls, _unknown(message, raw_calls)),
        usage=read_usage(usage, "prompt_tokens", "completion_tokens"),
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
    )


def record_of(content: object, calls: tuple[ToolCall, ...], provider: JsonDict) -> Message:
    """The record of what the model said. Raises `ModelError` for what no record can hold."""
    try:
        return Message(
            role="assistant",
            content="" if content is None and not calls else content,
            tool_calls=calls,
            provider=provider,
        )
    except ValueError as error:  # pydantic's error is one; its text would quote the answer
        raise ModelError("the model's answer cannot be kept: it is no text or parts, too deep, or holds NaN") from error


def _read_call(call: object) -> ToolCall:
    called = object_of(call)
    function = called.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        if isinstance(kind := called.get("type"), str) and kind not in ("", "function"):
            raise unsupported(kind)
        raise ModelError("a tool call in the model's answer names no function")
    call_id = called.get("id")
    # An id that is missing or no string becomes empty: whoever drives the run replaces empty ids.
    return ToolCall(
        id=call_id if isinstance(call_id, str) else "", name=name, arguments=arguments_text(function.get("arguments"))
    )


def arguments_text(value: object) -> str:
    """The arguments of a call as text: the provider's own where it sent text, as the protocols have it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return canonical(value)
    except JsonError:
        pass
    try:
        # What no record could hold still goes to the judging of the call as text, so that the model hears of it.
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelError("the arguments of a tool call in the model's answer are not JSON") from error


def _unknown(message: JsonDict, raw_calls: list[JsonValue]) -> JsonDict:
    """The fields of the reply that go into `Message.provider`."""
    kept: JsonDict = {}
    for key, value in message.items():
        if key in _KNOWN or (key in _NOISE and value is None):
            continue
        kept[key] = {"own": value} if key == RESERVED else value
    calls: JsonDict = {
        str(n): extra for n, call in enumerate(raw_calls) if (extra := _unknown_of_call(object_of(call)))
    }
    if calls:
        kept[RESERVED] = {**object_of(kept.get(RESERVED)), "calls": calls}
    return kept


def _unknown_of_call(call: JsonDict) -> JsonDict:
    kept = {key: value for key, value in call.items() if key not in ("id", "type", "function")}
    if call.get("type") not in (None, "function"):
        kept["type"] = call["type"]
    function = {key: value for key, value in object_of(call["function"]).items() if key not in ("name", "arguments")}
    return {**kept, "function": function} if function else kept


def read_usage(usage: object, read: str, written: str) -> Usage:
    """The usage of one request, where the protocol calls the tokens that the model read and wrote so."""
    counts = object_of(usage)
    return Usage(
        requests=1,
        input_tokens=count_of(counts.get(read)),
        output_tokens=count_of(counts.get(written)),
        cached_tokens=count_of(object_of(counts.get(f"{read}_details")).get("cached_tokens")),
        reasoning_tokens=count_of(object_of(counts.get(f"{written}_details")).get("reasoning_tokens")),
        cost=_cost(counts.get("cost")),
    )


def name_of(value: object) -> str | None:
    """The id or name that a provider gives something; None if it gives none."""
    return clean(value) if isinstance(value, str) and value else None


def count_of(value: object) -> int:
    """A count of tokens; 0 for what is none."""
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 2**53 else 0


def _cost(value: object) -> float | None:
    """US dollars, where the provider says so: OpenRouter and those that follow it send `usage.cost`."""
    return (
        float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9 else None
    )

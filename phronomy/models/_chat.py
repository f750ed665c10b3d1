"""The chat-completions wire shape: records to request bodies, reply bodies to records. Pure.

What a reply holds beside the fields we know is kept in `Message.provider`, in its order, and sent back where it stood:

- an unknown field of the message, under its own name;
- the unknown fields of its calls, under `RESERVED`: `{"calls": {"0": {..., "function": {...}}}}`, by the call's place;
- a provider's own field of the name `RESERVED`, under `RESERVED` too, as `own`.

The shape is that of https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

import json
from typing import Any

from phronomy._json import JsonError, canonical
from phronomy.errors import ContentFilterError, ModelError
from phronomy.messages import Message, ToolCall, Usage
from phronomy.models.base import ModelReply, ModelRequest, ModelSettings

RESERVED = "phronomy"
"""The one key in `Message.provider` that is ours."""

_KNOWN = ("role", "content", "tool_calls")
_NOISE = ("function_call", "refusal")  # every reply of some providers has them as null


def request_messages(request: ModelRequest) -> list[dict[str, Any]]:
    """The messages of the request as they go over the wire, instructions first."""
    system = [{"role": "system", "content": request.system}] if request.system else []
    return [*system, *(wire_message(message) for message in request.messages)]


def wire_message(message: Message) -> dict[str, Any]:
    """One message as it goes over the wire, with the provider's own fields back in their places."""
    provider = message.provider
    ours = _object(provider.get(RESERVED))
    wire: dict[str, Any] = {"role": message.role}
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    wire["content"] = message.content
    if message.tool_calls:
        wire["content"] = wire["content"] or None
        extras = _object(ours.get("calls"))
        wire["tool_calls"] = [
            _wire_call(call, _object(extras.get(str(n)))) for n, call in enumerate(message.tool_calls)
        ]
    elif wire["content"] is None:
        wire["content"] = ""
    if "own" in ours:
        provider[RESERVED] = ours["own"]
    else:
        provider.pop(RESERVED, None)
    return _with(wire, provider)


def _wire_call(call: ToolCall, extra: dict[str, Any]) -> dict[str, Any]:
    function = _with({"name": call.name, "arguments": call.arguments}, _object(extra.get("function")))
    return _with({"id": call.id, "type": extra.get("type", "function"), "function": function}, extra)


def _with(known: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """What is known first, then the rest in its order; the rest never stands over what the record itself says."""
    return {**known, **{key: value for key, value in more.items() if key not in known}}


def _object(value: Any) -> dict[str, Any]:
    """The value if it is an object: what a checkpoint from outside holds under our key need not be."""
    return value if isinstance(value, dict) else {}


def request_options(settings: ModelSettings, *, tools: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """The options of the request as they go over the wire. Those about tools go only where there are tools."""
    choice = settings.tool_choice
    options: dict[str, Any] = {
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


def read_completion(body: Any) -> ModelReply:
    """The reply in the body of a whole answer: its first choice, with its usage.

    Raises `ContentFilterError` where the provider withheld the reply, and `ModelError` as `reply_from` does.
    """
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise ModelError("the model's answer holds no message")
    reply = reply_from(choice.get("message"), body.get("usage"), choice.get("finish_reason"))
    if reply.finish_reason == "content_filter":
        raise ContentFilterError("the provider withheld the reply, or a part of it, by its content policy")
    return reply


def reply_from(message: Any, usage: Any = None, finish_reason: Any = None) -> ModelReply:
    """The reply in an assistant message as it came over the wire.

    Raises `ModelError` for what is no assistant message, or cannot be kept in a record.
    """
    if not isinstance(message, dict) or not any(key in message for key in _KNOWN):
        raise ModelError("the model's answer holds no message")
    if message.get("role") not in (None, "assistant"):
        raise ModelError("the model's answer is not a message of the role assistant")
    raw_calls = message.get("tool_calls") or []
    if not isinstance(raw_calls, list):
        raise ModelError("the tool calls in the model's answer are not a list")
    calls = tuple(_read_call(call) for call in raw_calls)
    content = message.get("content")
    try:
        record = Message(
            role="assistant",
            content="" if content is None and not calls else content,
            tool_calls=calls,
            provider=_unknown(message, raw_calls),
        )
    except ValueError as error:  # pydantic's error is one; its text would quote the answer
        raise ModelError("the model's answer cannot be kept: it is no text or parts, too deep, or holds NaN") from error
    return ModelReply(
        message=record,
        usage=_read_usage(usage),
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
    )


def _read_call(call: Any) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise ModelError("a tool call in the model's answer names no function")
    call_id = call.get("id")
    # An id that is missing or no string becomes empty: whoever drives the run replaces empty ids.
    return ToolCall(
        id=call_id if isinstance(call_id, str) else "", name=name, arguments=_arguments(function.get("arguments"))
    )


def _arguments(value: Any) -> str:
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


def _unknown(message: dict[str, Any], raw_calls: list[Any]) -> dict[str, Any]:
    """What goes into `Message.provider`."""
    kept: dict[str, Any] = {}
    for key, value in message.items():
        if key in _KNOWN or (key in _NOISE and value is None):
            continue
        kept[key] = {"own": value} if key == RESERVED else value
    calls = {str(n): extra for n, call in enumerate(raw_calls) if (extra := _unknown_of_call(call))}
    if calls:
        kept.setdefault(RESERVED, {})["calls"] = calls
    return kept


def _unknown_of_call(call: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in call.items() if key not in ("id", "type", "function")}
    if call.get("type") not in (None, "function"):
        kept["type"] = call["type"]
    function = {key: value for key, value in call["function"].items() if key not in ("name", "arguments")}
    return {**kept, "function": function} if function else kept


def _read_usage(usage: Any) -> Usage:
    counts = _object(usage)
    return Usage(
        requests=1,
        input_tokens=_count(counts.get("prompt_tokens")),
        output_tokens=_count(counts.get("completion_tokens")),
        cost=_cost(counts.get("cost")),
    )


def _count(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 2**53 else 0


def _cost(value: Any) -> float | None:
    """US dollars, where the provider says so: OpenRouter and those that follow it send `usage.cost`."""
    return (
        float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9 else None
    )

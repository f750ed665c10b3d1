"""Requests to a model and its replies, as attributes and JSON of the semantic conventions for generative AI. Pure.

The shapes are those of https://github.com/open-telemetry/semantic-conventions-genai/tree/main/docs/gen-ai.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, TypeGuard

from phronomy.foundation.json_text import clean
from phronomy.models.base import ModelReply
from phronomy.models.settings import ModelSettings
from phronomy.observability.masking import Masking
from phronomy.records.messages import Message, Usage, told_text

_SETTINGS: Final = {
    "frequency_penalty": float,
    "max_tokens": int,
    "presence_penalty": float,
    "seed": int,
    "temperature": float,
    "top_k": float,
    "top_p": float,
}
"""Settings, and options of providers in `extra`, whose names are those of attributes; with what the conventions make of them."""

_OUTPUTS: Final = {"json_object": "json", "json_schema": "json", "text": "text"}
_REASONS: Final = {"function_call": "tool_call", "tool_calls": "tool_call"}


def settings_of(settings: ModelSettings) -> dict[str, Any]:
    """The attributes of how a model is asked."""
    extra = settings.extra
    found: dict[str, object] = {}
    for name, kind in _SETTINGS.items():
        value = getattr(settings, name, None)
        if _is_number(value := extra.get(name) if value is None else value):
            found[f"gen_ai.request.{name}"] = kind(value)
    if settings.stop:
        found["gen_ai.request.stop_sequences"] = list(settings.stop)
    if _is_number(count := extra.get("n")) and count != 1:
        found["gen_ai.request.choice.count"] = int(count)
    wanted = extra.get("response_format")
    if isinstance(wanted, dict) and (output := _OUTPUTS.get(str(wanted.get("type")))) is not None:
        found["gen_ai.output.type"] = output
    return found


def facts_of(reply: ModelReply) -> dict[str, Any]:
    """The attributes of what a model says of its reply, beside the reply itself."""
    said = {"id": reply.id, "model": reply.model}
    found: dict[str, object] = {f"gen_ai.response.{name}": clean(text) for name, text in said.items() if text}
    if reply.finish_reason:
        found["gen_ai.response.finish_reasons"] = [clean(reply.finish_reason)]
    return found


def used(usage: Usage) -> dict[str, int]:
    """The attributes of what was used. A provider that counts nothing says nothing of it."""
    if not usage.total_tokens:
        return {}
    parts = {"cache_read.input_tokens": usage.cached_tokens, "reasoning.output_tokens": usage.reasoning_tokens}
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    counts |= {name: count for name, count in parts.items() if count}
    return {f"gen_ai.usage.{name}": count for name, count in counts.items()}


def text_message(role: str, text: str) -> dict[str, object]:
    """A message of one text."""
    return {"role": role, "parts": [_text_part(text)]}


def instructions(system: str) -> list[dict[str, object]]:
    """Gives the instructions of a request, in the form of the conventions."""
    return [_text_part(system)]


def definitions(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """The tools as the model is told of them: the same without a level between."""
    return [{"type": tool.get("type", "function"), **deepcopy(tool.get("function", {}))} for tool in tools]


def conversation(messages: Sequence[Message], masks: Masking) -> list[dict[str, object]]:
    """Gives the messages of a request, without the values that its tools redact."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [_message(message, masks, names) for message in messages]


def answer(message: Message, masks: Masking, reason: str | None) -> dict[str, Any]:
    """Gives the reply of a model, and the reason why it stopped."""
    reason = reason or ("tool_call" if message.tool_calls else "stop")
    return {**_message(message, masks, {}), "finish_reason": _REASONS.get(reason, reason)}


def _message(message: Message, masks: Masking, names: Mapping[str, str]) -> dict[str, object]:
    if message.tool_call_id is not None:
        id = message.tool_call_id
        told = masks.result(names.get(id, ""), told_text(message.content))
        return {"role": message.role, "parts": [{"type": "tool_call_response", "id": id, "response": told}]}
    parts = list(_parts(message.content))
    for call in message.tool_calls:
        arguments = _parsed(masks.arguments(call.name, call.arguments))
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments})
    return {"role": message.role, "parts": parts}


def _parts(content: Any) -> Iterator[dict[str, object]]:
    """The parts of a content: texts and images by address in the form of the conventions, others as they are."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    for part in content or []:
        kind = part.get("type") if isinstance(part, dict) else None
        image = part.get("image_url") if kind == "image_url" else None
        uri = image.get("url") if isinstance(image, dict) else image
        if kind == "text" and isinstance(part.get("text"), str):
            yield _text_part(part["text"])
        elif isinstance(uri, str) and not uri.startswith("data:"):
            yield {"type": "uri", "modality": "image", "uri": uri}
        elif isinstance(kind, str):
            yield part
        else:
            yield {"type": "unknown", "content": part}


def _text_part(text: str) -> dict[str, object]:
    return {"type": "text", "content": text}


def _parsed(text: str) -> object:
    """Arguments as the model wrote them: the JSON value, or the text where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_number(value: object) -> TypeGuard[float]:
    """Whether this is a number that an attribute can hold: one that cannot be sent takes all spans beside it along."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63

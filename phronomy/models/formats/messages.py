"""The wire shape of Anthropic's Messages API: records to request bodies, messages to records. Pure.

A reply is a list of content blocks: texts, calls, what the model thought, what the provider's own tools did, and what is not known yet.
The record says the text, and the id, name and arguments of each call. In `Message.provider` are the thinking blocks, each as it came,
under `thinking_blocks`, and under `RESERVED` the order of all blocks as `blocks`, unless it is the ordinary one. Both are as they are
where litellm translates (`part_order.py`), so a conversation may go on by either way. Beside what stands there, an entry of a text or
a call has its other fields as `more`, and an entry of the kind `other` has its whole `block`.

The shape is that of https://platform.claude.com/docs/en/api/messages/create.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from phronomy.errors import ConfigurationError, ModelError
from phronomy.foundation.json_text import JsonDict, JsonValue, list_of, object_of, objects_of, plain_object, text_of
from phronomy.models.base import ModelReply, ModelRequest
from phronomy.models.formats.answer_schema import answer_schema
from phronomy.models.formats.chat_completions import (
    RESERVED,
    arguments_text,
    count_of,
    name_of,
    read_usage,
    record_of,
    unsupported,
    wire_json,
    withheld,
)
from phronomy.models.formats.part_order import ANTHROPIC
from phronomy.models.formats.sent_calls import sent_arguments, sent_name, sent_plain_id
from phronomy.models.settings import ModelSettings
from phronomy.records.messages import Message, ToolCall, Usage

THOUGHTS: Final = ("thinking", "redacted_thinking")
_THINKING: Final = "thinking_blocks"
_RANK: Final = {"thinking": 0, "text": 1, "call": 2}
"""The ordinary order."""

_WORDS: Final = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length"}
"""How a reply ended, in the words of chat completions. Any other word stays as it is."""

_SILENT: Final = ("_tool_use", "_tool_result", "compaction", "fallback")
"""How kinds end that may be all that a reply is: what the provider did itself."""

_GAVE_A_RESULT: Final = (None, "completed", "responded")

# The request


def request_conversation(request: ModelRequest) -> dict[str, str]:
    """The instructions and the messages of the request as they go over the wire: the JSON text of each field."""
    system = {"system": wire_json(request.system)} if request.system and request.system.strip() else {}
    return {**system, "messages": wire_json(wire_messages(request.messages))}


def wire_messages(messages: Iterable[Message]) -> list[JsonDict]:
    """The messages as they go over the wire: user and assistant take turns, and none is empty."""
    found: list[JsonDict] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if found and found[-1]["role"] == role:
            found[-1]["content"] = [*list_of(found[-1]["content"]), *blocks]
        elif blocks:
            found.append({"role": role, "content": [*blocks]})
    return found


def _blocks(message: Message) -> list[JsonValue]:
    if message.role == "tool":
        return [_result(message)]
    if message.role == "user":
        return _content(message.content)
    return _as_it_came(message) or _plain(message)


def _result(message: Message) -> JsonDict:
    content = message.content
    told: JsonValue = content if isinstance(content, str) else _content(content)
    failed = {} if message.settlement in _GAVE_A_RESULT else {"is_error": True}
    said = {"content": told} if told else {}
    return {"type": "tool_result", "tool_use_id": sent_plain_id(message.tool_call_id or ""), **said, **failed}


def _content(content: JsonValue) -> list[JsonValue]:
    """The content of a user's or a tool's message as blocks. The provider refuses a text that is blank."""
    parts: list[JsonValue] = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    return [block for part in parts if not _is_blank(block := _block(part))]


def _is_blank(block: JsonValue) -> bool:
    said = object_of(block)
    return said.get("type") == "text" and not text_of(said.get("text")).strip()


def _block(part: JsonValue) -> JsonValue:
    """A part of a content as a block. A part that is none of chat completions is one of this API, and stays."""
    said = object_of(part)
    if said.get("type") == "image_url":
        given = said.get("image_url")
        return {"type": "image", "source": _source(text_of(object_of(given).get("url") or given))}
    if said.get("type") == "file":
        file = object_of(said.get("file"))
        title = {"title": file["filename"]} if file.get("filename") else {}
        source = _source(text_of(file.get("file_data"))) if file.get("file_data") else _stored(file)
        return {"type": "document", "source": source, **title}
    return part


def _stored(file: JsonDict) -> JsonDict:
    return {"type": "file", "file_id": file.get("file_id")}


def _source(url: str) -> JsonDict:
    """The content at an address, or in one. A document of plain text goes as text."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:"):
        return {"type": "url", "url": url}
    media_type = head.removeprefix("data:").partition(";")[0]
    if media_type == "text/plain":
        return {"type": "text", "media_type": media_type, "data": b64decode(data).decode(errors="replace")}
    return {"type": "base64", "media_type": media_type, "data": data}


def _as_it_came(message: Message) -> list[JsonValue] | None:
    """The blocks of a reply in their order; None for one that has lost or changed texts or calls since.

    Thinking is signed for its place, so a message that was changed goes without it. So does thinking that led to nothing: the
    provider refuses a message that ends with it.
    """
    provider = message.provider
    thoughts, texts = objects_of(provider.get(_THINKING) or []), _texts(message)
    if thoughts is None or any(thought.get("type") not in THOUGHTS for thought in thoughts):
        return None
    given = object_of(provider.get(RESERVED)).get(ANTHROPIC)
    parts = _ordinary(thoughts, texts, message.tool_calls) if given is None else objects_of(given)
    said, calls = "".join(texts), [*message.tool_calls]
    found: list[JsonValue] = []
    for part in parts or ():
        kind, size, more = part.get("kind"), part.get("size"), object_of(part.get("more"))
        if kind == "thinking" and thoughts:
            found.append(thoughts.pop(0))
        elif kind == "call" and calls:
            found.append(_call(calls.pop(0), more))
        elif kind == "text" and isinstance(size, int) and 0 <= size <= len(said):
            found.append({"type": "text", "text": said[:size], **more})
            said = said[size:]
        elif kind == "other" and isinstance(part.get("block"), dict):
            found.append(part["block"])
        else:
            return None
    if parts is None or thoughts or said or calls:
        return None
    found = [block for block in found if not _is_blank(block)]
    while found and object_of(found[-1]).get("type") in THOUGHTS:
        found.pop()
    return found


def _ordinary(thoughts: list[JsonDict], texts: list[str], calls: tuple[ToolCall, ...]) -> list[JsonDict]:
    thought: list[JsonDict] = [{"kind": "thinking"} for _ in thoughts]
    said: list[JsonDict] = [{"kind": "text", "size": len(text)} for text in texts]
    called: list[JsonDict] = [{"kind": "call"} for _ in calls]
    return [*thought, *said, *called]


def _plain(message: Message) -> list[JsonValue]:
    """A reply by what the record says of it."""
    texts = [*_texts(message), *([] if message.text else [text_of(message.provider.get("refusal"))])]
    said: list[JsonDict] = [{"type": "text", "text": text} for text in texts if text.strip()]
    return [*said, *(_call(call, {}) for call in message.tool_calls)]


def _texts(message: Message) -> list[str]:
    content = message.content
    parts = content if isinstance(content, list) else [{"text": content}]
    return [text for part in parts if (text := text_of(object_of(part).get("text")))]


def _call(call: ToolCall, more: JsonDict) -> JsonDict:
    """A call as it is sent back. Its arguments are an object, in the order of the keys that they came in."""
    given = {"input": plain_object(sent_arguments(call.arguments))}
    return {"type": "tool_use", "id": sent_plain_id(call.id), "name": sent_name(call.name), **given, **more}


def request_options(settings: ModelSettings, tools: tuple[JsonDict, ...]) -> JsonDict:
    """The options of the request as they go over the wire, without those that depend on the model.

    In `extra`, `response_format` is as for chat completions; the rest goes by its own name. Tools of the provider that are in it come
    before those of the agent. Raises `ConfigurationError` for a setting that this API has not.
    """
    if settings.seed is not None:
        raise ConfigurationError("the Messages API has no `seed`: leave it out of the settings")
    extra = settings.extra
    options: JsonDict = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": settings.max_tokens,
        "stop_sequences": None if settings.stop is None else list(settings.stop),
    }
    if (form := extra.pop("response_format", None)) is not None:
        extra["output_config"] = {"format": _format(object_of(form)), **object_of(extra.get("output_config"))}
    given = list_of(extra.get("tools"))
    if found := [*given, *map(_tool, tools)]:
        options["tools"] = found
        options["tool_choice"] = _choice(settings, object_of(extra.get("tool_choice")))
    return {**extra, **{name: value for name, value in options.items() if value is not None}}


def _tool(tool: JsonDict) -> JsonDict:
    function = object_of(tool["function"])
    named = {key: value for key, value in function.items() if key != "parameters"}
    return {**named, "input_schema": function.get("parameters") or {"type": "object", "properties": {}}}


def _choice(settings: ModelSettings, given: JsonDict) -> JsonDict | None:
    choice = settings.tool_choice
    kinds = {"auto": "auto", "required": "any", "none": "none"}
    if choice is not None:
        given = {"type": kinds[choice]} if choice in kinds else {"type": "tool", "name": choice}
    parallel = settings.parallel_tool_calls
    if parallel is None or given.get("type") == "none":
        return given or None
    return {"type": "auto", **given, "disable_parallel_tool_use": not parallel}


def _format(form: JsonDict) -> JsonDict:
    schema = object_of(form.get("json_schema")).get("schema")
    if form.get("type") != "json_schema" or not isinstance(schema, dict):
        raise ConfigurationError(
            "the Messages API has no response_format but one with a JSON Schema: give the agent an output_type"
        )
    return {"type": "json_schema", "schema": answer_schema(schema)}


# The reply


def read_message(body: JsonDict) -> ModelReply:
    """The reply in a message that has come to its end.

    Raises `ContentFilterError` where the provider withheld the reply, and `ModelError` for what is no message, or cannot be kept in a
    record.
    """
    blocks, reason = objects_of(body.get("content")), body.get("stop_reason")
    if blocks is None or body.get("role") not in (None, "assistant"):
        raise ModelError("the model's answer holds no list of content blocks")
    if reason == "refusal":
        raise withheld()
    message = _record(blocks)
    kinds = [text_of(block.get("type")) for block in blocks]
    odd = [kind for kind in kinds if kind not in ("text", *THOUGHTS) and not kind.endswith(_SILENT)]
    if odd and not (message.tool_calls or message.text):
        raise unsupported(odd[0])  # nobody said anything: '' would be taken for the answer
    ends = _WORDS.get(reason, reason) if isinstance(reason, str) and reason else "unknown"
    if reason == "stop_sequence" and message.tool_calls:  # within the arguments of a call, for all that is known
        ends = "incomplete"
    return ModelReply(
        message=message,
        usage=_usage(object_of(body.get("usage"))),
        finish_reason=ends,
        id=name_of(body.get("id")),
        model=name_of(body.get("model")),
    )


def _record(blocks: list[JsonDict]) -> Message:
    texts: list[str] = []
    calls: list[ToolCall] = []
    thoughts: list[JsonValue] = []
    parts: list[JsonDict] = []
    for block in blocks:
        kind = block.get("type")
        if kind in THOUGHTS:
            thoughts.append(block)
            parts.append({"kind": "thinking"})
        elif kind == "text":
            texts.append(text_of(block.get("text")))
            parts.append({"kind": "text", "size": len(texts[-1]), **_more(block, "type", "text")})
        elif kind == "tool_use":
            calls.append(_read_call(block))
            parts.append({"kind": "call", **_more(block, "type", "id", "name", "input")})
        else:
            parts.append({"kind": "other", "block": block})
    provider: JsonDict = {_THINKING: thoughts} if thoughts else {}
    parts = [part for part in parts if part["kind"] != "text" or part["size"] or "more" in part]
    if not _is_ordinary(parts):
        provider[RESERVED] = {ANTHROPIC: [*parts]}
    return record_of("".join(texts) if texts else None, tuple(calls), provider)


def _is_ordinary(parts: list[JsonDict]) -> bool:
    kinds = [text_of(part["kind"]) for part in parts]
    if any("more" in part for part in parts) or kinds.count("text") > 1 or "other" in kinds:
        return False
    return all(_RANK[one] <= _RANK[other] for one, other in pairwise(kinds))


def _more(block: JsonDict, *known: str) -> JsonDict:
    """The other fields of a block, as they are kept. What is null says nothing."""
    more: JsonDict = {key: value for key, value in block.items() if key not in known and value is not None}
    return {"more": more} if more else {}


def _read_call(block: JsonDict) -> ToolCall:
    name = block.get("name")
    if not isinstance(name, str) or not name:
        raise ModelError("a call in the model's answer names no tool")
    # An id that is missing or no string becomes empty: whoever drives the run replaces empty ids.
    return ToolCall(id=text_of(block.get("id")), name=name, arguments=arguments_text(block.get("input")))


def _usage(counts: JsonDict) -> Usage:
    """The usage of a reply. This API counts the input tokens of its cache apart from the others."""
    cached = counts.get("cache_read_input_tokens")
    given = (counts.get("input_tokens"), counts.get("cache_creation_input_tokens"), cached)
    written = object_of(counts.get("output_tokens_details"))
    told: JsonDict = {
        **counts,
        "input_tokens": sum(map(count_of, given)),
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens_details": {"reasoning_tokens": written.get("thinking_tokens")},
    }
    return read_usage(told, "input_tokens", "output_tokens")

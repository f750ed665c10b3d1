"""The wire shape of the Responses API: records to request bodies, responses to records. Pure.

A response is a list of items: reasoning, messages, calls, what the provider's own tools did, and what is not known yet. The record says
the texts of the messages, and the id, name and arguments of each call. The items themselves are kept in `Message.provider` under
`RESERVED`, as `{"items": [...]}`: each as it came, in its order, with null where the record says it. So they go back where they
stood, byte for byte, and nothing is kept twice.

The shape is that of https://platform.openai.com/docs/api-reference/responses.
"""

from __future__ import annotations

from phronomy.errors import ConfigurationError, ModelError
from phronomy.foundation.json_text import JsonDict, JsonValue, list_of, object_of, objects_of, text_of
from phronomy.models.base import ModelReply, ModelRequest
from phronomy.models.formats.answer import Answered
from phronomy.models.formats.chat_completions import (
    RESERVED,
    arguments_text,
    name_of,
    read_usage,
    record_of,
    unsupported,
    wire_json,
    withheld,
)
from phronomy.models.formats.sent_calls import sent_arguments, sent_id, sent_name
from phronomy.models.settings import ModelSettings
from phronomy.records.messages import Message, ToolCall

_ENCRYPTED = "reasoning.encrypted_content"
_SAID = ("call_id", "name", "arguments")  # of a call: what the record says
_ID_LENGTH = 64  # of the id of a call, at most
_RUN_THERE = (  # calls that the provider runs itself
    "code_interpreter_call",
    "file_search_call",
    "image_generation_call",
    "mcp_call",
    "web_search_call",
)
_SILENT = (*_RUN_THERE, "message", "reasoning", "mcp_list_tools", "compaction")  # may be all that a reply is
_CUT = ("incomplete", "in_progress")


def request_conversation(request: ModelRequest) -> dict[str, str]:
    """The instructions and the items of the request as they go over the wire: the JSON text of each field."""
    system = {"instructions": wire_json(request.system)} if request.system else {}
    return {**system, "input": wire_json([item for message in request.messages for item in wire_items(message)])}


def wire_items(message: Message) -> list[JsonDict]:
    """One message as it goes over the wire: a reply of this API as the items that it came as, each where it stood."""
    if message.role == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": _sent_id(message.tool_call_id or ""),
                "output": _content(message.content),
            }
        ]
    if message.role == "user":
        return [{"role": "user", "content": _content(message.content)}]
    items = _as_it_came(message)
    return _plain(message) if items is None else items


def _as_it_came(message: Message) -> list[JsonDict] | None:
    """The items of a reply of this API; None for another message, and for one that has lost texts or calls since.

    An item that was sent without one that belongs to it would be refused, so a message that was changed goes without any.
    """
    items = objects_of(object_of(message.provider.get(RESERVED)).get("items"))  # a fresh copy
    if items is None or asking(items):  # what asked was refused when it came; an older record may hold it
        return None
    texts, calls = _texts(message), list(message.tool_calls)
    for item in items:
        if _is_call(item):
            if not calls:
                return None
            call = calls.pop(0)
            item |= _sent(call)
        for part in _text_parts(item):
            if not texts:
                return None
            part["text"] = texts.pop(0)
    if calls or any(texts):
        return None
    while items and items[-1].get("type") == "reasoning":  # cut off before what it led to; refused without that
        items.pop()
    return items


def _plain(message: Message) -> list[JsonDict]:
    """A reply by what the record says of it."""
    text = message.text or text_of(message.provider.get("refusal"))
    said: list[JsonDict] = [{"role": "assistant", "content": text}] if text or not message.tool_calls else []
    return [*said, *({"type": "function_call", **_sent(call)} for call in message.tool_calls)]


def _sent(call: ToolCall) -> JsonDict:
    """The id, name and arguments of a call, as they are sent back."""
    return {
        "call_id": _sent_id(call.id),
        "name": sent_name(call.name),
        "arguments": sent_arguments(call.arguments),
    }


def _sent_id(id: str) -> str:
    return sent_id(id, _ID_LENGTH)


def _texts(message: Message) -> list[str]:
    content = message.content
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return [] if content is None else [content]


def _is_call(item: JsonDict) -> bool:
    return item.get("type") == "function_call"


def asking(items: list[JsonDict]) -> str | None:
    """The type of the first item that waits for an answer which is not among the items; None if there is none.

    What the provider runs itself has no `call_id`, or has its output beside it. Calls of functions are ours.
    """
    answered = {text_of(item.get("call_id")) for item in items if str(item.get("type")).endswith("_output")}
    for item in items:
        kind, call_id = text_of(item.get("type")), text_of(item.get("call_id"))
        if _is_call(item) or kind in _RUN_THERE or kind.endswith("_output") or (call_id and call_id in answered):
            continue
        searched = kind == "tool_search_call" and item.get("execution") != "client"
        if call_id or kind.endswith("_request") or (kind.endswith("_call") and not searched):
            return kind or "unknown"
    return None


def _text_parts(item: JsonDict) -> list[JsonDict]:
    """The parts of a message of the model that are text."""
    parts = item.get("content") if item.get("type") == "message" and item.get("role") == "assistant" else None
    return [part for part in list_of(parts) if isinstance(part, dict) and part.get("type") == "output_text"]


def _content(content: JsonValue) -> JsonValue:
    """The content of a user's or a tool's message, with its parts in the form of this API."""
    return [_part(part) for part in content] if isinstance(content, list) else content or ""


def _part(part: JsonValue) -> JsonValue:
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind == "text":
        return {**part, "type": "input_text"}
    if kind == "image_url":
        given = part.get("image_url")
        image = given if isinstance(given, dict) else {"url": given}
        return {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}
    if kind == "file":
        return {"type": "input_file", **object_of(part.get("file"))}
    return part


def request_options(settings: ModelSettings, tools: tuple[JsonDict, ...]) -> JsonDict:
    """The options of the request as they go over the wire.

    In `extra`, `response_format` and `reasoning_effort` are as for chat completions; the rest goes by its own name. Tools of the
    provider that are in it come before those of the agent. Raises `ConfigurationError` for a setting that this API has not.
    """
    for name in ("stop", "seed"):
        if getattr(settings, name) is not None:
            raise ConfigurationError(
                f"the Responses API has no `{name}`: leave it out of the settings, or use ChatCompletionsModel"
            )
    extra = settings.extra
    options: JsonDict = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_tokens,
    }
    include = extra.pop("include", [])
    if isinstance(include, list):  # null is for a model that refuses it: one that does not reason
        options["include"] = [*dict.fromkeys([_ENCRYPTED, *include])]
    if isinstance(form := extra.pop("response_format", None), dict):
        kind = form.get("type")
        extra["text"] = {"format": {"type": kind, **object_of(form.get(kind))}, **object_of(extra.get("text"))}
    if (effort := extra.pop("reasoning_effort", None)) is not None:
        extra["reasoning"] = {"effort": effort, **object_of(extra.get("reasoning"))}
    given = extra.get("tools")
    if found := [*(given if isinstance(given, list) else []), *map(_tool, tools)]:
        choice = settings.tool_choice
        named = choice not in (None, "auto", "required", "none")
        options["tools"] = found
        options["tool_choice"] = {"type": "function", "name": choice} if named else choice
        options["parallel_tool_calls"] = settings.parallel_tool_calls
    return {"store": False, **extra, **{name: value for name, value in options.items() if value is not None}}


def _tool(tool: JsonDict) -> JsonDict:
    """A function in the flat form. Where it is not said, the API would make its schema strict: each parameter required."""
    return {"type": "function", "strict": False, **object_of(tool["function"])}


def read_response(body: JsonDict) -> ModelReply:
    """The reply in a response that has come to its end.

    Raises `Answered` for one that failed, `ContentFilterError` where the provider withheld the reply, and `ModelError` for what is no
    response, or cannot be kept in a record.
    """
    status, items = body.get("status"), objects_of(body.get("output"))
    if status == "failed" or body.get("error"):
        raise Answered(None, {"error": body.get("error")})
    if status not in (None, "completed", "incomplete"):
        raise ModelError("the response has not come to its end: it cannot be asked for in the background")
    if items is None:
        raise ModelError("the model's answer holds no list of items")
    why = object_of(body.get("incomplete_details")).get("reason")
    if why:  # gateways leave the status out, or say "completed"
        status = "incomplete"
    if why == "content_filter":
        raise withheld()
    if (kind := asking(items)) is not None:
        raise unsupported(kind)
    message = _record(items)
    if not (message.tool_calls or message.text or message.provider.get("refusal")):
        kinds = [text_of(item.get("type")) for item in items]
        if odd := [kind for kind in kinds if kind not in _SILENT and not kind.endswith("_output")]:
            raise unsupported(odd[0])  # nobody said anything: '' would be taken for the answer
    ends = "tool_calls" if message.tool_calls else "stop"
    if any(item.get("status") in _CUT for item in items if item.get("type") in ("message", "function_call")):
        status = "incomplete"
    return ModelReply(
        message=message,
        usage=read_usage(body.get("usage"), "input_tokens", "output_tokens"),
        finish_reason=ends if status != "incomplete" else "length" if why == "max_output_tokens" else "incomplete",
        id=name_of(body.get("id")),
        model=name_of(body.get("model")),
    )


def _record(output: list[JsonDict]) -> Message:
    texts: list[str] = []
    refusals: list[str] = []
    calls: list[ToolCall] = []
    items: list[JsonValue] = []
    for item in output:
        if _is_call(item):
            calls.append(_call(item))
            item = {key: None if key in _SAID else value for key, value in item.items()}
        elif parts := _text_parts(item):
            texts += [text_of(part.get("text")) for part in parts]
            kept = [{**object_of(part), "text": None} if part in parts else part for part in list_of(item["content"])]
            item = {**item, "content": kept}
        if item.get("type") == "message":
            found = [object_of(part).get("refusal") for part in list_of(item.get("content"))]
            refusals += [refusal for refusal in found if isinstance(refusal, str)]
        items.append(item)
    refused = {"refusal": "".join(refusals)} if refusals else {}
    several = [{"type": "text", "text": text} for text in texts] if len(texts) > 1 else None
    return record_of(several or next(iter(texts), None), tuple(calls), {**refused, RESERVED: {"items": items}})


def _call(item: JsonDict) -> ToolCall:
    name, call_id = item.get("name"), item.get("call_id")
    if not isinstance(name, str) or not name:
        raise ModelError("a call in the model's answer names no function")
    # An id that is missing or no string becomes empty: whoever drives the run replaces empty ids.
    return ToolCall(id=text_of(call_id), name=name, arguments=arguments_text(item.get("arguments")))

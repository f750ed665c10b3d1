"""The protocols of OpenAI that the loopback server speaks, each with its refusals, its whole answers, and its streams. Pure.

Both are as strict as the providers are. Chat completions: https://platform.openai.com/docs/api-reference/chat. Responses:
https://platform.openai.com/docs/api-reference/responses and https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Container, Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar, Final, TypeAlias

from phronomy.foundation.dataclasses import dataclass
from phronomy.models.formats.chat_completions import is_of_tools
from phronomy.records.messages import Usage
from phronomy.testing.scripted import pieces

Turn: TypeAlias = tuple[str, list[str], str | None]
"""A role, the ids of the calls that were made, and the id of the call that was answered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer(ABC):
    """A reply, in the form of chat completions, and how a protocol says it."""

    message: dict[str, Any]
    finish_reason: str
    usage: Usage = field(default_factory=Usage)
    cut_after: int | None = None

    history: ClassVar[str]
    """The field of a request that holds what was said."""

    @classmethod
    @abstractmethod
    def turns(cls, body: dict[str, Any]) -> list[Turn]:
        """Reads the turns of a request. Raises `ValueError` for a request that a provider would refuse."""

    @abstractmethod
    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to the request, in one piece."""

    @abstractmethod
    def events(self, body: dict[str, Any]) -> Iterator[Any]:
        """The answer to the request as the events of a stream, with its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion(Answer):
    """A reply over chat completions."""

    history = "messages"

    @classmethod
    def turns(cls, body: dict[str, Any]) -> list[Turn]:
        found: list[Turn] = []
        beside = False
        for number, message in enumerate(history_of(body, cls.history)):
            role = message.get("role") if isinstance(message, dict) else None
            if role not in ("system", "developer", "user", "assistant", "tool"):
                raise ValueError(f"messages[{number}] has no role that is known")
            calls = message.get("tool_calls") or []
            if role == "assistant" and not all(_is_call(call) for call in calls):
                raise ValueError(
                    f"messages[{number}]: a tool call has an id, the type 'function', a name, and arguments as text"
                )
            if not isinstance(message.get("content"), (str, list)) and not (role == "assistant" and calls):
                raise ValueError(f"messages[{number}] has no content")
            if role == "tool" and (beside or not _is_text(message["content"])):
                raise ValueError(f"messages[{number}]: a tool message is text, and stands with those of its turn")
            if beside := role == "user" and is_of_tools(message):  # it begins no turn
                continue
            made = [call["id"] for call in calls] if role == "assistant" else []
            found.append((role, made, message.get("tool_call_id")))
        return found

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        choice = {"index": 0, "message": self.message, "logprobs": None, "finish_reason": self.finish_reason}
        return {**self._head(body, "chat.completion"), "choices": [choice], "usage": self._usage()}

    def events(self, body: dict[str, Any]) -> Iterator[Any]:
        head = self._head(body, "chat.completion.chunk")
        for delta in _deltas(self.message):
            yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": self.finish_reason}]}
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": self._usage()}
        yield "[DONE]"

    def _head(self, body: Mapping[str, object], kind: str) -> dict[str, object]:
        return {"id": "chatcmpl-scripted", "object": kind, "created": 0, "model": body["model"]}

    def _usage(self) -> dict[str, object]:
        used = self.usage
        counts: dict[str, object] = {
            "prompt_tokens": used.input_tokens,
            "completion_tokens": used.output_tokens,
            "total_tokens": used.total_tokens,
        }
        if used.cached_tokens:
            counts["prompt_tokens_details"] = {"cached_tokens": used.cached_tokens}
        if used.reasoning_tokens:
            counts["completion_tokens_details"] = {"reasoning_tokens": used.reasoning_tokens}
        return counts


def history_of(body: Mapping[str, object], name: str) -> list[Any]:
    """The field of a request that holds what was said. Raises `ValueError` where there is none, or no model is named."""
    if not isinstance(body.get("model"), str):
        raise ValueError("you must provide a model parameter")
    said = body.get(name)
    if not isinstance(said, list) or not said:
        raise ValueError(f"'{name}' must be a list of at least one {'message' if name == 'messages' else 'item'}")
    return said


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and call.get("type") == "function"
        and has_texts(call, "id")
        and has_texts(function, "name", "arguments")
    )


def has_texts(value: Mapping[str, object], *names: str) -> bool:
    """True if all of these fields are text."""
    return all(isinstance(value.get(name), str) for name in names)


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The message in pieces: what is neither text nor call, then the text, then each call and its arguments."""
    content, calls = message.get("content"), message.get("tool_calls") or []
    rest = {key: value for key, value in message.items() if key not in ("role", "content", "tool_calls")}
    texts = pieces(content) if isinstance(content, str) else [content] if content else []
    yield {"role": "assistant", "content": None if calls and not texts else "", **rest}
    for piece in texts:
        yield {"content": piece}
    for index, call in enumerate(calls):
        arguments = call["function"].get("arguments") or ""
        yield {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        for piece in pieces(arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def is_part(part: object, kinds: Container[object]) -> bool:
    """True if it is a part of a content, of one of these kinds."""
    return isinstance(part, dict) and part.get("type") in kinds


def _is_text(content: Any) -> bool:
    return isinstance(content, str) or all(is_part(part, ("text",)) for part in content)


# The Responses API

_ENCRYPTED: Final = "reasoning.encrypted_content"
_PARTS: Final = {"assistant": ("output_text", "refusal"), "user": ("input_text", "input_image", "input_file")}
_REASONS: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Response(Answer):
    """A reply over the Responses API. A message with `output` is no message of chat completions: its fields are the response's own."""

    history = "input"

    @classmethod
    def turns(cls, body: dict[str, Any]) -> list[Turn]:
        if isinstance(said := body.get(cls.history), str):
            body = {**body, cls.history: [{"role": "user", "content": said}]}
        if body.get("previous_response_id") is not None:
            raise ValueError("the previous response is not found: none is stored here")
        found: list[Turn] = []
        replies = False  # what a model says in one reply is several items
        thought = ""  # reasoning goes with what it led to
        for number, item in enumerate(history_of(body, cls.history)):
            role, calls, answers = _turn(item, f"input[{number}]")
            if thought and role != "assistant":
                raise ValueError(thought)
            thought = (
                f"input[{number}]: reasoning without its following item" if item.get("type") == "reasoning" else ""
            )
            if replies and role == "assistant":
                found[-1][1].extend(calls)
            else:
                found.append((role, calls, answers))
            replies = role == "assistant"
        if thought:
            raise ValueError(thought)
        return found

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        used, reason = self.usage, _REASONS.get(self.finish_reason)
        own = self.message if "output" in self.message else {"output": list(self._items(body))}
        return {
            "id": "resp_scripted",
            "object": "response",
            "created_at": 0,
            "status": "incomplete" if reason else "completed",
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": body.get("instructions"),
            "metadata": {},
            "model": body["model"],
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "store": body.get("store", True),
            "temperature": body.get("temperature", 1.0),
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools", []),
            "top_p": body.get("top_p", 1.0),
            "usage": {
                "input_tokens": used.input_tokens,
                "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": used.output_tokens,
                "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
                "total_tokens": used.total_tokens,
            },
            **own,
        }

    def events(self, body: dict[str, Any]) -> Iterator[Any]:
        whole = self.whole(body)
        nothing: dict[str, Any] = {"output": [], "usage": None, "error": None, "incomplete_details": None}
        begun = {**whole, "status": "in_progress", **nothing}
        last = {"type": f"response.{whole['status']}", "response": whole}
        events = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
            *(event for place, item in enumerate(whole["output"]) for event in _item_events(place, item)),
            last,
        ]
        for number, event in enumerate(events):
            yield {**event, "sequence_number": number}

    def _items(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The items of the message, with ids that none of the items before them has."""
        message, place = self.message, len(body[self.history])
        if isinstance(thought := message.get("reasoning_content"), str):
            reasoning = {
                "id": f"rs_{place}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": thought}],
            }
            secret = {"encrypted_content": b64encode(thought.encode()).decode()}
            yield {**reasoning, **(secret if _ENCRYPTED in (body.get("include") or ()) else {})}
        content, calls, refusal = message.get("content"), message.get("tool_calls") or [], message.get("refusal")
        texts = [part["text"] for part in content] if isinstance(content, list) else [content] if content else []
        parts: list[dict[str, Any]] = [
            {"type": "output_text", "annotations": [], "logprobs": [], "text": text} for text in texts
        ]
        if isinstance(refusal, str):
            parts.append({"type": "refusal", "refusal": refusal})
        said = {"id": f"msg_{place}", "type": "message", "status": "completed", "role": "assistant"}
        if parts or not calls:
            yield {**said, "content": parts or [{"type": "output_text", "annotations": [], "logprobs": [], "text": ""}]}
        for number, call in enumerate(calls):
            function = call["function"]
            yield {
                "id": f"fc_{place}_{number}",
                "type": "function_call",
                "status": "completed",
                "arguments": function.get("arguments") or "",
                "call_id": call["id"],
                "name": function["name"],
            }


def _turn(item: Any, where: str) -> Turn:
    """Gives the role of an item, the calls that it makes, and the call that it answers."""
    kind = item.get("type", "message" if "role" in item else None) if isinstance(item, dict) else None
    if not isinstance(kind, str):
        raise ValueError(f"{where} has no type that is known")
    if kind == "function_call_output":
        output = item.get("output")
        if not has_texts(item, "call_id") or not isinstance(output, (str, list)):
            raise ValueError(f"{where}: the output of a call has a call_id, and output as text or a list")
        if isinstance(output, list) and not all(is_part(part, _PARTS["user"]) for part in output):
            raise ValueError(f"{where}: the output of a call is text, or a list of {', '.join(_PARTS['user'])}")
        return "tool", [], item["call_id"]
    if kind == "function_call":
        if not has_texts(item, "call_id", "name", "arguments"):
            raise ValueError(f"{where}: a call has a call_id, a name, and arguments as text")
        return "assistant", [item["call_id"]], None
    if kind == "reasoning" and not isinstance(item.get("summary"), list):
        raise ValueError(f"{where}: reasoning has a summary, which is a list")
    if kind != "message":
        return "assistant", [], None
    role, content = item.get("role"), item.get("content")
    if role not in ("system", "developer", "user", "assistant"):
        raise ValueError(f"{where} has no role that is known")
    kinds = _PARTS.get(role, _PARTS["user"])
    parts = content if isinstance(content, list) else [{"type": kinds[0]}] if isinstance(content, str) else [None]
    if not all(is_part(part, kinds) for part in parts):
        raise ValueError(f"{where}: the content is a text, or a list of {', '.join(kinds)}")
    return role, [], None


def _item_events(place: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The item as it comes in a stream: its beginning, its pieces, and the whole of it."""
    kind, begun = item.get("type"), item if "status" not in item else {**item, "status": "in_progress"}
    at = {"item_id": item.get("id"), "output_index": place}
    within: Iterator[dict[str, Any]] = iter(())
    if kind == "message":
        begun, within = {**begun, "content": []}, _parts(item["content"], at)
    elif kind == "function_call":
        begun, within = {**begun, "arguments": ""}, _arguments(item, at)
    elif kind == "reasoning":  # what is encrypted then is not yet what it will be
        secret = {"encrypted_content": ""} if "encrypted_content" in item else {}
        begun, within = {**begun, **secret, "summary": []}, _summary(item["summary"], at)
    yield {"type": "response.output_item.added", "output_index": place, "item": begun}
    yield from within
    yield {"type": "response.output_item.done", "output_index": place, "item": item}


def _parts(content: list[dict[str, Any]], at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for index, part in enumerate(content):
        kind, key = part["type"], "refusal" if part["type"] == "refusal" else "text"
        here = {**at, "content_index": index}
        more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        yield {"type": "response.content_part.added", **here, "part": {**part, key: ""}}
        for piece in pieces(part[key]):
            yield {"type": f"response.{kind}.delta", **here, "delta": piece, **more}
        yield {"type": f"response.{kind}.done", **here, key: part[key], **more}
        yield {"type": "response.content_part.done", **here, "part": part}


def _arguments(item: dict[str, Any], at: Mapping[str, object]) -> Iterator[dict[str, object]]:
    for piece in pieces(item["arguments"]):
        yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
    said = {"name": item["name"], "arguments": item["arguments"]}
    yield {"type": "response.function_call_arguments.done", **at, **said}


def _summary(summary: list[dict[str, Any]], at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for index, part in enumerate(summary):
        here = {**at, "summary_index": index}
        yield {"type": "response.reasoning_summary_part.added", **here, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **here, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **here, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **here, "part": part}

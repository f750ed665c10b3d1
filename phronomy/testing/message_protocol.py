"""Anthropic's Messages API as the loopback server speaks it, with its refusals, its whole answers, and its streams. Pure.

It is as strict as the provider is: https://platform.claude.com/docs/en/api/messages/create, and for streams
https://platform.claude.com/docs/en/build-with-claude/streaming.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final

from phronomy.foundation.dataclasses import dataclass
from phronomy.testing.protocols import Answer, Turn, has_texts, history_of, is_part
from phronomy.testing.scripted import pieces

_REASONS: Final = {
    "content_filter": "refusal",
    "length": "max_tokens",
    "stop": "end_turn",
    "tool_calls": "tool_use",
}
_IN_RESULTS: Final = ("document", "image", "search_result", "text", "tool_reference")
_OF_USERS: Final = (*_IN_RESULTS, "container_upload", "tool_result")
_OF_MODELS: Final = ("redacted_thinking", "text", "thinking", "tool_use")
_PIECES: Final = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageAnswer(Answer):
    """A reply over the Messages API. A message whose `content` is a list has the content blocks of the reply."""

    history = "messages"

    @classmethod
    def turns(cls, body: dict[str, Any]) -> list[Turn]:
        most = body.get("max_tokens")
        if not isinstance(most, int) or most < 1:
            raise ValueError("max_tokens: Field required")
        if (body.get("thinking") or {}).get("budget_tokens", 0) >= most:
            raise ValueError("`max_tokens` must be greater than `thinking.budget_tokens`")
        found: list[Turn] = []
        for number, message in enumerate(history_of(body, cls.history)):
            found += _turns(message, f"messages.{number}")
        return found

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        used, content = self.usage, list(self._blocks(body))
        kinds = [block.get("type") for block in content]
        reason = _REASONS.get(self.finish_reason, self.finish_reason)
        usage: dict[str, Any] = {
            "input_tokens": used.input_tokens - used.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": used.cached_tokens,
            "output_tokens": used.output_tokens,
        }
        if used.reasoning_tokens:
            usage["output_tokens_details"] = {"thinking_tokens": used.reasoning_tokens}
        return {
            "id": "msg_scripted",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": "tool_use" if reason == "end_turn" and "tool_use" in kinds else reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def events(self, body: dict[str, Any]) -> Iterator[Any]:
        whole = self.whole(body)
        begun = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
        yield {"type": "message_start", "message": begun}
        yield {"type": "ping"}
        for index, block in enumerate(whole["content"]):
            first, deltas = _streamed(block, call_text=self._call_text)
            yield {"type": "content_block_start", "index": index, "content_block": first}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        ended = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": whole["usage"]["output_tokens"]}}
        yield {"type": "message_stop"}

    def _blocks(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        message = self.message
        content = message.get("content")
        thought = message.get("reasoning_content")
        if isinstance(thought, str) and (body.get("thinking") or {}).get("type") in ("adaptive", "enabled"):
            yield {"type": "thinking", "thinking": thought, "signature": b64encode(thought.encode()).decode()}
        if isinstance(content, list):
            yield from content
        elif text := content or message.get("refusal"):
            yield {"type": "text", "text": text}
        for call in message.get("tool_calls") or ():
            given = json.loads(call["function"].get("arguments") or "{}")
            yield {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": given}

    def _call_text(self, block: dict[str, Any]) -> str:
        """The input of a call as the model wrote it."""
        calls = self.message.get("tool_calls") or ()
        written = (call["function"].get("arguments") for call in calls if call["id"] == block["id"])
        return next(written, None) or json.dumps(block["input"])


def _turns(message: Any, where: str) -> list[Turn]:
    """Gives what a message holds: the results in it, and the message itself with the calls that it makes."""
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ("user", "assistant"):
        raise ValueError(f"{where}: the role is user or assistant")
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not blocks:
        raise ValueError(f"{where}: all messages must have non-empty content")
    kinds = _OF_USERS if role == "user" else _OF_MODELS
    for number, block in enumerate(blocks):
        own = role == "assistant" and isinstance(block, dict) and str(block.get("type")) not in _OF_USERS
        if not own and not is_part(block, kinds):
            raise ValueError(f"{where}.content.{number}: a {role} message has no such block")
        _check(block, f"{where}.content.{number}")
    if role == "assistant":
        if blocks[-1].get("type") in ("thinking", "redacted_thinking"):
            raise ValueError(f"{where}: the final block in an assistant message cannot be `thinking`")
        return [("assistant", [block["id"] for block in blocks if block["type"] == "tool_use"], None)]
    answers = [block["type"] == "tool_result" for block in blocks]
    if answers != sorted(answers, reverse=True):
        raise ValueError(f"{where}: `tool_result` blocks come first")
    results: list[Turn] = [("tool", [], block["tool_use_id"]) for block in blocks if block["type"] == "tool_result"]
    return results if all(answers) else [*results, ("user", [], None)]


def _check(block: dict[str, Any], where: str) -> None:
    kind = block.get("type")
    if kind == "text" and not (isinstance(block.get("text"), str) and block["text"].strip()):
        raise ValueError(f"{where}: text content blocks must contain non-whitespace text")
    if kind == "tool_use" and not (has_texts(block, "id", "name") and isinstance(block.get("input"), dict)):
        raise ValueError(f"{where}: a call has an id, a name, and an input that is an object")
    if kind in ("tool_use", "tool_result") and not _ID.fullmatch(str(block.get("id", block.get("tool_use_id")))):
        raise ValueError(f"{where}: an id has the letters of {_ID.pattern}")
    if kind == "thinking" and not has_texts(block, "thinking", "signature"):
        raise ValueError(f"{where}: thinking has its text and its signature")
    told = block.get("content", "") if kind == "tool_result" else ""
    if not isinstance(told, (str, list)) or (
        isinstance(told, list) and not all(is_part(each, _IN_RESULTS) for each in told)
    ):
        raise ValueError(f"{where}: the content of a result is text, or a list of {', '.join(_IN_RESULTS)}")


def _streamed(block: dict[str, Any], call_text: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Gives the block as it begins in a stream, and its pieces."""
    kind = block.get("type")
    if kind == "tool_use":
        parts = ["", *pieces(call_text(block))]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    if kind not in _PIECES:
        return block, []
    name, field = _PIECES[kind]
    deltas = [{"type": name, field: piece} for piece in pieces(block[field])]
    begun = {**block, field: ""}
    if kind == "thinking":
        begun["signature"] = ""
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    citations = begun.pop("citations", None) or ()
    deltas += [{"type": "citations_delta", "citation": citation} for citation in citations]
    return begun, deltas

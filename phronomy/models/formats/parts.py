"""The order of a reply's parts, where litellm translates the protocol: the content blocks of Anthropic, the parts of Gemini. Pure.

litellm makes one text, one list of thinking blocks and one list of calls of a reply, and sends those back in that order. Both
providers sign reasoning for its place: Anthropic refuses thinking that has moved, and Gemini wants each signature on the part that it
came on. So an order that is not litellm's own is kept in `Message.provider` under `RESERVED`: as `blocks` for Anthropic, as `parts` for
Gemini. Each entry is `{"kind": ...}`, with the `size` of a text in characters and the `signature` of a text. Such a message goes to
litellm as several messages of the assistant in a row, which litellm joins to one again, in their order.

The shapes are those of https://docs.claude.com/en/docs/build-with-claude/extended-thinking, of
https://docs.anthropic.com/en/docs/build-with-claude/streaming and of https://ai.google.dev/gemini-api/docs/thought-signatures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from phronomy.models.base import ModelReply, ModelRequest
from phronomy.models.formats.answer import Answered
from phronomy.models.formats.chat import RESERVED, object_of, record_of, request_messages
from phronomy.records.messages import Message, ToolCall

ANTHROPIC: Final = "blocks"
GEMINI: Final = "parts"
"""Where an order is kept, by the protocol that it is of."""

_RANK: Final = {"thinking": 0, "thought": 0, "text": 1, "call": 2}
"""litellm's own order."""

_KINDS: Final = {"thinking": "thinking", "redacted_thinking": "thinking", "text": "text", "tool_use": "call"}
_PIECES: Final = {"thinking_delta": "thinking", "signature_delta": "signature"}
_SEPARATOR: Final = "__thought__"  # litellm puts the signature of a call behind its id, too


class Parts:
    """What a reply is made of, in its order, as far as it has come; and whether the provider said its end."""

    def __init__(self) -> None:
        self.ended: bool = False
        self._protocol = ""
        self._parts: list[dict[str, Any]] = []
        self._thinking: list[dict[str, Any]] = []
        self._at: dict[str, dict[str, Any]] = {}
        self._known = True

    def read(self, body: Any) -> None:
        """Take note of a whole answer, if it is of one of the two protocols."""
        content = object_of(body).get("content")
        if object_of(body).get("type") == "message" and isinstance(content, list):
            for place, block in enumerate(content):
                self._block(str(place), block)
        else:
            self.add(body)

    def add(self, event: Any) -> None:
        """Take note of an event of a stream. Raises `Answered` for an error that Anthropic sends inside it."""
        event = object_of(event)
        kind, place = event.get("type"), str(event.get("index"))
        if kind == "error":
            raise Answered(None, event)
        if kind == "message_stop":
            self.ended = True
        elif kind == "content_block_start":
            self._block(place, event.get("content_block"))
        elif kind == "content_block_delta":
            self._piece(place, object_of(event.get("delta")))
        elif kind is None:
            self._candidates(event)

    def keep(self, reply: ModelReply) -> ModelReply:
        """The reply that litellm made of it, with its thinking as it came, and with the order if that is not litellm's own."""
        message, protocol = reply.message, self._protocol
        if not protocol:
            return reply
        provider = message.provider
        ours = object_of(provider.get(RESERVED))
        if self._thinking:
            provider["thinking_blocks"] = self._thinking
            object_of(provider.get("provider_specific_fields")).pop("thinking_blocks", None)  # the same once more
        parts = [part for part in self._parts if part["kind"] != "text" or part["size"] or "signature" in part]
        said = {**provider, "content": message.content, "tool_calls": message.tool_calls}
        groups = _groups(said, parts, protocol) if self._known else None
        if groups is not None and (len(groups) > 1 or any("signature" in part for part in parts)):
            provider[RESERVED] = {**ours, protocol: parts}
        calls = tuple(map(_plain, message.tool_calls, _signatures(message, ours)))
        return replace(reply, message=record_of(message.content, calls, provider))

    # Anthropic

    def _block(self, place: str, block: Any) -> None:
        self._protocol = ANTHROPIC
        kind = _KINDS.get(str(object_of(block).get("type")))
        if kind is None or not isinstance(block.get("text", ""), str):  # of a tool of the provider, or not known yet
            self._known = False
            return
        part: dict[str, Any] = {"kind": kind}
        if kind == "thinking":
            self._at[place] = dict(block)
            self._thinking.append(self._at[place])
        elif kind == "text":
            part["size"] = len(block.get("text", ""))
            self._at[place] = part
        self._parts.append(part)

    def _piece(self, place: str, delta: dict[str, Any]) -> None:
        known, name = self._at.get(place), _PIECES.get(str(delta.get("type")))
        if known is None:
            return
        if name is not None and isinstance(delta.get(name), str) and isinstance(known.get(name, ""), str):
            known[name] = known.get(name, "") + delta[name]
        elif "size" in known and isinstance(delta.get("text"), str):
            known["size"] += len(delta["text"])

    # Gemini

    def _candidates(self, event: dict[str, Any]) -> None:
        if object_of(event.get("promptFeedback")).get("blockReason"):
            self.ended = True
        candidates = event.get("candidates")
        for candidate in candidates if isinstance(candidates, list) else ():
            self._protocol = GEMINI
            if object_of(candidate).get("finishReason"):
                self.ended = True
            parts = object_of(object_of(candidate).get("content")).get("parts")
            for part in parts if isinstance(parts, list) else ():
                self._part(object_of(part))

    def _part(self, part: dict[str, Any]) -> None:
        text, signature = part.get("text"), part.get("thoughtSignature")
        if "functionCall" in part:
            self._parts.append({"kind": "call"})
        elif not isinstance(text, str):  # pictures, code that ran there, what is not known yet
            self._known = False
        else:
            kind = "thought" if part.get("thought") is True else "text"
            last = self._parts[-1] if self._parts else {}
            if signature is None and last.get("kind") == kind and "signature" not in last:
                last["size"] += len(text)  # pieces of one
            else:
                signed = {} if signature is None else {"signature": signature}
                self._parts.append({"kind": kind, "size": len(text), **signed})


def wire_messages(request: ModelRequest, protocol: str, *, whole_results: bool) -> list[dict[str, Any]]:
    """The messages of the request as they go to litellm for a provider of the protocol: each reply of it in its order."""

    def spread(message: Message, sent: dict[str, Any]) -> list[dict[str, Any]]:
        parts = object_of(message.provider.get(RESERVED)).get(protocol)
        return (_groups(sent, parts, protocol) if isinstance(parts, list) else None) or [sent]

    return request_messages(request, whole_results=whole_results, spread=spread)


def _groups(wire: dict[str, Any], parts: list[Any], protocol: str) -> list[dict[str, Any]] | None:
    """The message as the fewest that litellm joins to it in the order of the parts; None where the parts are not those of the message.

    A message may have lost text or calls since, and what a checkpoint from outside holds need not fit.
    """
    texts = {"text": wire.get("content") or "", "thought": wire.get("reasoning_content") or ""}
    lists = {"thinking": [*(wire.get("thinking_blocks") or ())], "call": [*(wire.get("tool_calls") or ())]}
    names = {"text": "content", "thought": "reasoning_content", "thinking": "thinking_blocks", "call": "tool_calls"}
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    groups: list[dict[str, Any]] = []
    last = -1
    for part in map(object_of, parts):
        kind, size = str(part.get("kind")), part.get("size")
        if kind not in _RANK:
            return None
        if not groups or _RANK[kind] < last or (kind in texts and _RANK[kind] == last):
            groups.append({"role": "assistant", "content": None})
        group, last = groups[-1], _RANK[kind]
        if lists.get(kind):
            group.setdefault(names[kind], []).append(lists[kind].pop(0))
        elif kind in texts and isinstance(size, int) and 0 <= size <= len(texts[kind]):
            group[names[kind]], texts[kind] = texts[kind][:size], texts[kind][size:]
        else:
            return None
        if kind == "text" and part.get("signature"):
            group["provider_specific_fields"] = {"thought_signatures": [part["signature"]]}
    left = (texts["text"], lists["call"], lists["thinking"] if protocol == ANTHROPIC else texts["thought"])
    if not groups or any(left):
        return None
    if protocol == GEMINI and sum("tool_calls" in group for group in groups) > 1:
        return None  # litellm finds the calls that results belong to in one message alone
    if protocol == ANTHROPIC:
        rest = {
            key: value for key, value in wire.items() if key not in ("role", "content", "tool_calls", "thinking_blocks")
        }
        groups[0] = {**groups[0], **rest}
    return groups


def _signatures(message: Message, ours: dict[str, Any]) -> list[Any]:
    """The signature of each call, as litellm gives it beside the call."""
    calls = object_of(ours.get("calls"))
    fields = (
        object_of(calls.get(str(place))).get("provider_specific_fields") for place, _ in enumerate(message.tool_calls)
    )
    return [object_of(each).get("thought_signature") for each in fields]


def _plain(call: ToolCall, signature: Any) -> ToolCall:
    """The call by the provider's own id: its signature stands beside it."""
    end = f"{_SEPARATOR}{signature}"
    return call.evolve(id=call.id.removesuffix(end)) if signature and call.id.endswith(end) else call

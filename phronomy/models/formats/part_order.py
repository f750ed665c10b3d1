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

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from phronomy.foundation.json_text import JsonDict, JsonValue, list_of, object_of
from phronomy.models.base import ModelReply, ModelRequest
from phronomy.models.endings import worse
from phronomy.models.formats.answer import Answered
from phronomy.models.formats.chat_completions import RESERVED, record_of, request_messages
from phronomy.models.formats.native_ends import ended
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
    """The parts of a reply in their order, as far as it has come, and whether the provider has announced its end."""

    def __init__(self) -> None:
        self.ended: bool = False
        self.reason: str | None = None
        """How the reply ended, in the provider's word: litellm makes `stop` of what it does not know."""
        self._protocol = ""
        self._parts: list[JsonDict] = []
        self._thinking: list[JsonDict] = []
        self._at: dict[str, JsonDict] = {}
        self._known = True

    def read(self, body: object) -> None:
        """Take note of a whole answer, if it is of one of the two protocols."""
        content = object_of(body).get("content")
        if object_of(body).get("type") == "message" and isinstance(content, list):
            self._ends(object_of(body).get("stop_reason"))
            for place, block in enumerate(content):
                self._block(str(place), block)
        else:
            self.add(body)

    def add(self, said: object) -> None:
        """Take note of an event of a stream. Raises `Answered` for an error that Anthropic sends inside it."""
        event = object_of(said)
        kind, place = event.get("type"), str(event.get("index"))
        if kind == "error":
            raise Answered(None, event)
        if kind == "message_stop":
            self.ended = True
        elif kind == "message_delta":
            self._ends(object_of(event.get("delta")).get("stop_reason"))
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
        reply = ended(reply, self.reason)
        provider = message.provider
        ours = object_of(provider.get(RESERVED))
        if self._thinking:
            provider["thinking_blocks"] = self._thinking
            object_of(provider.get("provider_specific_fields")).pop("thinking_blocks", None)  # the same once more
        parts = [part for part in self._parts if part["kind"] != "text" or part["size"] or "signature" in part]
        said = {**provider, "content": message.content, "tool_calls": [*message.tool_calls]}
        groups = _groups(said, parts, protocol) if self._known else None
        if groups is not None and (len(groups) > 1 or any("signature" in part for part in parts)):
            provider[RESERVED] = {**ours, protocol: parts}
        calls = tuple(map(_plain, message.tool_calls, _signatures(message, ours)))
        return replace(reply, message=record_of(message.content, calls, provider))

    def _ends(self, reason: JsonValue) -> None:
        self.reason = worse(self.reason, reason if isinstance(reason, str) and reason else None)

    # Anthropic

    def _block(self, place: str, said: JsonValue) -> None:
        self._protocol = ANTHROPIC
        block = object_of(said)
        kind, text = _KINDS.get(str(block.get("type"))), block.get("text", "")
        if kind is None or not isinstance(text, str):  # of a tool of the provider, or not known yet
            self._known = False
            return
        part: JsonDict = {"kind": kind}
        if kind == "thinking":
            self._at[place] = dict(block)
            self._thinking.append(self._at[place])
        elif kind == "text":
            part["size"] = len(text)
            self._at[place] = part
        self._parts.append(part)

    def _piece(self, place: str, delta: JsonDict) -> None:
        known = self._at.get(place, {})
        name = _PIECES.get(str(delta.get("type")), "text")
        before, more, size = known.get(name, ""), delta.get(name), known.get("size")
        if name != "text" and known and isinstance(before, str) and isinstance(more, str):
            known[name] = before + more
        elif isinstance(size, int) and isinstance(text := delta.get("text"), str):
            known["size"] = size + len(text)

    # Gemini

    def _candidates(self, event: JsonDict) -> None:
        if object_of(event.get("promptFeedback")).get("blockReason"):
            self.ended = True
        for candidate in list_of(event.get("candidates")):
            self._protocol = GEMINI
            if object_of(candidate).get("finishReason"):
                self.ended = True
                self._ends(object_of(candidate)["finishReason"])
            for part in list_of(object_of(object_of(candidate).get("content")).get("parts")):
                self._part(object_of(part))

    def _part(self, part: JsonDict) -> None:
        text, signature = part.get("text"), part.get("thoughtSignature")
        if "functionCall" in part:
            self._parts.append({"kind": "call"})
        elif not isinstance(text, str):  # pictures, code that ran there, what is not known yet
            self._known = False
        else:
            kind = "thought" if part.get("thought") is True else "text"
            last = self._parts[-1] if self._parts else {}
            size = last.get("size") if last.get("kind") == kind and "signature" not in last else None
            if signature is None and isinstance(size, int):
                last["size"] = size + len(text)  # pieces of one
            else:
                signed = {} if signature is None else {"signature": signature}
                self._parts.append({"kind": kind, "size": len(text), **signed})


def wire_messages(request: ModelRequest, protocol: str, *, whole_results: bool) -> list[JsonDict]:
    """The messages of the request as they go to litellm for a provider of the protocol: each reply of it in its order."""

    def spread(message: Message, sent: JsonDict) -> list[JsonDict]:
        parts = object_of(message.provider.get(RESERVED)).get(protocol)
        return (_groups(sent, parts, protocol) if isinstance(parts, list) else None) or [sent]

    return request_messages(request, whole_results=whole_results, spread=spread if protocol else None)


def _groups(wire: JsonDict, parts: Sequence[JsonValue], protocol: str) -> list[JsonDict] | None:
    """The message as the fewest that litellm joins to it in the order of the parts; None where the parts are not those of the message.

    A message may have lost text or calls since, and what a checkpoint from outside holds need not fit.
    """
    given = {"text": wire.get("content") or "", "thought": wire.get("reasoning_content") or ""}
    listed = {"thinking": wire.get("thinking_blocks") or [], "call": wire.get("tool_calls") or []}
    texts = {kind: text for kind, text in given.items() if isinstance(text, str)}
    lists = {kind: [*entries] for kind, entries in listed.items() if isinstance(entries, list)}
    names = {"text": "content", "thought": "reasoning_content", "thinking": "thinking_blocks", "call": "tool_calls"}
    if len(texts) + len(lists) < len(given) + len(listed):
        return None
    groups: list[JsonDict] = []
    last = -1
    for part in map(object_of, parts):
        kind, size = str(part.get("kind")), part.get("size")
        if kind not in _RANK:
            return None
        if not groups or _RANK[kind] < last or (kind in texts and _RANK[kind] == last):
            groups.append({"role": "assistant", "content": None})
        group, last = groups[-1], _RANK[kind]
        if lists.get(kind):
            group[names[kind]] = [*list_of(group.get(names[kind])), lists[kind].pop(0)]
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


def _signatures(message: Message, ours: JsonDict) -> list[JsonValue]:
    """The signature of each call, as litellm gives it beside the call."""
    calls = object_of(ours.get("calls"))
    fields = (
        object_of(calls.get(str(place))).get("provider_specific_fields") for place, _ in enumerate(message.tool_calls)
    )
    return [object_of(each).get("thought_signature") for each in fields]


def _plain(call: ToolCall, signature: JsonValue) -> ToolCall:
    """The call by the provider's own id: its signature stands beside it."""
    end = f"{_SEPARATOR}{signature}"
    return call.evolve(id=call.id.removesuffix(end)) if signature and call.id.endswith(end) else call

"""A streamed reply put together again: the chunks of the chat-completions protocol to deltas, and to one reply. Pure.

The whole is what the same answer is unstreamed: text is appended, calls are told apart by index and id, and a field
that is not known is put together by its shape, as the providers' own clients do it.

The shape is that of https://platform.openai.com/docs/api-reference/chat-streaming.
"""

from __future__ import annotations

from collections.abc import Iterator

from phronomy.errors import ModelConnectionError, ModelError
from phronomy.foundation.json_text import JsonDict, JsonValue, list_of, object_of, text_of
from phronomy.models.base import Delta, ModelReply, ReasoningDelta, TextDelta, ToolCallDelta
from phronomy.models.formats.answer import Answered, StreamedReply
from phronomy.models.formats.chat_completions import read_completion

_NAMES = ("format", "id", "index", "name", "object", "role", "type")
"""Strings that name something: repeated in the next chunk, they are the same again and no continuation."""

_REASONING = ("reasoning_content", "reasoning")
_THOUGHTS = ("thinking", "reasoning.text")
_LAST = 64
"""How many entries of a list come in pieces at the same time, at most."""


class Assembler(StreamedReply):
    """The reply of a stream, as far as it has come."""

    def __init__(self) -> None:
        self._message: JsonDict = {}
        self._calls: list[JsonDict] = []
        self._places: dict[int, int] = {}
        self.usage: JsonValue = None
        self._finish_reason: str | None = None
        self._begun = False
        self.id: str | None = None
        self.model: str | None = None

    def _deltas(self, event: JsonDict) -> Iterator[Delta]:
        if event.get("error"):
            raise Answered(None, event)
        if event.get("usage"):
            self.usage = event["usage"]
        if isinstance(id := event.get("id"), str):
            self.id = id
        if isinstance(model := event.get("model"), str):
            self.model = model
        choices = event.get("choices") or []
        if not isinstance(choices, list):
            raise ModelError("the choices of an event of the stream are not a list")
        for choice in choices:
            if isinstance(choice, dict) and choice.get("index") in (None, 0):
                if isinstance(reason := choice.get("finish_reason"), str):
                    self._finish_reason = reason
                if isinstance(delta := choice.get("delta"), dict):
                    yield from self._merge(delta)

    def reply(self) -> ModelReply:
        if not self.done and self._finish_reason is None:
            raise ModelConnectionError("the stream was cut off before its end")
        if not self._begun:
            raise ModelError("the stream holds no message")
        message: JsonDict = {"role": "assistant", "content": None, **self._message}
        if self._calls:
            message["tool_calls"] = [*self._calls]
        choice = {"message": message, "finish_reason": self._finish_reason}
        return read_completion({"id": self.id, "model": self.model, "choices": [choice], "usage": self.usage})

    def _merge(self, delta: JsonDict) -> Iterator[Delta]:
        self._begun = self._begun or bool(delta)
        for key, value in delta.items():
            if key == "tool_calls":
                for fragment in list_of(value):
                    yield from self._call(fragment)
            elif key == "content":
                yield from self._content(value)
            else:
                self._message[key] = _joined(self._message.get(key), value, key)
        if text := next(filter(None, (text_of(delta.get(key)) for key in _REASONING)), ""):
            yield ReasoningDelta(text=text)

    def _content(self, value: JsonValue) -> Iterator[Delta]:
        kept: JsonValue = self._message.get("content")
        if isinstance(kept, list) and isinstance(value, str):
            value = [{"type": "text", "text": value}] if value else []
        elif isinstance(kept, str) and isinstance(value, list):
            kept = [{"type": "text", "text": kept}] if kept else []
        self._message["content"] = _joined(kept, value, "content")
        parts = [object_of(part) for part in value] if isinstance(value, list) else [{"text": value}]
        for part in parts:
            # The text of a part of another type is no text of the answer: it is not in `Message.text` either.
            if part.get("type", "text") == "text" and (text := text_of(part.get("text"))):
                yield TextDelta(text=text)

    def _call(self, fragment: JsonValue) -> Iterator[Delta]:
        if not isinstance(fragment, dict):
            raise ModelError("a tool call in the stream is not an object")
        place = self._place(fragment)
        call = self._calls[place]
        for key, value in fragment.items():
            if key != "index":
                call[key] = _joined(call.get(key), value, key)
        said = object_of(fragment.get("function"))
        yield ToolCallDelta(
            index=place,
            id=text_of(fragment.get("id")),
            name=text_of(said.get("name")),
            arguments=text_of(said.get("arguments")),
        )

    def _place(self, fragment: JsonDict) -> int:
        """The place of the call that a fragment belongs to. Some providers give each call the index 0, or none."""
        index, call_id = fragment.get("index"), fragment.get("id")
        place = self._places.get(index) if isinstance(index, int) else len(self._calls) - 1
        known = self._calls[place].get("id") if place is not None and place >= 0 else None
        if place is None or place < 0 or (call_id and known and call_id != known):
            self._calls.append({})
            place = len(self._calls) - 1
            if isinstance(index, int):
                self._places[index] = place
        return place


def _joined(kept: JsonValue, new: JsonValue, key: str) -> JsonValue:
    """A field with its next piece."""
    if new is None or kept is None:
        return kept if new is None else new
    if isinstance(kept, str) and isinstance(new, str):
        return new if key in _NAMES and new else kept + new if key not in _NAMES else kept
    if isinstance(kept, dict) and isinstance(new, dict):
        return {**kept, **{name: _joined(kept.get(name), value, name) for name, value in new.items()}}
    if isinstance(kept, list) and isinstance(new, list):
        return _extended(kept, new)
    return new


def _extended(kept: list[JsonValue], new: list[JsonValue]) -> list[JsonValue]:
    """A list with its next pieces: one that continues an entry by its index, or a thinking block, joins that."""
    found = list(kept)
    for piece in new:
        place = _continued(found, piece)
        if place is None:
            found.append(piece)
        else:
            found[place] = _joined(found[place], piece, "")
    return found


def _continued(entries: list[JsonValue], piece: JsonValue) -> int | None:
    if not isinstance(piece, dict):
        return None
    index = piece.get("index")
    for place in reversed(range(max(0, len(entries) - _LAST), len(entries))):
        entry = entries[place]
        if not isinstance(entry, dict) or any(_differ(entry.get(key), piece.get(key)) for key in ("type", "id")):
            continue
        if isinstance(index, int) and entry.get("index") == index:
            return place
        # Thinking comes in pieces that have no index; its signature ends it.
        unsigned = piece.get("type") in _THOUGHTS and not entry.get("signature")
        if index is None and unsigned and place == len(entries) - 1:
            return place
    return None


def _differ(one: object, other: object) -> bool:
    """Whether both are told, and are not the same: two entries may have one index and each its id."""
    return one is not None and other is not None and one != other

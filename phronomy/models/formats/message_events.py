"""A streamed message put together again: the events of the Messages API to deltas, and to one reply. Pure.

The whole is what the same answer is unstreamed. A piece belongs to the block of its index; one that fits no block there is an error, so
no call gets the arguments of another. Only `message_stop` ends a message.

The shape is that of https://platform.claude.com/docs/en/build-with-claude/streaming.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from phronomy.errors import ModelConnectionError, ModelError
from phronomy.foundation.json_text import JsonDict, JsonError, JsonValue, list_of, object_of, parse, text_of
from phronomy.models.base import Delta, ModelReply, ReasoningDelta, TextDelta, ToolCallDelta
from phronomy.models.endings import is_end, worse
from phronomy.models.formats.answer import Answered, StreamedReply
from phronomy.models.formats.joined_pieces import joined
from phronomy.models.formats.messages import read_message

_FIELDS: Final = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
}
"""The kind of block that a piece belongs to, and the field that it continues."""


class MessageAssembler(StreamedReply):
    """The message of a stream, as far as it has come."""

    def __init__(self, tools: Iterable[str] = ()) -> None:
        _ = tools  # a block has its place
        self._head: JsonDict = {}
        self._usage: JsonDict = {}
        self._reason: str | None = None
        self._blocks: dict[int, JsonDict] = {}
        self._open: set[int] = set()
        self._inputs: dict[int, list[str]] = {}
        self._calls: dict[int, int] = {}
        self._ended = False

    def _deltas(self, event: JsonDict) -> Iterator[Delta]:
        kind = event.get("type")
        if event.get("error") or kind == "error":
            raise Answered(None, event)
        if kind == "message_start":
            self._head = object_of(event.get("message"))
            self._count(self._head)
        elif kind == "content_block_start":
            yield from self._begin(_place(event), event.get("content_block"))
        elif kind == "content_block_delta":
            yield from self._piece(_place(event), object_of(event.get("delta")))
        elif kind == "content_block_stop":
            self._open.discard(_place(event))
        elif kind == "message_delta":
            reason = object_of(event.get("delta")).get("stop_reason")
            self._reason = worse(self._reason, text_of(reason) or None)
            self._count(event)
        elif kind == "message_stop":
            self.done = self._ended = True

    def reply(self) -> ModelReply:
        if not self._ended:
            raise ModelConnectionError("the stream was cut off before its end")
        if self._open and is_end(self._reason):
            raise ModelError("the stream ended before a content block in it did")
        blocks = [self._whole(place) for place in sorted(self._blocks)]
        content: list[JsonValue] = [block for block in blocks if block is not None]
        return read_message({**self._head, "content": content, "stop_reason": self._reason, "usage": self._usage})

    def _count(self, said: JsonDict) -> None:
        """Take note of what was used: later counts stand for the earlier ones."""
        self._usage |= {name: count for name, count in object_of(said.get("usage")).items() if count is not None}

    def _begin(self, place: int, said: object) -> Iterator[Delta]:
        if not isinstance(said, dict) or place in self._blocks:
            raise ModelError("a content block of the stream is no object, or begins twice")
        block = self._blocks[place] = dict(said)
        self._open.add(place)
        if block.get("type") == "tool_use":
            self._calls[place] = len(self._calls)
            yield ToolCallDelta(index=self._calls[place], id=text_of(block.get("id")), name=text_of(block.get("name")))
        elif block.get("type") == "text" and (text := text_of(block.get("text"))):
            yield TextDelta(text=text)

    def _piece(self, place: int, delta: JsonDict) -> Iterator[Delta]:
        kind = text_of(delta.get("type"))
        if kind == "text_delta" and place not in self._blocks:  # not every gateway says that a text begins
            yield from self._begin(place, {"type": "text", "text": ""})
        if place not in self._open:
            raise ModelError("a piece in the stream belongs to no content block that is open")
        block = self._blocks[place]
        of, field = _FIELDS.get(kind, ("", ""))
        if kind == "input_json_delta":
            yield from self._input(place, block, text_of(delta.get("partial_json")))
        elif kind == "citations_delta":
            block["citations"] = [*list_of(block.get("citations")), delta.get("citation")]
        elif of and block.get("type") != of:
            raise ModelError("a piece in the stream does not fit its content block")
        else:
            pieces = {field: text_of(delta.get(field))} if field else delta
            block |= {name: joined(block.get(name), piece, name) for name, piece in pieces.items() if name != "type"}
            if text := text_of(delta.get("text")) if kind == "text_delta" else "":
                yield TextDelta(text=text)
            if thought := text_of(delta.get("thinking")) if kind == "thinking_delta" else "":
                yield ReasoningDelta(text=thought)

    def _input(self, place: int, block: JsonDict, piece: str) -> Iterator[Delta]:
        if not text_of(block.get("type")).endswith("tool_use"):
            raise ModelError("a piece in the stream does not fit its content block")
        self._inputs.setdefault(place, []).append(piece)
        if place in self._calls and piece:
            yield ToolCallDelta(index=self._calls[place], arguments=piece)

    def _whole(self, place: int) -> JsonDict | None:
        """The block, with the input that came in pieces: of a call as text. None where the provider's own tool has half an input."""
        block, said = self._blocks[place], "".join(self._inputs.get(place, ()))
        if not said.strip():
            return block
        if place in self._calls:
            if block.get("input") not in (None, {}, "") and block["input"] != _read(said):
                raise ModelError("the stream holds two inputs for one call")
            return {**block, "input": said}
        given = _read(said)
        return None if given is None else {**block, "input": given}


def _read(text: str) -> JsonValue:
    try:
        return parse(text)
    except JsonError:
        return None


def _place(event: JsonDict) -> int:
    """The place of a content block in the message."""
    index = event.get("index")
    if type(index) is not int or index < 0:
        raise ModelError("an event of the stream has no number of a content block")
    return index

"""A streamed reply put together again: the chunks of the chat-completions protocol to deltas, and to one reply. Pure.

The whole is what the same answer is unstreamed: text is appended, calls are told apart by index and id, and a field
that is not known is put together by its shape, as the providers' own clients do it.

The shape is that of https://platform.openai.com/docs/api-reference/chat-streaming.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phronomy.errors import ModelConnectionError, ModelError
from phronomy.foundation.json_text import JsonDict, JsonValue, object_of, text_of
from phronomy.models.base import Delta, ModelReply, ReasoningDelta, TextDelta, ToolCallDelta
from phronomy.models.endings import worse
from phronomy.models.formats.answer import Answered, StreamedReply
from phronomy.models.formats.chat_completions import read_completion
from phronomy.models.formats.joined_pieces import joined
from phronomy.models.formats.streamed_calls import StreamedCalls

_REASONING = ("reasoning_content", "reasoning")


class Assembler(StreamedReply):
    """The reply of a stream, as far as it has come."""

    def __init__(self, tools: Iterable[str] = ()) -> None:
        self._message: JsonDict = {}
        self._calls = StreamedCalls(tools)
        self.usage: JsonValue = None
        self.finish_reason: str | None = None
        self._begun = False
        self._ends_others = False  # another choice has a `finish_reason`
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
            if not isinstance(choice, dict):
                raise ModelError("a choice of an event of the stream is not an object")
            yield from self._of_choice(choice)

    def _of_choice(self, choice: JsonDict) -> Iterator[Delta]:
        index, reason = choice.get("index"), text_of(choice.get("finish_reason"))
        if index is not None and type(index) is not int:  # its end, or a part of it, would be lost
            raise ModelError("a choice of an event of the stream has no number")
        if index not in (None, 0):
            self._ends_others = self._ends_others or reason != ""
            return
        if choice.get("error"):
            raise Answered(None, {"error": choice["error"]})
        if reason:
            self.finish_reason = worse(self.finish_reason, reason)
        delta = choice.get("delta")
        if not isinstance(delta, dict | None):
            raise ModelError("the delta of an event of the stream is not an object")
        yield from self._merge(delta or {})

    def reply(self) -> ModelReply:
        # Some endpoints end a message with `[DONE]` alone. Others say how each choice ends, and then this one has no end.
        if self.finish_reason is None and (not self.done or self._ends_others):
            raise ModelConnectionError("the stream was cut off before its end")
        if not self._begun or (self.finish_reason is None and not self._says_anything()):
            raise ModelError("the stream holds no message")
        message: JsonDict = {"role": "assistant", "content": None, **self._message}
        if calls := self._calls.whole():
            message["tool_calls"] = [*calls]
        choice = {"message": message, "finish_reason": self.finish_reason}
        return read_completion({"id": self.id, "model": self.model, "choices": [choice], "usage": self.usage})

    def _says_anything(self) -> bool:
        said = (value for key, value in self._message.items() if key != "role")
        return any(value not in (None, "", []) for value in said) or bool(self._calls.whole())

    def _merge(self, delta: JsonDict) -> Iterator[Delta]:
        self._begun = self._begun or bool(delta)
        for key, value in delta.items():
            if key == "tool_calls":
                if not isinstance(value, list | None):
                    raise ModelError("the tool calls of an event of the stream are not a list")
                yield from self._tool_calls(value or [])
            elif key == "content":
                if value != "" or "role" not in delta:  # the empty piece that a stream begins with is no text
                    yield from self._content(value)
            else:
                self._message[key] = joined(self._message.get(key), value, key)
        if text := next(filter(None, (text_of(delta.get(key)) for key in _REASONING)), ""):
            yield ReasoningDelta(text=text)

    def _content(self, value: JsonValue) -> Iterator[Delta]:
        kept: JsonValue = self._message.get("content")
        if isinstance(kept, list) and isinstance(value, str):
            value = [{"type": "text", "text": value}] if value else []
        elif isinstance(kept, str) and isinstance(value, list):
            kept = [{"type": "text", "text": kept}] if kept else []
        self._message["content"] = joined(kept, value, "content")
        parts = [object_of(part) for part in value] if isinstance(value, list) else [{"text": value}]
        for part in parts:
            # The text of a part of another type is no text of the answer: it is not in `Message.text` either.
            if part.get("type", "text") == "text" and (text := text_of(part.get("text"))):
                yield TextDelta(text=text)

    def _tool_calls(self, fragments: list[JsonValue]) -> Iterator[Delta]:
        for number, fragment in enumerate(fragments):
            if not isinstance(fragment, dict):
                raise ModelError("a tool call in the stream is not an object")
            place = self._calls.add(fragment, beside=number > 0)
            said = object_of(fragment.get("function"))
            yield ToolCallDelta(
                index=place,
                id=text_of(fragment.get("id")),
                name=text_of(said.get("name")),
                arguments=text_of(said.get("arguments")),
            )

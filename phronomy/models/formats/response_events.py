"""A streamed response put together again: the events of the Responses API to deltas, and to one reply. Pure.

The last event holds the whole response, as it comes unstreamed. Some gateways leave the items out of it; then those that were said to
be done are taken.

The shape is that of https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Iterator

from phronomy.errors import ModelConnectionError, ModelError
from phronomy.foundation.json_text import JsonDict, JsonValue, object_of, text_of
from phronomy.models.base import Delta, ModelReply, ReasoningDelta, TextDelta, ToolCallDelta
from phronomy.models.formats.answer import Answered, StreamedReply
from phronomy.models.formats.responses import read_response

_TEXT = "response.output_text.delta"
_ARGUMENTS = "response.function_call_arguments.delta"
_REASONING = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ITEMS = ("response.output_item.added", "response.output_item.done")
_LAST = ("response.completed", "response.incomplete", "response.failed")
_ERRORS = ("error", "response.error")


class ResponseAssembler(StreamedReply):
    """The response of a stream, as far as it has come."""

    def __init__(self) -> None:
        self._items: dict[int, JsonValue] = {}
        self._places: dict[JsonValue, int] = {}
        self._response: JsonDict | None = None

    def _deltas(self, event: JsonDict) -> Iterator[Delta]:
        kind, delta = event.get("type"), event.get("delta")
        if event.get("error"):
            raise Answered(None, event)
        if kind in _ERRORS:
            raise Answered(None, {"error": event})
        if kind in _LAST:
            self._end(str(kind), event.get("response"))
        elif kind in _ITEMS:
            yield from self._item(event, done=kind == _ITEMS[1])
        elif isinstance(delta, str) and delta:
            if kind == _TEXT:
                yield TextDelta(text=delta)
            elif kind in _REASONING:
                yield ReasoningDelta(text=delta)
            elif kind == _ARGUMENTS:
                yield ToolCallDelta(index=self._place(event), arguments=delta)

    def reply(self) -> ModelReply:
        if self._response is None:
            raise ModelConnectionError("the stream was cut off before its end")
        items = [item for _, item in sorted(self._items.items())]
        return read_response({**self._response, "output": self._response.get("output") or items})

    def _end(self, kind: str, response: object) -> None:
        if not isinstance(response, dict):
            raise ModelError("the last event of the stream holds no response")
        self._response = {**response, "status": response.get("status") or kind.removeprefix("response.")}
        self.done = True

    def _item(self, event: JsonDict, *, done: bool) -> Iterator[Delta]:
        item, index = object_of(event.get("item")), event.get("output_index")
        if item.get("type") == "function_call" and index not in self._places:
            yield ToolCallDelta(
                index=self._place(event),
                id=text_of(item.get("call_id")),
                name=text_of(item.get("name")),
                arguments=text_of(item.get("arguments")),
            )
        if done:
            self._items[index if isinstance(index, int) else len(self._items)] = item

    def _place(self, event: JsonDict) -> int:
        """The place of a call among the calls, by the place of its item."""
        index = event.get("output_index")
        return self._places.setdefault(index if isinstance(index, int) else None, len(self._places))

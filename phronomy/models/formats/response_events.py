"""A streamed response put together again: the events of the Responses API to deltas, and to one reply. Pure.

The last event holds the whole response, as it comes unstreamed. Some gateways leave the items out of it; then those that were said to
be done are taken.

The shape is that of https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from operator import itemgetter

from phronomy.errors import ModelConnectionError, ModelError
from phronomy.foundation.json_text import JsonDict, JsonValue, list_of, object_of, text_of
from phronomy.models.base import Delta, ModelReply, ReasoningDelta, TextDelta, ToolCallDelta
from phronomy.models.formats.answer import Answered, StreamedReply
from phronomy.models.formats.chat_completions import wire_json
from phronomy.models.formats.responses import read_response

_TEXT = "response.output_text.delta"
_ARGUMENTS = "response.function_call_arguments.delta"
_REASONING = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ITEMS = ("response.output_item.added", "response.output_item.done")
_LAST = ("response.completed", "response.incomplete", "response.failed")
_ERRORS = ("error", "response.error")


class ResponseAssembler(StreamedReply):
    """The response of a stream, as far as it has come."""

    def __init__(self, tools: Iterable[str] = ()) -> None:
        _ = tools  # an item has its place and its id
        self._items: list[tuple[float, JsonDict]] = []
        self._texts: set[str] = set()
        self._open: set[tuple[str, ...]] = set()
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
        items: list[JsonValue] = [item for _, item in sorted(self._items, key=itemgetter(0))]
        output = self._response.get("output") or items
        said = {call for item in list_of(output) if (call := _call(object_of(item)))}
        done = {call for _, item in self._items if (call := _call(item))}
        if not done <= said or not self._open <= {call[:2] for call in said}:
            raise ModelError("the stream and its last event do not hold the same calls")
        return read_response({**self._response, "output": output})

    def _end(self, kind: str, response: object) -> None:
        if not isinstance(response, dict):
            raise ModelError("the last event of the stream holds no response")
        ended = kind.removeprefix("response.")
        status = (response.get("status") or ended) if ended == "completed" else ended
        self._response = {**response, "status": status}
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
        if not done:
            self._open |= {_call(item)[:2]} if _call(item) else set()
            return
        self._open.discard(_call(item)[:2])
        if (text := wire_json(item)) not in self._texts:  # else an event that was sent twice
            self._texts.add(text)
            self._items.append((index if isinstance(index, int) else inf, item))

    def _place(self, event: JsonDict) -> int:
        """The place of a call among the calls, by the place of its item."""
        index = event.get("output_index")
        return self._places.setdefault(index if isinstance(index, int) else None, len(self._places))


def _call(item: JsonDict) -> tuple[str, ...]:
    """A call of a function: its id, name and arguments. Empty for another item."""
    if item.get("type") != "function_call":
        return ()
    return text_of(item.get("call_id")), text_of(item.get("name")), text_of(item.get("arguments"))

"""Streams on the wire: server-sent events to deltas and the reply, sync and async, bounded in size.

httpx2 splits the events, whichever client the bytes come from. It is loaded with the first call.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, cast

from phronomy.concurrency.aclosing import aclosing
from phronomy.models.base import Delta, ModelReply
from phronomy.models.formats.answer import StreamedReply, check_size

if TYPE_CHECKING:
    from httpx2 import EventSource, Response, ServerSentEvent


def pieces(data: Iterable[bytes], assembler: StreamedReply) -> Generator[Delta | ModelReply]:
    """The deltas and then the reply of a stream of bytes. Raises `ModelError` for one that does not end in a reply."""
    with closing(_events(data)) as events:
        for event in events:
            yield from assembler.take(event.data)
            if assembler.done:  # a server may leave the connection open after it
                break
    yield assembler.reply()


async def apieces(data: AsyncIterable[bytes], assembler: StreamedReply) -> AsyncGenerator[Delta | ModelReply]:
    """As `pieces`, for bytes that are awaited."""
    async with aclosing(_aevents(data)) as events:
        async for event in events:
            for delta in assembler.take(event.data):
                yield delta
            if assembler.done:
                break
    yield assembler.reply()


def data_lines(data: Iterable[bytes]) -> Generator[str]:
    """A line with the data of each event. An event ends where the format says so, and not at a line separator within it."""
    with closing(_events(data)) as events:
        for event in events:
            yield f"data: {event.data}"


async def adata_lines(data: AsyncIterable[bytes]) -> AsyncGenerator[str]:
    """As `data_lines`, for bytes that are awaited."""
    async with aclosing(_aevents(data)) as events:
        async for event in events:
            yield f"data: {event.data}"


class _Text:
    """What httpx2 reads of a response: that it is a stream of events, and its text."""

    request = None
    headers = {"content-type": "text/event-stream"}  # noqa: RUF012  # looked at, never changed

    def __init__(self, data: Iterable[bytes]) -> None:
        self._data = data

    def iter_text(self) -> Iterator[str]:
        decoder, total = codecs.getincrementaldecoder("utf-8")("replace"), 0  # as the format has it
        for part in self._data:
            total += len(part)
            check_size(total)
            if text := decoder.decode(part):
                yield text


class _AsyncText:
    request = None
    headers = _Text.headers

    def __init__(self, data: AsyncIterable[bytes]) -> None:
        self._data = data

    async def aiter_text(self) -> AsyncIterator[str]:
        decoder, total = codecs.getincrementaldecoder("utf-8")("replace"), 0
        async for part in self._data:
            total += len(part)
            check_size(total)
            if text := decoder.decode(part):
                yield text


def _events(data: Iterable[bytes]) -> Generator[ServerSentEvent]:
    yield from _source(_Text(data))


def _aevents(data: AsyncIterable[bytes]) -> AsyncGenerator[ServerSentEvent]:
    return cast("AsyncGenerator[ServerSentEvent]", aiter(_source(_AsyncText(data))))  # it is one, and is closed as one


def _source(text: _Text | _AsyncText) -> EventSource:
    from httpx2 import EventSource  # noqa: PLC0415  # no import of phronomy loads it

    return EventSource(cast("Response", text), max_event_size=None)  # `check_size` bounds the whole

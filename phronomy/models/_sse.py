"""Streams on the wire: server-sent events to deltas and the reply, sync and async, bounded in size.

`httpx-sse` splits the events, whichever client the bytes come from. It is loaded with the first stream.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, cast

from phronomy._aclosing import aclosing
from phronomy.models._answer import check_size
from phronomy.models._chunks import Assembler
from phronomy.models.base import Delta, ModelReply


def pieces(data: Iterable[bytes], assembler: Assembler | None = None) -> Generator[Delta | ModelReply]:
    """The deltas and then the reply of a stream of bytes. Raises `ModelError` for one that does not end in a reply."""
    assembler = assembler or Assembler()
    with closing(_events(_Text(data)).iter_sse()) as events:
        for event in events:
            yield from assembler.take(event.data)
            if assembler.done:  # a server may leave the connection open after it
                break
    yield assembler.reply()


async def apieces(data: AsyncIterable[bytes], assembler: Assembler | None = None) -> AsyncGenerator[Delta | ModelReply]:
    """As `pieces`, for bytes that are awaited."""
    assembler = assembler or Assembler()
    async with aclosing(_events(_AsyncText(data)).aiter_sse()) as events:
        async for event in events:
            for delta in assembler.take(event.data):
                yield delta
            if assembler.done:
                break
    yield assembler.reply()


class _Text:
    """What httpx-sse reads of a response: that it is a stream of events, and its text."""

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


def _events(text: _Text | _AsyncText) -> Any:
    from httpx_sse import EventSource  # noqa: PLC0415  # loads httpx, which no import of phronomy does

    return EventSource(cast(Any, text))

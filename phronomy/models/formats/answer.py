"""What came back over HTTP: a whole answer to a reply, or to what is wrong with it. Bounded in size; pure but for the clock."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from phronomy.errors import ModelError
from phronomy.foundation.json_text import MAX_BYTES, JsonDict
from phronomy.models.base import Delta, ModelReply

_MEDIA_TYPES: Final = frozenset(
    f"{kind}/{name}"
    for kind, names in {
        "application": ("json", "octet-stream", "problem+json", "x-ndjson", "xhtml+xml", "xml"),
        "text": ("css", "csv", "event-stream", "html", "javascript", "markdown", "plain", "xml"),
        "image": ("gif", "jpeg", "png", "svg+xml"),
    }.items()
    for name in names
)


class Answered(Exception):
    """The provider answered with an error. What it said is judged and never told: it may quote the request."""

    def __init__(
        self, status: int | None, body: object, *, content_type: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__("an error of the provider" if status is None else f"status {status}")
        self.status = status
        self.body = body
        self.content_type = content_type
        self.retry_after = retry_after


class StreamedReply(ABC):
    """A reply put together again from the events of a stream, as far as it has come. What an event is, the protocol says."""

    done: bool = False
    """Whether the end of the stream was said."""

    def take(self, data: str) -> Iterator[Delta]:
        """The deltas in the data of one event.

        Raises `Answered` for an error that the provider sends inside the stream, `ModelError` for what is no event.
        """
        if data.strip() == "[DONE]":
            self.done = True
            return
        if not data.strip():
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            raise ModelError("an event of the stream is not JSON") from None
        yield from self.add(event)

    def add(self, event: object) -> Iterator[Delta]:
        """The deltas in one event. Raises as `take` does."""
        if not isinstance(event, dict):
            raise ModelError("an event of the stream is not an object")
        yield from self._deltas(event)

    @abstractmethod
    def _deltas(self, event: JsonDict) -> Iterator[Delta]:
        """The deltas in one event, which is an object."""

    @abstractmethod
    def reply(self) -> ModelReply:
        """The whole reply. Raises `ModelConnectionError` where the stream ended before its end was said."""


def read_answer(
    status: int, headers: Mapping[str, str], data: bytes, read: Callable[[JsonDict], ModelReply]
) -> ModelReply:
    """The reply in a whole answer, read from its body as the protocol has it: `read`.

    Raises `Answered` for an error of the provider, `ModelError` for what is no reply.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if status != 200:
        raise refused(status, headers, body)
    if not isinstance(body, dict):
        kind = media_type(headers) or "no known content type"
        raise ModelError(f"the answer is no JSON object: status 200, {kind}", status_code=200)
    check_no_error(body)
    return read(body)


def check_no_error(body: JsonDict) -> None:
    """Refuse an error that the provider sends with status 200. Raises `Answered`."""
    if body.get("error") and not body.get("choices"):
        raise Answered(None, body) from None


def refused(status: int, headers: Mapping[str, str], body: object) -> Answered:
    """The error for an answer with any status but 200; `body` is what could be read of it as JSON."""
    return Answered(status, body, content_type=media_type(headers), retry_after=seconds_of(headers.get("retry-after")))


def is_stream(status: int, headers: Mapping[str, str]) -> bool:
    """Whether the answer is a stream of events. A server that knows no streams sends the whole reply instead."""
    return status == 200 and media_type(headers) == "text/event-stream"


def media_type(headers: Mapping[str, str]) -> str:
    """The media type of an answer, if it is a well-known one: it goes into messages, and any other may quote the key."""
    kind = str(headers.get("content-type") or "").partition(";")[0].strip().lower()
    return kind if kind in _MEDIA_TYPES else ""


def seconds_of(text: str | None, *, now: float | None = None) -> float | None:
    """The seconds that `Retry-After` asks to wait, as a number or a date (RFC 9110, 10.2.3); a date counts from `now`."""
    if not text:
        return None
    with suppress(ValueError):
        return min(max(0.0, float(text)), 1e9) if float(text) == float(text) else None  # NaN is not itself
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  # rare, and half of the email package

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - (time.time() if now is None else now))
    except (ValueError, OverflowError):
        return None


def read_whole(data: Iterable[bytes]) -> bytes:
    """All the bytes of an answer. Raises `ModelError` where they are more than a record holds."""
    found = bytearray()
    for part in data:
        found += part
        check_size(len(found))
    return bytes(found)


async def aread_whole(data: AsyncIterable[bytes]) -> bytes:
    """As `read_whole`, for bytes that are awaited."""
    found = bytearray()
    async for part in data:
        found += part
        check_size(len(found))
    return bytes(found)


def check_size(total: int) -> None:
    """Refuse an answer of so many bytes if no record could hold it. Raises `ModelError`."""
    if total > MAX_BYTES:
        raise ModelError(f"the answer is larger than {MAX_BYTES} bytes")

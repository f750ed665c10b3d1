"""Requests and responses of HTTP, as plain records: what a framework hands over, and what it sends back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from time import monotonic
from typing import Final

from phronomy.errors import Portable
from phronomy.foundation.dataclasses import dataclass

LONGEST: Final = 1_000_000
"""Bytes of the longest body that is read. No platform sends nearly as much with a click."""


class Refused(Portable, Exception):  # it is an answer, and no failure of the program
    """A channel refuses a request before anything is done: it is not proven to come from the platform, or makes no sense.

    `status` is the status of the answer, 400 to 499. `check` says what to look at if the request was of the platform after all, such as
    the name of an option: the log has it.
    """

    def __init__(self, status: int, why: str, *, check: str = "") -> None:
        super().__init__(why)
        self.status = status
        self.check = check


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request of a platform. The names of `headers` are in small letters; `body` is as it came, byte for byte."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What is sent back. `after` is work to be done once it is sent: the adapters call it.

    What `after` was to do for a message is in the outbox too, so it is not lost if the process dies first.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: Callable[[], None] | None = field(default=None, repr=False, compare=False)


def json_response(value: object, *, after: Callable[[], None] | None = None) -> Response:
    """A response of status 200 with a JSON body."""
    body = json.dumps(value, ensure_ascii=False).encode()
    return Response(headers={"content-type": "application/json; charset=utf-8"}, body=body, after=after)


def text_response(status: int, text: str) -> Response:
    """A response of plain text."""
    return Response(status=status, headers={"content-type": "text/plain; charset=utf-8"}, body=text.encode())


def limited(chunks: Iterable[bytes], *, most: int, seconds: float) -> bytes:
    """The body of a platform's answer: at most so many bytes, read within so many seconds.

    The timeouts of clients are those of each read, so an answer that comes byte by byte would hold up everything behind it. Raises
    `OSError`.
    """
    body, until = bytearray(), monotonic() + seconds
    for chunk in chunks:
        body += chunk
        if len(body) > most or monotonic() > until:
            raise OSError("an answer that is too large, or too slow")
    return bytes(body)

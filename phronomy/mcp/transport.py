"""Transports that tell how far a request got: what was handed over may have been carried out, and what was not has not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypeVar

import anyio
import httpx2
import mcp_types
from mcp.shared.message import SessionMessage

from phronomy.foundation.dataclasses import dataclass

if TYPE_CHECKING:
    from mcp.client import Transport
    from mcp.client._transport import ReadStream, WriteStream

_Said: TypeAlias = SessionMessage | Exception
S = TypeVar("S", bound="ReadStream[_Said] | WriteStream[SessionMessage]")

_SESSION: Final = "mcp-session-id"


@dataclass(slots=True)
class Under:
    """How far a request has got."""

    sent: bool = False
    """Handed to the transport."""

    reached: bool = False
    """Over HTTP: a connection was there to send it on, or there may have been."""

    refused: bool = False
    """Over HTTP: there was no connection."""

    status: int = 0

    session: bool = False
    """Over HTTP: it named a session, which the server may not know any more."""

    left: bool = False
    """Nobody waits for the answer any more."""

    task: asyncio.Task[object] | None = None


UNDER: ContextVar[Under | None] = ContextVar("phronomy_mcp_request", default=None)
"""The request that this task, and those that it makes, are for."""


class Http(httpx2.AsyncClient):
    """A client that notes, for each request, whether there was a connection and what the status was.

    Of an answer in one piece it reads `longest` bytes, and of one that is compressed none: a short one may be long.
    """

    def __init__(self, *, longest: int, **options: Any) -> None:
        super().__init__(**options)
        self.headers["accept-encoding"] = "identity"
        self._longest = longest

    async def send(self, request: httpx2.Request, *args: Any, **options: Any) -> httpx2.Response:
        """Send the request."""
        under = UNDER.get() if request.method == "POST" else None
        if under is not None:
            under.session = _SESSION in request.headers
        try:
            response = await super().send(request, *args, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
            if under is not None:
                under.refused = True
            raise
        except BaseException:
            if under is not None:
                under.reached = True
            raise
        if under is not None:
            under.reached, under.status = True, response.status_code
        media_type = response.headers.get("content-type", "").lower()
        if not media_type.startswith("text/event-stream"):  # each event has a bound
            compressed = response.headers.get("content-encoding", "identity").lower() != "identity"
            response.stream = _Bounded(response.stream, 0 if compressed else self._longest)
        return response


class _Bounded(httpx2.AsyncByteStream):
    """A stream of at most so many bytes. Raises `httpx2.StreamError` at more."""

    def __init__(self, inner: Any, longest: int) -> None:
        self._inner, self._left = inner, longest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.StreamError("the answer has more bytes than are read")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Functions that are called as messages pass.

    `over`: nothing more will be read. `said`: a message has gone out. `come`: the result of a request of one of these
    `methods` has come; the function returns the result to read.
    """

    over: Callable[[], None]
    said: Callable[[mcp_types.JSONRPCMessage], None]
    come: Callable[[str, dict[str, Any]], dict[str, Any]]
    methods: frozenset[str]


@asynccontextmanager
async def watched(transport: Transport, watcher: Watcher) -> AsyncGenerator[Any]:
    """The streams of a transport. They note how far requests get, and call the watcher."""
    asked: dict[object, str] = {}
    async with transport as (read, write):
        yield _Read(read, watcher, asked), _Write(write, watcher, asked)


class _Stream(Generic[S]):
    def __init__(self, inner: S) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._inner.aclose()


class _Read(_Stream["ReadStream[_Said]"]):
    def __init__(self, inner: ReadStream[_Said], watcher: Watcher, asked: dict[object, str]) -> None:
        super().__init__(inner)
        self._watcher, self._asked = watcher, asked

    @property
    def last_context(self) -> object:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> _Said:
        try:
            found = await self._inner.receive()
        except BaseException:
            self._watcher.over()
            raise
        message = found.message if isinstance(found, SessionMessage) else None
        if isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
            method = self._asked.pop(message.id, None)
            if method is not None and isinstance(message, mcp_types.JSONRPCResponse):
                message.result = self._watcher.come(method, message.result)
        return found

    def __aiter__(self) -> _Read:
        return self

    async def __anext__(self) -> _Said:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Write(_Stream["WriteStream[SessionMessage]"]):
    def __init__(self, inner: WriteStream[SessionMessage], watcher: Watcher, asked: dict[object, str]) -> None:
        super().__init__(inner)
        self._watcher, self._asked = watcher, asked

    async def send(self, item: SessionMessage) -> None:
        under, message = UNDER.get(), item.message
        if isinstance(message, mcp_types.JSONRPCRequest) and message.method in self._watcher.methods:
            self._asked[message.id] = message.method
        counts = under is not None and isinstance(message, mcp_types.JSONRPCRequest) and message.method == "tools/call"
        if under is None or not counts:
            await self._inner.send(item)
            self._watcher.said(message)
            return
        under.sent = True
        try:
            await self._inner.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            under.sent = False
            raise

"""A session with an MCP server, in a thread and an event loop of its own. A process without such a server never loads this.

The package of the protocol is async alone, and a server lives longer than any call: so one thread owns its session, and whoever calls
a tool hands the request over and waits. What cannot be known for certain is told as such: a request that was handed to the
transport may have been carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TextIO

import anyio
import httpx2
import mcp_types
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from phronomy._json import canonical
from phronomy.errors import MCPError as Unreachable

KEY: Final = "phronomy/idempotency-key"
"""Under which name of the metadata of a request the server finds the idempotency key of the call."""

_TICK: Final = 0.05
"""Seconds between two looks at whether anybody still waits for an answer."""

_PAGES: Final = 1000
_SECRET: Final = 8
"""Characters that a value has at least, to be taken for a secret."""

MAY_HAVE: Final = "It may have taken effect."


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """How a server is started, or where it is. Most of it may be secret."""

    name: str
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = field(default=None, repr=False)
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    errlog: TextIO | None = field(default=None, repr=False)
    silence: float = 300.0

    def scrubbed(self, text: str) -> str:
        """A text of the server's without what it was given to keep."""
        url = httpx2.URL(self.url)
        values = [*self.env.values(), *self.headers.values(), url.password or "", *url.params.values()]
        words = {word for value in values for word in (value, *value.split())}
        for word in sorted(words, key=len, reverse=True):
            if len(word) >= _SECRET:
                text = text.replace(word, "[redacted]")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A tool as its server lists it."""

    name: str
    description: str
    schema: Any
    annotations: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request: the tool's result, or why there is none.

    With `failed` the server has said so. An `unsent` request has certainly not reached it; whether a `lost` one has, nobody knows.
    """

    kind: Literal["completed", "failed", "unsent", "lost"]
    text: str


@dataclass(slots=True)
class _Under:
    """How far a request has got."""

    sent: bool = False
    """Handed to the transport."""

    reached: bool = False
    """Over HTTP: a connection was there to send it on, or there may have been."""

    refused: bool = False
    """Over HTTP: there was no connection."""

    status: int = 0

    left: bool = False
    """Nobody waits for the answer any more."""

    task: asyncio.Task[Any] | None = None


Work = Coroutine[Any, Any, Answer | None]

_UNDER: ContextVar[_Under | None] = ContextVar("phronomy_mcp_request", default=None)
"""The request that this task, and those that it makes, are for."""


class Connection:
    """A session with a server. Made by `open`; when it is lost, another one is opened in its place."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._ready: Future[None] = Future()
        self._over = asyncio.Event()
        self._lost = False
        self._stale = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._client: Client | None = None
        self._opening = _Under()
        self.listed: dict[str, Listed] = {}
        self._thread = threading.Thread(target=self._live, daemon=True, name="phronomy-mcp")

    @classmethod
    def open(cls, where: Where, timeout: float) -> Connection:
        """Start or reach the server, agree on the protocol, and list its tools. Raises `MCPError` (ours)."""
        made = cls(where)
        made._thread.start()
        try:
            made._ready.result(timeout)
        except TimeoutError:
            made._abort()
            why = f"did not answer within {timeout:g} s{_quiet(where)}"
        except CancelledError:
            why = f"closed the connection{_quiet(where)}"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                made._abort()
                raise
            why = made._why(error)
        else:
            return made
        raise Unreachable(f"the MCP server {where.name!r} {why}", server=where.name)

    @property
    def alive(self) -> bool:
        """Whether a request could be sent. In a forked child it could not."""
        return self._thread.is_alive() and not self._lost

    def close(self, timeout: float = 10.0) -> None:
        """End the session, and with it a server that was started for it. Calls under way are lost."""
        self._lost = True
        if self._thread.is_alive() and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended by itself
                self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(timeout)

    def refresh(self, timeout: float) -> dict[str, Listed]:
        """The tools as the server lists them now. Raises `MCPError` (ours)."""
        answer = self._wait(self._relist, _Under(), lambda: False, timeout)
        if answer is not None:
            why = answer.text if answer.kind == "failed" else "closed the connection"
            raise Unreachable(f"the MCP server {self._where.name!r} {why}", server=self._where.name)
        return self.listed

    def call(self, name: str, schema: str, args: dict[str, Any], key: str, cancelled: Callable[[], bool]) -> Answer:
        """Have the server run a tool, as long as its schema is the one that was listed and nobody has cancelled the call."""
        under = _Under()
        answer = self._wait(lambda: self._request(under, name, schema, args, key), under, cancelled, None)
        assert answer is not None
        return answer

    # In the thread of whoever calls

    def _wait(
        self, work: Callable[[], Work], under: _Under, cancelled: Callable[[], bool], timeout: float | None
    ) -> Answer | None:
        assert self._loop is not None
        followed = _followed(work, under)
        try:
            try:
                future = asyncio.run_coroutine_threadsafe(followed, self._loop)
            except RuntimeError:  # the loop is closed
                followed.close()
                return self._ended(under)
            done = threading.Event()
            future.add_done_callback(lambda _: done.set())
            left = timeout
            while not done.wait(_TICK):
                if cancelled():
                    self._leave(under)
                    return Answer("lost", f"The call was cancelled while the server worked on it. {MAY_HAVE}")
                if not self._thread.is_alive():
                    return self._ended(under)
                left = None if left is None else left - _TICK
                if left is not None and left <= 0:
                    self._leave(under)
                    return Answer("failed", f"did not answer within {timeout:g} s")
        except BaseException:
            self._leave(under)  # an interrupt may come while the request is on its way and its future not yet in hand
            raise
        try:
            answer: Answer | None = future.result()
        except CancelledError:
            return self._ended(under)
        return answer

    def _leave(self, under: _Under) -> None:
        """Stop waiting for a request, and tell the server."""
        under.left = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(lambda: under.task and under.task.cancel())

    def _ended(self, under: _Under) -> Answer:
        self._lost = True
        if under.sent and not under.refused:
            return Answer("lost", f"The connection was lost before the server answered. {MAY_HAVE}")
        return Answer("unsent", "The connection is lost. Nothing was run.")

    def _abort(self) -> None:
        self._lost = True
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)

    def _why(self, error: BaseException) -> str:
        """Why there is no session, without what may be secret: no address, no argument, no header."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if self._opening.status >= 400:
            return f"answered with HTTP {self._opening.status}"
        if isinstance(error, Unreachable):
            return str(error)
        if isinstance(error, MCPError):
            if error.code == mcp_types.CONNECTION_CLOSED:
                return f"closed the connection{_quiet(self._where)}"
            return self._where.scrubbed(f"answered with error {error.code}: {error.message[:500]}")
        if isinstance(error, OSError) and self._where.command:
            return f"could not be started ({type(error).__name__}: {error.strerror})"
        if isinstance(error, httpx2.TransportError):
            return f"cannot be reached ({type(error).__name__})"
        return f"does not speak the protocol as it should ({type(error).__name__})"

    # In the thread of the session

    def _live(self) -> None:
        try:
            with open(os.devnull, "w", encoding="utf-8") as nowhere:
                asyncio.run(self._main(self._where.errlog or nowhere))
        except BaseException as error:  # whatever tore the session down: those who wait are told
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            self._lost = True
            if not self._ready.done():
                self._ready.cancel()

    async def _main(self, errlog: TextIO) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        _UNDER.set(self._opening)
        async with AsyncExitStack() as stack:
            transport = _watched(await self._transport(stack, errlog), self._ended_by_itself)
            self._client = await stack.enter_async_context(Client(transport, cache=None, message_handler=self._hear))
            await self._list()
            self._ready.set_result(None)
            await self._over.wait()

    async def _transport(self, stack: AsyncExitStack, errlog: TextIO) -> Any:
        where = self._where
        if where.command:
            program, *args = where.command
            started = StdioServerParameters(command=program, args=args, env=dict(where.env), cwd=where.cwd)
            return stdio_client(started, errlog=errlog)
        timeout = httpx2.Timeout(30.0, read=where.silence)
        http = await stack.enter_async_context(_Http(headers=dict(where.headers), timeout=timeout))
        return streamable_http_client(where.url, http_client=http)

    def _ended_by_itself(self) -> None:
        self._lost = True
        self._over.set()

    async def _hear(self, message: object) -> None:
        """Of all that a server says unasked, only that its tools have changed matters here."""
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._stale = True

    async def _list(self) -> None:
        assert self._client is not None
        self._stale = False
        found: dict[str, Listed] = {}
        cursor: str | None = None
        for _ in range(_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            for each in page.tools:
                if each.name in found:
                    raise Unreachable(f"lists two tools named {each.name[:80]!r}", server=self._where.name)
                hints = each.annotations.model_dump(by_alias=True, exclude_none=True) if each.annotations else {}
                about = each.description or each.title or ""
                found[each.name] = Listed(
                    name=each.name, description=about, schema=each.input_schema, annotations=hints
                )
            cursor = page.next_cursor
            if cursor is None:
                self.listed = found
                return
        raise Unreachable("lists tools without an end", server=self._where.name)

    async def _relist(self) -> Answer | None:
        try:
            await self._list()
        except Exception as error:
            return Answer("failed", self._why(error))
        return None

    async def _request(self, under: _Under, name: str, schema: str, args: dict[str, Any], key: str) -> Answer:
        assert self._client is not None
        _UNDER.set(under)
        try:
            if self._stale:
                await self._list()
            now = self.listed.get(name)
            if now is None or canonical(now.schema) != schema:
                change = "no longer has this tool" if now is None else "has changed the parameters of this tool"
                return Answer("failed", f"The server {change} since it was listed, so nothing was run.")
            meta: Any = {KEY: key}
            result = await self._client.session.call_tool(name, args, meta=meta, allow_input_required=True)
        except MCPError as error:
            return self._refused(error, under)
        except Exception as error:
            if not under.sent:
                return Answer("failed", f"The server could not be asked ({type(error).__name__}). Nothing was run.")
            told = "The tool ran, but its result is not what its server says that it is"
            return Answer("failed", f"{told} ({type(error).__name__}). Its effect may have happened.")
        if isinstance(result, mcp_types.InputRequiredResult):
            return Answer("failed", f"The server asked for input, which is not offered to it. {MAY_HAVE}")
        text = text_of(result)
        return Answer("failed", self._where.scrubbed(text)) if result.is_error else Answer("completed", text)

    def _refused(self, error: MCPError, under: _Under) -> Answer:
        """What an error in place of an answer means for the request."""
        if not under.sent or (under.refused and not under.reached):
            return self._ended(under)
        if under.status == 404 and error.code == mcp_types.INVALID_REQUEST:  # the server knows nothing of this session
            self._lost = True
            return Answer("unsent", "The server has forgotten the session. Nothing was run.")
        if error.code == mcp_types.CONNECTION_CLOSED:
            return Answer("lost", f"The connection was lost before the server answered. {MAY_HAVE}")
        unread = error.code in (mcp_types.REQUEST_TIMEOUT, mcp_types.PARSE_ERROR)
        if unread or under.status == 202 or under.status >= 500:
            http = f" (HTTP {under.status})" if under.status else ""
            return Answer("lost", f"The server gave no answer that could be read{http}. {MAY_HAVE}")
        if under.status >= 400 and error.code == mcp_types.INTERNAL_ERROR:
            return Answer("failed", f"The server refused the request with HTTP {under.status}.")
        return Answer("failed", self._where.scrubbed(f"The server answered with error {error.code}: {error.message}"))


class _Http(httpx2.AsyncClient):
    """A client that notes, for each request, whether there was a connection and what the status was."""

    async def send(self, request: httpx2.Request, *args: Any, **options: Any) -> httpx2.Response:
        """Send the request."""
        under = _UNDER.get() if request.method == "POST" else None
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
        return response


async def _followed(work: Callable[[], Work], under: _Under) -> Answer | None:
    """Do the work in a task that can be cancelled from the first moment on."""
    under.task = asyncio.current_task()
    if under.left:
        raise asyncio.CancelledError
    return await work()


def _quiet(where: Where) -> str:
    """How to hear why a server that was started does not do what it should."""
    hint = "; give errlog=sys.stderr to see what it writes to its standard error"
    return hint if where.command and where.errlog is None else ""


@asynccontextmanager
async def _watched(transport: Any, over: Callable[[], None]) -> AsyncGenerator[Any]:
    """The streams of a transport, which tell how far requests get, and when nothing more will be read."""
    async with transport as (read, write):
        yield _Read(read, over), _Write(write)


class _Stream:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._inner.aclose()


class _Read(_Stream):
    def __init__(self, inner: Any, over: Callable[[], None]) -> None:
        super().__init__(inner)
        self._over = over

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        try:
            return await self._inner.receive()
        except BaseException:
            self._over()
            raise

    def __aiter__(self) -> _Read:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Write(_Stream):
    async def send(self, item: SessionMessage) -> None:
        under, message = _UNDER.get(), item.message
        counts = under is not None and isinstance(message, mcp_types.JSONRPCRequest) and message.method == "tools/call"
        if under is None or not counts:
            await self._inner.send(item)
            return
        under.sent = True
        try:
            await self._inner.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            under.sent = False
            raise


def text_of(result: mcp_types.CallToolResult) -> str:
    """A result as the model reads it: its texts, what has structure as JSON, and a note in place of all else."""
    texts = [block.text for block in result.content if isinstance(block, mcp_types.TextContent)]
    parts = [block.text if isinstance(block, mcp_types.TextContent) else _note(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not any(_says(text, structured) for text in texts):
        parts.append(_json(structured))
    return "\n".join(parts)


def _says(text: str, structured: Any) -> bool:
    """Whether a text is what has structure, written out: servers give both, for those who read only one."""
    wrapped = structured.get("result") if isinstance(structured, dict) and structured.keys() == {"result"} else None
    if isinstance(wrapped, str) and wrapped == text:
        return True
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(_json(value) in (_json(structured), _json(wrapped)))


def _note(block: Any) -> str:
    """What there is, where it is no text: what a model cannot read would only fill the record."""
    about: dict[str, Any]
    match block:
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return _json({"type": block.type, "mime_type": block.mime_type, "bytes": _size(block.data)})
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as found):
            about = {"type": "resource", "uri": str(found.uri), "mime_type": found.mime_type, "text": found.text}
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as found):
            size = _size(found.blob)
            about = {"type": "resource", "uri": str(found.uri), "mime_type": found.mime_type, "bytes": size}
        case mcp_types.ResourceLink():
            about = {"type": "resource_link", "uri": str(block.uri), "name": block.name, "mime_type": block.mime_type}
        case _:
            about = {"type": str(getattr(block, "type", "unknown"))}
    return _json({name: value for name, value in about.items() if value is not None})


def _size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

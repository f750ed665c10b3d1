"""A session with an MCP server, in a thread and an event loop of its own. A process without such a server never loads this.

The package of the protocol is async alone, and a server lives longer than any call: so one thread owns its session, and whoever calls
a tool hands the request over and waits. What cannot be known for certain is told as such: a request that was handed to the
transport may have been carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack
from dataclasses import field
from functools import partial
from pathlib import PurePath
from typing import Final, Literal, TextIO, TypeAlias

import anyio
import httpx2
import mcp_types
from mcp import Client, ClientSession, MCPError
from mcp.client import ClientRequestContext, Transport
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from phronomy.errors import MCPError as Unreachable
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, canonical
from phronomy.foundation.quoting import without
from phronomy.mcp.content import failure_of, text_of, value_of
from phronomy.mcp.elicitation import MOST, Asking, Unaskable
from phronomy.mcp.mending import CALL, LIST, MOST_ENTRIES, Malformed, readable, usable
from phronomy.mcp.stdio import started
from phronomy.mcp.transport import UNDER, Http, Under, Watcher, watched
from phronomy.records.record import digest_of
from phronomy.stops.interrupts import Interrupt
from phronomy.tools.images import Image
from phronomy.tools.json_schema.bounded import ResultSchema

KEY: Final = "phronomy/idempotency-key"
"""Under which name of the metadata of a request the server finds the idempotency key of the call."""

_TICK: Final = 0.05
"""Seconds between two looks at whether anybody still waits for an answer."""

_PAGES: Final = 1000
"""Pages that a server may list its tools on."""

_SECRET: Final = 8
"""Characters that a value has at least, to be taken for a secret."""

_PROBE: Final = 10.0
"""Seconds within which a server that knows the session says so."""

TWICE: Final = "it is listed twice"
MAY_HAVE: Final = "It may have taken effect."
FORGOTTEN: Final = "The server has forgotten the session. Nothing was run."


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
    longest: int = 32_000_000
    images: bool = True
    asks: bool = False

    @property
    def endpoint(self) -> str:
        """Where it is for whoever decides: what is no secret, and a hash of what may be. Headers and the environment are left out."""
        if self.command:
            program, *rest = self.command
            shown, hidden = PurePath(program).name, [*rest, self.cwd or ""]
        else:
            url = httpx2.URL(self.url)
            shown, hidden = f"{url.scheme}://{url.netloc.decode()}", [url.raw_path.decode()]
        return f"{shown}#{digest_of(*hidden)[:16]}"

    def scrubbed(self, text: str) -> str:
        """A text of the server's without what it was given to keep."""
        url = httpx2.URL(self.url)
        values = [*self.env.values(), *self.headers.values(), url.password or "", *url.params.values()]
        words = {word for value in values for word in (value, *value.split())}
        return without(text, {word for word in words if len(word) >= _SECRET})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A tool as its server lists it."""

    name: str
    description: str
    schema: JsonDict
    annotations: JsonDict
    output: ResultSchema | None = field(default=None, repr=False)
    fault: str | None = None
    """The reason why it cannot be used; None if it can be used. Beside a reason, the other fields are empty."""

    @property
    def twice(self) -> bool:
        """True if two tools have this name."""
        return self.fault == TWICE


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a request: the `value` that the tool gave, or in `text` why there is none.

    With `failed` the server has said so. An `unsent` request has certainly not reached it; whether a `lost` one has, nobody knows. One
    that has `asked` something is over until a human has answered.
    """

    kind: Literal["completed", "failed", "unsent", "lost", "asked"]
    text: str = ""
    value: str | list[str | Image] = field(default="", repr=False)


def changed(tool: Listed, now: Listed | None) -> str | None:
    """The change that a server has made to a tool that it listed, in words; None if there is none."""
    if now is None:
        return "no longer has this tool"
    if now is tool:  # nothing was listed since
        return None
    if now.fault is not None:
        return "has made this tool one that cannot be used"
    if canonical(now.schema) != canonical(tool.schema):
        return "has changed the parameters of this tool"
    return None if now.description == tool.description else "has changed what it says of this tool"


Work = Coroutine[object, None, Answer | None]
_Result: TypeAlias = mcp_types.CallToolResult | mcp_types.InputRequiredResult | mcp_types.Result
_Send = Callable[..., Awaitable[_Result]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """The call in the middle of which a server may ask.

    `left` is set when it is over, `told` when the server has been answered all that it asked in it.
    """

    asking: Asking
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    left: anyio.Event = field(default_factory=anyio.Event)
    told: anyio.Event = field(default_factory=anyio.Event)
    ids: set[object] = field(default_factory=set)

    def answered(self, id: object) -> None:
        """Note that the answer to the request of this id goes out to the server."""
        self.ids.discard(id)
        if not self.ids:
            self.told.set()


class Connection:
    """A session with a server. Made by `open`; when it is lost, another one is opened in its place."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._ready: Future[None] = Future()
        self._over = asyncio.Event()
        self._lost = False
        self._ended_for: str | None = None
        self._heard_at = 0.0
        self._malformed: list[Malformed] = []
        self._working = 0
        self.forgotten: bool = False
        self._stale = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None
        self._client: Client | None = None
        self._opening = Under()
        self.listed: dict[str, Listed] = {}
        self._one = asyncio.Lock()
        self._open: _Open | None = None
        self._left: _Open | None = None
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
            why = made._ended_for or f"closed the connection{_quiet(where)}"
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

    def retire(self) -> None:
        """Close a session that was lost. Where the server has forgotten it, calls under way hear that for themselves first."""
        if not self.forgotten:
            self.close()

    def close(self, timeout: float = 10.0) -> None:
        """End the session, and with it a server that was started for it. Calls under way are lost."""
        self._lost = True
        if self._thread.is_alive() and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended by itself
                self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(timeout)

    def refresh(self, timeout: float) -> dict[str, Listed]:
        """The tools as the server lists them now. Raises `MCPError` (ours)."""
        under = Under()
        answer = self._wait(lambda: self._relist(under), under, lambda: False, timeout)
        if answer is not None:
            lost = "has forgotten the session" if self.forgotten else self._ended_for or "closed the connection"
            why = answer.text if answer.kind == "failed" else lost
            raise Unreachable(f"the MCP server {self._where.name!r} {why}", server=self._where.name)
        return self.listed

    def call(
        self,
        tool: Listed,
        args: dict[str, object],
        key: str,
        cancelled: Callable[[], bool],
        asking: Asking | None = None,
    ) -> Answer:
        """Have the server run a tool, as long as it is the one that was listed and nobody has cancelled the call.

        What it asks meanwhile is put to `asking`, which has the question where nobody has answered it yet.
        """
        under = Under()
        answer = self._wait(lambda: self._request(under, tool, args, key, asking), under, cancelled, None)
        assert answer is not None
        return answer

    # In the thread of whoever calls

    def _wait(
        self, work: Callable[[], Work], under: Under, cancelled: Callable[[], bool], timeout: float | None
    ) -> Answer | None:
        assert self._loop is not None
        followed = self._followed(work, under)
        try:
            try:
                future = asyncio.run_coroutine_threadsafe(followed, self._loop)
            except RuntimeError:  # the loop is closed
                followed.close()
                return self._ended(under)
            done = threading.Event()
            future.add_done_callback(lambda _: done.set())
            left = timeout
            since = self._loop.time()
            while not done.wait(_TICK):
                if cancelled():
                    self._leave(under)
                    return Answer("lost", f"The call was cancelled while the server worked on it. {MAY_HAVE}")
                if not self._thread.is_alive():
                    return self._ended(under)
                if self._is_silent(since):
                    self._leave(under)
                    self._end(f"has sent nothing for {self._where.silence:g} s")
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

    def _leave(self, under: Under) -> None:
        """Stop waiting for a request, and tell the server."""
        under.left = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(lambda: under.task and under.task.cancel())

    def _is_silent(self, since: float) -> bool:
        """Say whether a started server has written nothing for `silence` seconds since then. Over HTTP, the client looks at that."""
        assert self._loop is not None
        return bool(self._where.command) and self._loop.time() - max(since, self._heard_at) > self._where.silence

    def _end(self, why: str) -> None:
        """End the session because of what the server did. Its callers are told."""
        self._lost, self._ended_for = True, why
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._over.set)

    def _lost_answer(self) -> Answer:
        """The end of a request whose answer will not come."""
        why = (
            "The connection was lost before the server answered"
            if self._ended_for is None
            else f"The server {self._ended_for}"
        )
        return Answer("lost", f"{why}. {MAY_HAVE}")

    def _ended(self, under: Under) -> Answer:
        self._lost = True
        if under.sent and not under.refused:
            return self._lost_answer()
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
        if self._ended_for is not None:
            return self._ended_for
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

    async def _followed(self, work: Callable[[], Work], under: Under) -> Answer | None:
        """Do the work in a task that can be cancelled from the first moment on."""
        under.task = asyncio.current_task()
        if under.left:
            raise asyncio.CancelledError
        self._working += 1
        try:
            return await work()
        finally:
            self._working -= 1
            if self.forgotten and not self._working:
                self._over.set()

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
        UNDER.set(self._opening)
        async with AsyncExitStack() as stack:
            watcher = Watcher(
                over=self._ended_by_itself, said=self._said, come=self._come, methods=frozenset({LIST, CALL})
            )
            transport = watched(await self._transport(stack, errlog), watcher)
            asks = self._asked if self._where.asks else None
            client = _Client(transport, cache=None, message_handler=self._hear, elicitation_callback=asks)
            self._client = await stack.enter_async_context(client)
            # The package's own look at what a tool gives back has no limit of time, and would hold up the whole process.
            vars(self._client.session)["validate_tool_result"] = _unchecked
            await self._list()
            self._ready.set_result(None)
            await self._over.wait()

    async def _transport(self, stack: AsyncExitStack, errlog: TextIO) -> Transport:
        where = self._where
        if where.command:
            return started(
                where.command,
                env=dict(where.env),
                cwd=where.cwd,
                errlog=errlog,
                longest=where.longest,
                heard=self._note_heard,
                failed=lambda _: self._end(f"sent a line of more than {where.longest:,} bytes"),
            )
        timeout = httpx2.Timeout(30.0, read=where.silence)
        headers = dict(where.headers)
        http = await stack.enter_async_context(Http(longest=where.longest, headers=headers, timeout=timeout))
        return streamable_http_client(where.url, http_client=http, max_sse_event_size=where.longest)

    def _note_heard(self) -> None:
        assert self._loop is not None
        self._heard_at = self._loop.time()

    def _come(self, method: str, result: JsonDict) -> JsonDict:
        """The result of a request, as far as it can be read."""
        version = self._client.protocol_version if self._client is not None else ""
        if method == CALL:
            return readable(version, result)
        result, malformed = usable(version, result)
        self._malformed += malformed
        return result

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
        self._malformed = []
        found: dict[str, Listed] = {}
        cursor: str | None = None
        for _ in range(_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            for each in page.tools:
                if each.name in found:
                    found[each.name] = _unusable(each.name, TWICE)
                    continue
                hints = each.annotations.model_dump(by_alias=True, exclude_none=True) if each.annotations else {}
                about = each.description or each.title or ""
                found[each.name] = Listed(
                    name=each.name,
                    description=about,
                    schema=each.input_schema,
                    annotations=hints,
                    output=None if each.output_schema is None else ResultSchema(each.output_schema),
                )
            cursor = page.next_cursor
            if len(found) + len(self._malformed) > MOST_ENTRIES:
                break
            if cursor is None:
                for malformed in self._malformed:
                    found[malformed.name] = _unusable(malformed.name, malformed.why)
                self.listed = found
                return
        raise Unreachable("lists tools without an end", server=self._where.name)

    async def _relist(self, under: Under) -> Answer | None:
        UNDER.set(under)
        try:
            await self._list()
        except Exception as error:
            if await self._is_forgotten(under):
                return Answer("unsent", FORGOTTEN)
            return Answer("failed", self._why(error))
        return None

    async def _is_forgotten(self, under: Under) -> bool:
        """Whether the server refused the request because it does not know the session, and so has not taken it up.

        The protocol has 404 say so, and there are servers that say 400, which may mean other things: then one is told from the other by
        a request that nothing is wrong with.
        """
        if not under.session or under.status not in (400, 404):
            return False
        if under.status == 400:
            assert self._client is not None
            UNDER.set(probe := Under())
            try:
                with anyio.fail_after(_PROBE):
                    await self._client.session.send_ping()
            except Exception:
                if probe.status not in (400, 404):
                    return False
            else:
                return False
        self._lost = self.forgotten = True
        return True

    async def _request(
        self, under: Under, tool: Listed, args: dict[str, object], key: str, asking: Asking | None
    ) -> Answer:
        assert self._client is not None
        UNDER.set(under)
        try:
            if self._stale:
                await self._list()
            now = self.listed.get(tool.name)
            if change := changed(tool, now):
                return Answer("failed", f"The server {change} since it was listed, so nothing was run.")
            result = await self._result(
                partial(self._client.session.call_tool, tool.name, args, meta={KEY: key}), asking
            )
            if tool.output is not None and not result.is_error:
                await asyncio.to_thread(tool.output.check, result.structured_content)
        except MCPError as error:
            if await self._is_forgotten(under):
                return Answer("unsent", FORGOTTEN)
            return self._refused(error, under)
        except Interrupt:
            return Answer("asked", "A human is asked.")
        except Unaskable as error:
            return Answer("failed", f"The server asked for input, and is given none: {error}. {MAY_HAVE}")
        except Exception as error:
            if not under.sent:
                return Answer("failed", f"The server could not be asked ({type(error).__name__}). Nothing was run.")
            told = "The tool ran, but its result is not what its server says that it is"
            return Answer("failed", f"{told} ({type(error).__name__}). Its effect may have happened.")
        if result.is_error:
            return Answer("failed", self._where.scrubbed(failure_of(result)))
        return Answer("completed", value=value_of(result) if self._where.images else text_of(result))

    async def _result(self, send: _Send, asking: Asking | None) -> mcp_types.CallToolResult:
        """The result of a tool, once all questions of its server are answered. Raises `Interrupt` and `Unaskable`."""
        given, state = (None, None) if asking is None else asking.resumed()
        kept = given is not None
        for _ in range(MOST):
            told = partial(send, input_responses=given or None, request_state=state, allow_input_required=True)
            try:
                result = await (told() if asking is None else self._heard(told, asking))
            except MCPError as error:
                if asking is None or not kept or not _lost_state(error):
                    raise
                asking.begin()  # the server was started again, and does not know its own state any more
                given = state = None
                kept = False
                continue
            if isinstance(result, mcp_types.CallToolResult):
                return result
            assert isinstance(result, mcp_types.InputRequiredResult)
            if result.input_requests and asking is None:
                raise Unaskable("that is not offered to it")
            if not result.input_requests:  # it wants to be asked again later
                await anyio.sleep(_TICK)
            given = asking.answers(result) if asking is not None else {}
            state, kept = result.request_state, False
        raise Unaskable(f"it did so more than {MOST} times")

    async def _heard(self, send: _Send, asking: Asking) -> _Result | None:
        """The answer to a request in the middle of which the server may ask. Raises `Interrupt` and `Unaskable`.

        Where it does so by requests of its own, nothing in these says for which call: so there is one call at a time.
        """
        assert self._client is not None
        if self._client.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return await send()
        result = None
        async with self._one:
            self._open = opened = _Open(asking=asking)
            try:
                with opened.scope:
                    result = await send()
            finally:
                self._open = None
                opened.left.set()
            if opened.ids:  # a server that reads one line at a time would take the next call for the answer
                self._left = opened
                with anyio.move_on_after(_PROBE):
                    await opened.told.wait()
        asking.check()  # it has asked, though it did not wait for the answer
        return result

    async def _asked(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        """Answer what the server asks in a request of its own, or have the call wait until a human has."""
        opened, why = self._open, "input is asked for in the middle of a call, and there is none"
        if opened is not None:
            opened.ids.add(context.request_id)
            try:
                return opened.asking.answer(params)
            except Unaskable as error:
                why = str(error)
                if opened.asking.exhausted:
                    opened.scope.cancel()
            except Interrupt:
                why = "a human is asked, and the call is sent again with the answer"
                opened.scope.cancel()
                await opened.left.wait()  # that the call is over is what the server hears first
        return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message=why)

    def _said(self, message: mcp_types.JSONRPCMessage) -> None:
        """Note that a message has gone out."""
        if isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
            for opened in filter(None, (self._open, self._left)):
                opened.answered(message.id)

    def _refused(self, error: MCPError, under: Under) -> Answer:
        """The end of a request that was answered with an error."""
        if not under.sent or (under.refused and not under.reached):
            return self._ended(under)
        if error.code == mcp_types.CONNECTION_CLOSED:
            return self._lost_answer()
        unread = error.code in (mcp_types.REQUEST_TIMEOUT, mcp_types.PARSE_ERROR)
        if unread or under.status == 202 or under.status >= 500:
            http = f" (HTTP {under.status})" if under.status else ""
            return Answer("lost", f"The server gave no answer that could be read{http}. {MAY_HAVE}")
        if under.status >= 400 and error.code == mcp_types.INTERNAL_ERROR:
            return Answer("failed", f"The server refused the request with HTTP {under.status}.")
        return Answer("failed", self._where.scrubbed(f"The server answered with error {error.code}: {error.message}"))


def _unusable(name: str, why: str) -> Listed:
    return Listed(name=name, description="", schema={}, annotations={}, fault=why)


class _Client(Client):
    """A client that says what it can show: forms, and no addresses."""

    async def _build_session(self, exit_stack: AsyncExitStack) -> ClientSession:
        session = await super()._build_session(exit_stack)
        if self.elicitation_callback is not None:
            can = session._build_capabilities
            forms = mcp_types.ElicitationCapability(form=mcp_types.FormElicitationCapability())
            vars(session)["_build_capabilities"] = lambda version: can(version).model_copy(
                update={"elicitation": forms}
            )
        return session


def _lost_state(error: MCPError) -> bool:
    """Whether a server refuses the state that it left with a question, before it does anything with the call."""
    data = error.data if error.code == mcp_types.INVALID_PARAMS else None
    return isinstance(data, dict) and data.get("reason") == "invalid_request_state"


async def _unchecked(name: str, result: mcp_types.CallToolResult) -> None:
    """Nothing: the result is checked here, within a budget."""


def _quiet(where: Where) -> str:
    """A hint how to see the standard error of a server that was started; empty where there is none to see."""
    hint = "; give errlog=sys.stderr to see what it writes to its standard error"
    return hint if where.command and where.errlog is None else ""

"""Tools of MCP servers, over stdio and streamable HTTP: gated, validated and recorded as any other tool is."""

from __future__ import annotations

import atexit
import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final, Self, TextIO, TypeAlias, TypeVar

from phronomy.concurrency.workers import ain_thread
from phronomy.errors import ConfigurationError, MCPError, ToolDefinitionError
from phronomy.foundation import checks
from phronomy.foundation.json_text import JsonDict, JsonError, canonical, clean, parse, plain_object
from phronomy.foundation.quoting import quoted_name, without
from phronomy.foundation.spelling import Given
from phronomy.records.calls import CallResult
from phronomy.records.decisions import ToolIdentity
from phronomy.records.scopes import NEEDED, scopes_in
from phronomy.stops.interrupts import asker_here
from phronomy.tools.approval import Approval
from phronomy.tools.arguments import Arguments
from phronomy.tools.context import OutcomeUnknown, ToolContext
from phronomy.tools.images import Image
from phronomy.tools.json_schema.arguments import SchemaArguments
from phronomy.tools.tool import Requirement, Tool

if TYPE_CHECKING:
    from phronomy.mcp.elicitation import Asking
    from phronomy.mcp.session import Connection, Listed

Asked: TypeAlias = Requirement | Mapping[str, Requirement]
"""When a human is asked: always, never, when a predicate or an `Approval` says so, or by a mapping from names of tools to these.

In a mapping, `"*"` stands for all tools that it does not name.
"""

T = TypeVar("T")

_REST: Final = "*"
_log = logging.getLogger("phronomy")
_ATTEMPTS: Final = 2


class MCPServer(Given):
    """A server of the Model Context Protocol (MCP). Agents can use its tools: `Agent(tools=[*server.tools()])`.

    Give a `command` or a `url`. The `command` is started in `cwd` with `env` and a few harmless variables of this
    process, and is reached over its standard input and output. The server at a `url` speaks streamable HTTP, and gets
    `headers` with each request. `name` is a name that you choose. It is part of the identity of every tool, so an
    approval for a tool of one server does not count for another.

    **Every call needs approval** unless `requires_approval` says otherwise: False, a predicate, an `Approval`, or a mapping from names
    of tools to these, with `"*"` for the other tools. A tool that the mapping does not name needs approval. The
    server's own hints, such as that a tool only reads, are in `tool.annotations`, and never remove an approval.

    - `tools`: the names of the tools to offer (None: all). `exclude`: the names of tools to leave out. In all options,
      use the names that the server uses; a name that it does not have is refused.
    - `prefix`: a text that is put before each name.
    - `idempotent`: the tools that may be called again if nobody knows whether they took effect. For all others, a human
      is asked.
    - `return_direct`: the tools whose result is the answer of the run, without another model call.
    - `redact`: a mapping from tools to parameters whose values stay out of logs and errors. `risk`: a text for all
      tools, or a mapping from tools to texts.
    - `scopes`: the scopes that a run needs for the tools, or a mapping from tools to scopes. In a mapping, the key
      `"*"` is for all other tools; without it, those are left out.
    - `timeout`: the seconds that a call may take. `connect_timeout`: the seconds for reaching the server and listing
      its tools. A server counts as lost if it sends nothing for five minutes during a call, or for `timeout` seconds if
      that is longer.
    - `max_message_size`: the bytes that one message of the server may have (32 MB). At a longer one the call is lost.
    - `images`: whether the model sees images in results. If False, it reads their types and sizes.
    - `errlog`: a file with a descriptor, for the standard error of the started server. By default it is thrown away.
    - `elicitation`: whether the server may ask a human in the middle of a call. The run is then suspended with a
      question, as by `interrupt`. Since version 2026-07-28 of the protocol, the server ends the call to ask, and
      continues after the answer. Before that version, the server gets the call again from its start, and repeats all
      that it did before it asked.

    The connection is made when it is first needed, in a daemon thread, and again after it is lost. Use the object as a
    context manager, sync or async, or call `close`. Threads, tasks and agents can share it. Requests of the server for
    models and roots are refused, and its requests for input are refused without `elicitation`. Raises
    `ConfigurationError`, also if the package is missing (`pip install 'phronomy[mcp]'`).
    """

    name: str

    def __init__(
        self,
        name: str,
        *,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        requires_approval: Asked = True,
        tools: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        prefix: str = "",
        idempotent: Iterable[str] = (),
        return_direct: Iterable[str] = (),
        redact: Mapping[str, Iterable[str]] | None = None,
        risk: str | Mapping[str, str] | None = None,
        scopes: Iterable[str] | Mapping[str, Iterable[str]] = (),
        elicitation: bool = False,
        timeout: float | None = None,
        connect_timeout: float = 30.0,
        max_message_size: int = 32_000_000,
        errlog: TextIO | None = None,
        images: bool = True,
    ) -> None:
        if not isinstance(name, str) or not name or clean(name) != name:
            raise ConfigurationError(f"an MCP server is named by a text that is not empty, not {quoted_name(name)}")
        self.name = name
        _check_place(name, command, env, cwd, url, headers)
        _check_limits(name, timeout, connect_timeout, max_message_size)
        for option, value, kind in (
            ("prefix", prefix, str),
            ("images", images, bool),
            ("elicitation", elicitation, bool),
        ):
            if not isinstance(value, kind):
                needed = "a text" if kind is str else "exactly True or exactly False"
                raise ConfigurationError(f"MCP server {name!r}: {option} is {needed}, not {type(value).__name__}")
        _check_gates(name, requires_approval)
        self._requires_approval: Mapping[str, Requirement] = (
            requires_approval if isinstance(requires_approval, Mapping) else {_REST: requires_approval}
        )
        self._risk: Mapping[str, str | None] = risk if isinstance(risk, Mapping) else {_REST: risk}
        self._scopes: dict[str, frozenset[str] | None] = _checked_scopes(name, scopes)
        self._prefix = prefix
        self._tools = None if tools is None else _names(name, "tools", tools)
        self._exclude = _names(name, "exclude", exclude)
        self._idempotent = _names(name, "idempotent", idempotent)
        self._return_direct = _names(name, "return_direct", return_direct)
        if redact is not None and not isinstance(redact, Mapping):
            raise ConfigurationError(f"MCP server {name!r}: redact maps names of tools to names of parameters")
        self._redact = {each: _names(name, "redact", parameters) for each, parameters in (redact or {}).items()}
        self._timeout, self._connect_timeout = timeout, connect_timeout
        try:
            from phronomy.mcp import session  # noqa: PLC0415  # a process without MCP servers needs no package for them
            from phronomy.mcp.elicitation import Asking  # noqa: PLC0415
        except ImportError:
            raise ConfigurationError(
                f"MCP server {name!r} needs the mcp package: pip install 'phronomy[mcp]'"
            ) from None
        self._open, self._new_asking = session.Connection.open, Asking
        self._where = session.Where(
            name=name,
            command=tuple(command or ()),
            env=dict(env or {}),
            cwd=None if cwd is None else fspath(cwd),
            url=url or "",
            headers=dict(headers or {}),
            errlog=errlog,
            silence=max(300.0, (timeout or 0) + 10),
            longest=max_message_size,
            images=images,
            asks=elicitation,
        )
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<MCPServer {self.name!r}, {'stdio' if self._where.command else 'http'}>"

    @property
    def endpoint(self) -> str:
        """Where the tools run, as requests show it.

        It is the origin of the URL or the name of the program, and a hash of the rest: the path and the query, or the
        arguments and the working directory. The rest may be secret, so only its hash is shown.
        """
        return self._where.endpoint

    # The connection

    @property
    def connected(self) -> bool:
        """Whether the server is connected now."""
        connection = self._connection
        return connection is not None and connection.alive

    def connect(self) -> None:
        """Start or reach the server, if it is not connected. Raises `MCPError`."""
        with self._lock:
            self._closed = False
        self._connected()

    async def aconnect(self) -> None:
        """The async twin of `connect`."""
        await ain_thread(self.connect, None)

    def close(self) -> None:
        """Close the connection, and end the server if it was started here.

        Calls that are under way are lost. Later calls fail until you call `connect`.
        """
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        atexit.unregister(self.close)
        if connection is not None:
            connection.close()

    async def aclose(self) -> None:
        """The async twin of `close`."""
        await ain_thread(self.close, None)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self.aconnect()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    def _connected(self) -> Connection:
        """The session; a new one where it was lost. Raises `MCPError`."""
        with self._lock:
            if self._closed:
                raise MCPError(f"the MCP server {self.name!r} is closed; connect() it again", server=self.name)
            if self._connection is None or not self._connection.alive:
                lost, self._connection = self._connection, None
                if lost is not None:
                    lost.retire()
                self._connection = self._open(self._where, self._connect_timeout)
                atexit.unregister(self.close)
                atexit.register(self.close)
            return self._connection

    # The tools

    def tools(self) -> list[MCPTool]:
        """List the tools of the server, as tools for an agent.

        Raises `MCPError` if the server cannot be reached, `ConfigurationError` for names that the server does not have
        or that two tools would share, and `ToolDefinitionError` for a tool whose schema cannot be used: name it in
        `exclude`. A tool that is not as the protocol has it is left out, and logged as an error; one that `tools` names
        is a `ToolDefinitionError`.
        """
        listed = self._listed()
        self._refuse_unknown(listed)
        found: dict[str, MCPTool] = {}
        for each in listed.values():
            if each.name in self._exclude or (self._tools is not None and each.name not in self._tools):
                continue
            if self._scopes_of(each.name) is None:  # nobody has said who may have it
                continue
            if each.fault is not None:
                self._leave_out(each)
                continue
            made = MCPTool(self, each)
            if made.name in found:
                both = f"{found[made.name].remote_name!r} and {each.name!r}"
                raise ConfigurationError(
                    f"MCP server {self.name!r}: its tools {both} would both be named {made.name!r}; exclude one"
                )
            found[made.name] = made
        return list(found.values())

    def _leave_out(self, listed: Listed) -> None:
        """Leave out a tool that cannot be used, unless somebody has asked for it. Raises `MCPError`, `ToolDefinitionError`."""
        name = quoted_name(listed.name)
        if listed.twice:  # nobody knows which of them a call would be of
            raise MCPError(
                f"the MCP server {self.name!r} lists two tools named {name}: name it in exclude to do without",
                server=self.name,
            )
        if self._tools is not None:
            raise ToolDefinitionError(f"tool {name} of MCP server {self.name!r} cannot be used: {listed.fault}")
        _log.error(
            "tool %s of MCP server %r cannot be used, and is left out: %s. Name it in exclude to do without this message",
            name,
            self.name,
            listed.fault,
        )

    async def atools(self) -> list[MCPTool]:
        """The async twin of `tools`."""
        return await ain_thread(self.tools, None)

    def _listed(self) -> dict[str, Listed]:
        """The tools that the server lists now. A server that does not know the session any more is asked again in a new one."""
        connection = self._connected()
        try:
            return connection.refresh(self._connect_timeout)
        except MCPError:
            if not connection.forgotten:
                raise
        return self._connected().refresh(self._connect_timeout)

    def _scopes_of(self, name: str) -> frozenset[str] | None:
        """The scopes that a tool of this name needs; None if nothing is said of it."""
        return _of(self._scopes, name, None)

    def _refuse_unknown(self, listed: Mapping[str, Listed]) -> None:
        """Refuse names that the server does not have: one that is misspelt would gate, or leave out, nothing."""
        named: dict[str, Iterable[str]] = {
            "requires_approval": self._requires_approval.keys() - {_REST},
            "tools": self._tools or (),
            "exclude": self._exclude,
            "idempotent": self._idempotent,
            "return_direct": self._return_direct,
            "redact": self._redact.keys(),
            "risk": self._risk.keys() - {_REST},
            "scopes": self._scopes.keys() - {_REST},
        }
        for option, names in named.items():
            if unknown := sorted(set(names) - listed.keys()):
                known = ", ".join(sorted(listed)) or "none"
                raise ConfigurationError(
                    f"MCP server {self.name!r}: {option} names {', '.join(map(quoted_name, unknown))}, but its tools are: {known}"
                )

    def _call(
        self, tool: MCPTool, values: Mapping[str, object], context: ToolContext[object]
    ) -> str | list[str | Image] | CallResult:
        """The result of a call, or how it failed where nothing is in doubt. Raises `MCPError` where something is."""
        told, asking = "", self._asking()
        for _ in range(_ATTEMPTS):  # a second one only where the first has certainly reached nobody
            try:
                connection = self._connected()
            except MCPError as error:
                return tool.failure(f"{error}. Nothing was run.", values)
            answer = connection.call(
                tool._listed, dict(values), context.idempotency_key, lambda: context.cancelled, asking
            )
            if answer.kind == "completed":
                return answer.value
            if answer.kind == "asked" and asking is not None and asking.unanswered is not None:
                raise asking.unanswered
            if answer.kind == "failed":
                return tool.failure(answer.text, values)
            if answer.kind == "lost":
                raise OutcomeUnknown(f"MCP server {self.name!r}: {answer.text}")
            told = answer.text
        return tool.failure(f"MCP server {self.name!r}: {told}", values)

    def _asking(self) -> Asking | None:
        """The asker for questions of the server during the call; None if nobody is asked."""
        asker = asker_here() if self._where.asks else None
        return None if asker is None else self._new_asking(self.name, asker, self._where.scrubbed)


class MCPTool(Tool):
    """A tool of an MCP server. `MCPServer.tools` makes it.

    `remote_name` is the server's name of the tool. `annotations` are the hints of the server, such as `readOnlyHint`
    and `destructiveHint`. Use them only for display.
    """

    def __init__(self, server: MCPServer, listed: Listed) -> None:
        self.server = server
        self._listed = listed
        self.remote_name: str = listed.name
        self._hints = canonical(listed.annotations)
        self.name: str = re.sub(r"[^a-zA-Z0-9_-]", "_", server._prefix + listed.name)[:64]
        self.description: str = clean(listed.description)
        self.source: str = f"mcp:{server.name}"
        self.requires_approval: Requirement = _of(server._requires_approval, listed.name, True)
        self.risk: str | None = _of(server._risk, listed.name, None)
        self.scopes: frozenset[str] = server._scopes_of(listed.name) or frozenset()
        self.idempotent: bool = listed.name in server._idempotent
        self.return_direct: bool = listed.name in server._return_direct
        self.retries = 2 if self.idempotent else 0
        self.timeout: float | None = server._timeout
        self.redact: frozenset[str] = server._redact.get(listed.name, frozenset())
        super().__init__()

    def identity(self, path: str = "") -> ToolIdentity:
        """The identity of the tool, for an agent at `path` in the run.

        It includes the endpoint of the server, and the hash of the description.
        """
        return self._there.evolve(path=path) if path else self._there

    @cached_property
    def _there(self) -> ToolIdentity:
        """The identity where it is no run's inside; worked out once, since it is asked for at each step of a call."""
        told = hashlib.sha256(self.description.encode()).hexdigest()
        return super().identity().evolve(endpoint=self.server.endpoint, description_hash=told)

    @property
    def annotations(self) -> JsonDict:
        """The hints of the server about the tool, as a fresh copy. Nobody has checked them."""
        return plain_object(self._hints)

    def call(self, values: Mapping[str, object], context: ToolContext[object]) -> object:
        """Call the tool on the server, and wait for the result.

        Raises `OutcomeUnknown` if nobody knows whether the tool ran.
        """
        return self.server._call(self, values, context)

    def render(self, value: object) -> CallResult:
        """Turn the result into the form that the model reads."""
        return value if isinstance(value, CallResult) else super().render(value)

    def with_answer(self, result: CallResult, value: object, *, exact: bool) -> CallResult:
        """The result with the whole value in it, as the answer of the run. The server gives JSON as text."""
        if exact and isinstance(value, str):
            with suppress(JsonError):
                value = parse(value)
        return super().with_answer(result, value, exact=exact)

    def failure(self, text: str, values: Mapping[str, object]) -> CallResult:
        """A failed result with this text, without the values of redacted parameters."""
        return CallResult(kind="failed", content=self._cut(clean(without(text, self._secrets(values)))))

    def _target(self) -> Callable[..., object]:
        return self.call

    def _documentation(self, body: Callable[..., object]) -> tuple[str, dict[str, str]]:
        return "", {}

    def _signature(self, body: Callable[..., object], told: dict[str, str]) -> tuple[Arguments, str | None]:
        return SchemaArguments(f"{self.name} of MCP server {self.server.name!r}", self._listed.schema), None


def _of(option: Mapping[str, T], name: str, default: T) -> T:
    """The value of an option for the tool of this name."""
    return option.get(name, option.get(_REST, default))


def _names(server: str, option: str, names: object) -> frozenset[str]:
    if (found := checks.texts_in(names)) is None:
        raise ConfigurationError(f"MCP server {server!r}: {option} is a list of names")
    return frozenset(found)


def _check_limits(server: str, timeout: object, connect_timeout: object, max_message_size: object) -> None:
    for option, value in {"timeout": timeout, "connect_timeout": connect_timeout}.items():
        if not checks.is_timeout(value) or (value is None and option == "connect_timeout"):
            raise ConfigurationError(f"MCP server {server!r}: {option} is a number of seconds above 0")
    if not checks.is_count(max_message_size) or max_message_size == 0:
        raise ConfigurationError(f"MCP server {server!r}: max_message_size is a number of bytes above 0")


def _check_gates(server: str, asked: object) -> None:
    for each in asked.values() if isinstance(asked, Mapping) else (asked,):
        if each is not True and each is not False and not callable(each) and not isinstance(each, Approval):
            raise ConfigurationError(
                f"MCP server {server!r}: requires_approval is exactly True, exactly False, a function of the arguments,"
                " an Approval, or a mapping from names of tools to these"
            )


def _checked_scopes(server: str, given: object) -> dict[str, frozenset[str] | None]:
    """The scopes of each tool. Raises `ConfigurationError`."""
    found = {
        each: scopes_in(scopes) for each, scopes in (given if isinstance(given, Mapping) else {_REST: given}).items()
    }
    if None in found.values() or not all(isinstance(each, str) for each in found):
        raise ConfigurationError(
            f"MCP server {server!r}: scopes is {NEEDED}, or a mapping from names of tools to such lists"
        )
    return found


def _check_place(name: str, command: object, env: object, cwd: object, url: object, headers: object) -> None:
    """Refuse what names no server, without naming what may be secret."""
    if (command is None) == (url is None):
        raise ConfigurationError(f"MCP server {name!r} needs a command to start or a url to reach, one of the two")
    foreign = {"headers": headers} if url is None else {"env": env, "cwd": cwd}
    if wrong := [option for option, value in foreign.items() if value is not None]:
        raise ConfigurationError(
            f"MCP server {name!r}: {', '.join(wrong)} is for servers that are {'reached' if url is None else 'started'}"
        )
    if url is not None and not (isinstance(url, str) and re.match(r"https?://[^/]", url)):
        raise ConfigurationError(f"MCP server {name!r}: url begins with http:// or https://")
    if command is not None and not checks.texts_in(command):
        raise ConfigurationError(
            f"MCP server {name!r}: command is a list of texts, as in command=['npx', 'server'], and no shell reads it"
        )
    for option, values in {"env": env, "headers": headers}.items():
        if values is not None and not (
            isinstance(values, Mapping) and all(isinstance(each, str) for pair in values.items() for each in pair)
        ):
            raise ConfigurationError(f"MCP server {name!r}: {option} maps texts to texts")

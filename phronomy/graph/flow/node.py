"""A node as the core runs it: a tool whose arguments are the state that a human is shown, where one is, and what a `Send` brings."""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from phronomy.concurrency.aclosing import aclosing
from phronomy.concurrency.pieces import Piecewise
from phronomy.errors import GraphError, InvalidUpdate
from phronomy.foundation import spelling
from phronomy.foundation.checks import is_async, is_series
from phronomy.foundation.json_text import MAX_BYTES, JsonText, canonical, object_of
from phronomy.foundation.quoting import quoted_name
from phronomy.graph.flow.routes import close
from phronomy.graph.signals import Abort, Continue, Pause, Replan
from phronomy.graph.state.gathering import Gathering, streams_of
from phronomy.graph.state.joins import channels_in
from phronomy.graph.state.streams import is_generator
from phronomy.stops.interrupt_points import LeanTool
from phronomy.tools.approval import Approval, TitleOfArguments
from phronomy.tools.context import InvalidArguments, ToolContext
from phronomy.tools.parameters import takes_context
from phronomy.tools.tool import Tool

if TYPE_CHECKING:
    from phronomy.graph.state.state import StateSchema

_SIGNALS: Final[Mapping[type[Continue | Pause | Abort | Replan], str]] = {
    Continue: "continue",
    Pause: "pause",
    Abort: "abort",
    Replan: "replan",
}


class _Lean(LeanTool, Piecewise):
    """A node, as a tool: its arguments are the state that a human was shown, or what a `Send` brings, and most get neither."""

    schema: StateSchema
    _only: str | None = None
    _shown: frozenset[str] = frozenset()

    def read(self, arguments: str) -> JsonText:
        """The text of the arguments that are given. A human's edit of them is checked as an update is. Raises `InvalidArguments`."""
        text = super().read(arguments)
        if text == "{}" and self.gate == "never":
            return text  # most nodes are given nothing
        values = json.loads(text)
        if self._only is not None and values.keys() - {self._only}:
            raise InvalidArguments(f"Node {self.name} was to run with its {self._only!r}, and with nothing else.")
        if "state" in values:
            values["state"] = self._whole(values["state"])
        elif "arg" not in values and self.gate != "never":
            told = (
                "what was sent to it: give it as 'arg'"
                if self._only == "arg"
                else "the state that was approved: give it as 'state'"
            )
            raise InvalidArguments(f"Node {self.name} is given {told}.")
        return canonical(values)

    def given_again(self, args: Mapping[str, Any]) -> Self:
        """As `Tool.given_again`: an edit leaves nothing of a state out, and is no state if the node was to run with something else."""
        view = copy.copy(self)
        view._only = "arg" if "arg" in args else "state"
        state = args.get("state")
        view._shown = frozenset(state) if isinstance(state, dict) else frozenset()
        return view

    def _whole(self, state: object) -> object:
        channels = self.schema.channels.values()
        there = state if isinstance(state, dict) else {}
        # The editor of a state leaves nothing out that they were shown. A state that was shown before a channel came is still a state.
        known = [
            each.name for each in channels if each.required or (each.start is not None and each.name in self._shown)
        ]
        if missing := [name for name in known if name not in there]:
            raise InvalidArguments(f"Node {self.name} is given a whole state: {', '.join(missing)} is not in it.")
        try:
            # A channel that came since is filled in as a default of a tool is: what runs is what is shown.
            return json.loads(self.schema.whole(self.schema.accept(canonical(state))))
        except InvalidUpdate as error:
            raise InvalidArguments(str(error)) from None

    def check_response(self, content: object) -> None:
        """Checks that a human's response for a node is an update of the state."""
        try:
            self.schema.update(self.name, content)
        except InvalidUpdate as error:
            raise InvalidArguments(str(error)) from None

    def bind(self, args_text: str) -> dict[str, object]:
        """The arguments, those that say nothing left to their defaults; what a `Send` brings, even None, in a dict of its own."""
        values = super().bind(args_text)
        if "arg" in values:
            values["arg"] = {"arg": values["arg"]}
        return values


class Node(_Lean):
    """A function as a node. Its result is text: the update, and the signal, if it gave one.

    `streams` are the channels of one that yields its update in pieces, each with the class that these are merged by.
    """

    max_result_size = MAX_BYTES
    may_be_left: bool = True
    on_failure: Literal["model", "human", "stop"] = "stop"
    source = "node"

    # Named here, so that nobody asks at each node whether one of them is a misspelt option.
    function: Callable[..., Any]
    schema: StateSchema
    on_rejection: str | None
    destinations: tuple[str, ...]
    streams: Mapping[str, type[object]]
    gives_pieces: bool

    def __init__(
        self, name: str, function: Callable[..., Any], schema: StateSchema, options: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.function = function
        self.schema = schema
        self.on_rejection = options.get("on_rejection")
        self.destinations = tuple(options.get("destinations", ()))
        gives = is_generator(function)
        self._awaited = gives == "async" or is_async(function)
        self._takes_context = check_function(f"node {name!r}", function, may_take_context=True, may_yield=True)
        self.streams = streams_of(name, options.get("streams"), schema, yields=gives is not None)
        self.gives_pieces = bool(self.streams)
        _set_options(self, options, schema)
        self.may_be_left = not options.get("calls")
        if "retries" not in options:
            self.retries = 2 if self.idempotent else 0
        super().__init__()

    def _target(self) -> Callable[..., object]:
        return self._arun if self._awaited else self._run

    def _documentation(self, body: Callable[..., object]) -> tuple[str, dict[str, str]]:
        return inspect.getdoc(self.function) or "", {}

    def _run(self, ctx: ToolContext[object], state: Mapping[str, object] | None = None, arg: object = None) -> str:
        value = self.function(*self._seen(ctx, state, arg))
        return self.write_result(self._drained(value, ctx) if self.streams else value)

    async def _arun(
        self, ctx: ToolContext[object], state: Mapping[str, object] | None = None, arg: object = None
    ) -> str:
        value = self.function(*self._seen(ctx, state, arg))
        return self.write_result(await (self._adrained(value, ctx) if self.streams else value))

    def _drained(self, pieces: Generator[object, None, object], ctx: ToolContext[object]) -> object:
        """Merges all pieces into one update. A generator whose call was cancelled is closed at its next piece."""
        gathering = Gathering(self.name, self.schema, self.streams)
        with closing(pieces):
            while True:
                try:
                    piece = next(pieces)
                except StopIteration as end:
                    return gathering.whole(end.value)
                gathering.take(piece)
                ctx.raise_if_cancelled()

    async def _adrained(self, pieces: AsyncGenerator[object], ctx: ToolContext[object]) -> object:
        """As `_drained`."""
        gathering = Gathering(self.name, self.schema, self.streams)
        async with aclosing(pieces):
            async for piece in pieces:
                gathering.take(piece)
                ctx.raise_if_cancelled()
        return gathering.whole()

    def _seen(self, ctx: ToolContext[object], state: Mapping[str, object] | None, arg: Any) -> tuple[object, ...]:
        """Gives the function's argument: that of a `Send`, else the state that a human saw, else the state of the wave."""
        shown = channels_in(ctx._state) if state is None else canonical(state)
        seen = self.schema.read(shown) if arg is None else arg["arg"]
        return (seen, ctx) if self._takes_context else (seen,)

    def _targets(self, to: object) -> list[str] | None:
        named = [to] if isinstance(to, str) else to
        if named is None or (
            isinstance(named, (list, tuple)) and named and all(isinstance(each, str) for each in named)
        ):
            return None if named is None else list(named)
        raise InvalidUpdate(f"node {self.name!r} goes on at {quoted_name(to)}: name a node, or several", node=self.name)

    def _reason(self, kind: type[object], reason: object) -> str | None:
        if isinstance(reason, (str, NoneType)):
            return reason
        raise InvalidUpdate(
            f"node {self.name!r} gave {kind.__name__} a reason that is no text but {type(reason).__name__}",
            node=self.name,
        )

    def write_result(self, value: object) -> str:
        """The text of what the function returned. Raises `InvalidUpdate` for what is no update."""
        if hasattr(type(value), "__await__"):
            close(value)
            raise InvalidUpdate(
                f"node {self.name!r} gave something to await, as a plain function: declare it with 'async def'",
                node=self.name,
            )
        for kind, signal in _SIGNALS.items():
            if isinstance(value, kind):
                told: dict[str, object] = {"update": self.schema.update(self.name, value.update), "signal": signal}
                if isinstance(value, (Pause, Abort)):
                    told["reason"] = self._reason(kind, value.reason)
                if isinstance(value, Replan):
                    told["to"] = self._targets(value.to)
                break
        else:
            told = {"update": self.schema.update(self.name, value)}
        parts = [
            f"{json.dumps(key)}:{part if isinstance(part, JsonText) else canonical(part)}" for key, part in told.items()
        ]
        return f"{{{','.join(parts)}}}"


class Inside(_Lean):
    """A node that is a run of its own: an agent, or another graph."""

    on_failure: Literal["model", "human", "stop"] = "stop"
    source = "node"
    idempotent = True
    keeps_input = False
    """Whether its result has what the run was asked as well, as its guardrails left it: `output` is given both."""

    def __init__(self, name: str, inner: Any, schema: StateSchema, options: Mapping[str, Any]) -> None:
        self.name = name
        self.inner = inner
        self.schema = schema
        self.into: Callable[[Any], object] | None = options.get("input")
        self.out: str | Callable[[Any], object] | None = options.get("output")
        self.history: Callable[[Any], object] | None = options.get("messages")
        self.on_rejection: str | None = options.get("on_rejection")
        self.destinations: tuple[str, ...] = ()
        self.gives_pieces = True
        _set_options(self, options, schema)
        super().__init__()

    def execute(self, state: Mapping[str, object] | None = None, arg: object = None) -> str:
        """It is driven as a run, and never called."""
        raise AssertionError("the run inside a node is driven; it is never called")


def async_node(nodes: Mapping[str, Node | Inside]) -> str | None:
    """The first node that a sync call cannot run, for an error; None if there is none. Those inside a node say it themselves."""
    for name, node in nodes.items():
        asks = node.predicate_is_async or (node.review is not None and node.review.is_async)
        if asks or any(each.is_async for each in (node, *node.fallback)):
            return f"node {name!r}"
    return None


_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OF_FUNCTIONS: Final = frozenset(
    {"idempotent", "retry_on", "on_failure", "fallback", "destinations", "streams", "calls"}
)
"""Options of a node that is a function alone."""

_OF_ANY: Final = frozenset(
    {"approval_timeout", "on_expiry", "risk", "requires_approval", "retries", "retry_wait", "timeout"}
)
_CORE: Final = (_OF_FUNCTIONS - {"destinations", "streams"}) | _OF_ANY
"""Options of a node that are the core's."""


def _set_options(node: Tool, options: Mapping[str, object], schema: StateSchema) -> None:
    for option in _CORE & options.keys():
        value = options[option]
        setattr(node, option, _shown_state(value, node.name, schema) if option == "requires_approval" else value)


def is_name(name: str) -> bool:
    """Whether a node may have this name."""
    return _NAME.fullmatch(name) is not None


def fallback_name(node: str, place: int, function: object) -> str:
    """Gives the name of a fallback function: its own, if a node may have that name."""
    name = str(getattr(function, "__name__", ""))
    return name if is_name(name) else f"{node[:48]}_fallback{place or ''}"


def check_function(what: str, function: object, *, may_take_context: bool = False, may_yield: bool = False) -> bool:
    """Refuse what is no function of the state; whether it takes a `ToolContext` as well. Raises `GraphError`."""
    if not callable(function):
        raise GraphError(f"{what} is a function of the state, not {type(function).__name__}")
    spelling.check_function(what, function, GraphError, "it where the node is added")
    if not may_yield and is_generator(function):
        raise GraphError(f"{what} is a generator: return the whole at the end")
    takes = takes_context(function, f"{what}: the function", "state", GraphError)
    if takes and not may_take_context:
        raise GraphError(f"{what} is given the state and nothing else: take out its second parameter")
    return takes


def refuse_unknown(where: str, options: Mapping[str, object], known: Iterable[str]) -> None:
    """Refuse options that are not among those that are `known`. Raises `GraphError`."""
    known = tuple(known)
    if unknown := options.keys() - known:
        raise GraphError(f"{where}: there is no option {spelling.told(unknown, known)}; there are {', '.join(known)}")


def check_options(where: str, options: Mapping[str, Any], *, is_run: bool) -> None:
    """Refuse options that a node cannot have, where the core would not say so. Raises `GraphError`."""
    inside, back, ahead = ("input", "output"), options.get("on_rejection"), options.get("destinations", ())
    if is_run and (foreign := options.keys() & _OF_FUNCTIONS):
        raise GraphError(
            f"{where} is a run of its own, and {', '.join(sorted(foreign))} is for functions: its own nodes and tools have"
            " them"
        )
    if not is_run and (foreign := options.keys() & {*inside, "messages"}):
        raise GraphError(f"{where}: {', '.join(sorted(foreign))} is for nodes that are agents or graphs")
    for option in inside if is_run else ():
        if not isinstance(value := options.get(option), (str, NoneType)):
            check_function(f"{where}: {option} is the name of a channel, or a function; it", value)
            if is_async(value):
                raise GraphError(f"{where}: {option} is async; make it a plain function")
    if (history := options.get("messages")) is not None:
        check_function(f"{where}: messages is a function of the state; it", history)
        if is_async(history):
            raise GraphError(f"{where}: messages is async; make it a plain function")
    if not isinstance(back, (str, NoneType)):
        raise GraphError(f"{where}: on_rejection is the name of a node, or END, not {type(back).__name__}")
    if not is_series(ahead) or not all(isinstance(each, str) for each in ahead):
        raise GraphError(f"{where}: destinations is a list of names of nodes, as in destinations=['plan']")
    if options.get("on_failure", "stop") not in ("stop", "human"):
        raise GraphError(f"{where}: on_failure is 'stop' or 'human'")
    check_requirement(where, options.get("requires_approval", False))
    fallback = options.get("fallback") or ()
    for each in fallback if is_series(fallback) else (fallback,):
        check_function(f"{where}: its fallback", each, may_take_context=True, may_yield=True)


_OF_STATE: Final = ("when", "title", "context", "needed")
"""The options of an `Approval` that may be a function, which a node asks of its state."""


def check_requirement(where: str, given: object) -> None:
    """Refuse what is no requirement of approval of a node. Raises `GraphError`."""
    if isinstance(given, Approval):
        for name in _OF_STATE:
            if callable(function := getattr(given, name)):
                check_function(f"{where}: {name} of its Approval", function)
    elif not isinstance(given, bool):
        check_function(f"{where}: requires_approval is True, False, an Approval or a function; it", given)


def _shown_state(given: object, node: str, schema: StateSchema) -> object:
    """What is asked of the state, or of what a `Send` brings, as asked of the arguments that a human is shown."""
    if isinstance(given, Approval):
        texts = {name: _shown_state(getattr(given, name), node, schema) for name in _OF_STATE}
        if isinstance(given.title, str):
            texts["title"] = _title_of(given.title, node, schema)
        return replace(given, **texts)  # type: ignore[arg-type]
    if isinstance(given, bool) or not callable(given):
        return given  # what is neither is refused with the tool's other options
    function: Any = given

    def seen(args: Mapping[str, Any]) -> object:
        sent = args.get("arg")
        return schema.read(canonical(args["state"])) if sent is None else sent["arg"]

    if is_async(given):

        async def asked(args: Mapping[str, object]) -> object:
            answer: Awaitable[object] = function(seen(args))
            return await answer

        return asked

    def ask(args: Mapping[str, object]) -> object:
        return function(seen(args))

    return ask


def _title_of(given: str, node: str, schema: StateSchema) -> str | Callable[[Mapping[str, Any]], str | None]:
    """A title whose names in braces are those of channels, or of members of what a `Send` brings. Raises `GraphError`."""
    title = TitleOfArguments(given, f"the title of the approval of node {node!r}", GraphError, "channels")
    title.check(schema.names)
    if title.plain is not None:
        return given

    def filled(args: Mapping[str, Any]) -> str | None:
        sent = args.get("arg")
        return title.filled(
            {**dict.fromkeys(schema.names), **object_of(args["state"] if sent is None else sent["arg"])}
        )

    return filled


def checked_names(graph: str, nodes: Mapping[str, object], option: str, names: Any) -> frozenset[str]:
    """The names of nodes that an option of a graph lists. Raises `GraphError`."""
    if not is_series(names):
        raise GraphError(
            f"graph {graph!r}: {option} is a list of nodes, as in {option}=['{next(iter(nodes), 'node')}']"
        )
    kept = tuple(names)
    for name in kept:
        if not isinstance(name, str) or name not in nodes:
            raise GraphError(f"graph {graph!r}: {option} names {quoted_name(name)}; the nodes are {', '.join(nodes)}")
    return frozenset(kept)

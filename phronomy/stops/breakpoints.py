"""Breakpoints: where a run is to stop, so that somebody can look, change something, and let it go on."""

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, fields
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

from phronomy.errors import ConfigurationError, InvalidDecision, UnknownPending
from phronomy.foundation.checks import is_async, is_count, is_series, is_timeout, texts_in
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import clean
from phronomy.foundation.quoting import kept_id, quoted_id, quoted_word
from phronomy.foundation.spelling import Given
from phronomy.records.breakpoint_points import Point
from phronomy.records.decisions import Answer, Approve, Skip
from phronomy.stops.expressions import Expression

_log = logging.getLogger("phronomy")

BreakpointType: TypeAlias = Point | Literal["tool", "handoff", "approval", "*"]
"""A point, or a shorthand.

`"tool"` is `pre_tool_call`, `"handoff"` is `pre_handoff`, `"approval"` is every place at which a call needs an
approval, and `"*"` is all three.
"""

_SHORT: Final[Mapping[str, tuple[str, ...]]] = {
    "tool": ("pre_tool_call",),
    "handoff": ("pre_handoff",),
    "approval": (),
    "*": ("pre_tool_call", "pre_handoff"),
}
_APPROVALS: Final = ("approval", "*")
_CALLS: Final = ("pre_tool_call", "pre_handoff", "pre_node", "pre_pattern_step")


@dataclass(frozen=True, kw_only=True)
class BreakpointContext:
    """The values that a condition of a breakpoint can read. They are copies, so changes have no effect.

    `state` is the state of a graph. For an agent, it is a dict: `messages` (each with `role`, `content`, `tool_calls`
    and `settlement`), `usage`, the `calls` of the open turn (each with its `name`), and `handoffs` (each a source and a
    target). `args` are validated. `result` is the result of the tool, after the call. `output`
    is the text of the answer, at the end. `path` is the path of a nested run; it is empty for the outermost run. `turn`
    is the number of model calls so far. `handoff` is the source and the target of a handoff; it is set before the
    handoff, and before the first model call of the target. `asks` says whether the call needs an approval. `facts` are
    the facts of the thread of an `Orchestrator`; elsewhere they are empty.
    """

    type: str
    agent: str
    input: Any = field(default=None, repr=False)
    state: Any = field(default=None, repr=False)
    tool: str | None = None
    args: dict[str, Any] | None = field(default=None, repr=False)
    result: str | None = field(default=None, repr=False)
    output: str | None = field(default=None, repr=False)
    node: str | None = None
    pattern: str | None = None
    handoff: tuple[str, str] | None = None
    asks: bool = False
    turn: int = 0
    path: str = ""
    run_id: str = ""
    thread_id: str | None = None
    facts: dict[str, Any] = field(default_factory=dict, repr=False)


NAMES: Final = frozenset(field.name for field in fields(BreakpointContext))
"""What an expression can speak of."""


class Breakpoint(Given):
    """A point at which runs stop, so that somebody can look.

    `type` is a point or a shorthand. `when` is a condition: a plain function of the `BreakpointContext`, or an
    expression over its names, such as `"tool == 'refund' and args['amount'] > 100"`. If the condition raises, the
    breakpoint does not match, and the error is logged. `label` is shown with the stop. `agents`, `tools`, `nodes` and
    `patterns` are lists of names: the breakpoint then stops only there. Raises `ConfigurationError`.
    """

    _holds_back: ClassVar[bool] = True

    __slots__ = ("_expression", "agents", "label", "nodes", "patterns", "tools", "type", "when")

    def __init__(
        self,
        type: BreakpointType,
        when: Callable[[BreakpointContext], object] | str | None = None,
        label: str | None = None,
        *,
        agents: Iterable[str] | None = None,
        tools: Iterable[str] | None = None,
        nodes: Iterable[str] | None = None,
        patterns: Iterable[str] | None = None,
    ) -> None:
        if not isinstance(type, str) or (type not in get_args(Point) and type not in _SHORT):
            known = ", ".join((*get_args(Point), *_SHORT))
            raise ConfigurationError(f"there is no breakpoint of type {quoted_word(type)}; the types are {known}")
        if when is not None and not isinstance(when, str) and not callable(when):
            raise ConfigurationError("when is a function of the context, or an expression in text")
        if callable(when) and is_async(when):
            raise ConfigurationError("when is a plain function: it looks at the context, and waits for nothing")
        if label is not None and not isinstance(label, str):
            raise ConfigurationError("the label of a breakpoint is text")
        self.type: str = type
        self.when: str | Callable[[BreakpointContext], object] | None = when
        self.label: str | None = label
        self.agents: frozenset[str] | None = _names("agents", agents)
        self.tools: frozenset[str] | None = _names("tools", tools)
        self.nodes: frozenset[str] | None = _names("nodes", nodes)
        self.patterns: frozenset[str] | None = _names("patterns", patterns)
        self._expression = Expression(when, NAMES) if isinstance(when, str) else None

    def __repr__(self) -> str:
        given = [repr(self.type)]
        if self.when is not None:
            given.append(f"when={self.when!r}" if isinstance(self.when, str) else "when=...")
        for name in ("label", "agents", "tools", "nodes", "patterns"):
            value = getattr(self, name)
            if value is not None:
                given.append(f"{name}={sorted(value) if isinstance(value, frozenset) else value!r}")
        return f"Breakpoint({', '.join(given)})"

    def stops_at(
        self, type: str, agent: str, tool: str | None, node: str | None, pattern: str | None, *, asks: bool
    ) -> bool:
        """Whether the breakpoint is for this point, whatever its condition says."""
        if self.type not in (type, *_APPROVALS) and type not in _SHORT.get(self.type, ()):
            return False
        if self.type in _APPROVALS and not asks and type not in _SHORT[self.type]:
            return False
        wanted = ((self.agents, agent), (self.tools, tool), (self.nodes, node), (self.patterns, pattern))
        return all(names is None or name in names for names, name in wanted)

    def matches(self, context: BreakpointContext) -> bool:
        """Whether a run stops here."""
        here = (context.type, context.agent, context.tool, context.node, context.pattern)
        if not self.stops_at(*here, asks=context.asks):
            return False
        try:
            if self._expression is not None:
                return bool(self._expression.value({name: getattr(context, name) for name in NAMES}))
            return bool(self.when(context)) if callable(self.when) else True
        except Exception as error:  # what it says may quote what it looked at
            _log.error("%r at %s of %s: when raised %s", self, context.type, context.agent, type(error).__name__)
            return False


class Breakpoints:
    """Breakpoints that can change while runs go on. Each run reads them again at each point.

    A plain list, by contrast, is fixed. You can change a `Breakpoints` object from any thread. Once an agent uses them,
    `add` and `replace` refuse a name that the agent does not have, and then change nothing.
    """

    _holds_back: ClassVar[bool] = True

    def __init__(self, breakpoints: Iterable[Breakpoint] = ()) -> None:
        self._lock = threading.Lock()
        self._checks: dict[str, Callable[[Iterable[Breakpoint]], None]] = {}
        self._items: tuple[Breakpoint, ...] = listed(breakpoints)

    def __iter__(self) -> Iterator[Breakpoint]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Breakpoints({list(self._items)!r})"

    def add(self, breakpoint: Breakpoint) -> None:
        """Add a breakpoint after the existing ones."""
        with self._lock:
            self._set((*self._items, *listed([breakpoint])))

    def remove(self, breakpoint: Breakpoint) -> None:
        """Remove a breakpoint. If it is not in the list, nothing changes."""
        with self._lock:
            self._items = tuple(item for item in self._items if item is not breakpoint)

    def replace(self, breakpoints: Iterable[Breakpoint]) -> None:
        """Replace all breakpoints by these."""
        with self._lock:
            self._set(listed(breakpoints))

    def clear(self) -> None:
        """Remove all breakpoints."""
        self.replace(())

    def arm(self, name: str, check: Callable[[Iterable[Breakpoint]], None]) -> None:
        """Check all present and later breakpoints for the agent of this name. Raises `ConfigurationError`."""
        with self._lock:
            check(self._items)
            self._checks[name] = check

    def _set(self, items: tuple[Breakpoint, ...]) -> None:
        for check in self._checks.values():
            check(items)
        self._items = items


@dataclass(frozen=True, kw_only=True)
class BreakpointHit:
    """A stop at a breakpoint, with the facts for the person who decides how the run goes on.

    `id` is the pending id, for the decision. `before` is True at a `pre_...` point, and False at a `post_...` point.
    `state` is the whole state of a graph. `args` are the arguments of the tool, `result` is its result, and `output` is
    the output with which the run is about to end. `next` is what the run does next, and `asks` says whether it then
    asks an approval handler. `stack` names the runs from the outermost to this one.
    """

    id: str
    type: str
    agent: str
    tool: str | None
    node: str | None
    label: str | None
    before: bool
    input: Any = field(repr=False)
    args: dict[str, Any] = field(repr=False)
    result: str | None = field(repr=False)
    output: str | None = field(repr=False)
    state: Any = field(repr=False)
    next: tuple[str, ...]
    asks: bool = False
    stack: tuple[str, ...]
    path: str
    requested_at: datetime
    run_id: str
    branch_id: str
    checkpoint_id: str


def match_breakpoint(breakpoints: Iterable[Breakpoint], context: BreakpointContext) -> Breakpoint | None:
    """The first of the breakpoints that stops a run here. None if none does."""
    return next((each for each in breakpoints if each.matches(context)), None)


def listed(given: object) -> tuple[Breakpoint, ...]:
    """The breakpoints in a list. Raises `ConfigurationError`."""
    if not is_series(given):
        raise ConfigurationError(f"breakpoints is a list of Breakpoint, not {type(given).__name__}")
    found: list[Breakpoint] = []
    for item in given:
        if not isinstance(item, Breakpoint):
            raise ConfigurationError(f"breakpoints holds {type(item).__name__}; write Breakpoint('pre_tool_call')")
        found.append(item)
    return tuple(found)


def _names(option: str, given: object) -> frozenset[str] | None:
    if given is None:
        return None
    names = texts_in(given)
    if not names or "" in names:
        raise ConfigurationError(f"{option} are names, in a list")
    return frozenset(map(clean, names))  # as records have them


def trace(hit: BreakpointHit) -> Approve:  # noqa: ARG001  # as handlers are called
    """Pass every breakpoint at once.

    `Hold(on_breakpoint=trace)` records the stops on the timeline, and waits at none of them.
    """
    return Approve()


class Settled(NamedTuple):
    """A stop that was answered.

    `how`: `approved`, `skipped`, `rejected`, `responded`, `expired`, `cancelled`, or `left`.
    """

    hit: BreakpointHit
    how: str


class _Owner(Protocol):
    """An object that takes answers for a call that waits, as the agent or graph does."""

    def resume(self, at: str, **options: object) -> object: ...

    async def aresume(self, at: str, **options: object) -> object: ...

    def cancel(self, run: str, **options: object) -> object: ...

    async def acancel(self, run: str, **options: object) -> object: ...


class Hold(Given):
    """Makes a call wait at breakpoints until somebody answers, where it would otherwise return as suspended.

    Pass it to `invoke`, `resume`, `stream` or their async twins: `agent.invoke(..., hold=Hold())`. The stop is in the
    store. It can be answered by `resume_breakpoint`, by the agent's `resume` in any process, or by `on_breakpoint`.
    `on_breakpoint` is a function that is called with each `BreakpointHit`, and may return `Approve`, `Reject`,
    `Respond` or `Skip`. If it returns None or raises, the call keeps waiting; an exception is logged. `resume_event` is
    an event (of `threading`, or of `asyncio` for async calls); each time it is set, the run goes on.

    After `timeout` seconds (300 unless given; None: never) the run is cancelled, and the call raises
    `BreakpointTimeout`. No limit and no timeout of a tool counts the time of waiting. If the worker dies while it
    waits, the run is suspended.

    One hold can serve any number of calls. `pending` lists the stops that wait now, and `settled` the last `history`
    answers. Raises `ConfigurationError`.
    """

    timeout: float | None
    on_breakpoint: Callable[[BreakpointHit], object] | None
    resume_event: Any

    def __init__(
        self,
        *,
        timeout: float | None = 300.0,
        on_breakpoint: Callable[[BreakpointHit], object] | None = None,
        resume_event: Any = None,
        history: int = 200,
    ) -> None:
        if not is_timeout(timeout):
            raise ConfigurationError("the timeout of a hold is seconds above 0, or None")
        if on_breakpoint is not None and not callable(on_breakpoint):
            raise ConfigurationError("on_breakpoint is a function of the BreakpointHit")
        if resume_event is not None and not all(hasattr(resume_event, name) for name in ("is_set", "wait", "clear")):
            raise ConfigurationError("resume_event is an Event of threading or of asyncio")
        if not is_count(history) or history > sys.maxsize:
            raise ConfigurationError("history is a whole number, 0 or more, and no larger than a list can be")
        self.timeout = timeout
        self.on_breakpoint = on_breakpoint
        self.resume_event = resume_event
        self._lock = threading.Lock()
        self._pending: dict[str, tuple[BreakpointHit, _Owner]] = {}
        self._settled: deque[Settled] = deque(maxlen=history)

    @property
    def pending(self) -> list[BreakpointHit]:
        """The stops at which calls wait now, the oldest first."""
        with self._lock:
            return [hit for hit, _ in self._pending.values()]

    @property
    def settled(self) -> list[Settled]:
        """The stops that were answered, with the answers, the newest last."""
        with self._lock:
            return list(self._settled)

    def resume_breakpoint(
        self,
        id: str,
        *,
        input: object = None,
        args: Mapping[str, object] | None = None,
        state: object = None,
        skip: bool = False,
        by: object = None,
    ) -> None:
        """Let the call that waits at this stop go on.

        `input` replaces the input of the run, before the model has seen it, or the input of a pattern's step. `args`
        replaces arguments of the tool, which are validated and checked again. `state` is an update of a graph's state,
        as a node returns it. With `skip`, the next call, node or step does not run. Raises what `resume` raises. If
        several people answer, one wins.
        """
        owner, checkpoint_id, options = self._answer(id, input, args, state, skip=skip, by=by)
        owner.resume(checkpoint_id, **options)
        self._answered({id: "skipped" if skip else "approved"})

    async def aresume_breakpoint(
        self,
        id: str,
        *,
        input: object = None,
        args: Mapping[str, object] | None = None,
        state: object = None,
        skip: bool = False,
        by: object = None,
    ) -> None:
        """The async twin of `resume_breakpoint`."""
        owner, checkpoint_id, options = self._answer(id, input, args, state, skip=skip, by=by)
        await owner.aresume(checkpoint_id, **options)
        self._answered({id: "skipped" if skip else "approved"})

    def cancel_breakpoint(self, id: str, reason: str | None = None, *, by: object = None) -> None:
        """Cancel the run that waits at this stop.

        Nothing after the breakpoint runs, is retried or is done by another agent.
        """
        hit, owner = self._held(id)
        owner.cancel(hit.branch_id, reason=reason, by=by)
        self._answered({id: "cancelled"})

    async def acancel_breakpoint(self, id: str, reason: str | None = None, *, by: object = None) -> None:
        """The async twin of `cancel_breakpoint`."""
        hit, owner = self._held(id)
        await owner.acancel(hit.branch_id, reason=reason, by=by)
        self._answered({id: "cancelled"})

    def _answer(
        self, id: str, input: object, args: Mapping[str, object] | None, state: object, *, skip: bool, by: object
    ) -> tuple[_Owner, str, dict[str, object]]:
        hit, owner = self._held(id)
        if type(skip) is not bool or (skip and (input, args, state) != (None, None, None)):
            raise InvalidDecision("skip is True or False, and what is skipped is not edited", pending_id=id)
        if input is not None and hit.type == "pre_pattern_step":  # what comes to a step is its input
            input, args = None, {**(args or {}), "arg": input}
        if (input is not None and hit.type in _CALLS) or (args is not None and hit.type not in _CALLS):
            here = "arguments" if hit.type in _CALLS else "the input alone, as long as the model has not seen it"
            raise InvalidDecision(f"pending {id} stands at {hit.type}, where {here} can be edited", pending_id=id)
        if state is not None and hit.path:
            raise InvalidDecision(
                f"pending {id} is of a run inside another: resume(..., modify_state=...) changes its state",
                pending_id=id,
            )
        edits: dict[str, object] | None = (
            {"input": input} if input is not None else dict(args) if args is not None else None
        )
        try:
            answer: Answer = Skip() if skip else Approve(args=edits)
        except ValueError as error:
            raise InvalidDecision(f"the edits cannot be recorded: {type(error).__name__}", pending_id=id) from None
        options: dict[str, object] = {"decisions": {id: answer}, "by": by, "channel": "breakpoint"}
        if state is not None:
            options["update"] = state
        return owner, hit.checkpoint_id, options

    def _held(self, id: str) -> tuple[BreakpointHit, _Owner]:
        with self._lock:
            if id in self._pending:
                return self._pending[id]
            how = next((f"was {each.how}" for each in self._settled if each.hit.id == id), "is not known here")
        raise UnknownPending(f"no call waits at a breakpoint under {quoted_id(id)}: it {how}", pending_id=kept_id(id))

    def _arrived(self, hits: Iterable[BreakpointHit], owner: _Owner) -> list[BreakpointHit]:
        """Take note of stops, and return the new ones among them."""
        with self._lock:
            known = {*self._pending, *(each.hit.id for each in self._settled if each.how != "left")}
            new = [hit for hit in hits if hit.id not in known]
            self._pending |= {hit.id: (hit, owner) for hit in new}
        return new

    def _answered(self, ids: Mapping[str, str]) -> None:
        """Take stops off the list: how each was answered, by id."""
        with self._lock:
            for id, how in ids.items():
                if id in self._pending:
                    self._settled.append(Settled(self._pending.pop(id)[0], how))

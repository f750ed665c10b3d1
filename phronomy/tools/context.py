"""What a tool can read about its call, and what its body can say: the context, the errors, and the functions of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field
from typing import Any, Final, Generic, Protocol, TypeAlias

from typing_extensions import TypeVar

from phronomy.concurrency.superfluous import Signal
from phronomy.concurrency.workers import ToolCancelled
from phronomy.errors import ConfigurationError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonText, plain_object
from phronomy.records.decisions import Decision, Reject
from phronomy.records.messages import NO_USAGE, Message, Usage
from phronomy.records.principals import Principal

Deps = TypeVar("Deps", default=Any)


class OutcomeUnknown(Exception):
    """Raise this in the body of a tool that cannot know whether it took effect.

    A human must then decide about the call. If the tool is idempotent, it runs again instead.
    """


class InvalidArguments(ValueError):
    """The model's arguments are not valid for the tool. The message is for the model and holds no value of theirs.

    `places` say for people what is wrong where: each a JSON Pointer (RFC 6901) into the arguments, and a sentence.
    """

    def __init__(self, message: str, places: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.places: tuple[tuple[str, str], ...] = tuple(places)


BODY: Final[ContextVar[Any]] = ContextVar("phronomy_body", default=None)
"""The asker of the body that runs here; None outside of a body. Tasks, and threads that inherit the context, have it too."""


class Named(Protocol):
    """A tool, as far as a body that calls it needs to know it."""

    name: str


class Calls(Protocol):
    """How a body calls other tools."""

    def call(self, tool: str | Named, args: Mapping[str, Any] | None, key: str | None) -> object:
        """The result of a call."""
        ...

    async def acall(self, tool: str | Named, args: Mapping[str, Any] | None, key: str | None) -> object:
        """As `call`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToolContext(Generic[Deps]):
    """What a tool can read about its call. A parameter annotated with it is filled in, and the model does not see it.

    `call_id` is the provider's id of the call. `pending_id` is the approval that let the call run, or None if none was
    needed, and `decision` is the decision on it: who decided, when, and the votes. In a node of a graph that follows
    rejected nodes (`on_rejection`), `rejections` are the decisions by which they were rejected or expired.
    `idempotency_key` is the same for every attempt, replay and resume of a call: pass it on to the service that you
    call. `attempt` counts from 1. `deps` are the objects from `invoke(deps=...)`. `requester` is who asked for the run,
    None if nobody said; `scopes` are those that the run has. `messages` is the conversation up to the reply that asked
    for the call (nothing in a graph), and `usage` what the run has used.
    """

    run_id: str
    thread_id: str | None
    call_id: str
    pending_id: str | None
    decision: Decision | None = None
    rejections: tuple[Decision, ...] = ()
    tool_name: str
    idempotency_key: str
    attempt: int
    deps: Deps = field(repr=False)
    requester: Principal | None = None
    scopes: frozenset[str] = frozenset()
    messages: tuple[Message, ...] = field(default=(), repr=False)
    usage: Usage = NO_USAGE
    _store: Any = field(default=None, repr=False, compare=False)
    _state: Any = field(default=None, repr=False, compare=False)
    _facts: JsonText | None = field(default=None, repr=False)
    _cancel: Signal = field(default_factory=Signal, repr=False)
    _calls: Calls | None = field(default=None, repr=False)

    @property
    def rejection(self) -> Decision | None:
        """The last of the `rejections`: its `reason`, and `by` whom. None if nothing was rejected, or by nobody."""
        return self.rejections[-1] if self.rejections else None

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the thread, if the agent works in an `Orchestrator`; else empty. It is a copy each time."""
        return {} if self._facts is None else plain_object(self._facts)

    def call_tool(self, tool: str | Named, args: Mapping[str, Any] | None = None, *, key: str | None = None) -> Any:
        """Call another tool through its gate, from the body of a tool that declares it (`calls=[...]`), and return the result.

        The call is judged, asked about, approved, recorded and run exactly as a call of the model. If somebody has to decide,
        the run is suspended; when it is resumed, the body runs again from its beginning, and calls that have settled return
        their results without running again. `args` are JSON values by name. The result is the JSON value of what the tool
        returned, or of what a human gave with `Respond`.

        `key` identifies a call of the body; without keys, the order of the calls identifies them.

        Raises `ToolCallRejected`, `ToolCallExpired`, `ToolCallCancelled` or `ToolCallFailed` if the call has no result, and
        `ConfigurationError` for a tool that is not declared, for a repeated key, outside of a body, and if a body that runs
        again calls another tool under the same key, or with other arguments.
        """
        return self._caller.call(tool, args, key)

    async def acall_tool(
        self, tool: str | Named, args: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> Any:
        """The async version of `call_tool`, for async bodies."""
        return await self._caller.acall(tool, args, key)

    @property
    def _caller(self) -> Calls:
        if self._calls is None:
            raise ConfigurationError(
                f"tool {self.tool_name} calls another tool, and declares none: give it calls=[...], with the tools that it may call"
            )
        return self._calls

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: the run was cancelled, or the timeout of the tool is over."""
        return self._cancel.is_set()

    def raise_if_cancelled(self) -> None:
        """Raise `ToolCancelled` if the call was cancelled. Call this between the steps of a long body."""
        if self._cancel.is_set():
            raise ToolCancelled(f"the call of {self.tool_name} was cancelled")


Predicate: TypeAlias = (
    Callable[[dict[str, Any]], bool | Reject | Awaitable[bool | Reject]]
    | Callable[[dict[str, Any], ToolContext[Any]], bool | Reject | Awaitable[bool | Reject]]
)
"""A function that says whether a call needs approval: True, False, or `Reject` to reject the call and ask nobody.

It takes the arguments, as a dict, or the arguments and a `ToolContext`, which has the conversation in `messages`. It can
be async.
"""


Condition: TypeAlias = (
    Callable[[Any], bool | Reject | Awaitable[bool | Reject]]
    | Callable[[Any, ToolContext[Any]], bool | Reject | Awaitable[bool | Reject]]
)
"""The `when` of an `Approval`: a `Predicate`, or for a node of a graph a function of the state."""

PeopleNeeded: TypeAlias = Callable[[Any], int] | Callable[[Any, ToolContext[Any]], int]
"""A function that says how many different people have to approve a call with these arguments: 1 or more.

It takes the arguments, or the arguments and a `ToolContext`; for a node of a graph, the state. It is not async.
"""

ReviewText: TypeAlias = (
    Callable[[Any], str | Awaitable[str | None] | None]
    | Callable[[Any, ToolContext[Any]], str | Awaitable[str | None] | None]
)
"""A function that makes the title or the context of an `Approval`.

It takes the arguments, with those that the tool redacts hidden, or the arguments and a `ToolContext`; for a node of a
graph, the state. It can be async.
"""

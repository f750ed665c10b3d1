"""What a tool can read about its call, and what its body can say: the context, the errors, and the functions of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar

from phronomy.concurrency.superfluous import Signal
from phronomy.concurrency.workers import ToolCancelled
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonText, plain_object
from phronomy.records.decisions import Reject
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToolContext(Generic[Deps]):
    """What a tool can read about its call. A parameter annotated with it is filled in, and the model does not see it.

    `call_id` is the provider's id of the call. `pending_id` is the approval that let the call run, or None if none was
    needed. `idempotency_key` is the same for every attempt, replay and resume of a call: pass it on to the service that
    you call. `attempt` counts from 1. `deps` are the objects from `invoke(deps=...)`. `requester` is who asked for the
    run, None if nobody said; `scopes` are those that the run has.
    """

    run_id: str
    thread_id: str | None
    call_id: str
    pending_id: str | None
    tool_name: str
    idempotency_key: str
    attempt: int
    deps: Deps = field(repr=False)
    requester: Principal | None = None
    scopes: frozenset[str] = frozenset()
    _store: Any = field(default=None, repr=False, compare=False)
    _state: Any = field(default=None, repr=False, compare=False)
    _facts: JsonText | None = field(default=None, repr=False)
    _cancel: Signal = field(default_factory=Signal, repr=False)

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the thread, if the agent works in an `Orchestrator`; else empty. It is a copy each time."""
        return {} if self._facts is None else plain_object(self._facts)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: the run was cancelled, or the timeout of the tool is over."""
        return self._cancel.is_set()

    def raise_if_cancelled(self) -> None:
        """Raise `ToolCancelled` if the call was cancelled. Call this between the steps of a long body."""
        if self._cancel.is_set():
            raise ToolCancelled(f"the call of {self.tool_name} was cancelled")


Predicate: TypeAlias = (
    Callable[[Mapping[str, Any]], bool | Reject | Awaitable[bool | Reject]]
    | Callable[[Mapping[str, Any], ToolContext[Any]], bool | Reject | Awaitable[bool | Reject]]
)
"""A function that says whether a call needs approval: True, False, or `Reject` to reject the call and ask nobody.

It takes the arguments, or the arguments and a `ToolContext`. It can be async.
"""


Condition: TypeAlias = (
    Callable[[Any], bool | Reject | Awaitable[bool | Reject]]
    | Callable[[Any, ToolContext[Any]], bool | Reject | Awaitable[bool | Reject]]
)
"""The `when` of an `Approval`: a `Predicate`, or for a node of a graph a function of the state."""

ReviewText: TypeAlias = (
    Callable[[Any], str | Awaitable[str | None] | None]
    | Callable[[Any, ToolContext[Any]], str | Awaitable[str | None] | None]
)
"""A function that makes the title or the context of an `Approval`.

It takes the arguments, with those that the tool redacts hidden, or the arguments and a `ToolContext`; for a node of a
graph, the state. It can be async.
"""

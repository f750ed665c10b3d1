"""Hooks: a base class of no-ops, called with the events of every run of an agent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from phronomy.models.base import ModelReply, ModelRequest
from phronomy.records.checkpoint import Checkpoint

if TYPE_CHECKING:
    from phronomy.observability.events import (
        ApprovalRequested,
        CheckpointSaved,
        Decided,
        Ended,
        Event,
        Failed,
        GuardrailsAsked,
        HandedOver,
        MessageAdded,
        ModelReplied,
        ModelStarted,
        RunStarted,
        Suspended,
        ToolCallFailed,
        ToolCallSettled,
        ToolCallStarted,
        Voted,
    )

_log = logging.getLogger("phronomy")


class Hooks:
    """A base class for objects that are called with the events of runs. Pass instances to `Agent(hooks=[...])`.

    Override the methods that you need. A hook is called after its event is stored, in the thread or task that drives
    the run, so it must be quick. An exception is logged, and changes nothing. The events are those of `agent.stream`,
    except pieces of replies. They include the events of nested runs; `event.path` names the run. Nested runs that run
    in parallel call the hooks from several threads. Events contain arguments and contents, unmasked.
    """

    def on_event(self, event: Event) -> None:
        """Called for every event, before the method for its type."""

    def on_run_started(self, event: RunStarted) -> None:
        """A run has started."""

    def on_run_suspended(self, event: Suspended) -> None:
        """The run waits for a human."""

    def on_run_ended(self, event: Ended) -> None:
        """The run has ended: completed, rejected, cancelled, superseded or skipped. `event.type` says how."""

    def on_run_failed(self, event: Failed) -> None:
        """The run stopped on a failure, and can be resumed."""

    def on_model_started(self, event: ModelStarted) -> None:
        """A model is asked."""

    def on_model_replied(self, event: ModelReplied) -> None:
        """The model has replied."""

    def on_tool_started(self, event: ToolCallStarted) -> None:
        """A tool starts next."""

    def on_tool_failed(self, event: ToolCallFailed) -> None:
        """An attempt of a call failed."""

    def on_tool_settled(self, event: ToolCallSettled) -> None:
        """A call has its result."""

    def on_guardrail(self, event: GuardrailsAsked) -> None:
        """Guardrails have checked the input, the answer or a call."""

    def on_message_added(self, event: MessageAdded) -> None:
        """A message that somebody sent to the run is in the conversation."""

    def on_handoff(self, event: HandedOver) -> None:
        """The conversation went to another agent."""

    def on_approval_requested(self, event: ApprovalRequested) -> None:
        """A call waits for a human."""

    def on_voted(self, event: Voted) -> None:
        """Somebody voted on a pending request, and it takes more votes."""

    def on_decided(self, event: Decided) -> None:
        """A pending request was decided."""

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """A checkpoint was stored."""

    def driving(self, at: Checkpoint) -> AbstractContextManager[Mapping[str, str] | None]:
        """A context manager around each drive of a run (an invoke, a resume, a stream) that starts at this checkpoint.

        The values that the manager yields are put into the metadata of the checkpoints of this drive. The next drive
        finds them there.
        """
        return nullcontext()

    def exchanged(self, branch_id: str, path: str, said: ModelRequest | ModelReply) -> None:
        """Called with each request to a model, and with each reply, for the run at this path.

        A request is passed after `on_model_started`, with the combined settings of the agent and the model. A reply is
        passed before it is stored.
        """

    def _drives(self, at: Checkpoint, masks: Callable[[], object]) -> AbstractContextManager[Mapping[str, str] | None]:
        """As `driving`, for those who show arguments: `masks` gives what hides those that the tools of the run redact."""
        return self.driving(at)

    def running(self, branch_id: str, path: str, call_id: str) -> AbstractContextManager[None]:
        """A context manager around the body of a call, in the thread or task of the body.

        It is entered after `on_tool_started`.
        """
        return nullcontext()


_METHODS: Final = {
    "run_started": "on_run_started",
    "suspended": "on_run_suspended",
    "completed": "on_run_ended",
    "rejected": "on_run_ended",
    "cancelled": "on_run_ended",
    "superseded": "on_run_ended",
    "skipped": "on_run_ended",
    "failed": "on_run_failed",
    "model_started": "on_model_started",
    "model_replied": "on_model_replied",
    "tool_call_started": "on_tool_started",
    "tool_call_failed": "on_tool_failed",
    "tool_call_settled": "on_tool_settled",
    "guardrail": "on_guardrail",
    "message_added": "on_message_added",
    "handoff": "on_handoff",
    "approval_requested": "on_approval_requested",
    "voted": "on_voted",
    "decided": "on_decided",
    "checkpoint": "on_checkpoint",
}
"""The method for each type of event; pieces of replies are for streams alone."""


def tell(hooks: Hooks, event: Event) -> None:
    """Call the methods of `hooks` that the event is for."""
    hooks.on_event(event)
    if (method := _METHODS.get(event.type)) is not None:
        getattr(hooks, method)(event)


T = TypeVar("T")


class Inside(Generic[T]):
    """The managers that hooks put around something. What they raise is logged, and changes nothing."""

    def __init__(self, managers: Mapping[Hooks, Callable[[], AbstractContextManager[T | None]]]) -> None:
        self._managers = managers
        self._entered: list[tuple[Hooks, AbstractContextManager[T | None]]] = []

    def __enter__(self) -> tuple[T, ...]:
        given: list[T | None] = []
        for hook, make in self._managers.items():
            try:
                manager = make()
                given.append(manager.__enter__())
                self._entered.append((hook, manager))
            except Exception as error:
                raised(hook, error, "on entering")
        return tuple(each for each in given if each is not None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._entered:
            hook, manager = self._entered.pop()
            try:
                manager.__exit__(kind, error, trace)
            except Exception as own:
                if own is not error:
                    raised(hook, own, "on leaving")


def raised(hook: Hooks, error: Exception, when: str) -> None:
    """Say in the log that a hook raised: the type alone, as what it says may quote anything."""
    _log.error("hook %s raised %s %s", type(hook).__name__, type(error).__name__, when)


def around_call(hooks: tuple[Hooks, ...], branch_id: str, path: str, call_id: str) -> Inside[object]:
    """Enters the context managers that hooks put around the body of a call."""
    return Inside({hook: partial(hook.running, branch_id, path, call_id) for hook in hooks})

"""Hooks: a base class of no-ops, called with the events of every run of an agent."""

from __future__ import annotations

from typing import Final

from phronomy.events import (
    ApprovalRequested,
    CheckpointSaved,
    Decided,
    Ended,
    Event,
    Failed,
    ModelReplied,
    ModelStarted,
    RunStarted,
    Suspended,
    ToolCallFailed,
    ToolCallSettled,
    ToolCallStarted,
)


class Hooks:
    """Override what you want to hear of, and give an instance to `Agent(hooks=[...])`.

    A hook is told after what it is told of is stored, in the thread or task that drives the run: be quick. What it raises is
    logged, and changes nothing. Events are those of `agent.stream`, without pieces of replies; arguments and contents in them are
    in the clear.
    """

    def on_event(self, event: Event) -> None:
        """Anything happened: called before the method for the kind of event."""

    def on_run_started(self, event: RunStarted) -> None:
        """A run began."""

    def on_run_suspended(self, event: Suspended) -> None:
        """The run waits for a human."""

    def on_run_ended(self, event: Ended) -> None:
        """The run ended: completed, rejected, cancelled or superseded, by `event.type`."""

    def on_run_failed(self, event: Failed) -> None:
        """The run stopped on a failure, and can be resumed."""

    def on_model_started(self, event: ModelStarted) -> None:
        """The model is asked."""

    def on_model_replied(self, event: ModelReplied) -> None:
        """The model replied."""

    def on_tool_started(self, event: ToolCallStarted) -> None:
        """A tool is about to be entered."""

    def on_tool_failed(self, event: ToolCallFailed) -> None:
        """An attempt failed."""

    def on_tool_settled(self, event: ToolCallSettled) -> None:
        """A call has its result."""

    def on_approval_requested(self, event: ApprovalRequested) -> None:
        """A call waits for a human."""

    def on_decided(self, event: Decided) -> None:
        """A pending approval was decided."""

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """A checkpoint is stored."""


_METHODS: Final = {
    "run_started": "on_run_started",
    "suspended": "on_run_suspended",
    "completed": "on_run_ended",
    "rejected": "on_run_ended",
    "cancelled": "on_run_ended",
    "superseded": "on_run_ended",
    "failed": "on_run_failed",
    "model_started": "on_model_started",
    "model_replied": "on_model_replied",
    "tool_call_started": "on_tool_started",
    "tool_call_failed": "on_tool_failed",
    "tool_call_settled": "on_tool_settled",
    "approval_requested": "on_approval_requested",
    "decided": "on_decided",
    "checkpoint": "on_checkpoint",
}
"""The method for each type of event; pieces of replies are for streams alone."""


def tell(hooks: Hooks, event: Event) -> None:
    """Call the methods of `hooks` that the event is for."""
    hooks.on_event(event)
    if (method := _METHODS.get(event.type)) is not None:
        getattr(hooks, method)(event)

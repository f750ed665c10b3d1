"""What the model reads of calls that were not run, or not run to their end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from phronomy.types import Call

BLOCKED: Final = "This exact call was rejected before and was not run. Do not ask for it again."

INTERRUPTED: Final = "The worker was lost while this call ran. It may have taken effect, or not."

_EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    "rejected": ("A human rejected this call", "A human rejected this call, so it was not run."),
    "skipped": ("A human left this call out", "A human left this call out, so it was not run."),
    "expired": ("Nobody decided on this call in time", "Nobody decided on this call in time, so it was not run."),
    "call cancelled": ("This call was cancelled", "This call was cancelled, so it was not run."),
    "cancelled": ("The run was cancelled", "The run was cancelled, so this call was not run."),
    "superseded": (
        "A new message came before this call was decided",
        "This call was not run: a new message came before it was decided.",
    ),
    "ended": (
        "The run was ended when another call was rejected",
        "This call was not run: the run was ended when another call was rejected.",
    ),
}
"""What happened, and what that means for a call that has not run."""


def left(call: Call, event: str, reason: str | None) -> str:
    """What the model reads of a call that is not run, or not run again: it must not be told that nothing happened if it did."""
    why = f" Reason: {reason}" if reason else ""
    happened, not_run = _EVENTS[event]
    if call.why == "outcome_unknown":
        return f"Nobody knows whether this call took effect. {happened}, and it was left at that.{why}"
    if call.why == "failed":
        return f"This call failed: {call.reason} {happened}, and it was left at that.{why}"
    if any(item.why == "question" and call.tool and item.path == call.tool.path for item in call.waiting):
        return f"This call asked a human before it was through. {happened}, and it was left at that.{why}"
    if call.stopped:
        return f"{happened}, and what this call had begun was left at that.{why}"
    if call.attempt:
        return f"This call was begun, and may have taken effect. {happened}, and it was left at that.{why}"
    return f"{not_run}{why}"

"""What the model reads of calls that were not run, or not run to their end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from phronomy.foundation.json_text import canonical
from phronomy.records.calls import Call, CallResult, Decided, Judgement, path_inside
from phronomy.records.decisions import PAST, Decision, block_key

if TYPE_CHECKING:
    from phronomy.records.checkpoint import Checkpoint
    from phronomy.records.messages import Settlement

BLOCKED: Final = "This exact call was rejected before and was not run. Do not ask for it again."

BLOCKED_TOOL: Final = (
    "This tool was rejected for the rest of this run, so the call was not run. Do not call the tool again."
)

ENDED: Final = "The run was ended when a human rejected another call."

INTERRUPTED: Final = "The worker was lost while this call ran. It may have taken effect, or not."

_EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    "rejected": ("A human rejected this call", "A human rejected this call, so it was not run."),
    "skipped": ("A human left this call out", "A human left this call out, so it was not run."),
    "expired": ("Nobody decided on this call in time", "Nobody decided on this call in time, so it was not run."),
    "call cancelled": ("This call was cancelled", "This call was cancelled, so it was not run."),
    "given up": (
        "The body did not make this call again",
        "The body did not make this call again, so it was not run.",
    ),
    "passed over": (
        "The run went on, or ended, without this call",
        "The run went on, or ended, without this call, so it was not run.",
    ),
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


def why_blocked(judgement: Judgement, blocked: tuple[str, ...]) -> str | None:
    """The text for the model of a call that is rejected for good, or whose tool is; None for any other call."""
    if not blocked or judgement.tool is None:
        return None
    if block_key(judgement.tool) in blocked:
        return BLOCKED_TOOL
    return BLOCKED if judgement.digest in blocked else None


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
    if call.tool is not None and call.tool.external and event not in ("rejected", "skipped"):
        known = "This call was to be carried out elsewhere, and nobody here knows whether it was."
        return f"{known} {happened}, and it was left at that.{why}"
    if call.stopped:
        return f"{happened}, and what this call had begun was left at that.{why}"
    if call.attempt:
        return f"This call was begun, and may have taken effect. {happened}, and it was left at that.{why}"
    return f"{not_run}{why}"


def told(call: Call, outcome: Decided) -> str:
    """What the model reads of a decision that is no approval."""
    decision = outcome.decision
    if decision.kind == "respond":
        content = decision.content
        return content if isinstance(content, str) else decision.json_text("content")
    return refused(call, decision)


def refused(call: Call, decision: Decision) -> str:
    """The text for the model of a call that is not run by a decision."""
    return left(call, "call cancelled" if decision.kind == "cancel" else PAST[decision.kind], decision.reason)


def passed_over(call: Call, decision: Decision, *, begun: bool) -> CallResult:
    """The result of a call that was decided on, and that the run never looks at again: its body does not make it, or it has ended."""
    if decision.kind in ("approve", "respond", "edit"):
        content = left(call.evolve(attempt=max(call.attempt, 1)) if begun else call, "passed over", None)
        return CallResult(kind="failed" if begun else "cancelled", content=content)
    return CallResult(kind=cast("Settlement", PAST[decision.kind]), content=refused(call, decision))


def noted(call: Call, result: CallResult) -> CallResult:
    """The result as the model reads it: told when a human changed what it asked for, or it would ask again."""
    if not call.edited:
        return result
    note = f"A human changed the arguments of this call to {call.json_text('args')} before it ran. Its result:"
    told = result.evolve(content=f"{note}\n{result.content}")
    parts: list[Any] | None = result.parts
    return told if parts is None else told.evolve(parts=canonical([{"type": "text", "text": note}, *parts]))


def refused_inside(state: Checkpoint, call: Call) -> CallResult | None:
    """The result of a call that a human ended by what they refused in the run inside it; None of any other."""
    path = f"{path_inside(state.path, call.id)}/"
    refused = (each for each in state.decisions if each.ends_all and f"{each.path}/".startswith(path))
    if (decision := next(refused, None)) is None:
        return None
    return CallResult(kind="rejected", content=left(call, "rejected", decision.reason))

"""The audit trail: who decided what, when, through which channel, why, and the digest of what was shown."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from phronomy._record import Record, Text
from phronomy.approvals import DecisionKind, Principal
from phronomy.types import Decided, Ending

if TYPE_CHECKING:
    from phronomy.checkpoint import Checkpoint


class AuditRecord(Record):
    """One decision, as the audit trail keeps it.

    `checkpoint_id` is the boundary that it was taken at, `digest` that of the tool and the arguments that were shown, None where a
    whole run was ended. `edited` says that other arguments were approved. Neither arguments nor results are in it.
    """

    version: Literal[1] = 1
    at: datetime
    kind: DecisionKind
    by: Principal | None = None
    channel: Text | None = None
    reason: Text | None = None
    run_id: str
    thread_id: Text | None = None
    branch_id: str
    checkpoint_id: str
    agent: Text
    path: str = ""
    pending_id: str | None = None
    tool_name: Text | None = None
    digest: str | None = None
    edited: bool = False


def audit_record(state: Checkpoint, outcome: Decided | Ending) -> AuditRecord:
    """What the trail says of a decision, or of the end that somebody made, in this state."""
    facts: dict[str, Any] = {
        "run_id": state.run_id,
        "thread_id": state.thread_id,
        "branch_id": state.branch_id,
        "checkpoint_id": state.id,
        "agent": state.agent.name,
    }
    if isinstance(outcome, Ending):
        kind: DecisionKind = "cancel" if outcome.status == "cancelled" else "supersede"
        return AuditRecord(**facts, at=outcome.at, kind=kind, by=outcome.by, reason=outcome.reason)
    decision = outcome.decision
    names = {call.pending_id: call.tool.name for call in state.calls if call.tool is not None}
    names |= {item.id: item.tool_name for item in state.pending}
    return AuditRecord(
        **facts,
        at=decision.at,
        kind=decision.kind,
        by=decision.by,
        channel=decision.channel,
        reason=decision.reason,
        path=decision.path,
        pending_id=decision.pending_id,
        tool_name=names.get(decision.pending_id),
        digest=decision.digest,
        edited=decision.args is not None,
    )

"""The audit trail: who decided what, when, through which channel, why, and the digests of what was shown and of what ran."""

from __future__ import annotations

from collections.abc import Mapping
from operator import not_
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from phronomy.records.calls import Decided, Ending
from phronomy.records.chain import decision_on
from phronomy.records.decisions import Decision, DecisionKind, PendingApproval, Recorded, Why
from phronomy.records.record import Record, Text, Time, digest_of

if TYPE_CHECKING:
    from phronomy.records.checkpoint import Checkpoint


class AuditRecord(Record):
    """One decision in the audit trail. It contains no arguments and no results.

    `agent` is the agent or graph that asked, at `path` if it is a nested run. After a handoff, it is the agent that had
    the conversation; if the whole run was ended, it is the agent of the run. `checkpoint_id` is the boundary at which
    the decision was made. `why` is the reason of the request.

    `digest` covers the tool and the arguments that were shown; for an `edit`, the new state of the graph. It is None if
    the whole run was ended. `ran_digest` covers the tool and the arguments with which the run went on, or is None if
    nothing ran, or if edited arguments are still to be checked because they were decided with the store alone. It
    differs from `digest` if the arguments were `edited`. `content_digest` covers the answer that a human gave in place
    of a tool. `key` is the idempotency key of the decision, and `answer_digest` covers the answer that was given with
    it. A decision that was made with the store alone, and changes something, has a second record, which is `checked`: a
    worker adds it once it has checked the decision, and it has the `ran_digest`.

    Old records have no `why`, `ran_digest` or `content_digest`.
    """

    version: Literal[1] = 1
    at: Time
    kind: DecisionKind
    by: Recorded | None = None
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
    why: Why | None = None
    digest: str | None = None
    ran_digest: str | None = None
    content_digest: str | None = None
    edited: bool = False
    key: Text | None = None
    answer_digest: str | None = None
    checked: bool = Field(default=False, exclude_if=not_)


def audit_record(state: Checkpoint, outcome: Decided | Ending, inside: Mapping[str, Checkpoint]) -> AuditRecord:
    """What the trail says of a decision, or of the end that somebody made, in this state; `inside` are its nested runs, by path."""
    facts: dict[str, Any] = {
        "run_id": state.run_id,
        "thread_id": state.thread_id,
        "branch_id": state.branch_id,
        "checkpoint_id": state.id,
    }
    if isinstance(outcome, Ending):
        kind: DecisionKind = "cancel" if outcome.status == "cancelled" else "supersede"
        return AuditRecord(
            **facts, agent=state.agent.name, at=outcome.at, kind=kind, by=outcome.by, reason=outcome.reason
        )
    decision = outcome.decision
    tool_name, why, agent = _request(state, decision.pending_id)
    facts |= {"tool_name": tool_name, "why": why, "agent": agent or inside.get(decision.path, state).speaker}
    goes_on = outcome.edited if outcome.edited is not None else decision
    checked = decision_on(state, decision.pending_id) is not None
    return _record(decision, goes_on.digest, facts).evolve(checked=checked)


def audit_record_of(decision: Decision, request: PendingApproval, **facts: Any) -> AuditRecord:
    """What the trail says of a decision on this request. `facts` are its agent, run, thread, branch and checkpoint."""
    facts |= {"tool_name": request.tool_name, "why": request.why}
    unknown = decision.args is not None and not decision.judged
    return _record(decision, None if unknown else decision.digest, facts)


def _record(decision: Decision, goes_on: str | None, facts: Mapping[str, Any]) -> AuditRecord:
    return AuditRecord(
        **facts,
        at=decision.at,
        kind=decision.kind,
        by=decision.by,
        channel=decision.channel,
        reason=decision.reason,
        path=decision.path,
        pending_id=decision.pending_id,
        digest=decision.digest,
        ran_digest=goes_on if decision.kind == "approve" else None,
        content_digest=digest_of(decision.json_text("content")) if decision.kind == "respond" else None,
        edited=decision.args is not None,
        key=decision.key,
        answer_digest=decision.answer_digest,
    )


def _request(state: Checkpoint, pending_id: str) -> tuple[str | None, Why | None, str | None]:
    """The tool, the reason and the agent of what waits, or waited, under this id; nothing is known of one that is not there."""
    for item in state.pending:
        if item.id == pending_id:
            return item.tool_name, item.why, item.agent
    for call in state.calls:
        if call.tool is not None and call.pending_id == pending_id:
            return call.tool.name, call.why, state.speaker
    return None, None, None

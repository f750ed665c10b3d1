"""Approvals: what waits for a human, what a human may answer, and the record of what was decided."""

from __future__ import annotations

from phronomy.records.decisions import (
    Answer,
    Approve,
    Decision,
    DecisionKind,
    Defer,
    Gate,
    OnExpiry,
    PendingApproval,
    Point,
    Principal,
    Reject,
    Respond,
    Skip,
    Then,
    ToolIdentity,
    Why,
    call_digest,
)

__all__ = [
    "Answer",
    "Approve",
    "Decision",
    "DecisionKind",
    "Defer",
    "Gate",
    "OnExpiry",
    "PendingApproval",
    "Point",
    "Principal",
    "Reject",
    "Respond",
    "Skip",
    "Then",
    "ToolIdentity",
    "Why",
    "call_digest",
]

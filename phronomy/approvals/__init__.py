"""Approvals: policies that say which calls need approval. Requests, answers and decisions are exported here too."""

from __future__ import annotations

from phronomy.records.breakpoint_points import Point
from phronomy.records.decisions import (
    Answer,
    Approve,
    Decision,
    DecisionKind,
    Defer,
    Gate,
    OnExpiry,
    PendingApproval,
    Permitted,
    Principal,
    Reject,
    Respond,
    ShownMessage,
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
    "Permitted",
    "Point",
    "Principal",
    "Reject",
    "Respond",
    "ShownMessage",
    "Skip",
    "Then",
    "ToolIdentity",
    "Why",
    "call_digest",
]

"""Approvals: policies that say which calls need approval. Requests, answers and decisions are exported here too."""

from __future__ import annotations

from phronomy.records.approvers import Approvers, Escalation, Vote
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
    Reject,
    Respond,
    ShownMessage,
    Skip,
    Then,
    ToolIdentity,
    Why,
    call_digest,
    read_answer,
)
from phronomy.records.principals import Principal

__all__ = [
    "Answer",
    "Approve",
    "Approvers",
    "Decision",
    "DecisionKind",
    "Defer",
    "Escalation",
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
    "Vote",
    "Why",
    "call_digest",
    "read_answer",
]

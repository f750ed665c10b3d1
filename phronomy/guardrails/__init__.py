"""Guardrails: functions that check an input, an answer or a tool call, and let it pass, change it or refuse it."""

from __future__ import annotations

from phronomy.guardrails.guardrail import (
    AllowedTools,
    Guardrail,
    GuardrailContext,
    JsonSchemaOutput,
    MaxLength,
    Pass,
    RedactPatterns,
    Refuse,
    RefusePatterns,
    Stage,
    Transform,
    guardrail,
)

__all__ = [
    "AllowedTools",
    "Guardrail",
    "GuardrailContext",
    "JsonSchemaOutput",
    "MaxLength",
    "Pass",
    "RedactPatterns",
    "Refuse",
    "RefusePatterns",
    "Stage",
    "Transform",
    "guardrail",
]

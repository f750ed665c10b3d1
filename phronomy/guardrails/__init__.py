"""Guardrails: what looks at an input, an answer or a tool call before it counts, and lets it pass, changes it or refuses it."""

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

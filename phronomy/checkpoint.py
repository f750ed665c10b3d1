"""The checkpoint: a run, stopped at a boundary, as an immutable record that can be resumed anywhere."""

from __future__ import annotations

from phronomy.records.checkpoint import (
    AgentRef,
    Checkpoint,
)

__all__ = ["AgentRef", "Checkpoint"]

"""Ids of what is stored."""

from __future__ import annotations

import secrets


def new_id(kind: str) -> str:
    """A new id: the kind, and 96 random bits."""
    return f"{kind}_{secrets.token_hex(12)}"

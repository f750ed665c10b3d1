"""For tests: a model that says what it is told, and a provider on the loopback interface."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from phronomy.testing.scripted import ScriptedModel, ScriptExhausted, call, check_history, say

if TYPE_CHECKING:
    from phronomy.testing.contract import ModelContract
    from phronomy.testing.server import ChatServer, Fault

__all__ = ["ChatServer", "Fault", "ModelContract", "ScriptExhausted", "ScriptedModel", "call", "check_history", "say"]

_LAZY = {"ChatServer": "server", "Fault": "server", "ModelContract": "contract"}  # most tests need no HTTP server


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)

"""For tests: a scripted model, a provider on the loopback interface, and the contracts of models and stores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from phronomy.foundation import lazy_names
from phronomy.testing.scripted import ScriptedModel, ScriptExhausted, call, check_history, say

if TYPE_CHECKING:
    from phronomy.testing.contract import ModelContract
    from phronomy.testing.crash import sweep
    from phronomy.testing.server import ChatServer, Fault
    from phronomy.testing.store_contract import StoreContract

__all__ = [
    "ChatServer",
    "Fault",
    "ModelContract",
    "ScriptExhausted",
    "ScriptedModel",
    "StoreContract",
    "call",
    "check_history",
    "say",
    "sweep",
]

# Most tests need no HTTP server, and no contract.
_LAZY = {
    "ChatServer": ".server",
    "Fault": ".server",
    "ModelContract": ".contract",
    "StoreContract": ".store_contract",
    "sweep": ".crash",
}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        if name == "StoreContract" and (pytest := sys.modules.get("pytest")) is not None:
            # An assertion that fails then shows its values, as in a test file. Modules that are loaded already stay as they are.
            parts = [f"{__name__}.{path.stem}" for path in Path(__file__).parent.glob("_store_*.py")]
            pytest.register_assert_rewrite(*(part for part in parts if part not in sys.modules))
        return lazy_names.load(__name__, name, _LAZY)

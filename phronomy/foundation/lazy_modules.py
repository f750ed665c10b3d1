"""Modules of the standard library that load when something of them is first used.

A program that is sync throughout needs no asyncio, which is an eighth of what an import of phronomy takes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio as asyncio  # noqa: PLC0414  # exported
else:

    class _Lazy:
        """Stands for a module. Its names are read from the module each time, as with an import at the top."""

        def __init__(self, name: str) -> None:
            self._name = name
            self._module = None

        def __getattr__(self, name: str) -> object:
            if self._module is None:
                self._module = import_module(self._name)
            return getattr(self._module, name)

    asyncio = _Lazy("asyncio")

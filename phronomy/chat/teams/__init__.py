"""Microsoft Teams as a channel for approvals. It needs `pip install 'phronomy[teams]'`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phronomy.chat.teams.manifest import manifest, package
from phronomy.foundation import lazy_names

if TYPE_CHECKING:
    from phronomy.chat.teams.connector import Cloud
    from phronomy.chat.teams.teams import Teams

__all__ = ["Cloud", "Teams", "manifest", "package"]

# Who prints the manifest needs no HTTP client, and no cryptography.
_LAZY = {"Cloud": ".connector", "Teams": ".teams"}
_EXTRAS = {"cryptography": "teams", "joserfc": "teams"}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        return lazy_names.load(__name__, name, _LAZY, _EXTRAS)

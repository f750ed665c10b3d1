"""Discord as a channel for approvals. It needs `pip install 'phronomy[discord]'`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phronomy.chat.discord.commands import command
from phronomy.foundation import lazy_names

if TYPE_CHECKING:
    from phronomy.chat.discord.discord import Discord
    from phronomy.chat.discord.gateway import Gateway

__all__ = ["Discord", "Gateway", "command"]

# Who prints the command needs no cryptography.
_LAZY = {"Discord": ".discord", "Gateway": ".gateway"}
_EXTRAS = {"cryptography": "discord", "discord": "discord-gateway"}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        return lazy_names.load(__name__, name, _LAZY, _EXTRAS)

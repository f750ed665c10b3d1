"""A fake Discord: its API and its gateway on the loopback interface, and people who click."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phronomy.foundation import lazy_names
from phronomy.testing.chat.discord.api import APPLICATION_ID, BOT_TOKEN
from phronomy.testing.chat.discord.fake import PUBLIC_KEY, FakeDiscord

if TYPE_CHECKING:
    from phronomy.testing.chat.discord.gateway import FakeGateway

__all__ = ["APPLICATION_ID", "BOT_TOKEN", "PUBLIC_KEY", "FakeDiscord", "FakeGateway"]

# It needs discord.py.
_LAZY = {"FakeGateway": ".gateway"}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        return lazy_names.load(__name__, name, _LAZY, {"discord": "discord-gateway"})

"""Webhooks as a channel for approvals: signed events to your own programs, and signed answers back (Standard Webhooks 1.0.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phronomy.chat.webhooks.signature import new_secret
from phronomy.foundation import lazy_names

if TYPE_CHECKING:
    from phronomy.chat.webhooks.payloads import SCHEMAS
    from phronomy.chat.webhooks.webhooks import Endpoint, Webhooks

__all__ = ["SCHEMAS", "Endpoint", "Webhooks", "new_secret"]

# Who makes a secret at a terminal needs no client of HTTP.
_LAZY = {"SCHEMAS": ".payloads", "Endpoint": ".webhooks", "Webhooks": ".webhooks"}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        return lazy_names.load(__name__, name, _LAZY)

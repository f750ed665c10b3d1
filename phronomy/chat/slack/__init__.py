"""Slack as a channel for approvals. It needs `pip install 'phronomy[slack]'`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phronomy.chat.slack.manifest import manifest
from phronomy.foundation import lazy_names

if TYPE_CHECKING:
    from phronomy.chat.slack.slack import Slack
    from phronomy.chat.slack.socket_mode import SocketMode

__all__ = ["Slack", "SocketMode", "manifest"]

# Who prints the manifest needs no SDK.
_LAZY = {"Slack": ".slack", "SocketMode": ".socket_mode"}
_EXTRAS = {"slack_sdk": "slack"}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        return lazy_names.load(__name__, name, _LAZY, _EXTRAS)

"""Telegram as a channel for approvals. It needs no extra."""

from phronomy.chat.telegram.invitations import Invitations
from phronomy.chat.telegram.polling import Polling
from phronomy.chat.telegram.telegram import Telegram

__all__ = ["Invitations", "Polling", "Telegram"]

"""E-mail as a channel for approvals: a mail has links, and a link opens a page of the inbox, where a person decides."""

from phronomy.chat.email.addresses import alias_of
from phronomy.chat.email.email import Email

__all__ = ["Email", "alias_of"]

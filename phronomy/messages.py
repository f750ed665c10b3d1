"""What was said: messages, the tool calls in them, and the tokens they cost."""

from __future__ import annotations

from phronomy.records.messages import (
    Conversation,
    Message,
    Role,
    Settlement,
    ToolCall,
    Usage,
)

__all__ = ["Conversation", "Message", "Role", "Settlement", "ToolCall", "Usage"]

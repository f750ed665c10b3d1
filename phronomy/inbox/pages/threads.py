"""The conversations of the chat: whose they are, and where their pages are."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import quote

from phronomy.foundation.json_text import canonical

if TYPE_CHECKING:
    from phronomy.inbox.auth.identity import Identity


def own_threads(identity: Identity) -> str:
    """What the ids of somebody's conversations begin with: nobody else's do."""
    who = identity.principal
    return f"chat-{hashlib.sha256(canonical([who.kind, who.id]).encode()).hexdigest()[:16]}-"


def chat_path(thread_id: str, end: str = "") -> str:
    """The path of a conversation."""
    return f"/chat/{quote(thread_id, safe='')}{end}"

"""How a reply ended: which reasons of the providers say that it is whole. Pure.

The words are those of OpenAI, Anthropic, Gemini, Cohere, Bedrock, watsonx and the servers of open models. A word that is
not known here may be a new way to be cut off, so a reply that ends with it does not count as whole.
"""

from __future__ import annotations

import re
from typing import Final

from phronomy.models.base import ModelReply

_CALLS: Final = frozenset({"function_call", "tool_call", "tool_calls", "tool_use"})
_WHOLE: Final = _CALLS | {
    *("stop", "stop_sequence", "end_turn", "eos", "eos_token", "complete", "completed", "end_of_turn"),
}
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z_]{0,39}")


def is_end(reason: object) -> bool:
    """Say whether a reply that ended for this reason is whole."""
    return isinstance(reason, str) and reason.lower() in _WHOLE


def worse(one: str | None, other: str | None) -> str | None:
    """The reason of two by which a reply is not whole; the later one, if it is whole by both."""
    return one if other is None or (one is not None and not is_end(one)) else other


def why_incomplete(reply: ModelReply) -> str | None:
    """The reason why a reply is not whole; None if it is. A model that gives no reason gives whole replies.

    A reason that is no plain word is `"unknown"`: it may quote the request.
    """
    reason = reply.finish_reason
    if not reason or (is_end(reason) and (reply.message.tool_calls or reason.lower() not in _CALLS)):
        return None
    return reason if _WORD.fullmatch(reason) else "unknown"

"""How a reply that litellm has read ended, in the provider's own word. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from phronomy.foundation.json_text import JsonDict, JsonValue, object_of
from phronomy.models.base import ModelReply
from phronomy.models.endings import is_end


def native_end(response: Any, choice: JsonDict, body: JsonValue) -> object:
    """How a whole reply ended, in the provider's own word: litellm makes `stop` of what it does not know."""
    fields = getattr(response.choices[0], "provider_specific_fields", None)
    answer = object_of(body)
    said = (
        choice.get("finish_reason"),
        *(answer.get(name) for name in ("stop_reason", "stopReason", "done_reason", "finish_reason")),
        fields.get("native_finish_reason") if isinstance(fields, dict) else None,
    )
    return next((reason for reason in said if isinstance(reason, str) and reason), None)


def ended(reply: ModelReply, native: object) -> ModelReply:
    """The reply with the provider's own word for its end, if the reply is not whole by that, but is by litellm's word."""
    if not isinstance(native, str) or not native or is_end(native) or not is_end(reply.finish_reason):
        return reply
    return replace(reply, finish_reason=native)

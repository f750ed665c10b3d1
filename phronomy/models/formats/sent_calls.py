"""How the calls of a history are sent back: valid for every provider, whatever a model wrote. Pure.

The record keeps each call as it came. On the wire, arguments are the text of a JSON object, a name has the letters that
providers allow, and an id is not empty and not too long: a provider that refuses one of them refuses every later request
of the thread. What is valid already goes back byte for byte.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final

from phronomy.foundation.json_text import JsonError, clean, encoded, parse

ID_LENGTH: Final = 40
"""How long an id of a call is in chat completions, at most: OpenAI refuses a longer one."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_LETTER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_SIGNED: Final = "__thought__"  # gateways of litellm put the signature of a thought behind an id, and need it back
_SHORT: Final = 4_000  # characters; a longer text is looked at anew each time, and not kept


def sent_name(name: str) -> str:
    """The name of a call as it is sent: at most 64 letters, digits, `_` and `-`."""
    return name if _NAME.fullmatch(name) else _NO_LETTER.sub("_", name)[:64] or "_"


def sent_id(id: str, length: int = ID_LENGTH) -> str:
    """The id of a call as it is sent, in the call and in its result: a digest of one that is too long."""
    return id if len(id) <= length or _SIGNED in id else _digest(id)


def sent_plain_id(id: str) -> str:
    """The id of a call as it is sent where it has the letters of a name: a digest of any other."""
    return id if _NAME.fullmatch(id) else _digest(id)


def _digest(id: str) -> str:
    return f"call_{sha256(clean(id).encode()).hexdigest()[:32]}"


def sent_arguments(text: str) -> str:
    """The arguments of a call as they are sent: the model's own text if it is a JSON object, else `{}`."""
    return _object(text) if len(text) <= _SHORT else _object.__wrapped__(text)


@lru_cache(maxsize=1_024)  # a conversation goes out whole with each call
def _object(text: str) -> str:
    try:
        value = parse(text)
    except JsonError:
        return "{}"
    if not isinstance(value, dict):
        return "{}"
    # An escape may name half a character, which no provider reads.
    written = encoded(value) if "\\ud" in text.lower() else ""
    return text if clean(written) == written else clean(written)

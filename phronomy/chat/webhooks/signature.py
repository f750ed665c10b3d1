"""The signature of Standard Webhooks 1.0.0: HMAC-SHA256 over the id, the time and the raw body.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md. The library for Python raises other errors
than its own on hostile signatures and bodies, and knows only the clock of the machine, so this is ours. Tests compare the two.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from phronomy.chat.http import Refused

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
"""The names of the three headers."""

WINDOW: Final = 300.0
"""Seconds that a request may be old, or early."""

_PREFIX: Final = "whsec_"
_SHORTEST, _LONGEST = 24, 64
_ID: Final = re.compile(r"[!-\-/-~]{1,200}")
"""Ids that count: ASCII that can be seen. A dot would let the border between an id and a time be moved under one signature."""
_TIME: Final = re.compile(r"[0-9]{1,12}")
_MOST: Final = 16
"""The most signatures of a request that are compared."""


def new_secret() -> str:
    """A new secret, from the operating system's source of chance: `whsec_` and 32 bytes in base64."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """The key of a secret: 24 to 64 bytes in base64, after `whsec_` or without it. Raises `ValueError`, which does not quote it."""
    text = secret.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a secret is base64, after whsec_") from None
    if not _SHORTEST <= len(key) <= _LONGEST:
        raise ValueError(f"a secret has {_SHORTEST} to {_LONGEST} bytes")
    return key


def sign(keys: Iterable[bytes], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers for a body, with a signature of each key."""
    signatures = " ".join(_signature(key, id, str(timestamp), body) for key in keys)
    return {ID: id, TIMESTAMP: str(timestamp), SIGNATURE: signatures}


def verify(keys: Mapping[str, Sequence[bytes]], headers: Mapping[str, str], body: bytes, *, now: float) -> str:
    """The name of whoever has signed a request, by their keys; names of headers in small letters.

    Raises `Refused` for what nobody has signed, and for what is more than 5 minutes old or early.
    """
    id, timestamp = headers.get(ID, ""), headers.get(TIMESTAMP, "")
    if not _ID.fullmatch(id) or not _TIME.fullmatch(timestamp):
        raise Refused(401, "no signature of a webhook", check="the secrets of both sides")
    # As bytes: the comparison of texts raises on what is not ASCII.
    given = [each.encode("utf-8", "surrogatepass") for each in headers.get(SIGNATURE, "").split(" ", _MOST)[:_MOST]]
    found: str | None = None
    for name, own in keys.items():
        for key in own:
            wanted = _signature(key, id, timestamp, body).encode()
            # All are compared, so that the time tells nothing of which one fits.
            if sum(hmac.compare_digest(wanted, each) for each in given):
                found = name
    if found is None:
        raise Refused(401, "no signature of a webhook", check="the secrets of both sides")
    if abs(now - int(timestamp)) > WINDOW:
        raise Refused(401, "too old", check="the clock of this machine")
    return found


def _signature(key: bytes, id: str, timestamp: str, body: bytes) -> str:
    whole = f"{id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, whole, hashlib.sha256).digest()).decode()

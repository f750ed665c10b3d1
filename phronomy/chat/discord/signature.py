"""The signature of Discord: Ed25519 over the time and the raw body, with the key of the app.

https://docs.discord.com/developers/interactions/overview#setting-up-an-endpoint-validating-security-request-headers. Discord names no
age at which a request is too old, so the window is ours. It sends wrong signatures on purpose, and takes the address away from whoever
does not answer them with 401.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from phronomy.chat.http import Refused
from phronomy.errors import ConfigurationError

WINDOW: Final = 300.0
"""Seconds that a request may be old, or early."""

_CHECK: Final = "public_key, unless other requests of Discord are taken: it sends wrong signatures on purpose"
_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")
_SIGNATURE: Final = re.compile(r"[0-9a-fA-F]{128}")
_TIME: Final = re.compile(r"[0-9]{1,12}")


def public_key(text: str) -> Ed25519PublicKey:
    """The key of an app, as the settings of the app have it: 64 hexadecimal digits. Raises `ConfigurationError`."""
    if not isinstance(text, str) or _KEY.fullmatch(text) is None:
        raise ConfigurationError("public_key has 64 hexadecimal digits: the settings of the Discord app have it")
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))


def verify(key: Ed25519PublicKey, headers: Mapping[str, str], body: bytes, *, now: float) -> None:
    """Refuse what Discord has not signed in the last minutes; names of headers in small letters. Raises `Refused`."""
    timestamp, given = headers.get("x-signature-timestamp", ""), headers.get("x-signature-ed25519", "")
    if _TIME.fullmatch(timestamp) is None or _SIGNATURE.fullmatch(given) is None:
        raise Refused(401, "no signature of Discord", check=_CHECK)
    try:
        key.verify(bytes.fromhex(given), timestamp.encode() + body)
    except InvalidSignature:
        raise Refused(401, "no signature of Discord", check=_CHECK) from None
    if abs(now - int(timestamp)) > WINDOW:
        raise Refused(401, "too old", check="the clock of this machine")

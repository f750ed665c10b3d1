"""The signature of Slack: version v0, HMAC-SHA256 over the time and the raw body.

https://docs.slack.dev/authentication/verifying-requests-from-slack. The SDK's own verifier raises on hostile input, so this is ours.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from phronomy.chat.http import Refused

WINDOW: Final = 300.0
"""Seconds that a request may be old, or early."""


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The value of `X-Slack-Signature`."""
    whole = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), whole, hashlib.sha256).hexdigest()


def verify(secret: str, headers: Mapping[str, str], body: bytes, *, now: float) -> None:
    """Refuse what Slack has not signed in the last minutes; names of headers in small letters. Raises `Refused`."""
    timestamp, given = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise Refused(401, "no signature of Slack", check="signing_secret")
    wanted = sign(secret, timestamp, body)
    # As bytes: the comparison of texts raises on what is not ASCII.
    if not hmac.compare_digest(wanted.encode(), given.encode("utf-8", "surrogatepass")):
        raise Refused(401, "no signature of Slack", check="signing_secret")
    if abs(now - int(timestamp)) > WINDOW:
        raise Refused(401, "too old", check="the clock of this machine")

"""The keys that tokens are signed with, by their ids, and the two forms of what they sign."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

from phronomy.errors import ConfigurationError, TokenInvalid
from phronomy.foundation.quoting import quoted

SHORTEST: Final = 32
"""Bytes of a key. An HMAC with SHA-256 is as strong as its key, up to this length."""

_KEY_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_JWT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}")
_LONGEST: Final = 8_192
"""Characters of a JWT. What is longer was not made here, and is not even looked at."""

# Not the type of every JWT: where somebody signs other tokens with the same key, none of them is taken for one of these.
_TYPE: Final = "phronomy-token+jwt"
_ALGORITHM: Final = "HS256"
_MAC: Final = 16
_LABEL: Final = "phronomy token 1"
"""What the short form signs begins with it, so that it is the signature of nothing else."""


def base64url(data: bytes) -> str:
    """The bytes as base64url, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes | None:
    """The bytes of this text, None if it is not exactly what `base64url` makes of some."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    # Python passes over characters that do not belong there, and over bits that are left at the end: one token would
    # have many texts.
    return data if base64url(data) == text else None


class Keys:
    """Keys by their ids: `current` signs, and each verifies what it has signed, until it is taken out."""

    def __init__(self, keys: Mapping[str, bytes | str], current: str) -> None:
        if not isinstance(keys, Mapping) or not keys:
            raise ConfigurationError('keys is a mapping of ids to secrets, such as {"2026-11": secret}')
        found: dict[str, bytes] = {}
        for id, key in keys.items():
            if not isinstance(id, str) or not _KEY_ID.fullmatch(id):
                raise ConfigurationError(
                    "the id of a key is 1 to 64 letters, digits, dots, dashes and underscores: it can be read in each token"
                )
            secret = key.encode() if isinstance(key, str) else key
            if not isinstance(secret, bytes) or len(secret) < SHORTEST:
                # Neither the key nor its length: the one is a secret, and the other tells about it.
                raise ConfigurationError(
                    f"key {id!r} is a secret of at least {SHORTEST} random bytes, such as secrets.token_bytes({SHORTEST})"
                )
            found[id] = secret
        if current not in found:
            raise ConfigurationError(f"current is the id of the key that signs, one of keys, not {quoted(current)}")
        self._keys = found
        self.current = current

    def __repr__(self) -> str:
        return f"Keys(current={self.current!r}, ids={sorted(self._keys)})"

    def mac(self, key_id: str, *parts: str) -> bytes | None:
        """The truncated HMAC-SHA256 of these parts with a key, None if there is no such key."""
        key = self._keys.get(key_id)
        if key is None:
            return None
        # Each part with its length before it: no two lists of parts are the same bytes.
        signed = "".join(f"{len(part)}:{part}" for part in (_LABEL, key_id, *parts))
        return hmac.new(key, signed.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()[:_MAC]

    def is_mac(self, given: bytes, key_id: str, *parts: str) -> bool:
        """Whether this is the HMAC of these parts, in a time that does not depend on where it differs."""
        known = self.mac(key_id, *parts)
        return known is not None and hmac.compare_digest(known, given)

    def sign(self, claims: Mapping[str, object]) -> str:
        """A JWT of these claims. Raises `ConfigurationError` if PyJWT is missing, or does not take the key."""
        jwt = _library()
        headers = {"kid": self.current, "typ": _TYPE}
        try:
            text: str = jwt.encode(dict(claims), self._keys[self.current], algorithm=_ALGORITHM, headers=headers)
        except jwt.InvalidKeyError:  # the text of a public key, say
            failure = ConfigurationError(f"key {self.current!r} is a secret of random bytes, and no key of a key pair")
        else:
            return text
        raise failure

    def claims(self, text: str) -> dict[str, Any]:
        """The claims of a JWT that was signed here. Raises `TokenInvalid` for any other text."""
        jwt = _library()
        if len(text) > _LONGEST or not _JWT.fullmatch(text) or from_base64url(text[-43:]) is None:
            raise invalid()
        try:
            header = jwt.get_unverified_header(text)
            # As it was made, to the last field. The algorithm is not taken from the token, and nothing else in it says
            # how it is to be read.
            if set(header) != {"alg", "kid", "typ"} or (header["alg"], header["typ"]) != (_ALGORITHM, _TYPE):
                raise invalid()
            key = self._keys.get(header["kid"])
            if key is None:
                raise invalid()
            # Times are judged by the clock of the store, and not by that of the library.
            claims = jwt.decode(text, key, algorithms=[_ALGORITHM], options=_OPTIONS)
        except Exception:  # of whatever kind: JSON that is too deep, numbers that are too long, what is no text
            failure = invalid()
        else:
            found: dict[str, Any] = claims
            return found
        raise failure


_OPTIONS: Final = {f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")} | {
    "verify_signature": True
}


def invalid() -> TokenInvalid:
    """The error for a token that says nothing that could be believed."""
    return TokenInvalid(
        "this token does not count: it was not made here, or for another purpose or tenant, its key was taken out, or it is long over"
    )


def _library() -> ModuleType:
    try:
        import jwt  # noqa: PLC0415  # most programs make no tokens, and the short form needs no library
    except ImportError:
        raise ConfigurationError("long tokens need PyJWT: pip install 'phronomy[tokens]'") from None
    return jwt

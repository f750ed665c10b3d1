"""The keys of a fake Bot Connector, and its tokens: right ones, and each kind of wrong one.

It signs by `cryptography` alone, so that the code which checks is not tested by itself.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeAlias

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

Way: TypeAlias = Literal["RS256", "HS256", "none"]
"""How a token is signed: by the key, by a secret that is the public key, or not at all."""


@cache
def key_of(number: int) -> rsa.RSAPrivateKey:
    """The key with this number: it takes a while to make one, so tests of one process share them."""
    assert number >= 0
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


def published(number: int, kid: str, endorsements: list[str]) -> dict[str, Any]:
    """The public part of a key, as the connector publishes it."""
    public = key_of(number).public_key().public_numbers()
    return {
        "kty": "RSA",
        "use": "sig",
        "kid": kid,
        "x5t": kid,
        "n": base64url(public.n.to_bytes(256)),
        "e": base64url(public.e.to_bytes(3)),
        "endorsements": endorsements,
    }


def token_of(number: int, header: Mapping[str, Any], claims: Mapping[str, Any], way: Way = "RS256") -> str:
    """A token with these claims."""
    head = {"typ": "JWT", "alg": way, **header}
    text = f"{base64url(json.dumps(head).encode())}.{base64url(json.dumps(claims).encode())}"
    if way == "none":
        return f"{text}."
    key = key_of(number)
    if way == "RS256":
        return f"{text}.{base64url(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"
    format = serialization.PublicFormat.SubjectPublicKeyInfo
    public = key.public_key().public_bytes(serialization.Encoding.PEM, format)
    return f"{text}.{base64url(hmac.digest(public, text.encode(), hashlib.sha256))}"


def base64url(data: bytes) -> str:
    """Bytes as base64url, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

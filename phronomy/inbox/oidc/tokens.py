"""What an ID token must say before anybody is signed in by it (OpenID Connect Core 1.0, section 3.1.3.7).

The header of a token is written by whoever sends it. It only chooses: among the algorithms that are allowed here, and among the keys
that the provider publishes.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Collection
from typing import Final

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

from phronomy.foundation.checks import is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, list_of, parse, text_of
from phronomy.inbox.problems import Problem

ALGORITHMS: Final[dict[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "Ed25519": "OKP",
}
"""The algorithms that may be allowed, each with the type of its keys. With those of shared secrets, such as HS256, the published key of
a provider would do to sign with."""

_PUBLIC: Final[dict[str, tuple[str, ...]]] = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""The members of a key that are read: whatever else a provider publishes, such as a certificate or a private key, is not."""

_CLASSES: Final[dict[str, type[RSAKey] | type[ECKey] | type[OKPKey]]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}

_RSA_BITS: Final = range(2_048, 8_193)
_MOST_KEYS: Final = 100
_LONGEST_HEADER: Final = 4_096
_LONGEST_SUBJECT: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A key that a provider publishes to check its signatures with: its id, and the one algorithm that it is for, if it says so."""

    id: str | None
    type: str
    algorithm: str | None
    key: RSAKey | ECKey | OKPKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an ID token has to say. Times are seconds; `now` is the time of the store's clock."""

    issuer: str
    client_id: str
    nonce: str
    max_age: int | None
    now: float
    leeway: float


class UnknownKey(Exception):
    """No key that is known has signed the token: the provider may have a new one."""


def keys_in(document: JsonDict) -> tuple[SigningKey, ...]:
    """The keys of a JWK Set (RFC 7517) that can check a signature. Others are left out: a set may have keys for all kinds of uses."""
    found = (_key(each) for each in list_of(document.get("keys"))[:_MOST_KEYS])
    return tuple(each for each in found if each is not None)


def claims_of(token: str, keys: Collection[SigningKey], algorithms: Collection[str], wanted: Wanted) -> JsonDict:
    """The claims of an ID token that is signed by one of these keys, and says what is wanted.

    Raises `UnknownKey`, and `Problem` for any other fault.
    """
    claims = _signed(token, keys, algorithms)
    _check_parties(claims, wanted)
    _check_times(claims, wanted)
    return claims


def refused(why: str) -> Problem:
    """The problem of an ID token that does not count. The reason never quotes the token."""
    return Problem(
        "sign-in-failed", f"What the provider said about you cannot be trusted: {why}. You are not signed in."
    )


def _signed(token: str, keys: Collection[SigningKey], algorithms: Collection[str]) -> JsonDict:
    """The payload of a token, once its signature is checked."""
    header = _header(token)
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise refused("its token is not signed with an algorithm that is allowed here")
    if "crit" in header or "b64" in header:  # of extensions (RFC 7515, 7797), which no ID token needs
        raise refused("its token demands what is not known here")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in ("jwt", "application/jwt"):
        raise refused("its token is of another kind")  # an access token, say, or one that ends a session
    fitting = [each for each in keys if _fits(each, algorithm, key_id)]
    if not fitting:
        raise UnknownKey
    if len(fitting) > 1:
        raise refused("it does not say which of its keys has signed its token")
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = _LONGEST_HEADER
    try:
        payload = jws.deserialize_compact(token, fitting[0].key, registry=registry).payload
        claims = parse(payload)
    except Exception:  # the libraries below raise much, for a key of another curve, say; none of it signs anybody in
        raise refused("the signature of its token is wrong") from None
    if not isinstance(claims, dict):
        raise refused("its token has no claims")
    return claims


def _header(token: str) -> JsonDict:
    """The header of a token, read with more care than by the library: it comes from outside, and nothing in it is checked yet."""
    text = token.partition(".")[0]
    try:
        if len(text) > _LONGEST_HEADER or not token.isascii():
            raise ValueError
        found = parse(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except ValueError:  # a JsonError is one
        found = None
    if not isinstance(found, dict):
        raise refused("its token cannot be read")
    return found


def _fits(key: SigningKey, algorithm: str, key_id: object) -> bool:
    named = key_id is None or key.id == key_id
    return named and key.type == ALGORITHMS[algorithm] and key.algorithm in (None, algorithm)


def _check_parties(claims: JsonDict, wanted: Wanted) -> None:
    """Who says it, of whom, to whom, and as an answer to which attempt."""
    if claims.get("iss") != wanted.issuer:
        raise refused("it is from another issuer")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if wanted.client_id not in audiences:
        raise refused("it is meant for another application")
    if claims.get("azp", None if len(audiences) > 1 else wanted.client_id) != wanted.client_id:
        raise refused("it was given to another application")
    if not hmac.compare_digest(text_of(claims.get("nonce")).encode("utf-8", "replace"), wanted.nonce.encode()):
        raise refused("it is not the answer to this attempt")
    subject = claims.get("sub")
    if (
        not isinstance(subject, str)
        or not 0 < len(subject) <= _LONGEST_SUBJECT
        or not (subject.isascii() and subject.isprintable())
    ):
        raise refused("it does not say who you are")


def _check_times(claims: JsonDict, wanted: Wanted) -> None:
    """When it was said, until when it holds, and when the person typed their password."""
    latest = wanted.now + wanted.leeway
    if not _time(claims, "exp") > wanted.now - wanted.leeway:
        raise refused("it is out of date")
    if _time(claims, "iat") > latest or ("nbf" in claims and _time(claims, "nbf") > latest):
        raise refused("it is from the future: one of the clocks is wrong")
    if wanted.max_age is not None:
        since = wanted.now - _time(claims, "auth_time")
        if not -wanted.leeway <= since <= wanted.max_age + wanted.leeway:
            raise refused("you have typed your password too long ago")


def _time(claims: JsonDict, name: str) -> float:
    found = claims.get(name)
    if not is_number(found):
        raise refused(f"the time {name} is missing")
    return found


def _key(given: object) -> SigningKey | None:
    """A published key; None if it is none that may check a signature."""
    if not isinstance(given, dict):
        return None
    kind, use, operations = text_of(given.get("kty")), given.get("use", "sig"), given.get("key_ops", ["verify"])
    if kind not in _PUBLIC or use != "sig" or "verify" not in list_of(operations):
        return None
    members = {"kty": kind, **{name: text_of(given.get(name)) for name in _PUBLIC[kind]}}
    if kind == "RSA" and _bits(members["n"]) not in _RSA_BITS:
        return None
    try:
        key = _CLASSES[kind].import_key(dict(members))
    except (
        Exception
    ):  # the libraries below raise much; a key that cannot be read checks nothing, and is as good as none
        return None
    key_id, algorithm = given.get("kid"), given.get("alg")
    return SigningKey(
        id=key_id if isinstance(key_id, str) else None,
        type=kind,
        algorithm=algorithm if isinstance(algorithm, str) else None,
        key=key,
    )


def _bits(number: str) -> int:
    """The length of a number that is written in base64url."""
    try:
        return int.from_bytes(base64.b64decode(number + "=" * (-len(number) % 4), b"-_", validate=True)).bit_length()
    except ValueError:
        return 0

"""The proof of the Bot Connector: a token with each request that says who sends it, for whom, and through which service.

The body is not signed. What is in it is from the connector as long as the token is secret, which TLS sees to. The data of our buttons
has a proof of its own.

The header of a token is written by whoever sends it. It only chooses among the keys that Microsoft publishes.
https://learn.microsoft.com/en-us/azure/bot-service/rest-api/bot-framework-rest-connector-authentication
"""

from __future__ import annotations

import base64
import logging
import re
import threading
from collections.abc import Callable, Mapping
from typing import Final

from joserfc import jws
from joserfc.jwk import RSAKey

from phronomy.chat.channel import ChannelError
from phronomy.chat.http import Refused
from phronomy.errors import Portable
from phronomy.foundation.checks import is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, list_of, object_of, parse, text_of

_log = logging.getLogger("phronomy")

CHANNEL: Final = "msteams"
"""The id of Teams among the channels of the connector: an activity names it, and the key must be endorsed for it."""

SKEW: Final = 300.0
"""Seconds by which clocks may differ."""

FRESH: Final = 3_600.0
KEPT: Final = 86_400.0
"""Seconds after which the keys are asked for again, and after which they count no more if nobody answers."""

RELOAD: Final = 60.0
RETRY: Final = 5.0
"""Seconds between two looks for keys, and between two if there is none yet: tokens with invented ids must not have us ask each time."""

_ALGORITHM: Final = "RS256"
_BITS: Final = range(2_048, 8_193)
_MOST_KEYS: Final = 100
_LONGEST: Final = 8_192
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class NoKeys(Portable, Exception):
    """The keys could not be asked for, so nothing can be proven now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A key that Microsoft publishes, and the channels for which whoever holds it may speak."""

    id: str
    endorsements: frozenset[str]
    key: RSAKey


class Keys:
    """The published keys, kept for an hour. `ask` gets the JSON object at an address; it raises `ChannelError`."""

    def __init__(self, metadata_url: str, ask: Callable[[str], JsonDict]) -> None:
        self._url = metadata_url
        self._ask = ask
        self._lock = threading.Lock()
        self._known: Mapping[str, SigningKey] = {}
        self._read_at: float | None = None
        self._asked_at: float | None = None

    def find(self, id: str, now: float) -> SigningKey | None:
        """The key with this id; None if there is none. Raises `NoKeys`."""
        if self._is_fresh(now) and (found := self._known.get(id)) is not None:
            return found
        with self._lock:
            if self._is_fresh(now) and (found := self._known.get(id)) is not None:
                return found  # somebody before us has asked
            if _since(self._asked_at, now) >= (RELOAD if self._known else RETRY):
                self._asked_at = now
                try:
                    self._known = self._read()
                    self._read_at = now
                except ChannelError as error:
                    _log.warning("the keys of the Bot Connector could not be read: %s", error)
            if _since(self._read_at, now) >= KEPT:
                raise NoKeys
            return self._known.get(id)

    def _is_fresh(self, now: float) -> bool:
        return _since(self._read_at, now) < FRESH

    def _read(self) -> dict[str, SigningKey]:
        address = text_of(self._ask(self._url).get("jwks_uri"))
        # Beside https, only what stands beside the metadata: a server of tests.
        if not address.startswith(("https://", self._url.rpartition("/")[0] + "/")):
            raise ChannelError("the metadata names no address of keys with https")
        keys = [_key(each) for each in list_of(self._ask(address).get("keys"))[:_MOST_KEYS]]
        return {each.id: each for each in keys if each is not None}


def service_of(authorization: str, keys: Keys, *, app_id: str, issuer: str, now: float) -> str:
    """The address of the service that sends a request, as its token proves it, without a slash at its end.

    `authorization` is the header. Raises `Refused` for all that is no token of the connector for this app and for Teams, and `NoKeys`.
    """
    token = authorization[7:].strip(" ") if authorization[:7].lower() == "bearer " else ""
    if len(token) > _LONGEST or not token.isascii() or _TOKEN.fullmatch(token) is None:
        raise _refused("no token")
    header, payload, signature = (_decoded(part) for part in token.split("."))
    if header is None or payload is None or signature is None:
        raise _refused("no token")
    head, claims = _object(header), _object(payload)
    kind, id = head.get("typ", "JWT"), head.get("kid")
    if head.get("alg") != _ALGORITHM or "crit" in head or "b64" in head or text_of(kind).upper() != "JWT":
        raise _refused("a token of another kind")
    if not isinstance(id, str) or not 0 < len(id) <= 200:
        raise _refused("a token that names no key")
    # Before any key is asked for: what is not for us is no reason to ask.
    _check(claims, app_id=app_id, issuer=issuer, now=now)
    key = keys.find(id, now)
    if key is None or not _is_signed(token, key.key):
        raise _refused("a token that Microsoft has not signed")
    if CHANNEL not in key.endorsements:
        raise _refused("a key that does not speak for Teams")
    return text_of(claims["serviceurl"]).rstrip("/")


def _check(claims: JsonDict, *, app_id: str, issuer: str, now: float) -> None:
    if claims.get("iss") != issuer:
        raise _refused("a token of another issuer")
    if claims.get("aud") != app_id:
        raise _refused("a token for another app")
    until, since = claims.get("exp"), claims.get("nbf", 0)
    if not is_number(until) or not is_number(since) or until <= now - SKEW or since > now + SKEW:
        raise _refused("a token that is not valid now")
    if not text_of(claims.get("serviceurl")):
        raise _refused("a token that names no service")


def _is_signed(token: str, key: RSAKey) -> bool:
    registry = jws.JWSRegistry(algorithms=[_ALGORITHM], strict_check_header=False)
    registry.max_header_length = registry.max_payload_length = _LONGEST
    try:
        jws.deserialize_compact(token, key, registry=registry)
    except Exception:  # the libraries below raise much; none of it proves anything
        return False
    return True


def _refused(why: str) -> Refused:
    return Refused(401, f"not from Teams: {why}", check="app_id and tenant_id")


def _decoded(part: str) -> bytes | None:
    """The bytes of base64url, if this is the one way to write them: no token has a second text."""
    try:
        found = base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True)
    except ValueError:
        return None
    return found if base64.urlsafe_b64encode(found).rstrip(b"=") == part.encode() else None


def _object(text: bytes) -> JsonDict:
    try:
        return object_of(parse(text))
    except ValueError:  # a JsonError is one
        return {}


def _key(given: object) -> SigningKey | None:
    """A published key; None if it is none that signs with RS256."""
    found = object_of(given)
    id, modulus, exponent = (text_of(found.get(name)) for name in ("kid", "n", "e"))
    if (
        found.get("kty") != "RSA"
        or found.get("use", "sig") != "sig"
        or found.get("alg", _ALGORITHM) != _ALGORITHM
        or not id
    ):
        return None
    number = _decoded(modulus)
    if number is None or int.from_bytes(number).bit_length() not in _BITS:
        return None
    try:
        key = RSAKey.import_key({"kty": "RSA", "n": modulus, "e": exponent})
    except Exception:  # a key that cannot be read is as good as none
        return None
    endorsed = frozenset(each for each in list_of(found.get("endorsements")) if isinstance(each, str))
    return SigningKey(id=id, endorsements=endorsed, key=key)


def _since(then: float | None, now: float) -> float:
    """Seconds since then; beyond every limit if there was no such time, or the clock was set back."""
    return now - then if then is not None and now >= then else float("inf")

"""The provider as the inbox talks to it: where its endpoints are, which keys it signs with, and what it gives for a code.

Nothing that it answers is trusted beyond its use. An answer has a limit of time and of size, is JSON that is read strictly, and is no
redirect. No word of it is shown to anybody. What is known of the provider is kept in this process for some minutes.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote_plus, urlsplit
from weakref import WeakKeyDictionary

import httpx2

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, JsonError, list_of, parse, text_of
from phronomy.inbox.oidc.tokens import SigningKey, keys_in
from phronomy.inbox.problems import Problem

if TYPE_CHECKING:
    from ssl import SSLContext

FRESH: Final = 600.0
"""Seconds for which the endpoints and keys of a provider are kept: one that it withdraws counts no longer than that."""

RELOAD: Final = 60.0
"""Seconds between two looks for a key that is not known: tokens with invented key ids must not have us call the provider each time."""

RETRY: Final = 5.0
"""Seconds after a failure in which the provider is not asked again where its endpoints are."""

LARGEST: Final = 262_144
"""Bytes of the largest answer that is read."""

Clock: TypeAlias = Callable[[], float]
"""Says the time, in seconds since the epoch."""

_LONGEST_URL: Final = 2_000
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_JSON: Final = ("application/json", "application/jwk-set+json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a provider says of itself (OpenID Connect Discovery 1.0): its endpoints, and how it knows its clients.

    `names_issuer` is true if each of its answers names the issuer (RFC 9207).
    """

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    auth_methods: tuple[str, ...]
    names_issuer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What a provider gives for a code."""

    id_token: str = field(repr=False)
    access_token: str | None = field(repr=False)


class Provider:
    """A provider, by its issuer. `timeout` is in seconds, for each request to it."""

    def __init__(self, issuer: str, client_id: str, client_secret: str | None, *, timeout: float) -> None:
        self.issuer = issuer
        self._client_id = client_id
        self._secret = client_secret
        self._timeout = timeout
        self._known: tuple[float, Metadata] | None = None
        self._keys: tuple[float, tuple[SigningKey, ...]] | None = None
        self._failed_at: float | None = None
        self._reloaded_at: float | None = None
        # A lock belongs to one event loop, and an application may be served by several, each in a thread of its own.
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Provider({self.issuer!r})"

    async def metadata(self, clock: Clock) -> Metadata:
        """What the provider says of itself. Raises `Problem`."""
        async with self._lock():
            now = clock()  # once it is our turn: somebody before us may have waited long, and in vain
            if self._known is not None and _since(self._known[0], now) < FRESH:
                return self._known[1]
            if _since(self._failed_at, now) < RETRY:
                raise unreachable("it failed a moment ago")
            try:
                found = self._metadata_in(await self._get(self._discovery))
            except Problem:
                self._failed_at = clock()
                raise
            self._known = (now, found)
            return found

    async def keys(self, clock: Clock) -> tuple[SigningKey, ...]:
        """The keys of the provider, as they were some minutes ago at most. Raises `Problem`."""
        uri = (await self.metadata(clock)).jwks_uri
        async with self._lock():
            now = clock()
            if self._keys is None or _since(self._keys[0], now) >= FRESH:
                self._keys = (now, keys_in(await self._get(uri)))
            return self._keys[1]

    async def newer_keys(self, than: tuple[SigningKey, ...], clock: Clock) -> tuple[SigningKey, ...]:
        """The keys of the provider, if there are newer ones: it is asked for them once a minute at most. Raises `Problem`."""
        uri = (await self.metadata(clock)).jwks_uri
        async with self._lock():
            now = clock()
            if self._keys is None or (self._keys[1] is than and _since(self._reloaded_at, now) >= RELOAD):
                self._reloaded_at = now  # before the answer: a provider that fails is not asked again at once either
                self._keys = (now, keys_in(await self._get(uri)))
            return self._keys[1]

    async def exchange(self, code: str, *, verifier: str, redirect_uri: str, clock: Clock) -> Tokens:
        """The tokens that the provider gives for a code. Raises `Problem`."""
        metadata = await self.metadata(clock)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers: dict[str, str] = {}
        if self._secret is None:
            form["client_id"] = self._client_id
        elif "client_secret_basic" in metadata.auth_methods:
            headers["Authorization"] = _basic(self._client_id, self._secret)
        elif "client_secret_post" in metadata.auth_methods:
            form |= {"client_id": self._client_id, "client_secret": self._secret}
        else:
            raise unreachable("it takes no client secret")
        status, answer = await self._ask("POST", metadata.token_endpoint, form=form, headers=headers)
        if status != 200:
            raise _not_exchanged(text_of(answer.get("error")))
        id_token, access_token = answer.get("id_token"), answer.get("access_token")
        if not isinstance(id_token, str):
            raise unreachable("it gave no ID token")
        return Tokens(id_token=id_token, access_token=access_token if isinstance(access_token, str) else None)

    async def userinfo(self, access_token: str | None, subject: str, clock: Clock) -> JsonDict:
        """What the provider tells whoever has the access token about the person whom the ID token names. Raises `Problem`."""
        url = (await self.metadata(clock)).userinfo_endpoint
        if url is None or access_token is None or not (access_token.isascii() and access_token.isprintable()):
            raise unreachable("it has no UserInfo endpoint, or gave no access token for it")
        found = await self._get(url, {"Authorization": f"Bearer {access_token}"})
        if found.get("sub") != subject:  # an access token for somebody else was slipped in (OpenID Connect Core, 5.3.2)
            raise unreachable("its answers are about two people")
        return found

    @property
    def _discovery(self) -> str:
        return f"{self.issuer.removesuffix('/')}/.well-known/openid-configuration"

    def _metadata_in(self, document: JsonDict) -> Metadata:
        if document.get("issuer") != self.issuer:
            raise unreachable("it calls itself by another issuer than this server does")
        methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return Metadata(
            authorization_endpoint=self._endpoint(document, "authorization_endpoint"),
            token_endpoint=self._endpoint(document, "token_endpoint"),
            jwks_uri=self._endpoint(document, "jwks_uri"),
            userinfo_endpoint=self._endpoint(document, "userinfo_endpoint")
            if "userinfo_endpoint" in document
            else None,
            auth_methods=tuple(each for each in list_of(methods) if isinstance(each, str)),
            # Anything but false or nothing: what is announced badly is demanded as well.
            names_issuer=document.get("authorization_response_iss_parameter_supported", False) is not False,
        )

    def _endpoint(self, document: JsonDict, name: str) -> str:
        url = text_of(document.get(name))
        if not is_safe_url(url, loopback=self.issuer.startswith("http:")):
            raise unreachable(f"its {name} is no https address")
        return url

    def _lock(self) -> asyncio.Lock:
        return self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    async def _get(self, url: str, headers: Mapping[str, str] | None = None) -> JsonDict:
        status, answer = await self._ask("GET", url, headers=headers or {})
        if status != 200:
            raise unreachable(f"it answered with the status {status}")
        return answer

    async def _ask(
        self, method: str, url: str, *, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> tuple[int, JsonDict]:
        """The status of an answer, and its JSON object. Raises `Problem`, never with a cause that could quote what was sent."""
        # No compression: a few bytes could become more than there is memory for, before they are counted.
        sent = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
        try:
            async with (
                httpx2.AsyncClient(verify=_tls(), timeout=None, follow_redirects=False) as client,
                asyncio.timeout(self._timeout),  # for all of it: a limit for each read would let it trickle for ever
                client.stream(method, url, headers=sent, data=form) as response,
            ):
                status, body = response.status_code, await _body(response)
        except TimeoutError:
            raise unreachable(f"it did not answer within {self._timeout:g} seconds") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError):
            raise unreachable("there is no connection to it") from None
        try:
            answer = parse(body)
        except JsonError:
            raise unreachable("its answer is no JSON") from None
        if not isinstance(answer, dict):
            raise unreachable("its answer is no JSON object")
        return status, answer


@cache
def _tls() -> SSLContext:
    """The authorities that are trusted, as the environment names them. To read them takes longer than a sign-in."""
    return httpx2.create_ssl_context()


async def _body(response: httpx2.Response) -> bytes:
    """The body of an answer that is JSON by its type. Raises `Problem`."""
    if response.is_redirect:
        raise unreachable("it answered with a redirect")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise unreachable("its answer is compressed")
    if response.headers.get("content-type", "").partition(";")[0].strip().lower() not in _JSON:
        raise unreachable(f"it answered with the status {response.status_code}, and no JSON")
    found = bytearray()
    async for chunk in response.aiter_raw():
        found += chunk
        if len(found) > LARGEST:
            raise unreachable("its answer is too large")
    return bytes(found)


def unreachable(why: str) -> Problem:
    """The problem of a provider that cannot be reached, or does not answer as one. The reason never quotes it."""
    return Problem("provider-unavailable", f"The provider cannot be asked who you are: {why}.")


def is_safe_url(url: str, *, loopback: bool) -> bool:
    """Whether this is an address with TLS, or with `loopback` one of this machine, without names, passwords and fragments."""
    if not (url.isascii() and url.isprintable()) or " " in url or "\\" in url or len(url) > _LONGEST_URL:
        return False
    try:
        parts = urlsplit(url)
        plain = loopback and parts.scheme == "http" and parts.hostname in _LOOPBACK
        bare = parts.username is None and parts.password is None and not parts.fragment and parts.port != 0
    except ValueError:  # a port that is none
        return False
    return bare and bool(parts.hostname) and (parts.scheme == "https" or plain)


def _basic(client_id: str, secret: str) -> str:
    """The header by which a client is known. Both parts are encoded first, as in a form (RFC 6749, section 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _not_exchanged(error: str) -> Problem:
    """The problem of a code that was not taken, by the name of the error (RFC 6749, section 5.2)."""
    if error == "invalid_grant":
        return Problem(
            "sign-in-failed", "The provider does not take its code back: it is used, too old, or of another."
        )
    if error in ("invalid_client", "unauthorized_client"):
        return unreachable("it does not know this server: the client id or the client secret is wrong")
    return unreachable("it refused to say who you are")


def _since(then: float | None, now: float) -> float:
    """Seconds since then; beyond every limit if there was no such time, or the clock was set back."""
    return now - then if then is not None and now >= then else float("inf")

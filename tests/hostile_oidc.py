"""An OpenID Connect provider on the loopback interface that does as it is told, and what no provider should.

By default it is a strict one: it checks redirect URIs, clients, secrets, codes and verifiers, and signs with its own key. A test
changes what it says: `metadata`, `header` and `claims` are laid over its own (None takes a member away), `answer` over what a browser
brings back. `token` makes the ID token, and `instead` replaces what an endpoint does. `seen` has what it was sent, and `secrets` what
nobody else may see.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode

import uvicorn
from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

Key = RSAKey | ECKey | OKPKey
Handler = Callable[[Request], Awaitable[Response]]

MARK = "<script>alert('from the provider')</script>"
"""What a hostile provider says wherever it may say anything: no page and no log has it."""

CLIENT, SECRET, ACCESS = "phronomy-inbox", "s3cret:with/odd&letters=%41+", "access-0123456789abcdef"


@cache
def rsa(name: str, bits: int = 2048) -> RSAKey:
    """A key of a name, made once: that takes long."""
    return RSAKey.generate_key(bits, {"kid": name, "use": "sig"})


@contextmanager
def serving(app: Any, listening: socket.socket | None = None) -> Iterator[str]:
    """The address of an ASGI application that is served in a thread."""
    listening = listening or socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, lifespan="off", ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
        assert not thread.is_alive()


@contextmanager
def sending(text: bytes) -> Iterator[str]:
    """The address of a server that says the same for ever, whatever it is asked."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, contextlib.suppress(OSError):
                    while True:
                        connection.sendall(text)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)
        assert not thread.is_alive()


NOW = 1_800_000_000.0
"""When the tests begin."""


class Clock:
    """The time that the store and the provider go by."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class HostileProvider:
    """The provider. `issuer` is its address; `clock` is the time in its tokens."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.reset()

    def reset(self) -> None:
        """Be the strict provider again, that has seen nothing."""
        self.clock: Callable[[], float] = time.time
        self.metadata: dict[str, Any] = {}
        self.header: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.told: dict[str, Any] = {}
        self.answer: dict[str, str | None] = {}
        self.secret: str | None = SECRET
        self.checks_verifier = True
        self.key: Key = rsa("first")
        self.published: list[dict[str, Any]] | None = None
        self.token: Callable[[dict[str, Any], dict[str, Any]], str] = self.signed
        self.instead: dict[str, Handler] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.seen: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self.secrets: list[str] = []

    def app(self) -> Starlette:
        """The provider as an application."""
        paths = {
            "discovery": "/.well-known/openid-configuration",
            "keys": "/keys",
            "authorize": "/authorize",
            "token": "/token",
            "userinfo": "/userinfo",
            "evil": "/evil",
        }
        return Starlette(
            routes=[
                Route(path, self._endpoint(name), methods=["POST" if name == "token" else "GET"])
                for name, path in paths.items()
            ]
        )

    def asked(self, name: str) -> int:
        """How often an endpoint was asked."""
        return [each for each, _, _ in self.seen].count(name)

    def sent(self, name: str) -> tuple[dict[str, str], dict[str, str]]:
        """The fields and the headers of the last request to an endpoint."""
        return next((fields, headers) for each, fields, headers in reversed(self.seen) if each == name)

    def _endpoint(self, name: str) -> Handler:
        async def endpoint(request: Request) -> Response:
            body = (await request.body()).decode()
            fields = dict(parse_qsl(body or request.url.query, keep_blank_values=True))
            self.seen.append((name, fields, dict(request.headers)))
            if name in self.instead:
                return await self.instead[name](request)
            return getattr(self, f"_{name}")(fields, request)  # type: ignore[no-any-return]

        return endpoint

    def _discovery(self, fields: dict[str, str], request: Request) -> Response:
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": True,
        }
        return JSONResponse(laid_over(found, self.metadata))

    def _keys(self, fields: dict[str, str], request: Request) -> Response:
        published = [public(self.key)] if self.published is None else self.published
        return JSONResponse({"keys": published})

    def _authorize(self, fields: dict[str, str], request: Request) -> Response:
        assert fields["response_type"] == "code" and fields["client_id"] == CLIENT
        assert fields["code_challenge_method"] == "S256" and "openid" in fields["scope"].split()
        code = secrets.token_urlsafe(24)
        self.codes[code] = fields
        self.secrets += [code, fields["nonce"], fields["state"]]
        answer = laid_over({"code": code, "state": fields["state"], "iss": self.issuer}, self.answer)
        return RedirectResponse(f"{fields['redirect_uri']}?{urlencode(answer)}", 302)

    def _token(self, fields: dict[str, str], request: Request) -> Response:
        asked = self.codes.pop(fields.get("code", ""), None)
        self.secrets += [fields[each] for each in ("code_verifier", "client_secret") if each in fields]
        if self._client(fields, request) != (CLIENT, self.secret):
            return JSONResponse({"error": "invalid_client", "error_description": MARK}, 401)
        if asked is None or asked["redirect_uri"] != fields.get("redirect_uri"):
            return JSONResponse({"error": "invalid_grant", "error_description": MARK}, 400)
        if self.checks_verifier and challenge_of(fields.get("code_verifier", "")) != asked["code_challenge"]:
            return JSONResponse({"error": "invalid_grant", "error_description": MARK}, 400)
        now = int(self.clock())
        claims = {
            "iss": self.issuer,
            "sub": "248289761001",
            "aud": CLIENT,
            "exp": now + 300,
            "iat": now,
            "nonce": asked["nonce"],
            "name": "Rita Ray",
            "email": "rita@example.org",
            "groups": ["lead", "refunds"],
        }
        if "max_age" in asked:
            claims["auth_time"] = now
        header = laid_over({"alg": "RS256", "kid": self.key.kid, "typ": "JWT"}, self.header)
        token = self.token(header, laid_over(claims, self.claims))
        self.secrets += [token, ACCESS]
        return JSONResponse({"id_token": token, "access_token": ACCESS, "token_type": "Bearer"})

    def _userinfo(self, fields: dict[str, str], request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {ACCESS}":
            return JSONResponse({"error": "invalid_token"}, 401)
        told = {"sub": "248289761001", "name": "Rita of the endpoint", "department": "refunds"}
        return JSONResponse(laid_over(told, self.told))

    def _evil(self, fields: dict[str, str], request: Request) -> Response:
        return JSONResponse({"issuer": self.issuer})

    def _client(self, fields: dict[str, str], request: Request) -> tuple[str, str | None]:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind == "Basic":
            name, _, password = base64.b64decode(given).decode().partition(":")
            return unquote_plus(name), unquote_plus(password)
        return fields.get("client_id", ""), fields.get("client_secret")

    def signed(self, header: dict[str, Any], claims: dict[str, Any]) -> str:
        """The token, signed with the provider's key."""
        return signed_by(self.key, header, claims)


def laid_over(found: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The members with these changes; None takes one away."""
    return {name: value for name, value in {**found, **changes}.items() if value is not None}


def public(key: Key, **more: Any) -> dict[str, Any]:
    """A key as it is published."""
    return {**key.as_dict(private=False), **more}


def challenge_of(verifier: str) -> str:
    """The challenge that belongs to a verifier (RFC 7636)."""
    return encoded(hashlib.sha256(verifier.encode()).digest())


def encoded(text: bytes) -> str:
    """Base64url, without padding."""
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def parts_of(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """What is signed of a token."""
    return f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(claims).encode())}"


def signed_by(key: Key, header: dict[str, Any], claims: dict[str, Any]) -> str:
    """A token with this header, whatever it says, signed with this key."""
    registry = jws.JWSRegistry(algorithms=[header["alg"]], strict_check_header=False)
    return jws.serialize_compact(header, json.dumps(claims), key, registry=registry)


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """A token that says that it needs no signature."""
    return parts_of({**header, "alg": "none"}, claims) + "."


def with_shared_secret(secret: bytes) -> Callable[[dict[str, Any], dict[str, Any]], str]:
    """Tokens that are signed with HS256, with what everybody can know: the published key."""

    def made(header: dict[str, Any], claims: dict[str, Any]) -> str:
        text = parts_of({**header, "alg": "HS256"}, claims)
        return f"{text}.{encoded(hmac.digest(secret, text.encode(), 'sha256'))}"

    return made


# What an endpoint may do instead of its work


async def fails(request: Request) -> Response:
    """A failure, with a page that says too much."""
    return Response(f"<h1>{MARK}</h1>", 500, media_type="text/html")


async def fails_in_json(request: Request) -> Response:
    """A failure that looks like an answer."""
    return JSONResponse({"error": MARK, "error_description": MARK, "error_uri": "https://evil.example"}, 500)


async def page(request: Request) -> Response:
    """An answer that is no JSON by its type."""
    return Response(json.dumps({"issuer": MARK}), media_type="text/html")


async def garbage(request: Request) -> Response:
    """An answer that is JSON by its type alone."""
    return Response(f'{{"issuer": "{MARK}', media_type="application/json")


async def a_list(request: Request) -> Response:
    """JSON, but no object."""
    return JSONResponse([MARK])


async def deep(request: Request) -> Response:
    """JSON that is nested until a reader runs out of stack."""
    return Response("[" * 100_000, media_type="application/json")


async def twice(request: Request) -> Response:
    """JSON in which two readers see two things."""
    return Response('{"issuer": "a", "issuer": "b", "id_token": "a", "id_token": "b"}', media_type="application/json")


async def redirects(request: Request) -> Response:
    """A way to somewhere else."""
    return RedirectResponse(str(request.url.replace(path="/evil")), 302)


async def huge(request: Request) -> Response:
    """An answer that does not end."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"issuer": "'
        while not await request.is_disconnected():
            yield b"x" * 65_536

    return StreamingResponse(chunks(), media_type="application/json")


@cache
def packed() -> bytes:
    """Much text in few bytes."""
    return gzip.compress(b'{"issuer": "' + b"x" * 20_000_000 + b'"}')


async def bomb(request: Request) -> Response:
    """A small answer that becomes a large one."""
    return Response(packed(), media_type="application/json", headers={"Content-Encoding": "gzip"})


async def never(request: Request) -> Response:
    """No answer."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response()


async def trickles(request: Request) -> Response:
    """An answer a byte at a time: there is always something to read."""

    async def chunks() -> AsyncIterator[bytes]:
        while not await request.is_disconnected():
            yield b" "
            await asyncio.sleep(0.02)

    return StreamingResponse(chunks(), media_type="application/json")


async def long_headers(request: Request) -> Response:
    """Headers that do not end."""
    return JSONResponse({}, headers={"X-Long": "x" * 1_000_000})


async def nothing(request: Request) -> Response:
    """A good status, and nothing else."""
    return Response(status_code=204)


async def other_letters(request: Request) -> Response:
    """JSON in letters that are not those of UTF-8."""
    return Response('{"issuer": "a"}'.encode("utf-16"), media_type="application/json; charset=utf-16")


async def hangs_up(request: Request) -> Response:
    """The connection ends in the middle of the answer."""
    return Response("{", media_type="application/json", headers={"Content-Length": "1000"})


BAD_ANSWERS: dict[Handler, str] = {
    fails: "with the status 500, and no JSON",
    fails_in_json: "",
    page: "with the status 200, and no JSON",
    garbage: "its answer is no JSON",
    a_list: "its answer is no JSON object",
    deep: "its answer is no JSON",
    twice: "its answer is no JSON",
    redirects: "it answered with a redirect",
    huge: "its answer is too large",
    bomb: "its answer is compressed",
    long_headers: "there is no connection to it",
    nothing: "with the status 204, and no JSON",
    other_letters: "its answer is no JSON",
    hangs_up: "there is no connection to it",
}
"""What no endpoint may answer, and the reason that a person is told."""

SLOW = (never, trickles)
"""Answers that nobody may wait for."""

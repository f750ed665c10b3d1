"""Adapters: `ChatApprovals.handle` as an application of ASGI or WSGI, or as a function of AWS Lambda.

Each reads the body as it came, byte for byte, since signatures cover it, and does `Response.after` once the response is sent.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Final, Protocol, TypeAlias

from phronomy.chat.http import LONGEST, Response, text_response

_log = logging.getLogger("phronomy")

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_TOO_LONG: Final = text_response(413, "too long")


class Handler(Protocol):
    """What answers: `ChatApprovals`."""

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """As `ChatApprovals.handle`."""
        ...


def asgi(handler: Handler) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """An ASGI application, for Starlette, FastAPI and others: `app.mount("/chat", asgi(approvals))`.

    The work is done in a thread, so the event loop goes on meanwhile.
    """

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        body = await _body(receive)
        if body is None:
            response = _TOO_LONG
        else:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            response = await asyncio.to_thread(handler.handle, scope["method"], scope["path"], headers, body)
        given = {**response.headers, "content-length": str(len(response.body))}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": raw})
        await send({"type": "http.response.body", "body": response.body})
        await asyncio.to_thread(finish, response)

    return application


async def _body(receive: Receive) -> bytes | None:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > LONGEST:
            return None
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


class _Sent:
    """The body of a WSGI response: a server calls `close` once it is sent."""

    def __init__(self, response: Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        yield self._response.body

    def close(self) -> None:
        """What is to be done after the response."""
        finish(self._response)


def wsgi(handler: Handler) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """A WSGI application, for Flask, Django and others, to be mounted by a dispatcher such as that of Werkzeug."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        headers = {
            name[5:].replace("_", "-"): str(value) for name, value in environ.items() if name.startswith("HTTP_")
        }
        headers["content-type"] = str(environ.get("CONTENT_TYPE", ""))
        length = str(environ.get("CONTENT_LENGTH") or "0")
        size = int(length) if length.isascii() and length.isdigit() else 0
        if size > LONGEST:
            response = _TOO_LONG
        else:
            body = environ["wsgi.input"].read(size)
            response = handler.handle(environ["REQUEST_METHOD"], environ.get("PATH_INFO", ""), headers, body)
        status = f"{response.status} {HTTPStatus(response.status).phrase}"
        start_response(status, [*response.headers.items(), ("content-length", str(len(response.body)))])
        return _Sent(response)

    return application


def aws_lambda(handler: Handler) -> Callable[[Mapping[str, Any], object], dict[str, Any]]:
    """A function of AWS Lambda, for function URLs and HTTP APIs of API Gateway (payload format 2.0).

    Lambda stops a function when it returns. So the messages are edited first, and what fails then is left to the outbox.
    """

    def function(event: Mapping[str, Any], context: object) -> dict[str, Any]:  # noqa: ARG001  # as Lambda calls it
        http = event.get("requestContext", {}).get("http", {})
        text = event.get("body") or ""
        try:
            body = base64.b64decode(text, validate=True) if event.get("isBase64Encoded") else text.encode()
        except (binascii.Error, ValueError):
            response = text_response(400, "not understood")
        else:
            given = {str(name): str(value) for name, value in (event.get("headers") or {}).items()}
            response = handler.handle(str(http.get("method", "")), str(event.get("rawPath", "")), given, body)
        finish(response)
        return {
            "statusCode": response.status,
            "headers": dict(response.headers),
            "body": base64.b64encode(response.body).decode(),
            "isBase64Encoded": True,
        }

    return function


def finish(response: Response) -> None:
    """Do what is to be done after a response. What fails is logged, and is done by the outbox later."""
    if response.after is None:
        return
    try:
        response.after()
    except Exception as error:
        _log.warning("what follows an answer to a chat has failed: %s", type(error).__name__)

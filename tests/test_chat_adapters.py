"""Approvals in chat apps inside web frameworks and functions: each gets the body byte for byte, and what follows is done after."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import pytest
from chat_scenes import RITA, approvals_of, asked, emptied, with_people
from fastapi import FastAPI

from phronomy import MemoryStore
from phronomy.chat import ChatApprovals, Response, asgi, aws_lambda, wsgi
from phronomy.chat.http import LONGEST
from phronomy.testing.chat import MinimalPlatform

Send = Callable[[str, str, Mapping[str, str], bytes], tuple[int, bytes]]


def by_asgi(handler: Any) -> Send:
    app = FastAPI()
    app.mount("/chat", asgi(handler))

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        async def ask() -> tuple[int, bytes]:
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
                answer = await client.request(method, path, headers=dict(headers), content=body)
                return answer.status_code, answer.content

        return asyncio.run(ask())

    return send


def by_wsgi(handler: Any) -> Send:
    app = wsgi(handler)

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        named = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
        started: list[str] = []
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
            **named,
        }
        found = app(environ, lambda status, headers: started.append(status))
        text = b"".join(found)
        found.close()  # type: ignore[attr-defined]
        return int(started[0].split()[0]), text

    return send


def by_lambda(handler: Any) -> Send:
    function = aws_lambda(handler)

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        event = {
            "version": "2.0",
            "rawPath": path,
            "requestContext": {"http": {"method": method}},
            "headers": dict(headers),
            "body": base64.b64encode(body).decode(),
            "isBase64Encoded": True,
        }
        found = function(event, None)
        return found["statusCode"], base64.b64decode(found["body"])

    return send


WAYS = pytest.mark.parametrize("way", [by_asgi, by_wsgi, by_lambda])


@WAYS
def test_a_click_decides_and_the_message_changes_after_the_answer(way: Callable[[Any], Send]) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform)
    item = asked(approvals, store)
    emptied(approvals, platform.clock)
    [shown] = platform.messages()
    sent = platform.sign(shown, "approve", RITA)
    assert way(approvals)("POST", sent.path, sent.headers, sent.body) == (200, b"{}")
    assert store.request(item.id).status == "decided" and platform.messages()[0].buttons == {}


@WAYS
def test_other_requests_are_refused(way: Callable[[Any], Send]) -> None:
    platform = MinimalPlatform()
    send = way(approvals_of(MemoryStore(clock=platform.clock), platform))
    assert send("GET", "/chat/minimal", {}, b"")[0] == 405
    assert send("POST", "/chat/other", {}, b"")[0] == 404
    assert send("POST", "/chat/minimal", {}, b"\xff\x00")[0] == 401
    assert send("POST", "/chat/minimal", {}, b"x" * (LONGEST + 1))[0] == 413


class Failing:
    """A handler after whose answers something fails."""

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        def after() -> None:
            raise OSError("the store is away")

        return Response(body=b"ok", after=after)


@WAYS
def test_what_fails_after_the_answer_is_logged(way: Callable[[Any], Send], caplog: pytest.LogCaptureFixture) -> None:
    assert way(Failing())("POST", "/chat/x", {}, b"") == (200, b"ok")
    assert "has failed: OSError" in caplog.text


def test_lambda_takes_plain_bodies_and_refuses_broken_ones() -> None:
    platform = MinimalPlatform()
    function = aws_lambda(approvals_of(MemoryStore(clock=platform.clock), platform))
    event = {"rawPath": "/minimal", "requestContext": {"http": {"method": "POST"}}, "body": "{}"}
    assert function(event, None)["statusCode"] == 401
    assert function({**event, "body": "%", "isBase64Encoded": True}, None)["statusCode"] == 400
    assert function({}, None)["statusCode"] == 404


def test_asgi_starts_and_stops() -> None:
    said: list[Any] = []
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        said.append(message["type"])

    app = asgi(Failing())
    asyncio.run(app({"type": "lifespan"}, receive, send))
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_store_that_fails_is_no_fault_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform)
    asked(approvals, store)
    emptied(approvals, platform.clock)
    [shown] = platform.messages()
    sent = platform.sign(shown, "approve", RITA)

    def away(*given: object, **more: object) -> None:
        raise OSError("away")

    monkeypatch.setattr(store, "decide", away)
    answer = approvals.handle("POST", sent.path, sent.headers, sent.body)
    assert answer.status == 503 and json.dumps(answer.body.decode()).find("away") == -1
    monkeypatch.undo()
    assert approvals.handle("POST", sent.path, sent.headers, sent.body).status == 200
    assert isinstance(approvals, ChatApprovals)

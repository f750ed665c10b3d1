"""The WebSocket of a fake Slack, for Socket Mode: it says hello, sends what people do, and waits until that is acknowledged."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, Final
from urllib.parse import parse_qs

from aiohttp import WSMsgType, web

from phronomy.testing.chat.platform import Sent
from phronomy.testing.chat.slack import FakeSlack

_PATIENCE: Final = 20.0


class FakeSocket:
    """The Socket Mode of a `FakeSlack`. Use it as a context, before a client connects."""

    def __init__(self, slack: FakeSlack) -> None:
        self._slack = slack
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connected = threading.Event()
        self._socket: web.WebSocketResponse | None = None
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._runner: web.AppRunner | None = None
        self._count = 0

    def __enter__(self) -> FakeSocket:
        self._thread.start()
        self._slack.socket_url = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(_PATIENCE)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def deliver(self, sent: Sent) -> dict[str, Any]:
        """Send what `FakeSlack` has signed over the socket: a click or an event. Returns the payload of the acknowledgement."""
        if sent.body.startswith(b"{"):
            event = json.loads(sent.body)
            return self.send({"type": "events_api", "payload": event, "accepts_response_payload": False})
        payload = json.loads(parse_qs(sent.body.decode())["payload"][0])
        return self.send({"type": "interactive", "payload": payload, "accepts_response_payload": True})

    def send(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Send an envelope, and wait until it is acknowledged."""
        assert self._connected.wait(_PATIENCE), "nobody is connected"
        return asyncio.run_coroutine_threadsafe(self._send(envelope), self._loop).result(_PATIENCE)

    async def _send(self, envelope: dict[str, Any]) -> dict[str, Any]:
        assert self._socket is not None
        self._count += 1
        id = f"envelope-{self._count}"
        self._waiting[id] = self._loop.create_future()
        await self._socket.send_json({"envelope_id": id, **envelope})
        return await asyncio.wait_for(self._waiting[id], _PATIENCE)

    async def _start(self) -> str:
        app = web.Application()
        app.router.add_get("/socket", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"ws://127.0.0.1:{self._runner.addresses[0][1]}/socket"

    async def _stop(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello", "num_connections": 1})
        self._socket = socket
        self._connected.set()
        async for message in socket:
            if message.type is WSMsgType.TEXT and message.data.startswith("{"):
                said = json.loads(message.data)
                waiting = self._waiting.pop(str(said.get("envelope_id")), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(said.get("payload") or {})
        return socket

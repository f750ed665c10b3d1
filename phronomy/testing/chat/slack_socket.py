"""The WebSocket of a fake Slack, for Socket Mode: it says hello, sends what people do, and waits until that is acknowledged."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import parse_qs

from aiohttp import WSMsgType, web

from phronomy.testing.chat.loopback_socket import PATIENCE, LoopbackSocket
from phronomy.testing.chat.platform import Sent
from phronomy.testing.chat.slack import FakeSlack


class FakeSocket(LoopbackSocket):
    """The Socket Mode of a `FakeSlack`. Use it as a context, before a client connects."""

    def __init__(self, slack: FakeSlack) -> None:
        self._slack = slack
        super().__init__()
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._count = 0

    def __enter__(self) -> FakeSocket:
        self._slack.socket_url = self._open()
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def deliver(self, sent: Sent) -> dict[str, Any]:
        """Send what `FakeSlack` has signed over the socket: a click or an event. Returns the payload of the acknowledgement."""
        if sent.body.startswith(b"{"):
            event = json.loads(sent.body)
            return self.send({"type": "events_api", "payload": event, "accepts_response_payload": False})
        payload = json.loads(parse_qs(sent.body.decode())["payload"][0])
        return self.send({"type": "interactive", "payload": payload, "accepts_response_payload": True})

    def send(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Send an envelope, and wait until it is acknowledged."""
        self._wait_for_client()
        return self._done(self._send(envelope))

    async def _send(self, envelope: dict[str, Any]) -> dict[str, Any]:
        assert self._socket is not None
        self._count += 1
        id = f"envelope-{self._count}"
        self._waiting[id] = self._loop.create_future()
        await self._socket.send_json({"envelope_id": id, **envelope})
        return await asyncio.wait_for(self._waiting[id], PATIENCE)

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

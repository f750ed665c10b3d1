"""The gateway of a fake Discord: it says hello, takes the token, and sends what people do. The answers come over HTTP.

https://docs.discord.com/developers/events/gateway
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import discord.gateway
import discord.http
from aiohttp import WSMsgType, web
from yarl import URL

from phronomy.testing.chat.discord.api import APPLICATION_ID, BOT, BOT_TOKEN
from phronomy.testing.chat.discord.fake import FakeDiscord
from phronomy.testing.chat.loopback_socket import PATIENCE, LoopbackSocket
from phronomy.testing.chat.platform import Sent

_DISPATCH, _HEARTBEAT, _IDENTIFY, _RESUME, _RECONNECT, _HELLO, _ACK = 0, 1, 2, 6, 7, 10, 11


class FakeGateway(LoopbackSocket):
    """The gateway of a `FakeDiscord`. Use it as a context, before a client connects.

    discord.py has no setting for the addresses of Discord: meanwhile, `discord.http.Route.BASE` and
    `discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY` are those of the fake, in the whole process. `opened` is how often a connection
    was opened, or resumed. Without `ready`, none ever is.
    """

    def __init__(self, discord: FakeDiscord, *, ready: bool = True) -> None:
        self._is_ready = ready
        self._discord = discord
        super().__init__()
        self._deflate: Any = None
        self._sequence = 0
        self._address = ""
        self._before = ("", URL())
        self.opened: int = 0

    def __enter__(self) -> FakeGateway:
        self._before = (discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY)
        self._address = self._open()
        discord.http.Route.BASE = self._discord.base_url
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = URL(self._address)
        self._discord.api.gateway_url = self._address
        return self

    def __exit__(self, *error: object) -> None:
        discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = self._before
        self._discord.api.gateway_url = None
        self._close()

    def deliver(self, sent: Sent, *, patience: float = PATIENCE) -> dict[str, Any]:
        """Send an interaction, as `FakeDiscord.sign` makes it, and wait for the answer, at most so many seconds; this returns it."""
        payload = json.loads(sent.body)
        self.send("INTERACTION_CREATE", payload)
        api = self._discord.api
        with api.answered:
            found = api.interactions[payload["id"]]
            assert api.answered.wait_for(lambda: found.answer is not None, patience), "nobody has answered"
            assert found.answer is not None
            return found.answer

    def send(self, event: str, data: dict[str, Any]) -> None:
        """Send an event."""
        self._wait_for_client()
        self._done(self._dispatch(event, data))

    def drop(self) -> None:
        """Ask the client to connect anew, as Discord does now and then, and wait until it has."""
        self._wait_for_client()
        self._connected.clear()
        self._done(self._say({"op": _RECONNECT, "d": None}))
        assert self._connected.wait(PATIENCE), "nobody has connected anew"

    async def _dispatch(self, event: str, data: dict[str, Any]) -> None:
        self._sequence += 1
        await self._say({"op": _DISPATCH, "t": event, "s": self._sequence, "d": data})

    async def _say(self, what: dict[str, Any]) -> None:
        assert self._socket is not None
        text = json.dumps(what)
        if self._deflate is None:
            await self._socket.send_str(text)
        else:
            packed = self._deflate.compress(text.encode()) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
            await self._socket.send_bytes(packed)

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._socket = socket
        # What asks for another compression than this one gets none: both are allowed.
        self._deflate = zlib.compressobj() if request.query.get("compress") == "zlib-stream" else None
        await self._say({"op": _HELLO, "t": None, "s": None, "d": {"heartbeat_interval": 41_250}})
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await self._heard(socket, json.loads(message.data))
        return socket

    async def _heard(self, socket: web.WebSocketResponse, said: dict[str, Any]) -> None:
        if said["op"] == _HEARTBEAT:
            await self._say({"op": _ACK, "d": None})
        elif said["op"] in (_IDENTIFY, _RESUME) and self._is_ready:
            if said["d"]["token"] != BOT_TOKEN:
                await socket.close(code=4004, message=b"Authentication failed.")
                return
            ready = {
                "v": 10,
                "user": BOT,
                "guilds": [],
                "session_id": "s1",
                "resume_gateway_url": self._address,
                "application": {"id": APPLICATION_ID, "flags": 0},
                "shard": [0, 1],
            }
            await self._dispatch(*(("READY", ready) if said["op"] == _IDENTIFY else ("RESUMED", {})))
            self.opened += 1
            self._connected.set()

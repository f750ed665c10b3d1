"""The WebSocket of a fake platform, on the loopback interface: it serves one client, in an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from aiohttp import web

T = TypeVar("T")

PATIENCE: Final = 20.0
"""Seconds for which anything is waited for."""


class LoopbackSocket:
    """Serves until it is closed. `_serve` answers who connects, sets `_socket`, and `_connected` once the client is there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connected = threading.Event()
        self._socket: web.WebSocketResponse | None = None
        self._runner: web.AppRunner | None = None

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        raise NotImplementedError

    def _open(self) -> str:
        """Begin to serve, and return the address."""
        self._thread.start()
        return self._done(self._start())

    def _close(self) -> None:
        self._done(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop, and return what comes of it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def _wait_for_client(self) -> None:
        assert self._connected.wait(PATIENCE), "nobody is connected"

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

"""A health check over HTTP: `GET /health` tells how a worker is, and nothing else is answered.

It has a thread and an event loop of its own, so that it answers also while the worker's loop is stuck, and a client that sends nothing,
or sends too much, costs the worker nothing. Nobody can ask it to do anything.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from phronomy.workers.health import Health

_SECONDS: Final = 5.0
"""How long a client may take to ask, and to take the answer."""

_MOST: Final = 8_192
"""The largest request, in bytes."""

_CLIENTS: Final = 128
"""So many clients at the same time. One more, and the one that has been there longest is sent away."""


_AT_ONCE: Final = 16
"""So many are let in in one turn of the loop."""


class HealthEndpoint:
    """Answers health checks of a worker at an address, from a thread of its own, until it is closed.

    The answer is 200 if `health().is_ok`, else 503, with the health as JSON, without the text of errors. Raises `OSError` if the
    address cannot be listened on.
    """

    def __init__(self, health: Callable[[], Health], host: str, port: int) -> None:
        self._health = health
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_AT_ONCE)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # in the order in which they came
        self._thread = threading.Thread(target=self._run, name="phronomy-health", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the health check is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/health"

    def close(self) -> None:
        """Answer no more."""
        with suppress(RuntimeError):  # it was closed before
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())  # leaving it cancels the clients that are there

    async def _serve(self) -> None:
        # As many are let in at once as are waiting: not more than can be sent away before the next ones.
        server = await asyncio.start_server(self._let_in, sock=self._socket, limit=_MOST, backlog=_AT_ONCE)
        await self._over.wait()
        # Nobody else is let in, and whoever is being let in gets there first: a server that is closed in between loses their
        # connection, and nobody would close it.
        self._loop.remove_reader(self._socket)
        coming = asyncio.all_tasks() - {asyncio.current_task(), *self._clients}
        await asyncio.gather(*coming, return_exceptions=True)
        server.close()
        for writer in self._clients.values():
            writer.transport.abort()

    def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Noted before its task has begun: one that is cancelled before that never gets to close its connection itself.
        task = asyncio.ensure_future(self._client(reader, writer))
        self._clients[task] = writer
        task.add_done_callback(self._left)
        while len(self._clients) > _CLIENTS:
            # Taken off the list here: it ends when its turn comes, and many may come before that. Its connection is not kept for
            # an answer that it does not read.
            oldest = next(iter(self._clients))
            self._clients.pop(oldest).transport.abort()
            oldest.cancel()

    def _left(self, task: asyncio.Task[None]) -> None:
        if (writer := self._clients.pop(task, None)) is not None:
            writer.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client, which has little time."""
        try:
            async with asyncio.timeout(_SECONDS):
                writer.write(await self._answer(reader))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass  # it went away, or was too slow: its connection is closed, and that is all

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        match head.partition(b"\r\n")[0].split(b" "):
            case [b"GET", target, version] if version.startswith(b"HTTP/1."):
                if target.partition(b"?")[0] != b"/health":
                    return _response(HTTPStatus.NOT_FOUND)
                health = self._health()
                status = HTTPStatus.OK if health.is_ok else HTTPStatus.SERVICE_UNAVAILABLE
                return _response(status, json.dumps(health.as_json()))
            case [_, _, version] if version.startswith(b"HTTP/1."):
                return _response(HTTPStatus.METHOD_NOT_ALLOWED, allow="Allow: GET\r\n")
            case _:
                return _response(HTTPStatus.BAD_REQUEST)


def _response(status: HTTPStatus, body: str | None = None, *, allow: str = "") -> bytes:
    """A whole response, after which the connection is closed."""
    text = body if body is not None else json.dumps({"error": status.phrase})
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        f"Cache-Control: no-store\r\n{allow}Connection: close\r\n\r\n"
    )
    return (head + text).encode("ascii")

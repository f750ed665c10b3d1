"""A server for an inbox in this process: over HTTP, on one's own machine, where a link of the terminal signs its owner in.

Another site can have its own name lead to this machine, and then ask with it: so requests under other names than those of the loopback
interface are refused. Cookies do not know ports, so the cookie of a session has the port in its name.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from phronomy.errors import ConfigurationError
from phronomy.inbox.app import Inbox
from phronomy.inbox.auth.identity import SCOPES
from phronomy.inbox.auth.one_time_link import OneTimeLink
from phronomy.inbox.auth.sessions import Sessions
from phronomy.records.principals import Principal
from phronomy.runs.runs import Runs
from phronomy.stores.base import Store
from phronomy.workers.worker import Worker

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
"""The hosts that only this machine reaches."""

CONNECTIONS: Final = 512
"""So many connections at the same time; whoever comes then is told to come back. Each browser has one for its events."""

GRACE: Final = 5
"""Seconds that open requests have to be answered once the server is stopped."""

HEADERS: Final = 10.0
"""Seconds for the headers of a request to arrive. The body has a limit of its own, in `visit.py`."""

HEADER_BYTES: Final = 65_536
"""Bytes after which headers that have not ended are refused."""

_HTTP: Final = 80


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0: one that is free. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=CONNECTIONS)


def address_of(listening: socket.socket, host: str) -> str:
    """The address of a server, for people."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"


def local_inbox(
    store: Store,
    agents: Sequence[Runs[Any, Any]],
    principal: Principal,
    *,
    url: str,
    port: int,
    announce: Callable[[str], object],
) -> tuple[Inbox, OneTimeLink]:
    """An inbox for one's own machine, and what makes its links. `announce` gets the path of each link that somebody asks for.

    Its one person may do all that can be done: start, cancel and operate runs only where there are agents.
    """
    link = OneTimeLink(store, principal, announce=announce)
    names = [f"[{each}]" if ":" in each else each for each in LOOPBACK]
    hosts = [f"{each}:{port}" for each in names] + (names if port == _HTTP else [])
    # No prefix and not secure: there is no TLS here. Strict: nothing outside of this machine leads to it.
    sessions = Sessions(store, cookie=f"phronomy-{port}", secure=False, same_site="strict")
    scopes = frozenset(SCOPES) if agents else frozenset(SCOPES) - {"start", "cancel", "operate"}
    inbox = Inbox(
        store,
        agents,
        link,
        public_url=url,
        scopes=lambda _: scopes,
        trusted_hosts=hosts,
        sessions=sessions,
    )
    return inbox, link


def check_host(inbox: Inbox, host: str) -> None:
    """Refuse to let others than this machine reach an inbox that only a link signs in to. Raises `ConfigurationError`."""
    if host not in LOOPBACK and any(isinstance(each, OneTimeLink) for each in inbox.site.auth):
        raise ConfigurationError(
            f"a one-time link is for one's own machine, and {host} is more than that: have the inbox sign people in"
            " by OIDC, a TrustedProxy or an Auth of your own"
        )


class TimedProtocol(H11Protocol):
    """HTTP over one connection, which is closed if a request does not come in time: uvicorn waits for ever for the first one.

    Half a request takes up one of the connections, of which there are so many.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request. Each further byte does not begin the time anew."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._rest()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._is_answering():
            self._rest()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEADERS, self._give_up)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self._is_answering():
            self.transport.close()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete


class Server(uvicorn.Server):
    """The HTTP server of one inbox. It believes no header of who asks, says nothing of itself, and logs no path."""

    def __init__(self, inbox: Inbox) -> None:
        super().__init__(
            uvicorn.Config(
                inbox,
                http=TimedProtocol,
                h11_max_incomplete_event_size=HEADER_BYTES,
                lifespan="off",
                ws="none",
                proxy_headers=False,  # the peer of the socket is what a TrustedProxy is known by
                server_header=False,
                access_log=False,  # the inbox has its own, without paths: they may have secrets
                log_config=None,
                limit_concurrency=CONNECTIONS,
                timeout_graceful_shutdown=GRACE,
            )
        )
        self._inbox = inbox

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `run`: the worker is to hear of them as well."""
        yield

    def stop(self) -> None:
        """Take no more requests, tell the streams that it is over, and end once what is open is answered."""
        self.should_exit = True
        self._inbox.end_streams()

    def leave(self) -> None:
        """End now."""
        self.force_exit = True


class WorkerThread:
    """A worker in a thread and an event loop of its own: what its tools do keeps no page waiting."""

    def __init__(self, worker: Worker, *, grace: float = 30.0) -> None:
        self.worker: Worker = worker
        self._grace = grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="phronomy-worker")
        self._thread.start()
        self._begun.wait()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._work())

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self.worker.arun(grace=self._grace))
        self._begun.set()
        with suppress(asyncio.CancelledError):
            await self._task

    def stop(self) -> None:
        """Take up nothing more, and end once what runs has come to rest."""
        self.worker.stop()

    def leave(self) -> None:
        """End now. The next worker recovers what runs."""
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # its loop has ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def ended(self) -> None:
        """Wait until it has ended."""
        await asyncio.to_thread(self._thread.join)


async def run(
    server: Server,
    listening: socket.socket,
    worker: WorkerThread | None,
    *,
    ready: Callable[[], object],
    leaving: Callable[[], object],
) -> None:
    """Serve until a signal says to stop; the second one leaves what is still open.

    Calls `ready` once signals are heard, and `leaving` at the first of them.
    """
    loop = asyncio.get_running_loop()
    told = 0

    def stop() -> None:
        nonlocal told
        told += 1
        for each in (server, worker):
            if each is not None:
                each.stop()
                if told > 1:
                    each.leave()
        if told == 1:
            leaving()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)
    ready()
    try:
        await server.serve(sockets=[listening])
    finally:
        if worker is not None:
            worker.stop()
            await worker.ended()

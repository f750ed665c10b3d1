"""The HTTP clients of one model: made on first use, kept, one for all threads and one for each event loop.

Sync calls go through httpx2. Async calls go through aiohttp: with 200 calls in flight its client takes 0.2 ms of CPU a
call, where httpx2 takes 3 (its pool looks at every connection for every request). Redirects are not followed, cookies not kept.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from http.cookiejar import CookieJar

    import aiohttp
    import httpx2

CONNECT_SECONDS = 10.0
READ_SECONDS = 600.0
"""How long a provider may take between two pieces of an answer, where no `timeout` is set."""


class Clients:
    """The clients of a model. After a fork the child makes its own, and leaves those of the parent alone."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None
        self._kept: dict[
            asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, AsyncGenerator[aiohttp.ClientSession]]
        ] = {}

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            # Not closed, nor let go of: the connections are the parent's, and closing one would end it for both.
            self._parents = (self._client, dict(self._kept), getattr(self, "_parents", None))
            self._begin()

    def client(self) -> httpx2.Client:
        """The sync client, which threads share."""
        import httpx2  # noqa: PLC0415  # loads on the first call

        self._check_process()
        with self._lock:
            if self._client is None:
                limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=60)
                self._client = httpx2.Client(
                    verify=self._tls(), limits=limits, follow_redirects=False, cookies=_no_cookies()
                )
                weakref.finalize(self, _close, self._client, os.getpid())
            return self._client

    def _tls(self) -> ssl.SSLContext | bool:
        """The check of certificates for an address over TLS. For any other no authorities are read: that alone would take 20 ms."""
        if self._url.startswith("https:"):
            return True
        import ssl  # noqa: PLC0415  # httpx2 has loaded it

        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    async def session(self) -> aiohttp.ClientSession:
        """The async client of the running loop. It is closed with the loop, as asynchronous generators are."""
        self._check_process()
        loop = asyncio.get_running_loop()
        for ended in [other for other in list(self._kept) if other.is_closed()]:
            self._kept.pop(ended, None)
        if (kept := self._kept.get(loop)) is None or kept[0].closed:
            keeper = _session(self._url)
            kept = self._kept[loop] = (await anext(keeper), keeper)  # lets no other task run meanwhile
        return kept[0]

    def close(self) -> None:
        """Close the sync client. The next call makes another."""
        self._check_process()
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the sync client, and the async client of the running loop."""
        self.close()
        if (kept := self._kept.pop(asyncio.get_running_loop(), None)) is not None:
            await kept[1].aclose()


async def _session(url: str) -> AsyncGenerator[aiohttp.ClientSession]:
    """A session that ends with its loop: `asyncio.run` closes every generator that was begun and has not ended."""
    import aiohttp  # noqa: PLC0415  # loads on the first call

    tls: ssl.SSLContext | bool = True
    if url.startswith("https:"):
        from httpx2 import create_ssl_context  # noqa: PLC0415  # one set of trusted authorities for both clients

        tls = create_ssl_context()
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ssl=tls)
    jar = aiohttp.DummyCookieJar()
    # Not `trust_env`: it asks for the proxy in a thread, twice in each call.
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar, proxy=_proxy(url)) as session:
        yield session


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for the address, as httpx2 reads it."""
    from urllib.parse import urlsplit  # noqa: PLC0415
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415

    parts, proxies = urlsplit(url), getproxies()
    if not proxies or proxy_bypass(parts.hostname or ""):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")


def _no_cookies() -> CookieJar:
    from http.cookiejar import CookieJar, DefaultCookiePolicy  # noqa: PLC0415

    return CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))


def _close(client: httpx2.Client, pid: int) -> None:
    if pid == os.getpid():
        client.close()

"""The HTTP clients of models: made on first use, kept, one for all threads and one for each event loop.

Sync calls go through httpx2. Async calls go through aiohttp: with 200 calls in flight its client takes 0.2 ms of CPU a
call, where httpx2 takes 3 (its pool looks at every connection for every request). Redirects are not followed, cookies not kept.

The models of a process share their sync client, where the same environment makes it: a client takes 0.5 ms to make, 20 ms with the
authorities of TLS, and each of its connections must be made too. Nothing of a model is in it: keys go with each request.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import AsyncGenerator, Mapping
from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from phronomy.foundation.lazy_modules import asyncio
from phronomy.models.http.proxies import proxy_for

if TYPE_CHECKING:
    import ssl

    import aiohttp
    import httpx2

CONNECT_SECONDS = 10.0
READ_SECONDS = 600.0
"""How long a provider may take between two pieces of an answer, where no `timeout` is set."""


class SyncClient:
    """A sync client: the connections of httpx2, without what its own client does for each request, and no model needs.

    Cookies, redirects, and defaults that are merged with what is given took 0.35 of the 1.04 ms of a request.
    """

    def __init__(self, *, tls: bool, proxy: str | None) -> None:
        import ssl  # noqa: PLC0415  # httpx2 loads it too

        import httpx2  # noqa: PLC0415  # loads on the first call

        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=60)
        # Without TLS no authorities are read: that alone would take 20 ms. A proxy may be reached by TLS itself.
        verify = True if tls or proxy is not None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._transport = httpx2.HTTPTransport(verify=verify, limits=limits, proxy=proxy)
        self._headers = {"Accept-Encoding": "gzip, deflate", "User-Agent": f"python-httpx2/{httpx2.__version__}"}
        self.is_closed: bool = False

    def post(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout: httpx2.Timeout
    ) -> closing[httpx2.Response]:
        """The answer to a request, to be read in the block. Raises what httpx2 does."""
        import httpx2  # noqa: PLC0415

        # Names of headers have no case: ours would be sent beside the caller's.
        named = {name.lower() for name in headers}
        ours = {name: value for name, value in self._headers.items() if name.lower() not in named}
        request = httpx2.Request(
            "POST",
            _parsed(url),
            headers={**ours, **headers},
            content=body,
            extensions={"timeout": timeout.as_dict()},
        )
        answer = self._transport.handle_request(request)
        answer.request = request
        return closing(answer)

    def close(self) -> None:
        """Close the connections."""
        self.is_closed = True
        self._transport.close()


@lru_cache(maxsize=64)
def _parsed(url: str) -> httpx2.URL:
    import httpx2  # noqa: PLC0415

    return httpx2.URL(url)


class _Shared:
    """A sync client, and the models that use it. It is closed when the process ends, if no model closes it before."""

    def __init__(self, client: SyncClient) -> None:
        self.client = client
        self.users: weakref.WeakSet[Clients] = weakref.WeakSet()
        weakref.finalize(self, _close, client, os.getpid())


class _SharedClients:
    """The sync clients of this process, by all that makes them. A forked child makes its own, and leaves those of its parent alone."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a finalizer may close a model in the middle of anything here
        self._kept: dict[tuple[object, ...], _Shared] = {}

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            # Not closed, nor let go of: the connections are the parent's, and closing one would end it for both.
            self._parents = (dict(self._kept), getattr(self, "_parents", None))
            self._begin()

    def of(self, user: Clients, url: str) -> SyncClient:
        """The client for this user, who has it until `leave`."""
        self._check_process()
        with self._lock:
            for shared in list(self._kept.values()):
                if user in shared.users:
                    return shared.client
            tls, proxy = url.startswith("https:"), proxy_for(url)
            made_of = (tls, proxy, *_environment())
            if made_of not in self._kept:
                # A dropped model closes nothing, so that the next one finds the connections. Of another environment none will come.
                for other in [each for each, shared in list(self._kept.items()) if each[0] == tls and not shared.users]:
                    self._kept.pop(other).client.close()
                self._kept[made_of] = _Shared(SyncClient(tls=tls, proxy=proxy))
            shared = self._kept[made_of]
            shared.users.add(user)
            return shared.client

    def leave(self, user: Clients) -> None:
        """The user needs its client no more. The last one closes it."""
        self._check_process()
        with self._lock:
            for made_of, shared in list(self._kept.items()):
                if user in shared.users:
                    shared.users.discard(user)
                    if not shared.users:
                        del self._kept[made_of]
                        shared.client.close()


_SHARED: Final = _SharedClients()


class Clients:
    """The clients of a model. After a fork the child makes its own, and leaves those of the parent alone."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._kept: dict[
            asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, AsyncGenerator[aiohttp.ClientSession]]
        ] = {}

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            # Not closed, nor let go of: the connections are the parent's, and closing one would end it for both.
            self._parents = (dict(self._kept), getattr(self, "_parents", None))
            self._begin()

    def client(self) -> SyncClient:
        """The sync client, which threads and models share."""
        return _SHARED.of(self, self._url)

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
        """Leave the sync client, which is closed if no other model uses it. The next call takes one again."""
        _SHARED.leave(self)

    async def aclose(self) -> None:
        """Leave the sync client, and close the async client of the running loop."""
        self.close()
        self._check_process()
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
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar, proxy=proxy_for(url)) as session:
        yield session


def _environment() -> tuple[object, ...]:
    """What a client takes from the environment when it is made: proxies, and authorities of TLS."""
    from urllib.request import getproxies  # noqa: PLC0415

    named = (os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"))
    return (*named, *sorted(getproxies().items()))


def _close(client: SyncClient, pid: int) -> None:
    if pid == os.getpid():
        client.close()

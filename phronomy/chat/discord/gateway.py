"""The gateway: clicks over a WebSocket that this process opens, for those without an address that Discord can reach.

Discord signs nothing here: the proof is the connection itself, which the token of the bot opens. The answers are sent over HTTP, within
the same three seconds. Discord sends clicks either to the address of the app or over the gateway, never both.
https://docs.discord.com/developers/events/gateway
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import discord

from phronomy.chat.adapters import finish
from phronomy.chat.contexts import Connected
from phronomy.chat.http import Refused, Response
from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_number
from phronomy.foundation.json_text import JsonError, parse
from phronomy.foundation.quoting import quoted

if TYPE_CHECKING:
    from phronomy.chat.approvals import ChatApprovals
    from phronomy.chat.discord.discord import Discord

_log = logging.getLogger("phronomy")

_ANSWERING: Final = 3.0
"""Seconds after which Discord takes no answer any more."""
_CLOSING: Final = 20.0
_PLACE: Final = re.compile(r"[0-9]{1,20}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.~=-]{1,2000}")


class Gateway(Connected):
    """A connection to Discord over which clicks come: `with Gateway(approvals, discord):`. It needs `phronomy[discord-gateway]`.

    `discord` is one of the channels of `approvals`; its token opens the connection. The connection is that of discord.py, in a
    thread of its own, and is opened again when it is lost. Connect one process alone: each connection gets every click. Leave the
    "Interactions Endpoint URL" of the app empty.
    """

    def __init__(self, approvals: ChatApprovals, discord: Discord) -> None:
        self._approvals = approvals
        self._discord = discord
        self._thread: threading.Thread | None = None
        self._opened = threading.Event()
        self._error: BaseException | None = None
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"Gateway({self._discord!r})"

    def connect(self, *, timeout: float = 30.0) -> None:
        """Open the connection, and return once it is open. Raises `ConfigurationError`, `TimeoutError` after so many seconds, and what
        discord.py raises if the token is wrong.
        """
        if not is_number(timeout) or timeout <= 0:
            raise ConfigurationError(f"timeout is a number of seconds above 0, not {quoted(timeout)}")
        if self._thread is not None and self._thread.is_alive():
            raise ConfigurationError("this gateway is connected already")
        self._opened.clear()
        self._begun.clear()
        self._error = self._loop = self._closing = None
        self._thread = threading.Thread(target=self._run, name="phronomy-discord", daemon=True)
        self._thread.start()
        if not self._opened.wait(timeout):
            self.close()
            raise TimeoutError(f"the gateway of {self._discord.name} did not open within {timeout} seconds")
        if self._error is not None:
            self._thread.join()
            raise self._error

    def close(self) -> None:
        """Close the connection. What has come is still answered."""
        if self._thread is None:
            return
        self._begun.wait(_CLOSING)
        if self._loop is not None and self._closing is not None:
            try:
                self._loop.call_soon_threadsafe(self._closing.set)
            except RuntimeError:  # the loop has ended already
                _log.debug("the gateway of %s has ended already", self._discord.name)
        self._thread.join(_CLOSING)

    def _run(self) -> None:
        try:
            asyncio.run(self._connected())
        except BaseException as error:  # whoever connects is to hear of it
            if self._opened.is_set():
                _log.error("the gateway of %s has ended: %s", self._discord.name, type(error).__name__)
            self._error = error
        finally:
            self._begun.set()
            self._opened.set()

    async def _connected(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        timeout = aiohttp.ClientTimeout(total=_ANSWERING)
        async with aiohttp.ClientSession(timeout=timeout) as session, _Client(self, session) as client:
            started = asyncio.ensure_future(client.start(self._discord._bot_token))
            closing = asyncio.ensure_future(self._closing.wait())
            await asyncio.wait({started, closing}, return_when=asyncio.FIRST_COMPLETED)
            closing.cancel()
            if not started.done():
                await client.close()
                started.cancel()  # it may be waiting for the next try to connect
            await client.answered()
            if not started.cancelled():
                await asyncio.gather(started, return_exceptions=self._closing.is_set())

    def opened(self) -> None:
        """The connection is open."""
        self._opened.set()

    async def answer(self, payload: dict[str, Any], session: aiohttp.ClientSession) -> None:
        """Answer an interaction, and do what follows."""
        response = await asyncio.to_thread(self._response, payload)
        if response is None or response.status >= 500:
            return  # not answered: the person sees that, and clicks again
        await self._send(payload, response, session)
        await asyncio.to_thread(finish, response)

    def _response(self, payload: dict[str, Any]) -> Response | None:
        try:
            received = self._discord.read(payload)
        except Refused:
            _log.warning("an interaction of %s could not be read", self._discord.name)
            return None
        if isinstance(received, Response):
            return received
        return self._approvals.answer(self._discord.name, received)

    async def _send(self, payload: dict[str, Any], response: Response, session: aiohttp.ClientSession) -> None:
        id, token = str(payload.get("id")), str(payload.get("token"))
        if not _PLACE.fullmatch(id) or not _TOKEN.fullmatch(token):
            return
        url = f"{self._discord.base_url}/interactions/{id}/{token}/callback"
        try:
            async with session.post(url, data=response.body, headers={"content-type": "application/json"}) as answer:
                if answer.status >= 400:
                    # Too late, or another process was faster. What was decided stands, and the message says so.
                    _log.warning("%s did not take the answer to a click: status %s", self._discord.name, answer.status)
        except (aiohttp.ClientError, TimeoutError) as error:
            _log.warning("%s could not answer a click: %s", self._discord.name, type(error).__name__)


class _Client(discord.AutoShardedClient):
    """discord.py's client, of which only the connection is used: what it makes of interactions is nothing to us."""

    def __init__(self, gateway: Gateway, session: aiohttp.ClientSession) -> None:
        # Interactions need no intent. Events as they come are what discord.py calls debugging. A client of one shard would not ask
        # Discord for the address of its gateway.
        super().__init__(
            intents=discord.Intents.none(), enable_debug_events=True, max_messages=None, guild_ready_timeout=0.0
        )
        self._gateway = gateway
        self._answers = session
        self._tasks: set[asyncio.Task[None]] = set()

    async def on_ready(self) -> None:
        """As discord.py calls it."""
        self._gateway.opened()

    async def on_socket_raw_receive(self, message: str) -> None:
        """As discord.py calls it."""
        try:
            event = parse(message)
        except JsonError:
            return
        payload = event.get("d") if isinstance(event, dict) and event.get("t") == "INTERACTION_CREATE" else None
        if isinstance(payload, dict):
            task = asyncio.ensure_future(self._gateway.answer(payload, self._answers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await task

    async def answered(self) -> None:
        """Wait until all that has come is answered."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

"""What the peers that hand out their state as a text have in common: the text is kept in SQLite, by hand, in one commit at each stop.

They are async inside, so one event loop is kept for as long as the process, and with it the HTTP client.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path

from openai import AsyncOpenAI
from side import Absent, Side
from work import Script

_SCHEMA = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, status TEXT, state TEXT) WITHOUT ROWID;
"""


class Library(ABC):
    """One agent of the library."""

    @abstractmethod
    async def begun(self) -> str:
        """From the message to the stop: the state as text."""

    @abstractmethod
    async def resumed(self, state: str) -> tuple[str, str]:
        """From the approval to the answer: the answer, and the state as text."""


class AsyncStateDesk:
    """A library's agent, and a database for its texts."""

    def __init__(self, path: Path, library: Library, client: AsyncOpenAI | None = None) -> None:
        self.library, self.client = library, client
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(_SCHEMA)

    async def suspend(self, _: int) -> str:
        """From the message to the stop."""
        run = os.urandom(8).hex()
        state = await self.library.begun()
        self.db.execute("INSERT INTO runs VALUES (?, 'suspended', ?)", (run, state))
        return run

    async def resume(self, waiting: str) -> str:
        """From the approval to the answer."""
        (state,) = self.db.execute("SELECT state FROM runs WHERE id = ?", (waiting,)).fetchone()
        answer, state = await self.library.resumed(state)
        self.db.execute("UPDATE runs SET status = 'completed', state = ? WHERE id = ?", (state, waiting))
        return answer

    async def close(self) -> None:
        """Close what is open."""
        self.db.close()
        if self.client is not None:
            await self.client.close()


class StateDesk:
    """The same, driven by an event loop that is kept."""

    def __init__(self, desk: AsyncStateDesk, loop: asyncio.AbstractEventLoop, script: Script | None) -> None:
        self.desk, self.loop, self.script = desk, loop, script

    def suspend(self) -> str:
        """From the message to the stop."""
        if self.script is not None:
            self.script.turn = 0
        return self.loop.run_until_complete(self.desk.suspend(0))

    def resume(self, waiting: str) -> str:
        """From the approval to the answer."""
        if self.script is not None:
            self.script.turn = self.script.calls + 1
        return self.loop.run_until_complete(self.desk.resume(waiting))

    def close(self) -> None:
        """Close the database."""
        self.loop.run_until_complete(self.desk.close())


class StateSide(Side):
    """A library that hands out its state."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder)
        self.loop = asyncio.new_event_loop()
        self.client: AsyncOpenAI | None = None

    def over_http(self, client: AsyncOpenAI, calls: int) -> Library:
        """An agent whose model is at the provider."""
        raise NotImplementedError

    def scripted(self, script: Script) -> Library:
        """An agent whose model is in the process."""
        raise NotImplementedError

    def desk(self, path: Path, kind: str, calls: int = 0) -> StateDesk:
        """See `Side.desk`. The graphs of these libraries stop for nobody, or there are none."""
        if kind == "graph":
            raise Absent
        if kind == "script":
            script = Script(calls)
            return StateDesk(AsyncStateDesk(path, self.scripted(script)), self.loop, script)
        if self.client is None:
            self.client = self.made()
        return StateDesk(AsyncStateDesk(path, self.over_http(self.client, calls)), self.loop, None)

    async def async_desk(self, path: Path) -> AsyncStateDesk:
        """See `Side.async_desk`."""
        client = self.made()
        return AsyncStateDesk(path, self.over_http(client, 0), client)

    def made(self) -> AsyncOpenAI:
        """A client of the provider."""
        return AsyncOpenAI(base_url=self.url, api_key="none", max_retries=0)

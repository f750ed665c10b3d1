"""What a side is: something that makes desks. The work that is measured is written here once, for every side.

A desk is an agent with all that it needs: an open database, a model, its tools. It takes a message up to the stop, and resumes
after the approval. A method that measures yields when it is ready, and again when the work is done: the clock runs in between.
What it returns is a figure beside the time.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Generator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from work import ANSWER

if TYPE_CHECKING:
    import asyncio

Measured = Generator[None, None, float | None]


class Absent(Exception):
    """The side has nothing that does this work."""


class Desk(Protocol):
    """One agent, or one graph, with its database open."""

    def suspend(self) -> str:
        """From the message to the stop. Returns what a resume needs, beside the database."""

    def resume(self, waiting: str) -> str:
        """From the approval to the answer."""

    def close(self) -> None:
        """Drop everything that does not live as long as the process."""


class AsyncDesk(Protocol):
    """The same in an event loop, for many runs at once."""

    def suspend(self, number: int) -> Awaitable[str]:
        """From the message of this run to its stop."""

    def resume(self, waiting: str) -> Awaitable[str]:
        """From the approval to the answer."""

    def close(self) -> Awaitable[None]:
        """Drop everything."""


class Side:
    """A library, or a floor. `url` is the provider's address, `folder` is for its databases."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.kept: dict[str, Desk] = {}
        self.numbers = count()
        self.runner: asyncio.Runner | None = None

    # What a side implements

    def desk(self, path: Path, kind: str, calls: int = 0) -> Desk:
        """A desk with objects of its own. `kind` is `http`, `script` (a model inside the process) or `graph`."""
        raise Absent

    async def async_desk(self, path: Path) -> AsyncDesk:
        """A desk of the running event loop, over HTTP."""
        raise Absent

    # What is measured

    def fresh(self, kind: str) -> Measured:
        """One cycle in which everything is dropped at the stop."""
        path = self.folder / f"fresh-{kind}.db"
        yield
        desk = self.desk(path, kind)
        waiting = desk.suspend()
        desk.close()
        desk = self.desk(path, kind)
        said = desk.resume(waiting)
        desk.close()
        yield
        assert said == ANSWER
        return None

    def warm(self, kind: str) -> Measured:
        """One cycle with what there is."""
        if kind not in self.kept:
            self.kept[kind] = self.desk(self.folder / f"warm-{kind}.db", kind)
        desk = self.kept[kind]
        yield
        said = desk.resume(desk.suspend())
        yield
        assert said == ANSWER
        return None

    def calls(self, kind: str, calls: int) -> Measured:
        """So many automatic calls, then the stop. Returns the bytes of the database."""
        path = self.folder / f"calls-{next(self.numbers)}.db"
        desk = self.desk(path, kind, calls)
        yield
        waiting = desk.suspend()
        yield
        desk.close()
        size = float(stored(path))
        if (
            kind == "script" and not self.noted(calls).exists()
        ):  # `resumed` begins with such a run, and peers take long to make one
            path.rename(self.origin(calls))
            self.noted(calls).write_text(waiting)
        else:
            path.unlink()
        return size

    def origin(self, calls: int) -> Path:
        """The database with a run that waits after so many calls."""
        return self.folder / f"resumed-{calls}.db"

    def noted(self, calls: int) -> Path:
        """Where that stands which its resume needs."""
        return self.origin(calls).with_suffix(".txt")

    def resumed(self, kind: str, calls: int) -> Measured:
        """Load a run that waits after so many calls, and resume it to its answer."""
        import shutil  # noqa: PLC0415  # as in `stored`

        origin, note = self.origin(calls), self.noted(calls)
        if not note.exists():
            desk = self.desk(origin, "script", calls)  # what is stored is the same, and sooner there
            note.write_text(desk.suspend())
            desk.close()
            stored(origin)
        waiting = note.read_text()
        path = self.folder / f"copy-{next(self.numbers)}.db"
        shutil.copyfile(origin, path)
        desk = self.desk(path, kind, calls)
        yield
        said = desk.resume(waiting)
        yield
        desk.close()
        path.unlink()
        assert said == ANSWER
        return None

    def waiting(self, kind: str, runs: int) -> Measured:
        """So many runs that wait. Returns the bytes of one, without those of an empty database: by two sizes."""
        path = self.folder / f"waiting-{next(self.numbers)}.db"
        few = runs // 4
        sizes = []
        yield
        for start, end in ((0, few), (few, runs)):
            desk = self.desk(path, kind)
            for _ in range(start, end):
                desk.suspend()
            desk.close()
            sizes.append(stored(path))
        yield
        return (sizes[1] - sizes[0]) / (runs - few)

    def page(self, runs: int) -> Measured:
        """Fifty of so many requests that wait, the next fifty each time."""
        raise Absent

    def count(self, runs: int) -> Measured:
        """How many requests wait, of so many."""
        raise Absent

    def in_flight(self, runs: int) -> Measured:
        """So many cycles over HTTP at once, in one event loop."""
        import asyncio  # noqa: PLC0415  # as in `stored`

        self.runner = self.runner or asyncio.Runner()
        run = self.runner.run  # one loop for all rounds: a library may keep clients that belong to it
        path = self.folder / f"flight-{next(self.numbers)}.db"
        desk = run(self.async_desk(path))

        async def cycle(number: int) -> str:
            return await desk.resume(await desk.suspend(number))

        async def together() -> list[str]:
            return await asyncio.gather(*(cycle(number) for number in range(runs)))

        yield
        said = run(together())
        yield

        async def close() -> None:
            await desk.close()

        run(close())
        assert said == [ANSWER] * runs
        return None


def stored(path: Path) -> int:
    """The bytes of a database, its write-ahead log folded in."""
    import sqlite3  # noqa: PLC0415  # the first cycle of a fresh process does not pay for it

    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return os.stat(path).st_size

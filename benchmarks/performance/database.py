"""How much of the CPU of phronomy, and of each floor, goes to SQLite and to the kernel below it.

    python benchmarks/performance/database.py

It does the work of some rows in one process, with connections that time their statements, and prints the milliseconds of CPU for one
cycle, and for one of 500 automatic calls. What is left is Python: phronomy's, or the floor's.
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from floor import Claiming, Floor
from ours import Ours
from side import Absent, Side


class Spent:
    """What SQLite has taken so far."""

    seconds = 0.0


def timed(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, whose CPU counts as SQLite's."""

    def call(*arguments: Any, **named: Any) -> Any:
        started = time.process_time()
        try:
            return method(*arguments, **named)
        finally:
            Spent.seconds += time.process_time() - started

    return call


class Timed(sqlite3.Connection):
    """A connection that counts what it takes."""

    execute = timed(sqlite3.Connection.execute)
    executemany = timed(sqlite3.Connection.executemany)
    executescript = timed(sqlite3.Connection.executescript)
    close = timed(sqlite3.Connection.close)


CONNECT: Final = timed(sqlite3.connect)

WORK: Final[dict[str, tuple[str, dict[str, Any], int, int]]] = {
    "a cycle in the process, warm": ("warm", {"kind": "script"}, 100, 1),
    "a cycle in the process, fresh objects": ("fresh", {"kind": "script"}, 50, 1),
    "one of 500 automatic calls": ("calls", {"kind": "script", "calls": 500}, 3, 500),
    "load + resume at 10 calls": ("resumed", {"kind": "script", "calls": 10}, 50, 1),
    "load + resume at 500 calls": ("resumed", {"kind": "script", "calls": 500}, 10, 1),
    "a graph of 3 nodes, warm": ("warm", {"kind": "graph"}, 100, 1),
    "a graph of 3 nodes, fresh objects": ("fresh", {"kind": "graph"}, 50, 1),
}
"""What is measured: the method, its arguments, how often, and by how much the figure is divided."""


def measured(side: Side, method: str, arguments: dict[str, Any], repeat: int) -> tuple[float, float]:
    """The milliseconds of CPU of the work, and of SQLite in it: medians."""
    found = []
    for _ in range(repeat + 1):
        work = getattr(side, method)(**arguments)
        next(work)
        before, started = Spent.seconds, time.process_time()
        next(work)
        found.append(((time.process_time() - started) * 1000, (Spent.seconds - before) * 1000))
        next(work, None)
    # The first one warms up.
    whole, database = zip(*found[1:], strict=True)
    return statistics.median(whole), statistics.median(database)


def main() -> None:
    """Measure, and print."""
    sqlite3.connect = lambda *arguments, **named: CONNECT(*arguments, **{"factory": Timed, **named})  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        sides = {"floor": Floor, "floor+claims": Claiming, "phronomy": Ours}
        made = {name: kind("", Path(folder) / name) for name, kind in sides.items()}
        for side in made.values():
            side.folder.mkdir()
        for title, (method, arguments, repeat, by) in WORK.items():
            print(title)
            for name, side in made.items():
                try:
                    whole, database = measured(side, method, arguments, repeat)
                except Absent:
                    continue
                print(f"    {name:<14}{whole / by:7.2f} ms, {database / by:5.2f} of them in SQLite", flush=True)


if __name__ == "__main__":
    main()

"""What a node of a graph costs as the graph grows: a chain of 10 to 1,000 nodes, and 10 to 1,000 of them side by side.

Each node appends a small item to the state, and the last one adds up. Every run is on a SQLite file of its own, in interleaved
rounds in one process; what is printed are ratios: the CPU of a node, and the bytes stored for one, over those of the smallest graph.

    python benchmarks/graphs.py [--rounds N]

Exits with status 1 if a node of the largest graph costs, or stores, over 1.5 times what one of a graph of 100 does, or a
checkpoint of the chain over twice what its own update holds.
"""

from __future__ import annotations

import argparse
import gc
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel

from phronomy import SQLiteStore
from phronomy.graph import END, START, Graph, Send, StateGraph, add, append

SIZES: Final = (10, 100, 1000)
MAX_GROWTH: Final = 1.5


class State(BaseModel):
    """What the nodes write."""

    seen: Annotated[list[int], append] = []
    total: Annotated[int, add] = 0


def chain(size: int, store: SQLiteStore) -> Graph[Any, State]:
    """Nodes one after another."""
    builder = StateGraph(State, name="chain")
    for number in range(size):

        def node(_: State, number: int = number) -> dict[str, Any]:
            return {"seen": [number], "total": 1}

        builder.add_node(f"n{number}", node, idempotent=True)
        builder.add_edge(START if number == 0 else f"n{number - 1}", f"n{number}")
    return builder.add_edge(f"n{size - 1}", END).compile(store=store, max_steps=None)


def fan(size: int, store: SQLiteStore) -> Graph[Any, State]:
    """One node, run so many times side by side, and what follows from all of them."""

    def spread(_: State) -> list[Send]:
        return [Send("work", {"number": number}) for number in range(size)]

    def work(given: dict[str, int]) -> dict[str, Any]:
        return {"seen": [given["number"]], "total": 1}

    builder = StateGraph(State, name="fan").add_node("work", work, idempotent=True)
    builder.add_node("gather", lambda state: {"total": len(state.seen) - state.total}, idempotent=True)
    builder.add_conditional_edges(START, spread).add_edge("work", "gather").add_edge("gather", END)
    return builder.compile(store=store)


SHAPES: Final[dict[str, Callable[[int, SQLiteStore], Graph[Any, State]]]] = {"chain": chain, "fan": fan}


def run(shape: str, size: int, path: Path) -> tuple[float, float]:
    """The CPU seconds and the stored bytes of one node."""
    with SQLiteStore(str(path)) as store:
        graph = SHAPES[shape](size, store)
        store.branches(run_id="none")  # the connection is open
        gc.collect()
        started = time.process_time()
        result = graph.invoke({})
        spent = time.process_time() - started
    assert result.output is not None and result.output.total == len(result.output.seen) == size
    return spent / size, payload(path) / size


def payload(path: Path) -> int:
    """The bytes of every value in the log."""
    db = sqlite3.connect(path)
    try:
        (found,) = db.execute("SELECT SUM(LENGTH(CAST(body AS BLOB))) FROM phronomy_log").fetchone()
    finally:
        db.close()
    return int(found)


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds; the best of each counts")
    options = parser.parse_args()
    held = True
    print(
        f"{'':<8} {'nodes':>6} {'CPU a node':>12} {'ratio':>7} {'stored a node':>14} {'ratio':>7}   at most {MAX_GROWTH}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            best = {size: (float("inf"), 0.0) for size in SIZES}
            for number in range(options.rounds):
                for size in SIZES:
                    spent, stored = run(shape, size, Path(folder) / f"{shape}-{size}-{number}.db")
                    best[size] = (min(best[size][0], spent), stored)
            for size, (spent, stored) in best.items():
                cpu, bytes_ = spent / best[SIZES[1]][0], stored / best[SIZES[1]][1]
                held = held and (size < SIZES[1] or max(cpu, bytes_) <= MAX_GROWTH)
                print(
                    f"{shape:<8} {size:>6} {spent * 1e6:>9.0f} us {cpu:>7.2f} {stored:>12.0f} B {bytes_:>7.2f}",
                    flush=True,
                )
    print("all bounds held" if held else "NOT all bounds held")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

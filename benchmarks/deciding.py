"""What it takes to decide with the store alone: decisions a second, and the list of what is decided as the store fills.

Each store takes decisions on runs that wait, from eight threads of one process. Then a worker is told of decisions, and the time
from a decision to the body of the tool is taken: with the worker's own store object, and on SQLite with another, where the worker
looks every 100 ms. And `store.decided()` is asked in a store with many runs beside one with few, in interleaved rounds; printed is
the ratio of the medians.

    python benchmarks/deciding.py [--runs N] [--full] [--only memory|sqlite|postgres|redis]

By default the full store holds 20,000 runs, with `--full` 1,000,000. Exits with status 1 if a figure is out of its bound.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from stores import Template, opened  # of this folder

from phronomy import Agent, Approve, MemoryStore, PendingApproval, SQLiteStore, Store, tool
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker

KINDS: Final = ("memory", "sqlite", "postgres", "redis")
LEAST: Final = {"sqlite": 300, "postgres": 300}
"""Decisions a second, at least."""

FLAT: Final = 2.0
"""How much longer the list of what is decided may take in a full store."""

PEOPLE: Final = 8
"""Threads that decide at the same time, as in a web service."""

DECIDED: Final = 50
"""Runs of each store that are decided, and not carried out."""


@contextmanager
def store_of(kind: str, name: str, folder: Path) -> Iterator[Store]:
    """An empty store of this kind, as durable as it is by default."""
    if kind == "memory":
        yield MemoryStore()
    elif kind == "sqlite":
        with SQLiteStore(folder / f"{name}.db") as store:
            yield store
    elif kind == "postgres":
        with opened(kind, name, folder) as store:
            yield store
    else:
        from redis_server import redis_url  # noqa: PLC0415  # needs the extra

        from phronomy import RedisStore  # noqa: PLC0415

        with RedisStore(redis_url(), prefix=f"bench-{name}-{time.time_ns()}") as store:
            yield store


def filled(store: Store, template: Template, runs: int) -> None:
    """Put so many runs that wait into the store."""
    for number in range(runs):
        branch, change = template.copy(number)
        store.create(branch, change, exclusive=False)


def decisions(store: Store, count: int) -> float:
    """Seconds for so many decisions, by a few people at the same time."""
    waiting = [item.approval for item in store.pending(limit=count)]

    def decide(item: PendingApproval) -> None:
        store.decide(item.id, Approve(), by="rita", digest=item.digest, channel="page", key=f"key-{item.id}")

    started = time.perf_counter()
    with ThreadPoolExecutor(PEOPLE) as pool:
        deque(pool.map(decide, waiting), 0)
    return time.perf_counter() - started


def listed(store: Store) -> float:
    """Seconds for a look at what is decided."""
    started = time.perf_counter()
    found = store.decided()
    taken = time.perf_counter() - started
    assert len(found) == DECIDED
    return taken


def started_after(store: Store, other: Store, rounds: int) -> float:
    """Milliseconds from a decision in `other` to the body of the tool, in a worker on `store`: the median."""
    entered = threading.Event()
    at: list[float] = []

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        at.append(time.perf_counter())
        entered.set()
        return "paid"

    def reply(request: Any) -> Any:
        return call("pay") if request.messages[-1].role == "user" else "Done."

    agent = Agent(name="payer", model=ScriptedModel(reply), tools=[pay], store=store)
    items = [agent.invoke("Pay").checkpoint.pending[0] for _ in range(rounds)]
    worker = Worker(agent, poll=0.1)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    taken = []
    for item in items:
        entered.clear()
        begun = time.perf_counter()
        other.decide(item.id, Approve(), by="rita", digest=item.digest)
        entered.wait(60)
        taken.append((at[-1] - begun) * 1000)
    worker.stop()
    thread.join(60)
    return statistics.median(taken)


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=500, help="decisions that are timed on each store")
    parser.add_argument("--full", action="store_true", help="a full store of 1,000,000 runs")
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    full, wrong = 1_000_000 if options.full else 20_000, False
    template = Template()
    with tempfile.TemporaryDirectory() as home:
        for kind in [options.only] if options.only else KINDS:
            folder = Path(home)
            with ExitStack() as stack:
                store = stack.enter_context(store_of(kind, "rate", folder))
                filled(store, template, options.runs)
                rate = options.runs / decisions(store, options.runs)
                least = LEAST.get(kind, 0)
                wrong |= rate < least
                print(f"{kind:<10}{rate:8,.0f} decisions a second" + (f"   (at least {least})" if least else ""))
                near = stack.enter_context(store_of(kind, "near", folder))
                print(
                    f"{kind:<10}{started_after(near, near, 20):8.1f} ms from a decision to the tool, same store object"
                )
                if kind == "sqlite":
                    with SQLiteStore(folder / "near.db") as apart:
                        told = started_after(near, apart, 20)
                    print(f"{kind:<10}{told:8.1f} ms from a decision to the tool, found by looking every 100 ms")
                small = stack.enter_context(store_of(kind, "small", folder))
                large = stack.enter_context(store_of(kind, "large", folder))
                for each, runs in ((small, 1_000), (large, full)):
                    filled(each, template, runs)
                    decisions(each, DECIDED)
                rounds = [(listed(small), listed(large)) for _ in range(40)]
                few, many = (statistics.median(times) for times in zip(*rounds, strict=True))
                wrong |= many / few > FLAT
                print(f"{kind:<10}{many / few:8.2f} times as long for decided() at {full:,} runs  (at most {FLAT})")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())

"""What it takes to decide with the store alone: decisions a second, the time until the tool starts, and lists as the store fills.

Each store takes decisions on runs that wait, from eight threads of one process; the first fifty, in which connections are opened, are
not counted. Then the time is taken from the call of `store.decide` to the first line of the tool's body, the decision itself
included: by a worker of this process that has the same store object, which hears of it at once; and by a worker in another process,
which looks into the store every 100 ms. And `store.decided()`, and pages of `store.pending()`, are asked in a store with many runs
beside one with few, in interleaved rounds; printed is the ratio of the medians.

    python benchmarks/deciding.py [--decisions N] [--runs N] [--full] [--only memory|sqlite|postgres|redis]

The full store holds 20,000 runs, or `--runs`; with `--full` it holds 1,000,000 on SQLite and PostgreSQL, which copy them from one, and
100,000 in memory and Redis. Exits with status 1 if a figure is out of its bound.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bulk import fill  # of this folder
from stores import Template

from phronomy import Agent, Approve, PendingApproval, Store, tool
from phronomy.stores import PendingFilter, open_store
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker

KINDS: Final = ("memory", "sqlite", "postgres", "redis")
LEAST: Final = {"sqlite": 300, "postgres": 300}
"""Decisions a second, at least."""

FLAT: Final = 2.0
"""How much longer a list may take in a full store."""

PEOPLE: Final = 8
"""Threads that decide at the same time, as in a web service."""

DECIDED: Final = 50
"""Runs of each store that are decided, and not carried out."""

FULL: Final = {"memory": 100_000, "sqlite": 1_000_000, "postgres": 1_000_000, "redis": 100_000}
SMALL: Final = 1_000
POLL: Final = 0.1
ROUNDS: Final = 20
"""Decisions of which the time to the tool is taken."""


@contextmanager
def place_of(kind: str, name: str, folder: Path) -> Iterator[str]:
    """The URL of an empty store of this kind, as durable as it is by default."""
    if kind == "memory":
        yield "memory://"
    elif kind == "sqlite":
        yield f"sqlite:///{folder / name}.db"
    elif kind == "postgres":
        from servers import postgres_schema, postgres_url  # noqa: PLC0415  # needs the extra

        with postgres_schema() as schema:
            yield f"{postgres_url()}&schema={quote(schema)}"
    else:
        from redis_server import redis_url  # noqa: PLC0415  # needs the extra

        yield f"{redis_url()}?prefix=bench-{name}"


def filled(store: Store, template: Template, runs: int, first: int = 0) -> None:
    """Put so many runs that wait into the store."""
    for number in range(first, first + runs):
        branch, change = template.copy(number)
        # The schema of the tool is kept once, as by the first run of an agent.
        texts = template.texts if number == first else ()
        store.create(branch, replace(change, texts=texts), exclusive=False)


def decisions(store: Store, count: int) -> float:
    """Seconds for so many decisions, by a few people at the same time."""
    waiting = [item.approval for item in store.pending(limit=count, newest=True)]

    def decide(item: PendingApproval) -> None:
        store.decide(item.id, Approve(), by="rita", digest=item.digest, channel="page", key=f"key-{item.id}")

    started = time.perf_counter()
    with ThreadPoolExecutor(PEOPLE) as pool:
        deque(pool.map(decide, waiting), 0)
    return time.perf_counter() - started


def rate_of(store: Store, template: Template, count: int) -> float:
    """Decisions a second."""
    filled(store, template, count + DECIDED)
    decisions(store, DECIDED)
    return count / decisions(store, count)


# From a decision to the tool


def payer(store: Store, entered: Callable[[float], object]) -> Agent[Any, str]:
    """The agent of both processes, which tells when the body of its tool was entered."""

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        entered(now())
        return "paid"

    def reply(request: Any) -> Any:
        return call("pay") if request.messages[-1].role == "user" else "Done."

    return Agent(name="payer", model=ScriptedModel(reply), tools=[pay], store=store)


def now() -> float:
    """The time since the machine started, which is the same in all processes."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def serve(url: str, told: Connection) -> None:
    """A worker in a process of its own, until it is killed."""
    with open_store(url) as store:
        worker = Worker(payer(store, told.send), poll=POLL)
        threading.Thread(target=lambda: told.send(looked(worker)), daemon=True).start()
        worker.run()


def looked(worker: Worker) -> float:
    """Wait until the worker has looked into its store for the first time, and return when that was."""
    while worker.health().last_look is None:
        time.sleep(0.01)
    return now()


def taken(store: Store, entered: Callable[[], float], agent: Agent[Any, str]) -> float:
    """Milliseconds from the call of `decide` to the body of the tool: the median."""
    found = [agent.invoke("Pay").checkpoint for _ in range(ROUNDS)]
    spent, pauses = [], random.Random(7)
    for checkpoint in found:
        (item,) = checkpoint.pending
        begun = now()
        store.decide(item.id, Approve(), by="rita", digest=item.digest)
        spent.append((entered() - begun) * 1000)
        # A worker that has ended a run looks at once, and then in its own time: a decision comes at any moment of that.
        store.wait(checkpoint.run_id)
        time.sleep(pauses.uniform(0.5, 1.5) * POLL)
    return statistics.median(spent)


def started_here(url: str) -> float:
    """With a worker of this process that has the same store object."""
    here, there = multiprocessing.Pipe(duplex=False)
    with open_store(url) as store:
        agent = payer(store, there.send)
        worker = Worker(agent, poll=60.0)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        looked(worker)
        spent = taken(store, here.recv, agent)
        worker.stop()
        thread.join(60)
    return spent


def started_there(url: str) -> float:
    """With a worker in another process, which looks now and then."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(url, there), daemon=True)
    with open_store(url) as store:
        store.branches()  # it is there before the other opens it
        process.start()
        here.recv()  # the first look
        spent = taken(store, here.recv, payer(store, there.send))
    process.kill()
    process.join()
    return spent


# Lists


def ratio(few: Callable[[], Any], many: Callable[[], Any], rounds: int = 40) -> tuple[float, float]:
    """The median milliseconds of both, by interleaved rounds."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for side, look in enumerate((few, many)):
            started = time.perf_counter()
            look()
            spent[side].append(time.perf_counter() - started)
    return statistics.median(spent[0]) * 1000, statistics.median(spent[1]) * 1000


def listed(store: Store) -> Callable[[], None]:
    """A look at what is decided."""

    def look() -> None:
        assert len(store.decided()) == DECIDED

    return look


def paged(store: Store) -> Callable[[], None]:
    """A look at a page in the middle of what waits."""
    ((first,), (last,)) = (store.select_pending(PendingFilter(newest=newest, limit=1)) for newest in (False, True))
    middle = PendingFilter(after=((first.requested_at + last.requested_at) / 2, 0), limit=50)

    def page() -> None:
        assert len(store.select_pending(middle)) == 50

    return page


class Judge:
    """Prints each figure, and what it is to be."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.wrong = False

    def __call__(self, figure: str, what: str, *, wrong: bool = False, bound: str = "") -> None:
        self.wrong |= wrong
        told = f"  ({bound})" if bound else ""
        print(f"{self.kind:<10}{figure:>9} {what}{told}{'   OUT OF ITS BOUND' * wrong}", flush=True)


def lists(kind: str, folder: Path, template: Template, runs: int, judge: Judge) -> None:
    """Lists in a full store beside a small one."""
    with ExitStack() as stack:
        stores = []
        for name, many in (("small", SMALL), ("large", runs)):
            store = stack.enter_context(open_store(stack.enter_context(place_of(kind, name, folder))))
            stores.append(store)
            begun = now()
            if kind in ("sqlite", "postgres"):
                fill(store, template, many)
            else:
                filled(store, template, many, first=DECIDED)
            # Those that are decided are written by the store itself, as every run is.
            filled(store, template, DECIDED, first=many + DECIDED)
            decisions(store, DECIDED)
            if many == runs:
                judge(f"{many:,}", f"runs wait: filled in {now() - begun:.0f} s")
        looks = {"decided()": [*map(listed, stores)], "a page of pending()": [*map(paged, stores)]}
        for what, (small, large) in looks.items():
            few, many_ms = ratio(small, large)
            told = f"times as long for {what}: {few:.2f} ms at {SMALL:,} runs, {many_ms:.2f} ms at {runs:,}"
            judge(f"{many_ms / few:.2f}", told, wrong=many_ms / few > FLAT, bound=f"at most {FLAT}")


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--decisions", type=int, default=500, help="decisions that are timed on each store")
    parser.add_argument("--runs", type=int, default=20_000, help="runs of the full store")
    parser.add_argument("--full", action="store_true", help="a full store of 1,000,000 runs, or 100,000")
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    wrong = False
    for kind in [options.only] if options.only else KINDS:
        judge, template = Judge(kind), Template()
        with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
            folder = Path(home)
            url = stack.enter_context(place_of(kind, "rate", folder))
            with open_store(url) as store:
                rate, least = rate_of(store, template, options.decisions), LEAST.get(kind, 0)
            bound = f"at least {least}" if least else ""
            judge(f"{rate:,.0f}", "decisions a second", wrong=rate < least, bound=bound)
            spent = started_here(stack.enter_context(place_of(kind, "here", folder)))
            judge(f"{spent:.1f}", "ms from a decision to the tool, in one process")
            if kind != "memory":
                spent = started_there(stack.enter_context(place_of(kind, "there", folder)))
                judge(
                    f"{spent:.1f}",
                    f"ms from a decision to the tool, in another process that looks every {POLL * 1000:.0f} ms",
                )
            lists(kind, folder, template, FULL[kind] if options.full else options.runs, judge)
        wrong |= judge.wrong
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())

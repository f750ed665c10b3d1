"""Resumes of runs that wait, on PostgreSQL, at a steady rate for minutes, while many other runs wait.

Two processes share the runs: one resumes in threads, by `resume`, and one under asyncio, by `aresume`. Each begins with an id and
an open store, as a web service does. The rate is kept from outside: a resume begins when it is due, whether or not the one before
has ended, and its time is counted from then. Each has to come to the end of its run, with its tool called once. Printed are
the times, the CPU of both processes, and their memory at each fifth of the time.

    python benchmarks/resumes.py [--seconds N] [--rate N] [--waiting N]

Exits with status 1 if a resume fails, if fewer than wanted have ended, or if the memory grows by more than its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bulk import fill  # of this folder
from copies import Runs, resident  # of this folder
from servers import postgres_schema, postgres_url
from stores import Template

from phronomy import Agent, Message, ModelReply, ModelRequest, Store, ToolCall, ToolContext, Usage, tool
from phronomy.stores import open_store

GROWTH: Final = 1.05
"""How much more memory a process may have at the end than after the first fifth of the time."""

THREADS: Final = 8
"""Resumes that one process carries out at the same time."""

DRIVERS: Final = ("threads", "asyncio")


class Paying:
    """A model inside the process, which keeps nothing of what it is asked: a scripted model keeps all of it, for tests."""

    name = "paying"

    def complete(self, request: ModelRequest) -> ModelReply:
        """The call after the message, and the answer after the call."""
        asked = request.messages[-1].role == "user"
        calls = (ToolCall(id="call_1", name="pay", arguments='{"order": 1}'),) if asked else ()
        return ModelReply(
            message=Message(role="assistant", content="" if asked else "Done.", tool_calls=calls),
            usage=Usage(requests=1),
        )

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """The async twin of `complete`."""
        return self.complete(request)


def payer(store: Store, called: Counter[str] | None = None) -> Agent[Any, str]:
    """The agent whose runs wait. Its tool notes in which run it is called."""

    @tool(requires_approval=True)
    def pay(ctx: ToolContext[None], order: int) -> str:
        """Pay an order."""
        assert called is not None
        called[ctx.run_id] += 1
        return f"paid {order}"

    return Agent(name="payer", model=Paying(), tools=[pay], store=store)


class Resumer:
    """One process: what it has to resume, when each is due, and what came of it."""

    def __init__(self, store: Store, heads: list[str], rate: float) -> None:
        self.called: Counter[str] = Counter()
        self.agent, self.heads, self.rate = payer(store, self.called), heads, rate
        self.told: Counter[str] = Counter()
        self.taken: list[float] = []
        self.started = time.perf_counter()

    def due(self, number: int) -> float:
        """When this one begins."""
        return self.started + number / self.rate

    def ended(self, number: int, what: str) -> None:
        """Note the end of one."""
        self.taken.append(time.perf_counter() - self.due(number))
        self.told[what] += 1

    def resume(self, number: int) -> None:
        """One resume, in a thread."""
        try:
            what = str(self.agent.resume(self.heads[number], approved=True, by="rita").status)
        except Exception as error:
            what = type(error).__name__
        self.ended(number, what)

    async def aresume(self, number: int, free: asyncio.Semaphore) -> None:
        """One resume, in a task."""
        async with free:
            try:
                what = str((await self.agent.aresume(self.heads[number], approved=True, by="rita")).status)
            except Exception as error:
                what = type(error).__name__
        self.ended(number, what)

    def in_threads(self) -> None:
        """All of them, in threads."""
        with ThreadPoolExecutor(THREADS) as pool:
            for number in range(len(self.heads)):
                time.sleep(max(0.0, self.due(number) - time.perf_counter()))
                pool.submit(self.resume, number)

    async def under_asyncio(self) -> None:
        """All of them, in tasks."""
        free = asyncio.Semaphore(THREADS)
        async with asyncio.TaskGroup() as group:
            for number in range(len(self.heads)):
                await asyncio.sleep(max(0.0, self.due(number) - time.perf_counter()))
                group.create_task(self.aresume(number, free))


def drive(driver: str, url: str, heads: list[str], rate: float, to: Connection) -> None:
    """What one process does. It says when it is ready, waits for the start, and tells at the end."""
    with open_store(url) as store:
        store.count()  # the store is set up, and a connection is open
        to.send("ready")
        to.recv()
        resumer = Resumer(store, heads, rate)
        if driver == "threads":
            resumer.in_threads()
        else:
            asyncio.run(resumer.under_asyncio())
        used = resource.getrusage(resource.RUSAGE_SELF)
        to.send((resumer.told, resumer.called, resumer.taken, used.ru_utime + used.ru_stime))


def watched(processes: list[Any], ends: list[Connection], seconds: float) -> list[list[int]]:
    """The memory of each process at every fifth of the time, and at the end."""
    found = []
    started = time.perf_counter()
    for part in range(1, 6):
        until = started + seconds * part / 5
        while time.perf_counter() < until and not all(each.poll() for each in ends):
            time.sleep(0.1)
        found.append([resident(each.pid) for each in processes])
    return found


def measure(url: str, seconds: int, rate: float, waiting: int) -> bool:
    """Fill the store, resume, and judge."""
    count = int(seconds * rate)
    runs = Runs(payer)
    with open_store(url) as store:
        store.branches()
        fill(store, Template(), waiting)
        heads = []
        for number in range(count):
            branch, change = runs.copy(number)
            store.create(branch, change, exclusive=False)
            heads.append(change.head or "")
    context = multiprocessing.get_context("spawn")
    processes, ends = [], []
    for place, driver in enumerate(DRIVERS):
        mine, theirs = context.Pipe()
        part = heads[place :: len(DRIVERS)]
        process = context.Process(target=drive, args=(driver, url, part, rate / len(DRIVERS), theirs), daemon=True)
        process.start()
        processes.append(process)
        ends.append(mine)
    for end in ends:
        assert end.recv() == "ready"
    started = time.perf_counter()
    for end in ends:
        end.send("go")
    memory = watched(processes, ends, seconds)
    good = True
    for place, (driver, end) in enumerate(zip(DRIVERS, ends, strict=True)):
        told, called, taken, cpu = end.recv()
        ms = sorted(each * 1000 for each in taken)
        mb = [round(each[place] / 1e6, 1) for each in memory]
        print(
            f"{driver}: {dict(told)}; {median(ms):.1f} ms, {ms[int(len(ms) * 0.99)]:.0f} ms at the 99th percentile, "
            f"{cpu * 1000 / len(ms):.1f} ms of CPU each; memory at each fifth of the time: {mb} MB"
        )
        good = good and set(told) == {"completed"} and set(called.values()) == {1} and mb[-1] <= GROWTH * mb[0]
    spent = time.perf_counter() - started
    with open_store(url) as store:
        completed, left = sum(each.status == "completed" for each in store.branches()), store.count()
    print(
        f"{completed:,} runs were resumed to their ends in {spent:.0f} s: {completed / spent * 60:,.0f} a minute; {left:,} others wait"
    )
    for process in processes:
        process.join(30)
    return good and completed == count and left == waiting and completed / spent >= 0.98 * rate


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=300, help="how long runs are resumed")
    parser.add_argument("--rate", type=int, default=2_000, help="resumes a minute")
    parser.add_argument("--waiting", type=int, default=10_000, help="other runs, which wait all the time")
    options = parser.parse_args()
    with ExitStack() as stack:
        # No pooler is in between.
        url = f"{postgres_url()}&schema={quote(stack.enter_context(postgres_schema()))}&prepare_statements=true"
        return int(not measure(url, options.seconds, options.rate / 60, options.waiting))


if __name__ == "__main__":
    sys.exit(main())

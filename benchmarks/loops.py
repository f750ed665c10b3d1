"""What native async buys: 200 runs at once in one event loop on PostgreSQL, their steps written in threads and without.

A real server from a wheel, asked over its socket, and over a line on which each way takes a millisecond, as between two machines.
Both sides take turns in one process; what is printed are medians and the ratio of the native side to the one in threads.

    python benchmarks/loops.py [--runs 200] [--connections 10]

Exits with status 1 if a ratio is over its bound: native costs little more where the server is at hand, and waits less where it is not.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from phronomy import Agent, PostgresStore, tool
from phronomy.testing import ScriptedModel, call

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
TURNS: Final = 4
ROUNDS: Final = 5
DELAY: Final = 0.001
BOUNDS: Final = {"at hand": {"wall": 1.5, "CPU": 1.3}, "1 ms away": {"wall": 0.9, "CPU": 1.1}}


class InThreads(PostgresStore):
    """The same store without what is native."""

    native = None


@tool
async def look(at: int) -> str:
    """Look at something."""
    return f"seen {at}"


async def together(store: PostgresStore, runs: int) -> tuple[float, float]:
    """The seconds, and those of CPU in this process, that so many runs take."""
    model = ScriptedModel.by_turn([*(call("look", {"at": n}) for n in range(TURNS)), "Done."])
    agent = Agent(name="desk", model=model, tools=[look], store=store)
    cpu, started = time.process_time(), time.perf_counter()
    results = await asyncio.gather(*(agent.ainvoke("go") for _ in range(runs)))
    spent = time.perf_counter() - started, time.process_time() - cpu
    assert [result.output for result in results] == ["Done."] * runs
    return spent


def measure(where: str, url: str, schema: str, runs: int, connections: int) -> bool:
    """Whether the ratios are within their bounds."""
    stores = [kind(url, schema=schema, max_size=connections) for kind in (InThreads, PostgresStore)]
    spent: list[list[tuple[float, float]]] = [[], []]
    for turn in range(ROUNDS + 1):
        for side, store in zip(spent, stores, strict=True):
            seconds = asyncio.run(together(store, runs))
            if turn:  # the first opens connections
                side.append(seconds)
    for store in stores:
        store.close()
    held = True
    for what, threads, native in zip(
        ("wall", "CPU"), *(map(statistics.median, zip(*s, strict=True)) for s in spent), strict=True
    ):
        bound = BOUNDS[where][what]
        held = held and native / threads <= bound
        note = "" if native / threads <= bound else "   OVER"
        rates = f"{runs / threads:>6.0f} and {runs / native:>4.0f} runs a second" if what == "wall" else ""
        print(
            f"  {what:<5} {threads:>7.2f} s in threads {native:>7.2f} s native {native / threads:>6.2f} {bound:>5}{note} {rates}"
        )
    return held


# The line


async def line(place: str) -> None:
    """Passes on what goes to the socket and what comes back, each after a while, and prints its own port."""
    loop = asyncio.get_running_loop()

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            loop.call_later(DELAY, writer.write, data)
        loop.call_later(DELAY, writer.close)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, questions = await asyncio.open_unix_connection(place)
        await asyncio.gather(passed(reader, questions), passed(answers, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def away(place: str) -> Iterator[str]:
    """The URL of the server that is at this socket, as seen from a millisecond away."""
    with subprocess.Popen([sys.executable, __file__, "--line", place], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"postgresql://postgres@127.0.0.1:{process.stdout.readline().strip()}/postgres"
        finally:
            process.kill()


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="how many runs go on at once")
    parser.add_argument("--connections", type=int, default=10, help="the max_size of both stores")
    parser.add_argument("--line", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.line:
        asyncio.run(line(options.line))
    from servers import postgres, postgres_schema  # noqa: PLC0415  # needs the extra

    held = True
    with away(postgres().socket) as far:
        for where, url in (("at hand", postgres().url), ("1 ms away", far)):
            print(f"{options.runs} runs of {TURNS} calls at once, the server {where}")
            with postgres_schema() as schema:
                held = measure(where, url, schema, options.runs, options.connections) and held
    print("all bounds held" if held else "NOT all bounds held")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

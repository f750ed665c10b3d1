"""What a chat takes: signed clicks of Slack over HTTP for a minute, by two servers and two workers on PostgreSQL.

People of a directory click at a steady rate on messages that were posted, while two workers carry the decisions out. Each tenth click
reaches both servers at the same moment, as it may when somebody clicks twice. How long a click takes is counted from when it was made
to the answer, before which its decision is recorded. Afterwards every decision has to be in the trail once, and every run has to have
ended, with its tool called once. Printed are the times, the rate, what was lost or doubled, and the drain: how many runs the workers
had carried out at the last answer, and how long the rest took them.

    python benchmarks/chat.py [--seconds N] [--rate N]

Exits with status 1 if a figure is out of its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import psycopg
from load import Connections, wait_for  # of this folder
from ports import HeldPort
from servers import postgres_schema, postgres_url

from phronomy import Agent, Store, tool
from phronomy.chat import ChatApprovals, Pace, asgi
from phronomy.chat.slack import Slack
from phronomy.people import Person, StoreDirectory
from phronomy.stores import open_store
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import Clock, FakeSlack, Shown
from phronomy.testing.chat.slack import SECRET, TOKEN
from phronomy.workers import Worker

SERVERS: Final = 2
WORKERS: Final = 2
PEOPLE: Final = 200
KEYS: Final = {"1": b"k" * 32}

SLOWEST: Final = 300.0
"""Milliseconds from a click to its recorded decision, at the 99th percentile."""

PATIENCE: Final = 300.0
"""Seconds that the workers have for what is left at the last answer."""


class Now(Clock):
    """The clock of the machine."""

    def __init__(self) -> None:
        super().__init__(0.0)

    @property
    def now(self) -> float:  # type: ignore[override]
        """Seconds since the epoch."""
        return time.time()

    @now.setter
    def now(self, value: float) -> None:
        """It cannot be moved."""


class Quick(Slack):
    """A Slack that takes messages as fast as they come, so that all are posted before the clicks begin."""

    def pace(self, work: Any, to: str) -> Pace:
        """As `Slack.pace`."""
        return Pace(lane=f"{work}:{time.monotonic_ns()}", seconds=0.001)


def approvals_of(store: Store, base_url: str, kind: type[Slack] = Slack) -> ChatApprovals:
    """The approvals of a process."""
    channel = kind(signing_secret=SECRET, bot_token=TOKEN, team_id=FakeSlack.team, base_url=base_url)
    return ChatApprovals(
        store,
        channels=[channel],
        directory=StoreDirectory(store),
        keys=KEYS,
        route=FakeSlack.place,
        digest_above=None,
    )


def payer(store: Store, approvals: ChatApprovals, paid: psycopg.Connection[Any]) -> Agent[Any, str]:
    """Each call of its tool is a row of a table, so that one that ran twice would show."""

    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pay an order."""
        paid.execute("INSERT INTO clicked (id) VALUES (%s)", (order,))
        return "paid"

    def reply(request: Any) -> Any:
        asked = request.messages[-1]
        return call("pay", {"order": int(asked.text.split()[-1])}) if asked.role == "user" else "Done."

    return Agent(name="payer", model=ScriptedModel(reply), tools=[pay], store=store, announcements=[approvals])


def serve(url: str, base_url: str, port: int, sends: bool) -> None:
    """A server in a process of its own; one of them also sends what is to be posted and edited."""
    import uvicorn  # noqa: PLC0415  # only here

    approvals = approvals_of(open_store(url), base_url)
    if sends:
        approvals.start()
    uvicorn.run(
        asgi(approvals),
        host="127.0.0.1",
        port=port,
        log_level="critical",
        access_log=False,
        timeout_keep_alive=120,
        proxy_headers=False,
    )


def work(url: str, base_url: str, paid: str) -> None:
    """A worker in a process of its own. It lets the servers go first, as a worker on another machine would."""
    os.nice(10)
    with open_store(url) as store, psycopg.connect(paid, autocommit=True) as db:
        worker = Worker(payer(store, approvals_of(store, base_url), db), poll=0.2)
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()


def posted(store: Store, slack: FakeSlack, count: int) -> list[Shown]:
    """So many messages about requests, each with its buttons."""
    people = StoreDirectory(store)
    for number in range(PEOPLE):
        people.add(Person(id=f"person-{number}", aliases=(slack.alias(_member(number)),)))
    approvals = approvals_of(store, slack.base_url, Quick)
    with psycopg.connect(postgres_url(), autocommit=True) as db:
        agent = payer(store, approvals, db)
        for number in range(count):
            agent.invoke(f"Pay order {number}")
            approvals.outbox.run_once()
    while approvals.outbox.run_once().left:
        time.sleep(0.01)
    return slack.messages()


def _member(number: int) -> str:
    return f"U{number:010d}"


class Clicks:
    """People who click at a steady rate, each on another message."""

    def __init__(self, slack: FakeSlack, ports: list[int], messages: list[Shown], rate: float) -> None:
        self.slack, self.ports, self.messages, self.rate = slack, ports, messages, rate
        self.told: Counter[str] = Counter()
        self.taken: list[float] = []
        self._connections = Connections()

    async def run(self) -> float:
        """Make all of them; returns the seconds from the first to the last answer."""
        started = time.perf_counter()
        tasks: list[asyncio.Task[None]] = []
        for number, shown in enumerate(self.messages):
            at = started + number / self.rate
            if (delay := at - time.perf_counter()) > 0:
                await asyncio.sleep(delay)
            sent = self.slack.sign(shown, "approve", _member(number % PEOPLE))
            for which in range(2 if number % 10 == 0 else 1):
                port = self.ports[(number + which) % len(self.ports)]
                tasks.append(asyncio.create_task(self._click(at, port, sent.path, dict(sent.headers), sent.body)))
        await asyncio.gather(*tasks)
        self._connections.close()
        return time.perf_counter() - started

    async def _click(self, at: float, port: int, path: str, headers: dict[str, str], body: bytes) -> None:
        status, found = await self._connections.post(port, path, headers, body)
        self.taken.append(time.perf_counter() - at)
        self.told[f"{status}" if not found else f"{status} with a body"] += 1


def clicks(url: str, seconds: int, rate: int) -> bool:
    """Click for so many seconds, and judge."""
    count = seconds * rate
    with psycopg.connect(postgres_url(), autocommit=True) as db:
        db.execute("CREATE TABLE IF NOT EXISTS clicked (id int)")
        db.execute("TRUNCATE clicked")
    with FakeSlack(Now()) as slack:
        with open_store(url) as store:
            messages = posted(store, slack, count)
        print(f"{len(messages):,} messages are posted", flush=True)
        context = multiprocessing.get_context("spawn")
        held = [HeldPort() for _ in range(SERVERS)]
        ports = [each.number for each in held]
        servers = [
            context.Process(target=serve, args=(url, slack.base_url, port, port == ports[0]), daemon=True)
            for port in ports
        ]
        workers = [
            context.Process(target=work, args=(url, slack.base_url, postgres_url()), daemon=True)
            for _ in range(WORKERS)
        ]
        for process in (*servers, *workers):
            process.start()
        for port in ports:
            wait_for(port)
        begun = Clicks(slack, ports, messages[: count // 10], rate)
        asyncio.run(begun.run())  # connections are opened, and caches filled
        load = Clicks(slack, ports, messages[count // 10 :], rate)
        spent = asyncio.run(load.run())
        good = judged(url, count, load, begun, spent, rate)
        for process in (*servers, *workers):
            process.terminate()
            process.join(30)
        for each in held:
            each.close()
        told = [text for number in range(PEOPLE) for text in slack.told(_member(number))]
    if told:
        print(f"{len(told):,} people were told something, such as {told[0]!r}")
    return good and not told


def judged(url: str, count: int, load: Clicks, begun: Clicks, spent: float, rate: int) -> bool:
    """Wait for the workers, print, and judge."""
    with psycopg.connect(postgres_url(), autocommit=True) as db:

        def paid() -> list[int]:
            return [number for (number,) in db.execute("SELECT id FROM clicked").fetchall()]

        at_the_end = len(paid())
        started = time.perf_counter()
        while len(paid()) < count and time.perf_counter() - started < PATIENCE:
            time.sleep(0.2)
        drained = time.perf_counter() - started
        called = Counter(paid())
    with open_store(url) as store:
        ended = time.perf_counter() + 10
        while (left := sum(each.status != "completed" for each in store.branches())) and time.perf_counter() < ended:
            time.sleep(0.2)
        trail = Counter(each.pending_id for each in store.audit() if not each.refused)
    lost, doubled = count - len(trail), sum(trail.values()) - len(trail)
    wrong = {told: many for told, many in (load.told + begun.told).items() if told != "200"}
    made = len(load.messages)
    ms = sorted(each * 1000 for each in load.taken)
    slow = ms[int(len(ms) * 0.99)]
    print(f"{made / spent:,.1f} clicks a second were answered, for {spent:.0f} s (wanted: {rate})")
    print(f"{statistics.median(ms):.1f} ms from a click to its answer, {slow:.0f} ms at the 99th percentile")
    print(f"{count:,} decisions: {lost} lost, {doubled} doubled; other answers: {wrong or 'none'}")
    print(f"{at_the_end:,} of {count:,} runs were carried out at the last answer, the rest {drained:.1f} s later")
    print(f"{called.total():,} calls of the tool for {len(called):,} orders, {left} runs left")
    once = called.total() == len(called) == count
    return slow <= SLOWEST and made / spent >= 0.98 * rate and not (lost or doubled or wrong or left) and once


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=66, help="how long people click; the first tenth is not counted")
    parser.add_argument("--rate", type=int, default=50, help="clicks a second")
    options = parser.parse_args()
    with ExitStack() as stack:
        url = f"{postgres_url()}&schema={quote(stack.enter_context(postgres_schema()))}"
        return int(not clicks(url, options.seconds, options.rate))


if __name__ == "__main__":
    sys.exit(main())

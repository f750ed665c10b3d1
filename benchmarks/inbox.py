"""What the inbox takes: decisions over HTTP for a minute, by two servers and two workers on PostgreSQL, and pages of a full list.

A load client sends decisions of many people, each with an API token, at a steady rate to two server processes, while two workers carry
them out. Each answer has to say that the decision is recorded; afterwards every run has to have ended, with its tool called once.
Printed are the answers a second, how long they took, the memory of the servers at the start and the end, and the drain: how many
runs the workers had carried out when the last decision was answered, and how long the rest took them.

Then a page of 50 is asked for in a store with many waiting requests, and in one with 50, in interleaved rounds.

    pip install httptools uvloop
    python benchmarks/inbox.py [--seconds N] [--rate N] [--waiting N]

Exits with status 1 if a figure is out of its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
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
from bulk import fill  # of this folder
from copies import Runs, resident  # of this folder
from load import Connections, wait_for  # of this folder
from ports import HeldPort
from servers import postgres_schema, postgres_url
from stores import Template

from phronomy import Agent, Principal, Store, tool
from phronomy.inbox import ApiTokens, Identity, Inbox
from phronomy.people import Person, StoreDirectory
from phronomy.stores import open_store
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker

SERVERS: Final = 2
WORKERS: Final = 2
PEOPLE: Final = 400
"""So many that nobody decides more often than a person may."""

PAGES: Final = 3.0
"""How much longer a page may take in a full list."""

GROWTH: Final = 1.25
"""How much more memory a server may have at the end than after the first tenth of the time."""

ROUNDS: Final = 40


class ByHeader:
    """Knows people by a header, as an application knows its own."""

    async def identify(self, request: Any) -> Identity | None:
        """Who sends the request."""
        who = request.headers.get("x-user")
        return None if who is None else Identity(principal=Principal(id=who), via="application")


def payer(store: Store, paid: psycopg.Connection[Any] | None = None) -> Agent[Any, str]:
    """The agent of the workers. Each call of its tool is a row of a table, so that one that ran twice would show."""

    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pay an order."""
        assert paid is not None
        paid.execute("INSERT INTO paid (id) VALUES (%s)", (order,))
        return "paid"

    def reply(request: Any) -> Any:
        return call("pay", {"order": 1}) if request.messages[-1].role == "user" else "Done."

    return Agent(name="payer", model=ScriptedModel(reply), tools=[pay], store=store)


def serve(url: str, port: int) -> None:
    """A server in a process of its own."""
    import uvicorn  # noqa: PLC0415  # only here

    inbox = Inbox(open_store(url), auth=ByHeader())
    uvicorn.run(
        inbox,
        host="127.0.0.1",
        port=port,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=120,
        http="httptools",  # both need a proxy in front that bounds headers, as the page on the inbox says
        loop="uvloop",
    )


def work(url: str, paid: str) -> None:
    """A worker in a process of its own. It lets the servers go first, as a worker on another machine would."""
    os.nice(10)
    with open_store(url) as store, psycopg.connect(paid, autocommit=True) as db:
        worker = Worker(payer(store, db))
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()


async def issued(store: Store) -> list[str]:
    """An API token for each of the people, whom the directory knows."""
    people, tokens = StoreDirectory(store), ApiTokens(store)
    for number in range(PEOPLE):
        people.add(Person(id=f"person-{number}", name=f"Person {number}"))
    made = [
        await tokens.issue("benchmark", Principal(id=f"person-{number}"), scopes=["decide", "read"], seconds=3_600)
        for number in range(PEOPLE)
    ]
    return [each.secret for each in made]


class Load:
    """The client: decisions at a steady rate, each by somebody else."""

    def __init__(self, ports: list[int], tokens: list[str], requests: list[tuple[str, str]], rate: float) -> None:
        self.ports, self.tokens, self.requests, self.rate = ports, tokens, requests, rate
        self.told: Counter[str] = Counter()
        self.taken: list[float] = []
        self.connections = Connections()

    async def run(self) -> float:
        """Send all of them; returns the seconds from the first to the last answer."""
        started = time.perf_counter()
        tasks = []
        for number, (id, digest) in enumerate(self.requests):
            delay = started + number / self.rate - time.perf_counter()
            if delay > 0:
                await asyncio.sleep(delay)
            tasks.append(asyncio.create_task(self.decide(number, id, digest)))
        await asyncio.gather(*tasks)
        spent = time.perf_counter() - started
        self.connections.close()
        return spent

    async def decide(self, number: int, id: str, digest: str) -> None:
        """One decision. How long it takes is counted from when it was to be sent."""
        body = json.dumps({"answer": "approve", "digest": digest}).encode()
        begun = time.perf_counter()
        status, found = await self.connections.post(
            self.ports[number % len(self.ports)],
            f"/api/v1/requests/{id}/decision",
            {
                "content-type": "application/json",
                "authorization": f"Bearer {self.tokens[number % PEOPLE]}",
                "idempotency-key": id,
            },
            body,
        )
        self.taken.append(time.perf_counter() - begun)
        told = json.loads(found)
        self.told[f"{status} {told.get('status') or told.get('title')}"] += 1


def decisions(url: str, seconds: int, rate: int) -> bool:
    """Decide for so many seconds, and judge."""
    runs, count = Runs(payer), seconds * rate
    with open_store(url) as store:
        store.branches()
        for number in range(count):
            branch, change = runs.copy(number)
            store.create(branch, change, exclusive=False)
        waiting = [(item.approval.id, item.approval.digest) for item in store.pending()]
        tokens = asyncio.run(issued(store))
    with psycopg.connect(postgres_url(), autocommit=True) as db:
        db.execute("CREATE TABLE IF NOT EXISTS paid (id int)")
        db.execute("TRUNCATE paid")
    context = multiprocessing.get_context("spawn")
    held = [HeldPort() for _ in range(SERVERS)]
    ports = [each.number for each in held]
    servers = [context.Process(target=serve, args=(url, port), daemon=True) for port in ports]
    workers = [context.Process(target=work, args=(url, postgres_url()), daemon=True) for _ in range(WORKERS)]
    for process in (*servers, *workers):
        process.start()
    for port in ports:
        wait_for(port)
    pids = [process.pid or 0 for process in servers]
    asyncio.run(Load(ports, tokens, waiting[: count // 10], rate).run())  # connections are opened, and caches filled
    before = sum(map(resident, pids))
    load = Load(ports, tokens, waiting[count // 10 :], rate)
    spent = asyncio.run(load.run())
    after = sum(map(resident, pids))
    print(load.told)
    with psycopg.connect(postgres_url(), autocommit=True) as db:

        def paid() -> int:
            found = db.execute("SELECT count(*) FROM paid").fetchone()
            return int(found[0]) if found is not None else 0

        at_the_end = paid()
        begun = time.perf_counter()
        while paid() < count and time.perf_counter() - begun < 900:
            time.sleep(0.2)
        drained = time.perf_counter() - begun
        total = paid()
    with open_store(url) as store:
        left = len(store.pending()) + sum(branch.status != "completed" for branch in store.branches())
        decided = sum(1 for _ in store.audit())
    for process in (*servers, *workers):
        process.terminate()
        process.join(30)
    for each in held:
        each.close()
    answered = len(load.taken) / spent
    ms = sorted(each * 1000 for each in load.taken)
    wrong = {told: many for told, many in load.told.items() if not told.startswith("200 ")}
    print(f"{answered:,.0f} decisions a second were answered, for {spent:.0f} s (wanted: {rate})")
    print(f"{statistics.median(ms):.1f} ms for an answer, {ms[int(len(ms) * 0.99)]:.0f} ms at the 99th percentile")
    print(
        f"{before / 1e6:.0f} MB of memory of both servers after a tenth of the decisions, {after / 1e6:.0f} MB at the end"
    )
    print(f"{at_the_end:,} of {count:,} runs were carried out at the last answer, the rest {drained:.1f} s later")
    found = f"{decided:,} in the trail, {total:,} calls of the tool, {left} runs left"
    print(f"{count:,} decisions: {found}; other answers: {wrong or 'none'}")
    good = answered >= 0.98 * rate and not wrong and decided == count and total == count and left == 0
    return good and after <= GROWTH * before


async def pages(small: str, large: str) -> float:
    """How much longer a page of 50 takes in a full list, the first one and one in the middle: the larger ratio of medians."""
    found: list[float] = []
    inboxes = [Inbox(open_store(url), auth=ByHeader()) for url in (small, large)]
    spent: dict[tuple[int, str], list[float]] = {}
    for path in ("/api/v1/requests?limit=50", "/api/v1/requests?limit=50&mine=true", "/"):
        for _ in range(ROUNDS):
            for place, inbox in enumerate(inboxes):
                begun = time.perf_counter()
                await get(inbox, path)
                spent.setdefault((place, path), []).append(time.perf_counter() - begun)
        few, many = (statistics.median(spent[place, path]) * 1000 for place in (0, 1))
        print(f"{many / few:.2f} times as long for {path}: {few:.1f} ms with 50 waiting, {many:.1f} ms with many")
        found.append(many / few)
    for inbox in inboxes:
        inbox.site.store.close()
    return max(found)


async def get(inbox: Inbox, path: str) -> None:
    """One answer, without a server between."""
    where, _, query = path.partition("?")
    scope = {
        "type": "http", "method": "GET", "path": where, "raw_path": where.encode(), "query_string": query.encode(),
        "root_path": "", "scheme": "http", "http_version": "1.1", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"127.0.0.1"), (b"x-user", b"rita"), (b"accept", b"*/*")],
    }  # fmt: skip
    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        told.append(message)

    await inbox(scope, receive, send)
    assert told[0]["status"] == 200, json.loads(told[1]["body"])


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seconds", type=int, default=66, help="how long decisions are sent; the first tenth is not counted"
    )
    parser.add_argument("--rate", type=int, default=200, help="decisions a second")
    parser.add_argument("--waiting", type=int, default=100_000, help="requests in the full list")
    options = parser.parse_args()
    random.seed(7)
    with ExitStack() as stack:

        def place() -> str:
            return f"{postgres_url()}&schema={quote(stack.enter_context(postgres_schema()))}"

        # No pooler is in between.
        good = decisions(f"{place()}&prepare_statements=true", options.seconds, options.rate)
        template, urls = Template(), [place(), place()]
        for url, many in zip(urls, (50, options.waiting), strict=True):
            with open_store(url) as store:
                store.branches()
                fill(store, template, many)
        ratio = asyncio.run(pages(*urls))
    return int(not good or ratio > PAGES)


if __name__ == "__main__":
    sys.exit(main())

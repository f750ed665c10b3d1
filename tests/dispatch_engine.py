"""A dispatch over PostgreSQL, in forty lines, and the processes that share it: run as `python dispatch_engine.py ROLE ...`.

What is told goes into a table of times, and a notification says that there is something new in it. A worker process takes what is due
out of the table, and carries out exactly that run. The store that the runs are in is another one, of whatever kind.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from phronomy import Agent, Approve, open_store, tool
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker

NEVER = 36_000.0
"""Seconds between two looks of a worker: longer than any test. What it carries out sooner, it was told of."""


class Engine:
    """Tells in a table of this name, and hears from it."""

    def __init__(self, url: str, table: str) -> None:
        self.url, self.name, self.table = url, table, Identifier(table)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(SQL("CREATE TABLE IF NOT EXISTS {} (due timestamptz, run_id text)").format(self.table))

    def wake(self, run_id: str) -> None:
        self.at(datetime.now(UTC), run_id)

    def at(self, time: datetime, run_id: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(SQL("INSERT INTO {} VALUES (%s, %s)").format(self.table), (time, run_id))
            db.execute("SELECT pg_notify(%s, '')", (self.name,))

    def serve(self, do: Callable[[str], object]) -> None:
        """Do what is due, for ever."""
        take = (
            "DELETE FROM {} WHERE ctid IN (SELECT ctid FROM {} WHERE due <= %s FOR UPDATE SKIP LOCKED) RETURNING run_id"
        )
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(SQL("LISTEN {}").format(self.table))
            print("listening", flush=True)
            while True:
                for (run_id,) in db.execute(SQL(take).format(self.table, self.table), (datetime.now(UTC),)).fetchall():
                    do(run_id)
                (due,) = db.execute(SQL("SELECT min(due) FROM {}").format(self.table)).fetchone() or (None,)
                wait = NEVER if due is None else max((due - datetime.now(UTC)).total_seconds(), 0.001)
                for _ in db.notifies(timeout=wait, stop_after=1):
                    pass


@tool(requires_approval=True, approval_timeout=NEVER)
def pay(order: int) -> str:
    """Pay an order."""
    return f"paid {order}"


@tool(requires_approval=True, approval_timeout=1.0)
def hurry(order: int) -> str:
    """Pay an order that nobody has time for."""
    return f"paid {order}"


def reply(request: Any) -> Any:
    """The model: asks to pay the order that the user names, and then says what came of it."""
    last = request.messages[-1]
    if last.role != "user":
        return f"The desk says: {last.text}"
    name, _, order = last.text.partition(" ")
    return call(name, {"order": int(order)})


def work(url: str, engine: Engine) -> None:
    """A worker: a process that has the agent, looks once, and then does what the engine tells it to."""
    agent = Agent(name="desk", model=ScriptedModel(reply), tools=[pay, hurry], store=open_store(url))
    worker = Worker(agent, poll=NEVER)
    threading.Thread(target=worker.run, daemon=True).start()
    while worker.health().last_look is None:
        pass
    engine.serve(lambda run_id: print(run_id, len(asyncio.run(worker.carry_out(run_id))), flush=True))


def ask(url: str, engine: Engine, message: str) -> None:
    """An app: a process that has the agent, and ends when its run waits."""
    with open_store(url) as store:
        store.dispatch = engine
        agent = Agent(name="desk", model=ScriptedModel(reply), tools=[pay, hurry], store=store)
        print(agent.invoke(message).checkpoint.pending[0].id)


def decide(url: str, engine: Engine, pending_id: str) -> None:
    """A decider: a process that has the store, and not the agent."""
    with open_store(url) as store:
        store.dispatch = engine
        shown = store.request(pending_id)
        print(store.decide(pending_id, Approve(), by="rita", digest=shown.approval.digest).run_id)


if __name__ == "__main__":
    role, store_url, engine_url, table, *rest = sys.argv[1:]
    {"work": work, "ask": ask, "decide": decide}[role](store_url, Engine(engine_url, table), *rest)

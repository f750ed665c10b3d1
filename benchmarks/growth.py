"""What a run costs as it grows: 10 to 500 automatic calls before a stop, beside a hand-written floor.

The floor is what somebody would write by hand with sqlite3 for the same promise: one commit per step, with the intent to run a
call stored before the call and a claim with a fence checked in each write. Both run the same scripted replies in one process,
in interleaved rounds; what is printed are ratios.

    python benchmarks/growth.py [--rounds N]

Exits with status 1 if the payload stored is over twice the final JSON, the CPU over three times the floor's, or either grows
faster than the number of calls.
"""

from __future__ import annotations

import argparse
import gc
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from phronomy import Agent, Checkpoint, Limits, Message, ModelReply, ModelRequest, SQLiteStore, ToolCall, Usage, tool

SIZES = (10, 50, 100, 200, 500)
MAX_PAYLOAD, MAX_CPU, MAX_GROWTH = 2.0, 3.0, 1.3


def order(number: int) -> dict[str, Any]:
    """What the tool finds: a record of ordinary size."""
    lines = [
        {"sku": f"SKU-{number}-{line}", "title": "A thing that was ordered", "quantity": line + 1} for line in range(3)
    ]
    return {"order": number, "customer": f"customer-{number}@example.com", "state": "delivered", "lines": lines}


class Script:
    """A model that asks for `calls` look-ups, one a turn, and then for a refund."""

    name = "script"

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.turn = 0

    def complete(self, request: ModelRequest) -> ModelReply:
        """The next reply."""
        name, arguments = self.next()
        call = ToolCall(id=f"call_{self.turn}", name=name, arguments=arguments)
        message = Message(role="assistant", content=f"I look at order {self.turn} next.", tool_calls=(call,))
        return ModelReply(message=message, usage=Usage(requests=1, input_tokens=100, output_tokens=20))

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """The next reply."""
        return self.complete(request)

    def next(self) -> tuple[str, str]:
        """The name and arguments of the next call."""
        self.turn += 1
        return ("look_up" if self.turn <= self.calls else "refund"), json.dumps({"order_id": self.turn})


def phronomy_run(path: Path, calls: int) -> tuple[float, Checkpoint]:
    """CPU seconds of one run to its stop, and its checkpoint."""

    @tool
    def look_up(order_id: int) -> dict[str, Any]:
        """Look up an order."""
        return order(order_id)

    @tool(requires_approval=True)
    def refund(order_id: int) -> str:
        """Refund an order."""
        return f"refunded {order_id}"

    with SQLiteStore(str(path)) as store:
        agent = Agent(name="desk", model=Script(calls), tools=[look_up, refund], store=store, limits=Limits(turns=None))
        agent.store.branches(run_id="none")  # the connection is open, as the floor's is
        started = time.process_time()
        result = agent.invoke("Check my orders, then refund the last.", thread_id="t")
        spent = time.process_time() - started
    assert result.suspended
    return spent, result.checkpoint


FLOOR = """
CREATE TABLE runs (id TEXT PRIMARY KEY, owner TEXT, fence INTEGER, lease REAL, status TEXT);
CREATE TABLE messages (run TEXT, seq INTEGER, body TEXT, PRIMARY KEY (run, seq)) WITHOUT ROWID;
CREATE TABLE calls (run TEXT, id TEXT, name TEXT, args TEXT, status TEXT, PRIMARY KEY (run, id)) WITHOUT ROWID;
"""


def floor_run(path: Path, calls: int) -> float:
    """CPU seconds of the same run, written by hand."""
    script = Script(calls)
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + FLOOR)

    def step(*statements: tuple[str, tuple[Any, ...]]) -> None:
        db.execute("BEGIN IMMEDIATE")
        held = db.execute(
            "UPDATE runs SET lease = ? WHERE id = 'r' AND owner = 'me' AND fence = 1", (time.time() + 30,)
        )
        assert held.rowcount == 1
        for sql, values in statements:
            db.execute(sql, values)
        db.execute("COMMIT")

    said = "INSERT INTO messages VALUES ('r', ?, ?)"
    started = time.process_time()
    db.execute("INSERT INTO runs VALUES ('r', 'me', 1, ?, 'running')", (time.time() + 30,))
    history: list[dict[str, Any]] = [{"role": "user", "content": "Check my orders, then refund the last."}]
    step((said, (0, json.dumps(history[0]))))
    while True:
        name, arguments = script.next()
        call = {"id": f"call_{script.turn}", "name": name, "arguments": arguments}
        history.append({"role": "assistant", "content": f"I look at order {script.turn} next.", "tool_calls": [call]})
        args = json.dumps(json.loads(arguments))
        stop = name == "refund"
        step(
            (said, (len(history) - 1, json.dumps(history[-1]))),
            ("INSERT INTO calls VALUES ('r', ?, ?, ?, ?)", (call["id"], name, args, "pending" if stop else "started")),
        )
        if stop:
            step(("UPDATE runs SET status = 'suspended', owner = NULL WHERE id = 'r'", ()))
            break
        result = json.dumps(order(json.loads(args)["order_id"]))
        history.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        step(
            (said, (len(history) - 1, json.dumps(history[-1]))),
            ("UPDATE calls SET status = 'settled' WHERE run = 'r' AND id = ?", (call["id"],)),
        )
    spent = time.process_time() - started
    db.close()
    return spent


def payload(path: Path) -> int:
    """The bytes of every value in every table, ids and numbers included."""
    db = sqlite3.connect(path)
    total = 0
    for (table,) in db.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall():
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        lengths = " + ".join(f"COALESCE(LENGTH(CAST({column} AS BLOB)), 0)" for column in columns)
        (size,) = db.execute(f"SELECT COALESCE(SUM({lengths}), 0) FROM {table}").fetchone()  # noqa: S608  # our own names
        total += size
    db.close()
    return total


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="interleaved rounds per size; the best of each side counts"
    )
    rounds = parser.parse_args().rounds
    print(f"{'calls':>6} {'payload/JSON':>13} {'CPU/floor':>10} {'ms/call':>8} {'floor ms/call':>14}")
    per_call: dict[int, tuple[float, float, float]] = {}
    for calls in SIZES:
        ours, floors, share = [], [], 0.0
        for _ in range(max(rounds, 500 // calls)):  # what takes ten milliseconds is seldom measured undisturbed
            with tempfile.TemporaryDirectory() as folder:
                spent, checkpoint = measured(partial(phronomy_run, Path(folder) / "ours.db", calls))
                ours.append(spent)
                floors.append(measured(partial(floor_run, Path(folder) / "floor.db", calls)))
                share = payload(Path(folder) / "ours.db") / len(checkpoint.model_dump_json().encode())
        per_call[calls] = (min(ours) / calls, min(floors) / calls, share)
        mine, theirs, _ = per_call[calls]
        print(f"{calls:>6} {share:>13.2f} {mine / theirs:>10.2f} {mine * 1000:>8.3f} {theirs * 1000:>14.3f}")
    growth, theirs = (per_call[500][side] / per_call[50][side] for side in (0, 1))
    print(f"growth of CPU per call from 50 to 500 calls: {growth:.2f} (the floor's: {theirs:.2f})")
    worst_cpu = max(mine / theirs for mine, theirs, _ in per_call.values())
    worst_share = max(share for _, _, share in per_call.values())
    held = worst_share <= MAX_PAYLOAD and worst_cpu <= MAX_CPU and growth <= MAX_GROWTH
    print(f"bounds: payload {MAX_PAYLOAD}, CPU {MAX_CPU}, growth {MAX_GROWTH}: {'held' if held else 'NOT held'}")
    return 0 if held else 1


def measured(run: Callable[[], Any]) -> Any:
    """What `run` gives, with no garbage of the other side collected in it."""
    gc.collect()
    return run()


if __name__ == "__main__":
    sys.exit(main())

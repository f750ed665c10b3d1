"""What one approval costs: a message, a gated call, the stop, everything dropped, and the answer after the approval.

The floor is the same written by hand with httpx, json and sqlite3: one commit per step, the intent stored before the tool runs,
the approval taken by compare-and-set. With litellm the floor calls litellm itself. The provider is a loopback server in a
process of its own, whose time does not count. Rounds are interleaved; what is printed are ratios of CPU time, of the best rounds.

    python benchmarks/cycle.py [--rounds N]

`cold` is a fresh process, imports included. `fresh` has everything imported and makes every object anew, twice in a cycle.
`warm` keeps agent, store and connections. Exits with status 1 if a ratio is over its bound.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BOUNDS = {"cold": 2.5, "fresh": 2.5, "warm": 4.0, "litellm cold": 1.2, "litellm warm": 1.2}
ASK, ANSWER = "Refund order 1042, please.", "Order 1042 is refunded."
SYSTEM = "You work at a refund desk."
SERVER = """
import sys
from phronomy.testing import ChatServer, call
server = ChatServer.by_turn([call("refund", {"order_id": 1042, "amount": 49.9}), "Order 1042 is refunded."]).start()
print(server.base_url, flush=True)
sys.stdin.read()
"""
TOOL = {
    "type": "function",
    "function": {
        "name": "refund",
        "description": "Refund an order, in euros.",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "integer"}, "amount": {"type": "number"}},
            "required": ["order_id", "amount"],
            "additionalProperties": False,
        },
    },
}


@contextmanager
def provider() -> Iterator[str]:
    """The address of a provider in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None and server.stdin is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


# The floor

Ask = Callable[[list[dict[str, Any]]], dict[str, Any]]
SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, status TEXT, owner TEXT, fence INTEGER, lease REAL);
CREATE TABLE IF NOT EXISTS messages (run TEXT, seq INTEGER, body TEXT, PRIMARY KEY (run, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS calls (run TEXT, id TEXT, name TEXT, args TEXT, status TEXT, PRIMARY KEY (run, id)) WITHOUT ROWID;
"""


def opened(path: str) -> Any:
    """A database of the floor's."""
    import sqlite3  # noqa: PLC0415  # a cold start loads what it needs, and no more

    db = sqlite3.connect(path, isolation_level=None)
    db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + SCHEMA)
    return db


def commit(db: Any, *statements: tuple[str, tuple[Any, ...]]) -> None:
    """One commit of these statements."""
    db.execute("BEGIN IMMEDIATE")
    for sql, values in statements:
        db.execute(sql, values)
    db.execute("COMMIT")


SAID = "INSERT INTO messages VALUES (?, ?, ?)"


def floor_suspends(db: Any, ask: Ask) -> str:
    """The first half: up to the stop."""
    run = os.urandom(8).hex()
    user = {"role": "user", "content": ASK}
    begun = ("INSERT INTO runs VALUES (?, 'running', 'me', 1, ?)", (run, time.time() + 30))
    commit(db, begun, (SAID, (run, 0, json.dumps(user))))
    reply = ask([{"role": "system", "content": SYSTEM}, user])
    (call,) = reply["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert set(arguments) == {"order_id", "amount"}
    commit(
        db,
        (SAID, (run, 1, json.dumps(reply))),
        ("INSERT INTO calls VALUES (?, ?, ?, ?, 'pending')", (run, call["id"], "refund", json.dumps(arguments))),
        ("UPDATE runs SET status = 'suspended', owner = NULL WHERE id = ?", (run,)),
    )
    return run


def floor_resumes(db: Any, ask: Ask, run: str) -> str:
    """The second half: approved, to the answer."""
    rows = db.execute("SELECT body FROM messages WHERE run = ? ORDER BY seq", (run,)).fetchall()
    messages = [json.loads(body) for (body,) in rows]
    (call,) = db.execute("SELECT id, args FROM calls WHERE run = ? AND status = 'pending'", (run,)).fetchall()
    claimed = (
        "UPDATE runs SET owner = 'me', fence = fence + 1, status = 'running' WHERE id = ? AND owner IS NULL",
        (run,),
    )
    started = ("UPDATE calls SET status = 'started' WHERE run = ? AND id = ? AND status = 'pending'", (run, call[0]))
    commit(db, claimed, started)
    result = {"role": "tool", "tool_call_id": call[0], "content": refund(**json.loads(call[1]))}
    settled = ("UPDATE calls SET status = 'settled' WHERE run = ? AND id = ?", (run, call[0]))
    commit(db, (SAID, (run, 2, json.dumps(result))), settled)
    reply = ask([{"role": "system", "content": SYSTEM}, *messages, result])
    ended = ("UPDATE runs SET status = 'completed', owner = NULL WHERE id = ?", (run,))
    commit(db, (SAID, (run, 3, json.dumps(reply))), ended)
    return str(reply["content"])


def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"order {order_id}: {amount:.2f} euros are on their way"


def by_httpx(client: Any, url: str) -> Ask:
    """Asks with httpx."""

    def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
        response = client.post(
            f"{url}/chat/completions",
            json={"model": "m", "messages": messages, "tools": [TOOL]},
            headers={"Authorization": "Bearer none"},
        )
        response.raise_for_status()
        message: dict[str, Any] = response.json()["choices"][0]["message"]
        return message

    return ask


def by_litellm(url: str) -> Ask:
    """Asks with litellm, as its documentation says, and no dearer than need be."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm  # noqa: PLC0415  # takes seconds

    def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
        response = litellm.completion(
            model="openai/m",
            base_url=url,
            api_key="none",
            messages=messages,
            tools=[TOOL],
            num_retries=0,
            _skip_mcp_handler=True,
        )
        message: dict[str, Any] = response.choices[0].message.model_dump()
        return {key: value for key, value in message.items() if value is not None}

    return ask


class Floor:
    """The floor, with objects that are kept or made anew."""

    def __init__(self, path: str, url: str, *, litellm: bool) -> None:
        self.path, self.url, self.litellm = path, url, litellm
        self.kept = self.made()

    def made(self) -> tuple[Any, Ask, Any]:
        """A database, something that asks, and what is to be closed."""
        if self.litellm:
            return opened(self.path), by_litellm(self.url), None
        import httpx  # noqa: PLC0415

        client = httpx.Client()
        return opened(self.path), by_httpx(client, self.url), client

    def fresh(self) -> None:
        """One cycle in which everything is dropped at the stop."""
        run = ""
        for half in (0, 1):
            db, ask, client = self.made()
            if half == 0:
                run = floor_suspends(db, ask)
            else:
                assert floor_resumes(db, ask, run) == ANSWER
            db.close()
            if client is not None:
                client.close()

    def warm(self) -> None:
        """One cycle with what there is."""
        db, ask, _ = self.kept
        assert floor_resumes(db, ask, floor_suspends(db, ask)) == ANSWER


# phronomy


class Ours:
    """The same with phronomy."""

    def __init__(self, path: str, url: str, *, litellm: bool) -> None:
        self.path, self.url, self.litellm = path, url, litellm
        self.kept = self.made()

    def made(self) -> tuple[Any, Any, Any]:
        """An agent, its store, and its model."""
        from phronomy import Agent, SQLiteStore, tool  # noqa: PLC0415

        if self.litellm:
            from phronomy import LiteLLMModel  # noqa: PLC0415

            model: Any = LiteLLMModel("openai/m", base_url=self.url, api_key="none")
        else:
            from phronomy.models.chat_completions import ChatCompletionsModel  # noqa: PLC0415

            model = ChatCompletionsModel("m", base_url=self.url, api_key="none")
        store = SQLiteStore(self.path)
        gated = tool(requires_approval=True)(refund)
        return Agent(name="desk", model=model, instructions=SYSTEM, tools=[gated], store=store), store, model

    def fresh(self) -> None:
        """One cycle in which everything is dropped at the stop."""
        checkpoint_id = ""
        for half in (0, 1):
            agent, store, model = self.made()
            if half == 0:
                checkpoint_id = agent.invoke(ASK).checkpoint.id
            else:
                assert agent.resume(checkpoint_id, approved=True).output == ANSWER
            store.close()
            if hasattr(model, "close"):
                model.close()

    def warm(self) -> None:
        """One cycle with what there is."""
        agent, _, _ = self.kept
        assert agent.resume(agent.invoke(ASK).checkpoint.id, approved=True).output == ANSWER


SIDES: dict[str, type[Floor] | type[Ours]] = {"floor": Floor, "ours": Ours}

# Measuring


def in_process(url: str, folder: str, kind: str, *, litellm: bool, rounds: int) -> tuple[float, float]:
    """The CPU seconds of a cycle, ours and the floor's: the best of interleaved rounds."""
    sides = {name: side(str(Path(folder) / f"{name}.db"), url, litellm=litellm) for name, side in SIDES.items()}
    best = {name: float("inf") for name in sides}
    for side in sides.values():
        getattr(side, kind)()
    for _ in range(rounds):
        for name, side in sides.items():
            gc.collect()
            started = time.process_time()
            getattr(side, kind)()
            best[name] = min(best[name], time.process_time() - started)
    return best["ours"], best["floor"]


def cold(url: str, folder: str, *, litellm: bool, rounds: int) -> tuple[float, float]:
    """The CPU seconds of a fresh process that does one cycle: ours and the floor's."""
    best = {name: float("inf") for name in SIDES}
    for number in range(rounds + 1):
        for name in SIDES:
            path = str(Path(folder) / f"cold-{name}-{number}.db")
            command = [sys.executable, __file__, "--one", name, url, path, "litellm" if litellm else ""]
            before = os.times()
            subprocess.run(command, check=True)
            after = os.times()
            spent = after.children_user + after.children_system - before.children_user - before.children_system
            if number:  # the first writes bytecode
                best[name] = min(best[name], spent)
    return best["ours"], best["floor"]


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=20, help="interleaved rounds of each kind; the best of each side counts"
    )
    parser.add_argument("--one", nargs=4, metavar=("SIDE", "URL", "PATH", "KIND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        side, url, path, kind = options.one
        SIDES[side](path, url, litellm=kind == "litellm").fresh()
        return 0
    held = True
    print(f"{'':<14} {'ours':>10} {'floor':>10} {'ratio':>7} {'at most':>8}")
    with provider() as url, tempfile.TemporaryDirectory() as folder:
        few = max(3, options.rounds // 4)
        measures: dict[str, Callable[[], tuple[float, float]]] = {
            "cold": lambda: cold(url, folder, litellm=False, rounds=few),
            "fresh": lambda: in_process(url, folder, "fresh", litellm=False, rounds=options.rounds),
            "warm": lambda: in_process(url, folder, "warm", litellm=False, rounds=options.rounds * 5),
            "litellm cold": lambda: cold(url, folder, litellm=True, rounds=few),
            "litellm warm": lambda: in_process(url, folder, "warm", litellm=True, rounds=options.rounds * 2),
        }
        for name, measure in measures.items():
            ours, floor = measure()
            held = held and ours / floor <= BOUNDS[name]
            print(
                f"{name:<14} {ours * 1000:>7.2f} ms {floor * 1000:>7.2f} ms {ours / floor:>7.2f} {BOUNDS[name]:>8}",
                flush=True,
            )
    print("all bounds held" if held else "NOT all bounds held")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

"""The floor: the same work as a careful engineer writes it by hand, with httpx, json and sqlite3, and one commit per step.

`Floor` keeps what a resume needs, and no more. `Claiming` takes a claim with a fence and a lease, checks it in each write, and
stores the intent to run a call before the call, as phronomy does. The HTTP client lives as long as the process.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any, Final

from side import Absent, Measured, Side
from work import ASK, SYSTEM, TOOLS, Script, look_up, model_name, refund

Messages = list[dict[str, Any]]
Ask = Callable[[Messages], dict[str, Any]]
Flow = Generator[Messages, dict[str, Any], str]
"""The steps of a run: yields what the model is asked, is sent its reply, and returns the id of the run, or its answer."""

HEADERS: Final = {"Authorization": "Bearer none"}
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {"look_up": look_up, "refund": refund}
_TYPES: Final[dict[str, dict[str, Any]]] = {
    "look_up": {"order_id": int},
    "refund": {"order_id": int, "amount": (int, float)},
}
_SCHEMA: Final = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, status TEXT, owner TEXT, fence INTEGER, lease REAL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS messages (run TEXT, seq INTEGER, body TEXT, PRIMARY KEY (run, seq)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS calls (run TEXT, id TEXT, name TEXT, args TEXT, status TEXT, PRIMARY KEY (run, id)) WITHOUT ROWID;
"""
_SAID: Final = "INSERT INTO messages VALUES (?, ?, ?)"
_CALLED: Final = "INSERT INTO calls VALUES (?, ?, ?, ?, ?)"
_SETTLED: Final = "UPDATE calls SET status = 'settled' WHERE run = ? AND id = ?"


def opened(path: Path) -> sqlite3.Connection:
    """A database of the floor's."""
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(_SCHEMA)
    return db


class Steps:
    """What is stored when."""

    claims = False

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def commit(self, run: str, *statements: tuple[str, tuple[Any, ...]], fence: int = 1) -> None:
        """One commit of these statements, by who holds the claim."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            if self.claims:
                held = self.db.execute(
                    "UPDATE runs SET lease = ? WHERE id = ? AND owner = 'me' AND fence = ?",
                    (time.time() + 30, run, fence),
                )
                assert held.rowcount == 1, f"somebody else has run {run}"
            for sql, values in statements:
                self.db.execute(sql, values)
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def suspend(self) -> Flow:
        """From the message to the stop."""
        run = os.urandom(8).hex()
        messages: Messages = [{"role": "user", "content": ASK}]
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute("INSERT INTO runs VALUES (?, 'running', 'me', 1, ?)", (run, time.time() + 30))
        self.db.execute(_SAID, (run, 0, json.dumps(messages[0])))
        self.db.execute("COMMIT")
        while True:
            reply = yield messages
            messages.append(reply)
            said = (_SAID, (run, len(messages) - 1, json.dumps(reply)))
            (call,) = reply["tool_calls"]
            name, args = checked(call)
            text = json.dumps(args)
            if name == "refund":
                called = (_CALLED, (run, call["id"], name, text, "pending"))
                self.commit(
                    run, said, called, ("UPDATE runs SET status = 'suspended', owner = NULL WHERE id = ?", (run,))
                )
                return run
            if self.claims:
                self.commit(run, said, (_CALLED, (run, call["id"], name, text, "started")))
            else:
                self.commit(run, said)
            messages.append(self.settle(run, len(messages), call["id"], name, args))

    def settle(self, run: str, seq: int, call: str, name: str, args: dict[str, Any], fence: int = 1) -> dict[str, Any]:
        """The message with the result of a call, which is stored."""
        found = _FUNCTIONS[name](**args)
        result = {
            "role": "tool",
            "tool_call_id": call,
            "content": found if isinstance(found, str) else json.dumps(found),
        }
        said = (_SAID, (run, seq, json.dumps(result)))
        if self.claims or name == "refund":
            self.commit(run, said, (_SETTLED, (run, call)), fence=fence)
        else:
            self.commit(run, said)
        return result

    def resume(self, run: str) -> Flow:
        """From the approval to the answer."""
        rows = self.db.execute("SELECT body FROM messages WHERE run = ? ORDER BY seq", (run,)).fetchall()
        messages: Messages = [json.loads(body) for (body,) in rows]
        ((call, name, args),) = self.db.execute(
            "SELECT id, name, args FROM calls WHERE run = ? AND status = 'pending'", (run,)
        ).fetchall()
        fence = 2
        if self.claims:
            self.db.execute("BEGIN IMMEDIATE")
            taken = self.db.execute(
                "UPDATE runs SET status = 'running', owner = 'me', fence = ?, lease = ? WHERE id = ? AND owner IS NULL AND fence = ?",
                (fence, time.time() + 30, run, fence - 1),
            )
            assert taken.rowcount == 1, f"somebody else has run {run}"
            self.db.execute("UPDATE calls SET status = 'started' WHERE run = ? AND id = ?", (run, call))
            self.db.execute("COMMIT")
        messages.append(self.settle(run, len(messages), call, name, json.loads(args), fence))
        reply = yield messages
        self.commit(
            run,
            (_SAID, (run, len(messages), json.dumps(reply))),
            ("UPDATE runs SET status = 'completed', owner = NULL WHERE id = ?", (run,)),
            fence=fence,
        )
        return str(reply["content"])


class ClaimingSteps(Steps):
    """The same with a claim and intents."""

    claims = True


def checked(call: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of a call, and its arguments, which have the types that they must have."""
    name, args = call["function"]["name"], json.loads(call["function"]["arguments"])
    types = _TYPES[name]
    assert set(args) == set(types) and all(isinstance(args[each], kind) for each, kind in types.items())
    return name, args


def body(messages: Messages, calls: int) -> dict[str, Any]:
    """The body of a request."""
    return {
        "model": model_name(calls),
        "messages": [{"role": "system", "content": SYSTEM}, *messages],
        "tools": TOOLS,
    }


class FloorDesk:
    """The steps, and something that asks."""

    def __init__(self, steps: Steps, ask: Ask, script: Script | None = None) -> None:
        self.steps, self.ask, self.script = steps, ask, script

    def suspend(self) -> str:
        """From the message to the stop."""
        if self.script is not None:
            self.script.turn = 0
        return self.driven(self.steps.suspend())

    def resume(self, waiting: str) -> str:
        """From the approval to the answer."""
        if self.script is not None:
            self.script.turn = self.script.calls + 1
        return self.driven(self.steps.resume(waiting))

    def driven(self, flow: Flow) -> str:
        """Take all steps."""
        try:
            messages = next(flow)
            while True:
                messages = flow.send(self.ask(messages))
        except StopIteration as ended:
            return str(ended.value)

    def close(self) -> None:
        """Close the database."""
        self.steps.db.close()


class AsyncFloorDesk:
    """The same in an event loop. A write takes microseconds, and so goes by in the loop itself."""

    def __init__(self, steps: Steps, ask: Callable[[Messages], Awaitable[dict[str, Any]]], session: Any) -> None:
        self.steps, self.ask, self.session = steps, ask, session

    async def suspend(self, _: int) -> str:
        """From the message to the stop."""
        return await self.driven(self.steps.suspend())

    async def resume(self, waiting: str) -> str:
        """From the approval to the answer."""
        return await self.driven(self.steps.resume(waiting))

    async def driven(self, flow: Flow) -> str:
        """Take all steps."""
        try:
            messages = next(flow)
            while True:
                messages = flow.send(await self.ask(messages))
        except StopIteration as ended:
            return str(ended.value)

    async def close(self) -> None:
        """Close what is open."""
        self.steps.db.close()
        if self.session is not None:
            await self.session.close()


class GraphDesk:
    """Three steps that share a state, the second of which asks. One commit per step."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            "CREATE TABLE IF NOT EXISTS states (run TEXT, step INTEGER, next TEXT, body TEXT, PRIMARY KEY (run, step)) WITHOUT ROWID"
        )

    def stored(self, run: str, step: int, to: str, state: dict[str, Any]) -> None:
        """One step is done."""
        self.db.execute("INSERT INTO states VALUES (?, ?, ?, ?)", (run, step, to, json.dumps(state)))

    def suspend(self) -> str:
        """From the message to the stop."""
        run = os.urandom(8).hex()
        state: dict[str, Any] = {"order": 1042}
        self.stored(run, 0, "look", state)
        state["customer"] = look_up(state["order"])["customer"]
        self.stored(run, 1, "ask", state)
        self.stored(run, 2, "asked", state)
        return run

    def resume(self, waiting: str) -> str:
        """From the approval to the answer."""
        (text,) = self.db.execute(
            "SELECT body FROM states WHERE run = ? ORDER BY step DESC LIMIT 1", (waiting,)
        ).fetchone()
        state = json.loads(text)
        state["approved"] = True
        self.stored(waiting, 3, "pay", state)
        state["said"] = f"Order {state['order']} is refunded."
        self.stored(waiting, 4, "", state)
        return str(state["said"])

    def close(self) -> None:
        """Close the database."""
        self.db.close()


class Floor(Side):
    """Messages and the pending call, one commit per step."""

    steps: type[Steps] = Steps
    client: Any = None

    def desk(self, path: Path, kind: str, calls: int = 0) -> FloorDesk | GraphDesk:
        """See `Side.desk`."""
        if kind == "graph":
            return GraphDesk(path)
        if kind == "script":
            script = Script(calls)
            return FloorDesk(self.steps(opened(path)), lambda _: script.next(), script)
        return FloorDesk(self.steps(opened(path)), self.asks(calls))

    def asks(self, calls: int) -> Ask:
        """Asks over HTTP."""
        if self.client is None:
            # Where click and rich are installed, httpx loads its command line with them: half of its import, and of no use here.
            sys.modules.setdefault("click", None)  # type: ignore[arg-type]
            import httpx  # noqa: PLC0415  # what has no need of it does not pay for it

            self.client = httpx.Client()
        client, url = self.client, f"{self.url}/chat/completions"

        def ask(messages: Messages) -> dict[str, Any]:
            response = client.post(url, json=body(messages, calls), headers=HEADERS)
            response.raise_for_status()
            message: dict[str, Any] = response.json()["choices"][0]["message"]
            return message

        return ask

    async def async_desk(self, path: Path) -> AsyncFloorDesk:
        """See `Side.async_desk`. httpx takes ten times the CPU of aiohttp where many requests are in flight."""
        import aiohttp  # noqa: PLC0415

        session, url = (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)),
            f"{self.url}/chat/completions",
        )

        async def ask(messages: Messages) -> dict[str, Any]:
            async with session.post(url, json=body(messages, 0), headers=HEADERS) as response:
                response.raise_for_status()
                message: dict[str, Any] = (await response.json())["choices"][0]["message"]
                return message

        return AsyncFloorDesk(self.steps(opened(path)), ask, session)

    def page(self, runs: int) -> Measured:
        """See `Side.page`."""
        db = self.filled(runs)
        self.after = getattr(self, "after", 0) + 50
        yield
        rows = db.execute(
            "SELECT asked, run, id, name, args FROM calls WHERE status = 'pending' AND asked > ? ORDER BY asked LIMIT 50",
            (self.after,),
        ).fetchall()
        found = [(*row, json.loads(args)) for *row, args in rows]
        yield
        assert len(found) == 50
        return None

    def count(self, runs: int) -> Measured:
        """See `Side.count`."""
        db = self.filled(runs)
        yield
        (found,) = db.execute("SELECT COUNT(*) FROM calls WHERE status = 'pending'").fetchone()
        yield
        assert found == runs
        return None

    def filled(self, runs: int) -> sqlite3.Connection:
        """A table in which so many calls wait, with an index."""
        path = self.folder / f"filled-{runs}.db"
        new = not path.exists()
        db = sqlite3.connect(path, isolation_level=None)
        if new:
            db.execute("CREATE TABLE calls (run TEXT, id TEXT, name TEXT, args TEXT, status TEXT, asked REAL)")
            rows = ((f"run_{n}", f"call_{n}", "refund", '{"order_id": 1042}', "pending", float(n)) for n in range(runs))
            db.execute("BEGIN")
            db.executemany("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?)", rows)
            db.execute("CREATE INDEX asked ON calls (status, asked)")
            db.execute("COMMIT")
        return db


class Claiming(Floor):
    """The same with a claim, a fence, a lease and intents."""

    steps = ClaimingSteps

    def desk(self, path: Path, kind: str, calls: int = 0) -> FloorDesk | GraphDesk:
        """See `Side.desk`. The graph has no second floor."""
        if kind == "graph":
            raise Absent
        return super().desk(path, kind, calls)

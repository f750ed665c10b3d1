"""What a real Ctrl-C gets: SIGINT sent to a real process, in the model call, in tools of every kind, and in a save."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from drivers import ASYNC, PATIENCE, SYNC, Driver

import phronomy
from phronomy import Agent, Respond, SQLiteStore, ToolContext, tool
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call

PLACES = ("model", "tool", "idempotent", "parallel", "timeout", "save", "saved")
KINDS = ("sync", "async", "async-tool")


def ready() -> None:
    """Tell the parent that the place is reached."""
    os.write(1, b"ready\n")  # in one piece: two threads may say so at once


class HangingStore(SQLiteStore):
    """Hangs in the save of a tool's result: in the middle of the transaction, or when it is through and not yet said."""

    place = ""

    def _append(self, change: Append) -> Any:
        branch = yield from super()._append(change)
        self._hang(change, "save")
        return branch

    def append(self, change: Append) -> Branch:
        branch = super().append(change)
        self._hang(change, "saved")
        return branch

    def _hang(self, change: Append, place: str) -> None:
        if self.place == place and any('"type":"settled"' in entry.body for entry in change.entries):
            ready()
            os.read(0, 1)


def make_agent(folder: Path, place: str, kind: str, *, hangs: bool) -> Agent[Any, str]:
    """An agent that hangs in the given place, unless it is to go on; every effect is a line in a file."""
    store = HangingStore(folder / "runs.db")
    if place in ("save", "saved"):
        store.place, hangs = place if hangs else "", False

    def hang() -> None:
        if hangs:
            ready()
            threading.Event().wait(PATIENCE)

    async def ahang() -> None:
        if hangs:
            ready()
            await asyncio.Event().wait()

    def note(name: str, context: ToolContext[Any]) -> None:
        with (folder / "effects").open("a") as file:
            file.write(f"{name} {context.idempotency_key}\n")

    options: dict[str, Any] = {"timeout": 60 if place == "timeout" else None, "idempotent": place == "idempotent"}

    def slow(ctx: ToolContext[Any]) -> str:
        """Be slow."""
        note("slow", ctx)
        hang()
        return "slow is done"

    async def aslow(ctx: ToolContext[Any]) -> str:
        """Be slow."""
        note("slow", ctx)
        await ahang()
        return "slow is done"

    @tool(requires_approval=True)
    def gated() -> str:
        """Wait for a human."""
        return "gated is done"

    def thinking(request: Any) -> str:
        hang()
        return "done"

    async def athinking(request: Any) -> str:
        await ahang()
        return "done"

    calls = {"model": [], "parallel": [call("slow"), call("slow"), call("gated")]}.get(place, [call("slow")])
    last: Any = "done" if place != "model" else thinking if kind == "sync" else athinking
    replies = [calls, last] if calls else [last]
    tools = [tool(name="slow", **options)(aslow if kind == "async-tool" else slow), gated]
    return Agent(name="clerk", model=ScriptedModel.by_turn(replies), tools=tools, store=store)


@contextmanager
def woken_by_signals() -> Iterator[None]:
    """Have the main thread hear a signal whenever it comes.

    One that comes just before a lock or an event loop goes to sleep is noted, and heard when something else wakes the
    main thread. So another thread, which the note reaches, sends it a second signal until the first is heard.
    """
    heard = threading.Event()
    noted, bell = socket.socketpair()
    bell.setblocking(False)

    def wake() -> None:
        noted.recv(1)
        while not heard.wait(0.01):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    waker = threading.Thread(target=wake)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    with noted, bell:
        signal.set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)
        waker.start()
        try:
            yield
        finally:
            heard.set()
            signal.set_wakeup_fd(-1)
            with suppress(BlockingIOError):
                bell.send(b"the end")
            waker.join()


def child(folder: Path, place: str, kind: str) -> None:
    """Run until interrupted; then say how the run stands, and recover it at once, in the same process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    agent = make_agent(folder, place, kind, hangs=True)
    driver = SYNC if kind == "sync" else ASYNC
    try:
        with woken_by_signals():
            driver.invoke(agent, "go", thread_id="t") if driver is SYNC else asyncio.run(
                agent.ainvoke("go", thread_id="t")
            )
    except KeyboardInterrupt:
        (branch,) = agent.store.branches()
        again = make_agent(folder, place, kind, hangs=False)
        result = driver.recover(again, branch.id)
        said = {
            "owner": branch.owner,
            "branch": branch.status,
            "status": result.status,
            "pending": [[item.tool_name, item.why] for item in result.checkpoint.pending],
        }
        print(json.dumps(said), flush=True)


@pytest.mark.few(7)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_sigint_leaves_nothing_half_done(tmp_path: Path, place: str, kind: str) -> None:
    """Ctrl-C in the model call, in a tool and in a save, as a real signal to a real process: it recovers at once, there
    and here. In an async run a save is in a thread, where no signal comes: it goes through.
    """
    driver: Driver = SYNC if kind == "sync" else ASYNC
    root = str(Path(phronomy.__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", __file__, str(tmp_path), place, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert process.stdout is not None
    for _ in range(2 if place == "parallel" else 1):
        assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(input="go on", timeout=PATIENCE)
    assert process.returncode == 0

    unknown = {"tool": 1, "parallel": 2, "timeout": 1, "save": int(kind == "sync")}.get(place, 0)
    pending = [["slow", "outcome_unknown"]] * unknown + [["gated", "approval"]] * (place == "parallel")
    assert json.loads(said) == {
        "owner": None,
        "branch": "failed" if place in ("model", "saved") or (place == "save" and kind != "sync") else "running",
        "status": "suspended" if pending else "completed",
        "pending": pending,
    }

    agent = make_agent(tmp_path, place, kind, hangs=False)
    with agent.store:
        result = driver.recover(agent, agent.store.branches()[0].id)
        if pending:
            answers = {item.id: Respond(content="it is done") for item in result.checkpoint.pending}
            result = driver.resume(agent, result.checkpoint, decisions=answers)
        assert (result.status, result.output) == ("completed", "done")
        assert [branch.status for branch in agent.store.branches()] == ["completed"]
    effects = (tmp_path / "effects").read_text().splitlines() if place != "model" else []
    assert len(effects) == {"model": 0, "idempotent": 2, "parallel": 2}.get(place, 1)
    assert len(set(effects)) == (2 if place == "parallel" else min(1, len(effects)))


if __name__ == "__main__":
    child(Path(sys.argv[1]), sys.argv[2], sys.argv[3])

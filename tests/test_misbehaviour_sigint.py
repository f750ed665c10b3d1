"""What a real Ctrl-C gets: SIGINT sent to a real process, in the model call, in tools of every kind, and in a save."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
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


def wake_now_and_then() -> None:
    """Have the main thread hear a signal that came just before a lock or an event loop of the test's own went to sleep."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)


def child(folder: Path, place: str, kind: str) -> None:
    """Run until interrupted; then say how the run stands, and recover it at once, in the same process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    agent = make_agent(folder, place, kind, hangs=True)
    driver = SYNC if kind == "sync" else ASYNC
    try:
        wake_now_and_then()
        driver.invoke(agent, "go", thread_id="t") if driver is SYNC else asyncio.run(agent.ainvoke("go", thread_id="t"))
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
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


def started(*arguments: str) -> subprocess.Popen[str]:
    """This file as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", __file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(phronomy.__file__).parent.parent)},
    )


@pytest.mark.few(7)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_sigint_leaves_nothing_half_done(tmp_path: Path, place: str, kind: str) -> None:
    """Ctrl-C in the model call, in a tool and in a save, as a real signal to a real process: it recovers at once, there
    and here. In an async run a save is in a thread, where no signal comes: it goes through.
    """
    driver: Driver = SYNC if kind == "sync" else ASYNC
    process = started(str(tmp_path), place, kind)
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


def waits(place: str) -> None:
    """Wait for good where the sync driver waits for another thread, until the signal is heard that a third one has got."""

    def hang(request: str = "") -> str:
        ready()
        threading.Event().wait()
        return "over"

    slow = tool(name="slow", timeout=PATIENCE if place == "timeout" else None)(hang)
    scripts = {"timeout": [[call("slow")]], "parallel": [[call("slow"), call("slow")]]}
    model = ScriptedModel(scripts.get(place, [hang]))
    agent = Agent(name="clerk", model=model, tools=[slow])
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # so that the thread above gets it
    try:
        if place == "stream":
            with agent.stream("go") as stream:
                list(stream)
        else:
            agent.invoke("go")
    except KeyboardInterrupt:
        print("heard", flush=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("place", ["model", "stream", "timeout", "parallel"])
def test_sigint_is_heard_whichever_thread_has_got_it(place: str) -> None:
    """As one is that comes in the moment before the main thread goes to sleep: Python notes it, and wakes nobody."""
    process = started("", place, "waits")
    assert process.stdout is not None
    for _ in range(2 if place == "parallel" else 1):
        assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (0, "heard\n")


if __name__ == "__main__":
    waits(sys.argv[2]) if sys.argv[3] == "waits" else child(Path(sys.argv[1]), sys.argv[2], sys.argv[3])

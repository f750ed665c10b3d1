"""Runs a small agent in a process of its own, so that tests can kill it, race it, and pick up what it left.

The scenario: two turns, with two gated and three ungated tools; every effect is a line in a file, written with one append.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    Respond,
    Result,
    SQLiteStore,
    ToolContext,
    tool,
)
from phronomy.stores.base import Append, Branch
from phronomy.testing import ScriptedModel, call

NEVER = 10**9


class Bomb:
    """Kills the process, as a power cut would, when it has been passed a number of times."""

    def __init__(self, after: int) -> None:
        self.left = after

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class BombedStore(SQLiteStore):
    """Passes the bomb before and after each write."""

    bomb = Bomb(NEVER)

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        self.bomb.tick()
        super().create(branch, change, exclusive=exclusive)
        self.bomb.tick()

    def append(self, change: Append) -> Branch:
        self.bomb.tick()
        branch = super().append(change)
        self.bomb.tick()
        return branch


def effects(folder: Path) -> list[str]:
    """What the tools have done, in order: the name, and the idempotency key."""
    file = folder / "effects"
    return file.read_text().splitlines() if file.exists() else []


def make_agent(folder: Path, *, is_async: bool, idempotent: bool, bomb: Bomb, later: float = 0.0) -> Agent[Any, str]:
    """The agent of the scenario on the store in `folder`; `later` moves the clock on, so that leases have run out."""

    def act(name: str, context: ToolContext[Any]) -> str:
        bomb.tick()
        with (folder / "effects").open("a") as file:
            file.write(f"{name} {context.idempotency_key}\n")
        bomb.tick()
        return f"{name} is done"

    def define(name: str, gated: bool) -> Any:
        options: dict[str, Any] = {"name": name, "requires_approval": gated, "idempotent": idempotent}
        if is_async:

            @tool(**options)
            async def body(ctx: ToolContext[Any]) -> str:
                """Do it."""
                return act(name, ctx)
        else:

            @tool(**options)
            def body(ctx: ToolContext[Any]) -> str:
                """Do it."""
                return act(name, ctx)

        return body

    store = BombedStore(str(folder / "runs.db"), clock=lambda: time.time() + later)
    store.bomb = bomb
    model = ScriptedModel.by_turn(
        [
            [call("look", {}, id="1"), call("pay", {}, id="2"), call("note", {}, id="3")],
            [call("ship", {}, id="4"), call("mail", {}, id="5")],
            "all done",
        ]
    )
    gated = {"pay", "ship"}
    tools = [define(name, name in gated) for name in ("look", "pay", "note", "ship", "mail")]
    return Agent(name="clerk", model=model, tools=tools, store=store, instructions="Be exact.")


def answer(folder: Path, result: Result[str]) -> dict[str, Any]:
    """What a careful human says: approve, and where nobody knows, look whether it happened."""
    found: dict[str, Any] = {}
    for item in result.checkpoint.pending:
        done = any(line.split()[0] == item.tool_name for line in effects(folder))
        unknown = item.why == "outcome_unknown"
        found[item.id] = Respond(content=f"{item.tool_name} is done") if unknown and done else Approve()
    return found


def carry_on(folder: str, is_async: bool, idempotent: bool, kill_at: int, later: float, one_by_one: bool) -> None:
    """Take the scenario as far as the bomb lets it, from wherever it stands."""
    asyncio.run(_carry_on(Path(folder), is_async, idempotent, kill_at, later, one_by_one))


async def _carry_on(
    folder: Path, is_async: bool, idempotent: bool, kill_at: int, later: float, one_by_one: bool
) -> None:
    agent = make_agent(folder, is_async=is_async, idempotent=idempotent, bomb=Bomb(kill_at), later=later)
    with agent.store:
        branches = agent.store.branches(thread_id="t")
        if branches:
            result = await agent.arecover(branches[-1].id) if is_async else agent.recover(branches[-1].id)
        else:
            result = await agent.ainvoke("go", thread_id="t") if is_async else agent.invoke("go", thread_id="t")
        while result.suspended:
            answers = answer(folder, result)
            if one_by_one:
                answers = dict(list(answers.items())[:1])
            if is_async:
                result = await agent.aresume(result.checkpoint, decisions=answers)
            else:
                result = agent.resume(result.checkpoint, decisions=answers)
        (folder / "end").write_text(outline(result.checkpoint))


def outline(checkpoint: Checkpoint) -> str:
    """The conversation as text, for comparing runs: what was said, whether a tool or a human who looked gave a result."""
    lines = [f"{message.role}: {message.text}" for message in checkpoint.messages]
    return "\n".join([*lines, checkpoint.status])


def race(folder: str, checkpoint_id: str, pending_id: str, start: Any, verdicts: Any) -> None:
    """Resume a checkpoint at the same moment as others, and say what came of it."""
    agent = make_agent(Path(folder), is_async=False, idempotent=False, bomb=Bomb(NEVER))
    with agent.store:
        start.wait()
        try:
            agent.resume(checkpoint_id, decisions={pending_id: Approve()}, by=str(os.getpid()))
        except CheckpointAlreadyResumed as error:
            assert error.decision is not None and error.decision.by is not None
            verdicts.put(("lost", error.decision.by.id, error.progress))
        else:
            verdicts.put(("won", str(os.getpid()), ""))


def decide(folder: str, checkpoint_id: str, pending_id: str, start: Any, verdicts: Any) -> None:
    """Decide one of several pending approvals, and say how the run stands."""
    agent = make_agent(Path(folder), is_async=False, idempotent=False, bomb=Bomb(NEVER))
    with agent.store:
        if start is not None:
            start.wait()
        result = agent.resume(checkpoint_id, decisions={pending_id: Approve()}, by=str(os.getpid()))
        verdicts.put((result.status, result.output))

"""A firm of four agents, one inside the other, over any kind of database: what the tests of nested runs drive and look at.

    director -> manager -> lead -> clerk

The director asks the manager twice in one reply, for the left and for the right; each clerk looks, which nobody is asked about, and
pays, which a human approves. Whatever is done is done by a firm that is built anew, with a store that is opened anew.

python nested_scenes.py sync|async URL FOLDER invoke|resume|die [CHECKPOINT PENDING]: the same, as a process of its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crash_worker import go, make_agent, settle
from drivers import ASYNC, SYNC, Driver

from phronomy import Agent, Approve, Checkpoint, Result, ToolContext, tool
from phronomy.models.base import ModelRequest
from phronomy.stores import open_store
from phronomy.stores.base import Store
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.log.log import rows_of
from phronomy.testing import ScriptedModel, call, check_history

HOUR = 3600.0
CHAIN = ("director", "manager", "lead", "clerk")
BOTH = ("left", "right")


def asked_of(request: ModelRequest) -> str:
    """What the agent was asked, last."""
    return [message.text for message in request.messages if message.role == "user"][-1]


def told(request: ModelRequest) -> str:
    """All that the calls since then came to: an agent that answers so passes on what it was told."""
    last = max(place for place, message in enumerate(request.messages) if message.role == "user")
    return " & ".join(message.text for message in request.messages[last:] if message.role == "tool")


def passing(*replies: Any) -> ScriptedModel:
    """A model that makes these calls, functions of what it was asked, and then says what it was told."""

    def reply(each: Any) -> Any:
        return (lambda request: each(asked_of(request))) if callable(each) else each

    return ScriptedModel.by_turn([*map(reply, replies), told])


def asking(agent: Agent[Any, Any], model: ScriptedModel, *tools: Any, name: str, **options: Any) -> Agent[Any, Any]:
    """An agent that has this one among its tools."""
    return Agent(name=name, model=model, tools=[agent.as_tool(), *tools], **options)


def tools_of(driver: Driver, effect: Callable[..., None], **options: Any) -> tuple[Any, Any]:
    """A tool that pays, gated, and one that looks."""

    def pay(who: str, ctx: ToolContext[Any], amount: int = 10) -> str:
        """Pay somebody."""
        effect("pay", who, amount, ctx)
        return f"paid {who} {amount}"

    def look(who: str, ctx: ToolContext[Any]) -> str:
        """Look somebody up."""
        effect("look", who, 0, ctx)
        return f"saw {who}"

    gated: dict[str, Any] = {"requires_approval": True, "approval_timeout": HOUR, **options}
    return tool(**gated)(driver.function(pay)), tool(driver.function(look))


def firm(driver: Driver, effect: Callable[..., None], store: Store | None, **options: Any) -> Agent[Any, str]:
    """The director, with everybody below."""
    pay, look = tools_of(driver, effect, **options)
    works = passing(lambda who: [call("look", {"who": who}), call("pay", {"who": who})])
    clerk: Agent[Any, Any] = Agent(name="clerk", model=works, tools=[look, pay])
    lead = asking(clerk, passing(lambda who: call("clerk", {"input": who})), name="lead")
    manager = asking(lead, passing(lambda who: call("lead", {"input": who})), name="manager")
    both = [*(call("manager", {"input": who}) for who in BOTH), call("look", {"who": "root"})]
    return asking(manager, passing(both), look, name="director", store=store)


class Firm:
    """Does each thing by another firm, and keeps what was done in a file outside."""

    def __init__(self, driver: Driver, place: Any) -> None:
        self.driver = driver
        self.place = place
        self.file = place.folder / "effects"
        self.later = 0.0
        self.options: dict[str, Any] = {}
        self.draw: Callable[[Store | None], Agent[Any, Any]] = lambda store: firm(
            self.driver, self.effect, store, **self.options
        )

    def effect(self, name: str, who: str, amount: int, ctx: ToolContext[Any]) -> None:
        """Note that a tool was entered."""
        note(self.file, f"{name} {who} {amount} {ctx.idempotency_key}")

    @property
    def done(self) -> list[str]:
        """What tools were entered for, sorted: the name, for whom, and how much."""
        return sorted(line.rpartition(" ")[0] for line in self.lines)

    @property
    def lines(self) -> list[str]:
        """As `done`, in order, each with its idempotency key."""
        return self.file.read_text().splitlines() if self.file.exists() else []

    def store(self) -> Any:
        self.place.close()  # one process at a time
        return self.place.open(clock=lambda: time.time() + self.later)

    def agent(self) -> Agent[Any, Any]:
        return self.draw(self.store())

    def invoke(self, input: Any = "go", **options: Any) -> Result[Any]:
        return self.driver.invoke(self.agent(), input, **options)

    def resume(self, checkpoint: Checkpoint | str, **options: Any) -> Result[Any]:
        return self.driver.resume(self.agent(), checkpoint, **options)

    def decide(self, checkpoint: Checkpoint, answers: Mapping[int, Any], **options: Any) -> Result[Any]:
        """Answer what waits at these places."""
        decisions = {checkpoint.pending[place].id: answer for place, answer in answers.items()}
        return self.resume(checkpoint, decisions=decisions, **options)

    def recover(self, run: Checkpoint | str) -> Result[Any]:
        return self.driver.recover(self.agent(), run)

    def cancel(self, run: Checkpoint | str, **options: Any) -> Result[Any]:
        return self.driver.cancel(self.agent(), run, **options)

    def runs(self, checkpoint: Checkpoint) -> dict[str, Checkpoint]:
        """The last checkpoint of each run of the branch, by path: those that have ended too."""
        entries = whole_lineage(self.store(), branch_id=checkpoint.branch_id).entries
        return {row.path: row for row in rows_of(entries)}

    def check_histories(self, checkpoint: Checkpoint) -> None:
        """A provider accepts the history of every run, at each depth."""
        for path, row in self.runs(checkpoint).items():
            calls = [each.id for message in row.messages for each in message.tool_calls]
            results = [message.tool_call_id for message in row.messages if message.role == "tool"]
            assert results == calls[: len(results)], path
            assert len(results) == len(calls) or row.calls, path
            if not row.calls:
                check_history(row.messages)


def note(file: Path, line: str) -> None:
    """Add a line with one write."""
    opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(opened, f"{line}\n".encode())
    os.close(opened)


def delegated(scene: Any, *, driver: str) -> None:
    """Two runs inside one, beside a payment of its own: a scenario to be killed anywhere, and carried on."""
    inner = make_agent(scene.store, [[call("look"), call("pay")], "done inside"], driver=driver)
    both = [call("inner", {"input": "l"}), call("ship"), call("inner", {"input": "r"})]
    agent = make_agent(scene.store, [both, "done"], driver=driver, tools=[inner.as_tool("inner")])
    go(scene, agent, driver)
    settle(scene, agent, driver)


def main(driver: Driver, url: str, folder: Path, what: str, *given: str) -> None:
    """Invoke, resume, or resume and be killed in the middle of a payment; print what has come of it."""

    def effect(name: str, who: str, amount: int, ctx: ToolContext[Any]) -> None:
        note(folder / "effects", f"{name} {who} {amount} {ctx.idempotency_key}")
        if what.startswith("die") and name == "pay":
            os.kill(os.getpid(), signal.SIGKILL)

    with open_store(url) as store:
        director = firm(driver, effect, store, idempotent=what == "die-idempotent")
        if what == "invoke":
            result = driver.invoke(director, "go")
        else:
            result = driver.resume(director, given[0], decisions={each: Approve() for each in given[1:]}, by="ann")
        print(json.dumps([result.status, result.output, result.checkpoint.id]), flush=True)


if __name__ == "__main__":
    main({"sync": SYNC, "async": ASYNC}[sys.argv[1]], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])

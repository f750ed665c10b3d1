"""The refund desk behind `phronomy demo`: an agent that looks orders up by itself, and refunds only what a human approved.

A script stands in for the model: the demo needs no key and no network, and starts at once. The run is kept in a SQLite
file, and so are the refunds: a line for each time that the tool ran. A process killed anywhere leaves a run that the next
demo on the same file goes on with.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field

from phronomy.agents.agent import Agent
from phronomy.cli.apps import own_file
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, PENDING, login_name, who_decided
from phronomy.errors import AgentChanged, RunBusy, RunFailed, StoreError, ThreadBusy
from phronomy.foundation.dataclasses import dataclass
from phronomy.models.base import ModelRequest
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer, Approve, PendingApproval, Reject
from phronomy.records.messages import Message
from phronomy.records.principals import Principal
from phronomy.records.result import Result
from phronomy.stores.rows import ENDED
from phronomy.stores.sql.sqlite import SQLiteStore
from phronomy.testing.scripted import Reply, ScriptedModel, call, say
from phronomy.tools.context import ToolContext
from phronomy.tools.tool import tool

MODEL: Final = "script"
THREAD: Final = "refund-desk"
LEASE: Final = 10.0
"""Seconds until the run of a demo that was killed at work may be taken over. One that was killed at the prompt holds none."""

PATIENCE: Final = 60.0
POLL: Final = 0.2
"""Seconds to wait for a demo that is at work in another process, and between two looks at it."""

INSTRUCTIONS: Final = (
    "You work at the refund desk of a shop. Look the order up before you refund it. Refund no more than it cost. "
    "A human decides on each refund: when one is rejected, tell the customer so, and do not ask again."
)


# The shop


ITEMS: Final = (("kettle", 49.90), ("lamp", 85.00), ("desk chair", 129.00))
FIRST_ORDER: Final = 1042


@dataclass(frozen=True)
class Refunds:
    """The refunds made so far: a table that lines are only ever added to, so that a tool which ran twice would show."""

    path: Path

    def __post_init__(self) -> None:
        self._do(
            "CREATE TABLE IF NOT EXISTS demo_refunds"
            " (at TEXT NOT NULL, run_id TEXT NOT NULL, order_id INTEGER NOT NULL, amount REAL NOT NULL, reason TEXT NOT NULL)"
        )

    def add(self, run_id: str, order_id: int, amount: float, reason: str) -> None:
        """Write a refund down."""
        values = (datetime.now(UTC).isoformat(timespec="seconds"), run_id, order_id, amount, reason)
        self._do("INSERT INTO demo_refunds VALUES (?, ?, ?, ?, ?)", values)

    def count(self, run_id: str | None = None) -> int:
        """Counts the refunds: of one run, or all."""
        found: int = self._do("SELECT count(*) FROM demo_refunds WHERE ? IN (run_id, '')", (run_id or "",))[0][0]
        return found

    def _do(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        try:
            with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
                return db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error


def order(order_id: int) -> tuple[str, float]:
    """Gives the order and its price. Raises `LookupError`."""
    if not 1000 <= order_id <= 9999:
        raise LookupError(f"there is no order {order_id}")
    return ITEMS[(order_id - FIRST_ORDER) % len(ITEMS)]


@tool
def lookup_order(order_id: int) -> dict[str, object]:
    """Look up what was ordered, and what it cost in euros."""
    item, price = order(order_id)
    return {"order_id": order_id, "item": item, "price": price}


@tool(requires_approval=True)
def refund(
    order_id: int, amount: Annotated[float, Field(gt=0)], reason: str, *, context: ToolContext[Refunds]
) -> dict[str, object]:
    """Refund an order, in full or in part, in euros."""
    _, price = order(order_id)
    if amount > price:
        raise ValueError(f"order {order_id} cost {price:.2f} euros, and no more can be refunded")
    context.deps.add(context.run_id, order_id, amount, reason)
    return {"order_id": order_id, "refunded": amount}


# What stands in for the model


def answer(request: ModelRequest) -> Reply:
    """The reply to a request, made from the messages in it and from nothing else."""
    messages = request.messages
    asked = max(index for index, message in enumerate(messages) if message.role == "user")
    customer = messages[asked].text
    results = _results(messages[asked + 1 :])
    number = re.search(r"\border (\d+)", customer, re.IGNORECASE)
    if number is None:
        return "Which order is it? Please tell me its number."
    if "lookup_order" not in results:
        return call("lookup_order", {"order_id": int(number[1])})
    found = _object(results["lookup_order"])
    if found is None:
        return f"I can do nothing for order {number[1]}. The shop says: {results['lookup_order']}"
    if "refund" not in results:
        why = customer.partition(". ")[0]
        wanted = {"order_id": found["order_id"], "amount": found["price"], "reason": why}
        return say(
            f"The {found['item']} cost {found['price']:.2f} euros. I ask for the refund.", call("refund", wanted)
        )
    note, _, last = results["refund"].rpartition("\n")
    done = _object(last)
    if done is None:
        return f"There is no refund that I could confirm for order {number[1]}. I was told: {results['refund']}"
    changed = "The desk changed what I had asked for. " if note else ""
    return f"{changed}{done['refunded']:.2f} euros for order {done['order_id']} are on their way back to you."


def _results(messages: Sequence[Message]) -> dict[str, str]:
    """The last result of each tool, by the name of the tool."""
    names = {made.id: made.name for message in messages for made in message.tool_calls}
    return {names[message.tool_call_id or ""]: message.text for message in messages if message.role == "tool"}


def _object(text: str) -> dict[str, object] | None:
    """The object in a JSON text, None if it holds none."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


# Where it is kept


def prepared(path: Path | None) -> Path:
    """The file to use. Raises `StoreError`, `OSError`."""
    if path is None:
        path = own_file("demo.db", "PATH")
    path = Path(os.path.abspath(path))
    if path.is_dir():
        raise StoreError(f"{path} is a directory: give the file in it with --store PATH")
    return path


# The desk


class Desk:
    """An open refund desk: its agent, its store, its refunds, and the script that stands in for the model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A demo that is killed loses nothing so; a power cut may take its last step.
        self.store: SQLiteStore = SQLiteStore(path, lease=LEASE, synchronous="NORMAL")
        try:
            self.refunds: Refunds = Refunds(path)
        except BaseException:
            self.store.close()
            raise
        self.model: ScriptedModel = ScriptedModel(answer, name=MODEL)
        self.agent: Agent[Refunds] = Agent(
            name="refund-desk",
            model=self.model,
            instructions=INSTRUCTIONS,
            tools=[lookup_order, refund],
            store=self.store,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.store.close()

    def open_run(self) -> str | None:
        """The id of the branch that has not ended, None if all have."""
        return next((each.id for each in self.store.branches(thread_id=THREAD) if each.status not in ENDED), None)

    def begin(self) -> Result:
        """A new customer's request, up to where a human is asked. Raises `ThreadBusy` if a run has not ended."""
        order_id = FIRST_ORDER + self.refunds.count() % 5000
        said = f"The {order(order_id)[0]} of order {order_id} arrived broken. Please refund it."
        return self.agent.invoke(said, thread_id=THREAD, messages=(), deps=self.refunds)

    def carry_on(self, branch_id: str) -> Result:
        """A run where it was left: at once if it waits for a human, else up to there. Raises `RunBusy` while it is at work."""
        return self.agent.recover(branch_id, deps=self.refunds)

    def decide(self, result: Result, pending: PendingApproval, decision: Answer, channel: str) -> Result:
        """Decide, and go on. Raises `CheckpointAlreadyResumed` if somebody else has decided."""
        return self.agent.resume(
            result.checkpoint,
            decisions={pending.id: decision},
            by=Principal(id=login_name()),
            channel=channel,
            deps=self.refunds,
        )


# The conversation with the human


def run_demo(screen: Screen, given: Approve | Reject | None, store: Path | None) -> int:
    """Go through one request with whoever sits there, and return the exit status.

    `given` decides without a prompt. `store` is the file, None for the one in the user's data directory.
    """
    path = prepared(store)
    again = "phronomy demo" if store is None else f"phronomy demo --store {shlex.quote(str(store))}"
    with Desk(path) as desk:
        try:
            return Session(screen, desk, given, again).run()
        except (KeyboardInterrupt, EOFError) as error:
            return screen.complain_of_end(error, f"Nothing is lost, it is all in {path}; go on with: {again}")
        except RunFailed as error:
            error.add_note(f"go on with: {again}")
            raise
        except AgentChanged as error:
            raise StoreError(
                f"{error.args[0].partition('. ')[0]}; begin anew with another file: --store PATH"
            ) from error


class Session:
    """One run of the demo, from the customer's request, or from where it was left, to its end."""

    def __init__(self, screen: Screen, desk: Desk, given: Approve | Reject | None, again: str) -> None:
        self.screen = screen
        self.desk = desk
        self.given = given
        self.again = again
        self.shown: int = 0

    def run(self) -> int:
        """Ask until the run has ended. The exit status."""
        screen = self.screen
        screen.say("A refund desk: the agent looks orders up by itself, and asks before it refunds.", style="bold")
        screen.say("A script stands in for the model. Nothing leaves this machine.")
        screen.say()
        result = self.opened()
        self.show_messages(result.checkpoint)
        while result.suspended:
            pending = result.checkpoint.pending[0]
            decision = self.decision_on(pending, result.run_id)
            if decision is None:
                self.show_waiting(pending)
                return PENDING
            with screen.working("The run goes on"):
                result = self.desk.decide(result, pending, decision, self.channel())
            screen.say(f"The refund was {who_decided(result.checkpoint.decisions[-1])}.", style="bold")
            screen.say()
            self.show_messages(result.checkpoint)
        self.show_end(result)
        return DONE

    def opened(self) -> Result:
        """The run that was left, or a new one."""
        until = time.monotonic() + PATIENCE
        while True:
            branch_id = self.desk.open_run()
            try:
                with self.screen.working("The agent is at work"):
                    if branch_id is None:
                        return self.desk.begin()
                    result = self.desk.carry_on(branch_id)
            except (RunBusy, ThreadBusy):
                if time.monotonic() > until:
                    raise
                with self.screen.working("Another demo is at work on this run, or was killed at it a moment ago"):
                    time.sleep(POLL)
                continue
            asked = min((item.requested_at for item in result.checkpoint.pending), default=result.checkpoint.created_at)
            self.screen.say(f"Picked up where it was left at {asked:%Y-%m-%d %H:%M:%S} UTC.", style="bold")
            self.screen.place("file", self.desk.path)
            self.screen.say()
            return result

    def channel(self) -> str:
        """The way a decision came in."""
        if self.given is not None:
            return "--yes" if isinstance(self.given, Approve) else "--no"
        try:
            return os.ttyname(sys.stdin.fileno())
        except (AttributeError, OSError):
            return "terminal"

    # What is shown

    def show_messages(self, checkpoint: Checkpoint) -> None:
        """The conversation since it was last shown."""
        waiting = {item.call_id for item in checkpoint.pending}
        for message in checkpoint.messages[self.shown :]:
            self.show_message(message, waiting)
        self.shown = len(checkpoint.messages)

    def show_message(self, message: Message, waiting: set[str]) -> None:
        """One message, and the calls in it."""
        who = {"user": "customer", "assistant": "model", "tool": "tool"}[message.role]
        if message.text or not message.tool_calls:
            self.screen.row(who, message.text, style="cyan")
        for made in message.tool_calls:
            what = f"asks for {made.name}" if made.id in waiting else f"calls {made.name} {made.arguments}"
            self.screen.row(who, what, style="cyan")

    def show_pending(self, pending: PendingApproval, args: Mapping[str, object], run_id: str) -> None:
        """Prints a pending approval: the tool first, then every argument, as the tool would get it."""
        self.screen.say()
        self.screen.say(f"Approval needed: {pending.tool_name}", style="bold yellow")
        columns = max((len(name) for name in args), default=0)
        for name, value in args.items():
            was = pending.args.get(name)
            changed = (
                "" if was == value else f"changed by you; the model asked for {json.dumps(was, ensure_ascii=False)}"
            )
            self.screen.value(name, value, columns=columns, note=changed)
        if pending.why != "approval":
            self.screen.say()
            self.screen.say(f"You are asked again. {pending.reason or pending.why}", style="yellow")
            self.screen.row("refunds", f"{self.desk.refunds.count(run_id)} on the books by this run")
        self.screen.say()

    def show_waiting(self, pending: PendingApproval) -> None:
        """Prints the commands that decide an open request."""
        self.screen.say("Nothing was decided. The run is saved, and waits for a decision.", style="bold")
        self.screen.place("ask me", self.again)
        if pending.why == "approval":
            self.screen.place("approve", f"{self.again} --yes")
            self.screen.place("reject", f"{self.again} --no --reason TEXT")
        self.screen.place("file", self.desk.path)

    def show_end(self, result: Result) -> None:
        """Prints the result of the run, and how often the tool really ran."""
        refunds, screen = self.desk.refunds, self.screen
        screen.say()
        screen.say(f"The run is {result.status}.", style="bold green")
        mine, whole = refunds.count(result.run_id), refunds.count()
        calls = len(self.desk.model.requests)
        screen.row("refunds", f"{mine} by this run, {whole} in all (the table demo_refunds)")
        screen.row("model", f"{result.usage.requests} calls by this run, {calls} of them by this process")
        screen.place("file", self.desk.path)

    # What is asked

    def decision_on(self, pending: PendingApproval, run_id: str) -> Approve | Reject | None:
        """Gives the decision: that of the command line, else the human's answer. None: nothing yet."""
        args = pending.args
        self.show_pending(pending, args, run_id)
        if self.given is not None and pending.why == "approval":
            return self.given  # what may have happened already is for somebody who looks at it
        if not self.screen.interactive:
            return None
        afresh = True
        while True:
            choice = self.screen.ask("[a]pprove, [r]eject, [e]dit or [l]ater? ", afresh=afresh).lower()
            afresh = False
            if choice in ("a", "approve"):
                return Approve(args=args) if args != pending.args else Approve()
            if choice in ("r", "reject"):
                return Reject(reason=self.screen.ask("Why? The model will read it (Enter for no reason): ") or None)
            if choice in ("l", "later"):
                return None
            if choice in ("e", "edit"):
                # Most people approve or reject, and the module of the deciding commands takes long to import.
                from phronomy.cli.commands.decide import edit_in_place  # noqa: PLC0415

                args = edit_in_place(self.screen, self.desk.agent.spec.tools[pending.tool_name], args)
                self.show_pending(pending, args, run_id)
            else:
                self.screen.say("Please answer a, r, e or l.")

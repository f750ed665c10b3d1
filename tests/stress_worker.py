"""A worker of the stress: a process that begins runs, decides, recovers, deletes, on a store that others use, until it is killed.

What its tools do and what it is told goes into a file of its own making, a line for each thing, written at once: the judge
(`stress_judge`) believes that file, and asks the store only what is to be judged.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from places import Place

from phronomy import Agent, Approve, Reject, Respond, ToolContext, interrupt, tool
from phronomy import errors as known
from phronomy.models.base import ModelRequest
from phronomy.stores.base import Store
from phronomy.stores.rows import OPEN
from phronomy.testing import ScriptedModel, call

TOOLS = {"g": "gated", "p": "plain", "s": "sure", "h": "held", "a": "asks", "n": "nested"}
"""What a letter of a shape stands for: gated; not gated; idempotent; both gated and idempotent; one that asks; an agent inside."""

GATED = ("gated", "held")
REPEATABLE = ("sure", "held")

TYPED: tuple[type[Exception], ...] = (
    known.AgentChanged,
    known.CheckpointAlreadyResumed,
    known.CheckpointNotFound,
    known.CheckpointUntrusted,  # one that was loaded before its run was deleted
    known.LeaseLost,
    known.NotAuthorized,
    known.NothingDecided,
    known.RunBusy,
    known.StillNeeded,
    known.ThreadBusy,
    known.UnknownPending,
)
"""What a caller may be told where others work on the same: all else is a violation."""

PATIENCE = 60.0
"""Seconds in which all must come to rest."""

WORK, REST = 0, 1

LEFT = "Left"
"""What is noted of a call that its caller did not wait for."""


def now() -> float:
    """The time since the machine started: the same for all processes, and set by nobody."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class StoppedWatching(Exception):
    """Whoever watched a stream has seen enough."""


class Notes:
    """The file of what was done. Each line is written at once, so it is there whole or not at all, whoever dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._pid = 0

    def add(self, what: str, **facts: Any) -> None:
        if self._pid != os.getpid():
            self._file, self._pid = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), os.getpid()
        line = json.dumps({"what": what, "pid": self._pid, "at": now(), **facts}) + "\n"
        assert self._file is not None
        os.write(self._file, line.encode())

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


@dataclass(frozen=True)
class World:
    """What the workers of a round share."""

    place: Place
    tenant: str
    notes: Notes
    phase: Any  # a byte that all of them see
    lease: float
    stalls: float = 0.0  # seconds that a write may take to come back, at most
    leaving: float = 0.0  # the part of all calls that are cancelled, or interrupted as by Ctrl-C, at a random instant

    def open(self) -> Store:
        return self.place.open(tenant=self.tenant, lease=self.lease)


class Worker:
    """One process, with a number of its own that is never given again."""

    def __init__(self, world: World, number: int, seed: str) -> None:
        self.world = world
        self.notes = world.notes
        self.number = number
        self.random = random.Random(f"{seed}/{number}")
        self.is_async = self.random.random() < 0.5
        self.store = world.open()
        self.wrote = 0.0
        if world.stalls:
            self._stall()
        self.agents = [self.agent(self.store, strict=False), self.agent(self.store, strict=True)]
        self.seen: list[Any] = []
        self.watches = False  # whether it watches a stream of what it does next
        self.patient = False  # whether it waits for whatever it has begun
        self._count = 0

    def _stall(self) -> None:
        """Writes take their time to come back, and renewals to arrive. Note when the last write did."""
        append, renew = self.store.append, self.store.renew

        def late(change: Any) -> Any:
            branch = append(change)
            time.sleep(self.random.uniform(0, self.world.stalls))
            self.wrote = now()
            return branch

        def slow(claim: Any) -> Any:
            time.sleep(self.random.uniform(0, self.world.stalls))
            return renew(claim)

        self.store.append, self.store.renew = late, slow  # type: ignore[method-assign]

    # What it works with

    def agent(self, store: Store, *, strict: bool) -> Agent[Any, str]:
        """The agent as it is deployed, or as it is with a gate more: a strict one holds `plain` calls, too."""
        inner = Agent(name="inner", model=ScriptedModel(self.reply), tools=self.tools(strict))
        tools = [*self.tools(strict), inner.as_tool("nested", "Does what is inside.")]
        most = self.random.choice((1, 1, 2, 8))
        return Agent(name="desk", model=ScriptedModel(self.reply), tools=tools, store=store, max_parallel=most)

    def tools(self, strict: bool) -> list[Any]:
        def made(name: str) -> Any:
            def body(slot: str, context: ToolContext[Any], note: str = "") -> str:
                """Do it."""
                if name == "asks":
                    interrupt({"slot": slot}, key="go")
                return self.enter(slot, note, context, strict)

            async def abody(slot: str, context: ToolContext[Any], note: str = "") -> str:
                """Do it."""
                await asyncio.sleep(0)
                if name == "asks":
                    interrupt({"slot": slot}, key="go")
                return self.enter(slot, note, context, strict)

            gated = name in GATED or (strict and name == "plain")
            is_async = self.is_async and self.random.random() < 0.7
            return tool(name=name, requires_approval=gated, idempotent=name in REPEATABLE)(abody if is_async else body)

        return [made(name) for name in TOOLS.values() if name != "nested"]

    def enter(self, slot: str, note: str, context: ToolContext[Any], strict: bool) -> str:
        """The effect of a tool."""
        begun = now()
        facts = {"slot": slot, "tool": context.tool_name, "key": context.idempotency_key, "run": context.run_id}
        self.notes.add("enter", **facts, note=note, strict=strict, worker=self.number, begun=begun, wrote=self.wrote)
        if self.world.stalls:
            branch = next(iter(self.store.branches(run_id=context.run_id)), None)
            self.notes.add("holder", slot=slot, run=context.run_id, owner=branch and branch.owner, begun=begun)
        time.sleep(self.random.uniform(0, self.random.choice((0.01, 0.1))))
        text = f"{slot} by {self.number}.{self.count()}"
        self.notes.add("leave", slot=slot, text=text)
        return text

    def reply(self, request: ModelRequest) -> Any:
        """The model does what it was told: `tag|shape|shape`, a shape for each of its turns."""
        last = max(place for place, message in enumerate(request.messages) if message.role == "user")
        tag, *shapes = request.messages[last].text.split("|")
        turn = sum(message.role == "assistant" for message in request.messages[last:])
        self.notes.add("ask", tag=tag, turn=turn, worker=self.number)
        time.sleep(self.random.uniform(0, 0.01))
        if turn == len(shapes):
            return f"done {tag}"
        return [self.call_of(letter, f"{tag}/{turn}.{place}") for place, letter in enumerate(shapes[turn])]

    @staticmethod
    def call_of(letter: str, slot: str) -> Any:
        asked = {"input": f"{slot}|gp"} if letter == "n" else {"slot": slot}
        return call(TOOLS[letter], asked, id=f"c {slot}")

    def count(self) -> int:
        self._count += 1
        return self._count

    # What it does

    def run(self) -> None:
        """Work until the others rest, then see to it that nothing is left to do."""
        self.store.branches(run_id="nobody")
        self.notes.add("begins", worker=self.number, driver="async" if self.is_async else "sync")
        while self.world.phase[0] == WORK:
            self.act()
        self.settle()

    def act(self) -> None:
        """One thing, at random."""
        waiting = self.store.pending(limit=20)
        acts: list[tuple[float, Callable[[], None]]] = [
            (30 if len(waiting) < 12 else 3, lambda: self.invoke(self.shapes(), self.random.choice((*"abcde", None)))),
            (45 if waiting else 0, lambda: self.decide_some(waiting)),
            (8 if self.seen else 0, self.decide_what_was),
            (10, self.recover_all),
            (3, self.recover_one),
            (3, self.go_on),
            (4, self.delete),
            (2, self.prune),
            (2, self.cancel),
        ]
        self.random.choices([each for _, each in acts], [weight for weight, _ in acts])[0]()

    def told(self, act: str, token: str, method: str, *args: Any, agent: Any = None, **options: Any) -> Any:
        """Do it with this agent, or either, and note what the caller is told."""
        agent = agent or self.random.choice(self.agents)
        leaving = not self.patient and self.random.random() < self.world.leaving
        leaves = self.random.uniform(0, 0.15) if leaving else None
        try:
            if self.watches or (leaving and method in ("invoke", "resume") and self.random.random() < 0.5):
                result = self.watched(agent, method, *args, **options)
            elif self.is_async:
                result = asyncio.run(asyncio.wait_for(getattr(agent, f"a{method}")(*args, **options), leaves))
            else:
                with interrupted(leaves):
                    result = getattr(agent, method)(*args, **options)
        except (KeyboardInterrupt, TimeoutError, StoppedWatching):
            self.notes.add(act, token=token, error=LEFT)
            return None
        except TYPED as error:
            self.notes.add(act, token=token, error=type(error).__name__, **self.facts_of(error))
            return None
        except Exception as error:
            if "KeyboardInterrupt" in str(error):  # pydantic, while it writes JSON, makes an error of its own of it
                self.notes.add(act, token=token, error=LEFT)
            else:
                self.raised(act, error, token)
            return None
        if method != "recover_all":
            self.notes.add(act, token=token, run=result.run_id, status=result.status, output=result.output)
        return result

    def watched(self, agent: Any, method: str, at: Any, **options: Any) -> Any:
        """What is streamed, up to some event, or to its end."""
        if method == "resume":
            at = self.store.load(at)
        most = self.random.randint(1, 8)

        async def watch() -> Any:
            async with agent.astream(at, **options) as events:
                async for _ in events:
                    heard.append(_)
                    if len(heard) == most:
                        raise StoppedWatching
            return events.result

        heard: list[Any] = []
        if self.is_async:
            return asyncio.run(watch())
        with agent.stream(at, **options) as events:
            for _ in events:
                heard.append(_)
                if len(heard) == most:
                    raise StoppedWatching
        return events.result

    @staticmethod
    def facts_of(error: Exception) -> dict[str, Any]:
        if not isinstance(error, known.CheckpointAlreadyResumed):
            return {"run": error.run_id} if hasattr(error, "run_id") else {}
        decision = error.decision
        winner = decision.by.id if decision is not None and decision.by is not None else None
        return {"pending": error.pending_id, "winner": winner}

    def raised(self, act: str, error: BaseException, token: str = "") -> None:
        trace = "".join(traceback.format_exception(error))
        self.notes.add("raised", act=act, token=token, error=type(error).__name__, trace=trace)

    def token(self) -> str:
        return f"{self.number}.{self.count()}"

    def shapes(self) -> list[str]:
        """What the model is to ask for: up to five calls, and then perhaps two more."""
        first = "".join(self.random.choices("gpshan", (5, 9, 2, 2, 1, 2), k=self.random.randint(1, 5)))
        then = "".join(self.random.choices("gps", k=self.random.randint(1, 2)))
        return [first, then] if self.random.random() < 0.4 else [first]

    def invoke(self, shapes: list[str], thread: str | None) -> None:
        tag = self.token()
        options = {"on_pending": "supersede"} if self.random.random() < 0.04 else {}
        self.notes.add("invoke", token=tag, thread=thread, shapes=shapes, supersede=bool(options))
        self.told("invoked", tag, "invoke", "|".join((tag, *shapes)), thread_id=thread, **options)

    def decide_some(self, waiting: Any) -> None:
        """Decide one to three of what waits in one run, as the checkpoint has it."""
        first = self.random.choice(waiting[:4] if self.random.random() < 0.5 else waiting)
        beside = [each for each in waiting if each.checkpoint_id == first.checkpoint_id and each is not first]
        self.random.shuffle(beside)
        taken = [first, *beside[: self.random.choice((0, 0, 0, 1, 2))]]
        self.seen = [*self.seen[-20:], taken]
        self.decide(taken)

    def decide_what_was(self) -> None:
        self.decide(self.random.choice(self.seen))

    def decide(self, taken: Any) -> None:
        token = self.token()
        answers, items = {}, []
        for each in taken:
            answer = self.answer(each.approval, token)
            answers[each.approval.id] = answer
            asked = each.approval.args.get("payload") or each.approval.args
            items.append(
                {
                    "pending": each.approval.id,
                    "slot": asked["slot"],
                    "why": each.approval.why,
                    "kind": type(answer).__name__.lower(),
                    "note": (answer.args or {}).get("note") if isinstance(answer, Approve) else None,
                    "content": answer.content if isinstance(answer, Respond) else None,
                }
            )
        self.notes.add("decide", token=token, run=taken[0].run_id, items=items)
        self.told("decided", token, "resume", taken[0].checkpoint_id, decisions=answers, by=token)

    def answer(self, approval: Any, token: str) -> Any:
        kind = self.random.random()
        if kind < 0.15:
            return Reject(reason=f"no {token}")
        if kind < 0.27:
            return Respond(content=f"by hand {token}")
        if kind < 0.37 and approval.why == "approval":
            return Approve(args={**approval.args, "note": f"edited {token}"})
        return Approve()

    def recover_all(self, agent: Any = None) -> int:
        """Recover what lost workers have left: how many runs there were."""
        token = self.token()
        self.notes.add("recover", token=token)
        done = self.told("recovered", token, "recover_all", agent=agent, limit=self.random.choice((1, 3, 100))) or ()
        for each in done:
            if each.error is not None and not isinstance(each.error, TYPED):
                self.raised("recovered", each.error, token)
            else:
                failed = {"error": type(each.error).__name__} if each.error is not None else {}
                status = each.result.status if each.result is not None else None
                self.notes.add("recovered", token=token, run=each.run_id, status=status, **failed)
        return len(done)

    def some_run(self, *status: str) -> Any:
        found = [each for each in self.store.branches() if each.status in status]
        return self.random.choice(found) if found else None

    def recover_one(self) -> None:
        if (run := self.some_run(*OPEN, "completed")) is not None:
            self.told("recovered", self.token(), "recover", run.run_id)

    def go_on(self) -> None:
        """Resume without a decision: for what failed, or runs."""
        if (run := self.some_run("failed", "running")) is not None and run.head is not None:
            self.told("resumed", self.token(), "resume", run.head)

    def delete(self) -> None:
        force = self.random.random() < 0.3
        if (run := self.some_run(*(OPEN if force else ("completed", "rejected", "cancelled")))) is None:
            return
        self.notes.add("delete", run=run.run_id, force=force)
        self.guarded("deleted", lambda: self.store.delete(run.run_id, force=force), run=run.run_id)

    def prune(self) -> None:
        self.notes.add("prune")
        age, last = self.random.choice((0.0, 0.2, 2.0)), self.random.choice((0, 1))
        self.guarded("pruned", lambda: self.store.prune(older_than=age, keep_last=last))

    def cancel(self) -> None:
        if (run := self.some_run("suspended", "running", "failed")) is not None:
            token = self.token()
            self.notes.add("cancel", token=token, run=run.run_id)
            self.told("cancelled", token, "cancel", run.run_id, by=token)

    def guarded(self, act: str, do: Callable[[], Any], **facts: Any) -> None:
        try:
            self.notes.add(act, answer=do(), **facts)
        except TYPED as error:
            self.notes.add(act, error=type(error).__name__, **facts)
        except Exception as error:
            self.raised(act, error)

    # All at once

    def one_of_all(self, place: int, ready: Any) -> None:
        """Decide one of the calls of a reply, as soon as all are there who decide, or up to 20 ms later.

        Of two, the first leaves when it has seen some of what comes of it, and the second decides at about that time.
        """
        mine = self.store.pending()[place]
        ready[place] = 1
        while self.world.phase[0] == WORK:
            time.sleep(0.0002)
        time.sleep(self.random.uniform(0, 0.02 if len(ready) == 5 else 0.2 * place))
        self.watches = len(ready) == 2 and place == 0
        self.decide([mine])

    # At the end

    def settle(self) -> bool:
        """Recover and decide, as workers and humans do, until every run has ended. What failed is resumed when all else is done.

        A run that both agents have judged parts of may suit neither of them: somebody accepts then that the agent has changed.
        """
        self.patient, until = True, now() + PATIENCE
        while now() < until:
            found = [each for each in self.store.branches() if each.status in OPEN]
            if not found:
                return True
            found = sum(self.recover_all(agent) for agent in self.agents)
            for each in self.each_once(self.store.pending()):
                self.decide(each)
            if not found and (run := self.some_run("failed")) is not None:
                self.notes.add("left", run=run.run_id)
                self.told("resumed", self.token(), "resume", run.head, accept_changes=self.random.random() < 0.5)
            time.sleep(0.02)
        return False

    def each_once(self, waiting: Any) -> Iterator[Any]:
        self.random.shuffle(waiting)
        return ([each] for each in waiting)


@contextmanager
def interrupted(seconds: float | None) -> Iterator[None]:
    """`KeyboardInterrupt` is raised in here after so many seconds, as Ctrl-C raises it."""

    def strike(*_: Any) -> None:
        raise KeyboardInterrupt

    if seconds is not None:
        signal.signal(signal.SIGALRM, strike)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def fork(work: Callable[[], object], notes: Notes) -> int:
    """A child that does the work and ends; what it raises is noted. It cleans nothing up that is its parent's."""
    child = os.fork()
    if child:
        return child
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        faulthandler.register(signal.SIGUSR1, file=notes.path.with_suffix(".hangs").open("w"), all_threads=True)
        work()
    except BaseException as error:
        notes.add("raised", act="worker", error=type(error).__name__, trace=traceback.format_exc())
        os._exit(1)
    os._exit(0)

"""Scenarios for processes of their own, which tests kill, race, and pick up again. Every effect is told outside of the store."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from drivers import ASYNC, SYNC

from phronomy import (
    Agent,
    Announcements,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    Reject,
    Respond,
    SQLiteStore,
    ToolContext,
    tool,
)
from phronomy.stores.base import Store
from phronomy.stores.rows import OPEN, Append, Branch, BranchFilter
from phronomy.testing import ScriptedModel, call
from phronomy.testing.crash import Scene

DRIVERS = {"sync": SYNC, "async": ASYNC}
TWO_TURNS = [
    [call("look", {}, id="1"), call("pay", {}, id="2"), call("note", {}, id="3")],
    [call("ship", {}, id="4"), call("mail", {}, id="5")],
    "all done",
]
"""Two turns with two gated and three ungated calls."""


def make_tool(
    name: str, *, is_async: bool, act: Callable[[ToolContext[Any]], None] | None = None, **options: Any
) -> Any:
    """A tool that says that it is done, once `act` has been called."""

    def done(ctx: ToolContext[Any], amount: int) -> str:
        if act is not None:
            act(ctx)
        return f"{name} is done" + (f" with {amount}" if amount != 1 else "")

    if is_async:

        @tool(name=name, **options)
        async def body(ctx: ToolContext[Any], amount: int = 1) -> str:
            """Do it."""
            return done(ctx, amount)
    else:

        @tool(name=name, **options)
        def body(ctx: ToolContext[Any], amount: int = 1) -> str:
            """Do it."""
            return done(ctx, amount)

    return body


def make_agent(
    store: Store, replies: Any, *, driver: str = "sync", idempotent: bool = False, **options: Any
) -> Agent[Any, str]:
    """A clerk who must be asked before it pays, ships or wires."""
    tools = list(options.pop("tools", ()))
    calls = [
        one
        for reply in replies
        if not isinstance(reply, str)
        for one in (reply if isinstance(reply, list) else [reply])
    ]
    for name in sorted({one.name for one in calls} - {each.name for each in tools}):
        gated = name in ("pay", "ship", "wire")
        tools.append(make_tool(name, is_async=driver == "async", requires_approval=gated, idempotent=idempotent))
    model = ScriptedModel.by_turn(replies)
    return Agent(name="clerk", model=model, tools=tools, store=store, instructions="Be exact.", **options)


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


def outline(checkpoint: Checkpoint) -> str:
    """The conversation as text, for comparing runs."""
    lines = [f"{message.role}: {message.text}" for message in checkpoint.messages]
    return "\n".join([*lines, checkpoint.status])


# Scenarios. Each carries on from wherever it stands, as a worker that is started again does.


def looked(scene: Scene, checkpoint: Checkpoint) -> dict[str, Any]:
    """What a careful human says: approve, and where nobody knows, look whether it happened, and what came of it."""
    found: dict[str, Any] = {}
    for item in checkpoint.pending:
        seen = scene.seen(checkpoint, item) if item.why == "outcome_unknown" else None
        found[item.id] = Approve() if seen is None else Respond(content=seen.result or f"{seen.tool} is done")
    return found


def instead(scene: Scene, checkpoint: Checkpoint, answer: Any) -> dict[str, Any]:
    """As `looked`, with another answer where approval is asked for."""
    asked = {item.id for item in checkpoint.pending if item.why == "approval"}
    return {id: answer if id in asked else each for id, each in looked(scene, checkpoint).items()}


def settle(scene: Scene, agent: Agent[Any, Any], driver: str, answers: Any = looked) -> None:
    """Bring every run of the agent to its end."""
    if driver == "async":
        asyncio.run(scene.asettle(agent, answers=partial(answers, scene)))
    else:
        scene.settle(agent, answers=partial(answers, scene))


def go(scene: Scene, agent: Agent[Any, Any], driver: str) -> None:
    """Begin the first run, if nobody has."""
    if not scene.store.branches():
        DRIVERS[driver].invoke(agent, "go", thread_id="t")


def two_turns(scene: Scene, *, driver: str, idempotent: bool = False, one_by_one: bool = False) -> None:
    """Gated and ungated calls in two turns; those that need nobody run side by side."""

    def answers(scene: Scene, checkpoint: Checkpoint) -> dict[str, Any]:
        return dict(list(looked(scene, checkpoint).items())[: 1 if one_by_one else None])

    agent = make_agent(scene.store, TWO_TURNS, driver=driver, idempotent=idempotent)
    go(scene, agent, driver)
    settle(scene, agent, driver, answers)


def side_by_side(scene: Scene, *, driver: str) -> None:
    """Two gated calls that are approved at once and run side by side, beside one that needs nobody."""
    agent = make_agent(scene.store, [[call("look"), call("pay"), call("wire")], "done"], driver=driver)
    go(scene, agent, driver)
    settle(scene, agent, driver)


def retried(scene: Scene, *, driver: str) -> None:
    """An idempotent tool whose first two attempts fail."""

    def fail(ctx: ToolContext[Any]) -> None:
        if ctx.attempt < 3:
            raise ConnectionError("not yet")

    flaky = make_tool("flaky", is_async=driver == "async", act=fail, idempotent=True, retries=9, retry_wait=0)
    agent = make_agent(scene.store, [call("flaky"), "done"], driver=driver, tools=[flaky])
    go(scene, agent, driver)
    settle(scene, agent, driver)


def rejected(scene: Scene, *, driver: str, then: Any = "continue") -> None:
    """A rejection, after which the model goes on, or the run ends."""
    agent = make_agent(scene.store, [[call("look"), call("pay")], "done"], driver=driver)
    go(scene, agent, driver)
    settle(scene, agent, driver, partial(instead, answer=Reject(reason="not now", then=then)))


def edited(scene: Scene, *, driver: str) -> None:
    """An approval with other arguments than were asked for."""
    agent = make_agent(scene.store, [call("pay", {"amount": 900}), "done"], driver=driver)
    go(scene, agent, driver)
    settle(scene, agent, driver, partial(instead, answer=Approve(args={"amount": 5})))


def messaged(scene: Scene, *, driver: str) -> None:
    """A message to a run that waits: the model reads it after the results, and asks for the same once more."""
    agent = make_agent(scene.store, [[call("look"), call("pay")], "done"], driver=driver)
    go(scene, agent, driver)
    for branch in scene.store.branches():
        if branch.status in OPEN:
            scene.store.send(branch.id, "Once more.", by="ann", id="message")
    settle(scene, agent, driver)


def lapsed(scene: Scene, *, driver: str, on_expiry: Any = "reject") -> None:
    """An approval that nobody decides in time, settled by `recover_all`."""
    options = {"approval_timeout": 60, "on_expiry": on_expiry}
    agent = make_agent(scene.store, [[call("look"), call("pay")], "done"], driver=driver, **options)
    go(scene, agent, driver)
    DRIVERS[driver].call(agent, "recover_all")
    clock = scene.store.clock
    scene.store.clock = lambda: clock() + 120
    settle(scene, agent, driver)


def cancelled(scene: Scene, *, driver: str) -> None:
    """A run that is cancelled while it waits."""
    agent = make_agent(scene.store, [[call("look"), call("pay")], "done"], driver=driver)
    go(scene, agent, driver)
    for branch in scene.store.branches():
        if branch.status in OPEN:
            DRIVERS[driver].cancel(agent, branch.run_id, reason="no longer wanted", by="ann")


def superseded(scene: Scene, *, driver: str) -> None:
    """A run whose place a new message takes."""
    agent = make_agent(scene.store, [[call("look"), call("pay")], "done"], driver=driver)
    go(scene, agent, driver)
    if len(scene.store.branches()) == 1:
        DRIVERS[driver].invoke(agent, "never mind", thread_id="t", on_pending="supersede")
    settle(scene, agent, driver)


def forked(scene: Scene, *, driver: str, rerun: bool = False) -> None:
    """A run that has ended, and a fork of it from before the approval: what was done is done once, unless it is asked for."""
    agent = make_agent(scene.store, [[call("look"), call("pay")], "done"], driver=driver)
    go(scene, agent, driver)
    settle(scene, agent, driver)
    [first, *forks] = scene.store.branches()
    if not forks:
        place = next(each for each in scene.store.history(first.head or "") if each.pending)
        DRIVERS[driver].fork(agent, place, rerun=rerun)
    settle(scene, agent, driver)


class Told(Announcements):
    """Tells the witness of what it is told."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def on_suspended(self, event: Any) -> None:
        self.scene.act(key=event.key, type=event.type, run=event.run_id)

    on_decided = on_completed = on_rejected = on_cancelled = on_superseded = on_suspended


def announced(scene: Scene, *, driver: str) -> None:
    """A run with everything about it that is announced."""
    agent = make_agent(scene.store, [call("pay"), [call("ship")], "done"], driver=driver, announcements=[Told(scene)])
    go(scene, agent, driver)
    settle(scene, agent, driver)


class ToldEach(Announcements):
    """Tells the witness of what it is told of each request."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def on_request(self, event: Any) -> None:
        self.scene.act(event=event.model_dump_json())


def requests(scene: Scene, *, driver: str) -> None:
    """Two requests of one reply beside one of a run in a call, decided one by one by somebody who has the store alone."""
    clerk = make_agent(scene.store, [call("wire"), "wired"], driver=driver).as_tool(name="clerk", description="Wires.")
    replies = [[call("pay"), call("ship"), call("clerk", {"input": "go"})], "done"]
    told = [ToldEach(scene)]
    agent = make_agent(scene.store, replies, driver=driver, tools=[clerk], announcements=told)
    go(scene, agent, driver)
    DRIVERS[driver].call(agent, "recover_all")
    while waiting := scene.store.pending():
        item = waiting[0].approval
        head = scene.store.head(waiting[0].branch_id)[1]
        answer = Reject() if (item.tool_name, item.why) == ("ship", "approval") else looked(scene, head)[item.id]
        scene.store.decide(item.id, answer, by="ann", digest=item.digest)
        DRIVERS[driver].call(agent, "recover_all")
    settle(scene, agent, driver)


def pruned(scene: Scene, *, driver: str) -> None:
    """Two runs of a thread, the first of which is taken away while a tool of the second runs."""

    def prune(ctx: ToolContext[Any]) -> None:
        scene.store.prune()

    tidy = make_tool("tidy", is_async=driver == "async", act=prune, idempotent=True)
    agent = make_agent(scene.store, [call("pay"), [call("look"), call("tidy")], "done"], driver=driver, tools=[tidy])
    go(scene, agent, driver)
    settle(scene, agent, driver)
    [*_, last] = scene.store.branches()
    if sum(message.role == "user" for message in scene.store.head(last.id)[1].messages) == 1:
        DRIVERS[driver].invoke(agent, "go on", thread_id="t")
    settle(scene, agent, driver)


SCENARIOS: dict[str, Any] = {
    "two-turns": two_turns,
    "one-by-one": partial(two_turns, one_by_one=True),
    "idempotent": partial(two_turns, idempotent=True),
    "side-by-side": side_by_side,
    "retried": retried,
    "rejected": rejected,
    "rejected-for-good": partial(rejected, then="end"),
    "edited": edited,
    "messaged": messaged,
    "lapsed": lapsed,
    "lapsed-for-good": partial(lapsed, on_expiry="cancel"),
    "cancelled": cancelled,
    "superseded": superseded,
    "forked": forked,
    "forked-anew": partial(forked, rerun=True),
    "announced": announced,
    "requests": requests,
    "pruned": pruned,
}


retried_sync = partial(retried, driver="sync")


def order(scene: Scene) -> None:
    """A gated call that is approved by resuming, as the documentation has it."""
    agent = make_agent(scene.store, [call("pay", {"amount": 5}), "done"])
    result = agent.invoke("Pay 5.", thread_id="t")
    while result.suspended:
        result = agent.resume(result.checkpoint.id, decisions=scene.answers(result.checkpoint))


def recover(scene: Scene) -> None:
    """What another worker does after `order`."""
    scene.settle(make_agent(scene.store, [call("pay", {"amount": 5}), "done"]))


async def aorder(scene: Scene) -> None:
    """As `order`."""
    agent = make_agent(scene.store, [call("pay", {"amount": 5}), "done"], driver="async")
    result = await agent.ainvoke("Pay 5.", thread_id="t")
    while result.suspended:
        result = await agent.aresume(result.checkpoint.id, decisions=scene.answers(result.checkpoint))


async def arecover(scene: Scene) -> None:
    """As `recover`."""
    await scene.asettle(make_agent(scene.store, [call("pay", {"amount": 5}), "done"], driver="async"))


# What a store, a worker or a human does that breaks a law: a sweep must see each.


class Forgetful(SQLiteStore):
    """Says that a decision is stored, and leaves it out of the trail."""

    def append(self, change: Append) -> Branch:
        return super().append(replace(change, audit=()))


class Careless(SQLiteStore):
    """Has a change that gives the run up count as written, and loses it."""

    def append(self, change: Append) -> Branch:
        if not change.release:
            return super().append(change)
        branch = self.select_branches(BranchFilter(run_id=change.claim.run_id if change.claim else None))[-1]
        return replace(branch, seq=branch.seq + len(change.entries))


def behind_the_back(scene: Scene, *, text: str = '{"amount":1}', pending: bool = False) -> None:
    """A worker that calls a body by itself, past the gate."""
    agent = make_agent(scene.store, [call("pay"), "done"])
    go(scene, agent, "sync")
    if not scene.entered:
        [row] = scene.store.pending_rows()
        settle(scene, agent, "sync")
        pay = agent.spec.tools["pay"]
        context = ToolContext(
            run_id=row.run_id,
            thread_id="t",
            call_id="call_1",
            pending_id=row.pending_id if pending else None,
            tool_name="pay",
            idempotency_key="key",
            attempt=1,
            deps=None,
        )
        pay.call(pay.bind(text), context)
    settle(scene, agent, "sync")


def again(scene: Scene) -> None:
    """A worker that has what was under way run again, without a word to anybody."""
    from phronomy.records.calls import Withdrawn
    from phronomy.runs.finding import lookup

    lookup.interruption = lambda runner: Withdrawn(  # type: ignore[assignment, return-value]
        ids=tuple(call.id for call in runner.state.calls if call.status == "started")
    )
    two_turns(scene, driver="sync")


def left_lying(scene: Scene) -> None:
    """A worker that recovers nothing."""
    go(scene, make_agent(scene.store, [call("pay"), "done"]), "sync")


def raising(scene: Scene) -> None:
    """A worker that fails."""
    raise LookupError("no such scenario")


def hanging(scene: Scene) -> None:
    """A worker that never ends."""
    threading.Event().wait()


# Workers that tests start by hand, on one store, all at the same moment. `folder` is where their effects are told.


def do(folder: str, ctx: ToolContext[Any]) -> None:
    """An effect: a line in a file, with one write."""
    file = os.open(Path(folder) / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{ctx.tool_name} {ctx.idempotency_key}\n".encode())
    os.close(file)


def clerk(
    store: Store, replies: Any, folder: str, *, is_async: bool = False, act: Any = None, **options: Any
) -> Agent[Any, str]:
    """An agent whose tools tell their effects in the folder; `act` comes after that."""

    def both(ctx: ToolContext[Any]) -> None:
        do(folder, ctx)
        if act is not None:
            act(ctx)

    calls = [one for reply in replies if not isinstance(reply, str) for one in reply]
    tools = [
        make_tool(name, is_async=is_async, act=both, requires_approval=name in ("pay", "wire"), **options)
        for name in sorted({one.name for one in calls})
    ]
    return Agent(name="clerk", model=ScriptedModel.by_turn(replies), tools=tools, store=store)


PAY = [[call("pay")], "done"]
BOTH = [[call("pay"), call("wire")], "both done"]
WORK = [[call("work")], "done"]


def decide(open_store: Any, folder: str, checkpoint_id: str, pending_id: str, start: Any, verdicts: Any) -> None:
    """Decide one of two pending approvals, and say how the run stands."""
    with open_store() as store:
        agent = clerk(store, BOTH, folder)
        if start is not None:
            start.wait()
        result = agent.resume(checkpoint_id, decisions={pending_id: Approve()})
        verdicts.put((result.status, result.output))


def die_paying(open_store: Any, folder: str, checkpoint_id: str, driver: str, idempotent: bool) -> None:
    """Approve a payment, and be killed once it is made."""
    with open_store() as store:
        agent = clerk(
            store,
            PAY,
            folder,
            is_async=driver == "async",
            idempotent=idempotent,
            act=lambda ctx: os.kill(os.getpid(), signal.SIGKILL),
        )
        DRIVERS[driver].resume(agent, checkpoint_id, approved=True)


def race(
    open_store: Any, folder: str, driver: str, lists: dict[str, list[tuple[int, str]]], start: Any, verdicts: Any
) -> None:
    """As several racers, threads or tasks, approve each of the checkpoints in their lists, as fast as they can.

    Says for each racer the numbers of what it won, and for what it lost the number, who is said to have won, and how far it is.
    """
    with open_store() as store:
        agent = clerk(store, PAY, folder, is_async=driver == "async")
        store.branches(run_id="nobody")  # connected, and the tables are there
        start.wait()
        if driver == "async":

            async def main() -> list[Any]:
                return await asyncio.gather(*(_arace(agent, who, mine) for who, mine in lists.items()))

            found = asyncio.run(main())
        else:
            with ThreadPoolExecutor(len(lists)) as pool:
                found = list(pool.map(lambda who: _race(agent, who, lists[who]), lists))
    verdicts.put(found)


def _race(agent: Agent[Any, str], who: str, mine: list[tuple[int, str]]) -> Any:
    won, lost = [], []
    for number, id in mine:
        try:
            agent.resume(id, approved=True, by=who)
            won.append(number)
        except CheckpointAlreadyResumed as error:
            lost.append((number, told_by(error), error.progress))
    return who, won, lost


async def _arace(agent: Agent[Any, str], who: str, mine: list[tuple[int, str]]) -> Any:
    won, lost = [], []
    for number, id in mine:
        try:
            await agent.aresume(id, approved=True, by=who)
            won.append(number)
        except CheckpointAlreadyResumed as error:
            lost.append((number, told_by(error), error.progress))
    return who, won, lost


def told_by(error: CheckpointAlreadyResumed) -> str | None:
    """Who is said to have decided."""
    return error.decision.by.id if error.decision is not None and error.decision.by is not None else None


def abandon(open_store: Any, folder: str, runs: int) -> None:
    """Begin many runs, and be killed when each is in the middle of its tool."""
    inside = threading.Semaphore(0)

    def hang(ctx: ToolContext[Any]) -> None:
        inside.release()
        threading.Event().wait()

    with open_store() as store:
        agent = clerk(store, WORK, folder, idempotent=True, act=hang)
        for number in range(runs):
            threading.Thread(target=agent.invoke, args=("go",), kwargs={"thread_id": str(number)}, daemon=True).start()
        for _ in range(runs):
            inside.acquire()
        os.kill(os.getpid(), signal.SIGKILL)


def recover_everything(open_store: Any, folder: str, later: float, start: Any, verdicts: Any) -> None:
    """Call `recover_all` at the same moment as others, and say what became of what."""
    with open_store() as store:
        clock = store.clock
        store.clock = lambda: clock() + later
        working, paying = clerk(store, WORK, folder, idempotent=True), clerk(store, PAY, folder)
        start.wait()
        done = [*working.recover_all(limit=1000), *paying.recover_all(limit=1000)]
        verdicts.put([(each.run_id, each.result.status if each.result else repr(each.error)) for each in done])

"""What an interrupt gets: Ctrl-C and task cancellation in the model call, in a tool, and in a save.

Whatever is cut off, nothing is half done: the lease is free at once, settled results are kept, a call that was under
way is asked about unless its tool is idempotent, and then it runs again under the same key.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import pytest
from drivers import ASYNC, PATIENCE, SYNC, Around, Driver, calls_ended, open_kind, outline

from phronomy import Agent, Approve, PendingApproval, Respond, Result, ToolContext, tool
from phronomy.records.decisions import Answer
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call

Where = Literal["before", "after"]


class Wrapping(Around):
    """A store around another one that calls `before` and `after` at each save, with the number of the save."""

    def __init__(self, inner: Store, *, blocking: bool | None = None) -> None:
        super().__init__(inner)
        self.blocking = inner.blocking if blocking is None else blocking
        self.saves = 0
        self.before: Callable[[int], None] = lambda number: None
        self.after: Callable[[int], None] = lambda number: None

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        self.saves += 1
        number = self.saves
        self.before(number)
        self.inner.create(branch, change, exclusive=exclusive)
        self.after(number)

    def append(self, change: Append) -> Branch:
        self.saves += 1
        number = self.saves
        self.before(number)
        branch = self.inner.append(change)
        self.after(number)
        return branch

    def calm(self) -> None:
        """Do nothing at the saves to come."""
        self.before = self.after = lambda number: None


class Desk:
    """Four tools, and what they did: name and idempotency key. `pay` and `ship` are gated, `mark` is idempotent."""

    def __init__(self, store: Store, *, is_async: bool = False, strike: Callable[[str], Any] | None = None) -> None:
        self.done: list[tuple[str, str]] = []
        self.strike = strike or (lambda name: None)
        script = [[call("look"), call("pay"), call("mark")], call("ship"), "all done"]
        tools = [self._tool(name, is_async) for name in ("look", "pay", "mark", "ship")]
        self.agent: Agent[Any, str] = Agent(name="desk", model=ScriptedModel.by_turn(script), tools=tools, store=store)

    def _tool(self, name: str, is_async: bool) -> Any:
        options: Any = {"name": name, "requires_approval": name in ("pay", "ship"), "idempotent": name == "mark"}

        def body(ctx: ToolContext[Any]) -> str:
            self.done.append((name, ctx.idempotency_key))
            self.strike(name)
            return f"{name} is done"

        async def abody(ctx: ToolContext[Any]) -> str:
            self.done.append((name, ctx.idempotency_key))
            struck = self.strike(name)
            if struck is not None:
                await struck
            return f"{name} is done"

        return tool(**options)(abody if is_async else body)

    @property
    def names(self) -> list[str]:
        return sorted(name for name, _ in self.done)

    def check(self) -> None:
        """Every tool has run; none ran twice but `mark`, and that under one key."""
        names = self.names
        assert {name: names.count(name) for name in names if name != "mark"} == {"look": 1, "pay": 1, "ship": 1}
        assert len({key for name, key in self.done if name == "mark"}) == 1

    def answer(self, item: PendingApproval) -> Answer:
        """What a careful human says: approve, and where nobody knows, look whether it happened."""
        if item.why == "outcome_unknown" and item.tool_name in self.names:
            return Respond(content=f"{item.tool_name} is done")
        return Approve()

    def finish(self, driver: Driver, result: Result[str] | None = None) -> Result[str]:
        """Take the run to its end, from wherever it stands in the store."""
        branches = self.agent.store.branches()
        if result is None:
            recover = branches and branches[-1].id
            result = driver.recover(self.agent, recover) if recover else driver.invoke(self.agent, "go")
        while result.suspended:
            answers = {item.id: self.answer(item) for item in result.checkpoint.pending}
            result = driver.resume(self.agent, result.checkpoint, decisions=answers)
        return result


ENDED = [
    "user: go",
    "assistant:  [look] [pay] [mark]",
    "tool: look is done",
    "tool: pay is done",
    "tool: mark is done",
    "assistant:  [ship]",
    "tool: ship is done",
    "assistant: all done",
]


def told(result: Result[str]) -> list[str]:
    """The conversation, whether a tool gave a result or a human who looked."""
    return [line.replace(" (completed)", "").replace(" (responded)", "") for line in outline(result)]


def free(store: Store) -> list[str]:
    """The status of each branch; nobody holds one."""
    assert [branch.owner for branch in store.branches()] == [None] * len(store.branches())
    return [branch.status for branch in store.branches()]


# Ctrl-C


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_in_the_model_call_leaves_the_last_checkpoint(
    driver: Driver, store: Store, interrupt: type[BaseException]
) -> None:
    """Ctrl-C in the model call: the last checkpoint is untouched and can be resumed at once. Law 7"""
    done: list[str] = []

    def look() -> str:
        """Look."""
        done.append("look")
        return "seen"

    model = ScriptedModel([interrupt, call("look"), interrupt, "done"])
    agent = Agent(model=model, tools=[driver.function(look)], store=store)

    with pytest.raises(interrupt):
        driver.invoke(agent, "go", thread_id="t")
    assert free(store) == ["failed"]
    (branch,) = store.branches()
    _, head = store.head(branch.id)
    assert ([message.text for message in head.messages], head.step) == (["go"], 0)

    with pytest.raises(interrupt):
        driver.resume(agent, head)
    assert (free(store), done) == (["failed"], ["look"])
    _, head = store.head(branch.id)
    assert [message.text for message in head.messages] == ["go", "", "seen"]

    result = driver.recover(agent, branch.id)
    assert (result.output, done, free(store)) == ("done", ["look"], ["completed"])


@pytest.mark.parametrize("name", ["look", "mark", "pay", "ship"])
@pytest.mark.parametrize("again", ["recover", "resume"])
@pytest.mark.parametrize(("driver", "async_tools"), [(SYNC, False), (ASYNC, False), (ASYNC, True)])
def test_ctrl_c_in_a_tool_asks_about_it_or_runs_it_again(
    driver: Driver, async_tools: bool, store: Store, name: str, again: str
) -> None:
    """Ctrl-C in a tool: asked about as outcome_unknown, or run again with the same key if idempotent; siblings stay."""
    struck: list[str] = []

    def strike(tool_name: str) -> None:
        if tool_name == name and not struck:
            struck.append(tool_name)
            raise KeyboardInterrupt

    desk = Desk(store, is_async=async_tools, strike=strike)

    with pytest.raises(KeyboardInterrupt):
        desk.finish(driver)
    assert struck == [name]
    assert free(store) == ["running"]
    before = list(desk.done)

    _, head = store.head(store.branches()[0].id)
    result = driver.call(desk.agent, again, head)

    assert result.suspended
    unknown = [item.tool_name for item in result.checkpoint.pending if item.why == "outcome_unknown"]
    assert ("mark" not in unknown) and (name == "mark" or name in unknown)
    assert [each for each in desk.done if each[0] != "mark"] == [each for each in before if each[0] != "mark"]

    result = desk.finish(driver, result)
    assert told(result) == ENDED
    desk.check()
    assert desk.names.count("mark") == 2 or name != "mark"
    assert free(store) == ["completed"]


@pytest.mark.few(2)
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("blocking", [False, True], ids=["plain", "blocking"])
def test_ctrl_c_in_each_save_in_turn_leaves_nothing_half_done(
    driver: Driver, tmp_path: Path, where: Where, blocking: bool
) -> None:
    """Ctrl-C in a save, just before or just after it is stored: recover works at once, and no call runs twice."""
    for number in itertools.count(1):
        inner = open_kind("sqlite" if blocking else "memory", tmp_path / _fresh(tmp_path, number))
        store = Wrapping(inner)

        def strike(save: int, number: int = number) -> None:
            if save == number:
                raise KeyboardInterrupt

        setattr(store, where, strike)
        desk = Desk(store)
        with inner:
            try:
                result = desk.finish(driver)
            except KeyboardInterrupt:
                store.calm()
                calls_ended()
                assert set(free(store)) <= {"running", "suspended", "failed", "completed"}, f"save {number}"
                result = desk.finish(driver)
                assert told(result) == ENDED, f"save {number}"
                desk.check()
                assert free(store) == ["completed"]
                continue
            assert told(result) == ENDED
            break
    assert number > 8


def _fresh(folder: Path, number: int) -> str:
    (folder / str(number)).mkdir()
    return str(number)


def test_a_tool_that_is_left_behind_in_its_thread_is_told(driver: Driver, store: Store) -> None:
    """Ctrl-C while a sync tool runs in a thread, which nothing can stop: it can see that nobody waits for it any more."""
    release = threading.Event()
    seen: list[bool] = []
    wrapping = Wrapping(store)

    def strike(save: int) -> None:
        (branch,) = store.branches()
        if any('"started"' in entry.body for entry in store.lineage(branch_id=branch.id).entries):
            wrapping.calm()
            raise KeyboardInterrupt

    wrapping.before = lambda save: strike(save) if save > 1 else None

    def quick() -> str:
        """Be quick."""
        return "quick is done"

    def slow(ctx: ToolContext[Any]) -> str:
        """Be slow."""
        seen.append(ctx.cancelled)
        assert release.wait(PATIENCE)
        seen.append(ctx.cancelled)
        return "slow is done"

    model = ScriptedModel([[call("quick"), call("slow")], "done"])
    agent = Agent(model=model, tools=[quick, slow], store=wrapping)

    with pytest.raises(KeyboardInterrupt):
        driver.invoke(agent, "go")
    assert free(store) == ["running"]
    release.set()
    calls_ended()

    assert seen[-1] is True


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("place", [0, 1], ids=["first-asked", "second-asked"])
def test_ctrl_c_in_a_handler_is_no_answer(
    driver: Driver, store: Store, interrupt: type[BaseException], place: int
) -> None:
    """A handler that raises Ctrl-C or its like: nothing was decided and nothing has run; who goes on asks it again."""
    asked: list[str] = []
    answers: list[Any] = [True, True, True, True]
    answers[place] = interrupt

    def handler(name: str, args: dict[str, Any]) -> Any:
        asked.append(name)
        answer = answers.pop(0)
        if answer is interrupt:
            answers.clear()
            answers.extend([True, True])
            raise interrupt
        return answer

    done: list[str] = []

    def body(name: str) -> Any:
        @tool(name=name, requires_approval=True)
        def act() -> str:
            """Do it."""
            done.append(name)
            return f"{name} is done"

        return act

    model = ScriptedModel([[call("pay"), call("ship")], "done"])
    agent = Agent(model=model, tools=[body("pay"), body("ship")], store=store)
    agent.on_approval_required(driver.function(handler))

    with pytest.raises(interrupt):
        driver.invoke(agent, "go", thread_id="t")
    assert (free(store), done, asked) == (["failed"], [], ["pay", "ship"][: place + 1])
    _, head = store.head(store.branches()[0].id)
    assert (head.decisions, head.pending, store.pending()) == ((), (), [])

    result = driver.recover(agent, head)
    assert (result.output, sorted(done), asked[place + 1 :]) == ("done", ["pay", "ship"], ["pay", "ship"])
    assert [decision.kind for decision in result.checkpoint.decisions] == ["approve", "approve"]


# Task cancellation


async def cancelled_when(begun: threading.Event | asyncio.Event, work: Coroutine[Any, Any, Any]) -> None:
    """Cancel the work once it has got as far as `begun`, and wait until it is gone."""
    task = asyncio.ensure_future(work)
    if isinstance(begun, asyncio.Event):
        await begun.wait()
    else:
        assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancellation_in_the_model_call_leaves_the_last_checkpoint(store: Store) -> None:
    """Task cancellation in the model call: the last checkpoint is untouched and can be resumed at once."""
    begun = asyncio.Event()

    async def never(request: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel([never, "done"])
    agent = Agent(model=model, store=store)

    asyncio.run(cancelled_when(begun, agent.ainvoke("go", thread_id="t")))

    assert free(store) == ["failed"]
    _, head = store.head(store.branches()[0].id)
    assert ([message.text for message in head.messages], head.step) == (["go"], 0)
    assert ASYNC.resume(agent, head).output == "done"
    assert free(store) == ["completed"]


def test_cancellation_in_a_handler_is_no_answer(store: Store) -> None:
    """Task cancellation in a handler: nothing was decided and nothing has run; who goes on asks it again."""
    begun, done = asyncio.Event(), []

    async def handler(name: str, args: dict[str, Any]) -> bool:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return True

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        done.append("pay")
        return "paid"

    agent = Agent(model=ScriptedModel([call("pay"), "done"]), tools=[pay], store=store, on_approval_required=handler)

    asyncio.run(cancelled_when(begun, agent.ainvoke("go", thread_id="t")))

    assert (free(store), done) == (["failed"], [])
    _, head = store.head(store.branches()[0].id)
    assert (head.decisions, store.pending()) == ((), [])
    assert (ASYNC.resume(agent, head).output, done) == ("done", ["pay"])


@pytest.mark.parametrize("name", ["look", "mark", "pay", "ship"])
@pytest.mark.parametrize("async_tools", [False, True], ids=["sync-in-thread", "async"])
def test_cancellation_in_a_tool_asks_about_it_or_runs_it_again(
    store: Store, name: str, async_tools: bool, request: pytest.FixtureRequest
) -> None:
    """Task cancellation in a tool, sync in a thread or async: outcome_unknown, or run again with the same key."""
    begun, release = threading.Event(), threading.Event()
    request.addfinalizer(release.set)

    def hang(tool_name: str) -> Any:
        if tool_name != name or begun.is_set():
            return None
        begun.set()
        return asyncio.Event().wait() if async_tools else release.wait(PATIENCE)

    desk = Desk(store, is_async=async_tools, strike=hang)

    async def work() -> None:
        result = await desk.agent.ainvoke("go")
        while True:
            answers = {item.id: desk.answer(item) for item in result.checkpoint.pending}
            result = await desk.agent.aresume(result.checkpoint, decisions=answers)

    asyncio.run(cancelled_when(begun, work()))

    assert free(store) == ["running"]
    assert [each for each, _ in desk.done].count(name) == 1
    result = ASYNC.recover(desk.agent, store.branches()[0].id)
    unknown = [item.tool_name for item in result.checkpoint.pending if item.why == "outcome_unknown"]
    assert name == "mark" or name in unknown
    release.set()

    result = desk.finish(ASYNC, result)
    assert told(result) == ENDED
    keys = [key for each, key in desk.done if each == name]
    assert (len(keys), len(set(keys))) == (2 if name == "mark" else 1, 1)
    assert free(store) == ["completed"]


def test_cancellation_keeps_what_has_settled(store: Store) -> None:
    """Task cancellation in one of two parallel tools: the result of the other is on record and is not run again."""
    begun, settled = asyncio.Event(), threading.Event()
    done: list[str] = []

    def look_for_it(number: int) -> None:
        (branch,) = store.branches()
        if any('"settled"' in entry.body for entry in store.lineage(branch_id=branch.id).entries):
            settled.set()

    wrapping = Wrapping(store)
    wrapping.after = look_for_it

    @tool
    async def quick() -> str:
        """Be quick."""
        done.append("quick")
        return "quick is done"

    @tool
    async def slow() -> str:
        """Be slow."""
        assert await asyncio.to_thread(settled.wait, 60)
        done.append("slow")
        begun.set()
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel([[call("quick"), call("slow")], "done"])
    agent = Agent(model=model, tools=[quick, slow], store=wrapping)

    asyncio.run(cancelled_when(begun, agent.ainvoke("go")))

    result = ASYNC.recover(agent, store.branches()[0].id)
    assert [(item.tool_name, item.why) for item in result.checkpoint.pending] == [("slow", "outcome_unknown")]
    result = ASYNC.resume(agent, result.checkpoint, approved=False)
    assert (result.output, done) == ("done", ["quick", "slow"])
    assert told(result)[2] == "tool: quick is done"


def test_cancellation_in_each_save_in_turn_leaves_nothing_half_done(tmp_path: Path) -> None:
    """Task cancellation in a save: the save is whole, the lease is free, recover works at once, no call runs twice."""
    for number in itertools.count(1):
        inner = open_kind("sqlite", tmp_path / _fresh(tmp_path, number))
        store = Wrapping(inner)
        entered, go = threading.Event(), threading.Event()

        def hold(save: int, number: int = number, entered: threading.Event = entered, go: threading.Event = go) -> None:
            if save == number:
                entered.set()
                assert go.wait(PATIENCE)

        store.before = hold
        desk = Desk(store)
        with inner:
            ended = asyncio.run(_cancelled_in_save(desk, entered, go))
            if ended is not None:
                assert told(ended) == ENDED
                break
            store.calm()
            calls_ended()
            assert set(free(store)) <= {"running", "suspended", "failed", "completed"}, f"save {number}"
            result = desk.finish(ASYNC)
            assert told(result) == ENDED, f"save {number}"
            desk.check()
            assert free(store) == ["completed"]
    assert number > 8


@pytest.mark.parametrize("end", ["cancelled", "store-fails"])
def test_a_save_that_is_cut_off_takes_the_tools_that_still_run_along(tmp_path: Path, end: str) -> None:
    """Task cancellation in a save, or a store that fails in it: no tool of the run goes on once the run is let go."""
    inner = open_kind("sqlite", tmp_path)
    store = Wrapping(inner)
    entered, go = threading.Event(), threading.Event()
    log: list[str] = []

    def hold(save: int) -> None:
        (branch,) = store.branches()
        if any('"started"' in entry.body for entry in store.lineage(branch_id=branch.id).entries):
            store.calm()
            entered.set()
            assert go.wait(PATIENCE)
            if end == "store-fails":
                raise OSError("the disk is gone")

    store.before = lambda save: hold(save) if save > 1 else None

    @tool
    async def quick() -> str:
        """Be quick."""
        return "quick is done"

    @tool
    async def slow() -> str:
        """Be slow."""
        try:
            await asyncio.Event().wait()
        finally:
            log.append(f"gone while held by {store.branches()[0].owner is not None}")
        return "never"

    model = ScriptedModel([[call("quick"), call("slow")], "done"])
    agent = Agent(model=model, tools=[quick, slow], store=store)

    async def main() -> None:
        task = asyncio.ensure_future(agent.ainvoke("go"))
        assert await asyncio.to_thread(entered.wait, 60)
        if end == "cancelled":
            task.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError if end == "cancelled" else OSError):
            await task
        log.append("let go")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with inner:
        asyncio.run(main())
        assert log == ["gone while held by True", "let go"]
        assert free(store) == ["running"]
        result = ASYNC.recover(agent, store.branches()[0].id)
        assert ("slow", "outcome_unknown") in [(item.tool_name, item.why) for item in result.checkpoint.pending]


async def _cancelled_in_save(desk: Desk, entered: threading.Event, go: threading.Event) -> Result[str] | None:
    """Run until a save is entered, cancel, and only then let the save go through. None: it was cancelled."""

    async def work() -> Result[str]:
        result = await desk.agent.ainvoke("go")
        while result.suspended:
            answers = {item.id: desk.answer(item) for item in result.checkpoint.pending}
            result = await desk.agent.aresume(result.checkpoint, decisions=answers)
        return result

    task = asyncio.ensure_future(work())
    waiter = asyncio.ensure_future(asyncio.to_thread(entered.wait, 60))
    await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
    go.set()
    entered.set()
    await waiter
    try:
        return await task
    except asyncio.CancelledError:
        return None

"""What follows when a tool has failed for good and `on_failure` is `"stop"`: the run fails, and resuming it runs the call again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers import ASYNC, PATIENCE, SYNC, Driver, run
from selection import scaled

from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    Checkpoint,
    InvalidDecision,
    MemoryStore,
    NodeFailed,
    Reject,
    RunFailed,
    SQLiteStore,
    Tool,
    ToolContext,
    UnknownPending,
    tool,
)
from phronomy.records.checkpoint import decode
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.testing.crash import Scene, sweep


class Desk:
    """Makes tools that fail as often as they are told to, and agents; `ran` is which bodies were entered, with their attempt."""

    def __init__(self, driver: Driver, store: Store | None = None) -> None:
        self.driver = driver
        self.store = store if store is not None else MemoryStore()
        self.ran: list[tuple[str, int]] = []
        self.keys: set[str] = set()

    def tool(self, name: str, *faults: Exception, **options: Any) -> Tool:
        left = list(faults)

        def body(ctx: ToolContext[Any], secret: str = "s3cret") -> str:
            """Do it."""
            self.ran.append((name, ctx.attempt))
            self.keys.add(ctx.idempotency_key)
            if left:
                raise left.pop(0)
            return f"{name} is done"

        return tool(name=name, **options)(self.driver.function(body))

    def stops(self, name: str, *faults: Exception, **options: Any) -> Tool:
        """A tool with `on_failure="stop"`."""
        return self.tool(name, *faults, on_failure="stop", **options)

    def agent(self, *tools: Tool, **options: Any) -> Agent[Any, str]:
        """An agent whose model calls each tool once, all in one reply, and then says goodbye."""
        replies = [[call(each.name) for each in tools], "bye"]
        return Agent(name="desk", model=ScriptedModel.by_turn(replies), tools=tools, store=self.store, **options)

    def fails(self, work: Callable[[], Any]) -> NodeFailed:
        """The error that the work raises; the store has the run as failed."""
        with pytest.raises(NodeFailed) as caught:
            work()
        error = caught.value
        assert error.checkpoint is not None
        assert error.run_id == error.checkpoint.run_id
        [branch] = [each for each in self.store.branches() if each.id == error.checkpoint.branch_id]
        assert (branch.status, branch.head, branch.is_held(self.store.clock())) == (
            "failed",
            error.checkpoint.id,
            False,
        )
        assert self.store.load(error.checkpoint.id) == error.checkpoint
        return error


@pytest.fixture
def desk(driver: Driver, store: Store) -> Desk:
    return Desk(driver, store)


@pytest.fixture
def quick(driver: Driver) -> Desk:
    """A desk over memory, where it does not matter what keeps it."""
    return Desk(driver)


def last(error: RunFailed) -> Checkpoint:
    """The checkpoint in the error."""
    assert error.checkpoint is not None
    return error.checkpoint


def statuses(at: Checkpoint) -> list[tuple[str, str]]:
    return [(each.name, each.status) for each in at.calls]


def told(at: Any) -> list[tuple[str | None, str]]:
    """How each call ended, and the text that the model reads."""
    return [(message.settlement, message.text) for message in at.messages if message.role == "tool"]


# The failure


def test_the_run_fails_and_the_error_says_what_did(desk: Desk) -> None:
    fault = ValueError("the disk is full")
    agent = desk.agent(desk.stops("book", fault))
    error = desk.fails(lambda: desk.driver.invoke(agent, "go"))
    assert error.failures == {"book": "ValueError: the disk is full"}
    assert error.__cause__ is fault
    assert f"run {error.run_id}: book failed: ValueError: the disk is full; resume the checkpoint" in str(error)
    at = last(error)
    [failed] = at.calls
    assert (failed.status, failed.why, failed.reason) == ("failed", "failed", "ValueError: the disk is full")
    assert (at.status, at.pending, at.journal, told(at)) == ("running", (), (), [])
    assert desk.ran == [("book", 1)]


def test_what_is_redacted_is_in_no_error(quick: Desk) -> None:
    agent = quick.agent(quick.stops("book", ValueError("no s3cret here"), redact=["secret"]))
    error = quick.fails(lambda: quick.driver.invoke(agent, "go"))
    assert "s3cret" not in str(error) and "s3cret" not in repr(error.failures)


def test_resume_runs_the_call_again_and_the_run_goes_on(desk: Desk) -> None:
    agent = desk.agent(desk.stops("book", ValueError("1"), ValueError("2")))
    error = desk.fails(lambda: desk.driver.invoke(agent, "go"))
    again = desk.fails(lambda: desk.driver.resume(agent, last(error)))
    assert again.failures == {"book": "ValueError: 2"}
    assert last(again).step > last(error).step
    result = desk.driver.resume(agent, last(again).id)
    assert (result.output, told(result)) == ("bye", [("completed", "book is done")])
    assert (desk.ran, len(desk.keys)) == ([("book", 1)] * 3, 1), (
        "attempts are counted anew; the key is that of the call"
    )


def test_siblings_are_through_before_it_fails_and_are_not_run_again(desk: Desk) -> None:
    agent = desk.agent(desk.tool("look"), desk.stops("book", ValueError("no")), desk.tool("note"))
    error = desk.fails(lambda: desk.driver.invoke(agent, "go"))
    assert statuses(last(error)) == [("look", "settled"), ("book", "failed"), ("note", "settled")]
    assert sorted(desk.ran) == [("book", 1), ("look", 1), ("note", 1)]
    desk.ran.clear()
    assert desk.driver.resume(agent, last(error)).output == "bye"
    assert desk.ran == [("book", 1)]


def test_calls_that_wait_for_their_turn_run_before_it_fails(quick: Desk) -> None:
    agent = quick.agent(quick.stops("book", ValueError("no")), quick.tool("look"), max_parallel=1)
    error = quick.fails(lambda: quick.driver.invoke(agent, "go"))
    assert statuses(last(error)) == [("book", "failed"), ("look", "settled")]


def test_several_failures_are_all_told(quick: Desk) -> None:
    fault = OSError("down")
    book = quick.stops("book", ValueError("1"), ValueError("2"))
    model = ScriptedModel.by_turn([[call("book"), call("mail"), call("book")], "bye"])
    agent: Any = Agent(
        name="desk", model=model, tools=[book, quick.stops("mail", fault)], store=quick.store, max_parallel=1
    )
    error = quick.fails(lambda: quick.driver.invoke(agent, "go"))
    assert error.failures == {"book": "ValueError: 1; ValueError: 2", "mail": "OSError: down"}
    assert isinstance(error.__cause__, ValueError)
    assert quick.driver.resume(agent, last(error)).output == "bye"
    assert [name for name, _ in quick.ran] == ["book", "mail", "book"] * 2


def test_a_result_that_is_no_json_did_run_and_stops_nothing(quick: Desk) -> None:
    agent = quick.agent(tool(name="book", on_failure="stop")(quick.driver.function(object_of)))
    [(how, text)] = told(quick.driver.invoke(agent, "go"))
    assert how == "failed" and "Its effect may have happened" in text


def object_of() -> Any:
    """Give what is no JSON."""
    return object()


def test_nothing_waits_in_a_run_that_failed(desk: Desk) -> None:
    agent = desk.agent(desk.stops("book", ValueError("no")))
    at = last(desk.fails(lambda: desk.driver.invoke(agent, "go")))
    with pytest.raises(UnknownPending):
        desk.driver.resume(agent, at, approved=True)
    with pytest.raises(InvalidDecision):
        desk.driver.resume(agent, at, decisions=["book"])
    assert desk.ran == [("book", 1)]
    assert desk.driver.resume(agent, at).output == "bye"


# What is tried before


def test_retries_come_first_and_begin_anew_on_resume(desk: Desk) -> None:
    faults = [ConnectionError(str(number)) for number in range(5)]
    book = desk.stops("book", *faults, retries=1, retry_on=[ConnectionError], retry_wait=0)
    agent = desk.agent(book)
    error = desk.fails(lambda: desk.driver.invoke(agent, "go"))
    assert (error.__cause__, desk.ran) == (faults[1], [("book", 1), ("book", 2)])
    error = desk.fails(lambda: desk.driver.resume(agent, last(error)))
    assert (error.__cause__, desk.ran[2:]) == (faults[3], [("book", 1), ("book", 2)])
    assert desk.driver.resume(agent, last(error)).output == "bye"
    assert desk.ran[4:] == [("book", 1), ("book", 2)]


def test_fallbacks_come_first_and_the_one_that_failed_last_is_run_again(desk: Desk) -> None:
    """It was judged for itself, and what was tried before it is not tried again."""
    agent = desk.agent(desk.stops("book", ValueError("1"), fallback=[desk.stops("spare", ValueError("2"))]))
    error = desk.fails(lambda: desk.driver.invoke(agent, "go"))
    assert error.failures == {"book": "ValueError: 2"}
    assert desk.driver.resume(agent, last(error)).output == "bye"
    assert desk.ran == [("book", 1), ("spare", 1), ("spare", 1)]


@pytest.mark.parametrize("of", ["tool", "fallback"])
def test_what_a_failure_leads_to_is_what_the_tool_that_failed_says(quick: Desk, of: str) -> None:
    if of == "tool":
        agent = quick.agent(quick.stops("book", ValueError("1"), fallback=[quick.tool("spare", ValueError("2"))]))
        assert told(quick.driver.invoke(agent, "go")) == [("failed", "ValueError: 2")]
    else:
        agent = quick.agent(quick.tool("book", ValueError("1"), fallback=[quick.stops("spare", ValueError("2"))]))
        quick.fails(lambda: quick.driver.invoke(agent, "go"))


def test_an_approval_holds_for_the_call_that_runs_again(desk: Desk) -> None:
    agent = desk.agent(desk.stops("pay", ValueError("no"), requires_approval=True))
    at = desk.driver.invoke(agent, "go").checkpoint
    edit = {at.pending[0].id: Approve(args={"secret": "other"})}
    error = desk.fails(lambda: desk.driver.resume(agent, at, decisions=edit))
    result = desk.driver.resume(agent, last(error))
    assert (result.output, desk.ran) == ("bye", [("pay", 1), ("pay", 1)])
    assert [decision.kind for decision in result.checkpoint.decisions] == ["approve"]


def test_a_tool_that_overran_is_asked_about_as_any_other() -> None:
    """Nobody knows what it did: that is no failure."""
    release = threading.Event()

    @tool(timeout=0.05, on_failure="stop")
    def slow() -> str:
        """Take long."""
        release.wait(PATIENCE)
        return "late"

    agent: Any = Agent(model=ScriptedModel.by_turn([call("slow"), "bye"]), tools=[slow])
    for driver in (SYNC, ASYNC):
        assert [item.why for item in driver.invoke(agent, "go").checkpoint.pending] == ["outcome_unknown"]
    release.set()


# Beside a human


def test_while_a_human_is_asked_beside_it_the_run_waits_and_fails_after_that(desk: Desk) -> None:
    book = desk.stops("book", ValueError("1"), ValueError("2"), ValueError("3"))
    agent = desk.agent(book, desk.tool("pay", requires_approval=True))
    at = desk.driver.invoke(agent, "go").checkpoint
    assert (at.status, statuses(at)) == ("suspended", [("book", "failed"), ("pay", "pending")])
    assert [item.tool_name for item in at.pending] == ["pay"]
    waiting = desk.driver.resume(agent, at).checkpoint
    assert (waiting.status, desk.ran) == ("suspended", [("book", 1)] * 2), "to resume is to run it again"
    error = desk.fails(lambda: desk.driver.resume(agent, waiting, approved=True))
    assert statuses(last(error)) == [("book", "failed"), ("pay", "settled")]
    assert desk.driver.resume(agent, last(error)).output == "bye"
    assert sorted(desk.ran) == [("book", 1)] * 4 + [("pay", 1)]


def test_a_rejection_that_ends_the_run_ends_it_with_the_failed_call_told_as_such(desk: Desk) -> None:
    agent = desk.agent(desk.stops("book", ValueError("1")), desk.tool("pay", requires_approval=True))
    at = desk.driver.invoke(agent, "go").checkpoint
    result = desk.driver.resume(agent, at, decisions={at.pending[0].id: Reject(then="end")})
    assert result.status == "rejected"
    [(how, text), _] = told(result)
    assert how == "cancelled"
    assert text == (
        "This call failed: ValueError: 1 The run was ended when another call was rejected, and it was left at that."
    )
    assert desk.ran == [("book", 1)]


# Ending it


@pytest.mark.parametrize("how", ["cancelled", "superseded"])
def test_a_run_that_failed_can_be_ended_and_the_call_is_not_said_to_have_not_run(desk: Desk, how: str) -> None:
    agent = desk.agent(desk.stops("book", ValueError("1")))
    at = last(desk.fails(lambda: desk.driver.invoke(agent, "go", thread_id="t")))
    if how == "cancelled":
        result: Any = desk.driver.cancel(agent, at, reason="enough")
    else:
        desk.driver.invoke(agent, "never mind", thread_id="t", on_pending="supersede")
        result = desk.store.load(next(each.head for each in desk.store.branches() if each.id == at.branch_id))
    assert result.status == how
    [(settled, text), *_] = told(result)
    assert settled == how
    assert text.startswith("This call failed: ValueError: 1 ") and "not run" not in text
    assert desk.ran[0] == ("book", 1) and len(desk.ran) == (1 if how == "cancelled" else 2)


def test_a_run_that_is_cancelled_while_it_fails_is_cancelled(quick: Desk) -> None:
    """The end came first: the call is settled as failed, and nothing is to be run again."""
    agents: list[Any] = []

    def book(ctx: ToolContext[Any]) -> str:
        agents[0].cancel(ctx.run_id)
        raise ValueError("no")

    agents.append(quick.agent(tool(on_failure="stop")(book)))
    result = quick.driver.invoke(agents[0], "go")
    assert (result.status, told(result)) == ("cancelled", [("failed", "ValueError: no")])


# Looking on, branching, moving


def test_a_fork_of_a_failed_run_runs_the_call_under_the_same_key(desk: Desk) -> None:
    agent = desk.agent(desk.tool("look"), desk.stops("book", ValueError("1")))
    error = desk.fails(lambda: desk.driver.invoke(agent, "go"))
    fork = desk.driver.fork(agent, last(error))
    assert statuses(fork) == [("look", "settled"), ("book", "failed")]
    assert told(desk.driver.resume(agent, fork)) == [("completed", "look is done"), ("completed", "book is done")]
    assert sorted(desk.ran) == [("book", 1), ("book", 1), ("look", 1)] and len(desk.keys) == 2
    result = desk.driver.resume(agent, last(error))
    assert (result.output, len(desk.ran)) == ("bye", 3), "what was done in the fork is done"


def test_a_failed_run_is_carried_on_elsewhere(driver: Driver) -> None:
    here, there = Desk(driver), Desk(driver)
    agent = here.agent(here.tool("look"), here.stops("book", ValueError("1")))
    text = last(here.fails(lambda: driver.invoke(agent, "go"))).model_dump_json()
    elsewhere = there.agent(there.tool("look"), there.stops("book"), trust="bearer")
    assert driver.resume(elsewhere, decode(text)).output == "bye"
    assert there.ran == [("book", 1)]


def test_a_failed_call_whose_tool_is_gone_is_drift(desk: Desk) -> None:
    agent = desk.agent(desk.stops("book", ValueError("1")))
    at = last(desk.fails(lambda: desk.driver.invoke(agent, "go")))
    other = desk.agent(desk.tool("other"))
    assert other.drift(at).changed == ("tool 'book' of a pending call is gone",)
    with pytest.raises(AgentChanged):
        desk.driver.resume(other, at)
    assert desk.driver.resume(agent, at).output == "bye"


def test_a_stream_tells_of_the_failure_and_raises_it(desk: Desk) -> None:
    agent = desk.agent(desk.stops("book", ValueError("1")))
    events: list[Any] = []

    def stream() -> None:
        if not desk.driver.is_async:
            for event in agent.stream("go"):
                events.append(event)
            return

        async def main() -> None:
            async for event in agent.astream("go"):
                events.append(event)

        run(main())

    error = desk.fails(stream)
    [failure] = [event for event in events if event.type == "tool_call_failed"]
    assert (failure.next, failure.error) == ("stop", "ValueError: 1")
    assert (events[-1].type, events[-1].error, events[-1].checkpoint_id) == ("failed", "NodeFailed", last(error).id)
    assert events[-2].type == "checkpoint"


# Recovery


def test_recover_runs_it_again_once_each_time_that_it_is_called(desk: Desk) -> None:
    agent = desk.agent(desk.stops("book", *[ValueError(str(number)) for number in range(3)]))
    at = last(desk.fails(lambda: desk.driver.invoke(agent, "go")))
    for number in (1, 2):
        error = desk.fails(lambda: desk.driver.recover(agent, at.run_id))
        assert error.failures == {"book": f"ValueError: {number}"}
        assert len(desk.ran) == number + 1
    assert desk.driver.recover(agent, at.run_id).output == "bye"


def test_recover_all_leaves_what_has_failed_to_whoever_was_told(desk: Desk) -> None:
    agent = desk.agent(desk.stops("book", ValueError("1")))
    at = last(desk.fails(lambda: desk.driver.invoke(agent, "go")))
    for _ in range(3):
        assert desk.driver.call(agent, "recover_all") == []
    assert desk.ran == [("book", 1)]
    assert desk.driver.resume(agent, at).output == "bye"


def test_a_worker_lost_between_the_failure_and_the_end_of_its_claim_is_carried_on_once(driver: Driver) -> None:
    """What it stored says that the call failed, and nobody was told: `recover_all` runs it again, once, and tells."""
    now = [1_800_000_000.0]
    desk = Desk(driver, Dying(clock=lambda: now[0]))
    agent = desk.agent(desk.stops("book", ValueError("1"), ValueError("2")))
    with pytest.raises(NodeFailed):
        driver.invoke(agent, "go")
    [branch] = desk.store.branches()
    assert (branch.status, desk.store.head(branch.id)[1].calls[0].status) == ("running", "failed")
    now[0] += 3600
    desk.store.dead = False  # type: ignore[attr-defined]
    [recovery] = driver.call(agent, "recover_all")
    assert isinstance(recovery.error, NodeFailed) and recovery.error.failures == {"book": "ValueError: 2"}
    assert driver.call(agent, "recover_all") == []
    assert desk.ran == [("book", 1)] * 2
    assert driver.resume(agent, last(recovery.error)).output == "bye"


class Dying(MemoryStore):
    """Does not come to let a claim go, as a process does not that is gone."""

    dead = True

    def release(self, claim: Any, status: Any = None) -> None:
        if not self.dead:
            super().release(claim, status)


def test_a_step_from_a_failed_run_runs_the_call_again(desk: Desk) -> None:
    agent = desk.agent(desk.stops("book", ValueError("1")))
    at = last(desk.fails(lambda: desk.driver.invoke(agent, "go")))
    result = desk.driver.step(agent, at)
    assert (result.status, told(result)) == ("running", [("completed", "book is done")])
    assert desk.driver.resume(agent, result.checkpoint).output == "bye"


def test_an_approval_that_lapses_beside_a_failed_call_has_it_run_again_once(driver: Driver) -> None:
    """`recover_all` settles what lapsed, and the run goes on, as it would with any decision."""
    now = [1_800_000_000.0]
    desk = Desk(driver, MemoryStore(clock=lambda: now[0]))
    book = desk.stops("book", *[ValueError(str(number)) for number in range(3)])
    agent = desk.agent(book, desk.tool("pay", requires_approval=True, approval_timeout=60))
    assert driver.invoke(agent, "go").suspended
    assert driver.call(agent, "recover_all") == []
    now[0] += 61
    [recovery] = driver.call(agent, "recover_all")
    assert isinstance(recovery.error, NodeFailed) and recovery.error.failures == {"book": "ValueError: 1"}
    assert driver.call(agent, "recover_all") == []
    assert desk.ran == [("book", 1)] * 2


def failing(scene: Scene, *, driver: str) -> None:
    """A tool whose first attempts in each of two drives fail, beside one that succeeds, resumed until it is through."""
    mine = {"sync": SYNC, "async": ASYNC}[driver]

    def book(ctx: ToolContext[Any]) -> str:
        """Book, once somebody has resumed the run."""
        if not ctx.deps:
            raise ValueError("not yet")
        return "booked"

    def look() -> str:
        """Look."""
        return "seen"

    tools = [tool(on_failure="stop", idempotent=True)(mine.function(book)), tool(idempotent=True)(mine.function(look))]
    model = ScriptedModel.by_turn([[call("book"), call("look")], "bye"])
    agent = Agent[Any, str](name="desk", model=model, tools=tools, store=scene.store)
    if not scene.store.branches():
        with pytest.raises(NodeFailed):
            mine.invoke(agent, "go")
    [branch] = scene.store.branches()
    if branch.status != "completed":
        mine.recover(agent, branch.id, deps=True)


def booked(scene: Scene) -> None:
    """The run is through, and `look` was not run again for what failed beside it."""
    [branch] = scene.store.branches()
    assert told(scene.store.head(branch.id)[1]) == [("completed", "booked"), ("completed", "seen")]


@pytest.mark.usefixtures("fresh_fork_server")
@pytest.mark.few(1)
@pytest.mark.parametrize("driver", ["sync", "async"])
def test_a_worker_killed_anywhere_about_a_failure_loses_nothing(driver: str, tmp_path: Path) -> None:
    report = sweep(
        partial(failing, driver=driver),
        store=f"sqlite:///{tmp_path}/runs.db?synchronous=normal",
        check=booked,
        every=scaled(4, sweep=1),
    )
    assert report.places >= 10
    assert report.kills >= scaled(3, sweep=report.places)
    assert report.broken == ()


def test_a_failure_that_was_stored_is_there_for_another_process(driver: Driver, tmp_path: Path) -> None:
    desk = Desk(driver, SQLiteStore(tmp_path / "runs.db"))
    at = last(desk.fails(lambda: driver.invoke(desk.agent(desk.stops("book", ValueError("1"))), "go")))
    desk.store.close()
    with SQLiteStore(tmp_path / "runs.db") as again:
        other = Desk(driver, again)
        assert [(branch.status, branch.head) for branch in again.branches()] == [("failed", at.id)]
        assert driver.resume(other.agent(other.stops("book")), at.id).output == "bye"

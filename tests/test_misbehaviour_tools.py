"""What misbehaving tools get: they raise, hang, return what is not JSON, or catch everything around a nested agent."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from drivers import ASYNC, PATIENCE, SYNC, Driver, outline

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    Respond,
    Tool,
    ToolContext,
    interrupt,
    tool,
)
from phronomy.models import ModelReply, ModelRequest
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

# A tool that raises


class Odd(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such order"), "ValueError: no such order"),
        (KeyError("order"), "KeyError: 'order'"),
        (RuntimeError(), "RuntimeError"),
        (Odd(), "Odd"),
        (TimeoutError("their timeout, not ours"), "TimeoutError: their timeout, not ours"),
        (StopIteration("stop"), "StopIteration: stop"),
        (RecursionError("too deep"), "RecursionError: too deep"),
        (AssertionError("should not be"), "AssertionError: should not be"),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "ExceptionGroup: two (2 sub-exceptions)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_tool_that_raises_is_a_failed_result_and_the_run_goes_on(
    driver: Driver, store: Store, error: Exception, told: str
) -> None:
    """A tool that raises: the model reads the error, siblings keep their results, and nothing runs again."""
    done: list[str] = []

    def wire() -> str:
        """Wire money."""
        done.append("wire")
        raise error

    def look() -> str:
        """Look."""
        done.append("look")
        return "seen"

    model = ScriptedModel([[call("wire"), call("look")], "it failed"])
    agent = Agent(model=model, tools=[driver.function(wire), driver.function(look)], store=store)

    if driver.is_async and isinstance(error, StopIteration):
        told = "RuntimeError: coroutine raised StopIteration"
    result = driver.invoke(agent, "go")

    assert sorted(done) == ["look", "wire"]
    assert outline(result)[2:] == [
        f"tool (failed): {told}",
        "tool (completed): seen",
        "assistant: it failed",
    ]
    again = Checkpoint.model_validate_json(result.checkpoint.model_dump_json())
    assert again == store.load(result.checkpoint.id)


def test_an_approved_tool_that_raises_is_settled_and_cannot_be_approved_again(driver: Driver, store: Store) -> None:
    """A tool that raises after its approval: the approval is used up. field failure 35"""
    done: list[str] = []

    def wire() -> str:
        """Wire money."""
        done.append("wire")
        raise ValueError("bank says no")

    model = ScriptedModel([call("wire"), "it failed"])
    agent = Agent(model=model, tools=[tool(requires_approval=True)(driver.function(wire))], store=store)

    stopped = driver.invoke(agent, "go")
    result = driver.resume(agent, stopped.checkpoint, approved=True)

    assert (result.output, done) == ("it failed", ["wire"])
    assert outline(result)[2] == "tool (failed): ValueError: bank says no"
    with pytest.raises(Exception, match="was decided before") as caught:
        driver.resume(agent, stopped.checkpoint, approved=True)
    assert type(caught.value).__name__ == "CheckpointAlreadyResumed"
    assert done == ["wire"]


def test_a_tool_that_raises_can_be_put_to_a_human(driver: Driver, store: Store) -> None:
    """A tool that raises, with on_failure="human": a new request, and the earlier approval does not count for it."""
    done: list[int] = []

    def wire() -> str:
        """Wire money."""
        done.append(len(done))
        if len(done) == 1:
            raise ValueError("bank says no")
        return "wired"

    wire_tool = tool(requires_approval=True, on_failure="human")(driver.function(wire))
    agent = Agent(model=ScriptedModel([call("wire"), "done"]), tools=[wire_tool], store=store)

    first = driver.invoke(agent, "go").checkpoint.pending[0]
    result = driver.resume(agent, store.pending()[0].checkpoint_id, approved=True)
    second = result.checkpoint.pending[0]

    assert (result.status, done, second.why, second.reason) == ("suspended", [0], "failed", "ValueError: bank says no")
    assert second.id != first.id
    result = driver.resume(agent, result.checkpoint, approved=True)
    assert (result.output, done) == ("done", [0, 1])


@pytest.mark.parametrize(("driver", "async_tool"), [(SYNC, False), (ASYNC, False), (ASYNC, True)])
def test_a_tool_that_is_cancelled_from_within_is_a_failed_result(
    driver: Driver, async_tool: bool, store: Store
) -> None:
    """A tool that raises CancelledError although nobody cancelled the run: an error like any other."""

    def own_sync() -> str:
        """Wait for something that was cancelled."""
        raise asyncio.CancelledError

    async def own_async() -> str:
        """Wait for something that was cancelled."""
        something = asyncio.ensure_future(asyncio.sleep(60))
        something.cancel()
        await something
        return "never"

    own = tool(name="own")(own_async if async_tool else own_sync)
    agent = Agent(model=ScriptedModel([[call("own"), call("own")], call("own"), "it failed"]), tools=[own], store=store)

    result = driver.invoke(agent, "go")

    assert (result.status, result.output) == ("completed", "it failed")
    told = [message for message in result.messages if message.role == "tool"]
    assert [message.settlement for message in told] == ["failed"] * 3
    assert all("cancelled from within" in message.text for message in told)


async def down() -> str:
    """What is not there."""
    await asyncio.sleep(0)
    raise ConnectionError("down")


@pytest.mark.parametrize("fails", [False, True], ids=["", "a-group-of-tasks-failed-too"])
def test_whoever_cancels_a_run_is_heard_though_its_tool_goes_on(store: Store, fails: bool) -> None:
    """A tool without a timeout runs in the task of the caller: it cannot keep a cancellation to itself."""
    went_on: list[str] = []

    async def main() -> None:
        entered = asyncio.Event()

        @tool
        async def stubborn() -> str:
            """Ask a service that is down, perhaps, and do not listen."""
            if fails:
                with contextlib.suppress(ExceptionGroup):
                    async with asyncio.TaskGroup() as group:
                        group.create_task(down())
            entered.set()
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                went_on.append("all the same")
            return "done"

        agent = Agent(model=ScriptedModel([call("stubborn"), "done"]), tools=[stubborn], store=store)
        run = asyncio.ensure_future(agent.ainvoke("go"))
        await entered.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        [branch] = store.branches()
        asked = await agent.arecover(branch.id)
        assert [item.why for item in asked.checkpoint.pending] == ["outcome_unknown"]

    asyncio.run(main())
    assert went_on == ["all the same"]


@pytest.mark.parametrize("waits", ["in-the-block", "at-its-end"])
def test_a_group_of_tasks_that_fails_inside_a_tool_cancels_no_run(store: Store, waits: str) -> None:
    """A TaskGroup cancels the task that it is in, so that it wakes up. Nobody else has cancelled anything."""

    async def look_up() -> str:
        """Ask two services, of which one is down: that is fine."""
        with contextlib.suppress(ExceptionGroup):
            await ask_both()
        return "a kettle"

    async def ask_both() -> str:
        """Ask two services, of which one is down."""
        async with asyncio.TaskGroup() as group:
            group.create_task(down())
            if waits == "in-the-block":
                await asyncio.sleep(PATIENCE)
        return "both"

    calls: list[Any] = [
        call("look_up"),
        call("ask_both"),
        call("ask_both"),
        [call("look_up"), call("ask_both")],
        "done",
    ]
    agent = Agent(model=ScriptedModel(calls), tools=[tool(look_up), tool(ask_both)], store=store)
    result = asyncio.run(agent.ainvoke("go"))
    assert result.output == "done"
    failed = "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)"
    told = [message.text for message in result.messages if message.role == "tool"]
    assert told == ["a kettle", failed, failed, "a kettle", failed]


def test_a_question_that_a_group_of_tasks_asks_is_asked_though_the_body_takes_its_failure(store: Store) -> None:
    @tool
    async def book() -> str:
        """Ask where to go, and what to take."""

        async def where() -> Any:
            return interrupt("Where to?", key="where")

        with contextlib.suppress(BaseExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(where())
                group.create_task(down())
        return "booked"

    agent = Agent(model=ScriptedModel([call("book"), "done"]), tools=[book], store=store)
    result = asyncio.run(agent.ainvoke("go"))
    assert [item.why for item in result.checkpoint.pending] == ["question"]


@pytest.mark.product
@pytest.mark.parametrize("asked", ["tool", "model"])
def test_a_caller_that_is_cancelled_at_every_step_leaves_a_run_that_is_free(store: Store, asked: str) -> None:
    """A cancel scope of anyio, as a web server has one, cancels its task anew at every turn of the loop until it has left."""

    async def main() -> None:
        with anyio.CancelScope() as scope:

            async def hang() -> str:
                """Wait for something that does not come."""
                scope.cancel()
                await asyncio.sleep(PATIENCE)
                return "it came"

            class Slow(ScriptedModel):
                """A model that somebody does not wait for."""

                async def acomplete(self, request: ModelRequest) -> ModelReply:
                    if asked == "model":
                        await hang()
                    return await super().acomplete(request)

            await Agent(model=Slow([call("hang"), "done"]), tools=[tool(hang)], store=store).ainvoke("go")
        assert scope.cancelled_caught
        [branch] = store.branches()
        assert branch.owner is None

    asyncio.run(main())


class Signal(BaseException):
    """What some libraries raise so that nobody catches it."""


@pytest.mark.parametrize("error", [Signal, SystemExit, GeneratorExit], ids=lambda error: error.__name__)
@pytest.mark.parametrize("shape", ["alone", "timeout", "beside-another"])
@pytest.mark.parametrize(("driver", "async_tool"), [(SYNC, False), (ASYNC, False), (ASYNC, True)])
def test_a_tool_that_raises_what_is_no_exception_leaves_an_unknown_outcome(
    driver: Driver, async_tool: bool, store: Store, error: type[BaseException], shape: str
) -> None:
    """A tool that raises what no `except Exception` catches: it goes on to the caller, the run is free at once, and
    nobody runs the call again before a human has said so.
    """
    done: list[str] = []

    def wire() -> str:
        """Wire money."""
        done.append("wire")
        if len(done) == 1:
            raise error
        return "wired"

    async def awire() -> str:
        """Wire money."""
        return wire()

    @tool(requires_approval=True)
    def look() -> str:
        """Look."""
        return "seen"

    wire_tool = tool(name="wire", timeout=60 if shape == "timeout" else None)(awire if async_tool else wire)
    calls = [call("wire"), call("look")] if shape == "beside-another" else [call("wire")]
    agent = Agent(name="clerk", model=ScriptedModel.by_turn([calls, "done"]), tools=[wire_tool, look], store=store)

    with pytest.raises(error):
        driver.invoke(agent, "go", thread_id="t")

    (branch,) = store.branches(thread_id="t")
    assert (branch.status, branch.owner, done) == ("running", None, ["wire"])
    result = driver.recover(agent, branch.id)
    waits = {item.tool_name: (item.why, item.id) for item in result.checkpoint.pending}
    assert waits["wire"][0] == "outcome_unknown"
    assert sorted(waits) == (["look", "wire"] if shape == "beside-another" else ["wire"])
    assert done == ["wire"]
    result = driver.resume(agent, result.checkpoint, decisions={id: Approve() for _, id in waits.values()})
    assert (result.output, done) == ("done", ["wire", "wire"])


# A tool that hangs


class Hanging:
    """A tool body that says when it has begun, and goes on when it is released. It ends when the test ends."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.begun = threading.Event()
        self.release = threading.Event()
        self.ended = threading.Event()
        self.keys: list[str] = []
        self.cancelled: list[bool] = []
        request.addfinalizer(self.release.set)

    def __call__(self, context: ToolContext[Any]) -> str:
        self.keys.append(context.idempotency_key)
        self.begun.set()
        assert self.release.wait(PATIENCE)
        self.cancelled.append(context.cancelled)
        self.ended.set()
        return "late"


@pytest.fixture
def hanging(request: pytest.FixtureRequest) -> Hanging:
    return Hanging(request)


def test_a_hanging_tool_is_an_unknown_outcome(driver: Driver, store: Store, hanging: Hanging) -> None:
    """A tool that hangs, with a timeout, not idempotent: nobody knows, so a human is asked."""

    @tool(timeout=0.05)
    def wire(ctx: ToolContext[Any]) -> str:
        """Wire money."""
        return hanging(ctx)

    agent = Agent(model=ScriptedModel([call("wire"), "done"]), tools=[wire], store=store)

    result = driver.invoke(agent, "go")

    assert result.suspended
    (item,) = result.checkpoint.pending
    assert (item.why, item.tool_name) == ("outcome_unknown", "wire")
    assert item.reason == "wire did not end within 0.05 s. It may have taken effect, or may yet."
    assert store.load(result.checkpoint.id).pending == (item,)

    hanging.release.set()
    assert hanging.ended.wait(PATIENCE)
    assert hanging.cancelled == [True]
    assert store.load(result.checkpoint.id).pending == (item,)

    result = driver.resume(agent, result.checkpoint, decisions={item.id: Respond(content="the bank has it")})
    assert (result.output, len(hanging.keys)) == ("done", 1)
    assert outline(result)[2] == "tool (responded): the bank has it"


def test_a_hanging_tool_runs_again_with_its_key_when_a_human_says_so(driver: Driver, hanging: Hanging) -> None:
    """A tool that hangs, with a timeout, not idempotent: approving the unknown outcome runs it again. Law 5."""

    @tool(timeout=0.05, requires_approval=True)
    def wire(ctx: ToolContext[Any]) -> str:
        """Wire money."""
        return hanging(ctx)

    agent = Agent(model=ScriptedModel([call("wire"), "done"]), tools=[wire])
    first = driver.invoke(agent, "go")
    second = driver.resume(agent, first.checkpoint, approved=True)
    assert second.checkpoint.pending[0].why == "outcome_unknown"
    assert second.checkpoint.pending[0].id != first.checkpoint.pending[0].id

    hanging.release.set()
    # The first body may still be in its last lines: it is told apart by its count, not by time.
    result = driver.resume(agent, second.checkpoint, approved=True)

    assert (result.status, len(hanging.keys), len(set(hanging.keys))) == ("completed", 2, 1)
    assert outline(result)[2] == "tool (completed): late"


def test_a_hanging_tool_that_is_idempotent_is_an_error_to_the_model(driver: Driver, hanging: Hanging) -> None:
    """A tool that hangs, with a timeout, idempotent: tried again as often as it says, with one key, then told."""

    @tool(timeout=0.05, idempotent=True, retries=1, retry_wait=0)
    def look(ctx: ToolContext[Any]) -> str:
        """Look."""
        return hanging(ctx)

    agent = Agent(model=ScriptedModel([call("look"), "too slow"]), tools=[look])

    result = driver.invoke(agent, "go")

    assert (result.status, result.output) == ("completed", "too slow")
    assert (len(hanging.keys), len(set(hanging.keys))) == (2, 1)
    assert result.messages[2].settlement == "failed"
    assert "still running after 0.05 s" in result.messages[2].text


@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
def test_a_hanging_async_tool_is_cancelled(store: Store, idempotent: bool) -> None:
    """A tool that hangs, async: it is cancelled at its timeout; unless idempotent, its outcome is unknown."""
    ended: list[str] = []

    @tool(timeout=0.05, idempotent=idempotent)
    async def wire() -> str:
        """Wire money."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return "never"

    agent = Agent(model=ScriptedModel([call("wire"), "done"]), tools=[wire], store=store)

    result = ASYNC.invoke(agent, "go")

    assert ended == ["cancelled"]
    assert result.status == ("completed" if idempotent else "suspended")
    assert [item.why for item in result.checkpoint.pending] == ([] if idempotent else ["outcome_unknown"])


def test_a_hanging_async_tool_that_will_not_be_cancelled_holds_nobody_up(store: Store) -> None:
    """A tool that hangs, async, and swallows its cancellation: the run stops for a human at its timeout all the same."""
    log: list[str] = []

    async def main() -> None:
        release = asyncio.Event()

        @tool(timeout=0.05)
        async def wire() -> str:
            """Wire money."""
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    log.append("cancelled")
            log.append("released")
            return "late"

        agent = Agent(model=ScriptedModel([call("wire"), "done"]), tools=[wire], store=store)
        result = await agent.ainvoke("go")
        assert (log, [item.why for item in result.checkpoint.pending]) == (["cancelled"], ["outcome_unknown"])
        assert store.branches()[0].owner is None
        release.set()
        await asyncio.wait({task for task in asyncio.all_tasks() if task is not asyncio.current_task()})
        assert log == ["cancelled", "released"]
        assert store.load(result.checkpoint.id) == result.checkpoint
        result = await agent.aresume(result.checkpoint, approved=False)
        assert (result.output, log) == ("done", ["cancelled", "released"])
        assert "Nobody knows whether this call took effect" in result.messages[2].text

    asyncio.run(main())


def test_a_hanging_tool_does_not_hold_up_its_siblings(driver: Driver, hanging: Hanging, store: Store) -> None:
    """A tool that hangs beside one that does not: the other's result is kept."""
    done: list[str] = []

    @tool(timeout=0.05)
    def wire(ctx: ToolContext[Any]) -> str:
        """Wire money."""
        return hanging(ctx)

    def look() -> str:
        """Look."""
        done.append("look")
        return "seen"

    agent = Agent(model=ScriptedModel([[call("wire"), call("look")], "done"]), tools=[wire, look], store=store)

    result = driver.invoke(agent, "go")

    assert [(item.tool_name, item.why) for item in result.checkpoint.pending] == [("wire", "outcome_unknown")]
    assert [each.status for each in result.checkpoint.calls] == ["pending", "settled"]
    result = driver.resume(agent, result.checkpoint, approved=False)
    assert (result.output, done) == ("done", ["look"])


# A tool that returns what is not JSON


class Cursed:
    """Something that cannot even be asked."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("do not touch")


def _itself() -> list[Any]:
    around: list[Any] = []
    around.append(around)
    return around


def _deep() -> Any:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(object, id="object"),
        pytest.param(Cursed, id="cursed"),
        pytest.param(lambda: float("nan"), id="nan"),
        pytest.param(lambda: {"x": float("inf")}, id="infinity"),
        pytest.param(lambda: b"\xff\xfe", id="bytes"),
        pytest.param(_itself, id="itself"),
        pytest.param(_deep, id="deep"),
        pytest.param(lambda: {object(): 1}, id="object-key"),
        pytest.param(lambda: lambda: 1, id="function"),
        pytest.param(threading.Lock, id="lock"),
    ],
)
def test_a_result_that_is_not_json_settles_the_call_and_says_that_it_ran(
    driver: Driver, store: Store, make: Callable[[], Any]
) -> None:
    """A tool that returns what is not JSON: it ran, so it is settled, and never run again."""
    done: list[str] = []

    def wire() -> Any:
        """Wire money."""
        done.append("wire")
        return make()

    agent = Agent(
        model=ScriptedModel([call("wire"), "odd"]),
        tools=[tool(requires_approval=True, idempotent=True, retries=3, retry_wait=0)(driver.function(wire))],
        store=store,
    )

    result = driver.resume(agent, driver.invoke(agent, "go").checkpoint, approved=True)

    assert (result.output, done) == ("odd", ["wire"])
    assert result.messages[2].settlement == "failed"
    assert result.messages[2].text.startswith("The tool ran, but its result of type ")
    assert Checkpoint.model_validate_json(result.checkpoint.model_dump_json()) == result.checkpoint
    assert store.load(result.checkpoint.id) == result.checkpoint


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "null"),
        (False, "false"),
        (0, "0"),
        ("", ""),
        ([], "[]"),
        ({"b": 1.0, "a": {"__class__": "x"}}, '{"b":1.0,"a":{"__class__":"x"}}'),
        ("null", "null"),
    ],
)
def test_a_result_that_is_falsy_is_a_result(driver: Driver, value: Any, told: str) -> None:
    """A tool that returns nothing much: that is not the same as no answer. field failure 24"""

    def look() -> Any:
        """Look."""
        return value

    agent = Agent(model=ScriptedModel([call("look"), "done"]), tools=[driver.function(look)])

    result = driver.invoke(agent, "go")

    assert outline(result)[2] == f"tool (completed): {told}"


def test_a_sync_tool_that_returns_an_awaitable_is_told_how_it_should_be(driver: Driver) -> None:
    """A tool that returns what is not JSON: a coroutine that nobody awaited."""

    async def later() -> str:
        return "late"

    def look() -> Any:
        """Look."""
        return later()

    agent = Agent(model=ScriptedModel([call("look"), "done"]), tools=[look])

    result = driver.invoke(agent, "go")

    assert result.messages[2].settlement == "failed"
    assert "declare it with 'async def'" in result.messages[2].text


# A tool that catches every Exception around a nested agent


def test_a_tool_that_catches_everything_around_a_nested_agent_swallows_nothing(driver: Driver, store: Store) -> None:
    """A tool that catches every Exception around a nested agent: `invoke` in it gives an ordinary suspended result.

    RBY B7: the signal of the original is an ordinary error, which such a tool swallows.
    """
    paid: list[int] = []
    caught: list[Exception] = []

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    inner = Agent(
        name="inner", model=ScriptedModel([call("pay", {"amount": 7}), "inner done"]), tools=[pay], store=store
    )

    def delegate_sync() -> str:
        """Let the other agent do it."""
        try:
            result = inner.invoke("pay it")
            return f"{result.status}: {result.checkpoint.id}"
        except Exception as error:
            caught.append(error)
            return "swallowed"

    async def delegate_async() -> str:
        """Let the other agent do it."""
        try:
            result = await inner.ainvoke("pay it")
            return f"{result.status}: {result.checkpoint.id}"
        except Exception as error:
            caught.append(error)
            return "swallowed"

    delegate = delegate_async if driver.is_async else delegate_sync
    outer_model = ScriptedModel([call("delegate"), "outer done"])
    outer = Agent(name="outer", model=outer_model, tools=[tool(name="delegate")(delegate)], store=store)

    result = driver.invoke(outer, "go")

    assert (result.status, result.output, caught, paid) == ("completed", "outer done", [], [])
    (waiting,) = store.pending()
    assert result.messages[2].text == f"suspended: {waiting.checkpoint_id}"
    assert (waiting.agent, waiting.approval.args) == ("inner", {"amount": 7})

    result = driver.resume(inner, waiting.checkpoint_id, approved=True)
    assert (result.output, paid, store.pending()) == ("inner done", [7], [])


def test_a_sync_tool_of_an_async_run_may_invoke_another_agent(store: Store) -> None:
    """A tool that catches every Exception around a nested agent, sync in an async run: it has a thread of its own."""
    inner = Agent(name="inner", model=ScriptedModel([call("pay"), "inner done"]), tools=[_Pay()], store=store)

    def delegate() -> str:
        """Let the other agent do it."""
        try:
            return inner.invoke("pay it").status
        except Exception:
            return "swallowed"

    outer = Agent(name="outer", model=ScriptedModel([call("delegate"), "done"]), tools=[delegate], store=store)

    result = ASYNC.invoke(outer, "go")

    assert outline(result)[2] == "tool (completed): suspended"


class _Pay(Tool):
    name = "pay"
    requires_approval = True

    def execute(self) -> str:
        """Pay."""
        return "paid"


def test_a_tool_that_catches_everything_around_its_own_agent_swallows_nothing(driver: Driver) -> None:
    """A tool that catches every Exception around a nested agent which is its own agent: no state is shared. Law 16"""
    depth: list[int] = []

    def again_sync() -> str:
        """Once more."""
        depth.append(len(depth))
        return agent.invoke("deeper").status if len(depth) < 3 else "deep enough"

    async def again_async() -> str:
        """Once more."""
        depth.append(len(depth))
        return (await agent.ainvoke("deeper")).status if len(depth) < 3 else "deep enough"

    again = tool(name="again")(again_async if driver.is_async else again_sync)
    agent = Agent(model=ScriptedModel.by_turn([call("again"), "done"]), tools=[again])

    result = driver.invoke(agent, "go")

    assert (result.output, depth) == ("done", [0, 1, 2])
    assert outline(result)[2] == "tool (completed): completed"

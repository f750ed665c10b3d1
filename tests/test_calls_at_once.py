"""A body makes several calls at once, in tasks or threads: all are asked about together, and each runs once, on every store."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from drivers import ASYNC, SYNC, Driver
from places import Place

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    Defer,
    MemoryStore,
    PendingApproval,
    Principal,
    Reject,
    Respond,
    ToolCallError,
    ToolContext,
    interrupt,
    tool,
)
from phronomy.errors import NodeFailed, StoreError
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call
from phronomy.triggers import ExternalEvent, Timer, wait_for_first
from phronomy.workers import Worker

ON_EVERY_STORE = pytest.mark.product


class Desk:
    """An agent whose tool `order` pays several at once; `paid` is who was paid, in the order in which they were."""

    def __init__(self, place: Place, order: Callable[..., Any], to: str) -> None:
        self.store = place.open()
        self.to = to
        self.paid: list[str] = []

        @tool(requires_approval=True)
        def pay(to: str) -> str:
            """Pay."""
            self.paid.append(to)
            return f"paid {to}"

        tools = [tool(name="order", calls=[pay])(order)]
        model = ScriptedModel.by_turn([call("order", {"to": to}), "Done."])
        self.agent: Agent[Any, str] = Agent(name="desk", tools=tools, model=model, store=self.store)

    def asks(self, driver: Driver) -> Any:
        """The checkpoint at which all payments wait."""
        waits = driver.invoke(self.agent, "Pay").checkpoint
        assert sorted(item.args["to"] for item in waits.pending) == [*self.to]
        assert self.store.load(waits.id) == waits and len(self.store.pending()) == len(self.to)
        return waits


def one(context: ToolContext[Any], to: str) -> Coroutine[Any, Any, Any]:
    """A payment; of one that is refused, how."""

    async def made() -> Any:
        try:
            return await context.acall_tool("pay", {"to": to}, key=to)
        except ToolCallError as error:
            return type(error).__name__

    return made()


async def in_a_group(to: str, context: ToolContext[Any]) -> str:
    """Order."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(context, each)) for each in to]
    return ", ".join(task.result() for task in tasks)


async def gathered(to: str, context: ToolContext[Any]) -> str:
    """Order."""
    return ", ".join(await asyncio.gather(*(one(context, each) for each in to)))


async def in_time(to: str, context: ToolContext[Any]) -> str:
    """Order."""
    async with asyncio.timeout(60):
        return await in_a_group(to, context)


def in_threads(to: str, context: ToolContext[Any]) -> str:
    """Order."""

    def made(each: str) -> Any:
        try:
            return context.call_tool("pay", {"to": each}, key=each)
        except ToolCallError as error:
            return type(error).__name__

    with ThreadPoolExecutor() as pool:
        found = [pool.submit(contextvars.copy_context().run, made, each) for each in to]
    return ", ".join(each.result() for each in found)


WAYS = [(ASYNC, in_a_group), (ASYNC, in_time), (SYNC, in_threads), (ASYNC, in_threads)]


@ON_EVERY_STORE
@pytest.mark.parametrize(("driver", "order"), WAYS, ids=lambda each: getattr(each, "name", None) or each.__name__)
def test_calls_at_once_are_asked_about_together_and_each_runs_once(
    place: Place, driver: Driver, order: Callable[..., Any]
) -> None:
    for to in ("AB", "ABC"):
        desk = Desk(place, order, to)
        waits = desk.asks(driver)
        result = driver.resume(desk.agent, waits, decisions={item.id: Approve() for item in waits.pending})
        assert (result.output, sorted(desk.paid)) == ("Done.", [*to])
        assert [each.text for each in result.messages if each.role == "tool"] == [
            ", ".join(f"paid {each}" for each in to)
        ]


@ON_EVERY_STORE
@pytest.mark.parametrize(("driver", "order"), WAYS, ids=lambda each: getattr(each, "name", None) or each.__name__)
def test_one_approved_and_one_rejected_at_once(place: Place, driver: Driver, order: Callable[..., Any]) -> None:
    desk = Desk(place, order, "AB")
    waits = desk.asks(driver)
    first, second = sorted(waits.pending, key=lambda item: item.args["to"])
    result = driver.resume(desk.agent, waits, decisions={first.id: Approve(), second.id: Reject()})
    assert (result.output, desk.paid) == ("Done.", ["A"])
    assert [each.text for each in result.messages if each.role == "tool"] == ["paid A, ToolCallRejected"]


@ON_EVERY_STORE
def test_calls_of_a_gather_that_is_left_are_asked_about_once_the_body_runs_again(place: Place) -> None:
    """It raises at once, and does not wait for the others."""
    desk = Desk(place, gathered, "ABC")
    result = ASYNC.invoke(desk.agent, "Pay")
    asked: list[str] = []
    while result.suspended:
        waits = result.checkpoint
        assert desk.store.load(waits.id) == waits
        asked += [item.args["to"] for item in waits.pending]
        result = ASYNC.resume(desk.agent, waits, decisions={item.id: Approve() for item in waits.pending})
    assert (result.output, sorted(asked), sorted(desk.paid)) == ("Done.", ["A", "B", "C"], ["A", "B", "C"])


@pytest.mark.parametrize(("driver", "order"), WAYS[:3:2], ids=["async", "sync"])
def test_decided_one_after_the_other(place: Place, driver: Driver, order: Callable[..., Any]) -> None:
    desk = Desk(place, order, "ABC")
    waits = desk.asks(driver)
    for left in ("BC", "C"):
        (first,) = [item for item in waits.pending if item.args["to"] not in left]
        result = driver.resume(desk.agent, waits, decisions={first.id: Approve()})
        waits = result.checkpoint
        assert (result.status, sorted(item.args["to"] for item in waits.pending)) == ("suspended", [*left])
        assert desk.store.load(waits.id) == waits
    result = driver.resume(desk.agent, waits, decisions={waits.pending[0].id: Approve()})
    assert (result.output, sorted(desk.paid)) == ("Done.", ["A", "B", "C"])


@pytest.mark.parametrize(("driver", "order"), WAYS[:3:2], ids=["async", "sync"])
def test_once_one_has_failed_the_others_are_not_made(place: Place, driver: Driver, order: Callable[..., Any]) -> None:
    desk = Desk(place, order, "AB")
    asked: list[str] = []

    def fails(name: str, args: Any) -> bool:
        asked.append(args["to"])
        if len(asked) == 1:
            raise OSError("the directory is down")
        return True

    desk.agent.on_approval_required(driver.function(fails))
    with pytest.raises(NodeFailed, match="ApprovalHandlerError") as failed:
        driver.invoke(desk.agent, "Pay")
    assert (len(asked), desk.paid) == (1, [])
    # Once it answers, it is asked about both.
    left = failed.value.checkpoint
    assert left is not None
    result = driver.resume(desk.agent, left)
    assert (result.output, sorted(desk.paid), len(asked)) == ("Done.", ["A", "B"], 3)


# The body does not wait for a call


def bare(context: ToolContext[Any], to: str) -> Coroutine[Any, Any, Any]:
    """A payment; one that is refused raises."""
    return context.acall_tool("pay", {"to": to}, key=to)


async def all_or_none(to: str, context: ToolContext[Any]) -> str:
    """Order."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(bare(context, each)) for each in to]
    return ", ".join(task.result() for task in tasks)


async def until_the_first(to: str, context: ToolContext[Any]) -> str:
    """Order."""
    tasks = [asyncio.create_task(bare(context, each)) for each in to]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return ", ".join(task.result() for task in done)


def orders(to: str) -> Iterator[list[tuple[str, bool]]]:
    """Every way to decide these payments one after the other."""
    for order in itertools.permutations(to):
        for ways in itertools.product((True, False), repeat=len(to)):
            yield [*zip(order, ways, strict=True)]


def settle(desk: Desk, head: Checkpoint, item: PendingApproval, decision: Approve | Reject, door: str) -> Checkpoint:
    """Decide one payment, by this door; return the checkpoint that the decider is given."""
    if door == "resume":
        answer = ASYNC.resume(desk.agent, head, decisions={item.id: decision})
    elif door == "decide":
        answer = ASYNC.call(desk.agent, "decide", item.id, decision)
    else:
        desk.store.decide(item.id, decision, by="ann", digest=item.digest)
        (worked,) = asyncio.run(Worker(desk.agent).once())
        assert worked.result is not None
        answer = worked.result
    told: Checkpoint = answer.checkpoint
    return told


@pytest.mark.parametrize("door", ["resume", "decide", "worker"])
@pytest.mark.parametrize("order", [all_or_none, until_the_first], ids=lambda each: each.__name__)
def test_a_body_that_leaves_its_other_calls_at_the_first_result_comes_to_its_end(
    place: Place, order: Callable[..., Any], door: str
) -> None:
    for decided in orders("ABC" if place.kind == "memory" else "AB"):
        desk = Desk(place, order, "".join(sorted(to for to, _ in decided)))
        head = desk.asks(ASYNC)
        approved: list[str] = []
        for to, yes in decided:
            item = next((each for each in head.pending if each.args["to"] == to), None)
            if item is None and order is until_the_first:  # the body has ended, and given it up
                continue
            assert item is not None, decided
            approved += [to] if yes else []
            head = settle(desk, head, item, Approve() if yes else Reject(), door)
            assert head == desk.store.load(head.id), decided
        assert head.ended == "completed", decided
        assert set(desk.paid) <= set(approved) and len(set(desk.paid)) == len(desk.paid), decided
        assert order is until_the_first or sorted(desk.paid) == sorted(approved), decided
        assert not desk.store.pending()


class Slow:
    """A payment that takes until `release` is set, in a body that may not wait for it; `paid` are those made."""

    def __init__(self, place: Place, body: Callable[[ToolContext[Any], Slow], Any]) -> None:
        self.store = place.open()
        self.paid: list[str] = []
        self.inside = self.release = asyncio.Event()
        self.to_cancel: asyncio.Task[Any] | None = None  # cancelled once the slow payment is under way
        self.loses = False  # the worker is lost as the body begins

        @tool(requires_approval=lambda args: args["to"] != "free")
        async def pay(to: str) -> str:
            """Pay."""
            if to == "slow":
                self.inside.set()
                if self.to_cancel is not None:
                    self.to_cancel.cancel()
                await self.release.wait()
            self.paid.append(to)
            return f"paid {to}"

        async def order(context: ToolContext[Any]) -> str:
            """Order."""
            if self.loses:
                raise Lost
            self.inside, self.release = asyncio.Event(), asyncio.Event()  # of the loop in which it runs
            return str(await body(context, self))

        def order_in_a_thread(context: ToolContext[Any]) -> str:
            """Order."""
            return str(body(context, self))

        function = order if inspect.iscoroutinefunction(body) else order_in_a_thread
        self.tools = [tool(name="order", calls=[pay])(function)]
        self.agent = self.agent_on(self.store)

    def agent_on(self, store: Store) -> Agent[Any, str]:
        """The agent, on this store."""
        model = ScriptedModel.by_turn([call("order"), "Done."])
        return Agent(name="desk", tools=self.tools, model=model, store=store)

    def asked(self) -> list[tuple[str, str]]:
        """The requests that wait: for whom, and why."""
        return [(item.approval.args["to"], item.approval.why) for item in self.store.pending()]

    def decide(self, decision: Any) -> Any:
        """Decide the one request that waits."""
        (item,) = self.store.pending()
        result = ASYNC.call(self.agent, "decide", item.approval.id, decision)
        assert self.store.load(result.checkpoint.id) == result.checkpoint
        return result


async def left(context: ToolContext[Any], desk: Slow) -> str:
    """Begin a payment, cancel it once it is under way, and say so."""
    task = asyncio.create_task(context.acall_tool("pay", {"to": "slow"}, key="slow"))
    begun = asyncio.create_task(desk.inside.wait())
    await asyncio.wait([task, begun], return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    begun.cancel()
    await asyncio.wait([begun])
    desk.release.set()
    try:
        return await task
    except asyncio.CancelledError:
        return "left"


async def timed_out(context: ToolContext[Any], desk: Slow) -> str:
    """As `left`, by a time that is over at once."""
    asyncio.get_running_loop().call_later(0.02, desk.release.set)
    try:
        async with asyncio.timeout(0):
            return await context.acall_tool("pay", {"to": "slow"}, key="slow")
    except TimeoutError:
        return "left"


async def left_and_raised(context: ToolContext[Any], desk: Slow) -> str:
    raise ValueError(await left(context, desk))


async def left_and_asked(context: ToolContext[Any], desk: Slow) -> str:
    before = await left(context, desk)
    return before + ", " + await context.acall_tool("pay", {"to": "B"}, key="B")


async def left_and_paid(context: ToolContext[Any], desk: Slow) -> str:
    before = await timed_out(context, desk)
    return before + ", " + await context.acall_tool("pay", {"to": "free"}, key="free")


BODIES = {
    left: (["slow"], "left"),
    timed_out: (["slow"], "left"),
    left_and_raised: (["slow"], "ValueError: left"),
    left_and_asked: (["slow", "B"], "paid slow, paid B"),  # it runs again with what came of the first
    left_and_paid: (["slow", "free"], "left, paid free"),
}


@ON_EVERY_STORE
@pytest.mark.parametrize("body", BODIES, ids=lambda each: each.__name__)
def test_a_call_that_its_body_cancels_comes_to_its_end_first(place: Place, body: Callable[..., Any]) -> None:
    desk = Slow(place, body)
    ASYNC.invoke(desk.agent, "Pay")
    assert desk.asked() == [("slow", "approval")]
    result = desk.decide(Approve())
    if body is left_and_asked:
        assert desk.asked() == [("B", "approval")]
        result = desk.decide(Approve())
    texts = [each.text for each in result.messages if each.role == "tool"]
    assert (result.output, desk.paid, texts) == ("Done.", BODIES[body][0], [BODIES[body][1]])
    assert desk.asked() == []


def test_a_call_that_its_body_cancels_while_a_handler_is_asked_is_asked_about(place: Place) -> None:
    async def body(context: ToolContext[Any], desk: Slow) -> str:
        asyncio.get_running_loop().call_later(0.02, desk.release.set)
        try:
            async with asyncio.timeout(0):
                return await context.acall_tool("pay", {"to": "B"}, key="B")
        except TimeoutError:
            return "left"

    async def handler(name: str, args: Any) -> Defer:
        await desk.release.wait()
        return Defer()

    desk = Slow(place, body)
    desk.agent.on_approval_required(handler)
    ASYNC.invoke(desk.agent, "Pay")
    assert (desk.asked(), desk.paid) == ([("B", "approval")], [])
    result = desk.decide(Approve())
    assert (result.output, desk.paid, desk.asked()) == ("Done.", ["B"], [])


async def waits(context: ToolContext[Any], desk: Slow) -> str:
    return str(await context.acall_tool("pay", {"to": "slow"}, key="slow"))


async def waits_in_a_group(context: ToolContext[Any], desk: Slow) -> str:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(waits(context, desk))
    return task.result()


async def swallows(context: ToolContext[Any], desk: Slow) -> str:
    try:
        return await waits_in_a_group(context, desk)
    except asyncio.CancelledError:
        return "swallowed"


async def goes_on(context: ToolContext[Any], desk: Slow) -> str:
    before = await swallows(context, desk)
    return before + await context.acall_tool("pay", {"to": "free"}, key="free")


def waits_in_a_thread(context: ToolContext[Any], desk: Slow) -> str:
    desk.release = asyncio.Event()
    return str(context.call_tool("pay", {"to": "slow"}, key="slow"))


@ON_EVERY_STORE
@pytest.mark.parametrize(
    "body", [waits, waits_in_a_group, swallows, goes_on, waits_in_a_thread], ids=lambda each: each.__name__
)
def test_who_cancels_the_run_cuts_the_call_off_whatever_the_body_makes_of_it(
    place: Place, body: Callable[..., Any]
) -> None:
    desk = Slow(place, body)
    head = ASYNC.invoke(desk.agent, "Pay").checkpoint

    async def cancelled() -> None:
        desk.to_cancel = asyncio.current_task()
        await desk.agent.aresume(head, approved=True)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert desk.paid == []
    found = ASYNC.call(desk.agent, "recover", head.run_id)
    assert [(item.tool_name, item.why) for item in found.checkpoint.pending] == [("order", "outcome_unknown")]
    desk.to_cancel = None
    assert desk.decide(Approve()).suspended
    assert (desk.asked(), desk.paid) == ([("slow", "outcome_unknown")], [])
    result = desk.decide(Respond(content="paid slow"))
    assert (result.output, desk.paid) == ("Done.", ["free"] if body is goes_on else [])


class Away(MemoryStore):
    """A store that cannot be reached when the result of a call of a body is to be written, once."""

    away = True

    def append(self, change: Append) -> Branch:
        if self.away and any(entry.path and '"settled"' in entry.body for entry in change.entries):
            self.away = False
            raise StoreError("the store is away")
        return super().append(change)


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=lambda each: each.name)
def test_an_error_of_the_store_in_a_call_is_not_for_the_body_to_catch(driver: Driver) -> None:
    paid: list[str] = []

    @tool(requires_approval=True)
    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return f"paid {to}"

    @tool(calls=[pay])
    def order(context: ToolContext[Any]) -> str:
        """Order."""
        try:
            return str(context.call_tool("pay", {"to": "A"}, key="A"))
        except Exception:
            return "caught"

    store = Away()
    model = ScriptedModel.by_turn([call("order"), "Done."])
    agent: Agent[Any, str] = Agent(name="desk", tools=[order], model=model, store=store)
    waits = driver.invoke(agent, "Pay").checkpoint
    with pytest.raises(StoreError):
        driver.resume(agent, waits, approved=True)
    assert paid == ["A"]
    found = driver.call(agent, "recover", waits.run_id)
    assert [item.why for item in found.checkpoint.pending] == ["outcome_unknown"]
    result = driver.call(agent, "decide", found.checkpoint.pending[0].id, Respond(content="paid A"))
    assert (result.output, paid) == ("Done.", ["A"])
    assert [each.text for each in result.messages if each.role == "tool"] == ["paid A"]


# The worker of the body is lost while something else in it waits


class Lost(BaseException):
    """The end of a process: nothing is written after it."""


async def pays_both(context: ToolContext[Any], desk: Slow) -> str:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(context.acall_tool("pay", {"to": each}, key=each)) for each in "AB"]
    return ", ".join(task.result() for task in tasks)


async def pays_and_asks(context: ToolContext[Any], desk: Slow) -> str:
    async def ask() -> Any:
        return interrupt("Which?", key="which")

    async with asyncio.TaskGroup() as group:
        asked = group.create_task(ask())
        paid = group.create_task(context.acall_tool("pay", {"to": "A"}, key="A"))
    return f"{paid.result()}, {asked.result()}"


def lost_in_the_body(place: Place, body: Callable[..., Any]) -> tuple[Slow, str]:
    """A run in which A was approved and the worker lost as the body ran again; the other request waits still."""
    desk = Slow(place, body)
    head = ASYNC.invoke(desk.agent, "Pay").checkpoint
    (first,) = [item for item in head.pending if item.args.get("to") == "A"]
    desk.loses = True
    with pytest.raises(Lost):
        ASYNC.call(desk.agent, "decide", first.id, Approve())
    desk.loses = False
    return desk, head.run_id


INSIDE = {
    pays_both: (Approve(), "paid A, paid B", ["A", "B"]),
    pays_and_asks: (Respond(content="x"), "paid A, x", ["A"]),
}


@ON_EVERY_STORE
@pytest.mark.parametrize("door", ["agent", "store"])
@pytest.mark.parametrize("order", ["the body first", "the other first", "the other before anybody recovers"])
@pytest.mark.parametrize("body", INSIDE, ids=lambda each: each.__name__)
def test_what_waits_in_a_body_whose_worker_was_lost_can_be_decided_at_any_time(
    place: Place, body: Callable[..., Any], order: str, door: str
) -> None:
    answer, text, paid = INSIDE[body]
    desk, run_id = lost_in_the_body(place, body)

    def decide(why: str, decision: Any) -> Any:
        (item,) = [
            item.approval
            for item in desk.store.pending()
            if (item.approval.why == "outcome_unknown") == (why == "body")
        ]
        if door == "agent":
            return ASYNC.call(desk.agent, "decide", item.id, decision)
        desk.store.decide(item.id, decision, by="ann", digest=item.digest)
        (worked,) = asyncio.run(Worker(desk.agent).once())
        assert worked.result is not None
        return worked.result

    if order == "the other before anybody recovers":
        decide("other", answer)
    else:
        ASYNC.call(desk.agent, "recover", run_id)
        assert len(desk.store.pending()) == 2
    if order == "the other first":
        assert decide("other", answer).suspended
    result = decide("body", Approve())
    if order == "the body first":
        result = decide("other", answer)
    assert (result.output, desk.paid) == ("Done.", paid)
    assert [each.text for each in result.messages if each.role == "tool"] == [text]


@ON_EVERY_STORE
@pytest.mark.parametrize("decision", [Respond(content="as I saw"), Reject()], ids=["respond", "reject"])
def test_a_human_says_what_became_of_a_body_while_something_in_it_waits(place: Place, decision: Any) -> None:
    desk, run_id = lost_in_the_body(place, pays_both)
    ASYNC.call(desk.agent, "recover", run_id)
    (item,) = [item.approval for item in desk.store.pending() if item.approval.why == "outcome_unknown"]
    result = ASYNC.call(desk.agent, "decide", item.id, decision)
    assert (result.output, desk.paid, desk.asked()) == ("Done.", [], [])


async def pays_and_waits(context: ToolContext[Any], desk: Slow) -> str:
    async def wait() -> Any:
        return wait_for_first(
            {"paid": ExternalEvent("payment", senders=[Principal(id="bank")]), "late": Timer(after=3_600)}, key="which"
        ).name

    async with asyncio.TaskGroup() as group:
        waited = group.create_task(wait())
        paid = group.create_task(context.acall_tool("pay", {"to": "A"}, key="A"))
    return f"{paid.result()}, {waited.result()}"


@ON_EVERY_STORE
@pytest.mark.parametrize("body", [pays_and_asks, pays_and_waits], ids=lambda each: each.__name__)
def test_what_a_body_asks_beside_a_call_stays_one_request_with_its_time(place: Place, body: Callable[..., Any]) -> None:
    desk = Slow(place, body)
    head = ASYNC.invoke(desk.agent, "Pay").checkpoint
    (paying,) = [item for item in head.pending if item.why == "approval"]
    asked = tuple(item for item in head.pending if item.why == "question")
    later = place.open(clock=lambda: time.time() + 60)
    agent = desk.agent_on(later)
    again = ASYNC.call(agent, "decide", paying.id, Approve()).checkpoint
    assert asked and again.pending == asked == tuple(item.approval for item in later.pending())
    if body is pays_and_asks:
        later.decide(asked[0].id, Respond(content="paid"), by="ann", digest=asked[0].digest)
    else:
        later.send_event(head.run_id, "payment", 5, by=Principal(id="bank"))
    (worked,) = asyncio.run(Worker(agent).once())
    assert worked.result is not None and worked.result.output == "Done."
    assert [each.text for each in worked.result.messages if each.role == "tool"] == ["paid A, paid"]


@ON_EVERY_STORE
def test_a_question_that_is_asked_otherwise_when_the_body_runs_again_is_listed_so(place: Place) -> None:
    runs: list[int] = []

    async def body(context: ToolContext[Any], desk: Slow) -> str:
        async def ask() -> Any:
            runs.append(len(runs) + 1)
            return interrupt(f"Which? Asked for the {runs[-1]}. time", key="which")

        async with asyncio.TaskGroup() as group:
            paid = group.create_task(context.acall_tool("pay", {"to": "A"}, key="A"))
            asked = group.create_task(ask())
        return f"{paid.result()}, {asked.result()}"

    desk = Slow(place, body)
    (paying,) = [item for item in ASYNC.invoke(desk.agent, "Pay").checkpoint.pending if item.why == "approval"]
    ASYNC.call(desk.agent, "decide", paying.id, Approve())
    (item,) = [item.approval for item in desk.store.pending()]
    assert item.args["payload"] == "Which? Asked for the 2. time"
    desk.store.decide(item.id, Respond(content="x"), by="ann", digest=item.digest)
    (worked,) = asyncio.run(Worker(desk.agent).once())
    assert worked.result is not None and worked.result.output == "Done."


@ON_EVERY_STORE
def test_the_checkpoint_names_a_body_inside_a_body_as_it_is_stored(place: Place) -> None:
    @tool(requires_approval=True)
    def pay(to: str) -> str:
        """Pay."""
        return f"paid {to}"

    @tool(calls=[pay])
    def inner(context: ToolContext[Any]) -> str:
        """Pay A."""
        return str(context.call_tool("pay", {"to": "A"}))

    @tool(calls=[inner, pay])
    def outer(context: ToolContext[Any]) -> str:
        """Pay A and B."""
        return f"{context.call_tool('inner')}, {context.call_tool('pay', {'to': 'B'})}"

    store = place.open()
    model = ScriptedModel.by_turn([call("outer"), "Done."])
    agent: Agent[Any, str] = Agent(name="desk", tools=[outer], model=model, store=store)
    result = SYNC.invoke(agent, "Pay")
    for _ in "AB":
        assert result.suspended and store.load(result.checkpoint.id) == result.checkpoint
        result = SYNC.resume(agent, result.checkpoint, approved=True)
    assert result.output == "Done." and store.load(result.checkpoint.id) == result.checkpoint

"""A stream that nobody closes lets its run go, when its event loop ends or when it is garbage, and nothing complains."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from phronomy import Agent, StateGraph, tool
from phronomy.errors import NodeFailed
from phronomy.graph import END, START, append
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call


class Job(BaseModel):
    """What nodes give."""

    log: Annotated[list[str], append] = []


async def pieces(state: Job) -> AsyncIterator[dict[str, Any]]:
    for number in range(3):
        yield {"log": [str(number)]}
        await asyncio.sleep(0)


async def whole(state: Job) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"log": ["x"]}


@tool(idempotent=True)
def count(n: int) -> str:
    """Count, in a thread."""
    time.sleep(0.005)
    return str(n)


@tool(idempotent=True)
async def look(n: int) -> str:
    """Look it up."""
    await asyncio.sleep(0)
    return str(n)


def graph_of(node: Any, store: Store, **options: Any) -> Any:
    builder = StateGraph(Job, name="works").add_node("a", node, **options)
    return builder.add_edge(START, "a").add_edge("a", END).compile(store=store)


def desk(store: Store, name: str = "desk") -> Agent[Any, str]:
    return Agent(name=name, model=ScriptedModel.by_turn([call("look", {"n": 1}), "Hello."]), tools=[look], store=store)


def several(store: Store) -> Agent[Any, str]:
    """Two calls at once, one of them in a thread, and a run in each of two others."""
    both = [call("look", {"n": 1}), call("count", {"n": 2})]
    tools = [look, count]
    model = ScriptedModel.by_turn([[*both, call("inner", {"input": "go"}), call("inner", {"input": "go"})], "Hello."])
    inner = Agent(name="inner", model=ScriptedModel.by_turn([both, "Hello."]), tools=tools)
    return Agent(name="desk", model=model, tools=[*tools, inner.as_tool()], store=store)


MAKE: dict[str, Any] = {
    "agent": desk,
    "several": several,
    "graph": lambda store: graph_of(whole, store),
    "pieces": lambda store: graph_of(pieces, store, streams=["log"], idempotent=True),
    "inside": lambda store: graph_of(desk(store), store, input=lambda _: "go", output=lambda said: {"log": [said]}),
}


@pytest.mark.few(8)
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("taken", range(1, 9))
@pytest.mark.parametrize("kind", MAKE)
def test_a_stream_that_is_left_open_as_the_loop_ends_lets_its_run_go(
    kind: str, taken: int, keeps: bool, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be resumed at once: nobody waits for a lease. So it is where the stream is dropped, and all tasks are cancelled."""
    caplog.set_level(logging.WARNING, logger="asyncio")
    runs = MAKE[kind](store)
    kept: list[Any] = []
    left: list[str] = []

    async def main() -> None:
        stream = runs.astream("go" if kind in ("agent", "several") else {})
        if keeps:
            kept.append(stream)  # or it would be closed before the loop ends
        async for event in stream:
            left.append(event.type)
            if len(left) == taken:
                return

    asyncio.run(main())
    kept.clear()
    gc.collect()

    assert [record.getMessage() for record in caplog.records] == []
    [branch] = store.branches()
    assert branch.owner is None
    if branch.status != "completed":
        again = asyncio.run(MAKE[kind](store).aresume(store.head(branch.id)[1]))
        assert again.status == "completed"
        assert again.output == "Hello." if kind in ("agent", "several") else again.output.log


def leave_nothing(stream: Any) -> None:
    """The last reference goes, and with it the stream."""


def leave_a_cycle(stream: Any) -> None:
    """The collector of garbage finds the stream, and all that is in it, in an order of its own."""
    stream.itself = stream


async def no_garbage() -> None:
    """None is to be collected."""
    await asyncio.sleep(0)


async def collect_here() -> None:
    """Collect the garbage in the thread of the loop."""
    gc.collect()
    await asyncio.sleep(0)


async def collect_elsewhere() -> None:
    """Collect the garbage in another thread, while the loop goes on."""
    await asyncio.to_thread(gc.collect)
    await asyncio.sleep(0.12)


async def gone() -> None:
    """Wait until the loop has nothing else to do."""
    while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110  # they tell nobody
        await asyncio.sleep(0.001)


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("leave", "collect"),
    [(leave_nothing, no_garbage), (leave_a_cycle, collect_here), (leave_a_cycle, collect_elsewhere)],
)
@pytest.mark.parametrize("taken", [1, 2, 4, 6, 8, 16, 24, 32])
@pytest.mark.parametrize("kind", MAKE)
def test_a_stream_that_is_dropped_leaves_its_run_as_one_that_is_closed(
    kind: str, taken: int, leave: Any, collect: Any, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop closes the outermost generator, and that one closes what it drives: nothing else may."""
    caplog.set_level(logging.WARNING, logger="asyncio")
    runs = MAKE[kind](store)

    async def take(stream: Any) -> Any:
        left = 0
        async for _ in stream:
            left += 1
            if left == taken:
                break
        return stream

    async def main(thread_id: str, *, closes: bool) -> None:
        stream = await take(runs.astream("go" if kind in ("agent", "several") else {}, thread_id=thread_id))
        if closes:
            await stream.aclose()
        leave(stream)
        del stream
        await collect()
        await gone()

    asyncio.run(main("closed", closes=True))
    asyncio.run(main("dropped", closes=False))
    gc.collect()  # an error in it would be a warning, and fail

    assert [record.getMessage() for record in caplog.records] == []
    [closed], [dropped] = (store.branches(thread_id=each) for each in ("closed", "dropped"))
    assert (dropped.status, dropped.owner, dropped.seq) == (closed.status, None, closed.seq)


async def fails(state: Job) -> AsyncIterator[dict[str, Any]]:
    yield {"log": ["0"]}
    await asyncio.sleep(0)
    raise ValueError


@pytest.mark.parametrize("closes", [True, False])
def test_a_stream_that_is_left_while_a_node_runs_that_fails_says_nothing_of_it(
    closes: bool, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever resumes the run hears of it."""
    caplog.set_level(logging.WARNING, logger="asyncio")
    runs = graph_of(fails, store, streams=["log"])

    async def main() -> None:
        stream = runs.astream({})
        async for event in stream:
            if event.type == "node_piece":
                break
        if closes:
            await stream.aclose()
        del stream
        await no_garbage()
        await gone()

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == []
    [branch] = store.branches()
    assert (branch.status, branch.owner) == ("failed", None)
    with pytest.raises(NodeFailed):
        asyncio.run(runs.aresume(store.head(branch.id)[1]))


def test_a_run_whose_stream_is_garbage_of_a_closed_loop_is_one_whose_worker_died(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can let it go any more, and its lease is renewed no more."""
    caplog.set_level(logging.WARNING, logger="asyncio")
    kept: list[Any] = []

    async def main() -> None:
        kept.append(desk(store).astream("go"))
        assert (await anext(kept[0])).type == "run_started"

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    [branch] = store.branches()
    assert store.keeper._living()
    kept.clear()
    gc.collect()
    assert not store.keeper._living()
    assert [record.getMessage() for record in caplog.records] == []
    assert store.branches()[0] == branch and branch.status == "running" and branch.owner is not None


def test_a_sync_stream_that_is_dropped_lets_its_run_go_at_once(store: Store) -> None:
    counted: list[int] = []

    @tool
    def note(n: int) -> str:
        """Note it."""
        counted.append(n)
        return str(n)

    model = ScriptedModel.by_turn([[call("note", {"n": 1}), call("note", {"n": 2})], "Hello."])
    agent = Agent(model=model, tools=[note], store=store)
    gc.disable()  # it takes no garbage collector
    try:
        for event in agent.stream("go"):
            if event.type == "tool_call_settled":
                break
        [branch] = store.branches()
    finally:
        gc.enable()
    assert branch.owner is None
    assert agent.resume(branch.head).output == "Hello."
    assert sorted(counted) == [1, 2], "the calls that had begun were waited for"


@pytest.mark.parametrize("of", ["agent", "graph"])
def test_a_sync_stream_that_is_collected_by_one_of_its_own_calls_is_not_waited_for(store: Store, of: str) -> None:
    """The collector runs in whatever thread makes an object. If it waited there for that very call, it would wait for good."""
    dropped, collected, over = (threading.Event() for _ in range(3))

    @tool(idempotent=True)
    def quick() -> str:
        """End at once."""
        return "quick"

    def collects() -> None:
        dropped.wait(60)
        gc.collect()
        collected.set()
        over.wait(60)

    @tool
    def pay() -> str:
        """Pay, with the collector of garbage at work meanwhile."""
        collects()
        return "paid"

    def pays(state: Job) -> Iterator[dict[str, Any]]:
        yield {"log": ["pays"]}
        collects()
        yield {"log": ["paid"]}

    model = ScriptedModel.by_turn([[call("quick"), call("pay")], "Hello."])
    made: dict[str, Any] = {
        "agent": lambda: Agent(model=model, tools=[quick, pay], store=store),
        "graph": lambda: graph_of(pays, store, streams=["log"]),
    }
    runs = made[of]()
    gc.disable()
    try:
        cycle: list[object] = [stream := runs.stream("go" if of == "agent" else Job())]
        cycle.append(cycle)
        next(event for event in stream if event.type in ("tool_call_settled", "node_piece"))
        del stream, cycle
        dropped.set()
        assert collected.wait(60)
    finally:
        gc.enable()
    [branch] = store.branches()
    assert branch.owner is None and not store.keeper._living()
    left = runs.recover(branch.run_id)
    assert [item.why for item in left.checkpoint.pending] == ["outcome_unknown"], (
        "it runs still: nobody knows what comes of it"
    )
    over.set()

"""A stream that is left open when its event loop ends lets its run go, and nothing complains."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from phronomy import Agent, StateGraph, tool
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
async def look(n: int) -> str:
    """Look it up."""
    await asyncio.sleep(0)
    return str(n)


def graph_of(node: Any, store: Store, **options: Any) -> Any:
    builder = StateGraph(Job, name="works").add_node("a", node, **options)
    return builder.add_edge(START, "a").add_edge("a", END).compile(store=store)


def desk(store: Store, name: str = "desk") -> Agent[Any, str]:
    return Agent(name=name, model=ScriptedModel.by_turn([call("look", {"n": 1}), "Hello."]), tools=[look], store=store)


MAKE: dict[str, Any] = {
    "agent": desk,
    "graph": lambda store: graph_of(whole, store),
    "pieces": lambda store: graph_of(pieces, store, streams=["log"], idempotent=True),
    "inside": lambda store: graph_of(desk(store), store, input=lambda _: "go", output=lambda said: {"log": [said]}),
}


@pytest.mark.few(8)
@pytest.mark.parametrize("taken", range(1, 9))
@pytest.mark.parametrize("kind", MAKE)
def test_a_stream_that_is_left_open_lets_its_run_go(
    kind: str, taken: int, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be resumed at once: nobody waits for a lease."""
    caplog.set_level(logging.WARNING, logger="asyncio")
    runs = MAKE[kind](store)
    kept: list[Any] = []
    left: list[str] = []

    async def main() -> None:
        stream = runs.astream("go" if kind == "agent" else {})
        kept.append(stream)  # or it would be collected, and closed, before the loop ends
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
        assert again.output == "Hello." if kind == "agent" else again.output.log

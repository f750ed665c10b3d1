"""The page on what other systems do: each row has a test that names it, or a sentence; and rows that have no home elsewhere."""

from __future__ import annotations

import runpy
import threading
from pathlib import Path
from typing import Annotated, Any

import pytest
from drivers import PATIENCE, Driver
from pydantic import BaseModel

from phronomy import Agent, CheckpointAlreadyResumed, MemoryStore, Respond, StoreError, tool
from phronomy.graph import END, START, StateGraph, append, interrupt
from phronomy.records.checkpoint import Checkpoint
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "behaviours.py"))


def test_every_row_has_a_test_or_a_sentence_and_the_page_says_so() -> None:
    rows, shown = SCRIPT["rows"](), SCRIPT["tests"]()
    assert len(rows) > 250
    assert [id for id, row in rows.items() if id not in shown and "otherwise" not in row] == []
    assert sorted(set(shown) - set(rows)) == [], "a test names a row that is not there"
    assert SCRIPT["PAGE"].read_text() == SCRIPT["page"](), "out of date: run `python docs/behaviours.py`"


def test_a_tool_that_is_called_again_starts_clean(driver: Driver) -> None:
    """E25: the second call of a run asks for itself; the answer to the first one is none of its."""

    @tool
    def book() -> str:
        """Book."""
        return f"in {interrupt('Where?', key='where')}"

    agent = Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("book"), call("book"), "done"]),
        tools=[book],
        store=MemoryStore(),
    )
    stop = driver.invoke(agent, "go").checkpoint
    answered = []
    for place in ("Graz", "Linz"):
        (item,) = stop.pending
        answered.append(item.id)
        result = driver.resume(agent, stop, decisions={item.id: Respond(content=place)})
        stop = result.checkpoint
    assert result.output == "done" and len(set(answered)) == 2
    assert [each.text for each in result.messages if each.role == "tool"] == ["in Graz", "in Linz"]


class Log(BaseModel):
    log: Annotated[list[str], append] = []


def test_three_levels_that_each_stop_come_to_the_same_end(driver: Driver) -> None:
    """E33: streamed or not, sync or async, each level asks for itself, and again in the next round."""

    def asks(name: str) -> Any:
        return driver.function(lambda state: {"log": [f"{name} {interrupt(name)} {interrupt(f'{name} again')}"]})

    def level(name: str, inner: Any = None) -> Any:
        graph = StateGraph(Log, name=name).add_node("ask", asks(name)).add_edge(START, "ask")
        if inner is None:
            return graph.add_edge("ask", END)
        return graph.add_node("inside", inner.compile()).add_edge("ask", "inside").add_edge("inside", END)

    made = level("outer", level("middle", level("inner"))).compile(store=MemoryStore())
    result, asked = driver.invoke(made, {}), []
    while result.suspended:
        (item,) = result.checkpoint.pending
        asked.append(item.args["payload"])
        result = driver.resume(made, result.checkpoint, decisions={item.id: Respond(content="yes")})
    levels = ["outer", "middle", "inner"]
    assert asked == [question for name in levels for question in (name, f"{name} again")]
    assert (result.status, result.output.log) == ("completed", [f"{name} yes yes" for name in levels])


class Lossy(MemoryStore):
    """A store that writes, and whose answer is lost once."""

    loses = False

    def append(self, change: Append) -> Branch:
        branch = super().append(change)
        if self.loses:
            self.loses = False
            raise StoreError("the answer was lost")
        return branch


def pays(store: MemoryStore, paid: list[int]) -> Agent[Any, str]:
    @tool(requires_approval=True)
    def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return "paid"

    return Agent(name="desk", model=ScriptedModel.by_turn([call("pay", {"n": 7}), "done"]), tools=[pay], store=store)


def test_a_decision_whose_answer_is_lost_is_recorded_once(driver: Driver) -> None:
    """RBY-A16: whoever decided is told that the store failed; the trail has one decision, and a second one is refused."""
    store, paid = Lossy(), list[int]()
    agent = pays(store, paid)
    stop = driver.invoke(agent, "go").checkpoint
    store.loses = True
    with pytest.raises(StoreError, match="the answer was lost"):
        driver.resume(agent, stop, approved=True, by="ann")
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(agent, stop, approved=False, by="bob")
    assert [(each.kind, each.by and each.by.id) for each in store.audit()] == [("approve", "ann")]


def test_who_waits_for_a_run_and_who_decides_it_see_one_end() -> None:
    """RBY-A18: one waits for the run that another one's approval ends; both have its last checkpoint."""
    store, paid = MemoryStore(), list[int]()
    agent = pays(store, paid)
    stop = agent.invoke("go").checkpoint
    seen: list[Checkpoint] = []
    waiter = threading.Thread(target=lambda: seen.append(store.wait(stop.run_id, timeout=PATIENCE)))
    waiter.start()
    result = agent.resume(stop, approved=True, by="ann")
    waiter.join(PATIENCE)
    assert (result.status, paid) == ("completed", [7])
    assert [(each.id, each.run_id, each.ended) for each in seen] == [(result.checkpoint.id, stop.run_id, "completed")]

"""Warnings about names that say less than they seem to: of agents that have none, and of `clear()`."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drivers import decide_first

from phronomy import Agent, MemoryStore, Orchestrator, SQLiteStore, parallel, sequential, tool
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call


def says(text: str = "Done.") -> ScriptedModel:
    return ScriptedModel([text] * 20)


class Desk(Agent):
    """An agent whose class is its name."""


Made = Callable[[Any], Any]

WITHOUT: list[tuple[Made, str, str]] = [
    (lambda store: Agent(model=says(), store=store), "agent", "'Agent'"),
    (lambda store: Agent[Any, str](model=says(), store=store), "agent", "'Agent'"),
    (lambda store: sequential(Agent(name="one", model=says()), store=store), "pattern", "'sequential'"),
    (lambda store: parallel(Agent(name="one", model=says()), store=store), "pattern", "'parallel'"),
    (lambda store: Orchestrator([Agent(name="one", model=says())], store=store), "Orchestrator", "'team'"),
]
WITH: list[Made] = [
    lambda store: Agent(name="desk", model=says(), store=store),
    lambda store: Desk(model=says(), store=store),
    lambda store: sequential(Agent(name="one", model=says()), name="all", store=store),
    lambda store: Orchestrator([Agent(name="one", model=says())], name="all", store=store),
    lambda store: Agent(model=says(), tools=[Agent(name="inner", model=says()).as_tool()]),
]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    caplog.clear()
    return found


@pytest.mark.parametrize(("make", "kind", "name"), WITHOUT, ids=[f"{kind} {name}" for _, kind, name in WITHOUT])
def test_what_has_no_name_over_a_shared_store_is_warned_of_once(
    make: Made, kind: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SQLiteStore(tmp_path / "runs.db") as store:
        make(store).invoke("Hello")
        make(store).invoke("Hello again")
        [said] = warned(caplog)
        assert said.startswith(f"{kind} without a name: in the SQLiteStore it is {name}, ") and "name=" in said
    with SQLiteStore(tmp_path / "runs.db") as again:
        make(again).invoke("Hello")
        assert len(warned(caplog)) == 1


@pytest.mark.parametrize("make", WITH)
def test_what_has_a_name_or_a_store_of_this_process_alone_is_not(
    make: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SQLiteStore(tmp_path / "runs.db") as store:
        make(store).invoke("Hello")
    assert warned(caplog) == []


@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["none", "memory"])
def test_a_store_that_ends_with_the_process_is_shared_with_no_other(
    store: Store | None, caplog: pytest.LogCaptureFixture
) -> None:
    for make, _, _ in WITHOUT:
        make(store).invoke("Hello")
    assert warned(caplog) == []


def test_clear_names_the_runs_that_it_leaves(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    @tool(requires_approval=True)
    def refund(order_id: int) -> str:
        """Refund an order."""
        return f"refunded {order_id}"

    model = ScriptedModel.by_turn([call("refund", {"order_id": 7}), "Done."])
    agent = Agent(name="desk", model=model, tools=[refund], store=store)
    waiting = [agent.invoke("Refund", thread_id=f"t{n}").checkpoint for n in range(5)]
    caplog.clear()
    assert (store.clear(), len(store.pending())) == (0, 5)
    [said] = warned(caplog)
    assert all(f"{each.run_id} (suspended)" in said for each in waiting[:3]) and "and more" in said
    assert waiting[4].run_id not in said and "delete(id, force=True)" in said
    agent.resume(waiting[0], decisions=decide_first(waiting[0]))
    for each in waiting[1:4]:
        agent.cancel(each.run_id)
    assert store.clear() > 0
    [said] = warned(caplog)
    assert f"others: {waiting[4].run_id} (suspended). Cancel" in said
    store.delete(waiting[4].run_id, force=True)
    assert (store.clear(), warned(caplog), store.pending()) == (0, [], [])


ROOT = Path(__file__).parents[1]


def test_each_agent_that_is_kept_in_a_store_has_a_name_on_the_pages_and_in_the_examples() -> None:
    """They are copied, and two that were copied would take up the runs of each other."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    blocks = [
        (page, block) for page in pages for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    programs = [(each, each.read_text()) for each in sorted((ROOT / "examples").rglob("*.py"))]
    kept = [
        (place.name, named)
        for place, text in [*blocks, *programs]
        for made in ast.walk(ast.parse(text))
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id in ("Agent", "Orchestrator")
        if "store" in (named := {each.arg for each in made.keywords}) and None not in named
    ]
    assert len(kept) > 50
    assert [place for place, named in kept if "name" not in named] == []

"""An event loop that ends in the middle of its runs: `asyncio.run` cancels every task there is, those too that others wait for."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE
from places import place_of

from phronomy import Agent, SQLiteStore, tool
from phronomy.concurrency.workers import whole
from phronomy.runs import driving
from phronomy.stores.native import in_store
from phronomy.testing import ScriptedModel, call


async def cancel_all(tasks: set[asyncio.Task[Any]]) -> None:
    """As `asyncio.run` does it."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not all(task.done() for task in tasks), "what is cancelled waits for the store"


def test_a_run_that_is_just_being_left_gives_its_claim_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next worker takes it at once, and not when the lease is over."""
    leaving, goes_on = threading.Event(), threading.Event()
    left_as = driving.left_as

    def slowly(*args: Any, **kwargs: Any) -> Any:
        leaving.set()
        assert goes_on.wait(60)
        return left_as(*args, **kwargs)

    monkeypatch.setattr(driving, "left_as", slowly)
    begun: list[str] = []

    async def main(agent: Agent[Any, Any]) -> None:
        task = asyncio.ensure_future(agent.ainvoke("Go."))
        while not begun:  # noqa: ASYNC110  # the tool cannot tell it otherwise
            await asyncio.sleep(0)
        task.cancel()
        assert await asyncio.to_thread(leaving.wait, 60)
        try:
            await cancel_all({task})
        finally:
            goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    @tool
    async def hang() -> str:
        """Hang."""
        begun.append("hang")
        await asyncio.Event().wait()
        return "never"

    with SQLiteStore(tmp_path / "runs.db") as store:
        asyncio.run(main(Agent(model=ScriptedModel.by_turn([call("hang"), "Done."]), tools=[hang], store=store)))
        assert [(branch.status, branch.owner) for branch in store.branches()] == [("running", None)]


def test_a_call_of_the_store_in_a_thread_is_waited_for(tmp_path: Path) -> None:
    goes_on = threading.Event()
    done: list[str] = []

    def slowly() -> None:
        assert goes_on.wait(60)
        done.append("written")

    async def main(store: SQLiteStore) -> None:
        task = asyncio.ensure_future(in_store(store, slowly))
        await asyncio.sleep(0)
        try:
            await cancel_all({task})
        finally:
            goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["written"]

    with SQLiteStore(tmp_path / "runs.db") as store:
        asyncio.run(main(store))


def test_whoever_is_cancelled_while_a_write_is_made_hears_of_it_once_it_is_made() -> None:
    async def cancelled(*, fails: bool) -> list[str]:
        told: list[str] = []
        made = asyncio.Event()

        async def write() -> None:
            await made.wait()
            told.append("written")
            if fails:
                raise KeyError

        async def run() -> None:
            try:
                await whole(write())
            except asyncio.CancelledError:
                told.append("cancelled")

        task = asyncio.ensure_future(run())
        for _ in range(3):  # and again: it changes nothing
            await asyncio.sleep(0)
            task.cancel()
        assert told == [] and not task.done()
        made.set()
        await task
        return told

    assert asyncio.run(cancelled(fails=False)) == ["written", "cancelled"]
    assert asyncio.run(cancelled(fails=True)) == ["written", "cancelled"], (
        "nobody hears of the error, as the caller is gone"
    )


def test_a_timeout_is_raised_once_the_write_is_made() -> None:
    async def main() -> list[str]:
        told: list[str] = []

        async def write() -> None:
            await asyncio.sleep(0.05)
            told.append("written")

        try:
            async with asyncio.timeout(0.001):
                await whole(write())
        except TimeoutError:
            told.append("late")
        return told

    assert asyncio.run(main()) == ["written", "late"]


async def hanging(store: SQLiteStore) -> asyncio.Future[object]:
    """A run whose tool has begun, and never ends."""
    begun: list[str] = []

    @tool
    async def hang() -> str:
        """Hang."""
        begun.append("hang")
        await asyncio.Event().wait()
        return "never"

    agent = Agent(model=ScriptedModel.by_turn([call("hang"), "Done."]), tools=[hang], store=store)
    task = asyncio.ensure_future(agent.ainvoke("Go."))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    while not begun:  # noqa: ASYNC110  # the tool cannot tell it otherwise
        await asyncio.sleep(0)
    assert store.keeper._living()
    return task


def test_the_lease_of_a_run_whose_loop_was_closed_is_renewed_no_more(tmp_path: Path) -> None:
    """A program closes a loop without cancelling its tasks. It may live on for days: until it ends, nobody could recover the run."""
    with SQLiteStore(tmp_path / "runs.db") as store:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(hanging(store))
        loop.close()
        gc.collect()
        assert not store.keeper._living()
        assert [branch.status for branch in store.branches()] == ["running"], "recovered once the lease is over"


def test_the_lease_of_a_run_whose_loop_was_closed_is_renewed_no_more_though_somebody_still_has_its_task(
    tmp_path: Path,
) -> None:
    """Who has the task cannot drive it: its loop is gone."""
    with SQLiteStore(tmp_path / "runs.db", lease=0.05) as store:
        loop = asyncio.new_event_loop()
        task = loop.run_until_complete(hanging(store))
        loop.close()
        thread = store.keeper._thread
        assert thread is not None
        thread.join(PATIENCE)  # it stays as long as there is something to renew
        assert not thread.is_alive()
        assert not task.done()


def test_a_run_whose_loop_was_closed_is_let_go_in_whatever_order_the_collector_finds_its_parts(tmp_path: Path) -> None:
    """What is younger is found first: here that is the block that holds the run, and then the call that has entered it."""

    def clock() -> float:
        if not store.keeper._living():
            gc.collect(0)  # what there is before the run is held is old from now on
        return time.time()

    gc.collect()
    gc.disable()
    try:
        with SQLiteStore(tmp_path / "runs.db", clock=clock) as store:
            loop = asyncio.new_event_loop()
            task = loop.run_until_complete(hanging(store))
            loop.close()
            del task
            gc.collect()  # an error in it would be a warning, and fail
            assert not store.keeper._living()
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_loop_that_is_closed_in_the_middle_of_its_runs_prints_nothing_of_ours(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed at each of the first steps: as the run begins, is claimed, drives its tool, is resumed, and is left."""
    unheard: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda found: unheard.append(f"{found.exc_value!r} in {found.object!r}"))
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)  # that tasks were destroyed is its own to say

    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return "never"

    with place_of(kind, tmp_path) as place:
        store = place.open()
        agent: Agent[Any, Any] = Agent(model=ScriptedModel.by_turn([call("hang"), "Done."]), tools=[hang], store=store)
        failed: Agent[Any, Any] = Agent(model=ScriptedModel([RuntimeError]), store=store)
        for steps in range(1, 30, 1 if kind == "sqlite" else 5):
            loop = asyncio.new_event_loop()
            tasks = [loop.create_task(agent.ainvoke("Go.")), loop.create_task(failed.ainvoke("Go."))]
            for _ in range(steps):
                loop.run_until_complete(asyncio.sleep(0))
            loop.close()
            del tasks
            gc.collect()
    assert unheard == []

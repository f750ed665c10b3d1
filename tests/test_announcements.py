"""What is stored is announced: after it is stored, at least once, in order, whatever becomes of the process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from drivers import DRIVERS, STORES, STREAMED, Driver, open_kind

from phronomy import Agent, Announcements, AsyncRequired, ConfigurationError, tool
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call, say


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_kind(request.param, tmp_path)


@pytest.fixture(params=(*DRIVERS, *STREAMED), ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


class Board(Announcements):
    """Notes what it is told, with what the store has at that moment; raises as often as it is asked to."""

    def __init__(self, store: Store, faults: int = 0) -> None:
        self.store = store
        self.told: list[tuple[str, str]] = []
        self.faults = faults

    def note(self, event: Any) -> None:
        if self.faults:
            self.faults -= 1
            raise OSError("the board is away; password=hunter2")
        self.told.append((event.type, event.key))
        if event.type == "suspended":  # nobody hears of what is not yet there
            assert self.store.load(event.checkpoint_id).pending == event.pending

    def on_suspended(self, event: Any) -> None:
        self.note(event)

    def on_decided(self, event: Any) -> None:
        self.note(event)

    def on_completed(self, event: Any) -> None:
        self.note(event)

    def on_cancelled(self, event: Any) -> None:
        self.note(event)

    @property
    def types(self) -> list[str]:
        return [type for type, _ in self.told]


class Desk:
    def __init__(self, driver: Driver, store: Store, board: Announcements | None, *replies: Any) -> None:
        self.done: list[int] = []

        def refund(order: int) -> str:
            """Refund an order."""
            self.done.append(order)
            return f"refunded {order}"

        gated = tool(requires_approval=True)(driver.function(refund))
        boards = [board] if board is not None else []
        model = ScriptedModel([*replies])
        self.agent: Agent[Any, str] = Agent(name="desk", model=model, tools=[gated], store=store, announcements=boards)


REFUND = say("", call("refund", {"order": 1042}, id="call_9"))


def test_a_stop_a_decision_and_an_end_are_announced_in_order(driver: Driver, store: Store) -> None:
    board = Board(store)
    desk = Desk(driver, store, board, REFUND, "Done.")
    suspended = driver.invoke(desk.agent, "Refund 1042")
    assert board.types == ["suspended"]
    driver.resume(desk.agent, suspended.checkpoint, approved=True)
    assert board.types == ["suspended", "decided", "completed"]
    assert len({key for _, key in board.told}) == 3


def test_the_decision_is_announced_before_it_is_carried_out(driver: Driver, store: Store) -> None:
    board = Board(store)
    heard: list[list[str]] = []

    def refund(order: int) -> str:
        """Refund an order."""
        heard.append(board.types)
        return "refunded"

    model = ScriptedModel([REFUND, "Done."])
    gated = tool(requires_approval=True)(driver.function(refund))
    agent: Agent[Any, str] = Agent(name="desk", model=model, tools=[gated], store=store, announcements=[board])
    suspended = driver.invoke(agent, "Refund 1042")
    driver.resume(agent, suspended.checkpoint, approved=True)
    assert heard == [["suspended", "decided"]]


def test_what_could_not_be_told_is_told_by_recover_all_in_order(
    driver: Driver, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    board = Board(store, faults=1)
    desk = Desk(driver, store, board, REFUND, "Done.")
    with caplog.at_level(logging.ERROR, logger="phronomy"):
        suspended = driver.invoke(desk.agent, "Refund 1042")
    assert suspended.status == "suspended" and board.told == []
    assert "OSError" in caplog.text and "hunter2" not in caplog.text
    assert driver.call(desk.agent, "recover_all") == []
    assert board.types == ["suspended"]
    driver.call(desk.agent, "recover_all")
    assert board.types == ["suspended"]


def test_what_comes_after_a_fault_waits_for_it(driver: Driver, store: Store) -> None:
    board = Board(store, faults=3)
    desk = Desk(driver, store, board, REFUND, "Done.")
    suspended = driver.invoke(desk.agent, "Refund 1042")  # a fault
    result = driver.resume(desk.agent, suspended.checkpoint, approved=True)  # one before, and one after
    assert result.output == "Done." and board.told == []
    driver.call(desk.agent, "recover_all")
    assert board.types == ["suspended", "decided", "completed"]


def test_of_two_listeners_the_first_may_hear_it_again_under_the_same_key(driver: Driver, store: Store) -> None:
    first, second = Board(store), Board(store, faults=1)
    model = ScriptedModel(["Hello."])
    agent: Agent[Any, str] = Agent(name="desk", model=model, store=store, announcements=[first, second])
    driver.invoke(agent, "Hi")
    driver.call(agent, "recover_all")
    assert first.types == ["completed", "completed"] and len({key for _, key in first.told}) == 1
    assert second.types == ["completed"]


def test_another_process_tells_what_a_lost_one_did_not(driver: Driver, store: Store) -> None:
    """As if the process had been killed between the commit and the announcement."""
    silent = Board(store, faults=99)
    suspended = driver.invoke(Desk(driver, store, silent, REFUND).agent, "Refund 1042")
    board = Board(store)
    later = Desk(driver, store, board, "Done.")
    driver.call(later.agent, "recover_all")
    assert board.types == ["suspended"]
    driver.resume(later.agent, suspended.checkpoint.id, approved=True)
    assert board.types == ["suspended", "decided", "completed"]


def test_an_agent_without_announcements_leaves_nothing_to_announce(driver: Driver, store: Store) -> None:
    suspended = driver.invoke(Desk(driver, store, None, REFUND).agent, "Refund 1042")
    board = Board(store)
    later = Desk(driver, store, board, "Done.")
    driver.call(later.agent, "recover_all")
    assert board.told == []
    driver.resume(later.agent, suspended.checkpoint.id, approved=True)  # from here on somebody listens
    assert board.types == ["decided", "completed"]


def test_a_cancelled_run_is_announced(driver: Driver, store: Store) -> None:
    board = Board(store)
    desk = Desk(driver, store, board, REFUND)
    suspended = driver.invoke(desk.agent, "Refund 1042")
    driver.cancel(desk.agent, suspended.checkpoint)
    assert board.types == ["suspended", "cancelled"]


def test_the_next_run_of_a_thread_announces_its_own_only(driver: Driver, store: Store) -> None:
    board = Board(store)
    desk = Desk(driver, store, board, "One.", "Two.")
    driver.invoke(desk.agent, "1", thread_id="t")
    driver.invoke(desk.agent, "2", thread_id="t")
    assert board.types == ["completed", "completed"]
    assert len({key for _, key in board.told}) == 2


class Later(Announcements):
    """Tells by something that is awaited."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def on_completed(self, event: Any) -> None:
        self.told.append(event.type)


def test_async_announcements_are_awaited(driver: Driver, store: Store) -> None:
    later = Later()
    agent: Agent[Any, str] = Agent(name="desk", model=ScriptedModel(["Hello."]), store=store, announcements=[later])
    if not driver.is_async:
        with pytest.raises(AsyncRequired, match="announcement"):
            driver.invoke(agent, "Hi")
        assert store.branches() == []
        return
    driver.invoke(agent, "Hi")
    assert later.told == ["completed"]


def test_what_is_no_announcements_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="announcements"):
        Agent(model=ScriptedModel([]), announcements=[print]).invoke("x")  # type: ignore[list-item]

"""A thread is one conversation: its runs follow each other, and none begins beside one that has not ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from drivers import STORES, Driver, open_kind, outline, rows

from phronomy import Agent, ModelError, ThreadBusy, tool
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.product


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with open_kind(request.param, tmp_path) as opened:
        yield opened


def clerk(store: Store, *script: Any, ran: list[int] | None = None) -> Agent[Any, Any]:
    @tool
    def refund(order_id: int) -> str:
        """Refund an order."""
        if ran is not None:
            ran.append(order_id)
        return f"refunded {order_id}"

    return Agent(name="clerk", model=ScriptedModel(script), tools=[refund], store=store)


def test_a_run_that_failed_holds_its_thread_so_that_what_it_did_is_not_forgotten(driver: Driver, store: Store) -> None:
    ran: list[int] = []
    agent = clerk(store, call("refund", {"order_id": 7}), ModelError("away"), "Refunded.", "You are welcome.", ran=ran)
    with pytest.raises(ModelError) as failed:
        driver.invoke(agent, "Refund 7", thread_id="t")
    before = rows(store)
    with pytest.raises(ThreadBusy, match="resume carries it on") as busy:
        driver.invoke(agent, "And?", thread_id="t")
    assert (rows(store), busy.value.run_id, busy.value.pending_ids) == (before, failed.value.run_id, ())

    assert failed.value.checkpoint is not None
    assert driver.resume(agent, failed.value.checkpoint).output == "Refunded."
    assert outline(driver.invoke(agent, "Thanks", thread_id="t")) == [
        "user: Refund 7",
        "assistant:  [refund]",
        "tool (completed): refunded 7",
        "assistant: Refunded.",
        "user: Thanks",
        "assistant: You are welcome.",
    ]
    assert ran == [7]


def test_a_new_message_may_supersede_a_run_that_failed_and_goes_on_from_what_it_did(
    driver: Driver, store: Store
) -> None:
    ran: list[int] = []
    agent = clerk(store, call("refund", {"order_id": 7}), ModelError("away"), "It is refunded.", ran=ran)
    with pytest.raises(ModelError):
        driver.invoke(agent, "Refund 7", thread_id="t")
    result = driver.invoke(agent, "And?", thread_id="t", on_pending="supersede")
    assert outline(result) == [
        "user: Refund 7",
        "assistant:  [refund]",
        "tool (completed): refunded 7",
        "user: And?",
        "assistant: It is refunded.",
    ]
    assert [branch.status for branch in store.branches(thread_id="t")] == ["superseded", "completed"]
    assert ran == [7]


def test_a_run_that_ends_while_another_is_about_to_begin_becomes_its_parent(driver: Driver, store: Store) -> None:
    first = clerk(store, "one")
    driver.invoke(first, "1", thread_id="t")
    create, looked = store.create, []

    def slowly(branch: Branch, change: Append, *, exclusive: bool) -> None:
        if not looked:  # between our look at the thread and our write, somebody else's whole run
            looked.append(branch.id)
            clerk(store, "two").invoke("2", thread_id="t")
        create(branch, change, exclusive=exclusive)

    store.create = slowly  # type: ignore[method-assign]
    result = driver.invoke(clerk(store, "three"), "3", thread_id="t")
    assert outline(result) == [
        "user: 1",
        "assistant: one",
        "user: 2",
        "assistant: two",
        "user: 3",
        "assistant: three",
    ]
    assert [branch.status for branch in store.branches(thread_id="t")] == ["completed"] * 3

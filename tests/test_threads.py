"""A thread is one conversation: its runs follow each other, and none begins beside one that has not ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from drivers import STORES, Around, Driver, open_kind, outline, rows
from places import Place

from phronomy import Agent, ModelError, StoreError, ThreadBusy, tool
from phronomy.concurrency.workers import in_thread
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Behind, Branch, BranchFilter, Lineage, Occupied
from phronomy.testing import ScriptedModel, call


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


# A thread that changes between two looks


class Meanwhile(Around):
    """Something happens between the look at a thread and what is done next; `reads` says before which read."""

    reads = ""

    def happens(self) -> None: ...

    def _now(self, read: str) -> None:
        if self.reads == read:
            self.reads = ""
            self.happens()

    def select_branches(self, wanted: BranchFilter) -> list[Branch]:
        if wanted.run_id is not None:
            self._now("run")
        return super().select_branches(wanted)

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        self._now("head")
        return super().lineage(checkpoint_id=checkpoint_id, branch_id=branch_id)

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        self._now("create")
        super().create(branch, change, exclusive=exclusive)


@pytest.mark.parametrize("read", ["head", "run", "create"])
def test_a_last_run_that_is_pruned_meanwhile_is_no_reason_to_fail(driver: Driver, place: Place, read: str) -> None:
    with place.open() as plain:
        store = Meanwhile(plain)
        agent = clerk(store, "one", "two")
        driver.invoke(agent, "first", thread_id="t")
        store.reads = read
        store.happens = plain.clear  # type: ignore[method-assign]
        result = driver.invoke(agent, "second", thread_id="t")
        assert [message.text for message in result.messages] == ["second", "two"]
        assert len(plain.branches(thread_id="t")) == 1


def test_a_failed_run_that_is_retried_meanwhile_and_waits_since_is_not_superseded(driver: Driver, place: Place) -> None:
    with place.open() as plain:
        store = Meanwhile(plain)
        model = ScriptedModel([ModelError("away"), call("wipe"), "wiped"])
        retries = Agent(name="clerk", model=model, tools=[wipe], store=plain)
        with pytest.raises(ModelError) as failed:
            driver.invoke(retries, "wipe", thread_id="t")

        def retried() -> None:
            in_thread(lambda: retries.resume(failed.value.checkpoint or ""), None)

        store.reads, store.happens = "head", retried  # type: ignore[method-assign]
        with pytest.raises(ThreadBusy, match="waits for a decision"):
            driver.invoke(clerk(store, "fine"), "Hello?", thread_id="t", on_pending="supersede_failed")
        assert [each.status for each in plain.branches(thread_id="t")] == ["suspended"]


@pytest.mark.parametrize("act", ["cancel", "delete"])
def test_one_that_another_worker_ends_or_takes_away_while_it_is_superseded_is_none_either(
    driver: Driver, place: Place, act: str
) -> None:
    with place.open() as plain:
        store = Meanwhile(plain)
        waits = Agent(name="clerk", model=ScriptedModel([call("wipe")]), tools=[wipe], store=plain)
        asked = driver.invoke(waits, "wipe", thread_id="t").checkpoint

        def gone() -> None:
            in_thread(lambda: waits.cancel(asked) if act == "cancel" else plain.delete(asked.run_id, force=True), None)

        store.reads = "head"
        store.happens = gone  # type: ignore[method-assign]
        agent = clerk(store, "fine")
        assert driver.invoke(agent, "again", thread_id="t", on_pending="supersede").status == "completed"


@tool(requires_approval=True)
def wipe() -> str:
    """Wipe."""
    return "wiped"


class Contradicts(Around):
    """Says that somebody was first, and shows nobody, as a store does that has lost a part of what it held."""

    says: type[Exception] = Behind

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        raise Occupied(self.inner.branches()[0]) if self.says is Occupied else Behind(branch.id)


@pytest.mark.parametrize("says", [Behind, Occupied])
def test_a_store_that_contradicts_itself_is_named_and_not_asked_for_ever(
    driver: Driver, place: Place, says: Any
) -> None:
    with place.open() as plain:
        driver.invoke(clerk(plain, "one"), "first", thread_id="t")
        store = Contradicts(plain)
        store.says = says
        before = plain.branches()
        with pytest.raises(StoreError, match="thread t: the store says that another run has begun or ended there"):
            driver.invoke(clerk(store, "two"), "second", thread_id="t", on_pending="supersede")
        assert plain.branches() == before

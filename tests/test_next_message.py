"""What the next message of a thread does, by how its last run stands: as the table of `docs/agent.md` says, and no otherwise."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from drivers import Driver, outline, rows
from places import Place

from phronomy import Agent, ModelError, RunBusy, ThreadBusy, tool
from phronomy.concurrency.workers import in_thread
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call


@tool(requires_approval=True)
def wipe() -> str:
    """Wipe."""
    return "wiped"


PAGE = Path(__file__).parents[1] / "docs" / "agent.md"
ROWS = {  # how the last run of a thread stands, and how its row in the table of the page begins
    "completed": "has ended",
    "cancelled": "has ended",
    "suspended": "waits for somebody",
    "held": "is in the hands of a worker",
    "left": "was left by a lost worker",
    "failed": "stopped on a failure",
}


def next_message_by_the_page(stands: str, on_pending: str) -> str:
    """The cell of the table in `docs/agent.md`."""
    table = PAGE.read_text().partition("### What the next message does")[2]
    head, _, *rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    (row,) = [row for row in rows if row[0].startswith(ROWS[stands])]
    return row[head.index(f'`"{on_pending}"`')].strip("`")


@pytest.mark.parametrize("on_pending", ["refuse", "supersede_failed", "supersede"])
@pytest.mark.parametrize("stands", ROWS)
def test_what_the_next_message_does_is_what_the_page_says(
    driver: Driver, place: Place, stands: str, on_pending: Any
) -> None:
    with place.open() as store:
        became: list[str] = []
        other = Agent(name="clerk", model=ScriptedModel(["fine"]), store=store)

        def next_message() -> None:
            try:
                driver.invoke(other, "Hello?", thread_id="t", on_pending=on_pending)
                became.append("goes on")
            except (RunBusy, ThreadBusy) as error:
                became.append(type(error).__name__)

        @tool
        def meanwhile() -> None:
            """While this runs, its worker holds the run."""
            in_thread(next_message, None)

        script = {
            "completed": "hello",
            "held": call("meanwhile"),
            "failed": ModelError("away"),
        }
        model = ScriptedModel([script.get(stands, call("wipe")), "wiped"])
        agent = Agent(name="clerk", model=model, tools=[wipe, meanwhile], store=store)
        with suppress(ModelError):
            begun = (
                driver.step(agent, "go", thread_id="t")
                if stands == "left"
                else driver.invoke(agent, "go", thread_id="t")
            )
            if stands == "cancelled":
                driver.cancel(agent, begun.checkpoint)
        if stands != "held":
            next_message()
        assert became == [next_message_by_the_page(stands, on_pending)]


# Once the provider was away


def outage(
    driver: Driver, store: Store, *script: Any, ran: list[int] | None = None
) -> tuple[Agent[Any, Any], ModelError]:
    """An agent whose run on thread t refunded 7, and then could not reach its model; it says the script from there on."""

    @tool
    def refund(order_id: int) -> str:
        """Refund an order."""
        if ran is not None:
            ran.append(order_id)
        return f"refunded {order_id}"

    model = ScriptedModel([call("refund", {"order_id": 7}), ModelError("away"), *script])
    agent = Agent(name="clerk", model=model, tools=[refund], store=store)
    with pytest.raises(ModelError) as failed:
        driver.invoke(agent, "Refund 7", thread_id="t")
    return agent, failed.value


def test_a_chat_may_say_once_that_its_next_message_goes_on_after_a_failure(driver: Driver, place: Place) -> None:
    with place.open() as store:
        ran: list[int] = []
        agent, _ = outage(driver, store, ModelError("still away"), "It is refunded.", "Bye.", ran=ran)
        with pytest.raises(ModelError):
            driver.invoke(agent, "And?", thread_id="t", on_pending="supersede_failed")
        driver.invoke(agent, "Hello?", thread_id="t", on_pending="supersede_failed")
        assert outline(driver.invoke(agent, "Thanks", thread_id="t", on_pending="supersede_failed")) == [
            "user: Refund 7",
            "assistant:  [refund]",
            "tool (completed): refunded 7",
            "user: And?",
            "user: Hello?",
            "assistant: It is refunded.",
            "user: Thanks",
            "assistant: Bye.",
        ]
        assert [each.status for each in store.branches(thread_id="t")] == ["superseded"] * 2 + ["completed"] * 2
        assert ran == [7]


def test_the_refusal_names_what_carries_a_failed_run_on_and_both_ways_go(driver: Driver, place: Place) -> None:
    with place.open() as store:
        agent, failed = outage(driver, store, "It is refunded.", "Bye.")
        with pytest.raises(ThreadBusy, match=r"resume carries it on.*on_pending='supersede_failed'") as busy:
            driver.invoke(agent, "And?", thread_id="t")
        assert (busy.value.run_id, busy.value.pending_ids) == (failed.run_id, ())
        assert driver.resume(agent, busy.value.checkpoint_id).output == "It is refunded."
        assert driver.invoke(agent, "And?", thread_id="t").output == "Bye."


@pytest.mark.parametrize("stands", ["suspended", "running"])
def test_what_has_not_failed_stays_though_a_failed_run_may_be_superseded(
    driver: Driver, place: Place, stands: str
) -> None:
    with place.open() as store:
        agent = Agent(name="clerk", model=ScriptedModel([call("wipe"), "wiped"]), tools=[wipe], store=store)
        begun = (
            driver.step(agent, "wipe", thread_id="t")
            if stands == "running"
            else driver.invoke(agent, "wipe", thread_id="t")
        )
        before = rows(store)
        with pytest.raises(ThreadBusy, match=r"on_pending='supersede'$") as busy:
            driver.invoke(agent, "Hello?", thread_id="t", on_pending="supersede_failed")
        assert (busy.value.checkpoint_id, begun.status) == (begun.checkpoint.id, stands)
        assert busy.value.__suppress_context__, "an error of the store is not told beside"
        assert rows(store) == before


def test_what_a_fork_waits_for_keeps_the_failed_run_beside_it_too(driver: Driver, place: Place) -> None:
    with place.open() as store:
        model = ScriptedModel([call("wipe"), ModelError("away"), "wiped"])
        agent = Agent(name="clerk", model=model, tools=[wipe], store=store)
        asked = driver.invoke(agent, "wipe", thread_id="t").checkpoint
        fork = driver.fork(agent, asked)
        with pytest.raises(ModelError):
            driver.resume(agent, fork, approved=True)
        with pytest.raises(ThreadBusy, match=asked.id):
            driver.invoke(agent, "Hello?", thread_id="t", on_pending="supersede_failed")
        assert [each.status for each in store.branches(thread_id="t")] == ["suspended", "failed"]

"""An order that waits for its payment: for the first of a payment, a human who cancels, and two days; and for another run.

    python examples/triggers.py

No key is needed: the model is scripted, and so is the clock. A tool names the triggers, and the run is suspended. The payment would
come from the webhook of a bank, which has the store alone; the time is found by any worker. One order is paid, one is cancelled, one
is forgotten; the payment of a fourth arrives before the order waits for it. In the end a report waits for all of these runs.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from pydantic import BaseModel

from phronomy import Agent, MemoryStore, Principal, Respond, TriggerSuperseded, tool
from phronomy.graph import END, START, Graph, StateGraph
from phronomy.testing import ScriptedModel, call
from phronomy.triggers import ExternalEvent, Question, RunEnd, Timer, wait_for_all, wait_for_first
from phronomy.workers import Worker

BANK = Principal(id="acme-bank", kind="service", roles=("payments",))
DAYS = 24 * 3600


class Clock:
    """A clock that the example turns."""

    now = datetime(2026, 3, 2, 9, tzinfo=UTC).timestamp()

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return self.now


@tool(requires_approval=lambda args: args["order"] == 4)
def ship(order: int) -> str:
    """Ship an order once it is paid."""
    first = wait_for_first(
        {
            "paid": ExternalEvent("payment", senders="payments", payload=float),
            "cancelled": Question(f"Cancel order {order}?", answer=str),
            "forgotten": Timer(after=2 * DAYS),
        }
    )
    match first.name:
        case "paid":
            return f"order {order} is shipped: {first.value:.2f} euros from {first.by.id if first.by else '?'}"
        case "cancelled":
            return f"order {order} is cancelled: {first.value}"
        case _:
            return f"order {order} is forgotten"


def make_desk(store: MemoryStore) -> Agent:
    """The agent that ships."""
    replies = [
        lambda request: call("ship", {"order": int(request.messages[-1].text)}),
        lambda request: request.messages[-1].text,
    ]
    return Agent(name="desk", model=ScriptedModel.by_turn(replies), tools=[ship], store=store)


class Day(BaseModel):
    """What a report is about."""

    runs: list[str]
    report: str = ""


def make_report(store: MemoryStore) -> Graph[Day, Day]:
    """The graph that waits for other runs."""

    def gather(state: Day) -> dict[str, str]:
        ended = wait_for_all({f"order {number}": RunEnd(id) for number, id in enumerate(state.runs, 1)})
        return {"report": "\n".join(f"{each.value.status}: {each.value.output}" for each in ended.values())}

    graph = StateGraph(Day).add_node("gather", gather).add_edge(START, "gather").add_edge("gather", END)
    return graph.compile(name="report", store=store)


def main() -> None:
    clock = Clock()
    with MemoryStore(clock=clock) as store:
        desk, report = make_desk(store), make_report(store)
        runs = [desk.invoke(str(order)) for order in (1, 2, 3, 4)]
        print(f"{len(store.pending())} requests wait")
        waits = report.invoke({"runs": [run.run_id for run in runs]})

        # The bank: it has the store alone, and sends its events twice to be sure.
        store.send_event(runs[0].run_id, "payment", 49.9, by=BANK, key="invoice-1")
        sent = store.send_event(runs[0].run_id, "payment", 49.9, by=BANK, key="invoice-1")
        print(f"the payment of order 1 has {sent.status} its trigger")
        sent = store.send_event(runs[3].run_id, "payment", 20.0, by=BANK)
        print(f"the payment of order 4 is {sent.status}: it waits for an approval")

        # A human: a question is answered where approvals are.
        asked = next(item for item in runs[1].checkpoint.pending if item.asks_human)
        store.decide(asked.id, Respond(content="they moved"), by="ann", digest=asked.digest)
        try:
            store.send_event(runs[1].run_id, "payment", 5.0, by=BANK)
        except TriggerSuperseded:
            print("the payment of order 2 came too late")
        desk.resume(runs[3].checkpoint, approved=True, by="ann")

        # Two days later any worker finds that the time has come, and that the other runs have ended.
        asyncio.run(Worker([desk, report]).once())
        clock.now += 2 * DAYS
        for _ in range(2):
            asyncio.run(Worker([desk, report]).once())
        gathered = report.recover(waits.run_id).output
        print(gathered.report if gathered is not None else "the report is not there yet")


if __name__ == "__main__":
    main()

"""A refund desk over SQLite, as a user writes it: one function makes it, and a worker carries out what is decided elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

from phronomy import Agent, Approval, Approve, Principal, SQLiteStore, Store, tool
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker


def large(args: dict[str, Any]) -> bool:
    return bool(args["amount"] > 10)


def title(args: dict[str, Any]) -> str:
    return f"Refund order {args['order_id']}"


@tool(requires_approval=Approval(when=large, title=title, by=["finance", "lead"], not_requester=True))
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


@tool(requires_approval=large)
def charge(order_id: int, amount: float) -> str:
    """Charge an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are charged"


def make_desk(store: Store | None = None) -> Agent[Any, str]:
    model = ScriptedModel.by_turn([call("refund", {"order_id": 1042, "amount": 49.9}), "Done."])
    return Agent(name="desk", model=model, tools=[refund, charge], store=store, settings=None, trust=None)


def main() -> None:
    assert make_desk().invoke("Refund order 1042").suspended
    with SQLiteStore("desk.db") as store:
        desk = make_desk(store)
        asked = desk.invoke("Refund order 1042", thread_id="carl", requester="carl").checkpoint
        request = store.request(asked.pending[0].id)
        shown, ada = request.approval, Principal(id="ada", roles=["finance"])
        store.decide(shown.id, Approve(), by=ada, digest=shown.digest, channel="web")
        asyncio.run(Worker(desk).once())
        done = store.wait(asked.run_id, timeout=60)
        print(done.messages[-1].text)


if __name__ == "__main__":
    main()

"""The agent of the refund desk. A script stands in for the model, so the example needs no key: see `make_model` for a real one."""

from __future__ import annotations

import os
import re
from typing import Any

from phronomy import Agent, Approval, tool
from phronomy.models import ModelRequest
from phronomy.stores import Store
from phronomy.testing import ScriptedModel, call

PRICES = {"kettle": 49.90, "lamp": 85.00, "desk chair": 129.00}


def item_of(order: int) -> str:
    """What was ordered under this number."""
    return [*PRICES][order % len(PRICES)]


@tool
def look_up(order: int) -> dict[str, Any]:
    """Look up what was ordered, and what it cost in euros."""
    return {"order": order, "item": item_of(order), "price": PRICES[item_of(order)]}


def words(args: dict[str, Any]) -> str:
    """The sentence that the person who decides reads first."""
    return f"Pay {args['amount']:.2f} euros back for order {args['order']} ({item_of(args['order'])})."


@tool(requires_approval=Approval(title="Refund", context=words, expires=3_600), risk="medium")
def refund(order: int, amount: float, reason: str) -> str:
    """Refund an order, in full or in part, in euros."""
    return f"{amount:.2f} euros for order {order} are on their way"


def reply(request: ModelRequest) -> Any:
    """What the script says: it looks the order up, asks for the refund, and tells the customer what became of it."""
    said = [message for message in request.messages if message.role == "user"][-1]
    after = request.messages[request.messages.index(said) + 1 :]
    results = [message.text for message in after if message.role == "tool"]
    number = re.search(r"\d+", said.text)
    if number is None:
        return "Which order is it? Please tell me its number."
    order = int(number[0])
    if not results:
        return call("look_up", {"order": order})
    if len(results) == 1:
        return call("refund", {"order": order, "amount": PRICES[item_of(order)], "reason": said.text[:200]})
    return f"Here is what came of it: {results[-1]}"


def make_model() -> Any:
    """The model: `PHRONOMY_MODEL`, such as `openai/gpt-4o-mini`, or else the script."""
    return os.environ.get("PHRONOMY_MODEL") or ScriptedModel(reply)


def make_agent(store: Store) -> Agent[Any, str]:
    """The agent, over this store."""
    instructions = "You work at a refund desk. Look the order up, then refund it."
    return Agent(
        name="refund-desk", model=make_model(), instructions=instructions, tools=[look_up, refund], store=store
    )

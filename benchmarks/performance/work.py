"""The work that every side does: the same conversation, the same tools, and what is stored of it. Nothing of phronomy is imported here.

A conversation is: a message, so many look-ups (none in the approval cycle), a refund that needs an approval, and the answer.
"""

from __future__ import annotations

import json
from typing import Any, Final

ASK: Final = "Refund order 1042, please."
ANSWER: Final = "Order 1042 is refunded."
SYSTEM: Final = "You work at a refund desk."


def look_up(order_id: int) -> dict[str, Any]:
    """Look up an order."""
    lines = [
        {"sku": f"SKU-{order_id}-{line}", "title": "A thing that was ordered", "quantity": line + 1}
        for line in range(3)
    ]
    return {
        "order": order_id,
        "customer": f"customer-{order_id}@example.com",
        "state": "delivered",
        "lines": lines,
    }


def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"order {order_id}: {amount:.2f} euros are on their way"


def _described(name: str, description: str, **parameters: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {each: {"type": kind} for each, kind in parameters.items()},
        "required": list(parameters),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS: Final = [
    _described("look_up", "Look up an order.", order_id="integer"),
    _described("refund", "Refund an order, in euros.", order_id="integer", amount="number"),
]


def reply(turn: int, calls: int) -> dict[str, Any]:
    """The model's reply at its turn, from 0, in a conversation of so many look-ups, as chat completions spell it."""
    if turn > calls:
        return {"role": "assistant", "content": ANSWER}
    name, arguments = (
        ("look_up", {"order_id": turn}) if turn < calls else ("refund", {"order_id": 1042, "amount": 49.9})
    )
    called = {"id": f"call_{turn}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": f"I look at order {turn} next.", "tool_calls": [called]}


def model_name(calls: int) -> str:
    """The name of the model, which tells the provider how many look-ups there are."""
    return f"calls-{calls}"


class Script:
    """A model inside the process: it replies at once, and looks at nothing."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.turn = 0

    def next(self) -> dict[str, Any]:
        """The next reply."""
        found = reply(self.turn, self.calls)
        self.turn += 1
        return found

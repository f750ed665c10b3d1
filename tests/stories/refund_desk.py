"""The support desk of the stories."""

from __future__ import annotations

from typing import Any

from drivers import Driver

from phronomy import Agent, tool
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call, say


class Desk:
    """A support desk: `refund` is gated, `look` is not; and what was done."""

    def __init__(self, driver: Driver, store: Store | None, replies: list[Any], **options: Any) -> None:
        self.done: list[Any] = []
        self.model = options.setdefault("model", ScriptedModel(replies))

        def refund(order: int, amount: float = 5.0) -> str:
            """Refund an order, in euros."""
            self.done.append(("refund", order, amount))
            return f"refunded {order}"

        def look(order: int) -> str:
            """Look an order up."""
            self.done.append(("look", order))
            return f"order {order}"

        self.refund = tool(requires_approval=True)(driver.function(refund))
        self.look = tool(driver.function(look))
        options.setdefault("tools", [self.refund, self.look])
        self.agent: Agent[Any, str] = Agent(name="desk", store=store, **options)


REFUND = say("I will refund it.", call("refund", {"order": 1042}, id="call_9"))

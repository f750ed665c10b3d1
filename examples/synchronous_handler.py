"""A handler that answers at once: it approves or rejects a call, or leaves the decision to a human.

    OPENAI_API_KEY=... python examples/synchronous_handler.py

`PHRONOMY_MODEL` names another model. The answer of the handler is recorded like a human's decision, with `channel="handler"`.
"""

from __future__ import annotations

import os
from typing import Any

from phronomy import Agent, Defer, Reject, tool


@tool(requires_approval=True)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


def policy(tool_name: str, args: dict[str, Any]) -> bool | Reject | Defer:
    """Small refunds run at once, large refunds never. For the others, a human is asked."""
    if args["amount"] <= 50:
        return True
    if args["amount"] > 500:
        return Reject(reason="Refunds above 500 euros are made by accounting alone.")
    return Defer()


def main() -> None:
    agent = Agent(
        model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
        instructions="You work at a refund desk. Refund what is asked for. If a refund is rejected, say why.",
        tools=[refund],
    ).on_approval_required(policy)

    for amount in (20, 120, 900):
        result = agent.invoke(f"Please refund {amount} euros for order 1042.")
        if result.suspended:
            print(f"{amount} euros: {result.status}, waits for a human on {result.checkpoint.pending_tool_args}")
            result = agent.resume(result.checkpoint, approved=True, by="the manager")
        for decision in result.checkpoint.decisions:
            who = decision.by.id if decision.by else decision.channel
            print(f"{amount} euros: {decision.kind} by {who}. {result.output}")


if __name__ == "__main__":
    main()

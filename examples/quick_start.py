"""An agent that stops before a refund, and goes on after your decision.

    OPENAI_API_KEY=... python examples/quick_start.py

`PHRONOMY_MODEL` names another model (`anthropic/...`, `ollama/...`, and with litellm installed `gemini/...`); docs/models.md says
which variable has the key.
"""

from __future__ import annotations

import os

from phronomy import Agent, tool

ITEMS = {1042: ("kettle", 49.90), 1043: ("lamp", 85.00)}


@tool
def look_up_order(order_id: int) -> dict[str, object]:
    """Look up what was ordered, and what it cost in euros."""
    item, price = ITEMS[order_id]
    return {"order_id": order_id, "item": item, "price": price}


@tool(requires_approval=True)
def refund(order_id: int, amount: float) -> str:
    """Refund an order.

    Args:
        order_id: The number of the order.
        amount: How much, in euros.
    """
    return f"{amount:.2f} euros for order {order_id} are on their way"


def main() -> None:
    agent = Agent(
        model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
        instructions="You work at a refund desk. Look an order up before you refund it, and refund what it cost.",
        tools=[look_up_order, refund],
    )
    result = agent.invoke("The kettle of order 1042 arrived broken. Please refund it.")
    while result.suspended:
        pending = result.checkpoint.pending[0]
        print(f"The agent asks for {pending.tool_name} with {pending.args}.")
        if input("Approve? [y/N] ").strip().lower() == "y":
            result = agent.resume(result.checkpoint, approved=True)
        else:
            result = agent.resume(result.checkpoint, approved=False, reason="The desk said no.")
    print(result.output)


if __name__ == "__main__":
    main()

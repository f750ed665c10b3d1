"""An agent as a class: attributes are the configuration, and subclasses change some of them.

    OPENAI_API_KEY=... python examples/class_style.py

`PHRONOMY_MODEL` names another model.
"""

from __future__ import annotations

import os

from phronomy import Agent, PromptTemplate, Tool


class Refund(Tool):
    """Refund an order, in euros."""

    requires_approval = True

    def execute(self, order_id: int, amount: float) -> str:
        return f"{amount:.2f} euros for order {order_id} are on their way"


class SupportAgent(Agent):
    model = os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini")
    instructions = PromptTemplate("You work at the refund desk of {shop}. Refund what is asked for. Be brief.")
    tools = [Refund]


class PoliteSupportAgent(SupportAgent):
    instructions = PromptTemplate(
        "You work at the refund desk of {shop}. Refund what is asked for. Thank the customer."
    )


def main() -> None:
    agent = PoliteSupportAgent()
    result = agent.invoke({"shop": "Kettles and Sons", "request": "Please refund 49.90 euros for order 1042."})
    if result.suspended:
        checkpoint = result.checkpoint
        print(f"{checkpoint.agent.name} waits: {checkpoint.pending_tool_name} {checkpoint.pending_tool_args}")
        result = agent.resume(checkpoint, approved=True)
    print(result.output)


if __name__ == "__main__":
    main()

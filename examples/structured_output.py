"""An answer as a value of a type, after a refund that a human has approved.

    OPENAI_API_KEY=... python examples/structured_output.py

If an answer does not fit the type, the model is told what is wrong, and answers again, a limited number of times. Approvals
work as usual: only a reply without calls is read as the answer. `PHRONOMY_MODEL` names another model.
"""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, Field

from phronomy import Agent, OutputError, tool


class Report(BaseModel):
    """The result of a request."""

    order_id: int
    outcome: Literal["refunded", "rejected", "nothing to do"]
    amount: float = Field(ge=0, description="In euros; 0 if nothing was refunded.")


@tool(requires_approval=True)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


def main() -> None:
    agent = Agent(
        model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
        instructions="You work at a refund desk. Refund what is asked for, then report.",
        tools=[refund],
        output_type=Report,
    )
    try:
        result = agent.invoke("Please refund 20 euros for order 1042.")
        if result.suspended:
            print(f"waits: {result.checkpoint.pending_tool_name} {result.checkpoint.pending_tool_args}")
            result = agent.resume(result.checkpoint, approved=True, by="ada")
    except OutputError as error:
        print(f"no report: {error}")  # an agent with more `output_retries` can resume `error.checkpoint`
        return
    report = result.output
    assert isinstance(report, Report)
    print(f"order {report.order_id}: {report.outcome}, {report.amount:.2f} euros")


if __name__ == "__main__":
    main()

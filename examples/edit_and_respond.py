"""Two answers besides yes and no: run the call with other arguments, or give its result yourself.

    OPENAI_API_KEY=... python examples/edit_and_respond.py

Edited arguments are validated and checked again, and the model is told. A response becomes the result of a call that did not
run. `PHRONOMY_MODEL` names another model.
"""

from __future__ import annotations

import os

from phronomy import Agent, Approve, InvalidDecision, Respond, tool


@tool(requires_approval=True)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


@tool(requires_approval=True)
def ask_accounting(question: str) -> str:
    """Ask accounting. Somebody there answers by hand, so the body is empty."""
    raise NotImplementedError("a human responds in place of this tool")


def main() -> None:
    agent = Agent(
        model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
        instructions="You work at a refund desk. Refund what is asked for; questions about invoices go to accounting.",
        tools=[refund, ask_accounting],
    )

    checkpoint = agent.invoke("Please refund 120 euros for order 1042.").checkpoint
    pending = checkpoint.pending[0]
    print(f"asked for: {pending.tool_name} {pending.args}")
    try:
        agent.resume(checkpoint, decisions={pending.id: Approve(args={"order_id": 1042, "amount": "a lot"})})
    except InvalidDecision as error:
        print(f"refused: {type(error).__name__}")  # nothing has happened; the call still waits
    less = Approve(args={"order_id": 1042, "amount": 60})
    result = agent.resume(checkpoint, decisions={pending.id: less}, by="ada")
    print(f"decided: {result.checkpoint.decisions[-1].args}")
    print(f"the model was told: {result.messages[-2].text}")

    checkpoint = agent.invoke("Was the invoice of order 1042 paid?").checkpoint
    pending = checkpoint.pending[0]
    answer = Respond(content="Yes, on 3 March.")
    result = agent.resume(checkpoint, decisions={pending.id: answer}, by="accounting")
    print(f"{result.messages[-2].settlement}: {result.output}")


if __name__ == "__main__":
    main()

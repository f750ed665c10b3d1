"""A support desk of three agents: triage hands over to billing, billing hands over to refunds, and a large refund waits for you.

    python examples/support_desk.py "I was charged twice for order 1042, 85.00 euros."

Leave at the prompt: the next start asks again. Anybody else who has `desk.db` can decide too:

    phronomy pending --store sqlite:///desk.db
    phronomy approve PENDING_ID --app examples.support_desk:triage

A scripted model answers, so you need no key; `PHRONOMY_MODEL` names another.
"""

from __future__ import annotations

import json
import os
import re
import sys

from phronomy import Agent, SQLiteStore, tool
from phronomy.models import ModelRequest
from phronomy.testing import ScriptedModel, call


@tool
def look_up(order_id: int) -> str:
    """Look up what was paid for an order."""
    return f"Order {order_id} was paid twice."


@tool(requires_approval=lambda args: args["amount"] > 50)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way."


def script(request: ModelRequest) -> object:
    """The replies of a good model: it looks up the order, hands over to the agent that can refund, and tells the customer."""
    tools = [each["function"]["name"] for each in request.tools]
    asked, last = request.messages[0].text, request.messages[-1]
    if "refund" in tools and "handed over" in last.text:
        amount = re.search(r"([\d.]+) euros", asked)
        return call("refund", {"order_id": 1042, "amount": float(amount[1]) if amount else 85.0})
    if "look_up" in tools and "handed over" in last.text:
        return call("look_up", {"order_id": 1042})
    if "transfer_to_refunds" in tools:
        return call("transfer_to_refunds", {"message": last.text})
    return call("transfer_to_billing") if "transfer_to_billing" in tools else f"I was told: {last.text}"


model = os.environ.get("PHRONOMY_MODEL") or ScriptedModel(script)

refunds = Agent(
    name="refunds",
    description="Pays customers back.",
    model=model,
    instructions="Refund what the customer is due, and say what came of it.",
    tools=[refund],
)
billing = Agent(
    name="billing",
    description="Knows what was paid.",
    model=model,
    instructions="Look the order up. Whoever is due money is handed over to refunds.",
    tools=[look_up],
    handoffs=[refunds],
)
triage = Agent(
    name="triage",
    model=model,
    instructions="Hand the customer over to whoever can help.",
    handoffs=[billing],
    store=SQLiteStore("desk.db"),
)


def main() -> None:
    waiting = triage.store.pending(agent="triage")
    if waiting:
        result = triage.recover(waiting[0].run_id)
    else:
        result = triage.invoke(sys.argv[1] if len(sys.argv) > 1 else "I was charged twice for order 1042, 85.00 euros.")
    while result.suspended:
        pending = result.checkpoint.pending[0]
        print(f"{pending.agent} asks for {pending.tool_name} {json.dumps(pending.args)}")
        try:
            approved = input("Approve? [y/N] ").strip().lower() == "y"
        except EOFError:
            print(f"\n{pending.id} waits.")
            return
        result = triage.resume(result.checkpoint, approved=approved, by="terminal")
    print(result.output)


if __name__ == "__main__":
    with triage.store:
        main()

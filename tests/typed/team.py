"""A team: a clerk hands over to a cashier, whose payments somebody approves; and steps of it in a row."""

from __future__ import annotations

from typing import Any

from phronomy import Agent, Approve, Handoff, Orchestrator, sequential, tool
from phronomy.testing import ScriptedModel, call


@tool
def pay(amount: float) -> str:
    """Pay."""
    return f"paid {amount:.2f}"


def large(args: dict[str, Any]) -> bool:
    return bool(args["amount"] > 10)


cashier = Agent(name="cashier", model=ScriptedModel([call("pay", {"amount": 50.0}), "Paid."]), tools=[pay])
clerk = Agent(
    name="clerk",
    model=ScriptedModel.by_turn([call("transfer_to_cashier", {"message": "Pay 50 euros."}), "I do not know."]),
    handoffs=[Handoff(cashier, description="Payments.")],
)
team = Orchestrator([clerk, cashier], name="office", entry="clerk", approval_policy={"pay": large})


def shout(text: str) -> str:
    return text.upper()


row = sequential(shout, shout, name="row")


def main() -> None:
    asked = team.invoke("Pay 50 euros.").checkpoint
    result = team.resume(asked, decisions={request.id: Approve() for request in asked.pending}, by="ada")
    print(result.status)
    print(row.invoke("hello").output)


if __name__ == "__main__":
    main()

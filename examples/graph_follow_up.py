"""Follow-up questions: a node asks one question after another, and none twice.

    python examples/graph_follow_up.py

Each answer has a type. A wrong answer is refused, and the question stays pending. You need no model.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from phronomy import InvalidDecision, Respond
from phronomy.graph import END, START, StateGraph, interrupt


class Trip(BaseModel):
    to: str = ""
    booked: str = ""


def book(state: Trip) -> dict[str, Any]:
    """The body runs again after each answer. So the questions come first, and an action that must not happen twice comes last."""
    to = state.to or interrupt("Where to?", key="to", answer=str)
    days = interrupt(f"How many days in {to}?", key="days", answer=int)
    way = interrupt("By train, or by car?", key="way", answer=Literal["train", "car"])
    return {"to": to, "booked": f"{days} days in {to}, by {way}"}


graph = StateGraph(Trip).add_node(book).add_edge(START, "book").add_edge("book", END).compile()


def main() -> None:
    result = graph.invoke({})
    while result.suspended:
        pending = result.checkpoint.pending[0]
        said = input(f"{pending.args['payload']} ").strip()
        answer = Respond(content=int(said) if said.isdecimal() else said)
        try:
            result = graph.resume(result.checkpoint, decisions={pending.id: answer}, by="terminal")
        except InvalidDecision:
            print("That is no answer to this.")
    if result.output is not None:
        print(f"Booked: {result.output.booked}")


if __name__ == "__main__":
    main()

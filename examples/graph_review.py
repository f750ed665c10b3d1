"""Review and edit: the model writes a letter, you change or reject it, and the graph sends the approved text.

    python examples/graph_review.py

Before the node that sends runs, you see its whole input. You can change the input, and the node sends exactly the approved
text. A scripted model answers, so you need no key; `PHRONOMY_MODEL` names another.
"""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel

from phronomy import Agent, Approve, Reject
from phronomy.graph import END, START, StateGraph
from phronomy.testing import ScriptedModel


class Letter(BaseModel):
    topic: str
    draft: str = ""
    sent: str = ""


def send(state: Letter) -> dict[str, Any]:
    return {"sent": state.draft}


writer = Agent(
    name="writer",
    model=os.environ.get("PHRONOMY_MODEL") or ScriptedModel(["The office is closed on Monday."]),
    instructions="Write one sentence to all colleagues, on what you are asked for.",
)

graph = (
    StateGraph(Letter)
    .add_node("write", writer, input="topic", output="draft")
    .add_node(send, requires_approval=True)
    .add_edge(START, "write")
    .add_edge("write", "send")
    .add_edge("send", END)
    .compile()
)


def decision(shown: dict[str, Any]) -> Approve | Reject:
    """The decision of the person at the terminal about the letter."""
    print(f"To be sent: {shown['draft']}")
    answer = input("Send? [y, n, or a better text] ").strip()
    if answer in ("", "n"):
        return Reject(reason="The desk said no.")
    if answer == "y":
        return Approve()
    return Approve(args={"state": {**shown, "draft": answer}})


def main() -> None:
    result = graph.invoke({"topic": "the office is closed on Monday"})
    if result.suspended:
        pending = result.checkpoint.pending[0]
        answer = decision(pending.args["state"])
        result = graph.resume(result.checkpoint, decisions={pending.id: answer}, by="terminal")
    print(f"{result.status}: {result.output.sent if result.output is not None else 'nothing was sent'}")


if __name__ == "__main__":
    main()

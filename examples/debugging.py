"""Debugging: step through a graph with an agent in it, change values, and go back.

    python examples/debugging.py

Every stop is a checkpoint, so another process could continue next week, with `attach`. A scripted model answers, so you need no
key; `PHRONOMY_MODEL` names another.
"""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel

from phronomy import Agent, Breakpoint, Debugger, tool
from phronomy.graph import END, START, StateGraph
from phronomy.testing import ScriptedModel, call


class Case(BaseModel):
    question: str
    urgent: bool = False
    answer: str = ""


@tool
def look_up(order_id: int) -> str:
    """Look an order up."""
    print(f"  (looks up {order_id})")
    return f"order {order_id} is paid"


def sort(state: Case) -> dict[str, Any]:
    return {"urgent": state.question.endswith("!")}


clerk = Agent(
    name="clerk",
    model=os.environ.get("PHRONOMY_MODEL")
    or ScriptedModel.by_turn([call("look_up", {"order_id": 1042}), "It is paid."]),
    instructions="Answer in one sentence.",
    tools=[look_up],
)

graph = (
    StateGraph(Case, name="case")
    .add_node(sort)
    .add_node("ask", clerk, input="question", output="answer")
    .add_edge(START, "sort")
    .add_edge("sort", "ask")
    .add_edge("ask", END)
    .compile()
)


def show(debugger: Debugger[Any, Any]) -> None:
    """The places of the run and its nested runs, innermost last."""
    print(" > ".join(f"{frame.agent}: {frame.at}" for frame in debugger.where()))


def main() -> None:
    debugger = Debugger(graph, by="ada")
    debugger.start({"question": "Is order 1042 paid?"})
    show(debugger)
    debugger.step()
    show(debugger)
    debugger.set(state={"urgent": True})
    debugger.run_to(Breakpoint("tool", tools=["look_up"]))
    show(debugger)
    debugger.set(args={"order_id": 1043})
    debugger.out()
    show(debugger)
    print(debugger.evaluate("state['urgent'], state['answer']").value)

    debugger.back()  # to the call: with these arguments it has not run, so it is run now
    show(debugger)
    debugger.go()
    print(debugger.status, debugger.checkpoint.output)


if __name__ == "__main__":
    main()

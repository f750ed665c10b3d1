"""The loop of an agent as a graph: think, act, think again. Large refunds wait for you, small ones do not.

    python examples/graph_react.py

An `Agent` has this loop already. Build your own if you need your own rules: here the graph says which refunds a human must
approve. A scripted model answers, so you need no key; `PHRONOMY_MODEL` names another.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from phronomy import Agent
from phronomy.graph import END, START, StateGraph, append
from phronomy.models import ModelRequest
from phronomy.testing import ScriptedModel


class Step(BaseModel):
    """The model's next action: look up an order, refund it, or answer."""

    act: Literal["look_up", "refund", "answer"]
    order_id: int = 0
    amount: float = 0
    text: str = ""


class Desk(BaseModel):
    message: str
    seen: Annotated[list[str], append]
    step: Step = Step(act="answer")


def script(request: ModelRequest) -> str:
    """The replies of a good model."""
    seen = request.messages[-1].text
    if "refund:" in seen:
        step = Step(act="answer", text=f"This came of it: {seen.rpartition('refund: ')[2]}.")
    elif "order 1042: " in seen:
        step = Step(act="refund", order_id=1042, amount=85.0)
    else:
        step = Step(act="look_up", order_id=1042)
    return step.model_dump_json()


def think_about(state: Desk) -> str:
    return "\n".join([state.message, *state.seen])


def next_node(state: Desk) -> str:
    return state.step.act


def look_up(state: Desk) -> dict[str, Any]:
    return {"seen": [f"order {state.step.order_id}: a lamp, 85.00 euros"]}


def is_large(state: Desk) -> bool:
    return state.step.amount > 50


def refund(state: Desk) -> dict[str, Any]:
    return {"seen": [f"refund: {state.step.amount:.2f} euros are on their way"]}


def refused(state: Desk) -> dict[str, Any]:
    return {"seen": ["refund: the desk refused it"]}


thinker = Agent(
    name="thinker",
    model=os.environ.get("PHRONOMY_MODEL") or ScriptedModel(script),
    instructions="You work at a refund desk. Look the order up, refund what it cost, then answer. Say the next step.",
    output_type=Step,
)

graph = (
    StateGraph(Desk)
    .add_node("think", thinker, input=think_about, output="step")
    .add_node(look_up, idempotent=True)
    .add_node(refund, requires_approval=is_large, on_rejection="refused")
    .add_node(refused)
    .add_edge(START, "think")
    .add_conditional_edges("think", next_node, {"look_up": "look_up", "refund": "refund", "answer": END})
    .add_edge("look_up", "think")
    .add_edge("refund", "think")
    .add_edge("refused", "think")
    .compile(max_steps=20)
)


def main() -> None:
    result = graph.invoke({"message": "The lamp of order 1042 arrived broken. Please refund it."})
    while result.suspended:
        step = graph.state_of(result.checkpoint).step
        print(f"The graph asks for {result.checkpoint.pending_tool_name}: {step.amount:.2f} euros.")
        approved = input("Approve? [y/N] ").strip().lower() == "y"
        result = graph.resume(result.checkpoint, approved=approved, by="terminal")
    if result.output is not None:
        print(result.output.step.text)


if __name__ == "__main__":
    main()

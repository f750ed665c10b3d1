"""Plan and replan: the graph plans steps and takes them one by one. If a step is not possible, it plans the rest again.

    python examples/graph_replan.py

After three plans it gives up. A scripted model answers, so you need no key; `PHRONOMY_MODEL` names another.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import BaseModel

from phronomy import Agent
from phronomy.graph import END, START, Abort, Replan, StateGraph, add, append
from phronomy.models import ModelRequest
from phronomy.testing import ScriptedModel


class Plan(BaseModel):
    steps: list[str]


class Move(BaseModel):
    goal: str
    left: list[str] = []
    done: Annotated[list[str], append]
    trouble: Annotated[list[str], append]
    plans: Annotated[int, add]


def script(request: ModelRequest) -> str:
    """The replies of a good model."""
    steps = ["rent a van", "pack", "drive"] if "no lorry" in request.messages[-1].text else ["rent a lorry", "drive"]
    return Plan(steps=steps).model_dump_json()


def brief(state: Move) -> str:
    return f"{state.goal}. Done: {state.done}. In the way: {state.trouble}."


def planned(plan: Plan) -> dict[str, Any]:
    return {"left": plan.steps, "plans": 1}


def take(state: Move) -> dict[str, Any] | Replan | Abort:
    step, *left = state.left
    if step != "rent a lorry":
        return {"left": left, "done": [step]}
    if state.plans == 3:
        return Abort(reason="three plans, and none of them works")
    return Replan({"trouble": ["there is no lorry"]}, to="plan")


def next_node(state: Move) -> str:
    return "take" if state.left else END


planner = Agent(
    name="planner",
    model=os.environ.get("PHRONOMY_MODEL") or ScriptedModel(script),
    instructions="Plan the steps that are left, as few as will do.",
    output_type=Plan,
)

graph = (
    StateGraph(Move)
    .add_node("plan", planner, input=brief, output=planned)
    .add_node(take)
    .add_edge(START, "plan")
    .add_conditional_edges("plan", next_node, ["take", END])
    .add_conditional_edges("take", next_node, ["take", END])
    .compile()
)


def main() -> None:
    result = graph.invoke({"goal": "Move the office"})
    history = graph.store.history(result.checkpoint.id)
    waves = {checkpoint.turn: [call.name for call in checkpoint.calls] for checkpoint in history}
    print(" > ".join(name for names in waves.values() for name in names))
    state = graph.state_of(result.checkpoint)
    print(f"{result.status}: {state.done}, {state.plans} plans, {state.trouble}")


if __name__ == "__main__":
    main()

"""A tool that a page carries out."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from phronomy import Agent, ExternalTool, Respond, to_wire, tool
from phronomy.testing import ScriptedModel, call


class Choice(BaseModel):
    option: str


@tool(external=True)
def choose(options: list[str]) -> Choice:
    """Let the customer choose on the page."""
    raise NotImplementedError


scan = ExternalTool(
    name="scan",
    description="Scan a code.",
    parameters={"type": "object", "properties": {"hint": {"type": "string"}}, "required": ["hint"]},
    returns=Choice,
)


def page(request: dict[str, Any]) -> dict[str, str]:
    return {"option": request["args"]["options"][0]}


def main() -> None:
    model = ScriptedModel.by_turn([call("choose", {"options": ["window", "aisle"]}), "A window seat."])
    agent = Agent(name="seats", model=model, tools=[choose, scan])
    asked = agent.invoke("Let me choose a seat.").checkpoint
    [pending] = asked.pending
    result = agent.resume(asked, decisions={pending.id: Respond(content=page(to_wire(pending)))}, by="page")
    print(result.output)


if __name__ == "__main__":
    main()

"""A tool that runs elsewhere: the agent calls it, a page carries it out, and the page's answer is the result of the call.

    OPENAI_API_KEY=... python examples/external_tool.py

The page is a function here. A real application sends the request as JSON, and gets the result with another request, perhaps in
another process. Give the agent a store then. `PHRONOMY_MODEL` names another model.
"""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel

from phronomy import Agent, Approve, InvalidDecision, Respond, to_wire, tool


class Choice(BaseModel):
    """The customer's choice on the page."""

    option: str


@tool(external=True)
def choose(options: list[str]) -> Choice:
    """Let the customer choose one of these options on the page."""
    raise NotImplementedError  # never entered; `...` does as well, where no type checker minds


def page(request: dict[str, Any]) -> dict[str, Any]:
    """The page: it shows the options of a request, and sends back the chosen one."""
    assert request["external"]
    return {"option": request["args"]["options"][0]}


def main() -> None:
    agent = Agent(
        model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
        instructions="You sell train tickets. Let the customer choose between seats, and then say which it is.",
        tools=[choose],
    )

    checkpoint = agent.invoke("Window or aisle: let me choose a seat.").checkpoint
    [pending] = checkpoint.pending
    print(f"to the page: {pending.tool_name} {pending.args}")
    try:
        agent.resume(checkpoint, decisions={pending.id: Approve()})
    except InvalidDecision as error:
        print(f"refused: {type(error).__name__}")  # nothing here could carry it out

    chosen = page(to_wire(pending))
    result = agent.resume(checkpoint, decisions={pending.call_id: Respond(content=chosen)}, by="page")
    print(f"{result.messages[2].settlement}: {result.output}")


if __name__ == "__main__":
    main()

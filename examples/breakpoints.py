"""Breakpoints: a large refund stops, so that somebody can look at it and change it. Other calls go on.

    OPENAI_API_KEY=... python examples/breakpoints.py

The tool needs no approval. The breakpoint is only for somebody who watches the desk today. The first run is suspended and
resumed. The second run waits at the breakpoint, and a function answers. `PHRONOMY_MODEL` names another model.
"""

from __future__ import annotations

import os

from phronomy import Agent, Approve, Breakpoint, BreakpointHit, Breakpoints, Hold, tool


@tool
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


def at_most_60(hit: BreakpointHit) -> Approve:
    """The answer of somebody who is asked while the run waits."""
    print(f"held {hit.type}: {hit.tool} {hit.args}")
    return Approve(args={**hit.args, "amount": min(hit.args["amount"], 60.0)})


def main() -> None:
    watched = Breakpoints([Breakpoint("tool", "tool == 'refund' and args['amount'] > 100", "a large refund")])
    agent = Agent(
        name="desk",
        model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
        instructions="You work at a refund desk. Refund what is asked for.",
        tools=[refund],
        breakpoints=watched,
    )

    result = agent.invoke("Please refund 20 euros for order 1042.")
    print(f"20 euros: {result.status}")

    result = agent.invoke("Please refund 120 euros for order 1042.")
    (hit,) = agent.stopped_at(result.checkpoint)
    print(f"120 euros: {result.status}, {hit.label}, before {', '.join(hit.next)}")
    result = agent.resume(result.checkpoint)
    print(f"let go on: {result.output}")

    held = agent.invoke("Please refund 150 euros for order 1042.", hold=Hold(timeout=60, on_breakpoint=at_most_60))
    print(f"150 euros: {held.checkpoint.decisions[-1].args}")

    watched.clear()
    print(f"without it: {agent.invoke('Please refund 150 euros for order 1042.').status}")


if __name__ == "__main__":
    main()

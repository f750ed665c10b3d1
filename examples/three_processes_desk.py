"""Three processes: an app that starts runs, a page on which people decide, and a worker that carries the decisions out.

    python three_processes_desk.py "Please refund 20 euros for order 1042"           # the app
    DESK_PASSWORDS='{"rita": "a-long-password"}' python three_processes_page.py      # the page, at http://127.0.0.1:8000
    phronomy work --app three_processes_desk:agent                                   # the worker; Ctrl-C stops it

Start them in any order, each in a terminal of its own, in this folder. This file has the agent: the app and the worker import it. The
page has the store alone: it works without this file, without the model's key, and without what the tools can reach. So it can be in
another network, and can be changed and restarted while runs go on.

`PHRONOMY_MODEL` names another model, `PHRONOMY_STORE` another store: on several machines one that all of them reach.
"""

from __future__ import annotations

import os
import sys

from phronomy import Agent, open_store, tool


@tool(requires_approval=True, approval_timeout=86_400)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


agent = Agent(
    name="desk",
    model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
    instructions="You work at a refund desk. Refund what is asked for.",
    tools=[refund],
    store=open_store(os.environ.get("PHRONOMY_STORE", "sqlite:///three.db")),
)

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    result = agent.invoke(sys.argv[1])
    print(f"{result.run_id} is {result.status}: {result.output or 'it waits for somebody to decide'}")

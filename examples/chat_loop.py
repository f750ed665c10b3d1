"""A conversation in the terminal, with approvals. Leave at any prompt; the next start continues at the same place.

    OPENAI_API_KEY=... python examples/chat_loop.py

The conversation is one thread, stored in `chat.db`. A pending approval is asked first, also after a restart. `PHRONOMY_MODEL`
names another model.
"""

from __future__ import annotations

import json
import os
import sys

from phronomy import Agent, Approve, PendingApproval, Reject, Result, RunBusy, RunFailed, SQLiteStore, tool

THREAD = "terminal"


@tool(requires_approval=True)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


def asked(pending: PendingApproval) -> Approve | Reject:
    """The decision of the person at the terminal. Arguments are shown as JSON, so they cannot look like our own words."""
    print(f"  {pending.tool_name} {json.dumps(pending.args)}")
    while (answer := input("  approve? [y/n] ").strip().lower()) not in ("y", "n"):
        print("  y or n, please")
    return Approve() if answer == "y" else Reject(reason=input("  why not? ").strip() or None)


def left_open(agent: Agent) -> Result | None:
    """The result of the thread's run, if the run has not ended: it waits, has failed, or has lost its worker."""
    for branch in agent.store.branches(thread_id=THREAD):
        if branch.status in ("running", "suspended", "failed"):
            return agent.recover(branch.id)
    return None


def turn(agent: Agent) -> str:
    """The next answer of the desk, after all pending approvals are decided."""
    result = left_open(agent) or agent.invoke(input("you: "), thread_id=THREAD)
    while result.suspended:
        answers = {pending.id: asked(pending) for pending in result.checkpoint.pending}
        result = agent.resume(result.checkpoint, decisions=answers, by="terminal", channel="chat")
    return result.output or f"({result.status})"


def main() -> None:
    with SQLiteStore("chat.db") as store:
        agent = Agent(
            name="desk",
            model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
            instructions="You work at a refund desk. Refund what is asked for.",
            tools=[refund],
            store=store,
        )
        try:
            while True:
                print(f"desk: {turn(agent)}")
        except (EOFError, KeyboardInterrupt):
            print()
        except (RunFailed, RunBusy) as error:
            sys.exit(f"The desk is out of order: {error}")  # the next start goes on from there


if __name__ == "__main__":
    main()

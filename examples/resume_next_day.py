"""One process suspends a run and exits. Another process, on another day, decides and resumes the run.

    OPENAI_API_KEY=... python examples/resume_next_day.py ask
    OPENAI_API_KEY=... python examples/resume_next_day.py decide yes

The checkpoint is written to `checkpoint.json`. There are two ways to use it:

- As above, both processes open the same store, `runs.db`. The text must equal the stored checkpoint, the call is read from the
  store, and the decision counts once. A second decision is an error that names the first.
- With `--bearer` the processes share no store. The text itself is the authority: anybody who has it can resume the run, in any
  number of processes, and can change the text. Use this only if you trust everybody who can read the file.

`PHRONOMY_MODEL` names another model.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from phronomy import Agent, Checkpoint, CheckpointAlreadyResumed, SQLiteStore, tool

FILE = Path("checkpoint.json")


@tool(requires_approval=True)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    print(f"(the tool runs: {amount:.2f} euros for order {order_id})")
    return f"{amount:.2f} euros for order {order_id} are on their way"


def make_agent(*, bearer: bool) -> Agent:
    """The same agent in both processes. Without a store, the agent accepts every checkpoint."""
    model = os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini")
    instructions = "You work at a refund desk. Refund what is asked for."
    if bearer:
        return Agent(name="desk", model=model, instructions=instructions, tools=[refund])
    return Agent(name="desk", model=model, instructions=instructions, tools=[refund], store=SQLiteStore("runs.db"))


def ask(agent: Agent) -> None:
    """The first process: run until a human must decide, and keep the checkpoint."""
    result = agent.invoke("Please refund 49.90 euros for order 1042.")
    if not result.suspended:
        sys.exit(f"The model asked for nothing that needs approval. It said: {result.output}")
    FILE.write_text(result.checkpoint.model_dump_json())
    print(f"{result.checkpoint.pending_tool_name} {result.checkpoint.pending_tool_args} waits in {FILE}")


def decide(agent: Agent, *, approved: bool) -> None:
    """The second process: read the checkpoint, decide, and go on."""
    checkpoint = Checkpoint.model_validate_json(FILE.read_bytes())
    try:
        result = agent.resume(checkpoint, approved=approved, by="the morning shift")
    except CheckpointAlreadyResumed as error:
        sys.exit(f"Too late: {error}")
    print(f"{result.status}: {result.output}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Suspend in one process, resume in another.")
    parser.add_argument("command", choices=["ask", "decide"])
    parser.add_argument("answer", nargs="?", choices=["yes", "no"], default="no")
    parser.add_argument("--bearer", action="store_true", help="go by the file alone, without a shared store")
    given = parser.parse_args()
    agent = make_agent(bearer=given.bearer)
    with agent.store:
        if given.command == "ask":
            ask(agent)
        else:
            decide(agent, approved=given.answer == "yes")


if __name__ == "__main__":
    main()

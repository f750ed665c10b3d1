"""An agent in a serverless function: each call opens the store, does one thing, and ends.

    PHRONOMY_STORE=sqlite:///runs.db python examples/serverless.py '{"action": "ask", "message": "..."}'

`handler(event, context)` has the form that function platforms call. Only the store stays between events. So a waiting run costs
nothing, and the event with the decision can come days later, to another machine. `sqlite:///` is for one machine. If functions
run on several machines, use a store that all of them can reach.

`decide` records the decision and answers within milliseconds. `work` with its `run_id` carries it out: send it through a queue of
your platform. `work` without one, from a timer, carries out everything that is left, also what killed functions left. The time
limit of the platform must be longer than a tool and a model call. `PHRONOMY_MODEL` names another model.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from phronomy import (
    Agent,
    Approve,
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    DecisionError,
    Reject,
    Result,
    RunBusy,
    RunFailed,
    UnknownPending,
    open_store,
    tool,
)
from phronomy.workers import Worker


@tool(requires_approval=True)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


def told(result: Result) -> dict[str, Any]:
    """The data for the caller: the ids and the requests. The checkpoint itself stays here."""
    waiting = [
        {"pending_id": each.id, "tool": each.tool_name, "args": each.args, "digest": each.digest}
        for each in result.checkpoint.pending
    ]
    return {"run_id": result.run_id, "status": result.status, "output": result.output, "pending": waiting}


NEEDS = {
    "ask": ("message",),
    "decide": ("pending_id", "digest", "approved", "by"),
    "work": (),
    "recover": ("run_id",),
}


def act(agent: Agent, event: dict[str, Any]) -> dict[str, Any]:
    """Handle the event. Your platform has checked the sender: `by` is the result of that check, and never comes from the body."""
    action = event.get("action")
    if not isinstance(action, str) or action not in NEEDS:
        raise DecisionError(f"action must be one of {', '.join(NEEDS)}")
    if missing := [name for name in NEEDS[action] if name not in event]:
        raise DecisionError(f"{action} needs {', '.join(missing)}")
    match action:
        case "ask":
            return told(agent.invoke(event["message"]))
        case "decide":
            approved = event["approved"]
            if not isinstance(approved, bool):  # "false" is true in Python, and 1 is not a yes
                raise DecisionError("approved must be true or false")
            answer = Approve() if approved else Reject(reason=event.get("reason"))
            given = {"by": event["by"], "digest": event["digest"], "key": event.get("key")}
            decided = agent.store.decide(event["pending_id"], answer, **given)
            return {"run_id": decided.run_id, "status": decided.status}
        case "work":
            worker = Worker(agent)
            done = asyncio.run(worker.carry_out(event["run_id"]) if "run_id" in event else worker.once())
            return {
                "runs": [told(each.result) for each in done if each.result],
                "failed": sum(each.error is not None for each in done),
            }
        case _:
            return told(agent.recover(event["run_id"]))


def handler(event: dict[str, Any], context: object = None) -> dict[str, Any]:
    """One event, one answer with a status: 200, 404 (unknown), 409 (decided before, or busy), 422 (invalid), and 502 for a failed run:
    nothing is lost, and `recover` continues the run."""
    with open_store(os.environ.get("PHRONOMY_STORE", "sqlite:///runs.db")) as store:
        agent = Agent(
            name="desk",
            model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
            instructions="You work at a refund desk. Refund what is asked for.",
            tools=[refund],
            store=store,
        )
        try:
            return {"statusCode": 200, "body": act(agent, event)}
        except (CheckpointNotFound, UnknownPending) as error:
            return {"statusCode": 404, "body": {"error": str(error)}}
        except (CheckpointAlreadyResumed, RunBusy) as error:
            return {"statusCode": 409, "body": {"error": str(error)}}
        except DecisionError as error:
            return {"statusCode": 422, "body": {"error": str(error)}}
        except RunFailed as error:  # what went wrong is for your log, and not for the caller
            print(f"run {error.run_id}: {error}", file=sys.stderr)
            return {"statusCode": 502, "body": {"error": "the run stopped on a failure", "run_id": error.run_id}}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(json.dumps(handler(json.loads(sys.argv[1]))))

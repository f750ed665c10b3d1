"""A debate: two agents propose, a judge names the better proposal, and you decide whether it is published.

    python examples/debate.py "Should the office close on Fridays?"
    python examples/debate.py

The first start holds the debate, in two rounds, and stops before the winner is published. The second start, on another day, shows
you the winner. You approve it, write a better text, or reject it. The checkpoint after the debate has a label, so you can go back to
it. The two processes share only `debates.db`. A scripted model answers, so you need no key; `PHRONOMY_MODEL` names another.
"""

from __future__ import annotations

import os
import sys

from pydantic import BaseModel

from phronomy import Agent, Approve, Labels, Pattern, Reject, SQLiteStore, Step, debate, sequential
from phronomy.models import ModelRequest
from phronomy.testing import ScriptedModel


class Verdict(BaseModel):
    winner: str
    feedback: str = ""


def script(request: ModelRequest) -> str:
    """The replies of a good model."""
    task, asked = str(request.system), request.messages[-1].text
    if "Judge" in task:
        better = "because" in asked
        return Verdict(winner="yes" if better else "no", feedback="" if better else "Say why.").model_dump_json()
    reason = "because people rest" if "Say why." in asked else "that is all"
    return f"Yes, {reason}." if "for it" in task else "No, clients call on Fridays."


def agent(name: str, instructions: str, output_type: type | None = None) -> Agent:
    model = os.environ.get("PHRONOMY_MODEL") or ScriptedModel(script)
    return Agent(name=name, model=model, instructions=instructions, output_type=output_type)


def publish(text: str) -> str:
    return f"Published: {text}"


def panel() -> Pattern:
    return debate(
        agent("yes", "Argue for it. Do what the feedback asks."),
        agent("no", "Argue against it. Do what the feedback asks."),
        judge=agent("judge", "Judge the proposals. Say what all are to do better.", Verdict),
        rounds=2,
    )


def desk(store: SQLiteStore) -> Pattern:
    review = Step(publish, requires_approval=True)
    return sequential(panel(), review, name="paper", store=store, labels=Labels(every=1))


def decision(text: str) -> Approve | Reject:
    print(text)
    answer = input("Publish? [y, n, or a better text] ").strip()
    if answer == "y":
        return Approve()
    return Approve(args={"arg": answer}) if answer not in ("", "n") else Reject(reason="It does not convince me.")


def main() -> None:
    with SQLiteStore("debates.db") as store:
        pattern = desk(store)
        waiting = store.pending(agent="paper")
        if not waiting:
            result = pattern.invoke(sys.argv[1] if len(sys.argv) > 1 else "Should the office close on Fridays?")
            labels = [info.label for info in store.list(run_id=result.run_id, labeled=True)]
            print(f"{result.status} after {', '.join(filter(None, labels))}")
            return
        item = waiting[0]
        answer = decision(item.approval.args["arg"])
        result = pattern.resume(item.checkpoint_id, decisions={item.approval.id: answer}, by="terminal")
        print(result.output or f"{result.status}: nothing was published")


if __name__ == "__main__":
    main()

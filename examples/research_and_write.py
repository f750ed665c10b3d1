"""Research and write: two agents research in parallel, one writes, one criticises, and you decide about the article.

    python examples/research_and_write.py "bees"
    python examples/research_and_write.py

The first start writes the article. The second start, on another day, shows you the article. You approve, rewrite or reject it.
The two processes share only `articles.db`. A scripted model answers, so you need no key; `PHRONOMY_MODEL` names another.
"""

from __future__ import annotations

import os
import sys

from pydantic import BaseModel

from phronomy import Agent, Approve, Pattern, Reject, SQLiteStore, Step, parallel, reflect, sequential
from phronomy.models import ModelRequest
from phronomy.testing import ScriptedModel


class Verdict(BaseModel):
    passed: bool
    feedback: str = ""


def script(request: ModelRequest) -> str:
    """The replies of a good model."""
    task, asked = str(request.system), request.messages[-1].text
    if "Criticise" in task:
        good = "because" in asked
        return Verdict(passed=good, feedback="" if good else "Say why.").model_dump_json()
    if "Write" in task:
        return "Bees are in decline, because meadows are." if "Say why." in asked else "Bees are in decline."
    return "A third of all species is in decline." if "numbers" in task else "Meadows are in decline too."


def agent(name: str, instructions: str, output_type: type | None = None) -> Agent:
    model = os.environ.get("PHRONOMY_MODEL") or ScriptedModel(script)
    return Agent(name=name, model=model, instructions=instructions, output_type=output_type)


def publish(article: str) -> str:
    return f"Published: {article}"


def desk(store: SQLiteStore) -> Pattern:
    research = parallel(
        agent("numbers", "Find numbers on the topic."),
        agent("reasons", "Find reasons for it."),
        merge=lambda found: "\n".join(found.values()),
    )
    writing = reflect(agent("writer", "Write an article from these notes."), agent("critic", "Criticise it.", Verdict))
    review = Step(publish, requires_approval=True)
    return sequential(research, writing, review, name="article", store=store)


def decision(article: str) -> Approve | Reject:
    print(article)
    answer = input("Publish? [y, n, or a better text] ").strip()
    if answer == "y":
        return Approve()
    return Approve(args={"arg": answer}) if answer not in ("", "n") else Reject(reason="It is not good enough.")


def main() -> None:
    with SQLiteStore("articles.db") as store:
        pattern = desk(store)
        waiting = store.pending(agent="article")
        if not waiting:
            result = pattern.invoke(sys.argv[1] if len(sys.argv) > 1 else "bees")
            print(f"{result.status}: {pattern.progress(result.checkpoint).percentage:.0f} % done")
            return
        item = waiting[0]
        answer = decision(item.approval.args["arg"])
        result = pattern.resume(item.checkpoint_id, decisions={item.approval.id: answer}, by="terminal")
        print(result.output or f"{result.status}: nothing was published")


if __name__ == "__main__":
    main()

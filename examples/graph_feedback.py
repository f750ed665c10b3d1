"""A feedback loop: the model writes a slogan, you say what is wrong, and it writes again, until you are content.

    python examples/graph_feedback.py

Each round is a checkpoint, in `slogans.db`. Leave at the prompt: the next start asks for the same slogan. A scripted model
answers, so you need no key; `PHRONOMY_MODEL` names another.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import BaseModel

from phronomy import Agent, Respond, SQLiteStore
from phronomy.graph import END, START, Graph, StateGraph, append, interrupt
from phronomy.models import ModelRequest
from phronomy.stores import Store
from phronomy.testing import ScriptedModel


class Slogan(BaseModel):
    product: str
    text: str = ""
    feedback: Annotated[list[str], append]
    good: bool = False


def script(request: ModelRequest) -> str:
    """The replies of a patient model."""
    *_, wish = request.messages[-1].text.splitlines()
    return f"A lamp. ({wish})" if wish.startswith("- ") else "A lamp."


def brief(state: Slogan) -> str:
    return "\n".join([f"A slogan for {state.product}.", *(f"- {wish}" for wish in state.feedback)])


def review(state: Slogan) -> dict[str, Any]:
    """Ask a human. The body runs again with the answer, so it does nothing before the question."""
    wish = interrupt({"text": state.text}, key="wish", answer=str)
    return {"feedback": [wish]} if wish else {"good": True}


def next_node(state: Slogan) -> str:
    return END if state.good else "write"


def slogans(store: Store) -> Graph[Any, Slogan]:
    writer = Agent(
        name="writer",
        model=os.environ.get("PHRONOMY_MODEL") or ScriptedModel(script),
        instructions="Write a slogan. Heed every wish in the list.",
    )
    return (
        StateGraph(Slogan)
        .add_node("write", writer, input=brief, output="text")
        .add_node(review)
        .add_edge(START, "write")
        .add_edge("write", "review")
        .add_conditional_edges("review", next_node, ["write", END])
        .compile(store=store)
    )


def main() -> None:
    with SQLiteStore("slogans.db") as store:
        graph = slogans(store)
        waiting = store.pending(agent="Slogan")
        result = graph.recover(waiting[0].run_id) if waiting else graph.invoke({"product": "a lamp"})
        while result.suspended:
            pending = result.checkpoint.pending[0]
            print(pending.args["payload"]["text"])
            try:
                wish = input("What is wrong with it? [nothing] ").strip()
            except EOFError:
                print()
                return
            result = graph.resume(result.checkpoint, decisions={pending.id: Respond(content=wish)}, by="terminal")
        if result.output is not None:
            print(f"After {len(result.output.feedback)} rounds: {result.output.text}")


if __name__ == "__main__":
    main()

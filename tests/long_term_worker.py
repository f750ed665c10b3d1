"""A person whose words are kept, in processes of their own that are killed."""

from __future__ import annotations

from typing import Any

from phronomy import Agent
from phronomy.long_term_store import LongTermStore
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.testing.crash import Scene

SCRIPT = [
    call("remember", {"key": "diet", "text": "no nuts"}),
    call("remember", {"key": "diet", "text": "no nuts, no milk"}),
    call("forget", {"key": "old"}),
    "done",
]


def make_agent(store: Store) -> Agent[Any, str]:
    """An agent that keeps what it is told of ann."""
    return Agent(name="host", model=ScriptedModel.by_turn(SCRIPT), tools=[*LongTermStore().tools()], store=store)


def keep(scene: Scene) -> None:
    """Two writes of one key, and a deletion, each approved; whoever comes after a killed worker goes on with the run."""
    agent = make_agent(scene.store)
    if not scene.store.branches():
        agent.invoke("Keep my diet.", thread_id="t", requester="ann")
    scene.settle(agent)

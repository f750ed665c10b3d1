"""A body that runs again after a question knows that it was stopped, with what, and what it kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from drivers import Driver
from graph_scenes import linked
from places import Place
from pydantic import BaseModel

from phronomy import Agent, Approve, ConfigurationError, Interruption, Respond, Result, interrupt, interruption, tool
from phronomy.graph import END, START, StateGraph
from phronomy.runs.wire import to_wire
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

SECRET = "the-secret-draft"


class Job(BaseModel):
    """The state of the graph here."""

    text: str = ""


class Clerk:
    """Asks twice in one body, in a tool or in a node, and notes what it knew each time that it was entered."""

    def __init__(self, driver: Driver, store: Store) -> None:
        self.driver = driver
        self.store = store
        self.knew: list[Interruption | None] = []

    def body(self) -> str:
        self.knew.append(interruption())
        draft = interrupt("Which?", key="which", answer=int, state={"draft": [SECRET]})
        sure = interrupt("Sure?", key="sure", state=None if draft else 1)
        return f"{draft} {sure}"

    def app(self, kind: str) -> Any:
        if kind == "tool":

            def book() -> str:
                """Book."""
                return self.body()

            model = ScriptedModel.by_turn([call("book"), "done"])
            return Agent(name="clerk", model=model, tools=[tool(self.driver.function(book))], store=self.store)
        nodes = StateGraph(Job).add_node("book", self.driver.function(lambda state: {"text": self.body()}))
        return linked(nodes, START, "book", END).compile(store=self.store)


@pytest.fixture
def clerk(driver: Driver, place: Place) -> Clerk:
    return Clerk(driver, place.open())


@pytest.mark.parametrize("kind", ["tool", "node"])
def test_it_knows_what_it_kept_what_it_asked_and_what_was_said(clerk: Clerk, kind: str) -> None:
    """E23, E26: first nothing; then the state of the last question, kept once; and each answer by its key."""
    app = clerk.app(kind)
    first: Result[Any] = clerk.driver.invoke(app, "go" if kind == "tool" else Job())
    [item] = first.checkpoint.pending
    second = clerk.driver.resume(clerk.app(kind), first.checkpoint.id, decisions={item.id: Respond(content=3)})
    [item] = second.checkpoint.pending
    last = clerk.driver.resume(clerk.app(kind), second.checkpoint.id, decisions={item.id: Approve()})
    assert last.status == "completed"
    assert clerk.knew == [
        None,
        Interruption(state={"draft": [SECRET]}, asked=("which",), answers={"which": 3}),
        Interruption(state=None, asked=("which", "sure"), answers={"which": 3, "sure": True}),
    ]


def test_nobody_is_shown_what_it_kept(clerk: Clerk) -> None:
    waits = clerk.driver.invoke(clerk.app("tool"), "go").checkpoint
    shown = [repr(waits), repr(waits.calls), json.dumps(to_wire(waits)), *map(str, waits.pending)]
    assert not [text for text in shown if SECRET in text]
    assert SECRET not in repr(Interruption(state=SECRET, asked=(), answers={"a": SECRET}))


def test_it_is_asked_in_a_body_alone_and_what_is_no_json_is_refused(clerk: Clerk) -> None:
    with pytest.raises(ConfigurationError, match="for the body of a node or a tool"):
        interruption()

    @tool
    def book() -> str:
        """Book."""
        return str(interrupt("?", state=object()))

    agent = Agent(name="clerk", model=ScriptedModel.by_turn([call("book"), "done"]), tools=[book], store=clerk.store)
    result = clerk.driver.invoke(agent, "go")
    assert (result.status, "cannot be made JSON of" in result.messages[2].text) == ("completed", True)

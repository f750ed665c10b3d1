"""A body that runs again after a question knows that it was stopped, with what, and what it kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from drivers import Driver
from graph_scenes import linked
from places import Place
from pydantic import BaseModel

from phronomy import (
    Agent,
    Approve,
    ConfigurationError,
    Interruption,
    MemoryStore,
    Principal,
    Respond,
    Result,
    interrupt,
    interruption,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.runs.wire import to_wire
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.triggers import ExternalEvent, Question, RunEnd, Timer, wait_for_all, wait_for_first

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


Stop = Callable[[], object]
YES = {"yes": Question("Is it done?", answer=bool)}

STOPS: dict[str, tuple[Stop, Interruption]] = {
    "interrupt": (
        lambda: interrupt("Is it done?", state="job-7"),
        Interruption(state="job-7", asked=("0",), answers={"0": True}),
    ),
    "first": (
        lambda: wait_for_first(YES | {"late": Timer(after=60)}, state="job-7"),
        Interruption(state="job-7", asked=("0",), answers={"0": {"yes": True}}),
    ),
    "first, with a key": (
        lambda: wait_for_first(YES, key="job"),
        Interruption(asked=("job",), answers={"job": {"yes": True}}),
    ),
    "all": (
        lambda: wait_for_all(YES | {"gone": RunEnd("no such run")}, state={"job": 7}),
        Interruption(
            state={"job": 7},
            asked=("0",),
            answers={"0": {"yes": True, "gone": {"run_id": "no such run", "status": "unknown"}}},
        ),
    ),
}


class Starter:
    """Starts a job where its body is entered for the first time, and then stops."""

    def __init__(self, driver: Driver, store: Store, stop: Stop) -> None:
        self.driver = driver
        self.store = store
        self.stop = stop
        self.started = 0
        self.knew: list[Interruption | None] = []
        self.fails = 0

    def body(self) -> str:
        self.knew.append(interruption())
        if self.knew[-1] is None:
            self.started += 1
        self.stop()
        if self.fails:
            self.fails -= 1
            raise OSError("the network is down")
        return "ok"

    def app(self, place: str, retries: int = 0) -> Any:
        if place == "node":
            body = self.driver.function(lambda state: {"text": self.body()})
            graph = StateGraph(Job).add_node("book", body)
            return linked(graph, START, "book", END).compile(store=self.store)

        def book() -> str:
            """Book."""
            return self.body()

        tools: list[Any] = [tool(retries=retries, retry_wait=0, retry_on=(OSError,))(self.driver.function(book))]
        agent = Agent(name="clerk", model=ScriptedModel.by_turn([call("book"), "done"]), tools=tools, store=self.store)
        if place == "tool":
            return agent
        boss = ScriptedModel.by_turn([call("clerk", {"input": "go"}), "done"])
        return Agent(name="boss", model=boss, tools=[agent.as_tool(description="Books.")], store=self.store)

    def stopped(self, place: str) -> Any:
        return self.driver.invoke(self.app(place), Job() if place == "node" else "go").checkpoint

    def answered(self, at: Any, place: str, **options: Any) -> Result[Any]:
        item = next(each for each in at.pending if each.asks_human)
        again = self.app(place, **options)
        return self.driver.resume(again, at.id, decisions={item.id: Approve()}, by="ada")


@pytest.mark.parametrize("place", ["tool", "node", "nested"])
@pytest.mark.parametrize("stop", STOPS)
def test_a_job_is_started_once_whatever_the_body_stops_at(driver: Driver, place: str, stop: str) -> None:
    wait, expected = STOPS[stop]
    starter = Starter(driver, MemoryStore(), wait)
    at = starter.stopped(place)
    assert starter.answered(at, place).status == "completed"
    assert (starter.started, starter.knew) == (1, [None, expected])


@pytest.mark.parametrize("stop", STOPS)
def test_a_retry_and_a_fork_know_that_the_job_was_started(driver: Driver, stop: str) -> None:
    wait, expected = STOPS[stop]
    starter = Starter(driver, MemoryStore(), wait)
    at = starter.stopped("tool")
    starter.fails = 1
    assert starter.answered(at, "tool", retries=1).status == "completed"
    assert (starter.started, starter.knew) == (1, [None, expected, expected])

    del starter.knew[:]
    fork = driver.call(starter.app("tool"), "fork", at)
    again = driver.resume(starter.app("tool"), fork).checkpoint
    # An answer there is no answer here; the end of a run is waited for anew.
    assert (starter.started, starter.knew) == (1, [replace(expected, answers={})])
    assert {item.id for item in again.pending}.isdisjoint(item.id for item in at.pending)


def test_several_stops_of_one_body_are_told_apart(driver: Driver) -> None:
    """The state is that of the last stop, and an event that came before the wait is an answer as any other."""

    def stops() -> None:
        interrupt("Which?", key="which", state=1)
        wait_for_first({"paid": ExternalEvent("payment", senders="bank", payload=int)}, key="paid", state=2)
        wait_for_all(YES, key="sure")

    starter = Starter(driver, MemoryStore(), stops)
    at = starter.stopped("tool")
    starter.store.send_event(at.run_id, "payment", 5, by=Principal(id="b", roles=("bank",)))
    at = starter.answered(at, "tool").checkpoint
    assert starter.answered(at, "tool").status == "completed"
    assert starter.knew == [
        None,
        Interruption(state=1, asked=("which",), answers={"which": True}),
        Interruption(state=2, asked=("which", "paid"), answers={"which": True, "paid": {"paid": 5}}),
        Interruption(
            asked=("which", "paid", "sure"), answers={"which": True, "paid": {"paid": 5}, "sure": {"yes": True}}
        ),
    ]


def test_a_state_of_a_wait_that_is_no_json_is_refused(driver: Driver) -> None:
    starter = Starter(driver, MemoryStore(), lambda: wait_for_first(YES, state=object()))
    result = driver.invoke(starter.app("tool"), "go")
    assert "the state that is kept with wait '0' cannot be made JSON of" in result.messages[2].text


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

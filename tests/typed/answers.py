"""A user's program: both type checkers, strict, find nothing wrong with it, and know the type of each answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_type

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

import phronomy
from phronomy import (
    Agent,
    Approve,
    AsyncStream,
    Checkpoint,
    Graph,
    Orchestrator,
    Recovery,
    Reject,
    Result,
    SQLiteStore,
    StateGraph,
    Stream,
    sequential,
    tool,
)
from phronomy.graph import append
from phronomy.stores import KeyValueStore, PostgresStore, RedisStore, Store
from phronomy.testing import ChatServer, ScriptedModel


class Answer(BaseModel):
    amount: float


class Question(BaseModel):
    text: str


@dataclass
class Point:
    x: int


class Row(TypedDict):
    id: int


@dataclass
class Clerk:
    name: str


@tool(requires_approval=True)
def refund(order_id: int) -> str:
    """Refund an order."""
    return f"refunded {order_id}"


# Without a subscript, each answer has the type that was asked for.

assert_type(Agent(), Agent[Any, str])
assert_type(Agent(model="m", tools=[refund]), Agent[Any, str])
assert_type(Agent(output_type=None), Agent[Any, str])
assert_type(Agent(output_type=str), Agent[Any, str])
assert_type(Agent(output_type=Answer, model="m"), Agent[Any, Answer])
assert_type(Agent(output_type=Point), Agent[Any, Point])
assert_type(Agent(output_type=Row), Agent[Any, Row])
assert_type(Agent(output_type=int), Agent[Any, int])
assert_type(Agent(output_type=list[int]), Agent[Any, list[int]])
assert_type(Agent(output_type=list[Answer]), Agent[Any, list[Answer]])
assert_type(Agent(output_type=dict[str, Answer]), Agent[Any, dict[str, Answer]])
assert_type(Agent(output_type=Literal["yes", "no"]), Agent[Any, Literal["yes", "no"]])
assert_type(Agent(output_type=Answer | Question), Agent[Any, Answer | Question])
assert_type(Agent(output_type=Answer | None), Agent[Any, Answer | None])
assert_type(Agent(output_type=Annotated[int, Field(ge=1)]), Agent[Any, int])


def amount(result: Result[Answer]) -> float:
    return result.output.amount if result.output is not None else 0.0


def all_ways(checkpoint: Checkpoint) -> None:
    agent = Agent(output_type=Answer)
    assert_type(agent.invoke("x"), Result[Answer])
    assert_type(agent.invoke("x").output, Answer | None)
    assert_type(agent.resume(checkpoint, approved=True).output, Answer | None)
    assert_type(agent.step("x").output, Answer | None)
    assert_type(agent.recover("id").output, Answer | None)
    assert_type(agent.cancel("id").output, Answer | None)
    assert_type(agent.stream("x"), Stream[Answer])
    assert_type(agent.stream("x").result.output, Answer | None)
    assert_type(agent.recover_all(), list[Recovery[Answer]])
    assert_type(Agent().invoke("x").output, str | None)
    assert_type(Desk.invoke("x", thread_id="t", deps=3), Result[Answer])
    assert_type(Desk.resume(checkpoint, approved=True, write_to="b").output, Answer | None)
    assert_type(Desk.stream("x"), Stream[Answer])
    assert_type(Talker.invoke("x").output, str | None)
    for event in agent.stream("x"):
        print(event)
    print(amount(agent.invoke("x", deps=3, model="m")))


async def all_async_ways(checkpoint: Checkpoint) -> None:
    agent = Agent(output_type=Answer)
    assert_type((await agent.ainvoke("x")).output, Answer | None)
    assert_type((await agent.aresume(checkpoint, approved=True)).output, Answer | None)
    assert_type((await agent.astep("x")).output, Answer | None)
    assert_type((await agent.arecover("id")).output, Answer | None)
    assert_type((await agent.acancel("id")).output, Answer | None)
    assert_type(agent.astream("x"), AsyncStream[Answer])
    assert_type(agent.astream("x").result.output, Answer | None)
    assert_type(await agent.arecover_all(), list[Recovery[Answer]])
    assert_type((await Desk.ainvoke("x")).output, Answer | None)
    assert_type((await Desk.aresume("id", approved=True)).output, Answer | None)
    assert_type(Desk.astream("x"), AsyncStream[Answer])


# Of a type that is known later, or only when the program runs.


def asked_for(kind: type[Answer] | None) -> None:
    assert_type(Agent(output_type=kind), Agent[Any, Answer] | Agent[Any, str])


def of_any(kind: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(output_type=kind, **options)


# With a type of its deps, an agent is told both.


def with_deps() -> None:
    clerks: Agent[Clerk, Answer] = Agent(output_type=Answer)
    assert_type(clerks.invoke("x", deps=Clerk("Ann")).output, Answer | None)
    assert_type(Agent[Clerk, Answer](output_type=Answer).invoke("x", deps=Clerk("Ann")).output, Answer | None)
    talks: Agent[Clerk] = Agent()
    assert_type(talks.invoke("x", deps=Clerk("Ann")).output, str | None)


# An agent that is a class says the type of its answer in its base.


class Talker(Agent):
    name = "talker"
    tools = (refund,)


class Desk(Agent[Any, Answer]):
    output_type = Answer
    tools = [refund]


class Either(Agent[Clerk, Answer | Question]):
    output_type = Answer | Question


class Numbers(Agent[Any, list[int]]):
    output_type = list[int]


class YesOrNo(Agent[Any, Literal["yes", "no"]]):
    output_type = Literal["yes", "no"]


def of_classes() -> None:
    assert_type(Talker().invoke("x").output, str | None)
    assert_type(Desk(model="m").invoke("x").output, Answer | None)
    assert_type(Either().invoke("x", deps=Clerk("Ann")).output, Answer | Question | None)
    assert_type(Numbers().invoke("x").output, list[int] | None)
    assert_type(YesOrNo().invoke("x").output, Literal["yes", "no"] | None)


# A graph gives its state.


class State(BaseModel):
    text: str = ""
    notes: Annotated[list[str], append] = []


class Bare(TypedDict):
    text: str


def write(state: State) -> dict[str, Any]:
    return {"text": state.text + "!"}


def copy(state: Bare) -> Bare:
    return state


graph = StateGraph(State).add_node(write).set_entry_point("write").set_finish_point("write").compile(name="g")
assert_type(graph, Graph[Any, State])
bare = StateGraph(Bare).add_node(copy).set_entry_point("copy").set_finish_point("copy").compile()
assert_type(bare, Graph[Any, Bare])


def of_graphs(checkpoint: Checkpoint) -> None:
    assert_type(graph.invoke({"text": "x"}).output, State | None)
    assert_type(graph.resume(checkpoint, update={"text": "x"}).output, State | None)
    assert_type(graph.stream({"text": "x"}).result.output, State | None)
    assert_type(graph.state_of(checkpoint), State)


# What a team gives is what its members give.


def of_teams() -> None:
    team = Orchestrator([Agent(name="a"), Agent(name="b", output_type=Answer)])
    assert_type(team.run("x"), Result[Any])
    assert_type(sequential(Agent(name="a"), Agent(name="b", output_type=Answer)).invoke("x"), Result[Any])


# What is loaded on use has its type as well.


def of_lazy_names() -> list[type[Store]]:
    assert_type(ChatServer(["x"]).base_url, str)
    assert_type(ScriptedModel(["x"]).name, str)
    return [SQLiteStore, PostgresStore, RedisStore, KeyValueStore, phronomy.MemoryStore]


# A handler is registered, and gives the agent back; as a method of the class it is sync or async.


class Sync(Agent[Any, Answer]):
    output_type = Answer

    def on_approval_required(self, name: str, args: dict[str, Any]) -> bool | None:
        return "refund" in name or None


class Later(Agent):
    async def on_approval_required(self, name: str, args: Mapping[str, Any]) -> Approve | Reject:
        return Approve() if args else Reject()


def of_handlers() -> None:
    assert_type(Sync().invoke("x").output, Answer | None)
    assert_type(Sync().on_approval_required("refund", {}), bool | None)
    assert_type(Later().invoke("x").output, str | None)
    registered = Agent(output_type=Answer).on_approval_required(lambda name, args: bool(name and args))
    assert_type(registered.invoke("x").output, Answer | None)

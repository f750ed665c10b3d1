"""The same work with LangChain's `create_agent`, its human-in-the-loop middleware, and LangGraph's SQLite saver.

`durability="sync"`: a step is stored before the next one begins, as everywhere here. ChatOpenAI keeps its HTTP client by itself.
https://docs.langchain.com/oss/python/langchain/human-in-the-loop, https://docs.langchain.com/oss/python/langgraph/durable-execution
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypedDict

import aiosqlite
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from side import Desk, Side
from work import ASK, SYSTEM, Script, look_up, model_name, refund

APPROVED: Final = Command(resume={"decisions": [{"type": "approve"}]})
ASKED: Final = {"messages": [{"role": "user", "content": ASK}]}


class ScriptModel(BaseChatModel):
    """A model inside the process."""

    script: Any

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        """It knows the tools."""
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        said = self.script.next()
        calls = [
            {"id": each["id"], "name": each["function"]["name"], "args": json.loads(each["function"]["arguments"])}
            for each in said.get("tool_calls", ())
        ]
        message = AIMessage(
            content=said["content"],
            tool_calls=calls,
            usage_metadata={"input_tokens": 100, "output_tokens": 20, "total_tokens": 120},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def config(thread: str) -> Any:
    """Where a run is stored. No limit stops it."""
    return {"configurable": {"thread_id": thread}, "recursion_limit": 10_000}


def agent_of(model: Any, saver: Any) -> Any:
    """The agent."""
    gate = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
    return create_agent(
        model, tools=[look_up, refund], system_prompt=SYSTEM, middleware=[gate], checkpointer=saver, name="desk"
    )


class AgentDesk:
    """An agent with its saver."""

    def __init__(self, path: Path, model: Any, script: Script | None = None) -> None:
        self.db = sqlite3.connect(path, check_same_thread=False)
        self.script = script
        self.agent = agent_of(model, SqliteSaver(self.db))

    def suspend(self) -> str:
        """From the message to the stop."""
        if self.script is not None:
            self.script.turn = 0
        thread = os.urandom(8).hex()
        found = self.agent.invoke(ASKED, config(thread), durability="sync")
        assert found["__interrupt__"]
        return thread

    def resume(self, waiting: str) -> str:
        """From the approval to the answer."""
        if self.script is not None:
            self.script.turn = self.script.calls + 1
        return str(self.agent.invoke(APPROVED, config(waiting), durability="sync")["messages"][-1].content)

    def close(self) -> None:
        """Close the database."""
        self.db.close()


class AsyncAgentDesk:
    """The same in an event loop."""

    def __init__(self, db: aiosqlite.Connection, model: Any) -> None:
        self.db = db
        self.agent = agent_of(model, AsyncSqliteSaver(db))

    async def suspend(self, _: int) -> str:
        """From the message to the stop."""
        thread = os.urandom(8).hex()
        await self.agent.ainvoke(ASKED, config(thread), durability="sync")
        return thread

    async def resume(self, waiting: str) -> str:
        """From the approval to the answer."""
        found = await self.agent.ainvoke(APPROVED, config(waiting), durability="sync")
        return str(found["messages"][-1].content)

    async def close(self) -> None:
        """Close the database."""
        await self.db.close()


class State(TypedDict, total=False):
    """What the nodes of the graph share."""

    order: int
    customer: str
    approved: bool
    said: str


def look(state: State) -> dict[str, Any]:
    """The first node."""
    return {"customer": look_up(state["order"])["customer"]}


def ask(_: State) -> dict[str, Any]:
    """The second node, which asks."""
    return {"approved": interrupt("Refund it?")}


def pay(state: State) -> dict[str, Any]:
    """The last node."""
    return {"said": f"Order {state['order']} is refunded."}


class GraphDesk:
    """Three nodes, the second of which asks."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, check_same_thread=False)
        builder = StateGraph(State)
        for node in (look, ask, pay):
            builder.add_node(node.__name__, node)
        for one, other in ((START, "look"), ("look", "ask"), ("ask", "pay"), ("pay", END)):
            builder.add_edge(one, other)
        self.graph: Any = builder.compile(checkpointer=SqliteSaver(self.db))

    def suspend(self) -> str:
        """From the message to the stop."""
        thread = os.urandom(8).hex()
        assert self.graph.invoke({"order": 1042}, config(thread), durability="sync")["__interrupt__"]
        return thread

    def resume(self, waiting: str) -> str:
        """From the approval to the answer."""
        return str(self.graph.invoke(Command(resume=True), config(waiting), durability="sync")["said"])

    def close(self) -> None:
        """Close the database."""
        self.db.close()


class LangGraph(Side):
    """LangGraph, and the agents of LangChain."""

    def desk(self, path: Path, kind: str, calls: int = 0) -> Desk:
        """See `Side.desk`."""
        if kind == "graph":
            return GraphDesk(path)
        if kind == "script":
            script = Script(calls)
            return AgentDesk(path, ScriptModel(script=script), script)
        return AgentDesk(path, self.model(calls))

    async def async_desk(self, path: Path) -> AsyncAgentDesk:
        """See `Side.async_desk`."""
        return AsyncAgentDesk(await aiosqlite.connect(path), self.model(0))

    def model(self, calls: int) -> ChatOpenAI:
        """The model at the provider."""
        options: dict[str, Any] = {"base_url": self.url, "api_key": "none", "max_retries": 0}
        return ChatOpenAI(model=model_name(calls), use_responses_api=False, **options)

"""The same work with phronomy. Where objects are fresh, all are made anew: store, model, tools and agent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TypedDict

from side import Desk, Measured, Side
from work import ANSWER, ASK, SYSTEM, Script, look_up, model_name, refund

from phronomy import Agent, Approve, Limits, Message, ModelReply, ModelRequest, SQLiteStore, ToolCall, Usage, tool


class ScriptModel:
    """A model inside the process."""

    name = "script"
    # It replies at once, so nobody has to watch its time from another thread.
    keeps_time = True

    def __init__(self, script: Script) -> None:
        self.script = script

    def complete(self, request: ModelRequest) -> ModelReply:
        """The next reply."""
        said = self.script.next()
        calls = tuple(
            ToolCall(id=each["id"], name=each["function"]["name"], arguments=each["function"]["arguments"])
            for each in said.get("tool_calls", ())
        )
        message = Message(role="assistant", content=said["content"], tool_calls=calls)
        return ModelReply(message=message, usage=Usage(requests=1, input_tokens=100, output_tokens=20))

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """The next reply."""
        return self.complete(request)


class Stopping(ScriptModel):
    """Always asks for the refund."""

    def complete(self, request: ModelRequest) -> ModelReply:
        """The next reply."""
        self.script.turn = 0
        return super().complete(request)


class Calling(ScriptModel):
    """Calls so many agents at once."""

    def __init__(self, runs: int) -> None:
        super().__init__(Script(0))
        self.runs = runs

    def complete(self, request: ModelRequest) -> ModelReply:
        """The reply with all calls."""
        calls = tuple(ToolCall(id=f"call_{n}", name="clerk", arguments=f'{{"input": "{n}"}}') for n in range(self.runs))
        message = Message(role="assistant", content="I ask others.", tool_calls=calls)
        return ModelReply(message=message, usage=Usage(requests=1, input_tokens=100, output_tokens=20))


class Asking(ScriptModel):
    """Asks for so many refunds in one reply, and then answers."""

    def __init__(self, calls: int) -> None:
        super().__init__(Script(0))
        self.calls = calls

    def complete(self, request: ModelRequest) -> ModelReply:
        """The reply with all calls, or the answer."""
        if any(message.role == "tool" for message in request.messages):
            return super().complete(request)
        arguments = '{"order_id": 1042, "amount": 49.9}'
        calls = tuple(ToolCall(id=f"call_{n}", name="refund", arguments=arguments) for n in range(self.calls))
        message = Message(role="assistant", content="I refund them all.", tool_calls=calls)
        return ModelReply(message=message, usage=Usage(requests=1, input_tokens=100, output_tokens=20))


class AgentDesk:
    """An agent on a SQLite store."""

    def __init__(self, path: Path, model: Any, script: Script | None = None) -> None:
        self.model, self.script = model, script
        self.store = SQLiteStore(path)
        self.agent = Agent(
            name="desk",
            model=model,
            instructions=SYSTEM,
            tools=[tool(look_up), tool(requires_approval=True)(refund)],
            store=self.store,
            limits=Limits(turns=None),
        )

    def suspend(self) -> str:
        """From the message to the stop."""
        if self.script is not None:
            self.script.turn = 0
        return self.agent.invoke(ASK).checkpoint.id

    def resume(self, waiting: str) -> str:
        """From the approval to the answer."""
        if self.script is not None:
            self.script.turn = self.script.calls + 1
        return str(self.agent.resume(waiting, approved=True).output)

    def close(self) -> None:
        """Close the store. The model is dropped, and leaves its connections to the next one, as the floor and the peers keep theirs."""
        self.store.close()


class AsyncAgentDesk:
    """The same in an event loop."""

    def __init__(self, path: Path, model: Any) -> None:
        self.desk = AgentDesk(path, model)

    async def suspend(self, _: int) -> str:
        """From the message to the stop."""
        return (await self.desk.agent.ainvoke(ASK)).checkpoint.id

    async def resume(self, waiting: str) -> str:
        """From the approval to the answer."""
        return str((await self.desk.agent.aresume(waiting, approved=True)).output)

    async def close(self) -> None:
        """Close the store, and the connections of the model."""
        self.desk.store.close()
        if hasattr(self.desk.model, "aclose"):
            await self.desk.model.aclose()


class State(TypedDict, total=False):
    """What the nodes of the graph share."""

    order: int
    customer: str
    approved: bool
    said: str


class GraphDesk:
    """Three nodes, the second of which asks."""

    def __init__(self, path: Path) -> None:
        from phronomy.graph import END, START, StateGraph, interrupt  # noqa: PLC0415  # an agent has no need of it

        def look(state: State) -> dict[str, Any]:
            return {"customer": look_up(state["order"])["customer"]}

        def ask(_: State) -> dict[str, Any]:
            return {"approved": interrupt("Refund it?", key="refund", answer=bool)}

        def pay(state: State) -> dict[str, Any]:
            return {"said": f"Order {state['order']} is refunded."}

        self.store = SQLiteStore(path)
        builder = StateGraph(State, name="desk").add_node(look).add_node(ask).add_node(pay)
        builder.add_edge(START, "look").add_edge("look", "ask").add_edge("ask", "pay").add_edge("pay", END)
        self.graph = builder.compile(store=self.store)

    def suspend(self) -> str:
        """From the message to the stop."""
        return self.graph.invoke({"order": 1042}).checkpoint.id

    def resume(self, waiting: str) -> str:
        """From the approval to the answer."""
        output: Any = self.graph.resume(waiting, approved=True).output
        return str(output["said"])

    def close(self) -> None:
        """Close the store."""
        self.store.close()


class Ours(Side):
    """phronomy with its direct model."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder)
        self.stores: dict[Path, SQLiteStore] = {}

    def desk(self, path: Path, kind: str, calls: int = 0) -> Desk:
        """See `Side.desk`."""
        if kind == "graph":
            return GraphDesk(path)
        if kind == "script":
            script = Script(calls)
            return AgentDesk(path, ScriptModel(script), script)
        return AgentDesk(path, self.model(calls))

    async def async_desk(self, path: Path) -> AsyncAgentDesk:
        """See `Side.async_desk`."""
        return AsyncAgentDesk(path, self.model(0))

    def page(self, runs: int) -> Measured:
        """See `Side.page`."""
        store = self.filled(runs)
        self.after = store.pending(limit=50, after=getattr(self, "after", None)).next
        yield
        found = store.pending(limit=50, after=self.after)
        yield
        assert len(found) == 50
        return None

    def count(self, runs: int) -> Measured:
        """See `Side.count`."""
        store = self.filled(runs)
        yield
        found = store.count()
        yield
        assert found == runs
        return None

    def filled(self, runs: int) -> SQLiteStore:
        """A store in which so many runs wait. They are copies of one, made by the database."""
        path = self.folder / f"filled-{runs}.db"
        if path not in self.stores:
            sys.path.append(str(Path(__file__).parent.parent))
            from bulk import fill  # noqa: PLC0415  # of the other benchmarks
            from stores import Template  # noqa: PLC0415

            self.stores[path] = SQLiteStore(path)
            fill(self.stores[path], Template(), runs)
        return self.stores[path]

    # What a checkpoint costs as things grow

    def in_thread(self, messages: int) -> Measured:
        """A message in a thread that has so many, to the stop."""
        script = Script(0)
        desk = AgentDesk(self.folder / f"thread-{next(self.numbers)}.db", ScriptModel(script), script)
        history = [
            Message(role=("user", "assistant")[number % 2], content=f"This is message {number} of this long thread.")
            for number in range(messages - 2)
        ]
        script.turn = 1
        desk.agent.invoke(ASK, thread_id="t", messages=history)
        script.turn = 0
        yield
        desk.agent.invoke(ASK, thread_id="t")
        yield
        desk.close()
        return None

    def nested(self, runs: int) -> Measured:
        """A reply that calls so many agents, each of which stops for an approval of its own."""
        script = Script(0)
        store = SQLiteStore(self.folder / f"nested-{next(self.numbers)}.db")
        inner = Agent(name="clerk", model=Stopping(script), tools=[tool(requires_approval=True)(refund)])
        outer = Agent(name="head", model=Calling(runs), tools=[inner.as_tool()], store=store, max_parallel=1)
        yield
        found = outer.invoke(ASK)
        yield
        assert len(found.checkpoint.pending) == runs
        store.close()
        return None

    def approvals(self, calls: int) -> Measured:
        """A reply with so many gated calls, the approval of all of them, and the answer."""
        desk = AgentDesk(self.folder / f"approvals-{next(self.numbers)}.db", Asking(calls))
        desk.model.script.turn = 1
        yield
        found = desk.agent.invoke(ASK)
        assert len(found.checkpoint.pending) == calls
        decisions = {item.id: Approve() for item in found.checkpoint.pending}
        said = str(desk.agent.resume(found.checkpoint, decisions=decisions).output)
        yield
        desk.close()
        assert said == ANSWER
        return None

    def beside(self, runs: int) -> Measured:
        """A cycle in a store in which so many other runs wait."""
        self.filled(runs)
        script = Script(0)
        desk = AgentDesk(self.folder / f"filled-{runs}.db", ScriptModel(script), script)
        desk.store.branches(run_id="none")  # the connection is open
        yield
        said = desk.resume(desk.suspend())
        yield
        desk.close()
        assert said == ANSWER
        return None

    def model(self, calls: int) -> Any:
        """The model at the provider."""
        from phronomy import ChatCompletionsModel  # noqa: PLC0415

        return ChatCompletionsModel(model_name(calls), base_url=self.url, api_key="none")


class OursWithLiteLLM(Ours):
    """phronomy with litellm."""

    def model(self, calls: int) -> Any:
        """The model at the provider."""
        from phronomy import LiteLLMModel  # noqa: PLC0415

        return LiteLLMModel(f"openai/{model_name(calls)}", base_url=self.url, api_key="none")

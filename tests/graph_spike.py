"""A minimal graph: another rule set over the same loops and the same stores, and graphs for the tests to run.

Here is all that it needs: waves of nodes that run side by side, each a tool or a run of its own (an agent, or another graph), and
one channel for what each node gave. The core knows nothing of it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash_worker import NEVER, Bomb, BombedStore, effects, outline
from drivers import PATIENCE, Driver

from phronomy import Agent, Approve, Checkpoint, IllegalOutcome, Limits, Respond, Result, Tool, ToolContext, tool
from phronomy.conversation.input import read_input
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import canonical
from phronomy.records import chain
from phronomy.records.calls import Call, Finished, Judged, Outcome, Replied
from phronomy.records.checkpoint import AgentRef
from phronomy.records.decisions import OnExpiry
from phronomy.records.moves import Done, Finish, Judge, Move
from phronomy.rules import transitions
from phronomy.rules.table import phase
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

# The rule set


class Inside(Tool):
    """A node that is a run of its own. What fails in it is raised as it is."""

    on_failure = "human"

    def __init__(self, name: str, inner: Agent[Any, Any]) -> None:
        self.name = name
        self.inner = inner
        super().__init__()

    def execute(self, seen: dict[str, Any]) -> str:
        raise AssertionError("the run inside is driven; its tool is never called")


@dataclass(frozen=True, kw_only=True)
class Within:
    """The run inside a node, begun with what the node may see."""

    spec: Any
    call: Call
    is_body: bool = False

    def begin(self, parent: Checkpoint, path: str, at: Any) -> Checkpoint:
        assert self.call.args is not None
        original, said = read_input(self.call.args["seen"])
        return chain.begin(
            None,
            id=new_id("ckpt"),
            run_id=parent.run_id,
            branch_id=parent.branch_id,
            thread_id=parent.thread_id,
            at=at,
            agent=self.spec.ref,
            original_input=original,
            messages=(said,),
            kind=self.spec.kind,
            path=path,
        )


@dataclass(frozen=True, kw_only=True)
class GraphSpec:
    """The rules and the nodes of a graph. Its state: what each node gave, by name. A turn is a wave."""

    kind: str = "graph"
    name: str
    waves: tuple[tuple[str, ...], ...]
    tools: Mapping[str, Tool]
    max_parallel: int = 8
    limits: Limits = Limits(turns=None)
    output: None = None
    output_retries: None = None
    hooks: tuple[()] = ()
    announcements: tuple[()] = ()
    conversation: None = None
    handler: None = None
    breakpoints: tuple[()] = ()
    hold: None = None
    input_guardrails: tuple[()] = ()
    output_guardrails: tuple[()] = ()
    tool_guardrails: tuple[()] = ()
    policy: tuple[()] = ()
    scopes: None = None
    is_eager: bool = False

    @property
    def flow(self) -> GraphSpec:
        return self

    def speaking(self, state: Checkpoint) -> GraphSpec:
        return self

    def over(self, state: Checkpoint) -> dict[str, str]:
        return {}

    def expiry(self, tool: Tool) -> tuple[float | None, OnExpiry]:
        return tool.approval_timeout, tool.on_expiry or "reject"

    def plan(self, state: Checkpoint) -> Move:
        state = transitions.current(state, self.apply)
        if state.ended:
            return Done(status=state.ended)
        if state.calls:
            return transitions.plan_calls(state, self)
        if state.ending or state.rejecting:
            return Finish(status=state.ending.status if state.ending else "rejected")
        if state.turn < len(self.waves):
            return Judge(calls=self.wave(state))
        return Finish(status="completed", output=state.state[self.waves[-1][0]])

    def apply(self, state: Checkpoint, outcome: Outcome) -> Checkpoint:
        between = not (state.calls or state.ended or state.ending or state.rejecting)
        match outcome:
            case Finished() if not state.calls and not state.ended:
                return state.model_copy(update={"ended": outcome.status, "output": outcome.json_text("output")})
            case Judged() if between and state.turn < len(self.waves):
                opened = state.model_copy(update={"turn": state.turn + 1, "calls": self.wave(state)})
                return self.collect(opened, transitions.apply(opened, outcome))
            case Replied():
                raise IllegalOutcome(phase(state), type(outcome).__name__)
            case _:
                return self.collect(state, transitions.apply(state, outcome))

    def wave(self, state: Checkpoint) -> tuple[Call, ...]:
        """The calls of the next wave: each node sees the input and what the waves before gave."""
        seen = canonical({"seen": {"input": state.original_input, **(state.state or {})}})
        number = state.turn + 1
        return tuple(
            Call(id=f"{number}.{place}", call_id=f"{name}-{number}", name=name, arguments=seen)
            for place, name in enumerate(self.waves[state.turn])
        )

    def collect(self, before: Checkpoint, after: Checkpoint) -> Checkpoint:
        """The state with what the nodes of a wave gave, once all of it has settled."""
        if after.calls or not before.calls:
            return after
        told = after.messages[len(before.messages) :]
        gave = {call.name: message.text for call, message in zip(before.calls, told, strict=True)}
        floors = [
            node.name for node in self.tools.values() if isinstance(node, Inside) and node.inner.spec.kind == "graph"
        ]
        gave |= {name: json.loads(gave[name]) for name in floors if gave.get(name, "")[:1] == '"'}
        return after.model_copy(update={"state": canonical({**(before.state or {}), **gave})})

    def tool(self, call: Call) -> Tool | None:
        return self.tools.get(call.name)

    def stops(self, state: Checkpoint, call: Call) -> bool:
        return False

    def facts_in(self, state: Checkpoint) -> None:
        return None

    def label_of(self, before: Checkpoint, after: Checkpoint) -> None:
        return None

    def advance(self, state: Checkpoint, deps: Any) -> Any:
        raise AssertionError("this graph goes on by itself")

    def lost(self, state: Checkpoint) -> tuple[()]:
        return ()

    def point_of(self, call: Call) -> None:
        return None

    def inside(self) -> list[Any]:
        return [node.inner.spec for node in self.tools.values() if isinstance(node, Inside)]

    def shown_state(self, state: Checkpoint) -> Any:
        return state.state

    def node_of(self, call: Call) -> str:
        return call.name

    def edits(self, runner: Any, at: Any, by: Any) -> tuple[()]:
        return ()

    def first(self, input: Any, parent: Checkpoint | None, history: Any) -> dict[str, Any]:
        original, said = read_input(input)
        return {"original_input": original, "messages": (said,)}

    def nested(self, state: Checkpoint, call: Call) -> Within | None:
        node = self.tool(call)
        return Within(spec=node.inner.spec, call=call) if isinstance(node, Inside) else None

    @property
    def ref(self) -> AgentRef:
        shape = {name: [node.schema_hash, node.gate] for name, node in self.tools.items()}
        return AgentRef(name=self.name, fingerprint=canonical({"tools": shape, "instructions": "", "model": ""}))

    def refuse_async(self, method: str) -> None:
        for node in self.tools.values():
            if isinstance(node, Inside):
                node.inner.spec.refuse_async(method)


class Graph(Agent[Any, str]):
    """The face of an agent over the rules of a graph."""

    def __init__(self, name: str, *waves: tuple[Any, ...], store: Store | None = None, **options: Any) -> None:
        nodes = {node.name: node for wave in waves for node in wave}
        shape = tuple(tuple(node.name for node in wave) for wave in waves)
        object.__setattr__(self, "_graph", GraphSpec(name=name, waves=shape, tools=nodes))
        super().__init__(name=name, **options, **({"store": store} if store is not None else {}))

    def _checked(self) -> Any:
        return self._graph


# The scenarios


class Desk:
    """Makes graphs whose every effect is a line in a file: the name of the tool, and its idempotency key."""

    def __init__(self, folder: Path, driver: Driver, bomb: Bomb | None = None) -> None:
        self.folder = folder
        self.driver = driver
        self.bomb = bomb or Bomb(NEVER)

    def act(self, name: str, context: ToolContext[Any]) -> str:
        self.bomb.tick()
        with (self.folder / "effects").open("a") as file:
            file.write(f"{name} {context.idempotency_key}\n")
        self.bomb.tick()
        return f"{name} is done"

    def node(self, name: str, **options: Any) -> Tool:
        """A plain node."""

        def body(seen: dict[str, Any], ctx: ToolContext[Any]) -> str:
            """Do it."""
            return self.act(name, ctx)

        return tool(name=name, **options)(self.driver.function(body))

    def tool(self, name: str, **options: Any) -> Tool:
        """A tool of a nested agent."""

        def body(ctx: ToolContext[Any]) -> str:
            """Do it."""
            return self.act(name, ctx)

        return tool(name=name, **options)(self.driver.function(body))

    def agent(self, name: str, *gated: str, model: ScriptedModel | None = None) -> Inside:
        """A node with an agent inside, which reads something and then does what a human must approve."""
        tools = [self.tool(f"{name}_reads"), *(self.tool(each, requires_approval=True) for each in gated)]
        replies = [[call(each.name, {}) for each in tools], f"{name} has finished"]
        return Inside(name, Agent(name=name, model=model or ScriptedModel.by_turn(replies), tools=tools))

    def office(self, store: Store) -> Graph:
        """An entry, a wave of a plain node, a nested agent and a gated node, and a join."""
        wave = (self.node("count"), self.agent("clerk", "pay"), self.node("wipe", requires_approval=True))
        return Graph("office", (self.node("open"),), wave, (self.node("close"),), store=store)

    def pair(self, store: Store) -> Graph:
        """Two nested agents in one wave, both of which come to wait."""
        return Graph(
            "pair", (self.agent("left", "pay"), self.agent("right", "wire")), (self.node("close"),), store=store
        )

    def tower(self, store: Store, **options: Any) -> Graph:
        """An agent that asks nobody, then an agent inside a graph inside the graph."""
        inner = Inside("floor", Graph("floor", (self.agent("clerk", "pay"), self.node("count"))))
        return Graph("tower", (self.agent("scout"),), (inner,), (self.node("close"),), store=store, **options)

    @property
    def done(self) -> list[str]:
        """What was done, sorted: nodes of a wave run side by side."""
        return sorted(line.split()[0] for line in effects(self.folder))


class Slow(Desk):
    """Holds one tool up, so that others can act while it runs."""

    def __init__(self, folder: Path, driver: Driver, slow: str) -> None:
        super().__init__(folder, driver)
        self.slow = slow
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.seen: list[bool] = []

    def act(self, name: str, context: ToolContext[Any]) -> str:
        if name == self.slow:
            self.entered.set()
            assert self.go_on.wait(PATIENCE)
            self.seen.append(context.cancelled)
        return super().act(name, context)

    def start(self, work: Any) -> tuple[threading.Thread, list[Result[Any]]]:
        """Do the work in a thread, and wait until the slow tool is entered."""
        results: list[Result[Any]] = []
        thread = threading.Thread(target=lambda: results.append(work()))
        thread.start()
        assert self.entered.wait(PATIENCE)
        return thread, results


def carry_on(folder: str, scenario: str, driver: Driver, kill_at: int, later: float) -> None:
    """Take a scenario as far as the bomb lets it, from wherever it stands, with a human who looks before he answers."""
    desk = Desk(Path(folder), driver, Bomb(kill_at))
    store = BombedStore(str(desk.folder / "runs.db"), clock=lambda: time.time() + later)
    store.bomb = desk.bomb
    with store:
        graph = getattr(desk, scenario)(store)
        branches = store.branches(thread_id="t")
        run = branches[-1].id if branches else None
        result = driver.recover(graph, run) if run else driver.invoke(graph, "Monday", thread_id="t")
        while result.suspended:
            item = result.checkpoint.pending[-1]
            looked = item.why == "outcome_unknown" and item.tool_name in desk.done
            answer = Respond(content=f"{item.tool_name} is done") if looked else Approve()
            result = driver.resume(graph, result.checkpoint, decisions={item.id: answer})
        (desk.folder / "end").write_text(f"{outline(result.checkpoint)} {result.checkpoint.state}")

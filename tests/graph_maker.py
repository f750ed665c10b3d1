"""Random graphs for tests: a plan of plain data, drawn or seeded, and the graph that is built of it, anew for each process.

Every node is named by its place (`"c_a"` is the node `a` of the graph in `c`), so that what a human says to it, and what it does to
the world, is told by its name alone. A plan is built in two ways: to stop wherever it may, and, as the reference, to stop nowhere:
then gates are answered by the handler, questions at once, and there are no breakpoints.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from phronomy import Agent, Approve, Checkpoint, PendingApproval, Reject, Respond, Tool, ToolContext, tool
from phronomy.graph import END, START, Abort, Graph, Pause, Replan, Send, StateGraph, add, append, interrupt, merge
from phronomy.rules import authorization
from phronomy.testing import ScriptedModel, call

Pick = Callable[[int], int]
"""Picks one of so many: a draw of hypothesis, or a seeded generator."""


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """One node. `gate`, `verdict`: whether a human is asked, and what he says. `fails`: how often each of its calls raises first."""

    name: str
    kind: str = "plain"
    gate: str = "never"
    verdict: str = "approve"
    on_rejection: str | None = None
    asks: int = 0
    signal: str | None = None
    to: str | None = None
    fails: int = 0
    asks_on_failure: bool = False
    is_idempotent: bool = False
    is_async: bool = False
    is_sent: bool = False
    shares: bool = False
    inner: GraphPlan | None = None
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RoutePlan:
    """A route after a node: `"branch"` by the state, `"loop"` back to the first target so many times, `"send"` of so many runs."""

    source: str
    kind: str
    targets: tuple[str, ...]
    times: int = 1
    is_mapped: bool = False
    is_async: bool = False


@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """A graph. The first node is where it begins; `before` and `after` are its breakpoints."""

    name: str
    depth: int
    nodes: tuple[NodePlan, ...]
    edges: tuple[tuple[str, str], ...]
    joins: tuple[tuple[tuple[str, ...], str], ...]
    routes: tuple[RoutePlan, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]

    def all_nodes(self) -> list[NodePlan]:
        """Its nodes, and those of the graphs inside."""
        return [each for node in self.nodes for each in (node, *(node.inner.all_nodes() if node.inner else ()))]


# Drawing


def draw_graph(pick: Pick, *, name: str = "g", depth: int = 0, prefix: str = "") -> GraphPlan:
    """A plan whose graph compiles and ends."""
    count = 2 + pick(5) if depth == 0 else 1 + pick(3)
    names = [f"{prefix}{'abcdef'[place]}" for place in range(count)]
    edges: list[tuple[str, str]] = []
    joins: list[tuple[tuple[str, ...], str]] = []
    branches: dict[str, list[str]] = {}
    sends: dict[str, list[str]] = {}
    for place in range(1, count):
        source, way = names[pick(place)], pick(6)
        if way == 4:
            branches.setdefault(source, []).append(names[place])
        elif way == 5:
            sends.setdefault(source, []).append(names[place])
        else:
            edges.append((source, names[place]))
        if place >= 2 and pick(4) == 0:
            joins.append((tuple(names[place - 2 : place]), names[place]))
        elif place >= 2 and pick(4) == 0 and (names[place - 2], names[place]) not in edges:
            edges.append((names[place - 2], names[place]))
    routes = [_route(pick, source, "branch", targets) for source, targets in branches.items()]
    routes += [_route(pick, source, "send", targets) for source, targets in sends.items()]
    if pick(4) == 0:
        routes.append(RoutePlan(source=START, kind="branch", targets=(names[0],)))
    else:
        edges.append((START, names[0]))
    going = {source for source, _ in edges} | {route.source for route in routes if route.kind == "branch"}
    edges += [(each, END) for each in names if each not in going]
    sent = {each for targets in sends.values() for each in targets}
    nodes = tuple(_node(pick, names, place, depth, names[place] in sent) for place in range(count))
    last = pick(count)
    if (
        nodes[last].kind == "plain" and nodes[last].verdict in ("approve", "edit") and pick(2)
    ):  # those count their visits
        routes.append(_route(pick, names[last], "loop", [names[pick(last + 1)]]))
    return GraphPlan(
        name=name,
        depth=depth,
        nodes=nodes,
        edges=tuple(edges),
        joins=tuple(joins),
        routes=tuple(routes),
        before=tuple(each for each in names if pick(6) == 0),
        after=tuple(each for each in names if pick(6) == 0),
    )


def _route(pick: Pick, source: str, kind: str, targets: list[str]) -> RoutePlan:
    ends = (END,) if kind == "loop" or (kind == "branch" and pick(2)) else ()
    return RoutePlan(
        source=source,
        kind=kind,
        targets=(*targets, *ends),
        times=1 + pick(2),
        is_mapped=kind != "send" and pick(2) == 0,
        is_async=pick(2) == 0,
    )


def _node(pick: Pick, names: list[str], place: int, depth: int, is_sent: bool) -> NodePlan:
    name, later = names[place], names[place + 1 :]
    gated = pick(3) == 0
    plan = NodePlan(
        name=name,
        gate=("always", "predicate")[pick(2)] if gated else "never",
        verdict=("approve", "approve", "edit", "respond", "reject")[pick(5)] if gated else "approve",
        on_rejection=later[pick(len(later))] if later and pick(3) else None,
        is_async=pick(2) == 0,
        is_sent=is_sent,
    )
    kind = pick(8)
    if kind == 0 and depth < 2:
        inner = draw_graph(pick, name=f"graph {name}", depth=depth + 1, prefix=f"{name}_")
        return replace(plan, kind="graph", inner=inner, shares=pick(2) == 0, verdict=_approving(plan))
    if kind == 1:
        tools = tuple(each for each in ("look", "pay", "ask") if pick(2))
        return replace(plan, kind="agent", tools=tools, verdict=_approving(plan))
    odd = pick(8)
    return replace(
        plan,
        asks=(1, 2, 0, 0, 0, 0)[pick(6)],
        signal="pause"
        if odd == 0
        else "replan"
        if odd == 1 and not is_sent
        else "abort"
        if odd == 2 and pick(4) == 0
        else None,
        to=names[pick(len(names))] if odd == 1 and pick(2) else None,
        fails=1 if pick(8) == 0 else 0,
        asks_on_failure=pick(2) == 0,
        is_idempotent=odd < 3 or pick(2) == 0,  # a human who looks sees an update, and no signal
    )


def _approving(plan: NodePlan) -> str:
    """Its verdict, where nobody can stand in for the whole run inside the node."""
    return "approve" if plan.verdict == "respond" else plan.verdict


@st.composite
def graphs(draw: st.DrawFn) -> GraphPlan:
    """Plans of graphs."""
    return draw_graph(lambda count: draw(st.integers(0, count - 1)))


# The world around the graph


class Died(BaseException):
    """The process is no more. What its other threads still try comes to nothing as well."""


class Fuse:
    """Counts the places where a process may die, and has it die at one of them: by SIGKILL, or as far as one process can by itself."""

    def __init__(self, at: int | None = None, *, kills: bool = False) -> None:
        self.passed = 0
        self.burnt = False
        self._at, self._kills = at, kills
        self._lock = threading.Lock()

    def place(self) -> None:
        """Pass a place."""
        with self._lock:
            self.passed += 1
            if self.passed == self._at and self._kills:
                os.kill(os.getpid(), signal.SIGKILL)
            self.burnt = self.burnt or self.passed == self._at
            if self.burnt:
                raise Died


@dataclass
class World:
    """What nodes do, and what a human has allowed: lines, which outlive every process, in a file if one is given.

    `immediate` is a world in which nothing stops.
    """

    immediate: bool = False
    file: Path | None = None
    fuse: Fuse = field(default_factory=Fuse)
    told: list[dict[str, Any]] = field(default_factory=list)

    def note(self, what: str, **facts: Any) -> None:
        """Add a line."""
        if self.file is None:
            self.told.append({"what": what, **facts})
            return
        file = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{json.dumps({'what': what, **facts})}\n".encode())
        os.close(file)

    def lines(self, what: str) -> list[dict[str, Any]]:
        """The lines of this kind."""
        told = self.told
        if self.file is not None:
            told = [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []
        return [line for line in told if line["what"] == what]

    def allow(self, ids: Iterable[str]) -> None:
        """A human lets these go on."""
        for id in ids:
            self.note("allowed", id=id)

    def act(self, name: str, saw: str, ctx: ToolContext[Any], gave: Any, *, is_idempotent: bool = False) -> None:
        """Have an effect: who acts, what it saw, its idempotency key, and what it gives, for whoever looks later."""
        self.fuse.place()
        self.note("act", name=name, saw=saw, key=ctx.idempotency_key, gave=gave, again=is_idempotent)
        self.fuse.place()

    def enter(self, name: str, gate: str, ctx: ToolContext[Any]) -> None:
        """A body begins: what waited must have been allowed."""
        if self.immediate:
            return
        if gate == "always" and ctx.pending_id is None:
            self.note("wrong", why=f"{name} ran, and nobody was asked")
        if ctx.pending_id is not None and ctx.pending_id not in {line["id"] for line in self.lines("allowed")}:
            self.note("wrong", why=f"{name} ran, and {ctx.pending_id} was not allowed")

    def fail(self, plan: NodePlan, ctx: ToolContext[Any]) -> None:
        """Raise, as often as planned for each call."""
        key = ctx.idempotency_key
        if not self.immediate and sum(line["key"] == key for line in self.lines("raised")) < plan.fails:
            self.note("raised", key=key)
            raise ConnectionError(f"{plan.name} is not to be had")

    def ask(self, name: str, number: int) -> Any:
        """The answer to a question of a body."""
        if self.immediate:
            return answer_to(name, str(number))
        return interrupt({"of": name, "number": number}, key=str(number), answer=int)

    @property
    def effects(self) -> Counter[tuple[str, str]]:
        """What was done, by whom, seeing what; each as often as that. What was done again with the same key counts once."""
        found = {(line["name"], line["saw"], line["key"]) for line in self.lines("act")}
        return Counter((name, saw) for name, saw, _ in found)

    def check(self) -> None:
        """Nothing ran that was not allowed, and nothing was done twice that may not be."""
        assert self.lines("wrong") == []
        times = Counter((line["name"], line["key"]) for line in self.lines("act") if not line["again"])
        assert [each for each, count in times.items() if count > 1] == []


def answer_to(name: str, key: str) -> int:
    """What a human answers to a question of a node."""
    return zlib.crc32(f"{name} {key}".encode()) % 10


def saying(plan: GraphPlan, world: World, at: Checkpoint, item: PendingApproval) -> Any:
    """What a human says to what waits, whatever it is. Where nobody knows what became of it, he looks."""
    if item.why == "question":
        return Respond(content=answer_to(item.tool_name, item.args["key"]))
    if item.why == "outcome_unknown":
        keys = {
            authorization.idempotency_key(part, call)
            for part in (at, *at.nested)
            for call in part.calls
            if call.pending_id == item.id
        }
        done = [line["gave"] for line in world.lines("act") if line["key"] in keys]
        return Respond(content=done[-1]) if done else Approve()
    if item.why != "approval":
        return Approve()
    return verdict(plan, item.tool_name, item.args)


def verdict(plan: GraphPlan, name: str, args: dict[str, Any]) -> Any:
    """What a human says to a gated node, or to a gated tool of an agent inside, shown these arguments."""
    node = next((each for each in plan.all_nodes() if each.name == name), None)
    if node is None:  # a tool of an agent
        return (Approve(), Reject(reason="no"), Respond(content=f"{name} by hand"))[zlib.crc32(name.encode()) % 3]
    match node.verdict:
        case "edit" if args.get("state") is not None:
            return Approve(args={**args, "state": {**args["state"], "total": 100}})
        case "edit" if isinstance(args.get("arg"), dict):
            return Approve(args={"arg": dict.fromkeys(args["arg"], 100)})
        case "respond":
            return Respond(content=by_hand(name))
        case "reject":
            return Reject(reason="no")
        case _:
            return Approve()


def by_hand(name: str) -> dict[str, Any]:
    """The update of a human who stands in for a node."""
    return {"log": [f"{name} by hand"], "total": 3}


def handled(plan: GraphPlan, name: str, args: dict[str, Any]) -> Any:
    """What a handler says. It cannot stand in for a node: the node itself does, where nothing stops."""
    said = verdict(plan, name, args)
    return Approve() if isinstance(said, Respond) else said


# Building


def tally(old: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    """A reducer of our own: counts are added up."""
    return {key: old.get(key, 0) + new.get(key, 0) for key in sorted({*old, *new})}


@functools.cache
def state_of(plan: GraphPlan) -> type[BaseModel]:
    """The class of its state. `log`, `facts` and `total` are shared with graphs inside; the others are its own."""
    fields: dict[str, Any] = {
        "log": (Annotated[list[str], append], []),
        "facts": (Annotated[dict[str, int], merge], {}),
        "total": (Annotated[int, add], 0),
        visits(plan): (Annotated[dict[str, int], tally], {}),
        f"best_{plan.depth}": (Annotated[int, max], 0),
    }
    fields |= {own_channel(node): (str, "") for node in plan.nodes}
    return create_model(f"State{plan.depth}", **fields)


def visits(plan: GraphPlan) -> str:
    """The channel that counts how often each node was run."""
    return f"visits_{plan.depth}"


def own_channel(node: NodePlan) -> str:
    """The channel that a node alone writes, by `replace`."""
    return f"own_{node.name}"


def build(plan: GraphPlan, world: World, *, is_async: bool = False, **options: Any) -> Graph[Any, Any]:
    """The graph of a plan, as a process that begins has it. The options are those of `compile`."""
    return compiled(plan, world, builder(plan, world, is_async=is_async), **options)


def builder(plan: GraphPlan, world: World, *, is_async: bool = False) -> StateGraph[Any]:
    """All of a graph that is known before it is compiled."""
    graph: StateGraph[Any] = StateGraph(state_of(plan), name=plan.name)
    for node in plan.nodes:
        graph.add_node(node.name, _made(plan, node, world, is_async), **_options(plan, node))
    for source, target in plan.edges:
        graph.add_edge(source, target)
    for sources, target in plan.joins:
        graph.add_edge(sources, target)
    for route in plan.routes:
        path: Any = _path(plan, route)
        targets: Any = {f"to {each}": each for each in route.targets} if route.is_mapped else list(route.targets)
        graph.add_conditional_edges(route.source, _awaited(path) if is_async and route.is_async else path, targets)
    return graph


def compiled(plan: GraphPlan, world: World, graph: StateGraph[Any], **options: Any) -> Graph[Any, Any]:
    """The graph, made to stop where its plan says, or nowhere."""
    if world.immediate:
        options["on_approval_required"] = functools.partial(handled, plan)
    else:
        options |= {"interrupt_before": plan.before, "interrupt_after": plan.after}
    return graph.compile(**options)


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def twin(*args: Any, **options: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args, **options)

    return twin


def _made(plan: GraphPlan, node: NodePlan, world: World, is_async: bool) -> Any:
    if node.inner is not None:
        return build(node.inner, world, is_async=is_async)
    if node.kind == "agent":
        return _agent(node, world, is_async)
    body = functools.partial(_act, plan, node, world)

    def run(seen: Any, ctx: ToolContext[Any]) -> Any:
        return body(seen, ctx)

    return _awaited(run) if is_async and node.is_async else run


def _options(plan: GraphPlan, node: NodePlan) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if node.gate != "never":
        options["requires_approval"] = True if node.gate == "always" else _is_asked
        options["on_rejection"] = node.on_rejection
    if node.kind == "plain":
        options["idempotent"] = node.is_idempotent
        options["retry_wait"] = 0.0
        options["on_failure"] = "human" if node.asks_on_failure else "stop"
        if node.is_idempotent:
            options["retries"] = 0 if node.asks_on_failure else 2
        if node.signal == "replan":
            options["destinations"] = [node.to] if node.to else []
    elif node.kind == "agent":
        options |= {"input": _told_to_agent, "output": lambda text: {"log": [f"{node.name}: {text}"]}}
        if not node.is_sent and node.is_async:
            options["output"] = own_channel(node)
    elif not node.shares:
        options |= {"input": _given_to_graph, "output": functools.partial(_taken_from_graph, node)}
    return options


def _is_asked(state: Any) -> bool:
    """A predicate gate: it depends on the state."""
    return bool((sum(state.values()) if isinstance(state, dict) else state.total) % 2 == 0)


def _told_to_agent(seen: Any) -> str:
    return f"You are given {saw(seen)}."


def _given_to_graph(seen: Any) -> dict[str, Any]:
    return {"total": seen["sent"] if isinstance(seen, dict) else seen.total, "log": ["given"]}


def _taken_from_graph(node: NodePlan, state: Any) -> dict[str, Any]:
    return {"log": [f"{node.name}: {len(state.log)}"], "facts": dict(state.facts), "total": state.total % 7}


def saw(seen: Any) -> str:
    """What a node saw, in short."""
    values = seen if isinstance(seen, dict) else seen.model_dump()
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def _act(plan: GraphPlan, node: NodePlan, world: World, seen: Any, ctx: ToolContext[Any]) -> Any:
    """The body of a plain node: what may stop it comes first, then its effect, then its update."""
    if world.immediate and node.verdict == "respond" and (node.gate == "always" or _is_asked(seen)):
        return by_hand(node.name)
    world.enter(node.name, node.gate, ctx)
    answers = [world.ask(node.name, number) for number in range(node.asks)]
    world.fail(node, ctx)
    count = seen["sent"] if isinstance(seen, dict) else len(seen.log)
    update: dict[str, Any] = {
        "log": [f"{node.name} {saw(seen)}"],
        "facts": {node.name: count},
        "total": 1 + sum(answers),
        visits(plan): {node.name: 1},
        f"best_{plan.depth}": count,
    }
    if not node.is_sent:
        update[own_channel(node)] = saw(seen)
    world.act(node.name, f"{saw(seen)} {answers}", ctx, update, is_idempotent=node.is_idempotent)
    if node.signal == "pause" and not world.immediate:
        return Pause(update)
    if node.signal == "abort":
        return Abort(update, reason="enough")
    if node.signal == "replan" and getattr(seen, visits(plan)).get(node.name, 0) == 0:
        return Replan(update, to=node.to)
    return update


def _path(plan: GraphPlan, route: RoutePlan) -> Callable[[Any], Any]:
    def meant(name: str) -> str:
        return f"to {name}" if route.is_mapped else name

    def path(state: Any) -> Any:
        if route.kind == "send":
            inner = {node.name for node in plan.nodes if node.inner is not None and node.shares}
            return [
                Send(target, {"total": number} if target in inner else {"sent": number})
                for target in route.targets
                for number in range(route.times)
            ]
        if route.kind == "loop":
            again = getattr(state, visits(plan)).get(route.source, 0) <= route.times
            return meant(route.targets[0 if again else 1])
        return meant(route.targets[state.total % len(route.targets)])

    return path


# Agents


def _agent(node: NodePlan, world: World, is_async: bool) -> Agent[Any, Any]:
    tools = [_tool(f"{node.name}_{each}", each, world, is_async and node.is_async) for each in node.tools]
    replies: list[Any] = [[call(each.name, {}) for each in tools], f"{node.name} has finished"]
    options: dict[str, Any] = {}
    if world.immediate:
        options["on_approval_required"] = functools.partial(handled, NOBODY)
    return Agent(name=node.name, model=ScriptedModel.by_turn(replies[0 if tools else 1 :]), tools=tools, **options)


def _tool(name: str, kind: str, world: World, is_async: bool) -> Tool:
    gate = "always" if kind == "pay" else "never"

    def body(ctx: ToolContext[Any]) -> str:
        """Do it."""
        said = verdict(NOBODY, name, {}) if gate == "always" else None
        if world.immediate and isinstance(said, Respond):
            return str(said.content)
        world.enter(name, gate, ctx)
        answers = [world.ask(name, 0)] if kind == "ask" else []
        world.act(name, str(answers), ctx, gave := f"{name} is done {answers}")
        return gave

    return tool(name=name, requires_approval=kind == "pay")(_awaited(body) if is_async else body)


NOBODY = GraphPlan(name="none", depth=0, nodes=(), edges=(), joins=(), routes=(), before=(), after=())

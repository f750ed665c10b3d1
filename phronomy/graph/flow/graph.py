"""`StateGraph`, with which a graph is built, and `Graph`, which runs: waves of nodes over a typed state, each wave a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Self, TypedDict, get_args

from typing_extensions import TypeVar, Unpack

from phronomy.agents.spec import handled
from phronomy.approvals.policy import ApprovalPolicy, check_rules, rules_of
from phronomy.engine.spec import Handler
from phronomy.engine.stop_points import checked as checked_breakpoints
from phronomy.engine.stop_points import specs_in
from phronomy.errors import CheckpointError, ConfigurationError, GraphError
from phronomy.foundation import spelling
from phronomy.foundation.checks import is_async, is_count, is_series, is_timeout
from phronomy.foundation.ids import findable
from phronomy.foundation.quoting import quoted_name
from phronomy.graph.flow.node import (
    Inside,
    Node,
    check_function,
    check_options,
    checked_names,
    fallback_name,
    is_name,
    refuse_unknown,
)
from phronomy.graph.flow.routes import Routes, route_of
from phronomy.graph.flow.spec import GraphSpec, Stops
from phronomy.graph.flow.stops import GraphStop, marks_of, stop_of
from phronomy.graph.flow.waves import channels_of
from phronomy.graph.signals import END, START
from phronomy.graph.state.state import StateSchema
from phronomy.graph.state.streams import is_generator
from phronomy.observability.announcements import Announcements
from phronomy.observability.drawings.drawing import Edge, flow_mermaid, flow_svg
from phronomy.observability.hooks import Hooks
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import OnExpiry
from phronomy.records.principals import Principal
from phronomy.runs.finding import lookup
from phronomy.runs.options import CallOptions, Trust
from phronomy.runs.runs import Runs
from phronomy.stops.breakpoints import Breakpoint
from phronomy.stores.base import Store
from phronomy.stores.derived import forking
from phronomy.stores.memory import MemoryStore
from phronomy.stores.native import in_store
from phronomy.tools.approval import Approval
from phronomy.tools.context import Deps
from phronomy.tools.tool import Tool, ToolOptions

State = TypeVar("State", default=dict[str, Any], covariant=True)  # noqa: PLC0105  # as `Output`

Names = str | Sequence[str]
"""The name of a node, or several names."""


class NodeOptions(TypedDict, total=False):
    """The options of a node in `add_node`.

    - `requires_approval`: True, a predicate of the state, or an `Approval` whose functions take the state: a human must
      approve before the node runs. `on_rejection`: the node that follows if it is rejected or expires (default: the run
      ends as rejected or cancelled).
      `approval_timeout` (seconds), `on_expiry` and `risk` are as for tools.
    - `idempotent`: the node may safely run again, and does so after a crash. `retries`: how many more attempts after an
      exception (2 if it is idempotent, else 0); they need `idempotent`, or `retry_on` with the exceptions that come
      before any effect. `retry_wait`: the first pause in seconds, which doubles. `timeout`: seconds for one attempt.
      An agent or a graph with `retries` continues where it has failed; its `timeout` is the time in which it works,
      without the time of humans.
    - `fallback`: functions that run, one after another, after the last attempt. `on_failure`: `"stop"` (the run fails,
      and a resume runs the node again) or `"human"` (a human decides).
    - `calls`: the tools that the function may call through their gates, with `call_tool` of its `ToolContext`.
    - `destinations`: the targets of a `Replan`, for a node without edges. `streams`: the channels that a generator
      yields in pieces; it yields any other channel at most once.
    - For an agent or a graph: `input` makes its input from the state, and `output` turns its output into an update.
      Each is a function or the name of a channel. A graph needs neither: it gets and returns the channels that both
      states have. `messages`, for an agent, is a function of the state that returns the messages with which it starts.
    """

    requires_approval: bool | Callable[[Any], Any] | Approval
    on_rejection: str | None
    idempotent: bool
    retries: int
    retry_wait: float
    retry_on: tuple[type[Exception], ...]
    timeout: float | None
    fallback: Any
    on_failure: Literal["stop", "human"]
    calls: Sequence[Any]
    approval_timeout: float | None
    on_expiry: OnExpiry | None
    risk: str | None
    destinations: Sequence[str]
    streams: Sequence[str]
    input: str | Callable[[Any], Any]
    output: str | Callable[[Any], Any]
    messages: Callable[[Any], Any]


class GraphOptions(TypedDict, total=False):
    """The options of `compile`. The attributes of `Graph` with the same names describe them."""

    name: str
    store: Store | None
    trust: Trust | None
    interrupt_before: Sequence[str]
    interrupt_after: Sequence[str]
    max_steps: int | None
    max_parallel: int
    hooks: Sequence[Hooks]
    announcements: Sequence[Announcements]
    breakpoints: Iterable[Breakpoint]
    approval_timeout: float | None
    on_expiry: OnExpiry
    on_approval_required: Handler
    approval_policy: ApprovalPolicy


class StateGraph(
    spelling.Given,
    Generic[State],
    elsewhere={
        option: f"give it to compile, as in compile({option}=...)."
        for option in GraphOptions.__annotations__.keys() - {"name"}
    },
):
    """Builds a graph: its nodes, which share a typed state, and the edges between them.

    `state` is a pydantic model or a TypedDict. Its fields are the channels. `Annotated[list[str], append]` gives a
    channel a reducer, which merges the updates of nodes. `compile` checks the whole graph, and returns the `Graph`. A
    mistake is a `GraphError`.
    """

    def __init__(self, state: type[State], *, name: str | None = None) -> None:
        if name is not None and (not isinstance(name, str) or not name):
            raise GraphError(f"the name of a graph is text that is not empty, not {quoted_name(name)}")
        called: str = getattr(state, "__name__", type(state).__name__)
        self._name = called if name is None else name
        self._schema = StateSchema(state, name=self._name)
        self._nodes: dict[str, Node | Inside] = {}
        self._edges: dict[str, list[str]] = {}
        self._joins: list[tuple[tuple[str, ...], str]] = []
        self._routes: dict[str, list[tuple[Callable[[Any], object], object]]] = {}

    def add_node(
        self, name: str | Callable[..., object], node: object = None, /, **options: Unpack[NodeOptions]
    ) -> Self:
        """Add a node: a function of the state, an agent, or a graph. Returns the builder.

        If a function has a second parameter, it also gets the `ToolContext`. It returns an update: a mapping of
        channels, None, or a `Continue`, `Pause`, `Abort` or `Replan` with an update. The default name is that of the
        function. Raises `GraphError`.
        """
        if node is None and not isinstance(name, str):
            node, name = name, getattr(name, "__name__", None) or getattr(name, "name", None) or ""
        if not isinstance(name, str) or not is_name(name):
            raise GraphError(
                f"graph {self._name!r}: {quoted_name(name)} cannot name a node: give it 1 to 64 letters, digits, '_' and '-', as in"
                " add_node('name', function)"
            )
        if name in (START, END):
            raise GraphError(f"graph {self._name!r}: {name!r} is no node: give the node another name")
        if name in self._nodes:
            raise GraphError(f"graph {self._name!r}: two nodes are named {name!r}: give one of them another name")
        refuse_unknown(f"graph {self._name!r}, node {name!r}", options, NodeOptions.__annotations__)
        self._nodes[name] = self._make_node(name, node, _with_tuples(options))
        return self

    def _make_node(self, name: str, node: Any, options: dict[str, Any]) -> Node | Inside:
        where, is_run = f"graph {self._name!r}, node {name!r}", isinstance(node, Runs)
        if not is_run and (not callable(node) or isinstance(node, (Tool, type))):
            kind = node.__name__ if isinstance(node, type) else type(node).__name__
            raise GraphError(f"{where} is a function of the state, an agent or a compiled graph, not {kind}")
        check_options(where, options, is_run=is_run)
        try:
            if isinstance(node, Runs):
                return self._inside(name, node, options)
            plain = {key: value for key, value in options.items() if key in _OF_FALLBACKS}
            fallback: Any = options.pop("fallback", None) or ()
            options["fallback"] = tuple(
                Node(fallback_name(name, place, each), each, self._schema, plain | _streams(each, options))
                for place, each in enumerate(fallback if isinstance(fallback, tuple) else (fallback,))
            )
            return Node(name, node, self._schema, options)
        except GraphError as error:
            raise GraphError(f"graph {self._name!r}, {error}") from None
        except ConfigurationError as error:
            raise GraphError(f"{where}: {str(error).removeprefix(f'tool {name}: ')}") from None

    def _inside(self, name: str, node: Runs[Any, object], options: Mapping[str, object]) -> Inside:
        inner = node.spec
        takes, gives = options.get("input"), options.get("output")
        for channel in (takes, gives):
            if isinstance(channel, str) and channel not in self._schema.names:
                raise GraphError(
                    f"node {name!r}: there is no channel {quoted_name(channel)}; the channels are {', '.join(self._schema.names)}"
                )
        plain = not isinstance(inner, GraphSpec) or inner.takes_value
        if plain and (takes is None or gives is None):
            kind = "a pattern" if isinstance(inner, GraphSpec) else "an agent"
            raise GraphError(
                f"node {name!r} is {kind}: say what it is asked and what becomes of its answer, as in"
                f" add_node(name, {kind.partition(' ')[2]}, input='question', output='answer')"
            )
        if not plain and (takes is None) != (gives is None):
            raise GraphError(f"node {name!r} is a graph: give both input and output, or neither")
        if isinstance(inner, GraphSpec) and takes is None:
            shared = [channel for channel in inner.schema.names if channel in self._schema.names]
            if not shared:
                raise GraphError(
                    f"node {name!r} is a graph that shares no channel with this one: give input and output"
                )
            for channel in shared:
                if self._schema.reducers[channel].name == "custom":
                    raise GraphError(
                        f"node {name!r} shares channel {channel!r}, whose reducer is a function of yours: what the graph inside"
                        " changed in it cannot be told; give input and output"
                    )
        return Inside(name, node, self._schema, options)

    def add_edge(self, start: Names, end: str) -> Self:
        """Run the node `end` after `start`. With several starts (a join), it runs when all of them have finished.

        Returns the builder. Raises `GraphError`.
        """
        where = f"graph {self._name!r}"
        if not isinstance(end, str):
            raise GraphError(f"{where}: an edge leads to the name of a node or END, not to {type(end).__name__}")
        if is_series(start):
            starts = tuple(start)
            if not all(isinstance(each, str) for each in starts) or not 1 < len(starts) == len(set(starts)):
                raise GraphError(f"{where}: a join into {end!r} names several nodes, each once")
            if any(set(starts) == set(each) and end == there for each, there in self._joins):
                raise GraphError(f"{where}: there is a join of {', '.join(starts)} into {end!r} already")
            self._joins.append((starts, end))
            return self
        if not isinstance(start, str):
            raise GraphError(f"{where}: an edge begins at START, a node or a list of nodes, not {type(start).__name__}")
        if end in self._edges.setdefault(start, []):
            raise GraphError(f"{where}: there is an edge from {start!r} to {end!r} already")
        self._edges[start].append(end)
        return self

    def add_conditional_edges(
        self, source: str, path: Callable[[Any], object], path_map: Mapping[Hashable, str] | Sequence[str] | None = None
    ) -> Self:
        """After `source`, call `path` with the state to find the next nodes. Returns the builder.

        `path` returns the name of a node or `END`, a `Send`, or a list of them. `path_map` is a mapping that turns its
        return values into names. Without it, the targets are the names in the return type (`Literal["a", "b"]`), or all
        nodes. Raises `GraphError`.
        """
        if not isinstance(source, str):
            raise GraphError(f"graph {self._name!r}: a route follows START or a node, not {type(source).__name__}")
        check_function(f"graph {self._name!r}: the route after {source!r}", path)
        self._routes.setdefault(source, []).append((path, path_map))
        return self

    def set_entry_point(self, node: str) -> Self:
        """Start at this node: an edge from `START`. Returns the builder. Raises `GraphError`."""
        return self.add_edge(START, node)

    def set_finish_point(self, node: str) -> Self:
        """End after this node: an edge to `END`. Returns the builder. Raises `GraphError`."""
        return self.add_edge(node, END)

    def compile(self, **options: Unpack[GraphOptions]) -> Graph[Any, State]:
        """Check the whole graph, and return it ready to run. Raises `GraphError`."""
        refuse_unknown(f"graph {self._name!r}", options, GraphOptions.__annotations__)
        routes = self._checked_routes()
        return Graph(self._schema, dict(self._nodes), routes, {"name": self._name, **options})

    def _checked_routes(self) -> Routes:
        nodes = tuple(self._nodes)
        routes = {
            source: tuple(route_of(f"graph {self._name!r}: the route after {source!r}", nodes, *each) for each in found)
            for source, found in self._routes.items()
        }
        made = Routes(
            nodes=nodes,
            edges={source: tuple(ends) for source, ends in self._edges.items()},
            joins=tuple(self._joins),
            routes=routes,
        )
        self._check_names(made)
        self._check_ways(made)
        return made

    def _check_names(self, routes: Routes) -> None:
        known = {*self._nodes, START, END}
        sources = [*routes.edges, *routes.routes, *(source for starts, _ in routes.joins for source in starts)]
        targets = [end for ends in routes.edges.values() for end in ends] + [end for _, end in routes.joins]
        targets += [end for found in routes.routes.values() for route in found for end in route.targets.values()]
        for node in self._nodes.values():
            targets += [end for end in (*node.destinations, node.on_rejection) if end is not None]
        for name in (*sources, *targets):
            if name not in known:
                raise GraphError(
                    f"graph {self._name!r}: there is no node {name!r}; the nodes are {', '.join(self._nodes) or 'none'}"
                )
        if END in sources:
            raise GraphError(f"graph {self._name!r}: nothing goes on from END")
        if START in targets:
            raise GraphError(f"graph {self._name!r}: nothing leads to START: name the first node")
        if any(START in starts for starts, _ in routes.joins):
            raise GraphError(f"graph {self._name!r}: START is no part of a join: name the nodes that are waited for")

    def _check_ways(self, routes: Routes) -> None:
        extra = {
            name: (*node.destinations, *((node.on_rejection,) if node.on_rejection else ()))
            for name, node in self._nodes.items()
        }
        if not routes.edges.get(START) and not routes.routes.get(START):
            raise GraphError(f"graph {self._name!r} has no beginning: add an edge from START")
        reached = routes.reached(extra)
        if lost := [name for name in self._nodes if name not in reached]:
            raise GraphError(
                f"graph {self._name!r}: no way leads from START to {', '.join(lost)}: add an edge, or leave them out"
            )
        leading = routes.leading(extra)
        for name in self._nodes:
            if name not in leading:
                raise GraphError(
                    f"graph {self._name!r}: no way leads from {name!r} to END: add an edge, or name the `destinations` of a Replan"
                )


class Graph(Runs[Deps, State]):
    """A compiled graph. `invoke` takes an update of the state, and runs until the end, or until a human must decide.

    `StateGraph.compile` makes it. It has the methods of an agent: `invoke`, `resume`, `stream`, `step`, `recover`,
    `cancel`, `fork`, and their async twins. The output of a run is its final state. A graph serves any number of
    threads and tasks.
    """

    name: str
    """The name of the graph in checkpoints. Default: the name of the class of its state."""

    store: Store
    """Where checkpoints are kept. Without a store, the checkpoints exist only in this process."""

    interrupt_before: Sequence[str] = ()
    """The nodes before which every run stops."""

    interrupt_after: Sequence[str] = ()
    """The nodes after which every run stops, before the next nodes run."""

    max_steps: int | None = 100
    """The most waves of a run, over all its resumes. None: no limit."""

    max_parallel: int = 8
    """How many nodes of a wave run at the same time."""

    trust: Trust | None = None
    hooks: Sequence[Hooks] = ()
    announcements: Sequence[Announcements] = ()
    breakpoints: Iterable[Breakpoint] = ()
    approval_timeout: float | None = None
    on_expiry: OnExpiry = "reject"

    approval_policy: ApprovalPolicy = ()
    """The tool calls in nested agents that need approval, besides those whose tools ask for it.

    Names of tools, or a mapping from names to rules.
    """

    _spelt: ClassVar[spelling.Options]

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls._spelt.check(cls)

    def __init__(
        self, schema: StateSchema, nodes: Mapping[str, Node | Inside], routes: Routes, options: Mapping[str, object]
    ) -> None:
        self._spelt.check(type(self))  # it may have been given more since it was made
        options = _with_tuples({**self._of_class(), **options})
        self._handler: Handler | None = options.get("on_approval_required")
        for name, value in options.items():
            if name != "on_approval_required":
                setattr(self, name, value)
        store = options.get("store")
        self._check(store)
        self.name = findable("the name of a graph", self.name)  # as checkpoints have it
        self._bearer = self.trust == "bearer" or (self.trust is None and store is None)
        self.store = store if store is not None else MemoryStore.of_agent()
        spec = GraphSpec(
            name=self.name,
            schema=schema,
            nodes=nodes,
            routes=routes,
            stops_at=_stops(self.name, nodes, self.interrupt_before, self.interrupt_after),
            max_steps=self.max_steps,
            max_parallel=self.max_parallel,
            hooks=tuple(self.hooks),
            announcements=tuple(self.announcements),
            approval_timeout=self.approval_timeout,
            on_expiry=self.on_expiry,
            handler=handled(self._handler),
            policy=rules_of(self.name, self.approval_policy, handled(self._handler)),
        )
        spec = self._configured(spec)
        check_rules(spec.policy, specs_in(spec))
        self._spec = replace(spec, breakpoints=checked_breakpoints(self.breakpoints, spec))

    def _of_class(self) -> dict[str, object]:
        """The options in the bodies of subclasses."""
        names = [name for name in GraphOptions.__annotations__ if hasattr(type(self), name)]
        return {
            name: getattr(self, name) for name in names if getattr(type(self), name) is not getattr(Graph, name, None)
        }

    def _configured(self, spec: GraphSpec) -> GraphSpec:
        """The configuration with what a subclass adds."""
        return spec

    def _check(self, store: object) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise GraphError("the name of a graph is text that is not empty")
        if store is not None and not isinstance(store, Store):
            raise GraphError(
                f"graph {self.name!r}: store is a Store, not {type(store).__name__}: open_store(url) opens one"
            )
        if self.max_steps is not None and (not is_count(self.max_steps) or self.max_steps == 0):
            raise GraphError(f"graph {self.name!r}: max_steps is a whole number above 0, or None")
        if not is_count(self.max_parallel) or self.max_parallel == 0:
            raise GraphError(f"graph {self.name!r}: max_parallel is a whole number above 0")
        if self.trust not in (None, "store", "bearer"):
            raise GraphError(f"graph {self.name!r}: trust is 'store' or 'bearer'")
        if self._handler is not None and not callable(self._handler):
            raise GraphError(f"graph {self.name!r}: the approval handler is not callable")
        for option, kind in (("hooks", Hooks), ("announcements", Announcements)):
            given = getattr(self, option)
            if not is_series(given) or not all(isinstance(item, kind) for item in given):
                raise GraphError(f"graph {self.name!r}: {option} are instances of {kind.__name__}, in a list")
        if not is_timeout(self.approval_timeout) or self.on_expiry not in get_args(OnExpiry):
            raise GraphError(
                f"graph {self.name!r}: approval_timeout is seconds above 0 or None, on_expiry 'reject', 'cancel' or 'stay'"
            )

    if not TYPE_CHECKING:  # a type checker refuses what is not declared

        def __setattr__(self, name: str, value: object) -> None:
            if "_spec" in self.__dict__ and name != "store":
                raise ConfigurationError(f"graph {self.name!r} is compiled, so its {name} is fixed: compile another")
            if "_spec" in self.__dict__ and not isinstance(value, Store):
                raise GraphError(f"graph {self.name!r}: store is a Store, not {type(value).__name__}")
            self._spelt.check_attribute(name, self, value)
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, {len(self._spec.nodes)} nodes>"

    @property
    def spec(self) -> GraphSpec:
        """The checked and fixed configuration."""
        return self._spec

    def _for_call(self, options: CallOptions[Deps], method: str | None) -> tuple[GraphSpec, object]:
        spec = self._spec
        if unknown := options.keys() - CallOptions.__annotations__.keys():
            known = CallOptions.__annotations__
            raise ConfigurationError(f"there is no option {spelling.told(unknown, known)}: nothing was done")
        if foreign := options.keys() & {
            "model",
            "settings",
            "input_guardrails",
            "output_guardrails",
            "tool_guardrails",
        }:
            raise ConfigurationError(
                f"graph {spec.name!r}: {', '.join(sorted(foreign))} is for agents: nothing was done"
            )
        if method is not None and not method.startswith("a"):
            spec.refuse_async(method)
        before, after = options.get("interrupt_before"), options.get("interrupt_after")
        if before is not None or after is not None:
            stops = _stops(spec.name, spec.nodes, () if before is None else before, () if after is None else after)
            here = spec.stops_at
            stops = Stops(before=here.before | stops.before, after=here.after | stops.after)
            spec = replace(spec, stops_at=stops)
        update, modify = options.get("update"), options.get("modify_state")
        if modify is not None and not callable(modify):
            raise ConfigurationError(f"graph {spec.name!r}: modify_state is a function of a path and a state")
        if modify is not None and (is_async(modify) or is_generator(modify)):
            raise ConfigurationError(
                f"graph {spec.name!r}: modify_state is async, or a generator; make it a plain function"
            )
        if update is not None or modify is not None:
            if method is not None and method.removeprefix("a") not in ("resume", "stream", "step"):
                raise ConfigurationError(f"graph {spec.name!r}: {method} changes no state; resume does")
            spec = replace(spec, update=update, modify=modify)
        return self._with_stops(spec, options, method), options.get("deps")

    def state_of(self, checkpoint: Checkpoint) -> State:
        """The state at a checkpoint of this graph, as a fresh instance of its class.

        Raises `CheckpointError` for any other checkpoint, and `StateError` for a state that does not fit its class.
        """
        if not isinstance(checkpoint, Checkpoint) or checkpoint.kind != "graph":
            raise CheckpointError("this is no checkpoint of a graph")
        state: State = self._spec.schema.read(channels_of(checkpoint))
        return state

    def fork(
        self,
        checkpoint: Checkpoint | str,
        *,
        label: str | None = None,
        rerun: bool = False,
        by: str | Principal | None = None,
        update: object = None,
    ) -> Checkpoint:
        """Start a new branch of a run at a checkpoint, and return its first checkpoint. The old branch does not change.

        `update` is merged into the state, like the update of a node; the next nodes stay the same. If a node has
        completed in another branch with the same input, its update is used. With `rerun` the node runs again. To roll
        back, fork an earlier checkpoint. The audit trail says who has forked the run: `by`. Raises `CheckpointError` if
        the run has ended at the checkpoint, and `InvalidUpdate`.
        """
        if not isinstance(rerun, bool):
            raise ConfigurationError(f"graph {self.name!r}: rerun is True or False, not {type(rerun).__name__}")
        home = self._store_of(checkpoint)
        _, given = lookup.known(home, checkpoint, bearer=self._bearer)
        change = None if update is None else partial(self._spec.changed, update)
        return forking.fork(home, given, label=label, rerun=rerun, by=by, change=change)

    async def afork(
        self,
        checkpoint: Checkpoint | str,
        *,
        label: str | None = None,
        rerun: bool = False,
        by: str | Principal | None = None,
        update: object = None,
    ) -> Checkpoint:
        """The async twin of `fork`."""
        return await in_store(self.store, self.fork, checkpoint, label=label, rerun=rerun, by=by, update=update)

    def to_mermaid(self, checkpoint: Checkpoint | None = None) -> str:
        """Draw the graph as a Mermaid flowchart. With a checkpoint, its place is marked. Raises `CheckpointError`."""
        marks, notes = self._marks(checkpoint), self._notes()
        return flow_mermaid(self._spec.nodes, self._ways(), marked=marks, noted=notes)

    def to_svg(self, checkpoint: Checkpoint | None = None) -> str:
        """Draw the graph as SVG. With a checkpoint, its place is marked. Raises `CheckpointError`."""
        return flow_svg(self._spec.nodes, self._ways(), marked=self._marks(checkpoint), noted=self._notes())

    def _ways(self) -> Iterator[Edge]:
        """The edges as they are drawn, with the ways of rejected nodes."""
        yield from self._spec.routes.drawn()
        for name, node in self._spec.nodes.items():
            if node.on_rejection is not None:
                yield name, node.on_rejection, "rejected", True

    def _notes(self) -> dict[str, str]:
        """The notes on the nodes that ask a human before they run."""
        told = {"always": "needs approval", "predicate": "may need approval"}
        return {name: told[node.gate] for name, node in self._spec.nodes.items() if node.gate in told}

    def _marks(self, checkpoint: Checkpoint | None) -> dict[str, str]:
        if checkpoint is None:
            return {}
        marks = marks_of(self.stop_of(checkpoint))
        if not any(END in edge[:2] for edge in self._ways()):  # a signal alone leads there
            marks.pop(END, None)
        return marks

    def stop_of(self, checkpoint: Checkpoint) -> GraphStop:
        """Describe where the graph has stopped at a checkpoint, what runs again, and what humans are asked.

        Raises what `state_of` raises.
        """
        return stop_of(self._spec, checkpoint)


OF_NODES: Final = dict.fromkeys(
    (NodeOptions.__annotations__.keys() & ToolOptions.__annotations__.keys()) - GraphOptions.__annotations__.keys(),
    "that is an option of a node, or of a tool.",
)
"""Options that a graph itself has not, each with what of."""

Graph._spelt = spelling.Options(Graph, GraphOptions.__annotations__, GraphError, typed=GraphOptions, elsewhere=OF_NODES)

_OF_FALLBACKS = ("idempotent", "timeout", "requires_approval", "approval_timeout", "on_expiry", "risk")
"""Options that hold for what stands in for a node as well: where the node needs an approval, so does it, of its own."""


def _streams(fallback: object, options: Mapping[str, object]) -> dict[str, object]:
    """The streams of a node as an option of its fallback, if the fallback yields its update as well."""
    return {"streams": options["streams"]} if "streams" in options and is_generator(fallback) else {}


_SERIES = {"destinations", "streams", "fallback", "hooks", "announcements", "interrupt_before", "interrupt_after"}
"""Options that may be several things."""


def _with_tuples(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with what can be gone through only once made something that lasts."""
    return {name: tuple(value) if name in _SERIES and is_series(value) else value for name, value in options.items()}


def _stops(graph: str, nodes: Mapping[str, object], before: object, after: object) -> Stops:
    return Stops(
        before=checked_names(graph, nodes, "interrupt_before", before),
        after=checked_names(graph, nodes, "interrupt_after", after),
    )

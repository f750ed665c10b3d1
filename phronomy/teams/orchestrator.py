"""The orchestrator: agents, the ways between them, and patterns of them, as one run, one thread and one checkpoint."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final

from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from typing_extensions import Unpack

from phronomy import _session
from phronomy._checks import is_series
from phronomy._json import canonical
from phronomy._ledger import call as in_store
from phronomy._options import CallOptions
from phronomy._spec import name_of
from phronomy.agent import Agent
from phronomy.breakpoints import Hold
from phronomy.checkpoint import Checkpoint
from phronomy.errors import ConfigurationError
from phronomy.graph._spec import GraphSpec
from phronomy.graph._waves import channels_of
from phronomy.graph.channels import append, merge
from phronomy.graph.graph import Graph, GraphOptions, StateGraph
from phronomy.graph.signals import END, START
from phronomy.handoffs import Handoff, as_handoffs
from phronomy.memory import Memory
from phronomy.messages import Message
from phronomy.result import Result
from phronomy.stream import AsyncStream, Stream
from phronomy.teams._local import LocalState, pending_handoffs, told_of
from phronomy.tools import Deps
from phronomy.types import Finish, Move


class TeamState(BaseModel):
    """What a thread of an orchestrator keeps: `facts`, the `memory` of what was asked and answered, whose turn it is in each pool.

    `member` is who works in the present run, `input` what it was asked, `output` what came of it.
    """

    member: str
    input: Any = None
    output: Any = None
    facts: Annotated[dict[str, Any], merge] = {}
    memory: Annotated[list[dict[str, Any]], append] = []
    turns: Annotated[dict[str, int], merge] = {}


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked, and of whom."""

    member: str
    input: Any = field(repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)


class _Reading:
    """Reads the output of a run: plain JSON."""

    value: Final = staticmethod(json.loads)


@dataclass(frozen=True, kw_only=True)
class OrchestratorSpec(GraphSpec):
    """The rules of an orchestrator's runs: a graph in which one member works."""

    entry: str
    pools: Mapping[str, tuple[str, ...]]

    @property
    def takes_value(self) -> bool:
        """Its runs are given a plain value, and give one."""
        return True

    @property
    def output(self) -> Any:
        """How the output at the end is read."""
        return _Reading

    def first(self, input: Any, parent: Checkpoint | None, history: Any) -> dict[str, Any]:
        """The state that a run begins with: what the thread keeps, and what is asked. Raises `ConfigurationError`."""
        task = input if isinstance(input, Task) else Task(self.entry, input)
        try:
            given = json.loads(canonical(to_jsonable_python(task.input)))
            facts = json.loads(canonical(to_jsonable_python(dict(task.facts))))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{self.name!r}: what is asked, and its facts, are JSON: {error}") from None
        member, turns = task.member, {}
        if member in self.pools:
            kept = parent is not None and parent.kind == "graph" and parent.agent.name == self.name
            before = json.loads(channels_of(parent)) if kept and parent is not None else {}
            count = (before.get("turns") or {}).get(member, 0)
            turns = {member: count + 1}
            member = self.pools[member][count % len(self.pools[member])]
        said = [{"role": "user", "content": given if isinstance(given, str) else canonical(given)}]
        update = {"member": member, "input": given, "output": None, "facts": facts, "turns": turns, "memory": said}
        return {**super().first(update, parent, history), "original_input": given}

    def plan(self, state: Checkpoint) -> Move:
        """What comes next."""
        move = super().plan(state)
        if isinstance(move, Finish) and move.status == "completed":
            return Finish(status="completed", output=json.loads(channels_of(state)).get("output"))
        return move


class Orchestrator(Graph[Deps, Any]):
    """A team of agents and patterns over one store: each thread of it has one conversation, one set of facts, and one checkpoint.

        desk = Orchestrator([triage, billing], handoffs=[("triage", "billing")], patterns={"letter": sequential(writer, editor)})
        result = desk.run("I was charged twice", thread_id="customer-7")

    `agents` are listed, or given by name; the first is the `entry`, unless one is named. `handoffs` are pairs of names, or a name with
    a `Handoff`, beside those that the agents have themselves. `patterns` are patterns or graphs by name; `pools` are names of agents
    that take turns under a name of their own. `memory` bounds what of the thread's conversation an agent is given (default: the last
    20 messages). With `on_breakpoint`, calls wait at breakpoints, and it is asked: see `Hold`. The other options are a graph's.
    It is run, stopped, resumed, forked, restored and watched as any run is. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        agents: Sequence[Agent[Any, Any]] | Mapping[str, Agent[Any, Any]],
        *,
        handoffs: Iterable[tuple[str, str | Handoff]] = (),
        patterns: Mapping[str, Graph[Any, Any]] | None = None,
        pools: Mapping[str, Sequence[str]] | None = None,
        entry: str | None = None,
        memory: Memory | None = Memory(max_messages=20),  # noqa: B008  # it is frozen
        on_breakpoint: Callable[..., Any] | None = None,
        hold: Hold | None = None,
        **options: Unpack[GraphOptions],
    ) -> None:
        name = options.get("name", "team")
        if on_breakpoint is not None and hold is not None:
            raise ConfigurationError(f"{name!r}: give on_breakpoint to the hold")
        self.hold = Hold(on_breakpoint=on_breakpoint) if on_breakpoint is not None else hold
        team = _copies(name, agents, handoffs, memory)
        self._members: dict[str, Any] = {**team}
        for each, pattern in dict(patterns or {}).items():
            if each in self._members:
                raise ConfigurationError(f"{name!r}: two members are named {each!r}: give one of them another name")
            if not isinstance(pattern, Graph):
                raise ConfigurationError(
                    f"{name!r}: pattern {each!r} is a pattern or a graph, not {type(pattern).__name__}"
                )
            self._members[each] = pattern
        self._pools = _checked_pools(name, pools or {}, team)
        self._entry = next(iter(team)) if entry is None else entry
        if self._entry not in {*self._members, *self._pools}:
            raise ConfigurationError(f"{name!r}: there is no member {self._entry!r} to begin with")
        builder = StateGraph(TeamState, name=name)
        for each, member in self._members.items():
            extra: Any = {"messages": _history(memory)} if each in team else {}
            builder.add_node(each, member, input=_asked, output=_answered, **extra)
            builder.add_edge(each, END)
        builder.add_conditional_edges(START, _member, list(self._members))
        graph = builder.compile()
        super().__init__(graph.spec.schema, graph.spec.nodes, graph.spec.routes, {"name": name, **options})

    def _configured(self, spec: GraphSpec) -> GraphSpec:
        known = {each.name: getattr(spec, each.name) for each in fields(spec)}
        return OrchestratorSpec(**known, entry=self._entry, pools=self._pools)

    def _for_call(self, options: CallOptions[Deps], method: str | None) -> tuple[GraphSpec, Any]:
        if self.hold is not None and method is not None and "hold" not in options and method.removeprefix("a") in _HELD:
            options["hold"] = self.hold
        return super()._for_call(options, method)

    @property
    def members(self) -> tuple[str, ...]:
        """The names of its agents and patterns."""
        return tuple(self._members)

    # Running

    def run(self, input: Any, *, facts: Mapping[str, Any] | None = None, **options: Any) -> Result[Any]:
        """Have the entry work on this; the options are those of `invoke`. `facts` are added to those of the thread."""
        return self.invoke(self._task(self._entry, input, facts), **options)

    async def arun(self, input: Any, *, facts: Mapping[str, Any] | None = None, **options: Any) -> Result[Any]:
        """As `run`."""
        return await self.ainvoke(self._task(self._entry, input, facts), **options)

    def run_agent(
        self, agent: str, input: Any, *, facts: Mapping[str, Any] | None = None, **options: Any
    ) -> Result[Any]:
        """Have this agent work on it, or whoever of a pool has its turn."""
        return self.invoke(self._task(agent, input, facts, of="agent"), **options)

    async def arun_agent(
        self, agent: str, input: Any, *, facts: Mapping[str, Any] | None = None, **options: Any
    ) -> Result[Any]:
        """As `run_agent`."""
        return await self.ainvoke(self._task(agent, input, facts, of="agent"), **options)

    def run_pattern(
        self, pattern: str, input: Any, *, facts: Mapping[str, Any] | None = None, **options: Any
    ) -> Result[Any]:
        """Have this pattern work on it."""
        return self.invoke(self._task(pattern, input, facts, of="pattern"), **options)

    async def arun_pattern(
        self, pattern: str, input: Any, *, facts: Mapping[str, Any] | None = None, **options: Any
    ) -> Result[Any]:
        """As `run_pattern`."""
        return await self.ainvoke(self._task(pattern, input, facts, of="pattern"), **options)

    def stream_member(
        self, member: str, input: Any, *, facts: Mapping[str, Any] | None = None, **options: Any
    ) -> Stream[Any]:
        """As `run_agent` and `run_pattern`, as a stream of events; `stream` is that of the entry."""
        return self.stream(self._task(member, input, facts), **options)

    def astream_member(
        self, member: str, input: Any, *, facts: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncStream[Any]:
        """As `stream_member`."""
        return self.astream(self._task(member, input, facts), **options)

    def _task(self, member: str, input: Any, facts: Mapping[str, Any] | None, *, of: str = "member") -> Task:
        kinds = {
            "agent": [*(name for name, each in self._members.items() if isinstance(each, Agent)), *self._pools],
            "pattern": [name for name, each in self._members.items() if not isinstance(each, Agent)],
            "member": [*self._members, *self._pools],
        }
        if member not in kinds[of]:
            raise ConfigurationError(
                f"{self.name!r} has no {of} {member!r}; there are {', '.join(kinds[of]) or 'none'}. Nothing was done"
            )
        return Task(member, input, facts or {})

    # Looking

    def local_state(self, at: Checkpoint | str) -> LocalState:
        """Where the team stands in the thread of a checkpoint, a run or a branch. Raises `CheckpointNotFound`."""
        if isinstance(at, Checkpoint):
            head, lineage = at, self.store.lineage(checkpoint_id=at.id)
        else:
            branch_id = _session.branch_of(self.store, at, bearer=self._bearer)
            head, lineage = self.store.head(branch_id)[1], self.store.lineage(branch_id=branch_id)
        told, state = told_of(lineage), self.state_of(head)
        return LocalState(
            status=head.status,
            tokens=told.used.total_tokens,
            runs=told.runs,
            members={name: each for name, each in told.members.items() if name != self.name},
            handoffs=tuple(told.handoffs),
            pending_handoffs=pending_handoffs(head),
            turns=state.turns,
            facts=state.facts,
            memory=tuple(state.memory),
        )

    async def alocal_state(self, at: Checkpoint | str) -> LocalState:
        """As `local_state`."""
        return await in_store(self.store, self.local_state, at)


_HELD: Final = ("invoke", "resume", "stream", "step")


def _copies(where: str, agents: Any, handoffs: Iterable[Any], memory: Memory | None) -> dict[str, Agent[Any, Any]]:
    """Copies of the agents by name, with the ways between them: those that were given stay as they are. Raises `ConfigurationError`."""
    listed = dict(agents) if isinstance(agents, Mapping) else None
    if listed is None and is_series(agents):
        listed = {}
        for each in agents:
            if isinstance(each, Agent) and name_of(each) in listed:
                raise ConfigurationError(
                    f"{where!r}: two agents are named {name_of(each)!r}: give one of them another name"
                )
            listed[name_of(each) if isinstance(each, Agent) else ""] = each
    if not listed or not all(
        isinstance(each, Agent) and isinstance(name, str) and name for name, each in listed.items()
    ):
        raise ConfigurationError(f"{where!r}: agents are instances of Agent, in a list, or by name")
    made = {name: copy.copy(agent) for name, agent in listed.items()}
    for name, each in made.items():
        each.__dict__.update(_spec=None, _fixed_for=None)
        each.name = name
        each.memory = each.memory if each.memory is not None else memory
    ways = {
        name: [_onward(made, listed, way) for way in as_handoffs(f"agent {name!r}", each.handoffs)]
        for name, each in made.items()
    }
    for way in handoffs:
        pair = tuple(way) if is_series(way) else ()
        if len(pair) != 2 or pair[0] not in made:
            raise ConfigurationError(
                f"{where!r}: handoffs are pairs: the name of an agent here, and that of another, or a Handoff"
            )
        ways[pair[0]].append(_onward(made, listed, pair[1] if isinstance(pair[1], Handoff) else Handoff(pair[1])))
    for name, each in made.items():
        each.handoffs = tuple(ways[name])
    return made


def _onward(made: Mapping[str, Any], given: Mapping[str, Any], way: Handoff) -> Handoff:
    """The handoff, to the copy of its target where that is one of the team."""
    for name, agent in given.items():
        if way.target is agent or way.target == name:
            way = copy.copy(way)
            way.target = made[name]
            return way
    return way


def _checked_pools(
    where: str, pools: Mapping[str, Sequence[str]], team: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    for name, names in pools.items():
        if name in team or not is_series(names) or not names or any(each not in team for each in names):
            raise ConfigurationError(
                f"{where!r}: pool {name!r} lists names of agents here, and is named like none of them"
            )
    return {name: tuple(names) for name, names in pools.items()}


def _member(state: TeamState) -> str:
    return state.member


def _asked(state: TeamState) -> Any:
    return state.input


def _answered(value: Any) -> dict[str, Any]:
    plain = to_jsonable_python(value)
    said = {"role": "assistant", "content": plain if isinstance(plain, str) else canonical(plain)}
    return {"output": plain, "memory": [said]}


def _history(memory: Memory | None) -> Callable[[TeamState], list[dict[str, Any]]]:
    """What of the conversation an agent is given before what it is asked."""

    def history(state: TeamState) -> list[Any]:
        before = [Message(**each) for each in state.memory[:-1]]
        return list(memory.view(tuple(before))) if memory is not None else before

    return history

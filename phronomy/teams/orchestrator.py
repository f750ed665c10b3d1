"""The orchestrator: agents, the ways between them, and patterns of them, as one run, one thread and one checkpoint."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields
from typing import Annotated, Any, Final, cast

from pydantic import BaseModel, Field
from typing_extensions import Unpack

from phronomy.agents.agent import Agent
from phronomy.agents.handoffs import Handoff, as_handoffs
from phronomy.agents.spec import name_of
from phronomy.conversation.input import read_input
from phronomy.conversation.memory import Memory
from phronomy.engine.spec import Spec
from phronomy.engine.stop_points import specs_in
from phronomy.errors import CheckpointError, ConfigurationError, GraphError
from phronomy.foundation import spelling
from phronomy.foundation.checks import is_series
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonText, canonical
from phronomy.foundation.quoting import quoted_name
from phronomy.graph.flow.graph import OF_NODES, Graph, GraphOptions
from phronomy.graph.flow.node import Inside, is_name, refuse_unknown
from phronomy.graph.flow.routes import Route, Routes
from phronomy.graph.flow.spec import GraphSpec
from phronomy.graph.flow.waves import channels_of
from phronomy.graph.signals import END, START
from phronomy.graph.state.channels import append, merge
from phronomy.graph.state.joins import arrivals_in, given_in, state_with
from phronomy.graph.state.state import StateSchema
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.messages import Message
from phronomy.records.moves import Finish, Move
from phronomy.records.result import Result
from phronomy.runs.finding import lookup
from phronomy.runs.names import note_unnamed
from phronomy.runs.options import CallOptions
from phronomy.runs.stream import AsyncStream, Stream
from phronomy.stops.breakpoints import Hold
from phronomy.stores.base import Store
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.log.text_patch import ObjectText
from phronomy.stores.native import in_store
from phronomy.stores.rows import Lineage
from phronomy.teams.guarding import GUARDRAILS, Rails, TeamOptions, TeamSpec
from phronomy.teams.local import LocalState, Past, pending_handoffs, told_of
from phronomy.teams.patterns import Step, _run_of
from phronomy.teams.steps import as_json
from phronomy.tools.context import Deps


class TeamState(BaseModel):
    """The state of a thread of an orchestrator.

    `facts` are your values. `memory` has the questions and answers so far. `turns` says how often each pool was called.
    `member` is the member of the present run, with its `input` and `output`. `past` is the earlier work, if the thread
    was restored without its timeline.
    """

    member: str
    input: Any = Field(default=None, repr=False)
    output: Any = Field(default=None, repr=False)
    facts: Annotated[dict[str, Any], merge] = Field(default={}, repr=False)
    memory: Annotated[list[dict[str, Any]], append] = Field(default=[], repr=False)
    turns: Annotated[dict[str, int], merge] = {}
    past: Past | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The input of one run, and the member that it is for."""

    member: str
    input: object = field(repr=False)
    facts: Mapping[str, object] = field(default_factory=dict, repr=False)


class Member(Inside):
    """A member of a team as a node: the memory keeps what it was asked as its guardrails left it."""

    keeps_input = True


class _Reading:
    """Reads the output of a run: plain JSON."""

    value: Final = staticmethod(json.loads)


@dataclass(frozen=True, kw_only=True)
class OrchestratorSpec(TeamSpec):
    """The rules of an orchestrator's runs: a graph in which one member works."""

    entry: str
    pools: Mapping[str, tuple[str, ...]]

    @property
    def takes_value(self) -> bool:
        """Its runs are given a plain value, and give one."""
        return True

    @property
    def output(self) -> object:
        """How the output at the end is read."""
        return _Reading

    def first(self, input: object, parent: Checkpoint | None, history: object) -> dict[str, object]:
        """The state that a run begins with: what the thread keeps, and what is asked. Raises `ConfigurationError`."""
        task = input if isinstance(input, Task) else Task(self.entry, input)
        given = json.loads(as_json(task.input, f"{self.name!r}: what is asked"))
        if not isinstance(task.facts, Mapping):
            raise ConfigurationError(f"{self.name!r}: facts are a mapping, not {type(task.facts).__name__}")
        facts = json.loads(as_json(dict(task.facts), f"{self.name!r}: facts"))
        member, turns = task.member, {}
        if member in self.pools:
            count = 0
            if (kept := self.kept_of(parent)) is not None:
                self.check_kept(kept)
                count = (json.loads(kept).get("turns") or {}).get(member, 0)
            turns = {member: count + 1}
            member = self.pools[member][count % len(self.pools[member])]
        node = self.nodes.get(member)
        if not isinstance(node, Inside):
            raise ConfigurationError(
                f"{self.name!r} has no member {quoted_name(member)}; there are {', '.join(self.nodes)}"
            )
        node.inner.spec.first(given, None, None)  # what it cannot begin with is refused here, before anything is stored
        update = {"member": member, "input": given, "output": None, "facts": facts, "turns": turns}
        return {**super().first(update, parent, history), "original_input": given}

    def facts_in(self, state: Checkpoint) -> JsonText | None:
        """The facts of the thread, for the contexts of all that runs inside."""
        text = ObjectText.read(channels_of(state)).members.get("facts")
        return None if text is None else JsonText(text)

    def plan(self, state: Checkpoint) -> Move:
        """What comes next."""
        move = super().plan(state)
        if isinstance(move, Finish) and move.status == "completed":
            return Finish(status="completed", output=json.loads(channels_of(state)).get("output"))
        return move


class Orchestrator(Graph[Deps, Any]):
    """A team of agents and patterns over one store.

    Each thread has one conversation, one set of facts, and one checkpoint.

        desk = Orchestrator([triage, billing], handoffs=[("triage", "billing")], patterns={"letter": sequential(writer, editor)})
        result = desk.run("I was charged twice", thread_id="customer-7")

    `agents` is a list, or a mapping by name. The first agent is the `entry`, unless you name another. `handoffs` are
    pairs of names, or a name and a `Handoff`, in addition to the agents' own. `patterns` are patterns or graphs by
    name. `Step(agent, retries=2, timeout=60)`, in place of an agent or a pattern, says how often it goes on after a
    failure, and how many seconds one attempt may work. `pools` are lists of agents by a name of their own; the agents of
    a pool take turns. `memory` limits how much
    of the thread's conversation an agent is shown (default: the last 20 messages).

    With `on_breakpoint`, calls wait at breakpoints, and the function is called: see `Hold`. `on_approval_required`,
    `approval_timeout` and `on_expiry` apply to the agents that have none of their own. `input_guardrails`,
    `output_guardrails` and `tool_guardrails` apply to all agents, before their own. The other options are those of a
    graph. You run, stop, resume, fork, restore and watch it like any run. Raises `ConfigurationError`.
    """

    hold: Hold | None

    def __init__(
        self,
        agents: Sequence[Agent[Any, object] | Step] | Mapping[str, Agent[Any, object] | Step],
        *,
        handoffs: Iterable[tuple[str, str | Handoff]] = (),
        patterns: Mapping[str, Graph[Any, object] | Step] | None = None,
        pools: Mapping[str, Sequence[str]] | None = None,
        entry: str | None = None,
        memory: Memory | None = Memory(max_messages=20),  # noqa: B008  # it is frozen
        on_breakpoint: Callable[..., object] | None = None,
        hold: Hold | None = None,
        **options: Unpack[TeamOptions],
    ) -> None:
        options = cast(TeamOptions, {**self._of_class(), **options})
        if "name" not in options:
            note_unnamed("Orchestrator", "team", options.get("store"))
        name: str = options.setdefault("name", "team")
        refuse_unknown(repr(name), options, (*_PARAMETERS, *TeamOptions.__annotations__))
        self._rails = rails = Rails.taken(cast(dict[str, Any], options))
        if not isinstance(memory, Memory | None):
            raise ConfigurationError(f"{name!r}: memory is a Memory or None, not {type(memory).__name__}")
        if not isinstance(hold, Hold | None):
            raise ConfigurationError(f"{name!r}: hold is a Hold or None, not {type(hold).__name__}")
        if on_breakpoint is not None and hold is not None:
            raise ConfigurationError(f"{name!r}: give on_breakpoint to the hold")
        self.hold = Hold(on_breakpoint=on_breakpoint) if on_breakpoint is not None else hold
        listed, steps = _without_steps(name, agents)
        by_name, more = _without_steps(name, patterns or {})
        team = _copies(name, listed, handoffs, memory, options)
        self._members: dict[str, Any] = {**team, **_checked_patterns(name, by_name, team)}
        self._pools = _checked_pools(name, pools or {}, team, self._members)
        self._entry = next(iter(team)) if entry is None else entry
        if not isinstance(entry, str | None) or self._entry not in {*self._members, *self._pools}:
            raise ConfigurationError(f"{name!r}: there is no member {quoted_name(entry)} to begin with")
        schema = StateSchema(TeamState, name=name)
        nodes: dict[str, Any] = {}
        for each, member in self._members.items():
            takes: dict[str, object] = {"messages": _history(memory)} if each in team else {}
            takes |= {"input": _asked, "output": _answered(each, member.spec, rails)}
            nodes[each] = Member(each, member, schema, {**takes, **{**steps, **more}.get(each, {})})
        start = Route(path=_member, is_async=False, targets={each: each for each in nodes}, is_open=False)
        routes = Routes(nodes=tuple(nodes), edges=dict.fromkeys(nodes, (END,)), routes={START: (start,)})
        super().__init__(schema, rails.over(nodes), routes, options)

    def _configured(self, spec: GraphSpec) -> GraphSpec:
        known = {each.name: getattr(spec, each.name) for each in fields(spec)}
        return OrchestratorSpec(**known, entry=self._entry, pools=self._pools, rails=self._rails)

    def _for_call(self, options: CallOptions[Deps], method: str | None) -> tuple[GraphSpec, object]:
        if self.hold is not None and method is not None and "hold" not in options and method.removeprefix("a") in _HELD:
            options["hold"] = self.hold
        return super()._for_call(options, method)

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the agents and patterns of the team."""
        return tuple(self._members)

    # Running

    def run(self, input: object, *, facts: Mapping[str, object] | None = None, **options: Any) -> Result[Any]:
        """Run the `entry` with this input. `facts` are added to the facts of the thread.

        The other options are those of `invoke`. Raises what `invoke` raises.
        """
        return self.invoke(self._task(self._entry, input, facts), **options)

    async def arun(self, input: object, *, facts: Mapping[str, object] | None = None, **options: Any) -> Result[Any]:
        """The async twin of `run`."""
        return await self.ainvoke(self._task(self._entry, input, facts), **options)

    def run_agent(
        self, agent: str, input: object, *, facts: Mapping[str, object] | None = None, **options: Any
    ) -> Result[Any]:
        """Run this agent, or the next agent of this pool.

        Raises what `run` raises, and `ConfigurationError` for an unknown name.
        """
        return self.invoke(self._task(agent, input, facts, of="agent"), **options)

    async def arun_agent(
        self, agent: str, input: object, *, facts: Mapping[str, object] | None = None, **options: Any
    ) -> Result[Any]:
        """The async twin of `run_agent`."""
        return await self.ainvoke(self._task(agent, input, facts, of="agent"), **options)

    def run_pattern(
        self, pattern: str, input: object, *, facts: Mapping[str, object] | None = None, **options: Any
    ) -> Result[Any]:
        """Run this pattern. Raises what `run` raises, and `ConfigurationError` for an unknown name."""
        return self.invoke(self._task(pattern, input, facts, of="pattern"), **options)

    async def arun_pattern(
        self, pattern: str, input: object, *, facts: Mapping[str, object] | None = None, **options: Any
    ) -> Result[Any]:
        """The async twin of `run_pattern`."""
        return await self.ainvoke(self._task(pattern, input, facts, of="pattern"), **options)

    def stream_member(
        self, member: str, input: object, *, facts: Mapping[str, object] | None = None, **options: Any
    ) -> Stream[Any]:
        """Run this agent, pool or pattern as a stream of events. (`stream` does this with the entry.)"""
        return self.stream(self._task(member, input, facts), **options)

    def astream_member(
        self, member: str, input: object, *, facts: Mapping[str, object] | None = None, **options: Any
    ) -> AsyncStream[Any]:
        """The async twin of `stream_member`."""
        return self.astream(self._task(member, input, facts), **options)

    def _task(self, member: str, input: object, facts: Mapping[str, object] | None, *, of: str = "member") -> Task:
        kinds = {
            "agent": [*(name for name, each in self._members.items() if isinstance(each, Agent)), *self._pools],
            "pattern": [name for name, each in self._members.items() if not isinstance(each, Agent)],
            "member": [*self._members, *self._pools],
        }
        if member not in kinds[of]:
            raise ConfigurationError(
                f"{self.name!r} has no {of} {quoted_name(member)}; there are {', '.join(kinds[of]) or 'none'}. Nothing was done"
            )
        return Task(member, input, {} if facts is None else facts)

    # Looking

    def local_state(self, at: Checkpoint | str) -> LocalState:
        """The state of the team in the thread of a checkpoint, run or branch.

        Raises `CheckpointNotFound` or `CheckpointError`.
        """
        store = self._store_of(at)
        if isinstance(at, Checkpoint):
            head, lineage = at, whole_lineage(store, checkpoint_id=at.id)
        else:
            branch_id = lookup.branch_of(store, at, bearer=self._bearer)
            head, lineage = store.head(branch_id)[1], whole_lineage(store, branch_id=branch_id)
        return self._local(head, lineage)

    async def alocal_state(self, at: Checkpoint | str) -> LocalState:
        """The async twin of `local_state`."""
        return await in_store(self.store, self.local_state, at)

    def _local(self, head: Checkpoint, lineage: Lineage) -> LocalState:
        state = self.state_of(head)
        if head.agent.name != self.name:
            raise CheckpointError(f"checkpoint {head.id} is of {head.agent.name!r}, and this is {self.name!r}")
        told, branch = told_of(lineage, state.past), lineage.branch
        return LocalState(
            status=branch.status if branch.head == head.id else head.status,
            tokens=told.tokens,
            runs=told.runs,
            members=told.members,
            handoffs=tuple(told.handoffs),
            pending_handoffs=pending_handoffs(head),
            turns=state.turns,
            facts=state.facts,
            memory=tuple(state.memory),
        )

    def _carry(self, store: Store, given: Checkpoint, first: Checkpoint) -> Checkpoint:
        """Stores the team's past with a branch whose log will not hold it."""
        schema, text = self.spec.schema, first.__dict__["state"]
        past = self._local(given, whole_lineage(store, checkpoint_id=given.id)).past
        channels = schema.reduce(channels_of(first), [("past", schema.update(None, {"past": past}))])
        return first.evolve(state=state_with(channels, arrivals_in(text), given_in(text)))


_HELD: Final = ("invoke", "resume", "stream")

_PARAMETERS: Final = ("agents", "handoffs", "patterns", "pools", "entry", "memory", "on_breakpoint", "hold")

_AT_ONCE: Final = spelling.where_made("Orchestrator", (*_PARAMETERS, *GUARDRAILS))

Orchestrator._spelt = spelling.Options(
    Orchestrator,
    {**GraphOptions.__annotations__, **_AT_ONCE},
    GraphError,
    typed=GraphOptions,
    elsewhere={**OF_NODES, **_AT_ONCE},
)


_OF_MEMBERS: Final = ("retries", "retry_wait", "timeout")
"""The options of a `Step` that a member may be given in."""


def _without_steps(where: str, given: Any) -> tuple[Any, dict[str, dict[str, object]]]:
    """The members themselves, and the options of those that are given in a `Step`, by name. Raises `ConfigurationError`."""
    if isinstance(given, Mapping):
        steps = {name: each for name, each in given.items() if isinstance(each, Step)}
        runs: object = {name: _run_of(each) for name, each in given.items()}
    elif is_series(given):
        listed = list(given)
        steps = {name_of(each.run): each for each in listed if isinstance(each, Step) and isinstance(each.run, Agent)}
        runs = [_run_of(each) for each in listed]
    else:
        return given, {}
    options = {name: {k: v for k, v in each.options.items() if k != "transform" or v} for name, each in steps.items()}
    for name, found in options.items():
        if unknown := found.keys() - {*_OF_MEMBERS}:
            raise ConfigurationError(
                f"{where!r}: member {quoted_name(name)} has no option {spelling.told(unknown, _OF_MEMBERS)}; it has"
                f" {', '.join(_OF_MEMBERS)}"
            )
    return runs, options


def _copies(
    where: str, agents: Any, handoffs: Iterable[Any], memory: Memory | None, options: GraphOptions
) -> dict[str, Agent[Any, object]]:
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
    for name in listed:
        if not is_name(name):
            raise ConfigurationError(
                f"{where!r}: {quoted_name(name)} cannot name a member: give it 1 to 64 letters, digits, '_' and '-', as in"
                " agents={'name': agent}"
            )
    team = _Team(where, memory, listed, options)
    made = team.made
    ways = {
        name: [team.onward(way) for way in as_handoffs(f"agent {name!r}", each.handoffs)] for name, each in made.items()
    }
    for way in handoffs if is_series(handoffs) else (handoffs,):
        pair = tuple(way) if is_series(way) else ()
        if len(pair) != 2 or not isinstance(pair[0], str) or pair[0] not in made:
            raise ConfigurationError(
                f"{where!r}: handoffs are pairs: the name of an agent here, and that of another, or a Handoff"
            )
        ways[pair[0]].append(team.onward(pair[1] if isinstance(pair[1], Handoff) else Handoff(pair[1])))
    for name, each in made.items():
        each.handoffs = tuple(ways[name])
    team.wire_others()
    return made


class _Team:
    """Copies of agents, and of those that they hand over to: none of those that were given is changed, or kept from being changed.

    But for their gates: nobody would know that the copies have others.
    """

    def __init__(
        self, name: str, memory: Memory | None, listed: Mapping[str, Agent[Any, object]], options: GraphOptions
    ) -> None:
        self._name = name
        self._memory = memory
        self._options = options
        self._known: list[tuple[Agent[Any, object], Agent[Any, object]]] = []
        self._others: list[Agent[Any, object]] = []
        self.made = {name: self._copy(agent, name) for name, agent in listed.items()}

    def _copy(self, agent: Agent[Any, object], name: str) -> Agent[Any, object]:
        made = copy.copy(agent)
        made.__dict__.update(_spec=None, _fixed_for=None, _copied_for=None)
        made.name = name
        made.memory = made.memory if made.memory is not None else self._memory
        handler, timeout = self._options.get("on_approval_required"), self._options.get("approval_timeout")
        if handler is not None and made._handler is None:
            made.on_approval_required(handler)
        if timeout is not None and made.approval_timeout is None:
            made.approval_timeout, made.on_expiry = timeout, self._options.get("on_expiry", made.on_expiry)
        self._known.append((agent, made))
        agent._note_copy(self._name)
        return made

    def onward(self, way: Handoff) -> Handoff:
        """The handoff, to the copy of its target."""
        target = way.target
        found = self.made.get(target) if isinstance(target, str) else None
        if isinstance(target, Agent):
            found = next((made for given, made in self._known if given is target), None)
            if found is None:
                found = self._copy(target, name_of(target))
                self._others.append(found)
        if found is None:
            return way
        way = copy.copy(way)
        way.target = found
        return way

    def wire_others(self) -> None:
        """Have the agents beside the team hand over to copies as well."""
        while self._others:
            each = self._others.pop()
            each.handoffs = tuple(self.onward(way) for way in as_handoffs(f"agent {each.name!r}", each.handoffs))


def _checked_patterns(where: str, patterns: object, team: Mapping[str, object]) -> dict[str, object]:
    """The patterns by name. Raises `ConfigurationError`."""
    if not isinstance(patterns, Mapping):
        raise ConfigurationError(f"{where!r}: patterns are given by name, as in patterns={{'letter': sequential(...)}}")
    for name, pattern in patterns.items():
        if not isinstance(name, str) or not is_name(name):
            raise ConfigurationError(
                f"{where!r}: {quoted_name(name)} cannot name a pattern: give it 1 to 64 letters, digits, '_' and '-'"
            )
        if name in team:
            raise ConfigurationError(f"{where!r}: two members are named {name!r}: give one of them another name")
        if not isinstance(pattern, Graph):
            raise ConfigurationError(
                f"{where!r}: pattern {name!r} is a pattern or a graph, not {type(pattern).__name__}"
            )
    return dict(patterns)


def _checked_pools(
    where: str, pools: object, team: Mapping[str, object], members: Mapping[str, object]
) -> dict[str, tuple[str, ...]]:
    """The pools by name, with whose turn comes after whose. Raises `ConfigurationError`."""
    if not isinstance(pools, Mapping):
        raise ConfigurationError(f"{where!r}: pools are given by name, as in pools={{'any': ['ann', 'bob']}}")
    found = {name: tuple(names) if is_series(names) else () for name, names in pools.items()}
    for name, names in found.items():
        if not isinstance(name, str) or not name or name in members or not names:
            raise ConfigurationError(
                f"{where!r}: pool {quoted_name(name)} lists names of agents here, and is named like no member"
            )
        for each in names:
            if not isinstance(each, str) or each not in team:
                raise ConfigurationError(f"{where!r}: pool {name!r} lists {quoted_name(each)}, which is no agent here")
    return found


def _member(state: TeamState) -> str:
    return state.member


def _asked(state: TeamState) -> object:
    return state.input


def _said(role: str, value: object) -> dict[str, object]:
    """Makes the message that the memory keeps of a question or an answer."""
    if role == "user" and isinstance(value, list | dict | str):
        with suppress(ConfigurationError):
            return {"role": role, "content": read_input(value)[1].content}
    return {"role": role, "content": value if isinstance(value, str) else str(canonical(value))}


def _answered(name: str, spec: Spec, rails: Rails) -> Callable[[Any], dict[str, object]]:
    """Makes the function that gives the update after a member's run: its question and its answer, for the memory."""
    inner: Iterator[Spec] = specs_in(spec) if spec.flow is not None else iter(())
    guarded = any(each.input_guardrails or (rails.input and each.flow is None) for each in inner)

    def answered(told: tuple[object, object]) -> dict[str, object]:
        asked, value = told
        if isinstance(spec, GraphSpec) and not spec.takes_value:
            plain = json.loads(spec.schema.dump(value))
        else:
            plain = json.loads(as_json(value, f"what {name!r} gave"))
        if guarded:  # what was asked may be what they were to keep from a model
            asked = f"({name} was asked something that only its guardrails have seen)"
        return {"output": plain, "memory": [_said("user", asked), _said("assistant", plain)]}

    return answered


def _history(memory: Memory | None) -> Callable[[TeamState], list[Message]]:
    """Makes the function that gives an agent its history: the messages of the memory."""

    def history(state: TeamState) -> list[Message]:
        before = [Message(**each) for each in state.memory]
        return list(memory.view(tuple(before))) if memory is not None else before

    return history

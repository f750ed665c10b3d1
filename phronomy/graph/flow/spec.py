"""A graph as the drivers see it: the rules of its runs, its nodes and its edges, fixed and checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from phronomy.approvals.policy import Handled, Rule
from phronomy.engine.judging.brief import briefed_anew
from phronomy.engine.nested import child_of
from phronomy.engine.run import Runner
from phronomy.engine.spec import Advancing, Holding, Nested, Spec
from phronomy.errors import (
    AsyncRequired,
    ConfigurationError,
    IllegalOutcome,
    InvalidUpdate,
    StateError,
    StateIncomplete,
    UnknownType,
)
from phronomy.foundation.cached_property import cached
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonText, canonical
from phronomy.graph.flow.inside import Within, begun_with
from phronomy.graph.flow.node import Inside, Node, async_node
from phronomy.graph.flow.routes import Routes, join_key
from phronomy.graph.flow.waves import AFTER, HALT, Advance, calls_of, channels_of, is_at_start, names_of
from phronomy.graph.signals import START
from phronomy.graph.state.joins import arrivals_in, channels_in, given_in, state_with
from phronomy.graph.state.state import StateSchema
from phronomy.guardrails.guardrail import Guardrail
from phronomy.observability.announcements import Announcements
from phronomy.observability.hooks import Hooks
from phronomy.records.breakpoint_points import Point
from phronomy.records.calls import Advanced, Call, Decided, Ending, Finished, Halted, Judged, Outcome, path_inside
from phronomy.records.checkpoint import AgentRef, Checkpoint
from phronomy.records.decisions import Decision, OnExpiry, call_digest
from phronomy.records.moves import Advance as AdvanceMove
from phronomy.records.moves import Done, Fail, Finish, Move, Run, Wait
from phronomy.records.principals import Principal
from phronomy.records.record import digest_of
from phronomy.rules import transitions
from phronomy.rules.added_messages import is_ending, with_authors
from phronomy.rules.limits import Limits
from phronomy.rules.table import GRAPHS, phase
from phronomy.runs.body_spec import run_inside, specs_inside
from phronomy.stops.breakpoints import Breakpoint
from phronomy.stops.interrupt_points import interrupt_point
from phronomy.tools.tool import Tool

Modify = Callable[[tuple[str, ...], Any], Any]
"""What `modify_state` is: called with the path of a graph, as names of nodes, and its state; returns None, or another state."""


@dataclass(frozen=True)
class Stops:
    """The nodes before which, and after which, a run stops."""

    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()


class Output:
    """Reads the final state of a run as what its class is."""

    def __init__(self, schema: StateSchema) -> None:
        self.value: Callable[[str], Any] = lambda text: schema.read(JsonText(text))


@dataclass(frozen=True, kw_only=True)
class GraphSpec:
    """The rules of a graph's runs: waves of nodes over the state."""

    name: str
    schema: StateSchema
    nodes: Mapping[str, Node | Inside]
    routes: Routes
    stops_at: Stops = Stops()
    max_steps: int | None = 100
    max_parallel: int = 8
    hooks: tuple[Hooks, ...] = ()
    announcements: tuple[Announcements, ...] = ()
    approval_timeout: float | None = None
    on_expiry: OnExpiry = "reject"
    handler: Handled | None = None
    update: Any = None
    modify: Modify | None = None
    breakpoints: Iterable[Breakpoint] = ()
    hold: Holding | None = None
    input_guardrails: tuple[Guardrail, ...] = ()
    output_guardrails: tuple[Guardrail, ...] = ()
    tool_guardrails: tuple[Guardrail, ...] = ()
    kind: str = "graph"
    limits: Limits = Limits(turns=None)
    output_retries: None = None
    policy: tuple[Rule, ...] = ()
    scopes: frozenset[str] | None = None

    @property
    def conversation(self) -> None:
        """It asks no model."""

    @property
    def flow(self) -> GraphSpec:
        """It runs nodes."""
        return self

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The nodes."""
        return self.nodes

    @property
    def takes_value(self) -> bool:
        """Whether its runs are given a plain value, and give one, as those of an agent; else both are of the state."""
        return False

    @property
    def output(self) -> Any:
        """How the state at the end is read."""
        return Output(self.schema)

    @property
    def ref(self) -> AgentRef:
        """The name and fingerprint that a checkpoint keeps of the graph."""
        return self._ref

    @cached
    def _ref(self) -> AgentRef:
        shape: dict[str, object] = {name: [node.schema_hash, node.gate] for name, node in self.nodes.items()}
        facts: dict[str, object] = {"tools": shape, "instructions": "", "model": ""}
        if self.policy:
            facts["policy"] = [[rule.of, rule.pattern] for rule in self.policy]
        return AgentRef(name=self.name, fingerprint=facts)

    def refuse_async(self, method: str) -> None:
        """Refuse nodes and routes that a sync call cannot run. Raises `AsyncRequired`."""
        for inner in self.inside():
            inner.refuse_async(method)
        if (part := self._async_part) is not None:
            raise AsyncRequired(f"{part} is async; use a{method}")

    @cached
    def _async_part(self) -> str | None:
        """The first part of the graph itself that a sync call cannot run; None if there is none."""
        handler = "the approval handler" if self.handler is not None and self.handler.is_async else None
        part = async_node(self.nodes) or self.routes.async_route or handler
        return None if part is None else f"{part} of graph {self.name!r}"

    def expiry(self, tool: Tool) -> tuple[float | None, OnExpiry]:
        """Gives the seconds that a human has to decide on a node, and the outcome after that: the node's own, or else the graph's."""
        timeout = tool.approval_timeout if tool.approval_timeout is not None else self.approval_timeout
        return timeout, tool.on_expiry or self.on_expiry

    def tool(self, call: Call) -> Tool | None:
        """The node that a call runs, the fallback that it has reached, or the interrupt point that it is."""
        if call.name.startswith(AFTER):
            if call.name == HALT:
                return interrupt_point("operator")
            node = call.name.removeprefix(AFTER)
            return interrupt_point(node) if node in self.nodes else None
        asked = self.nodes.get(call.name)
        found: Tool | None = asked
        if asked is not None and call.fallback:
            found = asked.fallback[call.fallback - 1] if call.fallback <= len(asked.fallback) else None
        if found is not None and call.arguments is not None and call.args is not None:  # an edit
            found = found.given_again(call.args)
        return found

    def speaking(self, state: Checkpoint) -> GraphSpec:
        """A graph has no conversation to hand over."""
        return self

    def nested(self, state: Checkpoint, call: Call) -> Nested | None:
        """The run inside a node, if it is an agent or a graph."""
        node = self.nodes.get(call.name)
        if isinstance(node, Inside):
            return Within(outer=self, node=node, call=call)
        return run_inside(self, node, call) if node is not None and call.fallback == 0 else None

    def inside(self) -> list[Spec]:
        """The specs of the agents and graphs in nodes."""
        agents = [node.inner.spec for node in self.nodes.values() if isinstance(node, Inside)]
        return [*agents, *specs_inside(self, self.nodes.values())]

    def shown_state(self, state: Checkpoint) -> object:
        """The values of the channels, as plain JSON."""
        return json.loads(channels_of(state))

    def node_of(self, call: Call) -> str | None:
        """Gives the node that a call runs; for an interrupt point after a node, that node."""
        name = (call.args or {}).get("node", "") if call.gate else call.name.removeprefix(AFTER)
        return name if isinstance(name, str) and name in self.nodes else None  # a bearer's text may say anything

    def stops(self, state: Checkpoint, call: Call) -> bool:
        """Whether somebody wants to look before the call runs."""
        return call.name.startswith(AFTER) or (
            call.name in self.stops_at.before and stop_before(call) not in state.passed
        )

    @property
    def is_eager(self) -> bool:
        """Whether calls may follow from some that have settled while others are open: a graph goes on in waves."""
        return False

    def over(self, state: Checkpoint) -> Mapping[str, str]:
        """Every call of a graph is wanted."""
        return {}

    def facts_in(self, state: Checkpoint) -> JsonText | None:  # teams have some
        """A graph has a state, and no facts."""
        return None

    def label_of(self, before: Checkpoint, after: Checkpoint) -> str | None:  # patterns have some
        """A graph gives its checkpoints no labels."""
        return None

    def point_of(self, call: Call) -> Point | None:
        """The point at which `interrupt_before` or `interrupt_after` stops a call; none where a node, or somebody, paused the run."""
        if not call.name.startswith(AFTER):
            return "pre_node"
        return None if call.name == HALT or call.arguments != "{}" else "post_node"

    def advance(self, state: Checkpoint, deps: object) -> Advancing:
        """Prepares the step from a settled wave to the next one."""
        return Advance(self, state)

    def lost(self, state: Checkpoint) -> list[str]:
        """The nodes of its wave, the joins that wait, and the values of its state that are none here any more."""
        found = [
            f"node {call.name.removeprefix(AFTER)!r}, which {'is through' if call.result else 'is to run'}, is gone:"
            " it was removed, or renamed"
            for call in state.calls
            if call.status not in ("asking", "pending", "answered", "ready", "failed") and self.tool(call) is None
        ]
        known = {join_key(sources, target) for sources, target in self.routes.joins}
        found += [
            f"the join {key} is gone, at which {', '.join(there)} arrived"
            for key, there in arrivals_in(state.__dict__["state"]).items()
            if key not in known
        ]
        try:
            self.schema.read(channels_of(state))
        except (StateError, UnknownType) as error:
            found.append(f"the state cannot be read ({error})")
        return found

    # Beginning, and being changed

    def first(self, input: object, parent: Checkpoint | None, history: object) -> dict[str, Any]:
        """The state that a run of this input begins with, and its first wave. Raises `ConfigurationError`."""
        if self.update is not None or self.modify is not None:
            raise ConfigurationError(
                f"graph {self.name!r}: only resume changes the state; give the input what it needs"
            )
        if history is not None:
            raise ConfigurationError(
                f"graph {self.name!r}: a graph begins with an update of its state, not with messages"
            )
        kept = self.kept_of(parent)
        try:
            update = self.schema.update(START, input)
            channels = self.schema.reduce(self.schema.initial() if kept is None else kept, [(START, update)])
        except InvalidUpdate as error:
            raise ConfigurationError(f"graph {self.name!r} cannot begin with this input: {error}") from None
        if kept is not None:
            self.check_kept(channels)
        if missing := self.schema.missing(channels):
            raise ConfigurationError(f"graph {self.name!r} needs a value for {', '.join(missing)} to begin with")
        calls: tuple[Call, ...] = ()
        if not self.routes.is_routed(START):  # else a function of the user's says where to begin, once this is stored
            calls = calls_of(self, 1, channels, self.routes.going(self.routes.edges[START]))
        return {"original_input": update, "state": channels, "calls": calls}

    def kept_of(self, parent: Checkpoint | None) -> JsonText | None:
        """Gives the channels that a thread keeps for its next run; None if its last run was of something else."""
        if parent is None or parent.kind != "graph" or parent.agent.name != self.name:
            return None
        return channels_of(parent)

    def check_kept(self, channels: JsonText) -> None:
        """Refuse channels of a thread that are none here any more. Raises `ConfigurationError`."""
        try:
            self.schema.read(channels)
        except StateIncomplete:
            return
        except (StateError, UnknownType) as error:
            raise ConfigurationError(
                f"graph {self.name!r} cannot go on from the state of the thread: {error}. Begin another thread"
            ) from None

    def edits(self, runner: Runner, at: datetime, by: Principal | None) -> list[Outcome]:
        """Gives the edits that this resume makes in the state of the run and of graphs inside it.

        Raises `StateError`, also where their code raises: nothing is recorded then.
        """
        if self.update is None and self.modify is None:
            return []
        return list(self._edits(runner, (), at, by))

    def changed(self, update: object, state: Checkpoint, by: Principal | None = None) -> Checkpoint:
        """The state of a run with this update of somebody, as a node's would be taken. Raises `InvalidUpdate`."""
        channels = self.schema.reduce(channels_of(state), [("update", self.schema.update(None, update))])
        inside = {part.path for part in state.nested}
        state = self.apply(state, _edit(self, state, channels, inside, at=state.created_at, by=by))
        calls = [
            call if self._goes_on_inside(state, call) else self._asked_anew(state, call, channels)
            for call in state.calls
        ]
        return state.evolve(calls=tuple(calls))

    def _goes_on_inside(self, state: Checkpoint, call: Call) -> bool:
        """True if a run has begun in the node of a call: it continues with the state that it began with."""
        begun = path_inside(state.path, call.id) in {part.path for part in state.nested}
        return begun and isinstance(self.nodes.get(call.name), Inside)

    def _asked_anew(self, state: Checkpoint, call: Call, channels: JsonText) -> Call:
        """A waiting node's request with the present state, under a new id that nobody has seen.

        If its predicate had allowed the old state, it is judged again.
        """
        node = self.nodes.get(call.name)
        if call.status != "pending" or node is None or node.gate == "never" or "state" not in (call.args or {}):
            return call
        if call.why == "breakpoint":
            return self._anew(call, channels)
        args = node.read(self.write_args(call.name, channels))
        # Who has changed the state asks for what the node makes of it.
        brief = call.brief
        if brief is not None and (brief := briefed_anew(brief, node, args, state)) is None:
            return self._anew(call, channels)
        return call.evolve(args=args, digest=call_digest(node.identity(state.path), args), brief=brief)

    def edited_by(self, decisions: Sequence[Decision], state: Checkpoint) -> Checkpoint:
        """The state of a run inside, with what was edited higher up since it stopped; it is handed down when it goes on."""
        known = {decision.pending_id for decision in state.decisions}
        for decision in decisions:
            if decision.kind == "edit" and decision.path == state.path and decision.pending_id not in known:
                state = self.apply(state, Decided(decision=decision))
        return state

    def _edits(
        self,
        runner: Runner,
        place: tuple[str, ...],
        at: datetime,
        by: Principal | None,
        decisions: Sequence[Decision] = (),
    ) -> Iterator[Outcome]:
        spec = runner.spec
        assert isinstance(spec, GraphSpec)
        state = spec.edited_by(decisions, runner.state)
        before = channels_of(state)
        channels = before
        if self.update is not None and not place:
            channels = spec.schema.reduce(channels, [("update", spec.schema.update(None, self.update))])
        if self.modify is not None:
            value = spec.schema.read(channels)
            try:
                again = self.modify(place, value)
            except Exception as error:
                where = f"the graph at {'/'.join(place)}" if place else f"graph {self.name!r}"
                raise StateError(
                    f"run {state.run_id}: modify_state raised {type(error).__name__} for {where}. Nothing was changed: mend it, and"
                    " resume again"
                ) from error
            channels = spec.schema.dump(value if again is None else again)
        if channels != before:
            yield _edit(spec, state, channels, runner.shared.nested, at=at, by=by)
        for call in state.calls if self.modify is not None else ():
            nested = spec.nested(state, call) if call.stopped and call.result is None else None
            if nested is not None and nested.spec.flow is not None:
                known = (*decisions, *runner.state.decisions)
                inner = (*place, names_of(state)[call.id])
                yield from self._edits(child_of(runner, call, nested), inner, at, by, known)

    # The rules

    def plan(self, state: Checkpoint) -> Move:
        """What comes next."""
        state = transitions.current(state, self.apply)
        if state.ended:
            return Done(status=state.ended)
        if [call for call in state.calls if call.result is None]:
            return self._act(state)
        if is_ending(state):
            return transitions.finish_of(state)
        if state.calls or is_at_start(state):
            return AdvanceMove()
        return Finish(status="completed", output=channels_of(state))

    def _act(self, state: Checkpoint) -> Move:
        steps = state.turn - self.routes.is_routed(START)  # where to begin is no step
        gates = [call for call in state.calls if _is_interrupt_point(call)]
        begins = (call.status == "new" for call in state.calls if not _is_interrupt_point(call))
        if self.max_steps is not None and steps >= self.max_steps and any(begins):
            return Fail(limit="max_steps", maximum=self.max_steps, used=steps)
        if gates and _is_halted(state):
            return Wait(pending=state.pending)  # nothing begins, not even a judgement
        move = transitions.plan_calls(state, self)
        if gates and isinstance(move, Run) and any(call.result is None for call in gates):
            # Nothing of the wave begins before what it waits behind is open.
            opened = tuple(call for call in move.calls if _is_interrupt_point(call))
            return Run(calls=opened) if opened else Wait(pending=state.pending)
        return move

    def apply(self, state: Checkpoint, outcome: Outcome) -> Checkpoint:
        """The next state. Raises `IllegalOutcome`."""
        now = phase(state)
        if type(outcome) not in GRAPHS[now]:
            raise IllegalOutcome(now, type(outcome).__name__)
        match outcome:
            case Advanced() if outcome.settled is not None and not state.ended and not is_ending(state):
                return _advanced_in_part(state, outcome)
            case Advanced() if (state.calls or is_at_start(state)) and _is_through(state):
                return _advanced(state, outcome)
            case Finished() if _is_through(state) and (
                outcome.status == transitions.finish_of(state).status if is_ending(state) else not is_at_start(state)
            ):
                return state.evolve(ended=outcome.status, output=outcome.__dict__["output"])
            case Decided() if outcome.decision.kind == "edit" and not state.ended:
                return self._edited(state, outcome.decision)
            case Halted() if (
                not state.ended
            ):  # it may have been written, unseen, after others of its kind, or after an end
                if outcome.point is not None:
                    return transitions.fold(state, outcome)
                return state if is_ending(state) or _is_halted(state) else _halted(state, outcome)
            case Decided():
                return self._let_on(_held_back(transitions.fold(state, outcome), outcome.decision), outcome.decision)
            case Judged():
                return _with_interrupt_points(transitions.fold(state, outcome))
            case _:
                return transitions.fold(state, outcome)

    def _edited(self, state: Checkpoint, decision: Decision) -> Checkpoint:
        state = with_authors(state.evolve(decisions=(*state.decisions, decision)), decision, None)
        if decision.path != state.path:
            return state
        content = decision.json_text("content")
        channels = channels_in(content)
        calls = tuple(self._anew(call, channels) if self._is_shown_anew(call) else call for call in state.calls)
        before = state.__dict__["state"]
        text = state_with(channels, arrivals_in(before), given_in(before) | given_in(content))
        return state.evolve(state=text, calls=calls)

    def _let_on(self, state: Checkpoint, decision: Decision) -> Checkpoint:
        """The state after a decision: a node that was let go on at a breakpoint runs on what the state is by then.

        Where it may need an approval, its gate has judged what was shown: it is asked again if that was edited, and the breakpoint is
        behind it.
        """
        let_on = [
            call
            for call in state.calls
            if (call.status == "ready" and call.why == "breakpoint" and call.approved == decision.pending_id)
            or (call.status == "asking" and call.pending_id == decision.asks)
        ]
        if not let_on or decision.args is not None:
            return state
        [call] = let_on
        shown = (call.args or {}).get("state")
        channels = channels_of(state)
        if shown is None or call.fallback or canonical(shown) == self.schema.whole(channels):
            return state
        calls = tuple(self._anew(each, channels) if each is call else each for each in state.calls)
        return state.evolve(calls=calls, passed=(*state.passed, stop_before(call)))

    def _is_shown_anew(self, call: Call) -> bool:
        """Whether a call was opened with a state that has changed since then and that nobody has approved.

        If its predicate had allowed the old state, the predicate is called again.
        """
        if call.name not in self.nodes:
            return False
        if call.status == "ready" and call.attempt == 0 and call.pending_id is None and not call.stopped:
            return not call.fallback and "state" in (call.args or {})
        return call.status == "new" and '"state":' in (call.arguments or "")[:9]

    def _anew(self, call: Call, channels: JsonText) -> Call:
        """The call as its wave opens it, with this state."""
        return Call(id=call.id, call_id=call.call_id, name=call.name, arguments=self.write_args(call.name, channels))

    # What nodes are given

    def write_args(self, node: str, channels: JsonText) -> str:
        """The arguments of a node: the state, where a human may have to approve of it, else none. It sees that of its wave then."""
        return f'{{"state":{self.schema.whole(channels)}}}' if self.nodes[node].gate != "never" else "{}"

    def shown_in(self, args: Mapping[str, object], state: Checkpoint) -> JsonText:
        """The state that a node of these arguments sees."""
        shown = args.get("state")
        return channels_of(state) if shown is None else canonical(shown)


def _edit(
    spec: GraphSpec,
    state: Checkpoint,
    channels: JsonText,
    inside: Container[str],
    *,
    at: datetime,
    by: Principal | None = None,
) -> Decided:
    """The outcome of an edit that leaves the channels so; `inside` are the paths of runs under way in nodes."""
    content: object = state_with(channels, {}, _inputs_of_nested(spec, state, inside))
    digest = digest_of(channels)
    decision = Decision(pending_id=state.id, digest=digest, kind="edit", path=state.path, content=content, by=by, at=at)
    return Decided(decision=decision)


def _inputs_of_nested(spec: GraphSpec, state: Checkpoint, nested: Container[str]) -> dict[str, dict[str, object]]:
    """Gives the channels that graphs in nodes began with, finished or running at these paths, before the state is edited."""
    found: dict[str, dict[str, object]] = {}
    for call in state.calls:
        node = spec.nodes.get(call.name)
        begun = call.result is not None or path_inside(state.path, call.id) in nested
        plain = isinstance(node, Inside) and node.into is None and not (call.args or {})
        if begun and plain:
            found[call.id] = begun_with(spec, state, call.id)
    return found


def stop_before(call: Call) -> str:
    """The key of the breakpoint before a node: it is behind the call once it was let go on."""
    return f"pre_node@{call.id}"


def _is_through(state: Checkpoint) -> bool:
    """Whether the run has not ended, and nothing of its wave is open."""
    return not state.ended and not [call for call in state.calls if call.result is None]


def _is_interrupt_point(call: Call) -> bool:
    return call.gate or call.name.startswith(AFTER)


def _is_halted(state: Checkpoint) -> bool:
    """Whether somebody stopped the run from outside, and nobody has let it go on."""
    return any(call.name == HALT and call.status == "pending" for call in state.calls)


def _with_interrupt_points(state: Checkpoint) -> Checkpoint:
    """The state in which a gate that waits says why its node wants it, as the operator's does. One that cannot wait opens nothing."""
    if not any(_is_interrupt_point(call) for call in state.calls):
        return state
    calls = [
        call.evolve(reason=(call.args or {}).get("reason", call.reason))
        if _is_interrupt_point(call) and call.status == "pending"
        else call
        for call in state.calls
    ]
    broken = any(
        _is_interrupt_point(call) and call.result is not None and call.result.kind == "invalid" for call in calls
    )
    return state.evolve(calls=tuple(calls), **({"rejecting": True} if broken else {}))


def _halted(state: Checkpoint, outcome: Halted) -> Checkpoint:
    """The state with a gate that nothing gets past which has not begun."""
    tool = interrupt_point("operator").identity(state.path)
    args = canonical({} if outcome.reason is None else {"reason": outcome.reason})
    number = sum(call.name == HALT for call in state.calls)
    gate = Call(
        id=f"{state.turn + 1}.halt{number}",
        call_id=f"operator-{state.turn + 1}.{number}",
        name=HALT,
        status="pending",
        tool=tool,
        args=args,  # type: ignore[arg-type]
        digest=call_digest(tool, args),
        pending_id=outcome.pending_id,
        why="breakpoint",
        reason=outcome.reason,
        requested_at=outcome.at,
        repeatable=True,
    )
    return state.evolve(calls=(gate, *state.calls))


def _held_back(state: Checkpoint, decision: Decision) -> Checkpoint:
    """The state after a decision: what waits behind a gate that somebody did not open, or in time, never runs."""
    for call in state.calls:
        if _is_interrupt_point(call) and call.pending_id == decision.pending_id and call.result is not None:
            if decision.kind == "reject":
                return state.evolve(rejecting=True)
            if decision.kind == "expire":
                node = call.name.removeprefix(AFTER)
                reason = f"nobody let it go on after node {node} in time"
                return transitions.fold(state, Ending(status="cancelled", reason=reason, at=decision.at))
    return state


def _advanced_in_part(state: Checkpoint, outcome: Advanced) -> Checkpoint:
    """The state after a step from some of the open calls, which have settled; the others stay. Raises `IllegalOutcome`."""
    ids = set(outcome.settled or ())
    taken = [call for call in state.calls if call.id in ids]
    if len(taken) != len(ids) or any(call.result is None for call in taken):
        raise IllegalOutcome(phase(state), "Advanced", "a call that it follows from has not settled")
    advanced = _advanced(state, outcome)
    kept = tuple(call for call in state.calls if call.id not in ids)
    going = advanced.evolve(calls=(*kept, *outcome.calls), ending=None)
    # If a step gave the run up, what has not begun is settled by that, and what runs is waited for.
    return going if advanced.ending is None else transitions.fold(going, advanced.ending)


def _advanced(state: Checkpoint, outcome: Advanced) -> Checkpoint:
    update: dict[str, object] = {"state": outcome.__dict__["state"], "calls": outcome.calls, "turn": state.turn + 1}
    if outcome.status == "rejected":
        update["rejecting"] = True
    if outcome.status == "cancelled":
        update["ending"] = Ending(status="cancelled", reason=outcome.reason, at=outcome.at)
    return state.evolve(**update)

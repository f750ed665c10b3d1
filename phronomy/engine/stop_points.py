"""Where a run that is driven comes to a breakpoint, and what is seen of it there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from phronomy.engine.ledger import now
from phronomy.errors import ConfigurationError
from phronomy.foundation.ids import new_id
from phronomy.records.breakpoint_points import Point
from phronomy.records.calls import Call, CallFailed, CallSettled, Decided, Halted, HandedOver, Judgement, Outcome
from phronomy.records.chain import target_of
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.messages import Message
from phronomy.records.moves import AskModel, Consult, Finish, Guard, Judge, Move, ReadOutput, Run
from phronomy.rules import transitions
from phronomy.rules.added_messages import is_ending
from phronomy.stops.breakpoints import Breakpoint, BreakpointContext, BreakpointHit, Breakpoints, listed

if TYPE_CHECKING:
    from phronomy.engine.run import Runner
    from phronomy.engine.spec import Flow, Spec

Armed = tuple[Iterable[Breakpoint], ...]
"""Lists of breakpoints, of which some may change while the run is under way."""

_OF_AGENTS: Final[tuple[Point, ...]] = (
    "pre_input_guardrails",
    "pre_agent_run",
    "pre_model_call",
    "pre_output_guardrails",
    "post_run",
)
"""The points between the steps of an agent's run, in order; a run that is handed to it does not come to the first."""

# A list of breakpoints may be read from a file of somebody else. What an error quotes of it has an end.
_LONGEST: Final = 200
"""Characters of a breakpoint, or of names in one, that an error quotes."""

_OF_GRAPHS: Final[tuple[Point, ...]] = ("post_run",)
"""The points of a graph's run that are at no node."""


def armed(*lists: Iterable[Breakpoint]) -> Armed | None:
    """The breakpoints of a run: those of the call that drives it, its own, those of the agent that speaks.

    None: there are none, and never will be.
    """
    found: list[Iterable[Breakpoint]] = []
    for each in lists:
        # An empty list stays empty, and costs nothing from here on. A `Breakpoints` may be filled while the run is under way, so it
        # counts though it is empty.
        if (each or isinstance(each, Breakpoints)) and not any(each is known for known in found):
            found.append(each)
    return tuple(found) or None


def checked(given: object, spec: Spec, *, whole: bool = False) -> Iterable[Breakpoint]:
    """The breakpoints for runs of this spec. Raises `ConfigurationError` for names and points that its runs never come to.

    `whole` says that its runs are inside no other, so that no policy but those of the spec may have a tool ask.
    """

    def check(items: Iterable[Breakpoint]) -> None:
        if items:
            _check(items, spec, whole=whole)

    if isinstance(given, Breakpoints):
        given.arm(f"{spec.kind}:{spec.name}", check)
        return given
    found = listed(given)
    check(found)
    return found


def _check(items: Iterable[Breakpoint], spec: Spec, *, whole: bool) -> None:
    policies = not whole or any(each.policy for each in specs_in(spec))
    places = list(_places(spec, policies=policies))
    for item in items:
        # A breakpoint at which no run can stop is an error of whoever armed it, and found before the run begins. Found later, or
        # never, it would be a stop that somebody relies on (law 15).
        here = [place for place in places if place.is_for(item)]
        if not here or any(_missing(item, option, here) for option in _OPTIONS):
            raise ConfigurationError(f"{repr(item)[:_LONGEST]}: {_why_never(item, spec, places, here)}")


def _missing(item: Breakpoint, option: str, places: Iterable[Place]) -> str:
    """The names that a breakpoint gives in an option, and that none of these places has."""
    names = getattr(item, option) or frozenset()
    missing = sorted(names - {getattr(place, _OPTIONS[option]) for place in places})
    return ", ".join(missing)[:_LONGEST]


def _why_never(item: Breakpoint, spec: Spec, places: Sequence[Place], here: Sequence[Place]) -> str:
    """Why no run ever stops at a breakpoint, or at one of its names."""
    for option, one in _OPTIONS.items():
        if unknown := _missing(item, option, places):
            there = ", ".join(sorted(filter(None, {getattr(place, one) for place in places}))) or "none"
            return f"{spec.name!r} has no {option} named {unknown}; its {option} are {there}"
    never = f"no run of {spec.name!r} ever comes to {item.type}"
    anywhere = Breakpoint(item.type)  # type: ignore[arg-type]  # it was checked when it was made
    of_type = [place for place in places if place.is_for(anywhere)]
    if not of_type:
        return never
    given = {option: _missing(item, option, here) for option in _OPTIONS}
    told = " and ".join(f"{option} {names}" for option, names in given.items() if names)
    hint = ""
    if item.type == "pre_input_guardrails" and _missing(item, "agents", of_type):
        hint = (
            ": input guardrails are those of the agent that a run begins with, and look at nothing where another is handed the"
            " conversation; stop at pre_agent_run there"
        )
    return f"{never} with {told}{hint}"


class Place(NamedTuple):
    """A point that runs may come to, with the names of what is there; `asks` says that an approval may be needed."""

    point: Point
    agent: str
    tool: str | None
    node: str | None
    pattern: str | None
    asks: bool

    def is_for(self, item: Breakpoint) -> bool:
        """Whether a run may stop here at this breakpoint."""
        return item.stops_at(self.point, self.agent, self.tool, self.node, self.pattern, asks=self.asks)


_OPTIONS: Final = {"agents": "agent", "tools": "tool", "nodes": "node", "patterns": "pattern"}
"""The options of a breakpoint that narrow it, and what of a place each is about."""


def _places(spec: Spec, *, begins: bool = True, policies: bool) -> Iterator[Place]:
    """The places that runs of a spec may come to, those inside it included; `begins` says that runs may begin with it.

    Whether a tool of an agent asks is not for that agent alone to say: with `policies`, one of a run around it may have it ask.
    """
    pattern = pattern_of(spec)
    for tool in spec.tools.values():
        if spec.flow is not None:
            asks = any(each.gate != "never" for each in (tool, *tool.fallback))
            points: tuple[Point, ...] = ("pre_node",) if pattern is None else ("pre_pattern_step", "pre_node")
            yield from (Place(at, spec.name, None, tool.name, pattern, asks) for at in points)
            yield Place("post_node", spec.name, None, tool.name, pattern, asks=False)
            continue
        for each in (tool, *tool.fallback):
            handoff = target_of(each.identity()) is not None
            point: Point = "pre_handoff" if handoff else "pre_tool_call"
            yield Place(point, spec.name, each.name, None, None, asks=policies or each.gate != "never")
            if not handoff:
                yield Place("post_tool_call", spec.name, each.name, None, None, asks=False)
    for at in _OF_GRAPHS if spec.flow is not None else _OF_AGENTS if begins else _OF_AGENTS[1:]:
        yield Place(at, spec.name, None, None, pattern, asks=False)
    told = [*getattr(spec, "team", {}).values()]
    for inner in spec.inside():
        yield from _places(inner, begins=not any(inner is each for each in told), policies=policies)


def pattern_of(spec: Spec) -> str | None:
    """The name of the pattern that a spec is of; None for an agent, and for any other graph."""
    found: str | None = getattr(spec, "pattern", None)
    return found


def specs_in(spec: Spec) -> Iterator[Spec]:
    """The spec, and those of all runs that may be inside its own."""
    yield spec
    for inner in spec.inside():
        yield from specs_in(inner)


def is_inside(path: str, of: str) -> bool:
    """Whether a run is the one that is nested at `of`, or inside it."""
    return not of or f"{path}/".startswith(f"{of}/")


# Coming to one


def before(runner: Runner, move: Move) -> Halted | None:
    """The stop of the run before this move, if a breakpoint says so that it has not passed here."""
    state = runner.state
    # A run that was cancelled is not held up on its way to the end.
    if is_ending(state):
        return None
    points = _points(runner.spec, state, move)
    if not points:
        return None
    # Breakpoints may be added while the run stands here: then it is looked at again.
    armed_now = tuple(tuple(some) for some in runner.breakpoints or ())
    place = (points, state.turn, state.__dict__["new_input"], armed_now)
    if place == runner.looked:  # it came here before it stored what it has done: each predicate is asked once
        return None
    # The points before one that was passed are passed as well: the run came by them on its way here, and a human who let it go on
    # at the later one has been there.
    passed = [place for place, point in enumerate(points) if transitions.position_of(state, point) in state.passed]
    for point in points[passed[-1] + 1 if passed else 0 :]:
        if (found := _match(runner, point)) is not None:
            return _halted(runner, found, point, transitions.position_of(state, point), _shown(state))
    # Nothing of this is stored. After a crash the predicates are asked again, so one that acts may act twice.
    runner.looked = place
    return None


def _points(spec: Spec, state: Checkpoint, move: Move) -> Sequence[Point]:
    """The points that lie before a move, in order."""
    match move:
        case Guard(stage="input") if state.unguarded == "message":
            return ()  # they look at what was said later, not at what the run begins with
        case Guard(stage="input"):
            return ("pre_input_guardrails",)
        case Guard():
            return ("pre_output_guardrails",)
        case AskModel() if handed_to(state) is not None:
            return ("pre_agent_run", "pre_model_call")
        case AskModel() if state.turn:
            return ("pre_model_call",)
        case AskModel():
            guards = () if spec.input_guardrails else ("pre_input_guardrails",)
            return (*guards, "pre_agent_run", "pre_model_call")
        case ReadOutput() | Finish(status="completed") if spec.flow is None and not spec.output_guardrails:
            return ("pre_output_guardrails", "post_run")
        case ReadOutput() | Finish(status="completed"):
            return ("post_run",)
        case _:
            return ()


def handed_to(state: Checkpoint) -> HandedOver | None:
    """The handoff by which the agent that is asked next has got the conversation just now; None if it has said something since."""
    made = state.handoffs[-1] if state.handoffs else None
    since = state.messages[made.said :] if made is not None else ()
    return made if all(message.role == "user" for message in since) else None


def at_call(runner: Runner, call: Call, judgement: Judgement, *, asks: bool) -> tuple[Point, Breakpoint] | None:
    """The breakpoint before a call that has been judged, and is to run, and where it is; `asks` says that it needs an approval."""
    assert judgement.tool is not None
    # It was let go on at the breakpoint, and is judged once more because the state was edited. To stop it there again would be a
    # loop.
    if f"pre_node@{call.id}" in runner.state.passed:
        return None
    facts: dict[str, Any] = {"asks": asks, "args": judgement.args}
    point: Point
    if runner.spec.flow is not None:
        point, facts["node"] = "pre_node", call.name
        if pattern_of(runner.spec) is not None and (first := _match(runner, "pre_pattern_step", **facts)) is not None:
            return "pre_pattern_step", first
    else:
        point, facts["tool"] = "pre_tool_call", judgement.tool.name
        if (target := target_of(judgement.tool)) is not None:
            point, facts["handoff"] = "pre_handoff", (runner.spec.name, target)
    found = _match(runner, point, **facts)
    return None if found is None else (point, found)


def after_call(runner: Runner, outcome: Outcome) -> Halted | None:
    """The stop after a tool that has run, to be recorded before its end is."""
    # Nodes have a point of their own, behind the whole wave: what one of them gave is in the state only then.
    if not isinstance(outcome, CallSettled | CallFailed) or runner.spec.flow is not None:
        return None
    call = next((each for each in runner.state.calls if each.id == outcome.id), None)
    key = f"post_tool_call@{outcome.id}"
    known = any(each.id == key for each in runner.state.calls)  # recorded before, and again after somebody wrote first
    if call is None or call.tool is None or known or target_of(call.tool) or is_ending(runner.state):
        return None
    # An attempt that is tried again, or asked about, is no end of the call.
    if isinstance(outcome, CallFailed) and outcome.next != "model":
        return None
    result = outcome.error if isinstance(outcome, CallFailed) else outcome.result.content
    found = _match(runner, "post_tool_call", tool=call.tool.name, args=call.args, result=result)
    if found is None:
        return None
    return _halted(runner, found, "post_tool_call", key, {"tool": call.tool.name, "args": call.args})


def after_nodes(runner: Runner, flow: Flow, through: Checkpoint) -> Iterator[Halted]:
    """The stops after the nodes of a finished wave. Their updates are in the state by now."""
    if is_ending(runner.state):
        return
    for call in through.calls:
        node = flow.node_of(call)
        if node is None or call.gate or call.result is None or call.result.kind not in ("completed", "responded"):
            continue
        if node != call.name or (found := _match(runner, "post_node", node=node, args=call.args)) is None:
            continue
        yield _halted(runner, found, "post_node", f"post_node@{through.turn}.{call.id}", {"node": node})


def _match(runner: Runner, point: Point, **facts: Any) -> Breakpoint | None:
    """The first breakpoint that the run stops at here. The context is made only where a predicate is to look at it."""
    spec = runner.spec
    tool, node, asks = facts.get("tool"), facts.get("node"), facts.get("asks", False)
    context: BreakpointContext | None = None
    for item in (each for some in runner.breakpoints or () for each in some):
        if not item.stops_at(point, spec.name, tool, node, pattern_of(spec), asks=asks):
            continue
        if item.when is None:
            return item
        # A function may change what it is given: that must not change what the next breakpoint sees, let alone the run.
        if context is None or not isinstance(item.when, str):
            context = _context(runner, point, deepcopy(facts))
        if item.matches(context):
            return item
        context = context if isinstance(item.when, str) else None
    return None


def _context(runner: Runner, point: Point, facts: dict[str, Any]) -> BreakpointContext:
    state = runner.state
    if point in ("pre_agent_run", "pre_model_call") and (made := handed_to(state)) is not None:
        facts = {**facts, "handoff": (made.source, made.target)}
    return BreakpointContext(
        type=point,
        agent=runner.spec.name,
        input=state.input,
        state=flow.shown_state(state) if (flow := runner.spec.flow) is not None else state_of_agent(state),
        output=_output(state, point),
        pattern=pattern_of(runner.spec),
        turn=state.turn,
        path=state.path,
        run_id=state.run_id,
        thread_id=state.thread_id,
        facts=runner.facts,
        **facts,
    )


def state_of_agent(state: Checkpoint) -> dict[str, object]:
    """The state of an agent's run, in plain values: what was said, what it cost, and what is open."""
    return {
        "messages": [_said(message) for message in state.messages],
        "usage": state.usage.model_dump(mode="json", exclude={"version"}),
        # Without the status: it is another one at the stop than where it was decided to stop.
        "calls": [{"name": call.name} for call in state.calls if not call.gate],
        "handoffs": [[made.source, made.target] for made in state.handoffs],
    }


def _said(message: Message) -> dict[str, object]:
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    return {"role": message.role, "content": message.content, "tool_calls": calls, "settlement": message.settlement}


def _output(state: Checkpoint, point: str) -> str | None:
    """The text that the run is about to end with."""
    return state.messages[-1].text if point in ("pre_output_guardrails", "post_run") and state.messages else None


def _shown(state: Checkpoint) -> dict[str, object]:
    """What is shown at a point of the run, and may be edited there: the input, as long as the model has not seen it."""
    if state.kind == "graph":
        return {}
    # This is what makes the input editable: `edited_input` takes what is shown here, and nothing else. Once the model has read it,
    # another input would make the record say what did not happen (law 11).
    if state.turn == 0:
        return {"input": state.input}
    return {}


def _halted(runner: Runner, found: Breakpoint, point: Point, key: str, shown: dict[str, object]) -> Halted:
    at = now(runner.ledger.store)
    return Halted(pending_id=new_id("pend"), point=point, label=found.label, key=key, args=shown, at=at)


# Looking


def hits_in(runners: Iterable[Runner]) -> list[BreakpointHit]:
    """What is seen at each breakpoint that a run, and the runs inside it, stand at."""
    found: list[BreakpointHit] = []
    names: dict[str, str] = {}
    head = ""
    for runner in runners:
        state = runner.state
        head = head or runner.base.id
        names[state.path] = runner.spec.name
        places = [place for place in names if is_inside(state.path, place)]
        stack = tuple(names[place] for place in sorted(places, key=len))
        held = [call for call in state.calls if call.status == "pending" and call.why == "breakpoint"]
        if held:
            following = _next(runner)  # once for the run: it costs a step for each call that is held
            found += [_hit(runner, call, stack, head, following) for call in held]
    return found


def _hit(runner: Runner, call: Call, stack: tuple[str, ...], head: str, following: tuple[str, ...]) -> BreakpointHit:
    state = runner.state
    flow = runner.spec.flow
    point = call.point or "pause"
    args = call.args or {}
    return BreakpointHit(
        id=call.pending_id or "",
        type=point,
        agent=runner.spec.name,
        tool=None if flow is not None else args.get("tool") if call.gate else call.tool.name if call.tool else None,
        node=flow.node_of(call) if flow is not None else None,
        label=call.label,
        before=point.startswith("pre_"),
        input=state.input,
        args=args.get("args") or {} if point == "post_tool_call" else args,
        result=_result(state, call),
        output=_output(state, point),
        state=flow.shown_state(state) if flow is not None else None,
        next=following,
        asks=bool(call.asked_by),
        stack=stack,
        path=state.path,
        requested_at=call.requested_at,  # type: ignore[arg-type]
        run_id=state.run_id,
        branch_id=state.branch_id,
        checkpoint_id=head,
    )


def _result(state: Checkpoint, gate: Call) -> str | None:
    """What the tool gave that the run stands behind."""
    ran = (call.result for call in state.calls if gate.id == f"post_tool_call@{call.id}")
    return next((result.content for result in ran if result is not None), None)


def _next(runner: Runner) -> tuple[str, ...]:
    """What the run does once it is let go on, in words."""
    state = runner.state
    for item in state.pending:
        if item.why == "breakpoint" and item.path == state.path:
            asked = any(call.pending_id == item.id and call.asked_by for call in state.calls)
            # What comes next is found by doing it: the stop is decided, on a copy, by the rules that will decide it. A list of what
            # follows each point would be a second truth.
            decision = passing(item, now(runner.ledger.store)).evolve(asks=item.id if asked else None)
            state = runner.spec.apply(state, Decided(decision=decision))
    match runner.spec.plan(state):
        case AskModel():
            return ("ask the model",)
        case Guard(stage=stage):
            return (f"ask the guardrails about the {stage}",)
        case Run(calls=calls) | Judge(calls=calls) | Consult(calls=calls):
            flow = runner.spec.flow  # what only stands after a node is no work
            works = [call.name for call in calls if flow is None or flow.node_of(call) == call.name]
            return tuple(f"run {name}" for name in works) or ("go on along the edges",)
        case Finish(status=status):
            return (f"end the run as {status}",)
        case ReadOutput():
            return ("end the run as completed",)
        case _:
            return ()


def passing(item: PendingApproval, at: datetime) -> Decision:
    """The decision that lets a run go on from a breakpoint."""
    # Of the kind `approve`, since it lets the run go on; that it approves of nothing follows from the `why` of the request (laws 1
    # and 12).
    return Decision(pending_id=item.id, digest=item.digest, kind="approve", path=item.path, at=at)

"""Patterns: agents that work together in a known way. Each is a graph of its own, whose every unit of work is a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, Field, create_model, model_validator
from typing_extensions import Unpack

from phronomy.agents.agent import Agent
from phronomy.agents.spec import AgentSpec
from phronomy.conversation.output import OutputType
from phronomy.errors import CheckpointError, GraphError
from phronomy.foundation import spelling
from phronomy.foundation.checks import is_async, is_count, is_number, is_series
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted_name, quoted_word
from phronomy.graph.flow.graph import Graph, NodeOptions
from phronomy.graph.flow.node import refuse_unknown
from phronomy.graph.flow.spec import GraphSpec
from phronomy.graph.state.state import StateSchema
from phronomy.graph.state.streams import is_generator
from phronomy.records.checkpoint import Checkpoint
from phronomy.runs.names import note_unnamed
from phronomy.teams import schemes
from phronomy.teams.guarding import Rails, TeamOptions
from phronomy.teams.labels import Labels
from phronomy.teams.pattern import PatternSpec, PatternState, Ways, known_of, used_by, wave_of
from phronomy.teams.schemes import Edge, Known, Scheme
from phronomy.teams.steps import FunctionStep, RunStep, about, names_for, step_of
from phronomy.tools.context import Deps


class Step(spelling.Given, elsewhere=spelling.where_made("Step", NodeOptions.__annotations__)):
    """A step of a pattern with options: an agent, a graph, another pattern, or a function of the step's input.

    `transform` is a plain function that changes the input of the step. The other options are those of a node:
    `requires_approval` (True, a predicate of the step's input, or an `Approval`), `approval_timeout`, `on_expiry`,
    `risk`, `retries`, `retry_wait` and `timeout`, and for functions `idempotent`, `retry_on` and `on_failure`.
    """

    run: Any
    options: dict[str, Any]

    def __init__(
        self, run: object, *, transform: Callable[[Any], object] | None = None, **options: Unpack[NodeOptions]
    ) -> None:
        self.run = run
        self.options = {"transform": transform, **options}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self.run, 'name', None) or getattr(self.run, '__name__', self.run)!r})"


class DagNode(Step, elsewhere=spelling.where_made("DagNode", NodeOptions.__annotations__)):
    """A step of a `dag`. It runs when all steps in `needs` have finished.

    Its input is a dict of their outputs by name; if it needs nothing, the input of the pattern. `transform` changes the
    input. `when` is a plain predicate of the same value: if it returns false or raises, the step is left out. Of the
    steps that are ready, those with a higher `priority` start first.
    """

    needs: Sequence[str]
    when: Callable[[Any], object] | None
    priority: int

    def __init__(
        self,
        run: object,
        needs: Sequence[str] = (),
        *,
        when: Callable[[Any], object] | None = None,
        transform: Callable[[Any], object] | None = None,
        priority: int = 0,
        **options: Unpack[NodeOptions],
    ) -> None:
        super().__init__(run, transform=transform, **options)
        self.needs = needs
        self.when = when
        self.priority = priority


class PatternOptions(TeamOptions, total=False):
    """The options of a pattern: those of a team, and `labels` for its checkpoints (see `Labels`)."""

    labels: Labels | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternProgress:
    """The progress of a run of a pattern: the number of turns `done` and in `total`, and the `tokens` used so far.

    `units` is the number of finished units (steps, rounds, iterations or nodes). `total` and `percentage` are None if
    the number of turns is not known; the percentage of a goal is its satisfaction. `seconds_left` is an estimate of the
    active time that is left, by the average of the turns so far; None if there is none. `facts` are those of a goal.
    """

    done: int
    total: int | None
    percentage: float | None
    tokens: int
    units: int = 0
    seconds_left: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternDiff:
    """The difference of two checkpoints of a pattern, from the first to the second.

    `turns` and `tokens` are how many more the second has. `completed` are the steps that completed in between, in
    order. `added`, `removed` and `changed` are the names of facts of a goal.
    """

    turns: int
    tokens: int
    completed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class Pattern(Graph[Deps, Any]):
    """Agents that work together in a common way. A pattern is a graph, and has the methods of a graph.

    `sequential`, `parallel`, `supervisor`, `round_robin`, `dag`, `reflect`, `race`, `debate` and `goal` make patterns.
    The input of `invoke` is a text, a mapping, a model, or any JSON value. `result.output` is the final value, and
    `state_of(checkpoint)` returns the `PatternState` with the outputs of all steps. If a human rejects a step, the
    pattern ends as rejected, and no other step takes over its work. A pattern can be a step of another pattern, or a
    node of a graph.
    """

    def __init__(
        self, scheme: Scheme, steps: Mapping[str, FunctionStep | RunStep], options: Mapping[str, object]
    ) -> None:
        options = dict(options)
        self._scheme = scheme
        self._labels = _checked_labels(scheme, options.pop("labels", None), options.get("name", scheme.kind))
        self._rails = Rails.taken(options)
        nodes = self._rails.over({name: steps[name] for name in scheme.names})
        ways = Ways(nodes=scheme.names, edges={}, scheme=scheme)
        if "name" not in options:
            note_unnamed("pattern", scheme.kind, options.get("store"))
        super().__init__(_SCHEMA, nodes, ways, {"name": scheme.kind, "max_steps": None, **options})

    def _configured(self, spec: GraphSpec) -> GraphSpec:
        known = {field.name: getattr(spec, field.name) for field in fields(spec)}
        return PatternSpec(**known, scheme=self._scheme, labels=self._labels, rails=self._rails)

    @property
    def kind(self) -> str:
        """The kind of the pattern, such as `sequential`."""
        return self._scheme.kind

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps, in order."""
        return self._scheme.names

    def progress(self, checkpoint: Checkpoint) -> PatternProgress:
        """The progress of a run of this pattern. Raises `CheckpointError` if the checkpoint is not of this pattern."""
        known = self._known(checkpoint)
        done = len(known.turns) + sum(call.result is not None for call in wave_of(checkpoint))
        total = done if checkpoint.ended == "completed" else self._scheme.total
        share = None if total is None else round(100 * done / total, 1) if total else 100.0
        left = None
        if total is not None and done:
            left = round(known.elapsed / 1000 / done * max(total - done, 0), 3)
        if (satisfied := known.noted.get("satisfaction")) is not None:
            share = round(100 * satisfied, 1)
        return PatternProgress(
            done=done,
            total=total,
            percentage=share,
            tokens=used_by(checkpoint).total_tokens,
            units=self._scheme.units(known),
            seconds_left=left,
            facts=self._scheme.facts(known),
        )

    def diff(self, before: Checkpoint, after: Checkpoint) -> PatternDiff:
        """What came between two checkpoints of this pattern, of one run or of its forks.

        `store.diff` compares every field. Raises `CheckpointError` if one of them is not of this pattern.
        """
        old, new = self._known(before), self._known(after)
        facts = self._scheme.facts(old), self._scheme.facts(new)
        return PatternDiff(
            turns=len(new.turns) - len(old.turns),
            tokens=used_by(after).total_tokens - used_by(before).total_tokens,
            completed=tuple(turn.step for turn in new.turns[len(old.turns) :] if turn.kind == "completed"),
            added=tuple(name for name in facts[1] if name not in facts[0]),
            removed=tuple(name for name in facts[0] if name not in facts[1]),
            changed=tuple(name for name in facts[0] if name in facts[1] and facts[0][name] != facts[1][name]),
        )

    def _known(self, checkpoint: Checkpoint) -> Known:
        state = self.state_of(checkpoint)
        if state.pattern != self.kind:
            raise CheckpointError(f"checkpoint {checkpoint.id} is of a pattern of another kind: {state.pattern!s:.40}")
        return known_of(checkpoint, self._scheme)


_SCHEMA: Final = StateSchema(PatternState, name="pattern")


def sequential(
    *steps: object,
    transform: Callable[[Any], object] | None = None,
    on_error: Literal["fail", "skip"] = "fail",
    **options: Unpack[PatternOptions],
) -> Pattern:
    """A pattern: one step after another, each with the output of the step before. The output is that of the last step.

    The steps are agents, graphs, patterns, functions, or `Step`s, or one mapping of these by name. `transform` is a
    function that turns the output of a step into the input of the next. With `on_error="skip"`, the step after a failed
    step gets the input of the failed step; if all steps fail, `NodeFailed` has the reason for each. Raises
    `GraphError`.
    """
    where = _where("sequential", options)
    _one_of(where, "on_error", on_error, ("fail", "skip"))
    nodes = _nodes(where, _listed(where, steps), needed=on_error == "fail")
    _plain(where, "transform", transform)
    for node in list(nodes.values())[1:] if transform is not None else ():
        node.transform = node.transform or transform
    scheme = schemes.Sequential(names=tuple(nodes))
    return Pattern(scheme, nodes, options)


def parallel(
    *steps: object,
    merge: Callable[[dict[str, Any]], object] | None = None,
    min_success: int | None = None,
    **options: Unpack[TeamOptions],
) -> Pattern:
    """A pattern: all steps run in parallel, each with the input. The output is a dict of their outputs, by name.

    `merge` is a function that turns this dict into another output. `min_success` is the number of steps that must
    succeed (None: all). If too many fail, `NodeFailed` has the reason for each. Raises `GraphError`.
    """
    where = _where("parallel", options)
    nodes = _nodes(where, _listed(where, steps), needed=min_success is None)
    _plain(where, "merge", merge)
    if min_success is not None:
        _enough(where, min_success, len(nodes))
    return Pattern(schemes.Parallel(names=tuple(nodes), least=min_success, merge=merge), nodes, options)


def race(*steps: object, min_success: int = 1, **options: Unpack[TeamOptions]) -> Pattern:
    """A pattern: all steps run in parallel, each with the input.

    The first one to succeed wins, and the others are cancelled. The output is that of the winner. With `min_success=n`
    above 1, the first n steps win, and the output is a dict of their outputs, by name. If too many steps fail,
    `NodeFailed` has the reason for each. Pending requests of a loser need no decision any more. If a human rejects a
    step, the race ends as rejected. Raises `GraphError`.
    """
    where = _where("race", options)
    nodes = _nodes(where, _listed(where, steps), needed=False)
    _enough(where, min_success, len(nodes))
    options.setdefault("max_parallel", max(len(nodes), 1))
    return Pattern(schemes.Race(names=tuple(nodes), least=min_success), nodes, options)


def round_robin(
    *steps: object,
    rounds: int | None = None,
    until: Callable[[Any], object] | None = None,
    **options: Unpack[PatternOptions],
) -> Pattern:
    """A pattern: the steps take turns, each with the output of the step before.

    It ends after `rounds` turns of each step, or when `until`, a function of the last output, returns true. With
    `until` alone, `max_steps` (100) limits the number of turns. Raises `GraphError`.
    """
    where = _where("round_robin", options)
    nodes = _nodes(where, _listed(where, steps))
    _plain(where, "until", until)
    if rounds is None and until is None:
        raise GraphError(f"{where}: say when it ends: rounds=, or until=, a function of what a step gave")
    if rounds is not None and (not is_count(rounds) or rounds == 0):
        raise GraphError(f"{where}: rounds is a whole number above 0")
    if rounds is None:
        options.setdefault("max_steps", 100)
    return Pattern(schemes.RoundRobin(names=tuple(nodes), rounds=rounds, until=until), nodes, options)


def dag(
    nodes: Mapping[str, object],
    *,
    on_error: Literal["fail", "skip_downstream", "continue"] = "fail",
    merge: Callable[[dict[str, Any]], object] | None = None,
    **options: Unpack[PatternOptions],
) -> Pattern:
    """A pattern: steps that need the outputs of other steps. A step starts when all that it needs has finished.

    `nodes` are `DagNode`s by name, or plain steps that need nothing. The output is that of the last step. If several
    steps are needed by no other step, it is a dict of their outputs, or the result of `merge`. `on_error` says what
    follows a failure. `"fail"`: the run fails. `"skip_downstream"`: all steps that need the failed one, directly or
    indirectly, are left out. `"continue"`: the steps that need the failed one run without its output. A step is also
    left out if all steps that it needs are left out. Raises `GraphError` for a cycle, and for an unknown name.
    """
    where = _where("dag", options)
    _one_of(where, "on_error", on_error, ("fail", "skip_downstream", "continue"))
    _plain(where, "merge", merge)
    if not isinstance(nodes, Mapping) or not nodes:
        raise GraphError(f"{where} takes its steps by name, as in dag({{'read': DagNode(reader)}})")
    edges = {str(name): _edge(where, str(name), node, nodes) for name, node in nodes.items()}
    _check_order(where, edges)
    made = _nodes(where, nodes, needed=on_error == "fail")
    options.setdefault("max_steps", None)  # it goes on as often as steps finish, and each does once
    return Pattern(schemes.Dag(names=tuple(made), edges=edges, on_error=on_error, merge=merge), made, options)


def supervisor(
    manager: object,
    workers: Mapping[str, object] | Sequence[object],
    *,
    max_rounds: int = 10,
    on_error: Literal["fail", "tell"] = "fail",
    **options: Unpack[PatternOptions],
) -> Pattern:
    """A pattern: a manager names the next worker with an instruction, until it gives the answer, which is the output.

    The manager is an agent without an output type. Each time it gets the task, the workers with their descriptions, and
    the work done so far. It can also be a function that returns `{"worker": ..., "instruction": ...}` or
    `{"answer": ...}`. With `on_error="tell"`, the manager is told about a failed worker. After `max_rounds` turns of
    workers, the next turn raises `LimitExceeded`. Raises `GraphError`.
    """
    where = _where("supervisor", options)
    _one_of(where, "on_error", on_error, ("fail", "tell"))
    if not is_count(max_rounds) or max_rounds == 0:
        raise GraphError(f"{where}: max_rounds is a whole number above 0")
    listed = _listed(
        where, (workers,) if isinstance(workers, Mapping) else tuple(workers) if is_series(workers) else ()
    )
    staff = dict(names_for(_plain_runs(listed), where=where))
    steps = list(listed.values()) if isinstance(listed, Mapping) else listed
    told = {name: about(run) for name, run in staff.items()}
    own = next(iter(dict(names_for([_run_of(manager)], where=where))))
    while own in staff:
        own = f"{own[:56]}_manager"
    named = {own: _managing(where, manager, tuple(staff)), **dict(zip(staff, steps, strict=True))}
    nodes = _nodes(where, named, needed=on_error == "fail", first=True)
    scheme = schemes.Supervisor(names=tuple(nodes), about=told, rounds=max_rounds)
    return Pattern(scheme, nodes, options)


def reflect(
    writer: object,
    critic: object,
    *,
    max_rounds: int = 2,
    threshold: float | None = None,
    on_exhausted: Literal["accept_last", "accept_best", "fail"] = "accept_last",
    **options: Unpack[PatternOptions],
) -> Pattern:
    """A pattern: a writer drafts, a critic judges the draft, and the writer drafts again, until a draft passes.

    The critic answers with JSON (`passed`, and optionally `score` and `feedback`). It can also be an agent with such an
    output type, or a function. If its answer cannot be read, the draft has not passed. A score of `threshold` or more
    also passes. If no draft has passed after `max_rounds` drafts, `on_exhausted` decides. `"accept_last"`: the last
    draft is the output. `"accept_best"`: the draft with the best score. `"fail"`: `LimitExceeded` is raised. The writer
    gets the task, its last draft, and the feedback on that draft only. Raises `GraphError`.
    """
    where = _where("reflect", options)
    _one_of(where, "on_exhausted", on_exhausted, ("accept_last", "accept_best", "fail"))
    if not is_count(max_rounds) or max_rounds == 0:
        raise GraphError(f"{where}: max_rounds is a whole number above 0")
    if threshold is not None and not is_number(threshold):
        raise GraphError(f"{where}: threshold is a number, or None")
    nodes = _nodes(where, [writer, critic])
    scheme = schemes.Reflect(names=tuple(nodes), rounds=max_rounds, threshold=threshold, on_exhausted=on_exhausted)
    return Pattern(scheme, nodes, options)


# Reading what a factory is given


def _where(kind: str, options: Mapping[str, object]) -> str:
    refuse_unknown(f"pattern {kind}", options, PatternOptions.__annotations__)
    return f"pattern {options.get('name', kind)!r}"


def _checked_labels(scheme: Scheme, labels: object, name: object) -> Labels | None:
    """The labels of a pattern's checkpoints. Raises `GraphError`, and `ConfigurationError` for a name that is too long."""
    if labels is None:
        return None
    if not isinstance(labels, Labels):
        raise GraphError(f"pattern {name!r}: labels is a Labels or None, not {type(labels).__name__}")
    if scheme.unit is None:
        raise GraphError(f"pattern {name!r}: a {scheme.kind} has one wave of steps, and nothing to label between them")
    labels.text(str(name), scheme.unit, sys.maxsize)
    return labels


def _listed(where: str, steps: Sequence[object]) -> Mapping[str, object] | list[object]:
    """The steps, of one argument each, or all in one: a mapping by name, or a list. Raises `GraphError`."""
    found: Any = list(steps)
    if len(found) == 1 and (isinstance(found[0], Mapping) or is_series(found[0])):
        found = dict(found[0]) if isinstance(found[0], Mapping) else list(found[0])
    if not found:
        raise GraphError(f"{where} has no steps: give agents, graphs, patterns or functions")
    return found  # type: ignore[no-any-return]


def _run_of(step: object) -> Any:
    return step.run if isinstance(step, Step) else step


def _plain_runs(steps: Mapping[str, object] | Sequence[object]) -> Mapping[str, object] | list[object]:
    if isinstance(steps, Mapping):
        return {name: _run_of(step) for name, step in steps.items()}
    return [_run_of(step) for step in steps]


def _nodes(
    where: str, steps: Mapping[str, object] | Sequence[object], *, needed: bool = True, first: bool = False
) -> dict[str, FunctionStep | RunStep]:
    """The nodes of the steps: those which the pattern goes on without if they fail are not `needed`, but for the `first`."""
    named = names_for(_plain_runs(steps), where=where)
    given = list(steps.values()) if isinstance(steps, Mapping) else steps
    found: dict[str, FunctionStep | RunStep] = {}
    for (name, run), step in zip(named, given, strict=True):
        options = step.options if isinstance(step, Step) else {}
        wanted = needed or (first and not found)
        found[name] = step_of(name, run, _SCHEMA, options, where=where, needed=wanted)
    return found


def _plain(where: str, option: str, function: object) -> None:
    if function is not None and (not callable(function) or is_async(function) or is_generator(function)):
        raise GraphError(f"{where}: {option} is a plain function")


def _one_of(where: str, option: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise GraphError(f"{where}: {option} is {', '.join(map(repr, known))}, not {quoted_word(value)}")


def _enough(where: str, least: Any, steps: int) -> None:
    if not is_count(least) or not 1 <= least <= steps:
        raise GraphError(f"{where}: min_success is a whole number from 1 to {steps}, the number of its steps")


def _edge(where: str, name: str, node: object, nodes: Mapping[str, object]) -> Edge:
    if not isinstance(node, DagNode):
        return Edge()
    needs = tuple(node.needs) if is_series(node.needs) else None
    if needs is None or len(needs) != len(set(needs)):
        raise GraphError(f"{where}, step {name!r}: needs is a list of names of steps, each once")
    for need in needs:
        if need not in nodes:
            raise GraphError(f"{where}, step {name!r} needs {quoted_name(need)}; the steps are {', '.join(nodes)}")
        if need == name:
            raise GraphError(f"{where}, step {name!r} needs itself")
    _plain(f"{where}, step {name!r}", "when", node.when)
    if not isinstance(node.priority, int):
        raise GraphError(f"{where}, step {name!r}: priority is a whole number")
    return Edge(needs=needs, when=node.when, priority=node.priority)


def _check_order(where: str, edges: Mapping[str, Edge]) -> None:
    """Refuse a circle, and with it steps among which none can begin. Raises `GraphError`."""
    through: set[str] = set()
    while len(through) < len(edges):
        ready = {name for name, edge in edges.items() if name not in through and through.issuperset(edge.needs)}
        if not ready:
            lost = ", ".join(name for name in edges if name not in through)
            none = "no step can begin; " if not through else ""
            raise GraphError(f"{where}: {none}these need each other in a circle: {lost}")
        through |= ready


# The manager


class _Managing:
    """An agent as a manager: itself, but that it is asked for an assignment or the answer."""

    def __init__(self, agent: Agent[Any, object], output: OutputType) -> None:
        self._agent = agent
        self._output = output

    @property
    def spec(self) -> AgentSpec:
        """The configuration of the agent, with the output that is asked for."""
        return replace(self._agent.spec, output=self._output)


class _Assignment(BaseModel):
    """Who works next, on what; or the answer, once there is nothing left to do. Give one of the two."""

    worker: str | None = Field(default=None, description="The worker to go on with; null with the answer.")
    instruction: str | None = Field(default=None, description="What this worker is to do, with all it has to know.")
    answer: str | None = Field(default=None, description="The answer to the task; null while there is work to do.")

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.worker is None) == (self.answer is None) or (self.worker is not None and not self.instruction):
            raise ValueError("give a worker with an instruction, or an answer, not both")
        return self


def _managing(where: str, manager: object, staff: tuple[str, ...]) -> object:
    """The manager as a step. Raises `GraphError`."""
    run, options = _run_of(manager), manager.options if isinstance(manager, Step) else {}
    spec = getattr(run, "spec", None)
    if spec is None or spec.flow is not None:
        return manager
    if spec.output is not None:
        raise GraphError(
            f"{where}: the manager has an output type of its own; what it says is an assignment, or the answer"
        )
    named: Any = Literal[staff]
    worker = Field(default=None, description="The worker to go on with; null with the answer.")
    fields_of: Any = {"worker": (named | None, worker)}
    asked = create_model("Assignment", __base__=_Assignment, **fields_of)
    return Step(_Managing(run, OutputType(asked)), **options)

"""Goals: nodes that need facts and find facts, until a condition on the facts holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Final

from typing_extensions import Unpack

from phronomy.errors import GraphError
from phronomy.foundation import spelling
from phronomy.foundation.checks import is_count, is_number, is_series, is_timeout, is_true, texts_in
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, canonical
from phronomy.foundation.quoting import quoted_name
from phronomy.graph.flow.graph import NodeOptions
from phronomy.graph.signals import END, START
from phronomy.records.record import digest_of
from phronomy.teams.patterns import Pattern, PatternOptions, Step, _check_order, _nodes, _plain, _where
from phronomy.teams.schemes import Edge, Going, Known, Scheme, Turn, _object_in


class GoalNode(Step, elsewhere=spelling.where_made("GoalNode", NodeOptions.__annotations__)):
    """A step of a `goal`. It runs when all facts in `requires` are known, and finds the facts in `produces`.

    Its input is a dict of the facts that it requires; if it requires none, the input of the pattern. `transform`
    changes the input. If the output is an object with names of facts in `produces`, it gives these facts. Any other
    output is the fact itself, if there is only one; if there are several, the node has failed. A fact that is null is
    not known. Of the nodes that run at the same time, those with a higher `priority` start first.
    """

    requires: Sequence[str]
    produces: Sequence[str]
    priority: int

    def __init__(
        self,
        run: object,
        requires: Sequence[str] = (),
        *,
        produces: Sequence[str],
        transform: Callable[[Any], object] | None = None,
        priority: int = 0,
        **options: Unpack[NodeOptions],
    ) -> None:
        super().__init__(run, transform=transform, **options)
        self.requires = requires
        self.produces = produces
        self.priority = priority


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """What a `goal` does when no node can run: it adds `facts`, and the nodes in `rerun` may run again.

    A node in `rerun` may run although its facts are the same, and although it has failed too often. The values of
    `facts` are JSON.
    """

    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    rerun: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The facts that a node of a goal needs, and those that it finds."""

    requires: tuple[str, ...]
    produces: tuple[str, ...]
    priority: int = 0


Facts = dict[str, Any]

Condition = Callable[[Facts], object]


@dataclass(frozen=True, kw_only=True)
class Goal(Scheme):
    """Runs in each round the nodes whose facts are known, and that have not run with these facts."""

    kind = "goal"
    unit: ClassVar[str | None] = "round"
    nodes: Mapping[str, Needs]
    until: Condition
    satisfaction: Condition | None = None
    select: Callable[[list[str], Facts], object] | None = None
    relax: tuple[Relaxation, ...] = ()
    rounds: int = 50
    timeout: float | None = 300.0
    failures: int = 3

    def units(self, known: Known) -> int:
        found: int = known.noted.get("rounds", 0)
        return found

    @property
    def acts(self) -> bool:
        return True

    @property
    def last(self) -> tuple[str, ...]:
        return ()

    @property
    def total(self) -> int | None:
        return None

    def facts(self, known: Known) -> Facts:
        """The facts of the input, those that nodes found, and those that were added, the later over the earlier."""
        found: Facts = dict(known.input) if isinstance(known.input, dict) else {"input": known.input}
        added: list[list[Any]] = list(known.noted.get("added", ()))
        for place, turn in enumerate((*known.turns, None)):
            for at, facts in added:
                found |= facts if at == place else {}
            if turn is not None:
                found |= self._found_by(turn) or {}
        return found

    def next(self, known: Known, wave: Sequence[Turn]) -> Going:
        noted: dict[str, Any] = {**known.noted, "raised": {}}
        if wave:
            noted["rounds"] = noted.get("rounds", 0) + 1
        facts = self._weighed(known, noted)
        reason = None if noted["achieved"] else self._spent(known, noted)
        ready = [] if noted["achieved"] or reason else self._ready(known, facts, noted)
        while not (noted["achieved"] or reason or ready):
            tiers = noted.get("relaxed", 0)
            if tiers == len(self.relax):
                reason = "stalled: no node can run with these facts"
                break
            noted["relaxed"] = tiers + 1
            self._relax(self.relax[tiers], known, noted)
            facts = self._weighed(known._replace(noted=noted), noted)
            ready = [] if noted["achieved"] else self._ready(known, facts, noted)
        if not ready:
            told = {name: noted[name] for name in ("achieved", "satisfaction")}
            return Going(output={**told, "facts": facts, "reason": reason}, noted={**noted, "reason": reason})
        chosen = self._selected(ready, facts, noted)
        steps = [(name, self._given(name, known, facts)) for name in chosen]
        # A digest alone: what a node is given is in its call, and is in the record with that.
        noted["given"] = {**noted.get("given", {}), **{name: _digest(value) for name, value in steps}}
        return Going(steps, noted=noted)

    def _found_by(self, turn: Turn) -> Facts | None:
        """The facts that a turn has found; None if it has failed."""
        if turn.kind == "skipped":
            return {}
        if turn.kind != "completed":
            return None
        produces = self.nodes[turn.step].produces
        single = len(produces) == 1
        told = turn.output if isinstance(turn.output, dict) or single else _object_in(turn.output)
        if isinstance(told, dict) and (found := {name: told[name] for name in produces if name in told}):
            return found
        return {produces[0]: turn.output} if single else None

    def _weighed(self, known: Known, noted: dict[str, Any]) -> Facts:
        """The facts, after noting whether the goal is achieved, and how far. A function that raises has said no."""
        facts = self.facts(known)
        noted["achieved"] = _asked("until", noted, lambda: is_true(self.until(_copy(facts)))) is True
        if (satisfaction := self.satisfaction) is not None:
            value = _asked("satisfaction", noted, lambda: satisfaction(_copy(facts)))
            noted["satisfaction"] = min(max(float(value), 0.0), 1.0) if is_number(value) else 0.0
        else:
            wanted = {name for node in self.nodes.values() for name in node.produces}
            there = sum(facts.get(name) is not None for name in wanted)
            noted["satisfaction"] = 1.0 if noted["achieved"] else round(there / len(wanted), 4)
        return facts

    def _spent(self, known: Known, noted: Mapping[str, Any]) -> str | None:
        """Why no more rounds are begun."""
        if noted.get("rounds", 0) >= self.rounds:
            return f"max_rounds={self.rounds} is used up"
        if self.timeout is not None and known.elapsed >= self.timeout * 1000:
            return f"timeout={self.timeout:g} s is over"
        return None

    def _ready(self, known: Known, facts: Facts, noted: Mapping[str, Any]) -> list[str]:
        given = noted.get("given", {})
        found: list[str] = []
        for name, node in self.nodes.items():
            if any(facts.get(each) is None for each in node.requires):
                continue
            failed = self._failed(name, known, noted)
            if failed < self.failures and (failed or given.get(name) != _digest(self._given(name, known, facts))):
                found.append(name)
        return sorted(found, key=lambda name: -self.nodes[name].priority)

    def _failed(self, name: str, known: Known, noted: Mapping[str, Any]) -> int:
        """How often in a row a node has failed, since it was last let run again."""
        failed = 0
        for turn in known.turns[noted.get("cleared", {}).get(name, 0) :]:
            if turn.step == name:
                failed = failed + 1 if self._found_by(turn) is None else 0
        return failed

    def _given(self, name: str, known: Known, facts: Facts) -> object:
        requires = self.nodes[name].requires
        return {each: facts[each] for each in requires} if requires else known.input

    def _selected(self, ready: list[str], facts: Facts, noted: dict[str, Any]) -> list[str]:
        """The nodes that run now: those that are selected, or all that are ready if that is none of them."""
        if (select := self.select) is None:
            return ready
        said = _asked("select", noted, lambda: _names_in(select(list(ready), _copy(facts))))
        chosen = set(texts_in(said) or ())
        return [name for name in ready if name in chosen] or ready

    def _relax(self, tier: Relaxation, known: Known, noted: dict[str, Any]) -> None:
        if tier.facts:
            noted["added"] = [*noted.get("added", ()), [len(known.turns), dict(tier.facts)]]
        noted["given"] = {name: value for name, value in noted.get("given", {}).items() if name not in tier.rerun}
        noted["cleared"] = {**noted.get("cleared", {}), **dict.fromkeys(tier.rerun, len(known.turns))}

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        for name, node in self.nodes.items():
            if not any({*node.requires} & {*each.produces} for each in self.nodes.values()):
                yield START, name, None, True
        for source, from_ in self.nodes.items():
            for name, node in self.nodes.items():
                if shared := [fact for fact in from_.produces if fact in node.requires]:
                    yield source, name, ", ".join(shared), True
        yield from ((name, END, "achieved", True) for name in self.names)


def _names_in(said: object) -> tuple[str, ...]:
    """The names that were selected, read while an exception of the user's iterator is still caught."""
    return (said,) if isinstance(said, str) else texts_in(said) or ()


def _asked(what: str, noted: dict[str, Any], function: Callable[[], object]) -> object:
    """What a function of the user's says; None if it raises, which is noted."""
    try:
        return function()
    except Exception as error:
        noted["raised"] = {**noted["raised"], what: type(error).__name__}
        return None


def _copy(facts: Facts) -> Facts:
    found: Facts = json.loads(canonical(facts))
    return found


def _digest(value: object) -> str:
    return digest_of(canonical(value))[:16]


_FAILURES: Final = 3
"""How often in a row a node of a goal may fail, unless said otherwise."""


def goal(
    nodes: Mapping[str, GoalNode],
    *,
    until: Condition,
    satisfaction: Callable[[Facts], float] | None = None,
    select: Callable[[list[str], Facts], Sequence[str]] | None = None,
    relax: Sequence[Relaxation] = (),
    max_rounds: int = 50,
    timeout: float | None = 300.0,
    max_failures: int = _FAILURES,
    **options: Unpack[PatternOptions],
) -> Pattern:
    """A pattern: nodes that need facts and find facts run in rounds, until `until` is true of the facts.

    The input is a dict of facts; any other input is the fact `input`. In each round, all nodes run whose facts are
    known, and that have not yet run with these facts. A node that fails runs again, until it has failed `max_failures`
    times in a row. `until` is a function of the facts. `satisfaction` is a function of the facts that returns how far
    the goal is reached, from 0 to 1. `select` is a function of the ready nodes and the facts, and returns those to run
    in this round; if it returns none of them, all run. If a function raises, `until` counts as false, `satisfaction` as
    0, and `select` as all. If no node can run, the `relax` items are applied, one after another.

    The output is a dict: `achieved`, `satisfaction`, `facts`, and `reason`, which is None if the goal was achieved. The
    run also ends, with `achieved` false, if no node can run, after `max_rounds` rounds, or after `timeout` seconds of
    active time (None: no limit), of which it takes note between two rounds. Raises `GraphError`, also for nodes that
    need each other's facts in a circle.
    """
    where = _where("goal", options)
    if not isinstance(nodes, Mapping) or not nodes:
        raise GraphError(
            f"{where} takes its nodes by name, as in goal({{'read': GoalNode(reader, produces=['text'])}})"
        )
    needs = {str(name): _needs(where, str(name), node) for name, node in nodes.items()}
    _check_order(where, {name: Edge(needs=tuple(_sources(each, needs))) for name, each in needs.items()})
    if not callable(until):
        raise GraphError(f"{where}: until is a function of the facts")
    for option, function in (("until", until), ("satisfaction", satisfaction), ("select", select)):
        _plain(where, option, function)
    for option, count in (("max_rounds", max_rounds), ("max_failures", max_failures)):
        if not is_count(count) or count == 0:
            raise GraphError(f"{where}: {option} is a whole number above 0")
    if not is_timeout(timeout):
        raise GraphError(f"{where}: timeout is seconds above 0, or None")
    made = _nodes(where, nodes, needed=False)
    scheme = Goal(
        names=tuple(made),
        nodes=needs,
        until=until,
        satisfaction=satisfaction,
        select=select,
        relax=_tiers(where, relax, needs),
        rounds=max_rounds,
        timeout=timeout,
        failures=max_failures,
    )
    return Pattern(scheme, made, options)


def _needs(where: str, name: str, node: object) -> Needs:
    if not isinstance(node, GoalNode):
        raise GraphError(f"{where}, step {name!r} is a GoalNode, not {type(node).__name__}")
    requires, produces = texts_in(node.requires), texts_in(node.produces)
    if requires is None or not produces or "" in (*requires, *produces) or len(set(produces)) < len(produces):
        raise GraphError(f"{where}, step {name!r}: requires and produces are lists of names of facts, each once")
    if not isinstance(node.priority, int):
        raise GraphError(f"{where}, step {name!r}: priority is a whole number")
    return Needs(requires=tuple(dict.fromkeys(requires)), produces=produces, priority=node.priority)


def _sources(node: Needs, nodes: Mapping[str, Needs]) -> Iterator[str]:
    """The nodes that find facts which a node needs."""
    return (name for name, each in nodes.items() if {*node.requires} & {*each.produces})


def _tiers(where: str, relax: object, nodes: Mapping[str, Needs]) -> tuple[Relaxation, ...]:
    listed = tuple(relax) if is_series(relax) else (None,)
    tiers = tuple(each for each in listed if isinstance(each, Relaxation))
    if len(tiers) < len(listed):
        raise GraphError(f"{where}: relax is a list of Relaxation")
    for tier in tiers:
        rerun = texts_in(tier.rerun)
        unknown = [name for name in rerun or () if name not in nodes]
        if rerun is None or unknown:
            told = quoted_name(unknown[0]) if unknown else "no names"
            raise GraphError(f"{where}: rerun of a Relaxation lists {told}; the nodes are {', '.join(nodes)}")
        try:
            canonical(tier.facts)
        except (JsonError, ValueError, TypeError):
            raise GraphError(f"{where}: the facts of a Relaxation are JSON, by name") from None
    return tiers

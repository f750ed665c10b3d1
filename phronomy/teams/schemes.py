"""The schemes that choose the next steps of a pattern: one for each kind, a pure function of the turns so far.

A scheme is asked when every step of a wave has settled. Some call functions of the user's, which may raise; the driver deals with that.
Nothing is kept between two questions: all that a scheme counts is in the turns and in its notes, and so in the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal, NamedTuple

from phronomy.foundation.checks import is_number, is_true
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, canonical, parse
from phronomy.graph.signals import END, START

TurnKind = Literal["completed", "skipped", "failed", "left_out", "cancelled"]
"""How the turn of a step ended: it has given something · a human skipped it · it failed, and the pattern goes on without · it
was not needed, or not possible · another was faster."""

KEPT: Final[object] = object()
"""The output stays what it is."""

NO_NOTES: Final[Mapping[str, Any]] = {}


class StepFailed(Exception):
    """The pattern cannot go on: what is wrong, by step."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        super().__init__("; ".join(failures.values()))
        self.failures: dict[str, str] = dict(failures)


class Turn(NamedTuple):
    """The result of one step: its `output`, or `why` it has none."""

    step: str
    kind: TurnKind
    output: object = None
    why: str | None = None

    @property
    def gave(self) -> bool:
        """Whether there is anything of it to go on with."""
        return self.kind in ("completed", "skipped")


class Known(NamedTuple):
    """The input of the run, its output so far, and the turns of its steps, in order.

    `noted` are the notes of the scheme, and `elapsed` is the active time of the run in milliseconds. `open` are the steps that have
    begun, or wait, and have no turn yet.
    """

    input: object
    output: object
    turns: Sequence[Turn]
    noted: Mapping[str, Any] = NO_NOTES
    elapsed: int = 0
    open: frozenset[str] = frozenset()


class Going(NamedTuple):
    """The next move of a pattern: the steps of the next wave with their inputs (none: the end), the output so far, and more turns.

    `noted` are new notes, by name: they are stored with the run.
    """

    steps: Sequence[tuple[str, object]] = ()
    output: object = KEPT
    turns: Sequence[Turn] = ()
    noted: Mapping[str, Any] = NO_NOTES


class Over(NamedTuple):
    """A wave of which the rest is not needed any more, and why: with `failed`, because too many failed."""

    why: str
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """The rule of a kind of pattern, which chooses the next steps. `names` are its steps, in order."""

    kind: ClassVar[str]
    unit: ClassVar[str | None] = None
    """What its progress is counted in: `step`, `round`, `iter` or `node`; None if it has only one wave."""

    names: tuple[str, ...]

    def units(self, known: Known) -> int:
        """The number of finished units."""
        return len(known.turns)

    def facts(self, known: Known) -> dict[str, object]:
        """The facts that its steps have found; only those of a goal do."""
        return {}

    @property
    def acts(self) -> bool:
        """Whether it calls functions of the user's, before which all that has happened is to be stored."""
        return False

    @property
    def last(self) -> tuple[str, ...]:
        """The steps whose output may be that of the pattern, as it is."""
        return self.names

    @property
    def total(self) -> int | None:
        """The number of turns that a run takes; None if it is not known."""
        return len(self.names)

    def next(self, known: Known, wave: Sequence[Turn]) -> Going:
        """Chooses the next move; `wave` are the latest turns, none at the beginning. Raises `StepFailed`."""
        raise NotImplementedError

    def expected(self, place: int) -> Sequence[str]:
        """The steps whose turn may be at this place: what others have left is gone on with by nobody."""
        return self.names

    def over(self, wave: Mapping[str, TurnKind | None]) -> Over | None:
        """Whether the rest of a wave is superfluous, given the result of each of its steps (None: it has not finished)."""
        return None

    @property
    def is_eager(self) -> bool:
        """Whether a step may begin while others of its wave are open."""
        return False

    def is_due(self, through: Container[str], open: Container[str]) -> bool:
        """Whether something follows from the steps that are through, while others are open."""
        return False

    def rank(self, name: str) -> int:
        """The order in which steps that could begin do: the lowest first."""
        return 0

    def limit(self, known: Known, opens: Iterable[str]) -> tuple[str, int] | None:
        """The limit that keeps the run from opening these steps, with how much of it there is."""
        return None

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        """The edges as they are drawn: from, to, a label, and whether something decides on it."""
        raise NotImplementedError


def as_text(value: object) -> str:
    """A value in words: text as it is, any other as JSON."""
    return value if isinstance(value, str) else str(canonical(value))


def _failures(turns: Iterable[Turn]) -> dict[str, str]:
    return {turn.step: turn.why or turn.kind for turn in turns if not turn.gave}


def _chain(names: Sequence[str]) -> Iterator[tuple[str, str, str | None, bool]]:
    places = (START, *names, END)
    return ((one, other, None, False) for one, other in pairwise(places))


@dataclass(frozen=True, kw_only=True)
class Sequential(Scheme):
    """One step after another, each with what the one before gave."""

    kind = "sequential"
    unit: ClassVar[str | None] = "step"

    @property
    def last(self) -> tuple[str, ...]:
        return self.names[-1:]

    def expected(self, place: int) -> Sequence[str]:
        return self.names[place : place + 1]

    def next(self, known: Known, wave: Sequence[Turn]) -> Going:
        value = wave[-1].output if wave and wave[-1].gave else known.output if known.turns else known.input
        if len(known.turns) < len(self.names):
            return Going([(self.names[len(known.turns)], value)], value)
        if not any(turn.gave for turn in known.turns):
            raise StepFailed(_failures(known.turns))
        return Going(output=value)

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        return _chain(self.names)


@dataclass(frozen=True, kw_only=True)
class Parallel(Scheme):
    """All steps side by side, each with the input."""

    kind = "parallel"
    least: int | None = None
    merge: Callable[[dict[str, Any]], object] | None = None

    @property
    def acts(self) -> bool:
        return self.merge is not None

    @property
    def last(self) -> tuple[str, ...]:
        return ()

    def next(self, known: Known, wave: Sequence[Turn]) -> Going:
        if not wave:
            return Going([(name, known.input) for name in self.names])
        given = {turn.step: turn.output for turn in wave if turn.gave}
        if self.least is not None and len(given) < self.least:
            raise StepFailed(_failures(wave))
        return Going(output=given if self.merge is None else called("merge", self.merge, given))

    def over(self, wave: Mapping[str, TurnKind | None]) -> Over | None:
        return None if self.least is None else out_of_reach(wave, self.least)

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        for name in self.names:
            yield START, name, None, False
            yield name, END, None, False


def out_of_reach(wave: Mapping[str, TurnKind | None], least: int) -> Over | None:
    """Whether so many steps of a wave have failed that the least number of successes cannot be reached."""
    hopes = sum(kind is None or kind in ("completed", "skipped") for kind in wave.values())
    return Over(f"{least} of {len(wave)} steps cannot succeed any more", failed=True) if hopes < least else None


def called(what: str, function: Callable[..., object], *given: object) -> object:
    """Calls a function of the user's. Raises `StepFailed`."""
    try:
        return function(*given)
    except Exception as error:
        raise StepFailed({what: f"{what} raised {type(error).__name__}"}) from error


@dataclass(frozen=True, kw_only=True)
class Race(Scheme):
    """All steps side by side, each with the input; the first to succeed win."""

    kind = "race"
    least: int = 1

    @property
    def last(self) -> tuple[str, ...]:
        return self.names if self.least == 1 else ()

    def next(self, known: Known, wave: Sequence[Turn]) -> Going:
        if not wave:
            return Going([(name, known.input) for name in self.names])
        won = {turn.step: turn.output for turn in wave if turn.kind == "completed"}
        if len(won) < self.least:
            raise StepFailed(_failures(wave))
        return Going(output=next(iter(won.values())) if self.least == 1 else won)

    def over(self, wave: Mapping[str, TurnKind | None]) -> Over | None:
        won = [name for name, kind in wave.items() if kind == "completed"]
        if len(won) >= self.least:
            return Over(f"{', '.join(won)} {'was' if len(won) == 1 else 'were'} faster")
        return out_of_reach({name: "failed" if kind == "skipped" else kind for name, kind in wave.items()}, self.least)

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        for name in self.names:
            yield START, name, None, False
            yield name, END, None, True


@dataclass(frozen=True, kw_only=True)
class RoundRobin(Scheme):
    """The steps take turns, each with what the one before gave."""

    kind = "round_robin"
    unit: ClassVar[str | None] = "step"
    rounds: int | None = None
    until: Callable[[Any], object] | None = None

    @property
    def acts(self) -> bool:
        return self.until is not None

    @property
    def total(self) -> int | None:
        return None if self.rounds is None else self.rounds * len(self.names)

    def expected(self, place: int) -> Sequence[str]:
        return (self.names[place % len(self.names)],)

    def next(self, known: Known, wave: Sequence[Turn]) -> Going:
        if not wave:
            return Going([(self.names[0], known.input)], known.input)
        value = wave[-1].output
        until = self.until
        if len(known.turns) == self.total or (until is not None and called("until", lambda: is_true(until(value)))):
            return Going(output=value)
        return Going([(self.names[len(known.turns) % len(self.names)], value)], value)

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        yield from _chain(self.names)
        yield self.names[-1], self.names[0], "again", True


@dataclass(frozen=True, kw_only=True)
class Edge:
    """The steps that a step of a DAG waits for, and the condition on which it runs."""

    needs: tuple[str, ...] = ()
    when: Callable[[Any], object] | None = None
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class Dag(Scheme):
    """Runs each step once all steps that it needs have finished."""

    kind = "dag"
    unit: ClassVar[str | None] = "node"
    edges: Mapping[str, Edge]
    on_error: Literal["fail", "skip_downstream", "continue"] = "fail"
    merge: Callable[[dict[str, Any]], object] | None = None

    @property
    def acts(self) -> bool:
        return self.merge is not None or any(edge.when is not None for edge in self.edges.values())

    @property
    def sinks(self) -> tuple[str, ...]:
        """The steps that no other needs."""
        needed = {name for edge in self.edges.values() for name in edge.needs}
        return tuple(name for name in self.names if name not in needed)

    @property
    def last(self) -> tuple[str, ...]:
        return self.sinks if len(self.sinks) == 1 and self.merge is None else ()

    def units(self, known: Known) -> int:
        return sum(turn.kind != "left_out" for turn in known.turns)

    def next(self, known: Known, wave: Sequence[Turn]) -> Going:
        through = {turn.step: turn for turn in known.turns}
        out: list[Turn] = []
        found: dict[str, object] = {}
        while True:
            begun = {*found, *known.open}
            ready = [name for name in self.names if self._is_due(name, through) and name not in begun]
            for name in ready:
                value = self._given(name, known, through)
                if (why := self._against(name, value, through)) is None:
                    found[name] = value
                else:
                    through[name] = Turn(name, "left_out", why=why)
                    out.append(through[name])
            if not any(name in through for name in ready):
                break
        if found:
            return Going([(name, found[name]) for name in sorted(found, key=self.rank)], turns=out)
        if known.open:
            return Going(turns=out)
        if not any(turn.gave for turn in through.values()):
            raise StepFailed(_failures(through.values()))
        given = {name: through[name].output for name in self.sinks if through[name].gave}
        if self.merge is not None:
            return Going(output=called("merge", self.merge, given), turns=out)
        one = given.get(self.sinks[0]) if len(self.sinks) == 1 else given
        return Going(output=one, turns=out)

    @property
    def is_eager(self) -> bool:
        return True

    def is_due(self, through: Container[str], open: Container[str]) -> bool:
        return any(self._is_due(name, through) and name not in open for name in self.names)

    def rank(self, name: str) -> int:
        return -self.edges[name].priority

    def _is_due(self, name: str, through: Container[str]) -> bool:
        return name not in through and all(each in through for each in self.edges[name].needs)

    def _given(self, name: str, known: Known, through: Mapping[str, Turn]) -> object:
        needs = self.edges[name].needs
        return {each: through[each].output for each in needs if through[each].gave} if needs else known.input

    def _against(self, name: str, value: object, through: Mapping[str, Turn]) -> str | None:
        """Why a step is left out; None if it runs."""
        edge = self.edges[name]
        lost = [each for each in edge.needs if through[each].kind == "failed" or _is_after_failure(through[each])]
        if lost and self.on_error == "skip_downstream":
            return f"{_FAILED}{', '.join(lost)}"
        if edge.needs and not any(through[each].gave for each in edge.needs):
            return "nothing that it needs was there"
        if edge.when is None:
            return None
        try:
            return None if is_true(edge.when(json.loads(canonical(value)))) else "its predicate said no"
        except Exception as error:
            return f"its predicate raised {type(error).__name__}"

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        for name in self.names:
            edge = self.edges[name]
            for need in edge.needs or (START,):
                yield need, name, None, edge.when is not None
        yield from ((name, END, None, False) for name in self.sinks)


_FAILED: Final = "it needs what failed: "


def _is_after_failure(turn: Turn) -> bool:
    return turn.kind == "left_out" and (turn.why or "").startswith(_FAILED)


@dataclass(frozen=True, kw_only=True)
class Supervisor(Scheme):
    """A manager says who works next, and on what, until it has the answer. The manager is the first of the steps."""

    kind = "supervisor"
    unit: ClassVar[str | None] = "round"
    about: Mapping[str, str] = field(default_factory=dict)
    rounds: int = 10

    @property
    def last(self) -> tuple[str, ...]:
        return ()

    @property
    def total(self) -> int | None:
        return None

    def expected(self, place: int) -> Sequence[str]:
        return self.names[1:] if place % 2 else self.names[:1]

    def units(self, known: Known) -> int:
        return sum(turn.step != self.names[0] for turn in known.turns)

    def next(self, known: Known, wave: Sequence[Turn]) -> Going:
        manager = self.names[0]
        if not wave or wave[-1].step != manager:
            return Going([(manager, self._asked(known))], known.input if not wave else KEPT)
        if wave[-1].kind == "skipped":  # nobody manages any more: what there is stands
            worked = [turn.output for turn in known.turns if turn.gave and turn.step != manager]
            return Going(output=worked[-1] if worked else known.input)
        worker, instruction, answer = said_by(manager, wave[-1].output)
        if worker is None:
            return Going(output=answer)
        if worker not in self.names[1:]:
            raise StepFailed({manager: f"it named {worker[:80]!r}; the workers are {', '.join(self.names[1:])}"})
        return Going([(worker, instruction)])

    def _asked(self, known: Known) -> dict[str, object]:
        """Makes the input of the manager: the whole story each time, since each of its turns is a run of its own."""
        done: list[dict[str, object]] = []
        for turn in known.turns:
            if turn.step == self.names[0]:
                worker, instruction, _ = said_by(turn.step, turn.output)
                done.append({"worker": worker, "instruction": instruction})
            elif turn.kind == "failed":
                done[-1]["failed"] = turn.why
            elif turn.kind == "skipped":
                done[-1]["skipped"] = "a human left this out"
            else:
                done[-1]["answer"] = turn.output
        return {"task": known.input, "workers": dict(self.about), "done": done}

    def limit(self, known: Known, opens: Iterable[str]) -> tuple[str, int] | None:
        used = self.units(known)
        return ("max_rounds", self.rounds) if used >= self.rounds and set(opens) - {self.names[0]} else None

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        yield START, self.names[0], None, False
        for name in self.names[1:]:
            yield self.names[0], name, None, True
            yield name, self.names[0], None, False
        yield self.names[0], END, "answer", True


def said_by(manager: str, said: object) -> tuple[str | None, object, object]:
    """Reads a manager's reply: the next worker and its task, or the answer. Raises `StepFailed` for a reply that has neither."""
    if not isinstance(said, dict) or not isinstance(worker := said.get("worker"), str | None):
        raise StepFailed(
            {manager: "it said neither who works next nor the answer: give worker and instruction, or answer"}
        )
    if worker is None and said.get("answer") is None:
        raise StepFailed({manager: "it said neither who works next nor the answer"})
    return worker, said.get("instruction"), said.get("answer")


@dataclass(frozen=True, kw_only=True)
class Reflect(Scheme):
    """A writer drafts, a critic judges, and the writer drafts again, until it passes. They are the two steps."""

    kind = "reflect"
    unit: ClassVar[str | None] = "iter"
    rounds: int = 2
    threshold: float | None = None
    on_exhausted: Literal["accept_last", "accept_best", "fail"] = "accept_last"

    @property
    def last(self) -> tuple[str, ...]:
        return self.names[:1]

    @property
    def total(self) -> int | None:
        return None

    def expected(self, place: int) -> Sequence[str]:
        return (self.names[place % 2],)

    def units(self, known: Known) -> int:
        return sum(turn.step == self.names[1] for turn in known.turns)

    def next(self, known: Known, wave: Sequence[Turn]) -> Going:
        writer, critic = self.names
        if not wave:
            return Going([(writer, known.input)], known.input)
        drafts, judged = self._so_far(known)
        if wave[-1].step == writer:
            return Going([(critic, {"task": known.input, "draft": drafts[-1], "answer_with": _FORM})], drafts[-1])
        passed, _, feedback = judged[-1]
        if passed:
            return Going(output=drafts[-1])
        if len(judged) >= self.rounds and self.on_exhausted != "fail":
            best = max(range(len(judged)), key=lambda place: (judged[place][1], place))
            return Going(output=drafts[best if self.on_exhausted == "accept_best" else -1])
        return Going([(writer, {"task": known.input, "draft": drafts[-1], "feedback": feedback})])

    def _so_far(self, known: Known) -> tuple[list[object], list[tuple[bool, float, str]]]:
        """The drafts, and what was said of each."""
        drafts: list[object] = []
        judged: list[tuple[bool, float, str]] = []
        for turn in known.turns:
            if turn.step != self.names[0]:
                judged.append((True, -1.0, "") if turn.kind == "skipped" else self._judged(turn.output))
            elif turn.kind == "skipped":  # the draft before it stands
                drafts.append(drafts[-1] if drafts else known.input)
            else:
                drafts.append(turn.output)
        return drafts, judged

    def _judged(self, said: object) -> tuple[bool, float, str]:
        """Whether a draft passes, its score (below 0 where there is none), and the feedback."""
        found = _object_in(said)
        passed, score = (found.get("passed"), found.get("score")) if found is not None else (None, None)
        is_score = is_number(score)
        if found is None or (not isinstance(passed, bool) and not (is_score and self.threshold is not None)):
            return (
                False,
                -1.0,
                f"The evaluation could not be read, so the draft has not passed. It was: {as_text(said)}",
            )
        value = float(score) if is_score else -1.0  # type: ignore[arg-type]
        high = self.threshold is not None and is_score and value >= self.threshold
        return passed is True or high, value, as_text(found.get("feedback") or "")

    def limit(self, known: Known, opens: Iterable[str]) -> tuple[str, int] | None:
        used = self.units(known)
        return ("max_rounds", self.rounds) if used >= self.rounds and self.names[0] in opens else None

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        writer, critic = self.names
        yield START, writer, None, False
        yield writer, critic, None, False
        yield critic, writer, "again", True
        yield critic, END, "passed", True


_FORM: Final = 'JSON alone: {"passed": true or false, "score": a number or null, "feedback": "what to do better"}'


def _object_in(said: object) -> dict[str, object] | None:
    """The JSON object in what a critic said: one that can be kept, since models write NaN and brackets without end."""
    if isinstance(said, dict):
        return said
    text = as_text(said)
    start, end = text.find("{"), text.rfind("}")
    try:
        found: object = parse(text[start : end + 1]) if 0 <= start < end else None
    except JsonError:
        return None
    return {**found} if isinstance(found, dict) else None

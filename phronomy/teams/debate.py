"""Debates: several sides propose, a judge names the best proposal and says what to do better, and the sides propose again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final, Literal

from typing_extensions import Unpack

from phronomy.errors import GraphError
from phronomy.foundation.checks import is_count
from phronomy.foundation.dataclasses import dataclass
from phronomy.graph.signals import END, START
from phronomy.teams.patterns import Pattern, PatternOptions, _listed, _nodes, _one_of, _plain_runs, _run_of, _where
from phronomy.teams.schemes import Going, Known, Scheme, StepFailed, Turn, _failures, _object_in, as_text
from phronomy.teams.steps import names_for

_FORM: Final = 'JSON alone: {"winner": "the name of the best proposal", "feedback": "what all are to do better"}'


@dataclass(frozen=True, kw_only=True)
class Debate(Scheme):
    """All sides propose, the judge names a winner, and so on for so many rounds. The judge is the last of the steps."""

    kind = "debate"
    unit: ClassVar[str | None] = "round"
    rounds: int = 2

    def units(self, known: Known) -> int:
        return sum(turn.step == self.names[-1] for turn in known.turns)

    @property
    def last(self) -> tuple[str, ...]:
        return self.names[:-1]

    @property
    def total(self) -> int | None:
        return self.rounds * len(self.names)

    def expected(self, place: int) -> Sequence[str]:
        return (self.names[place % len(self.names)],)

    def next(self, known: Known, wave: Sequence[Turn]) -> Going:
        *sides, judge = self.names
        if not wave:
            return Going([(side, known.input) for side in sides])
        # Everything is read off the turns, also what the sides are told of the round before. So a checkpoint never holds a prompt
        # that is older than the feedback beside it.
        proposals = self._proposals(known.turns)
        if not proposals:
            raise StepFailed(_failures(wave))
        round_ = self.units(known) + 1
        if wave[-1].step != judge:
            asked = {"task": known.input, "round": round_, "rounds": self.rounds, "proposals": proposals}
            return Going([(judge, {**asked, "answer_with": _FORM})])
        winner, feedback = self._judged(known, wave[-1], proposals)
        noted = {"winner": winner}
        if round_ > self.rounds:
            return Going(output=proposals[winner], noted=noted)
        told = [(side, self._told(known, side, proposals, winner, feedback, round_)) for side in sides]
        return Going(told, proposals[winner], noted=noted)

    def _proposals(self, turns: Sequence[Turn]) -> dict[str, object]:
        """The proposals that stand, in the order of the sides: of each its last, if a round brought no other."""
        found = {turn.step: turn.output for turn in turns if turn.kind == "completed" and turn.step != self.names[-1]}
        return {name: found[name] for name in self.names if name in found}

    def _judged(self, known: Known, turn: Turn, proposals: Mapping[str, object]) -> tuple[str, str]:
        """The winner and the feedback. If the judge names no proposal, it is the first; without a judge, the last winner stays."""
        first = next(iter(proposals))
        if turn.kind == "skipped":
            found: dict[str, object] = {"winner": known.noted.get("winner")}
        else:
            found = _object_in(turn.output) or {}
        winner = found.get("winner")
        named = winner if isinstance(winner, str) and winner in proposals else first
        return named, as_text(found.get("feedback") or "")

    def _told(
        self, known: Known, side: str, proposals: Mapping[str, object], winner: str, feedback: str, round_: int
    ) -> dict[str, object]:
        others = {name: proposal for name, proposal in proposals.items() if name != side}
        return {
            "task": known.input,
            "round": round_,
            "yours": proposals.get(side),
            "others": others,
            "winner": winner,
            "feedback": feedback,
        }

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        *sides, judge = self.names
        for side in sides:
            yield START, side, None, False
            yield side, judge, None, False
        yield from ((judge, side, "again", True) for side in sides)
        yield judge, END, None, True


def debate(
    *sides: object,
    judge: object,
    rounds: int = 2,
    on_error: Literal["fail", "skip"] = "fail",
    **options: Unpack[PatternOptions],
) -> Pattern:
    """A pattern: all sides propose in parallel, and a judge names the best proposal, for a number of rounds.

    The output is the proposal that wins the last round. `sides` are two or more agents, graphs, patterns, functions or
    `Step`s, or one mapping of these by name. In the first round, each side gets the input. In later rounds it gets the
    task, its own last proposal (`yours`), the `others`, the `winner`, and the `feedback` of the judge. The judge
    answers with JSON (`winner`, `feedback`). It can also be an agent with such an output type, or a function. If its
    answer names no proposal, the first side has won. With `on_error="skip"`, a side that fails keeps its last proposal;
    if no side has one, `NodeFailed` has the reason for each. Raises `GraphError`.
    """
    where = _where("debate", options)
    _one_of(where, "on_error", on_error, ("fail", "skip"))
    if not is_count(rounds) or rounds == 0:
        raise GraphError(f"{where}: rounds is a whole number above 0")
    listed = _listed(where, sides)
    if len(listed) < 2:
        raise GraphError(f"{where} needs two sides or more")
    made = _nodes(where, listed, needed=on_error == "fail")
    own = next(iter(dict(names_for(_plain_runs([_run_of(judge)]), where=where))))
    while own in made:
        own = f"{own[:58]}_judge"
    nodes = {**made, **_nodes(where, {own: judge})}
    return Pattern(Debate(names=tuple(nodes), rounds=rounds), nodes, options)

"""A pattern as the drivers see it: the rules of a graph, of which a scheme says who works next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from phronomy.concurrency.superfluous import UNNEEDED
from phronomy.concurrency.workers import in_either
from phronomy.conversation.output import InvalidOutput
from phronomy.engine.spec import Advancing
from phronomy.errors import CheckpointError, ConfigurationError, NodeFailed
from phronomy.foundation.cached_property import cached
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, JsonText, parse
from phronomy.graph.flow.routes import Going as Waves
from phronomy.graph.flow.routes import Routes
from phronomy.graph.flow.waves import AFTER, calls_of, channels_of, is_at_start
from phronomy.graph.signals import START, Send
from phronomy.graph.state.channels import append, merge
from phronomy.graph.state.joins import arrivals_in, given_in, state_with
from phronomy.records.calls import Advanced, Call, CallResult, CallSettled, Outcome
from phronomy.records.checkpoint import AgentRef, Checkpoint
from phronomy.records.messages import Usage
from phronomy.records.moves import Advance as AdvanceMove
from phronomy.records.moves import Consult, Done, Fail, Finish, Judge, Move, Run, Stop, Wait
from phronomy.rules.added_messages import is_ending
from phronomy.rules.transitions import current
from phronomy.teams.guarding import TeamSpec
from phronomy.teams.labels import Labels
from phronomy.teams.schemes import KEPT, Going, Known, Over, Scheme, StepFailed, Turn, TurnKind
from phronomy.teams.steps import FunctionStep, RunStep, as_json

_NAMED: Final[Mapping[str, TurnKind]] = {
    "completed": "completed",
    "responded": "completed",
    "skipped": "skipped",
    "failed": "failed",
    "invalid": "failed",
}


class PatternState(BaseModel):
    """The state of a run of a pattern.

    `pattern` is the kind of the pattern, `input` its input, and `output` the output so far. `turns` are the results of
    the steps, in order. Each has the `step`, its `output`, the `kind` of its end, and `why` if it has no output. The
    kinds are `completed`, `skipped` (a human skipped it, and its input was passed on), `failed`, `left_out` (not
    needed, or not possible) and `cancelled` (other steps were faster). `noted` has what the pattern itself has found:
    for a debate the `winner` so far, for a goal `satisfaction`, `achieved` and `rounds`.
    """

    pattern: str
    input: Any = Field(default=None, repr=False)
    output: Any = Field(default=None, repr=False)
    turns: Annotated[list[dict[str, Any]], append] = Field(default=[], repr=False)
    noted: Annotated[dict[str, Any], merge] = Field(default={}, repr=False)

    @property
    def outputs(self) -> dict[str, Any]:
        """The last output of each step, by name."""
        return {turn["step"]: turn["output"] for turn in self.turns if turn["kind"] in ("completed", "skipped")}

    @property
    def failures(self) -> dict[str, str]:
        """The reasons of the failed steps, by name."""
        return {turn["step"]: turn["why"] for turn in self.turns if turn["kind"] == "failed"}

    @property
    def winners(self) -> tuple[str, ...]:
        """The names of the steps that have completed; in a race, these have won. In a debate, the winner so far."""
        if self.pattern == "debate":
            return tuple(filter(None, [self.noted.get("winner")]))
        return tuple(dict.fromkeys(turn["step"] for turn in self.turns if turn["kind"] == "completed"))


@dataclass(frozen=True, kw_only=True)
class Ways(Routes):
    """The edges of a pattern as they are drawn: its scheme says which of them are taken, from the first on."""

    scheme: Scheme

    def is_routed(self, node: str) -> bool:
        """Whether something decides where to go on: where a pattern begins, its scheme does."""
        return node == START

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        """The edges as they are drawn."""
        return self.scheme.drawn()


class Reading:
    """Reads the output of a pattern: of the type of the steps that may have given it, if they have one; else as plain JSON."""

    def __init__(self, steps: Sequence[FunctionStep | RunStep | None]) -> None:
        self._types = [_type_of(step) for step in steps]

    def value(self, text: str) -> object:
        """The value in a text."""
        kinds = {id(getattr(each, "hint", each)): each for each in self._types}
        one = next(iter(kinds.values())) if len(kinds) == 1 else None
        if one is not None:
            try:
                return one.value(text)
            except InvalidOutput:  # it was not given by that step: what came to it was passed on
                pass
        return json.loads(text)


def _type_of(step: FunctionStep | RunStep | None) -> Any:
    if not isinstance(step, RunStep):
        return None
    spec = step.inner.spec
    return spec.output if spec.flow is None or isinstance(spec, PatternSpec) else None


@dataclass(frozen=True, kw_only=True)
class PatternSpec(TeamSpec):
    """The rules of a pattern's runs."""

    scheme: Scheme
    labels: Labels | None = None

    @property
    def pattern(self) -> str:
        """The name by which breakpoints know the pattern."""
        return self.name

    @property
    def takes_value(self) -> bool:
        """Its runs are given a plain value, and give one."""
        return True

    @property
    def output(self) -> object:
        """How the output at the end is read."""
        return Reading([self.step(name) for name in self.scheme.last])

    def step(self, name: str) -> FunctionStep | RunStep | None:
        """The step of this name."""
        found = self.nodes.get(name)
        return found if isinstance(found, FunctionStep | RunStep) else None

    @cached
    def _ref(self) -> AgentRef:
        shape: dict[str, object] = {name: [node.schema_hash, node.gate] for name, node in self.nodes.items()}
        facts = {"tools": shape, "instructions": "", "model": "", "pattern": self.scheme.kind}
        return AgentRef(name=self.name, fingerprint=facts)

    def advance(self, state: Checkpoint, deps: object) -> Advancing:
        """Prepares the step from what has settled to what follows."""
        return Advance(self, state)

    @property
    def is_eager(self) -> bool:
        """Whether a step begins as soon as what it needs has settled, whatever else is open."""
        return self.scheme.is_eager

    def label_of(self, before: Checkpoint, after: Checkpoint) -> str | None:
        """The label of a checkpoint, if a unit has finished in it that gets one."""
        if self.labels is None:
            return None
        return self.labels.of(self.name, self.scheme, known_of(before, self.scheme), known_of(after, self.scheme))

    def lost(self, state: Checkpoint) -> list[str]:
        """As for a graph; and that it is a pattern of another kind now."""
        was = json.loads(channels_of(state)).get("pattern")
        if was != self.scheme.kind:
            return [f"it was {was!s:.40}, and is {self.scheme.kind}", *super().lost(state)]
        try:
            turns = known_of(state, self.scheme).turns
        except CheckpointError as error:
            return [str(error), *super().lost(state)]
        # The open steps get the next turns, in this order: with other steps in their places, nothing could follow from them.
        due = [(call.name, self.scheme.expected(place)) for place, call in enumerate(wave_of(state), len(turns))]
        misplaced = [
            f"step {name} is open, where {' or '.join(wanted) or 'none'} is due"
            for name, wanted in due
            if name not in wanted
        ]
        return [*misplaced, *super().lost(state)]

    def first(self, input: object, parent: Checkpoint | None, history: object) -> dict[str, object]:
        """The state that a run of this input begins with: each run begins afresh. Raises `ConfigurationError`."""
        if self.update is not None or self.modify is not None:
            raise ConfigurationError(f"pattern {self.name!r}: only resume changes the state")
        if history is not None:
            raise ConfigurationError(f"pattern {self.name!r}: a pattern begins with an input, not with messages")
        given = json.loads(as_json(input, f"pattern {self.name!r}: its input"))
        begun = self.schema.update(START, {"pattern": self.scheme.kind, "input": given, "output": given})
        channels = self.schema.reduce(self.schema.initial(), [(START, begun)])
        return {"original_input": given, "state": channels, "calls": ()}

    # The rules

    def plan(self, state: Checkpoint) -> Move:
        """What comes next."""
        state = current(state, self.apply)
        move = super().plan(state)
        if self.is_eager and isinstance(move, Judge | Consult | Run | Wait):
            if self._is_due(state):
                return AdvanceMove()
            move = self._in_order(state, move) if isinstance(move, Run) else move
        failed = tuple(call for call in state.calls if call.status == "failed")
        if failed and not isinstance(move, Done) and not any(call.status == "started" for call in state.calls):
            over = self.is_over(state)
            if over is not None and over.failed and not is_ending(state):
                return Stop(calls=failed)  # whatever else waits, or could begin
        if isinstance(move, Finish) and move.status == "completed":
            return Finish(status="completed", output=json.loads(channels_of(state)).get("output"))
        if opens := [call.name for call in state.calls if call.status == "new" and not call.name.startswith(AFTER)]:
            known = known_of(state, self.scheme)
            if (limit := self.scheme.limit(known, opens)) is not None:
                return Fail(limit=limit[0], maximum=limit[1], used=limit[1])
        return move

    def _is_due(self, state: Checkpoint) -> bool:
        """Whether a step could begin, since all that it needs is through, while others are open. Behind a stop, none does."""
        settled = {call.name for call in wave_of(state) if call.result is not None}
        if not settled or is_ending(state) or any(call.status == "failed" for call in state.calls):
            return False
        if self.is_over(state) is not None or any(_is_stop(call) and call.result is None for call in state.calls):
            return False
        through = settled | {turn.step for turn in known_of(state, self.scheme).turns}
        return self.scheme.is_due(through, {call.name for call in wave_of(state) if call.result is None})

    def _in_order(self, state: Checkpoint, move: Run) -> Run:
        """The calls that run next, by the rank of their steps: some may have been waiting longer than others."""
        if any(_is_stop(call) for call in move.calls):
            return move
        ready = sorted(
            (call for call in state.calls if call.status == "ready"), key=lambda call: self.scheme.rank(call.name)
        )
        return Run(calls=tuple(ready[: len(move.calls)]))

    def apply(self, state: Checkpoint, outcome: Outcome) -> Checkpoint:
        """The next state, with what is not needed any more settled. Raises `IllegalOutcome`."""
        was = self.is_over(state)
        after = super().apply(state, outcome)
        if isinstance(outcome, CallSettled) and was is not None and not was.failed:
            after = _with(after, outcome.id, _unneeded(was.why))  # what comes too late does not count
        if after.ended or after.rejecting or after.ending is not None or (over := self.is_over(after)) is None:
            return after
        calls = [self._settled(call, over) for call in after.calls]
        return (
            after.evolve(calls=tuple(calls))
            if any(a is not b for a, b in zip(calls, after.calls, strict=True))
            else after
        )

    def is_over(self, state: Checkpoint) -> Over | None:
        """Whether the rest of the wave is not needed: somebody refused a step, or the scheme has what it wants, or never will."""
        wave = wave_of(state)
        if not any(call.result is not None or call.status == "failed" for call in wave):
            return None
        for call in wave:
            if call.result is not None and call.result.kind not in _NAMED and not is_unneeded(call):
                return Over(f"{call.name} was {call.result.kind}")
        return self.scheme.over({call.name: _kind_of(call) for call in wave})

    def over(self, state: Checkpoint) -> dict[str, str]:
        """The calls that are not needed any more, by id, and why: those under way are told, and left or waited for."""
        over = self.is_over(state)
        if over is None or over.failed:
            return {}
        return {call.id: over.why for call in wave_of(state) if call.status == "started" or is_unneeded(call)}

    def _settled(self, call: Call, over: Over) -> Call:
        if call.gate or call.name.startswith(AFTER) or call.status == "started":
            return call
        if over.failed:  # a resume runs again what failed, and with it all may yet succeed
            if call.result is None or call.result.kind != "failed":
                return call
            return call.evolve(status="failed", why="failed", reason=call.result.content, result=None)
        if call.result is None and not self._is_unknown(call):
            return call.evolve(status="settled", result=_unneeded(over.why), arguments=None, waiting=())
        return call

    def _is_unknown(self, call: Call) -> bool:
        """Whether nobody may know what a call has done: its worker was lost in the middle. Needed or not, a human is asked."""
        if call.status == "ready" and call.attempt > 0:
            return isinstance(
                self.step(call.name), RunStep
            )  # what is inside says whether it was in the middle of anything
        return any(why == "outcome_unknown" for why in (call.why, *(item.why for item in call.waiting)))


def wave_of(state: Checkpoint) -> list[Call]:
    """The open calls that are steps, and those that have settled since the last step on."""
    return [call for call in state.calls if not _is_stop(call)]


def _is_stop(call: Call) -> bool:
    return call.gate or call.name.startswith(AFTER)


def known_of(state: Checkpoint, scheme: Scheme) -> Known:
    """Reads from a checkpoint the facts that the scheme decides by. Raises `CheckpointError` for turns of another scheme."""
    found: dict[str, Any] = json.loads(channels_of(state))
    try:
        turns = [Turn(**turn) for turn in found.get("turns", [])]
    except TypeError:
        raise CheckpointError(
            f"the turns in the state of the checkpoint cannot be read (checkpoint {state.id})"
        ) from None
    for place, turn in enumerate(turns):
        if turn.step not in (wanted := scheme.expected(place)):
            here = " or ".join(wanted) or "none"
            raise CheckpointError(
                f"turn {place} of the checkpoint is of step {turn.step!s:.80}, where that of {here} is due (checkpoint {state.id})"
            )
    return Known(found.get("input"), found.get("output"), turns, found.get("noted", {}), state.elapsed)


def is_unneeded(call: Call) -> bool:
    """Whether the pattern has settled a call itself."""
    return call.result is not None and call.result.kind == "cancelled" and call.result.content.startswith(UNNEEDED)


def _unneeded(why: str) -> CallResult:
    return CallResult(kind="cancelled", content=f"{UNNEEDED}{why}.")


def _with(state: Checkpoint, id: str, result: CallResult) -> Checkpoint:
    return state.evolve(calls=tuple(call.evolve(result=result) if call.id == id else call for call in state.calls))


def _kind_of(call: Call) -> TurnKind | None:
    if call.result is None:
        return "failed" if call.status == "failed" else None
    return "cancelled" if is_unneeded(call) else _NAMED.get(call.result.kind, "failed")


class Advance:
    """The step from steps that have settled to what follows: all of a wave, or those of a DAG that others wait for."""

    def __init__(self, spec: PatternSpec, state: Checkpoint) -> None:
        self._spec = spec
        self._state = state

    @property
    def acts(self) -> bool:
        """Whether code of the user's has a say in it, so that what the steps gave is to be stored first. So is who has lost."""
        if any(is_unneeded(call) for call in wave_of(self._state)):
            return True
        steps = [self._spec.step(name) for name in self._spec.nodes]
        return self._spec.scheme.acts or any(step is not None and step.transform is not None for step in steps)

    async def aoutcome(self, at: datetime) -> Advanced:
        """As `outcome`."""
        if not self.acts:
            return self.outcome(at)
        found: Advanced = await in_either(self.outcome, False, at)
        return found

    def outcome(self, at: datetime) -> Advanced:
        """The outcome. Raises `NodeFailed` where the pattern cannot go on."""
        spec, state = self._spec, self._state
        wave = [call for call in wave_of(state) if call.result is not None]
        open = frozenset(call.name for call in state.calls if call.result is None)
        settled = tuple(call.id for call in state.calls if call.result is not None) if open else None
        read = [self._read(call) for call in wave]
        turns = [turn for turn, _, _ in read]
        if (ended := self._ended(wave, read)) is not None:
            text, (status, reason) = self._with(Going(turns=turns)), ended
            return Advanced(state=text, status=status, reason=reason, at=at, settled=settled)
        known = known_of(state, spec.scheme)
        known = known._replace(turns=[*known.turns, *turns], open=open)
        try:
            going = spec.scheme.next(known, turns)
            sends = tuple(self._send(name, value, known.input) for name, value in going.steps)
        except StepFailed as error:
            failures = error.failures
            told = "; ".join(f"{name}: {why}" for name, why in failures.items())
            raise NodeFailed(
                f"run {state.run_id}: pattern {spec.name!r} cannot go on: {told}", failures=failures
            ) from (error.__cause__)
        text = self._with(going._replace(turns=[*turns, *going.turns]))
        gates = self._gates(wave, read)
        if not sends and going.output is KEPT and is_at_start(state):
            raise NodeFailed(f"run {state.run_id}: no step of pattern {spec.name!r} can begin", failures={})
        calls = calls_of(spec, state.turn + 2, JsonText(text), Waves((), sends), gates)
        return Advanced(state=text, calls=calls, at=at, settled=settled)

    def _read(self, call: Call) -> tuple[Turn, str, str | None]:
        """Reads the turn of a settled step; its signal, if it gave one, with the reason."""
        assert call.result is not None
        kind, content = call.result.kind, call.result.content
        if is_unneeded(call):
            return Turn(call.name, "cancelled", why=content.removeprefix(UNNEEDED).rstrip(".")), "", None
        named = _NAMED.get(kind)
        if named == "skipped":  # what came to it is passed on
            return Turn(call.name, "skipped", (call.args or {}).get("arg")), "", None
        if named != "completed":
            return Turn(call.name, named or "cancelled", why=content), "", None
        step = self._spec.step(call.name)
        if isinstance(step, RunStep):
            return Turn(call.name, "completed", _value_in(step, content, told=kind == "responded")), "", None
        if kind == "responded":
            return Turn(call.name, "completed", _json_or_text(content)), "", None
        told: dict[str, Any] = json.loads(content)
        return Turn(call.name, "completed", told["value"]), told["signal"], told["reason"]

    def _ended(
        self, wave: Sequence[Call], read: Sequence[tuple[Turn, str, str | None]]
    ) -> tuple[Literal["rejected", "cancelled"], str | None] | None:
        """Gives the end of the run and its reason, if a human rejected a step or a step aborted the run."""
        for call, (_, signal, reason) in zip(wave, read, strict=True):
            assert call.result is not None
            if signal == "abort":
                return "cancelled", reason or f"step {call.name} gave the run up"
            if call.result.kind not in _NAMED and not is_unneeded(call):
                if call.result.kind == "rejected":
                    return "rejected", None
                return "cancelled", f"step {call.name} is {call.result.kind}"
        return None

    def _gates(self, wave: Sequence[Call], read: Sequence[tuple[Turn, str, str | None]]) -> dict[str, str | None]:
        """Gives the interrupt points after this wave: the steps that paused the run, or after which it stops."""
        paused = {call.name: reason for call, (_, signal, reason) in zip(wave, read, strict=True) if signal == "pause"}
        after = self._spec.stops_at.after & {turn.step for turn, _, _ in read if turn.gave}
        return {name: paused.get(name) for name in self._spec.routes.in_order({*paused, *after})}

    def _send(self, name: str, value: object, original: object) -> Send:
        """The opening of a step with what it is given. Raises `StepFailed`."""
        step = self._spec.step(name)
        assert step is not None, "a scheme names its own steps"
        try:
            text = as_json(step.given(value, original), f"what comes to step {name!r}")
        except ConfigurationError as error:
            raise StepFailed({name: str(error)}) from None
        except Exception as error:
            raise StepFailed({name: f"its transform raised {type(error).__name__}"}) from error
        return Send(name, JsonText(f'{{"arg":{text}}}'))

    def _with(self, going: Going) -> JsonText:
        """The state with what is new: turns, notes, perhaps another output."""
        schema, state = self._spec.schema, self._state
        update: dict[str, object] = {"turns": [turn._asdict() for turn in going.turns]}
        if going.noted:
            update["noted"] = dict(going.noted)
        if going.output is not KEPT:
            update["output"] = json.loads(as_json(going.output, f"the output of pattern {self._spec.name!r}"))
        channels = schema.reduce(channels_of(state), [(START, schema.update(START, update))])
        before = state.__dict__["state"]
        return state_with(channels, arrivals_in(before), given_in(before))


def _value_in(step: RunStep, content: str, *, told: bool) -> object:
    """Reads the output of a run in a step: that of an agent without an output type is text."""
    spec = step.inner.spec
    if spec.flow is None and spec.output is None:
        return content
    return _json_or_text(content) if told or spec.flow is None else json.loads(content)


def _json_or_text(content: str) -> object:
    try:
        return parse(content)
    except JsonError:
        return content


def used_by(checkpoint: Checkpoint) -> Usage:
    """Sums the usage of a run and of the unfinished runs inside it."""
    parts = {part.path: part for part in (checkpoint, *checkpoint.nested)}
    usage = checkpoint.usage
    for path, part in parts.items():
        outer, _, id = path.rpartition("/")
        around = parts.get(outer) if path else None
        if around is not None and any(call.id == id and call.result is None for call in around.calls):
            usage = usage + part.usage
    return usage

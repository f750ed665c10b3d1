"""What a run has used, with what the runs inside it use while they are under way: their own record says so, until they are through."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from phronomy._ledger import Ledger
from phronomy.checkpoint import Checkpoint
from phronomy.limits import used_up
from phronomy.messages import Usage
from phronomy.types import AskModel, CallSettled, Fail, Move, Run

if TYPE_CHECKING:
    from phronomy._runner import Runner


class Spent(NamedTuple):
    """What a run has used: `elapsed` is the milliseconds in which it worked."""

    usage: Usage
    elapsed: int


def spent(ledger: Ledger, state: Checkpoint) -> Spent:
    """What the run that stands so has used, with what the runs inside it have that are not through."""
    usage, elapsed = state.usage, state.elapsed
    through = {each.id: each for each in state.journal if isinstance(each, CallSettled)}  # where nobody drives it yet
    for each in through.values():
        usage, elapsed = usage + each.usage, elapsed + each.elapsed
    for call in state.calls:
        if call.result is None and call.id not in through:
            path = f"{state.path}/{call.id}".lstrip("/")
            driven = ledger.driven.get(path)
            inside = driven.state if driven is not None else ledger.nested.get(path)
            more = spent(ledger, inside) if inside is not None else Spent(call.usage, 0)
            usage, elapsed = usage + more.usage, elapsed + more.elapsed
    return Spent(usage, elapsed)


def over_above(around: Iterable[Runner], move: Move) -> Fail | None:
    """The failure of a move by which a run would use more than those around it may; None if it would not."""
    if not isinstance(move, AskModel | Run):
        return None
    for run in around:
        usage, elapsed = spent(run.ledger, run.state)
        if (fail := used_up(run.home.limits, usage, elapsed, asks=isinstance(move, AskModel))) is not None:
            return replace(fail, path=run.state.path)
    return None


def seconds_left(runner: Runner) -> float | None:
    """How long the model may take, by the limits of the run and of those around it; None: for ever."""
    left = [left for left, _ in _times(runner)]
    return max(min(left), 0.001) if left else None


def out_of_time(runner: Runner, took: int) -> Fail:
    """The failure of a run whose model has taken so many milliseconds, until the time of the run, or of one around it, was over."""
    _, run = min(_times(runner), key=itemgetter(0))
    most, used = run.home.limits.seconds or 0.0, spent(run.ledger, run.state).elapsed + took
    return Fail(limit="seconds", maximum=most, used=used / 1000, path=run.state.path)


def _times(runner: Runner) -> list[tuple[float, Runner]]:
    """The seconds that are left to the run, and to each around it whose limits say so."""
    bounds = [(run, run.home.limits.seconds) for run in (runner, *runner.bounds)]
    return [(most - spent(run.ledger, run.state).elapsed / 1000, run) for run, most in bounds if most is not None]

"""What a run has used, with what the runs inside it use while they are under way: their own record says so, until they are through."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from phronomy.engine.shared import Shared
from phronomy.errors import LimitExceeded, OutputError, RunFailed
from phronomy.records.calls import CallSettled, path_inside
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.messages import Usage
from phronomy.records.moves import AskModel, Fail, Move, Run
from phronomy.rules.limits import used_up

if TYPE_CHECKING:
    from phronomy.engine.run import Runner


TIMEOUT: Final = "timeout"
"""The name of the limit that the `timeout` of a call is, for the run inside it."""


class Spent(NamedTuple):
    """What a run has used: `elapsed` is the milliseconds in which it worked."""

    usage: Usage
    elapsed: int


def spent(shared: Shared, state: Checkpoint) -> Spent:
    """What the run that stands so has used, with what the runs inside it have that are not through."""
    usage, elapsed = state.usage, state.elapsed
    # A run inside that nobody drives yet may have a journal that is not folded in. Its results have cost something too.
    through = {each.id: each for each in state.journal if isinstance(each, CallSettled)}  # where nobody drives it yet
    for each in through.values():
        usage, elapsed = usage + each.usage, elapsed + each.elapsed
    for call in state.calls:
        if call.result is None and call.id not in through:
            path = path_inside(state.path, call.id)
            driven = shared.driven.get(path)
            # One that is driven now knows more than what was stored when it last stopped.
            inside = driven.state if driven is not None else shared.nested.get(path)
            more = spent(shared, inside) if inside is not None else Spent(call.usage, 0)
            usage, elapsed = usage + more.usage, elapsed + more.elapsed
    return Spent(usage, elapsed)


def over_above(around: Iterable[Runner], move: Move) -> Fail | None:
    """The failure of a move by which a run would use more than those around it may; None if it would not."""
    # Only what costs something is kept from happening. A run that is over its limit may still settle what it has begun, and end.
    if not isinstance(move, AskModel | Run):
        return None
    for run in around:
        usage, elapsed = spent(run.shared, run.state)
        fail = used_up(run.home.limits, usage, elapsed, asks=isinstance(move, AskModel))
        if fail is None and run.timeout is not None and elapsed - run.since >= run.timeout * 1000:
            fail = Fail(limit=TIMEOUT, maximum=run.timeout, used=(elapsed - run.since) / 1000)
        if fail is not None:
            return replace(fail, path=run.state.path)
    return None


def seconds_left(runner: Runner) -> float | None:
    """How long the model may take, by the limits of the run and of those around it; None: for ever."""
    times = _times(runner)
    # Never nothing: a client that is given no time at all may take that for no bound.
    return max(min(times)[0], 0.001) if times else None


def out_of_time(runner: Runner, took: int) -> Fail:
    """The failure of a run whose model has taken so many milliseconds, until the time of the run, or of one around it, was over."""
    left, path, limit, most = min(_times(runner))
    return Fail(limit=limit, maximum=most, used=most - left + took / 1000, path=path)


def _times(runner: Runner) -> list[tuple[float, str, str, float]]:
    """The seconds that are left to the run, and to each around it that has a limit or a timeout: with its path, and which it is."""
    times: list[tuple[float, str, str, float]] = []
    for run in (runner, *runner.bounds):
        for limit, most, since in (("seconds", run.home.limits.seconds, 0), (TIMEOUT, run.timeout, run.since)):
            if most is not None:
                elapsed = spent(run.shared, run.state).elapsed - since
                times.append((most - elapsed / 1000, run.state.path, limit, most))
    return times


def limit_reached(runner: Runner, move: Fail) -> RunFailed:
    """The error for a run that has used up one of its limits."""
    run_id = runner.state.run_id
    if move.limit == "output_retries":
        return OutputError(
            f"run {run_id}: {move.used:g} answers were not of the output type, and output_retries is {move.maximum:g};"
            " raise it and resume the checkpoint to go on"
        )
    # A provider that tells no cost makes a limit of cost count as reached. The error says why, or nobody would understand it.
    used = "how much it used is not known" if move.used is None else f"it used {move.used:g}"
    return LimitExceeded(
        f"run {run_id} reached the limit {move.limit}={move.maximum:g}: {used}; raise it and resume the checkpoint to go on",
        limit=move.limit,
        maximum=move.maximum,
        used=move.used,
        path=runner.state.path if move.path is None else move.path,
    )

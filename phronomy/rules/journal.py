"""Folding in a journal: what happened since a checkpoint, as it was written.

What a worker wrote of its own work has to follow, or the log was cut or forged: to skip the beginning of a call would run it twice. A
decision is another matter. Whoever takes one has no claim, and at times no code of the agent; so one that does not follow is set aside,
as a worker does with those that it reads while it works. It counts for nothing, and its request waits on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from phronomy.errors import IllegalOutcome
from phronomy.records.calls import Added, Arrived, Decided, Ending, Halted, Outcome, Reminded, Voted
from phronomy.records.checkpoint import Checkpoint

LEFT: Final = (Decided, Voted, Reminded, Added, Arrived, Ending, Halted)
"""The outcomes that are left in the log of a run by others than the worker that drives it."""


def folded(
    state: Checkpoint, journal: Iterable[Outcome], fold: Callable[[Checkpoint, Outcome], Checkpoint]
) -> tuple[Checkpoint, tuple[Outcome, ...]]:
    """The state after a journal, and the outcomes in it that are set aside. Raises `IllegalOutcome` for others that do not follow."""
    aside: list[Outcome] = []
    for outcome in journal:
        try:
            state = fold(state, outcome)
        except IllegalOutcome:
            if not isinstance(outcome, LEFT):
                raise
            aside.append(outcome)
    return state, tuple(aside)

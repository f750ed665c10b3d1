"""The command that takes away runs that have ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from phronomy.cli.apps import Place, open_place
from phronomy.cli.commands.decide import confirm
from phronomy.cli.options import Json, Where, Yes, command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, PENDING, WrongUsage, age, time_of
from phronomy.foundation.dataclasses import dataclass
from phronomy.stores.derived.retention import candidates


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which runs are to go: those that ended so many seconds ago, but for some that are spared."""

    older_than: float
    keep_last: int
    keep_labeled: bool


def _take_away(screen: Screen, place: Place, wanted: Wanted, *, yes: bool, machine: bool) -> int:
    """Say what goes and what stays, ask, and take it away. The exit status."""
    if machine and not yes:
        raise WrongUsage("--json asks nobody, so it goes with --yes")
    before = place.store.clock() - wanted.older_than
    if not machine:
        with screen.reading():
            going = going_before(place, wanted, before)
        screen.say(
            f"{_counted(going, 'run')} that ended before {time_of(datetime.fromtimestamp(before, UTC))} can go.",
            style="bold",
        )
        screen.say(f"Spared: {'; '.join(_spared(wanted))}.")
        if not going:
            return DONE
    try:
        sure = yes or confirm(screen, "Take them away?")
    except EOFError:
        sure = False
    if not sure:
        screen.say("Nothing was taken away.", style="bold")
        return PENDING
    gone = place.store.prune(older_than=wanted.older_than, keep_labeled=wanted.keep_labeled, keep_last=wanted.keep_last)
    if machine:
        screen.document({"checkpoints": gone})
    else:
        screen.say(f"{_counted(gone, 'checkpoint')} taken away.", style="bold")
    return DONE


def going_before(place: Place, wanted: Wanted, before: float) -> int:
    """Counts the runs that would be deleted."""
    return sum(1 for _ in candidates(place.store, before, wanted.keep_labeled, wanted.keep_last))


def _spared(wanted: Wanted) -> list[str]:
    found = ["what waits for a human, is worked on, or can be resumed"]
    if wanted.keep_labeled:
        found.append("runs with a labeled checkpoint")
    if wanted.keep_last:
        found.append(f"the last {_counted(wanted.keep_last, 'run')} of each thread")
    return [*found, "the audit trail"]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@command
def prune(
    screen: Screen,
    *,
    older_than: Annotated[
        str, typer.Option(help="Ended longer ago than this: seconds, or 10m, 2h, 3d.", metavar="AGE")
    ],
    keep_last: Annotated[int, typer.Option(help="Spare the last runs of each thread.", metavar="N", min=0)] = 0,
    keep_labeled: Annotated[
        bool, typer.Option("--keep-labeled/--no-keep-labeled", help="Spare runs with a labeled checkpoint.")
    ] = True,
    where: Where,
    yes: Yes = False,
    json: Json = False,
) -> int:
    """Take away runs that have ended.

    A run goes as a whole, forks included. What waits for a human or is worked on stays, and so does the audit trail.
    """
    what = Wanted(older_than=age(older_than), keep_last=keep_last, keep_labeled=keep_labeled)
    with open_place(None if json else screen, where) as place:
        return _take_away(screen, place, what, yes=yes, machine=json)

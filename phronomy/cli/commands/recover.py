"""The command that carries on what lost workers have left, and what nobody decided in time."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from phronomy.cli.apps import Place, find, open_place
from phronomy.cli.commands.decide import confirm, result_view, show_end
from phronomy.cli.commands.driving import Hear, drive, recover_from, telling, tidy
from phronomy.cli.options import Accept, Here, Json, Reveal, Yes, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import Mask, branch_view
from phronomy.cli.words import DONE, FAILED, INTERRUPTED, PENDING, WrongUsage, explained
from phronomy.errors import CheckpointAlreadyResumed, NothingDecided, PhronomyError, RunBusy
from phronomy.foundation.dataclasses import dataclass
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.result import Result
from phronomy.runs import recovery
from phronomy.stores.rows import Branch

ALL: Final = 1_000_000
"""More runs than anybody lists."""


@dataclass(frozen=True, kw_only=True)
class Manner:
    """The options of a recovery."""

    yes: Yes = False
    json: Json = False
    reveal: Reveal = False
    accept_changes: Accept = False


def _recover_left(screen: Screen, place: Place, id: str | None, manner: Manner) -> int:
    """Carry on the run of an id, or all that this agent's lost workers have left. The exit status."""
    if manner.json and not manner.yes:
        raise WrongUsage("--json asks nobody, so it goes with --yes")
    with screen.reading(machine=manner.json):
        branches = find_lost(place) if id is None else [find(place.store, id).branch]
    if not manner.json:
        _list(screen, branches)
    try:
        if branches and not (manner.yes or confirm(screen, f"Carry {'it' if len(branches) == 1 else 'them'} on?")):
            screen.say("Nothing was carried on.", style="bold")
            return PENDING
        status = _recover_all(screen, place, branches, manner, alone=id is not None)
        if id is None:
            tidy(place, ALL)
        return status
    except KeyboardInterrupt:
        again = place.command("recover", *([id] if id is not None else []))
        screen.complain(f"Interrupted. Nothing is lost; go on with: {again}")
        return INTERRUPTED
    except EOFError:
        screen.complain("The input has ended. Nothing was carried on.")
        return PENDING


def find_lost(place: Place) -> list[Branch]:
    """The branches of this agent whose worker is gone, and those that wait for a decision that would come too late."""
    branches: list[Branch] = []
    for run_id, branch_id in recovery.found(place.store, place.worker.spec, ALL):
        branches += [each for each in place.store.branches(run_id=run_id) if each.id == branch_id]
    return branches


def _list(screen: Screen, branches: list[Branch]) -> None:
    if not branches:
        screen.say("No run has lost its worker, and nothing that waits has lapsed.")
        return
    rows = [(each.id, each.agent, each.thread_id or "-", each.status) for each in branches]
    screen.table(("RUN", "AGENT", "THREAD", "STATUS"), rows)


def _recover_all(screen: Screen, place: Place, branches: list[Branch], manner: Manner, *, alone: bool) -> int:
    """Carry each on. One that cannot be is told of, and does not keep the others from it."""
    mask = Mask(place.agent, reveal=manner.reveal)
    documents: list[dict[str, object]] = []
    statuses = [DONE]
    for branch in branches:
        try:
            result = _recover(screen, place, branch, mask, manner)
        except PhronomyError as error:
            if alone:
                raise
            if isinstance(error, RunBusy):  # another worker was faster
                continue
            screen.complain(f"phronomy: error: {branch.run_id}: {explained(error, 'recover')}")
            documents.append({**branch_view(branch), "error": explained(error, "recover")})
            statuses.append(FAILED)
            continue
        statuses.append(PENDING if result.suspended else DONE)
        documents.append({**result_view(result, mask, place), "error": None})
        if not manner.json:
            show_end(screen, result, place)
    if manner.json:
        screen.document(documents)
    return FAILED if FAILED in statuses else max(statuses)


def _recover(screen: Screen, place: Place, branch: Branch, mask: Mask, manner: Manner) -> Result[object]:
    checkpoint = place.store.head(branch.id)[1]
    with telling(screen, mask, machine=manner.json) as hear:
        return carry_on(place, checkpoint, hear, accept_changes=manner.accept_changes)


def carry_on(place: Place, checkpoint: Checkpoint, hear: Hear, *, accept_changes: bool = False) -> Result[object]:
    """The run, carried on to where it rests: at once, if it waits or has ended. Raises as `stream` does."""
    if any(item.why == "breakpoint" for item in checkpoint.pending):  # to go on is a decision there, and nobody took it
        return recover_from(place, checkpoint, accept_changes=accept_changes)
    try:
        return drive(place, checkpoint, hear, accept_changes=accept_changes)
    except NothingDecided:
        return Result(status="suspended", checkpoint=place.store.head(checkpoint.branch_id)[1])
    except CheckpointAlreadyResumed as error:
        if error.result is None:
            raise
        ended: Result[object] = error.result
        return ended


@command
def recover(
    screen: Screen,
    id: Annotated[
        str | None, typer.Argument(help="A run, or a checkpoint of one. Without it, all of the app's.", metavar="[ID]")
    ] = None,
    *,
    here: Here,
    manner: Manner,
) -> int:
    """Carry on what lost workers have left, and what nobody decided in time.

    With an ID that run alone, whatever it stopped on: a failure of the model, too. Without one, what was not announced
    is announced as well, and runs older than the store keeps are taken away.
    """
    with open_place(None if manner.json else screen, here) as place:
        return _recover_left(screen, place, id, manner)

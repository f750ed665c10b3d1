"""The commands that look at a store, and the one that carries on the runs whose worker was lost."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from phronomy.checkpoint import Checkpoint
from phronomy.cli._apps import Place, found
from phronomy.cli._decide import confirmed, result_view, show_end
from phronomy.cli._runs import drive, telling
from phronomy.cli._screen import Screen
from phronomy.cli._views import Mask, branch_view, checkpoint_view, pending_view, run_view, show_run
from phronomy.cli._words import DONE, FAILED, INTERRUPTED, PENDING, WrongUsage, ago, explained, time_of
from phronomy.errors import CheckpointAlreadyResumed, NothingDecided, PhronomyError
from phronomy.result import Result
from phronomy.stores.base import ENDED, Branch


def list_pending(
    screen: Screen, place: Place, *, run_id: str | None, thread_id: str | None, machine: bool, reveal: bool
) -> int:
    """What waits for a human, oldest first."""
    waiting = place.store.pending(run_id=run_id, thread_id=thread_id)
    if machine:
        mask = Mask(place.agent, reveal=reveal)
        screen.document([pending_view(item.approval, item, mask) for item in waiting])
        return DONE
    if not waiting:
        screen.say("Nothing waits for a decision.")
        return DONE
    now = place.store.clock()
    rows = [
        (
            item.approval.id,
            item.approval.tool_name,
            item.agent,
            item.thread_id or "-",
            ago(now - item.approval.requested_at.timestamp()),
            item.approval.why,
        )
        for item in waiting
    ]
    screen.table(("PENDING", "TOOL", "AGENT", "THREAD", "SINCE", "WHY"), rows)
    return DONE


def show(screen: Screen, place: Place, id: str, *, machine: bool, reveal: bool) -> int:
    """What an id means: what waits there, and exactly what would run."""
    meant = found(place.store, id)
    mask = Mask(place.agent, reveal=reveal)
    if machine:
        screen.document(run_view(meant, mask))
    else:
        show_run(screen, meant, mask, place.store)
    return DONE


def history(screen: Screen, place: Place, id: str, *, machine: bool) -> int:
    """The checkpoints that lead to what an id means, oldest first."""
    checkpoints = place.store.history(found(place.store, id).checkpoint.id)
    if machine:
        screen.document([checkpoint_view(each) for each in checkpoints])
        return DONE
    rows = [
        (
            each.id,
            each.run_id,
            str(each.step),
            each.status,
            time_of(each.created_at),
            ", ".join(item.tool_name for item in each.pending) or "-",
            each.label or "-",
        )
        for each in checkpoints
    ]
    screen.table(("CHECKPOINT", "RUN", "STEP", "STATUS", "AT", "WAITS FOR", "LABEL"), rows)
    return DONE


# Carrying on


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How runs are carried on."""

    yes: bool
    machine: bool
    reveal: bool
    accept_changes: bool


def recover(screen: Screen, place: Place, id: str | None, manner: Manner) -> int:
    """Carry on the run of an id, or every run of this agent whose worker was lost. The exit status."""
    if manner.machine and not manner.yes:
        raise WrongUsage("--json asks nobody, so it goes with --yes")
    if id is not None:
        meant = found(place.store, id)
        branches = [meant.branch]
    else:
        with nullcontext() if manner.machine else screen.working("Looking for runs"):
            branches = [each for each in lost(place) if each.agent == place.worker.spec.name]
    if not manner.machine:
        _list(screen, branches)
    if not branches:
        if manner.machine:
            screen.document([])
        return DONE
    try:
        if not (manner.yes or confirmed(screen, f"Carry {'it' if len(branches) == 1 else 'them'} on?")):
            screen.say("Nothing was carried on.", style="bold")
            return PENDING
        return _recover_all(screen, place, branches, manner, alone=id is not None)
    except KeyboardInterrupt:
        again = place.command("recover", *([id] if id is not None else []))
        screen.complain(f"Interrupted. Nothing is lost; go on with: {again}")
        return INTERRUPTED
    except EOFError:
        screen.complain("The input has ended. Nothing was carried on.")
        return PENDING


def lost(place: Place) -> list[Branch]:
    """The branches that nobody works on, though somebody did when they were last written to."""
    now = place.store.clock()
    open_now = [each for each in place.store.branches() if each.status not in ENDED and not each.is_held(now)]
    return [
        each
        for each in open_now
        if each.owner is not None or (each.status == "running" and place.store.head(each.id)[1].journal)
    ]


def _list(screen: Screen, branches: list[Branch]) -> None:
    if not branches:
        screen.say("No run has lost its worker.")
        return
    rows = [(each.id, each.agent, each.thread_id or "-", each.status) for each in branches]
    screen.table(("RUN", "AGENT", "THREAD", "STATUS"), rows)


def _recover_all(screen: Screen, place: Place, branches: list[Branch], manner: Manner, *, alone: bool) -> int:
    """Carry each on. One that cannot be is told of, and does not keep the others from it."""
    mask = Mask(place.agent, reveal=manner.reveal)
    documents: list[dict[str, Any]] = []
    statuses = [DONE]
    for branch in branches:
        try:
            result = _recover(screen, place, branch, mask, manner)
        except PhronomyError as error:
            if alone:
                raise
            screen.complain(f"phronomy: error: {branch.run_id}: {explained(error, 'recover')}")
            documents.append({**branch_view(branch), "error": explained(error, "recover")})
            statuses.append(FAILED)
            continue
        statuses.append(PENDING if result.suspended else DONE)
        documents.append({**result_view(result, mask), "error": None})
        if not manner.machine:
            show_end(screen, result, place)
    if manner.machine:
        screen.document(documents)
    return FAILED if FAILED in statuses else max(statuses)


def _recover(screen: Screen, place: Place, branch: Branch, mask: Mask, manner: Manner) -> Result[Any]:
    checkpoint = place.store.head(branch.id)[1]
    with telling(screen, mask, machine=manner.machine) as hear:
        return carried_on(place, checkpoint, hear, accept_changes=manner.accept_changes)


def carried_on(place: Place, checkpoint: Checkpoint, hear: Any, *, accept_changes: bool = False) -> Result[Any]:
    """The run, carried on to where it rests: at once, if it waits or has ended. Raises as `stream` does."""
    try:
        return drive(place.worker, checkpoint, hear, accept_changes=accept_changes)
    except NothingDecided:
        return Result(status="suspended", checkpoint=place.store.head(checkpoint.branch_id)[1])
    except CheckpointAlreadyResumed as error:
        if error.result is None:
            raise
        ended: Result[Any] = error.result
        return ended

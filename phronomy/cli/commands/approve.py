"""Approving and rejecting what waits: one request, with the run carried on here, or several, for a worker to carry out.

Several are decided by the store alone, by what was shown: each by its own id and digest. So one that has changed meanwhile is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from phronomy.cli.apps import Place, find_pending, open_place
from phronomy.cli.commands.decide import (
    CHANNEL,
    Manner,
    Request,
    check_here,
    check_seen,
    check_shown,
    confirm,
    decide,
)
from phronomy.cli.options import After, AllOrNone, Here, Ids, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import Mask, decision_view
from phronomy.cli.words import DONE, FAILED, PENDING, WrongUsage, explained, login_name, status_of, who_decided
from phronomy.errors import PhronomyError
from phronomy.records.decisions import Answer, Approve, Reject
from phronomy.records.principals import Principal
from phronomy.stores.derived.batches import MOST, Answered, BatchDecision


@command
def approve(
    screen: Screen,
    ids: Ids,
    *,
    here: Here,
    all_or_none: AllOrNone = False,
    manner: Manner,
) -> int:
    """Run what waits, as it is shown, and carry the run on.

    Without --app the decision is recorded, and a worker of the app carries it out: see `phronomy work`.
    """
    return _decide(screen, ids, here, Approve(), "Approve", manner, all_or_none)


@command
def reject(
    screen: Screen,
    ids: Ids,
    *,
    here: Here,
    reason: Annotated[str | None, typer.Option(help="Why, for the model.", metavar="TEXT")] = None,
    then: Annotated[
        After,
        typer.Option(
            help="The model goes on; it does, and the same call, or every call of the tool, is rejected unasked; or the run ends."
        ),
    ] = After.CONTINUE,
    all_or_none: AllOrNone = False,
    manner: Manner,
) -> int:
    """Do not run what waits, and carry the run on.

    Without --app the decision is recorded, and a worker of the app carries it out: see `phronomy work`.
    """
    return _decide(screen, ids, here, Reject(reason=reason, then=then.value), "Reject", manner, all_or_none)


def _decide(
    screen: Screen, ids: Sequence[str], here: Here, answer: Answer, verb: str, manner: Manner, all_or_none: bool
) -> int:
    """Decide one request or several in the same way. The exit status."""
    with open_place(None if manner.json else screen, here, decides=True) as place:
        if len(ids) == 1:
            return decide(screen, place, ids[0], answer, f"{verb} it?", manner)
        if place.agent is not None:
            raise WrongUsage(
                "several ids are decided without an app, for a worker to carry out: leave out --app and PHRONOMY_APP, and give"
                " --store URL"
            )
        if manner.digest is not None:
            raise WrongUsage("--digest is of one request: give one id")
        if len(ids) > MOST:
            raise WrongUsage(f"{MOST} ids at most are decided in one call")
        return _decide_several(screen, place, ids, answer, verb, manner, all_or_none)


def _decide_several(
    screen: Screen, place: Place, ids: Sequence[str], answer: Answer, verb: str, manner: Manner, all_or_none: bool
) -> int:
    """Show what the ids mean, ask once, and decide all. The exit status."""
    if manner.json and not manner.yes:
        raise WrongUsage("--json asks nobody, so it goes with --yes")
    state = "Nothing was decided"
    try:
        shown, failed = _found(screen, place, ids, answer, manner, all_or_none)
        for request in shown:
            if not manner.json:
                request.draw(screen)
                screen.say()
        if shown and not (manner.yes or confirm(screen, f"{verb} all {len(shown)} of them?")):
            how = "" if sys.stdin.isatty() else " Only a terminal is asked: give --yes to decide without."
            screen.say(f"Nothing was decided: all {len(shown)} still wait.{how}", style="bold")
            return PENDING
        answers = [Answered(pending_id=each.pending.id, digest=each.pending.digest, answer=answer) for each in shown]
        by = Principal(id=manner.by or login_name())
        state = f"This shows what still waits: {place.command('pending')}"
        found = place.store.decide_all(answers, by=by, channel=CHANNEL, all_or_none=all_or_none)
    except (KeyboardInterrupt, EOFError) as error:
        return screen.complain_of_end(error, state)
    except PhronomyError as error:  # with `all_or_none`
        why, id = explained(error, ""), getattr(error, "pending_id", None)
        named = f"{id}: " if id is not None and id not in why else ""
        screen.complain(f"phronomy: error: nothing was decided: {named}{why}")
        return status_of(error)
    return _report(screen, place, [*found, *failed], manner)


def _found(
    screen: Screen, place: Place, ids: Sequence[str], answer: Answer, manner: Manner, all_or_none: bool
) -> tuple[list[Request], list[BatchDecision]]:
    """The requests that the ids mean, and what comes of the ids under which none can be decided so.

    Raises as `decide` does for what is asked for in a wrong way, and with `all_or_none` for each id.
    """
    mask = Mask(None, reveal=manner.reveal)
    shown: dict[str, Request] = {}
    failed: list[BatchDecision] = []
    for id in ids:
        try:
            with screen.reading(machine=manner.json):
                checkpoint, pending = find_pending(place.store, id)
            check_here(place, pending, answer)
        except PhronomyError as error:
            if all_or_none:
                raise
            failed.append(BatchDecision(pending_id=id, error=error))
            continue
        check_shown(id, checkpoint, pending, manner)
        if pending.id in shown:
            raise WrongUsage(f"{pending.id} is named twice")
        request = Request(
            screen=screen, place=place, mask=mask, checkpoint=checkpoint, pending=pending, machine=manner.json
        )
        check_seen(request, answer, manner)
        shown[pending.id] = request
    return [*shown.values()], failed


def _report(screen: Screen, place: Place, found: Sequence[BatchDecision], manner: Manner) -> int:
    """Say what came of each, in a line, and who carries it out. The exit status: whether one was refused."""
    status = DONE if all(each.error is None for each in found) else FAILED
    if manner.json:
        screen.document([_view(each) for each in found])
        return status
    for each in found:
        # In one line, however long it is.
        if each.request is not None and each.request.decision is not None:
            screen.place(each.pending_id, f" was {who_decided(each.request.decision)}")
        elif each.error is not None:
            screen.place(each.pending_id, f" was not decided: {explained(each.error, '')}")
    if any(each.request is not None for each in found):
        screen.say("A worker of the app carries out what was decided. To be one:")
        screen.place("work", place.command("work", "--app MODULE:AGENT"))
    return status


def _view(found: BatchDecision) -> dict[str, object]:
    """Gives what came of one request as a document for machines."""
    request, error = found.request, found.error
    made = None
    if request is not None and request.decision is not None:
        where = {"run_id": request.run_id, "branch_id": request.branch_id, "thread_id": request.thread_id}
        place = {**where, "checkpoint_id": request.checkpoint_id, "agent": request.agent}
        made = {**place, "status": request.status, "decision": decision_view(request.decision)}
    told = {"type": type(error).__name__, "message": explained(error, "")} if error is not None else None
    return {"pending_id": found.pending_id, "request": made, "error": told}

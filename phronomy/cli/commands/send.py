"""The command `phronomy send`: an event for a run that waits for it, or will."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from phronomy.cli.apps import open_place
from phronomy.cli.options import Json, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, WrongUsage, login_name
from phronomy.errors import InvalidField
from phronomy.foundation.json_text import JsonError, parse
from phronomy.records.principals import Principal

if TYPE_CHECKING:
    from phronomy.triggers import Early

CHANNEL: Final = "cli"


@command
def send(
    screen: Screen,
    run: Annotated[str, typer.Argument(help="The id of a run, or of the branch of a fork.", metavar="RUN")],
    event: Annotated[str, typer.Argument(help="The name of the event.", metavar="EVENT")],
    *,
    payload: Annotated[
        str, typer.Option(help="Its payload, a JSON value; - reads it from standard input.", metavar="JSON")
    ] = "null",
    by: Annotated[str | None, typer.Option(help="Who sends it. By default your login name.", metavar="ID")] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="A role that they have, unless the directory lists them. May be given several times.", metavar="ROLE"
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="An idempotency key: sent twice with it, it counts once.", metavar="TEXT")
    ] = None,
    early: Annotated[
        str,
        typer.Option(
            help="If nothing waits for it: keep it if none of its name was there yet (first), always, or never.",
            metavar="WHEN",
        ),
    ] = "first",
    where: Where,
    json: Json = False,
) -> int:
    """Send an event to a run: the trigger that waits for it fires, or the run keeps it until one does.

    Nothing is run here. A worker carries the run on: `phronomy work`.
    """
    if by == "":
        raise WrongUsage("--by names somebody")
    if early not in ("first", "always", "never"):
        raise WrongUsage("--early is first, always or never")
    try:
        content = parse(sys.stdin.read() if payload == "-" else payload)
    except JsonError as error:
        raise WrongUsage(f"--payload is no JSON value: {error}") from None
    try:
        who = Principal(id=by or login_name(), roles=tuple(dict.fromkeys(role or ())))
    except (InvalidField, ValueError) as error:
        raise WrongUsage(str(error)) from None
    with open_place(None if json else screen, where) as place:
        sent = place.store.send_event(
            run,
            event,
            content,
            by=who,
            channel=CHANNEL,
            key=key,
            early=cast("Early", early),  # checked above
        )
    if json:
        screen.document(
            {
                "id": sent.id,
                "status": sent.status,
                "run_id": sent.run_id,
                "branch_id": sent.branch_id,
                "pending_id": sent.pending_id,
            }
        )
    elif sent.pending_id is None:
        screen.say(f"Run {sent.run_id} keeps the event: nothing waits for it yet.", style="bold")
    else:
        screen.say(f"The event has fired {sent.pending_id}. A worker carries run {sent.run_id} on.", style="bold")
    return DONE

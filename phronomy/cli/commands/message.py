"""The command `phronomy message`: a message for a run that waits or works."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from phronomy.cli.apps import find, open_place
from phronomy.cli.options import Json, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, WrongUsage, login_name
from phronomy.records.principals import Principal

CHANNEL: Final = "cli"


@command
def message(
    screen: Screen,
    run: Annotated[str, typer.Argument(help="A run, or a branch, checkpoint or pending id of one.", metavar="RUN")],
    text: Annotated[str, typer.Argument(help="The message; - reads it from standard input.", metavar="TEXT")],
    *,
    by: Annotated[str | None, typer.Option(help="Who sends it. By default your login name.", metavar="NAME")] = None,
    key: Annotated[
        str | None, typer.Option(help="An idempotency key: sent twice with it, it is stored once.", metavar="TEXT")
    ] = None,
    where: Where,
    json: Json = False,
) -> int:
    """Send a message to a run that waits or works: the model reads it with its next call.

    It decides nothing, and nothing is run here. A worker carries the run on: `phronomy work`.
    """
    if by == "":
        raise WrongUsage("--by names somebody")
    said = sys.stdin.read() if text == "-" else text
    if not said:
        raise WrongUsage("the message is empty")
    with open_place(None if json else screen, where) as place:
        branch = find(place.store, run).branch
        who = Principal(id=by or login_name())
        place.store.send(branch.id, said, by=who, channel=CHANNEL, id=key)
    if json:
        screen.document({"run_id": branch.run_id, "branch_id": branch.id, "status": branch.status})
    else:
        screen.say(f"Run {branch.run_id} has the message. The model reads it with its next call.", style="bold")
    return DONE

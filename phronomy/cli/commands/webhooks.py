"""The commands about webhooks: events that have failed for good, and secrets. The first are those of `phronomy outbox`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from phronomy.chat.webhooks.signature import new_secret
from phronomy.cli.commands.outbox import All, Requests, list_failed, retry_failed, unless_named
from phronomy.cli.options import Json, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE

Name = Annotated[str, typer.Option("--channel", help="The name of the channel in your program.", metavar="NAME")]


@unless_named
@command
def webhooks(screen: Screen, *, channel: Name = "webhook", where: Where, json: Json = False) -> int:
    """List the events of webhooks that have failed for good, oldest first."""
    return list_failed(screen, where, channel, machine=json)


@command
def retry(
    screen: Screen,
    ids: Requests = None,
    *,
    all: All = False,
    channel: Name = "webhook",
    where: Where,
    json: Json = False,
) -> int:
    """Have events that have failed for good be sent again: those about some requests, or all."""
    return retry_failed(screen, where, ids or (), channel, all=all, machine=json)


@command
def secret(screen: Screen) -> int:
    """Print a new secret for an endpoint."""
    screen.verbatim(new_secret())
    return DONE


SUBCOMMANDS: Final = {"retry": retry, "secret": secret}
"""The commands of `phronomy webhooks`."""

"""The commands about Discord: the slash command with which people start a run there."""

from __future__ import annotations

import os
import re
import time
from typing import Annotated, Final

import typer

from phronomy.chat.discord.commands import API, address
from phronomy.chat.discord.commands import command as slash_command
from phronomy.cli.options import command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, WrongUsage

_TOKEN: Final = "DISCORD_BOT_TOKEN"
_ID: Final = re.compile(r"[0-9]{1,20}")
_NAME: Final = re.compile(r"[-_a-z0-9]{1,32}")
_LONGEST: Final = 100


@command
def print_commands(
    screen: Screen,
    *,
    application_id: Annotated[
        str, typer.Option(help='The id of the app, under "General Information" of its settings.', metavar="ID")
    ],
    guild_id: Annotated[
        str | None, typer.Option(help="The id of a server, if the command is to be there alone.", metavar="ID")
    ] = None,
    name: Annotated[
        str, typer.Option(help="What people type after the slash: small letters, digits, - and _.", metavar="TEXT")
    ] = "ask",
    description: Annotated[
        str, typer.Option(help="What Discord shows beside it; 100 characters at most.", metavar="TEXT")
    ] = "Ask the agent to do something",
    register: Annotated[
        bool, typer.Option("--register", help=f"Register it, with the token of the bot in {_TOKEN}.")
    ] = False,
) -> int:
    """Print the request that registers the slash command of a Discord app, as JSON.

    With --register, the request is made, and what Discord answers is printed. A command of the same name is replaced, and no other.
    """
    for what, id in (("--application-id", application_id), ("--guild-id", guild_id)):
        if id is not None and _ID.fullmatch(id) is None:
            raise WrongUsage(f"{what} is an id of Discord, which has digits alone")
    if _NAME.fullmatch(name) is None:
        raise WrongUsage("the name of a slash command has 1 to 32 small letters, digits, - and _")
    if not 0 < len(description) <= _LONGEST:
        raise WrongUsage(f"the description of a slash command has 1 to {_LONGEST} characters")
    body = slash_command(name=name, description=description)
    url = address(application_id, guild_id=guild_id, base_url=API)
    if not register:
        screen.document({"method": "POST", "url": url, "body": body})
        return DONE
    token = os.environ.get(_TOKEN, "")
    if not token:
        raise WrongUsage(f"{_TOKEN} is empty: it has the token of the bot")
    from phronomy.chat.discord.rest import Rest  # noqa: PLC0415  # who prints needs no client

    with screen.working("Registering"):
        found = Rest(token, API, time.monotonic).call("POST", url.removeprefix(API), body, bucket="commands")
    screen.document({"id": found.get("id"), "name": found.get("name")})
    return DONE


SUBCOMMANDS: Final = {"commands": print_commands}
"""The commands of `phronomy discord`."""


def discord(context: typer.Context) -> int:
    """Set up a Discord app for approvals."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    return DONE

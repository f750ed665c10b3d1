"""The commands about Slack: the manifest with which an app is made there."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from phronomy.chat.slack.manifest import manifest
from phronomy.cli.options import command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, WrongUsage, hint_of_path

_LONGEST: Final = 35


@command
def print_manifest(
    screen: Screen,
    *,
    url: Annotated[
        str | None,
        typer.Option(
            help="The address to which Slack sends clicks, such as https://example.org/chat/slack.", metavar="URL"
        ),
    ] = None,
    socket: Annotated[bool, typer.Option("--socket", help="Use Socket Mode, which needs no public address.")] = False,
    name: Annotated[
        str, typer.Option(help="The name of the app in Slack; 35 characters at most.", metavar="TEXT")
    ] = "Approvals",
    bot: Annotated[
        bool, typer.Option("--bot", help="People can write to the app: it reads mentions and direct messages.")
    ] = False,
) -> int:
    """Print the manifest of a Slack app, as JSON.

    Paste it at https://api.slack.com/apps under "Create New App", "From a manifest".
    """
    if (url is None) != socket:
        raise WrongUsage("give either --url, to which Slack sends clicks, or --socket")
    if url is not None and not url.startswith("https://"):
        raise WrongUsage("Slack sends clicks to an address that begins with https://")
    if url is not None and (wrong := hint_of_path(url, "slack")):
        screen.complain(wrong)
    if not 0 < len(name) <= _LONGEST:
        raise WrongUsage(f"the name of a Slack app has 1 to {_LONGEST} characters")
    screen.document(manifest(url=url, name=name, bot=bot))
    return DONE


SUBCOMMANDS: Final = {"manifest": print_manifest}
"""The commands of `phronomy slack`."""


def slack(context: typer.Context) -> int:
    """Set up a Slack app for approvals."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    return DONE

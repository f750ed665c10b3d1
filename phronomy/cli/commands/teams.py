"""The commands about Microsoft Teams: the package with which an app is uploaded there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from phronomy.chat.teams.manifest import manifest, package
from phronomy.cli.options import command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, WrongUsage

_LONGEST: Final = 30
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@command
def print_manifest(
    screen: Screen,
    *,
    app_id: Annotated[
        str, typer.Option(help="The id of the bot in Entra ID: its application (client) ID.", metavar="UUID")
    ],
    website: Annotated[
        str, typer.Option(help="An address of yours, which Teams shows for the developer of the app.", metavar="URL")
    ],
    name: Annotated[
        str, typer.Option(help="The name of the app in Teams; 30 characters at most.", metavar="TEXT")
    ] = "Approvals",
    package_file: Annotated[
        Path | None,
        typer.Option("--package", help="Write the package to this new ZIP file, with icons.", metavar="FILE"),
    ] = None,
) -> int:
    """Print the manifest of a Teams app, as JSON, or write the whole package.

    Upload the package in Teams under "Apps", "Manage your apps", "Upload an app".
    """
    if _UUID.fullmatch(app_id) is None:
        raise WrongUsage("the id of the bot is a UUID, as Entra ID shows it")
    if not website.startswith("https://"):
        raise WrongUsage("Teams shows an address that begins with https://")
    if not 0 < len(name) <= _LONGEST:
        raise WrongUsage(f"the name of a Teams app has 1 to {_LONGEST} characters")
    made = manifest(app_id=app_id.lower(), website=website, name=name)
    if package_file is None:
        screen.document(made)
        return DONE
    try:
        with package_file.open("xb") as file:
            file.write(package(made))
    except FileExistsError:
        raise WrongUsage(f"{package_file} is there already: remove it, or name another file") from None
    except OSError as error:
        raise WrongUsage(f"the package could not be written: {error.strerror}") from None
    screen.say(f"The package of the app is in {package_file}. Upload it in Teams.", style="bold")
    return DONE


SUBCOMMANDS: Final = {"manifest": print_manifest}
"""The commands of `phronomy teams`."""


def teams(context: typer.Context) -> int:
    """Set up a Microsoft Teams app for approvals."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    return DONE

"""The command that shows what phronomy does: `phronomy demo`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from phronomy.cli.options import command
from phronomy.cli.screen import Screen
from phronomy.cli.words import WrongUsage
from phronomy.records.decisions import Approve, Reject


@command
def demo(
    screen: Screen,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Approve what is asked, without a prompt.")] = False,
    no: Annotated[bool, typer.Option("--no", help="Reject what is asked, without a prompt.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why, for the model. Goes with --no.", metavar="TEXT")] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="The SQLite file to keep the run in. By default one in your data directory.", metavar="PATH"),
    ] = None,
) -> int:
    """A refund desk in this terminal, without any key.

    An agent looks up an order by itself, and asks before it refunds. A script stands in for the model. Leave at the prompt,
    or be killed there: the next `phronomy demo` goes on from the same place.
    """
    if yes and no:
        raise WrongUsage("--yes and --no exclude each other")
    if reason is not None and not no:
        raise WrongUsage("--reason goes with --no")
    # pydantic would look through all that is installed for its plugins, and import each. They watch a program's models, and
    # there are none of yours here.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from phronomy.cli.commands.demo_desk import run_demo  # noqa: PLC0415  # stands on SQLite: no help needs that

    return run_demo(screen, Approve() if yes else Reject(reason=reason) if no else None, store)

"""The options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class After(StrEnum):
    """What follows a rejection: the values of `Then`, as an option knows them."""

    CONTINUE = "continue"
    BLOCK = "block"
    END = "end"


class Standing(StrEnum):
    """How a run stands: the values of `BranchStatus`, as an option knows them."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    FAILED = "failed"
    COMPLETED = "completed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    SKIPPED = "skipped"


Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Id = Annotated[
    str, typer.Argument(help="A pending id, or a checkpoint or run that waits for one decision.", metavar="ID")
]
AnyId = Annotated[str, typer.Argument(help="A pending id, a checkpoint id or a run id.", metavar="ID")]
App = Annotated[
    str | None,
    typer.Option(
        "--app",
        help="An Agent, a class of agents, a compiled graph or a function that gives one. By default PHRONOMY_APP.",
        metavar="MODULE:AGENT",
    ),
]
Deps = Annotated[
    str | None,
    typer.Option(
        "--deps",
        help="A function that gives what the app's tools get as deps: called once. By default PHRONOMY_DEPS, or None.",
        metavar="MODULE:FUNCTION",
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Where the runs are kept, such as sqlite:///runs.db. By default PHRONOMY_STORE, or the store of the app's agent.",
        metavar="URL",
    ),
]
Tenant = Annotated[
    str | None,
    typer.Option(
        "--tenant", help="Whose runs, where a store has those of several. By default PHRONOMY_TENANT.", metavar="NAME"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Reveal = Annotated[bool, typer.Option("--reveal", help="Show the values of redacted arguments.")]
Yes = Annotated[bool, typer.Option("--yes", help="Ask nobody.")]
By = Annotated[str | None, typer.Option(help="Who decides. By default your login name.", metavar="NAME")]
Digest = Annotated[
    str | None,
    typer.Option(
        help="Decide only if the digest begins so: what `show` has shown, and nothing else.", metavar="SHA256"
    ),
]
Accept = Annotated[
    bool, typer.Option("--accept-changes", help="Go on although the agent has changed where it matters.")
]

# What is wanted of a list

Thread = Annotated[str | None, typer.Option(help="Only of this thread.", metavar="ID")]
Run = Annotated[str | None, typer.Option(help="Only of this run.", metavar="ID")]
OfAgent = Annotated[str | None, typer.Option("--agent", help="Only of this agent.", metavar="NAME")]
Limit = Annotated[int | None, typer.Option(help="So many at most.", metavar="N", min=1)]
Next = Annotated[
    str | None, typer.Option("--after", help="The page after the one that ended with this.", metavar="CURSOR")
]

"""The options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import wraps
from typing import Annotated, get_type_hints

import typer

from phronomy.foundation.dataclasses import dataclass


class After(StrEnum):
    """The continuation after a rejection: the values of `Then`, as an option knows them."""

    CONTINUE = "continue"
    BLOCK = "block"
    BLOCK_TOOL = "block_tool"
    END = "end"


class Standing(StrEnum):
    """The status of a run: the values of `BranchStatus`, as an option knows them."""

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
Ids = Annotated[
    list[str],
    typer.Argument(
        help="A pending id, or a checkpoint or run that waits for one decision. Without --app there may be several.",
        metavar="ID",
    ),
]
AllOrNone = Annotated[
    bool, typer.Option("--all-or-none", help="Of several ids, decide all in one write, or none if one is refused.")
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
WithIds = Annotated[bool, typer.Option("--ids", help="Show ids and dates too, and what says little.")]
Reveal = Annotated[bool, typer.Option("--reveal", help="Show the values of redacted arguments.")]
Yes = Annotated[bool, typer.Option("--yes", help="Ask nobody.")]
By = Annotated[str | None, typer.Option(help="Who decides. By default your login name.", metavar="NAME")]
Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", help="A scope of the runs that begin here. May be given several times.", metavar="NAME"),
]
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

# Several at once


@dataclass(frozen=True, kw_only=True)
class Where:
    """Which store a command looks into."""

    app: App = None
    store: Store = None
    tenant: Tenant = None


@dataclass(frozen=True, kw_only=True)
class Here:
    """Which app runs here, with which deps, and where its runs are kept."""

    app: App = None
    deps: Deps = None
    store: Store = None
    tenant: Tenant = None


def command(run: Callable[..., int]) -> Callable[..., int]:
    """A command, as typer is to know it: `run` gets the screen, and what the command line says.

    A parameter of `run` that is one of the dataclasses stands for several options: the fields of that.
    """
    hints = get_type_hints(run, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    debug = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
    parameters = [context]
    for name, parameter in inspect.signature(run).parameters.items():
        if name in groups:
            parameters += inspect.signature(groups[name], eval_str=True).parameters.values()
        elif name != "screen":
            parameters.append(parameter.replace(annotation=hints[name]))
    parameters.append(debug)

    @wraps(run)
    def begun(context: typer.Context, *, debug: bool, **given: object) -> int:
        screen = context.obj.begin(context, debug=debug)
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        return run(screen, **given)

    begun.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    begun.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return begun

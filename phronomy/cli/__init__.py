"""The command line: its commands, what they print and ask, and what they exit with.

An error is one line on standard error, and a traceback only with `--debug`. Exit status: 0 done; 1 an error; 2 wrong
usage; 3 a decision is still pending, or nobody said yes; 4 the request has lapsed; 5 the vote is recorded, and it takes more of
them; 130 interrupted by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Annotated, Final, NoReturn

import typer
from typer.main import get_command

from phronomy.cli.options import Debug
from phronomy.cli.screen import WIDEST, Screen
from phronomy.cli.words import (
    DONE,
    FAILED,
    INTERRUPTED,
    LAPSED,
    MISUSED,
    PENDING,
    VOTED,
    WrongUsage,
    explained,
    status_of,
)
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.suspicious_letters import escaped
from phronomy.foundation.version import VERSION

__all__ = [
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "LAPSED",
    "MISUSED",
    "PENDING",
    "VOTED",
    "WIDEST",
    "Screen",
    "escaped",
    "main",
    "run",
]

_STATUSES: Final = "Exit status: 0 done; 1 error; 2 wrong usage; 3 still pending; 130 Ctrl-C."
_SETTING_UP: Final = "Exit status: 0 done; 1 error; 2 wrong usage; 130 Ctrl-C."
_DEMO: Final = "Exit status: 0 decided and done (a rejection too); 1 error; 2 wrong usage; 3 still pending; 130 Ctrl-C."
_DECIDING: Final = (
    "Exit status: 0 done; 1 error; 2 wrong usage; 3 still pending; 4 it has lapsed; 5 it takes more votes; 130 Ctrl-C."
)
_WORKING: Final = "Exit status: 0 stopped, or done; 1 error; 2 wrong usage."
_DEPLOYING: Final = "Exit status: 0 nothing would break; 1 error, or something would; 2 wrong usage; 130 Ctrl-C."
_WATCHING: Final = (
    "Exit status: 0 stopped, or nothing waits; 1 error; 2 wrong usage; 3 still pending; 130 Ctrl-C in a run."
)

_COMMANDS: Final = {
    "demo": ("demo.demo", _DEMO),
    "chat": ("chat.chat", _STATUSES),
    "pending": ("pending.pending", _STATUSES),
    "watch": ("watch.watch", _WATCHING),
    "show": ("look.show", _STATUSES),
    "history": ("look.history", _STATUSES),
    "runs": ("runs.runs", _STATUSES),
    "timeline": ("timeline.timeline", _STATUSES),
    "debug": ("debug.debug", _STATUSES),
    "diff": ("look.diff", _STATUSES),
    "audit": ("look.audit", _STATUSES),
    "list": ("look.list_checkpoints", _STATUSES),
    "prune": ("prune.prune", _STATUSES),
    "approve": ("approve.approve", _DECIDING),
    "reject": ("approve.reject", _DECIDING),
    "respond": ("decide.respond", _DECIDING),
    "edit": ("decide.edit", _DECIDING),
    "serve": ("serve.serve", _WORKING),
    "work": ("work.work", _WORKING),
    "recover": ("recover.recover", _STATUSES),
    "drift": ("drift.drift", _DEPLOYING),
    "cancel": ("runs.cancel", _STATUSES),
    "message": ("message.message", _STATUSES),
    "send": ("send.send", _STATUSES),
    "people": ("people.people", _STATUSES),
    "slack": ("slack.slack", _SETTING_UP),
    "telegram": ("telegram.telegram", _SETTING_UP),
    "teams": ("teams.teams", _SETTING_UP),
    "outbox": ("outbox.outbox", _SETTING_UP),
    "webhooks": ("webhooks.webhooks", _SETTING_UP),
    "discord": ("discord.discord", _SETTING_UP),
    "grants": ("grants.grants", _STATUSES),
    "grant": ("grants.grant", _STATUSES),
    "sign": ("grants.sign", _STATUSES),
    "revoke": ("grants.revoke", _STATUSES),
    "token": ("token.token", _STATUSES),
}
"""The commands in the order of the help: the function of each in its module, and what its help ends with."""


_SUGGESTED: Final = {"resume": "approve, reject, respond or edit", "decide": "approve, reject, respond or edit"}
"""Words of the Python API that are no commands, and the commands for them."""


@dataclass
class Invocation:
    """The options of a whole command line."""

    debug: bool = False
    command: str = ""

    def begin(self, context: typer.Context, *, debug: bool) -> Screen:
        """Note which command is run and how, and give the screen for it."""
        self.debug |= debug
        self.command = context.command_path.partition(" ")[2]
        return Screen()


def phronomy(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    debug: Debug = False,
) -> int:
    """Agents that stop for a human, and resume exactly once."""
    context.obj.debug |= debug
    if version:
        typer.echo(f"phronomy {VERSION}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        typer.echo("\nStart with: phronomy demo")
    return DONE


def _app(arguments: Sequence[str]) -> typer.Typer:
    """The app as far as the arguments need it: to import and build all of its commands takes longer than most of them run."""
    app = typer.Typer(
        add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
    )
    app.callback(invoke_without_command=True)(phronomy)
    word = next((each for each in arguments if not each.startswith("-")), "")
    if word in _SUGGESTED:
        raise WrongUsage(f"there is no command {word}: did you mean {_SUGGESTED[word]}?")
    # Where no command is named, the help of the whole names them all, and so does an error.
    every = () if "--version" in arguments else _COMMANDS
    for name in [word] if word in _COMMANDS else every:
        at, epilog = _COMMANDS[name]
        module_name, _, function = at.partition(".")
        module = import_module(f"phronomy.cli.commands.{module_name}")
        if hasattr(module, "SUBCOMMANDS"):
            app.add_typer(_group(name, module, epilog), name=name, epilog=epilog)
        else:
            app.command(name, epilog=epilog)(getattr(module, function))
    return app


def _group(name: str, module: ModuleType, epilog: str) -> typer.Typer:
    """The app of a command that has commands of its own."""
    group = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.callback(invoke_without_command=True)(getattr(module, name))
    for each, function in module.SUBCOMMANDS.items():
        group.command(each, epilog=epilog)(function)
    return group


# Running a command line


def main() -> NoReturn:
    """The console script."""
    status = run(sys.argv[1:])
    # CPython notes an interrupt inside any exec(), as imports make them, and lets `python -m` die of it at the end, caught or not, and
    # whatever the status is; the next exec() clears the note.
    exec("")  # noqa: S102
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run a command line, and return its exit status."""
    invocation = Invocation()
    try:
        status: int | None = get_command(_app(arguments)).main(
            list(arguments), prog_name="phronomy", standalone_mode=False, obj=invocation
        )
        if sys.stdout is not None:
            sys.stdout.flush()
        return status or DONE
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has had enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except Exception as error:
        if invocation.debug:
            raise
        Screen().complain(f"phronomy: error: {explained(error, invocation.command)}")
        return status_of(error)

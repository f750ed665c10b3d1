"""The command line: its commands, what they print and ask, and what they exit with.

An error is one line on standard error, and a traceback only with `--debug`. Exit status: 0 done; 1 an error; 2 wrong
usage; 3 a decision is still pending, or nobody said yes; 4 the request has lapsed; 130 interrupted by Ctrl-C.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.main import get_command

from phronomy import __version__
from phronomy._json import JsonError, clean, parse
from phronomy._nested import takes_value
from phronomy.agent import Agent
from phronomy.approvals import Approve, Reject, Respond
from phronomy.cli import _all_runs, _debug, _decide, _lists, _look, _prune, _recover, _timeline
from phronomy.cli._apps import new_name, opened
from phronomy.cli._chat import Chat
from phronomy.cli._letters import escaped
from phronomy.cli._options import (
    Accept,
    After,
    AnyId,
    App,
    By,
    Debug,
    Deps,
    Digest,
    Id,
    Json,
    Limit,
    Next,
    OfAgent,
    Reveal,
    Run,
    Store,
    Tenant,
    Thread,
    Yes,
    with_one_command,
)
from phronomy.cli._screen import WIDEST, Screen
from phronomy.cli._views import Mask
from phronomy.cli._words import (
    DONE,
    FAILED,
    INTERRUPTED,
    LAPSED,
    MISUSED,
    PENDING,
    WrongUsage,
    age,
    explained,
    login_name,
    status_of,
)
from phronomy.drawing import tree_mermaid, tree_svg

__all__ = [
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "LAPSED",
    "MISUSED",
    "PENDING",
    "WIDEST",
    "Screen",
    "app",
    "escaped",
    "main",
    "run",
]


@dataclass
class Invocation:
    """What holds for a whole command line."""

    debug: bool = False
    command: str = ""

    def begin(self, context: typer.Context, *, debug: bool) -> Screen:
        """Note which command is run and how, and give the screen for it."""
        self.debug |= debug
        self.command = context.info_name or ""
        return Screen()


app: typer.Typer = typer.Typer(
    add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
)

STATUSES = "Exit status: 0 done; 1 error; 2 wrong usage; 3 still pending; 130 Ctrl-C."
DECIDING = "Exit status: 0 done; 1 error; 2 wrong usage; 3 still pending; 4 it has lapsed; 130 Ctrl-C."


@app.callback(invoke_without_command=True)
def phronomy(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    debug: Debug = False,
) -> int:
    """Agents that stop for a human, and resume exactly once."""
    context.obj.debug |= debug
    if version:
        typer.echo(f"phronomy {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        typer.echo("\nStart with: phronomy demo")
    return DONE


@app.command(
    epilog="Exit status: 0 decided and done (a rejection too); 1 error; 2 wrong usage; 3 still pending; 130 Ctrl-C."
)
def demo(
    context: typer.Context,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Approve what is asked, without a prompt.")] = False,
    no: Annotated[bool, typer.Option("--no", help="Reject what is asked, without a prompt.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why, for the model. Goes with --no.", metavar="TEXT")] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="The SQLite file to keep the run in. By default one in your data directory.", metavar="PATH"),
    ] = None,
    debug: Debug = False,
) -> int:
    """A refund desk in this terminal, without any key.

    An agent looks up an order by itself, and asks before it refunds. A server on the loopback interface stands in for
    the model. Leave at the prompt, or be killed there: the next `phronomy demo` goes on from the same place.
    """
    screen = context.obj.begin(context, debug=debug)
    if yes and no:
        raise WrongUsage("--yes and --no exclude each other")
    if reason is not None and not no:
        raise WrongUsage("--reason goes with --no")
    from phronomy.demo import run_demo  # noqa: PLC0415  # stands on this module, and on SQLite and a server

    return run_demo(screen, Approve() if yes else Reject(reason=reason) if no else None, store)


@app.command(epilog=STATUSES)
def chat(
    context: typer.Context,
    *,
    app: App = None,
    deps: Deps = None,
    store: Store = None,
    tenant: Tenant = None,
    thread: Annotated[
        str | None, typer.Option(help="The thread to go on with. By default a new one.", metavar="ID")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Talk to this model, without tools and without an app.", metavar="NAME")
    ] = None,
    by: By = None,
    reveal: Reveal = False,
    debug: Debug = False,
) -> int:
    """Talk to the agent, and decide in place whatever it asks for.

    Leave whenever you like, with Ctrl-C too: the next `phronomy chat` with the same --thread goes on from there. With
    --model the conversation is kept in your data directory, unless --store names another place.
    """
    screen = context.obj.begin(context, debug=debug)
    if app is not None and model is not None:
        raise WrongUsage("--app and --model exclude each other")
    if deps is not None and model is not None:
        raise WrongUsage("--deps goes with an app, and --model talks without one")
    if thread == "":
        raise WrongUsage("--thread names a thread")
    agent: Agent[Any] | None = None
    given = [] if model is None else [f"--model {shlex.quote(model)}"]
    if model is not None:
        agent = Agent(name="chat", model=model)
    with opened(screen, app, store, tenant=tenant, deps=deps, runs=True, makes=True, agent=agent) as place:
        thread_id = clean(thread) if thread else new_name("chat")
        again = " ".join(["phronomy chat", *given, *place.options, f"--thread {shlex.quote(thread_id)}"])
        if place.worker.spec.kind != "agent" and not takes_value(place.worker.spec):
            raise WrongUsage(
                f"chat talks to agents, and {place.worker!r} is a graph: begin its runs in your app, and decide here with"
                " pending, show, approve, reject, respond and edit"
            )
        mask = Mask(place.agent, reveal=reveal)
        by = by or login_name()
        return Chat(screen=screen, place=place, mask=mask, thread_id=thread_id, by=by, again=again).run()


@app.command(epilog=STATUSES)
def pending(
    context: typer.Context,
    *,
    app: App = None,
    store: Store = None,
    tenant: Tenant = None,
    thread: Thread = None,
    run: Run = None,
    agent: OfAgent = None,
    tool: Annotated[str | None, typer.Option(help="Only of this tool.", metavar="NAME")] = None,
    label: Annotated[str | None, typer.Option(help="Only of runs and forks with this label.", metavar="TEXT")] = None,
    risk: Annotated[str | None, typer.Option(help="Only of tools with this risk.", metavar="TEXT")] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Only what waits longer: seconds, or 10m, 2h, 3d.", metavar="AGE")
    ] = None,
    newest: Annotated[bool, typer.Option("--newest", help="Newest first.")] = False,
    limit: Limit = None,
    after: Next = None,
    count: Annotated[bool, typer.Option("--count", help="Print how many there are, and nothing else.")] = False,
    json: Json = False,
    reveal: Reveal = False,
    debug: Debug = False,
) -> int:
    """List what waits for a human, oldest first."""
    screen = context.obj.begin(context, debug=debug)
    given = {
        **{"run_id": run, "thread_id": thread, "agent": agent, "tool": tool, "label": label, "risk": risk},
        **{"older_than": older_than, "newest": newest, "limit": limit, "after": after},
    }
    with opened(None if json or count else screen, app, store, tenant=tenant) as place:
        if count:
            return _lists.count_pending(screen, place, given)
        return _lists.list_pending(screen, place, given, machine=json, reveal=reveal)


@app.command(epilog=STATUSES)
def show(
    context: typer.Context,
    id: AnyId,
    *,
    app: App = None,
    store: Store = None,
    tenant: Tenant = None,
    json: Json = False,
    reveal: Reveal = False,
    debug: Debug = False,
) -> int:
    """Show exactly what will run, and who asks for it.

    Also since when it waits, what was decided before, and the end of the conversation.
    """
    screen = context.obj.begin(context, debug=debug)
    with opened(None if json else screen, app, store, tenant=tenant) as place:
        return _look.show(screen, place, id, machine=json, reveal=reveal)


@app.command(epilog=STATUSES)
def history(
    context: typer.Context,
    id: AnyId,
    *,
    app: App = None,
    store: Store = None,
    tenant: Tenant = None,
    json: Json = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Draw all of its run, as a Mermaid flowchart.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Draw all of its run, as SVG.")] = False,
    debug: Debug = False,
) -> int:
    """List the checkpoints that lead to a place, oldest first.

    Or draw the run that it is of, as a tree: with forks, what waits, and what was decided.
    """
    screen = context.obj.begin(context, debug=debug)
    if json + mermaid + svg > 1:
        raise WrongUsage("--json, --mermaid and --svg exclude each other")
    with opened(None if json or mermaid or svg else screen, app, store, tenant=tenant) as place:
        if mermaid or svg:
            return _look.draw(screen, place, id, tree_mermaid if mermaid else tree_svg)
        return _look.history(screen, place, id, machine=json)


app.command(epilog=STATUSES)(_all_runs.runs)
app.command(epilog=STATUSES)(_timeline.timeline)
app.command(epilog=STATUSES)(_debug.debug)


@app.command(epilog=STATUSES)
def diff(
    context: typer.Context,
    before: AnyId,
    after: AnyId,
    *,
    app: App = None,
    store: Store = None,
    tenant: Tenant = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Show how two checkpoints differ.

    Counts, ids and names of tools alone: nothing that was said.
    """
    screen = context.obj.begin(context, debug=debug)
    with opened(None if json else screen, app, store, tenant=tenant) as place:
        return _look.compare(screen, place, before, after, machine=json)


@app.command(epilog=STATUSES)
def audit(
    context: typer.Context,
    *,
    app: App = None,
    store: Store = None,
    tenant: Tenant = None,
    run: Run = None,
    thread: Thread = None,
    pending: Annotated[str | None, typer.Option(help="Only of this pending approval.", metavar="ID")] = None,
    since: Annotated[
        str | None, typer.Option(help="From then on: a date, a time, or an age such as 2h.", metavar="WHEN")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Up to then.", metavar="WHEN")] = None,
    table: Annotated[bool, typer.Option("--table", help="Print a table, for people.")] = False,
    debug: Debug = False,
) -> int:
    """Print who decided what, oldest first: a line of JSON each.

    What is here stays when runs are taken away.
    """
    screen = context.obj.begin(context, debug=debug)
    given = {"run_id": run, "thread_id": thread, "pending_id": pending, "since": since, "until": until}
    with opened(screen if table else None, app, store, tenant=tenant) as place:
        return _lists.audit(screen, place, given, table=table)


@app.command(name="list", epilog=STATUSES)
def list_checkpoints(
    context: typer.Context,
    *,
    app: App = None,
    store: Store = None,
    tenant: Tenant = None,
    run: Run = None,
    thread: Thread = None,
    agent: OfAgent = None,
    label: Annotated[str | None, typer.Option(help="Only with this label.", metavar="TEXT")] = None,
    labeled: Annotated[bool, typer.Option("--labeled", help="Only with a label.")] = False,
    limit: Limit = None,
    after: Next = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """List the checkpoints that are kept, of all runs."""
    screen = context.obj.begin(context, debug=debug)
    given = {"run_id": run, "thread_id": thread, "agent": agent, "label": label, "labeled": labeled}
    with opened(None if json else screen, app, store, tenant=tenant) as place:
        return _lists.list_checkpoints(screen, place, {**given, "limit": limit, "after": after}, machine=json)


@app.command(epilog=STATUSES)
def prune(
    context: typer.Context,
    *,
    older_than: Annotated[
        str, typer.Option(help="Ended longer ago than this: seconds, or 10m, 2h, 3d.", metavar="AGE")
    ],
    keep_last: Annotated[int, typer.Option(help="Spare the last runs of each thread.", metavar="N", min=0)] = 0,
    keep_labeled: Annotated[
        bool, typer.Option("--keep-labeled/--no-keep-labeled", help="Spare runs with a labeled checkpoint.")
    ] = True,
    app: App = None,
    store: Store = None,
    tenant: Tenant = None,
    yes: Yes = False,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Take away runs that have ended.

    A run goes as a whole, forks included. What waits for a human or is worked on stays, and so does the audit trail.
    """
    screen = context.obj.begin(context, debug=debug)
    what = _prune.Wanted(older_than=age(older_than), keep_last=keep_last, keep_labeled=keep_labeled)
    with opened(None if json else screen, app, store, tenant=tenant) as place:
        return _prune.prune(screen, place, what, yes=yes, machine=json)


# The commands that decide


@app.command(epilog=DECIDING)
def approve(
    context: typer.Context,
    id: Id,
    *,
    app: App = None,
    deps: Deps = None,
    store: Store = None,
    tenant: Tenant = None,
    by: By = None,
    digest: Digest = None,
    yes: Yes = False,
    json: Json = False,
    reveal: Reveal = False,
    accept_changes: Accept = False,
    debug: Debug = False,
) -> int:
    """Run what waits, as it is shown, and carry the run on."""
    screen = context.obj.begin(context, debug=debug)
    how = _manner(by, digest, yes, json, reveal, accept_changes)
    with opened(None if json else screen, app, store, tenant=tenant, deps=deps, runs=True) as place:
        return _decide.decide(screen, place, id, Approve(), "Approve it?", how)


@app.command(epilog=DECIDING)
def reject(
    context: typer.Context,
    id: Id,
    *,
    app: App = None,
    deps: Deps = None,
    store: Store = None,
    tenant: Tenant = None,
    reason: Annotated[str | None, typer.Option(help="Why, for the model.", metavar="TEXT")] = None,
    then: Annotated[
        After,
        typer.Option(help="The model goes on; it does, and the same call is rejected unasked; or the run ends."),
    ] = After.CONTINUE,
    by: By = None,
    digest: Digest = None,
    yes: Yes = False,
    json: Json = False,
    reveal: Reveal = False,
    accept_changes: Accept = False,
    debug: Debug = False,
) -> int:
    """Do not run what waits, and carry the run on."""
    screen = context.obj.begin(context, debug=debug)
    how = _manner(by, digest, yes, json, reveal, accept_changes)
    with opened(None if json else screen, app, store, tenant=tenant, deps=deps, runs=True) as place:
        return _decide.decide(screen, place, id, Reject(reason=reason, then=then.value), "Reject it?", how)


@app.command(epilog=DECIDING)
def respond(
    context: typer.Context,
    id: Id,
    content: Annotated[
        str | None, typer.Argument(help="The result as text; - reads it from standard input.", metavar="[TEXT|-]")
    ] = None,
    *,
    app: App = None,
    deps: Deps = None,
    store: Store = None,
    tenant: Tenant = None,
    json_content: Annotated[
        str | None, typer.Option(help="The result as JSON; - reads it from standard input.", metavar="JSON")
    ] = None,
    by: By = None,
    digest: Digest = None,
    yes: Yes = False,
    json: Json = False,
    reveal: Reveal = False,
    accept_changes: Accept = False,
    debug: Debug = False,
) -> int:
    """Give the result of what waits yourself.

    It is not run: the text, or JSON, is what the model reads as its result. Then the run is carried on.
    """
    screen = context.obj.begin(context, debug=debug)
    how = _manner(by, digest, yes, json, reveal, accept_changes)
    if (content is None) == (json_content is None):
        raise WrongUsage("give the result, either as TEXT or with --json-content")
    text = content if content is not None else json_content or ""
    text = sys.stdin.read() if text == "-" else text
    with opened(None if json else screen, app, store, tenant=tenant, deps=deps, runs=True) as place:
        answer = Respond(content=text if json_content is None else _json(text, "--json-content"))
        return _decide.decide(screen, place, id, answer, "Give this result?", how)


@app.command(epilog=DECIDING)
def edit(
    context: typer.Context,
    id: Id,
    *,
    app: App = None,
    deps: Deps = None,
    store: Store = None,
    tenant: Tenant = None,
    args: Annotated[
        str | None, typer.Option(help="All the arguments, as JSON. Without it, EDITOR is opened.", metavar="JSON")
    ] = None,
    by: By = None,
    digest: Digest = None,
    yes: Yes = False,
    json: Json = False,
    reveal: Reveal = False,
    accept_changes: Accept = False,
    debug: Debug = False,
) -> int:
    """Run what waits with other arguments.

    They are validated and shown before anybody is asked. Arguments that are not valid change nothing.
    """
    screen = context.obj.begin(context, debug=debug)
    how = _manner(by, digest, yes, json, reveal, accept_changes)
    with opened(None if json else screen, app, store, tenant=tenant, deps=deps, runs=True) as place:
        make = partial(_decide.edit, given=args)
        return _decide.decide(screen, place, id, make, "Approve it with these arguments?", how)


@app.command(epilog=STATUSES)
def recover(
    context: typer.Context,
    id: Annotated[
        str | None, typer.Argument(help="A run, or a checkpoint of one. Without it, all of the app's.", metavar="[ID]")
    ] = None,
    *,
    app: App = None,
    deps: Deps = None,
    store: Store = None,
    tenant: Tenant = None,
    yes: Yes = False,
    json: Json = False,
    reveal: Reveal = False,
    accept_changes: Accept = False,
    debug: Debug = False,
) -> int:
    """Carry on what lost workers have left, and what nobody decided in time.

    With an ID that run alone, whatever it stopped on: a failure of the model, too. Without one, what was not announced
    is announced as well, and runs older than the store keeps are taken away.
    """
    screen = context.obj.begin(context, debug=debug)
    how = _recover.Manner(yes=yes, machine=json, reveal=reveal, accept_changes=accept_changes)
    with opened(None if json else screen, app, store, tenant=tenant, deps=deps, runs=True) as place:
        return _recover.recover(screen, place, id, how)


app.command(epilog=STATUSES)(_all_runs.cancel)


def _manner(
    by: str | None, digest: str | None, yes: bool, machine: bool, reveal: bool, accept_changes: bool
) -> _decide.Manner:
    if by == "":
        raise WrongUsage("--by names somebody")
    return _decide.Manner(
        by=by or login_name(),
        digest=digest,
        yes=yes,
        machine=machine,
        reveal=reveal,
        accept_changes=accept_changes,
    )


def _json(text: str, option: str) -> Any:
    try:
        return parse(text)
    except JsonError as error:
        raise WrongUsage(f"{option} is no JSON: {error}") from None


# Running a command line


def main() -> NoReturn:
    """The console script."""
    status = run(sys.argv[1:])
    if status == INTERRUPTED:
        # CPython notes an interrupt inside any exec(), as imports make them, and lets `python -m` die of it at the end,
        # caught or not; the next exec() clears the note.
        exec("")  # noqa: S102
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run a command line, and return its exit status."""
    invocation = Invocation()
    try:
        status: int | None = get_command(with_one_command(app, arguments)).main(
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

"""The commands that look: at a request or a run, at how two checkpoints differ, at the stored checkpoints, and at the audit trail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from phronomy.cli.apps import (
    Place,
    check_found,
    decided_there,
    find,
    how_decided,
    open_place,
    say_more,
    say_unreadable,
    unreadable_view,
)
from phronomy.cli.options import AnyId, Json, Limit, Next, OfAgent, Reveal, Run, Thread, Where, WithIds, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import Mask, checkpoint_view, diff_view, info_view, run_view, show_run
from phronomy.cli.words import DONE, TIME, WrongUsage, by_whom, moment_of, time_of, times_of
from phronomy.observability.drawings.drawing import tree_mermaid, tree_svg
from phronomy.records.audit import AuditRecord
from phronomy.records.diff import diff as compared


def _show(screen: Screen, place: Place, id: str, *, machine: bool, reveal: bool) -> int:
    """Shows the checkpoint of an id: what is pending there, and exactly what would run."""
    with screen.reading(machine=machine):
        meant = find(place.store, id)
        check_found(meant)
        meant, decided = decided_there(place.store, meant)
        if len(decided) == 1 and not meant.pending:
            meant = decided.pop()  # as its pending id shows it
    mask = Mask(place.agent, reveal=reveal)
    if machine:
        screen.document(run_view(meant, mask, place.store.clock(), decided))
        return DONE
    if place.agent is None and any(map(mask.masked_in, meant.pending)):
        screen.say(
            "Arguments are hidden: give --app module:agent, or --reveal to see secrets.",
            style="yellow",
        )
    show_run(screen, meant, mask, place.store, decided)
    return DONE


def _history(screen: Screen, place: Place, id: str, *, machine: bool, ids: bool) -> int:
    """The checkpoints that lead to what an id means, oldest first; and how it was decided, if it is a pending id that was."""
    with screen.reading(machine=machine):
        meant = find(place.store, id)
        checkpoints = place.store.history(meant.checkpoint.id)
    if machine:
        screen.document([checkpoint_view(each) for each in checkpoints])
        return DONE
    shown = [each for each in checkpoints if ids or each.status != "running" or each.label] or checkpoints[-1:]
    columns: dict[str, list[str]] = {
        "CHECKPOINT": [each.id for each in shown] if ids else [],
        "STEP": [str(each.step) for each in shown],
        TIME: times_of([each.created_at for each in shown], whole=ids),
        "STATUS": [each.status for each in shown],
        "WAITS FOR": [", ".join(item.tool_name for item in each.pending) or "-" for each in shown],
        "LABEL": [each.label or "-" for each in shown] if any(each.label for each in shown) else [],
        "RUN": [each.run_id for each in shown] if ids else [],
    }
    kept = {head: cells for head, cells in columns.items() if cells}
    screen.table([*kept], [*zip(*kept.values(), strict=True)])
    if meant.decided is not None:
        screen.say()
        screen.say(f"It {how_decided(meant, place.store)}.", style="bold")
    return DONE


def _draw(screen: Screen, place: Place, id: str, drawing: Callable[..., str]) -> int:
    """The tree of the run that an id means, drawn, and nothing else."""
    with screen.reading():
        text = drawing(place.store, find(place.store, id).checkpoint.run_id)
    screen.verbatim(text)
    return DONE


def _compare(screen: Screen, place: Place, before: str, after: str, *, machine: bool) -> int:
    """Shows the differences between two checkpoints, without any text of the conversation."""
    with screen.reading(machine=machine):
        both = [find(place.store, id).checkpoint for id in (before, after)]
    difference = compared(*both)
    if machine:
        screen.document(diff_view(difference))
        return DONE
    heading, *details = difference.lines()
    screen.say(heading, style="bold")
    for line in details:
        screen.say(line)
    return DONE


def _list_kept(screen: Screen, place: Place, given: Mapping[str, Any], *, machine: bool) -> int:
    """Lists the stored checkpoints. `given` are the filter options by name."""
    with screen.reading(machine=machine):
        page = place.store.list(**given)
    if machine:
        items = [info_view(each) for each in page]
        screen.document({"items": items, "next": page.next, **unreadable_view(page.unreadable)})
        return DONE
    rows = [
        (each.id, each.run_id, each.thread_id or "-", each.agent, time_of(each.created_at), each.label or "-")
        for each in page
    ]
    if rows:
        screen.table(("CHECKPOINT", "RUN", "THREAD", "AGENT", "AT", "LABEL"), rows)
    elif not page.unreadable:
        screen.say("No checkpoint is kept.")
    say_unreadable(screen, page.unreadable)
    say_more(screen, place, "list", given, page.next)
    return DONE


def _list_audit(screen: Screen, place: Place, given: Mapping[str, str | None], *, table: bool) -> int:
    """Lists the audit trail, oldest first: a line of JSON each, as it is read, or a table. `given` are the options by name."""
    now = place.store.clock()
    times = {name: moment_of(text, now) for name in ("since", "until") if (text := given[name]) is not None}
    wanted: dict[str, Any] = {**given, **times}
    records = place.store.audit(**wanted)
    if not table:
        for record in records:
            metadata = {"metadata": record.metadata} if record.metadata else {}
            screen.line({**record.model_dump(mode="json"), **metadata})
        return DONE
    with screen.reading():
        rows = [_row(record) for record in records]
    if rows:
        screen.table(("AT", "DECISION", "TOOL", "BY", "CHANNEL", "PENDING", "RUN", "REASON"), rows)
    else:
        screen.say("Nothing was decided.")
    return DONE


def _row(record: AuditRecord) -> tuple[str, ...]:
    return (
        time_of(record.at),
        ", ".join([record.kind, *(name for name in ("edited", "checked", "vote", "refused") if getattr(record, name))]),
        record.tool_name or "-",
        by_whom(record) if record.by is not None else "-",
        record.channel or "-",
        record.pending_id or "-",
        record.run_id,
        record.reason or "-",
    )


@command
def show(
    screen: Screen,
    id: AnyId,
    *,
    where: Where,
    json: Json = False,
    reveal: Reveal = False,
) -> int:
    """Show exactly what will run, and who asks for it.

    Also since when it waits, what was decided before, and the end of the conversation.
    """
    with open_place(None if json else screen, where) as place:
        return _show(screen, place, id, machine=json, reveal=reveal)


@command
def history(
    screen: Screen,
    id: AnyId,
    *,
    where: Where,
    ids: WithIds = False,
    json: Json = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Draw all of its run, as a Mermaid flowchart.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Draw all of its run, as SVG.")] = False,
) -> int:
    """List the checkpoints that lead to a place, oldest first: without --ids those at which it stopped or ended.

    Or draw the run that it is of, as a tree: with forks, what waits, and what was decided.
    """
    if json + mermaid + svg > 1:
        raise WrongUsage("--json, --mermaid and --svg exclude each other")
    with open_place(None if json or mermaid or svg else screen, where) as place:
        if mermaid or svg:
            return _draw(screen, place, id, tree_mermaid if mermaid else tree_svg)
        return _history(screen, place, id, machine=json, ids=ids)


@command
def diff(
    screen: Screen,
    before: AnyId,
    after: AnyId,
    *,
    where: Where,
    json: Json = False,
) -> int:
    """Show how two checkpoints differ.

    Counts, ids and names of tools alone: nothing that was said.
    """
    with open_place(None if json else screen, where) as place:
        return _compare(screen, place, before, after, machine=json)


@command
def audit(
    screen: Screen,
    *,
    where: Where,
    run: Run = None,
    thread: Thread = None,
    pending: Annotated[str | None, typer.Option(help="Only of this pending approval.", metavar="ID")] = None,
    since: Annotated[
        str | None, typer.Option(help="From then on: a date, a time, or an age such as 2h.", metavar="WHEN")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Up to then.", metavar="WHEN")] = None,
    table: Annotated[bool, typer.Option("--table", help="Print a table, for people.")] = False,
) -> int:
    """Print who decided what, oldest first: a line of JSON each.

    What is here stays when runs are taken away.
    """
    given = {"run_id": run, "thread_id": thread, "pending_id": pending, "since": since, "until": until}
    with open_place(screen if table else None, where) as place:
        return _list_audit(screen, place, given, table=table)


@command
def list_checkpoints(
    screen: Screen,
    *,
    where: Where,
    run: Run = None,
    thread: Thread = None,
    agent: OfAgent = None,
    label: Annotated[str | None, typer.Option(help="Only with this label.", metavar="TEXT")] = None,
    labeled: Annotated[bool, typer.Option("--labeled", help="Only with a label.")] = False,
    limit: Limit = None,
    after: Next = None,
    json: Json = False,
) -> int:
    """List the checkpoints that are kept, of all runs."""
    given = {"run_id": run, "thread_id": thread, "agent": agent, "label": label, "labeled": labeled}
    with open_place(None if json else screen, where) as place:
        return _list_kept(screen, place, {**given, "limit": limit, "after": after}, machine=json)

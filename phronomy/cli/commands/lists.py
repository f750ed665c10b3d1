"""The commands that list: what waits for a human, the checkpoints that are kept, and who has decided what."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from phronomy.cli.apps import Place, open_place
from phronomy.cli.options import Json, Limit, Next, OfAgent, Reveal, Run, Thread, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import Mask, info_view, pending_view
from phronomy.cli.words import DONE, WrongUsage, age, ago, ahead, moment_of, time_of
from phronomy.records.audit import AuditRecord
from phronomy.stores import Page, Waiting


def _list_pending(screen: Screen, place: Place, given: Mapping[str, Any], *, machine: bool, reveal: bool) -> int:
    """Lists the pending approvals. `given` are the filter options by name."""
    wanted = _with_age(given)
    with screen.reading(machine=machine):
        page = place.store.pending(**wanted)
    if machine:
        mask = Mask(place.agent, reveal=reveal)
        items = [{**pending_view(item.approval, item, mask), "label": item.label} for item in page]
        screen.document({"items": items, "next": page.next})
    elif not page:
        screen.say("Nothing waits for a decision.")
    else:
        _table(screen, page, place.store.clock())
        _more(screen, place, "pending", given, page.next)
    return DONE


def _count_pending(screen: Screen, place: Place, given: Mapping[str, Any]) -> int:
    """Prints the number of pending approvals."""
    wanted = _with_age(given)
    paging = [wanted.pop(name) for name in ("newest", "limit", "after")]
    if any(paging):
        raise WrongUsage("--count counts all that waits: leave --newest, --limit and --after out")
    screen.document(place.store.count(**wanted))
    return DONE


def _with_age(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with the age in seconds."""
    return {**given, "older_than": age(given["older_than"]) if given["older_than"] is not None else None}


def _table(screen: Screen, page: Page[Waiting], now: float) -> None:
    """A line for each; what none of them has gets no column."""
    heads = ("PENDING", "TOOL", "AGENT", "THREAD", "SINCE", "WHY", "RISK", "LAPSES", "LABEL")
    rows = [
        (
            item.approval.id,
            item.approval.tool_name,
            _asker(item),
            item.thread_id or "-",
            ago(now - item.approval.requested_at.timestamp()),
            "external" if item.approval.external else item.approval.why,
            item.approval.tool.risk or "-",
            _lapses(item, now),
            item.label or "-",
        )
        for item in page
    ]
    shown = [at for at, head in enumerate(heads) if head not in _OPTIONAL or any(row[at] != "-" for row in rows)]
    screen.table([heads[at] for at in shown], [[row[at] for at in shown] for row in rows])


def _asker(item: Waiting) -> str:
    """Whose run it is, and who in it asks, where that is another."""
    asks = item.approval.agent
    return item.agent if asks in (None, item.agent) else f"{item.agent}: {asks}"


_OPTIONAL = ("RISK", "LAPSES", "LABEL")


def _lapses(item: Waiting, now: float) -> str:
    if item.approval.expires_at is None:
        return "-"
    told = ahead(item.approval.expires_at.timestamp() - now)
    return {"over": "overdue" if item.approval.on_expiry == "stay" else "lapsed"}.get(told, told)


def _list_kept(screen: Screen, place: Place, given: Mapping[str, Any], *, machine: bool) -> int:
    """Lists the stored checkpoints. `given` are the filter options by name."""
    with screen.reading(machine=machine):
        page = place.store.list(**given)
    if machine:
        screen.document({"items": [info_view(each) for each in page], "next": page.next})
    elif not page:
        screen.say("No checkpoint is kept.")
    else:
        rows = [
            (each.id, each.run_id, each.thread_id or "-", each.agent, time_of(each.created_at), each.label or "-")
            for each in page
        ]
        screen.table(("CHECKPOINT", "RUN", "THREAD", "AGENT", "AT", "LABEL"), rows)
        _more(screen, place, "list", given, page.next)
    return DONE


def _more(screen: Screen, place: Place, command: str, given: Mapping[str, object], after: str | None) -> None:
    """Say how to see the page that follows, if there is one."""
    if after is None:
        return
    screen.say()
    screen.say("There are more:", style="bold")
    screen.place("", place.command(command, *_options({**given, "after": after})))


def _options(given: Mapping[str, object]) -> Iterator[str]:
    """The options as they are typed."""
    for name, value in given.items():
        option = f"--{name.removesuffix('_id').replace('_', '-')}"
        if value is True:
            yield option
        elif value not in (None, False):
            yield f"{option}={shlex.quote(str(value))}"


def _list_audit(screen: Screen, place: Place, given: Mapping[str, str | None], *, table: bool) -> int:
    """Lists the audit trail, oldest first: a line of JSON each, as it is read, or a table. `given` are the options by name."""
    now = place.store.clock()
    times = {name: moment_of(text, now) for name in ("since", "until") if (text := given[name]) is not None}
    wanted: dict[str, Any] = {**given, **times}
    records = place.store.audit(**wanted)
    if not table:
        for record in records:
            screen.line(record.model_dump(mode="json"))
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
        f"{record.kind}, edited" if record.edited else record.kind,
        record.tool_name or "-",
        (record.by.name or record.by.id) if record.by is not None else "-",
        record.channel or "-",
        record.pending_id or "-",
        record.run_id,
        record.reason or "-",
    )


@command
def pending(
    screen: Screen,
    *,
    where: Where,
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
) -> int:
    """List what waits for a human, oldest first."""
    given = {
        **{"run_id": run, "thread_id": thread, "agent": agent, "tool": tool, "label": label, "risk": risk},
        **{"older_than": older_than, "newest": newest, "limit": limit, "after": after},
    }
    with open_place(None if json or count else screen, where) as place:
        if count:
            return _count_pending(screen, place, given)
        return _list_pending(screen, place, given, machine=json, reveal=reveal)


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

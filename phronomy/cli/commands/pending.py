"""The command `phronomy pending`: the requests that wait for a human."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from phronomy.cli.apps import Place, open_place, say_more, say_unreadable, unreadable_view
from phronomy.cli.options import Json, Limit, Next, OfAgent, Reveal, Run, Thread, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import Mask, pending_view, told_about
from phronomy.cli.votes import cells
from phronomy.cli.words import DONE, WrongUsage, age, ahead
from phronomy.foundation.durations import ago
from phronomy.observability.about import args_in_brief
from phronomy.records.decisions import PendingApproval
from phronomy.stores import Page, Waiting
from phronomy.stores.derived import set_aside
from phronomy.stores.derived.requests import not_carried_out


def _list_pending(screen: Screen, place: Place, given: Mapping[str, Any], *, machine: bool, reveal: bool) -> int:
    """Lists the pending approvals. `given` are the filter options by name."""
    wanted = _with_age(given)
    with screen.reading(machine=machine):
        page = place.store.pending(**wanted)
    if machine:
        mask = Mask(place.agent, reveal=reveal)
        now = place.store.clock()
        items = [{**pending_view(item.approval, item, mask, now), "label": item.label} for item in page]
        screen.document({"items": items, "next": page.next, **unreadable_view(page.unreadable)})
        return DONE
    if page:
        _table(screen, page, Mask(place.agent, reveal=reveal), place.store.clock())
    elif not page.unreadable:
        screen.say("Nothing waits for a decision.")
        _say_decided(screen, place, given)
    say_unreadable(screen, page.unreadable)
    say_more(screen, place, "pending", given, page.next)
    return DONE


def _say_decided(screen: Screen, place: Place, given: Mapping[str, Any]) -> None:
    """Say what is decided and not carried out yet: somebody who has just decided may look for it here."""
    wanted = {name: given[name] for name in ("run_id", "thread_id", "agent") if given[name] is not None}
    left = [each for each in place.store.decided() if all(getattr(each, name) == of for name, of in wanted.items())]
    if not left:
        return
    decided = sum(max(len(not_carried_out(place.store, each)), 1) for each in left)
    aside = sum(set_aside.reason(place.store, each) is not None for each in left)
    noted = f" ({aside} set aside, for an operator)" if aside else ""
    app = () if place.agent is not None else ("--app module:agent",)
    screen.say(f"{decided} decided, not carried out{noted}:")
    screen.place("", place.command("work", *app))


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


def _table(screen: Screen, page: Page[Waiting], mask: Mask, now: float) -> None:
    """A line for each; what none of them has gets no column."""
    heads = ("PENDING", "ABOUT", "FOR", "SINCE", *_VOTES, "RISK", "LAPSES", "WHY", "AGENT", "THREAD", "TOOL", "LABEL")
    rows = [
        (
            item.approval.id,
            told_about(item.approval, args_in_brief(item.approval, mask), None),
            _requester(item.approval),
            ago(now - item.approval.requested_at.timestamp()),
            *cells(item.approval, now),
            item.approval.tool.risk or "-",
            _lapses(item, now),
            _why(item),
            _asker(item),
            item.thread_id or "-",
            item.approval.tool_name if item.approval.title else "-",
            item.label or "-",
        )
        for item in page
    ]
    shown = [at for at, head in enumerate(heads) if head not in _OPTIONAL or any(row[at] != "-" for row in rows)]
    screen.table([heads[at] for at in shown], [[row[at] for at in shown] for row in rows])


def _requester(item: PendingApproval) -> str:
    return (item.requester.name or item.requester.id) if item.requester is not None else "-"


def _asker(item: Waiting) -> str:
    """Whose run it is, and who in it asks, where that is another."""
    asks = item.approval.agent
    return item.agent if asks in (None, item.agent) else f"{item.agent}: {asks}"


_VOTES = ("MAY DECIDE", "VOTES", "ESCALATES")
_OPTIONAL = ("FOR", "RISK", "LAPSES", *_VOTES, "THREAD", "TOOL", "LABEL")


def _why(item: Waiting) -> str:
    """Why somebody is asked, or what else is waited for."""
    trigger = item.approval.trigger
    if trigger is not None and trigger.kind != "answer":
        return f"event {trigger.event}" if trigger.event is not None else trigger.kind
    return "external" if item.approval.external else item.approval.why


def _lapses(item: Waiting, now: float) -> str:
    trigger = item.approval.trigger
    if trigger is not None and trigger.due_at is not None:
        return ahead(trigger.due_at.timestamp() - now)
    if item.approval.expires_at is None:
        return "-"
    told = ahead(item.approval.expires_at.timestamp() - now)
    return {"over": "overdue" if item.approval.on_expiry == "stay" else "lapsed"}.get(told, told)


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

"""The commands about whole runs: `runs` lists them, `cancel` ends one."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from contextlib import redirect_stdout
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from phronomy.agents.agent import Agent
from phronomy.cli.apps import Found, Place, find, open_place, told_left
from phronomy.cli.commands.decide import confirm, result_view
from phronomy.cli.options import By, Json, Limit, OfAgent, Standing, Thread, Where, Yes, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import Mask, branch_view, moment, told_about
from phronomy.cli.words import DONE, PENDING, WrongUsage, login_name
from phronomy.foundation.durations import ago
from phronomy.models.base import ModelReply, ModelRequest
from phronomy.observability.about import About, abouts
from phronomy.records.principals import Principal
from phronomy.runs.runs import Runs
from phronomy.stores.derived.listing import damage_of
from phronomy.stores.rows import Branch, PendingRow


@command
def runs(
    screen: Screen,
    *,
    where: Where,
    thread: Thread = None,
    agent: OfAgent = None,
    status: Annotated[
        list[Standing] | None, typer.Option(help="Only those that stand so. May be given several times.")
    ] = None,
    limit: Limit = None,
    json: Json = False,
) -> int:
    """List runs and their forks, oldest first: how each stands, and what waits there.

    --limit keeps the newest. What is running and held by nobody is for `recover`.
    """
    with open_place(None if json else screen, where) as place:
        with screen.reading(machine=json):
            waiting = _by_branch(place.store.pending_rows(thread_id=thread))
            every = place.store.branches(thread_id=thread)
            wanted = [each for each in every if _is_wanted(each, agent, status)][-(limit or 0) :]
            damaged = damage_of(place.store, wanted)
            left = {
                each.id: told for each in wanted if each.id not in damaged and (told := told_left(place.store, each))
            }
        now = place.store.clock()
        if json:
            about = _about(place, wanted, waiting)
            items = [
                {
                    **_view(each, about[each.id], waiting[each.id], now, damaged.get(each.id)),
                    **({"left": left[each.id]} if each.id in left else {}),
                }
                for each in wanted
            ]
            screen.document({"items": items})
        elif not wanted:
            screen.say("There is no such run." if every else "No run is kept.")
        else:
            about = _about(place, wanted, waiting)
            screen.table(
                _HEADS,
                [
                    _row(
                        each, about[each.id], waiting[each.id], now, damaged=each.id in damaged, left=left.get(each.id)
                    )
                    for each in wanted
                ],
            )
        if damaged and not json:
            screen.complain(f"{len(damaged)} of them cannot be read, and {_STAYS}:")
            for id, error in damaged.items():
                screen.complain(f"  {id}: {error}")
    return DONE


_STAYS: Final = "nobody can carry them on or decide in them until that is mended"


_HEADS: Final = ("RUN", "ABOUT", "STATUS", "SINCE", "FOR", "AGENT", "THREAD")


def _about(place: Place, branches: list[Branch], waiting: Mapping[str, list[PendingRow]]) -> dict[str, About]:
    """The subjects of runs, without anything that may not be seen."""
    mask = Mask(place.agent, reveal=False)
    return abouts(place.store, branches, waiting, lambda _: mask)


def _by_branch(rows: list[PendingRow]) -> defaultdict[str, list[PendingRow]]:
    """Groups pending approvals by their branch."""
    found: defaultdict[str, list[PendingRow]] = defaultdict(list)
    for row in rows:
        found[row.branch_id].append(row)
    return found


def _is_wanted(branch: Branch, agent: str | None, statuses: list[Standing] | None) -> bool:
    return (agent is None or branch.agent == agent) and (not statuses or branch.status in statuses)


def _view(branch: Branch, about: About, waiting: list[PendingRow], now: float, damage: str | None) -> dict[str, object]:
    return {
        **({"unreadable": damage} if damage is not None else {}),
        **branch_view(branch),
        "title": (about.item.title or about.item.tool_name) if about.item is not None else None,
        "words": about.words,
        "requester": about.requester.id if about.requester is not None else None,
        "held": branch.is_held(now),
        "created_at": _moment(branch.created_at),
        "changed_at": _moment(branch.changed_at),
        "pending_ids": [row.pending_id for row in waiting],
    }


def _moment(at: float) -> str:
    return moment(datetime.fromtimestamp(at, UTC))


def _row(
    branch: Branch,
    about: About,
    waiting: list[PendingRow],
    now: float,
    *,
    damaged: bool = False,
    left: str | None = None,
) -> tuple[str, ...]:
    lost = branch.status == "running" and not branch.is_held(now)
    status = "running, held by nobody" if lost else (left or branch.status)
    return (
        branch.id,
        told_about(about.item, about.args, about.words, len(waiting)),
        status + (", cannot be read" if damaged else ""),
        ago(now - branch.changed_at),
        (about.requester.name or about.requester.id) if about.requester is not None else "-",
        branch.agent,
        branch.thread_id or "-",
    )


@command
def cancel(
    screen: Screen,
    id: Annotated[str, typer.Argument(help="A run, or a branch, checkpoint or pending id of one.", metavar="RUN")],
    *,
    where: Where,
    reason: Annotated[str | None, typer.Option(help="Why, for the record.", metavar="TEXT")] = None,
    by: By = None,
    yes: Yes = False,
    json: Json = False,
) -> int:
    """End a run: what waits in it is settled as cancelled, and nothing of it begins any more.

    A run that a worker elsewhere holds is told, and ends there at its next boundary. That of an agent needs no --app;
    without it, what is announced of the end is left for `recover`, and hooks are not told.
    """
    if json and not yes:
        raise WrongUsage("--json asks nobody, so it goes with --yes")
    if by == "":
        raise WrongUsage("--by names somebody")
    with open_place(None if json else screen, where) as place:
        with screen.reading(machine=json):
            meant = find(place.store, id)
            waiting = _by_branch(place.store.pending_rows(run_id=meant.branch.run_id))[meant.branch.id]
        worker = _worker(place, meant)
        if not json:
            about = _about(place, [meant.branch], {meant.branch.id: waiting})[meant.branch.id]
            left = told_left(place.store, meant.branch)
            screen.table(_HEADS, [_row(meant.branch, about, waiting, place.store.clock(), left=left)])
        try:
            if not (yes or confirm(screen, "Cancel it?")):
                screen.say("Nothing was cancelled.", style="bold")
                return PENDING
        except (KeyboardInterrupt, EOFError) as error:
            return screen.complain_of_end(error, "Nothing was cancelled.")
        with redirect_stdout(sys.stderr):
            result = worker.cancel(meant.branch.id, reason=reason, by=Principal(id=by or login_name()))
        if json:
            screen.document(result_view(result, Mask(place.agent, reveal=False), place))
        elif result.status == "running":
            screen.say("A worker elsewhere holds the run, and ends it at its next boundary.", style="bold")
        else:
            screen.say(f"The run is {result.status}.", style="bold green")
    return DONE


class Unasked:
    """The model of an agent that ends a run, and asks nobody. A name would need a package that reaches its provider."""

    name = "none"

    def complete(self, request: ModelRequest) -> ModelReply:
        """Never called."""
        raise AssertionError("a run that is ended asks no model")

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """Never called."""
        raise AssertionError("a run that is ended asks no model")


def _worker(place: Place, meant: Found) -> Runs[Any, object]:
    """Gives the worker that ends the run: the app's, or for an agent's run without an app a bare agent. Raises `WrongUsage`."""
    kind = meant.checkpoint.kind
    if place.agent is None and kind == "agent":
        return Agent(name=meant.branch.agent, model=Unasked(), store=place.store)
    if place.agent is None or place.agent.spec.kind != kind:
        raise WrongUsage(
            f"{meant.branch.id} is a run of {kind} {meant.branch.agent!r}: give that as --app module:{kind}"
        )
    return place.agent

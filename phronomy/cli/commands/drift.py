"""The command that says, before a deploy, what becomes of the requests that wait, and of the decisions that wait for a worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal

import typer

from phronomy.cli.apps import Place, open_place, say_unreadable, unreadable_view
from phronomy.cli.options import Here, Json, command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, FAILED
from phronomy.errors import CheckpointError, StoreError, UnreadableRow
from phronomy.foundation.dataclasses import dataclass
from phronomy.records.decisions import Answer, Approve
from phronomy.runs.finding.outlook import Outlook, outlook
from phronomy.stores import Waiting
from phronomy.stores.derived import set_aside
from phronomy.stores.derived.listing import Listing
from phronomy.stores.derived.requests import not_carried_out
from phronomy.stores.rows import Branch

_PAGE: Final = 200
"""Requests that are read at a time."""

_TOLD: Final = {"breaks": "would break", "asked_again": "is asked again", "goes_on": "goes on"}


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """A request, and its outlook. There is no id where the request cannot be read."""

    pending_id: str | None
    run_id: str
    tool: str | None
    status: Literal["pending", "decided", "set_aside"]
    seen: Outlook


def _list_waiting(place: Place, agent: str) -> Listing[Waiting]:
    """The waiting requests of an agent, oldest first."""
    found: list[Waiting] = []
    unreadable: list[UnreadableRow] = []
    after = None
    while True:
        page = place.store.pending(agent=agent, limit=_PAGE, after=after)
        found += page
        unreadable += page.unreadable
        if (after := page.next) is None:
            return Listing(found, unreadable)


def _look(place: Place, branch_id: str, answers: Mapping[str, Answer]) -> Outlook:
    try:
        return outlook(place.store, place.worker.spec, branch_id, answers)
    except (CheckpointError, StoreError) as error:  # one damaged run must not hide the others
        return Outlook(verdict="breaks", why=(f"its run cannot be read ({type(error).__name__})",))


def _judge_decided(place: Place, branch: Branch) -> Iterator[_Judged]:
    """The requests of a branch that were decided and wait for a worker, also where a worker has set them aside."""
    seen = _look(place, branch.id, {})
    status: Literal["decided", "set_aside"] = "decided"
    if set_aside.reason(place.store, branch) is not None:
        status = "set_aside"
    decided: list[tuple[str | None, str | None]]
    try:
        decided = [(each.approval.id, each.approval.tool_name) for each in not_carried_out(place.store, branch)]
    except (CheckpointError, StoreError):  # then its outlook says so
        decided = []
    for pending_id, tool in decided or [(None, None)]:
        yield _Judged(pending_id=pending_id, run_id=branch.run_id, tool=tool, status=status, seen=seen)


def _judge(place: Place, waiting: Listing[Waiting], decided: Sequence[Branch]) -> list[_Judged]:
    found = [
        _Judged(
            pending_id=each.approval.id,
            run_id=each.run_id,
            tool=each.approval.tool_name,
            status="pending",
            seen=_look(place, each.branch_id, {each.approval.id: Approve()}),
        )
        for each in waiting
    ]
    return found + [judged for branch in decided for judged in _judge_decided(place, branch)]


@command
def drift(
    screen: Screen,
    *,
    here: Here,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            help="Only of this agent, which the app is to be: other apps check the rest of the store.",
            metavar="NAME",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Say what becomes of waiting requests, and of decisions that wait for a worker, with this app.

    They go on, are asked for again with other arguments, or would be refused. Run it with the new code, before a deploy.
    Requests of other agents are an error unless --agent is given: the agent may have been renamed.
    """
    with open_place(None if json else screen, here) as place:
        name = agent or place.worker.spec.name
        with screen.reading(machine=json):
            waiting = _list_waiting(place, name)
            left = place.store.decided()
            found = _judge(place, waiting, [each for each in left if each.agent == name])
            others = _others(place, left, name) if agent is None else Counter[str]()
        breaks = bool(waiting.unreadable or others) or any(each.seen.verdict == "breaks" for each in found)
        if json:
            unchecked = {"unchecked": dict(sorted(others.items()))} if others else {}
            items = [_view(each) for each in found]
            screen.document({"items": items, **unchecked, **unreadable_view(waiting.unreadable)})
            return FAILED if breaks else DONE
        if found:
            screen.table(("PENDING", "TOOL", "STATUS", "WITH THIS APP", "WHY"), [_row(each) for each in found])
        elif not (waiting.unreadable or others):
            screen.say("Nothing waits for a decision, or for a worker.")
        say_unreadable(screen, waiting.unreadable)
        _complain_of(screen, others, name)
        return FAILED if breaks else DONE


def _others(place: Place, left: Sequence[Branch], name: str) -> Counter[str]:
    """How many requests of other agents wait for a decision or for a worker, by agent: an agent that was renamed is one of them."""
    agents = [*(row.agent for row in place.store.pending_rows()), *(branch.agent for branch in left)]
    return Counter(agent for agent in agents if agent != name)


def _complain_of(screen: Screen, others: Counter[str], name: str) -> None:
    if (count := others.total()) == 0:
        return
    requests, agents, are = ("request", "another agent", "is") if count == 1 else ("requests", "other agents", "are")
    screen.complain(
        f"{count} {requests} of {agents} ({', '.join(sorted(others))}) {are} not checked: was {name!r} renamed?"
        f" If other apps carry them out, give --agent {name}"
    )


def _view(judged: _Judged) -> dict[str, object]:
    return {
        "pending_id": judged.pending_id,
        "run_id": judged.run_id,
        "tool": judged.tool,
        "status": judged.status,
        "verdict": judged.seen.verdict,
        "why": list(judged.seen.why),
    }


def _row(judged: _Judged) -> tuple[str, ...]:
    return (
        judged.pending_id or judged.run_id,
        judged.tool or "-",
        judged.status.replace("_", " "),
        _TOLD[judged.seen.verdict],
        "; ".join(judged.seen.why) or "-",
    )

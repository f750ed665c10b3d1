"""The command that says, before a deploy, what becomes of the requests that wait."""

from __future__ import annotations

from typing import Final

from phronomy.cli.apps import Place, open_place, say_unreadable, unreadable_view
from phronomy.cli.options import Here, Json, OfAgent, command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, FAILED
from phronomy.errors import CheckpointError, StoreError, UnreadableRow
from phronomy.runs.finding.outlook import Outlook, outlook
from phronomy.stores import Waiting
from phronomy.stores.derived.listing import Listing

_PAGE: Final = 200
"""Requests that are read at a time."""

_TOLD: Final = {"breaks": "would break", "asked_again": "is asked again", "goes_on": "goes on"}


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


def _look(place: Place, waiting: Waiting) -> Outlook:
    try:
        return outlook(place.store, place.worker.spec, waiting)
    except (CheckpointError, StoreError) as error:  # one damaged run must not hide the others
        return Outlook(verdict="breaks", why=(f"its run cannot be read ({type(error).__name__})",))


@command
def drift(screen: Screen, *, here: Here, agent: OfAgent = None, json: Json = False) -> int:
    """Say what becomes of waiting requests with this app.

    An approval goes on, is asked for again with other arguments, or would be refused. Run it with the new code, before a deploy.
    """
    with open_place(None if json else screen, here) as place:
        with screen.reading(machine=json):
            waiting = _list_waiting(place, agent or place.worker.spec.name)
            found = [(each, _look(place, each)) for each in waiting]
        breaks = bool(waiting.unreadable) or any(seen.verdict == "breaks" for _, seen in found)
        if json:
            items = [_view(each, seen) for each, seen in found]
            screen.document({"items": items, **unreadable_view(waiting.unreadable)})
            return FAILED if breaks else DONE
        if found:
            screen.table(("PENDING", "TOOL", "AN APPROVAL", "WHY"), [_row(each, seen) for each, seen in found])
        elif not waiting.unreadable:
            screen.say("Nothing waits for a decision.")
        say_unreadable(screen, waiting.unreadable)
        return FAILED if breaks else DONE


def _view(waiting: Waiting, seen: Outlook) -> dict[str, object]:
    return {
        "pending_id": waiting.approval.id,
        "run_id": waiting.run_id,
        "tool": waiting.approval.tool_name,
        "verdict": seen.verdict,
        "why": list(seen.why),
    }


def _row(waiting: Waiting, seen: Outlook) -> tuple[str, ...]:
    return waiting.approval.id, waiting.approval.tool_name, _TOLD[seen.verdict], "; ".join(seen.why) or "-"

"""The command that prints what happened in a run, in order: `phronomy timeline`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from phronomy.cli.apps import find, open_place
from phronomy.cli.options import AnyId, Json, Limit, Where, WithIds, command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, TIME, WrongUsage, times_of
from phronomy.foundation.quoting import quoted_word
from phronomy.observability.timeline import timeline as read
from phronomy.observability.timeline_entries import TYPES, TimelineEntry


@command
def timeline(
    screen: Screen,
    id: AnyId,
    *,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only entries of this type; may be given several times.", metavar="TYPE"),
    ] = None,
    where: Where,
    limit: Limit = None,
    ids: WithIds = False,
    json: Json = False,
) -> int:
    """List what happened in a run, oldest first.

    Of a branch all, with what it goes on from; of a checkpoint what led to it. Nothing that was said is in it. Checkpoints
    without a label are left out without --ids. --limit keeps the newest; --json prints a line of JSON each.
    """
    for type in types or ():
        if type not in TYPES:
            raise WrongUsage(f"--type is one of {', '.join(TYPES)}; not {quoted_word(type)}")
    with open_place(None if json else screen, where) as place:
        with screen.reading(machine=json):
            meant = find(place.store, id)
            whole = read(place.store, meant.checkpoint, max_events=sys.maxsize)
        wanted = [each for each in whole if (each.type in types if types else ids or json or _says_something(each))]
        show(screen, wanted[-(limit or 0) :], machine=json, ids=ids)
    return DONE


def _says_something(entry: TimelineEntry) -> bool:
    """True if an entry is news to a person. Of a checkpoint only its label is: a run that waits or has ended is told apart."""
    return entry.type != "checkpoint" or "label" in entry.facts


def show(screen: Screen, entries: Sequence[TimelineEntry], *, machine: bool, ids: bool = False) -> None:
    """Print the entries of a timeline: as lines of JSON, or as a table. Without `ids` no column says the same in all rows."""
    if machine:
        for entry in entries:
            screen.line(entry.model_dump(mode="json"))
        return
    if not entries:
        screen.say("Nothing of that type has happened.")
        return
    several = len({entry.agent for entry in entries}) > 1
    columns: dict[str, Sequence[str]] = {
        "ID": [str(entry.id) for entry in entries] if ids else (),
        TIME: times_of([entry.at for entry in entries], whole=ids),
        "WHAT": [entry.type for entry in entries],
        "AGENT": [entry.agent or "-" for entry in entries] if ids or several else (),
        "PATH": [entry.path or "-" for entry in entries] if any(entry.path for entry in entries) else (),
        "DETAILS": [details(entry.facts, ids=ids) or "-" for entry in entries],
        "CHECKPOINT": [entry.checkpoint_id or "-" for entry in entries] if ids else (),
    }
    shown = {head: cells for head, cells in columns.items() if cells}
    screen.table([*shown], [*zip(*shown.values(), strict=True)])


def details(facts: Mapping[str, Any], *, ids: bool = True) -> str:
    """The facts of an entry in one line: what people look for, without what the other columns or --json have."""
    first = {name: facts[name] for name in _FIRST if name in facts}
    said = []
    for name, value in {**first, **facts}.items():
        if name in _UNSAID or value in (False, None, [], {}):
            continue
        text = str(value)
        if isinstance(value, dict):
            text = ", ".join(f"{key} {each}" for key, each in value.items())
        elif isinstance(value, list):
            text = ", ".join(map(str, value))
        said.append(name if value is True else text if name in _FIRST else f"{name} {text}")
    return ", ".join([*said, *([facts["pending_id"]] if ids and "pending_id" in facts else [])])


_FIRST = ("tool", "tools", "kind", "status", "point")
_UNSAID = (
    "metadata",
    "pending_id",
    "call_id",
    "digest",
    "requests",
    "input_tokens",
    "output_tokens",
    "pending_ids",
    "gate",
    "step",
)

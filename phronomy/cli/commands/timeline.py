"""The command that prints what happened in a run, in order: `phronomy timeline`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from phronomy.cli.apps import find, open_place
from phronomy.cli.options import AnyId, Json, Limit, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, WrongUsage, time_of
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
    json: Json = False,
) -> int:
    """List what happened in a run, oldest first.

    Of a branch all, with what it goes on from; of a checkpoint what led to it. Nothing that was said is in it. --limit
    keeps the newest; --json prints a line of JSON each.
    """
    for type in types or ():
        if type not in TYPES:
            raise WrongUsage(f"--type is one of {', '.join(TYPES)}; not {quoted_word(type)}")
    with open_place(None if json else screen, where) as place:
        with screen.reading(machine=json):
            meant = find(place.store, id)
            whole = read(place.store, meant.checkpoint, max_events=sys.maxsize)
        entries = [entry for entry in whole if not types or entry.type in types][-(limit or 0) :]
        show(screen, entries, machine=json)
    return DONE


def show(screen: Screen, entries: Sequence[TimelineEntry], *, machine: bool) -> None:
    """Print the entries of a timeline: as lines of JSON, or as a table."""
    if machine:
        for entry in entries:
            screen.line(entry.model_dump(mode="json"))
        return
    if not entries:
        screen.say("Nothing of that type has happened.")
        return
    heads = ("ID", "AT", "WHAT", "AGENT", "PATH", "DETAILS", "CHECKPOINT")
    rows = [
        (
            str(entry.id),
            time_of(entry.at),
            entry.type,
            entry.agent or "-",
            entry.path or "-",
            details(entry.facts) or "-",
            entry.checkpoint_id or "-",
        )
        for entry in entries
    ]
    shown = [at for at, head in enumerate(heads) if head != "PATH" or any(row[at] != "-" for row in rows)]
    screen.table([heads[at] for at in shown], [[row[at] for at in shown] for row in rows])


def details(facts: Mapping[str, Any]) -> str:
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
    return ", ".join([*said, *([facts["pending_id"]] if "pending_id" in facts else [])])


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

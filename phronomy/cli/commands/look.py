"""The commands that look at one run: what waits in it, how it came there, and how two places in it, or in any, differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from phronomy.cli.apps import Place, find, how_decided, open_place
from phronomy.cli.options import AnyId, Json, Reveal, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import Mask, checkpoint_view, diff_view, run_view, show_run
from phronomy.cli.words import DONE, WrongUsage, time_of
from phronomy.observability.drawings.drawing import tree_mermaid, tree_svg
from phronomy.records.diff import diff as compared


def _show(screen: Screen, place: Place, id: str, *, machine: bool, reveal: bool) -> int:
    """Shows the checkpoint of an id: what is pending there, and exactly what would run."""
    with screen.reading(machine=machine):
        meant = find(place.store, id)
    mask = Mask(place.agent, reveal=reveal)
    if machine:
        screen.document(run_view(meant, mask))
    else:
        show_run(screen, meant, mask, place.store)
    return DONE


def _history(screen: Screen, place: Place, id: str, *, machine: bool) -> int:
    """The checkpoints that lead to what an id means, oldest first; and how it was decided, if it is a pending id that was."""
    with screen.reading(machine=machine):
        meant = find(place.store, id)
        checkpoints = place.store.history(meant.checkpoint.id)
    if machine:
        screen.document([checkpoint_view(each) for each in checkpoints])
        return DONE
    rows = [
        (
            each.id,
            each.run_id,
            str(each.step),
            each.status,
            time_of(each.created_at),
            ", ".join(item.tool_name for item in each.pending) or "-",
            each.label or "-",
        )
        for each in checkpoints
    ]
    screen.table(("CHECKPOINT", "RUN", "STEP", "STATUS", "AT", "WAITS FOR", "LABEL"), rows)
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
    json: Json = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Draw all of its run, as a Mermaid flowchart.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Draw all of its run, as SVG.")] = False,
) -> int:
    """List the checkpoints that lead to a place, oldest first.

    Or draw the run that it is of, as a tree: with forks, what waits, and what was decided.
    """
    if json + mermaid + svg > 1:
        raise WrongUsage("--json, --mermaid and --svg exclude each other")
    with open_place(None if json or mermaid or svg else screen, where) as place:
        if mermaid or svg:
            return _draw(screen, place, id, tree_mermaid if mermaid else tree_svg)
        return _history(screen, place, id, machine=json)


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

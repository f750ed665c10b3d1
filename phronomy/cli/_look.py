"""The commands that look at one run: what waits in it, how it came there, and how two places in it, or in any, differ."""

from __future__ import annotations

from collections.abc import Callable

from phronomy.cli._apps import Place, found, how_decided
from phronomy.cli._screen import Screen
from phronomy.cli._views import Mask, checkpoint_view, diff_view, run_view, show_run
from phronomy.cli._words import DONE, time_of
from phronomy.diff import diff
from phronomy.stores.base import Store


def show(screen: Screen, place: Place, id: str, *, machine: bool, reveal: bool) -> int:
    """What an id means: what waits there, and exactly what would run."""
    with screen.reading(machine=machine):
        meant = found(place.store, id)
    mask = Mask(place.agent, reveal=reveal)
    if machine:
        screen.document(run_view(meant, mask))
    else:
        show_run(screen, meant, mask, place.store)
    return DONE


def history(screen: Screen, place: Place, id: str, *, machine: bool) -> int:
    """The checkpoints that lead to what an id means, oldest first; and how it was decided, if it is a pending id that was."""
    with screen.reading(machine=machine):
        meant = found(place.store, id)
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


def draw(screen: Screen, place: Place, id: str, drawing: Callable[[Store, str], str]) -> int:
    """The tree of the run that an id means, drawn, and nothing else."""
    with screen.reading():
        text = drawing(place.store, found(place.store, id).checkpoint.run_id)
    screen.verbatim(text)
    return DONE


def compare(screen: Screen, place: Place, before: str, after: str, *, machine: bool) -> int:
    """What is different at the second place, seen from the first; nothing that was said is shown."""
    with screen.reading(machine=machine):
        both = [found(place.store, id).checkpoint for id in (before, after)]
    difference = diff(*both)
    if machine:
        screen.document(diff_view(difference))
        return DONE
    heading, *details = difference.lines()
    screen.say(heading, style="bold")
    for line in details:
        screen.say(line)
    return DONE

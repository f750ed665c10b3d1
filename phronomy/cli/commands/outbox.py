"""The commands about messages to chat apps and webhooks that have failed: listing them, and having them tried again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Final

import typer

from phronomy.chat.outbox import Delayed, Undelivered, delayed, undelivered
from phronomy.chat.posts import Posts
from phronomy.cli.apps import open_place
from phronomy.cli.options import Json, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import moment
from phronomy.cli.words import DONE, WrongUsage, time_of

Channel = Annotated[str | None, typer.Option(help="Only of this channel, such as slack.", metavar="NAME")]
Requests = Annotated[list[str] | None, typer.Argument(help="The ids of requests.", metavar="ID")]
All = Annotated[bool, typer.Option("--all", help="All of them.")]

_HEADS: Final = ("REQUEST", "PLACE", "FAILED", "TRIES", "WHY")
_DELAYED: Final = ("REQUEST", "PLACE", "NEXT TRY", "TRIES", "WHY")


def list_failed(screen: Screen, where: Where, channel: str | None, *, machine: bool) -> int:
    """List what has failed for good, and what could not be sent yet. The exit status."""
    with open_place(None if machine else screen, where) as place, screen.reading(machine=machine):
        posts = Posts(place.store)
        found, late = undelivered(posts, channel), delayed(posts, channel)
    if machine:
        screen.document({"items": [*map(_view, found)], "delayed": [*map(_view_of_delayed, late)]})
        return DONE
    if found:
        screen.table(
            _HEADS, [(each.pending_id, each.at, time_of(each.failed_at), f"{each.tries:,}", each.why) for each in found]
        )
    else:
        screen.say("Nothing has failed for good.")
    if late:
        screen.say("These could not be sent yet, and are tried again:")
        screen.table(
            _DELAYED, [(each.pending_id, each.at, time_of(each.next_at), f"{each.tries:,}", each.why) for each in late]
        )
    return DONE


def retry_failed(
    screen: Screen, where: Where, ids: Sequence[str], channel: str | None, *, all: bool, machine: bool
) -> int:
    """Have what has failed be tried again at once: about these requests, or all. The exit status. Raises `WrongUsage`."""
    if bool(ids) == all:
        raise WrongUsage("name the ids of requests, or give --all")
    with open_place(None if machine else screen, where) as place:
        posts = Posts(place.store)
        with screen.reading(machine=machine):
            found, late = undelivered(posts, channel), delayed(posts, channel)
        known = {each.pending_id for each in found} | {each.pending_id for each in late}
        if unknown := [id for id in ids if id not in known]:
            raise WrongUsage(f"no message about {unknown[0]} has failed; nothing was changed")
        again = [each for each in found if (all or each.pending_id in ids) and posts.retry(each.key)]
        sooner = [each for each in late if (all or each.pending_id in ids) and posts.hasten(each.key)]
    count = len(again) + len(sooner)
    if machine:
        screen.document({"items": [*map(_view, again)], "delayed": [*map(_view_of_delayed, sooner)]})
    elif not count:
        screen.say("No message has failed, so none was put back.")
    else:
        many = f"{count:,} message{'' if count == 1 else 's'}"
        screen.say(f"{many} put back into the outbox. The process that sends it takes it from there.", style="bold")
    return DONE


def unless_named(listed: Callable[..., int]) -> Callable[..., int]:
    """A command that has commands of its own, and is run if none of them is named.

    An option before the name of one of these is refused: that command would not hear of it, and look into another store, say.
    """

    @wraps(listed)
    def begun(context: typer.Context, **given: object) -> int:
        if (named := context.invoked_subcommand) is None:
            return listed(context, **given)
        for parameter in context.command.params:
            source = context.get_parameter_source(parameter.name or "")
            if source is not None and source.name == "COMMANDLINE":
                raise WrongUsage(f"{parameter.opts[0]} stands before {named}: write it after {named}")
        return DONE

    return begun


def _view(found: Undelivered) -> dict[str, object]:
    return {
        "pending_id": found.pending_id,
        "place": found.at,
        "failed_at": moment(found.failed_at),
        "tries": found.tries,
        "why": found.why,
    }


def _view_of_delayed(found: Delayed) -> dict[str, object]:
    return {
        "pending_id": found.pending_id,
        "place": found.at,
        "next_at": moment(found.next_at),
        "tries": found.tries,
        "why": found.why,
    }


@unless_named
@command
def outbox(screen: Screen, *, channel: Channel = None, where: Where, json: Json = False) -> int:
    """List the messages to chat apps and webhooks that have failed for good, and those that are tried again."""
    return list_failed(screen, where, channel, machine=json)


@command
def retry(
    screen: Screen,
    ids: Requests = None,
    *,
    all: All = False,
    channel: Channel = None,
    where: Where,
    json: Json = False,
) -> int:
    """Have messages that have failed be tried again at once: those about some requests, or all."""
    return retry_failed(screen, where, ids or (), channel, all=all, machine=json)


SUBCOMMANDS: Final = {"retry": retry}
"""The commands of `phronomy outbox`."""

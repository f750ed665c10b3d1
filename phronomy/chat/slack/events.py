"""What of Slack's events is a message to the bot: a mention in a channel, and a direct message, that a person has just written.

Whatever comes from a bot, this one or another, is none: else two bots could talk with each other for ever. So are edits, files, people
who join, and all that has a `subtype`. https://docs.slack.dev/reference/events/app_mention,
https://docs.slack.dev/reference/events/message.im
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any, Final

from phronomy.foundation.dataclasses import dataclass

_ENTITY: Final = re.compile(r"<([^<>]*)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A message to the bot. `thread` is where it goes on; `written_in` is the thread that it was written in, empty if it begins one.

    `team` is the workspace of the person, if Slack says which. `is_shared` says that people of other workspaces are in the channel.
    """

    user: str
    team: str | None
    is_shared: bool
    channel: str
    thread: str
    written_in: str
    text: str = field(repr=False)


def spoken(payload: Any) -> Spoken | None:
    """The message in an event of the Events API; None for all other events. Raises `KeyError` and the like."""
    event = payload["event"]
    kind = event.get("type")
    if kind != "app_mention" and not (kind == "message" and event.get("channel_type") == "im"):
        return None
    if any(event.get(name) for name in ("subtype", "bot_id", "bot_profile", "edited", "hidden")) or "user" not in event:
        return None
    me = bot_of(payload)
    if event["user"] == me:
        return None
    written_in = event.get("thread_ts") or ""
    team = event.get("user_team") or event.get("team")
    return Spoken(
        user=event["user"],
        team=str(team) if team else None,
        is_shared=bool(payload.get("is_ext_shared_channel")),
        channel=event["channel"],
        thread=written_in or event["ts"],
        written_in=written_in,
        text=plain(str(event.get("text") or ""), me),
    )


def bot_of(payload: Any) -> str | None:
    """The id of the bot's own user."""
    for each in payload.get("authorizations") or ():
        if each.get("is_bot") and isinstance(each.get("user_id"), str):
            found: str = each["user_id"]
            return found
    return None


def plain(text: str, me: str | None) -> str:
    """A text of Slack as it was written: without the mention of the bot, with names and addresses in place of entities."""

    def written(found: re.Match[str]) -> str:
        what, _, label = found[1].partition("|")
        if what[:1] == "@":
            is_me = what[1:] == me or (me is None and not text[: found.start()].strip())
            return "" if is_me else f"@{label or what[1:]}"
        if what[:1] in ("#", "!"):
            return f"{'#' if what[0] == '#' else '@'}{(label or what[1:]).lstrip('#@')}"
        return label if label and what.partition(":")[0] == "mailto" else what

    said = _ENTITY.sub(written, text)
    return said.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()

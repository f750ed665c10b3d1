"""Cards and forms as messages and modals of Discord.

A message is a title as its content, embeds, and rows of buttons. Components of version 2 would be the other way. But all their texts
together have 4,000 characters, where embeds have 6,000; the content is then forbidden, so notifications say nothing; and a message
cannot go back. An escaped text may be twice as long. What then does not fit is counted, with a link to the inbox. Title, status, who
asked, and buttons always fit.

https://docs.discord.com/developers/resources/message#embed-object-embed-limits
https://docs.discord.com/developers/components/reference
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from phronomy.chat.channel import Card, Field, Form
from phronomy.chat.discord.markdown import escape, size, unescape
from phronomy.foundation.json_text import JsonDict, JsonError, JsonValue, parse

PREFIX: Final = "phronomy:"
"""What the custom ids of our buttons and forms begin with; the data follows, and then the message if it is another one."""
PRIVATE: Final = 64
"""The flag of a message that one person alone sees."""
LONGEST: Final = 2_000
"""Characters of the content of a message."""
NO_MENTIONS: Final[JsonDict] = {"parse": []}
"""Nobody is notified, whatever a text says. Without this, Discord notifies all who are mentioned."""

_DESCRIPTION: Final = 4_000
_TOTAL: Final = 5_800
_PART: Final = 2_500
"""Characters of an embed, of all embeds of a message, and of one line in them: a little below what Discord takes."""
_ROW: Final = 5
_URL: Final = 512
_ID: Final = 100
_LABEL: Final = 45
_HINT: Final = 100
_INPUT: Final = 4_000
_FIELDS: Final = 5
"""Buttons of a row; characters of an address, a custom id, a label of a form, a hint and an input; parts of a form."""

_COLOURS: Final = {"waits": 0xF0B232, "goes on": 0x5865F2, "over": 0x80848E}
_SIGNS: Final = {
    "waits": "\N{HOURGLASS WITH FLOWING SAND}",
    "goes on": "\N{BLACK RIGHT-POINTING TRIANGLE}",
    "over": "\N{BLACK SQUARE}",
}
_STYLES: Final = {"approve": 3}
"""Green for approval, grey for all others: a red button draws the eye, and so the finger."""
_HOST: Final = re.compile(r"https?://[^/?#\s]*\.[^/?#\s]")
_WRITTEN: Final = "What you wrote"
"""The title of the embed that keeps what somebody wrote into a form with errors, for when they open it again."""


def message_of(card: Card) -> JsonDict:
    """The content, the embeds and the buttons of a message."""
    parts = _parts(card)
    if any(f"**{escape(line.name)}:** {escape(line.value)}" not in parts for line in card.lines):
        card = card.without_approval()
    rows: list[JsonValue] = [*_rows(card)]
    embeds: list[JsonValue] = [
        {"description": text, "color": _COLOURS[card.state]} for text in _packed(parts, _DESCRIPTION)
    ]
    title = f"**{_told(card.title, card.link)}**"
    return {
        "content": _with_turn(title, card),
        "embeds": embeds,
        "components": rows,
        "allowed_mentions": _allowed(card),
    }


def reply_of(card: Card, ref: str, start: str) -> JsonDict:
    """A message below another one, which says how it stands."""
    channel, _, message = ref.partition("/")
    title = escape(f"{start}: {card.title}")
    whole = f"{title}{escape(': ')}{_dated(card, card.status)}"
    text = whole if size(whole) <= LONGEST else title if size(title) <= LONGEST else escape(start)
    reference: JsonDict = {"channel_id": channel, "message_id": message, "fail_if_not_exists": False}
    return {"content": _with_turn(text, card), "message_reference": reference, "allowed_mentions": _allowed(card)}


def _with_turn(text: str, card: Card) -> str:
    """The content of a message, with whose turn it is as mentions: these count in the content alone."""
    turn = f"\n**Your turn:** {', '.join(f'<@{each.id}>' for each in card.mentions)}" if card.mentions else ""
    return text + turn if size(text) + size(turn) <= LONGEST else turn.strip()


def _allowed(card: Card) -> JsonDict:
    """Whom a message may notify: the people whose turn it is, and never a role or everybody."""
    return {**NO_MENTIONS, "users": [each.id for each in card.mentions]} if card.mentions else NO_MENTIONS


def private_of(text: str) -> JsonDict:
    """A message that one person alone sees."""
    return {
        "content": _told(text, None),
        "embeds": [],
        "components": [],
        "flags": PRIVATE,
        "allowed_mentions": NO_MENTIONS,
    }


def quote_of(text: str) -> JsonDict:
    """A message that shows what somebody has asked for with a command: Discord shows the command alone."""
    quoted = "\n".join(f"> {escape(line)}" for line in text.splitlines()) or "> (nothing)"
    shown = quoted if size(quoted) <= LONGEST else f"> {len(text):,} characters"
    return {"content": shown, "flags": 4, "allowed_mentions": NO_MENTIONS}  # 4: no previews


def errors_of(data: str, ref: str | None, errors: Mapping[str, str], values: Mapping[str, str]) -> JsonDict:
    """A message that says what is wrong with a form, keeps what was written, and opens the form again."""
    wrong = "\n".join(f"**{escape(_shown_name(name))}:** {_told(text, None)}" for name, text in errors.items())
    embeds: list[JsonValue] = [{"title": "This is to be mended", "description": wrong}]
    written = escape(json.dumps(dict(values), ensure_ascii=False))
    if size(written) <= _DESCRIPTION and size(wrong) + size(written) <= _TOTAL:
        embeds.append({"title": _WRITTEN, "description": written})
    again: JsonDict = {"type": 2, "style": 1, "label": "Open the form again", "custom_id": custom_id(data, ref)}
    return {
        "content": "Nothing was decided\\.",
        "embeds": embeds,
        "components": [{"type": 1, "components": [again]}],
        "flags": PRIVATE,
        "allowed_mentions": NO_MENTIONS,
    }


def written_in(message: Any) -> dict[str, str]:
    """What somebody wrote into a form, as the message of `errors_of` keeps it; nothing if it does not."""
    try:
        for embed in message["embeds"]:
            if embed.get("title") == _WRITTEN:
                found = parse(unescape(embed["description"]))
                assert isinstance(found, dict)
                return {name: value for name, value in found.items() if isinstance(value, str)}
    except (JsonError, KeyError, TypeError, AttributeError, AssertionError):
        pass
    return {}


def modal_of(form: Form, ref: str | None, written: Mapping[str, str]) -> JsonDict | None:
    """A form as a modal, with what was written before; None if it does not fit."""
    if len(form.fields) > _FIELDS or size(form.title) > _LABEL:
        return None
    parts: list[JsonValue] = []
    # What is asked is in the message that was clicked, too: it is left out where there is no room.
    if form.intro and len(form.fields) < _FIELDS and size(intro := escape(form.intro)) <= _DESCRIPTION:
        parts.append({"type": 10, "content": intro})
    for field in form.fields:
        value = written.get(field.name, field.value)
        if size(field.label) > _LABEL or not 0 < size(field.name) <= _ID or not _is_sendable(value):
            return None
        label: JsonDict = {"type": 18, "label": field.label, "component": _input(field, value)}
        if field.hint:
            label["description"] = field.hint if size(field.hint) <= _HINT else field.hint[: _HINT // 2 - 3] + "..."
        parts.append(label)
    return {"custom_id": custom_id(form.data, ref), "title": form.title, "components": parts}


def values_in(components: Any) -> dict[str, str]:
    """The texts of the fields of a modal that was submitted: in labels, or in rows as they were before."""
    values: dict[str, str] = {}
    for part in components:
        inner = [part["component"]] if "component" in part else part.get("components", [])
        for each in inner:
            chosen = each.get("values")
            value = chosen[0] if isinstance(chosen, list) and chosen else each.get("value")
            values[str(each["custom_id"])] = value if isinstance(value, str) else ""
    return values


def custom_id(data: str, ref: str | None) -> str:
    """The id of a button or a form. It names the message that it is about, if that is not the one that it stands in."""
    return f"{PREFIX}{data}/{ref}" if ref else f"{PREFIX}{data}"


def _rows(card: Card) -> Iterator[JsonDict]:
    buttons: list[JsonValue] = [
        {"type": 2, "style": _STYLES.get(each.action, 2), "label": each.label, "custom_id": custom_id(each.data, None)}
        for each in card.buttons
    ]
    if card.link is not None and _fits_button(card.link):
        buttons.append({"type": 2, "style": 5, "label": "Open in the inbox", "url": card.link})
    for start in range(0, len(buttons), _ROW):
        yield {"type": 1, "components": buttons[start : start + _ROW]}


def _parts(card: Card) -> list[str]:
    """The lines of a message: where it stands first, and who asked for it last. In between is as much as fits."""
    status = f"{_SIGNS[card.state]} **{_dated(card, card.status)}**"
    if card.link is not None and not _fits_button(card.link):
        status += f"\nInbox: {_told(card.link, None)}"
    middle = [f"**{_told(line.name, card.link)}:** {_told(line.value, card.link)}" for line in card.lines]
    middle += [f"-# {_told(note, card.link)}" for note in card.notes[:-1]]
    last = [f"-# {_dated(card, note)}" for note in card.notes[-1:]]
    if sum(size(part) + 1 for part in (status, *middle, *last)) <= _TOTAL:
        return [status, *middle, *last]
    room = _TOTAL - sum(size(part) + 1 for part in (status, *last)) - 100
    kept: list[str] = []
    for part in middle:
        room -= size(part) + 1
        if room < 0:
            break
        kept.append(part)
    left = f"**{len(middle) - len(kept)} more do not fit into a message of Discord, {_elsewhere(card.link)}**"
    return [status, *kept, left, *last]


def _fits_button(link: str) -> bool:
    """Whether Discord takes an address for a button: it may refuse the whole message for a host without a dot, such as localhost."""
    return size(link) <= _URL and _HOST.match(link) is not None


def _packed(parts: list[str], most: int) -> Iterator[str]:
    """The lines, as few texts as hold them."""
    text = ""
    for part in parts:
        if text and size(text) + 1 + size(part) > most:
            yield text
            text = part
        else:
            text = f"{text}\n{part}" if text else part
    yield text


def _told(text: str, link: str | None) -> str:
    """The text escaped; its size if it is too long."""
    found = escape(text)
    if size(found) <= min(_PART, LONGEST - 10):
        return found
    return f"{len(text):,} characters, {_elsewhere(link)}"


def _dated(card: Card, text: str) -> str:
    """As `_told`, with each time as Discord shows it to each person in their own zone."""
    pieces = card.pieces(text)
    if all(isinstance(each, str) for each in pieces):
        return _told(text, card.link)
    found = "".join(escape(each) if isinstance(each, str) else f"<t:{int(each.timestamp())}:f>" for each in pieces)
    return found if size(found) <= _PART else _told(text, card.link)


def _elsewhere(link: str | None) -> str:
    return "see the inbox" if link else "see what the command phronomy show prints"


def _shown_name(name: str) -> str:
    """The name of a field for people: without what says that it is an argument."""
    return name.partition(":")[2] or name


def _input(field: Field, value: str) -> JsonDict:
    if field.kind == "choice":
        options: list[JsonValue] = [
            {"label": each, "value": each, "default": each == value} for each in field.choices[:25]
        ]
        return {"type": 3, "custom_id": field.name, "options": options, "required": field.required}
    found: JsonDict = {
        "type": 4,
        "custom_id": field.name,
        "style": 2 if field.kind == "lines" or "\n" in value else 1,
        "required": field.required,
        "max_length": _INPUT,
    }
    return {**found, "value": value} if value else found


def _is_sendable(value: str) -> bool:
    """Whether a value comes back as it is sent."""
    return size(value) <= _INPUT and not any("\ud800" <= char <= "\udfff" for char in value)

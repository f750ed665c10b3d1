"""Cards, prompts and texts in the HTML of Telegram. https://core.telegram.org/bots/api#html-style

In most text Telegram finds mentions, commands, hashtags and links by itself, and acts on them. In `<code>` and `<pre>` it does not, so
all that users and models have written stands there. A message has 4,096 characters, counted as UTF-16 does, and 100 entities: beyond
these Telegram ignores markup, so the lines of a card are one `<pre>` and not a `<code>` each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from phronomy.chat.channel import Card, Form
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, JsonValue

LONGEST: Final = 4_096
ALERT: Final = 200
"""Characters of a message, and of an alert."""

_SIGNS: Final = {
    "waits": "\N{HOURGLASS WITH FLOWING SAND}",
    "goes on": "\N{BLACK RIGHT-POINTING TRIANGLE}",
    "over": "\N{BLACK SQUARE}",
}
_STATUS: Final = 1_200
_LAST: Final = 800
_PROMPT: Final = 1_000
_MOST_ENTITIES: Final = 90
_DATA: Final = 45
_CODE: Final = re.compile(r"(?s).*\nForm ([a-z]{1,40}): ([A-Za-z0-9_-]{45})")
_LIVE: Final = re.compile(r"\S*(?:[@/#$]|[.\u3002\uff0e\uff61](?=[^\W\d])|\d\.\d+\.\d)\S*")
"""A word in which Telegram may find a mention, a command, a hashtag or a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as `sendMessage` and `editMessageText` take it: HTML, and what stands below it."""

    html: str
    markup: JsonDict

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the method."""
        return {
            "text": self.html,
            "parse_mode": "HTML",
            "link_preview_options": {"is_disabled": True},
            "reply_markup": self.markup or None,
        }


def size(text: str) -> int:
    """The characters of a text as Telegram counts them: units of UTF-16."""
    return len(text) + sum(char > "\uffff" for char in text)


def escape(text: str) -> str:
    """Text for where Telegram reads HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def code(text: str) -> str:
    """Text in which Telegram finds nothing."""
    return f"<code>{escape(text)}</code>"


def message_of(card: Card, *, plain_link: bool = False) -> Message:
    """A card. What does not fit into a message is counted, and read in the inbox; buttons are there in any case.

    The link is a button, unless Telegram takes none for this address: then, or with `plain_link`, it stands in the text.
    """
    opens = card.link is not None and not plain_link and takes_url(card.link)
    head = f"{code(card.title)}\n{_SIGNS[card.state]} {code(fitted(card.status, _STATUS))}"
    turn = sum(size(each.name) + 2 for each in card.mentions) + 20 if card.mentions else 0
    # The last note says who asked, when, and the digest, so it goes first.
    last = [fitted(note, _LAST) for note in card.notes[-1:]]
    ends = [*last, *([fitted(card.link, _LAST)] if card.link is not None and not opens else [])]
    lines = [f"{line.name}: {line.value}" for line in card.lines]
    room = LONGEST - size(card.title) - _STATUS - sum(size(each) + 1 for each in ends) - 160 - turn
    shown, room = _first(lines, room)
    notes, room = _first(card.notes[:-1], room) if len(shown) == len(lines) else ([], room)
    parts = [head, *_turn(card)]
    if shown:
        parts.append(f"<pre>{escape(chr(10).join(shown))}</pre>")
    parts += map(code, notes)
    if len(shown) < len(lines):
        card = card.without_approval()
    missing = len(lines) - len(shown) + len(card.notes[:-1]) - len(notes)
    if missing:
        where = "Open the request in the inbox" if card.link is not None else "See <code>phronomy show</code>"
        parts.append(f"<b>{missing} more, which do not fit into a message. {where}.</b>")
    parts += map(code, ends)
    return Message(html="\n".join(parts), markup={"inline_keyboard": [*_rows(card, opens=opens)]})


def reminder_of(card: Card) -> Message:
    """A reminder."""
    said = plain(
        f"Still waiting: {card.text}" if not card.mentions else fitted(f"Still waiting: {card.text}", LONGEST // 2)
    )
    return replace(said, html="\n".join([said.html, *_turn(card)]))


def _turn(card: Card) -> Iterator[str]:
    """Whose turn it is, as mentions by number: Telegram tells these people, if they are in the chat."""
    if card.mentions:
        found = (f'<a href="tg://user?id={each.id}">{escape(each.name)}</a>' for each in card.mentions)
        yield f"<b>Your turn:</b> {', '.join(found)}"


def plain(text: str) -> Message:
    """A text of at most 4,096 characters, as it is."""
    return Message(html=code(fitted(text, LONGEST)), markup={})


def prompt_of(form: Form, *, to: int | None, wrong: Mapping[str, str] | None = None) -> Message:
    """A prompt that asks for a reply; `to` is the person whom it asks, where others read it too."""
    [field] = form.fields
    head = f"{escape(form.title)}: {code(fitted(form.intro, _PROMPT))}" if form.intro else escape(form.title)
    told = [code(fitted(each, _PROMPT)) for each in (wrong or {}).values()]
    who = f'<a href="tg://user?id={to}">You</a>: reply' if to is not None else "Reply"
    ask = f"{who} to this message with a text: {escape(field.label)}."
    # The reply brings this message back, so nothing has to be remembered.
    text = "\n".join([head, *told, ask, f"Form {field.name}: {code(form.data)}"])
    return Message(
        html=text,
        markup={"force_reply": True, "selective": to is not None, "input_field_placeholder": field.label[:64]},
    )


def form_in(message: Mapping[str, Any]) -> tuple[str, str] | None:
    """The name of the field and the data that a prompt has carried; None for another message.

    Both stand at the very end, and the data is an entity by itself: no text of a card or of a model can look like that.
    """
    text, entities = message.get("text"), message.get("entities")
    if not isinstance(text, str) or not isinstance(entities, list):
        return None
    found = _CODE.fullmatch(text)
    end = size(text)
    marked = any(
        isinstance(each, dict)
        and each.get("type") == "code"
        and each.get("length") == _DATA
        and each.get("offset") == end - _DATA
        for each in entities
    )
    return (found[1], found[2]) if found is not None and marked else None


def alert_of(notice: str) -> str:
    """A notice as an alert. What does not fit is said to be missing, and where it is."""
    if size(notice) <= ALERT:
        return notice
    tail = "... More: see the request in the inbox, or `phronomy show`."
    return _cut(notice, ALERT - size(tail)) + tail


def parts_of(text: str) -> Iterator[str]:
    """A text in messages of at most 4,096 characters, cut at the end of a line or a word where there is one."""
    while size(text) > LONGEST:
        first = _cut(text, LONGEST)
        for mark in ("\n", " "):
            at = first.rfind(mark) + 1
            if at > LONGEST // 2:
                first = first[:at]
                break
        yield first
        text = text[len(first) :]
    yield text


def defused(text: str) -> str:
    """A text as it is, but for the words that Telegram would act on: these stand in `<code>`."""
    if sum(1 for _ in _LIVE.finditer(text)) > _MOST_ENTITIES:
        return f"<pre>{escape(text)}</pre>"
    parts, end = list[str](), 0
    for word in _LIVE.finditer(text):
        parts += [escape(text[end : word.start()]), code(word[0])]
        end = word.end()
    return "".join([*parts, escape(text[end:])])


def fitted(text: str, most: int) -> str:
    """The text, or its beginning with how long it is in all."""
    if size(text) <= most:
        return text
    tail = f"... ({len(text):,} characters in all)"
    return _cut(text, most - size(tail)) + tail


def takes_url(url: str) -> bool:
    """Whether Telegram takes a button for this address: it refuses those whose host has no dot, such as `localhost`."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and ("." in host or ":" in host) and url.isascii() and len(url) <= 1_000


def _cut(text: str, most: int) -> str:
    first = text[: max(most, 0)]
    while size(first) > most:
        first = first[: -max(1, (size(first) - most) // 2)]
    return first


def _first(texts: Sequence[str], room: int) -> tuple[list[str], int]:
    """The first of some texts, as many as fit; and how much room is left."""
    found: list[str] = []
    for text in texts:
        if size(text) + 1 > room:
            break
        room -= size(text) + 1
        found.append(text)
    return found, room


def _rows(card: Card, *, opens: bool) -> Iterator[list[JsonValue]]:
    buttons: list[JsonValue] = [{"text": each.label, "callback_data": each.data} for each in card.buttons]
    for at in range(0, len(buttons), 2):
        yield buttons[at : at + 2]
    if opens:
        yield [{"text": "Open in the inbox", "url": card.link}]

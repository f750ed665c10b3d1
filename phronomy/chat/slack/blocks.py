"""Cards and forms as Block Kit.

What users and models have written stands in `rich_text` and `plain_text`, where Slack reads no markup, no mentions and no links. Slack
reads markup in the text of notifications alone. There `&`, `<` and `>` are escaped, and mentions and links need a `<`.
https://docs.slack.dev/reference/block-kit, https://docs.slack.dev/messaging/formatting-message-text
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from phronomy.chat.channel import Button, Card, Field, Form, moment
from phronomy.foundation.json_text import JsonDict

PREFIX: Final = "phronomy:"
"""What the ids of our buttons and forms begin with."""

_WHEN: Final = "{date_short} {time}"
"""How Slack shows a time: https://docs.slack.dev/messaging/formatting-message-text#date-formatting"""
_NOTIFIED: Final = 2_900

_SIGNS: Final = {
    "waits": "\N{HOURGLASS WITH FLOWING SAND}",
    "goes on": "\N{BLACK RIGHT-POINTING TRIANGLE}",
    "over": "\N{BLACK SQUARE}",
}


def escape(text: str) -> str:
    """Text for where Slack reads markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def message_of(card: Card) -> dict[str, Any]:
    """The text and the blocks of a message."""
    return {"text": _notified(card.text, card), "blocks": [*_blocks(card)]}


def reminder_of(card: Card) -> dict[str, Any]:
    """The text and the blocks of a reminder."""
    said = f"Still waiting: {card.title}: "
    return {
        "text": _notified(f"Still waiting: {card.text}", card),
        "blocks": [
            _rich("reminder", [_text(said), *_timed(card, card.status)]),
            *([_rich("turn", _turn(card))] if card.mentions else []),
        ],
    }


def _notified(text: str, card: Card) -> str:
    """A text for notifications, with each time as Slack shows it to each person. Nothing is cut in the middle of a time."""
    found, most = "", _NOTIFIED
    for each in card.pieces(text):
        part = escape(each) if isinstance(each, str) else f"<!date^{_seconds(each)}^{_WHEN}|{moment(each)}>"
        if len(part) > most:
            found += part[:most] if isinstance(each, str) else ""
            break
        found, most = found + part, most - len(part)
    return " ".join([found, *(f"<@{each.id}>" for each in card.mentions)])


def _turn(card: Card) -> Iterator[JsonDict]:
    """Whose turn it is, as mentions: Slack tells these people."""
    for number, each in enumerate(card.mentions):
        yield _text(", " if number else "Your turn: ", bold=not number)
        yield {"type": "user", "user_id": each.id}


def _timed(card: Card, text: str, *, bold: bool = False) -> Iterator[JsonDict]:
    """A text of ours, with each time as an element that shows it in the zone of each person."""
    for each in card.pieces(text):
        if isinstance(each, str):
            yield _text(each, bold=bold)
        else:
            yield {"type": "date", "timestamp": _seconds(each), "format": _WHEN, "fallback": moment(each)}


def _seconds(at: datetime) -> int:
    return int(at.timestamp())


def text_of(text: str) -> dict[str, Any]:
    """Plain text as a message."""
    return {"text": escape(text[:2_900]), "blocks": [_rich("answer", [_text(text)])]}


def view_of(form: Form, metadata: Mapping[str, str]) -> JsonDict:
    """A form as a modal."""
    blocks: list[Any] = [_rich("intro", [_text(form.intro)])] if form.intro else []
    return {
        "type": "modal",
        "callback_id": f"{PREFIX}form",
        "private_metadata": json.dumps(metadata),
        "title": _plain(form.title),
        "submit": _plain(form.submit),
        "close": _plain("Cancel"),
        "blocks": [*blocks, *(_input(each) for each in form.fields)],
    }


def notice_view(notice: str) -> JsonDict:
    """A modal that says something, and has nothing to submit."""
    blocks: list[Any] = [_rich("notice", [_text(notice)])]
    return {"type": "modal", "title": _plain("Approval"), "close": _plain("Close"), "blocks": blocks}


def values_in(state: Any) -> dict[str, str]:
    """The texts of the fields of a modal that was submitted; a field without a value is empty."""
    values: dict[str, str] = {}
    for name, block in state["values"].items():
        for element in block.values():
            option = element.get("selected_option")
            value = option["value"] if isinstance(option, dict) else element.get("value")
            values[str(name)] = value if isinstance(value, str) else ""
    return values


def _blocks(card: Card) -> Iterator[JsonDict]:
    mark = f"{PREFIX}{card.mark[:40]}"
    # A changed proposal has blocks of other ids: a client may keep what somebody has typed into one of the same.
    yield {"type": "header", "block_id": f"{mark}:title", "text": _plain(card.title)}
    yield _rich(f"{mark}:status", [_text(f"{_SIGNS[card.state]} "), *_timed(card, card.status, bold=True)])
    if card.mentions:
        yield _rich(f"{mark}:turn", _turn(card))
    if card.lines:
        parts: list[JsonDict] = []
        for number, line in enumerate(card.lines):
            parts += [_text(("\n" if number else "") + f"{line.name}: ", bold=True), _text(line.value, code=True)]
        yield _rich(f"{mark}:lines", parts)
    for number, note in enumerate(card.notes, start=1):
        said = _timed(card, note) if number == len(card.notes) else [_text(note)]
        yield _rich(f"{mark}:note{number}", said)
    buttons: list[Any] = [_button(each) for each in card.buttons]
    if card.link is not None:
        buttons.append(
            {"type": "button", "action_id": f"{PREFIX}open", "text": _plain("Open in the inbox"), "url": card.link}
        )
    if buttons:
        yield {"type": "actions", "block_id": f"{mark}:actions", "elements": buttons}


def _button(button: Button) -> JsonDict:
    found: JsonDict = {
        "type": "button",
        "action_id": f"{PREFIX}{button.action}",
        "text": _plain(button.label),
        "value": button.data,
    }
    return {**found, "style": "primary"} if button.action == "approve" else found


def _input(field: Field) -> JsonDict:
    element: JsonDict
    if field.kind == "choice":
        options: list[Any] = [{"text": _plain(each), "value": each} for each in field.choices]
        element = {"type": "static_select", "action_id": "value", "options": options}
        element |= {"initial_option": {"text": _plain(field.value), "value": field.value}} if field.value else {}
    else:
        element = {"type": "plain_text_input", "action_id": "value", "multiline": field.kind == "lines"}
        element |= {"initial_value": field.value} if field.value else {}
    found: JsonDict = {
        "type": "input",
        "block_id": field.name,
        "optional": not field.required,
        "label": _plain(field.label),
        "element": element,
    }
    return {**found, "hint": _plain(field.hint)} if field.hint else found


def _plain(text: str) -> JsonDict:
    return {"type": "plain_text", "text": text, "emoji": False}


def _text(text: str, *, bold: bool = False, code: bool = False) -> JsonDict:
    style: JsonDict = {name: True for name, is_set in (("bold", bold), ("code", code)) if is_set}
    found: JsonDict = {"type": "text", "text": text}
    return {**found, "style": style} if style else found


def _rich(block_id: str, elements: Iterable[JsonDict]) -> JsonDict:
    section: JsonDict = {"type": "rich_text_section", "elements": list(elements)}
    return {"type": "rich_text", "block_id": block_id, "elements": [section]}

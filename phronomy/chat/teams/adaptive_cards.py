"""Cards and forms as Adaptive Cards 1.4, and the answers that hold them.

What users and models have written stands in runs of text, where Teams reads no Markdown, no mentions and no links: `TextBlock`, which
reads Markdown, is not used. A mention needs an entity beside the card, and we send none.
https://adaptivecards.microsoft.com, https://learn.microsoft.com/en-us/microsoftteams/platform/task-modules-and-cards/cards/cards-format
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from phronomy.chat.channel import FORMS, Button, Card, Field, Form
from phronomy.chat.http import Response, json_response
from phronomy.foundation.json_text import JsonDict, JsonValue, list_of, object_of, text_of

DATA: Final = "phronomy"
"""The name under which our buttons carry their data."""

FORM: Final = "phronomy-form"
"""The name under which a form carries what it is made of, so that it can be shown again."""

VIEW: Final = "phronomy:view"
"""The verb with which clients ask for a message as one person is to see it."""

CARD: Final = "application/vnd.microsoft.card.adaptive"
_MESSAGE: Final = "application/vnd.microsoft.activity.message"
_ERROR: Final = "application/vnd.microsoft.error"

LARGEST: Final = 40_000
"""Bytes of the largest message that we send. Teams documents 100 KB as UTF-16, and people report refusals from 70 KB."""

_NOTE: Final = "This is too long for Teams, and is not shown here in full"
_SIGNS: Final = {
    "waits": "\N{HOURGLASS WITH FLOWING SAND}",
    "goes on": "\N{BLACK RIGHT-POINTING TRIANGLE}",
    "over": "\N{BLACK SQUARE}",
}

# Messages


def message_of(card: Card) -> JsonDict:
    """The activity that is posted: the card with its buttons for all, and what asks for the card of each person."""
    data = card.buttons[0].data if card.buttons else None
    made = card_of(card, data)
    if len(json.dumps(made, ensure_ascii=False).encode()) > LARGEST:
        return short_message_of(card)
    return _activity(made, card)


def short_message_of(card: Card) -> JsonDict:
    """The same without what can be long: where the whole does not fit."""
    if card.lines:
        card = card.without_approval()
    data = card.buttons[0].data if card.buttons else None
    body = [
        _runs(_run(card.title, weight="Bolder")),
        _runs(_run(f"{_SIGNS[card.state]} {card.status}"[:1_000])),
        *_turn(card),
        *_long(card),
    ]
    return _activity(_mentioning(_card([*body, *_actions(card)], refresh=data), card), card)


def card_of(card: Card, refresh: str | None) -> JsonDict:
    """The card of a message. `refresh` is the data with which clients ask for it anew; None if that changes nothing any more."""
    status = (_run(f"{_SIGNS[card.state]} "), _run(card.status, weight="Bolder"))
    body = [_runs(_run(card.title, size="Large", weight="Bolder")), _runs(*status)]
    body += _turn(card)
    body += [
        _runs(_run(f"{line.name}: ", weight="Bolder"), _run(line.value, fontType="Monospace")) for line in card.lines
    ]
    body += [_runs(_run(note, isSubtle=True)) for note in card.notes]
    return _mentioning(_card([*body, *_actions(card)], refresh=refresh), card)


def reminder_of(card: Card) -> JsonDict:
    """The activity of a reminder: a text, or a card where it mentions people."""
    said = f"Still waiting: {card.text}"
    if not card.mentions:
        return text_message(said)
    made = _card([_runs(_run(said)), *_turn(card)])
    return _activity(_mentioning(made, card), card)


def _turn(card: Card) -> Iterator[JsonDict]:
    """Whose turn it is. A mention needs a `TextBlock`, which reads Markdown: the names in it have none."""
    if card.mentions:
        text = f"Your turn: {', '.join(text for text, _ in _marks(card))}"
        yield {"type": "TextBlock", "text": text, "wrap": True}


def _marks(card: Card) -> Iterator[tuple[str, str]]:
    """The text of each mention, and its name. A text stands for one entity, so no two are the same."""
    for number, each in enumerate(card.mentions, start=1):
        name = " ".join("".join(char if char.isalnum() else " " for char in each.name).split())
        is_first = name and all(name != other.name for other in card.mentions[: number - 1])
        name = name if is_first else f"{name} {number}".strip()
        yield f"<at>{name}</at>", name


def _mentioning(made: JsonDict, card: Card) -> JsonDict:
    """A card with the entities of its mentions: these people are told, and no others."""
    if not card.mentions:
        return made
    entities: list[JsonValue] = [
        {"type": "mention", "text": text, "mentioned": {"id": each.id, "name": name}}
        for each, (text, name) in zip(card.mentions, _marks(card), strict=True)
    ]
    return {**made, "msteams": {**object_of(made["msteams"]), "entities": entities}}


def text_message(text: str) -> JsonDict:
    """The activity of a plain text."""
    return {"type": "message", "text": text, "textFormat": "plain"}


# Answers


def shown(card: JsonDict) -> Response:
    """The answer to a click: a card in place of the message, for this person alone."""
    return json_response({"statusCode": 200, "type": CARD, "value": card})


def told(text: str) -> Response:
    """The answer to a click: a text for this person alone."""
    return json_response({"statusCode": 200, "type": _MESSAGE, "value": text})


def not_known() -> Response:
    """The answer to a click that means nothing here: the message stays as it is."""
    wrong = {"code": "NotKnown", "message": "This message is not known here, or not any more."}
    return json_response({"statusCode": 400, "type": _ERROR, "value": wrong})


def dialog_told(text: str) -> Response:
    """The answer to a dialog: a text in its place."""
    return json_response({"task": {"type": "message", "value": text}})


def dialog_of(form: Form, errors: Mapping[str, str]) -> Response:
    """The answer that opens a dialog with a form, or shows it again with errors, by the names of fields."""
    body = [_runs(_run(form.intro))] if form.intro else []
    for each in form.fields:
        body += _input(each, errors.get(each.name))
    body += [
        _runs(_run(text, color="Attention"))
        for name, text in errors.items()
        if all(name != each.name for each in form.fields)
    ]
    submit = {"type": "Action.Submit", "title": form.submit, "data": {DATA: form.data, FORM: _definition(form)}}
    info = {
        "title": form.title,
        "width": "medium",
        "height": "large" if len(form.fields) > 3 else "medium",
        "card": {"contentType": CARD, "content": {**_card(body), "actions": [submit]}},
    }
    return json_response({"task": {"type": "continue", "value": info}})


def form_in(data: JsonDict) -> Form | None:
    """The form that a dialog was made of, with what is in its fields now; None if there is none in the data of a dialog."""
    found = object_of(data.get(FORM))
    fields = tuple(_field_in(object_of(each), data) for each in list_of(found.get("fields")))
    if not fields or not text_of(found.get("title")):
        return None
    title, submit, intro = (text_of(found.get(name)) for name in ("title", "submit", "intro"))
    return Form(title=title, submit=submit or "Send", intro=intro, fields=fields, data=text_of(data.get(DATA)))


# Pieces


def _activity(card: JsonDict, said: Card) -> JsonDict:
    attachment: JsonDict = {"contentType": CARD, "content": card}
    return {"type": "message", "summary": said.text[:300], "attachments": [attachment]}


def _card(body: list[JsonDict], *, refresh: str | None = None) -> JsonDict:
    made: JsonDict = {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.4",
        "msteams": {"width": "full"},
        "body": list(body),
    }
    if refresh is not None:
        # No userIds: all who are in a chat of at most 60 people. We know people by other ids than Teams wants here.
        made["refresh"] = {
            "action": {"type": "Action.Execute", "title": "Refresh", "verb": VIEW, "data": {DATA: refresh}}
        }
    return made


def _actions(card: Card) -> Iterator[JsonDict]:
    # Two sets: a set shows six buttons, and hides others behind a menu.
    if card.buttons:
        yield {"type": "ActionSet", "actions": [_button(each) for each in card.buttons]}
    if card.link is not None:
        yield {
            "type": "ActionSet",
            "actions": [{"type": "Action.OpenUrl", "title": "Open in the inbox", "url": card.link}],
        }


def _button(button: Button) -> JsonDict:
    if button.action in FORMS:
        data: JsonDict = {"msteams": {"type": "task/fetch"}, DATA: button.data}
        return {"type": "Action.Submit", "title": button.label, "data": data}
    made: JsonDict = {
        "type": "Action.Execute",
        "title": button.label,
        "verb": f"phronomy:{button.action}",
        "data": {DATA: button.data},
        # For clients that know no Action.Execute: it comes as a message.
        "fallback": {"type": "Action.Submit", "title": button.label, "data": {DATA: button.data}},
    }
    return {**made, "style": "positive"} if button.action == "approve" else made


def _input(field: Field, error: str | None) -> Iterator[JsonDict]:
    if error is not None:
        yield _runs(_run(error, color="Attention"))
    made: JsonDict = {"id": field.name, "label": field.label, "value": field.value}
    if field.required:
        made |= {"isRequired": True, "errorMessage": "This is needed."}
    if field.kind == "choice":
        choices: list[Any] = [{"title": each, "value": each} for each in field.choices]
        yield {"type": "Input.ChoiceSet", "style": "compact", "choices": choices, **made}
    else:
        yield {"type": "Input.Text", "isMultiline": field.kind == "lines", **made}
    if field.hint:
        yield _runs(_run(field.hint, isSubtle=True, size="Small"))


def _definition(form: Form) -> JsonDict:
    """What a form is made of, without the values: those come back by themselves."""
    fields: list[Any] = [
        {
            "name": each.name,
            "label": each.label,
            "kind": each.kind,
            "choices": list(each.choices),
            "required": each.required,
            "hint": each.hint,
        }
        for each in form.fields
    ]
    return {"title": form.title, "submit": form.submit, "intro": form.intro, "fields": fields}


def _field_in(found: JsonDict, data: JsonDict) -> Field:
    kind, name = found.get("kind"), text_of(found.get("name"))
    return Field(
        name=name,
        label=text_of(found.get("label")),
        value=text_of(data.get(name)),
        kind="choice" if kind == "choice" else "lines" if kind == "lines" else "text",
        choices=tuple(each for each in list_of(found.get("choices")) if isinstance(each, str)),
        required=found.get("required") is True,
        hint=text_of(found.get("hint")),
    )


def _long(card: Card) -> Iterator[JsonDict]:
    where = "see the inbox" if card.link is not None else "see `phronomy show`"
    yield _runs(_run(f"{_NOTE}: {where}."))


def _runs(*runs: JsonDict) -> JsonDict:
    return {"type": "RichTextBlock", "inlines": list(runs)}


def _run(text: str, **style: str | bool) -> JsonDict:
    return {"type": "TextRun", "text": text, **style}

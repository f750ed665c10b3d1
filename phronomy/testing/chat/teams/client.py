"""What the clients of Teams make of activities and cards: what they show, what they act on, and what they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from phronomy.chat.channel import LETTERS, REMIND, Pressed
from phronomy.errors import Portable

_ACTIONS: Final[dict[str, Pressed]] = {REMIND: "remind", **{letter: action for action, letter in LETTERS.items()}}
_MARKDOWN: Final = re.compile(r"[*_\[\]<>`#]|@")
_ELEMENTS: Final = {"RichTextBlock", "TextBlock", "ActionSet", "Input.Text", "Input.ChoiceSet"}
_LARGEST: Final = 102_400


class Wrong(Portable, Exception):
    """A message that Teams does not take: the status of the answer, and the name of the error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status


def check_activity(activity: dict[str, Any], largest: int = _LARGEST) -> None:
    """What Teams refuses about a message. `largest` is in bytes of UTF-16."""
    if len(json.dumps(activity, ensure_ascii=False).encode("utf-16-le", "surrogatepass")) > largest:
        raise Wrong(413, "MessageSizeTooBig")
    attachments = activity.get("attachments") or []
    if activity.get("type") != "message" or not (activity.get("text") or attachments):
        raise Wrong(400, "BadSyntax")
    for each in attachments:
        if each["contentType"] != "application/vnd.microsoft.card.adaptive":
            raise Wrong(400, "BadSyntax")
        check_card(each["content"])


def check_card(card: dict[str, Any]) -> None:
    """What Teams refuses about a card, or shows no button for."""
    if card.get("type") != "AdaptiveCard" or card.get("version") not in ("1.4", "1.5"):
        raise Wrong(400, "BadSyntax")
    refresh = card.get("refresh")
    if refresh is not None and (refresh["action"]["type"] != "Action.Execute" or len(refresh.get("userIds", [])) > 60):
        raise Wrong(400, "BadSyntax")
    inputs = [each["id"] for each in card["body"] if each["type"].startswith("Input.")]
    if len(set(inputs)) < len(inputs) or any(each["type"] not in _ELEMENTS for each in card["body"]):
        raise Wrong(400, "BadSyntax")
    for each in card["body"]:
        if each["type"] == "RichTextBlock" and not all(
            run["type"] == "TextRun" and run["text"] for run in each["inlines"]
        ):
            raise Wrong(400, "BadSyntax")
    sets = [each["actions"] for each in card["body"] if each["type"] == "ActionSet"]
    for actions in [*sets, card.get("actions", [])]:
        if len(actions) > 6 or not all(each["title"] and _is_action(each) for each in actions):
            raise Wrong(400, "BadSyntax")


def _is_action(action: dict[str, Any]) -> bool:
    if action["type"] == "Action.Execute":
        return bool(action["verb"]) and action["fallback"]["type"] == "Action.Submit"
    if action["type"] == "Action.OpenUrl":
        return str(action["url"]).startswith("https://")
    return action["type"] == "Action.Submit" and isinstance(action["data"], dict)


def card_in(activity: dict[str, Any]) -> dict[str, Any] | None:
    """The card of a message."""
    attachments = activity.get("attachments") or []
    found: dict[str, Any] | None = attachments[0]["content"] if attachments else None
    return found


def seen(card: dict[str, Any]) -> str:
    """The text of a card, a line for each block."""
    blocks = (each for each in card["body"] if each["type"] in ("RichTextBlock", "TextBlock"))
    return "\n".join(
        re.sub("</?at>", "", each["text"]) if "text" in each else "".join(run["text"] for run in each["inlines"])
        for each in blocks
    )


def buttons(card: dict[str, Any]) -> dict[str, str]:
    """What each button of a card carries, by its action."""
    found = {}
    for each in card["body"]:
        for action in each["actions"] if each["type"] == "ActionSet" else ():
            data = action.get("data", {}).get("phronomy")
            if data is not None:
                found[str(_ACTIONS[data[0]])] = data
    return found


def link(card: dict[str, Any]) -> str | None:
    """The address that a card opens."""
    sets = [each["actions"] for each in card["body"] if each["type"] == "ActionSet"]
    return next((action["url"] for actions in sets for action in actions if "url" in action), None)


def fields(card: dict[str, Any]) -> dict[str, str]:
    """The inputs of a card, with what is in them."""
    return {each["id"]: each["value"] for each in card["body"] if each["type"].startswith("Input.")}


def missing(card: dict[str, Any], values: dict[str, str]) -> dict[str, str]:
    """What a client says about inputs before it sends anything."""
    found = (each for each in card["body"] if each.get("isRequired") and not values[each["id"]].strip())
    return {each["id"]: each["errorMessage"] for each in found}


def errors(card: dict[str, Any]) -> dict[str, str]:
    """What a form says is wrong: a red text before an input, by its id, or at the end."""
    found, said = {}, ""
    for each in card["body"]:
        if each["type"] == "RichTextBlock" and each["inlines"][0].get("color") == "Attention":
            said = each["inlines"][0]["text"]
        elif said:
            found[each.get("id", "")] = said
            said = ""
    return {**found, "": said} if said else found


def acted_on(activity: dict[str, Any]) -> Iterator[str]:
    """What Teams would act on in a message: Markdown, mentions, and cards that are not what they seem."""
    if activity.get("text") and activity.get("textFormat") != "plain":
        yield "text"
    yield from (str(each["type"]) for each in activity.get("entities") or [])
    if (card := card_in(activity)) is not None:
        yield from acted_on_in(card)


def acted_on_in(card: dict[str, Any]) -> Iterator[str]:
    """The same for a card."""
    entities = card.get("msteams", {}).get("entities", [])
    marked = {each["text"]: f"<@{each['mentioned']['id']}>" for each in entities}
    yield from marked.values()
    if len(marked) < len(entities):
        yield "entities"  # two of one text
    for each in card["body"]:
        if each["type"] == "TextBlock":
            text = re.sub(r"<at>[^<>]*</at>", lambda found: "" if found[0] in marked else found[0], each["text"])
            yield from [text] if _MARKDOWN.search(text) else []
        yield from ("link" for run in each.get("inlines", []) if "selectAction" in run)

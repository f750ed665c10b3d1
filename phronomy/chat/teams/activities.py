"""Activities: what the connector sends when somebody clicks, submits a form, looks at a message or writes to the bot.

https://learn.microsoft.com/en-us/azure/bot-service/rest-api/bot-framework-rest-connector-activities
https://learn.microsoft.com/en-us/microsoftteams/platform/task-modules-and-cards/cards/universal-actions-for-adaptive-cards/overview
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from phronomy.chat.channel import Click, Said, Submitted, Viewed
from phronomy.chat.http import Refused
from phronomy.chat.teams.adaptive_cards import DATA, FORM, VIEW
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, canonical, clean, list_of, object_of, text_of

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CONVERSATION: Final = re.compile(r"[A-Za-z0-9:@._=;+~\-]{1,280}")
_MESSAGE: Final = re.compile(r"[A-Za-z0-9:_.=;\-]{1,180}")
_MEMBER: Final = re.compile(r"[A-Za-z0-9:_.\-]{1,200}")
_THREAD: Final = ";messageid="
_LONGEST_TEXT: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A conversation that has just got the bot, or in which somebody asks what it is called here."""

    conversation: str


def read_activity(
    activity: JsonDict, *, name: str, tenants: Collection[str]
) -> Click | Submitted | Viewed | Said | Place | None:
    """What an activity means, whose origin is proven; None if it is nothing for us.

    `tenants` are those whose people count. Raises `Refused`.
    """
    tenant = _tenant(activity, tenants)
    kind = activity.get("type")
    if kind == "invoke":
        return _Reader(activity, name, tenant).invoke()
    if kind == "message":
        if not isinstance(object_of(activity.get("from")).get("aadObjectId"), str):
            return None  # another bot
        return _Reader(activity, name, tenant).message()
    if kind == "conversationUpdate":
        bot = object_of(activity.get("recipient")).get("id")
        added = [object_of(each).get("id") for each in list_of(activity.get("membersAdded"))]
        if isinstance(bot, str) and bot in added:
            return Place(conversation=_conversation(activity).partition(_THREAD)[0])
    return None


def is_uuid(text: object) -> bool:
    """Whether this is an id of Entra ID, in small letters."""
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


def is_conversation(text: str) -> bool:
    """Whether this may be the id of a conversation."""
    return _CONVERSATION.fullmatch(text) is not None


def reference(conversation: str, message: str) -> str | None:
    """The reference to a message; None if these are no such ids.

    A message that begins a thread is known by the conversation in which it was posted, and by that of its thread: this is the first.
    """
    if not is_conversation(conversation) or _MESSAGE.fullmatch(message) is None:
        return None
    return f"{conversation.removesuffix(_THREAD + message)}/{message}"


def thread_of(ref: str) -> str:
    """The conversation for an answer to a message: its thread in a channel, and elsewhere the conversation itself."""
    conversation, _, message = ref.partition("/")
    is_channel = "@thread.tacv2" in conversation or "@thread.skype" in conversation
    return f"{conversation}{_THREAD}{message}" if is_channel and _THREAD not in conversation else conversation


class _Reader:
    """Reads one activity of one person."""

    def __init__(self, activity: JsonDict, name: str, tenant: str) -> None:
        self._activity = activity
        sender = object_of(activity.get("from"))
        person = text_of(sender.get("aadObjectId")).lower()
        id = text_of(activity.get("id"))
        member = text_of(sender.get("id"))
        if not is_uuid(person) or _MEMBER.fullmatch(member) is None or not 0 < len(id) <= 200:
            raise Refused(400, "an activity of nobody")
        self._alias = f"{name}:{tenant}:{person}"
        self._delivery = id
        self._conversation = _conversation(activity)
        self._ref = reference(self._conversation, text_of(activity.get("replyToId")))
        personal = object_of(activity.get("conversation")).get("conversationType") == "personal"
        self._reply = {
            "member": member,
            "tenant": tenant,
            "conversation": self._conversation if personal else "",
        }

    def invoke(self) -> Click | Submitted | Viewed | None:
        name, value = self._activity.get("name"), object_of(self._activity.get("value"))
        if name == "adaptiveCard/action":
            action = object_of(value.get("action"))
            data = _ours(object_of(action.get("data")))
            if data is None:
                return None
            # A client that asks by itself decides nothing, whatever it asks for.
            if value.get("trigger") == "automatic" or action.get("verb") == VIEW:
                return Viewed(alias=self._alias, delivery=self._delivery, data=data)
            return self._click(data, "card")
        fields = object_of(value.get("data"))
        data = _ours(fields)
        if data is None or name not in ("task/fetch", "task/submit"):
            return None
        if name == "task/fetch":
            return self._click(data, "dialog")
        # A value that begins a field has no carriage return, so that those which clients add can be told.
        values = {
            key: clean(text_of(each)).replace("\r\n", "\n")
            for key, each in fields.items()
            if key not in (DATA, FORM, "msteams")
        }
        form = canonical({**values, DATA: data, FORM: fields.get(FORM)})
        return Submitted(
            alias=self._alias,
            delivery=self._delivery,
            data=data,
            values=values,
            ref=self._ref,
            reply={**self._reply, "kind": "dialog", "form": form},
        )

    def message(self) -> Click | Said | Place | None:
        data = _ours(object_of(self._activity.get("value")))
        if data is not None:
            return self._click(data, "message")
        text = self._said()
        if text.lower() == "place":
            return Place(conversation=self._conversation.partition(_THREAD)[0])
        if not text or len(text) > _LONGEST_TEXT:
            return None
        return Said(
            alias=self._alias,
            delivery=self._delivery,
            text=text,
            thread=self._conversation,
            to=self._conversation,
            reply={**self._reply, "kind": "said"},
        )

    def _click(self, data: str, kind: str) -> Click:
        return Click(
            alias=self._alias,
            delivery=self._delivery,
            data=data,
            ref=self._ref,
            reply={**self._reply, "kind": kind},
        )

    def _said(self) -> str:
        """What somebody has written, without the mention of the bot."""
        text = text_of(self._activity.get("text"))
        bot = object_of(self._activity.get("recipient")).get("id")
        for each in map(object_of, list_of(self._activity.get("entities"))):
            mention = text_of(each.get("text"))
            if each.get("type") == "mention" and mention and object_of(each.get("mentioned")).get("id") == bot:
                text = text.replace(mention, "")
        return clean(text).strip()


def _tenant(activity: JsonDict, tenants: Collection[str]) -> str:
    """The tenant of whoever sends an activity, in small letters. All that it names must be ours. Raises `Refused`."""
    sender = object_of(activity.get("from")).get("tenantId")
    others = (
        object_of(object_of(activity.get("channelData")).get("tenant")).get("id"),
        object_of(activity.get("conversation")).get("tenantId"),
    )
    named = [text_of(each).lower() for each in (sender, *others) if each is not None]
    if not named or any(each not in tenants for each in named):
        raise Refused(403, "of another tenant")
    if sender is None and len(set(named)) > 1:
        raise Refused(403, "of an unknown tenant")
    return named[0]


def _conversation(activity: JsonDict) -> str:
    found = text_of(object_of(activity.get("conversation")).get("id"))
    if not is_conversation(found):
        raise Refused(400, "no conversation")
    return found


def _ours(data: JsonDict) -> str | None:
    """What a button of ours carries; None for one of others."""
    found = data.get(DATA)
    return found if isinstance(found, str) and len(found) <= 200 else None

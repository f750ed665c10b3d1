"""A fake Telegram: its Bot API over HTTP on the loopback interface, and people who press buttons and reply.

Any library for bots talks to it. It is written from Telegram's public documentation: the sizes of texts and buttons, HTML that is
refused, clicks that cannot be answered after some seconds, 20 messages a minute in a group, nobody who hears from a bot before Start. https://core.telegram.org/bots/api
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from phronomy.chat.channel import Action, Channel, Pressed
from phronomy.chat.http import Response
from phronomy.chat.telegram.telegram import Telegram
from phronomy.testing.chat.platform import Answering, Clock, Sent, Shown, Written, delivered
from phronomy.testing.chat.telegram.bot_server import BOT, GROUP, SECRET, TOKEN, BotServer
from phronomy.testing.chat.telegram.entities import read

_LABELS: Final[Mapping[str, Pressed]] = {
    "a": "approve",
    "r": "reject",
    "n": "reason",
    "e": "edit",
    "p": "respond",
    "s": "skip",
    "m": "remind",
}
_QUIET: Final = frozenset({"code", "pre", "bold"})


class FakeTelegram(BotServer):
    """A Telegram with one bot, `@refund_desk_bot`, and one group, `-1001234567890`. Use it as a context, or call `close`.

    `by` is any name of a person, who has a number of their own. `base_url`, `calls`, `fail`, `queue` and `push` are those of
    `BotServer`. An update to which a handler has not answered with 2xx waits, and comes again with `redeliver`.
    """

    place: Final = f"telegram:{GROUP}"
    signs: Final = "origin"
    forms_are_answers: Final = False

    def __init__(self, clock: Clock | None = None, *, rates: bool = False) -> None:
        super().__init__(clock, rates=rates)
        self.telegram: Telegram = Telegram(
            bot_token=TOKEN, secret_token=SECRET, username="refund_desk_bot", base_url=self.base_url
        )
        self.channel: Channel = self.telegram
        self._handler: Answering | None = None

    def __enter__(self) -> FakeTelegram:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut the server down, and close the connections of the channel."""
        self.telegram.api.close()
        super().close()

    # What people see

    def connect(self, handler: Answering) -> None:
        """Have updates sent to this handler."""
        self._handler = handler

    def number(self, by: str) -> int:
        """The number of a person."""
        if by.isdigit():
            return int(by)
        return 5_000_000_000 + int.from_bytes(hashlib.sha256(by.encode()).digest()[:4])

    def alias(self, by: str) -> str:
        """The alias by which a directory knows a person."""
        return f"telegram:{self.number(by)}"

    def messages(self) -> list[Shown]:
        """The messages of the bot in the group, oldest first, without replies, prompts and topics."""
        return self.conversation(str(GROUP))

    def alone(self, by: str) -> list[Shown]:
        """The messages of the bot to one person alone, oldest first, without replies and prompts."""
        return self.conversation(str(self.number(by)))

    def conversation(self, thread: str) -> list[Shown]:
        """The messages of the bot in a chat or a topic, such as `-1001234567890/42`, oldest first, without replies and prompts."""
        chat, _, topic = thread.partition("/")
        return [
            Shown(
                ref="/".join(map(str, key)) + (f"/{topic}" if topic else ""),
                text=found["text"],
                buttons=_buttons(found),
                link=_link(found),
                edits=self._edits.get(key, 0),
            )
            for key, found in self._of_bot(int(chat))
            if str(found.get("message_thread_id", "")) == topic
            and "reply_to_message" not in found
            and "force_reply" not in found.get("reply_markup", {})
        ]

    def reminders(self) -> list[str]:
        """The texts of the replies of the bot in the group that are no prompts."""
        return [
            found["text"]
            for _, found in self._of_bot(GROUP)
            if "reply_to_message" in found and "force_reply" not in found.get("reply_markup", {})
        ]

    def told(self, by: str) -> list[str]:
        """What a person alone was told: alerts, and messages in the chat of the bot with them."""
        mine = [
            found["text"]
            for _, found in self._of_bot(self.number(by))
            if "force_reply" not in found.get("reply_markup", {}) and not _buttons(found)
        ]
        return [text for who, text in self._alerts if who == self.number(by)] + mine

    def pings(self) -> list[str]:
        """Mentions, commands, links and previews in messages of the bot. That a prompt mentions whom it asks is none."""
        return [each for chat in {key[0] for key in self._messages} for each in self._acted_on(chat)]

    def _of_bot(self, chat: int) -> list[tuple[tuple[int, int], dict[str, Any]]]:
        return [
            (key, found)
            for key, found in [*self._messages.items()]
            if key[0] == chat and found["from"]["id"] == BOT["id"]
        ]

    def _acted_on(self, chat: int) -> Iterator[str]:
        for key, found in self._of_bot(chat):
            is_prompt = found.get("reply_markup", {}).get("selective") is True
            for entity in found.get("entities", ()):
                if entity["type"] == "text_mention":
                    yield from [] if is_prompt else [f"<@{entity['user']['id']}>"]
                elif entity["type"] not in _QUIET:
                    yield entity["type"]
            if not self._quiet.get(key):
                yield "preview"

    # What people do

    def sign(self, shown: Shown, action: Action, by: str, *, old: bool = False) -> Sent:
        """The update that a click makes; with `old`, Telegram does not have the message any more."""
        chat, number = map(int, shown.ref.split("/")[:2])
        query, user = f"{self._number():019d}", self.number(by)
        self._queries[query] = (self.clock.now, user)
        message = self._messages[chat, number]
        if old:
            message = {"chat": message["chat"], "message_id": number, "date": 0}
        return self.sent(
            {
                "callback_query": {
                    "id": query,
                    "from": _user(user, by),
                    "message": message,
                    "chat_instance": "1",
                    "data": shown.buttons[action],
                }
            }
        )

    def message(
        self,
        by: str,
        text: str | None,
        *,
        chat: int | None = None,
        answers: int | None = None,
        thread: int | None = None,
    ) -> Sent:
        """The update that a message makes: in the chat with the bot, unless `chat` says where. None is a message without text."""
        user = self.number(by)
        where = chat if chat is not None else user
        self._started |= {where} if where > 0 else set()
        replied = self._messages[where, answers] if answers is not None else None
        found, entities = read(text, is_html=False) if text is not None else (None, [])
        message = self._new(where, _user(user, by), found, entities=entities, replied=replied, thread=thread)
        return self.sent({"message": message})

    def write(self, by: str, text: str, *, thread: str | None = None) -> Written:
        """A message that mentions the bot in a topic of the group, by somebody who has pressed Start; without a thread in a new one."""
        self._started.add(self.number(by))
        topic = int(thread.partition("/")[2]) if thread is not None else self._number()
        self.topics.add(topic)
        sent = self.message(by, f"@{BOT['username']} {text}", chat=GROUP, thread=topic)
        return Written(sent=sent, thread=f"{GROUP}/{topic}")

    def follow(self, link: str, by: str) -> Sent:
        """The update that comes when somebody follows a deep link and presses Start."""
        address = urlsplit(link)
        assert (address.hostname, address.path) == ("t.me", f"/{BOT['username']}"), "no link to this bot"
        [payload] = parse_qs(address.query)["start"]
        assert 0 < len(payload) <= 64, "a deep link has at most 64 characters"
        return self.message(by, f"/start {payload}")

    def sent(self, update: Mapping[str, Any]) -> Sent:
        """An update as Telegram sends it, with the next id."""
        body = json.dumps({"update_id": self._number(), **update}).encode()
        headers = {"Content-Type": "application/json", "X-Telegram-Bot-Api-Secret-Token": SECRET}
        return Sent(path="/chat/telegram", headers=headers, body=body)

    def deliver(self, sent: Sent) -> Response:
        """Send an update to the handler, and let it finish. What is not taken waits, and comes again."""
        response = delivered(self._handler, sent)
        if not 200 <= response.status < 300:
            self._keep(sent)
        return response

    def _keep(self, sent: Sent) -> None:
        """Have an update come again; what is none, from a test, does not."""
        try:
            update = json.loads(sent.body)
        except ValueError:
            return
        if isinstance(update, dict) and "update_id" in update:
            self.queue(update)

    def redeliver(self) -> list[int]:
        """Send the updates that wait once more, with the same ids; returns the statuses."""
        waiting, self._updates = self._updates, []
        return [self.deliver(self._again(update)).status for update in waiting]

    def click(self, shown: Shown, action: Action, by: str) -> Response:
        """Press a button."""
        return self.deliver(self.sign(shown, action, by))

    def form(self, by: str) -> dict[str, str] | None:
        """The reply that a prompt asks of a person, `{"reply": ""}`; None if none does."""
        return {"reply": ""} if self.number(by) in self._prompts else None

    def submit(self, by: str, values: Mapping[str, str]) -> dict[str, str]:
        """Reply to the prompt; returns what is wrong, if a new one asks for that. With an empty text they send a die."""
        chat, number = self._prompts.pop(self.number(by))
        self.deliver(self.message(by, values["reply"] or None, chat=chat, answers=number))
        again = self._prompts.get(self.number(by))
        return {"reply": self._messages[again]["text"]} if again is not None else {}

    def _again(self, update: Mapping[str, Any]) -> Sent:
        sent = self.sent({})
        return Sent(path=sent.path, headers=sent.headers, body=json.dumps(update).encode())


def _user(number: int, by: str) -> dict[str, Any]:
    return {"id": number, "is_bot": False, "first_name": by, "username": "admin"}


def _buttons(message: Mapping[str, Any]) -> dict[str, str]:
    rows = message.get("reply_markup", {}).get("inline_keyboard", ())
    carried = [str(each["callback_data"]) for row in rows for each in row if "callback_data" in each]
    return {_LABELS.get(data[0], data): data for data in carried}


def _link(message: Mapping[str, Any]) -> str | None:
    rows = message.get("reply_markup", {}).get("inline_keyboard", ())
    return next((each["url"] for row in rows for each in row if "url" in each), None)

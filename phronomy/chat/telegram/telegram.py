"""Telegram as a channel: inline buttons, prompts for replies in place of forms, and the Bot API.

Telegram signs nothing: a secret header proves where a request comes from, and neither its time nor its body. So an update may come any
number of times. A click counts once by what it says, and what a button or a prompt carries is signed with our own key.
Telegram knows no key by which it would recognise a message that is posted twice; both copies lead to one request.
https://core.telegram.org/bots/api
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from phronomy.chat.channel import (
    Card,
    ChannelError,
    ChannelRefused,
    Click,
    Field,
    Form,
    FormLimits,
    Pace,
    Received,
    Said,
    Submitted,
    Work,
    check_name,
)
from phronomy.chat.http import HttpRequest, Refused, Response
from phronomy.chat.telegram.api import NOT_MODIFIED, TOO_OLD, UPDATES, URL, WRONG_URL, BotApi, BotRefused
from phronomy.chat.telegram.markup import (
    LONGEST,
    Message,
    alert_of,
    defused,
    form_in,
    message_of,
    parts_of,
    plain,
    prompt_of,
    reminder_of,
)
from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import JsonError, clean, parse

_log = logging.getLogger("phronomy")
_T = TypeVar("_T")

_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{16,256}")
_USERNAME: Final = re.compile(r"[A-Za-z0-9_]{3,64}")
_PLACE: Final = re.compile(r"(-?\d{1,19})(?:/(\d{1,10}))?")
_USER: Final = re.compile(r"[1-9]\d{0,18}")
_REF: Final = re.compile(r"(-?\d{1,19})/(\d{1,19})(?:/(\d{1,10}))?")

_SENDING: Final = 10.0
"""Seconds that the outbox waits for Telegram: well below the time for which it owns what it sends."""
_OPENING: Final = 4.0
"""Seconds for a prompt and for the answer to a click: Telegram gives up on a click after some ten."""
_GROUP: Final = 3.0
_PRIVATE: Final = 1.0
"""Seconds between two messages in a group, which takes 20 a minute, and in another chat."""

_ELSEWHERE: Final = "There is something to tell you alone. Press Start in a chat with this bot, then send it once more."


class Telegram:
    """Telegram as a channel of `ChatApprovals`. It needs no extra.

    `bot_token` is what @BotFather gives. `secret_token` has 16 to 256 characters of `A-Za-z0-9_-`; Telegram sends it with each update,
    and that alone proves where an update comes from. None: updates come by `Polling` alone, and none over HTTP. Telegram sends
    updates to the path that ends with `name`. People have the alias `telegram:ID`, by their number. With `username`, the name of the
    bot without `@`, messages in a group that mention it count as written to it. `base_url` is that of a Bot API server of your own,
    or of a fake in tests. Raises `ConfigurationError`.
    """

    form_limits: FormLimits = FormLimits(fields=1, value=LONGEST, choices=0, begins=False)
    say_limit: int = LONGEST // 2
    """The characters of a text that is one message of `say`, whatever they are."""

    def __init__(
        self,
        *,
        bot_token: str,
        secret_token: str | None,
        username: str | None = None,
        name: str = "telegram",
        base_url: str = URL,
    ) -> None:
        if secret_token is not None and (not isinstance(secret_token, str) or not _SECRET.fullmatch(secret_token)):
            raise ConfigurationError(
                "secret_token has 16 to 256 characters of A-Z, a-z, 0-9, _ and -: make one at random; None for Polling"
            )
        if username is not None and (not isinstance(username, str) or not _USERNAME.fullmatch(username)):
            raise ConfigurationError("username is the name of the bot without @, such as refund_desk_bot")
        check_name(name)
        self.name = name
        self.api: BotApi = BotApi(bot_token, base_url)
        self._moved: dict[int, int] = {}  # groups that have become supergroups since their route was written
        self._secret = secret_token
        self._username = username.casefold() if username is not None else None
        self._hinted = False

    def __repr__(self) -> str:
        return f"Telegram(name={self.name!r}, bot={self.api.bot})"

    # The bot

    def set_webhook(self, url: str) -> None:
        """Have Telegram send updates to this address, which begins with `https://`. Raises `ChannelError`, `ConfigurationError`."""
        if self._secret is None:
            raise ConfigurationError("a webhook needs a secret_token: without it anybody could send clicks")
        self.api.call("setWebhook", url=url, secret_token=self._secret, allowed_updates=UPDATES)

    def delete_webhook(self) -> None:
        """Have Telegram send updates nowhere: `Polling` can ask for them then. Raises `ChannelError`."""
        self.api.call("deleteWebhook")

    def bot_username(self) -> str:
        """The username of the bot, without `@`, as Telegram has it. Raises `ChannelError`."""
        found = self.api.call("getMe")
        username = found.get("username") if isinstance(found, dict) else None
        if not isinstance(username, str) or not _USERNAME.fullmatch(username):
            raise ChannelError("getMe: no username")
        return username

    # What comes in

    def receive(self, request: HttpRequest, *, now: float) -> Received | Response:  # nothing says when it was sent
        """As `Channel.receive`."""
        given = request.headers.get("x-telegram-bot-api-secret-token", "")
        # As bytes: the comparison of texts raises on what is not ASCII.
        if self._secret is None or not hmac.compare_digest(
            self._secret.encode(), given.encode("utf-8", "surrogatepass")
        ):
            raise Refused(401, "not from Telegram", check="secret_token")
        try:
            update = parse(request.body.decode())
        except (JsonError, UnicodeDecodeError):
            raise Refused(400, "no JSON in UTF-8") from None
        return self.read(update)

    def read(self, update: Any) -> Received | Response:
        """Read an update whose origin is proven. Raises `Refused`."""
        try:
            delivery = str(_id(update["update_id"]))
            if "callback_query" in update:
                return self._click(update["callback_query"], delivery)
            if "message" in update:
                return self._message(update["message"], delivery)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Refused(400, "no update of Telegram") from None
        return Response()  # of a kind that we have not asked for

    def _click(self, query: Any, delivery: str) -> Received | Response:
        user, data = _id(query["from"]["id"]), query.get("data")
        if not isinstance(data, str):
            return Response()  # of a game
        reply = {"query": str(query["id"]), "user": str(user), "place": str(user)}
        ref = None
        message = query.get("message")
        if message is not None:
            # Of a message that is too old for Telegram, there is nothing but where it stands.
            place, number = _place_of(message), _id(message["message_id"])
            reply |= {"place": place, "message": str(number)}
            chat, _, thread = place.partition("/")
            ref = f"{chat}/{number}" + (f"/{thread}" if thread else "")
        return Click(alias=f"{self.name}:{user}", delivery=delivery, data=data, ref=ref, reply=reply)

    def _message(self, message: Any, delivery: str) -> Received | Response:
        sender = message.get("from")
        if sender is None or sender.get("is_bot") is not False:
            # Of a channel, of an administrator who is not named, or of a bot: nobody can be held to it.
            return Response()
        user, place = _id(sender["id"]), _place_of(message)
        alias = f"{self.name}:{user}"
        reply = {"user": str(user), "place": place, "message": str(_id(message["message_id"]))}
        text = message.get("text")
        text = text if isinstance(text, str) else ""
        replied = message.get("reply_to_message")
        ours = replied if replied is not None and replied.get("from", {}).get("id") == self.api.bot else None
        found = form_in(ours) if ours is not None else None
        if found is not None:
            name, data = found
            return Submitted(alias=alias, delivery=delivery, data=data, values={name: text}, reply=reply)
        said = self._without_mentions(message, text)
        is_alone = place == str(user)
        if not text or not (is_alone or ours is not None or said != text):
            self._hint_of_username(message)
            return Response()
        return Said(alias=alias, delivery=delivery, text=said, thread=place, to=place, reply=reply)

    def _hint_of_username(self, message: Any) -> None:
        """Warn, once, that this bot cannot know who is mentioned in a group."""
        kinds = {entity["type"] for entity in message.get("entities") or []}
        if self._username is None and not self._hinted and "mention" in kinds:
            self._hinted = True
            _log.warning(
                "%s passed over a message in a group that mentions somebody: if it was for this bot, give the channel its username",
                self.name,
            )

    def _without_mentions(self, message: Any, text: str) -> str:
        """The text without the mentions of the bot, also behind commands. Telegram counts characters as UTF-16 does."""
        units = text.encode("utf-16-le", "surrogatepass")
        found = False
        for entity in reversed(message.get("entities") or []):
            if self._username is None or entity["type"] not in ("mention", "bot_command"):
                continue
            at, end = 2 * _id(entity["offset"]), 2 * (_id(entity["offset"]) + _id(entity["length"]))
            word, mark, name = units[at:end].decode("utf-16-le", "replace").rpartition("@")
            if mark and name.casefold() == self._username:
                units, found = units[: at + 2 * len(word)] + units[end:], True
        return units.decode("utf-16-le", "replace").strip() if found else text

    def place_of(self, alias: str) -> str | None:
        """As `ReachesPeople.place_of`: the chat with a person, who has pressed Start there."""
        user = alias.removeprefix(f"{self.name}:")
        return user if _USER.fullmatch(user) is not None else None

    def mention_of(self, alias: str) -> str | None:
        """As `ReachesPeople.mention_of`."""
        return self.place_of(alias)

    # What goes out at once

    def acknowledge(self, received: Received, notice: str | None) -> Response:
        """Answer a click by an alert, or a message in the chat with this person alone. A click without a notice is answered too."""
        if isinstance(received, Click):
            return Response(after=lambda: self._answer(received, notice))
        if notice is None:
            return Response()
        return Response(after=lambda: self._tell(received, notice))

    def open_form(self, click: Click, form: Form) -> Response:
        """Post a prompt that asks for a reply. Raises `ChannelError`."""
        reply = click.reply
        chat, _, _ = reply["place"].partition("/")
        to = int(reply["user"]) if chat != reply["user"] else None
        card = int(reply["message"]) if "message" in reply else None
        self._send(reply["place"], prompt_of(form, to=to), answers=card, seconds=_OPENING)
        return Response(after=lambda: self._answer(click, None))

    def show_errors(self, submitted: Submitted, errors: Mapping[str, str]) -> Response:
        """Post a new prompt, which says what is wrong: nobody can change what they have replied."""
        reply = submitted.reply
        to = int(reply["user"]) if reply["place"].partition("/")[0] != reply["user"] else None
        fields = tuple(Field(name=name, label="Once more", kind="lines") for name in submitted.values)
        form = Form(title="This was not recorded", submit="", fields=fields, data=submitted.data)

        def ask() -> None:
            try:
                self._send(
                    reply["place"],
                    prompt_of(form, to=to, wrong=errors),
                    answers=int(reply["message"]),
                    seconds=_OPENING,
                )
            except ChannelError as error:
                # They see that nothing has happened, and press the button again.
                _log.warning("%s could not ask somebody once more: %s", self.name, error)

        return Response(after=ask)

    def say(self, to: str, text: str, *, key: str) -> str:  # Telegram recognises no repetition
        """Post a text to a place, in several messages if it is long, and return a reference to the first.

        Mentions, commands and links in the text do nothing. Raises `ChannelError`.
        """
        refs = [
            self._send(to, Message(html=defused(part), markup={}))
            for part in parts_of(clean(text).strip() or "(empty)")
            if part.strip()
        ]
        return refs[0]

    def _answer(self, click: Click, notice: str | None) -> None:
        alert = {"text": alert_of(clean(notice)), "show_alert": True} if notice is not None else {}
        try:
            self.api.call(
                "answerCallbackQuery", seconds=_OPENING, callback_query_id=click.reply.get("query", ""), **alert
            )
        except BotRefused as error:
            if error.why != TOO_OLD:
                _log.warning("%s could not answer a click: %s", self.name, error)
        except ChannelError as error:
            _log.warning("%s could not answer a click: %s", self.name, error)

    def _tell(self, received: Submitted | Said, notice: str) -> None:
        """Tell a person alone: Telegram has no message in a group that only one person sees."""
        user, place = received.reply["user"], received.reply["place"]
        try:
            try:
                self._send(user, plain(clean(notice)), seconds=_OPENING)
            except BotRefused:
                if place == user:
                    raise
                self._send(place, plain(_ELSEWHERE), answers=int(received.reply["message"]), seconds=_OPENING)
        except ChannelError as error:
            _log.warning("%s could not tell somebody what came of a message: %s", self.name, error)

    # What the outbox sends

    def post(self, to: str, card: Card, *, key: str) -> str:  # Telegram recognises no repetition
        """Post to a chat, `-1001234567890`, or to a topic of it, `-1001234567890/42`. Raises `ChannelError`."""
        return _with_link(card, lambda message: self._send(to, message))

    def update(self, ref: str, card: Card) -> None:
        """As `Channel.update`."""
        chat, number, _ = _parts(_REF, ref)

        def edit(message: Message) -> None:
            self.api.call("editMessageText", seconds=_SENDING, chat_id=chat, message_id=number, **message.arguments)

        try:
            _with_link(card, edit)
        except BotRefused as error:
            if error.why != NOT_MODIFIED:
                raise

    def remind(self, ref: str, card: Card) -> None:
        """Reply to a message. Raises `ChannelError`."""
        chat, message, thread = _parts(_REF, ref)
        self._send(f"{chat}/{thread}" if thread is not None else f"{chat}", reminder_of(card), answers=message)

    def pace(self, work: Work, to: str) -> Pace:
        """One message in three seconds in a group, and one a second elsewhere: https://core.telegram.org/bots/faq.

        All chats together take 30 a second: a process that sends one message after the other does not reach that.
        """
        chat = to.partition("/")[0]
        kind = "edit" if work == "update" else "post"
        return Pace(lane=f"{kind}:{chat}", seconds=_GROUP if chat.startswith("-") else _PRIVATE)

    def _send(self, to: str, message: Message, *, answers: int | None = None, seconds: float = _SENDING) -> str:
        """Send a message, as a reply to another where that is still there; returns a reference to it. Raises `ChannelError`."""
        chat, thread, *_ = _parts(_PLACE, to)
        assert chat is not None, "a place has a chat"
        try:
            return self._sent(self._moved.get(chat, chat), thread, message, answers, seconds)
        except BotRefused as error:
            if error.moved_to is None or chat in self._moved:
                raise
            _log.warning(
                "%s: the group %s is a supergroup now, and messages go there. Route to %s:%s",
                self.name,
                chat,
                self.name,
                error.moved_to,
            )
            self._moved[chat] = error.moved_to
            return self._sent(error.moved_to, thread, message, answers, seconds)

    def _sent(self, chat: int, thread: int | None, message: Message, answers: int | None, seconds: float) -> str:
        reply = {"message_id": answers, "allow_sending_without_reply": True} if answers is not None else None
        found = self.api.call(
            "sendMessage",
            seconds=seconds,
            chat_id=chat,
            message_thread_id=thread,
            reply_parameters=reply,
            **message.arguments,
        )
        try:
            ref = f"{_id(found['chat']['id'])}/{_id(found['message_id'])}"
        except (KeyError, TypeError, ValueError):
            raise ChannelError("sendMessage: no message came back") from None
        return f"{ref}/{thread}" if thread is not None else ref


def _with_link(card: Card, send: Callable[[Message], _T]) -> _T:
    """Send a card; once more with the link in the text, if Telegram refuses the button for it: the other buttons must be there."""
    try:
        return send(message_of(card))
    except BotRefused as error:
        if error.why != WRONG_URL:
            raise
    return send(message_of(card, plain_link=True))


def _parts(pattern: re.Pattern[str], text: str) -> tuple[int | None, ...]:
    """The numbers of a place or a reference. Raises `ChannelRefused`."""
    found = pattern.fullmatch(text)
    if found is None:
        raise ChannelRefused(
            "a place in Telegram is the number of a chat, such as telegram:-1001234567890, or CHAT/TOPIC"
        )
    return tuple(int(each) if each is not None else None for each in found.groups())


def _place_of(message: Any) -> str:
    """The chat of a message, with its topic in a forum. In other chats the same field counts replies."""
    chat = str(_id(message["chat"]["id"]))
    thread = message.get("message_thread_id")
    return f"{chat}/{_id(thread)}" if thread is not None and message.get("is_topic_message") is True else chat


def _id(value: object) -> int:
    """A number of Telegram, which has at most 52 bits. Raises `ValueError`."""
    if type(value) is not int or abs(value) >= 2**63:
        raise ValueError("no number of Telegram")
    return value

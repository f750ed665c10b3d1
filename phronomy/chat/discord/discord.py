"""Discord as a channel: interactions over HTTP with the key of the app, messages by the token of its bot, forms as modals.

Discord takes the answer to a click within three seconds, and then no more. So a click is decided, and answered with "seen" or with a
message for one person alone. What is seen by all is edited by the outbox, with the token of the bot, which does not end as that of the
click does. https://docs.discord.com/developers/interactions/receiving-and-responding
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from phronomy.chat.cards import shown_hash
from phronomy.chat.channel import (
    Card,
    ChannelError,
    ChannelRefused,
    Click,
    Form,
    FormLimits,
    Pace,
    Received,
    Said,
    Submitted,
    Work,
    check_name,
)
from phronomy.chat.discord.commands import API, OPTION
from phronomy.chat.discord.markdown import parts_of
from phronomy.chat.discord.messages import (
    LONGEST,
    NO_MENTIONS,
    PREFIX,
    errors_of,
    message_of,
    modal_of,
    private_of,
    quote_of,
    reply_of,
    values_in,
    written_in,
)
from phronomy.chat.discord.rest import NoEdit, Rest
from phronomy.chat.discord.signature import public_key as read_key
from phronomy.chat.discord.signature import verify
from phronomy.chat.http import HttpRequest, Refused, Response
from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import JsonDict, JsonError, parse
from phronomy.foundation.quoting import quoted

_SNOWFLAKE: Final = re.compile(r"[0-9]{1,20}")
_REF: Final = re.compile(r"[0-9]{1,20}/[0-9]{1,20}")
_THREADS: Final = frozenset({1, 10, 11, 12})
"""Types of channels that are one conversation: a direct message, and threads."""
_HALF_SAID: Final = 200
"""Keys of which is known how much of a long text was said."""

# Types of interactions, and of answers.
_PING, _COMMAND, _COMPONENT, _AUTOCOMPLETE, _MODAL_SUBMIT = 1, 2, 3, 4, 5
_MESSAGE, _SEEN, _REPLACE, _CHOICES, _MODAL = 4, 6, 7, 8, 9

_NO_ROOM: Final = "This does not fit into a form of Discord. Edit it in the inbox, or with the command phronomy edit."


class Discord:
    """Discord as a channel of `ChatApprovals`. It needs `pip install 'phronomy[discord]'`.

    `public_key` has 64 hexadecimal digits, and `bot_token` is that of the app's bot: the settings of the app have both. Discord
    sends clicks to the path that ends with `name`. People have the alias `discord:USER`, with their id of 17 to 20 digits. `base_url`
    is that of Discord's API, or of a fake in tests; so is `clock`: seconds from anywhere, by which Discord's limits are kept. Raises
    `ConfigurationError`.
    """

    form_limits: FormLimits = FormLimits(fields=5, value=4_000, choices=25)
    say_limit: int = LONGEST // 2

    def __init__(
        self,
        *,
        public_key: str,
        bot_token: str,
        name: str = "discord",
        base_url: str = API,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(bot_token, str) or not re.fullmatch(r"[!-~]+", bot_token):
            raise ConfigurationError(
                "bot_token is text of ASCII without spaces: the settings of the Discord app have it"
            )
        check_name(name)
        self.name = name
        self.base_url: str = base_url.rstrip("/")
        self._key = read_key(public_key)
        self._bot_token = bot_token
        self._rest = Rest(bot_token, self.base_url, clock)
        self._said: OrderedDict[str, tuple[int, str]] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Discord(name={self.name!r})"

    # What comes in

    def receive(self, request: HttpRequest, *, now: float) -> Received | Response:
        """As `Channel.receive`."""
        verify(self._key, request.headers, request.body, now=now)
        try:
            payload = parse(request.body.decode())
        except (JsonError, UnicodeDecodeError):
            raise Refused(400, "no JSON in UTF-8") from None
        return self.read(payload)

    def read(self, payload: Any) -> Received | Response:
        """Read an interaction whose origin is proven. Raises `Refused`."""
        try:
            kind = payload["type"]
            if type(kind) is not int:
                raise ValueError("no type")
            if kind == _PING:
                return _answer(_PING)
            if kind == _COMPONENT:
                return self._click(payload)
            if kind == _MODAL_SUBMIT:
                return self._submitted(payload)
            if kind == _COMMAND:
                return self._command(payload)
            if kind == _AUTOCOMPLETE:
                return _answer(_CHOICES, {"choices": []})
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise Refused(400, "no interaction of Discord") from None
        raise Refused(400, "no interaction that is known here")

    def _click(self, payload: Any) -> Received | Response:
        message = payload["message"]
        channel, id = str(payload.get("channel_id", "")), str(message["id"])
        own = f"{channel}/{id}"
        found = _known(payload["data"]["custom_id"])
        if found is None:
            return _answer(_SEEN)  # a button of another program that shares the app
        data, ref = found
        reply: dict[str, str] = {}
        if _is_private(message):
            # A message about errors: its button names the message that was clicked first, and it has what was written.
            reply = {"private": "yes", "written": json.dumps(written_in(message))}
        elif ref is None and _REF.fullmatch(own):
            ref = own
        return Click(alias=self._alias(payload), delivery=_id(payload["id"]), data=data, ref=ref, reply=reply)

    def _submitted(self, payload: Any) -> Received | Response:
        data = payload["data"]
        found = _known(data["custom_id"])
        if found is None:
            return _answer(_SEEN)
        reply = {"private": "yes"} if _is_private(payload.get("message")) else {}
        return Submitted(
            alias=self._alias(payload),
            delivery=_id(payload["id"]),
            data=found[0],
            values=values_in(data["components"]),
            ref=found[1],
            reply=reply,
        )

    def _command(self, payload: Any) -> Received | Response:
        data = payload["data"]
        texts = [
            each["value"]
            for each in data.get("options", [])
            if each["name"] == OPTION and each["type"] == 3 and isinstance(each["value"], str)
        ]
        if data.get("type", 1) != 1 or not texts:
            return _answer(_MESSAGE, private_of("This command is not known here."))
        id, channel = _id(payload["id"]), _id(payload["channel_id"])
        place = payload.get("channel")
        is_one = isinstance(place, dict) and place.get("type") in _THREADS
        return Said(
            alias=self._alias(payload),
            delivery=id,
            text=texts[0],
            # In a channel of many people, each command begins something new.
            thread=channel if is_one else f"{channel}/{id}",
            to=channel,
        )

    def _alias(self, payload: Any) -> str:
        """The alias of the person: in a server they are a member of it."""
        user = payload["member"]["user"] if payload.get("member") is not None else payload["user"]
        return f"{self.name}:{_id(user['id'])}"

    def place_of(self, alias: str) -> str | None:
        """As `ReachesPeople.place_of`: the direct messages with a person, `@` and their id."""
        user = self.mention_of(alias)
        return f"@{user}" if user is not None else None

    def mention_of(self, alias: str) -> str | None:
        """As `ReachesPeople.mention_of`."""
        user = alias.removeprefix(f"{self.name}:")
        return user if _SNOWFLAKE.fullmatch(user) is not None else None

    # What goes out at once

    def acknowledge(self, received: Received, notice: str | None) -> Response:
        """As `Channel.acknowledge`."""
        if isinstance(received, Said):
            return _answer(_MESSAGE, private_of(notice) if notice is not None else quote_of(received.text))
        if "private" in received.reply:
            # The message about errors has done its work.
            return _answer(
                _REPLACE, private_of(notice if notice is not None else "Taken: the message above says how it stands.")
            )
        return _answer(_SEEN) if notice is None else _answer(_MESSAGE, private_of(notice))

    def open_form(self, click: Click, form: Form) -> Response:
        """As `Channel.open_form`: the form is the answer itself, so nothing else is called, and a form that is too large is told of."""
        written = json.loads(click.reply.get("written", "{}"))
        modal = modal_of(form, click.ref, written) or modal_of(form, click.ref, {})
        return _answer(_MODAL, modal) if modal is not None else self.acknowledge(click, _NO_ROOM)

    def show_errors(self, submitted: Submitted, errors: Mapping[str, str]) -> Response:
        """As `Channel.show_errors`. A form cannot answer a form: a message for this person alone has a button that opens it again."""
        message = errors_of(submitted.data, submitted.ref, errors, submitted.values)
        return _answer(_REPLACE if "private" in submitted.reply else _MESSAGE, message)

    # What the outbox sends

    def post(self, to: str, card: Card, *, key: str) -> str:
        """Post to a channel or a thread, by its id, or to a person, by `@` and theirs. Raises `ChannelError`.

        Discord recognises the repetition of a post for some minutes, by `key`.
        """
        return self._post(to, message_of(card), nonce=_nonce(key))

    def update(self, ref: str, card: Card) -> None:
        """As `Channel.update`. If Discord takes no more edits of an old message, a reply to it says how it stands."""
        channel, _, message = _checked(ref, _REF).partition("/")
        body = message_of(card)
        try:
            self._rest.call("PATCH", f"/channels/{channel}/messages/{message}", body, bucket=f"edit:{channel}")
        except NoEdit:
            self._post(channel, reply_of(card, ref, "Now"), nonce=_nonce(ref, shown_hash(card)))

    def remind(self, ref: str, card: Card) -> None:
        """Reply to a message. Raises `ChannelError`."""
        channel = _checked(ref, _REF).partition("/")[0]
        self._post(channel, reply_of(card, ref, "Still waiting"), nonce=None)

    def say(self, to: str, text: str, *, key: str) -> str:
        """Post a text as it is to a channel, a thread or a direct message, in as many messages as it takes; returns the first of them.

        Nothing in the text acts. Texts of at most `say_limit` characters are one message, whatever these are. `key` is the same if the
        same text is tried again: what Discord has got of it is then not posted once more, for some minutes. Raises `ChannelError`.
        """
        parts = [*parts_of(text, LONGEST)] or ["(nothing)"]
        mark = hashlib.sha256(f"{to}\n{key}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()
        with self._lock:
            done, first = self._said.pop(mark, (0, ""))
        try:
            for part in parts[done:]:
                body: JsonDict = {"content": part, "flags": 4, "allowed_mentions": NO_MENTIONS}  # 4: no previews
                ref = self._post(to, body, nonce=_nonce(mark, str(done)))
                done, first = done + 1, first or ref
        except ChannelError:
            # What is posted is not posted again: that would take the turns of what is not.
            with self._lock:
                self._said[mark] = (done, first)
                while len(self._said) > _HALF_SAID:
                    self._said.popitem(last=False)
            raise
        return first

    def pace(self, work: Work, to: str) -> Pace:
        """One message and one edit a second in a channel. Discord says its limits in each answer, and they are kept besides."""
        return Pace(lane=f"{'edit' if work == 'update' else 'post'}:{to}", seconds=1.0)

    def _post(self, to: str, body: JsonDict, *, nonce: str | None) -> str:
        channel = self._with_person(to[1:]) if to.startswith("@") else _checked(to, _SNOWFLAKE)
        more: JsonDict = {"nonce": nonce, "enforce_nonce": True} if nonce is not None else {}
        found = self._rest.call("POST", f"/channels/{channel}/messages", {**body, **more}, bucket=f"post:{channel}")
        ref = f"{found.get('channel_id', channel)}/{found.get('id')}"
        if _REF.fullmatch(ref) is None:
            raise ChannelError(f"POST post:{channel}: no id of a message")
        return ref

    def _with_person(self, user: str) -> str:
        """The channel of the direct messages with a person: Discord opens it, or says which it is. Raises `ChannelError`."""
        body: JsonDict = {"recipient_id": _checked(user, _SNOWFLAKE)}
        found = self._rest.call("POST", "/users/@me/channels", body, bucket="direct")
        try:
            return _id(found.get("id"))
        except ValueError:
            raise ChannelError("POST direct: no id of a channel") from None


def _answer(kind: int, data: JsonDict | None = None) -> Response:
    """An answer to an interaction, in ASCII, so that there is nothing that cannot be encoded."""
    body: JsonDict = {"type": kind} if data is None else {"type": kind, "data": data}
    return Response(headers={"content-type": "application/json"}, body=json.dumps(body).encode())


def _known(custom_id: object) -> tuple[str, str | None] | None:
    """The data of a button or a form of ours, and the message that it is about if it names one. Raises `ValueError`."""
    if not isinstance(custom_id, str):
        raise ValueError("no custom id")
    if not custom_id.startswith(PREFIX):
        return None
    data, slash, ref = custom_id.removeprefix(PREFIX).partition("/")
    if slash and _REF.fullmatch(ref) is None:
        raise ValueError("no message")
    return data, ref or None


def _is_private(message: Any) -> bool:
    """Whether one person alone sees a message."""
    flags = message.get("flags", 0) if isinstance(message, dict) else 0
    return isinstance(flags, int) and bool(flags & 64)


def _id(value: object) -> str:
    """An id of Discord. Raises `ValueError`."""
    if not isinstance(value, str) or _SNOWFLAKE.fullmatch(value) is None:
        raise ValueError("no id of Discord")
    return value


def _checked(text: str, form: re.Pattern[str]) -> str:
    """A place or a reference that may stand in an address. Raises `ChannelRefused`."""
    if form.fullmatch(text) is None:
        raise ChannelRefused(f"{quoted(text[:60])} is no id of Discord: these are digits")
    return text


def _nonce(*parts: str) -> str:
    """What tells Discord that a post is a repetition: 25 characters at most."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:25]

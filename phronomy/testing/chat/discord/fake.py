"""A fake Discord: its API over HTTP on the loopback interface, and people who click. discord.py talks to it too.

It is written from Discord's public documentation: signatures by Ed25519, and wrong ones on purpose, three seconds for an answer, modals
as first answers alone, the limits of messages, buckets and 429, posts that are known by their nonce, and the limit for old edits.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from phronomy.chat.channel import Action, Pressed
from phronomy.chat.discord.discord import Discord
from phronomy.chat.http import Response
from phronomy.testing.chat.discord.api import ANSWERING, APPLICATION_ID, BOT_TOKEN, CHANNEL, GUILD, Api, channel_of
from phronomy.testing.chat.discord.limits import Wrong
from phronomy.testing.chat.discord.markup import acted_on, buttons_of, rendered, seen
from phronomy.testing.chat.loopback import Loopback
from phronomy.testing.chat.platform import Answering, Clock, Sent, Shown, Trouble, Written

PUBLIC_KEY: Final = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
_SEED: Final = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
"""The first key of RFC 8032, section 7.1: https://www.rfc-editor.org/rfc/rfc8032#section-7.1."""

_PREFIX: Final = "phronomy:"
_LETTERS: Final[Mapping[str, Pressed]] = {
    "a": "approve",
    "r": "reject",
    "n": "reason",
    "e": "edit",
    "p": "respond",
    "s": "skip",
    "m": "remind",
}
_WRONG: Final = re.compile(r"^\*\*(.*):\*\* (.*)$", re.MULTILINE)


class FakeDiscord:
    """A Discord with one app, one server and one channel. Use it as a context, or call `close`.

    `base_url` is the address of its API. With `rates`, it takes five calls of a kind in five seconds in a channel, by its `clock`,
    and fifty in one second in all. Of messages older than an hour, a channel takes `old_edits` edits in an hour: Discord names no
    number. `calls` are the calls of the API, each with its method, path and body. A person is named by an id of Discord, or by any
    text. `failed` are the ids of interactions that were not answered in time.
    """

    place: Final = f"discord:{CHANNEL}"
    signs: Final = "requests"
    forms_are_answers: Final = True

    def __init__(self, clock: Clock | None = None, *, rates: bool = False, old_edits: int = 5) -> None:
        self.clock: Clock = clock if clock is not None else Clock()
        self.api: Api = Api(self.clock, rates=rates, old_edits=old_edits)
        self.failed: list[str] = []
        self._key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(_SEED))
        self._handler: Answering | None = None
        self._channel: Discord | None = None
        self._server = Loopback(lambda *request: self.api.answer(*request))  # noqa: PLW0108  # tests answer otherwise

    @property
    def base_url(self) -> str:
        """The address of the API."""
        return f"{self._server.url}/api/v10"

    @property
    def channel(self) -> Discord:
        """A `Discord` that talks to this fake."""
        if self._channel is None:
            self._channel = Discord(
                public_key=PUBLIC_KEY, bot_token=BOT_TOKEN, base_url=self.base_url, clock=self.clock
            )
        return self._channel

    @property
    def calls(self) -> list[tuple[str, str, dict[str, Any]]]:
        """The calls of the API: method, path and body."""
        return self.api.calls

    def __enter__(self) -> FakeDiscord:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut the server down."""
        self._server.close()

    # What people see

    def connect(self, handler: Answering) -> None:
        """Have clicks sent to this handler."""
        self._handler = handler

    def alias(self, by: str) -> str:
        """The alias by which a directory knows a person."""
        return f"discord:{user_id(by)}"

    def messages(self) -> list[Shown]:
        """The messages of the channel, oldest first, without replies."""
        return self.conversation(CHANNEL)

    def alone(self, by: str) -> list[Shown]:
        """The messages of the bot to one person alone, oldest first, without replies."""
        return self.conversation(self.api.direct(user_id(by)))

    def conversation(self, thread: str) -> list[Shown]:
        """The messages of a channel or a thread, oldest first, without replies and what quotes a slash command."""
        return [
            Shown(
                ref="/".join(key),
                text=seen(found),
                buttons=_data_in(found),
                link=next((each["url"] for each in buttons_of(found) if "url" in each), None),
                edits=self.api.edits.get(key, 0),
            )
            for key, found in [*self.api.messages.items()]
            if key[0] == thread and "message_reference" not in found and not _is_quote(found)
        ]

    def reminders(self) -> list[str]:
        """The texts of the replies."""
        return [seen(found) for found in [*self.api.messages.values()] if "message_reference" in found]

    def told(self, by: str) -> list[str]:
        """What a person alone was told."""
        return [seen(found) for found in self.api.private.get(user_id(by), [])]

    def pings(self) -> list[str]:
        """Mentions, links and markup that Discord would act on, also in what one person alone sees."""
        whole = [*self.api.messages.values(), *(each for found in self.api.private.values() for each in found)]
        return [each for found in whole for each in acted_on(found)]

    def fail(self, *troubles: Trouble) -> None:
        """What goes wrong with the next calls of the API. Answers to clicks are no calls."""
        self.api.troubles += troubles

    # What people do

    def sign(self, shown: Shown, action: Action, by: str, *, direct: bool = False) -> Sent:
        """The request that a click makes, signed now; with `direct`, as from a direct message, where nobody is a member."""
        channel, _, id = shown.ref.partition("/")
        message = self.api.messages[channel, id]
        return self._pressed(message, f"{_PREFIX}{shown.buttons[action]}", by, direct=direct)

    def signed(self, body: bytes, *, seed: str = _SEED, at: float | None = None) -> Sent:
        """A request with any body, signed with a key at a time: by default the right ones."""
        time = str(int(self.clock.now if at is None else at))
        key = self._key if seed == _SEED else Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))
        headers = {
            "Content-Type": "application/json",
            "X-Signature-Timestamp": time,
            "X-Signature-Ed25519": key.sign(time.encode() + body).hex(),
            "User-Agent": "Discord-Interactions/1.0 (+https://discord.com)",
        }
        return Sent(path="/chat/discord", headers=headers, body=body)

    def deliver(self, sent: Sent) -> Response:
        """Send a request to the handler, take its answer if that comes within three seconds, and let it finish.

        If it does not, the interaction is in `failed`, and the person sees that it has failed. An answer that Discord would not take
        is an `AssertionError`.
        """
        assert self._handler is not None, "connect the platform first"
        before = self.clock.now
        response = self._handler.handle("POST", sent.path, sent.headers, sent.body)
        interaction = self.api.interactions.get(_id_in(sent.body))
        if interaction is not None and interaction.answer is None:
            if response.status != 200 or self.clock.now - before > ANSWERING:
                self.failed.append(interaction.id)
            else:
                try:
                    self.api.called_back(interaction.id, interaction.token, json.loads(response.body))
                except Wrong as error:
                    raise AssertionError(f"Discord would not take this answer: {error}") from None
        if response.after is not None:
            response.after()
        return response

    def is_accepted(self) -> bool:
        """Whether Discord accepts the handler as the address of the app: it answers a PING, and a wrongly signed one with 401."""
        ping = json.dumps({"id": self.api.snowflake(), "application_id": APPLICATION_ID, "type": 1, "version": 1})
        right = self.deliver(self.signed(ping.encode()))
        wrong = self.deliver(self.signed(ping.encode(), seed="01" * 32))
        return right.status == 200 and json.loads(right.body) == {"type": 1} and wrong.status == 401

    def click(self, shown: Shown, action: Action, by: str) -> Response:
        """Press a button."""
        return self.deliver(self.sign(shown, action, by))

    def form(self, by: str) -> dict[str, str] | None:
        """The fields of the modal that is open for a person; None if none is."""
        found = self.api.modals.get(user_id(by))
        return {each["custom_id"]: _begins(each) for each in _inputs(found[0])} if found is not None else None

    def submit(self, by: str, values: Mapping[str, str], *, rows: bool = False) -> dict[str, str]:
        """Submit the open modal; returns what is wrong with each field, and then opens the modal again by the button below that.

        With `rows`, the fields come in rows, as they did before 2025.
        """
        user = user_id(by)
        inputs = _inputs(self.api.modals[user][0])
        sent = self.submitted(by, values, rows=rows)
        self.deliver(sent)
        told = self.api.interactions[_id_in(sent.body)].shown
        again = [each["custom_id"] for each in buttons_of(told or {})]
        if told is None or not again:
            return {}
        names = {each["custom_id"].partition(":")[2] or each["custom_id"]: each["custom_id"] for each in inputs}
        wrong = _WRONG.findall(told["embeds"][0]["description"])
        self.deliver(self._pressed(told, again[0], user))
        return {names[rendered(name)]: rendered(text) for name, text in wrong}

    def submitted(self, by: str, values: Mapping[str, str], *, rows: bool = False) -> Sent:
        """The request that a submission of the open modal makes, signed now. The modal closes."""
        user = user_id(by)
        modal, message = self.api.modals.pop(user)
        inputs = _inputs(modal)
        whole = {**{each["custom_id"]: _begins(each) for each in inputs}, **values}
        parts = [_given(each, whole[each["custom_id"]]) for each in inputs]
        components: list[dict[str, Any]] = [
            {"type": 1, "id": number, "components": [part]} if rows else {"type": 18, "id": number, "component": part}
            for number, part in enumerate(parts, start=1)
        ]
        if any(each["type"] == 10 for each in modal["components"]) and not rows:
            components.insert(0, {"type": 10, "id": len(components) + 1})
        return self._acted(5, user, {"custom_id": modal["custom_id"], "components": components}, message)

    def open(self, channel_type: int = 11) -> str:
        """Open a channel of another type, and return its id: 11 is a thread, 1 a direct message."""
        id = self.api.snowflake()
        self.api.channels[id] = channel_type
        return id

    def command(self, text: str, by: str, *, channel: str = CHANNEL) -> Sent:
        """The request that the slash command `/ask` makes in a channel or a thread, signed now."""
        options = [{"name": "text", "type": 3, "value": text}]
        data = {"id": self.api.snowflake(), "name": "ask", "type": 1, "options": options}
        return self._acted(2, user_id(by), data, None, channel=channel)

    def write(self, by: str, text: str, *, thread: str | None = None) -> Written:
        """The slash command in a thread; without one, in a new thread."""
        thread = thread if thread is not None else self.open()
        return Written(sent=self.command(text, by, channel=thread), thread=thread)

    def quotes(self, thread: str) -> list[str]:
        """The texts of slash commands that are shown in a channel or a thread, since people see no others."""
        return [seen(found) for key, found in [*self.api.messages.items()] if key[0] == thread and _is_quote(found)]

    def _pressed(self, message: dict[str, Any], custom_id: str, by: str, *, direct: bool = False) -> Sent:
        data = {"custom_id": custom_id, "component_type": 2, "id": 1}
        return self._acted(3, user_id(by), data, message, direct=direct)

    def _acted(
        self,
        kind: int,
        user: str,
        data: dict[str, Any],
        message: dict[str, Any] | None,
        *,
        direct: bool = False,
        channel: str = CHANNEL,
    ) -> Sent:
        channel = message["channel_id"] if message is not None else channel
        direct = direct or self.api.channels[channel] == 1
        interaction = self.api.began(kind, user, channel, message)
        person = {
            "id": user,
            "username": "somebody",
            "discriminator": "0",
            "global_name": "Admin",  # people choose it themselves
            "avatar": None,
        }
        member = {
            "user": person,
            "roles": [],
            "joined_at": "2026-01-01T00:00:00+00:00",
            "deaf": False,
            "mute": False,
            "flags": 0,
            "permissions": "0",
        }
        payload: dict[str, Any] = {
            "id": interaction.id,
            "application_id": APPLICATION_ID,
            "type": kind,
            "token": interaction.token,
            "version": 1,
            "data": data,
            "channel_id": channel,
            "channel": channel_of(channel, self.api.channels[channel]),
            "locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": {},
            "app_permissions": "0",
            "attachment_size_limit": 10_000_000,
        }
        payload |= {"user": person, "context": 1} if direct else {"member": member, "guild_id": GUILD, "context": 0}
        if message is not None:
            payload["message"] = message
        return self.signed(json.dumps(payload).encode())


def user_id(by: str) -> str:
    """The id of a person: the text itself if it is one, else one that follows from the text."""
    if re.fullmatch(r"\d{1,20}", by):
        return by
    return str(4 * 10**17 + int.from_bytes(hashlib.sha256(by.encode()).digest()[:7], "big"))


def _id_in(body: bytes) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    return str(found.get("id")) if isinstance(found, dict) else ""


def _data_in(message: dict[str, Any]) -> dict[str, str]:
    """What the buttons of a message carry, by their actions."""
    found = [each["custom_id"].removeprefix(_PREFIX) for each in buttons_of(message) if "custom_id" in each]
    return {_LETTERS[data[0]]: data for data in found}


def _inputs(modal: dict[str, Any]) -> list[dict[str, Any]]:
    return [each["component"] for each in modal["components"] if each["type"] == 18]


def _begins(part: dict[str, Any]) -> str:
    """What a field begins with."""
    if part["type"] == 3:
        return next((str(each["value"]) for each in part["options"] if each.get("default")), "")
    return str(part.get("value", ""))


def _given(part: dict[str, Any], value: str) -> dict[str, Any]:
    """A field as it is submitted."""
    found = {"type": part["type"], "id": 1, "custom_id": part["custom_id"]}
    if part["type"] == 3:
        assert not value or value in [each["value"] for each in part["options"]], "a choice is one of the options"
        return {**found, "values": [value] if value else []}
    return {**found, "value": value}


def _is_quote(message: dict[str, Any]) -> bool:
    """Whether a message is the answer to a slash command, and so says what was asked."""
    return bool(message.get("interaction_metadata", {}).get("type") == 2)

"""A fake Slack: its Web API over HTTP on the loopback interface, and people who click. Slack's own SDK talks to it.

It is written from Slack's public documentation: the limits of blocks and modals, triggers that live three seconds and work once, rate
limits with `Retry-After`, errors that come with status 200. https://docs.slack.dev
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from phronomy.chat.channel import Action, Channel
from phronomy.chat.http import Response
from phronomy.chat.slack.signature import sign
from phronomy.testing.chat.loopback import Loopback
from phronomy.testing.chat.platform import Answering, Clock, Sent, Shown, Trouble, Written, delivered

SECRET: Final = "8f742231b10e8888abcd99yyyzzz85a5"
TOKEN: Final = "xoxb-of-tests"
APP_TOKEN: Final = "xapp-of-tests"
BOT: Final = "U00000000BOT"
"""The signing secret, the bot token and the app token of the fake app, and the id of its bot."""

_TRIGGER: Final = 3.0
_TEXT: Final = 13_200
_DATE: Final = re.compile(r"<!date\^\d+\^[^<>|^]*\{[^<>|^]*\|[^<>|]+>")


class FakeSlack:
    """A Slack workspace with one app and one channel, `C0000000001`. Use it as a context, or call `close`.

    `base_url` is the address of its Web API. With `rates`, it takes one message a second in a channel, by its `clock`. `calls` are the
    methods that were called, each with its arguments.
    """

    team: Final = "T0000000001"
    place: Final = "slack:C0000000001"
    signs: Final = "requests"
    forms_are_answers: Final = False

    def __init__(self, clock: Clock | None = None, *, rates: bool = False) -> None:
        self.clock: Clock = clock if clock is not None else Clock()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._rates = rates
        self._lock = threading.Lock()
        self._messages: dict[tuple[str, str], dict[str, Any]] = {}
        self._edits: dict[tuple[str, str], int] = {}
        self._told: list[tuple[str, str]] = []
        self._views: dict[str, dict[str, Any]] = {}
        self._triggers: dict[str, tuple[float, str]] = {}
        self._posted: dict[str, float] = {}
        self._troubles: list[Trouble] = []
        self._handler: Answering | None = None
        self._count = 0
        self._channel: Channel | None = None
        self.socket_url: str | None = None
        self._server = Loopback(lambda _, path, headers, body: self._answer(path.rpartition("/")[2], headers, body))

    @property
    def base_url(self) -> str:
        """The address of the Web API."""
        return f"{self._server.url}/api/"

    @property
    def channel(self) -> Channel:
        """A `Slack` that talks to this fake."""
        if self._channel is None:
            from phronomy.chat.slack import Slack  # noqa: PLC0415  # it needs the SDK, which the fake does not

            self._channel = Slack(signing_secret=SECRET, bot_token=TOKEN, team_id=self.team, base_url=self.base_url)
        return self._channel

    def __enter__(self) -> FakeSlack:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut the server down."""
        self._server.close()

    # What people do and see

    def connect(self, handler: Answering) -> None:
        """Have clicks sent to this handler."""
        self._handler = handler

    def alias(self, by: str) -> str:
        """The alias by which a directory knows a person."""
        return f"slack:{by}"

    def messages(self) -> list[Shown]:
        """The messages of the channel, oldest first, without replies in threads."""
        return [
            self._shown(key)
            for key, found in [*self._messages.items()]
            if "thread_ts" not in found and key[0] == self._place
        ]

    def alone(self, by: str) -> list[Shown]:
        """The messages of the bot to one person alone, oldest first."""
        found = [key for key, each in [*self._messages.items()] if "thread_ts" not in each]
        return [self._shown(key) for key in found if key[0] == f"D{by[1:]}"]

    def conversation(self, thread: str) -> list[Shown]:
        """What the bot has posted in a thread, such as `C0000000001/1800000000.000001`, oldest first."""
        channel, _, ts = thread.partition("/")
        return [
            self._shown(key)
            for key, found in [*self._messages.items()]
            if key[0] == channel and found.get("thread_ts") == ts
        ]

    def reminders(self) -> list[str]:
        """The texts of the replies in threads which the channel sees too."""
        return [_seen(found) for found in [*self._messages.values()] if found.get("reply_broadcast")]

    def _shown(self, key: tuple[str, str]) -> Shown:
        found = self._messages[key]
        return Shown(
            ref="/".join(key),
            text=_seen(found),
            buttons=_buttons(found),
            link=_link(found),
            edits=self._edits.get(key, 0),
        )

    def told(self, by: str) -> list[str]:
        """What a person alone was told."""
        return [text for who, text in self._told if who == by]

    def pings(self) -> list[str]:
        """Mentions, links and markup that Slack would act on."""
        return [each for found in [*self._messages.values()] for each in _acted_on(found)]

    def fail(self, *troubles: Trouble) -> None:
        """What goes wrong with the next calls of the Web API."""
        self._troubles += troubles

    def write(self, by: str, text: str, *, thread: str | None = None, alone: bool = False, **changes: Any) -> Written:
        """The event of a message that mentions the bot, or, with `alone`, of a direct message. `changes` are fields of the event.

        Nothing is sent: `deliver` sends it once, and `persist` as Slack does.
        """
        with self._lock:
            self._count += 1
            number = self._count
        ts = f"{int(self.clock.now)}.{500_000 + number:06d}"
        channel = thread.partition("/")[0] if thread is not None else "D" + by[1:] if alone else self._place
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        event: dict[str, Any] = {
            "type": "message" if channel[0] == "D" else "app_mention",
            "user": by,
            "team": self.team,
            "text": escaped if channel[0] == "D" else f"<@{BOT}> {escaped}",
            "ts": ts,
            "channel": channel,
            "event_ts": ts,
        }
        event |= {"channel_type": "im"} if channel[0] == "D" else {}
        event |= {"thread_ts": thread.partition("/")[2]} if thread is not None else {}
        return Written(
            sent=self.event({**event, **changes}), thread=thread if thread is not None else f"{channel}/{ts}"
        )

    def event(self, event: Mapping[str, Any], *, id: str | None = None, retry: int = 0) -> Sent:
        """An event of the Events API, signed now. `retry` is the number of the retry, from 1."""
        with self._lock:
            self._count += 1
            number = self._count
        payload = {
            "type": "event_callback",
            "token": "none",
            "team_id": self.team,
            "api_app_id": "A0000000001",
            "event": dict(event),
            "event_id": id or f"Ev{number:09d}",
            "event_time": int(self.clock.now),
            "authorizations": [{"enterprise_id": None, "team_id": self.team, "user_id": BOT, "is_bot": True}],
            "is_ext_shared_channel": False,
        }
        return self._again(json.dumps(payload).encode(), retry)

    def persist(self, written: Written) -> int:
        """Send an event as Slack does: up to three times more, while the answer is no 200. Returns how often it was sent."""
        for retry in range(4):
            sent = written.sent if not retry else self._again(written.sent.body, retry)
            try:
                if self.deliver(sent).status == 200:
                    return retry + 1
            except OSError:  # no answer
                continue
        return 4

    def _again(self, body: bytes, retry: int) -> Sent:
        sent = self.signed(body)
        headers = {**sent.headers, "Content-Type": "application/json"}
        headers |= {"X-Slack-Retry-Num": str(retry), "X-Slack-Retry-Reason": "http_error"} if retry else {}
        return Sent(path=sent.path, headers=headers, body=body)

    @property
    def _place(self) -> str:
        return self.place.partition(":")[2]

    def sign(self, shown: Shown, action: Action, by: str, *, team: str | None = None) -> Sent:
        """The request that a click makes, signed now."""
        channel, _, ts = shown.ref.partition("/")
        self._count += 1
        trigger = f"trigger.{self._count}"
        self._triggers[trigger] = (self.clock.now + _TRIGGER, by)
        value = shown.buttons[action]
        found = self._messages.get((channel, ts), {})
        thread = {"thread_ts": found["thread_ts"]} if "thread_ts" in found else {}
        payload = {
            "type": "block_actions",
            "user": {"id": by, "username": f"somebody-{by}", "team_id": team or self.team},
            "team": {"id": self.team, "domain": "tests"},
            "api_app_id": "A0000000001",
            "container": {"type": "message", "message_ts": ts, "channel_id": channel, **thread},
            "channel": {"id": channel, "name": "general"},
            "trigger_id": trigger,
            "response_url": "https://hooks.slack.com/actions/none",
            "actions": [
                {
                    "type": "button",
                    "action_id": f"phronomy:{action}",
                    "block_id": "b",
                    "value": value,
                    "action_ts": f"{self.clock.now + self._count / 1e6:.6f}",
                }
            ],
        }
        return self.signed(urlencode({"payload": json.dumps(payload)}).encode())

    def signed(self, body: bytes, *, secret: str = SECRET, at: float | None = None) -> Sent:
        """A request with any body, signed with a secret at a time: by default the right ones."""
        time = str(int(self.clock.now if at is None else at))
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "X-Slack-Request-Timestamp": time,
            "X-Slack-Signature": sign(secret, time, body),
        }
        return Sent(path="/chat/slack", headers=headers, body=body)

    def deliver(self, sent: Sent) -> Response:
        """Send a request to the handler, and let it finish."""
        return delivered(self._handler, sent)

    def click(self, shown: Shown, action: Action, by: str) -> Response:
        """Press a button."""
        return self.deliver(self.sign(shown, action, by))

    def form(self, by: str) -> dict[str, str] | None:
        """The fields of the modal that is open for a person; None if none is."""
        view = self._views.get(by)
        return dict(_fields(view)) if view is not None and "submit" in view else None

    def submit(self, by: str, values: Mapping[str, str]) -> dict[str, str]:
        """Submit the open modal; returns what is wrong with each field."""
        view = self._views[by]
        whole = {**dict(_fields(view)), **values}
        state = {
            block["block_id"]: {"value": _input(block["element"], whole[block["block_id"]])}
            for block in view["blocks"]
            if block["type"] == "input"
        }
        payload = {
            "type": "view_submission",
            "user": {"id": by, "team_id": self.team},
            "team": {"id": self.team},
            "view": {**view, "id": "V1", "hash": "1", "state": {"values": state}},
        }
        response = self.deliver(self.signed(urlencode({"payload": json.dumps(payload)}).encode()))
        answer = json.loads(response.body) if response.body else {}
        if answer.get("response_action") == "errors":
            errors: dict[str, str] = answer["errors"]
            assert errors and errors.keys() <= state.keys(), "errors are for the blocks of the modal"
            return errors
        del self._views[by]
        if answer.get("response_action") == "update":
            _check_view(answer["view"])
            self._told.append((by, "\n".join(_texts(answer["view"]["blocks"]))))
        return {}

    # The Web API

    def _answer(self, method: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], dict[str, Any]] | None:
        if headers.get("content-type", "").startswith("application/json"):
            arguments: dict[str, Any] = json.loads(body)
        else:
            arguments = {name: values[-1] for name, values in parse_qs(body.decode()).items()}
        with self._lock:
            self.calls.append((method, arguments))
            if method == "apps.connections.open" and headers.get("authorization") == f"Bearer {APP_TOKEN}":
                found = (
                    {"ok": True, "url": self.socket_url} if self.socket_url else {"ok": False, "error": "not_allowed"}
                )
                return 200, {}, found
            if headers.get("authorization") != f"Bearer {TOKEN}":
                return 200, {}, {"ok": False, "error": "invalid_auth"}
            trouble = self._troubles.pop(0) if self._troubles else None
            if trouble == "limited":
                return 429, {"Retry-After": "30"}, {"ok": False, "error": "ratelimited"}
            if trouble == "down":
                return 503, {}, {"ok": False, "error": "service_unavailable"}
            if trouble is not None and trouble != "dropped":
                code = "message_not_found" if trouble == "gone" else "channel_not_found"
                return 200, {}, {"ok": False, "error": code}
            try:
                found = self._do(method, arguments)
            except _Limited:
                return 429, {"Retry-After": "1"}, {"ok": False, "error": "ratelimited"}
            except _Wrong as error:
                return 200, {}, {"ok": False, "error": str(error)}
            return None if trouble == "dropped" else (200, {}, {"ok": True, **found})

    def _do(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if method == "views.open":
            return self._open(arguments)
        channel = str(arguments.get("channel"))
        if channel.startswith("U"):
            channel = f"D{channel[1:]}"  # the conversation of the bot with this member
        if channel != self._place and not channel.startswith("D"):
            raise _Wrong("channel_not_found")
        if method == "chat.postEphemeral":
            self._told.append((arguments["user"], _unescaped(arguments["text"])))
            return {"message_ts": "1.1"}
        _check_message(arguments)
        if method == "chat.update":
            key = (channel, str(arguments.get("ts")))
            if key not in self._messages:
                raise _Wrong("message_not_found")
            self._messages[key] = {**self._messages[key], **arguments}
            self._edits[key] = self._edits.get(key, 0) + 1
            return {"channel": channel, "ts": key[1]}
        if method != "chat.postMessage":
            raise _Wrong("unknown_method")
        if self._rates and self.clock.now - self._posted.get(channel, 0.0) < 1.0:
            raise _Limited
        self._posted[channel] = self.clock.now
        if "thread_ts" in self._messages.get((channel, str(arguments.get("thread_ts"))), {}):
            raise _Wrong("cannot_reply_to_message")  # it is a reply itself
        key = (channel, f"{int(self.clock.now)}.{len(self._messages) + 1:06d}")
        self._messages[key] = arguments
        return {"channel": channel, "ts": key[1], "message": {}}

    def _open(self, arguments: dict[str, Any]) -> dict[str, Any]:
        trigger = str(arguments.get("trigger_id"))
        if trigger not in self._triggers:
            raise _Wrong("invalid_trigger_id")
        until, by = self._triggers[trigger]
        if not by:
            raise _Wrong("exchanged_trigger_id")
        if self.clock.now > until:
            raise _Wrong("expired_trigger_id")
        _check_view(arguments["view"])
        self._triggers[trigger] = (until, "")
        self._views[by] = arguments["view"]
        return {"view": {"id": "V1"}}


class _Wrong(Exception):
    """An error of the Web API, by its code."""


class _Limited(Exception):
    """Too many calls."""


def _check_message(arguments: dict[str, Any]) -> None:
    """What Slack refuses about a message."""
    blocks = arguments.get("blocks") or []
    if not arguments.get("text") and not blocks:
        raise _Wrong("no_text")
    if len(str(arguments.get("text"))) > 40_000 or len(json.dumps(arguments.get("metadata") or {})) > 8_000:
        raise _Wrong("msg_too_long")
    if len(blocks) > 50 or sum(len(each) for each in _texts(blocks)) > _TEXT:
        raise _Wrong("msg_blocks_too_long")
    _check_blocks(blocks)


def _check_view(view: dict[str, Any]) -> None:
    for name in ("title", "submit", "close"):
        if len(view.get(name, {}).get("text", "x")) > 24:
            raise _Wrong("invalid_arguments")
    if len(view.get("private_metadata", "")) > 3_000 or len(view["blocks"]) > 100:
        raise _Wrong("invalid_arguments")
    if any(block["type"] == "input" for block in view["blocks"]) != ("submit" in view):
        raise _Wrong("invalid_arguments")
    _check_blocks(view["blocks"])


def _check_blocks(blocks: list[dict[str, Any]]) -> None:
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    if len(set(ids)) < len(ids) or any(len(each) > 255 for each in ids):
        raise _Wrong("invalid_blocks")
    for block in blocks:
        if not _is_allowed(block):
            raise _Wrong("invalid_blocks")


def _is_allowed(block: dict[str, Any]) -> bool:
    """Whether a block keeps to the limits of Block Kit."""
    kind = block["type"]
    if kind == "header":
        return block["text"]["type"] == "plain_text" and 0 < len(block["text"]["text"]) <= 150
    if kind == "rich_text":
        parts = [part for each in block["elements"] for part in each["elements"]]
        return all(each["type"].startswith("rich_text_") for each in block["elements"]) and all(map(_is_part, parts))
    if kind == "actions":
        buttons = block["elements"]
        names = [each["action_id"] for each in buttons]
        sized = all(
            0 < len(each["text"]["text"]) <= 75
            and len(each.get("value", "")) <= 2_000
            and len(each.get("url", "")) <= 3_000
            and len(each["action_id"]) <= 255
            for each in buttons
        )
        return 0 < len(buttons) <= 25 and len(set(names)) == len(names) and sized
    if kind == "input":
        element = block["element"]
        options = element.get("options", [])
        return (
            0 < len(block["label"]["text"]) <= 2_000
            and len(block.get("hint", {}).get("text", "")) <= 2_000
            and len(element.get("initial_value", "")) <= 3_000
            and len(options) <= 100
            and all(0 < len(each["value"]) <= 150 and len(each["text"]["text"]) <= 75 for each in options)
        )
    return kind in ("section", "context", "divider")


def _is_part(part: dict[str, Any]) -> bool:
    """True if a part of rich text has the members that Slack wants of it."""
    if part["type"] == "date":
        return type(part["timestamp"]) is int and "{" in part["format"] and bool(part["fallback"])
    return part["type"] != "text" or isinstance(part["text"], str)


def _texts(value: object) -> Iterator[str]:
    """All texts of blocks that people read."""
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        if isinstance(value.get("text"), str):
            yield value["text"]
        elif value.get("type") == "date":
            yield value["fallback"]
        elif value.get("type") == "user":
            yield f"@{value['user_id']}"
        for name, each in value.items():
            if name not in ("value", "options") and not isinstance(each, str):
                yield from _texts(each)


def _seen(message: dict[str, Any]) -> str:
    return "\n".join("".join(_texts(block)) for block in message.get("blocks") or [])


def _buttons(message: dict[str, Any]) -> dict[str, str]:
    return {
        each["action_id"].removeprefix("phronomy:"): each["value"]
        for block in message.get("blocks") or []
        if block["type"] == "actions"
        for each in block["elements"]
        if "value" in each
    }


def _link(message: dict[str, Any]) -> str | None:
    blocks = [block for block in message.get("blocks") or [] if block["type"] == "actions"]
    return next((each["url"] for block in blocks for each in block["elements"] if "url" in each), None)


def _acted_on(message: dict[str, Any]) -> Iterator[str]:
    """What Slack would act on: entities of markup in the text, and elements of rich text that are not plain."""
    yield from re.findall(r"<[^>]*>?", _DATE.sub("", message.get("text") or ""))
    if message.get("parse") != "none" or message.get("link_names"):
        yield "parse"
    todo: list[Any] = list(message.get("blocks") or [])
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            if each.get("type") == "mrkdwn" and ("<" in each["text"] or re.search(r"[*_~`]", each["text"])):
                yield each["text"]
            if each.get("type") == "user":
                yield f"<@{each['user_id']}>"
            if each.get("type") in ("usergroup", "channel", "broadcast", "link", "emoji"):
                yield str(each["type"])
            todo += each.values()
        elif isinstance(each, list):
            todo += each


def _fields(view: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for block in view["blocks"]:
        if block["type"] == "input":
            element = block["element"]
            chosen = element.get("initial_option", {}).get("value", "")
            yield block["block_id"], element.get("initial_value", chosen)


def _input(element: dict[str, Any], value: str) -> dict[str, Any]:
    if element["type"] == "static_select":
        return {"type": "static_select", "selected_option": {"value": value} if value else None}
    return {"type": "plain_text_input", "value": value or None}


def _unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


__all__ = ["APP_TOKEN", "BOT", "SECRET", "TOKEN", "FakeSlack"]

"""The Bot API of a fake Telegram, over HTTP on the loopback interface: its methods, limits and errors.

It takes arguments as JSON, as a form or in the address, as Telegram does. https://core.telegram.org/bots/api
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from math import ceil
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from phronomy.errors import Portable
from phronomy.testing.chat.loopback import Answer, Loopback
from phronomy.testing.chat.platform import Clock, Trouble
from phronomy.testing.chat.telegram.entities import CannotParse, read, size

TOKEN: Final = "7000000001:AAE-of-tests_0123456789abcdefghijk"
SECRET: Final = "secret-of-tests_0123456789"
"""The token of the fake bot, and the secret token of its webhook."""

GROUP: Final = -1001234567890
BOT: Final[Mapping[str, Any]] = {
    "id": 7000000001,
    "is_bot": True,
    "first_name": "Refund desk",
    "username": "refund_desk_bot",
    "can_join_groups": True,
    "can_read_all_group_messages": False,
    "supports_inline_queries": False,
}
_CALLBACK: Final = 15.0
"""Seconds after which a click cannot be answered any more."""
_LONGEST: Final = 4_096
_STRUCTURES: Final = frozenset(
    {"reply_markup", "link_preview_options", "reply_parameters", "entities", "allowed_updates"}
)
_FAILS: Final = frozenset({"sendMessage", "editMessageText", "editMessageReplyMarkup", "answerCallbackQuery"})


class Wrong(Portable, Exception):
    """An error of the Bot API."""

    def __init__(self, status: int, description: str, **parameters: object) -> None:
        super().__init__(description)
        self.status = status
        self.parameters = parameters


class BotServer:
    """The Bot API for one bot, in one supergroup and in a chat with each person who has pressed Start.

    `base_url` is its address. With `rates`, it takes 20 messages a minute in the group and some 1 a second in another chat, by
    its `clock`. `calls` are the methods that were called, each with its arguments.
    """

    def __init__(self, clock: Clock | None = None, *, rates: bool = False) -> None:
        self.clock: Clock = clock if clock is not None else Clock()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.webhook: dict[str, Any] = {}
        self.topics: set[int] = set()
        self._rates = rates
        self._messages: dict[tuple[int, int], dict[str, Any]] = {}
        self._quiet: dict[tuple[int, int], bool] = {}
        self._edits: dict[tuple[int, int], int] = {}
        self._started: set[int] = set()
        self._left = False
        self._alerts: list[tuple[int, str]] = []
        self._queries: dict[str, tuple[float, int]] = {}
        self._prompts: dict[int, tuple[int, int]] = {}
        self._times: dict[int, list[float]] = {}
        self._troubles: list[Trouble] = []
        self._updates: list[dict[str, Any]] = []
        self._count = 0
        self._asked = 0
        self._lock = threading.Condition()
        self._server = Loopback(self._served)

    @property
    def base_url(self) -> str:
        """The address of the Bot API, for `Telegram(base_url=...)`."""
        return self._server.url

    def close(self) -> None:
        """Shut the server down."""
        with self._lock:
            self._asked += 1
            self._lock.notify_all()
        self._server.close()

    def fail(self, *troubles: Trouble) -> None:
        """What goes wrong with the next messages, edits and answers to clicks; `"gone"` waits for an edit."""
        self._troubles += troubles

    # Updates

    def queue(self, update: Mapping[str, Any]) -> None:
        """Have an update wait for `getUpdates`, or for `push`."""
        with self._lock:
            self._updates.append(dict(update))
            self._updates.sort(key=lambda each: int(each["update_id"]))
            self._lock.notify_all()

    @property
    def waiting(self) -> list[int]:
        """The ids of the updates that nobody has taken."""
        return [each["update_id"] for each in self._updates]

    def push(self) -> list[int]:
        """Send the updates that wait to the webhook, over HTTP, and return the statuses. What is not taken waits, and comes again."""
        statuses: list[int] = []
        for update in [*self._updates]:
            status = self._pushed(update)
            statuses.append(status)
            if 200 <= status < 300:
                with self._lock:
                    self._updates.remove(update)
        return statuses

    def _pushed(self, update: dict[str, Any]) -> int:
        address = urlsplit(self.webhook["url"])
        headers = {"content-type": "application/json"}
        if "secret_token" in self.webhook:
            headers["x-telegram-bot-api-secret-token"] = self.webhook["secret_token"]
        connection = HTTPConnection(address.hostname or "", address.port or 80, timeout=20)
        try:
            connection.request("POST", address.path, json.dumps(update).encode(), headers)
            return connection.getresponse().status
        except (OSError, HTTPException):
            return 0
        finally:
            connection.close()

    def _number(self) -> int:
        self._count += 1
        return self._count

    # Methods

    def _served(self, _: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """The answer to a request of HTTP: of the bot whose token is in the path."""
        address = urlsplit(path)
        _, bot, method = [*address.path.split("/", 2), "", ""][:3]
        found: tuple[int, dict[str, Any]] | None
        if bot != f"bot{TOKEN}":
            found = _failed(Wrong(401, "Unauthorized") if bot.startswith("bot") else Wrong(404, "Not Found"))
        else:
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            try:
                arguments = _arguments(kind, address.query, body)
            except ValueError:
                found = _failed(Wrong(400, "Bad Request: can't parse the request"))
            else:
                found = self.answer(method, arguments)
        return (found[0], {}, found[1]) if found is not None else None

    def answer(self, method: str, arguments: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """The status and the body of an answer; None if it is lost."""
        if method == "getUpdates":
            return self._tried(lambda: self._get_updates(arguments))
        with self._lock:
            self.calls.append((method, arguments))
            trouble = self._trouble(method)
            if trouble == "limited":
                return _failed(Wrong(429, "Too Many Requests: retry after 30", retry_after=30))
            if trouble == "down":
                return 502, {"ok": False, "error_code": 502, "description": "Bad Gateway"}
            if trouble == "refused":
                return _failed(Wrong(403, "Forbidden: bot is not a member of the supergroup chat"))
            if trouble == "gone":
                return _failed(Wrong(400, "Bad Request: message to edit not found"))
            found = self._tried(lambda: self._do(method, arguments))
            return None if trouble == "dropped" else found

    def _trouble(self, method: str) -> Trouble | None:
        is_edit = method.startswith("editMessage")
        if method not in _FAILS or not self._troubles or (self._troubles[0] == "gone" and not is_edit):
            return None
        return self._troubles.pop(0)

    def _tried(self, work: Any) -> tuple[int, dict[str, Any]]:
        try:
            return 200, {"ok": True, "result": work()}
        except Wrong as error:
            return _failed(error)

    def _do(self, method: str, arguments: dict[str, Any]) -> Any:
        match method:
            case "getMe":
                return dict(BOT)
            case "setWebhook":
                return self._set_webhook(arguments)
            case "deleteWebhook":
                self.webhook = {}
                return True
            case "sendMessage":
                return self._send(arguments)
            case "editMessageText" | "editMessageReplyMarkup":
                return self._edit(arguments, text=method == "editMessageText")
            case "answerCallbackQuery":
                return self._answer_query(arguments)
            case _:
                raise Wrong(404, "Not Found: method not found")

    def _set_webhook(self, arguments: dict[str, Any]) -> bool:
        url = str(arguments.get("url", ""))
        address = urlsplit(url)
        is_here = address.hostname == "127.0.0.1"  # a real one takes no such address
        if url and address.scheme != "https" and not is_here:
            raise Wrong(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
        if url and not is_here and address.port not in (None, 443, 80, 88, 8443):
            raise Wrong(400, "Bad Request: bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443")
        if not re.fullmatch(r"[A-Za-z0-9_-]{0,256}", str(arguments.get("secret_token", ""))):
            raise Wrong(400, "Bad Request: secret token contains unallowed characters")
        self.webhook = dict(arguments) if url else {}
        return True

    def _get_updates(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        offset, limit = int(arguments.get("offset") or 0), int(arguments.get("limit") or 100)
        until = time.monotonic() + float(arguments.get("timeout") or 0)
        with self._lock:
            self.calls.append(("getUpdates", arguments))
            if self.webhook:
                raise Wrong(
                    409,
                    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first",
                )
            self._asked += 1
            mine = self._asked
            self._lock.notify_all()
            self._updates = [each for each in self._updates if each["update_id"] >= offset]
            while not self._updates and time.monotonic() < until:
                self._lock.wait(max(until - time.monotonic(), 0))
                if self._asked != mine:
                    raise Wrong(
                        409,
                        "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
                    )
            return self._updates[:limit]

    def _send(self, arguments: dict[str, Any]) -> dict[str, Any]:
        chat = self._chat(arguments)
        thread = arguments.get("message_thread_id")
        if thread is not None and int(thread) not in self.topics:
            raise Wrong(400, "Bad Request: message thread not found")
        text, entities = _text(arguments)
        markup = arguments.get("reply_markup")
        _check_markup(markup)
        answers = (arguments.get("reply_parameters") or {}).get("message_id")
        replied = self._messages.get((chat, int(answers))) if answers is not None else None
        if (
            answers is not None
            and replied is None
            and not arguments["reply_parameters"].get("allow_sending_without_reply")
        ):
            raise Wrong(400, "Bad Request: message to be replied not found")
        self._take_turn(chat)
        message = self._new(chat, dict(BOT), text, entities=entities, markup=markup, replied=replied, thread=thread)
        key = (chat, message["message_id"])
        self._quiet[key] = bool((arguments.get("link_preview_options") or {}).get("is_disabled"))
        if (markup or {}).get("force_reply"):
            named = [each["user"]["id"] for each in entities if each["type"] == "text_mention"]
            for user in [chat] if chat > 0 else named:
                self._prompts[user] = key
        return _shown(message)

    def _new(
        self,
        chat: int,
        sender: dict[str, Any],
        text: str | None,
        *,
        entities: list[dict[str, Any]] | None = None,
        markup: dict[str, Any] | None = None,
        replied: dict[str, Any] | None = None,
        thread: int | None = None,
    ) -> dict[str, Any]:
        """A message that is there from now on."""
        number = self._number()
        message: dict[str, Any] = {
            "message_id": number,
            "date": int(self.clock.now),
            "chat": _chat_of(chat),
            "from": sender,
        }
        message |= {"text": text} if text else {"dice": {"emoji": "\N{GAME DIE}", "value": 1}}
        message |= {"entities": entities} if entities else {}
        message |= {"reply_markup": markup} if markup else {}
        message |= {"reply_to_message": _shown(replied, inside=True)} if replied is not None else {}
        message |= {"message_thread_id": int(thread), "is_topic_message": True} if thread is not None else {}
        self._messages[chat, number] = message
        return message

    def _edit(self, arguments: dict[str, Any], *, text: bool) -> dict[str, Any]:
        key = (self._chat(arguments), int(arguments.get("message_id") or 0))
        message = self._messages.get(key)
        if message is None:
            raise Wrong(400, "Bad Request: message to edit not found")
        if message["from"]["id"] != BOT["id"] or "force_reply" in message.get("reply_markup", {}):
            raise Wrong(400, "Bad Request: message can't be edited")
        new = {
            name: value
            for name, value in message.items()
            if name not in ("reply_markup", *(("text", "entities") if text else ()))
        }
        if text:
            plain, entities = _text(arguments)
            new |= {"text": plain, **({"entities": entities} if entities else {})}
            self._quiet[key] = bool((arguments.get("link_preview_options") or {}).get("is_disabled"))
        markup = arguments.get("reply_markup")
        _check_markup(markup)
        new |= {"reply_markup": markup} if (markup or {}).get("inline_keyboard") else {}
        before = {name: value for name, value in message.items() if name != "edit_date"}
        if not before.get("reply_markup", {}).get("inline_keyboard"):
            before.pop("reply_markup", None)
        if {name: value for name, value in new.items() if name != "edit_date"} == before:
            raise Wrong(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup are exactly the same"
                " as a current content and reply markup of the message",
            )
        self._messages[key] = {**new, "edit_date": int(self.clock.now)}
        self._edits[key] = self._edits.get(key, 0) + 1
        return _shown(self._messages[key])

    def _answer_query(self, arguments: dict[str, Any]) -> bool:
        query = self._queries.get(str(arguments.get("callback_query_id")))
        if query is None or self.clock.now - query[0] > _CALLBACK:
            raise Wrong(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        text = str(arguments.get("text") or "")
        if size(text) > 200:
            raise Wrong(400, "Bad Request: MESSAGE_TOO_LONG")
        if text:
            self._alerts.append((query[1], text))
        return True

    def _chat(self, arguments: dict[str, Any]) -> int:
        try:
            chat = int(arguments.get("chat_id") or 0)
        except ValueError:
            chat = 0
        if chat == GROUP:
            if self._left:
                raise Wrong(403, "Forbidden: bot was kicked from the supergroup chat")
            return chat
        if chat <= 0:
            raise Wrong(400, "Bad Request: chat not found")
        if chat not in self._started:
            raise Wrong(403, "Forbidden: bot can't initiate conversation with a user")
        return chat

    def _take_turn(self, chat: int) -> None:
        """A group takes 20 messages a minute, another chat one a second, of which five may come at once."""
        if not self._rates:
            return
        most, seconds = (20, 60.0) if chat < 0 else (5, 5.0)
        times = [each for each in self._times.get(chat, []) if each > self.clock.now - seconds]
        if len(times) >= most:
            after = max(1, ceil(times[0] + seconds - self.clock.now))
            raise Wrong(429, f"Too Many Requests: retry after {after}", retry_after=after)
        self._times[chat] = [*times, self.clock.now]


def _failed(error: Wrong) -> tuple[int, dict[str, Any]]:
    body = {"ok": False, "error_code": error.status, "description": str(error)}
    return error.status, {**body, **({"parameters": error.parameters} if error.parameters else {})}


def _chat_of(chat: int) -> dict[str, Any]:
    if chat < 0:
        return {"id": chat, "type": "supergroup", "title": "Refunds"}
    return {"id": chat, "type": "private", "first_name": "?"}


def _shown(message: dict[str, Any], *, inside: bool = False) -> dict[str, Any]:
    """A message as Telegram gives it out: a prompt without its markup, and a reply in a reply without its own."""
    hidden = {"reply_to_message"} if inside else set[str]()
    if "inline_keyboard" not in message.get("reply_markup", {}):
        hidden.add("reply_markup")
    return {name: value for name, value in message.items() if name not in hidden}


def _text(arguments: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    mode = arguments.get("parse_mode")
    if mode not in (None, "HTML"):
        raise Wrong(400, "Bad Request: unsupported parse_mode")
    try:
        text, entities = read(str(arguments.get("text") or ""), is_html=mode == "HTML")
    except CannotParse as error:
        raise Wrong(400, f"Bad Request: can't parse entities: {error}") from None
    if not text:
        raise Wrong(400, "Bad Request: message text is empty")
    if size(text) > _LONGEST:
        raise Wrong(400, "Bad Request: message is too long")
    return text, entities


def _check_markup(markup: Any) -> None:
    if markup is None:
        return
    if not isinstance(markup, dict):
        raise Wrong(400, "Bad Request: object expected as reply markup")
    if len(str(markup.get("input_field_placeholder") or "")) > 64:
        raise Wrong(400, "Bad Request: REPLY_MARKUP_INVALID")
    rows = markup.get("inline_keyboard") or []
    if any(len(row) > 8 for row in rows) or sum(map(len, rows)) > 100:
        raise Wrong(400, "Bad Request: reply markup is too long")
    for button in (each for row in rows for each in row):
        if not button.get("text"):
            raise Wrong(
                400,
                "Bad Request: can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard",
            )
        if "callback_data" in button and not 1 <= len(button["callback_data"].encode()) <= 64:
            raise Wrong(400, "Bad Request: BUTTON_DATA_INVALID")
        if "url" in button and "." not in (urlsplit(button["url"]).hostname or ""):
            raise Wrong(400, f"Bad Request: inline keyboard button URL '{button['url']}' is invalid: Wrong HTTP URL")


def _arguments(kind: str, query: str, body: bytes) -> dict[str, Any]:
    """The arguments of a call: of the address, and of a body that is JSON or a form, in which structures are JSON."""
    pairs = dict(parse_qsl(query))
    if kind == "application/json" and body:
        found = json.loads(body)
        return {**pairs, **found}
    pairs |= dict(parse_qsl(body.decode()))
    return {name: json.loads(value) if name in _STRUCTURES else value for name, value in pairs.items()}

"""The Bot API of Telegram: one method after the other, over HTTPS. https://core.telegram.org/bots/api

The token of the bot stands in the path of each address. The client of httpx2 logs addresses, so requests go straight to its transport.
Errors say which method failed, and never where to. What Telegram says of a failure may quote what was sent, so errors use our words.
"""

from __future__ import annotations

import json
import os
import re
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

from phronomy.chat.channel import ChannelError, ChannelRefused, RateLimited
from phronomy.chat.http import limited
from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import JsonError, parse

if TYPE_CHECKING:
    import httpx2

URL: Final = "https://api.telegram.org"
UPDATES: Final = ("message", "callback_query")
"""The kinds of update that are asked for."""

_TOKEN: Final = re.compile(r"(\d{1,19}):[A-Za-z0-9_-]{20,100}")
_CONNECT: Final = 5.0
_LONGEST_WAIT: Final = 3_600.0
_LARGEST: Final = 32 * 1_024 * 1_024
"""Bytes of the largest answer that is read: a hundred updates have much less."""

_KNOWN: Final = (
    ("message is not modified", "the message says this already"),
    ("query is too old", "the click was too long ago"),
    ("message to edit not found", "the message is not there"),
    ("message can't be edited", "the message can't be edited"),
    ("message_id_invalid", "the message is not there"),
    ("chat not found", "the chat is not there, or the bot is not in it"),
    ("group chat was upgraded", "the group is a supergroup now, and has another id: route to that"),
    ("message thread not found", "the topic is not there"),
    ("topic_closed", "the topic is closed"),
    ("topic_deleted", "the topic is not there"),
    ("bot was blocked", "the person has blocked the bot"),
    ("can't initiate conversation", "the person has not pressed Start in a chat with the bot"),
    ("bot was kicked", "the bot was removed from the chat"),
    ("bot is not a member", "the bot is not in the chat"),
    ("user is deactivated", "the account is not there any more"),
    ("not enough rights", "the bot may not write there"),
    ("have no rights to send", "the bot may not write there"),
    ("can't parse entities", "the markup is wrong"),
    ("message is too long", "the message is too long"),
    ("message text is empty", "the message is empty"),
    ("button_data_invalid", "a button carries too much"),
    ("wrong http url", "the address of a button is wrong"),
    ("button_url_invalid", "the address of a button is wrong"),
    ("bad webhook", "Telegram does not take this address: it needs HTTPS, a public host, and port 443, 80, 88 or 8443"),
    ("webhook is active", "a webhook is set"),
    ("terminated by other getupdates", "another process asks for updates"),
    ("unauthorized", "the token of the bot is wrong"),
)
"""What Telegram says, and what it comes to."""

NOT_MODIFIED: Final = _KNOWN[0][1]
TOO_OLD: Final = _KNOWN[1][1]
WRONG_URL: Final = "the address of a button is wrong"
WEBHOOK_IS_SET: Final = "a webhook is set"
_GONE: Final = frozenset({"the message is not there", "the message can't be edited"})


class BotRefused(ChannelRefused):
    """Telegram refuses something. `why` is one of the texts that are known here, or the status.

    `moved_to` is the id of the supergroup that a group has become.
    """

    def __init__(self, method: str, why: str, *, moved_to: int | None = None) -> None:
        # A message of a group is not in the supergroup that has taken its place.
        super().__init__(f"{method}: {why}", gone=why in _GONE or moved_to is not None)
        self.why: str = why
        self.moved_to: int | None = moved_to


class BotApi:
    """The Bot API for one bot. `token` is the bot's, `base_url` that of Telegram, or of a Bot API server of your own.

    Raises `ConfigurationError` for a token that cannot be one.
    """

    def __init__(self, token: str, base_url: str = URL) -> None:
        found = _TOKEN.fullmatch(token) if isinstance(token, str) else None
        if found is None:
            raise ConfigurationError(
                "the token of a Telegram bot is a number, a colon and some 35 characters: @BotFather gives it"
            )
        if not isinstance(base_url, str) or not base_url.startswith(("https://", "http://")):
            raise ConfigurationError("base_url is the address of a Bot API server, such as https://api.telegram.org")
        self.bot: Final = int(found[1])
        self._token = token
        self._base = base_url.rstrip("/")
        self._lock = threading.Lock()
        self._kept: tuple[int, httpx2.HTTPTransport] | None = None

    def __repr__(self) -> str:
        return f"BotApi(bot={self.bot})"

    def call(self, method: str, *, seconds: float = 10.0, **arguments: object) -> Any:
        """Call a method, and return its result; arguments that are None are left out.

        `seconds` is how long Telegram may take to answer. Raises `BotRefused`, `RateLimited`, and `ChannelError` for all that may
        go well another time.
        """
        import httpx2  # noqa: PLC0415  # loads on the first call

        body = json.dumps({name: value for name, value in arguments.items() if value is not None}).encode()
        request = httpx2.Request(
            "POST",
            f"{self._base}/bot{self._token}/{method}",
            content=body,
            headers={"content-type": "application/json", "accept-encoding": "identity"},
            extensions={"timeout": httpx2.Timeout(seconds, connect=min(_CONNECT, max(seconds, 0.1))).as_dict()},
        )
        try:
            response = self._transport().handle_request(request)
            try:
                answer = limited(response.iter_raw(), most=_LARGEST, seconds=seconds)
            finally:
                response.close()
        except (httpx2.HTTPError, httpx2.StreamError, OSError, ValueError) as error:
            raise ChannelError(f"{method}: {type(error).__name__}") from None
        return _result(method, response.status_code, answer)

    def close(self) -> None:
        """Close the connections. The next call opens another."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            _close(kept[1], kept[0])

    def _transport(self) -> httpx2.HTTPTransport:
        """The connections of this process: after a fork the child opens its own."""
        import httpx2  # noqa: PLC0415

        pid = os.getpid()
        with self._lock:
            if self._kept is None or self._kept[0] != pid:
                self._kept = (pid, httpx2.HTTPTransport(proxy=_proxy(self._base)))
                weakref.finalize(self, _close, self._kept[1], pid)
            return self._kept[1]


def _close(transport: httpx2.HTTPTransport, pid: int) -> None:
    if pid == os.getpid():
        transport.close()


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for the address."""
    from urllib.parse import urlsplit  # noqa: PLC0415
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415

    parts, proxies = urlsplit(url), getproxies()
    if not proxies or proxy_bypass(parts.hostname or ""):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")


def _result(method: str, status: int, answer: bytes) -> Any:
    try:
        found = parse(answer.decode())
    except (JsonError, UnicodeDecodeError):
        found = None
    said: dict[str, Any] = dict(found) if isinstance(found, dict) else {}
    if status == 200 and said.get("ok") is True:
        return said.get("result")
    parameters = said.get("parameters")
    after = parameters.get("retry_after") if isinstance(parameters, dict) else None
    if status == 429:
        seconds = (
            min(max(after, 1.0), _LONGEST_WAIT)
            if isinstance(after, int | float) and not isinstance(after, bool)
            else 1.0
        )
        raise RateLimited(f"{method}: Telegram asks to wait", seconds=seconds)
    if said.get("ok") is not False or status >= 500:
        raise ChannelError(f"{method}: status {status}")
    description = str(said.get("description", "")).lower()
    why = next((ours for theirs, ours in _KNOWN if theirs in description), f"status {status}")
    to = parameters.get("migrate_to_chat_id") if isinstance(parameters, dict) else None
    if isinstance(to, int) and not isinstance(to, bool) and abs(to) < 2**63:  # a number says nothing of anybody
        raise BotRefused(
            method, f"the group is a supergroup now, and has another id: route to telegram:{to}", moved_to=to
        )
    raise BotRefused(method, why)

"""The state of a fake Discord and the methods of its API: messages, interactions, limits and errors.

https://docs.discord.com/developers/reference, https://docs.discord.com/developers/topics/rate-limits,
https://docs.discord.com/developers/topics/opcodes-and-status-codes
"""

from __future__ import annotations

import json
import math
import re
import threading
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final

from phronomy.foundation.dataclasses import dataclass
from phronomy.testing.chat.discord.limits import Wrong, check_command, check_message, check_modal
from phronomy.testing.chat.platform import Clock, Trouble

APPLICATION_ID: Final = "200000000000000001"
BOT_TOKEN: Final = "MTIz.of.tests"
CHANNEL: Final = "100000000000000001"
GUILD: Final = "300000000000000001"
BOT: Final[dict[str, Any]] = {
    "id": APPLICATION_ID,
    "username": "Refund desk",
    "discriminator": "0000",
    "global_name": None,
    "avatar": None,
    "bot": True,
}
ANSWERING: Final = 3.0
"""Seconds within which an interaction is to be answered."""
_TOKEN_LIFE: Final = 900.0
_NONCE_LIFE: Final = 300.0
_HOUR: Final = 3_600.0
_EPOCH: Final = 1_420_070_400.0
_BURST: Final = 5
_BUCKET: Final = 5.0
_GLOBAL: Final = 50
_AGENT: Final = re.compile(r"DiscordBot \(\S+ \S+\)")

# Types of interactions and answers.
_COMMAND, _COMPONENT, _SUBMIT = 2, 3, 5

Answer = tuple[int, dict[str, str], "dict[str, Any] | list[Any] | str | None"]
"""The status, the headers and the body of an answer."""


@dataclass(slots=True, kw_only=True)
class Interaction:
    """Something that somebody has done, and the answer to it once there is one."""

    id: str
    token: str
    kind: int
    by: str
    channel: str
    at: float
    message: dict[str, Any] | None = None
    answer: dict[str, Any] | None = None
    shown: dict[str, Any] | None = None


@dataclass(slots=True, kw_only=True)
class _Bucket:
    times: list[float] = field(default_factory=list)


class Api:
    """The API of a fake Discord. `answer` is called for each request."""

    def __init__(self, clock: Clock, *, rates: bool, old_edits: int) -> None:
        self.clock = clock
        self.rates = rates
        self.old_edits = old_edits
        self.lock: threading.RLock = threading.RLock()
        self.answered: threading.Condition = threading.Condition(self.lock)
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.messages: dict[tuple[str, str], dict[str, Any]] = {}
        self.edits: dict[tuple[str, str], int] = {}
        self.private: dict[str, list[dict[str, Any]]] = {}
        self.modals: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {}
        self.commands: dict[str, dict[str, Any]] = {}
        self.channels: dict[str, int] = {CHANNEL: 0}
        self.interactions: dict[str, Interaction] = {}
        self.troubles: list[Trouble] = []
        self.gateway_url: str | None = None
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._all: list[float] = []
        self._old: dict[str, list[float]] = {}
        self._nonces: dict[tuple[str, str], tuple[float, str]] = {}
        self._count = 0

    def snowflake(self) -> str:
        """A new id: the time, and a number."""
        with self.lock:
            self._count += 1
            return str((int((self.clock.now - _EPOCH) * 1_000) << 22) + self._count)

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> Answer | None:
        """Answer a request; None if the answer is to be lost."""
        path, _, query = path.removeprefix("/api/v10").partition("?")
        try:
            found = json.loads(body) if body else {}
        except ValueError:
            return 400, {}, {"code": 50109, "message": "The request body contains invalid JSON."}
        with self.lock:
            self.calls.append((method, path, found))
            if (callback := re.fullmatch(r"/interactions/(\d+)/([^/]+)/callback", path)) is not None:
                taken = self._tried(lambda: self.called_back(callback[1], callback[2], found), {})
                self.answered.notify_all()
                if taken[0] == 204 and "with_response" in query:
                    return 200, {}, self._resource(callback[1])
                return taken
            if (webhook := re.fullmatch(r"/webhooks/\d+/([^/]+)", path)) is not None and method == "POST":
                return self._tried(lambda: self._followed_up(webhook[1], found), {})
            if headers.get("authorization") != f"Bot {BOT_TOKEN}":
                return 401, {}, {"code": 0, "message": "401: Unauthorized"}
            if _AGENT.match(headers.get("user-agent", "")) is None:
                return 403, {}, {"code": 40333, "message": "internal network error"}
            trouble = self.troubles.pop(0) if self.troubles else None
            if trouble == "limited":
                return _limited(30.0, is_global=False)
            if trouble == "down":
                return 503, {}, "upstream connect error"
            if trouble in ("refused", "gone"):
                code, said = (10008, "Unknown Message") if trouble == "gone" else (50001, "Missing Access")
                return 404 if trouble == "gone" else 403, {}, {"code": code, "message": said}
            answer = self._limited_or(method, path, found)
            return None if trouble == "dropped" else answer

    def _limited_or(self, method: str, path: str, body: Any) -> Answer:
        limits, wait = self._counted(method, path)
        if wait is not None:
            return wait
        return self._tried(lambda: self._do(method, path, body), limits)

    def _tried(self, what: Any, headers: dict[str, str]) -> Answer:
        try:
            found = what()
        except Wrong as error:
            return error.status, headers, error.body
        except (KeyError, TypeError, AttributeError, IndexError, ValueError):
            return 400, headers, {"code": 50035, "message": "Invalid Form Body"}
        return (204, headers, None) if found is None else (200, headers, found)

    def _counted(self, method: str, path: str) -> tuple[dict[str, str], Answer | None]:
        """What is left of the bucket of a route, as headers, and the answer if nothing is."""
        now = self.clock.now
        place = re.match(r"/channels/(\d+)", path)
        key = (f"{method} {re.sub(r'/messages/.*', '/messages/m', path)}", place[1] if place is not None else "")
        bucket = self._buckets.setdefault(key, _Bucket())
        bucket.times = [at for at in bucket.times if now - at < _BUCKET]
        self._all = [at for at in self._all if now - at < 1.0]
        if self.rates and len(self._all) >= _GLOBAL:
            return {}, _limited(1.0 - (now - self._all[0]), is_global=True)
        if self.rates and len(bucket.times) >= _BURST:
            return {}, _limited(_BUCKET - (now - bucket.times[0]), is_global=False)
        self._all.append(now)
        bucket.times.append(now)
        left = _BURST - len(bucket.times) if self.rates else _BURST - 1
        reset = _BUCKET - (now - bucket.times[0])
        return {
            "X-RateLimit-Limit": str(_BURST),
            "X-RateLimit-Remaining": str(left),
            "X-RateLimit-Reset-After": f"{reset:.3f}",
            "X-RateLimit-Reset": f"{now + reset:.3f}",
            "X-RateLimit-Bucket": f"{abs(hash(key[0])):x}",
        }, None

    def _do(self, method: str, path: str, body: Any) -> Any:
        if method == "GET":
            return self._get(path)
        if (found := re.fullmatch(r"/channels/(\d+)/messages", path)) is not None and method == "POST":
            return self._post(found[1], body)
        if (found := re.fullmatch(r"/channels/(\d+)/messages/(\d+)", path)) is not None and method == "PATCH":
            return self._edit(found[1], found[2], body)
        if path == "/users/@me/channels" and method == "POST":
            return self._with_person(str(body["recipient_id"]))
        if re.fullmatch(rf"/applications/{APPLICATION_ID}(/guilds/\d+)?/commands", path) and method in ("POST", "PUT"):
            return self._registered(method, body)
        raise Wrong(404, 0, "404: Not Found")

    def _get(self, path: str) -> dict[str, Any]:
        if path == "/users/@me":
            return BOT
        if path in ("/applications/@me", "/oauth2/applications/@me"):
            return {
                "id": APPLICATION_ID,
                "name": "Refund desk",
                "description": "",
                "icon": None,
                "bot_public": False,
                "bot_require_code_grant": False,
                "verify_key": "",
                "owner": {**BOT, "bot": False},
                "flags": 0,
                "team": None,
            }
        if path == "/gateway/bot" and self.gateway_url is not None:
            limits = {"total": 1_000, "remaining": 999, "reset_after": 0, "max_concurrency": 1}
            return {"url": self.gateway_url, "shards": 1, "session_start_limit": limits}
        if (found := re.fullmatch(r"/channels/(\d+)", path)) is not None:
            self._check_channel(found[1])
            return channel_of(found[1], self.channels[found[1]])
        if (found := re.fullmatch(r"/channels/(\d+)/messages/(\d+)", path)) is not None:
            return self._message(found[1], found[2])
        raise Wrong(404, 0, "404: Not Found")

    def _with_person(self, user: str) -> dict[str, Any]:
        channel = self.direct(user)
        self.channels[channel] = 1
        return channel_of(channel, 1)

    @staticmethod
    def direct(user: str) -> str:
        """The channel of the direct messages of the bot with a person."""
        return str(int(user) + 1)

    # Messages

    def _check_channel(self, channel: str) -> None:
        if channel not in self.channels:
            raise Wrong(404, 10003, "Unknown Channel")

    def _message(self, channel: str, id: str) -> dict[str, Any]:
        self._check_channel(channel)
        if (channel, id) not in self.messages:
            raise Wrong(404, 10008, "Unknown Message")
        return self.messages[channel, id]

    def _post(self, channel: str, body: dict[str, Any]) -> dict[str, Any]:
        self._check_channel(channel)
        check_message(body)
        nonce = body.get("nonce")
        if nonce is not None and body.get("enforce_nonce"):
            at, id = self._nonces.get((channel, str(nonce)), (0.0, ""))
            if id and self.clock.now - at < _NONCE_LIFE:
                return self.messages[channel, id]
        message = self.message(channel, body)
        self.messages[channel, message["id"]] = message
        if nonce is not None:
            self._nonces[channel, str(nonce)] = (self.clock.now, message["id"])
        return message

    def _edit(self, channel: str, id: str, body: dict[str, Any]) -> dict[str, Any]:
        found = self._message(channel, id)
        check_message(body, edit=True)
        now = self.clock.now
        if now - created(id) > _HOUR:
            times = [at for at in self._old.get(channel, []) if now - at < _HOUR]
            if len(times) >= self.old_edits:
                raise Wrong(
                    429, 30046, "Maximum number of edits to messages older than 1 hour reached. Try again later."
                )
            self._old[channel] = [*times, now]
        found |= {**body, "edited_timestamp": moment(now)}
        self.edits[channel, id] = self.edits.get((channel, id), 0) + 1
        return found

    def message(self, channel: str, body: dict[str, Any]) -> dict[str, Any]:
        """A message as the API gives it, with what was posted."""
        return {
            "id": self.snowflake(),
            "type": 19 if "message_reference" in body else 0,
            "channel_id": channel,
            "author": BOT,
            "timestamp": moment(self.clock.now),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "pinned": False,
            "flags": 0,
            "content": "",
            "embeds": [],
            "components": [],
            **body,
        }

    # Interactions

    def began(self, kind: int, by: str, channel: str, message: dict[str, Any] | None) -> Interaction:
        """Note that somebody has done something."""
        id, now = self.snowflake(), self.clock.now
        found = Interaction(id=id, token=f"token.{id}", kind=kind, by=by, channel=channel, at=now, message=message)
        with self.lock:
            self.interactions[id] = found
        return found

    def called_back(self, id: str, token: str, answer: dict[str, Any]) -> None:
        """Take the answer to an interaction. Raises `Wrong`."""
        with self.lock:
            found = self.interactions.get(id)
            if found is None or found.token != token or self.clock.now - found.at > ANSWERING:
                raise Wrong(404, 10062, "Unknown interaction")
            if found.answer is not None:
                raise Wrong(400, 40060, "Interaction has already been acknowledged.")
            self._take(found, answer)
            found.answer = answer

    def _resource(self, id: str) -> dict[str, Any]:
        """The answer to an interaction as the API gives it to whoever asks."""
        found = self.interactions[id]
        assert found.answer is not None
        shown = {"message": found.shown} if found.shown is not None else {}
        private = bool(found.shown and found.shown["flags"] & 64)
        about = {"response_message_loading": False, "response_message_ephemeral": private}
        message = {"response_message_id": found.shown["id"]} if found.shown is not None else {}
        return {
            "interaction": {"id": id, "type": found.kind, **about, **message},
            "resource": {"type": found.answer["type"], **shown},
        }

    def _take(self, found: Interaction, answer: dict[str, Any]) -> None:
        kind, data = answer["type"], answer.get("data") or {}
        from_message = found.message is not None and found.kind in (_COMPONENT, _SUBMIT)
        if kind == 9:
            if found.kind not in (_COMMAND, _COMPONENT):
                raise Wrong(400, 50035, "Invalid Form Body", "type")
            check_modal(data)
            self.modals[found.by] = (data, found.message)
        elif kind == 4:
            check_message(data)
            self._shown(found, data)
        elif kind == 7 and from_message:
            check_message(data, edit=True)
            assert found.message is not None
            found.message |= data
            found.shown = found.message
        elif not (kind == 5 or (kind == 6 and from_message)):
            raise Wrong(400, 50035, "Invalid Form Body", "type")

    def _shown(self, found: Interaction, data: dict[str, Any]) -> dict[str, Any]:
        message = self.message(found.channel, data)
        user = {"id": found.by, "username": f"user{found.by}", "discriminator": "0", "avatar": None}
        about = {"id": found.id, "type": found.kind, "user": user, "authorizing_integration_owners": {}}
        message["interaction_metadata"] = about
        if data.get("flags", 0) & 64:
            self.private.setdefault(found.by, []).append(message)
        else:
            self.messages[found.channel, message["id"]] = message
        found.shown = message
        self.answered.notify_all()
        return message

    def _followed_up(self, token: str, body: dict[str, Any]) -> dict[str, Any]:
        found = next((each for each in self.interactions.values() if each.token == token), None)
        if found is None or self.clock.now - found.at > _TOKEN_LIFE:
            raise Wrong(401, 50027, "Invalid Webhook Token")
        check_message(body)
        return self._shown(found, body)

    def _registered(self, method: str, body: Any) -> Any:
        given = body if method == "PUT" else [body]
        for each in given:
            check_command(each)
        if method == "PUT":
            self.commands.clear()
        made = [{**each, "id": self.snowflake(), "application_id": APPLICATION_ID} for each in given]
        self.commands |= {each["name"]: each for each in made}
        return made if method == "PUT" else made[0]


def created(id: str) -> float:
    """The time at which an id was made."""
    return (int(id) >> 22) / 1_000 + _EPOCH


def moment(at: float) -> str:
    """A time as the API gives it."""
    return datetime.fromtimestamp(at, UTC).isoformat()


def channel_of(id: str, kind: int) -> dict[str, Any]:
    """A channel as the API gives it. Of the types, 0 is a text channel, 11 a thread, and 1 a direct message."""
    return {
        "id": id,
        "type": kind,
        "guild_id": GUILD,
        "name": "refunds",
        "position": 0,
        "permission_overwrites": [],
        "parent_id": None,
        "topic": None,
        "nsfw": False,
        "permissions": "0",
    }


def _limited(seconds: float, *, is_global: bool) -> Answer:
    headers = {
        "Retry-After": str(math.ceil(seconds)),
        "X-RateLimit-Scope": "global" if is_global else "user",
        "Via": "1.1 google",  # without it, discord.py takes the answer for that of a proxy that has blocked it
    }
    if is_global:
        headers["X-RateLimit-Global"] = "true"
    return 429, headers, {"message": "You are being rate limited.", "retry_after": seconds, "global": is_global}

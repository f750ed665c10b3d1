"""The part of a fake Teams that the bot calls: tokens, conversations, messages, members, with limits of rates and sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qs, unquote

from phronomy.testing.chat.platform import Clock, Trouble
from phronomy.testing.chat.teams.client import Wrong, check_activity
from phronomy.testing.chat.teams.signing import base64url

APP_ID: Final = "5a1f0c8e-0000-4000-8000-0000000000aa"
APP_PASSWORD: Final = "a secret of tests"
TENANT: Final = "0e1d2c3b-0000-4000-8000-0000000000bb"
"""The bot, its secret, and its tenant."""

Answer: TypeAlias = tuple[int, dict[str, str], Any]

_LIFE: Final = 3_599.0
_RATES: Final = ((1.0, 7), (2.0, 8), (30.0, 60), (3_600.0, 1_800))
"""Seconds, and how many messages of a bot a conversation takes in them. The threads of a channel count as one here."""
_RATE_OF_ALL: Final = 50
"""How many a tenant takes in a second, in all conversations."""

_THREAD: Final = ";messageid="


class Service:
    """What the bot calls. `messages` are the activities with a card by their references, and `texts` those without one."""

    def __init__(self, clock: Clock, conversation: str, *, rates: bool) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.messages: dict[str, dict[str, Any]] = {}
        self.edits: dict[str, int] = {}
        self.texts: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, float] = {}
        self.troubles: list[Trouble | Literal["silent"] | int] = []
        self.largest: int = 102_400
        self.hides_ids: bool = False
        self._clock = clock
        self._rates = rates
        self._taken: list[tuple[float, str]] = []
        self._conversation = conversation
        self._chats: set[str] = set()

    @staticmethod
    def chat_with(member: str) -> str:
        """The conversation of the bot with one person."""
        # Also by the object id of the person in Entra ID.
        return f"a:1{member[3:]}" if member.startswith("29:") else f"a:11{member.replace('-', '')}"

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """Answer a request of the bot; None if the answer gets lost."""
        if path == f"/{TENANT}/oauth2/v2.0/token":
            return self._token({name: values[-1] for name, values in parse_qs(body.decode()).items()})
        if not path.startswith("/teams/v3/conversations"):
            return 404, {}, _error("NotFound")
        found = json.loads(body) if body else {}
        self.calls.append((method, path, found))
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if self.tokens.get(token, 0.0) <= self._clock.now:
            return 401, {}, _error("Unauthorized")
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble is not None and trouble != "dropped":
            return _troubled(trouble)
        try:
            answer = self._do(method, path.removeprefix("/teams/v3/conversations").split("/")[1:], found)
        except Wrong as error:
            return error.status, {}, _error(str(error))
        return None if trouble == "dropped" else answer

    def _token(self, form: Mapping[str, str]) -> Answer:
        scope = "https://api.botframework.com/.default"
        if form.get("client_id") != APP_ID or form.get("client_secret") != APP_PASSWORD:
            return (
                401,
                {},
                {"error": "invalid_client", "error_description": f"wrong secret {form.get('client_secret')}"},
            )
        if form.get("grant_type") != "client_credentials" or form.get("scope") != scope:
            return 400, {}, {"error": "invalid_request"}
        until = self._clock.now + _LIFE
        # As Entra ID makes them: clients look into them, though only the service may.
        claims = {"aud": "https://api.botframework.com", "appid": APP_ID, "exp": int(until), "jti": len(self.tokens)}
        token = ".".join(
            base64url(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims, "none")
        )
        self.tokens[token] = until
        return 200, {}, {"token_type": "Bearer", "expires_in": int(_LIFE), "access_token": token}

    def _do(self, method: str, path: list[str], body: dict[str, Any]) -> Answer:
        match (method, path):
            case ("POST", []):
                [member] = body["members"]
                if body["tenantId"] != TENANT or body["isGroup"] or body["bot"]["id"] != f"28:{APP_ID}":
                    raise Wrong(403, "ForbiddenOperationException")
                self._chats.add(chat := self.chat_with(member["id"]))
                return 201, {}, {"id": chat}
            case ("POST", [conversation, "activities"]):
                message = self._post(unquote(conversation), body)
                return 201, {}, {} if self.hides_ids else {"id": message}
            case ("PUT", [conversation, "activities", message]):
                self._put(unquote(conversation), unquote(message), body)
                return 200, {}, {"id": unquote(message)}
            case ("GET", [_, "members", member]):
                return 200, {}, {"id": unquote(member), "tenantId": TENANT}
            case _:
                raise Wrong(405, "MethodNotAllowed")

    def _post(self, conversation: str, activity: dict[str, Any]) -> str:
        if conversation.partition(_THREAD)[0] != self._conversation and conversation not in self._chats:
            raise Wrong(403, "BotNotInConversationRoster")
        self._take(conversation)
        check_activity(activity, self.largest)
        message = f"{int(self._clock.now * 1_000)}{len(self.messages) + len(self.texts):03d}"
        found = self.messages if activity.get("attachments") else self.texts
        found[f"{conversation}/{message}"] = activity
        return message

    def _put(self, conversation: str, message: str, activity: dict[str, Any]) -> None:
        ref = f"{conversation}/{message}"
        if ref not in self.messages:
            raise Wrong(404, "ActivityNotFoundInConversation")
        self._take(conversation)
        check_activity(activity, self.largest)
        self.messages[ref] = activity
        self.edits[ref] = self.edits.get(ref, 0) + 1

    def _take(self, conversation: str) -> None:
        now, place = self._clock.now, conversation.partition(_THREAD)[0]
        here = [at for at, where in self._taken if where == place]
        whole = sum(now - at < 1.0 for at, _ in self._taken)
        if self._rates and (
            whole >= _RATE_OF_ALL or any(sum(now - at < seconds for at in here) >= most for seconds, most in _RATES)
        ):
            raise Wrong(429, "TooManyRequests")
        self._taken.append((now, place))


def _troubled(trouble: Trouble | Literal["silent"] | int) -> Answer:
    if trouble == "limited":
        return 429, {"Retry-After": "30"}, _error("TooManyRequests")
    if trouble == "silent":
        return 429, {}, _error("TooManyRequests")
    if trouble == "down":
        return 502, {}, _error("BadGateway")
    if trouble == "refused":
        return 403, {}, _error("BotNotInConversationRoster")
    if trouble == "gone":
        return 404, {}, _error("ActivityNotFoundInConversation")
    assert isinstance(trouble, int)
    return trouble, {}, _error("Other")


def _error(code: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": f"{code}: more about it"}}

"""The Bot Connector as a client: messages to conversations, with a token that the app gets by its secret.

The token goes to one address alone, which is a setting: never to one that a request names.
https://learn.microsoft.com/en-us/azure/bot-service/rest-api/bot-framework-rest-connector-api-reference
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import httpx2

from phronomy.chat.channel import ChannelError, ChannelRefused, RateLimited
from phronomy.chat.http import limited
from phronomy.foundation.checks import is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, JsonError, object_of, parse, text_of

if TYPE_CHECKING:
    from ssl import SSLContext

SENDING: Final = 10.0
READING: Final = 4.0
"""Seconds for a call of the outbox, and for one on which the answer to a click waits: Teams wants that within 10 or 15."""

LARGEST: Final = 262_144
"""Bytes of the largest answer that is read."""

_EARLY: Final = 300.0
"""Seconds before its end from which on a token is not used any more."""

_PAUSE: Final = 30
"""Seconds to wait where Teams says no number: its windows are of 1, 2 and 30 seconds, and of an hour.
https://learn.microsoft.com/en-us/microsoftteams/platform/bots/how-to/rate-limit"""

_CODE: Final = re.compile(r"[A-Za-z_]{1,60}")
_TEMPORARY: Final = frozenset({408, 412, 423})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """The addresses of Microsoft's cloud: the public one, unless you say otherwise.

    `login_url` gives tokens for `scope`. `metadata_url` names the keys of the connector, and `issuer` is in its tokens. Those of other
    clouds: https://learn.microsoft.com/en-us/azure/bot-service/how-to-deploy-gov-cloud-high
    """

    login_url: str = "https://login.microsoftonline.com"
    scope: str = "https://api.botframework.com/.default"
    metadata_url: str = "https://login.botframework.com/v1/.well-known/openidconfiguration"
    issuer: str = "https://api.botframework.com"


class TooLarge(ChannelError):
    """Teams takes no message of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    retry_after: str
    body: JsonDict = field(repr=False)
    is_json: bool = True

    @property
    def code(self) -> str:
        """The name of an error, if the answer has one."""
        found = self.body.get("error")
        name = found if isinstance(found, str) else text_of(object_of(found).get("code"))
        return name if _CODE.fullmatch(name) else f"status {self.status}"


class Connector:
    """Sends to conversations. `service_url` is the address of the service, and ends with a slash."""

    def __init__(self, *, app_id: str, app_password: str, tenant_id: str, service_url: str, cloud: Cloud) -> None:
        self._app_id = app_id
        self._password = app_password
        self._login = f"{cloud.login_url.rstrip('/')}/{tenant_id}/oauth2/v2.0/token"
        self._scope = cloud.scope
        self._service = service_url
        self._lock = threading.Lock()
        self._token: tuple[str, float] | None = None

    def __repr__(self) -> str:
        return f"Connector({self._app_id!r})"

    def post(self, conversation: str, activity: JsonDict) -> str:
        """Post to a conversation; returns the id of the message. Raises `ChannelError`."""
        found = self._call("POST", f"v3/conversations/{_part(conversation)}/activities", activity)
        return text_of(found.get("id"))

    def put(self, conversation: str, message: str, activity: JsonDict) -> None:
        """Have a message be another. Raises `ChannelError`."""
        self._call("PUT", f"v3/conversations/{_part(conversation)}/activities/{_part(message)}", activity)

    def conversation_with(self, member: str, tenant_id: str) -> str:
        """The id of the conversation of the bot with one person. Raises `ChannelError`."""
        found = self._call(
            "POST",
            "v3/conversations",
            {
                "isGroup": False,
                "bot": {"id": f"28:{self._app_id}"},
                "members": [{"id": member}],
                "tenantId": tenant_id,
                "channelData": {"tenant": {"id": tenant_id}},
            },
        )
        return text_of(found.get("id"))

    def _call(self, method: str, path: str, body: JsonDict) -> JsonDict:
        what = f"{method} {path.rpartition('/')[2] if method == 'POST' else 'activity'}"
        answer = self._ask(method, path, body, self._bearer())
        if answer.status == 401:  # the token was withdrawn before its end
            self._token = None
            answer = self._ask(method, path, body, self._bearer())
        # What is no JSON is not from Teams but from something between, and the message is not there.
        if 200 <= answer.status < 300 and answer.is_json:
            return answer.body
        raise _told(what, answer, is_edit=method == "PUT")

    def _ask(self, method: str, path: str, body: JsonDict, bearer: str) -> _Answer:
        text = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json; charset=utf-8"}
        return _asked(method, self._service + path, headers=headers, content=text)

    def _bearer(self) -> str:
        """The token of the app, from its cache or from Entra ID. Raises `ChannelError`."""
        with self._lock:
            if self._token is not None and self._token[1] > monotonic():
                return self._token[0]
            form = {
                "grant_type": "client_credentials",
                "client_id": self._app_id,
                "client_secret": self._password,
                "scope": self._scope,
            }
            answer = _asked("POST", self._login, headers={}, form=form)
            token, seconds = text_of(answer.body.get("access_token")), answer.body.get("expires_in")
            if answer.status != 200 or not token or not (token.isascii() and token.isprintable()):
                raise _told("token of the app", answer, is_edit=False)
            self._token = (token, monotonic() + (seconds if is_number(seconds) else 0.0) - _EARLY)
            return token


def document_at(url: str) -> JsonDict:
    """The JSON object at an address. Raises `ChannelError`."""
    answer = _asked("GET", url, headers={}, timeout=READING)
    if answer.status != 200:
        raise ChannelError(f"status {answer.status}")
    return answer.body


def _asked(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    content: bytes | None = None,
    form: Mapping[str, str] | None = None,
    timeout: float = SENDING,
) -> _Answer:
    """An answer, whatever its status. Raises `ChannelError` without a cause, which could quote what was sent."""
    # No compression: a few bytes could become more than there is memory for, before they are counted.
    sent = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
    try:
        with (
            httpx2.Client(verify=_tls(), timeout=timeout, follow_redirects=False) as client,
            client.stream(method, url, headers=sent, content=content, data=form) as response,
        ):
            body = limited(response.iter_raw(), most=LARGEST, seconds=timeout)
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
        raise ChannelError(type(error).__name__) from None
    try:
        found = parse(body) if body else {}
    except JsonError:
        found = None
    return _Answer(
        status=response.status_code,
        retry_after=response.headers.get("retry-after", ""),
        body=object_of(found),
        is_json=isinstance(found, dict),
    )


@cache
def _tls() -> SSLContext:
    """The authorities that are trusted, as the environment names them. To read them takes longer than a call."""
    return httpx2.create_ssl_context()


def _told(what: str, answer: _Answer, *, is_edit: bool) -> ChannelError:
    """The error of an answer. It quotes the name of the error, and nothing else."""
    status, said = answer.status, f"{what}: {answer.code}"
    if status == 429:
        # With chance in it, so that processes which were held up together do not come back together.
        given = answer.retry_after
        seconds = (
            float(given) if given.isascii() and given.isdigit() and len(given) < 6 else _PAUSE + secrets.randbelow(10)
        )
        return RateLimited(f"{said}: Teams asks to wait", seconds=max(seconds, 1.0))
    if status == 413:
        return TooLarge(said)
    if status >= 500 or status in _TEMPORARY or 200 <= status < 400:
        return ChannelError(said)
    return ChannelRefused(said, gone=status == 404 and is_edit)


def _part(id: str) -> str:
    return quote(id, safe="")

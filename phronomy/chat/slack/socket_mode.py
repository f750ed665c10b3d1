"""Socket Mode: clicks and messages over a WebSocket that this process opens, for those without an address that Slack can reach.

Slack signs nothing here: the proof is the connection itself, which the app token opens. If several processes are connected, each click
goes to one of them. A click that nobody has acknowledged may come again, to another one, and counts once like any other.
https://docs.slack.dev/apis/events-api/using-socket-mode
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from slack_sdk import WebClient
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.client import BaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from phronomy.chat.adapters import finish
from phronomy.chat.contexts import Connected
from phronomy.chat.http import Refused, Response
from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import JsonError, parse

if TYPE_CHECKING:
    from phronomy.chat.approvals import ChatApprovals
    from phronomy.chat.slack.slack import Slack

_log = logging.getLogger("phronomy")


class SocketMode(Connected):
    """A connection to Slack over which clicks come: `with SocketMode(approvals, slack, app_token=...):`.

    `slack` is one of the channels of `approvals`. `app_token` begins with `xapp-`; its scope is `connections:write`. The connection is
    that of Slack's SDK, in threads of its own, and is opened again when it is lost. Raises `ConfigurationError`.
    """

    def __init__(self, approvals: ChatApprovals, slack: Slack, *, app_token: str) -> None:
        if not isinstance(app_token, str) or not app_token:
            raise ConfigurationError("app_token is text that is not empty: the settings of the Slack app have it")
        self._approvals = approvals
        self._slack = slack
        web = WebClient(base_url=slack.client.base_url, timeout=10)
        self._client = SocketModeClient(app_token=app_token, web_client=web)
        self._client.socket_mode_request_listeners.append(self._received)

    def __repr__(self) -> str:
        return f"SocketMode({self._slack!r})"

    def connect(self) -> None:
        """Open the connection, and return. Raises what Slack's SDK raises if it cannot be opened."""
        self._client.connect()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _received(self, client: BaseSocketModeClient, request: SocketModeRequest) -> None:
        response = self._response(request)
        if response.status >= 500:
            return  # not acknowledged: the person sees a warning, and clicks again
        body = _object(response.body)
        client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id, payload=body))
        finish(response)

    def _response(self, request: SocketModeRequest) -> Response:
        if request.type not in ("interactive", "events_api"):
            return Response()
        try:
            is_event = request.type == "events_api"
            received = self._slack.read_event(request.payload) if is_event else self._slack.read(request.payload)
        except Refused:
            _log.warning("what came over the socket of %s could not be read", self._slack.name)
            return Response()
        if isinstance(received, Response):
            return received
        return self._approvals.answer(self._slack.name, received)


def _object(body: bytes) -> dict[str, object] | None:
    try:
        found = parse(body.decode()) if body else None
    except JsonError:
        return None
    return dict(found) if isinstance(found, dict) else None

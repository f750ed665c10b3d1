"""Slack as a channel: Block Kit, interactivity with the signing secret, modals, and the Web API by Slack's own SDK.

Slack has no id for a click that stays the same, and no key by which it would recognise a message that is posted twice. Clicks count
once by what they say. A message that is there twice leads to one request, and is edited too from its first click on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError

from phronomy.chat.channel import (
    Card,
    ChannelError,
    ChannelRefused,
    Click,
    Form,
    FormLimits,
    Pace,
    RateLimited,
    Received,
    Said,
    Submitted,
    Work,
    check_name,
)
from phronomy.chat.http import HttpRequest, Refused, Response, json_response, text_response
from phronomy.chat.slack.blocks import (
    PREFIX,
    escape,
    message_of,
    notice_view,
    reminder_of,
    text_of,
    values_in,
    view_of,
)
from phronomy.chat.slack.client import Client
from phronomy.chat.slack.events import spoken
from phronomy.chat.slack.signature import verify
from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import JsonError, parse

_log = logging.getLogger("phronomy")

_FORM: Final = "application/x-www-form-urlencoded"
_ID: Final = re.compile(r"[A-Z][A-Z0-9]{1,40}")
_USER: Final = re.compile(r"[UW][A-Z0-9]{1,40}")
_TEAM: Final = re.compile(r"[TE][A-Z0-9]{1,40}")
_TS: Final = re.compile(r"\d{1,12}\.\d{1,8}")
_GONE: Final = frozenset({"message_not_found", "cant_update_message"})
_TEMPORARY: Final = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})

_SENDING: Final = 10
"""Seconds that the outbox waits for Slack: well below the time for which it owns what it sends."""
_OPENING: Final = 2
"""Seconds for a modal: Slack wants the answer to the click within 3."""
_LONGEST_WAIT: Final = 3_600.0
"""Seconds after which Slack is asked again, whatever it says."""


class Slack:
    """Slack as a channel of `ChatApprovals`. It needs `pip install 'phronomy[slack]'`.

    `signing_secret` is that of the app, under "Basic Information". `bot_token` begins with `xoxb-`; its scope is
    `chat:write`, and for a `ChatBot` also `app_mentions:read` and `im:history`. Slack sends clicks and messages to the path that ends
    with `name`. With `team_id`, people of other workspaces, who may be in shared channels, have the alias `slack:TEAM:USER`; your own
    have `slack:USER`. Without it, the workspace in which the message stands counts as your own. `base_url` is that of Slack's Web API,
    or of a fake in tests. Raises `ConfigurationError`.
    """

    form_limits: FormLimits = FormLimits(fields=90, value=3_000, choices=100)
    say_limit: int = 3_500

    def __init__(
        self,
        *,
        signing_secret: str,
        bot_token: str,
        team_id: str | None = None,
        name: str = "slack",
        base_url: str = "https://slack.com/api/",
    ) -> None:
        for what, value in (("signing_secret", signing_secret), ("bot_token", bot_token)):
            if not isinstance(value, str) or not value:
                raise ConfigurationError(f"{what} is text that is not empty: the settings of the Slack app have it")
        if signing_secret.startswith(("xox", "xapp-")):
            raise ConfigurationError("signing_secret is a token: the signing secret is under Basic Information")
        if not bot_token.startswith(("xoxb-", "xoxe.xoxb-")):
            raise ConfigurationError("bot_token begins with xoxb-: it is under OAuth & Permissions")
        if team_id is not None and (not isinstance(team_id, str) or not _TEAM.fullmatch(team_id)):
            raise ConfigurationError("team_id is the id of a workspace, such as T0123456789, and not its name")
        check_name(name)
        self.name = name
        self._secret = signing_secret
        self._team = team_id
        # The outbox tries again, and knows what it tries: the SDK's own retries could post twice unseen.
        self._client = Client(bot_token, base_url=base_url, timeout=_SENDING, retry_handlers=[])
        self._quick = Client(bot_token, base_url=base_url, timeout=_OPENING, retry_handlers=[])

    def __repr__(self) -> str:
        return f"Slack(name={self.name!r})"

    @property
    def client(self) -> WebClient:
        """The client of the Web API that the outbox uses."""
        return self._client

    # What comes in

    def receive(self, request: HttpRequest, *, now: float) -> Received | Response:
        """As `Channel.receive`."""
        verify(self._secret, request.headers, request.body, now=now)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
            return self._event(request.body)
        try:
            pairs = parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=50, errors="strict")
        except ValueError:
            raise Refused(400, "no form in UTF-8") from None
        fields = dict(pairs)
        if "payload" not in fields:
            return Response()  # Slack looks whether the address answers: `ssl_check`
        return self.read(_json(fields["payload"]))

    def read(self, payload: Any) -> Received | Response:
        """Read an interaction whose origin is proven. Raises `Refused`."""
        try:
            kind = payload["type"]
            if kind == "block_actions":
                return self._click(payload)
            if kind == "view_submission":
                return self._submitted(payload)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise Refused(400, "no interaction of Slack") from None
        return Response()  # such as `view_closed`

    def read_event(self, payload: Any) -> Received | Response:
        """Read an event whose origin is proven: a message to the bot, or nothing. Raises `Refused`."""
        try:
            event = spoken(payload)
            if event is None:
                return Response()
            place = f"{_checked(event.channel)}/{_matching(_TS, event.thread)}"
            user, team = _checked(event.user), _checked(payload["team_id"])
            whose = event.team if event.team is not None or event.is_shared else team
            return Said(
                alias=self._alias({"user": {"id": user, "team_id": whose}, "team": {"id": team}}),
                delivery=str(payload["event_id"]),
                text=event.text,
                thread=f"{team}/{place}",
                to=place,
                reply={"user": user, "channel": event.channel, "thread": event.written_in},
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Refused(400, "no event of Slack") from None

    def _event(self, body: bytes) -> Received | Response:
        """What Slack sends as JSON: at first it asks whether this address is ours, and then come events."""
        try:
            found = _json(body.decode())
        except UnicodeDecodeError:
            raise Refused(400, "no JSON in UTF-8") from None
        if found.get("type") == "url_verification" and isinstance(found.get("challenge"), str):
            return text_response(200, found["challenge"])
        return self.read_event(found) if found.get("type") == "event_callback" else Response()

    def _click(self, payload: Any) -> Received | Response:
        action = payload["actions"][0]
        if not str(action["action_id"]).startswith(PREFIX) or "value" not in action:
            return Response()  # of another program, or a button that opens the inbox
        container = payload["container"]
        channel, ts = str(container.get("channel_id", "")), str(container.get("message_ts", ""))
        is_known = _ID.fullmatch(channel) is not None and _TS.fullmatch(ts) is not None
        user = _checked(payload["user"]["id"])
        return Click(
            alias=self._alias(payload),
            delivery=f"{user}:{ts}:{action.get('action_ts', '')}",
            data=str(action["value"]),
            ref=_ref(channel, ts, _thread_of(payload)) if is_known else None,
            reply={"user": user, "channel": channel if is_known else "", "trigger": str(payload.get("trigger_id", ""))},
        )

    def _submitted(self, payload: Any) -> Received | Response:
        view = payload["view"]
        if view.get("callback_id") != f"{PREFIX}form":
            return Response()
        metadata = _json(view["private_metadata"])
        ref = metadata.get("ref")
        return Submitted(
            alias=self._alias(payload),
            delivery=f"{view['id']}:{view.get('hash', '')}",
            data=str(metadata["data"]),
            values=values_in(view["state"]),
            ref=ref if isinstance(ref, str) else None,
        )

    def _alias(self, payload: Any) -> str:
        user = _checked(payload["user"]["id"])
        theirs = payload["user"].get("team_id")
        place = payload.get("team")
        own = self._team or (place.get("id") if isinstance(place, dict) else None)
        if theirs is None or own is None or theirs == own:
            # A setting that cannot be compared with anything fails closed.
            if self._team is not None and theirs is None:
                raise Refused(400, "no workspace of the user")
            return f"{self.name}:{user}"
        return f"{self.name}:{_checked(theirs)}:{user}"

    def place_of(self, alias: str) -> str | None:
        """As `ReachesPeople.place_of`: the conversation of the app with a member of this workspace, by their id."""
        user = alias.removeprefix(f"{self.name}:")
        return user if _USER.fullmatch(user) is not None else None

    def mention_of(self, alias: str) -> str | None:
        """As `ReachesPeople.mention_of`: also of people of other workspaces."""
        user = alias.rpartition(":")[2]
        return user if _USER.fullmatch(user) is not None else None

    # What goes out at once

    def acknowledge(self, received: Received, notice: str | None) -> Response:
        """As `Channel.acknowledge`."""
        if notice is None:
            return Response()
        if isinstance(received, Submitted):
            return json_response({"response_action": "update", "view": notice_view(notice)})
        reply = received.reply
        if not reply.get("channel"):
            return Response()

        def tell() -> None:
            try:
                self._call(
                    "chat.postEphemeral",
                    self._client,
                    channel=reply["channel"],
                    user=reply["user"],
                    text=escape(notice),
                    **({"thread_ts": reply["thread"]} if reply.get("thread") else {}),
                )
            except ChannelError as error:
                # They see that nothing has happened, and try again.
                _log.warning("%s could not tell somebody what came of what they did: %s", self.name, error)

        return Response(after=tell)

    def open_form(self, click: Click, form: Form) -> Response:
        """As `Channel.open_form`."""
        view = view_of(form, {"data": form.data, **({"ref": click.ref} if click.ref else {})})
        self._call("views.open", self._quick, trigger_id=click.reply.get("trigger", ""), view=view)
        return Response()

    def show_errors(self, submitted: Submitted, errors: Mapping[str, str]) -> Response:
        """As `Channel.show_errors`."""
        return json_response({"response_action": "errors", "errors": dict(errors)})

    # What the outbox sends

    def post(self, to: str, card: Card, *, key: str) -> str:
        """Post to a channel, `C0123456789`, or into a thread of it, `C0123456789/1700000000.000100`, or to a member, `U0123456789`.

        Raises `ChannelError`.
        """
        channel, _, thread = to.partition("/")
        metadata = {"event_type": "phronomy_request", "event_payload": {"pending_id": card.pending_id, "key": key}}
        more = {"thread_ts": thread} if thread else {}
        found = self._call(
            "chat.postMessage", self._client, channel=channel, metadata=metadata, **message_of(card), **_PLAIN, **more
        )
        return _posted(found, thread)

    def say(self, to: str, text: str, *, key: str) -> str:
        """Post plain text to a place, as `post` does. Raises `ChannelError`."""
        channel, _, thread = to.partition("/")
        metadata = {"event_type": "phronomy_answer", "event_payload": {"key": key}}
        more = {"thread_ts": thread} if thread else {}
        found = self._call(
            "chat.postMessage", self._client, channel=channel, metadata=metadata, **text_of(text), **_PLAIN, **more
        )
        return _posted(found, thread)

    def update(self, ref: str, card: Card) -> None:
        """As `Channel.update`."""
        channel, ts, _ = _parts(ref)
        self._call(
            "chat.update", self._client, channel=channel, ts=ts, **message_of(card), parse="none", link_names=False
        )

    def remind(self, ref: str, card: Card) -> None:
        """Reply to a message, so that it is seen in the channel too. Raises `ChannelError`."""
        channel, ts, thread = _parts(ref)
        self._call(
            "chat.postMessage",
            self._client,
            channel=channel,
            thread_ts=thread or ts,  # a reply takes no replies
            reply_broadcast=True,
            **reminder_of(card),
            **_PLAIN,
        )

    def pace(self, work: Work, to: str) -> Pace:
        """One message a second in a channel, and 50 edits a minute in a workspace: https://docs.slack.dev/apis/web-api/rate-limits."""
        if work == "update":
            return Pace(lane="update", seconds=1.2)
        return Pace(lane=f"post:{to.partition('/')[0]}", seconds=1.0)

    def _call(self, method: str, client: WebClient, **arguments: Any) -> Any:
        """Call a method of the Web API. Raises `ChannelError`, which quotes nothing that was sent."""
        try:
            found = client.api_call(method, json=arguments).data
        except SlackApiError as error:
            raise _told(method, error) from None
        except Exception as error:  # the SDK raises anything on an answer that is not Slack's
            raise ChannelError(f"{method}: {type(error).__name__}") from None
        return found


_PLAIN: Final = {"parse": "none", "link_names": False, "unfurl_links": False, "unfurl_media": False}


def _told(method: str, error: SlackApiError) -> ChannelError:
    response = error.response
    status, headers = getattr(response, "status_code", 200), getattr(response, "headers", {})
    if status == 429:
        given = {str(name).lower(): value for name, value in headers.items()}.get("retry-after", "1")
        seconds = min(float(given), _LONGEST_WAIT) if re.fullmatch(r"[0-9]{1,9}", str(given)) else 1.0
        return RateLimited(f"{method}: Slack asks to wait", seconds=max(seconds, 1.0))
    found = response.get("error") if status < 500 and hasattr(response, "get") else None
    code = found if isinstance(found, str) and re.fullmatch(r"[a-z_]{1,60}", found) else f"status {status}"
    if code == "ratelimited":
        return RateLimited(f"{method}: Slack asks to wait", seconds=1.0)
    if found is None or code in _TEMPORARY:
        return ChannelError(f"{method}: {code}")
    return ChannelRefused(f"{method}: {code}", gone=code in _GONE)


def _posted(found: Any, thread: str) -> str:
    """The reference to a message that was posted. Raises `ChannelError`."""
    try:
        return _ref(_checked(found["channel"]), _matching(_TS, found["ts"]), thread)
    except (KeyError, TypeError, ValueError):
        raise ChannelError("chat.postMessage: no message came back") from None


def _ref(channel: str, ts: str, thread: str) -> str:
    """A reference to a message: where it stands, and the thread that it is a reply in, if it is one."""
    return f"{channel}/{ts}/{thread}" if thread and thread != ts else f"{channel}/{ts}"


def _parts(ref: str) -> tuple[str, str, str]:
    channel, ts, thread, *_ = [*ref.split("/"), "", ""]
    return channel, ts, thread


def _thread_of(payload: Any) -> str:
    """The thread in which the message of a click is a reply; empty if it is none."""
    for each in (payload["container"], payload.get("message")):
        found = each.get("thread_ts") if isinstance(each, dict) else None
        if isinstance(found, str) and _TS.fullmatch(found) is not None:
            return found
    return ""


def _json(text: str) -> Any:
    try:
        found = parse(text)
    except JsonError:
        raise Refused(400, "no JSON") from None
    if not isinstance(found, dict):
        raise Refused(400, "no JSON object")
    return found


def _checked(id: object) -> str:
    """An id of Slack, as it has them. Raises `ValueError`."""
    return _matching(_ID, id)


def _matching(pattern: re.Pattern[str], text: object) -> str:
    if not isinstance(text, str) or pattern.fullmatch(text) is None:
        raise ValueError("no id of Slack")
    return text

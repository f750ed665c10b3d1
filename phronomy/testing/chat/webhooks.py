"""A fake receiver of webhooks: an endpoint over HTTP on the loopback interface, and people behind it who answer.

It proves each event with the reference library, `standardwebhooks`, which is in the extra `phronomy[webhooks]`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final

from standardwebhooks import Webhook, WebhookVerificationError

from phronomy.chat.channel import Action
from phronomy.chat.http import Response
from phronomy.chat.webhooks import Endpoint, Webhooks
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.suspicious_letters import escaped
from phronomy.testing.chat.loopback import Answer, Loopback
from phronomy.testing.chat.platform import Answering, Clock, Sent, Shown, Trouble, delivered

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ANSWER_SECRET: Final = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
"""The secrets of the fake endpoint: of events to it, and of answers from it."""

_PATH: Final = "/events"
_LARGEST: Final = 20_000
"""Bytes: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md, "Payload size"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """A request that has arrived: its headers, in small letters, and its body; and whether its signature was right."""

    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    is_proven: bool

    @property
    def id(self) -> str:
        """The id of the event."""
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        """The event."""
        found: dict[str, Any] = json.loads(self.body)
        return found


class _Clocked(Webhook):
    """The reference verifier, which knows only the clock of the machine, with the clock of a test."""

    def __init__(self, secret: str, clock: Clock) -> None:
        super().__init__(secret)
        self._clock = clock

    def _Webhook__verify_timestamp(self, header: str) -> datetime:  # as Python names it
        if abs(self._clock.now - int(header)) > 300:
            raise WebhookVerificationError("too old")
        return datetime.fromtimestamp(int(header), UTC)


class FakeReceiver:
    """An endpoint that gets events and answers them. Use it as a context, or call `close`.

    `url` is its address. `got` are the requests that have arrived, also those that were answered with an error. `script` says
    how the next ones are answered.
    """

    place: Final = "webhook:erp"
    signs: Final = "requests"
    forms_are_answers: Final = True

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock if clock is not None else Clock()
        self.got: list[Got] = []
        self._events: dict[str, dict[str, Any]] = {}
        self._told: list[tuple[str, str]] = []
        self._forms: dict[str, dict[str, Any]] = {}
        self._script: list[tuple[int, Mapping[str, str]] | str] = []
        self._handler: Answering | None = None
        self._channel: Webhooks | None = None
        self._count = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._verifier = _Clocked(SECRET, self.clock)
        self._server = Loopback(lambda _, path, headers, body: self._served(path, headers, body))

    @property
    def url(self) -> str:
        """The address of the endpoint."""
        return f"{self._server.url}{_PATH}"

    @property
    def endpoint(self) -> Endpoint:
        """The settings of the endpoint."""
        return Endpoint(url=self.url, secrets=[SECRET], answer_secrets=[ANSWER_SECRET], seconds=0.001)

    @property
    def channel(self) -> Webhooks:
        """A `Webhooks` with this endpoint as `erp`."""
        if self._channel is None:
            self._channel = Webhooks(
                endpoints={"erp": self.endpoint}, internal_hosts=["127.0.0.1"], clock=self.clock, timeout=5
            )
        return self._channel

    def __enter__(self) -> FakeReceiver:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut the server down."""
        self._closing.set()
        self._server.close()

    def script(self, *answers: tuple[int, Mapping[str, str]] | str) -> None:
        """How the next requests are answered: a status with headers, or a word.

        `"dropped"`: it takes the event, and the connection is lost. `"slow"`: it answers nothing until it is closed.
        """
        self._script += answers

    # As `Platform`

    def connect(self, handler: Answering) -> None:
        """Have answers sent to this handler."""
        self._handler = handler

    def alias(self, by: str) -> str:
        """The alias by which a directory knows a person."""
        return f"{self.place}:{by}"

    def messages(self) -> list[Shown]:
        """The requests, each as its newest event says, oldest first."""
        found: dict[str, list[dict[str, Any]]] = {}
        for event in [*self._events.values()]:
            if event["type"] != "request.reminded":
                found.setdefault(event["data"]["pending_id"], []).append(event["data"])
        return [_shown(id, max(each, key=_version), len(each) - 1) for id, each in found.items()]

    def reminders(self) -> list[str]:
        """The texts of reminders."""
        return [
            f"Still waiting: {event['data']['title']}: {event['data']['status']}"
            for event in [*self._events.values()]
            if event["type"] == "request.reminded"
        ]

    def told(self, by: str) -> list[str]:
        """What a person was told."""
        return [text for who, text in self._told if who == by]

    def pings(self) -> list[str]:
        """Characters that cannot be seen, or turn the direction of a text. JSON has no mentions and no markup."""
        return [
            text
            for event in [*self._events.values()]
            for text in _texts(event["data"])
            if escaped(text) != text or re.search(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text)
        ]

    def fail(self, *troubles: Trouble) -> None:
        """What goes wrong with the next events."""
        statuses: dict[Trouble, tuple[int, Mapping[str, str]]] = {
            "limited": (429, {"Retry-After": "30"}),
            "down": (503, {}),
            "refused": (403, {}),
            "gone": (410, {}),
        }
        self.script(*(statuses.get(trouble, trouble) for trouble in troubles))

    def sign(self, shown: Shown, action: Action, by: str, values: Mapping[str, str] | None = None) -> Sent:
        """The request that an answer is, signed now; with the values of a form, or without."""
        answer = {"data": shown.buttons[action], "by": by, **({"values": dict(values)} if values is not None else {})}
        return self.signed(json.dumps(answer).encode())

    def signed(self, body: bytes, *, secret: str = ANSWER_SECRET, at: float | None = None, id: str = "") -> Sent:
        """A request with any body, signed with a secret at a time: by default the right ones, and a new id."""
        self._count += 1
        id = id or f"msg_answer{self._count}"
        moment = datetime.fromtimestamp(int(self.clock.now if at is None else at), UTC)
        headers = {
            "Content-Type": "application/json",
            "webhook-id": id,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": Webhook(secret).sign(id, moment, body.decode()),
        }
        return Sent(path="/chat/webhook", headers=headers, body=body)

    def deliver(self, sent: Sent) -> Response:
        """Send a request to the handler, and let it finish."""
        return delivered(self._handler, sent)

    def click(self, shown: Shown, action: Action, by: str) -> Response:
        """Answer without values."""
        response = self.deliver(self.sign(shown, action, by))
        reply = self._note(by, response)
        if "form" in reply:
            self._forms[by] = reply["form"]
        return response

    def answer(self, shown: Shown, action: Action, by: str, values: Mapping[str, str]) -> dict[str, Any]:
        """Answer with values, in one step; returns the reply."""
        return self._note(by, self.deliver(self.sign(shown, action, by, values)))

    def form(self, by: str) -> dict[str, str] | None:
        """The fields of the form that a person has got, with what they begin with; None if they have none."""
        form = self._forms.get(by)
        return {each["name"]: each["value"] for each in form["fields"]} if form is not None else None

    def submit(self, by: str, values: Mapping[str, str]) -> dict[str, str]:
        """Send the form back with these values changed; returns what is wrong with each field."""
        form = self._forms[by]
        whole = {**{each["name"]: each["value"] for each in form["fields"]}, **values}
        sent = self.signed(json.dumps({"data": form["data"], "by": by, "values": whole}).encode())
        errors: dict[str, str] = self._note(by, self.deliver(sent)).get("errors", {})
        if not errors:
            del self._forms[by]
        return errors

    # Receiving

    def _note(self, by: str, response: Response) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(response.body) if response.status in (200, 422) else {}
        if reply.get("notice") is not None:
            self._told.append((by, reply["notice"]))
        return reply

    def _served(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        answer = self._answer(path, headers, body)
        return (answer[0], {**answer[1], "connection": "close"}, None) if answer is not None else None

    def _answer(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, str]] | None:
        got = Got(headers=headers, body=body, is_proven=self._is_proven(headers, body))
        with self._lock:
            self.got.append(got)
            scripted = self._script.pop(0) if self._script else None
        if scripted == "slow":
            self._closing.wait()
            return None
        if isinstance(scripted, tuple) and not 200 <= scripted[0] < 300:
            return scripted
        if path != _PATH or not got.is_proven:
            return 401, {}
        if len(body) >= _LARGEST:
            return 413, {}
        with self._lock:
            self._events.setdefault(got.id, got.event)  # the same event again is none
        if scripted == "dropped":
            return None
        return scripted if isinstance(scripted, tuple) else (204, {})

    def _is_proven(self, headers: Mapping[str, str], body: bytes) -> bool:
        try:
            self._verifier.verify(body, dict(headers))
        except (WebhookVerificationError, ValueError):
            return False
        return True


def _version(data: Mapping[str, Any]) -> int:
    return int(data["version"])


def _shown(id: str, data: Mapping[str, Any], edits: int) -> Shown:
    lines = [f"{line['name']}: {line['value']}" for line in data["lines"]]
    text = "\n".join([data["title"], data["status"], *lines, *data["notes"]])
    return Shown(ref=id, text=text, buttons=data["answers"], link=data["link"], edits=edits)


def _texts(value: Any) -> list[str]:
    """All texts in a value."""
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []


__all__ = ["ANSWER_SECRET", "SECRET", "FakeReceiver", "Got"]

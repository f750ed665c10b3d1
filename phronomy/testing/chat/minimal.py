"""A minimal chat platform and its channel, in memory: an example of a channel, and a second platform for tests.

Its requests are JSON, signed with HMAC-SHA256 over the time, a dot and the body. It escapes `@` and `[` by a backslash.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from phronomy.chat.channel import (
    Action,
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
)
from phronomy.chat.http import HttpRequest, Refused, Response, json_response
from phronomy.foundation.json_text import JsonError, parse
from phronomy.testing.chat.platform import Answering, Clock, Sent, Shown, Trouble, Written, delivered

_SECRET: Final = b"a secret of tests"


class MinimalChannel:
    """The channel of a `MinimalPlatform`."""

    name: Final = "minimal"
    form_limits: FormLimits = FormLimits(fields=10, value=1_000, choices=10)
    say_limit: int = 400

    def __init__(self, platform: MinimalPlatform) -> None:
        self._platform = platform

    def receive(self, request: HttpRequest, *, now: float) -> Received | Response:
        """As `Channel.receive`."""
        at, given = request.headers.get("x-time", ""), request.headers.get("x-signature", "")
        wanted = signature(at, request.body)
        if not hmac.compare_digest(wanted.encode(), given.encode("utf-8", "surrogatepass")):
            raise Refused(401, "not signed")
        if not at.isdigit() or abs(now - int(at)) > 300:
            raise Refused(401, "too old")
        try:
            said: Any = parse(request.body.decode())
            if said["kind"] == "hello":
                return json_response({"hello": said["hello"]})
            alias, delivery = f"minimal:{said['user']}", str(said["id"])
            if said["kind"] == "message":
                thread, reply = str(said["thread"]), {"user": str(said["user"])}
                return Said(
                    alias=alias, delivery=delivery, text=str(said["text"]), thread=thread, to=thread, reply=reply
                )
            data = str(said["data"])
            ref = str(said["ref"])
            if said["kind"] == "click":
                return Click(alias=alias, delivery=delivery, data=data, ref=ref, reply={"user": str(said["user"])})
            values = {str(name): str(value) for name, value in said["values"].items()}
        except (JsonError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
            raise Refused(400, "not understood") from None
        return Submitted(alias=alias, delivery=delivery, data=data, values=values, ref=ref)

    def acknowledge(self, received: Received, notice: str | None) -> Response:
        """As `Channel.acknowledge`."""
        return json_response({"notice": notice} if notice is not None else {})

    def open_form(self, click: Click, form: Form) -> Response:
        """As `Channel.open_form`."""
        self._platform.meet_trouble()
        self._platform.forms[click.reply["user"]] = (form, click.ref or "")
        return json_response({})

    def show_errors(self, submitted: Submitted, errors: Mapping[str, str]) -> Response:
        """As `Channel.show_errors`."""
        return json_response({"errors": dict(errors)})

    def post(self, to: str, card: Card, *, key: str) -> str:
        """As `Channel.post`."""
        return self._platform.post(to, card)

    def say(self, to: str, text: str, *, key: str) -> str:
        """As `TalkingChannel.say`."""
        return self._platform.say(to, text)

    def update(self, ref: str, card: Card) -> None:
        """As `Channel.update`."""
        self._platform.update(ref, card)

    def remind(self, ref: str, card: Card) -> None:
        """As `Channel.remind`."""
        self._platform.meet_trouble()
        self._platform.reminded.append(f"Still waiting: {card.text}")

    def pace(self, work: Work, to: str) -> Pace:
        """As `Channel.pace`."""
        return Pace(lane="all", seconds=0.001)


class MinimalPlatform:
    """A chat platform in memory, with one room."""

    place: Final = "minimal:room"
    signs: Final = "requests"
    forms_are_answers: Final = False

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock if clock is not None else Clock()
        self.channel: MinimalChannel = MinimalChannel(self)
        self.forms: dict[str, tuple[Form, str]] = {}
        self.reminded: list[str] = []
        self._shown: dict[str, Shown] = {}
        self._places: dict[str, str] = {}
        self._told: list[tuple[str, str]] = []
        self._troubles: list[Trouble] = []
        self._handler: Answering | None = None
        self._count = 0
        self._lock = threading.Lock()

    # For the channel

    def meet_trouble(self) -> bool:
        """Have the next trouble happen; whether the answer is to be lost. Raises `ChannelError`."""
        self.clock.move(0.001)
        trouble = self._troubles.pop(0) if self._troubles else None
        if trouble == "limited":
            raise RateLimited("wait", seconds=30.0)
        if trouble == "down":
            raise ChannelError("down")
        if trouble in ("refused", "gone"):
            raise ChannelRefused("no", gone=trouble == "gone")
        return trouble == "dropped"

    def post(self, to: str, card: Card) -> str:
        """Post a message."""
        return self._add(to, lambda ref: _shown(ref, card, 0))

    def say(self, to: str, text: str) -> str:
        """Post a text."""
        assert 0 < len(text) <= MinimalChannel.say_limit
        return self._add(to, lambda ref: Shown(ref=ref, text=_escape(text)))

    def _add(self, to: str, made: Callable[[str], Shown]) -> str:
        is_lost = self.meet_trouble()
        with self._lock:
            ref = f"m{len(self._shown) + 1}"
            self._shown[ref] = made(ref)
            self._places[ref] = to
        if is_lost:
            raise ChannelError("no answer")
        return ref

    def update(self, ref: str, card: Card) -> None:
        """Edit a message."""
        is_lost = self.meet_trouble()
        self._shown[ref] = _shown(ref, card, self._shown[ref].edits + 1)
        if is_lost:
            raise ChannelError("no answer")

    # As `Platform`

    def connect(self, handler: Answering) -> None:
        """Have clicks sent to this handler."""
        self._handler = handler

    def alias(self, by: str) -> str:
        """The alias by which a directory knows a person."""
        return f"minimal:{by}"

    def messages(self) -> list[Shown]:
        """The messages of the room, oldest first."""
        return self.conversation("room")

    def write(self, by: str, text: str, *, thread: str | None = None) -> Written:
        """What a person writes to the bot; the whole platform has as many threads as anybody begins."""
        thread = thread if thread is not None else f"thread {self._count + 1}"
        sent = self._signed({"kind": "message", "user": by, "text": text, "thread": thread})
        return Written(sent=sent, thread=thread)

    def conversation(self, thread: str) -> list[Shown]:
        """What the bot has posted in a thread, oldest first."""
        return [shown for ref, shown in [*self._shown.items()] if self._places[ref] == thread]

    def reminders(self) -> list[str]:
        """The texts of reminders."""
        return list(self.reminded)

    def sign(self, shown: Shown, action: Action, by: str) -> Sent:
        """The request that a click makes, signed now."""
        return self._signed({"kind": "click", "user": by, "data": shown.buttons[action], "ref": shown.ref})

    def deliver(self, sent: Sent) -> Response:
        """Send a request to the handler, and let it finish."""
        response = delivered(self._handler, sent)
        if response.status == 200 and (said := json.loads(sent.body))["kind"] == "message":
            self._note(said["user"], response)
        return response

    def click(self, shown: Shown, action: Action, by: str) -> Response:
        """Press a button."""
        response = self.deliver(self.sign(shown, action, by))
        self._note(by, response)
        return response

    def form(self, by: str) -> dict[str, str] | None:
        """The fields of the open form."""
        return {each.name: each.value for each in self.forms[by][0].fields} if by in self.forms else None

    def submit(self, by: str, values: Mapping[str, str]) -> dict[str, str]:
        """Submit the open form; returns what is wrong."""
        form, ref = self.forms[by]
        whole = {**{each.name: each.value for each in form.fields}, **values}
        sent = self._signed({"kind": "form", "user": by, "data": form.data, "ref": ref, "values": whole})
        answer = self._note(by, self.deliver(sent))
        errors: dict[str, str] = answer.get("errors", {})
        if not errors:
            del self.forms[by]
        return errors

    def told(self, by: str) -> list[str]:
        """What a person alone was told."""
        return [text for who, text in self._told if who == by]

    def pings(self) -> list[str]:
        """Mentions and links that are not escaped."""
        return [each for shown in [*self._shown.values()] for each in re.findall(r"(?<!\\)[@\[]\w*", shown.text)]

    def fail(self, *troubles: Trouble) -> None:
        """What goes wrong next."""
        self._troubles += troubles

    def close(self) -> None:
        """Nothing is to be shut down."""

    def _note(self, by: str, response: Response) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(response.body) if response.status == 200 else {}
        if "notice" in answer:
            self._told.append((by, answer["notice"]))
        return answer

    def _signed(self, said: dict[str, Any]) -> Sent:
        self._count += 1
        body, at = json.dumps({"id": f"d{self._count}", **said}).encode(), str(int(self.clock.now))
        return Sent(path="/chat/minimal", headers={"X-Time": at, "X-Signature": signature(at, body)}, body=body)


def signature(at: str, body: bytes) -> str:
    """The signature of a body at this time."""
    return hmac.new(_SECRET, at.encode("utf-8", "surrogatepass") + b"." + body, hashlib.sha256).hexdigest()


def _escape(text: str) -> str:
    return re.sub(r"([@\[])", r"\\\1", text)


def _shown(ref: str, card: Card, edits: int) -> Shown:
    lines = [card.title, card.status, *(f"{line.name}: {line.value}" for line in card.lines), *card.notes]
    text = _escape("\n".join(lines))
    buttons: dict[str, str] = {each.action: each.data for each in card.buttons}
    return Shown(ref=ref, text=text, buttons=buttons, link=card.link, edits=edits)

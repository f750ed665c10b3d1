"""What a fake chat platform offers to tests: people who click, and a look at what they see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, Protocol, TypeAlias

from phronomy.chat.channel import Action, Channel
from phronomy.chat.http import Response
from phronomy.foundation.dataclasses import dataclass

Trouble: TypeAlias = Literal["limited", "down", "dropped", "refused", "gone"]
"""What goes wrong with a call to a platform.

`"limited"`: it asks to wait for 30 seconds. `"down"`: it fails, and has done nothing. `"dropped"`: it has done what was asked, and no
answer arrives. `"refused"`: it refuses for good. `"gone"`: the message is not there any more.
"""


class Clock:
    """A clock that moves only when a test moves it: `clock()` are seconds since the epoch."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now: float = now

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        """Have time pass."""
        self.now += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A message as people see it: its text, what each button carries, and its link. `edits` is how often it was changed."""

    ref: str
    text: str = field(repr=False)
    buttons: Mapping[str, str] = field(default_factory=dict, repr=False)
    link: str | None = None
    edits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request of the platform, signed: what `ChatApprovals.handle` takes."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a person has written to the bot: the request of the platform, and the thread of the chat, as the platform names it."""

    sent: Sent
    thread: str


def delivered(handler: Answering | None, sent: Sent) -> Response:
    """The answer of a handler to a request, once it has done what follows it."""
    assert handler is not None, "connect the platform first"
    response = handler.handle("POST", sent.path, sent.headers, sent.body)
    if response.after is not None:
        response.after()
    return response


class Answering(Protocol):
    """What answers a platform, such as `ChatApprovals`."""

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """As `ChatApprovals.handle`."""
        ...


class Platform(Protocol):
    """A fake chat platform. `by` is the id of a person there, such as `"U1"`."""

    channel: Channel
    place: str
    clock: Clock
    signs: Literal["requests", "origin"]
    """What the platform proves: each request with its time and its body, or only who sends it."""
    forms_are_answers: bool
    """Whether a form is the answer to a click itself, so that no call to the platform can fail that opens it."""

    def connect(self, handler: Answering) -> None:
        """Have clicks sent to this handler."""
        ...

    def alias(self, by: str) -> str:
        """The alias by which a directory knows a person."""
        ...

    def messages(self) -> list[Shown]:
        """The messages in the place, oldest first, without reminders."""
        ...

    def reminders(self) -> list[str]:
        """The texts of reminders."""
        ...

    def sign(self, shown: Shown, action: Action, by: str) -> Sent:
        """The request that a click makes, signed now."""
        ...

    def deliver(self, sent: Sent) -> Response:
        """Send a request to the handler, and let it finish."""
        ...

    def click(self, shown: Shown, action: Action, by: str) -> Response:
        """Press a button."""
        ...

    def form(self, by: str) -> dict[str, str] | None:
        """The fields of the form that is open for a person, with what they begin with; None if none is."""
        ...

    def submit(self, by: str, values: Mapping[str, str]) -> dict[str, str]:
        """Submit the open form with these values changed; returns what is wrong with each field. Without errors it closes."""
        ...

    def told(self, by: str) -> list[str]:
        """What a person alone was told."""
        ...

    def pings(self) -> list[str]:
        """Mentions, links and markup in messages that the platform would act on."""
        ...

    def fail(self, *troubles: Trouble) -> None:
        """What goes wrong with the next calls that the channel makes, one by one."""
        ...

    def close(self) -> None:
        """Shut it down."""
        ...


class TalkingPlatform(Platform, Protocol):
    """A fake chat platform on which people write to a bot."""

    def write(self, by: str, text: str, *, thread: str | None = None) -> Written:
        """The request that a message to the bot makes, signed now; `deliver` sends it. Without a thread it begins a new one."""
        ...

    def conversation(self, thread: str) -> list[Shown]:
        """What the bot has posted in a thread, texts and requests, oldest first."""
        ...

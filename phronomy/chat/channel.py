"""Channels: what a chat platform has to offer, so that people can decide there. Write one for a platform of your own.

A channel does three things. It proves that a request comes from its platform, and reads it. It answers within the deadline of the
platform. And it posts and edits messages. It decides nothing, keeps nothing, and knows neither stores nor agents: `ChatApprovals` does.
`phronomy.testing.chat.ChannelContract` tests a channel against all of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal, Protocol, TypeAlias

from phronomy.chat.http import HttpRequest, Response
from phronomy.errors import PhronomyError
from phronomy.foundation.dataclasses import dataclass

Action: TypeAlias = Literal["approve", "reject", "reason", "edit", "respond", "skip"]
"""What a button is for. `"reason"`, `"edit"` and `"respond"` open a form; `"reason"` rejects with what is written there."""

LETTERS: Final[Mapping[Action, str]] = {
    "approve": "a",
    "reject": "r",
    "reason": "n",
    "edit": "e",
    "respond": "p",
    "skip": "s",
}
"""The first character of what a button carries; the token follows."""

FORMS: Final = frozenset({"reason", "edit", "respond"})
"""The actions that open a form."""

Work: TypeAlias = Literal["post", "update", "remind"]
"""What is sent to a platform."""


class ChannelError(PhronomyError):
    """A platform has not done what a channel asked for. The outbox tries again later."""


class RateLimited(ChannelError):
    """The platform asks to wait for `seconds`."""

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message)
        self.seconds: float = seconds


class ChannelRefused(ChannelError):
    """The platform refuses this for good: the channel or the message is not there, or the token of the bot is wrong.

    `gone` says that it is the message that is not there any more.
    """

    def __init__(self, message: str, *, gone: bool = False) -> None:
        super().__init__(message)
        self.gone: bool = gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button under a message. `data` is what it carries: 45 characters of ASCII, opaque to the channel."""

    action: Action
    label: str
    data: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One fact of a request, such as an argument: a name and a value, both plain text."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A message about a request, before it has the form of any platform.

    All texts are plain text that users and models may have written: a channel escapes them by the rules of its platform.
    Characters that cannot be seen are written out as codes already. In all, a card has at most some 6,000 characters.
    `state` says whether the request waits. `mark` changes with what is asked.
    """

    title: str
    state: Literal["waits", "goes on", "over"]
    status: str
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    buttons: tuple[Button, ...] = ()
    link: str | None = None
    pending_id: str = ""
    mark: str = ""

    @property
    def text(self) -> str:
        """The message in one line, for notifications."""
        return f"{self.title}: {self.status}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a form: a text, a text of several lines, or a choice. `value` is what it begins with."""

    name: str
    label: str
    value: str = field(default="", repr=False)
    kind: Literal["text", "lines", "choice"] = "text"
    choices: tuple[str, ...] = ()
    required: bool = False
    hint: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form that a click opens. `data` comes back with what is submitted."""

    title: str
    submit: str
    fields: tuple[Field, ...]
    data: str = field(repr=False)
    intro: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormLimits:
    """The largest form of a platform: fields, characters of a value, and choices of a field."""

    fields: int
    value: int
    choices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Click:
    """Somebody has pressed a button.

    `alias` is the person's stable id on the platform, with the name of the channel before it, such as `slack:U123`: a
    directory knows people by it. `delivery` names this click. `ref` is the message, as `Channel.post` returns it, if it is known.
    `reply` is what the channel needs to answer, and is never shown or logged.
    """

    alias: str
    delivery: str
    data: str = field(repr=False)
    ref: str | None = None
    reply: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """Somebody has submitted a form; `values` are the texts of its fields. The other fields are those of a `Click`."""

    alias: str
    delivery: str
    data: str = field(repr=False)
    values: Mapping[str, str] = field(repr=False)
    ref: str | None = None
    reply: Mapping[str, str] = field(default_factory=dict, repr=False)


Received: TypeAlias = Click | Submitted
"""What somebody has done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a platform takes something: one in so many `seconds` for everything that has the same `lane`."""

    lane: str
    seconds: float


class Channel(Protocol):
    """A chat platform. All methods are sync, are called from any thread, and must not wait longer than some seconds."""

    @property
    def name(self) -> str:
        """The name of the channel: small letters. It is the last part of the path that the platform sends to."""
        ...

    @property
    def form_limits(self) -> FormLimits | None:
        """The largest form; None if the platform has no forms."""
        ...

    def receive(self, request: HttpRequest, *, now: float) -> Received | Response:
        """Prove that a request comes from the platform, and read it; a `Response` answers what is nothing for people.

        The proof comes first, over the raw bytes. `now` is the time in seconds since the epoch. Raises `Refused` for all
        that is not proven, is too old or makes no sense.
        """
        ...

    def acknowledge(self, received: Received, notice: str | None) -> Response:
        """Answer a click or a form. `notice` is told to this person alone, in `Response.after` if it takes another request."""
        ...

    def open_form(self, click: Click, form: Form) -> Response:
        """Open a form for the person who clicked. Raises `ChannelError` if that cannot be done now."""
        ...

    def show_errors(self, submitted: Submitted, errors: Mapping[str, str]) -> Response:
        """Say what is wrong with a form: a text for the name of each field."""
        ...

    def post(self, to: str, card: Card, *, key: str) -> str:
        """Post a message to a place of the platform, and return a reference to it of at most 500 characters.

        `key` is the same if the same post is tried again: use it where the platform can recognise a repetition. Raises
        `ChannelError`.
        """
        ...

    def update(self, ref: str, card: Card) -> None:
        """Have a message say something else. Raises `ChannelError`."""
        ...

    def remind(self, ref: str, card: Card) -> None:
        """Remind people of a message, below it. Raises `ChannelError`."""
        ...

    def pace(self, work: Work, to: str) -> Pace:
        """How fast this place takes work of this kind."""
        ...

"""Channels: what a chat platform has to offer, so that people can decide there. Write one for a platform of your own.

A channel does three things. It proves that a request comes from its platform, and reads it. It answers within the deadline of the
platform. And it posts and edits messages. It decides nothing, keeps nothing, and knows neither stores nor agents: `ChatApprovals` does.
`phronomy.testing.chat.ChannelContract` tests a channel against all of this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from phronomy.chat.http import HttpRequest, Response
from phronomy.errors import ConfigurationError, PhronomyError
from phronomy.foundation.checks import is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted

Action: TypeAlias = Literal["approve", "reject", "reason", "edit", "respond", "skip"]
"""What a button is for. `"reason"`, `"edit"` and `"respond"` open a form; `"reason"` rejects with what is written there."""

Pressed: TypeAlias = Action | Literal["remind"]
"""The meaning of a button: an action, or a reminder of the people whose turn it is."""

LETTERS: Final[Mapping[Action, str]] = {
    "approve": "a",
    "reject": "r",
    "reason": "n",
    "edit": "e",
    "respond": "p",
    "skip": "s",
}
"""The first character of what a button carries; the token follows."""

REMIND: Final = "m"
"""The same of a button that reminds people, and decides nothing."""

FORMS: Final = frozenset({"reason", "edit", "respond"})
"""The actions that open a form."""

APPROVING: Final = frozenset({"approve", "edit"})
"""The actions by which a call runs."""

Work: TypeAlias = Literal["post", "update", "remind"]
"""What is sent to a platform."""


class ChannelError(PhronomyError):
    """A platform has not done what a channel asked for. The outbox tries again later."""


LONGEST_WAIT: Final = 86_400.0
"""Seconds after which a platform that asks to wait is asked once more, whatever it says: a wrong number must not silence a place."""


class RateLimited(ChannelError):
    """The platform asks to wait for `seconds`. More than a day, and what is no number of seconds, is taken as a day."""

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message)
        self.seconds: float = min(max(float(seconds), 0.0), LONGEST_WAIT) if is_number(seconds) else LONGEST_WAIT


class ChannelRefused(ChannelError):
    """The platform refuses this for good: the channel or the message is not there, or the token of the bot is wrong.

    `gone` says that it is the message that is not there any more. `final` says that another try is of no use.
    """

    def __init__(self, message: str, *, gone: bool = False, final: bool = False) -> None:
        super().__init__(message)
        self.gone: bool = gone
        self.final: bool = final


_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")


def check_name(name: object, of: str = "a channel") -> None:
    """Refuse what is no name of a channel, which stands in places, aliases and paths. Raises `ConfigurationError`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(f"the name of {of} is a few small letters, not {quoted(name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button under a message. `data` is what it carries: 45 characters of ASCII, opaque to the channel."""

    action: Pressed
    label: str
    data: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One fact of a request, such as an argument: a name and a value, both plain text."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """Somebody whom a message is to mention. `id` is what `ReachesPeople.mention_of` has returned; `name` is plain text of others."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A message about a request, before it has the form of any platform.

    All texts are plain text that users and models may have written: a channel escapes them by the rules of its platform.
    Characters that cannot be seen are written out as codes already. In all, a card has at most some 6,000 characters.
    `state` says whether the request waits. `mark` changes with what is asked; `digest` is that of the request, and empty where there
    is none. `version` is a number that grows with each change of the post, and the same if sending it is tried again.
    `state` says whether the request waits. `mark` changes with what is asked. `votes` is how many people have voted while it waits.
    `whole` is False where something of the arguments is told by its size alone. Then it has no buttons that approve, except with
    `approves_unseen`. A channel that leaves out a line posts `without_approval()`.
    `metadata` is the canonical text of the data that were given with the decision, for programs alone.
    `mentions` are the people whose turn it is. The platform tells them of a new message that mentions them, and nobody else.
    `quiet` says that the place is of one person whose turn it is not any more: nobody is reminded there.
    `times` are those that stand in `status` and in the last of the `notes`, in UTC: `pieces` finds them there.
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
    digest: str = ""
    version: int = 0
    votes: int = 0
    whole: bool = True
    approves_unseen: bool = False
    metadata: str = "{}"
    times: tuple[datetime, ...] = ()
    mentions: tuple[Mention, ...] = ()
    quiet: bool = False

    @property
    def text(self) -> str:
        """The message in one line, for notifications."""
        return f"{self.title}: {self.status}"

    def pieces(self, text: str) -> list[str | datetime]:
        """A text in pieces, with each of the `times` in the place of its words: where people see times in their own zone."""
        found: list[str | datetime] = [text]
        for at in self.times:
            found = [each for piece in found for each in (_cut_at(piece, at) if isinstance(piece, str) else [piece])]
        return [each for each in found if each != ""] or [text]

    def without_approval(self) -> Card:
        """The message where not all of the arguments is shown: without the buttons that approve."""
        if self.approves_unseen:
            return replace(self, whole=False)
        kept = tuple(each for each in self.buttons if each.action not in APPROVING)
        return replace(self, buttons=kept, whole=False)


def moment(at: datetime) -> str:
    """A time, for people."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _cut_at(text: str, at: datetime) -> Iterator[str | datetime]:
    first, *others = text.split(moment(at))
    yield first
    for each in others:
        yield at
        yield each


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
    """The largest form of a platform: fields, characters of a value, and choices of a field.

    `begins` says whether a field can begin with a value. Where it cannot, nothing is edited in the chat.
    """

    fields: int
    value: int
    choices: int
    begins: bool = True


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
    """Somebody has submitted a form; `values` are the texts of its fields. The other fields are those of a `Click`.

    With `partial`, a field that is not there stays as it is; else it is empty.
    """

    alias: str
    delivery: str
    data: str = field(repr=False)
    values: Mapping[str, str] = field(repr=False)
    partial: bool = False
    ref: str | None = None
    reply: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Somebody has written to the bot. `thread` names the conversation, and `to` is the place of the platform that an answer goes to.

    Both are without the name of the channel. The other fields are those of a `Click`.
    """

    alias: str
    delivery: str
    text: str = field(repr=False)
    thread: str
    to: str
    reply: Mapping[str, str] = field(default_factory=dict, repr=False)


Received: TypeAlias = Click | Submitted | Said
"""What somebody has done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewed:
    """Somebody looks at a message, and their client asks for it as they are to see it. It decides nothing, and no message changes.

    `data` is what any of the buttons of the message carries. The other fields are those of a `Click`.
    """

    alias: str
    delivery: str
    data: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a platform takes something: one in so many `seconds` for everything that has the same `lane`.

    `retries` are the seconds before each further try of what has failed; after the last one, it has failed for good. Without them,
    the outbox tries again after 1, 2, 4... seconds, at most 5 minutes. `batches` says whether one message may stand for many.
    """

    lane: str
    seconds: float
    retries: tuple[float, ...] = ()
    batches: bool = True


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

    def receive(self, request: HttpRequest, *, now: float) -> Received | Viewed | Response:
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


class TalkingChannel(Channel, Protocol):
    """A channel over which a bot talks with people: `receive` returns what they write as `Said`, and `say` answers.

    What comes from the bot itself or from another one, and what only changes a message, is no `Said`.
    """

    @property
    def say_limit(self) -> int:
        """So many characters `say` takes at most, whatever they are."""
        ...

    def say(self, to: str, text: str, *, key: str) -> str:
        """Post plain text to a place, and return a reference to the message. Nothing in it may act: no mention, link or markup.

        `to` is as in `Said`. `key` is the same if the same text is tried again. Raises `ChannelError`.
        """
        ...


@runtime_checkable
class PersonalChannel(Protocol):
    """What a channel has beside the methods of `Channel` if each of its places is of one person: whoever gets a message can decide."""

    def alias_at(self, to: str) -> str:
        """The alias of the person whose place this is."""
        ...


@runtime_checkable
class ReachesPeople(Protocol):
    """The further methods of a `Channel` that can tell one person something, by their alias in a directory.

    The aliases that it is asked about begin with its name.
    """

    @property
    def name(self) -> str:
        """As `Channel.name`."""
        ...

    def place_of(self, alias: str) -> str | None:
        """The place, for `post`, that only this person sees; None for an alias that nothing can be sent to."""
        ...

    def mention_of(self, alias: str) -> str | None:
        """The `id` of a `Mention` of this person; None where a message cannot mention them."""
        ...


Listener: TypeAlias = Callable[[Channel, Said], Response | None]
"""What answers a message to the bot of a channel, such as by `Channel.acknowledge`; None leaves it to the next listener."""


@runtime_checkable
class LeadsToPage(Protocol):
    """A channel whose buttons open a page that shows the whole request has this beside the methods of `Channel`.

    What they stand for is pressed there.
    """

    @property
    def opens_page(self) -> Literal[True]:
        """Always True."""
        ...


@runtime_checkable
class ShowsCards(Protocol):
    """What a channel has beside the methods of `Channel` if its platform can show a message to one person otherwise than to others.

    A click that is recorded is then answered with `show` rather than with `acknowledge`, and so is whoever has `Viewed` a message.
    """

    def show(self, received: Click | Viewed, card: Card | None) -> Response:
        """Answer with the message as this person is to see it: with the buttons that count for them. None if it is not known here."""
        ...

"""What a model is to phronomy: a request, a reply, and the two methods between them."""

from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Protocol, TypeAlias, runtime_checkable

from pydantic import Field

from phronomy.concurrency.leaving import Patience
from phronomy.errors import ConfigurationError, InvalidField
from phronomy.foundation.json_text import JsonError, canonical
from phronomy.records.messages import Message, Usage
from phronomy.records.record import EMPTY, JsonObject, Record, Text


class ModelSettings(Record):
    """How a model is to be asked. What is not set is left to the provider.

    `tool_choice` is `"auto"`, `"required"`, `"none"` or the name of the one tool to call. `timeout` is in seconds, for
    one attempt, from the connection to the end of the answer. `extra` holds provider options by their own names, such as
    `reasoning_effort`; the options above win over an equal name in it.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    tool_choice: Annotated[Text, Field(min_length=1)] | None = None
    parallel_tool_calls: bool | None = None
    stop: Annotated[tuple[Text, ...], Field(strict=False)] | None = None
    seed: int | None = None
    timeout: float | None = Field(default=None, gt=0)
    extra: JsonObject = Field(default=EMPTY, repr=False)  # may hold headers, so it stays out of reprs

    def merged(self, other: "ModelSettings | None") -> "ModelSettings":
        """These settings with those of `other` put over them: what `other` sets wins, option by option in `extra`."""
        if other is None or other == _UNSET:
            return self
        if self == _UNSET:
            return other
        known = {name: value for name, value in vars(other).items() if value is not None}
        try:
            extra = canonical({**self.extra, **other.extra})
        except JsonError as error:  # each of the two was within the limit
            raise InvalidField(f"ModelSettings: extra: {error}") from None
        return self.evolve(**{**known, "extra": extra})


_UNSET: Final = ModelSettings.model_construct()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRequest:
    """Everything that goes to a model in one call.

    `tools` are in the form of the chat-completions protocol: `{"type": "function", "function": {...}}`. `patience` says how long
    the answer is waited for, all attempts and pauses included, and whether it still is.
    """

    system: str | None = None
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)
    patience: Patience = field(default_factory=Patience, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReply:
    """What a model answered: one assistant message, what it cost, and why the model stopped there.

    `id` is the provider's for the answer, `model` the name of the model that gave it, where the provider says so: for telemetry alone.
    """

    message: Message
    usage: Usage = field(default_factory=lambda: Usage(requests=1))
    finish_reason: str | None = None
    id: str | None = field(default=None, compare=False)
    model: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name, kind in (("message", Message), ("usage", Usage)):
            if not isinstance(given := getattr(self, name), kind):
                raise ConfigurationError(f"{name} of a ModelReply is a {kind.__name__}, not {type(given).__name__}")
        if self.message.role != "assistant":
            raise ConfigurationError(
                f"a model replies with an assistant message, not with a {self.message.role} message"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    """The next piece of the reply's text."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningDelta:
    """The next piece of what the model lets be seen of its reasoning."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallDelta:
    """The next piece of a tool call: `index` is its place in the reply; `id` and `name` come with its first piece."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = field(default="", repr=False)


DELTAS: Final = (TextDelta, ReasoningDelta, ToolCallDelta)
Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
"""A piece of a reply, as it is streamed. Nothing is kept of it: the reply at the end says it all."""


@runtime_checkable
class Model(Protocol):
    """Anything that answers a `ModelRequest`, sync and async.

    A call either gives a whole reply or raises; `ModelError` is for what the provider or the way to it did wrong.

    A sync run asks it in a thread of its own, and any run leaves it when `timeout` or a limit is over, or the run is. One that has
    `keeps_time = True` does all that by itself, by `timeout` and the `patience` of the request: it is asked in the caller's thread.
    """

    @property
    def name(self) -> str:
        """The name of the model, for people and logs."""
        ...

    def complete(self, request: ModelRequest) -> ModelReply:
        """Ask the model and wait for its reply. Raises `ModelError`."""
        ...

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """Ask the model without blocking the event loop. Raises `ModelError`."""
        ...


@runtime_checkable
class StreamingModel(Model, Protocol):
    """A model that can also give its reply piece by piece. One that cannot is asked for a whole reply in `agent.stream`.

    The last item of a stream is the whole reply, the same that `complete` would give. A stream that cannot end so raises
    `ModelError`; closing it early lets go of the connection.
    """

    def stream(self, request: ModelRequest) -> Generator[Delta | ModelReply]:
        """Ask the model, and give what comes as it comes."""
        ...

    def astream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply]:
        """As `stream`, without blocking the event loop."""
        ...

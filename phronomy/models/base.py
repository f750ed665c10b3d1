"""What a model is to phronomy: a request, a reply, and the two methods between them."""

from collections.abc import AsyncGenerator, Generator
from dataclasses import field
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from phronomy.concurrency.leaving import Patience
from phronomy.errors import ConfigurationError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import object_of, text_of
from phronomy.models.settings import ModelSettings
from phronomy.records.messages import Message, Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRequest:
    """A request to a model: everything that the model gets in one call.

    `tools` have the form of the chat-completions protocol: `{"type": "function", "function": {...}}`. `patience` says
    how long the caller waits for the answer, with all attempts and pauses, and whether the caller still waits.
    """

    system: str | None = None
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)
    patience: Patience = field(default_factory=Patience, compare=False, repr=False)


def tool_names(request: ModelRequest) -> list[str]:
    """The names of the tools that the model is offered."""
    functions = (object_of(tool.get("function")) for tool in request.tools)
    return [text_of(function.get("name")) for function in functions]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReply:
    """The reply of a model: one assistant message, its usage, and the reason why the model stopped.

    `id` is the provider's id of the answer, and `model` is the name of the model that answered, if the provider sends
    them. Both are only for telemetry.
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
    """The next piece of the text of a reply."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningDelta:
    """The next piece of the visible reasoning of a model."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallDelta:
    """The next piece of a tool call. `index` is its place in the reply. The first piece has the `id` and the `name`."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = field(default="", repr=False)


DELTAS: Final = (TextDelta, ReasoningDelta, ToolCallDelta)
Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
"""A piece of a streamed reply. Pieces are not stored, because the reply at the end contains everything."""


@runtime_checkable
class Model(Protocol):
    """Any object that answers a `ModelRequest`, sync and async.

    A call returns a whole reply, or raises. `ModelError` is for faults of the provider and of the connection.

    A sync run calls the model in a thread. A run stops waiting for the model when `timeout` or a limit is over, or when
    the run is cancelled. A model with `keeps_time = True` does all this itself, by `timeout` and the `patience` of the
    request. It is then called in the caller's thread.
    """

    @property
    def name(self) -> str:
        """The name of the model, for people and logs."""
        ...

    def complete(self, request: ModelRequest) -> ModelReply:
        """Ask the model, and wait for its reply. Raises `ModelError`."""
        ...

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """The async twin of `complete`."""
        ...


@runtime_checkable
class StreamingModel(Model, Protocol):
    """A model that can also give its reply in pieces. In `agent.stream`, any other model gives its whole reply at once.

    The last item of a stream is the whole reply, the same that `complete` would return. A stream that breaks off raises
    `ModelError`. If you close a stream early, its connection is closed.
    """

    def stream(self, request: ModelRequest) -> Generator[Delta | ModelReply]:
        """Ask the model, and yield each piece as it arrives. The last item is the whole reply."""
        ...

    def astream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply]:
        """The async twin of `stream`."""
        ...

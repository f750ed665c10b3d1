"""What a model is to phronomy: a request, a reply, and the two methods between them."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from pydantic import Field

from phronomy._json import JsonText
from phronomy._record import JsonObject, Record, Text
from phronomy.errors import ConfigurationError
from phronomy.messages import Message, Usage


class ModelSettings(Record):
    """How a model is to be asked. What is not set is left to the provider.

    `tool_choice` is `"auto"`, `"required"`, `"none"` or the name of the one tool to call. `timeout` is in seconds, for
    one attempt. `extra` holds provider options by their own names, such as `reasoning_effort`; the options above win
    over an equal name in it.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    tool_choice: Annotated[Text, Field(min_length=1)] | None = None
    parallel_tool_calls: bool | None = None
    stop: Annotated[tuple[Text, ...], Field(strict=False)] | None = None
    seed: int | None = None
    timeout: float | None = Field(default=None, gt=0)
    extra: JsonObject = Field(
        default=cast(Any, JsonText("{}")), repr=False
    )  # may hold headers, so it stays out of reprs

    def merged(self, other: ModelSettings | None) -> ModelSettings:
        """These settings with those of `other` put over them: what `other` sets wins, option by option in `extra`."""
        if other is None or other == _UNSET:
            return self
        if self == _UNSET:
            return other
        fields: dict[str, Any] = {}
        for name in type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            fields[name] = {**mine, **theirs} if name == "extra" else mine if theirs is None else theirs
        return ModelSettings(**fields)


_UNSET: Final = ModelSettings()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRequest:
    """Everything that goes to a model in one call.

    `tools` are in the form of the chat-completions protocol: `{"type": "function", "function": {...}}`.
    """

    system: str | None = None
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReply:
    """What a model answered: one assistant message, what it cost, and why the model stopped there."""

    message: Message
    usage: Usage = field(default_factory=lambda: Usage(requests=1))
    finish_reason: str | None = None

    def __post_init__(self) -> None:
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
    arguments: str = ""


DELTAS: Final = (TextDelta, ReasoningDelta, ToolCallDelta)
Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
"""A piece of a reply, as it is streamed. Nothing is kept of it: the reply at the end says it all."""


@runtime_checkable
class Model(Protocol):
    """Anything that answers a `ModelRequest`, sync and async.

    A call either gives a whole reply or raises; `ModelError` is for what the provider or the way to it did wrong.
    """

    @property
    def name(self) -> str:
        """The name of the model, for people and logs."""
        ...

    def complete(self, request: ModelRequest) -> ModelReply:
        """Ask the model and wait for its reply."""
        ...

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """Ask the model without blocking the event loop."""
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


def as_model(model: str | Model) -> Model:
    """The model itself, or the one of that name: a `LiteLLMModel`, unless `PHRONOMY_MODEL_BACKEND` says otherwise.

    With `PHRONOMY_MODEL_BACKEND=chat_completions` a name becomes a `ChatCompletionsModel`, and `openai/gpt-4o` is asked
    for as `gpt-4o`. Raises `ConfigurationError` for anything that is neither a name nor a `Model`, and for a backend
    that is not known.
    """
    if isinstance(model, str):
        return _named(model, os.environ.get("PHRONOMY_MODEL_BACKEND") or "litellm")
    if isinstance(model, type) or not isinstance(model, Model):
        raise ConfigurationError(f"a model is a name or has `name`, `complete` and `acomplete`; this is {model!r:.100}")
    return model


def _named(name: str, backend: str) -> Model:
    if backend == "litellm":
        from phronomy.models.litellm import LiteLLMModel  # noqa: PLC0415  # stands on this module

        return LiteLLMModel(name)
    if backend == "chat_completions":
        from phronomy.models.chat_completions import ChatCompletionsModel  # noqa: PLC0415  # stands on this module

        return ChatCompletionsModel(name.removeprefix("openai/"))
    raise ConfigurationError(f"PHRONOMY_MODEL_BACKEND is litellm or chat_completions, not {backend!r:.100}")

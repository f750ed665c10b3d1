"""Memory: how much of a conversation the model is shown at one call of it. The record keeps all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, field

from phronomy.errors import ConfigurationError, MemoryFailed
from phronomy.foundation.checks import close_unawaited, is_async, is_count
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonValue
from phronomy.foundation.spelling import GivenFields
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.messages import Message

_BYTES_PER_TOKEN = 4
_AROUND = 4  # tokens that stand around each message and each call
_PART = 1000  # tokens of a part that is no text, such as an image


def estimate(message: Message) -> int:
    """Estimate the tokens of a message: a quarter of its bytes in UTF-8, and a few for the message and each call.

    The names and arguments of its calls count, and so do the provider's other fields. A content part that is not text,
    such as an image, counts 1,000 tokens.
    """
    size, tokens = 0, _AROUND
    text = message.json_text("content")
    if text[:1] == "[":
        size = _size(message.text)
        tokens += _PART * sum(1 for part in message.content if not _is_text(part))
    elif text[:1] == '"':
        size = _size(text) - 2
    for call in message.tool_calls:
        size += _size(call.name) + _size(call.arguments)
        tokens += _AROUND
    beside = message.json_text("provider")
    if beside != "{}":
        size += _size(beside)
    return tokens - -size // _BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True)
class Memory(GivenFields):
    """How much of the conversation the model is shown: `Agent(memory=Memory(8_000))`. The record keeps all messages.

    The model is shown the present run from its input on. It is also shown as many earlier messages as `max_tokens` and
    `max_messages` allow, starting at a message of the user, so that no call is shown without its result. None means no
    limit; at least one limit is needed. A run that is too long by itself is still shown whole, so that the model does
    not repeat work that it forgot. With `trim_run`, only its input and its newest calls with their results are shown.

    `count` counts the tokens of a message; by default they are estimated from its length. The instructions, the tools
    and the answer need room in addition. Raises `ConfigurationError`.
    """

    max_tokens: int | None = None
    _: KW_ONLY
    max_messages: int | None = None
    trim_run: bool = False
    count: Callable[[Message], int] = field(default=estimate, repr=False)

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_messages"):
            bound = getattr(self, name)
            if bound is not None and (not is_count(bound) or bound == 0):
                raise ConfigurationError(f"memory: {name} is a whole number above 0, or None")
        if self.max_tokens is None and self.max_messages is None:
            raise ConfigurationError(
                "memory: give max_tokens, max_messages or both; an agent without one shows everything"
            )
        if not isinstance(self.trim_run, bool):
            raise ConfigurationError(f"memory: trim_run is True or False, not {type(self.trim_run).__name__}")
        if not callable(self.count) or isinstance(self.count, type):
            raise ConfigurationError("memory: count is a function of one message that gives its tokens")
        if is_async(self.count):
            raise ConfigurationError(
                "memory: count is async, and each message is counted at once: give a sync function"
            )

    def view(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages that the model would be shown, if the present run starts at the last message of the user.

        If all messages fit, all are returned. Raises `MemoryFailed` if `count` raises, or returns no whole number of 0
        or more.
        """
        said = messages if isinstance(messages, tuple) else tuple(messages)
        places = range(len(said) - 1, -1, -1)
        return self._view(said, next((place for place in places if said[place].role == "user"), -1))

    def _view(self, said: tuple[Message, ...], began: int) -> tuple[Message, ...]:
        """The messages that are shown of a conversation whose present run began with the message at this place; -1: with none of them.

        It is read from its end, and no further than it is shown.
        """
        room = _Room(self)
        input = said[began : began + 1] if began >= 0 else ()
        for message in input:
            room.takes(message)
        start = len(said)
        for place in range(len(said) - 1, began, -1):
            if not room.takes(said[place]) and self.trim_run and start < len(said):
                return (*input, *said[start:])
            if said[place].role == "assistant":  # it goes with all that answers it
                start = place
        start = began
        for place in range(began - 1, -1, -1):
            if not room.takes(said[place]):
                break
            if said[place].role == "user":
                start = place
        else:
            start = 0
        return said[start:] if start else said

    def _tokens(self, message: Message) -> int:
        try:
            counted: object = self.count(message)
        except Exception as error:
            raise MemoryFailed(f"the count of the memory raised {type(error).__name__}") from error
        if not is_count(counted):
            close_unawaited(counted)
            raise MemoryFailed(
                f"the count of the memory must give a whole number of 0 or more, not {type(counted).__name__}"
                + (f" {counted}" if isinstance(counted, int | float) else "")
            )
        return counted


class _Room:
    """The room that is left of a budget of tokens and messages."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._tokens = memory.max_tokens
        self._messages = memory.max_messages

    def takes(self, message: Message) -> bool:
        """Whether all that it was given fits, this message included. Once something did not, nothing does."""
        if self._messages is not None:
            self._messages -= 1
            if self._messages < 0:
                return False
        if self._tokens is not None:
            if self._tokens >= 0:
                self._tokens -= self._memory._tokens(message)
            return self._tokens >= 0
        return True


def shown(memory: Memory | None, state: Checkpoint, messages: tuple[Message, ...] | None = None) -> tuple[Message, ...]:
    """The messages that the model is shown in this state of a run: of all its messages, or of those that are left of them."""
    said = state.messages if messages is None else messages
    if memory is None:
        return said
    began = _began(state)
    if messages is not None and began >= 0:
        began = next((place for place in reversed(range(len(said))) if said[place] is state.messages[began]), -1)
    return memory._view(said, began) if began >= 0 else memory.view(said)


def facts_of(memory: Memory) -> list[JsonValue]:
    """The settings of a memory that a checkpoint notes, to tell whether it has changed."""
    count = getattr(memory.count, "__qualname__", type(memory.count).__qualname__)
    return [memory.max_tokens, memory.max_messages, memory.trim_run, count]


def _began(state: Checkpoint) -> int:
    """The place of the message that the run began with: before all its turns. Later ones of the user refuse an answer."""
    turns = state.turn
    for place in range(len(state.messages) - 1, -1, -1):
        role = state.messages[place].role
        if role == "assistant":
            turns -= 1
        elif role == "user" and turns <= 0:
            return place
    return -1


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))

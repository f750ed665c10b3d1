"""What was said: messages, the tool calls in them, and the tokens they cost."""

import re
from collections.abc import Iterable, Sequence
from operator import not_
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from phronomy.records.record import EMPTY, NULL, Json, JsonObject, Record, Text, is_absent

Role = Literal["user", "assistant", "tool"]
"""The role of a message: who says it."""

Settlement = Literal[
    "completed", "responded", "failed", "invalid", "rejected", "skipped", "expired", "cancelled", "superseded"
]
"""How a call ended. `responded`: a human gave the result. `invalid`: the call itself was wrong, and nothing ran."""

_PENDING_ID: Final = re.compile("pend_[0-9a-f]{24}")
"""Every id of a request, as `new_id` makes them."""


class ToolCall(Record):
    """The request of a model to call a tool, exactly as it arrived.

    `arguments` is the provider's text, byte for byte, even if it is not valid. If the provider's call id was empty,
    already used, or could be the id of a request, `id` is a new id, and `original_id` is the provider's.
    """

    id: Text
    name: Text
    arguments: Text = Field(repr=False)
    original_id: Text | None = None


class Message(Record):
    """A message of the conversation. Instructions are not among the messages: they are made before each model call.

    `content` is text, a list of content parts, or None. `provider` has the other fields that the provider sent
    (thinking blocks, signatures, refusals), unchanged and in order. `settlement` of a tool message says how the call
    ended. `returned` says that this is the result of a call with which the run ended, and that no model wrote it.
    `finish_reason` says why a reply of the model is not whole, such as `"length"`; it is None if the reply is
    whole.
    """

    role: Role
    content: Json = Field(default=NULL, repr=False)
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: Text | None = None
    settlement: Settlement | None = None
    provider: JsonObject = Field(default=EMPTY, repr=False)
    returned: bool = Field(default=False, exclude_if=not_)  # the format of the first version has no such key
    finish_reason: Text | None = Field(default=None, exclude_if=is_absent)  # the format of the first version has none

    @model_validator(mode="after")
    def _fits_role(self) -> Self:
        if self.json_text("content")[:1] not in ('"', "[", "n"):
            raise ValueError("content is text, a list of content parts, or null")
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a {self.role} message has no tool calls")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise ValueError("a tool message, and no other, names the call it answers")
        if self.finish_reason is not None and self.role != "assistant":
            raise ValueError(f"a {self.role} message has no finish_reason")
        return self

    @property
    def text(self) -> str:
        """The text of the message: its content, or its text parts joined. Empty if it has no text."""
        content = self.content
        if content is None:
            return ""
        if isinstance(content, str):
            return content
        texts: list[Any] = [
            part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"
        ]
        return "".join(text for text in texts if isinstance(text, str))


_DATA: Final = re.compile(r"data:([a-z]{1,20}/[a-zA-Z0-9.+-]{1,60});base64,")


def told_text(content: Any) -> str:
    """A content as text: its texts, and for each other part a note such as `[image/png, 12 kB]`, with nothing of what is in it."""
    if isinstance(content, list):
        return "\n".join(_told(part) for part in content)
    return content if isinstance(content, str) else ""


def _told(part: Any) -> str:
    part = part if isinstance(part, dict) else {}
    kind, text, image = part.get("type"), part.get("text"), part.get("image_url")
    if kind == "text" and isinstance(text, str):
        return text
    url = image.get("url") if isinstance(image, dict) else image
    if isinstance(url, str) and (data := _DATA.match(url)) is not None:
        size = (len(url) - data.end()) * 3 // 4 - url[-2:].count("=")
        told = f"{size} bytes" if size < 1000 else f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"
        return f"[{data[1]}, {told}]"
    return f"[{kind[:40]}]" if isinstance(kind, str) and kind.isidentifier() else "[a part of an unknown type]"


class Conversation(tuple[Message, ...]):
    """The messages of a run; beside them, for the rules alone, the ids of the calls in them, so that no turn reads them all anew.

    Whoever makes a plain tuple of one loses that, and nothing else.
    """

    call_ids: frozenset[str]

    def __new__(cls, messages: Iterable[Message], call_ids: frozenset[str] | None = None) -> "Conversation":
        """The messages; `call_ids` are those in them, where they are known."""
        new = super().__new__(cls, messages)
        new.call_ids = (
            frozenset([call.id for said in new for call in said.tool_calls]) if call_ids is None else call_ids
        )
        return new

    @classmethod
    def of(cls, messages: tuple[Message, ...]) -> "Conversation":
        """The messages as a conversation."""
        return messages if isinstance(messages, cls) else cls(messages)

    def plus(self, *messages: Message) -> "Conversation":
        """The conversation with these messages after it."""
        new = [call.id for said in messages for call in said.tool_calls]
        return type(self)(self + messages, self.call_ids.union(new) if new else self.call_ids)


def with_unique_ids(message: Message, used: frozenset[str], turn: int) -> Message:
    """The message with empty and repeated call ids replaced, and those that pass for the id of a request.

    A provider pairs calls and results by them, and people decide by the ids of requests: no call may go by one.
    """
    ids = {call.id for call in message.tool_calls}
    unique = len(ids) == len(message.tool_calls) and "" not in ids and ids.isdisjoint(used)
    if unique and not any(map(_PENDING_ID.fullmatch, ids)):
        return message
    seen = set(used)
    calls = []
    for index, call in enumerate(message.tool_calls):
        if not call.id or call.id in seen or _PENDING_ID.fullmatch(call.id):
            fresh = f"call_{turn}_{index}"
            while fresh in seen:
                fresh += "_"
            call = call.evolve(id=fresh, original_id=call.id)
        seen.add(call.id)
        calls.append(call)
    return message.evolve(tool_calls=tuple(calls))


def unique_ids(messages: Sequence[Message]) -> list[Message]:
    """A history from elsewhere, with such call ids replaced in each call and in its result."""
    done: list[Message] = []
    used: frozenset[str] = frozenset()
    renamed: dict[str, list[str]] = {}
    for turn, message in enumerate(messages):
        if message.role == "assistant":
            fresh = with_unique_ids(message, used, turn)
            used = used.union([call.id for call in fresh.tool_calls])
            renamed = {}
            for before, after in zip(message.tool_calls, fresh.tool_calls, strict=True):
                renamed.setdefault(before.id, []).append(after.id)
            message = fresh
        elif message.role == "tool" and renamed.get(message.tool_call_id or ""):
            message = message.evolve(tool_call_id=renamed[message.tool_call_id or ""].pop(0))
        done.append(message)
    return done


class Usage(Record):
    """The usage of a run, over all its resumes. The provider counts the tokens.

    `cached_tokens` are input tokens from the provider's cache, and `reasoning_tokens` are output tokens for reasoning;
    both are parts of the totals. `cost` is in US dollars. It is None if the cost of any request is not known.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = Field(default=0, exclude_if=not_)  # the format of the first version has no such key
    reasoning_tokens: int = Field(default=0, exclude_if=not_)  # nor this one
    cost: float | None = Field(default=None, ge=0)

    def __add__(self, other: "Usage") -> "Usage":
        # Sums of what was validated, and so not validated once more.
        return self.evolve(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=self._cost_with(other),
        )

    def since(self, before: "Usage") -> "Usage":
        """The difference between this usage and the earlier usage `before`."""
        known = self.cost is not None and (before.cost is not None or before == NO_USAGE)
        return Usage(
            requests=self.requests - before.requests,
            input_tokens=self.input_tokens - before.input_tokens,
            output_tokens=self.output_tokens - before.output_tokens,
            cached_tokens=self.cached_tokens - before.cached_tokens,
            reasoning_tokens=self.reasoning_tokens - before.reasoning_tokens,
            cost=max((self.cost or 0) - (before.cost or 0), 0) if known else None,
        )

    def _cost_with(self, other: "Usage") -> float | None:
        if self.cost is None and other.cost is None:
            return None
        if NO_USAGE in (self, other):
            return other.cost if self == NO_USAGE else self.cost
        return None if self.cost is None or other.cost is None else self.cost + other.cost

    @property
    def total_tokens(self) -> int:
        """The input and output tokens together."""
        return self.input_tokens + self.output_tokens


# Not `Usage()`: to validate anything, pydantic imports the plugins of all that is installed, and this is made at the import.
NO_USAGE: Final = Usage.model_construct()
"""The usage of what has asked no model."""

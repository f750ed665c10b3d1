"""What was said: messages, the tool calls in them, and the tokens they cost."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from phronomy._record import EMPTY, NULL, Json, JsonObject, Record, Text

Role = Literal["user", "assistant", "tool"]

Settlement = Literal["completed", "responded", "failed", "invalid", "rejected", "expired", "cancelled", "superseded"]
"""How a call ended. `responded`: a human gave the result; `invalid`: the call itself was wrong, nothing ran."""


class ToolCall(Record):
    """A model's request to call a tool, as it arrived.

    `arguments` is the provider's text, byte for byte, valid or not. `original_id` is the provider's call id where it was empty
    or had been used before and `id` replaces it.
    """

    id: Text
    name: Text
    arguments: Text = Field(repr=False)
    original_id: Text | None = None


class Message(Record):
    """One message of the conversation. Instructions are not among them: they are rendered for each model call.

    `content` is text, a list of content parts, or None. `provider` keeps what the provider sent beside the known fields
    (thinking blocks, signatures, refusals), exactly and in order. `settlement` says how the call of a tool message ended.
    """

    role: Role
    content: Json = Field(default=NULL, repr=False)
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: Text | None = None
    settlement: Settlement | None = None
    provider: JsonObject = Field(default=EMPTY, repr=False)

    @model_validator(mode="after")
    def _fits_role(self) -> Message:
        first = self.json_text("content")[:1]
        if first not in '"[n' or self.json_text("content") == "":
            raise ValueError("content is text, a list of content parts, or null")
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a {self.role} message has no tool calls")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise ValueError("a tool message, and no other, names the call it answers")
        return self

    @property
    def text(self) -> str:
        """The text of the message: its content, or the text parts of it, joined; empty if there is none."""
        content = self.content
        if content is None:
            return ""
        if isinstance(content, str):
            return content
        texts: list[Any] = [
            part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"
        ]
        return "".join(text for text in texts if isinstance(text, str))


class Usage(Record):
    """What a run has cost so far, over all its resumes. Tokens as the provider counted them."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

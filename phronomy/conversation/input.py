"""What a run is begun with: the input and a history, from whatever shape they were given in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_series
from phronomy.foundation.json_text import JsonValue, canonical
from phronomy.foundation.quoting import quoted_id, quoted_word
from phronomy.records.calls import Input
from phronomy.records.messages import Message, unique_ids
from phronomy.records.record import explain

History: TypeAlias = Sequence[Message | Mapping[str, object]]
"""The messages with which a run starts: records, or mappings in the form of the chat-completions protocol."""


def read_input(given: Input) -> tuple[JsonValue, Message]:
    """The original input as JSON, and the message that it makes."""
    try:
        if isinstance(given, str):
            return given, Message(role="user", content=given)
        if isinstance(given, BaseModel):
            given = given.model_dump(mode="json")
        if isinstance(given, Mapping):
            _refuse_conversation(given)
            given = to_jsonable_python(dict(given))
            return given, Message(role="user", content=str(canonical(given)))
        if isinstance(given, Sequence) and not isinstance(given, (bytes, bytearray)):
            parts = to_jsonable_python(list(given))
            if parts and all(isinstance(part, dict) and "type" in part for part in parts):
                return parts, Message(role="user", content=parts)
    except ValueError as error:
        raise ConfigurationError(f"the input is not JSON that a checkpoint can hold: {explain(error)}") from None
    raise ConfigurationError(
        f"the input is text, a mapping, a pydantic model or a list of content parts with a type, not {type(given).__name__}"
    )


def _refuse_conversation(given: Mapping[Any, object]) -> None:
    """Refuse a conversation as the input: the model would read it as JSON."""
    said = given.get("messages")
    if len(given) == 1 and is_series(said) and all(isinstance(each, Mapping) and "role" in each for each in said):
        raise ConfigurationError(
            "the input is a conversation, which the model would read as JSON: write invoke('the last message'), and messages=[...]"
            " for what was said before"
        )


def read_history(given: History) -> tuple[Message, ...]:
    """The messages to begin from. Raises `ConfigurationError` unless every call in them has exactly one result."""
    if not is_series(given):
        raise ConfigurationError(f"messages is a list of messages, not {type(given).__name__}")
    messages: list[Message] = []
    for item in given:
        messages.append(item if isinstance(item, Message) else _read_message(item))
    messages = unique_ids(messages)
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                raise ConfigurationError(
                    f"messages: the result of call {quoted_id(message.tool_call_id)} answers no open call"
                )
            waiting.remove(message.tool_call_id or "")
        elif waiting:
            raise ConfigurationError(f"messages: call {quoted_id(waiting[0])} has no result before the next message")
        else:
            waiting = [call.id for call in message.tool_calls]
    if waiting:
        raise ConfigurationError(f"messages: call {quoted_id(waiting[0])} has no result")
    return tuple(messages)


def _read_message(item: Mapping[str, Any]) -> Message:
    from phronomy.models.formats.chat_completions import reply_from  # noqa: PLC0415  # only where plain mappings are given

    role = item.get("role") if isinstance(item, Mapping) else None
    try:
        if role == "assistant":
            return reply_from(dict(item), None, None).message
        if role in ("user", "tool"):
            return Message(role=role, content=item.get("content"), tool_call_id=item.get("tool_call_id"))
    except Exception as error:
        raise ConfigurationError(f"messages: a {role} message cannot be read: {explain(error)}") from None
    raise ConfigurationError(
        f"messages: role {quoted_word(role)} is not user, assistant or tool; instructions go into the agent"
    )

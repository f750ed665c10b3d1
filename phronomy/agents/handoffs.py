"""Handoffs: an agent hands the conversation to another, which goes on with it in the same run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from phronomy.conversation.views import whole
from phronomy.errors import ConfigurationError, InputFilterFailed, ToolDefinitionError
from phronomy.foundation.checks import close_unawaited, is_async, is_series
from phronomy.foundation.spelling import Given
from phronomy.records.calls import Call
from phronomy.records.chain import HANDOFF
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import OnExpiry
from phronomy.records.messages import Message
from phronomy.tools.arguments import Arguments
from phronomy.tools.context import ToolContext
from phronomy.tools.docstring import read_docstring
from phronomy.tools.tool import Requirement, Tool

InputFilter: TypeAlias = Callable[[Sequence[Message]], Sequence[Message]]
"""A function that gets the messages before a handoff, and returns those to show to the target.

It is called before each model call of the target, and changes no record.
"""


def without_tool_calls(messages: Sequence[Message]) -> list[Message]:
    """An input filter that leaves out all tool calls and their results."""
    said = [message for message in messages if message.role != "tool"]
    return [message for message in said if not message.tool_calls]


class Handoff(Given):
    """A handoff from one agent to another: `Agent(handoffs=[billing, Handoff(refunds, requires_approval=True)])`.

    `target` is an agent, or the name of an agent that the run can reach. The model sees the handoff as a tool. `name`
    is the name of that tool (default: `transfer_to_` and the target's name), and `description` is its description
    (default: a text with the target's description). The model fills in a message for the target. With `input`, a
    function that makes the message, the model fills in the parameters of that function. `input_filter` selects the
    earlier messages that the target is shown (default: all). `requires_approval`, `approval_timeout`, `on_expiry`,
    `risk` and `scopes` are as for tools.

    Raises `ConfigurationError`.
    """

    target: Any
    name: str | None
    description: str | None
    input: Callable[..., Any] | None
    input_filter: InputFilter | None
    gate: dict[str, Any]

    def __init__(
        self,
        target: Any,
        *,
        name: str | None = None,
        description: str | None = None,
        input: Callable[..., Any] | None = None,
        input_filter: InputFilter | None = None,
        requires_approval: Requirement = False,
        approval_timeout: float | None = None,
        on_expiry: OnExpiry | None = None,
        risk: str | None = None,
        scopes: Iterable[str] = (),
    ) -> None:
        if input is not None and (not callable(input) or is_async(input)):
            raise ConfigurationError("the input of a handoff is a plain function, whose parameters the model fills in")
        if input_filter is not None and (not callable(input_filter) or is_async(input_filter)):
            raise ConfigurationError("the input_filter of a handoff is a plain function of the messages before it")
        self.target = target
        self.name = name
        self.description = description
        self.input = input
        self.input_filter = input_filter
        self.gate = {
            "requires_approval": requires_approval,
            "approval_timeout": approval_timeout,
            "on_expiry": on_expiry,
            "risk": risk,
            "scopes": scopes,
        }

    def __repr__(self) -> str:
        return f"Handoff({self.target!r})"


def as_handoffs(where: str, given: Any) -> tuple[Handoff, ...]:
    """The handoffs that are meant: each itself, or one to that agent. Raises `ConfigurationError`."""
    if not is_series(given):
        raise ConfigurationError(f"{where}: handoffs is a list of agents, names of agents, and Handoff(...)")
    return tuple(each if isinstance(each, Handoff) else Handoff(each) for each in given)


def _told(message: str = "") -> str:
    return message


class HandoffTool(Tool):
    """What a model calls to hand the conversation over. It changes nothing by itself: who speaks next is in the record."""

    idempotent = True

    def __init__(self, handoff: Handoff, target: str, description: str) -> None:
        self.source: str = f"{HANDOFF}{target}"
        self.target = target
        self.input_filter: InputFilter | None = handoff.input_filter
        self.into: Callable[..., Any] = handoff.input or _told
        self._takes_message = handoff.input is None
        slug = re.sub(r"[^a-zA-Z0-9_-]+", "_", target)
        self.name: str = handoff.name or f"transfer_to_{slug}"[:64]
        self._about = description
        self.description: str = handoff.description or ""
        for option, value in handoff.gate.items():
            setattr(self, option, value)
        super().__init__()
        if self._context_name is not None:
            raise ToolDefinitionError(f"handoff {self.name}: input has a ToolContext, but it only makes the message")

    def execute(self, **values: Any) -> Any:
        """The message for the target."""
        return self.into(**values)

    def call(self, values: Mapping[str, Any], context: ToolContext[object]) -> str:
        """What the target reads of the handoff."""
        message = super().call(values, context)
        told = f"The conversation was handed over to {self.target}."
        if message is None or message == "":
            return told
        rendered = self.render(message)
        if rendered.kind != "completed" or rendered.parts is not None:
            raise TypeError(
                f"the input of handoff {self.name} gave a {type(message).__name__}, of which no message can be made"
            )
        return f"{told}\n{rendered.content}"

    def _target(self) -> Callable[..., Any]:
        return self.into

    def _documentation(self, body: Callable[..., Any]) -> tuple[str, dict[str, str]]:
        description, parameters = read_docstring(body.__doc__ or "")
        about = f" {self._about}" if self._about else ""
        return description or f"Hands the conversation over to {self.target}.{about}", parameters

    def _signature(self, body: Callable[..., Any], told: dict[str, str]) -> tuple[Arguments, str | None]:
        if self._takes_message:
            told = {"message": f"What {self.target} should know beside the conversation."}
        return super()._signature(body, told)


def why_no_handoff(state: Checkpoint, call: Call, tool_of: Callable[[Call], Tool | None], most: int) -> str | None:
    """Why a handoff is not made now, for the model; None where it is, and for a call that is none.

    Of the handoffs in a reply, one is made; and of all, `most` in a run.
    """
    if not isinstance(tool_of(call), HandoffTool):
        return None
    for other in state.calls:
        if other.id == call.id:
            break
        made = other.result is None or other.result.kind == "completed"
        if made and isinstance(tool_of(other), HandoffTool):
            return "The conversation goes to one agent at a time, so this handoff was not made."
    if len(state.handoffs) >= most:
        return f"There were {len(state.handoffs)} handoffs in this run, and no more are made: go on yourself."
    return None


def filtered(tool: HandoffTool, messages: tuple[Message, ...], call: str) -> tuple[Message, ...]:
    """What the target of a handoff, made by this call of the last reply, is shown of these messages. Raises `InputFilterFailed`.

    What the handoff says is for the target: where the filter leaves it out, it is shown as a message of the user.
    """
    if tool.input_filter is None:
        return messages
    try:
        kept: Any = tool.input_filter(messages)
        listed = tuple(kept) if is_series(kept) else None
    except Exception as error:
        raise InputFilterFailed(_failed(tool, f"raised {type(error).__name__}")) from error
    if listed is None or not all(isinstance(each, Message) for each in listed):
        close_unawaited(kept)
        raise InputFilterFailed(_failed(tool, f"gave {type(kept).__name__}, not a list of messages"))
    shown, told = whole(listed), _told_by(messages, call)
    if told is None or any(each.tool_call_id == told.tool_call_id for each in shown):
        return shown
    return (*shown, Message(role="user", content=told.text))


def _told_by(messages: tuple[Message, ...], call: str) -> Message | None:
    """The result of a call of the last reply, by our id of it, which ends with its place there. None: only of a bearer's text."""
    at = call.rpartition(".")[2]
    last = next((each for each in reversed(messages) if each.role == "assistant"), None)
    if last is None or not at.isdecimal() or len(at) > 8 or int(at) >= len(last.tool_calls):
        return None
    id = last.tool_calls[int(at)].id
    return next((each for each in reversed(messages) if each.tool_call_id == id), None)


def _failed(tool: HandoffTool, what: str) -> str:
    return f"the input filter of handoff {tool.name} {what}; mend it and resume the checkpoint"

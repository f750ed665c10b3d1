"""What is sent to whoever looks at runs from outside, a page in a browser say: plain JSON, without JSON as text inside it.

Records dump JSON fields as text, since that form is stored and digests cover it. Here the same fields are values.

Version history, one sentence a version:

1. The first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_jsonable_python

from phronomy.approvals.policy import DryRun
from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import JsonValue, object_of, pointer_part
from phronomy.foundation.quoting import HIDDEN, quoted
from phronomy.models.base import ToolCallDelta
from phronomy.observability.events import NodePiece, ToolCallPiece, ToolCallSettled, ToolCallStarted
from phronomy.observability.masking import Masking
from phronomy.records.approvers import Vote
from phronomy.records.audit import AuditRecord
from phronomy.records.calls import Advanced, Call, CallResult, Halted, Judgement
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Approve, Decision, PendingApproval, Reject, Respond
from phronomy.records.messages import Message, ToolCall
from phronomy.records.record import Record
from phronomy.records.result import Result
from phronomy.runs.runs import Runs
from phronomy.stops.breakpoints import BreakpointContext, BreakpointHit

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


VERSION: Final = 1
"""The version of the JSON that `to_wire` makes."""

# A page that shows an amount or an id of 19 digits would show another one, and a human would approve what is not there (law 2).
EXACT: Final = 2**53 - 1
"""The largest number up to which a reader that keeps numbers as doubles, as browsers do, tells all whole numbers apart."""


def to_wire(value: Record | DataclassInstance, *, redact: Runs[Any, Any] | None = None) -> dict[str, JsonValue]:
    """Turn a record into plain JSON data, to send it to a web page.

    It takes every record, such as an event, a pending approval, a checkpoint or a `Result`, and dataclasses that
    contain records. Keys are the names of the attributes, and JSON fields are values. `version` is the version of this
    form. `exact` has the digits of each whole number beyond 2**53 - 1, by JSON Pointer, because a browser silently
    rounds such numbers. The JSON cannot be read back into a record.

    With `redact`, an agent or a graph, the values of parameters that its tools redact are hidden. So are all arguments
    of tools that it does not have, the payload of a question if the tool that asks redacts a parameter, and the values
    in the `metadata` of decisions. Raises `ConfigurationError` for any other value.
    """
    if isinstance(value, type) or not (isinstance(value, Record) or is_dataclass(value)):
        raise ConfigurationError(f"what is sent is a record of phronomy's, such as an event, not {quoted(value)}")
    if not isinstance(redact, Runs | None):
        raise ConfigurationError(f"redact is an agent or a graph, or None, not {quoted(redact)}")
    # Masked while it is made, and not afterwards: no form of it exists in which a secret has to be found again.
    sent = _sent(value, Masking(redact.spec) if redact is not None else None)
    return {"version": VERSION, **sent, "exact": dict(_inexact(sent))}


def _sent(value: Any, mask: Masking | None) -> Any:
    """The value as plain data."""
    match value:
        case Record():
            hidden = _hidden(value, mask) if mask is not None else {}
            # All fields but the few that a record names. What is left out on purpose is written down beside the field, and a field that
            # is added later is not forgotten here.
            names = (name for name in type(value).model_fields if name not in value.wire_omits)
            return {name: _member(value, name, hidden, mask) for name in (*names, *value.wire_adds)}
        case Result():
            checkpoint = _sent(value.checkpoint, mask)
            output = (
                checkpoint["output"] if value.status == "completed" else None
            )  # as stored: the other is of any type
            return {"status": value.status, "output": output, "checkpoint": checkpoint}
        case Mapping():
            # Keys are names, of tools or of decisions. What a human typed stands in values alone.
            return {key: _sent(each, mask) for key, each in value.items()}
        case list() | tuple():
            return [_sent(each, mask) for each in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            hidden = _covered(value, mask) if mask is not None else {}
            found = {field.name: getattr(value, field.name) for field in fields(value)}
            return {name: hidden[name] if name in hidden else _sent(each, mask) for name, each in found.items()}
        case _:
            return to_jsonable_python(value)


def _member(record: Record, name: str, hidden: Mapping[str, JsonValue], mask: Masking | None) -> JsonValue:
    if name in hidden:
        return hidden[name]
    value: JsonValue = getattr(record, name)
    return value if name in record.json_fields else _sent(value, mask)


def _hidden(record: Record, mask: Masking) -> dict[str, JsonValue]:
    """What stands in place of the fields of a record that hold arguments, or the state of a graph."""
    match record:
        case PendingApproval() | ToolCallStarted() | Judgement() | Halted():
            return {"args": _args(record, mask)}
        case Decision() | Vote() | AuditRecord() | Approve() | Reject() | Respond():
            edited = {"args": _args(record, mask)} if isinstance(record, Decision | Approve) else {}
            return {**edited, "metadata": mask.given(record.metadata)}
        # The text of the model holds the same arguments once more, in its own writing. To hide one of the two would hide nothing.
        case Call():
            text = mask.arguments(record.name, record.arguments) if record.arguments is not None else None
            return {"args": _args(record, mask), "arguments": text}
        case ToolCall():
            return {"arguments": mask.arguments(record.name, record.arguments)}
        case ToolCallPiece() if not mask.is_open(mask.named(record.tool_name)):
            return {"arguments": HIDDEN}
        case ToolCallSettled():
            return {"content": mask.result(record.tool_name, record.content)}
        case CallResult():
            return {"content": mask.result("", record.content), "parts": _said(record.parts, mask)}
        case Message():  # what the provider sent beside may hold the calls once more
            return {"content": _said(record.content, mask), "provider": {}}
        # A graph of somebody else. Nobody can tell what in its state is a secret, so all of it counts as one.
        case Checkpoint() if record.kind != "agent" and not mask.is_of(record):
            return {"state": HIDDEN, "output": HIDDEN}
        # What a node made of the state, which any node may have put anything into.
        case Advanced():
            return {"state": HIDDEN}
        case NodePiece():
            return {"update": dict.fromkeys(record.update, HIDDEN)}
        case _:
            return {}


def _said(content: JsonValue, mask: Masking) -> JsonValue:
    """A content as it may be seen: the texts in it may quote arguments that a human put in."""
    # Parts stay parts, so that a page can show an image beside the text that was masked.
    if isinstance(content, list):
        return [_part_said(part, mask) for part in content]
    return mask.result("", content) if isinstance(content, str) else content


def _part_said(part: JsonValue, mask: Masking) -> JsonValue:
    text = object_of(part).get("text")
    return {**object_of(part), "text": mask.result("", text)} if isinstance(text, str) else part


def _covered(value: DataclassInstance, mask: Masking) -> dict[str, JsonValue]:
    """As `_hidden`, for what is no record. Of a class that is not named here, all is hidden that its repr leaves out."""
    match value:
        case BreakpointHit() | BreakpointContext():
            name = value.tool or value.node or ""
            state = value.state if value.state is None or mask.has_state_of(value.agent) else HIDDEN
            result = mask.result(name, value.result) if value.result is not None else None
            args = mask.args(value.args, mask.named(name)) if value.args is not None else None
            told = {"args": _sent(args, None), "result": result, "state": _sent(state, None)}
            return {**told, "facts": HIDDEN} if isinstance(value, BreakpointContext) else told
        case DryRun():
            return {"args": _sent(mask.args(value.args, mask.named(value.tool.rpartition("/")[2])), None)}
        case ToolCallDelta():
            # A piece of arguments is no JSON yet, so no parameter in it can be found and hidden. It is shown whole or not at all.
            return {} if mask.is_open(mask.named(value.name)) else {"arguments": HIDDEN}
        case _:
            return {field.name: HIDDEN for field in fields(value) if not field.repr}


def _args(
    record: PendingApproval | ToolCallStarted | Judgement | Decision | Halted | Approve | Call, mask: Masking
) -> JsonValue:
    """The arguments in a record as they may be seen."""
    if record.args is None:
        return None
    match record:
        case PendingApproval():
            return mask.asked(record)
        case ToolCallStarted():
            tool = mask.named(record.tool_name)
        case Call() | Judgement():
            tool = mask.very(record.tool) if record.tool is not None else None
        case _:  # a decision, or a stop, does not say of which tool it is
            tool = None
    return mask.args(record.args, tool)


def _inexact(sent: JsonValue) -> Iterator[tuple[str, str]]:
    """The whole numbers that doubles do not tell apart, by JSON Pointer (RFC 6901), each with its digits."""
    todo: list[tuple[str, JsonValue]] = [("", sent)]
    while todo:
        place, value = todo.pop()
        if isinstance(value, int) and abs(value) > EXACT:
            yield place, str(value)
        elif isinstance(value, dict | list):
            members = value.items() if isinstance(value, dict) else enumerate(value)
            todo += [(f"{place}/{pointer_part(key)}", each) for key, each in members]

"""What a checkpoint has that the one before it had not, and what a journal entry means at a checkpoint, as far as events tell it."""

from typing import Any

from phronomy.records.calls import Added, Guarded
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.messages import Message


def new_messages(before: Checkpoint | None, now: Checkpoint) -> tuple[Message, ...]:
    """Gives the messages since the checkpoint before, without those that a run begins with."""
    return now.messages[len(before.messages) :] if before is not None else ()


def said(before: Checkpoint | None, now: Checkpoint) -> list[Message]:
    """Gives the new messages, without an answer that guardrails hold back, and with one that they have let through by now."""
    new = [*new_messages(before, now)]
    if now.unguarded == "output":
        last = max((place for place, message in enumerate(new) if message.role == "assistant"), default=len(new))
        return new[:last] + new[last + 1 :]
    late = before is not None and before.unguarded == "output" and len(now.messages) >= len(before.messages)
    return [now.messages[len(before.messages) - 1], *new] if late and before is not None else new


def added_messages(before: Checkpoint | None, now: Checkpoint) -> tuple[Added, ...]:
    """Gives the messages of people that came into the conversation since the checkpoint before."""
    # They grow until the model has read them, and begin anew with its reply.
    known = before.unread if before is not None else ()
    return now.unread[len(known) :] if now.unread[: len(known)] == known else now.unread


def guardrails_said(before: Checkpoint | None, outcome: Guarded) -> dict[str, Any]:
    """Gives the facts of an event about guardrails, without the text that they looked at."""
    facts: dict[str, Any] = {"stage": outcome.stage, "said": outcome.said}
    if outcome.id is not None:
        facts["call_id"] = call_facts(before, outcome.id)["call_id"]
    if outcome.refusal is not None:
        facts |= {"code": outcome.refusal.code, "message": outcome.refusal.message}
    return facts


def waits(now: Checkpoint) -> bool:
    """Whether the run waits here until a human decides."""
    if now.rejecting or now.ending is not None or not now.pending:
        return False
    return not any(call.status in ("new", "asking", "answered", "ready", "started") for call in now.calls)


def is_copy(before: Checkpoint | None, now: Checkpoint) -> bool:
    """Whether the run stood still so before, and was only given a label: that it waits was told."""
    return (
        now.label is not None
        and before is not None
        and before.branch_id == now.branch_id
        and before.pending == now.pending
        and waits(before)
    )


def call_facts(before: Checkpoint | None, id: str) -> dict[str, str]:
    """Gives the provider's id and the tool name of the call with this id."""
    for call in before.calls if before is not None else ():
        if call.id == id:
            return {"call_id": call.call_id, "tool_name": call.tool.name if call.tool is not None else call.name}
    return {"call_id": id, "tool_name": ""}


def is_unknown(name: str, *states: Checkpoint | None) -> bool:
    """Whether none of these states of a run knows a tool of this name."""
    return not any(state.has_tool(name) for state in states if state is not None)


def name_of(now: Checkpoint, call_id: str) -> str:
    """Gives the name that the model called, by the provider's id of the call."""
    return next((call.name for message in now.messages for call in message.tool_calls if call.id == call_id), "")

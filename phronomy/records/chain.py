"""The links of a chain of checkpoints: the first of a run, the next one, the first of a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, cast

from pydantic import Field, create_model

from phronomy.records.calls import Call, HandedOver, Unguarded
from phronomy.records.checkpoint import BLANK, AgentRef, Checkpoint, Fields
from phronomy.records.decisions import Decision, ToolIdentity
from phronomy.records.messages import Message
from phronomy.records.principals import Principal
from phronomy.records.record import Record

# What a run begins with is validated by itself. The validator of whole checkpoints reads journals and nested runs too: fourteen more
# classes are built for it, which is 1.5 % of the instructions of a process that does one cycle by the id of its checkpoint.
_Begun: Final[Callable[..., Record]] = cast("Any", create_model)(
    "Checkpoint",
    __base__=Record,
    **{
        name: (Fields.model_fields[name].rebuild_annotation(), Field(repr=False))
        for name in [
            "id",
            "parent_id",
            "run_id",
            "branch_id",
            "thread_id",
            "kind",
            "path",
            "created_at",
            "label",
            "metadata",
            "agent",
            "original_input",
            "messages",
            "state",
            "calls",
            "unguarded",
            "requester",
            "scopes",
        ]
    },
)


def begin(
    parent: Checkpoint | None,
    *,
    id: str,
    run_id: str,
    branch_id: str,
    thread_id: str | None,
    at: datetime,
    agent: AgentRef,
    original_input: Any,
    messages: tuple[Message, ...] = (),
    state: Any = None,
    calls: tuple[Call, ...] = (),
    kind: str = "agent",
    path: str = "",
    unguarded: Unguarded | None = None,
    label: str | None = None,
    metadata: Any = None,
    requester: Principal | None = None,
    scopes: tuple[str, ...] = (),
) -> Checkpoint:
    """The first state of a run: its input is accepted. `messages` are all of them, the input included."""
    begun = _Begun(
        id=id,
        parent_id=parent.id if parent is not None else None,
        run_id=run_id,
        branch_id=branch_id,
        thread_id=thread_id,
        kind=kind,
        path=path,
        created_at=at,
        label=label,
        metadata=metadata or {},
        agent=agent,
        original_input=original_input,
        messages=messages,
        state=state,
        calls=calls,
        unguarded=unguarded,
        requester=requester,
        scopes=scopes,
    )
    return BLANK.evolve(**begun.__dict__)


def seal(state: Checkpoint, *, id: str, at: datetime) -> Checkpoint:
    """The state as a new checkpoint that follows the last one."""
    update = {"id": id, "parent_id": state.id, "step": state.step + 1, "created_at": at, "label": None}
    return state.evolve(**update)


def branch_off(
    checkpoint: Checkpoint,
    *,
    id: str,
    branch_id: str,
    at: datetime,
    salt: str,
    ids: Mapping[str, str],
    nested: Mapping[str, Checkpoint],
) -> Checkpoint:
    """The first state of a fork: as the checkpoint was sealed, without an approval that has not been used.

    `ids` gives each call that waits, or that was approved, a new pending id by its call id, so that one approval never runs two
    branches; `nested` are the forks of the runs inside, by call id.
    """
    unused = {call.approved for call in checkpoint.calls if call.id in ids}
    kept = [item for item in checkpoint.decisions if item.pending_id not in unused and item.path == checkpoint.path]
    calls = []
    for call in checkpoint.calls:
        if call.id in ids:
            lapses = call.expires_at and call.requested_at and at + (call.expires_at - call.requested_at)
            again = {"pending_id": ids[call.id], "requested_at": at, "expires_at": lapses}
            call = call.evolve(status="pending", approved=None, votes=(), reminded=0, **again)
        elif call.id in nested and call.result is None:
            call = call.evolve(status="nested" if (waits := nested[call.id].pending) else "ready", waiting=waits)
        elif call.waiting:  # its body asks anew
            call = call.evolve(status="ready", waiting=())
        calls.append(call)
    # Nor an event that arrived early: it fires one trigger, and that is one of the branch that it was sent to.
    update = {"branch_id": branch_id, "calls": tuple(calls), "decisions": tuple(kept), "salt": salt, "events": ()}
    return seal(checkpoint, id=id, at=at).evolve(**update, journal=(), nested=())


def decision_on(state: Checkpoint, pending_id: str | None) -> Decision | None:
    """The decision that was taken under a pending id; None if there is none."""
    for each in state.decisions:
        if each.pending_id == pending_id:
            return each
    return None


def with_decision(state: Checkpoint, decision: Decision, taken: Decision | None) -> Checkpoint:
    """The state with a decision among those taken, in place of the one that was `taken` under its pending id, if there is one."""
    others = state.decisions if taken is None else [each for each in state.decisions if each is not taken]
    return state.evolve(decisions=(*others, decision))


HANDOFF: Final = "handoff:"
"""What the source of a handoff's tool begins with; the name of the target follows."""


def target_of(tool: ToolIdentity) -> str | None:
    """The agent that a handoff's tool hands over to; None for any other tool."""
    return tool.source.removeprefix(HANDOFF) if tool.source.startswith(HANDOFF) else None


def handed_over(state: Checkpoint, calls: Iterable[Call]) -> Checkpoint:
    """The state after a turn of these calls: the conversation is another agent's, if one of them was a handoff that was made."""
    for call in calls:
        target = target_of(call.tool) if call.tool is not None else None
        if target is not None and call.result is not None and call.result.kind == "completed":
            made = HandedOver(source=state.speaker, target=target, call=call.id, said=len(state.messages))
            return state.evolve(handoffs=(*state.handoffs, made))
    return state

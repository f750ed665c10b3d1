"""The links of a chain of checkpoints: the first of a run, the next one, the first of a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from pydantic import Field, create_model

from phronomy.records.calls import NEW_CALL, REQUEST, Call, HandedOver, Unguarded
from phronomy.records.checkpoint import BLANK, AgentRef, Checkpoint, Fields
from phronomy.records.decisions import Decision, ToolIdentity
from phronomy.records.messages import Message
from phronomy.records.principals import KnownAs, Principal
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
            "requesters",
            "known",
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
    requesters: tuple[str, ...] = (),
    known: tuple[KnownAs, ...] = (),
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
        requesters=requesters,
        known=known,
        scopes=scopes,
    )
    return BLANK.evolve(**begun.__dict__)


def with_writer(requesters: tuple[str, ...], requester: Principal | None, writer: Principal | None) -> tuple[str, ...]:
    """The others who have written in a conversation, with one more; who asks for the run now is none of them."""
    id = writer.id if writer is not None else ""
    is_known = id in requesters or (requester is not None and requester.id == id)
    return requesters if is_known else (*requesters, id)


def with_known(
    known: tuple[KnownAs, ...], requester: Principal | None, writer: Principal | None
) -> tuple[KnownAs, ...]:
    """The aliases under which others have written, with that of one more writer, if the directory knew the writer by an alias."""
    if writer is None or writer.person is None or (writer.id, writer.person) in known:
        return known
    asks = requester is not None and (requester.id, requester.person) == (writer.id, writer.person)
    return known if asks else (*known, (writer.id, writer.person))


def written_by(state: Checkpoint, writer: Principal | None) -> Checkpoint:
    """The state of a run in whose conversation somebody has written; None for somebody of whom nobody knows."""
    requesters = with_writer(state.requesters, state.requester, writer)
    return state.evolve(requesters=requesters, known=with_known(state.known, state.requester, writer))


def writers(state: Checkpoint) -> tuple[Principal | None, ...]:
    """All who have written in the conversation of a run, each as in `written_by`. Of a run that nobody has asked for, None is one."""
    aliases = {alias for alias, _ in state.known}
    others = [Principal(id=id) if id else None for id in state.requesters if id not in aliases]
    return (state.requester, *others, *(Principal(id=alias, person=person) for alias, person in state.known))


def seal(state: Checkpoint, *, id: str, at: datetime) -> Checkpoint:
    """The state as a new checkpoint that follows the last one."""
    update = {"id": id, "parent_id": state.id, "step": state.step + 1, "created_at": at, "label": None}
    return state.evolve(**update)


def is_asked_anew(call: Call) -> bool:
    """True if a fork asks about this call: somebody is asked about it now, or has approved it, and it has not settled."""
    # An approval is of one effect. The branch that has it may still carry it out: after a failure, or once its body is answered. In
    # another branch the same approval would be for a second effect.
    if call.status in ("asking", "pending", "answered"):
        return True
    if call.approved is None or call.result is not None:
        return False
    # To let a run go on at a breakpoint is no approval. A call that has begun behind it is not stopped there again.
    return call.status == "ready" or call.why != "breakpoint"


def branch_off(
    checkpoint: Checkpoint,
    *,
    id: str,
    branch_id: str,
    at: datetime,
    salt: str,
    ids: Mapping[str, str],
    nested: Mapping[str, Checkpoint],
    policies: Sequence[str] = (),
) -> Checkpoint:
    """The first state of a fork: as the checkpoint was sealed, without the approvals of calls that have not settled.

    `ids` gives each call that is asked about anew (`is_asked_anew`) its new pending id by its call id; `nested` are the forks of the
    runs inside, by call id. `policies` are the patterns of the tools that approval policies are about.
    """
    unused = {call.approved for call in checkpoint.calls if call.id in ids}
    kept = [item for item in checkpoint.decisions if item.pending_id not in unused and item.path == checkpoint.path]
    calls = []
    for call in checkpoint.calls:
        if call.id in ids:
            call = _asked_anew(call, ids[call.id], at)
        elif call.id in nested and call.result is None:
            call = call.evolve(status="nested" if (waits := nested[call.id].pending) else "ready", waiting=waits)
        elif call.status in ("ready", "failed", "nested") and _may_be_asked_about(call, policies):
            call = _judged_anew(call)
        elif call.waiting:  # its body asks anew
            call = call.evolve(status="ready", waiting=())
        calls.append(call)
    # Nor an event that arrived early: it fires one trigger, and that is one of the branch that it was sent to.
    update = {"branch_id": branch_id, "calls": tuple(calls), "decisions": tuple(kept), "salt": salt, "events": ()}
    return seal(checkpoint, id=id, at=at).evolve(**update, journal=(), nested=())


def _asked_anew(call: Call, pending_id: str, at: datetime) -> Call:
    """The call as a request of another branch, with the whole time to decide it."""
    lapses = call.expires_at and call.requested_at and at + (call.expires_at - call.requested_at)
    again = {"pending_id": pending_id, "requested_at": at, "expires_at": lapses}
    # The requests of its body are listed once it runs. A failed call has all its attempts again, as where it is resumed.
    begun = {"waiting": (), "attempt": 0 if call.status == "failed" else call.attempt}
    return call.evolve(status="pending", approved=None, votes=(), reminded=0, **again, **begun)


def _may_be_asked_about(call: Call, policies: Sequence[str]) -> bool:
    """True if a predicate, or a policy, has a say about a call."""
    assert call.tool is not None, "it was judged"
    return call.tool.gate == "predicate" or any(fnmatchcase(call.tool.name, pattern) for pattern in policies)


def _judged_anew(call: Call) -> Call:
    """The call as its model made it, to be judged in another branch; what its body has noted is kept."""
    # A predicate or a policy has let one call run. It may count, or go by the time, and a fork must not be a way past it.
    asked = {
        name: getattr(NEW_CALL, name) for name in (*REQUEST, "approved", "tool", "args", "digest", "waiting", "attempt")
    }
    return call.evolve(status="new", arguments=call.json_text("args"), **asked)


def decision_on(state: Checkpoint, pending_id: str | None) -> Decision | None:
    """The decision that was taken under a pending id; None if there is none."""
    for each in state.decisions:
        if each.pending_id == pending_id:
            return each
    return None


def rejections_of(state: Checkpoint, call: Call) -> list[Decision]:
    """The decisions by which a settled call was rejected, or expired: on its own request, or on what its body asked."""
    asked = (call.pending_id, *call.rejected)
    return [each for each in state.decisions if each.kind in ("reject", "expire") and each.pending_id in asked]


def with_decision(state: Checkpoint, decision: Decision, taken: Decision | None) -> Checkpoint:
    """The state with a decision among those taken, in place of the one that was `taken` under its pending id, if there is one."""
    others = state.decisions if taken is None else [each for each in state.decisions if each is not taken]
    return state.evolve(decisions=(*others, decision))


HANDOFF: Final = "handoff:"
"""What the source of a handoff's tool begins with; the name of the target follows."""


def target_of(tool: ToolIdentity) -> str | None:
    """The agent that a handoff's tool hands over to; None for any other tool."""
    return tool.source.removeprefix(HANDOFF) if tool.source.startswith(HANDOFF) else None


def is_handed_over(calls: Iterable[Call]) -> bool:
    """True if one of these calls was a handoff that was made."""
    return any(_made_by(call) is not None for call in calls)


def _made_by(call: Call) -> str | None:
    """The agent that this call hands over to, if it did."""
    target = target_of(call.tool) if call.tool is not None else None
    return target if target is not None and call.result is not None and call.result.kind == "completed" else None


def handed_over(state: Checkpoint, calls: Iterable[Call]) -> Checkpoint:
    """The state after a turn of these calls: the conversation is another agent's, if one of them was a handoff that was made."""
    for call in calls:
        if (target := _made_by(call)) is not None:
            made = HandedOver(source=state.speaker, target=target, call=call.id, said=len(state.messages))
            return state.evolve(handoffs=(*state.handoffs, made))
    return state

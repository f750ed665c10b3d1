"""The versions of a run in the API: its checkpoints with its forks, one of them, and what two of them differ in.

What a tool hides is hidden here as in a conversation: all arguments are, where the agent's code is not in this process, and so is the
state of a graph. What guardrails have not let through is not shown, neither an answer nor an input.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from phronomy.foundation.json_text import canonical
from phronomy.foundation.quoting import HIDDEN
from phronomy.inbox.api import inputs
from phronomy.inbox.api.requests import BASE, answer, maybe
from phronomy.inbox.api.run_schemas import (
    CallState,
    CheckpointView,
    DecisionTold,
    DifferenceKind,
    DifferenceOf,
    DiffView,
    ForkOf,
    NestedOf,
    OperationOf,
    OperationsView,
    VersionOf,
    VersionsView,
)
from phronomy.inbox.api.runs import agent_of, moment, names_in, said_in, shown_message
from phronomy.inbox.api.schemas import MessageOf
from phronomy.inbox.operating import SCOPES_OF, Offered, offered_for_run, offered_in
from phronomy.inbox.routes import Route
from phronomy.inbox.service import changes_between, named
from phronomy.inbox.versions import Found, Version, read_checkpoint, read_versions
from phronomy.observability.drawings.drawing import checkpoint_box
from phronomy.observability.masking import Masking
from phronomy.records.diff import Change, CheckpointDiff, diff
from phronomy.stores.native import apart

if TYPE_CHECKING:
    from starlette.responses import Response

    from phronomy.inbox.visit import Visit
    from phronomy.records.checkpoint import Checkpoint

SAID: Final = 30
"""Messages of a checkpoint that are shown at once."""


async def list_versions(visit: Visit) -> Response:
    """The versions of a run along one branch, the newest first to be read."""
    query = visit.query(inputs.VersionsQuery)
    found = await apart(visit.store, read_versions, visit.store, visit.params["id"], before=query.before)
    return answer(
        VersionsView(
            run_id=found.branch.run_id,
            branch_id=found.branch.id,
            items=tuple(VersionOf(**version_of(each)) for each in (*found.chain, *found.beside)),
            forks=tuple(
                ForkOf(
                    branch_id=each.branch.id,
                    at=each.at,
                    label=each.branch.label,
                    status=each.branch.status,
                    created_at=moment(each.branch.created_at),
                    goes_on=each.goes_on,
                )
                for each in found.forks
            ),
            first=found.begin,
            total=found.total,
            before=found.begin or None,
            more=found.more,
        )
    )


def version_of(version: Version) -> dict[str, Any]:
    """The members of a checkpoint in the tree."""
    now = version.checkpoint
    box = checkpoint_box(now, version.parent, version.head_of)
    return {
        "id": now.id,
        "parent_id": now.parent_id,
        "branch_id": now.branch_id,
        "step": now.step,
        "at": now.created_at,
        "label": now.label,
        "status": now.status,
        "kind": box.kind,
        "lines": box.lines[:-1],  # the last one is the id, cut
        "head": version.head_of is not None,
        "aside": version.aside,
    }


def seen(found: Found) -> Version:
    """A checkpoint as the tree has it."""
    head_of = found.branch if found.branch.head == found.checkpoint.id else None
    return Version(checkpoint=found.checkpoint, parent=found.parent, head_of=head_of)


async def show_checkpoint(visit: Visit) -> Response:
    """A checkpoint of a run."""
    query = visit.query(inputs.MessagesQuery)
    found = await found_in(visit, visit.params["checkpoint"])
    operations = [operation_of(each) for each in await offered_at(visit, visit.params["id"], found.checkpoint.id)]
    view = await asyncio.to_thread(partial(checkpoint_view, visit, found, before=query.before, limit=query.limit))
    return answer(CheckpointView(**view, operations=tuple(operations)))


async def found_in(visit: Visit, checkpoint_id: str) -> Found:
    """A checkpoint of the run that the address names. Raises `CheckpointNotFound`."""
    return await apart(visit.store, read_checkpoint, visit.store, visit.params["id"], checkpoint_id)


async def offered_at(visit: Visit, id: str, checkpoint_id: str) -> list[Offered]:
    """What this person could do at a checkpoint."""
    return [
        await offered_in(visit.inbox, visit.store, visit.identity, what, id, checkpoint_id=checkpoint_id)
        for what in ("fork", "restore")
        if all(visit.may(scope) for scope in SCOPES_OF[what])
    ]


async def list_operations(visit: Visit) -> Response:
    """What somebody could do to a run as it stands."""
    return answer(OperationsView(items=tuple(operation_of(each) for each in await offered_to(visit))))


async def offered_to(visit: Visit) -> list[Offered]:
    """What this person could do to the run that the address names."""
    every = await offered_for_run(visit.inbox, visit.store, visit.identity, visit.params["id"])
    return [each for each in every if all(visit.may(scope) for scope in SCOPES_OF[each.what])]


def operation_of(offered: Offered) -> OperationOf:
    """An operation as the API tells it."""
    return OperationOf(
        what=offered.what,
        request=offered.item.id if offered.item is not None else None,
        digest=offered.digest,
        why_not=offered.why_not or None,
        changes=offered.changes,
    )


def checkpoint_view(visit: Visit, found: Found, *, before: int | None, limit: int) -> dict[str, Any]:
    """The members of a checkpoint, as this person may see them."""
    now = found.checkpoint
    mask = mask_of(visit, now)
    state = shown_state(visit, now, mask)
    return {
        **version_of(seen(found)),
        "run_id": now.run_id,
        "thread_id": now.thread_id,
        "agent": now.speaker,
        "turn": now.turn,
        "requester": maybe(now.requester),
        "input_tokens": now.usage.input_tokens,
        "output_tokens": now.usage.output_tokens,
        "state": None if state is None else canonical(state),
        "state_hidden": now.kind == "graph" and state is None,
        "calls": tuple(
            CallState(
                tool=each.name if now.has_tool(each.name) else None, status=each.status, pending_id=each.pending_id
            )
            for each in now.calls
            if not each.gate
        ),
        "decisions": tuple(
            DecisionTold(
                kind=each.kind, pending_id=each.pending_id, by=maybe(each.by), at=each.at, channel=each.channel
            )
            for each in now.decisions
        ),
        "nested": tuple(
            NestedOf(path=each.path, agent=each.speaker, status=each.status, step=each.step) for each in now.nested
        ),
        "conversation": said_in(now, mask, before=before, limit=limit),
    }


def mask_of(visit: Visit, checkpoint: Checkpoint) -> Masking:
    """What hides the secrets of a run: by the agent of this process, or everything."""
    agent = agent_of(visit, checkpoint.agent.name)
    return Masking(agent.spec if agent is not None else None)


def shown_state(visit: Visit, checkpoint: Checkpoint, mask: Masking) -> Any:
    """The state of a graph as it may be seen; None for anything else, and where this process does not have the graph."""
    agent = agent_of(visit, checkpoint.agent.name)
    if checkpoint.kind != "graph" or agent is None or agent.spec.flow is None or not mask.is_of(checkpoint):
        return None
    return agent.spec.flow.shown_state(checkpoint)


# What two checkpoints differ in


async def show_diff(visit: Visit) -> Response:
    """What two checkpoints of a run differ in."""
    query = visit.query(inputs.DiffQuery)
    before, after = await found_in(visit, query.before), await found_in(visit, query.after)
    every = await asyncio.to_thread(differences, visit, before.checkpoint, after.checkpoint)
    end = query.first + query.limit
    return answer(
        DiffView(
            before=VersionOf(**version_of(seen(before))),
            after=VersionOf(**version_of(seen(after))),
            items=tuple(every[query.first : end]),
            total=len(every),
            next=end if end < len(every) else None,
        )
    )


def differences(visit: Visit, before: Checkpoint, after: Checkpoint) -> list[DifferenceOf]:
    """Everything that two checkpoints differ in, as this person may see it."""
    found = diff(before, after)
    return [
        *_numbers(found),
        *_stands(found),
        *_states(visit, before, after, found),
        *_messages(visit, before, after, found),
    ]


def _difference(
    kind: DifferenceKind,
    change: Change,
    name: str,
    before: str | None = None,
    after: str | None = None,
    *,
    hidden: bool = False,
) -> DifferenceOf:
    return DifferenceOf(kind=kind, change=change, name=name, before=before, after=after, hidden=hidden)


def _numbers(found: CheckpointDiff) -> Iterator[DifferenceOf]:
    if found.status[0] != found.status[1]:
        yield _difference("number", "changed", "status", *found.status)
    for name, more in (
        ("steps", found.steps),
        ("turns", found.turns),
        ("input tokens", found.usage.input_tokens),
        ("output tokens", found.usage.output_tokens),
        ("milliseconds of work", found.elapsed),
    ):
        if more:
            yield _difference("number", "changed", name, after=f"{more:+,}")


def _stands(found: CheckpointDiff) -> Iterator[DifferenceOf]:
    for call in found.calls:
        yield _difference("call", call.change, call.tool_name or "no known tool", call.before, call.after)
    for item in found.pending:
        yield _difference("request", item.change, item.tool_name, after=item.id)
    for cast in found.votes:
        who = named(cast.vote.by)
        yield _difference("vote", cast.change, f"{cast.vote.kind} by {who}", after=cast.pending_id)
    for taken in found.decisions:
        by = taken.decision.by
        who = f" by {named(by)}" if by is not None else ""
        changed = " with changes" if taken.decision.args is not None else ""
        name = f"{taken.decision.kind}{changed}{who}"
        yield _difference("decision", taken.change, name, after=taken.decision.pending_id)
    for part in found.nested:
        yield _difference("nested", part.change, part.path)


def _states(visit: Visit, before: Checkpoint, after: Checkpoint, found: CheckpointDiff) -> Iterator[DifferenceOf]:
    if found.state:
        states = [shown_state(visit, each, mask_of(visit, each)) for each in (before, after)]
        if None in states:
            yield _difference("state", "changed", "state", hidden=True)
        else:
            for each in changes_between(*states):
                change: Change = "added" if each.before is None else "removed" if each.after is None else "changed"
                yield _difference("state", change, each.pointer, each.before, each.after)
    # What an application notes beside a run is for itself, and so are the names that it gives to its notes.
    if found.metadata:
        yield _difference("metadata", "changed", "metadata", hidden=True)


def _messages(visit: Visit, before: Checkpoint, after: Checkpoint, found: CheckpointDiff) -> Iterator[DifferenceOf]:
    sides = [(of, names_in(of), mask_of(visit, of)) for of in (before, after)]
    for each in found.messages:
        texts = [
            None if message is None else _told(shown_message(of, each.at, names, mask))
            for message, (of, names, mask) in zip((each.before, each.after), sides, strict=True)
        ]
        (role, *_) = [message.role for message in (each.after, each.before) if message is not None]
        yield _difference("message", each.change, f"{each.at + 1}: {role}", *texts)


def _told(message: MessageOf) -> str:
    """A message as one text, with its calls."""
    calls = [f"calls {each.name} {each.arguments or HIDDEN}" for each in message.tool_calls]
    return "\n".join([*([message.text] if message.text else []), *calls])


VERSIONS: Final = (
    Route(
        method="GET",
        path=f"{BASE}/runs/{{id}}/versions",
        handler=list_versions,
        scope="read",
        summary="The checkpoints of a run along one branch, with the forks that leave it",
        query=inputs.VersionsQuery,
        answer=VersionsView,
        problems=("invalid",),
    ),
    Route(
        method="GET",
        path=f"{BASE}/runs/{{id}}/checkpoints/{{checkpoint}}",
        handler=show_checkpoint,
        scope="read",
        summary="A checkpoint of a run",
        query=inputs.MessagesQuery,
        answer=CheckpointView,
        problems=("invalid",),
    ),
    Route(
        method="GET",
        path=f"{BASE}/runs/{{id}}/diff",
        handler=show_diff,
        scope="read",
        summary="What two checkpoints of a run differ in",
        query=inputs.DiffQuery,
        answer=DiffView,
        problems=("invalid",),
    ),
    Route(
        method="GET",
        path=f"{BASE}/runs/{{id}}/operations",
        handler=list_operations,
        scope="read",
        summary="What you could do to a run as it stands",
        answer=OperationsView,
    ),
)

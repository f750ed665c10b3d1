"""Runs in the API: which there are, how each stands, what was said in it; starting one, and ending one.

A run that is started here is driven by this process until it waits or ends. If the process dies, a worker recovers the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from phronomy.errors import CheckpointAlreadyResumed, CheckpointNotFound, ConfigurationError
from phronomy.inbox.api import inputs, schemas
from phronomy.inbox.api.decisions import CHANNEL
from phronomy.inbox.api.requests import BASE, answer, maybe, paged
from phronomy.inbox.api.run_schemas import EventView, SentMessage
from phronomy.inbox.cursors import Cursors
from phronomy.inbox.idempotency import begun_once, body_digest, key_of, remembered, scoped
from phronomy.inbox.operating import begin_run, check_thread_id, check_writers
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route
from phronomy.inbox.service import list_branches
from phronomy.observability.about import About, abouts
from phronomy.observability.masking import Masking
from phronomy.observability.timeline import timeline
from phronomy.records.messages import told_text
from phronomy.stores.derived.listing import damage_of
from phronomy.stores.native import apart
from phronomy.stores.rows import ENDED

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit
    from phronomy.records.checkpoint import Checkpoint
    from phronomy.records.messages import Message
    from phronomy.runs.runs import Runs
    from phronomy.stores.rows import Branch, PendingRow


HELD_BACK: Final = "[not shown: no guardrail has let it through]"
"""What stands in the place of a message that guardrails have yet to look at."""


async def list_runs(visit: Visit) -> Response:
    """A page of runs, newest first."""
    query = visit.query(inputs.RunsQuery)
    cursors = Cursors(visit, "runs", query.model_dump(mode="json", exclude={"limit", "cursor"}))
    kept, following = await list_branches(
        visit.store,
        lambda each: query.agent in (None, each.agent) and (not query.status or each.status in query.status),
        limit=query.limit,
        after=cursors.read(query.cursor),
        thread_id=query.thread,
    )
    waits = await waiting_in(visit, {each.run_id for each in kept if each.status == "suspended"})
    now = visit.store.clock()
    damaged = await apart(visit.store, damage_of, visit.store, kept)
    about = await about_runs(visit, kept, waits)
    items = tuple(
        schemas.RunRow(**row_of(each, waits, now, about[each.id]), unreadable=damaged.get(each.id)) for each in kept
    )
    return paged(visit, schemas.RunsPage(items=items, next=cursors.made(following)))


async def waiting_in(visit: Visit, run_ids: set[str]) -> dict[str, list[PendingRow]]:
    """The requests that wait in these runs, by branch."""
    found: dict[str, list[PendingRow]] = {}
    for run_id in run_ids:
        for row in await visit.store.apending_rows(run_id=run_id):
            found.setdefault(row.branch_id, []).append(row)
    return found


async def about_runs(
    visit: Visit, branches: Sequence[Branch], waits: Mapping[str, Sequence[PendingRow]]
) -> dict[str, About]:
    """The subjects of these runs, without anything that may not be seen."""

    def mask_of(name: str) -> Masking:
        agent = agent_of(visit, name)
        return Masking(agent.spec if agent is not None else None)

    return await apart(visit.store, abouts, visit.store, branches, waits, mask_of)


async def show_run(visit: Visit) -> Response:
    """A run, or a fork of one, and its last checkpoint."""
    return answer(await full(visit, visit.params["id"]))


async def show_timeline(visit: Visit) -> Response:
    """What happened in a run, without anything that was said."""
    query = visit.query(inputs.TimelineQuery)
    found = await apart(visit.store, timeline, visit.store, visit.params["id"], max_events=query.limit)
    entries = tuple(
        schemas.TimelineEntryOf(
            id=each.id,
            type=each.type,
            at=each.at,
            branch_id=each.branch_id,
            agent=each.agent,
            path=each.path,
            checkpoint_id=each.checkpoint_id,
            facts=dict(each.facts),
        )
        for each in found
    )
    return answer(
        schemas.TimelineView(run_id=found.run_id, branch_id=found.branch_id, dropped=found.dropped, entries=entries)
    )


async def show_messages(visit: Visit) -> Response:
    """The conversation of a run, its end first."""
    query = visit.query(inputs.MessagesQuery)
    branch, checkpoint = await visit.store.ahead(visit.params["id"])
    agent = agent_of(visit, branch.agent)
    # Without the agent's code it is not known which parameters are secret, so all arguments of calls are hidden.
    mask = Masking(agent.spec if agent is not None else None)
    return answer(said_in(checkpoint, mask, before=query.before, limit=query.limit))


def said_in(checkpoint: Checkpoint, mask: Masking, *, before: int | None, limit: int) -> schemas.MessagesView:
    """The end of what was said up to a checkpoint, or the part before a message, without what may not be seen."""
    messages = checkpoint.messages
    end = len(messages) if before is None else min(before, len(messages))
    begin = max(0, end - limit)
    names = names_in(checkpoint)
    items = tuple(shown_message(checkpoint, n, names, mask) for n in range(begin, end))
    return schemas.MessagesView(items=items, total=len(messages), before=begin or None)


def names_in(checkpoint: Checkpoint) -> dict[str, str]:
    """The names of the calls in a conversation, by their ids."""
    return {call.id: call.name for message in checkpoint.messages for call in message.tool_calls}


def shown_message(checkpoint: Checkpoint, n: int, names: Mapping[str, str], mask: Masking) -> schemas.MessageOf:
    """A message of a checkpoint as it may be seen. `names` are those of `names_in`."""
    found = _message(n, checkpoint.messages[n], names, mask)
    # What guardrails have yet to look at is the last message. They may mask a part of it, or refuse it.
    held = checkpoint.unguarded is not None and n == len(checkpoint.messages) - 1
    return found.model_copy(update={"text": HELD_BACK}) if held and found.text else found


def _message(n: int, message: Message, names: Mapping[str, str], mask: Masking) -> schemas.MessageOf:
    text = message.text if message.role == "assistant" else told_text(message.content)
    if message.tool_call_id is not None:
        text = mask.result(names.get(message.tool_call_id, ""), text)
    return schemas.MessageOf(
        n=n,
        role=message.role,
        text=text,
        tool_calls=tuple(
            schemas.CallOf(id=each.id, name=each.name, arguments=mask.arguments(each.name, each.arguments))
            for each in message.tool_calls
        ),
        tool_call_id=message.tool_call_id,
        settlement=message.settlement,
    )


async def start_run(visit: Visit) -> Response:
    """Start a run of an agent of this process."""
    body = visit.json(inputs.StartBody)
    agent = agent_of(visit, body.agent)
    if agent is None:
        raise Problem("invalid", errors=[{"pointer": "/agent", "detail": "this server has no such agent"}])
    if body.thread is not None:
        check_thread_id(visit.identity, body.thread)
        if visit.inbox.threads == "own":
            await _check_thread(visit, body.thread)
    key = scoped(visit.identity, "runs", key_of(visit))
    async with begun_once(visit.store, key, body=body_digest(body.model_dump(mode="json"))) as once:
        if once.made is None:
            once.made = await begin_run(
                visit.inbox, agent, visit.identity, body.input, thread=body.thread, label=body.label
            )
        made = once.made
    response = answer(await full(visit, made), 202)
    response.headers["Location"] = visit.url(f"{BASE}/runs/{made}")
    return response


async def _check_thread(visit: Visit, thread_id: str) -> None:
    """Refuse a conversation in which somebody else has asked for a run: what was said there goes to the model. Raises `Problem`."""
    try:
        last = await apart(visit.store, visit.store.current, thread_id)
    except CheckpointNotFound:
        return  # nobody has begun it
    await check_writers(visit.inbox, visit.store, visit.identity, last)


async def cancel_run(visit: Visit) -> Response:
    """End a run."""
    body = visit.json(inputs.CancelBody)
    run_id = visit.params["id"]
    branch, _ = await visit.store.ahead(run_id)
    key = scoped(visit.identity, "runs/cancel", key_of(visit))
    sent = body_digest(run_id, body.model_dump(mode="json"))
    async with begun_once(visit.store, key, body=sent) as once:
        if once.made is None:
            agent = agent_of(visit, branch.agent)
            if agent is None:
                raise Problem("refused", "This server has no such agent, so it cannot end its runs.")
            try:
                await agent.acancel(branch.id, reason=body.reason, by=visit.identity.principal)
            except CheckpointAlreadyResumed:
                raise Problem("refused", "The run has ended.") from None
            once.made = branch.id
    visit.about.append(branch.id)
    return answer(await full(visit, run_id))


async def send_message(visit: Visit) -> Response:
    """Send a message to a run that waits or works. Nothing is run: whoever drives the run takes it up."""
    visit.inbox.limits.decision(visit.identity)
    body, run_id = visit.json(inputs.MessageBody), visit.params["id"]
    # The store keeps the key with the message, in one write, and so stores it once however often it is sent.
    key = scoped(visit.identity, "runs/messages", key_of(visit), run_id)
    async with remembered(visit.store, key, body=body_digest(run_id, body.model_dump(mode="json"))):
        branch, checkpoint = await _head(visit, run_id)
        await check_writers(visit.inbox, visit.store, visit.identity, checkpoint)
        try:
            await visit.store.asend(branch.id, body.text, by=visit.identity.principal, channel=CHANNEL, id=key)
        except CheckpointAlreadyResumed:
            raise Problem(
                "refused", "The run has ended, or is ending: start a run with the message in the same thread."
            ) from None
    visit.about.append(branch.id)
    return answer(SentMessage(id=key, run_id=branch.run_id, branch_id=branch.id, status=branch.status))


async def send_event(visit: Visit) -> Response:
    """Send an event from outside to a run. Nothing is run: whoever drives the run carries on."""
    visit.inbox.limits.decision(visit.identity)
    body, run_id = visit.json(inputs.EventBody), visit.params["id"]
    # The store keeps the key with the event, in one write, and so records it once however often it is sent.
    key = scoped(visit.identity, "runs/events", key_of(visit), run_id)
    async with remembered(visit.store, key, body=body_digest(run_id, body.model_dump(mode="json"))):
        sent = await visit.store.asend_event(
            run_id, body.name, body.payload, by=visit.identity.principal, channel=CHANNEL, key=key, early=body.early
        )
    visit.about += [sent.branch_id, *([sent.pending_id] if sent.pending_id is not None else [])]
    return answer(
        EventView(
            id=sent.id,
            status=sent.status,
            run_id=sent.run_id,
            branch_id=sent.branch_id,
            pending_id=sent.pending_id,
        )
    )


def agent_of(visit: Visit, name: str) -> Runs[Any, Any] | None:
    """The agent of this name, if it is one of this process, and of the tenant of whoever asks."""
    return visit.inbox.agent_of(visit.store, name)


async def full(visit: Visit, id: str) -> schemas.RunFull:
    """A run, or a fork of one, and its last checkpoint. Raises `CheckpointNotFound`."""
    branch, checkpoint = await _head(visit, id)
    waits = await waiting_in(visit, {branch.run_id})
    can_cancel = visit.may("cancel") and branch.status not in ENDED and agent_of(visit, branch.agent) is not None
    reads = visit.may("read")
    about = await about_runs(visit, [branch], waits)
    return schemas.RunFull(
        **row_of(branch, waits, visit.store.clock(), about[branch.id] if reads else About()),
        checkpoint_id=checkpoint.id,
        step=checkpoint.step,
        messages=len(checkpoint.messages),
        output=_output(branch, checkpoint) if reads else None,
        can_cancel=can_cancel,
    )


async def _head(visit: Visit, id: str) -> tuple[Branch, Checkpoint]:
    """A run, or a fork of one, and its last checkpoint, as the store has them. Raises `CheckpointNotFound`."""
    try:
        return await visit.store.ahead(id)
    except ConfigurationError:  # text that no id can be
        raise CheckpointNotFound("there is no such run", id=id) from None


def _output(branch: Branch, checkpoint: Checkpoint) -> Any:
    """The answer of a run that has ended with one: what was written before that, guardrails may not have seen."""
    return checkpoint.output if branch.status == "completed" else None


def row_of(branch: Branch, waits: Mapping[str, Sequence[PendingRow]], now: float, about: About) -> dict[str, Any]:
    """The members of a run in a list."""
    return {
        "id": branch.id,
        "run_id": branch.run_id,
        "thread_id": branch.thread_id,
        "agent": branch.agent,
        "label": branch.label,
        "parent": branch.parent_branch,
        "status": branch.status,
        "held": branch.is_held(now),
        "created_at": moment(branch.created_at),
        "changed_at": moment(branch.changed_at),
        "waits_for": tuple(row.pending_id for row in waits.get(branch.id, ())),
        "title": (about.item.title or about.item.tool_name) if about.item is not None else None,
        "words": about.words,
        "requester": maybe(about.requester),
    }


def moment(at: float) -> datetime:
    """A time of the store, as the API tells it."""
    return datetime.fromtimestamp(at, UTC)


RUNS: Final = (
    Route(
        method="GET",
        path=f"{BASE}/runs",
        handler=list_runs,
        scope="read",
        summary="Runs and their forks, newest first",
        query=inputs.RunsQuery,
        answer=schemas.RunsPage,
        problems=("bad-cursor", "invalid"),
    ),
    Route(
        method="POST",
        path=f"{BASE}/runs",
        handler=start_run,
        scope="start",
        acts=True,
        summary="Start a run",
        body=inputs.StartBody,
        answer=schemas.RunFull,
        status=202,
        problems=("key-missing", "key-reused", "in-progress", "refused", "invalid"),
    ),
    Route(
        method="GET",
        path=f"{BASE}/runs/{{id}}",
        handler=show_run,
        scope="read",
        summary="A run, or a fork of one, and how it stands",
        answer=schemas.RunFull,
    ),
    Route(
        method="GET",
        path=f"{BASE}/runs/{{id}}/timeline",
        handler=show_timeline,
        scope="read",
        summary="What happened in a run, without anything that was said",
        query=inputs.TimelineQuery,
        answer=schemas.TimelineView,
        problems=("invalid",),
    ),
    Route(
        method="GET",
        path=f"{BASE}/runs/{{id}}/messages",
        handler=show_messages,
        scope="read",
        summary="The conversation of a run, its end first",
        query=inputs.MessagesQuery,
        answer=schemas.MessagesView,
        problems=("invalid",),
    ),
    Route(
        method="POST",
        path=f"{BASE}/runs/{{id}}/messages",
        handler=send_message,
        scope="start",
        acts=True,
        summary="Send a message to a run that waits or works",
        body=inputs.MessageBody,
        answer=SentMessage,
        problems=("key-missing", "key-reused", "refused", "invalid"),
    ),
    Route(
        method="POST",
        path=f"{BASE}/runs/{{id}}/cancel",
        handler=cancel_run,
        scope="cancel",
        acts=True,
        summary="End a run",
        body=inputs.CancelBody,
        answer=schemas.RunFull,
        problems=("key-missing", "key-reused", "in-progress", "refused", "invalid"),
    ),
    Route(
        method="POST",
        path=f"{BASE}/runs/{{id}}/events",
        handler=send_event,
        scope="send",
        acts=True,
        summary="Send an event from outside to a run",
        body=inputs.EventBody,
        answer=EventView,
        problems=(
            *("key-missing", "key-reused", "refused", "invalid"),
            *("not-an-approver", "already-decided", "withdrawn"),
        ),
    ),
)

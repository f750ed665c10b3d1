"""Operating runs, for the pages and the API: to pause one, end it, fork it, go back in it, and step it from a breakpoint.

Each operation is looked at before it is done: what it would be done to, whether it can be done, and a digest of both. Whoever does it
sends the digest along, so that nothing is done to what they have not seen. Whether somebody may let a breakpoint go on is judged by the
engine, as every decision is.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import quote

from phronomy.debugger.stepping import Pace, stepping
from phronomy.errors import (
    AgentChanged,
    CheckpointAlreadyResumed,
    CheckpointError,
    CheckpointNotFound,
    ConfigurationError,
    InvalidDecision,
    RunFailed,
    UnknownPending,
)
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonValue, canonical
from phronomy.foundation.quoting import kept_id
from phronomy.inbox.idempotency import begun_once, body_digest
from phronomy.inbox.problems import Problem
from phronomy.inbox.versions import Found, read_checkpoint
from phronomy.records.decisions import Approve
from phronomy.stores.derived.people import writers_of
from phronomy.stores.derived.standing import standing_of
from phronomy.stores.native import apart, in_store
from phronomy.stores.rows import ENDED, OPEN

if TYPE_CHECKING:
    from phronomy.inbox.auth.identity import Identity, Scope
    from phronomy.inbox.site import Site
    from phronomy.records.checkpoint import Checkpoint
    from phronomy.records.decisions import PendingApproval
    from phronomy.runs.runs import Runs
    from phronomy.runs.stream import AsyncStream
    from phronomy.stores.base import Store
    from phronomy.stores.rows import Branch

_log = logging.getLogger("phronomy.inbox")

What: TypeAlias = Literal["pause", "cancel", "fork", "restore", "step"]
"""An operation."""

SCOPES_OF: Final[Mapping[What, tuple[Scope, ...]]] = {
    "pause": ("operate", "read"),
    "cancel": ("cancel", "read"),
    "fork": ("operate", "read"),
    "restore": ("operate", "read"),
    # To let a breakpoint go on is a decision.
    "step": ("operate", "decide", "read"),
}
"""The scopes that somebody needs for an operation, all of them."""

CHANNEL: Final = "inbox"

WAITS: Final = 2.0
"""Seconds for which the answer to a step waits for the next stop. A step that takes longer goes on behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """An operation as it could be done now, and to what.

    `parent` is the checkpoint before it. `digest` is that of what is shown; `why_not` says in words why it cannot be done, and is empty
    if it can. `changes` is how the agent differs from the one that made the checkpoint, where somebody has to accept that.
    """

    what: What
    branch: Branch
    checkpoint: Checkpoint
    parent: Checkpoint | None = None
    item: PendingApproval | None = None
    digest: str
    why_not: str = ""
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What somebody says with an operation. Each counts for the operations that take it."""

    reason: str | None = None
    label: str | None = None
    rerun: bool = False
    accept_changes: bool = False
    pace: Pace = "step"


class Started:
    """The runs that this process has started and drives. They are named here, as a task that nobody names may vanish."""

    def __init__(self, site: Site) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def drive(self, run_id: str, stream: AsyncStream[Any]) -> asyncio.Task[None]:
        """Drive a run that has begun, until it waits or ends."""
        task = asyncio.create_task(self._drive(run_id, stream))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _drive(self, run_id: str, stream: AsyncStream[Any]) -> None:
        try:
            async with stream:
                async for _ in stream:
                    pass
        except Exception as error:
            # The run is stored as it stands, and is resumed or recovered from there. Its error may quote what was said.
            _log.warning("run %s, which was driven by the inbox, stopped on %s", run_id, type(error).__name__)


async def begin_run(
    site: Site, agent: Runs[Any, Any], identity: Identity, text: str, *, thread: str | None, label: str | None = None
) -> str:
    """Start a run of an agent of this process on somebody's behalf, and drive it: the id of its branch."""
    stream = agent.astream(text, thread_id=thread, label=label, requester=identity.principal)
    first = await anext(stream)
    site.kept(Started).drive(first.branch_id, stream)
    return first.branch_id


async def drive_on(site: Site, stream: AsyncStream[Any]) -> asyncio.Task[None] | None:
    """Drive a run that goes on: the task, or None if it has failed at once. Raises `Problem` if a worker has taken it."""
    try:
        # Its claim, and the decision if there is one, are written before the first event.
        first = await anext(stream)
    except StopAsyncIteration:
        raise Problem("in-progress", "A worker has taken the run, and carries on with it.") from None
    except RunFailed:  # which is stored, and the page of the run says so
        return None
    return site.kept(Started).drive(first.branch_id, stream)


_CHAT: Final = "chat-"


def own_threads(identity: Identity) -> str:
    """The beginning of the ids of somebody's conversations in the chat. Nobody else begins one with such an id."""
    who = identity.principal
    return f"{_CHAT}{hashlib.sha256(canonical([who.kind, who.id]).encode()).hexdigest()[:16]}-"


def chat_path(thread_id: str, end: str = "") -> str:
    """The path of a conversation in the chat."""
    return f"/chat/{quote(thread_id, safe='')}{end}"


def check_thread_id(identity: Identity, thread_id: str) -> None:
    """Refuse to begin a conversation that would be taken for another person's. Raises `Problem`."""
    if thread_id.startswith(_CHAT) and not thread_id.startswith(own_threads(identity)):
        raise Problem("refused", f"A thread whose id begins with {_CHAT} is of the chat: take another id.")


async def check_writers(site: Site, store: Store, identity: Identity, last: Checkpoint) -> None:
    """Refuse a conversation in which somebody else has written, unless the inbox allows any: what is said there goes to the model.

    `last` is where it stands. Raises `Problem`.
    """
    if site.threads == "any":
        return
    # In a conversation of the chat, whose id is its owner's, others have decided at most: what they said with that is in it, too.
    own = last.thread_id is not None and last.thread_id.startswith(own_threads(identity))
    if own and last.requester is not None and last.requester.id == identity.principal.id:
        return
    if await apart(store, writers_of, store, last) != {identity.principal.id}:
        raise Problem(
            "refused",
            "Somebody else has asked for runs in this thread, or nobody knows who has: take a thread of your own.",
        )


# Looking


async def offered_in(
    site: Site,
    store: Store,
    identity: Identity,
    what: What,
    id: str,
    *,
    checkpoint_id: str | None = None,
    pending_id: str | None = None,
) -> Offered:
    """An operation as this person could do it now to the run, or the fork, of this id.

    A fork and a restore name a checkpoint of it, and a step a breakpoint that waits in it. Raises `CheckpointNotFound` and
    `UnknownPending`.
    """
    return await apart(store, _offered, site, store, identity, what, id, checkpoint_id, pending_id)


async def offered_for_run(site: Site, store: Store, identity: Identity, id: str) -> tuple[Offered, ...]:
    """What could be done to a run as it stands: pausing, ending, and a step from each breakpoint. Raises `CheckpointNotFound`."""

    def read() -> tuple[Offered, ...]:
        branch, head = _head(store, id)
        found = [_of_run(site, store, "pause", branch, head), _of_run(site, store, "cancel", branch, head)]
        found += [_step(site, store, identity, branch, head, item) for item in head.pending if item.why == "breakpoint"]
        return tuple(found)

    return await apart(store, read)


def _offered(
    site: Site,
    store: Store,
    identity: Identity,
    what: What,
    id: str,
    checkpoint_id: str | None,
    pending_id: str | None,
) -> Offered:
    match what:
        case "pause" | "cancel":
            return _of_run(site, store, what, *_head(store, id))
        case "fork" | "restore":
            found = read_checkpoint(store, id, checkpoint_id or "")
            made = _fork(found) if what == "fork" else _restore(site, store, found)
            return replace(made, parent=found.parent)
        case "step":
            branch, head = _head(store, id)
            item = next((each for each in head.pending if each.id == pending_id), None)
            if item is None:
                raise UnknownPending("no such request waits in this run", pending_id=kept_id(pending_id or ""))
            return _step(site, store, identity, branch, head, item)


def _head(store: Store, id: str) -> tuple[Branch, Checkpoint]:
    try:
        return store.head(id)
    except ConfigurationError:  # text that no id can be
        raise CheckpointNotFound("there is no such run", id=kept_id(id)) from None


def _of_run(site: Site, store: Store, what: Literal["pause", "cancel"], branch: Branch, head: Checkpoint) -> Offered:
    agent = _agent(site, store, branch, head)
    why_not = ""
    if branch.status in ENDED:
        why_not = "The run has ended."
    elif agent is None:
        why_not = (
            f"This server does not have the agent, so it cannot {'end' if what == 'cancel' else 'pause'} its runs."
        )
    elif what == "pause" and branch.status != "running":
        why_not = "The run waits already." if branch.status == "suspended" else "The run has stopped on a failure."
    # Without the place of a run that goes on: it would be another one with each look.
    waits: list[JsonValue] = [[item.id, item.digest] for item in head.pending]
    digest = body_digest(what, branch.id, branch.status, waits)
    return Offered(what=what, branch=branch, checkpoint=head, digest=digest, why_not=why_not)


def _fork(found: Found) -> Offered:
    branch, checkpoint = found.branch, found.checkpoint
    why_not = "" if checkpoint.ended is None else "The run ends here. Fork a checkpoint before the end."
    digest = body_digest("fork", checkpoint.id, checkpoint.sealed().digest)
    return Offered(what="fork", branch=branch, checkpoint=checkpoint, digest=digest, why_not=why_not)


def _restore(site: Site, store: Store, found: Found) -> Offered:
    branch, checkpoint = found.branch, found.checkpoint
    agent = _agent(site, store, branch, checkpoint)
    changes = agent.drift(checkpoint).changed if agent is not None else ()
    others = store.branches(thread_id=checkpoint.thread_id) if checkpoint.thread_id is not None else [branch]
    why_not = ""
    if agent is None:
        why_not = "This server does not have the agent, so it cannot go back in its runs."
    elif any(each.is_held(store.clock()) for each in others):
        why_not = "A worker is at work on the run at this moment."
    elif checkpoint.thread_id is not None and any(each.status in OPEN for each in others):
        why_not = "A run of this conversation has not ended: decide what it waits for, or end it first."
    stands: list[JsonValue] = [[each.id, each.status] for each in others]
    digest = body_digest("restore", checkpoint.id, checkpoint.sealed().digest, list(changes), stands)
    return Offered(
        what="restore", branch=branch, checkpoint=checkpoint, digest=digest, why_not=why_not, changes=changes
    )


def _step(
    site: Site, store: Store, identity: Identity, branch: Branch, head: Checkpoint, item: PendingApproval
) -> Offered:
    standing = standing_of(store, item, identity.principal)
    why_not = ""
    if item.why != "breakpoint":
        why_not = "This is no breakpoint: decide it on its page."
    elif _agent(site, store, branch, head) is None:
        why_not = "This server does not have the agent, so it cannot step through its runs."
    elif branch.is_held(store.clock()):
        # The decision would be left for that worker, which knows of no step.
        why_not = "A worker is at work on the run at this moment."
    elif "approve" not in standing.answers:
        why_not = standing.said or "You may not let it go on."
    elif "approve" in standing.partial:
        why_not = "Several people have to let it go on: decide it on its page."
    digest = body_digest("step", item.id, item.digest, branch.id, head.id)
    return Offered(what="step", branch=branch, checkpoint=head, item=item, digest=digest, why_not=why_not)


def _agent(site: Site, store: Store, branch: Branch, checkpoint: Checkpoint) -> Runs[Any, Any] | None:
    """The agent of a run, if this process has it, and it is of the same kind still."""
    found = site.agent_of(store, branch.agent)
    return found if found is not None and found.spec.kind == checkpoint.kind else None


# Doing


async def operate_once(
    site: Site,
    store: Store,
    identity: Identity,
    what: What,
    id: str,
    *,
    checkpoint_id: str | None = None,
    pending_id: str | None = None,
    digest: str,
    terms: Terms,
    key: str,
) -> str:
    """Do an operation once under a scoped key, and return the id of the branch that it leads to.

    `digest` is that of the operation as it was shown. Raises `Problem`: `stale` if something else would be done now, `refused` if it
    cannot be done; and what `offered_in` raises.
    """
    about: list[JsonValue] = [what, id, checkpoint_id, pending_id, digest]
    said: list[JsonValue] = [terms.reason, terms.label, terms.rerun, terms.accept_changes, terms.pace]
    async with begun_once(store, key, body=body_digest(about, said)) as once:
        if once.made is None:
            offered = await offered_in(
                site, store, identity, what, id, checkpoint_id=checkpoint_id, pending_id=pending_id
            )
            if offered.digest != digest:
                raise Problem("stale")
            if offered.why_not:
                raise Problem("refused", offered.why_not)
            once.made = await _done(site, store, identity, offered, terms)
        return once.made


def touched(id: str, made: str, pending_id: str | None = None) -> list[str]:
    """The ids that the access log has of an operation: of the run, of the branch that it led to, and of a request that it decided."""
    return [*dict.fromkeys((id, made)), *([pending_id] if pending_id is not None else [])]


async def _done(site: Site, store: Store, identity: Identity, offered: Offered, terms: Terms) -> str:
    """Do what is offered, and return the id of the branch that it leads to."""
    # Between the look and this the run may go on. A pause and an end are refused then, in the write itself, if it waits for something
    # else; a run that has failed meanwhile is paused all the same, and whoever lets it go on has it tried again. A step is a decision,
    # which counts for the request alone. A fork and a restore are of a checkpoint, which never changes, and a restore looks at the
    # thread again.
    agent = _agent(site, store, offered.branch, offered.checkpoint)
    by, id = identity.principal, offered.branch.id
    try:
        if offered.what == "fork":
            made = partial(store.fork, offered.checkpoint.id, label=terms.label, rerun=terms.rerun, by=by)
            return (await in_store(store, made)).branch_id
        if agent is None:
            raise Problem("refused", "This server does not have the agent.")
        match offered.what:
            case "pause":
                await agent.apause(id, reason=terms.reason, by=by, seen=offered.checkpoint)
            case "cancel":
                await agent.acancel(id, reason=terms.reason, by=by, seen=offered.checkpoint)
            case "restore":
                accept = terms.accept_changes
                return (await agent.arestore(offered.checkpoint.id, accept_changes=accept, by=by)).branch_id
            case "step":
                await _stepped(site, agent, identity, offered, terms.pace)
    except AgentChanged as error:
        raise Problem(
            "refused", "The agent has changed since: somebody has to accept that.", changes=list(error.changes)
        ) from None
    except (CheckpointAlreadyResumed, InvalidDecision) as error:
        if offered.what == "step":
            raise
        if isinstance(error, InvalidDecision):
            raise Problem("stale") from None
        raise Problem("refused", "The run has ended.") from None
    except CheckpointNotFound:
        raise
    except CheckpointError as error:
        raise Problem("refused", str(error)) from None
    return id


async def _stepped(site: Site, agent: Runs[Any, Any], identity: Identity, offered: Offered, pace: Pace) -> None:
    """Let a breakpoint go on, and have the run stop at the next point."""
    item = offered.item
    assert item is not None
    stops = [*agent.spec.breakpoints, *stepping(pace, item.path, agent.spec, {})]
    stream = agent.astream(
        offered.checkpoint,
        decisions={item.id: Approve()},
        by=identity.principal,
        channel=CHANNEL,
        breakpoints=stops,
        hold=None,
    )
    if (task := await drive_on(site, stream)) is not None:
        await asyncio.wait({task}, timeout=WAITS)

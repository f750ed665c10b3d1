"""The chat: somebody talks to an agent of this server, and sees what it asks people for in between.

A conversation is a thread of runs, as any other: this is one more way to look at it. What is said while a run works or waits is sent to
that run, and what is said after its end begins the next one.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from phronomy.errors import (
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    ConfigurationError,
    RunBusy,
    ThreadBusy,
    UnknownPending,
)
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonValue
from phronomy.inbox.api.runs import HELD_BACK, about_runs, agent_of, names_in, said_in
from phronomy.inbox.idempotency import begun_once, body_digest, read_key, scoped
from phronomy.inbox.operating import CHANNEL, begin_run, chat_path, check_writers, drive_on, own_threads
from phronomy.inbox.pages.deciding.given import new_key
from phronomy.inbox.pages.records.runs import run_path
from phronomy.inbox.pages.view import render
from phronomy.inbox.pages.waiting import path_of, votes_of
from phronomy.inbox.pages.words import heading
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route
from phronomy.inbox.service import show
from phronomy.observability.about import args_in_brief
from phronomy.observability.masking import Masking
from phronomy.records.calls import Added
from phronomy.records.messages import told_text
from phronomy.stores.native import apart
from phronomy.stores.rows import ENDED, BranchFilter

if TYPE_CHECKING:
    from phronomy.inbox.visit import Form, Visit
    from phronomy.records.checkpoint import Checkpoint
    from phronomy.records.decisions import PendingApproval
    from phronomy.runs.runs import Runs
    from phronomy.stores.rows import Branch

MESSAGES: Final = 50
"""Messages of a conversation that are shown, the last. The page of its run has all."""

LONGEST: Final = 20_000
"""Characters of a message."""

KEPT: Final = 10
"""Conversations of one's own that the first page leads to, the newest."""

_LOOKED_AT: Final = 200
"""Runs among which they are looked for, the newest."""

Stands: TypeAlias = Literal["works", "waits", "failed", "ended"]
"""How a conversation stands: the agent is at work, a person is asked, the run has failed, or it is somebody's turn to speak."""

_SCOPES: Final = ("start", "read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request of the conversation: what is asked, in a line, and whether the person who looks may decide it."""

    item: PendingApproval
    heading: str
    line: str
    path: str
    mine: bool
    who: str
    votes: str


class ChatQuery(BaseModel):
    """With which agent a conversation begins."""

    agent: str | None = Field(default=None, max_length=200)


# Whose conversations


def talkers(visit: Visit) -> list[str]:
    """The agents that somebody can talk to here. A graph takes a state, and no words."""
    found = [(name, agent_of(visit, name)) for name in visit.inbox.agents]
    return [name for name, agent in found if agent is not None and agent.spec.kind == "agent"]


async def _kept(visit: Visit) -> list[tuple[str, str, str]]:
    """The newest conversations of whoever looks: path, agent, and first words."""
    own = own_threads(visit.identity)
    first: dict[str, Branch] = {}
    rows = await apart(visit.store, visit.store.select_branches, BranchFilter(newest=True, limit=_LOOKED_AT))
    for branch in rows:
        if branch.thread_id is not None and branch.thread_id.startswith(own):
            first[branch.thread_id] = branch  # of several runs, the last that comes is the first that was
    kept = [*first.items()][:KEPT]
    about = await about_runs(visit, [branch for _, branch in kept], {})
    return [(chat_path(thread), branch.agent, about[branch.id].words or "") for thread, branch in kept]


# Looking


async def chats(visit: Visit) -> Response:
    """The page on which a conversation begins."""
    agents, chosen = talkers(visit), visit.query(ChatQuery).agent
    return render(
        visit,
        "chats.html",
        here="/chat",
        agents=agents,
        chosen=chosen if chosen in agents else next(iter(agents), None),
        kept=await _kept(visit),
        key=new_key(),
        longest=LONGEST,
    )


async def chat(visit: Visit) -> Response:
    """A conversation."""
    return render(visit, "chat.html", await _talk(visit), here="/chat", key=new_key(), longest=LONGEST)


async def talk(visit: Visit) -> Response:
    """The part of the page of a conversation that changes: the messages, and how it stands."""
    return render(visit, "talk.html", await _talk(visit))


async def _talk(visit: Visit) -> dict[str, object]:
    thread_id = visit.params["thread"]
    branch, checkpoint = await _current(visit, thread_id)
    agent = _talker(visit, branch, checkpoint)
    mask = Masking(agent.spec if agent is not None else None)
    part = said_in(checkpoint, mask, before=None, limit=MESSAGES)
    sent = [_shown(visit, each) for each in unread(checkpoint)]
    asked = [found for item in checkpoint.pending if (found := await _asked(visit, item, mask)) is not None]
    votes: list[JsonValue] = [[each.item.id, len(each.item.votes)] for each in asked]
    return {
        "agent": checkpoint.speaker,
        "can_talk": agent is not None and await _is_own(visit, checkpoint),
        "stands": stands(branch, checkpoint),
        "messages": part.items,
        "names": names_in(checkpoint),
        "more": part.before,
        "unread": sent,
        "asked": asked,
        "digest": body_digest(checkpoint.id, branch.status, len(checkpoint.journal), votes, len(sent)),
        "here_path": chat_path(thread_id),
        "talk_path": chat_path(thread_id, "/talk"),
        "again_key": new_key(),
        "run_path": run_path(branch.id),
    }


async def _current(visit: Visit, thread_id: str) -> tuple[Branch, Checkpoint]:
    """The run of a conversation that counts now, and its last checkpoint. Raises `Problem`."""
    try:
        found = await visit.store.acurrent(thread_id)
        return await visit.store.ahead(found.branch_id)
    except (CheckpointNotFound, ConfigurationError):  # none, or text that no id can be
        raise Problem("not-found") from None


def _talker(visit: Visit, branch: Branch, checkpoint: Checkpoint) -> Runs[Any, Any] | None:
    found = agent_of(visit, branch.agent)
    return found if found is not None and found.spec.kind == checkpoint.kind == "agent" else None


async def _is_own(visit: Visit, checkpoint: Checkpoint) -> bool:
    """True if somebody may talk in this conversation."""
    try:
        await check_writers(visit.inbox, visit.store, visit.identity, checkpoint)
    except Problem:
        return False
    return True


def unread(checkpoint: Checkpoint) -> list[Added]:
    """The messages that were sent to the run, and that are not in its conversation yet."""
    return [*checkpoint.added, *(each for each in checkpoint.journal if isinstance(each, Added))]


def _shown(visit: Visit, sent: Added) -> str:
    """The text of a message that nobody has read. Guardrails look at it before that, so only who wrote it sees it."""
    mine = sent.by is not None and sent.by.id == visit.identity.principal.id
    return told_text(sent.message.content) if mine else HELD_BACK


def stands(branch: Branch, checkpoint: Checkpoint) -> Stands:
    """How a conversation stands."""
    if branch.status in ENDED:
        return "ended"
    if branch.status == "failed":
        return "failed"
    return "waits" if checkpoint.pending else "works"


async def _asked(visit: Visit, item: PendingApproval, mask: Masking) -> Asked | None:
    try:
        found = await show(visit.store, visit.identity, item.id)
    except UnknownPending:  # its run was cancelled at this moment
        return None
    if found.request.decision is not None:
        return None
    item = found.request.approval  # with the votes since the checkpoint
    return Asked(
        item=item,
        heading=heading(item),
        line=item.context or args_in_brief(item, mask),
        path=path_of(item.id),
        mine=visit.may("decide") and any(way != "reject" for way in found.standing.answers),
        who="; ".join(found.who),
        votes=votes_of(item),
    )


# Talking


async def begin(visit: Visit) -> Response:
    """Begin a conversation with what was said."""
    visit.inbox.limits.operation(visit.identity)
    form = visit.form()
    key, text, name = read_key(form.needed("key")), _words(form), form.needed("agent")
    agent = agent_of(visit, name) if name in talkers(visit) else None
    if agent is None:
        raise Problem("invalid", "This server has no such agent to talk to.")
    # Of the key: whoever sends the form twice comes to the same conversation.
    thread_id = own_threads(visit.identity) + hashlib.sha256(key.encode()).hexdigest()[:16]
    once_key = scoped(visit.identity, "page-chat", key)
    async with begun_once(visit.store, once_key, body=body_digest(name, text)) as once:
        if once.made is None:
            once.made = await begin_run(visit.inbox, agent, visit.identity, text, thread=thread_id)
        visit.about.append(once.made)
    return _back(visit, thread_id)


async def say(visit: Visit) -> Response:
    """Say something in a conversation, or have a run that failed tried again."""
    visit.inbox.limits.operation(visit.identity)
    form, thread_id = visit.form(), visit.params["thread"]
    again = form.get("again") is not None
    key, text = read_key(form.needed("key")), "" if again else _words(form)
    once_key = scoped(visit.identity, "page-chat", key, thread_id)
    async with begun_once(visit.store, once_key, body=body_digest(thread_id, again, text)) as once:
        if once.made is None:
            once.made = await _said(visit, thread_id, once_key, text, again=again)
        visit.about.append(once.made)
    return _back(visit, thread_id)


async def _said(visit: Visit, thread_id: str, key: str, text: str, *, again: bool) -> str:
    """Say it to the run that counts now, or by the next one, but once: the id of its branch."""
    for _ in range(3):  # the run may end, and the next one begin, while somebody speaks
        branch, checkpoint = await _current(visit, thread_id)
        agent = _talker(visit, branch, checkpoint)
        if agent is None:
            raise Problem("refused", "This server does not have the agent, so nobody here can talk to it.")
        await check_writers(visit.inbox, visit.store, visit.identity, checkpoint)
        with suppress(CheckpointAlreadyResumed, ThreadBusy):
            if branch.status not in ENDED:
                return await _told(visit, agent, branch, checkpoint, key, text, again=again)
            if again:
                raise Problem("refused", "The run has ended.")
            if await _is_sent(visit, thread_id, key):
                return branch.id
            return await begin_run(visit.inbox, agent, visit.identity, text, thread=thread_id)
    raise Problem("in-progress", headers={"Retry-After": "1"})


async def _told(
    visit: Visit, agent: Runs[Any, Any], branch: Branch, checkpoint: Checkpoint, key: str, text: str, *, again: bool
) -> str:
    """Send it to a run that has not ended, and have the run go on if it has failed: the id of its branch."""
    if not again:
        by = visit.identity.principal
        checkpoint = await visit.store.asend(branch.id, text, by=by, channel=CHANNEL, id=key)
    if branch.status == "failed":
        try:
            await drive_on(visit.inbox, agent.astream(checkpoint))
        except (CheckpointAlreadyResumed, RunBusy, Problem):
            if again:
                raise
            # Somebody else has had the run go on, and it reads the message.
    return branch.id


async def _is_sent(visit: Visit, thread_id: str, key: str) -> bool:
    """True if the message was sent before, to a run that has ended since: the process may have died before it was noted."""
    async for record in visit.store.aaudit(thread_id=thread_id):
        if record.kind == "message" and record.key == key:
            return True
    return False


def _words(form: Form) -> str:
    text = form.needed("text").replace("\r\n", "\n").strip()
    if not 0 < len(text) <= LONGEST:
        raise Problem("invalid", f"A message has 1 to {LONGEST:,} characters.")
    return text


def _back(visit: Visit, thread_id: str) -> Response:
    return RedirectResponse(visit.url(f"{chat_path(thread_id)}#end"), status_code=HTTPStatus.SEE_OTHER)


CHAT: Final = (
    Route(method="GET", path="/chat", handler=chats, scope=_SCOPES, page=True, summary="Chat", query=ChatQuery),
    Route(method="POST", path="/chat", handler=begin, scope=_SCOPES, page=True, acts=True),
    Route(method="GET", path="/chat/{thread}", handler=chat, scope=_SCOPES, page=True, summary="A conversation"),
    Route(method="GET", path="/chat/{thread}/talk", handler=talk, scope=_SCOPES, page=True),
    Route(method="POST", path="/chat/{thread}", handler=say, scope=_SCOPES, page=True, acts=True),
)

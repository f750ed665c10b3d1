"""The page of one request: what is asked, in words and in full, where it stands, and the ways to answer it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from starlette.responses import Response

from phronomy.errors import UnknownPending
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import canonical
from phronomy.foundation.json_tree import Node, read_tree
from phronomy.inbox.operating import SCOPES_OF, chat_path, own_threads
from phronomy.inbox.pages.deciding.given import Given, answer_form, is_reviewed, new_key
from phronomy.inbox.pages.deciding.states import State, asked_again_as, said_of, state_of, votes_shown
from phronomy.inbox.pages.forms.fields import Field, form_of
from phronomy.inbox.pages.values import Value, raw, shown, values_of
from phronomy.inbox.pages.view import aside, render
from phronomy.inbox.pages.waiting import is_soon, next_after, path_of, query_of, votes_of
from phronomy.inbox.pages.words import THEN, answer_schema, heading, on_expiry, on_no, on_yes, verb
from phronomy.inbox.service import Shown, allows_grants, changes_between, is_risky, show
from phronomy.inbox.trail import changed_from
from phronomy.records.audit import AuditRecord
from phronomy.records.decisions import PendingApproval
from phronomy.stores.derived.standing import Way
from phronomy.stores.documents import NoDocuments
from phronomy.stores.native import apart

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit
    from phronomy.stores.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A way to answer, as the page offers it. `open` says that its form is to be seen at once, and `first` that it is in the bar."""

    way: Way
    verb: str
    action: str
    key: str
    reviewed: bool
    first: bool = False
    open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What somebody has typed that did not count, to be shown again: the answer, the forms, and what is wrong."""

    given: Given | None = None
    edit: Field | None = None
    edit_text: str | None = None
    answer: Field | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    way: Way | None = None


NOTHING: Final = Kept()


async def request_page(visit: Visit) -> Response:
    """A request."""
    try:
        found = await show(visit.store, visit.identity, visit.params["id"])
    except UnknownPending:
        return gone(visit)
    return await request_shown(visit, found, listed_of(visit))


def gone(visit: Visit, typed: Iterable[str] = ()) -> Response:
    """The page where no request is: one whose run was cancelled leaves nothing behind, as one that never was."""
    back = f"/{query_of(listed_of(visit)).address()}"
    return render(visit, "gone.html", status=HTTPStatus.NOT_FOUND, back_path=back, typed=list(typed))


def listed_of(visit: Visit) -> str:
    """The filters of the list from which somebody came, made sure to be some."""
    given = visit.request.query_params.get("list") or ""
    return query_of(given).address().removeprefix("?")


async def request_shown(
    visit: Visit, found: Shown, listed: str, *, status: int = 200, kept: Kept = NOTHING
) -> Response:
    """The page of a request, with what was typed before."""
    item = found.request.approval
    parts = await state_parts(visit, found, listed)
    state = parts["state"]
    assert isinstance(state, State)
    choices = _choices(visit, found, listed, kept) if state.waits else []
    ways = [choice.way for choice in choices]
    size = len(item.json_text("args"))
    edit = await aside(size, _edit_form, found, kept) if "edit" in ways else None
    return await aside(
        size,
        render,
        visit,
        "request.html",
        {**await aside(size, request_parts, visit, item, found.standing.partial), **parts},
        status=status,
        choices=choices,
        before=await rejected_before(visit, found) if state.waits else None,
        then=THEN,
        grants=visit.may("grant") and await allows_grants(visit.store, found.request),
        step_path=_step_path(visit, found) if choices else None,
        problem=kept.problem,
        errors=kept.errors,
        typed=kept.given.typed if kept.given is not None else {},
        edit=edit,
        edit_text=kept.edit_text,
        answer=(kept.answer or answer_form(found.request)) if "respond" in ways else None,
    )


def _step_path(visit: Visit, found: Shown) -> str | None:
    """The path of the page of a step from a breakpoint, for whoever may make one, where this process has the agent."""
    may = all(visit.may(scope) for scope in SCOPES_OF["step"])
    if found.request.approval.why != "breakpoint" or not may:
        return None
    if visit.inbox.agent_of(visit.store, found.request.agent) is None:
        return None
    return f"/runs/{quote(found.request.branch_id, safe='')}/step?{urlencode({'request': found.request.approval.id})}"


async def rejected_before(visit: Visit, found: Shown) -> AuditRecord | None:
    """The last rejection of the very same call in this run; None if there is none. A model may ask again and again."""
    last = None
    async for record in visit.store.aaudit(run_id=found.request.run_id):
        if (record.kind, record.digest) == ("reject", found.request.approval.digest) and not (
            record.vote or record.refused
        ):
            last = record
    return last


def _choices(visit: Visit, found: Shown, listed: str, kept: Kept) -> list[Choice]:
    if not visit.may("decide"):
        return []
    item = found.request.approval
    wanted = answer_schema(item)
    # A yes is no address: where the answer has a type, it is given in that type, and elsewhere a question asks for words.
    yes_or_no = item.why != "question" or (wanted is not None and wanted.get("type") == "boolean")
    ways: list[Way] = [way for way in found.standing.answers if way != "approve" or yes_or_no or wanted is None]
    first: Way = "respond" if "respond" in ways and not (yes_or_no and "approve" in ways) else "approve"
    ways.sort(key=lambda way: (way != first, way != "reject"))
    made = []
    for way in ways:
        reviewed = is_reviewed(item, way)
        end = "/edit" if way == "edit" else "/review" if reviewed else "/decision"
        made.append(
            Choice(
                way=way,
                verb=verb(item, way),
                action=path_of(item.id, listed, end),
                key=new_key(),
                reviewed=reviewed,
                first=way in (first, "reject"),
                open=way == kept.way,
            )
        )
    return made


def _edit_form(found: Shown, kept: Kept) -> Field:
    if kept.edit is not None:
        return kept.edit
    return form_of(found.request.schema, read_tree(found.request.approval.json_text("args")))


def _conversation_path(visit: Visit, found: Shown) -> str:
    """The path of the conversation that a request is of: of one's own, the chat."""
    thread_id = found.request.thread_id
    if thread_id is not None and thread_id.startswith(own_threads(visit.identity)) and visit.may("start"):
        return chat_path(thread_id)
    return f"/runs/{quote(found.request.branch_id, safe='')}"


async def state_parts(visit: Visit, found: Shown, listed: str) -> dict[str, object]:
    """What the templates of a request and of its state have in common."""
    item, again = found.request.approval, await asked_again_as(visit, found)
    state = state_of(visit, found, again)
    result = found.request.result
    return {
        "item": item,
        "conversation_path": _conversation_path(visit, found),
        "ended": found.request.decision is not None and found.request.decision.then == "end",
        "missing": found.standing.said if found.standing.answers else None,
        "state": state,
        "said": said_of(visit, found),
        "metadata": _metadata(found),
        "found": found.request,
        "votes": votes_shown(visit, item, found.votes),
        "levels": list(zip(found.tallies, found.who, strict=False)),
        "several": _takes_several(found),
        "soon": is_soon(item, visit.inbox.store.clock()),
        "uncertain": found.standing.uncertain,
        "unsent": await _unsent(visit, found),
        "ran": _edited(found),
        "changed_path": path_of(before, listed) if (before := await _before(visit, item)) is not None else None,
        "result": shown(Node("text", canonical(result.content), result.content)) if result is not None else None,
        "listed": listed,
        "here_path": path_of(item.id, listed),
        "state_path": path_of(item.id, listed, "/state"),
        "back_path": f"/{query_of(listed).address()}",
        "again_path": path_of(state.next, listed) if state.next is not None else None,
        "next_path": await next_after(visit, listed, item.id)
        if state.name not in ("pending", "partly_voted")
        else None,
    }


def _takes_several(found: Shown) -> bool:
    """True if a request takes more than one person, so that the page says how the votes stand."""
    levels, votes = found.tallies, found.votes
    open_vote = bool(votes) and found.request.decision is None
    return (
        len(levels) > 1 or len(votes) > 1 or open_vote or any(max(each.needed, each.rejections) > 1 for each in levels)
    )


async def _unsent(visit: Visit, found: Shown) -> list[tuple[str, str]]:
    """The messages about a waiting request that chats could not send, for somebody who operates: each place, and why not."""
    if found.request.status != "pending" or not visit.may("operate"):
        return []
    return await apart(visit.store, _not_sent, visit.store, found.request.approval.id)


def _not_sent(store: Store, pending_id: str) -> list[tuple[str, str]]:
    from phronomy.chat.posts import Posts  # noqa: PLC0415  # an inbox alone needs no chats

    with suppress(NoDocuments):
        posts = [post for _, post in Posts(store).of(pending_id)]
        return [
            (post.at, post.failed or post.why) for post in posts if post.failed or (post.tries and not post.is_done)
        ]
    return []


async def _before(visit: Visit, item: PendingApproval) -> str | None:
    """The request in whose place this one stands since somebody changed its values; None if there is none."""
    return await changed_from(visit.store, item.id) if item.votes else None


def _metadata(found: Shown) -> Value | None:
    """The data that an application gave with the decision; None if it gave none."""
    decision = found.request.decision
    return values_of(decision.json_text("metadata")) if decision is not None and decision.metadata else None


def _edited(found: Shown) -> object:
    """What an approval has changed in the arguments; None if nothing."""
    decision = found.request.decision
    if decision is None or decision.kind != "approve" or decision.args is None:
        return None
    return changes_between(found.request.approval.args, decision.args)


def request_parts(visit: Visit, item: PendingApproval, partial: Collection[Way] = ()) -> dict[str, object]:
    """What a template shows of what is asked; `partial` are the ways to answer that are a vote, after which others have to follow."""
    tool = visit.inbox.tool_of(item)
    text = item.json_text("args")
    question = read_tree(text).get("payload") if item.why == "question" else None
    return {
        "item": item,
        "heading": heading(item),
        "risky": is_risky(item),
        "args": shown(question, outermost=True)
        if question is not None
        else values_of(text, tool.redact if tool is not None else ()),
        "args_label": "All that came with the question, as JSON" if question is not None else "The same as JSON",
        "raw": raw(text),
        "yes": on_yes(item, votes_of(item) if "approve" in partial else ""),
        "partial": partial,
        "no": on_no(item, a_vote="reject" in partial),
        "expiry": on_expiry(item),
    }


async def state_fragment(visit: Visit) -> Response:
    """Where a request stands, alone: for the script of its page, which looks again by itself."""
    found = await show(visit.store, visit.identity, visit.params["id"])
    parts = await state_parts(visit, found, listed_of(visit))
    decision, result = found.request.decision, found.request.result
    changed = len(decision.json_text("args")) if decision is not None and decision.args is not None else 0
    size = changed + (len(result.content) if result is not None else 0)
    return await aside(size, render, visit, "state.html", parts)

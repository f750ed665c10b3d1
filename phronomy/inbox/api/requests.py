"""Requests in the API: listing, counting and showing them, and how they are put into the models of the answers."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlencode

from pydantic import BaseModel
from starlette.responses import Response

from phronomy.foundation.json_text import JsonDict, JsonValue, plain_object
from phronomy.inbox import service
from phronomy.inbox.api import inputs, schemas
from phronomy.inbox.cursors import Cursors
from phronomy.inbox.routes import Route
from phronomy.inbox.service import WaitingFilter
from phronomy.inbox.visit import pairs_of
from phronomy.rules.votes import governed, in_force

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from phronomy.errors import UnreadableRow
    from phronomy.inbox.visit import Visit
    from phronomy.records.approvers import Vote
    from phronomy.records.decisions import Decision, PendingApproval
    from phronomy.records.principals import Principal
    from phronomy.stores.base import Store
    from phronomy.stores.derived.standing import Standing

BASE: Final = "/api/v1"


async def list_requests(visit: Visit) -> Response:
    """A page of the requests that wait."""
    query = visit.query(inputs.RequestsQuery)
    cursors = Cursors(visit, "requests", query.model_dump(mode="json", exclude={"limit", "cursor"}))
    wanted = _filter(query, newest=query.order == "newest")
    page = await service.list_waiting(
        visit.store, visit.identity, wanted, limit=query.limit, after=cursors.read(query.cursor)
    )
    items = tuple(row_of(each) for each in page.rows)
    made = schemas.RequestsPage(items=items, next=cursors.made(page.next), unreadable=unread(page.unreadable))
    return paged(visit, made)


async def count_requests(visit: Visit) -> Response:
    """How many requests wait."""
    found = await service.count_waiting(visit.store, visit.identity, _filter(visit.query(inputs.WaitingQuery)))
    text = f"{found.count}+" if found.more else str(found.count)
    return answer(schemas.Counted(count=found.count, more=found.more, text=text))


async def show_request(visit: Visit) -> Response:
    """A request, with all that a person needs to decide it."""
    shown = await service.show(visit.store, visit.identity, visit.params["id"])
    return tagged(visit, full_of(visit.store, shown))


async def show_decision(visit: Visit) -> Response:
    """How a request stands, without what was asked: for whoever waits for a decision to be carried out."""
    shown = await service.show(visit.store, visit.identity, visit.params["id"])
    return tagged(visit, decision_view(visit, shown))


def _filter(query: inputs.WaitingQuery, *, newest: bool = False) -> WaitingFilter:
    return WaitingFilter(
        state=query.state,
        run_id=query.run,
        thread_id=query.thread,
        agent=query.agent,
        tool=query.tool,
        risk=query.risk,
        label=query.label,
        requester=query.requester,
        older_than=query.older_than,
        newer_than=query.newer_than,
        expires_within=query.expires_within,
        mine=query.mine,
        text=query.text,
        newest=newest,
        triggers=query.triggers,
    )


# Answers


def answer(model: BaseModel, status: int = 200) -> Response:
    """The answer that is this model."""
    return Response(model.model_dump_json(), status, media_type="application/json")


def paged(visit: Visit, page: schemas.RequestsPage | schemas.AuditPage | schemas.RunsPage) -> Response:
    """The answer that is this page, with a link to the next one (RFC 8288)."""
    response = answer(page)
    if page.next is not None:
        given = [pair for pair in pairs_of(visit.request.scope["query_string"]) if pair[0] != "cursor"]
        query = urlencode([*given, ("cursor", page.next)])
        # Of our own path, and never of the host: that header is the client's, and may lead anywhere.
        response.headers["Link"] = f'<{visit.url(visit.place or "")}?{query}>; rel="next"'
    return response


def tag_of(model: BaseModel) -> str:
    """The weak entity tag of what somebody sees: it changes with a vote, and with what they may do."""
    return f'W/"{hashlib.sha256(model.model_dump_json().encode()).hexdigest()[:32]}"'


def tagged(visit: Visit, model: BaseModel, tag: str = "") -> Response:
    """The answer that is this model, or 304 if whoever asks has it already. `tag` is its tag, if it is one of its own."""
    tag = tag or tag_of(model)
    given = visit.request.headers.get("if-none-match", "")
    if given.strip() == "*" or _opaque(tag) in {_opaque(each) for each in given.split(",")}:
        return Response(status_code=304, headers={"ETag": tag})
    response = answer(model)
    response.headers["ETag"] = tag
    return response


def _opaque(tag: str) -> str:
    """What a weak comparison compares (RFC 9110, 8.8.3.2)."""
    return tag.strip().removeprefix("W/")


# The models


def unread(rows: Iterable[UnreadableRow]) -> tuple[schemas.Unreadable, ...]:
    """The rows that a list cannot show."""
    return tuple(
        schemas.Unreadable(kind=each.kind, id=each.id, run_id=each.run_id, branch_id=each.branch_id, detail=str(each))
        for each in rows
    )


def person_of(who: Principal) -> schemas.Person:
    """A person, as they were recorded."""
    return schemas.Person(id=who.id, name=who.name, kind=who.kind, roles=who.roles)


def maybe(who: Principal | None) -> schemas.Person | None:
    """A person, or nobody."""
    return None if who is None else person_of(who)


def may_of(standing: Standing) -> schemas.May:
    """What somebody may do about a request."""
    return schemas.May(
        answers=standing.answers,
        why_not=None if standing.answers else standing.why_not,
        said=standing.said,
        uncertain=standing.uncertain,
    )


def row_of(row: service.Row) -> schemas.RequestRow:
    """A request in a list."""
    item, waiting = row.waiting.approval, row.waiting
    return schemas.RequestRow(
        id=item.id,
        digest=item.digest,
        title=item.title,
        tool=tool_of(item),
        agent=item.agent or waiting.agent,
        run_id=waiting.run_id,
        branch_id=waiting.branch_id,
        thread_id=waiting.thread_id,
        label=waiting.label,
        why=item.why,
        requester=maybe(item.requester),
        requested_at=item.requested_at,
        expires_at=item.expires_at,
        on_expiry=item.on_expiry,
        args=item.json_text("args"),
        votes=len(item.votes),
        may=may_of(row.standing),
    )


def tool_of(item: PendingApproval) -> schemas.ToolOf:
    """The tool of a request."""
    tool = item.tool
    return schemas.ToolOf(
        name=tool.name, source=tool.source, endpoint=tool.endpoint, risk=tool.risk, external=item.external
    )


def full_of(store: Store, shown: service.Shown) -> schemas.RequestFull:
    """A request with everything."""
    found = shown.request
    item, text = found.approval, found.approval.json_text("args")
    fields: Mapping[str, Any] = {
        "schema": cast("dict[str, Any] | None", found.schema),
        "result_schema": found.result_schema,
    }
    return schemas.RequestFull(
        id=item.id,
        digest=item.digest,
        status=found.status,
        title=item.title,
        context=item.context,
        tool=tool_of(item),
        description=found.description,
        args=text,
        arguments=plain_object(text),
        agent=item.agent or found.agent,
        path=item.path,
        run_id=found.run_id,
        branch_id=found.branch_id,
        checkpoint_id=found.checkpoint_id,
        thread_id=found.thread_id,
        label=found.label,
        why=item.why,
        reason=item.reason,
        point=item.point,
        breakpoint=item.label,
        requester=maybe(item.requester),
        requested_at=item.requested_at,
        expires_at=item.expires_at,
        on_expiry=item.on_expiry,
        conversation=tuple(schemas.Shown(role=one.role, text=one.text, tools=one.tools) for one in item.conversation),
        policy=item.policy,
        levels=levels_of(store, shown),
        votes=tuple(vote_of(each) for each in shown.votes),
        may=may_of(shown.standing),
        decision=decision_of(found.decision),
        outcome=outcome_of(shown),
        asked_again=found.asked_again,
        set_aside=found.set_aside,
        run_status=found.run_status,
        **fields,
    )


def decision_view(visit: Visit, shown: service.Shown) -> schemas.DecisionView:
    """The state of a request after a decision or a vote. Without the scope `read`, it has no reason, edit or result."""
    found, store, reads = shown.request, visit.store, visit.may("read")
    return schemas.DecisionView(
        id=found.approval.id,
        digest=found.approval.digest,
        status=found.status,
        decision=decision_of(found.decision, reads=reads),
        votes=tuple(vote_of(each, reads=reads) for each in shown.votes),
        levels=levels_of(store, shown),
        outcome=outcome_of(shown, reads=reads),
        asked_again=found.asked_again,
        set_aside=found.set_aside,
        run_status=found.run_status,
    )


def levels_of(store: Store, shown: service.Shown) -> tuple[schemas.Level, ...]:
    """Who is asked at each level, and how the votes stand there."""
    item = shown.request.approval
    at = datetime.fromtimestamp(store.clock(), UTC)
    found: list[schemas.Level] = []
    for asked, tally, who in zip(governed(item), shown.tallies, shown.who, strict=True):
        level = in_force(asked, item.requested_at, at)
        found.append(
            schemas.Level(
                of=level.of,
                roles=level.roles,
                ids=level.ids,
                predicates=level.predicates,
                not_requester=level.not_requester,
                needed=level.needed,
                counted=tally.counted,
                rejections=level.rejections,
                rejected=tally.rejected,
                who=who,
            )
        )
    return tuple(found)


def vote_of(vote: Vote, *, reads: bool = True) -> schemas.VoteOf:
    """A vote. Without `reads`, without its reason and its metadata."""
    return schemas.VoteOf(
        kind=vote.kind,
        by=person_of(vote.by),
        behalf_of=maybe(vote.behalf_of),
        at=vote.at,
        channel=vote.channel,
        reason=vote.reason if reads else None,
        metadata=vote.metadata if reads else {},
    )


def decision_of(decision: Decision | None, *, reads: bool = True) -> schemas.DecisionOf | None:
    """A decision; None for none. Without `reads`, without its reason, its metadata and what was edited."""
    if decision is None:
        return None
    edited = decision.__dict__["args"]
    return schemas.DecisionOf(
        decision=decision.kind,
        by=maybe(decision.by),
        behalf_of=maybe(decision.behalf_of),
        at=decision.at,
        channel=decision.channel,
        reason=decision.reason if reads else None,
        then=decision.then,
        edited=edited is not None,
        args=edited if reads else None,
        grant=decision.grant,
        metadata=decision.metadata if reads else {},
    )


def outcome_of(shown: service.Shown, *, reads: bool = True) -> schemas.Outcome | None:
    """The end of the call of a request; None as long as it is not known. Without `reads`, only its kind."""
    result = shown.request.result
    return None if result is None else schemas.Outcome(kind=result.kind, text=result.content if reads else None)


def as_json(model: BaseModel) -> JsonDict:
    """A model as a member of a problem."""
    value: JsonValue = model.model_dump(mode="json")
    assert isinstance(value, dict)
    return value


REQUESTS: Final = (
    Route(
        method="GET",
        path=f"{BASE}/requests",
        handler=list_requests,
        scope="read",
        summary="The requests that wait, oldest first",
        query=inputs.RequestsQuery,
        answer=schemas.RequestsPage,
        problems=("bad-cursor", "invalid"),
    ),
    Route(
        method="GET",
        path=f"{BASE}/requests/count",
        handler=count_requests,
        scope="read",
        summary="How many requests wait",
        query=inputs.WaitingQuery,
        answer=schemas.Counted,
        problems=("invalid",),
    ),
    Route(
        method="GET",
        path=f"{BASE}/requests/{{id}}",
        handler=show_request,
        scope="read",
        summary="A request, with everything that a person needs to decide it",
        answer=schemas.RequestFull,
        problems=("invalid",),
    ),
    Route(
        method="GET",
        path=f"{BASE}/requests/{{id}}/decision",
        handler=show_decision,
        scope="read",
        summary="How a request stands: its votes, its decision, and what became of the call",
        answer=schemas.DecisionView,
        problems=("invalid",),
    ),
)

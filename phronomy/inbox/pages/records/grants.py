"""The pages of standing grants: which there are, giving one for calls like that of a request, and revoking one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import date, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal, get_args

from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from phronomy.errors import GrantRefused, RequestExpired, UnknownPending
from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.idempotency import begun_once, body_digest, read_key, scoped
from phronomy.inbox.pages.deciding.given import new_key
from phronomy.inbox.pages.deciding.requests import gone, request_parts
from phronomy.inbox.pages.records.listed import Listed, end_of
from phronomy.inbox.pages.records.runs import run_path
from phronomy.inbox.pages.values import Value, values_of
from phronomy.inbox.pages.view import render
from phronomy.inbox.pages.waiting import path_of
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route
from phronomy.inbox.service import NO_GRANTS, allows_grants, check_grant, is_approval
from phronomy.records.decisions import PendingApproval
from phronomy.records.grants import MOST_USES, NEEDED, Grant, GrantScope, is_spent
from phronomy.stores.derived.grants import is_live
from phronomy.stores.derived.requests import Request

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

CHANNEL: Final = "inbox"

SCOPES: Final[Mapping[GrantScope, str]] = {
    "run": "This run",
    "thread": "This conversation",
    "principal": "All runs of the same requester",
    "tenant": "All runs",
}
"""What a grant is for, in words."""


class GrantsQuery(Listed):
    """Which grants are wanted: those that count, or also those that were revoked or used up in the last week."""

    tool: str | None = Field(default=None, max_length=200)
    agent: str | None = Field(default=None, max_length=200)
    show: Literal["all"] | None = None
    said: Literal["given", "revoked", "was_over"] | None = None

    @property
    def filters(self) -> dict[str, str]:
        return {name: value for name, value in super().filters.items() if name != "said"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantShown:
    """A grant as its row shows it. `args` are the values that it is for alone; `over` says why it does not count any more."""

    grant: Grant
    scope: str
    scope_path: str | None
    args: Value | None = field(repr=False)
    over: str
    revoke_path: str


def grant_shown(grant: Grant, now: float) -> GrantShown:
    """A grant as it is shown."""
    over = "revoked" if grant.revoked is not None else "used up" if is_spent(grant) else "its time is over"
    return GrantShown(
        grant=grant,
        scope={"run": "one run", "thread": "one conversation", "principal": "one requester", "tenant": "all runs"}[
            grant.scope
        ],
        scope_path=run_path(grant.run_id) if grant.run_id is not None else None,
        args=values_of(grant.json_text("args")) if grant.__dict__["args"] is not None else None,
        over="" if is_live(grant, now) else over,
        revoke_path=f"/grants/{grant.id}/revoke",
    )


async def grants(visit: Visit) -> Response:
    """The list of grants, newest first."""
    query = visit.query(GrantsQuery)
    store, now = visit.store, visit.store.clock()
    found = await store.agrants(agent=query.agent, tool=query.tool, all=query.show == "all")
    everywhere = len(found) if found or not query.filters else len(await store.agrants())
    return render(
        visit,
        "grants.html",
        here="/grants",
        query=query,
        rows=[grant_shown(each, now) for each in reversed(found)],
        unreadable=found.unreadable,
        everywhere=everywhere,
        tabs=[
            ("Those that count", query.address("/grants", show=None), query.show is None),
            ("With those of the last week", query.address("/grants", show="all"), query.show == "all"),
        ],
        without={name: path for name, path in query.without("/grants").items() if name != "show"},
        unfiltered="/grants?show=all" if query.show == "all" else "/grants",
    )


async def revoke(visit: Visit) -> Response:
    """Revoke a grant: from now on, no call uses it."""
    visit.inbox.limits.grant(visit.identity)
    form = visit.form()
    reason = (form.get("reason") or "").strip() or None
    id = visit.params["id"]
    found = await visit.store.agrants(all=True)
    if id not in {*(each.id for each in found), *(each.id for each in found.unreadable)}:
        raise Problem("not-found")
    was_there = await visit.store.arevoke(id, by=visit.identity.principal, reason=reason)
    said = "revoked" if was_there else "was_over"
    return RedirectResponse(visit.url(f"/grants?show=all&said={said}"), status_code=HTTPStatus.SEE_OTHER)


class GivenTerms(BaseModel):
    """What the form of a grant says."""

    scope: GrantScope = "run"
    exactly: bool = True
    condition: str | None = Field(default=None, max_length=200)
    uses: int | None = Field(default=None, ge=1, le=MOST_USES)
    until: date | None = None
    reason: str | None = Field(default=None, max_length=10_000)


async def grant_form(visit: Visit) -> Response:
    """The form of a grant for calls like that of a request."""
    try:
        found = await visit.store.arequest(visit.params["id"])
    except UnknownPending:
        return gone(visit)
    return await _form_page(visit, found, {}, {})


async def give(visit: Visit) -> Response:
    """Give the grant that the form says, once."""
    visit.inbox.limits.grant(visit.identity)
    form = visit.form()
    try:
        found = await visit.store.arequest(visit.params["id"])
    except UnknownPending:
        return gone(visit, [form.get("reason") or ""])
    typed = {name: form.get(name) or "" for name in ("scope", "exactly", "condition", "uses", "until", "reason")}
    terms, errors = terms_of(visit, found.approval, typed)
    if terms is None:
        return await _form_page(visit, found, typed, errors, HTTPStatus.UNPROCESSABLE_ENTITY)
    until = end_of(terms.until)
    key = scoped(visit.identity, "page-grants", read_key(form.needed("key")))
    digest = form.needed("digest")
    sent = body_digest(found.approval.id, digest, terms.model_dump(mode="json"))
    try:
        async with begun_once(visit.store, key, body=sent) as once:
            if once.made is None:
                await check_grant(visit.store, visit.identity, found.approval.id, digest)
                given = await visit.store.agrant_like(
                    found.approval.id,
                    digest=digest,
                    by=visit.identity.principal,
                    scope=terms.scope,
                    exactly=terms.exactly,
                    condition=terms.condition,
                    until=until,
                    uses=terms.uses,
                    channel=CHANNEL,
                    reason=terms.reason,
                )
                once.made = given.id
    except (GrantRefused, RequestExpired) as error:
        return await _form_page(visit, found, typed, {"": str(error)}, HTTPStatus.UNPROCESSABLE_ENTITY)
    return RedirectResponse(visit.url("/grants?said=given"), status_code=HTTPStatus.SEE_OTHER)


def terms_of(visit: Visit, item: PendingApproval, typed: Mapping[str, str]) -> tuple[GivenTerms | None, dict[str, str]]:
    """The terms of a form, or what is wrong at each field."""
    errors: dict[str, str] = {}
    scope = typed["scope"]
    if scope not in get_args(GrantScope):
        errors["scope"] = "Say what it is for."
    what = typed["exactly"]
    if what not in ("yes", "no", "condition"):
        errors["exactly"] = "Say for which values it counts."
    condition = typed["condition"].strip() or None
    if what == "condition" and condition is None:
        errors["condition"] = "Name the condition."
    uses = _whole(typed["uses"])
    if typed["uses"].strip() and (uses is None or not 1 <= uses <= MOST_USES):
        errors["uses"] = f"A whole number from 1 to {MOST_USES:,}."
    until = _day(typed["until"])
    if typed["until"].strip() and until is None:
        errors["until"] = "A day, as in 2027-01-31."
    elif until is not None and (end := end_of(until)) is not None and end.timestamp() <= visit.store.clock():
        errors["until"] = "This day is over. Give a later one."
    if (
        scope in NEEDED.keys() - {"run"} | {"tenant"}
        and not errors.keys() & {"uses", "until"}
        and (uses, until) == (None, None)
    ):
        errors["uses"] = "A grant for more than one run ends: give a number of calls, a day, or both."
    if errors:
        return None, errors
    return (
        GivenTerms.model_validate(
            {
                "scope": scope,
                "exactly": what == "yes",
                "condition": condition if what == "condition" else None,
                "uses": uses,
                "until": until,
                "reason": typed["reason"].strip() or None,
            }
        ),
        {},
    )


def _whole(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None


def _day(text: str) -> date | None:
    try:
        return datetime.strptime(text.strip(), "%Y-%m-%d").date()  # noqa: DTZ007  # a day has no zone
    except ValueError:
        return None


async def _form_page(
    visit: Visit, found: Request, typed: Mapping[str, str], errors: Mapping[str, str], status: int = 200
) -> Response:
    item = found.approval
    tool = visit.inbox.tool_of(item)
    review = tool.review if tool is not None else None
    scopes = {
        scope: words
        for scope, words in SCOPES.items()
        if {"thread": found.thread_id, "principal": item.requester}.get(scope, True) is not None
    }
    return render(
        visit,
        "grant.html",
        request_parts(visit, item),
        status=status,
        found=found,
        typed=typed,
        errors=errors,
        scopes=scopes,
        conditions=sorted(review.conditions) if review is not None else [],
        can=await allows_grants(visit.store, found),
        why_not=f"For such calls grants do not count: {NO_GRANTS}."
        if is_approval(item)
        else "Of this, nothing can be granted: it is no request to approve a call that runs here.",
        most=MOST_USES,
        key=new_key(),
        back_path=path_of(item.id),
        give_path=path_of(item.id, end="/grant"),
    )


GRANTS: Final = (
    Route(method="GET", path="/grants", handler=grants, scope="grant", page=True, query=GrantsQuery),
    Route(method="POST", path="/grants/{id}/revoke", handler=revoke, scope="grant", page=True),
    Route(method="GET", path="/requests/{id}/grant", handler=grant_form, scope=("grant", "read"), page=True),
    Route(method="POST", path="/requests/{id}/grant", handler=give, scope=("grant", "read"), page=True, acts=True),
)

"""The page of what waits: one row for each request, and filters that stand in the address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import BaseModel, Field, field_validator
from starlette.responses import Response

from phronomy.errors import StoreError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.in_brief import in_brief
from phronomy.inbox.pages.view import render
from phronomy.inbox.pages.words import WHY_NOT, heading
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route
from phronomy.inbox.service import COUNTED, Row, WaitingFilter, count_waiting, goes_together, is_risky, list_waiting
from phronomy.records.decisions import PendingApproval
from phronomy.rules.votes import governed, tallies
from phronomy.stores.derived.listing import read_cursor

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

ROWS: Final = 50
"""Rows of a page."""

_COUNTED: Final = 200
"""A list that looks at each request counts up to here: the page is asked for often, and to look at a thousand takes a second."""

_SOON: Final = 3_600.0
"""Seconds before its end from which a request is marked as urgent."""

_LINE: Final = 500
"""Characters of the line of a row. The page of the request has all."""

AGES: Final[Mapping[str, tuple[float, str]]] = {
    "1h": (3_600.0, "an hour"),
    "1d": (86_400.0, "a day"),
    "7d": (604_800.0, "a week"),
}
"""The ages that can be asked for: in seconds and in words."""

Age = Literal["1h", "1d", "7d"]


class WaitingQuery(BaseModel):
    """The filters of the list, as the address has them. What is empty is not there."""

    view: Literal["mine", "all"] = "mine"
    tool: str | None = Field(default=None, max_length=200)
    agent: str | None = Field(default=None, max_length=200)
    risk: str | None = Field(default=None, max_length=200)
    requester: str | None = Field(default=None, max_length=200)
    text: str | None = Field(default=None, max_length=500)
    older: Age | None = None
    expiring: Age | None = None
    after: str | None = Field(default=None, max_length=500)

    @field_validator("*", mode="before")
    @classmethod
    def _not_empty(cls, value: Any) -> Any:
        return (value.strip() or None) if isinstance(value, str) else value

    def wanted(self) -> WaitingFilter:
        """What is asked of the store."""
        return WaitingFilter(
            tool=self.tool,
            agent=self.agent,
            risk=self.risk,
            requester=self.requester,
            text=self.text,
            older_than=AGES[self.older][0] if self.older is not None else None,
            expires_within=AGES[self.expiring][0] if self.expiring is not None else None,
            mine=self.view == "mine",
        )

    @property
    def filters(self) -> dict[str, str]:
        """The filters that are set, each with its value."""
        names = ("tool", "agent", "risk", "requester", "text", "older", "expiring")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def address(self, **changes: str | None) -> str:
        """The part of the address after the path, with these changes and without a page."""
        values = {**({"view": "all"} if self.view == "all" else {}), **self.filters, **changes}
        found = urlencode({name: value for name, value in values.items() if value is not None})
        return f"?{found}" if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShown:
    """A row as it is shown. `ticks` says that it can be decided together with others; `why_not`, why this person cannot decide it."""

    item: PendingApproval
    agent: str
    thread: str | None
    path: str
    heading: str
    line: str
    votes: str
    soon: bool
    risky: bool
    ticks: bool
    why_not: str


def row_of(visit: Visit, row: Row, listed: str, now: float) -> RowShown:
    """A request as its row shows it."""
    item = row.waiting.approval
    answers = row.standing.answers
    tool = visit.inbox.tool_of(item)
    hidden = tool.redact if tool is not None else ()
    line = item.context or ("" if item.why == "question" else in_brief(item.json_text("args"), hidden))
    return RowShown(
        item=item,
        agent=item.agent or row.waiting.agent,
        thread=row.waiting.thread_id,
        path=path_of(item.id, listed),
        heading=heading(item),
        line=_cut(" ".join(line[: 2 * _LINE].split()), len(line) > 2 * _LINE),
        votes=votes_of(item),
        soon=is_soon(item, now),
        risky=is_risky(item),
        ticks=goes_together(item) and "approve" in answers and visit.may("decide"),
        why_not="" if answers else row.standing.said or WHY_NOT[row.standing.why_not or "not_offered"],
    )


def is_soon(item: PendingApproval, now: float) -> bool:
    """True if the time of a request is over soon."""
    return item.expires_at is not None and item.expires_at.timestamp() - now < _SOON


def _cut(line: str, more: bool) -> str:
    return f"{line[:_LINE]}…" if more or len(line) > _LINE else line


def path_of(pending_id: str, listed: str = "", end: str = "") -> str:
    """The path of a request's page, with the filters of the list from which somebody comes."""
    return f"/requests/{quote(pending_id, safe='')}{end}" + (f"?list={quote(listed, safe='')}" if listed else "")


def votes_of(item: PendingApproval, *, edited: bool = False) -> str:
    """How many votes there are of those that it takes; nothing where one person decides alone. Of edited values there is none."""
    tally = tallies(
        governed(item), () if edited else item.votes, requested_at=item.requested_at, requester=item.requester
    )
    told = [f"{each.counted} of {each.needed}" for each in tally if each.needed > 1 or item.votes]
    return ", ".join(told)


async def waiting(visit: Visit) -> Response:
    """The list."""
    query = visit.query(WaitingQuery)
    try:
        read_cursor(query.after, "p", float, int)
    except StoreError:
        raise Problem("bad-cursor") from None
    store, wanted = visit.store, query.wanted()
    page = await list_waiting(store, visit.identity, wanted, limit=ROWS, after=query.after)
    count = await count_waiting(store, visit.identity, wanted, most=_COUNTED if wanted.looks_closer else COUNTED)
    everywhere = await count_waiting(store, visit.identity, WaitingFilter()) if not page.rows else None
    listed, now = query.address(), store.clock()
    return render(
        visit,
        "waiting.html",
        here="/",
        query=query,
        rows=[row_of(visit, row, listed.removeprefix("?"), now) for row in page.rows],
        unreadable=page.unreadable,
        count=count,
        everywhere=everywhere,
        next=f"/{query.address(after=page.next)}" if page.next is not None else None,
        first=f"/{listed}" if query.after is not None else None,
        tabs=[
            ("For you", f"/{query.address(view=None)}", query.view == "mine"),
            ("All", f"/{query.address(view='all')}", query.view == "all"),
        ],
        without={name: f"/{query.address(**{name: None})}" for name in query.filters},
        unfiltered=f"/{'?view=all' if query.view == 'all' else ''}",
        quick=[
            (name, f"/{query.address(**change)}")
            for name, change in (("High risk", {"risk": "high"}), ("Expiring within a day", {"expiring": "1d"}))
            if not change.keys() & query.filters.keys()
        ],
        ages=AGES,
    )


async def next_after(visit: Visit, listed: str, pending_id: str) -> str | None:
    """The path of the next request of the list for this person, other than this one; None if there is none."""
    query = query_of(listed)
    page = await list_waiting(visit.store, visit.identity, query.model_copy(update={"view": "mine"}).wanted(), limit=2)
    other = next((row.waiting.approval for row in page.rows if row.waiting.approval.id != pending_id), None)
    return None if other is None else path_of(other.id, query.address().removeprefix("?"))


def query_of(listed: str) -> WaitingQuery:
    """The filters of a list, from the address of a request's page; none, if they are not those of a list."""
    try:
        return WaitingQuery.model_validate(dict(parse_qsl(listed[:2_000], max_num_fields=20)))
    except ValueError:
        return WaitingQuery()


WAITING: Final = (
    Route(method="GET", path="/", handler=waiting, scope="read", page=True, summary="What waits", query=WaitingQuery),
)

"""The page of what was decided: by whom, when, on which evidence, newest first; how often each person approves which tool; and the
trail as a file.

No store reads its trail backwards. So it is read in stretches of time that grow from the newest on, each of them once, until a page is
full or enough was looked at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field
from starlette.responses import Response

from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.api.audit import exported, records_of
from phronomy.inbox.cursors import Cursors
from phronomy.inbox.pages.records.listed import ROWS, Listed, begin_of, end_of
from phronomy.inbox.pages.records.runs import run_path
from phronomy.inbox.pages.view import render
from phronomy.inbox.pages.waiting import path_of
from phronomy.inbox.pages.words import DECIDED, named
from phronomy.inbox.routes import Route
from phronomy.records.audit import AuditRecord
from phronomy.records.decisions import DecisionKind
from phronomy.stores.derived.listing import audit_filter
from phronomy.stores.native import apart
from phronomy.stores.rows import AuditFilter, AuditRow

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit
    from phronomy.stores.base import Store

LOOKED: Final = 5_000
"""Records that are looked at for one page, and for the counts."""

COUNTED_DAYS: Final = 30
"""Days for which approvals are counted, unless the filters name a time."""

TOP: Final = 20
"""Rows of the counts."""

VOTED: Final[Mapping[DecisionKind, str]] = {
    "approve": "Voted for",
    "reject": "Voted against",
    "respond": "Voted for an answer",
}
"""What is said of a vote that others have to follow."""

_STRETCH: Final = 3_600.0
"""Seconds of the first stretch of time. Each one that follows is twice as long."""

Place = tuple[float, int]
"""The place of a record: its time and its number."""


class HistoryQuery(Listed):
    """Which records are wanted. Days are in UTC, and both are included."""

    person: str | None = Field(default=None, max_length=200)
    tool: str | None = Field(default=None, max_length=200)
    kind: DecisionKind | None = None
    what: Literal["votes", "refused", "grants"] | None = None
    run: str | None = Field(default=None, max_length=200)
    thread: str | None = Field(default=None, max_length=1_500)
    request: str | None = Field(default=None, max_length=200)
    since: date | None = None
    until: date | None = None
    after: str | None = Field(default=None, max_length=2_000)

    def in_store(self) -> AuditFilter:
        """The part that the store looks up."""
        return audit_filter(
            run_id=self.run,
            thread_id=self.thread,
            pending_id=self.request,
            since=begin_of(self.since),
            until=end_of(self.until),
        )

    def wants(self, record: AuditRecord) -> bool:
        """Whether a record matches the rest."""
        people = {each.id for each in (record.by, record.behalf_of) if each is not None}
        is_so = {"votes": record.vote, "refused": record.refused, "grants": record.grant is not None}
        return (
            (self.person is None or self.person in people)
            and self.tool in (None, record.tool_name)
            and self.kind in (None, record.kind)
            and (self.what is None or is_so[self.what])
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A record as its row shows it, with the paths of the request and of the run that it is about."""

    record: AuditRecord
    what: str
    request_path: str | None
    run_path: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How often one person, or a standing grant of theirs, has approved and rejected calls of one tool."""

    tool: str
    person: str
    approved: int
    by_grant: int
    rejected: int


def told(record: AuditRecord) -> Told:
    """A record as it is shown."""
    notes = {
        "did not count: this person may not decide it": record.refused,
        "one vote of several": record.vote,
        "checked by a worker": record.checked,
        "with changed values": record.edited,
        "by a standing grant": record.grant is not None,
    }
    what = "Tried to decide" if record.refused else VOTED.get(record.kind) if record.vote else DECIDED[record.kind]
    return Told(
        record=record,
        what=what or DECIDED[record.kind],
        request_path=path_of(record.pending_id) if record.pending_id is not None else None,
        run_path=run_path(record.branch_id),
        notes=tuple(note for note, is_so in notes.items() if is_so),
    )


async def history(visit: Visit) -> Response:
    """What was decided, newest first."""
    query = visit.query(HistoryQuery)
    cursors = Cursors(visit, "history", dict(query.filters))
    place = _place_in(cursors.read(query.after))
    rows: list[tuple[AuditRow, AuditRecord]] = []
    looked, last, more = 0, None, False
    async for row in newest_first(visit.store, query.in_store(), before=place):
        if len(rows) == ROWS or looked == LOOKED:
            more = True
            break
        looked, last = looked + 1, row
        record = AuditRecord.model_validate_json(row.body)
        if query.wants(record):
            rows.append((row, record))
    following = cursors.made(f"{last.at!r} {last.n}") if more and last is not None else None
    counts, all_counted = await counted(visit, query) if query.after is None else ([], True)
    return render(
        visit,
        "history.html",
        here="/history",
        query=query,
        rows=[told(record) for _, record in rows],
        kinds=DECIDED,
        counts=counts,
        all_counted=all_counted,
        days=None if query.since is not None or query.until is not None else COUNTED_DAYS,
        reached=datetime.fromtimestamp(last.at, UTC) if more and last is not None and len(rows) < ROWS else None,
        is_empty=looked == 0 and query.after is None and not await _any(visit.store),
        without=query.without("/history"),
        export=query.address("/audit"),
        next=query.address("/history", after=following) if following is not None else None,
        first=query.address("/history") if query.after is not None else None,
    )


async def counted(visit: Visit, query: HistoryQuery) -> tuple[list[Counted], bool]:
    """How often each person has approved calls of each tool, the most first; and whether all records were looked at."""
    wanted = query.in_store()
    if query.since is None and query.until is None:
        wanted = replace(wanted, since=visit.store.clock() - COUNTED_DAYS * 86_400.0)
    approved: Counter[tuple[str, str]] = Counter()
    by_grant: Counter[tuple[str, str]] = Counter()
    rejected: Counter[tuple[str, str]] = Counter()
    looked = 0
    async for row in newest_first(visit.store, wanted):
        if looked == LOOKED:
            break
        looked += 1
        record = AuditRecord.model_validate_json(row.body)
        # What a worker has checked stands there once more, and what was refused is nobody's decision.
        if record.by is None or record.tool_name is None or record.refused or record.checked or not query.wants(record):
            continue
        key = (record.tool_name, named(record.by))
        if record.kind == "approve":
            (approved if record.grant is None else by_grant)[key] += 1
        elif record.kind == "reject":
            rejected[key] += 1
    every = approved + by_grant + rejected
    found = [
        Counted(
            tool=tool,
            person=who,
            approved=approved[tool, who],
            by_grant=by_grant[tool, who],
            rejected=rejected[tool, who],
        )
        for (tool, who), _ in sorted(every.items(), key=lambda each: (-each[1], each[0]))[:TOP]
    ]
    return found, looked < LOOKED


async def newest_first(store: Store, wanted: AuditFilter, *, before: Place | None = None) -> AsyncIterator[AuditRow]:
    """The rows of the trail that the store finds for a filter, newest first; with `before`, those before that place."""
    first = await apart(store, store.select_audit, replace(wanted, limit=1))
    if not first:
        return
    # The clock may have been set back: what is newer than now is found as well.
    end = wanted.until if wanted.until is not None else math.inf
    end = min(end, before[0]) if before is not None else end
    oldest, length = wanted.since if wanted.since is not None else 0.0, _STRETCH
    begin = min(end, store.clock()) - length
    while True:
        begin = max(begin, oldest)
        rows = await _stretch(store, replace(wanted, since=begin, until=None if end == math.inf else end))
        for row in sorted(rows, key=_place, reverse=True):
            if before is None or _place(row) < before:
                yield row
        if begin <= oldest:
            return
        length *= 2
        end = math.nextafter(begin, -math.inf)
        begin = end - length


def _place(row: AuditRow) -> Place:
    return row.at, row.n


async def _stretch(store: Store, wanted: AuditFilter) -> list[AuditRow]:
    """All rows of a stretch of time."""
    found: list[AuditRow] = []
    most = wanted.limit
    assert most is not None, "it is read a batch at a time"
    while True:
        rows = await apart(store, store.select_audit, wanted)
        found += rows
        if len(rows) < most:
            return found
        wanted = replace(wanted, after=rows[-1].n)


async def _any(store: Store) -> bool:
    return bool(await apart(store, store.select_audit, AuditFilter(limit=1)))


def _place_in(text: str | None) -> Place | None:
    if text is None:
        return None
    at, _, n = text.partition(" ")
    return float(at), int(n)


async def audit(visit: Visit) -> Response:
    """The trail as a file: which part of it, in which form."""
    query = visit.query(HistoryQuery)
    return render(visit, "audit.html", here="/history", query=query, kinds=DECIDED, back=query.address("/history"))


async def audit_csv(visit: Visit) -> Response:
    """The trail as a table."""
    return exported(visit, _wanted(visit), "csv")


async def audit_ndjson(visit: Visit) -> Response:
    """The trail as lines of JSON."""
    return exported(visit, _wanted(visit), "ndjson")


def _wanted(visit: Visit) -> AsyncIterator[AuditRecord]:
    query = visit.query(HistoryQuery)
    return _matching(records_of(visit.store, query.in_store()), query)


async def _matching(records: AsyncIterator[AuditRecord], query: HistoryQuery) -> AsyncIterator[AuditRecord]:
    async for record in records:
        if query.wants(record):
            yield record


HISTORY: Final = (
    Route(method="GET", path="/history", handler=history, scope="audit", page=True, query=HistoryQuery),
    Route(method="GET", path="/audit", handler=audit, scope="audit", page=True, query=HistoryQuery),
    Route(
        method="GET",
        path="/audit.csv",
        handler=audit_csv,
        scope="audit",
        page=True,
        query=HistoryQuery,
        media="text/csv",
    ),
    Route(
        method="GET",
        path="/audit.ndjson",
        handler=audit_ndjson,
        scope="audit",
        page=True,
        query=HistoryQuery,
        media="application/x-ndjson",
    ),
)

"""The page of what was decided, and of the branches that somebody started: by whom, when, on which evidence, newest first; how often
each person approves which tool; and the trail as a file. The trail is read until a page is full, or enough was looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pydantic import Field
from starlette.responses import Response

from phronomy.debugger.stepping import CHANNEL
from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.api.audit import exported, records_of
from phronomy.inbox.api.runs import about_runs
from phronomy.inbox.cursors import Cursors
from phronomy.inbox.pages.records.listed import ROWS, Listed, begin_of, end_of
from phronomy.inbox.pages.records.runs import run_path
from phronomy.inbox.pages.records.versions import checkpoint_path
from phronomy.inbox.pages.view import render
from phronomy.inbox.pages.waiting import path_of
from phronomy.inbox.pages.words import DECIDED
from phronomy.inbox.routes import Route
from phronomy.inbox.service import named
from phronomy.inbox.trail import Entry, Place, changed_from, entries_back, is_by
from phronomy.observability.about import About
from phronomy.records.audit import AuditRecord
from phronomy.records.decisions import AuditKind
from phronomy.stores.derived.listing import audit_filter
from phronomy.stores.native import apart
from phronomy.stores.rows import AuditFilter, Branch

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit
    from phronomy.stores.base import Store

LOOKED: Final = 5_000
"""Records that are looked at for one page, and for the counts."""

COUNTED_DAYS: Final = 30
"""Days for which approvals are counted, unless the filters name a time."""

TOP: Final = 20
"""Rows of the counts."""

_A_LOOK: Final = 10
"""Records for which it counts to look whether a request stands in the place of one whose values were changed."""

VOTED: Final[Mapping[AuditKind, str]] = {
    "approve": "Voted for",
    "reject": "Voted against",
    "respond": "Voted for an answer",
}
"""What is said of a vote that others have to follow."""

Kind: TypeAlias = AuditKind | Literal["edited"]
"""A kind of record that is looked for. `"edited"` is to approve other values than those that were shown."""

KINDS: Final[Mapping[Kind, str]] = {
    "approve": DECIDED["approve"],
    "edited": "Approved with changes",
    **{kind: word for kind, word in DECIDED.items() if kind != "approve"},
    "supersede": "Withdrawn by a later run",
    "edit": "Changed the state of a graph",
    "fork": "Forked a run",
    "message": "Sent a message to a run",
    "restore": "Went back in a run",
}
"""What the kinds are called where one of them is chosen."""


class HistoryQuery(Listed):
    """Which records are wanted. Days are in UTC, and both are included."""

    person: str | None = Field(default=None, max_length=200)
    tool: str | None = Field(default=None, max_length=200)
    kind: Kind | None = None
    what: Literal["votes", "refused", "grants", "stops"] | None = None
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
        """Whether a record matches the rest, as far as it says so itself."""
        people = {each.id for each in (record.by, record.behalf_of) if each is not None}
        is_so = {"votes": record.vote, "refused": record.refused, "grants": record.grant is not None}
        is_so["stops"] = _is_stop(record)
        return (
            (self.person is None or self.person in people)
            and self.tool in (None, record.tool_name)
            and ("approve" if self.kind == "edited" else self.kind) in (None, record.kind)
            and (self.what is None or is_so[self.what])
        )

    def shows(self, entry: Entry) -> bool:
        """True if a step has a row. To step through a run approves of nothing: such stops stand there if they are asked for."""
        return self.what == "stops" or not _is_stop(entry.decision)

    async def finds(self, store: Store, records: Sequence[AuditRecord]) -> bool:
        """Whether the records of a step match, by one of them."""
        if not any(self.wants(record) for record in records):
            return False
        return self.kind != "edited" or records[0].edited or await _changed_from(store, records) is not None

    def costs(self, entry: Entry) -> int:
        """How many records a look at a step counts for."""
        return _A_LOOK if self.kind == "edited" and entry.decision.policy is not None else 1


def _is_stop(record: AuditRecord) -> bool:
    """True if a record is of a stop in a debugger."""
    return record.why == "breakpoint" and record.channel == CHANNEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A step as its row shows it, with the paths of the request and of the run that it is about.

    `record` is what somebody did, and `last` what it came to. `before_path` leads to the request whose values were changed, if
    another request was put in its place. `from_path` leads to the checkpoint at which a branch was started.
    """

    record: AuditRecord
    last: AuditRecord
    what: str
    request_path: str | None
    before_path: str | None
    run_path: str
    from_path: str | None
    notes: tuple[str, ...]
    about: About


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How often one person, or a standing grant of theirs, has approved and rejected calls of one tool."""

    tool: str
    person: str
    approved: int
    by_grant: int
    rejected: int


async def told(store: Store, entry: Entry, run: About) -> Told:
    """A step as it is shown, with what its run is about."""
    record, last = entry.decision, entry.last
    before = await _changed_from(store, entry.records)
    notes = {
        "did not count: this person may not decide it": record.refused,
        "one vote of several": last.vote,
        "checked by a worker": any(each.checked for each in entry.records),
        "by a standing grant": record.grant is not None,
        "with a changed state": record.kind == "fork" and record.edited,
    }
    changed = ", with changes" if entry.edited or before is not None else ""
    if record.refused:
        what = "Tried to decide"
    elif last.vote:
        what = f"{VOTED.get(record.kind, DECIDED[record.kind])}{changed}"
    elif record.why == "breakpoint" and record.kind == "approve":
        what = f"Let go on{changed}"
    else:
        what = KINDS["edited"] if changed else DECIDED[record.kind]
    about = last.pending_id if record.kind != "edit" else None  # an edit of a state is of a checkpoint, by its id
    return Told(
        record=record,
        last=last,
        what=what,
        request_path=path_of(about) if about is not None else None,
        before_path=path_of(before) if before is not None else None,
        run_path=run_path(record.branch_id),
        from_path=checkpoint_path(record.run_id, record.checkpoint_id) if record.kind in ("fork", "restore") else None,
        notes=tuple(note for note, is_so in notes.items() if is_so),
        about=run,
    )


async def _abouts(visit: Visit, entries: Sequence[Entry]) -> dict[str, About]:
    """The subjects of the runs of these steps, by their ids, for people who may read runs. Of a run that is deleted nobody knows."""
    records = {entry.decision.run_id: entry.decision for entry in entries} if visit.may("read") else {}
    runs = [Branch(id=id, run_id=id, thread_id=each.thread_id, agent=each.agent) for id, each in records.items()]
    return await about_runs(visit, runs, {}) if runs else {}


async def _changed_from(store: Store, records: Sequence[AuditRecord]) -> str | None:
    """The request whose values were changed before what these records say was approved; None if there is none."""
    first, last = records[0], records[-1]
    if first.pending_id != last.pending_id:
        return first.pending_id
    # Only where several people decide, an edit puts another request in the place of the first one.
    may = last.kind == "approve" and last.policy is not None and last.pending_id is not None and not last.refused
    return await changed_from(store, last.pending_id or "") if may else None


async def history(visit: Visit) -> Response:
    """What was decided, newest first."""
    query = visit.query(HistoryQuery)
    cursors = Cursors(visit, "history", dict(query.filters))
    place = _place_in(cursors.read(query.after))
    rows: list[Entry] = []
    looked, last, more = 0, None, False
    who = visit.history_of
    async for entry in entries_back(visit.store, query.in_store(), before=place):
        if len(rows) == ROWS or looked >= LOOKED:
            more = True
            break
        looked, last = looked + query.costs(entry), entry
        if is_by(entry.decision, who) and query.shows(entry) and await query.finds(visit.store, entry.records):
            rows.append(entry)
    following = cursors.made(f"{last.place[0]!r} {last.place[1]}") if more and last is not None else None
    counts, all_counted = await counted(visit, query) if query.after is None and who is None else ([], True)
    about = await _abouts(visit, rows)
    return render(
        visit,
        "history.html",
        here="/history",
        query=query,
        own=who is not None,
        rows=[await told(visit.store, entry, about.get(entry.decision.run_id, About())) for entry in rows],
        kinds=KINDS,
        counts=counts,
        all_counted=all_counted,
        days=None if query.since is not None or query.until is not None else COUNTED_DAYS,
        reached=datetime.fromtimestamp(last.place[0], UTC) if more and last is not None and len(rows) < ROWS else None,
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
    async for entry in entries_back(visit.store, wanted):
        if looked >= LOOKED:
            break
        looked, record = looked + query.costs(entry), entry.decision
        # A refused decision is nobody's, and letting a run go on at a breakpoint approves of nothing.
        if record.by is None or record.tool_name is None or record.refused or record.why == "breakpoint":
            continue
        if not await query.finds(visit.store, entry.records):
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
    return render(
        visit, "audit.html", here="/history", own=False, query=query, kinds=KINDS, back=query.address("/history")
    )


async def audit_csv(visit: Visit) -> Response:
    """The trail as a table."""
    return exported(visit, _wanted(visit), "csv")


async def audit_ndjson(visit: Visit) -> Response:
    """The trail as lines of JSON."""
    return exported(visit, _wanted(visit), "ndjson")


def _wanted(visit: Visit) -> AsyncIterator[AuditRecord]:
    query = visit.query(HistoryQuery)
    return _matching(visit.store, records_of(visit.store, query.in_store()), query)


async def _matching(
    store: Store, records: AsyncIterator[AuditRecord], query: HistoryQuery
) -> AsyncIterator[AuditRecord]:
    async for record in records:
        if await query.finds(store, (record,)):
            yield record


HISTORY: Final = (
    Route(
        method="GET",
        path="/history",
        handler=history,
        scope="audit",
        own=("read", "decide"),
        page=True,
        query=HistoryQuery,
    ),
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

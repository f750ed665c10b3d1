"""The audit trail in the API: a page of it as JSON, or all of it as CSV or as lines of JSON, which are sent while they are read."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from starlette.responses import Response, StreamingResponse

from phronomy.foundation.json_text import canonical
from phronomy.inbox.api import inputs, schemas
from phronomy.inbox.api.requests import BASE, maybe, paged
from phronomy.inbox.cursors import Cursors
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route
from phronomy.inbox.trail import is_by
from phronomy.records.audit import AuditRecord
from phronomy.stores.derived.listing import audit_filter, record_of
from phronomy.stores.native import apart

if TYPE_CHECKING:
    from phronomy.inbox.auth.identity import Scope
    from phronomy.inbox.visit import Visit
    from phronomy.stores.base import Store
    from phronomy.stores.rows import AuditFilter

_COLUMNS: Final = tuple(schemas.AuditRow.model_fields)
_SEPARATORS: Final = ",;|\t\r\n"
"""What a spreadsheet may take for the end of a cell, by the language that it is set to, whatever is in quotes."""

_FORMULA: Final = re.compile(
    rf"(?:\A|(?<=[^\s{_SEPARATORS}\"'])(?=[\s{_SEPARATORS}\"']))([\s{_SEPARATORS}\"']*)([=+\-@\uff1d\uff0b\uff0d\uff20])"
)
"""Where a cell begins, or what a spreadsheet may take for one, that it would read as a formula (CWE-1236); also in full width."""

_BATCH: Final = 500

_LOOKED: Final = 5_000
"""Records that are looked at for one page."""


async def audit(visit: Visit) -> Response:
    """The audit trail: of everybody, or what somebody did themselves who may not read all of it."""
    query = visit.query(inputs.AuditQuery)
    for name, at in (("since", query.since), ("until", query.until)):
        if at is not None and at.utcoffset() is None:
            raise Problem("invalid", "A time has a time zone.", errors=[{"pointer": f"/{name}", "detail": "no zone"}])
    wanted = audit_filter(
        run_id=query.run,
        thread_id=query.thread,
        pending_id=query.request,
        since=query.since,
        until=query.until,
    )
    match query.format or _accepted(visit):
        case "csv" | "ndjson" as form:
            records = records_of(visit.store, wanted)
            return exported(visit, (each async for each in records if is_by(each, visit.history_of)), form)
        case _:
            return await _page(visit, query, wanted)


async def _page(visit: Visit, query: inputs.AuditQuery, wanted: AuditFilter) -> Response:
    cursors = Cursors(visit, "audit", query.model_dump(mode="json", exclude={"limit", "cursor", "format"}))
    place = cursors.read(query.cursor)
    records, following = await _found(visit, wanted, query.limit, None if place is None else int(place))
    items = tuple(row_of(each) for each in records)
    return paged(visit, schemas.AuditPage(items=items, next=cursors.made(following)))


async def _found(
    visit: Visit, wanted: AuditFilter, most: int, after: int | None
) -> tuple[list[AuditRecord], str | None]:
    """The records after a place that this person may see, and the place after them; None at the end."""
    store, who = visit.store, visit.history_of
    batch = most + 1 if who is None else _BATCH
    found: list[AuditRecord] = []
    looked, last = 0, after
    while looked < _LOOKED:
        rows = await apart(store, store.select_audit, replace(wanted, after=after, limit=batch))
        for row in rows:
            if is_by(record := record_of(row), who):
                if len(found) == most:
                    return found, str(last)
                found.append(record)
            last = row.n
        if len(rows) < batch:
            return found, None
        looked, after = looked + len(rows), last
    return found, str(last)


def _accepted(visit: Visit) -> str:
    """The form that the header Accept asks for, where the query names none."""
    given = visit.request.headers.get("accept", "")
    types = [each.partition(";")[0].strip().lower() for each in given.split(",")]
    return "csv" if types[0] == "text/csv" else "ndjson" if types[0] == "application/x-ndjson" else "json"


def exported(visit: Visit, records: AsyncIterator[AuditRecord], form: Literal["csv", "ndjson"]) -> Response:
    """The records as a file, which is sent while they are read, and is cut off once whoever gets it may not read the trail any more."""
    batches = _batches(visit, records, "audit" if visit.history_of is None else "decide")
    if form == "csv":
        return _file(_csv(batches), "text/csv; charset=utf-8; header=present", "audit.csv")
    return _file(_ndjson(batches), "application/x-ndjson", "audit.ndjson")


def records_of(store: Store, wanted: AuditFilter) -> AsyncIterator[AuditRecord]:
    """The records of the trail that a filter wants, oldest first."""
    return store.aaudit(
        run_id=wanted.run_id,
        thread_id=wanted.thread_id,
        pending_id=wanted.pending_id,
        since=wanted.since,
        until=wanted.until,
    )


def _file(lines: AsyncIterator[str], media: str, name: str) -> Response:
    # The name is fixed, so that no text of anybody's gets into the header.
    return StreamingResponse(lines, media_type=media, headers={"Content-Disposition": f'attachment; filename="{name}"'})


async def _csv(batches: AsyncIterator[list[AuditRecord]]) -> AsyncIterator[str]:
    yield _line(_COLUMNS)
    async for batch in batches:
        yield "".join(_line(cells_of(each)) for each in batch)


async def _ndjson(batches: AsyncIterator[list[AuditRecord]]) -> AsyncIterator[str]:
    async for batch in batches:
        yield "".join(f"{row_of(each).model_dump_json()}\n" for each in batch)


async def _batches(visit: Visit, records: AsyncIterator[AuditRecord], scope: Scope) -> AsyncIterator[list[AuditRecord]]:
    """The trail, some hundred records at a time: an event loop that sends single lines does nothing else.

    Before each of them it is looked whether it may still be sent. Raises `CutOff`.
    """
    batch: list[AuditRecord] = []
    async for record in records:
        batch.append(record)
        if len(batch) == _BATCH:
            await visit.check_still(scope)
            yield batch
            batch = []
    if batch:
        await visit.check_still(scope)
        yield batch


def _line(cells: tuple[str, ...]) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerow([cell(each) for each in cells])
    return text.getvalue()


def cell(text: str) -> str:
    """A cell of a table that no spreadsheet takes for a formula, whatever its separator: with a quote before what looks like one."""
    safe = _FORMULA.sub(_quoted, text)
    return f"'{safe}" if text[:1] in ("\t", "\r", "\n") and text[:1] else safe


def _quoted(found: re.Match[str]) -> str:
    before, sign = found.groups()
    is_begin = found.start() == 0 or any(each in _SEPARATORS for each in before)
    return f"{before}'{sign}" if is_begin else found[0]


def cells_of(record: AuditRecord) -> tuple[str, ...]:
    """The cells of a record, in the order of the columns: people by their ids."""
    row = row_of(record)
    values = row.model_dump(mode="json") | {
        "by": row.by.id if row.by is not None else None,
        "behalf_of": row.behalf_of.id if row.behalf_of is not None else None,
    }
    return tuple(_told(values[name]) for name in _COLUMNS)


def _told(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return canonical(value) if value else ""
    return "" if value is None else str(value)


def row_of(record: AuditRecord) -> schemas.AuditRow:
    """A record of the trail. The idempotency key is left out: it is the business of whoever made it."""
    plain = {
        name: getattr(record, name) for name in _COLUMNS if name not in ("by", "behalf_of")
    }  # the same names in both
    return schemas.AuditRow(by=maybe(record.by), behalf_of=maybe(record.behalf_of), **plain)


AUDIT: Final = (
    Route(
        method="GET",
        path=f"{BASE}/audit",
        handler=audit,
        scope="audit",
        own=("decide",),
        summary="The audit trail: a page as JSON, or all of it as text/csv or application/x-ndjson",
        query=inputs.AuditQuery,
        answer=schemas.AuditPage,
        problems=("bad-cursor", "invalid"),
    ),
)

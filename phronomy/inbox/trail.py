"""The audit trail as people read it: newest first, with one entry for each step.

No store reads its trail backwards. So it is read in stretches of time that grow from the newest on, each of them once.

An edit is one step, and has up to three records of one time: the decision on what was shown, that of the worker who checked it, and, if
others have to follow, the vote on the request that stands in its place with the new values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from phronomy.foundation.dataclasses import dataclass
from phronomy.records.audit import AuditRecord
from phronomy.stores.derived.listing import record_of
from phronomy.stores.native import apart
from phronomy.stores.rows import AuditFilter, AuditRow

if TYPE_CHECKING:
    from phronomy.records.principals import Principal
    from phronomy.stores.base import Store

_STRETCH: Final = 3_600.0
"""Seconds of the first stretch of time. Each one that follows is twice as long."""

Place = tuple[float, int]
"""The place of a record: its time and its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A step of the trail: its records, in the order in which they were written, and the place of the last one."""

    place: Place
    records: tuple[AuditRecord, ...]

    @property
    def decision(self) -> AuditRecord:
        """The record of what somebody did."""
        return self.records[0]

    @property
    def last(self) -> AuditRecord:
        """The record of what it came to: of the worker's check, or of the vote with the new values."""
        return self.records[-1]

    @property
    def edited(self) -> bool:
        """Whether an approval changed values."""
        return self.decision.kind == "approve" and self.decision.edited


def is_by(record: AuditRecord, who: Principal | None) -> bool:
    """True if a record is of a step of this person; None: of anybody."""
    by = record.by
    return who is None or (by is not None and (by.kind, by.id) == (who.kind, who.id))


def newest_first(entries: Iterable[Entry]) -> list[Entry]:
    """The entries, the last one first."""
    return sorted(entries, key=lambda each: each.place, reverse=True)


async def entries_back(store: Store, wanted: AuditFilter, *, before: Place | None = None) -> AsyncIterator[Entry]:
    """The entries of the records that the store finds for a filter, newest first; with `before`, those before that place."""
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
        rows.sort(key=_place, reverse=True)
        # What belongs together has one time, so no stretch and no page parts it.
        for _, together in itertools.groupby(rows, key=lambda row: row.at):
            for entry in newest_first(entries_of(reversed([*together]))):
                if before is None or entry.place < before:
                    yield entry
        if begin <= oldest:
            return
        length *= 2
        end = math.nextafter(begin, -math.inf)
        begin = end - length


def entries_of(rows: Iterable[AuditRow]) -> list[Entry]:
    """The steps of which these records are, which are of one time and in the order in which they were written."""
    found: dict[int, Entry] = {}
    begun: dict[tuple[object, ...], list[int]] = {}  # by what all records of a step have in common
    for n, row in enumerate(rows):
        record = record_of(row)
        same = (record.branch_id, record.path, record.kind, record.tool_name, record.by and record.by.id)
        steps = begun.setdefault(same, [])
        step = next((each for each in steps if _goes_on(found[each], record)), None)
        if step is None:
            found[n] = Entry(place=_place(row), records=(record,))
            steps.append(n)
        else:
            found[step] = Entry(place=_place(row), records=(*found[step].records, record))
    return [*found.values()]


def _goes_on(step: Entry, record: AuditRecord) -> bool:
    """Whether a record is of a step that others have begun."""
    is_same = step.decision.pending_id == record.pending_id
    if record.checked and not record.refused:
        return is_same and not step.last.checked and not step.last.vote
    puts_on = record.vote and record.edited and not step.last.vote
    return puts_on and not is_same and step.edited and not step.decision.refused


async def changed_from(store: Store, pending_id: str) -> str | None:
    """The id of the request whose values somebody changed, so that this one was put in its place; None if there is none.

    It is found in the trail, which stays when the run is deleted.
    """
    for row in await apart(store, store.select_audit, AuditFilter(pending_id=pending_id)):
        record = record_of(row)
        if not (record.vote and record.edited):
            continue
        around = AuditFilter(run_id=record.run_id, since=row.at, until=row.at)
        for entry in entries_of(await apart(store, store.select_audit, around)):
            if record in entry.records and entry.decision.pending_id != pending_id:
                return entry.decision.pending_id
    return None


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

"""The reads of a store: pages of pending approvals and checkpoints, the audit trail, one checkpoint, waiting for a run."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypedDict, TypeVar

from phronomy.errors import CheckpointError, CheckpointNotFound, StoreError, UnreadableRow, WaitTimeout
from phronomy.foundation.checks import is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import clean
from phronomy.foundation.lazy_modules import asyncio
from phronomy.foundation.quoting import kept_id, quoted, quoted_id
from phronomy.foundation.unreadable import unreadable_row
from phronomy.records.audit import AuditRecord, unreadable_record
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import PendingApproval, call_digest
from phronomy.records.record import Time, reader_of
from phronomy.stores.derived.changes import latest_ended, latest_open, not_found
from phronomy.stores.derived.kept_texts import alineage, kept_by
from phronomy.stores.log.kept_members import Texts, nothing_kept, whole_request
from phronomy.stores.log.log import last_of, replay, up_to
from phronomy.stores.native import apart
from phronomy.stores.rows import (
    EARLIEST,
    ENDED,
    LATEST,
    NO_TIME,
    AuditFilter,
    AuditRow,
    Branch,
    BranchFilter,
    CheckpointFilter,
    CheckpointRow,
    DamagedBranch,
    Entry,
    Lineage,
    PendingFilter,
    PendingRow,
)

if TYPE_CHECKING:
    from phronomy.stores.base import Store

T = TypeVar("T")
R = TypeVar("R")


# A run that ends at once is seen at once; one that waits for a human for a day costs two small reads a second.
PATIENCE: Final = (0.01, 0.5)
"""Seconds between two looks at a run that is waited for: at first, and at most."""

# Small enough that Redis, which does nothing else while a script runs, is soon free again; large enough that the way
# there does not count.
BATCH: Final = 500
"""Lines of the audit trail, and requests, that are read at a time."""


class Wanted(TypedDict, total=False):
    """Which pending approvals are wanted, as `Store.pending` says."""

    run_id: str | None
    thread_id: str | None
    agent: str | None
    tool: str | None
    label: str | None
    risk: str | None
    older_than: float | None
    newer_than: float | None
    asks_human: bool | None


class Kept(TypedDict, total=False):
    """Which checkpoints are wanted, as `Store.list` says, and which page of them."""

    run_id: str | None
    thread_id: str | None
    agent: str | None
    label: str | None
    labeled: bool
    limit: int | None
    after: str | None


class Told(TypedDict, total=False):
    """Which lines of the audit trail are wanted, as `Store.audit` says."""

    run_id: str | None
    thread_id: str | None
    pending_id: str | None
    since: datetime | float | None
    until: datetime | float | None


class Page(list[T], Generic[T]):
    """A page of a list. `next` is the value to pass as `after` for the next page; it is None on the last page.

    `unreadable` are the rows of this page that are damaged, or were written by a later release. They are not among the items, so
    a page can have fewer items than its limit, or none, and still have a `next`.
    """

    def __init__(self, items: list[T], next: str | None = None, unreadable: Iterable[UnreadableRow] = ()) -> None:
        super().__init__(items)
        self.next = next
        self.unreadable: tuple[UnreadableRow, ...] = tuple(unreadable)


class Listing(tuple[T, ...], Generic[T]):
    """A list as a whole. `unreadable` are the rows that are damaged, or were written by a later release: they are not in it."""

    unreadable: tuple[UnreadableRow, ...]

    def __new__(cls, items: Iterable[T] = (), unreadable: Iterable[UnreadableRow] = ()) -> Self:
        """Make a list of these items."""
        made = super().__new__(cls, items)
        made.unreadable = tuple(unreadable)
        return made


def read_each(rows: Iterable[R], read: Callable[[R], T]) -> tuple[list[T], list[UnreadableRow]]:
    """The items in these rows, in their order, and the errors of the rows that cannot be read."""
    # A damaged row must not hide the others, from those who decide least of all. Nor is it left out in silence: whoever
    # lists is told which it is.
    found: list[T] = []
    failed: list[UnreadableRow] = []
    for row in rows:
        try:
            found.append(read(row))
        except UnreadableRow as error:
            failed.append(error)
    return found, failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A pending approval and its place: pass `checkpoint_id` to `agent.resume`.

    `label` is the label of its run or fork.
    """

    approval: PendingApproval
    checkpoint_id: str
    run_id: str
    branch_id: str
    thread_id: str | None
    agent: str
    label: str | None = None

    @classmethod
    def of(cls, row: PendingRow, kept: Texts = nothing_kept) -> Waiting:
        """Make the record from a row of a store; `kept` gives the texts that it names. Raises `UnreadableRow`."""
        try:
            # By the validator itself: the method around it takes 0.7 us, and a row 8 in all.
            approval: PendingApproval = PendingApproval.__pydantic_validator__.validate_json(whole_request(row, kept))
            # A decision is bound to the digest. A row that tells of another tool, or of other arguments, would have
            # somebody approve what they were not shown.
            if approval.digest != call_digest(approval.tool, approval.__dict__["args"]):
                raise ValueError("the digest of a request is not that of its tool and arguments")
        except (ValueError, TypeError, AttributeError, CheckpointError):  # its text would quote the row
            raise unreadable_row(
                "request",
                row.pending_id,
                called="pending",
                so=", so nobody can decide it",
                run_id=row.run_id,
                branch_id=row.branch_id,
            ) from None
        # 0.7 us, and 1.4 by its `__init__` with seven names.
        waiting = object.__new__(cls)
        for put, value in zip(_PUTS, (approval, *_PLACE(row)), strict=True):
            put(waiting, value)
        return waiting


_PLACE: Final = attrgetter(*[field for field in Waiting.__dataclass_fields__ if field != "approval"])
_PUTS: Final = [getattr(Waiting, field).__set__ for field in Waiting.__dataclass_fields__]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """A checkpoint in a list. `store.load(info.id)` returns the whole checkpoint."""

    id: str
    label: str | None
    created_at: datetime
    run_id: str
    branch_id: str
    thread_id: str | None
    agent: str

    @classmethod
    def of(cls, row: CheckpointRow) -> CheckpointInfo:
        """Make the record from a row of a store. Raises `UnreadableRow`."""
        try:
            # The one value that is read out of a body: each row says it itself, whatever else it leaves to the rows
            # before it. A column for it would be one more in every row of the log.
            created_at = reader_of(Time).validate_strings(json.loads(row.body)["created_at"])
        except (ValueError, LookupError, TypeError):
            raise unreadable_row("checkpoint", row.checkpoint_id, run_id=row.run_id, branch_id=row.branch_id) from None
        return cls(
            id=row.checkpoint_id,
            label=row.label,
            created_at=created_at,
            run_id=row.run_id,
            branch_id=row.branch_id,
            thread_id=row.thread_id,
            agent=row.agent,
        )


def pending_filter(
    store: Store,
    *,
    run_id: str | None = None,
    thread_id: str | None = None,
    agent: str | None = None,
    tool: str | None = None,
    label: str | None = None,
    risk: str | None = None,
    older_than: float | None = None,
    newer_than: float | None = None,
    newest: bool = False,
) -> PendingFilter:
    """The filter of these values; the ages are in seconds. Raises `StoreError` for what cannot be meant."""
    return PendingFilter(
        facets=texts(run=run_id, thread=thread_id, agent=agent, tool=tool, label=label, risk=risk),
        since=ago(store, "newer_than", newer_than),
        until=ago(store, "older_than", older_than),
        newest=newest,
    )


def pending_page(
    store: Store, wanted: Wanted, *, newest: bool = False, limit: int | None = None, after: str | None = None
) -> Page[Waiting]:
    """A page of pending approvals. Raises `StoreError` for a limit or a cursor that is none."""
    # The ages become times once, here: a page that is asked for later would take another moment as now.
    found, asks_human = _split(store, wanted, newest=newest)
    # One row more than asked for is read, so that the last page knows that it is the last: a `next` that leads to an
    # empty page is a promise of nothing.
    found = replace(found, after=read_cursor(after, "p", float, int), limit=one_more(limit))
    rows = store.select_pending(found) if asks_human is None else [*_asking(store, found, asks_human)]
    kept = rows[:limit]
    last = kept[-1] if len(rows) > len(kept) else None
    texts = kept_by(store)
    items, unreadable = read_each(kept, lambda row: Waiting.of(row, texts))
    following = cursor("p", last.requested_at, last.n) if last is not None and leads_on(last, found) else None
    return Page(items, following, unreadable)


def leads_on(row: PendingRow, wanted: PendingFilter) -> bool:
    """True if the place of a row leads to those behind it: rows without a time are the last, and none is before another."""
    return wanted.newest or row.requested_at < NO_TIME


def pending_rows(store: Store, *, run_id: str | None = None, thread_id: str | None = None) -> list[PendingRow]:
    """As `Store.pending_rows`. A row that cannot be read is given as it is."""
    rows, kept = store.select_pending(pending_filter(store, run_id=run_id, thread_id=thread_id)), kept_by(store)
    found: list[PendingRow] = []
    for row in rows:
        try:
            found.append(replace(row, body=whole_request(row, kept)))
        except (ValueError, TypeError, AttributeError, CheckpointError):
            found.append(row)
    return found


def count_pending(store: Store, wanted: Wanted, *, most: int | None = None) -> int:
    """The number of pending approvals, up to `most` (None: all)."""
    found, asks_human = _split(store, wanted)
    if asks_human is None:
        count = store.count_pending(found)
        return count if most is None else min(count, most)
    return sum(1 for _ in _asking(store, replace(found, limit=most), asks_human))


def _split(store: Store, wanted: Wanted, *, newest: bool = False) -> tuple[PendingFilter, bool | None]:
    """The filter of these values, and the one value that no index of a store knows. Raises `StoreError`."""
    given: dict[str, Any] = {**wanted}
    asks_human = given.pop("asks_human", None)
    if asks_human is not None and not isinstance(asks_human, bool):
        raise StoreError(f"asks_human is True, False or None, not {quoted(asks_human)}")
    return pending_filter(store, newest=newest, **given), asks_human


def _asking(store: Store, wanted: PendingFilter, asks_human: bool) -> Iterator[PendingRow]:
    """The rows of the requests that wait for a human, or of those that do not, read a part at a time; `limit` at most."""
    most, place = wanted.limit, wanted.after
    size = BATCH if most is None else min(most, BATCH)
    found = 0
    while True:
        rows = store.select_pending(replace(wanted, after=place, limit=size))
        for row in rows:
            if _asks_human(store, row) == asks_human:
                yield row
                found += 1
                if found == most:
                    return
        if len(rows) < size or not leads_on(rows[-1], wanted):
            return
        # Where few rows of the first part were wanted, those that are may stand far behind.
        place, size = (rows[-1].requested_at, rows[-1].n), min(2 * size, BATCH)


def _asks_human(store: Store, row: PendingRow) -> bool:
    """Whether a request waits for a human. Only what is a trigger is read for that: a text in a body has its quotes escaped."""
    try:
        return '"trigger":{' not in row.body or Waiting.of(row, kept_by(store)).approval.asks_human
    except (TypeError, UnreadableRow):  # somebody is to see that it is damaged
        return True


def damage_of(store: Store, branches: Iterable[Branch]) -> dict[str, str]:
    """The runs and forks that cannot be read, by the ids of their branches, with what is wrong. Those that have ended are not read."""
    found: dict[str, str] = {}
    for branch in branches:
        if branch.status in ENDED and not isinstance(
            branch, DamagedBranch
        ):  # its log is not needed any more to carry it on
            continue
        try:
            store.head(branch.id)
        except CheckpointNotFound:
            if isinstance(branch, DamagedBranch):  # its id is damaged; else it was deleted meanwhile
                found[branch.id] = "the row of this branch is damaged, or was written by a later release"
        except (CheckpointError, StoreError) as error:
            found[branch.id] = str(error)
    return found


def checkpoint_page(
    store: Store,
    *,
    run_id: str | None = None,
    thread_id: str | None = None,
    agent: str | None = None,
    label: str | None = None,
    labeled: bool = False,
    limit: int | None = None,
    after: str | None = None,
) -> Page[CheckpointInfo]:
    """A page of checkpoints. Raises `StoreError` for a limit or a cursor that is none."""
    # Ids are cleaned as they were when they were written (half of a surrogate pair became U+FFFD), so the same text
    # finds what was stored under it.
    given = texts(run_id=run_id, thread_id=thread_id, agent=agent, label=label)
    wanted = CheckpointFilter(**given, labeled=labeled)
    place = read_cursor(after, "c", int)
    rows = store.select_checkpoints(replace(wanted, after=place and place[0], limit=one_more(limit)))
    kept = rows[:limit]
    last = kept[-1] if len(rows) > len(kept) else None
    items, unreadable = read_each(kept, CheckpointInfo.of)
    return Page(items, cursor("c", last.n) if last else None, unreadable)


def audit_filter(
    *,
    run_id: str | None = None,
    thread_id: str | None = None,
    pending_id: str | None = None,
    since: datetime | float | None = None,
    until: datetime | float | None = None,
) -> AuditFilter:
    """The filter of these values. Raises `StoreError` for what cannot be meant."""
    given = texts(run_id=run_id, thread_id=thread_id, pending_id=pending_id)
    return AuditFilter(**given, since=moment("since", since), until=moment("until", until), limit=BATCH)


def audit_records(store: Store, wanted: AuditFilter) -> Iterator[AuditRecord]:
    """The audit trail, read a batch at a time."""
    # The next batch is asked for by the last number: lines that are added meanwhile come at the end, and none is seen
    # twice.
    rows = store.select_audit(wanted)
    yield from map(record_of, rows)
    # A full batch may have been the last. One read that finds nothing is cheaper than a count before.
    while len(rows) == BATCH:
        rows = store.select_audit(replace(wanted, after=rows[-1].n))
        yield from map(record_of, rows)


async def aaudit_records(store: Store, wanted: AuditFilter) -> AsyncIterator[AuditRecord]:
    """As `audit_records`."""
    rows = await apart(store, store.select_audit, wanted)
    for row in rows:
        yield record_of(row)
    while len(rows) == BATCH:
        rows = await apart(store, store.select_audit, replace(wanted, after=rows[-1].n))
        for row in rows:
            yield record_of(row)


def record_of(row: AuditRow) -> AuditRecord:
    """The record in a line of the audit trail. In the place of a line that cannot be read, it is one that says so."""
    try:
        return AuditRecord.model_validate_json(row.body)
    except (ValueError, TypeError):
        # Shown and counted in its place: a trail that leaves lines out in silence proves nothing.
        at = datetime.fromtimestamp(row.at if is_number(row.at) and EARLIEST <= row.at < LATEST else 0.0, UTC)
        run_id, *others = [
            each if isinstance(each, str) else None for each in (row.run_id, row.thread_id, row.pending_id)
        ]
        return unreadable_record(row.n, at, run_id or "", *others)


# Of one lineage


def located(lineage: Lineage, kept: Texts, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
    """This checkpoint, which a lineage leads to, and its branch: as it was sealed, unless it is the last. Raises `CheckpointError`."""
    return last_in(replace(lineage, entries=_shown(lineage, checkpoint_id)), kept, checkpoint_id)


def last_in(lineage: Lineage, kept: Texts, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
    """The last checkpoint of a lineage, if it is this one, and its branch. Raises `CheckpointError` if it leads elsewhere."""
    # Asked of the log itself and not of an index: an index that says otherwise than the log is damage, and is named as
    # such.
    checkpoint = last_of(lineage.entries, kept, branch_id=lineage.branch.id)
    if checkpoint.id == checkpoint_id:
        return lineage.branch, checkpoint
    raise CheckpointError(f"the log of branch {lineage.branch.id} does not lead to checkpoint {checkpoint_id}")


def led_through(lineage: Lineage, kept: Texts, checkpoint_id: str) -> list[Checkpoint]:
    """The checkpoints of a lineage up to this one, oldest first."""
    found = replay(_shown(lineage, checkpoint_id), kept, branch_id=lineage.branch.id)
    # The lineage ends after this checkpoint, except for the last of a branch, so all of it was read anyway.
    ids = [checkpoint.id for checkpoint in found]
    return found[: ids.index(checkpoint_id) + 1]


def _shown(lineage: Lineage, checkpoint_id: str) -> tuple[Entry, ...]:
    """The entries that a checkpoint is shown from: what was journaled after it is of the last of a branch alone."""
    entries = lineage.entries
    # The head alone is still moving: its journal says where the run stands now. For all others, what was journaled is
    # in the checkpoint that followed.
    return tuple(entries if lineage.branch.head == checkpoint_id else up_to(checkpoint_id, entries))


async def aload(store: Store, checkpoint_id: str) -> Checkpoint:
    """As `Store.load`."""
    return (await alocate(store, checkpoint_id))[1]


async def alocate(store: Store, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
    """As `Store.locate`."""
    checkpoint_id = text("checkpoint_id", checkpoint_id)
    return located(*await alineage(store, checkpoint_id=checkpoint_id), checkpoint_id)


async def awhole(store: Store, checkpoint_id: str) -> tuple[Branch, Checkpoint]:
    """As `Store.whole`."""
    checkpoint_id = text("checkpoint_id", checkpoint_id)
    return last_in(*await alineage(store, checkpoint_id=checkpoint_id), checkpoint_id)


async def ahead(store: Store, branch_id: str) -> tuple[Branch, Checkpoint]:
    """As `Store.head`."""
    lineage, kept = await alineage(store, branch_id=text("branch_id", branch_id))
    return lineage.branch, last_of(lineage.entries, kept, branch_id=lineage.branch.id)


async def ahistory(store: Store, checkpoint_id: str) -> list[Checkpoint]:
    """As `Store.history`."""
    checkpoint_id = text("checkpoint_id", checkpoint_id)
    return led_through(*await alineage(store, checkpoint_id=checkpoint_id), checkpoint_id)


# Of one thread, of one pending approval


def current(store: Store, thread_id: str) -> tuple[Branch, Checkpoint]:
    """The branch of a thread that is open, the last of them that was made, or else the one that ended last; and where it stands.

    Raises `CheckpointNotFound` for a thread that the store does not know.
    """
    branches = store.branches(thread_id=text("thread_id", thread_id))
    # By the rules that `create` judges by: what is called current here is what a new message would meet.
    if (branch := latest_open(branches) or latest_ended(branches)) is None:
        raise not_found("run of thread", thread_id)
    return store.head(branch.id)


def decision_on(store: Store, pending_id: str) -> AuditRecord | None:
    """The line of the audit trail for the decision on a pending approval; None if nobody has decided.

    Raises `UnreadableRow` if there is none but a line that cannot be read.
    """
    records = [*store.audit(pending_id=pending_id)]
    # An edit is of a checkpoint, by its id. A vote decides nothing by itself, and what was refused is no decision.
    others = ("edit", "unreadable")
    found = next((each for each in records if each.kind not in others and not (each.vote or each.refused)), None)
    if found is None and (lost := next((each for each in records if each.kind == "unreadable"), None)) is not None:
        raise UnreadableRow(
            f"nobody knows whether pending {quoted_id(pending_id)} was decided: {lost.reason}",
            kind="decision",
            id=kept_id(pending_id),
            run_id=kept_id(lost.run_id),
        )
    return found


# What is given


def text(name: str, value: str) -> str:
    """The value, which is text, cleaned as it was when something was written under it.

    Raises `StoreError`: what else was given is not quoted, since it may be a whole checkpoint.
    """
    # A database driver would raise its own error for a number, and quote the value; and SQLite would compare 1 with '1'
    # and find it.
    if not isinstance(value, str):
        raise StoreError(f"{name} is text, not {type(value).__name__}")
    return clean(value)


def texts(**given: str | None) -> dict[str, Any]:
    """Those of the values that are not None, by their names. Raises `StoreError` for one that is not text."""
    return {name: text(name, value) for name, value in given.items() if value is not None}


def ago(store: Store, name: str, age: float | None) -> float | None:
    """The time that was so many seconds ago, None for None. Raises `StoreError`."""
    if age is None:
        return None
    # An age below zero would ask for what is made in the future: a mistyped sign, which finds everything or nothing.
    if not is_number(age) or age < 0:
        raise StoreError(f"{name} is a number of seconds, 0 or more, or None, not {quoted(age)}")
    return store.clock() - age


def moment(name: str, at: datetime | float | None) -> float | None:
    """The time in seconds since the epoch, None for None. Raises `StoreError`."""
    # A datetime without a zone means the local time of whichever machine reads it: the same audit query would give
    # other lines on another host.
    if isinstance(at, datetime) and at.utcoffset() is not None:
        return at.timestamp()
    if at is None or (is_number(at) and not isinstance(at, datetime)):
        return at
    raise StoreError(
        f"{name} is a datetime with a time zone, a number of seconds since the epoch, or None, not {quoted(at)}"
    )


# Cursors


def one_more(limit: int | None) -> int | None:
    """How many rows to ask for, so that it is seen whether more follow. Raises `StoreError`."""
    if limit is None:
        return None
    if type(limit) is not int or limit < 1:
        raise StoreError("limit is a whole number, 1 or more, or None for all")
    return limit + 1


def cursor(kind: str, *place: float) -> str:
    """The text that stands for a place in a list of this kind."""
    # Not encrypted, not signed: it holds a place in a list that its reader may see anyway. It is made opaque so that
    # nobody builds one by hand and finds it broken in a later release.
    return base64.urlsafe_b64encode(json.dumps([kind, *place]).encode()).decode().rstrip("=")


def read_cursor(text: str | None, kind: str, *types: type) -> Any:
    """The place that a cursor stands for, None for no cursor. Raises `StoreError` for a text that is none of this list."""
    if text is None:
        return None
    try:
        # It comes from a browser. Whatever it holds, the answer is a page or a `StoreError`, and the values that reach
        # the database are numbers of the right size.
        found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (TypeError, ValueError, RecursionError, binascii.Error):
        found = None
    if not (
        isinstance(found, list)
        and [type(part) for part in found] == [str, *types]
        and found[0] == kind
        and all(abs(part) < 2**63 for part in found[1:])  # as no NaN is
    ):
        raise StoreError("`after` is the `next` of a page of the same list, and nothing else")
    return tuple(found[1:])


# Waiting


def wait(store: Store, run_id: str, timeout: float | None, stops: bool) -> Checkpoint:
    """The last checkpoint of a run, once it has ended or, with `stops`, rests."""
    run_id = text("run_id", run_id)
    # The reads are in the generator and the sleeping is not, so both drivers share the first and each sleeps in its own
    # way.
    looks = _looks(store, run_id, timeout, stops)
    for pause in looks:
        time.sleep(pause)
    return store.head(run_id)[1]


async def await_(store: Store, run_id: str, timeout: float | None, stops: bool) -> Checkpoint:
    """As `wait`."""
    run_id = text("run_id", run_id)
    looks = _looks(store, run_id, timeout, stops)
    while (pause := await apart(store, next, looks, None)) is not None:  # it may happen in another process
        await asyncio.sleep(pause)
    return (await apart(store, store.head, run_id))[1]


def _looks(store: Store, branch_id: str, timeout: float | None, stops: bool) -> Iterator[float]:
    """The seconds to wait before each further look; over once there is nothing to wait for."""
    if timeout is not None and not (is_number(timeout) and timeout >= 0):
        raise StoreError(f"timeout is a number of seconds, 0 or more, or None, not {quoted(timeout)}")
    # The monotonic clock: how long somebody waits has nothing to do with the time of day, nor with the store's clock,
    # which a test may hold still.
    until = None if timeout is None else time.monotonic() + timeout
    run_id, (pause, longest) = store.lineage(branch_id=branch_id).branch.run_id, PATIENCE
    while True:
        # By the run, as the branch of that id may be one of several. Only the branch row is read: the log may be
        # megabytes, and is read once, at the end.
        branch = next((one for one in store.select_branches(BranchFilter(run_id=run_id)) if one.id == branch_id), None)
        if branch is None:
            raise CheckpointNotFound(f"run {branch_id} was taken away while it was waited for", id=branch_id)
        # What was decided and is left for a worker does not wait for a human any more.
        rests = branch.status == "failed" or (branch.status == "suspended" and branch.handed is None)
        if branch.status in ENDED or (stops and rests):
            return
        # After the look, never before it: with a timeout of 0 a run that has ended is still found.
        left = pause if until is None else until - time.monotonic()
        if left <= 0:
            left_here = ", and what was decided is left for a worker" if branch.handed is not None else ""
            raise WaitTimeout(
                f"run {branch_id} is {branch.status}{left_here} after {timeout:g} seconds; wait again, or look at it with"
                " store.head",
                run_id=branch_id,
                status=branch.status,
            )
        yield min(pause, left)
        pause = min(pause * 2, longest)

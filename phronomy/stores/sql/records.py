"""Records from the rows of a SQL store, and the values of statements from records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from phronomy.stores.derived.changes import by_digest, check_room
from phronomy.stores.rows import (
    FACETS,
    SIZE,
    Append,
    AuditRow,
    Branch,
    Document,
    Entry,
    Lineage,
    PendingRow,
)
from phronomy.stores.sound_rows import branch_of, damaged_branch, document_in, entries_of, told_of
from phronomy.stores.sql.schema import BRANCH
from phronomy.stores.sql.statements import Row, Statements, Values


def waiting_of(row: Row) -> tuple[PendingRow, Branch]:
    """The pending approval in a row, and the branch that stands behind it. Raises `CheckpointError` for a damaged branch."""
    return told_of(PendingRow, row), branch_of(row[len(PendingRow.__dataclass_fields__) :])


def branch_values(tenant: str, branch: Branch) -> Values:
    """The values of `add_branch`."""
    return tenant, *(getattr(branch, column) for column in BRANCH)


def changed_values(branch: Branch, n: int) -> Values:
    """The values of `change_branch`."""
    place = branch.seq, branch.head, branch.status
    return *place, branch.owner, branch.fence, branch.lease_until, branch.changed_at, branch.announced, branch.handed, n


def going_on(sql: Statements, tenant: str, change: Append, now: float, lease: float) -> tuple[str, Values] | None:
    """The statement `go_on` for a change, and its values; None for a change that it is not for."""
    claim, taker = change.claim, change.take
    # A number outside the branch's room has no place in the table, and who takes a branch and leaves it at once is rare:
    # these are judged in the long way, as are the notes of those who have no claim.
    if change.holder is not None or (taker is not None and change.release) or not 0 <= change.seq < SIZE:
        return None
    if claim is not None and claim.branch_id != change.branch_id:
        return None
    values: list[object] = [change.seq + len(change.entries), change.head, now]
    place, whose = (tenant, change.branch_id, change.seq), (claim.owner, claim.fence) if claim is not None else (now,)
    if taker is not None:
        does = "takes"
        values += (now + (change.lease or lease), taker)
    elif change.release:
        does = "releases"
    else:
        does = "keeps"
        values.append(now + change.lease if change.lease else None)
    # A status that is set is written to each partial index that mentions it. Most steps find `running` and leave it, so
    # that is a condition and no assignment.
    status = "kept"
    if change.status is not None:
        # One that is taken is most often suspended.
        status = "running" if change.status == "running" and taker is None else "new"
    if status == "new":
        values.append(change.status)
    if change.announce:
        values.append(change.seq)
    return sql.go_on[does, status, change.announce], (*values, *place, *whose)


def leaving(sql: Statements, tenant: str, change: Append, now: float) -> tuple[str, Values] | None:
    """The statement `leave` for a change, and its values; None for a change that it is not for."""
    holder = change.holder
    if holder is None or change.announce or holder.branch_id != change.branch_id or not 0 <= change.seq < SIZE:
        return None
    last = change.seq + len(change.entries)
    values = (
        last,
        change.seq + 1 if change.hands_over else None,
        now,
        tenant,
        change.branch_id,
        change.seq,
        holder.fence,
    )
    return sql.leave[bool(holder.owner)], (*values, *((holder.owner, now) if holder.owner else (now,)))


def leaving_decision(sql: Statements, tenant: str, change: Append, now: float) -> tuple[str, Values] | None:
    """The statement `leave_decision`, which writes the whole of a change, and its values; None for a change that it is not for."""
    single = len(change.entries) == len(change.closed) == len(change.audit) == 1 and not change.opened
    left = leaving(sql, tenant, change, now) if single and sql.leave_decision is not None else None
    if left is None or sql.leave_decision is None or change.seq + 1 >= SIZE:
        return None
    ((place, *entry),), (line,), (closed,) = entry_values(tenant, change, 0), change.audit, change.closed
    values = *left[1], place, *entry, *audit_values(tenant, line), tenant, closed
    return sql.leave_decision[change.holder is not None and bool(change.holder.owner)], values


def entry_values(tenant: str, change: Append, n: int) -> list[Values]:
    """The values of the entries that a change adds to branch number `n`. Raises `StoreError` for a log that is full."""
    check_room(change)
    return [
        (place, tenant, entry.path, entry.checkpoint_id, entry.parent_id, entry.label, entry.body)
        for place, entry in enumerate(change.entries, n * SIZE + change.seq + 1)
    ]


def changed_entry(entry: Entry, n: int) -> Values:
    """The values of `change_entry` for an entry of branch number `n`."""
    return entry.path, entry.checkpoint_id, entry.parent_id, entry.label, entry.body, n * SIZE + entry.seq


def pending_values(tenant: str, row: PendingRow, n: int) -> Values:
    """The values of a new pending approval in branch number `n`."""
    what = row.pending_id, row.agent, row.tool_name, row.label, row.risk
    return tenant, n, *what, row.requested_at, row.expires_at, row.body


def facet_values(tenant: str, branch: Branch, found: Row) -> list[Values]:
    """The values of the facets of a pending approval of a branch, from what `drop_pending` gives of it; all have the last one."""
    at, n, *rest = found
    return [
        (tenant, facet, value, at, n)
        for facet, value in zip((*FACETS, ""), (branch.run_id, branch.thread_id, *rest, ""), strict=True)
        if value is not None
    ]


def audit_values(tenant: str, row: AuditRow) -> Values:
    """The values of a new line of the audit trail."""
    return tenant, row.at, row.run_id, row.thread_id, row.pending_id, row.body


def text_values(tenant: str, texts: Sequence[str]) -> list[Values]:
    """The values of texts that are to be kept once."""
    return [(tenant, digest, text) for digest, text in by_digest(texts).items()]


def document_of(row: Row) -> Document:
    """The document in a row."""
    return document_in(*row)


def _values_in(body: str, id: object) -> list[Any]:
    """The values of a branch in the JSON of its row. Raises `CheckpointError` if a text in it is not UTF-8."""
    try:
        values: list[Any] = json.loads(body)
    except ValueError:
        failure = damaged_branch(id)
    else:
        return values
    raise failure  # outside of the except block: the error above has the body


def lineage_of(rows: Iterable[Row]) -> Lineage | None:
    """The lineage in the rows of one statement, None if there are none. Raises `CheckpointError` for damaged rows."""
    # Sorted here: the numbers grow along a lineage, and to sort them in the database would hold back the first row
    # until the last was found.
    ordered = sorted(rows, key=itemgetter(0))
    if not ordered:
        return None
    (_, id, *_, body, lease_until, created_at, changed_at), *entries = ordered
    # The columns that were added later stand behind the times in the record, and behind the others in JSON.
    *own, announced, handed = _values_in(body, id)
    branch = branch_of((*own, lease_until, created_at, changed_at, announced, handed))
    return Lineage(branch=branch, entries=entries_of(id, entries))

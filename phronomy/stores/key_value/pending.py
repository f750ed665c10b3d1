"""The pending approvals of a tenant, and the lists in which they are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from phronomy.errors import CheckpointError
from phronomy.stores.derived.changes import taken_id
from phronomy.stores.key_value.books import View
from phronomy.stores.key_value.records import branch_of, first_of, parts_of, pending_row_of, pending_value
from phronomy.stores.key_value.tree import LAST, Value
from phronomy.stores.memory_tenant import lists_of
from phronomy.stores.rows import FACETS, Append, Branch, PendingFilter, PendingRow
from phronomy.stores.sound_rows import records_of


def move(view: View, n: int, after: Branch, change: Append) -> None:
    """Close and open the pending approvals of a change. Raises `StoreError` for one that waits in the branch already."""
    for pending_id in change.closed:
        if (value := view.get("o", n, pending_id)) is not None:
            _remove(view, n, pending_id, value)
    for row in change.opened:
        if view.get("o", n, row.pending_id) is not None:
            raise taken_id("pending approval", row.pending_id)
        m = view.next_number()
        # Where it waits is the branch's to say: a forged place cannot put it into another run's list.
        row = replace(row, branch_id=after.id, run_id=after.run_id, thread_id=after.thread_id)
        view.put(("w", m), pending_value(view, row))
        view.put(("o", n, row.pending_id), [m])
        for name, text in lists_of(row):
            view.put(("f", name, text, row.requested_at, m), [])


def remove_all(view: View, n: int) -> None:
    """Delete what waits in a branch."""
    for key, value in list(view.span("o", n)):
        _remove(view, n, key[2], value)


def _remove(view: View, n: int, pending_id: str, place: Value) -> None:
    view.drop("o", n, pending_id)
    (m,) = parts_of(place, 1)
    if type(m) is not int:
        return
    value = view.get("w", m)
    view.leave(first_of(value))
    view.drop("w", m)
    (row,) = records_of(PendingRow, [pending_row_of(view, value, m)])
    lists = [("f", name, text, row.requested_at, m) for name, text in lists_of(row)]
    if any(view.get(*key) is None for key in lists):  # the row is damaged, and says wrongly where it is listed
        lists = [key for key, _ in view.span("f") if key[-1] == m]
    for key in lists:
        view.drop(*key)


def at_head(view: View, row: PendingRow) -> PendingRow:
    """A pending approval at the head of its branch: the run may have gone on since it was asked for."""
    try:
        return with_head(row, branch_of(view.get("b", row.branch_id), row.branch_id)[1])
    except CheckpointError:  # nobody can decide it
        return replace(row, checkpoint_id="", body="")


def with_head(row: PendingRow, branch: Branch) -> PendingRow:
    """A pending approval at the head of this branch."""
    return replace(row, checkpoint_id=branch.head or "")


def wanted_rows(view: View, wanted: PendingFilter) -> Iterator[PendingRow]:
    """The pending approvals that match the filter, but for its limit, by the list of one facet."""
    facets = dict(wanted.facets)
    if wanted.pending_id is not None:
        facets["id"] = wanted.pending_id
    by = next((name for name in ("id", *FACETS) if name in facets), "")
    if not by and wanted.expired_at is not None:
        by = "expires"
    low: tuple[object, ...] = () if wanted.since is None else (wanted.since,)
    high: tuple[object, ...] = (LAST,) if wanted.until is None else (wanted.until, LAST)
    # The cursor is a place in the order, not a count of rows: what is decided while somebody turns pages shifts nothing.
    if wanted.after is not None and wanted.newest:
        high = min(high, wanted.after)
    elif wanted.after is not None:
        low = max(low, (wanted.after[0], wanted.after[1] + 1))
    for key, _ in view.span("f", by, facets.get(by, ""), low=low, high=high, backwards=wanted.newest):
        *_, requested_at, m = key
        *fields, expires_at, body, _ = pending_row_of(view, view.get("w", m), m)
        # Its time, and an id by which it was asked for, are those of its place: pages go by it.
        if by == "id":
            fields[0] = facets["id"]
        (row,) = records_of(PendingRow, [(*fields[:-1], float(requested_at), expires_at, body, m)])
        own = {**row.facets(), "id": row.pending_id}
        if all(own.get(name) == value for name, value in facets.items()) and (
            wanted.expired_at is None or (row.expires_at is not None and row.expires_at <= wanted.expired_at)
        ):
            yield row

"""Rows of stores as records: which rows are sound, and what a list has in the place of one that is damaged.

A database may hold others than were written to it: somebody edited it, a restore tore it, or a disk did. Each store reads the values of
a row as far as it can, in the order of the fields of its record, and this judges them. A damaged row costs a list nothing but itself:
the list has the ids in it that can be read, and whoever reads the record meets the damage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Any, Final, TypeAlias, TypeVar

from phronomy.errors import CheckpointError
from phronomy.foundation.quoting import quoted_id
from phronomy.stores.rows import (
    EARLIEST,
    ENDED,
    LATEST,
    NO_TIME,
    OPEN,
    AuditRow,
    Branch,
    BranchStatus,
    CheckpointRow,
    DamagedBranch,
    Document,
    Entry,
    PendingRow,
)

R = TypeVar("R", Branch, PendingRow, CheckpointRow, AuditRow, Entry)

RowValues: TypeAlias = tuple[Any, ...]
"""The values of a row, in the order of the fields of its record: what is there is judged here."""

_ENTRY: Final = ("seq", "branch_id", "path", "checkpoint_id", "parent_id", "label", "body")


_PUTS: Final = {
    kind: tuple(getattr(kind, name).__set__ for name in kind.__dataclass_fields__)
    for kind in (Branch, PendingRow, CheckpointRow, AuditRow)
} | {Entry: tuple(getattr(Entry, name).__set__ for name in _ENTRY)}
_PUTS[DamagedBranch] = _PUTS[Branch]
"""The setters of the fields of each kind of record, in the order in which a row has their values."""

_KINDS: Final[Mapping[Any, tuple[frozenset[type], object]]] = {
    str: (frozenset({str}), ""),
    str | None: (frozenset({str, NoneType}), None),
    int: (frozenset({int}), 0),
    int | None: (frozenset({int, NoneType}), None),
    float: (frozenset({float, int}), 0.0),
    float | None: (frozenset({float, int, NoneType}), None),
    BranchStatus: (frozenset({str}), "failed"),
}
_COLUMNS: Final[Mapping[str, Sequence[tuple[frozenset[type], object]]]] = {
    **{
        kind.__name__: [_KINDS[field.type] for field in kind.__dataclass_fields__.values()]
        for kind in (Branch, PendingRow, CheckpointRow, AuditRow)
    },
    # Not the body: whoever reads that says which entry it is.
    "Entry": [_KINDS[Entry.__dataclass_fields__[name].type] for name in _ENTRY[:-1]],
}
"""The types that the values of each column may have, and what stands in the place of another, by kind of record."""
_DAMAGED: Final[Mapping[Any, Any]] = {Branch: DamagedBranch}
_STATUS, _CREATED, _CHANGED, _START, _SEQ = (
    tuple(Branch.__dataclass_fields__).index(name)
    for name in ("status", "created_at", "changed_at", "parent_seq", "seq")
)
_STATUSES: Final = frozenset((*OPEN, *ENDED))


@cache
def _fits(kind: str, types: tuple[type, ...]) -> bool:
    """True if a row of values of these types may be a record of the kind of this name. There are few such shapes."""
    return all(each in allowed for (allowed, _), each in zip(_COLUMNS[kind], types, strict=False))


def _is_sound(kind: type[R], rows: Sequence[RowValues]) -> bool:
    """True if these rows fit the schema."""
    if not all(_fits(kind.__name__, types) for types in {tuple(map(type, row)) for row in rows}):
        return False
    # Nothing can be found under no id, no log has an entry before its first, and no page has a place for a time that no calendar has.
    return kind is not Branch or all(
        row[_STATUS] in _STATUSES
        and row[0] != ""
        and row[_START] >= 0
        and row[_SEQ] >= 0
        and EARLIEST <= row[_CREATED] < LATEST
        and EARLIEST <= row[_CHANGED] < LATEST
        for row in rows
    )


def _check_length(kind: type[R], row: RowValues) -> None:
    if len(row) < len(_PUTS[kind]):
        # The store makes it the error of a damaged database.
        raise TypeError(f"a {kind.__name__} of {len(row)} columns")


def _made_of(kind: type[R], row: RowValues) -> R:
    record = object.__new__(kind)
    # 4 us for a branch, and 12 by its `__init__`, which takes a call of Python for each value. Every step reads one.
    for put, value in zip(_PUTS[kind], row, strict=False):
        put(record, value)
    return record


def told_of(kind: type[R], row: RowValues) -> R:
    """The record in a row of a list. Of one that is damaged it has the ids that can be read, and no body that anybody could read."""
    if _is_sound(kind, (row,)):
        return _made_of(kind, row)
    values: list[Any] = [
        value if type(value) in types else _printed(value) if str in types else instead
        for (types, instead), value in zip(_COLUMNS[kind.__name__], row, strict=False)
    ]
    names = list(kind.__dataclass_fields__)
    if kind is Branch:
        if values[_STATUS] not in _STATUSES:
            values[_STATUS] = _KINDS[BranchStatus][1]
        for place in (_CREATED, _CHANGED):
            if not EARLIEST <= values[place] < LATEST:
                values[place] = 0.0
    else:
        values[names.index("body")] = ""
    if kind is PendingRow and type(row[names.index("requested_at")]) is not float:
        values[names.index("requested_at")] = NO_TIME
    found: R = _made_of(_DAMAGED.get(kind, kind), tuple(values))
    return found


def _printed(value: object) -> str:
    """The text that is shown in the place of a damaged id."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str("" if value is None else value)


def records_of(kind: type[R], rows: Sequence[RowValues]) -> list[R]:
    """The records in the rows of a list. Values of a row beyond its fields are left out.

    A damaged row costs the list nothing but itself: whoever reads the record meets the damage.
    """
    if not rows:
        return []
    _check_length(kind, rows[0])
    if not _is_sound(kind, rows):
        return [told_of(kind, row) for row in rows]
    return _made(kind, rows)


def _made(kind: type[R], rows: Sequence[RowValues]) -> list[R]:
    # Column by column, which takes a third of the time of row by row.
    found = [object.__new__(kind) for _ in rows]
    for put, values in zip(_PUTS[kind], zip(*rows, strict=True), strict=False):
        deque(map(put, found, values), 0)
    return found


def branch_of(row: RowValues) -> Branch:
    """The branch in a row. Raises `CheckpointError` for a damaged one: nobody goes on from it."""
    _check_length(Branch, row)
    if not _is_sound(Branch, (row,)):
        raise damaged_branch(row[0])
    return _made_of(Branch, row)


def damaged_branch(id: object) -> CheckpointError:
    """The error for a branch whose row is damaged."""
    return CheckpointError(
        f"the row of branch {quoted_id(id)} cannot be read: it is damaged, or was written by a later release"
    )


def entries_of(branch_id: object, rows: Sequence[RowValues]) -> tuple[Entry, ...]:
    """The entries in the rows that lead to a place in a branch. Raises `CheckpointError` for a damaged one, but not for its body."""
    if not _is_sound(Entry, rows):
        place = next(row[0] for row in rows if not _is_sound(Entry, (row,)))
        raise CheckpointError(
            f"entry {place} of branch {quoted_id(branch_id)} cannot be read: its row is damaged, or was written by a later release"
        )
    return tuple(_made(Entry, rows))


def document_in(kind: str, key: Any, version: Any, expires_at: Any, text: Any) -> Document:
    """The document of these values. A damaged one has no text, and no version that a writer could have seen."""
    if [type(each) for each in (key, version, text)] != [str] * 3 or type(expires_at) not in (float, int, NoneType):
        # Nothing can be asked for by a text with lone surrogates: a page that ends here is the last.
        key = key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)
        return Document(kind=kind, key=key, text="", version="damaged")
    return Document(kind=kind, key=key, version=version, expires_at=expires_at, text=text)

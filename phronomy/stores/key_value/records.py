"""Records of the store as values in the books of a tenant, and back.

Tables, by the first part of a key, each with the rest of the key and the value. `n` is the number of a branch, `m` that of a request.

    b   branch id                       the branch, after its number
    n   n                               branch id: all branches, in the order in which they were made
    r   run id, n                       branch id
    t   thread id, n                    branch id
    p   parent branch id, n             branch id
    s   status, n                       branch id
    h   n                               branch id: it has something left for a worker
    a   n                               branch id: it has something that is not announced
    l   n, seq                          the entry of the log
    k   n, seq                          root checkpoint id, and its label
    c   checkpoint id                   branch id, n, seq
    d   parent checkpoint id, n, seq    checkpoint id, where its row names its parent
    w   m                               the pending approval
    o   n, pending id                   m
    f   name, value, requested_at, m    nothing: the lists that a pending approval stands in
    u   m                               the record of the audit trail; ur, ut, up list them by run, thread and request
    x   digest                          the text that is kept under it
    y   kind, key                       the document; ye lists them by their time
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import attrgetter
from typing import Final, ParamSpec, TypeVar

from phronomy.stores.key_value.books import View, damaged
from phronomy.stores.key_value.tree import Value
from phronomy.stores.rows import AuditRow, Branch, Document, Entry, PendingRow

P = ParamSpec("P")
T = TypeVar("T")

_BRANCH: Final = tuple(Branch.__dataclass_fields__)
_PENDING: Final = tuple(name for name in PendingRow.__dataclass_fields__ if name not in ("body", "n"))
_AUDIT: Final = tuple(name for name in AuditRow.__dataclass_fields__ if name not in ("body", "n"))
_ENTRY: Final = ("path", "checkpoint_id", "parent_id", "label")

# Once for each of the records: they are read and written at each step of a run.
_branch_values = attrgetter(*_BRANCH)
_pending_values = attrgetter(*_PENDING)
_audit_values = attrgetter(*_AUDIT)
_entry_values = attrgetter(*_ENTRY)


def _whole(read: Callable[P, T]) -> Callable[P, T]:
    """Have what cannot be read named as such: something else may have written it, or a restore torn it."""

    @wraps(read)
    def checked(*args: P.args, **options: P.kwargs) -> T:
        try:
            return read(*args, **options)
        except (ValueError, TypeError, LookupError, AttributeError):
            raise damaged() from None

    return checked


def branch_value(n: int, branch: Branch) -> Value:
    """What stands for a branch."""
    return [n, *_branch_values(branch)]


@_whole
def branch_of(value: Value) -> tuple[int, Branch]:
    """The number of a branch, and the branch."""
    n, *fields = value
    return n, Branch(**dict(zip(_BRANCH, fields, strict=True)))


def entry_value(view: View, entry: Entry) -> Value:
    """What stands for an entry of a log."""
    return [view.kept(entry.body), *_entry_values(entry)]


@_whole
def entry_of(view: View, value: Value, branch_id: str, seq: int) -> Entry:
    """The entry, with its place."""
    body, *fields = value
    return Entry(body=view.read(body), branch_id=branch_id, seq=seq, **dict(zip(_ENTRY, fields, strict=True)))


def pending_value(view: View, row: PendingRow) -> Value:
    """What stands for a pending approval."""
    return [view.kept(row.body), *_pending_values(row)]


@_whole
def pending_of(view: View, value: Value, m: int) -> PendingRow:
    """The pending approval of this number."""
    body, *fields = value
    return PendingRow(body=view.read(body), n=m, **dict(zip(_PENDING, fields, strict=True)))


def audit_value(view: View, row: AuditRow) -> Value:
    """What stands for a record of the audit trail."""
    return [view.kept(row.body), *_audit_values(row)]


@_whole
def audit_of(view: View, value: Value, m: int) -> AuditRow:
    """The record of this number."""
    body, *fields = value
    return AuditRow(body=view.read(body), n=m, **dict(zip(_AUDIT, fields, strict=True)))


def document_value(view: View, document: Document) -> Value:
    """What stands for a document."""
    return [view.kept(document.text), document.version, document.expires_at]


@_whole
def document_of(view: View, value: Value, kind: str, key: str) -> Document:
    """The document under this kind and key."""
    body, version, expires_at = value
    return Document(kind=kind, key=key, text=view.read(body), version=version, expires_at=expires_at)

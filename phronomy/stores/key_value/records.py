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

from operator import attrgetter
from typing import Any, Final

from phronomy.stores import sound_rows
from phronomy.stores.key_value.books import View
from phronomy.stores.key_value.tree import Value
from phronomy.stores.rows import AuditRow, Branch, CheckpointRow, Document, Entry, PendingRow
from phronomy.stores.sound_rows import RowValues, damaged_branch, document_in, records_of

_BRANCH: Final = tuple(Branch.__dataclass_fields__)
_PENDING: Final = tuple(name for name in PendingRow.__dataclass_fields__ if name not in ("body", "n"))
_AUDIT: Final = tuple(name for name in AuditRow.__dataclass_fields__ if name not in ("body", "n"))
_ENTRY: Final = ("path", "checkpoint_id", "parent_id", "label")

# Once for each of the records: they are read and written at each step of a run.
_branch_values = attrgetter(*_BRANCH)
_pending_values = attrgetter(*_PENDING)
_audit_values = attrgetter(*_AUDIT)
_entry_values = attrgetter(*_ENTRY)


def parts_of(value: object, count: int) -> list[Any]:
    """The parts of a value that has so many. Something else may have written it, or a restore torn it: then none of them is any."""
    return value if type(value) is list and len(value) == count else [b""] * count


def first_of(value: object) -> object:
    """The first part of a value, None if it has none."""
    return value[0] if isinstance(value, list) and value else None


def id_of(value: object) -> str:
    """The id in a value that begins with one; empty if that is damaged."""
    found = first_of(value)
    return found if isinstance(found, str) else ""


def branch_value(n: int, branch: Branch) -> Value:
    """What stands for a branch."""
    return [n, *_branch_values(branch)]


def branch_of(value: object, id: str) -> tuple[int, Branch]:
    """The number of a branch, and the branch. Raises `CheckpointError` for a damaged one."""
    n, *fields = parts_of(value, len(_BRANCH) + 1)
    if type(n) is not int or fields[0] != id:
        raise damaged_branch(id)
    return n, sound_rows.branch_of(tuple(fields))


def listed_branch_of(value: object, id: str) -> Branch:
    """The branch in a list. A damaged one has the values that can be read."""
    _, own, *fields = parts_of(value, len(_BRANCH) + 1)
    # A row of another branch in this place is damage: nothing in it belongs to this branch.
    (branch,) = records_of(Branch, [(id, *fields) if own == id else (id, *[b""] * len(fields))])
    return branch


def entry_value(view: View, entry: Entry) -> Value:
    """What stands for an entry of a log."""
    return [view.kept(entry.body), *_entry_values(entry)]


def entry_row_of(view: View, value: object, branch_id: str, seq: int) -> RowValues:
    """The values of an entry, with its place."""
    body, *fields = parts_of(value, len(_ENTRY) + 1)
    return seq, branch_id, *fields, view.read(body)


def checkpoint_of(view: View, value: object, branch: Branch, place: tuple[int, int], root: object) -> CheckpointRow:
    """The root checkpoint that this entry is, as `root` lists it. `n` is its place among all."""
    seq, n = place
    id, label = parts_of(root, 2)
    *_, body = entry_row_of(view, value, branch.id, seq)
    (row,) = records_of(CheckpointRow, [(id, branch.id, branch.run_id, branch.thread_id, branch.agent, label, body, n)])
    return row


def pending_value(view: View, row: PendingRow) -> Value:
    """What stands for a pending approval."""
    return [view.kept(row.body), *_pending_values(row)]


def pending_row_of(view: View, value: object, m: int) -> RowValues:
    """The values of the pending approval of this number."""
    body, *fields = parts_of(value, len(_PENDING) + 1)
    return *fields, view.read(body), m


def audit_value(view: View, row: AuditRow) -> Value:
    """What stands for a record of the audit trail."""
    return [view.kept(row.body), *_audit_values(row)]


def audit_of(view: View, value: object, m: int) -> AuditRow:
    """The record of this number. A damaged one has the ids that can be read, and nothing in it."""
    body, *fields = parts_of(value, len(_AUDIT) + 1)
    (row,) = records_of(AuditRow, [(*fields, view.read(body), m)])
    return row


def document_value(view: View, document: Document) -> Value:
    """What stands for a document."""
    return [view.kept(document.text), document.version, document.expires_at]


def document_of(view: View, value: object, kind: str, key: str) -> Document:
    """The document under this kind and key."""
    body, version, expires_at = parts_of(value, 3)
    return document_in(kind, key, version, expires_at, view.read(body))

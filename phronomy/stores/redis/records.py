"""Records of a Redis store as bytes, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from phronomy.errors import StoreError
from phronomy.stores import sound_rows
from phronomy.stores.rows import (
    SIZE,
    Append,
    AuditRow,
    Branch,
    CheckpointRow,
    Document,
    Entry,
    PendingRow,
)
from phronomy.stores.sound_rows import RowValues, damaged_branch, document_in, records_of


def encoded(text: str, *, read: bool = False) -> bytes:
    """The text as UTF-8. What cannot be stored can be asked for: it is not there."""
    try:
        # Half of a surrogate pair cannot be written, so nothing is found under it; encoded in this way it is a key that
        # nobody has.
        return text.encode("utf-8", "surrogatepass" if read else "strict")
    except UnicodeEncodeError:
        raise StoreError("text with a lone surrogate cannot be stored") from None


def opt(text: str | None, *, read: bool = False) -> bytes:
    """Text that may be missing."""
    # Lua has no null in its arguments. The sign tells missing from empty, which a label may be.
    return b"" if text is None else b"=" + encoded(text, read=read)


def time_text(value: float) -> bytes:
    """A time, so that it is read as the same number."""
    # A sorted set takes no nan, and every comparison with one is false: a lease of nan would be held by nobody and free
    # for none.
    if math.isnan(value):
        raise StoreError("a time is a number of seconds, not nan")
    # The shortest text that is read as the same number. The scripts keep it as text, since Lua would print it with 14
    # digits, and a lease would end a little before or after its time.
    return repr(float(value)).encode()


def json_line(*values: object) -> bytes:
    """Values as the JSON of one line."""
    return encoded(json.dumps(values, ensure_ascii=False, separators=(",", ":")))


def packed_entry(entry: Entry) -> bytes:
    """An entry: a line that says what it is, empty for journal of the run itself, and the body as it is."""
    # Most entries are such, and cost one byte beside their body.
    plain = not entry.path and entry.checkpoint_id is None and entry.parent_id is None and entry.label is None
    # Body and line are apart, so that a script can decode the line without touching the body: Lua would change what it
    # re-encodes.
    line = b"" if plain else json_line(entry.path, entry.checkpoint_id, entry.parent_id, entry.label)
    return line + b"\n" + encoded(entry.body)


def added_args(change: Append, texts: Mapping[str, str]) -> list[bytes]:
    """The additions of a change, with its texts by digest, in the order in which `added` in the scripts reads them."""
    args = [b"%d" % len(change.entries)]
    for entry in change.entries:
        if entry.checkpoint_id is not None and not entry.path:
            args += [b"1", encoded(entry.checkpoint_id), opt(entry.parent_id), opt(entry.label), packed_entry(entry)]
        else:
            args += [b"0", packed_entry(entry)]
    args += [b"%d" % len(change.closed), *map(encoded, change.closed), b"%d" % len(change.opened)]
    for row in change.opened:
        args += [*map(encoded, (row.pending_id, row.agent, row.tool_name)), opt(row.label), opt(row.risk)]
        expires = b"" if row.expires_at is None else b"=" + time_text(row.expires_at)
        args += [time_text(row.requested_at), expires, encoded(row.body)]
    args.append(b"%d" % len(change.audit))
    for line in change.audit:
        packed = json_line(float(line.at), line.run_id, line.thread_id, line.pending_id) + b"\n" + encoded(line.body)
        args += [time_text(line.at), encoded(line.run_id), opt(line.thread_id), opt(line.pending_id), packed]
    args.append(b"%d" % len(texts))
    for digest, text in texts.items():
        args += [encoded(digest), encoded(text)]
    return args


def branch_texts(branch: Branch, *, start: int) -> list[str | None]:
    """The fields of a new branch in the order of FIELDS, from `run` to `handed`, as text."""
    times = [repr(float(value)) for value in (branch.lease_until, branch.created_at, branch.changed_at)]
    return [
        *(branch.run_id, branch.thread_id, branch.agent, branch.label, branch.parent_branch),
        *(str(start), str(branch.seq)),
        *(branch.head, branch.status, branch.owner, str(branch.fence), *times),
        None if branch.announced is None else str(branch.announced),
        None if branch.handed is None else str(branch.handed),
    ]


def row_of(values: Sequence[Any]) -> RowValues:
    """The values of a branch that a script shows, in the order of the fields of the record. A damaged value is there as it came."""
    id, _, *rest = values
    return tuple(_read_as(kind, value) for kind, value in zip(_BRANCH, (id, *rest), strict=True))


_BRANCH: Final = tuple(
    int if "int" in kind else float if "float" in kind else str
    for kind in (str(field.type) for field in Branch.__dataclass_fields__.values())
)
"""The type of each field of a branch, but for None."""


def _read_as(kind: type[str | int | float], value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode() if kind is str else kind(value)
    except ValueError:
        return value


def branch_of(values: Sequence[Any]) -> Branch:
    """The branch that a script shows. Raises `CheckpointError` for a damaged one."""
    return sound_rows.branch_of(row_of(values))


def first_of(id: bytes, before: bytes) -> int:
    """The number of the first entry in the log of a branch. Raises `CheckpointError` if that is damaged."""
    if type(number := _read_as(int, before)) is not int or number < 0:
        raise damaged_branch(id.decode())
    return number + 1


def kept_of(value: bytes | None) -> str | None:
    """A text that is kept once, None if there is none. A value that is not UTF-8 is no text."""
    text: str | None = _read_as(str, value)
    return text


def entry_row_of(packed: bytes | None, branch_id: str, seq: int) -> RowValues:
    """The values of the entry of a log, with its place. A damaged entry has no path."""
    try:
        line, _, body = (packed or b"").partition(b"\n")
        path, id, parent, label = json.loads(line) if line else ("" if packed else None, None, None, None)
    except (ValueError, TypeError):
        path, id, parent, label, body = None, None, None, None, b""
    return seq, branch_id, path, id, parent, label, text_in(body)


def text_in(body: bytes) -> str:
    """The text of a row. What is no UTF-8 has lone surrogates in its place, and nobody can read the row."""
    return body.decode("utf-8", "surrogateescape")


def _line_of(packed: bytes, count: int) -> tuple[list[Any], str]:
    """The values in the first line of a row, and the text behind it. Of one that is damaged there are none."""
    line, _, body = packed.partition(b"\n")
    try:
        values: Any = json.loads(line)
    except ValueError:
        values = None
    if type(values) is list and len(values) == count:
        return values, text_in(body)
    return [b""] * count, ""


def pending_of(n: bytes, score: bytes, packed: bytes, head: bytes | None, *, known: str | None) -> PendingRow:
    """The pending approval, at the head of its branch; `known` is its id where it was asked for by that.

    One that cannot be read has the ids that can be, and its place in the list.
    """
    # Not an error: the others of the list can be read, and whoever reads the row says that it is damaged.
    (id, branch, run, thread, agent, tool, label, risk, _, expires), body = _line_of(packed, 10)
    # Lua has no null that survives in a table, so a missing value is false there, and comes back as false.
    thread, label, risk, expires = (None if each is False else each for each in (thread, label, risk, expires))
    place = text_in(head or b""), float(score), _read_as(float, expires)
    (row,) = records_of(
        PendingRow, [(known or id, branch, run, thread, agent, tool, label, risk, *place, body, int(n))]
    )
    return row


def checkpoint_of(
    n: bytes, seq: bytes, branch: bytes, run: bytes, thread: bytes | None, agent: bytes, id: bytes, packed: bytes | None
) -> CheckpointRow:
    """The root checkpoint, as the list of checkpoints has it. A damaged one has its id, and nothing in it."""
    _, _, path, own, _, label, body = entry_row_of(packed, "", 0)
    ids = [_read_as(str, each) for each in (id, branch, run, thread, agent)]
    sound = path == "" and own == ids[0]
    place = int(n) * SIZE + int(seq)
    (row,) = records_of(CheckpointRow, [(*ids, label if sound else None, body if sound else None, place)])
    return row


def audit_of(n: int, packed: bytes | None) -> AuditRow:
    """The line of the audit trail. A damaged one has the ids that can be read, and nothing in it."""
    (at, run, thread, pending), body = _line_of(packed or b"", 4)
    (row,) = records_of(AuditRow, [(at, run, thread, pending, body, n)])
    return row


def document_of(kind: str, key: bytes, packed: bytes) -> Document:
    """The document under a key, as the scripts keep it: a line of versions, one of its time, and its text.

    One that cannot be read has no text, and no version that a writer could have seen.
    """
    versions, expires, body = [*packed.split(b"\n", 2), b"", b""][:3]
    return document_in(
        kind,
        _read_as(str, key),
        _read_as(str, versions.rpartition(b" ")[2]) or None,
        _read_as(float, expires or None),
        text_in(body) if packed.count(b"\n") >= 2 else None,
    )

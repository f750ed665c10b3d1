"""Records of a Redis store as bytes, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from phronomy.errors import StoreError
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

P = ParamSpec("P")
T = TypeVar("T")


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


def whole(read: Callable[P, T]) -> Callable[P, T]:
    """Have what cannot be read named as such."""

    @wraps(read)
    # A key may hold anything: something else wrote to it, or a restore tore it. That is one error, and it quotes
    # nothing.
    def checked(*args: P.args, **options: P.kwargs) -> T:
        try:
            return read(*args, **options)
        except (ValueError, TypeError, LookupError, AttributeError):
            raise StoreError("what Redis holds for this store cannot be read: it is damaged") from None

    return checked


@whole
def branch_of(values: Sequence[Any]) -> Branch:
    """The branch that a script shows."""
    id, _, run, thread, agent, label, parent, first, seq, head, status, owner, fence, until, made, at, *told = values
    announced, handed = told
    return Branch(
        id=id.decode(),
        run_id=run.decode(),
        thread_id=text_of(thread),
        agent=agent.decode(),
        label=text_of(label),
        parent_branch=text_of(parent),
        parent_seq=int(first),
        seq=int(seq),
        head=text_of(head),
        status=status.decode(),
        owner=text_of(owner),
        fence=int(fence),
        lease_until=float(until),
        created_at=float(made),
        changed_at=float(at),
        announced=None if announced is None else int(announced),
        handed=None if handed is None else int(handed),
    )


def text_of(value: bytes | None) -> str | None:
    """The text in bytes that may be missing."""
    return None if value is None else value.decode()


@whole
def kept_of(value: bytes | None) -> str | None:
    """A text that is kept once, None if there is none."""
    return text_of(value)


@whole
def entry_of(packed: bytes, branch_id: str, seq: int) -> Entry:
    """The entry of a log, with its place."""
    line, _, body = packed.partition(b"\n")
    path, id, parent, label = json.loads(line) if line else ("", None, None, None)
    return Entry(
        path=path, body=body.decode(), checkpoint_id=id, parent_id=parent, label=label, branch_id=branch_id, seq=seq
    )


@whole
def pending_of(n: bytes, packed: bytes, head: bytes | None) -> PendingRow:
    """The pending approval, at the head of its branch."""
    line, _, body = packed.partition(b"\n")
    id, branch, run, thread, agent, tool, label, risk, requested, expires = json.loads(line)
    return PendingRow(
        pending_id=id,
        branch_id=branch,
        run_id=run,
        # Lua has no null that survives in a table, so a missing value is false there, and comes back as false.
        thread_id=thread if thread is not False else None,
        agent=agent,
        tool_name=tool,
        label=label if label is not False else None,
        risk=risk if risk is not False else None,
        checkpoint_id=text_of(head) or "",
        requested_at=float(requested),
        expires_at=float(expires) if expires is not False else None,
        body=body.decode(),
        n=int(n),
    )


@whole
def checkpoint_of(
    n: bytes, seq: bytes, id: bytes, run: bytes, thread: bytes | None, agent: bytes, packed: bytes
) -> CheckpointRow:
    """The root checkpoint, as the list of checkpoints has it."""
    entry = entry_of(packed, id.decode(), int(seq))
    return CheckpointRow(
        checkpoint_id=entry.checkpoint_id or "",
        branch_id=entry.branch_id,
        run_id=run.decode(),
        thread_id=text_of(thread),
        agent=agent.decode(),
        label=entry.label,
        body=entry.body,
        n=int(n) * SIZE + entry.seq,
    )


@whole
def audit_of(n: int, packed: bytes) -> AuditRow:
    """The line of the audit trail."""
    line, _, body = packed.partition(b"\n")
    at, run, thread, pending = json.loads(line)
    return AuditRow(at=at, run_id=run, thread_id=thread, pending_id=pending, body=body.decode(), n=n)


@whole
def document_of(kind: str, key: bytes, packed: bytes) -> Document:
    """The document under a key, as the scripts keep it: a line of versions, one of its time, and its text."""
    versions, expires, body = packed.split(b"\n", 2)
    return Document(
        kind=kind,
        key=key.decode(),
        text=body.decode(),
        version=versions.rpartition(b" ")[2].decode(),
        expires_at=float(expires) if expires else None,
    )

"""The log of a branch: checkpoints and outcomes as entries, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from phronomy.errors import CheckpointError
from phronomy.foundation.json_text import parse
from phronomy.records.audit import audit_record
from phronomy.records.calls import CallSettled, Decided, Ending
from phronomy.records.checkpoint import Checkpoint
from phronomy.stores.log.row_delta import last_checkpoint, outcome_from, outcome_text, row_checkpoint, row_text
from phronomy.stores.rows import AuditRow, Entry, PendingRow

if TYPE_CHECKING:
    from phronomy.records.calls import Outcome


def row_entry(parent: Checkpoint | None, child: Checkpoint, settled: Mapping[str, CallSettled]) -> Entry:
    """The row of `child`, as what is new since `parent`; `settled` are the results journaled between them, by call id."""
    body = row_text(parent, child, settled)
    follows = parent is not None and parent.id == child.parent_id and parent.branch_id == child.branch_id
    return Entry(
        path=child.path,
        body=body,
        checkpoint_id=child.id,
        parent_id=None if follows else child.parent_id,
        label=child.label,
    )


def as_sealed(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as its row has it: without what was journaled after it, and what is nested in it."""
    return checkpoint.sealed()


def journal_entry(outcome: Outcome, path: str) -> Entry:
    """The journal entry of an outcome."""
    return Entry(path=path, body=outcome_text(outcome))


def pending_rows(checkpoint: Checkpoint, label: str | None) -> list[PendingRow]:
    """What the store lists for the approvals that a checkpoint waits for; `label` is that of its branch."""
    return [
        PendingRow(
            pending_id=item.id,
            branch_id=checkpoint.branch_id,
            run_id=checkpoint.run_id,
            thread_id=checkpoint.thread_id,
            agent=checkpoint.agent.name,
            tool_name=item.tool_name,
            label=label,
            risk=item.tool.risk,
            checkpoint_id=checkpoint.id,
            requested_at=item.requested_at.timestamp(),
            expires_at=item.expires_at.timestamp() if item.expires_at and item.on_expiry != "stay" else None,
            body=item.model_dump_json(),
        )
        for item in checkpoint.pending
    ]


def audit_row(state: Checkpoint, outcome: Decided | Ending, inside: Mapping[str, Checkpoint]) -> AuditRow:
    """The line of the trail for an outcome that is recorded in this state; `inside` are its nested runs, by path."""
    record = audit_record(state, outcome, inside)
    return AuditRow(
        at=record.at.timestamp(),
        run_id=record.run_id,
        thread_id=record.thread_id,
        pending_id=record.pending_id,
        body=record.model_dump_json(exclude_none=True),
    )


def settled_in(journal: Iterable[Outcome]) -> dict[str, CallSettled]:
    """The results in a journal, by call id."""
    found: dict[str, CallSettled] = {}
    for outcome in journal:
        if isinstance(outcome, CallSettled):
            found[outcome.id] = outcome
    return found


def rows_of(entries: Iterable[Entry], journals: dict[str, list[Outcome]] | None = None) -> Iterator[Checkpoint]:
    """Each checkpoint of a log, roots and nested ones, oldest first. `journals` gets what follows the last of each path.

    Raises `CheckpointError` for a log that cannot be read.
    """
    journals = {} if journals is None else journals
    tips: dict[str, Checkpoint] = {}
    for entry in entries:
        if entry.checkpoint_id is None:
            journals.setdefault(entry.path, []).append(outcome_from(entry.body))
            continue
        settled = settled_in(journals.pop(entry.path, ()))
        before = tips.get(entry.path)
        columns = {"id": entry.checkpoint_id, "parent_id": entry.parent_id, "path": entry.path}
        now = row_checkpoint(before, entry.body, settled, **columns)
        if before is not None and entry.path == "" and before.run_id != now.run_id:  # the next run of the thread
            tips.clear()
            journals.clear()
        tips[entry.path] = now
        yield now


def replay(entries: Sequence[Entry]) -> list[Checkpoint]:
    """The root checkpoints that a log leads through, oldest first; the last with its journal and the live runs nested in it.

    Raises `CheckpointError` for a log that cannot be read.
    """
    journals: dict[str, list[Outcome]] = {}
    found: list[Checkpoint] = []
    live: dict[str, Checkpoint] = {}
    for row in rows_of(entries, journals):
        if row.path == "":
            if found and found[-1].run_id != row.run_id:
                live.clear()
            found.append(row)
        else:
            live[row.path] = row
    if not found:
        raise CheckpointError("the log holds no checkpoint")
    last = found[-1]
    open_ids = {call.id for call in last.calls if call.result is None}
    nested = tuple(
        row.evolve(journal=tuple(journals.get(path, ())))
        for path, row in sorted(live.items())
        if last.ended is None and (row.ended is None or path.split("/")[0] in open_ids)
    )
    found[-1] = last.evolve(journal=tuple(journals.get("", ())), nested=nested)
    return found


def up_to(checkpoint_id: str, entries: Sequence[Entry]) -> Sequence[Entry]:
    """The entries up to the row of a checkpoint: what there was when it was written."""
    place = next((place for place, entry in enumerate(entries) if entry.checkpoint_id == checkpoint_id), len(entries))
    return entries[: place + 1]


def last_of(entries: Sequence[Entry]) -> Checkpoint:
    """The last root checkpoint of a log, with its journal and the live runs nested in it: the last of `replay`, for far less.

    What a later row replaced is not looked at, so damage there is not seen. Raises `CheckpointError` for a log that cannot be read.
    """
    try:
        return _put_together(entries)
    except (ValueError, CheckpointError):  # reading one after another says what is wrong, and where
        return replay(entries)[-1]


class _Line:
    """The rows of one path, the journal entries before each, and those after the last."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rows: list[Entry] = []
        self.journals: list[list[str]] = []
        self.journal: list[str] = []

    def last(self) -> Checkpoint:
        """The last checkpoint of the path, with its journal."""
        row = self.rows[-1]
        found = last_checkpoint(
            [each.body for each in self.rows],
            self.journals,
            id=row.checkpoint_id,
            parent_id=row.parent_id,
            path=self.path,
            follows=self.rows[-2].checkpoint_id if len(self.rows) > 1 else None,
        )
        return found.evolve(journal=tuple([outcome_from(text) for text in self.journal])) if self.journal else found

    def is_over(self) -> bool:
        """Whether the last row is seen at a glance to be an end. What people write is quoted twice, and cannot look so."""
        return '"ended":"' in self.rows[-1].body


def _put_together(entries: Sequence[Entry]) -> Checkpoint:
    """As `last_of`. Raises `ValueError` or `CheckpointError` for a log that `replay` is to read."""
    lines = {"": _Line("")}
    begun: str | None = None
    for entry in entries:
        path, body = entry.path, entry.body
        if type(body) is not str:
            raise ValueError("a body that is no text")
        line = lines.get(path)
        if line is None:
            line = lines[path] = _Line(path)
        if entry.checkpoint_id is None:
            line.journal.append(body)
            continue
        if path == "" and '"run_id"' in body:
            if begun is not None and _run_of(begun) != _run_of(body):  # the next run of the thread
                lines = {"": line}
            begun = body
        line.rows.append(entry)
        line.journals.append(line.journal)
        line.journal = []
    if not lines[""].rows:
        raise ValueError("no root row")
    last = lines[""].last()
    if last.ended is not None or len(lines) == 1:
        return last
    open_ids = {call.id for call in last.calls if call.result is None}
    nested = []
    for path, line in sorted(lines.items()):
        awaited = path.split("/")[0] in open_ids
        if path and line.rows and (awaited or not line.is_over()):
            part = line.last()
            if awaited or part.ended is None:
                nested.append(part)
    return last.evolve(nested=tuple(nested))


def _run_of(body: str) -> str:
    """The run that a row begins. Raises `ValueError` for a row that begins none."""
    found = parse(body)
    if not isinstance(found, dict) or not isinstance(run_id := found.get("run_id"), str):
        raise ValueError("not a row that begins a run")
    return run_id

"""The log of a branch: checkpoints and outcomes as entries, and back.

A run writes a row at each boundary, and a journal entry for each thing that happens between two boundaries (a call has begun, a call
has settled, somebody has decided). Reading goes from the oldest entry on: a row gives a checkpoint, made of the one before it, and the
journal after the last row gives the outcomes that no checkpoint has taken in yet. After a crash exactly those are left, and they say
which calls were under way.

A log may begin in another branch (a fork, the next run of a thread). Then the store hands out the entries of both, in order. Rows of
nested runs stand in the log of their root, each under its path, so one write covers a call and the run inside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from phronomy.errors import CheckpointError
from phronomy.foundation.json_text import parse
from phronomy.foundation.quoting import quoted_id
from phronomy.records.audit import AuditRecord, audit_record
from phronomy.records.calls import CallSettled, CallStarted, Decided, Ending, Voted
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import PendingApproval
from phronomy.rules.reminders import next_due
from phronomy.stores.log.kept_members import MayName, Texts, named, nothing_kept, with_all
from phronomy.stores.log.reading import read_entry
from phronomy.stores.log.row_call import check_readable
from phronomy.stores.log.row_delta import Columns, last_checkpoint, outcome_from, outcome_text, row_checkpoint, row_text
from phronomy.stores.rows import AuditRow, Branch, Entry, PendingRow

if TYPE_CHECKING:
    from phronomy.records.calls import Outcome


def row_entry(
    parent: Checkpoint | None, child: Checkpoint, settled: Mapping[str, CallSettled], may_name: MayName | None = None
) -> Entry:
    """The row of `child`, as what is new since `parent`; `settled` are the results journaled between them, by call id.

    `may_name` says what the row may name of kept texts. Raises `CheckpointError` for a row that nobody could read back.
    """
    check_readable(parent, child)
    # A delta and not the whole: a conversation of a thousand turns would else be written a thousand times, and the
    # store would grow with its square.
    body = row_text(parent, child, settled)
    if may_name is not None:
        body = named(body, may_name)
    follows = parent is not None and parent.id == child.parent_id and parent.branch_id == child.branch_id
    return Entry(
        path=child.path,
        body=body,
        checkpoint_id=child.id,
        # Within a branch the row before it is the parent, which a reader sees by the place. A row that begins a branch,
        # or a copy, says its parent's id.
        parent_id=None if follows else child.parent_id,
        label=child.label,
    )


def as_sealed(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as its row has it: without what was journaled after it, and what is nested in it."""
    # What an id names for ever. Nested runs have rows of their own, and the journal may go on growing: neither is part
    # of what was approved.
    return checkpoint.sealed()


def journal_entry(outcome: Outcome, path: str, row: Checkpoint | None = None) -> Entry:
    """The journal entry of an outcome. `row` is the checkpoint before it, if it is of the same write."""
    # Calls mostly begin in the write of the row that they follow from, and at its time: it need not be said twice.
    if row is not None and isinstance(outcome, CallStarted) and outcome.at == row.created_at:
        outcome = outcome.evolve(at=None)
    # The outcome alone, without the state it leads to: reading folds it in by the same `apply` that the driver used, so
    # the two cannot differ.
    return Entry(path=path, body=outcome_text(outcome))


def _journaled(text: str, row: Checkpoint | None) -> Outcome:
    """The outcome in a journal entry behind this row. Raises `CheckpointError` for a text that is none, or that says too little."""
    outcome = outcome_from(text)
    if isinstance(outcome, CallStarted) and outcome.at is None:
        if row is None:
            raise CheckpointError("a stored journal cannot be read: a call began, and there is no row to say when")
        outcome = outcome.evolve(at=row.created_at)
    return outcome


def inside_first(nested: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Nested runs in the order in which they are written: each before the run around it."""
    return sorted(nested, key=lambda part: -len(part.path))


def whole_entries(checkpoint: Checkpoint) -> Iterator[Entry]:
    """A checkpoint with the runs nested in it and their journals, as entries that need none before them."""
    for part in (*inside_first(checkpoint.nested), checkpoint):
        yield row_entry(None, as_sealed(part), {})
        yield from (journal_entry(outcome, part.path) for outcome in part.journal)


def pending_rows(checkpoint: Checkpoint, label: str | None) -> list[PendingRow]:
    """The rows to list for the approvals that a checkpoint waits for; `label` is the branch's."""
    place = Branch.of(checkpoint)
    return [pending_row(item, place, checkpoint.id, label) for item in checkpoint.pending]


def request_text(item: PendingApproval) -> str:
    """The text of a request in its row."""
    return item.model_dump_json(exclude_defaults=True)


def pending_row(
    item: PendingApproval, branch: Branch, checkpoint_id: str, label: str | None, body: str | None = None
) -> PendingRow:
    """The row to list for a request that waits on a branch, at this checkpoint; `body` stands for its text."""
    return PendingRow(
        pending_id=item.id,
        # Where it waits is written over by the store, from the branch that is written to.
        branch_id=branch.id,
        run_id=branch.run_id,
        thread_id=branch.thread_id,
        agent=branch.agent,
        tool_name=item.tool_name,
        label=label,
        risk=item.tool.risk,
        checkpoint_id=checkpoint_id,
        # Only a request that something is to be done about at a time is in the index of those that expire: it expires then,
        # or a reminder is due. `recover_all` walks it, and would find the others again and again.
        requested_at=item.requested_at.timestamp(),
        expires_at=due.timestamp() if (due := next_due(item)) is not None else None,
        body=request_text(item) if body is None else body,
    )


def audit_row(state: Checkpoint, outcome: Decided | Voted | Ending, inside: Mapping[str, Checkpoint]) -> AuditRow:
    """The line of the trail for an outcome that is recorded in this state; `inside` are its nested runs, by path."""
    # Made from the state in which the outcome counted. Asked later, the run may have gone on, or be gone.
    return trail_row(audit_record(state, outcome, inside))


def trail_row(record: AuditRecord) -> AuditRow:
    """The row of a line of the trail."""
    return AuditRow(
        at=record.at.timestamp(),
        run_id=record.run_id,
        thread_id=record.thread_id,
        pending_id=record.pending_id,
        body=record.model_dump_json(exclude_none=True),
    )


def settled_in(journal: Iterable[Outcome]) -> dict[str, CallSettled]:
    """The results in a journal, by call id."""
    return {outcome.id: outcome for outcome in journal if isinstance(outcome, CallSettled)}


def items_of(
    entries: Iterable[Entry], kept: Texts = nothing_kept, journals: dict[str, list[Outcome]] | None = None
) -> Iterator[tuple[Entry, Checkpoint | Outcome]]:
    """Each entry of a log with the checkpoint or the outcome in it, in the order of what happened.

    `journals` gets what follows the last checkpoint of each path. `kept` gives the texts that rows name: see `kept_members.py`. Raises
    `CheckpointError` for a log that cannot be read.
    """
    journals = {} if journals is None else journals
    # One chain for each path: the rows of nested runs stand between those of the root, in the order they were written.
    # That order is the only truth about what came first.
    tips: dict[str, Checkpoint] = {}
    for entry in entries:
        if entry.checkpoint_id is None:
            outcome = read_entry(entry, _journaled, entry.body, tips.get(entry.path))
            journals.setdefault(entry.path, []).append(outcome)
            yield entry, outcome
            continue
        # The journal between two rows is used up by the second: a later row finds what it refers to in its own journal,
        # or in its parent.
        settled = settled_in(journals.pop(entry.path, ()))
        before = tips.get(entry.path)
        columns: Columns = {"id": entry.checkpoint_id, "parent_id": entry.parent_id, "path": entry.path}
        now = read_entry(entry, row_checkpoint, before, with_all(entry, kept).body, settled, columns)
        # The log of a thread's next run goes on from this one's. Nested runs and journal of the run before are not the
        # new run's.
        if before is not None and entry.path == "" and before.run_id != now.run_id:  # the next run of the thread
            tips.clear()
            journals.clear()
        tips[entry.path] = now
        yield entry, now


def rows_of(
    entries: Iterable[Entry], kept: Texts = nothing_kept, journals: dict[str, list[Outcome]] | None = None
) -> Iterator[Checkpoint]:
    """Each checkpoint of a log, roots and nested ones, oldest first. As `items_of`."""
    return (item for _, item in items_of(entries, kept, journals) if isinstance(item, Checkpoint))


def replay(entries: Sequence[Entry], kept: Texts = nothing_kept, *, branch_id: str | None = None) -> list[Checkpoint]:
    """The root checkpoints that a log leads through, oldest first; the last with its journal and the live runs nested in it.

    Raises `CheckpointError` for a log that cannot be read. `branch_id` is what it names for a log that is empty.
    """
    journals: dict[str, list[Outcome]] = {}
    found: list[Checkpoint] = []
    live: dict[str, Checkpoint] = {}
    for row in rows_of(entries, kept, journals):
        if row.path == "":
            if found and found[-1].run_id != row.run_id:
                live.clear()
            found.append(row)
        else:
            live[row.path] = row
    # A log without a root row is what is left of a store whose rows were deleted by hand. Said as such, rather than as
    # an index error.
    if not found:
        branch_id = entries[0].branch_id if entries else branch_id
        where = "" if branch_id is None else f" (branch {quoted_id(branch_id)})"
        raise CheckpointError(f"the log holds no checkpoint{where}")
    last = found[-1]
    # A nested run is live as long as the call that it runs in has no result. One that has ended is kept as well until
    # its call settles: a crash may have come between its last row and the result of the call, and then this row is all
    # that knows the result.
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
    # A lineage may hold more than was there when the checkpoint was written: for one that the branch has left behind,
    # what came later is not shown.
    place = next((place for place, entry in enumerate(entries) if entry.checkpoint_id == checkpoint_id), len(entries))
    return entries[: place + 1]


def last_of(entries: Sequence[Entry], kept: Texts = nothing_kept, *, branch_id: str | None = None) -> Checkpoint:
    """The last root checkpoint of a log, with its journal and the live runs nested in it: the last of `replay`, for far less.

    Values that a later row replaced are not read, so damage in them is not seen. Raises `CheckpointError` for what cannot be read.
    """
    try:
        # Two ways to read a log, and a test for each kind of row that holds them together. This one reads the rows as
        # one JSON text and validates what counts in the end; `replay` makes every checkpoint on the way, which costs
        # several times as much. A load and a resume need the last one only. `replay` stays, as history, forks, events
        # and drawings need them all, and since it knows which row is damaged.
        return _put_together(entries, kept)
    except (ValueError, CheckpointError):  # reading one after another says what is wrong, and where
        return replay(entries, kept, branch_id=branch_id)[-1]


class _Line:
    """The rows of one path, the journal entries before each, and those after the last."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rows: list[Entry] = []
        # Kept as texts, by the place of the row that follows: most of the journal is superseded by that row, and then
        # nothing but results is read of it.
        self.journals: dict[int, list[str]] = {}
        self.journal: list[str] = []

    def last(self, kept: Texts) -> Checkpoint:
        """The last checkpoint of the path, with its journal."""
        row = self.rows[-1]
        columns: Columns = {"id": row.checkpoint_id or "", "parent_id": row.parent_id, "path": self.path}
        follows = self.rows[-2].checkpoint_id if len(self.rows) > 1 else None
        found = last_checkpoint([each.body for each in self.rows], self.journals, columns, follows, kept)
        return (
            found.evolve(journal=tuple([_journaled(text, found) for text in self.journal])) if self.journal else found
        )

    def is_over(self) -> bool:
        """Whether the last row is seen at a glance to be an end. What people write is quoted twice, and cannot look so."""
        # A guess that may only be wrong in one direction. Missing an end costs the reading of a run that is then
        # dropped; taking live for ended would lose a run.
        return '"ended":"' in self.rows[-1].body


def _put_together(entries: Sequence[Entry], kept: Texts = nothing_kept) -> Checkpoint:
    """As `last_of`. Raises `ValueError` or `CheckpointError` for a log that `replay` is to read."""
    lines = {"": _Line("")}
    begun: str | None = None
    for entry in entries:
        path, body = entry.path, entry.body
        # What a damaged database may hand out (bytes, a number) is left to `replay`, whose errors name the row.
        if type(body) is not str:
            raise ValueError("a body that is no text")
        line = lines.get(path)
        if line is None:
            line = lines[path] = _Line(path)
        if entry.checkpoint_id is None:
            line.journal.append(body)
            continue
        # A row that names its run begins one. Whether it is the same one (a fork) or the thread's next decides what the
        # nested runs so far belong to. The text is searched first, as parsing every row would cost what this way saves.
        if path == "" and '"run_id"' in body:
            if begun is not None and _run_of(begun) != _run_of(body):  # the next run of the thread
                lines = {"": line}
            begun = body
        if line.journal:
            line.journals[len(line.rows)] = line.journal
            line.journal = []
        line.rows.append(entry)
    if not lines[""].rows:
        raise ValueError("no root row")
    last = lines[""].last(kept)
    if last.ended is not None or len(lines) == 1:
        return last
    open_ids = {call.id for call in last.calls if call.result is None}
    nested = []
    for path, line in sorted(lines.items()):
        awaited = path.split("/")[0] in open_ids
        # A path without rows has journal alone: that is a log that was cut, and the root's own rows say what is to be
        # done about the call.
        if path and line.rows and (awaited or not line.is_over()):
            part = line.last(kept)
            if awaited or part.ended is None:
                nested.append(part)
    return last.evolve(nested=tuple(nested))


def _run_of(body: str) -> str:
    """The run that a row begins. Raises `ValueError` for a row that begins none."""
    found = parse(body)
    if not isinstance(found, dict) or not isinstance(run_id := found.get("run_id"), str):
        raise ValueError("not a row that begins a run")
    return run_id

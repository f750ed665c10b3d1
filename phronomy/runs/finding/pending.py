"""Deciding by what one has: where the pending approval of an id waits, and which approvals wait at a run or a thread.

Nothing is written here. These functions block on the store; the async methods call them in a thread.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from phronomy.approvals.answers import check_digest, check_listed, is_same_answer
from phronomy.engine.ledger import now
from phronomy.engine.spec import Spec
from phronomy.errors import (
    AlreadyVoted,
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    ConfigurationError,
    InvalidDecision,
    UnknownPending,
)
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.result import Result
from phronomy.runs.finding.decisions import Choice
from phronomy.runs.finding.lookup import already, meant, open_head
from phronomy.stores.base import Store
from phronomy.stores.derived.changes import not_found
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.derived.listing import Waiting, current
from phronomy.stores.derived.requests import decision_under, waiting_under, waiting_with_branch
from phronomy.stores.derived.voting import is_repeated
from phronomy.stores.rows import Branch


def asked_under(store: Store, spec: Spec, pending_id: str, digest: str | None) -> Waiting:
    """The one pending approval of this id, as it is listed now, and where it waits.

    Raises `UnknownPending` for an id that nobody knows, `CheckpointAlreadyResumed` for one that was decided, and `InvalidDecision`
    for a digest that is not the request's.
    """
    if digest is not None and not isinstance(digest, str):
        raise InvalidDecision(f"digest is text, not {type(digest).__name__}")
    if (waiting := waiting_under(store, pending_id)) is not None:
        if digest is not None:
            check_digest(waiting.approval, digest)
        return waiting
    # It does not wait any more. If the audit trail knows it, the caller was second, and is told by whom it was decided; the trail
    # outlives the run.
    record = decision_under(store, pending_id)
    raise already(open_head(store, spec, None, record.branch_id), record.checkpoint_id, pending_id)


def decided_before(
    store: Store, pending_id: str, digest: str | None, choice: Choice, error: CheckpointAlreadyResumed
) -> str:
    """The branch on which this very decision was recorded before, under its key. Raises the error if it was another one."""
    answer = (choice.decisions or {}).get(pending_id)
    try:
        record = decision_under(store, pending_id)
    except UnknownPending:
        raise error from None
    shown = record.digest or ""
    given = (shown, choice.by, choice.key, choice.said)
    same = answer is not None and (
        is_same_answer(record, answer, *given) or is_repeated(store, pending_id, answer, *given)
    )
    if not same or digest not in (None, shown):
        raise error
    return record.branch_id


def voted_before(store: Store, pending_id: str, choice: Choice, error: AlreadyVoted) -> Result[Any]:
    """The run as it waits, if this very vote was recorded before, under its key. Raises the error if it was another one."""
    answer, waits = (choice.decisions or {}).get(pending_id), waiting_with_branch(store, pending_id)
    if answer is None or waits is None:
        raise error
    waiting, branch = waits
    if not is_repeated(store, pending_id, answer, waiting.approval.digest, choice.by, choice.key, choice.said):
        raise error
    return Result(status="suspended", checkpoint=store.head(branch.id)[1])


def under_way(store: Store, branch_id: str) -> Result[Any]:
    """The result of a run that another worker drives."""
    return Result(status="running", checkpoint=store.head(branch_id)[1])


def approvals_at(
    store: Store, run: Checkpoint | str | None, thread_id: str | None, *, bearer: bool
) -> tuple[Checkpoint, list[str]]:
    """The checkpoint that is given, or that of a run or a thread, and its plain approvals that still wait.

    Raises `UnknownPending` if there are none, `ConfigurationError`, and what `known` raises.
    """
    where = store
    if thread_id is not None and run is None:
        branch, given = current(store, thread_id)
    elif isinstance(run, str) and thread_id is None:
        branch, given = _of_run(store, run)
    elif run is not None and thread_id is None:
        branch, given, where = meant(store, run, bearer=bearer)
    else:
        raise ConfigurationError("approve_all takes a checkpoint or a run, or else a thread_id")
    # Only what still waits, by the list of the store: the checkpoint may be one that others have decided on since.
    rows = {row.pending_id: row for row in where.pending_rows(run_id=branch.run_id) if row.branch_id == branch.id}
    waiting = [item for item in given.pending if item.id in rows and not item.has_lapsed(now(where))]
    # A yes to all is a yes to what was asked for as an approval. A call whose outcome is unknown would run again by it, and a
    # question has no yes.
    found = [item.id for item in waiting if item.why == "approval" and not item.external]
    if not found:
        others = ", ".join(f"{item.id} ({'external' if item.external else item.why})" for item in waiting)
        raise UnknownPending(
            f"no approval waits at checkpoint {given.id}"
            + (f"; decide by itself what does: {others}" if others else ""),
            pending_id="",
        )
    kept = kept_by(where)
    check_listed([Waiting.of(rows[id], kept).approval for id in found], given.pending, given.id)
    return given, found


def _of_run(store: Store, id: str) -> tuple[Branch, Checkpoint]:
    """Where a run or a branch stands, or the checkpoint of this id."""
    # A run or branch first, then a checkpoint: an id has 96 random bits, so it is never that of two things.
    try:
        return store.head(id)
    except CheckpointNotFound:
        with suppress(CheckpointNotFound):
            return store.locate(id)
        raise not_found("run, branch or checkpoint", id) from None

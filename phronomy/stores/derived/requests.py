"""Requests for a decision, as whoever has the store alone sees them: what is asked, and what has become of it.

As long as a request waits, the list of what is pending has it. Once it is decided, the audit trail says at which checkpoint it waited,
and the log of that branch says the rest: who decided what, whether the call has begun, and how it ended.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, cast

from phronomy.errors import CheckpointNotFound, InvalidDecision, UnknownPending, UnreadableRow
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, object_of, parse
from phronomy.foundation.quoting import kept_id, quoted_id
from phronomy.records.audit import AuditRecord
from phronomy.records.calls import CallResult
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.stores.derived import set_aside
from phronomy.stores.derived.kept_texts import kept_by, kept_text
from phronomy.stores.derived.listing import Waiting, decision_on
from phronomy.stores.derived.request_history import Course, RequestHistory
from phronomy.stores.log.log import items_of
from phronomy.stores.native import stands_for
from phronomy.stores.rows import Branch, BranchFilter, BranchStatus, PendingFilter, PendingRow

if TYPE_CHECKING:
    from phronomy.stores.base import Store

RequestStatus: TypeAlias = Literal["pending", "expired", "decided", "set_aside", "running", "settled", "asked_again"]
"""Where a request stands: it waits; its time is over; it is decided, and nobody has begun to carry that out; that could not be carried
out, and waits for an operator; the call runs; the call has ended, or is not run; a human was asked again, under another id."""

_PRIMITIVES: Final = ("select_pending", "select_branches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for a decision, where it waits, and what has become of it: `store.request(pending_id)`.

    `approval` is what a human is shown. `decision` is there once it was decided, `result` once the call has ended: as the model reads
    it, of whatever kind. `asked_again` is the id of the request that stands in its place: the answer could not be carried out, or
    nobody knows whether the call took effect. `set_aside` says why a worker could not carry the decision out, such as that the agent
    has changed: an operator has to look after it. `run_status` is how its run, or fork, stands now. `schema` is the JSON
    Schema of the arguments, `result_schema` that of the result of an external tool, and `description` what the tool says of
    itself, each None where the store does not have it.
    """

    approval: PendingApproval
    status: RequestStatus
    checkpoint_id: str
    run_id: str
    branch_id: str
    thread_id: str | None
    agent: str
    label: str | None = None
    decision: Decision | None = None
    result: CallResult | None = field(default=None, repr=False)
    asked_again: str | None = None
    set_aside: str | None = None
    run_status: BranchStatus
    schema: JsonDict | None = field(default=None, repr=False)
    result_schema: JsonDict | None = field(default=None, repr=False)
    description: str | None = field(default=None, repr=False)


def request(store: Store, pending_id: str) -> Request:
    """As `Store.request`."""
    if (found := waiting_with_branch(store, pending_id)) is None:
        return request_decided(store, pending_id, decision_under(store, pending_id))
    waiting, branch = found
    shown = request_of(waiting, branch, datetime.fromtimestamp(store.clock(), UTC))
    return with_kept(store, shown)


def with_kept(store: Store, found: Request) -> Request:
    """The request with what the store keeps of its tool."""
    item = found.approval
    return replace(
        found,
        schema=schema_of(store, item),
        result_schema=result_schema_of(store, item),
        description=description_of(store, item),
    )


def schema_of(store: Store, item: PendingApproval) -> JsonDict | None:
    """The JSON Schema of the arguments of a request; None where none is kept: of a question, say, or a run that was taken in."""
    text = kept_text(store, item.tool.schema_hash)
    return None if text is None else object_of(parse(text))


def result_schema_of(store: Store, item: PendingApproval) -> JsonDict | None:
    """The JSON Schema of the result that is asked for; None where none is kept: of a tool that runs here, say."""
    text = kept_text(store, item.returns_hash)
    return None if text is None else object_of(parse(text))


def description_of(store: Store, item: PendingApproval) -> str | None:
    """What the tool of a request said of itself when it asked; None where nothing is kept."""
    return kept_text(store, item.description_hash)


def waiting_under(store: Store, pending_id: str) -> Waiting | None:
    """What waits under this id; None if nothing does. Raises `InvalidDecision` if it is not one request alone."""
    found = waiting_with_branch(store, pending_id)
    return None if found is None else found[0]


def waiting_with_branch(store: Store, pending_id: str, branch_id: str | None = None) -> tuple[Waiting, Branch] | None:
    """The request that waits under this id, in this branch if it is given, and its branch; None if there is none.

    Raises `InvalidDecision` if it is not one request alone.
    """
    if not isinstance(pending_id, str):
        raise InvalidDecision(f"the pending id is text, not {type(pending_id).__name__}")
    if stands_for(store, "select_waiting", _PRIMITIVES):
        found = cast("SelectsWaiting", store).select_waiting(pending_id)
    else:
        found = _waiting(store, pending_id)
    found = [(row, branch) for row, branch in found if branch_id in (None, row.branch_id)]
    # Several branches may wait under one id, where a checkpoint was saved beside its run. To pick one of them would be a guess.
    if len(found) > 1:
        raise InvalidDecision(
            f"{pending_id} waits at several checkpoints: resume one of {', '.join(row.checkpoint_id for row, _ in found)}",
            pending_id=pending_id,
        )
    return (Waiting.of(found[0][0], kept_by(store)), found[0][1]) if found else None


class SelectsWaiting(Protocol):
    """A store that can read at once what takes three reads otherwise."""

    def select_waiting(self, pending_id: str) -> list[tuple[PendingRow, Branch]]:
        """The pending approvals under an id, each with its branch, both of one moment."""
        ...


def _waiting(store: Store, pending_id: str) -> list[tuple[PendingRow, Branch]]:
    """As `select_waiting`, by the primitives that every store has."""
    wanted = PendingFilter(pending_id=pending_id)
    rows = store.select_pending(wanted)
    for row in rows:
        if not row.branch_id:  # it is damaged, and reading it says so
            Waiting.of(row)
    branches = {
        branch.id: branch
        for run_id in {row.run_id for row in rows}
        for branch in store.select_branches(BranchFilter(run_id=run_id))
    }
    if not rows:
        return []
    # Once more after the branches: what was decided between the two reads is in the log that a write is compared with.
    rows = store.select_pending(wanted)
    for id in {row.branch_id for row in rows}.difference(branches):
        # A branch in no list of its run was deleted meanwhile, or is damaged: then reading it says so.
        with suppress(CheckpointNotFound):
            branches[id] = store.lineage(branch_id=id).branch
    return [(row, branches[row.branch_id]) for row in rows if row.branch_id in branches]


def request_of(waiting: Waiting, branch: Branch, at: datetime) -> Request:
    """The request that waits on a branch at this time."""
    return Request(
        approval=waiting.approval,
        status="expired" if waiting.approval.has_lapsed(at) else "pending",
        checkpoint_id=waiting.checkpoint_id,
        run_id=waiting.run_id,
        branch_id=waiting.branch_id,
        thread_id=waiting.thread_id,
        agent=waiting.agent,
        label=waiting.label,
        run_status=branch.status,
    )


def decision_under(store: Store, pending_id: str) -> AuditRecord:
    """The line of the trail for the decision on what waited under this id. Raises `UnknownPending`."""
    if (record := decision_on(store, pending_id)) is not None:
        return record
    raise UnknownPending(
        f"nothing waits under {quoted_id(pending_id)}, and no decision on it is recorded: it is of another store, or its run"
        " was ended; store.pending() lists what waits",
        pending_id=kept_id(pending_id),
    )


def not_carried_out(store: Store, branch: Branch) -> list[Course]:
    """The requests of a branch that are decided and left for a worker. Raises `UnreadableRow` for a log that cannot be read."""
    if branch.handed is None:
        return []
    history = RequestHistory()
    for entry, item in items_of(store.lineage(branch_id=branch.id).entries, kept_by(store)):
        history.read(entry.path, item)
    return [each for each in history.requests.values() if each.status == "decided"]


def request_decided(store: Store, pending_id: str, record: AuditRecord) -> Request:
    """The request that was decided under this id, by its line of the trail.

    Raises `UnknownPending`, and `UnreadableRow` for a log that does not hold it.
    """
    try:
        lineage = store.lineage(branch_id=record.branch_id)
    except CheckpointNotFound:
        by = f" by {record.by.id}" if record.by is not None else ""
        raise UnknownPending(
            f"pending {pending_id} was decided{by}, and its run is deleted since; store.audit(pending_id=...) says what is left",
            pending_id=pending_id,
        ) from None
    history = RequestHistory(of=pending_id)
    asked: Checkpoint | None = None
    for entry, item in items_of(lineage.entries, kept_by(store)):
        history.read(entry.path, item)
        if isinstance(item, Checkpoint) and item.id == record.checkpoint_id:
            asked = item
    course = history.requests.get(pending_id)
    if asked is None or course is None:
        raise UnreadableRow(
            f"the log of branch {record.branch_id} does not hold pending {pending_id}, which was decided there: a row of it is"
            " damaged, or was written by a later release",
            kind="request",
            id=kept_id(pending_id),
            run_id=record.run_id,
            branch_id=record.branch_id,
        )
    shown = next((item for item in asked.pending if item.id == pending_id), course.approval)
    status: RequestStatus = "decided" if course.status == "pending" else course.status
    aside = set_aside.reason(store, lineage.branch) if status == "decided" else None
    found = Request(
        approval=shown,
        status=status if aside is None else "set_aside",
        checkpoint_id=record.checkpoint_id,
        run_id=record.run_id,
        branch_id=record.branch_id,
        thread_id=record.thread_id,
        agent=lineage.branch.agent,
        label=lineage.branch.label,
        decision=course.decision,
        result=course.result if shown.why != "question" else None,  # that of the call whose body asked
        asked_again=course.asked_again,
        set_aside=aside,
        run_status=lineage.branch.status,
    )
    return with_kept(store, found)

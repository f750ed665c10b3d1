"""Taking a decision with the store alone: it is recorded in one write, and whoever drives the run carries it out.

What the request itself says is checked here: whether it still waits, for what, until when, and whether the answer fits. What only the
agent's code can say (whether edited arguments are valid for the tool, and pass its guardrails) is checked by whoever has that code,
before anything runs; `Decision.judged` is False until then. An answer that does not pass is asked for again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from phronomy.approvals.answers import KINDS, answer_digest, check_answer, check_digest, check_key, is_same_answer
from phronomy.errors import (
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    InvalidDecision,
    RequestExpired,
    StoreError,
)
from phronomy.foundation.json_text import JsonDict, JsonText
from phronomy.records.audit import audit_record_of
from phronomy.records.calls import Decided
from phronomy.records.decisions import (
    SAID,
    Answer,
    Approve,
    Decision,
    PendingApproval,
    Principal,
    Reject,
    Respond,
    as_principal,
)
from phronomy.stores import dispatch
from phronomy.stores.derived.listing import Waiting
from phronomy.stores.derived.requests import (
    Request,
    decision_under,
    description_of,
    request_decided,
    request_of,
    schema_of,
    waiting_with_branch,
)
from phronomy.stores.log.log import journal_entry, trail_row
from phronomy.stores.rows import ENDED, Append, Behind, Branch, Claim

if TYPE_CHECKING:
    from phronomy.errors import Progress
    from phronomy.stores.base import Store


def decide(
    store: Store,
    pending_id: str,
    answer: Answer,
    *,
    by: str | Principal,
    digest: str,
    channel: str | None,
    key: str | None,
) -> Request:
    """As `Store.decide`."""
    who = as_principal(by)
    if who is None:
        raise InvalidDecision("by says who decides: a Principal, or its id as text that is not empty")
    if type(answer) not in KINDS:
        raise InvalidDecision(f"the answer is Approve, Reject, Respond or Skip, not {type(answer).__name__}")
    for name, text in (("the digest", digest), ("channel", channel or "")):
        if not isinstance(text, str):
            raise InvalidDecision(f"{name} is text, not {type(text).__name__}")
    check_key(key)
    seen: set[tuple[int, Claim | None]] = set()
    while True:
        if (waits := waiting_with_branch(store, pending_id)) is None:
            return _decided_before(store, pending_id, answer, who, digest, key)
        waiting, branch = waits
        at = datetime.fromtimestamp(store.clock(), UTC)
        _check(waiting.approval, answer, digest, at)
        schema = schema_of(store, waiting.approval)
        _check_edit(waiting.approval, answer, schema)
        # Read before the write: a read that fails after it would report that nothing was decided.
        description = description_of(store, waiting.approval)
        decision = _decision(waiting.approval, answer, who, channel, key, at)
        change = _change(store, branch, waiting, decision)
        try:
            store.append(change)
        except CheckpointNotFound:  # it was deleted a moment ago: what is left of it is in the trail
            continue
        except Behind:
            # Something was written meanwhile: perhaps this very decision, by somebody else. A store that says so though nothing has
            # changed contradicts itself, and would do so for ever.
            if (change.seq, change.holder) in seen:
                raise StoreError(
                    f"branch {branch.id} is the same as before, and the store says that it has changed"
                ) from None
            seen.add((change.seq, change.holder))
            continue
        # In this process whoever holds the run hears of it at once; a worker that waits for something to do does by the dispatch.
        store.keeper.poke()
        dispatch.wake(store.dispatch, branch.run_id)
        found = request_of(waiting, branch, at)
        return replace(found, status="decided", decision=decision, schema=schema, description=description)


def _check(item: PendingApproval, answer: Answer, digest: str, at: datetime) -> None:
    """Refuse what cannot be decided so. Nothing is written. Raises `InvalidDecision`, `RequestExpired`."""
    check_digest(item, digest)
    if item.has_lapsed(at):
        raise RequestExpired(
            f"pending {item.id} had lapsed at {item.expires_at:%Y-%m-%d %H:%M:%S} UTC, before the decision came, so it did not count:"
            " whoever drives the run settles the call as expired",
            pending_id=item.id,
        )
    check_answer(item, answer)
    if isinstance(answer, Approve) and answer.args is not None and item.between_steps:
        raise InvalidDecision(
            f"pending {item.id} stands between two steps of the run: what is edited there only the agent can check. Use"
            " agent.decide, or let it go on as it is",
            pending_id=item.id,
        )


def _check_edit(item: PendingApproval, answer: Answer, schema: JsonDict | None) -> None:
    """Refuse edited arguments that do not fit the schema that is kept with the request. Raises `InvalidDecision`."""
    if schema is None or _edits(item, answer) is None or not isinstance(answer, Approve):
        return
    # The schema of a server may be made so that a check of it takes for ever. The worker has what stops that.
    if item.tool.source.startswith("mcp:"):
        return
    from phronomy.tools.json_schema.answers import misfit  # noqa: PLC0415  # it loads jsonschema, and most decisions edit nothing

    # By the parameter alone: what stands deeper may be a key of the human's, and nobody here knows which parameters are secret.
    if (wrong := misfit(answer.args, schema, whole=False)) is not None:
        raise InvalidDecision(
            f"the edited arguments of pending {item.id} do not fit the schema of {item.tool_name[:80]}: {wrong}. Nothing was decided:"
            " store.request(id).schema has it",
            pending_id=item.id,
        )


def _decision(
    item: PendingApproval, answer: Answer, by: Principal, channel: str | None, key: str | None, at: datetime
) -> Decision:
    """The decision that the answer makes, to be checked by whoever carries it out."""
    return Decision(
        pending_id=item.id,
        digest=item.digest,
        kind=KINDS[type(answer)],
        path=item.path,
        reason=answer.reason if isinstance(answer, Reject) else None,
        then=answer.then if isinstance(answer, Reject) else "continue",
        by=by,
        channel=channel,
        at=at,
        judged=False,
        key=key,
        answer_digest=answer_digest(answer, item.digest) if key is not None else None,
    ).evolve(
        args=_edits(item, answer),
        content=answer.__dict__["content"] if isinstance(answer, Respond) else JsonText("null"),
    )


def _edits(item: PendingApproval, answer: Answer) -> JsonText | None:
    """The arguments that the answer gives in place of those that were shown. What was edited back to what it was is no edit."""
    given: JsonText | None = answer.__dict__["args"] if isinstance(answer, Approve) else None
    return given if given != item.__dict__["args"] else None


def _change(store: Store, branch: Branch, waiting: Waiting, decision: Decision) -> Append:
    """The write: the decision in the log of the branch, for whoever drives the run now or next."""
    held = branch.owner if branch.is_held(store.clock()) else None
    record = audit_record_of(
        decision,
        waiting.approval,
        agent=waiting.approval.agent or waiting.agent,
        run_id=branch.run_id,
        thread_id=branch.thread_id,
        branch_id=branch.id,
        checkpoint_id=waiting.checkpoint_id,
    )
    return Append(
        branch_id=branch.id,
        seq=branch.seq,
        # Of the worker that holds the run, or of nobody: the write is refused if that is otherwise by now.
        holder=Claim(branch_id=branch.id, run_id=branch.run_id, owner=held or "", fence=branch.fence),
        entries=(journal_entry(Decided(decision=decision), ""),),
        closed=(decision.pending_id,),
        audit=(trail_row(record),),
    )


def _decided_before(
    store: Store, pending_id: str, answer: Answer, by: Principal, digest: str, key: str | None
) -> Request:
    """The request as it stands, if this very decision was recorded before.

    Raises `CheckpointAlreadyResumed`, `UnknownPending`, and `RequestExpired` if nobody decided in time.
    """
    record = decision_under(store, pending_id)
    found = request_decided(store, pending_id, record)
    if is_same_answer(record, answer, digest, by, key):
        return found
    decision = found.decision
    # Late is late, whether a worker has settled the call by now or not.
    if decision is not None and decision.kind == "expire":
        raise RequestExpired(
            f"pending {pending_id} had lapsed at {decision.at:%Y-%m-%d %H:%M:%S} UTC, before the decision came, so it did not count",
            pending_id=pending_id,
        )
    who = f" ({SAID[decision.kind]} by {decision.by.id})" if decision is not None and decision.by is not None else ""
    now = f"asked again as {found.asked_again}" if found.asked_again is not None else found.status
    raise CheckpointAlreadyResumed(
        f"pending {pending_id} of checkpoint {found.checkpoint_id} was decided before{who}; it is {now}",
        checkpoint_id=found.checkpoint_id,
        pending_id=pending_id,
        decision=decision,
        progress=_progress(found),
    )


def _progress(found: Request) -> Progress:
    """How far the run is, in the words of the error."""
    if found.run_status in ENDED:
        return "ended"
    if found.status == "running":
        return "running"
    return "failed" if found.run_status == "failed" else "suspended" if found.run_status == "suspended" else "unknown"

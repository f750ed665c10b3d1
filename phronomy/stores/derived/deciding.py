"""Taking a decision with the store alone: it is recorded in one write, and whoever drives the run carries it out.

What the request itself says is checked here: whether it still waits, for what, until when, and whether the answer fits. What only the
agent's code can say (whether edited arguments are valid for the tool, and pass its guardrails) is checked by whoever has that code,
before anything runs; `Decision.judged` is False until then. An answer that does not pass is asked for again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from phronomy.approvals.answers import (
    ANSWERS,
    answer_digest,
    check_answer,
    check_digest,
    check_key,
    has_words,
    is_same_answer,
    shows_something_else,
)
from phronomy.errors import (
    AlreadyVoted,
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    InvalidDecision,
    NotAnApprover,
    RequestExpired,
)
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, JsonText
from phronomy.records.calls import Added, Decided, Reminded, Voted
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import (
    SAID,
    Answer,
    Approve,
    Decision,
    PendingApproval,
    Reject,
    Respond,
    blocked_by,
    metadata_of,
)
from phronomy.records.principals import Principal, as_principal
from phronomy.records.trigger_errors import TriggerSuperseded
from phronomy.rules.voted_calls import with_more
from phronomy.stores import dispatch
from phronomy.stores.derived.changes import check_moved
from phronomy.stores.derived.listing import Waiting
from phronomy.stores.derived.people import as_met
from phronomy.stores.derived.requests import (
    Request,
    decision_under,
    request,
    request_decided,
    request_of,
    waiting_with_branch,
    with_kept,
)
from phronomy.stores.derived.voters import check_may_decide
from phronomy.stores.derived.voting import is_repeated, note_refusal, voted
from phronomy.stores.derived.waits import check_in_time, firing, record_of, waiting_on
from phronomy.stores.log.log import journal_entry, pending_row, trail_row
from phronomy.stores.rows import ENDED, Append, Behind, Branch, Claim, holder_of

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
    who = decider(by, channel)
    check_given(answer, digest, key)
    seen: set[tuple[str, int, Claim | None]] = set()
    while True:
        if (waits := waiting_with_branch(store, pending_id)) is None:
            return decided_before(store, pending_id, answer, who, digest, key)
        waiting, branch = waits
        try:
            proposal = propose(store, waiting, branch, answer, by=who, digest=digest, channel=channel, key=key)
        except AlreadyVoted:
            if is_repeated(store, pending_id, answer, digest, who, key):
                return request(store, pending_id)
            raise
        except NotAnApprover as error:
            note_refusal(store, error, answer.kind, who, channel)
            raise
        change = proposal.change
        try:
            store.append(change)
        except CheckpointNotFound:  # it was deleted a moment ago: what is left of it is in the trail
            continue
        except Behind:
            # Something was written meanwhile: perhaps this very decision, by somebody else.
            check_moved(change, seen)
            continue
        tell_of(store, branch)
        return proposal.found


def decider(by: str | Principal, channel: str | None) -> Principal:
    """Who decides. Raises `InvalidDecision` for nobody, and for a channel that is none."""
    who = as_principal(by)
    if who is None:
        raise InvalidDecision("by says who decides: a Principal, or its id as text that is not empty")
    if not isinstance(channel or "", str):
        raise InvalidDecision(f"channel is text, not {type(channel).__name__}")
    return who


def check_given(answer: Answer, digest: str, key: str | None) -> None:
    """Refuse what is no answer to any request. Raises `InvalidDecision`."""
    if type(answer) not in ANSWERS:
        raise InvalidDecision(f"the answer is Approve, Reject, Respond or Skip, not {type(answer).__name__}")
    if not isinstance(digest, str):
        raise InvalidDecision(f"the digest is text, not {type(digest).__name__}")
    check_key(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A decision that was checked, and is not written yet: the write, and the request as it is after it."""

    change: Append
    found: Request


def propose(
    store: Store,
    waiting: Waiting,
    branch: Branch,
    answer: Answer,
    *,
    by: Principal,
    digest: str,
    channel: str | None,
    key: str | None,
    heads: dict[str, tuple[Branch, Checkpoint]] | None = None,
) -> Proposal:
    """The write that decides what waits on a branch, or votes on it. Nothing is written.

    `heads` are the ends of the logs that were read already, by branch. Raises `InvalidDecision`, `RequestExpired`, `NotAnApprover`,
    `AlreadyVoted`, `TriggerSuperseded`.
    """
    at = datetime.fromtimestamp(store.clock(), UTC)
    check_may_decide(store, waiting.approval.id, by)
    by = as_met(store, by) if has_words(answer) else by
    waiting = as_in_log(store, waiting, branch, {} if heads is None else heads)
    _check(waiting.approval, answer, digest, at)
    beside = waiting_on(store, branch) if waiting.approval.trigger is not None else []
    check_in_time(waiting, beside, at)
    # Read before the write: a read that fails after it would report that nothing was decided.
    found = with_kept(store, request_of(waiting, branch, at))
    _check_edit(waiting.approval, answer, found.schema)
    decision = _decision(waiting.approval, answer, by, channel, key, at)
    outcome = voted(store, waiting.approval, decision, at)
    if isinstance(outcome, Voted):
        found = replace(found, approval=found.approval.evolve(votes=outcome.decision.votes))
    else:
        found = replace(found, status="decided", decision=outcome.decision)
        if beside:
            return Proposal(change=firing(store, branch, waiting, beside, outcome), found=found)
    return Proposal(change=_change(store, branch, waiting, outcome), found=found)


def as_in_log(store: Store, waiting: Waiting, branch: Branch, heads: dict[str, tuple[Branch, Checkpoint]]) -> Waiting:
    """The request as the log of its branch has it, with its votes. Raises `InvalidDecision` if the list shows another one.

    People are shown the list, and the log is carried out: a writer who can change one of the two alone decides nothing by that.
    """
    if branch.id not in heads:
        heads[branch.id] = store.head(branch.id)
    now, head = heads[branch.id]
    if now.seq != branch.seq:  # somebody has written meanwhile: then our write is refused, and all is looked at again
        return waiting
    id = waiting.approval.id
    item = _pending_in(head, id)
    if item is None:
        raise shows_something_else(id, head.id)
    if waiting.approval != item:  # both are of one moment here, so nothing came between them
        raise shows_something_else(id, head.id)
    return replace(waiting, approval=item)


def _pending_in(head: Checkpoint, pending_id: str) -> PendingApproval | None:
    """The request that waits under this id at the end of a log, with the votes and reminders in its journal; None if none waits."""
    item = next((each for each in head.pending if each.id == pending_id), None)
    if item is None:
        return None
    for outcome in head.journal:
        if isinstance(outcome, Reminded) and outcome.pending_id == pending_id:
            item = item.evolve(reminded=outcome.step + 1)
        elif isinstance(outcome, Voted | Decided) and outcome.decision.pending_id == pending_id:
            if isinstance(outcome, Decided) or outcome.request is not None:
                return None
            item = item.evolve(votes=outcome.decision.votes)
        elif isinstance(outcome, Added):
            item = item.evolve(approvers=with_more(item.approvers, head.requester, [outcome.by]))
    return item


def tell_of(store: Store, branch: Branch) -> None:
    """Tell whoever carries the run on that something was left for it."""
    # In this process whoever holds the run hears of it at once; a worker that waits for something to do does by the dispatch.
    store.keeper.poke()
    dispatch.wake(store.dispatch, branch.run_id)


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
    if (wrong := misfit(answer.args, schema, whole=False, declared=True)) is not None:
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
        kind=answer.kind,
        path=item.path,
        reason=answer.reason if isinstance(answer, Reject) else None,
        then=answer.then if isinstance(answer, Reject) else "continue",
        blocks=blocked_by(answer.then, item.tool, item.__dict__["args"]) if isinstance(answer, Reject) else None,
        by=by,
        channel=channel,
        at=at,
        judged=False,
        key=key,
        answer_digest=answer_digest(answer, item.digest) if key is not None else None,
        event=item.trigger.event if item.trigger is not None else None,
    ).evolve(
        args=_edits(item, answer),
        content=answer.__dict__["content"] if isinstance(answer, Respond) else JsonText("null"),
        metadata=metadata_of(answer),
    )


def _edits(item: PendingApproval, answer: Answer) -> JsonText | None:
    """The arguments that the answer gives in place of those that were shown. What was edited back to what it was is no edit."""
    given: JsonText | None = answer.__dict__["args"] if isinstance(answer, Approve) else None
    return given if given != item.__dict__["args"] else None


def _change(store: Store, branch: Branch, waiting: Waiting, outcome: Decided | Voted) -> Append:
    """The write: the decision or the vote in the log of the branch, for whoever drives the run now or next."""
    decision, votes = outcome.decision, isinstance(outcome, Voted)
    record = record_of(branch, waiting, decision)
    # Nothing runs by a vote that others have to follow, nor by one of which only the agent's code can say whether it counts.
    item = waiting.approval
    if votes or decision.to_check:
        record = record.evolve(vote=votes, ran_digest=None)
    # A request with one more vote waits on: it is listed anew, so that whoever looks sees the vote.
    voted_on = item.evolve(votes=decision.votes)
    listed = (pending_row(voted_on, branch, waiting.checkpoint_id, waiting.label),) if votes else ()
    return Append(
        branch_id=branch.id,
        seq=branch.seq,
        # Of the worker that holds the run, or of nobody: the write is refused if that is otherwise by now.
        holder=holder_of(branch, store.clock()),
        hands_over=not votes,
        entries=(journal_entry(outcome, ""),),
        closed=(decision.pending_id,),
        opened=listed,
        audit=(trail_row(record),),
    )


def decided_before(
    store: Store, pending_id: str, answer: Answer, by: Principal, digest: str, key: str | None
) -> Request:
    """The request as it stands, if this very decision was recorded before.

    Raises `CheckpointAlreadyResumed`, `UnknownPending`, and `RequestExpired` if nobody decided in time.
    """
    record = decision_under(store, pending_id)
    found = request_decided(store, pending_id, record)
    if is_same_answer(record, answer, digest, by, key) or is_repeated(store, pending_id, answer, digest, by, key):
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
    if decision is not None and decision.kind == "supersede":
        raise TriggerSuperseded(
            f"pending {pending_id} was superseded before: {decision.reason}; it is {now}",
            checkpoint_id=found.checkpoint_id,
            pending_id=pending_id,
            decision=decision,
            progress=_progress(found),
        )
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

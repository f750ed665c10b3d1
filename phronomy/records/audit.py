"""The audit trail: who decided what, when, through which channel, why, and the digests of what was shown and of what ran."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import not_
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from phronomy.records.calls import Added, Decided, Ending, Judged, Voted, place_of
from phronomy.records.chain import decision_on
from phronomy.records.checkpoint import waits_under
from phronomy.records.decisions import AuditKind, Decision, DecisionKind, PendingApproval, Why
from phronomy.records.principals import Principal, Recorded
from phronomy.records.record import EMPTY, Metadata, Record, Text, Time, digest_of, is_empty

if TYPE_CHECKING:
    from phronomy.records.checkpoint import Checkpoint


class AuditRecord(Record):
    """One decision in the audit trail, or one branch that somebody started. It contains no arguments and no results.

    `agent` is the agent or graph that asked, at `path` if it is a nested run. After a handoff, it is the agent that had
    the conversation; if the whole run was ended, it is the agent of the run. `checkpoint_id` is the boundary at which
    the decision was made. `why` is the reason of the request.

    `digest` covers the tool and the arguments that were shown; for an `edit`, the new state of the graph. It is None if
    the whole run was ended. `ran_digest` covers the tool and the arguments with which the run went on, or is None if
    nothing ran, or if edited arguments are still to be checked because they were decided with the store alone. It
    differs from `digest` if the arguments were `edited`. `content_digest` covers the answer that a human gave in place
    of a tool. `key` is the idempotency key of the decision, and `answer_digest` covers the answer that was given with
    it. A decision that was made with the store alone, and changes something, has a second record, which is `checked`: a
    worker adds it once it has checked the decision, and it has the `ran_digest`.

    If the request asks for people, each vote has a record: the last one is that of the decision, and those before it are
    marked as a `vote`. A record that is `refused` is of somebody who may not decide; it changed nothing. `behalf_of` is
    the person for whom a deputy decided, `grant` the standing grant that was used, and `policy` the version of the
    approval policy: a hash.

    A `reject` through the channel `"scopes"` is of a call that was refused because its tool is not there for the run:
    `reason` names the scopes that the run lacks. It has no `by`, `pending_id` and `digest`, since nobody was asked.

    A `fork` and a `restore` are of somebody who started a branch at the checkpoint `checkpoint_id`. `branch_id` is the new branch, and
    `agent` the agent of the run. `edited` says that the branch starts with another state of the graph.

    A `message` is of somebody who sent a message to the run: `key` is the id of the message, and `content_digest` covers its content.

    An `unreadable` record stands in the place of a line that is damaged, or was written by a later release: it has the time and the ids
    that the store keeps beside the line, and its `reason` says which line it is.

    `metadata` is the data of the application that was given with the decision or the vote.

    Old records have no `why`, `ran_digest` or `content_digest`.
    """

    version: Literal[1] = 1
    at: Time
    kind: AuditKind
    by: Recorded | None = None
    channel: Text | None = None
    reason: Text | None = None
    run_id: str
    thread_id: Text | None = None
    branch_id: str
    checkpoint_id: str
    agent: Text
    path: str = ""
    pending_id: str | None = None
    tool_name: Text | None = None
    why: Why | None = None
    digest: str | None = None
    ran_digest: str | None = None
    content_digest: str | None = None
    edited: bool = False
    key: Text | None = None
    answer_digest: str | None = None
    checked: bool = Field(default=False, exclude_if=not_)
    vote: bool = Field(default=False, exclude_if=not_)
    refused: bool = Field(default=False, exclude_if=not_)
    behalf_of: Recorded | None = None
    grant: str | None = None
    policy: str | None = None
    metadata: Metadata = Field(default=EMPTY, repr=False, exclude_if=is_empty)


def unreadable_record(n: int, at: datetime, run_id: str, thread_id: str | None, pending_id: str | None) -> AuditRecord:
    """The record in the place of line `n` of the trail, which cannot be read."""
    return AuditRecord(
        at=at,
        kind="unreadable",
        reason=f"line {n} of the audit trail cannot be read: it is damaged, or was written by a later release",
        run_id=run_id,
        thread_id=thread_id,
        branch_id="",
        checkpoint_id="",
        agent="",
        pending_id=pending_id,
    )


def audit_record(
    state: "Checkpoint", outcome: Decided | Voted | Ending, inside: "Mapping[str, Checkpoint]"
) -> AuditRecord:
    """What the trail says of a decision, or of the end that somebody made, in this state; `inside` are its nested runs, by path."""
    facts = _place(state)
    if isinstance(outcome, Ending):
        kind: DecisionKind = "cancel" if outcome.status == "cancelled" else "supersede"
        return AuditRecord(
            **facts, agent=state.agent.name, at=outcome.at, kind=kind, by=outcome.by, reason=outcome.reason
        )
    decision = outcome.decision
    tool_name, why, agent = _request(state, decision.pending_id)
    facts |= {"tool_name": tool_name, "why": why, "agent": agent or inside.get(decision.path, state).speaker}
    checked = decision_on(state, decision.pending_id) is not None
    if isinstance(outcome, Voted):
        # One that puts other arguments to the others, or was checked by a worker, is the decision on the old request.
        return _record(decision, None, facts).evolve(checked=checked, vote=outcome.request is None)
    goes_on = outcome.edited if outcome.edited is not None else decision
    return _record(decision, None if decision.to_check else goes_on.digest, facts).evolve(checked=checked)


def vote_on_new_request(state: "Checkpoint", outcome: Voted) -> list[AuditRecord]:
    """What the trail says of the vote with which a request begins that was put in place of another: it is for what is asked now."""
    request = outcome.request
    if request is None or request.digest is None or request.pending_id is None:
        return []
    decision = outcome.decision
    facts = _about(state, decision.pending_id)
    voted = decision.evolve(pending_id=request.pending_id, digest=request.digest, key=None, answer_digest=None)
    return [_record(voted, None, facts).evolve(vote=True)]


def votes_by_grant(state: "Checkpoint", decision: Decision) -> list[AuditRecord]:
    """What the trail says of the givers of a grant before the last one, whose vote is the decision: each has voted by it."""
    if decision.grant is None:
        return []
    facts = _about(state, decision.pending_id)
    return [
        _record(decision.evolve(by=each.by, behalf_of=each.behalf_of, at=each.at), None, facts).evolve(vote=True)
        for each in decision.votes[:-1]
    ]


def refusals(state: "Checkpoint", outcome: Judged) -> list[AuditRecord]:
    """What the trail says of people who had decided with the store alone, and who, as a worker found, may not."""
    found: list[AuditRecord] = []
    for judgement in outcome.judgements:
        place = place_of(state.calls, judgement.id)
        call = state.calls[place] if place is not None else None
        given = decision_on(state, call.pending_id) if call is not None and call.status == "answered" else None
        if given is None or not given.to_check:
            continue
        found.append(_record(given, None, _about(state, given.pending_id)).evolve(checked=True, refused=True))
    return found


def audit_record_of(decision: Decision, request: PendingApproval, **facts: Any) -> AuditRecord:
    """What the trail says of a decision on this request. `facts` are its agent, run, thread, branch and checkpoint."""
    facts |= {"tool_name": request.tool_name, "why": request.why}
    unknown = decision.args is not None and not decision.judged
    return _record(decision, None if unknown else decision.digest, facts)


def branch_record(
    source: "Checkpoint",
    branch_id: str,
    kind: Literal["fork", "restore"],
    by: Principal | None,
    at: datetime,
    *,
    edited: bool,
) -> AuditRecord:
    """What the trail says of a branch that somebody started at the checkpoint `source`."""
    facts = {**_place(source), "branch_id": branch_id, "agent": source.agent.name}
    return AuditRecord(**facts, at=at, kind=kind, by=by, edited=edited)


def message_record(state: "Checkpoint", sent: Added, channel: str | None) -> AuditRecord:
    """The record of a message that somebody sent to the run in this state."""
    content = digest_of(sent.message.json_text("content"))
    facts = {**_place(state), "agent": state.speaker, "key": sent.id, "content_digest": content}
    return AuditRecord(**facts, at=sent.at, kind="message", by=sent.by, channel=channel)


def scope_refusal(state: "Checkpoint", tool_name: str, missing: Sequence[str], at: datetime) -> AuditRecord:
    """What the trail says of a call of a tool that is not there for the run, because the run lacks these scopes."""
    reason = f"the run does not have {', '.join(missing)}"
    facts: dict[str, Any] = {**_place(state), "agent": state.speaker, "path": state.path, "tool_name": tool_name}
    return AuditRecord(**facts, at=at, kind="reject", channel=SCOPES, reason=reason)


SCOPES: Final = "scopes"
"""The channel of a record about a call that nobody decided: the scopes of the run did."""


def _record(decision: Decision, goes_on: str | None, facts: Mapping[str, Any]) -> AuditRecord:
    return AuditRecord(
        **facts,
        at=decision.at,
        kind=decision.kind,
        by=decision.by,
        channel=decision.channel,
        reason=decision.reason,
        path=decision.path,
        pending_id=decision.pending_id,
        digest=decision.digest,
        ran_digest=goes_on if decision.kind == "approve" else None,
        content_digest=digest_of(decision.json_text("content")) if decision.kind == "respond" else None,
        edited=decision.args is not None,
        key=decision.key,
        answer_digest=decision.answer_digest,
        behalf_of=decision.behalf_of,
        grant=decision.grant,
        policy=decision.policy,
    ).evolve(metadata=decision.__dict__["metadata"])


def _place(state: "Checkpoint") -> dict[str, Any]:
    """Where something was decided."""
    return {
        "run_id": state.run_id,
        "thread_id": state.thread_id,
        "branch_id": state.branch_id,
        "checkpoint_id": state.id,
    }


def _about(state: "Checkpoint", pending_id: str) -> dict[str, Any]:
    """Where something was decided, and on what."""
    tool_name, why, agent = _request(state, pending_id)
    return {**_place(state), "agent": agent or state.speaker, "tool_name": tool_name, "why": why}


def _request(state: "Checkpoint", pending_id: str) -> tuple[str | None, Why | None, str | None]:
    """The tool, the reason and the agent of what waits, or waited, under this id; nothing is known of one that is not there."""
    if (item := waits_under(state, pending_id)) is not None:
        return item.tool_name, item.why, item.agent
    for call in state.calls:
        if call.tool is not None and call.pending_id == pending_id:
            return call.tool.name, call.why, state.speaker
    return None, None, None

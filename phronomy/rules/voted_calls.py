"""Votes on an open call: each is kept until they decide the request, and a decision counts only if the votes with it are enough.

The rules of counting are in `votes.py`. Here they are applied to what an outcome says, so that no worker can record a decision for
which there were too few people, whatever it believes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from phronomy.errors import IllegalOutcome
from phronomy.records.approvers import Approvers, Vote
from phronomy.records.calls import Call, Decided, Judgement, Voted
from phronomy.records.chain import with_known, with_writer
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.principals import Principal
from phronomy.rules.votes import GOVERNED, VOTES, approves, decides, governed, tallies


def approvers_of(call: Call) -> tuple[Approvers, ...]:
    """The requirements that count for a call, as it is asked about now; none if anybody may decide it alone."""
    return call.brief.approvers if call.brief is not None and call.why in GOVERNED else ()


def with_senders(state: Checkpoint) -> Checkpoint:
    """The state with all who sent a message since the model was asked named in the requests that wait, where they may not approve."""
    # Not others: who edits a call that waits, say, has asked for what comes next, and not for that call.
    if not state.added:
        return state
    senders = [each.by for each in state.added]
    return state.evolve(calls=tuple([_with_authors(call, state.requester, senders) for call in state.calls]))


def _with_authors(call: Call, requester: Principal | None, senders: Sequence[Principal | None]) -> Call:
    # A decision from before they wrote stands: it was counted by the writers of that time.
    if call.brief is not None and call.status in ("asking", "pending"):
        call = call.evolve(brief=call.brief.evolve(approvers=with_more(call.brief.approvers, requester, senders)))
    if call.waiting:
        waits = [item.evolve(approvers=with_more(item.approvers, requester, senders)) for item in call.waiting]
        call = call.evolve(waiting=tuple(waits))
    return call


def with_more(
    levels: Sequence[Approvers], requester: Principal | None, writers: Sequence[Principal | None]
) -> tuple[Approvers, ...]:
    """The requirements with those who have written too, where authors may not approve."""
    return tuple([_with_more(level, requester, writers) if level.not_requester else level for level in levels])


def _with_more(level: Approvers, requester: Principal | None, writers: Sequence[Principal | None]) -> Approvers:
    authors, known = level.authors, level.known
    for writer in writers:
        authors, known = with_writer(authors, requester, writer), with_known(known, requester, writer)
    return level.evolve(authors=authors, known=known)


def needs_check(call: Call, decision: Decision) -> bool:
    """Whether a decision was taken where the agent's code was not, and that code has to look at it before it counts."""
    # To run a call as it was shown, or not to run it, needs nobody's leave but the human's. Other arguments have to be valid, and pass
    # the guardrails; what an external tool gave has to be of its type; what is let go on at a breakpoint may need an approval; and
    # a predicate may have to say whether this human is one of those.
    if decision.judged:
        return False
    edits = decision.__dict__["args"] is not None or call.why == "breakpoint"
    gives = decision.kind == "respond" and call.tool is not None
    if (decision.kind == "approve" and edits) or gives:
        return True
    return decision.to_check


def is_governed(call: Call, edited: Judgement | None) -> bool:
    """Whether a decision on a call takes people, for what it is or for what it was edited to."""
    brief = call.brief if edited is None else edited.brief
    return brief is not None and brief.approvers != ()


def check_votes(call: Call, outcome: Decided, requester: Principal | None, path: str = "") -> None:
    """Refuse a decision on a governed call for which the votes are not enough. Raises `IllegalOutcome`.

    `path` is that of the run: votes are noted in the outermost one alone, which knows those before.
    """
    decision, edited = outcome.decision, outcome.edited
    brief = call.brief if edited is None else edited.brief
    levels = brief.approvers if brief is not None and call.why in GOVERNED else ()
    if not levels or call.requested_at is None or decision.kind not in VOTES:
        return
    same = edited is None or edited.digest == call.digest
    _check_last(call, decision, call.digest if edited is None else edited.digest)
    if path == "":
        _check_one_more(call, call.votes if same else (), decision)
    _check_enough(call, levels, decision, asked_at(call, outcome) or call.requested_at, requester)


def asked_at(call: Call, outcome: Decided) -> datetime | None:
    """When what is decided was asked: of other arguments than those that were shown, when they were given."""
    edited = outcome.edited
    if edited is None or edited.digest == call.digest:
        return call.requested_at
    return edited.requested_at or outcome.decision.at


def check_votes_inside(call: Call, decision: Decision, path: str = "") -> None:
    """Refuse a decision on what waits inside a call, for which the votes are not enough. Raises `IllegalOutcome`.

    `path` as in `check_votes`.
    """
    item = next((each for each in call.waiting if each.id == decision.pending_id), None)
    levels = governed(item) if item is not None else ()
    if item is None or not levels or decision.kind not in VOTES:
        return
    # The levels of an edit begin anew.
    edits = decision.__dict__["args"] is not None
    # An edit, and what is to be checked, is looked at where it waits: that run knows what the edit came to.
    if not edits and not decision.to_check:
        _check_last(call, decision, item.digest)
    if path == "" and (not edits or len(decision.votes) > 1):
        _check_one_more(call, item.votes, decision)
    if not edits and not decision.to_check:
        _check_enough(call, levels, decision, item.requested_at, item.requester)


def _check_enough(
    call: Call, levels: Sequence[Approvers], decision: Decision, requested_at: datetime, requester: Principal | None
) -> None:
    tally = tallies(levels, decision.votes, requested_at=requested_at, requester=requester)
    if not decides(tally, decision.votes[-1].kind):
        raise IllegalOutcome(f"call {call.status}", "Decided", "it takes more votes")


def _check_one_more(call: Call, before: Sequence[Vote], decision: Decision) -> None:
    """Refuse votes that are not those before and one more, or those that one grant stands for. Raises `IllegalOutcome`."""
    # Each decision is of one person. Others who are said to have voted would have voted nowhere.
    new = decision.votes[len(before) :]
    granted = decision.grant is not None and all(vote.grant == decision.grant for vote in new)
    if decision.votes[: len(before)] != tuple(before) or not (len(new) == 1 or (new and granted)):
        raise IllegalOutcome(f"call {call.status}", "Decided", "its votes are not those that were cast, and one more")


def _check_last(call: Call, decision: Decision, digest: str | None) -> None:
    """Refuse votes of which the last is not for what stands there. Raises `IllegalOutcome`."""
    votes = decision.votes
    if not votes:
        raise IllegalOutcome(f"call {call.status}", "Decided", "its votes are not those that were cast, and one more")
    if votes[-1].kind != decision.kind or votes[-1].digest != digest:
        raise IllegalOutcome(f"call {call.status}", "Decided", "its last vote is for something else")


def with_vote(call: Call, outcome: Voted, path: str = "") -> Call:
    """The call after a vote that does not decide it: it waits on, or waits under a new request, to which earlier votes may not apply.

    `path` as in `check_votes`. Raises `IllegalOutcome`.
    """
    decision, request = outcome.decision, outcome.request
    if decision.digest != call.digest:
        raise IllegalOutcome(f"call {call.status}", "Voted", "its digest is not that of the call")
    if request is None and call.status != "pending":
        raise IllegalOutcome(f"call {call.status}", "Voted", "it is answered, and asked about anew")
    same = request is None or request.digest == call.digest
    _check_last(call, decision, call.digest if request is None else request.digest)
    if path == "":
        _check_one_more(call, call.votes if same else (), decision)
    if request is None:
        return call.evolve(votes=decision.votes)
    if request.verdict != "pend" or not request.pending_id or request.pending_id == call.pending_id:
        raise IllegalOutcome(f"call {call.status}", "Voted", "it is asked about anew, under an id of its own")
    return call.evolve(args=request.__dict__["args"], digest=request.digest, edited=call.edited or not same)


def with_vote_inside(call: Call, item: PendingApproval, outcome: Voted, path: str = "") -> Call:
    """The call after a vote on what waits inside it. `path` as in `check_votes`. Raises `IllegalOutcome`."""
    decision = outcome.decision
    if decision.digest != item.digest or outcome.request is not None or item.why not in GOVERNED:
        raise IllegalOutcome(f"call {call.status}", "Voted", "what waits inside it takes no such vote")
    _check_last(call, decision, item.digest)
    if path == "":
        _check_one_more(call, item.votes, decision)
    waits = tuple(each.evolve(votes=decision.votes) if each is item else each for each in call.waiting)
    return call.evolve(waiting=waits)


def covered_by_votes(call: Call, decision: Decision, requester: Principal | None) -> bool:
    """Whether the approval of a call was given by enough people, counted once more from the record."""
    if call.brief is None or not call.brief.approvers or not (levels := approvers_of(call)):
        return True
    assert call.digest is not None and call.requested_at is not None, "it was judged, and asked about"
    return approves(levels, decision.votes, digest=call.digest, requested_at=call.requested_at, requester=requester)
